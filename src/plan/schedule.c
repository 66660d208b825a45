/* schedule.c: the list of steps of a training step, in an order that is itself a legal execution.
 *
 * Every segment walks the layers in levels. What lives on the host is fetched `prefetch` levels before its use and
 * dropped after it; gradients leave as soon as their layer's backward is done. Streams and addresses come later: this
 * pass only decides what happens and in which order, so list order alone is correct, and waits are derived from it
 * (address.c). */
#include <limits.h>

#include "core/alloc.h"
#include "core/bytes.h"
#include "plan/schedule.h"

static bool trainable(const sl_scheduler *s, int layer)
{
    return s->p->options.training && s->u->last_gradient_node[layer] >= 0;
}

static uint64_t shard_bytes(const sl_layer_place *place)
{
    return (uint64_t)place->shard_count * sizeof(float);
}

/* ---- what stays from step to step ---- */

static sluice_status permanent(sl_scheduler *s, sl_buffer_kind kind, sl_tier tier, uint64_t bytes, int layer, int *out)
{
    *out = sl_emit_buffer(s, kind, tier, bytes, layer, true);
    return *out < 0 ? SLUICE_ERR_NO_MEMORY : SLUICE_OK;
}

/* Master, working copy, state slots and, when micro-batches are summed, the accumulator of one layer. */
static sluice_status layer_permanents(sl_scheduler *s, int layer)
{
    sl_layer_place *place = &s->p->layers[layer];
    place->master = place->working = place->contribution = place->gradient = -1;
    for (int k = 0; k < SL_MAX_STATE_SLOTS; k++) place->slots[k] = -1;
    if (place->shard_count == 0) return SLUICE_OK;
    bool host_update = trainable(s, layer) && place->state == SL_TIER_HOST;
    bool resident = place->parameters == SL_TIER_DEVICE;
    sl_tier home = resident && !host_update ? SL_TIER_DEVICE : SL_TIER_HOST;
    SL_TRY(permanent(s, SL_BUFFER_PARAMETERS, home, shard_bytes(place), layer, &place->master));
    if (resident && home == SL_TIER_HOST)
        SL_TRY(permanent(s, SL_BUFFER_PARAMETERS, SL_TIER_DEVICE, shard_bytes(place), layer, &place->working));
    else if (resident)
        place->working = place->master;
    if (!trainable(s, layer)) return SLUICE_OK;
    for (int k = 0; k < s->p->options.state_slots; k++) {
        SL_TRY(permanent(s, SL_BUFFER_STATE, place->state, shard_bytes(place), layer, &place->slots[k]));
        s->p->buffers[place->slots[k]].slot = k;
    }
    if (s->p->options.accumulation > 1)
        SL_TRY(permanent(s, SL_BUFFER_GRADIENTS, place->state, shard_bytes(place), layer, &place->gradient));
    return SLUICE_OK;
}

static sluice_status inputs(sl_scheduler *s)
{
    for (int v = 0; v < s->g->value_count; v++) {
        s->p->input_buffers[v] = -1;
        if (s->g->values[v].kind != SL_VALUE_INPUT) continue;
        SL_TRY(permanent(s, SL_BUFFER_INPUT, SL_TIER_DEVICE, sl_value_bytes(&s->g->values[v]), -1,
                         &s->p->input_buffers[v]));
        s->p->buffers[s->p->input_buffers[v]].value = v;
    }
    return SLUICE_OK;
}

static void forget_values(sl_scheduler *s)
{
    for (int v = 0; v < s->g->value_count; v++) {
        s->device_buffer[v] = s->p->input_buffers[v];
        s->host_buffer[v] = -1;
    }
    for (int i = 0; i < s->g->layer_count; i++) s->staged[i] = -1;
}

/* ---- streamed parameters ---- */

static int level_of(const sl_scheduler *s, int position)
{
    return s->p->layers[s->u->order[position]].level;
}

/* True when a layer of `level` reads parameter layer `layer`. */
static bool level_uses(const sl_scheduler *s, int level, int layer)
{
    for (int i = 0; i < s->u->order_count; i++) {
        if (level_of(s, i) != level) continue;
        for (int k = s->u->use_first[i]; k < s->u->use_first[i + 1]; k++)
            if (s->u->uses[k] == layer) return true;
    }
    return false;
}

