/* cpu_workspace.c: which kernels of the CPU backend need workspace, and how much. */
#include "backend/cpu/cpu_workspace.h"

#include "backend/cpu/kernels/head_chunk.h"
#include "ir/form.h"

/* The logits of one chunk of rows, as wide as the inputs. */
static uint64_t head_bytes(const sl_call *call)
{
    int64_t rows = sl_shape_elements(call->input_shapes[2]), classes = call->input_shapes[1]->dim[0];
    return (uint64_t)(sl_head_chunk_rows(rows, classes) * classes) * sl_form_element_bytes(call->input_forms[0]);
}

uint64_t sl_cpu_workspace(const sl_call *call)
{
    return call->op == SL_OP_LINEAR_CROSS_ENTROPY ? head_bytes(call) : 0;
}
