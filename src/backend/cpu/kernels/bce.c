/* bce.c: binary cross entropy of logits, and its gradients. As the mean squared error of loss.c: blocks of SL_SUM_BLOCK
 * elements in float lanes, blocks and parts in double and in order, the mean rounded once.
 *
 * The loss of an element is max(y, 0) - y t + log(1 + e^-|y|): no exponential overflows, and nothing is lost for either
 * sign of y. */
#include "backend/cpu/kernels/elem.h"
#include "backend/cpu/kernels/vmath.h"

/* A logit whose element adds nothing: e^-200 is 0. */
#define NO_LOGIT (-200.0f)

typedef struct bce_job {
    const sl_kernel_args *a;
    const elem *weight; /* NULL: all are 1 */
    int64_t elements, per_task;
    float factor; /* dloss / elements */
    double parts[SL_SUM_PARTS];
} bce_job;

SL_INLINE sl_v16 element_loss(sl_v16 y, sl_v16 t)
{
    sl_v16 rest = v16_log1p(v16_exp(v16_neg(v16_abs(y))));
    return v16_add(v16_fma(v16_neg(y), t, v16_max(y, v16_set1(0.0f))), rest);
}

static float block_loss(const elem *y, const elem *t, const elem *w, int64_t n)
{
    sl_v16 sum = v16_set1(0.0f);
    for (int64_t i = 0; i < n; i += SL_LANES) {
        sl_v16 l = element_loss(e16_get(y + i, n - i, NO_LOGIT), e16_get(t + i, n - i, 0.0f));
        sum = w != NULL ? v16_fma(e16_get(w + i, n - i, 0.0f), l, sum) : v16_add(sum, l);
    }
    return v16_sum(sum);
}

static void bce_task(void *context, int64_t task, void *scratch)
{
    bce_job *j = context;
    const sl_slice r = sl_task_range(task, j->per_task, j->elements);
    const elem *y = j->a->in[0].data, *t = j->a->in[1].data;
    double sum = 0.0;
    (void)scratch;
    for (int64_t i = r.begin; i < r.end; i += SL_SUM_BLOCK) {
        const elem *w = j->weight != NULL ? j->weight + i : NULL;
        sum += (double)block_loss(y + i, t + i, w, sl_least(SL_SUM_BLOCK, r.end - i));
    }
    j->parts[task] = sum;
}

static elem *wanted(const sl_kernel_args *a, int output)
{
    return a->output_count > output ? a->out[output].data : NULL;
}

/* dy = w (sigmoid(y) - t) factor, dt = -w y factor, dw = loss factor */
static void bce_grad_task(void *context, int64_t task, void *scratch)
{
    const bce_job *j = context;
    const sl_kernel_args *a = j->a;
    const sl_slice r = sl_task_range(task, SL_TASK_ELEMENTS, j->elements);
    elem *dy = wanted(a, 0), *dt = wanted(a, 1), *dw = wanted(a, 2);
    const sl_v16 factor = v16_set1(j->factor);
    (void)scratch;
    for (int64_t i = r.begin; i < r.end; i += SL_LANES) {
        int64_t left = r.end - i;
        sl_v16 y = e16_get((const elem *)a->in[0].data + i, left, 0.0f);
        sl_v16 t = e16_get((const elem *)a->in[1].data + i, left, 0.0f);
        sl_v16 g = j->weight != NULL ? v16_mul(e16_get(j->weight + i, left, 0.0f), factor) : factor;
        if (dy != NULL) e16_put_or_add(dy + i, v16_mul(g, v16_sub(v16_sigmoid(y), t)), left, sl_accumulates(a, 0));
        if (dt != NULL) e16_put_or_add(dt + i, v16_neg(v16_mul(g, y)), left, sl_accumulates(a, 1));
        if (dw != NULL) e16_put_or_add(dw + i, v16_mul(factor, element_loss(y, t)), left, sl_accumulates(a, 2));
    }
}

/* y, t, w? -> loss */
void K(bce_with_logits)(const sl_kernel_args *a)
{
    float *loss = a->out[0].data;
    bce_job j = { .a = a, .elements = a->in[0].elements, .weight = a->input_count > 2 ? a->in[2].data : NULL };
    const int64_t blocks = sl_ceil_div(j.elements, SL_SUM_BLOCK);
    j.per_task = sl_items_per_part(blocks, SL_SUM_BLOCK) * SL_SUM_BLOCK;
    const int64_t parts = sl_ceil_div(j.elements, j.per_task);
    sl_pool_run(a->pool, bce_task, &j, parts);
    double sum = 0.0;
    for (int64_t i = 0; i < parts; i++) sum += j.parts[i];
    *loss = (float)(sum / (double)j.elements);
}

/* y, t, dloss, w? -> dy?, dt?, dw? */
void K(bce_with_logits_grad)(const sl_kernel_args *a)
{
    const float *dloss = a->in[2].data;
    bce_job j = { .a = a, .elements = a->in[0].elements, .weight = a->input_count > 3 ? a->in[3].data : NULL };
    j.factor = (float)((double)*dloss / (double)j.elements);
    sl_pool_run(a->pool, bce_grad_task, &j, sl_ceil_div(j.elements, SL_TASK_ELEMENTS));
}
