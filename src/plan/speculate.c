/* speculate.c: which layers are updated on speculation.
 *
 * An update on the host that needs the norm of the whole gradient can begin when backward has ended. On speculation it
 * begins when the layer's own gradient is there: beside the rest of backward. That takes a second version of everything
 * that the update writes, on the host, so that layers speculate as far as the placement that was found leaves room.
 *
 * Some may be spared although there is room (sl_most_speculating): the host has backward for its updates and the next
 * forward as well. Those that wait for the norm lie evenly between the others.
 *
 * What speculation saves, and what it costs to do the updates once more when a step was clipped or skipped after all, are
 * read off the clocks; from both follows up to which share of such steps it is worth while. The placement for speculation
 * remembers the one that is the best without it.
 *
 * With "auto" nobody has promised that steps are rarely clipped. A run that can change to the placement without speculation
 * at a price that it does not notice takes the fastest placement for speculation; a shorter one, or one whose host has no room
 * to change, takes a placement with which its steps are hardly longer if they all are clipped. */
#include <math.h>
#include <string.h>

#include "plan/place.h"

#define WORTH_SPECULATING 0.99 /* of the step without it, on "auto" */
#define MOST_WAITING      1.02 /* of the shortest step without it, on "auto": what a placement for it may take without */
#define MOST_LOST         0.01 /* of a run all of whose steps are clipped, on "auto": by finding out and changing its plan */
#define BETWEEN           8                               /* parts of the way between two placements */
#define MOST_FAILING      (3 * SL_SPECULATION_WINDOW / 4) /* clocks do not know what the kernels lose beside updates */
#define UNKNOWN_LIMIT     (SL_SPECULATION_WINDOW / 2)     /* asked for where it saves nothing by the clocks */

static bool has_sparse_rows(const sl_plan *p, int layer)
{
    for (int i = 0; i < p->graph->parameter_count; i++)
        if (p->graph->parameters[i].layer == layer && sl_parameter_is_compact(&p->graph->parameters[i])) return true;
    return false;
}

/* Rows of sparse tables come and go around each step. Where updates take turns with the kernels of backward there is
 * nothing to hide behind. */
bool sl_may_speculate(const sl_plan *p, int layer)
{
    const sl_plan_options *o = &p->options;
    bool asked = o->update == SL_UPDATE_MODE_AUTO || o->update == SL_UPDATE_MODE_SPECULATIVE;
    if (o->update == SL_UPDATE_MODE_AUTO && p->machine.kernels_take_turns) return false;
    if (!asked || !o->training || o->early_updates) return false;
    const sl_layer_place *place = &p->layers[layer];
    bool in_memory = place->state == SL_TIER_HOST && place->parameters != SL_TIER_DISK &&
                     place->waiting == SL_TIER_HOST && place->gradients != SL_TIER_DISK;
    return in_memory && !has_sparse_rows(p, layer);
}

int sl_search_most_speculating(sl_search *s, const sl_candidate *c)
{
    int count = 0;
    sl_search_place(s, c);
    for (int i = 0; i < s->p->graph->layer_count; i++) count += sl_may_speculate(s->p, i);
    return sl_most_speculating(count, c->everywhere);
}

static sluice_status fits_all(sl_search *s, const sl_candidate *c, bool *fits)
{
    *fits = true;
    for (int i = 0; i < s->kind_count && *fits; i++) {
        s->p->options.rank = s->kinds[i];
        SL_TRY(sl_search_try(s, c, fits));
    }
    return SLUICE_OK;
}

/* The most layers, up to `all`, that there is room for on every rank; by halving. */
static sluice_status find_most(sl_search *s, sl_candidate *c, int all)
{
    int enough = 0, too_many = all + 1;
    bool fits;
    c->speculating = all;
    SL_TRY(fits_all(s, c, &fits));
    if (fits) enough = all;
    while (!fits && too_many - enough > 1) {
        bool middle_fits;
        c->speculating = enough + (too_many - enough) / 2;
        SL_TRY(fits_all(s, c, &middle_fits));
        if (middle_fits)
            enough = c->speculating;
        else
            too_many = c->speculating;
    }
    c->speculating = enough;
    return SLUICE_OK;
}

