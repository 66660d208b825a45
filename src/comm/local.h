/* local.h: ranks of one machine: processes forked by one parent, which share a segment and see each other's arenas.
 *
 * launch.c forks and supervises them; meet.c is how they wait for each other; local.c is the table of sl_comm_ops with
 * the collectives, local_control.c the control calls, local_move.c the bytes, local_sum.c their sums. */
#ifndef SL_COMM_LOCAL_H
#define SL_COMM_LOCAL_H

#include <pthread.h>

#include "comm/comm.h"
#include "comm/segment.h"

/* Tiers whose arenas peers map: device and host. */
#define SL_LOCAL_TIERS 2
/* Collectives that may be queued before one has to finish. */
#define SL_LOCAL_QUEUE 256

/* A peer's arena as this process sees it, read only. base NULL: there is none. */
typedef struct sl_view {
    const unsigned char *base;
    uint64_t bytes;
    void *mapping;
    size_t mapping_bytes;
} sl_view;

/* A queued collective. */
typedef struct sl_local_job {
    struct sl_local *comm;
    uint64_t sequence;
    sl_collective what; /* a copy; name and parts are the caller's */
    bool first;
    unsigned char *base[SL_LOCAL_TIERS]; /* own arenas, as resolved; NULL: no span of this job lies there */
} sl_local_job;

typedef struct sl_local {
    sl_comm comm; /* first: an sl_comm of this kind is an sl_local */
    sl_local_segment *segment;
    int rank, ranks;
    int spins;                         /* looks at a word before sleeping; 0 where ranks outnumber CPUs */
    bool wide;                         /* sl_sum_has_wide */
    int (*files)[SL_LOCAL_TIERS];      /* [ranks]; borrowed descriptors of all ranks' arena files */
    uint32_t rounds[SL_CHANNEL_COUNT]; /* meetings so far; each belongs to the thread that makes the calls */
    uint64_t controls;                 /* control calls so far */
    /* the attached device */
    const sl_backend *backend; /* NULL: none */
    sl_device *device;
    bool moves;                       /* false: the null backend, which has no memory */
    sl_view (*views)[SL_LOCAL_TIERS]; /* [ranks]; own is empty */
    /* jobs[i % SL_LOCAL_QUEUE] for i in [finished, started) are queued */
    sl_local_job *jobs;
    uint64_t started;  /* belongs to the caller's thread */
    uint64_t finished; /* under lock */
    pthread_mutex_t lock;
    pthread_cond_t job_finished;
    _Atomic bool failed;
    char failure[SL_MESSAGE_BYTES]; /* once failed; under lock */
    _Atomic uint64_t gather_bytes, reduce_bytes, norm_bytes, collectives;
} sl_local;

/* ---- local.c ---- */

/* Rank `rank` of the segment's job. files[r] are the arena files of rank r, or -1; borrowed with the segment. */
sluice_status sl_comm_local_open(sl_local_segment *s, int rank, int (*files)[SL_LOCAL_TIERS], sl_comm **out);

/* ---- meet.c: calls of all ranks ---- */

/* Fails at once when this rank has failed before or another one has ended the job. */
sluice_status sl_local_check(sl_local *c);
/* Records this rank's failure, tells the others, and returns SLUICE_ERR_RANK. */
sluice_status sl_local_fail(sl_local *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
void sl_notice_name(sl_notice *n, const char *name);
/* Publishes the notice and waits until all ranks have published theirs, which must say the same. */
sluice_status sl_local_meet(sl_local *c, sl_channel channel, const sl_notice *mine);
/* Says that this rank needs nothing more of the others' data, and waits until all have said so. */
sluice_status sl_local_part(sl_local *c, sl_channel channel);
static inline sl_notice *sl_notice_of(sl_local *c, sl_channel channel, int rank)
{
    return &c->segment->members[rank].boxes[channel].notice;
}

/* ---- local_control.c ---- */

sluice_status sl_local_exchange(sl_comm *base, const char *what, const void *mine, size_t bytes, void *all);
sluice_status sl_local_broadcast(sl_comm *base, const char *what, int root, void *data, size_t bytes);
sluice_status sl_local_collect(sl_comm *base, const char *what, int root, const void *mine, const size_t *lengths,
                               void *all);
sluice_status sl_local_barrier(sl_comm *base, const char *what);

/* ---- local_move.c ---- */

/* Bytes of the whole. */
uint64_t sl_part_whole_bytes(const sl_comm_part *part);
/* sources[r]: where rank r's source of this part begins. `sum`: where this rank's shard does. */
void sl_move_gather(const sl_comm_part *part, int rank, const unsigned char *const *sources, unsigned char *whole);
void sl_move_reduce(const sl_comm_part *part, int rank, const unsigned char *const *sources, unsigned char *sum,
                    bool first, bool wide);

/* ---- local_sum.c ---- */

/* How contributions are added. */
typedef struct sl_addition {
    sl_form form; /* of the contributions */
    bool first;   /* sums are set, not added to */
    bool past;    /* the caches, where sums are written once; they are aligned to 16 bytes then */
    bool wide;    /* with what sl_sum_has_wide found; the bits are the same */
} sl_addition;

/* Whether this machine has quicker instructions for 16-bit forms. Slow: asked once. */
bool sl_sum_has_wide(void);
/* to = from[0] + .. + from[count - 1] for `first`, else to + from[0] + .., left to right in f32; count is at most
 * SL_SUM_FAN. */
void sl_local_add(const sl_addition *how, float *to, const unsigned char *const *from, int count, int64_t n);
/* to = the sums in the contributions' 16-bit form, rounded to nearest even. */
void sl_local_round(const sl_addition *how, unsigned char *to, const float *sums, int64_t n);

#endif
