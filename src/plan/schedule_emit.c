/* schedule_emit.c: one step at a time onto the plan, and lifetimes from what was written. */
#include <limits.h>

#include "core/alloc.h"
#include "core/bytes.h"
#include "ir/form.h"
#include "plan/schedule.h"

int sl_emit_buffer(sl_scheduler *s, sl_buffer_kind kind, sl_tier tier, uint64_t bytes, int layer, bool permanent)
{
    sl_buffer b = {
        .kind = kind, .tier = tier, .bytes = bytes, .layer = layer, .permanent = permanent, .value = -1, .slot = -1
    };
    if (tier == SL_TIER_DISK) b.bytes = sl_align_up(bytes, SL_DISK_UNIT);
    b.first = permanent ? 0 : INT_MAX;
    b.last = permanent ? INT_MAX : -1;
    return sl_plan_add_buffer(s->p, &b);
}

sluice_status sl_emit_layer_buffer(sl_scheduler *s, sl_buffer_kind kind, sl_form form, sl_tier tier, int layer,
                                   bool shard, bool permanent, int *out)
{
    uint64_t bytes = sl_plan_form_bytes(s->p, form, layer, shard);
    *out = sl_emit_buffer(s, kind, tier, bytes, layer, permanent);
    if (*out < 0) return SLUICE_ERR_NO_MEMORY;
    s->p->buffers[*out].shard = shard;
    s->p->buffers[*out].form = form;
    return SLUICE_OK;
}

sl_piece sl_range_piece(const sl_scheduler *s, int buffer, sl_range range)
{
    return sl_plan_range_piece(s->p, buffer, range);
}

int64_t sl_updated_ranges(const sl_scheduler *s, int layer)
{
    if (!sl_cuts_state(s->p)) return sl_has_parameters(s, layer);
    return sl_shard_range_count(&s->p->layers[layer].shards, s->p->options.rank);
}

sl_range sl_updated_range(const sl_scheduler *s, int layer, int64_t index)
{
    if (!sl_cuts_state(s->p)) return (sl_range){ 0, s->g->layers[layer].element_count };
    return sl_shard_range(&s->p->layers[layer].shards, s->p->options.rank, index);
}

sluice_status sl_emit_copy_piece(sl_scheduler *s, sl_piece from, sl_piece to, int layer)
{
    sl_piece pieces[2] = { from, to };
    if (from.bytes == 0) return SLUICE_OK;
    sl_step step = { .kind = SL_STEP_COPY,
                     .stream = sl_copy_stream(s->p->buffers[from.buffer].tier, s->p->buffers[to.buffer].tier),
                     .op = SL_OP_COUNT,
                     .node = -1,
                     .layer = layer,
                     .input_count = 1,
                     .output_count = 1,
                     .when = s->when,
                     .event = -1 };
    return sl_plan_add_step(s->p, &step, pieces);
}

sluice_status sl_emit_copy(sl_scheduler *s, int from, int to, int layer)
{
    return sl_emit_copy_piece(s, sl_whole(s->p, from), sl_whole(s->p, to), layer);
}

/* The part of a layer's flat buffer that a parameter, or its gradient, is. */
static sl_piece parameter_piece(const sl_scheduler *s, int parameter, int buffer)
{
    const sl_parameter *q = &s->g->parameters[parameter];
    size_t each = buffer < 0 ? 0 : sl_form_element_bytes(s->p->buffers[buffer].form);
    return (sl_piece){ buffer, (uint64_t)q->offset * each, (uint64_t)q->count * each };
}

static sluice_status input_piece(const sl_scheduler *s, int value, sl_piece *out)
{
    const sl_value *v = &s->g->values[value];
    int buffer;
    if (v->kind == SL_VALUE_PARAMETER) {
        int layer = s->g->parameters[v->parameter].layer;
        buffer = s->p->layers[layer].working >= 0 ? s->p->layers[layer].working : s->staged[layer];
        *out = parameter_piece(s, v->parameter, buffer);
    } else if (v->kind == SL_VALUE_PARAM_GRAD) {
        buffer = s->p->layers[s->g->parameters[v->parameter].layer].contribution;
        *out = parameter_piece(s, v->parameter, buffer);
    } else {
        buffer = s->device_buffer[v->storage];
        *out = (sl_piece){ buffer, 0, sl_value_bytes(v) };
    }
    if (buffer < 0)
        return sl_fail(SLUICE_ERR_FAILED, "plan: value \"%s\" is read where it is not on the device", v->name);
    return SLUICE_OK;
}

