/* infer_backward.c: shapes and types of the backward-only ops.
 *
 * Autodiff makes these nodes itself, so a failure here is a fault of sluice. The checks exist because sl_graph_verify
 * runs them over every differentiated graph: a gradient of the wrong shape or type is found before anything is planned.
 * Absent
 * (-1) outputs get a shape too; nobody reads it. */
#include <string.h>

#include "ir/op_rows.h"

/* Output i has this shape and the type of input `like`: the type the node computes in. A wide output may have another
 * (sl_op_def.wide_outputs), which sl_graph_verify allows. */
static void give(const sluice_graph *g, const sl_node *node, int like, sl_shape *shapes, sluice_dtype *dtypes, int i,
                 const sl_shape *shape)
{
    shapes[i] = *shape;
    dtypes[i] = g->values[node->inputs[like]].dtype;
}

/* The output value whose shape the inputs leave open; NULL, with a message, where it is missing. */
static const sl_shape *declared(const sluice_graph *g, const sl_node *node)
{
    if (node->outputs[0] >= 0) return &g->values[node->outputs[0]].shape;
    sl_node_fail(node, "needs its output");
    return NULL;
}

static sluice_status mismatch(const sluice_graph *g, const sl_node *node, int input, const sl_shape *shape)
{
    char text[SL_OPERAND_BYTES], s[160];
    return sl_node_fail(node, "%s does not fit %s", sl_operand_text(g, node->inputs[input], text),
                        sl_shape_text(shape, s, sizeof s));
}

/* True where `from` stretches to exactly `to` by broadcasting. */
static bool stretches_to(const sl_shape *from, const sl_shape *to)
{
    sl_shape both;
    return sl_shape_broadcast(from, to, &both) && sl_shape_equal(&both, to);
}

/* Fails unless input i is an f32 scalar: a loss's gradient, a count. */
static sluice_status expect_scalar(const sluice_graph *g, const sl_node *node, int i)
{
    SL_TRY(sl_expect_dtype(g, node, i, SLUICE_F32));
    if (sl_input_shape(g, node, i)->rank == 0) return SLUICE_OK;
    return mismatch(g, node, i, &(sl_shape){ .rank = 0 });
}

/* Fails unless input i has one f32 element per row of x: saved means, deviations, log-sums. */
static sluice_status expect_rows(const sluice_graph *g, const sl_node *node, int i, const sl_shape *x)
{
    SL_TRY(sl_expect_dtype(g, node, i, SLUICE_F32));
    const sl_shape *s = sl_input_shape(g, node, i);
    if (s->rank == 1 && s->dim[0] == sl_shape_rows(x)) return SLUICE_OK;
    return mismatch(g, node, i, x);
}

sluice_status sl_infer_seed(const sluice_graph *g, const sl_node *node, sl_shape *shapes, sluice_dtype *dtypes)
{
    (void)g;
    (void)node;
    shapes[0] = (sl_shape){ .rank = 0 };
    dtypes[0] = SLUICE_F32;
    return SLUICE_OK;
}

sluice_status sl_infer_reduce_to(const sluice_graph *g, const sl_node *node, sl_shape *shapes, sluice_dtype *dtypes)
{
    const sl_shape *to = declared(g, node);
    if (to == NULL) return SLUICE_ERR_USAGE;
    SL_TRY(sl_expect_float(g, node, 0));
    if (!stretches_to(to, sl_input_shape(g, node, 0))) return mismatch(g, node, 0, to);
    give(g, node, 0, shapes, dtypes, 0, to);
    return SLUICE_OK;
}

sluice_status sl_infer_multiply_reduce(const sluice_graph *g, const sl_node *node, sl_shape *shapes,
                                       sluice_dtype *dtypes)
{
    const sl_shape *dy = sl_input_shape(g, node, 0);
    SL_TRY(sl_expect_one_type(g, node, 0, 1));
    if (!stretches_to(sl_input_shape(g, node, 1), dy)) return mismatch(g, node, 1, dy);
    return sl_infer_reduce_to(g, node, shapes, dtypes);
}

/* dy [.., O] against a weight; gives I and O. */
static sluice_status linear_sizes(const sluice_graph *g, const sl_node *node, const sl_shape *w, int64_t *in,
                                  int64_t *out)
{
    const sl_shape *dy = sl_input_shape(g, node, 0);
    if (w->rank != 2 || dy->rank < 1) return mismatch(g, node, 0, w);
    *in = w->dim[node->attrs.linear.in_out ? 0 : 1];
    *out = w->dim[node->attrs.linear.in_out ? 1 : 0];
    return *out == sl_shape_last(dy) ? SLUICE_OK : mismatch(g, node, 0, w);
}

