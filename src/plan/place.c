/* place.c: where everything lives.
 *
 * A placement says to how many layers each memory saving is applied (sl_memory_saving). Savings are rows: where the bytes go
 * that leave the device, how many layers there are to apply it to, and what the settings leave of that: an explicit
 * setting fixes the number, "auto" leaves it free. place_search.c looks for the numbers; this file applies them to the
 * layers and takes one placement for all ranks. */
#include "plan/place.h"
#include "core/status.h"

#include <stdio.h>
#include <string.h>

/* ---- a placement applied ---- */

static bool owns_state(const sl_plan *p, const sl_usage *u, int layer)
{
    return p->options.training && u->last_gradient_node[layer] >= 0 && p->graph->layers[layer].element_count > 0;
}

static bool recomputes_at(const sl_usage *u, int position, const sl_candidate *c)
{
    const int first = sl_first_recomputed(u, c);
    return position >= first && position < first + c->layers[SL_SAVING_RECOMPUTE];
}

/* Activations are offloaded from the first layer on, and behind those recomputed: they wait longest for their backward. The
 * last layer's backward follows its forward at once: dropping what it needs would save nothing. */
static sl_activation_mode activations_at(const sl_usage *u, int position, const sl_candidate *c)
{
    bool recompute = recomputes_at(u, position, c), offload = position < c->layers[SL_SAVING_OFFLOAD];
    if (position < 0 || position == u->order_count - 1) return SL_ACT_KEEP;
    if (recompute) return offload ? SL_ACT_RECOMPUTE_OFFLOAD : SL_ACT_RECOMPUTE;
    return offload ? SL_ACT_OFFLOAD : SL_ACT_KEEP;
}

/* Of the layers behind the recomputed ones, the first so many; and those that are offloaded, which so have less to send,
 * unless all was asked to be. */
static bool drops_cheap_at(const sl_plan *p, const sl_usage *u, int position, const sl_candidate *c)
{
    const int first = sl_first_recomputed(u, c), behind = first + c->layers[SL_SAVING_RECOMPUTE];
    if (position < 0 || position == u->order_count - 1 || recomputes_at(u, position, c)) return false;
    if (u->cheap_bytes[u->order[position]] == 0) return false;
    if (position < c->layers[SL_SAVING_OFFLOAD]) return p->options.activations != SLUICE_ACTIVATIONS_OFFLOAD;
    return position >= behind && position < behind + c->layers[SL_SAVING_CHEAP];
}

static bool updates_whole_parameters(const sl_plan *p, const sl_usage *u, int layer)
{
    const sl_update_rule *rule = p->graph->nodes[u->update_node[layer]].attrs.update;
    return rule != NULL && sl_updates[rule->kind].whole_parameters;
}

/* Of the states on the host so many go on to the disk: the largest first, so that small ones are left, of which the host
 * holds as many as fit. Rules that need whole parameters stage whole layers, so that there the last ones go. */
static void send_states_on(sl_plan *p, const sl_usage *u, int count)
{
    const sl_layer *layers = p->graph->layers;
    for (; count > 0; count--) {
        int next = -1;
        for (int i = p->graph->layer_count - 1; i >= 0; i--) {
            if (!owns_state(p, u, i) || p->layers[i].state != SL_TIER_HOST) continue;
            bool larger = next >= 0 && layers[i].element_count > layers[next].element_count;
            if (next < 0 || (larger && !updates_whole_parameters(p, u, i))) next = i;
        }
        if (next < 0) return;
        p->layers[next].state = SL_TIER_DISK;
    }
}

int sl_most_speculating(int may, bool everywhere)
{
    return everywhere ? may : may - may / 4;
}

/* Those that wait for the norm lie evenly between the others: the host updates some during backward, and has the next forward
 * for the rest, each of which is there when forward comes to it. Were they the first layers, forward would wait for them; were
 * they the last ones, the host would have nothing to do when backward begins, and too much when it ends. */
