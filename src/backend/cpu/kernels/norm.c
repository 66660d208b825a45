/* norm.c: layer norm and RMS norm over the last dimension, and their gradients.
 *
 * Forward walks a row three times (mean, variance, result), which costs little because the row stays in the cache, and
 * keeps the variance free of cancellation. Both norms are one: RMS norm is layer norm with mean 0 and no bias. The
 * gradient has two parts. dweight and dbias, of any float form, belong to columns: a task owns SUM_COLUMNS columns and
 * walks all rows in order, so that no two tasks add to the same number. dx belongs to rows. The column part runs first,
 * because dx may take over dy's memory. */
#include "backend/cpu/kernels/elem.h"

#define GROUPS      4 /* vectors of columns summed side by side */
#define SUM_COLUMNS (GROUPS * SL_LANES)
#define AHEAD       8 /* rows between asking for a column's element and adding it */

/* Operands of either norm. */
typedef struct norm_job {
    const elem *x, *weight, *bias; /* bias NULL: none */
    const elem *dy;
    float *mean, *rstd;               /* mean NULL: RMS norm */
    elem *y;                          /* forward's result, or dx */
    const sl_tensor *dweight, *dbias; /* NULL: not wanted */
    float epsilon;
    float offset; /* added to the weight */
    int64_t rows, width, rows_per_task;
    bool add_dx, add_dweight, add_dbias;
} norm_job;

/* Sum of (x - shift)^2 when `squares`, else of x - shift, over a row: four sums of sixteen lanes, folded in one
 * order. */
SL_INLINE float row_sum(const elem *x, int64_t n, float shift, bool squares)
{
    const sl_v16 s = v16_set1(shift);
    sl_v16 sum[GROUPS];
    for (int g = 0; g < GROUPS; g++) sum[g] = v16_set1(0.0f);
    for (int64_t i = 0; i < n; i += SUM_COLUMNS)
        for (int g = 0; g < GROUPS; g++) {
            int64_t at = i + g * SL_LANES;
            if (at >= n) break;
            sl_v16 d = v16_sub(e16_get(x + at, n - at, shift), s);
            sum[g] = squares ? v16_fma(d, d, sum[g]) : v16_add(sum[g], d);
        }
    return v16_sum(v16_add(v16_add(sum[0], sum[1]), v16_add(sum[2], sum[3])));
}

/* What columns are multiplied by. */
SL_INLINE sl_v16 weights(const norm_job *j, int64_t c, int64_t left)
{
    sl_v16 w = e16_get(j->weight + c, left, 0.0f);
    return j->offset != 0.0f ? v16_add(w, v16_set1(j->offset)) : w;
}

/* y = (x - mean) rstd (offset + weight) + bias, over one row. */
static void normalize_row(const norm_job *j, const elem *x, elem *y, float mean, float rstd)
{
    const sl_v16 m = v16_set1(mean), r = v16_set1(rstd);
    for (int64_t c = 0; c < j->width; c += SL_LANES) {
        int64_t left = j->width - c;
        sl_v16 hat = v16_mul(v16_sub(e16_get(x + c, left, 0.0f), m), r);
        sl_v16 w = weights(j, c, left);
        sl_v16 b = j->bias != NULL ? e16_get(j->bias + c, left, 0.0f) : v16_set1(0.0f);
        e16_put(y + c, v16_fma(hat, w, b), left);
    }
}

static void forward_task(void *context, int64_t task, void *scratch)
{
    const norm_job *j = context;
    const sl_slice r = sl_task_range(task, j->rows_per_task, j->rows);
    const float n = (float)j->width;
    (void)scratch;
    for (int64_t row = r.begin; row < r.end; row++) {
        const elem *x = j->x + row * j->width;
        float mean = j->mean != NULL ? row_sum(x, j->width, 0.0f, false) / n : 0.0f;
        float rstd = 1.0f / sqrtf(row_sum(x, j->width, mean, true) / n + j->epsilon);
        normalize_row(j, x, j->y + row * j->width, mean, rstd);
        if (j->mean != NULL) j->mean[row] = mean;
        j->rstd[row] = rstd;
    }
}

