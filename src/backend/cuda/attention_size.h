/* attention_size.h: the workspace of attention. Plain C: plans are made without CUDA. */
#ifndef SL_BACKEND_CUDA_ATTENTION_SIZE_H
#define SL_BACKEND_CUDA_ATTENTION_SIZE_H

#include "backend/cuda/cuda_kernels.h"

/* ATTENTION_GRAD keeps two numbers per query and head, lse in units of log 2 and dout . out, as [B, H, T] with T up to
 * a multiple of this: tiles of queries never end inside a row, and rows begin at 16 bytes. */
#define SL_ATTENTION_ROUND 128

static inline int64_t sl_attention_round(int64_t queries)
{
    return (queries + SL_ATTENTION_ROUND - 1) / SL_ATTENTION_ROUND * SL_ATTENTION_ROUND;
}

static inline uint64_t sl_cuda_attention_workspace(sl_op op, const sl_cuda_args *a)
{
    const int64_t *dim = a->in[0].shape->dim;
    if (op != SL_OP_ATTENTION_GRAD) return 0;
    return 2 * sizeof(float) * (uint64_t)(dim[0] * a->attrs->attention.heads * sl_attention_round(dim[1]));
}

#endif