static void choose_speculating(sl_plan *p, const sl_usage *u, const sl_candidate *c)
{
    int may = 0, at = 0;
    for (int i = 0; i < p->graph->layer_count; i++) {
        p->layers[i].speculates = owns_state(p, u, i) && sl_may_speculate(p, i);
        may += p->layers[i].speculates;
    }
    const int most = sl_most_speculating(may, c->everywhere);
    const int waiting = may - (c->speculating < most ? c->speculating : most);
    for (int i = p->graph->layer_count - 1; i >= 0; i--)
        if (p->layers[i].speculates) p->layers[i].speculates = (at++ * waiting + may / 2) % may >= waiting;
}

/* State and parameters leave from the last layer upward: the first layers' updates end last and have the least time to
 * hide. Sums over micro-batches stay on the device while there is room: sent once, they cross the link once. */
void sl_place_apply(sl_plan *p, const sl_usage *u, const sl_candidate *c)
{
    int states = 0, gradients = 0, parameters = 0, disk_parameters = 0, disk_gradients = 0;
    p->placement = *c;
    p->level_count = u->level_count;
    for (int i = p->graph->layer_count - 1; i >= 0; i--) {
        sl_layer_place *place = &p->layers[i];
        int position = u->position[i];
        place->level = position < 0 ? -1 : sl_level_at(u, position);
        place->activations = activations_at(u, position, c);
        place->cheap = drops_cheap_at(p, u, position, c);
        place->parameters = place->state = place->gradients = SL_TIER_DEVICE;
        place->waiting = SL_TIER_HOST;
        place->offloaded = position < c->layers[SL_SAVING_DISK_ACTIVATIONS] ? SL_TIER_DISK : SL_TIER_HOST;
        if (p->graph->layers[i].element_count == 0) continue;
        if (parameters++ < c->layers[SL_SAVING_HOST_PARAMETERS]) place->parameters = SL_TIER_HOST;
        if (place->parameters == SL_TIER_HOST && disk_parameters++ < c->layers[SL_SAVING_DISK_PARAMETERS])
            place->parameters = SL_TIER_DISK;
        if (!owns_state(p, u, i)) continue;
        bool follow = place->parameters != SL_TIER_DEVICE && p->options.state == SLUICE_PLACE_AUTO;
        if (states++ < c->layers[SL_SAVING_HOST_STATE] || follow) place->state = SL_TIER_HOST;
        if (place->state == SL_TIER_HOST && gradients++ < c->layers[SL_SAVING_HOST_GRADIENTS])
            place->gradients = SL_TIER_HOST;
        if (place->state == SL_TIER_DEVICE) continue;
        if (place->gradients != SL_TIER_DEVICE || disk_gradients++ >= c->layers[SL_SAVING_DISK_GRADIENTS]) continue;
        *(p->options.accumulation > 1 ? &place->gradients : &place->waiting) = SL_TIER_DISK;
    }
    send_states_on(p, u, c->layers[SL_SAVING_DISK_STATE]);
    choose_speculating(p, u, c);
    sl_plan_group(p, u, c);
}

static void count_savings(sl_plan *p, const sl_usage *u)
{
    sl_plan_totals *t = &p->totals;
    t->recomputed_groups = t->largest_group = t->recomputed_layers = t->cheap_layers = t->host_state_layers =
        t->host_parameter_layers = t->offloaded_layers = t->disk_state_layers = t->disk_parameter_layers =
            t->disk_gradient_layers = t->disk_activation_layers = 0;
    for (int i = 0; i < p->graph->layer_count; i++) {
        const sl_layer_place *place = &p->layers[i];
        if (sl_is_recomputed(place)) {
            int size = place->group_last - place->group_first + 1;
            t->recomputed_layers++;
            t->recomputed_groups += place->group_last == u->position[i];
            if (size > t->largest_group) t->largest_group = size;
        }
        t->cheap_layers += place->cheap;
        bool offloaded = place->activations == SL_ACT_OFFLOAD ||
                         (place->activations == SL_ACT_RECOMPUTE_OFFLOAD && place->group_last == u->position[i]);
        t->offloaded_layers += offloaded;
        t->disk_activation_layers += offloaded && place->offloaded == SL_TIER_DISK;
        t->host_state_layers += owns_state(p, u, i) && place->state != SL_TIER_DEVICE;
        t->disk_state_layers += owns_state(p, u, i) && place->state == SL_TIER_DISK;
        t->disk_gradient_layers +=
            owns_state(p, u, i) && (place->waiting == SL_TIER_DISK || place->gradients == SL_TIER_DISK);
        t->host_parameter_layers += place->parameters != SL_TIER_DEVICE;
        t->disk_parameter_layers += place->parameters == SL_TIER_DISK;
    }
    sl_plan_count_speculation(p);
}

