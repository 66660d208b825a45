/* op_channel_norm.c: batch norm, alone and over ranks, and group norm: shapes, gradients, costs.
 *
 * Both see a tensor as rows of channels. Batch norm's statistics are over all rows, one of each for a channel; group
 * norm's over the rows of a sample and the channels of a group. */
#include <inttypes.h>
#include <math.h>

#include "core/sample_tree.h"
#include "ir/autodiff.h"
#include "ir/op_rows.h"

/* ---- shapes ---- */

static void give(sl_shape *shapes, sluice_dtype *dtypes, int i, const sl_shape *shape, sluice_dtype dtype)
{
    shapes[i] = *shape;
    dtypes[i] = dtype;
}

static sl_shape channels_of(const sl_shape *x)
{
    return (sl_shape){ .rank = 1, .dim = { sl_shape_last(x) } };
}

/* Fails unless input i has this shape. */
static sluice_status expect_shape(const sluice_graph *g, const sl_node *node, int i, const sl_shape *shape)
{
    char text[SL_OPERAND_BYTES], of[SL_OPERAND_BYTES], s[160];
    if (sl_shape_equal(sl_input_shape(g, node, i), shape)) return SLUICE_OK;
    return sl_node_fail(node, "%s must be %s, to fit %s", sl_operand_text(g, node->inputs[i], text),
                        sl_shape_text(shape, s, sizeof s), sl_operand_text(g, node->inputs[0], of));
}

static sluice_status expect_f32(const sluice_graph *g, const sl_node *node, int i, const sl_shape *shape)
{
    SL_TRY(sl_expect_dtype(g, node, i, SLUICE_F32));
    return expect_shape(g, node, i, shape);
}

/* x has rows of channels, and inputs [1, 1 + vectors) one element for each of them, in its type. */
static sluice_status check_channels(const sluice_graph *g, const sl_node *node, int vectors)
{
    const sl_shape *x = sl_input_shape(g, node, 0), c = channels_of(x);
    char text[SL_OPERAND_BYTES];
    SL_TRY(sl_expect_float(g, node, 0));
    if (x->rank < 2)
        return sl_node_fail(node, "%s must be [.., C]: rows of channels", sl_operand_text(g, node->inputs[0], text));
    for (int i = 1; i <= vectors; i++) {
        SL_TRY(sl_expect_one_type(g, node, 0, i));
        SL_TRY(expect_shape(g, node, i, &c));
    }
    return SLUICE_OK;
}

static sluice_status check_epsilon(const sl_node *node, float epsilon)
{
    if (epsilon >= 0 && !isinf(epsilon)) return SLUICE_OK;
    return sl_node_fail(node, "epsilon %g must be finite and not negative", (double)epsilon);
}

sluice_status sl_infer_batch_norm(const sluice_graph *g, const sl_node *node, sl_shape *shapes, sluice_dtype *dtypes)
{
    const sl_shape *x = sl_input_shape(g, node, 0);
    const float momentum = node->attrs.batch_norm.momentum;
    SL_TRY(check_channels(g, node, 2));
    SL_TRY(check_epsilon(node, node->attrs.batch_norm.epsilon));
    if (!(momentum >= 0 && momentum <= 1))
        return sl_node_fail(node, "momentum %g must be from 0 to 1: the weight of the newest micro-batch",
                            (double)momentum);
    if (node->input_count > 3) {
        SL_TRY(sl_expect_one_type(g, node, 0, 3));
        SL_TRY(sl_expect_equal(g, node, 0, 3));
    }
    const sl_shape c = channels_of(x), all = { .rank = 2, .dim = { SL_STATISTICS, c.dim[0] } };
    give(shapes, dtypes, 0, x, g->values[node->inputs[0]].dtype);
    give(shapes, dtypes, 1, &c, SLUICE_F32);
    give(shapes, dtypes, 2, &c, SLUICE_F32);
    give(shapes, dtypes, 3, &all, SLUICE_F32);
    return SLUICE_OK;
}

sluice_status sl_infer_batch_norm_grad(const sluice_graph *g, const sl_node *node, sl_shape *shapes,
                                       sluice_dtype *dtypes)
{
    const sl_shape *x = sl_input_shape(g, node, 0), c = channels_of(x);
    const sluice_dtype type = g->values[node->inputs[0]].dtype;
    SL_TRY(check_channels(g, node, 2));
    for (int i = 3; i <= 4; i++) SL_TRY(expect_f32(g, node, i, &c));
    for (int i = 5; i < node->input_count; i++) {
        SL_TRY(sl_expect_one_type(g, node, 0, i));
        SL_TRY(sl_expect_equal(g, node, 0, i));
    }
    for (int i = 0; i < 4; i++) give(shapes, dtypes, i, i == 1 || i == 2 ? &c : x, type);
    return SLUICE_OK;
}

