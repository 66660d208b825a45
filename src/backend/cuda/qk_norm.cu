/* qk_norm.cu: the RMS norm of every query and key head of packed rows, and its gradient.
 *
 * A warp takes a head. Its lanes hold four neighbouring columns of every 128, whatever the type and the alignment, so
 * that neither changes a bit. A head is read twice, the second time from the cache: heads are narrow, and registers are
 * left to the sums of the weights' gradients, which a lane keeps for its columns. */
#include "backend/cuda/norm_groups.cuh"

#include "backend/cuda/qk_norm_size.h"

inline namespace SL_KERNELS
{
constexpr int WARPS = 8, THREADS = 32 * WARPS;
constexpr int STEP = 4, SPAN = 32 * STEP; /* columns of a lane, and of a warp, at a time */

template <class T> struct QkJob {
    const T *x, *dy;
    const T *weight[2]; /* of queries, of keys */
    T *y;               /* forward's result, or dx; nullptr: not wanted */
    const float *rstd_in;
    float *rstd_out;
    float *sums[2]; /* [groups, width] of the weights' gradients; nullptr: not wanted */
    float epsilon, offset;
    bool add;                      /* dx */
    bool aligned, weights_aligned; /* four columns of an activation, of a weight, are one access */
    int queries, keys, width;
    int64_t rows, row, group_rows;
};

/* ---- four columns ---- */

template <class T>
__device__ __forceinline__ void load4(const T *head, int first, int width, bool aligned, float (&x)[STEP])
{
    if (aligned && first + STEP <= width) {
        load_floats<T, STEP>(head + first, x);
        return;
    }
#pragma unroll
    for (int i = 0; i < STEP; i++) x[i] = first + i < width ? to_float(head[first + i]) : 0.0f;
}

template <class T>
__device__ __forceinline__ void store4(T *head, int first, int width, bool aligned, float (&x)[STEP], bool add)
{
    if (aligned && first + STEP <= width) {
        put_or_add_floats<T, STEP>(head + first, x, add);
        return;
    }
#pragma unroll
    for (int i = 0; i < STEP; i++)
        if (first + i < width) put_or_add(head + first + i, x[i], add);
}

/* What columns are multiplied by. Parameters are slices of a flat buffer: they may begin at any element. */
template <class T>
__device__ __forceinline__ void weights4(const QkJob<T> &j, const T *weight, int first, float (&w)[STEP])
{
    load4(weight, first, j.width, j.weights_aligned, w);
    if (j.offset == 0.0f) return;
#pragma unroll
    for (int i = 0; i < STEP; i++) w[i] += j.offset;
}

/* ---- forward: a block takes a row ---- */

template <class T> __device__ __forceinline__ float norm_head(const QkJob<T> &j, const T *weight, const T *x, T *y)
{
    const int lane = (int)threadIdx.x % 32;
    float sum = 0.0f;
    for (int first = lane * STEP; first < j.width; first += SPAN) {
        float v[STEP];
        load4(x, first, j.width, j.aligned, v);
#pragma unroll
        for (int i = 0; i < STEP; i++) sum = fmaf(v[i], v[i], sum);
    }
    const float rstd = 1.0f / sqrtf(warp_sum(sum) / (float)j.width + j.epsilon);
    for (int first = lane * STEP; first < j.width; first += SPAN) {
        float v[STEP], w[STEP];
        load4(x, first, j.width, j.aligned, v);
        weights4(j, weight, first, w);
#pragma unroll
        for (int i = 0; i < STEP; i++) v[i] = v[i] * rstd * w[i];
        store4(y, first, j.width, j.aligned, v, false);
    }
    return rstd;
}

/* The value heads of a row, by the whole block. */
template <class T> __device__ __forceinline__ void pass_values(const QkJob<T> &j, const T *from, T *to, bool add)
{
    const int64_t values = (int64_t)(j.queries + j.keys) * j.width;
    const int width = (int)(j.row - values);
    for (int first = (int)threadIdx.x * STEP; first < width; first += THREADS * STEP) {
        float v[STEP];
        load4(from + values, first, width, j.aligned, v);
        store4(to + values, first, width, j.aligned, v, add);
    }
}

template <class T> __global__ void __launch_bounds__(THREADS) qk_forward(const QkJob<T> j)
{
    const int normed = j.queries + j.keys;
    const int64_t row = blockIdx.x;
    const T *x = j.x + row * j.row;
    T *y = j.y + row * j.row;
    for (int head = (int)threadIdx.x / 32; head < normed; head += WARPS) {
        const int64_t at = (int64_t)head * j.width;
        const float rstd = norm_head(j, head < j.queries ? j.weight[0] : j.weight[1], x + at, y + at);
        if (threadIdx.x % 32 == 0) j.rstd_out[row * normed + head] = rstd;
    }
    if (x != y) pass_values(j, x, y, false);
}

/* ---- gradient: a block takes a group of rows ---- */

/* dx = rstd (g - hat mean(g hat)), with g = dy (offset + weight) and hat = x rstd; dy hat is added to the sums. */
template <class T, int EACH>
__device__ __forceinline__ void gradient_head(const QkJob<T> &j, const T *weight, const T *x, const T *dy, T *dx,
                                              float rstd, float (&sums)[EACH][STEP])
{
    const int lane = (int)threadIdx.x % 32;
    float moment = 0.0f;
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        const int first = k * SPAN + lane * STEP;
        if (first >= j.width) continue;
        float v[STEP], d[STEP], w[STEP];
        load4(x, first, j.width, j.aligned, v);
        load4(dy, first, j.width, j.aligned, d);
        weights4(j, weight, first, w);
#pragma unroll
        for (int i = 0; i < STEP; i++) {
            const float hat = v[i] * rstd;
            moment = fmaf(d[i] * w[i], hat, moment);
            sums[k][i] = fmaf(d[i], hat, sums[k][i]);
        }
    }
    const float mean = warp_sum(moment) / (float)j.width;
    if (dx == nullptr) return;
    for (int first = lane * STEP; first < j.width; first += SPAN) {
        float v[STEP], d[STEP], w[STEP];
        load4(x, first, j.width, j.aligned, v);
        load4(dy, first, j.width, j.aligned, d);
        weights4(j, weight, first, w);
#pragma unroll
        for (int i = 0; i < STEP; i++) v[i] = rstd * fmaf(-(v[i] * rstd), mean, d[i] * w[i]);
        store4(dx, first, j.width, j.aligned, v, j.add);
    }
}

