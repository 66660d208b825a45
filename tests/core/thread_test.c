/* thread_test.c: the pool runs every task once, with its own scratch, for any number of threads and callers. */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/status.h"
#include "core/thread.h"
#include "test.h"

/* More than this at a rendezvous means that it will never happen. */
#define PATIENCE_SECONDS 60.0

static void count_task(void *context, int64_t task, void *scratch)
{
    (void)scratch;
    ((unsigned char *)context)[task]++; /* plain: a task run twice at once is a race */
}

static void check_each_once(sl_pool *p, int64_t tasks)
{
    static unsigned char count[5000];
    memset(count, 0, sizeof count);
    sl_pool_run(p, count_task, count, tasks);
    for (int64_t t = 0; t < (int64_t)sizeof count; t++)
        if (count[t] != (t < tasks)) {
            test_fail(__FILE__, __LINE__, "task %lld of %lld ran %d times", (long long)t, (long long)tasks, count[t]);
            return;
        }
}

TEST(pool_runs_every_task_once)
{
    static const int64_t tasks[] = { 0, 1, 2, 3, 7, 64, 1000, 5000 };
    for (int threads = 1; threads <= 8; threads = threads * 2 + (threads == 1)) {
        sl_pool *p;
        REQUIRE_OK(sl_pool_create(threads, &p));
        CHECK_EQ(sl_pool_threads(p), threads);
        for (int repeat = 0; repeat < 20; repeat++)
            for (size_t i = 0; i < sizeof tasks / sizeof tasks[0]; i++) check_each_once(p, tasks[i]);
        sl_pool_destroy(p);
    }
}

/* Short runs back to back, and after pauses in which workers fall asleep: the places where a wake-up could be lost. */
TEST(pool_survives_many_short_runs)
{
    for (int threads = 2; threads <= 4; threads += 2) {
        sl_pool *p;
        REQUIRE_OK(sl_pool_create(threads, &p));
        for (int run = 0; run < 3000; run++) {
            check_each_once(p, 1 + run % 5);
            if (run % 100 == 0) usleep(300);
        }
        sl_pool_destroy(p);
    }
}

TEST(pool_can_be_destroyed_unused)
{
    for (int repeat = 0; repeat < 50; repeat++) {
        sl_pool *p;
        REQUIRE_OK(sl_pool_create(1 + repeat % 4, &p));
        sl_pool_destroy(p);
    }
    sl_pool_destroy(NULL);
}

typedef struct meeting {
    _Atomic int arrived;
    int expected;
    _Atomic bool late;
    void *scratch[8];
    sigset_t mask[8];
    pthread_t thread[8];
} meeting;

/* Waits inside the task until all tasks are inside: possible only when each has a thread of its own. */
static void meet(void *context, int64_t task, void *scratch)
{
    meeting *m = context;
    m->scratch[task] = scratch;
    m->thread[task] = pthread_self();
    pthread_sigmask(SIG_SETMASK, NULL, &m->mask[task]);
    memset(scratch, (int)task + 1, SL_SCRATCH_BYTES);
    atomic_fetch_add(&m->arrived, 1);
    double end = sl_now() + PATIENCE_SECONDS;
    while (atomic_load(&m->arrived) < m->expected) {
        if (sl_now() > end) {
            atomic_store(&m->late, true);
            return;
        }
        sched_yield();
    }
    const unsigned char *mine = scratch;
    if (mine[0] != task + 1 || mine[SL_SCRATCH_BYTES - 1] != task + 1) atomic_store(&m->late, true);
}

TEST(pool_threads_run_at_once_each_with_its_own_scratch)
{
    enum { THREADS = 4 };
    sl_pool *p;
    REQUIRE_OK(sl_pool_create(THREADS, &p));
    meeting m = { .expected = THREADS };
    sl_pool_run(p, meet, &m, THREADS);
    CHECK(!atomic_load(&m.late));
    for (int i = 0; i < THREADS; i++) {
        CHECK_EQ((uintptr_t)m.scratch[i] % 64, 0);
        for (int j = 0; j < i; j++) CHECK(m.scratch[i] != m.scratch[j]);
    }
    sl_pool_destroy(p);
}

TEST(pool_workers_block_all_signals_and_the_caller_does_not)
{
    enum { THREADS = 3 };
    static const int signals[] = { SIGTERM, SIGINT, SIGUSR1, SIGCHLD };
    sl_pool *p;
    REQUIRE_OK(sl_pool_create(THREADS, &p));
    meeting m = { .expected = THREADS };
    sl_pool_run(p, meet, &m, THREADS);
    for (int i = 0; i < THREADS; i++)
        for (size_t s = 0; s < sizeof signals / sizeof signals[0]; s++)
            CHECK_EQ(sigismember(&m.mask[i], signals[s]), !pthread_equal(m.thread[i], pthread_self()));
    sl_pool_destroy(p);
}

