/* amx_block.h: 32 x 32 sums in the four accumulator tiles, two tiles of A and two of B at a time: each tile that is
 * loaded is used twice. */
#ifndef SL_BACKEND_CPU_AMX_BLOCK_H
#define SL_BACKEND_CPU_AMX_BLOCK_H

#include "backend/cpu/kernels/amx_pack.h"

#define SL_AMX_SIDE 32 /* rows and columns of a block */

/* Tiles 0..3 are c[0][0], c[0][1], c[1][0], c[1][1]. Blocks of up to sixteen rows or columns use the first ones
 * only. */
SL_INLINE void sl_block_start(const float *from, int64_t row, bool tall, bool wide)
{
    const int64_t stride = row * (int64_t)sizeof *from;
    if (from == NULL) {
        tile_zero(0);
        tile_zero(1);
        tile_zero(2);
        tile_zero(3);
        return;
    }
    tile_load(0, from, stride);
    if (wide) tile_load(1, from + SL_TILE_SIDE, stride);
    if (tall) tile_load(2, from + SL_TILE_SIDE * row, stride);
    if (tall && wide) tile_load(3, from + SL_TILE_SIDE * row + SL_TILE_SIDE, stride);
}

SL_INLINE void sl_block_end(float *to, int64_t row, bool tall, bool wide)
{
    const int64_t stride = row * (int64_t)sizeof *to;
    tile_store(0, to, stride);
    if (wide) tile_store(1, to + SL_TILE_SIDE, stride);
    if (tall) tile_store(2, to + SL_TILE_SIDE * row, stride);
    if (tall && wide) tile_store(3, to + SL_TILE_SIDE * row + SL_TILE_SIDE, stride);
}

/* The four shapes are written out: which tiles a loop uses is fixed in its instructions. */
SL_INLINE void sl_block_steps(const uint16_t *a, const uint16_t *b, int64_t steps, const bool tall, const bool wide)
{
    for (int64_t s = 0; s < steps; s++) {
        tile_load(4, a, 64);
        tile_load(6, b, 64);
        tile_dot(0, 4, 6);
        if (wide) {
            tile_load(7, b + SL_TILE_ELEMENTS, 64);
            tile_dot(1, 4, 7);
        }
        if (tall) {
            tile_load(5, a + SL_TILE_ELEMENTS, 64);
            tile_dot(2, 5, 6);
            if (wide) tile_dot(3, 5, 7);
        }
        a += tall ? 2 * SL_TILE_ELEMENTS : SL_TILE_ELEMENTS;
        b += wide ? 2 * SL_TILE_ELEMENTS : SL_TILE_ELEMENTS;
    }
}

/* to = `from` (NULL: zero; may be `to`) plus a panel of A times a panel of B over `steps` times 32 k. Rows lie from_row
 * and to_row floats apart. A full block has 32 rows (tall) and 32 columns (wide), the others 16. */
static inline void sl_block_multiply(const uint16_t *a, const uint16_t *b, int64_t steps, bool tall, bool wide,
                                     const float *from, int64_t from_row, float *to, int64_t to_row)
{
    sl_block_start(from, from_row, tall, wide);
    if (tall && wide)
        sl_block_steps(a, b, steps, true, true);
    else if (tall)
        sl_block_steps(a, b, steps, true, false);
    else if (wide)
        sl_block_steps(a, b, steps, false, true);
    else
        sl_block_steps(a, b, steps, false, false);
    sl_block_end(to, to_row, tall, wide);
}

#endif
