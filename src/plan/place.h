/* place.h: the working state of the place pass, shared by its files.
 *
 *     place.c         what a placement is, what the settings permit, one placement for all ranks
 *     place_search.c  the search for a placement on one rank
 *     group.c         which recomputed layers run again together
 *     place_need.c    the least memory that any placement needs
 *     place_refuse.c  the refusal: what is needed, and what would help
 *     speculate.c     which layers are updated on speculation
 *     place_verdict.c what a candidate needs and how long it takes, each found once */
#ifndef SL_PLAN_PLACE_H
#define SL_PLAN_PLACE_H

#include "plan/passes.h"

/* Ranks that own as many elements of every layer are of one kind. So many kinds are tried. */
#define SL_RANK_KINDS 64

/* The best of several starts are made faster. */
#define SL_IMPROVED 3

/* Candidates with more steps are judged by rougher plans, and fewer of them are tried, so that the work of a search has a
 * bound. */
#define SL_QUICK_STEPS 16384

/* What is known of a candidate on a rank. */
typedef struct sl_verdict {
    sl_candidate candidate;
    int rank;
    uint64_t layout; /* a hash of what it makes of the layers, and of the rank */
    int alike;       /* the first verdict with this layout, which has the facts of all with it; a number in the list */
    bool rejected;   /* the plan's list has it: it counts as one that cannot be planned */
    bool tried;      /* `fits` is known */
    bool built;      /* excess and seconds are known too */
    bool fits;       /* excess is 0 */
    uint64_t excess; /* bytes over budget, all tiers added up */
    unsigned over;   /* which tiers are over their budgets, a bit each; both of a memory that they share */
    double seconds;  /* of a training step */
    bool bounded;    /* no packing has smaller peaks than `peak`; */
    bool measured;   /* they are the peaks themselves */
    uint64_t peak[SL_TIER_COUNT];
} sl_verdict;

/* A list of them; zeros: an empty one. */
typedef struct sl_verdicts {
    sl_verdict *all;
    int count, capacity;
    int *candidates, *layouts; /* hash tables of numbers in the list, plus 1, with twice as many slots as it has room */
} sl_verdicts;

typedef struct sl_search {
    sl_plan *p;
    const sl_usage *u;
    sl_candidate low, high;   /* what the settings demand, and the most that they permit */
    int kinds[SL_RANK_KINDS]; /* a rank of each kind */
    int kind_count, heaviest; /* kinds[heaviest] owns most */
    const sl_candidate *near; /* where the search begins: what was found with nearly the same options; NULL: anywhere */
    const sl_candidate *near_fast; /* and where the one for updates on speculation does */
    bool as_near;                  /* and is not made faster from there */
    bool speculates;               /* candidates are judged with as many layers on speculation as they leave room for */
    sl_candidate ends[SL_IMPROVED]; /* what other starts of the last search came to */
    int end_count;
    int trials;           /* candidates that may still be built to make a placement faster */
    sl_verdicts judged;   /* with the budgets of one search */
    sl_verdicts measured; /* whatever the budgets; while one need is sought */
    bool is_placed;       /* p->layers is set from p->placement */
    bool is_scheduled;    /* and p has its steps, for scheduled_rank */
    bool is_built;        /* and is a whole plan */
    int scheduled_rank;
    int steps;     /* of a plan with every saving, by which the trials of a need are bounded */
    uint64_t work; /* plan steps of all candidates that were scheduled so far */
} sl_search;

void sl_search_open(sl_search *s, sl_plan *p, const sl_usage *u);
/* Sets the plan's layers to a candidate, where they are not. */
void sl_search_place(sl_search *s, const sl_candidate *c);
/* What a candidate that cannot be planned is over budget, and needs: more than there is. */
#define SL_FAULT_BYTES ((uint64_t)1 << 61)
/* Where the caller keeps count of faults and `st` is one, it is counted, *failed is set and the search may go on. */
sluice_status sl_plan_pardon(const sl_plan *p, sluice_status st, bool *failed);
/* The same of a finished plan. *again: its placement is kept out of the next search, which may find another. */
sluice_status sl_plan_reject(sl_plan *p, sluice_status st, bool *again);
/* Builds the plan of a candidate: schedule, addresses, waits and cost. */
sluice_status sl_search_build(sl_search *s, const sl_candidate *c);
/* Peaks that no packing of a candidate is below, or its peaks themselves, on the rank in the options. The host holds nothing
 * for the next step: its budget in the options is 0. */