typedef struct caller {
    sl_pool *pool;
    int64_t sum; /* grown by the tasks of this caller's runs, one slot per task */
    int64_t slots[16];
} caller;

static void add_task(void *context, int64_t task, void *scratch)
{
    caller *c = context;
    *(int64_t *)scratch = task + 1; /* two runs at once would share scratch and mix this up */
    sched_yield();
    c->slots[task] += *(int64_t *)scratch;
}

static void *call_many_times(void *argument)
{
    caller *c = argument;
    for (int run = 0; run < 300; run++) sl_pool_run(c->pool, add_task, c, 16);
    for (int i = 0; i < 16; i++) c->sum += c->slots[i];
    return NULL;
}

TEST(pool_serves_concurrent_callers_one_after_the_other)
{
    enum { CALLERS = 3 };
    for (int threads = 1; threads <= 3; threads++) {
        sl_pool *p;
        pthread_t thread[CALLERS];
        caller callers[CALLERS] = { 0 };
        REQUIRE_OK(sl_pool_create(threads, &p));
        for (int i = 0; i < CALLERS; i++) {
            callers[i].pool = p;
            REQUIRE(pthread_create(&thread[i], NULL, call_many_times, &callers[i]) == 0);
        }
        for (int i = 0; i < CALLERS; i++) {
            pthread_join(thread[i], NULL);
            CHECK_EQ(callers[i].sum, 300 * 136);
        }
        sl_pool_destroy(p);
    }
}

TEST(pool_run_allocates_nothing)
{
    sl_pool *p;
    sl_alloc_stats before, after;
    REQUIRE_OK(sl_pool_create(3, &p));
    sl_alloc_get_stats(&before);
    check_each_once(p, 1000);
    sl_alloc_get_stats(&after);
    CHECK_EQ(after.total_count, before.total_count);
    CHECK_EQ(after.live_bytes, before.live_bytes);
    sl_pool_destroy(p);
}

TEST(pool_create_refuses_silly_counts_and_leaks_nothing_without_memory)
{
    sl_pool *p = NULL;
    sl_alloc_stats before, after;
    CHECK_EQ(sl_pool_create(0, &p), SLUICE_ERR_USAGE);
    CHECK_EQ(sl_pool_create(-3, &p), SLUICE_ERR_USAGE);
    CHECK_EQ(sl_pool_create(1000000, &p), SLUICE_ERR_USAGE);
    sl_alloc_get_stats(&before);
    for (int64_t nth = 1;; nth++) {
        sl_alloc_fail_nth(nth, 0);
        sluice_status st = sl_pool_create(3, &p);
        sl_alloc_fail_nth(0, 0);
        if (st == SLUICE_OK) break;
        CHECK_EQ(st, SLUICE_ERR_NO_MEMORY);
        CHECK(p == NULL);
        CHECK(nth < 100);
        if (nth >= 100) return;
    }
    sl_pool_destroy(p);
    sl_alloc_get_stats(&after);
    CHECK_EQ(after.live_count, before.live_count);
}

TEST(pool_overhead_covers_the_scratch)
{
    CHECK(sl_pool_overhead_bytes(1) >= SL_SCRATCH_BYTES);
    CHECK(sl_pool_overhead_bytes(4) > 4 * SL_SCRATCH_BYTES);
}

TEST(clock_does_not_go_back)
{
    double before = sl_now();
    for (int i = 0; i < 1000; i++) {
        double now = sl_now();
        CHECK(now >= before);
        before = now;
    }
}

static sluice_status fail_one(void *context, int64_t task, void *scratch)
{
    (void)scratch;
    atomic_fetch_add((atomic_int *)context, 1);
    return task == 7 ? sl_fail(SLUICE_ERR_IO, "task %d of a pool", (int)task) : SLUICE_OK;
}

TEST(a_task_that_fails_ends_the_run_with_its_message_in_the_callers_thread)
{
    for (int threads = 1; threads <= 4; threads += 3) {
        sl_pool *p;
        atomic_int begun = 0;
        REQUIRE_OK(sl_pool_create(threads, &p));
        sl_error_record("%s", "");
        CHECK_EQ(sl_pool_try(p, fail_one, &begun, 1000000), SLUICE_ERR_IO);
        CHECK_STR(sluice_error(), "task 7 of a pool");
        CHECK(begun >= 8 && begun < 1000000);
        begun = 0;
        CHECK_EQ(sl_pool_try(p, fail_one, &begun, 7), SLUICE_OK);
        CHECK_EQ(begun, 7);
        sl_pool_destroy(p);
    }
}
