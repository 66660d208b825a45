/* norm_groups.cuh: the gradients of a norm's parameters are sums over rows. Each group of rows is summed by one block,
 * into the workspace; here the groups are added up, in an order that their number alone fixes. */
#ifndef SL_BACKEND_CUDA_NORM_GROUPS_CUH
#define SL_BACKEND_CUDA_NORM_GROUPS_CUH

#include "backend/cuda/elem.cuh"

inline namespace SL_KERNELS
{
constexpr int SUM_COLUMNS = 32, SUM_LANES = 32; /* of a block that adds up groups */

struct GroupSums {
    const float *groups; /* [count, width] */
    void *out;           /* [width] */
    sl_form form;
    bool add;
};

struct GroupJob {
    GroupSums sums[2]; /* by blockIdx.y */
    int wanted;        /* of them */
    int64_t count, width;
};

__device__ __forceinline__ void put_column(const GroupSums &s, int64_t column, float x)
{
    if (s.form == SL_FORM_BF16)
        put_or_add((bf16 *)s.out + column, x, s.add);
    else if (s.form == SL_FORM_F16)
        put_or_add((f16 *)s.out + column, x, s.add);
    else
        put_or_add((float *)s.out + column, x, s.add);
}

/* Lane y sums the groups y, y + SUM_LANES, ..; then the lanes are summed in order. */
__global__ void __launch_bounds__(SUM_COLUMNS *SUM_LANES) add_groups(const GroupJob j)
{
    __shared__ float lanes[SUM_LANES][SUM_COLUMNS];
    const GroupSums s = blockIdx.y == 0 ? j.sums[0] : j.sums[1];
    const int64_t column = (int64_t)blockIdx.x * SUM_COLUMNS + threadIdx.x;
    float sum = 0.0f;
    if (column < j.width)
#pragma unroll 8
        for (int64_t group = threadIdx.y; group < j.count; group += SUM_LANES)
            sum += s.groups[group * j.width + column];
    lanes[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y != 0 || column >= j.width) return;
    for (int y = 1; y < SUM_LANES; y++) sum += lanes[y][threadIdx.x];
    put_column(s, column, sum);
}

/* Where the groups of an output's sums lie, behind those placed before; nullptr: that gradient is not wanted. */
float *place_groups(const sl_cuda_args *a, int output, GroupJob *g)
{
    if (a->output_count <= output || a->out[output].data == nullptr) return nullptr;
    float *groups = (float *)a->workspace + g->wanted * g->count * g->width;
    g->sums[g->wanted++] = { groups, a->out[output].data, a->out[output].form, accumulates(a, output) };
    return groups;
}

void launch_groups(const sl_cuda_args *a, const GroupJob &g)
{
    const dim3 grid((unsigned)((g.width + SUM_COLUMNS - 1) / SUM_COLUMNS), (unsigned)g.wanted);
    if (g.wanted > 0) SL_LAUNCH(add_groups, grid, dim3(SUM_COLUMNS, SUM_LANES), 0, a->stream, g);
}
} // namespace SL_KERNELS

#endif
