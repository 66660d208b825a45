/* shard_walk.h: the pieces of one rank's shards, over all parts of a collective, in the order they travel.
 *
 * Sender and receiver walk the same cuts with the same limit and so agree on every message without asking. */
#ifndef SL_COMM_SHARD_WALK_H
#define SL_COMM_SHARD_WALK_H

#include "comm/comm.h"

typedef struct sl_shard_walk {
    const sl_collective *collective; /* borrowed */
    int owner;                       /* whose shards are walked */
    uint64_t limit;                  /* bytes of the longest piece; a multiple of every unit */
    /* the next piece */
    int part;
    int64_t range;
    uint64_t in_range; /* bytes of the range before it */
    uint64_t in_shard; /* bytes of the part's ranges before it, counted as in the whole */
} sl_shard_walk;

typedef struct sl_shard_piece {
    const sl_comm_part *part;
    sl_span whole; /* the piece, in the part's whole */
    /* Where it begins in the owner's shard, and its length there: not that of `whole` where sums are wider than
     * contributions. */
    uint64_t in_shard, shard_bytes;
} sl_shard_piece;

sl_shard_walk sl_shard_walk_make(const sl_collective *collective, int owner, uint64_t limit);
/* False after the last piece. Pieces are never empty. */
bool sl_shard_walk_next(sl_shard_walk *w, sl_shard_piece *out);
/* The piece as it lies in this rank's shard. Only for the owner, and where there is a shard. */
sl_span sl_shard_piece_in_shard(const sl_shard_piece *piece);

#endif
