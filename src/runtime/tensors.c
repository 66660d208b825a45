/* tensors.c: parameters and state by element, in fp32, whatever the forms and places in which the plan keeps them.
 *
 * A master in two parts is split on its way in and joined on its way out; moments are rounded to nearest on their way
 * in, which changes nothing for values that came out of the same form. Blocks of 8-bit moments are read, changed and
 * written whole. Nothing here allocates; snapshots are read by another thread while training goes on. When all is settled,
 * several threads may read, and store other elements each. */
#include <string.h>

#include "core/blocks8.h"
#include "core/bytes.h"
#include "core/half.h"
#include "ir/form.h"
#include "runtime/exec_parts.h"

#define CHUNK_ELEMENTS SL_HALVES_CHUNK /* on the stack of whoever calls */
#define BLOCK_BYTES    (SL_BLOCKS8_HEADER + SL_CUT_ELEMENTS)

/* One tensor of a layer, or the copy of it that a checkpoint is written from. */
typedef struct tensor {
    sl_exec *x;
    int buffer;
    const uint8_t *snapshot; /* NULL: in the arena */
    bool is_signed;          /* 8-bit blocks */
} tensor;

/* ---- bytes ---- */

/* Piece of the tensor that holds elements `r` of its layer. */
static sl_piece piece_of(const tensor *t, sl_range r)
{
    return sl_plan_range_piece(t->x->plan, t->buffer, r);
}

static sluice_status get_bytes(const tensor *t, sl_piece q, void *out)
{
    if (t->snapshot == NULL && sl_exec_disk_has(t->x, t->buffer)) return sl_exec_disk_get(t->x, q, out);
    if (t->snapshot == NULL) return sl_exec_read(t->x, sl_exec_span(t->x, q), out);
    memcpy(out, t->snapshot + q.offset, (size_t)q.bytes);
    return SLUICE_OK;
}

static sluice_status put_bytes(const tensor *t, sl_piece q, const void *data)
{
    if (sl_exec_disk_has(t->x, t->buffer)) return sl_exec_disk_put(t->x, q, data);
    return t->x->backend->store(t->x->device, sl_exec_span(t->x, q), data);
}

static sl_form form_of(const tensor *t)
{
    return t->x->plan->buffers[t->buffer].form;
}

/* ---- 16-bit elements ---- */

/* Whole runs at a time: a call for each element would take longer than the work. */
typedef void (*narrow_fn)(const float *from, int64_t count, uint16_t *to);
typedef void (*widen_fn)(const uint16_t *from, int64_t count, float *to);

/* Elements of a run whose number the compiler knows, and for which it uses vectors. */
enum { BLOCK = 32 };

static void upper_halves(const float *from, int64_t count, uint16_t *to)
{
    int64_t i = 0;
    for (; i + BLOCK <= count; i += BLOCK)
        for (int k = 0; k < BLOCK; k++) to[i + k] = sl_weight_high(sl_float_bits(from[i + k]));
    for (; i < count; i++) to[i] = sl_weight_high(sl_float_bits(from[i]));
}

static void lower_halves(const float *from, int64_t count, uint16_t *to)
{
    for (int64_t i = 0; i < count; i++) to[i] = sl_weight_low(sl_float_bits(from[i]));
}

static void to_bf16(const float *from, int64_t count, uint16_t *to)
{
    for (int64_t i = 0; i < count; i++) to[i] = sl_float_to_bf16(from[i]);
}

static void to_f16(const float *from, int64_t count, uint16_t *to)
{
    for (int64_t i = 0; i < count; i++) to[i] = sl_float_to_f16(from[i]);
}

static void from_bf16(const uint16_t *from, int64_t count, float *to)
{
    for (int64_t i = 0; i < count; i++) to[i] = sl_bf16_to_float(from[i]);
}

static void from_f16(const uint16_t *from, int64_t count, float *to)
{
    for (int64_t i = 0; i < count; i++) to[i] = sl_f16_to_float(from[i]);
}

static sluice_status put_halves(const tensor *t, sl_range r, const float *data, narrow_fn narrow)
{
    uint16_t chunk[CHUNK_ELEMENTS];
    for (int64_t done = 0; done < r.count; done += CHUNK_ELEMENTS) {
        int64_t n = r.count - done < CHUNK_ELEMENTS ? r.count - done : CHUNK_ELEMENTS;
        narrow(data + done, n, chunk);
        SL_TRY(put_bytes(t, piece_of(t, (sl_range){ r.first + done, n }), chunk));
    }
    return SLUICE_OK;
}

