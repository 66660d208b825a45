/* norm.cu: layer norm and RMS norm over the last dimension, and their gradients.
 *
 * Both norms are one: RMS norm is layer norm with mean 0 and no bias (CENTRED false). A row is read once and kept in
 * the registers of its threads, in pieces of 16 bytes (norm_size.h says how many): the mean is known before the
 * variance is summed, so that nothing cancels. Rows that are too long, or whose width is no multiple of a piece, are
 * read again instead (EACH 0), in the same order.
 *
 * The gradient of a group of rows is one block's work. It writes dx and, on the way, sums dy and dy * hat of its rows
 * for its columns, in registers. The sums of groups lie in the workspace; a second kernel adds them up. */
#include "backend/cuda/norm_groups.cuh"
#include "backend/cuda/piece.cuh"

#include "backend/cuda/norm_size.h"

inline namespace SL_KERNELS
{
constexpr int MOST_WARPS = SL_NORM_THREADS / 32;

template <class T> struct NormJob {
    const T *x, *weight, *bias; /* bias nullptr: none */
    const T *dy;
    T *y; /* forward's result, or dx; nullptr: not wanted */
    const float *mean_in, *rstd_in;
    float *mean_out, *rstd_out;
    float *dweight, *dbias; /* sums of groups, [groups, width]; nullptr: not wanted */
    float epsilon;
    float offset;      /* added to the weight */
    bool add;          /* dx */
    bool rows_aligned; /* every row of an activation begins at 16 bytes and ends so */
    bool weight_aligned, bias_aligned;
    int width, pieces; /* of a row, as in cut */
    sl_norm_cut cut;
};

/* ---- a row ---- */

/* Calls f(k, first) for the pieces of this thread: k counts them, first is where they begin in the row. */
template <class T, int EACH, class F> __device__ __forceinline__ void for_pieces(int pieces, F f)
{
    if constexpr (EACH == 0) {
        for (int piece = (int)threadIdx.x; piece < pieces; piece += (int)blockDim.x) f(0, piece * pack_elements<T>);
    } else {
#pragma unroll
        for (int k = 0; k < EACH; k++) {
            const int piece = (int)(threadIdx.x + k * blockDim.x);
            if (piece < pieces) f(k, piece * pack_elements<T>);
        }
    }
}

/* This thread's pieces of a row: kept, or read whenever they are asked for. */
template <class T, int EACH> struct RowPieces {
    const T *row;
    int width;
    bool aligned;
    uint4 kept[EACH > 0 ? EACH : 1];

    __device__ __forceinline__ uint4 read(int first) const
    {
        if (EACH > 0) return *reinterpret_cast<const uint4 *>(row + first);
        return load_piece(row, first, width, aligned);
    }

    __device__ __forceinline__ void keep(int pieces)
    {
        if (EACH > 0) for_pieces<T, EACH>(pieces, [&](int k, int first) { kept[k] = read(first); });
    }

    __device__ __forceinline__ void floats(int k, int first, float (&x)[pack_elements<T>]) const
    {
        piece_floats<T>(EACH > 0 ? kept[k] : read(first), x);
    }
};

/* Whether element i of the piece is there. Kept pieces are always whole. */
template <class T, int EACH> __device__ __forceinline__ bool inside(const NormJob<T> &j, int first, int i)
{
    return EACH > 0 || first + i < j.width;
}

/* Sums over the threads of a row, first in warps, then warp by warp; every thread gets the same bits. All threads of
 * the block take part. Calls alternate `turn`, so that one barrier suffices: whoever writes to a buffer again has seen
 * everybody behind the barrier of the other one. */
template <int N> __device__ __forceinline__ void row_sums(float (&x)[N], int turn)
{
    __shared__ float part[2][N][MOST_WARPS];
#pragma unroll
    for (int n = 0; n < N; n++) x[n] = warp_sum(x[n]);
    if (blockDim.x == 32) return;
    const int warps = blockDim.x / 32, begin = threadIdx.y * warps;
    if (threadIdx.x % 32 == 0)
#pragma unroll
        for (int n = 0; n < N; n++) part[turn][n][begin + threadIdx.x / 32] = x[n];
    __syncthreads();
#pragma unroll
    for (int n = 0; n < N; n++) {
        x[n] = part[turn][n][begin];
        for (int w = 1; w < warps; w++) x[n] += part[turn][n][begin + w];
    }
}

/* ---- forward ---- */

template <class T, int EACH>
__device__ __forceinline__ float row_mean(const NormJob<T> &j, const RowPieces<T, EACH> &x, int pieces)
{
    float sum[1] = { 0.0f };
    for_pieces<T, EACH>(pieces, [&](int k, int first) {
        float v[pack_elements<T>];
        x.floats(k, first, v); /* outside the row: 0 */
#pragma unroll
        for (int i = 0; i < pack_elements<T>; i++) sum[0] += v[i];
    });
    row_sums(sum, 0);
    return sum[0] / (float)j.width;
}

template <class T, int EACH>
__device__ __forceinline__ float row_variance(const NormJob<T> &j, const RowPieces<T, EACH> &x, int pieces, float mean)
{
    float sum[1] = { 0.0f };
    for_pieces<T, EACH>(pieces, [&](int k, int first) {
        float v[pack_elements<T>];
        x.floats(k, first, v);
#pragma unroll
        for (int i = 0; i < pack_elements<T>; i++) {
            const float d = v[i] - mean;
            if (inside<T, EACH>(j, first, i)) sum[0] = fmaf(d, d, sum[0]);
        }
    });
    row_sums(sum, 1);
    return sum[0] / (float)j.width;
}

/* Weight or bias of a piece. Parameters are slices of a flat buffer: they may begin at any element. */
template <class T>
__device__ __forceinline__ void parameter_floats(const NormJob<T> &j, const T *p, int first, bool aligned,
                                                 float (&x)[pack_elements<T>])
{
    piece_floats<T>(load_piece(p, first, j.width, aligned), x);
}

/* What a piece's columns are multiplied by. */
template <class T>
__device__ __forceinline__ void weight_floats(const NormJob<T> &j, int first, float (&x)[pack_elements<T>])
{
    parameter_floats(j, j.weight, first, j.weight_aligned, x);
    if (j.offset == 0.0f) return;
#pragma unroll
    for (int i = 0; i < pack_elements<T>; i++) x[i] += j.offset;
}

/* y = (x - mean) rstd (offset + weight) + bias */
template <class T, int EACH>
__device__ __forceinline__ void normalize(const NormJob<T> &j, const RowPieces<T, EACH> &x, int pieces, T *y,
                                          float mean, float rstd)
{
    for_pieces<T, EACH>(pieces, [&](int k, int first) {
        float v[pack_elements<T>], w[pack_elements<T>], b[pack_elements<T>] = {};
        weight_floats(j, first, w);
        if (j.bias != nullptr) parameter_floats(j, j.bias, first, j.bias_aligned, b);
        x.floats(k, first, v);
#pragma unroll
        for (int i = 0; i < pack_elements<T>; i++) v[i] = fmaf((v[i] - mean) * rstd, w[i], b[i]);
        store_piece(y, first, j.width, EACH > 0 || j.rows_aligned, v);
    });
}

template <class T, bool CENTRED, int EACH>
__global__ void __launch_bounds__(SL_NORM_THREADS) norm_forward(const NormJob<T> j)
{
    const int64_t row = (int64_t)blockIdx.x * blockDim.y + threadIdx.y;
    const int pieces = row < j.cut.rows ? j.pieces : 0; /* rows that are not there still meet at barriers */
    RowPieces<T, EACH> x = { j.x + row * j.width, j.width, j.rows_aligned, {} };
    x.keep(pieces);
    const float mean = CENTRED ? row_mean<T, EACH>(j, x, pieces) : 0.0f;
    const float rstd = 1.0f / sqrtf(row_variance<T, EACH>(j, x, pieces, mean) + j.epsilon);
    normalize<T, EACH>(j, x, pieces, j.y + row * j.width, mean, rstd);
    if (threadIdx.x != 0 || pieces == 0) return;
    if (CENTRED) j.mean_out[row] = mean;
    j.rstd_out[row] = rstd;
}

/* ---- gradient ---- */

/* Sums over a group's rows for the columns of this thread. */
template <class T, bool CENTRED, int EACH> struct ColumnSums {
    static constexpr int pieces = EACH > 0 ? EACH : 1;
    float weight[pieces][pack_elements<T>];
    float bias[CENTRED ? pieces : 1][pack_elements<T>];

    __device__ __forceinline__ void add(int k, int i, float dy, float hat)
    {
        if (EACH == 0) return;
        weight[k][i] = fmaf(dy, hat, weight[k][i]);
        if (CENTRED) bias[k][i] += dy;
    }
};

/* With g = dy (offset + weight) and hat = (x - mean) rstd: the row's means of g hat and of g. RMS norm has no mean to
 * differentiate, so its mean of g counts as 0. */
template <class T, bool CENTRED, int EACH>
__device__ __forceinline__ void row_moments(const NormJob<T> &j, const RowPieces<T, EACH> &x,
                                            const RowPieces<T, EACH> &dy, int pieces, float mean, float rstd, int turn,
                                            ColumnSums<T, CENTRED, EACH> &columns, float (&moment)[2])
{
    moment[0] = moment[1] = 0.0f;
    for_pieces<T, EACH>(pieces, [&](int k, int first) {
        float v[pack_elements<T>], d[pack_elements<T>], w[pack_elements<T>];
        weight_floats(j, first, w);
        x.floats(k, first, v);
        dy.floats(k, first, d); /* outside the row: 0, so that nothing is added */
#pragma unroll
        for (int i = 0; i < pack_elements<T>; i++) {
            const float hat = (v[i] - mean) * rstd, g = __fmul_rn(d[i], w[i]);
            moment[0] = fmaf(g, hat, moment[0]);
            if (CENTRED) moment[1] += g;
            columns.add(k, i, d[i], hat);
        }
    });
    if (CENTRED) {
        row_sums(moment, turn);
    } else {
        float sum[1] = { moment[0] };
        row_sums(sum, turn);
        moment[0] = sum[0];
    }
    moment[0] /= (float)j.width;
    moment[1] /= (float)j.width;
}

/* dx = rstd (g - mean(g) - hat mean(g hat)) */
template <class T, int EACH>
__device__ __forceinline__ void write_dx(const NormJob<T> &j, const RowPieces<T, EACH> &x, const RowPieces<T, EACH> &dy,
                                         int pieces, T *dx, float mean, float rstd, const float (&moment)[2])
{
    for_pieces<T, EACH>(pieces, [&](int k, int first) {
        const bool aligned = EACH > 0 || j.rows_aligned;
        float v[pack_elements<T>], d[pack_elements<T>], w[pack_elements<T>], old[pack_elements<T>];
        weight_floats(j, first, w);
        if (j.add) piece_floats<T>(load_piece(dx, first, j.width, aligned), old);
        x.floats(k, first, v);
        dy.floats(k, first, d);
#pragma unroll
        for (int i = 0; i < pack_elements<T>; i++) {
            const float hat = (v[i] - mean) * rstd, g = __fmul_rn(d[i], w[i]);
            v[i] = __fmul_rn(rstd, fmaf(hat, -moment[0], __fadd_rn(g, -moment[1])));
            if (j.add) v[i] = __fadd_rn(old[i], v[i]);
        }
        store_piece(dx, first, j.width, aligned, v);
    });
}

template <class T, bool CENTRED, int EACH>
__device__ __forceinline__ void gradient_row(const NormJob<T> &j, int64_t row, bool more, int turn,
                                             ColumnSums<T, CENTRED, EACH> &columns)
{
    const int64_t width = j.width;
    const int pieces = row < j.cut.rows ? j.pieces : 0;
    const float mean = CENTRED && pieces > 0 ? j.mean_in[row] : 0.0f, rstd = pieces > 0 ? j.rstd_in[row] : 0.0f;
    RowPieces<T, EACH> x = { j.x + row * width, j.width, j.rows_aligned, {} };
    RowPieces<T, EACH> dy = { j.dy + row * width, j.width, j.rows_aligned, {} };
    x.keep(pieces);
    dy.keep(pieces);
    if (EACH > 0 && more)
        for_pieces<T, EACH>(pieces, [&](int, int first) {
            prefetch(x.row + blockDim.y * width + first);
            prefetch(dy.row + blockDim.y * width + first);
            if (j.add) prefetch(j.y + (row + blockDim.y) * width + first);
        });
    float moment[2];
    row_moments<T, CENTRED, EACH>(j, x, dy, pieces, mean, rstd, turn, columns, moment);
    if (j.y != nullptr) write_dx<T, EACH>(j, x, dy, pieces, j.y + row * width, mean, rstd, moment);
}

/* Adds up what the rows abreast have summed, in their order; those of the first get it. `shared` has room for one
 * row's threads. */
template <class T, int EACH>
__device__ __forceinline__ void join_abreast(float (&sums)[EACH][pack_elements<T>], float *shared)
{
    for (unsigned y = 1; y < blockDim.y; y++) {
        __syncthreads();
#pragma unroll
        for (int at = 0; at < EACH * pack_elements<T>; at++)
            if (threadIdx.y == y)
                shared[at * blockDim.x + threadIdx.x] = sums[at / pack_elements<T>][at % pack_elements<T>];
        __syncthreads();
#pragma unroll
        for (int at = 0; at < EACH * pack_elements<T>; at++)
            if (threadIdx.y == 0)
                sums[at / pack_elements<T>][at % pack_elements<T>] += shared[at * blockDim.x + threadIdx.x];
    }
}

template <class T, int EACH>
__device__ __forceinline__ void write_group(const NormJob<T> &j, float (&sums)[EACH][pack_elements<T>], float *all)
{
    SL_DYNAMIC_SHARED(float, shared);
    if (all == nullptr) return;
    join_abreast<T, EACH>(sums, shared);
    if (threadIdx.y != 0) return;
    float *group = all + blockIdx.x * j.cut.width;
    for_pieces<T, EACH>(j.pieces, [&](int k, int first) {
#pragma unroll
        for (int i = 0; i < pack_elements<T>; i += 4)
            *reinterpret_cast<float4 *>(group + first + i) =
                make_float4(sums[k][i], sums[k][i + 1], sums[k][i + 2], sums[k][i + 3]);
    });
}

/* Block b does group b. Rows of a round are abreast; the last ones may not be there. */
template <class T, bool CENTRED, int EACH>
__global__ void __launch_bounds__(SL_NORM_THREADS) norm_gradient(const NormJob<T> j)
{
    ColumnSums<T, CENTRED, EACH> columns = {};
    const int64_t begin = blockIdx.x * j.cut.group_rows;
    const int64_t end = min(begin + j.cut.group_rows, j.cut.rows);
    int turn = 0;
    for (int64_t row = begin; row < end; row += blockDim.y, turn ^= 1)
        gradient_row<T, CENTRED, EACH>(j, row + threadIdx.y, row + threadIdx.y + blockDim.y < end, turn, columns);
    if constexpr (EACH > 0) {
        write_group<T, EACH>(j, columns.weight, j.dweight);
        if constexpr (CENTRED) write_group<T, EACH>(j, columns.bias, j.dbias);
    }
}

/* The sums of groups where rows are not kept in registers: a thread per column, adding in the order of
 * norm_gradient. */
template <class T> __global__ void __launch_bounds__(SL_NORM_BLOCK) norm_columns(const NormJob<T> j)
{
    const int64_t column = (int64_t)blockIdx.x * SL_NORM_BLOCK + threadIdx.x, width = j.cut.width;
    const int64_t begin = blockIdx.y * j.cut.group_rows, end = min(begin + j.cut.group_rows, j.cut.rows);
    if (column >= width) return;
    float weight = 0.0f, bias = 0.0f;
    for (int y = 0; y < j.cut.abreast; y++) {
        float w = 0.0f, b = 0.0f;
        for (int64_t row = begin + y; row < end; row += j.cut.abreast) {
            const float mean = j.mean_in != nullptr ? j.mean_in[row] : 0.0f;
            const float dy = to_float(j.dy[row * width + column]);
            const float hat = (to_float(j.x[row * width + column]) - mean) * j.rstd_in[row];
            w = fmaf(dy, hat, w);
            b += dy;
        }
        weight = y == 0 ? w : weight + w;
        bias = y == 0 ? b : bias + b;
    }
    if (j.dweight != nullptr) j.dweight[blockIdx.y * width + column] = weight;
    if (j.dbias != nullptr) j.dbias[blockIdx.y * width + column] = bias;
}

/* ---- on the host ---- */

template <class T> using norm_kernel = void (*)(NormJob<T>);

template <class T> NormJob<T> make_job(const sl_cuda_args *a)
{
    NormJob<T> j = {};
    j.cut = sl_norm_cut_of(&a->in[0]);
    j.width = (int)j.cut.width;
    j.pieces = (int)j.cut.pieces;
    j.x = (const T *)a->in[0].data;
    j.weight = (const T *)a->in[1].data;
    j.y = (T *)a->out[0].data;
    j.epsilon = a->attrs->norm.epsilon;
    j.offset = a->attrs->norm.offset;
    j.weight_aligned = aligned_for(j.weight, 16);
    return j;
}

/* nullptr counts as aligned. */
template <class T> void set_alignment(NormJob<T> *j)
{
    j->rows_aligned = j->cut.width % pack_elements<T> == 0 && aligned_for(j->x, 16) && aligned_for(j->y, 16) &&
                      aligned_for(j->dy, 16);
    if (!j->rows_aligned) j->cut.each = 0;
}

/* Columns are counted in 32 bits. */
sluice_status check_width(const sl_cuda_args *a)
{
    const int64_t width = row_width(&a->in[0]);
    if (width <= 1 << 30) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_USAGE, "%s: rows of %lld elements are too long", a->name, (long long)width);
}