/* ---- savings, and what the settings permit of them ---- */

/* All but the last layer: activations_at. */
static int activation_layers(const sl_search *s)
{
    return s->u->order_count - 1;
}

/* The same, of a graph in which some node is cheap. */
static int cheap_layers(const sl_search *s)
{
    for (int i = 0; i < activation_layers(s); i++)
        if (s->u->cheap_bytes[s->u->order[i]] > 0) return activation_layers(s);
    return 0;
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
} bounds;

/* Of a saving that needs no other tier: free on "auto", all where its mode is asked for, none in any other. */
static bounds mode_bounds(const sl_search *s, int all, sluice_activations mode)
{
    const sl_plan_options *o = &s->p->options;
    if (o->activations == SLUICE_ACTIVATIONS_AUTO) return (bounds){ 0, o->training ? all : 0 };
    int fixed = o->activations == mode ? all : 0;
    return (bounds){ fixed, fixed };
}

/* `all`: layers that the saving can be applied to; `room`: the tier that it needs exists. */
static bounds recompute_bounds(const sl_search *s, int all, bool room)
{
    (void)room;
    return mode_bounds(s, all, SLUICE_ACTIVATIONS_RECOMPUTE);
}

static bounds cheap_bounds(const sl_search *s, int all, bool room)
{
    (void)room;
    return mode_bounds(s, all, SLUICE_ACTIVATIONS_SELECTIVE);
}

static int group_steps(const sl_search *s)
{
    return activation_layers(s) > 1 ? SL_GROUP_STEPS : 0;
}

/* Free where layers may be recomputed, unless the number of groups is given. */
static bounds group_bounds(const sl_search *s, int all, bool room)
{
    const sl_plan_options *o = &s->p->options;
    bool recomputes = o->activations == SLUICE_ACTIVATIONS_AUTO || o->activations == SLUICE_ACTIVATIONS_RECOMPUTE;
    (void)room;
    return (bounds){ 0, o->training && recomputes && o->checkpoints == 0 ? all : 0 };
}

/* Asked for where there is no room, it is taken all the same, and the plan is refused. */
static bounds offload_bounds(const sl_search *s, int all, bool room)
{
    const sl_plan_options *o = &s->p->options;
    if (o->activations == SLUICE_ACTIVATIONS_AUTO) return (bounds){ 0, o->training && room ? all : 0 };
    bool recomputes = o->activations == SLUICE_ACTIVATIONS_RECOMPUTE || o->activations == SLUICE_ACTIVATIONS_SELECTIVE;
    bool offload = o->activations == SLUICE_ACTIVATIONS_OFFLOAD || (recomputes && o->offload_checkpoints);
    return (bounds){ offload ? all : 0, offload ? all : 0 };
}

static bounds state_bounds(const sl_search *s, int all, bool room)
{
    const sl_plan_options *o = &s->p->options;
    int fixed = room ? layers_of_state(s, o->state_ratio) : 0;
    if (o->state == SLUICE_PLACE_HOST || o->state == SLUICE_PLACE_DISK) return (bounds){ fixed, fixed };
    if (o->state == SLUICE_PLACE_DEVICE) return (bounds){ 0, 0 };
    return (bounds){ 0, room ? all : 0 };
}

