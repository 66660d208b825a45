/* update_lanes.h: sixteen patterns of 32 bits next to the sixteen floats of simd.h, and what updates make of them: the
 * halves of a master weight, gradients of any form, random bits, 8-bit codes. The plain definitions are in core/half.h,
 * core/rounding.h and core/blocks8.h; every path gives their bits. */
#ifndef SL_BACKEND_CPU_UPDATE_LANES_H
#define SL_BACKEND_CPU_UPDATE_LANES_H

#include "backend/cpu/kernels/convert.h"
#include "backend/cpu/kernels/simd.h"
#include "core/blocks8.h"
#include "core/half.h"
#include "core/rounding.h"

#define ALWAYS_INLINE static inline __attribute__((always_inline))

/* One operation per row, so that the paths can be read side by side. Shifts are by constants; loads widen. */
/* clang-format off */
#if defined(SL_ISA_avx512)
typedef __m512i sl_b16;
ALWAYS_INLINE sl_b16 b16_of(sl_v16 a) { return _mm512_castps_si512(a); }
ALWAYS_INLINE sl_v16 b16_float(sl_b16 a) { return _mm512_castsi512_ps(a); }
ALWAYS_INLINE sl_b16 b16_set1(uint32_t x) { return _mm512_set1_epi32((int)x); }
ALWAYS_INLINE sl_b16 b16_load(const uint32_t *p) { return _mm512_loadu_si512(p); }
ALWAYS_INLINE sl_b16 b16_add(sl_b16 a, sl_b16 b) { return _mm512_add_epi32(a, b); }
ALWAYS_INLINE sl_b16 b16_sub(sl_b16 a, sl_b16 b) { return _mm512_sub_epi32(a, b); }
ALWAYS_INLINE sl_b16 b16_mul(sl_b16 a, sl_b16 b) { return _mm512_mullo_epi32(a, b); }
ALWAYS_INLINE sl_b16 b16_and(sl_b16 a, sl_b16 b) { return _mm512_and_si512(a, b); }
ALWAYS_INLINE sl_b16 b16_or(sl_b16 a, sl_b16 b) { return _mm512_or_si512(a, b); }
ALWAYS_INLINE sl_b16 b16_shl(sl_b16 a, unsigned n) { return _mm512_slli_epi32(a, n); }
ALWAYS_INLINE sl_b16 b16_shr(sl_b16 a, unsigned n) { return _mm512_srli_epi32(a, n); }
/* as unsigned numbers; b16_min_signed as signed ones */
ALWAYS_INLINE sl_b16 b16_min(sl_b16 a, sl_b16 b) { return _mm512_min_epu32(a, b); }
ALWAYS_INLINE sl_b16 b16_min_signed(sl_b16 a, sl_b16 b) { return _mm512_min_epi32(a, b); }
ALWAYS_INLINE sl_b16 b16_max(sl_b16 a, sl_b16 b) { return _mm512_max_epu32(a, b); }
/* a < b ? x : y, as signed numbers */
ALWAYS_INLINE sl_b16 b16_if_less(sl_b16 a, sl_b16 b, sl_b16 x, sl_b16 y) { return _mm512_mask_blend_epi32(_mm512_cmplt_epi32_mask(a, b), y, x); }
ALWAYS_INLINE sl_b16 b16_load_u16(const uint16_t *p) { return _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)p)); }
ALWAYS_INLINE sl_b16 b16_load_s16(const uint16_t *p) { return _mm512_cvtepi16_epi32(_mm256_loadu_si256((const void *)p)); }
ALWAYS_INLINE sl_b16 b16_load_u8(const uint8_t *p) { return _mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)p)); }
/* the low 16 or 8 bits of each */
ALWAYS_INLINE void b16_store_16(uint16_t *p, sl_b16 a) { _mm256_storeu_si256((void *)p, _mm512_cvtepi32_epi16(a)); }
ALWAYS_INLINE void b16_store_8(uint8_t *p, sl_b16 a) { _mm_storeu_si128((void *)p, _mm512_cvtepi32_epi8(a)); }
/* past the caches, to whole lines; lanes_fence before another thread may look */
ALWAYS_INLINE void b16_stream_16(uint16_t *p, sl_b16 a) { _mm256_stream_si256((void *)p, _mm512_cvtepi32_epi16(a)); }
ALWAYS_INLINE void f16_stream(uint16_t *p, sl_v16 a) { _mm256_stream_si256((void *)p, _mm512_cvtps_ph(a, 0x08)); }
ALWAYS_INLINE void lanes_fence(void) { _mm_sfence(); }
ALWAYS_INLINE sl_v16 v16_round_f16(sl_v16 a) { return _mm512_cvtph_ps(_mm512_cvtps_ph(a, 0x08)); }
#elif defined(SL_ISA_avx2)
typedef struct { __m256i l, h; } sl_b16;
ALWAYS_INLINE sl_b16 b16_of(sl_v16 a) { return (sl_b16){ _mm256_castps_si256(a.l), _mm256_castps_si256(a.h) }; }
ALWAYS_INLINE sl_v16 b16_float(sl_b16 a) { return (sl_v16){ _mm256_castsi256_ps(a.l), _mm256_castsi256_ps(a.h) }; }
ALWAYS_INLINE sl_b16 b16_set1(uint32_t x) { return (sl_b16){ _mm256_set1_epi32((int)x), _mm256_set1_epi32((int)x) }; }
ALWAYS_INLINE sl_b16 b16_load(const uint32_t *p) { return (sl_b16){ _mm256_loadu_si256((const void *)p), _mm256_loadu_si256((const void *)(p + 8)) }; }
#define SL_BOTH(op) ((sl_b16){ op(a.l, b.l), op(a.h, b.h) })
ALWAYS_INLINE sl_b16 b16_add(sl_b16 a, sl_b16 b) { return SL_BOTH(_mm256_add_epi32); }
ALWAYS_INLINE sl_b16 b16_sub(sl_b16 a, sl_b16 b) { return SL_BOTH(_mm256_sub_epi32); }
ALWAYS_INLINE sl_b16 b16_mul(sl_b16 a, sl_b16 b) { return SL_BOTH(_mm256_mullo_epi32); }
ALWAYS_INLINE sl_b16 b16_and(sl_b16 a, sl_b16 b) { return SL_BOTH(_mm256_and_si256); }
ALWAYS_INLINE sl_b16 b16_or(sl_b16 a, sl_b16 b) { return SL_BOTH(_mm256_or_si256); }
ALWAYS_INLINE sl_b16 b16_shl(sl_b16 a, unsigned n) { return (sl_b16){ _mm256_slli_epi32(a.l, (int)n), _mm256_slli_epi32(a.h, (int)n) }; }
ALWAYS_INLINE sl_b16 b16_shr(sl_b16 a, unsigned n) { return (sl_b16){ _mm256_srli_epi32(a.l, (int)n), _mm256_srli_epi32(a.h, (int)n) }; }
ALWAYS_INLINE sl_b16 b16_min(sl_b16 a, sl_b16 b) { return SL_BOTH(_mm256_min_epu32); }
ALWAYS_INLINE sl_b16 b16_min_signed(sl_b16 a, sl_b16 b) { return SL_BOTH(_mm256_min_epi32); }
ALWAYS_INLINE sl_b16 b16_max(sl_b16 a, sl_b16 b) { return SL_BOTH(_mm256_max_epu32); }
#undef SL_BOTH
ALWAYS_INLINE sl_b16 b16_if_less(sl_b16 a, sl_b16 b, sl_b16 x, sl_b16 y)
{
    return (sl_b16){ _mm256_blendv_epi8(y.l, x.l, _mm256_cmpgt_epi32(b.l, a.l)),
                     _mm256_blendv_epi8(y.h, x.h, _mm256_cmpgt_epi32(b.h, a.h)) };
}
ALWAYS_INLINE __m128i b16_eight(const void *p) { return _mm_loadl_epi64(p); }
ALWAYS_INLINE sl_b16 b16_load_u16(const uint16_t *p) { return (sl_b16){ _mm256_cvtepu16_epi32(load8(p)), _mm256_cvtepu16_epi32(load8(p + 8)) }; }
ALWAYS_INLINE sl_b16 b16_load_s16(const uint16_t *p) { return (sl_b16){ _mm256_cvtepi16_epi32(load8(p)), _mm256_cvtepi16_epi32(load8(p + 8)) }; }
ALWAYS_INLINE sl_b16 b16_load_u8(const uint8_t *p) { return (sl_b16){ _mm256_cvtepu8_epi32(b16_eight(p)), _mm256_cvtepu8_epi32(b16_eight(p + 8)) }; }
/* Sixteen numbers below 2^16 as words, in order. */
ALWAYS_INLINE __m256i b16_words(sl_b16 a) { return _mm256_permute4x64_epi64(_mm256_packus_epi32(a.l, a.h), 0xd8); }
ALWAYS_INLINE void b16_store_16(uint16_t *p, sl_b16 a) { _mm256_storeu_si256((void *)p, b16_words(b16_and(a, b16_set1(0xffff)))); }
ALWAYS_INLINE void b16_store_8(uint8_t *p, sl_b16 a)
{
    __m256i w = b16_words(b16_and(a, b16_set1(0xff)));
    _mm_storeu_si128((void *)p, _mm_packus_epi16(_mm256_castsi256_si128(w), _mm256_extracti128_si256(w, 1)));
}
ALWAYS_INLINE void b16_stream_16(uint16_t *p, sl_b16 a) { _mm256_stream_si256((void *)p, b16_words(b16_and(a, b16_set1(0xffff)))); }
ALWAYS_INLINE void f16_stream(uint16_t *p, sl_v16 a)
{
    _mm_stream_si128((void *)p, _mm256_cvtps_ph(a.l, 0x08));
    _mm_stream_si128((void *)(p + 8), _mm256_cvtps_ph(a.h, 0x08));
}
ALWAYS_INLINE void lanes_fence(void) { _mm_sfence(); }
ALWAYS_INLINE sl_v16 v16_round_f16(sl_v16 a) { return (sl_v16){ _mm256_cvtph_ps(_mm256_cvtps_ph(a.l, 0x08)), _mm256_cvtph_ps(_mm256_cvtps_ph(a.h, 0x08)) }; }
#else
typedef struct { uint32_t v[SL_LANES]; } sl_b16;
#define SL_EACH(expr) sl_b16 r; for (unsigned i = 0; i < SL_LANES; i++) r.v[i] = (uint32_t)(expr); return r
ALWAYS_INLINE sl_b16 b16_of(sl_v16 a) { sl_b16 r; memcpy(&r, &a, sizeof r); return r; }
ALWAYS_INLINE sl_v16 b16_float(sl_b16 a) { sl_v16 r; memcpy(&r, &a, sizeof r); return r; }
ALWAYS_INLINE sl_b16 b16_set1(uint32_t x) { SL_EACH(x); }
ALWAYS_INLINE sl_b16 b16_load(const uint32_t *p) { SL_EACH(p[i]); }
ALWAYS_INLINE sl_b16 b16_add(sl_b16 a, sl_b16 b) { SL_EACH(a.v[i] + b.v[i]); }
ALWAYS_INLINE sl_b16 b16_sub(sl_b16 a, sl_b16 b) { SL_EACH(a.v[i] - b.v[i]); }
ALWAYS_INLINE sl_b16 b16_mul(sl_b16 a, sl_b16 b) { SL_EACH(a.v[i] * b.v[i]); }
ALWAYS_INLINE sl_b16 b16_and(sl_b16 a, sl_b16 b) { SL_EACH(a.v[i] & b.v[i]); }
ALWAYS_INLINE sl_b16 b16_or(sl_b16 a, sl_b16 b) { SL_EACH(a.v[i] | b.v[i]); }
ALWAYS_INLINE sl_b16 b16_shl(sl_b16 a, unsigned n) { SL_EACH(a.v[i] << n); }
ALWAYS_INLINE sl_b16 b16_shr(sl_b16 a, unsigned n) { SL_EACH(a.v[i] >> n); }
ALWAYS_INLINE sl_b16 b16_min(sl_b16 a, sl_b16 b) { SL_EACH(a.v[i] < b.v[i] ? a.v[i] : b.v[i]); }
ALWAYS_INLINE sl_b16 b16_min_signed(sl_b16 a, sl_b16 b) { SL_EACH((int32_t)a.v[i] < (int32_t)b.v[i] ? a.v[i] : b.v[i]); }
ALWAYS_INLINE sl_b16 b16_max(sl_b16 a, sl_b16 b) { SL_EACH(a.v[i] > b.v[i] ? a.v[i] : b.v[i]); }
ALWAYS_INLINE sl_b16 b16_if_less(sl_b16 a, sl_b16 b, sl_b16 x, sl_b16 y) { SL_EACH((int32_t)a.v[i] < (int32_t)b.v[i] ? x.v[i] : y.v[i]); }
ALWAYS_INLINE sl_b16 b16_load_u16(const uint16_t *p) { SL_EACH(p[i]); }
ALWAYS_INLINE sl_b16 b16_load_s16(const uint16_t *p) { SL_EACH((int32_t)(int16_t)p[i]); }
ALWAYS_INLINE sl_b16 b16_load_u8(const uint8_t *p) { SL_EACH(p[i]); }
ALWAYS_INLINE void b16_store_16(uint16_t *p, sl_b16 a) { for (int i = 0; i < SL_LANES; i++) p[i] = (uint16_t)a.v[i]; }
ALWAYS_INLINE void b16_store_8(uint8_t *p, sl_b16 a) { for (int i = 0; i < SL_LANES; i++) p[i] = (uint8_t)a.v[i]; }
ALWAYS_INLINE void b16_stream_16(uint16_t *p, sl_b16 a) { b16_store_16(p, a); }
ALWAYS_INLINE void f16_stream(uint16_t *p, sl_v16 a) { f16_store(p, a); }
ALWAYS_INLINE void lanes_fence(void) {}
ALWAYS_INLINE sl_v16 v16_round_f16(sl_v16 a) { for (int i = 0; i < SL_LANES; i++) a.v[i] = sl_f16_to_float(sl_float_to_f16(a.v[i])); return a; }
#undef SL_EACH
#endif
/* clang-format on */

