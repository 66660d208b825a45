/* schedule_gradient.c: the way of a layer's gradient from backward to its update.
 *
 * One rank: each micro-batch's contribution is added to the accumulator; a single micro-batch is the gradient itself.
 * Several ranks: contributions are exchanged, not partial sums, and the owner of a shard adds them in rank order to its
 * accumulator, micro-batch after micro-batch (exact rule 1). At stage 0 the sums are gathered again, because every rank
 * updates everything: after backward, or during it where an update on speculation waits for them. The accumulator stays on
 * the device while there is room; on the host it travels for each sum.
 *
 * Contributions are in the wire type, sums over micro-batches in fp32; the finished sum is rounded to the wire type
 * once. Where it has a way to go it is cast first and travels narrow; where its update finds it in place, the update
 * and the norm round it as they read it. A single micro-batch's sum over ranks is rounded as it is stored, and at
 * stages 0 and 1 replaces this rank's part of the whole gradient that is kept there anyway. */
#include "plan/schedule.h"

static bool accumulates(const sl_scheduler *s)
{
    return s->p->options.accumulation > 1;
}

static sluice_status transient(sl_scheduler *s, sl_form form, sl_tier tier, int layer, bool shard, int *out)
{
    return sl_emit_layer_buffer(s, SL_BUFFER_GRADIENTS, form, tier, layer, shard, false, out);
}

/* A gradient as it may travel: in the wire type. Sums on the host are at their update. */
static sluice_status narrowed(sl_scheduler *s, int layer, int from, int *out)
{
    const sl_buffer *b = &s->p->buffers[from];
    *out = from;
    if (b->form == sl_wire_form(s)) return SLUICE_OK;
    SL_TRY(transient(s, sl_wire_form(s), b->tier, layer, b->shard, out));
    s->p->buffers[*out].staged = true;
    sl_piece in = sl_whole(s->p, from), to = sl_whole(s->p, *out);
    return sl_emit_update(s, SL_OP_CAST, -1, layer, s->p->buffers[from].tier, 0, &in, 1, &to, 1);
}

/* A finished gradient on the device -> where it waits for its update on the host. */
static sluice_status deliver(sl_scheduler *s, int layer, int from)
{
    sl_layer_place *place = &s->p->layers[layer];
    SL_TRY(transient(s, sl_wire_form(s), place->waiting, layer, s->p->buffers[from].shard, &place->gradient));
    return place->waiting == SL_TIER_DISK ? sl_disk_send(s, sl_whole(s->p, from), place->gradient, layer)
                                          : sl_emit_copy(s, from, place->gradient, layer);
}

/* From the device to the host where the update runs there. */
static sluice_status send_down(sl_scheduler *s, int layer, int from)
{
    sl_layer_place *place = &s->p->layers[layer];
    place->gradient = from;
    if (s->p->buffers[from].tier == SL_TIER_DISK) return SLUICE_OK; /* its update reads it there */
    if (s->p->buffers[from].tier == sl_update_tier(place)) return SLUICE_OK;
    SL_TRY(narrowed(s, layer, from, &from));
    SL_TRY(sl_schedule_leaves(s, layer, from));
    return deliver(s, layer, from);
}

/* A sum over micro-batches that an update in backward waits for: with the last of them it is final, and goes there at
 * once. The others' wait for UPDATE. */
static sluice_status send_last(sl_scheduler *s, int layer)
{
    sl_layer_place *place = &s->p->layers[layer];
    if (!sl_updates_on_arrival(s, layer)) return SLUICE_OK;
    s->when = SL_WHEN_LAST_MICRO;
    SL_TRY(send_down(s, layer, place->accumulator));
    if (s->leaf_tier[layer] < 0) SL_TRY(sl_schedule_leaves(s, layer, place->gradient));
    s->when = 0;
    return sl_schedule_arrived(s, layer);
}

/* A copy on the device of sums that are kept elsewhere. */
static sluice_status bring_sums(sl_scheduler *s, int layer, int *out)
{
    sl_layer_place *place = &s->p->layers[layer];
    SL_TRY(transient(s, SL_FORM_F32, SL_TIER_DEVICE, layer, s->p->buffers[place->accumulator].shard, out));
    s->p->buffers[*out].staged = true;
    return place->gradients == SL_TIER_DISK ? sl_disk_bring(s, place->accumulator, sl_whole(s->p, *out), layer)
                                            : sl_emit_copy(s, place->accumulator, *out, layer);
}

