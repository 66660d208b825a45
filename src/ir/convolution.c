/* convolution.c: shapes, gradients and costs of convolutions and pooling over images [N, H, W, C].
 *
 * A window reads, along each of the two dimensions, `kernel` places `dilation` apart of the input and its padding, and
 * windows begin `stride` apart. */
#include <inttypes.h>

#include "ir/autodiff.h"
#include "ir/op_rows.h"

/* One dimension of the windows of a node. */
typedef struct window {
    const char *name; /* "height" */
    int64_t in, kernel, stride, padding, dilation;
    bool ceil_mode;
} window;

static window conv_window(const sl_shape *x, const sl_shape *w, const sl_attrs *attrs, bool across)
{
    if (across)
        return (window){
            "width", x->dim[2], w->dim[3], attrs->conv.stride_w, attrs->conv.padding_w, attrs->conv.dilation_w, false
        };
    return (window){
        "height", x->dim[1], w->dim[2], attrs->conv.stride_h, attrs->conv.padding_h, attrs->conv.dilation_h, false
    };
}

static window pool_window(const sl_shape *x, const sl_attrs *attrs, bool across)
{
    if (across)
        return (window){ "width",
                         x->dim[2],
                         attrs->pool.kernel_w,
                         attrs->pool.stride_w,
                         attrs->pool.padding_w,
                         1,
                         attrs->pool.ceil_mode };
    return (window){
        "height", x->dim[1], attrs->pool.kernel_h, attrs->pool.stride_h, attrs->pool.padding_h, 1, attrs->pool.ceil_mode
    };
}

static sluice_status check_range(const sl_node *node, const window *w, const char *what, int64_t have, int64_t least,
                                 int64_t most)
{
    if (have >= least && have <= most) return SLUICE_OK;
    return sl_node_fail(node, "%s of the %s is %" PRId64 ", must be %" PRId64 " to %" PRId64, what, w->name, have,
                        least, most);
}

/* How many windows there are. */
static sluice_status count_windows(const sluice_graph *g, const sl_node *node, const window *w, int64_t *out)
{
    char text[SL_OPERAND_BYTES];
    SL_TRY(check_range(node, w, "the stride", w->stride, 1, SL_MAX_WINDOW));
    SL_TRY(check_range(node, w, "the padding", w->padding, 0, SL_MAX_WINDOW));
    SL_TRY(check_range(node, w, "the dilation", w->dilation, 1, SL_MAX_WINDOW));
    int64_t span = w->dilation * (w->kernel - 1) + 1, room = w->in + 2 * w->padding - span;
    if (room < 0)
        return sl_node_fail(node, "a kernel over %" PRId64 " places does not fit the %s of %s with padding %" PRId64,
                            span, w->name, sl_operand_text(g, node->inputs[0], text), w->padding);
    int64_t count = room / w->stride + 1;
    if (w->ceil_mode) {
        count = (room + w->stride - 1) / w->stride + 1;
        if ((count - 1) * w->stride >= w->in + w->padding) count--; /* it would begin behind the input */
    }
    *out = count;
    return SLUICE_OK;
}

static sluice_status expect_images(const sluice_graph *g, const sl_node *node, int i)
{
    char text[SL_OPERAND_BYTES];
    if (sl_input_shape(g, node, i)->rank == 4) return SLUICE_OK;
    return sl_node_fail(node, "%s must have the 4 dimensions of images, [N, height, width, channels]",
                        sl_operand_text(g, node->inputs[i], text));
}

static void give(const sluice_graph *g, const sl_node *node, sl_shape *shapes, sluice_dtype *dtypes, int i,
                 const sl_shape *shape)
{
    shapes[i] = *shape;
    dtypes[i] = g->values[node->inputs[0]].dtype;
}

/* ---- convolution ---- */