/* ---- Gradients ---- */

/* How a gradient is read: its form, and for sums in f32 the narrower wire type that they are rounded to. */
typedef enum { SL_READ_F32, SL_READ_F32_TO_BF16, SL_READ_F32_TO_F16, SL_READ_BF16, SL_READ_F16, SL_READ_COUNT } sl_read;

static inline sl_read sl_read_of(sl_form form, sluice_dtype wire)
{
    if (form == SL_FORM_BF16) return SL_READ_BF16;
    if (form == SL_FORM_F16) return SL_READ_F16;
    return wire == SLUICE_BF16 ? SL_READ_F32_TO_BF16 : wire == SLUICE_F16 ? SL_READ_F32_TO_F16 : SL_READ_F32;
}

/* To bf16, nearest even, and back. A NaN stays one. */
ALWAYS_INLINE sl_v16 v16_round_bf16(sl_v16 a)
{
    sl_b16 b = b16_of(a), upper = b16_set1(0xffff0000u), magnitude = b16_and(b, b16_set1(0x7fffffffu));
    sl_b16 tie = b16_and(b16_shr(b, 16), b16_set1(1));
    sl_b16 rounded = b16_add(b16_add(b, b16_set1(0x7fff)), tie), quiet = b16_or(b, b16_set1(0x400000u));
    return b16_float(b16_and(b16_if_less(b16_set1(0x7f800000u), magnitude, quiet, rounded), upper));
}

