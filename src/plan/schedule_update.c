/* schedule_update.c: the end of a training step: the gradient's norm over all ranks, the update of what this rank owns,
 * and the new parameters' way to where the next step reads them. */
#include "core/bytes.h"
#include "core/norm_nodes.h"
#include "plan/schedule.h"

typedef struct norm_buffers {
    int result[SL_TIER_COUNT]; /* -1 where unused */
    sl_tier finish;            /* where the norm is put together */
} norm_buffers;

/* ---- norm ---- */

/* Leaves of elements `range` of a layer. */
static sl_piece leaf_piece(const sl_scheduler *s, int layer, sl_range range, int buffer)
{
    sl_range leaves = { range.first / SL_CUT_ELEMENTS, sl_ceil_div(range.count, SL_CUT_ELEMENTS) };
    return sl_plan_leaf_piece(s->p, layer, leaves, buffer);
}

static sluice_status need_leaves(sl_scheduler *s, sl_tier tier)
{
    uint64_t bytes = (uint64_t)s->p->kept_count * sizeof(double);
    if (s->leaves[tier] < 0) s->leaves[tier] = sl_emit_buffer(s, SL_BUFFER_NORM, tier, bytes, -1, false);
    return s->leaves[tier] < 0 ? SLUICE_ERR_NO_MEMORY : SLUICE_OK;
}

sluice_status sl_schedule_leaves(sl_scheduler *s, int layer, int buffer)
{
    sl_tier tier = s->p->buffers[buffer].tier;
    int node = s->u->leaves_node[layer];
    SL_TRY(need_leaves(s, tier));
    s->leaf_tier[layer] = (int)tier;
    for (int64_t i = 0; i < sl_updated_ranges(s, layer); i++) {
        sl_range range = sl_updated_range(s, layer, i);
        sl_piece in = sl_range_piece(s, buffer, range), out = leaf_piece(s, layer, range, s->leaves[tier]);
        SL_TRY(sl_emit_update(s, SL_OP_NORM_LEAVES, node, layer, tier, range.first, &in, 1, &out, 1));
    }
    return SLUICE_OK;
}

static sluice_status norm_buffer(sl_scheduler *s, sl_tier tier, uint64_t bytes, int *out)
{
    *out = sl_emit_buffer(s, SL_BUFFER_NORM, tier, bytes, -1, false);
    return *out < 0 ? SLUICE_ERR_NO_MEMORY : SLUICE_OK;
}

/* A layer's part of what is gathered: its leaves, or its nodes in `buffer`. */
static sl_piece gathered_piece(const sl_scheduler *s, int layer, int buffer)
{
    const sl_layer_place *place = &s->p->layers[layer];
    const uint64_t node = sizeof(sl_norm_node);
    if (!sl_combines_norm(s->p))
        return leaf_piece(s, layer, (sl_range){ 0, s->g->layers[layer].element_count }, buffer);
    return (sl_piece){ buffer, (uint64_t)place->node_first * node, (uint64_t)place->nodes.elements * node };
}

/* This rank's leaves of a layer -> its part of the layer's nodes. */
static sluice_status combine(sl_scheduler *s, int layer, sl_tier tier, int nodes)
{
    const sl_layer_place *place = &s->p->layers[layer];
    sl_range own = sl_plan_kept_leaves(s->p, layer), of_layer = sl_shard_range(&place->nodes, s->p->options.rank, 0);
    if (own.count == 0) return SLUICE_OK;
    sl_piece in = sl_plan_leaf_piece(s->p, layer, own, s->leaves[tier]);
    sl_piece out = { nodes, (uint64_t)(place->node_first + of_layer.first) * sizeof(sl_norm_node),
                     (uint64_t)of_layer.count * sizeof(sl_norm_node) };
    return sl_emit_update(s, SL_OP_NORM_COMBINE, -1, layer, tier, (place->leaf_first + own.first) * SL_CUT_ELEMENTS,
                          &in, 1, &out, 1);
}

