/* channel_norm.cu: batch norm, alone and over ranks, and group norm over rows of channels, and their gradients.
 *
 * Both are one: batch norm is one sample whose groups are single channels. Memory is what they cost, so each walk reads
 * every operand once, 16 bytes a thread: the first walk takes two sums for each channel, the second computes each element
 * with the norm, the residual and the ReLU in one. A thread keeps the factors of its channels in registers.
 *
 *   forward   first walk   mean and squares about it of each part
 *             second walk  y = relu?((x - mean) rstd weight + bias (+ residual))
 *   backward  first walk   sums of g and of g (x - mean), g being the part of dy that the ReLU let pass; writes g where a
 *                          residual wants it, and the second walk then reads that instead of dy and y
 *             second walk  dx = rstd weight g + (x - mean) slope + shift
 *
 * A thread sums its rows in f32, forward less the first of them, so that a mean far from 0 does not cancel. Threads, parts
 * and samples are added up in double.
 *
 * Over ranks both walks are ops of their own. The first takes the sums of each sample by itself; in f32 they are the leaves of a
 * tree over the samples of all ranks (core/sample_tree.h), whose nodes the ranks exchange. */
#include "backend/cuda/piece.cuh"

#include "backend/cuda/channel_size.h"
#include "core/sample_tree.h"

