/* op_kernels.h: what computes each op, one row per op, for all backends. The CPU's table, prototypes and workspaces
 * (cpu/kernels/isa.h, cpu/kernels/kernel_table.c, cpu/cpu_workspace.c) and those of CUDA (cuda/cuda_kernels.h,
 * cuda/cuda_table.c, cuda/cuda_workspace.c) are made of these rows. To be included: define SL_OP_KERNEL, which is
 * undefined at the end.
 *
 *   SL_OP_KERNEL(OP, name, on the CPU, its workspace or why there is none, on CUDA, likewise)
 *
 * On the CPU  TYPED: K(name), compiled for each element type. UNTYPED: KI(name), compiled once for all of them.
 * On CUDA     KERNEL: sl_cuda_name, which serves all element types.
 * NO_KERNEL   nothing computes the op there, for the reason given in place of a workspace.
 * Workspace   what sl_cpu_<workspace>_workspace or sl_cuda_<workspace>_workspace says; `none`: 0. They are plain C,
 *             linked without the kernels: plans for a GPU are made where there is none.
 *
 * An op without a row does not compile (cpu/cpu_workspace.c), nor does one with two. */
/* clang-format off */

/* never computed */
SL_OP_KERNEL(RESHAPE, reshape, NO_KERNEL, "a view of its input", NO_KERNEL, "a view of its input")
/* cpu/kernels/pointwise.c, cuda/pointwise.cu */
SL_OP_KERNEL(ADD, add, TYPED, none, KERNEL, none)
SL_OP_KERNEL(MULTIPLY, multiply, TYPED, none, KERNEL, none)
SL_OP_KERNEL(SCALE, scale, TYPED, none, KERNEL, none)
SL_OP_KERNEL(RELU, relu, TYPED, none, KERNEL, none)
SL_OP_KERNEL(GELU, gelu, TYPED, none, KERNEL, none)
SL_OP_KERNEL(SILU, silu, TYPED, none, KERNEL, none)
SL_OP_KERNEL(TANH, tanh, TYPED, none, KERNEL, none)
SL_OP_KERNEL(SIGMOID, sigmoid, TYPED, none, KERNEL, none)
SL_OP_KERNEL(SWIGLU, swiglu, TYPED, none, KERNEL, none)
SL_OP_KERNEL(GEGLU, geglu, TYPED, none, KERNEL, none)
SL_OP_KERNEL(SOFTCAP, softcap, TYPED, none, KERNEL, none)
SL_OP_KERNEL(RELU_GRAD, relu_grad, TYPED, none, KERNEL, none)
SL_OP_KERNEL(GELU_GRAD, gelu_grad, TYPED, none, KERNEL, none)
SL_OP_KERNEL(SILU_GRAD, silu_grad, TYPED, none, KERNEL, none)
SL_OP_KERNEL(TANH_GRAD, tanh_grad, TYPED, none, KERNEL, none)
SL_OP_KERNEL(SIGMOID_GRAD, sigmoid_grad, TYPED, none, KERNEL, none)
SL_OP_KERNEL(SWIGLU_GRAD, swiglu_grad, TYPED, none, KERNEL, none)
SL_OP_KERNEL(GEGLU_GRAD, geglu_grad, TYPED, none, KERNEL, none)
SL_OP_KERNEL(SOFTCAP_GRAD, softcap_grad, TYPED, none, KERNEL, none)
SL_OP_KERNEL(SEED, seed, TYPED, none, KERNEL, none)
SL_OP_KERNEL(EXPAND, expand, TYPED, none, KERNEL, none)
/* cpu/kernels/dropout.c, cuda/pointwise.cu */
SL_OP_KERNEL(DROPOUT, dropout, TYPED, none, KERNEL, none)
/* cpu/kernels/cast.c, cuda/pointwise.cu */
SL_OP_KERNEL(CAST, cast, UNTYPED, none, KERNEL, none)
/* cpu/kernels/reduce.c, cuda/reduce.cu */
SL_OP_KERNEL(REDUCE_TO, reduce_to, TYPED, none, KERNEL, reduce)
SL_OP_KERNEL(MULTIPLY_REDUCE, multiply_reduce, TYPED, none, KERNEL, reduce)
SL_OP_KERNEL(SUM, sum, TYPED, none, KERNEL, reduce)
SL_OP_KERNEL(MEAN, mean, TYPED, none, KERNEL, reduce)
/* cpu/kernels/loss.c, cuda/reduce.cu */
SL_OP_KERNEL(MSE, mse, TYPED, none, KERNEL, reduce)
SL_OP_KERNEL(MSE_GRAD, mse_grad, TYPED, none, KERNEL, none)
/* cpu/kernels/bce.c, cuda/bce.cu */
SL_OP_KERNEL(BCE_WITH_LOGITS, bce_with_logits, TYPED, none, KERNEL, reduce)
SL_OP_KERNEL(BCE_WITH_LOGITS_GRAD, bce_with_logits_grad, TYPED, none, KERNEL, none)
/* cpu/kernels/reorder.c, cuda/shape.cu */
SL_OP_KERNEL(TRANSPOSE, transpose, TYPED, none, KERNEL, none)
SL_OP_KERNEL(SPLIT, split, TYPED, none, KERNEL, none)
SL_OP_KERNEL(ADD_PART, add_part, TYPED, none, KERNEL, none)
SL_OP_KERNEL(CONCAT, concat, TYPED, none, KERNEL, none)
SL_OP_KERNEL(CONCAT_GRAD, concat_grad, TYPED, none, KERNEL, none)
SL_OP_KERNEL(SPLIT_GRAD, split_grad, TYPED, none, KERNEL, none)
/* cpu/kernels/softmax.c, cuda/softmax.cu */
SL_OP_KERNEL(SOFTMAX, softmax, TYPED, none, KERNEL, none)
SL_OP_KERNEL(SOFTMAX_GRAD, softmax_grad, TYPED, none, KERNEL, none)
SL_OP_KERNEL(LOG_SOFTMAX, log_softmax, TYPED, none, KERNEL, none)
SL_OP_KERNEL(LOG_SOFTMAX_GRAD, log_softmax_grad, TYPED, none, KERNEL, none)
/* cpu/kernels/norm.c, cuda/norm.cu */
SL_OP_KERNEL(LAYER_NORM, layer_norm, TYPED, none, KERNEL, norm)
SL_OP_KERNEL(LAYER_NORM_GRAD, layer_norm_grad, TYPED, none, KERNEL, norm)
SL_OP_KERNEL(RMS_NORM, rms_norm, TYPED, none, KERNEL, norm)
SL_OP_KERNEL(RMS_NORM_GRAD, rms_norm_grad, TYPED, none, KERNEL, norm)
/* cpu/kernels/channel_norm.c, cuda/channel_norm.cu */
SL_OP_KERNEL(BATCH_NORM, batch_norm, TYPED, channel_norm, KERNEL, channel_norm)
SL_OP_KERNEL(BATCH_NORM_GRAD, batch_norm_grad, TYPED, channel_norm, KERNEL, channel_norm)
SL_OP_KERNEL(BATCH_MOMENTS, batch_moments, TYPED, channel_norm, KERNEL, shared_norm)
SL_OP_KERNEL(BATCH_STATISTICS, batch_statistics, TYPED, none, KERNEL, none)
SL_OP_KERNEL(BATCH_NORMALIZE, batch_normalize, TYPED, channel_norm, KERNEL, none)
SL_OP_KERNEL(BATCH_NORM_SUMS, batch_norm_sums, TYPED, channel_norm, KERNEL, shared_norm)
SL_OP_KERNEL(BATCH_NORMALIZE_GRAD, batch_normalize_grad, TYPED, channel_norm, KERNEL, shared_norm)
SL_OP_KERNEL(GROUP_NORM, group_norm, TYPED, channel_norm, KERNEL, channel_norm)
SL_OP_KERNEL(GROUP_NORM_GRAD, group_norm_grad, TYPED, channel_norm, KERNEL, channel_norm)
/* cpu/kernels/qk_norm.c, cuda/qk_norm.cu */
SL_OP_KERNEL(QK_NORM, qk_norm, TYPED, none, KERNEL, none)
SL_OP_KERNEL(QK_NORM_GRAD, qk_norm_grad, TYPED, qk_norm, KERNEL, qk_norm)
/* cpu/kernels/rotary.c, cuda/rotary.cu */
SL_OP_KERNEL(ROTARY, rotary, TYPED, none, KERNEL, none)
/* cpu/kernels/attention.c, cuda/attention.cu */
SL_OP_KERNEL(ATTENTION, attention, TYPED, none, KERNEL, attention)
SL_OP_KERNEL(ATTENTION_GRAD, attention_grad, TYPED, none, KERNEL, attention)
/* cpu/kernels/attention_cached.c, cuda/attention_cached.cu */
SL_OP_KERNEL(ATTENTION_CACHED, attention_cached, TYPED, none, KERNEL, none)
/* cpu/kernels/embedding.c, cuda/embedding.cu */
SL_OP_KERNEL(EMBEDDING, embedding, TYPED, none, KERNEL, none)
SL_OP_KERNEL(EMBEDDING_GRAD, embedding_grad, TYPED, none, KERNEL, embedding)
/* cpu/kernels/bag.c, cuda/bag.cu */
SL_OP_KERNEL(BAG, bag, TYPED, none, KERNEL, none)
SL_OP_KERNEL(BAG_GRAD, bag_grad, TYPED, none, KERNEL, none)
/* cpu/kernels/loss.c, cuda/loss.cu */
SL_OP_KERNEL(CROSS_ENTROPY, cross_entropy, TYPED, none, KERNEL, loss)
SL_OP_KERNEL(CROSS_ENTROPY_GRAD, cross_entropy_grad, TYPED, none, KERNEL, loss)
/* cpu/kernels/ctc.c, cuda/ctc.cu */
SL_OP_KERNEL(CTC_LOSS, ctc_loss, TYPED, ctc, KERNEL, ctc)
/* cpu/kernels/gru.c, cuda/cuda_gru.c */
SL_OP_KERNEL(GRU, gru, TYPED, gru, KERNEL, gru)
SL_OP_KERNEL(GRU_GRAD, gru_grad, TYPED, gru_grad, KERNEL, gru)
/* cpu/kernels/saved_gradient.c, cuda/loss.cu */
SL_OP_KERNEL(CTC_LOSS_GRAD, ctc_loss_grad, TYPED, none, KERNEL, loss)
SL_OP_KERNEL(LINEAR_CROSS_ENTROPY_GRAD, linear_cross_entropy_grad, TYPED, none, KERNEL, loss)
/* cpu/kernels/linear.c, cuda/cuda_linear.c */
SL_OP_KERNEL(LINEAR, linear, TYPED, none, KERNEL, linear)
SL_OP_KERNEL(LINEAR_GELU, linear_gelu, TYPED, none, KERNEL, linear)
SL_OP_KERNEL(LINEAR_ADD, linear_add, TYPED, none, KERNEL, linear)
SL_OP_KERNEL(MATMUL, matmul, TYPED, none, KERNEL, linear)
SL_OP_KERNEL(LINEAR_GRAD_INPUT, linear_grad_input, TYPED, none, KERNEL, linear)
SL_OP_KERNEL(LINEAR_GRAD_GELU, linear_grad_gelu, TYPED, none, KERNEL, linear)
SL_OP_KERNEL(LINEAR_GRAD_WEIGHT, linear_grad_weight, TYPED, none, KERNEL, linear)
/* cpu/kernels/head.c, cuda/cuda_head.c */
SL_OP_KERNEL(LINEAR_CROSS_ENTROPY, linear_cross_entropy, TYPED, head, KERNEL, linear)
/* cpu/kernels/conv.c, cuda/cuda_conv.c */
SL_OP_KERNEL(CONV2D, conv2d, TYPED, conv, KERNEL, conv)
SL_OP_KERNEL(CONV2D_GRAD_INPUT, conv2d_grad_input, TYPED, conv, KERNEL, conv)
SL_OP_KERNEL(CONV2D_GRAD_WEIGHT, conv2d_grad_weight, TYPED, conv_weight, KERNEL, conv)
/* cpu/kernels/pool.c, cuda/pool.cu */
SL_OP_KERNEL(MAX_POOL2D, max_pool2d, TYPED, none, KERNEL, none)
SL_OP_KERNEL(MAX_POOL2D_GRAD, max_pool2d_grad, TYPED, none, KERNEL, pool)
SL_OP_KERNEL(AVG_POOL2D, avg_pool2d, TYPED, none, KERNEL, none)
SL_OP_KERNEL(AVG_POOL2D_GRAD, avg_pool2d_grad, TYPED, none, KERNEL, none)
SL_OP_KERNEL(GLOBAL_AVG_POOL, global_avg_pool, TYPED, none, KERNEL, none)
SL_OP_KERNEL(GLOBAL_AVG_POOL_GRAD, global_avg_pool_grad, TYPED, none, KERNEL, none)
/* cpu/kernels/update.c, cuda/update.cu */
SL_OP_KERNEL(UPDATE, update, UNTYPED, none, KERNEL, update)
/* cpu/kernels/gradient_norm.c, cuda/gradient_norm.cu */
SL_OP_KERNEL(ACCUMULATE, accumulate, UNTYPED, none, KERNEL, update)
SL_OP_KERNEL(NORM_LEAVES, norm_leaves, UNTYPED, none, KERNEL, update)
SL_OP_KERNEL(NORM_COMBINE, norm_combine, UNTYPED, none, KERNEL, update)
SL_OP_KERNEL(NORM_JOIN, norm_join, UNTYPED, none, KERNEL, update)
SL_OP_KERNEL(NORM_FINISH, norm_finish, UNTYPED, none, KERNEL, update)

#undef SL_OP_KERNEL
/* clang-format on */
