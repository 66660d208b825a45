/* attention_hopper_backward.cu: the gradient of attention on sm_90a, in the two walks of attention_backward.cu.
 *
 * By keys, a consumer warpgroup has 64 keys with dk and dv in registers and visits tiles of 64 queries; scores and dp are
 * computed transposed, [keys, queries], so that p and ds are the left operands of dv and dk in the registers in which
 * they were made. By queries, it has 64 queries with dq and visits tiles of 64 keys. In both, a consumer's last MMA of
 * the tile before runs while it exponentiates, and so do the MMAs of the other consumer.
 *
 * Registers of a consumer's thread (32 bits each; 64 x N numbers are N / 2 f32 or N / 4 pairs of 16 bits in a thread):
 *
 *     by keys                                       W = 64  W = 128  |  by queries            W = 64  W = 128
 *     dk     accumulator, 64 x W                        32       64  |  dq                        32       64
 *     dv     accumulator, 64 x W                        32       64  |
 *     s      accumulator of the scores, 64 x 64         32       32  |  s                         32       32
 *     dp     accumulator, 64 x 64                       32       32  |  dp                        32       32
 *     p      left operand of dv, 16 bits                16       16  |  (p stays in s)
 *     ds     left operand of dk, 16 bits                16       16  |  ds, left operand of dq    16       16
 *                                                                    |  lse2, delta of two rows    4        4
 *     all                                              160      224  |                           116      148   of 240
 *
 * By keys with W = 128, all at once would leave 16 registers for addresses and the loop. So s and dp never live at the
 * same time (walk_queries): scores run with dk of the tile before, and only when s has become p do dp and dv start,
 * which makes 192 at most. By queries, scores and dp start together.
 *
 * Shared memory (a block may have 232,448 bytes; barriers take 64, slack 1,024):
 *
 *                                           W = 64     W = 128
 *     operands of both consumers            32 KiB      64 KiB   k and v, or q and dout: 2 x 2 x 64 x W x 2
 *     tiles that come by, three stages      48 KiB      96 KiB   q and dout, or k and v: 3 x 2 x 64 x W x 2
 *     results on their way                  16 KiB      32 KiB   2 x 64 x W x 2
 *     lse2 and delta, three stages          1.5 KiB    1.5 KiB   by keys only; by queries they are in registers
 *
 * By keys with W = 128 a fourth stage would be 80 bytes too much.
 *
 * Pieces by keys differ by the group's heads, and fewer blocks than pieces would leave some long ones to the end; those
 * by queries are many, and one block does several, so that the next one's tiles come while it still computes. */
#include "backend/cuda/attention_hopper_maps.cuh"

