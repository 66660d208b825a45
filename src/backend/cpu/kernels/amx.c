/* amx.c: the GEMM of bf16 matrices on AMX tiles.
 *
 * A task owns a tile of C, as in gemm.c. It walks k in blocks; for each it packs its columns of B, then its rows of A
 * some at a time, and runs blocks of 32 x 32 over both. Tiles multiply so fast that packing and carrying sums count: an
 * operand is packed once per task and block of k, so tasks are large, and blocks of k are long, though their panels
 * then come from the second-level cache. Sums that wait for the next block of k lie in scratch as the blocks they
 * are. */
#include "backend/cpu/kernels/amx.h"

#if defined(SL_HAVE_AMX) || defined(SL_AMX_EMULATED)

#include "backend/cpu/kernels/amx_block.h"
#include "backend/cpu/kernels/convert.h"
#include "backend/cpu/kernels/gemm_cut.h"
#include "core/thread.h"

/* Longest run of k between two visits of a block of C: most GEMMs of a model need no second one. */
#define K_STEPS 32
#define K_BLOCK (K_STEPS * SL_TILE_K)
/* Rows of A packed together: 256 KiB. */
#define GROUP_ROWS 128
/* Largest tile of C of one task: packed B 1 MiB, carried sums 2 MiB. Where none are carried it may be longer. */
#define TASK_ROWS      1024
#define LONG_TASK_ROWS 2048
#define TASK_COLUMNS   512
#define BLOCK_ELEMENTS (SL_AMX_SIDE * SL_AMX_SIDE)
/* Columns of a task whose B is gathered, which takes memory besides; an A is gathered there too, not both. */
#define GATHERED_COLUMNS 256
_Static_assert((GROUP_ROWS + TASK_COLUMNS + GATHERED_COLUMNS) * K_BLOCK * sizeof(uint16_t) +
                       (TASK_ROWS * TASK_COLUMNS + BLOCK_ELEMENTS) * sizeof(float) <=
                   SL_SCRATCH_BYTES,
               "a task must fit in a worker's scratch");

typedef struct task {
    const sl_gemm *g;
    sl_lanes a, b;     /* rows of A, columns of B, from the tile's first on */
    sl_tensor c, bias; /* data and form, at the tile's first element */
    sl_cut_tile at;    /* which tile */
    int64_t m, n;
    uint16_t *packed_a, *packed_b;
    float *aside;   /* one block */
    float *carried; /* the blocks of the tile, row by row */
    uint16_t *gathered;
} task;

/* Adds what follows the sums and puts a finished block into C, rounded once. Inlined with the form and the usual number
 * of columns as constants. */
SL_INLINE void finish_as(const task *t, sl_form form, int64_t row, int64_t column, int64_t rows, const int64_t columns)
{
    const sl_tensor c = { .data = t->c.data, .form = form };
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j += SL_LANES) {
            sl_v16 x = v16_load(t->aside + i * SL_AMX_SIDE + j);
            if (t->bias.data) x = v16_add(x, w16_get(&t->bias, column + j, columns - j, 0.0f));
            int64_t at = t->g->places ? sl_row_place(t->g, t->at.row + row + i) : (row + i) * t->g->c_row;
            w16_put_or_add(&c, at + column + j, x, columns - j, t->g->accumulate);
        }
}

static void finish_block(const task *t, int64_t row, int64_t column, int64_t rows, int64_t columns)
{
    if (columns == SL_AMX_SIDE && t->c.form == SL_FORM_BF16)
        finish_as(t, SL_FORM_BF16, row, column, rows, SL_AMX_SIDE);
    else if (columns == SL_AMX_SIDE && t->c.form == SL_FORM_F32)
        finish_as(t, SL_FORM_F32, row, column, rows, SL_AMX_SIDE);
    else
        finish_as(t, t->c.form, row, column, rows, columns);
}

/* The lines of C that a block will write are prefetched before its tile products, which hide the latency of memory. */
SL_INLINE void fetch_block(const task *t, int64_t row, int64_t column, int64_t rows, int64_t columns)
{
    int64_t bytes = sl_float_bytes(t->c.form);
    for (int64_t i = 0; i < rows; i++) {
        const char *c = (const char *)t->c.data + ((row + i) * t->g->c_row + column) * bytes;
        __builtin_prefetch(c, 1);
        __builtin_prefetch(c + columns * bytes - 1, 1);
    }
}

