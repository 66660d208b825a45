/* gemm.c: packing, the register tile, and the cut of a product into tasks.
 *
 * A task owns a tile of C. It walks k in blocks; for each it packs its columns of B (they stay in the second-level
 * cache), then takes A some panels at a time and runs the register tile of each over all panels of B. An A whose k lie
 * side by side is read where it is, any other is packed. Tasks pack for themselves: with tiles of some hundred rows and
 * columns that costs a few per cent and needs no memory that threads would share. */
#include "backend/cpu/kernels/gemm.h"

#define INLINE static inline __attribute__((always_inline))

/* Longest run of k between two visits of a tile of C: a panel of A is then 21 KiB, half of a first-level cache. */
#define K_BLOCK 384
/* Rows of A packed together, whole register tiles: 126 KiB. */
#define GROUP_ROWS 84
/* Largest tile of C of one task: packed B 576 KiB, carried sums 1.5 MiB. */
#define TASK_ROWS    1008
#define TASK_COLUMNS 384
/* Tiles are halved until every thread has this many tasks or they get too small to pay for packing. The cut may follow
 * the number of threads because an element is one chain, whoever computes it. */
#define TASKS_A_THREAD 2
#define TASK_LEAST     64
/* Rows of A this many floats apart, or a multiple, fall into the same few sets of a first-level cache: pack them. */
#define CROWDED_ROW 512

/* Rows of packed B fetched into the first-level cache before their use. */
#define AHEAD 16

INLINE int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* ---- packing ---- */

/* Four consecutive k of sixteen rows that lie row_stride apart: dst[q * dst_row + i] = src[i * row_stride + q].
 * Four-by-four transposes inside the 128-bit parts, which are loaded so that they come out in order. */
#if defined(SL_ISA_avx512)
INLINE __m512 quarter_rows(const float *src, int64_t row_stride)
{
    __m512 z = _mm512_castps128_ps512(_mm_loadu_ps(src));
    z = _mm512_insertf32x4(z, _mm_loadu_ps(src + 4 * row_stride), 1);
    z = _mm512_insertf32x4(z, _mm_loadu_ps(src + 8 * row_stride), 2);
    return _mm512_insertf32x4(z, _mm_loadu_ps(src + 12 * row_stride), 3);
}

INLINE void transpose_four(float *dst, int64_t dst_row, const float *src, int64_t row_stride)
{
    __m512 a = quarter_rows(src, row_stride), b = quarter_rows(src + row_stride, row_stride);
    __m512 c = quarter_rows(src + 2 * row_stride, row_stride), d = quarter_rows(src + 3 * row_stride, row_stride);
    __m512d ab_low = _mm512_castps_pd(_mm512_unpacklo_ps(a, b)), ab_high = _mm512_castps_pd(_mm512_unpackhi_ps(a, b));
    __m512d cd_low = _mm512_castps_pd(_mm512_unpacklo_ps(c, d)), cd_high = _mm512_castps_pd(_mm512_unpackhi_ps(c, d));
    _mm512_storeu_ps(dst, _mm512_castpd_ps(_mm512_unpacklo_pd(ab_low, cd_low)));
    _mm512_storeu_ps(dst + dst_row, _mm512_castpd_ps(_mm512_unpackhi_pd(ab_low, cd_low)));
    _mm512_storeu_ps(dst + 2 * dst_row, _mm512_castpd_ps(_mm512_unpacklo_pd(ab_high, cd_high)));
    _mm512_storeu_ps(dst + 3 * dst_row, _mm512_castpd_ps(_mm512_unpackhi_pd(ab_high, cd_high)));
}
#elif defined(SL_ISA_avx2)
INLINE __m256 half_rows(const float *src, int64_t row_stride)
{
    return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(src)), _mm_loadu_ps(src + 4 * row_stride), 1);
}