/* With g = dy (offset + weight) and hat = (x - mean) rstd: the row's means of g and of g hat. */
static void row_moments(const norm_job *j, int64_t row, float *mean_g, float *mean_g_hat)
{
    const elem *x = j->x + row * j->width, *dy = j->dy + row * j->width;
    const sl_v16 m = v16_set1(j->mean != NULL ? j->mean[row] : 0.0f), r = v16_set1(j->rstd[row]);
    sl_v16 sum = v16_set1(0.0f), sum_hat = v16_set1(0.0f);
    for (int64_t c = 0; c < j->width; c += SL_LANES) {
        int64_t left = j->width - c;
        sl_v16 g = v16_mul(e16_get(dy + c, left, 0.0f), weights(j, c, left));
        sl_v16 hat = v16_mul(v16_sub(e16_get(x + c, left, 0.0f), m), r);
        sum = v16_add(sum, g);
        sum_hat = v16_fma(g, hat, sum_hat);
    }
    *mean_g = v16_sum(sum) / (float)j->width;
    *mean_g_hat = v16_sum(sum_hat) / (float)j->width;
}

/* dx = rstd (g - mean(g) - hat mean(g hat)); RMS norm has no mean to differentiate, so mean(g) drops out. */
static void dx_row(const norm_job *j, int64_t row)
{
    const elem *x = j->x + row * j->width, *dy = j->dy + row * j->width;
    elem *dx = j->y + row * j->width;
    float mean_g, mean_g_hat;
    row_moments(j, row, &mean_g, &mean_g_hat);
    const sl_v16 m = v16_set1(j->mean != NULL ? j->mean[row] : 0.0f), r = v16_set1(j->rstd[row]);
    const sl_v16 a = v16_set1(j->mean != NULL ? mean_g : 0.0f), b = v16_set1(-mean_g_hat);
    for (int64_t c = 0; c < j->width; c += SL_LANES) {
        int64_t left = j->width - c;
        sl_v16 g = v16_mul(e16_get(dy + c, left, 0.0f), weights(j, c, left));
        sl_v16 hat = v16_mul(v16_sub(e16_get(x + c, left, 0.0f), m), r);
        sl_v16 d = v16_mul(r, v16_fma(hat, b, v16_sub(g, a)));
        e16_put_or_add(dx + c, d, left, j->add_dx);
    }
}

static void dx_task(void *context, int64_t task, void *scratch)
{
    const norm_job *j = context;
    const sl_slice r = sl_task_range(task, j->rows_per_task, j->rows);
    (void)scratch;
    for (int64_t row = r.begin; row < r.end; row++) dx_row(j, row);
}

/* Sums of dy hat and of dy over rows [begin, end) for `groups` vectors of columns from c on, added to the totals. */
SL_INLINE void sum_rows(const norm_job *j, sl_slice rows, int64_t c, int groups, sl_v16 *weight, sl_v16 *bias)
{
    sl_v16 w[GROUPS], b[GROUPS];
    for (int g = 0; g < groups; g++) w[g] = b[g] = v16_set1(0.0f);
    const int64_t ahead = AHEAD * j->width; /* asked for early: columns far apart in memory are not foreseen */
    for (int64_t row = rows.begin; row < rows.end; row++) {
        const elem *x = j->x + row * j->width + c, *dy = j->dy + row * j->width + c;
        for (int64_t at = 0; at < groups * SL_LANES && row + AHEAD < j->rows; at += 64 / (int64_t)sizeof(elem)) {
            __builtin_prefetch(x + ahead + at);
            __builtin_prefetch(dy + ahead + at);
        }
        const sl_v16 m = v16_set1(j->mean != NULL ? j->mean[row] : 0.0f), r = v16_set1(j->rstd[row]);
        for (int g = 0; g < groups; g++) {
            int64_t at = g * SL_LANES, left = j->width - c - at;
            sl_v16 d = e16_get(dy + at, left, 0.0f);
            sl_v16 hat = v16_mul(v16_sub(e16_get(x + at, left, 0.0f), m), r);
            w[g] = v16_fma(d, hat, w[g]);
            b[g] = v16_add(b[g], d);
        }
    }
    for (int g = 0; g < groups; g++) {
        weight[g] = v16_add(weight[g], w[g]);
        bias[g] = v16_add(bias[g], b[g]);
    }
}

