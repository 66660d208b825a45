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
 * read off the clocks; from both follows up to which share of such steps it is worth while.
 *
 * With "auto" nobody has promised that steps are rarely clipped. So a placement is taken with which steps are hardly longer if
 * they all are clipped. Where another one is faster for steps that are not, and the host has room to change between the two,
 * the run knows both: it begins with the first, and changes when it has seen that its steps are rarely clipped. A run so long
 * that it would not notice the price of changing back begins with the second. With "speculative", and where nothing is clipped,
 * the fastest placement is taken, and the other one is the best for updates that wait for the norm. */
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

/* Where updates take turns with the kernels of backward there is nothing to hide behind. */
static bool is_asked(const sl_plan *p)
{
    const sl_plan_options *o = &p->options;
    if (o->update == SL_UPDATE_MODE_AUTO && p->machine.kernels_take_turns) return false;
    const bool asked = o->update == SL_UPDATE_MODE_AUTO || o->update == SL_UPDATE_MODE_SPECULATIVE;
    return asked && o->training && !o->early_updates;
}

/* Rows of sparse tables come and go around each step. */
bool sl_may_speculate(const sl_plan *p, int layer)
{
    if (!is_asked(p)) return false;
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

static sl_other_placement as_other(const sl_candidate *c, sl_step_clock clock)
{
    sl_other_placement o = { .clock = clock, .prefetch = c->prefetch, .everywhere = c->everywhere };
    o.speculating = c->speculating;
    o.speculation_limit = c->speculation_limit;
    memcpy(o.layers, c->layers, sizeof o.layers);
    return o;
}

sl_step_clock sl_plan_step_clock(const sl_plan *p)
{
    const double seconds = p->totals.step_seconds;
    if (p->totals.speculating_layers == 0) return (sl_step_clock){ false, seconds, 0, seconds };
    return (sl_step_clock){ true, seconds, p->totals.redo_seconds, seconds + p->totals.speculation_gain };
}

static sl_candidate of_other(const sl_other_placement *o)
{
    sl_candidate c = { .prefetch = o->prefetch, .speculating = o->speculating, .everywhere = o->everywhere };
    memcpy(c.layers, o->layers, sizeof c.layers);
    c.speculation_limit = o->speculation_limit;
    c.speculation_gain = o->clock.without - o->clock.seconds;
    return c;
}

sl_candidate sl_plan_other_placement(const sl_plan *p)
{
    sl_candidate c = of_other(&p->placement.other);
    c.waiting_seconds = p->placement.waiting_seconds;
    c.other = as_other(&p->placement, sl_plan_step_clock(p));
    return c;
}

void sl_candidate_pair(const sl_candidate *c, sl_candidate *waiting, sl_candidate *fast)
{
    const sl_step_clock other = c->other.clock;
    *waiting = *fast = *c;
    if (other.seconds > 0) *(other.speculates && !c->counts_on_change ? fast : waiting) = of_other(&c->other);
}

/* Builds a placement on the rank that owns most, and reads the clock of its steps; `without`: of the same placement with nothing
 * on speculation. What follows from it is noted in the placement. */
static sluice_status clock_placement(sl_search *s, sl_candidate *c, double without, sl_step_clock *clock)
{
    s->p->options.rank = s->kinds[s->heaviest];
    SL_TRY(sl_search_build(s, c));
    const double seconds = s->p->totals.step_seconds, redo = s->p->segments[SL_SEGMENT_REDO].seconds;
    *clock = (sl_step_clock){ true, seconds, redo, without };
    c->speculation_gain = without - seconds;
    c->speculation_limit = limit_of(c->speculation_gain, redo);
    return SLUICE_OK;
}

static sluice_status clock_waiting(sl_search *s, const sl_candidate *c, double *seconds)
{
    sl_candidate waits = *c;
    waits.speculating = 0;
    s->p->options.rank = s->kinds[s->heaviest];
    SL_TRY(sl_search_build(s, &waits));
    *seconds = s->p->totals.step_seconds;
    return SLUICE_OK;
}

/* What was found so far. */
typedef struct speculation {
    double waiting;           /* seconds of the shortest step without speculation that is known, in any arrangement */
    sl_candidate *found;      /* with it clipped steps are hardly longer */
    sl_step_clock clock;      /* of that one */
    sl_candidate fast;        /* the fastest of those that a run may change to */
    sl_step_clock fast_clock; /* seconds 0: there is none */
} speculation;

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

/* A run that is clipped often stops to speculate, and then has the step of its placement without: on "auto" that must be hardly
 * longer than it could be. */
static bool may_wait(const sl_search *s, const speculation *x, double without)
{
    const sl_plan_options *o = &s->p->options;
    return o->update != SL_UPDATE_MODE_AUTO || o->rarely_fails || without <= MOST_WAITING * x->waiting;
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

bool sl_plan_may_carry(const sl_plan *p)
{
    const sl_plan_options *o = &p->options;
    const uint64_t host = p->totals.peak[SL_TIER_HOST] + sl_plan_carried_bytes(p);
    const uint64_t both = p->totals.peak[SL_TIER_DEVICE] + host;
    return host <= o->budget[SL_TIER_HOST] && (o->budget_together == 0 || both <= o->budget_together);
}

/* Whether a run may change to the placement that was built last, and back: the host holds the state on its way, and there are
 * enough steps for what it saves. Whether it does is decided by what is measured then. */
static bool may_change_to(const sl_search *s, const speculation *x)
{
    const sl_plan_options *o = &s->p->options;
    const double saved = x->clock.seconds - s->p->totals.step_seconds;
    const double change = (double)sl_plan_carried_bytes(s->p) / SL_CARRIED_PER_SECOND;
    return o->update == SL_UPDATE_MODE_AUTO && sl_plan_may_carry(s->p) && saved * (double)o->steps > change;
}

/* A run so long that, clipped from its first step to its last, it would not notice what beginning with the fastest placement costs
 * it: a first window of steps that are redone or do not speculate, and the change to the other placement, which is as good as
 * any for such steps. */
static bool may_begin_with_fast(const sl_search *s, const speculation *x)
{
    const double clipped = fmax(x->fast_clock.without, x->fast_clock.seconds + x->fast_clock.redo);
    const double window = SL_SPECULATION_WINDOW * (clipped - x->waiting);
    const double change = (double)sl_plan_carried_bytes(s->p) / SL_CARRIED_PER_SECOND;
    const double most = MOST_LOST * x->waiting * (double)s->p->options.steps;
    return may_wait(s, x, x->clock.without) && window + change <= most;
}

/* Takes the placement that was built last where it is faster: its step at most `worth` times the one that was found. */
static void take(const sl_search *s, const sl_candidate *c, sl_step_clock clock, double worth, speculation *x)
{
    if (clock.seconds > worth * x->clock.seconds) return;
    if (may_wait(s, x, clock.without)) {
        *x->found = *c;
        x->clock = clock;
    } else if ((x->fast_clock.seconds == 0 || clock.seconds < x->fast_clock.seconds) && may_change_to(s, x)) {
        x->fast = *c;
        x->fast_clock = clock;
    }
}

/* With as many layers of the placement that was found on speculation as there is room for, a quarter spared or none. */
static sluice_status speculate_as_placed(sl_search *s, double least, speculation *x)
{
    const sl_candidate waits = *x->found;
    const double without = x->clock.without;
    for (int everywhere = 0; everywhere < 2; everywhere++) {
        sl_candidate c = waits;
        sl_step_clock clock;
        c.everywhere = everywhere == 1;
        SL_TRY(find_most(s, &c, sl_search_most_speculating(s, &c)));
        if (c.speculating == 0) return SLUICE_OK;
        SL_TRY(clock_placement(s, &c, without, &clock));
        take(s, &c, clock, x->clock.speculates ? WORTH_SPECULATING : least, x);
    }
    return SLUICE_OK;
}

/* *may: steps of the placement may be what they are without speculation. */
static sluice_status consider(sl_search *s, sl_candidate *c, speculation *x, bool *may)
{
    sl_step_clock clock;
    double without;
    SL_TRY(clock_waiting(s, c, &without));
    SL_TRY(clock_placement(s, c, without, &clock));
    take(s, c, clock, WORTH_SPECULATING, x);
    *may = may_wait(s, x, without);
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
    return c.speculating > 0 ? consider(s, &c, x, &may) : SLUICE_OK;
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
    SL_TRY(consider(s, &end, x, &may));
    int near = 0, far = may ? 1 : BETWEEN;
    while (far - near > 1) {
        const int part = (near + far) / 2;
        SL_TRY(search_between(s, first, &end, part, &middle, &between));
        if (between) SL_TRY(consider(s, &middle, x, &may));
        *(between && may ? &near : &far) = part;
    }
    return SLUICE_OK;
}

/* Such a placement moves more in a step: near the fastest one, with parameters and activations that are fetched farther ahead. */
static sluice_status fetch_farther(sl_search *s, speculation *x)
{
    static const int ahead[] = { 2, 4 };
    const sl_candidate low = s->low, high = s->high, *near = s->near;
    const sl_candidate from = x->fast_clock.seconds > 0 ? x->fast : *x->found;
    const bool fetches = from.layers[SL_SAVING_HOST_PARAMETERS] > 0 || from.layers[SL_SAVING_OFFLOAD] > 0;
    sluice_status st = SLUICE_OK;
    if (s->p->options.prefetch >= 0 || from.speculating == 0 || !fetches) return SLUICE_OK;
    s->near = &from;
    for (size_t i = 0; i < sizeof ahead / sizeof ahead[0] && st == SLUICE_OK; i++) {
        sl_candidate c;
        bool fits, may;
        s->low.prefetch = s->high.prefetch = ahead[i];
        st = search_speculating(s, from.everywhere, &c, &fits);
        if (st == SLUICE_OK && fits) st = consider(s, &c, x, &may);
    }
    s->low = low;
    s->high = high;
    s->near = near;
    return st;
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
    return fits ? fetch_farther(s, x) : speculate_in_part(s, &first, ends, end_count, x);
}

/* Which of the two placements a run begins with, and the other one. `best`: the one that was found first. */
static void pair_placements(const sl_search *s, const sl_candidate *best, double waiting, speculation *x)
{
    sl_candidate *const c = x->found;
    c->other = (sl_other_placement){ .prefetch = 0 };
    if (x->fast_clock.seconds > 0 && x->fast_clock.seconds <= WORTH_SPECULATING * x->clock.seconds) {
        if (may_begin_with_fast(s, x)) {
            x->fast.other = as_other(c, x->clock);
            *c = x->fast;
            c->counts_on_change = true;
        } else {
            c->other = as_other(&x->fast, x->fast_clock);
        }
    } else if (c->speculating > 0) {
        c->other = as_other(best, (sl_step_clock){ false, waiting, 0, waiting });
    }
    c->waiting_seconds = waiting;
}

/* Layers could speculate, with this placement or with one that has more state on the host; and memory is what is short. */
static bool may_gain(const sl_search *s, const sl_candidate *found)
{
    int saved = 0;
    for (int k = 0; k < SL_SAVING_COUNT; k++) saved += found->layers[k];
    return is_asked(s->p) && saved > 0 && s->high.layers[SL_SAVING_HOST_STATE] > 0;
}

/* Of a placement that may gain by it. */
static sluice_status speculate(sl_search *s, sl_candidate *found)
{
    const double least = s->p->options.update == SL_UPDATE_MODE_AUTO ? WORTH_SPECULATING : INFINITY;
    const double known = s->p->options.waiting_seconds;
    const sl_candidate best = *found;
    double waiting;
    if (s->near != NULL) s->near = s->near_fast;
    SL_TRY(clock_waiting(s, found, &waiting));
    speculation x = { .found = found, .clock = { false, waiting, 0, waiting } };
    x.waiting = known > 0 ? fmin(waiting, known) : waiting;
    SL_TRY(speculate_as_placed(s, least, &x));
    /* where the host is full already, or nearly the same options had no use for it, that finds nothing better */
    const bool elsewhere = !sl_uses_disk(found) && (s->near == NULL || s->near->speculating > 0);
    if (elsewhere) SL_TRY(place_for_speculation(s, &x));
    pair_placements(s, &best, waiting, &x);
    s->p->options.rank = s->kinds[s->heaviest];
    return sl_search_settle(s, found);
}

sluice_status sl_search_speculate(sl_search *s, sl_candidate *found)
{
    found->counts_on_change = false; /* begun near another, it has what was found of that one */
    found->other.clock.seconds = found->waiting_seconds = 0;
    const sl_candidate best = *found;
    bool failed;
    if (!may_gain(s, found)) return SLUICE_OK;
    SL_TRY(sl_plan_pardon(s->p, speculate(s, found), &failed));
    if (failed) { /* it does without */
        *found = best;
        s->p->options.rank = s->kinds[s->heaviest];
        SL_TRY(sl_search_build(s, found));
    }
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