inline namespace SL_KERNELS
{
struct BackwardMaps {
    CUtensorMap q, k, v, dout;
};

/* What a block's warps meet at: operands of the warpgroups, and tiles that come by. */
template <int buffers> struct Meeting {
    Held own;
    Ring<buffers> tiles;

    static constexpr int bytes = 8 * (2 + 2 * buffers);

    __device__ __forceinline__ void set() const
    {
        own.set();
        tiles.set();
        barriers_are_set();
    }
};

template <int buffers> __device__ __forceinline__ Meeting<buffers> meeting_at(shared_address at)
{
    return { { at, 0 }, { at + 16 } };
}

/* ---- by keys: dk and dv ---- */

template <int W> struct ByKeys {
    static constexpr int keys = group_rows * groups, queries = 64, buffers = 3;
    static constexpr int group_bytes = group_rows * W * 2, query_bytes = queries * W * 2;
    static constexpr int query_apart = queries * tile_row_bytes;
    /* keys and values of each warpgroup; buffers of queries, of dout; results on their way; lse and delta */
    static constexpr int value_at = groups * group_bytes, query_at = 2 * value_at;
    static constexpr int dout_at = query_at + buffers * query_bytes, out_at = dout_at + buffers * query_bytes;
    static constexpr int lse_at = out_at + groups * group_bytes, delta_at = lse_at + buffers * queries * 4;
    static constexpr int barriers_at = delta_at + buffers * queries * 4;
    static constexpr int shared_bytes = barriers_at + Meeting<buffers>::bytes + shared_slack;
};

/* The tiles of queries that a piece of work visits: heads in order, in each those from `start` on. */
struct Walk {
    int head, tile, start, tiles;

    __device__ __forceinline__ void next()
    {
        if (++tile < tiles) return;
        tile = start;
        head++;
    }
};

struct KeyPiece {
    Place at;
    int first, steps; /* key; tiles of queries */
    int clear;        /* tiles of queries before it see the piece's first key; bounded pieces alone */
    Walk walk;
};

/* Every lane of a warp asks. */
template <int W, bool bounded> __device__ __forceinline__ KeyPiece key_piece_of(const AttentionCall &c, unsigned work)
{
    using B = ByKeys<W>;
    const Place at = place_of(work, c.batches, c.key_heads);
    const int first = at.tile * B::keys, all = attention_tiles(c.queries, B::queries);
    const int start = c.causal ? first / B::queries : 0;
    int tiles = all, clear = all;
    if (bounded) {
        tiles = tiles_that_see(c, at.batch, start, all, B::queries, 0, first + B::keys);
        clear = tiles_that_see(c, at.batch, start, all, B::queries, B::queries - 1, first + 1);
    }
    return { at, first, c.group * max(tiles - start, 0), clear, { at.head * c.group, start, start, tiles } };
}

template <int W>
__device__ __forceinline__ void fetch_tile(const BackwardMaps &maps, const AttentionCall &c, int batch, const Walk &w,
                                           shared_address base, shared_address barrier, int i)
{
    using B = ByKeys<W>;
    const int row = w.tile * B::queries;
    const int64_t number = ((int64_t)batch * c.query_heads + w.head) * c.rounded + row;
    barrier_expect(barrier, 2 * B::query_bytes + 2 * B::queries * 4);
    copy_rows<W>(base + B::query_at + i * B::query_bytes, B::query_apart, &maps.q, barrier, w.head, row, batch);
    copy_rows<W>(base + B::dout_at + i * B::query_bytes, B::query_apart, &maps.dout, barrier, w.head, row, batch);
    copy_bytes(base + B::lse_at + i * B::queries * 4, c.lse2 + number, barrier, B::queries * 4);
    copy_bytes(base + B::delta_at + i * B::queries * 4, c.delta + number, barrier, B::queries * 4);
}

/* The thread that asks for tiles. */
template <int W>
__device__ __forceinline__ void fetch_queries(const BackwardMaps &maps, const AttentionCall &c, KeyPiece p,
                                              shared_address base, const Meeting<ByKeys<W>::buffers> &m)
{
    using B = ByKeys<W>;
    Turn<B::buffers> turn;
    barrier_expect(m.own.full(), 2 * groups * B::group_bytes);
    for (int i = 0; i < groups; i++) {
        const shared_address to = base + i * B::group_bytes;
        const int row = p.first + i * group_rows;
        copy_rows<W>(to, group_apart, &maps.k, m.own.full(), p.at.head, row, p.at.batch);
        copy_rows<W>(to + B::value_at, group_apart, &maps.v, m.own.full(), p.at.head, row, p.at.batch);
    }
    for (int step = 0; step < p.steps; step++, p.walk.next(), turn.next()) {
        m.tiles.wait_free(turn);
        fetch_tile<W>(maps, c, p.at.batch, p.walk, base, m.tiles.full(turn.buffer), turn.buffer);
    }
}

/* p[keys, queries] of scores, rounded; keys after a query are not seen. `past`: how many positions the warp's first key
 * lies after the first query. hide_more(s) hides what else is not seen. */
template <class T, int N, class Hide>
__device__ __forceinline__ void probabilities(unsigned (&p)[N / 2][1][4], float (&s)[1][N][4], const float *lse,
                                              float factor, bool hides, int past, int lane, Hide hide_more)
{
#pragma unroll
    for (int n = 0; n < N; n++) {
        const float2 base = *(const float2 *)(lse + n * 8 + lane % 4 * 2);
#pragma unroll
        for (int e = 0; e < 4; e++) s[0][n][e] = fast_exp2(fmaf(s[0][n][e], factor, e % 2 == 0 ? -base.x : -base.y));
    }
    if (hides) {
#pragma unroll
        for (int i = 0; i < N * 4; i++) {
            const int n = i / 4, e = i % 4;
            if (past + e / 2 * 8 + lane / 4 > n * 8 + lane % 4 * 2 + e % 2) s[0][n][e] = 0.0f;
        }
    }
    hide_more(s);
    round_left<T, 1, N>(p, s);
}

/* ds = p (dp - delta), rounded. */
template <class T, int N>
__device__ __forceinline__ void slopes(unsigned (&ds)[N / 2][1][4], const unsigned (&p)[N / 2][1][4],
                                       const float (&dp)[1][N][4], const float *delta, int lane)
{
#pragma unroll
    for (int n = 0; n < N; n++) {
        const float2 shift = *(const float2 *)(delta + n * 8 + lane % 4 * 2);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int word = n % 2 * 2 + half;
            const unsigned pair = p[n / 2][0][word];
            ds[n / 2][0][word] = pack_pair<T>(low_of<T>(pair) * (dp[0][n][2 * half] - shift.x),
                                              high_of<T>(pair) * (dp[0][n][2 * half + 1] - shift.y));
        }
    }
}

