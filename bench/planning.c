/* planning.c: how long planning takes, by the depth of the model and by the number of ranks.
 *
 *     bench_planning [MOST_LAYERS]
 *
 * GPT-2 in bf16 for a described GPU, on one core: graph, gradients, optimizer and plan, in CPU seconds; then the exponent
 * of the growth, fitted to all rows of a table by least squares. 1 is proportional to the number of layers or ranks.
 * Nothing is trained, and no rank is started. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

#include "core/bytes.h"
#include "model/model.h"
#include "optim/optim.h"
#include "plan/plan.h"

#define GIB ((uint64_t)1 << 30)

typedef struct job {
    int layers, ranks;
    int64_t width, context;
    int stage;
    uint64_t device, host; /* budgets; device 0: as much as it likes */
    double share;          /* of what a plan without savings takes of the device; 0: the budget counts */
} job;

typedef struct outcome {
    double seconds; /* of CPU */
    int steps;
    uint64_t device, host;
    double step_seconds;
} outcome;

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void describe_gpu(sl_machine *m)
{
    sl_machine_default(m);
    m->gemm_flops = 6e13;
    m->gemm_16bit_flops = 6e14;
    m->vector_flops = 3e13;
    m->device_bytes_per_second = 3e12;
    m->update_bytes_per_second = 1e11;
    for (int k = 0; k < SL_LINK_COUNT; k++) m->link_bytes_per_second[k] = 5e10;
    m->comm_bytes_per_second = 5e10;
}

static sluice_status build(const job *j, sluice_graph *g, sl_optim **optim)
{
    sl_model_options gpt = { .type = "gpt2",
                             .batch = 1,
                             .layers = j->layers,
                             .heads = (int)(j->width / 32),
                             .width = j->width,
                             .context = j->context,
                             .vocabulary = 256,
                             .norm_epsilon = 1e-5,
                             .bias = true };
    sl_optim_options adamw = { .clip = 1 };
    sl_model_info info;
    sluice_optimizer_init(&adamw.optimizer, SLUICE_ADAMW);
    SL_TRY(sl_model_build(g, &gpt, &info));
    SL_TRY(sl_graph_finish(g));
    SL_TRY(sl_graph_lower(g, SLUICE_BF16, SLUICE_BF16));
    SL_TRY(sl_graph_differentiate(g));
    return sl_optim_create(g, &adamw, optim);
}

/* With a share the budget is found first, outside the time. */
static sluice_status plan(const job *j, const sluice_graph *g, const sl_optim *optim, outcome *out)
{
    sl_machine machine;
    sl_plan *p;
    sl_plan_options o = { .budget = { j->device > 0 ? j->device : (uint64_t)1 << 50, j->host },
                          .rank_count = j->ranks,
                          .stage = j->stage,
                          .state_ratio = 1,
                          .prefetch = -1,
                          .accumulation = 1,
                          .training = true };
    describe_gpu(&machine);
    o.state_slots = sl_optim_slots(optim);
    o.update_bytes_per_element = sl_optim_bytes_per_element(optim, SLUICE_BF16, SLUICE_BF16, SL_FORM_F32);
    if (j->share > 0) {
        double before = cpu_seconds();
        SL_TRY(sl_plan_create(g, &machine, &o, &p));
        o.budget[SL_TIER_DEVICE] = (uint64_t)((double)p->totals.peak[SL_TIER_DEVICE] * j->share);
        sl_plan_destroy(p);
        out->seconds -= cpu_seconds() - before;
    }
    SL_TRY(sl_plan_create(g, &machine, &o, &p));
    out->steps = p->step_count;
    out->device = p->totals.peak[SL_TIER_DEVICE];
    out->host = p->totals.peak[SL_TIER_HOST];
    out->step_seconds = p->totals.step_seconds;
    sl_plan_destroy(p);
    return SLUICE_OK;
}

