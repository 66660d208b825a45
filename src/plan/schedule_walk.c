/* schedule_walk.c: the list of steps of a training step, in an order that is itself a legal execution.
 *
 * Every segment walks the layers in levels. What lives on the host or is cut over the ranks is fetched `prefetch`
 * levels before its use and dropped after it; gradients leave as soon as their layer's backward is done. Streams and
 * addresses come later: this pass only decides what happens and in which order, so list order alone is correct, and
 * waits are derived from it (waits.c). */
#include <limits.h>

#include "core/alloc.h"
#include "core/bytes.h"
#include "plan/schedule.h"

static void forget_values(sl_scheduler *s)
{
    for (int v = 0; v < s->g->value_count; v++) {
        s->device_buffer[v] = s->p->input_buffers[v];
        s->host_buffer[v] = s->disk_buffer[v] = -1;
    }
    for (int i = 0; i < s->g->layer_count; i++) s->staged[i] = -1;
}

/* ---- streamed parameters ---- */

/* True when one of the `reach` levels behind `level`, in walking direction, reads parameter layer `layer`. */
static bool used_soon(const sl_scheduler *s, int layer, int level, int direction, int reach)
{
    const int *levels = s->u->use_levels.items;
    int low = s->u->use_levels.first[layer], high = s->u->use_levels.first[layer + 1], end = high, begin = low;
    while (low < high) { /* the first use at `level` or, going forward, after it */
        int middle = low + (high - low) / 2;
        if (levels[middle] < level + (direction > 0))
            low = middle + 1;
        else
            high = middle;
    }
    if (direction > 0) return low < end && levels[low] - level <= reach;
    return low > begin && level - levels[low - 1] <= reach;
}

/* The whole of a layer that lives elsewhere: copied in, or gathered from the ranks' shards. */
static sluice_status fetch_layer(sl_scheduler *s, int layer)
{
    const sl_layer_place *place = &s->p->layers[layer];
    int whole, shard = place->home;
    SL_TRY(
        sl_emit_layer_buffer(s, SL_BUFFER_PARAMETERS, sl_weights_form(s), SL_TIER_DEVICE, layer, false, false, &whole));
    s->p->buffers[whole].staged = true;
    s->staged[layer] = whole;
    const bool on_disk = place->parameters == SL_TIER_DISK;
    if (!sl_cuts_home(s->p, layer))
        return on_disk ? sl_disk_bring(s, place->home, sl_whole(s->p, whole), layer)
                       : sl_emit_copy(s, place->home, whole, layer);
    if (place->parameters != SL_TIER_DEVICE) {
        SL_TRY(sl_emit_layer_buffer(s, SL_BUFFER_PARAMETERS, sl_weights_form(s), SL_TIER_DEVICE, layer, true, false,
                                    &shard));
        s->p->buffers[shard].staged = true;
        SL_TRY(on_disk ? sl_disk_bring(s, place->home, sl_whole(s->p, shard), layer)
                       : sl_emit_copy(s, place->home, shard, layer));
    }
    return sl_bucket_add(s, &s->gathers, SL_STEP_GATHER, layer, sl_whole(s->p, shard), sl_whole(s->p, whole));
}

static sluice_status fetch_level(sl_scheduler *s, int level)
{
    const sl_groups *uses = &s->u->level_uses;
    if (level < 0 || level >= s->p->level_count) return SLUICE_OK;
    for (int i = uses->first[level]; i < uses->first[level + 1]; i++) {
        int layer = uses->items[i];
        if (!sl_has_parameters(s, layer) || s->p->layers[layer].working >= 0 || s->staged[layer] >= 0) continue;
        SL_TRY(fetch_layer(s, layer));
    }
    return sl_bucket_flush(s, &s->gathers);
}

/* Forgets the copies that neither the levels already fetched nor the next one to be fetched need: copies that this
 * level used last. Gathered ones that are kept stay until backward has no more use for them. */