static sluice_status fetch_level(sl_scheduler *s, int level)
{
    if (level < 0 || level >= s->p->level_count) return SLUICE_OK;
    for (int layer = 0; layer < s->g->layer_count; layer++) {
        const sl_layer_place *place = &s->p->layers[layer];
        if (place->shard_count == 0 || place->working >= 0 || s->staged[layer] >= 0 || !level_uses(s, level, layer))
            continue;
        int b = sl_emit_buffer(s, SL_BUFFER_PARAMETERS, SL_TIER_DEVICE, shard_bytes(place), layer, false);
        if (b < 0) return SLUICE_ERR_NO_MEMORY;
        s->p->buffers[b].staged = true;
        s->staged[layer] = b;
        SL_TRY(sl_emit_copy(s, place->master, b, layer));
    }
    return SLUICE_OK;
}

/* Forgets the copies that neither the levels already fetched nor the next one to be fetched need. */
static void drop_level(sl_scheduler *s, int level, int direction)
{
    for (int layer = 0; layer < s->g->layer_count; layer++) {
        bool wanted = false;
        for (int ahead = 1; ahead <= s->prefetch; ahead++)
            wanted = wanted || level_uses(s, level + direction * ahead, layer);
        if (!wanted) s->staged[layer] = -1;
    }
}

/* ---- activations ---- */

static sl_activation_mode mode_of(const sl_scheduler *s, int root)
{
    return s->p->layers[s->u->owner[root]].activations;
}

/* What must survive the gap between a layer's forward and its backward, and does so on the host. */
static bool leaves_device(const sl_scheduler *s, int root)
{
    if (s->u->owner[root] < 0 || s->u->last_forward[root] == s->u->order_count - 1) return false;
    sl_activation_mode mode = mode_of(s, root);
    bool read_again = s->u->needed_backward[root] || s->u->boundary[root];
    if (mode == SL_ACT_OFFLOAD) return read_again;
    return mode == SL_ACT_RECOMPUTE_OFFLOAD && s->u->boundary[root];
}