/* What ranks tell each other of a batch norm of x: [R, P, 2, C]. */
static sl_shape nodes_of(const sl_shape *x, const sl_node *node)
{
    const int64_t ranks = node->attrs.batch_norm.ranks;
    return (sl_shape){ .rank = 4, .dim = { ranks, sl_sample_nodes(x->dim[0], ranks), SL_NODE_ROWS, sl_shape_last(x) } };
}

static sluice_status check_ranks(const sl_node *node)
{
    if (node->attrs.batch_norm.ranks > 0) return SLUICE_OK;
    return sl_node_fail(node, "%d ranks have no statistics", node->attrs.batch_norm.ranks);
}

/* x, weight, bias, mean, rstd, then `count` tensors like x. */
static sluice_status check_normalized(const sluice_graph *g, const sl_node *node, int count)
{
    const sl_shape c = channels_of(sl_input_shape(g, node, 0));
    SL_TRY(check_ranks(node));
    SL_TRY(check_channels(g, node, 2));
    for (int i = 3; i <= 4; i++) SL_TRY(expect_f32(g, node, i, &c));
    for (int i = 5; i < 5 + count; i++) {
        SL_TRY(sl_expect_one_type(g, node, 0, i));
        SL_TRY(sl_expect_equal(g, node, 0, i));
    }
    return SLUICE_OK;
}

sluice_status sl_infer_batch_moments(const sluice_graph *g, const sl_node *node, sl_shape *shapes, sluice_dtype *dtypes)
{
    SL_TRY(check_ranks(node));
    SL_TRY(check_channels(g, node, 0));
    const sl_shape nodes = nodes_of(sl_input_shape(g, node, 0), node);
    give(shapes, dtypes, 0, &nodes, SLUICE_F32);
    return SLUICE_OK;
}

sluice_status sl_infer_batch_statistics(const sluice_graph *g, const sl_node *node, sl_shape *shapes,
                                        sluice_dtype *dtypes)
{
    SL_TRY(check_ranks(node));
    SL_TRY(check_channels(g, node, 0));
    const sl_shape *x = sl_input_shape(g, node, 0), c = channels_of(x), nodes = nodes_of(x, node);
    const sl_shape all = { .rank = 2, .dim = { SL_STATISTICS, c.dim[0] } };
    SL_TRY(expect_f32(g, node, 1, &nodes));
    for (int i = 0; i < 3; i++) give(shapes, dtypes, i, i < 2 ? &c : &all, SLUICE_F32);
    return SLUICE_OK;
}

sluice_status sl_infer_batch_normalize(const sluice_graph *g, const sl_node *node, sl_shape *shapes,
                                       sluice_dtype *dtypes)
{
    SL_TRY(check_normalized(g, node, node->input_count - 5));
    give(shapes, dtypes, 0, sl_input_shape(g, node, 0), g->values[node->inputs[0]].dtype);
    return SLUICE_OK;
}

sluice_status sl_infer_batch_norm_sums(const sluice_graph *g, const sl_node *node, sl_shape *shapes,
                                       sluice_dtype *dtypes)
{
    const sl_shape *x = sl_input_shape(g, node, 0);
    SL_TRY(check_normalized(g, node, node->input_count - 5));
    const sl_shape nodes = nodes_of(x, node);
    give(shapes, dtypes, 0, &nodes, SLUICE_F32);
    give(shapes, dtypes, 1, x, g->values[node->inputs[0]].dtype);
    return SLUICE_OK;
}

sluice_status sl_infer_batch_normalize_grad(const sluice_graph *g, const sl_node *node, sl_shape *shapes,
                                            sluice_dtype *dtypes)
{
    const sl_shape *x = sl_input_shape(g, node, 0), c = channels_of(x);
    SL_TRY(check_normalized(g, node, 1));
    const sl_shape nodes = nodes_of(x, node);
    SL_TRY(expect_f32(g, node, 6, &nodes));
    if (node->input_count > 7) {
        SL_TRY(sl_expect_one_type(g, node, 0, 7));
        SL_TRY(sl_expect_equal(g, node, 0, 7));
    }
    for (int i = 0; i < 3; i++) give(shapes, dtypes, i, i == 0 ? x : &c, g->values[node->inputs[0]].dtype);
    return SLUICE_OK;
}

/* [N, G] */
static sl_shape groups_of(const sl_shape *x, const sl_node *node)
{
    return (sl_shape){ .rank = 2, .dim = { x->dim[0], node->attrs.group_norm.groups } };
}