static void drop_level(sl_scheduler *s, int level, int direction, bool keep_gathered)
{
    const sl_groups *uses = &s->u->level_uses;
    int reach = keep_gathered ? s->p->level_count : s->prefetch;
    if (keep_gathered && direction > 0) return;
    for (int i = uses->first[level]; i < uses->first[level + 1]; i++)
        if (!used_soon(s, uses->items[i], level, direction, reach)) s->staged[uses->items[i]] = -1;
}

/* ---- activations ---- */

/* What must survive the gap between a layer's forward and its backward, and does so on the host. */
static bool leaves_device(const sl_scheduler *s, int root)
{
    if (s->u->owner[root] < 0 || s->u->last_forward[root] == s->u->order_count - 1) return false;
    sl_activation_mode mode = s->p->layers[s->u->owner[root]].activations;
    bool read_again = s->u->needed_backward[root] || s->u->boundary[root];
    if (mode == SL_ACT_OFFLOAD)
        return read_again && !(s->p->layers[s->u->owner[root]].cheap && sl_is_cheap(s->u, root));
    return mode == SL_ACT_RECOMPUTE_OFFLOAD && sl_survives(s->u, root, s->p->layers[s->u->owner[root]].group_last);
}

bool sl_leaves_for_disk(const sl_scheduler *s, int root)
{
    return s->u->owner[root] >= 0 && s->p->layers[s->u->owner[root]].offloaded == SL_TIER_DISK &&
           leaves_device(s, root);
}

/* After the last forward use of a value: send it to the host, or through it to the disk. */
static sluice_status offload_after(sl_scheduler *s, int position)
{
    const sl_groups *ends = &s->u->forward_ends;
    for (int i = ends->first[position]; i < ends->first[position + 1]; i++) {
        int v = ends->items[i];
        if (s->device_buffer[v] < 0 || !leaves_device(s, v)) continue;
        uint64_t bytes = s->p->buffers[s->device_buffer[v]].bytes;
        int until = s->transit[s->u->position[s->u->owner[v]]].until;
        s->leaving[s->leaving_count++] = (sl_leaving){ s->device_buffer[v], until > position ? until : position };
        if (sl_leaves_for_disk(s, v)) {
            int b = s->disk_buffer[v] =
                sl_emit_buffer(s, SL_BUFFER_ACTIVATION, SL_TIER_DISK, bytes, s->u->owner[v], false);
            if (b < 0) return SLUICE_ERR_NO_MEMORY;
            s->p->buffers[b].value = v;
            SL_TRY(sl_disk_send(s, sl_whole(s->p, s->device_buffer[v]), b, s->u->owner[v]));
            s->device_buffer[v] = -1;
            continue;
        }
        s->host_buffer[v] = sl_emit_buffer(s, SL_BUFFER_ACTIVATION, SL_TIER_HOST, bytes, s->u->owner[v], false);
        if (s->host_buffer[v] < 0) return SLUICE_ERR_NO_MEMORY;
        s->p->buffers[s->host_buffer[v]].value = v;
        SL_TRY(sl_emit_copy(s, s->device_buffer[v], s->host_buffer[v], s->u->owner[v]));
        s->device_buffer[v] = -1;
    }
    return SLUICE_OK;
}

static sluice_status bring_back(sl_scheduler *s, int value, int layer)
{
    int root = s->g->values[value].storage;
    const int away = s->disk_buffer[root] >= 0 ? s->disk_buffer[root] : s->host_buffer[root];
    if (away < 0 || s->device_buffer[root] >= 0) return SLUICE_OK;
    uint64_t bytes = away == s->host_buffer[root] ? s->p->buffers[away].bytes : sl_value_bytes(&s->g->values[root]);
    int b = sl_emit_buffer(s, SL_BUFFER_ACTIVATION, SL_TIER_DEVICE, bytes, layer, false);
    if (b < 0) return SLUICE_ERR_NO_MEMORY;
    s->p->buffers[b].value = root;
    s->p->buffers[b].staged = true;
    s->device_buffer[root] = b;
    return away == s->host_buffer[root] ? sl_emit_copy(s, away, b, layer)
                                        : sl_disk_bring(s, away, sl_whole(s->p, b), layer);
}