/* What all ranks have of the norm -> *whole, on every rank: all leaves, or the sums of all chunks of them. */
static sluice_status gather_norm(sl_scheduler *s, sl_tier tier, int *whole)
{
    int gathered = s->leaves[tier];
    bool combines = sl_combines_norm(s->p);
    *whole = gathered;
    if (!sl_cuts_state(s->p)) return SLUICE_OK;
    if (combines) SL_TRY(norm_buffer(s, tier, (uint64_t)s->p->node_count * sizeof(sl_norm_node), &gathered));
    for (int i = 0; i < s->g->layer_count; i++) {
        if (!sl_is_trained(s, i) || !sl_has_parameters(s, i)) continue;
        sl_piece in_place = { -1, 0, 0 };
        if (combines) SL_TRY(combine(s, i, tier, gathered));
        SL_TRY(sl_bucket_add(s, &s->gathers, SL_STEP_GATHER_NORM, i, in_place, gathered_piece(s, i, gathered)));
        s->gathers.bytes = 0; /* they are few: only the number of parts ends a bucket */
    }
    SL_TRY(sl_bucket_flush(s, &s->gathers));
    if (!combines) return SLUICE_OK;
    SL_TRY(norm_buffer(s, tier, (uint64_t)sl_ceil_div(s->p->leaf_count, SL_NORM_CHUNK) * sizeof(double), whole));
    sl_piece in = sl_whole(s->p, gathered), out = sl_whole(s->p, *whole);
    return sl_emit_update(s, SL_OP_NORM_JOIN, -1, -1, tier, 0, &in, 1, &out, 1);
}

/* The norm of the whole gradient: leaves to where it is put together, over all ranks, and its result to wherever
 * updates run. Every rank adds up all of it: the tree is the same everywhere, and so is the norm. */
static sluice_status schedule_norm(sl_scheduler *s, const norm_buffers *norm)
{
    int finish = -1, whole;
    for (int n = s->g->forward_count + s->g->backward_count; n < s->g->node_count; n++) {
        int layer = s->g->nodes[n].layer;
        if (s->g->nodes[n].op == SL_OP_NORM_FINISH) finish = n;
        if (s->g->nodes[n].op != SL_OP_NORM_LEAVES || s->leaf_tier[layer] == (int)norm->finish) continue;
        for (int64_t i = 0; i < sl_updated_ranges(s, layer); i++) {
            sl_range range = sl_updated_range(s, layer, i);
            SL_TRY(sl_emit_copy_piece(s, leaf_piece(s, layer, range, s->leaves[s->leaf_tier[layer]]),
                                      leaf_piece(s, layer, range, s->leaves[norm->finish]), layer));
        }
    }
    if (finish < 0) return SLUICE_OK;
    SL_TRY(gather_norm(s, norm->finish, &whole));
    sl_piece in = sl_whole(s->p, whole), out = sl_whole(s->p, norm->result[norm->finish]);
    SL_TRY(sl_emit_update(s, SL_OP_NORM_FINISH, finish, -1, norm->finish, 0, &in, 1, &out, 1));
    for (int t = 0; t < SL_TIER_COUNT; t++)
        if (t != (int)norm->finish && norm->result[t] >= 0)
            SL_TRY(sl_emit_copy(s, norm->result[norm->finish], norm->result[t], -1));
    return SLUICE_OK;
}

/* ---- update ---- */

/* Backward runs once in a step and leaves whole gradients: then updates are part of it. */
static bool in_backward(const sl_scheduler *s)
{
    const sl_plan_options *o = &s->p->options;
    return o->early_updates && o->accumulation == 1 && o->rank_count == 1;
}

/* Its update takes no norm, and waits for its own gradient alone. */
static bool is_early(const sl_scheduler *s, int layer)
{
    return in_backward(s) || (s->p->options.early_updates && sl_update_tier(&s->p->layers[layer]) == SL_TIER_HOST);
}

bool sl_updates_on_arrival(const sl_scheduler *s, int layer)
{
    const sl_plan_options *o = &s->p->options;
    if (s->p->layers[layer].speculates) return true;
    if (in_backward(s) || !is_early(s, layer) || (o->rank_count > 1 && o->stage == 0)) return false;
    if (sl_disk_updates(s, layer)) return false; /* the disk reads and writes in the order of UPDATE */
    return s->u->last_use_node[layer] == s->u->last_gradient_node[layer]; /* nothing reads the old weights any more */
}

/* Weights that do not live where their update runs pass through a copy there; f16 ones are not read, so nothing is
 * copied in. */
