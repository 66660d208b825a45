/* gemm.c: the register tile, and the cut of a GEMM into tasks.
 *
 * A task owns a tile of C. It walks k in blocks; for each it packs its columns of B (they stay in the second-level
 * cache), then takes A some panels at a time and runs the register tile of each over all panels of B. An A of floats
 * whose k lie side by side is read where it is, any other is packed (gemm_pack.c); an operand that has to be gathered is
 * gathered piece by piece, and stays in the cache until it is used. Tasks pack for themselves: with
 * tiles of some hundred rows and columns that costs a few per cent and needs no memory that threads would share. */
#include "backend/cpu/kernels/gemm.h"
#include "backend/cpu/kernels/convert.h"
#include "backend/cpu/kernels/gemm_cut.h"

/* Longest run of k between two visits of a tile of C: a panel of A is then 21 KiB, half of a first-level cache. */
#define K_BLOCK 384
/* Rows of A packed together, whole register tiles: 126 KiB. */
#define GROUP_ROWS 84
/* Rows of A gathered together: they stay in the first-level cache. */
#define GATHERED_ROWS 28
/* Largest tile of C of one task: packed B 576 KiB, carried sums 1.5 MiB. */
#define TASK_ROWS    1008
#define TASK_COLUMNS 384
/* Rows of A this many floats apart, or a multiple, fall into the same few sets of a first-level cache: pack them. */
#define CROWDED_ROW 512
_Static_assert((SL_TILE_ROWS * SL_TILE_COLUMNS + (GROUP_ROWS + 2 * TASK_COLUMNS) * K_BLOCK + 2 * SL_PACK_SLACK +
                TASK_ROWS * TASK_COLUMNS) *
                       sizeof(float) <=
                   SL_SCRATCH_BYTES,
               "a task must fit in a worker's scratch");

/* Rows of packed B fetched into the first-level cache before their use. */
#define AHEAD 16

/* ---- the register tile ---- */

/* Rows of an A that is read in place are reached from every third one: 14 rows need five pointers and one distance. */
#define BASES ((SL_TILE_ROWS + 2) / 3)

/* to[rows, vectors * 16] = the chains of `from` (NULL: zero) continued over k. `rows`, `vectors` and `packed` are
 * constants at every call, so the loops over them vanish and the sums live in registers. A is packed, or lies in rows
 * a_row apart with k adjacent. */
SL_INLINE void tile(int rows, int vectors, bool packed, int64_t k, const float *a, int64_t a_row, const float *b,
                    const float *from, float *to, int64_t row)
{
    sl_v16 sum[SL_TILE_ROWS][SL_TILE_VECTORS];
    const float *base[BASES];
#pragma GCC unroll 5
    for (int g = 0; g < BASES; g++) base[g] = packed ? a : a + 3 * g * a_row;
#pragma GCC unroll 14
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
        for (int j = 0; j < vectors; j++) sum[i][j] = from ? v16_load(from + i * row + j * SL_LANES) : v16_set1(0.0f);
    for (int64_t p = 0; p < k; p++) {
        sl_v16 columns[SL_TILE_VECTORS];
#pragma GCC unroll 2
        for (int j = 0; j < vectors; j++) columns[j] = v16_load(b + j * SL_LANES);
#pragma GCC unroll 2
        for (int j = 0; j < vectors; j++) __builtin_prefetch(b + j * SL_LANES + AHEAD * vectors * SL_LANES);
#pragma GCC unroll 14
        for (int i = 0; i < rows; i++) {
            sl_v16 x = v16_set1(packed ? a[i] : base[i / 3][i % 3 * a_row]);
#pragma GCC unroll 2
            for (int j = 0; j < vectors; j++) sum[i][j] = v16_fma(x, columns[j], sum[i][j]);
        }
        a += rows;
        b += vectors * SL_LANES;
#pragma GCC unroll 5
        for (int g = 0; g < BASES; g++) base[g]++;
    }
#pragma GCC unroll 14
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
        for (int j = 0; j < vectors; j++) v16_store(to + i * row + j * SL_LANES, sum[i][j]);
}

typedef void (*tile_fn)(int64_t k, const float *a, int64_t a_row, const float *b, const float *from, float *to,
                        int64_t row);

