/* dropout.c: zeroes elements by a mask that is a function of (seed, step, micro-batch, op, element), and scales the
 * rest.
 *
 * The mask is core/rng.h's stream, eight blocks at a time (philox.h). An element stays when its uniform number, the
 * word's top 24 bits times 2^-24, is at least p: an integer comparison. */
#include "backend/cpu/kernels/elem.h"
#include "backend/cpu/kernels/philox.h"

typedef struct dropout_job {
    const sl_kernel_args *a;
    sl_rng stream;
    int32_t threshold; /* the smallest 24-bit number that stays */
    float scale;       /* 1 / (1 - p) */
} dropout_job;

static void dropout_task(void *context, int64_t task, void *scratch)
{
    const dropout_job *job = context;
    const sl_slice r = sl_task_range(task, SL_TASK_ELEMENTS, job->a->out[0].elements);
    const elem *x = job->a->in[0].data;
    const float scale = job->scale;
    elem *out = job->a->out[0].data;
    const int32_t threshold = job->threshold;
    const sl_rng stream = job->stream;
    (void)scratch;
    for (int64_t i = r.begin; i < r.end; i += SL_PHILOX_ELEMENTS) {
        sl_words words[2];
        sl_philox8(&stream, (uint64_t)i / 4, words);
        for (int half = 0; half < 2; half++) {
            int64_t at = i + half * SL_LANES, left = r.end - at;
            if (left <= 0) break;
            e16_put(out + at, v16_mul(e16_get(x + at, left, 0.0f), words_factors(words[half], threshold, scale)), left);
        }
    }
}

static void copy_task(void *context, int64_t task, void *scratch)
{
    const sl_kernel_args *a = context;
    const sl_slice r = sl_task_range(task, SL_TASK_ELEMENTS, a->out[0].elements);
    const elem *x = a->in[0].data;
    elem *out = a->out[0].data;
    (void)scratch;
    memcpy(out + r.begin, x + r.begin, (size_t)(r.end - r.begin) * sizeof *out);
}

/* In evaluation the identity. */
void K(dropout)(const sl_kernel_args *a)
{
    const sl_run_context *run = a->context;
    const float p = a->attrs->dropout.p;
    const int64_t tasks = sl_ceil_div(a->out[0].elements, SL_TASK_ELEMENTS);
    if (!run->training) {
        if (a->in[0].data != a->out[0].data) sl_pool_run(a->pool, copy_task, (void *)(uintptr_t)a, tasks);
        return;
    }
    dropout_job job = {
        .a = a,
        .stream = sl_rng_stream(run->seed, SL_RNG_DROPOUT, run->step, run->micro, a->attrs->dropout.op),
        .threshold = (int32_t)ceil((double)p * 0x1p24), /* exact: p has 24 bits */
        .scale = 1.0f / (1.0f - p),
    };
    sl_pool_run(a->pool, dropout_task, &job, tasks);
}
