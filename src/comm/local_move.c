/* local_move.c: the bytes of a collective, read from where they lie in the peers' arenas.
 *
 * Everybody pulls: a rank writes its own arena only. A sum is one IEEE addition per rank and element, in rank order,
 * whatever the blocking, so its bits depend on the contributions alone (exact rule 1). */
#include <string.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "comm/local.h"

/* Elements that stay in the first-level cache while further ranks are added to them: 16 KiB. */
#define BLOCK 4096
/* Sources added in one pass over the accumulator. */
#define FAN 4
/* Sums of this many elements or more, 4 MiB, do not stay in a core's caches. */
#define PAST_ELEMENTS ((int64_t)1 << 20)

/* Four lanes every 64-bit machine has; the additions are quicker than memory with them. */
typedef float lanes __attribute__((vector_size(16), aligned(4), may_alias));
#define LANES ((int64_t)(sizeof(lanes) / sizeof(float)))

uint64_t sl_part_shard_bytes(const sl_comm_part *part, int rank)
{
    uint64_t bytes = 0;
    int64_t ranges = sl_shard_range_count(part->shards, rank);
    for (int64_t i = 0; i < ranges; i++)
        bytes += sl_comm_bytes(part, part->whole, sl_shard_range(part->shards, rank, i)).bytes;
    return bytes;
}

uint64_t sl_part_whole_bytes(const sl_comm_part *part)
{
    return sl_comm_bytes(part, part->whole, (sl_range){ 0, part->shards->elements }).bytes;
}

/* ---- gather ---- */

/* Rank r's ranges, packed in its shard or at their places in its whole, to their places in ours. */
static void gather_from(const sl_comm_part *part, int r, const unsigned char *source, unsigned char *whole)
{
    const sl_span from_0 = { 0, 0, 0 };
    uint64_t packed = 0;
    int64_t ranges = sl_shard_range_count(part->shards, r);
    for (int64_t i = 0; i < ranges; i++) {
        sl_span at = sl_comm_bytes(part, from_0, sl_shard_range(part->shards, r, i));
        memcpy(whole + at.offset, source + (part->in_place ? at.offset : packed), at.bytes);
        packed += at.bytes;
    }
}

/* Starts behind the own rank, so that not all ranks read the same one at once. */
void sl_move_gather(const sl_comm_part *part, int rank, const unsigned char *const *sources, unsigned char *whole)
{
    int ranks = part->shards->rank_count;
    for (int i = 1; i <= ranks; i++) {
        int r = (rank + i) % ranks;
        if (r != rank || !part->in_place) gather_from(part, r, sources[r], whole);
    }
}

/* ---- reduce ---- */

#define AT(p)   (*(lanes *)(p))
#define FROM(p) (*(const lanes *)(p))

/* Past the caches: a large sum that is written once is not read again soon, and its lines need not be fetched. */
static inline void store(float *to, lanes value, bool past)
{
#if defined(__x86_64__)
    if (past) {
        _mm_stream_ps(to, (__m128)value);
        return;
    }
#endif
    (void)past;
    AT(to) = value;
}

/* to = from[0] + .. + from[count - 1] for `first`, else to + from[0] + .., left to right. `count` and `past` are
 * constants where this is inlined. */
static inline __attribute__((always_inline)) void add(float *restrict to, const float *const *from, int count,
                                                      bool first, bool past, int64_t n)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        lanes sum = FROM(from[0] + i);
        if (!first) sum = AT(to + i) + sum;
        for (int k = 1; k < count; k++) sum += FROM(from[k] + i);
        store(to + i, sum, past);
    }
    for (; i < n; i++) {
        float sum = first ? from[0][i] : to[i] + from[0][i];
        for (int k = 1; k < count; k++) sum += from[k][i];
        to[i] = sum;
    }
}

#define ADD_OF(count_)                                                                                                 \
    static void add_##count_(float *to, const float *const *from, bool first, bool past, int64_t n)                    \
    {                                                                                                                  \
        const float *f[FAN];                                                                                           \
        for (int k = 0; k < (count_); k++) f[k] = from[k];                                                             \
        if (past)                                                                                                      \
            add(to, f, count_, first, true, n);                                                                        \
        else                                                                                                           \
            add(to, f, count_, first, false, n);                                                                       \
    }
ADD_OF(1)
ADD_OF(2)
ADD_OF(3)
ADD_OF(4)

typedef void (*add_fn)(float *to, const float *const *from, bool first, bool past, int64_t n);
static const add_fn add_of[FAN + 1] = { NULL, add_1, add_2, add_3, add_4 };

/* Whether a range's sums go past the caches: one pass writes them, and they are more than a cache keeps. */
static bool goes_past(const float *to, int ranks, bool first, int64_t n)
{
    return first && ranks <= FAN && n >= PAST_ELEMENTS && (uintptr_t)to % sizeof(lanes) == 0;
}

/* One range: `offset` is where it lies in each source. */
static void reduce_range(float *to, const unsigned char *const *sources, uint64_t offset, int ranks, bool first,
                         int64_t n)
{
    bool past = goes_past(to, ranks, first, n);
    for (int64_t i = 0; i < n; i += BLOCK) {
        int64_t count = n - i < BLOCK ? n - i : BLOCK;
        for (int r = 0; r < ranks; r += FAN) {
            const float *from[FAN];
            int few = ranks - r < FAN ? ranks - r : FAN;
            for (int k = 0; k < few; k++) from[k] = (const float *)(const void *)(sources[r + k] + offset) + i;
            add_of[few](to + i, from, first && r == 0, past, count);
        }
    }
#if defined(__x86_64__)
    if (past) _mm_sfence(); /* before anybody is told */
#endif
}

void sl_move_reduce(const sl_comm_part *part, int rank, const unsigned char *const *sources, unsigned char *accumulator,
                    bool first)
{
    float *to = (float *)(void *)accumulator;
    int64_t ranges = sl_shard_range_count(part->shards, rank);
    for (int64_t i = 0; i < ranges; i++) {
        sl_range range = sl_shard_range(part->shards, rank, i);
        reduce_range(to, sources, (uint64_t)range.first * part->unit, part->shards->rank_count, first, range.count);
        to += range.count;
    }
}
