/* kernels.h: what a CPU kernel gets. The kernels are compiled once per instruction path and element type
 * (kernels/isa.h); each path gives one table. */
#ifndef SL_BACKEND_CPU_KERNELS_H
#define SL_BACKEND_CPU_KERNELS_H

#include "backend/tensor.h"
#include "core/thread.h"
#include "ir/graph.h"

typedef struct sl_kernel_args {
    const sl_attrs *attrs;
    int input_count, output_count;
    sl_tensor in[SL_MAX_INPUTS];
    sl_tensor out[SL_MAX_OUTPUTS];
    const sl_run_context *context;
    sluice_dtype wire; /* sl_call.wire */
    bool amx;          /* GEMMs of bf16 operands run on AMX tiles: other bits than the other paths' */
    int64_t first;     /* update: element of the layer's flat buffer that the operands begin with; 0 for other ops */
    sl_pool *pool;     /* cut work by shape, never by thread count */
    /* Of at least what sl_cpu_workspace says for this call; NULL where that is 0. 256-byte aligned. */
    void *workspace;
    uint64_t workspace_bytes;
} sl_kernel_args;

typedef void (*sl_kernel)(const sl_kernel_args *a);

/* What activations and weights are stored in. Arithmetic is f32; a result is rounded once, as it is stored. */
typedef enum { SL_KERNEL_F32, SL_KERNEL_BF16, SL_KERNEL_F16, SL_KERNEL_TYPE_COUNT } sl_kernel_type;

typedef const sl_kernel sl_kernel_table[SL_KERNEL_TYPE_COUNT][SL_OP_COUNT];

/* NULL: no such kernel. All paths give the same bits: the same 16-lane arithmetic, the same order. */
extern sl_kernel_table sl_kernels_scalar;
extern sl_kernel_table sl_kernels_avx2;
extern sl_kernel_table sl_kernels_avx512;

#endif