template <class T, bool CENTRED> void launch_forward(const sl_cuda_args *a, NormJob<T> *j)
{
    static const norm_kernel<T> kernels[SL_NORM_PIECES + 1] = {
        norm_forward<T, CENTRED, 0>, norm_forward<T, CENTRED, 1>, norm_forward<T, CENTRED, 2>,
        norm_forward<T, CENTRED, 3>, norm_forward<T, CENTRED, 4>,
    };
    set_alignment(j);
    const norm_kernel<T> kernel = kernels[j->cut.each];
    const dim3 block((unsigned)j->cut.threads, (unsigned)j->cut.abreast);
    SL_LAUNCH(kernel, dim3((unsigned)sl_norm_ceil_div(j->cut.rows, j->cut.abreast)), block, 0, a->stream, *j);
}

template <class T, bool CENTRED> void launch_gradient(const sl_cuda_args *a, NormJob<T> *j)
{
    static const norm_kernel<T> kernels[SL_NORM_PIECES + 1] = {
        norm_gradient<T, CENTRED, 0>, norm_gradient<T, CENTRED, 1>, norm_gradient<T, CENTRED, 2>,
        norm_gradient<T, CENTRED, 3>, norm_gradient<T, CENTRED, 4>,
    };
    set_alignment(j);
    const norm_kernel<T> kernel = kernels[j->cut.each];
    const dim3 block((unsigned)j->cut.threads, (unsigned)j->cut.abreast);
    const size_t shared = j->cut.abreast > 1 ? sizeof(uint4) * 4 / sizeof(T) * j->cut.each * j->cut.threads : 0;
    const bool columns = j->dweight != nullptr || j->dbias != nullptr;
    if (j->cut.each > 0 || j->y != nullptr)
        SL_LAUNCH(kernel, dim3((unsigned)j->cut.groups), block, shared, a->stream, *j);
    if (j->cut.each > 0 || !columns) return;
    const dim3 grid((unsigned)sl_norm_ceil_div(j->cut.width, SL_NORM_BLOCK), (unsigned)j->cut.groups);
    SL_LAUNCH(norm_columns<T>, grid, dim3(SL_NORM_BLOCK), 0, a->stream, *j);
}

