/* largest.c: whether a model that hardly fits is really trained: every tensor, in every step.
 *
 *     bench_largest CONFIG [--steps N] [--machine FILE] [--set KEY=VALUE]...
 *
 * Runs N steps (3) of the configuration in one rank. After each it hashes the fp32 master of every trained tensor, all
 * of its elements, and counts those that are not what they were before the step. Exit status 1: a loss is not finite,
 * a tensor did not change, or something failed; 0: neither. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "core/alloc.h"
#include "core/bytes.h"
#include "core/thread.h"
#include "train/job.h"

#define CHUNK_ELEMENTS ((int64_t)16 << 20)
#define TASK_BYTES     ((size_t)1 << 20)
#define CHUNK_BYTES    ((size_t)CHUNK_ELEMENTS * sizeof(float))

/* A part of a tensor, and hashes of its parts. */
typedef struct chunk {
    uint8_t *data; /* owned, CHUNK_BYTES */
    size_t bytes;
    uint64_t hashes[CHUNK_BYTES / TASK_BYTES];
} chunk;

typedef struct run {
    sl_job job;
    sluice_job_options options;
    int steps;
    uint64_t *hashes; /* of each parameter of the graph; frozen ones stay 0 */
    chunk chunk;
    sl_pool *pool;
    int unchanged; /* tensors, summed over steps */
    bool finite;   /* all losses so far */
} run;

/* ---- tensors ---- */

static void hash_task(void *context, int64_t task, void *scratch)
{
    chunk *c = context;
    size_t first = (size_t)task * TASK_BYTES, left = c->bytes - first;
    (void)scratch;
    c->hashes[task] = XXH3_64bits(c->data + first, left < TASK_BYTES ? left : TASK_BYTES);
}

/* Elements of a layer as one of its buffers keeps them, hashed in parallel, then into `hash`. */
static sluice_status hash_chunk(run *r, int buffer, sl_range elements, uint64_t *hash)
{
    const sl_plan *p = r->job.engine->plan;
    sl_piece piece = sl_plan_range_piece(p, buffer, elements);
    chunk *c = &r->chunk;
    c->bytes = (size_t)piece.bytes;
    SL_TRY(sl_exec_read(r->job.engine->exec, sl_plan_span(p, piece), c->data));
    int64_t tasks = sl_ceil_div(piece.bytes, TASK_BYTES);
    sl_pool_run(r->pool, hash_task, c, tasks);
    *hash = XXH3_64bits_withSeed(c->hashes, (size_t)tasks * sizeof *c->hashes, *hash);
    return SLUICE_OK;
}

/* An fp32 master is one buffer, or in bf16 the weights and the bits below them: the two together are hashed as they
 * lie. */
static sluice_status hash_parameter(run *r, int parameter, uint64_t *out)
{
    const sl_parameter *q = &r->job.graph->parameters[parameter];
    const sl_layer_place *place = &r->job.engine->plan->layers[q->layer];
    bool in_remainder = place->remainder >= 0 && r->job.graph->precision == SLUICE_F16;
    int buffers[2] = { in_remainder ? -1 : place->master, place->remainder };
    *out = 0;
    for (int k = 0; k < 2; k++)
        for (int64_t first = 0; buffers[k] >= 0 && first < q->count; first += CHUNK_ELEMENTS) {
            int64_t n = q->count - first < CHUNK_ELEMENTS ? q->count - first : CHUNK_ELEMENTS;
            SL_TRY(hash_chunk(r, buffers[k], (sl_range){ q->offset + first, n }, out));
        }
    return SLUICE_OK;
}

/* Hashes every trained tensor anew; *changed: how many are not what they were, *all: of how many. */
static sluice_status hash_all(run *r, int *changed, int *all)
{
    *changed = *all = 0;
    for (int i = 0; i < r->job.graph->parameter_count; i++) {
        uint64_t hash;
        if (!r->job.graph->parameters[i].trainable) continue;
        SL_TRY(hash_parameter(r, i, &hash));
        *changed += hash != r->hashes[i];
        *all += 1;
        r->hashes[i] = hash;
    }
    return SLUICE_OK;
}

/* ---- steps ---- */

static sluice_status train_step(run *r, double *loss)
{
    sl_job *j = &r->job;
    sluice_engine *e = j->engine;
    sluice_batch batch = sl_batch_of(&j->batch);
    int micro_batches = e->plan->options.accumulation;
    double one;
    *loss = 0;
    for (int m = 0; m < micro_batches; m++) {
        uint64_t index = e->step * sl_engine_micro_batches(e) + sl_engine_micro_index(e, m);
        SL_TRY(j->data->ops->fill(j->data, index, j->batch.rows, j->batch.fields, j->batch.count));
        SL_TRY(sluice_forward(e, &batch, &one));
        SL_TRY(sluice_backward(e));
        *loss += one / micro_batches;
    }
    SL_TRY(sluice_step(e));
    return sl_exec_settle(e->exec);
}

