/* amx_attention.c: attention of bf16 operands with its products on AMX tiles.
 *
 * The tiles of attention and their order are those of attention.c; scores lie [keys, queries] in f32, and probabilities
 * and slopes are rounded to bf16 as they become operands. Whatever a product reads is packed so that the layout in
 * memory needs a plain copy or one pass of transposes (amx_pack.h). */
#define SL_ELEM_bf16
#include "backend/cpu/kernels/amx.h"

#if defined(SL_HAVE_AMX) || defined(SL_AMX_EMULATED)

#include "backend/cpu/kernels/amx_block.h"
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

/* Where the tile of lanes [lane, lane + 16) of a packed operand begins, and how far its next 32 k are. */
static uint16_t *tile_of(uint16_t *packed, int64_t lane, int64_t lanes, int64_t k, int64_t *next)
{
    int64_t panel = lane / SL_AMX_SIDE, steps = sl_ceil_div(k, SL_TILE_K);
    *next = lanes - panel * SL_AMX_SIDE > SL_TILE_SIDE ? 2 * SL_TILE_ELEMENTS : SL_TILE_ELEMENTS;
    return packed + (2 * panel * steps + lane / SL_TILE_SIDE % 2) * SL_TILE_ELEMENTS;
}

/* Floats in rows of k, rounded into a left operand. */
static void round_rows(uint16_t *packed, const float *src, int64_t row, int64_t lanes, int64_t k)
{
    for (int64_t lane = 0; lane < lanes; lane += SL_TILE_SIDE) {
        int64_t next, here = sl_least(lanes - lane, SL_TILE_SIDE);
        uint16_t *tile = tile_of(packed, lane, lanes, k, &next);
        for (int64_t first = 0; first < k; first += SL_TILE_K, tile += next) {
            for (int64_t i = 0; i < here; i++)
                for (int64_t j = 0; j < SL_TILE_K; j += SL_LANES) {
                    int64_t left = k - first - j;
                    sl_v16 x = left > 0 ? v16_get(src + (lane + i) * row + first + j, left, 0.0f) : v16_set1(0.0f);
                    bf16_store(tile + i * SL_TILE_K + j, x);
                }
            memset(tile + here * SL_TILE_K, 0, (size_t)((SL_TILE_SIDE - here) * SL_TILE_K) * sizeof *tile);
        }
    }
}

