/* amx_attention.c: attention of bf16 operands with its GEMMs on AMX tiles.
 *
 * The tiles of attention and their order are those of attention.c. GEMMs take so little time that everything besides
 * them is kept short: a tile is walked in panels of 32 queries, whose scores lie [keys, 32] in f32 and never leave the
 * first-level cache; one pass over them makes probabilities and slopes and rounds these to bf16 into the operands that
 * the next GEMMs read; blocks of 32 keys that no query of a panel sees are neither multiplied nor raised. Whatever else a product
 * reads is packed once per tile, so that the layout in memory needs a plain copy or one pass of transposes
 * (amx_pack.h). */
#define SL_ELEM_bf16
#include "backend/cpu/kernels/amx.h"

#if defined(SL_HAVE_AMX) || defined(SL_AMX_EMULATED)

#include "backend/cpu/kernels/amx_block.h"

#define MOST_QUERIES 256
#define MOST_KEYS    256
#include "backend/cpu/kernels/attention.h"

static void enter_task(void)
{
    tile_configure();
}

static void leave_task(void)
{
    tile_release();
}

/* To whole blocks. */
static int64_t blocked(int64_t n)
{
    return sl_ceil_div(n, SL_AMX_SIDE) * SL_AMX_SIDE;
}

/* ---- operands ---- */

static int64_t packed_floats(int64_t lanes, int64_t k)
{
    return sl_packed_lanes(lanes, k) / 2;
}

static uint16_t *take_packed(float **next, int64_t lanes, int64_t k)
{
    return (uint16_t *)(void *)take(next, packed_floats(lanes, k));
}

/* Rows of a head: as lanes with the width as k, and with the width as lanes. */
static sl_lanes by_row(const elem *data, int64_t row)
{
    return (sl_lanes){ data, row, 1 };
}

static sl_lanes by_column(const elem *data, int64_t row)
{
    return (sl_lanes){ data, 1, row };
}

/* Lanes and their k, packed as sl_pack_lanes does. */
typedef struct packed {
    uint16_t *tiles;
    int64_t lanes, steps;
} packed;

static packed packed_as(uint16_t *tiles, int64_t lanes, int64_t k)
{
    return (packed){ tiles, lanes, sl_ceil_div(k, SL_TILE_K) };
}

/* Whether a panel holds two tiles per step. */
static bool is_full(packed x, int64_t lane)
{
    return x.lanes - lane > SL_TILE_SIDE;
}

/* The tiles of a step of the panel that begins with `lane`. */
static uint16_t *panel_at(packed x, int64_t lane, int64_t step)
{
    return x.tiles + (lane / SL_AMX_SIDE * 2 * x.steps + step * (is_full(x, lane) ? 2 : 1)) * SL_TILE_ELEMENTS;
}

/* The block of a's lanes from i and b's from j over steps [first, end), written to c or added to it, whole tiles. */
static void multiply_block(packed a, int64_t i, packed b, int64_t j, int64_t first, int64_t end, bool add, float *c,
                           int64_t row)
{
    sl_block_multiply(panel_at(a, i, first), panel_at(b, j, first), end - first, is_full(a, i), is_full(b, j),
                      add ? c : NULL, row, c, row);
}

#if defined(SL_ISA_avx512)
/* bf16 in the upper halves, with the bits of convert.h. */
SL_INLINE __m512i rounded_high(sl_v16 x)
{
    __m512i b = _mm512_castps_si512(x);
    __m512i tie = _mm512_and_si512(_mm512_srli_epi32(b, 16), _mm512_set1_epi32(1));
    __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(b, _mm512_set1_epi32(0x7fff)), tie);
    return _mm512_mask_or_epi32(rounded, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), b, _mm512_set1_epi32(0x400000));
}
#endif

/* Two rows of sixteen floats rounded and interleaved: a row of a right operand. */
SL_INLINE void round_pair(uint16_t *to, sl_v16 even, sl_v16 odd)
{
#if defined(SL_ISA_avx512)
    __m512i low = _mm512_srli_epi32(rounded_high(even), 16);
    _mm512_storeu_si512(to, _mm512_mask_blend_epi16(0xaaaaaaaau, low, rounded_high(odd)));
#else
    uint16_t rows[2][SL_LANES];
    bf16_store(rows[0], even);
    bf16_store(rows[1], odd);
    for (int i = 0; i < 2 * SL_LANES; i++) to[i] = rows[i % 2][i / 2];
#endif
}