/* The place of the layer at a position whose group of recomputed layers ends with it: backward comes there first. NULL:
 * it is no such layer. */
static const sl_layer_place *group_at(const sl_scheduler *s, int position)
{
    if (position < 0 || !sl_is_recomputed(&s->p->layers[s->u->order[position]])) return NULL;
    const sl_layer_place *place = &s->p->layers[s->u->order[position]];
    return place->group_last == position ? place : NULL;
}

typedef struct node_range {
    int first, end;
} node_range;

/* The forward nodes of which some run again for the layer at a position: those of the group that ends with it, or its own
 * where cheap ones do. */
static node_range nodes_again(const sl_scheduler *s, int position)
{
    const sl_layer *layers = s->g->layers, *last = &layers[s->u->order[position]];
    const sl_layer_place *group = group_at(s, position);
    if (group == NULL && !s->p->layers[s->u->order[position]].cheap) return (node_range){ 0, 0 };
    int first = group != NULL ? group->group_first : position;
    return (node_range){ layers[s->u->order[first]].first_node, last->first_node + last->node_count };
}

/* `wanted`: scratch, one for each value, false. */
static void find_again(sl_scheduler *s, bool *wanted)
{
    for (int i = 0; i < s->u->order_count; i++) {
        const sl_layer_place *place = group_at(s, i);
        if (place != NULL) sl_usage_mark_again(s->u, place->group_first, place->group_last, s->again, wanted);
        const sl_layer *l = &s->g->layers[s->u->order[i]];
        for (int n = l->first_node; s->p->layers[s->u->order[i]].cheap && n < l->first_node + l->node_count; n++)
            s->again[n] = s->u->cheap[n];
    }
}

/* Fetches the offloaded values that the backward of the layer at `position`, or what runs again for it, reads. */
static sluice_status fetch_activations(sl_scheduler *s, int position)
{
    int layer = s->u->order[position];
    const sl_layer *l = &s->g->layers[layer];
    const node_range nodes = nodes_again(s, position);
    for (int n = nodes.first; n < nodes.end; n++)
        for (int k = 0; s->again[n] && k < s->g->nodes[n].input_count; k++)
            SL_TRY(bring_back(s, s->g->nodes[n].inputs[k], layer));
    for (int n = l->first_backward; n < l->first_backward + l->backward_count; n++)
        for (int k = 0; k < s->g->nodes[n].input_count; k++) SL_TRY(bring_back(s, s->g->nodes[n].inputs[k], layer));
    return SLUICE_OK;
}

/* Parameters of a whole group, for the walk that comes to `position`: where the group begins there, all that are not there
 * yet, in the order in which they run again; one layer before that, those that run first. */
static sluice_status fetch_group(sl_scheduler *s, int position)
{
    const sl_layer_place *group = group_at(s, position), *next = group_at(s, position - 1);
    for (int i = group != NULL ? group->group_first : position; i < position; i++)
        SL_TRY(fetch_level(s, sl_level_at(s->u, i)));
    if (next != NULL && s->prefetch > 0) SL_TRY(fetch_level(s, sl_level_at(s->u, next->group_first)));
    return SLUICE_OK;
}

/* ---- segments ---- */

static sluice_status forward_layer(sl_scheduler *s, int position, bool keep)
{
    const sl_layer *l = &s->g->layers[s->u->order[position]];
    for (int n = l->first_node; n < l->first_node + l->node_count; n++) SL_TRY(sl_emit_node(s, n, false));
    if (!keep) return SLUICE_OK;
    s->forward_end[position] = s->p->step_count - 1;
    return offload_after(s, position);
}

