/* elem.cuh: element types on the device: how they are stored, become floats and are rounded; vectors of them; picking
 * the kernel of a type; sums over warps and blocks; random words.
 *
 * bf16 and f16 are sixteen bits without arithmetic. Conversions give the bits of core/half.h for every pattern, NaN
 * with its payload included, on the GPU and in the emulation. */
#ifndef SL_BACKEND_CUDA_ELEM_CUH
#define SL_BACKEND_CUDA_ELEM_CUH

#include "backend/cuda/launch.cuh"

extern "C" {
#include "core/half.h"
#include "core/rng.h"
}

struct bf16 {
    uint16_t bits;
};

struct f16 {
    uint16_t bits;
};

inline namespace SL_KERNELS
{
/* ---- one element ---- */
__device__ __forceinline__ float to_float(float x)
{
    return x;
}

__device__ __forceinline__ float to_float(bf16 x)
{
    return __uint_as_float((unsigned)x.bits << 16);
}

__device__ __forceinline__ float to_float(f16 x)
{
#if defined(SL_CUDA_EMULATE)
    return sl_f16_to_float(x.bits);
#else
    if ((x.bits & 0x7fffu) > 0x7c00u) /* the instruction forgets what a NaN carries */
        return __uint_as_float((x.bits & 0x8000u) << 16 | 0x7fc00000u | (x.bits & 0x3ffu) << 13);
    float r;
    asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(x.bits));
    return r;
#endif
}

__device__ __forceinline__ uint16_t nan_to_bf16(float x)
{
    return (uint16_t)(__float_as_uint(x) >> 16 | 0x40u);
}

__device__ __forceinline__ uint16_t nan_to_f16(float x)
{
    unsigned b = __float_as_uint(x);
    return (uint16_t)((b >> 16 & 0x8000u) | 0x7e00u | (b >> 13 & 0x3ffu));
}

/* Two elements in one instruction: `low` in the lower half. A NaN among them is rare, and is asked for once for
 * both. */
template <class T> __device__ __forceinline__ unsigned round_pair(float low, float high);

template <> __device__ __forceinline__ unsigned round_pair<bf16>(float low, float high)
{
#if defined(SL_CUDA_EMULATE)
    return sl_float_to_bf16(low) | (unsigned)sl_float_to_bf16(high) << 16;
#else
    unsigned r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    if (low != low || high != high) {
        if (low != low) r = (r & 0xffff0000u) | nan_to_bf16(low);
        if (high != high) r = (r & 0xffffu) | (unsigned)nan_to_bf16(high) << 16;
    }
    return r;
#endif
}

template <> __device__ __forceinline__ unsigned round_pair<f16>(float low, float high)
{
#if defined(SL_CUDA_EMULATE)
    return sl_float_to_f16(low) | (unsigned)sl_float_to_f16(high) << 16;
#else
    unsigned r;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    if (low != low || high != high) {
        if (low != low) r = (r & 0xffff0000u) | nan_to_f16(low);
        if (high != high) r = (r & 0xffffu) | (unsigned)nan_to_f16(high) << 16;
    }
    return r;
#endif
}

/* Rounds to nearest even. */
template <class T> __device__ __forceinline__ T from_float(float x)
{
    return T{ (uint16_t)round_pair<T>(x, 0.0f) };
}

template <> __device__ __forceinline__ float from_float<float>(float x)
{
    return x;
}

/* ---- vectors ---- */
/* N elements, aligned to their size: one access where that is up to 16 bytes. */
template <class T, int N> struct alignas(sizeof(T) * N) Pack {
    T v[N];
};

/* Elements in 16 bytes. */
template <class T> constexpr int pack_elements = 16 / (int)sizeof(T);

/* The caller knows that p is aligned for it (aligned_for). */
template <class T, int N> __device__ __forceinline__ Pack<T, N> load_pack(const T *p)
{
    return *reinterpret_cast<const Pack<T, N> *>(p);
}

template <class T, int N> __device__ __forceinline__ void load_floats(const T *p, float (&x)[N])
{
    Pack<T, N> pack = load_pack<T, N>(p);
#pragma unroll
    for (int i = 0; i < N; i++) x[i] = to_float(pack.v[i]);
}

/* Sixteen-bit types are rounded in pairs: N is 1 or even. */
template <class T, int N> __device__ __forceinline__ void store_floats(T *p, const float (&x)[N])
{
    if constexpr (N == 1) {
        *p = from_float<T>(x[0]);
    } else if constexpr (sizeof(T) == sizeof(float)) {
        Pack<T, N> pack;
#pragma unroll
        for (int i = 0; i < N; i++) pack.v[i] = x[i];
        *reinterpret_cast<Pack<T, N> *>(p) = pack;
    } else {
        Pack<unsigned, N / 2> pack;
#pragma unroll
        for (int i = 0; i < N / 2; i++) pack.v[i] = round_pair<T>(x[2 * i], x[2 * i + 1]);
        *reinterpret_cast<Pack<unsigned, N / 2> *>(p) = pack;
    }
}

