/* attention.c: softmax(q k^T scale) v in tiles, and its gradient; the T x S matrix never exists.
 *
 * Scores are computed transposed, keys down and queries across: sixteen queries lie in the sixteen lanes, so maxima,
 * sums and rescaling run down the keys without a horizontal step, and each query's numbers are chains over keys in
 * order. The results depend on the block of keys alone, which depends on the head width alone. All products are
 * gemm.h's packed ones.
 *
 * Forward: one task per (batch, head, tile of queries); running maximum and sum per query. Backward: one task per
 * (batch, key head), which owns dk and dv of that head and dq of its query heads; probabilities are recomputed from the
 * saved log-sum-exp. */
#include "backend/cpu/kernels/gemm.h"
#include "backend/cpu/kernels/vmath.h"

/* A tile for heads up to some hundred wide: its buffers stay in the second-level cache. Wider heads take smaller ones.
 */
#define MOST_QUERIES 64
#define MOST_KEYS    128
#define LEAST_TILE   16

/* Heads of one operand: head h of row t in batch b starts at data + (b * rows + t) * row + h * width. */
typedef struct heads {
    float *data;
    int64_t row;
} heads;

typedef struct attention {
    int64_t batches, query_heads, key_heads, width; /* width: of one head */
    int64_t queries, keys;                          /* T and S */
    bool causal;
    float scale;
    heads q, k, v, out;
    float *lse;             /* [batches, query_heads, queries] */
    heads dq, dk, dv, dout; /* backward; data NULL: not wanted */
    int64_t tile_queries, tile_keys;
} attention;

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t padded(int64_t n)
{
    return (n + SL_LANES - 1) / SL_LANES * SL_LANES;
}

/* The next `count` floats of scratch, 64-byte aligned. */
static float *take(float **next, int64_t count)
{
    float *p = *next;
    *next += padded(count);
    return p;
}

static void bind_inputs(attention *t, const sl_kernel_args *a)
{
    const sl_shape *first = a->in[0].shape;
    int64_t width = a->attrs->attention.head_width;
    t->batches = first->dim[0];
    t->queries = first->dim[1];
    t->query_heads = a->attrs->attention.heads;
    t->key_heads = a->attrs->attention.kv_heads;
    t->width = width;
    t->causal = a->attrs->attention.causal;
    t->scale = a->attrs->attention.scale;
    if (a->attrs->attention.packed) {
        int64_t row = (t->query_heads + 2 * t->key_heads) * width;
        float *qkv = a->in[0].data;
        t->keys = t->queries;
        t->q = (heads){ qkv, row };
        t->k = (heads){ qkv + t->query_heads * width, row };
        t->v = (heads){ qkv + (t->query_heads + t->key_heads) * width, row };
    } else {
        t->keys = a->in[1].shape->dim[1];
        t->q = (heads){ a->in[0].data, t->query_heads * width };
        t->k = (heads){ a->in[1].data, t->key_heads * width };
        t->v = (heads){ a->in[2].data, t->key_heads * width };
    }
}

/* Halves the tile until `floats_of` fits a worker's scratch. */
static void choose_tile(attention *t, int64_t (*floats_of)(const attention *))
{
    t->tile_queries = MOST_QUERIES;
    t->tile_keys = MOST_KEYS;
    while (floats_of(t) * (int64_t)sizeof(float) > (int64_t)SL_SCRATCH_BYTES && t->tile_keys > LEAST_TILE) {
        t->tile_keys /= 2;
        t->tile_queries = t->tile_queries > LEAST_TILE ? t->tile_queries / 2 : LEAST_TILE;
    }
}

/* scores[keys, queries] of a tile: panels of queries, each `panel` on, rows `row` apart (0: as wide as the panel). Keys
 * after a query get the score -infinity. `past` is how many positions the first key lies after the first query. */
static void hide_future(sl_block scores, int64_t keys, int64_t queries, int64_t past)
{
    for (int64_t j = past < 0 ? -past : 0; j < keys; j++)
        for (int64_t p = 0; p * SL_TILE_COLUMNS < queries; p++) {
            int64_t width = sl_panel_width(queries, p);
            int64_t hidden = least(past + j - p * SL_TILE_COLUMNS, width);
            float *row = scores.data + p * scores.panel + j * (scores.row ? scores.row : width);
            for (int64_t i = 0; i < hidden; i++) row[i] = -INFINITY;
        }
}

