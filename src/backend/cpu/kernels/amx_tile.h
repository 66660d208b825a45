/* amx_tile.h: the tile instructions that GEMMs of bf16 need, on eight tiles of 16 rows x 64 bytes.
 *
 * A product of tiles adds to c[16][16] (f32) the a[16][32] (bf16, a row of 32 k per row of c) times b[16][32], whose
 * row p holds k = 2p and 2p + 1 of sixteen columns side by side.
 *
 * Written as assembly, not intrinsics: it needs no compiler flags, and the memory clobbers keep packing before the
 * loads, which the intrinsics of some compilers do not. A thread configures the tiles before its first use of them and
 * releases them after the last, so that switching threads does not save eight kilobytes for nothing.
 *
 * With SL_AMX_EMULATED (tests, on CPUs without tiles) the same operations are plain C. As on the CPU, even and odd k of
 * one instruction are two fma chains from zero, whose sum is added to c; denormal operands count as zero and denormal
 * results become zero; rounding is to nearest even. Not emulated: which NaN comes of several, and faults. */
#ifndef SL_BACKEND_CPU_AMX_TILE_H
#define SL_BACKEND_CPU_AMX_TILE_H

#include <stdint.h>
#include <string.h>

#define SL_TILE_SIDE  16   /* rows and columns of c, pairs of k */
#define SL_TILE_K     32   /* k of one instruction */
#define SL_TILE_BYTES 1024 /* of any tile */

#if defined(SL_AMX_EMULATED)
#include <float.h>
#include <math.h>

#include "core/half.h"

/* The tiles of a thread. */
static _Thread_local uint8_t sl_emulated_tiles[8][SL_TILE_SIDE][64];

static inline void tile_configure(void)
{
    memset(sl_emulated_tiles, 0xff, sizeof sl_emulated_tiles); /* what nobody loaded is NaN */
}

static inline void tile_release(void)
{
    memset(sl_emulated_tiles, 0xff, sizeof sl_emulated_tiles);
}

static inline void tile_zero(int t)
{
    memset(sl_emulated_tiles[t], 0, SL_TILE_BYTES);
}

static inline void tile_load(int t, const void *p, int64_t stride)
{
    for (int i = 0; i < SL_TILE_SIDE; i++) memcpy(sl_emulated_tiles[t][i], (const char *)p + i * stride, 64);
}

static inline void tile_store(int t, void *p, int64_t stride)
{
    for (int i = 0; i < SL_TILE_SIDE; i++) memcpy((char *)p + i * stride, sl_emulated_tiles[t][i], 64);
}

static inline float sl_flushed(float x)
{
    return fabsf(x) < FLT_MIN ? copysignf(0.0f, x) : x;
}

static inline float sl_tile_bf16(int t, int row, int column)
{
    uint16_t h;
    memcpy(&h, &sl_emulated_tiles[t][row][2 * column], sizeof h);
    return sl_flushed(sl_bf16_to_float(h));
}

static inline void tile_dot(int c, int a, int b)
{
    float rows[SL_TILE_SIDE][SL_TILE_K], columns[SL_TILE_SIDE][SL_TILE_K], old;
    for (int i = 0; i < SL_TILE_SIDE; i++)
        for (int k = 0; k < SL_TILE_K; k++) {
            rows[i][k] = sl_tile_bf16(a, i, k);
            columns[i][k] = sl_tile_bf16(b, k / 2, 2 * i + k % 2);
        }
    for (int i = 0; i < SL_TILE_SIDE; i++)
        for (int j = 0; j < SL_TILE_SIDE; j++) {
            float sum[2] = { 0.0f, 0.0f };
            for (int k = 0; k < SL_TILE_K; k++) sum[k % 2] = sl_flushed(fmaf(rows[i][k], columns[j][k], sum[k % 2]));
            memcpy(&old, &sl_emulated_tiles[c][i][4 * j], sizeof old);
            old = sl_flushed(sl_flushed(old) + sl_flushed(sum[0] + sum[1]));
            memcpy(&sl_emulated_tiles[c][i][4 * j], &old, sizeof old);
        }
}
#else
/* Palette 1, by hand: some virtual machines announce tiles but leave CPUID's list of palettes empty. */
static inline void tile_configure(void)
{
    static const struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } config __attribute__((aligned(64))) = { .palette = 1,
                                              .row_bytes = { 64, 64, 64, 64, 64, 64, 64, 64 },
                                              .rows = { 16, 16, 16, 16, 16, 16, 16, 16 } };
    __asm__ volatile("ldtilecfg %0" : : "m"(config));
}

static inline void tile_release(void)
{
    __asm__ volatile("tilerelease" : : : "memory");
}

/* t, c, a and b are numbers of tiles, written out. */
#define tile_zero(t) __asm__ volatile("tilezero %%tmm" #t : :)
#define tile_load(t, p, stride)                                                                                        \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #t : : "r"(p), "r"((int64_t)(stride)) : "memory")
#define tile_store(t, p, stride)                                                                                       \
    __asm__ volatile("tilestored %%tmm" #t ", (%0,%1,1)" : : "r"(p), "r"((int64_t)(stride)) : "memory")
#define tile_dot(c, a, b) __asm__ volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #c : :)
#endif

#endif