/* That weight `w`, which `name` describes, maps channels of x in attrs.conv.groups groups. */
static sluice_status check_channels(const sluice_graph *g, const sl_node *node, int x, const sl_shape *w,
                                    const char *name)
{
    char text[SL_OPERAND_BYTES];
    int64_t groups = node->attrs.conv.groups, in = sl_shape_last(&g->values[x].shape);
    if (groups < 1) return sl_node_fail(node, "%" PRId64 " groups: must be 1 or more", groups);
    if (w->dim[0] % groups != 0)
        return sl_node_fail(node, "the %" PRId64 " outputs of weight %s do not make %" PRId64 " groups", w->dim[0],
                            name, groups);
    if (in % groups == 0 && in / groups == w->dim[1]) return SLUICE_OK;
    sl_operand_text(g, x, text);
    if (groups == 1)
        return sl_node_fail(node, "input %s has %" PRId64 " channels, weight %s expects %" PRId64, text, in, name,
                            w->dim[1]);
    return sl_node_fail(node, "input %s has %" PRId64 " channels, weight %s expects %" PRId64 " groups of %" PRId64,
                        text, in, name, groups, w->dim[1]);
}

/* The images that a convolution of x with a weight of shape w gives. */
static sluice_status convolved(const sluice_graph *g, const sl_node *node, const sl_shape *x, const sl_shape *w,
                               sl_shape *y)
{
    window h = conv_window(x, w, &node->attrs, false), v = conv_window(x, w, &node->attrs, true);
    *y = (sl_shape){ .rank = 4, .dim = { x->dim[0], 0, 0, w->dim[0] } };
    SL_TRY(count_windows(g, node, &h, &y->dim[1]));
    return count_windows(g, node, &v, &y->dim[2]);
}

sluice_status sl_infer_conv2d(const sluice_graph *g, const sl_node *node, sl_shape *shapes, sluice_dtype *dtypes)
{
    char text[SL_OPERAND_BYTES], other[SL_OPERAND_BYTES];
    const sl_shape *x = sl_input_shape(g, node, 0), *w = sl_input_shape(g, node, 1);
    for (int i = 0; i < node->input_count; i++) SL_TRY(sl_expect_one_type(g, node, 0, i));
    SL_TRY(expect_images(g, node, 0));
    sl_operand_text(g, node->inputs[1], text);
    if (w->rank != 4)
        return sl_node_fail(node, "weight %s must be [outputs, channels of a group, height, width]", text);
    SL_TRY(check_channels(g, node, node->inputs[0], w, text));
    if (node->input_count > 2) {
        const sl_shape *b = sl_input_shape(g, node, 2);
        if (b->rank != 1 || b->dim[0] != w->dim[0])
            return sl_node_fail(node, "bias %s must be [%" PRId64 "], the outputs of weight %s",
                                sl_operand_text(g, node->inputs[2], other), w->dim[0], text);
    }
    sl_shape y;
    SL_TRY(convolved(g, node, x, w, &y));
    give(g, node, shapes, dtypes, 0, &y);
    return SLUICE_OK;
}

/* ---- pooling ---- */

static sluice_status pooled(const sluice_graph *g, const sl_node *node, const sl_shape *x, sl_shape *y)
{
    *y = (sl_shape){ .rank = 4, .dim = { x->dim[0], 0, 0, x->dim[3] } };
    for (int across = 0; across < 2; across++) {
        window w = pool_window(x, &node->attrs, across);
        SL_TRY(check_range(node, &w, "the kernel", w.kernel, 1, SL_MAX_WINDOW));
        SL_TRY(check_range(node, &w, "the padding", w.padding, 0, w.kernel / 2));
        SL_TRY(count_windows(g, node, &w, &y->dim[1 + across]));
    }
    return SLUICE_OK;
}

/* MAX_POOL2D, AVG_POOL2D */
sluice_status sl_infer_pool2d(const sluice_graph *g, const sl_node *node, sl_shape *shapes, sluice_dtype *dtypes)
{
    sl_shape y;
    SL_TRY(sl_expect_float(g, node, 0));
    SL_TRY(expect_images(g, node, 0));
    SL_TRY(pooled(g, node, sl_input_shape(g, node, 0), &y));
    give(g, node, shapes, dtypes, 0, &y);
    return SLUICE_OK;
}

