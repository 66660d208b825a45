/* place.c: where everything lives.
 *
 * A placement says to how many layers each memory saving is applied (sl_saving). Savings are rows: where the bytes go
 * that leave the device, how many layers there are to apply it to, and what the settings leave of that: an explicit
 * setting fixes the number, "auto" leaves it free. place_search.c looks for the numbers; this file applies them to the
 * layers, takes one placement for all ranks, and refuses what does not fit with every permitted saving. */
#include "plan/place.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/bytes.h"

/* ---- a placement applied ---- */

static bool owns_state(const sl_plan *p, const sl_usage *u, int layer)
{
    return p->options.training && u->last_gradient_node[layer] >= 0 && p->graph->layers[layer].element_count > 0;
}

/* Activations are saved from the first layer on: those wait longest for their backward. The last layer's backward
 * follows its forward at once: dropping what it needs would save nothing. */
static sl_activation_mode activations_at(int position, int last, const sl_candidate *c)
{
    bool recompute = position < c->layers[SL_SAVING_RECOMPUTE], offload = position < c->layers[SL_SAVING_OFFLOAD];
    if (position < 0 || position == last) return SL_ACT_KEEP;
    if (recompute) return offload ? SL_ACT_RECOMPUTE_OFFLOAD : SL_ACT_RECOMPUTE;
    return offload ? SL_ACT_OFFLOAD : SL_ACT_KEEP;
}

/* State and parameters leave from the last layer upward: the first layers' updates end last and have the least time to
 * hide. Sums over micro-batches stay on the device while there is room: sent once, they cross the link once. */
void sl_place_apply(sl_plan *p, const sl_usage *u, const sl_candidate *c)
{
    int states = 0, gradients = 0, parameters = 0;
    p->level_count = u->level_count;
    for (int i = p->graph->layer_count - 1; i >= 0; i--) {
        sl_layer_place *place = &p->layers[i];
        int position = u->position[i];
        place->level = position < 0 ? -1 : sl_level_at(u, position);
        place->activations = activations_at(position, u->order_count - 1, c);
        place->parameters = place->state = place->gradients = SL_TIER_DEVICE;
        if (p->graph->layers[i].element_count == 0) continue;
        if (parameters++ < c->layers[SL_SAVING_HOST_PARAMETERS]) place->parameters = SL_TIER_HOST;
        if (!owns_state(p, u, i)) continue;
        bool follow = place->parameters == SL_TIER_HOST && p->options.state == SLUICE_PLACE_AUTO;
        if (states++ < c->layers[SL_SAVING_HOST_STATE] || follow) place->state = SL_TIER_HOST;
        if (place->state == SL_TIER_HOST && gradients++ < c->layers[SL_SAVING_HOST_GRADIENTS])
            place->gradients = SL_TIER_HOST;
    }
}

static void count_savings(sl_plan *p, const sl_usage *u)
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

/* ---- savings, and what the settings permit of them ---- */

/* All but the last layer: activations_at. */
static int activation_layers(const sl_search *s)
{
    return s->u->order_count - 1;
}

/* The layers, from the last one upward, that hold `ratio` of the optimizer state. */
static int layers_of_state(const sl_search *s, double ratio)
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

static int state_layers(const sl_search *s)
{
    return layers_of_state(s, 1.0);
}

static int parameter_layers(const sl_search *s)
{
    int count = 0;
    for (int i = 0; i < s->p->graph->layer_count; i++) count += s->p->graph->layers[i].element_count > 0;
    return count;
}

/* The fewest and the most layers that a saving may be applied to. */
typedef struct bounds {
    int low, high;
    bool forbidden; /* a setting says never */
} bounds;

/* `all`: layers that the saving can be applied to; `room`: the tier that it needs exists. */
static bounds recompute_bounds(const sl_search *s, int all, bool room)
{
    const sl_plan_options *o = &s->p->options;
    (void)room;
    if (o->activations == SLUICE_ACTIVATIONS_AUTO) return (bounds){ 0, o->training ? all : 0, false };
    int fixed = o->activations == SLUICE_ACTIVATIONS_RECOMPUTE ? all : 0;
    return (bounds){ fixed, fixed, o->training && o->activations == SLUICE_ACTIVATIONS_KEEP };
}

/* Asked for where there is no room, it is taken all the same, and the plan is refused. */
static bounds offload_bounds(const sl_search *s, int all, bool room)
{
    const sl_plan_options *o = &s->p->options;
    if (o->activations == SLUICE_ACTIVATIONS_AUTO) return (bounds){ 0, o->training && room ? all : 0, false };
    bool offload = o->activations == SLUICE_ACTIVATIONS_OFFLOAD ||
                   (o->activations == SLUICE_ACTIVATIONS_RECOMPUTE && o->offload_checkpoints);
    return (bounds){ offload ? all : 0, offload ? all : 0, false };
}