template <class T, int W>
__device__ __forceinline__ void store_rows(const AttentionHeads &to, const AttentionCall &c, const Place &at, int row,
                                           int rows, const float (&x)[1][W / 8][4], float factor, char *stage, int lane)
{
    const float factors[1][2] = { { factor, factor } };
    if (to.data == nullptr) return;
    store_warp_rows<T, W, 1>(head_at<T>(to, at.batch, row, at.head, c.width), to.row, rows - row, c.width, x, factors,
                             stage, lane);
    __syncwarp();
}

/* One warpgroup's part of dk and dv. Scores and dk of the tile before run together, then dp and dv: more at a time, and
 * registers would be too few. */
template <class T, int W, bool bounded>
__device__ __forceinline__ void walk_queries(const AttentionCall &c, KeyPiece piece, int group, char *shared,
                                             shared_address base, const Meeting<ByKeys<W>::buffers> &m)
{
    using B = ByKeys<W>;
    constexpr int N = B::queries / 8;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    const int key = piece.first + group * group_rows + 16 * warp;
    const float factor = c.scale * SL_LOG2_E;
    const shared_address keys = base + group * B::group_bytes, values = keys + B::value_at;
    const shared_address queries = base + B::query_at, douts = base + B::dout_at;
    const float *lse = (const float *)(shared + B::lse_at), *delta = (const float *)(shared + B::delta_at);
    float dk[1][W / 8][4] = {}, dv[1][W / 8][4] = {}, s[1][N][4], dp[1][N][4];
    unsigned p[N / 2][1][4], ds[N / 2][1][4];
    Turn<B::buffers> turn;

    auto start_scores = [&] {
        products_begin();
        start_rows<T, W, B::queries>(s[0], fresh(keys), group_apart, queries + turn.buffer * B::query_bytes,
                                     B::query_apart);
        products_end();
    };
    auto add_dk = [&](int buffer) {
        products_begin();
        start_columns<T, W, N / 2>(dk[0], ds, queries + buffer * B::query_bytes, B::query_apart);
        products_end();
    };
    auto make_p = [&] {
        const int past = key - piece.walk.tile * B::queries;
        pin(s[0]);
        probabilities<T, N>(p, s, lse + turn.buffer * B::queries, factor, c.causal && past + 15 > 0, past, lane,
                            [&](float(&x)[1][N][4]) {
                                if (bounded && piece.walk.tile >= piece.clear)
                                    hide_past_columns<1, N>(x, c, piece.at.batch, piece.walk.tile * B::queries, key,
                                                            0.0f, lane);
                            });
    };
    auto start_dp_and_dv = [&] {
        products_begin();
        start_rows<T, W, B::queries>(dp[0], fresh(values), group_apart, douts + turn.buffer * B::query_bytes,
                                     B::query_apart);
        products_end();
        start_columns<T, W, N / 2>(dv[0], p, douts + turn.buffer * B::query_bytes, B::query_apart);
        products_end();
    };
    auto make_ds = [&] {
        pin(dp[0]);
        slopes<T, N>(ds, p, dp, delta + turn.buffer * B::queries, lane);
    };

    pin(dk[0]);
    pin(dv[0]);
    m.own.wait_full();
    if (piece.steps > 0) {
        m.tiles.wait_full(turn);
        start_scores();
        products_wait<0>();
        make_p();
        start_dp_and_dv();
        products_wait<1>(); /* dp */
        make_ds();
        for (int step = 1; step < piece.steps; step++) {
            const int before = turn.buffer;
            piece.walk.next();
            turn.next();
            m.tiles.wait_full(turn);
            products_wait<0>(); /* the dv before, which reads p */
            start_scores();
            add_dk(before);
            products_wait<1>(); /* scores */
            make_p();
            start_dp_and_dv();
            products_wait<1>(); /* dk before, dp */
            m.tiles.leave(before);
            make_ds();
        }
        add_dk(turn.buffer);
        products_wait<0>();
    }
    pin(dk[0]);
    pin(dv[0]);
    char *stage = shared + B::out_at + group * B::group_bytes + warp * 16 * W * 2;
    store_rows<T, W>(c.dk, c, piece.at, key, c.keys, dk, c.scale, stage, lane);
    store_rows<T, W>(c.dv, c, piece.at, key, c.keys, dv, 1.0f, stage, lane);
}

