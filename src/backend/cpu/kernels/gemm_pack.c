/* gemm_pack.c: operands of a GEMM into panels of floats.
 *
 * Functions that take a form are inlined with a constant: each form has its own loops. 16-bit elements whose k lie side
 * by side are transposed in pairs, as if two neighbours in k were one float, and become floats when they are stored. */
#include "backend/cpu/kernels/convert.h"
#include "backend/cpu/kernels/gemm.h"
#include "backend/cpu/kernels/gemm_turn.h"
#include "backend/cpu/kernels/loops.h"

/* ---- elements of a form ---- */

SL_INLINE sl_v16 load_lanes(sl_form form, const void *p)
{
    if (form == SL_FORM_BF16) return bf16_load(p);
    if (form == SL_FORM_F16) return f16_load(p);
    return v16_load(p);
}

SL_INLINE float load_one(sl_form form, const void *data, int64_t index)
{
    const void *p = sl_element(data, form, index);
    if (form == SL_FORM_BF16) return sl_bf16_to_float(*(const uint16_t *)p);
    if (form == SL_FORM_F16) return sl_f16_to_float(*(const uint16_t *)p);
    return *(const float *)p;
}

/* The first (second: `upper`) of the two 16-bit elements in every 32 bits. */
#if defined(SL_ISA_avx512)
SL_INLINE sl_v16 widen(sl_form form, sl_v16 pairs, bool upper)
{
    __m512i x = _mm512_castps_si512(pairs);
    if (form == SL_FORM_BF16 && upper)
        return _mm512_castsi512_ps(_mm512_and_si512(x, _mm512_set1_epi32((int)0xffff0000)));
    if (form == SL_FORM_BF16) return _mm512_castsi512_ps(_mm512_slli_epi32(x, 16));
    return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(upper ? _mm512_srli_epi32(x, 16) : x));
}
#elif defined(SL_ISA_avx2)
SL_INLINE __m256 widen_eight(sl_form form, __m256 pairs, bool upper)
{
    __m256i x = _mm256_castps_si256(pairs);
    if (form == SL_FORM_BF16 && upper)
        return _mm256_castsi256_ps(_mm256_and_si256(x, _mm256_set1_epi32((int)0xffff0000)));
    if (form == SL_FORM_BF16) return _mm256_castsi256_ps(_mm256_slli_epi32(x, 16));
    x = upper ? _mm256_srli_epi32(x, 16) : _mm256_and_si256(x, _mm256_set1_epi32(0xffff));
    x = _mm256_permute4x64_epi64(_mm256_packus_epi32(x, x), 0x08);
    return _mm256_cvtph_ps(_mm256_castsi256_si128(x));
}

SL_INLINE sl_v16 widen(sl_form form, sl_v16 pairs, bool upper)
{
    return (sl_v16){ widen_eight(form, pairs.l, upper), widen_eight(form, pairs.h, upper) };
}
#else
SL_INLINE sl_v16 widen(sl_form form, sl_v16 pairs, bool upper)
{
    uint16_t halves[2 * SL_LANES];
    sl_v16 r;
    memcpy(halves, &pairs, sizeof halves);
    for (int i = 0; i < SL_LANES; i++) r.v[i] = load_one(form, halves, 2 * i + upper);
    return r;
}
#endif

/* ---- panels ---- */

/* Sixteen lanes whose k are adjacent in memory. */
SL_INLINE void pack_across(sl_form form, float *dst, int64_t width, const void *src, int64_t lane_stride, int64_t k)
{
    const int64_t bytes = sl_float_bytes(form), step = 16 / bytes;
    int64_t p = 0;
    for (; p + step <= k; p += step) {
        sl_v16 turned[4];
        sl_turn_four(turned, (const char *)src + p * bytes, lane_stride * bytes);
        float *to = dst + p * width;
#pragma GCC unroll 4
        for (int q = 0; q < 4; q++)
            if (form == SL_FORM_F32) {
                v16_store(to + q * width, turned[q]);
            } else {
                v16_store(to + 2 * q * width, widen(form, turned[q], false));
                v16_store(to + (2 * q + 1) * width, widen(form, turned[q], true));
            }
    }
    for (; p < k; p++)
        for (int64_t i = 0; i < sl_least(width, SL_LANES); i++)
            dst[p * width + i] = load_one(form, src, i * lane_stride + p);
}

/* The same with fewer than sixteen lanes at the end of a matrix: by way of a buffer, since rows behind it must not be
 * read. */
SL_INLINE void pack_across_end(sl_form form, float *dst, int64_t width, const void *src, int64_t lane_stride,
                               int64_t lanes, int64_t k)
{
    enum { PIECE = 64 };
    float rows[SL_LANES * PIECE] = { 0 };
    const int64_t bytes = sl_float_bytes(form);
    for (int64_t p = 0; p < k; p += PIECE) {
        int64_t n = sl_least(k - p, PIECE);
        for (int64_t i = 0; i < lanes; i++)
            memcpy((char *)rows + i * PIECE * bytes, sl_element(src, form, i * lane_stride + p), (size_t)(n * bytes));
        pack_across(form, dst + p * width, width, rows, PIECE, n);
    }
}

