/* attention_backward.cu: the gradient of attention on tensor cores, in two walks.
 *
 * One block per tile of keys gives dk and dv: it visits the query heads of its key head in order, and of each the tiles
 * of queries that see its keys. One block per tile of queries gives dq, visiting tiles of keys. Scores and dp are
 * computed in both: seven products where one walk would do with five. But one walk must add up dq across blocks, and
 * without atomics that is a partial dq in f32 per tile of keys: for 2,048 queries over 1 GB a layer, written and read
 * again, which takes longer than two products and has no place.
 *
 * In the walk by keys warps come in pairs that have the same keys. With the head's width in registers for either dv or
 * dk a warp can have 32 keys, and what it reads from shared memory serves twice the products that 16 keys would. One of
 * the pair makes p and dv, the other dp, ds and dk; p passes between them. While one exponentiates, the other
 * multiplies. */
#include "backend/cuda/attention_limits.cuh"
#include "backend/cuda/mma.cuh"

inline namespace SL_KERNELS
{
/* ---- by keys: dk and dv ---- */

/* W: the head width up to a multiple that is compiled. */
template <int W> struct ByKeys {
    static constexpr int pairs = 4, threads = 64 * pairs;
    static constexpr int m = W <= 128 ? 2 : 1; /* sixteens of keys per pair: what registers hold of dk */
    static constexpr int pair_keys = 16 * m, keys = pairs * pair_keys, queries = W <= 128 ? 64 : 32;
    static constexpr int key_bytes = keys * Tile<W>::pitch, query_bytes = queries * Tile<W>::pitch;
    static constexpr int vectors = m * queries / 16; /* of 16 bytes that a lane passes on: its p */
    /* keys, values; two buffers of queries and two of dout; p; two buffers of lse and two of delta */
    static constexpr int query_at = 2 * key_bytes, dout_at = query_at + 2 * query_bytes;
    static constexpr int p_at = dout_at + 2 * query_bytes, lse_at = p_at + pairs * vectors * 32 * 16;
    static constexpr int delta_at = lse_at + 2 * queries * 4, shared_bytes = delta_at + 2 * queries * 4;
    static_assert(shared_bytes <= 163 * 1024, "fits a block of sm_80");
};

/* The tiles of queries that a block visits: heads in order, in each the tiles from `start` on. */
struct Walk {
    int head, tile, start, tiles;
};

__device__ __forceinline__ Walk next_of(const Walk &w)
{
    bool wraps = w.tile + 1 == w.tiles;
    return { w.head + wraps, wraps ? w.start : w.tile + 1, w.start, w.tiles };
}

template <class T, int W>
__device__ __forceinline__ void load_queries(const AttentionCall &c, int batch, const Walk &w, shared_address shared,
                                             int buffer)
{
    using B = ByKeys<W>;
    int first = w.tile * B::queries;
    load_tile<T, W, B::queries, B::threads>(shared + B::query_at + buffer * B::query_bytes,
                                            head_at<T>(c.q, batch, first, w.head, c.width), c.q.row, c.queries - first,
                                            c.width, threadIdx.x);
}

template <class T, int W>
__device__ __forceinline__ void load_douts(const AttentionCall &c, int batch, const Walk &w, shared_address shared,
                                           int buffer)
{
    using B = ByKeys<W>;
    int first = w.tile * B::queries, thread = threadIdx.x;
    load_tile<T, W, B::queries, B::threads>(shared + B::dout_at + buffer * B::query_bytes,
                                            head_at<T>(c.dout, batch, first, w.head, c.width), c.dout.row,
                                            c.queries - first, c.width, thread);
    int64_t row = ((int64_t)batch * c.query_heads + w.head) * c.rounded + first;
    if (thread < B::queries / 4)
        copy_async(shared + B::lse_at + (buffer * B::queries + thread * 4) * 4, c.lse2 + row + thread * 4, true);
    else if (thread < B::queries / 2)
        copy_async(shared + B::delta_at + (buffer * B::queries + thread * 4 - B::queries) * 4,
                   c.delta + row + thread * 4 - B::queries, true);
}

/* s[keys, queries] becomes p; lse of the tile's queries. Keys after a query are not seen. */
template <int M, int N>
__device__ __forceinline__ void probabilities(float (&s)[M][N][4], const float *lse, float factor, int lane)
{
#pragma unroll
    for (int n = 0; n < N; n++) {
        float2 base = *(const float2 *)(lse + n * 8 + lane % 4 * 2);
#pragma unroll
        for (int i = 0; i < 4 * M; i++) {
            float &x = s[i / 4][n][i % 4];
            x = fast_exp2(fmaf(x, factor, i % 2 == 0 ? -base.x : -base.y));
        }
    }
}

/* `past`: how many positions the first key lies after the first query. */
template <int M, int N>
__device__ __forceinline__ void hide_earlier(float (&p)[M][N][4], int past, float hidden, int lane)
{
#pragma unroll
    for (int i = 0; i < M * N * 4; i++) {
        int m = i / 4 / N, n = i / 4 % N, e = i % 4;
        int key = past + m * 16 + e / 2 * 8 + lane / 4, query = n * 8 + lane % 4 * 2 + e % 2;
        if (key > query) p[m][n][e] = hidden;
    }
}

/* Of capped scores, raw and -infinity where they are hidden: p to `a`, and to the other warp of the pair p times what
 * the cap leaves of a score's slope, which is all that it multiplies. */
template <class T, int M, int N>
__device__ __forceinline__ void capped_probabilities(unsigned (&a)[N / 2][M][4], uint4 *passed,
                                                     const float (&s)[M][N][4], const float *lse,
                                                     const AttentionCall &c, int lane)
{
    const float factor = c.softcap * SL_LOG2_E;
#pragma unroll
    for (int i = 0; i < N / 2 * M; i++) {
        int k = i / M, m = i % M;
        unsigned slope[4];
#pragma unroll
        for (int word = 0; word < 4; word++) {
            int n = 2 * k + word / 2, e = word % 2 * 2;
            float2 base = *(const float2 *)(lse + n * 8 + lane % 4 * 2);
            float x = bent(c, s[m][n][e]), y = bent(c, s[m][n][e + 1]);
            float p = s[m][n][e] == -INFINITY ? 0.0f : fast_exp2(fmaf(x, factor, -base.x));
            float q = s[m][n][e + 1] == -INFINITY ? 0.0f : fast_exp2(fmaf(y, factor, -base.y));
            a[k][m][word] = pack_pair<T>(p, q);
            slope[word] = pack_pair<T>(p * (1.0f - x * x), q * (1.0f - y * y));
        }
        passed[i * 32] = make_uint4(slope[0], slope[1], slope[2], slope[3]);
    }
}

/* ds = p (dp - delta), rounded; p as the other warp of the pair left it. */
template <class T, int M, int N>
__device__ __forceinline__ void slopes(unsigned (&ds)[N / 2][M][4], const float (&dp)[M][N][4], const uint4 *p,
                                       const float *delta, int lane)
{
#pragma unroll
    for (int i = 0; i < N / 2 * M; i++) {
        int k = i / M, m = i % M;
        uint4 four = p[i * 32];
        unsigned pair[4] = { four.x, four.y, four.z, four.w };
#pragma unroll
        for (int word = 0; word < 4; word++) {
            int n = 2 * k + word / 2, e = word % 2 * 2;
            float2 shift = *(const float2 *)(delta + n * 8 + lane % 4 * 2);
            ds[k][m][word] = pack_pair<T>(low_of<T>(pair[word]) * (dp[m][n][e] - shift.x),
                                          high_of<T>(pair[word]) * (dp[m][n][e + 1] - shift.y));
        }
    }
}

template <int M, int K> __device__ __forceinline__ void pass_on(uint4 *p, const unsigned (&a)[K][M][4])
{
#pragma unroll
    for (int i = 0; i < K * M; i++) {
        const unsigned(&word)[4] = a[i / M][i % M];
        p[i * 32] = make_uint4(word[0], word[1], word[2], word[3]);
    }
}

template <class T, int W, bool limited>
__global__ void __launch_bounds__(ByKeys<W>::threads, 1) key_kernel(AttentionCall c)
{
    using B = ByKeys<W>;
    constexpr int M = B::m, N = B::queries / 8;
    SL_DYNAMIC_SHARED(char, shared);
    shared_address base = shared_at(shared);
    int lane = threadIdx.x % 32, pair = threadIdx.x / 32 % B::pairs;
    bool has_dv = threadIdx.x / 32 < B::pairs; /* of the pair: the one that makes p and dv */
    Place at = place_of(blockIdx.x, c.batches, c.key_heads);
    int first = at.tile * B::keys, mine = first + pair * B::pair_keys;
    Walk walk = { at.head * c.group, 0, c.causal ? first / B::queries : 0, attention_tiles(c.queries, B::queries) };
    walk.tile = walk.start;
    int clear = walk.tiles; /* tiles before it see all keys that come before them */
    if (limited && is_bounded(c)) {
        const int tiles = walk.tiles;
        walk.tiles = tiles_that_see(c, at.batch, walk.start, tiles, B::queries, 0, first + B::keys);
        clear = tiles_that_see(c, at.batch, walk.start, tiles, B::queries, B::queries - 1, first + 1);
    }
    const int there = limited ? keys_there(c, at.batch) : c.keys;
    int steps = limited && first >= there ? 0 : c.group * (walk.tiles - walk.start);
    shared_address left = base + (has_dv ? 0 : B::key_bytes) + pair * B::pair_keys * Tile<W>::pitch;
    uint4 *passed = (uint4 *)(shared + B::p_at) + pair * B::vectors * 32 + lane;

    load_tile<T, W, B::keys, B::threads>(base, head_at<T>(c.k, at.batch, first, at.head, c.width), c.k.row,
                                         c.keys - first, c.width, threadIdx.x);
    load_tile<T, W, B::keys, B::threads>(base + B::key_bytes, head_at<T>(c.v, at.batch, first, at.head, c.width),
                                         c.v.row, c.keys - first, c.width, threadIdx.x);
    load_queries<T, W>(c, at.batch, walk, base, 0);
    load_douts<T, W>(c, at.batch, walk, base, 0);
    commit_copies();
    wait_copies<0>();
    __syncthreads();

    float sum[M][W / 8][4] = {}, s[M][N][4]; /* dv and scores, or dk and dp */
    bool sees = !c.causal || mine < (walk.tile + 1) * B::queries;
    if (has_dv && sees) multiply_rows<T, W, M, N>(s, left, base + B::query_at, lane);
    for (int step = 0; step < steps; step++) {
        int buffer = step % 2, other = 1 - buffer, query = walk.tile * B::queries;
        Walk after = next_of(walk);
        bool more = step + 1 < steps, will_see = more && (!c.causal || mine < (after.tile + 1) * B::queries);
        if (more) load_queries<T, W>(c, at.batch, after, base, other);
        commit_copies();
        if (more) load_douts<T, W>(c, at.batch, after, base, other);
        commit_copies();

        unsigned a[N / 2][M][4]; /* p or ds */
        shared_address dout = base + B::dout_at + buffer * B::query_bytes;
        if (sees && has_dv) {
            const float *lse = (const float *)(shared + B::lse_at) + buffer * B::queries;
            bool hides = c.causal && mine + B::pair_keys > query + 1;
            if (limited) { /* before the exponentials, which a cap bends */
                if (hides) hide_earlier<M, N>(s, mine - query, -INFINITY, lane);
                if (walk.tile >= clear) hide_past_columns<M, N>(s, c, at.batch, query, mine, -INFINITY, lane);
                if (mine + B::pair_keys > there) hide_rows<M, N>(s, there - mine, lane);
            }
            if (limited && c.softcap > 0.0f) {
                capped_probabilities<T, M, N>(a, passed, s, lse, c, lane);
            } else {
                probabilities<M, N>(s, lse, c.scale * SL_LOG2_E, lane);
                if (!limited && hides) hide_earlier<M, N>(s, mine - query, 0.0f, lane);
                round_left<T, M, N>(a, s);
                pass_on<M, N / 2>(passed, a);
            }
        } else if (sees) {
            multiply_rows<T, W, M, N>(s, left, dout, lane);
        }
        wait_copies<1>();
        __syncthreads(); /* p is there, and the next queries */
        if (sees) {
            if (!has_dv)
                slopes<T, M, N>(a, s, passed, (const float *)(shared + B::delta_at) + buffer * B::queries, lane);
            multiply_columns<T, W, M, N / 2>(sum, a, has_dv ? dout : base + B::query_at + buffer * B::query_bytes,
                                             lane);
        }
        if (has_dv && will_see) multiply_rows<T, W, M, N>(s, left, base + B::query_at + other * B::query_bytes, lane);
        wait_copies<0>();
        __syncthreads(); /* everybody has left these buffers, the next dout is there */
        walk = after;
        sees = will_see;
    }

    float factor[M][2];
#pragma unroll
    for (int i = 0; i < 2 * M; i++) factor[i / 2][i % 2] = has_dv ? 1.0f : c.scale;
    const AttentionHeads &to = has_dv ? c.dv : c.dk;
    if (to.data != nullptr)
        store_warp_rows<T, W, M>(head_at<T>(to, at.batch, mine, at.head, c.width), to.row, c.keys - mine, c.width, sum,
                                 factor, shared + (has_dv ? 0 : B::key_bytes) + pair * B::pair_keys * Tile<W>::pitch,
                                 lane);
}

/* ---- by queries: dq ---- */

template <int W> struct ByQueries {
    static constexpr int warps = 4, threads = 32 * warps;
    static constexpr int m = W <= 128 ? 2 : 1; /* sixteens of queries per warp */
    static constexpr int warp_queries = 16 * m, queries = warps * warp_queries, keys = 32;
    static constexpr bool held = W <= 64; /* q and dout stay in registers */
    static constexpr int blocks = W <= 128 ? 2 : 1;
    static constexpr int key_bytes = keys * Tile<W>::pitch, query_bytes = queries * Tile<W>::pitch;
    static constexpr int shared_bytes = 2 * query_bytes + 4 * key_bytes;
};

/* Per row of a warp's tile. */
template <int M> struct RowNumbers {
    float lse2[M][2], delta[M][2];
};

template <int M>
__device__ __forceinline__ RowNumbers<M> load_numbers(const AttentionCall &c, const Place &at, int first, int lane)
{
    RowNumbers<M> r;
    int64_t row = ((int64_t)at.batch * c.query_heads + at.head) * c.rounded + first + lane / 4;
#pragma unroll
    for (int i = 0; i < 2 * M; i++) {
        r.lse2[i / 2][i % 2] = c.lse2[row + i * 8];
        r.delta[i / 2][i % 2] = c.delta[row + i * 8];
    }
    return r;
}

/* Keys and values from `first` on into one of the buffers. */
template <class T, int W>
__device__ __forceinline__ void load_keys(const AttentionCall &c, const Place &at, int first, shared_address to)
{
    using B = ByQueries<W>;
    int key_head = at.head / c.group, there = c.keys - first;
    load_tile<T, W, B::keys, B::threads>(to, head_at<T>(c.k, at.batch, first, key_head, c.width), c.k.row, there,
                                         c.width, threadIdx.x);
    load_tile<T, W, B::keys, B::threads>(to + B::key_bytes, head_at<T>(c.v, at.batch, first, key_head, c.width),
                                         c.v.row, there, c.width, threadIdx.x);
    commit_copies();
}

/* s[queries, keys] becomes ds = p (dp - delta). */
template <int M, int N>
__device__ __forceinline__ void row_slopes(float (&s)[M][N][4], const float (&dp)[M][N][4], const RowNumbers<M> &r,
                                           float factor)
{
#pragma unroll
    for (int i = 0; i < M * N * 4; i++) {
        int m = i / 4 / N, n = i / 4 % N, e = i % 4;
        s[m][n][e] = fast_exp2(fmaf(s[m][n][e], factor, -r.lse2[m][e / 2])) * (dp[m][n][e] - r.delta[m][e / 2]);
    }
}

/* The same of capped scores, times what the cap leaves of a score's slope. */
template <int M, int N>
__device__ __forceinline__ void capped_slopes(float (&s)[M][N][4], const float (&dp)[M][N][4], const RowNumbers<M> &r,
                                              const AttentionCall &c)
{
    const float factor = c.softcap * SL_LOG2_E;
#pragma unroll
    for (int i = 0; i < M * N * 4; i++) {
        int m = i / 4 / N, n = i / 4 % N, e = i % 4;
        float y = bent(c, s[m][n][e]), p = fast_exp2(fmaf(y, factor, -r.lse2[m][e / 2]));
        s[m][n][e] = p * (dp[m][n][e] - r.delta[m][e / 2]) * (1.0f - y * y);
    }
}

/* Those of keys that a query does not see are zero: causal, or past the last. */
template <int M, int N>
__device__ __forceinline__ void hide_slopes(float (&s)[M][N][4], int first_query, int first_key, bool causal, int keys,
                                            int lane)
{
#pragma unroll
    for (int i = 0; i < M * N * 4; i++) {
        int m = i / 4 / N, n = i / 4 % N, e = i % 4;
        int query = first_query + m * 16 + e / 2 * 8 + lane / 4, key = first_key + n * 8 + lane % 4 * 2 + e % 2;
        if (key >= keys || (causal && key > query)) s[m][n][e] = 0.0f;
    }
}

template <class T, int W, bool limited>
__global__ void __launch_bounds__(ByQueries<W>::threads, ByQueries<W>::blocks) query_kernel(AttentionCall c)
{
    using B = ByQueries<W>;
    constexpr int M = B::m, N = B::keys / 8;
    SL_DYNAMIC_SHARED(char, shared);
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    Place at = place_of(blockIdx.x, c.batches, c.query_heads);
    int first = (attention_tiles(c.queries, B::queries) - 1 - at.tile) * B::queries;
    int mine = first + warp * B::warp_queries;
    if (limited) c.keys = keys_there(c, at.batch);
    int seen = c.causal ? min(first + B::queries, c.keys) : c.keys;
    int steps = (seen + B::keys - 1) / B::keys;
    shared_address query_tile = shared_at(shared) + warp * B::warp_queries * Tile<W>::pitch;
    shared_address dout_tile = query_tile + B::query_bytes, key_tiles = shared_at(shared) + 2 * B::query_bytes;

    load_tile<T, W, B::queries, B::threads>(shared_at(shared), head_at<T>(c.q, at.batch, first, at.head, c.width),
                                            c.q.row, c.queries - first, c.width, threadIdx.x);
    load_tile<T, W, B::queries, B::threads>(shared_at(shared) + B::query_bytes,
                                            head_at<T>(c.dout, at.batch, first, at.head, c.width), c.dout.row,
                                            c.queries - first, c.width, threadIdx.x);
    const int begin = limited ? first_seen(c, at.batch, first) / B::keys : 0;
    load_keys<T, W>(c, at, begin * B::keys, key_tiles + begin % 2 * 2 * B::key_bytes);
    RowNumbers<M> numbers = load_numbers<M>(c, at, mine, lane);
    unsigned held_query[B::held ? W / 16 : 1][M][4], held_dout[B::held ? W / 16 : 1][M][4];
    if (B::held) {
        wait_copies<0>();
        __syncthreads();
#pragma unroll
        for (int i = 0; i < W / 16; i++) {
            load_left<W, M>(held_query[B::held ? i : 0], query_tile, i, lane);
            load_left<W, M>(held_dout[B::held ? i : 0], dout_tile, i, lane);
        }
    }

    int from[M][2], nearest = 0, furthest = 0; /* of the warp's queries: the first key of the first and of the last */
    if (limited) {
        see_rows<M>(from, c, at.batch, mine, lane);
        furthest = first_seen(c, at.batch, mine);
        nearest = first_seen(c, at.batch, mine + B::warp_queries - 1);
    }
    float dq[M][W / 8][4] = {};
    for (int step = begin; step < steps; step++) {
        wait_copies<0>();
        __syncthreads(); /* the tile has come, and everybody has left the other buffer */
        int key = step * B::keys;
        if (step + 1 < steps) load_keys<T, W>(c, at, key + B::keys, key_tiles + (step + 1) % 2 * 2 * B::key_bytes);
        if (c.causal && key >= mine + B::warp_queries) continue; /* after all of the warp's queries */
        if (limited && key + B::keys <= furthest) continue;      /* before what any of them sees */
        shared_address keys = key_tiles + step % 2 * 2 * B::key_bytes;
        float s[M][N][4], dp[M][N][4];
        if constexpr (B::held) {
            multiply_held<T, W, M, N>(s, held_query, keys, lane);
            multiply_held<T, W, M, N>(dp, held_dout, keys + B::key_bytes, lane);
        } else {
            multiply_rows<T, W, M, N>(s, query_tile, keys, lane);
            multiply_rows<T, W, M, N>(dp, dout_tile, keys + B::key_bytes, lane);
        }
        if (limited && c.softcap > 0.0f)
            capped_slopes<M, N>(s, dp, numbers, c);
        else
            row_slopes<M, N>(s, dp, numbers, c.scale * SL_LOG2_E);
        if (key + B::keys > c.keys || (c.causal && key + B::keys > mine + 1))
            hide_slopes<M, N>(s, mine, key, c.causal, c.keys, lane);
        if (limited && key < nearest) hide_past<M, N>(s, from, key, 0.0f, lane);
        unsigned ds[N / 2][M][4];
        round_left<T, M, N>(ds, s);
        multiply_columns<T, W, M, N / 2>(dq, ds, keys, lane);
    }

    float factor[M][2];
#pragma unroll
    for (int i = 0; i < 2 * M; i++) factor[i / 2][i % 2] = c.scale;
    store_warp_rows<T, W, M>(head_at<T>(c.dq, at.batch, mine, at.head, c.width), c.dq.row, c.queries - mine, c.width,
                             dq, factor, shared + warp * B::warp_queries * Tile<W>::pitch, lane);
}

/* ---- launches ---- */

template <class T, int W, bool limited> void launch_kernels(const AttentionCall &c, void *stream)
{
    using K = ByKeys<W>;
    using Q = ByQueries<W>;
    if (c.dk.data != nullptr || c.dv.data != nullptr) {
        unsigned blocks = (unsigned)(c.batches * c.key_heads * attention_tiles(c.keys, K::keys));
        SL_ALLOW_SHARED((key_kernel<T, W, limited>), K::shared_bytes);
        SL_LAUNCH((key_kernel<T, W, limited>), blocks, K::threads, K::shared_bytes, stream, c);
    }
    if (c.dq.data != nullptr) {
        unsigned blocks = (unsigned)(c.batches * c.query_heads * attention_tiles(c.queries, Q::queries));
        SL_ALLOW_SHARED((query_kernel<T, W, limited>), Q::shared_bytes);
        SL_LAUNCH((query_kernel<T, W, limited>), blocks, Q::threads, Q::shared_bytes, stream, c);
    }
}

template <class T, int W> void launch_backward(const AttentionCall &c, void *stream)
{
    (is_limited(c) ? launch_kernels<T, W, true> : launch_kernels<T, W, false>)(c, stream);
}

const struct {
    int width; /* heads up to it */
    void (*bf)(const AttentionCall &, void *), (*f)(const AttentionCall &, void *);
} launches[] = {
    { 32, launch_backward<bf16, 32>, launch_backward<f16, 32> },
    { 64, launch_backward<bf16, 64>, launch_backward<f16, 64> },
    { 96, launch_backward<bf16, 96>, launch_backward<f16, 96> },
    { 128, launch_backward<bf16, 128>, launch_backward<f16, 128> },
    { SL_ATTENTION_TENSOR_WIDTH, launch_backward<bf16, SL_ATTENTION_TENSOR_WIDTH>,
      launch_backward<f16, SL_ATTENTION_TENSOR_WIDTH> },
};
} // namespace SL_KERNELS

void sl_attention_backward_tensor(const AttentionCall &c, sl_form form, void *stream)
{
    int i = 0;
    while (launches[i].width < c.width) i++;
    (form == SL_FORM_BF16 ? launches[i].bf : launches[i].f)(c, stream);
}