static sluice_status update_range(sl_scheduler *s, int node, sl_range range, const norm_buffers *norm)
{
    int layer = s->g->nodes[node].layer, slots = s->p->options.state_slots;
    const sl_layer_place *place = &s->p->layers[layer];
    sl_piece master = sl_range_piece(s, place->master, range), weights = master;
    bool staged = s->p->buffers[place->master].tier != place->state;
    if (staged) {
        int b = sl_emit_buffer(s, SL_BUFFER_PARAMETERS, place->state, master.bytes, layer, false);
        if (b < 0) return SLUICE_ERR_NO_MEMORY;
        s->p->buffers[b].staged = true;
        s->p->buffers[b].form = sl_weights_form(s);
        weights = sl_whole(s->p, b);
        if (sl_weights_form(s) != SL_FORM_F16) SL_TRY(sl_emit_copy_piece(s, master, weights, layer));
    }
    sl_piece in[2] = { sl_range_piece(s, place->gradient, range), { -1, 0, 0 } };
    if (!is_early(s, layer)) in[1] = sl_whole(s->p, norm->result[place->state]);
    sl_piece out[2 + SL_MAX_STATE_SLOTS] = { weights, { -1, 0, 0 } };
    if (place->remainder >= 0) out[1] = sl_range_piece(s, place->remainder, range);
    for (int k = 0; k < slots; k++) out[2 + k] = sl_range_piece(s, place->slots[k], range);
    SL_TRY(sl_emit_update(s, SL_OP_UPDATE, node, layer, place->state, range.first, in, 2, out, 2 + slots));
    return staged ? sl_emit_copy_piece(s, weights, master, layer) : SLUICE_OK;
}

/* ---- publishing ---- */

/* Stages 1 and 2 keep the whole parameters everywhere: each owner's part goes to all. */
static bool gathers_weights(const sl_scheduler *s, int layer)
{
    return sl_cuts_state(s->p) && !sl_cuts_home(s->p, layer);
}

/* Within a tier a kernel copies. */
static sluice_status bring_piece(sl_scheduler *s, sl_piece from, sl_piece to, int layer)
{
    sl_tier tier = s->p->buffers[to.buffer].tier;
    if (from.bytes == 0 || s->p->buffers[from.buffer].tier != tier) return sl_emit_copy_piece(s, from, to, layer);
    return sl_emit_update(s, SL_OP_CAST, -1, layer, tier, 0, &from, 1, &to, 1);
}

/* New weights of this rank that lie in `from` to their home, where that is elsewhere. */
static sluice_status bring_home(sl_scheduler *s, int layer, int from)
{
    const sl_layer_place *place = &s->p->layers[layer];
    if (sl_plan_memory(s->p, from) == place->home) return SLUICE_OK;
    if (!gathers_weights(s, layer)) return bring_piece(s, sl_whole(s->p, from), sl_whole(s->p, place->home), layer);
    for (int64_t i = 0; i < sl_updated_ranges(s, layer); i++) {
        sl_range range = sl_updated_range(s, layer, i);
        SL_TRY(bring_piece(s, sl_range_piece(s, from, range), sl_range_piece(s, place->home, range), layer));
    }
    return SLUICE_OK;
}

/* What the others have updated of `whole`. */
static sluice_status share(sl_scheduler *s, int layer, int whole)
{
    if (!gathers_weights(s, layer)) return SLUICE_OK;
    SL_TRY(sl_bucket_add(s, &s->gathers, SL_STEP_GATHER, layer, (sl_piece){ -1, 0, 0 }, sl_whole(s->p, whole)));
    return sl_bucket_is_full(s, &s->gathers) ? sl_bucket_flush(s, &s->gathers) : SLUICE_OK;
}

static sluice_status publish(sl_scheduler *s, int layer)
{
    SL_TRY(bring_home(s, layer, s->p->layers[layer].master));
    return share(s, layer, s->p->layers[layer].home);
}

static sluice_status update_ranges(sl_scheduler *s, int node, const norm_buffers *norm)
{
    int layer = s->g->nodes[node].layer;
    if (sl_disk_updates(s, layer))
        return sl_disk_update(s, node, is_early(s, layer) ? -1 : norm->result[sl_update_tier(&s->p->layers[layer])]);
    for (int64_t i = 0; i < sl_updated_ranges(s, layer); i++)
        SL_TRY(update_range(s, node, sl_updated_range(s, layer, i), norm));
    return SLUICE_OK;
}

