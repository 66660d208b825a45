/* place_verdict.c: what a candidate needs and how long a step takes with it.
 *
 * Both are found by building its plan: schedule, addresses, waits and cost. A search comes back to the same candidates
 * again and again, and to others that are the same in all but their numbers, so that what was found is kept. */
#include <string.h>

#include "core/alloc.h"
#include "core/hash.h"
#include "plan/place.h"

/* ---- faults ---- */

/* Of all that a schedule follows: different numbers of a saving are often the same layout, as where state follows
 * parameters, or another limit has the same groups. */
static uint64_t hash_layout(const sl_plan *p, int rank)
{
    uint64_t hash = sl_hash_number(sl_hash_number(SL_HASH_START, p->placement.prefetch), rank);
    for (int i = 0; i < p->graph->layer_count; i++) {
        const sl_layer_place *l = &p->layers[i];
        const int facts[] = {
            (int)l->activations, (int)l->parameters, (int)l->state, (int)l->gradients, (int)l->waiting,
            (int)l->offloaded,   l->group_first,     l->group_last, l->speculates,     l->cheap
        };
        hash = sl_hash_bytes(hash, facts, sizeof facts);
    }
    return hash;
}

sluice_status sl_plan_pardon(const sl_plan *p, sluice_status st, bool *failed)
{
    sl_plan_faults *f = p->options.faults;
    *failed = st == SLUICE_ERR_FAILED && f != NULL;
    if (!*failed) return st;
    if (f->count++ == 0) sl_error_copy(f->first);
    return SLUICE_OK;
}

static bool is_rejected(const sl_plan *p)
{
    const uint64_t layout = p->rejected_count == 0 ? 0 : hash_layout(p, -1);
    for (int i = 0; i < p->rejected_count; i++)
        if (p->rejected[i] == layout) return true;
    return false;
}

sluice_status sl_plan_reject(sl_plan *p, sluice_status st, bool *again)
{
    *again = false;
    if (st == SLUICE_OK || p->rejected_count == SL_MOST_REJECTED || is_rejected(p)) return st;
    SL_TRY(sl_plan_pardon(p, st, again));
    p->rejected[p->rejected_count++] = hash_layout(p, -1);
    return SLUICE_OK;
}

/* What a candidate without a plan leaves behind is not gone on with. */
static sluice_status pass_over(sl_search *s, sluice_status st, bool *failed)
{
    if (st != SLUICE_OK) s->is_built = s->is_scheduled = false;
    return sl_plan_pardon(s->p, st, failed);
}

/* ---- building ---- */

static bool same_candidate(const sl_candidate *a, const sl_candidate *b)
{
    for (int k = 0; k < SL_SAVING_COUNT; k++)
        if (a->layers[k] != b->layers[k]) return false;
    return a->prefetch == b->prefetch && a->speculating == b->speculating && a->everywhere == b->everywhere;
}

void sl_search_place(sl_search *s, const sl_candidate *c)
{
    if (s->is_placed && same_candidate(&s->p->placement, c)) return;
    s->is_built = s->is_scheduled = false;
    s->is_placed = true;
    sl_place_apply(s->p, s->u, c);
}

static sluice_status schedule(sl_search *s, const sl_candidate *c)
{
    SL_TRY(sl_plan_poll(s->p));
    sl_search_place(s, c);
    s->is_built = s->is_scheduled = false;
    SL_TRY(sl_plan_schedule(s->p, s->u, c->prefetch));
    s->work += (uint64_t)s->p->step_count;
    s->scheduled_rank = s->p->options.rank;
    s->is_scheduled = true;
    return SLUICE_OK;
}

