/* checkpoint_verify.h: reads a checkpoint's data files against their checksums. */
#ifndef SL_CHECKPOINT_CHECKPOINT_VERIFY_H
#define SL_CHECKPOINT_CHECKPOINT_VERIFY_H

#include "checkpoint/manifest.h"
#include "checkpoint/staging.h"
#include "core/phase.h"
#include "core/thread.h"

/* A chunk of the file at hand that is to be read. */
typedef struct sl_data_chunk {
    int64_t index, first_piece; /* first_piece: the first that may reach into it */
    uint64_t begin, end;        /* bytes of the file */
} sl_data_chunk;

/* A walk through the data files in order, a few chunks at a time, each by a thread of its own. SLUICE_ERR_INPUT names file,
 * offset and tensor of the first fault. Set the first part, the rest zero. */
typedef struct sl_data_walk {
    const sl_manifest *m;
    const char *folder;
    /* Maps each tensor of the manifest to a tensor of `state`, or to -1; chunks without a mapped tensor are not read.
     * NULL: every chunk. */
    const int64_t *target;
    /* NULL: verifies sizes and checksums, of every share_count-th file and chunk that counts, beginning with `share`.
     * Otherwise: brings in the chunks that hold elements it wants, hashed before it sees a byte of them. */
    const sl_state *state;
    int share, share_count;
    const int *stop;       /* a request to stop (core/stop.h); NULL: none */
    sl_pool *pool;         /* borrowed; NULL: the caller's thread alone */
    sl_activity *activity; /* borrowed; told of the bytes read, times share_count; may be NULL */
    /* ---- the walk's own ---- */
    sl_pool *own_pool;                /* of one thread, where none is given */
    sl_data_chunk *batch;             /* owned; as many as there are threads */
    int64_t batch_count, batch_first; /* batch_first: the first task of a run */
    uint64_t bytes;                   /* read so far */
    sl_file file;                     /* the one at hand; path NULL: closed */
    int64_t index;                    /* of the file */
    int64_t next_chunk;               /* in it */
    int64_t next_piece;               /* first piece that may reach into the chunk at hand or a later one */
    int64_t counted;                  /* chunks that count, up to here */
} sl_data_walk;

/* The next chunks that are to be read; an sl_round_fn. */
sluice_status sl_data_walk_next(void *walk, bool *done);
void sl_data_walk_end(sl_data_walk *w); /* after success and failure alike */
/* Verifies everything, or what `target` maps, at once, on all CPUs. stop: see sl_data_walk. */
sluice_status sl_verify_data(const int *stop, const sl_manifest *m, const char *folder, const int64_t *target);

#endif
