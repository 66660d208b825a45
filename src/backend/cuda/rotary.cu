/* rotary.cu: rotary position embedding. Of a head's rotated dimensions, pairs (i, i + d/2) turn by the position times the
 * frequency of ir/rotary_table.h.
 *
 * The frequencies come from the host, in double, with the launch. An angle is taken in double and brought to [-pi, pi]
 * there, because positions are large and f32 would lose the fraction of a turn; its sine and cosine are then f32. A
 * block takes one token in several sequences: angles are computed once and turn all heads of all of them, or, where
 * positions are given, once for each. */
#include "backend/cuda/elem.cuh"

extern "C" {
#include "ir/rotary_table.h"
}

inline namespace SL_KERNELS
{
constexpr int THREADS = 256;
constexpr int PAIRS = 256;   /* of a head that a launch has angles for: its parameters hold their frequencies */
constexpr int SEQUENCES = 4; /* of the batch that a block turns */

template <class T> struct RotaryJob {
    const T *x;
    T *y;                     /* may be x */
    const int32_t *positions; /* [batch, length]; nullptr: 0, 1, .. in every sequence */
    int64_t batch, length, row;
    int64_t heads, width; /* of a head */
    int64_t pairs;        /* of a head that turn */
    int64_t first;        /* of those that this launch turns */
    int count;
    float attention; /* cosines and sines are multiplied by it */
    bool inverse;
    double frequency[PAIRS]; /* from `first` on */
};

/* Cosine and sine of pair first + i at this position. */
template <class T> __device__ __forceinline__ float2 angle(const RotaryJob<T> &j, int64_t position, int i)
{
    const double two_pi = 6.283185307179586477, per_turn = 0.15915494309189533577;
    const double whole = (double)position * j.frequency[i];
    const float rest = (float)fma(-rint(whole * per_turn), two_pi, whole);
    const float s = j.attention * sinf(rest);
    return make_float2(j.attention * cosf(rest), j.inverse ? -s : s);
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

/* Copies `count` elements a head, `skip` apart, N at a time. */
template <class T, int N>
__device__ __forceinline__ void copy_columns(const T *x, T *y, int64_t heads, int64_t skip, int64_t count)
{
    const int64_t steps = count / N;
    for (int64_t at = threadIdx.x; at < heads * steps; at += THREADS) {
        const int64_t column = at / steps * skip + at % steps * N;
        *reinterpret_cast<Pack<T, N> *>(y + column) = load_pack<T, N>(x + column);
    }
}

/* The launch's pairs of all heads of one row, and, with its first ones, what no pair is of. */
template <class T, int N>
__device__ __forceinline__ void turn_row(const RotaryJob<T> &j, const T *x, T *y, const float2 *angles)
{
    const int steps = j.count / N;
    for (int64_t at = threadIdx.x; at < j.heads * steps; at += THREADS) {
        const int pair = (int)(at % steps) * N;
        const int64_t column = at / steps * j.width + j.first + pair;
        if constexpr (N == 1)
            turn_one(x + column, y + column, j.pairs, angles[pair]);
        else
            turn<T, N>(x + column, y + column, j.pairs, angles + pair);
    }
    if (x == y || j.first != 0) return;
    const int64_t turned = 2 * j.pairs, behind = j.heads * j.width;
    if (turned < j.width) copy_columns<T, N>(x + turned, y + turned, j.heads, j.width, j.width - turned);
    if (behind < j.row) copy_columns<T, N>(x + behind, y + behind, 1, 0, j.row - behind);
}

template <class T> __device__ __forceinline__ void make_angles(const RotaryJob<T> &j, int64_t position, float2 *angles)
{
    for (int i = threadIdx.x; i < j.count; i += THREADS) angles[i] = angle(j, position, i);
    __syncthreads();
}

/* grid: tokens, runs of SEQUENCES. N divides everything where it is not 1. */
template <class T, int N> __global__ void __launch_bounds__(THREADS) rotate(const RotaryJob<T> j)
{
    __shared__ float2 angles[PAIRS];
    const int64_t token = blockIdx.x;
    if (j.positions == nullptr) make_angles(j, token, angles);
    for (int64_t run = blockIdx.y; run * SEQUENCES < j.batch; run += gridDim.y)
        for (int64_t b = run * SEQUENCES; b < min((run + 1) * SEQUENCES, j.batch); b++) {
            const int64_t row = b * j.length + token, at = row * j.row;
            if (j.positions != nullptr) {
                __syncthreads(); /* all are done with the angles before */
                make_angles(j, j.positions[row], angles);
            }
            turn_row<T, N>(j, j.x + at, j.y + at, angles);
        }
}

template <class T> RotaryJob<T> make_job(const sl_cuda_args *a, const sl_rotary_rule &rule)
{
    const sl_shape *shape = a->in[0].shape;
    RotaryJob<T> j = {};
    j.x = (const T *)a->in[0].data;
    j.y = (T *)a->out[0].data;
    j.positions = a->input_count > 1 ? (const int32_t *)a->in[1].data : nullptr;
    j.batch = shape->dim[0];
    j.length = shape->dim[1];
    j.row = shape->dim[2];
    j.heads = a->attrs->rotary.heads;
    j.width = a->attrs->rotary.head_width;
    j.pairs = rule.pairs;
    j.attention = (float)rule.attention;
    j.inverse = a->attrs->rotary.inverse;
    return j;
}

template <class T, int N> void launch(const sl_cuda_args *a, RotaryJob<T> *j, const sl_rotary_rule &rule)
{
    const int64_t runs = (j->batch + SEQUENCES - 1) / SEQUENCES;
    const dim3 grid((unsigned)j->length, (unsigned)(runs < 65535 ? runs : 65535));
    for (j->first = 0; j->first < j->pairs; j->first += PAIRS) {
        const int64_t left = j->pairs - j->first;
        j->count = (int)(left < PAIRS ? left : PAIRS);
        for (int i = 0; i < j->count; i++) j->frequency[i] = sl_rotary_frequency(&rule, j->first + i);
        SL_LAUNCH((rotate<T, N>), grid, dim3(THREADS), 0, a->stream, *j);
    }
}
} // namespace SL_KERNELS

sluice_status sl_cuda_rotary(const sl_cuda_args *a)
{
    const sl_rotary_rule rule = sl_rotary_rule_of(a->attrs, a->in[0].shape->dim[1]);
    return sl_dispatch(sl_cuda_type(SL_OP_ROTARY, a), [&](auto element) {
        using T = decltype(element);
        constexpr int N = pack_elements<T>;
        RotaryJob<T> j = make_job<T>(a, rule);
        const bool packs = j.pairs % N == 0 && j.width % N == 0 && j.row % N == 0;
        if (packs && aligned_for(j.x, 16) && aligned_for(j.y, 16))
            launch<T, N>(a, &j, rule);
        else
            launch<T, 1>(a, &j, rule);
        return sl_launched(a);
    });
}
