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

/* The kernels of all ops, from the rows of op_kernels.h. */
#define SL_DECLARE_TYPED(name)                                                                                         \
    void SL_KT(name, f32)(const sl_kernel_args *a);                                                                    \
    void SL_KT(name, bf16)(const sl_kernel_args *a);                                                                   \
    void SL_KT(name, f16)(const sl_kernel_args *a);
#define SL_DECLARE_UNTYPED(name) void KI(name)(const sl_kernel_args *a);
#define SL_DECLARE_NO_KERNEL(name)
#define SL_OP_KERNEL(op, name, cpu, ...) SL_DECLARE_##cpu(name)
#include "backend/op_kernels.h"
#undef SL_DECLARE_TYPED
#undef SL_DECLARE_UNTYPED
#undef SL_DECLARE_NO_KERNEL

#endif
