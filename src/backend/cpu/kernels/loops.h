/* loops.h: how kernels cut work into tasks and walk memory.
 *
 * A task is about SL_TASK_ELEMENTS elements: large enough to hide the pool's hand-out, small enough to spread. Cuts
 * depend on the shape alone. Sums over a whole tensor are cut into at most SL_SUM_PARTS parts, whose sums lie on the
 * caller's stack until they are added in order: no workspace, and the same bits for any number of threads. */
#ifndef SL_BACKEND_CPU_LOOPS_H
#define SL_BACKEND_CPU_LOOPS_H

#include "backend/cpu/kernels/isa.h"
#include "backend/cpu/kernels/simd.h"
#include "core/bytes.h"

#define SL_TASK_ELEMENTS 16384
#define SL_SUM_BLOCK     1024 /* elements summed in float lanes before their sum is added in double */
#define SL_SUM_PARTS     64
#define SL_SUM_ROWS      128 /* rows summed in float before that sum is added to the column's total */

#define SL_INLINE static inline __attribute__((always_inline))

typedef struct sl_slice {
    int64_t begin, end;
} sl_slice;

SL_INLINE int64_t sl_least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* The `task`th piece of [0, total) in steps of per_task. */
SL_INLINE sl_slice sl_task_range(int64_t task, int64_t per_task, int64_t total)
{
    int64_t begin = task * per_task;
    return (sl_slice){ begin, sl_least(begin + per_task, total) };
}

/* Items of `size` elements each that make a task; at least one. */
SL_INLINE int64_t sl_items_per_task(int64_t size)
{
    return size >= SL_TASK_ELEMENTS ? 1 : SL_TASK_ELEMENTS / (size > 0 ? size : 1);
}

/* Items per part so that there are at most SL_SUM_PARTS parts and none is smaller than a task. */
SL_INLINE int64_t sl_items_per_part(int64_t items, int64_t size)
{
    int64_t task = sl_items_per_task(size), spread = sl_ceil_div(items, SL_SUM_PARTS);
    return task > spread ? task : spread;
}

SL_INLINE bool sl_accumulates(const sl_kernel_args *a, int output)
{
    return (a->attrs->accumulate >> output & 1u) != 0;
}

/* The last dimension: the length of a row. */
SL_INLINE int64_t sl_row_width(const sl_tensor *t)
{
    return t->shape->rank > 0 ? t->shape->dim[t->shape->rank - 1] : 1;
}

/* Up to 16 elements of which `left` remain: whole vectors and the tail alike. */
SL_INLINE sl_v16 v16_get(const float *p, int64_t left, float fill)
{
    return left >= SL_LANES ? v16_load(p) : v16_load_part(p, left, fill);
}

SL_INLINE void v16_put(float *p, sl_v16 v, int64_t left)
{
    if (left >= SL_LANES)
        v16_store(p, v);
    else
        v16_store_part(p, v, left);
}

/* The same, adding to what is there when `accumulate`. */
SL_INLINE void v16_put_or_add(float *p, sl_v16 v, int64_t left, bool accumulate)
{
    if (accumulate) v = v16_add(v16_get(p, left, 0.0f), v);
    v16_put(p, v, left);
}

#endif
