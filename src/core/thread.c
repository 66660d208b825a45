/* thread.c: the compute pool.
 *
 * A run is a gate. The caller publishes the work, opens the gate, works itself, closes the gate when the tasks have run
 * out, and waits until nobody is inside. A worker first counts itself in and only then looks whether the gate is open,
 * so the caller cannot miss it; a worker that wakes too late finds the gate closed and costs nobody anything. The
 * stores and loads that must not pass each other (count in / look at gate, close gate / look at count, and the same
 * between going to sleep and waking) are sequentially consistent.
 *
 * Idle workers spin for a few tens of microseconds, the usual gap between two kernels of a step, and then sleep. When
 * there are more threads than CPUs nobody spins: the spinner would hold the CPU the work needs. */
#include "core/thread.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

#include "core/alloc.h"
#include "core/status.h"

#define SPIN_SECONDS  40e-6
#define SPIN_BATCH    32 /* pauses between two looks at the clock */
#define STACK_BYTES   ((size_t)2 << 20)
#define STACK_TOUCHED ((uint64_t)64 << 10)

/* Counters that different threads hammer sit on cache lines of their own. */
#define OWN_LINE _Alignas(64)

typedef struct worker {
    pthread_t thread;
    sl_pool *pool;
    void *scratch; /* part of pool->scratch */
} worker;

struct sl_pool {
    int threads; /* workers + the caller */
    bool spin;
    worker *workers; /* owned; threads - 1 */
    char *scratch;   /* owned; threads * SL_SCRATCH_BYTES, the caller's first */

    pthread_mutex_t run_lock; /* held by the one caller being served */

    /* The work. Written by the caller while the gate is closed and nobody is inside. */
    sl_task_fn fn;
    void *context;
    int64_t tasks;

    OWN_LINE _Atomic int64_t next; /* task to hand out next */
    OWN_LINE _Atomic int inside;   /* workers that counted themselves in */
    OWN_LINE _Atomic bool open;
    _Atomic bool stop;
    OWN_LINE _Atomic uint64_t generation; /* grows with every run; what idle workers watch */

    /* Sleeping. The flags tell the other side that it has to take the lock and signal. */
    pthread_mutex_t sleep_lock;
    pthread_cond_t work_ready, all_left;
    _Atomic int sleepers;
    _Atomic bool caller_sleeps;
};