static sluice_status update_layer(sl_scheduler *s, int node, const norm_buffers *norm)
{
    SL_TRY(update_ranges(s, node, norm));
    return publish(s, s->g->nodes[node].layer);
}

/* ---- delayed updates ----
 *
 * The weights that the update of the step before has made, beside the forward and backward of this one, are brought to
 * where the next step reads them; then this step's update begins on them. */

/* Its new weights cross the link to the device. */
static bool comes_from_host(const sl_scheduler *s, int layer)
{
    const sl_layer_place *place = &s->p->layers[layer];
    return s->p->buffers[place->master].tier != s->p->buffers[place->home].tier;
}

static void mark_published(sl_scheduler *s, int first_step)
{
    for (int i = first_step; i < s->p->step_count; i++) s->p->steps[i].publishes = true;
}

/* From the last layer upward, as backward lets go of them. */
static sluice_status publish_from_host(sl_scheduler *s)
{
    int begin = s->p->step_count;
    for (int n = s->g->node_count - 1; n >= s->g->forward_count + s->g->backward_count; n--)
        if (s->g->nodes[n].op == SL_OP_UPDATE && comes_from_host(s, s->g->nodes[n].layer))
            SL_TRY(bring_home(s, s->g->nodes[n].layer, s->p->layers[s->g->nodes[n].layer].master));
    mark_published(s, begin);
    return SLUICE_OK;
}

/* As the next forward needs them; behind the norm, for which the host waits. */
static sluice_status publish_rest(sl_scheduler *s)
{
    int begin = s->p->step_count;
    for (int n = s->g->forward_count + s->g->backward_count; n < s->g->node_count; n++) {
        int layer = s->g->nodes[n].layer;
        if (s->g->nodes[n].op != SL_OP_UPDATE) continue;
        if (!comes_from_host(s, layer)) SL_TRY(bring_home(s, layer, s->p->layers[layer].master));
        SL_TRY(share(s, layer, s->p->layers[layer].home));
    }
    SL_TRY(sl_bucket_flush(s, &s->gathers));
    mark_published(s, begin);
    return SLUICE_OK;
}

/* In the order of backward: the next one brings the gradient that takes the place of the first of these first. */
static sluice_status update_delayed(sl_scheduler *s, const norm_buffers *norm)
{
    for (int n = s->g->node_count - 1; n >= s->g->forward_count + s->g->backward_count; n--)
        if (s->g->nodes[n].op == SL_OP_UPDATE) SL_TRY(update_ranges(s, n, norm));
    return SLUICE_OK;
}

sluice_status sl_schedule_early_update(sl_scheduler *s, int layer)
{
    return in_backward(s) ? update_ranges(s, s->u->update_node[layer], NULL) : SLUICE_OK;
}

/* ---- speculation ---- */

/* Where an update on speculation leaves the weights. f16 ones that live on the device have no master there: they pass
 * through the host. */
static int aside(const sl_scheduler *s, int layer)
{
    const sl_layer_place *place = &s->p->layers[layer];
    return place->fresh >= 0 ? place->fresh : sl_plan_twin(s->p, place->master);
}

/* From the version that counts to the other one. `norm`: of buffer -1: the step is taken for neither clipped nor
 * skipped. */
static sluice_status update_aside(sl_scheduler *s, int layer, sl_range range, sl_piece norm)
{
    const sl_layer_place *place = &s->p->layers[layer];
    const int slots = s->p->options.state_slots;
    int of[2 + SL_MAX_STATE_SLOTS] = { place->fresh >= 0 ? -1 : place->master, place->remainder };
    sl_piece in[SL_MAX_INPUTS] = { sl_range_piece(s, place->gradient, range), norm };
    sl_piece out[2 + SL_MAX_STATE_SLOTS] = { sl_range_piece(s, aside(s, layer), range) };
    for (int k = 0; k < slots; k++) of[2 + k] = place->slots[k];
    for (int k = 0; k < 2 + slots; k++) {
        const int twin = sl_plan_twin(s->p, of[k]);
        in[2 + k] = of[k] >= 0 ? sl_range_piece(s, of[k], range) : (sl_piece){ -1, 0, 0 };
        if (k > 0) out[k] = twin >= 0 ? sl_range_piece(s, twin, range) : (sl_piece){ -1, 0, 0 };
    }
    return sl_emit_update(s, SL_OP_UPDATE, s->u->update_node[layer], layer, SL_TIER_HOST, range.first, in, 4 + slots,
                          out, 2 + slots);
}

