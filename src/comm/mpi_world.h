/* mpi_world.h: what the files of the MPI plugin share; the one header that includes mpi.h, for mpi*.c alone. */
#ifndef SL_COMM_MPI_WORLD_H
#define SL_COMM_MPI_WORLD_H

#include <mpi.h>
#include <pthread.h>
#include <stdatomic.h>

#include "comm/mpi_call.h"
#include "comm/plugin.h"
#include "comm/shard_walk.h"

enum { SL_MPI_TAG_HEAD = 1, SL_MPI_TAG_BYTES, SL_MPI_TAG_ABORT };
enum {
    SL_MPI_LANE_DEPTH = 4,  /* messages under way with one peer in one direction */
    SL_MPI_JOB_COUNT = 1024 /* collectives queued and not yet run */
};
#define SL_MPI_MESSAGE_BYTES ((uint64_t)64 << 20) /* MPI counts in int, and progress is seen per message */

/* One direction of traffic with one peer: pieces in order, a few under way at a time. The pieces are those of a walk
 * over a collective, or of plain memory. */
typedef struct sl_mpi_lane {
    sl_shard_walk walk; /* collective NULL: plain memory */
    char *memory;       /* the rest of it */
    uint64_t memory_bytes;
    bool outgoing, drained; /* drained: no piece is left to start */
    _Atomic uint64_t *sent; /* counter of bytes sent, or NULL */
    MPI_Request under_way[SL_MPI_LANE_DEPTH];
    int oldest, count;
} sl_mpi_lane;

/* What one thread needs to make one call at a time. */
typedef struct sl_mpi_talk {
    MPI_Comm comm;
    sl_comm_call call;     /* being made */
    sl_comm_call *theirs;  /* heads of the others, one per rank */
    sl_mpi_lane *out, *in; /* one per rank */
    double since;          /* when something last moved */
    int idle;              /* polls since then */
    int missing;           /* a rank that is waited for */
} sl_mpi_talk;

typedef struct sl_mpi_world sl_mpi_world;

/* A queued collective. */
typedef struct sl_mpi_job {
    sl_mpi_world *w;
    const sl_collective *collective;
    uint64_t sequence;
    bool first;
    char *bases[SL_TIER_COUNT]; /* arenas, as far as its spans lie there */
} sl_mpi_job;

struct sl_mpi_world {
    sl_comm base; /* first: a world is an sl_comm */
    const sl_plugin_host *host;
    int rank, size;
    double timeout;
    bool owns_mpi;           /* this library initialized MPI, and finalizes it */
    pthread_mutex_t mpi;     /* held during every MPI call; guards failure */
    sl_mpi_talk collectives; /* used by the COMM stream's thread */
    sl_mpi_talk control;     /* used by the owner's thread */
    uint64_t control_calls;
    atomic_bool failed; /* set once; then `failure` does not change */
    bool was_told;      /* by another rank */
    char failure[SL_MESSAGE_BYTES];
    MPI_Request *farewells; /* one per rank */
    /* attached device */
    const sl_backend *backend;
    sl_device *device;
    bool has_memory;            /* false: collectives compare heads and count, and move nothing */
    char *bases[SL_TIER_COUNT]; /* arenas of the collective being made; the COMM stream's */
    char *staging;              /* SL_COMM_MPI_SLOTS slots, then the sum of a 16-bit piece */
    sl_mpi_job *jobs;           /* ring of SL_MPI_JOB_COUNT */
    uint64_t queued;
    _Atomic uint64_t ran;
    _Atomic uint64_t sent[SL_GATHER_NORM + 1]; /* bytes by kind of collective */
    _Atomic uint64_t collective_count;
};

static inline sl_mpi_world *sl_mpi_world_of(sl_comm *c)
{
    return (sl_mpi_world *)c;
}

/* ---- mpi_lanes.c: everything that waits or fails ---- */

/* The end of the job for this rank: `text` becomes the message of every further call and is told to the others. The
 * first one counts. */
void sl_mpi_give_up(sl_mpi_world *w, const char *text);
/* Gives up with a message made here. */
sluice_status sl_mpi_stop(sl_mpi_world *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The failure that ended the job, as this thread's. */
sluice_status sl_mpi_failed(sl_mpi_world *w);
/* Fails when the job has failed here or another rank has said that it gives up. */
sluice_status sl_mpi_check(sl_mpi_world *w);
void sl_mpi_nap(int microseconds);

/* The deadline counts from here. */
void sl_mpi_wait_begins(sl_mpi_talk *t);
/* Between two polls; `moved`: the last one had an effect. Fails when another rank gave up, and after the deadline
 * without movement, naming t->missing. */
sluice_status sl_mpi_wait_a_little(sl_mpi_world *w, sl_mpi_talk *t, bool moved);

/* One message: start, test, drop. */
sluice_status sl_mpi_post(sl_mpi_world *w, sl_mpi_talk *t, bool outgoing, int peer, int tag, void *address,
                          uint64_t bytes, MPI_Request *request);
sluice_status sl_mpi_test(sl_mpi_world *w, sl_mpi_talk *t, int peer, MPI_Request *request, bool *done);
void sl_mpi_cancel(sl_mpi_world *w, MPI_Request *request);
/* The address of a span of the attached device. */
void *sl_mpi_address_of(const sl_mpi_world *w, sl_span span);

/* Lanes are reset, given something to carry (memory, or a walk), and run to the end. */
void sl_mpi_lanes_reset(sl_mpi_world *w, sl_mpi_talk *t);
void sl_mpi_lane_carries(sl_mpi_lane *l, const void *memory, uint64_t bytes);
/* Starts what can start and takes off what is finished; sets *moved when something was. */
sluice_status sl_mpi_lane_step(sl_mpi_world *w, sl_mpi_talk *t, sl_mpi_lane *l, int peer, int tag, bool *moved);
bool sl_mpi_lane_done(const sl_mpi_lane *l);
sluice_status sl_mpi_lanes_run(sl_mpi_world *w, sl_mpi_talk *t, int tag);
void sl_mpi_cancel_lanes(sl_mpi_world *w, sl_mpi_talk *t);
/* Tells every rank what this one is about to do, and goes on when all are about to do the same. Leaves lanes reset. */
sluice_status sl_mpi_meet(sl_mpi_world *w, sl_mpi_talk *t, sl_comm_call call);

/* ---- mpi_collective.c: entries of sl_comm_ops ---- */

sluice_status sl_mpi_attach(sl_comm *c, const sl_backend *backend, sl_device *d);
void sl_mpi_detach(sl_comm *c);
sluice_status sl_mpi_start(sl_comm *c, uint64_t sequence, const sl_collective *collective, bool first);

#endif
