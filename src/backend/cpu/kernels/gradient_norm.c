/* gradient_norm.c: adding up micro-batches, and the global norm of what they add up to.
 *
 * Accumulation is one addition per element and micro-batch, in the order of the micro-batches. The norm is taken in
 * leaves of 1,024 elements of each layer's flat buffer (leaf_norm.h), so that it depends neither on threads nor on who
 * owns which leaf. Squares of finite floats cannot overflow fp64, so the sum is finite exactly when every element is:
 * the norm is also the finite check. */
#include "backend/cpu/kernels/isa.h"
#include "backend/cpu/kernels/leaf_norm.h"

/* Elements per task: a whole number of leaves, small enough to spread, large enough to stream. */
#define TASK_ELEMENTS ((int64_t)32 * SL_CUT_ELEMENTS)

/* torch.nn.utils.clip_grad_norm_ and DeepSpeed add this to the norm before dividing. */
#define CLIP_EPSILON 1e-6

static int64_t task_elements(int64_t total, int64_t task)
{
    int64_t left = total - task * TASK_ELEMENTS;
    return left < TASK_ELEMENTS ? left : TASK_ELEMENTS;
}

static void add_task(void *context, int64_t task, void *scratch)
{
    const sl_kernel_args *a = context;
    (void)scratch;
    const float *x = (const float *)a->in[0].data + task * TASK_ELEMENTS;
    float *sum = (float *)a->out[0].data + task * TASK_ELEMENTS;
    int64_t n = task_elements(a->out[0].elements, task), i = 0;
    for (; i + SL_LANES <= n; i += SL_LANES) v16_store(sum + i, v16_add(v16_load(sum + i), v16_load(x + i)));
    for (; i < n; i++) sum[i] += x[i];
}

static void copy_task(void *context, int64_t task, void *scratch)
{
    const sl_kernel_args *a = context;
    (void)scratch;
    const float *x = (const float *)a->in[0].data + task * TASK_ELEMENTS;
    float *sum = (float *)a->out[0].data + task * TASK_ELEMENTS;
    memcpy(sum, x, (size_t)task_elements(a->out[0].elements, task) * sizeof *sum);
}

/* contribution[n] -> accumulator[n]: copied for the step's first micro-batch, added afterwards. */
void K(accumulate)(const sl_kernel_args *a)
{
    bool first = a->context->micro == 0;
    if (first && a->in[0].data == a->out[0].data) return;
    sl_pool_run(a->pool, first ? copy_task : add_task, (void *)a, sl_ceil_div(a->out[0].elements, TASK_ELEMENTS));
}

static void leaves_task(void *context, int64_t task, void *scratch)
{
    const sl_kernel_args *a = context;
    (void)scratch;
    const float *x = (const float *)a->in[0].data + task * TASK_ELEMENTS;
    double *leaf = (double *)a->out[0].data + task * (TASK_ELEMENTS / SL_CUT_ELEMENTS);
    int64_t n = task_elements(a->in[0].elements, task);
    for (int64_t i = 0; i < n; i += SL_CUT_ELEMENTS)
        *leaf++ = sl_leaf_sum(x + i, n - i < SL_CUT_ELEMENTS ? n - i : SL_CUT_ELEMENTS);
}

/* gradient[n] -> leaves f64[ceil(n / 1024)]. */
void K(norm_leaves)(const sl_kernel_args *a)
{
    sl_pool_run(a->pool, leaves_task, (void *)a, sl_ceil_div(a->in[0].elements, TASK_ELEMENTS));
}

/* leaves f64[m] in global order -> sl_norm_result. The factor is torch's: 1/loss_scale * min(1, clip / (norm + 1e-6)),
 * in double, rounded to float once. (DeepSpeed's ZeRO divides by max(1, (norm + 1e-6) / clip) instead: the same number
 * but for the last bit.) */
void K(norm_finish)(const sl_kernel_args *a)
{
    const double *leaves = a->in[0].data;
    sl_norm_result *result = a->out[0].data;
    const sl_run_context *run = a->context;
    sl_leaf_tree tree;
    memset(&tree, 0, sizeof tree);
    for (int64_t i = 0; i < a->in[0].elements; i++) sl_leaf_tree_add(&tree, i, leaves[i]);
    double total = sl_leaf_tree_sum(&tree);
    double norm = sqrt(total) / run->loss_scale;
    double clip = run->clip > 0.0 ? run->clip / (norm + CLIP_EPSILON) : 1.0;
    result->norm = norm;
    result->finite = isfinite(total) ? 1 : 0;
    result->factor = result->finite ? (float)((clip < 1.0 ? clip : 1.0) / run->loss_scale) : 0.0f;
}