sluice_status sl_infer_linear_grad_input(const sluice_graph *g, const sl_node *node, sl_shape *shapes,
                                         sluice_dtype *dtypes)
{
    int64_t in = 0, out = 0;
    SL_TRY(sl_expect_one_type(g, node, 0, 1));
    SL_TRY(linear_sizes(g, node, sl_input_shape(g, node, 1), &in, &out));
    sl_shape dx = *sl_input_shape(g, node, 0);
    dx.dim[dx.rank - 1] = in;
    give(g, node, 0, shapes, dtypes, 0, &dx);
    return SLUICE_OK;
}

sluice_status sl_infer_linear_grad_gelu(const sluice_graph *g, const sl_node *node, sl_shape *shapes,
                                        sluice_dtype *dtypes)
{
    SL_TRY(sl_infer_linear_grad_input(g, node, shapes, dtypes));
    SL_TRY(sl_expect_one_type(g, node, 0, 2));
    return sl_shape_equal(sl_input_shape(g, node, 2), &shapes[0]) ? SLUICE_OK : mismatch(g, node, 2, &shapes[0]);
}

sluice_status sl_infer_linear_grad_weight(const sluice_graph *g, const sl_node *node, sl_shape *shapes,
                                          sluice_dtype *dtypes)
{
    const sl_shape *dy = sl_input_shape(g, node, 0), *x = sl_input_shape(g, node, 1);
    SL_TRY(sl_expect_one_type(g, node, 0, 1));
    if (dy->rank < 1 || x->rank != dy->rank || sl_shape_rows(x) != sl_shape_rows(dy)) return mismatch(g, node, 1, dy);
    int64_t in = sl_shape_last(x), out = sl_shape_last(dy);
    sl_shape dw = { .rank = 2, .dim = { out, in } };
    if (node->attrs.linear.in_out) dw = (sl_shape){ .rank = 2, .dim = { in, out } };
    give(g, node, 0, shapes, dtypes, 0, &dw);
    give(g, node, 0, shapes, dtypes, 1, &(sl_shape){ .rank = 1, .dim = { out } });
    return SLUICE_OK;
}

sluice_status sl_infer_embedding_grad(const sluice_graph *g, const sl_node *node, sl_shape *shapes,
                                      sluice_dtype *dtypes)
{
    SL_TRY(sl_expect_dtype(g, node, 0, SLUICE_I32));
    SL_TRY(sl_expect_float(g, node, 1));
    const sl_shape *table = declared(g, node);
    if (table == NULL) return SLUICE_ERR_USAGE;
    sl_shape rows = *sl_input_shape(g, node, 1);
    if (rows.rank < 1 || table->rank != 2 || rows.dim[rows.rank - 1] != table->dim[1])
        return mismatch(g, node, 1, table);
    rows.rank--;
    if (!sl_shape_equal(&rows, sl_input_shape(g, node, 0))) return mismatch(g, node, 0, &rows);
    give(g, node, 1, shapes, dtypes, 0, table);
    return SLUICE_OK;
}

/* RELU_GRAD, GELU_GRAD, SILU_GRAD, SOFTMAX_GRAD: saved tensor and dy, alike. */
sluice_status sl_infer_pointwise_grad(const sluice_graph *g, const sl_node *node, sl_shape *shapes,
                                      sluice_dtype *dtypes)
{
    SL_TRY(sl_expect_one_type(g, node, 0, 1));
    SL_TRY(sl_expect_equal(g, node, 0, 1));
    give(g, node, 0, shapes, dtypes, 0, sl_input_shape(g, node, 0));
    return SLUICE_OK;
}

sluice_status sl_infer_swiglu_grad(const sluice_graph *g, const sl_node *node, sl_shape *shapes, sluice_dtype *dtypes)
{
    SL_TRY(sl_expect_one_type(g, node, 0, 1));
    const sl_shape *x = sl_input_shape(g, node, 0), *dy = sl_input_shape(g, node, 1);
    sl_shape both = *dy;
    if (both.rank > 0) both.dim[both.rank - 1] *= 2;
    if (!sl_shape_equal(x, &both)) return mismatch(g, node, 1, x);
    give(g, node, 0, shapes, dtypes, 0, x);
    return SLUICE_OK;
}

