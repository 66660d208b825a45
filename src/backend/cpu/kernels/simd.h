/* simd.h: sixteen floats that behave alike on every instruction path.
 *
 * Kernels are written once on sl_v16. AVX-512 holds it in one register, AVX2 in two, plain C in an array. Every
 * operation is an IEEE operation per lane (fused multiply-add included), so all paths give the same bits; horizontal
 * sums fold in one fixed order. */
#ifndef SL_BACKEND_CPU_SIMD_H
#define SL_BACKEND_CPU_SIMD_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#define SL_LANES 16

/* One operation per row, so that the paths can be read side by side. */
/* clang-format off */
#if defined(SL_ISA_avx512)
#include <immintrin.h>
typedef __m512 sl_v16;
static inline sl_v16 v16_load(const float *p) { return _mm512_loadu_ps(p); }
static inline void v16_store(float *p, sl_v16 a) { _mm512_storeu_ps(p, a); }
static inline void v16_stream(float *p, sl_v16 a) { _mm512_stream_ps(p, a); } /* p 64-byte aligned */
static inline sl_v16 v16_set1(float x) { return _mm512_set1_ps(x); }
static inline sl_v16 v16_add(sl_v16 a, sl_v16 b) { return _mm512_add_ps(a, b); }
static inline sl_v16 v16_sub(sl_v16 a, sl_v16 b) { return _mm512_sub_ps(a, b); }
static inline sl_v16 v16_mul(sl_v16 a, sl_v16 b) { return _mm512_mul_ps(a, b); }
static inline sl_v16 v16_div(sl_v16 a, sl_v16 b) { return _mm512_div_ps(a, b); }
static inline sl_v16 v16_fma(sl_v16 a, sl_v16 b, sl_v16 c) { return _mm512_fmadd_ps(a, b, c); }
static inline sl_v16 v16_sqrt(sl_v16 a) { return _mm512_sqrt_ps(a); }
/* a > b ? a : b, as the comparison says: b where either is NaN */
static inline sl_v16 v16_max(sl_v16 a, sl_v16 b) { return _mm512_max_ps(a, b); }
static inline sl_v16 v16_min(sl_v16 a, sl_v16 b) { return _mm512_min_ps(a, b); }
/* x > 0 ? a : b per lane */
static inline sl_v16 v16_select_gt0(sl_v16 x, sl_v16 a, sl_v16 b)
{
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_GT_OQ), b, a);
}
/* x > y, or x is NaN ? a : b per lane */
static inline sl_v16 v16_select_larger(sl_v16 x, sl_v16 y, sl_v16 a, sl_v16 b)
{
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(x, y, _CMP_GT_OQ) | _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), b, a);
}
static inline sl_v16 v16_round(sl_v16 a) { return _mm512_roundscale_ps(a, 0x08); } /* to nearest even */
/* a * 2^n for integral n in [-126, 127] held as float */
static inline sl_v16 v16_ldexp(sl_v16 a, sl_v16 n)
{
    __m512i e = _mm512_slli_epi32(_mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127)), 23);
    return _mm512_mul_ps(a, _mm512_castsi512_ps(e));
}
static inline sl_v16 v16_neg(sl_v16 a) { return _mm512_xor_ps(a, _mm512_set1_ps(-0.0f)); }
static inline sl_v16 v16_abs(sl_v16 a) { return _mm512_andnot_ps(_mm512_set1_ps(-0.0f), a); }
#elif defined(SL_ISA_avx2)
#include <immintrin.h>
typedef struct { __m256 l, h; } sl_v16;
static inline sl_v16 v16_load(const float *p) { return (sl_v16){ _mm256_loadu_ps(p), _mm256_loadu_ps(p + 8) }; }
static inline void v16_store(float *p, sl_v16 a) { _mm256_storeu_ps(p, a.l); _mm256_storeu_ps(p + 8, a.h); }
static inline void v16_stream(float *p, sl_v16 a) { _mm256_stream_ps(p, a.l); _mm256_stream_ps(p + 8, a.h); }
static inline sl_v16 v16_set1(float x) { return (sl_v16){ _mm256_set1_ps(x), _mm256_set1_ps(x) }; }
static inline sl_v16 v16_add(sl_v16 a, sl_v16 b) { return (sl_v16){ _mm256_add_ps(a.l, b.l), _mm256_add_ps(a.h, b.h) }; }
static inline sl_v16 v16_sub(sl_v16 a, sl_v16 b) { return (sl_v16){ _mm256_sub_ps(a.l, b.l), _mm256_sub_ps(a.h, b.h) }; }
static inline sl_v16 v16_mul(sl_v16 a, sl_v16 b) { return (sl_v16){ _mm256_mul_ps(a.l, b.l), _mm256_mul_ps(a.h, b.h) }; }
static inline sl_v16 v16_div(sl_v16 a, sl_v16 b) { return (sl_v16){ _mm256_div_ps(a.l, b.l), _mm256_div_ps(a.h, b.h) }; }
static inline sl_v16 v16_fma(sl_v16 a, sl_v16 b, sl_v16 c)
{
    return (sl_v16){ _mm256_fmadd_ps(a.l, b.l, c.l), _mm256_fmadd_ps(a.h, b.h, c.h) };
}
static inline sl_v16 v16_sqrt(sl_v16 a) { return (sl_v16){ _mm256_sqrt_ps(a.l), _mm256_sqrt_ps(a.h) }; }
static inline sl_v16 v16_max(sl_v16 a, sl_v16 b) { return (sl_v16){ _mm256_max_ps(a.l, b.l), _mm256_max_ps(a.h, b.h) }; }
static inline sl_v16 v16_min(sl_v16 a, sl_v16 b) { return (sl_v16){ _mm256_min_ps(a.l, b.l), _mm256_min_ps(a.h, b.h) }; }
static inline sl_v16 v16_select_gt0(sl_v16 x, sl_v16 a, sl_v16 b)
{
    __m256 z = _mm256_setzero_ps();
    return (sl_v16){ _mm256_blendv_ps(b.l, a.l, _mm256_cmp_ps(x.l, z, _CMP_GT_OQ)),
                     _mm256_blendv_ps(b.h, a.h, _mm256_cmp_ps(x.h, z, _CMP_GT_OQ)) };
}
static inline __m256 v8_select_larger(__m256 x, __m256 y, __m256 a, __m256 b)
{
    return _mm256_blendv_ps(b, a, _mm256_or_ps(_mm256_cmp_ps(x, y, _CMP_GT_OQ), _mm256_cmp_ps(x, x, _CMP_UNORD_Q)));
}
static inline sl_v16 v16_select_larger(sl_v16 x, sl_v16 y, sl_v16 a, sl_v16 b)
{
    return (sl_v16){ v8_select_larger(x.l, y.l, a.l, b.l), v8_select_larger(x.h, y.h, a.h, b.h) };
}
static inline sl_v16 v16_round(sl_v16 a) { return (sl_v16){ _mm256_round_ps(a.l, 0x08), _mm256_round_ps(a.h, 0x08) }; }
static inline __m256 v8_ldexp(__m256 a, __m256 n)
{
    __m256i e = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
    return _mm256_mul_ps(a, _mm256_castsi256_ps(e));
}
static inline sl_v16 v16_ldexp(sl_v16 a, sl_v16 n) { return (sl_v16){ v8_ldexp(a.l, n.l), v8_ldexp(a.h, n.h) }; }
static inline sl_v16 v16_neg(sl_v16 a)
{
    __m256 s = _mm256_set1_ps(-0.0f);
    return (sl_v16){ _mm256_xor_ps(a.l, s), _mm256_xor_ps(a.h, s) };
}
static inline sl_v16 v16_abs(sl_v16 a)
{
    __m256 s = _mm256_set1_ps(-0.0f);
    return (sl_v16){ _mm256_andnot_ps(s, a.l), _mm256_andnot_ps(s, a.h) };
}
#else
typedef struct { float v[SL_LANES]; } sl_v16;
#define SL_EACH(expr) sl_v16 r; for (int i = 0; i < SL_LANES; i++) r.v[i] = (expr); return r
static inline sl_v16 v16_load(const float *p) { sl_v16 r; memcpy(&r, p, sizeof r); return r; }
static inline void v16_store(float *p, sl_v16 a) { memcpy(p, &a, sizeof a); }
static inline void v16_stream(float *p, sl_v16 a) { memcpy(p, &a, sizeof a); }
static inline sl_v16 v16_set1(float x) { SL_EACH(x); }
static inline sl_v16 v16_add(sl_v16 a, sl_v16 b) { SL_EACH(a.v[i] + b.v[i]); }
static inline sl_v16 v16_sub(sl_v16 a, sl_v16 b) { SL_EACH(a.v[i] - b.v[i]); }
static inline sl_v16 v16_mul(sl_v16 a, sl_v16 b) { SL_EACH(a.v[i] * b.v[i]); }
static inline sl_v16 v16_div(sl_v16 a, sl_v16 b) { SL_EACH(a.v[i] / b.v[i]); }
static inline sl_v16 v16_fma(sl_v16 a, sl_v16 b, sl_v16 c) { SL_EACH(fmaf(a.v[i], b.v[i], c.v[i])); }
static inline sl_v16 v16_sqrt(sl_v16 a) { SL_EACH(sqrtf(a.v[i])); }
static inline sl_v16 v16_max(sl_v16 a, sl_v16 b) { SL_EACH(a.v[i] > b.v[i] ? a.v[i] : b.v[i]); }
static inline sl_v16 v16_min(sl_v16 a, sl_v16 b) { SL_EACH(a.v[i] < b.v[i] ? a.v[i] : b.v[i]); }
static inline sl_v16 v16_select_gt0(sl_v16 x, sl_v16 a, sl_v16 b) { SL_EACH(x.v[i] > 0.0f ? a.v[i] : b.v[i]); }
static inline sl_v16 v16_select_larger(sl_v16 x, sl_v16 y, sl_v16 a, sl_v16 b)
{
    SL_EACH(x.v[i] > y.v[i] || x.v[i] != x.v[i] ? a.v[i] : b.v[i]);
}
static inline sl_v16 v16_round(sl_v16 a) { SL_EACH(rintf(a.v[i])); }
static inline float sl_ldexp1(float a, float n)
{
    uint32_t bits = (uint32_t)((int32_t)n + 127) << 23;
    float scale;
    memcpy(&scale, &bits, sizeof scale);
    return a * scale;
}
static inline sl_v16 v16_ldexp(sl_v16 a, sl_v16 n) { SL_EACH(sl_ldexp1(a.v[i], n.v[i])); }
static inline sl_v16 v16_neg(sl_v16 a) { SL_EACH(-a.v[i]); }
static inline sl_v16 v16_abs(sl_v16 a) { SL_EACH(fabsf(a.v[i])); }
#undef SL_EACH
#endif

/* clang-format on */

/* First n (0..16) lanes from p, the others `fill`; and the store that goes with it. */
static inline sl_v16 v16_load_part(const float *p, int64_t n, float fill)
{
    float t[SL_LANES];
    for (int i = 0; i < SL_LANES; i++) t[i] = i < n ? p[i] : fill;
    return v16_load(t);
}

static inline void v16_store_part(float *p, sl_v16 a, int64_t n)
{
    float t[SL_LANES];
    v16_store(t, a);
    memcpy(p, t, (size_t)n * sizeof *t);
}

/* Folds halves: lanes i and i+8, then i+4, i+2, i+1. The one order of every horizontal sum in the backend. */
static inline float v16_sum(sl_v16 a)
{
    float t[SL_LANES];
    v16_store(t, a);
    for (int half = SL_LANES / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++) t[i] += t[i + half];
    return t[0];
}

static inline float v16_max_lane(sl_v16 a)
{
    float t[SL_LANES];
    v16_store(t, a);
    for (int half = SL_LANES / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++) t[i] = t[i] > t[i + half] ? t[i] : t[i + half];
    return t[0];
}

#endif