/* ---- what queries see ---- */

/* Where the keys of a tile end that any of `count` queries sees, the first of which is the tile's query `q`; may be
 * negative. */
static int64_t seen_by(const attention *t, int64_t q, int64_t count, int64_t keys, sight s)
{
    return t->causal ? sl_least(keys, q + count - s.past) : keys;
}

/* The first block of keys of which the panel of queries from q on sees any; it may lie behind the tile. */
static int64_t block_from(sight s, int64_t q)
{
    return unseen(s, q) > 0 ? unseen(s, q) / SL_AMX_SIDE * SL_AMX_SIDE : 0;
}

/* Sixteen queries: keys after a query get the score -infinity. `past` is of the sixteen. */
static void hide_future(float *column, int64_t row, int64_t keys, int64_t past)
{
    static const float lane[SL_LANES] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 };
    for (int64_t j = past < 1 ? 1 - past : 0; j < keys; j++) { /* seen from the lane past + j on */
        sl_v16 seen = v16_sub(v16_load(lane), v16_set1((float)(past + j) - 0.5f));
        v16_store(column + j * row, v16_select_gt0(seen, v16_load(column + j * row), v16_set1(-INFINITY)));
    }
}

/* The same of keys before the first that a query sees; query `q` of the tile is the first of the sixteen, and the column
 * begins with the tile's key `first`. */
static void hide_past(float *column, int64_t row, int64_t keys, sight s, int64_t q, int64_t first)
{
    float hidden[SL_LANES];
    for (int64_t i = 0; i < SL_LANES; i++) {
        int64_t count = unseen(s, q + i) - first;
        hidden[i] = (float)(count < 0 ? 0 : sl_least(count, keys)) - 0.5f;
    }
    int64_t most = unseen(s, q + SL_LANES - 1) - first;
    for (int64_t j = 0; j < sl_least(keys, most); j++) {
        sl_v16 seen = v16_sub(v16_set1((float)j), v16_load(hidden));
        v16_store(column + j * row, v16_select_gt0(seen, v16_load(column + j * row), v16_set1(-INFINITY)));
    }
}

/* Sixteen queries, `keys` keys from the tile's key `first` on: scores are capped, and hidden where a query does not see
 * the key. */
static void limit_column(const attention *t, float *column, int64_t keys, sight s, int64_t q, int64_t first)
{
    if (t->softcap > 0.0f) cap_column(t, column, SL_AMX_SIDE, keys);
    if (t->causal) hide_future(column, SL_AMX_SIDE, keys, s.past + first - q);
    if (t->bounded) hide_past(column, SL_AMX_SIDE, keys, s, q, first);
}

/* Sixteen queries at a time: [width, queries] becomes rows of an operand. */
static void store_turned(const attention *t, float *turned, elem *to, int64_t to_row, const float *from,
                         int64_t from_row, int64_t queries)
{
    int64_t wide = padded(t->width);
    for (int64_t q = 0; q < queries; q += SL_LANES) {
        int64_t rows = sl_least(queries - q, SL_LANES);
        KI(transpose_copy)(turned, wide, from + q, from_row, t->width, rows);
        store_rows(to + q * to_row, to_row, turned, wide, rows, t->width);
    }
}

/* ---- forward ---- */

typedef struct forward_tile {
    uint16_t *query;       /* right: lanes are queries, k the width */
    uint16_t *key, *value; /* left: k by keys, v by the width */
    uint16_t *probability; /* of a panel, right: lanes are queries, k keys */
    float *scores;         /* of a panel: [keys, 32] */
    float *sums;           /* v^T p: [width, row] */
    float *turned;         /* sixteen rows of the output */
    int64_t row;
    running run;
} forward_tile;

