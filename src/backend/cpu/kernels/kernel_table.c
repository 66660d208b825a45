/* kernel_table.c: this instruction path's kernels, one row per element type, one column per op. */
#include "backend/cpu/kernels/isa.h"

#define SL_TYPED(op, name, type) [SL_OP_##op] = SL_KT(name, type),
#define SL_UNTYPED(op, name)     [SL_OP_##op] = KI(name),
#define SL_ROW(type)                                                                                                   \
    {                                                                                                                  \
        SL_TYPED_KERNELS(SL_TYPED, type) SL_UNTYPED_KERNELS(SL_UNTYPED)                                                \
    }

const sl_kernel SL_PASTE(sl_kernels, SL_ISA_SUFFIX)[SL_KERNEL_TYPE_COUNT][SL_OP_COUNT] = {
    [SL_KERNEL_F32] = SL_ROW(f32),
    [SL_KERNEL_BF16] = SL_ROW(bf16),
    [SL_KERNEL_F16] = SL_ROW(f16),
};