/* One element, adding in f32 to what is there where `accumulate` and rounding once. */
template <class T> __device__ __forceinline__ void put_or_add(T *p, float x, bool accumulate)
{
    if (accumulate) x = to_float(*p) + x;
    *p = from_float<T>(x);
}

template <class T, int N> __device__ __forceinline__ void put_or_add_floats(T *p, float (&x)[N], bool accumulate)
{
    if (accumulate) {
        float old[N];
        load_floats<T, N>(p, old);
#pragma unroll
        for (int i = 0; i < N; i++) x[i] = old[i] + x[i];
    }
    store_floats<T, N>(p, x);
}

/* ---- sums: trees whose shape the block's size fixes ---- */
/* Every lane gets the same bits. The whole warp takes part. */
__device__ __forceinline__ float warp_sum(float x)
{
#pragma unroll
    for (int other = 16; other > 0; other /= 2) x += __shfl_xor_sync(0xffffffffu, x, other);
    return x;
}

__device__ __forceinline__ float warp_max(float x)
{
#pragma unroll
    for (int other = 16; other > 0; other /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, other));
    return x;
}

/* The same over a block of `threads` (a multiple of 32): every thread gets it. Begins and ends so that it may be called
 * again at once. */
template <int threads> __device__ __forceinline__ float block_sum(float x)
{
    static_assert(threads % 32 == 0 && threads <= 1024, "whole warps");
    __shared__ float part[32];
    x = warp_sum(x);
    if (threads == 32) return x;
    __syncthreads();
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = x;
    __syncthreads();
    return warp_sum(threadIdx.x % 32 < threads / 32 ? part[threadIdx.x % 32] : 0.0f);
}

template <int threads> __device__ __forceinline__ float block_max(float x)
{
    static_assert(threads % 32 == 0 && threads <= 1024, "whole warps");
    __shared__ float part[32];
    x = warp_max(x);
    if (threads == 32) return x;
    __syncthreads();
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = x;
    __syncthreads();
    return warp_max(part[threadIdx.x % 32 < threads / 32 ? threadIdx.x % 32 : 0]);
}

/* ---- random words ---- */

/* Block `block` of core/rng.h's stream: Philox 4x32-10, as sl_rng_block of core/rng.c. It exists a second time because
 * masks of dropout are made in registers of the kernel that uses them, and rng.c is compiled for the host only.
 * tests/backend/ops_test.c compares the two: dropout of every backend (this one on the emulation, or a GPU) against the
 * masks that tests/support/op_reference.c makes with core/rng.c. */
__device__ __forceinline__ uint4 philox(const sl_rng &r, uint64_t block)
{
    unsigned c0 = (unsigned)block, c1 = r.counter[0], c2 = r.counter[1], c3 = r.counter[2];
    unsigned k0 = r.key[0], k1 = r.key[1] ^ (unsigned)(block >> 32) << 12;
#pragma unroll
    for (int round = 0; round < 10; round++) {
        unsigned high0 = __umulhi(0xD2511F53u, c0), low0 = 0xD2511F53u * c0;
        unsigned high1 = __umulhi(0xCD9E8D57u, c2), low1 = 0xCD9E8D57u * c2;
        c0 = high1 ^ c1 ^ k0;
        c1 = low1;
        c2 = high0 ^ c3 ^ k1;
        c3 = low0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return make_uint4(c0, c1, c2, c3);
}
} // namespace SL_KERNELS

/* ---- on the host ---- */
static inline bool accumulates(const sl_cuda_args *a, int output)
{
    return (a->attrs->accumulate >> output & 1u) != 0;
}

/* The last dimension: the length of a row. */
static inline int64_t row_width(const sl_cuda_tensor *t)
{
    return t->shape->rank > 0 ? t->shape->dim[t->shape->rank - 1] : 1;
}

static inline bool aligned_for(const void *p, size_t bytes)
{
    return (uintptr_t)p % bytes == 0;
}

/* f(float{}), f(bf16{}) or f(f16{}), by form:
 *     return sl_dispatch(sl_cuda_type(op, a), [&](auto element) { using T = decltype(element); ... }); */
template <class F> static inline sluice_status sl_dispatch(sl_form form, F f)
{
    if (form == SL_FORM_BF16) return f(bf16{});
    if (form == SL_FORM_F16) return f(f16{});
    return f(float{});
}

#endif
