/* gru_walk.cu: a GRU of small states in one kernel for all frames, forward and backward.
 *
 * A block owns some elements of the state, whose part of the weight stays in its shared memory, and takes all sequences from
 * frame to frame; a warp has a sequence's product with that part. What all blocks need of a frame, states or gradients of
 * gates, goes through memory in f32, in two buffers that take turns, and a barrier of the whole grid ends a frame. Where the
 * grid does not fit on the device at once, and in the emulation, a launch is one frame: the same work in the same order, so
 * the same bits. How many elements a block owns changes no sum either. */
#include "backend/cuda/elem.cuh"

#include "backend/cuda/gru_step.h"

inline namespace SL_KERNELS
{
constexpr int THREADS = 256, WARP = 32, WARPS = THREADS / WARP;

/* Frames [first, end) of those that are worked through; all of them in one launch, with `arrived` as barrier. */
struct Walk {
    sl_gru_frame f;
    const void *weight; /* [3H,H] */
    float *buffers[2];  /* [B,H] states, or [B,3H] gradients of gates */
    unsigned *arrived;  /* blocks at a barrier, counted on; nullptr: a launch is one frame */
    int64_t first, end;
    bool backwards; /* by time */
};

__device__ __forceinline__ float sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

/* Of other blocks' writing: not from a cache that may hold what was there before. */
__device__ __forceinline__ float load_shared_buffer(const float *p)
{
#if defined(SL_CUDA_EMULATE)
    return *p;
#else
    return __ldcg(p);
#endif
}

/* All blocks have arrived `times` times. */
__device__ __forceinline__ void wait_for_grid(unsigned *arrived, unsigned times)
{
#if !defined(SL_CUDA_EMULATE)
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        atomicAdd(arrived, 1u);
        while (*(volatile unsigned *)arrived < times * gridDim.x) {
        }
        __threadfence();
    }
    __syncthreads();
#else
    (void)arrived;
    (void)times;
#endif
}

/* sums[i] = the product of n numbers with row i of `rows`, in every lane of the warp. */
template <int ROWS>
__device__ __forceinline__ void warp_products(const float *x, const float *rows, int64_t n, float (&sums)[ROWS])
{
#pragma unroll
    for (int i = 0; i < ROWS; i++) sums[i] = 0.0f;
    for (int64_t k = threadIdx.x % WARP; k < n; k += WARP) {
        const float value = load_shared_buffer(x + k);
#pragma unroll
        for (int i = 0; i < ROWS; i++) sums[i] = __fmaf_rn(value, rows[i * n + k], sums[i]);
    }
#pragma unroll
    for (int i = 0; i < ROWS; i++) sums[i] = warp_sum(sums[i]);
}

__device__ __forceinline__ int64_t frame_of(const Walk &w, int64_t n)
{
    return w.backwards ? w.f.shape.frames - 1 - n : n;
}

/* The number of sums[3U] that lane u wants of gate `gate`; a loop, so that sums stay in registers. */
template <int U> __device__ __forceinline__ float pick(const float (&sums)[3 * U], int gate, int u)
{
    float x = 0.0f;
#pragma unroll
    for (int i = 0; i < U; i++)
        if (i == u) x = gate == 0 ? sums[i] : gate == 1 ? sums[U + i] : sums[2 * U + i];
    return x;
}

/* ---- forward ---- */

/* Element c of the state of sequence b at frame t. */
template <class T>
__device__ __forceinline__ void forward_element(const Walk &w, int64_t n, int64_t b, int64_t c,
                                                const float (&product)[3])
{
    const sl_gru_frame &f = w.f;
    const int64_t width = f.shape.width, t = frame_of(w, n), frame = b * f.shape.frames + t;
    const T *x = (const T *)f.gates_x + frame * 3 * width + c, *bias = (const T *)f.bias + c;
    float r = 0.0f, z = 0.0f, m = 0.0f, of_state = 0.0f, h = 0.0f;
    if (f.lengths == nullptr || t < f.lengths[b]) {
        const float past = n == 0 ? 0.0f : load_shared_buffer(w.buffers[n % 2] + b * width + c);
        of_state = product[2] + to_float(bias[2 * width]);
        r = sigmoid(to_float(x[0]) + (product[0] + to_float(bias[0])));
        z = sigmoid(to_float(x[width]) + (product[1] + to_float(bias[width])));
        m = tanhf(__fmaf_rn(r, of_state, to_float(x[2 * width])));
        h = __fmaf_rn(z, past - m, m);
    }
    float *gates = f.gates + frame * 4 * width + c;
    w.buffers[(n + 1) % 2][b * width + c] = h;
    ((T *)f.h)[frame * width + c] = from_float<T>(h);
    gates[0] = r;
    gates[width] = z;
    gates[2 * width] = m;
    gates[3 * width] = of_state;
}

