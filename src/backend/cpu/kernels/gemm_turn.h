/* gemm_turn.h: the transpose that packing is made of, on 32-bit units: floats, or pairs of 16-bit elements. */
#ifndef SL_BACKEND_CPU_GEMM_TURN_H
#define SL_BACKEND_CPU_GEMM_TURN_H

#include "backend/cpu/kernels/loops.h"

/* Sixteen bytes each of sixteen rows that lie `row` bytes apart: lane i of out[q] is the q-th four bytes of row i. The
 * four-by-four transposes are inside the 128-bit parts, which are loaded so that they come out in order. */
#if defined(SL_ISA_avx512)
SL_INLINE __m512 sl_quarter_rows(const char *src, int64_t row)
{
    __m512 z = _mm512_castps128_ps512(_mm_loadu_ps((const float *)src));
    z = _mm512_insertf32x4(z, _mm_loadu_ps((const float *)(src + 4 * row)), 1);
    z = _mm512_insertf32x4(z, _mm_loadu_ps((const float *)(src + 8 * row)), 2);
    return _mm512_insertf32x4(z, _mm_loadu_ps((const float *)(src + 12 * row)), 3);
}

SL_INLINE void sl_turn_four(sl_v16 out[4], const char *src, int64_t row)
{
    __m512 a = sl_quarter_rows(src, row), b = sl_quarter_rows(src + row, row);
    __m512 c = sl_quarter_rows(src + 2 * row, row), d = sl_quarter_rows(src + 3 * row, row);
    __m512d ab_low = _mm512_castps_pd(_mm512_unpacklo_ps(a, b)), ab_high = _mm512_castps_pd(_mm512_unpackhi_ps(a, b));
    __m512d cd_low = _mm512_castps_pd(_mm512_unpacklo_ps(c, d)), cd_high = _mm512_castps_pd(_mm512_unpackhi_ps(c, d));
    out[0] = _mm512_castpd_ps(_mm512_unpacklo_pd(ab_low, cd_low));
    out[1] = _mm512_castpd_ps(_mm512_unpackhi_pd(ab_low, cd_low));
    out[2] = _mm512_castpd_ps(_mm512_unpacklo_pd(ab_high, cd_high));
    out[3] = _mm512_castpd_ps(_mm512_unpackhi_pd(ab_high, cd_high));
}
#elif defined(SL_ISA_avx2)
SL_INLINE __m256 sl_half_rows(const char *src, int64_t row)
{
    return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps((const float *)src)),
                                _mm_loadu_ps((const float *)(src + 4 * row)), 1);
}

SL_INLINE void sl_turn_eight(__m256 out[4], const char *src, int64_t row)
{
    __m256 a = sl_half_rows(src, row), b = sl_half_rows(src + row, row);
    __m256 c = sl_half_rows(src + 2 * row, row), d = sl_half_rows(src + 3 * row, row);
    __m256d ab_low = _mm256_castps_pd(_mm256_unpacklo_ps(a, b)), ab_high = _mm256_castps_pd(_mm256_unpackhi_ps(a, b));
    __m256d cd_low = _mm256_castps_pd(_mm256_unpacklo_ps(c, d)), cd_high = _mm256_castps_pd(_mm256_unpackhi_ps(c, d));
    out[0] = _mm256_castpd_ps(_mm256_unpacklo_pd(ab_low, cd_low));
    out[1] = _mm256_castpd_ps(_mm256_unpackhi_pd(ab_low, cd_low));
    out[2] = _mm256_castpd_ps(_mm256_unpacklo_pd(ab_high, cd_high));
    out[3] = _mm256_castpd_ps(_mm256_unpackhi_pd(ab_high, cd_high));
}

SL_INLINE void sl_turn_four(sl_v16 out[4], const char *src, int64_t row)
{
    __m256 low[4], high[4];
    sl_turn_eight(low, src, row);
    sl_turn_eight(high, src + 8 * row, row);
    for (int q = 0; q < 4; q++) out[q] = (sl_v16){ low[q], high[q] };
}
#else
SL_INLINE void sl_turn_four(sl_v16 out[4], const char *src, int64_t row)
{
    for (int i = 0; i < SL_LANES; i++)
        for (int q = 0; q < 4; q++) memcpy(&out[q].v[i], src + i * row + 4 * q, 4);
}
#endif

#endif
