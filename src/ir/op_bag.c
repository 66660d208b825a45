/* op_bag.c: sums and means over runs of rows, such as the embeddings of a list of categories. Shapes and gradient.
 *
 * Runs are given as compressed rows (CSR): the row pointers without the leading 0, so that an input of them has one element
 * for each sample. Rows behind the last run are room that is not used; their gradient is zero. */
#include <inttypes.h>

#include "ir/autodiff.h"
#include "ir/op_rows.h"

/* Rows of x[..,C]. */
static int64_t rows_of(const sl_shape *x)
{
    return x->rank > 0 ? sl_shape_elements(x) / sl_shape_last(x) : 0;
}

static sluice_status expect_ends(const sluice_graph *g, const sl_node *node, int input)
{
    char text[SL_OPERAND_BYTES];
    SL_TRY(sl_expect_dtype(g, node, input, SLUICE_I32));
    if (sl_input_shape(g, node, input)->rank == 1) return SLUICE_OK;
    return sl_node_fail(node, "%s has %d dimensions, needs 1: where each bag ends",
                        sl_operand_text(g, node->inputs[input], text), sl_input_shape(g, node, input)->rank);
}

sluice_status sl_infer_bag(const sluice_graph *g, const sl_node *node, sl_shape *shapes, sluice_dtype *dtypes)
{
    char text[SL_OPERAND_BYTES];
    const sl_shape *x = sl_input_shape(g, node, 0);
    SL_TRY(sl_expect_float(g, node, 0));
    SL_TRY(expect_ends(g, node, 1));
    if (x->rank < 2 || rows_of(x) > INT32_MAX)
        return sl_node_fail(node, "%s is not a tensor of rows: it needs 2 dimensions or more, and at most %d rows",
                            sl_operand_text(g, node->inputs[0], text), INT32_MAX);
    shapes[0] = (sl_shape){ .rank = 2, .dim = { sl_input_shape(g, node, 1)->dim[0], sl_shape_last(x) } };
    dtypes[0] = g->values[node->inputs[0]].dtype;
    return SLUICE_OK;
}

sluice_status sl_infer_bag_grad(const sluice_graph *g, const sl_node *node, sl_shape *shapes, sluice_dtype *dtypes)
{
    if (node->outputs[0] < 0) return sl_node_fail(node, "needs its output");
    const sl_shape *x = &g->values[node->outputs[0]].shape, *dy = sl_input_shape(g, node, 1);
    char text[SL_OPERAND_BYTES];
    SL_TRY(expect_ends(g, node, 0));
    SL_TRY(sl_expect_float(g, node, 1));
    if (dy->rank != 2 || x->rank < 2 || dy->dim[0] != sl_input_shape(g, node, 0)->dim[0] ||
        dy->dim[1] != sl_shape_last(x))
        return sl_node_fail(node, "%s does not fit the rows", sl_operand_text(g, node->inputs[1], text));
    shapes[0] = *x;
    dtypes[0] = g->values[node->inputs[1]].dtype;
    return SLUICE_OK;
}

sluice_status sl_gradient_bag(sl_autodiff *ad)
{
    if (!sl_wants_gradient(ad, ad->node.inputs[0])) return SLUICE_OK;
    sl_backward b = sl_backward_begin(ad, SL_OP_BAG_GRAD);
    sl_backward_read(&b, ad->node.inputs[1]);
    sl_backward_read(&b, ad->dy);
    SL_TRY(sl_backward_write(ad, &b, ad->node.inputs[0]));
    return sl_backward_end(ad, &b);
}

/* ---- for callers ---- */

sluice_status sluice_bag_ends(const int32_t *bags, int64_t count, int64_t bag_count, int32_t *ends)
{
    int64_t bag = 0;
    if ((bags == NULL && count > 0) || (ends == NULL && bag_count > 0))
        return sl_fail(SLUICE_ERR_USAGE, "sluice_bag_ends: %s is NULL", ends == NULL ? "ends" : "bags");
    if (count < 0 || count > INT32_MAX || bag_count < 0 || bag_count > INT32_MAX)
        return sl_fail(SLUICE_ERR_USAGE,
                       "sluice_bag_ends: %" PRId64 " entries in %" PRId64 " bags; give 0 to %d of each", count,
                       bag_count, INT32_MAX);
    for (int64_t i = 0; i < count; i++) {
        if (bags[i] < 0 || bags[i] >= bag_count || (i > 0 && bags[i] < bags[i - 1]))
            return sl_fail(SLUICE_ERR_INPUT,
                           "sluice_bag_ends: entry %" PRId64 " is of bag %" PRId32 "; bags are 0 to %" PRId64
                           ", in increasing order",
                           i, bags[i], bag_count - 1);
        while (bag < bags[i]) ends[bag++] = (int32_t)i;
    }
    while (bag < bag_count) ends[bag++] = (int32_t)count;
    return SLUICE_OK;
}
