/* isa.h: names for one instruction path and one element type.
 *
 * Every file in this folder is compiled once per instruction path, with SL_ISA_<path> defined. Most are typed: compiled
 * once per element type too, with SL_ELEM_<type> defined, and wrap the names they export in K(): K(add) is
 * sl_k_add_avx2_bf16 in the objects of AVX2 and bf16. The others take operands of any type, or only floats, and use
 * KI(): KI(cast) is sl_k_cast_avx2. CMakeLists.txt lists them. */
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

#define KI(name)          SL_PASTE(sl_k_##name, SL_ISA_SUFFIX)
#define SL_KT(name, type) SL_PASTE(KI(name), type) /* the kernel of the element type f32, bf16 or f16 */

#if defined(SL_ELEM_f32)
#define K(name) SL_KT(name, f32)
#elif defined(SL_ELEM_bf16)
#define K(name) SL_KT(name, bf16)
#elif defined(SL_ELEM_f16)
#define K(name) SL_KT(name, f16)
#endif

/* One line per op in kernel_table.c; the prototypes come from the same lists. */
/* clang-format off */
#define SL_TYPED_KERNELS(X, type)                                                                                       \
    X(ADD, add, type) X(MULTIPLY, multiply, type) X(SCALE, scale, type) X(LINEAR, linear, type)                         \
    X(MATMUL, matmul, type) X(EMBEDDING, embedding, type) X(RELU, relu, type) X(GELU, gelu, type)                       \
    X(SILU, silu, type) X(SOFTMAX, softmax, type) X(LAYER_NORM, layer_norm, type) X(RMS_NORM, rms_norm, type)           \
    X(ROTARY, rotary, type) X(ATTENTION, attention, type) X(DROPOUT, dropout, type)                                     \
    X(TRANSPOSE, transpose, type) X(SPLIT, split, type) X(CONCAT, concat, type)                                         \
    X(CROSS_ENTROPY, cross_entropy, type) X(MSE, mse, type) X(SUM, sum, type) X(MEAN, mean, type)                       \
    X(SEED, seed, type) X(REDUCE_TO, reduce_to, type) X(MULTIPLY_REDUCE, multiply_reduce, type)                         \
    X(LINEAR_GRAD_INPUT, linear_grad_input, type) X(LINEAR_GRAD_WEIGHT, linear_grad_weight, type)                       \
    X(EMBEDDING_GRAD, embedding_grad, type) X(RELU_GRAD, relu_grad, type) X(GELU_GRAD, gelu_grad, type)                 \
    X(SILU_GRAD, silu_grad, type) X(SOFTMAX_GRAD, softmax_grad, type) X(LAYER_NORM_GRAD, layer_norm_grad, type)         \
    X(RMS_NORM_GRAD, rms_norm_grad, type) X(ATTENTION_GRAD, attention_grad, type)                                       \
    X(CONCAT_GRAD, concat_grad, type) X(SPLIT_GRAD, split_grad, type)                                                   \
    X(CROSS_ENTROPY_GRAD, cross_entropy_grad, type) X(MSE_GRAD, mse_grad, type) X(EXPAND, expand, type)                 \
    X(SWIGLU, swiglu, type) X(SWIGLU_GRAD, swiglu_grad, type) X(LINEAR_CROSS_ENTROPY, linear_cross_entropy, type)       \
    X(LINEAR_CROSS_ENTROPY_GRAD, linear_cross_entropy_grad, type) X(LINEAR_GELU, linear_gelu, type)                     \
    X(LINEAR_GRAD_GELU, linear_grad_gelu, type) X(LINEAR_ADD, linear_add, type)
#define SL_UNTYPED_KERNELS(X)                                                                                           \
    X(CAST, cast) X(ACCUMULATE, accumulate) X(NORM_LEAVES, norm_leaves) X(NORM_FINISH, norm_finish) X(UPDATE, update)
/* clang-format on */

#define SL_DECLARE_TYPED(op, name, type) void SL_KT(name, type)(const sl_kernel_args *a);
#define SL_DECLARE_UNTYPED(op, name)     void KI(name)(const sl_kernel_args *a);
SL_TYPED_KERNELS(SL_DECLARE_TYPED, f32)
SL_TYPED_KERNELS(SL_DECLARE_TYPED, bf16)
SL_TYPED_KERNELS(SL_DECLARE_TYPED, f16)
SL_UNTYPED_KERNELS(SL_DECLARE_UNTYPED)
#undef SL_DECLARE_TYPED
#undef SL_DECLARE_UNTYPED

#endif
