/* schedule_collective.c: small layers share a collective, because its latency does not depend on its size.
 *
 * What is put together depends on the layers' whole sizes alone, so that every rank makes the same collectives in the
 * same order, whatever it owns.
 *
 * Where ranks cannot reach each other's device memory (comm_on_host), the parts of a collective pass through the host:
 * copied there before it, and back after it. */
#include "core/bytes.h"
#include "plan/schedule.h"

bool sl_bucket_is_full(const sl_scheduler *s, const sl_bucket *b)
{
    uint64_t bytes = s->p->options.bucket_bytes > 0 ? s->p->options.bucket_bytes : SL_BUCKET_BYTES;
    return b->count == SL_MAX_PARTS || b->bytes >= bytes;
}

sluice_status sl_bucket_add(sl_scheduler *s, sl_bucket *b, sl_step_kind kind, int layer, sl_piece input,
                            sl_piece output)
{
    bool in_place = input.buffer < 0;
    if (b->count > 0 && (b->kind != kind || b->in_place != in_place || b->when != s->when || sl_bucket_is_full(s, b)))
        SL_TRY(sl_bucket_flush(s, b));
    b->kind = kind;
    b->in_place = in_place;
    b->when = s->when;
    b->layers[b->count] = layer;
    b->inputs[b->count] = input;
    b->outputs[b->count] = output;
    b->bytes += kind == SL_STEP_REDUCE_SCATTER && !in_place ? input.bytes : output.bytes; /* the whole's */
    b->count++;
    return SLUICE_OK;
}

/* Copies what this rank owns of part k from one piece to another of the same layout: values, or what a norm is put
 * together from. */
static sluice_status copy_owned(sl_scheduler *s, const sl_bucket *b, int k, sl_piece from, sl_piece to)
{
    const int layer = b->layers[k];
    sl_part_cut part = sl_plan_cut_of(s->p, b->kind, layer, b->node, s->p->buffers[from.buffer].form);
    for (int64_t i = 0; i < sl_shard_range_count(part.shards, s->p->options.rank); i++) {
        sl_range r = sl_shard_range(part.shards, s->p->options.rank, i);
        uint64_t begin = (uint64_t)(r.first / part.per) * part.unit;
        uint64_t bytes = (uint64_t)sl_ceil_div(r.count, part.per) * part.unit;
        SL_TRY(sl_emit_copy_piece(s, (sl_piece){ from.buffer, from.offset + begin, bytes },
                                  (sl_piece){ to.buffer, to.offset + begin, bytes }, layer));
    }
    return SLUICE_OK;
}

/* Replaces a piece on the device by one of the same kind on the host. */
static sluice_status stage(sl_scheduler *s, int layer, sl_piece *piece)
{
    const sl_buffer like = s->p->buffers[piece->buffer];
    if (!s->p->options.comm_on_host || like.tier == SL_TIER_HOST) return SLUICE_OK;
    int b = sl_emit_buffer(s, like.kind, SL_TIER_HOST, piece->bytes, layer, false);
    if (b < 0) return SLUICE_ERR_NO_MEMORY;
    s->p->buffers[b].form = like.form;
    s->p->buffers[b].shard = like.shard;
    s->p->buffers[b].staged = true;
    *piece = sl_whole(s->p, b);
    return SLUICE_OK;
}

/* A gather in place reads what this rank owns of the whole; a reduction in place reads all of it; and sums that go on
 * from micro-batch to micro-batch are read too. */
static sluice_status stage_output(sl_scheduler *s, const sl_bucket *b, int k, sl_piece *piece)
{
    bool reduces = b->kind == SL_STEP_REDUCE_SCATTER, sums = reduces && s->p->options.accumulation > 1;
    *piece = b->outputs[k];
    SL_TRY(stage(s, b->layers[k], piece));
    if (piece->buffer == b->outputs[k].buffer) return SLUICE_OK;
    if (b->in_place && !reduces) return copy_owned(s, b, k, b->outputs[k], *piece);
    return b->in_place || sums ? sl_emit_copy_piece(s, b->outputs[k], *piece, b->layers[k]) : SLUICE_OK;
}

static sluice_status emit_bucket(sl_scheduler *s, sl_bucket *b)
{
    int inputs = b->in_place ? 0 : b->count;
    sl_piece pieces[2 * SL_MAX_PARTS], *outputs = pieces + inputs;
    for (int k = 0; k < inputs; k++) {
        pieces[k] = b->inputs[k];
        SL_TRY(stage(s, b->layers[k], &pieces[k]));
        if (pieces[k].buffer != b->inputs[k].buffer)
            SL_TRY(sl_emit_copy_piece(s, b->inputs[k], pieces[k], b->layers[k]));
    }
    for (int k = 0; k < b->count; k++) SL_TRY(stage_output(s, b, k, &outputs[k]));
    sl_step step = { .kind = b->kind,
                     .stream = SL_STREAM_COMM,
                     .op = SL_OP_COUNT,
                     .node = b->kind == SL_STEP_GATHER_VALUE ? b->node : -1,
                     .layer = b->layers[0],
                     .input_count = inputs,
                     .output_count = b->count,
                     .when = b->when,
                     .event = -1,
                     .first_part = s->p->part_count };
    for (int k = 0; k < b->count; k++) SL_TRY(sl_plan_add_part(s->p, b->layers[k]));
    SL_TRY(sl_plan_add_step(s->p, &step, pieces));
    for (int k = 0; k < b->count; k++)
        if (outputs[k].buffer != b->outputs[k].buffer)
            SL_TRY(sl_emit_copy_piece(s, outputs[k], b->outputs[k], b->layers[k]));
    b->bytes = 0;
    b->count = 0;
    return SLUICE_OK;
}

/* Under the condition that held when it was filled. */
sluice_status sl_bucket_flush(sl_scheduler *s, sl_bucket *b)
{
    const unsigned now = s->when;
    if (b->count == 0) return SLUICE_OK;
    s->when = b->when;
    SL_TRY(emit_bucket(s, b));
    s->when = now;
    return SLUICE_OK;
}

sluice_status sl_gather_value(sl_scheduler *s, int node, sl_piece value)
{
    sl_bucket b = { .kind = SL_STEP_GATHER_VALUE, .node = node };
    SL_TRY(sl_bucket_add(s, &b, b.kind, s->g->nodes[node].layer, (sl_piece){ -1, 0, 0 }, value));
    return sl_bucket_flush(s, &b);
}
