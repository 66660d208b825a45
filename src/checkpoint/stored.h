/* stored.h: a checkpoint on disk as an sl_state of one rank, for reading. Every byte it gives was hashed first.
 *
 * A tensor's elements may lie in the files of many ranks, in pieces much smaller than a chunk, while only whole chunks
 * can be hashed. The chunks read last are kept, so that going through a tensor in order reads each about once. */
#ifndef SL_CHECKPOINT_STORED_H
#define SL_CHECKPOINT_STORED_H

#include "checkpoint/manifest.h"
#include "checkpoint/staging.h"

#define SL_STORED_CHUNKS 8

typedef struct sl_stored_chunk {
    int64_t file, index;      /* file -1: nothing in it */
    uint64_t used;            /* higher: later */
    sl_chunk_staging staging; /* taken with the first use */
} sl_stored_chunk;

typedef struct sl_stored {
    sl_state state;                   /* its user is this struct, which stays where it is */
    const sl_manifest *m;             /* borrowed */
    const char *folder;               /* borrowed */
    const sl_manifest_piece **pieces; /* owned; by tensor and element */
    sl_stored_chunk chunks[SL_STORED_CHUNKS];
    uint64_t uses;
    const int *stop; /* a request to stop ends a reading (core/stop.h); NULL after opening */
} sl_stored;

sluice_status sl_stored_open(sl_stored *s, const sl_manifest *m, const char *folder);
void sl_stored_close(sl_stored *s);

#endif
