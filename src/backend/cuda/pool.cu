/* pool.cu: pooling of images [N, H, W, C]. A thread makes some channels of one place; sums go over windows, or over the
 * windows that see a place, in row order: gradients are gathered, so nothing is added in an order that varies.
 *
 * The gradient of the largest first notes for each window which place won, a byte each, in the workspace: a place is
 * seen by several windows, and would have to look at all of each. */
#include <type_traits>

#include "backend/cuda/elem.cuh"
#include "backend/cuda/pool_size.h"

inline namespace SL_KERNELS
{
constexpr int threads = 256;

struct Pool {
    int64_t n, h, w, c, p, q; /* x[n,h,w,c] gives y[n,p,q,c] */
    int64_t kernel_h, kernel_w, stride_h, stride_w, padding_h, padding_w;
    bool include_padding;
};

/* Of one dimension: the places first.. up to end of x that window i sees; `padded` counts those of the padding too. */
struct Window {
    int64_t begin, first, end, padded;
};

__device__ __forceinline__ Window window_of(int64_t i, int64_t kernel, int64_t stride, int64_t padding, int64_t size)
{
    Window w;
    w.begin = i * stride - padding;
    w.padded = min(w.begin + kernel, size + padding) - w.begin;
    w.first = max(w.begin, (int64_t)0);
    w.end = min(w.begin + kernel, size);
    return w;
}

/* Of numbers that are not negative. 64 bits are divided in a hundred instructions, 32 in a dozen. */
__device__ __forceinline__ int64_t quotient(int64_t a, int64_t b)
{
    return ((a | b) >> 32) == 0 ? (int64_t)((uint32_t)a / (uint32_t)b) : a / b;
}

/* Windows first.. up to end of `count` see place i. */
struct Range {
    int64_t first, end;
};

__device__ __forceinline__ Range windows_on(int64_t i, int64_t kernel, int64_t stride, int64_t padding, int64_t count)
{
    const int64_t at = i + padding, before = at - kernel + 1;
    return Range{ before > 0 ? quotient(before + stride - 1, stride) : 0, min(quotient(at, stride) + 1, count) };
}

/* Item e is some channels of a place of images that are `height` by `width`. */
struct Place {
    int64_t n, i, j, channel;
};

template <int N, class I> __device__ __forceinline__ Place place_of(I e, int64_t height, int64_t width, int64_t c)
{
    const I vectors = (I)(c / N), row = e / vectors, w = (I)width, h = (I)height;
    return Place{ (int64_t)(row / w / h), (int64_t)(row / w % h), (int64_t)(row % w), (int64_t)(e % vectors) * N };
}

/* Element of images with `height` by `width` places. */
__device__ __forceinline__ int64_t at(int64_t n, int64_t i, int64_t j, int64_t channel, int64_t height, int64_t width,
                                      int64_t c)
{
    return ((n * height + i) * width + j) * c + channel;
}

/* The largest of a window and its place there, which counts from the window's begin: of equal ones the first, NaN before
 * all others, of several the last. */
template <class T, int N, class K>
__device__ __forceinline__ void find_largest(const T *x, const Pool &p, const Place &o, float (&best)[N], K (&place)[N])
{
    const Window h = window_of(o.i, p.kernel_h, p.stride_h, p.padding_h, p.h);
    const Window w = window_of(o.j, p.kernel_w, p.stride_w, p.padding_w, p.w);
#pragma unroll
    for (int k = 0; k < N; k++) {
        best[k] = -INFINITY;
        place[k] = (K)((h.first - h.begin) * p.kernel_w + w.first - w.begin);
    }
    for (int64_t i = h.first; i < h.end; i++) {
        for (int64_t j = w.first; j < w.end; j++) {
            float v[N];
            load_floats<T, N>(x + at(o.n, i, j, o.channel, p.h, p.w, p.c), v);
            const K here = (K)((i - h.begin) * p.kernel_w + j - w.begin);
#pragma unroll
            for (int k = 0; k < N; k++) {
                if (v[k] > best[k] || v[k] != v[k]) {
                    best[k] = v[k];
                    place[k] = here;
                }
            }
        }
    }
}

template <class T, int N, class I>
__global__ void __launch_bounds__(threads) largest_kernel(const T *x, Pool p, I items, T *y)
{
    for (I e = (I)blockIdx.x * threads + threadIdx.x; e < items; e += (I)gridDim.x * threads) {
        float best[N];
        int place[N]; /* nobody asks */
        find_largest<T, N>(x, p, place_of<N>(e, p.p, p.q, p.c), best, place);
        store_floats<T, N>(y + (int64_t)e * N, best);
    }
}

/* J: names places. */
template <class T, int N, class I, class J>
__global__ void __launch_bounds__(threads) note_kernel(const T *x, Pool p, I items, J *places)
{
    for (I e = (I)blockIdx.x * threads + threadIdx.x; e < items; e += (I)gridDim.x * threads) {
        float best[N];
        typename std::conditional<sizeof(J) == 1, int, int64_t>::type place[N];
        Pack<J, N> pack;
        find_largest<T, N>(x, p, place_of<N>(e, p.p, p.q, p.c), best, place);
#pragma unroll
        for (int k = 0; k < N; k++) pack.v[k] = (J)place[k];
        *reinterpret_cast<Pack<J, N> *>(places + (int64_t)e * N) = pack;
    }
}

template <class T, int N, class I, class J>
__global__ void __launch_bounds__(threads)
    largest_grad_kernel(const J *places, const T *dy, Pool p, I items, bool accumulate, T *dx)
{
    for (I e = (I)blockIdx.x * threads + threadIdx.x; e < items; e += (I)gridDim.x * threads) {
        const Place o = place_of<N>(e, p.h, p.w, p.c);
        const Range down = windows_on(o.i, p.kernel_h, p.stride_h, p.padding_h, p.p);
        const Range across = windows_on(o.j, p.kernel_w, p.stride_w, p.padding_w, p.q);
        float sum[N] = {};
        for (int64_t i = down.first; i < down.end; i++) {
            for (int64_t j = across.first; j < across.end; j++) {
                const int64_t from = at(o.n, i, j, o.channel, p.p, p.q, p.c);
                const int64_t here =
                    (o.i + p.padding_h - i * p.stride_h) * p.kernel_w + o.j + p.padding_w - j * p.stride_w;
                const Pack<J, N> won = load_pack<J, N>(places + from);
                float v[N];
                load_floats<T, N>(dy + from, v);
#pragma unroll
                for (int k = 0; k < N; k++) sum[k] += won.v[k] == (J)here ? v[k] : 0.0f;
            }
        }
        put_or_add_floats<T, N>(dx + (int64_t)e * N, sum, accumulate);
    }
}

/* ---- windows of 3 x 3, every second place, one place of padding: the stem of a ResNet ----
 *
 * The same sums in the same order as above. All loads of a thread are known before it runs, so that they are under way
 * together; and in the gradient a thread makes the 2 x 2 places from (2i, 2j) on, which no windows see but those of (i, j),
 * (i, j + 1), (i + 1, j) and (i + 1, j + 1), each loaded once. */

/* Item e is some channels of the window or the 2 x 2 places at (i, j), of `height` by `width` of these. */
struct Item {
    int n, i, j, channel;
};

template <int N> __device__ __forceinline__ Item item_of(uint32_t e, int height, int width, int c)
{
    const uint32_t vectors = (uint32_t)(c / N), row = e / vectors, w = (uint32_t)width, h = (uint32_t)height;
    return Item{ (int)(row / w / h), (int)(row / w % h), (int)(row % w), (int)(e % vectors) * N };
}

template <class T, int N>
__device__ __forceinline__ void find_largest_of_9(const T *x, const Pool &p, const Item &o, float (&best)[N],
                                                  int (&place)[N])
{
    const int h = (int)p.h, w = (int)p.w, c = (int)p.c, top = 2 * o.i - 1, left = 2 * o.j - 1;
    const T *from =
        x + (((int64_t)o.n * h + top) * w + left) * c + o.channel; /* may be before x: then it is not read */
    Pack<T, N> seen[9];
#pragma unroll
    for (int k = 0; k < 9; k++)
        if ((unsigned)(top + k / 3) < (unsigned)h && (unsigned)(left + k % 3) < (unsigned)w)
            seen[k] = load_pack<T, N>(from + (int64_t)(k / 3 * w + k % 3) * c);
#pragma unroll
    for (int k = 0; k < N; k++) {
        best[k] = -INFINITY;
        place[k] = (top < 0 ? 3 : 0) + (left < 0 ? 1 : 0);
    }
#pragma unroll
    for (int k = 0; k < 9; k++) {
        if ((unsigned)(top + k / 3) >= (unsigned)h || (unsigned)(left + k % 3) >= (unsigned)w) continue;
#pragma unroll
        for (int m = 0; m < N; m++) {
            const float v = to_float(seen[k].v[m]);
            if (v > best[m] || v != v) {
                best[m] = v;
                place[m] = k;
            }
        }
    }
}

template <class T, int N>
__global__ void __launch_bounds__(threads) largest_of_9_kernel(const T *x, Pool p, uint32_t items, T *y)
{
    for (uint32_t e = blockIdx.x * threads + threadIdx.x; e < items; e += gridDim.x * threads) {
        float best[N];
        int place[N]; /* nobody asks */
        find_largest_of_9<T, N>(x, p, item_of<N>(e, (int)p.p, (int)p.q, (int)p.c), best, place);
        store_floats<T, N>(y + (int64_t)e * N, best);
    }
}

template <class T, int N>
__global__ void __launch_bounds__(threads) note_9_kernel(const T *x, Pool p, uint32_t items, uint8_t *places)
{
    for (uint32_t e = blockIdx.x * threads + threadIdx.x; e < items; e += gridDim.x * threads) {
        float best[N];
        int place[N];
        Pack<uint8_t, N> pack;
        find_largest_of_9<T, N>(x, p, item_of<N>(e, (int)p.p, (int)p.q, (int)p.c), best, place);
#pragma unroll
        for (int k = 0; k < N; k++) pack.v[k] = (uint8_t)place[k];
        *reinterpret_cast<Pack<uint8_t, N> *>(places + (int64_t)e * N) = pack;
    }
}

template <class T, int N>
__global__ void __launch_bounds__(threads)
    largest_of_9_grad_kernel(const uint8_t *places, const T *dy, Pool p, uint32_t items, bool accumulate, T *dx)
{
    const int h = (int)p.h, w = (int)p.w, c = (int)p.c, down = (int)p.p, across = (int)p.q;
    for (uint32_t e = blockIdx.x * threads + threadIdx.x; e < items; e += gridDim.x * threads) {
        const Item o = item_of<N>(e, (h + 1) / 2, (w + 1) / 2, c);
        Pack<uint8_t, N> won[4];
        Pack<T, N> given[4];
#pragma unroll
        for (int k = 0; k < 4; k++) { /* windows (i + k / 2, j + k % 2) */
            if (o.i + k / 2 >= down || o.j + k % 2 >= across) continue;
            const int64_t from = (((int64_t)o.n * down + o.i + k / 2) * across + o.j + k % 2) * c + o.channel;
            won[k] = load_pack<uint8_t, N>(places + from);
            given[k] = load_pack<T, N>(dy + from);
        }
#pragma unroll
        for (int at = 0; at < 4; at++) { /* places (2i + at / 2, 2j + at % 2) */
            const int i = 2 * o.i + at / 2, j = 2 * o.j + at % 2;
            float sum[N] = {};
            if (i >= h || j >= w) continue;
#pragma unroll
            for (int k = 0; k < 4; k++) {
                const int row = at / 2 + 1 - 2 * (k / 2), column = at % 2 + 1 - 2 * (k % 2); /* of the window */
                if (row < 0 || column < 0 || o.i + k / 2 >= down || o.j + k % 2 >= across) continue;
#pragma unroll
                for (int m = 0; m < N; m++) sum[m] += won[k].v[m] == 3 * row + column ? to_float(given[k].v[m]) : 0.0f;
            }
            put_or_add_floats<T, N>(dx + (((int64_t)o.n * h + i) * w + j) * c + o.channel, sum, accumulate);
        }
    }
}

/* By how much the sum of a window is divided. */
__device__ __forceinline__ float divisor(const Pool &p, const Window &h, const Window &w)
{
    return p.include_padding ? (float)(h.padded * w.padded) : (float)((h.end - h.first) * (w.end - w.first));
}

template <class T, int N, class I>
__global__ void __launch_bounds__(threads) average_kernel(const T *x, Pool p, I items, T *y)
{
    for (I e = (I)blockIdx.x * threads + threadIdx.x; e < items; e += (I)gridDim.x * threads) {
        const Place o = place_of<N>(e, p.p, p.q, p.c);
        const Window h = window_of(o.i, p.kernel_h, p.stride_h, p.padding_h, p.h);
        const Window w = window_of(o.j, p.kernel_w, p.stride_w, p.padding_w, p.w);
        float sum[N] = {};
        for (int64_t i = h.first; i < h.end; i++) {
            for (int64_t j = w.first; j < w.end; j++) {
                float v[N];
                load_floats<T, N>(x + at(o.n, i, j, o.channel, p.h, p.w, p.c), v);
#pragma unroll
                for (int k = 0; k < N; k++) sum[k] += v[k];
            }
        }
#pragma unroll
        for (int k = 0; k < N; k++) sum[k] /= divisor(p, h, w);
        store_floats<T, N>(y + (int64_t)e * N, sum);
    }
}

template <class T, int N, class I>
__global__ void __launch_bounds__(threads) average_grad_kernel(const T *dy, Pool p, I items, bool accumulate, T *dx)
{
    for (I e = (I)blockIdx.x * threads + threadIdx.x; e < items; e += (I)gridDim.x * threads) {
        const Place o = place_of<N>(e, p.h, p.w, p.c);
        const Range down = windows_on(o.i, p.kernel_h, p.stride_h, p.padding_h, p.p);
        const Range across = windows_on(o.j, p.kernel_w, p.stride_w, p.padding_w, p.q);
        float sum[N] = {};
        for (int64_t i = down.first; i < down.end; i++) {
            for (int64_t j = across.first; j < across.end; j++) {
                const Window h = window_of(i, p.kernel_h, p.stride_h, p.padding_h, p.h);
                const Window w = window_of(j, p.kernel_w, p.stride_w, p.padding_w, p.w);
                float v[N];
                load_floats<T, N>(dy + at(o.n, i, j, o.channel, p.p, p.q, p.c), v);
#pragma unroll
                for (int k = 0; k < N; k++) sum[k] += v[k] / divisor(p, h, w);
            }
        }
        put_or_add_floats<T, N>(dx + (int64_t)e * N, sum, accumulate);
    }
}

constexpr int lanes = 32, rows_beside = 8;

/* Block (x, y): 32 threads' channels of image y. Thread (x, y) sums places y, y + 8, .., then the eight sums in order. */
template <class T, int N>
__global__ void __launch_bounds__(lanes *rows_beside)
    global_kernel(const T *x, int64_t images, int64_t places, int64_t c, T *y)
{
    __shared__ float sums[rows_beside][N][lanes];
    const int64_t channel = ((int64_t)blockIdx.x * lanes + threadIdx.x) * N;
    for (int64_t n = blockIdx.y; n < images; n += gridDim.y) {
        float sum[N] = {};
        if (channel < c) {
#pragma unroll 4
            for (int64_t i = threadIdx.y; i < places; i += rows_beside) {
                float v[N];
                load_floats<T, N>(x + (n * places + i) * c + channel, v);
#pragma unroll
                for (int k = 0; k < N; k++) sum[k] += v[k];
            }
        }
#pragma unroll
        for (int k = 0; k < N; k++) sums[threadIdx.y][k][threadIdx.x] = sum[k];
        __syncthreads();
        if (threadIdx.y == 0 && channel < c) {
#pragma unroll
            for (int k = 0; k < N; k++) {
                for (int i = 1; i < rows_beside; i++) sum[k] += sums[i][k][threadIdx.x];
                sum[k] /= (float)places;
            }
            store_floats<T, N>(y + n * c + channel, sum);
        }
        __syncthreads();
    }
}

template <class T, int N, class I>
__global__ void __launch_bounds__(threads)
    global_grad_kernel(const T *dy, int64_t places, int64_t c, I items, bool accumulate, T *dx)
{
    const I vectors = (I)(c / N);
    for (I e = (I)blockIdx.x * threads + threadIdx.x; e < items; e += (I)gridDim.x * threads) {
        const int64_t n = (int64_t)(e / vectors / (I)places);
        float v[N];
        load_floats<T, N>(dy + n * c + (int64_t)(e % vectors) * N, v);
#pragma unroll
        for (int k = 0; k < N; k++) v[k] /= (float)places;
        put_or_add_floats<T, N>(dx + (int64_t)e * N, v, accumulate);
    }
}

/* ---- on the host ---- */

Pool pool_of(const sl_cuda_args *a, const sl_cuda_tensor *x, const sl_cuda_tensor *y)
{
    const sl_shape *from = x->shape, *to = y->shape;
    const auto &o = a->attrs->pool;
    return Pool{ from->dim[0], from->dim[1], from->dim[2], from->dim[3], to->dim[1],  to->dim[2],       o.kernel_h,
                 o.kernel_w,   o.stride_h,   o.stride_w,   o.padding_h,  o.padding_w, o.include_padding };
}

/* f(n, I{}) for all elements of `items`: n, a constant, channels at a time, 16 bytes of them where the channels come in
 * such; I counts the items. */
template <class T, class F>
sluice_status by_items(int64_t c, const sl_cuda_tensor *items, const sl_cuda_tensor *other, F f)
{
    constexpr int N = pack_elements<T>;
    constexpr int64_t small = (int64_t)1 << 30; /* items that 32 bits count */
    const bool wide = c % N == 0 && aligned_for(items->data, 16) && aligned_for(other->data, 16);
    const bool few = items->elements < small;
    if (wide && few) return f(std::integral_constant<int, N>{}, (uint32_t)0);
    if (wide) return f(std::integral_constant<int, N>{}, (int64_t)0);
    if (few) return f(std::integral_constant<int, 1>{}, (uint32_t)0);
    return f(std::integral_constant<int, 1>{}, (int64_t)0);
}

unsigned grid_of(const sl_cuda_args *a, int64_t items)
{
    return sl_grid(a, items, threads, 32);
}

/* Whether `x`, the larger side, and `y` can take the kernels for windows of 3 x 3: then 16 bytes of channels at a time. */
template <class T> bool takes_9(const Pool &p, const sl_cuda_tensor *x, const sl_cuda_tensor *y)
{
    const bool small = x->elements < (int64_t)1 << 30, wide = p.c % pack_elements<T> == 0;
    const bool windows = p.kernel_h == 3 && p.kernel_w == 3 && p.stride_h == 2 && p.stride_w == 2 && p.padding_h == 1 &&
                         p.padding_w == 1;
    return windows && small && wide && aligned_for(x->data, 16) && aligned_for(y->data, 16);
}

template <class T> sluice_status largest_of_9_grad(const sl_cuda_args *a, const Pool &p)
{
    constexpr int N = pack_elements<T>;
    const uint32_t windows = (uint32_t)(a->in[1].elements / N);
    const uint32_t squares = (uint32_t)(p.n * ((p.h + 1) / 2) * ((p.w + 1) / 2) * (p.c / N));
    uint8_t *places = static_cast<uint8_t *>(a->workspace);
    SL_LAUNCH((note_9_kernel<T, N>), grid_of(a, windows), threads, 0, a->stream, static_cast<const T *>(a->in[0].data),
              p, windows, places);
    SL_TRY(sl_launched(a));
    SL_LAUNCH((largest_of_9_grad_kernel<T, N>), grid_of(a, squares), threads, 0, a->stream, places,
              static_cast<const T *>(a->in[1].data), p, squares, accumulates(a, 0), static_cast<T *>(a->out[0].data));
    return sl_launched(a);
}

template <class J> sluice_status largest_grad(const sl_cuda_args *a)
{
    const Pool p = pool_of(a, &a->in[0], &a->in[1]);
    J *places = static_cast<J *>(a->workspace);
    return sl_dispatch(sl_cuda_type(SL_OP_MAX_POOL2D_GRAD, a), [&](auto element) {
        using T = decltype(element);
        const T *x = static_cast<const T *>(a->in[0].data), *dy = static_cast<const T *>(a->in[1].data);
        if (takes_9<T>(p, &a->in[0], &a->in[1]) && aligned_for(a->out[0].data, 16)) return largest_of_9_grad<T>(a, p);
        SL_TRY(by_items<T>(p.c, &a->in[1], &a->in[0], [&](auto width, auto count) {
            constexpr int N = decltype(width)::value;
            using I = decltype(count);
            const I items = (I)(a->in[1].elements / N);
            SL_LAUNCH((note_kernel<T, N, I, J>), grid_of(a, items), threads, 0, a->stream, x, p, items, places);
            return sl_launched(a);
        }));
        return by_items<T>(p.c, &a->out[0], &a->in[1], [&](auto width, auto count) {
            constexpr int N = decltype(width)::value;
            using I = decltype(count);
            const I items = (I)(a->out[0].elements / N);
            SL_LAUNCH((largest_grad_kernel<T, N, I, J>), grid_of(a, items), threads, 0, a->stream, places, dy, p, items,
                      accumulates(a, 0), static_cast<T *>(a->out[0].data));
            return sl_launched(a);
        });
    });
}
} // namespace SL_KERNELS