template <class T, int W, bool bounded>
__global__ void __launch_bounds__(threads, 1)
    hopper_key_kernel(const __grid_constant__ BackwardMaps maps, const __grid_constant__ AttentionCall c)
{
    using B = ByKeys<W>;
    SL_DYNAMIC_SHARED(char, shared);
    const shared_address base = whole_blocks(shared_at(shared));
    const Meeting<B::buffers> m = meeting_at<B::buffers>(base + B::barriers_at);
    const KeyPiece piece = key_piece_of<W, bounded>(c, blockIdx.x);
    const int group = (int)threadIdx.x / group_threads - 1;
    if (threadIdx.x == 0) m.set();
    __syncthreads();
    if (group < 0) {
        give_registers<few_registers>();
        if (threadIdx.x == 0) fetch_queries<W>(maps, c, piece, base, m);
    } else {
        take_registers<registers>();
        walk_queries<T, W, bounded>(c, piece, group, shared + (base - shared_at(shared)), base, m);
    }
}

/* ---- by queries: dq ---- */

template <int W> struct ByQueries {
    static constexpr int queries = group_rows * groups, keys = 64, buffers = 3;
    static constexpr int group_bytes = group_rows * W * 2, key_bytes = keys * W * 2, key_apart = keys * tile_row_bytes;
    /* queries and dout of each warpgroup; buffers of keys, of values; dq on its way */
    static constexpr int dout_at = groups * group_bytes, key_at = 2 * dout_at;
    static constexpr int value_at = key_at + buffers * key_bytes, out_at = value_at + buffers * key_bytes;
    static constexpr int barriers_at = out_at + groups * group_bytes;
    static constexpr int shared_bytes = barriers_at + Meeting<buffers>::bytes + shared_slack;
};

/* The thread that asks for tiles. */
template <int W, bool bounded>
__device__ __forceinline__ void fetch_keys(const BackwardMaps &maps, const AttentionCall &c, unsigned works,
                                           shared_address base, Meeting<ByQueries<W>::buffers> m)
{
    using B = ByQueries<W>;
    Turn<B::buffers> turn;
    for (unsigned work = blockIdx.x; work < works; work += gridDim.x, m.own.next()) {
        const QueryPiece p = query_piece_of<B, bounded>(c, work);
        const int key_head = p.at.head / c.group;
        m.own.wait_free();
        barrier_expect(m.own.full(), 2 * groups * B::group_bytes);
        for (int i = 0; i < groups; i++) {
            const shared_address to = base + i * B::group_bytes;
            const int row = p.first + i * group_rows;
            copy_rows<W>(to, group_apart, &maps.q, m.own.full(), p.at.head, row, p.at.batch);
            copy_rows<W>(to + B::dout_at, group_apart, &maps.dout, m.own.full(), p.at.head, row, p.at.batch);
        }
        for (int step = p.begin; step < p.steps; step++, turn.next()) {
            const int i = turn.buffer;
            const shared_address to = base + B::key_at + i * B::key_bytes, barrier = m.tiles.full(i);
            m.tiles.wait_free(turn);
            barrier_expect(barrier, 2 * B::key_bytes);
            copy_rows<W>(to, B::key_apart, &maps.k, barrier, key_head, step * B::keys, p.at.batch);
            copy_rows<W>(to + B::value_at - B::key_at, B::key_apart, &maps.v, barrier, key_head, step * B::keys,
                         p.at.batch);
        }
    }
}

/* The numbers of a lane's two rows; if bounded, the first keys that they see and that the last row of the warp does. */
struct RowNumbers {
    float lse2[2], delta[2];
    int from[1][2], nearest;
};

