/* swap_threads.c: requests of a swap store by threads that call pread and pwrite.
 *
 * The queue belongs to its owner and to its threads together, and the last that leaves frees it: a thread that is stuck in a
 * system call keeps it, while its owner goes on. */
#include <assert.h>
#include <errno.h>
#include <math.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/status.h"
#include "core/swap_parts.h"
#include "core/thread.h"

/* More keep no disk busier, and each has a stack. */
#define THREADS_OF_A_DISK 8
#define MOST_THREADS      64
#define STACK_BYTES       ((size_t)128 << 10)

/* Requests in order; never more than the queue's depth. */
typedef struct line {
    sl_swap_request **waiting; /* owned */
    int first, count;
} line;

typedef struct thread_queue {
    sl_swap_queue common;
    sl_swap_files files;  /* a copy: a thread that is stuck outlives the store */
    pthread_mutex_t lock; /* of all below */
    pthread_cond_t work, done;
    line todo, ended;
    int running; /* requests that threads have taken and not ended */
    bool closing;
    int holders; /* threads, and the owner */
    pthread_t thread[MOST_THREADS];
    int thread_count;
} thread_queue;

static void line_put(line *l, int depth, sl_swap_request *r)
{
    assert(l->count < depth);
    l->waiting[(l->first + l->count++) % depth] = r;
}

static sl_swap_request *line_get(line *l, int depth)
{
    if (l->count == 0) return NULL;
    sl_swap_request *r = l->waiting[l->first];
    l->first = (l->first + 1) % depth;
    l->count--;
    return r;
}

static void free_queue(thread_queue *q)
{
    pthread_cond_destroy(&q->work);
    pthread_cond_destroy(&q->done);
    pthread_mutex_destroy(&q->lock);
    sl_free(q->todo.waiting);
    sl_free(q->ended.waiting);
    sl_free(q->common.requests);
    sl_swap_files_close(&q->files, true);
    sl_free(q);
}

/* Gives up one hold; the lock is held and released. */
static void leave(thread_queue *q)
{
    bool last = --q->holders == 0;
    pthread_mutex_unlock(&q->lock);
    if (last) free_queue(q);
}

/* The system call. False: the hook wants it never to be answered. */
static bool make_call(const thread_queue *q, sl_swap_request *r)
{
    uint64_t limit;
    bool never;
    int fd = q->files.file[r->file].fd;
    if (sl_swap_refused(&q->files, r, &limit, &never)) return !never;
    ssize_t n =
        r->write ? pwrite(fd, r->memory, r->bytes, (off_t)r->offset) : pread(fd, r->memory, r->bytes, (off_t)r->offset);
    r->result = n < 0 ? -errno : n;
    if (n > 0 && (uint64_t)n > limit) r->result = (int64_t)limit;
    return true;
}

static void *work(void *user)
{
    thread_queue *q = user;
    pthread_mutex_lock(&q->lock);
    while (!q->closing) {
        sl_swap_request *r = line_get(&q->todo, q->common.depth);
        if (r == NULL) {
            pthread_cond_wait(&q->work, &q->lock);
            continue;
        }
        q->running++;
        pthread_mutex_unlock(&q->lock);
        bool answered = make_call(q, r);
        pthread_mutex_lock(&q->lock);
        while (!answered && !q->closing) pthread_cond_wait(&q->work, &q->lock);
        q->running--;
        if (!answered) break;
        line_put(&q->ended, q->common.depth, r);
        pthread_cond_signal(&q->done);
    }
    leave(q);
    return NULL;
}

/* At least one thread. */
static sluice_status start_threads(thread_queue *q, int wanted)
{
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    int error = 0;
    pthread_mutex_lock(&q->lock);
    while (q->thread_count < wanted && error == 0) {
        error = sl_thread_start(&q->thread[q->thread_count], &attributes, work, q);
        if (error == 0) q->thread_count++, q->holders++;
    }
    pthread_mutex_unlock(&q->lock);
    pthread_attr_destroy(&attributes);
    if (q->thread_count > 0) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_FAILED, "cannot start a thread for the swap files: %s", strerror(error));
}