inline namespace SL_KERNELS
{
constexpr int BATCH = 4;                           /* rows whose loads are under way together */
constexpr int WALK_ROWS = 16;                      /* rows of a thread in the second walk */
constexpr int FOLD_CHANNELS = 32, FOLD_LANES = 16; /* of a block that adds up parts */
constexpr int GROUP_THREADS = 128;

template <class T> struct ChannelJob {
    const T *x, *weight, *bias, *residual, *dy, *passed; /* nullptr: absent */
    T *y, *dresidual;                                    /* y: the result, or dx */
    const float *mean, *rstd;
    float *mean_out, *rstd_out, *statistics;
    void *dweight, *dbias;
    sl_form dweight_form, dbias_form;
    bool relu, add, add_dweight, add_dbias, add_dresidual;
    bool running; /* statistics are read, not made */
    bool fixed;   /* and do not depend on x */
    bool shared;  /* all samples have the same statistics */
    bool vectors; /* f32 numbers of channels are read in fours: of a sample, each channel a group */
    bool weight_aligned, bias_aligned;
    float epsilon;
    double *sums;  /* [samples, parts, 2, width] */
    float *slopes; /* [2, samples, groups] */
    int each;      /* channels of a group */
    sl_channel_grid grid;
};

/* ---- pieces ---- */

template <class T> struct Place {
    int64_t sample, first; /* first: channel of this thread's piece */
    bool inside;
};

/* Block b is tile b % tiles of item b / tiles. */
template <class T>
__device__ __forceinline__ Place<T> place_of(const ChannelJob<T> &j, int64_t per_sample, int64_t *item)
{
    const int64_t tile = blockIdx.x % j.grid.tiles, all = blockIdx.x / j.grid.tiles;
    const int64_t first = (tile * blockDim.x + threadIdx.x) * pack_elements<T>;
    *item = all % per_sample;
    return { all / per_sample, first, first < j.grid.width };
}

template <class T, bool ALIGNED>
__device__ __forceinline__ uint4 read_piece(const ChannelJob<T> &j, const T *p, int64_t row, int64_t first)
{
    const T *at = p + row * j.grid.width;
    if constexpr (ALIGNED) return *reinterpret_cast<const uint4 *>(at + first);
    return gather_piece(at, first, j.grid.width, T{});
}

template <class T, bool ALIGNED>
__device__ __forceinline__ void write_piece(const ChannelJob<T> &j, T *p, int64_t row, int64_t first,
                                            const float (&x)[pack_elements<T>])
{
    store_piece(p + row * j.grid.width, first, j.grid.width, ALIGNED, x);
}

/* An f32 vector of this thread's channels, or of their groups. */
template <class T>
__device__ __forceinline__ void group_floats(const ChannelJob<T> &j, const float *p, const Place<T> &at,
                                             float (&x)[pack_elements<T>])
{
    if (j.vectors) {
#pragma unroll
        for (int i = 0; i < pack_elements<T>; i += 4) {
            const float4 v = *reinterpret_cast<const float4 *>(p + at.first + i);
            x[i] = v.x;
            x[i + 1] = v.y;
            x[i + 2] = v.z;
            x[i + 3] = v.w;
        }
        return;
    }
#pragma unroll
    for (int i = 0; i < pack_elements<T>; i++) {
        const unsigned c = (unsigned)at.first + i;
        const int64_t sample = j.shared ? 0 : at.sample;
        x[i] = c < (unsigned)j.grid.width ? p[sample * j.grid.groups + c / (unsigned)j.each] : 0.0f;
    }
}

/* Parameters are slices of a flat buffer: they may begin at any element. */
template <class T>
__device__ __forceinline__ void parameter_floats(const ChannelJob<T> &j, const T *p, bool aligned, const Place<T> &at,
                                                 float (&x)[pack_elements<T>])
{
    if (p == nullptr) {
#pragma unroll
        for (int i = 0; i < pack_elements<T>; i++) x[i] = 0.0f;
        return;
    }
    piece_floats<T>(load_piece(p, at.first, j.grid.width, aligned), x);
}

/* What a thread knows of its channels. */
template <class T> struct Factors {
    float mean[pack_elements<T>], scale[pack_elements<T>], bias[pack_elements<T>];

    __device__ __forceinline__ void load(const ChannelJob<T> &j, const Place<T> &at)
    {
        float rstd[pack_elements<T>];
        group_floats(j, j.mean, at, mean);
        group_floats(j, j.rstd, at, rstd);
        parameter_floats(j, j.weight, j.weight_aligned, at, scale);
        parameter_floats(j, j.bias, j.bias_aligned, at, bias);
#pragma unroll
        for (int i = 0; i < pack_elements<T>; i++) scale[i] = __fmul_rn(scale[i], rstd[i]);
    }
};

/* What of dy the ReLU let pass; d = x - mean. */
template <class T>
__device__ __forceinline__ void pass_gradient(const ChannelJob<T> &j, const Factors<T> &f, const uint4 &passed,
                                              const float (&d)[pack_elements<T>], float (&g)[pack_elements<T>])
{
    if (!j.relu) return;
    float z[pack_elements<T>];
    if (j.passed != nullptr) piece_floats<T>(passed, z);
#pragma unroll
    for (int i = 0; i < pack_elements<T>; i++) {
        if (j.passed == nullptr) z[i] = fmaf(d[i], f.scale[i], f.bias[i]);
        if (!(z[i] > 0.0f)) g[i] = 0.0f;
    }
}

/* ---- the first walk ---- */

/* Rows of [begin, end) that thread row y of the block has. */
__device__ __forceinline__ int64_t rows_of(int64_t begin, int64_t end, int64_t y)
{
    return begin + y < end ? (end - begin - y + blockDim.y - 1) / blockDim.y : 0;
}

/* Adds up what the block's rows of threads have for each channel, in their order, and leaves it as the part's sums.
 * Forward's pairs are means and squares about them, which become sums of x and of x^2. */
template <class T, bool BACKWARD>
__device__ __forceinline__ void join_rows(const ChannelJob<T> &j, int64_t sample, int64_t part, int64_t begin,
                                          int64_t end, const float (&a)[pack_elements<T>],
                                          const float (&b)[pack_elements<T>])
{
    SL_DYNAMIC_SHARED(float, shared);
    const int columns = (int)blockDim.x * pack_elements<T>, thread = (int)(threadIdx.y * blockDim.x + threadIdx.x);
    float *second = shared + (int)blockDim.y * columns;
#pragma unroll
    for (int i = 0; i < pack_elements<T>; i++) {
        const int at = (int)threadIdx.y * columns + (int)threadIdx.x * pack_elements<T> + i;
        shared[at] = a[i];
        second[at] = b[i];
    }
    __syncthreads();
    const int64_t width = j.grid.width, from = blockIdx.x % j.grid.tiles * columns;
    double *sums = j.sums + (sample * j.grid.parts + part) * 2 * width;
    for (int column = thread; column < columns; column += SL_CHANNEL_THREADS) {
        double sum = 0.0, square = 0.0;
        for (int y = 0; y < (int)blockDim.y; y++) {
            const double n = (double)rows_of(begin, end, y), u = (double)shared[y * columns + column];
            const double v = (double)second[y * columns + column];
            sum += BACKWARD ? u : n * u;
            square += BACKWARD ? v : v + n * u * u;
        }
        if (from + column < width) sums[from + column] = sum;
        if (from + column < width) sums[width + from + column] = square;
    }
}

/* Sums of x - x0 and their squares over this thread's rows, x0 being the first of them; then mean and squares about
 * it. */
template <class T, bool ALIGNED>
__global__ void __launch_bounds__(SL_CHANNEL_THREADS) forward_sums(const ChannelJob<T> j)
{
    constexpr int N = pack_elements<T>;
    int64_t part;
    const Place<T> at = place_of(j, j.grid.parts, &part);
    const int64_t begin = part * j.grid.part_rows, end = min(begin + j.grid.part_rows, j.grid.rows);
    const int64_t count = at.inside ? rows_of(begin, end, threadIdx.y) : 0;
    const int64_t row = at.sample * j.grid.rows + begin + threadIdx.y;
    float shift[N] = {}, sum[N] = {}, square[N] = {};
    if (count > 0) piece_floats<T>(read_piece<T, ALIGNED>(j, j.x, row, at.first), shift);
    int64_t r = 0;
    for (; r < count; r += BATCH) {
        uint4 raw[BATCH] = {};
#pragma unroll
        for (int k = 0; k < BATCH; k++)
            if (r + k < count) raw[k] = read_piece<T, ALIGNED>(j, j.x, row + (r + k) * blockDim.y, at.first);
#pragma unroll
        for (int k = 0; k < BATCH; k++) {
            float v[N];
            if (r + k >= count) break;
            piece_floats<T>(raw[k], v);
#pragma unroll
            for (int i = 0; i < N; i++) {
                const float d = v[i] - shift[i];
                sum[i] += d;
                square[i] = fmaf(d, d, square[i]);
            }
        }
    }
    const float n = count > 0 ? (float)count : 1.0f;
#pragma unroll
    for (int i = 0; i < N; i++) {
        const float offset = sum[i] / n;
        square[i] = fmaxf(fmaf(-sum[i], offset, square[i]), 0.0f * square[i]); /* NaN stays */
        sum[i] = shift[i] + offset;
    }
    join_rows<T, false>(j, at.sample, part, begin, end, sum, square);
}

template <class T, bool ALIGNED>
__global__ void __launch_bounds__(SL_CHANNEL_THREADS) backward_sums(const ChannelJob<T> j)
{
    constexpr int N = pack_elements<T>;
    int64_t part;
    const Place<T> at = place_of(j, j.grid.parts, &part);
    const int64_t begin = part * j.grid.part_rows, end = min(begin + j.grid.part_rows, j.grid.rows);
    const int64_t count = at.inside ? rows_of(begin, end, threadIdx.y) : 0;
    const int64_t row = at.sample * j.grid.rows + begin + threadIdx.y;
    float sum[N] = {}, product[N] = {};
    Factors<T> f = {};
    if (at.inside) f.load(j, at);
    for (int64_t r = 0; r < count; r += BATCH) {
        uint4 x[BATCH] = {}, dy[BATCH] = {}, passed[BATCH] = {};
#pragma unroll
        for (int k = 0; k < BATCH; k++) {
            const int64_t here = row + (r + k) * blockDim.y;
            if (r + k >= count) break;
            x[k] = read_piece<T, ALIGNED>(j, j.x, here, at.first);
            dy[k] = read_piece<T, ALIGNED>(j, j.dy, here, at.first);
            if (j.passed != nullptr) passed[k] = read_piece<T, ALIGNED>(j, j.passed, here, at.first);
        }
#pragma unroll
        for (int k = 0; k < BATCH; k++) {
            float d[N], g[N];
            const int64_t here = row + (r + k) * blockDim.y;
            if (r + k >= count) break;
            piece_floats<T>(x[k], d);
            piece_floats<T>(dy[k], g);
#pragma unroll
            for (int i = 0; i < N; i++) d[i] -= f.mean[i];
            pass_gradient(j, f, passed[k], d, g);
#pragma unroll
            for (int i = 0; i < N; i++) {
                sum[i] += g[i];
                product[i] = fmaf(g[i], d[i], product[i]);
            }
            if (j.dresidual == nullptr) continue;
            if (j.add_dresidual) {
                float old[N];
                piece_floats<T>(read_piece<T, ALIGNED>(j, j.dresidual, here, at.first), old);
#pragma unroll
                for (int i = 0; i < N; i++) g[i] = old[i] + g[i];
            }
            write_piece<T, ALIGNED>(j, j.dresidual, here, at.first, g);
        }
    }
    join_rows<T, true>(j, at.sample, part, begin, end, sum, product);
}

/* ---- in between ---- */

/* Statistics of group `group` of all, from its sums of n elements. */
template <class T>
__device__ __forceinline__ void put_statistics(const ChannelJob<T> &j, int64_t group, double sum, double square,
                                               double n)
{
    const double mean = sum / n, spread = square / n - mean * mean, variance = spread > 0.0 ? spread : 0.0 * spread;
    j.mean_out[group] = (float)mean;
    j.rstd_out[group] = (float)(1.0 / sqrt(variance + (double)j.epsilon));
    if (j.statistics == nullptr) return;
    j.statistics[SL_BATCH_MEAN * j.grid.width + group] = (float)mean;
    j.statistics[SL_BATCH_VARIANCE * j.grid.width + group] = (float)(n > 1.0 ? variance * n / (n - 1.0) : variance);
}

/* dx = rstd (w g - mean(w g) - hat mean(w g hat)), hat = (x - mean) rstd: sums of w g and of w g (x - mean) over the group
 * give slope and shift. Statistics that are fixed have neither. */
template <class T>
__device__ __forceinline__ void put_slopes(const ChannelJob<T> &j, int64_t group, double sum, double product, double n)
{
    const double rstd = (double)j.rstd[group];
    j.slopes[group] = j.fixed ? 0.0f : (float)(-(rstd * rstd) * (product * rstd / n));
    j.slopes[j.grid.samples * j.grid.groups + group] = j.fixed ? 0.0f : (float)(-rstd * (sum / n));
}

__device__ __forceinline__ void put_parameter(void *p, sl_form form, int64_t c, float x, bool add)
{
    if (p == nullptr) return;
    if (form == SL_FORM_BF16)
        put_or_add((bf16 *)p + c, x, add);
    else if (form == SL_FORM_F16)
        put_or_add((f16 *)p + c, x, add);
    else
        put_or_add((float *)p + c, x, add);
}

/* Adds up the parts of FOLD_CHANNELS channels of a sample: lane y those of y, y + FOLD_LANES, ..; then the lanes in order.
 * What a channel by itself makes of them, where it is a group; the sums of the sample otherwise, in place of its first
 * part's. Block b: channels b % blocks of sample b / blocks. */
template <class T, bool BACKWARD>
__global__ void __launch_bounds__(FOLD_CHANNELS *FOLD_LANES) fold_parts(const ChannelJob<T> j, int64_t blocks)
{
    __shared__ double lanes[2][FOLD_LANES][FOLD_CHANNELS];
    const int64_t sample = blockIdx.x / blocks, width = j.grid.width;
    const int64_t c = blockIdx.x % blocks * FOLD_CHANNELS + threadIdx.x;
    double *sums = j.sums + sample * j.grid.parts * 2 * width;
    double a = 0.0, b = 0.0;
    if (c < width)
#pragma unroll 4
        for (int64_t part = threadIdx.y; part < j.grid.parts; part += FOLD_LANES) {
            a += sums[part * 2 * width + c];
            b += sums[part * 2 * width + width + c];
        }
    lanes[0][threadIdx.y][threadIdx.x] = a;
    lanes[1][threadIdx.y][threadIdx.x] = b;
    __syncthreads();
    if (threadIdx.y != 0 || c >= width) return;
    for (int y = 1; y < FOLD_LANES; y++) {
        a += lanes[0][y][threadIdx.x];
        b += lanes[1][y][threadIdx.x];
    }
    if (j.grid.groups != width || j.grid.samples > 1) {
        sums[c] = a;
        sums[width + c] = b;
    } else if (!BACKWARD) {
        put_statistics(j, c, a, b, (double)j.grid.rows);
    } else {
        const double weight = (double)to_float(j.weight[c]);
        put_parameter(j.dbias, j.dbias_form, c, (float)a, j.add_dbias);
        put_parameter(j.dweight, j.dweight_form, c, (float)(b * (double)j.rstd[c]), j.add_dweight);
        put_slopes(j, c, weight * a, weight * b, (double)j.grid.rows);
    }
}

/* A thread for each sample and group: adds up its channels in order. */
template <class T, bool BACKWARD> __global__ void __launch_bounds__(GROUP_THREADS) fold_groups(const ChannelJob<T> j)
{
    const int64_t group = (int64_t)blockIdx.x * GROUP_THREADS + threadIdx.x;
    if (group >= j.grid.samples * j.grid.groups) return;
    const int64_t sample = group / j.grid.groups, begin = group % j.grid.groups * j.each;
    const double *sums = j.sums + sample * j.grid.parts * 2 * j.grid.width;
    const double n = (double)j.grid.rows * (double)j.each;
    double a = 0.0, b = 0.0;
    for (int64_t c = begin; c < begin + j.each; c++) {
        const double weight = BACKWARD ? (double)to_float(j.weight[c]) : 1.0;
        a += weight * sums[c];
        b += weight * sums[j.grid.width + c];
    }
    if (BACKWARD)
        put_slopes(j, group, a, b, n);
    else
        put_statistics(j, group, a, b, n);
}

/* A thread for each channel: the gradients of its weight and bias, samples in order. */
template <class T> __global__ void __launch_bounds__(GROUP_THREADS) fold_samples(const ChannelJob<T> j)
{
    const int64_t c = (int64_t)blockIdx.x * GROUP_THREADS + threadIdx.x;
    if (c >= j.grid.width) return;
    double weight = 0.0, bias = 0.0;
    for (int64_t sample = 0; sample < j.grid.samples; sample++) {
        const double *sums = j.sums + sample * j.grid.parts * 2 * j.grid.width;
        bias += sums[c];
        weight += sums[j.grid.width + c] * (double)j.rstd[sample * j.grid.groups + c / j.each];
    }
    put_parameter(j.dbias, j.dbias_form, c, (float)bias, j.add_dbias);
    put_parameter(j.dweight, j.dweight_form, c, (float)weight, j.add_dweight);
}

/* What evaluation normalises by. */
template <class T> __global__ void __launch_bounds__(GROUP_THREADS) take_running(const ChannelJob<T> j)
{
    const int64_t c = (int64_t)blockIdx.x * GROUP_THREADS + threadIdx.x;
    if (c >= j.grid.width) return;
    const double variance = (double)j.statistics[SL_RUNNING_VARIANCE * j.grid.width + c];
    j.mean_out[c] = j.statistics[SL_RUNNING_MEAN * j.grid.width + c];
    j.rstd_out[c] = (float)(1.0 / sqrt(variance + (double)j.epsilon));
}

/* ---- the second walk ---- */

template <class T, bool ALIGNED>
__global__ void __launch_bounds__(SL_CHANNEL_THREADS) normalize(const ChannelJob<T> j, int64_t walks)
{
    constexpr int N = pack_elements<T>;
    int64_t walk;
    const Place<T> at = place_of(j, walks, &walk);
    const int64_t begin = walk * WALK_ROWS * blockDim.y, end = min(begin + WALK_ROWS * blockDim.y, j.grid.rows);
    const int64_t count = at.inside ? rows_of(begin, end, threadIdx.y) : 0;
    const int64_t row = at.sample * j.grid.rows + begin + threadIdx.y;
    if (count == 0) return;
    Factors<T> f;
    f.load(j, at);
    for (int64_t r = 0; r < count; r += BATCH) {
        uint4 x[BATCH] = {}, residual[BATCH] = {};
#pragma unroll
        for (int k = 0; k < BATCH; k++) {
            const int64_t here = row + (r + k) * blockDim.y;
            if (r + k >= count) break;
            x[k] = read_piece<T, ALIGNED>(j, j.x, here, at.first);
            if (j.residual != nullptr) residual[k] = read_piece<T, ALIGNED>(j, j.residual, here, at.first);
        }
#pragma unroll
        for (int k = 0; k < BATCH; k++) {
            float v[N], add[N] = {};
            if (r + k >= count) break;
            piece_floats<T>(x[k], v);
            if (j.residual != nullptr) piece_floats<T>(residual[k], add);
#pragma unroll
            for (int i = 0; i < N; i++) {
                v[i] = fmaf(v[i] - f.mean[i], f.scale[i], f.bias[i]);
                if (j.residual != nullptr) v[i] = __fadd_rn(v[i], add[i]);
                if (j.relu && v[i] < 0.0f) v[i] = 0.0f; /* NaN stays */
            }
            write_piece<T, ALIGNED>(j, j.y, row + (r + k) * blockDim.y, at.first, v);
        }
    }
}

template <class T, bool ALIGNED>
__global__ void __launch_bounds__(SL_CHANNEL_THREADS) write_dx(const ChannelJob<T> j, int64_t walks)
{
    constexpr int N = pack_elements<T>;
    int64_t walk;
    const Place<T> at = place_of(j, walks, &walk);
    const int64_t begin = walk * WALK_ROWS * blockDim.y, end = min(begin + WALK_ROWS * blockDim.y, j.grid.rows);
    const int64_t count = at.inside ? rows_of(begin, end, threadIdx.y) : 0;
    const int64_t row = at.sample * j.grid.rows + begin + threadIdx.y;
    if (count == 0) return;
    Factors<T> f;
    float slope[N], shift[N];
    f.load(j, at);
    group_floats(j, j.slopes, at, slope);
    group_floats(j, j.slopes + j.grid.samples * j.grid.groups, at, shift);
    for (int64_t r = 0; r < count; r += BATCH) {
        uint4 x[BATCH] = {}, dy[BATCH] = {}, passed[BATCH] = {}, old[BATCH] = {};
#pragma unroll
        for (int k = 0; k < BATCH; k++) {
            const int64_t here = row + (r + k) * blockDim.y;
            if (r + k >= count) break;
            x[k] = read_piece<T, ALIGNED>(j, j.x, here, at.first);
            dy[k] = read_piece<T, ALIGNED>(j, j.dy, here, at.first);
            if (j.passed != nullptr) passed[k] = read_piece<T, ALIGNED>(j, j.passed, here, at.first);
            if (j.add) old[k] = read_piece<T, ALIGNED>(j, j.y, here, at.first);
        }
#pragma unroll
        for (int k = 0; k < BATCH; k++) {
            float d[N], g[N], there[N];
            if (r + k >= count) break;
            piece_floats<T>(x[k], d);
            piece_floats<T>(dy[k], g);
            piece_floats<T>(old[k], there);
#pragma unroll
            for (int i = 0; i < N; i++) d[i] -= f.mean[i];
            pass_gradient(j, f, passed[k], d, g);
#pragma unroll
            for (int i = 0; i < N; i++) {
                g[i] = fmaf(g[i], f.scale[i], fmaf(d[i], slope[i], shift[i]));
                if (j.add) g[i] = __fadd_rn(there[i], g[i]);
            }
            write_piece<T, ALIGNED>(j, j.y, row + (r + k) * blockDim.y, at.first, g);
        }
    }
}

/* ---- over ranks ---- */

struct NodeJob {
    float *nodes;       /* [ranks, room, 2, width] */
    float *leaves;      /* [samples, 2, width] */
    const double *sums; /* [samples, parts, 2, width] */
    int64_t samples, parts, rows, width, ranks, rank, room;
    double count; /* rows of all ranks */
    bool add;     /* to what `nodes` holds */
};

/* Two numbers of a node: mean and variance, or with BACKWARD two sums. */
struct Node {
    float first, second;
};

template <bool BACKWARD> __device__ __forceinline__ Node join(Node a, Node b, int64_t left, int64_t right)
{
    if (BACKWARD) return { __fadd_rn(a.first, b.first), __fadd_rn(a.second, b.second) };
    const sl_sample_shares share = sl_sample_shares_of(left, right);
    const float d = __fadd_rn(b.first, -a.first);
    const float within = fmaf(b.second, share.right, __fmul_rn(a.second, share.left));
    return { fmaf(d, share.right, a.first), fmaf(__fmul_rn(d, d), share.between, within) };
}

__device__ __forceinline__ Node get_node(const float *rows, int64_t width, int64_t node, int64_t c)
{
    return { rows[(node * SL_NODE_ROWS + SL_NODE_FIRST) * width + c],
             rows[(node * SL_NODE_ROWS + SL_NODE_SECOND) * width + c] };
}

__device__ __forceinline__ void put_node(float *rows, int64_t width, int64_t node, int64_t c, Node x)
{
    rows[(node * SL_NODE_ROWS + SL_NODE_FIRST) * width + c] = x.first;
    rows[(node * SL_NODE_ROWS + SL_NODE_SECOND) * width + c] = x.second;
}

/* What a sample by itself comes to: its parts in order. Block b: channels b % blocks of samples b / blocks * FOLD_LANES on. */
template <bool BACKWARD>
__global__ void __launch_bounds__(FOLD_CHANNELS *FOLD_LANES) fold_sample(const NodeJob j, int64_t blocks)
{
    const int64_t c = blockIdx.x % blocks * FOLD_CHANNELS + threadIdx.x;
    const int64_t sample = blockIdx.x / blocks * FOLD_LANES + threadIdx.y;
    if (c >= j.width || sample >= j.samples) return;
    const double *sums = j.sums + sample * j.parts * 2 * j.width, rows = (double)j.rows;
    double a = 0.0, b = 0.0;
    for (int64_t part = 0; part < j.parts; part++) {
        a += sums[part * 2 * j.width + c];
        b += sums[part * 2 * j.width + j.width + c];
    }
    const double mean = a / rows, spread = b / rows - mean * mean;
    const Node leaf = { (float)(BACKWARD ? a : mean), (float)(BACKWARD ? b : spread > 0.0 ? spread : 0.0 * spread) };
    put_node(j.leaves, j.width, sample, c, leaf);
}

/* The nodes of this rank's samples, pair by pair in place of their leaves; zeros in the room behind them. */
template <bool BACKWARD> __global__ void __launch_bounds__(FOLD_CHANNELS *FOLD_LANES) grow_nodes(const NodeJob j)
{
    const int64_t c = (int64_t)blockIdx.x * FOLD_CHANNELS + threadIdx.x;
    const int64_t begin = j.rank * j.samples, end = begin + j.samples;
    int64_t next = begin;
    for (int64_t node = 0; node < j.room; node++) {
        const int64_t count = next < end ? (int64_t)1 << sl_norm_level(next, end) : 0;
        for (int64_t half = 1; half < count; half *= 2) {
            for (int64_t i = threadIdx.y * 2 * half; i < count && c < j.width; i += FOLD_LANES * 2 * half) {
                const int64_t left = next - begin + i;
                const Node a = get_node(j.leaves, j.width, left, c), b = get_node(j.leaves, j.width, left + half, c);
                put_node(j.leaves, j.width, left, c, join<BACKWARD>(a, b, half, half));
            }
            __syncthreads();
        }
        if (threadIdx.y == 0 && c < j.width) {
            Node x = { 0.0f, 0.0f };
            const int64_t at = j.rank * j.room + node;
            if (count > 0) x = get_node(j.leaves, j.width, next - begin, c);
            if (j.add) x = join<true>(get_node(j.nodes, j.width, at, c), x, 1, 1);
            put_node(j.nodes, j.width, at, c, x);
        }
        next += count;
    }
}

/* What the nodes of all ranks come to, of channel c. Those that wait for their neighbour are on a stack, the larger ones, which
 * come first, at the bottom. */
template <bool BACKWARD> __device__ Node join_ranks(const NodeJob &j, int64_t c)
{
    Node stack[SL_SAMPLE_DEPTH];
    int64_t samples[SL_SAMPLE_DEPTH];
    int depth = 0;
    for (int64_t rank = 0; rank < j.ranks; rank++) {
        int64_t next = rank * j.samples;
        const int64_t end = next + j.samples;
        for (int64_t node = 0; next < end; node++) {
            Node x = get_node(j.nodes, j.width, rank * j.room + node, c);
            int64_t count = (int64_t)1 << sl_norm_level(next, end);
            next += count;
            for (; depth > 0 && samples[depth - 1] == count; count *= 2) {
                depth--;
                x = join<BACKWARD>(stack[depth], x, count, count);
            }
            stack[depth] = x;
            samples[depth++] = count;
        }
    }
    for (; depth > 1; depth--) {
        stack[depth - 2] = join<BACKWARD>(stack[depth - 2], stack[depth - 1], samples[depth - 2], samples[depth - 1]);
        samples[depth - 2] += samples[depth - 1];
    }
    return stack[0];
}

template <class T>
__global__ void __launch_bounds__(GROUP_THREADS) join_statistics(const ChannelJob<T> j, const NodeJob n)
{
    const int64_t c = (int64_t)blockIdx.x * GROUP_THREADS + threadIdx.x;
    if (c >= n.width) return;
    const Node x = join_ranks<false>(n, c);
    const double variance = (double)x.second;
    j.mean_out[c] = x.first;
    j.rstd_out[c] = (float)(1.0 / sqrt(variance + (double)j.epsilon));
    if (j.statistics == nullptr) return;
    j.statistics[SL_BATCH_MEAN * n.width + c] = x.first;
    j.statistics[SL_BATCH_VARIANCE * n.width + c] =
        (float)(n.count > 1.0 ? variance * n.count / (n.count - 1.0) : variance);
}

/* Slope and shift, and the gradients of weight and bias, which are rank 0's. */
template <class T> __global__ void __launch_bounds__(GROUP_THREADS) join_slopes(const ChannelJob<T> j, const NodeJob n)
{
    const int64_t c = (int64_t)blockIdx.x * GROUP_THREADS + threadIdx.x;
    if (c >= n.width) return;
    const Node x = join_ranks<true>(n, c);
    const double weight = (double)to_float(j.weight[c]), hat = (double)x.second * (double)j.rstd[c];
    put_parameter(j.dbias, j.dbias_form, c, n.rank == 0 ? x.first : 0.0f, j.add_dbias);
    put_parameter(j.dweight, j.dweight_form, c, n.rank == 0 ? (float)hat : 0.0f, j.add_dweight);
    put_slopes(j, c, weight * (double)x.first, weight * (double)x.second, n.count);
}

/* ---- on the host ---- */

template <class T> ChannelJob<T> make_job(const sl_cuda_args *a, int64_t groups)
{
    ChannelJob<T> j = {};
    j.grid = sl_channel_grid_of(&a->in[0], groups);
    j.each = (int)(j.grid.width / j.grid.groups);
    j.x = (const T *)a->in[0].data;
    j.weight = (const T *)a->in[1].data;
    j.y = (T *)a->out[0].data;
    j.sums = (double *)a->workspace;
    j.slopes = (float *)((char *)a->workspace + sl_channel_sum_bytes(&j.grid));
    return j;
}

/* nullptr counts as aligned. */
template <class T> bool is_aligned(const ChannelJob<T> &j)
{
    const void *operands[] = { j.x, j.residual, j.dy, j.passed, j.y, j.dresidual };
    bool aligned = j.grid.width % pack_elements<T> == 0;
    for (const void *p : operands) aligned = aligned && aligned_for(p, 16);
    return aligned;
}

/* How the numbers of channels are read, once all of them are known; whether pieces are read whole. */
template <class T> bool set_alignment(ChannelJob<T> *j)
{
    const bool alone = (j->grid.samples == 1 || j->shared) && j->grid.groups == j->grid.width;
    const bool whole = j->grid.width % pack_elements<T> == 0;
    j->vectors = alone && whole && aligned_for(j->mean, 16) && aligned_for(j->rstd, 16) && aligned_for(j->slopes, 16);
    j->weight_aligned = aligned_for(j->weight, 16);
    j->bias_aligned = aligned_for(j->bias, 16);
    return is_aligned(*j);
}

template <class T> using walk_kernel = void (*)(ChannelJob<T>, int64_t);
template <class T> using sums_kernel = void (*)(ChannelJob<T>);

template <class T> dim3 block_of(const ChannelJob<T> &j)
{
    return dim3((unsigned)j.grid.across, (unsigned)j.grid.abreast);
}

template <class T> void launch_sums(const sl_cuda_args *a, const ChannelJob<T> &j, sums_kernel<T> kernel)
{
    const size_t shared = (size_t)SL_CHANNEL_THREADS * pack_elements<T> * 2 * sizeof(float);
    const unsigned blocks = (unsigned)(j.grid.samples * j.grid.parts * j.grid.tiles);
    SL_LAUNCH(kernel, dim3(blocks), block_of(j), shared, a->stream, j);
}

template <class T> void launch_walk(const sl_cuda_args *a, const ChannelJob<T> &j, walk_kernel<T> kernel)
{
    const int64_t walks = sl_channel_ceil_div(j.grid.rows, WALK_ROWS * j.grid.abreast);
    const unsigned blocks = (unsigned)(j.grid.samples * walks * j.grid.tiles);
    SL_LAUNCH(kernel, dim3(blocks), block_of(j), 0, a->stream, j, walks);
}

template <class T> unsigned blocks_for(int64_t items)
{
    return (unsigned)sl_channel_ceil_div(items, GROUP_THREADS);
}

template <class T, bool BACKWARD> void launch_folds(const sl_cuda_args *a, const ChannelJob<T> &j)
{
    const int64_t blocks = sl_channel_ceil_div(j.grid.width, FOLD_CHANNELS);
    SL_LAUNCH((fold_parts<T, BACKWARD>), dim3((unsigned)(blocks * j.grid.samples)), dim3(FOLD_CHANNELS, FOLD_LANES), 0,
              a->stream, j, blocks);
    if (j.grid.groups == j.grid.width && j.grid.samples == 1) return;
    SL_LAUNCH((fold_groups<T, BACKWARD>), dim3(blocks_for<T>(j.grid.samples * j.grid.groups)), dim3(GROUP_THREADS), 0,
              a->stream, j);
    if (BACKWARD && (j.dweight != nullptr || j.dbias != nullptr))
        SL_LAUNCH(fold_samples<T>, dim3(blocks_for<T>(j.grid.width)), dim3(GROUP_THREADS), 0, a->stream, j);
}

template <class T> sluice_status run_forward(const sl_cuda_args *a, ChannelJob<T> *j)
{
    j->bias = (const T *)a->in[2].data;
    j->mean = j->mean_out = (float *)a->out[1].data;
    j->rstd = j->rstd_out = (float *)a->out[2].data;
    const bool aligned = set_alignment(j);
    if (j->running) {
        SL_LAUNCH(take_running<T>, dim3(blocks_for<T>(j->grid.width)), dim3(GROUP_THREADS), 0, a->stream, *j);
    } else {
        launch_sums(a, *j, aligned ? forward_sums<T, true> : forward_sums<T, false>);
        launch_folds<T, false>(a, *j);
    }
    launch_walk(a, *j, aligned ? normalize<T, true> : normalize<T, false>);
    return sl_launched(a);
}

template <class T> sluice_status run_backward(const sl_cuda_args *a, ChannelJob<T> *j)
{
    j->dweight = a->out[1].data;
    j->dweight_form = a->out[1].form;
    j->add_dweight = accumulates(a, 1);
    j->dbias = a->out[2].data;
    j->dbias_form = a->out[2].form;
    j->add_dbias = accumulates(a, 2);
    j->add = accumulates(a, 0);
    j->add_dresidual = accumulates(a, 3);
    const bool aligned = set_alignment(j);
    launch_sums(a, *j, aligned ? backward_sums<T, true> : backward_sums<T, false>);
    launch_folds<T, true>(a, *j);
    if (j->y == nullptr) return sl_launched(a);
    if (j->dresidual != nullptr && !j->add_dresidual) { /* it is what passed */
        j->dy = j->dresidual;
        j->passed = nullptr;
        j->relu = false;
    }
    launch_walk(a, *j, aligned ? write_dx<T, true> : write_dx<T, false>);
    return sl_launched(a);
}

/* What the ranks tell each other, in `nodes`. */
NodeJob make_nodes(const sl_cuda_args *a, const sl_cuda_tensor *nodes)
{
    const sl_channel_grid g = sl_channel_grid_of_samples(&a->in[0]);
    NodeJob n = {};
    n.nodes = (float *)nodes->data;
    n.sums = (const double *)a->workspace;
    if (a->workspace != nullptr) n.leaves = (float *)((char *)a->workspace + sl_channel_sum_bytes(&g));
    n.samples = g.samples;
    n.parts = g.parts;
    n.rows = g.rows;
    n.width = g.width;
    n.ranks = a->attrs->batch_norm.ranks;
    n.rank = (int64_t)a->context->micro % n.ranks;
    n.room = nodes->shape->dim[1];
    n.count = (double)(g.samples * g.rows) * (double)n.ranks;
    return n;
}

template <bool BACKWARD> void launch_nodes(const sl_cuda_args *a, const NodeJob &n)
{
    const int64_t blocks = sl_channel_ceil_div(n.width, FOLD_CHANNELS);
    const dim3 threads(FOLD_CHANNELS, FOLD_LANES);
    SL_LAUNCH((fold_sample<BACKWARD>), dim3((unsigned)(blocks * sl_channel_ceil_div(n.samples, FOLD_LANES))), threads,
              0, a->stream, n, blocks);
    SL_LAUNCH((grow_nodes<BACKWARD>), dim3((unsigned)blocks), threads, 0, a->stream, n);
}

/* Of an op that normalises by mean and deviation, inputs 3 and 4. */
template <class T> ChannelJob<T> make_shared_job(const sl_cuda_args *a)
{
    ChannelJob<T> j = make_job<T>(a, 0);
    j.shared = true;
    j.relu = a->attrs->batch_norm.relu;
    j.bias = (const T *)a->in[2].data;
    j.mean = (const float *)a->in[3].data;
    j.rstd = (const float *)a->in[4].data;
    j.slopes = (float *)a->workspace;
    return j;
}

/* Blocks are counted in 31 bits. */
sluice_status check_size(sl_op op, const sl_cuda_args *a, int64_t groups)
{
    const sl_channel_grid g = sl_channel_grid_of(&a->in[0], groups);
    SL_TRY(sl_check_workspace(op, a));
    if (a->in[0].elements / SL_CHANNEL_THREADS + g.samples * g.parts * g.tiles <= INT32_MAX) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_USAGE, "%s: %lld elements are too many", a->name, (long long)a->in[0].elements);
}

