/* attention_forward.cu: attention on tensor cores.
 *
 * A block has a tile of queries of one head and walks over the keys that they see. Each of its warps has 16 or 32
 * queries for itself: scores, softmax and output stay in its registers. Keys and values come in tiles into two buffers,
 * one being filled while the other is used. */
#include "backend/cuda/attention_limits.cuh"
#include "backend/cuda/attention_rows.cuh"
#include "backend/cuda/mma.cuh"

inline namespace SL_KERNELS
{
/* W: the head width up to a multiple that is compiled. */
template <int W> struct Forward {
    static constexpr int warps = 4, threads = 32 * warps;
    static constexpr int m = W <= 128 ? 2 : 1; /* sixteens of queries per warp: what registers hold of the output */
    static constexpr int warp_queries = 16 * m, queries = warps * warp_queries, keys = 64;
    static constexpr bool held = W <= 32;                         /* queries stay in registers */
    static constexpr int blocks = W <= 64 ? 3 : W <= 128 ? 2 : 1; /* per multiprocessor, for the compiler */
    static constexpr int key_bytes = keys * Tile<W>::pitch, query_bytes = queries * Tile<W>::pitch;
    static constexpr int shared_bytes = query_bytes + 4 * key_bytes;
};

/* Keys and values from `first` on into one of the buffers. */
template <class T, int W>
__device__ __forceinline__ void load_keys(const AttentionCall &c, const Place &at, int first, shared_address to)
{
    using F = Forward<W>;
    int key_head = at.head / c.group, there = c.keys - first;
    load_tile<T, W, F::keys, F::threads>(to, head_at<T>(c.k, at.batch, first, key_head, c.width), c.k.row, there,
                                         c.width, threadIdx.x);
    load_tile<T, W, F::keys, F::threads>(to + F::key_bytes, head_at<T>(c.v, at.batch, first, key_head, c.width),
                                         c.v.row, there, c.width, threadIdx.x);
    commit_copies();
}

template <int M, int N> __device__ __forceinline__ void cap(float (&s)[M][N][4], const AttentionCall &c)
{
#pragma unroll
    for (int i = 0; i < M * N * 4; i++) {
        float &x = s[i / 4 / N][i / 4 % N][i % 4];
        x = c.softcap * bent(c, x);
    }
}

template <class T, int W, bool limited>
__global__ void __launch_bounds__(Forward<W>::threads, Forward<W>::blocks) forward_kernel(AttentionCall c)
{
    using F = Forward<W>;
    constexpr int M = F::m, N = F::keys / 8;
    SL_DYNAMIC_SHARED(char, shared);
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    Place at = place_of(blockIdx.x, c.batches, c.query_heads);
    int first = (attention_tiles(c.queries, F::queries) - 1 - at.tile) * F::queries;
    int mine = first + warp * F::warp_queries; /* the warp's first query */
    if (limited) c.keys = keys_there(c, at.batch);
    int seen = c.causal ? min(first + F::queries, c.keys) : c.keys;
    int steps = (seen + F::keys - 1) / F::keys;
    shared_address query_tile = shared_at(shared) + warp * F::warp_queries * Tile<W>::pitch;
    shared_address key_tiles = shared_at(shared) + F::query_bytes;

    load_tile<T, W, F::queries, F::threads>(shared_at(shared), head_at<T>(c.q, at.batch, first, at.head, c.width),
                                            c.q.row, c.queries - first, c.width, threadIdx.x);
    const int begin = limited ? first_seen(c, at.batch, first) / F::keys : 0;
    load_keys<T, W>(c, at, begin * F::keys, key_tiles + begin % 2 * 2 * F::key_bytes);
    unsigned held[F::held ? W / 16 : 1][M][4];
    if (F::held) {
        wait_copies<0>();
        __syncthreads();
#pragma unroll
        for (int i = 0; i < W / 16; i++) load_left<W, M>(held[F::held ? i : 0], query_tile, i, lane);
    }

    const float scale = limited && c.softcap > 0.0f ? 1.0f : c.scale;
    float out[M][W / 8][4] = {}, factor = scale * SL_LOG2_E;
    int from[M][2], nearest = 0, furthest = 0; /* of the warp's queries: the first key of the first and of the last */
    if (limited) {
        see_rows<M>(from, c, at.batch, mine, lane);
        furthest = first_seen(c, at.batch, mine);
        nearest = first_seen(c, at.batch, mine + F::warp_queries - 1);
    }
    Running<M> run;
#pragma unroll
    for (int i = 0; i < 2 * M; i++)
        run.top[i / 2][i % 2] = limited ? SL_ATTENTION_LOWEST : -INFINITY, run.sum[i / 2][i % 2] = 0.0f;
    for (int step = begin; step < steps; step++) {
        wait_copies<0>();
        __syncthreads(); /* the tile has come, and everybody has left the other buffer */
        int key = step * F::keys;
        if (step + 1 < steps) load_keys<T, W>(c, at, key + F::keys, key_tiles + (step + 1) % 2 * 2 * F::key_bytes);
        if (c.causal && key >= mine + F::warp_queries) continue; /* after all of the warp's queries */
        if (limited && key + F::keys <= furthest) continue;      /* before what any of them sees */
        shared_address keys = key_tiles + step % 2 * 2 * F::key_bytes;
        float s[M][N][4];
        if constexpr (F::held)
            multiply_held<T, W, M, N>(s, held, keys, lane);
        else
            multiply_rows<T, W, M, N>(s, query_tile, keys, lane);
        if (limited && c.softcap > 0.0f) cap<M, N>(s, c);
        if (key + F::keys > c.keys || (c.causal && key + F::keys > mine + 1))
            hide<M, N>(s, mine, key, c.causal, c.keys, lane);
        if (limited && key < nearest) hide_past<M, N>(s, from, key, -INFINITY, lane);
        float shrink[M][2];
        if (raise_tops<M, N>(run, shrink, s, factor)) shrink_rows<M, W / 8>(out, shrink);
        soften<M, N>(run, s, factor);
        unsigned p[N / 2][M][4];
        round_left<T, M, N>(p, s);
        multiply_columns<T, W, M, N / 2>(out, p, keys + F::key_bytes, lane);
    }

    join_sums(run);
    store_lse(c, at, run, mine, lane, scale);
#pragma unroll
    for (int i = 0; i < 2 * M; i++) run.sum[i / 2][i % 2] = 1.0f / run.sum[i / 2][i % 2];
    store_warp_rows<T, W, M>(head_at<T>(c.out, at.batch, mine, at.head, c.width), c.out.row, c.queries - mine, c.width,
                             out, run.sum, shared + warp * F::warp_queries * Tile<W>::pitch, lane);
}

template <class T, int W, bool limited> void launch_kernel(const AttentionCall &c, void *stream)
{
    using F = Forward<W>;
    unsigned blocks = (unsigned)(c.batches * c.query_heads * attention_tiles(c.queries, F::queries));
    SL_ALLOW_SHARED((forward_kernel<T, W, limited>), F::shared_bytes);
    SL_LAUNCH((forward_kernel<T, W, limited>), blocks, F::threads, F::shared_bytes, stream, c);
}

template <class T, int W> void launch_forward(const AttentionCall &c, void *stream)
{
    (is_limited(c) ? launch_kernel<T, W, true> : launch_kernel<T, W, false>)(c, stream);
}

const struct {
    int width; /* heads up to it */
    void (*bf)(const AttentionCall &, void *), (*f)(const AttentionCall &, void *);
} launches[] = {
    { 32, launch_forward<bf16, 32>, launch_forward<f16, 32> },
    { 64, launch_forward<bf16, 64>, launch_forward<f16, 64> },
    { 96, launch_forward<bf16, 96>, launch_forward<f16, 96> },
    { 128, launch_forward<bf16, 128>, launch_forward<f16, 128> },
    { SL_ATTENTION_TENSOR_WIDTH, launch_forward<bf16, SL_ATTENTION_TENSOR_WIDTH>,
      launch_forward<f16, SL_ATTENTION_TENSOR_WIDTH> },
};
} // namespace SL_KERNELS

void sl_attention_forward_tensor(const AttentionCall &c, sl_form form, void *stream)
{
    int i = 0;
    while (launches[i].width < c.width) i++;
    (form == SL_FORM_BF16 ? launches[i].bf : launches[i].f)(c, stream);
}
