/* conv.cu: what convolutions need besides products: filters in other orders, channels padded, columns gathered; and
 * depthwise convolutions, whole.
 *
 * Depthwise: a thread makes some channels of one place, from the places of its window in row order. The filters'
 * gradient sums rows of y in parts (conv_size.h): thread (x, y) of a block the rows y, y + 8, .. of its part for one
 * channel and one place of the filter, then the eight sums in order; a second pass adds the parts in order. */
#include <type_traits>

#include "backend/cuda/cuda_conv.h"
#include "backend/cuda/elem.cuh"

inline namespace SL_KERNELS
{
constexpr int threads = 256;

template <class I> __device__ __forceinline__ I first_item()
{
    return (I)blockIdx.x * blockDim.x + threadIdx.x;
}

template <class I> __device__ __forceinline__ I item_step()
{
    return (I)gridDim.x * blockDim.x;
}

/* ---- filters ---- */

/* Element [o, i, r, s] of filters with `in` channels a group. */
__device__ __forceinline__ int64_t filter_index(const sl_cuda_conv &c, int64_t in, int64_t o, int64_t i, int64_t r,
                                                int64_t s)
{
    return ((o * in + i) * c.kh + r) * c.kw + s;
}

/* channels: the last dimension of `out`. */
template <class T>
__global__ void __launch_bounds__(threads)
    order_kernel(const T *w, sl_cuda_conv c, sl_filter_order order, int64_t channels, int64_t elements, T *out)
{
    const int64_t in = c.c / c.groups, of_group = c.o / c.groups;
    for (int64_t e = first_item<int64_t>(); e < elements; e += item_step<int64_t>()) {
        int64_t rest = e / channels, last = e % channels;
        const int64_t s = rest % c.kw, r = rest / c.kw % c.kh;
        rest /= c.kw * c.kh;
        int64_t o = rest, i = last;
        if (order == SL_FILTERS_IHWO) {
            o = rest / in * of_group + last;
            i = rest % in;
        } else if (order == SL_FILTERS_HWO) {
            o = last;
            i = 0;
        }
        out[e] = i < in ? w[filter_index(c, in, o, i, r, s)] : from_float<T>(0.0f);
    }
}

template <class T, class O>
__global__ void __launch_bounds__(threads)
    restore_kernel(const T *sums, sl_cuda_conv c, int64_t channels, int64_t elements, bool accumulate, O *dw)
{
    const int64_t in = c.c / c.groups;
    for (int64_t e = first_item<int64_t>(); e < elements; e += item_step<int64_t>()) {
        const int64_t s = e % c.kw, r = e / c.kw % c.kh, oi = e / (c.kw * c.kh), i = oi % in, o = oi / in;
        put_or_add(dw + e, to_float(sums[((o * c.kh + r) * c.kw + s) * channels + i]), accumulate);
    }
}

/* ---- rows of channels ---- */

template <class T>
__global__ void __launch_bounds__(threads) pad_kernel(const T *x, int64_t rows, int64_t from, int64_t to, T *out)
{
    const int64_t elements = rows * to;
    for (int64_t e = first_item<int64_t>(); e < elements; e += item_step<int64_t>()) {
        const int64_t row = e / to, channel = e % to;
        out[e] = channel < from ? x[row * from + channel] : from_float<T>(0.0f);
    }
}

/* Up to eight channels become eight: a thread makes a row of them, with one store. */
template <class T>
__global__ void __launch_bounds__(threads) pad_to_eight(const T *x, int64_t rows, int from, Pack<T, 8> *out)
{
    for (int64_t row = first_item<int64_t>(); row < rows; row += item_step<int64_t>()) {
        Pack<T, 8> pack;
#pragma unroll
        for (int i = 0; i < 8; i++) pack.v[i] = i < from ? x[row * from + i] : from_float<T>(0.0f);
        out[row] = pack;
    }
}

template <class T, int N>
__global__ void __launch_bounds__(threads) fill_kernel(const T *bias, int64_t rows, int64_t o, T *y)
{
    const int64_t items = rows * (o / N);
    for (int64_t e = first_item<int64_t>(); e < items; e += item_step<int64_t>()) {
        const int64_t channel = e % (o / N) * N;
        Pack<T, N> pack;
#pragma unroll
        for (int i = 0; i < N; i++) pack.v[i] = bias[channel + i];
        *reinterpret_cast<Pack<T, N> *>(y + e * N) = pack;
    }
}

/* ---- columns ---- */

/* Along one dimension: the place of x that place k of the filter sees from place i of y; or, backwards, the place of y
 * that sees place i of x through place k. -1: none. */
template <bool backward>
__device__ __forceinline__ int64_t seen(int64_t i, int64_t k, int64_t stride, int64_t padding, int64_t dilation,
                                        int64_t size)
{
    if (!backward) {
        const int64_t at = i * stride - padding + k * dilation;
        return at >= 0 && at < size ? at : -1;
    }
    const int64_t at = i + padding - k * dilation;
    return at >= 0 && at % stride == 0 && at / stride < size ? at / stride : -1;
}

/* Images by whose places rows are counted, and images they see. */
struct Views {
    int64_t rows_h, rows_w, seen_h, seen_w, channels;
};

/* I: what items are counted in; N channels at a time. */
template <class T, int N, class I, bool backward>
__global__ void __launch_bounds__(threads)
    gather_kernel(const T *from, sl_cuda_conv c, Views v, int64_t first, I items, T *out)
{
    const I of_group = (I)(v.channels / c.groups / N), kw = (I)c.kw, kh = (I)c.kh, groups = (I)c.groups;
    for (I e = first_item<I>(); e < items; e += item_step<I>()) {
        I rest = e / of_group;
        const I channel = e % of_group * N, s = rest % kw;
        rest /= kw;
        const I r = rest % kh;
        rest /= kh;
        const I group = rest % groups;
        int64_t row = first + (int64_t)(rest / groups);
        const int64_t j = row % v.rows_w, i = row / v.rows_w % v.rows_h, n = row / (v.rows_w * v.rows_h);
        const int64_t h = seen<backward>(i, r, c.stride_h, c.padding_h, c.dilation_h, v.seen_h);
        const int64_t w = seen<backward>(j, s, c.stride_w, c.padding_w, c.dilation_w, v.seen_w);
        Pack<T, N> pack;
        if (h >= 0 && w >= 0) {
            pack = load_pack<T, N>(from + ((n * v.seen_h + h) * v.seen_w + w) * v.channels +
                                   (int64_t)group * (of_group * N) + channel);
        } else {
#pragma unroll
            for (int k = 0; k < N; k++) pack.v[k] = from_float<T>(0.0f);
        }
        *reinterpret_cast<Pack<T, N> *>(out + (int64_t)e * N) = pack;
    }
}

/* ---- depthwise ---- */

template <class T, int N, class I, bool backward, bool biased>
__global__ void __launch_bounds__(threads) depthwise_kernel(const T *from, const T *filters, const T *bias,
                                                            sl_cuda_conv c, Views v, I items, bool accumulate, T *out)
{
    const I vectors = (I)(v.channels / N), rows_w = (I)v.rows_w, rows_h = (I)v.rows_h;
    for (I e = first_item<I>(); e < items; e += item_step<I>()) {
        const int64_t channel = (int64_t)(e % vectors) * N;
        const I row = e / vectors;
        const int64_t j = row % rows_w, i = row / rows_w % rows_h, n = row / rows_w / rows_h;
        float sum[N] = {};
        for (int64_t r = 0; r < c.kh; r++) {
            const int64_t h = seen<backward>(i, r, c.stride_h, c.padding_h, c.dilation_h, v.seen_h);
            for (int64_t s = 0; s < c.kw && h >= 0; s++) {
                const int64_t w = seen<backward>(j, s, c.stride_w, c.padding_w, c.dilation_w, v.seen_w);
                float image[N], filter[N];
                if (w < 0) continue;
                load_floats<T, N>(from + ((n * v.seen_h + h) * v.seen_w + w) * v.channels + channel, image);
                load_floats<T, N>(filters + (r * c.kw + s) * v.channels + channel, filter);
#pragma unroll
                for (int k = 0; k < N; k++) sum[k] = fmaf(image[k], filter[k], sum[k]);
            }
        }
        if (biased)
#pragma unroll
            for (int k = 0; k < N; k++) sum[k] += to_float(bias[channel + k]);
        put_or_add_floats<T, N>(out + (int64_t)e * N, sum, accumulate);
    }
}

constexpr int lanes = 32, rows_beside = 8;

/* partials[part, place of the filter, channel]; a block is of a part, 32 channels and one place. */
template <class T>
__global__ void __launch_bounds__(lanes *rows_beside)
    depthwise_part(const T *dy, const T *x, sl_cuda_conv c, int64_t rows_per_part, float *partials)
{
    __shared__ float sums[rows_beside][lanes];
    const int64_t channel = (int64_t)blockIdx.x * lanes + threadIdx.x, places = c.kh * c.kw;
    const int64_t rows = c.n * c.p * c.q, first = (int64_t)blockIdx.y * rows_per_part;
    const int64_t end = min(first + rows_per_part, rows);
    for (int64_t place = blockIdx.z; place < places; place += gridDim.z) {
        const int64_t r = place / c.kw, s = place % c.kw;
        float sum = 0.0f;
        for (int64_t row = first + threadIdx.y; row < end && channel < c.c; row += rows_beside) {
            const int64_t j = row % c.q, i = row / c.q % c.p, n = row / (c.q * c.p);
            const int64_t h = seen<false>(i, r, c.stride_h, c.padding_h, c.dilation_h, c.h);
            const int64_t w = seen<false>(j, s, c.stride_w, c.padding_w, c.dilation_w, c.w);
            if (h >= 0 && w >= 0)
                sum = fmaf(to_float(dy[row * c.c + channel]), to_float(x[((n * c.h + h) * c.w + w) * c.c + channel]),
                           sum);
        }
        sums[threadIdx.y][threadIdx.x] = sum;
        __syncthreads();
        if (threadIdx.y == 0 && channel < c.c) {
            for (int y = 1; y < rows_beside; y++) sum += sums[y][threadIdx.x];
            partials[((int64_t)blockIdx.y * places + place) * c.c + channel] = sum;
        }
        __syncthreads();
    }
}

template <class O>
__global__ void __launch_bounds__(threads)
    depthwise_sum(const float *partials, sl_cuda_conv c, int64_t parts, bool accumulate, O *dw)
{
    const int64_t places = c.kh * c.kw, elements = places * c.c;
    for (int64_t e = first_item<int64_t>(); e < elements; e += item_step<int64_t>()) {
        const int64_t channel = e % c.c, place = e / c.c;
        float sum = 0.0f;
        for (int64_t part = 0; part < parts; part++) sum += partials[part * elements + e];
        put_or_add(dw + channel * places + place, sum, accumulate);
    }
}

/* ---- on the host ---- */

unsigned grid_of(const sl_cuda_args *a, int64_t items)
{
    return sl_grid(a, items, threads, 32);
}

Views views_of(bool backward, const sl_cuda_conv *c)
{
    return backward ? Views{ c->h, c->w, c->p, c->q, c->o } : Views{ c->p, c->q, c->h, c->w, c->c };
}

constexpr int64_t small = (int64_t)1 << 30; /* items that 32 bits count */

/* f(I{}): the type that counts so many items. */
template <class F> sluice_status by_count(int64_t items, F f)
{
    return items < small ? f((uint32_t)0) : f((int64_t)0);
}

/* f(n), n a constant: 16 bytes of elements where all of `channels` comes in such, else 1. */
template <class T, class F> sluice_status by_width(int64_t channels, const void *p, const void *q, F f)
{
    constexpr int N = pack_elements<T>;
    if (channels % N == 0 && aligned_for(p, 16) && aligned_for(q, 16)) return f(std::integral_constant<int, N>{});
    return f(std::integral_constant<int, 1>{});
}
} // namespace SL_KERNELS

