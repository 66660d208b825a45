/* bce.cu: binary cross entropy of logits, and its gradients. The loss of an element is max(y, 0) - y t + log(1 + e^-|y|):
 * no exponential overflows. Summed in the two passes of reduce.cu, cut as reduce_size.h says. */
#include "backend/cuda/elem.cuh"

#include "backend/cuda/finish_sum.cuh"
#include "backend/cuda/reduce_size.h"

inline namespace SL_KERNELS
{
template <class T> struct BceJob {
    const T *y, *target, *weight; /* weight nullptr: all are 1 */
    int64_t elements;
    const float *dloss;
    T *dy, *dtarget, *dweight; /* nullptr: not wanted */
    bool add_dy, add_dtarget, add_dweight;
};

__device__ __forceinline__ float element_loss(float y, float t)
{
    return __fmaf_rn(-y, t, fmaxf(y, 0.0f)) + log1pf(expf(-fabsf(y)));
}

/* parts[b] = the sum of the b-th SL_SUM_PART elements. */
template <class T> __global__ void __launch_bounds__(SL_SUM_THREADS) bce_kernel(const BceJob<T> j, double *parts)
{
    const int64_t begin = (int64_t)blockIdx.x * SL_SUM_PART;
    const int64_t end = min(begin + SL_SUM_PART, j.elements);
    float sum = 0.0f;
#pragma unroll 4
    for (int64_t i = begin + threadIdx.x; i < end; i += SL_SUM_THREADS) {
        const float loss = element_loss(to_float(j.y[i]), to_float(j.target[i]));
        sum += j.weight != nullptr ? to_float(j.weight[i]) * loss : loss;
    }
    sum = block_sum<SL_SUM_THREADS>(sum);
    if (threadIdx.x == 0) parts[blockIdx.x] = (double)sum;
}

/* dy = w (sigmoid(y) - t) g, dtarget = -w y g, dweight = loss g, with g = dloss / elements */
template <class T> __global__ void __launch_bounds__(SL_SUM_THREADS) bce_grad_kernel(const BceJob<T> j)
{
    const float g = (float)((double)*j.dloss / (double)j.elements);
    const int64_t step = (int64_t)gridDim.x * SL_SUM_THREADS;
    for (int64_t i = (int64_t)blockIdx.x * SL_SUM_THREADS + threadIdx.x; i < j.elements; i += step) {
        const float y = to_float(j.y[i]), t = to_float(j.target[i]);
        const float w = j.weight != nullptr ? to_float(j.weight[i]) * g : g;
        if (j.dy != nullptr) put_or_add(j.dy + i, w * (1.0f / (1.0f + expf(-y)) - t), j.add_dy);
        if (j.dtarget != nullptr) put_or_add(j.dtarget + i, -w * y, j.add_dtarget);
        if (j.dweight != nullptr) put_or_add(j.dweight + i, g * element_loss(y, t), j.add_dweight);
    }
}

template <class T> BceJob<T> make_job(const sl_cuda_args *a, int weight)
{
    BceJob<T> j = {};
    j.y = (const T *)a->in[0].data;
    j.target = (const T *)a->in[1].data;
    j.weight = a->input_count > weight ? (const T *)a->in[weight].data : nullptr;
    j.elements = a->in[0].elements;
    return j;
}

template <class T> T *wanted(const sl_cuda_args *a, int output)
{
    return a->output_count > output ? (T *)a->out[output].data : nullptr;
}
} // namespace SL_KERNELS

extern "C" {

SL_CUDA_KERNEL(bce_with_logits)
{
    SL_TRY(sl_check_workspace(SL_OP_BCE_WITH_LOGITS, a));
    return sl_dispatch(sl_cuda_type(SL_OP_BCE_WITH_LOGITS, a), [&](auto element) {
        using T = decltype(element);
        const BceJob<T> j = make_job<T>(a, 2);
        const int64_t parts = sl_reduce_ceil_div(j.elements, SL_SUM_PART);
        SL_LAUNCH((bce_kernel<T>), (unsigned)parts, SL_SUM_THREADS, 0, a->stream, j, (double *)a->workspace);
        finish_sum(a->stream, (const double *)a->workspace, parts, (double)j.elements, (float *)a->out[0].data);
        return sl_launched(a);
    });
}

SL_CUDA_KERNEL(bce_with_logits_grad)
{
    return sl_dispatch(sl_cuda_type(SL_OP_BCE_WITH_LOGITS_GRAD, a), [&](auto element) {
        using T = decltype(element);
        BceJob<T> j = make_job<T>(a, 3);
        j.dloss = (const float *)a->in[2].data;
        j.dy = wanted<T>(a, 0);
        j.dtarget = wanted<T>(a, 1);
        j.dweight = wanted<T>(a, 2);
        j.add_dy = accumulates(a, 0);
        j.add_dtarget = accumulates(a, 1);
        j.add_dweight = accumulates(a, 2);
        SL_LAUNCH((bce_grad_kernel<T>), sl_grid(a, j.elements, SL_SUM_THREADS, 16), SL_SUM_THREADS, 0, a->stream, j);
        return sl_launched(a);
    });
}
}
