/* what_if.c: sluice plan --what-if: the choices that matter, each planned as if it had been asked for.
 *
 * A choice is a row: arguments of the command line that it changes, and keys that it sets. One that has no meaning for the
 * model or contradicts the configuration is refused as any such configuration would be, and has no row in the table. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/cli.h"

#define GIB ((double)(1ull << 30))

typedef enum { CHOICE_ASKED, CHOICE_SETTING, CHOICE_MACHINE } choice_kind;

typedef struct choice {
    char text[48]; /* as one would type it, or in words */
    choice_kind kind;
    const char *sets[2];
    int adapters;    /* 1: with, -1: without; 0: as asked */
    double ram;      /* bytes; 0: as asked */
    int gpus, stage; /* 0: as asked; the stage goes with several GPUs */
    bool any_stage;  /* `stage` counts, also where it is 0 */
    int rows;        /* of a micro-batch; 0: as the configuration has it */
} choice;

enum { MOST_CHOICES = 24, FIRST_ROWS = 1, ROWS_CHOICES = 4 };

typedef struct outcome {
    bool known, fits;
    double seconds, rate;      /* of a step; tokens or samples a second */
    double device, host, disk; /* bytes */
    bool has_disk;
    int ranks;
} outcome;

/* ---- planning one ---- */

static void keep_event(void *user, const sluice_event *e)
{
    outcome *o = user;
    if (e->kind != SLUICE_EVENT_PLAN) return;
    *o = (outcome){ .known = true,
                    .fits = e->fits,
                    .seconds = e->step_seconds,
                    .rate = isfinite(e->tokens_per_second) ? e->tokens_per_second : 0,
                    .device = (double)e->needs.device,
                    .host = (double)e->needs.host,
                    .disk = (double)e->needs.disk,
                    .has_disk = e->has.disk > 0,
                    .ranks = e->ranks };
}

static sluice_status set_choice(sluice_config *config, const choice *c)
{
    char stage[48], rows[64];
    sluice_status status = SLUICE_OK;
    snprintf(rows, sizeof rows, "train_micro_batch_size_per_gpu=%d", c->rows);
    if (c->rows > 0) status = sluice_config_set(config, rows);
    snprintf(stage, sizeof stage, "zero_optimization.stage=%d", c->stage);
    if (status == SLUICE_OK && c->adapters < 0) status = sluice_config_set(config, "lora.enabled=false");
    if (status == SLUICE_OK && c->adapters > 0) status = sluice_config_set(config, "lora.enabled=true");
    if (status == SLUICE_OK && c->any_stage) status = sluice_config_set(config, stage);
    for (int i = 0; i < 2 && status == SLUICE_OK && c->sets[i] != NULL; i++)
        status = sluice_config_set(config, c->sets[i]);
    return status;
}

/* SLUICE_ERR_STOPPED ends everything; any other failure leaves the outcome unknown. */
static sluice_status plan_choice(const cli_arguments *a, const choice *c, outcome *out)
{
    sluice_config *config;
    sluice_job_options options;
    cli_arguments changed = *a;
    if (c->adapters < 0) changed.lora = false;
    if (c->ram > 0) changed.ram = (int64_t)c->ram;
    if (c->gpus > 0) {
        changed.gpus = c->gpus;
        changed.ranks = -1;
    }
    *out = (outcome){ .known = false };
    sluice_status status = cli_make_config(&changed, &config);
    if (status != SLUICE_OK) return SLUICE_OK;
    status = set_choice(config, c);
    if (status == SLUICE_OK) {
        cli_job_options(&changed, &options);
        options.json = true;
        options.out = NULL; /* the event is enough */
        options.event = keep_event;
        options.user = out;
        options.log = NULL;
        options.stop = cli_stop_flag();
        status = sluice_job_plan(config, &options);
    }
    sluice_config_destroy(config);
    return status == SLUICE_ERR_STOPPED ? status : SLUICE_OK;
}

/* ---- the choices ---- */

static choice *add_choice(choice *list, int *count, choice_kind kind, const char *text)
{
    choice *c = &list[(*count)++];
    *c = (choice){ .kind = kind };
    snprintf(c->text, sizeof c->text, "%s", text);
    return c;
}

/* Sizes of a micro-batch come first: the fastest of them is what the others are planned with where nobody says it. */
static void add_rows(choice *list, int *count)
{
    for (int i = 0; i < ROWS_CHOICES; i++) {
        choice *c = add_choice(list, count, CHOICE_SETTING, "");
        snprintf(c->text, sizeof c->text, "micro-batches of %d", 1 << i);
        c->rows = 1 << i;
    }
}