/* Inputs x, weight, `statistics` row vectors, dy -> dx, dweight, .. ; each parameter is as long as a row. */
static sluice_status norm_grad(const sluice_graph *g, const sl_node *node, int statistics, sl_shape *shapes,
                               sluice_dtype *dtypes)
{
    const sl_shape *x = sl_input_shape(g, node, 0);
    sl_shape vector = { .rank = 1, .dim = { sl_shape_last(x) } };
    SL_TRY(sl_expect_one_type(g, node, 0, 1));
    SL_TRY(sl_expect_one_type(g, node, 0, 2 + statistics));
    if (!sl_shape_equal(sl_input_shape(g, node, 1), &vector)) return mismatch(g, node, 1, &vector);
    for (int i = 0; i < statistics; i++) SL_TRY(expect_rows(g, node, 2 + i, x));
    SL_TRY(sl_expect_equal(g, node, 0, 2 + statistics));
    give(g, node, 0, shapes, dtypes, 0, x);
    for (int i = 1; i < sl_ops[node->op].outputs; i++) give(g, node, 0, shapes, dtypes, i, &vector);
    return SLUICE_OK;
}

sluice_status sl_infer_layer_norm_grad(const sluice_graph *g, const sl_node *node, sl_shape *shapes,
                                       sluice_dtype *dtypes)
{
    return norm_grad(g, node, 2, shapes, dtypes);
}

sluice_status sl_infer_rms_norm_grad(const sluice_graph *g, const sl_node *node, sl_shape *shapes, sluice_dtype *dtypes)
{
    return norm_grad(g, node, 1, shapes, dtypes);
}

sluice_status sl_infer_qk_norm_grad(const sluice_graph *g, const sl_node *node, sl_shape *shapes, sluice_dtype *dtypes)
{
    const sl_shape *x = sl_input_shape(g, node, 0);
    const int64_t normed = (int64_t)node->attrs.qk_norm.heads + node->attrs.qk_norm.kv_heads;
    sl_shape vector = { .rank = 1, .dim = { node->attrs.qk_norm.head_width } };
    for (int i = 1; i <= 4; i++)
        if (i != 3) SL_TRY(sl_expect_one_type(g, node, 0, i));
    for (int i = 1; i <= 2; i++)
        if (!sl_shape_equal(sl_input_shape(g, node, i), &vector)) return mismatch(g, node, i, &vector);
    SL_TRY(sl_expect_dtype(g, node, 3, SLUICE_F32));
    SL_TRY(sl_expect_equal(g, node, 0, 4));
    if (x->rank != 3) return sl_node_fail(node, "its input must be [B, T, (H + 2 G) * D]");
    sl_shape rstd = { .rank = 3, .dim = { x->dim[0], x->dim[1], normed } };
    if (!sl_shape_equal(sl_input_shape(g, node, 3), &rstd)) return mismatch(g, node, 3, &rstd);
    give(g, node, 0, shapes, dtypes, 0, x);
    for (int i = 1; i <= 2; i++) give(g, node, 0, shapes, dtypes, i, &vector);
    return SLUICE_OK;
}

sluice_status sl_infer_attention_grad(const sluice_graph *g, const sl_node *node, sl_shape *shapes,
                                      sluice_dtype *dtypes)
{
    int operands = sl_attention_operands(&node->attrs), saved = node->input_count - 3; /* out, lse, dout */
    if (saved != operands && saved != operands + 1)
        return sl_node_fail(node, "takes %d inputs, or %d with positions", operands + 3, operands + 4);
    for (int i = 0; i < node->input_count; i++)
        if (i < operands || i == saved || i == saved + 2) SL_TRY(sl_expect_one_type(g, node, 0, i));
    if (saved > operands) SL_TRY(sl_expect_dtype(g, node, operands, SLUICE_I32));
    SL_TRY(sl_expect_dtype(g, node, saved + 1, SLUICE_F32));
    SL_TRY(sl_expect_equal(g, node, saved, saved + 2));
    const sl_shape *out = sl_input_shape(g, node, saved);
    if (out->rank != 3) return sl_node_fail(node, "out must be [B, T, H * D]");
    sl_shape lse = { .rank = 3, .dim = { out->dim[0], node->attrs.attention.heads, out->dim[1] } };
    if (!sl_shape_equal(sl_input_shape(g, node, saved + 1), &lse)) return mismatch(g, node, saved + 1, &lse);
    for (int i = 0; i < operands; i++) give(g, node, 0, shapes, dtypes, i, sl_input_shape(g, node, i));
    return SLUICE_OK;
}

