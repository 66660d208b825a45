/* cuda_table.c: which function computes which op on a GPU, by the rows of op_kernels.h. */
#include "backend/cuda/cuda_kernels.h"

#define ENTRY_KERNEL(op, name) [SL_OP_##op] = sl_cuda_##name,
#define ENTRY_NO_KERNEL(op, name)

const sl_cuda_kernel sl_cuda_kernels[SL_OP_COUNT] = {
#define SL_OP_KERNEL(op, name, cpu, cpu_workspace, cuda, workspace) ENTRY_##cuda(op, name)
#include "backend/op_kernels.h"
};
