/* attention.c: softmax(q k^T scale) v in tiles, and its gradient; the T x S matrix never exists.
 *
 * All GEMMs are gemm.h's packed ones; sums stay in f32 until an output is stored. The results depend on the block of
 * keys alone, which depends on the head width alone. */

#define MOST_QUERIES 64
#define MOST_KEYS    128
#include "backend/cpu/kernels/attention.h"
#include "backend/cpu/kernels/amx.h"
#include "backend/cpu/kernels/gemm.h"

#if defined(SL_ELEM_bf16)
#define ELEM_FORM SL_FORM_BF16
#elif defined(SL_ELEM_f16)
#define ELEM_FORM SL_FORM_F16
#else
#define ELEM_FORM SL_FORM_F32
#endif

/* Rows of one head as a matrix of rows `row` apart, and its transpose. */
static sl_matrix head_rows(const elem *data, int64_t row)
{
    return (sl_matrix){ data, row, 1, ELEM_FORM };
}

static sl_matrix head_columns(const elem *data, int64_t row)
{
    return (sl_matrix){ data, 1, row, ELEM_FORM };
}

static sl_matrix floats(const float *data, int64_t row, int64_t column)
{
    return (sl_matrix){ data, row, column, SL_FORM_F32 };
}

static void enter_task(void)
{
}

static void leave_task(void)
{
}

/* ---- scores[keys, queries] of a tile: panels of queries, each `panel` on, rows `row` apart (0: as wide as the panel)
 * ---- */

/* Keys after a query get the score -infinity. */
static void hide_future(sl_block scores, int64_t keys, int64_t queries, int64_t past)
{
    for (int64_t j = past < 0 ? -past : 0; j < keys; j++)
        for (int64_t p = 0; p * SL_TILE_COLUMNS < queries; p++) {
            int64_t width = sl_panel_width(queries, p);
            int64_t hidden = sl_least(past + j - p * SL_TILE_COLUMNS, width);
            float *row = scores.data + p * scores.panel + j * (scores.row ? scores.row : width);
            for (int64_t i = 0; i < hidden; i++) row[i] = -INFINITY;
        }
}

/* The same of keys before the first that a query sees: key j is hidden from a query on, the later the larger j. */
static void hide_past(sl_block scores, int64_t keys, int64_t queries, sight s)
{
    int64_t from = 0;
    for (int64_t j = 0; j < keys; j++) {
        while (from < queries && unseen(s, from) <= j) from++;
        for (int64_t p = from / SL_TILE_COLUMNS; p * SL_TILE_COLUMNS < queries; p++) {
            int64_t width = sl_panel_width(queries, p), first = from - p * SL_TILE_COLUMNS;
            float *row = scores.data + p * scores.panel + j * (scores.row ? scores.row : width);
            for (int64_t i = first > 0 ? first : 0; i < width; i++) row[i] = -INFINITY;
        }
    }
}

/* Capped, and hidden where a query does not see the key. */
static void limit_scores(const attention *t, sl_block scores, int64_t keys, int64_t queries, sight s)
{
    for (int64_t q = 0; t->softcap > 0.0f && q < queries; q += SL_LANES) {
        int64_t p = q / SL_TILE_COLUMNS, row = scores.row ? scores.row : sl_panel_width(queries, p);
        cap_column(t, scores.data + p * scores.panel + q % SL_TILE_COLUMNS, row, keys);
    }
    if (t->causal) hide_future(scores, keys, queries, s.past);
    if (t->bounded && unseen(s, queries - 1) > 0) hide_past(scores, keys, queries, s);
}

/* ---- forward ---- */

typedef struct forward_tile {
    float *query;  /* packed q^T [width, queries] */
    float *left;   /* packed k, then packed v^T */
    float *scores; /* [keys, queries], then the probabilities; packed */
    float *sums;   /* v^T p: [width, queries]; packed */
    float *turned; /* sixteen rows of the output */
    running run;
} forward_tile;

static int64_t forward_floats(const attention *t)
{
    int64_t longest = t->tile_keys * t->width + SL_PACK_SLACK;
    return 2 * sl_packed_b(t->tile_queries, t->width) + longest + sl_packed_b(t->tile_queries, t->tile_keys) +
           SL_LANES * padded(t->width) + 3 * padded(t->tile_queries) + 8 * SL_LANES;
}

static forward_tile lay_forward(const attention *t, float *scratch)
{
    forward_tile f;
    f.query = take(&scratch, sl_packed_b(t->tile_queries, t->width));
    f.sums = take(&scratch, sl_packed_b(t->tile_queries, t->width));
    f.left = take(&scratch, t->tile_keys * t->width + SL_PACK_SLACK);
    f.scores = take(&scratch, sl_packed_b(t->tile_queries, t->tile_keys));
    f.turned = take(&scratch, SL_LANES * padded(t->width));
    f.run.max = take(&scratch, t->tile_queries);
    f.run.total = take(&scratch, t->tile_queries);
    f.run.shrink = take(&scratch, t->tile_queries);
    return f;
}