/* ---- forward ---- */

typedef struct forward_tile {
    float *query;  /* packed q^T [width, queries] */
    float *left;   /* packed k, then packed v^T */
    float *scores; /* [keys, queries], then the probabilities; packed */
    float *sums;   /* v^T p: [width, queries]; packed */
    float *max, *total,
        *shrink; /* per query: largest score, sum of exponentials, what earlier sums are multiplied by */
} forward_tile;

static int64_t forward_floats(const attention *t)
{
    int64_t longest = t->tile_keys * t->width + SL_PACK_SLACK;
    return 2 * sl_packed_b(t->tile_queries, t->width) + longest + sl_packed_b(t->tile_queries, t->tile_keys) +
           3 * padded(t->tile_queries) + 8 * SL_LANES;
}

static forward_tile lay_forward(const attention *t, float *scratch)
{
    forward_tile f;
    f.query = take(&scratch, sl_packed_b(t->tile_queries, t->width));
    f.sums = take(&scratch, sl_packed_b(t->tile_queries, t->width));
    f.left = take(&scratch, t->tile_keys * t->width + SL_PACK_SLACK);
    f.scores = take(&scratch, sl_packed_b(t->tile_queries, t->tile_keys));
    f.max = take(&scratch, t->tile_queries);
    f.total = take(&scratch, t->tile_queries);
    f.shrink = take(&scratch, t->tile_queries);
    return f;
}

static sl_v16 largest_down(const float *column, int64_t row, int64_t keys, sl_v16 start)
{
    sl_v16 m[4] = { start, start, start, start };
    int64_t j = 0;
    for (; j + 4 <= keys; j += 4)
        for (int u = 0; u < 4; u++) m[u] = v16_max(v16_load(column + (j + u) * row), m[u]);
    for (; j < keys; j++) m[0] = v16_max(v16_load(column + j * row), m[0]);
    return v16_max(v16_max(m[0], m[1]), v16_max(m[2], m[3]));
}

/* Sixteen queries: scores become exp(score * scale - max * scale), max and total take the block in. */
static void soften_column(const forward_tile *f, float scale, float *column, int64_t row, int64_t keys, int64_t query,
                          bool first)
{
    sl_v16 factor = v16_set1(scale), before = v16_load(f->max + query);
    sl_v16 max = largest_down(column, row, keys, before);
    sl_v16 base = v16_neg(v16_mul(max, factor)), sum = v16_set1(0.0f);
    for (int64_t j = 0; j < keys; j++) {
        sl_v16 e = v16_exp(v16_fma(v16_load(column + j * row), factor, base));
        v16_store(column + j * row, e);
        sum = v16_add(sum, e);
    }
    v16_store(f->max + query, max);
    if (first) {
        v16_store(f->total + query, sum);
        return;
    }
    sl_v16 shrink = v16_exp(v16_fma(before, factor, base));
    v16_store(f->shrink + query, shrink);
    v16_store(f->total + query, v16_fma(v16_load(f->total + query), shrink, sum));
}

static void soften_block(const attention *t, const forward_tile *f, int64_t keys, int64_t queries, bool first)
{
    for (int64_t q = 0; q < queries; q += SL_LANES) {
        int64_t p = q / SL_TILE_COLUMNS, lane = q % SL_TILE_COLUMNS, width = sl_panel_width(queries, p);
        soften_column(f, t->scale, f->scores + p * SL_TILE_COLUMNS * keys + lane, width, keys, q, first);
        if (first) continue;
        sl_v16 shrink = v16_load(f->shrink + q);
        float *sums = f->sums + p * SL_TILE_COLUMNS * t->width + lane;
        for (int64_t d = 0; d < t->width; d++) v16_store(sums + d * width, v16_mul(v16_load(sums + d * width), shrink));
    }
}

static void forward_keys(const attention *t, const forward_tile *f, const float *k, const float *v, int64_t keys,
                         int64_t queries, int64_t past, bool first)
{
    sl_block scores = { f->scores, 0, keys * SL_TILE_COLUMNS }, sums = { f->sums, 0, t->width * SL_TILE_COLUMNS };
    K(pack_a)(f->left, (sl_matrix){ k, t->k.row, 1 }, keys, t->width);
    K(multiply_packed)(f->left, f->query, keys, queries, t->width, NULL, scores);
    if (t->causal) hide_future(scores, keys, queries, past);
    soften_block(t, f, keys, queries, first);
    K(pack_a)(f->left, (sl_matrix){ v, 1, t->v.row }, t->width, keys);
    K(multiply_packed)(f->left, f->scores, t->width, queries, keys, first ? NULL : f->sums, sums);
}

