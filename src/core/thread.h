/* thread.h: a pool of compute threads, and threads outside it.
 *
 * sl_pool_run cuts work into tasks by shape alone; which thread runs a task never changes a bit, because a task owns
 * its outputs and no sum crosses tasks. Each worker has scratch memory of a fixed size, taken once at creation, for
 * packing and tiles: kernels allocate nothing. One run at a time; concurrent callers are served one after the other. */
#ifndef SL_CORE_THREAD_H
#define SL_CORE_THREAD_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#include "sluice.h"

#define SL_MAX_THREADS 4096 /* of a pool */

/* Scratch per worker: GEMM panels, attention tiles. A kernel that needs more is wrong. */
#define SL_SCRATCH_BYTES ((size_t)4 << 20)

typedef struct sl_pool sl_pool;

/* One task. `scratch` is SL_SCRATCH_BYTES long, 64-byte aligned, the worker's own. */
typedef void (*sl_task_fn)(void *context, int64_t task, void *scratch);

/* `threads` >= 1 counts the caller, which works too. Workers block all signals, so that signals reach the main
 * thread. */
sluice_status sl_pool_create(int threads, sl_pool **out);
void sl_pool_destroy(sl_pool *p); /* NULL is fine */
int sl_pool_threads(const sl_pool *p);
/* Runs fn(context, t, scratch) for t in [0, tasks); returns when all are done. Allocates nothing. Tasks are handed out
 * in order from a shared counter. Must not be called from inside a task. */
void sl_pool_run(sl_pool *p, sl_task_fn fn, void *context, int64_t tasks);
/* The same for tasks that can fail: after the first failure no further task begins, and its status and message are the
 * caller's. */
typedef sluice_status (*sl_try_fn)(void *context, int64_t task, void *scratch);
sluice_status sl_pool_try(sl_pool *p, sl_try_fn fn, void *context, int64_t tasks);
/* Bytes the pool holds outside every arena: stacks touched and scratch. For overhead_bytes. */
uint64_t sl_pool_overhead_bytes(int threads);

/* pthread_create, with all signals blocked in the new thread: they are for the caller's. 0, or an error number. */
int sl_thread_start(pthread_t *out, const pthread_attr_t *attributes, void *(*body)(void *user), void *user);

/* CPUs this process may use: affinity mask and cgroup CPU quota. At least 1. */
int sl_cpu_count(void);
/* The cgroup part of it: `membership` as in /proc/self/cgroup, `root` as /sys/fs/cgroup. INT_MAX: no quota. */
int sl_cgroup_cpu_limit(const char *membership, const char *root);
/* Seconds of a monotonic clock. */
double sl_now(void);

#endif
