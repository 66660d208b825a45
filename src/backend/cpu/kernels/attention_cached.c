/* attention_cached.c: attention of single tokens to the keys and values that their sequences have left behind.
 *
 * One task per row and key head. Keys of a cache lie with sixteen places of one dimension side by side, so that sixteen
 * scores are sixteen lanes and each is one chain over the head's width; the weighted sum of values is one chain over the
 * keys. Keys are taken in the blocks that attention.c takes them in, counted from position 0, and with its arithmetic: for
 * heads up to 1,024 wide the results are its bits, whatever else is in the call. */
#include "backend/cpu/kernels/elem.h"
#include "backend/cpu/kernels/vmath.h"

#define KEY_BLOCK 128 /* as attention.c's */
#define TOGETHER  4   /* query heads of a group that share a walk over the keys */

typedef struct cached_job {
    const elem *qkv;
    const int32_t *positions, *slots;
    elem *out, *cache;
    int64_t rows, heads, key_heads, width, shared; /* shared: query heads of a key head */
    int64_t slot_count, kept, window;
    float scale, softcap;
} cached_job;

/* What a query head of the task has summed. In scratch. */
typedef struct cached_head {
    float max, total, shrink;
    float scores[KEY_BLOCK];
    float sums[SL_MAX_HEAD_WIDTH];
} cached_head;

_Static_assert(TOGETHER *(sizeof(cached_head) + SL_MAX_HEAD_WIDTH * sizeof(float)) <= SL_SCRATCH_BYTES,
               "heads and queries of a task fit in a worker's scratch");
_Static_assert(SL_CACHE_KEYS == SL_LANES && KEY_BLOCK % SL_LANES == 0, "a block of the cache is a vector");

/* Keys of a slot's head, its values behind them. */
SL_INLINE elem *keys_of(const cached_job *j, int64_t slot, int64_t head)
{
    return j->cache + (slot * j->key_heads + head) * 2 * j->kept * j->width;
}

SL_INLINE elem *values_of(const cached_job *j, int64_t slot, int64_t head)
{
    return keys_of(j, slot, head) + j->kept * j->width;
}

/* A row that names no slot or no position has no result. */
static bool is_there(const cached_job *j, int64_t row)
{
    return j->slots[row] >= 0 && j->slots[row] < j->slot_count && j->positions[row] >= 0;
}

static void keep_row(void *context, int64_t row, void *scratch)
{
    const cached_job *j = context;
    const elem *key = j->qkv + row * (j->heads + 2 * j->key_heads) * j->width + j->heads * j->width;
    const elem *value = key + j->key_heads * j->width;
    (void)scratch;
    if (!is_there(j, row)) return;
    int64_t place = j->positions[row] % j->kept, block = place / SL_CACHE_KEYS, lane = place % SL_CACHE_KEYS;
    for (int64_t h = 0; h < j->key_heads; h++, key += j->width, value += j->width) {
        elem *keys = keys_of(j, j->slots[row], h) + block * SL_CACHE_KEYS * j->width + lane;
        for (int64_t d = 0; d < j->width; d++) keys[d * SL_CACHE_KEYS] = key[d];
        memcpy(values_of(j, j->slots[row], h) + place * j->width, value, (size_t)j->width * sizeof *value);
    }
}

/* ---- one query head and one block of keys ---- */

/* Scores of places [first, first + 16): lanes outside [low, high] are -infinity. */
SL_INLINE sl_v16 sixteen_scores(const cached_job *j, const float *query, const elem *keys, int64_t first, int64_t low,
                                int64_t high)
{
    sl_v16 sum = v16_set1(0.0f);
    const elem *block = keys + first % j->kept * j->width;
    for (int64_t d = 0; d < j->width; d++) sum = v16_fma(e16_load(block + d * SL_CACHE_KEYS), v16_set1(query[d]), sum);
    if (j->softcap > 0) sum = v16_softcap(v16_mul(sum, v16_set1(j->scale)), j->softcap);
    if (first >= low && first + SL_LANES - 1 <= high) return sum;
    float lanes[SL_LANES];
    v16_store(lanes, sum);
    for (int64_t i = 0; i < SL_LANES; i++)
        if (first + i < low || first + i > high) lanes[i] = -INFINITY;
    return v16_load(lanes);
}

SL_INLINE float one_exp(float x)
{
    float lanes[SL_LANES];
    v16_store(lanes, v16_exp(v16_set1(x)));
    return lanes[0];
}

/* Scores become exponentials under the new maximum; the head's maximum, total and shrink take the block in. */
static void soften(cached_head *h, float factor, int64_t count, bool first)
{
    sl_v16 most = v16_set1(h->max);
    for (int64_t i = 0; i < count; i += SL_LANES) most = v16_max(v16_load(h->scores + i), most);
    float before = h->max, max = v16_max_lane(most), base = -(max * factor), sum = 0;
    for (int64_t i = 0; i < count; i += SL_LANES)
        v16_store(h->scores + i, v16_exp(v16_fma(v16_load(h->scores + i), v16_set1(factor), v16_set1(base))));
    for (int64_t i = 0; i < count; i++) sum += h->scores[i];
    h->max = max;
    h->shrink = first ? 1.0f : one_exp(fmaf(before, factor, base));
    h->total = first ? sum : fmaf(h->total, h->shrink, sum);
}

