/* embedding.cu: rows of a table by index, and the gradient of the table.
 *
 * The gradient adds one row of dy per token, and several tokens may share a table row. Tokens are sorted by id, stably,
 * so that those of one id stand together in order of position (embedding_size.h). Then each run of equal ids is walked
 * by one warp per 128 columns, which adds up in registers in that order and writes the row once. Tables are large and
 * most rows have no token: where nothing is accumulated they are cleared beforehand as a whole.
 *
 * Readers of data check ids; an id outside the table that comes here all the same yields NaN, and touches no row of the
 * gradient. */
#include "backend/cuda/elem.cuh"
#include "backend/cuda/embedding_size.h"

inline namespace SL_KERNELS
{
constexpr int COPY_THREADS = 256;
constexpr int SORT_THREADS = SL_SORT_WARPS * 32;
constexpr int SUM_WARPS = 8;
constexpr int SUM_PACK = 4;                /* columns of a lane */
constexpr int SUM_COLUMNS = 32 * SUM_PACK; /* of a warp */
constexpr int IN_FLIGHT = 16;              /* rows of dy asked for before the first is added */

/* ---- forward ---- */

template <class T> struct GatherJob {
    const int32_t *ids;
    const T *table;
    T *y;
    int64_t tokens, vocabulary, width;
};

/* A thread moves N elements; a row is walked by blockDim.x threads, blockDim.y tokens at a time. */
template <class T, int N> __global__ void __launch_bounds__(COPY_THREADS) gather_rows(const GatherJob<T> j)
{
    const int64_t token = (int64_t)blockIdx.x * blockDim.y + threadIdx.y;
    if (token >= j.tokens) return;
    const int32_t id = j.ids[token];
    const bool known = id >= 0 && id < j.vocabulary;
    T *y = j.y + token * j.width;
    for (int64_t column = threadIdx.x * N; column < j.width; column += blockDim.x * N) {
        Pack<T, N> pack;
#pragma unroll
        for (int i = 0; i < N; i++) pack.v[i] = from_float<T>(NAN);
        if (known) pack = load_pack<T, N>(j.table + id * j.width + column);
        *reinterpret_cast<Pack<T, N> *>(y + column) = pack;
    }
}

template <class T, int N> void launch_gather(const sl_cuda_args *a, const GatherJob<T> &j)
{
    unsigned across = 32;
    while (across < COPY_THREADS && across * N < j.width) across *= 2;
    const unsigned down = COPY_THREADS / across;
    const unsigned blocks = (unsigned)((j.tokens + down - 1) / down);
    SL_LAUNCH((gather_rows<T, N>), dim3(blocks), dim3(across, down), 0, a->stream, j);
}

/* ---- sorting tokens ---- */

/* Tokens in the order of a pass. The first pass reads ids, where position is the index. */
struct Tokens {
    const int32_t *ids; /* nullptr: not the first pass */
    uint32_t *keys, *positions;
};

struct SortJob {
    Tokens from, to;
    uint32_t *counts; /* [bins, tiles]: tokens with that digit in that tile; then how many there are in tiles before */
    uint32_t *totals; /* [bins] */
    int64_t tokens, tiles;
    uint32_t vocabulary;
    int shift, bits; /* the digit of a pass */
};

__device__ __forceinline__ uint32_t token_key(const SortJob &j, int64_t i)
{
    if (j.from.ids == nullptr) return j.from.keys[i];
    const uint32_t id = (uint32_t)j.from.ids[i];
    return id < j.vocabulary ? id : j.vocabulary;
}

__device__ __forceinline__ uint32_t token_position(const SortJob &j, int64_t i)
{
    return j.from.ids == nullptr ? j.from.positions[i] : (uint32_t)i;
}

__device__ __forceinline__ unsigned digit_of(const SortJob &j, uint32_t key)
{
    return key >> j.shift & ((1u << j.bits) - 1);
}

/* Which token lane `lane` of a warp has in a round: a warp's tokens are consecutive, so order is by warp, round,
 * lane. */
__device__ __forceinline__ int64_t token_of(int round)
{
    const int64_t warp = (int64_t)blockIdx.x * SL_SORT_WARPS + threadIdx.x / 32;
    return (warp * SL_SORT_ROUNDS + round) * 32 + threadIdx.x % 32;
}

/* Lanes of this warp with the same digit; lanes without a token have none in common with those that have one. */
__device__ __forceinline__ unsigned lanes_alike(const SortJob &j, unsigned digit, bool there)
{
    unsigned alike = __ballot_sync(0xffffffffu, there);
    if (!there) alike = ~alike;
    for (int bit = 0; bit < j.bits; bit++) {
        const unsigned votes = __ballot_sync(0xffffffffu, digit >> bit & 1);
        alike &= (digit >> bit & 1) != 0 ? votes : ~votes;
    }
    return alike;
}

/* How many tokens of each warp have each digit. */
__device__ __forceinline__ void count_digits(const SortJob &j, uint32_t (*bins)[SL_SORT_BINS])
{
    for (int digit = threadIdx.x; digit < SL_SORT_BINS; digit += SORT_THREADS)
        for (int w = 0; w < SL_SORT_WARPS; w++) bins[w][digit] = 0;
    __syncthreads();
    uint32_t *mine = bins[threadIdx.x / 32];
    for (int round = 0; round < SL_SORT_ROUNDS; round++) {
        const int64_t i = token_of(round);
        const bool there = i < j.tokens;
        const unsigned digit = there ? digit_of(j, token_key(j, i)) : 0;
        const unsigned alike = lanes_alike(j, digit, there);
        if (there && __ffs((int)alike) - 1 == (int)(threadIdx.x % 32)) mine[digit] += (uint32_t)__popc(alike);
        __syncwarp();
    }
    __syncthreads();
}

__global__ void __launch_bounds__(SORT_THREADS) count_tile(const SortJob j)
{
    __shared__ uint32_t bins[SL_SORT_WARPS][SL_SORT_BINS];
    count_digits(j, bins);
    for (int digit = threadIdx.x; digit < 1 << j.bits; digit += SORT_THREADS) {
        uint32_t sum = 0;
        for (int w = 0; w < SL_SORT_WARPS; w++) sum += bins[w][digit];
        j.counts[digit * j.tiles + blockIdx.x] = sum;
    }
}

/* The sum of x over the threads before this one, in a block of SORT_THREADS; *total: over all. */
__device__ __forceinline__ uint32_t sum_before(uint32_t x, uint32_t *total)
{
    __shared__ uint32_t part[SL_SORT_WARPS];
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    uint32_t sum = x;
    for (unsigned d = 1; d < 32; d *= 2) {
        const uint32_t before = __shfl_up_sync(0xffffffffu, sum, d);
        if (lane >= d) sum += before;
    }
    __syncthreads();
    if (lane == 31) part[warp] = sum;
    __syncthreads();
    uint32_t result = sum - x, all = 0;
    for (unsigned w = 0; w < SL_SORT_WARPS; w++) {
        if (w < warp) result += part[w];
        all += part[w];
    }
    *total = all;
    return result;
}

/* Block d: counts of digit d become how many there are in tiles before. */
__global__ void __launch_bounds__(SORT_THREADS) sum_tiles(const SortJob j)
{
    uint32_t *counts = j.counts + blockIdx.x * j.tiles, done = 0;
    for (int64_t begin = 0; begin < j.tiles; begin += SORT_THREADS) {
        const int64_t tile = begin + threadIdx.x;
        uint32_t total;
        const uint32_t before = sum_before(tile < j.tiles ? counts[tile] : 0, &total);
        if (tile < j.tiles) counts[tile] = done + before;
        done += total;
    }
    if (threadIdx.x == 0) j.totals[blockIdx.x] = done;
}

/* bins[w][d] from counts to where the first token of warp w with digit d goes: behind all smaller digits, behind the
 * same digit in tiles and warps before. */
__device__ __forceinline__ void place_digits(const SortJob &j, uint32_t (*bins)[SL_SORT_BINS])
{
    uint32_t smaller = 0;
    for (int begin = 0; begin < 1 << j.bits; begin += SORT_THREADS) {
        const int digit = begin + (int)threadIdx.x;
        const bool there = digit < 1 << j.bits;
        uint32_t total;
        uint32_t place = smaller + sum_before(there ? j.totals[digit] : 0, &total);
        smaller += total;
        if (!there) continue;
        place += j.counts[digit * j.tiles + blockIdx.x];
        for (int w = 0; w < SL_SORT_WARPS; w++) {
            const uint32_t count = bins[w][digit];
            bins[w][digit] = place;
            place += count;
        }
    }
    __syncthreads();
}

__global__ void __launch_bounds__(SORT_THREADS) move_tile(const SortJob j)
{
    __shared__ uint32_t bins[SL_SORT_WARPS][SL_SORT_BINS];
    count_digits(j, bins);
    place_digits(j, bins);
    uint32_t *mine = bins[threadIdx.x / 32];
    for (int round = 0; round < SL_SORT_ROUNDS; round++) {
        const int64_t i = token_of(round);
        const bool there = i < j.tokens;
        const uint32_t key = there ? token_key(j, i) : 0;
        const unsigned digit = digit_of(j, key), alike = lanes_alike(j, digit, there);
        const uint32_t place = mine[digit] + (uint32_t)__popc(alike & ((1u << threadIdx.x % 32) - 1));
        __syncwarp();
        if (there) {
            if (__ffs((int)alike) - 1 == (int)(threadIdx.x % 32)) mine[digit] += (uint32_t)__popc(alike);
            j.to.keys[place] = key;
            j.to.positions[place] = token_position(j, i);
        }
        __syncwarp();
    }
}

/* Queues the sort; returns where it ends: in memory that the workspace holds. */
Tokens sort_tokens(const sl_cuda_args *a, const sl_sort_cut &cut)
{
    uint32_t *w = (uint32_t *)a->workspace;
    Tokens copies[2] = { { nullptr, w, w + cut.tokens }, { nullptr, w + 2 * cut.tokens, w + 3 * cut.tokens } };
    SortJob j = {};
    j.counts = w + 4 * cut.tokens;
    j.totals = j.counts + SL_SORT_BINS * cut.tiles;
    j.tokens = cut.tokens;
    j.tiles = cut.tiles;
    j.vocabulary = (uint32_t)cut.vocabulary;
    j.bits = cut.bits;
    j.from = { (const int32_t *)a->in[0].data, nullptr, nullptr };
    for (int pass = 0; pass < cut.passes; pass++) {
        j.to = copies[pass % 2];
        j.shift = pass * cut.bits;
        SL_LAUNCH(count_tile, dim3((unsigned)cut.tiles), dim3(SORT_THREADS), 0, a->stream, j);
        SL_LAUNCH(sum_tiles, dim3(1u << cut.bits), dim3(SORT_THREADS), 0, a->stream, j);
        SL_LAUNCH(move_tile, dim3((unsigned)cut.tiles), dim3(SORT_THREADS), 0, a->stream, j);
        j.from = j.to;
    }
    return j.from;
}

/* ---- summing ---- */

template <class T, class O> struct TableJob {
    const uint32_t *keys, *positions; /* sorted */
    const T *dy;
    O *out;
    int64_t tokens, vocabulary, width;
    bool accumulate;
    bool out_aligned; /* to SUM_PACK elements, in every row; dy: ALIGNED */
};

/* SUM_PACK columns as they lie in memory: two registers for 16-bit types, four for f32. */
template <class T> using Columns = Pack<uint32_t, SUM_PACK * sizeof(T) / 4>;

template <class T> __device__ __forceinline__ float column_float(const Columns<T> &c, int i)
{
    return to_float(T{ (uint16_t)(c.v[i / 2] >> 16 * (i % 2)) });
}

template <> __device__ __forceinline__ float column_float<float>(const Columns<float> &c, int i)
{
    return __uint_as_float(c.v[i]);
}

/* As many of them as are `left`; the others are 0. */
template <class T> __device__ __forceinline__ Columns<T> load_columns(const T *p, int64_t left, bool aligned)
{
    if (aligned) return *reinterpret_cast<const Columns<T> *>(p);
    union {
        T elements[SUM_PACK];
        Columns<T> columns;
    } u;
#pragma unroll
    for (int i = 0; i < SUM_PACK; i++) u.elements[i] = i < left ? p[i] : T{};
    return u.columns;
}

/* Adds the rows of dy at `count` positions, one in each lane, in order of lanes. Their elements are all asked for
 * before the first is added. */
template <class T, class O, bool ALIGNED>
__device__ __forceinline__ void add_rows(const TableJob<T, O> &j, uint32_t position, int count, int64_t column,
                                         float (&sum)[SUM_PACK])
{
    for (int begin = 0; begin < count; begin += IN_FLIGHT) {
        Columns<T> rows[IN_FLIGHT];
#pragma unroll
        for (int k = 0; k < IN_FLIGHT; k++) {
            const int64_t row = __shfl_sync(0xffffffffu, position, begin + k);
            if (begin + k < count && column < j.width)
                rows[k] = load_columns(j.dy + row * j.width + column, j.width - column, ALIGNED);
        }
#pragma unroll
        for (int k = 0; k < IN_FLIGHT; k++)
            if (begin + k < count && column < j.width)
#pragma unroll
                for (int i = 0; i < SUM_PACK; i++) sum[i] += column_float<T>(rows[k], i);
    }
}

template <class T, class O>
__device__ __forceinline__ void write_columns(const TableJob<T, O> &j, O *out, int64_t left,
                                              const float (&sum)[SUM_PACK])
{
    if (j.out_aligned) {
        store_floats<O, SUM_PACK>(out, sum);
        return;
    }
#pragma unroll
    for (int i = 0; i < SUM_PACK; i++)
        if (i < left) out[i] = from_float<O>(sum[i]);
}

/* What is there counts as the first term when accumulating. */
template <class T, class O>
__device__ __forceinline__ void begin_columns(const TableJob<T, O> &j, const O *out, int64_t left,
                                              float (&sum)[SUM_PACK])
{
    Columns<O> old = {};
    if (j.accumulate && left > 0) old = load_columns(out, left, j.out_aligned);
#pragma unroll
    for (int i = 0; i < SUM_PACK; i++) sum[i] = column_float<O>(old, i);
}

/* A warp per sorted token and 128 columns (blockIdx.y): works where a run of equal keys begins, else leaves. */
template <class T, class O, bool ALIGNED>
__global__ void __launch_bounds__(SUM_WARPS * 32) sum_runs(const TableJob<T, O> j)
{
    const int64_t begin = (int64_t)blockIdx.x * SUM_WARPS + threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    if (begin >= j.tokens) return;
    const uint32_t key = j.keys[begin];
    if (key >= j.vocabulary || (begin > 0 && j.keys[begin - 1] == key)) return;
    const int64_t column = (int64_t)blockIdx.y * SUM_COLUMNS + lane * SUM_PACK;
    O *out = j.out + key * j.width + column;
    float sum[SUM_PACK];
    begin_columns(j, out, j.width - column, sum);
    for (int64_t at = begin, count = 32; count == 32; at += 32) {
        const bool mine = at + lane < j.tokens && j.keys[at + lane] == key;
        const uint32_t position = mine ? j.positions[at + lane] : 0;
        count = __popc(__ballot_sync(0xffffffffu, mine)); /* equal keys stand together */
        add_rows<T, O, ALIGNED>(j, position, (int)count, column, sum);
    }
    if (column < j.width) write_columns(j, out, j.width - column, sum);
}

template <class T, class O> void launch_sum(const sl_cuda_args *a, const sl_sort_cut &cut, const Tokens &sorted)
{
    TableJob<T, O> j = {};
    j.keys = sorted.keys;
    j.positions = sorted.positions;
    j.dy = (const T *)a->in[1].data;
    j.out = (O *)a->out[0].data;
    j.tokens = cut.tokens;
    j.vocabulary = cut.vocabulary;
    j.width = row_width(&a->out[0]);
    j.accumulate = accumulates(a, 0);
    j.out_aligned = j.width % SUM_PACK == 0 && aligned_for(j.out, SUM_PACK * sizeof(O));
    const dim3 grid((unsigned)((j.tokens + SUM_WARPS - 1) / SUM_WARPS),
                    (unsigned)((j.width + SUM_COLUMNS - 1) / SUM_COLUMNS));
    if (j.width % SUM_PACK == 0 && aligned_for(j.dy, SUM_PACK * sizeof(T)))
        SL_LAUNCH((sum_runs<T, O, true>), grid, dim3(SUM_WARPS * 32), 0, a->stream, j);
    else
        SL_LAUNCH((sum_runs<T, O, false>), grid, dim3(SUM_WARPS * 32), 0, a->stream, j);
}
} // namespace SL_KERNELS

