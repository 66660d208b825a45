/* place_need.c: the least memory that any placement needs.
 *
 * A goal (the device, the host, or both together) is made as small as the limits of the others allow: first from the
 * corners, where each saving is applied to as few or as many layers as the settings permit, then by changing one saving
 * at a time, or one against another. What counts of a placement is the rank that needs most.
 *
 * The number is told to people, who then give exactly that much. So it must not depend on the budget of the goal, a plan
 * with it must be found, and one with a byte less must not. The first two hold because a search that fails ends here:
 * what is found fits or is told. The last is settled by trying: the search with a byte less, again from what it finds,
 * until it finds nothing. */
#include "plan/place.h"

#define NO_LIMIT ((uint64_t)1 << 60)

/* A tier, or the memory that device and host are parts of. */
typedef enum {
    GOAL_DEVICE = SL_TIER_DEVICE,
    GOAL_HOST = SL_TIER_HOST,
    GOAL_DISK = SL_TIER_DISK,
    GOAL_SUM = SL_TIER_COUNT
} goal;
enum { GOAL_COUNT = GOAL_SUM + 1 };

typedef struct limits {
    uint64_t bytes[GOAL_COUNT];
} limits;

/* What a candidate needs: of each goal the most of any rank, and which that is. */
typedef struct standing {
    sl_candidate candidate;
    uint64_t peak[GOAL_COUNT], over; /* over the limits of all but the goal */
    int rank[GOAL_COUNT];
} standing;

/* ---- measuring ---- */

static void add_rank(const sl_verdict *v, standing *x)
{
    uint64_t sum = v->peak[SL_TIER_DEVICE] + v->peak[SL_TIER_HOST];
    for (int g = 0; g < GOAL_COUNT; g++) {
        uint64_t bytes = g == GOAL_SUM ? sum : v->peak[g];
        if (bytes <= x->peak[g]) continue;
        x->peak[g] = bytes;
        x->rank[g] = v->rank;
    }
}

static uint64_t bytes_over(const standing *x, const limits *l, int without)
{
    uint64_t over = 0;
    for (int g = 0; g < GOAL_COUNT; g++)
        if (g != without && x->peak[g] > l->bytes[g]) over += x->peak[g] - l->bytes[g];
    return over;
}

static bool is_better(const standing *a, const standing *b, goal g)
{
    return a->over != b->over ? a->over < b->over : a->peak[g] < b->peak[g];
}

/* Ranks are measured from the heaviest on, until it is clear that the candidate is no better than `than` (NULL: all of
 * them). Mostly the bytes that live at once say so: they are counted first, and nothing is packed. */
static sluice_status measure(sl_search *s, goal g, const limits *l, const sl_candidate *c, const standing *than,
                             standing *out)
{
    *out = (standing){ .candidate = *c };
    for (int i = 0; i < s->kind_count; i++) {
        sl_verdict v;
        standing least = *out;
        s->p->options.rank = s->kinds[(s->heaviest + i) % s->kind_count];
        if (than != NULL) {
            SL_TRY(sl_search_bound(s, c, &v));
            add_rank(&v, &least);
            least.over = bytes_over(&least, l, g);
            if (!is_better(&least, than, g)) {
                *out = least;
                break;
            }
        }
        SL_TRY(sl_search_measure(s, c, &v));
        add_rank(&v, out);
        out->over = bytes_over(out, l, g);
        if (than != NULL && !is_better(out, than, g)) break;
    }
    return SLUICE_OK;
}

/* ---- making it small ---- */

typedef struct descent {
    sl_search *s;
    goal goal;
    const limits *limits;
    standing best;
    bool any;   /* best is set */
    int trials; /* that are left */
} descent;

/* What was measured before is no trial. */
static sluice_status try_one(descent *d, const sl_candidate *c, const standing *than, standing *out)
{
    uint64_t before = d->s->work;
    SL_TRY(measure(d->s, d->goal, d->limits, c, than, out));
    d->trials -= d->s->work > before;
    return SLUICE_OK;
}

static sluice_status consider(descent *d, const sl_candidate *c, bool *better)
{
    standing x;
    *better = false;
    if (d->trials <= 0) return SLUICE_OK;
    SL_TRY(try_one(d, c, d->any ? &d->best : NULL, &x));
    *better = !d->any || is_better(&x, &d->best, d->goal);
    if (*better) d->best = x;
    d->any = true;
    return SLUICE_OK;
}

