/* host_queue.h: the streams of a CUDA device that are threads of the host: communication, the optimizer's update, disk.
 *
 * A queue is a ring of fixed size and one thread that empties it in order. An entry owns copies of what it was given,
 * except graph data, which outlives the device. Order against the GPU and against other queues goes by words in pinned
 * memory that only grow, compared cyclically: the queue's thread sets `reached` to the number of a recording, and the
 * GPU sets `released` for the queue's waits.
 *
 * The thread never calls CUDA: the submitting thread may be inside a call that holds the driver's locks until the GPU
 * has got to something that waits for this very thread. So a dead device is noticed by the submitting thread alone,
 * which looks now and then while it waits, and the queues learn it from a flag. Nothing waits for ever then: kernels,
 * copies and host work are left out, waits end, recordings come true. */
#ifndef SL_BACKEND_CUDA_HOST_QUEUE_H
#define SL_BACKEND_CUDA_HOST_QUEUE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "backend/cpu/host_call.h"
#include "backend/failure.h"

/* Each on a cache line of its own. */
typedef struct sl_queue_words {
    _Alignas(64) _Atomic uint32_t reached;  /* newest recording of the queue that came true */
    _Alignas(64) _Atomic uint32_t released; /* newest wait of the queue that the GPU released */
} sl_queue_words;

/* Whether a word that only grows has passed `number`; true as well after it wrapped. */
static inline bool sl_word_passed(const _Atomic uint32_t *word, uint32_t number)
{
    return (int32_t)(atomic_load_explicit(word, memory_order_acquire) - number) >= 0;
}

/* What the queues of a device share. */
typedef struct sl_host_side {
    sl_host_kernels kernels;
    sl_pool *pool;                 /* of kernels; owned by the device */
    uint8_t *bases[SL_TIER_COUNT]; /* of the arenas that the host reaches; NULL: none */
    sl_failure failure;            /* of submitted work */
    _Atomic bool dead;             /* the device failed */
    /* Called by the submitting thread while it waits: sets `dead` where that is so. */
    void (*look)(void *user);
    void *user;
} sl_host_side;

typedef struct sl_host_entry sl_host_entry;

typedef struct sl_host_queue {
    sl_host_side *side;    /* borrowed; NULL: not open */
    sl_queue_words *words; /* borrowed */
    sl_host_entry *ring;   /* owned */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t filled;
    _Atomic uint64_t submitted, finished; /* both only grow; `submitted` is written under lock */
    uint32_t recorded, awaited;           /* numbers given out; the submitting thread's */
} sl_host_queue;

/* `words` are 0. */
sluice_status sl_host_queue_open(sl_host_queue *q, sl_host_side *side, sl_queue_words *words);
/* Finishes what is queued, then ends the thread. A queue that is not open is fine. */
void sl_host_queue_close(sl_host_queue *q);

/* Of the submitting thread; each waits while the ring is full. The call was checked, its spans lie on the host tier. */
void sl_host_queue_call(sl_host_queue *q, const sl_call *c);
void sl_host_queue_copy(sl_host_queue *q, void *dst, const void *src, size_t bytes);
void sl_host_queue_work(sl_host_queue *q, sluice_status (*work)(void *user), void *user);
/* Gives the recording's number, which words->reached passes when all that is queued so far is done. */
uint32_t sl_host_queue_record(sl_host_queue *q);
/* What is queued from now on comes after `word` has passed `number`. */
void sl_host_queue_wait(sl_host_queue *q, const _Atomic uint32_t *word, uint32_t number);
/* *out gets the time at which all that is queued so far is done; it is read after a drain. */
void sl_host_queue_stamp(sl_host_queue *q, double *out);
/* Returns when all that is queued is done. A queue that is not open is fine. */
void sl_host_queue_drain(sl_host_queue *q);
/* Blocks the submitting thread until `word` has passed `number`, or the device is dead. */
void sl_host_side_await(sl_host_side *side, const _Atomic uint32_t *word, uint32_t number);

#endif
