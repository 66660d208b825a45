/* gru_step.cu: what a frame of a GRU does beside its matrix product, one thread for each element of a state. */
#include "backend/cuda/elem.cuh"

#include "backend/cuda/gru_step.h"

inline namespace SL_KERNELS
{
constexpr int THREADS = 128;

/* Where element c of sequence b's state is. */
struct Place {
    int64_t b, c, frame; /* frame: of all sequences, flat */
    bool counts;         /* the frame is not behind the sequence's end */
};

__device__ __forceinline__ Place place_of(const sl_gru_frame &f, int64_t i)
{
    Place p;
    p.b = i / f.shape.width;
    p.c = i % f.shape.width;
    p.frame = p.b * f.shape.frames + f.frame;
    p.counts = f.lengths == nullptr || f.frame < f.lengths[p.b];
    return p;
}

__device__ __forceinline__ float sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

template <class T> __global__ void __launch_bounds__(THREADS) forward_kernel(const sl_gru_frame f)
{
    const int64_t width = f.shape.width, all = f.shape.batch * width;
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < all; i += (int64_t)gridDim.x * THREADS) {
        const Place p = place_of(f, i);
        float r = 0.0f, z = 0.0f, n = 0.0f, of_state[3] = {}, h = 0.0f;
        if (p.counts) {
            const T *x = (const T *)f.gates_x + p.frame * 3 * width + p.c, *bias = (const T *)f.bias + p.c;
            const float *product = f.product + p.b * 3 * width + p.c;
            for (int gate = 0; gate < 3; gate++)
                of_state[gate] = (f.first ? 0.0f : product[gate * width]) + to_float(bias[gate * width]);
            r = sigmoid(to_float(x[0]) + of_state[0]);
            z = sigmoid(to_float(x[width]) + of_state[1]);
            n = tanhf(__fmaf_rn(r, of_state[2], to_float(x[2 * width])));
            h = __fmaf_rn(z, (f.first ? 0.0f : f.state[i]) - n, n);
        }
        float *gates = f.gates + p.frame * 4 * width + p.c;
        f.state[i] = h;
        ((T *)f.h)[p.frame * width + p.c] = from_float<T>(h);
        gates[0] = r;
        gates[width] = z;
        gates[2 * width] = n;
        gates[3 * width] = of_state[2];
    }
}

/* The gradient of a frame's state becomes those of its gates, and what goes straight on to the state before. */
template <class T> __global__ void __launch_bounds__(THREADS) backward_kernel(const sl_gru_frame f)
{
    const int64_t width = f.shape.width, all = f.shape.batch * width;
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < all; i += (int64_t)gridDim.x * THREADS) {
        const Place p = place_of(f, i);
        const float *gates = f.gates + p.frame * 4 * width + p.c;
        const float r = gates[0], z = gates[width], n = gates[2 * width];
        const int64_t at = (p.b * f.shape.frames + f.before) * width + p.c;
        const float past = f.before < 0 ? 0.0f : to_float(((const T *)f.states)[at]);
        float dr = 0.0f, dz = 0.0f, dn = 0.0f, on = 0.0f;
        if (p.counts) {
            const float dh = to_float(((const T *)f.dh)[p.frame * width + p.c]) + (f.first ? 0.0f : f.state[i]);
            dn = dh * (1.0f - z) * __fmaf_rn(-n, n, 1.0f);
            dr = dn * gates[3 * width] * (r * (1.0f - r));
            dz = dh * (past - n) * (z * (1.0f - z));
            on = dh * z;
        }
        T *dgates = (T *)f.dgates + p.frame * 3 * width + p.c, *dx = (T *)f.dgates_x;
        f.state[i] = on;
        dgates[0] = from_float<T>(dr);
        dgates[width] = from_float<T>(dz);
        dgates[2 * width] = from_float<T>(dn * r);
        if (f.previous != nullptr) ((T *)f.previous)[p.frame * width + p.c] = from_float<T>(past);
        if (dx == nullptr) continue;
        dx += p.frame * 3 * width + p.c;
        put_or_add(dx, dr, f.accumulate);
        put_or_add(dx + width, dz, f.accumulate);
        put_or_add(dx + 2 * width, dn, f.accumulate);
    }
}

unsigned grid_of(const sl_cuda_args *a, const sl_gru_frame *f)
{
    return sl_grid(a, f->shape.batch * f->shape.width, THREADS, 16);
}
} // namespace SL_KERNELS

extern "C" {

sluice_status sl_cuda_gru_forward_frame(const sl_cuda_args *a, const sl_gru_frame *f)
{
    return sl_dispatch(f->form, [&](auto element) {
        SL_LAUNCH((forward_kernel<decltype(element)>), grid_of(a, f), THREADS, 0, a->stream, *f);
        return sl_launched(a);
    });
}

sluice_status sl_cuda_gru_backward_frame(const sl_cuda_args *a, const sl_gru_frame *f)
{
    return sl_dispatch(f->form, [&](auto element) {
        SL_LAUNCH((backward_kernel<decltype(element)>), grid_of(a, f), THREADS, 0, a->stream, *f);
        return sl_launched(a);
    });
}
}