static int least_prefetch(const sl_search *s)
{
    return s->p->options.prefetch < 0 ? 0 : s->low.prefetch;
}

/* Savings at their ends, those with most savings first. The disk is used for all that may go there, or for none of it: its
 * savings have one bit of the mask. */
static sluice_status try_corners(descent *d)
{
    const sl_candidate *low = &d->s->low, *high = &d->s->high;
    for (int prefetch = least_prefetch(d->s); prefetch <= low->prefetch; prefetch++)
        for (int mask = (2 << SL_SAVING_DISK_STATE) - 1; mask >= 0; mask--) {
            sl_candidate c = { .prefetch = prefetch };
            bool again = false, better, any_disk = (mask >> SL_SAVING_DISK_STATE & 1) != 0;
            for (int k = 0; k < SL_SAVING_COUNT; k++) {
                const bool disk = k >= SL_SAVING_DISK_STATE, closed = low->layers[k] == high->layers[k];
                bool most = (mask >> (disk ? SL_SAVING_DISK_STATE : k) & 1) != 0;
                c.layers[k] = most ? high->layers[k] : low->layers[k];
                again = again || (!most && !disk && closed);
                any_disk = any_disk || (disk && !closed);
            }
            /* groups are of layers that are recomputed */
            again = again || !any_disk || (c.layers[SL_SAVING_GROUPS] > 0 && c.layers[SL_SAVING_RECOMPUTE] < 2);
            if (!again) SL_TRY(consider(d, &c, &better));
        }
    return SLUICE_OK;
}

/* *moved: some other number of layers of one saving is better. */
static sluice_status change_one(descent *d, int saving, bool *moved)
{
    int low = d->s->low.layers[saving], high = d->s->high.layers[saving], stride = sl_search_stride(d->s, saving);
    const int steps[] = { -1, 1, -stride, stride };
    for (int i = 0; i < 4; i++) {
        sl_candidate c = d->best.candidate;
        bool better;
        c.layers[saving] += steps[i];
        if (c.layers[saving] < low || c.layers[saving] > high || (i >= 2 && stride == 1)) continue;
        SL_TRY(consider(d, &c, &better));
        *moved = *moved || better;
    }
    return SLUICE_OK;
}

enum { FILLED = 4 }; /* savings that are lowered to fill the device */

/* Lowers a saving of *c as far as the limits hold, by halving. */
static sluice_status lower(descent *d, sl_candidate *c, int saving)
{
    int too_few = d->s->low.layers[saving] - 1, enough = c->layers[saving];
    const standing anything_over = { .over = 1 };
    standing x;
    while (enough - too_few > 1 && d->trials > 0) {
        int at = c->layers[saving] = too_few + (enough - too_few) / 2;
        SL_TRY(try_one(d, c, &anything_over, &x));
        if (x.over == 0)
            enough = at;
        else
            too_few = at;
    }
    c->layers[saving] = enough;
    return SLUICE_OK;
}

/* As much on the device as the limits allow: savings of *c are lowered one after the other, in an order. */
static sluice_status fill(descent *d, sl_candidate c, const int order[FILLED])
{
    bool better;
    for (int k = 0; k < FILLED; k++) SL_TRY(lower(d, &c, order[k]));
    return consider(d, &c, &better);
}

/* From what is within the limits. State follows parameters to the host: lowered first, it comes back with them. Then with all
 * that activations can free, of which as much is taken back at last as leaves no layer less on the device: offloaded, they are
 * the small change of what layers need. */
