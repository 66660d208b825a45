/* place.c: where everything lives.
 *
 * A placement says for how many layers each of five measures is taken: activations recomputed, activations offloaded,
 * optimizer state on the host, sums of gradients on the host, parameters on the host. Explicit settings fix an axis;
 * "auto" leaves it free. Candidates are judged by building them: schedule, address, waits and cost give exact peaks and
 * a predicted time. The order of preference is
 *
 *     1. everything resident;
 *     2. recomputation alone, in as few layers as fit: the device needs nobody else; unless the third is clearly
 * faster;
 *     3. any mix of measures: from a start upward, always the one that buys the most bytes per second lost, then what
 *        turned out to be superfluous is taken back; the best of several starts.
 *
 * A mix is then made faster where it can be: a little more of one measure in exchange for as much less of another
 * as still fits, as long as that shortens the predicted step and the planner's patience lasts.
 *
 * What does not fit with every measure taken is refused with the bytes that are missing. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/bytes.h"
#include "plan/passes.h"

enum { AXIS_RECOMPUTE, AXIS_OFFLOAD, AXIS_STATE, AXIS_GRADIENTS, AXIS_PARAMETERS, AXIS_COUNT };

typedef struct search {
    sl_plan *p;
    const sl_usage *u;
    sl_candidate low, high; /* bounds of every axis */
    int trials;             /* candidates that may still be built to make a placement faster */
} search;

#define TRIALS 300 /* about as many as it takes to find a placement of a deep model at all */

static int *axis(sl_candidate *c, int k)
{
    int *axes[AXIS_COUNT] = { &c->recompute, &c->offload, &c->host_state, &c->host_gradients, &c->host_parameters };
    return axes[k];
}

static bool owns_state(const sl_plan *p, const sl_usage *u, int layer)
{
    return p->options.training && u->last_gradient_node[layer] >= 0 && p->graph->layers[layer].element_count > 0;
}

static sl_activation_mode mode_at(int position, int last, const sl_candidate *c)
{
    /* The last layer's backward follows its forward at once: dropping what it needs would save nothing. */
    if (position == last) return SL_ACT_KEEP;
    bool recompute = position < c->recompute, offload = position < c->offload;
    if (recompute) return offload ? SL_ACT_RECOMPUTE_OFFLOAD : SL_ACT_RECOMPUTE;
    return offload ? SL_ACT_OFFLOAD : SL_ACT_KEEP;
}

static void apply_levels(sl_plan *p, const sl_usage *u)
{
    int levels = p->options.levels;
    if (levels <= 0 || levels > u->order_count) levels = u->order_count;
    for (int i = 0; i < p->graph->layer_count; i++) p->layers[i].level = -1;
    for (int i = 0; i < u->order_count; i++) p->layers[u->order[i]].level = (int)((int64_t)i * levels / u->order_count);
    p->level_count = levels;
}

/* State and parameters leave from the last layer upward: the first layers' updates end last and have the least time to
 * hide. Sums over micro-batches stay on the device while there is room: sent once, they cross the link once. */
void sl_place_apply(sl_plan *p, const sl_usage *u, const sl_candidate *c)
{
    int states = 0, gradients = 0, parameters = 0;
    apply_levels(p, u);
    for (int i = p->graph->layer_count - 1; i >= 0; i--) {
        sl_layer_place *place = &p->layers[i];
        int position = u->position[i];
        place->activations = position < 0 ? SL_ACT_KEEP : mode_at(position, u->order_count - 1, c);
        place->parameters = place->state = place->gradients = SL_TIER_DEVICE;
        if (p->graph->layers[i].element_count == 0) continue;
        if (parameters++ < c->host_parameters) place->parameters = SL_TIER_HOST;
        if (!owns_state(p, u, i)) continue;
        bool follow = place->parameters == SL_TIER_HOST && p->options.state == SLUICE_PLACE_AUTO;
        if (states++ < c->host_state || follow) place->state = SL_TIER_HOST;
        if (place->state == SL_TIER_HOST && gradients++ < c->host_gradients) place->gradients = SL_TIER_HOST;
    }
}