static sluice_status measure(const job *j, outcome *out)
{
    sluice_graph *g;
    sl_optim *optim = NULL;
    double start = cpu_seconds();
    *out = (outcome){ .seconds = 0 };
    SL_TRY(sluice_graph_create(&g));
    sluice_status st = build(j, g, &optim);
    if (st == SLUICE_OK) st = plan(j, g, optim, out);
    sl_optim_destroy(optim);
    sluice_graph_destroy(g);
    out->seconds += cpu_seconds() - start;
    return st;
}

/* ---- tables ---- */

/* Sums for a line through (log x, log y). */
typedef struct fit {
    double n, x, y, xx, xy;
} fit;

static void add_point(fit *f, double x, double y)
{
    x = log(x);
    y = log(y);
    *f = (fit){ f->n + 1, f->x + x, f->y + y, f->xx + x * x, f->xy + x * y };
}

static double exponent(const fit *f)
{
    return (f->n * f->xy - f->x * f->y) / (f->n * f->xx - f->x * f->x);
}

static sluice_status row(const job *j, fit *f, double x)
{
    outcome o;
    char device[32], host[32];
    struct rusage usage;
    SL_TRY(measure(j, &o));
    getrusage(RUSAGE_SELF, &usage);
    printf("%7d %6d %10.3f %10d %12s %12s %10.4g %8ld\n", j->layers, j->ranks, o.seconds, o.steps,
           sl_format_bytes(o.device, device, sizeof device), sl_format_bytes(o.host, host, sizeof host), o.step_seconds,
           usage.ru_maxrss / 1024);
    fflush(stdout);
    add_point(f, x, o.seconds);
    return SLUICE_OK;
}

static void head(const char *what)
{
    printf("%s\n layers  ranks  CPU s     operations       device         host  step, s   RSS so far, MiB\n", what);
}

static sluice_status by_layers(const char *what, double share, int most)
{
    fit f = { 0, 0, 0, 0, 0 };
    head(what);
    for (int layers = 125; layers <= most; layers *= 2) {
        job j = { .layers = layers, .ranks = 1, .width = 64, .context = 64, .host = 1000 * GIB, .share = share };
        SL_TRY(row(&j, &f, layers));
    }
    printf("exponent %.2f\n\n", exponent(&f));
    return SLUICE_OK;
}

static sluice_status by_ranks(void)
{
    fit f = { 0, 0, 0, 0, 0 };
    head("6.5 billion parameters, stage 3, 20 GiB of device memory a rank");
    for (int ranks = 1; ranks <= 1024; ranks *= 4) {
        job j = { .layers = 130, .ranks = ranks, .width = 2048, .context = 2048, .stage = 3, .device = 20 * GIB };
        j.host = 200 * GIB;
        SL_TRY(row(&j, &f, ranks));
    }
    printf("exponent %.2f\n\n", exponent(&f));
    return SLUICE_OK;
}

static sluice_status trillion(void)
{
    fit f = { 0, 0, 0, 0, 0 };
    head("1,022 billion parameters, stage 3, 76 GiB of device memory a rank");
    for (int ranks = 256; ranks <= 1024; ranks *= 2) {
        job j = { .layers = 130, .ranks = ranks, .width = 25600, .context = 2048, .stage = 3, .device = 76 * GIB };
        j.host = 237 * GIB;
        SL_TRY(row(&j, &f, ranks));
    }
    return SLUICE_OK;
}

int main(int argc, char **argv)
{
    int most = argc > 1 ? atoi(argv[1]) : 4000;
    sluice_status st = by_layers("all in device memory", 0, most);
    if (st == SLUICE_OK) st = by_layers("half of that memory: a placement is searched for", 0.5, most);
    if (st == SLUICE_OK) st = by_ranks();
    if (st == SLUICE_OK) st = trillion();
    if (st != SLUICE_OK) fprintf(stderr, "%s\n", sluice_error());
    return st == SLUICE_OK ? 0 : 1;
}
