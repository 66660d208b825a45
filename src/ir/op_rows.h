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

/* ---- the infer column: infer.c for forward ops, infer_backward.c for the others ---- */

typedef sluice_status sl_infer_fn(const sluice_graph *g, const sl_node *node, sl_shape *shapes, sluice_dtype *dtypes);
sl_infer_fn sl_infer_broadcast, sl_infer_same, sl_infer_softmax, sl_infer_linear, sl_infer_matmul, sl_infer_embedding;
sl_infer_fn sl_infer_layer_norm, sl_infer_rms_norm, sl_infer_rotary, sl_infer_attention, sl_infer_reshape;
sl_infer_fn sl_infer_transpose, sl_infer_split, sl_infer_concat, sl_infer_cross_entropy, sl_infer_mse, sl_infer_scalar;
sl_infer_fn sl_infer_seed, sl_infer_reduce_to, sl_infer_multiply_reduce, sl_infer_linear_grad_input;
sl_infer_fn sl_infer_linear_grad_weight, sl_infer_embedding_grad, sl_infer_pointwise_grad, sl_infer_layer_norm_grad;
sl_infer_fn sl_infer_rms_norm_grad, sl_infer_attention_grad, sl_infer_split_grad, sl_infer_cross_entropy_grad;
sl_infer_fn sl_infer_mse_grad, sl_infer_expand, sl_infer_cast, sl_infer_swiglu, sl_infer_swiglu_grad;
sl_infer_fn sl_infer_linear_cross_entropy, sl_infer_linear_cross_entropy_grad, sl_infer_linear_gelu;
sl_infer_fn sl_infer_linear_grad_gelu, sl_infer_linear_add;

/* ---- the gradient column: gradients.c ---- */

typedef sluice_status sl_gradient_fn(struct sl_autodiff *ad);
sl_gradient_fn sl_gradient_add, sl_gradient_multiply, sl_gradient_scale, sl_gradient_linear, sl_gradient_matmul;
sl_gradient_fn sl_gradient_embedding, sl_gradient_relu, sl_gradient_gelu, sl_gradient_silu, sl_gradient_softmax;
sl_gradient_fn sl_gradient_layer_norm, sl_gradient_rms_norm, sl_gradient_rotary, sl_gradient_attention;
sl_gradient_fn sl_gradient_dropout, sl_gradient_reshape, sl_gradient_transpose, sl_gradient_split, sl_gradient_concat;
sl_gradient_fn sl_gradient_cross_entropy, sl_gradient_mse, sl_gradient_sum, sl_gradient_mean, sl_gradient_cast;
sl_gradient_fn sl_gradient_swiglu, sl_gradient_linear_cross_entropy, sl_gradient_linear_gelu, sl_gradient_linear_add;

/* ---- the cost column: cost.c ---- */

typedef sl_cost sl_cost_fn(const sluice_graph *g, const sl_node *node);
sl_cost_fn sl_cost_pointwise, sl_cost_view, sl_cost_linear, sl_cost_linear_grad_input, sl_cost_linear_grad_weight;
sl_cost_fn sl_cost_matmul, sl_cost_embedding, sl_cost_embedding_grad, sl_cost_attention, sl_cost_attention_grad;
sl_cost_fn sl_cost_part, sl_cost_flat, sl_cost_linear_cross_entropy;

#endif
