/* pool_size.h: the workspace of pool.cu: which place of its window each element of y was taken from, for the gradient of
 * the largest. Plain C without CUDA: plans for a GPU are made where there is none. */
#ifndef SL_BACKEND_CUDA_POOL_SIZE_H
#define SL_BACKEND_CUDA_POOL_SIZE_H

#include "backend/cuda/cuda_kernels.h"

/* Bytes that name a place of the window. */
static inline int64_t sl_cuda_place_bytes(const sl_attrs *attrs)
{
    return (int64_t)attrs->pool.kernel_h * attrs->pool.kernel_w <= 256 ? 1 : 8;
}

static inline uint64_t sl_cuda_pool_workspace(sl_op op, const sl_cuda_args *a)
{
    return op == SL_OP_MAX_POOL2D_GRAD ? (uint64_t)(a->in[1].elements * sl_cuda_place_bytes(a->attrs)) : 0;
}

#endif
