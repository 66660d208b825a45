/* renewal.h: whether a run goes on by the other of its two plans, or back.
 *
 * Both are plans of the same run. One is faster where steps are rarely clipped or skipped, the other where they often are: there
 * more updates wait for the norm, or all. Steps are counted in windows. A window in which so many steps were clipped or
 * skipped that a step takes longer by the plan at hand than by the other one is a reason to change, where what is left of the
 * run makes up for the change. The window is four times as long after each, so that a run changes its plan a few times at most,
 * whatever its norms do. The weights do not depend on any of it. */
#ifndef SL_TRAIN_RENEWAL_H
#define SL_TRAIN_RENEWAL_H

#include "plan/plan.h"

typedef struct sl_renewal {
    sl_step_clock here, other; /* expected: by the plan at hand, and by the other one */
    uint64_t window;           /* steps; 0: there is one plan alone */
    uint64_t steps, failed;    /* of the window at hand */
} sl_renewal;

/* Of a run's first plan. `other`: of its other placement; seconds 0: there is none. */
void sl_renewal_begin(sl_renewal *r, sl_step_clock here, sl_step_clock other);
/* After each step: seconds that a step would be shorter by the other plan; 0: nothing speaks for it, or not yet. */
double sl_renewal_observe(sl_renewal *r, bool failed);
/* Whether a change that takes `seconds` is worth it in the `left` steps that are to come. */
bool sl_renewal_pays(double saved, uint64_t left, double seconds);
/* Seconds that a step takes at most by the plan at hand, of a run with `failing` steps or without; `planned` where there is
 * one plan alone. */
double sl_renewal_expected(const sl_renewal *r, double planned, bool failing);
/* The run goes on by the other plan. */
void sl_renewal_change(sl_renewal *r);

#endif
