/* rounds.c: work in rounds, and threads that the rounds wait for. */
#include "checkpoint/rounds.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "core/thread.h"

/* Far below any deadline, and long beside an exchange. */
#define ROUND_SECONDS 0.25

sluice_status sl_rounds(sl_comm *comm, const char *what, sl_round_fn next, void *user)
{
    sluice_status mine = SLUICE_OK;
    bool done = false;
    sl_agreement all = { .done = false };
    if (!sl_has_peers(comm)) {
        while (!done) SL_TRY(next(user, &done));
        return SLUICE_OK;
    }
    while (!all.done) {
        double until = sl_now() + ROUND_SECONDS;
        while (mine == SLUICE_OK && !done && sl_now() < until) mine = next(user, &done);
        SL_TRY(sl_agree_in_part(comm, what, mine, done, &all));
    }
    return SLUICE_OK;
}

sluice_status sl_share(sl_comm *comm, const char *what, void *data, size_t bytes)
{
    if (!sl_has_peers(comm)) return SLUICE_OK;
    return comm->ops->broadcast(comm, what, 0, data, bytes);
}

/* The whole work of a rank that only waits for the others. */
static sluice_status do_nothing(void *user, bool *done)
{
    (void)user;
    *done = true;
    return SLUICE_OK;
}

sluice_status sl_together(sl_comm *comm, const char *what, sluice_status (*work)(void *user), void *user)
{
    sl_background b;
    if (!sl_has_peers(comm)) return work != NULL ? work(user) : SLUICE_OK;
    if (work == NULL) return sl_rounds(comm, what, do_nothing, NULL);
    sl_background_start(&b, work, user);
    sluice_status st = sl_rounds(comm, what, sl_background_wait, &b);
    sl_background_end(&b);
    return st;
}

/* ---- Threads ---- */

static void finish_work(sl_background *b, sluice_status status)
{
    pthread_mutex_lock(&b->lock);
    b->status = status;
    if (status != SLUICE_OK) sl_error_copy(b->message);
    b->done = true;
    pthread_cond_broadcast(&b->finished);
    pthread_mutex_unlock(&b->lock);
}

static void *thread_main(void *background)
{
    sl_background *b = background;
    finish_work(b, b->work(b->user));
    return NULL;
}

void sl_background_start(sl_background *b, sluice_status (*work)(void *user), void *user)
{
    pthread_condattr_t clock;
    *b = (sl_background){ .work = work, .user = user };
    pthread_mutex_init(&b->lock, NULL);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&b->finished, &clock);
    pthread_condattr_destroy(&clock);
    int error = sl_thread_start(&b->thread, NULL, thread_main, b);
    b->started = error == 0;
    if (error != 0)
        finish_work(
            b, sl_fail(SLUICE_ERR_FAILED, "cannot start a thread that writes the checkpoint: %s", strerror(error)));
}

bool sl_background_done(sl_background *b)
{
    pthread_mutex_lock(&b->lock);
    bool done = b->done;
    pthread_mutex_unlock(&b->lock);
    return done;
}

sluice_status sl_background_wait(void *background, bool *done)
{
    sl_background *b = background;
    double time = sl_now() + ROUND_SECONDS; /* on the same clock */
    struct timespec until = { .tv_sec = (time_t)time };
    until.tv_nsec = (long)((time - (double)until.tv_sec) * 1e9);
    pthread_mutex_lock(&b->lock);
    while (!b->done && pthread_cond_timedwait(&b->finished, &b->lock, &until) != ETIMEDOUT) {
    }
    *done = b->done;
    pthread_mutex_unlock(&b->lock);
    if (!*done || b->status == SLUICE_OK) return SLUICE_OK;
    return sl_fail(b->status, "%s", b->message);
}

void sl_background_end(sl_background *b)
{
    if (b->started) pthread_join(b->thread, NULL);
    pthread_cond_destroy(&b->finished);
    pthread_mutex_destroy(&b->lock);
}