static sluice_status fill_device(descent *d)
{
    static const int orders[][FILLED] = {
        { SL_SAVING_HOST_STATE, SL_SAVING_HOST_PARAMETERS, SL_SAVING_HOST_GRADIENTS, SL_SAVING_OFFLOAD },
        { SL_SAVING_HOST_PARAMETERS, SL_SAVING_HOST_STATE, SL_SAVING_HOST_GRADIENTS, SL_SAVING_OFFLOAD },
        { SL_SAVING_HOST_GRADIENTS, SL_SAVING_HOST_STATE, SL_SAVING_HOST_PARAMETERS, SL_SAVING_OFFLOAD },
    };
    const sl_candidate from = d->best.candidate, *high = &d->s->high;
    if (d->goal == GOAL_DEVICE || !d->any || d->best.over > 0) return SLUICE_OK;
    for (size_t i = 0; i < sizeof orders / sizeof orders[0]; i++) SL_TRY(fill(d, from, orders[i]));
    for (int part = 2; part >= 0 && high->layers[SL_SAVING_OFFLOAD] > d->s->low.layers[SL_SAVING_OFFLOAD]; part--) {
        sl_candidate c = from;
        c.layers[SL_SAVING_OFFLOAD] = high->layers[SL_SAVING_OFFLOAD];
        c.layers[SL_SAVING_GROUPS] = high->layers[SL_SAVING_GROUPS] * part / 2;
        SL_TRY(fill(d, c, orders[0]));
    }
    return SLUICE_OK;
}

/* More of one saving, as much less of another as the limits allow. */
static sluice_status exchange(descent *d, int more, int by, int less, bool *moved)
{
    sl_candidate c = d->best.candidate;
    bool better;
    if (c.layers[more] + by > d->s->high.layers[more] || c.layers[less] == d->s->low.layers[less]) return SLUICE_OK;
    c.layers[more] += by;
    SL_TRY(lower(d, &c, less));
    SL_TRY(consider(d, &c, &better));
    *moved = *moved || better;
    return SLUICE_OK;
}

static sluice_status exchange_all(descent *d, bool *moved)
{
    for (int more = 0; more < SL_SAVING_COUNT; more++)
        for (int less = 0; less < SL_SAVING_COUNT && d->trials > 0; less++) {
            int stride = sl_search_stride(d->s, more);
            if (more == less) continue;
            SL_TRY(exchange(d, more, 1, less, moved));
            if (stride > 1) SL_TRY(exchange(d, more, stride, less, moved));
        }
    return SLUICE_OK;
}

/* Trials for a plan of so many steps: the work of all of them together is bounded, as planning a deep model takes
 * seconds. */
static int trials_for(const sl_search *s, bool exact)
{
    int most = exact ? 600 : 160, least = exact ? 160 : 64;
    int64_t trials = ((int64_t)most << 14) / (s->steps + 1);
    return trials > most ? most : trials < least ? least : (int)trials;
}

/* By single changes and exchanges, as long as they help and the trials last. */
static sluice_status descend(descent *d)
{
    bool moved = true;
    while (moved && d->trials > 0) {
        moved = false;
        for (int k = 0; k < SL_SAVING_COUNT; k++) SL_TRY(change_one(d, k, &moved));
        if (!moved) SL_TRY(exchange_all(d, &moved));
    }
    return SLUICE_OK;
}

/* The smallest peak of a goal within the limits of the others, from the corners or, with `from`, from there; out->over > 0:
 * nothing is within them. */
static sluice_status find_least(sl_search *s, bool exact, goal g, const limits *l, const standing *from, standing *out)
{
    sl_plan_options *o = &s->p->options;
    const sl_plan_options given = *o;
    descent d = { .s = s, .goal = g, .limits = l, .trials = trials_for(s, exact) };
    sluice_status st = SLUICE_OK;
    o->budget[SL_TIER_HOST] = 0; /* nothing is kept from being reused there: address.c */
    if (from != NULL) {
        d.best = *from;
        d.best.over = bytes_over(from, l, g);
        d.any = true;
    } else {
        st = try_corners(&d);
        if (st == SLUICE_OK) st = fill_device(&d);
    }
    if (st == SLUICE_OK) st = descend(&d);
    *o = given;
    *out = d.best;
    return st;
}

/* ---- settling it ---- */

static bool is_within(const standing *x, const limits *l)
{
    return bytes_over(x, l, -1) == 0;
}

/* What the search for the fastest placement finds within limits. */
static sluice_status search_within(sl_search *s, goal g, const limits *l, standing *out, bool *found)
{
    sl_plan_options *o = &s->p->options;
    const sl_plan_options given = *o;
    sl_candidate c;
    for (int t = 0; t < SL_TIER_COUNT; t++) o->budget[t] = l->bytes[t];
    o->budget_together = given.budget_together > 0 ? l->bytes[GOAL_SUM] : 0;
    *found = false;
    sluice_status st = sl_search_all(s, &c, found);
    o->budget[SL_TIER_HOST] = 0;
    if (st == SLUICE_OK && *found) st = measure(s, g, l, &c, NULL, out);
    *o = given;
    return st;
}

