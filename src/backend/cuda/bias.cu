/* bias.cu: sums of columns over rows: the gradient of a bias.
 *
 * Rows are cut in parts (linear_size.h). A block sums a part of 32 threads' columns: thread (x, y) the rows y, y + 8,
 * .. of it, then the eight sums of a column in order. A second pass adds the parts: thread y of 32 the parts y, y + 32,
 * .., then those sums in order. Vector loads or single ones change nothing of that. */
#include "backend/cuda/elem.cuh"
#include "backend/cuda/cuda_gemm.h"
#include "backend/cuda/linear_size.h"

inline namespace SL_KERNELS
{
constexpr int lanes = 32, rows_beside = 8, parts_beside = 32;

struct Cut {
    int64_t rows, columns, stride, parts, rows_per_part; /* stride: between rows */
};

/* x[i] = element i of p; from `left` on 0, or with `wide` what lies between rows. */
template <class T, int N> __device__ __forceinline__ void load_some(const T *p, int64_t left, bool wide, float (&x)[N])
{
    if (wide) {
        load_floats<T, N>(p, x);
        return;
    }
#pragma unroll
    for (int i = 0; i < N; i++) x[i] = i < left ? to_float(p[i]) : 0.0f;
}

/* partials[part, column] */
template <class T, bool wide>
__global__ void __launch_bounds__(lanes *rows_beside) sum_part(const T *x, Cut cut, float *partials)
{
    constexpr int N = pack_elements<T>;
    __shared__ float sums[rows_beside][N][lanes];
    const int64_t column = ((int64_t)blockIdx.x * lanes + threadIdx.x) * N, left = cut.columns - column;
    const int64_t first = (int64_t)blockIdx.y * cut.rows_per_part;
    const int64_t end = min(first + cut.rows_per_part, cut.rows);
    float sum[N] = {};
    if (left > 0) {
#pragma unroll 4
        for (int64_t row = first + threadIdx.y; row < end; row += rows_beside) {
            float v[N];
            load_some<T, N>(x + row * cut.stride + column, left, wide, v);
#pragma unroll
            for (int i = 0; i < N; i++) sum[i] += v[i];
        }
    }
#pragma unroll
    for (int i = 0; i < N; i++) sums[threadIdx.y][i][threadIdx.x] = sum[i];
    __syncthreads();
    /* Row y of the block finishes columns y, y + 8, .. of each thread's. */
    for (int i = (int)threadIdx.y; i < N && i < left; i += rows_beside) {
        float total = sums[0][i][threadIdx.x];
        for (int y = 1; y < rows_beside; y++) total += sums[y][i][threadIdx.x];
        partials[(int64_t)blockIdx.y * cut.columns + column + i] = total;
    }
}

template <class O>
__global__ void __launch_bounds__(lanes *parts_beside)
    sum_parts(const float *partials, Cut cut, bool accumulate, O *out)
{
    __shared__ float sums[parts_beside][lanes];
    const int64_t column = (int64_t)blockIdx.x * lanes + threadIdx.x;
    float sum = 0.0f;
    if (column < cut.columns)
        for (int64_t part = threadIdx.y; part < cut.parts; part += parts_beside)
            sum += partials[part * cut.columns + column];
    sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y > 0 || column >= cut.columns) return;
    for (int y = 1; y < parts_beside; y++) sum += sums[y][threadIdx.x];
    put_or_add(out + column, sum, accumulate);
}

Cut cut_of(sl_form form, int64_t rows, int64_t columns, int64_t stride)
{
    const int64_t parts = sl_cuda_column_parts(rows, columns, form);
    const int64_t each = (rows + parts - 1) / parts;
    const int64_t rows_per_part = (each + rows_beside - 1) / rows_beside * rows_beside;
    /* Rounded up, parts may be fewer. */
    return { rows, columns, stride, (rows + rows_per_part - 1) / rows_per_part, rows_per_part };
}

template <class T> void sum_all_parts(const sl_cuda_args *a, const T *x, const Cut &cut)
{
    constexpr int N = pack_elements<T>;
    const dim3 grid((unsigned)((cut.columns + lanes * N - 1) / (lanes * N)), (unsigned)cut.parts);
    const dim3 block(lanes, rows_beside);
    float *partials = static_cast<float *>(a->workspace);
    if (aligned_for(x, 16) && cut.stride % N == 0)
        SL_LAUNCH((sum_part<T, true>), grid, block, 0, a->stream, x, cut, partials);
    else
        SL_LAUNCH((sum_part<T, false>), grid, block, 0, a->stream, x, cut, partials);
}
} // namespace SL_KERNELS

extern "C" sluice_status sl_cuda_sum_columns(const sl_cuda_args *a, sl_form form, const void *x, int64_t rows,
                                             int64_t columns, int64_t stride, bool accumulate,
                                             const sl_cuda_tensor *out)
{
    const Cut cut = cut_of(form, rows, columns, stride);
    if (a->workspace_bytes < sl_cuda_column_bytes(rows, columns, form))
        return sl_fail(SLUICE_ERR_FAILED, "%s: a sum of columns without its workspace",
                       a->name != nullptr ? a->name : "?");
    SL_TRY(sl_dispatch(form, [&](auto element) {
        using T = decltype(element);
        sum_all_parts(a, static_cast<const T *>(x), cut);
        return sl_launched(a);
    }));
    return sl_dispatch(out->form, [&](auto element) {
        using O = decltype(element);
        const unsigned blocks = (unsigned)((columns + lanes - 1) / lanes);
        SL_LAUNCH((sum_parts<O>), blocks, dim3(lanes, parts_beside), 0, a->stream,
                  static_cast<const float *>(a->workspace), cut, accumulate, static_cast<O *>(out->data));
        return sl_launched(a);
    });
}
