/* nccl_watch.c: every wait of the NCCL communicator, and how it ends when a rank is gone.
 *
 * A collective that waits for a rank keeps the GPU busy for ever. So a thread watches: it asks the base whether a rank
 * is known to be gone, NCCL for errors, and the GPU's words for progress. A collective that was begun and does not end
 * within the deadline brings the watchers together over the base, in place of a collective of the base's own: the base
 * names who does not come. Then NCCL is told to let go of the GPU. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "comm/nccl_world.h"
#include "core/thread.h"

#define LOOK_SECONDS  0.02 /* between two looks of the watcher */
#define GRACE_SECONDS 2.0  /* for the base to learn which rank an error of NCCL comes from */
#define DRAIN_SECONDS 5.0  /* for collectives that are under way when the device is detached */

static void nap(double seconds)
{
    nanosleep(&(struct timespec){ 0, (long)(seconds * 1e9) }, NULL);
}

/* ---- failing ---- */

sluice_status sl_nccl_failed(sl_nccl *c)
{
    return sl_fail(SLUICE_ERR_RANK, "%s", c->failure);
}

static bool keep_failure(sl_nccl *c, const char *text)
{
    pthread_mutex_lock(&c->lock);
    bool is_first = !atomic_load(&c->failed);
    if (is_first) snprintf(c->failure, sizeof c->failure, "%s", text);
    atomic_store(&c->failed, true);
    pthread_mutex_unlock(&c->lock);
    return is_first;
}

static void let_go(sl_nccl *c)
{
    pthread_mutex_lock(&c->lock);
    if (c->handle != NULL) (void)c->api.abort(c->handle);
    c->handle = NULL;
    pthread_mutex_unlock(&c->lock);
}