/* As far as addresses: enough to know whether it fits. */
static sluice_status lay_out(search *s, const sl_candidate *c)
{
    sl_place_apply(s->p, s->u, c);
    SL_TRY(sl_plan_schedule(s->p, s->u, c->prefetch));
    return sl_plan_address(s->p);
}

static sluice_status evaluate(search *s, const sl_candidate *c)
{
    SL_TRY(lay_out(s, c));
    SL_TRY(sl_plan_waits(s->p));
    return sl_plan_cost(s->p);
}

/* Bytes over budget, all tiers added up. 0: fits. */
static uint64_t excess(const sl_plan *p)
{
    uint64_t over = 0;
    for (int t = 0; t < SL_TIER_COUNT; t++)
        if (p->totals.peak[t] > p->options.budget[t]) over += p->totals.peak[t] - p->options.budget[t];
    uint64_t together = p->totals.peak[SL_TIER_DEVICE] + p->totals.peak[SL_TIER_HOST],
             room = p->options.budget_together;
    if (over == 0 && room > 0 && together > room) over = together - room;
    return over;
}

/* ---- bounds from the settings ---- */

static int state_layers_for_ratio(const search *s, double ratio)
{
    const sluice_graph *g = s->p->graph;
    double total = 0, taken = 0;
    int count = 0;
    for (int i = 0; i < g->layer_count; i++)
        if (owns_state(s->p, s->u, i)) total += (double)g->layers[i].element_count;
    for (int i = g->layer_count - 1; i >= 0 && taken < ratio * total; i--) {
        if (!owns_state(s->p, s->u, i)) continue;
        taken += (double)g->layers[i].element_count;
        count++;
    }
    return count;
}

static void set_bounds(search *s)
{
    const sl_plan_options *o = &s->p->options;
    bool host = o->budget[SL_TIER_HOST] > 0;
    int layers = s->u->order_count - 1, parameters = 0;
    for (int i = 0; i < s->p->graph->layer_count; i++) parameters += s->p->graph->layers[i].element_count > 0;
    int states = state_layers_for_ratio(s, 1.0);
    s->low = (sl_candidate){ .prefetch = o->prefetch < 0 ? 1 : o->prefetch };
    s->high = (sl_candidate){ .recompute = layers,
                              .offload = host ? layers : 0,
                              .host_state = host ? states : 0,
                              .host_gradients = host && o->accumulation > 1 ? states : 0,
                              .host_parameters = host ? parameters : 0,
                              .prefetch = s->low.prefetch };
    if (!o->training) s->high.recompute = s->high.offload = 0;
    if (o->activations != SLUICE_ACTIVATIONS_AUTO) {
        s->low.recompute = s->high.recompute = o->activations == SLUICE_ACTIVATIONS_RECOMPUTE ? layers : 0;
        bool offload = o->activations == SLUICE_ACTIVATIONS_OFFLOAD ||
                       (o->activations == SLUICE_ACTIVATIONS_RECOMPUTE && o->offload_checkpoints);
        s->low.offload = s->high.offload = offload ? layers : 0;
    }
    if (o->parameters == SLUICE_PLACE_HOST) s->low.host_parameters = s->high.host_parameters;
    if (o->parameters == SLUICE_PLACE_DEVICE) s->high.host_parameters = 0;
    if (o->state == SLUICE_PLACE_HOST)
        s->low.host_state = s->high.host_state = host ? state_layers_for_ratio(s, o->state_ratio) : 0;
    if (o->state == SLUICE_PLACE_DEVICE) s->high.host_state = 0;
}

/* ---- the search ---- */

/* Steps of an axis: every layer in small models, an eighth of them in deep ones. */
static int notch(const search *s, int k)
{
    sl_candidate high = s->high;
    int n = (*axis(&high, k) + 7) / 8;
    return *axis(&high, k) <= 16 || n < 1 ? 1 : n;
}

