/* host_queue.c: see host_queue.h. */
#include "backend/cuda/host_queue.h"

#include <string.h>
#include <sys/prctl.h>

#include "backend/cuda/spin_wait.h"
#include "core/alloc.h"

#define RING_LENGTH 256

typedef enum {
    ENTRY_CALL,
    ENTRY_COPY,
    ENTRY_WORK,
    ENTRY_RECORD,
    ENTRY_WAIT,
    ENTRY_STAMP,
    ENTRY_STOP,
    ENTRY_KINDS
} entry_kind;

struct sl_host_entry {
    entry_kind kind;
    /* CALL: points into the copies below it. */
    sl_call call;
    sl_run_context context;
    sl_shape shapes[SL_MAX_OPERANDS];
    /* COPY */
    void *dst;
    const void *src;
    size_t bytes;
    /* WORK */
    sluice_status (*work)(void *user);
    void *user;
    /* RECORD and WAIT */
    const _Atomic uint32_t *word;
    uint32_t number;
    double *stamp; /* STAMP */
};

/* ---- the queue's thread: one function per kind ---- */

typedef void (*entry_handler)(sl_host_queue *q, const sl_host_entry *e);

static bool is_dead(const sl_host_queue *q)
{
    return atomic_load_explicit(&q->side->dead, memory_order_relaxed);
}

static void do_call(sl_host_queue *q, const sl_host_entry *e)
{
    if (!is_dead(q)) sl_host_call_run(&q->side->kernels, &e->call, q->side->bases, q->side->pool);
}

static void do_copy(sl_host_queue *q, const sl_host_entry *e)
{
    if (!is_dead(q)) memcpy(e->dst, e->src, e->bytes);
}

static void do_work(sl_host_queue *q, const sl_host_entry *e)
{
    if (!is_dead(q)) sl_failure_run(&q->side->failure, e->work, e->user);
}

static void do_record(sl_host_queue *q, const sl_host_entry *e)
{
    atomic_store_explicit(&q->words->reached, e->number, memory_order_release);
}

static void do_wait(sl_host_queue *q, const sl_host_entry *e)
{
    sl_spin_wait wait = { 0 };
    while (!sl_word_passed(e->word, e->number) && !is_dead(q)) (void)sl_spin_wait_once(&wait);
}

static void do_stamp(sl_host_queue *q, const sl_host_entry *e)
{
    (void)q;
    *e->stamp = sl_now();
}

static void do_stop(sl_host_queue *q, const sl_host_entry *e)
{
    (void)q, (void)e;
}

static const entry_handler handlers[ENTRY_KINDS] = {
    [ENTRY_CALL] = do_call, [ENTRY_COPY] = do_copy,   [ENTRY_WORK] = do_work, [ENTRY_RECORD] = do_record,
    [ENTRY_WAIT] = do_wait, [ENTRY_STAMP] = do_stamp, [ENTRY_STOP] = do_stop,
};

static bool is_empty(sl_host_queue *q)
{
    return atomic_load_explicit(&q->finished, memory_order_relaxed) ==
           atomic_load_explicit(&q->submitted, memory_order_acquire);
}

static void await_entry(sl_host_queue *q)
{
    double start = sl_now();
    while (is_empty(q) && sl_now() - start < SL_SPIN_SECONDS) continue;
    if (!is_empty(q)) return;
    pthread_mutex_lock(&q->lock);
    while (is_empty(q)) pthread_cond_wait(&q->filled, &q->lock);
    pthread_mutex_unlock(&q->lock);
}

/* An entry's slot stays taken until it is done, so it is worked on where it lies. */
static void *empty_queue(void *argument)
{
    sl_host_queue *q = argument;
    bool stop = false;
    prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL); /* naps end when they should */
    while (!stop) {
        await_entry(q);
        const sl_host_entry *e = &q->ring[atomic_load(&q->finished) % RING_LENGTH];
        handlers[e->kind](q, e);
        stop = e->kind == ENTRY_STOP;
        atomic_fetch_add_explicit(&q->finished, 1, memory_order_release);
    }
    return NULL;
}

/* ---- opening and closing ---- */

