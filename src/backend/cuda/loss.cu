/* loss.cu: cross entropy and its gradient, and what LINEAR_CROSS_ENTROPY needs of them for a chunk of logits.
 *
 * A block takes a row of logits. Largest element and sum of exponentials are found in one walk: a thread keeps the
 * largest it has seen and scales its sum when that grows. The pieces of a row are cut at 16-byte boundaries of the
 * tensor, not of the row, since a vocabulary may be odd: a row's first and last piece may stick out of it.
 *
 * The row losses are summed by one block in double, in an order that the number of rows fixes.
 *
 * Targets come from data. One that is neither ignored nor a class must not be used as an index: it makes the loss and
 * its row's gradient NaN, which stops the run as numbers gone bad. */
#include "backend/cuda/piece.cuh"

#include "backend/cuda/loss_size.h"

inline namespace SL_KERNELS
{
constexpr int MOST_THREADS = 512; /* of a row: two blocks with 64 registers fill a multiprocessor */
constexpr int SUM_THREADS = 1024; /* that sum row losses */
constexpr int SCALE_THREADS = 256;
constexpr int BATCH = 4;                 /* pieces that a thread asks for at once */
constexpr int64_t KEPT_BYTES = 96 << 10; /* of a row in shared memory: every GPU has that much, sm_90 twice */

template <class T> struct EntropyJob {
    const T *logits;
    const int32_t *targets;
    T *dlogits; /* may be logits; nullptr: not wanted */
    int64_t rows, width;
    int64_t stride; /* between rows */
    int64_t kept;   /* pieces of a row that fit in shared memory */
    int32_t ignore_index;
    float cap;                  /* logits count as cap tanh(logit / cap); 0: none. Kernels that are SHAPED */
    float smoothing;            /* what of a target all classes share; 0: nothing. Likewise */
    bool aligned;               /* the tensors begin at 16-byte boundaries */
    const float *lse_in;        /* the gradient's */
    const float *count, *dloss; /* dloss nullptr: it is `seed` */
    float seed;
    float *lse; /* that forward leaves */
    float *losses;
};

/* ---- a row ---- */

template <class T> struct EntropyRow {
    const T *x;
    int64_t row, shift, pieces;
    int32_t target;
    bool ignored, known; /* known: the target is a class */
};

template <class T> __device__ __forceinline__ EntropyRow<T> open_row(const EntropyJob<T> &j)
{
    EntropyRow<T> r;
    r.row = blockIdx.x;
    r.x = j.logits + r.row * j.stride;
    r.shift = r.row * j.stride % pack_elements<T>;
    r.pieces = (r.shift + j.width + pack_elements<T> - 1) / pack_elements<T>;
    r.target = j.targets[r.row];
    r.ignored = r.target == j.ignore_index;
    r.known = r.target >= 0 && r.target < j.width;
    return r;
}

/* Where piece `piece` begins: before the row for the first, where shift is not 0. */
template <class T> __device__ __forceinline__ int64_t piece_begin(const EntropyRow<T> &r, int64_t piece)
{
    return piece * pack_elements<T> - r.shift;
}

/* Calls f(piece, first, raw) for the pieces of this thread in order; first is where they begin. Those below `kept` are
 * in shared memory. What is outside the row is `fill`. */
template <class T, class F>
__device__ __forceinline__ void walk_row(const EntropyJob<T> &j, const EntropyRow<T> &r, const uint4 *shared,
                                         int64_t kept, T fill, F f)
{
    const int64_t step = blockDim.x;
    for (int64_t piece = threadIdx.x; piece < r.pieces; piece += BATCH * step) {
        const int64_t begin = piece_begin(r, piece), stride = step * pack_elements<T>;
        if (j.aligned && begin >= 0 && piece_is_whole<T>(begin + (BATCH - 1) * stride, j.width)) {
            uint4 raw[BATCH];
#pragma unroll
            for (int k = 0; k < BATCH; k++)
                raw[k] = piece + k * step < kept ? shared[piece + k * step]
                                                 : *reinterpret_cast<const uint4 *>(r.x + begin + k * stride);
#pragma unroll
            for (int k = 0; k < BATCH; k++) f(piece + k * step, begin + k * stride, raw[k]);
        } else {
            for (int64_t p = piece; p < min(piece + BATCH * step, r.pieces); p += step) {
                const int64_t first = piece_begin(r, p);
                f(p, first, p < kept ? shared[p] : load_piece(r.x, first, j.width, j.aligned, fill));
            }
        }
    }
}

/* sum of e^(x - top), top the largest x. */
struct ExpSum {
    float top, sum;
};

/* Scales the sum to another largest element. */
__device__ __forceinline__ float scaled(const ExpSum &s, float top)
{
    return s.top == top ? s.sum : __fmul_rn(s.sum, __expf(s.top - top));
}

__device__ __forceinline__ ExpSum join(const ExpSum &a, const ExpSum &b)
{
    ExpSum r;
    r.top = fmaxf(a.top, b.top);
    r.sum = __fadd_rn(scaled(a, r.top), scaled(b, r.top));
    return r;
}

/* Elements that are not there are -infinity and add nothing, also where there is nothing else; NaN is passed over by
 * the largest and stays in the sum. */
template <int N> __device__ __forceinline__ void add_elements(ExpSum *s, const float (&x)[N])
{
    float top = s->top;
#pragma unroll
    for (int i = 0; i < N; i++) top = fmaxf(top, x[i]);
    s->sum = scaled(*s, top);
    s->top = top;
    const float shift = top == -INFINITY ? 0.0f : top;
#pragma unroll
    for (int i = 0; i < N; i++) s->sum += __expf(x[i] - shift);
}

/* Over the warp, then over the warps of the block; every thread gets the same bits. */
__device__ __forceinline__ ExpSum join_block(ExpSum s)
{
    __shared__ ExpSum part[MOST_THREADS / 32];
#pragma unroll
    for (int other = 16; other > 0; other /= 2) {
        ExpSum o;
        o.top = __shfl_xor_sync(0xffffffffu, s.top, other);
        o.sum = __shfl_xor_sync(0xffffffffu, s.sum, other);
        s = join(s, o);
    }
    if (blockDim.x == 32) return s;
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = s;
    __syncthreads();
    s = part[0];
    for (unsigned w = 1; w < blockDim.x / 32; w++) s = join(s, part[w]);
    return s;
}

/* A piece's logits as the loss takes them. What is outside the row is -infinity, which a cap would lift. */
template <class T>
__device__ __forceinline__ void cap_piece(const EntropyJob<T> &j, int64_t first, float (&x)[pack_elements<T>])
{
#pragma unroll
    for (int i = 0; i < pack_elements<T>; i++)
        x[i] = first + i >= 0 && first + i < j.width ? j.cap * tanhf(x[i] / j.cap) : -INFINITY;
}

/* Sum over the block: warps by trees, then in order. Every thread gets the same bits. */
__device__ __forceinline__ float sum_of_block(float x)
{
    __shared__ float part[MOST_THREADS / 32];
    x = warp_sum(x);
    if (blockDim.x == 32) return x;
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = x;
    __syncthreads();
    x = part[0];
    for (unsigned w = 1; w < blockDim.x / 32; w++) x = __fadd_rn(x, part[w]);
    return x;
}

/* What a walk over a row finds. */
struct RowSums {
    float lse, mean; /* mean of the logits: only with smoothing */
};

/* Walks the row once. Its first pieces stay in shared memory, each for the thread that read it. */
template <class T, bool SHAPED>
__device__ __forceinline__ RowSums sum_row(const EntropyJob<T> &j, const EntropyRow<T> &r, uint4 *shared)
{
    ExpSum s = { -INFINITY, 0.0f };
    float all = 0.0f;
    walk_row(j, r, nullptr, 0, from_float<T>(-INFINITY), [&](int64_t piece, int64_t first, const uint4 &raw) {
        float x[pack_elements<T>];
        if (piece < j.kept) shared[piece] = raw;
        piece_floats<T>(raw, x);
        if constexpr (SHAPED) {
            if (j.cap > 0.0f) cap_piece(j, first, x);
#pragma unroll
            for (int i = 0; i < pack_elements<T>; i++)
                if (first + i >= 0 && first + i < j.width) all += x[i];
        }
        add_elements(&s, x);
    });
    s = join_block(s);
    RowSums sums = { s.top + logf(s.sum), 0.0f };
    if constexpr (SHAPED)
        if (j.smoothing > 0.0f) sums.mean = sum_of_block(all) / (float)j.width;
    return sums;
}

/* lse - logit; with smoothing s, 1 - s of that and s of lse - mean. */
template <class T>
__device__ __forceinline__ float row_loss(const EntropyJob<T> &j, const EntropyRow<T> &r, float target_logit,
                                          const RowSums &sums)
{
    if (r.ignored) return 0.0f;
    if (!r.known) return NAN;
    if (!(j.smoothing > 0.0f)) return sums.lse - target_logit;
    return (1.0f - j.smoothing) * (sums.lse - target_logit) + j.smoothing * (sums.lse - sums.mean);
}

template <class T, bool SHAPED>
__device__ __forceinline__ float read_target(const EntropyJob<T> &j, const EntropyRow<T> &r)
{
    const float x = r.known && !r.ignored ? to_float(r.x[r.target]) : 0.0f;
    return SHAPED && j.cap > 0.0f ? j.cap * tanhf(x / j.cap) : x;
}

/* ---- the gradient of a row ---- */

/* dloss / count, NaN for a row whose target is no class. With count 0 every row is ignored. */
template <class T> __device__ __forceinline__ float row_gradient(const EntropyJob<T> &j, const EntropyRow<T> &r)
{
    const float count = *j.count, dloss = j.dloss != nullptr ? *j.dloss : j.seed;
    return !r.known ? NAN : count > 0.0f ? dloss / count : 0.0f;
}

/* (softmax - what the target has of each class) gradient, times 1 - tanh^2 of a capped logit, rounded once. A thread reads
 * a piece before it writes it: dlogits may be logits. */
template <class T, bool SHAPED>
__device__ __forceinline__ void write_gradient(const EntropyJob<T> &j, const EntropyRow<T> &r, const uint4 *shared,
                                               float lse)
{
    T *d = j.dlogits + r.row * j.stride;
    const float g = row_gradient(j, r);
    const bool capped = SHAPED && j.cap > 0.0f;
    const float each = SHAPED ? j.smoothing / (float)j.width * g : 0.0f, own = (1.0f - j.smoothing) * g + each;
    walk_row(j, r, shared, j.kept, T{}, [&](int64_t, int64_t first, const uint4 &raw) {
        float x[pack_elements<T>];
        piece_floats<T>(raw, x);
#pragma unroll
        for (int i = 0; i < pack_elements<T>; i++) {
            const float t = capped ? tanhf(x[i] / j.cap) : 0.0f;
            const float p = __expf((capped ? j.cap * t : x[i]) - lse);
            if constexpr (SHAPED)
                x[i] = fmaf(p, g, first + i == r.target ? -own : -each);
            else
                x[i] = first + i == r.target ? fmaf(p, g, -g) : __fmul_rn(p, g);
            if (capped) x[i] *= fmaf(-t, t, 1.0f);
        }
        store_piece(d, first, j.width, j.aligned, x);
    });
}

/* The gradient of an ignored row, whatever its logits are. */
template <class T> __device__ __forceinline__ void clear_gradient(const EntropyJob<T> &j, const EntropyRow<T> &r)
{
    const float zero[pack_elements<T>] = {};
    for (int64_t piece = threadIdx.x; piece < r.pieces; piece += blockDim.x)
        store_piece(j.dlogits + r.row * j.stride, piece_begin(r, piece), j.width, j.aligned, zero);
}

/* ---- kernels: block r has row r ---- */

template <class T, bool SHAPED> __global__ void __launch_bounds__(MOST_THREADS) entropy_rows(const EntropyJob<T> j)
{
    const EntropyRow<T> r = open_row(j);
    const RowSums sums = sum_row<T, SHAPED>(j, r, nullptr);
    if (threadIdx.x != 0) return;
    j.lse[r.row] = sums.lse;
    j.losses[r.row] = row_loss(j, r, read_target<T, SHAPED>(j, r), sums);
}

template <class T, bool SHAPED> __global__ void __launch_bounds__(MOST_THREADS) entropy_gradient(const EntropyJob<T> j)
{
    const EntropyRow<T> r = open_row(j);
    if (r.ignored)
        clear_gradient(j, r);
    else
        write_gradient<T, SHAPED>(j, r, nullptr, j.lse_in[r.row]);
}

/* Loss and gradient in one: what fits of the row is kept in between, the rest is read again. */
template <class T, bool SHAPED> __global__ void __launch_bounds__(MOST_THREADS) entropy_chunk(const EntropyJob<T> j)
{
    SL_DYNAMIC_SHARED(uint4, shared);
    const EntropyRow<T> r = open_row(j);
    const float target_logit = read_target<T, SHAPED>(j, r); /* before it is overwritten */
    const RowSums sums = r.ignored ? RowSums{ 0.0f, 0.0f } : sum_row<T, SHAPED>(j, r, shared);
    if (threadIdx.x == 0) j.losses[r.row] = row_loss(j, r, target_logit, sums);
    if (j.dlogits == nullptr) return;
    __syncthreads(); /* every thread has read the target's logit */
    if (r.ignored)
        clear_gradient(j, r);
    else
        write_gradient<T, SHAPED>(j, r, shared, sums.lse);
}

/* Threads of a row: about four pieces each. */
unsigned row_threads(int64_t pieces)
{
    unsigned threads = 32;
    while (threads < MOST_THREADS && (int64_t)threads * 4 < pieces) threads *= 2;
    return threads;
}

template <class T> int64_t most_pieces(int64_t width)
{
    return width / pack_elements<T> + 2;
}

/* ---- losses of rows ---- */

/* Sum over a block of SUM_THREADS, by a tree; every thread gets it. */
template <class V> __device__ __forceinline__ V sum_block(V x)
{
    __shared__ V part[SUM_THREADS];
    __syncthreads();
    part[threadIdx.x] = x;
    for (unsigned half = SUM_THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
    }
    __syncthreads();
    return part[0];
}

__device__ __forceinline__ double sum_losses(const float *losses, int64_t rows)
{
    double sum = 0.0;
#pragma unroll 8
    for (int64_t row = threadIdx.x; row < rows; row += SUM_THREADS) sum += (double)losses[row];
    return sum_block(sum);
}

__device__ __forceinline__ long long sum_targets(const int32_t *targets, int64_t rows, int32_t ignore_index)
{
    long long count = 0;
#pragma unroll 8
    for (int64_t row = threadIdx.x; row < rows; row += SUM_THREADS) count += targets[row] != ignore_index;
    return sum_block(count);
}

__global__ void __launch_bounds__(SUM_THREADS) mean_of_rows(const float *losses, const int32_t *targets, int64_t rows,
                                                            int32_t ignore_index, float *loss, float *count)
{
    const double sum = sum_losses(losses, rows);
    const long long counted = sum_targets(targets, rows, ignore_index);
    if (threadIdx.x != 0) return;
    *loss = counted > 0 ? (float)(sum / (double)counted) : 0.0f;
    *count = (float)counted;
}

__global__ void __launch_bounds__(SUM_THREADS)
    count_rows(const int32_t *targets, int64_t rows, int32_t ignore_index, float *count)
{
    const long long counted = sum_targets(targets, rows, ignore_index);
    if (threadIdx.x == 0) *count = (float)counted;
}

__global__ void __launch_bounds__(SUM_THREADS)
    mean_of_counted(const float *losses, int64_t rows, const float *count, float *loss)
{
    const double sum = sum_losses(losses, rows);
    if (threadIdx.x == 0) *loss = *count > 0.0f ? (float)(sum / (double)*count) : 0.0f;
}

/* ---- gradients that forward left, scaled ---- */

template <class T, class O> struct ScaleJob {
    const T *from;
    O *to;
    const float *dloss;
    float seed;
    int64_t elements;
    bool add, aligned;
};

/* to (+)= from * (dloss / seed), eight elements at a time. Both are 0 of a micro-batch without targets. */
template <class T, class O> __global__ void __launch_bounds__(SCALE_THREADS) scale_saved(const ScaleJob<T, O> j)
{
    constexpr int N = 8;
    const float dloss = *j.dloss, factor = dloss == j.seed ? 1.0f : dloss / j.seed;
    const int64_t stride = (int64_t)gridDim.x * SCALE_THREADS * N;
    for (int64_t at = ((int64_t)blockIdx.x * SCALE_THREADS + threadIdx.x) * N; at < j.elements; at += stride) {
        if (j.aligned && at + N <= j.elements) {
            float x[N];
            load_floats<T, N>(j.from + at, x);
#pragma unroll
            for (int i = 0; i < N; i++) x[i] = __fmul_rn(x[i], factor);
            put_or_add_floats<O, N>(j.to + at, x, j.add);
        } else {
            for (int64_t i = at; i < min(at + N, j.elements); i++)
                put_or_add(j.to + i, __fmul_rn(to_float(j.from[i]), factor), j.add);
        }
    }
}

/* Output `output` from the input of the same number, the gradient of the loss, input `dloss`, not counted. */
sluice_status scale_output(const sl_cuda_args *a, int output, int dloss)
{
    const sl_cuda_tensor *from = &a->in[output < dloss ? output : output + 1], *to = &a->out[output];
    if (a->output_count <= output || to->data == nullptr) return SLUICE_OK;
    return sl_dispatch(from->form, [&](auto element) {
        return sl_dispatch(to->form, [&](auto wide) {
            using T = decltype(element);
            using O = decltype(wide);
            ScaleJob<T, O> j = {};
            j.from = (const T *)from->data;
            j.to = (O *)to->data;
            j.dloss = (const float *)a->in[dloss].data;
            j.seed = a->context->seed_gradient;
            j.elements = to->elements;
            j.add = accumulates(a, output);
            j.aligned = aligned_for(j.from, 8 * sizeof(T)) && aligned_for(j.to, 8 * sizeof(O));
            SL_LAUNCH((scale_saved<T, O>), dim3(sl_grid(a, j.elements, 8 * SCALE_THREADS, 8)), dim3(SCALE_THREADS), 0,
                      a->stream, j);
            return sl_launched(a);
        });
    });
}

template <class T> EntropyJob<T> make_job(const sl_cuda_args *a)
{
    EntropyJob<T> j = {};
    j.logits = (const T *)a->in[0].data;
    j.targets = (const int32_t *)a->in[1].data;
    j.ignore_index = a->attrs->cross_entropy.ignore_index;
    j.cap = a->attrs->cross_entropy.softcap;
    j.smoothing = a->attrs->cross_entropy.smoothing;
    j.width = j.stride = row_width(&a->in[0]);
    j.rows = a->in[0].elements / j.width;
    return j;
}

template <class T> bool is_shaped(const EntropyJob<T> &j)
{
    return j.cap > 0.0f || j.smoothing > 0.0f;
}

template <class T> using entropy_kernel = void (*)(EntropyJob<T>);

template <class T> void launch_rows(const sl_cuda_args *a, entropy_kernel<T> kernel, const EntropyJob<T> &j)
{
    SL_LAUNCH(kernel, dim3((unsigned)j.rows), dim3(row_threads(most_pieces<T>(j.width))), 0, a->stream, j);
}

template <class T> void launch_chunk(void *stream, EntropyJob<T> j)
{
    const int64_t pieces = most_pieces<T>(j.width), room = KEPT_BYTES / (int64_t)sizeof(uint4);
    j.kept = j.dlogits == nullptr ? 0 : pieces < room ? pieces : room;
    const size_t shared = (size_t)j.kept * sizeof(uint4);
    const entropy_kernel<T> kernel = is_shaped(j) ? entropy_chunk<T, true> : entropy_chunk<T, false>;
    SL_ALLOW_SHARED(kernel, KEPT_BYTES);
    SL_LAUNCH(kernel, dim3((unsigned)j.rows), dim3(row_threads(pieces)), shared, stream, j);
}
} // namespace SL_KERNELS