static int64_t forward_floats(const attention *t)
{
    int64_t queries = t->tile_queries, keys = t->tile_keys, row = blocked(queries);
    return packed_floats(queries, t->width) + packed_floats(keys, t->width) + packed_floats(t->width, keys) +
           packed_floats(SL_AMX_SIDE, keys) + blocked(keys) * SL_AMX_SIDE + blocked(t->width) * row +
           SL_LANES * padded(t->width) + 3 * padded(queries);
}

static forward_tile lay_forward(const attention *t, float *scratch)
{
    int64_t queries = t->tile_queries, keys = t->tile_keys;
    forward_tile f = { .row = blocked(queries) };
    f.query = take_packed(&scratch, queries, t->width);
    f.key = take_packed(&scratch, keys, t->width);
    f.value = take_packed(&scratch, t->width, keys);
    f.probability = take_packed(&scratch, SL_AMX_SIDE, keys);
    f.scores = take(&scratch, blocked(keys) * SL_AMX_SIDE);
    f.sums = take(&scratch, blocked(t->width) * f.row);
    f.turned = take(&scratch, SL_LANES * padded(t->width));
    f.run.max = take(&scratch, queries);
    f.run.total = take(&scratch, queries);
    f.run.shrink = take(&scratch, queries);
    return f;
}

static void start_forward(const attention *t, const forward_tile *f, const elem *q, int64_t queries)
{
    sl_pack_lanes(f->query, by_row(q, t->q.row), queries, t->width, true);
}

/* Sixteen queries: exp(score * factor + base) of the keys from the block at `first` on, rounded into column `half` of
 * the panel p, with zeros behind them to the end of p. Returns the sum of what was rounded. */
static sl_v16 raise_column(packed p, int half, const float *column, int64_t first, int64_t keys, sl_v16 factor,
                           sl_v16 base)
{
    const sl_v16 zero = v16_set1(0.0f);
    sl_v16 sum = zero;
    for (int64_t step = first / SL_TILE_K; step < p.steps; step++) {
        uint16_t *tile = panel_at(p, 0, step) + half * SL_TILE_ELEMENTS;
        for (int64_t j = step * SL_TILE_K; j < (step + 1) * SL_TILE_K; j += 2, tile += SL_TILE_K) {
            sl_v16 even = zero, odd = zero;
            if (j < keys) even = v16_exp(v16_fma(v16_load(column + j * SL_AMX_SIDE), factor, base));
            if (j + 1 < keys) odd = v16_exp(v16_fma(v16_load(column + (j + 1) * SL_AMX_SIDE), factor, base));
            sum = v16_add(v16_add(sum, even), odd);
            round_pair(tile, even, odd);
        }
    }
    return sum;
}

/* Sixteen queries: scores of the keys they see, none before `from`, become probabilities; max and total take the keys
 * in, and earlier sums shrink. */
static void soften_panel(const attention *t, const forward_tile *f, packed p, int half, int64_t query, int64_t from,
                         int64_t keys, bool first)
{
    const running *r = &f->run;
    const float *column = f->scores + half * SL_LANES;
    sl_v16 factor = v16_set1(t->factor), before = v16_load(r->max + query);
    sl_v16 max = largest_down(column + from * SL_AMX_SIDE, SL_AMX_SIDE, keys - from, before);
    sl_v16 base = v16_neg(v16_mul(max, factor)), sum = raise_column(p, half, column, from, keys, factor, base);
    take_block(r, query, factor, before, max, base, sum, first);
    if (!first) scale_column(f->sums + query, f->row, t->width, r->shrink + query);
}

/* The panel of queries from q on, which sees keys [from, seen) of the tile. */
static void forward_panel(const attention *t, const forward_tile *f, int64_t keys, int64_t queries, int64_t q,
                          int64_t from, int64_t seen, sight s)
{
    packed key = packed_as(f->key, keys, t->width), query = packed_as(f->query, queries, t->width);
    packed value = packed_as(f->value, t->width, keys), p = packed_as(f->probability, queries - q, seen);
    bool first = unseen(s, q) >= 0;
    for (int64_t i = from; i < seen; i += SL_AMX_SIDE)
        multiply_block(key, i, query, q, 0, query.steps, false, f->scores + i * SL_AMX_SIDE, SL_AMX_SIDE);
    for (int half = 0; half <= is_full(p, 0); half++) {
        int64_t first_query = q + half * SL_LANES, own = seen_by(t, first_query, SL_LANES, seen, s);
        limit_column(t, f->scores + from * SL_AMX_SIDE + half * SL_LANES, own - from, s, first_query, from);
        soften_panel(t, f, p, half, first_query, from, own, first);
    }
    for (int64_t d = 0; d < t->width; d += SL_AMX_SIDE)
        multiply_block(value, d, p, 0, from / SL_TILE_K, p.steps, !first, f->sums + d * f->row + q, f->row);
}

