/* convert.h: sixteen lanes from and to 16-bit floats, with the bits of core/half.h on every instruction path; and
 * operands whose form is known only at run time.
 *
 * bf16 is integer arithmetic everywhere: the processors' own conversion flushes denormals. f16 uses the F16C
 * conversions, which round to nearest even, keep denormals whatever the control register says, and keep a NaN's upper
 * bits. */
#ifndef SL_BACKEND_CPU_CONVERT_H
#define SL_BACKEND_CPU_CONVERT_H

#include "backend/cpu/kernels.h"
#include "backend/cpu/kernels/simd.h"
#include "core/half.h"

/* One operation per row, so that the paths can be read side by side. */
/* clang-format off */
#if defined(SL_ISA_avx512)
static inline sl_v16 v16_of_bf16(__m256i h) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16)); }
/* The upper halves of the lanes, after rounding. */
static inline __m256i v16_to_bf16(sl_v16 a)
{
    const __m512i odd = _mm512_set_epi16(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 31, 29, 27, 25, 23, 21, 19, 17, 15,
                                         13, 11, 9, 7, 5, 3, 1);
    __m512i b = _mm512_castps_si512(a);
    __m512i tie = _mm512_and_si512(_mm512_srli_epi32(b, 16), _mm512_set1_epi32(1));
    __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(b, _mm512_set1_epi32(0x7fff)), tie);
    __mmask16 nan = _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q);
    rounded = _mm512_mask_or_epi32(rounded, nan, b, _mm512_set1_epi32(0x400000));
    return _mm512_castsi512_si256(_mm512_permutexvar_epi16(odd, rounded));
}
static inline sl_v16 bf16_load(const uint16_t *p) { return v16_of_bf16(_mm256_loadu_si256((const void *)p)); }
static inline void bf16_store(uint16_t *p, sl_v16 a) { _mm256_storeu_si256((void *)p, v16_to_bf16(a)); }
static inline sl_v16 f16_load(const uint16_t *p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const void *)p)); }
static inline void f16_store(uint16_t *p, sl_v16 a) { _mm256_storeu_si256((void *)p, _mm512_cvtps_ph(a, 0x08)); }
#elif defined(SL_ISA_avx2)
static inline __m256 v8_of_bf16(__m128i h) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16)); }
/* Each result in the low half of its 32-bit lane. */
static inline __m256i v8_to_bf16(__m256 a)
{
    __m256i b = _mm256_castps_si256(a), high = _mm256_srli_epi32(b, 16);
    __m256i tie = _mm256_and_si256(high, _mm256_set1_epi32(1));
    __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(b, tie), _mm256_set1_epi32(0x7fff)), 16);
    __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(a, a, _CMP_UNORD_Q));
    return _mm256_blendv_epi8(rounded, _mm256_or_si256(high, _mm256_set1_epi32(0x40)), nan);
}
static inline __m128i load8(const uint16_t *p) { return _mm_loadu_si128((const void *)p); }
static inline sl_v16 bf16_load(const uint16_t *p) { return (sl_v16){ v8_of_bf16(load8(p)), v8_of_bf16(load8(p + 8)) }; }
static inline void bf16_store(uint16_t *p, sl_v16 a)
{
    __m256i packed = _mm256_packus_epi32(v8_to_bf16(a.l), v8_to_bf16(a.h)); /* by 128-bit halves: 0, 2, 1, 3 */
    _mm256_storeu_si256((void *)p, _mm256_permute4x64_epi64(packed, 0xd8));
}
static inline sl_v16 f16_load(const uint16_t *p) { return (sl_v16){ _mm256_cvtph_ps(load8(p)), _mm256_cvtph_ps(load8(p + 8)) }; }
static inline void f16_store(uint16_t *p, sl_v16 a)
{
    _mm_storeu_si128((void *)p, _mm256_cvtps_ph(a.l, 0x08));
    _mm_storeu_si128((void *)(p + 8), _mm256_cvtps_ph(a.h, 0x08));
}
#else
static inline sl_v16 bf16_load(const uint16_t *p) { sl_v16 r; for (int i = 0; i < SL_LANES; i++) r.v[i] = sl_bf16_to_float(p[i]); return r; }
static inline void bf16_store(uint16_t *p, sl_v16 a) { for (int i = 0; i < SL_LANES; i++) p[i] = sl_float_to_bf16(a.v[i]); }
static inline sl_v16 f16_load(const uint16_t *p) { sl_v16 r; for (int i = 0; i < SL_LANES; i++) r.v[i] = sl_f16_to_float(p[i]); return r; }
static inline void f16_store(uint16_t *p, sl_v16 a) { for (int i = 0; i < SL_LANES; i++) p[i] = sl_float_to_f16(a.v[i]); }
#endif
/* clang-format on */

