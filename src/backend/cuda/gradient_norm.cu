/* gradient_norm.cu: adding up micro-batches, and the global norm of what they add up to, with the bits of
 * backend/cpu/kernels/gradient_norm.c.
 *
 * Accumulation is one addition in f32 per element and micro-batch. The norm is that of the gradient as the update reads
 * it, in leaves of 1,024 elements: sixteen lanes in fp64, lane i taking elements i, i + 16, ..., which fold in halves;
 * leaves add up in the tree of their numbers (update_tree.cuh). Squares of finite floats cannot overflow fp64, so the
 * sum is finite exactly when every element is: the norm is also the finite check. */
#include "backend/cuda/update.cuh"
#include "backend/cuda/update_tree.cuh"
#include "core/norm_nodes.h"

/* torch.nn.utils.clip_grad_norm_ and DeepSpeed add this to the norm before dividing. */
#define CLIP_EPSILON 1e-6

inline namespace SL_KERNELS
{
/* ---- Accumulation ---- */

/* Four elements from `at` on. */
template <bool add>
__device__ __forceinline__ void accumulate_quad(int read, const void *x, float *sum, int64_t at, int n, bool whole)
{
    float g[quad], s[quad];
    uint4 raw = load_gradient(read, x, at, n, whole), old = make_uint4(0, 0, 0, 0);
    if (add) old = load_words(sum + at, n, whole);
    gradient_floats(read, raw, g);
    floats_of_words(old, s);
    for (int i = 0; i < quad && add; i++) g[i] = __fadd_rn(s[i], g[i]);
    store_words(sum + at, words_of_floats(g), n, whole);
}

template <bool add>
__global__ void __launch_bounds__(256)
    accumulate_kernel(int read, const void *x, float *sum, int64_t count, bool aligned)
{
    const int64_t stride = (int64_t)gridDim.x * blockDim.x * quad;
    for (int64_t at = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * quad; at < count; at += stride) {
        const int n = count - at < quad ? (int)(count - at) : quad;
        accumulate_quad<add>(read, x, sum, at, n, aligned && n == quad);
    }
}

/* The gradient as it is: contributions are rounded to the wire type already. */
int plain_read(sl_form form)
{
    return form == SL_FORM_BF16 ? READ_BF16 : form == SL_FORM_F16 ? READ_F16 : READ_F32;
}

/* Four elements of the form, by one access. */
bool fits_quads(const void *p, sl_form form)
{
    return aligned_for(p, form == SL_FORM_F32 ? 16 : 8);
}

/* ---- Leaves ---- */

constexpr int leaf_threads = 4; /* of one leaf: a thread takes four lanes in a row */
constexpr int leaf_row = 16;    /* elements of one round */
constexpr int leaf_ahead = 8;   /* rounds whose loads are on their way at once */
constexpr int leaves_block = 256;

/* Adds the squares of `ahead` rounds from element `at` on, `left` of whose elements exist. */
template <int read_, int ahead>
__device__ __forceinline__ void add_rounds(const void *g, int64_t at, int64_t left, bool aligned, double (&sum)[quad])
{
    uint4 raw[ahead];
    float x[quad];
#pragma unroll
    for (int k = 0; k < ahead; k++) {
        const int64_t rest = left - k * leaf_row;
        const int n = rest >= quad ? quad : rest > 0 ? (int)rest : 0;
        raw[k] = load_gradient(read_, g, at + k * leaf_row, n, aligned && n == quad);
    }
#pragma unroll
    for (int k = 0; k < ahead; k++) {
        gradient_floats(read_, raw[k], x);
        for (int i = 0; i < quad; i++) sum[i] = __fma_rn((double)x[i], (double)x[i], sum[i]);
    }
}

/* Lanes i and i + 8, then i + 4, i + 2, i + 1; the first thread of a leaf gets the sum. */
__device__ __forceinline__ double fold_lanes(double (&sum)[quad])
{
    for (int other = leaf_threads / 2; other > 0; other /= 2)
        for (int i = 0; i < quad; i++) sum[i] = __dadd_rn(sum[i], __shfl_xor_sync(0xffffffffu, sum[i], other));
    return __dadd_rn(__dadd_rn(sum[0], sum[2]), __dadd_rn(sum[1], sum[3]));
}

/* Elements that do not exist are 0 and add nothing. Threads without a leaf stay for the exchange. */
template <int read>
__global__ void __launch_bounds__(leaves_block)
    leaves_kernel(const void *g, double *leaves, int64_t count, bool aligned)
{
    const int64_t thread = (int64_t)blockIdx.x * leaves_block + threadIdx.x, leaf = thread / leaf_threads;
    const int64_t at = leaf * SL_CUT_ELEMENTS + thread % leaf_threads * quad;
    double sum[quad] = { 0.0, 0.0, 0.0, 0.0 };
    for (int i = 0; i < SL_CUT_ELEMENTS && at + i < count; i += leaf_ahead * leaf_row)
        add_rounds<read, leaf_ahead>(g, at + i, count - at - i, aligned, sum);
    const double total = fold_lanes(sum);
    if (thread % leaf_threads == 0 && leaf * SL_CUT_ELEMENTS < count) leaves[leaf] = total;
}

/* ---- The tree ---- */

__global__ void __launch_bounds__(tree_threads) tree_kernel(const double *x, int64_t count, double *sums)
{
    const leaf_run leaves = { x, 0, count, 1 };
    const double sum = tree_sum(leaves, blockIdx.x);
    if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

/* ---- What ranks exchange ---- */

static_assert(SL_NORM_CHUNK == SL_CUDA_TREE_LEAVES, "a block sums a chunk");

/* One node a block; leaves of its chunk that are not its own are absent. */
__global__ void __launch_bounds__(tree_threads)
    combine_kernel(const double *x, int64_t first, int64_t end, sl_norm_node *nodes)
{
    const uint64_t place = sl_norm_node_place(first, end, blockIdx.x);
    const int64_t leaf = sl_norm_place_leaf(place);
    const leaf_run own = { x + (leaf - first), leaf, leaf + ((int64_t)1 << sl_norm_place_level(place)), 1 };
    const double sum = tree_sum(own, leaf / SL_NORM_CHUNK);
    if (threadIdx.x != 0) return;
    nodes[blockIdx.x].sum = sum;
    nodes[blockIdx.x].place = place;
}

/* The first of `count` nodes, in order, that begins at `leaf` or later. */
__device__ __forceinline__ int64_t node_from(const sl_norm_node *nodes, int64_t count, int64_t leaf)
{
    int64_t low = 0, high = count;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (sl_norm_place_leaf(nodes[middle].place) < leaf)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* One chunk a block. A node stands where its first leaf would, its other leaves being absent: the tree above it is the
 * same. */
__global__ void __launch_bounds__(tree_threads) join_kernel(const sl_norm_node *nodes, int64_t count, double *sums)
{
    __shared__ double leaves[SL_NORM_CHUNK];
    const int64_t first = (int64_t)blockIdx.x * SL_NORM_CHUNK, end = first + SL_NORM_CHUNK;
    const int64_t from = node_from(nodes, count, first), to = node_from(nodes, count, end);
    for (int i = (int)threadIdx.x; i < SL_NORM_CHUNK; i += tree_threads) leaves[i] = -0.0;
    __syncthreads();
    for (int64_t i = from + threadIdx.x; i < to; i += tree_threads)
        leaves[sl_norm_place_leaf(nodes[i].place) - first] = nodes[i].sum;
    __syncthreads();
    const leaf_run chunk = { leaves, first, end, 1 };
    const double sum = tree_sum(chunk, blockIdx.x);
    if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

/* The factor is torch's: 1/loss_scale * min(1, clip / (norm + 1e-6)), in double, rounded to float once. */
__global__ void __launch_bounds__(tree_threads)
    finish_kernel(const double *x, int64_t count, double max_norm, double loss_scale, sl_norm_result *result)
{
    const leaf_run leaves = { x, 0, count, 1 };
    const double total = __dadd_rn(tree_sum(leaves, 0), 0.0);
    if (threadIdx.x != 0) return;
    const double norm = __ddiv_rn(__dsqrt_rn(total), loss_scale);
    const double clip = max_norm > 0.0 ? __ddiv_rn(max_norm, __dadd_rn(norm, CLIP_EPSILON)) : 1.0;
    const bool finite = total - total == 0.0 && loss_scale - loss_scale == 0.0;
    result->norm = norm;
    result->finite = finite ? 1 : 0;
    result->factor = finite ? __double2float_rn(__ddiv_rn(clip < 1.0 ? clip : 1.0, loss_scale)) : 0.0f;
}
} // namespace SL_KERNELS

/* contribution[n] of any float form -> accumulator f32[n]: copied for the step's first micro-batch, added
 * afterwards. */
extern "C" sluice_status sl_cuda_accumulate(const sl_cuda_args *a)
{
    const sl_cuda_tensor *x = &a->in[0];
    float *sum = (float *)a->out[0].data;
    const int64_t count = a->out[0].elements;
    const bool first = a->context->micro == 0, aligned = fits_quads(x->data, x->form) && aligned_for(sum, 16);
    if (count == 0 || (first && x->data == a->out[0].data)) return SLUICE_OK;
    const unsigned blocks = sl_grid(a, count, 256 * quad, 32);
    if (first)
        SL_LAUNCH((accumulate_kernel<false>), blocks, 256, 0, a->stream, plain_read(x->form), x->data, sum, count,
                  aligned);
    else
        SL_LAUNCH((accumulate_kernel<true>), blocks, 256, 0, a->stream, plain_read(x->form), x->data, sum, count,
                  aligned);
    return sl_launched(a);
}

inline namespace SL_KERNELS
{
template <int read> void launch_leaves(const sl_cuda_args *a)
{
    const int64_t count = a->in[0].elements, threads = sl_ceil_div(count, SL_CUT_ELEMENTS) * leaf_threads;
    SL_LAUNCH((leaves_kernel<read>), (unsigned)sl_ceil_div(threads, leaves_block), leaves_block, 0, a->stream,
              a->in[0].data, (double *)a->out[0].data, count, fits_quads(a->in[0].data, a->in[0].form));
}
} // namespace SL_KERNELS

/* gradient[n] of any float form -> leaves f64[ceil(n / 1024)]. */
extern "C" sluice_status sl_cuda_norm_leaves(const sl_cuda_args *a)
{
    static void (*const launch[])(const sl_cuda_args *) = { launch_leaves<READ_F32>, launch_leaves<READ_F32_TO_BF16>,
                                                            launch_leaves<READ_F32_TO_F16>, launch_leaves<READ_BF16>,
                                                            launch_leaves<READ_F16> };
    if (a->in[0].elements == 0) return SLUICE_OK;
    launch[read_of(a->in[0].form, a->wire)](a);
    return sl_launched(a);
}

/* leaves f64[m] in a row, the first of number a->first / 1024 -> their nodes. */
extern "C" sluice_status sl_cuda_norm_combine(const sl_cuda_args *a)
{
    const int64_t first = a->first / SL_CUT_ELEMENTS;
    if (a->out[0].elements == 0) return SLUICE_OK;
    SL_LAUNCH(combine_kernel, (unsigned)a->out[0].elements, tree_threads, 0, a->stream, (const double *)a->in[0].data,
              first, first + a->in[0].elements, (sl_norm_node *)a->out[0].data);
    return sl_launched(a);
}

/* Nodes of all leaves, in order -> sums f64 of chunks. */
extern "C" sluice_status sl_cuda_norm_join(const sl_cuda_args *a)
{
    if (a->out[0].elements == 0) return SLUICE_OK;
    SL_LAUNCH(join_kernel, (unsigned)a->out[0].elements, tree_threads, 0, a->stream,
              (const sl_norm_node *)a->in[0].data, a->in[0].elements, (double *)a->out[0].data);
    return sl_launched(a);
}

/* leaves f64[m] in global order, or sums of chunks -> sl_norm_result. */
extern "C" sluice_status sl_cuda_norm_finish(const sl_cuda_args *a)
{
    const double *x = (const double *)a->in[0].data;
    int64_t count = a->in[0].elements;
    char *level = (char *)a->workspace;
    SL_TRY(sl_check_workspace(SL_OP_NORM_FINISH, a));
    while (count > SL_CUDA_TREE_LEAVES) {
        const int64_t nodes = sl_ceil_div(count, SL_CUDA_TREE_LEAVES);
        SL_LAUNCH(tree_kernel, (unsigned)nodes, tree_threads, 0, a->stream, x, count, (double *)level);
        x = (const double *)level;
        level += sl_cuda_align((uint64_t)nodes * sizeof(double));
        count = nodes;
    }
    SL_LAUNCH(finish_kernel, 1, tree_threads, 0, a->stream, x, count, a->context->clip, a->context->loss_scale,
              (sl_norm_result *)a->out[0].data);
    return sl_launched(a);
}