static void forward_keys(const attention *t, const forward_tile *f, const elem *k, const elem *v, int64_t keys,
                         int64_t queries, sight s)
{
    sl_pack_lanes(f->key, by_row(k, t->k.row), keys, t->width, false);
    sl_pack_lanes(f->value, by_column(v, t->v.row), t->width, keys, false);
    for (int64_t q = 0; q < queries; q += SL_AMX_SIDE) {
        int64_t from = block_from(s, q), seen = seen_by(t, q, SL_AMX_SIDE, keys, s);
        if (seen > from) forward_panel(t, f, keys, queries, q, from, seen, s);
    }
}

static void finish_forward(const attention *t, const forward_tile *f, elem *out, int64_t queries)
{
    for (int64_t q = 0; q < queries; q += SL_LANES) divide_column(f->sums + q, f->row, t->width, f->run.total + q);
    store_turned(t, f->turned, out, t->out.row, f->sums, f->row, queries);
}

/* ---- backward ---- */

typedef struct backward_tile {
    /* of the block of keys: left operands */
    uint16_t *key, *value; /* lanes are keys, k the width */
    uint16_t *key_turned;  /* lanes are the width, k keys */
    float *dk, *dv;        /* [keys, wide] */
    int64_t wide;
    /* of the tile of queries: right operands */
    uint16_t *query, *dout;               /* lanes are queries, k the width */
    uint16_t *query_turned, *dout_turned; /* lanes are the width, k queries */
    /* of both */
    float *scores, *dp;         /* of a block: [32, 32] */
    uint16_t *probability_left; /* p: lanes are keys, k queries */
    uint16_t *left, *right;     /* ds: lanes are keys, k queries, and the other way round */
    int64_t row;
    float *turned;      /* sixteen rows of dq */
    float *lse, *delta; /* per query; delta = dout . out */
    float *dq;          /* [width, row] of one tile of queries or of more */
} backward_tile;

#define BLOCK_FLOATS (SL_AMX_SIDE * SL_AMX_SIDE)

static int64_t dq_floats(const attention *t)
{
    return blocked(t->width) * blocked(t->tile_queries);
}

/* Without dq. */
static int64_t backward_floats(const attention *t)
{
    int64_t queries = t->tile_queries, keys = t->tile_keys, wide = blocked(t->width);
    return 2 * packed_floats(keys, t->width) + packed_floats(t->width, keys) + 2 * blocked(keys) * wide +
           2 * packed_floats(queries, t->width) + 2 * packed_floats(t->width, queries) + 2 * BLOCK_FLOATS +
           2 * packed_floats(keys, queries) + packed_floats(queries, keys) + SL_LANES * padded(t->width) +
           2 * padded(queries);
}

static backward_tile lay_backward(const attention *t, float *scratch)
{
    int64_t queries = t->tile_queries, keys = t->tile_keys;
    backward_tile b = { .wide = blocked(t->width), .row = blocked(queries) };
    b.key = take_packed(&scratch, keys, t->width);
    b.value = take_packed(&scratch, keys, t->width);
    b.key_turned = take_packed(&scratch, t->width, keys);
    b.dk = take(&scratch, blocked(keys) * b.wide);
    b.dv = take(&scratch, blocked(keys) * b.wide);
    b.query = take_packed(&scratch, queries, t->width);
    b.dout = take_packed(&scratch, queries, t->width);
    b.query_turned = take_packed(&scratch, t->width, queries);
    b.dout_turned = take_packed(&scratch, t->width, queries);
    b.scores = take(&scratch, BLOCK_FLOATS);
    b.dp = take(&scratch, BLOCK_FLOATS);
    b.probability_left = take_packed(&scratch, keys, queries);
    b.left = take_packed(&scratch, keys, queries);
    b.right = take_packed(&scratch, queries, keys);
    b.turned = take(&scratch, SL_LANES * padded(t->width));
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
    sl_pack_lanes(b->query, by_row(q, t->q.row), queries, t->width, true);
    sl_pack_lanes(b->dout, by_row(dout, t->dout.row), queries, t->width, true);
    sl_pack_lanes(b->query_turned, by_column(q, t->q.row), t->width, queries, true);
    sl_pack_lanes(b->dout_turned, by_column(dout, t->dout.row), t->width, queries, true);
    load_sums(t, b->lse, b->delta, batch, head, first, queries);
}

