/* nccl_world.h: what the files of the NCCL communicator share: nccl.c (the table, attaching), nccl_move.c
 * (collectives), nccl_watch.c (failing and waiting), nccl_api.c (the library).
 *
 * Two threads: the caller's queues collectives on the GPU and never waits for one to end; the watcher looks after those
 * that are under way. It never calls CUDA, which the caller may be inside of: the GPU tells its progress in words. */
#ifndef SL_COMM_NCCL_WORLD_H
#define SL_COMM_NCCL_WORLD_H

#include <pthread.h>
#include <stdatomic.h>

#include "comm/nccl_api.h"
#include "comm/nccl_comm.h"
#include "comm/shard_walk.h"

enum {
    SL_NCCL_PIECES = 256, /* most pieces of one rank that travel in one group */
    SL_NCCL_NOTES = 64,   /* newest collectives whose names are kept */
    SL_NCCL_NAME_BYTES = 128
};

/* A collective that was queued, for messages. */
typedef struct sl_nccl_note {
    uint64_t sequence;
    char name[SL_NCCL_NAME_BYTES];
} sl_nccl_note;

/* A piece of this rank's shards, and where the others' contributions to it lie in each of their slots. */
typedef struct sl_nccl_intake {
    sl_shard_piece piece;
    uint64_t in_slot;
} sl_nccl_intake;

typedef struct sl_nccl {
    sl_comm comm; /* first: an sl_comm of this kind is an sl_nccl */
    sl_nccl_options options;
    sl_comm *base;
    const sl_lane_ops *ops;
    sl_nccl_api api;
    int rank, ranks;
    double timeout;
    /* the attached device; the caller's */
    sl_device *device; /* NULL: none */
    sl_lane lane;
    uint64_t slot_bytes;  /* of the staging memory, for each other rank */
    sl_shard_walk *walks; /* one per rank */
    sl_nccl_intake intake[SL_NCCL_PIECES];
    uint8_t *bases[SL_TIER_COUNT]; /* of the collective being queued, as far as its spans lie there */
    _Atomic uint32_t queued;       /* collectives; the lane's marks follow it */
    /* the handle */
    pthread_mutex_t lock; /* held during every call of NCCL with it; guards handle, notes, failure */
    sl_nccl_comm *handle; /* NULL: none, or aborted */
    sl_nccl_note notes[SL_NCCL_NOTES];
    char failure[SL_MESSAGE_BYTES];
    _Atomic bool failed; /* set once; then `failure` does not change */
    pthread_mutex_t meeting;
    /* the watcher */
    pthread_t watcher;
    bool watching;
    _Atomic bool stop;
    _Atomic uint64_t sent[SL_GATHER_NORM + 1]; /* bytes by kind of collective */
    _Atomic uint64_t collective_count;
} sl_nccl;

/* ---- nccl_watch.c ---- */

/* The failure that ended the job, as this thread's. */
sluice_status sl_nccl_failed(sl_nccl *c);
/* Ends the job for this rank: the device's next wait reports it, NCCL lets go of the GPU, the others are told. The
 * first one counts. Returns SLUICE_ERR_RANK with it. */
sluice_status sl_nccl_stop(sl_nccl *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* After a call with the handle that gave `result`: SLUICE_OK once NCCL has taken it in. Waits at most the deadline.
 * `what` is for messages. */
sluice_status sl_nccl_settle(sl_nccl *c, int result, const char *what);
sluice_status sl_nccl_watch(sl_nccl *c);
/* Waits a while for what is queued, then ends the watcher. */
void sl_nccl_unwatch(sl_nccl *c);

/* ---- nccl_move.c ---- */

/* Queues a collective that was checked. */
sluice_status sl_nccl_move(sl_nccl *c, const sl_collective *what, bool first);

#endif
