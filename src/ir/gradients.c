/* gradients.c: the gradient column of the op table.
 *
 * Each function makes the backward nodes of one forward op: ad->node is the forward node, ad->dy the gradient of its
 * first output. Operand orders are those of op.h. A gradient nobody wants is left out, with its node where nothing else
 * needs it. */
#include "ir/autodiff.h"
#include "ir/op_rows.h"

/* One backward node that reads `inputs` and writes the gradient of forward_value. */
static sluice_status single(sl_autodiff *ad, sl_op op, const sl_attrs *attrs, int count, const int *inputs,
                            int forward_value)
{
    if (!sl_wants_gradient(ad, forward_value)) return SLUICE_OK;
    sl_backward b = sl_backward_begin(ad, op);
    if (attrs != NULL) b.node.attrs = *attrs;
    for (int i = 0; i < count; i++) sl_backward_read(&b, inputs[i]);
    SL_TRY(sl_backward_write(ad, &b, forward_value));
    return sl_backward_end(ad, &b);
}

/* Both inputs of equal shape get dy itself; a broadcast one gets it summed. */
sluice_status sl_gradient_add(sl_autodiff *ad)
{
    for (int i = 0; i < 2; i++) {
        int x = ad->node.inputs[i];
        const sluice_graph *g = ad->graph;
        if (sl_shape_equal(&g->values[x].shape, &g->values[ad->dy].shape))
            SL_TRY(sl_backward_pass(ad, x, ad->dy));
        else
            SL_TRY(single(ad, SL_OP_REDUCE_TO, NULL, 1, &ad->dy, x));
    }
    return SLUICE_OK;
}

sluice_status sl_gradient_multiply(sl_autodiff *ad)
{
    int a = ad->node.inputs[0], b = ad->node.inputs[1];
    SL_TRY(single(ad, SL_OP_MULTIPLY_REDUCE, NULL, 2, (int[]){ ad->dy, b }, a));
    return single(ad, SL_OP_MULTIPLY_REDUCE, NULL, 2, (int[]){ ad->dy, a }, b);
}

sluice_status sl_gradient_scale(sl_autodiff *ad)
{
    return single(ad, SL_OP_SCALE, NULL, 1, &ad->dy, ad->node.inputs[0]);
}

/* The node that makes x = gelu(h) with a product, where the current node is in its layer and x has no other reader: the
 * gradient of h is then complete as soon as that of x is. NULL: none. */
static const sl_node *gelu_before(const sl_autodiff *ad, int x)
{
    const sluice_graph *g = ad->graph;
    int producer = g->values[x].producer;
    if (producer < 0 || g->nodes[producer].op != SL_OP_LINEAR_GELU) return NULL;
    if (g->nodes[producer].layer != ad->node.layer) return NULL;
    return ad->readers[x] == 1 ? &g->nodes[producer] : NULL;
}

/* Of a product's input, or at once of what it was the GELU of. */
static sluice_status linear_input(sl_autodiff *ad, int x, int weight)
{
    const sl_node *gelu = sl_wants_gradient(ad, x) ? gelu_before(ad, x) : NULL;
    if (gelu == NULL) return single(ad, SL_OP_LINEAR_GRAD_INPUT, NULL, 2, (int[]){ ad->dy, weight }, x);
    int h = gelu->outputs[1];
    return single(ad, SL_OP_LINEAR_GRAD_GELU, NULL, 3, (int[]){ ad->dy, weight, h }, h);
}

/* The weight's gradient comes first: after it the layer's input is no longer needed, and dx may take its place. */
static sluice_status linear_gradients(sl_autodiff *ad, int bias_input)
{
    int x = ad->node.inputs[0], weight = ad->node.inputs[1];
    int bias = ad->node.input_count > bias_input ? ad->node.inputs[bias_input] : -1;
    if (sl_wants_gradient(ad, weight) || sl_wants_gradient(ad, bias)) {
        sl_backward b = sl_backward_begin(ad, SL_OP_LINEAR_GRAD_WEIGHT);
        sl_backward_read(&b, ad->dy);
        sl_backward_read(&b, x);
        SL_TRY(sl_backward_write(ad, &b, weight));
        SL_TRY(sl_backward_write(ad, &b, bias));
        SL_TRY(sl_backward_end(ad, &b));
    }
    return linear_input(ad, x, weight);
}