extern "C" sluice_status sl_cuda_order_filters(const sl_cuda_args *a, sl_form form, const void *w,
                                               const sl_cuda_conv *c, sl_filter_order order, int64_t channels,
                                               void *out)
{
    const int64_t last = order == SL_FILTERS_HWO ? c->o : channels;
    const int64_t before = order == SL_FILTERS_OHWI ? c->o : order == SL_FILTERS_IHWO ? c->c : 1;
    const int64_t elements = before * c->kh * c->kw * last;
    return sl_dispatch(form, [&](auto element) {
        using T = decltype(element);
        SL_LAUNCH((order_kernel<T>), grid_of(a, elements), threads, 0, a->stream, static_cast<const T *>(w), *c, order,
                  last, elements, static_cast<T *>(out));
        return sl_launched(a);
    });
}

extern "C" sluice_status sl_cuda_restore_filters(const sl_cuda_args *a, sl_form form, const void *sums,
                                                 const sl_cuda_conv *c, int64_t channels, bool accumulate,
                                                 const sl_cuda_tensor *dw)
{
    return sl_dispatch(form, [&](auto in) {
        using T = decltype(in);
        return sl_dispatch(dw->form, [&](auto result) {
            using O = decltype(result);
            SL_LAUNCH((restore_kernel<T, O>), grid_of(a, dw->elements), threads, 0, a->stream,
                      static_cast<const T *>(sums), *c, channels, dw->elements, accumulate, static_cast<O *>(dw->data));
            return sl_launched(a);
        });
    });
}

