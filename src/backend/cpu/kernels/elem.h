/* elem.h: the element type that a typed source is compiled for: how sixteen activations or weights, or one, become
 * floats and floats become them. A result is rounded here and nowhere else. */
#ifndef SL_BACKEND_CPU_ELEM_H
#define SL_BACKEND_CPU_ELEM_H

#include "backend/cpu/kernels/convert.h"
#include "backend/cpu/kernels/loops.h"

/* elem: what is stored; elem_bits: the same width without arithmetic, for elements that only move. */
/* clang-format off */
#if defined(SL_ELEM_f32)
typedef float elem;
typedef uint32_t elem_bits;
SL_INLINE float e1_get(const elem *p) { return *p; }
SL_INLINE void e1_put(elem *p, float x) { *p = x; }
SL_INLINE sl_v16 e16_load(const elem *p) { return v16_load(p); }
SL_INLINE sl_v16 e16_get(const elem *p, int64_t left, float fill) { return v16_get(p, left, fill); }
SL_INLINE void e16_put(elem *p, sl_v16 v, int64_t left) { v16_put(p, v, left); }
#elif defined(SL_ELEM_bf16)
typedef uint16_t elem;
typedef uint16_t elem_bits;
SL_INLINE float e1_get(const elem *p) { return sl_bf16_to_float(*p); }
SL_INLINE void e1_put(elem *p, float x) { *p = sl_float_to_bf16(x); }
SL_INLINE sl_v16 e16_load(const elem *p) { return bf16_load(p); }
SL_INLINE sl_v16 e16_get(const elem *p, int64_t left, float fill) { return bf16_get(p, left, fill); }
SL_INLINE void e16_put(elem *p, sl_v16 v, int64_t left) { bf16_put(p, v, left); }
#elif defined(SL_ELEM_f16)
typedef uint16_t elem;
typedef uint16_t elem_bits;
SL_INLINE float e1_get(const elem *p) { return sl_f16_to_float(*p); }
SL_INLINE void e1_put(elem *p, float x) { *p = sl_float_to_f16(x); }
SL_INLINE sl_v16 e16_load(const elem *p) { return f16_load(p); }
SL_INLINE sl_v16 e16_get(const elem *p, int64_t left, float fill) { return f16_get(p, left, fill); }
SL_INLINE void e16_put(elem *p, sl_v16 v, int64_t left) { f16_put(p, v, left); }
#else
#error "a typed kernel needs SL_ELEM_f32, SL_ELEM_bf16 or SL_ELEM_f16"
#endif
/* clang-format on */

/* Adds in f32 to what is there when `accumulate`, and rounds once. */
SL_INLINE void e16_put_or_add(elem *p, sl_v16 v, int64_t left, bool accumulate)
{
    if (accumulate) v = v16_add(e16_get(p, left, 0.0f), v);
    e16_put(p, v, left);
}

#endif