sluice_status sl_search_bound(sl_search *s, const sl_candidate *c, sl_verdict *out);
sluice_status sl_search_measure(sl_search *s, const sl_candidate *c, sl_verdict *out);
/* Bytes over budget of the plan that was built last, all tiers added up. 0: it fits. */
uint64_t sl_search_excess(const sl_search *s);
/* Whether a placement keeps something on the disk. */
bool sl_uses_disk(const sl_candidate *c);
/* Excess and seconds of a candidate, which is built where they are not known yet. */
sluice_status sl_search_judge(sl_search *s, const sl_candidate *c, sl_verdict *out);
/* Whether it fits, with no more work than that takes. */
sluice_status sl_search_fits(sl_search *s, const sl_candidate *c, bool *fits);
/* The same of a candidate that is not asked about again: nothing is kept. */
sluice_status sl_search_try(sl_search *s, const sl_candidate *c, bool *fits);
/* Builds the plan of a candidate, unless that is the one built last, for the same rank. */
sluice_status sl_search_settle(sl_search *s, const sl_candidate *c);
void sl_verdicts_forget(sl_verdicts *of);
/* Layers by which a saving grows at a time: one in small models, an eighth of all in deep ones. Groups grow by a quarter
 * of their steps. */
int sl_search_stride(const sl_search *s, int saving);
/* Bytes that a candidate keeps from step to step on the rank in the options, all tiers together. */
sluice_status sl_search_kept(sl_search *s, const sl_candidate *c, uint64_t *bytes);
/* That no placement keeps less than. */
sluice_status sl_search_floor(sl_search *s, uint64_t *bytes);
/* The best placement for the rank in the plan's options, built last where *fits. */
sluice_status sl_search_rank(sl_search *s, sl_candidate *found, bool *fits);
/* Makes a placement that fits the rank in the plan's options faster, by exchanges of savings. Verdicts are kept: forget them. */
sluice_status sl_search_improve(sl_search *s, sl_candidate *c);
/* One placement for all ranks, because they must make the same collectives: sought on the rank that owns most, tried on
 * the others, and sought anew on one that it does not fit. Every rank comes to the same result. Leaves another rank in
 * the plan's options. */
sluice_status sl_search_all(sl_search *s, sl_candidate *found, bool *fits);

/* Whether a layer, whose tiers are set, may be updated on speculation. */
bool sl_may_speculate(const sl_plan *p, int layer);
/* Of so many layers that may be, how many are at most. Where it is not all of them, the host updates the others beside forward,
 * when it has time for about a third as much as beside backward. */
int sl_most_speculating(int may, bool everywhere);
/* How many layers of a placement are, at most. */
int sl_search_most_speculating(sl_search *s, const sl_candidate *c);
/* How many layers of a placement that fits all ranks are updated on speculation; the plan is that of *found. Leaves
 * another rank in the plan's options. */
sluice_status sl_search_speculate(sl_search *s, sl_candidate *found);
/* The two placements of a run: that for steps which wait for the norm, and the fastest. The same where there is one alone. */
void sl_candidate_pair(const sl_candidate *c, sl_candidate *waiting, sl_candidate *fast);
/* The totals of speculation, of a plan that was built. */
void sl_plan_count_speculation(sl_plan *p);

/* The budgets that would do, whatever the rank. Where they turn out to be those there are, *fits, and *found is a
 * placement that fits all ranks. With `exact` no budget that is lacking could be a byte smaller: a search with so much
 * is made to see that it fails. Without, they are enough, and found faster. Leaves another rank in the options. */
sluice_status sl_search_need(sl_search *s, bool exact, sl_plan_need *need, sl_candidate *found, bool *fits);
/* Of the plan that was built last. */
void sl_search_own_need(const sl_search *s, sl_plan_need *need);
/* SLUICE_ERR_NO_FIT, with a message; the plan keeps what it needs. */
sluice_status sl_plan_refuse(const sl_search *s, const sl_plan_need *need);

#endif
