/* table.c: this instruction path's kernels, one row per op. */
#include "backend/cpu/kernels/isa.h"

#define SL_KERNEL_ROW(op, name) [SL_OP_##op] = K(name),
const sl_kernel SL_PASTE(sl_kernels, SL_ISA_SUFFIX)[SL_OP_COUNT] = { SL_KERNEL_LIST(SL_KERNEL_ROW) };
