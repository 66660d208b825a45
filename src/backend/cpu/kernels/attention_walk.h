/* attention_walk.h: the tasks of attention and the order in which they visit tiles. Included once, behind what it
 * calls:
 *
 *     enter_task, leave_task             around a task
 *     forward_tile, lay_forward          the buffers of a tile; forward_floats, what they take
 *     start_forward, forward_keys, finish_forward
 *     backward_tile, lay_backward        likewise; dk, dv[keys, wide] and dq are its sums
 *     dq_floats                          of the dq of one tile of queries
 *     load_keys, load_queries, slopes    the operands of a tile and its p and ds
 *     add_dk_dv, add_dq, store_dq
 *
 * Keys before the first that a tile's first query sees are passed over by whole blocks, which lie at multiples of their
 * length wherever a window or a document begins. All of a sight (attention.h) is monotonic, so that the blocks of a tile
 * and the tiles of a block are runs without holes.
 *
 * Forward: one task per (batch, head, tile of queries). Backward: either one task per (batch, key head), which owns dk
 * and dv of that head and dq of its query heads, or, where that is too few tasks or dq does not fit in scratch, two
 * walks: dk and dv by blocks of keys, dq by tiles of queries. A sum is the same chain in both. */

/* Where the block begins that holds the first key which `query`, the first of its tile, sees. */
static int64_t first_block(const attention *t, int64_t batch, int64_t query)
{
    return t->bounded ? first_seen(t, batch, query) / t->tile_keys * t->tile_keys : 0;
}

/* ---- forward ---- */

static void forward_task(void *context, int64_t number, void *scratch)
{
    const attention *t = context;
    forward_tile f = lay_forward(t, scratch);
    int64_t tiles = sl_ceil_div(t->queries, t->tile_queries);
    int64_t first_query = (tiles - 1 - number % tiles) * t->tile_queries; /* the longest come first */
    int64_t head = number / tiles % t->query_heads, batch = number / tiles / t->query_heads;
    int64_t key_head = head / (t->query_heads / t->key_heads), row = batch * t->queries + first_query;
    int64_t queries = sl_least(t->tile_queries, t->queries - first_query);
    int64_t visible = t->causal ? first_query + queries : keys_there(t, batch), from[MOST_QUERIES];
    enter_task();
    see_from(t, from, batch, first_query, queries);
    for (int64_t i = 0; i < padded(queries); i++) f.run.max[i] = t->lowest;
    start_forward(t, &f, head_at(t->q, row, head, t->width), queries);
    for (int64_t first = first_block(t, batch, first_query); first < visible; first += t->tile_keys) {
        int64_t keys = sl_least(t->tile_keys, visible - first), key_row = batch * t->keys + first;
        forward_keys(t, &f, head_at(t->k, key_row, key_head, t->width), head_at(t->v, key_row, key_head, t->width),
                     keys, queries, (sight){ from, first - first_query });
    }
    finish_forward(t, &f, head_at(t->out, row, head, t->width), queries);
    store_lse(t, &f.run, t->lse + (batch * t->query_heads + head) * t->queries + first_query, queries);
    leave_task();
}

static void run_forward(const sl_kernel_args *a)
{
    attention t = { 0 };
    bind_inputs(&t, a);
    t.out = (heads){ a->out[0].data, t.query_heads * t.width };
    t.lse = a->out[1].data;
    choose_tile(&t, forward_floats);
    sl_pool_run(a->pool, forward_task, &t, t.batches * t.query_heads * sl_ceil_div(t.queries, t.tile_queries));
}

/* ---- backward ---- */

/* dk and dv of keys from `from` to `to` of the block. */
static void clear_gradients(const backward_tile *b, int64_t from, int64_t to)
{
    memset(b->dk + from * b->wide, 0, (size_t)((to - from) * b->wide) * sizeof *b->dk);
    memset(b->dv + from * b->wide, 0, (size_t)((to - from) * b->wide) * sizeof *b->dv);
}

/* One block of keys against all queries that see it: heads of the group in order, tiles of queries in order. */
static void backward_keys(const attention *t, const backward_tile *b, int64_t batch, int64_t key_head, int64_t first,
                          bool with_dq)
{
    int64_t group = t->query_heads / t->key_heads, tiles = sl_ceil_div(t->queries, t->tile_queries), loaded = 0;
    int64_t keys = sl_least(t->tile_keys, t->keys - first), key_row = batch * t->keys + first;
    int64_t start = t->causal ? first / t->tile_queries : 0, from[MOST_QUERIES];
    int64_t there = sl_least(keys, keys_there(t, batch) - first);
    if (there <= 0) clear_gradients(b, 0, keys);
    for (int64_t member = 0; member < group && there > 0; member++)
        for (int64_t tile = start; tile < tiles; tile++) {
            int64_t query = tile * t->tile_queries, queries = sl_least(t->tile_queries, t->queries - query);
            int64_t seen = t->causal ? sl_least(keys, query + queries - first) : there;
            sight see = { from, first - query };
            if (t->bounded && first_seen(t, batch, query) >= first + keys) break;
            see_from(t, from, batch, query, queries);
            if (loaded != seen) load_keys(t, b, key_row, key_head, seen);
            loaded = seen;
            load_queries(t, b, batch, key_head * group + member, query, queries);
            slopes(t, b, seen, queries, see);
            bool fresh = member == 0 && tile == start;
            add_dk_dv(t, b, seen, queries, see, fresh);
            if (fresh) clear_gradients(b, seen, keys); /* what the tile does not see starts at zero */
            if (with_dq) add_dq(t, b, b->dq + (member * tiles + tile) * dq_floats(t), seen, queries, see);
        }
    if (t->dk.data) store_rows(head_at(t->dk, key_row, key_head, t->width), t->dk.row, b->dk, b->wide, keys, t->width);
    if (t->dv.data) store_rows(head_at(t->dv, key_row, key_head, t->width), t->dv.row, b->dv, b->wide, keys, t->width);
}