/* The same over ranks, with a cut of each sample. */
sluice_status check_shared_size(sl_op op, const sl_cuda_args *a)
{
    const sl_channel_grid g = sl_channel_grid_of_samples(&a->in[0]);
    SL_TRY(sl_check_workspace(op, a));
    if (a->in[0].elements / SL_CHANNEL_THREADS + g.samples * g.parts * g.tiles <= INT32_MAX) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_USAGE, "%s: %lld elements are too many", a->name, (long long)a->in[0].elements);
}
} // namespace SL_KERNELS

sluice_status sl_cuda_batch_moments(const sl_cuda_args *a)
{
    SL_TRY(check_shared_size(SL_OP_BATCH_MOMENTS, a));
    if (!a->context->training) return SLUICE_OK;
    return sl_dispatch(sl_cuda_type(SL_OP_BATCH_MOMENTS, a), [&](auto element) {
        using T = decltype(element);
        ChannelJob<T> j = make_job<T>(a, 0);
        j.grid = sl_channel_grid_of_samples(&a->in[0]);
        j.y = nullptr;
        launch_sums(a, j, is_aligned(j) ? forward_sums<T, true> : forward_sums<T, false>);
        launch_nodes<false>(a, make_nodes(a, &a->out[0]));
        return sl_launched(a);
    });
}

