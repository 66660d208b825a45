/* decoding.c: see decoding.h. */
#include "train/decoding.h"

#include <string.h>

#include "core/alloc.h"
#include "train/engine_parts.h"

struct sl_cached_decoder {
    sluice_engine *engine; /* borrowed */
    sl_batch_buffers batch;
    int32_t *tokens, *positions, *slots; /* of `batch` */
    int64_t rows, wanted, vocabulary;    /* rows: of a run; wanted: of its output */
    int64_t slot_count, places;
    float *logits; /* owned; of the wanted rows */
    int *due;      /* owned; of each sequence of a run: ids that it feeds */
};

/* ---- sequences ---- */

sluice_status sl_sequence_add(sl_sequence *s, const int32_t *ids, int64_t count)
{
    if (s->count + count > s->capacity) {
        int64_t wanted = 2 * s->capacity > s->count + count ? 2 * s->capacity : s->count + count + 64;
        int32_t *grown = sl_realloc(s->ids, (size_t)s->capacity * sizeof *grown, (size_t)wanted * sizeof *grown,
                                    "tokens of a sequence");
        if (grown == NULL) return SLUICE_ERR_NO_MEMORY;
        s->ids = grown;
        s->capacity = wanted;
    }
    if (count > 0) memcpy(s->ids + s->count, ids, (size_t)count * sizeof *ids);
    s->count += count;
    return SLUICE_OK;
}

void sl_sequence_cut(sl_sequence *s, int64_t count)
{
    if (count < s->count) s->count = count;
    if (s->fed > s->count) s->fed = s->count;
    if (s->start > s->fed) s->start = s->fed = 0;
}

void sl_sequence_free(sl_sequence *s)
{
    sl_free(s->ids);
    *s = (sl_sequence){ .ids = NULL };
}

/* ---- life ---- */

/* Sizes of the graph. */
static sluice_status find_sizes(sl_cached_decoder *d)
{
    const sluice_graph *g = d->engine->graph;
    const sl_value *output = g->output >= 0 ? &g->values[g->output] : NULL;
    for (int n = 0; n < g->forward_count; n++) {
        const sl_node *node = &g->nodes[n];
        if (node->op == SL_OP_ATTENTION_CACHED) d->slot_count = node->attrs.cached.slots;
    }
    d->rows = g->row_room[SL_ROWS_GIVEN];
    d->wanted = g->row_room[SL_ROWS_WANTED];
    if (d->slot_count == 0 || d->rows == 0 || output == NULL)
        return sl_fail(SLUICE_ERR_FAILED, "decoder: the graph was not built for generation");
    d->vocabulary = output->shape.dim[output->shape.rank - 1];
    return SLUICE_OK;
}

static int32_t *input_of(const sl_cached_decoder *d, const char *name)
{
    const sl_data_field *f = sl_batch_field(&d->batch, name);
    return f != NULL ? f->buffer : NULL;
}

static sluice_status create(sl_cached_decoder *d)
{
    SL_TRY(find_sizes(d));
    SL_TRY(sl_batch_buffers_make(d->engine->graph, &d->batch));
    d->tokens = input_of(d, "tokens");
    d->positions = input_of(d, "positions");
    d->slots = input_of(d, "slots");
    if (d->tokens == NULL || d->positions == NULL || d->slots == NULL)
        return sl_fail(SLUICE_ERR_FAILED, "decoder: the graph lacks an input of a generation graph");
    d->logits = sl_alloc_array((size_t)(d->wanted * d->vocabulary), sizeof *d->logits, "logits");
    d->due = sl_alloc_array((size_t)d->slot_count, sizeof *d->due, "rows of sequences");
    return d->logits != NULL && d->due != NULL ? SLUICE_OK : SLUICE_ERR_NO_MEMORY;
}

