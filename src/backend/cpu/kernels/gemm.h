/* gemm.h: the GEMM of the CPU backend, whole and in packed pieces.
 *
 * Every element of C is one chain c = fma(a[m,k], b[k,n], c) over k = 0, 1, 2, ... that starts at zero, in f32
 * whatever the operands' forms; elements of A that a gather calls empty are left out. Blocking, packing, threads and instruction path cannot change a bit of it: a partial
 * chain is carried as a stored float, exactly, and rounded to a narrow C once.
 *
 * Operands are packed into panels of floats first. A panel of A holds up to SL_TILE_ROWS rows, a panel of B
 * SL_TILE_COLUMNS columns, both with k as the slow index, so that one tile of C stays in registers while two streams
 * are read in order. */
#ifndef SL_BACKEND_CPU_GEMM_H
#define SL_BACKEND_CPU_GEMM_H

#include <stdbool.h>

#include "backend/cpu/kernels/isa.h"
#include "backend/cpu/kernels/simd.h"

/* The tile that fills the register file: 28 + 2 + 2 registers of 32; 12 + 2 + 1 of 16. */
#if defined(SL_ISA_avx512)
#define SL_TILE_ROWS    14
#define SL_TILE_VECTORS 2
#elif defined(SL_ISA_avx2)
#define SL_TILE_ROWS    6
#define SL_TILE_VECTORS 1
#else
#define SL_TILE_ROWS    4
#define SL_TILE_VECTORS 1
#endif
#define SL_TILE_COLUMNS (SL_TILE_VECTORS * SL_LANES)
/* Packing stores whole vectors: a packed buffer needs this many floats behind its last panel. */
#define SL_PACK_SLACK SL_LANES

/* Element (i, j) is the (i * row + j * column)th of data. The form is F32, BF16 or F16. */
typedef struct sl_matrix {
    const void *data;
    int64_t row, column;
    sl_form form;
} sl_matrix;

static inline int64_t sl_float_bytes(sl_form form)
{
    return form == SL_FORM_F32 ? 4 : 2;
}

static inline const void *sl_element(const void *data, sl_form form, int64_t index)
{
    return (const char *)data + index * sl_float_bytes(form);
}

static inline const void *sl_matrix_at(sl_matrix x, int64_t i, int64_t j)
{
    return sl_element(x.data, x.form, i * x.row + j * x.column);
}

/* An operand that does not lie in memory as a matrix. `fill` puts its elements [row, row + rows) x [column, column +
 * columns) into dst, in rows `apart` elements apart: as floats, or in their own form for kernels that take it (`own`).
 * It is called from tasks and must give the same elements however they are cut. */
typedef struct sl_window_gather {
    void (*fill)(const struct sl_window_gather *gather, int64_t batch, int64_t row, int64_t rows, int64_t column,
                 int64_t columns, void *dst, int64_t apart, bool own);
    /* Of an A: whether all these elements are zeros, which are then left out of the chains: with finite elements of B that
     * changes nothing. NULL: there are no such. */
    bool (*empty)(const struct sl_window_gather *gather, int64_t row, int64_t rows, int64_t column, int64_t columns);
    int64_t unit; /* with `empty`: columns [i * unit, (i + 1) * unit) of a row are empty together; divides k */
} sl_window_gather;

/* Where rows of c begin, in elements, if not c_row apart. */
typedef struct sl_places {
    int64_t (*of)(const struct sl_places *places, int64_t row);
} sl_places;

/* c[m,n] = a[m,k] b[k,n], plus bias[n] when given; with accumulate, c = c + (that, rounded to f32). `batches` such
 * products lie *_batch elements apart; 0 counts as 1. Rows of c are c_row apart, its columns are dense. One of a and b
 * may be gathered: only the form of that matrix is looked at then. */
typedef struct sl_gemm {
    int64_t m, n, k;
    sl_matrix a, b;
    void *c;
    sl_form c_form;
    int64_t c_row;
    const void *bias; /* NULL: none */
    sl_form bias_form;
    bool accumulate;
    int64_t batches, a_batch, b_batch, c_batch, bias_batch;
    const sl_window_gather *gather_a, *gather_b; /* NULL: in memory */
    const sl_places *places;                     /* NULL: c_row apart */
} sl_gemm;

/* Where row `row` of C begins, from its first element in the batch and column at hand on. */
static inline int64_t sl_row_place(const sl_gemm *g, int64_t row)
{
    return g->places != NULL ? g->places->of(g->places, row) : row * g->c_row;
}

void KI(gemm)(sl_pool *pool, const sl_gemm *g);
/* gemm_thin.c: the same for up to SL_THIN_ROWS rows of floats, without packing; false: not such a GEMM. */
#if defined(SL_ISA_avx512)
#define SL_THIN_ROWS 8
#else
#define SL_THIN_ROWS 2
#endif
bool KI(gemm_thin)(sl_pool *pool, const sl_gemm *g);

/* ---- packed pieces, for kernels that keep their tiles in scratch ---- */

/* A block of C as the packed GEMM reads and writes it: panel p holds columns [p * SL_TILE_COLUMNS, ...) and starts
 * p * panel elements on; its rows are `row` apart. Row-major: row = ld, panel = SL_TILE_COLUMNS. The B operand of a
 * further GEMM with k rows: row = 0 (rows as wide as their panel), panel = k * SL_TILE_COLUMNS. Whole vectors are
 * written: columns up to the next multiple of SL_LANES must exist. */
typedef struct sl_block {
    float *data;
    int64_t row, panel;
} sl_block;

/* Columns of panel `p` of n columns, rounded up to whole vectors: the distance of its packed rows. */
static inline int64_t sl_panel_width(int64_t n, int64_t p)
{
    int64_t left = n - p * SL_TILE_COLUMNS;
    return left >= SL_TILE_COLUMNS ? SL_TILE_COLUMNS : (left + SL_LANES - 1) / SL_LANES * SL_LANES;
}

/* Panels of A differ by at most one row: 64 rows are 13 + 13 + 13 + 13 + 12, not 4 * 14 + 8. */
static inline int64_t sl_panel_count(int64_t rows)
{
    return (rows + SL_TILE_ROWS - 1) / SL_TILE_ROWS;
}

static inline int64_t sl_panel_start(int64_t rows, int64_t panels, int64_t p)
{
    int64_t extra = rows % panels;
    return rows / panels * p + (p < extra ? p : extra);
}

/* Floats that packing takes, slack included. */
static inline int64_t sl_packed_a(int64_t rows, int64_t k)
{
    return rows * k + SL_PACK_SLACK;
}

static inline int64_t sl_packed_b(int64_t columns, int64_t k)
{
    return (columns + SL_LANES - 1) / SL_LANES * SL_LANES * k + SL_PACK_SLACK;
}

/* Rows [0, rows) of a matrix of k columns, of which `readable` rows exist in memory. */
void KI(pack_a)(float *packed, sl_matrix a, int64_t rows, int64_t readable, int64_t k);
/* Columns [0, columns) of a matrix of k rows. */
void KI(pack_b)(float *packed, sl_matrix b, int64_t columns, int64_t k);
/* to = the chains of `from` (NULL: zero) continued over k. `from` lies as `to` does and may be `to`. */
void KI(multiply_packed)(const float *a, const float *b, int64_t m, int64_t n, int64_t k, const float *from,
                         sl_block to);
/* dst[j * dst_row + i] = src[i * src_row + j] for i < rows, j < columns. */
void KI(transpose_copy)(float *dst, int64_t dst_row, const float *src, int64_t src_row, int64_t rows, int64_t columns);

#endif