static sluice_status find_settled(sl_search *s, bool exact, goal g, const limits *l, standing *out);

/* Anything within limits, by all that a refusal at these limits would have tried: the search, the least of the host
 * beside a device so small, and the least of the device, settled, beside a host so small. */
static sluice_status find_within(sl_search *s, goal g, const limits *l, standing *out, bool *found)
{
    SL_TRY(search_within(s, g, l, out, found));
    if (*found || (g != GOAL_DEVICE && g != GOAL_HOST)) return SLUICE_OK;
    if (g == GOAL_HOST) SL_TRY(find_settled(s, true, GOAL_DEVICE, l, out));
    if (g == GOAL_DEVICE && l->bytes[GOAL_HOST] < NO_LIMIT) SL_TRY(find_least(s, true, GOAL_HOST, l, NULL, out));
    *found = (g == GOAL_HOST || l->bytes[GOAL_HOST] < NO_LIMIT) && is_within(out, l);
    return SLUICE_OK;
}

#define SETTLED 16 /* rounds; a search that still finds less after them is taken at its word */
/* Plan steps that may be scheduled for it, about a second's work: rounds of a deep model are whole searches. After that, too. */
#define SETTLED_WORK ((uint64_t)1 << 21)

/* Lowers *best until a byte less is refused. Here the limit of the goal is not looked at. */
static sluice_status settle(sl_search *s, goal g, limits l, standing *best)
{
    bool found = true;
    for (int round = 0; found && round < SETTLED && best->peak[g] > 0 && s->work < SETTLED_WORK; round++) {
        standing x;
        l.bytes[g] = best->peak[g] - 1;
        SL_TRY(find_within(s, g, &l, &x, &found));
        if (found) SL_TRY(find_least(s, true, g, &l, &x, best)); /* what is near to it may need still less */
    }
    return SLUICE_OK;
}

static sluice_status find_settled(sl_search *s, bool exact, goal g, const limits *l, standing *out)
{
    SL_TRY(find_least(s, exact, g, l, NULL, out));
    return exact && out->over == 0 ? settle(s, g, *l, out) : SLUICE_OK;
}

/* ---- all tiers ---- */

static limits given_limits(const sl_search *s)
{
    const sl_plan_options *o = &s->p->options;
    limits l = { { o->budget[SL_TIER_DEVICE], o->budget[SL_TIER_HOST], o->budget[SL_TIER_DISK],
                   o->budget_together > 0 ? o->budget_together : NO_LIMIT } };
    return l;
}

/* Says that a tier lacks what *x needs of it, and lifts the limit to that. */
static void lack(const standing *x, int tier, limits *l, sl_plan_need *need)
{
    if (x->peak[tier] <= l->bytes[tier]) return;
    need->bytes[tier] = l->bytes[tier] = x->peak[tier];
    need->rank[tier] = x->rank[tier];
}

/* The least of a goal beside what another was lifted to: *x is within that. It counts on where the corners lead to nothing
 * that is. */
static sluice_status find_beside(sl_search *s, bool exact, goal g, const limits *l, standing *x)
{
    const standing known = *x;
    SL_TRY(find_settled(s, exact, g, l, x));
    if (x->over == 0 || bytes_over(&known, l, g) > 0) return SLUICE_OK;
    SL_TRY(find_least(s, exact, g, l, &known, x));
    return exact ? settle(s, g, *l, x) : SLUICE_OK;
}

/* The device first, as what it needs no other memory can replace; then the host beside so much device; then the memory
 * that both are parts of. */
