/* ctc.cu: connectionist temporal classification with its gradient, as cpu/kernels/ctc.c, which says what the passes are.
 *
 * A block takes a sequence through its frames, its threads the states; every frame ends with a barrier. Each frame's
 * numbers are relative to the largest; what was taken off is summed in double. What the ways expect of each state takes the
 * place of alpha. A block for each frame then makes the gradient: no two threads add to one class. */
#include "backend/cuda/elem.cuh"

#include "backend/cuda/ctc_size.h"

inline namespace SL_KERNELS
{
constexpr float IMPOSSIBLE = -1e30f;
constexpr int WARP = 32, BLOCK = 256;
constexpr int FEW = 64; /* states up to this are one warp's; by shape alone, as it fixes the order of sums */

template <class T> struct CtcJob {
    const T *logits;
    T *dlogits; /* nullptr: not wanted */
    const int32_t *labels, *lengths;
    int64_t batch, frames, classes, most_labels, states; /* states: of most_labels */
    int32_t blank;
    bool zero_infinity;
    float seed;
    sl_ctc_sequence *sequences;
    float *lse;   /* [B,T] */
    float *alpha; /* [B,T,states] */
    float *rows;  /* [B,2,states] */
    float *loss;
};

/* ---- what is known beforehand ---- */

template <class T> __global__ void __launch_bounds__(WARP) ctc_open(const CtcJob<T> j)
{
    const int64_t b = (int64_t)blockIdx.x * WARP + threadIdx.x;
    if (b >= j.batch) return;
    const int32_t *label = j.labels + b * j.most_labels, length = j.lengths[b];
    sl_ctc_sequence q = {};
    q.frames = length < 0 ? 0 : length < j.frames ? length : (int32_t)j.frames;
    q.known = 1;
    for (; q.labels < j.most_labels && label[q.labels] >= 0; q.labels++)
        if (label[q.labels] >= j.classes || label[q.labels] == j.blank) q.known = 0;
    j.sequences[b] = q;
}

/* A warp takes a frame. */
template <class T> __global__ void __launch_bounds__(BLOCK) ctc_lse(const CtcJob<T> j)
{
    const int lane = (int)(threadIdx.x % WARP);
    for (int64_t frame = (int64_t)blockIdx.x * (BLOCK / WARP) + threadIdx.x / WARP; frame < j.batch * j.frames;
         frame += (int64_t)gridDim.x * (BLOCK / WARP)) {
        const T *x = j.logits + frame * j.classes;
        float top = -INFINITY, sum = 0.0f;
        if (frame % j.frames >= j.sequences[frame / j.frames].frames) continue;
        for (int64_t i = lane; i < j.classes; i += WARP) top = fmaxf(top, to_float(x[i]));
        top = warp_max(top);
        for (int64_t i = lane; i < j.classes; i += WARP) sum += expf(to_float(x[i]) - top);
        sum = warp_sum(sum);
        if (lane == 0) j.lse[frame] = top + logf(sum);
    }
}

/* ---- states ---- */

template <class T> struct CtcSequence {
    int64_t b, frames, states;
    const int32_t *label;
};

template <class T> __device__ __forceinline__ CtcSequence<T> open_sequence(const CtcJob<T> &j)
{
    const int64_t b = blockIdx.x;
    const sl_ctc_sequence &q = j.sequences[b];
    return { b, q.frames, 2 * (int64_t)q.labels + 1, j.labels + b * j.most_labels };
}

template <class T>
__device__ __forceinline__ int32_t class_of(const CtcJob<T> &j, const CtcSequence<T> &q, int64_t state)
{
    return state % 2 == 0 ? j.blank : q.label[state / 2];
}

/* Whether the state two before leads to it. */
template <class T> __device__ __forceinline__ bool leaps_to(const CtcSequence<T> &q, int64_t state)
{
    return state >= 3 && state % 2 == 1 && q.label[state / 2] != q.label[state / 2 - 1];
}

template <class T>
__device__ __forceinline__ float emission(const CtcJob<T> &j, const CtcSequence<T> &q, int64_t f, int64_t state)
{
    const int64_t frame = q.b * j.frames + f;
    return to_float(j.logits[frame * j.classes + class_of(j, q, state)]) - j.lse[frame];
}

/* log(e^a + e^b + e^c) */
__device__ __forceinline__ float join(float a, float b, float c)
{
    const float top = fmaxf(fmaxf(a, b), c);
    return top + logf(expf(a - top) + expf(b - top) + expf(c - top));
}

__device__ __forceinline__ float bounded(float x)
{
    return x < IMPOSSIBLE ? IMPOSSIBLE : x;
}

/* The largest of n numbers, in every thread. All their writers are past a barrier with it. */
template <int THREADS> __device__ __forceinline__ float row_top(const float *row, int64_t n)
{
    float top = IMPOSSIBLE;
    for (int64_t s = threadIdx.x; s < n; s += THREADS) top = fmaxf(top, row[s]);
    return block_max<THREADS>(top);
}

/* ---- forward ---- */

template <class T>
__device__ __forceinline__ float alpha_of(const CtcJob<T> &j, const CtcSequence<T> &q, const float *from, int64_t f,
                                          int64_t s)
{
    if (f == 0) return s < 2 ? bounded(emission(j, q, f, s)) : IMPOSSIBLE;
    const float before = s > 0 ? from[s - 1] : IMPOSSIBLE, leap = leaps_to(q, s) ? from[s - 2] : IMPOSSIBLE;
    return bounded(join(from[s], before, leap) + emission(j, q, f, s));
}

/* -log of the labels' probability, in every thread. */
template <class T, int THREADS> __device__ double forward_pass(const CtcJob<T> &j, const CtcSequence<T> &q)
{
    double taken = 0.0;
    float *row = nullptr;
    if (!j.sequences[q.b].known) return NAN;
    if (q.frames == 0) return q.states == 1 ? 0.0 : INFINITY;
    for (int64_t f = 0; f < q.frames; f++) {
        const float lse = j.lse[q.b * j.frames + f], *from = row;
        if (lse != lse) return NAN;
        row = j.alpha + (q.b * j.frames + f) * j.states;
        for (int64_t s = threadIdx.x; s < q.states; s += THREADS) row[s] = alpha_of(j, q, from, f, s);
        const float top = row_top<THREADS>(row, q.states);
        if (top <= IMPOSSIBLE / 2) return INFINITY;
        for (int64_t s = threadIdx.x; s < q.states; s += THREADS) row[s] = bounded(row[s] - top);
        taken += (double)top;
        __syncthreads();
    }
    const float rest = join(row[q.states - 1], q.states > 1 ? row[q.states - 2] : IMPOSSIBLE, IMPOSSIBLE);
    return rest <= IMPOSSIBLE / 2 ? INFINITY : -(taken + (double)rest);
}

template <class T> __device__ __forceinline__ double weight_of(const CtcJob<T> &j, int64_t b)
{
    const int32_t labels = j.sequences[b].labels;
    return 1.0 / ((double)(labels > 0 ? labels : 1) * (double)j.batch);
}

template <class T, int THREADS> __global__ void __launch_bounds__(THREADS) ctc_forward(const CtcJob<T> j)
{
    const CtcSequence<T> q = open_sequence(j);
    const double nll = forward_pass<T, THREADS>(j, q);
    if (threadIdx.x != 0) return;
    j.sequences[q.b].nll = nll;
    j.sequences[q.b].loss = nll == INFINITY && j.zero_infinity ? 0.0 : nll * weight_of(j, q.b);
}

/* The sequences' losses in order: few, and one thread's. */
template <class T> __global__ void ctc_mean(const CtcJob<T> j)
{
    double sum = 0.0;
    for (int64_t b = 0; b < j.batch; b++) sum += j.sequences[b].loss;
    *j.loss = (float)sum;
}

/* ---- backward ---- */

/* `next`: frame f + 1's, with its emission. */
template <class T>
__device__ __forceinline__ float beta_of(const CtcSequence<T> &q, const float *next, int64_t f, int64_t s)
{
    if (f == q.frames - 1) return s >= q.states - 2 ? 0.0f : IMPOSSIBLE;
    const float after = s + 1 < q.states ? next[s + 1] : IMPOSSIBLE;
    const float leap = s + 2 < q.states && leaps_to(q, s + 2) ? next[s + 2] : IMPOSSIBLE;
    return bounded(join(next[s], after, leap));
}

/* What the ways expect of each state, in the place of alpha. */
template <class T, int THREADS> __global__ void __launch_bounds__(THREADS) ctc_backward(const CtcJob<T> j)
{
    const CtcSequence<T> q = open_sequence(j);
    const double nll = j.sequences[q.b].nll;
    if (!(nll - nll == 0.0)) return;
    for (int64_t f = q.frames - 1; f >= 0; f--) {
        float *row = j.alpha + (q.b * j.frames + f) * j.states, *beta = j.rows + (2 * q.b + f % 2) * j.states;
        const float *next = j.rows + (2 * q.b + (f + 1) % 2) * j.states;
        float sum = 0.0f;
        for (int64_t s = threadIdx.x; s < q.states; s += THREADS) beta[s] = beta_of(q, next, f, s);
        const float taken = row_top<THREADS>(beta, q.states);
        for (int64_t s = threadIdx.x; s < q.states; s += THREADS) {
            const float own = bounded(beta[s] - taken);
            row[s] = bounded(row[s] + own);
            beta[s] = bounded(own + emission(j, q, f, s));
        }
        const float top = row_top<THREADS>(row, q.states);
        for (int64_t s = threadIdx.x; s < q.states; s += THREADS) sum += row[s] = expf(row[s] - top);
        const float factor = 1.0f / block_sum<THREADS>(sum);
        for (int64_t s = threadIdx.x; s < q.states; s += THREADS) row[s] *= factor;
        __syncthreads();
    }
}

template <class T>
__device__ __forceinline__ void put_gradient(const CtcJob<T> &j, int64_t frame, int64_t i, float expected, float g)
{
    const int64_t at = frame * j.classes + i;
    j.dlogits[at] = from_float<T>((expf(to_float(j.logits[at]) - j.lse[frame]) - expected) * g);
}

/* What is expected of label k's class, over all equal labels, where k is the first of them; -1: it is not. */
template <class T> __device__ __forceinline__ float label_sum(const CtcSequence<T> &q, const float *row, int64_t k)
{
    float sum = 0.0f;
    for (int64_t i = 0; i < k; i++)
        if (q.label[i] == q.label[k]) return -1.0f;
    for (int64_t i = k; i < q.states / 2; i++)
        if (q.label[i] == q.label[k]) sum += row[2 * i + 1];
    return sum;
}

/* Block (b, f) has the gradient of a frame. */
template <class T> __global__ void __launch_bounds__(BLOCK) ctc_gradient(const CtcJob<T> j)
{
    CtcSequence<T> q;
    const int64_t frame = blockIdx.x, b = frame / j.frames;
    const sl_ctc_sequence &known = j.sequences[b];
    q = { b, known.frames, 2 * (int64_t)known.labels + 1, j.labels + b * j.most_labels };
    const bool finite = known.nll - known.nll == 0.0, counts = frame % j.frames < known.frames;
    if (!finite || !counts) {
        const float fill = !counts || (known.nll == INFINITY && j.zero_infinity) ? 0.0f : NAN;
        for (int64_t i = threadIdx.x; i < j.classes; i += BLOCK) j.dlogits[frame * j.classes + i] = from_float<T>(fill);
        return;
    }
    const float g = (float)((double)j.seed * weight_of(j, b)), *row = j.alpha + frame * j.states;
    float blanks = 0.0f;
    for (int64_t i = threadIdx.x; i < j.classes; i += BLOCK) put_gradient(j, frame, i, 0.0f, g);
    for (int64_t s = 2 * (int64_t)threadIdx.x; s < q.states; s += 2 * BLOCK) blanks += row[s];
    blanks = block_sum<BLOCK>(blanks);
    __syncthreads();
    if (threadIdx.x == 0) put_gradient(j, frame, j.blank, blanks, g);
    for (int64_t k = threadIdx.x; k < q.states / 2; k += BLOCK) {
        const float expected = label_sum(q, row, k);
        if (expected >= 0.0f) put_gradient(j, frame, q.label[k], expected, g);
    }
}

/* ---- the whole ---- */

template <class T> CtcJob<T> make_job(const sl_cuda_args *a)
{
    CtcJob<T> j = {};
    j.logits = (const T *)a->in[0].data;
    j.labels = (const int32_t *)a->in[1].data;
    j.lengths = (const int32_t *)a->in[2].data;
    j.batch = a->in[0].shape->dim[0];
    j.frames = a->in[0].shape->dim[1];
    j.classes = a->in[0].shape->dim[2];
    j.most_labels = a->in[1].shape->dim[1];
    j.states = 2 * j.most_labels + 1;
    j.blank = a->attrs->ctc.blank;
    j.zero_infinity = a->attrs->ctc.zero_infinity;
    j.seed = a->context->seed_gradient;
    j.loss = (float *)a->out[0].data;
    j.dlogits = a->context->training && a->output_count > 1 ? (T *)a->out[1].data : nullptr;
    j.sequences = (sl_ctc_sequence *)a->workspace;
    j.lse = (float *)(j.sequences + j.batch);
    j.alpha = j.lse + j.batch * j.frames;
    j.rows = j.alpha + j.batch * j.frames * j.states;
    return j;
}

template <class T, int THREADS> void launch_passes(const sl_cuda_args *a, const CtcJob<T> &j)
{
    SL_LAUNCH((ctc_forward<T, THREADS>), (unsigned)j.batch, THREADS, 0, a->stream, j);
    SL_LAUNCH((ctc_mean<T>), 1, 1, 0, a->stream, j);
    if (j.dlogits == nullptr) return;
    SL_LAUNCH((ctc_backward<T, THREADS>), (unsigned)j.batch, THREADS, 0, a->stream, j);
    SL_LAUNCH((ctc_gradient<T>), (unsigned)(j.batch * j.frames), BLOCK, 0, a->stream, j);
}
} // namespace SL_KERNELS

extern "C" {

SL_CUDA_KERNEL(ctc_loss)
{
    SL_TRY(sl_check_workspace(SL_OP_CTC_LOSS, a));
    return sl_dispatch(sl_cuda_type(SL_OP_CTC_LOSS, a), [&](auto element) {
        using T = decltype(element);
        const CtcJob<T> j = make_job<T>(a);
        SL_LAUNCH((ctc_open<T>), (unsigned)((j.batch + WARP - 1) / WARP), WARP, 0, a->stream, j);
        SL_LAUNCH((ctc_lse<T>), sl_grid(a, j.batch * j.frames, BLOCK / WARP, 16), BLOCK, 0, a->stream, j);
        if (j.states <= FEW)
            launch_passes<T, WARP>(a, j);
        else
            launch_passes<T, BLOCK>(a, j);
        return sl_launched(a);
    });
}
}
