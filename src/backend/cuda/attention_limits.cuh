/* attention_limits.cuh: which keys a query sees under a window and in documents, and scores under a soft cap.
 *
 * The first key that a query sees never decreases from query to query (a batch is checked for it). So the tiles of keys
 * of a tile of queries are a run that ends at the diagonal, and the tiles of queries of a tile of keys one that begins
 * there; what lies outside is never fetched. Inside, only tiles at the lower edge are masked. */
#ifndef SL_BACKEND_CUDA_ATTENTION_LIMITS_CUH
#define SL_BACKEND_CUDA_ATTENTION_LIMITS_CUH

#include "backend/cuda/attention.cuh"
#include "backend/cuda/mma.cuh"

/* Maxima begin with it where a query may see no key of its first tile: -infinity less -infinity is no number. */
#define SL_ATTENTION_LOWEST (-1e30f)

inline namespace SL_KERNELS
{
__host__ __device__ inline bool is_bounded(const AttentionCall &c)
{
    return c.window > 0 || c.positions != nullptr;
}

inline bool is_limited(const AttentionCall &c)
{
    return is_bounded(c) || c.softcap > 0.0f || c.lengths != nullptr;
}

/* Keys of a batch that any query sees: one at least, whatever its length says. */
__device__ __forceinline__ int keys_there(const AttentionCall &c, int batch)
{
    return c.lengths == nullptr ? c.keys : max(1, min(c.lengths[batch], c.keys));
}

/* The first key that a query sees: itself at the latest. Queries past the last see what that sees. */
__device__ __forceinline__ int first_seen(const AttentionCall &c, int batch, int query)
{
    int first = 0;
    query = min(query, c.queries - 1);
    if (c.window > 0) first = query - c.window + 1;
    if (c.positions != nullptr) first = max(first, query - c.positions[(int64_t)batch * c.queries + query]);
    return min(max(first, 0), query);
}

/* Where the run of tiles from `start` on ends whose query number `at` sees a key before `key`: the first tile that does
 * not, at most `tiles`. Every lane of a warp asks. */
__device__ __forceinline__ int tiles_that_see(const AttentionCall &c, int batch, int start, int tiles, int tile_queries,
                                              int at, int key)
{
    const int lane = threadIdx.x % 32;
    for (int tile = start; tile < tiles; tile += 32) {
        const bool in = tile + lane < tiles && first_seen(c, batch, (tile + lane) * tile_queries + at) < key;
        const unsigned all = __ballot_sync(0xffffffffu, in);
        if (all != 0xffffffffu) return tile + __popc(all);
    }
    return tiles;
}

/* Scores of keys before the first that a row's query sees, from[row]; keys from `first_key` on. */
template <int M, int N>
__device__ __forceinline__ void hide_past(float (&s)[M][N][4], const int (&from)[M][2], int first_key, float hidden,
                                          int lane)
{
#pragma unroll
    for (int i = 0; i < 2 * M; i++) {
        const int unseen = from[i / 2][i % 2] - first_key - lane % 4 * 2;
#pragma unroll
        for (int j = 0; j < 2 * N; j++)
            if (j / 2 * 8 + j % 2 < unseen) s[i / 2][j / 2][i % 2 * 2 + j % 2] = hidden;
    }
}

/* Of the rows of a warp's tile, two in each sixteen. */
template <int M>
__device__ __forceinline__ void see_rows(int (&from)[M][2], const AttentionCall &c, int batch, int first, int lane)
{
#pragma unroll
    for (int i = 0; i < 2 * M; i++) from[i / 2][i % 2] = first_seen(c, batch, first + i * 8 + lane / 4);
}

/* The same of scores [keys, queries]: keys of the warp's rows from `key` on, queries from `query` on. */
template <int M, int N>
__device__ __forceinline__ void hide_past_columns(float (&s)[M][N][4], const AttentionCall &c, int batch, int query,
                                                  int key, float hidden, int lane)
{
#pragma unroll
    for (int n = 0; n < 2 * N; n++) {
        const int unseen = first_seen(c, batch, query + n / 2 * 8 + lane % 4 * 2 + n % 2) - key - lane / 4;
#pragma unroll
        for (int i = 0; i < 2 * M; i++)
            if (i * 8 < unseen) s[i / 2][n / 2][i % 2 * 2 + n % 2] = hidden;
    }
}

/* Scores [keys, queries] of the warp's rows that lie beyond the first `there` of them. */
template <int M, int N> __device__ __forceinline__ void hide_rows(float (&s)[M][N][4], int there, int lane)
{
#pragma unroll
    for (int i = 0; i < 2 * M; i++)
        if (i * 8 + lane / 4 >= there)
#pragma unroll
            for (int n = 0; n < 2 * N; n++) s[i / 2][n / 2][i % 2 * 2 + n % 2] = -INFINITY;
}

/* tanh(score scale / softcap); its errors of some 1e-7 count as parts of the cap. */
__device__ __forceinline__ float bent(const AttentionCall &c, float score)
{
    return 1.0f - 2.0f / (fast_exp2(score * (c.scale / c.softcap * 2.0f * SL_LOG2_E)) + 1.0f);
}
} // namespace SL_KERNELS

#endif