static sluice_status find_lacks(sl_search *s, bool exact, limits *l, sl_plan_need *need, standing *x)
{
    const limits no_host = { { l->bytes[SL_TIER_DEVICE], NO_LIMIT, l->bytes[SL_TIER_DISK], NO_LIMIT } };
    SL_TRY(find_least(s, exact, GOAL_DEVICE, &no_host, NULL, x));
    if (x->peak[SL_TIER_DEVICE] > l->bytes[SL_TIER_DEVICE]) {
        bool alone = bytes_over(x, l, GOAL_DEVICE) == 0;
        if (exact) SL_TRY(settle(s, GOAL_DEVICE, alone ? *l : no_host, x));
        lack(x, SL_TIER_DEVICE, l, need);
    }
    if (is_within(x, l)) return SLUICE_OK;
    if (x->peak[SL_TIER_HOST] > l->bytes[SL_TIER_HOST]) {
        const limits no_sum = { { l->bytes[SL_TIER_DEVICE], NO_LIMIT, l->bytes[SL_TIER_DISK], NO_LIMIT } };
        SL_TRY(find_beside(s, exact, GOAL_HOST, &no_sum, x));
        lack(x, SL_TIER_HOST, l, need);
    }
    if (is_within(x, l)) return SLUICE_OK;
    if (x->peak[GOAL_SUM] > l->bytes[GOAL_SUM]) {
        SL_TRY(find_beside(s, exact, GOAL_SUM, l, x));
        if (x->peak[GOAL_SUM] > l->bytes[GOAL_SUM]) need->together = l->bytes[GOAL_SUM] = x->peak[GOAL_SUM];
    }
    if (is_within(x, l)) return SLUICE_OK;
    SL_TRY(find_beside(s, exact, GOAL_DISK, l, x));
    lack(x, SL_TIER_DISK, l, need);
    return SLUICE_OK;
}

/* More of the device instead of the host: what that takes, where it does. */
static sluice_status find_alone(sl_search *s, const limits *given, sl_plan_need *need, standing *x, bool *fits)
{
    standing alone;
    SL_TRY(find_settled(s, true, GOAL_DEVICE, given, &alone));
    if (alone.over > 0) return SLUICE_OK;
    need->device_alone = alone.peak[SL_TIER_DEVICE];
    *fits = is_within(&alone, given);
    if (*fits) *x = alone;
    return SLUICE_OK;
}

/* s->steps, of the plan with every saving. */
static sluice_status count_steps(sl_search *s)
{
    sl_candidate all = s->high;
    sl_verdict v;
    all.prefetch = least_prefetch(s);
    s->p->options.rank = s->kinds[s->heaviest];
    SL_TRY(sl_search_bound(s, &all, &v));
    s->steps = s->p->step_count;
    return SLUICE_OK;
}

static sluice_status find_need(sl_search *s, bool exact, sl_plan_need *need, sl_candidate *found, bool *fits)
{
    limits l = given_limits(s);
    const limits given = l;
    standing x;
    *need = (sl_plan_need){ .together = 0 };
    SL_TRY(count_steps(s));
    s->work = 0;
    SL_TRY(find_lacks(s, exact, &l, need, &x));
    *fits = is_within(&x, &given);
    if (exact && need->bytes[SL_TIER_HOST] > 0) SL_TRY(find_alone(s, &given, need, &x, fits));
    *found = x.candidate;
    for (int t = 0; t < SL_TIER_COUNT; t++) {
        if (need->bytes[t] > 0) continue;
        need->bytes[t] = x.peak[t];
        need->rank[t] = x.rank[t];
    }
    return SLUICE_OK;
}

sluice_status sl_search_need(sl_search *s, bool exact, sl_plan_need *need, sl_candidate *found, bool *fits)
{
    sluice_status st = find_need(s, exact, need, found, fits);
    sl_verdicts_forget(&s->measured);
    SL_TRY(st);
    for (int t = 0; t < SL_TIER_COUNT; t++) /* no placement at all can be planned */
        if (need->bytes[t] >= SL_FAULT_BYTES) return sl_fail(SLUICE_ERR_FAILED, "%s", s->p->options.faults->first);
    return SLUICE_OK;
}

void sl_search_own_need(const sl_search *s, sl_plan_need *need)
{
    const limits l = given_limits(s);
    uint64_t sum = s->p->totals.peak[SL_TIER_DEVICE] + s->p->totals.peak[SL_TIER_HOST];
    *need = (sl_plan_need){ .together = 0 };
    for (int t = 0; t < SL_TIER_COUNT; t++) {
        need->bytes[t] = s->p->totals.peak[t];
        need->rank[t] = s->p->options.rank;
    }
    need->together = sum > l.bytes[GOAL_SUM] ? sum : 0;
}
