/* attention_cached.cu: attention of single tokens to the keys and values that their sequences have left behind.
 *
 * One block per row and query head. Its warps take blocks of sixteen keys in turn, counted from position 0: lane i has the
 * score of key i % 16 over every second dimension, so that a warp reads 32 neighbours of the cache; then lanes have columns
 * of the values. Each warp keeps a softmax of its own, and they are joined in order at the end: a row's result depends on
 * its sequence alone. Heads wider than STRIPE are done by stripes of columns, with the scores computed anew for each. */
#include "backend/cuda/elem.cuh"

inline namespace SL_KERNELS
{
constexpr int WARPS = 8, LANES = 32, THREADS = WARPS * LANES;
constexpr int STRIPE = 256; /* columns of a head that a block sums at a time */
constexpr int COLUMNS = STRIPE / LANES;
constexpr int KEYS = SL_CACHE_KEYS;
static_assert(KEYS * 2 == LANES && STRIPE == THREADS, "two dimensions of a block of keys are a warp's");

template <class T> struct CachedJob {
    const T *qkv;
    const int32_t *positions, *slots;
    T *out, *cache;
    int64_t rows, slot_count, kept, window;
    int heads, key_heads, width;
    float scale, softcap;
};

/* Keys of a slot's head; its values lie kept * width behind. */
template <class T> __device__ __forceinline__ T *keys_of(const CachedJob<T> &j, int64_t slot, int head)
{
    return j.cache + (slot * j.key_heads + head) * 2 * j.kept * j.width;
}

template <class T> __device__ __forceinline__ bool is_there(const CachedJob<T> &j, int64_t row)
{
    return j.slots[row] >= 0 && j.slots[row] < j.slot_count && j.positions[row] >= 0;
}

/* grid: rows, key heads */
template <class T> __global__ void __launch_bounds__(THREADS) keep_rows(const CachedJob<T> j)
{
    const int64_t row = blockIdx.x;
    const int head = blockIdx.y;
    if (!is_there(j, row)) return;
    const int64_t place = j.positions[row] % j.kept;
    const T *key = j.qkv + row * (j.heads + 2 * j.key_heads) * j.width + (int64_t)(j.heads + head) * j.width;
    const T *value = key + (int64_t)j.key_heads * j.width;
    T *keys = keys_of(j, j.slots[row], head), *values = keys + j.kept * j.width;
    for (int d = threadIdx.x; d < j.width; d += THREADS) {
        keys[(place / KEYS * j.width + d) * KEYS + place % KEYS] = key[d];
        values[place * j.width + d] = value[d];
    }
}

/* What a warp has summed. */
struct Running {
    float max, total;
    float sums[COLUMNS];
};

/* Lanes i and i + 16: the score of key `first` + i; -infinity where the query does not see it. */
template <class T>
__device__ __forceinline__ float score(const CachedJob<T> &j, const float *query, const T *keys, int64_t first,
                                       int64_t low, int64_t high)
{
    const int lane = threadIdx.x % LANES, half = lane / KEYS;
    const T *block = keys + first % j.kept * j.width + lane;
    float sum = 0.0f;
#pragma unroll 8
    for (int d = half; d < j.width; d += 2, block += LANES) sum = fmaf(to_float(*block), query[d], sum);
    sum += __shfl_xor_sync(0xffffffffu, sum, KEYS);
    sum *= j.scale;
    if (j.softcap > 0) sum = j.softcap * tanhf(sum / j.softcap);
    const int64_t key = first + lane % KEYS;
    return key < low || key > high ? -INFINITY : sum;
}

/* Takes the block of keys in: some of them are seen. */
template <class T>
__device__ __forceinline__ void take_block(const CachedJob<T> &j, Running &r, float s, const T *values, int64_t first,
                                           int64_t low, int64_t high, int column)
{
    const int lane = threadIdx.x % LANES;
    const float max = fmaxf(r.max, warp_max(s)), shrink = expf(r.max - max), weight = expf(s - max);
    const int from = (int)(low > first ? low - first : 0),
              to = (int)(high - first < KEYS - 1 ? high - first : KEYS - 1);
    r.total = r.total * shrink + 0.5f * warp_sum(weight); /* both halves of the warp have each key */
    r.max = max;
#pragma unroll
    for (int c = 0; c < COLUMNS; c++) r.sums[c] *= shrink;
    for (int i = from; i <= to; i++) {
        const float w = __shfl_sync(0xffffffffu, weight, i);
        const T *value = values + (first % j.kept + i) * j.width + column;
#pragma unroll
        for (int c = 0; c < COLUMNS; c++)
            if (column + c * LANES + lane < j.width) r.sums[c] = fmaf(to_float(value[c * LANES + lane]), w, r.sums[c]);
    }
}

/* One column of the stripe for each thread, from what the warps have, in their order. */
__device__ __forceinline__ float join(const float (&max)[WARPS], const float (&total)[WARPS],
                                      const float (&sums)[WARPS][STRIPE])
{
    float most = -INFINITY, all = 0.0f, sum = 0.0f;
    for (int w = 0; w < WARPS; w++) most = fmaxf(most, max[w]);
    for (int w = 0; w < WARPS; w++) {
        const float factor = max[w] == -INFINITY ? 0.0f : expf(max[w] - most);
        all = fmaf(total[w], factor, all);
        sum = fmaf(sums[w][threadIdx.x], factor, sum);
    }
    return sum / all;
}

/* grid: rows, query heads */
template <class T> __global__ void __launch_bounds__(THREADS) attend(const CachedJob<T> j)
{
    __shared__ float query[SL_MAX_HEAD_WIDTH], sums[WARPS][STRIPE], max[WARPS], total[WARPS];
    const int64_t row = blockIdx.x;
    const int head = blockIdx.y, warp = threadIdx.x / LANES, lane = threadIdx.x % LANES;
    const bool there = is_there(j, row);
    const T *from = j.qkv + row * (j.heads + 2 * j.key_heads) * j.width + (int64_t)head * j.width;
    T *out = j.out + (row * j.heads + head) * j.width;
    for (int d = threadIdx.x; d < j.width; d += THREADS) query[d] = to_float(from[d]);
    __syncthreads();
    const int64_t high = there ? j.positions[row] : -1;
    const int64_t low = j.window > 0 && high >= j.window ? high - j.window + 1 : 0;
    const T *keys = keys_of(j, there ? j.slots[row] : 0, head / (j.heads / j.key_heads));
    const T *values = keys + j.kept * j.width;
    for (int column = 0; column < j.width; column += STRIPE) {
        Running r = { -INFINITY, 0.0f, {} };
        for (int64_t block = low / KEYS + warp; block * KEYS <= high; block += WARPS) {
            const float s = score(j, query, keys, block * KEYS, low, high);
            take_block(j, r, s, values, block * KEYS, low, high, column);
        }
        if (lane == 0) max[warp] = r.max, total[warp] = r.total;
#pragma unroll
        for (int c = 0; c < COLUMNS; c++) sums[warp][c * LANES + lane] = r.sums[c];
        __syncthreads();
        if (column + (int)threadIdx.x < j.width)
            out[column + threadIdx.x] = from_float<T>(there ? join(max, total, sums) : NAN);
        __syncthreads();
    }
}

template <class T> CachedJob<T> make_job(const sl_cuda_args *a)
{
    CachedJob<T> j = {};
    j.qkv = (const T *)a->in[0].data;
    j.positions = (const int32_t *)a->in[1].data;
    j.slots = (const int32_t *)a->in[2].data;
    j.out = (T *)a->out[0].data;
    j.cache = (T *)a->out[1].data;
    j.rows = a->in[0].shape->dim[0];
    j.slot_count = a->attrs->cached.slots;
    j.kept = a->attrs->cached.kept;
    j.window = a->attrs->cached.window;
    j.heads = a->attrs->cached.heads;
    j.key_heads = a->attrs->cached.kv_heads;
    j.width = a->attrs->cached.head_width;
    j.scale = a->attrs->cached.scale;
    j.softcap = a->attrs->cached.softcap;
    return j;
}
} // namespace SL_KERNELS

extern "C" {

SL_CUDA_KERNEL(attention_cached)
{
    return sl_dispatch(sl_cuda_type(SL_OP_ATTENTION_CACHED, a), [&](auto element) {
        using T = decltype(element);
        const CachedJob<T> j = make_job<T>(a);
        SL_LAUNCH((keep_rows<T>), dim3((unsigned)j.rows, (unsigned)j.key_heads), dim3(THREADS), 0, a->stream, j);
        SL_LAUNCH((attend<T>), dim3((unsigned)j.rows, (unsigned)j.heads), dim3(THREADS), 0, a->stream, j);
        return sl_launched(a);
    });
}
}
