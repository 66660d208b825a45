/* gather.h: values that lie on several ranks, read by one.
 *
 * Rank 0 does the work (writing a file, hashing) and asks for the values as it goes; the others answer until it is
 * through. Between open and close:
 *
 *     rank 0     sl_gather_read, as often as it likes
 *     others     sl_gather_serve, once
 *
 * A rank that cannot read what it owns goes on answering, so that nobody waits; its failure comes out of close. What
 * was read is worth something only after that. */
#ifndef SL_CHECKPOINT_GATHER_H
#define SL_CHECKPOINT_GATHER_H

#include "checkpoint/staging.h"
#include "checkpoint/state.h"

#define SL_CHUNK_ELEMENTS ((uint64_t)(SL_CHECKPOINT_CHUNK / sizeof(float)))

typedef struct sl_gather {
    const sl_state *state;     /* borrowed */
    sl_chunk_staging chunk;    /* for the values that are read or served */
    sl_chunk_staging received; /* rank 0 of several: what the ranks sent, in rank order */
    size_t *lengths;           /* owned; bytes each rank sends */
    sluice_status fault;       /* of this rank's first failed reading */
} sl_gather;

sluice_status sl_gather_open(sl_gather *g, const sl_state *state);
/* Elements [first, first+count) of a tensor, at most SL_CHUNK_ELEMENTS, wherever they are. */
sluice_status sl_gather_read(sl_gather *g, int64_t tensor, uint64_t first, uint64_t count, float *out);
sluice_status sl_gather_serve(sl_gather *g);
/* Ends the readings, frees all, and agrees on how it went; `mine` is how it went here. */
sluice_status sl_gather_close(sl_gather *g, sluice_status mine);

#endif
