/* mistakes.cc: see mistakes.h. */
#include "backend/cuda/launch.cuh"

#include "support/cuda/mistakes.h"

namespace
{
__global__ void reversed(int *out)
{
    __shared__ int held[64];
    held[threadIdx.x] = (int)threadIdx.x;
    __syncthreads();
    out[threadIdx.x] = held[63 - threadIdx.x] + __shfl_down_sync(0xffffffffu, 0, 1);
}

__global__ void lonely_barrier()
{
    if (threadIdx.x > 3) __syncthreads();
}

__global__ void two_barriers()
{
    if (threadIdx.x > 3)
        __syncthreads();
    else
        __syncthreads();
}

__global__ void absent_lane()
{
    if (threadIdx.x == 5) return;
    __shfl_xor_sync(0xffffffffu, 1.0f, 1);
}

__global__ void unnamed_lane()
{
    __shfl_sync(0xfffffff0u, 1.0f, 4);
}

__global__ void outside_mask()
{
    if (threadIdx.x < 16) __shfl_sync(0xffffu, 1.0f, 20);
}

__global__ void nothing()
{
}

__global__ void past_shared()
{
    SL_DYNAMIC_SHARED(float, held);
    held[blockDim.x + threadIdx.x] = 0.0f;
}

/* Threads of a later warp read what the first one writes: without a barrier some see the poison. */
__global__ void no_barrier(int *out)
{
    __shared__ int held[64];
    held[threadIdx.x] = 1;
    out[threadIdx.x] = held[63 - threadIdx.x];
}

void launch_no_barrier()
{
    int out[64], right = 0;
    SL_LAUNCH(no_barrier, 1, 64, 0, nullptr, out);
    for (int i = 0; i < 64; i++) right += out[i] == 1;
    if (right == 64) return;
    fprintf(stderr, "poison was read\n");
    abort();
}

void launch_reversed()
{
    int out[64];
    SL_LAUNCH(reversed, 3, 64, 0, nullptr, out);
    for (int i = 0; i < 64; i++)
        if (out[i] != 63 - i) abort();
}
} // namespace

const sl_mistake sl_mistakes[] = {
    { nullptr, launch_reversed },
    { "never come", [] { SL_LAUNCH(lonely_barrier, 1, 32, 0, nullptr); } },
    { "different barriers", [] { SL_LAUNCH(two_barriers, 1, 32, 0, nullptr); } },
    { "has left", [] { SL_LAUNCH(absent_lane, 1, 32, 0, nullptr); } },
    { "does not name it", [] { SL_LAUNCH(unnamed_lane, 1, 32, 0, nullptr); } },
    { "outside its mask", [] { SL_LAUNCH(outside_mask, 1, 32, 0, nullptr); } },
    { "the block does not have", [] { SL_LAUNCH(absent_lane, 1, 4, 0, nullptr); } },
    { "empty grid", [] { SL_LAUNCH(nothing, 0, 32, 0, nullptr); } },
    { "no such block", [] { SL_LAUNCH(nothing, 1, 1025, 0, nullptr); } },
    { "than allowed", [] { SL_LAUNCH(nothing, 1, 32, 50000, nullptr); } },
    { "past dynamic", [] { SL_LAUNCH(past_shared, 1, 32, 128, nullptr); } },
    { "poison was read", launch_no_barrier },
};
const int sl_mistake_count = (int)(sizeof sl_mistakes / sizeof sl_mistakes[0]);