static bool advance(const search *s, sl_candidate *c, int k)
{
    sl_candidate high = s->high;
    int top = *axis(&high, k), *at = axis(c, k);
    int with_state = c->host_state > c->host_parameters ? c->host_state : c->host_parameters;
    if (k == AXIS_GRADIENTS && top > with_state) top = with_state; /* sums follow the state */
    if (*at >= top) return false;
    *at = *at + notch(s, k) < top ? *at + notch(s, k) : top;
    return true;
}

static sluice_status try_recomputation(search *s, sl_candidate *found, bool *fits)
{
    sl_candidate c = s->low;
    while (!*fits && advance(s, &c, AXIS_RECOMPUTE)) {
        SL_TRY(evaluate(s, &c));
        *fits = excess(s->p) == 0;
    }
    *found = c;
    return SLUICE_OK;
}

/* Moves *c along the axis that buys most; *moved is false when every axis is at its end. */
static sluice_status best_move(search *s, sl_candidate *c, bool *moved)
{
    uint64_t before = excess(s->p);
    double seconds = s->p->totals.step_seconds, best_score = -1, least_loss = 0;
    int best = -1, cheapest = -1;
    for (int k = 0; k < AXIS_COUNT; k++) {
        sl_candidate next = *c;
        if (!advance(s, &next, k)) continue;
        SL_TRY(evaluate(s, &next));
        double loss = s->p->totals.step_seconds - seconds;
        if (loss < 1e-9) loss = 1e-9;
        uint64_t after = excess(s->p);
        double score = after < before ? (double)(before - after) / loss : -1;
        if (score > best_score) best_score = score, best = k;
        if (cheapest < 0 || loss < least_loss) least_loss = loss, cheapest = k;
    }
    *moved = cheapest >= 0;
    if (!*moved) return SLUICE_OK;
    advance(s, c, best >= 0 ? best : cheapest);
    return evaluate(s, c);
}

/* Takes back what the final mix does not need. */
static sluice_status relax(search *s, sl_candidate *c)
{
    for (int k = 0; k < AXIS_COUNT; k++)
        for (;;) {
            sl_candidate next = *c, low = s->low;
            if (*axis(&next, k) <= *axis(&low, k)) break;
            (*axis(&next, k))--;
            SL_TRY(evaluate(s, &next));
            if (excess(s->p) > 0) break;
            *c = next;
        }
    return evaluate(s, c);
}

/* From `start` on until it fits. */
static sluice_status try_mix(search *s, const sl_candidate *start, sl_candidate *found, bool *fits)
{
    sl_candidate c = *start;
    bool moved = true;
    SL_TRY(evaluate(s, &c));
    *fits = excess(s->p) == 0;
    while (moved && !*fits) {
        SL_TRY(best_move(s, &c, &moved));
        *fits = moved && excess(s->p) == 0;
    }
    if (!*fits && s->p->options.prefetch < 0) {
        c = s->high;
        c.prefetch = 0;
        SL_TRY(evaluate(s, &c));
        *fits = excess(s->p) == 0;
    }
    *found = c;
    return *fits ? relax(s, found) : SLUICE_OK;
}

/* ---- exchange of measures ---- */

static sluice_status does_fit(search *s, const sl_candidate *c, bool *fits)
{
    s->trials--;
    SL_TRY(lay_out(s, c));
    *fits = excess(s->p) == 0;
    return SLUICE_OK;
}

/* Lowers axis k of *c as far as the plan still fits; less of a measure never needs less memory. */
static sluice_status lower(search *s, sl_candidate *c, int k)
{
    sl_candidate at = s->low, middle = *c;
    int below = *axis(&at, k) - 1, above = *axis(c, k); /* above is known to fit, below is not */
    while (above - below > 1 && s->trials > 0) {
        bool fits;
        *axis(&middle, k) = below + (above - below) / 2;
        SL_TRY(does_fit(s, &middle, &fits));
        *(fits ? &above : &below) = *axis(&middle, k);
    }
    *axis(c, k) = above;
    return SLUICE_OK;
}