/* Sixteen elements from `i` on, or the `left` that remain and zeros. */
ALWAYS_INLINE sl_v16 gradient_get(sl_read read, const void *p, int64_t i, int64_t left)
{
    if (read == SL_READ_BF16) return bf16_get((const uint16_t *)p + i, left, 0.0f);
    if (read == SL_READ_F16) return f16_get((const uint16_t *)p + i, left, 0.0f);
    const float *f = (const float *)p + i;
    sl_v16 g = left >= SL_LANES ? v16_load(f) : v16_load_part(f, left, 0.0f);
    if (read == SL_READ_F32_TO_BF16) return v16_round_bf16(g);
    return read == SL_READ_F32_TO_F16 ? v16_round_f16(g) : g;
}

/* ---- Masters as two halves ---- */

/* High and low half, low sign-extended: the sum is the join of core/half.h. */
ALWAYS_INLINE sl_v16 master_load(const uint16_t *high, const uint16_t *low)
{
    return b16_float(b16_add(b16_shl(b16_load_u16(high), 16), b16_load_s16(low)));
}

ALWAYS_INLINE void master_store(uint16_t *high, uint16_t *low, sl_v16 master)
{
    sl_b16 b = b16_of(master);
    b16_store_16(high, b16_shr(b16_add(b, b16_set1(0x8000)), 16));
    b16_store_16(low, b);
}