/* x -> y */
extern "C" SL_CUDA_KERNEL(max_pool2d)
{
    const Pool p = pool_of(a, &a->in[0], &a->out[0]);
    return sl_dispatch(sl_cuda_type(SL_OP_MAX_POOL2D, a), [&](auto element) {
        using T = decltype(element);
        if (takes_9<T>(p, &a->in[0], &a->out[0])) {
            constexpr int N = pack_elements<T>;
            const uint32_t items = (uint32_t)(a->out[0].elements / N);
            SL_LAUNCH((largest_of_9_kernel<T, N>), grid_of(a, items), threads, 0, a->stream,
                      static_cast<const T *>(a->in[0].data), p, items, static_cast<T *>(a->out[0].data));
            return sl_launched(a);
        }
        return by_items<T>(p.c, &a->out[0], &a->in[0], [&](auto width, auto count) {
            constexpr int N = decltype(width)::value;
            using I = decltype(count);
            const I items = (I)(a->out[0].elements / N);
            SL_LAUNCH((largest_kernel<T, N, I>), grid_of(a, items), threads, 0, a->stream,
                      static_cast<const T *>(a->in[0].data), p, items, static_cast<T *>(a->out[0].data));
            return sl_launched(a);
        });
    });
}

/* x, dy -> dx */
extern "C" SL_CUDA_KERNEL(max_pool2d_grad)
{
    SL_TRY(sl_check_workspace(SL_OP_MAX_POOL2D_GRAD, a));
    return sl_cuda_place_bytes(a->attrs) == 1 ? largest_grad<uint8_t>(a) : largest_grad<int64_t>(a);
}