/* More of axis `more`, as much less of axis `less` as fits; *seconds and *best change where that is faster. */
static sluice_status exchange(search *s, sl_candidate from, int more, int step, int less, sl_candidate *best,
                              double *seconds)
{
    sl_candidate high = s->high;
    int *at = axis(&from, more), top = *axis(&high, more), before = *axis(&from, less);
    bool fits;
    if (*at >= top) return SLUICE_OK;
    *at = *at + step < top ? *at + step : top;
    SL_TRY(does_fit(s, &from, &fits));
    if (!fits) return SLUICE_OK;
    SL_TRY(lower(s, &from, less));
    if (*axis(&from, less) == before) return SLUICE_OK; /* it bought nothing */
    SL_TRY(evaluate(s, &from));
    if (s->p->totals.step_seconds >= *seconds * 0.999) return SLUICE_OK;
    *seconds = s->p->totals.step_seconds;
    *best = from;
    return SLUICE_OK;
}

/* The best of all single exchanges, again and again. */
static sluice_status improve(search *s, sl_candidate *c)
{
    sl_candidate best = *c;
    double before, seconds = s->p->totals.step_seconds;
    s->trials = TRIALS;
    do {
        sl_candidate from = best;
        before = seconds;
        for (int more = 0; more < AXIS_COUNT; more++)
            for (int less = 0; less < AXIS_COUNT && s->trials > 0; less++) {
                if (more == less) continue;
                SL_TRY(exchange(s, from, more, 1, less, &best, &seconds));
                if (notch(s, more) > 1) SL_TRY(exchange(s, from, more, notch(s, more), less, &best, &seconds));
            }
    } while (seconds < before && s->trials > 0);
    *c = best;
    return evaluate(s, c);
}

/* ---- refusal ---- */

static size_t advise(char *out, size_t room, const search *s)
{
    const sl_plan_options *o = &s->p->options;
    const struct {
        bool applies;
        const char *text;
    } advice[] = {
        { o->training && o->activations == SLUICE_ACTIVATIONS_KEEP,
          "activation_checkpointing.mode \"recompute\" or \"auto\"" },
        { o->budget[SL_TIER_HOST] == 0, "a host budget (memory.host)" },
        { o->parameters == SLUICE_PLACE_DEVICE, "zero_optimization.offload_param.device \"cpu\"" },
        { o->training && o->state == SLUICE_PLACE_DEVICE, "zero_optimization.offload_optimizer.device \"cpu\"" },
        { o->levels > 0 && o->levels < s->u->order_count, "more memory.levels" },
        { o->rank_count > 1 && o->stage < 3, "a higher zero_optimization.stage" },
        { o->rank_count > 1 && o->keep_gathered, "no memory.keep_gathered" },
        { o->partition == SLUICE_PARTITION_WEIGHTED, "other zero_optimization.partition_weights" },
        { o->partition == SLUICE_PARTITION_OWNER && o->rank_count > 1, "zero_optimization.partition \"layer\"" },
        { o->evaluation && o->training, "no evaluation during the run" },
        { true, "a smaller train_micro_batch_size_per_gpu" },
    };
    size_t used = 0;
    for (size_t i = 0; i < sizeof advice / sizeof advice[0]; i++) {
        if (!advice[i].applies || used >= room) continue;
        int n = snprintf(out + used, room - used, "%s%s", used > 0 ? ", " : "", advice[i].text);
        used += n > 0 ? (size_t)n : 0;
    }
    return used;
}

/* "memory.device has 5 bytes (..), needs 8 (..): 3 bytes (..) are missing". Returns the characters written. */
static size_t describe_lack(char *out, size_t room, const char *key, uint64_t budget, uint64_t needed)
{
    char needs[32], has[32], missing[32];
    int n = snprintf(out, room, "%s has %llu bytes (%s), needs %llu (%s): %llu bytes (%s) are missing", key,
                     (unsigned long long)budget, sl_format_bytes(budget, has, sizeof has), (unsigned long long)needed,
                     sl_format_bytes(needed, needs, sizeof needs), (unsigned long long)(needed - budget),
                     sl_format_bytes(needed - budget, missing, sizeof missing));
    return n > 0 && (size_t)n < room ? (size_t)n : 0;
}

