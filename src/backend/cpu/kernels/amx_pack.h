/* amx_pack.h: bf16 operands into tiles.
 *
 * A lane is a row of A or a column of B. A tile of A is [16 lanes][32 k], a tile of B [16 pairs of k][16 lanes][2]:
 * seen in pairs of k, one is the transpose of the other, and each is a plain copy (or an interleaving of two rows) of
 * one layout in memory. Tiles at the ends are filled up with zeros, which change no sum. */
#ifndef SL_BACKEND_CPU_AMX_PACK_H
#define SL_BACKEND_CPU_AMX_PACK_H

#include "backend/cpu/kernels/amx_tile.h"
#include "backend/cpu/kernels/gemm_turn.h"

#define SL_TILE_ELEMENTS (SL_TILE_SIDE * SL_TILE_K)

/* Lane i's k-th element is data[i * lane + k * step]. */
typedef struct sl_lanes {
    const uint16_t *data;
    int64_t lane, step;
} sl_lanes;

static inline sl_lanes sl_lanes_from(sl_lanes x, int64_t lane, int64_t k)
{
    return (sl_lanes){ x.data + lane * x.lane + k * x.step, x.lane, x.step };
}

/* ---- whole tiles ---- */

/* k side by side -> a tile of A */
static inline void sl_tile_rows(uint16_t *tile, const uint16_t *src, int64_t lane)
{
    for (int i = 0; i < SL_TILE_SIDE; i++) memcpy(tile + i * SL_TILE_K, src + i * lane, SL_TILE_K * sizeof *tile);
}

/* k side by side -> a tile of B: the 16 x 16 pairs turned */
static inline void sl_tile_rows_turned(uint16_t *tile, const uint16_t *src, int64_t lane)
{
    for (int p = 0; p < SL_TILE_SIDE; p += 4) {
        sl_v16 turned[4];
        sl_turn_four(turned, (const char *)(src + 2 * p), lane * (int64_t)sizeof *src);
        for (int q = 0; q < 4; q++) v16_store((float *)(void *)(tile + (p + q) * SL_TILE_K), turned[q]);
    }
}

#if defined(SL_ISA_avx512)
/* lanes side by side -> a tile of B: two rows of k interleaved */
static inline void sl_tile_columns(uint16_t *tile, const uint16_t *src, int64_t step)
{
    for (int p = 0; p < SL_TILE_SIDE; p++) {
        const uint16_t *row = src + 2 * p * step;
        __m512i even = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)row));
        __m512i odd = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)(row + step)));
        _mm512_storeu_si512(tile + p * SL_TILE_K, _mm512_or_si512(even, _mm512_slli_epi32(odd, 16)));
    }
}

/* Eight lanes of rows k, k + 8, k + 16 and k + 24. */
static inline __m512i sl_eight_lanes(const uint16_t *src, int64_t step)
{
    __m512i z = _mm512_castsi128_si512(_mm_loadu_si128((const void *)src));
    z = _mm512_inserti32x4(z, _mm_loadu_si128((const void *)(src + 8 * step)), 1);
    z = _mm512_inserti32x4(z, _mm_loadu_si128((const void *)(src + 16 * step)), 2);
    return _mm512_inserti32x4(z, _mm_loadu_si128((const void *)(src + 24 * step)), 3);
}

/* lanes side by side -> a tile of A: eight-by-eight transposes inside the 128-bit parts, which hold k in order */
static inline void sl_tile_columns_turned(uint16_t *tile, const uint16_t *src, int64_t step)
{
    for (int half = 0; half < 2; half++, src += 8, tile += 8 * SL_TILE_K) {
        __m512i r[8], by2[8], by4[8];
        for (int k = 0; k < 8; k++) r[k] = sl_eight_lanes(src + k * step, step);
        for (int k = 0; k < 8; k += 2) { /* lanes 0..3 and 4..7 of two k */
            by2[k] = _mm512_unpacklo_epi16(r[k], r[k + 1]);
            by2[k + 1] = _mm512_unpackhi_epi16(r[k], r[k + 1]);
        }
        for (int k = 0; k < 8; k += 4) { /* two lanes each of four k */
            by4[k] = _mm512_unpacklo_epi32(by2[k], by2[k + 2]);
            by4[k + 1] = _mm512_unpackhi_epi32(by2[k], by2[k + 2]);
            by4[k + 2] = _mm512_unpacklo_epi32(by2[k + 1], by2[k + 3]);
            by4[k + 3] = _mm512_unpackhi_epi32(by2[k + 1], by2[k + 3]);
        }
        for (int l = 0; l < 4; l++) {
            _mm512_storeu_si512(tile + 2 * l * SL_TILE_K, _mm512_unpacklo_epi64(by4[l], by4[l + 4]));
            _mm512_storeu_si512(tile + (2 * l + 1) * SL_TILE_K, _mm512_unpackhi_epi64(by4[l], by4[l + 4]));
        }
    }
}
#else
static inline void sl_tile_columns(uint16_t *tile, const uint16_t *src, int64_t step)
{
    for (int k = 0; k < SL_TILE_K; k++)
        for (int i = 0; i < SL_TILE_SIDE; i++) tile[k / 2 * SL_TILE_K + 2 * i + k % 2] = src[k * step + i];
}