/* The lower halves of values that have upper ones alone. */
static sluice_status put_zeros(const tensor *t, sl_range r)
{
    static const uint16_t zeros[CHUNK_ELEMENTS];
    for (int64_t done = 0; done < r.count; done += CHUNK_ELEMENTS) {
        int64_t n = r.count - done < CHUNK_ELEMENTS ? r.count - done : CHUNK_ELEMENTS;
        SL_TRY(put_bytes(t, piece_of(t, (sl_range){ r.first + done, n }), zeros));
    }
    return SLUICE_OK;
}

/* They come in one piece, to the second half of `out`, and are widened from the front on: the end of what is written
 * never overtakes what is still to be read. */
static sluice_status get_halves(const tensor *t, sl_range r, float *out, widen_fn widen)
{
    enum { STEP = 1024 };
    uint16_t next[STEP];
    const char *halves = (const char *)out + (size_t)r.count * sizeof *next;
    SL_TRY(get_bytes(t, piece_of(t, r), (void *)halves));
    for (int64_t done = 0; done < r.count; done += STEP) {
        int64_t n = r.count - done < STEP ? r.count - done : STEP;
        memcpy(next, halves + (size_t)done * sizeof *next, (size_t)n * sizeof *next);
        widen(next, n, out + done);
    }
    return SLUICE_OK;
}

/* Adds the lower halves to masters of which `out` holds the upper ones. */
static sluice_status join_halves(const tensor *low, sl_range r, float *out)
{
    uint16_t chunk[CHUNK_ELEMENTS];
    for (int64_t done = 0; done < r.count; done += CHUNK_ELEMENTS) {
        int64_t n = r.count - done < CHUNK_ELEMENTS ? r.count - done : CHUNK_ELEMENTS;
        SL_TRY(get_bytes(low, piece_of(low, (sl_range){ r.first + done, n }), chunk));
        for (int64_t i = 0; i < n; i++)
            out[done + i] = sl_bits_float(sl_weight_join((uint16_t)(sl_float_bits(out[done + i]) >> 16), chunk[i]));
    }
    return SLUICE_OK;
}

/* ---- 8-bit blocks ---- */

/* One block, or the part of it that `r` is. */
typedef struct block {
    sl_range all; /* elements of the layer */
    sl_range part;
    bool wide;
} block;

static block block_at(const tensor *t, sl_range r)
{
    const sl_plan *p = t->x->plan;
    const sl_layer *layer = &p->graph->layers[p->buffers[t->buffer].layer];
    int64_t number = r.first / SL_CUT_ELEMENTS;
    sl_range all =
        sl_range_common((sl_range){ number * SL_CUT_ELEMENTS, SL_CUT_ELEMENTS }, (sl_range){ 0, layer->element_count });
    return (block){ all, sl_range_common(all, r), sl_block_is_wide(layer, number) };
}

static sluice_status get_block(const tensor *t, const block *b, float *values)
{
    uint8_t bytes[BLOCK_BYTES];
    sl_piece q = piece_of(t, b->all);
    if (b->wide) return get_bytes(t, q, values);
    SL_TRY(get_bytes(t, q, bytes));
    sl_blocks8_decode(bytes, (size_t)b->all.count, t->is_signed, values);
    return SLUICE_OK;
}

static sluice_status put_block(const tensor *t, const block *b, const float *values)
{
    uint8_t bytes[BLOCK_BYTES];
    sl_piece q = piece_of(t, b->all);
    if (b->wide) return put_bytes(t, q, values);
    sl_blocks8_encode(values, (size_t)b->all.count, t->is_signed, bytes);
    return put_bytes(t, q, bytes);
}

static sluice_status put_each_block(const tensor *t, sl_range r, const float *data)
{
    float values[SL_CUT_ELEMENTS];
    while (r.count > 0) {
        block b = block_at(t, r);
        if (b.part.count < b.all.count) SL_TRY(get_block(t, &b, values));
        memcpy(values + (b.part.first - b.all.first), data, (size_t)b.part.count * sizeof *values);
        SL_TRY(put_block(t, &b, values));
        data += b.part.count;
        r = (sl_range){ r.first + b.part.count, r.count - b.part.count };
    }
    return SLUICE_OK;
}