/* The first n (0..15) of sixteen, the others zero bits; what is behind them is not touched. */
static inline void half_load_part(uint16_t lanes[SL_LANES], const uint16_t *p, int64_t n)
{
    memset(lanes, 0, SL_LANES * sizeof *lanes);
    memcpy(lanes, p, (size_t)n * sizeof *lanes);
}

/* Lanes from n on become `fill`. */
static inline sl_v16 v16_fill_from(sl_v16 v, int64_t n, float fill)
{
    if (fill == 0.0f) return v; /* as it was loaded */
    float lanes[SL_LANES];
    v16_store(lanes, v);
    return v16_load_part(lanes, n, fill);
}

/* Up to 16 elements of which `left` remain: whole vectors and the tail alike. Absent lanes are `fill`. */
static inline sl_v16 bf16_get(const uint16_t *p, int64_t left, float fill)
{
    uint16_t lanes[SL_LANES];
    if (left >= SL_LANES) return bf16_load(p);
    half_load_part(lanes, p, left);
    return v16_fill_from(bf16_load(lanes), left, fill);
}

static inline void bf16_put(uint16_t *p, sl_v16 v, int64_t left)
{
    uint16_t lanes[SL_LANES];
    bf16_store(left >= SL_LANES ? p : lanes, v);
    if (left < SL_LANES) memcpy(p, lanes, (size_t)left * sizeof *p);
}

static inline sl_v16 f16_get(const uint16_t *p, int64_t left, float fill)
{
    uint16_t lanes[SL_LANES];
    if (left >= SL_LANES) return f16_load(p);
    half_load_part(lanes, p, left);
    return v16_fill_from(f16_load(lanes), left, fill);
}

static inline void f16_put(uint16_t *p, sl_v16 v, int64_t left)
{
    uint16_t lanes[SL_LANES];
    f16_store(left >= SL_LANES ? p : lanes, v);
    if (left < SL_LANES) memcpy(p, lanes, (size_t)left * sizeof *p);
}

/* ---- Operands of any float form: parameter gradients, in the wire type or summed in f32 ---- */

static inline sl_v16 w16_get(const sl_tensor *t, int64_t index, int64_t left, float fill)
{
    if (t->form == SL_FORM_BF16) return bf16_get((const uint16_t *)t->data + index, left, fill);
    if (t->form == SL_FORM_F16) return f16_get((const uint16_t *)t->data + index, left, fill);
    const float *p = (const float *)t->data + index;
    return left >= SL_LANES ? v16_load(p) : v16_load_part(p, left, fill);
}

static inline void w16_put(const sl_tensor *t, int64_t index, sl_v16 v, int64_t left)
{
    if (t->form == SL_FORM_BF16)
        bf16_put((uint16_t *)t->data + index, v, left);
    else if (t->form == SL_FORM_F16)
        f16_put((uint16_t *)t->data + index, v, left);
    else if (left >= SL_LANES)
        v16_store((float *)t->data + index, v);
    else
        v16_store_part((float *)t->data + index, v, left);
}

/* Adds in f32 to what is there when `accumulate`, and rounds once. */
static inline void w16_put_or_add(const sl_tensor *t, int64_t index, sl_v16 v, int64_t left, bool accumulate)
{
    if (accumulate) v = v16_add(w16_get(t, index, left, 0.0f), v);
    w16_put(t, index, v, left);
}

#endif