sluice_status sl_gradient_linear(sl_autodiff *ad)
{
    return linear_gradients(ad, 2);
}

sluice_status sl_gradient_linear_add(sl_autodiff *ad)
{
    SL_TRY(sl_backward_pass(ad, ad->node.inputs[2], ad->dy));
    return linear_gradients(ad, 3);
}

sluice_status sl_gradient_linear_gelu(sl_autodiff *ad)
{
    int y = ad->node.outputs[0], h = ad->node.outputs[1];
    if (ad->dy == ad->gradient[y]) {
        SL_TRY(single(ad, SL_OP_GELU_GRAD, &(sl_attrs){ .gelu = { false } }, 2, (int[]){ h, ad->dy }, h));
        sl_backward_continue(ad, h);
    }
    return sl_gradient_linear(ad);
}

/* With A = op(a) and B = op(b): dA = dy B^T and dB = A^T dy, each transposed again where the operand was. */
sluice_status sl_gradient_matmul(sl_autodiff *ad)
{
    int a = ad->node.inputs[0], b = ad->node.inputs[1], dy = ad->dy;
    bool ta = ad->node.attrs.matmul.transpose_a, tb = ad->node.attrs.matmul.transpose_b;
    sl_attrs for_a = { .matmul = { false, !tb } }, for_a_transposed = { .matmul = { tb, true } };
    sl_attrs for_b = { .matmul = { !ta, false } }, for_b_transposed = { .matmul = { true, ta } };
    if (ta)
        SL_TRY(single(ad, SL_OP_MATMUL, &for_a_transposed, 2, (int[]){ b, dy }, a));
    else
        SL_TRY(single(ad, SL_OP_MATMUL, &for_a, 2, (int[]){ dy, b }, a));
    if (tb) return single(ad, SL_OP_MATMUL, &for_b_transposed, 2, (int[]){ dy, a }, b);
    return single(ad, SL_OP_MATMUL, &for_b, 2, (int[]){ a, dy }, b);
}

sluice_status sl_gradient_embedding(sl_autodiff *ad)
{
    return single(ad, SL_OP_EMBEDDING_GRAD, NULL, 2, (int[]){ ad->node.inputs[0], ad->dy }, ad->node.inputs[1]);
}

/* The row's backward op on the output and its gradient. */
sluice_status sl_gradient_from_output(sl_autodiff *ad)
{
    return single(ad, sl_ops[ad->node.op].backward, NULL, 2, (int[]){ ad->node.outputs[0], ad->dy },
                  ad->node.inputs[0]);
}

/* The row's backward op on the input and the output's gradient. */
sluice_status sl_gradient_from_input(sl_autodiff *ad)
{
    return single(ad, sl_ops[ad->node.op].backward, NULL, 2, (int[]){ ad->node.inputs[0], ad->dy }, ad->node.inputs[0]);
}

/* x, weight, the saved statistics, dy -> dx, dweight and, where the op can have one, dbias */
static sluice_status norm(sl_autodiff *ad, sl_op op, int statistics)
{
    const sl_node *n = &ad->node;
    sl_backward b = sl_backward_begin(ad, op);
    sl_backward_read(&b, n->inputs[0]);
    sl_backward_read(&b, n->inputs[1]);
    for (int i = 1; i <= statistics; i++) sl_backward_read(&b, n->outputs[i]);
    sl_backward_read(&b, ad->dy);
    for (int i = 0; i < sl_ops[op].outputs; i++)
        SL_TRY(sl_backward_write(ad, &b, i < n->input_count ? n->inputs[i] : -1));
    return sl_backward_end(ad, &b);
}