template <class T, int U> __global__ void __launch_bounds__(THREADS) forward_walk(const Walk w)
{
    SL_DYNAMIC_SHARED(float, rows); /* [3U, H] */
    const int64_t width = w.f.shape.width, first = (int64_t)blockIdx.x * U;
    const int lane = (int)(threadIdx.x % WARP);
    for (int64_t i = threadIdx.x; i < 3 * U * width; i += THREADS) {
        const int64_t row = i / width, gate = row / U, c = first + row % U;
        rows[i] = c < width ? to_float(((const T *)w.weight)[(gate * width + c) * width + i % width]) : 0.0f;
    }
    __syncthreads();
    for (int64_t n = w.first; n < w.end; n++) {
        for (int64_t b = threadIdx.x / WARP; b < w.f.shape.batch; b += WARPS) {
            float sums[3 * U] = {};
            if (n > 0) warp_products<3 * U>(w.buffers[n % 2] + b * width, rows, width, sums);
            const float product[3] = { pick<U>(sums, 0, lane), pick<U>(sums, 1, lane), pick<U>(sums, 2, lane) };
            if (lane < U && first + lane < width) forward_element<T>(w, n, b, first + lane, product);
        }
        if (n + 1 < w.end) wait_for_grid(w.arrived, (unsigned)(n + 1));
    }
}

/* ---- backward ---- */

/* Element c: f.state has what later frames give of its gradient. */
template <class T> __device__ __forceinline__ void backward_element(const Walk &w, int64_t n, int64_t b, int64_t c)
{
    const sl_gru_frame &f = w.f;
    const int64_t width = f.shape.width, t = frame_of(w, n), frame = b * f.shape.frames + t;
    const int64_t before = n + 1 == f.shape.frames ? -1 : frame_of(w, n + 1);
    const float *gates = f.gates + frame * 4 * width + c;
    const float past = before < 0 ? 0.0f : to_float(((const T *)f.states)[(b * f.shape.frames + before) * width + c]);
    const float r = gates[0], z = gates[width], m = gates[2 * width];
    float dr = 0.0f, dz = 0.0f, dm = 0.0f, on = 0.0f;
    if (f.lengths == nullptr || t < f.lengths[b]) {
        const float dh = to_float(((const T *)f.dh)[frame * width + c]) + (n == 0 ? 0.0f : f.state[b * width + c]);
        dm = dh * (1.0f - z) * __fmaf_rn(-m, m, 1.0f);
        dr = dm * gates[3 * width] * (r * (1.0f - r));
        dz = dh * (past - m) * (z * (1.0f - z));
        on = dh * z;
    }
    float *shared = w.buffers[n % 2] + b * 3 * width + c;
    T *dgates = (T *)f.dgates + frame * 3 * width + c, *dx = (T *)f.dgates_x;
    f.state[b * width + c] = on;
    shared[0] = dr;
    shared[width] = dz;
    shared[2 * width] = dm * r;
    dgates[0] = from_float<T>(dr);
    dgates[width] = from_float<T>(dz);
    dgates[2 * width] = from_float<T>(dm * r);
    if (f.previous != nullptr) ((T *)f.previous)[frame * width + c] = from_float<T>(past);
    if (dx == nullptr) return;
    dx += frame * 3 * width + c;
    put_or_add(dx, dr, f.accumulate);
    put_or_add(dx + width, dz, f.accumulate);
    put_or_add(dx + 2 * width, dm, f.accumulate);
}

