/* cmd_compare.c: sluice compare: configurations side by side: speed, memory, traffic, losses, and whether they give the same
 * bits.
 *
 * Each is run for some steps in a process of its own, in turn with the others and several times, so that what else the
 * machine does meets all of them. A run tells its events to memory that it shares with this process. One configuration alone
 * is compared with itself without ZeRO, offloading and recomputation. What they add up to are lines of JSON, which the library
 * shows as a table and as a page. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/cli.h"

enum { MOST_VARIANTS = 8, MOST_RUNS = 64, MOST_STEPS = 100000, MOST_LOSSES = 1000000, MOST_STREAMS = 8 };
enum { USUAL_STEPS = 20, USUAL_ROUNDS = 2 };
enum { NO_FIT = 3, STOPPED = 75 }; /* exit statuses */

/* What a run tells. */
typedef struct compared_step {
    double loss, seconds;
} compared_step;

typedef struct compared_stream {
    char name[32];
    double busy, exposed; /* seconds of the timed step */
} compared_stream;

typedef struct compared_run {
    int exit_status;
    uint64_t done;          /* steps */
    sluice_event plan, end; /* their pointers mean nothing here */
    compared_stream streams[MOST_STREAMS];
    int stream_count; /* 0: no step of this run was timed */
    char weights[65], state[65];
    char why[512];     /* it failed; "": it did not */
    double validation; /* loss of the last evaluation; NaN: there was none */
    double samples, tokens;
    compared_step steps[]; /* as many as were asked for */
} compared_run;

/* One column of the comparison. */
typedef struct compared_variant {
    const char *config, *name;
    bool plain;
    bool dropped;                  /* does not fit: not run again */
    compared_run *runs[MOST_RUNS]; /* of each seed, one after the other, so many rounds */
    int run_count;
} compared_variant;

typedef struct comparison {
    const cli_arguments *arguments;
    int64_t steps, rounds, seeds, ranks;
    compared_variant variants[MOST_VARIANTS];
    int variant_count;
} comparison;

/* ---- one run, in a process of its own ---- */

typedef struct compared_job {
    const cli_arguments *arguments;
    const sluice_config *config;
    const char *name;
    compared_run *run;
    int64_t steps;
    bool warns; /* the first run of a variant tells its warnings */
} compared_job;

static void keep_streams(compared_run *r, const sluice_event *e)
{
    for (int i = 0; i < e->stream_count && i < MOST_STREAMS; i++) {
        compared_stream *s = &r->streams[r->stream_count++];
        snprintf(s->name, sizeof s->name, "%s", e->streams[i].name);
        s->busy = e->streams[i].busy_seconds;
        s->exposed = e->streams[i].exposed_seconds;
    }
}

static void on_event(void *user, const sluice_event *e)
{
    compared_job *j = user;
    compared_run *r = j->run;
    if (e->kind == SLUICE_EVENT_PLAN) r->plan = *e;
    if (e->kind == SLUICE_EVENT_EVAL) r->validation = e->loss;
    if (e->kind == SLUICE_EVENT_STEP && e->step >= 1 && e->step <= (uint64_t)j->steps) {
        r->steps[e->step - 1] = (compared_step){ e->loss, e->seconds };
        r->done = e->step;
        r->samples = (double)e->samples;
        r->tokens = (double)e->tokens;
    }
    if (e->kind != SLUICE_EVENT_END) return;
    r->end = *e;
    keep_streams(r, e);
    if (e->weights_sha256 != NULL) snprintf(r->weights, sizeof r->weights, "%s", e->weights_sha256);
    if (e->state_sha256 != NULL) snprintf(r->state, sizeof r->state, "%s", e->state_sha256);
}

static void on_log(void *user, sluice_log_level level, const char *line)
{
    const compared_job *j = user;
    if (level == SLUICE_LOG_WARNING && j->warns) fprintf(stderr, "sluice: %s: warning: %s\n", j->name, line);
}

static sluice_status train(void *user, sluice_world *world)
{
    compared_job *j = user;
    sluice_job_options o;
    cli_job_options(j->arguments, &o);
    o.world = world;
    o.event = on_event;
    o.user = j;
    o.log = on_log;
    o.log_user = j;
    o.stop = cli_stop_flag();
    o.time_step = true;
    return sluice_job_train(j->config, &o);
}

