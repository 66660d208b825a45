/* finish_sum.cuh: the second pass of a sum over a whole tensor: the parts, in double, in an order that their number fixes. */
#ifndef SL_BACKEND_CUDA_FINISH_SUM_CUH
#define SL_BACKEND_CUDA_FINISH_SUM_CUH

#include "backend/cuda/launch.cuh"

inline namespace SL_KERNELS
{
constexpr int FINISH_THREADS = 1024;

/* *out = the sum of the parts over `divisor`, in double. */
__global__ void __launch_bounds__(FINISH_THREADS)
    finish_sum_kernel(const double *parts, int64_t count, double divisor, float *out)
{
    __shared__ double tree[FINISH_THREADS];
    double sum = 0.0;
    for (int64_t i = threadIdx.x; i < count; i += FINISH_THREADS) sum += parts[i];
    tree[threadIdx.x] = sum;
    for (unsigned half = FINISH_THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) tree[threadIdx.x] += tree[threadIdx.x + half];
    }
    if (threadIdx.x == 0) *out = (float)(tree[0] / divisor);
}

void finish_sum(void *stream, const double *parts, int64_t count, double divisor, float *out)
{
    SL_LAUNCH(finish_sum_kernel, 1, FINISH_THREADS, 0, stream, parts, count, divisor, out);
}
} // namespace SL_KERNELS

#endif
