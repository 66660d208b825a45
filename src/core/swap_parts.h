/* swap_parts.h: what the files of the swap store share; nobody else includes it.
 *
 *   swap.c          opening, closing, the two calls
 *   swap_file.c     the unnamed files: making them, reserving space, where a byte of the arena lies
 *   swap_sum.c      the checksums in memory
 *   swap_move.c     a transfer: cuts it into requests, keeps many in flight, sums and verifies meanwhile
 *   swap_threads.c  requests by threads
 *   swap_uring.c    requests by io_uring, where it is built in */
#ifndef SL_CORE_SWAP_PARTS_H
#define SL_CORE_SWAP_PARTS_H

#include <pthread.h>
#include <stdatomic.h>

#include "core/swap.h"

/* Neighbouring bytes of the arena lie in one file up to a multiple of it. */
#define SL_SWAP_STRIPE ((uint64_t)1 << 20)

typedef struct sl_swap_file {
    int fd;
    char *folder; /* owned; for messages */
    bool direct;  /* past the page cache */
} sl_swap_file;

typedef struct sl_swap_files {
    sl_swap_file *file; /* owned */
    int count;
} sl_swap_files;

/* Where a byte of the arena lies, and how many from it on lie there in a row. */
typedef struct sl_swap_place {
    int file;
    uint64_t offset, bytes;
} sl_swap_place;

sluice_status sl_swap_files_make(const sl_swap_options *o, sl_swap_files *out);
/* `keep_open`: frees the memory alone. */
void sl_swap_files_close(sl_swap_files *f, bool keep_open);
/* The same descriptors, in memory of their own, for whoever may outlive the store; closed with keep_open. */
sluice_status sl_swap_files_copy(const sl_swap_files *f, sl_swap_files *out);
sl_swap_place sl_swap_place_of(const sl_swap_files *f, uint64_t offset);

/* The checksum of every unit of the arena, 0: never written, and the step in which units were last written. */
typedef struct sl_swap_sums {
    uint64_t *sum;          /* owned */
    _Atomic uint32_t *step; /* owned; one for SL_SWAP_STEP_UNITS units */
} sl_swap_sums;
#define SL_SWAP_STEP_UNITS 16

sluice_status sl_swap_sums_make(uint64_t bytes, sl_swap_sums *out);
void sl_swap_sums_free(sl_swap_sums *t);
uint64_t sl_swap_sums_bytes(uint64_t bytes);
/* Records what [offset, offset+bytes) is being written with. */
void sl_swap_sums_set(sl_swap_sums *t, uint64_t offset, const void *data, uint64_t bytes, const sl_swap_label *label);
void sl_swap_sums_forget(sl_swap_sums *t, uint64_t offset, uint64_t bytes);
/* The offset of the first unit whose bytes are not those recorded; offset + bytes where all are. */
uint64_t sl_swap_sums_check(const sl_swap_sums *t, uint64_t offset, const void *data, uint64_t bytes,
                            const sl_swap_label *label);
bool sl_swap_sums_written(const sl_swap_sums *t, uint64_t offset);
uint64_t sl_swap_sums_step(const sl_swap_sums *t, uint64_t offset);

/* One request: neighbouring bytes of one file. */
typedef struct sl_swap_request {
    int file;
    bool write;
    char *memory;    /* of what is left to move, as are the next two */
    uint64_t offset; /* in the file */
    uint64_t bytes;  /* a multiple of SL_SWAP_UNIT */
    uint64_t at;     /* the whole request: its place in the arena, ... */
    uint64_t length; /* ... and its bytes */
    int tries;       /* since bytes were last moved */
    double started;  /* sl_now, of the newest try */
    bool in_flight;  /* started and not taken yet */
    bool flip;       /* the hook wants a bit of what is read to be another */
    int64_t result;  /* when taken: bytes moved, or an error number below 0 */
} sl_swap_request;

/* The first member of every engine's queue, which is used by one thread at a time and serves one direction. */
typedef struct sl_swap_queue {
    int depth;                 /* requests that can be in flight */
    sl_swap_request *requests; /* `depth` of them; owned */
} sl_swap_queue;

/* A way to have requests in flight. */
typedef struct sl_swap_engine {
    const char *name;
    /* `files` outlive the queue, unless requests are
     * in flight when it is closed; then their descriptors stay open. */
    sluice_status (*open)(const sl_swap_files *files, int depth, sl_swap_queue **out);
    /* Does not fail: what goes wrong is the request's result. The system may be told of it only with `submit`. */
    void (*start)(sl_swap_queue *q, sl_swap_request *r);
    /* All that were started are under way from here on. */
    void (*submit)(sl_swap_queue *q);
    /* A request that has ended, its result set. Waits for one until sl_now() reaches `until`; NULL: none by then. */
    sl_swap_request *(*take)(sl_swap_queue *q, double until);
    /* Asks the system to give up all that is in flight; what it does give up is taken as any other. */
    void (*cancel)(sl_swap_queue *q);
    /* Never waits for a request: where some are in flight, what they use is left to the system. */
    void (*close)(sl_swap_queue *q);
} sl_swap_engine;
extern const sl_swap_engine sl_swap_threads;
/* NULL: not built in. Its open fails where the kernel has none, or none that is new enough. */
const sl_swap_engine *sl_swap_uring(void);

/* What the hook of core/io.h wants of a request: true where it must not be made, its result set, or *never set where it is
 * never to be answered. *limit: at most so many bytes count as moved. */
bool sl_swap_refused(const sl_swap_files *files, sl_swap_request *r, uint64_t *limit, bool *never);

/* One direction. */
typedef struct sl_swap_lane {
    pthread_mutex_t busy; /* held during a transfer */
    const sl_swap_engine *engine;
    sl_swap_queue *queue; /* owned */
    _Atomic uint64_t bytes, requests;
    _Atomic uint64_t nanoseconds;
} sl_swap_lane;

enum { SL_SWAP_READ, SL_SWAP_WRITE, SL_SWAP_LANES };

struct sl_swap {
    uint64_t bytes; /* of the arena */
    double deadline_seconds;
    sl_swap_files files;
    sl_swap_sums sums;
    sl_swap_lane lane[SL_SWAP_LANES];
    _Atomic uint64_t end; /* highest end of a request that ended well */
    _Atomic bool dead;    /* a request missed its deadline and could not be taken back */
};

/* Moves [offset, offset+bytes) of the arena from or to `data`. The lane is held. */
sluice_status sl_swap_move(sl_swap *s, int direction, uint64_t offset, char *data, uint64_t bytes,
                           const sl_swap_label *label);

#endif
