/* phase.c: see progress.h. */
#include "core/phase.h"

#include <stddef.h>

#include "core/thread.h"

#define TELL_SECONDS 0.1

static void tell(sl_activity *p, uint64_t done, double now, bool over)
{
    p->told = now;
    if (p->progress == NULL || p->progress->fn == NULL) return;
    p->progress->fn(p->progress->user, &(sl_activity_note){ p->name, done, p->total, now - p->start, over });
}

void sl_activity_begin(sl_activity *p, const sl_progress *progress, const char *name, uint64_t total)
{
    *p = (sl_activity){ .progress = progress, .name = name, .total = total, .start = sl_now() };
    tell(p, 0, p->start, false);
}

void sl_activity_at(sl_activity *p, uint64_t done)
{
    double now = sl_now();
    if (now - p->told >= TELL_SECONDS) tell(p, done, now, false);
}

double sl_activity_end(sl_activity *p)
{
    double now = sl_now();
    tell(p, p->total, now, true);
    return now - p->start;
}