template <class T, bool CENTRED> sluice_status run_gradient(const sl_cuda_args *a, NormJob<T> *j)
{
    GroupJob g = {};
    g.count = j->cut.groups;
    g.width = j->cut.width;
    j->add = accumulates(a, 0);
    j->dweight = place_groups(a, 1, &g);
    j->dbias = CENTRED ? place_groups(a, 2, &g) : nullptr;
    launch_gradient<T, CENTRED>(a, j);
    launch_groups(a, g);
    return sl_launched(a);
}
} // namespace SL_KERNELS

sluice_status sl_cuda_layer_norm(const sl_cuda_args *a)
{
    SL_TRY(check_width(a));
    return sl_dispatch(sl_cuda_type(SL_OP_LAYER_NORM, a), [&](auto element) {
        using T = decltype(element);
        NormJob<T> j = make_job<T>(a);
        j.bias = a->input_count > 2 ? (const T *)a->in[2].data : nullptr;
        j.bias_aligned = aligned_for(j.bias, 16);
        j.mean_out = (float *)a->out[1].data;
        j.rstd_out = (float *)a->out[2].data;
        launch_forward<T, true>(a, &j);
        return sl_launched(a);
    });
}

sluice_status sl_cuda_rms_norm(const sl_cuda_args *a)
{
    SL_TRY(check_width(a));
    return sl_dispatch(sl_cuda_type(SL_OP_RMS_NORM, a), [&](auto element) {
        using T = decltype(element);
        NormJob<T> j = make_job<T>(a);
        j.rstd_out = (float *)a->out[1].data;
        launch_forward<T, false>(a, &j);
        return sl_launched(a);
    });
}

sluice_status sl_cuda_layer_norm_grad(const sl_cuda_args *a)
{
    SL_TRY(check_width(a));
    SL_TRY(sl_check_workspace(SL_OP_LAYER_NORM_GRAD, a));
    return sl_dispatch(sl_cuda_type(SL_OP_LAYER_NORM_GRAD, a), [&](auto element) {
        using T = decltype(element);
        NormJob<T> j = make_job<T>(a);
        j.mean_in = (const float *)a->in[2].data;
        j.rstd_in = (const float *)a->in[3].data;
        j.dy = (const T *)a->in[4].data;
        return run_gradient<T, true>(a, &j);
    });
}

sluice_status sl_cuda_rms_norm_grad(const sl_cuda_args *a)
{
    SL_TRY(check_width(a));
    SL_TRY(sl_check_workspace(SL_OP_RMS_NORM_GRAD, a));
    return sl_dispatch(sl_cuda_type(SL_OP_RMS_NORM_GRAD, a), [&](auto element) {
        using T = decltype(element);
        NormJob<T> j = make_job<T>(a);
        j.rstd_in = (const float *)a->in[2].data;
        j.dy = (const T *)a->in[3].data;
        return run_gradient<T, false>(a, &j);
    });
}