template <bool bounded>
__device__ __forceinline__ RowNumbers load_numbers(const AttentionCall &c, const Place &at, int first, int lane)
{
    RowNumbers r;
    const int64_t row = ((int64_t)at.batch * c.query_heads + at.head) * c.rounded;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int query = min(first + i * 8 + lane / 4, c.queries - 1);
        r.lse2[i] = c.lse2[row + query];
        r.delta[i] = c.delta[row + query];
    }
    if (bounded) {
        see_rows<1>(r.from, c, at.batch, first, lane);
        r.nearest = first_seen(c, at.batch, first + 15);
    }
    return r;
}

/* Scores become probabilities; those of keys that a query does not see, causal or past the last, are zero. */
template <int N, bool bounded>
__device__ __forceinline__ void row_probabilities(float (&s)[1][N][4], const RowNumbers &r, float factor, int query,
                                                  int key, const AttentionCall &c, int lane)
{
#pragma unroll
    for (int i = 0; i < N * 4; i++)
        s[0][i / 4][i % 4] = fast_exp2(fmaf(s[0][i / 4][i % 4], factor, -r.lse2[i % 4 / 2]));
    if (bounded && key < r.nearest) hide_past<1, N>(s, r.from, key, 0.0f, lane);
    if (key + N * 8 <= c.keys && (!c.causal || key + N * 8 <= query + 1)) return;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int row = query + half * 8 + lane / 4;
        const int seen = (c.causal ? min(row + 1, c.keys) : c.keys) - key - lane % 4 * 2;
#pragma unroll
        for (int i = 0; i < 2 * N; i++)
            if (i / 2 * 8 + i % 2 >= seen) s[0][i / 2][half * 2 + i % 2] = 0.0f;
    }
}

template <class T, int N>
__device__ __forceinline__ void row_slopes(unsigned (&ds)[N / 2][1][4], float (&p)[1][N][4], const float (&dp)[1][N][4],
                                           const RowNumbers &r)
{
#pragma unroll
    for (int i = 0; i < N * 4; i++) p[0][i / 4][i % 4] *= dp[0][i / 4][i % 4] - r.delta[i % 4 / 2];
    round_left<T, 1, N>(ds, p);
}

/* One warpgroup's part of dq. */
template <class T, int W, bool bounded>
__device__ __forceinline__ void walk_keys(const AttentionCall &c, const QueryPiece &piece, int group, char *shared,
                                          shared_address base, const Meeting<ByQueries<W>::buffers> &m,
                                          Turn<ByQueries<W>::buffers> &turn)
{
    using B = ByQueries<W>;
    constexpr int N = B::keys / 8;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    const int query = piece.first + group * group_rows + 16 * warp;
    const float factor = c.scale * SL_LOG2_E;
    const shared_address queries = base + group * B::group_bytes, douts = queries + B::dout_at;
    const shared_address keys = base + B::key_at, values = base + B::value_at;
    const RowNumbers numbers = load_numbers<bounded>(c, piece.at, query, lane);
    float dq[1][W / 8][4] = {}, s[1][N][4], dp[1][N][4];
    unsigned ds[N / 2][1][4];

    auto start_scores_and_dp = [&] {
        products_begin();
        start_rows<T, W, B::keys>(s[0], queries, group_apart, keys + turn.buffer * B::key_bytes, B::key_apart);
        products_end();
        start_rows<T, W, B::keys>(dp[0], douts, group_apart, values + turn.buffer * B::key_bytes, B::key_apart);
        products_end();
    };
    auto add_dq = [&](int buffer) {
        products_begin();
        start_columns<T, W, N / 2>(dq[0], ds, keys + buffer * B::key_bytes, B::key_apart);
        products_end();
    };
    auto make_p = [&](int key) {
        pin(s[0]);
        row_probabilities<N, bounded>(s, numbers, factor, query, key, c, lane);
    };
    auto make_ds = [&] {
        pin(dp[0]);
        row_slopes<T, N>(ds, s, dp, numbers);
    };

    pin(dq[0]);
    m.own.wait_full();
    m.tiles.wait_full(turn);
    start_scores_and_dp();
    products_wait<1>(); /* scores */
    make_p(piece.begin * B::keys);
    products_wait<0>(); /* dp */
    make_ds();
    for (int step = piece.begin + 1; step < piece.steps; step++) {
        const int before = turn.buffer;
        turn.next();
        m.tiles.wait_full(turn);
        start_scores_and_dp();
        add_dq(before);
        products_wait<2>(); /* scores */
        make_p(step * B::keys);
        products_wait<0>(); /* dp and dq */
        m.tiles.leave(before);
        make_ds();
    }
    m.own.leave();
    add_dq(turn.buffer);
    products_wait<0>();
    pin(dq[0]);
    m.tiles.leave(turn.buffer);
    turn.next();
    store_rows<T, W>(c.dq, c, piece.at, query, c.queries, dq, c.scale,
                     shared + B::out_at + group * B::group_bytes + warp * 16 * W * 2, lane);
}

