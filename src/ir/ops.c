/* ops.c: the op table. Everything that is true of an op and not of a backend is in its row. */
#include "ir/rows.h"

#define NONE (-1)

/* name, inputs from, to, outputs, accumulates, view, in place, infer, gradient, cost, saved, wide outputs */
const sl_op_def sl_ops[SL_OP_COUNT] = {
    /* clang-format off */
    [SL_OP_ADD]           = { "add", 2, 2, 1, false, false, 0, sl_infer_broadcast, sl_gradient_add, sl_cost_pointwise, { 0 }, 0 },
    [SL_OP_MULTIPLY]      = { "multiply", 2, 2, 1, false, false, NONE, sl_infer_broadcast, sl_gradient_multiply, sl_cost_pointwise, { 0 }, 0 },
    [SL_OP_SCALE]         = { "scale", 1, 1, 1, false, false, 0, sl_infer_same, sl_gradient_scale, sl_cost_pointwise, { 0 }, 0 },
    [SL_OP_LINEAR]        = { "linear", 2, 3, 1, false, false, NONE, sl_infer_linear, sl_gradient_linear, sl_cost_linear, { 0 }, 0 },
    [SL_OP_LINEAR_GELU]   = { "linear_gelu", 2, 3, 2, false, false, NONE, sl_infer_linear_gelu, sl_gradient_linear_gelu, sl_cost_linear, { "linear" }, 0 },
    [SL_OP_MATMUL]        = { "matmul", 2, 2, 1, false, false, NONE, sl_infer_matmul, sl_gradient_matmul, sl_cost_matmul, { 0 }, 0 },
    [SL_OP_EMBEDDING]     = { "embedding", 2, 2, 1, false, false, NONE, sl_infer_embedding, sl_gradient_embedding, sl_cost_embedding, { 0 }, 0 },
    [SL_OP_RELU]          = { "relu", 1, 1, 1, false, false, 0, sl_infer_same, sl_gradient_relu, sl_cost_pointwise, { 0 }, 0 },
    [SL_OP_GELU]          = { "gelu", 1, 1, 1, false, false, 0, sl_infer_same, sl_gradient_gelu, sl_cost_pointwise, { 0 }, 0 },
    [SL_OP_SILU]          = { "silu", 1, 1, 1, false, false, 0, sl_infer_same, sl_gradient_silu, sl_cost_pointwise, { 0 }, 0 },
    [SL_OP_SWIGLU]        = { "swiglu", 1, 1, 1, false, false, NONE, sl_infer_swiglu, sl_gradient_swiglu, sl_cost_pointwise, { 0 }, 0 },
    [SL_OP_SOFTMAX]       = { "softmax", 1, 1, 1, false, false, 0, sl_infer_softmax, sl_gradient_softmax, sl_cost_pointwise, { 0 }, 0 },
    [SL_OP_LAYER_NORM]    = { "layer_norm", 2, 3, 3, false, false, NONE, sl_infer_layer_norm, sl_gradient_layer_norm, sl_cost_pointwise, { "mean", "rstd" }, 0 },
    [SL_OP_RMS_NORM]      = { "rms_norm", 2, 2, 2, false, false, NONE, sl_infer_rms_norm, sl_gradient_rms_norm, sl_cost_pointwise, { "rstd" }, 0 },
    [SL_OP_ROTARY]        = { "rotary", 1, 1, 1, false, false, 0, sl_infer_rotary, sl_gradient_rotary, sl_cost_pointwise, { 0 }, 0 },
    [SL_OP_ATTENTION]     = { "attention", 1, 3, 2, false, false, NONE, sl_infer_attention, sl_gradient_attention, sl_cost_attention, { "lse" }, 0 },
    [SL_OP_DROPOUT]       = { "dropout", 1, 1, 1, false, false, 0, sl_infer_same, sl_gradient_dropout, sl_cost_pointwise, { 0 }, 0 },
    [SL_OP_RESHAPE]       = { "reshape", 1, 1, 1, false, true, NONE, sl_infer_reshape, sl_gradient_reshape, sl_cost_view, { 0 }, 0 },
    [SL_OP_TRANSPOSE]     = { "transpose", 1, 1, 1, false, false, NONE, sl_infer_transpose, sl_gradient_transpose, sl_cost_pointwise, { 0 }, 0 },
    [SL_OP_SPLIT]         = { "split", 1, 1, 1, false, false, NONE, sl_infer_split, sl_gradient_split, sl_cost_part, { 0 }, 0 },
    [SL_OP_CONCAT]        = { "concat", 1, SL_MAX_INPUTS, 1, false, false, NONE, sl_infer_concat, sl_gradient_concat, sl_cost_pointwise, { 0 }, 0 },
    [SL_OP_CROSS_ENTROPY] = { "cross_entropy", 2, 2, 3, false, false, NONE, sl_infer_cross_entropy, sl_gradient_cross_entropy, sl_cost_pointwise, { "lse", "count" }, 0 },
    [SL_OP_LINEAR_CROSS_ENTROPY] = { "linear_cross_entropy", 3, 3, 4, false, false, NONE, sl_infer_linear_cross_entropy, sl_gradient_linear_cross_entropy, sl_cost_linear_cross_entropy, { "count", "dw", "dx" }, 0 },
    [SL_OP_MSE]           = { "mse", 2, 2, 1, false, false, NONE, sl_infer_mse, sl_gradient_mse, sl_cost_pointwise, { 0 }, 0 },
    [SL_OP_SUM]           = { "sum", 1, 1, 1, false, false, NONE, sl_infer_scalar, sl_gradient_sum, sl_cost_pointwise, { 0 }, 0 },
    [SL_OP_MEAN]          = { "mean", 1, 1, 1, false, false, NONE, sl_infer_scalar, sl_gradient_mean, sl_cost_pointwise, { 0 }, 0 },
    [SL_OP_CAST]          = { "cast", 1, 1, 1, true, false, NONE, sl_infer_cast, sl_gradient_cast, sl_cost_pointwise, { 0 }, 1 },

    [SL_OP_SEED]               = { "seed", 0, 0, 1, false, false, NONE, sl_infer_seed, NULL, sl_cost_pointwise, { 0 }, 0 },
    [SL_OP_REDUCE_TO]          = { "reduce_to", 1, 1, 1, true, false, NONE, sl_infer_reduce_to, NULL, sl_cost_pointwise, { 0 }, 1 },
    [SL_OP_MULTIPLY_REDUCE]    = { "multiply_reduce", 2, 2, 1, true, false, NONE, sl_infer_multiply_reduce, NULL, sl_cost_pointwise, { 0 }, 1 },
    [SL_OP_LINEAR_GRAD_INPUT]  = { "linear_grad_input", 2, 2, 1, true, false, NONE, sl_infer_linear_grad_input, NULL, sl_cost_linear_grad_input, { 0 }, 0 },
    [SL_OP_LINEAR_GRAD_GELU]   = { "linear_grad_gelu", 3, 3, 1, false, false, NONE, sl_infer_linear_grad_gelu, NULL, sl_cost_linear_grad_input, { 0 }, 0 },
    [SL_OP_LINEAR_GRAD_WEIGHT] = { "linear_grad_weight", 2, 2, 2, true, false, NONE, sl_infer_linear_grad_weight, NULL, sl_cost_linear_grad_weight, { 0 }, 3 },
    [SL_OP_EMBEDDING_GRAD]     = { "embedding_grad", 2, 2, 1, true, false, NONE, sl_infer_embedding_grad, NULL, sl_cost_embedding_grad, { 0 }, 1 },
    [SL_OP_RELU_GRAD]          = { "relu_grad", 2, 2, 1, true, false, 1, sl_infer_pointwise_grad, NULL, sl_cost_pointwise, { 0 }, 0 },
    [SL_OP_GELU_GRAD]          = { "gelu_grad", 2, 2, 1, true, false, 1, sl_infer_pointwise_grad, NULL, sl_cost_pointwise, { 0 }, 0 },
    [SL_OP_SILU_GRAD]          = { "silu_grad", 2, 2, 1, true, false, 1, sl_infer_pointwise_grad, NULL, sl_cost_pointwise, { 0 }, 0 },
    [SL_OP_SWIGLU_GRAD]        = { "swiglu_grad", 2, 2, 1, true, false, NONE, sl_infer_swiglu_grad, NULL, sl_cost_pointwise, { 0 }, 0 },
    [SL_OP_SOFTMAX_GRAD]       = { "softmax_grad", 2, 2, 1, true, false, 1, sl_infer_pointwise_grad, NULL, sl_cost_pointwise, { 0 }, 0 },
    [SL_OP_LAYER_NORM_GRAD]    = { "layer_norm_grad", 5, 5, 3, true, false, NONE, sl_infer_layer_norm_grad, NULL, sl_cost_pointwise, { 0 }, 6 },
    [SL_OP_RMS_NORM_GRAD]      = { "rms_norm_grad", 4, 4, 2, true, false, NONE, sl_infer_rms_norm_grad, NULL, sl_cost_pointwise, { 0 }, 2 },
    [SL_OP_ATTENTION_GRAD]     = { "attention_grad", 4, 6, 3, false, false, NONE, sl_infer_attention_grad, NULL, sl_cost_attention_grad, { 0 }, 0 },
    [SL_OP_CONCAT_GRAD]        = { "concat_grad", 1, 1, 1, true, false, NONE, sl_infer_split, NULL, sl_cost_part, { 0 }, 0 },
    [SL_OP_SPLIT_GRAD]         = { "split_grad", 1, 1, 1, true, false, NONE, sl_infer_split_grad, NULL, sl_cost_part, { 0 }, 0 },
    [SL_OP_CROSS_ENTROPY_GRAD] = { "cross_entropy_grad", 5, 5, 1, false, false, 0, sl_infer_cross_entropy_grad, NULL, sl_cost_pointwise, { 0 }, 0 },
    [SL_OP_LINEAR_CROSS_ENTROPY_GRAD] = { "linear_cross_entropy_grad", 3, 3, 2, true, false, 0, sl_infer_linear_cross_entropy_grad, NULL, sl_cost_pointwise, { 0 }, 1 },
    [SL_OP_MSE_GRAD]           = { "mse_grad", 3, 3, 2, true, false, NONE, sl_infer_mse_grad, NULL, sl_cost_pointwise, { 0 }, 0 },
    [SL_OP_EXPAND]             = { "expand", 1, 1, 1, true, false, NONE, sl_infer_expand, NULL, sl_cost_pointwise, { 0 }, 1 },

    [SL_OP_ACCUMULATE]  = { "accumulate", 0, SL_MAX_INPUTS, SL_MAX_OUTPUTS, false, false, NONE, NULL, NULL, sl_cost_flat, { 0 }, 0 },
    [SL_OP_NORM_LEAVES] = { "norm_leaves", 0, SL_MAX_INPUTS, SL_MAX_OUTPUTS, false, false, NONE, NULL, NULL, sl_cost_flat, { 0 }, 0 },
    [SL_OP_NORM_FINISH] = { "norm_finish", 0, SL_MAX_INPUTS, SL_MAX_OUTPUTS, false, false, NONE, NULL, NULL, sl_cost_flat, { 0 }, 0 },
    [SL_OP_UPDATE]      = { "update", 0, SL_MAX_INPUTS, SL_MAX_OUTPUTS, false, false, NONE, NULL, NULL, sl_cost_flat, { 0 }, 0 },
    /* clang-format on */
};