sluice_status sl_gradient_layer_norm(sl_autodiff *ad)
{
    return norm(ad, SL_OP_LAYER_NORM_GRAD, 2);
}

sluice_status sl_gradient_rms_norm(sl_autodiff *ad)
{
    return norm(ad, SL_OP_RMS_NORM_GRAD, 1);
}

sluice_status sl_gradient_qk_norm(sl_autodiff *ad)
{
    const sl_node *n = &ad->node;
    sl_backward b = sl_backward_begin(ad, SL_OP_QK_NORM_GRAD);
    for (int i = 0; i < 3; i++) sl_backward_read(&b, n->inputs[i]);
    sl_backward_read(&b, n->outputs[1]);
    sl_backward_read(&b, ad->dy);
    for (int i = 0; i < 3; i++) SL_TRY(sl_backward_write(ad, &b, n->inputs[i]));
    return sl_backward_end(ad, &b);
}

/* A rotation's transpose is the rotation back, at the same positions and as much longer. */
sluice_status sl_gradient_rotary(sl_autodiff *ad)
{
    sl_attrs attrs = ad->node.attrs;
    attrs.rotary.inverse = !attrs.rotary.inverse;
    return single(ad, SL_OP_ROTARY, &attrs, ad->node.input_count, (int[]){ ad->dy, ad->node.inputs[1] },
                  ad->node.inputs[0]);
}

sluice_status sl_gradient_attention(sl_autodiff *ad)
{
    const sl_node *n = &ad->node;
    sl_backward b = sl_backward_begin(ad, SL_OP_ATTENTION_GRAD);
    for (int i = 0; i < n->input_count; i++) sl_backward_read(&b, n->inputs[i]);
    sl_backward_read(&b, n->outputs[0]);
    sl_backward_read(&b, n->outputs[1]);
    sl_backward_read(&b, ad->dy);
    for (int i = 0; i < sl_attention_operands(&n->attrs); i++) SL_TRY(sl_backward_write(ad, &b, n->inputs[i]));
    return sl_backward_end(ad, &b);
}

sluice_status sl_gradient_none(sl_autodiff *ad)
{
    return sl_node_fail(&ad->node, "has no gradient: it is for generation");
}

/* The same mask: attrs.dropout.op still names the forward node. */
sluice_status sl_gradient_dropout(sl_autodiff *ad)
{
    return single(ad, SL_OP_DROPOUT, NULL, 1, &ad->dy, ad->node.inputs[0]);
}

sluice_status sl_gradient_reshape(sl_autodiff *ad)
{
    return sl_backward_view(ad, ad->node.inputs[0], ad->dy);
}

sluice_status sl_gradient_transpose(sl_autodiff *ad)
{
    sl_attrs inverse = { 0 };
    int rank = ad->graph->values[ad->dy].shape.rank;
    for (int i = 0; i < rank; i++) inverse.transpose.order[ad->node.attrs.transpose.order[i]] = i;
    return single(ad, SL_OP_TRANSPOSE, &inverse, 1, &ad->dy, ad->node.inputs[0]);
}

sluice_status sl_gradient_split(sl_autodiff *ad)
{
    return single(ad, SL_OP_SPLIT_GRAD, NULL, 1, &ad->dy, ad->node.inputs[0]);
}

sluice_status sl_gradient_add_part(sl_autodiff *ad)
{
    int whole = ad->node.inputs[0], part = ad->node.inputs[1];
    SL_TRY(sl_backward_pass(ad, whole, ad->dy));
    return single(ad, SL_OP_CONCAT_GRAD, &ad->node.attrs, 1, &ad->dy, part);
}

sluice_status sl_gradient_concat(sl_autodiff *ad)
{
    int axis = ad->node.attrs.concat.axis;
    int64_t start = 0;
    for (int i = 0; i < ad->node.input_count; i++) {
        int64_t size = ad->graph->values[ad->node.inputs[i]].shape.dim[axis];
        sl_attrs part = { .split = { axis, start, size } };
        SL_TRY(single(ad, SL_OP_CONCAT_GRAD, &part, 1, &ad->dy, ad->node.inputs[i]));
        start += size;
    }
    return SLUICE_OK;
}

