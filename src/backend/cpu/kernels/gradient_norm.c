/* gradient_norm.c: adding up micro-batches, and the global norm of what they add up to.
 *
 * Accumulation is one addition in f32 per element and micro-batch, in the order of the micro-batches. The norm is that
 * of the gradient as the update will read it, rounded to the wire type. It is taken in leaves of 1,024 elements of each
 * layer's flat buffer (leaf_norm.h), so that it depends neither on threads nor on who owns which leaf. Squares of
 * finite floats cannot overflow fp64, so the sum is finite exactly when every element is: the norm is also the finite
 * check. */
#include "backend/cpu/kernels/isa.h"
#include "backend/cpu/kernels/leaf_norm.h"
#include "backend/cpu/kernels/update_lanes.h"
#include "core/norm_nodes.h"

/* Elements per task: a whole number of leaves, small enough to spread, large enough to stream. */
#define TASK_ELEMENTS ((int64_t)32 * SL_CUT_ELEMENTS)

/* torch.nn.utils.clip_grad_norm_ and DeepSpeed add this to the norm before dividing. */
#define CLIP_EPSILON 1e-6

static int64_t task_elements(int64_t total, int64_t task)
{
    int64_t left = total - task * TASK_ELEMENTS;
    return left < TASK_ELEMENTS ? left : TASK_ELEMENTS;
}

/* Adds, or for the first micro-batch sets, one task's elements. */
static void accumulate_task(const sl_kernel_args *a, int64_t task, bool add)
{
    const sl_tensor *x = &a->in[0];
    float *sum = a->out[0].data;
    int64_t i = task * TASK_ELEMENTS, end = i + task_elements(a->out[0].elements, task);
    for (; i + SL_LANES <= end; i += SL_LANES) {
        sl_v16 v = w16_get(x, i, SL_LANES, 0.0f);
        v16_store(sum + i, add ? v16_add(v16_load(sum + i), v) : v);
    }
    if (i == end) return;
    sl_v16 v = w16_get(x, i, end - i, 0.0f);
    v16_store_part(sum + i, add ? v16_add(v16_load_part(sum + i, end - i, 0.0f), v) : v, end - i);
}

static void add_task(void *context, int64_t task, void *scratch)
{
    (void)scratch;
    accumulate_task(context, task, true);
}

static void copy_task(void *context, int64_t task, void *scratch)
{
    (void)scratch;
    accumulate_task(context, task, false);
}

/* contribution[n] of any float form -> accumulator f32[n]: copied for the step's first micro-batch, added
 * afterwards. */
void KI(accumulate)(const sl_kernel_args *a)
{
    bool first = a->context->micro == 0;
    if (first && a->in[0].data == a->out[0].data) return;
    sl_pool_run(a->pool, first ? copy_task : add_task, (void *)a, sl_ceil_div(a->out[0].elements, TASK_ELEMENTS));
}

/* The leaf of elements [first, first + n), n <= 1,024. Elements past n are absent: they add zero. */
ALWAYS_INLINE double leaf_sum(sl_read read, const void *x, int64_t first, int64_t n)
{
    sl_d16 sum = d16_zero();
    int64_t i = 0;
    for (; i + SL_LANES <= n; i += SL_LANES) sum = d16_add_square(sum, gradient_get(read, x, first + i, SL_LANES));
    if (i < n) sum = d16_add_square(sum, gradient_get(read, x, first + i, n - i));
    return d16_sum(sum);
}

/* leaf_sum compiled for each way to read. */
static double leaf_sum_of(sl_read read, const void *x, int64_t first, int64_t n)
{
    switch (read) {
    case SL_READ_F32_TO_BF16:
        return leaf_sum(SL_READ_F32_TO_BF16, x, first, n);
    case SL_READ_F32_TO_F16:
        return leaf_sum(SL_READ_F32_TO_F16, x, first, n);
    case SL_READ_BF16:
        return leaf_sum(SL_READ_BF16, x, first, n);
    case SL_READ_F16:
        return leaf_sum(SL_READ_F16, x, first, n);
    default:
        return leaf_sum(SL_READ_F32, x, first, n);
    }
}

static void leaves_task(void *context, int64_t task, void *scratch)
{
    const sl_kernel_args *a = context;
    const sl_read read = sl_read_of(a->in[0].form, a->wire);
    double *leaf = (double *)a->out[0].data + task * (TASK_ELEMENTS / SL_CUT_ELEMENTS);
    int64_t i = task * TASK_ELEMENTS, end = i + task_elements(a->in[0].elements, task);
    (void)scratch;
    for (; i < end; i += SL_CUT_ELEMENTS)
        *leaf++ = leaf_sum_of(read, a->in[0].data, i, end - i < SL_CUT_ELEMENTS ? end - i : SL_CUT_ELEMENTS);
}