static void pause_cpu(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

double sl_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Takes tasks until there are none. */
static void work(sl_pool *p, void *scratch)
{
    for (;;) {
        int64_t task = atomic_fetch_add_explicit(&p->next, 1, memory_order_relaxed);
        if (task >= p->tasks) return;
        p->fn(p->context, task, scratch);
    }
}

/* Returns when the generation is no longer `seen`, or after the spin time. */
static void spin_for_work(sl_pool *p, uint64_t seen)
{
    double end = sl_now() + SPIN_SECONDS;
    do {
        for (int i = 0; i < SPIN_BATCH; i++) {
            if (atomic_load_explicit(&p->generation, memory_order_relaxed) != seen) return;
            pause_cpu();
        }
    } while (sl_now() < end);
}

/* Waits for a generation other than `seen` and returns it. */
static uint64_t wait_for_work(sl_pool *p, uint64_t seen)
{
    if (p->spin) spin_for_work(p, seen);
    uint64_t generation = atomic_load(&p->generation);
    if (generation != seen) return generation;
    pthread_mutex_lock(&p->sleep_lock);
    atomic_fetch_add(&p->sleepers, 1);
    while ((generation = atomic_load(&p->generation)) == seen) pthread_cond_wait(&p->work_ready, &p->sleep_lock);
    atomic_fetch_sub(&p->sleepers, 1);
    pthread_mutex_unlock(&p->sleep_lock);
    return generation;
}

/* Counts the worker out; the last one wakes a sleeping caller. */
static void leave(sl_pool *p)
{
    if (atomic_fetch_sub(&p->inside, 1) != 1 || !atomic_load(&p->caller_sleeps)) return;
    pthread_mutex_lock(&p->sleep_lock);
    pthread_cond_signal(&p->all_left);
    pthread_mutex_unlock(&p->sleep_lock);
}

static void *worker_main(void *argument)
{
    worker *w = argument;
    sl_pool *p = w->pool;
    uint64_t seen = 0;
    for (;;) {
        seen = wait_for_work(p, seen);
        if (atomic_load(&p->stop)) return NULL;
        atomic_fetch_add(&p->inside, 1);
        if (atomic_load(&p->open)) work(p, w->scratch);
        leave(p);
    }
}

/* Starts a new generation and wakes up to `wanted` sleepers. */
static void wake_workers(sl_pool *p, int64_t wanted)
{
    atomic_fetch_add(&p->generation, 1);
    int sleepers = atomic_load(&p->sleepers);
    if (sleepers == 0) return;
    pthread_mutex_lock(&p->sleep_lock);
    if (wanted >= sleepers) {
        pthread_cond_broadcast(&p->work_ready);
    } else {
        for (int64_t i = 0; i < wanted; i++) pthread_cond_signal(&p->work_ready);
    }
    pthread_mutex_unlock(&p->sleep_lock);
}

/* Returns when nobody is inside. The gate is closed, so those inside only finish the task they have. */
static void wait_until_all_left(sl_pool *p)
{
    double end = p->spin ? sl_now() + SPIN_SECONDS : 0;
    do {
        for (int i = 0; i < SPIN_BATCH; i++) {
            if (atomic_load(&p->inside) == 0) return;
            pause_cpu();
        }
    } while (p->spin && sl_now() < end);
    pthread_mutex_lock(&p->sleep_lock);
    atomic_store(&p->caller_sleeps, true);
    while (atomic_load(&p->inside) != 0) pthread_cond_wait(&p->all_left, &p->sleep_lock);
    atomic_store(&p->caller_sleeps, false);
    pthread_mutex_unlock(&p->sleep_lock);
}

void sl_pool_run(sl_pool *p, sl_task_fn fn, void *context, int64_t tasks)
{
    if (tasks <= 0) return;
    pthread_mutex_lock(&p->run_lock);
    if (p->threads == 1 || tasks == 1) {
        for (int64_t t = 0; t < tasks; t++) fn(context, t, p->scratch);
    } else {
        p->fn = fn;
        p->context = context;
        p->tasks = tasks;
        atomic_store_explicit(&p->next, 0, memory_order_relaxed);
        atomic_store(&p->open, true);
        wake_workers(p, tasks - 1);
        work(p, p->scratch);
        atomic_store(&p->open, false);
        wait_until_all_left(p);
    }
    pthread_mutex_unlock(&p->run_lock);
}

/* ---- tasks that can fail ---- */

typedef struct attempt {
    sl_try_fn fn;
    void *context;
    pthread_mutex_t lock; /* of the message */
    _Atomic int status;   /* SLUICE_OK: no task has failed */
    char message[SL_MESSAGE_BYTES];
} attempt;

static void attempt_task(void *context, int64_t task, void *scratch)
{
    attempt *a = context;
    if (atomic_load_explicit(&a->status, memory_order_relaxed) != SLUICE_OK) return;
    sluice_status st = a->fn(a->context, task, scratch);
    if (st == SLUICE_OK) return;
    pthread_mutex_lock(&a->lock);
    if (atomic_load(&a->status) == SLUICE_OK) {
        sl_error_copy(a->message);
        atomic_store(&a->status, (int)st);
    }
    pthread_mutex_unlock(&a->lock);
}

sluice_status sl_pool_try(sl_pool *p, sl_try_fn fn, void *context, int64_t tasks)
{
    attempt a = { .fn = fn, .context = context };
    pthread_mutex_init(&a.lock, NULL);
    sl_pool_run(p, attempt_task, &a, tasks);
    pthread_mutex_destroy(&a.lock);
    return a.status == SLUICE_OK ? SLUICE_OK : sl_fail((sluice_status)a.status, "%s", a.message);
}

/* ---- life ---- */

/* Stops and joins the first `count` workers. */
static void stop_workers(sl_pool *p, int count)
{
    atomic_store(&p->stop, true);
    wake_workers(p, count);
    for (int i = 0; i < count; i++) pthread_join(p->workers[i].thread, NULL);
}

int sl_thread_start(pthread_t *out, const pthread_attr_t *attributes, void *(*body)(void *user), void *user)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(out, attributes, body, user);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

/* Starts all workers, or none. */
static sluice_status start_workers(sl_pool *p)
{
    pthread_attr_t attributes;
    int started = 0, error = pthread_attr_init(&attributes);
    if (error != 0) return sl_fail(SLUICE_ERR_FAILED, "thread attributes: %s", strerror(error));
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    for (; started < p->threads - 1; started++) {
        worker *w = &p->workers[started];
        *w = (worker){ .pool = p, .scratch = p->scratch + (size_t)(started + 1) * SL_SCRATCH_BYTES };
        error = sl_thread_start(&w->thread, &attributes, worker_main, w);
        if (error != 0) break;
    }
    pthread_attr_destroy(&attributes);
    if (error == 0) return SLUICE_OK;
    stop_workers(p, started);
    return sl_fail(SLUICE_ERR_FAILED, "thread %d of %d did not start: %s; use fewer threads or raise the process limit",
                   started + 2, p->threads, strerror(error));
}

static void init_locks(sl_pool *p)
{
    pthread_mutex_init(&p->run_lock, NULL);
    pthread_mutex_init(&p->sleep_lock, NULL);
    pthread_cond_init(&p->work_ready, NULL);
    pthread_cond_init(&p->all_left, NULL);
}

static void destroy_locks(sl_pool *p)
{
    pthread_cond_destroy(&p->all_left);
    pthread_cond_destroy(&p->work_ready);
    pthread_mutex_destroy(&p->sleep_lock);
    pthread_mutex_destroy(&p->run_lock);
}

sluice_status sl_pool_create(int threads, sl_pool **out)
{
    if (threads < 1 || threads > SL_MAX_THREADS)
        return sl_fail(SLUICE_ERR_USAGE, "%d threads: must be 1 to %d", threads, SL_MAX_THREADS);
    sluice_status st = SLUICE_ERR_NO_MEMORY;
    sl_pool *p = sl_alloc(sizeof *p, "thread pool");
    if (p == NULL) return st;
    p->threads = threads;
    p->spin = threads <= sl_cpu_count();
    p->workers = sl_alloc_array((size_t)threads, sizeof *p->workers, "threads");
    if (p->workers == NULL) goto free_pool;
    p->scratch = sl_alloc_array((size_t)threads, SL_SCRATCH_BYTES, "thread scratch");
    if (p->scratch == NULL) goto free_workers;
    init_locks(p);
    if ((st = start_workers(p)) != SLUICE_OK) goto free_locks;
    *out = p;
    return SLUICE_OK;
free_locks:
    destroy_locks(p);
    sl_free(p->scratch);
free_workers:
    sl_free(p->workers);
free_pool:
    sl_free(p);
    return st;
}

void sl_pool_destroy(sl_pool *p)
{
    if (p == NULL) return;
    stop_workers(p, p->threads - 1);
    destroy_locks(p);
    sl_free(p->scratch);
    sl_free(p->workers);
    sl_free(p);
}

int sl_pool_threads(const sl_pool *p)
{
    return p->threads;
}

uint64_t sl_pool_overhead_bytes(int threads)
{
    return (uint64_t)threads * SL_SCRATCH_BYTES + (uint64_t)(threads - 1) * STACK_TOUCHED;
}
