/* stream.c: see stream.h. */
#include "backend/cpu/stream.h"

#include <string.h>

#include "core/alloc.h"
#include "core/status.h"
#include "core/thread.h"

/* ---- events ---- */

sluice_status sl_events_open(sl_events *e)
{
    *e = (sl_events){ .list = NULL };
    int failed = pthread_mutex_init(&e->lock, NULL);
    if (failed) return sl_fail(SLUICE_ERR_NO_MEMORY, "events: %s", strerror(failed));
    failed = pthread_cond_init(&e->changed, NULL);
    if (failed) {
        pthread_mutex_destroy(&e->lock);
        return sl_fail(SLUICE_ERR_NO_MEMORY, "events: %s", strerror(failed));
    }
    return SLUICE_OK;
}

void sl_events_close(sl_events *e)
{
    sl_free(e->list);
    pthread_cond_destroy(&e->changed);
    pthread_mutex_destroy(&e->lock);
}

sluice_status sl_events_reserve(sl_events *e, int count)
{
    e->list = sl_alloc_array((size_t)count, sizeof *e->list, "events");
    return e->list ? SLUICE_OK : SLUICE_ERR_NO_MEMORY;
}

void sl_event_fire(sl_events *e, int event, uint64_t number)
{
    pthread_mutex_lock(&e->lock);
    atomic_store_explicit(&e->list[event].fired, number, memory_order_release);
    pthread_cond_broadcast(&e->changed);
    pthread_mutex_unlock(&e->lock);
}

static bool has_fired(sl_events *e, int event, uint64_t number)
{
    return atomic_load_explicit(&e->list[event].fired, memory_order_acquire) >= number;
}

void sl_event_wait(sl_events *e, int event, uint64_t number)
{
    if (has_fired(e, event, number)) return;
    pthread_mutex_lock(&e->lock);
    while (!has_fired(e, event, number)) pthread_cond_wait(&e->changed, &e->lock);
    pthread_mutex_unlock(&e->lock);
}

/* ---- queues ---- */

static void perform(sl_queue *q, const sl_work *w)
{
    if (w->kind == SL_WORK_COPY) memcpy(w->dst, w->src, w->bytes);
    if (w->kind == SL_WORK_HOST) sl_failure_run(q->failure, w->call, w->user);
    if (w->kind == SL_WORK_FIRE) sl_event_fire(q->events, w->event, w->number);
    if (w->kind == SL_WORK_WAIT) sl_event_wait(q->events, w->event, w->number);
    if (w->kind == SL_WORK_STAMP) *w->stamp = sl_now();
}

/* The ring's slot stays taken until its work is done, so `finished` is also what drain waits for. */
static void *empty_queue(void *argument)
{
    sl_queue *q = argument;
    sl_work work;
    do {
        pthread_mutex_lock(&q->lock);
        while (q->finished == q->submitted) pthread_cond_wait(&q->filled, &q->lock);
        work = q->ring[q->finished % SL_QUEUE_LENGTH];
        pthread_mutex_unlock(&q->lock);
        perform(q, &work);
        pthread_mutex_lock(&q->lock);
        q->finished++;
        pthread_cond_broadcast(&q->emptied);
        pthread_mutex_unlock(&q->lock);
    } while (work.kind != SL_WORK_STOP);
    return NULL;
}

sluice_status sl_queue_open(sl_queue *q, sl_events *events, sl_failure *failure)
{
    int failed;
    q->events = events;
    q->failure = failure;
    q->submitted = q->finished = 0;
    if ((failed = pthread_mutex_init(&q->lock, NULL)) != 0) goto report;
    if ((failed = pthread_cond_init(&q->filled, NULL)) != 0) goto destroy_lock;
    if ((failed = pthread_cond_init(&q->emptied, NULL)) != 0) goto destroy_filled;
    if ((failed = sl_thread_start(&q->thread, NULL, empty_queue, q)) != 0) goto destroy_emptied;
    return SLUICE_OK;
destroy_emptied:
    pthread_cond_destroy(&q->emptied);
destroy_filled:
    pthread_cond_destroy(&q->filled);
destroy_lock:
    pthread_mutex_destroy(&q->lock);
report:
    return sl_fail(SLUICE_ERR_NO_MEMORY, "a stream's thread: %s", strerror(failed));
}

void sl_queue_close(sl_queue *q)
{
    sl_queue_submit(q, &(sl_work){ .kind = SL_WORK_STOP });
    pthread_join(q->thread, NULL);
    pthread_cond_destroy(&q->emptied);
    pthread_cond_destroy(&q->filled);
    pthread_mutex_destroy(&q->lock);
}

void sl_queue_submit(sl_queue *q, const sl_work *work)
{
    pthread_mutex_lock(&q->lock);
    while (q->submitted - q->finished == SL_QUEUE_LENGTH) pthread_cond_wait(&q->emptied, &q->lock);
    q->ring[q->submitted % SL_QUEUE_LENGTH] = *work;
    q->submitted++;
    pthread_cond_signal(&q->filled);
    pthread_mutex_unlock(&q->lock);
}

void sl_queue_drain(sl_queue *q)
{
    pthread_mutex_lock(&q->lock);
    while (q->finished != q->submitted) pthread_cond_wait(&q->emptied, &q->lock);
    pthread_mutex_unlock(&q->lock);
}
