/* rows.h: what softmax and cross entropy need of a row. */
#ifndef SL_BACKEND_CPU_ROWS_H
#define SL_BACKEND_CPU_ROWS_H

#include "backend/cpu/kernels/elem.h"
#include "backend/cpu/kernels/vmath.h"

/* The largest element; NaN elements are passed over (they show in the exponentials). -infinity for n = 0. */
static inline float sl_row_max(const elem *x, int64_t n)
{
    sl_v16 top[4];
    for (int g = 0; g < 4; g++) top[g] = v16_set1(-INFINITY);
    int64_t i = 0;
    for (; i + 4 * SL_LANES <= n; i += 4 * SL_LANES)
        for (int g = 0; g < 4; g++) top[g] = v16_max(e16_load(x + i + g * SL_LANES), top[g]);
    for (; i < n; i += SL_LANES) top[0] = v16_max(e16_get(x + i, n - i, -INFINITY), top[0]);
    return v16_max_lane(v16_max(v16_max(top[0], top[1]), v16_max(top[2], top[3])));
}

/* log of the sum of exponentials. Sixteen lanes per SL_SUM_BLOCK elements in float, blocks in double: a vocabulary may
 * be long. */
static inline float sl_row_lse(const elem *x, int64_t n)
{
    const float top = sl_row_max(x, n);
    const sl_v16 shift = v16_set1(top);
    double total = 0.0;
    for (int64_t begin = 0; begin < n; begin += SL_SUM_BLOCK) {
        const int64_t end = sl_least(begin + SL_SUM_BLOCK, n);
        sl_v16 sum = v16_set1(0.0f);
        for (int64_t i = begin; i < end; i += SL_LANES)
            sum = v16_add(sum, v16_exp(v16_sub(e16_get(x + i, end - i, -INFINITY), shift)));
        total += (double)v16_sum(sum);
    }
    return top + sl_log((float)total);
}

#endif
