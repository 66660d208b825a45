/* reduce.cu: sums: of a whole tensor, of squared differences, and over the dimensions along which an operand was
 * broadcast.
 *
 * Two passes, cut as reduce_size.h says: blocks sum parts, then the parts are summed. Which thread adds what, and in
 * which order, is the same whether elements are loaded in packs or one by one, and so are the bits. */
#include "backend/cuda/elem.cuh"

#include "backend/cuda/finish_sum.cuh"
#include "backend/cuda/reduce_size.h"

inline namespace SL_KERNELS
{
/* ---- the whole tensor ---- */

/* clang-format off */
struct Plain { __device__ static float add(float sum, float x, float) { return sum + x; } };
struct SquaredDifference { __device__ static float add(float sum, float x, float y) { return __fmaf_rn(x - y, x - y, sum); } };
struct Product { __device__ static float add(float sum, float x, float y) { return __fmaf_rn(x, y, sum); } };
/* clang-format on */

/* N elements from p[0], of which `left` are there; the others are 0. */
template <class T, int N, bool PACKS> __device__ __forceinline__ void load_part(const T *p, int64_t left, float (&x)[N])
{
    if (PACKS && left >= N) {
        load_floats<T, N>(p, x);
        return;
    }
#pragma unroll
    for (int i = 0; i < N; i++) x[i] = i < left ? to_float(p[i]) : 0.0f;
}

/* What this thread adds of n consecutive elements: those of its own packs, in order. Absent elements add nothing. */
template <class T, class F, bool TWO, bool PACKS>
__device__ __forceinline__ float sum_run(const T *x, const T *y, int64_t n, int thread, int threads)
{
    constexpr int N = pack_elements<T>;
    float sum = 0.0f;
#pragma unroll 4
    for (int64_t i = (int64_t)thread * N; i < n; i += (int64_t)threads * N) {
        float u[N], v[N];
        load_part<T, N, PACKS>(x + i, n - i, u);
        if (TWO) load_part<T, N, PACKS>(y + i, n - i, v);
#pragma unroll
        for (int k = 0; k < N; k++)
            if (i + k < n) sum = F::add(sum, u[k], TWO ? v[k] : 0.0f);
    }
    return sum;
}

/* parts[b] = the sum of the b-th SL_SUM_PART elements. */
template <class T, class F, bool TWO, bool PACKS>
__global__ void __launch_bounds__(SL_SUM_THREADS) sum_kernel(const T *x, const T *y, int64_t n, double *parts)
{
    const int64_t begin = (int64_t)blockIdx.x * SL_SUM_PART;
    const int64_t count = n - begin < SL_SUM_PART ? n - begin : SL_SUM_PART;
    float sum = sum_run<T, F, TWO, PACKS>(x + begin, TWO ? y + begin : y, count, (int)threadIdx.x, SL_SUM_THREADS);
    sum = block_sum<SL_SUM_THREADS>(sum);
    if (threadIdx.x == 0) parts[blockIdx.x] = (double)sum;
}

template <class F, bool TWO> sluice_status run_sum(sl_op op, const sl_cuda_args *a, double divisor)
{
    const int64_t n = a->in[0].elements, parts = sl_reduce_ceil_div(n, SL_SUM_PART);
    double *part = (double *)a->workspace;
    SL_TRY(sl_check_workspace(op, a));
    return sl_dispatch(sl_cuda_type(op, a), [&](auto element) {
        using T = decltype(element);
        const T *x = (const T *)a->in[0].data, *y = (const T *)a->in[TWO ? 1 : 0].data;
        if (aligned_for(x, 16) && aligned_for(y, 16))
            SL_LAUNCH((sum_kernel<T, F, TWO, true>), (unsigned)parts, SL_SUM_THREADS, 0, a->stream, x, y, n, part);
        else
            SL_LAUNCH((sum_kernel<T, F, TWO, false>), (unsigned)parts, SL_SUM_THREADS, 0, a->stream, x, y, n, part);
        finish_sum(a->stream, part, parts, divisor, (float *)a->out[0].data);
        return sl_launched(a);
    });
}

/* ---- gradient of the mean squared difference ---- */

template <class T, int N>
__global__ void __launch_bounds__(SL_SUM_THREADS)
    mse_grad_kernel(const T *y, const T *t, const float *dloss, T *dy, T *dt, int64_t n, bool add_dy, bool add_dt)
{
    const float factor = (float)(2.0 * (double)*dloss / (double)n);
    const int64_t step = (int64_t)gridDim.x * SL_SUM_THREADS * N;
    for (int64_t i = ((int64_t)blockIdx.x * SL_SUM_THREADS + threadIdx.x) * N; i < n; i += step) {
        float u[N], v[N];
        load_part<T, N, (N > 1)>(y + i, n - i, u);
        load_part<T, N, (N > 1)>(t + i, n - i, v);
#pragma unroll
        for (int k = 0; k < N; k++) u[k] = (u[k] - v[k]) * factor;
#pragma unroll
        for (int k = 0; k < N; k++) v[k] = -u[k];
        if (n - i >= N) {
            if (dy != nullptr) put_or_add_floats<T, N>(dy + i, u, add_dy);
            if (dt != nullptr) put_or_add_floats<T, N>(dt + i, v, add_dt);
            continue;
        }
#pragma unroll
        for (int k = 0; k < N; k++) {
            if (i + k < n && dy != nullptr) put_or_add(dy + i + k, u[k], add_dy);
            if (i + k < n && dt != nullptr) put_or_add(dt + i + k, v[k], add_dt);
        }
    }
}

template <class T, int N> void launch_mse_grad(const sl_cuda_args *a)
{
    const int64_t n = a->in[0].elements;
    T *dt = a->output_count > 1 ? (T *)a->out[1].data : nullptr;
    SL_LAUNCH((mse_grad_kernel<T, N>), sl_grid(a, n, (int64_t)SL_SUM_THREADS * N, 16), SL_SUM_THREADS, 0, a->stream,
              (const T *)a->in[0].data, (const T *)a->in[1].data, (const float *)a->in[2].data, (T *)a->out[0].data, dt,
              n, accumulates(a, 0), accumulates(a, 1));
}

/* ---- to a broadcast operand's shape ---- */

/* Where results go: the output, of any float form, or with several parts f32 in the workspace, [parts, outputs]. */
struct Target {
    void *out;
    sl_form form;
    bool accumulate;
    int64_t outputs;
    float *parts; /* NULL: there is one part */
};

__device__ __forceinline__ void put_output(const Target &t, int64_t i, float x)
{
    if (t.form == SL_FORM_BF16)
        put_or_add((bf16 *)t.out + i, x, t.accumulate);
    else if (t.form == SL_FORM_F16)
        put_or_add((f16 *)t.out + i, x, t.accumulate);
    else
        put_or_add((float *)t.out + i, x, t.accumulate);
}

__device__ __forceinline__ void put_part(const Target &t, int64_t part, int64_t i, float x)
{
    if (t.parts != nullptr)
        t.parts[part * t.outputs + i] = x;
    else
        put_output(t, i, x);
}

struct Offsets {
    int64_t dy, other, out;
};

/* Of position `flat` of the axes, row-major. */
__device__ __forceinline__ Offsets offsets_of(const sl_axes &axes, int64_t flat)
{
    Offsets o = { 0, 0, 0 };
    for (int i = axes.rank - 1; i >= 0; i--) {
        int64_t at = i == 0 ? flat : flat % axes.dim[i];
        if (i > 0) flat /= axes.dim[i];
        o.dy += at * axes.stride[SL_REDUCE_DY][i];
        o.other += at * axes.stride[SL_REDUCE_OTHER][i];
        o.out += at * axes.stride[SL_REDUCE_OUT][i];
    }
    return o;
}

/* N columns' factors: their own, or one repeated. */
template <class T, int N> __device__ __forceinline__ void load_factors(const T *p, int64_t step, float (&x)[N])
{
    if (step != 0) {
        load_floats<T, N>(p, x);
        return;
    }
    float repeated = to_float(*p);
#pragma unroll
    for (int i = 0; i < N; i++) x[i] = repeated;
}

/* Kept innermost axis. A block is 32 x SL_COLUMN_LANES threads: x goes along the columns, N to a thread, and y is the
 * lane, which adds every SL_COLUMN_LANES-th position of the part; the lanes' sums are added in order. */
template <class T, class F, bool TWO, int N>
__global__ void __launch_bounds__(32 * SL_COLUMN_LANES)
    columns_kernel(const T *dy, const T *other, Target target, sl_reduce_cut cut, int64_t tiles)
{
    __shared__ float lanes[SL_COLUMN_LANES][32 * N];
    const int64_t tile = blockIdx.x % tiles, row = blockIdx.x / tiles;
    const Offsets base = offsets_of(cut.kept, row % cut.kept_count);
    const int64_t part = row / cut.kept_count, begin = part * cut.part;
    const int64_t end = begin + cut.part < cut.summed_count ? begin + cut.part : cut.summed_count;
    const int64_t column = (tile * 32 + threadIdx.x) * N;
    float sum[N];
#pragma unroll
    for (int i = 0; i < N; i++) sum[i] = 0.0f;
    if (column < cut.inner) {
#pragma unroll 4
        for (int64_t r = begin + threadIdx.y; r < end; r += SL_COLUMN_LANES) {
            const Offsets at = offsets_of(cut.summed, r);
            float u[N], v[N];
            load_floats<T, N>(dy + base.dy + at.dy + column, u);
            if (TWO) load_factors<T, N>(other + base.other + at.other + column * cut.other_step, cut.other_step, v);
#pragma unroll
            for (int i = 0; i < N; i++) sum[i] = F::add(sum[i], u[i], TWO ? v[i] : 0.0f);
        }
    }
#pragma unroll
    for (int i = 0; i < N; i++) lanes[threadIdx.y][threadIdx.x * N + i] = sum[i];
    __syncthreads();
    for (int c = (int)(threadIdx.y * 32 + threadIdx.x); c < 32 * N; c += 32 * SL_COLUMN_LANES) {
        if (tile * 32 * N + c >= cut.inner) continue;
        float total = lanes[0][c];
        for (int y = 1; y < SL_COLUMN_LANES; y++) total += lanes[y][c];
        put_part(target, part, base.out + tile * 32 * N + c, total);
    }
}

/* One element of a run that makes one output: `flat` counts through summed positions and the innermost axis. */
template <class T, class F, bool TWO>
__device__ __forceinline__ float add_scattered(float sum, const T *dy, const T *other, const sl_reduce_cut &cut,
                                               const Offsets &base, int64_t flat)
{
    const int64_t position = flat / cut.inner, i = flat - position * cut.inner;
    const Offsets at = offsets_of(cut.summed, position);
    float x = to_float(dy[base.dy + at.dy + i]);
    return F::add(sum, x, TWO ? to_float(other[base.other + at.other + i * cut.other_step]) : 0.0f);
}

/* What this thread adds of elements [begin, begin + n) of an output's run. One contiguous run, or a scattered one: the
 * element i of a part belongs to the same thread in both. */
template <class T, class F, bool TWO, bool PACKS>
__device__ __forceinline__ float sum_output(const T *dy, const T *other, const sl_reduce_cut &cut, const Offsets &base,
                                            int64_t begin, int64_t n, int thread, int threads)
{
    constexpr int N = pack_elements<T>;
    if (cut.summed_count == 1 && (!TWO || cut.other_step != 0))
        return sum_run<T, F, TWO, PACKS>(dy + base.dy + begin, TWO ? other + base.other + begin : other, n, thread,
                                         threads);
    float sum = 0.0f;
    for (int64_t i = (int64_t)thread * N; i < n; i += (int64_t)threads * N)
        for (int k = 0; k < N && i + k < n; k++)
            sum = add_scattered<T, F, TWO>(sum, dy, other, cut, base, begin + i + k);
    return sum;
}

/* Summed innermost axis, many elements to an output: a block for each part of each. */
template <class T, class F, bool TWO, bool PACKS>
__global__ void __launch_bounds__(SL_SUM_THREADS)
    rows_kernel(const T *dy, const T *other, Target target, sl_reduce_cut cut)
{
    const int64_t output = blockIdx.x / cut.parts, part = blockIdx.x % cut.parts, total = cut.summed_count * cut.inner;
    const int64_t begin = part * cut.part, left = total - begin;
    const Offsets base = offsets_of(cut.kept, output);
    float sum = sum_output<T, F, TWO, PACKS>(dy, other, cut, base, begin, left < cut.part ? left : cut.part,
                                             (int)threadIdx.x, SL_SUM_THREADS);
    sum = block_sum<SL_SUM_THREADS>(sum);
    if (threadIdx.x == 0) put_part(target, part, base.out, sum);
}

/* Few elements to an output: a warp for each, and one part. */
template <class T, class F, bool TWO, bool PACKS>
__global__ void __launch_bounds__(SL_SUM_THREADS)
    short_rows_kernel(const T *dy, const T *other, Target target, sl_reduce_cut cut)
{
    const int lane = (int)(threadIdx.x % 32), warps = SL_SUM_THREADS / 32;
    const int64_t step = (int64_t)gridDim.x * warps;
    for (int64_t output = (int64_t)blockIdx.x * warps + threadIdx.x / 32; output < cut.kept_count; output += step) {
        const Offsets base = offsets_of(cut.kept, output);
        float sum = sum_output<T, F, TWO, PACKS>(dy, other, cut, base, 0, cut.summed_count * cut.inner, lane, 32);
        sum = warp_sum(sum);
        if (lane == 0) put_output(target, base.out, sum);
    }
}

/* Sums the parts of 32 outputs: 32 threads share each, every 32nd part is theirs, and their sums are added in order. */
__global__ void __launch_bounds__(1024) finish_parts_kernel(Target target, int64_t parts)
{
    __shared__ float lanes[32][33];
    const int64_t output = (int64_t)blockIdx.x * 32 + threadIdx.x;
    float sum = 0.0f;
    if (output < target.outputs)
        for (int64_t p = threadIdx.y; p < parts; p += 32) sum += target.parts[p * target.outputs + output];
    lanes[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y != 0 || output >= target.outputs) return;
    for (int y = 1; y < 32; y++) sum += lanes[y][threadIdx.x];
    put_output(target, output, sum);
}

template <class T, class F, bool TWO, int N>
void launch_columns(const sl_cuda_args *a, const T *other, const Target &target, const sl_reduce_cut &cut)
{
    const int64_t tiles = sl_reduce_ceil_div(cut.inner, 32 * N);
    SL_LAUNCH((columns_kernel<T, F, TWO, N>), (unsigned)(tiles * cut.kept_count * cut.parts), dim3(32, SL_COLUMN_LANES),
              0, a->stream, (const T *)a->in[0].data, other, target, cut, tiles);
}

template <class T, class F, bool TWO, bool PACKS>
void launch_rows(const sl_cuda_args *a, const T *other, const Target &target, const sl_reduce_cut &cut)
{
    const T *dy = (const T *)a->in[0].data;
    if (cut.summed_count * cut.inner <= SL_SUM_SHORT)
        SL_LAUNCH((short_rows_kernel<T, F, TWO, PACKS>), sl_grid(a, cut.kept_count, SL_SUM_THREADS / 32, 16),
                  SL_SUM_THREADS, 0, a->stream, dy, other, target, cut);
    else
        SL_LAUNCH((rows_kernel<T, F, TWO, PACKS>), (unsigned)(cut.kept_count * cut.parts), SL_SUM_THREADS, 0, a->stream,
                  dy, other, target, cut);
}

bool strides_in_packs(const sl_axes &axes, int operand, int n)
{
    for (int i = 0; i < axes.rank; i++)
        if (axes.stride[operand][i] % n != 0) return false;
    return true;
}

/* Every run of the innermost axis begins and ends at a pack, in dy and in the factor where that goes along. */
bool in_packs(const sl_reduce_cut &cut, const void *dy, const void *other, int n)
{
    if (cut.inner % n != 0 || !aligned_for(dy, 16)) return false;
    if (cut.other_step == 0) return true;
    return aligned_for(other, 16) && strides_in_packs(cut.kept, SL_REDUCE_OTHER, n) &&
           strides_in_packs(cut.summed, SL_REDUCE_OTHER, n);
}

template <class F, bool TWO> sluice_status run_reduce(sl_op op, const sl_cuda_args *a)
{
    const sl_form form = sl_cuda_type(op, a);
    const sl_cuda_tensor *factor = &a->in[TWO ? 1 : 0];
    const sl_reduce_cut cut = sl_reduce_cut_of(a, factor, form);
    const Target target = { a->out[0].data, a->out[0].form, accumulates(a, 0), a->out[0].elements,
                            cut.parts > 1 ? (float *)a->workspace : nullptr };
    SL_TRY(sl_check_workspace(op, a));
    return sl_dispatch(form, [&](auto element) {
        using T = decltype(element);
        constexpr int N = pack_elements<T>;
        const T *other = (const T *)factor->data;
        const bool packs = in_packs(cut, a->in[0].data, other, N);
        if (cut.columns && packs)
            launch_columns<T, F, TWO, N>(a, other, target, cut);
        else if (cut.columns)
            launch_columns<T, F, TWO, 1>(a, other, target, cut);
        else if (packs)
            launch_rows<T, F, TWO, true>(a, other, target, cut);
        else
            launch_rows<T, F, TWO, false>(a, other, target, cut);
        if (cut.parts > 1)
            SL_LAUNCH(finish_parts_kernel, (unsigned)sl_reduce_ceil_div(target.outputs, 32), dim3(32, 32), 0, a->stream,
                      target, cut.parts);
        return sl_launched(a);
    });
}
} // namespace SL_KERNELS

