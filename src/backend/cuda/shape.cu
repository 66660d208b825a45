/* shape.cu: operations that only move elements: transpose, split, concat, the gradients of the last two, and adding to
 * a part.
 *
 * Split and concat are runs: the axis, seen from memory, is `outer` repetitions of a contiguous run in each tensor.
 * Transpose copies whole runs where the innermost dimension stays, and squares through shared memory where it does not,
 * so that reads and writes both go along memory. Elements are bits that move; only adding to an output knows that they
 * are numbers. */
#include "backend/cuda/elem.cuh"

inline namespace SL_KERNELS
{
constexpr int THREADS = 256;
constexpr int BLOCKS = 16; /* per multiprocessor */
constexpr int TILE = 32, TILE_ROWS = 8;

/* Quotient and rest; 64-bit division is many instructions, and almost always 32 bits do. */
__device__ __forceinline__ int64_t divide(int64_t a, int64_t b, int64_t *rest)
{
    int64_t q = ((uint64_t)a | (uint64_t)b) >> 32 == 0 ? (int64_t)((unsigned)a / (unsigned)b) : a / b;
    *rest = a - q * b;
    return q;
}

int64_t product(const sl_shape *s, int first, int end)
{
    int64_t n = 1;
    for (int i = first; i < end; i++) n *= s->dim[i];
    return n;
}

/* ---- runs ---- */

/* to[o * to_stride .. + run) = from[o * from_stride .. + run) for o in [0, outer), or added. In elements. */
template <class T> struct Runs {
    const T *from;
    T *to;
    int64_t outer, run, from_stride, to_stride;
};

template <class T, int N> __global__ void __launch_bounds__(THREADS) runs_kernel(Runs<T> r, bool accumulate)
{
    const int64_t row_packs = r.run / N, packs = r.outer * row_packs;
    for (int64_t p = (int64_t)blockIdx.x * THREADS + threadIdx.x; p < packs; p += (int64_t)gridDim.x * THREADS) {
        int64_t i, o = divide(p, row_packs, &i);
        const T *from = r.from + o * r.from_stride + i * N;
        T *to = r.to + o * r.to_stride + i * N;
        if (accumulate) {
            float x[N];
            load_floats<T, N>(from, x);
            put_or_add_floats<T, N>(to, x, true);
        } else {
            *(Pack<T, N> *)to = load_pack<T, N>(from);
        }
    }
}

/* to[o][i] = from[o][i - before] inside [before, before + run), 0 outside; rows of to_stride. */
template <class T, int N> __global__ void __launch_bounds__(THREADS) padded_runs_kernel(Runs<T> r, int64_t before)
{
    const int64_t row_packs = r.to_stride / N, packs = r.outer * row_packs;
    for (int64_t p = (int64_t)blockIdx.x * THREADS + threadIdx.x; p < packs; p += (int64_t)gridDim.x * THREADS) {
        int64_t i, o = divide(p, row_packs, &i);
        const int64_t at = i * N - before;
        Pack<T, N> pack = {};
        if (at >= 0 && at < r.run) pack = load_pack<T, N>(r.from + o * r.from_stride + at);
        *(Pack<T, N> *)(r.to + p * N) = pack;
    }
}

template <class T> bool in_packs(const Runs<T> &r)
{
    constexpr int N = pack_elements<T>;
    return r.run % N == 0 && r.from_stride % N == 0 && r.to_stride % N == 0 && aligned_for(r.from, 16) &&
           aligned_for(r.to, 16);
}

template <class T> void launch_runs(const sl_cuda_args *a, const Runs<T> &r, bool accumulate)
{
    constexpr int N = pack_elements<T>;
    const int64_t n = r.outer * r.run;
    if (in_packs(r))
        SL_LAUNCH((runs_kernel<T, N>), sl_grid(a, n / N, THREADS, BLOCKS), THREADS, 0, a->stream, r, accumulate);
    else
        SL_LAUNCH((runs_kernel<T, 1>), sl_grid(a, n, THREADS, BLOCKS), THREADS, 0, a->stream, r, accumulate);
}

template <class T> void launch_padded_runs(const sl_cuda_args *a, const Runs<T> &r, int64_t before)
{
    constexpr int N = pack_elements<T>;
    const int64_t n = r.outer * r.to_stride;
    if (in_packs(r) && before % N == 0)
        SL_LAUNCH((padded_runs_kernel<T, N>), sl_grid(a, n / N, THREADS, BLOCKS), THREADS, 0, a->stream, r, before);
    else
        SL_LAUNCH((padded_runs_kernel<T, 1>), sl_grid(a, n, THREADS, BLOCKS), THREADS, 0, a->stream, r, before);
}

/* The part of `whole` that attrs.split names, as runs: from it, dense. */
template <class T> Runs<T> part_of(const sl_cuda_args *a, const sl_shape *whole)
{
    const int axis = a->attrs->split.axis;
    const int64_t inner = product(whole, axis + 1, whole->rank);
    Runs<T> r;
    r.from = (const T *)a->in[0].data;
    r.to = (T *)a->out[0].data;
    r.outer = product(whole, 0, axis);
    r.run = a->attrs->split.size * inner;
    r.from_stride = whole->dim[axis] * inner;
    r.to_stride = r.run;
    return r;
}

template <class T> int64_t elements_before(const sl_cuda_args *a, const Runs<T> &r)
{
    return a->attrs->split.start * (r.run / a->attrs->split.size);
}

sluice_status take_part(sl_op op, const sl_cuda_args *a)
{
    return sl_dispatch(sl_cuda_type(op, a), [&](auto element) {
        using T = decltype(element);
        Runs<T> r = part_of<T>(a, a->in[0].shape);
        r.from += elements_before(a, r);
        launch_runs(a, r, accumulates(a, 0));
        return sl_launched(a);
    });
}

/* ---- transpose ---- */

/* The index space in output order: dim[i] long, the input moves by in_stride[i]. Two axes are walked as tiles: the
 * output's innermost, and `row`, the one along which the input is contiguous; the others are outer. */
struct Permutation {
    int rank, row; /* row == rank - 1: the innermost dimension stays */
    int64_t dim[SL_MAX_RANK], in_stride[SL_MAX_RANK], out_stride[SL_MAX_RANK];
};

/* Where outer position `flat` begins: all axes but `row` and the innermost. */
__device__ __forceinline__ void outer_offsets(const Permutation &j, int64_t flat, int64_t *in, int64_t *out)
{
    *in = *out = 0;
    for (int i = j.rank - 2; i >= 0; i--) {
        int64_t at;
        if (i == j.row) continue;
        flat = divide(flat, j.dim[i], &at);
        *in += at * j.in_stride[i];
        *out += at * j.out_stride[i];
    }
}

/* The innermost dimension stays: out pack by pack. */
template <class T, int N>
__global__ void __launch_bounds__(THREADS) gather_kernel(const T *x, T *y, int64_t packs, Permutation j)
{
    const int64_t row_packs = j.dim[j.rank - 1] / N;
    for (int64_t p = (int64_t)blockIdx.x * THREADS + threadIdx.x; p < packs; p += (int64_t)gridDim.x * THREADS) {
        int64_t i, in, out, row = divide(p, row_packs, &i);
        outer_offsets(j, row, &in, &out);
        *(Pack<T, N> *)(y + p * N) = load_pack<T, N>(x + in + i * N);
    }
}

/* y[r][c] = x[c][r] in squares; a block of TILE x TILE_ROWS threads takes one at a time. */
template <class T>
__global__ void __launch_bounds__(TILE *TILE_ROWS)
    transpose_kernel(const T *x, T *y, int64_t bands, int64_t strips, int64_t tiles, Permutation j)
{
    __shared__ T square[TILE][TILE + 1];
    const int last = j.rank - 1;
    const int64_t rows = j.dim[j.row], columns = j.dim[last];
    for (int64_t t = blockIdx.x; t < tiles; t += gridDim.x) {
        int64_t strip, band, in, out, rest = divide(t, strips, &strip);
        rest = divide(rest, bands, &band);
        outer_offsets(j, rest, &in, &out);
        const int64_t r0 = band * TILE, c0 = strip * TILE;
        for (int c = (int)threadIdx.y; c < TILE; c += TILE_ROWS)
            if (c0 + c < columns && r0 + threadIdx.x < rows)
                square[c][threadIdx.x] = x[in + (c0 + c) * j.in_stride[last] + r0 + threadIdx.x];
        __syncthreads();
        for (int r = (int)threadIdx.y; r < TILE; r += TILE_ROWS)
            if (r0 + r < rows && c0 + threadIdx.x < columns)
                y[out + (r0 + r) * j.out_stride[j.row] + c0 + threadIdx.x] = square[threadIdx.x][r];
        __syncthreads();
    }
}

/* Dimensions in output order without those of length 1, neighbours that are neighbours in the input too merged into
 * one. */
Permutation permutation_of(const sl_cuda_args *a)
{
    Permutation j = {};
    const sl_shape *shape = a->in[0].shape;
    for (int i = 0; i < shape->rank; i++) {
        int axis = a->attrs->transpose.order[i];
        int64_t n = shape->dim[axis], stride = product(shape, axis + 1, shape->rank);
        if (n == 1) continue;
        if (j.rank > 0 && j.in_stride[j.rank - 1] == n * stride) {
            j.dim[j.rank - 1] *= n;
            j.in_stride[j.rank - 1] = stride;
            continue;
        }
        j.dim[j.rank] = n;
        j.in_stride[j.rank++] = stride;
    }
    if (j.rank == 0) {
        j.dim[0] = j.in_stride[0] = 1;
        j.rank = 1;
    }
    int64_t stride = 1;
    for (int i = j.rank - 1; i >= 0; stride *= j.dim[i--]) j.out_stride[i] = stride;
    while (j.in_stride[j.row] != 1) j.row++;
    return j;
}

/* Strides but the innermost's are whole packs, and so is the row. */
bool rows_in_packs(const Permutation &j, int n)
{
    if (j.dim[j.rank - 1] % n != 0) return false;
    for (int i = 0; i < j.rank - 1; i++)
        if (j.in_stride[i] % n != 0) return false;
    return true;
}

template <class T, int N> void launch_gather(const sl_cuda_args *a, const Permutation &j)
{
    const int64_t packs = a->out[0].elements / N;
    SL_LAUNCH((gather_kernel<T, N>), sl_grid(a, packs, THREADS, BLOCKS), THREADS, 0, a->stream,
              (const T *)a->in[0].data, (T *)a->out[0].data, packs, j);
}

template <class T> void launch_transpose(const sl_cuda_args *a, const Permutation &j)
{
    const int64_t columns = j.dim[j.rank - 1], rows = j.dim[j.row];
    const int64_t strips = (columns + TILE - 1) / TILE, bands = (rows + TILE - 1) / TILE;
    const int64_t tiles = a->out[0].elements / (rows * columns) * bands * strips;
    SL_LAUNCH((transpose_kernel<T>), sl_grid(a, tiles, 1, 32), dim3(TILE, TILE_ROWS), 0, a->stream,
              (const T *)a->in[0].data, (T *)a->out[0].data, bands, strips, tiles, j);
}
} // namespace SL_KERNELS