#define TILE(name, rows, vectors, packed)                                                                              \
    static void name##_##rows##_##vectors(int64_t k, const float *a, int64_t a_row, const float *b, const float *from, \
                                          float *to, int64_t row)                                                      \
    {                                                                                                                  \
        tile(rows, vectors, packed, k, a, a_row, b, from, to, row);                                                    \
    }
#if SL_TILE_VECTORS == 2
#define TILE_PAIR(rows)                                                                                                \
    TILE(packed, rows, 1, true)                                                                                        \
    TILE(packed, rows, 2, true) TILE(direct, rows, 1, false) TILE(direct, rows, 2, false)
#define PACKED_ROW(rows) [rows] = { packed_##rows##_1, packed_##rows##_2 },
#define DIRECT_ROW(rows) [rows] = { direct_##rows##_1, direct_##rows##_2 },
#else
#define TILE_PAIR(rows)  TILE(packed, rows, 1, true) TILE(direct, rows, 1, false)
#define PACKED_ROW(rows) [rows] = { packed_##rows##_1 },
#define DIRECT_ROW(rows) [rows] = { direct_##rows##_1 },
#endif
#if SL_TILE_ROWS == 14
#define TILE_HEIGHTS(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14)
#elif SL_TILE_ROWS == 6
#define TILE_HEIGHTS(X) X(1) X(2) X(3) X(4) X(5) X(6)
#else
#define TILE_HEIGHTS(X) X(1) X(2) X(3) X(4)
#endif

TILE_HEIGHTS(TILE_PAIR)
static const tile_fn packed_tiles[SL_TILE_ROWS + 1][SL_TILE_VECTORS] = { TILE_HEIGHTS(PACKED_ROW) };
static const tile_fn direct_tiles[SL_TILE_ROWS + 1][SL_TILE_VECTORS] = { TILE_HEIGHTS(DIRECT_ROW) };

void KI(multiply_packed)(const float *a, const float *b, int64_t m, int64_t n, int64_t k, const float *from,
                         sl_block to)
{
    int64_t panels = sl_panel_count(m), offset = from ? from - to.data : 0;
    for (int64_t p = 0; p < panels; p++) {
        int64_t first = sl_panel_start(m, panels, p), height = sl_panel_start(m, panels, p + 1) - first;
        for (int64_t q = 0; q * SL_TILE_COLUMNS < n; q++) {
            int64_t width = sl_panel_width(n, q), row = to.row ? to.row : width;
            float *c = to.data + q * to.panel + first * row;
            packed_tiles[height][width / SL_LANES - 1](k, a + first * k, 0, b + q * SL_TILE_COLUMNS * k,
                                                       from ? c + offset : NULL, c, row);
        }
    }
}

/* ---- a whole GEMM ---- */

/* The task at hand: its tile of C and its memory. */
typedef struct task {
    const sl_gemm *g;
    sl_matrix a, b;    /* at the tile's first row, first column */
    sl_tensor c, bias; /* data and form, at the tile's first element */
    int64_t m, n;
    sl_cut_tile at;        /* which tile */
    int64_t readable_rows; /* of A from the tile's first on */
    bool direct;           /* A is read where it is, or where it was gathered */
    float *packed_b, *packed_a;
    float *gathered_b; /* a block of k, all columns */
    float *aside;      /* one register tile */
    float *carried;    /* partial chains between blocks of k: C itself, or scratch when C is narrow or added to */
    int64_t carried_row;
    int64_t a_row; /* distance of rows of A, where it is read as it is */
    bool *begun;   /* of the panel that begins at a row: its chains hold something. NULL: nothing is left out */
} task;

/* Adds what follows the chain and puts a finished register tile into C, rounded once. */
static void finish_tile(const task *t, const float *sums, int64_t first_row, int64_t first_column, int64_t rows,
                        int64_t columns)
{
    for (int64_t i = 0; i < rows; i++) {
        const float *s = sums + i * SL_TILE_COLUMNS;
        int64_t at = first_column +
                     (t->g->places ? sl_row_place(t->g, t->at.row + first_row + i) : (first_row + i) * t->g->c_row);
        for (int64_t j = 0; j < columns; j += SL_LANES) {
            sl_v16 x = v16_load(s + j);
            if (t->bias.data) x = v16_add(x, w16_get(&t->bias, first_column + j, columns - j, 0.0f));
            w16_put_or_add(&t->c, at + j, x, columns - j, t->g->accumulate);
        }
    }
}