static sluice_status update_ranges_aside(sl_scheduler *s, int layer, sl_piece norm)
{
    for (int64_t i = 0; i < sl_updated_ranges(s, layer); i++)
        SL_TRY(update_aside(s, layer, sl_updated_range(s, layer, i), norm));
    return SLUICE_OK;
}

static sluice_status speculate(sl_scheduler *s, int layer)
{
    sl_layer_place *place = &s->p->layers[layer];
    if (s->p->buffers[place->master].tier != SL_TIER_HOST) {
        SL_TRY(sl_emit_layer_buffer(s, SL_BUFFER_PARAMETERS, sl_weights_form(s), SL_TIER_HOST, layer,
                                    sl_cuts_state(s->p), false, &place->fresh));
        s->p->buffers[place->fresh].staged = true;
    }
    s->when = SL_WHEN_LAST_MICRO | SL_WHEN_SPECULATING;
    SL_TRY(update_ranges_aside(s, layer, (sl_piece){ -1, 0, 0 }));
    s->when = 0;
    return SLUICE_OK;
}

sluice_status sl_schedule_arrived(sl_scheduler *s, int layer)
{
    if (!sl_updates_on_arrival(s, layer)) return SLUICE_OK;
    if (s->p->layers[layer].speculates) return speculate(s, layer);
    s->when = SL_WHEN_LAST_MICRO;
    SL_TRY(update_ranges(s, s->u->update_node[layer], NULL));
    s->when = 0;
    return SLUICE_OK;
}

/* Weights that were updated on speculation to where they are read. Where they live on the host that is there already,
 * but at stages 1 and 2 for what other ranks own of them. */
static sluice_status publish_aside(sl_scheduler *s, int layer)
{
    const int home = s->p->layers[layer].home, from = aside(s, layer);
    SL_TRY(bring_home(s, layer, from));
    return share(s, layer, sl_plan_memory(s->p, from) == home ? from : home);
}

/* A layer that speculates, in a step that does, and in one that does not. */
static sluice_status update_speculating(sl_scheduler *s, int node, const norm_buffers *norm)
{
    const int layer = s->g->nodes[node].layer, home = s->p->layers[layer].home;
    const bool one_gather = sl_plan_twin(s->p, home) < 0; /* of the same bytes in both cases */
    s->when = SL_WHEN_SPECULATING;
    SL_TRY(one_gather ? bring_home(s, layer, aside(s, layer)) : publish_aside(s, layer));
    s->when = SL_WHEN_NOT_SPECULATING;
    SL_TRY(update_ranges(s, node, norm));
    SL_TRY(one_gather ? bring_home(s, layer, s->p->layers[layer].master) : publish(s, layer));
    s->when = 0;
    return one_gather ? share(s, layer, home) : SLUICE_OK;
}

sluice_status sl_schedule_redo(sl_scheduler *s)
{
    for (int n = s->g->forward_count + s->g->backward_count; n < s->g->node_count; n++) {
        const int layer = s->g->nodes[n].layer;
        if (s->g->nodes[n].op != SL_OP_UPDATE || !s->p->layers[layer].speculates) continue;
        SL_TRY(update_ranges_aside(s, layer, sl_whole(s->p, s->norm_on_host)));
        SL_TRY(publish_aside(s, layer));
    }
    return sl_bucket_flush(s, &s->gathers);
}

/* ---- the segment ---- */

/* The norm is put together on the device, unless some leaves come from sums on the host. The result goes to wherever
 * updates run. */