INLINE void transpose_eight(float *dst, int64_t dst_row, const float *src, int64_t row_stride)
{
    __m256 a = half_rows(src, row_stride), b = half_rows(src + row_stride, row_stride);
    __m256 c = half_rows(src + 2 * row_stride, row_stride), d = half_rows(src + 3 * row_stride, row_stride);
    __m256d ab_low = _mm256_castps_pd(_mm256_unpacklo_ps(a, b)), ab_high = _mm256_castps_pd(_mm256_unpackhi_ps(a, b));
    __m256d cd_low = _mm256_castps_pd(_mm256_unpacklo_ps(c, d)), cd_high = _mm256_castps_pd(_mm256_unpackhi_ps(c, d));
    _mm256_storeu_ps(dst, _mm256_castpd_ps(_mm256_unpacklo_pd(ab_low, cd_low)));
    _mm256_storeu_ps(dst + dst_row, _mm256_castpd_ps(_mm256_unpackhi_pd(ab_low, cd_low)));
    _mm256_storeu_ps(dst + 2 * dst_row, _mm256_castpd_ps(_mm256_unpacklo_pd(ab_high, cd_high)));
    _mm256_storeu_ps(dst + 3 * dst_row, _mm256_castpd_ps(_mm256_unpackhi_pd(ab_high, cd_high)));
}

INLINE void transpose_four(float *dst, int64_t dst_row, const float *src, int64_t row_stride)
{
    transpose_eight(dst + 8, dst_row, src + 8 * row_stride,
                    row_stride); /* first: what it spills over, the low half mends */
    transpose_eight(dst, dst_row, src, row_stride);
}
#else
INLINE void transpose_four(float *dst, int64_t dst_row, const float *src, int64_t row_stride)
{
    for (int q = 0; q < 4; q++)
        for (int i = 0; i < SL_LANES; i++) dst[q * dst_row + i] = src[i * row_stride + q];
}
#endif

/* Sixteen lanes whose k are adjacent in memory. */
static void pack_across(float *dst, int64_t width, const float *src, int64_t lane_stride, int64_t k)
{
    int64_t p = 0;
    for (; p + 4 <= k; p += 4) transpose_four(dst + p * width, width, src + p, lane_stride);
    for (; p < k; p++)
        for (int64_t i = 0; i < (width < SL_LANES ? width : SL_LANES); i++)
            dst[p * width + i] = src[i * lane_stride + p];
}

/* The same with fewer than sixteen lanes at the end of a matrix: by way of a buffer, since rows behind it must not be
 * read. */
static void pack_across_end(float *dst, int64_t width, const float *src, int64_t lane_stride, int64_t lanes, int64_t k)
{
    enum { PIECE = 64 };
    float rows[SL_LANES * PIECE] = { 0 };
    for (int64_t p = 0; p < k; p += PIECE) {
        int64_t n = k - p < PIECE ? k - p : PIECE;
        for (int64_t i = 0; i < lanes; i++)
            memcpy(rows + i * PIECE, src + i * lane_stride + p, (size_t)n * sizeof *rows);
        pack_across(dst + p * width, width, rows, PIECE, n);
    }
}

/* Lanes adjacent in memory: rows are copied. `lanes` may be less than width: the rest is zero. */
static void pack_along(float *dst, int64_t width, const float *src, int64_t k_stride, int64_t lanes, int64_t k)
{
    int64_t p = 0;
    if (lanes == SL_TILE_COLUMNS) {
        for (; p < k; p++)
            for (int v = 0; v < SL_TILE_VECTORS; v++)
                v16_store(dst + p * width + v * SL_LANES, v16_load(src + p * k_stride + v * SL_LANES));
    } else if (lanes == width && lanes < SL_LANES && k_stride + lanes >= SL_LANES) {
        /* whole vectors: reading runs on into the next row, storing into what later rows mend, never past the panel */
        for (; p * width + SL_LANES <= k * width; p++) v16_store(dst + p * width, v16_load(src + p * k_stride));
    }
    for (; p < k; p++) {
        for (int64_t i = 0; i < lanes; i++) dst[p * width + i] = src[p * k_stride + i];
        for (int64_t i = lanes; i < width; i++) dst[p * width + i] = 0.0f;
    }
}

static void pack_any(float *dst, int64_t width, const float *src, int64_t lane_stride, int64_t k_stride, int64_t lanes,
                     int64_t k)
{
    for (int64_t p = 0; p < k; p++) {
        for (int64_t i = 0; i < lanes; i++) dst[p * width + i] = src[i * lane_stride + p * k_stride];
        for (int64_t i = lanes; i < width; i++) dst[p * width + i] = 0.0f;
    }
}

