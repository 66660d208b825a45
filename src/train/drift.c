/* drift.c: the pace of a run against the plan's and against its own. */
#include "train/drift.h"

#include <stdlib.h>
#include <string.h>

#define FAR_FROM_PLAN  1.4 /* plans by measured rates are right within 15 % on a quiet machine */
#define FAR_FROM_USUAL 1.25

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(const sl_drift *d)
{
    double sorted[SL_DRIFT_STEPS];
    memcpy(sorted, d->seconds, sizeof sorted);
    qsort(sorted, SL_DRIFT_STEPS, sizeof sorted[0], compare);
    return (sorted[SL_DRIFT_STEPS / 2 - 1] + sorted[SL_DRIFT_STEPS / 2]) / 2;
}

sl_drift_kind sl_drift_observe(sl_drift *d, double seconds, double expected, double least)
{
    d->seconds[d->count++ % SL_DRIFT_STEPS] = seconds;
    d->elapsed += seconds;
    if (d->count < SL_DRIFT_STEPS || d->elapsed < least) return SL_DRIFT_NONE;
    d->count = 0;
    d->elapsed = 0;
    const double now = median(d), before = d->usual;
    const double limit = before > 0 ? before * FAR_FROM_USUAL : expected * FAR_FROM_PLAN;
    if (before == 0 || now < before || now > limit) d->usual = now;
    if (limit <= 0 || now <= limit) return SL_DRIFT_NONE;
    if (before == 0) return SL_DRIFT_UNEXPECTED;
    if (now <= d->told * FAR_FROM_USUAL) return SL_DRIFT_NONE;
    d->told = now;
    return SL_DRIFT_SLOWER;
}

void sl_drift_forget(sl_drift *d)
{
    *d = (sl_drift){ .count = 0 };
}