/* out = sums / total, turned back to one row per query; lse = max * scale + log(total). */
static void finish_forward(const attention *t, const forward_tile *f, float *out, float *lse, int64_t queries)
{
    for (int64_t q = 0; q < queries; q += SL_LANES) {
        int64_t p = q / SL_TILE_COLUMNS, width = sl_panel_width(queries, p);
        float *sums = f->sums + p * SL_TILE_COLUMNS * t->width + q % SL_TILE_COLUMNS;
        sl_v16 total = v16_load(f->total + q);
        for (int64_t d = 0; d < t->width; d++) v16_store(sums + d * width, v16_div(v16_load(sums + d * width), total));
        K(transpose_copy)(out + q * t->out.row, t->out.row, sums, width, t->width, least(queries - q, SL_LANES));
    }
    for (int64_t q = 0; q < queries; q++) lse[q] = f->max[q] * t->scale + sl_log(f->total[q]);
}

static void forward_task(void *context, int64_t number, void *scratch)
{
    const attention *t = context;
    forward_tile f = lay_forward(t, scratch);
    int64_t tiles = (t->queries + t->tile_queries - 1) / t->tile_queries;
    int64_t first_query = (tiles - 1 - number % tiles) * t->tile_queries; /* the longest come first */
    int64_t head = number / tiles % t->query_heads, batch = number / tiles / t->query_heads;
    int64_t key_head = head / (t->query_heads / t->key_heads);
    int64_t queries = least(t->tile_queries, t->queries - first_query);
    int64_t visible = t->causal ? first_query + queries : t->keys;
    const float *q = t->q.data + (batch * t->queries + first_query) * t->q.row + head * t->width;
    const float *k = t->k.data + batch * t->keys * t->k.row + key_head * t->width;
    const float *v = t->v.data + batch * t->keys * t->v.row + key_head * t->width;
    K(pack_b)(f.query, (sl_matrix){ q, 1, t->q.row }, queries, t->width);
    for (int64_t i = 0; i < padded(queries); i++) f.max[i] = -INFINITY;
    for (int64_t first = 0; first < visible; first += t->tile_keys) {
        int64_t keys = least(t->tile_keys, visible - first);
        forward_keys(t, &f, k + first * t->k.row, v + first * t->v.row, keys, queries, first - first_query, first == 0);
    }
    float *out = t->out.data + (batch * t->queries + first_query) * t->out.row + head * t->width;
    finish_forward(t, &f, out, t->lse + (batch * t->query_heads + head) * t->queries + first_query, queries);
}

void K(attention)(const sl_kernel_args *a)
{
    attention t = { 0 };
    bind_inputs(&t, a);
    t.out = (heads){ a->out[0].data, t.query_heads * t.width };
    t.lse = a->out[1].data;
    choose_tile(&t, forward_floats);
    int64_t tiles = (t.queries + t.tile_queries - 1) / t.tile_queries;
    sl_pool_run(a->pool, forward_task, &t, t.batches * t.query_heads * tiles);
}

/* ---- backward ---- */

typedef struct backward_tile {
    /* of the block of keys */
    float *key_left, *value_left; /* packed k, v: rows are keys */
    float *key_right;             /* packed k: columns are the head's */
    float *dk, *dv;               /* [keys, padded width] */
    /* of the tile of queries */
    float *query_down, *dout_down;   /* packed q^T, dout^T: columns are queries */
    float *query_right, *dout_right; /* packed q, dout: columns are the head's */
    float *probability, *slope;      /* [keys, padded queries]: p; dp, then ds */
    float *left;                     /* p or ds packed as a left operand */
    float *dq;                       /* [queries, padded width] */
    float *lse, *delta;              /* per query; delta = dout . out */
} backward_tile;

static int64_t backward_floats(const attention *t)
{
    int64_t keys = t->tile_keys, queries = t->tile_queries, wide = padded(t->width);
    return 2 * sl_packed_a(keys, t->width) + sl_packed_b(t->width, keys) + 2 * keys * wide +
           2 * sl_packed_b(queries, t->width) + 2 * sl_packed_b(t->width, queries) + 2 * keys * padded(queries) +
           sl_packed_a(keys, queries) + queries * wide + 2 * padded(queries) + 16 * SL_LANES;
}