/* The device learns of it before the GPU goes on: nobody may take what it then computes for a result. */
sluice_status sl_nccl_stop(sl_nccl *c, const char *format, ...)
{
    char text[SL_MESSAGE_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (keep_failure(c, text)) {
        c->ops->fail(c->device, SLUICE_ERR_RANK, c->failure);
        c->base->ops->abort(c->base, c->failure);
        let_go(c);
    }
    return sl_nccl_failed(c);
}

static const char *reason_of(sl_nccl *c, int result)
{
    const char *text = c->api.last_error(NULL);
    return text != NULL && text[0] != '\0' ? text : c->api.error_text(result);
}

/* An error of NCCL is often that of a rank that has just gone: the base may know more in a moment. */
static sluice_status stop_for_error(sl_nccl *c, int result, const char *what)
{
    char reason[SL_MESSAGE_BYTES / 2], known[SL_MESSAGE_BYTES / 2];
    char message[SL_MESSAGE_BYTES];
    snprintf(reason, sizeof reason, "%s", reason_of(c, result));
    for (double until = sl_now() + (c->timeout < GRACE_SECONDS ? c->timeout : GRACE_SECONDS); sl_now() < until;) {
        if (c->base->ops->check(c->base) != SLUICE_OK) {
            sl_error_copy(message);
            snprintf(known, sizeof known, "%.*s", (int)sizeof known - 1, message);
            return sl_nccl_stop(c, "%s (NCCL in %s: %s)", known, what, reason);
        }
        nap(LOOK_SECONDS);
    }
    return sl_nccl_stop(c, "NCCL failed in %s: %s", what, reason);
}

/* ---- the caller waits until NCCL has taken something in ---- */

/* NCCL's state; SL_NCCL_IN_PROGRESS until it has taken in what it was given. False where the handle is gone. */
static bool ask(sl_nccl *c, int *state)
{
    pthread_mutex_lock(&c->lock);
    bool there = c->handle != NULL;
    int asked = there ? c->api.async_error(c->handle, state) : SL_NCCL_SUCCESS;
    if (asked != SL_NCCL_SUCCESS) *state = asked;
    pthread_mutex_unlock(&c->lock);
    return there;
}

sluice_status sl_nccl_settle(sl_nccl *c, int result, const char *what)
{
    double start = sl_now();
    while (result == SL_NCCL_IN_PROGRESS) {
        if (!ask(c, &result)) return sl_nccl_failed(c);
        if (result != SL_NCCL_IN_PROGRESS) break;
        double waited = sl_now() - start;
        if (waited > 1e-3) {
            if (c->base->ops->check(c->base) != SLUICE_OK) {
                char message[SL_MESSAGE_BYTES];
                sl_error_copy(message);
                return sl_nccl_stop(c, "%s", message);
            }
            nap(1e-4);
        }
        if (waited > c->timeout)
            return sl_nccl_stop(c, "NCCL did not get through %s within %g s: a rank is dead or stuck", what,
                                c->timeout);
    }
    return result == SL_NCCL_SUCCESS ? SLUICE_OK : stop_for_error(c, result, what);
}

/* ---- the watcher ---- */

typedef struct progress {
    uint32_t begun, finished;
    double since; /* when one of them last changed */
} progress;

static bool look_at_marks(const sl_nccl *c, progress *p)
{
    uint32_t begun = atomic_load(c->lane.marks[SL_LANE_BEGUN]), finished = atomic_load(c->lane.marks[SL_LANE_FINISHED]);
    if (begun != p->begun || finished != p->finished || p->since == 0) p->since = sl_now();
    p->begun = begun, p->finished = finished;
    return begun != finished;
}

/* "collective 58 (reduce-scatter of h.3)": the one after those that are finished. */
static void describe(sl_nccl *c, uint32_t finished, char *out, size_t bytes)
{
    pthread_mutex_lock(&c->lock);
    const sl_nccl_note *n = &c->notes[finished % SL_NCCL_NOTES];
    snprintf(out, bytes, "collective %llu (%s)", (unsigned long long)n->sequence, n->name);
    pthread_mutex_unlock(&c->lock);
}

static void stop_for_base(sl_nccl *c)
{
    char message[SL_MESSAGE_BYTES];
    sl_error_copy(message);
    (void)sl_nccl_stop(c, "%s", message);
}

static void stop_late(sl_nccl *c, uint32_t finished)
{
    char title[SL_NCCL_NAME_BYTES + 64], message[SL_MESSAGE_BYTES], known[SL_MESSAGE_BYTES / 2];
    describe(c, finished, title, sizeof title);
    pthread_mutex_lock(&c->meeting);
    sluice_status st = c->base->ops->meet(c->base, 0, "finding the rank that GPUs wait for", 0);
    pthread_mutex_unlock(&c->meeting);
    sl_error_copy(message);
    snprintf(known, sizeof known, "%.*s", (int)sizeof known - 1,
             st != SLUICE_OK ? message : "all ranks are there, and so NCCL or the link between GPUs is stuck");
    (void)sl_nccl_stop(c, "%s did not end on the GPU within %g s: %s", title, c->timeout, known);
}

static void *watch(void *user)
{
    sl_nccl *c = user;
    progress p = { .since = 0 };
    while (!atomic_load(&c->stop) && !atomic_load(&c->failed)) {
        char title[SL_NCCL_NAME_BYTES + 64];
        int state = SL_NCCL_SUCCESS;
        bool under_way = look_at_marks(c, &p), there = ask(c, &state);
        if (c->base->ops->check(c->base) != SLUICE_OK) {
            stop_for_base(c);
        } else if (there && state != SL_NCCL_SUCCESS && state != SL_NCCL_IN_PROGRESS) {
            describe(c, p.finished, title, sizeof title);
            (void)stop_for_error(c, state, title);
        } else if (under_way && sl_now() - p.since > c->timeout) {
            stop_late(c, p.finished);
        }
        nap(LOOK_SECONDS);
    }
    return NULL;
}

sluice_status sl_nccl_watch(sl_nccl *c)
{
    atomic_store(&c->stop, false);
    int failed = pthread_create(&c->watcher, NULL, watch, c);
    if (failed != 0) return sl_fail(SLUICE_ERR_NO_MEMORY, "the thread that watches NCCL: %s", strerror(failed));
    c->watching = true;
    return SLUICE_OK;
}

void sl_nccl_unwatch(sl_nccl *c)
{
    double until = sl_now() + DRAIN_SECONDS;
    if (!c->watching) return;
    while (atomic_load(c->lane.marks[SL_LANE_FINISHED]) != atomic_load(&c->queued) && !atomic_load(&c->failed) &&
           sl_now() < until)
        nap(LOOK_SECONDS / 20);
    atomic_store(&c->stop, true);
    pthread_join(c->watcher, NULL);
    c->watching = false;
}
