/* rotary.cu: rotary position embedding. Element pairs (i, i + D/2) of a head turn by position * base^(-2i/D).
 *
 * An angle is taken in double and brought to [-pi, pi] there, because positions are large and f32 would lose the
 * fraction of a turn; its sine and cosine are then f32. A block takes one position in several sequences: angles are
 * computed once and turn all heads of all of them. */
#include "backend/cuda/elem.cuh"

namespace
{
constexpr int THREADS = 256;
constexpr int PAIRS = 512;   /* of a head that a block has angles for */
constexpr int SEQUENCES = 4; /* of the batch that a block turns */

template <class T> struct RotaryJob {
    const T *x;
    T *y; /* may be x */
    int64_t batch, length, row;
    int64_t heads, pairs;
    double turns; /* log2(base) / pairs */
    bool inverse;
};

/* Cosine and sine of pair i at this position. */
template <class T> __device__ __forceinline__ float2 angle(const RotaryJob<T> &j, int64_t position, int64_t i)
{
    const double two_pi = 6.283185307179586477, per_turn = 0.15915494309189533577;
    const double whole = (double)position * exp2(-(double)i * j.turns);
    const float rest = (float)fma(-rint(whole * per_turn), two_pi, whole);
    const float s = sinf(rest);
    return make_float2(cosf(rest), j.inverse ? -s : s);
}

/* N pairs, of which the first halves lie at x. Both halves are read before either is written. */
template <class T, int N> __device__ __forceinline__ void turn(const T *x, T *y, int64_t pairs, const float2 *angles)
{
    float a[N], b[N];
    load_floats<T, N>(x, a);
    load_floats<T, N>(x + pairs, b);
#pragma unroll
    for (int i = 0; i < N; i++) {
        const float2 t = angles[i];
        const float first = fmaf(a[i], t.x, -(b[i] * t.y));
        b[i] = fmaf(b[i], t.x, a[i] * t.y);
        a[i] = first;
    }
    store_floats<T, N>(y, a);
    store_floats<T, N>(y + pairs, b);
}

/* A 16-bit element alone. */
template <class T> __device__ __forceinline__ void turn_one(const T *x, T *y, int64_t pairs, float2 t)
{
    const float a = to_float(x[0]), b = to_float(x[pairs]);
    y[0] = from_float<T>(fmaf(a, t.x, -(b * t.y)));
    y[pairs] = from_float<T>(fmaf(b, t.x, a * t.y));
}

/* Pairs [first, first + count) of all heads of one row, and, where first is 0, what lies behind the heads. */
template <class T, int N>
__device__ __forceinline__ void turn_row(const RotaryJob<T> &j, const T *x, T *y, int64_t first, int count,
                                         const float2 *angles)
{
    const int steps = count / N;
    for (int64_t at = threadIdx.x; at < j.heads * steps; at += THREADS) {
        const int pair = (int)(at % steps) * N;
        const int64_t column = at / steps * 2 * j.pairs + first + pair;
        if constexpr (N == 1)
            turn_one(x + column, y + column, j.pairs, angles[pair]);
        else
            turn<T, N>(x + column, y + column, j.pairs, angles + pair);
    }
    if (x == y || first != 0) return;
    for (int64_t at = j.heads * 2 * j.pairs + threadIdx.x * N; at < j.row; at += THREADS * N)
        *reinterpret_cast<Pack<T, N> *>(y + at) = load_pack<T, N>(x + at);
}

/* grid: positions, runs of SEQUENCES, runs of PAIRS. N divides everything where it is not 1. */
template <class T, int N> __global__ void __launch_bounds__(THREADS) rotate(const RotaryJob<T> j)
{
    __shared__ float2 angles[PAIRS];
    const int64_t position = blockIdx.x, first = (int64_t)blockIdx.z * PAIRS;
    const int count = (int)min((int64_t)PAIRS, j.pairs - first);
    for (int i = threadIdx.x; i < count; i += THREADS) angles[i] = angle(j, position, first + i);
    __syncthreads();
    for (int64_t run = blockIdx.y; run * SEQUENCES < j.batch; run += gridDim.y)
        for (int64_t b = run * SEQUENCES; b < min((run + 1) * SEQUENCES, j.batch); b++) {
            const int64_t at = (b * j.length + position) * j.row;
            turn_row<T, N>(j, j.x + at, j.y + at, first, count, angles);
        }
}

template <class T> RotaryJob<T> make_job(const sl_cuda_args *a)
{
    const sl_shape *shape = a->in[0].shape;
    RotaryJob<T> j = {};
    j.x = (const T *)a->in[0].data;
    j.y = (T *)a->out[0].data;
    j.batch = shape->dim[0];
    j.length = shape->dim[1];
    j.row = shape->dim[2];
    j.heads = a->attrs->rotary.heads;
    j.pairs = a->attrs->rotary.head_width / 2;
    j.turns = log2((double)a->attrs->rotary.base) / (double)j.pairs;
    j.inverse = a->attrs->rotary.inverse;
    return j;
}
} // namespace

sluice_status sl_cuda_rotary(const sl_cuda_args *a)
{
    return sl_dispatch(sl_cuda_type(SL_OP_ROTARY, a), [&](auto element) {
        using T = decltype(element);
        constexpr int N = pack_elements<T>;
        const RotaryJob<T> j = make_job<T>(a);
        const bool aligned = j.pairs % N == 0 && j.row % N == 0 && aligned_for(j.x, 16) && aligned_for(j.y, 16);
        const int64_t runs = (j.batch + SEQUENCES - 1) / SEQUENCES;
        const dim3 grid((unsigned)j.length, (unsigned)(runs < 65535 ? runs : 65535),
                        (unsigned)((j.pairs + PAIRS - 1) / PAIRS));
        if (aligned)
            SL_LAUNCH((rotate<T, N>), grid, dim3(THREADS), 0, a->stream, j);
        else
            SL_LAUNCH((rotate<T, 1>), grid, dim3(THREADS), 0, a->stream, j);
        return sl_launched(a);
    });
}