/* What the warps have summed, in their order, to the group's place. `shared` has room for one warp's columns. */
template <int EACH>
__device__ __forceinline__ void write_group(float (&sums)[EACH][STEP], int width, float *group, float *shared)
{
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    for (int other = 1; other < WARPS; other++) {
        __syncthreads();
#pragma unroll
        for (int at = 0; at < EACH * STEP; at++)
            if (warp == other) shared[at * 32 + lane] = sums[at / STEP][at % STEP];
        __syncthreads();
#pragma unroll
        for (int at = 0; at < EACH * STEP; at++)
            if (warp == 0) sums[at / STEP][at % STEP] += shared[at * 32 + lane];
    }
#pragma unroll
    for (int at = 0; at < EACH * STEP; at++) {
        const int column = at / STEP * SPAN + lane * STEP + at % STEP;
        if (warp == 0 && column < width) group[column] = sums[at / STEP][at % STEP];
    }
}

/* All heads of one kind in the group's rows: KIND 0, the queries, 1, the keys. */
template <class T, int EACH, int KIND>
__device__ __forceinline__ void gradient_heads(const QkJob<T> &j, int64_t begin, int64_t end)
{
    SL_DYNAMIC_SHARED(float, shared);
    const int heads = KIND == 0 ? j.queries : j.keys, before = KIND == 0 ? 0 : j.queries;
    float sums[EACH][STEP] = {};
    for (int64_t at = threadIdx.x / 32; at < (end - begin) * heads; at += WARPS) {
        const int64_t row = begin + at / heads, head = before + at % heads;
        const int64_t from = row * j.row + head * j.width;
        const float rstd = j.rstd_in[row * (j.queries + j.keys) + head];
        gradient_head<T, EACH>(j, j.weight[KIND], j.x + from, j.dy + from, j.y != nullptr ? j.y + from : nullptr, rstd,
                               sums);
    }
    if (j.sums[KIND] != nullptr) write_group<EACH>(sums, j.width, j.sums[KIND] + blockIdx.x * (int64_t)j.width, shared);
}

