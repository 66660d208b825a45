/* update_tree.cuh: sums of leaves in the tree of backend/cpu/kernels/leaf_norm.h: node (k, i) is the sum of leaves
 * [i 2^k, (i+1) 2^k), left child plus right child, an absent child adding nothing.
 *
 * An absent leaf is -0.0, which changes no number that it is added to, so every tree is complete. Additions commute, so
 * it does not matter which side a thread has. */
#ifndef SL_BACKEND_CUDA_UPDATE_TREE_CUH
#define SL_BACKEND_CUDA_UPDATE_TREE_CUH

#include "backend/cuda/elem.cuh"
#include "backend/cuda/update_size.h"

inline namespace SL_KERNELS
{
constexpr int tree_threads = 256;
constexpr int tree_strips = 4;                                               /* a block's leaves are cut in these, */
constexpr int tree_row = SL_CUDA_TREE_LEAVES / (tree_threads * tree_strips); /* of which a thread takes so many */
constexpr int tree_warps = tree_threads / 32;
static_assert(tree_row == 4 && tree_warps * tree_strips == 32, "the last sum is one warp's");

/* Leaves first .. end - 1 exist; leaf i is at x[(i - first) * stride]. */
struct leaf_run {
    const double *x;
    int64_t first, end;
    int stride;
};

__device__ __forceinline__ double leaf_at(const leaf_run &r, int64_t i)
{
    return i >= r.first && i < r.end ? r.x[(i - r.first) * r.stride] : -0.0;
}

__device__ __forceinline__ double warp_tree(double x)
{
    for (int other = 1; other < 32; other *= 2) x = __dadd_rn(x, __shfl_xor_sync(0xffffffffu, x, other));
    return x;
}

/* The sum of the SL_CUDA_TREE_LEAVES leaves of node `node`; warp 0 gets it. All of a block of tree_threads calls, and
 * may call again at once. */
__device__ __forceinline__ double tree_sum(const leaf_run &r, int64_t node)
{
    __shared__ double part[32];
    const int64_t base = node * SL_CUDA_TREE_LEAVES + (int)threadIdx.x * tree_row;
    double v[tree_strips];
#pragma unroll
    for (int k = 0; k < tree_strips; k++) {
        const int64_t i = base + k * tree_threads * tree_row;
        v[k] = __dadd_rn(__dadd_rn(leaf_at(r, i), leaf_at(r, i + 1)), __dadd_rn(leaf_at(r, i + 2), leaf_at(r, i + 3)));
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < tree_strips; k++) {
        v[k] = warp_tree(v[k]);
        if (threadIdx.x % 32 == 0) part[k * tree_warps + threadIdx.x / 32] = v[k];
    }
    __syncthreads();
    return threadIdx.x < 32 ? warp_tree(part[threadIdx.x]) : 0.0;
}
} // namespace SL_KERNELS

#endif
