/* cuda_workspace.c: how much memory of its own a kernel needs. Each family says so in its <family>_size.h, beside how it
 * cuts its work. Plain C without CUDA: plans for a GPU are made where there is none. */
#include "backend/cuda/attention_size.h"
#include "backend/cuda/embedding_size.h"
#include "backend/cuda/linear_size.h"
#include "backend/cuda/loss_size.h"
#include "backend/cuda/norm_size.h"
#include "backend/cuda/reduce_size.h"
#include "backend/cuda/update_size.h"

typedef uint64_t (*family)(sl_op op, const sl_cuda_args *a);

static const family families[SL_OP_COUNT] = {
    [SL_OP_LINEAR] = sl_cuda_linear_workspace,
    [SL_OP_LINEAR_GELU] = sl_cuda_linear_workspace,
    [SL_OP_LINEAR_ADD] = sl_cuda_linear_workspace,
    [SL_OP_MATMUL] = sl_cuda_linear_workspace,
    [SL_OP_LINEAR_GRAD_INPUT] = sl_cuda_linear_workspace,
    [SL_OP_LINEAR_GRAD_GELU] = sl_cuda_linear_workspace,
    [SL_OP_LINEAR_GRAD_WEIGHT] = sl_cuda_linear_workspace,
    [SL_OP_LINEAR_CROSS_ENTROPY] = sl_cuda_linear_workspace,
    [SL_OP_EMBEDDING_GRAD] = sl_cuda_embedding_workspace,
    [SL_OP_LAYER_NORM] = sl_cuda_norm_workspace,
    [SL_OP_LAYER_NORM_GRAD] = sl_cuda_norm_workspace,
    [SL_OP_RMS_NORM] = sl_cuda_norm_workspace,
    [SL_OP_RMS_NORM_GRAD] = sl_cuda_norm_workspace,
    [SL_OP_ATTENTION] = sl_cuda_attention_workspace,
    [SL_OP_ATTENTION_GRAD] = sl_cuda_attention_workspace,
    [SL_OP_CROSS_ENTROPY] = sl_cuda_loss_workspace,
    [SL_OP_CROSS_ENTROPY_GRAD] = sl_cuda_loss_workspace,
    [SL_OP_LINEAR_CROSS_ENTROPY_GRAD] = sl_cuda_loss_workspace,
    [SL_OP_REDUCE_TO] = sl_cuda_reduce_workspace,
    [SL_OP_MULTIPLY_REDUCE] = sl_cuda_reduce_workspace,
    [SL_OP_SUM] = sl_cuda_reduce_workspace,
    [SL_OP_MEAN] = sl_cuda_reduce_workspace,
    [SL_OP_MSE] = sl_cuda_reduce_workspace,
    [SL_OP_ACCUMULATE] = sl_cuda_update_workspace,
    [SL_OP_NORM_LEAVES] = sl_cuda_update_workspace,
    [SL_OP_NORM_FINISH] = sl_cuda_update_workspace,
    [SL_OP_UPDATE] = sl_cuda_update_workspace,
};

uint64_t sl_cuda_workspace(sl_op op, const sl_cuda_args *a)
{
    return (unsigned)op < SL_OP_COUNT && families[op] != NULL ? families[op](op, a) : 0;
}
