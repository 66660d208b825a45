/* stream.h: events, and the streams of the CPU backend that run concurrently with the caller.
 *
 * A queue is a ring of fixed size and one thread that empties it in order. Work is submitted in an order that is itself
 * a legal order of execution, and a wait refers to a recording submitted before it, so a full ring delays the submitter
 * but cannot lock up. */
#ifndef SL_BACKEND_CPU_STREAM_H
#define SL_BACKEND_CPU_STREAM_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/failure.h"

/* Recordings of an event are numbered. `issued` belongs to the submitting thread; `fired` is the newest one that came
 * true. */
typedef struct sl_event {
    uint64_t issued;
    int stream; /* of the newest recording */
    _Atomic uint64_t fired;
} sl_event;

typedef struct sl_events {
    sl_event *list; /* owned; NULL before sl_events_reserve */
    pthread_mutex_t lock;
    pthread_cond_t changed;
} sl_events;

sluice_status sl_events_open(sl_events *e);
void sl_events_close(sl_events *e);
sluice_status sl_events_reserve(sl_events *e, int count);
/* Makes recording `number` of `event` come true and wakes those who wait. */
void sl_event_fire(sl_events *e, int event, uint64_t number);
/* Blocks until recording `number` of `event` has come true. Number 0 always has. */
void sl_event_wait(sl_events *e, int event, uint64_t number);

typedef enum { SL_WORK_COPY, SL_WORK_HOST, SL_WORK_FIRE, SL_WORK_WAIT, SL_WORK_STAMP, SL_WORK_STOP } sl_work_kind;

typedef struct sl_work {
    sl_work_kind kind;
    void *dst; /* COPY */
    const void *src;
    size_t bytes;
    sluice_status (*call)(void *user); /* HOST: skipped once such work has failed; all else always happens */
    void *user;
    int event; /* FIRE and WAIT */
    uint64_t number;
    double *stamp; /* STAMP: gets the time */
} sl_work;

#define SL_QUEUE_LENGTH 256

typedef struct sl_queue {
    sl_events *events;   /* borrowed */
    sl_failure *failure; /* borrowed */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t filled, emptied;
    sl_work ring[SL_QUEUE_LENGTH];
    uint64_t submitted, finished; /* both only grow; under lock */
} sl_queue;

sluice_status sl_queue_open(sl_queue *q, sl_events *events, sl_failure *failure);
/* Finishes what is queued, then ends the thread. */
void sl_queue_close(sl_queue *q);
/* Waits while the ring is full. */
void sl_queue_submit(sl_queue *q, const sl_work *work);
void sl_queue_drain(sl_queue *q);

#endif