/* All of a key head at once. */
static void group_task(void *context, int64_t number, void *scratch)
{
    const attention *t = context;
    backward_tile b = lay_backward(t, scratch);
    int64_t batch = number / t->key_heads, key_head = number % t->key_heads, group = t->query_heads / t->key_heads;
    int64_t tiles = sl_ceil_div(t->queries, t->tile_queries);
    enter_task();
    for (int64_t first = 0; first < t->keys; first += t->tile_keys)
        backward_keys(t, &b, batch, key_head, first, t->dq.data != NULL);
    leave_task();
    for (int64_t i = 0; t->dq.data != NULL && i < group * tiles; i++) {
        int64_t query = i % tiles * t->tile_queries, queries = sl_least(t->tile_queries, t->queries - query);
        elem *dq = head_at(t->dq, batch * t->queries + query, key_head * group + i / tiles, t->width);
        store_dq(t, &b, dq, b.dq + i * dq_floats(t), queries);
    }
}

/* The two walks. */
static void keys_task(void *context, int64_t number, void *scratch)
{
    const attention *t = context;
    backward_tile b = lay_backward(t, scratch);
    int64_t tiles = sl_ceil_div(t->keys, t->tile_keys), head = number / tiles;
    enter_task();
    backward_keys(t, &b, head / t->key_heads, head % t->key_heads, number % tiles * t->tile_keys, false);
    leave_task();
}

static void queries_task(void *context, int64_t number, void *scratch)
{
    const attention *t = context;
    backward_tile b = lay_backward(t, scratch);
    int64_t tiles = sl_ceil_div(t->queries, t->tile_queries);
    int64_t query = (tiles - 1 - number % tiles) * t->tile_queries; /* the longest come first */
    int64_t head = number / tiles % t->query_heads, batch = number / tiles / t->query_heads;
    int64_t queries = sl_least(t->tile_queries, t->queries - query),
            seen = t->causal ? query + queries : keys_there(t, batch);
    int64_t from[MOST_QUERIES];
    enter_task();
    see_from(t, from, batch, query, queries);
    load_queries(t, &b, batch, head, query, queries);
    for (int64_t first = first_block(t, batch, query); first < seen; first += t->tile_keys) {
        int64_t keys = sl_least(t->tile_keys, seen - first);
        load_keys(t, &b, batch * t->keys + first, head / (t->query_heads / t->key_heads), keys);
        slopes(t, &b, keys, queries, (sight){ from, first - query });
        add_dq(t, &b, b.dq, keys, queries, (sight){ from, first - query });
    }
    leave_task();
    store_dq(t, &b, head_at(t->dq, batch * t->queries + query, head, t->width), b.dq, queries);
}

static int64_t backward_floats_by_tile(const attention *t)
{
    return backward_floats(t) + dq_floats(t);
}

/* dq of every query of a group of heads is carried along with the tile. */
static bool group_fits(const attention *t)
{
    int64_t tiles = t->query_heads / t->key_heads * sl_ceil_div(t->queries, t->tile_queries);
    return (backward_floats(t) + tiles * dq_floats(t)) * (int64_t)sizeof(float) <= (int64_t)SL_SCRATCH_BYTES;
}

static void run_backward(const sl_kernel_args *a)
{
    attention t = { 0 };
    bind_inputs(&t, a);
    bind_gradients(&t, a);
    choose_tile(&t, backward_floats_by_tile);
    int64_t groups = t.batches * t.key_heads;
    bool keys = t.dk.data || t.dv.data;
    if (keys && group_fits(&t) && groups >= sl_pool_threads(a->pool)) {
        sl_pool_run(a->pool, group_task, &t, groups);
        return;
    }
    if (keys) sl_pool_run(a->pool, keys_task, &t, groups * sl_ceil_div(t.keys, t.tile_keys));
    if (t.dq.data)
        sl_pool_run(a->pool, queries_task, &t, t.batches * t.query_heads * sl_ceil_div(t.queries, t.tile_queries));
}