sluice_status sl_infer_group_norm(const sluice_graph *g, const sl_node *node, sl_shape *shapes, sluice_dtype *dtypes)
{
    const sl_shape *x = sl_input_shape(g, node, 0);
    const int64_t groups = node->attrs.group_norm.groups;
    char text[SL_OPERAND_BYTES];
    SL_TRY(check_channels(g, node, 2));
    SL_TRY(check_epsilon(node, node->attrs.group_norm.epsilon));
    if (groups < 1 || sl_shape_last(x) % groups != 0)
        return sl_node_fail(node, "the channels of %s cannot be cut into %" PRId64 " groups",
                            sl_operand_text(g, node->inputs[0], text), groups);
    const sl_shape statistics = groups_of(x, node);
    give(shapes, dtypes, 0, x, g->values[node->inputs[0]].dtype);
    give(shapes, dtypes, 1, &statistics, SLUICE_F32);
    give(shapes, dtypes, 2, &statistics, SLUICE_F32);
    return SLUICE_OK;
}

sluice_status sl_infer_group_norm_grad(const sluice_graph *g, const sl_node *node, sl_shape *shapes,
                                       sluice_dtype *dtypes)
{
    const sl_shape *x = sl_input_shape(g, node, 0), c = channels_of(x), statistics = groups_of(x, node);
    const sluice_dtype type = g->values[node->inputs[0]].dtype;
    SL_TRY(check_channels(g, node, 1));
    for (int i = 2; i <= 3; i++) SL_TRY(expect_f32(g, node, i, &statistics));
    SL_TRY(sl_expect_one_type(g, node, 0, 4));
    SL_TRY(sl_expect_equal(g, node, 0, 4));
    for (int i = 0; i < 3; i++) give(shapes, dtypes, i, i == 0 ? x : &c, type);
    return SLUICE_OK;
}

/* ---- gradients ---- */

/* A residual takes the gradient as it is, or, behind a ReLU, the part of it that passes. What passed follows from x
 * without a residual, so that y need not be read. */
sluice_status sl_gradient_batch_norm(sl_autodiff *ad)
{
    const sl_node *n = &ad->node;
    const bool relu = n->attrs.batch_norm.relu, residual = n->input_count > 3;
    const int64_t ranks = n->attrs.batch_norm.ranks > 0 ? n->attrs.batch_norm.ranks : 1;
    if (!n->attrs.batch_norm.frozen && sl_shape_rows(&ad->graph->values[n->inputs[0]].shape) * ranks < 2)
        return sl_node_fail(n, "a micro-batch has one value of each channel, which leaves nothing after its mean is "
                               "taken off; train with larger micro-batches");
    if (residual && !relu) SL_TRY(sl_backward_pass(ad, n->inputs[3], ad->dy));
    sl_backward b = sl_backward_begin(ad, SL_OP_BATCH_NORM_GRAD);
    for (int i = 0; i < 3; i++) sl_backward_read(&b, n->inputs[i]);
    for (int i = 1; i <= 2; i++) sl_backward_read(&b, n->outputs[i]);
    sl_backward_read(&b, ad->dy);
    if (relu && residual) sl_backward_read(&b, n->outputs[0]);
    for (int i = 0; i < 3; i++) SL_TRY(sl_backward_write(ad, &b, n->inputs[i]));
    SL_TRY(sl_backward_write(ad, &b, relu && residual ? n->inputs[3] : -1));
    return sl_backward_end(ad, &b);
}

sluice_status sl_gradient_group_norm(sl_autodiff *ad)
{
    const sl_node *n = &ad->node;
    sl_backward b = sl_backward_begin(ad, SL_OP_GROUP_NORM_GRAD);
    sl_backward_read(&b, n->inputs[0]);
    sl_backward_read(&b, n->inputs[1]);
    for (int i = 1; i <= 2; i++) sl_backward_read(&b, n->outputs[i]);
    sl_backward_read(&b, ad->dy);
    for (int i = 0; i < 3; i++) SL_TRY(sl_backward_write(ad, &b, n->inputs[i]));
    return sl_backward_end(ad, &b);
}

/* ---- costs ---- */

/* x is read once for its sums and once to be normalised, with dy in backward; everything else once. */
sl_cost sl_cost_channel_norm(const sluice_graph *g, const sl_node *node)
{
    sl_cost c = sl_cost_pointwise(g, node);
    const bool backward = node->op == SL_OP_BATCH_NORM_GRAD || node->op == SL_OP_GROUP_NORM_GRAD;
    c.bytes += (double)sl_value_bytes(&g->values[node->inputs[0]]) * (backward ? 2 : 1);
    return c;
}

/* Of x only the shape counts. */
sl_cost sl_cost_batch_statistics(const sluice_graph *g, const sl_node *node)
{
    const double bytes = sl_operand_bytes(g, node) - (double)sl_value_bytes(&g->values[node->inputs[0]]);
    return (sl_cost){ .flops = bytes, .bytes = bytes };
}
