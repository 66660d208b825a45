/* shard.c: see shard.h. */
#include "core/shard.h"

static int64_t rest_of(const sl_shards *s, int rank)
{
    return s->bounds[rank + 1] - s->bounds[rank];
}

int64_t sl_shard_elements(const sl_shards *s, int rank)
{
    return s->rounds * s->block + rest_of(s, rank);
}

int64_t sl_shard_range_count(const sl_shards *s, int rank)
{
    return s->rounds + (rest_of(s, rank) > 0);
}

sl_range sl_shard_range(const sl_shards *s, int rank, int64_t index)
{
    if (index < s->rounds) return (sl_range){ (index * s->rank_count + rank) * s->block, s->block };
    return (sl_range){ s->bounds[rank], rest_of(s, rank) };
}

int64_t sl_shard_range_at(const sl_shards *s, int rank, int64_t element)
{
    int64_t round = s->rounds > 0 ? element / (s->block * s->rank_count) : 0;
    int64_t index = round < s->rounds ? round : s->rounds;
    int64_t ranges = sl_shard_range_count(s, rank);
    while (index < ranges) {
        sl_range r = sl_shard_range(s, rank, index);
        if (r.first + r.count > element) break;
        index++;
    }
    return index;
}

int64_t sl_shard_offset(const sl_shards *s, int64_t index)
{
    return (index < s->rounds ? index : s->rounds) * s->block;
}

sl_range sl_range_common(sl_range a, sl_range b)
{
    int64_t first = a.first > b.first ? a.first : b.first;
    int64_t a_end = a.first + a.count, b_end = b.first + b.count, end = a_end < b_end ? a_end : b_end;
    return (sl_range){ first, end > first ? end - first : 0 };
}
