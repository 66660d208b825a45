/* cmd_compare.c: sluice compare: configurations side by side: speed, memory, traffic, losses, and whether they give the same
 * bits.
 *
 * Each is run for some steps in a process of its own, in turn with the others and several times, so that what else the
 * machine does meets all of them. A run tells its events to memory that it shares with this process. One configuration alone
 * is compared with itself without ZeRO, offloading and recomputation. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/cli.h"

enum { MOST_VARIANTS = 8, MOST_RUNS = 64, MOST_STEPS = 100000, USUAL_STEPS = 20, USUAL_ROUNDS = 2 };
enum { NO_FIT = 3, STOPPED = 75 }; /* exit statuses */

/* What a run tells. */
typedef struct compared_step {
    double loss, seconds;
} compared_step;

typedef struct compared_run {
    int exit_status;
    uint64_t done;          /* steps */
    sluice_event plan, end; /* their pointers mean nothing here */
    char weights[65], state[65];
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
    if (status != 0) fprintf(stderr, "sluice: %s: %s\n", v->name, sluice_error());
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

/* ---- the table ---- */

#define CELL 48

static const char *size_text(double bytes, char out[CELL])
{
    static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB" };
    size_t i = 0;
    while (bytes >= 1024 && i + 1 < sizeof units / sizeof units[0]) bytes /= 1024, i++;
    snprintf(out, CELL, i == 0 ? "%.0f %s" : "%.2f %s", bytes, units[i]);
    return out;
}

static const char *time_text(double seconds, char out[CELL])
{
    if (!isfinite(seconds))
        snprintf(out, CELL, "-");
    else if (seconds < 1)
        snprintf(out, CELL, "%.4g ms", 1e3 * seconds);
    else
        snprintf(out, CELL, "%.4g s", seconds);
    return out;
}

static const char *rate_text(double rate, char out[CELL])
{
    if (!isfinite(rate))
        snprintf(out, CELL, "-");
    else if (rate < 1e4)
        snprintf(out, CELL, "%.4g", rate);
    else
        snprintf(out, CELL, rate < 1e7 ? "%.4gk" : "%.4gM", rate < 1e7 ? rate / 1e3 : rate / 1e6);
    return out;
}

/* One row of the table; each writes the cell of one variant. */
typedef struct compared_row {
    const char *name;
    void (*write)(const comparison *c, const compared_variant *v, char out[CELL]);
} compared_row;

static void write_median(const comparison *c, const compared_variant *v, char out[CELL])
{
    double t[3];
    step_times(c, v, t);
    time_text(t[0], out);
}

static void write_range(const comparison *c, const compared_variant *v, char out[CELL])
{
    double t[3];
    step_times(c, v, t);
    snprintf(out, CELL, "%.3g .. %.3g ms", 1e3 * t[1], 1e3 * t[2]);
}

static void write_predicted(const comparison *c, const compared_variant *v, char out[CELL])
{
    (void)c;
    time_text(v->runs[0]->plan.step_seconds, out);
}

static void write_rate(const comparison *c, const compared_variant *v, char out[CELL])
{
    double t[3], units = v->runs[0]->tokens > 0 ? v->runs[0]->tokens : v->runs[0]->samples;
    step_times(c, v, t);
    rate_text(units / t[0], out);
}

static void write_mfu(const comparison *c, const compared_variant *v, char out[CELL])
{
    double t[3], peak = v->runs[0]->end.peak_flops;
    step_times(c, v, t);
    if (peak > 0)
        snprintf(out, CELL, "%.1f %%", 100 * v->runs[0]->end.model_flops / t[0] / peak);
    else
        snprintf(out, CELL, "-");
}

static void write_device(const comparison *c, const compared_variant *v, char out[CELL])
{
    (void)c;
    size_text((double)v->runs[0]->end.peak.device, out);
}

static void write_host(const comparison *c, const compared_variant *v, char out[CELL])
{
    (void)c;
    size_text((double)v->runs[0]->end.peak.host, out);
}

/* Bytes of a step and what that is of a second. */
static void write_traffic(const comparison *c, const compared_variant *v, uint64_t bytes, char out[CELL])
{
    char size[CELL];
    double t[3];
    step_times(c, v, t);
    snprintf(out, CELL, "%.11s, %.3g GB/s", size_text((double)bytes, size), t[0] > 0 ? (double)bytes / t[0] / 1e9 : 0);
    if (bytes == 0) snprintf(out, CELL, "0");
}

static void write_to_device(const comparison *c, const compared_variant *v, char out[CELL])
{
    write_traffic(c, v, v->runs[0]->end.moved_to_device, out);
}

static void write_to_host(const comparison *c, const compared_variant *v, char out[CELL])
{
    write_traffic(c, v, v->runs[0]->end.moved_to_host, out);
}

static void write_sent(const comparison *c, const compared_variant *v, char out[CELL])
{
    const sluice_event *e = &v->runs[0]->end;
    write_traffic(c, v, e->comm_gather + e->comm_reduce + e->comm_norm, out);
}

static void write_spread(const comparison *c, const compared_variant *v, double (*of)(const compared_run *),
                         char out[CELL])
{
    double mean, far;
    spread(c, v, of, &mean, &far);
    if (!isfinite(mean))
        snprintf(out, CELL, "-");
    else if (c->seeds > 1)
        snprintf(out, CELL, "%.5g +- %.2g", mean, far);
    else
        snprintf(out, CELL, "%.6g", mean);
}

static void write_loss(const comparison *c, const compared_variant *v, char out[CELL])
{
    write_spread(c, v, last_loss, out);
}

static void write_validation(const comparison *c, const compared_variant *v, char out[CELL])
{
    write_spread(c, v, last_validation, out);
}

static const compared_row rows[] = {
    { "step, median", write_median },         { "  10th to 90th percentile", write_range },
    { "  predicted", write_predicted },       { "tokens or samples a second", write_rate },
    { "model FLOPs utilization", write_mfu }, { "device memory, peak", write_device },
    { "host memory, peak", write_host },      { "to device in a step", write_to_device },
    { "to host in a step", write_to_host },   { "between ranks in a step", write_sent },
    { "loss of the last step", write_loss },  { "validation loss", write_validation },
};

static void print_row(const comparison *c, const compared_row *row)
{
    char text[CELL];
    printf("%-28s", row->name);
    for (int i = 0; i < c->variant_count; i++) {
        snprintf(text, sizeof text, "-");
        if (!c->variants[i].dropped) row->write(c, &c->variants[i], text);
        printf(" %23.23s", text);
    }
    printf("\n");
}

static const compared_variant *first_whole(const comparison *c)
{
    for (int i = 0; i < c->variant_count; i++)
        if (!c->variants[i].dropped) return &c->variants[i];
    return NULL;
}

static void print_table(const comparison *c)
{
    char text[40];
    const compared_variant *first = first_whole(c);
    printf("%lld steps, %lld rounds in turn, %lld seed%s, %lld rank%s\n", (long long)c->steps, (long long)c->rounds,
           (long long)c->seeds, c->seeds == 1 ? "" : "s", (long long)c->ranks, c->ranks == 1 ? "" : "s");
    printf("%-28s", "");
    for (int i = 0; i < c->variant_count; i++) printf(" %23.23s", c->variants[i].name);
    printf("\n");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (c->ranks > 1 || rows[i].write != write_sent) print_row(c, &rows[i]);
    printf("%-28s", "bits");
    for (int i = 0; i < c->variant_count; i++) {
        snprintf(text, sizeof text, "does not fit");
        if (!c->variants[i].dropped) judge_bits(c, first, &c->variants[i], text, sizeof text);
        printf(" %23.23s", text);
    }
    printf("\n");
}

/* ---- for programs ---- */

static void print_number(const char *name, double value)
{
    if (isfinite(value))
        printf(",\"%s\":%.17g", name, value);
    else
        printf(",\"%s\":null", name);
}

static void print_json(const comparison *c, const compared_variant *v)
{
    double t[3], mean, far;
    char bits[40], shown[256];
    sluice_printable(v->name, shown, sizeof shown);
    printf("{\"event\":\"compared\",\"name\":\"%s\",\"fits\":%s", shown, v->dropped ? "false" : "true");
    if (!v->dropped) {
        const sluice_event *e = &v->runs[0]->end;
        step_times(c, v, t);
        print_number("step_seconds", t[0]);
        print_number("step_seconds_10", t[1]);
        print_number("step_seconds_90", t[2]);
        print_number("predicted_step_seconds", v->runs[0]->plan.step_seconds);
        print_number("units_per_second", (v->runs[0]->tokens > 0 ? v->runs[0]->tokens : v->runs[0]->samples) / t[0]);
        printf(",\"peak_bytes\":{\"device\":%llu,\"host\":%llu}", (unsigned long long)e->peak.device,
               (unsigned long long)e->peak.host);
        printf(",\"moved_bytes\":{\"to_device\":%llu,\"to_host\":%llu},\"sent_bytes\":%llu",
               (unsigned long long)e->moved_to_device, (unsigned long long)e->moved_to_host,
               (unsigned long long)(e->comm_gather + e->comm_reduce + e->comm_norm));
        spread(c, v, last_loss, &mean, &far);
        print_number("loss", mean);
        print_number("loss_spread", far);
        spread(c, v, last_validation, &mean, &far);
        print_number("validation_loss", mean);
        judge_bits(c, first_whole(c), v, bits, sizeof bits);
        printf(",\"bits\":\"%s\",\"weights_sha256\":\"%s\"", bits, v->runs[0]->weights);
    }
    printf("}\n");
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
    if (a->operand_count + 1 > MOST_VARIANTS) return cli_usage("compare: at most %d configurations", MOST_VARIANTS);
    c->variants[c->variant_count++] = (compared_variant){ .config = a->operand, .name = last_name(a->operand) };
    for (int i = 0; i < a->operand_count; i++)
        c->variants[c->variant_count++] =
            (compared_variant){ .config = a->operands[i], .name = last_name(a->operands[i]) };
    if (c->variant_count == 1)
        c->variants[c->variant_count++] = (compared_variant){ .config = a->operand, .name = "plain", .plain = true };
    return 0;
}

int cli_compare(const cli_arguments *a)
{
    comparison c;
    int status = take_arguments(a, &c);
    if (status != 0) return status;
    cli_catch_signals();
    status = run_all(&c);
    if (status == 0 && first_whole(&c) == NULL) status = NO_FIT;
    if (status == 0 && !a->json) print_table(&c);
    for (int i = 0; status == 0 && a->json && i < c.variant_count; i++) print_json(&c, &c.variants[i]);
    for (int i = 0; i < c.variant_count; i++)
        for (int k = 0; k < c.variants[i].run_count; k++) munmap(c.variants[i].runs[k], run_bytes(&c));
    return status;
}
