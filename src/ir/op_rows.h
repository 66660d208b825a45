/* op_rows.h: the functions that fill the columns of the op table, and the shape helpers they share. Private to ir/. */
#ifndef SL_IR_OP_ROWS_H
#define SL_IR_OP_ROWS_H

#include "ir/graph.h"

/* ---- shape.c: helpers beyond graph.h ---- */

/* NULL for a shape a value may have; otherwise what is wrong with it, for a message. */
const char *sl_shape_fault(const sl_shape *s, sluice_dtype dtype);
int64_t sl_shape_last(const sl_shape *s); /* last dimension; 1 for a scalar */
int64_t sl_shape_rows(const sl_shape *s); /* elements / last dimension */
/* NumPy's rule: shapes are aligned at the end, missing and unit dimensions stretch. False where they do not agree. */
bool sl_shape_broadcast(const sl_shape *a, const sl_shape *b, sl_shape *out);

/* ---- infer.c: messages ---- */

#define SL_OPERAND_BYTES 256
/* `"relu_1" (relu) [4, 16]`: a value with its producer and shape, into buf of SL_OPERAND_BYTES. */
const char *sl_operand_text(const sluice_graph *g, int value, char *buf);
/* Records `op "name": message` as a usage error and returns it. */
sluice_status sl_node_fail(const sl_node *node, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Fails unless input i has the dtype. */
sluice_status sl_expect_dtype(const sluice_graph *g, const sl_node *node, int i, sluice_dtype dtype);
/* Fails where input i is of integers. */
sluice_status sl_expect_float(const sluice_graph *g, const sl_node *node, int i);
/* Fails unless inputs i and j are of one float type. */
sluice_status sl_expect_one_type(const sluice_graph *g, const sl_node *node, int i, int j);
/* Fails unless inputs i and j have equal shapes. */
sluice_status sl_expect_equal(const sluice_graph *g, const sl_node *node, int i, int j);

static inline const sl_shape *sl_input_shape(const sluice_graph *g, const sl_node *node, int i)
{
    return &g->values[node->inputs[i]].shape;
}

/* op_cost.c: every operand once; an accumulated output is read as well. */
double sl_operand_bytes(const sluice_graph *g, const sl_node *node);

/* ---- the columns: infer.c, infer_backward.c, gradients.c, sequences.c, op_cost.c, attributes.c. Prototypes come from the rows of
 * op_list.h; a function that serves several ops is declared as often ---- */

typedef sluice_status sl_infer_fn(const sluice_graph *g, const sl_node *node, sl_shape *shapes, sluice_dtype *dtypes);
typedef sluice_status sl_gradient_fn(struct sl_autodiff *ad);
typedef sl_cost sl_cost_fn(const sluice_graph *g, const sl_node *node);
#define SL_FORWARD_OP(op, name, infer, gradient, cost, ...)                                                            \
    sl_infer_fn sl_infer_##infer;                                                                                      \
    sl_gradient_fn sl_gradient_##gradient;                                                                             \
    sl_cost_fn sl_cost_##cost;
#define SL_BACKWARD_OP(op, name, infer, cost, ...)                                                                     \
    sl_infer_fn sl_infer_##infer;                                                                                      \
    sl_cost_fn sl_cost_##cost;
#define SL_UPDATE_OP(op, name, cost, ...) sl_cost_fn sl_cost_##cost;
#define SL_ATTRIBUTES(group, fields)      extern const sl_attribute_list sl_attributes_##group;
#include "ir/op_list.h"
extern const sl_attribute_list sl_attributes_none;

#endif
