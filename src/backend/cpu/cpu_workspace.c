/* cpu_workspace.c: how much workspace a kernel of the CPU backend needs, by the rows of op_kernels.h. */
#include "backend/cpu/cpu_workspace.h"

#include "backend/cpu/kernels/channel_parts.h"
#include "backend/cpu/kernels/conv_parts.h"
#include "backend/cpu/kernels/head_chunk.h"
#include "backend/cpu/kernels/qk_norm_parts.h"
#include "backend/cpu/kernels/sequence_size.h"
#include "backend/operand.h"
#include "ir/form.h"

/* Every op has a row in op_kernels.h: their numbers agree, and no op has two, which would override each other below. */
enum {
#define SL_OP_KERNEL(op, ...) SL_ROW_OF_##op,
#include "backend/op_kernels.h"
    SL_ROW_COUNT
};
_Static_assert((int)SL_ROW_COUNT == (int)SL_OP_COUNT, "every op has one row in backend/op_kernels.h");

/* The logits of one chunk of rows, as wide as the inputs. */
static uint64_t sl_cpu_head_workspace(const sl_call *call)
{
    int64_t rows = sl_shape_elements(call->input_shapes[2]), classes = call->input_shapes[1]->dim[0];
    return (uint64_t)(sl_head_chunk_rows(rows, classes) * classes) * sl_form_element_bytes(call->input_forms[0]);
}

/* The sums of parts for both weights, in f32. */
static uint64_t sl_cpu_qk_norm_workspace(const sl_call *call)
{
    const sl_shape *x = call->input_shapes[0];
    int64_t rows = x->dim[0] * x->dim[1];
    if (!sl_has_output(call, 1) && !sl_has_output(call, 2)) return 0;
    return (uint64_t)(sl_ceil_div(rows, sl_qk_norm_part_rows(rows)) * 2 * call->input_shapes[1]->dim[0]) *
           sizeof(float);
}

/* CONV2D, CONV2D_GRAD_INPUT: the weights in another order. */
static uint64_t sl_cpu_conv_workspace(const sl_call *call)
{
    const sl_shape *w = call->input_shapes[1];
    if (w->dim[2] * w->dim[3] == 1) return 0;
    return (uint64_t)sl_shape_elements(w) * sl_form_element_bytes(call->input_forms[1]);
}

/* The gradient of each part of the pixels, in f32 and another order. */
static uint64_t sl_cpu_conv_weight_workspace(const sl_call *call)
{
    const sl_shape *w = call->output_shapes[0], *dy = call->input_shapes[0];
    if (w->dim[2] * w->dim[3] == 1) return 0;
    int64_t pixels = sl_shape_elements(dy) / dy->dim[3], parts = sl_conv_parts(pixels, w, call->attrs->conv.groups);
    return (uint64_t)(parts * sl_shape_elements(w)) * sizeof(float);
}

/* The weight, packed. */
static uint64_t sl_cpu_gru_workspace(const sl_call *call)
{
    int64_t width = call->input_shapes[1]->dim[1];
    return (uint64_t)sl_gru_packed_floats(3 * width, width) * sizeof(float);
}

/* The weight, packed; where a gradient of it or of the bias is wanted, those of all gates in f32, and the states before. */
static uint64_t sl_cpu_gru_grad_workspace(const sl_call *call)
{
    int64_t width = call->input_shapes[0]->dim[1], states = sl_shape_elements(call->input_shapes[2]);
    uint64_t packed = (uint64_t)sl_gru_packed_floats(width, 3 * width) * sizeof(float);
    if (!sl_has_output(call, 1) && !sl_has_output(call, 2)) return packed;
    return packed + (uint64_t)states * (3 * sizeof(float) + sl_form_element_bytes(call->input_forms[2]));
}

static uint64_t sl_cpu_ctc_workspace(const sl_call *call)
{
    const sl_shape *x = call->input_shapes[0];
    return sl_ctc_bytes(x->dim[0], x->dim[1], call->input_shapes[1]->dim[1]);
}

static uint64_t sl_cpu_channel_norm_workspace(const sl_call *call)
{
    const bool groups = call->op == SL_OP_GROUP_NORM || call->op == SL_OP_GROUP_NORM_GRAD;
    const bool nodes = call->op == SL_OP_BATCH_MOMENTS || call->op == SL_OP_BATCH_NORM_SUMS;
    const sl_channel_cut cut = sl_channel_cut_of(call->input_shapes[0], groups || nodes);
    return sl_channel_bytes(&cut);
}

typedef uint64_t (*workspace_fn)(const sl_call *call);

#define sl_cpu_none_workspace    NULL
#define BYTES_TYPED(workspace)   sl_cpu_##workspace##_workspace
#define BYTES_UNTYPED(workspace) sl_cpu_##workspace##_workspace
#define BYTES_NO_KERNEL(why)     NULL
static const workspace_fn workspaces[SL_OP_COUNT] = {
#define SL_OP_KERNEL(op, name, cpu, workspace, ...) [SL_OP_##op] = BYTES_##cpu(workspace),
#include "backend/op_kernels.h"
};

uint64_t sl_cpu_workspace(const sl_call *call)
{
    return workspaces[call->op] != NULL ? workspaces[call->op](call) : 0;
}