extern "C" sluice_status sl_cuda_pad_channels(const sl_cuda_args *a, sl_form form, const void *x, int64_t rows,
                                              int64_t c, int64_t channels, void *out)
{
    return sl_dispatch(form, [&](auto element) {
        using T = decltype(element);
        if (channels == 8)
            SL_LAUNCH((pad_to_eight<T>), grid_of(a, rows), threads, 0, a->stream, static_cast<const T *>(x), rows,
                      (int)c, static_cast<Pack<T, 8> *>(out));
        else
            SL_LAUNCH((pad_kernel<T>), grid_of(a, rows * channels), threads, 0, a->stream, static_cast<const T *>(x),
                      rows, c, channels, static_cast<T *>(out));
        return sl_launched(a);
    });
}

extern "C" sluice_status sl_cuda_fill_rows(const sl_cuda_args *a, sl_form form, const void *bias, int64_t rows,
                                           int64_t o, void *y)
{
    return sl_dispatch(form, [&](auto element) {
        using T = decltype(element);
        return by_width<T>(o, y, y, [&](auto width) {
            constexpr int N = decltype(width)::value;
            SL_LAUNCH((fill_kernel<T, N>), grid_of(a, rows * o / N), threads, 0, a->stream,
                      static_cast<const T *>(bias), rows, o, static_cast<T *>(y));
            return sl_launched(a);
        });
    });
}

