/* loss_size.h: the workspace of the losses. Plain C: plans are made without CUDA. */
#ifndef SL_BACKEND_CUDA_LOSS_SIZE_H
#define SL_BACKEND_CUDA_LOSS_SIZE_H

#include "backend/cuda/cuda_kernels.h"

/* CROSS_ENTROPY: the loss of each row in f32, before they are summed in order. */
static inline uint64_t sl_cuda_loss_workspace(sl_op op, const sl_cuda_args *a)
{
    return op == SL_OP_CROSS_ENTROPY ? (uint64_t)a->in[1].elements * sizeof(float) : 0;
}

#endif
