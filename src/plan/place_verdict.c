/* place_verdict.c: what a candidate needs and how long a step takes with it.
 *
 * Both are found by building its plan: schedule, addresses, waits and cost. A search comes back to the same candidates
 * again and again, so that what was found is kept. */
#include <string.h>

#include "core/alloc.h"
#include "core/hash.h"
#include "plan/place.h"

/* ---- building ---- */

static sluice_status schedule(sl_search *s, const sl_candidate *c)
{
    SL_TRY(sl_plan_poll(s->p));
    s->is_built = s->is_scheduled = false;
    sl_place_apply(s->p, s->u, c);
    SL_TRY(sl_plan_schedule(s->p, s->u, c->prefetch));
    s->work += (uint64_t)s->p->step_count;
    s->scheduled_rank = s->p->options.rank;
    s->is_scheduled = true;
    return SLUICE_OK;
}

sluice_status sl_search_kept(sl_search *s, const sl_candidate *c, uint64_t *bytes)
{
    SL_TRY(schedule(s, c));
    *bytes = 0;
    for (int i = 0; i < s->p->buffer_count; i++)
        if (s->p->buffers[i].permanent) *bytes += s->p->buffers[i].bytes;
    return SLUICE_OK;
}

sluice_status sl_search_build(sl_search *s, const sl_candidate *c)
{
    SL_TRY(schedule(s, c));
    SL_TRY(sl_plan_address(s->p));
    SL_TRY(sl_plan_waits(s->p));
    SL_TRY(sl_plan_cost(s->p));
    s->is_built = true;
    return SLUICE_OK;
}

/* Where tiers share a memory, their exact peaks count. */
sluice_status sl_search_try(sl_search *s, const sl_candidate *c, bool *fits)
{
    SL_TRY(schedule(s, c));
    if (s->p->options.budget_together == 0) return sl_plan_fits(s->p, fits);
    SL_TRY(sl_plan_address(s->p));
    *fits = sl_search_excess(s) == 0;
    return SLUICE_OK;
}

uint64_t sl_search_excess(const sl_search *s)
{
    const sl_plan_options *o = &s->p->options;
    const uint64_t *peak = s->p->totals.peak;
    uint64_t over = 0, together = peak[SL_TIER_DEVICE] + peak[SL_TIER_HOST];
    for (int t = 0; t < SL_TIER_COUNT; t++)
        if (peak[t] > o->budget[t]) over += peak[t] - o->budget[t];
    if (over == 0 && o->budget_together > 0 && together > o->budget_together) over = together - o->budget_together;
    return over;
}

/* ---- the table ---- */

static bool same_candidate(const sl_candidate *a, const sl_candidate *b)
{
    for (int k = 0; k < SL_SAVING_COUNT; k++)
        if (a->layers[k] != b->layers[k]) return false;
    return a->prefetch == b->prefetch && a->speculating == b->speculating;
}

/* The slot of a candidate on a rank, or the free one where it belongs. There always is a free one. */
static sl_verdict *slot_of(const sl_verdicts *of, const sl_candidate *c, int rank)
{
    uint64_t hash = sl_hash_number(sl_hash_number(sl_hash_number(SL_HASH_START, c->prefetch), c->speculating), rank);
    for (int k = 0; k < SL_SAVING_COUNT; k++) hash = sl_hash_number(hash, c->layers[k]);
    size_t mask = (size_t)of->capacity - 1, i = (size_t)hash & mask;
    while (of->slots[i].used && !(of->slots[i].rank == rank && same_candidate(&of->slots[i].candidate, c)))
        i = (i + 1) & mask;
    return &of->slots[i];
}

/* At most half of the slots are used. */
static sluice_status make_room(sl_verdicts *of)
{
    sl_verdicts larger = { .count = of->count, .capacity = of->capacity == 0 ? 256 : 2 * of->capacity };
    if (2 * of->count < of->capacity) return SLUICE_OK;
    larger.slots = sl_alloc_array((size_t)larger.capacity, sizeof *larger.slots, "plan: judged placements");
    if (larger.slots == NULL) return SLUICE_ERR_NO_MEMORY;
    for (int i = 0; i < of->capacity; i++) {
        const sl_verdict *v = &of->slots[i];
        if (v->used) *slot_of(&larger, &v->candidate, v->rank) = *v;
    }
    sl_free(of->slots);
    *of = larger;
    return SLUICE_OK;
}

