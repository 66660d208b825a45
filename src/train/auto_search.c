/* auto_search.c: the search over what is left on "auto", by the cost model.
 *
 * First every stage, as the plan arranges the rest. Then the best of these, and the second where it is close, are improved axis
 * by axis in the order of the table: a value is kept where it makes the expected step clearly shorter. At last the lowest of the
 * stages with about the shortest step is taken, and of its arrangements the one with the fewest changes than which none is
 * clearly faster. No clock is read: the number of plans that are made follows from their sizes, so that every rank, and every
 * run, comes to the same answer. */
#include "train/auto_search.h"

#include <math.h>
#include <string.h>

#define CLEARLY    0.99 /* of the time before: what is worth another value */
#define AS_FAST    1.02 /* expected times of different stages are not better than that */
#define CLOSE      1.25 /* a second stage so near to the best is improved too */
#define FEW_NODES  512  /* of a graph whose every arrangement is searched from nothing: that takes a moment */
#define MOST_WORK  4e6  /* steps of plans built: some seconds */
#define WORK_MIXED 300  /* plans built for a placement that is searched for */

typedef struct search {
    const sl_auto_problem *problem;
    sl_auto_result *found;
    int judge;      /* the rank whose steps are compared: the one that owns most, the same on every rank */
    bool judged;    /* it is known: by the first plan that fits */
    double waiting; /* the shortest step without speculation so far; 0: none */
    double work;
} search;

static bool saves_memory(const sl_candidate *c)
{
    for (int k = 0; k < SL_SAVING_COUNT; k++)
        if (c->layers[k] > 0) return true;
    return false;
}

/* What a plan is, beside others. */
static void note_plan(search *s, const sl_plan *p, sl_auto_candidate *out)
{
    out->fits = true;
    out->seconds = p->totals.step_seconds;
    const double looked_for = p->placement.waiting_seconds;
    const double waiting = looked_for > 0 ? looked_for : p->totals.step_seconds;
    s->waiting = s->waiting > 0 ? fmin(s->waiting, waiting) : waiting;
    memcpy(out->peak, p->totals.peak, sizeof out->peak);
    out->placement = p->placement;
    out->levels = p->level_count;
    out->stages_parameters =
        p->totals.host_parameter_layers > 0 || (p->options.rank_count > 1 && p->options.stage == 3);
    s->work += (double)p->step_count * (saves_memory(&p->placement) ? WORK_MIXED : 1);
}

static int find_tried(const sl_auto_result *found, const sl_arrangement *a)
{
    for (int i = 0; i < found->count; i++)
        if (sl_arrangement_equal(&found->tried[i].arrangement, a)) return i;
    return -1;
}

static sluice_status plan_for(search *s, const sl_plan_options *o, const sl_candidate *near, sl_auto_candidate *out)
{
    const sl_auto_problem *problem = s->problem;
    bool several = problem->options->rank_count > 1; /* of one rank the refusal says what is needed */
    sl_plan_need need;
    sl_plan *plan;
    sluice_status st = sl_plan_attempt(problem->graph, problem->machine, o, near, &plan, several ? &need : NULL);
    const bool failed = st == SLUICE_ERR_FAILED && o->faults != NULL; /* which counts them */
    if (!failed) SL_TRY(st);
    if (plan != NULL)
        note_plan(s, plan, out);
    else if (failed || several)
        out->lacks = failed ? UINT64_MAX : sl_plan_lack(o, &need);
    if (plan == NULL) s->work += (double)WORK_MIXED * (double)problem->graph->node_count;
    if (plan != NULL && !s->judged) s->judge = sl_plan_heaviest_rank(plan);
    s->judged = s->judged || plan != NULL;
    sl_plan_destroy(plan);
    return SLUICE_OK;
}

/* Plans an arrangement, unless that was done; with a placement near that of another of the same stage, or NULL. *index: where it
 * is among the tried; -1: there is no room for more. */