/* Of the window's steps: with a share f of them that fail, a step saves `gain` and loses f * `redo`. */
static int limit_of(double gain, double redo)
{
    if (gain <= 0 || redo <= 0) return UNKNOWN_LIMIT;
    double limit = ceil(SL_SPECULATION_WINDOW * gain / redo);
    return limit > MOST_FAILING ? MOST_FAILING : (int)limit;
}

static void remember_waiting(const sl_candidate *best, double seconds, sl_candidate *c)
{
    memcpy(c->waiting_layers, best->layers, sizeof c->waiting_layers);
    c->waiting_prefetch = best->prefetch;
    c->waiting_seconds = seconds;
}

sl_candidate sl_candidate_waiting(const sl_candidate *c)
{
    sl_candidate waiting = { .prefetch = c->waiting_prefetch };
    memcpy(waiting.layers, c->waiting_layers, sizeof waiting.layers);
    return waiting;
}

/* Expected seconds of a step with a placement, on the rank that owns most. */
static sluice_status clock_placement(sl_search *s, const sl_candidate *c, double *seconds)
{
    s->p->options.rank = s->kinds[s->heaviest];
    SL_TRY(sl_search_build(s, c));
    *seconds = s->p->totals.step_seconds;
    return SLUICE_OK;
}

/* With as many layers of a placement on speculation as there is room for, a quarter spared or none; *seconds: of the best. */
static sluice_status speculate_as_placed(sl_search *s, double least, sl_candidate *found, double *seconds)
{
    const sl_candidate waits = *found;
    double without, with;
    SL_TRY(clock_placement(s, &waits, &without));
    *seconds = without;
    for (int everywhere = 0; everywhere < 2; everywhere++) {
        sl_candidate c = waits;
        c.everywhere = everywhere == 1;
        SL_TRY(find_most(s, &c, sl_search_most_speculating(s, &c)));
        if (c.speculating == 0) return SLUICE_OK;
        SL_TRY(clock_placement(s, &c, &with));
        c.speculation_gain = without - with;
        c.speculation_limit = limit_of(c.speculation_gain, s->p->segments[SL_SEGMENT_REDO].seconds);
        const bool first = found->speculating == 0;
        if (with > (first ? least * without : WORTH_SPECULATING * *seconds)) continue;
        *found = c;
        *seconds = with;
    }
    return SLUICE_OK;
}

/* All that are updated on the host, or three quarters of them. The host holds second versions of these: nothing goes to the disk
 * to make room for them. */
static sluice_status search_speculating(sl_search *s, bool everywhere, sl_candidate *found, bool *fits)
{
    const sl_candidate low = s->low, high = s->high;
    s->low.speculating = s->high.speculating = s->p->graph->layer_count;
    s->low.everywhere = s->high.everywhere = everywhere;
    for (int k = SL_SAVING_DISK_STATE; k <= SL_SAVING_DISK_ACTIVATIONS; k++) s->high.layers[k] = s->low.layers[k];
    sluice_status st = sl_search_all(s, found, fits);
    s->low = low;
    s->high = high;
    return st;
}

/* `part` of BETWEEN parts of the way from one placement to another, made to fit. */
static sluice_status search_between(sl_search *s, const sl_candidate *from, const sl_candidate *to, int part,
                                    sl_candidate *found, bool *fits)
{
    const sl_candidate *near = s->near;
    sl_candidate middle = *from;
    for (int k = 0; k < SL_SAVING_COUNT; k++) middle.layers[k] += (to->layers[k] - from->layers[k]) * part / BETWEEN;
    s->near = &middle;
    s->as_near = true;
    sluice_status st = search_speculating(s, to->everywhere, found, fits);
    s->as_near = false;
    s->near = near;
    return st;
}

/* What was found so far. */
typedef struct speculation {
    sl_candidate *found;
    double seconds; /* of a step with it */
    double waiting; /* the shortest that is known without speculation, in any arrangement */
} speculation;

/* A run that is clipped often stops to speculate, and then has the step of its placement without: on "auto" that must be hardly
 * longer than it could be. */
static bool may_wait(const sl_search *s, const speculation *x, double without)
{
    return s->p->options.update != SL_UPDATE_MODE_AUTO || without <= MOST_WAITING * x->waiting;
}

