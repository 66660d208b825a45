/* cuda_workspace.c: how much memory of its own a kernel needs. op_kernels.h says which family's function tells;
 * it is in <family>_size.h, beside how the family cuts its work. Plain C without CUDA: plans for a GPU are made where there is none. */
#include "backend/cuda/attention_size.h"
#include "backend/cuda/channel_size.h"
#include "backend/cuda/conv_size.h"
#include "backend/cuda/ctc_size.h"
#include "backend/cuda/embedding_size.h"
#include "backend/cuda/gru_size.h"
#include "backend/cuda/linear_size.h"
#include "backend/cuda/loss_size.h"
#include "backend/cuda/norm_size.h"
#include "backend/cuda/pool_size.h"
#include "backend/cuda/qk_norm_size.h"
#include "backend/cuda/reduce_size.h"
#include "backend/cuda/update_size.h"

typedef uint64_t (*workspace_fn)(sl_op op, const sl_cuda_args *a);

#define sl_cuda_none_workspace  NULL
#define BYTES_KERNEL(workspace) sl_cuda_##workspace##_workspace
#define BYTES_NO_KERNEL(why)    NULL
static const workspace_fn workspaces[SL_OP_COUNT] = {
#define SL_OP_KERNEL(op, name, cpu, cpu_workspace, cuda, workspace) [SL_OP_##op] = BYTES_##cuda(workspace),
#include "backend/op_kernels.h"
};

uint64_t sl_cuda_workspace(sl_op op, const sl_cuda_args *a)
{
    return (unsigned)op < SL_OP_COUNT && workspaces[op] != NULL ? workspaces[op](op, a) : 0;
}