sluice_status sl_cuda_batch_statistics(const sl_cuda_args *a)
{
    return sl_dispatch(sl_cuda_type(SL_OP_BATCH_STATISTICS, a), [&](auto element) {
        using T = decltype(element);
        ChannelJob<T> j = {};
        j.grid = sl_channel_grid_of(&a->in[0], 0);
        j.epsilon = a->attrs->batch_norm.epsilon;
        j.mean_out = (float *)a->out[0].data;
        j.rstd_out = (float *)a->out[1].data;
        j.statistics = (float *)a->out[2].data;
        const dim3 blocks(blocks_for<T>(j.grid.width)), threads(GROUP_THREADS);
        if (a->context->training)
            SL_LAUNCH(join_statistics<T>, blocks, threads, 0, a->stream, j, make_nodes(a, &a->in[1]));
        else
            SL_LAUNCH(take_running<T>, blocks, threads, 0, a->stream, j);
        return sl_launched(a);
    });
}

sluice_status sl_cuda_batch_normalize(const sl_cuda_args *a)
{
    SL_TRY(check_size(SL_OP_BATCH_NORMALIZE, a, 0));
    return sl_dispatch(sl_cuda_type(SL_OP_BATCH_NORMALIZE, a), [&](auto element) {
        using T = decltype(element);
        ChannelJob<T> j = make_shared_job<T>(a);
        j.residual = a->input_count > 5 ? (const T *)a->in[5].data : nullptr;
        launch_walk(a, j, set_alignment(&j) ? normalize<T, true> : normalize<T, false>);
        return sl_launched(a);
    });
}