static void load_keys(const attention *t, const backward_tile *b, int64_t row, int64_t key_head, int64_t keys)
{
    const elem *k = head_at(t->k, row, key_head, t->width), *v = head_at(t->v, row, key_head, t->width);
    sl_pack_lanes(b->key, by_row(k, t->k.row), keys, t->width, false);
    sl_pack_lanes(b->value, by_row(v, t->v.row), keys, t->width, false);
    sl_pack_lanes(b->key_turned, by_column(k, t->k.row), t->width, keys, false);
}

/* Where the operands made of a block lie: rows of keys, two tiles of sixteen, and pairs of keys. */
typedef struct block_operands {
    uint16_t *p, *left, *right;
    int64_t left_rows; /* 16: the block has no second tile of keys */
} block_operands;

/* Sixteen queries of a block, `keys` keys: p = exp(score * scale - lse) and ds = p (dp - delta) scale, as
 * slope_column and slope_capped_column have them, rounded into the operands; keys that are not there get zeros. */
SL_INLINE void slope_half(const attention *t, const backward_tile *b, block_operands o, int half, const int64_t keys,
                          const bool capped, const float *lse, const float *delta)
{
    const sl_v16 factor = v16_set1(t->scale), base = v16_neg(v16_load(lse)), shift = v16_load(delta);
    const sl_v16 inverse_cap = v16_set1(capped ? 1.0f / t->softcap : 0.0f);
    const float *score = b->scores + half * SL_LANES, *dp = b->dp + half * SL_LANES;
    for (int64_t j = 0; j < SL_TILE_K; j += 2) {
        sl_v16 p[2], ds[2];
        for (int u = 0; u < 2; u++) {
            p[u] = ds[u] = v16_set1(0.0f);
            if (j + u >= keys) continue;
            sl_v16 s = v16_load(score + (j + u) * SL_AMX_SIDE);
            p[u] = v16_exp(capped ? v16_add(s, base) : v16_fma(s, factor, base));
            ds[u] = v16_mul(v16_mul(p[u], v16_sub(v16_load(dp + (j + u) * SL_AMX_SIDE), shift)), factor);
            if (capped) ds[u] = v16_mul(ds[u], cap_slope(s, inverse_cap));
        }
        round_pair(o.right + half * SL_TILE_ELEMENTS + j / 2 * SL_TILE_K, ds[0], ds[1]);
        for (int u = 0; u < 2 && j < o.left_rows; u++) {
            bf16_store(o.p + (j + u) * SL_TILE_K + half * SL_LANES, p[u]);
            bf16_store(o.left + (j + u) * SL_TILE_K + half * SL_LANES, ds[u]);
        }
    }
}

/* Queries that are not there. */
static void clear_second_half(block_operands o)
{
    for (int64_t j = 0; j < o.left_rows; j++) {
        memset(o.p + j * SL_TILE_K + SL_LANES, 0, SL_LANES * sizeof *o.p);
        memset(o.left + j * SL_TILE_K + SL_LANES, 0, SL_LANES * sizeof *o.left);
    }
}