template <class T, int N, class I>
static sluice_status gather(const sl_cuda_args *a, bool backward, const void *from, const sl_cuda_conv *c,
                            int64_t first, I items, void *out)
{
    const Views v = views_of(backward, c);
    if (backward)
        SL_LAUNCH((gather_kernel<T, N, I, true>), grid_of(a, items), threads, 0, a->stream,
                  static_cast<const T *>(from), *c, v, first, items, static_cast<T *>(out));
    else
        SL_LAUNCH((gather_kernel<T, N, I, false>), grid_of(a, items), threads, 0, a->stream,
                  static_cast<const T *>(from), *c, v, first, items, static_cast<T *>(out));
    return sl_launched(a);
}

extern "C" sluice_status sl_cuda_gather_columns(const sl_cuda_args *a, sl_op op, sl_form form, const void *from,
                                                const sl_cuda_conv *c, int64_t first, int64_t rows, void *out)
{
    const bool backward = op == SL_OP_CONV2D_GRAD_INPUT;
    const int64_t elements = rows * sl_cuda_conv_width(op, c);
    const int64_t of_group = (backward ? c->o : c->c) / c->groups;
    return sl_dispatch(form, [&](auto element) {
        using T = decltype(element);
        return by_width<T>(of_group, from, out, [&](auto width) {
            constexpr int N = decltype(width)::value;
            return by_count(elements / N, [&](auto count) {
                using I = decltype(count);
                return gather<T, N, I>(a, backward, from, c, first, (I)(elements / N), out);
            });
        });
    });
}

