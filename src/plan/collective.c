/* collective.c: small layers share a collective, because its latency does not depend on its size.
 *
 * What is put together depends on the layers' whole sizes alone, so that every rank makes the same collectives in the
 * same order, whatever it owns. */
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
    if (b->count > 0 && (b->kind != kind || b->in_place != in_place || sl_bucket_is_full(s, b)))
        SL_TRY(sl_bucket_flush(s, b));
    b->kind = kind;
    b->in_place = in_place;
    b->layers[b->count] = layer;
    b->inputs[b->count] = input;
    b->outputs[b->count] = output;
    b->bytes += kind == SL_STEP_REDUCE_SCATTER && !in_place ? input.bytes : output.bytes; /* the whole's */
    b->count++;
    return SLUICE_OK;
}

sluice_status sl_bucket_flush(sl_scheduler *s, sl_bucket *b)
{
    sl_piece pieces[2 * SL_MAX_PARTS];
    int inputs = b->in_place ? 0 : b->count;
    if (b->count == 0) return SLUICE_OK;
    for (int k = 0; k < inputs; k++) pieces[k] = b->inputs[k];
    for (int k = 0; k < b->count; k++) pieces[inputs + k] = b->outputs[k];
    sl_step step = { .kind = b->kind,
                     .stream = SL_STREAM_COMM,
                     .op = SL_OP_COUNT,
                     .node = -1,
                     .layer = b->layers[0],
                     .input_count = inputs,
                     .output_count = b->count,
                     .event = -1,
                     .first_part = s->p->part_count };
    for (int k = 0; k < b->count; k++) SL_TRY(sl_plan_add_part(s->p, b->layers[k]));
    b->bytes = 0;
    b->count = 0;
    return sl_plan_add_step(s->p, &step, pieces);
}
