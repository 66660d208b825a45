/* softmax.c: softmax over the last dimension, its logarithm, and their gradients. The row's maximum is subtracted first, so nothing
 * overflows. The exponentials are taken twice, for the sum and for the result, because a 16-bit output could not hold
 * them between. The output may be an input's own memory: a row is read in full passes before or while its own elements
 * are written. */
#include "backend/cpu/kernels/rows.h"

typedef struct softmax_job {
    const sl_kernel_args *a;
    int64_t rows, width, rows_per_task;
} softmax_job;

/* of e^(x - top) */
static float exponential_sum(const elem *x, int64_t n, sl_v16 top)
{
    sl_v16 sum = v16_set1(0.0f);
    for (int64_t i = 0; i < n; i += SL_LANES) {
        sl_v16 e = v16_exp(v16_sub(e16_get(x + i, n - i, -INFINITY), top)); /* absent lanes give 0 */
        sum = v16_add(sum, e);
    }
    return v16_sum(sum);
}

static void softmax_row(const elem *x, elem *y, int64_t n)
{
    const sl_v16 top = v16_set1(sl_row_max(x, n));
    const sl_v16 factor = v16_set1(1.0f / exponential_sum(x, n, top));
    for (int64_t i = 0; i < n; i += SL_LANES) {
        sl_v16 e = v16_exp(v16_sub(e16_get(x + i, n - i, -INFINITY), top));
        e16_put(y + i, v16_mul(e, factor), n - i);
    }
}

static void softmax_task(void *context, int64_t task, void *scratch)
{
    const softmax_job *j = context;
    const sl_slice r = sl_task_range(task, j->rows_per_task, j->rows);
    const elem *x = j->a->in[0].data;
    elem *y = j->a->out[0].data;
    (void)scratch;
    for (int64_t row = r.begin; row < r.end; row++) softmax_row(x + row * j->width, y + row * j->width, j->width);
}

/* dx = y (dy - sum(y dy)) */
static void softmax_grad_row(const elem *y, const elem *dy, elem *dx, int64_t n, bool accumulate)
{
    sl_v16 sum = v16_set1(0.0f);
    for (int64_t i = 0; i < n; i += SL_LANES)
        sum = v16_fma(e16_get(y + i, n - i, 0.0f), e16_get(dy + i, n - i, 0.0f), sum);
    const sl_v16 dot = v16_set1(v16_sum(sum));
    for (int64_t i = 0; i < n; i += SL_LANES) {
        sl_v16 d = v16_mul(e16_get(y + i, n - i, 0.0f), v16_sub(e16_get(dy + i, n - i, 0.0f), dot));
        e16_put_or_add(dx + i, d, n - i, accumulate);
    }
}

static void softmax_grad_task(void *context, int64_t task, void *scratch)
{
    const softmax_job *j = context;
    const sl_slice r = sl_task_range(task, j->rows_per_task, j->rows);
    const elem *y = j->a->in[0].data, *dy = j->a->in[1].data;
    elem *dx = j->a->out[0].data;
    const bool accumulate = sl_accumulates(j->a, 0);
    (void)scratch;
    for (int64_t row = r.begin; row < r.end; row++) {
        int64_t at = row * j->width;
        softmax_grad_row(y + at, dy + at, dx + at, j->width, accumulate);
    }
}

static void log_softmax_row(const elem *x, elem *y, int64_t n)
{
    const sl_v16 top = v16_set1(sl_row_max(x, n)), rest = v16_set1(sl_log(exponential_sum(x, n, top)));
    for (int64_t i = 0; i < n; i += SL_LANES)
        e16_put(y + i, v16_sub(v16_sub(e16_get(x + i, n - i, 0.0f), top), rest), n - i);
}

static void log_softmax_task(void *context, int64_t task, void *scratch)
{
    const softmax_job *j = context;
    const sl_slice r = sl_task_range(task, j->rows_per_task, j->rows);
    const elem *x = j->a->in[0].data;
    elem *y = j->a->out[0].data;
    (void)scratch;
    for (int64_t row = r.begin; row < r.end; row++) log_softmax_row(x + row * j->width, y + row * j->width, j->width);
}

/* dx = dy - softmax(x) sum(dy). Of x, not of the result: in 16 bits that would have lost what the exponential shows. */
static void log_softmax_grad_row(const elem *x, const elem *dy, elem *dx, int64_t n, bool accumulate)
{
    const sl_v16 top = v16_set1(sl_row_max(x, n));
    sl_v16 sum = v16_set1(0.0f);
    for (int64_t i = 0; i < n; i += SL_LANES) sum = v16_add(sum, e16_get(dy + i, n - i, 0.0f));
    const sl_v16 factor = v16_set1(v16_sum(sum) / exponential_sum(x, n, top));
    for (int64_t i = 0; i < n; i += SL_LANES) {
        sl_v16 e = v16_exp(v16_sub(e16_get(x + i, n - i, 0.0f), top));
        e16_put_or_add(dx + i, v16_fma(v16_neg(e), factor, e16_get(dy + i, n - i, 0.0f)), n - i, accumulate);
    }
}

static void log_softmax_grad_task(void *context, int64_t task, void *scratch)
{
    const softmax_job *j = context;
    const sl_slice r = sl_task_range(task, j->rows_per_task, j->rows);
    const elem *x = j->a->in[0].data, *dy = j->a->in[1].data;
    elem *dx = j->a->out[0].data;
    const bool accumulate = sl_accumulates(j->a, 0);
    (void)scratch;
    for (int64_t row = r.begin; row < r.end; row++) {
        int64_t at = row * j->width;
        log_softmax_grad_row(x + at, dy + at, dx + at, j->width, accumulate);
    }
}

static void run_rows(const sl_kernel_args *a, sl_task_fn fn)
{
    int64_t width = sl_row_width(&a->in[0]);
    softmax_job j = { a, a->in[0].elements / width, width, sl_items_per_task(width) };
    sl_pool_run(a->pool, fn, &j, sl_ceil_div(j.rows, j.rows_per_task));
}

void K(softmax)(const sl_kernel_args *a)
{
    run_rows(a, softmax_task);
}

void K(softmax_grad)(const sl_kernel_args *a)
{
    run_rows(a, softmax_grad_task);
}

void K(log_softmax)(const sl_kernel_args *a)
{
    run_rows(a, log_softmax_task);
}

void K(log_softmax_grad)(const sl_kernel_args *a)
{
    run_rows(a, log_softmax_grad_task);
}