/* What can be done once backward node `node` has run: gradients that it completes, layers that it is the last to read. */
static sluice_status after_backward(sl_scheduler *s, int node)
{
    const sl_groups *ends = &s->u->backward_ends;
    int at = node - s->g->forward_count;
    for (int k = ends->first[at]; k < ends->first[at + 1]; k++) {
        int layer = ends->items[k];
        if (s->u->last_gradient_node[layer] == node) SL_TRY(sl_schedule_gradient(s, layer));
        if (s->u->last_use_node[layer] == node && sl_is_trained(s, layer)) SL_TRY(sl_schedule_early_update(s, layer));
    }
    return SLUICE_OK;
}

/* A cheap node runs again right before the first node that reads what was dropped of what it makes, so that no more of a
 * layer is there at a time than backward needs; before it those whose results it reads. What it makes and is kept may be
 * read sooner, where the layer's parameters have not come. */
static sluice_status run_inputs_again(sl_scheduler *s, int node)
{
    for (int k = 0; k < s->g->nodes[node].input_count; k++) {
        const int root = s->g->values[s->g->nodes[node].inputs[k]].storage, n = s->g->values[root].producer;
        if (!sl_is_cheap(s->u, root) || !s->again[n] || !s->p->layers[s->g->nodes[n].layer].cheap) continue;
        s->again[n] = false;
        SL_TRY(run_inputs_again(s, n));
        SL_TRY(sl_emit_node(s, n, true));
    }
    return SLUICE_OK;
}

/* What comes back stays until it is used. A group runs again when backward comes to its last layer, and what backward reads
 * of it stays until then. */
static sluice_status backward_layer(sl_scheduler *s, int position)
{
    const sl_layer *l = &s->g->layers[s->u->order[position]];
    const node_range nodes = group_at(s, position) != NULL ? nodes_again(s, position) : (node_range){ 0, 0 };
    while (s->fetched > 0 && s->transit[s->fetched - 1].from >= position) SL_TRY(fetch_activations(s, --s->fetched));
    for (int n = nodes.first; n < nodes.end; n++)
        if (s->again[n]) SL_TRY(sl_emit_node(s, n, true));
    for (int n = l->first_backward; n < l->first_backward + l->backward_count; n++) {
        SL_TRY(run_inputs_again(s, n));
        SL_TRY(sl_emit_node(s, n, false));
        SL_TRY(after_backward(s, n));
    }
    return SLUICE_OK;
}

typedef enum { WALK_FORWARD, WALK_BACKWARD, WALK_EVALUATE } walk;

static sluice_status walk_levels(sl_scheduler *s, walk kind)
{
    int direction = kind == WALK_BACKWARD ? -1 : 1;
    int first = kind == WALK_BACKWARD ? s->u->order_count - 1 : 0;
    int level = sl_level_at(s->u, first);
    bool keep = kind != WALK_EVALUATE && s->p->options.keep_gathered && sl_cuts_parameters(s->p);
    for (int ahead = 0; ahead < s->prefetch; ahead++) SL_TRY(fetch_level(s, level + direction * ahead));
    for (int i = 0, position = first; i < s->u->order_count; i++, position += direction) {
        bool enters = i == 0 || sl_level_at(s->u, position) != level;
        if (enters && i > 0) drop_level(s, level, direction, keep);
        level = sl_level_at(s->u, position);
        if (enters) SL_TRY(fetch_level(s, level + direction * s->prefetch));
        if (kind == WALK_BACKWARD) SL_TRY(fetch_group(s, position));
        if (kind == WALK_BACKWARD)
            SL_TRY(backward_layer(s, position));
        else
            SL_TRY(forward_layer(s, position, kind == WALK_FORWARD));
    }
    /* backward begins with the level that forward ended with: its parameters stay */
    for (int i = 0; kind != WALK_FORWARD && i < s->g->layer_count; i++) s->staged[i] = -1;
    return SLUICE_OK;
}

