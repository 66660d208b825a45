/* renewal.c: when a run changes between its plan for speculation and the one without. */
#include "train/renewal.h"

#include <math.h>

#define WINDOW_FACTOR 4
#define WORTH         2.0 /* times what a change takes is what it has to save */

void sl_renewal_begin(sl_renewal *r, const sl_plan_totals *t)
{
    *r = (sl_renewal){ .window = 0 };
    if (t->speculating_layers == 0) return;
    r->window = SL_SPECULATION_WINDOW;
    r->speculating = t->step_seconds;
    r->redo = t->redo_seconds;
    r->stopped = t->step_seconds + t->speculation_gain;
    r->waiting = t->waiting_seconds;
}

/* Seconds of a step by the plan for speculation, which a share of the steps makes fail; it ends where that is too many. */
static double by_speculation(const sl_renewal *r, double share)
{
    return fmin(r->speculating + share * r->redo, r->stopped);
}

double sl_renewal_observe(sl_renewal *r, bool failed)
{
    if (r->window == 0) return 0;
    r->steps++;
    r->failed += failed;
    if (r->steps < r->window) return 0;
    const double share = (double)r->failed / (double)r->steps;
    const double saved = by_speculation(r, share) - r->waiting;
    r->steps = r->failed = 0;
    if (share == 0 && !r->waits) return 0; /* speculation that was asked for and never fails stays, whatever it saves */
    return fmax(r->waits ? -saved : saved, 0);
}

bool sl_renewal_pays(double saved, uint64_t left, double seconds)
{
    return saved * (double)left > WORTH * seconds;
}

double sl_renewal_expected(const sl_renewal *r, double planned, bool failing)
{
    if (r->window == 0) return planned;
    if (r->waits) return r->waiting;
    return failing ? fmax(r->speculating + r->redo, r->stopped) : r->speculating;
}

void sl_renewal_change(sl_renewal *r)
{
    r->waits = !r->waits;
    r->window *= WINDOW_FACTOR;
    r->steps = r->failed = 0;
}
