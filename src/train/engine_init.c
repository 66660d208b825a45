/* engine_init.c: the values that parameters and optimizer state start with. */
#include "core/alloc.h"
#include "core/hash.h"
#include "core/rng.h"
#include "core/thread.h"
#include "ir/tile.h"
#include "train/engine_parts.h"

static float initial_value(const sluice_init *init, const sl_rng *rng, uint64_t element)
{
    switch (init->kind) {
    case SLUICE_INIT_ONE:
        return 1.0f;
    case SLUICE_INIT_NORMAL:
        return init->scale * sl_rng_normal(rng, element);
    case SLUICE_INIT_UNIFORM:
        return init->scale * (2.0f * sl_rng_uniform(rng, element) - 1.0f);
    default:
        return 0.0f;
    }
}

/* Values depend on the global element alone; each rank stores those it keeps. */
#define INIT_CHUNK ((int64_t)1 << 20)
#define INIT_TASK  ((int64_t)1 << 14)

typedef struct init_work {
    const sluice_graph *graph;
    int parameter;
    int64_t first, count; /* elements of the chunk */
    sl_rng rng;
    float *chunk;
} init_work;

static void init_task(void *context, int64_t task, void *scratch)
{
    const init_work *w = context;
    const sluice_init *init = &w->graph->parameters[w->parameter].init;
    int64_t begin = task * INIT_TASK, end = begin + INIT_TASK < w->count ? begin + INIT_TASK : w->count;
    (void)scratch;
    if (init->kind == SLUICE_INIT_NORMAL && w->graph->parameters[w->parameter].whole == NULL) {
        sl_rng_normals(&w->rng, (uint64_t)(w->first + begin), end - begin, w->chunk + begin);
        for (int64_t i = begin; i < end; i++) w->chunk[i] *= init->scale;
        return;
    }
    for (int64_t i = begin; i < end; i++) {
        int64_t element = sl_parameter_whole_element(w->graph, w->parameter, w->first + i);
        w->chunk[i] = initial_value(init, &w->rng, (uint64_t)element);
    }
}

/* By name and element of the whole parameter, so that neither ranks nor tiles nor threads change a value. */
static sluice_status init_parameter(sluice_engine *e, int index, sl_pool *pool, float *chunk)
{
    const sl_parameter *q = &e->graph->parameters[index];
    init_work w = { .graph = e->graph, .parameter = index, .chunk = chunk };
    w.rng = sl_rng_stream(e->context.seed, SL_RNG_INIT, sl_hash_text(sl_whole_name(e->graph, index)), 0, 0);
    for (w.first = 0; w.first < q->count; w.first += INIT_CHUNK) {
        w.count = q->count - w.first < INIT_CHUNK ? q->count - w.first : INIT_CHUNK;
        sl_pool_run(pool, init_task, &w, (w.count + INIT_TASK - 1) / INIT_TASK);
        SL_TRY(sl_exec_store(e->exec, index, -1, w.first, w.count, chunk));
    }
    return SLUICE_OK;
}

/* State starts as zero, as arenas do, except under guard, where they are poisoned. */
static sluice_status zero_state(sluice_engine *e, int index, const float *zeros)
{
    const sl_parameter *q = &e->graph->parameters[index];
    for (int k = 0; q->trainable && k < e->slots.count; k++)
        for (int64_t first = 0; first < q->count; first += INIT_CHUNK) {
            int64_t n = q->count - first < INIT_CHUNK ? q->count - first : INIT_CHUNK;
            SL_TRY(sl_exec_store(e->exec, index, k, first, n, zeros));
        }
    return SLUICE_OK;
}

sluice_status sl_engine_init_tensors(sluice_engine *e, bool poisoned)
{
    int64_t longest = 0; /* parameter, or a chunk of it */
    for (int i = 0; i < e->graph->parameter_count; i++)
        if (e->graph->parameters[i].count > longest) longest = e->graph->parameters[i].count;
    size_t room = (size_t)(longest < INIT_CHUNK ? longest : INIT_CHUNK);
    sl_pool *pool = NULL;
    /* values of a chunk, then as many zeros */
    float *chunk = sl_alloc_array(2 * room + 1, sizeof *chunk, "first values");
    sluice_status st = chunk != NULL ? sl_pool_create(e->threads, &pool) : SLUICE_ERR_NO_MEMORY;
    if (st == SLUICE_OK) st = sl_exec_lend_pool(e->exec, pool);
    for (int i = 0; st == SLUICE_OK && i < e->graph->parameter_count; i++) {
        st = init_parameter(e, i, pool, chunk);
        if (st == SLUICE_OK && poisoned) st = zero_state(e, i, chunk + room);
    }
    sl_exec_lend_pool(e->exec, NULL);
    sl_pool_destroy(pool);
    sl_free(chunk);
    return st;
}
