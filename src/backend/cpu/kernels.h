/* kernels.h: what a CPU kernel gets. The kernels are compiled once per instruction path (kernels/isa.h); each path
 * gives one table. */
#ifndef SL_BACKEND_CPU_KERNELS_H
#define SL_BACKEND_CPU_KERNELS_H

#include "core/thread.h"
#include "ir/graph.h"

typedef struct sl_tensor {
    void *data; /* NULL: absent optional operand */
    const sl_shape *shape;
    int64_t elements; /* of the value; update ops: bytes / 4 (norm leaves: bytes / 8) */
} sl_tensor;

typedef struct sl_kernel_args {
    const sl_attrs *attrs;
    int input_count, output_count;
    sl_tensor in[SL_MAX_INPUTS];
    sl_tensor out[SL_MAX_OUTPUTS];
    const sl_run_context *context;
    int64_t first; /* update: element of the layer's flat buffer that the operands begin with; 0 for other ops */
    sl_pool *pool; /* cut work by shape, never by thread count */
} sl_kernel_args;

typedef void (*sl_kernel)(const sl_kernel_args *a);

/* One row per op; NULL: not on this path. All paths give the same bits: the same 16-lane arithmetic, the same order. */
extern const sl_kernel sl_kernels_scalar[SL_OP_COUNT];
extern const sl_kernel sl_kernels_avx2[SL_OP_COUNT];
extern const sl_kernel sl_kernels_avx512[SL_OP_COUNT];

#endif