template <class T, int N, class I>
static sluice_status depthwise(const sl_cuda_args *a, bool backward, const sl_cuda_conv *c, const void *filters,
                               I items)
{
    const Views v = views_of(backward, c);
    const T *from = static_cast<const T *>(a->in[0].data), *by = static_cast<const T *>(filters);
    const T *bias = backward || a->input_count < 3 ? nullptr : static_cast<const T *>(a->in[2].data);
    T *out = static_cast<T *>(a->out[0].data);
    const unsigned grid = grid_of(a, items);
    if (backward)
        SL_LAUNCH((depthwise_kernel<T, N, I, true, false>), grid, threads, 0, a->stream, from, by, bias, *c, v, items,
                  accumulates(a, 0), out);
    else if (bias != nullptr)
        SL_LAUNCH((depthwise_kernel<T, N, I, false, true>), grid, threads, 0, a->stream, from, by, bias, *c, v, items,
                  false, out);
    else
        SL_LAUNCH((depthwise_kernel<T, N, I, false, false>), grid, threads, 0, a->stream, from, by, bias, *c, v, items,
                  false, out);
    return sl_launched(a);
}

static sluice_status depthwise_images(const sl_cuda_args *a, bool backward, sl_form form, const sl_cuda_conv *c,
                                      const void *filters)
{
    return sl_dispatch(form, [&](auto element) {
        using T = decltype(element);
        return by_width<T>(c->c, a->in[0].data, a->out[0].data, [&](auto width) {
            constexpr int N = decltype(width)::value;
            return by_count(a->out[0].elements / N, [&](auto count) {
                using I = decltype(count);
                return depthwise<T, N, I>(a, backward, c, filters, (I)(a->out[0].elements / N));
            });
        });
    });
}

extern "C" sluice_status sl_cuda_depthwise(const sl_cuda_args *a, sl_form form, const sl_cuda_conv *c,
                                           const void *filters)
{
    return depthwise_images(a, false, form, c, filters);
}

extern "C" sluice_status sl_cuda_depthwise_grad_input(const sl_cuda_args *a, sl_form form, const sl_cuda_conv *c,
                                                      const void *filters)
{
    return depthwise_images(a, true, form, c, filters);
}

extern "C" sluice_status sl_cuda_depthwise_grad_weight(const sl_cuda_args *a, sl_form form, const sl_cuda_conv *c)
{
    const int64_t parts = sl_cuda_depthwise_parts(c), rows = c->n * c->p * c->q, places = c->kh * c->kw;
    const int64_t each = (rows + parts - 1) / parts;
    const dim3 block(lanes, rows_beside);
    const dim3 grid((unsigned)((c->c + lanes - 1) / lanes), (unsigned)parts,
                    (unsigned)(places < 65535 ? places : 65535));
    float *partials = static_cast<float *>(a->workspace);
    return sl_dispatch(form, [&](auto element) {
        using T = decltype(element);
        SL_LAUNCH((depthwise_part<T>), grid, block, 0, a->stream, static_cast<const T *>(a->in[0].data),
                  static_cast<const T *>(a->in[1].data), *c, each, partials);
        return sl_dispatch(a->out[0].form, [&](auto result) {
            using O = decltype(result);
            SL_LAUNCH((depthwise_sum<O>), grid_of(a, places * c->c), threads, 0, a->stream, partials, *c, parts,
                      accumulates(a, 0), static_cast<O *>(a->out[0].data));
            return sl_launched(a);
        });
    });
}
