/* attention_rows.cuh: the softmax over rows of scores that a warp has in registers, a tile of keys at a time. */
#ifndef SL_BACKEND_CUDA_ATTENTION_ROWS_CUH
#define SL_BACKEND_CUDA_ATTENTION_ROWS_CUH

#include "backend/cuda/attention.cuh"
#include "backend/cuda/mma.cuh"

inline namespace SL_KERNELS
{
/* A score may exceed the row's reference by so many powers of two before sums are rescaled. exp2(8) leaves f16 its
 * range, and the rescaling, as much work as the softmax itself, becomes rare. */
constexpr float slack = 8.0f;

/* Per row of a warp's tile, two in each sixteen: the reference that exponents are taken from, in units of the scores,
 * and this lane's part of the sum. */
template <int M> struct Running {
    float top[M][2], sum[M][2];
};

/* Scores of keys from `first_key` on, in rows from `first_query` on, that are not seen: causal, or past the last. */
template <int M, int N>
__device__ __forceinline__ void hide(float (&s)[M][N][4], int first_query, int first_key, bool causal, int keys,
                                     int lane)
{
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int query = first_query + m * 16 + half * 8 + lane / 4;
            int seen = (causal ? min(query + 1, keys) : keys) - first_key - lane % 4 * 2;
#pragma unroll
            for (int i = 0; i < 2 * N; i++)
                if (i / 2 * 8 + i % 2 >= seen) s[m][i / 2][half * 2 + i % 2] = -INFINITY;
        }
}

/* The largest of a row, whose scores four lanes have. */
template <int N> __device__ __forceinline__ float row_max(const float (&s)[N][4], int half, float start)
{
    float most = start;
#pragma unroll
    for (int n = 0; n < N; n++) most = fmaxf(most, fmaxf(s[n][half * 2], s[n][half * 2 + 1]));
    most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
    return fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
}

/* Moves the references of rows that grew by more than the slack; each row decides for itself. False: no row of the
 * warp did; otherwise `shrink` is what sums so far are to be multiplied by, and those of exponentials are. */
template <int M, int N>
__device__ __forceinline__ bool raise_tops(Running<M> &run, float (&shrink)[M][2], const float (&s)[M][N][4],
                                           float factor)
{
    float most[M][2];
    bool grown = false;
#pragma unroll
    for (int i = 0; i < 2 * M; i++) {
        float &top = run.top[i / 2][i % 2], &to = most[i / 2][i % 2];
        to = row_max(s[i / 2], i % 2, top);
        if ((to - top) * fabsf(factor) <= slack)
            to = top;
        else
            grown = true; /* also from -infinity */
    }
    if (!__any_sync(0xffffffffu, grown)) return false;
#pragma unroll
    for (int i = 0; i < 2 * M; i++) {
        int m = i / 2, half = i % 2;
        shrink[m][half] =
            most[m][half] == run.top[m][half] ? 1.0f : fast_exp2((run.top[m][half] - most[m][half]) * factor);
        run.top[m][half] = most[m][half];
        run.sum[m][half] *= shrink[m][half];
    }
    return true;
}

template <int M, int C> __device__ __forceinline__ void shrink_rows(float (&out)[M][C][4], const float (&shrink)[M][2])
{
#pragma unroll
    for (int i = 0; i < M * C * 4; i++) out[i / 4 / C][i / 4 % C][i % 4] *= shrink[i / 4 / C][i % 4 / 2];
}

/* Scores become exponentials; their sum goes to the running one. */
template <int M, int N> __device__ __forceinline__ void soften(Running<M> &run, float (&s)[M][N][4], float factor)
{
#pragma unroll
    for (int i = 0; i < 2 * M; i++) {
        int m = i / 2, half = i % 2;
        float base = -run.top[m][half] * factor;
#pragma unroll
        for (int j = 0; j < 2 * N; j++) {
            float &x = s[m][j / 2][half * 2 + j % 2];
            x = fast_exp2(fmaf(x, factor, base));
            run.sum[m][half] += x;
        }
    }
}

/* The sums of whole rows: afterwards every lane of a row has it. */
template <int M> __device__ __forceinline__ void join_sums(Running<M> &run)
{
#pragma unroll
    for (int i = 0; i < 2 * M; i++) {
        float &sum = run.sum[i / 2][i % 2];
        sum += __shfl_xor_sync(0xffffffffu, sum, 1);
        sum += __shfl_xor_sync(0xffffffffu, sum, 2);
    }
}

/* scale: of the references, to those of scores. */
template <int M>
__device__ __forceinline__ void store_lse(const AttentionCall &c, const Place &at, const Running<M> &run, int first,
                                          int lane, float scale)
{
    float *lse = c.lse + ((int64_t)at.batch * c.query_heads + at.head) * c.queries;
#pragma unroll
    for (int i = 0; i < 2 * M; i++) {
        int query = first + i * 8 + lane / 4;
        if (lane % 4 == 0 && query < c.queries)
            lse[query] = run.top[i / 2][i % 2] * scale + logf(run.sum[i / 2][i % 2]);
    }
}
} // namespace SL_KERNELS

#endif
