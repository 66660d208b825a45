/* pointwise.cu: operations that treat every element alike: sums and products with broadcasting, activations, dropout,
 * constants, changes of type.
 *
 * One pass, memory-bound: a thread loads several packs of 16 bytes before it computes, so that many loads are on their
 * way; where an address or a length does not allow packs, the same kernel goes by single elements, with the same bits.
 * The output may be an input's own memory: a thread writes only what it has read. NaN passes through every function
 * here, so that bad numbers reach the loss and are seen. */
#include "backend/cuda/elem.cuh"

#include "backend/axes.h"

inline namespace SL_KERNELS
{
constexpr int THREADS = 256;
constexpr int BLOCKS = 16;   /* per multiprocessor: twice what fits, so that they end at different times */
constexpr int IN_FLIGHT = 4; /* packs that a thread loads before it computes, of all inputs together */

/* ---- activations: one function of up to two inputs ---- */
/* clang-format off */
__device__ __forceinline__ float sigmoid(float x) { return __fdividef(1.0f, 1.0f + expf(-x)); }

struct Scale { float factor; __device__ float operator()(float x, float) const { return x * factor; } };
struct Relu { __device__ float operator()(float x, float) const { return 0.0f > x ? 0.0f : x; } };
struct ReluGrad { __device__ float operator()(float y, float dy) const { return y > 0.0f ? dy : 0.0f; } };
struct Silu { __device__ float operator()(float x, float) const { return x * sigmoid(x); } };
struct Sigmoid { __device__ float operator()(float x, float) const { return sigmoid(x); } };
struct SigmoidGrad { __device__ float operator()(float y, float dy) const { return dy * (y * (1.0f - y)); } };
struct Tanh { __device__ float operator()(float x, float) const { return tanhf(x); } };
struct TanhGrad { __device__ float operator()(float y, float dy) const { return dy * __fmaf_rn(-y, y, 1.0f); } };
/* clang-format on */

/* d/dx x s(x) = s (1 + x (1 - s)) */
struct SiluGrad {
    __device__ float operator()(float x, float dy) const
    {
        float s = sigmoid(x);
        return dy * (s * __fmaf_rn(x, 1.0f - s, 1.0f));
    }
};

/* The tanh form is x s(2u) with the sigmoid s, because (1 + tanh u) / 2 = s(2u): one exponential, and no cancellation
 * for negative x. 2u = 2 sqrt(2/pi) (x + 0.044715 x^3). Beyond +-10 the sigmoid has reached its limit; the bound keeps
 * x^3 finite. */
constexpr float GELU_LINEAR = 1.59576912f, GELU_CUBIC = 0.0713548163f;

__device__ __forceinline__ float gelu_bounded(float x)
{
    return fmaxf(-10.0f, fminf(10.0f, x));
}

__device__ __forceinline__ float gelu_sigmoid(float bounded)
{
    return sigmoid(bounded * __fmaf_rn(bounded * bounded, GELU_CUBIC, GELU_LINEAR));
}

struct GeluTanh {
    __device__ float operator()(float x, float) const
    {
        return x * gelu_sigmoid(gelu_bounded(x));
    }
};

/* s + x s (1 - s) d(2u)/dx */
struct GeluTanhGrad {
    __device__ float operator()(float x, float dy) const
    {
        float b = gelu_bounded(x), s = gelu_sigmoid(b);
        float du = __fmaf_rn(b * b, 3.0f * GELU_CUBIC, GELU_LINEAR);
        return dy * __fmaf_rn(x * (s * (1.0f - s)), du, s);
    }
};

/* The normal distribution's mass below x: (1 + erf(x / sqrt 2)) / 2 */
__device__ __forceinline__ float normal_mass(float x)
{
    return __fmaf_rn(0.5f, erff(x * 0.707106781f), 0.5f);
}

struct GeluExact {
    __device__ float operator()(float x, float) const
    {
        return x * normal_mass(x);
    }
};

struct GeluExactGrad {
    __device__ float operator()(float x, float dy) const
    {
        float density = expf(x * x * -0.5f);
        return dy * __fmaf_rn(x * 0.398942280f, density, normal_mass(x));
    }
};

struct Softcap {
    float cap;
    __device__ float operator()(float x, float) const
    {
        return cap * tanhf(x / cap);
    }
};

/* 1 - tanh^2(x / cap) */
struct SoftcapGrad {
    float cap;
    __device__ float operator()(float x, float dy) const
    {
        float t = tanhf(x / cap);
        return dy * __fmaf_rn(-t, t, 1.0f);
    }
};

/* ---- the map: out[i] = f(x[i], y[i]); y is not read where TWO is false ---- */

template <class T, int N, bool TWO, class F>
__device__ __forceinline__ void map_tile(F f, const T *x, const T *y, T *out, int64_t first, int64_t packs,
                                         bool accumulate)
{
    constexpr int EACH = TWO ? IN_FLIGHT / 2 : IN_FLIGHT;
    float u[EACH][N], v[EACH][N];
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        int64_t p = first + k * THREADS;
        if (p >= packs) continue;
        load_floats<T, N>(x + p * N, u[k]);
        if (TWO) load_floats<T, N>(y + p * N, v[k]);
    }
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        int64_t p = first + k * THREADS;
        if (p >= packs) continue;
#pragma unroll
        for (int i = 0; i < N; i++) u[k][i] = f(u[k][i], TWO ? v[k][i] : 0.0f);
        put_or_add_floats<T, N>(out + p * N, u[k], accumulate);
    }
}