template <class T, int W, bool bounded>
__global__ void __launch_bounds__(threads, 1)
    hopper_query_kernel(const __grid_constant__ BackwardMaps maps, const __grid_constant__ AttentionCall c,
                        unsigned works)
{
    using B = ByQueries<W>;
    SL_DYNAMIC_SHARED(char, shared);
    const shared_address base = whole_blocks(shared_at(shared));
    Meeting<B::buffers> m = meeting_at<B::buffers>(base + B::barriers_at);
    const int group = (int)threadIdx.x / group_threads - 1;
    if (threadIdx.x == 0) m.set();
    __syncthreads();
    if (group < 0) {
        give_registers<few_registers>();
        if (threadIdx.x == 0) fetch_keys<W, bounded>(maps, c, works, base, m);
        return;
    }
    take_registers<registers>();
    Turn<B::buffers> turn;
    for (unsigned work = blockIdx.x; work < works; work += gridDim.x, m.own.next())
        walk_keys<T, W, bounded>(c, query_piece_of<B, bounded>(c, work), group, shared + (base - shared_at(shared)),
                                 base, m, turn);
}

/* ---- launches ---- */

bool map_backward(BackwardMaps *out, const AttentionCall &c, sl_form form, void *maker, int query_box, int key_box)
{
    return map_heads(&out->q, maker, c.q, c.batches, c.queries, c.query_heads, c.width, query_box, form) &&
           map_heads(&out->dout, maker, c.dout, c.batches, c.queries, c.query_heads, c.width, query_box, form) &&
           map_heads(&out->k, maker, c.k, c.batches, c.keys, c.key_heads, c.width, key_box, form) &&
           map_heads(&out->v, maker, c.v, c.batches, c.keys, c.key_heads, c.width, key_box, form);
}

template <class T, int W, bool bounded>
bool launch_kernels(const AttentionCall &c, sl_form form, void *maker, void *stream)
{
    using K = ByKeys<W>;
    using Q = ByQueries<W>;
    BackwardMaps by_keys, by_queries;
    if (!map_backward(&by_keys, c, form, maker, K::queries, group_rows) ||
        !map_backward(&by_queries, c, form, maker, group_rows, Q::keys))
        return false;
    if (c.dk.data != nullptr || c.dv.data != nullptr) {
        const unsigned works = (unsigned)(c.batches * c.key_heads * attention_tiles(c.keys, K::keys));
        SL_ALLOW_SHARED((hopper_key_kernel<T, W, bounded>), K::shared_bytes);
        SL_LAUNCH((hopper_key_kernel<T, W, bounded>), works, threads, K::shared_bytes, stream, by_keys, c);
    }
    if (c.dq.data != nullptr) {
        const unsigned works = (unsigned)(c.batches * c.query_heads * attention_tiles(c.queries, Q::queries));
        SL_ALLOW_SHARED((hopper_query_kernel<T, W, bounded>), Q::shared_bytes);
        SL_LAUNCH((hopper_query_kernel<T, W, bounded>), blocks_of(c, works), threads, Q::shared_bytes, stream,
                  by_queries, c, works);
    }
    return true;
}

template <class T, int W> bool launch_backward(const AttentionCall &c, sl_form form, void *maker, void *stream)
{
    return (is_bounded(c) ? launch_kernels<T, W, true> : launch_kernels<T, W, false>)(c, form, maker, stream);
}
} // namespace SL_KERNELS

bool sl_attention_backward_hopper(const AttentionCall &c, sl_form form, void *maker, void *stream)
{
    auto launch = form == SL_FORM_BF16 ? (c.width == 64 ? launch_backward<bf16, 64> : launch_backward<bf16, 128>)
                                       : (c.width == 64 ? launch_backward<f16, 64> : launch_backward<f16, 128>);
    return launch(c, form, maker, stream);
}