uint64_t sl_plan_carried_bytes(const sl_plan *p)
{
    const sluice_graph *g = p->graph;
    uint64_t bytes = 0;
    for (int i = 0; i < g->parameter_count; i++) {
        const uint64_t tensors = 1 + (uint64_t)(g->parameters[i].trainable ? p->options.state_slots : 0);
        const int64_t runs = sl_plan_owned_count(p, i, p->options.rank);
        for (int64_t k = 0; k < runs; k++)
            bytes += (uint64_t)sl_plan_owned(p, i, p->options.rank, k).count * sizeof(float) * tensors;
    }
    return bytes;
}

/* A run so long that, clipped from its first step to its last, it would not notice what the plan that was built last costs
 * it: a first window of its steps without what speculation saves, and the change to the placement that waits. The host holds
 * the state on its way beside that plan. */
static bool may_change(const sl_search *s, const speculation *x, double without)
{
    const sl_plan_options *o = &s->p->options;
    const uint64_t bytes = sl_plan_carried_bytes(s->p), room = o->budget[SL_TIER_HOST];
    if (o->update != SL_UPDATE_MODE_AUTO || o->budget_together > 0) return false;
    if (bytes > room || s->p->totals.peak[SL_TIER_HOST] > room - bytes) return false;
    const double window = SL_SPECULATION_WINDOW * (without - x->waiting),
                 change = (double)bytes / SL_CARRIED_PER_SECOND;
    return window + change <= MOST_LOST * x->waiting * (double)o->steps;
}

/* Takes a placement where it is faster and may be taken: for what its steps take without speculation, or with `changes` because
 * the run can change its plan. */
static sluice_status consider(sl_search *s, sl_candidate *c, speculation *x, bool changes, bool *may)
{
    sl_candidate waits = *c;
    double with, without;
    waits.speculating = 0;
    SL_TRY(clock_placement(s, &waits, &without));
    SL_TRY(clock_placement(s, c, &with));
    c->counts_on_change = !may_wait(s, x, without);
    *may = !c->counts_on_change || (changes && may_change(s, x, without));
    if (!*may || with > WORTH_SPECULATING * x->seconds) return SLUICE_OK;
    c->speculation_gain = without - with;
    c->speculation_limit = limit_of(c->speculation_gain, s->p->segments[SL_SEGMENT_REDO].seconds);
    *x->found = *c;
    x->seconds = with;
    return SLUICE_OK;
}

/* By exchanges from a placement, each with as many layers on speculation as it leaves room for. */
static sluice_status speculate_from(sl_search *s, sl_candidate c, speculation *x)
{
    sl_candidate waits;
    bool may;
    s->p->options.rank = s->kinds[s->heaviest];
    s->speculates = true;
    sluice_status st = sl_search_improve(s, &c);
    s->speculates = false;
    SL_TRY(st);
    waits = c;
    waits.speculating = 0;
    SL_TRY(fits_all(s, &waits, &may));
    if (!may) return SLUICE_OK;
    SL_TRY(find_most(s, &c, sl_search_most_speculating(s, &c)));
    return c.speculating > 0 ? consider(s, &c, x, true, &may) : SLUICE_OK;
}

static bool same_savings(const sl_candidate *a, const sl_candidate *b)
{
    return memcmp(a->layers, b->layers, sizeof a->layers) == 0;
}

/* From the placement that waits, and from others that the search for it came to. */
static sluice_status speculate_in_part(sl_search *s, const sl_candidate *first, const sl_candidate *ends, int count,
                                       speculation *x)
{
    sluice_status st = speculate_from(s, *first, x);
    for (int i = 0; i < count && st == SLUICE_OK; i++) {
        bool again = same_savings(&ends[i], first);
        for (int k = 0; k < i; k++) again = again || same_savings(&ends[i], &ends[k]);
        if (!again) st = speculate_from(s, ends[i], x);
    }
    sl_verdicts_forget(&s->judged);
    return st;
}

/* A placement that was chosen for updates which wait for the norm keeps them few. With speculation more state may leave the
 * device, and more activations stay. Where that may not be taken, a placement between the two may: the farthest from `first`,
 * by halving. *fits: the host has room for second versions of all that are updated there, or of all but the quarter that is
 * spared. */