/* What the packs leave over is done by the first threads. */
template <class T, int N, bool TWO, class F>
__global__ void __launch_bounds__(THREADS) map_kernel(F f, const T *x, const T *y, T *out, int64_t n, bool accumulate)
{
    const int64_t packs = n / N, tile = THREADS * (TWO ? IN_FLIGHT / 2 : IN_FLIGHT), rest = packs * N + threadIdx.x;
    for (int64_t first = blockIdx.x * tile; first < packs; first += gridDim.x * tile)
        map_tile<T, N, TWO>(f, x, y, out, first + threadIdx.x, packs, accumulate);
    if (blockIdx.x == 0 && rest < n)
        put_or_add(out + rest, f(to_float(x[rest]), TWO ? to_float(y[rest]) : 0.0f), accumulate);
}

template <class T, int N, bool TWO, class F> void launch_map(const sl_cuda_args *a, F f)
{
    const int64_t n = a->out[0].elements, tile = (int64_t)THREADS * N * (TWO ? IN_FLIGHT / 2 : IN_FLIGHT);
    SL_LAUNCH((map_kernel<T, N, TWO, F>), sl_grid(a, n, tile, BLOCKS), THREADS, 0, a->stream, f,
              (const T *)a->in[0].data, (const T *)a->in[TWO ? 1 : 0].data, (T *)a->out[0].data, n, accumulates(a, 0));
}

template <bool TWO> bool all_aligned(const sl_cuda_args *a)
{
    return aligned_for(a->in[0].data, 16) && aligned_for(a->in[TWO ? 1 : 0].data, 16) &&
           aligned_for(a->out[0].data, 16);
}

template <bool TWO, class F> sluice_status run_map(sl_op op, const sl_cuda_args *a, F f)
{
    return sl_dispatch(sl_cuda_type(op, a), [&](auto element) {
        using T = decltype(element);
        if (all_aligned<TWO>(a))
            launch_map<T, pack_elements<T>, TWO>(a, f);
        else
            launch_map<T, 1, TWO>(a, f);
        return sl_launched(a);
    });
}

/* ---- index arithmetic ---- */

struct Place {
    int64_t row, column;
};

/* 64-bit division is many instructions; almost always 32 bits do. */
__device__ __forceinline__ Place place_of(int64_t index, int64_t width)
{
    if ((uint64_t)index >> 32 == 0 && (uint64_t)width >> 32 == 0) {
        unsigned row = (unsigned)index / (unsigned)width;
        return { row, (unsigned)index - row * (unsigned)width };
    }
    int64_t row = index / width;
    return { row, index - row * width };
}