ALWAYS_INLINE void master_stream(uint16_t *high, uint16_t *low, sl_v16 master)
{
    sl_b16 b = b16_of(master);
    b16_stream_16(high, b16_shr(b16_add(b, b16_set1(0x8000)), 16));
    b16_stream_16(low, b);
}

ALWAYS_INLINE sl_v16 master_get(const uint16_t *high, const uint16_t *low, int64_t left)
{
    uint16_t h[SL_LANES], l[SL_LANES];
    if (left >= SL_LANES) return master_load(high, low);
    half_load_part(h, high, left);
    half_load_part(l, low, left);
    return master_load(h, l);
}

ALWAYS_INLINE void master_put(uint16_t *high, uint16_t *low, sl_v16 master, int64_t left)
{
    uint16_t h[SL_LANES], l[SL_LANES];
    if (left >= SL_LANES) {
        master_store(high, low, master);
        return;
    }
    master_store(h, l, master);
    memcpy(high, h, (size_t)left * sizeof *h);
    memcpy(low, l, (size_t)left * sizeof *l);
}

/* ---- Moments rounded at random ---- */

/* Of sixteen elements in a row, from their places' words. */
ALWAYS_INLINE sl_b16 rounding_hash(sl_rounding_key key, const uint32_t *words)
{
    return b16_add(b16_mul(b16_load(words), b16_set1(key.multiplier)), b16_set1(key.addend));
}

