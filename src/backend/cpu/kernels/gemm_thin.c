/* gemm_thin.c: a GEMM of a few rows of A, which is bound by reading B once.
 *
 * Packing B would cost more than the product: it is read where it lies. A task owns some columns of C; every element is the
 * one chain over k that gemm.h promises. Where k is the fast index of B, sixteen columns are turned four k at a time in
 * registers. */
#include "backend/cpu/kernels/convert.h"
#include "backend/cpu/kernels/gemm.h"
#include "backend/cpu/kernels/gemm_turn.h"
#include "backend/cpu/kernels/loops.h"

#define GROUPS 2  /* of sixteen columns that a task has, where k is adjacent */
#define AHEAD  12 /* rows of B fetched before their use */
/* Vectors of columns that a task has, where they are adjacent: sums of all rows stay in registers. */
#if defined(SL_ISA_avx512)
#define MOST_VECTORS  4
#define VECTORS(rows) ((rows) <= 4 ? 4 : 2)
#else
#define MOST_VECTORS  2
#define VECTORS(rows) 2
#endif

typedef struct thin_task {
    const sl_gemm *g;
    int64_t column, columns;
} thin_task;

/* C[row, column ..) from sums; what follows the chain is added, and it is rounded once. */
SL_INLINE void finish(const thin_task *t, int64_t row, int64_t at, sl_v16 sum)
{
    const sl_gemm *g = t->g;
    int64_t left = t->columns - at, column = t->column + at;
    sl_tensor c = { .data = g->c, .form = g->c_form };
    sl_tensor bias = { .data = (void *)(uintptr_t)g->bias, .form = g->bias_form };
    if (g->bias != NULL) sum = v16_add(sum, w16_get(&bias, column, left, 0.0f));
    w16_put_or_add(&c, row * g->c_row + column, sum, left, g->accumulate);
}

/* `rows` and `whole` are constants at every call. whole: the task has all its vectors. */
SL_INLINE void along(const thin_task *t, int rows, bool whole)
{
    const int vectors = VECTORS(rows);
    const sl_gemm *g = t->g;
    const float *b = (const float *)g->b.data + t->column, *a = (const float *)g->a.data;
    sl_v16 sum[SL_THIN_ROWS][MOST_VECTORS], x[MOST_VECTORS];
    for (int i = 0; i < rows; i++)
        for (int v = 0; v < vectors; v++) sum[i][v] = v16_set1(0.0f);
    for (int64_t p = 0; p < g->k; p++, b += g->b.row) {
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) {
            int64_t left = t->columns - v * SL_LANES;
            __builtin_prefetch(b + AHEAD * g->b.row + v * SL_LANES);
            x[v] = whole      ? v16_load(b + v * SL_LANES)
                   : left > 0 ? v16_get(b + v * SL_LANES, left, 0.0f)
                              : v16_set1(0.0f);
        }
#pragma GCC unroll 8
        for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
            for (int v = 0; v < vectors; v++) sum[i][v] = v16_fma(v16_set1(a[i * g->a.row + p]), x[v], sum[i][v]);
    }
    for (int i = 0; i < rows; i++)
        for (int v = 0; v * SL_LANES < t->columns; v++) finish(t, i, v * SL_LANES, sum[i][v]);
}

/* Sixteen columns, whose k are adjacent. */
SL_INLINE void across(const thin_task *t, int64_t at, int rows)
{
    const sl_gemm *g = t->g;
    const float *b = (const float *)g->b.data + (t->column + at) * g->b.column;
    const float *a = (const float *)g->a.data;
    sl_v16 sum[SL_THIN_ROWS], turned[4];
    int64_t p = 0;
    for (int i = 0; i < rows; i++) sum[i] = v16_set1(0.0f);
    for (; p + 4 <= g->k; p += 4) {
        sl_turn_four(turned, (const char *)(b + p), g->b.column * (int64_t)sizeof *b);
#pragma GCC unroll 4
        for (int q = 0; q < 4; q++)
#pragma GCC unroll 8
            for (int i = 0; i < rows; i++) sum[i] = v16_fma(v16_set1(a[i * g->a.row + p + q]), turned[q], sum[i]);
    }
    for (; p < g->k; p++) {
        float lanes[SL_LANES];
        for (int i = 0; i < SL_LANES; i++) lanes[i] = b[i * g->b.column + p];
        for (int i = 0; i < rows; i++) sum[i] = v16_fma(v16_set1(a[i * g->a.row + p]), v16_load(lanes), sum[i]);
    }
    for (int i = 0; i < rows; i++) finish(t, i, at, sum[i]);
}

