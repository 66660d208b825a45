/* sequences.c: the rows of ops that walk along the frames of sequences: GRU and CTC loss, forward and backward. Shapes,
 * gradients and costs, as infer.c, gradients.c and op_cost.c have them of the others. */
#include <inttypes.h>

#include "ir/autodiff.h"
#include "ir/op_rows.h"

/* ---- what both check ---- */

static sluice_status expect_frames(const sluice_graph *g, const sl_node *node, int i)
{
    char text[SL_OPERAND_BYTES];
    SL_TRY(sl_expect_float(g, node, i));
    if (sl_input_shape(g, node, i)->rank == 3) return SLUICE_OK;
    return sl_node_fail(node, "%s must have three dimensions: sequences, their frames, what a frame is",
                        sl_operand_text(g, node->inputs[i], text));
}

/* Fails unless input i has exactly this shape, which follows from input `by`. */
static sluice_status expect_shape(const sluice_graph *g, const sl_node *node, int i, const sl_shape *shape, int by)
{
    char text[SL_OPERAND_BYTES], other[SL_OPERAND_BYTES], want[160];
    if (sl_shape_equal(sl_input_shape(g, node, i), shape)) return SLUICE_OK;
    return sl_node_fail(node, "%s must be %s beside %s", sl_operand_text(g, node->inputs[i], text),
                        sl_shape_text(shape, want, sizeof want), sl_operand_text(g, node->inputs[by], other));
}

/* One i32 for each sequence of input `frames`. */
static sluice_status expect_lengths(const sluice_graph *g, const sl_node *node, int i, int frames)
{
    SL_TRY(sl_expect_dtype(g, node, i, SLUICE_I32));
    return expect_shape(g, node, i, &(sl_shape){ .rank = 1, .dim = { sl_input_shape(g, node, frames)->dim[0] } },
                        frames);
}

static sl_shape matrix(int64_t rows, int64_t columns)
{
    return (sl_shape){ .rank = 2, .dim = { rows, columns } };
}

static sl_shape frames_of(const sl_shape *like, int64_t width)
{
    return (sl_shape){ .rank = 3, .dim = { like->dim[0], like->dim[1], width } };
}

/* ---- GRU ---- */

/* w[3H,H]; gives H. */
static sluice_status check_recurrent_weight(const sluice_graph *g, const sl_node *node, int i, int64_t *width)
{
    const sl_shape *w = sl_input_shape(g, node, i);
    char text[SL_OPERAND_BYTES];
    sl_operand_text(g, node->inputs[i], text);
    if (w->rank != 2 || w->dim[0] != 3 * w->dim[1])
        return sl_node_fail(node, "weight %s must be [3 H, H]: three gates for each element of a state", text);
    if (w->dim[1] > SL_MAX_STATE_WIDTH)
        return sl_node_fail(node, "weight %s: kernels keep states up to %d wide", text, SL_MAX_STATE_WIDTH);
    *width = w->dim[1];
    return SLUICE_OK;
}

sluice_status sl_infer_gru(const sluice_graph *g, const sl_node *node, sl_shape *shapes, sluice_dtype *dtypes)
{
    const sl_shape *x = sl_input_shape(g, node, 0);
    int64_t h = 0;
    SL_TRY(expect_frames(g, node, 0));
    for (int i = 1; i < 3; i++) SL_TRY(sl_expect_one_type(g, node, 0, i));
    SL_TRY(check_recurrent_weight(g, node, 1, &h));
    const sl_shape gates_x = frames_of(x, 3 * h);
    SL_TRY(expect_shape(g, node, 0, &gates_x, 1));
    SL_TRY(expect_shape(g, node, 2, &(sl_shape){ .rank = 1, .dim = { 3 * h } }, 1));
    if (node->input_count > 3) SL_TRY(expect_lengths(g, node, 3, 0));
    shapes[0] = frames_of(x, h);
    dtypes[0] = g->values[node->inputs[0]].dtype;
    shapes[1] = frames_of(x, 4 * h);
    dtypes[1] = SLUICE_F32;
    return SLUICE_OK;
}

sluice_status sl_infer_gru_grad(const sluice_graph *g, const sl_node *node, sl_shape *shapes, sluice_dtype *dtypes)
{
    int64_t h = 0;
    SL_TRY(check_recurrent_weight(g, node, 0, &h));
    SL_TRY(expect_frames(g, node, 2));
    SL_TRY(sl_expect_dtype(g, node, 1, SLUICE_F32));
    for (int i = 2; i < 4; i++) SL_TRY(sl_expect_one_type(g, node, 0, i));
    const sl_shape state = frames_of(sl_input_shape(g, node, 2), h), gates = frames_of(&state, 4 * h);
    SL_TRY(expect_shape(g, node, 2, &state, 0));
    SL_TRY(expect_shape(g, node, 1, &gates, 2));
    SL_TRY(expect_shape(g, node, 3, &state, 2));
    if (node->input_count > 4) SL_TRY(expect_lengths(g, node, 4, 2));
    shapes[0] = frames_of(&state, 3 * h);
    shapes[1] = matrix(3 * h, h);
    shapes[2] = (sl_shape){ .rank = 1, .dim = { 3 * h } };
    for (int i = 0; i < 3; i++) dtypes[i] = g->values[node->inputs[0]].dtype;
    return SLUICE_OK;
}