/* sums = shrink * sums + the block's values by their weights, a chain over the places in order for each column. */
SL_INLINE void add_values(const cached_job *j, cached_head *h, const elem *values, int64_t begin, int64_t end,
                          int64_t low, int64_t high, bool first)
{
    enum { VECTORS = 4 };
    for (int64_t d = 0; d < j->width; d += VECTORS * SL_LANES) {
        sl_v16 sum[VECTORS];
        int64_t left = j->width - d, vectors = sl_ceil_div(sl_least(left, VECTORS * SL_LANES), SL_LANES);
        for (int64_t v = 0; v < vectors; v++)
            sum[v] = first ? v16_set1(0.0f) : v16_mul(v16_load(h->sums + d + v * SL_LANES), v16_set1(h->shrink));
        for (int64_t p = begin > low ? begin : low; p < end && p <= high; p++) {
            const elem *value = values + p % j->kept * j->width + d;
            sl_v16 weight = v16_set1(h->scores[p - begin]);
            if (left >= VECTORS * SL_LANES)
                for (int v = 0; v < VECTORS; v++) sum[v] = v16_fma(e16_load(value + v * SL_LANES), weight, sum[v]);
            else
                for (int64_t v = 0; v < vectors; v++)
                    sum[v] = v16_fma(e16_get(value + v * SL_LANES, left - v * SL_LANES, 0.0f), weight, sum[v]);
        }
        for (int64_t v = 0; v < vectors; v++) v16_store(h->sums + d + v * SL_LANES, sum[v]);
    }
}

/* ---- a row ---- */

typedef struct cached_query {
    int64_t row, slot, key_head;
    int64_t low, high; /* positions that it sees */
    const float *queries;
} cached_query;

static void walk_keys(const cached_job *j, const cached_query *q, cached_head *heads, int64_t count)
{
    const elem *keys = keys_of(j, q->slot, q->key_head), *values = values_of(j, q->slot, q->key_head);
    const float factor = j->softcap > 0 ? 1.0f : j->scale;
    int64_t start = q->low / KEY_BLOCK * KEY_BLOCK;
    for (int64_t i = 0; i < count; i++) heads[i].max = -INFINITY;
    for (int64_t begin = start; begin <= q->high; begin += KEY_BLOCK) {
        int64_t end = sl_least(begin + KEY_BLOCK, (q->high / SL_LANES + 1) * SL_LANES);
        for (int64_t i = 0; i < count; i++) {
            for (int64_t p = begin; p < end; p += SL_LANES)
                v16_store(heads[i].scores + (p - begin),
                          p + SL_LANES > q->low ? sixteen_scores(j, q->queries + i * j->width, keys, p, q->low, q->high)
                                                : v16_set1(-INFINITY));
            soften(&heads[i], factor, end - begin, begin == start);
            add_values(j, &heads[i], values, begin, end, q->low, q->high, begin == start);
        }
    }
}

static void finish_head(const cached_job *j, const cached_head *h, elem *out)
{
    for (int64_t d = 0; d < j->width; d += SL_LANES)
        e16_put(out + d, v16_div(v16_load(h->sums + d), v16_set1(h->total)), j->width - d);
}

static void attend_row(void *context, int64_t task, void *scratch)
{
    const cached_job *j = context;
    cached_query q = { .row = task / j->key_heads, .key_head = task % j->key_heads };
    cached_head *heads = scratch;
    float *queries = (float *)(void *)(heads + TOGETHER);
    int64_t first = q.key_head * j->shared;
    const elem *from = j->qkv + q.row * (j->heads + 2 * j->key_heads) * j->width;
    elem *out = j->out + q.row * j->heads * j->width;
    if (!is_there(j, q.row)) {
        for (int64_t i = first * j->width; i < (first + j->shared) * j->width; i++) e1_put(out + i, NAN);
        return;
    }
    q.slot = j->slots[q.row];
    q.high = j->positions[q.row];
    q.low = j->window > 0 && q.high >= j->window ? q.high - j->window + 1 : 0;
    q.queries = queries;
    for (int64_t done = 0; done < j->shared; done += TOGETHER) {
        int64_t count = sl_least(TOGETHER, j->shared - done), head = first + done;
        for (int64_t i = 0; i < count * j->width; i++) queries[i] = e1_get(from + head * j->width + i);
        walk_keys(j, &q, heads, count);
        for (int64_t i = 0; i < count; i++) finish_head(j, &heads[i], out + (head + i) * j->width);
    }
}

void K(attention_cached)(const sl_kernel_args *a)
{
    cached_job j = { .qkv = a->in[0].data,
                     .positions = a->in[1].data,
                     .slots = a->in[2].data,
                     .out = a->out[0].data,
                     .cache = a->out[1].data,
                     .rows = a->in[0].shape->dim[0],
                     .heads = a->attrs->cached.heads,
                     .key_heads = a->attrs->cached.kv_heads,
                     .width = a->attrs->cached.head_width,
                     .slot_count = a->attrs->cached.slots,
                     .kept = a->attrs->cached.kept,
                     .window = a->attrs->cached.window,
                     .scale = a->attrs->cached.scale,
                     .softcap = a->attrs->cached.softcap };
    j.shared = j.heads / j.key_heads;
    sl_pool_run(a->pool, keep_row, &j, j.rows);
    sl_pool_run(a->pool, attend_row, &j, j.rows * j.key_heads);
}
