/* swap_uring.c: requests of a swap store by io_uring.
 *
 * Requests that are started together are submitted together: a disk is told of them once, and neighbours become one. Files are registered;
 * buffers are not, which was measured and gains nothing (docs/swap.md). A kernel that is too old, or forbids io_uring
 * (seccomp, kernel.io_uring_disabled), fails at opening, and threads do the work. */
#include <stdio.h>

#include "core/swap_parts.h"

#ifndef SLUICE_URING

const sl_swap_engine *sl_swap_uring(void)
{
    return NULL;
}

bool sl_swap_uring_works(char *why, size_t bytes)
{
    snprintf(why, bytes, "io_uring is not built in");
    return false;
}

#else

#include <assert.h>
#include <errno.h>
#include <liburing.h>
#include <math.h>
#include <string.h>
#include <time.h>

#include "core/alloc.h"
#include "core/io.h"
#include "core/status.h"
#include "core/thread.h"

/* What a cancellation is known by; requests are known by their address. */
#define OF_A_CANCELLATION UINT64_C(1)

/* Reads of so many bytes are issued by the kernel's own threads, from several processors at once: a disk with a queue for each
 * of them is faster then, and this thread has its time for checksums. Smaller ones would cost more that way, and writes gain
 * nothing. */
#define LARGE_READ        ((uint64_t)1 << 20)

/* Beside each request: what the tests' hook wants of it. */
typedef struct wish {
    uint64_t limit; /* of bytes that count as moved */
    bool refused;   /* its result is set and it was not submitted */
    bool never;     /* it was not submitted, and is not to be answered */
} wish;

typedef struct ring_queue {
    sl_swap_queue common;
    const sl_swap_files *files; /* borrowed */
    wish *wishes;               /* one for each request; owned */
    int refused;                /* requests that wait to be taken */
    struct io_uring ring;
} ring_queue;

static int index_of(const ring_queue *q, const sl_swap_request *r)
{
    return (int)(r - q->common.requests);
}

/* A ring that has what is used here. */
static sluice_status make_ring(const char *folder, unsigned entries, struct io_uring *ring)
{
    int error = sl_io_ask("io_uring", folder);
    if (error == 0) error = -io_uring_queue_init(entries, ring, 0);
    if (error != 0) return sl_fail(SLUICE_ERR_FAILED, "this system refuses io_uring (%s)", strerror(error));
    if ((ring->features & IORING_FEAT_EXT_ARG) != 0 && (ring->features & IORING_FEAT_NODROP) != 0) return SLUICE_OK;
    io_uring_queue_exit(ring);
    return sl_fail(SLUICE_ERR_FAILED, "the io_uring of this kernel is too old");
}

bool sl_swap_uring_works(char *why, size_t bytes)
{
    struct io_uring ring;
    if (make_ring("", 2, &ring) == SLUICE_OK) {
        io_uring_queue_exit(&ring);
        return true;
    }
    snprintf(why, bytes, "%s", sluice_error());
    return false;
}

static sluice_status open_ring(ring_queue *q)
{
    /* Room for the cancellation of everything in flight. */
    SL_TRY(make_ring(q->files->file[0].folder, (unsigned)q->common.depth * 2, &q->ring));
    int descriptors[SL_SWAP_MAX_FOLDERS];
    for (int i = 0; i < q->files->count; i++) descriptors[i] = q->files->file[i].fd;
    int error = -io_uring_register_files(&q->ring, descriptors, (unsigned)q->files->count);
    if (error == 0) return SLUICE_OK;
    io_uring_queue_exit(&q->ring);
    return sl_fail(SLUICE_ERR_FAILED, "io_uring refuses the swap files (%s)", strerror(error));
}

static void free_queue(ring_queue *q)
{
    sl_free(q->wishes);
    sl_free(q->common.requests);
    sl_free(q);
}

static sluice_status uring_open(const sl_swap_files *files, int depth, sl_swap_queue **out)
{
    ring_queue *q = sl_alloc(sizeof *q, "queue of the swap files");
    if (q == NULL) return SLUICE_ERR_NO_MEMORY;
    q->files = files;
    q->common.depth = depth;
    q->common.requests = sl_alloc_array((size_t)depth, sizeof *q->common.requests, "requests of the swap files");
    q->wishes = sl_alloc_array((size_t)depth, sizeof *q->wishes, "requests of the swap files");
    sluice_status st = SLUICE_ERR_NO_MEMORY;
    if (q->common.requests == NULL || q->wishes == NULL) goto free_it;
    if ((st = open_ring(q)) != SLUICE_OK) goto free_it;
    *out = &q->common;
    return SLUICE_OK;
free_it:
    free_queue(q);
    return st;
}