static sluice_status refuse(const search *s)
{
    const sl_plan_options *o = &s->p->options;
    const uint64_t *peak = s->p->totals.peak;
    char help[512] = "", text[768] = "";
    size_t used = 0;
    const char *raise = NULL;
    char who[48] = "";
    if (o->rank_count > 1) snprintf(who, sizeof who, "rank %d of %d: ", o->rank, o->rank_count);
    advise(help, sizeof help, s);
    for (int t = 0; t < SL_TIER_COUNT; t++) {
        if (peak[t] <= o->budget[t]) continue;
        if (used > 0 && used + 2 < sizeof text) memcpy(text + used, "; ", 3), used += 2;
        used += describe_lack(text + used, sizeof text - used, sl_tiers[t].setting, o->budget[t], peak[t]);
        if (raise == NULL) raise = sl_tiers[t].setting;
    }
    if (raise == NULL) {
        describe_lack(text, sizeof text, "the memory this process may use", o->budget_together,
                      peak[SL_TIER_DEVICE] + peak[SL_TIER_HOST]);
        raise = "the memory limit of the job";
    }
    return sl_fail(SLUICE_ERR_NO_FIT,
                   "%sdoes not fit, even with every permitted measure: %s. What would help: raise %s, or %s", who, text,
                   raise, help);
}

static void count_measures(sl_plan *p, const sl_usage *u)
{
    sl_plan_totals *t = &p->totals;
    t->recomputed_layers = t->host_state_layers = t->host_parameter_layers = t->offloaded_layers = 0;
    for (int i = 0; i < p->graph->layer_count; i++) {
        const sl_layer_place *place = &p->layers[i];
        t->recomputed_layers +=
            place->activations == SL_ACT_RECOMPUTE || place->activations == SL_ACT_RECOMPUTE_OFFLOAD;
        t->offloaded_layers += place->activations == SL_ACT_OFFLOAD || place->activations == SL_ACT_RECOMPUTE_OFFLOAD;
        t->host_state_layers += owns_state(p, u, i) && place->state == SL_TIER_HOST;
        t->host_parameter_layers += place->parameters == SL_TIER_HOST;
    }
}

/* ---- the best of several ways ---- */

/* Ways to a mix. Each measure is judged by what it buys at its turn, so the way decides which placements are met at
 * all. Activations that are sent away need room on the device while they leave and come: what is tight may not fit with
 * them although it does without. */
enum {
    FROM_NOTHING,  /* nothing taken, everything allowed */
    RECOMPUTED,    /* every layer recomputed, no activations sent */
    AND_SENT_AWAY, /* every layer recomputed, everything allowed */
    UPDATED_APART, /* all optimizer state on the host, everything allowed */
    WAYS
};
#define IMPROVED 3 /* the best of them are made faster */

/* *seconds: of a step, INFINITY where nothing that fits was found. */
static sluice_status try_way(search *s, int way, sl_candidate *found, double *seconds)
{
    const sl_candidate low = s->low, high = s->high;
    sl_candidate start = low;
    bool fits = false;
    if (way == RECOMPUTED || way == AND_SENT_AWAY) start.recompute = high.recompute;
    if (way == UPDATED_APART) start.host_state = high.host_state;
    *seconds = INFINITY;
    if (way != FROM_NOTHING && memcmp(&start, &low, sizeof start) == 0) return SLUICE_OK; /* no other than that */
    if (way == RECOMPUTED) {
        s->low.recompute = high.recompute;
        s->high.offload = low.offload;
    }
    sluice_status st = try_mix(s, &start, found, &fits);
    s->low = low;
    s->high = high;
    if (st == SLUICE_OK && fits && way == RECOMPUTED) st = relax(s, found); /* its bounds were others */
    if (fits) *seconds = s->p->totals.step_seconds;
    return st;
}

static int best_of(const double seconds[WAYS])
{
    int best = 0;
    for (int way = 1; way < WAYS; way++)
        if (seconds[way] < seconds[best]) best = way;
    return best;
}

