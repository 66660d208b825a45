/* local_move.c: the bytes of a collective, read from where they lie in the peers' arenas.
 *
 * Everybody pulls: a rank writes its own arena only. A sum is one IEEE addition per rank and element, in rank order,
 * whatever the blocking, so its bits depend on the contributions alone (exact rule 1). */
#include <string.h>

#include "comm/local.h"
#include "comm/sums.h"

/* Elements that stay in the first-level cache while further ranks are added to them: 16 KiB. */
#define BLOCK 4096
/* Sums of this many elements or more, 4 MiB, do not stay in a core's caches. */
#define PAST_ELEMENTS ((int64_t)1 << 20)

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

/* Contributions of all ranks to one range; offset is where it lies in each source. */
typedef struct addends {
    int ranks;
    const unsigned char *const *sources;
    uint64_t offset;
} addends;

/* Elements [i, i + count) of the range, a block of it. */
static void add_block(sl_addition how, const addends *a, float *to, int64_t i, int64_t count)
{
    uint64_t at = a->offset + (uint64_t)i * sl_comm_form_bytes(how.form);
    for (int r = 0; r < a->ranks; r += SL_SUM_FAN) {
        const unsigned char *from[SL_SUM_FAN];
        int few = a->ranks - r < SL_SUM_FAN ? a->ranks - r : SL_SUM_FAN;
        for (int k = 0; k < few; k++) from[k] = a->sources[r + k] + at;
        sl_local_add(&how, to, from, few, count);
        how.first = false;
    }
}

/* Whether a range's sums go past the caches: one pass writes them, and they are more than a cache keeps. */
static bool goes_past(const float *to, int ranks, bool first, int64_t n)
{
    return first && ranks <= SL_SUM_FAN && n >= PAST_ELEMENTS && (uintptr_t)to % sizeof(sl_floats) == 0;
}

/* Sums that are kept in f32. */
static void reduce_range(sl_addition how, const addends *a, float *to, int64_t n)
{
    how.past = goes_past(to, a->ranks, how.first, n);
    for (int64_t i = 0; i < n; i += BLOCK) add_block(how, a, to + i, i, n - i < BLOCK ? n - i : BLOCK);
#if defined(__x86_64__)
    if (how.past) _mm_sfence(); /* before anybody is told */
#endif
}

/* Sums that are kept in the contributions' 16 bits, or take the place of this rank's contribution: they are made aside,
 * in f32, until all ranks are in them. */
static void reduce_aside(sl_addition how, const addends *a, unsigned char *to, int64_t n)
{
    float sums[BLOCK];
    for (int64_t i = 0; i < n; i += BLOCK) {
        int64_t count = n - i < BLOCK ? n - i : BLOCK;
        add_block(how, a, sums, i, count);
        if (how.form == SL_FORM_F32)
            memcpy(to + (uint64_t)i * sizeof *sums, sums, (size_t)count * sizeof *sums);
        else
            sl_local_round(&how, to + 2 * i, sums, count);
    }
}

void sl_move_reduce(const sl_comm_part *part, int rank, const unsigned char *const *sources, unsigned char *sum,
                    bool first, bool wide)
{
    sl_addition how = { .form = part->form, .first = first, .wide = wide };
    addends a = { .ranks = part->shards->rank_count, .sources = sources };
    int64_t ranges = sl_shard_range_count(part->shards, rank);
    for (int64_t i = 0; i < ranges; i++) {
        sl_range range = sl_shard_range(part->shards, rank, i);
        a.offset = (uint64_t)range.first * part->unit;
        if (part->in_place)
            reduce_aside(how, &a, sum + a.offset, range.count);
        else if (part->sum_form != SL_FORM_F32)
            reduce_aside(how, &a, sum, range.count);
        else
            reduce_range(how, &a, (float *)(void *)sum, range.count);
        if (!part->in_place) sum += (uint64_t)range.count * sl_comm_form_bytes(part->sum_form);
    }
}