/* ---- gated linear unit: rows of `width` gates, then as many values; Gate and GateGrad as a map's functions ---- */

template <class T, int N, class Gate>
__global__ void __launch_bounds__(THREADS) gated_kernel(const T *x, T *out, int64_t packs, int64_t row_packs)
{
    const int64_t tile = THREADS * 2;
    for (int64_t first = blockIdx.x * tile + threadIdx.x; first < packs; first += gridDim.x * tile) {
        float gate[2][N], value[2][N];
#pragma unroll
        for (int k = 0; k < 2; k++) {
            int64_t p = first + k * THREADS;
            if (p >= packs) continue;
            Place at = place_of(p, row_packs);
            const T *from = x + (2 * at.row * row_packs + at.column) * N;
            load_floats<T, N>(from, gate[k]);
            load_floats<T, N>(from + row_packs * N, value[k]);
        }
#pragma unroll
        for (int k = 0; k < 2; k++) {
            int64_t p = first + k * THREADS;
            if (p >= packs) continue;
#pragma unroll
            for (int i = 0; i < N; i++) gate[k][i] = Gate()(gate[k][i], 0.0f) * value[k][i];
            store_floats<T, N>(out + p * N, gate[k]);
        }
    }
}

/* Of the gate: dy v Gate'(g); of the value: dy Gate(g). */
template <class T, int N, class Gate, class GateGrad>
__global__ void __launch_bounds__(THREADS)
    gated_grad_kernel(const T *x, const T *dy, T *dx, int64_t packs, int64_t row_packs, bool accumulate)
{
    for (int64_t p = blockIdx.x * THREADS + threadIdx.x; p < packs; p += (int64_t)gridDim.x * THREADS) {
        const Place at = place_of(p, row_packs);
        const int64_t from = (2 * at.row * row_packs + at.column) * N;
        float gate[N], value[N], d[N];
        load_floats<T, N>(x + from, gate);
        load_floats<T, N>(x + from + row_packs * N, value);
        load_floats<T, N>(dy + p * N, d);
#pragma unroll
        for (int i = 0; i < N; i++) {
            float dgate = GateGrad()(gate[i], d[i] * value[i]);
            value[i] = d[i] * Gate()(gate[i], 0.0f);
            gate[i] = dgate;
        }
        put_or_add_floats<T, N>(dx + from, gate, accumulate);
        put_or_add_floats<T, N>(dx + from + row_packs * N, value, accumulate);
    }
}

template <class T, int N, class Gate> void launch_gated(const sl_cuda_args *a, int64_t width)
{
    const int64_t packs = a->out[0].elements / N;
    SL_LAUNCH((gated_kernel<T, N, Gate>), sl_grid(a, packs, THREADS * 2, BLOCKS), THREADS, 0, a->stream,
              (const T *)a->in[0].data, (T *)a->out[0].data, packs, width / N);
}

template <class T, int N, class Gate, class GateGrad> void launch_gated_grad(const sl_cuda_args *a, int64_t width)
{
    const int64_t packs = a->in[1].elements / N;
    SL_LAUNCH((gated_grad_kernel<T, N, Gate, GateGrad>), sl_grid(a, packs, THREADS, BLOCKS), THREADS, 0, a->stream,
              (const T *)a->in[0].data, (const T *)a->in[1].data, (T *)a->out[0].data, packs, width / N,
              accumulates(a, 0));
}

template <class Gate> sluice_status run_gated(sl_op op, const sl_cuda_args *a)
{
    const int64_t width = row_width(&a->out[0]);
    return sl_dispatch(sl_cuda_type(op, a), [&](auto element) {
        using T = decltype(element);
        if (width % pack_elements<T> == 0 && all_aligned<false>(a))
            launch_gated<T, pack_elements<T>, Gate>(a, width);
        else
            launch_gated<T, 1, Gate>(a, width);
        return sl_launched(a);
    });
}