/* A single micro-batch is not summed. */
static bounds gradient_bounds(const sl_search *s, int all, bool room)
{
    return (bounds){ 0, room && s->p->options.accumulation > 1 ? all : 0 };
}

static bounds parameter_bounds(const sl_search *s, int all, bool room)
{
    const sl_plan_options *o = &s->p->options;
    int most = room ? all : 0;
    if (o->parameters == SLUICE_PLACE_DEVICE) return (bounds){ 0, 0 };
    bool fixed = o->parameters == SLUICE_PLACE_HOST || o->parameters == SLUICE_PLACE_DISK;
    return (bounds){ fixed ? most : 0, most };
}

/* The disk is reached through the host: without one there is nothing to stage in. */
static bool reaches_disk(const sl_search *s, bool room)
{
    return room && s->p->options.budget[SL_TIER_HOST] > 0;
}

static bounds disk_bounds(const sl_search *s, sluice_place told, int all, bool room)
{
    int most = reaches_disk(s, room) && (told == SLUICE_PLACE_AUTO || told == SLUICE_PLACE_DISK) ? all : 0;
    return (bounds){ told == SLUICE_PLACE_DISK ? most : 0, most };
}

static bounds disk_state_bounds(const sl_search *s, int all, bool room)
{
    return disk_bounds(s, s->p->options.state, all, room);
}

static bounds disk_parameter_bounds(const sl_search *s, int all, bool room)
{
    return disk_bounds(s, s->p->options.parameters, all, room);
}

/* Where an update waits for nothing but its gradient, that does not wait. Sums that all ranks need whole stay in memory. */
static bounds disk_gradient_bounds(const sl_search *s, int all, bool room)
{
    const sl_plan_options *o = &s->p->options;
    if (o->rank_count > 1 && o->stage == 0 && o->accumulation > 1) return (bounds){ 0, 0 };
    bool may = o->state == SLUICE_PLACE_AUTO || o->state == SLUICE_PLACE_DISK;
    return (bounds){ 0, reaches_disk(s, room) && may && o->training && !o->early_updates ? all : 0 };
}

static bounds disk_activation_bounds(const sl_search *s, int all, bool room)
{
    return disk_bounds(s, s->p->options.offload_to, s->p->options.training ? all : 0, room);
}

static const struct {
    sl_tier to;                        /* where goes what leaves the device; DEVICE: nothing does */
    int (*layers)(const sl_search *s); /* that it can be applied to */
    bounds (*permitted)(const sl_search *s, int all, bool room);
} savings[SL_SAVING_COUNT] = {
    [SL_SAVING_RECOMPUTE] = { .to = SL_TIER_DEVICE, .layers = activation_layers, .permitted = recompute_bounds },
    [SL_SAVING_GROUPS] = { .to = SL_TIER_DEVICE, .layers = group_steps, .permitted = group_bounds },
    [SL_SAVING_OFFLOAD] = { .to = SL_TIER_HOST, .layers = activation_layers, .permitted = offload_bounds },
    [SL_SAVING_HOST_STATE] = { .to = SL_TIER_HOST, .layers = state_layers, .permitted = state_bounds },
    [SL_SAVING_HOST_GRADIENTS] = { .to = SL_TIER_HOST, .layers = state_layers, .permitted = gradient_bounds },
    [SL_SAVING_HOST_PARAMETERS] = { .to = SL_TIER_HOST, .layers = parameter_layers, .permitted = parameter_bounds },
    [SL_SAVING_CHEAP] = { .to = SL_TIER_DEVICE, .layers = cheap_layers, .permitted = cheap_bounds },
    [SL_SAVING_DISK_STATE] = { .to = SL_TIER_DISK, .layers = state_layers, .permitted = disk_state_bounds },
    [SL_SAVING_DISK_PARAMETERS] = { .to = SL_TIER_DISK,
                                    .layers = parameter_layers,
                                    .permitted = disk_parameter_bounds },
    [SL_SAVING_DISK_GRADIENTS] = { .to = SL_TIER_DISK, .layers = state_layers, .permitted = disk_gradient_bounds },
    [SL_SAVING_DISK_ACTIVATIONS] = { .to = SL_TIER_DISK,
                                     .layers = activation_layers,
                                     .permitted = disk_activation_bounds },
};