static sluice_status put_blocks(const tensor *t, sl_range r, const float *data)
{
    pthread_mutex_lock(&t->x->blocks);
    sluice_status st = put_each_block(t, r, data);
    pthread_mutex_unlock(&t->x->blocks);
    return st;
}

static sluice_status get_blocks(const tensor *t, sl_range r, float *out)
{
    float values[SL_CUT_ELEMENTS];
    while (r.count > 0) {
        block b = block_at(t, r);
        SL_TRY(get_block(t, &b, values));
        memcpy(out, values + (b.part.first - b.all.first), (size_t)b.part.count * sizeof *values);
        out += b.part.count;
        r = (sl_range){ r.first + b.part.count, r.count - b.part.count };
    }
    return SLUICE_OK;
}

/* ---- runs ---- */

/* How each form is read, and written: weights are split, everything else is rounded. */
static const struct {
    narrow_fn weight, other;
    widen_fn widen;
} halves[SL_FORM_COUNT] = {
    [SL_FORM_BF16] = { upper_halves, to_bf16, from_bf16 },
    [SL_FORM_F16] = { to_f16, to_f16, from_f16 },
    [SL_FORM_REMAINDER] = { lower_halves, lower_halves, NULL },
};

/* Values on their way in. */
typedef struct values {
    const float *floats; /* NULL: they are bf16 */
    const char *halves;  /* bf16, at any address */
} values;

static values values_from(values v, int64_t element)
{
    return v.floats != NULL ? (values){ v.floats + element, NULL } : (values){ NULL, v.halves + 2 * element };
}

/* Whether a tensor takes weights of bf16: their upper halves are all there is to them. */
static bool takes_halves(const sl_plan *p, int buffer)
{
    if (buffer < 0 || p->buffers[buffer].form == SL_FORM_REMAINDER) return true;
    return p->buffers[buffer].form == SL_FORM_BF16 && p->buffers[buffer].kind == SL_BUFFER_PARAMETERS;
}

/* Elements r of the layer, which lie side by side in the tensor. */
static sluice_status put_run(const tensor *t, sl_range r, values v)
{
    const float *data = v.floats;
    sl_form form = form_of(t);
    bool weight = t->x->plan->buffers[t->buffer].kind == SL_BUFFER_PARAMETERS;
    if (data == NULL) return form == SL_FORM_REMAINDER ? put_zeros(t, r) : put_bytes(t, piece_of(t, r), v.halves);
    if (form == SL_FORM_F32) return put_bytes(t, piece_of(t, r), data);
    if (form == SL_FORM_BLOCKS8) return put_blocks(t, r, data);
    return put_halves(t, r, data, weight ? halves[form].weight : halves[form].other);
}

static sluice_status get_run(const tensor *t, sl_range r, float *out)
{
    sl_form form = form_of(t);
    if (form == SL_FORM_F32) return get_bytes(t, piece_of(t, r), out);
    if (form == SL_FORM_BLOCKS8) return get_blocks(t, r, out);
    return get_halves(t, r, out, halves[form].widen);
}

/* ---- parameters and slots ---- */

/* Elements [first, first + count) of a parameter in its layer's flat buffer. */
static sl_range run_of(const sl_exec *x, int parameter, int64_t first, int64_t count)
{
    return (sl_range){ x->plan->graph->parameters[parameter].offset + first, count };
}

static bool slot_is_signed(const sl_exec *x, int layer, int slot)
{
    const sl_update_rule *rule = x->rules[layer];
    return rule == NULL || sl_slot_is_signed(rule->kind, slot);
}

/* Stores what a buffer holds of a run: all of it, or in a shard this rank's ranges. */
static sluice_status store_in(sl_exec *x, int buffer, int slot, sl_range run, values v)
{
    const sl_plan *p = x->plan;
    if (buffer < 0) return SLUICE_OK;
    const sl_buffer *b = &p->buffers[buffer];
    const sl_shards *s = &p->layers[b->layer].shards;
    tensor t = { x, buffer, NULL, slot >= 0 && slot_is_signed(x, b->layer, slot) };
    if (!b->shard) return put_run(&t, run, v);
    for (int64_t i = sl_shard_range_at(s, p->options.rank, run.first); i < sl_shard_range_count(s, p->options.rank);
         i++) {
        sl_range common = sl_range_common(sl_shard_range(s, p->options.rank, i), run);
        if (common.count == 0) break;
        SL_TRY(put_run(&t, common, values_from(v, common.first - run.first)));
    }
    return SLUICE_OK;
}

