/* shard.h: how a run of elements is cut over ranks. Pure arithmetic, shared by the plan, which decides it, and by the
 * collectives and checkpoints, which follow it.
 *
 * First come `rounds` rounds in which every rank in turn gets `block` elements; then the rest in one contiguous range
 * per rank. A rank's shard is the concatenation of its ranges in increasing order. Of a layer's elements, every cut but
 * the end is at a multiple of SL_CUT_ELEMENTS, so that no norm leaf is split (exact rule 3). */
#ifndef SL_CORE_SHARD_H
#define SL_CORE_SHARD_H

#include <stdint.h>

typedef struct sl_shards {
    int rank_count;
    int64_t elements;
    int64_t block, rounds; /* rounds 0: the rest is all */
    /* rank r has [bounds[r], bounds[r + 1]) of the rest; rank_count + 1 entries, from block * rounds * rank_count to
     * elements. Borrowed. */
    const int64_t *bounds;
} sl_shards;

typedef struct sl_range {
    int64_t first, count; /* elements of the run */
} sl_range;

int64_t sl_shard_elements(const sl_shards *s, int rank);
/* How many ranges a rank's shard consists of; empty ones are not counted. */
int64_t sl_shard_range_count(const sl_shards *s, int rank);
/* Range `index` of a rank's shard, in increasing order. */
sl_range sl_shard_range(const sl_shards *s, int rank, int64_t index);
/* Index of the first range of a rank's shard that ends after `element`; the number of ranges where none does. */
int64_t sl_shard_range_at(const sl_shards *s, int rank, int64_t element);
/* Where range `index` begins in the rank's shard. */
int64_t sl_shard_offset(const sl_shards *s, int64_t index);
/* What two ranges share; count 0: nothing. */
sl_range sl_range_common(sl_range a, sl_range b);

#endif