/* The best that was found on any of them. */
static sluice_status find_mix(search *s, sl_candidate *found, bool *fits)
{
    sl_candidate c[WAYS];
    double seconds[WAYS], best = INFINITY;
    for (int way = 0; way < WAYS; way++) SL_TRY(try_way(s, way, &c[way], &seconds[way]));
    for (int i = 0; i < IMPROVED; i++) {
        int way = best_of(seconds);
        if (isinf(seconds[way])) break;
        seconds[way] = INFINITY; /* it had its turn */
        SL_TRY(evaluate(s, &c[way]));
        SL_TRY(improve(s, &c[way]));
        if (s->p->totals.step_seconds >= best) continue;
        best = s->p->totals.step_seconds;
        *found = c[way];
        *fits = true;
    }
    return *fits ? evaluate(s, found) : SLUICE_OK;
}

/* Recomputation moves nothing and needs no other memory: what is hardly faster is not worth that. */
#define WORTH_A_MIX 0.98

/* The best placement for the rank at hand. */
static sluice_status search_rank(search *s, sl_candidate *found, bool *fits)
{
    sl_candidate alone;
    bool alone_fits = false;
    *found = s->low;
    SL_TRY(evaluate(s, found));
    *fits = excess(s->p) == 0;
    if (*fits) return SLUICE_OK;
    SL_TRY(try_recomputation(s, &alone, &alone_fits));
    double seconds = s->p->totals.step_seconds;
    SL_TRY(find_mix(s, found, fits));
    if (!alone_fits || (*fits && s->p->totals.step_seconds < WORTH_A_MIX * seconds)) return SLUICE_OK;
    *found = alone;
    *fits = true;
    return evaluate(s, found);
}

/* ---- all ranks ---- */

/* Up to so many ranks a placement is tried on each; beyond, on the heaviest and on the one that is planned for. */
#define CHECKED_RANKS 16

static bool own_alike(const sl_plan *p, int a, int b)
{
    for (int i = 0; i < p->graph->layer_count; i++)
        if (sl_shard_elements(&p->layers[i].shards, a) != sl_shard_elements(&p->layers[i].shards, b)) return false;
    return true;
}

static bool is_checked(const sl_plan *p, int rank, int representative)
{
    for (int r = 0; r < rank; r++)
        if (own_alike(p, r, rank)) return true;
    return own_alike(p, representative, rank);
}

/* The first rank on which a placement does not fit, or -1. */
static sluice_status find_misfit(search *s, const sl_candidate *c, int representative, int *misfit)
{
    *misfit = -1;
    if (s->p->options.rank_count > CHECKED_RANKS) return SLUICE_OK;
    for (int r = 0; r < s->p->options.rank_count && *misfit < 0; r++) {
        if (is_checked(s->p, r, representative)) continue;
        s->p->options.rank = r;
        SL_TRY(evaluate(s, c));
        if (excess(s->p) > 0) *misfit = r;
    }
    return SLUICE_OK;
}

/* One placement for all ranks, because they must make the same collectives: sought on the rank that owns most, tried on
 * the others, and sought anew on one that it does not fit. Every rank comes to the same result. */
static sluice_status search_all(search *s, sl_candidate *found, bool *fits)
{
    int representative = sl_plan_heaviest_rank(s->p), misfit = -1;
    for (int tries = 0; tries <= CHECKED_RANKS; tries++) {
        s->p->options.rank = representative;
        SL_TRY(search_rank(s, found, fits));
        if (!*fits) return SLUICE_OK;
        SL_TRY(find_misfit(s, found, representative, &misfit));
        if (misfit < 0) return SLUICE_OK;
        representative = misfit;
    }
    *fits = false;
    return SLUICE_OK;
}

sluice_status sl_plan_place(sl_plan *p, const sl_usage *u)
{
    search s = { .p = p, .u = u };
    sl_candidate found;
    bool fits = false;
    int rank = p->options.rank;
    set_bounds(&s);
    SL_TRY(search_all(&s, &found, &fits));
    if (fits && p->options.rank_count > 1) {
        p->options.rank = rank;
        SL_TRY(evaluate(&s, &found));
        fits = excess(p) == 0;
    }
    if (!fits) return refuse(&s);
    count_measures(p, u);
    return SLUICE_OK;
}
