/* attention.h: what attention on vectors (attention.c) and on AMX tiles (amx_attention.c) have in common: the operands,
 * the softmax of a tile and how rows are stored. The order in which tiles are visited is in attention_walk.h.
 *
 * Scores of a tile lie transposed, keys down and queries across: sixteen queries are in the sixteen lanes, so maxima,
 * sums and rescaling run down the keys without a horizontal step, and each query's numbers are chains over keys in
 * order. */
#ifndef SL_BACKEND_CPU_ATTENTION_H
#define SL_BACKEND_CPU_ATTENTION_H

#include "backend/cpu/kernels/elem.h"
#include "backend/cpu/kernels/vmath.h"

/* The including file defines MOST_QUERIES and MOST_KEYS, a tile for heads up to some hundred wide whose buffers stay in
 * the second-level cache. Wider heads take smaller ones. */
#define LEAST_TILE 16

/* Heads of one operand: head h of row t in batch b starts at data + (b * rows + t) * row + h * width. */
typedef struct heads {
    elem *data;
    int64_t row;
} heads;

typedef struct attention {
    int64_t batches, query_heads, key_heads, width; /* width: of one head */
    int64_t queries, keys;                          /* T and S */
    bool causal, bounded;                           /* bounded: a window or documents hide earlier keys too */
    int64_t window;                                 /* 0: none */
    const int32_t *positions;                       /* [batches, queries]; NULL: a row is one document */
    const int32_t *lengths; /* [batches]: keys that count, of queries that see all; NULL: all do */
    float scale, softcap;
    float factor; /* of a score in the exponent: scale, or 1 where scores were capped, which scales them */
    float lowest; /* what maxima begin with */
    heads q, k, v, out;
    float *lse;             /* [batches, query_heads, queries] */
    heads dq, dk, dv, dout; /* backward; data NULL: not wanted */
    int64_t tile_queries, tile_keys;
} attention;

/* Which keys of a block the queries of a tile see: query i those from from[i] - past on, counted in the block, and if
 * causal those up to i - past. */
typedef struct sight {
    const int64_t *from; /* per query: the first key it sees, counted from the tile's first query; never decreases */
    int64_t past;        /* how many positions the block's first key lies after the tile's first query */
} sight;

/* Per query of a tile: largest score, sum of exponentials, what earlier sums are multiplied by. */
typedef struct running {
    float *max, *total, *shrink;
} running;

SL_INLINE int64_t padded(int64_t n)
{
    return sl_ceil_div(n, SL_LANES) * SL_LANES;
}

/* The next `count` floats of scratch, 64-byte aligned. */
SL_INLINE float *take(float **next, int64_t count)
{
    float *p = *next;
    *next += padded(count);
    return p;
}

/* ---- operands ---- */

/* A query that sees no key of its first block has no maximum yet, and -infinity less -infinity is no number: where that
 * can be, maxima begin finite, far below any score. */
static inline void bind_limits(attention *t, const sl_kernel_args *a)
{
    int operands = sl_attention_operands(a->attrs);
    bool given = a->input_count == operands + 1 || a->input_count == operands + 4; /* forward, backward */
    t->causal = a->attrs->attention.causal;
    t->window = a->attrs->attention.window;
    t->positions = given && t->causal ? a->in[operands].data : NULL;
    t->lengths = given && !t->causal ? a->in[operands].data : NULL;
    t->bounded = t->window > 0 || t->positions != NULL;
    t->scale = a->attrs->attention.scale;
    t->softcap = a->attrs->attention.softcap;
    t->factor = t->softcap > 0.0f ? 1.0f : t->scale;
    t->lowest = t->bounded ? -1e30f : -INFINITY;
}