sluice_status sl_gradient_cross_entropy(sl_autodiff *ad)
{
    const sl_node *n = &ad->node;
    return single(ad, SL_OP_CROSS_ENTROPY_GRAD, NULL, 5,
                  (int[]){ n->inputs[0], n->inputs[1], n->outputs[1], n->outputs[2], ad->dy }, n->inputs[0]);
}

/* Forward left the gradients; of dw and dx, one that nobody wants is not read, and one that is wanted stands in its
 * place. */
sluice_status sl_gradient_linear_cross_entropy(sl_autodiff *ad)
{
    const sl_node *n = &ad->node;
    int x = n->inputs[0], weight = n->inputs[1], bias = n->input_count > 3 ? n->inputs[3] : -1;
    int dw = sl_wants_gradient(ad, weight) ? n->outputs[2] : -1, dx = sl_wants_gradient(ad, x) ? n->outputs[3] : -1;
    int dbias = sl_wants_gradient(ad, bias) ? n->outputs[4] : -1;
    sl_backward b = sl_backward_begin(ad, SL_OP_LINEAR_CROSS_ENTROPY_GRAD);
    sl_backward_read(&b, dw >= 0 ? dw : dx >= 0 ? dx : dbias);
    sl_backward_read(&b, dx >= 0 ? dx : dw >= 0 ? dw : dbias);
    sl_backward_read(&b, ad->dy);
    if (dbias >= 0) sl_backward_read(&b, dbias);
    SL_TRY(sl_backward_write(ad, &b, weight));
    SL_TRY(sl_backward_write(ad, &b, x));
    if (dbias >= 0) SL_TRY(sl_backward_write(ad, &b, bias));
    return sl_backward_end(ad, &b);
}

sluice_status sl_gradient_mse(sl_autodiff *ad)
{
    const sl_node *n = &ad->node;
    sl_backward b = sl_backward_begin(ad, SL_OP_MSE_GRAD);
    sl_backward_read(&b, n->inputs[0]);
    sl_backward_read(&b, n->inputs[1]);
    sl_backward_read(&b, ad->dy);
    SL_TRY(sl_backward_write(ad, &b, n->inputs[0]));
    SL_TRY(sl_backward_write(ad, &b, n->inputs[1]));
    return sl_backward_end(ad, &b);
}

sluice_status sl_gradient_bce_with_logits(sl_autodiff *ad)
{
    const sl_node *n = &ad->node;
    sl_backward b = sl_backward_begin(ad, SL_OP_BCE_WITH_LOGITS_GRAD);
    sl_backward_read(&b, n->inputs[0]);
    sl_backward_read(&b, n->inputs[1]);
    sl_backward_read(&b, ad->dy);
    if (n->input_count > 2) sl_backward_read(&b, n->inputs[2]);
    for (int i = 0; i < 3; i++) SL_TRY(sl_backward_write(ad, &b, i < n->input_count ? n->inputs[i] : -1));
    return sl_backward_end(ad, &b);
}

sluice_status sl_gradient_sum(sl_autodiff *ad)
{
    return single(ad, SL_OP_EXPAND, &(sl_attrs){ .scale = { 1.0f } }, 1, &ad->dy, ad->node.inputs[0]);
}

sluice_status sl_gradient_mean(sl_autodiff *ad)
{
    int64_t n = sl_shape_elements(&ad->graph->values[ad->node.inputs[0]].shape);
    sl_attrs attrs = { .scale = { (float)(1.0 / (double)n) } };
    return single(ad, SL_OP_EXPAND, &attrs, 1, &ad->dy, ad->node.inputs[0]);
}

sluice_status sl_gradient_cast(sl_autodiff *ad)
{
    return single(ad, SL_OP_CAST, NULL, 1, (int[]){ ad->dy }, ad->node.inputs[0]);
}