static bounds state_bounds(const sl_search *s, int all, bool room)
{
    const sl_plan_options *o = &s->p->options;
    int fixed = room ? layers_of_state(s, o->state_ratio) : 0;
    if (o->state == SLUICE_PLACE_HOST) return (bounds){ fixed, fixed, false };
    if (o->state == SLUICE_PLACE_DEVICE) return (bounds){ 0, 0, o->training };
    return (bounds){ 0, room ? all : 0, false };
}

/* A single micro-batch is not summed. */
static bounds gradient_bounds(const sl_search *s, int all, bool room)
{
    return (bounds){ 0, room && s->p->options.accumulation > 1 ? all : 0, false };
}

static bounds parameter_bounds(const sl_search *s, int all, bool room)
{
    const sl_plan_options *o = &s->p->options;
    int most = room ? all : 0;
    if (o->parameters == SLUICE_PLACE_DEVICE) return (bounds){ 0, 0, true };
    return (bounds){ o->parameters == SLUICE_PLACE_HOST ? most : 0, most, false };
}

static const struct {
    sl_tier to;                        /* where goes what leaves the device; DEVICE: nothing does */
    int (*layers)(const sl_search *s); /* that it can be applied to */
    bounds (*permitted)(const sl_search *s, int all, bool room);
    const char *permit; /* the setting that would permit it where one forbids it */
} savings[SL_SAVING_COUNT] = {
    [SL_SAVING_RECOMPUTE] = { .to = SL_TIER_DEVICE,
                              .layers = activation_layers,
                              .permitted = recompute_bounds,
                              .permit = "activation_checkpointing.mode \"recompute\" or \"auto\"" },
    [SL_SAVING_OFFLOAD] = { .to = SL_TIER_HOST, .layers = activation_layers, .permitted = offload_bounds },
    [SL_SAVING_HOST_STATE] = { .to = SL_TIER_HOST,
                               .layers = state_layers,
                               .permitted = state_bounds,
                               .permit = "zero_optimization.offload_optimizer.device \"cpu\"" },
    [SL_SAVING_HOST_GRADIENTS] = { .to = SL_TIER_HOST, .layers = state_layers, .permitted = gradient_bounds },
    [SL_SAVING_HOST_PARAMETERS] = { .to = SL_TIER_HOST,
                                    .layers = parameter_layers,
                                    .permitted = parameter_bounds,
                                    .permit = "zero_optimization.offload_param.device \"cpu\"" },
};

static void set_bounds(sl_search *s)
{
    const sl_plan_options *o = &s->p->options;
    for (int k = 0; k < SL_SAVING_COUNT; k++) {
        bounds b = savings[k].permitted(s, savings[k].layers(s), o->budget[savings[k].to] > 0);
        s->low.layers[k] = b.low;
        s->high.layers[k] = b.high;
        s->forbidden[k] = b.forbidden;
    }
    s->low.prefetch = s->high.prefetch = o->prefetch < 0 ? 1 : o->prefetch;
}

/* ---- refusal ---- */

/* Adds to the text in `out`, behind `separator` where there is some already; what has no room is cut off. */
static void append(char *out, size_t room, const char *separator, const char *format, ...)
{
    size_t used = strlen(out);
    va_list args;
    if (used > 0) used += (size_t)snprintf(out + used, room - used, "%s", separator);
    if (used >= room) return;
    va_start(args, format);
    vsnprintf(out + used, room - used, format, args);
    va_end(args);
}

static void describe_lack(char *out, size_t room, const char *key, uint64_t budget, uint64_t needed)
{
    char needs[32], has[32], missing[32];
    append(out, room, "; ", "%s has %llu bytes (%s), needs %llu (%s): %llu bytes (%s) are missing", key,
           (unsigned long long)budget, sl_format_bytes(budget, has, sizeof has), (unsigned long long)needed,
           sl_format_bytes(needed, needs, sizeof needs), (unsigned long long)(needed - budget),
           sl_format_bytes(needed - budget, missing, sizeof missing));
}