static sluice_status try_arrangement(search *s, const sl_arrangement *a, const sl_candidate *near, int *index)
{
    sl_plan_options o = *s->problem->options;
    sl_auto_candidate c = { .arrangement = *a };
    *index = find_tried(s->found, a);
    if (*index >= 0 || s->found->count >= SL_AUTO_MOST) return SLUICE_OK;
    sl_arrangement_apply(a, s->problem->graph, &o);
    o.rank = s->judge;
    o.waiting_seconds = s->waiting;
    SL_TRY(plan_for(s, &o, near, &c));
    if (o.rank != s->judge) { /* the first one was planned for a rank that owns less */
        o.rank = s->judge;
        SL_TRY(plan_for(s, &o, near, &c));
    }
    *index = s->found->count;
    s->found->tried[s->found->count++] = c;
    return SLUICE_OK;
}

/* ---- the ways through the axes ---- */

static sluice_status try_stages(search *s)
{
    const sl_plan_options *o = s->problem->options;
    int64_t stages[SL_AXIS_CHOICES];
    sl_arrangement a;
    int index, count = 0;
    sl_arrangement_clear(&a);
    if (!sl_axis_is_open(SL_AXIS_STAGE, o)) return try_arrangement(s, &a, NULL, &index);
    count = sl_axis_choices(SL_AXIS_STAGE, s->problem->graph, o, NULL, stages);
    for (int i = 0; i < count && (i < 2 || s->work < MOST_WORK); i++) {
        a.values[SL_AXIS_STAGE] = stages[i];
        SL_TRY(try_arrangement(s, &a, NULL, &index));
    }
    return SLUICE_OK;
}

/* From candidate `at` on, axis by axis. */
static sluice_status improve(search *s, int at)
{
    const sl_plan_options *o = s->problem->options;
    const bool small = s->problem->graph->node_count <= FEW_NODES;
    for (int axis = 0; axis < SL_AXIS_COUNT; axis++) {
        int64_t values[SL_AXIS_CHOICES];
        const sl_auto_candidate from = s->found->tried[at];
        if (axis == SL_AXIS_STAGE || !sl_axis_is_open((sl_axis)axis, o)) continue;
        int count = sl_axis_choices((sl_axis)axis, s->problem->graph, o, &from, values);
        for (int i = 0; i < count && s->work < MOST_WORK; i++) {
            sl_arrangement a = from.arrangement;
            int index;
            a.values[axis] = values[i];
            SL_TRY(try_arrangement(s, &a, small ? NULL : &from.placement, &index));
            if (index < 0) return SLUICE_OK;
            const sl_auto_candidate *c = &s->found->tried[index];
            if (c->fits && c->seconds < CLEARLY * s->found->tried[at].seconds) at = index;
        }
    }
    return SLUICE_OK;
}

/* The fastest but for one; -1: none fits. */
static int fastest(const sl_auto_result *found, int besides)
{
    int best = -1;
    for (int i = 0; i < found->count; i++)
        if (i != besides && found->tried[i].fits && (best < 0 || found->tried[i].seconds < found->tried[best].seconds))
            best = i;
    return best;
}

static sluice_status search_all(search *s)
{
    SL_TRY(try_stages(s));
    int first = fastest(s->found, -1), second = fastest(s->found, first);
    if (first < 0) return SLUICE_OK;
    bool close = second >= 0 && s->found->tried[second].seconds < CLOSE * s->found->tried[first].seconds;
    SL_TRY(improve(s, first));
    return close ? improve(s, second) : SLUICE_OK;
}

/* ---- the choice ---- */

static int changes(const sl_auto_candidate *c)
{
    int count = 0;
    for (int axis = 0; axis < SL_AXIS_COUNT; axis++) count += c->arrangement.values[axis] != SL_AXIS_UNSET;
    return count;
}

static int64_t stage_of(const sl_auto_candidate *c)
{
    return c->arrangement.values[SL_AXIS_STAGE];
}

/* A lower stage keeps more on each rank and sends less. Within a stage the plans differ in less, and so do the errors of their
 * expected times. */
static int choose(const sl_auto_result *found)
{
    const int least = fastest(found, -1);
    if (least < 0) return -1;
    int best = least;
    for (int i = 0; i < found->count; i++) {
        const sl_auto_candidate *c = &found->tried[i], *b = &found->tried[best];
        if (!c->fits || c->seconds > AS_FAST * found->tried[least].seconds || stage_of(c) > stage_of(b)) continue;
        if (stage_of(c) < stage_of(b) || c->seconds < b->seconds) best = i;
    }
    const sl_auto_candidate shortest = found->tried[best];
    for (int i = 0; i < found->count; i++) {
        const sl_auto_candidate *c = &found->tried[i];
        const bool alike = c->fits && stage_of(c) == stage_of(&shortest) && CLEARLY * c->seconds <= shortest.seconds;
        if (alike && changes(c) < changes(&found->tried[best])) best = i;
    }
    return best;
}