sluice_status sl_cuda_cross_entropy(const sl_cuda_args *a)
{
    SL_TRY(sl_check_workspace(SL_OP_CROSS_ENTROPY, a));
    return sl_dispatch(sl_cuda_type(SL_OP_CROSS_ENTROPY, a), [&](auto element) {
        using T = decltype(element);
        EntropyJob<T> j = make_job<T>(a);
        j.aligned = aligned_for(j.logits, 16);
        j.lse = (float *)a->out[1].data;
        j.losses = (float *)a->workspace;
        launch_rows<T>(a, is_shaped(j) ? entropy_rows<T, true> : entropy_rows<T, false>, j);
        SL_LAUNCH(mean_of_rows, dim3(1), dim3(SUM_THREADS), 0, a->stream, j.losses, j.targets, j.rows, j.ignore_index,
                  (float *)a->out[0].data, (float *)a->out[2].data);
        return sl_launched(a);
    });
}

sluice_status sl_cuda_cross_entropy_grad(const sl_cuda_args *a)
{
    return sl_dispatch(sl_cuda_type(SL_OP_CROSS_ENTROPY_GRAD, a), [&](auto element) {
        using T = decltype(element);
        EntropyJob<T> j = make_job<T>(a);
        j.lse_in = (const float *)a->in[2].data;
        j.count = (const float *)a->in[3].data;
        j.dloss = (const float *)a->in[4].data;
        j.dlogits = (T *)a->out[0].data;
        j.aligned = aligned_for(j.logits, 16) && aligned_for(j.dlogits, 16);
        launch_rows<T>(a, is_shaped(j) ? entropy_gradient<T, true> : entropy_gradient<T, false>, j);
        return sl_launched(a);
    });
}