static void add_settings(const cli_arguments *a, choice *list, int *count)
{
    add_choice(list, count, CHOICE_SETTING, a->lora ? "all weights" : "--lora")->adapters = a->lora ? -1 : 1;
    add_choice(list, count, CHOICE_SETTING, "compact optimizer states")->sets[0] = "zero_optimization.states=compact";
    choice *c = add_choice(list, count, CHOICE_SETTING, "no clipping, no overflow check");
    c->sets[0] = "gradient_clipping=0";
    c->sets[1] = "bf16.check_grad_overflow=false";
}

/* Where none is named: of the machine that is described, or that of the folder where a run would be started. */
static void add_disk(choice *list, int *count)
{
    add_choice(list, count, CHOICE_SETTING, "with a disk (memory.disk_path)")->sets[0] = "memory.disk_path=.";
}

static void add_machines(const cli_arguments *a, int ranks, choice *list, int *count)
{
    for (int stage = 0; ranks > 1 && stage <= 3; stage++) {
        choice *c = add_choice(list, count, CHOICE_SETTING, "");
        snprintf(c->text, sizeof c->text, "ZeRO stage %d", stage);
        c->stage = stage;
        c->any_stage = true;
    }
    if (a->gpu == NULL) return;
    for (int i = -1; i <= 2; i++) { /* half as much, twice and four times as much */
        double gib = floor(ldexp(a->ram > 0 ? (double)a->ram / GIB : 64, i));
        if (i == 0 || gib < 1) continue;
        choice *c = add_choice(list, count, CHOICE_MACHINE, "");
        snprintf(c->text, sizeof c->text, "--ram %.0fGiB", gib);
        c->ram = gib * GIB;
    }
    for (int n = 1; n <= 8; n *= 2) {
        if (n == ranks) continue;
        choice *c = add_choice(list, count, CHOICE_MACHINE, "");
        snprintf(c->text, sizeof c->text, n > 1 ? "--gpus %d, ZeRO stage 3" : "--gpus %d", n);
        c->gpus = n;
        c->stage = n > 1 ? 3 : 0;
        c->any_stage = n > 1;
    }
}

/* ---- telling ---- */

/* The fastest on the machine that was asked about; -1: nothing fits. */
static int best_of(const choice *list, const outcome *outcomes, int count)
{
    int best = -1;
    for (int i = 0; i < count; i++) {
        if (list[i].kind == CHOICE_MACHINE || !outcomes[i].fits) continue;
        if (best < 0 || outcomes[i].rate > outcomes[best].rate) best = i;
    }
    return best;
}

static void print_row(const choice *c, const outcome *o, bool best)
{
    printf("%c %-32s %-4s %9.1f %9.1f %9.1f", best ? '*' : ' ', c->text, o->fits ? "yes" : "no", o->device / GIB,
           o->host / GIB, o->disk / GIB);
    if (o->fits) printf(" %10.4g %10.0f", o->seconds, o->rate);
    printf("\n");
}

static void print_row_json(const choice *c, const outcome *o, bool best)
{
    printf("{\"event\":\"what_if\",\"choice\":\"%s\",\"fits\":%s,\"needs_bytes\":{\"device\":%.0f,\"host\":%.0f,"
           "\"disk\":%.0f}",
           c->text, o->fits ? "true" : "false", o->device, o->host, o->disk);
    if (o->fits) printf(",\"step_seconds\":%.17g,\"tokens_per_second\":%.17g", o->seconds, o->rate);
    printf(",\"best\":%s}\n", best ? "true" : "false");
}

/* ---- planning all of them ---- */

/* In a process of its own, which writes the outcome. */
static pid_t start_choice(const cli_arguments *a, const choice *c, int *result)
{
    int ends[2];
    if (pipe(ends) != 0) return -1;
    pid_t child = fork();
    if (child == 0) {
        outcome o;
        close(ends[0]);
        sluice_status status = plan_choice(a, c, &o);
        ssize_t written = write(ends[1], &o, sizeof o); /* less than a pipe takes at once */
        _exit(written == (ssize_t)sizeof o ? sluice_exit_status(status) : 1);
    }
    close(ends[1]);
    if (child < 0) close(ends[0]);
    *result = ends[0];
    return child;
}

static void collect_choice(pid_t child, int result, outcome *out)
{
    outcome o;
    int ended;
    if (read(result, &o, sizeof o) == (ssize_t)sizeof o) *out = o;
    close(result);
    while (waitpid(child, &ended, 0) < 0 && errno == EINTR) continue;
}