/* x -> y */
extern "C" SL_CUDA_KERNEL(avg_pool2d)
{
    const Pool p = pool_of(a, &a->in[0], &a->out[0]);
    return sl_dispatch(sl_cuda_type(SL_OP_AVG_POOL2D, a), [&](auto element) {
        using T = decltype(element);
        return by_items<T>(p.c, &a->out[0], &a->in[0], [&](auto width, auto count) {
            constexpr int N = decltype(width)::value;
            using I = decltype(count);
            const I items = (I)(a->out[0].elements / N);
            SL_LAUNCH((average_kernel<T, N, I>), grid_of(a, items), threads, 0, a->stream,
                      static_cast<const T *>(a->in[0].data), p, items, static_cast<T *>(a->out[0].data));
            return sl_launched(a);
        });
    });
}

/* dy -> dx */
extern "C" SL_CUDA_KERNEL(avg_pool2d_grad)
{
    const Pool p = pool_of(a, &a->out[0], &a->in[0]);
    return sl_dispatch(sl_cuda_type(SL_OP_AVG_POOL2D_GRAD, a), [&](auto element) {
        using T = decltype(element);
        return by_items<T>(p.c, &a->out[0], &a->in[0], [&](auto width, auto count) {
            constexpr int N = decltype(width)::value;
            using I = decltype(count);
            const I items = (I)(a->out[0].elements / N);
            SL_LAUNCH((average_grad_kernel<T, N, I>), grid_of(a, items), threads, 0, a->stream,
                      static_cast<const T *>(a->in[0].data), p, items, accumulates(a, 0),
                      static_cast<T *>(a->out[0].data));
            return sl_launched(a);
        });
    });
}