/* p and ds of the keys from i and the queries from q on. */
static void slope_block(const attention *t, const backward_tile *b, int64_t keys, int64_t queries, int64_t i, int64_t q,
                        sight s)
{
    packed key = packed_as(b->key, keys, t->width), query = packed_as(b->query, queries, t->width);
    packed value = packed_as(b->value, keys, t->width), dout = packed_as(b->dout, queries, t->width);
    packed left = packed_as(b->left, keys, queries), right = packed_as(b->right, queries, keys);
    packed p = packed_as(b->probability_left, keys, queries);
    block_operands o = { panel_at(p, i, q / SL_TILE_K), panel_at(left, i, q / SL_TILE_K),
                         panel_at(right, q, i / SL_TILE_K), is_full(left, i) ? SL_AMX_SIDE : SL_TILE_SIDE };
    int64_t here = sl_least(keys - i, SL_AMX_SIDE);
    multiply_block(key, i, query, q, 0, query.steps, false, b->scores, SL_AMX_SIDE);
    multiply_block(value, i, dout, q, 0, dout.steps, false, b->dp, SL_AMX_SIDE);
    for (int half = 0; half <= is_full(right, q); half++) {
        int64_t first = q + half * SL_LANES;
        limit_column(t, b->scores + half * SL_LANES, here, s, first, i);
        if (t->softcap > 0.0f)
            slope_half(t, b, o, half, here, true, b->lse + first, b->delta + first);
        else if (here == SL_AMX_SIDE)
            slope_half(t, b, o, half, SL_AMX_SIDE, false, b->lse + first, b->delta + first);
        else
            slope_half(t, b, o, half, here, false, b->lse + first, b->delta + first);
    }
    if (!is_full(right, q)) clear_second_half(o);
}

static void slopes(const attention *t, const backward_tile *b, int64_t keys, int64_t queries, sight s)
{
    for (int64_t q = 0; q < queries; q += SL_AMX_SIDE)
        for (int64_t i = block_from(s, q); i < seen_by(t, q, SL_AMX_SIDE, keys, s); i += SL_AMX_SIDE)
            slope_block(t, b, keys, queries, i, q, s);
}

/* The tile's part of dq^T[width, queries] = k^T ds, which the first block that a panel sees starts. */
static void add_dq(const attention *t, const backward_tile *b, float *dq, int64_t keys, int64_t queries, sight s)
{
    packed key = packed_as(b->key_turned, t->width, keys), ds = packed_as(b->right, queries, keys);
    for (int64_t q = 0; q < queries; q += SL_AMX_SIDE) {
        int64_t from = block_from(s, q), seen = seen_by(t, q, SL_AMX_SIDE, keys, s);
        for (int64_t d = 0; seen > from && d < t->width; d += SL_AMX_SIDE)
            multiply_block(key, d, ds, q, from / SL_TILE_K, sl_ceil_div(seen, SL_TILE_K), unseen(s, q) < 0,
                           dq + d * b->row + q, b->row);
    }
}

static void store_dq(const attention *t, const backward_tile *b, elem *to, const float *dq, int64_t queries)
{
    store_turned(t, b->turned, to, t->dq.row, dq, b->row, queries);
}

/* Its part of dk = ds q and dv = p dout[keys, width], which start here when `fresh`. */
static void add_dk_dv(const attention *t, const backward_tile *b, int64_t keys, int64_t queries, sight s, bool fresh)
{
    packed p = packed_as(b->probability_left, keys, queries), dout = packed_as(b->dout_turned, t->width, queries);
    packed ds = packed_as(b->left, keys, queries), query = packed_as(b->query_turned, t->width, queries);
    for (int64_t i = 0; i < keys; i += SL_AMX_SIDE) {
        int64_t step = 0; /* the first whose queries see a key, and the end of those that do */
        while (step < p.steps && seen_by(t, step * SL_TILE_K, SL_AMX_SIDE, keys, s) <= i) step++;
        int64_t end = step;
        while (end < p.steps && block_from(s, end * SL_TILE_K) <= i) end++;
        for (int64_t d = 0; (fresh || step < end) && d < t->width; d += SL_AMX_SIDE) {
            multiply_block(p, i, dout, d, step, end, !fresh, b->dv + i * b->wide + d, b->wide);
            multiply_block(ds, i, query, d, step, end, !fresh, b->dk + i * b->wide + d, b->wide);
        }
    }
}

#include "backend/cpu/kernels/attention_walk.h"

void AMX(attention)(const sl_kernel_args *a)
{
    run_forward(a);
}

void AMX(attention_grad)(const sl_kernel_args *a)
{
    run_backward(a);
}

#endif