sluice_status sl_cached_decoder_create(sluice_engine *engine, int64_t places, sl_cached_decoder **out)
{
    sl_cached_decoder *d = sl_alloc(sizeof *d, "decoder");
    if (d == NULL) return SLUICE_ERR_NO_MEMORY;
    d->engine = engine;
    d->places = places;
    sluice_status st = create(d);
    if (st != SLUICE_OK) {
        sl_cached_decoder_destroy(d);
        return st;
    }
    *out = d;
    return SLUICE_OK;
}

void sl_cached_decoder_destroy(sl_cached_decoder *d)
{
    if (d == NULL) return;
    sl_batch_buffers_free(&d->batch);
    sl_free(d->logits);
    sl_free(d->due);
    sl_free(d);
}

int64_t sl_cached_decoder_vocabulary(const sl_cached_decoder *d)
{
    return d->vocabulary;
}

int64_t sl_cached_decoder_slots(const sl_cached_decoder *d)
{
    return d->slot_count;
}

int64_t sl_cached_decoder_places(const sl_cached_decoder *d)
{
    return d->places;
}

/* ---- a run ---- */

/* Where its ids do not fit in the slot, the newest half of what does stays. */
static bool make_room(const sl_cached_decoder *d, sl_sequence *s)
{
    if (s->count - s->start <= d->places) return false;
    s->start = s->count - (d->places + 1) / 2;
    s->fed = s->start;
    return true;
}

/* Rows that each sequence gets: one, as far as they go, then all that it has, in order. Returns how many end with their last
 * id: those have logits. */
static int share_rows(const sl_cached_decoder *d, sl_sequence *const *sequences, int count)
{
    int64_t left = d->rows;
    int complete = 0;
    for (int i = 0; i < count; i++) left -= d->due[i] = left > 0;
    for (int i = 0; i < count; i++) {
        int64_t more = sequences[i]->count - sequences[i]->fed - d->due[i], given = more < left ? more : left;
        if (d->due[i] == 0 || given <= 0) continue;
        d->due[i] += (int)given;
        left -= given;
    }
    for (int i = 0; i < count; i++) complete += d->due[i] > 0 && sequences[i]->fed + d->due[i] == sequences[i]->count;
    return complete;
}

static void put_row(sl_cached_decoder *d, int64_t row, const sl_sequence *s, int64_t id)
{
    d->tokens[row] = s->ids[id];
    d->positions[row] = (int32_t)(id - s->start);
    d->slots[row] = s->slot;
}

/* The last ids of the sequences that end come first, because logits are those of the first rows. Returns how many rows there
 * are. */
static int64_t put_rows(sl_cached_decoder *d, sl_sequence *const *sequences, int count, int complete)
{
    int64_t first = 0, next = complete;
    for (int i = 0; i < count; i++) {
        const sl_sequence *s = sequences[i];
        int64_t end = s->fed + d->due[i];
        bool ends = d->due[i] > 0 && end == s->count;
        for (int64_t id = s->fed; id < end - ends; id++) put_row(d, next++, s, id);
        if (ends) put_row(d, first++, s, end - 1);
    }
    return next;
}

sluice_status sl_cached_decoder_run(sl_cached_decoder *d, sl_sequence *const *sequences, int count,
                                    const float **logits, bool *slid)
{
    sluice_batch batch = sl_batch_of(&d->batch);
    int ended = 0;
    for (int i = 0; i < count; i++)
        if (make_room(d, sequences[i]) && slid != NULL) *slid = true;
    int complete = share_rows(d, sequences, count);
    int64_t rows = put_rows(d, sequences, count, complete);
    SL_TRY(sl_engine_decode(d->engine, &batch, rows, complete, d->logits));
    for (int i = 0; i < count; i++) {
        sl_sequence *s = sequences[i];
        s->fed += d->due[i];
        bool ends = d->due[i] > 0 && s->fed == s->count;
        logits[i] = ends ? d->logits + (size_t)ended * (size_t)d->vocabulary : NULL;
        ended += ends;
    }
    return SLUICE_OK;
}