static int contribution_buffer(sl_scheduler *s, int layer)
{
    sl_layer_place *place = &s->p->layers[layer];
    if (place->contribution < 0 && sl_emit_layer_buffer(s, SL_BUFFER_GRADIENTS, sl_wire_form(s), SL_TIER_DEVICE, layer,
                                                        false, false, &place->contribution) != SLUICE_OK)
        return -1;
    return place->contribution;
}

static int value_buffer(sl_scheduler *s, int value, int layer)
{
    const sl_value *v = &s->g->values[value];
    int b = sl_emit_buffer(s, SL_BUFFER_ACTIVATION, SL_TIER_DEVICE, sl_value_bytes(v), layer, false);
    if (b < 0) return b;
    s->p->buffers[b].value = value;
    s->p->buffers[b].form = (sl_form)v->dtype;
    return b;
}

/* A recomputed node may also produce values that were kept: those outputs go to a buffer that dies at once. */
static sluice_status output_piece(sl_scheduler *s, const sl_node *node, int k, bool recomputed, sl_piece *out)
{
    const sl_value *v = &s->g->values[node->outputs[k]];
    if (v->kind == SL_VALUE_PARAM_GRAD) {
        int b = contribution_buffer(s, s->g->parameters[v->parameter].layer);
        *out = parameter_piece(s, v->parameter, b);
        return b < 0 ? SLUICE_ERR_NO_MEMORY : SLUICE_OK;
    }
    int root = v->storage;
    if (v->kind == SL_VALUE_STATE) {
        *out = sl_whole(s->p, s->p->input_buffers[root]);
        return SLUICE_OK;
    }
    bool kept = recomputed && sl_survives(s->u, root, s->p->layers[node->layer].group_last);
    bool accumulates = (node->attrs.accumulate >> k & 1u) != 0;
    int b = accumulates ? s->device_buffer[root] : value_buffer(s, node->outputs[k], node->layer);
    if (b < 0)
        return accumulates ? sl_fail(SLUICE_ERR_FAILED, "plan: value \"%s\" is added to before it is written", v->name)
                           : SLUICE_ERR_NO_MEMORY;
    if (!kept) s->device_buffer[root] = b;
    *out = (sl_piece){ b, 0, sl_value_bytes(v) };
    return SLUICE_OK;
}

/* Appends the workspace of a kernel to the pieces of its step, whose kernel runs on the device. */
static sluice_status add_workspace(sl_scheduler *s, sl_step *step, uint64_t bytes, sl_piece *pieces)
{
    if (bytes == 0 || step->stream != SL_STREAM_COMPUTE) return SLUICE_OK;
    int b = sl_emit_buffer(s, SL_BUFFER_WORKSPACE, SL_TIER_DEVICE, bytes, step->layer, false);
    if (b < 0) return SLUICE_ERR_NO_MEMORY;
    pieces[sl_step_operands(step)] = sl_whole(s->p, b);
    step->workspace_count = 1;
    return SLUICE_OK;
}

sluice_status sl_emit_node(sl_scheduler *s, int index, bool recomputed)
{
    const sl_node *node = &s->g->nodes[index];
    sl_piece pieces[SL_MAX_INPUTS + SL_MAX_OUTPUTS + 1];
    if (sl_ops[node->op].view) return SLUICE_OK; /* shares its input's storage */
    const sl_run_kind run = s->evaluating ? SL_RUN_EVALUATION : recomputed ? SL_RUN_AGAIN : SL_RUN_TRAINING;
    const unsigned outputs = sl_node_outputs(s->g, node, run);
    for (int k = 0; k < node->input_count; k++) SL_TRY(input_piece(s, node->inputs[k], &pieces[k]));
    for (int k = 0; k < node->output_count; k++) {
        sl_piece *out = &pieces[node->input_count + k];
        *out = (sl_piece){ -1, 0, 0 };
        if (outputs >> k & 1u) SL_TRY(output_piece(s, node, k, recomputed, out));
    }
    sl_step step = { .kind = SL_STEP_COMPUTE,
                     .stream = SL_STREAM_COMPUTE,
                     .op = node->op,
                     .node = index,
                     .layer = node->layer,
                     .input_count = node->input_count,
                     .output_count = node->output_count,
                     .when = s->when,
                     .event = -1,
                     .recomputed = recomputed };
    const uint64_t *workspace = s->p->options.node_workspace;
    SL_TRY(add_workspace(s, &step, workspace != NULL ? workspace[index] : 0, pieces));
    SL_TRY(sl_plan_add_step(s->p, &step, pieces));
    const bool gathers = sl_ops[node->op].gathers && s->p->options.rank_count > 1 && !s->evaluating;
    return gathers ? sl_gather_value(s, index, pieces[node->input_count]) : SLUICE_OK;
}