sluice_status sl_search_kept(sl_search *s, const sl_candidate *c, uint64_t *bytes)
{
    bool failed;
    SL_TRY(pass_over(s, schedule(s, c), &failed));
    *bytes = 0;
    for (int i = 0; !failed && i < s->p->buffer_count; i++)
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
static sluice_status schedule_and_try(sl_search *s, const sl_candidate *c, bool *fits)
{
    SL_TRY(schedule(s, c));
    if (s->p->options.budget_together == 0) return sl_plan_fits(s->p, fits);
    SL_TRY(sl_plan_address(s->p));
    *fits = sl_search_excess(s) == 0;
    return SLUICE_OK;
}

sluice_status sl_search_try(sl_search *s, const sl_candidate *c, bool *fits)
{
    bool failed;
    SL_TRY(pass_over(s, schedule_and_try(s, c, fits), &failed));
    *fits = !failed && *fits;
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

static unsigned tiers_over(const sl_search *s)
{
    const sl_plan_options *o = &s->p->options;
    const uint64_t *peak = s->p->totals.peak;
    unsigned over = 0;
    for (int t = 0; t < SL_TIER_COUNT; t++)
        if (peak[t] > o->budget[t]) over |= 1u << t;
    if (o->budget_together > 0 && peak[SL_TIER_DEVICE] + peak[SL_TIER_HOST] > o->budget_together)
        over |= 1u << SL_TIER_DEVICE | 1u << SL_TIER_HOST;
    return over;
}

/* ---- the list ---- */

static uint64_t hash_candidate(const sl_candidate *c, int rank)
{
    const int speculating = 2 * c->speculating + c->everywhere;
    uint64_t hash = sl_hash_number(sl_hash_number(sl_hash_number(SL_HASH_START, c->prefetch), speculating), rank);
    for (int k = 0; k < SL_SAVING_COUNT; k++) hash = sl_hash_number(hash, c->layers[k]);
    return hash;
}

static bool is_of(const sl_verdict *v, const sl_candidate *c, int rank)
{
    return v->rank == rank && same_candidate(&v->candidate, c);
}

/* The slot of a candidate on a rank, or the free one where it belongs. There always is a free one. */
static int *candidate_slot(const sl_verdicts *of, const sl_candidate *c, int rank)
{
    size_t mask = 2 * (size_t)of->capacity - 1, i = (size_t)hash_candidate(c, rank) & mask;
    while (of->candidates[i] > 0 && !is_of(&of->all[of->candidates[i] - 1], c, rank)) i = (i + 1) & mask;
    return &of->candidates[i];
}

static int *layout_slot(const sl_verdicts *of, uint64_t layout)
{
    size_t mask = 2 * (size_t)of->capacity - 1, i = (size_t)layout & mask;
    while (of->layouts[i] > 0 && of->all[of->layouts[i] - 1].layout != layout) i = (i + 1) & mask;
    return &of->layouts[i];
}

static void enter(sl_verdicts *of, int number)
{
    const sl_verdict *v = &of->all[number];
    *candidate_slot(of, &v->candidate, v->rank) = number + 1;
    if (v->alike == number) *layout_slot(of, v->layout) = number + 1;
}

void sl_verdicts_forget(sl_verdicts *of)
{
    sl_free(of->all);
    sl_free(of->candidates);
    sl_free(of->layouts);
    *of = (sl_verdicts){ .all = NULL };
}

static sluice_status make_room(sl_verdicts *of)
{
    sl_verdicts larger = { .count = of->count, .capacity = of->capacity == 0 ? 128 : 2 * of->capacity };
    if (of->count < of->capacity) return SLUICE_OK;
    larger.all = sl_alloc_array((size_t)larger.capacity, sizeof *larger.all, "plan: judged placements");
    larger.candidates =
        sl_alloc_array(2 * (size_t)larger.capacity, sizeof *larger.candidates, "plan: judged placements");
    larger.layouts = sl_alloc_array(2 * (size_t)larger.capacity, sizeof *larger.layouts, "plan: judged placements");
    if (larger.all == NULL || larger.candidates == NULL || larger.layouts == NULL) {
        sl_verdicts_forget(&larger);
        return SLUICE_ERR_NO_MEMORY;
    }
    for (int i = 0; i < of->count; i++) {
        larger.all[i] = of->all[i];
        enter(&larger, i);
    }
    sl_verdicts_forget(of);
    *of = larger;
    return SLUICE_OK;
}

/* What is known of a candidate, or of another with the same layout, on the rank in the options. */
static sluice_status find_verdict(sl_search *s, sl_verdicts *of, const sl_candidate *c, sl_verdict **out)
{
    SL_TRY(make_room(of));
    int rank = s->p->options.rank, number = *candidate_slot(of, c, rank) - 1;
    if (number < 0) {
        sl_search_place(s, c);
        number = of->count++;
        uint64_t layout = hash_layout(s->p, rank);
        int first = *layout_slot(of, layout) - 1;
        of->all[number] =
            (sl_verdict){ .candidate = *c, .rank = rank, .layout = layout, .alike = first < 0 ? number : first };
        of->all[number].rejected = is_rejected(s->p);
        enter(of, number);
    }
    *out = &of->all[of->all[number].alike];
    return SLUICE_OK;
}

/* ---- verdicts ---- */

/* Longer than any step. */
#define NO_SECONDS 1e9

sluice_status sl_search_settle(sl_search *s, const sl_candidate *c)
{
    return s->is_built && same_candidate(&s->p->placement, c) ? SLUICE_OK : sl_search_build(s, c);
}

/* Plans of many steps, and what is over budget with any packing, are packed roughly; the one that is taken is built anew
 * (sl_search_settle). Where tiers share a memory, their exact peaks count. */
static sluice_status address_to_judge(sl_search *s, bool *exact)
{
    *exact = true;
    if (s->p->options.budget_together > 0) return sl_plan_address(s->p);
    if (s->p->step_count <= SL_QUICK_STEPS) return sl_plan_address_within(s->p, exact);
    *exact = false;
    return sl_plan_address_roughly(s->p);
}

static sluice_status build_to_judge(sl_search *s, const sl_candidate *c)
{
    bool exact;
    SL_TRY(schedule(s, c));
    SL_TRY(address_to_judge(s, &exact));
    SL_TRY(sl_plan_waits(s->p));
    SL_TRY(sl_plan_cost(s->p));
    s->is_built = exact;
    return SLUICE_OK;
}

sluice_status sl_search_judge(sl_search *s, const sl_candidate *c, sl_verdict *out)
{
    sl_verdict *v;
    SL_TRY(find_verdict(s, &s->judged, c, &v));
    if (!v->built) {
        bool failed = v->rejected;
        if (!failed) SL_TRY(pass_over(s, build_to_judge(s, c), &failed));
        v->built = v->tried = true;
        v->excess = failed ? SL_FAULT_BYTES : sl_search_excess(s);
        v->over = failed ? (1u << SL_TIER_COUNT) - 1 : tiers_over(s);
        v->fits = v->excess == 0;
        v->seconds = failed ? NO_SECONDS : s->p->totals.step_seconds;
    }
    *out = *v;
    return SLUICE_OK;
}

sluice_status sl_search_fits(sl_search *s, const sl_candidate *c, bool *fits)
{
    sl_verdict *v;
    SL_TRY(find_verdict(s, &s->judged, c, &v));
    if (!v->tried) {
        v->fits = false;
        if (!v->rejected) SL_TRY(sl_search_try(s, c, &v->fits));
        v->tried = true;
    }
    *fits = v->fits;
    return SLUICE_OK;
}

/* ---- peaks ---- */

/* `of`: bounds or measures what was scheduled. */
static sluice_status find_peaks(sl_search *s, const sl_candidate *c, sluice_status (*of)(sl_plan *), uint64_t *peak)
{
    bool there = s->is_scheduled && s->scheduled_rank == s->p->options.rank && same_candidate(&s->p->placement, c);
    if (!there) SL_TRY(schedule(s, c));
    s->is_built = false;
    SL_TRY(of(s->p));
    memcpy(peak, s->p->totals.peak, sizeof s->p->totals.peak);
    return SLUICE_OK;
}

static sluice_status find_peaks_or_none(sl_search *s, sl_verdict *v, const sl_candidate *c,
                                        sluice_status (*of)(sl_plan *))
{
    bool failed = v->rejected;
    if (!failed) SL_TRY(pass_over(s, find_peaks(s, c, of, v->peak), &failed));
    for (int t = 0; failed && t < SL_TIER_COUNT; t++) v->peak[t] = SL_FAULT_BYTES;
    return SLUICE_OK;
}

sluice_status sl_search_bound(sl_search *s, const sl_candidate *c, sl_verdict *out)
{
    sl_verdict *v;
    SL_TRY(find_verdict(s, &s->measured, c, &v));
    if (!v->bounded) SL_TRY(find_peaks_or_none(s, v, c, sl_plan_bound));
    v->bounded = true;
    *out = *v;
    return SLUICE_OK;
}

sluice_status sl_search_measure(sl_search *s, const sl_candidate *c, sl_verdict *out)
{
    sl_verdict *v;
    SL_TRY(find_verdict(s, &s->measured, c, &v));
    if (!v->measured) SL_TRY(find_peaks_or_none(s, v, c, sl_plan_measure));
    v->bounded = v->measured = true;
    *out = *v;
    return SLUICE_OK;
}