/* What else than more memory would help. */
static void advise(char *out, size_t room, const sl_search *s)
{
    const sl_plan_options *o = &s->p->options;
    const struct {
        bool applies;
        const char *text;
    } advice[] = {
        { o->levels > 0 && o->levels < s->u->order_count, "more memory.levels" },
        { o->rank_count > 1 && o->stage < 3, "a higher zero_optimization.stage" },
        { o->rank_count > 1 && o->keep_gathered, "no memory.keep_gathered" },
        { o->partition == SLUICE_PARTITION_WEIGHTED, "other zero_optimization.partition_weights" },
        { o->partition == SLUICE_PARTITION_OWNER && o->rank_count > 1, "zero_optimization.partition \"layer\"" },
        { o->evaluation && o->training, "no evaluation during the run" },
        { true, "a smaller train_micro_batch_size_per_gpu" },
    };
    for (int k = 0; k < SL_SAVING_COUNT; k++)
        if (s->forbidden[k]) append(out, room, ", ", "%s", savings[k].permit);
    for (int t = 0; t < SL_TIER_COUNT; t++)
        if (o->budget[t] == 0) append(out, room, ", ", "a %s budget (%s)", sl_tiers[t].name, sl_tiers[t].setting);
    for (size_t i = 0; i < sizeof advice / sizeof advice[0]; i++)
        if (advice[i].applies) append(out, room, ", ", "%s", advice[i].text);
}

/* Of the plan that was built last: with every saving, or with the placement that fits another rank. */
static sluice_status refuse(const sl_search *s)
{
    const sl_plan_options *o = &s->p->options;
    const uint64_t *peak = s->p->totals.peak;
    char who[48] = "", lack[768] = "", help[512] = "";
    const char *raise = NULL;
    if (o->rank_count > 1) snprintf(who, sizeof who, "rank %d of %d: ", o->rank, o->rank_count);
    for (int t = 0; t < SL_TIER_COUNT; t++) {
        if (peak[t] <= o->budget[t]) continue;
        describe_lack(lack, sizeof lack, sl_tiers[t].setting, o->budget[t], peak[t]);
        if (raise == NULL) raise = sl_tiers[t].setting;
    }
    if (raise == NULL) {
        raise = "the memory limit of the job";
        describe_lack(lack, sizeof lack, "the memory this process may use", o->budget_together,
                      peak[SL_TIER_DEVICE] + peak[SL_TIER_HOST]);
    }
    advise(help, sizeof help, s);
    return sl_fail(SLUICE_ERR_NO_FIT,
                   "%sdoes not fit, even with every permitted saving: %s. What would help: raise %s, or %s", who, lack,
                   raise, help);
}

/* ---- all ranks ---- */

/* Up to so many ranks a placement is tried on each; beyond, on the heaviest and on the one that is planned for. */
#define CHECKED_RANKS 16

/* Both own as many elements of every layer: what fits one fits the other. */
static bool own_alike(const sl_plan *p, int a, int b)
{
    for (int i = 0; i < p->graph->layer_count; i++)
        if (sl_shard_elements(&p->layers[i].shards, a) != sl_shard_elements(&p->layers[i].shards, b)) return false;
    return true;
}

/* The first rank on which a placement does not fit, or -1. It fits `representative`. */
static sluice_status find_misfit(sl_search *s, const sl_candidate *c, int representative, int *misfit)
{
    *misfit = -1;
    if (s->p->options.rank_count > CHECKED_RANKS) return SLUICE_OK;
    for (int r = 0; r < s->p->options.rank_count && *misfit < 0; r++) {
        bool checked = own_alike(s->p, representative, r);
        for (int before = 0; before < r && !checked; before++) checked = own_alike(s->p, before, r);
        if (checked) continue;
        s->p->options.rank = r;
        SL_TRY(sl_search_build(s, c));
        if (sl_search_excess(s) > 0) *misfit = r;
    }
    return SLUICE_OK;
}

/* One placement for all ranks, because they must make the same collectives: sought on the rank that owns most, tried on
 * the others, and sought anew on one that it does not fit. Every rank comes to the same result. */
static sluice_status search_all(sl_search *s, sl_candidate *found, bool *fits)
{
    int representative = sl_plan_heaviest_rank(s->p), misfit = -1;
    for (int tries = 0; tries <= CHECKED_RANKS; tries++) {
        s->p->options.rank = representative;
        SL_TRY(sl_search_rank(s, found, fits));
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
    sl_search s = { .p = p, .u = u };
    sl_candidate found;
    bool fits = false;
    int rank = p->options.rank;
    set_bounds(&s);
    SL_TRY(search_all(&s, &found, &fits));
    if (fits && p->options.rank_count > 1) {
        p->options.rank = rank;
        SL_TRY(sl_search_build(&s, &found));
        fits = sl_search_excess(&s) == 0;
    }
    if (!fits) return refuse(&s);
    count_savings(p, u);
    return SLUICE_OK;
}
