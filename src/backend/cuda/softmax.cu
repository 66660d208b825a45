/* softmax.cu: softmax over the last dimension, its logarithm, and their gradients. The row's maximum is subtracted first, so nothing
 * overflows. Rows are read again for each pass, from the cache where they are short: the exponentials are taken twice,
 * because a 16-bit output could not hold them between. The output may be an input's own memory: the passes that read a
 * row as a whole are over before it is written. */
#include "backend/cuda/elem.cuh"

inline namespace SL_KERNELS
{
constexpr int BLOCK = 256, WARP = 32;
constexpr int SHORT = 1024; /* rows up to this are one warp's; by width alone, as it fixes the order of sums */

/* Which threads share a row, and how they agree. */
template <int THREADS> struct Team {
    static __device__ int thread()
    {
        return (int)(threadIdx.x % THREADS);
    }
    static __device__ float sum(float x)
    {
        return THREADS == WARP ? warp_sum(x) : block_sum<THREADS>(x);
    }
    static __device__ float max(float x)
    {
        return THREADS == WARP ? warp_max(x) : block_max<THREADS>(x);
    }
};

/* N elements of a row from p[0], of which `left` are there. */
template <class T, int N, bool PACKS>
__device__ __forceinline__ void load_row(const T *p, int64_t left, float fill, float (&x)[N])
{
    if constexpr (PACKS) {
        load_floats<T, N>(p, x);
    } else {
#pragma unroll
        for (int i = 0; i < N; i++) x[i] = i < left ? to_float(p[i]) : fill;
    }
}

template <class T, int N, bool PACKS>
__device__ __forceinline__ void store_row(T *p, int64_t left, float (&x)[N], bool accumulate)
{
    if constexpr (PACKS) {
        put_or_add_floats<T, N>(p, x, accumulate);
    } else {
#pragma unroll
        for (int i = 0; i < N; i++)
            if (i < left) put_or_add(p + i, x[i], accumulate);
    }
}

/* NaN elements are passed over here; they show in the exponentials. */
template <class T, int THREADS, bool PACKS> __device__ __forceinline__ float row_max(const T *x, int64_t width)
{
    constexpr int N = pack_elements<T>;
    float top = -INFINITY;
#pragma unroll 4
    for (int64_t i = Team<THREADS>::thread() * N; i < width; i += THREADS * N) {
        float u[N];
        load_row<T, N, PACKS>(x + i, width - i, -INFINITY, u);
#pragma unroll
        for (int k = 0; k < N; k++) top = fmaxf(top, u[k]);
    }
    return Team<THREADS>::max(top);
}

template <class T, int THREADS, bool PACKS>
__device__ __forceinline__ float exponential_sum(const T *x, int64_t width, float top)
{
    constexpr int N = pack_elements<T>;
    float sum = 0.0f;
#pragma unroll 4
    for (int64_t i = Team<THREADS>::thread() * N; i < width; i += THREADS * N) {
        float u[N];
        load_row<T, N, PACKS>(x + i, width - i, 0.0f, u);
#pragma unroll
        for (int k = 0; k < N; k++)
            if (i + k < width) sum += expf(u[k] - top);
    }
    return Team<THREADS>::sum(sum);
}

template <class T, int THREADS, bool PACKS>
__global__ void __launch_bounds__(BLOCK) softmax_kernel(const T *x, T *y, int64_t rows, int64_t width)
{
    constexpr int N = pack_elements<T>, TEAMS = BLOCK / THREADS;
    for (int64_t row = (int64_t)blockIdx.x * TEAMS + threadIdx.x / THREADS; row < rows; row += gridDim.x * TEAMS) {
        const T *from = x + row * width;
        const float top = row_max<T, THREADS, PACKS>(from, width);
        const float factor = 1.0f / exponential_sum<T, THREADS, PACKS>(from, width, top);
        for (int64_t i = Team<THREADS>::thread() * N; i < width; i += THREADS * N) {
            float u[N];
            load_row<T, N, PACKS>(from + i, width - i, 0.0f, u);
#pragma unroll
            for (int k = 0; k < N; k++) u[k] = expf(u[k] - top) * factor;
            store_row<T, N, PACKS>(y + row * width + i, width - i, u, false);
        }
    }
}

template <class T, int THREADS, bool PACKS>
__device__ __forceinline__ float row_dot(const T *y, const T *dy, int64_t width)
{
    constexpr int N = pack_elements<T>;
    float sum = 0.0f;
#pragma unroll 4
    for (int64_t i = Team<THREADS>::thread() * N; i < width; i += THREADS * N) {
        float u[N], v[N];
        load_row<T, N, PACKS>(y + i, width - i, 0.0f, u);
        load_row<T, N, PACKS>(dy + i, width - i, 0.0f, v);
#pragma unroll
        for (int k = 0; k < N; k++)
            if (i + k < width) sum = __fmaf_rn(u[k], v[k], sum);
    }
    return Team<THREADS>::sum(sum);
}

/* dx = y (dy - sum(y dy)) */
template <class T, int THREADS, bool PACKS>
__global__ void __launch_bounds__(BLOCK)
    softmax_grad_kernel(const T *y, const T *dy, T *dx, int64_t rows, int64_t width, bool accumulate)
{
    constexpr int N = pack_elements<T>, TEAMS = BLOCK / THREADS;
    for (int64_t row = (int64_t)blockIdx.x * TEAMS + threadIdx.x / THREADS; row < rows; row += gridDim.x * TEAMS) {
        const int64_t at = row * width;
        const float dot = row_dot<T, THREADS, PACKS>(y + at, dy + at, width);
        for (int64_t i = Team<THREADS>::thread() * N; i < width; i += THREADS * N) {
            float u[N], v[N];
            load_row<T, N, PACKS>(y + at + i, width - i, 0.0f, u);
            load_row<T, N, PACKS>(dy + at + i, width - i, 0.0f, v);
#pragma unroll
            for (int k = 0; k < N; k++) u[k] *= v[k] - dot;
            store_row<T, N, PACKS>(dx + at + i, width - i, u, accumulate);
        }
    }
}

template <class T, int THREADS, bool PACKS>
__global__ void __launch_bounds__(BLOCK) log_softmax_kernel(const T *x, T *y, int64_t rows, int64_t width)
{
    constexpr int N = pack_elements<T>, TEAMS = BLOCK / THREADS;
    for (int64_t row = (int64_t)blockIdx.x * TEAMS + threadIdx.x / THREADS; row < rows; row += gridDim.x * TEAMS) {
        const T *from = x + row * width;
        const float top = row_max<T, THREADS, PACKS>(from, width);
        const float rest = logf(exponential_sum<T, THREADS, PACKS>(from, width, top));
        for (int64_t i = Team<THREADS>::thread() * N; i < width; i += THREADS * N) {
            float u[N];
            load_row<T, N, PACKS>(from + i, width - i, 0.0f, u);
#pragma unroll
            for (int k = 0; k < N; k++) u[k] = u[k] - top - rest;
            store_row<T, N, PACKS>(y + row * width + i, width - i, u, false);
        }
    }
}

template <class T, int THREADS, bool PACKS> __device__ __forceinline__ float row_sum(const T *x, int64_t width)
{
    constexpr int N = pack_elements<T>;
    float sum = 0.0f;
#pragma unroll 4
    for (int64_t i = Team<THREADS>::thread() * N; i < width; i += THREADS * N) {
        float u[N];
        load_row<T, N, PACKS>(x + i, width - i, 0.0f, u);
#pragma unroll
        for (int k = 0; k < N; k++) sum += u[k];
    }
    return Team<THREADS>::sum(sum);
}

/* dx = dy - softmax(x) sum(dy) */
template <class T, int THREADS, bool PACKS>
__global__ void __launch_bounds__(BLOCK)
    log_softmax_grad_kernel(const T *x, const T *dy, T *dx, int64_t rows, int64_t width, bool accumulate)
{
    constexpr int N = pack_elements<T>, TEAMS = BLOCK / THREADS;
    for (int64_t row = (int64_t)blockIdx.x * TEAMS + threadIdx.x / THREADS; row < rows; row += gridDim.x * TEAMS) {
        const int64_t at = row * width;
        const float top = row_max<T, THREADS, PACKS>(x + at, width);
        const float sum = exponential_sum<T, THREADS, PACKS>(x + at, width, top);
        const float factor = row_sum<T, THREADS, PACKS>(dy + at, width) / sum;
        for (int64_t i = Team<THREADS>::thread() * N; i < width; i += THREADS * N) {
            float u[N], v[N];
            load_row<T, N, PACKS>(x + at + i, width - i, 0.0f, u);
            load_row<T, N, PACKS>(dy + at + i, width - i, 0.0f, v);
#pragma unroll
            for (int k = 0; k < N; k++) v[k] = __fmaf_rn(-expf(u[k] - top), factor, v[k]);
            store_row<T, N, PACKS>(dx + at + i, width - i, v, accumulate);
        }
    }
}

template <class T, int THREADS, bool PACKS> void launch_log_softmax(const sl_cuda_args *a, int64_t rows, int64_t width)
{
    SL_LAUNCH((log_softmax_kernel<T, THREADS, PACKS>), sl_grid(a, rows, BLOCK / THREADS, 16), BLOCK, 0, a->stream,
              (const T *)a->in[0].data, (T *)a->out[0].data, rows, width);
}

template <class T, int THREADS, bool PACKS>
void launch_log_softmax_grad(const sl_cuda_args *a, int64_t rows, int64_t width)
{
    SL_LAUNCH((log_softmax_grad_kernel<T, THREADS, PACKS>), sl_grid(a, rows, BLOCK / THREADS, 16), BLOCK, 0, a->stream,
              (const T *)a->in[0].data, (const T *)a->in[1].data, (T *)a->out[0].data, rows, width, accumulates(a, 0));
}

template <class T, int THREADS, bool PACKS> void launch_softmax(const sl_cuda_args *a, int64_t rows, int64_t width)
{
    SL_LAUNCH((softmax_kernel<T, THREADS, PACKS>), sl_grid(a, rows, BLOCK / THREADS, 16), BLOCK, 0, a->stream,
              (const T *)a->in[0].data, (T *)a->out[0].data, rows, width);
}

template <class T, int THREADS, bool PACKS> void launch_softmax_grad(const sl_cuda_args *a, int64_t rows, int64_t width)
{
    SL_LAUNCH((softmax_grad_kernel<T, THREADS, PACKS>), sl_grid(a, rows, BLOCK / THREADS, 16), BLOCK, 0, a->stream,
              (const T *)a->in[0].data, (const T *)a->in[1].data, (T *)a->out[0].data, rows, width, accumulates(a, 0));
}

template <class T> bool in_packs(const sl_cuda_args *a, int64_t width)
{
    bool packs = width % pack_elements<T> == 0 && aligned_for(a->out[0].data, 16);
    for (int i = 0; i < a->input_count; i++) packs = packs && aligned_for(a->in[i].data, 16);
    return packs;
}
} // namespace SL_KERNELS

