/* engine_init.c: the values that parameters and optimizer state start with.
 *
 * A value depends on the seed, the parameter's name and the element alone, so any thread may make it. All parameters are
 * cut into tasks of the same size, one after the other; a task makes its values in its thread's scratch memory and stores
 * those that this rank keeps. */
#include "core/alloc.h"
#include "core/hash.h"
#include "core/rng.h"
#include "core/thread.h"
#include "ir/sparse.h"
#include "ir/tile.h"
#include "train/engine_parts.h"

#define FILL_TASK ((int64_t)1 << 18) /* elements; as floats they fit in the scratch memory of a thread */
_Static_assert(FILL_TASK * sizeof(float) <= SL_SCRATCH_BYTES, "the values of a task fit in the scratch memory");
/* Tasks between two reports of progress: a tenth of a second of work or less. */
#define FILL_ROUND(threads) ((int64_t)32 * (threads))

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

/* Elements [first, first + count) of a parameter. By name and element of the whole parameter, so that neither ranks nor
 * tiles nor threads change a value. */
static void make_values(const sluice_engine *e, int index, int64_t first, int64_t count, float *out)
{
    const sl_parameter *q = &e->graph->parameters[index];
    sl_rng rng = sl_rng_stream(e->context.seed, SL_RNG_INIT, sl_hash_text(sl_whole_name(e->graph, index)), 0, 0);
    if (q->init.kind == SLUICE_INIT_NORMAL && q->whole == NULL) {
        sl_rng_normals(&rng, (uint64_t)first, count, out);
        for (int64_t i = 0; i < count; i++) out[i] *= q->init.scale;
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        int64_t element = sl_parameter_whole_element(e->graph, index, first + i);
        out[i] = initial_value(&q->init, &rng, (uint64_t)element);
    }
}

typedef struct filling {
    const sluice_engine *e;
    int64_t *first_task; /* owned; of each parameter, and behind the last the number of all */
    int64_t done;        /* tasks of the rounds before */
    uint64_t weights;    /* that are filled */
} filling;

/* The parameter that a task belongs to: the last one whose first task is not behind it. */
static int parameter_of(const filling *f, int64_t task)
{
    int low = 0, high = f->e->graph->parameter_count;
    while (high - low > 1) {
        int middle = low + (high - low) / 2;
        if (f->first_task[middle] <= task)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static sluice_status fill_task(void *context, int64_t task, void *scratch)
{
    const filling *f = context;
    int index = parameter_of(f, f->done + task);
    int64_t first = (f->done + task - f->first_task[index]) * FILL_TASK;
    int64_t left = sl_parameter_elements(f->e->graph, index) - first, count = left < FILL_TASK ? left : FILL_TASK;
    make_values(f->e, index, first, count, scratch);
    return sl_exec_store(f->e->exec, index, -1, first, count, scratch);
}

static sluice_status list_tasks(filling *f, bool adapters_alone)
{
    const sluice_graph *g = f->e->graph;
    f->first_task = sl_alloc_array((size_t)g->parameter_count + 1, sizeof *f->first_task, "first values");
    if (f->first_task == NULL) return SLUICE_ERR_NO_MEMORY;
    for (int i = 0; i < g->parameter_count; i++) {
        const sl_parameter *p = &g->parameters[i];
        int64_t count = adapters_alone && !p->is_adapter && !p->is_fresh ? 0 : sl_parameter_elements(g, i);
        f->first_task[i + 1] = f->first_task[i] + (count + FILL_TASK - 1) / FILL_TASK;
        f->weights += (uint64_t)count;
    }
    return SLUICE_OK;
}

/* What a model's parameters have in common is that a report in tasks is close enough to one in weights. */
static sluice_status fill_weights(sluice_engine *e, bool adapters_alone)
{
    sl_pool *pool = sl_exec_pool(e->exec);
    const int64_t round = FILL_ROUND(sl_pool_threads(pool));
    filling f = { .e = e };
    sl_activity activity;
    sluice_status st = list_tasks(&f, adapters_alone);
    if (st != SLUICE_OK) return st;
    int64_t tasks = f.first_task[e->graph->parameter_count];
    sl_activity_begin(&activity, &e->progress, "fill", f.weights);
    while (st == SLUICE_OK && f.done < tasks) {
        int64_t count = tasks - f.done < round ? tasks - f.done : round;
        st = sl_pool_try(pool, fill_task, &f, count);
        if (st == SLUICE_OK) st = sl_stop_poll(e->plan->options.stop, "filling the first weights");
        f.done += count;
        sl_activity_at(&activity, (uint64_t)((double)f.weights * (double)f.done / (double)tasks));
    }
    if (st == SLUICE_OK) e->fill_seconds = sl_activity_end(&activity);
    sl_free(f.first_task);
    return st;
}

/* State starts as zero, as arenas do, except under guard, where they are poisoned. */
static sluice_status zero_state(sluice_engine *e, int index, const float *zeros)
{
    const sl_parameter *q = &e->graph->parameters[index];
    const int64_t count = sl_parameter_elements(e->graph, index);
    for (int k = 0; q->trainable && k < e->slots.count; k++)
        for (int64_t first = 0; first < count; first += FILL_TASK) {
            int64_t n = count - first < FILL_TASK ? count - first : FILL_TASK;
            SL_TRY(sl_exec_store(e->exec, index, k, first, n, zeros));
        }
    return SLUICE_OK;
}

static sluice_status zero_all_state(sluice_engine *e)
{
    float *zeros = sl_alloc_array((size_t)FILL_TASK, sizeof *zeros, "first values of state");
    if (zeros == NULL) return SLUICE_ERR_NO_MEMORY;
    sluice_status st = SLUICE_OK;
    for (int i = 0; st == SLUICE_OK && i < e->graph->parameter_count; i++) {
        st = zero_state(e, i, zeros);
        if (st == SLUICE_OK) st = sl_stop_poll(e->plan->options.stop, "clearing the state");
    }
    sl_free(zeros);
    return st;
}

sluice_status sl_engine_init_tensors(sluice_engine *e, bool adapters_alone, bool poisoned)
{
    SL_TRY(fill_weights(e, adapters_alone));
    return poisoned ? zero_all_state(e) : SLUICE_OK;
}