extern "C" {

SL_CUDA_KERNEL(split)
{
    return take_part(SL_OP_SPLIT, a);
}

SL_CUDA_KERNEL(add_part)
{
    return sl_dispatch(sl_cuda_type(SL_OP_ADD_PART, a), [&](auto element) {
        using T = decltype(element);
        Runs<T> r = part_of<T>(a, a->in[0].shape);
        const int64_t before = elements_before(a, r), whole = a->out[0].elements;
        if (a->in[0].data != a->out[0].data)
            launch_runs(a, Runs<T>{ (const T *)a->in[0].data, r.to, 1, whole, whole, whole }, false);
        r.from = (const T *)a->in[1].data;
        r.to += before;
        r.to_stride = r.from_stride;
        r.from_stride = r.run;
        launch_runs(a, r, true);
        return sl_launched(a);
    });
}

SL_CUDA_KERNEL(concat_grad)
{
    return take_part(SL_OP_CONCAT_GRAD, a);
}

SL_CUDA_KERNEL(split_grad)
{
    return sl_dispatch(sl_cuda_type(SL_OP_SPLIT_GRAD, a), [&](auto element) {
        using T = decltype(element);
        Runs<T> r = part_of<T>(a, a->out[0].shape);
        const int64_t before = elements_before(a, r);
        r.to_stride = r.from_stride;
        r.from_stride = r.run;
        if (accumulates(a, 0)) {
            r.to += before;
            launch_runs(a, r, true);
        } else {
            launch_padded_runs(a, r, before);
        }
        return sl_launched(a);
    });
}

SL_CUDA_KERNEL(concat)
{
    return sl_dispatch(sl_cuda_type(SL_OP_CONCAT, a), [&](auto element) {
        using T = decltype(element);
        const sl_shape *whole = a->out[0].shape;
        const int axis = a->attrs->concat.axis;
        const int64_t inner = product(whole, axis + 1, whole->rank), outer = product(whole, 0, axis);
        T *to = (T *)a->out[0].data;
        for (int i = 0; i < a->input_count; i++) {
            const int64_t run = a->in[i].shape->dim[axis] * inner;
            launch_runs(a, Runs<T>{ (const T *)a->in[i].data, to, outer, run, run, whole->dim[axis] * inner }, false);
            to += run;
        }
        return sl_launched(a);
    });
}

SL_CUDA_KERNEL(transpose)
{
    const Permutation j = permutation_of(a);
    return sl_dispatch(sl_cuda_type(SL_OP_TRANSPOSE, a), [&](auto element) {
        using T = decltype(element);
        const bool aligned = aligned_for(a->in[0].data, 16) && aligned_for(a->out[0].data, 16);
        if (j.row != j.rank - 1)
            launch_transpose<T>(a, j);
        else if (aligned && rows_in_packs(j, pack_elements<T>))
            launch_gather<T, pack_elements<T>>(a, j);
        else
            launch_gather<T, 1>(a, j);
        return sl_launched(a);
    });
}
}
