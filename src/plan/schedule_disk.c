/* schedule_disk.c: what lives on the disk: read before it is used, written behind it.
 *
 * The disk is reached through staging buffers on the host, which are permanent and used in turn (SL_DISK_DEPTH of each):
 * a transfer into one of them waits for the transfers and updates that used it before, and for nothing else, so that
 * reads run ahead of the updates and writes behind them.
 *
 * An update of a layer with weights or state on the disk is cut into chunks of its elements. A chunk ends where every
 * tensor of the layer that is on the disk reaches a multiple of SL_DISK_UNIT bytes, at or after the length that is aimed
 * at; rules that need whole parameters have one chunk for the layer. Weights that live on the device come to the host for
 * their update and go back: the link to the device is faster than the disk, which so holds no copy of them. Other things
 * (parameters on their way to the device, activations, gradients) are moved in pieces. */
#include "core/alloc.h"
#include "core/blocks8.h"
#include "core/bytes.h"
#include "ir/form.h"
#include "plan/schedule.h"

/* Of a model, so that staging buffers take some hundredth of what they stage; and the bounds of that in elements. */
#define CHUNKS       256
#define LEAST_CHUNK  ((int64_t)1 << 14)
#define MOST_CHUNK   ((int64_t)1 << 24)
#define COARSE_CHUNK ((int64_t)1 << 20) /* longer ones are multiples of this, the others of its 256th part */

enum { WEIGHTS, REMAINDER, SLOTS, GRADIENT = 2 + SL_MAX_STATE_SLOTS };

static bool is_on_disk(const sl_scheduler *s, int buffer)
{
    return buffer >= 0 && s->p->buffers[buffer].tier == SL_TIER_DISK;
}

static bool gradient_is_on_disk(const sl_layer_place *place)
{
    return place->waiting == SL_TIER_DISK || place->gradients == SL_TIER_DISK;
}

/* Sums over micro-batches are fp32, a single one is in the wire type. */
static sl_form gradient_form(const sl_scheduler *s)
{
    return s->p->options.accumulation > 1 ? SL_FORM_F32 : sl_wire_form(s);
}

bool sl_disk_updates(const sl_scheduler *s, int layer)
{
    const sl_layer_place *place = &s->p->layers[layer];
    bool any = place->state == SL_TIER_DISK || place->parameters == SL_TIER_DISK || gradient_is_on_disk(place);
    return any && sl_is_trained(s, layer) && sl_has_parameters(s, layer);
}

static int tensor_buffer(const sl_scheduler *s, int layer, int tensor)
{
    const sl_layer_place *place = &s->p->layers[layer];
    if (tensor == WEIGHTS) return place->master;
    if (tensor == REMAINDER) return place->remainder;
    return tensor == GRADIENT ? place->gradient : place->slots[tensor - SLOTS];
}

/* A tensor that its update does not find where it runs. */
static bool is_staged(const sl_scheduler *s, int layer, int tensor)
{
    int b = tensor_buffer(s, layer, tensor);
    return b >= 0 && s->p->buffers[b].tier != sl_update_tier(&s->p->layers[layer]);
}

/* ---- chunks ---- */

static int64_t chunk_elements(const sl_scheduler *s)
{
    if (s->p->options.disk_chunk > 0) return (int64_t)sl_align_up((uint64_t)s->p->options.disk_chunk, SL_CUT_ELEMENTS);
    int64_t chunk = s->u->elements / CHUNKS;
    if (chunk < LEAST_CHUNK) return LEAST_CHUNK;
    if (chunk > MOST_CHUNK) return MOST_CHUNK;
    return (int64_t)sl_align_up((uint64_t)chunk, (uint64_t)(chunk > COARSE_CHUNK ? COARSE_CHUNK : COARSE_CHUNK / 256));
}

static uint64_t piece_bytes(const sl_scheduler *s)
{
    return sl_align_up((uint64_t)chunk_elements(s) * sizeof(float), SL_DISK_UNIT);
}