static sluice_status follow_step(run *r)
{
    double loss, start = sl_now();
    int changed, all;
    SL_TRY(train_step(r, &loss));
    double trained = sl_now();
    SL_TRY(hash_all(r, &changed, &all));
    printf("step %llu: loss %.6f, %.2f s; %d of %d tensors changed (looked in %.1f s)\n",
           (unsigned long long)r->job.engine->step, loss, trained - start, changed, all, sl_now() - trained);
    fflush(stdout);
    r->unchanged += all - changed;
    r->finite = r->finite && isfinite(loss);
    return SLUICE_OK;
}

static void print_model(const run *r)
{
    const sl_plan *p = r->job.engine->plan;
    char device[32], host[32];
    printf("%lld parameters, %s on the device and %s on the host, expected step %.2f s\n",
           (long long)sl_graph_parameter_elements(r->job.graph),
           sl_format_bytes(p->totals.peak[SL_TIER_DEVICE], device, sizeof device),
           sl_format_bytes(p->totals.peak[SL_TIER_HOST], host, sizeof host), p->totals.step_seconds);
    fflush(stdout);
}

static sluice_status follow(run *r)
{
    int changed, all;
    r->hashes = sl_alloc_array((size_t)r->job.graph->parameter_count, sizeof *r->hashes, "hashes of the tensors");
    r->chunk.data = sl_alloc(CHUNK_BYTES, "part of a tensor");
    if (r->hashes == NULL || r->chunk.data == NULL) return SLUICE_ERR_NO_MEMORY;
    SL_TRY(sl_pool_create(sl_cpu_count(), &r->pool));
    print_model(r);
    double start = sl_now();
    SL_TRY(hash_all(r, &changed, &all));
    printf("%d tensors, hashed in %.1f s\n", all, sl_now() - start);
    fflush(stdout);
    r->finite = true;
    for (int s = 0; s < r->steps; s++) SL_TRY(follow_step(r));
    return SLUICE_OK;
}

/* ---- the program ---- */

static int usage(void)
{
    fprintf(stderr, "usage: bench_largest CONFIG [--steps N] [--machine FILE] [--set KEY=VALUE]...\n");
    return 2;
}

static void print_log(void *user, sluice_log_level level, const char *line)
{
    (void)user;
    if (level == SLUICE_LOG_WARNING) fprintf(stderr, "bench_largest: warning: %s\n", line);
}

/* False: not understood. *status: what a setting failed with. */
static bool read_arguments(int argc, char **argv, run *r, sluice_config *config, sluice_status *status)
{
    for (int i = 2; i < argc && *status == SLUICE_OK; i += 2) {
        if (i + 1 >= argc) return false;
        if (strcmp(argv[i], "--steps") == 0 && atoi(argv[i + 1]) > 0)
            r->steps = atoi(argv[i + 1]);
        else if (strcmp(argv[i], "--machine") == 0)
            r->options.machine = argv[i + 1];
        else if (strcmp(argv[i], "--set") == 0)
            *status = sluice_config_set(config, argv[i + 1]);
        else
            return false;
    }
    return true;
}

int main(int argc, char **argv)
{
    run r = { .steps = 3 };
    sluice_config *config;
    bool understood = true;
    if (argc < 2) return usage();
    sluice_job_options_init(&r.options);
    r.options.log = print_log;
    sluice_status status = sluice_config_load(argv[1], &config);
    if (status == SLUICE_OK) {
        understood = read_arguments(argc, argv, &r, config, &status);
        if (understood && status == SLUICE_OK) status = sl_job_open(&r.job, config, &r.options, SL_JOB_TRAIN);
        if (understood && status == SLUICE_OK) status = follow(&r);
        sl_job_close(&r.job);
        sluice_config_destroy(config);
    }
    sl_free(r.hashes);
    sl_free(r.chunk.data);
    sl_pool_destroy(r.pool);
    if (!understood) return usage();
    if (status != SLUICE_OK) {
        fprintf(stderr, "bench_largest: %s\n", sluice_error());
        return 1;
    }
    if (!r.finite) fprintf(stderr, "bench_largest: a loss is not finite\n");
    if (r.unchanged > 0) fprintf(stderr, "bench_largest: tensors were left as they were: %d\n", r.unchanged);
    return r.finite && r.unchanged == 0 ? 0 : 1;
}