static inline void bind_inputs(attention *t, const sl_kernel_args *a)
{
    const sl_shape *first = a->in[0].shape;
    int64_t width = a->attrs->attention.head_width;
    t->batches = first->dim[0];
    t->queries = first->dim[1];
    t->query_heads = a->attrs->attention.heads;
    t->key_heads = a->attrs->attention.kv_heads;
    t->width = width;
    bind_limits(t, a);
    if (a->attrs->attention.packed) {
        int64_t row = (t->query_heads + 2 * t->key_heads) * width;
        elem *qkv = a->in[0].data;
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

static inline void bind_gradients(attention *t, const sl_kernel_args *a)
{
    int inputs = a->input_count - 3;
    int64_t out_row = t->query_heads * t->width;
    t->out = (heads){ a->in[inputs].data, out_row };
    t->lse = a->in[inputs + 1].data;
    t->dout = (heads){ a->in[inputs + 2].data, out_row };
    if (a->attrs->attention.packed) {
        elem *dqkv = a->out[0].data;
        t->dq = (heads){ dqkv, t->q.row };
        t->dk = (heads){ dqkv + t->query_heads * t->width, t->k.row };
        t->dv = (heads){ dqkv + (t->query_heads + t->key_heads) * t->width, t->v.row };
    } else {
        t->dq = (heads){ a->out[0].data, t->q.row };
        t->dk = (heads){ a->out[1].data, t->k.row };
        t->dv = (heads){ a->out[2].data, t->v.row };
    }
}

/* Row `row` of a batch's rows, at one head. */
SL_INLINE elem *head_at(heads x, int64_t row, int64_t head, int64_t width)
{
    return x.data + row * x.row + head * width;
}

/* ---- what queries see ---- */

/* Keys of a batch that any query sees: one at least, whatever its length says. */
SL_INLINE int64_t keys_there(const attention *t, int64_t batch)
{
    if (t->lengths == NULL) return t->keys;
    return t->lengths[batch] < 1 ? 1 : sl_least(t->lengths[batch], t->keys);
}

/* The first key that a query sees: itself at the latest. It never decreases from query to query. */
SL_INLINE int64_t first_seen(const attention *t, int64_t batch, int64_t query)
{
    int64_t first = 0;
    if (t->window > 0) first = query - t->window + 1;
    if (t->positions != NULL) {
        int64_t begin = query - t->positions[batch * t->queries + query];
        if (begin > first) first = begin;
    }
    return first < 0 ? 0 : sl_least(first, query);
}

/* The `from` of a sight, to whole lanes. */
static inline void see_from(const attention *t, int64_t *from, int64_t batch, int64_t first, int64_t queries)
{
    for (int64_t i = 0; i < padded(queries); i++)
        from[i] = t->bounded ? first_seen(t, batch, first + sl_least(i, queries - 1)) - first : -first;
}

/* Keys of the block before the first that query q sees. Not negative: q sees none of an earlier block. */
SL_INLINE int64_t unseen(sight s, int64_t q)
{
    return s.from[q] - s.past;
}

/* Halves the tile until `floats_of` fits a worker's scratch. */
static inline void choose_tile(attention *t, int64_t (*floats_of)(const attention *))
{
    t->tile_queries = MOST_QUERIES;
    t->tile_keys = MOST_KEYS;
    while (floats_of(t) * (int64_t)sizeof(float) > (int64_t)SL_SCRATCH_BYTES && t->tile_keys > LEAST_TILE) {
        t->tile_keys /= 2;
        t->tile_queries = t->tile_queries > LEAST_TILE ? t->tile_queries / 2 : LEAST_TILE;
    }
}

/* ---- a tile of scores ---- */

SL_INLINE sl_v16 largest_down(const float *column, int64_t row, int64_t keys, sl_v16 start)
{
    sl_v16 m[4] = { start, start, start, start };
    int64_t j = 0;
    for (; j + 4 <= keys; j += 4)
        for (int u = 0; u < 4; u++) m[u] = v16_max(v16_load(column + (j + u) * row), m[u]);
    for (; j < keys; j++) m[0] = v16_max(v16_load(column + j * row), m[0]);
    return v16_max(v16_max(m[0], m[1]), v16_max(m[2], m[3]));
}

/* Sixteen queries: score becomes softcap tanh(score scale / softcap). */
static inline void cap_column(const attention *t, float *column, int64_t row, int64_t keys)
{
    sl_v16 inner = v16_set1(t->scale / t->softcap), outer = v16_set1(t->softcap);
    for (int64_t j = 0; j < keys; j++)
        v16_store(column + j * row, v16_mul(outer, v16_tanh(v16_mul(v16_load(column + j * row), inner))));
}

/* What capping a score multiplies its slope by, 1 - (score / softcap)^2; nothing is left of a hidden one's. */
SL_INLINE sl_v16 cap_slope(sl_v16 score, sl_v16 inverse_cap)
{
    sl_v16 y = v16_max(v16_mul(score, inverse_cap), v16_set1(-1.0f));
    return v16_fma(v16_neg(y), y, v16_set1(1.0f));
}

/* The online softmax: the maximum and total of sixteen queries take a block of keys in, whose exponentials under the
 * new maximum, exp(score * factor + base), add up to `sum`. What was summed under the maximum `before` must be scaled
 * by r->shrink, which is set unless the block is the first. */
SL_INLINE void take_block(const running *r, int64_t query, sl_v16 factor, sl_v16 before, sl_v16 max, sl_v16 base,
                          sl_v16 sum, bool first)
{
    v16_store(r->max + query, max);
    if (first) {
        v16_store(r->total + query, sum);
        return;
    }
    sl_v16 shrink = v16_exp(v16_fma(before, factor, base));
    v16_store(r->shrink + query, shrink);
    v16_store(r->total + query, v16_fma(v16_load(r->total + query), shrink, sum));
}

/* Sixteen queries: scores become exp(score * scale - max * scale), max and total take the block in. */
static inline void soften_column(const running *r, float scale, float *column, int64_t row, int64_t keys, int64_t query,
                                 bool first)
{
    sl_v16 factor = v16_set1(scale), before = v16_load(r->max + query);
    sl_v16 max = largest_down(column, row, keys, before);
    sl_v16 base = v16_neg(v16_mul(max, factor)), sum = v16_set1(0.0f);
    for (int64_t j = 0; j < keys; j++) {
        sl_v16 e = v16_exp(v16_fma(v16_load(column + j * row), factor, base));
        v16_store(column + j * row, e);
        sum = v16_add(sum, e);
    }
    take_block(r, query, factor, before, max, base, sum, first);
}

/* Sixteen queries, `rows` numbers each, times a factor, or divided by it. */
SL_INLINE void scale_column(float *column, int64_t row, int64_t rows, const float *factor)
{
    sl_v16 f = v16_load(factor);
    for (int64_t d = 0; d < rows; d++) v16_store(column + d * row, v16_mul(v16_load(column + d * row), f));
}

SL_INLINE void divide_column(float *column, int64_t row, int64_t rows, const float *divisor)
{
    sl_v16 f = v16_load(divisor);
    for (int64_t d = 0; d < rows; d++) v16_store(column + d * row, v16_div(v16_load(column + d * row), f));
}

/* Sixteen queries: score becomes p = exp(score * scale - lse), dp becomes ds = p (dp - delta) scale. */
static inline void slope_column(float *score, float *dp, int64_t row, int64_t keys, float scale, const float *lse,
                                const float *delta)
{
    sl_v16 factor = v16_set1(scale), base = v16_neg(v16_load(lse)), shift = v16_load(delta);
    for (int64_t j = 0; j < keys; j++) {
        sl_v16 e = v16_exp(v16_fma(v16_load(score + j * row), factor, base));
        sl_v16 slope = v16_mul(v16_mul(e, v16_sub(v16_load(dp + j * row), shift)), factor);
        v16_store(score + j * row, e);
        v16_store(dp + j * row, slope);
    }
}

/* The same of capped scores: p = exp(score - lse), ds = p (dp - delta) scale (1 - (score / softcap)^2). */
static inline void slope_capped_column(const attention *t, float *score, float *dp, int64_t row, int64_t keys,
                                       const float *lse, const float *delta)
{
    sl_v16 factor = v16_set1(t->scale), inverse_cap = v16_set1(1.0f / t->softcap);
    sl_v16 base = v16_neg(v16_load(lse)), shift = v16_load(delta);
    for (int64_t j = 0; j < keys; j++) {
        sl_v16 s = v16_load(score + j * row), e = v16_exp(v16_add(s, base));
        sl_v16 slope = v16_mul(v16_mul(e, v16_sub(v16_load(dp + j * row), shift)), factor);
        v16_store(score + j * row, e);
        v16_store(dp + j * row, v16_mul(slope, cap_slope(s, inverse_cap)));
    }
}

/* ---- rows ---- */

/* Rows of floats rounded into an operand's rows. */
static inline void store_rows(elem *to, int64_t to_row, const float *from, int64_t from_row, int64_t rows,
                              int64_t width)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < width; j += SL_LANES)
            e16_put(to + i * to_row + j, v16_load(from + i * from_row + j), width - j);
}