static void start_forward(const attention *t, const forward_tile *f, const elem *q, int64_t queries)
{
    KI(pack_b)(f->query, head_columns(q, t->q.row), queries, t->width);
}

static void soften_block(const attention *t, const forward_tile *f, int64_t keys, int64_t queries, bool first)
{
    for (int64_t q = 0; q < queries; q += SL_LANES) {
        int64_t p = q / SL_TILE_COLUMNS, lane = q % SL_TILE_COLUMNS, width = sl_panel_width(queries, p);
        soften_column(&f->run, t->factor, f->scores + p * SL_TILE_COLUMNS * keys + lane, width, keys, q, first);
        float *sums = f->sums + p * SL_TILE_COLUMNS * t->width + lane;
        if (!first) scale_column(sums, width, t->width, f->run.shrink + q);
    }
}

static void forward_keys(const attention *t, const forward_tile *f, const elem *k, const elem *v, int64_t keys,
                         int64_t queries, sight s)
{
    bool first = unseen(s, 0) >= 0;
    sl_block scores = { f->scores, 0, keys * SL_TILE_COLUMNS }, sums = { f->sums, 0, t->width * SL_TILE_COLUMNS };
    KI(pack_a)(f->left, head_rows(k, t->k.row), keys, keys, t->width);
    KI(multiply_packed)(f->left, f->query, keys, queries, t->width, NULL, scores);
    limit_scores(t, scores, keys, queries, s);
    soften_block(t, f, keys, queries, first);
    KI(pack_a)(f->left, head_columns(v, t->v.row), t->width, t->width, keys);
    KI(multiply_packed)(f->left, f->scores, t->width, queries, keys, first ? NULL : f->sums, sums);
}

/* out = sums / total, turned back to one row per query. */
static void finish_forward(const attention *t, const forward_tile *f, elem *out, int64_t queries)
{
    for (int64_t q = 0; q < queries; q += SL_LANES) {
        int64_t p = q / SL_TILE_COLUMNS, width = sl_panel_width(queries, p), rows = sl_least(queries - q, SL_LANES);
        float *sums = f->sums + p * SL_TILE_COLUMNS * t->width + q % SL_TILE_COLUMNS;
        divide_column(sums, width, t->width, f->run.total + q);
        KI(transpose_copy)(f->turned, padded(t->width), sums, width, t->width, rows);
        store_rows(out + q * t->out.row, t->out.row, f->turned, padded(t->width), rows, t->width);
    }
}

/* ---- backward ---- */

typedef struct backward_tile {
    /* of the block of keys */
    float *key_left, *value_left; /* packed k, v: rows are keys */
    float *key_right;             /* packed k: columns are the head's */
    float *dk, *dv;               /* [keys, wide] */
    int64_t wide;
    /* of the tile of queries */
    float *query_down, *dout_down;   /* packed q^T, dout^T: columns are queries */
    float *query_right, *dout_right; /* packed q, dout: columns are the head's */
    float *probability, *slope;      /* [keys, padded queries]: p; dp, then ds */
    float *left;                     /* p or ds packed as a left operand */
    float *lse, *delta;              /* per query; delta = dout . out */
    float *dq;                       /* [queries, wide] of one tile of queries or of more */
} backward_tile;

static int64_t dq_floats(const attention *t)
{
    return t->tile_queries * padded(t->width);
}

/* Without dq. */
static int64_t backward_floats(const attention *t)
{
    int64_t keys = t->tile_keys, queries = t->tile_queries, wide = padded(t->width);
    return 2 * sl_packed_a(keys, t->width) + sl_packed_b(t->width, keys) + 2 * keys * wide +
           2 * sl_packed_b(queries, t->width) + 2 * sl_packed_b(t->width, queries) + 2 * keys * padded(queries) +
           sl_packed_a(keys, queries) + 2 * padded(queries) + 16 * SL_LANES;
}

static backward_tile lay_backward(const attention *t, float *scratch)
{
    int64_t keys = t->tile_keys, queries = t->tile_queries, wide = padded(t->width);
    backward_tile b = { .wide = wide };
    b.key_left = take(&scratch, sl_packed_a(keys, t->width));
    b.value_left = take(&scratch, sl_packed_a(keys, t->width));
    b.key_right = take(&scratch, sl_packed_b(t->width, keys));
    b.dk = take(&scratch, keys * wide);
    b.dv = take(&scratch, keys * wide);
    b.query_down = take(&scratch, sl_packed_b(queries, t->width));
    b.dout_down = take(&scratch, sl_packed_b(queries, t->width));
    b.query_right = take(&scratch, sl_packed_b(t->width, queries));
    b.dout_right = take(&scratch, sl_packed_b(t->width, queries));
    b.probability = take(&scratch, keys * padded(queries));
    b.slope = take(&scratch, keys * padded(queries));
    b.left = take(&scratch, sl_packed_a(keys, queries));
    b.lse = take(&scratch, queries);
    b.delta = take(&scratch, queries);
    b.dq = scratch;
    return b;
}