/* gradient[n] of any float form -> leaves f64[ceil(n / 1024)]. */
void KI(norm_leaves)(const sl_kernel_args *a)
{
    sl_pool_run(a->pool, leaves_task, (void *)a, sl_ceil_div(a->in[0].elements, TASK_ELEMENTS));
}

/* One node. */
static void combine_task(void *context, int64_t task, void *scratch)
{
    const sl_kernel_args *a = context;
    (void)scratch;
    int64_t first = a->first / SL_CUT_ELEMENTS;
    uint64_t place = sl_norm_node_place(first, first + a->in[0].elements, task);
    const double *leaves = (const double *)a->in[0].data + (sl_norm_place_leaf(place) - first);
    sl_leaf_tree tree;
    memset(&tree, 0, sizeof tree);
    for (int64_t i = 0; i < (int64_t)1 << sl_norm_place_level(place); i++) sl_leaf_tree_add(&tree, i, leaves[i]);
    ((sl_norm_node *)a->out[0].data)[task] = (sl_norm_node){ sl_leaf_tree_sum(&tree), place };
}

/* leaves f64[m] in a row, the first of number a->first / 1024 -> their nodes. */
void KI(norm_combine)(const sl_kernel_args *a)
{
    sl_pool_run(a->pool, combine_task, (void *)a, a->out[0].elements);
}

/* Nodes of all leaves, in order -> sums f64 of chunks. */
void KI(norm_join)(const sl_kernel_args *a)
{
    const sl_norm_node *node = a->in[0].data, *end = node + a->in[0].elements;
    double *sums = a->out[0].data;
    for (int64_t chunk = 0; chunk < a->out[0].elements; chunk++) {
        sl_leaf_tree tree;
        memset(&tree, 0, sizeof tree);
        for (; node < end && sl_norm_place_leaf(node->place) / SL_NORM_CHUNK == chunk; node++) {
            int level = sl_norm_place_level(node->place);
            sl_leaf_tree_add_node(&tree, level, sl_norm_place_leaf(node->place) % SL_NORM_CHUNK >> level, node->sum);
        }
        sums[chunk] = sl_leaf_tree_sum(&tree);
    }
}

/* Leaves of all runs, each of which is an aligned subtree but for the last: a task adds up one. */
#define MOST_RUNS 256
typedef struct leaf_runs {
    const double *leaves;
    int64_t count, run; /* leaves, and those of a run: a power of two */
    double sums[MOST_RUNS];
} leaf_runs;

static double sum_of_leaves(const double *leaves, int64_t count)
{
    sl_leaf_tree tree;
    memset(&tree, 0, sizeof tree);
    for (int64_t i = 0; i < count; i++) sl_leaf_tree_add(&tree, i, leaves[i]);
    return sl_leaf_tree_sum(&tree);
}

static void run_task(void *context, int64_t task, void *scratch)
{
    leaf_runs *r = context;
    const int64_t first = task * r->run, left = r->count - first;
    (void)scratch;
    r->sums[task] = sum_of_leaves(r->leaves + first, left < r->run ? left : r->run);
}

/* All threads: a large model has millions of leaves, and nothing goes on before their sum is known. */
static double sum_of_runs(sl_pool *pool, const double *leaves, int64_t count)
{
    leaf_runs r = { .leaves = leaves, .count = count, .run = SL_NORM_CHUNK };
    if (count <= r.run) return sum_of_leaves(leaves, count);
    while (sl_ceil_div(count, r.run) > MOST_RUNS) r.run *= 2;
    sl_pool_run(pool, run_task, &r, sl_ceil_div(count, r.run));
    return sum_of_leaves(r.sums, sl_ceil_div(count, r.run));
}

/* leaves f64[m] in global order, or sums of chunks -> sl_norm_result. The factor is torch's: 1/loss_scale * min(1, clip / (norm + 1e-6)),
 * in double, rounded to float once. (DeepSpeed's ZeRO divides by max(1, (norm + 1e-6) / clip) instead: the same number
 * but for the last bit.) */
void KI(norm_finish)(const sl_kernel_args *a)
{
    sl_norm_result *result = a->out[0].data;
    const sl_run_context *run = a->context;
    double total = sum_of_runs(a->pool, a->in[0].data, a->in[0].elements);
    double norm = sqrt(total) / run->loss_scale;
    double clip = run->clip > 0.0 ? run->clip / (norm + CLIP_EPSILON) : 1.0;
    result->norm = norm;
    result->finite = isfinite(total) && isfinite(run->loss_scale) ? 1 : 0;
    result->factor = result->finite ? (float)((clip < 1.0 ? clip : 1.0) / run->loss_scale) : 0.0f;
}