sluice_status sl_emit_update(sl_scheduler *s, sl_op op, int node, int layer, sl_tier tier, int64_t first,
                             const sl_piece *inputs, int input_count, const sl_piece *outputs, int output_count)
{
    sl_piece pieces[SL_MAX_INPUTS + SL_MAX_OUTPUTS + 1];
    for (int k = 0; k < input_count; k++) pieces[k] = inputs[k];
    for (int k = 0; k < output_count; k++) pieces[input_count + k] = outputs[k];
    sl_step step = { .kind = op == SL_OP_UPDATE ? SL_STEP_UPDATE : SL_STEP_COMPUTE,
                     .stream = tier == SL_TIER_HOST ? SL_STREAM_UPDATE : SL_STREAM_COMPUTE,
                     .op = op,
                     .node = node,
                     .layer = layer,
                     .first = first,
                     .input_count = input_count,
                     .output_count = output_count,
                     .when = s->when,
                     .event = -1 };
    const uint64_t *workspace = s->p->options.update_workspace;
    SL_TRY(add_workspace(s, &step, workspace != NULL ? workspace[op] : 0, pieces));
    return sl_plan_add_step(s->p, &step, pieces);
}

void sl_plan_lifetimes(sl_plan *p)
{
    for (int i = 0; i < p->buffer_count; i++) {
        if (p->buffers[i].permanent) continue;
        p->buffers[i].first = INT_MAX;
        p->buffers[i].last = -1;
    }
    for (int i = 0; i < p->step_count; i++)
        for (int k = 0; k < sl_step_operands(&p->steps[i]); k++) {
            int b = p->pieces[p->steps[i].first_piece + k].buffer;
            if (b < 0 || p->buffers[b].permanent) continue;
            if (p->buffers[b].first == INT_MAX) p->buffers[b].first = i;
            p->buffers[b].last = i;
        }
}

/* Step i may write output 0 over input `in_place`: both transient, the same size, one dying and one born right here. */
static bool can_take_over(const sl_plan *p, int i, sl_piece in, sl_piece out)
{
    if (in.buffer < 0 || out.buffer < 0 || in.buffer == out.buffer) return false;
    const sl_buffer *from = &p->buffers[in.buffer], *to = &p->buffers[out.buffer];
    if (from->permanent || to->permanent || from->kind != SL_BUFFER_ACTIVATION || to->kind != SL_BUFFER_ACTIVATION)
        return false;
    if (from->bytes != to->bytes || in.bytes != out.bytes || in.offset != 0 || out.offset != 0) return false;
    return from->last == i && to->first == i;
}

/* What later steps, and the caller, know as `out` is `in` from now on. */
static void take_over(sl_plan *p, int in, int out)
{
    int *read_later[] = { &p->loss_buffer, &p->eval_loss_buffer, &p->output_buffer };
    sl_buffer *to = &p->buffers[in], *from = &p->buffers[out];
    to->last = from->last;
    to->value = from->value;
    from->bytes = 0; /* takes no room */
    from->first = INT_MAX;
    from->last = -1;
    for (size_t k = 0; k < sizeof read_later / sizeof read_later[0]; k++)
        if (*read_later[k] == out) *read_later[k] = in;
}

static void rename_operands(sl_plan *p, const sl_step *step, const int *renamed)
{
    for (int k = 0; k < sl_step_operands(step); k++) {
        int *buffer = &p->pieces[step->first_piece + k].buffer;
        if (*buffer >= 0 && renamed[*buffer] > 0) *buffer = renamed[*buffer] - 1;
    }
}

/* One walk: an output is born in the step that merges it, so all its uses are still ahead, and what it is renamed to was
 * born earlier and is never renamed again. `renamed` has what a buffer is now, plus 1; 0: itself. */
sluice_status sl_merge_in_place(sl_plan *p)
{
    int *renamed = sl_alloc_array((size_t)p->buffer_count + 1, sizeof *renamed, "plan: merged buffers");
    if (renamed == NULL) return SLUICE_ERR_NO_MEMORY;
    for (int i = 0; i < p->step_count; i++) {
        sl_step *step = &p->steps[i];
        int in_place = step->kind == SL_STEP_COMPUTE && step->node >= 0 ? sl_op_in_place(step->op) : -1;
        rename_operands(p, step, renamed);
        if (in_place < 0 || in_place >= step->input_count) continue;
        sl_piece *pieces = &p->pieces[step->first_piece];
        sl_piece in = pieces[in_place], out = pieces[step->input_count];
        if (!can_take_over(p, i, in, out)) continue;
        renamed[out.buffer] = in.buffer + 1;
        take_over(p, in.buffer, out.buffer);
        rename_operands(p, step, renamed);
    }
    sl_free(renamed);
    return SLUICE_OK;
}