/* x[N,..,C] -> y[N,C] */
extern "C" SL_CUDA_KERNEL(global_avg_pool)
{
    const int64_t c = row_width(&a->out[0]), images = a->out[0].elements / c,
                  places = a->in[0].elements / a->out[0].elements;
    return sl_dispatch(sl_cuda_type(SL_OP_GLOBAL_AVG_POOL, a), [&](auto element) {
        using T = decltype(element);
        return by_items<T>(c, &a->in[0], &a->out[0], [&](auto width, auto) {
            constexpr int N = decltype(width)::value;
            const dim3 grid((unsigned)((c / N + lanes - 1) / lanes), (unsigned)(images < 65535 ? images : 65535));
            SL_LAUNCH((global_kernel<T, N>), grid, dim3(lanes, rows_beside), 0, a->stream,
                      static_cast<const T *>(a->in[0].data), images, places, c, static_cast<T *>(a->out[0].data));
            return sl_launched(a);
        });
    });
}

/* dy[N,C] -> dx[N,..,C] */
extern "C" SL_CUDA_KERNEL(global_avg_pool_grad)
{
    const int64_t c = row_width(&a->in[0]), places = a->out[0].elements / a->in[0].elements;
    return sl_dispatch(sl_cuda_type(SL_OP_GLOBAL_AVG_POOL_GRAD, a), [&](auto element) {
        using T = decltype(element);
        return by_items<T>(c, &a->out[0], &a->in[0], [&](auto width, auto count) {
            constexpr int N = decltype(width)::value;
            using I = decltype(count);
            const I items = (I)(a->out[0].elements / N);
            SL_LAUNCH((global_grad_kernel<T, N, I>), grid_of(a, items), threads, 0, a->stream,
                      static_cast<const T *>(a->in[0].data), places, c, items, accumulates(a, 0),
                      static_cast<T *>(a->out[0].data));
            return sl_launched(a);
        });
    });
}