template <class Gate, class GateGrad> sluice_status run_gated_grad(sl_op op, const sl_cuda_args *a)
{
    const int64_t width = row_width(&a->in[1]);
    return sl_dispatch(sl_cuda_type(op, a), [&](auto element) {
        using T = decltype(element);
        if (width % pack_elements<T> == 0 && all_aligned<true>(a))
            launch_gated_grad<T, pack_elements<T>, Gate, GateGrad>(a, width);
        else
            launch_gated_grad<T, 1, Gate, GateGrad>(a, width);
        return sl_launched(a);
    });
}

/* ---- broadcasting ---- */

/* clang-format off */
struct Add { __device__ float operator()(float x, float y) const { return x + y; } };
struct Multiply { __device__ float operator()(float x, float y) const { return x * y; } };
/* clang-format on */

/* Offsets of the two inputs in a row of the innermost axis. */
__device__ __forceinline__ void row_offsets(const sl_axes &axes, int64_t row, int64_t *x, int64_t *y)
{
    *x = *y = 0;
    for (int i = axes.rank - 2; i > 0; i--) {
        Place at = place_of(row, axes.dim[i]);
        *x += at.column * axes.stride[0][i];
        *y += at.column * axes.stride[1][i];
        row = at.row;
    }
    if (axes.rank < 2) return;
    *x += row * axes.stride[0][0];
    *y += row * axes.stride[1][0];
}

/* N elements of an operand, or one of them repeated. */
template <class T, int N>
__device__ __forceinline__ void load_run(const T *p, int64_t column, int64_t step, float (&x)[N])
{
    if (step != 0) {
        load_floats<T, N>(p + column, x);
        return;
    }
    float repeated = to_float(*p);
#pragma unroll
    for (int i = 0; i < N; i++) x[i] = repeated;
}

/* A pack lies in one row of the innermost axis. */
template <class T, int N, class F>
__global__ void __launch_bounds__(THREADS)
    broadcast_kernel(F f, const T *x, const T *y, T *out, int64_t packs, sl_axes axes)
{
    const int64_t tile = THREADS * 2, row_packs = axes.dim[axes.rank - 1] / N;
    const int64_t x_step = axes.stride[0][axes.rank - 1], y_step = axes.stride[1][axes.rank - 1];
    for (int64_t first = blockIdx.x * tile + threadIdx.x; first < packs; first += gridDim.x * tile) {
        float u[2][N], v[2][N];
#pragma unroll
        for (int k = 0; k < 2; k++) {
            int64_t p = first + k * THREADS, x_row, y_row;
            if (p >= packs) continue;
            Place at = place_of(p, row_packs);
            row_offsets(axes, at.row, &x_row, &y_row);
            load_run<T, N>(x + x_row, at.column * N, x_step, u[k]);
            load_run<T, N>(y + y_row, at.column * N, y_step, v[k]);
        }
#pragma unroll
        for (int k = 0; k < 2; k++) {
            int64_t p = first + k * THREADS;
            if (p >= packs) continue;
#pragma unroll
            for (int i = 0; i < N; i++) u[k][i] = f(u[k][i], v[k][i]);
            store_floats<T, N>(out + p * N, u[k]);
        }
    }
}

template <class T, int N, class F> void launch_broadcast(const sl_cuda_args *a, F f, const sl_axes &axes)
{
    const int64_t packs = a->out[0].elements / N;
    SL_LAUNCH((broadcast_kernel<T, N, F>), sl_grid(a, packs, THREADS * 2, BLOCKS), THREADS, 0, a->stream, f,
              (const T *)a->in[0].data, (const T *)a->in[1].data, (T *)a->out[0].data, packs, axes);
}

/* Rows, and what operands skip between them, are whole packs. */
bool in_packs(const sl_axes &axes, int n)
{
    const int last = axes.rank - 1;
    if (axes.dim[last] % n != 0) return false;
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < last && axes.stride[k][last] != 0; i++)
            if (axes.stride[k][i] % n != 0) return false;
    return true;
}

/* A repeated element has no need to be aligned. */
bool operands_aligned(const sl_cuda_args *a, const sl_axes &axes)
{
    for (int k = 0; k < 2; k++)
        if (axes.stride[k][axes.rank - 1] != 0 && !aligned_for(a->in[k].data, 16)) return false;
    return aligned_for(a->out[0].data, 16);
}