sluice_status sl_cuda_linear_cross_entropy_grad(const sl_cuda_args *a)
{
    for (int i = 0; i < a->output_count; i++) SL_TRY(scale_output(a, i, 2));
    return SLUICE_OK;
}

sluice_status sl_cuda_ctc_loss_grad(const sl_cuda_args *a)
{
    return scale_output(a, 0, 1);
}

void sl_cuda_head_chunk(void *stream, sl_form form, void *logits, int64_t stride, const int32_t *targets, int64_t rows,
                        int64_t classes, const sl_attrs *attrs, float seed, const float *count, bool gradient,
                        float *losses)
{
    (void)sl_dispatch(form, [&](auto element) {
        using T = decltype(element);
        EntropyJob<T> j = {};
        j.logits = (const T *)logits;
        j.dlogits = gradient ? (T *)logits : nullptr;
        j.targets = targets;
        j.rows = rows;
        j.width = classes;
        j.stride = stride;
        j.ignore_index = attrs->cross_entropy.ignore_index;
        j.cap = attrs->cross_entropy.softcap;
        j.smoothing = attrs->cross_entropy.smoothing;
        j.aligned = aligned_for(logits, 16);
        j.count = count;
        j.seed = seed;
        j.losses = losses;
        launch_chunk<T>(stream, j);
        return SLUICE_OK;
    });
}

void sl_cuda_count_targets(void *stream, const int32_t *targets, int64_t rows, int32_t ignore_index, float *count)
{
    SL_LAUNCH(count_rows, dim3(1), dim3(SUM_THREADS), 0, stream, targets, rows, ignore_index, count);
}

void sl_cuda_mean_loss(void *stream, const float *losses, int64_t rows, const float *count, float *loss)
{
    SL_LAUNCH(mean_of_counted, dim3(1), dim3(SUM_THREADS), 0, stream, losses, rows, count, loss);
}
