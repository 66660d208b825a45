/* shard_walk.c: see shard_walk.h. Pure arithmetic on cuts. */
#include "comm/shard_walk.h"

sl_shard_walk sl_shard_walk_make(const sl_collective *collective, int owner, uint64_t limit)
{
    return (sl_shard_walk){ .collective = collective, .owner = owner, .limit = limit };
}

/* Steps over finished ranges and parts; false at the end. On true, *range is the span of the current range. */
static bool find_range(sl_shard_walk *w, sl_span *range)
{
    while (w->part < w->collective->part_count) {
        const sl_comm_part *part = &w->collective->parts[w->part];
        if (w->range == sl_shard_range_count(part->shards, w->owner)) {
            w->part++, w->range = 0, w->in_shard = 0;
            continue;
        }
        *range = sl_comm_bytes(part, part->whole, sl_shard_range(part->shards, w->owner, w->range));
        if (w->in_range < range->bytes) return true;
        w->range++, w->in_range = 0, w->in_shard += range->bytes;
    }
    return false;
}

bool sl_shard_walk_next(sl_shard_walk *w, sl_shard_piece *out)
{
    sl_span range;
    if (!find_range(w, &range)) return false;
    uint64_t left = range.bytes - w->in_range, bytes = left < w->limit ? left : w->limit;
    out->part = &w->collective->parts[w->part];
    out->whole = (sl_span){ range.tier, range.offset + w->in_range, bytes };
    uint64_t unit = out->part->unit, shard_unit = sl_comm_shard_unit(w->collective->kind, out->part);
    out->in_shard = (w->in_shard + w->in_range) / unit * shard_unit;
    out->shard_bytes = bytes / unit * shard_unit;
    w->in_range += bytes;
    return true;
}

sl_span sl_shard_piece_in_shard(const sl_shard_piece *piece)
{
    const sl_span shard = piece->part->shard;
    return (sl_span){ shard.tier, shard.offset + piece->in_shard, piece->shard_bytes };
}