template <class F> sluice_status run_binary(sl_op op, const sl_cuda_args *a, F f)
{
    const sl_shape *operands[] = { a->in[0].shape, a->in[1].shape };
    const sl_axes axes = sl_axes_make(a->out[0].shape, operands, 2);
    if (axes.rank == 1 && axes.stride[0][0] == 1 && axes.stride[1][0] == 1) return run_map<true>(op, a, f);
    return sl_dispatch(sl_cuda_type(op, a), [&](auto element) {
        using T = decltype(element);
        if (in_packs(axes, pack_elements<T>) && operands_aligned(a, axes))
            launch_broadcast<T, pack_elements<T>>(a, f, axes);
        else
            launch_broadcast<T, 1>(a, f, axes);
        return sl_launched(a);
    });
}

/* ---- dropout: an element stays when the top 24 bits of its word are at least the threshold ---- */

struct Dropout {
    sl_rng stream;
    unsigned threshold;
    float scale; /* 1 / (1 - p) */
};

/* Factors of elements 4 * block .. */
__device__ __forceinline__ void dropout_factors(const Dropout &d, uint64_t block, float *factor)
{
    const uint4 words = philox(d.stream, block);
    factor[0] = words.x >> 8 >= d.threshold ? d.scale : 0.0f;
    factor[1] = words.y >> 8 >= d.threshold ? d.scale : 0.0f;
    factor[2] = words.z >> 8 >= d.threshold ? d.scale : 0.0f;
    factor[3] = words.w >> 8 >= d.threshold ? d.scale : 0.0f;
}

template <class T, int N>
__global__ void __launch_bounds__(THREADS) dropout_kernel(Dropout d, const T *x, T *out, int64_t packs)
{
    for (int64_t p = blockIdx.x * THREADS + threadIdx.x; p < packs; p += (int64_t)gridDim.x * THREADS) {
        float u[N], factor[N];
        load_floats<T, N>(x + p * N, u);
#pragma unroll
        for (int b = 0; b < N / 4; b++) dropout_factors(d, (uint64_t)p * (N / 4) + b, factor + 4 * b);
#pragma unroll
        for (int i = 0; i < N; i++) u[i] *= factor[i];
        store_floats<T, N>(out + p * N, u);
    }
}

/* Elements [first, n), four to a thread; first is a multiple of four. */
template <class T>
__global__ void __launch_bounds__(THREADS) dropout_rest_kernel(Dropout d, const T *x, T *out, int64_t first, int64_t n)
{
    int64_t i = first + 4 * ((int64_t)blockIdx.x * THREADS + threadIdx.x);
    for (; i < n; i += 4 * (int64_t)gridDim.x * THREADS) {
        float factor[4];
        dropout_factors(d, (uint64_t)i / 4, factor);
        for (int k = 0; k < 4 && i + k < n; k++) out[i + k] = from_float<T>(to_float(x[i + k]) * factor[k]);
    }
}

template <class T> void launch_dropout(const sl_cuda_args *a, const Dropout &d)
{
    constexpr int N = pack_elements<T>;
    const T *x = (const T *)a->in[0].data;
    T *out = (T *)a->out[0].data;
    const int64_t n = a->out[0].elements, packs = all_aligned<false>(a) ? n / N : 0;
    if (packs > 0)
        SL_LAUNCH((dropout_kernel<T, N>), sl_grid(a, packs, THREADS, BLOCKS), THREADS, 0, a->stream, d, x, out, packs);
    if (packs * N < n)
        SL_LAUNCH((dropout_rest_kernel<T>), sl_grid(a, n - packs * N, 4 * THREADS, BLOCKS), THREADS, 0, a->stream, d, x,
                  out, packs * N, n);
}

/* ---- constants ---- */

__global__ void seed_kernel(float *out, float value)
{
    *out = value;
}

