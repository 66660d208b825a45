/* rounds.c: agreement, rounds, and threads that the rounds wait for. */
#include "checkpoint/rounds.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "core/alloc.h"
#include "core/thread.h"

/* Far below any deadline, and long beside an exchange. */
#define ROUND_SECONDS 0.25
/* So many ranks agree without asking for memory: they must be able to when there is none. */
#define FEW_RANKS 256

/* What a rank says at the end of a round. */
typedef struct verdict {
    int32_t status;
    int32_t done;
} verdict;

bool sl_has_peers(const sl_comm *comm)
{
    return comm != NULL && comm->ops->size(comm) > 1;
}

/* The failing rank's message becomes everyone's. */
static sluice_status adopt_failure(sl_comm *comm, const char *what, int rank, sluice_status status)
{
    char message[SL_MESSAGE_BYTES];
    sl_error_copy(message);
    SL_TRY(comm->ops->broadcast(comm, what, rank, message, sizeof message));
    message[sizeof message - 1] = '\0';
    return sl_fail(status, "on rank %d: %s", rank, message);
}

/* Exchanges verdicts; *all_done is set on success only. */
static sluice_status meet(sl_comm *comm, const char *what, verdict mine, verdict *all, bool *all_done)
{
    int size = comm->ops->size(comm);
    bool done = true;
    SL_TRY(comm->ops->exchange(comm, what, &mine, sizeof mine, all));
    for (int r = 0; r < size; r++) {
        if (all[r].status != SLUICE_OK) return adopt_failure(comm, what, r, (sluice_status)all[r].status);
        done = done && all[r].done != 0;
    }
    *all_done = done;
    return SLUICE_OK;
}

static sluice_status work_alone(sl_round_fn next, void *user)
{
    bool done = false;
    while (!done) SL_TRY(next(user, &done));
    return SLUICE_OK;
}

static sluice_status work_and_meet(sl_comm *comm, const char *what, sl_round_fn next, void *user, verdict *all)
{
    sluice_status mine = SLUICE_OK;
    bool done = false, all_done = false;
    while (!all_done) {
        double until = sl_now() + ROUND_SECONDS;
        while (mine == SLUICE_OK && !done && sl_now() < until) mine = next(user, &done);
        SL_TRY(meet(comm, what, (verdict){ (int32_t)mine, done }, all, &all_done));
    }
    return SLUICE_OK;
}

sluice_status sl_rounds(sl_comm *comm, const char *what, sl_round_fn next, void *user)
{
    verdict few[FEW_RANKS];
    if (!sl_has_peers(comm)) return work_alone(next, user);
    if (comm->ops->size(comm) <= FEW_RANKS) return work_and_meet(comm, what, next, user, few);
    verdict *all = sl_alloc_array((size_t)comm->ops->size(comm), sizeof *all, "verdicts of the ranks");
    if (all == NULL) {
        /* cannot even listen: the others learn it at their next call */
        comm->ops->abort(comm, sluice_error());
        return SLUICE_ERR_NO_MEMORY;
    }
    sluice_status st = work_and_meet(comm, what, next, user, all);
    sl_free(all);
    return st;
}

/* The whole work of sl_agree: it has a status already. */
static sluice_status say_status(void *status, bool *done)
{
    *done = true;
    return *(const sluice_status *)status;
}

sluice_status sl_agree(sl_comm *comm, const char *what, sluice_status mine)
{
    return sl_rounds(comm, what, say_status, &mine);
}

sluice_status sl_share(sl_comm *comm, const char *what, void *data, size_t bytes)
{
    if (!sl_has_peers(comm)) return SLUICE_OK;
    return comm->ops->broadcast(comm, what, 0, data, bytes);
}

sluice_status sl_together(sl_comm *comm, const char *what, sluice_status (*work)(void *user), void *user)
{
    sl_background b;
    if (!sl_has_peers(comm)) return work != NULL ? work(user) : SLUICE_OK;
    if (work == NULL) return sl_agree(comm, what, SLUICE_OK);
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