/* What every run has in common, and what makes a variant plain. */
static int set_keys(sluice_config *config, const comparison *c, const compared_variant *v, int64_t seed)
{
    static const char *const plain[] = { "zero_optimization.stage=0",
                                         "zero_optimization.offload_optimizer.device=none",
                                         "zero_optimization.offload_param.device=none",
                                         "activation_checkpointing.mode=none",
                                         "memory.device=auto",
                                         "memory.host=auto" };
    static const char *const quiet[] = { "epochs=null", "checkpoint.path=", "save=", "hashes=true" };
    char length[64], own_seed[96], given[64];
    int64_t first = 0;
    sluice_status st = sluice_config_get(config, "seed", given, sizeof given);
    if (st == SLUICE_OK) first = strtoll(given, NULL, 10);
    snprintf(length, sizeof length, "steps=%lld", (long long)c->steps);
    snprintf(own_seed, sizeof own_seed, "seed=%lld", (long long)(first + seed));
    for (size_t i = 0; st == SLUICE_OK && v->plain && i < sizeof plain / sizeof plain[0]; i++)
        st = sluice_config_set(config, plain[i]);
    for (size_t i = 0; st == SLUICE_OK && i < sizeof quiet / sizeof quiet[0]; i++)
        st = sluice_config_set(config, quiet[i]);
    if (st == SLUICE_OK) st = sluice_config_set(config, length);
    if (st == SLUICE_OK) st = sluice_config_set(config, own_seed);
    return cli_report(st);
}

/* Of the child: its exit status. */
static int run_here(const comparison *c, const compared_variant *v, int64_t seed, compared_run *run)
{
    cli_arguments own = *c->arguments;
    sluice_config *config;
    sluice_launch_options launch;
    own.operand = v->config;
    int status = cli_load_config(&own, &config);
    if (status == 0) status = set_keys(config, c, v, seed);
    if (status != 0) return status;
    compared_job j = { &own, config, v->name, run, c->steps, v->run_count == 0 };
    sluice_launch_options_init(&launch);
    launch.ranks = (int)c->ranks;
    launch.stop = cli_stop_flag();
    sluice_status st = c->ranks > 1 ? sluice_launch(&launch, train, &j) : train(&j, NULL);
    status = sluice_exit_status(st);
    if (status == 0) return 0;
    snprintf(run->why, sizeof run->why, "%s", sluice_error());
    fprintf(stderr, "sluice: %s: %s\n", v->name, run->why);
    return status;
}

static int run_apart(const comparison *c, const compared_variant *v, int64_t seed, compared_run *run)
{
    int status;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) _exit(run_here(c, v, seed, run));
    if (child < 0) return cli_usage("compare: no process could be started: %s", strerror(errno));
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

/* ---- all runs ---- */

static size_t run_bytes(const comparison *c)
{
    return sizeof(compared_run) + (size_t)c->steps * sizeof(compared_step);
}

