/* place.h: the working state of the place pass, shared by its files.
 *
 *     place.c         what a placement is, what the settings permit, one placement for all ranks, the refusal
 *     place_search.c  the search for a placement on one rank */
#ifndef SL_PLAN_PLACE_H
#define SL_PLAN_PLACE_H

#include "plan/passes.h"

typedef struct sl_search {
    sl_plan *p;
    const sl_usage *u;
    sl_candidate low, high;          /* what the settings demand, and the most that they permit */
    bool forbidden[SL_SAVING_COUNT]; /* a setting says never; for the advice of a refusal */
    int trials;                      /* candidates that may still be built to make a placement faster */
} sl_search;

/* Builds the plan of a candidate: schedule, addresses, waits and cost. */
sluice_status sl_search_build(sl_search *s, const sl_candidate *c);
/* Bytes over budget of the plan that was built last, all tiers added up. 0: it fits. */
uint64_t sl_search_excess(const sl_search *s);
/* The best placement for the rank in the plan's options, built last where *fits. */
sluice_status sl_search_rank(sl_search *s, sl_candidate *found, bool *fits);

#endif