sluice_status sl_cuda_batch_norm_sums(const sl_cuda_args *a)
{
    SL_TRY(check_shared_size(SL_OP_BATCH_NORM_SUMS, a));
    return sl_dispatch(sl_cuda_type(SL_OP_BATCH_NORM_SUMS, a), [&](auto element) {
        using T = decltype(element);
        ChannelJob<T> j = make_shared_job<T>(a);
        j.grid = sl_channel_grid_of_samples(&a->in[0]);
        j.dy = (const T *)a->in[5].data;
        j.passed = a->input_count > 6 && j.relu ? (const T *)a->in[6].data : nullptr;
        j.y = nullptr;
        j.dresidual = (T *)a->out[1].data;
        j.add_dresidual = accumulates(a, 1);
        launch_sums(a, j, set_alignment(&j) ? backward_sums<T, true> : backward_sums<T, false>);
        NodeJob n = make_nodes(a, &a->out[0]);
        n.add = accumulates(a, 0);
        launch_nodes<true>(a, n);
        return sl_launched(a);
    });
}

sluice_status sl_cuda_batch_normalize_grad(const sl_cuda_args *a)
{
    SL_TRY(check_size(SL_OP_BATCH_NORMALIZE_GRAD, a, 0));
    return sl_dispatch(sl_cuda_type(SL_OP_BATCH_NORMALIZE_GRAD, a), [&](auto element) {
        using T = decltype(element);
        ChannelJob<T> j = make_shared_job<T>(a);
        j.dy = (const T *)a->in[5].data;
        j.passed = a->input_count > 7 && j.relu ? (const T *)a->in[7].data : nullptr;
        j.dweight = a->out[1].data;
        j.dweight_form = a->out[1].form;
        j.add_dweight = accumulates(a, 1);
        j.dbias = a->out[2].data;
        j.dbias_form = a->out[2].form;
        j.add_dbias = accumulates(a, 2);
        j.add = accumulates(a, 0);
        SL_LAUNCH(join_slopes<T>, dim3(blocks_for<T>(j.grid.width)), dim3(GROUP_THREADS), 0, a->stream, j,
                  make_nodes(a, &a->in[6]));
        if (j.y == nullptr) return sl_launched(a);
        launch_walk(a, j, set_alignment(&j) ? write_dx<T, true> : write_dx<T, false>);
        return sl_launched(a);
    });
}