static void threads_close(sl_swap_queue *queue)
{
    thread_queue *q = (thread_queue *)queue;
    pthread_mutex_lock(&q->lock);
    q->closing = true;
    bool stuck = q->running > 0;
    pthread_cond_broadcast(&q->work);
    for (int i = 0; i < q->thread_count && stuck; i++) pthread_detach(q->thread[i]);
    pthread_mutex_unlock(&q->lock);
    for (int i = 0; i < q->thread_count && !stuck; i++) pthread_join(q->thread[i], NULL);
    pthread_mutex_lock(&q->lock);
    leave(q);
}

static sluice_status threads_open(const sl_swap_files *files, int depth, sl_swap_queue **out)
{
    thread_queue *q = sl_alloc(sizeof *q, "queue of the swap files");
    if (q == NULL) return SLUICE_ERR_NO_MEMORY;
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_mutex_init(&q->lock, NULL);
    pthread_cond_init(&q->work, NULL);
    pthread_cond_init(&q->done, &clock);
    pthread_condattr_destroy(&clock);
    q->common.depth = depth;
    q->holders = 1;
    q->common.requests = sl_alloc_array((size_t)depth, sizeof *q->common.requests, "requests of the swap files");
    q->todo.waiting = sl_alloc_array((size_t)depth, sizeof *q->todo.waiting, "requests of the swap files");
    q->ended.waiting = sl_alloc_array((size_t)depth, sizeof *q->ended.waiting, "requests of the swap files");
    int threads = THREADS_OF_A_DISK * files->count;
    if (threads > MOST_THREADS) threads = MOST_THREADS;
    sluice_status st = SLUICE_ERR_NO_MEMORY;
    if (q->common.requests == NULL || q->todo.waiting == NULL || q->ended.waiting == NULL) goto free_it;
    if ((st = sl_swap_files_copy(files, &q->files)) != SLUICE_OK) goto free_it;
    if ((st = start_threads(q, threads < depth ? threads : depth)) != SLUICE_OK) goto free_it;
    *out = &q->common;
    return SLUICE_OK;
free_it:
    free_queue(q);
    return st;
}

static void threads_start(sl_swap_queue *queue, sl_swap_request *r)
{
    thread_queue *q = (thread_queue *)queue;
    pthread_mutex_lock(&q->lock);
    line_put(&q->todo, q->common.depth, r);
    pthread_cond_signal(&q->work);
    pthread_mutex_unlock(&q->lock);
}

static void threads_submit(sl_swap_queue *queue)
{
    (void)queue; /* threads have taken them */
}

static sl_swap_request *threads_take(sl_swap_queue *queue, double until)
{
    thread_queue *q = (thread_queue *)queue;
    struct timespec at = { 0, 0 };
    if (isfinite(until)) {
        at.tv_sec = (time_t)until;
        at.tv_nsec = (long)((until - (double)at.tv_sec) * 1e9);
    }
    pthread_mutex_lock(&q->lock);
    int error = until == 0 ? ETIMEDOUT : 0;
    while (q->ended.count == 0 && error == 0)
        error =
            isfinite(until) ? pthread_cond_timedwait(&q->done, &q->lock, &at) : pthread_cond_wait(&q->done, &q->lock);
    sl_swap_request *r = line_get(&q->ended, q->common.depth);
    pthread_mutex_unlock(&q->lock);
    return r;
}

/* What no thread has begun ends at once; a system call cannot be taken back. */
static void threads_cancel(sl_swap_queue *queue)
{
    thread_queue *q = (thread_queue *)queue;
    pthread_mutex_lock(&q->lock);
    for (sl_swap_request *r; (r = line_get(&q->todo, q->common.depth)) != NULL;) {
        r->result = -ECANCELED;
        line_put(&q->ended, q->common.depth, r);
    }
    pthread_mutex_unlock(&q->lock);
}

const sl_swap_engine sl_swap_threads = {
    .name = "threads",
    .open = threads_open,
    .start = threads_start,
    .submit = threads_submit,
    .take = threads_take,
    .cancel = threads_cancel,
    .close = threads_close,
};