/* One panel: dst[p * width + i] = src[i * lane_stride + p * k_stride] for i < lanes, p < k; lanes <= width, and width
 * is below SL_LANES or a multiple of it. `readable` lanes exist in src, those after the panel's included: pack_across
 * reads and stores sixteen, in order of p, so that each store mends what the one before spilt. */
static void pack_panel(float *dst, int64_t width, const float *src, int64_t lane_stride, int64_t k_stride,
                       int64_t lanes, int64_t readable, int64_t k)
{
    if (lane_stride == 1) {
        pack_along(dst, width, src, k_stride, lanes, k);
    } else if (k_stride == 1) {
        for (int64_t i = 0; i < lanes; i += SL_LANES)
            if (readable - i >= SL_LANES)
                pack_across(dst + i, width, src + i * lane_stride, lane_stride, k);
            else
                pack_across_end(dst + i, width, src + i * lane_stride, lane_stride, lanes - i, k);
    } else {
        pack_any(dst, width, src, lane_stride, k_stride, lanes, k);
    }
}

/* Panels of A differ by at most one row: 64 rows are 13 + 13 + 13 + 13 + 12, not 4 * 14 + 8. */
INLINE int64_t panel_count(int64_t rows)
{
    return (rows + SL_TILE_ROWS - 1) / SL_TILE_ROWS;
}

INLINE int64_t panel_start(int64_t rows, int64_t panels, int64_t p)
{
    int64_t extra = rows % panels;
    return rows / panels * p + (p < extra ? p : extra);
}

/* Operands whose k are the slow index in memory are packed a few k at a time: all panels take their part of a row while
 * it is near, and the hardware sees it read in order. */
#define K_STEP 16

static void pack_rows(float *packed, sl_matrix a, int64_t rows, int64_t readable, int64_t k)
{
    int64_t panels = panel_count(rows), step = a.row == 1 ? K_STEP : k;
    for (int64_t done = 0; done < k; done += step)
        for (int64_t p = 0; p < panels; p++) {
            int64_t first = panel_start(rows, panels, p), height = panel_start(rows, panels, p + 1) - first;
            pack_panel(packed + first * k + done * height, height, a.data + first * a.row + done * a.column, a.row,
                       a.column, height, readable - first, least(step, k - done));
        }
}

void K(pack_a)(float *packed, sl_matrix a, int64_t rows, int64_t k)
{
    pack_rows(packed, a, rows, rows, k);
}

void K(pack_b)(float *packed, sl_matrix b, int64_t columns, int64_t k)
{
    int64_t step = b.column == 1 ? K_STEP : k;
    for (int64_t done = 0; done < k; done += step)
        for (int64_t first = 0; first < columns; first += SL_TILE_COLUMNS) {
            int64_t left = columns - first, width = sl_panel_width(left, 0);
            pack_panel(packed + first * k + done * width, width, b.data + first * b.column + done * b.row, b.column,
                       b.row, least(left, SL_TILE_COLUMNS), left, least(step, k - done));
        }
}

void K(transpose_copy)(float *dst, int64_t dst_row, const float *src, int64_t src_row, int64_t rows, int64_t columns)
{
    int64_t i = 0;
    for (; i + SL_LANES <= rows; i += SL_LANES) pack_across(dst + i, dst_row, src + i * src_row, src_row, columns);
    for (; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) dst[j * dst_row + i] = src[i * src_row + j];
}

/* ---- the register tile ---- */

/* Rows of an A that is read in place are reached from every third one: 14 rows need five pointers and one distance. */
#define BASES ((SL_TILE_ROWS + 2) / 3)

/* to[rows, vectors * 16] = the chains of `from` (NULL: zero) continued over k. `rows`, `vectors` and `packed` are
 * constants at every call, so the loops over them vanish and the sums live in registers. A is packed, or lies in rows
 * a_row apart with k adjacent. */