/* After the last forward use of a value: send it to the host. */
static sluice_status offload_after(sl_scheduler *s, int position)
{
    for (int v = 0; v < s->g->value_count; v++) {
        if (s->g->values[v].storage != v || s->u->last_forward[v] != position || s->device_buffer[v] < 0) continue;
        if (!leaves_device(s, v)) continue;
        uint64_t bytes = s->p->buffers[s->device_buffer[v]].bytes;
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
    if (s->host_buffer[root] < 0 || s->device_buffer[root] >= 0) return SLUICE_OK;
    uint64_t bytes = s->p->buffers[s->host_buffer[root]].bytes;
    int b = sl_emit_buffer(s, SL_BUFFER_ACTIVATION, SL_TIER_DEVICE, bytes, layer, false);
    if (b < 0) return SLUICE_ERR_NO_MEMORY;
    s->p->buffers[b].value = root;
    s->p->buffers[b].staged = true;
    s->device_buffer[root] = b;
    return sl_emit_copy(s, s->host_buffer[root], b, layer);
}

static bool recomputes(const sl_scheduler *s, int layer)
{
    sl_activation_mode mode = s->p->layers[layer].activations;
    return mode == SL_ACT_RECOMPUTE || mode == SL_ACT_RECOMPUTE_OFFLOAD;
}

/* Fetches the offloaded values that the backward of the layer at `position`, or its recomputation, reads. */
static sluice_status fetch_activations(sl_scheduler *s, int position)
{
    if (position < 0) return SLUICE_OK;
    int layer = s->u->order[position];
    const sl_layer *l = &s->g->layers[layer];
    for (int n = l->first_node; recomputes(s, layer) && n < l->first_node + l->node_count; n++)
        for (int k = 0; s->u->recompute[n] && k < s->g->nodes[n].input_count; k++)
            SL_TRY(bring_back(s, s->g->nodes[n].inputs[k], layer));
    for (int n = l->first_backward; n < l->first_backward + l->backward_count; n++)
        for (int k = 0; k < s->g->nodes[n].input_count; k++) SL_TRY(bring_back(s, s->g->nodes[n].inputs[k], layer));
    return SLUICE_OK;
}

/* ---- segments ---- */

static sluice_status forward_layer(sl_scheduler *s, int position, bool keep)
{
    const sl_layer *l = &s->g->layers[s->u->order[position]];
    for (int n = l->first_node; n < l->first_node + l->node_count; n++) SL_TRY(sl_emit_node(s, n, false));
    return keep ? offload_after(s, position) : SLUICE_OK;
}

/* The gradient of a layer is final for this micro-batch: add it to the step's sum, or send it to where its update runs.
 */
static sluice_status finish_gradient(sl_scheduler *s, int layer)
{
    sl_layer_place *place = &s->p->layers[layer];
    bool accumulate = s->p->options.accumulation > 1;
    int arrived = place->contribution;
    if (place->state == SL_TIER_HOST) {
        arrived = sl_emit_buffer(s, SL_BUFFER_GRADIENTS, SL_TIER_HOST, shard_bytes(place), layer, false);
        if (arrived < 0) return SLUICE_ERR_NO_MEMORY;
        SL_TRY(sl_emit_copy(s, place->contribution, arrived, layer));
    }
    if (!accumulate) {
        place->gradient = arrived;
        return SLUICE_OK;
    }
    sl_piece in = sl_whole(s->p, arrived), out = sl_whole(s->p, place->gradient);
    return sl_emit_update(s, SL_OP_ACCUMULATE, -1, layer, place->state, &in, 1, &out, 1);
}

static sluice_status backward_layer(sl_scheduler *s, int position)
{
    int layer = s->u->order[position];
    const sl_layer *l = &s->g->layers[layer];
    for (int ahead = 0; ahead <= s->prefetch; ahead++) SL_TRY(fetch_activations(s, position - ahead));
    for (int n = l->first_node; recomputes(s, layer) && n < l->first_node + l->node_count; n++)
        if (s->u->recompute[n]) SL_TRY(sl_emit_node(s, n, true));
    for (int n = l->first_backward; n < l->first_backward + l->backward_count; n++) {
        SL_TRY(sl_emit_node(s, n, false));
        for (int i = 0; i < s->g->layer_count; i++)
            if (s->u->last_gradient_node[i] == n) SL_TRY(finish_gradient(s, i));
    }
    return SLUICE_OK;
}

typedef enum { WALK_FORWARD, WALK_BACKWARD, WALK_EVALUATE } walk;

static sluice_status walk_levels(sl_scheduler *s, walk kind)
{
    int direction = kind == WALK_BACKWARD ? -1 : 1;
    int first = kind == WALK_BACKWARD ? s->u->order_count - 1 : 0;
    int level = level_of(s, first);
    for (int ahead = 0; ahead < s->prefetch; ahead++) SL_TRY(fetch_level(s, level + direction * ahead));
    for (int i = 0, position = first; i < s->u->order_count; i++, position += direction) {
        bool enters = i == 0 || level_of(s, position) != level;
        if (enters && i > 0) drop_level(s, level, direction);
        level = level_of(s, position);
        if (enters) SL_TRY(fetch_level(s, level + direction * s->prefetch));
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
    p->segments[kind] = (sl_segment){ .first_step = p->step_count };
}

static void end_segment(sl_plan *p, sl_segment_kind kind)
{
    p->segments[kind].step_count = p->step_count - p->segments[kind].first_step;
}

/* ---- update ---- */

typedef struct norm_buffers {
    int leaves[2], result[2]; /* by tier: device, host; -1 where unused */
    sl_tier finish;           /* where the norm is put together */
} norm_buffers;

static sl_piece leaf_piece(const sl_scheduler *s, int layer, int buffer)
{
    int64_t leaves = sl_ceil_div(s->g->layers[layer].element_count, SL_CUT_ELEMENTS);
    return (sl_piece){ buffer, (uint64_t)s->p->layers[layer].leaf_first * sizeof(double),
                       (uint64_t)leaves * sizeof(double) };
}

static sluice_status norm_layer(sl_scheduler *s, int node, const norm_buffers *norm)
{
    int layer = s->g->nodes[node].layer;
    const sl_layer_place *place = &s->p->layers[layer];
    sl_piece in = sl_whole(s->p, place->gradient), out = leaf_piece(s, layer, norm->leaves[place->state]);
    SL_TRY(sl_emit_update(s, SL_OP_NORM_LEAVES, node, layer, place->state, &in, 1, &out, 1));
    if (place->state == norm->finish) return SLUICE_OK;
    sl_piece pieces[2] = { out, leaf_piece(s, layer, norm->leaves[norm->finish]) };
    sl_step copy = { .kind = SL_STEP_COPY,
                     .stream = SL_STREAM_TO_HOST,
                     .op = SL_OP_COUNT,
                     .node = -1,
                     .layer = layer,
                     .input_count = 1,
                     .output_count = 1,
                     .event = -1 };
    return sl_plan_add_step(s->p, &copy, pieces);
}

static sluice_status norm_finish(sl_scheduler *s, int node, const norm_buffers *norm)
{
    sl_piece in = sl_whole(s->p, norm->leaves[norm->finish]), out = sl_whole(s->p, norm->result[norm->finish]);
    SL_TRY(sl_emit_update(s, SL_OP_NORM_FINISH, node, -1, norm->finish, &in, 1, &out, 1));
    if (norm->finish == SL_TIER_HOST && norm->result[SL_TIER_DEVICE] >= 0)
        return sl_emit_copy(s, norm->result[SL_TIER_HOST], norm->result[SL_TIER_DEVICE], -1);
    return SLUICE_OK;
}

/* Parameters that live on the host but are updated on the device pass through a staged copy. */
static sluice_status update_layer(sl_scheduler *s, int node, const norm_buffers *norm)
{
    int layer = s->g->nodes[node].layer;
    const sl_layer_place *place = &s->p->layers[layer];
    int target = place->master;
    bool staged = place->state == SL_TIER_DEVICE && s->p->buffers[place->master].tier == SL_TIER_HOST;
    if (staged) {
        target = sl_emit_buffer(s, SL_BUFFER_PARAMETERS, SL_TIER_DEVICE, shard_bytes(place), layer, false);
        if (target < 0) return SLUICE_ERR_NO_MEMORY;
        s->p->buffers[target].staged = true;
        SL_TRY(sl_emit_copy(s, place->master, target, layer));
    }
    sl_piece in[2] = { sl_whole(s->p, place->gradient), sl_whole(s->p, norm->result[place->state]) };
    sl_piece out[1 + SL_MAX_STATE_SLOTS] = { sl_whole(s->p, target) };
    int slots = s->p->options.state_slots;
    for (int k = 0; k < slots; k++) out[1 + k] = sl_whole(s->p, place->slots[k]);
    SL_TRY(sl_emit_update(s, SL_OP_UPDATE, node, layer, place->state, in, 2, out, 1 + slots));
    if (staged) return sl_emit_copy(s, target, place->master, layer);
    if (place->working >= 0 && place->working != place->master)
        return sl_emit_copy(s, place->master, place->working, layer);
    return SLUICE_OK;
}

static sluice_status make_norm_buffers(sl_scheduler *s, norm_buffers *norm)
{
    bool on[2] = { false, false };
    for (int i = 0; i < s->g->layer_count; i++)
        if (trainable(s, i)) on[s->p->layers[i].state] = true;
    norm->finish = on[SL_TIER_HOST] ? SL_TIER_HOST : SL_TIER_DEVICE;
    for (int t = 0; t < 2; t++) {
        norm->leaves[t] = norm->result[t] = -1;
        if (!on[t]) continue;
        norm->leaves[t] =
            sl_emit_buffer(s, SL_BUFFER_NORM, (sl_tier)t, (uint64_t)s->p->leaf_count * sizeof(double), -1, false);
        norm->result[t] = sl_emit_buffer(s, SL_BUFFER_NORM, (sl_tier)t, sizeof(sl_norm_result), -1, false);
        if (norm->leaves[t] < 0 || norm->result[t] < 0) return SLUICE_ERR_NO_MEMORY;
    }
    s->p->norm_buffer = norm->result[norm->finish];
    s->p->leaves_buffer = norm->leaves[norm->finish];
    return SLUICE_OK;
}

static sluice_status update_segment(sl_scheduler *s)
{
    norm_buffers norm;
    SL_TRY(make_norm_buffers(s, &norm));
    for (int n = s->g->forward_count + s->g->backward_count; n < s->g->node_count; n++) {
        sl_op op = s->g->nodes[n].op;
        if (op == SL_OP_NORM_LEAVES) SL_TRY(norm_layer(s, n, &norm));
        if (op == SL_OP_NORM_FINISH) SL_TRY(norm_finish(s, n, &norm));
        if (op == SL_OP_UPDATE) SL_TRY(update_layer(s, n, &norm));
    }
    return SLUICE_OK;
}

/* ---- the whole ---- */

/* What the caller reads after a segment must still be there at its end. */
static void pin_to_segment_end(sl_plan *p, int buffer, sl_segment_kind kind)
{
    if (buffer < 0 || p->buffers[buffer].permanent) return;
    int last = p->segments[kind].first_step + p->segments[kind].step_count - 1;
    if (p->buffers[buffer].last < last) p->buffers[buffer].last = last;
}

static void pin_results(sl_plan *p)
{
    pin_to_segment_end(p, p->loss_buffer, SL_SEGMENT_FORWARD);
    pin_to_segment_end(p, p->norm_buffer, SL_SEGMENT_UPDATE);
    pin_to_segment_end(p, p->leaves_buffer, SL_SEGMENT_UPDATE);
    pin_to_segment_end(p, p->eval_loss_buffer, SL_SEGMENT_EVALUATE);
    pin_to_segment_end(p, p->output_buffer, SL_SEGMENT_EVALUATE);
}

static sluice_status training_segments(sl_scheduler *s)
{
    sl_plan *p = s->p;
    begin_segment(p, SL_SEGMENT_FORWARD);
    SL_TRY(walk_levels(s, WALK_FORWARD));
    p->loss_buffer = s->device_buffer[s->g->values[s->g->loss].storage];
    end_segment(p, SL_SEGMENT_FORWARD);
    begin_segment(p, SL_SEGMENT_BACKWARD);
    SL_TRY(walk_levels(s, WALK_BACKWARD));
    end_segment(p, SL_SEGMENT_BACKWARD);
    begin_segment(p, SL_SEGMENT_UPDATE);
    SL_TRY(update_segment(s));
    end_segment(p, SL_SEGMENT_UPDATE);
    return SLUICE_OK;
}

static sluice_status evaluation_segment(sl_scheduler *s)
{
    sl_plan *p = s->p;
    forget_values(s);
    begin_segment(p, SL_SEGMENT_EVALUATE);
    SL_TRY(walk_levels(s, WALK_EVALUATE));
    end_segment(p, SL_SEGMENT_EVALUATE);
    if (s->g->loss >= 0) p->eval_loss_buffer = s->device_buffer[s->g->values[s->g->loss].storage];
    if (s->g->output >= 0) p->output_buffer = s->device_buffer[s->g->values[s->g->output].storage];
    return SLUICE_OK;
}

static void reset(sl_plan *p)
{
    p->buffer_count = p->piece_count = p->step_count = p->wait_count = p->event_count = 0;
    p->loss_buffer = p->norm_buffer = p->leaves_buffer = p->output_buffer = p->eval_loss_buffer = -1;
    for (int k = 0; k < SL_SEGMENT_COUNT; k++) p->segments[k] = (sl_segment){ 0 };
}

static sluice_status build(sl_scheduler *s)
{
    reset(s->p);
    for (int i = 0; i < s->g->layer_count; i++) SL_TRY(layer_permanents(s, i));
    SL_TRY(inputs(s));
    forget_values(s);
    if (s->p->options.training) SL_TRY(training_segments(s));
    if (s->p->options.evaluation) SL_TRY(evaluation_segment(s));
    sl_plan_lifetimes(s->p);
    /* pinned first, so that nothing takes over a result the caller will read */
    pin_results(s->p);
    sl_merge_in_place(s->p);
    return SLUICE_OK;
}

sluice_status sl_plan_schedule(sl_plan *p, const sl_usage *u, int prefetch)
{
    size_t values = (size_t)p->graph->value_count + 1, layers = (size_t)p->graph->layer_count + 1;
    sl_scheduler s = { .p = p, .u = u, .g = p->graph, .prefetch = prefetch };
    s.device_buffer = sl_alloc_array(values, sizeof(int), "plan: device buffers of values");
    s.host_buffer = sl_alloc_array(values, sizeof(int), "plan: host buffers of values");
    s.staged = sl_alloc_array(layers, sizeof(int), "plan: staged layers");
    sluice_status st = s.device_buffer && s.host_buffer && s.staged ? build(&s) : SLUICE_ERR_NO_MEMORY;
    sl_free(s.device_buffer);
    sl_free(s.host_buffer);
    sl_free(s.staged);
    return st;
}