static sluice_status make_norm_buffers(sl_scheduler *s, norm_buffers *norm)
{
    bool on[SL_TIER_COUNT] = { false };
    for (int i = 0; i < s->g->layer_count; i++)
        if (sl_is_trained(s, i) && !is_early(s, i)) on[sl_update_tier(&s->p->layers[i])] = true;
    norm->finish = s->leaves[SL_TIER_HOST] >= 0 ? SL_TIER_HOST : SL_TIER_DEVICE;
    on[norm->finish] = true;
    for (int t = 0; t < SL_TIER_COUNT; t++) {
        norm->result[t] = -1;
        if (!on[t]) continue;
        norm->result[t] = sl_emit_buffer(s, SL_BUFFER_NORM, (sl_tier)t, sizeof(sl_norm_result), -1, false);
        if (norm->result[t] < 0) return SLUICE_ERR_NO_MEMORY;
    }
    SL_TRY(need_leaves(s, norm->finish)); /* there may be no layer at all */
    s->norm_on_host = norm->result[SL_TIER_HOST];
    s->p->norm_buffer = norm->result[norm->finish];
    s->p->leaves_buffer = s->leaves[norm->finish];
    return SLUICE_OK;
}

/* Layers whose updates need the disk, in the order in which sl_schedule_update comes to them. */
static sluice_status add_disk_updates(sl_scheduler *s)
{
    const int first = s->g->forward_count + s->g->backward_count;
    sl_disk_begin(s);
    for (int n = s->g->node_count - 1; n >= first; n--)
        if (s->g->nodes[n].op == SL_OP_UPDATE && is_early(s, s->g->nodes[n].layer))
            SL_TRY(sl_disk_add_updates(s, s->g->nodes[n].layer));
    for (int n = first; n < s->g->node_count; n++)
        if (s->g->nodes[n].op == SL_OP_UPDATE && !is_early(s, s->g->nodes[n].layer))
            SL_TRY(sl_disk_add_updates(s, s->g->nodes[n].layer));
    return sl_disk_read_ahead(s);
}

sluice_status sl_schedule_backward_updates(sl_scheduler *s)
{
    const sl_groups *ends = &s->u->backward_ends;
    sl_disk_begin(s);
    for (int at = 0; in_backward(s) && at < s->g->backward_count; at++)
        for (int k = ends->first[at]; k < ends->first[at + 1]; k++)
            if (s->u->last_use_node[ends->items[k]] == s->g->forward_count + at)
                SL_TRY(sl_disk_add_updates(s, ends->items[k]));
    return sl_disk_read_ahead(s);
}

/* Early ones that were not updated in backward from the last layer upward, as their gradients come; the others, and
 * weights that were updated during backward, as the next forward needs them. */
sluice_status sl_schedule_update(sl_scheduler *s)
{
    norm_buffers norm;
    const int first = s->g->forward_count + s->g->backward_count;
    for (int i = 0; i < s->g->layer_count; i++) /* of gradients that were not sent anywhere */
        if (sl_is_trained(s, i) && sl_has_parameters(s, i) && s->leaf_tier[i] < 0)
            SL_TRY(sl_schedule_leaves(s, i, s->p->layers[i].gradient));
    if (!in_backward(s)) SL_TRY(add_disk_updates(s));
    SL_TRY(make_norm_buffers(s, &norm));
    if (s->p->options.delayed) SL_TRY(publish_from_host(s));
    SL_TRY(schedule_norm(s, &norm));
    if (s->p->options.delayed) {
        SL_TRY(publish_rest(s));
        return update_delayed(s, &norm);
    }
    for (int n = s->g->node_count - 1; n >= first && !in_backward(s); n--)
        if (s->g->nodes[n].op == SL_OP_UPDATE && is_early(s, s->g->nodes[n].layer) &&
            !sl_updates_on_arrival(s, s->g->nodes[n].layer))
            SL_TRY(update_layer(s, n, &norm));
    for (int n = first; n < s->g->node_count; n++) {
        if (s->g->nodes[n].op != SL_OP_UPDATE) continue;
        if (s->p->layers[s->g->nodes[n].layer].speculates)
            SL_TRY(update_speculating(s, n, &norm));
        else if (in_backward(s) || sl_updates_on_arrival(s, s->g->nodes[n].layer))
            SL_TRY(publish(s, s->g->nodes[n].layer));
        else if (!is_early(s, s->g->nodes[n].layer))
            SL_TRY(update_layer(s, n, &norm));
    }
    return sl_bucket_flush(s, &s->gathers);
}
