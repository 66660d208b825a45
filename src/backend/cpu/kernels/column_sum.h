/* column_sum.h: sums of columns over rows: the gradient of a bias. */
#ifndef SL_BACKEND_CPU_COLUMN_SUM_H
#define SL_BACKEND_CPU_COLUMN_SUM_H

#include "backend/cpu/kernels/elem.h"

/* Columns summed by one task: each row gives it whole cache lines. */
#define COLUMN_VECTORS 4
#define COLUMN_COUNT   (COLUMN_VECTORS * SL_LANES)

/* sums[columns] (+)= the sum over rows of x[rows, columns]; sums may be of any float form. */
typedef struct column_sum {
    const elem *x;
    const sl_tensor *sums;
    int64_t rows, columns;
    bool add;
} column_sum;

/* Each column is one chain of additions over the rows in order. */
static void column_task(void *context, int64_t number, void *scratch)
{
    const column_sum *s = context;
    int64_t first = number * COLUMN_COUNT, count = sl_least(s->columns - first, COLUMN_COUNT);
    const elem *x = s->x + first;
    sl_v16 sum[COLUMN_VECTORS];
    (void)scratch;
    for (int v = 0; v < COLUMN_VECTORS; v++) sum[v] = v16_set1(0.0f);
    if (count == COLUMN_COUNT) {
        for (int64_t r = 0; r < s->rows; r++)
            for (int v = 0; v < COLUMN_VECTORS; v++)
                sum[v] = v16_add(sum[v], e16_load(x + r * s->columns + v * SL_LANES));
    } else {
        for (int64_t r = 0; r < s->rows; r++)
            for (int v = 0; v * SL_LANES < count; v++)
                sum[v] = v16_add(sum[v], e16_get(x + r * s->columns + v * SL_LANES, count - v * SL_LANES, 0.0f));
    }
    for (int v = 0; v * SL_LANES < count; v++)
        w16_put_or_add(s->sums, first + v * SL_LANES, sum[v], count - v * SL_LANES, s->add);
}

static inline void sum_columns(sl_pool *pool, const column_sum *s)
{
    column_sum job = *s;
    sl_pool_run(pool, column_task, &job, sl_ceil_div(job.columns, COLUMN_COUNT));
}

#endif