/* Choices first .. end, as many at a time as there are CPUs. One for which there is no process is planned here. */
static sluice_status plan_beside(const cli_arguments *a, const choice *list, outcome *outcomes, int first, int end)
{
    pid_t children[MOST_CHOICES];
    int results[MOST_CHOICES];
    int at_once = (int)sysconf(_SC_NPROCESSORS_ONLN), oldest = first;
    sluice_status status = SLUICE_OK;
    fflush(stdout);
    for (int i = first; i < end; i++) {
        outcomes[i] = (outcome){ .known = false };
        if (i - oldest >= at_once) {
            if (children[oldest] > 0) collect_choice(children[oldest], results[oldest], &outcomes[oldest]);
            oldest++;
        }
        children[i] = *cli_stop_flag() == 0 && status == SLUICE_OK ? start_choice(a, &list[i], &results[i]) : 0;
        if (children[i] < 0) status = plan_choice(a, &list[i], &outcomes[i]);
    }
    for (; oldest < end; oldest++)
        if (children[oldest] > 0) collect_choice(children[oldest], results[oldest], &outcomes[oldest]);
    return status;
}

/* Whether nobody says how large micro-batches are. */
static bool leaves_rows_open(const cli_arguments *a)
{
    for (int i = 0; i < a->set_count; i++)
        if (strstr(a->sets[i], "batch_size") != NULL || strstr(a->sets[i], "accumulation") != NULL) return false;
    return a->operand == NULL;
}

/* What was asked for is a micro-batch that was planned, where nobody says another. */
static sluice_status plan_asked(const cli_arguments *a, const choice *list, outcome *outcomes, int after)
{
    for (int i = FIRST_ROWS; i < after; i++) {
        if (list[i].rows != list[0].rows) continue;
        outcomes[0] = outcomes[i];
        return SLUICE_OK;
    }
    return plan_beside(a, list, outcomes, 0, 1);
}

static sluice_status plan_choices(const cli_arguments *a, choice *list, outcome *outcomes, int *count)
{
    int ranks = 1, rows = 0;
    double best = 0;
    bool has_disk = false;
    *count = 0;
    add_choice(list, count, CHOICE_ASKED, "as asked");
    add_rows(list, count);
    int after = *count;
    sluice_status status = plan_beside(a, list, outcomes, FIRST_ROWS, after);
    for (int i = FIRST_ROWS; i < after; i++) {
        if (outcomes[i].known) ranks = outcomes[i].ranks;
        has_disk = has_disk || (outcomes[i].known && outcomes[i].has_disk);
        if (!outcomes[i].fits || outcomes[i].rate <= best) continue;
        best = outcomes[i].rate;
        rows = list[i].rows;
    }
    add_settings(a, list, count);
    if (!has_disk) add_disk(list, count);
    add_machines(a, ranks, list, count);
    for (int i = 0; i < *count && leaves_rows_open(a); i++)
        if (list[i].rows == 0 && list[i].gpus == 0) list[i].rows = rows > 0 ? rows : 1;
    if (status == SLUICE_OK) status = plan_beside(a, list, outcomes, after, *count);
    return status == SLUICE_OK ? plan_asked(a, list, outcomes, after) : status;
}

int cli_what_if(const cli_arguments *a)
{
    choice list[MOST_CHOICES];
    outcome outcomes[MOST_CHOICES];
    int count;
    sluice_status status = plan_choices(a, list, outcomes, &count);
    if (status != SLUICE_OK) return cli_report(status);
    int best = best_of(list, outcomes, count);
    if (!a->json)
        printf("\nwhat if                            fits  GPU, GiB  RAM, GiB disk, GiB    step, s   tokens/s\n");
    for (int i = 0; i < count; i++)
        if (outcomes[i].known) (a->json ? print_row_json : print_row)(&list[i], &outcomes[i], i == best);
    if (!a->json) printf("* the fastest on this machine; of what does not fit, about the memory that it needs\n");
    return 0;
}

void cli_what_would_help(const cli_arguments *a, char *out, size_t bytes)
{
    choice list[MOST_CHOICES];
    outcome outcomes[MOST_CHOICES];
    int count, ram = 0;
    out[0] = '\0';
    if (plan_choices(a, list, outcomes, &count) != SLUICE_OK) return;
    for (int i = 0; i < count; i++) {
        size_t used = strlen(out);
        if (!outcomes[i].fits || (list[i].ram > 0 && ram++ > 0)) continue; /* the least RAM alone */
        snprintf(out + used, bytes - used, "%s%s (%.0f tokens/s)", used > 0 ? ", " : "", list[i].text,
                 outcomes[i].rate);
    }
}