sluice_status sl_gradient_gru(sl_autodiff *ad)
{
    const sl_node *n = &ad->node;
    sl_backward b = sl_backward_begin(ad, SL_OP_GRU_GRAD);
    sl_backward_read(&b, n->inputs[1]);
    sl_backward_read(&b, n->outputs[1]);
    sl_backward_read(&b, n->outputs[0]);
    sl_backward_read(&b, ad->dy);
    if (n->input_count > 3) sl_backward_read(&b, n->inputs[3]);
    for (int i = 0; i < 3; i++) SL_TRY(sl_backward_write(ad, &b, n->inputs[i]));
    return sl_backward_end(ad, &b);
}

/* Products of all frames with w, `count` of them, and some thirty operations for each element of a state. */
static sl_cost gru_cost(const sluice_graph *g, const sl_node *node, const sl_shape *state, double count)
{
    double elements = (double)sl_shape_elements(state), width = (double)state->dim[2];
    return (sl_cost){ elements * (6 * width * count + 30), sl_operand_bytes(g, node) };
}

sl_cost sl_cost_gru(const sluice_graph *g, const sl_node *node)
{
    return gru_cost(g, node, &g->values[node->outputs[0]].shape, 1);
}

sl_cost sl_cost_gru_grad(const sluice_graph *g, const sl_node *node)
{
    return gru_cost(g, node, sl_input_shape(g, node, 2), 1 + (node->outputs[1] >= 0));
}

/* ---- CTC loss ---- */

static sluice_status check_labels(const sluice_graph *g, const sl_node *node)
{
    char a[SL_OPERAND_BYTES], b[SL_OPERAND_BYTES];
    const sl_shape *x = sl_input_shape(g, node, 0), *labels = sl_input_shape(g, node, 1);
    sl_operand_text(g, node->inputs[0], a);
    sl_operand_text(g, node->inputs[1], b);
    if (labels->rank != 2 || labels->dim[0] != x->dim[0])
        return sl_node_fail(node, "labels %s must be one row for each sequence of logits %s", b, a);
    if (labels->dim[1] > SL_MAX_CTC_LABELS)
        return sl_node_fail(node, "labels %s: kernels take up to %d for a sequence", b, SL_MAX_CTC_LABELS);
    if (x->dim[2] < 2 || x->dim[2] > SL_MAX_CTC_CLASSES)
        return sl_node_fail(node, "logits %s: kernels take 2 to %d classes, the blank among them", a,
                            SL_MAX_CTC_CLASSES);
    return SLUICE_OK;
}

sluice_status sl_infer_ctc_loss(const sluice_graph *g, const sl_node *node, sl_shape *shapes, sluice_dtype *dtypes)
{
    const sl_shape *x = sl_input_shape(g, node, 0);
    const int32_t blank = node->attrs.ctc.blank;
    char text[SL_OPERAND_BYTES];
    SL_TRY(expect_frames(g, node, 0));
    SL_TRY(sl_expect_dtype(g, node, 1, SLUICE_I32));
    SL_TRY(check_labels(g, node));
    SL_TRY(expect_lengths(g, node, 2, 0));
    if (blank < 0 || blank >= x->dim[2])
        return sl_node_fail(node, "blank %" PRId32 " is none of the %" PRId64 " classes of logits %s", blank, x->dim[2],
                            sl_operand_text(g, node->inputs[0], text));
    shapes[0] = (sl_shape){ .rank = 0 };
    dtypes[0] = SLUICE_F32;
    shapes[1] = *x;
    dtypes[1] = g->values[node->inputs[0]].dtype;
    return SLUICE_OK;
}

sluice_status sl_infer_ctc_loss_grad(const sluice_graph *g, const sl_node *node, sl_shape *shapes, sluice_dtype *dtypes)
{
    SL_TRY(expect_frames(g, node, 0));
    SL_TRY(sl_expect_dtype(g, node, 1, SLUICE_F32));
    SL_TRY(expect_shape(g, node, 1, &(sl_shape){ .rank = 0 }, 0));
    shapes[0] = *sl_input_shape(g, node, 0);
    dtypes[0] = g->values[node->inputs[0]].dtype;
    return SLUICE_OK;
}

sluice_status sl_gradient_ctc_loss(sl_autodiff *ad)
{
    const sl_node *n = &ad->node;
    if (!sl_wants_gradient(ad, n->inputs[0])) return SLUICE_OK;
    sl_backward b = sl_backward_begin(ad, SL_OP_CTC_LOSS_GRAD);
    sl_backward_read(&b, n->outputs[1]);
    sl_backward_read(&b, ad->dy);
    SL_TRY(sl_backward_write(ad, &b, n->inputs[0]));
    return sl_backward_end(ad, &b);
}

/* An exponential for each logit, and three with a logarithm for each state of each frame; with a gradient both twice. */
sl_cost sl_cost_ctc_loss(const sluice_graph *g, const sl_node *node)
{
    const sl_shape *x = sl_input_shape(g, node, 0);
    double frames = (double)x->dim[0] * (double)x->dim[1];
    double states = 2 * (double)sl_input_shape(g, node, 1)->dim[1] + 1, passes = node->outputs[1] >= 0 ? 2 : 1;
    return (sl_cost){ passes * frames * (8 * (double)x->dim[2] + 40 * states), sl_operand_bytes(g, node) };
}
