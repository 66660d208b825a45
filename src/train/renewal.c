/* renewal.c: when a run changes between its two plans. */
#include "train/renewal.h"

#include <math.h>

#define WINDOW_FACTOR 4
#define WORTH         2.0 /* times what a change takes is what it has to save */

void sl_renewal_begin(sl_renewal *r, sl_step_clock here, sl_step_clock other)
{
    *r = (sl_renewal){ .here = here, .other = other, .window = other.seconds > 0 ? SL_SPECULATION_WINDOW : 0 };
}

/* Seconds of a step where a share of them fails: speculation ends where that is too many. */
static double expected(const sl_step_clock *c, double share)
{
    return fmin(c->seconds + share * c->redo, c->without);
}

double sl_renewal_observe(sl_renewal *r, bool failed)
{
    if (r->window == 0) return 0;
    r->steps++;
    r->failed += failed;
    if (r->steps < r->window) return 0;
    const double share = (double)r->failed / (double)r->steps;
    const bool as_asked = share == 0 && r->here.speculates && !r->other.speculates;
    r->steps = r->failed = 0;
    if (as_asked) return 0; /* speculation that was asked for and never fails stays, whatever it saves */
    return fmax(expected(&r->here, share) - expected(&r->other, share), 0);
}

bool sl_renewal_pays(double saved, uint64_t left, double seconds)
{
    return saved * (double)left > WORTH * seconds;
}

double sl_renewal_expected(const sl_renewal *r, double planned, bool failing)
{
    if (r->window == 0) return planned;
    return failing ? fmax(r->here.seconds + r->here.redo, r->here.without) : r->here.seconds;
}

void sl_renewal_change(sl_renewal *r)
{
    const sl_step_clock here = r->here;
    r->here = r->other;
    r->other = here;
    r->window *= WINDOW_FACTOR;
    r->steps = r->failed = 0;
}