/* The same for fewer columns at the end of C, one by one: rows of B behind them must not be read. */
static void across_end(const thin_task *t, int64_t at, int64_t columns)
{
    const sl_gemm *g = t->g;
    for (int64_t row = 0; row < g->m; row++) {
        const float *a = (const float *)g->a.data + row * g->a.row;
        float lanes[SL_LANES] = { 0 };
        for (int64_t i = 0; i < columns; i++) {
            const float *b = (const float *)g->b.data + (t->column + at + i) * g->b.column;
            for (int64_t p = 0; p < g->k; p++) lanes[i] = fmaf(a[p], b[p], lanes[i]);
        }
        finish(t, row, at, v16_load(lanes));
    }
}

/* Calls with rows that are a constant. */
#define ONE_ROW(rows, call)                                                                                            \
    case rows:                                                                                                         \
        call(rows);                                                                                                    \
        break;
#if SL_THIN_ROWS == 8
#define BY_ROWS(rows, call)                                                                                            \
    switch (rows) {                                                                                                    \
        ONE_ROW(1, call)                                                                                               \
        ONE_ROW(2, call)                                                                                               \
        ONE_ROW(3, call)                                                                                               \
        ONE_ROW(4, call)                                                                                               \
        ONE_ROW(5, call)                                                                                               \
        ONE_ROW(6, call)                                                                                               \
        ONE_ROW(7, call)                                                                                               \
        ONE_ROW(8, call)                                                                                               \
    }
#else
#define BY_ROWS(rows, call)                                                                                            \
    switch (rows) {                                                                                                    \
        ONE_ROW(1, call)                                                                                               \
        ONE_ROW(2, call)                                                                                               \
    }
#endif

static void along_task(void *context, int64_t number, void *scratch)
{
    const sl_gemm *g = context;
    const int64_t wide = VECTORS(g->m) * SL_LANES;
    thin_task t = { g, number * wide, 0 };
    t.columns = sl_least(wide, g->n - t.column);
    (void)scratch;
#define WHOLE(rows) along(&t, rows, true)
#define PART(rows)  along(&t, rows, false)
    if (t.columns == wide)
        BY_ROWS(g->m, WHOLE)
    else
        BY_ROWS(g->m, PART)
}

static void across_task(void *context, int64_t number, void *scratch)
{
    const sl_gemm *g = context;
    thin_task t = { g, number * GROUPS * SL_LANES, 0 };
    t.columns = sl_least(GROUPS * SL_LANES, g->n - t.column);
    (void)scratch;
    for (int64_t at = 0; at < t.columns; at += SL_LANES) {
        if (t.columns - at < SL_LANES) {
            across_end(&t, at, t.columns - at);
            break;
        }
#define GROUP(rows) across(&t, at, rows)
        BY_ROWS(g->m, GROUP)
    }
}

bool KI(gemm_thin)(sl_pool *pool, const sl_gemm *g)
{
    bool floats = g->a.form == SL_FORM_F32 && g->b.form == SL_FORM_F32 && g->a.column == 1;
    if (g->gather_a != NULL || g->gather_b != NULL || g->places != NULL) return false;
    if (g->m < 1 || g->m > SL_THIN_ROWS || g->batches > 1 || !floats) return false;
    if (g->b.column == 1)
        sl_pool_run(pool, along_task, (void *)(uintptr_t)g, sl_ceil_div(g->n, VECTORS(g->m) * SL_LANES));
    else if (g->b.row == 1)
        sl_pool_run(pool, across_task, (void *)(uintptr_t)g, sl_ceil_div(g->n, GROUPS * SL_LANES));
    return g->b.column == 1 || g->b.row == 1;
}