static backward_tile lay_backward(const attention *t, float *scratch)
{
    int64_t keys = t->tile_keys, queries = t->tile_queries, wide = padded(t->width);
    backward_tile b;
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
    b.dq = take(&scratch, queries * wide);
    b.lse = take(&scratch, queries);
    b.delta = take(&scratch, queries);
    return b;
}

static float dot(const float *a, const float *b, int64_t n)
{
    sl_v16 sum = v16_set1(0.0f);
    int64_t i = 0;
    for (; i + SL_LANES <= n; i += SL_LANES) sum = v16_fma(v16_load(a + i), v16_load(b + i), sum);
    if (i < n) sum = v16_fma(v16_load_part(a + i, n - i, 0.0f), v16_load_part(b + i, n - i, 0.0f), sum);
    return v16_sum(sum);
}

/* Packs the tile's q and dout both ways and fills lse and delta; lanes beyond the last query are zero. */
static void load_queries(const attention *t, const backward_tile *b, int64_t batch, int64_t head, int64_t first,
                         int64_t queries)
{
    int64_t position = batch * t->queries + first;
    const float *q = t->q.data + position * t->q.row + head * t->width;
    const float *out = t->out.data + position * t->out.row + head * t->width;
    const float *dout = t->dout.data + position * t->dout.row + head * t->width;
    K(pack_b)(b->query_down, (sl_matrix){ q, 1, t->q.row }, queries, t->width);
    K(pack_b)(b->dout_down, (sl_matrix){ dout, 1, t->dout.row }, queries, t->width);
    K(pack_b)(b->query_right, (sl_matrix){ q, t->q.row, 1 }, t->width, queries);
    K(pack_b)(b->dout_right, (sl_matrix){ dout, t->dout.row, 1 }, t->width, queries);
    const float *lse = t->lse + (batch * t->query_heads + head) * t->queries + first;
    for (int64_t i = 0; i < padded(queries); i++) {
        b->lse[i] = i < queries ? lse[i] : 0.0f;
        b->delta[i] = i < queries ? dot(dout + i * t->dout.row, out + i * t->out.row, t->width) : 0.0f;
    }
}

/* p = exp(score * scale - lse), ds = p (dp - delta) scale, in place of score and dp. */
static void slopes(const attention *t, const backward_tile *b, int64_t keys, int64_t queries)
{
    int64_t row = padded(queries);
    sl_v16 scale = v16_set1(t->scale);
    for (int64_t q = 0; q < row; q += SL_LANES) {
        sl_v16 base = v16_neg(v16_load(b->lse + q)), delta = v16_load(b->delta + q);
        for (int64_t j = 0; j < keys; j++) {
            float *p = b->probability + j * row + q, *s = b->slope + j * row + q;
            sl_v16 e = v16_exp(v16_fma(v16_load(p), scale, base));
            v16_store(p, e);
            v16_store(s, v16_mul(v16_mul(e, v16_sub(v16_load(s), delta)), scale));
        }
    }
}

/* dq[queries, width] of this head and tile: continued from memory unless this is the first block of keys. */
static void add_dq(const attention *t, const backward_tile *b, float *dq, int64_t keys, int64_t queries, bool first)
{
    int64_t wide = padded(t->width);
    size_t bytes = (size_t)t->width * sizeof(float);
    K(pack_a)(b->left, (sl_matrix){ b->slope, 1, padded(queries) }, queries, keys);
    if (!first)
        for (int64_t i = 0; i < queries; i++) memcpy(b->dq + i * wide, dq + i * t->dq.row, bytes);
    K(multiply_packed)
    (b->left, b->key_right, queries, t->width, keys, first ? NULL : b->dq, (sl_block){ b->dq, wide, SL_TILE_COLUMNS });
    for (int64_t i = 0; i < queries; i++) memcpy(dq + i * t->dq.row, b->dq + i * wide, bytes);
}