/* What is refused: the stage that lacks least. A last and longer search may still find a plan for it. */
static sluice_status plan_nearest(search *s, sl_plan_options *options, sl_plan **out)
{
    sl_auto_result *found = s->found;
    int best = s->problem->tuned != NULL && found->count > 1; /* behind what was measured before */
    for (int i = best + 1; i < found->count; i++)
        if (found->tried[i].lacks < found->tried[best].lacks) best = i;
    sl_auto_candidate *c = &found->tried[best];
    sl_arrangement_apply(&c->arrangement, s->problem->graph, options);
    options->searched = true;
    sluice_status st = sl_plan_create_or_need(s->problem->graph, s->problem->machine, options, out, &found->need);
    options->searched = false;
    SL_TRY(st);
    note_plan(s, *out, c);
    found->chosen = best;
    return SLUICE_OK;
}

/* What was measured before is taken as long as it fits. */
static sluice_status try_tuned(search *s, bool *taken)
{
    int index;
    *taken = false;
    if (s->problem->tuned == NULL) return SLUICE_OK;
    SL_TRY(try_arrangement(s, s->problem->tuned, NULL, &index));
    *taken = s->found->tuned = s->found->tried[index].fits;
    s->found->chosen = *taken ? index : -1;
    return SLUICE_OK;
}

static sluice_status plan_chosen(const sl_auto_problem *problem, sl_plan_options *options, sl_auto_result *found,
                                 sl_plan **out)
{
    const sl_auto_candidate *c = &found->tried[found->chosen];
    sl_arrangement_apply(&c->arrangement, problem->graph, options);
    found->plain = !saves_memory(&c->placement) && (options->rank_count == 1 || options->stage == 0);
    return sl_plan_create_placed(problem->graph, problem->machine, options, &c->placement, out);
}

sluice_status sl_auto_search(const sl_auto_problem *problem, sl_plan_options *options, sl_auto_result *found,
                             sl_plan **out)
{
    search s = { .problem = problem, .found = found };
    bool taken;
    *found = (sl_auto_result){ .chosen = -1, .ranks = problem->options->rank_count };
    SL_TRY(try_tuned(&s, &taken));
    if (!taken) {
        SL_TRY(search_all(&s));
        found->chosen = choose(found);
    }
    if (found->chosen >= 0) return plan_chosen(problem, options, found, out);
    return plan_nearest(&s, options, out);
}

/* Whether a shorter one of the same stage is among the first `count` of the order. */
static bool has_stage(const sl_auto_result *found, const int *order, int count, int index)
{
    for (int i = 0; i < count; i++)
        if (found->tried[order[i]].arrangement.values[SL_AXIS_STAGE] ==
            found->tried[index].arrangement.values[SL_AXIS_STAGE])
            return true;
    return false;
}

/* The best of each stage comes first: more is learnt from these than from another bucket. */
static void show_stages_first(const sl_auto_result *found, int order[SL_AUTO_MOST])
{
    int shown = 1;
    for (int i = 1; i < found->count; i++) {
        int index = order[i];
        if (has_stage(found, order, shown, index)) continue;
        for (int k = i; k > shown; k--) order[k] = order[k - 1];
        order[shown++] = index;
    }
}

void sl_auto_order(const sl_auto_result *found, int order[SL_AUTO_MOST])
{
    for (int i = 0; i < found->count; i++) {
        const sl_auto_candidate *c = &found->tried[i];
        double time = i == found->chosen ? -1 : c->fits ? c->seconds : INFINITY;
        int at = i;
        for (; at > 0; at--) {
            const sl_auto_candidate *before = &found->tried[order[at - 1]];
            double other = order[at - 1] == found->chosen ? -1 : before->fits ? before->seconds : INFINITY;
            if (other <= time) break;
            order[at] = order[at - 1];
        }
        order[at] = i;
    }
    show_stages_first(found, order);
}