/* Two rows of sixteen floats rounded and interleaved. */
SL_INLINE void round_pair(uint16_t *to, sl_v16 even, sl_v16 odd)
{
#if defined(SL_ISA_avx512)
    __m512i low = _mm512_cvtepu16_epi32(v16_to_bf16(even)), high = _mm512_cvtepu16_epi32(v16_to_bf16(odd));
    _mm512_storeu_si512(to, _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
#else
    uint16_t rows[2][SL_LANES];
    bf16_store(rows[0], even);
    bf16_store(rows[1], odd);
    for (int i = 0; i < 2 * SL_LANES; i++) to[i] = rows[i % 2][i / 2];
#endif
}

/* Floats in rows of lanes (whole vectors of them exist), rounded into a right operand. */
static void round_columns(uint16_t *packed, const float *src, int64_t row, int64_t lanes, int64_t k)
{
    const sl_v16 zero = v16_set1(0.0f);
    for (int64_t lane = 0; lane < lanes; lane += SL_TILE_SIDE) {
        int64_t next;
        uint16_t *tile = tile_of(packed, lane, lanes, k, &next);
        for (int64_t first = 0; first < k; first += SL_TILE_K, tile += next)
            for (int64_t p = 0; p < SL_TILE_SIDE; p++) {
                int64_t at = first + 2 * p;
                const float *x = src + at * row + lane;
                round_pair(tile + p * SL_TILE_K, at < k ? v16_load(x) : zero, at + 1 < k ? v16_load(x + row) : zero);
            }
    }
}

/* c[m, n] = a b, or c + a b; whole tiles of c are written. */
static void multiply(const uint16_t *a, const uint16_t *b, int64_t m, int64_t n, int64_t k, bool add, float *c,
                     int64_t row)
{
    int64_t steps = sl_ceil_div(k, SL_TILE_K), panel = 2 * steps * SL_TILE_ELEMENTS;
    for (int64_t i = 0; i < m; i += SL_AMX_SIDE)
        for (int64_t j = 0; j < n; j += SL_AMX_SIDE) {
            float *block = c + i * row + j;
            sl_block_multiply(a + i / SL_AMX_SIDE * panel, b + j / SL_AMX_SIDE * panel, steps, m - i > SL_TILE_SIDE,
                              n - j > SL_TILE_SIDE, add ? block : NULL, row, block, row);
        }
}

/* Keys after a query get the score -infinity. `past`: how many positions the first key lies after the first query. */
static void hide_future(float *scores, int64_t row, int64_t keys, int64_t queries, int64_t past)
{
    for (int64_t j = past < 0 ? -past : 0; j < keys; j++)
        for (int64_t i = 0; i < sl_least(past + j, padded(queries)); i++) scores[j * row + i] = -INFINITY;
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
    uint16_t *probability; /* right: lanes are queries, k keys */
    float *scores;         /* [keys, row], then the probabilities */
    float *sums;           /* v^T p: [width, row] */
    float *turned;         /* sixteen rows of the output */
    int64_t row;
    running run;
} forward_tile;

static int64_t forward_floats(const attention *t)
{
    int64_t queries = t->tile_queries, keys = t->tile_keys, row = blocked(queries);
    return packed_floats(queries, t->width) + packed_floats(keys, t->width) + packed_floats(t->width, keys) +
           packed_floats(queries, keys) + blocked(keys) * row + blocked(t->width) * row + SL_LANES * padded(t->width) +
           3 * padded(queries);
}

static forward_tile lay_forward(const attention *t, float *scratch)
{
    int64_t queries = t->tile_queries, keys = t->tile_keys;
    forward_tile f = { .row = blocked(queries) };
    f.query = take_packed(&scratch, queries, t->width);
    f.key = take_packed(&scratch, keys, t->width);
    f.value = take_packed(&scratch, t->width, keys);
    f.probability = take_packed(&scratch, queries, keys);
    f.scores = take(&scratch, blocked(keys) * f.row);
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

static void forward_keys(const attention *t, const forward_tile *f, const elem *k, const elem *v, int64_t keys,
                         int64_t queries, int64_t past, bool first)
{
    sl_pack_lanes(f->key, by_row(k, t->k.row), keys, t->width, false);
    multiply(f->key, f->query, keys, queries, t->width, false, f->scores, f->row);
    if (t->causal) hide_future(f->scores, f->row, keys, queries, past);
    for (int64_t q = 0; q < queries; q += SL_LANES) {
        soften_column(&f->run, t->scale, f->scores + q, f->row, keys, q, first);
        if (!first) scale_column(f->sums + q, f->row, t->width, f->run.shrink + q);
    }
    round_columns(f->probability, f->scores, f->row, queries, keys);
    sl_pack_lanes(f->value, by_column(v, t->v.row), t->width, keys, false);
    multiply(f->value, f->probability, t->width, queries, keys, !first, f->sums, f->row);
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
    float *probability, *slope; /* [keys, row]: p; dp, then ds */
    int64_t row;
    uint16_t *left;     /* p or ds: lanes are keys, k queries */
    uint16_t *right;    /* ds: lanes are queries, k keys */
    float *turned;      /* sixteen rows of dq */
    float *lse, *delta; /* per query; delta = dout . out */
    float *dq;          /* [width, row] of one tile of queries or of more */
} backward_tile;

static int64_t dq_floats(const attention *t)
{
    return blocked(t->width) * blocked(t->tile_queries);
}

/* Without dq. */
static int64_t backward_floats(const attention *t)
{
    int64_t queries = t->tile_queries, keys = t->tile_keys, row = blocked(queries), wide = blocked(t->width);
    return 2 * packed_floats(keys, t->width) + packed_floats(t->width, keys) + 2 * blocked(keys) * wide +
           2 * packed_floats(queries, t->width) + 2 * packed_floats(t->width, queries) + 2 * blocked(keys) * row +
           packed_floats(keys, queries) + packed_floats(queries, keys) + SL_LANES * padded(t->width) +
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
    b.probability = take(&scratch, blocked(keys) * b.row);
    b.slope = take(&scratch, blocked(keys) * b.row);
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

/* p and ds of a tile keys x queries of one head. */
static void slopes(const attention *t, const backward_tile *b, int64_t keys, int64_t queries, int64_t past)
{
    multiply(b->key, b->query, keys, queries, t->width, false, b->probability, b->row);
    multiply(b->value, b->dout, keys, queries, t->width, false, b->slope, b->row);
    if (t->causal) hide_future(b->probability, b->row, keys, queries, past);
    for (int64_t q = 0; q < padded(queries); q += SL_LANES)
        slope_column(b->probability + q, b->slope + q, b->row, keys, t->scale, b->lse + q, b->delta + q);
}

/* The tile's part of dq^T[width, queries] = k^T ds, which `first`, the first block of keys, starts. */
static void add_dq(const attention *t, const backward_tile *b, float *dq, int64_t keys, int64_t queries, bool first)
{
    round_columns(b->right, b->slope, b->row, queries, keys);
    multiply(b->key_turned, b->right, t->width, queries, keys, !first, dq, b->row);
}

static void store_dq(const attention *t, const backward_tile *b, elem *to, const float *dq, int64_t queries)
{
    store_turned(t, b->turned, to, t->dq.row, dq, b->row, queries);
}

/* Its part of dk = ds q and dv = p dout[keys, width], which start here when `fresh`. */
static void add_dk_dv(const attention *t, const backward_tile *b, int64_t keys, int64_t queries, bool fresh)
{
    round_rows(b->left, b->probability, b->row, keys, queries);
    multiply(b->left, b->dout_turned, keys, t->width, queries, !fresh, b->dv, b->wide);
    round_rows(b->left, b->slope, b->row, keys, queries);
    multiply(b->left, b->query_turned, keys, t->width, queries, !fresh, b->dk, b->wide);
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