static void set_bounds(sl_search *s)
{
    const sl_plan_options *o = &s->p->options;
    for (int k = 0; k < SL_SAVING_COUNT; k++) {
        bounds b = savings[k].permitted(s, savings[k].layers(s), o->budget[savings[k].to] > 0);
        s->low.layers[k] = b.low;
        s->high.layers[k] = b.high;
    }
    s->low.prefetch = s->high.prefetch = o->prefetch < 0 ? 1 : o->prefetch;
}

/* ---- all ranks ---- */

/* A placement is sought anew at most so often. */
#define SOUGHT_RANKS 16

/* Both own as many elements of every layer: what fits one fits the other. */
static bool own_alike(const sl_plan *p, int a, int b)
{
    for (int i = 0; i < p->graph->layer_count; i++)
        if (sl_shard_elements(&p->layers[i].shards, a) != sl_shard_elements(&p->layers[i].shards, b)) return false;
    return true;
}

static bool is_new_kind(const sl_search *s, int rank)
{
    for (int i = 0; i < s->kind_count; i++)
        if (own_alike(s->p, s->kinds[i], rank)) return false;
    return true;
}

/* One of each kind of ranks, in order; of more kinds than there is room for the first and the heaviest. The same on
 * every rank. */
static void find_kinds(sl_search *s)
{
    int heaviest = sl_plan_heaviest_rank(s->p);
    for (int r = 0; r < s->p->options.rank_count && s->kind_count < SL_RANK_KINDS; r++)
        if (is_new_kind(s, r)) s->kinds[s->kind_count++] = r;
    if (is_new_kind(s, heaviest)) s->kinds[SL_RANK_KINDS - 1] = heaviest;
    for (int i = 0; i < s->kind_count; i++)
        if (own_alike(s->p, s->kinds[i], heaviest)) s->heaviest = i;
}

/* The first rank on which a placement does not fit, or -1. It fits `representative`. */
static sluice_status find_misfit(sl_search *s, const sl_candidate *c, int representative, int *misfit)
{
    *misfit = -1;
    for (int i = 0; i < s->kind_count && *misfit < 0; i++) {
        if (own_alike(s->p, representative, s->kinds[i])) continue;
        bool fits;
        s->p->options.rank = s->kinds[i];
        SL_TRY(sl_search_try(s, c, &fits));
        if (!fits) *misfit = s->kinds[i];
    }
    return SLUICE_OK;
}

/* No placement keeps less from step to step than one with all parameters and state on the host: there the update needs no
 * second copy of parameters, and no rank a whole gradient beside its part. */
sluice_status sl_search_floor(sl_search *s, uint64_t *bytes)
{
    sl_candidate least = s->low;
    least.layers[SL_SAVING_HOST_STATE] = state_layers(s);
    least.layers[SL_SAVING_HOST_PARAMETERS] = parameter_layers(s);
    return sl_search_kept(s, &least, bytes);
}

/* More than there is of all tiers together: nothing need be searched. */
static sluice_status keeps_too_much(sl_search *s, bool *too_much)
{
    const sl_plan_options *o = &s->p->options;
    uint64_t kept, has = 0;
    *too_much = false;
    SL_TRY(sl_search_floor(s, &kept));
    for (int t = 0; t < SL_TIER_COUNT; t++) has += o->budget[t];
    if (o->budget[SL_TIER_DISK] > 0) return SLUICE_OK; /* at stages 1 and 2 less is kept there */
    *too_much = kept > has || (o->budget_together > 0 && kept > o->budget_together);
    return SLUICE_OK;
}