/* And back. Of sums on the disk the leaves are taken while they are here: those of the last micro-batch stay. */
static sluice_status return_sums(sl_scheduler *s, int layer, int from)
{
    const sl_layer_place *place = &s->p->layers[layer];
    if (place->gradients != SL_TIER_DISK) return sl_emit_copy(s, from, place->accumulator, layer);
    SL_TRY(sl_schedule_leaves(s, layer, from));
    return sl_disk_send(s, sl_whole(s->p, from), place->accumulator, layer);
}

/* ---- one rank ---- */

static sluice_status finish_alone(sl_scheduler *s, int layer)
{
    sl_layer_place *place = &s->p->layers[layer];
    int arrived = place->contribution;
    if (!accumulates(s)) {
        SL_TRY(sl_schedule_leaves(s, layer, place->contribution));
        place->gradient = place->contribution;
        if (sl_update_tier(place) == SL_TIER_HOST) SL_TRY(deliver(s, layer, place->contribution));
        return sl_schedule_arrived(s, layer);
    }
    if (place->gradients == SL_TIER_HOST) {
        SL_TRY(transient(s, sl_wire_form(s), SL_TIER_HOST, layer, false, &arrived));
        SL_TRY(sl_emit_copy(s, place->contribution, arrived, layer));
    }
    int sums = place->accumulator;
    if (place->gradients == SL_TIER_DISK) SL_TRY(bring_sums(s, layer, &sums));
    sl_piece in = sl_whole(s->p, arrived), out = sl_whole(s->p, sums);
    SL_TRY(sl_emit_update(s, SL_OP_ACCUMULATE, -1, layer, s->p->buffers[sums].tier, 0, &in, 1, &out, 1));
    if (sums != place->accumulator) SL_TRY(return_sums(s, layer, sums));
    return send_last(s, layer);
}

/* ---- several ranks ---- */

/* The whole gradient is kept, so the sum of its only micro-batch can take its place. */
static bool sums_in_place(const sl_scheduler *s, int layer)
{
    int whole = s->p->layers[layer].contribution;
    return !accumulates(s) && s->p->buffers[whole].permanent;
}

/* Where the collective adds: the accumulator, or a copy of it on the device. */
static sluice_status begin_sum(sl_scheduler *s, int layer, int *target)
{
    sl_layer_place *place = &s->p->layers[layer];
    if (!accumulates(s)) {
        SL_TRY(transient(s, sl_wire_form(s), SL_TIER_DEVICE, layer, true, &place->accumulator));
    } else if (place->gradients != SL_TIER_DEVICE) {
        return bring_sums(s, layer, target);
    }
    *target = place->accumulator;
    return SLUICE_OK;
}

static sluice_status end_sum(sl_scheduler *s, int layer, int target)
{
    sl_layer_place *place = &s->p->layers[layer];
    if (sums_in_place(s, layer)) {
        place->gradient = target; /* at stage 0 still to be gathered */
        return SLUICE_OK;
    }
    if (target != place->accumulator) SL_TRY(return_sums(s, layer, target));
    if (s->p->options.stage == 0) return SLUICE_OK;
    if (accumulates(s)) return send_last(s, layer);
    place->gradient = target;
    SL_TRY(sl_schedule_leaves(s, layer, target));
    if (place->state == SL_TIER_DEVICE) return SLUICE_OK;
    SL_TRY(deliver(s, layer, target));
    return sl_schedule_arrived(s, layer);
}