/* A tile that cannot be computed in place: at the end of a row, or something follows its chain. */
static void tile_aside(const task *t, tile_fn fn, int64_t k, const float *a, const float *b, int64_t row,
                       int64_t column, int64_t rows, bool first, bool last)
{
    int64_t left = t->n - column, columns = left < SL_TILE_COLUMNS ? left : SL_TILE_COLUMNS;
    float *sums = t->aside, *carried = t->carried + row * t->carried_row + column;
    if (!first)
        for (int64_t i = 0; i < rows; i++)
            memcpy(sums + i * SL_TILE_COLUMNS, carried + i * t->carried_row, (size_t)columns * sizeof *sums);
    fn(k, a, t->a_row, b, first ? NULL : sums, sums, SL_TILE_COLUMNS);
    if (last) {
        finish_tile(t, sums, row, column, rows, columns);
        return;
    }
    for (int64_t i = 0; i < rows; i++)
        memcpy(carried + i * t->carried_row, sums + i * SL_TILE_COLUMNS, (size_t)columns * sizeof *sums);
}

/* Rows [row, row + rows) of the task's tile, all columns, one block of k; `a` is the panel, packed or in place. */
static void multiply_panel(const task *t, const float *a, int64_t row, int64_t rows, int64_t k, bool first, bool last)
{
    bool follows = last && (t->bias.data || t->g->accumulate || t->c.form != SL_FORM_F32 || t->g->places);
    for (int64_t column = 0; column < t->n; column += SL_TILE_COLUMNS) {
        int64_t width = sl_panel_width(t->n - column, 0);
        tile_fn fn = (t->direct ? direct_tiles : packed_tiles)[rows][width / SL_LANES - 1];
        const float *b = t->packed_b + column * k;
        if (follows || t->n - column < width || width < SL_TILE_COLUMNS) {
            tile_aside(t, fn, k, a, b, row, column, rows, first, last);
            continue;
        }
        float *c = t->carried + row * t->carried_row + column;
        fn(k, a, t->a_row, b, first ? NULL : c, c, t->carried_row);
    }
}

/* k rows of B from k_first on, all columns of the tile. */
static sl_matrix block_of_b(const task *t, int64_t k_first, int64_t k)
{
    const sl_window_gather *gather = t->g->gather_b;
    sl_matrix b = t->b;
    if (gather == NULL) {
        b.data = sl_matrix_at(b, k_first, 0);
        return b;
    }
    gather->fill(gather, t->at.batch, k_first, k, t->at.column, t->n, t->gathered_b, t->n, false);
    return (sl_matrix){ t->gathered_b, t->n, 1, SL_FORM_F32 };
}

/* `rows` rows of A from `group` on, k columns from k_first on: in memory, or gathered where packed ones would be. */
static sl_matrix group_of_a(const task *t, int64_t group, int64_t rows, int64_t k_first, int64_t k)
{
    const sl_window_gather *gather = t->g->gather_a;
    sl_matrix a = t->a;
    if (gather == NULL) {
        a.data = sl_matrix_at(a, group, k_first);
        return a;
    }
    gather->fill(gather, t->at.batch, t->at.row + group, rows, k_first, k, t->packed_a, k, false);
    return (sl_matrix){ t->packed_a, k, 1, SL_FORM_F32 };
}

/* Rows of A that are zeros in this block of k. */
static bool is_empty(const task *t, int64_t row, int64_t rows, int64_t k_first, int64_t k)
{
    const sl_window_gather *gather = t->g->gather_a;
    return t->begun != NULL && gather->empty(gather, t->at.row + row, rows, k_first, k);
}

/* A panel of `rows` rows: where it is empty its chains stay, but for what ends them. */
static void continue_panel(const task *t, const float *a, int64_t row, int64_t rows, int64_t k_first, int64_t k,
                           bool first, bool last)
{
    const bool empty = is_empty(t, row, rows, k_first, k);
    if (t->begun != NULL) first = !t->begun[row];
    if (empty && !last) return;
    multiply_panel(t, a, row, rows, empty ? 0 : k, first, last);
    if (t->begun != NULL) t->begun[row] = true;
}

