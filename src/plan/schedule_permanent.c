/* schedule_permanent.c: what stays from training step to training step: parameters, state, sums over micro-batches,
 * inputs, and room for a copy that a checkpoint is written from. plan.h has the table of a layer's buffers. */
#include "plan/schedule.h"

static sluice_status keep(sl_scheduler *s, sl_buffer_kind kind, sl_form form, sl_tier tier, int layer, bool shard,
                          int *out)
{
    return sl_emit_layer_buffer(s, kind, form, tier, layer, shard, true, out);
}

/* The weights that an update writes are others than those that kernels read. */
static bool has_own_master(const sl_scheduler *s, int layer)
{
    const sl_layer_place *place = &s->p->layers[layer];
    if (!sl_is_trained(s, layer)) return false;
    if (s->p->options.delayed) return true;
    return place->state == SL_TIER_HOST && place->parameters == SL_TIER_DEVICE && sl_weights_form(s) != SL_FORM_F16;
}

/* The update writes in place where it runs on the tier on which the parameters live; otherwise on a master of its own
 * beside the state. (Parameters on the host with state on the device pass through the device in the update; f16 weights
 * are only written, so they need no copy to read.) Delayed updates always write a master of their own, which lies on the
 * host where the state or the parameters do. What 16-bit weights lack of their fp32 master is needed by updates alone: it
 * is cut and placed as their state. */
static sluice_status parameters(sl_scheduler *s, int layer)
{
    static const sl_form remainders[] = { [SL_FORM_BF16] = SL_FORM_REMAINDER, [SL_FORM_F16] = SL_FORM_F32 };
    sl_layer_place *place = &s->p->layers[layer];
    sl_form form = sl_weights_form(s);
    SL_TRY(keep(s, SL_BUFFER_PARAMETERS, form, place->parameters, layer, sl_cuts_home(s->p, layer), &place->home));
    if (place->parameters == SL_TIER_DEVICE && !sl_cuts_parameters(s->p)) place->working = place->home;
    place->master = place->home;
    if (has_own_master(s, layer)) {
        bool on_host = place->state == SL_TIER_HOST || place->parameters == SL_TIER_HOST;
        SL_TRY(keep(s, SL_BUFFER_PARAMETERS, form, on_host ? SL_TIER_HOST : SL_TIER_DEVICE, layer, sl_cuts_state(s->p),
                    &place->master));
    }
    if (!sl_is_trained(s, layer) || form == SL_FORM_F32) return SLUICE_OK;
    return keep(s, SL_BUFFER_STATE, remainders[form], place->state, layer, sl_cuts_state(s->p), &place->remainder);
}

/* One rank sums into the whole. Several sum into the owners' shards; at stages 0 and 1 every rank also keeps the whole
 * gradient on its device, which is what these stages mean, unless its update is elsewhere. Sums over micro-batches are
 * fp32 (exact rule 1). */
static sluice_status gradients(sl_scheduler *s, int layer)
{
    sl_layer_place *place = &s->p->layers[layer];
    bool several = s->p->options.rank_count > 1;
    if (several && s->p->options.stage <= 1 && place->state == SL_TIER_DEVICE)
        SL_TRY(keep(s, SL_BUFFER_GRADIENTS, sl_wire_form(s), SL_TIER_DEVICE, layer, false, &place->contribution));
    if (s->p->options.accumulation == 1) return SLUICE_OK;
    return keep(s, SL_BUFFER_GRADIENTS, SL_FORM_F32, place->gradients, layer, several, &place->accumulator);
}

/* Room for the other version of a buffer that an update on speculation writes. */
static sluice_status twin(sl_scheduler *s, int layer, int of)
{
    int other;
    if (of < 0 || s->p->buffers[of].tier != SL_TIER_HOST) return SLUICE_OK;
    SL_TRY(keep(s, SL_BUFFER_TWIN, s->p->buffers[of].form, SL_TIER_HOST, layer, s->p->buffers[of].shard, &other));
    s->p->buffers[other].slot = s->p->buffers[of].slot;
    s->p->buffers[other].twin = of + 1;
    s->p->buffers[of].twin = other + 1;
    return SLUICE_OK;
}

static sluice_status twins(sl_scheduler *s, int layer, int slots)
{
    const sl_layer_place *place = &s->p->layers[layer];
    SL_TRY(twin(s, layer, place->master));
    SL_TRY(twin(s, layer, place->remainder));
    for (int k = 0; k < slots; k++) SL_TRY(twin(s, layer, place->slots[k]));
    return SLUICE_OK;
}

/* Each of what it copies, in that one's form. An f16 master is all in its remainder. */
static sluice_status snapshots(sl_scheduler *s, int layer, int slots)
{
    sl_layer_place *place = &s->p->layers[layer];
    bool shard = s->p->options.rank_count > 1,
         all_in_remainder = place->remainder >= 0 && sl_weights_form(s) == SL_FORM_F16;
    int of[SL_LAYER_TENSORS] = { all_in_remainder ? -1 : place->master, place->remainder };
    for (int k = 2; k < SL_LAYER_TENSORS; k++) of[k] = k - 2 < slots ? place->slots[k - 2] : -1;
    if (s->p->options.delayed && place->master != place->home) of[SL_VISIBLE_TENSOR] = place->home;
    for (int k = 0; k < SL_LAYER_TENSORS; k++)
        if (of[k] >= 0)
            SL_TRY(keep(s, SL_BUFFER_SNAPSHOT, s->p->buffers[of[k]].form, SL_TIER_HOST, layer, shard,
                        &place->snapshots[k]));
    return SLUICE_OK;
}