ALWAYS_INLINE sl_b16 rounding_bits(sl_b16 hash, int slot, unsigned count)
{
    if (slot == 0) return b16_shr(hash, 32 - count);
    if (slot == 1) return b16_and(hash, b16_set1((1u << count) - 1));
    return b16_shr(b16_mul(hash, b16_set1(SL_ROUNDING_OTHER)), 32 - count);
}

/* The pattern plus 16 random bits, cut off; the largest finite bf16 where that would be past it. */
ALWAYS_INLINE void bf16_put_random(uint16_t *p, sl_v16 x, sl_b16 random, int64_t left)
{
    uint16_t lanes[SL_LANES];
    sl_b16 sum = b16_min(b16_add(b16_of(x), random), b16_set1(0xff7fffffu)); /* holds negative ones */
    sum = b16_min_signed(sum, b16_set1(0x7f7fffffu));                        /* and positive ones */
    b16_store_16(left >= SL_LANES ? p : lanes, b16_shr(sum, 16));
    if (left < SL_LANES) memcpy(p, lanes, (size_t)left * sizeof *p);
}

/* What blocks8 needs of a block's exponent, in every lane. */
typedef struct codes_scale {
    sl_b16 base, least;
    sl_v16 least_float, unit; /* unit: 2^e */
} codes_scale;

ALWAYS_INLINE codes_scale codes_scale_of(int32_t exponent, bool is_signed)
{
    sl_blocks8_scale s = sl_blocks8_scale_of(exponent, is_signed);
    return (codes_scale){ b16_set1(s.base), b16_set1(s.least), b16_float(b16_set1(s.least)),
                          b16_float(b16_set1((uint32_t)(exponent + 127) << 23)) };
}

