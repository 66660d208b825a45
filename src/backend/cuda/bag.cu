/* bag.cu: sums and means of runs of rows, and their gradient. A thread makes one column of one bag, rows in their order; of
 * the gradient, one column of one row, whose bag it looks up. Neighbouring threads have neighbouring columns. Batches are
 * checked before they are used; ends that come here all the same are held within the rows. */
#include "backend/cuda/elem.cuh"

inline namespace SL_KERNELS
{
constexpr int threads = 256;

struct Bags {
    const int32_t *ends;
    int64_t count, rows, width;
    bool mean;
};

__device__ __forceinline__ int64_t end_of(const Bags &b, int64_t bag)
{
    if (bag < 0 || b.ends[bag] < 0) return 0;
    return min((int64_t)b.ends[bag], b.rows);
}

template <class T> __global__ void __launch_bounds__(threads) bag_kernel(const Bags b, const T *x, T *y)
{
    const int64_t items = b.count * b.width;
    for (int64_t e = (int64_t)blockIdx.x * threads + threadIdx.x; e < items; e += (int64_t)gridDim.x * threads) {
        const int64_t bag = e / b.width, column = e % b.width, begin = end_of(b, bag - 1), end = end_of(b, bag);
        float sum = 0;
        for (int64_t row = begin; row < end; row++) sum += to_float(x[row * b.width + column]);
        if (b.mean && end > begin) sum /= (float)(end - begin);
        y[e] = from_float<T>(sum);
    }
}

/* The first bag that ends behind a row; b.count: none does. */
__device__ __forceinline__ int64_t bag_of(const Bags &b, int64_t row)
{
    int64_t low = 0, high = b.count;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (end_of(b, middle) > row)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

template <class T>
__global__ void __launch_bounds__(threads) bag_grad_kernel(const Bags b, const T *dy, bool accumulate, T *dx)
{
    const int64_t items = b.rows * b.width;
    for (int64_t e = (int64_t)blockIdx.x * threads + threadIdx.x; e < items; e += (int64_t)gridDim.x * threads) {
        const int64_t row = e / b.width, column = e % b.width, bag = bag_of(b, row);
        float v = 0;
        if (bag < b.count) {
            v = to_float(dy[bag * b.width + column]);
            if (b.mean) v /= (float)(end_of(b, bag) - end_of(b, bag - 1));
        }
        put_or_add<T>(dx + e, v, accumulate);
    }
}

unsigned grid_for(int64_t items)
{
    const int64_t blocks = (items + threads - 1) / threads, most = 1 << 16;
    return (unsigned)(blocks < 1 ? 1 : blocks < most ? blocks : most);
}
} // namespace SL_KERNELS

/* x[..,C], ends[B] -> y[B,C] */
extern "C" SL_CUDA_KERNEL(bag)
{
    const int64_t width = row_width(&a->in[0]);
    const Bags b{ static_cast<const int32_t *>(a->in[1].data), a->in[1].elements, a->in[0].elements / width, width,
                  a->attrs->bag.mean };
    return sl_dispatch(sl_cuda_type(SL_OP_BAG, a), [&](auto element) {
        using T = decltype(element);
        SL_LAUNCH((bag_kernel<T>), grid_for(b.count * width), threads, 0, a->stream, b,
                  static_cast<const T *>(a->in[0].data), static_cast<T *>(a->out[0].data));
        return sl_launched(a);
    });
}

/* ends[B], dy[B,C] -> dx[..,C] */
extern "C" SL_CUDA_KERNEL(bag_grad)
{
    const int64_t width = row_width(&a->out[0]);
    const Bags b{ static_cast<const int32_t *>(a->in[0].data), a->in[0].elements, a->out[0].elements / width, width,
                  a->attrs->bag.mean };
    return sl_dispatch(sl_cuda_type(SL_OP_BAG_GRAD, a), [&](auto element) {
        using T = decltype(element);
        SL_LAUNCH((bag_grad_kernel<T>), grid_for(b.rows * width), threads, 0, a->stream, b,
                  static_cast<const T *>(a->in[1].data), accumulates(a, 0), static_cast<T *>(a->out[0].data));
        return sl_launched(a);
    });
}
