/* contributions.cu: contributions of the ranks, added in rank order (exact rule 1). See contributions.h.
 *
 * One thread owns an element, or a pack of 16 bytes of contributions, and adds rank after rank in a register. Packs are
 * used where all addresses allow it; the bits are the same. */
#include "backend/cuda/elem.cuh"

#include "backend/cuda/contributions.h"

inline namespace SL_KERNELS
{
constexpr int block_threads = 256, blocks_per_multiprocessor = 8;

struct run {
    const char *own, *received;
    char *sum;
    uint64_t stride;
    int64_t packs;
    int rank, ranks;
    bool first;
};

/* Rank r's contribution to the run. */
template <class T> __device__ __forceinline__ const T *contribution(const run &w, int r)
{
    if (r == w.rank) return reinterpret_cast<const T *>(w.own);
    return reinterpret_cast<const T *>(w.received + (uint64_t)(r - (r > w.rank)) * w.stride);
}

/* The sum may lie where this rank's contribution does: all of a pack is read before it is written. */
template <class T, class S, int N> __device__ __forceinline__ void add_pack(const run &w, int64_t at)
{
    S *to = reinterpret_cast<S *>(w.sum) + at;
    float sum[N], x[N];
    load_floats<T, N>(contribution<T>(w, 0) + at, sum);
    if (!w.first) {
        load_floats<S, N>(to, x);
#pragma unroll
        for (int i = 0; i < N; i++) sum[i] = x[i] + sum[i];
    }
    for (int r = 1; r < w.ranks; r++) {
        load_floats<T, N>(contribution<T>(w, r) + at, x);
#pragma unroll
        for (int i = 0; i < N; i++) sum[i] += x[i];
    }
    store_floats<S, N>(to, sum);
}

template <class T, class S, int N> __global__ void __launch_bounds__(block_threads) add_packs(run w)
{
    int64_t step = (int64_t)gridDim.x * block_threads;
    for (int64_t i = (int64_t)blockIdx.x * block_threads + threadIdx.x; i < w.packs; i += step)
        add_pack<T, S, N>(w, i * N);
}

template <class T, class S, int N> void launch(void *stream, int multiprocessors, const run &w)
{
    int64_t blocks = (w.packs + block_threads - 1) / block_threads;
    int64_t most = (int64_t)(multiprocessors > 0 ? multiprocessors : 1) * blocks_per_multiprocessor;
    if (blocks == 0) return;
    SL_LAUNCH((add_packs<T, S, N>), (unsigned)(blocks < most ? blocks : most), block_threads, 0, stream, w);
}

/* The sums of a pack of 16-bit contributions take two accesses of 16 bytes where they are kept in f32. */
template <class S, int N> bool packs_lie_well(const sl_contributions *c)
{
    return aligned_for(c->own, 16) && aligned_for(c->received, 16) && c->stride % 16 == 0 &&
           aligned_for(c->sum, sizeof(S) * N);
}

template <class T, class S> sluice_status add(void *stream, int multiprocessors, const sl_contributions *c)
{
    constexpr int N = pack_elements<T>;
    int64_t packs = packs_lie_well<S, N>(c) ? c->elements / N : 0, rest = packs * N;
    run w = {
        (const char *)c->own, (const char *)c->received, (char *)c->sum, c->stride, packs, c->rank, c->ranks, c->first
    };
    launch<T, S, N>(stream, multiprocessors, w);
    w.own += rest * (int64_t)sizeof(T);
    w.received += rest * (int64_t)sizeof(T);
    w.sum += rest * (int64_t)sizeof(S);
    w.packs = c->elements - rest;
    launch<T, S, 1>(stream, multiprocessors, w);
    cudaError_t error = cudaGetLastError();
    if (error == cudaSuccess) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_FAILED, "adding contributions: kernel launch: %s", cudaGetErrorString(error));
}
} // namespace SL_KERNELS

extern "C" sluice_status sl_cuda_add_contributions(void *stream, int multiprocessors, const sl_contributions *c)
{
    return sl_dispatch(c->form, [&](auto element) {
        using T = decltype(element);
        if (c->sum_form == SL_FORM_F32) return add<T, float>(stream, multiprocessors, c);
        return add<T, T>(stream, multiprocessors, c);
    });
}