/* 0; or the exit status that ends the comparison. */
static int run_variant(const comparison *c, compared_variant *v, int64_t seed)
{
    compared_run *run = mmap(NULL, run_bytes(c), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (run == MAP_FAILED) return cli_usage("out of memory while comparing");
    run->validation = (double)NAN;
    run->exit_status = run_apart(c, v, seed, run);
    v->runs[v->run_count++] = run;
    if (run->exit_status == NO_FIT) {
        v->dropped = true;
        return 0;
    }
    return run->exit_status;
}

static int run_all(comparison *c)
{
    int status = 0;
    for (int64_t seed = 0; seed < c->seeds; seed++)
        for (int64_t round = 0; round < c->rounds; round++)
            for (int i = 0; i < c->variant_count && status == 0; i++) {
                compared_variant *v = &c->variants[i];
                if (__atomic_load_n(cli_stop_flag(), __ATOMIC_RELAXED) != 0) return STOPPED;
                if (!v->dropped) status = run_variant(c, v, seed);
            }
    return status;
}

/* ---- what they add up to ---- */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Median, and a tenth of the steps from each end: of all runs, less the first steps, which touch new memory. */
static void step_times(const comparison *c, const compared_variant *v, double out[3])
{
    size_t n = 0;
    double *list = malloc(((size_t)v->run_count * (size_t)c->steps + 1) * sizeof *list);
    out[0] = out[1] = out[2] = (double)NAN;
    if (list == NULL) return;
    for (int i = 0; i < v->run_count; i++)
        for (uint64_t k = v->runs[i]->done > 1 ? 1 : 0; k < v->runs[i]->done; k++)
            list[n++] = v->runs[i]->steps[k].seconds;
    qsort(list, n, sizeof *list, by_value);
    for (int i = 0; n > 0 && i < 3; i++)
        out[i] = list[(size_t)((double)(n - 1) * (i == 0 ? 0.5 : i == 1 ? 0.1 : 0.9) + 0.5)];
    free(list);
}

static double last_loss(const compared_run *r)
{
    return r->done > 0 ? r->steps[r->done - 1].loss : (double)NAN;
}

static double last_validation(const compared_run *r)
{
    return r->validation;
}

/* Mean over the seeds, of each its first run, and how far the farthest is from it. */
static void spread(const comparison *c, const compared_variant *v, double (*of)(const compared_run *), double *mean,
                   double *far)
{
    *mean = *far = 0;
    for (int64_t s = 0; s < c->seeds; s++) *mean += of(v->runs[s * c->rounds]) / (double)c->seeds;
    for (int64_t s = 0; s < c->seeds; s++) *far = fmax(*far, fabs(of(v->runs[s * c->rounds]) - *mean));
}

/* The first step whose losses are not the same bits; 0: there is none. */
static uint64_t first_difference(const compared_run *a, const compared_run *b)
{
    for (uint64_t i = 0; i < a->done && i < b->done; i++)
        if (memcmp(&a->steps[i].loss, &b->steps[i].loss, sizeof(double)) != 0) return i + 1;
    return 0;
}

static bool same_bits(const compared_run *a, const compared_run *b)
{
    return strcmp(a->weights, b->weights) == 0 && strcmp(a->state, b->state) == 0 && first_difference(a, b) == 0;
}

/* In words: of a variant beside the first one. */
static void judge_bits(const comparison *c, const compared_variant *first, const compared_variant *v, char *out,
                       size_t bytes)
{
    for (int i = 1; i < v->run_count; i++)
        if (i % c->rounds != 0 && !same_bits(v->runs[i - i % (int)c->rounds], v->runs[i])) {
            snprintf(out, bytes, "its own runs differ");
            return;
        }
    snprintf(out, bytes, v == first ? "repeatable" : "the same bits");
    if (c->rounds == 1 && v == first) snprintf(out, bytes, "-");
    for (int64_t s = 0; v != first && s < c->seeds; s++) {
        const compared_run *a = first->runs[s * c->rounds], *b = v->runs[s * c->rounds];
        uint64_t step = first_difference(a, b);
        if (same_bits(a, b)) continue;
        if (step > 0)
            snprintf(out, bytes, "differs from step %llu", (unsigned long long)step);
        else
            snprintf(out, bytes, "same losses, other weights");
        return;
    }
}

static const compared_variant *first_whole(const comparison *c)
{
    for (int i = 0; i < c->variant_count; i++)
        if (!c->variants[i].dropped) return &c->variants[i];
    return NULL;
}

/* ---- in JSON: for programs, for the table and for the page ---- */

static void write_number(FILE *out, const char *name, double value)
{
    if (isfinite(value))
        fprintf(out, ",\"%s\":%.17g", name, value);
    else
        fprintf(out, ",\"%s\":null", name);
}

static void write_text(FILE *out, const char *name, const char *text)
{
    char shown[1024];
    sluice_printable(text, shown, sizeof shown);
    fprintf(out, ",\"%s\":\"", name);
    for (const char *p = shown; *p != '\0'; p++) fprintf(out, "%s%c", *p == '"' || *p == '\\' ? "\\" : "", *p);
    fprintf(out, "\"");
}

static void write_speed(FILE *out, const comparison *c, const compared_variant *v)
{
    const compared_run *r = v->runs[0];
    double t[3];
    step_times(c, v, t);
    write_number(out, "step_seconds", t[0]);
    write_number(out, "step_seconds_10", t[1]);
    write_number(out, "step_seconds_90", t[2]);
    write_number(out, "predicted_step_seconds", r->plan.step_seconds);
    write_text(out, "units", r->tokens > 0 ? "tokens" : "samples");
    write_number(out, "units_per_second", (r->tokens > 0 ? r->tokens : r->samples) / t[0]);
    write_number(out, "mfu", r->end.peak_flops > 0 ? r->end.model_flops / t[0] / r->end.peak_flops : (double)NAN);
}

static void write_bytes(FILE *out, const sluice_event *e)
{
    fprintf(out, ",\"peak_bytes\":{\"device\":%llu,\"host\":%llu,\"disk\":%llu}", (unsigned long long)e->peak.device,
            (unsigned long long)e->peak.host, (unsigned long long)e->peak.disk);
    fprintf(out, ",\"moved_bytes\":{\"to_device\":%llu,\"to_host\":%llu,\"disk_read\":%llu,\"disk_write\":%llu}",
            (unsigned long long)e->moved_to_device, (unsigned long long)e->moved_to_host,
            (unsigned long long)e->moved_disk_read, (unsigned long long)e->moved_disk_write);
    fprintf(out, ",\"sent_bytes\":%llu", (unsigned long long)(e->comm_gather + e->comm_reduce + e->comm_norm));
}

/* Of the shortest of the steps that were timed, one in each run: what else the machine does makes the others longer. */
static void write_streams(FILE *out, const compared_variant *v)
{
    const compared_run *r = v->runs[0];
    for (int i = 1; i < v->run_count; i++)
        if (v->runs[i]->stream_count > 0 && v->runs[i]->end.timed_seconds < r->end.timed_seconds) r = v->runs[i];
    if (r->stream_count == 0) return;
    write_number(out, "timed_seconds", r->end.timed_seconds);
    fprintf(out, ",\"streams\":[");
    for (int i = 0; i < r->stream_count; i++) {
        fprintf(out, "%s{\"stream\":%d", i > 0 ? "," : "", i);
        write_text(out, "name", r->streams[i].name);
        write_number(out, "busy_seconds", r->streams[i].busy);
        write_number(out, "exposed_seconds", r->streams[i].exposed);
        fprintf(out, "}");
    }
    fprintf(out, "]");
}

/* A list of each seed, of its first run. */
static void write_losses(FILE *out, const comparison *c, const compared_variant *v)
{
    fprintf(out, ",\"losses\":[");
    for (int64_t s = 0; s < c->seeds; s++) {
        const compared_run *r = v->runs[s * c->rounds];
        fprintf(out, "%s[", s > 0 ? "," : "");
        for (uint64_t i = 0; i < r->done; i++)
            if (isfinite(r->steps[i].loss))
                fprintf(out, "%s%.17g", i > 0 ? "," : "", r->steps[i].loss);
            else
                fprintf(out, "%snull", i > 0 ? "," : "");
        fprintf(out, "]");
    }
    fprintf(out, "]");
}

static void write_quality(FILE *out, const comparison *c, const compared_variant *v)
{
    double mean, far;
    char bits[40];
    spread(c, v, last_loss, &mean, &far);
    write_number(out, "loss", mean);
    write_number(out, "loss_spread", far);
    spread(c, v, last_validation, &mean, &far);
    write_number(out, "validation_loss", mean);
    write_number(out, "validation_loss_spread", far);
    judge_bits(c, first_whole(c), v, bits, sizeof bits);
    write_text(out, "bits", bits);
    write_text(out, "weights_sha256", v->runs[0]->weights);
    write_losses(out, c, v);
}

static void write_line(FILE *out, const comparison *c, const compared_variant *v)
{
    fprintf(out, "{\"event\":\"compared\"");
    write_text(out, "name", v->name);
    fprintf(out, ",\"fits\":%s,\"steps\":%lld,\"rounds\":%lld,\"seeds\":%lld,\"ranks\":%lld",
            v->dropped ? "false" : "true", (long long)c->steps, (long long)c->rounds, (long long)c->seeds,
            (long long)c->ranks);
    if (v->dropped)
        write_text(out, "why", v->runs[v->run_count - 1]->why);
    else {
        write_speed(out, c, v);
        write_bytes(out, &v->runs[0]->end);
        write_streams(out, v);
        write_quality(out, c, v);
    }
    fprintf(out, "}\n");
}

/* All lines; to be given to free. NULL: no memory. */
static char *write_lines(const comparison *c)
{
    char *lines = NULL;
    size_t bytes;
    FILE *out = open_memstream(&lines, &bytes);
    if (out == NULL) return NULL;
    for (int i = 0; i < c->variant_count; i++) write_line(out, c, &c->variants[i]);
    if (fclose(out) == 0) return lines;
    free(lines);
    return NULL;
}

/* Lines or the table on standard output, and the page where one is asked for. */
static int show(const comparison *c)
{
    const cli_arguments *a = c->arguments;
    char *lines = write_lines(c);
    if (lines == NULL) return cli_usage("out of memory while comparing");
    if (a->json) fputs(lines, stdout);
    int status = cli_report(sluice_comparison_show(lines, a->json ? NULL : stdout, a->out));
    free(lines);
    if (status == 0 && a->out != NULL && !a->json) {
        char shown[4096];
        sluice_printable(a->out, shown, sizeof shown);
        printf("page written to %s\n", shown);
    }
    return status;
}

/* ---- the command ---- */

static const char *last_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

/* 0, or the exit status after a message. */
static int take_arguments(const cli_arguments *a, comparison *c)
{
    *c = (comparison){ .arguments = a,
                       .steps = a->steps > 0 ? a->steps : USUAL_STEPS,
                       .rounds = a->rounds > 0 ? a->rounds : USUAL_ROUNDS,
                       .seeds = a->seeds > 0 ? a->seeds : 1,
                       .ranks = a->ranks > 0 ? a->ranks : 1 };
    if (cli_launched_ranks() > 1) return cli_usage("compare starts its ranks itself: --ranks N, without a launcher");
    if (c->steps > MOST_STEPS) return cli_usage("--steps: at most %d steps are compared", MOST_STEPS);
    if (c->rounds * c->seeds > MOST_RUNS)
        return cli_usage("--rounds times --seeds: at most %d runs of each", MOST_RUNS);
    if (c->steps * c->seeds > MOST_LOSSES)
        return cli_usage("--steps times --seeds: at most %d losses of each", MOST_LOSSES);
    if (a->operand_count + 1 > MOST_VARIANTS) return cli_usage("compare: at most %d configurations", MOST_VARIANTS);
    c->variants[c->variant_count++] = (compared_variant){ .config = a->operand, .name = last_name(a->operand) };
    for (int i = 0; i < a->operand_count; i++)
        c->variants[c->variant_count++] =
            (compared_variant){ .config = a->operands[i], .name = last_name(a->operands[i]) };
    if (c->variant_count == 1)
        c->variants[c->variant_count++] = (compared_variant){ .config = a->operand, .name = "plain", .plain = true };
    return 0;
}

/* The page is no file that one of the runs reads or writes; 0, or the exit status after a message. */
static int check_page(const comparison *c)
{
    int status = 0;
    for (int i = 0; i < c->variant_count && status == 0; i++) {
        sluice_config *config;
        cli_arguments own = *c->arguments;
        own.operand = c->variants[i].config;
        status = cli_load_config(&own, &config);
        if (status != 0) break;
        status = cli_report(sluice_config_check_output(config, "--out", c->arguments->out));
        sluice_config_destroy(config);
    }
    return status;
}

int cli_compare(const cli_arguments *a)
{
    comparison c;
    int status = take_arguments(a, &c);
    if (status == 0 && a->out != NULL && a->out[0] != '\0') status = check_page(&c);
    if (status == 0 && a->out != NULL) status = cli_report(sluice_comparison_show(NULL, NULL, a->out));
    if (status != 0) return status;
    cli_catch_signals();
    status = run_all(&c);
    if (status == 0 && first_whole(&c) == NULL) status = NO_FIT;
    if (status == 0) status = show(&c);
    for (int i = 0; i < c.variant_count; i++)
        for (int k = 0; k < c.variants[i].run_count; k++) munmap(c.variants[i].runs[k], run_bytes(&c));
    return status;
}