extern "C" {

SL_CUDA_KERNEL(sum)
{
    return run_sum<Plain, false>(SL_OP_SUM, a, 1.0);
}

SL_CUDA_KERNEL(mean)
{
    return run_sum<Plain, false>(SL_OP_MEAN, a, (double)a->in[0].elements);
}

SL_CUDA_KERNEL(mse)
{
    return run_sum<SquaredDifference, true>(SL_OP_MSE, a, (double)a->in[0].elements);
}

SL_CUDA_KERNEL(mse_grad)
{
    return sl_dispatch(sl_cuda_type(SL_OP_MSE_GRAD, a), [&](auto element) {
        using T = decltype(element);
        bool packs = aligned_for(a->in[0].data, 16) && aligned_for(a->in[1].data, 16);
        for (int i = 0; i < a->output_count; i++) packs = packs && aligned_for(a->out[i].data, 16); /* NULL is */
        if (packs)
            launch_mse_grad<T, pack_elements<T>>(a);
        else
            launch_mse_grad<T, 1>(a);
        return sl_launched(a);
    });
}

SL_CUDA_KERNEL(reduce_to)
{
    return run_reduce<Plain, false>(SL_OP_REDUCE_TO, a);
}

SL_CUDA_KERNEL(multiply_reduce)
{
    return run_reduce<Product, true>(SL_OP_MULTIPLY_REDUCE, a);
}
}