/* The kernel ends what is in flight by itself, and keeps the pages until then. */
static void uring_close(sl_swap_queue *queue)
{
    ring_queue *q = (ring_queue *)queue;
    io_uring_queue_exit(&q->ring);
    free_queue(q);
}

static void prepare(struct io_uring_sqe *e, const sl_swap_request *r)
{
    unsigned bytes = (unsigned)r->bytes;
    if (r->write)
        io_uring_prep_write(e, r->file, r->memory, bytes, r->offset);
    else
        io_uring_prep_read(e, r->file, r->memory, bytes, r->offset);
    const bool aside = !r->write && r->bytes >= LARGE_READ;
    io_uring_sqe_set_flags(e, IOSQE_FIXED_FILE | (aside ? IOSQE_ASYNC : 0u));
    io_uring_sqe_set_data(e, (void *)r);
}

static void uring_start(sl_swap_queue *queue, sl_swap_request *r)
{
    ring_queue *q = (ring_queue *)queue;
    wish *w = &q->wishes[index_of(q, r)];
    if ((w->refused = sl_swap_refused(q->files, r, &w->limit, &w->never))) {
        if (!w->never) q->refused++;
        return;
    }
    struct io_uring_sqe *e = io_uring_get_sqe(&q->ring);
    assert(e != NULL); /* the ring is larger than all that can be in flight */
    prepare(e, r);
}

/* What the kernel does not take now is submitted before the next wait. */
static void uring_submit(sl_swap_queue *queue)
{
    ring_queue *q = (ring_queue *)queue;
    if (io_uring_sq_ready(&q->ring) > 0) io_uring_submit(&q->ring);
}

/* One that the hook has refused. */
static sl_swap_request *take_refused(ring_queue *q)
{
    if (q->refused == 0) return NULL;
    for (int i = 0; i < q->common.depth; i++) {
        wish *w = &q->wishes[i];
        if (!q->common.requests[i].in_flight || !w->refused || w->never) continue;
        w->refused = false;
        q->refused--;
        return &q->common.requests[i];
    }
    return NULL;
}

/* The request that a completion is of; NULL: a cancellation's. */
static sl_swap_request *take_completion(ring_queue *q, struct io_uring_cqe *c)
{
    sl_swap_request *r = NULL;
    if (c->user_data != OF_A_CANCELLATION) {
        r = io_uring_cqe_get_data(c);
        uint64_t limit = q->wishes[index_of(q, r)].limit;
        r->result = c->res > 0 && (uint64_t)c->res > limit ? (int64_t)limit : c->res;
    }
    io_uring_cqe_seen(&q->ring, c);
    return r;
}

/* Waits for a completion; false: none by `until`. Signals do not end the wait. */
static bool wait_for_completion(ring_queue *q, double until, struct io_uring_cqe **out)
{
    for (;;) {
        double left = until - sl_now();
        if (left <= 0) return io_uring_peek_cqe(&q->ring, out) == 0;
        if (left > 3600) left = 3600; /* for ever, an hour at a time */
        struct __kernel_timespec span = { (long long)left, (long long)((left - floor(left)) * 1e9) };
        int error = -io_uring_submit_and_wait_timeout(&q->ring, out, 1, &span, NULL);
        if (error <= 0 && *out != NULL) return true;
        /* EAGAIN, EBUSY: no memory for requests just now. */
        if (error != ETIME && error != EINTR) nanosleep(&(struct timespec){ 0, 1000000 }, NULL);
    }
}

static sl_swap_request *uring_take(sl_swap_queue *queue, double until)
{
    ring_queue *q = (ring_queue *)queue;
    sl_swap_request *r = take_refused(q);
    struct io_uring_cqe *c = NULL;
    while (r == NULL) {
        if (io_uring_peek_cqe(&q->ring, &c) != 0 && !wait_for_completion(q, until, &c)) return NULL;
        r = take_completion(q, c);
        c = NULL;
    }
    return r;
}

static void uring_cancel(sl_swap_queue *queue)
{
    ring_queue *q = (ring_queue *)queue;
    for (int i = 0; i < q->common.depth; i++) {
        if (!q->common.requests[i].in_flight || q->wishes[i].refused) continue;
        struct io_uring_sqe *e = io_uring_get_sqe(&q->ring);
        if (e == NULL) break;
        io_uring_prep_cancel(e, &q->common.requests[i], 0);
        io_uring_sqe_set_data64(e, OF_A_CANCELLATION);
    }
    io_uring_submit(&q->ring);
}

static const sl_swap_engine uring_engine = {
    .name = "io_uring",
    .open = uring_open,
    .start = uring_start,
    .submit = uring_submit,
    .take = uring_take,
    .cancel = uring_cancel,
    .close = uring_close,
};

const sl_swap_engine *sl_swap_uring(void)
{
    return &uring_engine;
}

#endif