static sluice_status store_values(sl_exec *x, int parameter, int slot, int64_t first, int64_t count, values v)
{
    const sl_layer_place *place = &x->plan->layers[x->plan->graph->parameters[parameter].layer];
    sl_range run = run_of(x, parameter, first, count);
    if (count == 0) return SLUICE_OK;
    if (x->busy) SL_TRY(sl_exec_settle(x));
    if (slot >= 0) return store_in(x, place->slots[slot], slot, run, v);
    if (slot == SL_SLOT_VISIBLE) return store_in(x, place->home, -1, run, v);
    SL_TRY(store_in(x, place->master, -1, run, v));
    SL_TRY(store_in(x, place->remainder, -1, run, v));
    bool one = place->home == place->master || slot == SL_SLOT_MASTER;
    return one ? SLUICE_OK : store_in(x, place->home, -1, run, v);
}

static bool is_table(const sl_exec *x, int parameter)
{
    return x->plan->tables[parameter].home >= 0;
}

sluice_status sl_compact_store(sl_exec *x, int parameter, int slot, int64_t first, int64_t count, const float *data)
{
    return store_values(x, parameter, slot, first, count, (values){ data, NULL });
}

sluice_status sl_exec_store(sl_exec *x, int parameter, int slot, int64_t first, int64_t count, const float *data)
{
    if (is_table(x, parameter)) {
        sl_table_store(x, parameter, slot, first, count, data);
        return SLUICE_OK;
    }
    return store_values(x, parameter, slot, first, count, (values){ data, NULL });
}

bool sl_exec_takes_bf16(const sl_exec *x, int parameter)
{
    const sl_layer_place *place = &x->plan->layers[x->plan->graph->parameters[parameter].layer];
    if (is_table(x, parameter)) return false;
    return takes_halves(x->plan, place->master) && takes_halves(x->plan, place->remainder) &&
           takes_halves(x->plan, place->home);
}

sluice_status sl_exec_store_bf16(sl_exec *x, int parameter, int64_t first, int64_t count, const void *data)
{
    return store_values(x, parameter, -1, first, count, (values){ NULL, data });
}

/* The tensors that make up a parameter's values or one of its slots, in the arena or in a snapshot. */
typedef struct parts {
    tensor first, second; /* second: what is joined to the first; buffer -1: nothing */
} parts;

static tensor tensor_at(sl_exec *x, int layer, int index, int buffer, bool snapshot, bool is_signed)
{
    int at = snapshot ? x->plan->layers[layer].snapshots[index] : buffer;
    const uint8_t *bytes = snapshot ? x->snapshots[layer * SL_LAYER_TENSORS + index] : NULL;
    return (tensor){ x, at, bytes, is_signed };
}

static parts parts_of(sl_exec *x, int layer, int slot, bool snapshot)
{
    const sl_layer_place *place = &x->plan->layers[layer];
    parts q = { .second.buffer = -1 };
    bool master_in_remainder = place->remainder >= 0 && x->plan->graph->precision == SLUICE_F16;
    if (slot >= 0) {
        q.first = tensor_at(x, layer, 2 + slot, place->slots[slot], snapshot, slot_is_signed(x, layer, slot));
    } else if (slot == SL_SLOT_VISIBLE) {
        q.first = tensor_at(x, layer, SL_VISIBLE_TENSOR, place->home, snapshot, false);
    } else if (master_in_remainder) {
        q.first = tensor_at(x, layer, 1, place->remainder, snapshot, false);
    } else {
        q.first = tensor_at(x, layer, 0, place->master, snapshot, false);
        if (place->remainder >= 0) q.second = tensor_at(x, layer, 1, place->remainder, snapshot, false);
    }
    return q;
}

static sluice_status fetch_run(const parts *q, sl_range r, float *out)
{
    SL_TRY(get_run(&q->first, r, out));
    return q->second.buffer < 0 ? SLUICE_OK : join_halves(&q->second, r, out);
}