extern "C" {

SL_CUDA_KERNEL(softmax)
{
    const int64_t width = row_width(&a->in[0]), rows = a->in[0].elements / width;
    return sl_dispatch(sl_cuda_type(SL_OP_SOFTMAX, a), [&](auto element) {
        using T = decltype(element);
        const bool packs = in_packs<T>(a, width);
        if (width <= SHORT)
            packs ? launch_softmax<T, WARP, true>(a, rows, width) : launch_softmax<T, WARP, false>(a, rows, width);
        else
            packs ? launch_softmax<T, BLOCK, true>(a, rows, width) : launch_softmax<T, BLOCK, false>(a, rows, width);
        return sl_launched(a);
    });
}

SL_CUDA_KERNEL(softmax_grad)
{
    const int64_t width = row_width(&a->in[0]), rows = a->in[0].elements / width;
    return sl_dispatch(sl_cuda_type(SL_OP_SOFTMAX_GRAD, a), [&](auto element) {
        using T = decltype(element);
        const bool packs = in_packs<T>(a, width);
        if (width <= SHORT)
            packs ? launch_softmax_grad<T, WARP, true>(a, rows, width)
                  : launch_softmax_grad<T, WARP, false>(a, rows, width);
        else
            packs ? launch_softmax_grad<T, BLOCK, true>(a, rows, width)
                  : launch_softmax_grad<T, BLOCK, false>(a, rows, width);
        return sl_launched(a);
    });
}

SL_CUDA_KERNEL(log_softmax)
{
    const int64_t width = row_width(&a->in[0]), rows = a->in[0].elements / width;
    return sl_dispatch(sl_cuda_type(SL_OP_LOG_SOFTMAX, a), [&](auto element) {
        using T = decltype(element);
        const bool packs = in_packs<T>(a, width);
        if (width <= SHORT)
            packs ? launch_log_softmax<T, WARP, true>(a, rows, width)
                  : launch_log_softmax<T, WARP, false>(a, rows, width);
        else
            packs ? launch_log_softmax<T, BLOCK, true>(a, rows, width)
                  : launch_log_softmax<T, BLOCK, false>(a, rows, width);
        return sl_launched(a);
    });
}

SL_CUDA_KERNEL(log_softmax_grad)
{
    const int64_t width = row_width(&a->in[0]), rows = a->in[0].elements / width;
    return sl_dispatch(sl_cuda_type(SL_OP_LOG_SOFTMAX_GRAD, a), [&](auto element) {
        using T = decltype(element);
        const bool packs = in_packs<T>(a, width);
        if (width <= SHORT)
            packs ? launch_log_softmax_grad<T, WARP, true>(a, rows, width)
                  : launch_log_softmax_grad<T, WARP, false>(a, rows, width);
        else
            packs ? launch_log_softmax_grad<T, BLOCK, true>(a, rows, width)
                  : launch_log_softmax_grad<T, BLOCK, false>(a, rows, width);
        return sl_launched(a);
    });
}
}