sluice_status sl_infer_split_grad(const sluice_graph *g, const sl_node *node, sl_shape *shapes, sluice_dtype *dtypes)
{
    const sl_shape *whole = declared(g, node);
    if (whole == NULL) return SLUICE_ERR_USAGE;
    SL_TRY(sl_expect_float(g, node, 0));
    int axis = node->attrs.split.axis;
    int64_t start = node->attrs.split.start, size = node->attrs.split.size;
    bool inside = axis >= 0 && axis < whole->rank && start >= 0 && size >= 1 && size <= whole->dim[axis] &&
                  start <= whole->dim[axis] - size;
    if (!inside) return mismatch(g, node, 0, whole);
    sl_shape part = *whole;
    part.dim[axis] = size;
    if (!sl_shape_equal(&part, sl_input_shape(g, node, 0))) return mismatch(g, node, 0, &part);
    give(g, node, 0, shapes, dtypes, 0, whole);
    return SLUICE_OK;
}

sluice_status sl_infer_cross_entropy_grad(const sluice_graph *g, const sl_node *node, sl_shape *shapes,
                                          sluice_dtype *dtypes)
{
    const sl_shape *logits = sl_input_shape(g, node, 0);
    SL_TRY(sl_expect_float(g, node, 0));
    SL_TRY(sl_expect_dtype(g, node, 1, SLUICE_I32));
    sl_shape rows = *logits;
    rows.rank--;
    if (logits->rank < 1 || !sl_shape_equal(&rows, sl_input_shape(g, node, 1))) return mismatch(g, node, 1, logits);
    SL_TRY(expect_rows(g, node, 2, logits));
    SL_TRY(expect_scalar(g, node, 3));
    SL_TRY(expect_scalar(g, node, 4));
    give(g, node, 0, shapes, dtypes, 0, logits);
    return SLUICE_OK;
}

/* Each output has the shape of its input; dw and dbias, in f32, are wide outputs. Where dw or dx is not wanted, one that
 * is stands in for its input. */
sluice_status sl_infer_linear_cross_entropy_grad(const sluice_graph *g, const sl_node *node, sl_shape *shapes,
                                                 sluice_dtype *dtypes)
{
    if (node->outputs[0] >= 0) SL_TRY(sl_expect_dtype(g, node, 0, SLUICE_F32));
    for (int i = 0; i < 2; i++) {
        SL_TRY(sl_expect_float(g, node, i));
        give(g, node, i, shapes, dtypes, i, sl_input_shape(g, node, i));
    }
    SL_TRY(expect_scalar(g, node, 2));
    if (node->input_count < 4) return SLUICE_OK;
    SL_TRY(sl_expect_dtype(g, node, 3, SLUICE_F32));
    give(g, node, 3, shapes, dtypes, 2, sl_input_shape(g, node, 3));
    return SLUICE_OK;
}

sluice_status sl_infer_mse_grad(const sluice_graph *g, const sl_node *node, sl_shape *shapes, sluice_dtype *dtypes)
{
    for (int i = 0; i < 2; i++) SL_TRY(sl_expect_dtype(g, node, i, SLUICE_F32));
    SL_TRY(sl_expect_equal(g, node, 0, 1));
    SL_TRY(expect_scalar(g, node, 2));
    give(g, node, 0, shapes, dtypes, 0, sl_input_shape(g, node, 0));
    give(g, node, 0, shapes, dtypes, 1, sl_input_shape(g, node, 0));
    return SLUICE_OK;
}

sluice_status sl_infer_bce_with_logits_grad(const sluice_graph *g, const sl_node *node, sl_shape *shapes,
                                            sluice_dtype *dtypes)
{
    SL_TRY(expect_scalar(g, node, 2));
    for (int i = 0; i < node->input_count; i++) {
        if (i == 2) continue;
        SL_TRY(sl_expect_dtype(g, node, i, SLUICE_F32));
        SL_TRY(sl_expect_equal(g, node, 0, i));
    }
    for (int i = 0; i < 3; i++) give(g, node, 0, shapes, dtypes, i, sl_input_shape(g, node, 0));
    return SLUICE_OK;
}

sluice_status sl_infer_expand(const sluice_graph *g, const sl_node *node, sl_shape *shapes, sluice_dtype *dtypes)
{
    const sl_shape *to = declared(g, node);
    if (to == NULL) return SLUICE_ERR_USAGE;
    SL_TRY(expect_scalar(g, node, 0));
    give(g, node, 0, shapes, dtypes, 0, to);
    return SLUICE_OK;
}
