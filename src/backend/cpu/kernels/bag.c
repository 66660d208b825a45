/* bag.c: sums and means of runs of rows, and their gradient.
 *
 * A bag's rows are added in their order, so neither threads nor the neighbours of a bag change its sum. Batches are checked
 * before they are used; ends that come here all the same are held within the rows. */
#include "backend/cpu/kernels/elem.h"

typedef struct bag_job {
    const int32_t *ends;
    const elem *from;
    elem *to;
    int64_t bags, rows, width, per_task;
    bool mean, accumulate;
} bag_job;

SL_INLINE int64_t end_of(const bag_job *j, int64_t bag)
{
    if (bag < 0 || j->ends[bag] < 0) return 0;
    return sl_least(j->ends[bag], j->rows);
}

static void sum_bag(const bag_job *j, int64_t bag)
{
    const int64_t begin = end_of(j, bag - 1), end = end_of(j, bag);
    const sl_v16 count = v16_set1((float)(end - begin));
    for (int64_t c = 0; c < j->width; c += SL_LANES) {
        const int64_t left = j->width - c;
        sl_v16 sum = v16_set1(0.0f);
        for (int64_t row = begin; row < end; row++)
            sum = v16_add(sum, e16_get(j->from + row * j->width + c, left, 0.0f));
        if (j->mean && end > begin) sum = v16_div(sum, count);
        e16_put(j->to + bag * j->width + c, sum, left);
    }
}

static void bag_task(void *context, int64_t task, void *scratch)
{
    const bag_job *j = context;
    const sl_slice r = sl_task_range(task, j->per_task, j->bags);
    (void)scratch;
    for (int64_t bag = r.begin; bag < r.end; bag++) sum_bag(j, bag);
}

/* x[..,C], ends[B] -> y[B,C] */
void K(bag)(const sl_kernel_args *a)
{
    bag_job j = { .ends = a->in[1].data,
                  .from = a->in[0].data,
                  .to = a->out[0].data,
                  .bags = a->in[1].elements,
                  .width = sl_row_width(&a->in[0]),
                  .mean = a->attrs->bag.mean };
    j.rows = a->in[0].elements / j.width;
    j.per_task = sl_items_per_task(j.width * (1 + j.rows / (j.bags > 0 ? j.bags : 1)));
    sl_pool_run(a->pool, bag_task, &j, sl_ceil_div(j.bags, j.per_task));
}

/* The first bag that ends behind a row; j->bags: none does. */
static int64_t bag_of(const bag_job *j, int64_t row)
{
    int64_t low = 0, high = j->bags;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (end_of(j, middle) > row)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static void spread_row(const bag_job *j, int64_t row)
{
    const int64_t bag = bag_of(j, row);
    const bool used = bag < j->bags;
    const float count = used ? (float)(end_of(j, bag) - end_of(j, bag - 1)) : 1.0f;
    for (int64_t c = 0; c < j->width; c += SL_LANES) {
        const int64_t left = j->width - c;
        sl_v16 dy = v16_set1(0.0f);
        if (used) dy = e16_get(j->from + bag * j->width + c, left, 0.0f);
        if (j->mean) dy = v16_div(dy, v16_set1(count));
        e16_put_or_add(j->to + row * j->width + c, dy, left, j->accumulate);
    }
}

static void spread_task(void *context, int64_t task, void *scratch)
{
    const bag_job *j = context;
    const sl_slice r = sl_task_range(task, j->per_task, j->rows);
    (void)scratch;
    for (int64_t row = r.begin; row < r.end; row++) spread_row(j, row);
}

/* ends[B], dy[B,C] -> dx[..,C] */
void K(bag_grad)(const sl_kernel_args *a)
{
    bag_job j = { .ends = a->in[0].data,
                  .from = a->in[1].data,
                  .to = a->out[0].data,
                  .bags = a->in[0].elements,
                  .width = sl_row_width(&a->out[0]),
                  .mean = a->attrs->bag.mean,
                  .accumulate = sl_accumulates(a, 0) };
    j.rows = a->out[0].elements / j.width;
    j.per_task = sl_items_per_task(j.width);
    sl_pool_run(a->pool, spread_task, &j, sl_ceil_div(j.rows, j.per_task));
}