sluice_status sl_search_all(sl_search *s, sl_candidate *found, bool *fits)
{
    int representative = sl_plan_heaviest_rank(s->p), misfit = -1;
    bool too_much;
    *fits = false;
    s->p->options.rank = representative;
    SL_TRY(keeps_too_much(s, &too_much));
    if (too_much) return SLUICE_OK;
    for (int tries = 0; tries <= SOUGHT_RANKS; tries++) {
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

void sl_search_open(sl_search *s, sl_plan *p, const sl_usage *u)
{
    *s = (sl_search){ .p = p, .u = u };
    set_bounds(s);
    find_kinds(s);
}

/* With more kinds of ranks than are tried, this one may be of another: it speaks for itself then. */
static sluice_status build_own(sl_search *s, const sl_candidate *found, sl_plan_need *need, bool *fits)
{
    SL_TRY(sl_search_build(s, found));
    *fits = sl_search_excess(s) == 0;
    if (!*fits) sl_search_own_need(s, need);
    return SLUICE_OK;
}

/* So much is missing that no exchange between the tiers would find it. */
static bool is_far(const sl_plan *p, const sl_plan_need *need)
{
    uint64_t has = 0;
    for (int t = 0; t < SL_TIER_COUNT; t++) has += p->options.budget[t];
    return sl_plan_lack(&p->options, need) > has / 2;
}

/* The least that is needed, sought once. */
typedef struct least_need {
    bool known, fits;
    sl_plan_need need;
    sl_candidate found; /* where it fits */
} least_need;

static sluice_status find_need(sl_search *s, least_need *l)
{
    if (l->known) return SLUICE_OK;
    l->known = true;
    return sl_search_need(s, !s->p->options.brief, &l->need, &l->found, &l->fits);
}

/* A brief refusal comes before the search where much is missing, unless every saving together is clearly enough. */
static sluice_status foresee(sl_search *s, least_need *l, bool *far)
{
    bool enough;
    *far = false;
    s->p->options.rank = sl_plan_heaviest_rank(s->p);
    SL_TRY(sl_search_try(s, &s->high, &enough));
    if (enough) return SLUICE_OK;
    SL_TRY(find_need(s, l));
    *far = !l->fits && is_far(s->p, &l->need);
    return SLUICE_OK;
}

sluice_status sl_plan_place(sl_plan *p, const sl_usage *u)
{
    sl_search s;
    sl_candidate found;
    least_need l = { .known = false };
    bool fits = false, rebuild = p->options.rank_count > 1, far = p->options.searched;
    int rank = p->options.rank;
    p->options.searched = false;
    sl_search_open(&s, p, u);
    if (p->options.brief && !far) SL_TRY(foresee(&s, &l, &far));
    if (!far) SL_TRY(sl_search_all(&s, &found, &fits));
    if (!fits) {
        SL_TRY(find_need(&s, &l));
        found = l.found;
        fits = l.fits;
        rebuild = true;
    }
    if (fits) SL_TRY(sl_search_speculate(&s, &found));
    p->options.rank = rank;
    if (fits && rebuild) SL_TRY(build_own(&s, &found, &l.need, &fits));
    if (!fits) return sl_plan_refuse(&s, &l.need);
    count_savings(p, u);
    return SLUICE_OK;
}

sluice_status sl_plan_need_of(sl_plan *p, const sl_usage *u, sl_plan_need *out)
{
    sl_search s;
    sl_candidate found;
    bool fits;
    sl_search_open(&s, p, u);
    return sl_search_need(&s, false, out, &found, &fits);
}

/* Where it does not fit this rank after all, the search says so. */
sluice_status sl_plan_place_as(sl_plan *p, const sl_usage *u, const sl_candidate *found)
{
    sl_search s = { .p = p, .u = u };
    SL_TRY(sl_search_build(&s, found));
    if (sl_search_excess(&s) > 0) return sl_plan_place(p, u);
    count_savings(p, u);
    return SLUICE_OK;
}