sluice_status sl_cuda_embedding(const sl_cuda_args *a)
{
    return sl_dispatch(sl_cuda_type(SL_OP_EMBEDDING, a), [&](auto element) {
        using T = decltype(element);
        constexpr int N = pack_elements<T>;
        GatherJob<T> j = {};
        j.ids = (const int32_t *)a->in[0].data;
        j.table = (const T *)a->in[1].data;
        j.y = (T *)a->out[0].data;
        j.tokens = a->in[0].elements;
        j.vocabulary = a->in[1].shape->dim[0];
        j.width = row_width(&a->in[1]);
        if (j.width % N == 0 && aligned_for(j.table, 16) && aligned_for(j.y, 16))
            launch_gather<T, N>(a, j);
        else
            launch_gather<T, 1>(a, j);
        return sl_launched(a);
    });
}

sluice_status sl_cuda_embedding_grad(const sl_cuda_args *a)
{
    SL_TRY(sl_check_workspace(SL_OP_EMBEDDING_GRAD, a));
    const sl_sort_cut cut = sl_sort_cut_of(a);
    const Tokens sorted = sort_tokens(a, cut);
    return sl_dispatch(sl_cuda_type(SL_OP_EMBEDDING_GRAD, a), [&](auto element) {
        return sl_dispatch(a->out[0].form, [&](auto wide) {
            using T = decltype(element);
            using O = decltype(wide);
            if (!accumulates(a, 0))
                (void)cudaMemsetAsync(a->out[0].data, 0, (size_t)a->out[0].elements * sizeof(O),
                                      (cudaStream_t)a->stream);
            launch_sum<T, O>(a, cut, sorted);
            return sl_launched(a);
        });
    });
}