/* Lanes adjacent in memory: rows are copied. `lanes` may be less than width: the rest is zero. */
SL_INLINE void pack_along(sl_form form, float *dst, int64_t width, const void *src, int64_t k_stride, int64_t lanes,
                          int64_t k)
{
    int64_t p = 0;
    if (lanes == SL_TILE_COLUMNS) {
        for (; p < k; p++)
            for (int v = 0; v < SL_TILE_VECTORS; v++)
                v16_store(dst + p * width + v * SL_LANES,
                          load_lanes(form, sl_element(src, form, p * k_stride + v * SL_LANES)));
    } else if (lanes == width && lanes < SL_LANES && k_stride + lanes >= SL_LANES) {
        /* whole vectors: reading runs on into the next row, storing into what later rows mend, never past the panel */
        for (; p * width + SL_LANES <= k * width; p++)
            v16_store(dst + p * width, load_lanes(form, sl_element(src, form, p * k_stride)));
    }
    for (; p < k; p++) {
        for (int64_t i = 0; i < lanes; i++) dst[p * width + i] = load_one(form, src, p * k_stride + i);
        for (int64_t i = lanes; i < width; i++) dst[p * width + i] = 0.0f;
    }
}

SL_INLINE void pack_any(sl_form form, float *dst, int64_t width, const void *src, int64_t lane_stride, int64_t k_stride,
                        int64_t lanes, int64_t k)
{
    for (int64_t p = 0; p < k; p++) {
        for (int64_t i = 0; i < lanes; i++) dst[p * width + i] = load_one(form, src, i * lane_stride + p * k_stride);
        for (int64_t i = lanes; i < width; i++) dst[p * width + i] = 0.0f;
    }
}

/* One panel: dst[p * width + i] = src[i * lane_stride + p * k_stride] for i < lanes, p < k; lanes <= width, and width
 * is below SL_LANES or a multiple of it. `readable` lanes exist in src, those after the panel's included: pack_across
 * reads and stores sixteen, in order of p, so that each store mends what the one before spilt. */
SL_INLINE void pack_panel(sl_form form, float *dst, int64_t width, const void *src, int64_t lane_stride,
                          int64_t k_stride, int64_t lanes, int64_t readable, int64_t k)
{
    if (lane_stride == 1) {
        pack_along(form, dst, width, src, k_stride, lanes, k);
    } else if (k_stride == 1) {
        for (int64_t i = 0; i < lanes; i += SL_LANES) {
            const void *from = sl_element(src, form, i * lane_stride);
            if (readable - i >= SL_LANES)
                pack_across(form, dst + i, width, from, lane_stride, k);
            else
                pack_across_end(form, dst + i, width, from, lane_stride, lanes - i, k);
        }
    } else {
        pack_any(form, dst, width, src, lane_stride, k_stride, lanes, k);
    }
}

typedef void (*panel_fn)(float *dst, int64_t width, const void *src, int64_t lane_stride, int64_t k_stride,
                         int64_t lanes, int64_t readable, int64_t k);

#define PANEL(name, form)                                                                                              \
    static void name(float *dst, int64_t width, const void *src, int64_t lane_stride, int64_t k_stride, int64_t lanes, \
                     int64_t readable, int64_t k)                                                                      \
    {                                                                                                                  \
        pack_panel(form, dst, width, src, lane_stride, k_stride, lanes, readable, k);                                  \
    }
PANEL(panel_f32, SL_FORM_F32)
PANEL(panel_bf16, SL_FORM_BF16)
PANEL(panel_f16, SL_FORM_F16)
static const panel_fn panels_of[] = {
    [SL_FORM_F32] = panel_f32, [SL_FORM_BF16] = panel_bf16, [SL_FORM_F16] = panel_f16
};

/* ---- whole operands ---- */

/* Operands whose k are the slow index in memory are packed a few k at a time: all panels take their part of a row while
 * it is near, and the hardware sees it read in order. */
#define K_STEP 16

void KI(pack_a)(float *packed, sl_matrix a, int64_t rows, int64_t readable, int64_t k)
{
    panel_fn panel = panels_of[a.form];
    int64_t panels = sl_panel_count(rows), step = a.row == 1 ? K_STEP : k;
    for (int64_t done = 0; done < k; done += step)
        for (int64_t p = 0; p < panels; p++) {
            int64_t first = sl_panel_start(rows, panels, p), height = sl_panel_start(rows, panels, p + 1) - first;
            panel(packed + first * k + done * height, height, sl_matrix_at(a, first, done), a.row, a.column, height,
                  readable - first, sl_least(step, k - done));
        }
}

void KI(pack_b)(float *packed, sl_matrix b, int64_t columns, int64_t k)
{
    panel_fn panel = panels_of[b.form];
    int64_t step = b.column == 1 ? K_STEP : k;
    for (int64_t done = 0; done < k; done += step)
        for (int64_t first = 0; first < columns; first += SL_TILE_COLUMNS) {
            int64_t left = columns - first, width = sl_panel_width(left, 0);
            panel(packed + first * k + done * width, width, sl_matrix_at(b, done, first), b.column, b.row,
                  sl_least(left, SL_TILE_COLUMNS), left, sl_least(step, k - done));
        }
}

void KI(transpose_copy)(float *dst, int64_t dst_row, const float *src, int64_t src_row, int64_t rows, int64_t columns)
{
    int64_t i = 0;
    for (; i + SL_LANES <= rows; i += SL_LANES)
        pack_across(SL_FORM_F32, dst + i, dst_row, src + i * src_row, src_row, columns);
    for (; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) dst[j * dst_row + i] = src[i * src_row + j];
}