SL_INLINE void sum_columns(const norm_job *j, int64_t c, int groups)
{
    sl_v16 weight[GROUPS], bias[GROUPS];
    for (int g = 0; g < groups; g++) weight[g] = bias[g] = v16_set1(0.0f);
    for (int64_t row = 0; row < j->rows; row += SL_SUM_ROWS)
        sum_rows(j, (sl_slice){ row, sl_least(row + SL_SUM_ROWS, j->rows) }, c, groups, weight, bias);
    for (int g = 0; g < groups; g++) {
        int64_t at = c + g * SL_LANES, left = j->width - at;
        if (j->dweight != NULL) w16_put_or_add(j->dweight, at, weight[g], left, j->add_dweight);
        if (j->dbias != NULL) w16_put_or_add(j->dbias, at, bias[g], left, j->add_dbias);
    }
}

/* A column's sum does not depend on whether it is taken with 63 others or with 15. */
static void columns_task(void *context, int64_t task, void *scratch)
{
    const norm_job *j = context;
    const sl_slice r = sl_task_range(task, SUM_COLUMNS, j->width);
    (void)scratch;
    if (r.end - r.begin == SUM_COLUMNS) {
        sum_columns(j, r.begin, GROUPS);
        return;
    }
    for (int64_t c = r.begin; c < r.end; c += SL_LANES) sum_columns(j, c, 1);
}

static void set_shape(norm_job *j, const sl_kernel_args *a)
{
    j->x = a->in[0].data;
    j->weight = a->in[1].data;
    j->epsilon = a->attrs->norm.epsilon;
    j->offset = a->attrs->norm.offset;
    j->width = sl_row_width(&a->in[0]);
    j->rows = a->in[0].elements / j->width;
    j->rows_per_task = sl_items_per_task(j->width);
}

static void run_forward(const sl_kernel_args *a, norm_job *j)
{
    set_shape(j, a);
    j->y = a->out[0].data;
    sl_pool_run(a->pool, forward_task, j, sl_ceil_div(j->rows, j->rows_per_task));
}

static const sl_tensor *wanted(const sl_kernel_args *a, int output)
{
    return a->output_count > output && a->out[output].data != NULL ? &a->out[output] : NULL;
}

static void run_gradient(const sl_kernel_args *a, norm_job *j)
{
    set_shape(j, a);
    j->y = a->out[0].data;
    j->dweight = wanted(a, 1);
    j->add_dx = sl_accumulates(a, 0);
    j->add_dweight = sl_accumulates(a, 1);
    j->add_dbias = sl_accumulates(a, 2);
    if (j->dweight != NULL || j->dbias != NULL)
        sl_pool_run(a->pool, columns_task, j, sl_ceil_div(j->width, SUM_COLUMNS));
    if (j->y != NULL) sl_pool_run(a->pool, dx_task, j, sl_ceil_div(j->rows, j->rows_per_task));
}

void K(layer_norm)(const sl_kernel_args *a)
{
    norm_job j = { .mean = a->out[1].data, .rstd = a->out[2].data };
    if (a->input_count > 2) j.bias = a->in[2].data;
    run_forward(a, &j);
}

void K(rms_norm)(const sl_kernel_args *a)
{
    norm_job j = { .rstd = a->out[1].data };
    run_forward(a, &j);
}

void K(layer_norm_grad)(const sl_kernel_args *a)
{
    norm_job j = { .mean = a->in[2].data, .rstd = a->in[3].data, .dy = a->in[4].data };
    j.dbias = wanted(a, 2);
    run_gradient(a, &j);
}

void K(rms_norm_grad)(const sl_kernel_args *a)
{
    norm_job j = { .rstd = a->in[2].data, .dy = a->in[3].data };
    run_gradient(a, &j);
}
