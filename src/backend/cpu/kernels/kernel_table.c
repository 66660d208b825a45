/* kernel_table.c: this instruction path's kernels, one row per element type, one column per op (op_kernels.h). */
#include "backend/cpu/kernels/isa.h"

#define ENTRY_TYPED(op, name, type)   [SL_OP_##op] = SL_KT(name, type),
#define ENTRY_UNTYPED(op, name, type) [SL_OP_##op] = KI(name),
#define ENTRY_NO_KERNEL(op, name, type)

const sl_kernel SL_PASTE(sl_kernels, SL_ISA_SUFFIX)[SL_KERNEL_TYPE_COUNT][SL_OP_COUNT] = {
    [SL_KERNEL_F32] = {
#define SL_OP_KERNEL(op, name, cpu, ...) ENTRY_##cpu(op, name, f32)
#include "backend/op_kernels.h"
    },
    [SL_KERNEL_BF16] = {
#define SL_OP_KERNEL(op, name, cpu, ...) ENTRY_##cpu(op, name, bf16)
#include "backend/op_kernels.h"
    },
    [SL_KERNEL_F16] = {
#define SL_OP_KERNEL(op, name, cpu, ...) ENTRY_##cpu(op, name, f16)
#include "backend/op_kernels.h"
    },
};