static sluice_status fetch(sl_exec *x, int parameter, int slot, int64_t first, int64_t count, bool snapshot, float *out)
{
    const sl_plan *p = x->plan;
    int layer = p->graph->parameters[parameter].layer, rank = p->options.rank;
    const sl_shards *s = &p->layers[layer].shards;
    sl_range run = run_of(x, parameter, first, count);
    parts q = parts_of(x, layer, slot, snapshot);
    if (count == 0 || q.first.buffer < 0) return SLUICE_OK;
    if (p->options.rank_count == 1) return fetch_run(&q, run, out);
    for (int64_t i = sl_shard_range_at(s, rank, run.first); i < sl_shard_range_count(s, rank); i++) {
        sl_range common = sl_range_common(sl_shard_range(s, rank, i), run);
        if (common.count == 0) break;
        SL_TRY(fetch_run(&q, common, out + (common.first - run.first)));
    }
    return SLUICE_OK;
}

sluice_status sl_compact_fetch(sl_exec *x, int parameter, int slot, int64_t count, bool all, float *out)
{
    if (!all) return fetch(x, parameter, slot, 0, count, false, out);
    parts q = parts_of(x, x->plan->graph->parameters[parameter].layer, slot, false);
    return q.first.buffer < 0 ? SLUICE_OK : fetch_run(&q, run_of(x, parameter, 0, count), out);
}

sluice_status sl_exec_fetch(sl_exec *x, int parameter, int slot, int64_t first, int64_t count, float *out)
{
    if (is_table(x, parameter)) {
        sl_table_fetch(x, parameter, slot, first, count, false, out);
        return SLUICE_OK;
    }
    return fetch(x, parameter, slot, first, count, false, out);
}

sluice_status sl_exec_fetch_snapshot(sl_exec *x, int parameter, int slot, int64_t first, int64_t count, float *out)
{
    if (is_table(x, parameter)) {
        sl_table_fetch(x, parameter, slot, first, count, true, out);
        return SLUICE_OK;
    }
    return fetch(x, parameter, slot, first, count, true, out);
}

/* ---- snapshots ---- */

/* Copies the owned part of a buffer to its snapshot, range by range where one is whole and the other a shard. */
static sluice_status copy_aside(sl_exec *x, int from, int to)
{
    const sl_plan *p = x->plan;
    const sl_buffer *source = &p->buffers[from];
    const sl_shards *s = &p->layers[source->layer].shards;
    bool alike = source->shard == p->buffers[to].shard;
    sl_stream stream = sl_copy_stream(source->tier, p->buffers[to].tier);
    int64_t ranges = alike ? 1 : sl_shard_range_count(s, p->options.rank);
    for (int64_t i = 0; i < ranges; i++) {
        sl_piece src = { from, 0, source->bytes }, dst = { to, 0, source->bytes };
        if (!alike) {
            sl_range r = sl_shard_range(s, p->options.rank, i);
            src = sl_plan_range_piece(p, from, r);
            dst = sl_plan_range_piece(p, to, r);
        }
        if (src.bytes > 0) SL_TRY(x->backend->copy(x->device, stream, sl_exec_span(x, dst), sl_exec_span(x, src)));
    }
    return SLUICE_OK;
}

/* Tensor k of those that a snapshot may hold. */
static int kept_buffer(const sl_layer_place *place, int k)
{
    if (k == SL_VISIBLE_TENSOR) return place->home;
    return k == 0 ? place->master : k == 1 ? place->remainder : place->slots[k - 2];
}

static sluice_status snapshot_layer(sl_exec *x, int layer)
{
    const sl_plan *p = x->plan;
    const sl_layer_place *place = &p->layers[layer];
    for (int k = 0; k < SL_LAYER_TENSORS; k++) {
        int to = place->snapshots[k], from = kept_buffer(place, k);
        void *address = NULL;
        if (to < 0) continue;
        SL_TRY(copy_aside(x, from, to));
        sl_span span = sl_plan_span(p, (sl_piece){ to, 0, p->buffers[to].bytes });
        SL_TRY(x->backend->resolve(x->device, "snapshot", span, &address));
        x->snapshots[layer * SL_LAYER_TENSORS + k] = address;
    }
    return SLUICE_OK;
}

sluice_status sl_exec_snapshot(sl_exec *x)
{
    if (!x->plan->options.snapshot)
        return sl_fail(SLUICE_ERR_FAILED, "the plan has no room for a snapshot: it was made without that option");
    SL_TRY(sl_exec_settle(x));
    for (int i = 0; i < x->plan->graph->layer_count; i++) SL_TRY(snapshot_layer(x, i));
    sl_statistics_snapshot(x);
    sl_tables_snapshot(x);
    return x->backend->synchronize(x->device);
}