SL_INLINE void store_lse(const attention *t, const running *r, float *lse, int64_t queries)
{
    for (int64_t q = 0; q < queries; q++) lse[q] = r->max[q] * t->factor + sl_log(r->total[q]);
}

SL_INLINE float dot(const elem *a, const elem *b, int64_t n)
{
    sl_v16 sum = v16_set1(0.0f);
    for (int64_t i = 0; i < n; i += SL_LANES)
        sum = v16_fma(e16_get(a + i, n - i, 0.0f), e16_get(b + i, n - i, 0.0f), sum);
    return v16_sum(sum);
}

/* lse and delta = dout . out of a tile's queries; lanes beyond the last are zero. */
static inline void load_sums(const attention *t, float *to_lse, float *to_delta, int64_t batch, int64_t head,
                             int64_t first, int64_t queries)
{
    int64_t row = batch * t->queries + first;
    const elem *out = head_at(t->out, row, head, t->width), *dout = head_at(t->dout, row, head, t->width);
    const float *lse = t->lse + (batch * t->query_heads + head) * t->queries + first;
    for (int64_t i = 0; i < padded(queries); i++) {
        to_lse[i] = i < queries ? lse[i] : 0.0f;
        to_delta[i] = i < queries ? dot(dout + i * t->dout.row, out + i * t->out.row, t->width) : 0.0f;
    }
}

#endif