static inline void sl_tile_columns_turned(uint16_t *tile, const uint16_t *src, int64_t step)
{
    for (int i = 0; i < SL_TILE_SIDE; i++)
        for (int k = 0; k < SL_TILE_K; k++) tile[i * SL_TILE_K + k] = src[k * step + i];
}
#endif

/* ---- any tile ---- */

/* `lanes` x `k` elements with zeros behind them, in the layout they came in (any other: k side by side). */
static inline sl_lanes sl_filled_up(uint16_t whole[SL_TILE_ELEMENTS], sl_lanes x, int64_t lanes, int64_t k)
{
    memset(whole, 0, SL_TILE_BYTES);
    if (x.lane == 1) {
        for (int64_t p = 0; p < k; p++)
            memcpy(whole + p * SL_TILE_SIDE, x.data + p * x.step, (size_t)lanes * sizeof *whole);
        return (sl_lanes){ whole, 1, SL_TILE_SIDE };
    }
    for (int64_t i = 0; i < lanes; i++)
        for (int64_t p = 0; p < k; p++) whole[i * SL_TILE_K + p] = x.data[i * x.lane + p * x.step];
    return (sl_lanes){ whole, SL_TILE_K, 1 };
}

/* One tile of up to 16 lanes and 32 k; `right`: of B. */
static inline void sl_pack_tile(uint16_t *tile, sl_lanes x, int64_t lanes, int64_t k, bool right)
{
    uint16_t whole[SL_TILE_ELEMENTS];
    if (lanes < SL_TILE_SIDE || k < SL_TILE_K || (x.lane != 1 && x.step != 1)) x = sl_filled_up(whole, x, lanes, k);
    if (x.step == 1)
        (right ? sl_tile_rows_turned : sl_tile_rows)(tile, x.data, x.lane);
    else
        (right ? sl_tile_columns : sl_tile_columns_turned)(tile, x.data, x.step);
}

/* Panels of 32 lanes: for each 32 k a tile of the first sixteen lanes, then one of the others where there are any. A
 * panel takes `steps` times two tiles, steps = k / 32 rounded up. Lanes that lie side by side are packed some k at a
 * time over all panels, so that memory is read in order. */
static inline void sl_pack_lanes(uint16_t *packed, sl_lanes x, int64_t lanes, int64_t k, bool right)
{
    int64_t steps = sl_ceil_div(k, SL_TILE_K), together = x.lane == 1 ? 1 : steps;
    for (int64_t begin = 0; begin < steps; begin += together)
        for (int64_t lane = 0; lane < lanes; lane += SL_TILE_SIDE) {
            bool alone = lanes - lane / 32 * 32 <= SL_TILE_SIDE; /* the panel has no second tile */
            uint16_t *panel = packed + lane / 32 * steps * 2 * SL_TILE_ELEMENTS + lane / 16 % 2 * SL_TILE_ELEMENTS;
            for (int64_t s = begin; s < begin + together; s++)
                sl_pack_tile(panel + s * (alone ? 1 : 2) * SL_TILE_ELEMENTS, sl_lanes_from(x, lane, s * SL_TILE_K),
                             sl_least(lanes - lane, SL_TILE_SIDE), sl_least(k - s * SL_TILE_K, SL_TILE_K), right);
        }
}

/* Elements that sl_pack_lanes may write. */
static inline int64_t sl_packed_lanes(int64_t lanes, int64_t k)
{
    return sl_ceil_div(lanes, 32) * 32 * sl_ceil_div(k, SL_TILE_K) * SL_TILE_K;
}

#endif