static sluice_status place_far(sl_search *s, const sl_candidate *first, bool everywhere, speculation *x, bool *fits)
{
    sl_candidate end, middle;
    bool may, between;
    SL_TRY(search_speculating(s, everywhere, &end, fits));
    if (!*fits) return SLUICE_OK;
    SL_TRY(consider(s, &end, x, true, &may));
    int near = 0, far = may ? 1 : BETWEEN;
    while (far - near > 1) {
        const int part = (near + far) / 2;
        SL_TRY(search_between(s, first, &end, part, &middle, &between));
        if (between) SL_TRY(consider(s, &middle, x, false, &may));
        *(between && may ? &near : &far) = part;
    }
    return SLUICE_OK;
}

/* Where the host has no room for all of it, it may have for some. Nearly the same options tell which way was the best. */
static sluice_status place_for_speculation(sl_search *s, speculation *x)
{
    const sl_candidate first = *x->found;
    const int end_count = s->end_count;
    sl_candidate ends[SL_IMPROVED];
    bool fits = false;
    memcpy(ends, s->ends, sizeof ends);
    for (int everywhere = 0; everywhere < 2; everywhere++)
        if (s->near == NULL || s->near->everywhere == (everywhere == 1))
            SL_TRY(place_far(s, &first, everywhere == 1, x, &fits));
    return fits ? SLUICE_OK : speculate_in_part(s, &first, ends, end_count, x);
}

sluice_status sl_search_speculate(sl_search *s, sl_candidate *found)
{
    const double least = s->p->options.update == SL_UPDATE_MODE_AUTO ? WORTH_SPECULATING : INFINITY;
    const double known = s->p->options.waiting_seconds;
    const sl_candidate best = *found;
    speculation x = { .found = found };
    double waiting;
    if (sl_search_most_speculating(s, found) == 0) return SLUICE_OK;
    SL_TRY(clock_placement(s, found, &waiting));
    x.waiting = known > 0 ? fmin(waiting, known) : waiting;
    SL_TRY(speculate_as_placed(s, least, found, &x.seconds));
    /* where the host is full already, or nearly the same options had no use for it, that finds nothing better */
    const bool elsewhere = !sl_uses_disk(found) && (s->near == NULL || s->near->speculating > 0);
    if (elsewhere) SL_TRY(place_for_speculation(s, &x));
    if (found->speculating > 0) remember_waiting(&best, waiting, found);
    s->p->options.rank = s->kinds[s->heaviest];
    SL_TRY(sl_search_settle(s, found));
    s->p->placement = *found;
    return SLUICE_OK;
}

/* Kept on the host of a layer that is updated there. */
static uint64_t host_bytes(const sl_plan *p, const sl_layer_place *place)
{
    int of[2 + SL_MAX_STATE_SLOTS] = { place->master, place->remainder };
    uint64_t bytes = 0;
    for (int k = 0; k < SL_MAX_STATE_SLOTS; k++) of[2 + k] = place->slots[k];
    for (int k = 0; k < 2 + SL_MAX_STATE_SLOTS; k++)
        if (of[k] >= 0 && p->buffers[of[k]].tier == SL_TIER_HOST) bytes += p->buffers[of[k]].bytes;
    return bytes;
}

void sl_plan_count_speculation(sl_plan *p)
{
    sl_plan_totals *t = &p->totals;
    double kept = 0, elements = 0;
    t->speculating_layers = 0;
    t->speculation_bytes = 0;
    t->speculation_gain = p->placement.speculation_gain;
    t->speculation_limit = p->placement.speculation_limit;
    t->waiting_seconds = p->placement.waiting_seconds;
    t->redo_seconds = p->segments[SL_SEGMENT_REDO].seconds;
    for (int i = 0; i < p->buffer_count; i++)
        if (p->buffers[i].kind == SL_BUFFER_TWIN) t->speculation_bytes += p->buffers[i].bytes;
    for (int i = 0; i < p->graph->layer_count; i++) {
        const sl_layer_place *place = &p->layers[i];
        t->speculating_layers += place->speculates;
        if (place->state != SL_TIER_HOST || place->master < 0) continue;
        kept += (double)host_bytes(p, place);
        elements += (double)(sl_cuts_state(p) ? sl_shard_elements(&place->shards, p->options.rank)
                                              : p->graph->layers[i].element_count);
    }
    t->host_bytes_per_parameter = elements > 0 ? kept / elements : 0;
}