INLINE void tile(int rows, int vectors, bool packed, int64_t k, const float *a, int64_t a_row, const float *b,
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

void K(multiply_packed)(const float *a, const float *b, int64_t m, int64_t n, int64_t k, const float *from, sl_block to)
{
    int64_t panels = panel_count(m), offset = from ? from - to.data : 0;
    for (int64_t p = 0; p < panels; p++) {
        int64_t first = panel_start(m, panels, p), height = panel_start(m, panels, p + 1) - first;
        for (int64_t q = 0; q * SL_TILE_COLUMNS < n; q++) {
            int64_t width = sl_panel_width(n, q), row = to.row ? to.row : width;
            float *c = to.data + q * to.panel + first * row;
            packed_tiles[height][width / SL_LANES - 1](k, a + first * k, 0, b + q * SL_TILE_COLUMNS * k,
                                                       from ? c + offset : NULL, c, row);
        }
    }
}

/* ---- a whole product ---- */

/* How a product is cut. */
typedef struct grid {
    const sl_gemm *g;
    int64_t tile_rows, tile_columns; /* of a task */
    int64_t row_tiles, column_tiles;
    int64_t k_blocks;
} grid;

/* The task at hand: its tile of C and its memory. */
typedef struct task {
    const sl_gemm *g;
    sl_matrix a, b; /* at the tile's first row, first column */
    float *c;
    const float *bias;
    int64_t m, n;
    int64_t readable_rows; /* of A from the tile's first on */
    bool direct;           /* A is read where it is */
    float *packed_b, *packed_a;
    float *aside;   /* one register tile */
    float *carried; /* partial chains between blocks of k: C itself, or scratch when C is added to */
    int64_t carried_row;
} task;

/* Adds what follows the chain and puts a finished register tile into C. */
static void finish_tile(const task *t, const float *sums, int64_t first_row, int64_t first_column, int64_t rows,
                        int64_t columns)
{
    const float *bias = t->bias ? t->bias + first_column : NULL;
    for (int64_t i = 0; i < rows; i++) {
        const float *s = sums + i * SL_TILE_COLUMNS;
        float *c = t->c + (first_row + i) * t->g->c_row + first_column;
        int64_t j = 0;
        for (; j + SL_LANES <= columns; j += SL_LANES) {
            sl_v16 x = v16_load(s + j);
            if (bias) x = v16_add(x, v16_load(bias + j));
            if (t->g->accumulate) x = v16_add(v16_load(c + j), x);
            v16_store(c + j, x);
        }
        for (; j < columns; j++) {
            float x = bias ? s[j] + bias[j] : s[j];
            c[j] = t->g->accumulate ? c[j] + x : x;
        }
    }
}

/* A tile that cannot be computed in place: narrow, or something follows its chain. */
static void tile_aside(const task *t, tile_fn fn, int64_t k, const float *a, const float *b, int64_t row,
                       int64_t column, int64_t rows, bool first, bool last)
{
    int64_t left = t->n - column, columns = left < SL_TILE_COLUMNS ? left : SL_TILE_COLUMNS;
    float *sums = t->aside, *carried = t->carried + row * t->carried_row + column;
    if (!first)
        for (int64_t i = 0; i < rows; i++)
            memcpy(sums + i * SL_TILE_COLUMNS, carried + i * t->carried_row, (size_t)columns * sizeof *sums);
    fn(k, a, t->a.row, b, first ? NULL : sums, sums, SL_TILE_COLUMNS);
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
    bool follows = last && (t->bias || t->g->accumulate);
    for (int64_t column = 0; column < t->n; column += SL_TILE_COLUMNS) {
        int64_t width = sl_panel_width(t->n - column, 0);
        tile_fn fn = (t->direct ? direct_tiles : packed_tiles)[rows][width / SL_LANES - 1];
        const float *b = t->packed_b + column * k;
        if (follows || t->n - column < width || width < SL_TILE_COLUMNS) {
            tile_aside(t, fn, k, a, b, row, column, rows, first, last);
            continue;
        }
        float *c = t->carried + row * t->carried_row + column;
        fn(k, a, t->a.row, b, first ? NULL : c, c, t->carried_row);
    }
}

static void multiply_block(const task *t, int64_t k_first, int64_t k, bool first, bool last)
{
    sl_matrix b = t->b;
    b.data += k_first * b.row;
    K(pack_b)(t->packed_b, b, t->n, k);
    for (int64_t group = 0; group < t->m; group += GROUP_ROWS) {
        int64_t rows = least(GROUP_ROWS, t->m - group), panels = panel_count(rows);
        sl_matrix a = { t->a.data + group * t->a.row + k_first * t->a.column, t->a.row, t->a.column };
        if (!t->direct) pack_rows(t->packed_a, a, rows, t->readable_rows - group, k);
        for (int64_t p = 0; p < panels; p++) {
            int64_t row = panel_start(rows, panels, p), height = panel_start(rows, panels, p + 1) - row;
            const float *panel = t->direct ? a.data + row * a.row : t->packed_a + row * k;
            multiply_panel(t, panel, group + row, height, k, first, last);
        }
    }
}

static void run_task(void *context, int64_t number, void *scratch)
{
    const grid *cut = context;
    const sl_gemm *g = cut->g;
    int64_t column = number % cut->column_tiles * cut->tile_columns;
    int64_t row = number / cut->column_tiles % cut->row_tiles * cut->tile_rows;
    int64_t batch = number / cut->column_tiles / cut->row_tiles;
    task t = { .g = g, .a = g->a, .b = g->b, .bias = g->bias ? g->bias + column : NULL };
    t.direct = g->a.column == 1 && g->a.row % CROWDED_ROW != 0;
    t.m = least(cut->tile_rows, g->m - row);
    t.n = least(cut->tile_columns, g->n - column);
    t.readable_rows = g->m - row;
    t.a.data += batch * g->a_batch + row * t.a.row;
    t.b.data += batch * g->b_batch + column * t.b.column;
    t.c = g->c + batch * g->c_batch + row * g->c_row + column;
    t.aside = scratch;
    t.packed_a = t.aside + SL_TILE_ROWS * SL_TILE_COLUMNS;
    t.packed_b = t.packed_a + sl_packed_a(GROUP_ROWS, K_BLOCK);
    t.carried = t.c;
    t.carried_row = g->c_row;
    if (g->accumulate) {
        t.carried = t.packed_b + sl_packed_b(TASK_COLUMNS, K_BLOCK);
        t.carried_row = TASK_COLUMNS;
    }
    for (int64_t block = 0; block < cut->k_blocks; block++) {
        int64_t first = g->k * block / cut->k_blocks, end = g->k * (block + 1) / cut->k_blocks;
        multiply_block(&t, first, end - first, block == 0, block + 1 == cut->k_blocks);
    }
}

/* `size` cut into pieces of a multiple of `unit`, at most `most` long, as even as that allows. */
static int64_t even_piece(int64_t size, int64_t unit, int64_t most)
{
    int64_t units = (size + unit - 1) / unit, pieces = (size + most - 1) / most;
    return (units + pieces - 1) / pieces * unit;
}

void K(gemm)(sl_pool *pool, const sl_gemm *g)
{
    int64_t batches = g->batches ? g->batches : 1, wanted = TASKS_A_THREAD * sl_pool_threads(pool);
    grid cut = { .g = g, .k_blocks = g->k > 0 ? (g->k + K_BLOCK - 1) / K_BLOCK : 1 };
    int64_t most_rows = TASK_ROWS, most_columns = TASK_COLUMNS;
    for (;;) {
        cut.tile_rows = even_piece(g->m, SL_TILE_ROWS, most_rows);
        cut.tile_columns = even_piece(g->n, SL_TILE_COLUMNS, most_columns);
        cut.row_tiles = (g->m + cut.tile_rows - 1) / cut.tile_rows;
        cut.column_tiles = (g->n + cut.tile_columns - 1) / cut.tile_columns;
        if (batches * cut.row_tiles * cut.column_tiles >= wanted) break;
        int64_t rows = least(cut.tile_rows, g->m), columns = least(cut.tile_columns, g->n);
        if (rows <= TASK_LEAST && columns <= TASK_LEAST) break;
        if (rows > columns)
            most_rows = rows / 2;
        else
            most_columns = columns / 2;
    }
    sl_pool_run(pool, run_task, &cut, batches * cut.row_tiles * cut.column_tiles);
}