static sluice_status layer_permanents(sl_scheduler *s, int layer)
{
    sl_layer_place *place = &s->p->layers[layer];
    int slots = sl_is_trained(s, layer) ? s->p->options.state_slots : 0;
    place->master = place->remainder = place->home = place->working = place->contribution = place->accumulator =
        place->gradient = place->fresh = -1;
    for (int k = 0; k < SL_MAX_STATE_SLOTS; k++) place->slots[k] = -1;
    for (int k = 0; k < SL_LAYER_TENSORS; k++) place->snapshots[k] = -1;
    if (!sl_has_parameters(s, layer)) return SLUICE_OK;
    SL_TRY(parameters(s, layer));
    for (int k = 0; k < slots; k++) {
        SL_TRY(keep(s, SL_BUFFER_STATE, s->p->options.state_form, place->state, layer, sl_cuts_state(s->p),
                    &place->slots[k]));
        s->p->buffers[place->slots[k]].slot = k;
    }
    if (place->speculates) SL_TRY(twins(s, layer, slots));
    if (sl_is_trained(s, layer)) SL_TRY(gradients(s, layer));
    return s->p->options.snapshot ? snapshots(s, layer, slots) : SLUICE_OK;
}

/* Rows and their state, f32 whatever the precision: what the parameter of a step lacks of them can be made of these. */
static sluice_status table(sl_scheduler *s, int parameter, sl_table_place *place)
{
    const sl_parameter *q = &s->g->parameters[parameter];
    bool trained = s->p->options.training && q->trainable;
    *place = (sl_table_place){ .home = -1, .snapshot = -1 };
    if (!sl_parameter_is_compact(q)) return SLUICE_OK;
    place->tensors = 1 + (trained ? s->p->options.state_slots : 0);
    uint64_t row = (uint64_t)q->table.dim[1] * sizeof(float) * (uint64_t)place->tensors;
    uint64_t bytes = (uint64_t)sl_plan_table_room(s->p, parameter) * row;
    place->home = sl_emit_buffer(s, SL_BUFFER_TABLE, SL_TIER_HOST, bytes, q->layer, true);
    if (place->home >= 0 && s->p->options.snapshot)
        place->snapshot = sl_emit_buffer(s, SL_BUFFER_SNAPSHOT, SL_TIER_HOST, bytes, q->layer, true);
    return place->home < 0 || (s->p->options.snapshot && place->snapshot < 0) ? SLUICE_ERR_NO_MEMORY : SLUICE_OK;
}

/* The rows of a step and their state, of all tables, and what the ranks send at a time. */
static sluice_status tables(sl_scheduler *s)
{
    int64_t most = 0;
    s->p->table_staging = -1;
    for (int i = 0; i < s->g->parameter_count; i++) {
        SL_TRY(table(s, i, &s->p->tables[i]));
        if (s->p->tables[i].home >= 0) most += s->g->parameters[i].count * s->p->tables[i].tensors;
    }
    if (most == 0) return SLUICE_OK;
    if (s->p->options.rank_count > 1) most += SL_TABLE_CHUNK * s->p->options.rank_count;
    s->p->table_staging = sl_emit_buffer(s, SL_BUFFER_TABLE, SL_TIER_HOST, (uint64_t)most * sizeof(float), -1, true);
    return s->p->table_staging >= 0 ? SLUICE_OK : SLUICE_ERR_NO_MEMORY;
}

/* What a permanent value is to its readers. */
static sl_buffer_kind value_kind(const sluice_graph *g, const sl_value *v)
{
    if (v->kind == SL_VALUE_INPUT) return SL_BUFFER_INPUT;
    return sl_ops[g->nodes[v->producer].op].only_evaluates ? SL_BUFFER_CACHE : SL_BUFFER_RUNNING;
}

/* What the caller fills, and what nodes keep from run to run. */
static sluice_status permanent_values(sl_scheduler *s)
{
    for (int v = 0; v < s->g->value_count; v++) {
        int *buffer = &s->p->input_buffers[v];
        const sl_value *value = &s->g->values[v];
        bool kept = value->kind == SL_VALUE_STATE;
        *buffer = -1;
        if (value->kind != SL_VALUE_INPUT && !kept) continue;
        *buffer = sl_emit_buffer(s, value_kind(s->g, value), SL_TIER_DEVICE, sl_value_bytes(value),
                                 kept ? s->g->nodes[value->producer].layer : -1, true);
        if (*buffer < 0) return SLUICE_ERR_NO_MEMORY;
        s->p->buffers[*buffer].value = v;
        s->p->buffers[*buffer].form = (sl_form)s->g->values[v].dtype;
    }
    return SLUICE_OK;
}

sluice_status sl_schedule_permanents(sl_scheduler *s)
{
    for (int i = 0; i < s->g->layer_count; i++) SL_TRY(layer_permanents(s, i));
    SL_TRY(tables(s));
    SL_TRY(sl_disk_permanents(s));
    return permanent_values(s);
}