/* Stage 0: the sums of all shards to every rank. */
static sluice_status gather_sum(sl_scheduler *s, int layer)
{
    sl_layer_place *place = &s->p->layers[layer];
    int shard = place->accumulator, whole = place->contribution;
    if (sums_in_place(s, layer))
        return sl_bucket_add(s, &s->gathers, SL_STEP_GATHER, layer, (sl_piece){ -1, 0, 0 }, sl_whole(s->p, whole));
    SL_TRY(narrowed(s, layer, shard, &shard));
    if (s->p->buffers[shard].tier == SL_TIER_HOST) {
        int narrow = shard;
        SL_TRY(transient(s, sl_wire_form(s), SL_TIER_DEVICE, layer, true, &shard));
        s->p->buffers[shard].staged = true;
        SL_TRY(sl_emit_copy(s, narrow, shard, layer));
    }
    if (!s->p->buffers[whole].permanent) {
        SL_TRY(transient(s, sl_wire_form(s), SL_TIER_DEVICE, layer, false, &whole));
        s->p->buffers[whole].staged = true;
    }
    place->gradient = whole;
    return sl_bucket_add(s, &s->gathers, SL_STEP_GATHER, layer, sl_whole(s->p, shard), sl_whole(s->p, whole));
}

/* Stage 0: sums that an update in backward waits for go to every rank as soon as they are final. The others' wait for
 * UPDATE. */
static sluice_status gather_last(sl_scheduler *s, const sl_bucket *sums)
{
    int count = 0;
    s->when = accumulates(s) ? SL_WHEN_LAST_MICRO : 0;
    for (int k = 0; k < sums->count; k++) {
        if (!sl_updates_on_arrival(s, sums->layers[k])) continue;
        SL_TRY(gather_sum(s, sums->layers[k]));
        count++;
    }
    if (count > 0) SL_TRY(sl_bucket_flush(s, &s->gathers));
    for (int k = 0; k < sums->count; k++)
        if (sl_updates_on_arrival(s, sums->layers[k]))
            SL_TRY(send_down(s, sums->layers[k], s->p->layers[sums->layers[k]].gradient));
    s->when = 0;
    for (int k = 0; k < sums->count; k++) SL_TRY(sl_schedule_arrived(s, sums->layers[k]));
    return SLUICE_OK;
}

static sluice_status flush_sums(sl_scheduler *s)
{
    sl_bucket sums = s->reductions;
    SL_TRY(sl_bucket_flush(s, &s->reductions));
    for (int k = 0; k < sums.count; k++) SL_TRY(end_sum(s, sums.layers[k], sums.outputs[k].buffer));
    return s->p->options.stage == 0 ? gather_last(s, &sums) : SLUICE_OK;
}

sluice_status sl_schedule_gradient(sl_scheduler *s, int layer)
{
    int target = s->p->layers[layer].contribution;
    sl_piece whole = sl_whole(s->p, target);
    if (s->p->options.rank_count == 1) return finish_alone(s, layer);
    bool in_place = sums_in_place(s, layer);
    if (s->reductions.count > 0 && s->reductions.in_place != in_place) SL_TRY(flush_sums(s));
    if (in_place)
        whole = (sl_piece){ -1, 0, 0 };
    else
        SL_TRY(begin_sum(s, layer, &target));
    SL_TRY(sl_bucket_add(s, &s->reductions, SL_STEP_REDUCE_SCATTER, layer, whole, sl_whole(s->p, target)));
    return sl_bucket_is_full(s, &s->reductions) ? flush_sums(s) : SLUICE_OK;
}

sluice_status sl_schedule_gradients_end(sl_scheduler *s)
{
    return flush_sums(s);
}

/* ---- after the last micro-batch ---- */

/* Its gradient was not sent on during backward. */
static bool waits_for_update(const sl_scheduler *s, int layer)
{
    return sl_is_trained(s, layer) && sl_has_parameters(s, layer) && !sl_updates_on_arrival(s, layer);
}

/* Layer by layer in the order of backward: what was ready first goes first. At stage 0 a bucket of gathers is awaited
 * before its layers are sent on. */
sluice_status sl_schedule_final_gradients(sl_scheduler *s)
{
    bool gathers = s->p->options.rank_count > 1 && s->p->options.stage == 0;
    for (int i = s->g->layer_count - 1; i >= 0; i--) {
        if (!waits_for_update(s, i)) continue;
        if (gathers)
            SL_TRY(gather_sum(s, i));
        else if (accumulates(s))
            SL_TRY(send_down(s, i, s->p->layers[i].accumulator));
    }
    SL_TRY(sl_bucket_flush(s, &s->gathers));
    for (int i = s->g->layer_count - 1; gathers && i >= 0; i--)
        if (waits_for_update(s, i)) SL_TRY(send_down(s, i, s->p->layers[i].gradient));
    return SLUICE_OK;
}