static void load_queries(const attention *t, const backward_tile *b, int64_t batch, int64_t head, int64_t first,
                         int64_t queries)
{
    int64_t row = batch * t->queries + first;
    const elem *q = head_at(t->q, row, head, t->width), *dout = head_at(t->dout, row, head, t->width);
    KI(pack_b)(b->query_down, head_columns(q, t->q.row), queries, t->width);
    KI(pack_b)(b->dout_down, head_columns(dout, t->dout.row), queries, t->width);
    KI(pack_b)(b->query_right, head_rows(q, t->q.row), t->width, queries);
    KI(pack_b)(b->dout_right, head_rows(dout, t->dout.row), t->width, queries);
    load_sums(t, b->lse, b->delta, batch, head, first, queries);
}

static void load_keys(const attention *t, const backward_tile *b, int64_t row, int64_t key_head, int64_t keys)
{
    const elem *k = head_at(t->k, row, key_head, t->width), *v = head_at(t->v, row, key_head, t->width);
    KI(pack_a)(b->key_left, head_rows(k, t->k.row), keys, keys, t->width);
    KI(pack_a)(b->value_left, head_rows(v, t->v.row), keys, keys, t->width);
    KI(pack_b)(b->key_right, head_rows(k, t->k.row), t->width, keys);
}

/* p and ds of a tile keys x queries of one head. */
static void slopes(const attention *t, const backward_tile *b, int64_t keys, int64_t queries, sight s)
{
    int64_t row = padded(queries);
    sl_block scores = { b->probability, row, SL_TILE_COLUMNS }, dp = { b->slope, row, SL_TILE_COLUMNS };
    KI(multiply_packed)(b->key_left, b->query_down, keys, queries, t->width, NULL, scores);
    KI(multiply_packed)(b->value_left, b->dout_down, keys, queries, t->width, NULL, dp);
    limit_scores(t, scores, keys, queries, s);
    for (int64_t q = 0; q < row; q += SL_LANES)
        if (t->softcap > 0.0f)
            slope_capped_column(t, b->probability + q, b->slope + q, row, keys, b->lse + q, b->delta + q);
        else
            slope_column(b->probability + q, b->slope + q, row, keys, t->scale, b->lse + q, b->delta + q);
}

/* The tile's part of dq[queries, width], which the first block that the tile sees starts. Slopes of keys that a query
 * does not see are zero. */
static void add_dq(const attention *t, const backward_tile *b, float *dq, int64_t keys, int64_t queries, sight s)
{
    bool first = unseen(s, 0) >= 0;
    sl_block to = { dq, b->wide, SL_TILE_COLUMNS };
    KI(pack_a)(b->left, floats(b->slope, 1, padded(queries)), queries, queries, keys);
    KI(multiply_packed)(b->left, b->key_right, queries, t->width, keys, first ? NULL : dq, to);
}

static void store_dq(const attention *t, const backward_tile *b, elem *to, const float *dq, int64_t queries)
{
    store_rows(to, t->dq.row, dq, b->wide, queries, t->width);
}

/* Its part of dk and dv[keys, width], which start here when `fresh`. */
static void add_dk_dv(const attention *t, const backward_tile *b, int64_t keys, int64_t queries, sight s, bool fresh)
{
    (void)s;
    int64_t row = padded(queries);
    sl_block dk = { b->dk, b->wide, SL_TILE_COLUMNS }, dv = { b->dv, b->wide, SL_TILE_COLUMNS };
    KI(pack_a)(b->left, floats(b->probability, row, 1), keys, keys, queries);
    KI(multiply_packed)(b->left, b->dout_right, keys, t->width, queries, fresh ? NULL : b->dv, dv);
    KI(pack_a)(b->left, floats(b->slope, row, 1), keys, keys, queries);
    KI(multiply_packed)(b->left, b->query_right, keys, t->width, queries, fresh ? NULL : b->dk, dk);
}

#include "backend/cpu/kernels/attention_walk.h"

void K(attention)(const sl_kernel_args *a)
{
#if defined(SL_HAVE_AMX) && defined(SL_ELEM_bf16)
    if (a->amx) {
        AMX(attention)(a);
        return;
    }
#endif
    run_forward(a);
}

void K(attention_grad)(const sl_kernel_args *a)
{
#if defined(SL_HAVE_AMX) && defined(SL_ELEM_bf16)
    if (a->amx) {
        AMX(attention_grad)(a);
        return;
    }
#endif
    run_backward(a);
}