static void begin_segment(sl_plan *p, sl_segment_kind kind)
{
    p->segments[kind] = (sl_segment){ .first_step = p->step_count, .result_step = -1 };
}

static void end_segment(sl_plan *p, sl_segment_kind kind)
{
    p->segments[kind].step_count = p->step_count - p->segments[kind].first_step;
}

/* ---- the whole ---- */

/* Addresses know no time: what takes the bytes of a buffer that is being copied waits for the copy. So they are not given to
 * anything else for about as long as that takes. */
static void hold_leaving(sl_scheduler *s)
{
    for (int i = 0; i < s->leaving_count; i++) {
        sl_buffer *b = &s->p->buffers[s->leaving[i].buffer];
        const int until = s->forward_end[s->leaving[i].until];
        if (!b->permanent && b->last < until) b->last = until;
    }
}

/* What the caller reads after a segment must still be there at its end. */
static void pin_to_segment_end(sl_plan *p, int buffer, sl_segment_kind kind)
{
    if (buffer < 0 || p->buffers[buffer].permanent || p->buffers[buffer].last < 0) return; /* or of no step */
    int last = p->segments[kind].first_step + p->segments[kind].step_count - 1;
    if (p->buffers[buffer].last < last) p->buffers[buffer].last = last;
}

static sluice_status training_segments(sl_scheduler *s)
{
    sl_plan *p = s->p;
    for (int t = 0; t < SL_TIER_COUNT; t++) s->leaves[t] = -1;
    for (int i = 0; i < s->g->layer_count; i++) s->leaf_tier[i] = -1;
    begin_segment(p, SL_SEGMENT_FORWARD);
    SL_TRY(walk_levels(s, WALK_FORWARD));
    p->loss_buffer = s->device_buffer[s->g->values[s->g->loss].storage];
    end_segment(p, SL_SEGMENT_FORWARD);
    begin_segment(p, SL_SEGMENT_BACKWARD);
    s->fetched = s->u->order_count;
    SL_TRY(sl_schedule_backward_updates(s));
    SL_TRY(walk_levels(s, WALK_BACKWARD));
    SL_TRY(sl_schedule_gradients_end(s));
    end_segment(p, SL_SEGMENT_BACKWARD);
    begin_segment(p, SL_SEGMENT_UPDATE);
    SL_TRY(sl_schedule_final_gradients(s));
    SL_TRY(sl_schedule_update(s));
    end_segment(p, SL_SEGMENT_UPDATE);
    begin_segment(p, SL_SEGMENT_REDO);
    SL_TRY(sl_schedule_redo(s));
    end_segment(p, SL_SEGMENT_REDO);
    return SLUICE_OK;
}

static sluice_status evaluation_segment(sl_scheduler *s)
{
    sl_plan *p = s->p;
    forget_values(s);
    begin_segment(p, SL_SEGMENT_EVALUATE);
    s->evaluating = true;
    SL_TRY(walk_levels(s, WALK_EVALUATE));
    end_segment(p, SL_SEGMENT_EVALUATE);
    if (s->g->loss >= 0) p->eval_loss_buffer = s->device_buffer[s->g->values[s->g->loss].storage];
    if (s->g->output >= 0) p->output_buffer = s->device_buffer[s->g->values[s->g->output].storage];
    return SLUICE_OK;
}

/* The last step of a segment that writes `buffer`. */
static void find_result(sl_plan *p, sl_segment_kind kind, int buffer)
{
    sl_segment *segment = &p->segments[kind];
    for (int i = segment->first_step; i < segment->first_step + segment->step_count; i++) {
        const sl_step *s = &p->steps[i];
        for (int k = s->input_count; k < s->input_count + s->output_count; k++)
            if (buffer >= 0 && p->pieces[s->first_piece + k].buffer == buffer) segment->result_step = i;
    }
}

