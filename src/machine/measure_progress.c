/* measure_progress.c: what is being measured, said while it happens: a line for each group of measurements with its
 * seconds, and a word about a single one that takes unusually long, so that a measurement that hangs has a name. */
#include <pthread.h>
#include <time.h>

#include "core/alloc.h"
#include "core/thread.h"
#include "machine/measure.h"

#define SLOW_SECONDS 10 /* a measurement under way for longer is named, every so many seconds */

struct sl_bench_progress {
    FILE *out;
    pthread_t watcher;
    pthread_mutex_t lock; /* guards all below, and `out` */
    pthread_cond_t changed;
    bool closing, in_line; /* in_line: a line is begun, and not ended */
    char group[64];
    double group_start;
    int timed, skipped; /* of the group */
    const char *label;  /* of the measurement under way; NULL: none */
    double work, start;
    const char *longest; /* of the group */
    double longest_seconds;
};

/* ---- the watcher ---- */

static void end_line(sl_bench_progress *p)
{
    if (p->in_line) fprintf(p->out, "\n");
    p->in_line = false;
}

static void *watch(void *argument)
{
    sl_bench_progress *p = argument;
    double said = 0; /* when */
    pthread_mutex_lock(&p->lock);
    while (!p->closing) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += SLOW_SECONDS;
        (void)pthread_cond_timedwait(&p->changed, &p->lock, &until); /* sooner where it closes */
        double now = sl_now(), since = p->start > said ? p->start : said;
        if (p->closing || p->label == NULL || now - since < SLOW_SECONDS) continue;
        end_line(p);
        fprintf(p->out, "    %s of %.3g has been running for %.0f s\n", p->label, p->work, now - p->start);
        fflush(p->out);
        said = now;
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

sluice_status sl_bench_progress_open(FILE *out, sl_bench_progress **progress)
{
    *progress = NULL;
    if (out == NULL) return SLUICE_OK;
    sl_bench_progress *p = sl_alloc(sizeof *p, "progress of a measurement");
    if (p == NULL) return SLUICE_ERR_NO_MEMORY;
    p->out = out;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->changed, NULL);
    if (sl_thread_start(&p->watcher, NULL, watch, p) != 0) {
        pthread_cond_destroy(&p->changed);
        pthread_mutex_destroy(&p->lock);
        sl_free(p);
        return sl_fail(SLUICE_ERR_NO_MEMORY, "cannot start a thread to report the progress of a measurement");
    }
    *progress = p;
    return SLUICE_OK;
}

void sl_bench_progress_close(sl_bench_progress *p)
{
    if (p == NULL) return;
    pthread_mutex_lock(&p->lock);
    p->closing = true;
    end_line(p);
    fflush(p->out);
    pthread_cond_signal(&p->changed);
    pthread_mutex_unlock(&p->lock);
    pthread_join(p->watcher, NULL);
    pthread_cond_destroy(&p->changed);
    pthread_mutex_destroy(&p->lock);
    sl_free(p);
}

/* ---- groups ---- */

void sl_bench_begin(sl_bench *b, const char *group, double seconds)
{
    sl_bench_progress *p = b->progress;
    b->deadline = seconds > 0 ? sl_now() + seconds : 0;
    if (p == NULL) return;
    pthread_mutex_lock(&p->lock);
    snprintf(p->group, sizeof p->group, "%s", group);
    p->group_start = sl_now();
    p->timed = p->skipped = 0;
    p->longest = "";
    p->longest_seconds = 0;
    p->in_line = true;
    fprintf(p->out, "  %-36s", group);
    fflush(p->out);
    pthread_mutex_unlock(&p->lock);
}

void sl_bench_end(sl_bench *b)
{
    sl_bench_progress *p = b->progress;
    if (p == NULL) return;
    pthread_mutex_lock(&p->lock);
    if (!p->in_line) fprintf(p->out, "  %-36s", p->group);
    fprintf(p->out, " %6.1f s", sl_now() - p->group_start);
    if (p->timed > 0) fprintf(p->out, ", %d timed, longest %s with %.2f s", p->timed, p->longest, p->longest_seconds);
    if (p->skipped > 0) fprintf(p->out, "; %d skipped for lack of time", p->skipped);
    fprintf(p->out, "\n");
    fflush(p->out);
    p->in_line = false;
    pthread_mutex_unlock(&p->lock);
}

sluice_status sl_bench_late(sl_bench *b, bool *late)
{
    *late = b->deadline > 0 && sl_now() > b->deadline;
    if (b->deadline > 0 && b->ranks > 1) SL_TRY(b->comm->ops->broadcast(b->comm, "time left", 0, late, sizeof *late));
    if (*late && b->progress != NULL) b->progress->skipped++;
    return SLUICE_OK;
}

/* ---- single measurements ---- */

void sl_bench_progress_start(sl_bench *b)
{
    sl_bench_progress *p = b->progress;
    if (p == NULL) return;
    pthread_mutex_lock(&p->lock);
    p->label = b->label != NULL ? b->label : "a measurement";
    p->work = b->label_work;
    p->start = sl_now();
    pthread_mutex_unlock(&p->lock);
}

void sl_bench_progress_done(sl_bench *b)
{
    sl_bench_progress *p = b->progress;
    if (p == NULL) return;
    pthread_mutex_lock(&p->lock);
    double seconds = sl_now() - p->start;
    p->timed++;
    if (seconds > p->longest_seconds) {
        p->longest = p->label;
        p->longest_seconds = seconds;
    }
    p->label = NULL;
    pthread_mutex_unlock(&p->lock);
}
