/* cast.c: the same values in another type, rounded to nearest even; where the output accumulates, the sum is taken in
 * f32 and rounded once. */
#include "backend/cpu/kernels/convert.h"
#include "backend/cpu/kernels/loops.h"

static void cast_task(void *context, int64_t task, void *scratch)
{
    const sl_kernel_args *a = context;
    const sl_slice r = sl_task_range(task, SL_TASK_ELEMENTS, a->out[0].elements);
    const bool accumulate = sl_accumulates(a, 0);
    (void)scratch;
    for (int64_t i = r.begin; i < r.end; i += SL_LANES)
        w16_put_or_add(&a->out[0], i, w16_get(&a->in[0], i, r.end - i, 0.0f), r.end - i, accumulate);
}

void KI(cast)(const sl_kernel_args *a)
{
    sl_pool_run(a->pool, cast_task, (void *)a, sl_ceil_div(a->out[0].elements, SL_TASK_ELEMENTS));
}