sluice_status sl_infer_global_avg_pool(const sluice_graph *g, const sl_node *node, sl_shape *shapes,
                                       sluice_dtype *dtypes)
{
    char text[SL_OPERAND_BYTES];
    const sl_shape *x = sl_input_shape(g, node, 0);
    SL_TRY(sl_expect_float(g, node, 0));
    if (x->rank < 3)
        return sl_node_fail(node, "%s has %d dimensions, needs 3 or more: [N, .., channels]",
                            sl_operand_text(g, node->inputs[0], text), x->rank);
    give(g, node, shapes, dtypes, 0, &(sl_shape){ .rank = 2, .dim = { x->dim[0], sl_shape_last(x) } });
    return SLUICE_OK;
}

/* ---- backward: a failure is a fault of sluice (infer_backward.c) ---- */

static const sl_shape *declared(const sluice_graph *g, const sl_node *node, int rank)
{
    const sl_shape *s = node->outputs[0] >= 0 ? &g->values[node->outputs[0]].shape : NULL;
    if (s != NULL && (rank == 0 || s->rank == rank)) return s;
    sl_node_fail(node, "needs its output");
    return NULL;
}

/* Fails unless input i has the shape, the result of the forward op. */
static sluice_status expect_result(const sluice_graph *g, const sl_node *node, int i, const sl_shape *result)
{
    char text[SL_OPERAND_BYTES], s[160];
    if (sl_shape_equal(sl_input_shape(g, node, i), result)) return SLUICE_OK;
    return sl_node_fail(node, "%s does not fit %s", sl_operand_text(g, node->inputs[i], text),
                        sl_shape_text(result, s, sizeof s));
}

sluice_status sl_infer_conv2d_grad_input(const sluice_graph *g, const sl_node *node, sl_shape *shapes,
                                         sluice_dtype *dtypes)
{
    sl_shape y;
    const sl_shape *x = declared(g, node, 4), *w = sl_input_shape(g, node, 1);
    if (x == NULL) return SLUICE_ERR_USAGE;
    SL_TRY(sl_expect_one_type(g, node, 0, 1));
    SL_TRY(expect_images(g, node, 1));
    SL_TRY(check_channels(g, node, node->outputs[0], w, "of the gradient"));
    SL_TRY(convolved(g, node, x, w, &y));
    SL_TRY(expect_result(g, node, 0, &y));
    give(g, node, shapes, dtypes, 0, x);
    return SLUICE_OK;
}

sluice_status sl_infer_conv2d_grad_weight(const sluice_graph *g, const sl_node *node, sl_shape *shapes,
                                          sluice_dtype *dtypes)
{
    sl_shape y;
    const sl_shape *w = declared(g, node, 4), *x = sl_input_shape(g, node, 1);
    if (w == NULL) return SLUICE_ERR_USAGE;
    SL_TRY(sl_expect_one_type(g, node, 0, 1));
    SL_TRY(expect_images(g, node, 1));
    SL_TRY(check_channels(g, node, node->inputs[1], w, "of the gradient"));
    SL_TRY(convolved(g, node, x, w, &y));
    SL_TRY(expect_result(g, node, 0, &y));
    give(g, node, shapes, dtypes, 0, w);
    give(g, node, shapes, dtypes, 1, &(sl_shape){ .rank = 1, .dim = { w->dim[0] } });
    return SLUICE_OK;
}

sluice_status sl_infer_max_pool2d_grad(const sluice_graph *g, const sl_node *node, sl_shape *shapes,
                                       sluice_dtype *dtypes)
{
    sl_shape y;
    SL_TRY(sl_expect_one_type(g, node, 0, 1));
    SL_TRY(expect_images(g, node, 0));
    SL_TRY(pooled(g, node, sl_input_shape(g, node, 0), &y));
    SL_TRY(expect_result(g, node, 1, &y));
    give(g, node, shapes, dtypes, 0, sl_input_shape(g, node, 0));
    return SLUICE_OK;
}

