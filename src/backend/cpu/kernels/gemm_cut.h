/* gemm_cut.h: how a GEMM is cut into tasks, each of which owns a tile of C.
 *
 * Tiles are halved until every thread has a few or they get too small to pay for packing. The cut may follow the number
 * of threads because an element is one chain over k, whoever computes it. */
#ifndef SL_BACKEND_CPU_GEMM_CUT_H
#define SL_BACKEND_CPU_GEMM_CUT_H

#include "backend/cpu/kernels/gemm.h"
#include "backend/cpu/kernels/loops.h"

#define SL_TASKS_A_THREAD 2
#define SL_TASK_LEAST     64

/* Rows and columns of the kernel's own tile, and of the largest task. */
typedef struct sl_cut_limits {
    int64_t unit_rows, unit_columns, most_rows, most_columns;
} sl_cut_limits;

typedef struct sl_cut {
    const sl_gemm *g;
    int64_t tile_rows, tile_columns; /* of a task */
    int64_t row_tiles, column_tiles;
    int64_t tasks;
} sl_cut;

/* The tile of one task. */
typedef struct sl_cut_tile {
    int64_t batch, row, column, m, n;
} sl_cut_tile;

/* `size` cut into pieces of a multiple of `unit`, at most `most` long (or one unit), as even as that allows. */
SL_INLINE int64_t sl_even_piece(int64_t size, int64_t unit, int64_t most)
{
    int64_t units = sl_ceil_div(size, unit), pieces = sl_ceil_div(size, most);
    return sl_ceil_div(units, pieces) * unit;
}

SL_INLINE sl_cut sl_cut_of(const sl_gemm *g, const sl_cut_limits *l, int threads)
{
    int64_t batches = g->batches ? g->batches : 1, most_rows = l->most_rows, most_columns = l->most_columns;
    sl_cut cut = { .g = g };
    for (;;) {
        cut.tile_rows = sl_even_piece(g->m, l->unit_rows, most_rows);
        cut.tile_columns = sl_even_piece(g->n, l->unit_columns, most_columns);
        cut.row_tiles = sl_ceil_div(g->m, cut.tile_rows);
        cut.column_tiles = sl_ceil_div(g->n, cut.tile_columns);
        cut.tasks = batches * cut.row_tiles * cut.column_tiles;
        int64_t rows = sl_least(cut.tile_rows, g->m), columns = sl_least(cut.tile_columns, g->n);
        if (cut.tasks >= SL_TASKS_A_THREAD * threads || (rows <= SL_TASK_LEAST && columns <= SL_TASK_LEAST)) return cut;
        if (rows > columns)
            most_rows = rows / 2;
        else
            most_columns = columns / 2;
    }
}

SL_INLINE sl_cut_tile sl_cut_tile_of(const sl_cut *cut, int64_t task)
{
    sl_cut_tile t = { .batch = task / cut->column_tiles / cut->row_tiles };
    t.row = task / cut->column_tiles % cut->row_tiles * cut->tile_rows;
    t.column = task % cut->column_tiles * cut->tile_columns;
    t.m = sl_least(cut->tile_rows, cut->g->m - t.row);
    t.n = sl_least(cut->tile_columns, cut->g->n - t.column);
    return t;
}

/* C and the bias from the tile's first element on (C's first row where rows have places); no data: no bias. */
SL_INLINE sl_tensor sl_cut_output(const sl_gemm *g, sl_cut_tile t)
{
    int64_t first = t.batch * g->c_batch + (g->places != NULL ? 0 : t.row * g->c_row) + t.column;
    return (sl_tensor){ .data = (char *)g->c + first * sl_float_bytes(g->c_form), .form = g->c_form };
}

SL_INLINE sl_tensor sl_cut_bias(const sl_gemm *g, sl_cut_tile t)
{
    if (g->bias == NULL) return (sl_tensor){ 0 };
    int64_t first = t.batch * g->bias_batch + t.column;
    return (sl_tensor){ .data = (char *)(uintptr_t)g->bias + first * sl_float_bytes(g->bias_form),
                        .form = g->bias_form };
}

#endif
