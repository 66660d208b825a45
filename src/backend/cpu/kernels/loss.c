/* loss.c: cross entropy and mean squared error with their gradients.
 *
 * A loss is one number: rows (or blocks of SL_SUM_BLOCK elements) are summed in order inside a part, parts in order at
 * the end, in double, and the mean is rounded once. */
#include "backend/cpu/kernels/entropy.h"

/* ---- Cross entropy ---- */

typedef struct entropy_job {
    const elem *logits;
    const int32_t *targets;
    float *lse;
    elem *dlogits;
    float gradient; /* dloss / count */
    int32_t ignore_index;
    entropy_rule rule;
    int64_t rows, width, rows_per_task;
    entropy_part parts[SL_SUM_PARTS];
} entropy_job;

static void cross_entropy_task(void *context, int64_t task, void *scratch)
{
    entropy_job *j = context;
    const sl_slice r = sl_task_range(task, j->rows_per_task, j->rows);
    entropy_part part = { 0 };
    (void)scratch;
    for (int64_t row = r.begin; row < r.end; row++) {
        const elem *x = j->logits + row * j->width;
        j->lse[row] = entropy_row_lse(x, j->width, j->rule.cap);
        if (j->targets[row] == j->ignore_index) continue;
        part.loss += entropy_row_loss(x, j->width, j->lse[row], j->targets[row], j->rule);
        part.count++;
    }
    j->parts[task] = part;
}

/* Ignored rows have gradient 0 whatever their logits are. */
static void entropy_grad_row(const entropy_job *j, int64_t row)
{
    const elem *x = j->logits + row * j->width;
    elem *d = j->dlogits + row * j->width;
    if (j->targets[row] == j->ignore_index)
        memset(d, 0, (size_t)j->width * sizeof *d);
    else
        entropy_row_gradient(d, x, j->width, j->lse[row], j->targets[row], j->gradient, j->rule);
}

static void cross_entropy_grad_task(void *context, int64_t task, void *scratch)
{
    const entropy_job *j = context;
    const sl_slice r = sl_task_range(task, j->rows_per_task, j->rows);
    (void)scratch;
    for (int64_t row = r.begin; row < r.end; row++) entropy_grad_row(j, row);
}

static void set_entropy(entropy_job *j, const sl_kernel_args *a)
{
    j->logits = a->in[0].data;
    j->targets = a->in[1].data;
    j->ignore_index = a->attrs->cross_entropy.ignore_index;
    j->rule = entropy_rule_of(a->attrs);
    j->width = sl_row_width(&a->in[0]);
    j->rows = a->in[0].elements / j->width;
}

void K(cross_entropy)(const sl_kernel_args *a)
{
    float *loss = a->out[0].data, *count = a->out[2].data;
    entropy_job j = { .lse = a->out[1].data };
    set_entropy(&j, a);
    j.rows_per_task = sl_items_per_part(j.rows, j.width);
    const int64_t parts = sl_ceil_div(j.rows, j.rows_per_task);
    sl_pool_run(a->pool, cross_entropy_task, &j, parts);
    entropy_part total = { 0 };
    for (int64_t i = 0; i < parts; i++) {
        total.loss += j.parts[i].loss;
        total.count += j.parts[i].count;
    }
    *loss = entropy_mean(total);
    *count = (float)total.count;
}

void K(cross_entropy_grad)(const sl_kernel_args *a)
{
    const float *count = a->in[3].data, *dloss = a->in[4].data;
    entropy_job j = { .lse = a->in[2].data, .dlogits = a->out[0].data };
    set_entropy(&j, a);
    j.gradient = *count > 0.0f ? *dloss / *count : 0.0f; /* with count 0 every row is ignored */
    j.rows_per_task = sl_items_per_task(j.width);
    sl_pool_run(a->pool, cross_entropy_grad_task, &j, sl_ceil_div(j.rows, j.rows_per_task));
}

/* ---- Mean squared error ---- */

typedef struct mse_job {
    const sl_kernel_args *a;
    int64_t elements, per_task;
    float factor; /* 2 dloss / elements */
    double parts[SL_SUM_PARTS];
} mse_job;

static float block_error(const elem *y, const elem *t, int64_t n)
{
    sl_v16 sum = v16_set1(0.0f);
    for (int64_t i = 0; i < n; i += SL_LANES) {
        sl_v16 d = v16_sub(e16_get(y + i, n - i, 0.0f), e16_get(t + i, n - i, 0.0f));
        sum = v16_fma(d, d, sum);
    }
    return v16_sum(sum);
}

static void mse_task(void *context, int64_t task, void *scratch)
{
    mse_job *j = context;
    const sl_slice r = sl_task_range(task, j->per_task, j->elements);
    const elem *y = j->a->in[0].data, *t = j->a->in[1].data;
    double sum = 0.0;
    (void)scratch;
    for (int64_t i = r.begin; i < r.end; i += SL_SUM_BLOCK)
        sum += (double)block_error(y + i, t + i, sl_least(SL_SUM_BLOCK, r.end - i));
    j->parts[task] = sum;
}

static void mse_grad_task(void *context, int64_t task, void *scratch)
{
    const mse_job *j = context;
    const sl_slice r = sl_task_range(task, SL_TASK_ELEMENTS, j->elements);
    const elem *y = j->a->in[0].data, *t = j->a->in[1].data;
    elem *dy = j->a->out[0].data, *dt = j->a->output_count > 1 ? j->a->out[1].data : NULL;
    const bool add_dy = sl_accumulates(j->a, 0), add_dt = sl_accumulates(j->a, 1);
    const sl_v16 factor = v16_set1(j->factor);
    (void)scratch;
    for (int64_t i = r.begin; i < r.end; i += SL_LANES) {
        int64_t left = r.end - i;
        sl_v16 d = v16_sub(e16_get(y + i, left, 0.0f), e16_get(t + i, left, 0.0f));
        d = v16_mul(d, factor);
        if (dy != NULL) e16_put_or_add(dy + i, d, left, add_dy);
        if (dt != NULL) e16_put_or_add(dt + i, v16_neg(d), left, add_dt);
    }
}

void K(mse)(const sl_kernel_args *a)
{
    float *loss = a->out[0].data;
    mse_job j = { .a = a, .elements = a->in[0].elements };
    const int64_t blocks = sl_ceil_div(j.elements, SL_SUM_BLOCK);
    j.per_task = sl_items_per_part(blocks, SL_SUM_BLOCK) * SL_SUM_BLOCK;
    const int64_t parts = sl_ceil_div(j.elements, j.per_task);
    sl_pool_run(a->pool, mse_task, &j, parts);
    double sum = 0.0;
    for (int64_t i = 0; i < parts; i++) sum += j.parts[i];
    *loss = (float)(sum / (double)j.elements);
}

void K(mse_grad)(const sl_kernel_args *a)
{
    const float *dloss = a->in[2].data;
    mse_job j = { .a = a, .elements = a->in[0].elements };
    j.factor = (float)(2.0 * (double)*dloss / (double)j.elements);
    sl_pool_run(a->pool, mse_grad_task, &j, sl_ceil_div(j.elements, SL_TASK_ELEMENTS));
}