sluice_status sl_infer_avg_pool2d_grad(const sluice_graph *g, const sl_node *node, sl_shape *shapes,
                                       sluice_dtype *dtypes)
{
    sl_shape y;
    const sl_shape *x = declared(g, node, 4);
    if (x == NULL) return SLUICE_ERR_USAGE;
    SL_TRY(sl_expect_float(g, node, 0));
    SL_TRY(pooled(g, node, x, &y));
    SL_TRY(expect_result(g, node, 0, &y));
    give(g, node, shapes, dtypes, 0, x);
    return SLUICE_OK;
}

sluice_status sl_infer_global_avg_pool_grad(const sluice_graph *g, const sl_node *node, sl_shape *shapes,
                                            sluice_dtype *dtypes)
{
    const sl_shape *x = declared(g, node, 0);
    if (x == NULL || x->rank < 3) return SLUICE_ERR_USAGE;
    SL_TRY(sl_expect_float(g, node, 0));
    SL_TRY(expect_result(g, node, 0, &(sl_shape){ .rank = 2, .dim = { x->dim[0], sl_shape_last(x) } }));
    give(g, node, shapes, dtypes, 0, x);
    return SLUICE_OK;
}

/* ---- gradients ---- */

/* As for a product, the weight's gradient comes first: after it the layer's input is no longer needed. */
sluice_status sl_gradient_conv2d(sl_autodiff *ad)
{
    int x = ad->node.inputs[0], weight = ad->node.inputs[1], bias = ad->node.input_count > 2 ? ad->node.inputs[2] : -1;
    if (sl_wants_gradient(ad, weight)) {
        sl_backward b = sl_backward_begin(ad, SL_OP_CONV2D_GRAD_WEIGHT);
        sl_backward_read(&b, ad->dy);
        sl_backward_read(&b, x);
        SL_TRY(sl_backward_write(ad, &b, weight));
        SL_TRY(sl_backward_write(ad, &b, bias));
        SL_TRY(sl_backward_end(ad, &b));
    } else if (bias >= 0 && sl_wants_gradient(ad, bias)) {
        sl_backward b = sl_backward_begin(ad, SL_OP_REDUCE_TO);
        sl_backward_read(&b, ad->dy);
        SL_TRY(sl_backward_write(ad, &b, bias));
        SL_TRY(sl_backward_end(ad, &b));
    }
    if (!sl_wants_gradient(ad, x)) return SLUICE_OK;
    sl_backward b = sl_backward_begin(ad, SL_OP_CONV2D_GRAD_INPUT);
    sl_backward_read(&b, ad->dy);
    sl_backward_read(&b, weight);
    SL_TRY(sl_backward_write(ad, &b, x));
    return sl_backward_end(ad, &b);
}

/* An average is linear: its gradient needs dy alone. */
sluice_status sl_gradient_pool_average(sl_autodiff *ad)
{
    if (!sl_wants_gradient(ad, ad->node.inputs[0])) return SLUICE_OK;
    sl_backward b = sl_backward_begin(ad, sl_ops[ad->node.op].backward);
    sl_backward_read(&b, ad->dy);
    SL_TRY(sl_backward_write(ad, &b, ad->node.inputs[0]));
    return sl_backward_end(ad, &b);
}

/* ---- costs: every place of a window counts, those in the padding too ---- */

/* Operands once, accumulated outputs twice; 2 operations for each output element and weight of its channel. */
static sl_cost conv_cost(const sluice_graph *g, const sl_node *node, const sl_shape *y, const sl_shape *w)
{
    double products = (double)sl_shape_elements(y) * (double)(sl_shape_elements(w) / w->dim[0]);
    return (sl_cost){ 2 * products, sl_cost_pointwise(g, node).bytes };
}

sl_cost sl_cost_conv2d(const sluice_graph *g, const sl_node *node)
{
    return conv_cost(g, node, &g->values[node->outputs[0]].shape, sl_input_shape(g, node, 1));
}

sl_cost sl_cost_conv2d_grad_input(const sluice_graph *g, const sl_node *node)
{
    return conv_cost(g, node, sl_input_shape(g, node, 0), sl_input_shape(g, node, 1));
}

sl_cost sl_cost_conv2d_grad_weight(const sluice_graph *g, const sl_node *node)
{
    return conv_cost(g, node, sl_input_shape(g, node, 0), &g->values[node->outputs[0]].shape);
}