ALWAYS_INLINE sl_v16 codes_load_unsigned(const uint8_t *p, const codes_scale *s)
{
    sl_b16 code = b16_load_u8(p), units = b16_shl(code, 20);
    sl_v16 small = v16_sub(b16_float(b16_add(units, s->least)), s->least_float);
    return b16_float(b16_if_less(code, b16_set1(8), b16_of(small), b16_add(units, s->base)));
}

/* Codes from 8 on. */
ALWAYS_INLINE sl_v16 codes_load_normal(const uint8_t *p, const codes_scale *s)
{
    return b16_float(b16_add(b16_shl(b16_load_u8(p), 20), s->base));
}

/* A signed code's field and mantissa are those of an f16, denormals included, whose field 15 is 2^0: the processor
 * decodes it, and the product with 2^e is exact. */
#if defined(SL_ISA_avx512) || defined(SL_ISA_avx2)
ALWAYS_INLINE sl_v16 codes_load_signed(const uint8_t *p, const codes_scale *s)
{
    __m256i word = _mm256_cvtepi8_epi16(_mm_loadu_si128((const void *)p));
    __m256i code = _mm256_slli_epi16(_mm256_abs_epi16(word), 7);
    __m256i half = _mm256_or_si256(code, _mm256_and_si256(word, _mm256_set1_epi16((short)0x8000)));
#if defined(SL_ISA_avx512)
    return _mm512_mul_ps(_mm512_cvtph_ps(half), s->unit);
#else
    return (sl_v16){ _mm256_mul_ps(_mm256_cvtph_ps(_mm256_castsi256_si128(half)), s->unit.l),
                     _mm256_mul_ps(_mm256_cvtph_ps(_mm256_extracti128_si256(half, 1)), s->unit.h) };
#endif
}
#else
ALWAYS_INLINE sl_v16 codes_load_signed(const uint8_t *p, const codes_scale *s)
{
    sl_v16 x;
    for (int i = 0; i < SL_LANES; i++) {
        uint32_t code = p[i] < 0x80 ? p[i] : 0x100u - p[i];
        float half = sl_f16_to_float((uint16_t)(code << 7));
        x.v[i] = (p[i] < 0x80 ? half : -half) * s->unit.v[i];
    }
    return x;
}
#endif

/* Magnitudes in units of 2^-20 of a code. */
ALWAYS_INLINE sl_b16 codes_units(sl_b16 bits, const codes_scale *s)
{
#if defined(SL_ISA_avx512)
    __mmask16 small = _mm512_cmplt_epi32_mask(bits, s->least);
    sl_v16 lifted = _mm512_mask_add_ps(b16_float(bits), small, b16_float(bits), s->least_float);
    sl_b16 units = _mm512_sub_epi32(b16_of(lifted), s->base);
    return _mm512_mask_sub_epi32(units, small, units, _mm512_set1_epi32(1 << 23));
#else
    sl_b16 small = b16_sub(b16_of(v16_add(b16_float(bits), s->least_float)), s->least);
    return b16_if_less(bits, s->least, small, b16_sub(bits, s->base));
#endif
}

/* random: 20 bits. The values' magnitudes are not above SL_BLOCKS8_LIMIT. */
ALWAYS_INLINE void codes_store(uint8_t *p, sl_v16 x, sl_b16 random, bool is_signed, const codes_scale *s)
{
    sl_b16 bits = b16_of(v16_abs(x)), zero = b16_set1(0);
    sl_b16 code = b16_shr(b16_add(codes_units(bits, s), random), 20);
    if (is_signed) code = b16_if_less(b16_of(x), zero, b16_sub(zero, code), code);
    if (!is_signed) code = b16_max(code, b16_min(bits, b16_set1(1)));
    b16_store_8(p, code);
}

/* The same for positive numbers from the least normal on. */
ALWAYS_INLINE void codes_store_normal(uint8_t *p, sl_v16 x, sl_b16 random, const codes_scale *s)
{
    b16_store_8(p, b16_shr(b16_add(b16_sub(b16_of(x), s->base), random), 20));
}

#endif