/* One block of C over one block of k. */
static void run_block(const task *t, const uint16_t *a, const uint16_t *b, int64_t steps, int64_t row, int64_t column,
                      bool first, bool last)
{
    int64_t rows = sl_least(t->m - row, SL_AMX_SIDE), columns = sl_least(t->n - column, SL_AMX_SIDE);
    int64_t number = row / SL_AMX_SIDE * sl_ceil_div(t->n, SL_AMX_SIDE) + column / SL_AMX_SIDE;
    float *carried = first && last ? NULL : t->carried + number * BLOCK_ELEMENTS;
    bool tall = rows > SL_TILE_SIDE, wide = columns > SL_TILE_SIDE;
    bool plain = t->c.form == SL_FORM_F32 && !t->bias.data && !t->g->accumulate && !t->g->places;
    const float *from = first ? NULL : carried;
    if (last && !t->g->places) fetch_block(t, row, column, rows, columns);
    if (!last) {
        sl_block_multiply(a, b, steps, tall, wide, from, SL_AMX_SIDE, carried, SL_AMX_SIDE);
    } else if (plain && rows == SL_AMX_SIDE && columns == SL_AMX_SIDE) {
        float *c = (float *)t->c.data + row * t->g->c_row + column;
        sl_block_multiply(a, b, steps, true, true, from, SL_AMX_SIDE, c, t->g->c_row);
    } else {
        sl_block_multiply(a, b, steps, tall, wide, from, SL_AMX_SIDE, t->aside, SL_AMX_SIDE);
        finish_block(t, row, column, rows, columns);
    }
}

/* Columns of B from the tile's first on. */
static sl_lanes columns_of_b(const task *t, int64_t first_k, int64_t k)
{
    const sl_window_gather *gather = t->g->gather_b;
    if (gather == NULL) return sl_lanes_from(t->b, 0, first_k);
    gather->fill(gather, t->at.batch, first_k, k, t->at.column, t->n, t->gathered, t->n, true);
    return (sl_lanes){ t->gathered, 1, t->n };
}

static sl_lanes rows_of_a(const task *t, int64_t group, int64_t rows, int64_t first_k, int64_t k)
{
    const sl_window_gather *gather = t->g->gather_a;
    if (gather == NULL) return sl_lanes_from(t->a, group, first_k);
    gather->fill(gather, t->at.batch, t->at.row + group, rows, first_k, k, t->gathered, k, true);
    return (sl_lanes){ t->gathered, k, 1 };
}

static void multiply_k(const task *t, int64_t first_k, int64_t k, bool first, bool last)
{
    int64_t steps = sl_ceil_div(k, SL_TILE_K), panel = 2 * steps * SL_TILE_ELEMENTS;
    sl_pack_lanes(t->packed_b, columns_of_b(t, first_k, k), t->n, k, true);
    for (int64_t group = 0; group < t->m; group += GROUP_ROWS) {
        int64_t rows = sl_least(GROUP_ROWS, t->m - group);
        sl_pack_lanes(t->packed_a, rows_of_a(t, group, rows, first_k, k), rows, k, false);
        for (int64_t row = 0; row < rows; row += SL_AMX_SIDE)
            for (int64_t column = 0; column < t->n; column += SL_AMX_SIDE)
                run_block(t, t->packed_a + row / SL_AMX_SIDE * panel, t->packed_b + column / SL_AMX_SIDE * panel, steps,
                          group + row, column, first, last);
    }
}

static void run_task(void *context, int64_t number, void *scratch)
{
    const sl_cut *cut = context;
    const sl_gemm *g = cut->g;
    sl_cut_tile at = sl_cut_tile_of(cut, number);
    task t = { .g = g, .m = at.m, .n = at.n, .c = sl_cut_output(g, at), .bias = sl_cut_bias(g, at) };
    const uint16_t *a = g->a.data, *b = g->b.data;
    t.at = at;
    if (a) t.a = (sl_lanes){ a + at.batch * g->a_batch + at.row * g->a.row, g->a.row, g->a.column };
    if (b) t.b = (sl_lanes){ b + at.batch * g->b_batch + at.column * g->b.column, g->b.column, g->b.row };
    t.packed_a = scratch;
    t.packed_b = t.packed_a + sl_packed_lanes(GROUP_ROWS, K_BLOCK);
    t.aside = (float *)(void *)(t.packed_b + sl_packed_lanes(TASK_COLUMNS, K_BLOCK));
    t.carried = t.aside + BLOCK_ELEMENTS;
    t.gathered = (uint16_t *)(void *)(t.carried + TASK_ROWS * TASK_COLUMNS);
    int64_t steps = sl_ceil_div(g->k, SL_TILE_K), blocks = sl_ceil_div(steps, K_STEPS);
    tile_configure();
    for (int64_t block = 0; block < blocks; block++) {
        int64_t first = steps * block / blocks * SL_TILE_K, end = steps * (block + 1) / blocks * SL_TILE_K;
        multiply_k(&t, first, sl_least(end, g->k) - first, block == 0, block + 1 == blocks);
    }
    tile_release();
}

void AMX(gemm)(sl_pool *pool, const sl_gemm *g)
{
    const int64_t rows = g->k > K_BLOCK ? TASK_ROWS : LONG_TASK_ROWS;
    const int64_t columns = g->gather_b ? GATHERED_COLUMNS : TASK_COLUMNS;
    const sl_cut_limits limits = { SL_AMX_SIDE, SL_AMX_SIDE, rows, columns };
    sl_cut cut = sl_cut_of(g, &limits, sl_pool_threads(pool));
    sl_pool_run(pool, run_task, &cut, cut.tasks);
}

#endif