static sluice_status build(sl_scheduler *s)
{
    sl_plan *p = s->p;
    p->buffer_count = p->piece_count = p->step_count = p->wait_count = p->event_count = p->part_count = 0;
    p->loss_buffer = p->norm_buffer = p->leaves_buffer = p->output_buffer = p->eval_loss_buffer = -1;
    for (int k = 0; k < SL_SEGMENT_COUNT; k++) p->segments[k] = (sl_segment){ .result_step = -1 };
    sl_plan_keep_leaves(p, s->u);
    SL_TRY(sl_schedule_permanents(s));
    forget_values(s);
    if (p->options.training) SL_TRY(training_segments(s));
    if (p->options.evaluation) SL_TRY(evaluation_segment(s));
    sl_disk_trim(s);
    sl_plan_lifetimes(p);
    hold_leaving(s);
    /* pinned before merging, so that nothing takes over a result the caller will read */
    pin_to_segment_end(p, p->loss_buffer, SL_SEGMENT_FORWARD);
    pin_to_segment_end(p, p->norm_buffer, SL_SEGMENT_UPDATE);
    pin_to_segment_end(p, p->leaves_buffer, SL_SEGMENT_UPDATE);
    pin_to_segment_end(p, p->eval_loss_buffer, SL_SEGMENT_EVALUATE);
    pin_to_segment_end(p, p->output_buffer, SL_SEGMENT_EVALUATE);
    SL_TRY(sl_merge_in_place(p));
    find_result(p, SL_SEGMENT_FORWARD, p->loss_buffer);
    find_result(p, SL_SEGMENT_UPDATE, p->norm_buffer);
    return SLUICE_OK;
}

sluice_status sl_plan_schedule(sl_plan *p, const sl_usage *u, int prefetch)
{
    size_t values = (size_t)p->graph->value_count + 1, layers = (size_t)p->graph->layer_count + 1;
    sl_scheduler s = { .p = p, .u = u, .g = p->graph, .prefetch = prefetch };
    s.device_buffer = sl_alloc_array(values, sizeof(int), "plan: device buffers of values");
    s.host_buffer = sl_alloc_array(values, sizeof(int), "plan: host buffers of values");
    s.disk_buffer = sl_alloc_array(values, sizeof(int), "plan: disk buffers of values");
    s.staged = sl_alloc_array(layers, sizeof(int), "plan: staged layers");
    s.leaf_tier = sl_alloc_array(layers, sizeof(int), "plan: tiers of norm leaves");
    s.again = sl_alloc_array((size_t)p->graph->node_count + 1, sizeof(bool), "plan: recomputed nodes");
    s.transit = sl_alloc_array(layers, sizeof *s.transit, "plan: transit of activations");
    s.leaving = sl_alloc_array(values, sizeof *s.leaving, "plan: leaving activations");
    s.forward_end = sl_alloc_array(layers, sizeof(int), "plan: ends of layers");
    bool *wanted = sl_alloc_array(values, sizeof *wanted, "plan: values wanted again");
    void *owned[] = { s.device_buffer, s.host_buffer, s.disk_buffer, s.staged,      s.leaf_tier,
                      s.again,         s.transit,     s.leaving,     s.forward_end, wanted };
    sluice_status st = SLUICE_OK;
    for (size_t i = 0; i < sizeof owned / sizeof owned[0]; i++)
        if (owned[i] == NULL) st = SLUICE_ERR_NO_MEMORY;
    if (st == SLUICE_OK) st = sl_plan_transit(p, u, prefetch, s.transit);
    if (st == SLUICE_OK) find_again(&s, wanted);
    if (st == SLUICE_OK) st = build(&s);
    sl_disk_close(&s);
    for (size_t i = 0; i < sizeof owned / sizeof owned[0]; i++) sl_free(owned[i]);
    return st;
}