static bool is_end(const sl_scheduler *s, int layer, sl_disk_cursor c)
{
    return c.range >= sl_updated_ranges(s, layer);
}

/* `elements` further, a multiple of SL_CUT_ELEMENTS, or to the end. */
static sl_disk_cursor advance(const sl_scheduler *s, int layer, sl_disk_cursor c, int64_t elements)
{
    while (!is_end(s, layer, c)) {
        int64_t left = sl_updated_range(s, layer, c.range).count - c.offset;
        if (elements < left) return (sl_disk_cursor){ c.range, c.offset + elements };
        elements -= left;
        c = (sl_disk_cursor){ c.range + 1, 0 };
        if (elements == 0) break;
    }
    return c;
}

/* Where a cursor is in a buffer of what this rank updates of the layer. */
static uint64_t byte_at(const sl_scheduler *s, int layer, int buffer, sl_disk_cursor c)
{
    if (is_end(s, layer, c)) return s->p->buffers[buffer].bytes;
    sl_range r = sl_updated_range(s, layer, c.range);
    return sl_range_piece(s, buffer, (sl_range){ r.first + c.offset, 0 }).offset;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Blocks of SL_CUT_ELEMENTS from byte `at` of a tensor to the next one that begins with a unit of the disk, if all of them are
 * like most; 0: this one does. 1 where there is none: only other blocks may lead to one. */
static int64_t blocks_to_unit(uint64_t at, sl_form form)
{
    const uint64_t block = form == SL_FORM_BLOCKS8 ? SL_CUT_ELEMENTS + SL_BLOCKS8_HEADER
                                                   : (uint64_t)SL_CUT_ELEMENTS * sl_form_element_bytes(form);
    for (uint64_t k = 0; k < SL_DISK_UNIT / sizeof(int32_t); k++) /* the remainders repeat by then */
        if ((at + k * block) % SL_DISK_UNIT == 0) return (int64_t)k;
    return 1;
}

/* The same for all tensors of a layer on the disk; 0: an update may be cut here. */
static int64_t blocks_to_cut(const sl_scheduler *s, int layer, sl_disk_cursor c)
{
    int64_t most = 0;
    if (is_end(s, layer, c)) return 0;
    for (int t = WEIGHTS; t < GRADIENT; t++) {
        int b = tensor_buffer(s, layer, t);
        if (is_on_disk(s, b)) most = larger(most, blocks_to_unit(byte_at(s, layer, b, c), s->p->buffers[b].form));
    }
    if (!gradient_is_on_disk(&s->p->layers[layer])) return most;
    int64_t before = c.offset; /* the gradient may have no buffer yet */
    for (int64_t i = 0; i < c.range; i++) before += sl_updated_range(s, layer, i).count;
    const sl_form form = gradient_form(s);
    return larger(most, blocks_to_unit((uint64_t)before * sl_form_element_bytes(form), form));
}

static bool needs_whole_parameters(const sl_scheduler *s, int layer)
{
    const sl_update_rule *rule = s->g->nodes[s->u->update_node[layer]].attrs.update;
    return rule != NULL && sl_updates[rule->kind].whole_parameters;
}

static sl_disk_cursor chunk_end(const sl_scheduler *s, int layer, sl_disk_cursor begin)
{
    if (needs_whole_parameters(s, layer)) return (sl_disk_cursor){ sl_updated_ranges(s, layer), 0 };
    sl_disk_cursor c = advance(s, layer, begin, chunk_elements(s));
    for (int64_t blocks; (blocks = blocks_to_cut(s, layer, c)) > 0;) c = advance(s, layer, c, blocks * SL_CUT_ELEMENTS);
    return c;
}

static sluice_status add_chunk(sl_scheduler *s, const sl_disk_chunk *chunk)
{
    sl_disk_work *w = &s->disk;
    if (w->count == w->capacity) {
        int larger = w->capacity == 0 ? 64 : 2 * w->capacity;
        void *p = sl_realloc(w->chunks, (size_t)w->capacity * sizeof *w->chunks, (size_t)larger * sizeof *w->chunks,
                             "plan: chunks of updates");
        if (p == NULL) return SLUICE_ERR_NO_MEMORY;
        w->chunks = p;
        w->capacity = larger;
    }
    w->chunks[w->count++] = *chunk;
    return SLUICE_OK;
}

sluice_status sl_disk_add_updates(sl_scheduler *s, int layer)
{
    sl_disk_cursor at = { 0, 0 };
    if (!sl_disk_updates(s, layer)) return SLUICE_OK;
    while (!is_end(s, layer, at)) {
        sl_disk_chunk chunk = { layer, at, chunk_end(s, layer, at) };
        SL_TRY(add_chunk(s, &chunk));
        at = chunk.end;
    }
    return SLUICE_OK;
}

/* ---- staging buffers ---- */

static int64_t elements_of(const sl_scheduler *s, const sl_disk_chunk *c)
{
    int64_t sum = 0;
    for (int64_t i = c->begin.range; i <= c->end.range && i < sl_updated_ranges(s, c->layer); i++) {
        int64_t first = i == c->begin.range ? c->begin.offset : 0;
        sum += (i == c->end.range ? c->end.offset : sl_updated_range(s, c->layer, i).count) - first;
    }
    return sum;
}

static uint64_t chunk_bytes(const sl_scheduler *s, const sl_disk_chunk *c, int tensor)
{
    int b = tensor_buffer(s, c->layer, tensor);
    if (tensor == GRADIENT || !is_on_disk(s, b)) {
        sl_form form = tensor == GRADIENT ? gradient_form(s) : sl_weights_form(s);
        return sl_align_up((uint64_t)elements_of(s, c) * sl_form_element_bytes(form), SL_DISK_UNIT);
    }
    return byte_at(s, c->layer, b, c->end) - byte_at(s, c->layer, b, c->begin);
}

static bool stages(const sl_scheduler *s, int layer, int tensor)
{
    return tensor == GRADIENT ? gradient_is_on_disk(&s->p->layers[layer]) : is_staged(s, layer, tensor);
}

static sluice_status make_ring(sl_scheduler *s, sl_buffer_kind kind, sl_form form, uint64_t bytes, int *ring)
{
    for (int i = 0; i < SL_DISK_DEPTH; i++) {
        ring[i] = bytes == 0 ? -1 : sl_emit_buffer(s, kind, SL_TIER_HOST, bytes, -1, true);
        if (bytes == 0) continue;
        if (ring[i] < 0) return SLUICE_ERR_NO_MEMORY;
        s->p->buffers[ring[i]].form = form;
        s->p->buffers[ring[i]].paged = s->p->buffers[ring[i]].staged = true;
    }
    return SLUICE_OK;
}

/* As large as the largest chunk of any layer. */
static sluice_status make_chunk_rings(sl_scheduler *s)
{
    uint64_t most[SL_DISK_TENSORS] = { 0 };
    sl_form forms[SL_DISK_TENSORS];
    sl_disk_work *w = &s->disk;
    for (int i = 0; i < s->g->layer_count; i++) SL_TRY(sl_disk_add_updates(s, i));
    for (int t = 0; t < SL_DISK_TENSORS; t++) forms[t] = s->p->options.state_form;
    forms[WEIGHTS] = sl_weights_form(s);
    forms[REMAINDER] = sl_weights_form(s) == SL_FORM_F16 ? SL_FORM_F32 : SL_FORM_REMAINDER;
    forms[GRADIENT] = gradient_form(s);
    for (int i = 0; i < w->count; i++)
        for (int t = 0; t < SL_DISK_TENSORS; t++) {
            if (!stages(s, w->chunks[i].layer, t)) continue;
            uint64_t bytes = chunk_bytes(s, &w->chunks[i], t);
            if (bytes > most[t]) most[t] = bytes;
        }
    for (int t = 0; t < SL_DISK_TENSORS; t++) {
        sl_buffer_kind kind = t == WEIGHTS    ? SL_BUFFER_PARAMETERS
                              : t == GRADIENT ? SL_BUFFER_GRADIENTS
                                              : SL_BUFFER_STATE;
        SL_TRY(make_ring(s, kind, forms[t], most[t], w->rings[t]));
    }
    w->count = 0;
    return SLUICE_OK;
}

/* The largest thing that is moved in pieces, or a piece. */
static void raise_piece(const sl_scheduler *s, uint64_t bytes, uint64_t *most)
{
    uint64_t piece = piece_bytes(s);
    bytes = sl_align_up(bytes, SL_DISK_UNIT);
    if (bytes > piece) bytes = piece;
    if (bytes > *most) *most = bytes;
}

static sluice_status make_piece_rings(sl_scheduler *s)
{
    uint64_t in = 0, out = 0;
    for (int i = 0; i < s->g->layer_count; i++) {
        const sl_layer_place *place = &s->p->layers[i];
        if (is_on_disk(s, place->home)) raise_piece(s, s->p->buffers[place->home].bytes, &in);
        if (!sl_is_trained(s, i) || !sl_has_parameters(s, i) || !gradient_is_on_disk(place)) continue;
        bool sums = place->gradients == SL_TIER_DISK;
        uint64_t bytes = sl_plan_form_bytes(s->p, gradient_form(s), i,
                                            s->p->options.rank_count > 1 && (sums || sl_cuts_state(s->p)));
        raise_piece(s, bytes, &out);
        if (sums) raise_piece(s, bytes, &in);
    }
    for (int v = 0; v < s->g->value_count && s->p->options.training; v++)
        if (s->g->values[v].storage == v && sl_leaves_for_disk(s, v)) {
            raise_piece(s, sl_value_bytes(&s->g->values[v]), &in);
            raise_piece(s, sl_value_bytes(&s->g->values[v]), &out);
        }
    SL_TRY(make_ring(s, SL_BUFFER_PARAMETERS, sl_weights_form(s), in, s->disk.in));
    return make_ring(s, SL_BUFFER_ACTIVATION, sl_weights_form(s), out, s->disk.out);
}

sluice_status sl_disk_permanents(sl_scheduler *s)
{
    SL_TRY(make_chunk_rings(s));
    return make_piece_rings(s);
}

/* ---- in pieces ---- */

/* The next one in turn. */
static int next_of(const int *ring, int *turn)
{
    int b = ring[*turn];
    *turn = (*turn + 1) % SL_DISK_DEPTH;
    return b;
}

sluice_status sl_disk_bring(sl_scheduler *s, int from, sl_piece to, int layer)
{
    uint64_t piece = s->disk.in[0] >= 0 ? s->p->buffers[s->disk.in[0]].bytes : 0;
    for (uint64_t done = 0; done < to.bytes; done += piece) {
        uint64_t bytes = to.bytes - done < piece ? to.bytes - done : piece;
        int b = next_of(s->disk.in, &s->disk.in_turn);
        sl_piece whole = { from, done, sl_align_up(bytes, SL_DISK_UNIT) };
        SL_TRY(sl_emit_copy_piece(s, whole, (sl_piece){ b, 0, whole.bytes }, layer));
        SL_TRY(
            sl_emit_copy_piece(s, (sl_piece){ b, 0, bytes }, (sl_piece){ to.buffer, to.offset + done, bytes }, layer));
    }
    return SLUICE_OK;
}

sluice_status sl_disk_send(sl_scheduler *s, sl_piece from, int to, int layer)
{
    uint64_t piece = s->disk.out[0] >= 0 ? s->p->buffers[s->disk.out[0]].bytes : 0;
    for (uint64_t done = 0; done < from.bytes; done += piece) {
        uint64_t bytes = from.bytes - done < piece ? from.bytes - done : piece;
        int b = next_of(s->disk.out, &s->disk.out_turn);
        sl_piece whole = { to, done, sl_align_up(bytes, SL_DISK_UNIT) };
        SL_TRY(sl_emit_copy_piece(s, (sl_piece){ from.buffer, from.offset + done, bytes }, (sl_piece){ b, 0, bytes },
                                  layer));
        SL_TRY(sl_emit_copy_piece(s, (sl_piece){ b, 0, whole.bytes }, whole, layer));
    }
    return SLUICE_OK;
}

/* ---- updates ---- */

/* A run of elements of a chunk that lie side by side in the layer. */
typedef struct run {
    sl_range range;
    int64_t before; /* elements of the chunk before it */
} run;

/* The part of chunk c in range i of what is updated. */
static run run_of(const sl_scheduler *s, const sl_disk_chunk *c, int64_t i, int64_t before)
{
    sl_range r = sl_updated_range(s, c->layer, i);
    int64_t first = i == c->begin.range ? c->begin.offset : 0;
    int64_t end = i == c->end.range ? c->end.offset : r.count;
    return (run){ { r.first + first, end - first }, before };
}

static int64_t runs_end(const sl_disk_chunk *c)
{
    return c->end.offset > 0 ? c->end.range + 1 : c->end.range;
}

static int ring_buffer(const sl_scheduler *s, int tensor, int chunk)
{
    return s->disk.rings[tensor][chunk % SL_DISK_DEPTH];
}

/* A run of a tensor in the staging buffer of its chunk. */
static sl_piece staged_piece(const sl_scheduler *s, int chunk, int tensor, const run *r)
{
    const sl_disk_chunk *c = &s->disk.chunks[chunk];
    int b = tensor_buffer(s, c->layer, tensor), ring = ring_buffer(s, tensor, chunk);
    sl_form form = s->p->buffers[ring].form;
    uint64_t bytes = sl_form_bytes(form, &s->g->layers[c->layer], r->range.first, r->range.count), at;
    if (form == SL_FORM_BLOCKS8)
        at = sl_range_piece(s, b, r->range).offset - byte_at(s, c->layer, b, c->begin);
    else
        at = (uint64_t)r->before * sl_form_element_bytes(form);
    return (sl_piece){ ring, at, bytes };
}

static sl_piece operand(const sl_scheduler *s, int chunk, int tensor, const run *r)
{
    int layer = s->disk.chunks[chunk].layer, b = tensor_buffer(s, layer, tensor);
    if (b < 0) return (sl_piece){ -1, 0, 0 };
    return is_staged(s, layer, tensor) ? staged_piece(s, chunk, tensor, r) : sl_range_piece(s, b, r->range);
}

/* Between the disk, or the device, and the staging buffer of a chunk. */
static sluice_status move_tensor(sl_scheduler *s, int chunk, int tensor, bool in)
{
    const sl_disk_chunk c = s->disk.chunks[chunk];
    int b = tensor_buffer(s, c.layer, tensor), ring = ring_buffer(s, tensor, chunk);
    if (is_on_disk(s, b)) {
        sl_piece there = { b, byte_at(s, c.layer, b, c.begin), 0 }, here = { ring, 0, 0 };
        there.bytes = here.bytes = byte_at(s, c.layer, b, c.end) - there.offset;
        return sl_emit_copy_piece(s, in ? there : here, in ? here : there, c.layer);
    }
    int64_t before = 0;
    for (int64_t i = c.begin.range; i < runs_end(&c); i++) {
        run r = run_of(s, &c, i, before);
        sl_piece there = sl_range_piece(s, b, r.range), here = staged_piece(s, chunk, tensor, &r);
        SL_TRY(sl_emit_copy_piece(s, in ? there : here, in ? here : there, c.layer));
        before += r.range.count;
    }
    return SLUICE_OK;
}

/* f16 weights are only written. */
static sluice_status read_chunk(sl_scheduler *s, int chunk)
{
    for (int t = 0; t < SL_DISK_TENSORS; t++) {
        if (!is_staged(s, s->disk.chunks[chunk].layer, t)) continue;
        if (t == WEIGHTS && sl_weights_form(s) == SL_FORM_F16) continue;
        SL_TRY(move_tensor(s, chunk, t, true));
    }
    return SLUICE_OK;
}

static sluice_status write_chunk(sl_scheduler *s, int chunk)
{
    for (int t = 0; t < GRADIENT; t++)
        if (is_staged(s, s->disk.chunks[chunk].layer, t)) SL_TRY(move_tensor(s, chunk, t, false));
    return SLUICE_OK;
}

sluice_status sl_disk_read_ahead(sl_scheduler *s)
{
    sl_disk_work *w = &s->disk;
    for (; w->read < w->count && w->read < w->done + SL_DISK_DEPTH; w->read++) SL_TRY(read_chunk(s, w->read));
    return SLUICE_OK;
}

/* Weights whose update runs on the device pass through a copy there. */
static sluice_status weights_on_device(sl_scheduler *s, int layer, sl_piece host, sl_piece *out)
{
    int b = sl_emit_buffer(s, SL_BUFFER_PARAMETERS, SL_TIER_DEVICE, host.bytes, layer, false);
    if (b < 0) return SLUICE_ERR_NO_MEMORY;
    s->p->buffers[b].staged = true;
    s->p->buffers[b].form = sl_weights_form(s);
    *out = sl_whole(s->p, b);
    return sl_weights_form(s) == SL_FORM_F16 ? SLUICE_OK : sl_emit_copy_piece(s, host, *out, layer);
}

static sluice_status update_run(sl_scheduler *s, int node, int chunk, const run *r, int norm)
{
    int layer = s->g->nodes[node].layer, slots = s->p->options.state_slots;
    const sl_layer_place *place = &s->p->layers[layer];
    sl_piece in[2] = { operand(s, chunk, GRADIENT, r), sl_whole(s->p, norm) }, out[2 + SL_MAX_STATE_SLOTS];
    for (int t = 0; t < 2 + slots; t++) out[t] = operand(s, chunk, t, r);
    sl_piece host = out[WEIGHTS];
    bool passes = sl_update_tier(place) != s->p->buffers[host.buffer].tier;
    if (passes) SL_TRY(weights_on_device(s, layer, host, &out[WEIGHTS]));
    SL_TRY(sl_emit_update(s, SL_OP_UPDATE, node, layer, sl_update_tier(place), r->range.first, in, 2, out, 2 + slots));
    return passes ? sl_emit_copy_piece(s, out[WEIGHTS], host, layer) : SLUICE_OK;
}

sluice_status sl_disk_update(sl_scheduler *s, int node, int norm)
{
    sl_disk_work *w = &s->disk;
    while (w->done < w->count && w->chunks[w->done].layer == s->g->nodes[node].layer) {
        const sl_disk_chunk c = w->chunks[w->done];
        int64_t before = 0;
        SL_TRY(sl_disk_read_ahead(s));
        for (int64_t i = c.begin.range; i < runs_end(&c); i++) {
            run r = run_of(s, &c, i, before);
            SL_TRY(update_run(s, node, w->done, &r, norm));
            before += r.range.count;
        }
        SL_TRY(write_chunk(s, w->done));
        w->done++;
    }
    return SLUICE_OK;
}

void sl_disk_begin(sl_scheduler *s)
{
    s->disk.count = s->disk.read = s->disk.done = 0;
}

void sl_disk_trim(sl_scheduler *s)
{
    sl_plan *p = s->p;
    for (int i = 0; i < p->buffer_count; i++)
        if (p->buffers[i].paged) p->buffers[i].bytes = 0;
    for (int i = 0; i < p->piece_count; i++) {
        sl_piece q = p->pieces[i];
        if (q.buffer < 0 || !p->buffers[q.buffer].paged) continue;
        if (q.offset + q.bytes > p->buffers[q.buffer].bytes) p->buffers[q.buffer].bytes = q.offset + q.bytes;
    }
}

void sl_disk_close(sl_scheduler *s)
{
    sl_free(s->disk.chunks);
}
