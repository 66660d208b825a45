/* isa.h: names for one instruction path. Every file in this folder is compiled once per path with SL_ISA_<path>
 * defined, and wraps the names it exports in K(): K(add) is add_avx2 in the AVX2 objects. */
#ifndef SL_BACKEND_CPU_ISA_H
#define SL_BACKEND_CPU_ISA_H

#include "backend/cpu/kernels.h"

#define SL_PASTE2(a, b) a##_##b
#define SL_PASTE(a, b)  SL_PASTE2(a, b)

#if defined(SL_ISA_avx512)
#define SL_ISA_SUFFIX avx512
#elif defined(SL_ISA_avx2)
#define SL_ISA_SUFFIX avx2
#else
#define SL_ISA_SUFFIX scalar
#endif

#define K(name) SL_PASTE(sl_k_##name, SL_ISA_SUFFIX)

/* One line per op in kernels/table.c; the prototypes come from the same list. */
/* clang-format off */
#define SL_KERNEL_LIST(X)                                                                                              \
    X(ADD, add) X(MULTIPLY, multiply) X(SCALE, scale) X(LINEAR, linear) X(MATMUL, matmul) X(EMBEDDING, embedding)       \
    X(RELU, relu) X(GELU, gelu) X(SILU, silu) X(SOFTMAX, softmax) X(LAYER_NORM, layer_norm) X(RMS_NORM, rms_norm)       \
    X(ROTARY, rotary) X(ATTENTION, attention) X(DROPOUT, dropout) X(TRANSPOSE, transpose) X(SPLIT, split)               \
    X(CONCAT, concat) X(CROSS_ENTROPY, cross_entropy) X(MSE, mse) X(SUM, sum) X(MEAN, mean) X(SEED, seed)               \
    X(REDUCE_TO, reduce_to) X(MULTIPLY_REDUCE, multiply_reduce) X(LINEAR_GRAD_INPUT, linear_grad_input)                 \
    X(LINEAR_GRAD_WEIGHT, linear_grad_weight) X(EMBEDDING_GRAD, embedding_grad) X(RELU_GRAD, relu_grad)                 \
    X(GELU_GRAD, gelu_grad) X(SILU_GRAD, silu_grad) X(SOFTMAX_GRAD, softmax_grad) X(LAYER_NORM_GRAD, layer_norm_grad)   \
    X(RMS_NORM_GRAD, rms_norm_grad) X(ATTENTION_GRAD, attention_grad) X(CONCAT_GRAD, concat_grad)                       \
    X(SPLIT_GRAD, split_grad) X(CROSS_ENTROPY_GRAD, cross_entropy_grad) X(MSE_GRAD, mse_grad) X(EXPAND, expand)         \
    X(ACCUMULATE, accumulate) X(NORM_LEAVES, norm_leaves) X(NORM_FINISH, norm_finish) X(UPDATE, update)
/* clang-format on */

#define SL_DECLARE_KERNEL(op, name) void K(name)(const sl_kernel_args *a);
SL_KERNEL_LIST(SL_DECLARE_KERNEL)
#undef SL_DECLARE_KERNEL

#endif