static void multiply_block(task *t, int64_t k_first, int64_t k, bool first, bool last)
{
    KI(pack_b)(t->packed_b, block_of_b(t, k_first, k), t->n, k);
    const int64_t step = t->g->gather_a ? GATHERED_ROWS : GROUP_ROWS;
    for (int64_t group = 0; group < t->m; group += step) {
        int64_t rows = sl_least(step, t->m - group), panels = sl_panel_count(rows);
        if (!last && is_empty(t, group, rows, k_first, k)) continue;
        sl_matrix a = group_of_a(t, group, rows, k_first, k);
        t->a_row = a.row;
        if (!t->direct) KI(pack_a)(t->packed_a, a, rows, t->readable_rows - group, k);
        for (int64_t p = 0; p < panels; p++) {
            int64_t row = sl_panel_start(rows, panels, p), height = sl_panel_start(rows, panels, p + 1) - row;
            const float *panel = t->direct ? (const float *)a.data + row * a.row : t->packed_a + row * k;
            continue_panel(t, panel, group + row, height, k_first, k, first, last);
        }
    }
}

/* Blocks of k of equal length, at most K_BLOCK; none holds parts of two units. */
static int64_t count_blocks(const sl_gemm *g)
{
    const sl_window_gather *gather = g->gather_a;
    if (gather != NULL && gather->empty != NULL) return g->k / gather->unit * sl_ceil_div(gather->unit, K_BLOCK);
    return g->k > 0 ? sl_ceil_div(g->k, K_BLOCK) : 1;
}

static void run_task(void *context, int64_t number, void *scratch)
{
    const sl_cut *cut = context;
    const sl_gemm *g = cut->g;
    sl_cut_tile at = sl_cut_tile_of(cut, number);
    bool begun[TASK_ROWS] = { false };
    task t = { .g = g, .a = g->a, .b = g->b, .m = at.m, .n = at.n, .readable_rows = g->m - at.row };
    t.at = at;
    t.direct = g->gather_a || (g->a.form == SL_FORM_F32 && g->a.column == 1 && g->a.row % CROWDED_ROW != 0);
    if (!g->gather_a) t.a.data = sl_element(sl_matrix_at(g->a, at.row, 0), g->a.form, at.batch * g->a_batch);
    if (!g->gather_b) t.b.data = sl_element(sl_matrix_at(g->b, 0, at.column), g->b.form, at.batch * g->b_batch);
    t.c = sl_cut_output(g, at);
    t.bias = sl_cut_bias(g, at);
    t.aside = scratch;
    t.packed_a = t.aside + SL_TILE_ROWS * SL_TILE_COLUMNS;
    t.packed_b = t.packed_a + sl_packed_a(GROUP_ROWS, K_BLOCK);
    t.gathered_b = t.packed_b + sl_packed_b(TASK_COLUMNS, K_BLOCK) + TASK_ROWS * TASK_COLUMNS;
    t.carried = t.c.data;
    t.carried_row = g->c_row;
    if (g->accumulate || g->c_form != SL_FORM_F32 || g->places) {
        t.carried = t.packed_b + sl_packed_b(TASK_COLUMNS, K_BLOCK);
        t.carried_row = TASK_COLUMNS;
    }
    if (g->gather_a != NULL && g->gather_a->empty != NULL) t.begun = begun;
    const int64_t blocks = count_blocks(g);
    for (int64_t block = 0; block < blocks; block++) {
        int64_t first = g->k * block / blocks, end = g->k * (block + 1) / blocks;
        multiply_block(&t, first, end - first, block == 0, block + 1 == blocks);
    }
}

void KI(gemm)(sl_pool *pool, const sl_gemm *g)
{
    if (KI(gemm_thin)(pool, g)) return;
    static const sl_cut_limits limits = { SL_TILE_ROWS, SL_TILE_COLUMNS, TASK_ROWS, TASK_COLUMNS };
    sl_cut cut = sl_cut_of(g, &limits, sl_pool_threads(pool));
    sl_pool_run(pool, run_task, &cut, cut.tasks);
}