sluice_status sl_host_queue_open(sl_host_queue *q, sl_host_side *side, sl_queue_words *words)
{
    int failed;
    *q = (sl_host_queue){ .side = side, .words = words };
    q->ring = sl_alloc_array(RING_LENGTH, sizeof *q->ring, "a stream's queue");
    if (q->ring == NULL) goto not_open;
    if ((failed = pthread_mutex_init(&q->lock, NULL)) != 0) goto free_ring;
    if ((failed = pthread_cond_init(&q->filled, NULL)) != 0) goto destroy_lock;
    if ((failed = sl_thread_start(&q->thread, NULL, empty_queue, q)) != 0) goto destroy_filled;
    return SLUICE_OK;
destroy_filled:
    pthread_cond_destroy(&q->filled);
destroy_lock:
    pthread_mutex_destroy(&q->lock);
free_ring:
    sl_free(q->ring);
    sl_error_record("a stream's thread: %s", strerror(failed));
not_open:
    q->side = NULL;
    return SLUICE_ERR_NO_MEMORY;
}

/* ---- the submitting thread ---- */

/* Waits until at most `left` entries are not done. */
static void await_finished(sl_host_queue *q, uint64_t left)
{
    sl_spin_wait wait = { 0 };
    while (atomic_load_explicit(&q->submitted, memory_order_relaxed) -
               atomic_load_explicit(&q->finished, memory_order_acquire) >
           left)
        if (sl_spin_wait_once(&wait)) q->side->look(q->side->user);
}

/* The slot of the next entry, free; sl_host_queue's thread sees it after publish. */
static sl_host_entry *next_entry(sl_host_queue *q, entry_kind kind)
{
    await_finished(q, RING_LENGTH - 1);
    sl_host_entry *e = &q->ring[atomic_load_explicit(&q->submitted, memory_order_relaxed) % RING_LENGTH];
    e->kind = kind;
    return e;
}

static void publish(sl_host_queue *q)
{
    pthread_mutex_lock(&q->lock);
    atomic_fetch_add_explicit(&q->submitted, 1, memory_order_release);
    pthread_cond_signal(&q->filled);
    pthread_mutex_unlock(&q->lock);
}

static const sl_shape *keep_shape(sl_host_entry *e, int k, const sl_shape *shape)
{
    if (shape == NULL) return NULL;
    e->shapes[k] = *shape;
    return &e->shapes[k];
}

void sl_host_queue_call(sl_host_queue *q, const sl_call *c)
{
    sl_host_entry *e = next_entry(q, ENTRY_CALL);
    e->call = *c;
    if (c->context != NULL) {
        e->context = *c->context;
        e->call.context = &e->context;
    }
    for (int i = 0; i < c->input_count; i++) e->call.input_shapes[i] = keep_shape(e, i, c->input_shapes[i]);
    for (int i = 0; i < c->output_count; i++)
        e->call.output_shapes[i] = keep_shape(e, SL_MAX_INPUTS + i, c->output_shapes[i]);
    publish(q);
}

void sl_host_queue_copy(sl_host_queue *q, void *dst, const void *src, size_t bytes)
{
    sl_host_entry *e = next_entry(q, ENTRY_COPY);
    e->dst = dst;
    e->src = src;
    e->bytes = bytes;
    publish(q);
}

void sl_host_queue_work(sl_host_queue *q, sluice_status (*work)(void *user), void *user)
{
    sl_host_entry *e = next_entry(q, ENTRY_WORK);
    e->work = work;
    e->user = user;
    publish(q);
}

uint32_t sl_host_queue_record(sl_host_queue *q)
{
    sl_host_entry *e = next_entry(q, ENTRY_RECORD);
    e->number = ++q->recorded;
    publish(q);
    return q->recorded;
}

void sl_host_queue_wait(sl_host_queue *q, const _Atomic uint32_t *word, uint32_t number)
{
    sl_host_entry *e = next_entry(q, ENTRY_WAIT);
    e->word = word;
    e->number = number;
    publish(q);
}

void sl_host_queue_stamp(sl_host_queue *q, double *out)
{
    sl_host_entry *e = next_entry(q, ENTRY_STAMP);
    e->stamp = out;
    publish(q);
}

void sl_host_queue_drain(sl_host_queue *q)
{
    if (q->side != NULL) await_finished(q, 0);
}

void sl_host_side_await(sl_host_side *side, const _Atomic uint32_t *word, uint32_t number)
{
    sl_spin_wait wait = { 0 };
    while (!sl_word_passed(word, number) && !atomic_load(&side->dead))
        if (sl_spin_wait_once(&wait)) side->look(side->user);
}

void sl_host_queue_close(sl_host_queue *q)
{
    if (q->side == NULL) return;
    sl_host_queue_drain(q);
    (void)next_entry(q, ENTRY_STOP);
    publish(q);
    pthread_join(q->thread, NULL);
    pthread_cond_destroy(&q->filled);
    pthread_mutex_destroy(&q->lock);
    sl_free(q->ring);
    q->side = NULL;
}