template <class T, int EACH> __global__ void __launch_bounds__(THREADS) qk_gradient(const QkJob<T> j)
{
    const int64_t begin = blockIdx.x * j.group_rows, end = min(begin + j.group_rows, j.rows);
    gradient_heads<T, EACH, 0>(j, begin, end);
    gradient_heads<T, EACH, 1>(j, begin, end);
    for (int64_t row = begin; row < end && j.y != nullptr; row++)
        pass_values(j, j.dy + row * j.row, j.y + row * j.row, j.add);
}

/* ---- on the host ---- */

template <class T> QkJob<T> make_job(const sl_cuda_args *a)
{
    QkJob<T> j = {};
    const sl_shape *shape = a->in[0].shape;
    j.x = (const T *)a->in[0].data;
    j.weight[0] = (const T *)a->in[1].data;
    j.weight[1] = (const T *)a->in[2].data;
    j.y = (T *)a->out[0].data;
    j.epsilon = a->attrs->qk_norm.epsilon;
    j.offset = a->attrs->qk_norm.offset;
    j.queries = a->attrs->qk_norm.heads;
    j.keys = a->attrs->qk_norm.kv_heads;
    j.width = a->attrs->qk_norm.head_width;
    j.rows = shape->dim[0] * shape->dim[1];
    j.row = shape->dim[2];
    j.group_rows = sl_qk_norm_group_rows(j.rows);
    return j;
}

/* nullptr counts as aligned. A row is a whole number of heads. */
template <class T> void set_alignment(QkJob<T> *j)
{
    const size_t bytes = STEP * sizeof(T);
    j->aligned =
        j->width % STEP == 0 && aligned_for(j->x, bytes) && aligned_for(j->y, bytes) && aligned_for(j->dy, bytes);
    j->weights_aligned = j->width % STEP == 0 && aligned_for(j->weight[0], bytes) && aligned_for(j->weight[1], bytes);
}

template <class T, int EACH> void launch_gradient(const sl_cuda_args *a, const QkJob<T> &j)
{
    const unsigned groups = (unsigned)((j.rows + j.group_rows - 1) / j.group_rows);
    const bool sums = j.sums[0] != nullptr || j.sums[1] != nullptr;
    const size_t shared = sums ? sizeof(float) * SPAN * EACH : 0;
    SL_LAUNCH((qk_gradient<T, EACH>), dim3(groups), dim3(THREADS), shared, a->stream, j);
}
} // namespace SL_KERNELS

sluice_status sl_cuda_qk_norm(const sl_cuda_args *a)
{
    return sl_dispatch(sl_cuda_type(SL_OP_QK_NORM, a), [&](auto element) {
        using T = decltype(element);
        QkJob<T> j = make_job<T>(a);
        j.rstd_out = (float *)a->out[1].data;
        set_alignment(&j);
        SL_LAUNCH(qk_forward<T>, dim3((unsigned)j.rows), dim3(THREADS), 0, a->stream, j);
        return sl_launched(a);
    });
}

sluice_status sl_cuda_qk_norm_grad(const sl_cuda_args *a)
{
    SL_TRY(sl_check_workspace(SL_OP_QK_NORM_GRAD, a));
    return sl_dispatch(sl_cuda_type(SL_OP_QK_NORM_GRAD, a), [&](auto element) {
        using T = decltype(element);
        QkJob<T> j = make_job<T>(a);
        GroupJob g = {};
        j.rstd_in = (const float *)a->in[3].data;
        j.dy = (const T *)a->in[4].data;
        j.add = accumulates(a, 0);
        set_alignment(&j);
        g.count = (j.rows + j.group_rows - 1) / j.group_rows;
        g.width = j.width;
        for (int kind = 0; kind < 2; kind++) j.sums[kind] = place_groups(a, 1 + kind, &g);
        if (j.width <= SPAN)
            launch_gradient<T, 1>(a, j);
        else if (j.width <= 2 * SPAN)
            launch_gradient<T, 2>(a, j);
        else if (j.width <= 4 * SPAN)
            launch_gradient<T, 4>(a, j);
        else
            launch_gradient<T, SL_MAX_HEAD_WIDTH / SPAN>(a, j);
        launch_groups(a, g);
        return sl_launched(a);
    });
}