template <class T, int U> __global__ void __launch_bounds__(THREADS) backward_walk(const Walk w)
{
    SL_DYNAMIC_SHARED(float, columns); /* [U, 3H] */
    const int64_t width = w.f.shape.width, first = (int64_t)blockIdx.x * U;
    const int lane = (int)(threadIdx.x % WARP);
    for (int64_t i = threadIdx.x; i < U * 3 * width; i += THREADS) {
        const int64_t c = first + i / (3 * width), row = i % (3 * width);
        columns[i] = c < width ? to_float(((const T *)w.weight)[row * width + c]) : 0.0f;
    }
    __syncthreads();
    for (int64_t n = w.first; n < w.end; n++) {
        for (int64_t b = threadIdx.x / WARP; b < w.f.shape.batch; b += WARPS) {
            float sums[U] = {}, sum = 0.0f;
            if (n > 0) warp_products<U>(w.buffers[(n - 1) % 2] + b * 3 * width, columns, 3 * width, sums);
#pragma unroll
            for (int i = 0; i < U; i++)
                if (i == lane) sum = sums[i];
            if (lane >= U || first + lane >= width) continue;
            if (n > 0) w.f.state[b * width + first + lane] += sum;
            backward_element<T>(w, n, b, first + lane);
        }
        if (n + 1 < w.end) wait_for_grid(w.arrived, (unsigned)(n + 1));
    }
}

/* ---- launches ---- */

typedef void (*walk_kernel)(Walk);

/* All frames in one launch where the device takes the grid at once, else one by one. */
sluice_status launch(const sl_cuda_args *a, walk_kernel kernel, Walk w, int elements, size_t shared)
{
    const unsigned blocks = (unsigned)((w.f.shape.width + elements - 1) / elements);
#if !defined(SL_CUDA_EMULATE)
    w.first = 0;
    w.end = w.f.shape.frames;
    void *arguments[] = { &w };
    if (cudaMemsetAsync(w.arrived, 0, sizeof *w.arrived, (cudaStream_t)a->stream) == cudaSuccess &&
        cudaLaunchCooperativeKernel((const void *)kernel, dim3(blocks), dim3(THREADS), arguments, shared,
                                    (cudaStream_t)a->stream) == cudaSuccess)
        return sl_launched(a);
    (void)cudaGetLastError(); /* too many blocks for this device */
#endif
    for (int64_t n = 0; n < w.f.shape.frames; n++) {
        w.first = n;
        w.end = n + 1;
        SL_LAUNCH(kernel, blocks, THREADS, shared, a->stream, w);
    }
    return sl_launched(a);
}

/* Elements of a block: as few as leave a block for each multiprocessor. */
int elements_of(const sl_cuda_args *a, int64_t width)
{
    int elements = 1;
    while (elements < SL_GRU_MOST_ELEMENTS && width > (int64_t)elements * a->multiprocessors) elements *= 2;
    return elements;
}

template <class T> walk_kernel kernel_of(bool forward, int elements)
{
    if (elements == 1) return forward ? forward_walk<T, 1> : backward_walk<T, 1>;
    if (elements == 2) return forward ? forward_walk<T, 2> : backward_walk<T, 2>;
    if (elements == 4) return forward ? forward_walk<T, 4> : backward_walk<T, 4>;
    return forward ? forward_walk<T, 8> : backward_walk<T, 8>;
}
} // namespace SL_KERNELS

extern "C" sluice_status sl_cuda_gru_walk(const sl_cuda_args *a, const sl_gru_frame *f, const void *weight, void *turns,
                                          bool forward, bool backwards)
{
    const int64_t width = f->shape.width, row = forward ? width : 3 * width;
    const int elements = elements_of(a, width);
    Walk w = {};
    w.f = *f;
    w.weight = weight;
    w.arrived = (unsigned *)turns;
    w.buffers[0] = (float *)((char *)turns + SL_GRU_BARRIER_BYTES);
    w.buffers[1] = w.buffers[0] + f->shape.batch * row;
    w.backwards = backwards;
    return sl_dispatch(f->form, [&](auto element) {
        return launch(a, kernel_of<decltype(element)>(forward, elements), w, elements,
                      (size_t)(3 * elements * width) * sizeof(float));
    });
}
