/* product.cu: matrix products without a library, for operands that cuBLASLt has no algorithm for. A block makes tiles
 * of 16 by 16, a thread one element of each: a chain of fused multiply-adds over k in order. */
#include "backend/cuda/elem.cuh"
#include "backend/cuda/cuda_gemm.h"

inline namespace SL_KERNELS
{
constexpr int tile = 16;

struct Tiles {
    int64_t across, each, all; /* in a row of tiles; in one product; in all products of the batch */
};

struct Operand {
    int64_t row, column; /* elements from one row, or column, of the factor to the next */
    int64_t rows, columns;
};

/* Element [row, column], 0 outside. */
template <class T> __device__ __forceinline__ float element(const T *x, const Operand &o, int64_t row, int64_t column)
{
    return row < o.rows && column < o.columns ? to_float(x[row * o.row + column * o.column]) : 0.0f;
}

/* One tile of op(a) op(b). The threads that load an operand along its rows in memory are neighbours. */
template <class T>
__device__ float chain(const T *a, const Operand &oa, const T *b, const Operand &ob, int64_t row0, int64_t column0)
{
    __shared__ float left[tile][tile + 1], right[tile][tile + 1];
    const int x = (int)threadIdx.x, y = (int)threadIdx.y;
    const bool a_down = oa.column != 1, b_down = ob.column != 1;
    float sum = 0.0f;
    for (int64_t k = 0; k < oa.columns; k += tile) {
        const int ar = a_down ? x : y, ak = a_down ? y : x, bk = b_down ? x : y, bc = b_down ? y : x;
        left[ar][ak] = element(a, oa, row0 + ar, k + ak);
        right[bk][bc] = element(b, ob, k + bk, column0 + bc);
        __syncthreads();
        const int steps = oa.columns - k < tile ? (int)(oa.columns - k) : tile;
        for (int i = 0; i < steps; i++) sum = __fmaf_rn(left[y][i], right[i][x], sum);
        __syncthreads();
    }
    return sum;
}

template <class T, class O>
__global__ void __launch_bounds__(tile *tile) product_kernel(sl_cuda_gemm g, Operand oa, Operand ob, Tiles tiles)
{
    for (int64_t t = blockIdx.x; t < tiles.all; t += gridDim.x) {
        const int64_t batch = t / tiles.each, in = t % tiles.each;
        const int64_t row0 = in / tiles.across * tile, column0 = in % tiles.across * tile;
        const int64_t row = row0 + threadIdx.y, column = column0 + threadIdx.x;
        float sum = chain(static_cast<const T *>(g.a) + batch * g.batch_a, oa,
                          static_cast<const T *>(g.b) + batch * g.batch_b, ob, row0, column0);
        if (row >= g.m || column >= g.n) continue;
        if (g.bias != nullptr) sum += to_float(static_cast<const T *>(g.bias)[column]);
        if (g.base != nullptr) sum += to_float(static_cast<const O *>(g.base)[row * g.stride_out + column]);
        put_or_add(static_cast<O *>(g.out) + batch * g.batch_out + row * g.stride_out + column, sum, g.accumulate);
    }
}

/* A factor of rows by columns that is stored by rows `stride` long, turned over with `transposed`. */
Operand operand(int64_t rows, int64_t columns, int64_t stride, bool transposed)
{
    return transposed ? Operand{ 1, stride, rows, columns } : Operand{ stride, 1, rows, columns };
}
} // namespace SL_KERNELS

extern "C" sluice_status sl_cuda_plain_product(const sl_cuda_args *a, const sl_cuda_gemm *g)
{
    const Operand oa = operand(g->m, g->k, g->stride_a, g->transpose_a);
    const Operand ob = operand(g->k, g->n, g->stride_b, g->transpose_b);
    const int64_t across = (g->n + tile - 1) / tile, each = across * ((g->m + tile - 1) / tile);
    const Tiles tiles = { across, each, each * (g->batch > 1 ? g->batch : 1) };
    const dim3 block(tile, tile);
    return sl_dispatch(g->form, [&](auto in) {
        using T = decltype(in);
        return sl_dispatch(g->out_form, [&](auto out) {
            using O = decltype(out);
            SL_LAUNCH((product_kernel<T, O>), sl_grid(a, tiles.all, 1, 32), block, 0, a->stream, *g, oa, ob, tiles);
            return sl_launched(a);
        });
    });
}