/* One tile: keys x queries of one head. `fresh`: dk and dv start here. */
static void backward_block(const attention *t, const backward_tile *b, int64_t keys, int64_t queries, int64_t past,
                           bool fresh)
{
    int64_t row = padded(queries), wide = padded(t->width);
    sl_block scores = { b->probability, row, SL_TILE_COLUMNS }, dp = { b->slope, row, SL_TILE_COLUMNS };
    sl_block dk = { b->dk, wide, SL_TILE_COLUMNS }, dv = { b->dv, wide, SL_TILE_COLUMNS };
    K(multiply_packed)(b->key_left, b->query_down, keys, queries, t->width, NULL, scores);
    K(multiply_packed)(b->value_left, b->dout_down, keys, queries, t->width, NULL, dp);
    if (t->causal) hide_future(scores, keys, queries, past);
    slopes(t, b, keys, queries);
    K(pack_a)(b->left, (sl_matrix){ b->probability, row, 1 }, keys, queries);
    K(multiply_packed)(b->left, b->dout_right, keys, t->width, queries, fresh ? NULL : b->dv, dv);
    K(pack_a)(b->left, (sl_matrix){ b->slope, row, 1 }, keys, queries);
    K(multiply_packed)(b->left, b->query_right, keys, t->width, queries, fresh ? NULL : b->dk, dk);
}

static void store_rows(const heads *to, int64_t first_row, int64_t column, const float *from, int64_t rows,
                       int64_t width)
{
    if (to->data == NULL) return;
    for (int64_t i = 0; i < rows; i++)
        memcpy(to->data + (first_row + i) * to->row + column, from + i * padded(width), (size_t)width * sizeof(float));
}

/* One block of keys against all queries that see it: heads of the group in order, tiles of queries in order. */
static void backward_keys(const attention *t, const backward_tile *b, int64_t batch, int64_t key_head, int64_t first,
                          int64_t keys)
{
    int64_t group = t->query_heads / t->key_heads, key_row = batch * t->keys + first, column = key_head * t->width;
    const float *k = t->k.data + key_row * t->k.row + column, *v = t->v.data + key_row * t->v.row + column;
    K(pack_a)(b->key_left, (sl_matrix){ k, t->k.row, 1 }, keys, t->width);
    K(pack_a)(b->value_left, (sl_matrix){ v, t->v.row, 1 }, keys, t->width);
    K(pack_b)(b->key_right, (sl_matrix){ k, t->k.row, 1 }, t->width, keys);
    int64_t start = t->causal ? first / t->tile_queries * t->tile_queries : 0;
    for (int64_t head = key_head * group; head < (key_head + 1) * group; head++)
        for (int64_t query = start; query < t->queries; query += t->tile_queries) {
            int64_t queries = least(t->tile_queries, t->queries - query);
            load_queries(t, b, batch, head, query, queries);
            backward_block(t, b, keys, queries, first - query, head == key_head * group && query == start);
            if (t->dq.data)
                add_dq(t, b, t->dq.data + (batch * t->queries + query) * t->dq.row + head * t->width, keys, queries,
                       first == 0);
        }
    store_rows(&t->dk, key_row, column, b->dk, keys, t->width);
    store_rows(&t->dv, key_row, column, b->dv, keys, t->width);
}

static void backward_task(void *context, int64_t number, void *scratch)
{
    const attention *t = context;
    backward_tile b = lay_backward(t, scratch);
    for (int64_t first = 0; first < t->keys; first += t->tile_keys)
        backward_keys(t, &b, number / t->key_heads, number % t->key_heads, first, least(t->tile_keys, t->keys - first));
}

void K(attention_grad)(const sl_kernel_args *a)
{
    attention t = { 0 };
    bind_inputs(&t, a);
    int inputs = a->attrs->attention.packed ? 1 : 3;
    int64_t out_row = t.query_heads * t.width;
    t.out = (heads){ a->in[inputs].data, out_row };
    t.lse = a->in[inputs + 1].data;
    t.dout = (heads){ a->in[inputs + 2].data, out_row };
    if (a->attrs->attention.packed) {
        float *dqkv = a->out[0].data;
        t.dq = (heads){ dqkv, t.q.row };
        t.dk = (heads){ dqkv + t.query_heads * t.width, t.k.row };
        t.dv = (heads){ dqkv + (t.query_heads + t.key_heads) * t.width, t.v.row };
    } else {
        t.dq = (heads){ a->out[0].data, t.q.row };
        t.dk = (heads){ a->out[1].data, t.k.row };
        t.dv = (heads){ a->out[2].data, t.v.row };
    }
    choose_tile(&t, backward_floats);
    sl_pool_run(a->pool, backward_task, &t, t.batches * t.key_heads);
}