sluice_status sl_cuda_batch_norm(const sl_cuda_args *a)
{
    SL_TRY(check_size(SL_OP_BATCH_NORM, a, 0));
    return sl_dispatch(sl_cuda_type(SL_OP_BATCH_NORM, a), [&](auto element) {
        using T = decltype(element);
        ChannelJob<T> j = make_job<T>(a, 0);
        j.epsilon = a->attrs->batch_norm.epsilon;
        j.relu = a->attrs->batch_norm.relu;
        j.residual = a->input_count > 3 ? (const T *)a->in[3].data : nullptr;
        j.statistics = (float *)a->out[3].data;
        j.running = !a->context->training || a->attrs->batch_norm.frozen;
        return run_forward(a, &j);
    });
}

sluice_status sl_cuda_batch_norm_grad(const sl_cuda_args *a)
{
    SL_TRY(check_size(SL_OP_BATCH_NORM_GRAD, a, 0));
    return sl_dispatch(sl_cuda_type(SL_OP_BATCH_NORM_GRAD, a), [&](auto element) {
        using T = decltype(element);
        ChannelJob<T> j = make_job<T>(a, 0);
        j.relu = a->attrs->batch_norm.relu;
        j.fixed = a->attrs->batch_norm.frozen;
        j.bias = (const T *)a->in[2].data;
        j.mean = (const float *)a->in[3].data;
        j.rstd = (const float *)a->in[4].data;
        j.dy = (const T *)a->in[5].data;
        j.passed = a->input_count > 6 && j.relu ? (const T *)a->in[6].data : nullptr;
        j.dresidual = (T *)a->out[3].data;
        return run_backward(a, &j);
    });
}

sluice_status sl_cuda_group_norm(const sl_cuda_args *a)
{
    SL_TRY(check_size(SL_OP_GROUP_NORM, a, a->attrs->group_norm.groups));
    return sl_dispatch(sl_cuda_type(SL_OP_GROUP_NORM, a), [&](auto element) {
        using T = decltype(element);
        ChannelJob<T> j = make_job<T>(a, a->attrs->group_norm.groups);
        j.epsilon = a->attrs->group_norm.epsilon;
        return run_forward(a, &j);
    });
}

sluice_status sl_cuda_group_norm_grad(const sl_cuda_args *a)
{
    SL_TRY(check_size(SL_OP_GROUP_NORM_GRAD, a, a->attrs->group_norm.groups));
    return sl_dispatch(sl_cuda_type(SL_OP_GROUP_NORM_GRAD, a), [&](auto element) {
        using T = decltype(element);
        ChannelJob<T> j = make_job<T>(a, a->attrs->group_norm.groups);
        j.mean = (const float *)a->in[2].data;
        j.rstd = (const float *)a->in[3].data;
        j.dy = (const T *)a->in[4].data;
        return run_backward(a, &j);
    });
}