template <class T, int N>
__global__ void __launch_bounds__(THREADS)
    expand_kernel(const float *scalar, float factor, T *out, int64_t n, bool accumulate)
{
    const float value = *scalar * factor;
    const int64_t packs = n / N, rest = packs * N + threadIdx.x;
    for (int64_t p = blockIdx.x * THREADS + threadIdx.x; p < packs; p += (int64_t)gridDim.x * THREADS) {
        float u[N];
#pragma unroll
        for (int i = 0; i < N; i++) u[i] = value;
        put_or_add_floats<T, N>(out + p * N, u, accumulate);
    }
    if (blockIdx.x == 0 && rest < n) put_or_add(out + rest, value, accumulate);
}

template <class T, int N> void launch_expand(const sl_cuda_args *a)
{
    const int64_t n = a->out[0].elements;
    SL_LAUNCH((expand_kernel<T, N>), sl_grid(a, n, (int64_t)THREADS * N, BLOCKS), THREADS, 0, a->stream,
              (const float *)a->in[0].data, a->attrs->scale.factor, (T *)a->out[0].data, n, accumulates(a, 0));
}

/* ---- cast: four elements at a time, whose packs of either type are 8 or 16 bytes ---- */

template <class From, class To, int N>
__global__ void __launch_bounds__(THREADS) cast_kernel(const From *x, To *out, int64_t n, bool accumulate)
{
    const int64_t packs = n / N, tile = THREADS * IN_FLIGHT, rest = packs * N + threadIdx.x;
    for (int64_t first = blockIdx.x * tile + threadIdx.x; first < packs; first += gridDim.x * tile) {
        float u[IN_FLIGHT][N];
#pragma unroll
        for (int k = 0; k < IN_FLIGHT; k++)
            if (first + k * THREADS < packs) load_floats<From, N>(x + (first + k * THREADS) * N, u[k]);
#pragma unroll
        for (int k = 0; k < IN_FLIGHT; k++)
            if (first + k * THREADS < packs)
                put_or_add_floats<To, N>(out + (first + k * THREADS) * N, u[k], accumulate);
    }
    if (blockIdx.x == 0 && rest < n) put_or_add(out + rest, to_float(x[rest]), accumulate);
}

template <class From, class To, int N> void launch_cast(const sl_cuda_args *a)
{
    const int64_t n = a->out[0].elements;
    SL_LAUNCH((cast_kernel<From, To, N>), sl_grid(a, n, (int64_t)THREADS * IN_FLIGHT * N, BLOCKS), THREADS, 0,
              a->stream, (const From *)a->in[0].data, (To *)a->out[0].data, n, accumulates(a, 0));
}
} // namespace SL_KERNELS