/* Of the rank in the options. */
static sluice_status find_verdict(const sl_search *s, sl_verdicts *of, const sl_candidate *c, sl_verdict **out)
{
    int rank = s->p->options.rank;
    SL_TRY(make_room(of));
    sl_verdict *v = *out = slot_of(of, c, rank);
    if (v->used) return SLUICE_OK;
    *v = (sl_verdict){ .candidate = *c, .rank = rank, .used = true };
    of->count++;
    return SLUICE_OK;
}

void sl_verdicts_forget(sl_verdicts *of)
{
    sl_free(of->slots);
    *of = (sl_verdicts){ .slots = NULL };
}

/* ---- verdicts ---- */

sluice_status sl_search_settle(sl_search *s, const sl_candidate *c)
{
    return s->is_built && same_candidate(&s->p->placement, c) ? SLUICE_OK : sl_search_build(s, c);
}

/* Plans of many steps are packed roughly; the one that is taken is built anew (sl_search_settle). Where tiers share a
 * memory, their exact peaks count. */
static sluice_status build_to_judge(sl_search *s, const sl_candidate *c)
{
    SL_TRY(schedule(s, c));
    bool roughly = s->p->step_count > SL_QUICK_STEPS && s->p->options.budget_together == 0;
    SL_TRY(roughly ? sl_plan_address_roughly(s->p) : sl_plan_address(s->p));
    SL_TRY(sl_plan_waits(s->p));
    SL_TRY(sl_plan_cost(s->p));
    s->is_built = !roughly;
    return SLUICE_OK;
}

sluice_status sl_search_judge(sl_search *s, const sl_candidate *c, sl_verdict *out)
{
    sl_verdict *v;
    SL_TRY(find_verdict(s, &s->judged, c, &v));
    if (!v->built) {
        SL_TRY(build_to_judge(s, c));
        v->built = v->tried = true;
        v->excess = sl_search_excess(s);
        v->fits = v->excess == 0;
        v->seconds = s->p->totals.step_seconds;
    }
    *out = *v;
    return SLUICE_OK;
}

sluice_status sl_search_fits(sl_search *s, const sl_candidate *c, bool *fits)
{
    sl_verdict *v;
    SL_TRY(find_verdict(s, &s->judged, c, &v));
    if (!v->tried) {
        SL_TRY(sl_search_try(s, c, &v->fits));
        v->tried = true;
    }
    *fits = v->fits;
    return SLUICE_OK;
}

/* ---- peaks ---- */

/* `of`: bounds or measures what was scheduled. */
static sluice_status find_peaks(sl_search *s, sl_verdict *v, sluice_status (*of)(sl_plan *))
{
    bool there = s->is_scheduled && s->scheduled_rank == v->rank && same_candidate(&s->p->placement, &v->candidate);
    if (!there) SL_TRY(schedule(s, &v->candidate));
    s->is_built = false;
    SL_TRY(of(s->p));
    memcpy(v->peak, s->p->totals.peak, sizeof v->peak);
    return SLUICE_OK;
}

sluice_status sl_search_bound(sl_search *s, const sl_candidate *c, sl_verdict *out)
{
    sl_verdict *v;
    SL_TRY(find_verdict(s, &s->measured, c, &v));
    if (!v->bounded) SL_TRY(find_peaks(s, v, sl_plan_bound));
    v->bounded = true;
    *out = *v;
    return SLUICE_OK;
}

sluice_status sl_search_measure(sl_search *s, const sl_candidate *c, sl_verdict *out)
{
    sl_verdict *v;
    SL_TRY(find_verdict(s, &s->measured, c, &v));
    if (!v->measured) SL_TRY(find_peaks(s, v, sl_plan_measure));
    v->bounded = v->measured = true;
    *out = *v;
    return SLUICE_OK;
}