extern "C" {

SL_CUDA_KERNEL(scale)
{
    return run_map<false>(SL_OP_SCALE, a, Scale{ a->attrs->scale.factor });
}

SL_CUDA_KERNEL(relu)
{
    return run_map<false>(SL_OP_RELU, a, Relu());
}

SL_CUDA_KERNEL(relu_grad)
{
    return run_map<true>(SL_OP_RELU_GRAD, a, ReluGrad());
}

SL_CUDA_KERNEL(silu)
{
    return run_map<false>(SL_OP_SILU, a, Silu());
}

SL_CUDA_KERNEL(silu_grad)
{
    return run_map<true>(SL_OP_SILU_GRAD, a, SiluGrad());
}

SL_CUDA_KERNEL(tanh)
{
    return run_map<false>(SL_OP_TANH, a, Tanh());
}

SL_CUDA_KERNEL(tanh_grad)
{
    return run_map<true>(SL_OP_TANH_GRAD, a, TanhGrad());
}

SL_CUDA_KERNEL(sigmoid)
{
    return run_map<false>(SL_OP_SIGMOID, a, Sigmoid());
}

SL_CUDA_KERNEL(sigmoid_grad)
{
    return run_map<true>(SL_OP_SIGMOID_GRAD, a, SigmoidGrad());
}

SL_CUDA_KERNEL(gelu)
{
    if (a->attrs->gelu.exact) return run_map<false>(SL_OP_GELU, a, GeluExact());
    return run_map<false>(SL_OP_GELU, a, GeluTanh());
}

SL_CUDA_KERNEL(gelu_grad)
{
    if (a->attrs->gelu.exact) return run_map<true>(SL_OP_GELU_GRAD, a, GeluExactGrad());
    return run_map<true>(SL_OP_GELU_GRAD, a, GeluTanhGrad());
}

SL_CUDA_KERNEL(softcap)
{
    return run_map<false>(SL_OP_SOFTCAP, a, Softcap{ a->attrs->softcap.cap });
}

SL_CUDA_KERNEL(softcap_grad)
{
    return run_map<true>(SL_OP_SOFTCAP_GRAD, a, SoftcapGrad{ a->attrs->softcap.cap });
}

SL_CUDA_KERNEL(swiglu)
{
    return run_gated<Silu>(SL_OP_SWIGLU, a);
}

SL_CUDA_KERNEL(swiglu_grad)
{
    return run_gated_grad<Silu, SiluGrad>(SL_OP_SWIGLU_GRAD, a);
}

SL_CUDA_KERNEL(geglu)
{
    return a->attrs->gelu.exact ? run_gated<GeluExact>(SL_OP_GEGLU, a) : run_gated<GeluTanh>(SL_OP_GEGLU, a);
}

SL_CUDA_KERNEL(geglu_grad)
{
    if (a->attrs->gelu.exact) return run_gated_grad<GeluExact, GeluExactGrad>(SL_OP_GEGLU_GRAD, a);
    return run_gated_grad<GeluTanh, GeluTanhGrad>(SL_OP_GEGLU_GRAD, a);
}

SL_CUDA_KERNEL(add)
{
    return run_binary(SL_OP_ADD, a, Add());
}

SL_CUDA_KERNEL(multiply)
{
    return run_binary(SL_OP_MULTIPLY, a, Multiply());
}

/* In evaluation the identity. */
SL_CUDA_KERNEL(dropout)
{
    const sl_run_context *run = a->context;
    const float p = a->attrs->dropout.p;
    return sl_dispatch(sl_cuda_type(SL_OP_DROPOUT, a), [&](auto element) {
        using T = decltype(element);
        if (run->training) {
            Dropout d;
            d.stream = sl_rng_stream(run->seed, SL_RNG_DROPOUT, run->step, run->micro, a->attrs->dropout.op);
            d.threshold = (unsigned)ceil((double)p * 0x1p24); /* exact: p has 24 bits */
            d.scale = 1.0f / (1.0f - p);
            launch_dropout<T>(a, d);
        } else if (a->in[0].data != a->out[0].data) {
            cudaMemcpyAsync(a->out[0].data, a->in[0].data, (size_t)a->out[0].elements * sizeof(T),
                            cudaMemcpyDeviceToDevice, (cudaStream_t)a->stream);
        }
        return sl_launched(a);
    });
}

/* Scalars are f32 in every type. */
SL_CUDA_KERNEL(seed)
{
    SL_LAUNCH(seed_kernel, 1, 1, 0, a->stream, (float *)a->out[0].data, a->context->seed_gradient);
    return sl_launched(a);
}

SL_CUDA_KERNEL(expand)
{
    return sl_dispatch(sl_cuda_type(SL_OP_EXPAND, a), [&](auto element) {
        using T = decltype(element);
        if (aligned_for(a->out[0].data, 16))
            launch_expand<T, pack_elements<T>>(a);
        else
            launch_expand<T, 1>(a);
        return sl_launched(a);
    });
}

SL_CUDA_KERNEL(cast)
{
    return sl_dispatch(a->in[0].form, [&](auto source) {
        return sl_dispatch(a->out[0].form, [&](auto target) {
            using From = decltype(source);
            using To = decltype(target);
            if (aligned_for(a->in[0].data, 4 * sizeof(From)) && aligned_for(a->out[0].data, 4 * sizeof(To)))
                launch_cast<From, To, 4>(a);
            else
                launch_cast<From, To, 1>(a);
            return sl_launched(a);
        });
    });
}
}
