/* verify.c: what must hold for every plan, checked from the finished data alone.
 *
 * Nothing here trusts the passes: memory is tracked by address, not by buffer, and order by clocks that only waits
 * advance. A failure is a fault of the planner, reported before anything runs. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/bytes.h"
#include "core/marks.h"
#include "plan/passes.h"

/* ---- buffers ---- */

static sluice_status check_buffer(const sl_plan *p, int i)
{
    const sl_buffer *b = &p->buffers[i];
    if (b->bytes == 0) return SLUICE_OK;
    uint64_t end;
    uint64_t alignment = b->paged ? SL_DISK_UNIT : sl_tiers[b->tier].alignment;
    if (b->offset % alignment != 0 || !sl_add_u64(b->offset, b->bytes, &end) || end > p->totals.peak[b->tier])
        return sl_fail(SLUICE_ERR_FAILED,
                       "plan check: buffer %d at offset %llu with %llu bytes is misaligned or past the peak", i,
                       (unsigned long long)b->offset, (unsigned long long)b->bytes);
    return SLUICE_OK;
}

/* A buffer that is to be ordered by some key; equal ones by their number. */
typedef struct keyed_buffer {
    uint64_t key;
    int buffer;
} keyed_buffer;

static int by_key(const void *a, const void *b)
{
    const keyed_buffer *x = a, *y = b;
    if (x->key != y->key) return x->key < y->key ? -1 : 1;
    return x->buffer < y->buffer ? -1 : x->buffer > y->buffer;
}

/* Buffers of a tier, in three orders. */
typedef struct sweep {
    const sl_plan *p;
    int count;
    keyed_buffer *by_offset, *by_first, *by_last;
    int *rank;     /* per buffer: its index in by_offset */
    sl_marks live; /* ranks of the buffers that live now */
} sweep;

static void sort_buffers(sweep *w, sl_tier tier)
{
    w->count = 0;
    for (int i = 0; i < w->p->buffer_count; i++) {
        const sl_buffer *b = &w->p->buffers[i];
        if (b->tier != tier || b->bytes == 0 || b->last < b->first) continue;
        w->by_offset[w->count] = (keyed_buffer){ b->offset, i };
        w->by_first[w->count] = (keyed_buffer){ (uint64_t)b->first, i };
        w->by_last[w->count++] = (keyed_buffer){ (uint64_t)b->last, i };
    }
    qsort(w->by_offset, (size_t)w->count, sizeof *w->by_offset, by_key);
    qsort(w->by_first, (size_t)w->count, sizeof *w->by_first, by_key);
    qsort(w->by_last, (size_t)w->count, sizeof *w->by_last, by_key);
    for (int i = 0; i < w->count; i++) w->rank[w->by_offset[i].buffer] = i;
}

/* `low` and `high` are ranks of neighbours; -1: there is none. */
static sluice_status check_neighbours(const sweep *w, int low, int high)
{
    if (low < 0 || high < 0) return SLUICE_OK;
    int a = w->by_offset[low].buffer, b = w->by_offset[high].buffer;
    if (w->p->buffers[a].offset + w->p->buffers[a].bytes <= w->p->buffers[b].offset) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_FAILED, "plan check: buffers %d and %d live together and share bytes", a, b);
}

/* No two buffers of a tier that live at the same time share a byte. They are born and die in the order of time; those
 * alive lie apart, so that a new one has to be compared with the nearest on both sides alone. */
static sluice_status check_overlap(sweep *w, sl_tier tier)
{
    sort_buffers(w, tier);
    for (int i = 0, dead = 0; i < w->count; i++) {
        int rank = w->rank[w->by_first[i].buffer];
        for (; dead < w->count && w->by_last[dead].key < w->by_first[i].key; dead++)
            sl_marks_clear(&w->live, w->rank[w->by_last[dead].buffer]);
        SL_TRY(check_neighbours(w, sl_marks_previous(&w->live, rank), rank));
        SL_TRY(check_neighbours(w, rank, sl_marks_next(&w->live, rank)));
        sl_marks_set(&w->live, rank);
    }
    for (int i = 0; i < w->count; i++) sl_marks_clear(&w->live, i);
    return SLUICE_OK;
}

static sluice_status check_buffers(const sl_plan *p)
{
    size_t n = (size_t)p->buffer_count + 1;
    sweep w = { .p = p };
    for (int i = 0; i < p->buffer_count; i++) SL_TRY(check_buffer(p, i));
    w.by_offset = sl_alloc_array(3 * n, sizeof *w.by_offset, "plan check: orders of buffers");
    w.rank = sl_alloc_array(n, sizeof *w.rank, "plan check: ranks of buffers");
    sluice_status st =
        w.by_offset != NULL && w.rank != NULL ? sl_marks_create(&w.live, p->buffer_count) : SLUICE_ERR_NO_MEMORY;
    if (st == SLUICE_OK) w.by_first = w.by_offset + n, w.by_last = w.by_first + n;
    for (int t = 0; st == SLUICE_OK && t < SL_TIER_COUNT; t++) st = check_overlap(&w, (sl_tier)t);
    sl_free(w.by_offset);
    sl_free(w.rank);
    sl_marks_destroy(&w.live);
    return st;
}

/* ---- steps: every operand inside its buffer and its life; every read after a write ---- */

static sluice_status check_operand(const sl_plan *p, int step, sl_piece q, bool written, uint64_t *filled)
{
    if (q.buffer < 0) return SLUICE_OK;
    const sl_buffer *b = &p->buffers[q.buffer];
    uint64_t end;
    if (!sl_add_u64(q.offset, q.bytes, &end) || end > b->bytes || step < b->first || step > b->last)
        return sl_fail(SLUICE_ERR_FAILED, "plan check: step %d uses buffer %d outside its bytes or its life", step,
                       q.buffer);
    if (written)
        filled[q.buffer] += q.bytes;
    else if (!b->permanent && filled[q.buffer] < q.bytes)
        return sl_fail(SLUICE_ERR_FAILED, "plan check: step %d reads buffer %d before it is written", step, q.buffer);
    return SLUICE_OK;
}

/* Updates work in place, on what is permanent or copied in before; f16 weights are only written. Those on speculation
 * have what they read as inputs. */
static bool is_read_too(const sl_plan *p, const sl_step *s, int output, sl_piece q)
{
    if (s->kind != SL_STEP_UPDATE || q.buffer < 0 || s->input_count > 2) return false;
    return output > 0 || p->buffers[q.buffer].form != SL_FORM_F16;
}

/* Rates and counters of a copy are those of the link it crosses, and its stream is that link's. */
static sluice_status check_copy(const sl_plan *p, int step)
{
    sl_link link = sl_copy_link(p, &p->steps[step]);
    if (link < SL_LINK_COUNT && sl_links[link].stream == p->steps[step].stream) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_FAILED, "plan check: copy step %d crosses no link, or is not on its stream", step);
}

/* What runs again is a recomputed layer's, in backward, and leaves nothing behind: the statistics of a batch are those of
 * its forward. A frozen norm reads the ones that stay. */
static sluice_status check_again(const sl_plan *p, int step)
{
    const sl_step *s = &p->steps[step];
    const sl_segment *backward = &p->segments[SL_SEGMENT_BACKWARD];
    sl_activation_mode mode = s->layer < 0 ? SL_ACT_KEEP : p->layers[s->layer].activations;
    bool sound = s->layer >= 0 && step >= backward->first_step && step < backward->first_step + backward->step_count &&
                 (mode == SL_ACT_RECOMPUTE || mode == SL_ACT_RECOMPUTE_OFFLOAD || p->layers[s->layer].cheap);
    for (int k = s->input_count; sound && k < s->input_count + s->output_count; k++) {
        int b = p->pieces[s->first_piece + k].buffer;
        sound = b < 0 || !p->buffers[b].permanent || sl_node_is_frozen_norm(&p->graph->nodes[s->node]);
    }
    if (sound) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_FAILED,
                   "plan check: step %d runs again outside backward, of a layer that is not recomputed, or into memory "
                   "that stays",
                   step);
}

static sluice_status check_steps(const sl_plan *p)
{
    uint64_t *filled = sl_alloc_array((size_t)p->buffer_count + 1, sizeof *filled, "plan check: written bytes");
    if (filled == NULL) return SLUICE_ERR_NO_MEMORY;
    sluice_status st = SLUICE_OK;
    for (int i = 0; st == SLUICE_OK && i < p->step_count; i++) {
        const sl_step *s = &p->steps[i];
        st = sl_plan_poll(p);
        if (st == SLUICE_OK && s->kind == SL_STEP_COPY) st = check_copy(p, i);
        if (st == SLUICE_OK && s->recomputed) st = check_again(p, i);
        for (int k = 0; st == SLUICE_OK && k < sl_step_operands(s); k++) {
            bool output = k >= s->input_count;
            sl_piece q = p->pieces[s->first_piece + k];
            if (output && is_read_too(p, s, k - s->input_count, q)) st = check_operand(p, i, q, false, filled);
            if (st == SLUICE_OK) st = check_operand(p, i, q, output, filled);
        }
    }
    sl_free(filled);
    return st;
}

/* ---- order: any two steps that touch the same bytes, one of them writing, are ordered by streams and waits ----
 *
 * Two training steps are run through, one after the other without a pause, as on the device, the second with two
 * micro-batches where the plan has several. Rounds are runs through the list, or through FORWARD and BACKWARD of it;
 * positions number the steps of all. A wait is for the newest recording: of the same round or of one before. */

/* Whoever touched a stretch of memory. */
typedef struct toucher {
    int writer;                   /* newest position that wrote it; -1: none */
    int readers[SL_STREAM_COUNT]; /* newest position of each stream that read it since; -1: none */
} toucher;

/* The ends of all operands cut the memory of all tiers into parts; parts that were always touched together lie in one
 * stretch. A write makes one of all stretches that it covers: whatever follows it follows what it followed. */
typedef struct order_check {
    const sl_plan *p;
    int round;
    int (*seen)[SL_STREAM_COUNT]; /* per position: newest one of each stream known to be done before it starts */
    int *begin, *end;             /* per piece: its parts */
    int part_count;
    sl_marks stretches;          /* parts that a stretch begins with */
    toucher *of;                 /* per part that a stretch begins with */
    int newest[SL_STREAM_COUNT]; /* last position issued on each stream; -1: none */
    int *recorded;               /* per step: its newest position; -1: none */
    bool joins[SL_STREAM_COUNT]; /* streams that are joined between micro-batches */
    int join[SL_STREAM_COUNT];   /* newest position of each stream that came before the last join; -1: none */
} order_check;

enum { MOST_ROUNDS = 3 };

typedef struct operand_edge {
    uint64_t at;
    sl_tier tier;
    int *part; /* begin or end of the piece */
} operand_edge;

static int by_address(const void *a, const void *b)
{
    const operand_edge *x = a, *y = b;
    if (x->tier != y->tier) return x->tier < y->tier ? -1 : 1;
    return x->at < y->at ? -1 : x->at > y->at;
}

static void number_parts(order_check *c, operand_edge *edges)
{
    int count = 0;
    for (int i = 0; i < c->p->piece_count; i++) {
        sl_piece piece = c->p->pieces[i];
        piece.buffer = sl_plan_memory(c->p, piece.buffer); /* both versions of a thing are one memory */
        sl_span span = sl_plan_span(c->p, piece);
        if (span.bytes == 0) continue;
        edges[count++] = (operand_edge){ span.offset, span.tier, &c->begin[i] };
        edges[count++] = (operand_edge){ span.offset + span.bytes, span.tier, &c->end[i] };
    }
    qsort(edges, (size_t)count, sizeof *edges, by_address);
    for (int i = 0; i < count; i++) {
        if (i > 0 && by_address(&edges[i - 1], &edges[i]) != 0) c->part_count++;
        *edges[i].part = c->part_count;
    }
    c->part_count++;
}

/* Makes a stretch begin at `part`. */
static void cut(order_check *c, int part)
{
    if (sl_marks_has(&c->stretches, part)) return;
    c->of[part] = c->of[sl_marks_previous(&c->stretches, part)];
    sl_marks_set(&c->stretches, part);
}

static sl_stream stream_at(const order_check *c, int position)
{
    return c->p->steps[position % c->p->step_count].stream;
}

static sluice_status must_follow(const order_check *c, int position, int earlier)
{
    if (earlier < 0) return SLUICE_OK;
    sl_stream stream = stream_at(c, earlier);
    if (stream == stream_at(c, position) || c->seen[position][stream] >= earlier) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_FAILED,
                   "plan check: steps %d and %d%s share bytes on different streams and nothing orders them",
                   earlier % c->p->step_count, position % c->p->step_count,
                   earlier / c->p->step_count < position / c->p->step_count ? " of a later run" : "");
}

static toucher nobody(void)
{
    toucher t = { .writer = -1 };
    for (int k = 0; k < SL_STREAM_COUNT; k++) t.readers[k] = -1;
    return t;
}

/* After a write the piece is one stretch. */
static void note_write(order_check *c, int position, int piece)
{
    int first = c->begin[piece];
    for (int i = sl_marks_next(&c->stretches, first + 1); i >= 0 && i < c->end[piece];
         i = sl_marks_next(&c->stretches, i + 1))
        sl_marks_clear(&c->stretches, i);
    c->of[first] = nobody();
    c->of[first].writer = position;
}

static sluice_status touch(order_check *c, int position, int piece, bool writes)
{
    if (c->begin[piece] == c->end[piece]) return SLUICE_OK;
    cut(c, c->begin[piece]);
    cut(c, c->end[piece]);
    for (int i = c->begin[piece]; i >= 0 && i < c->end[piece]; i = sl_marks_next(&c->stretches, i + 1)) {
        toucher *t = &c->of[i];
        SL_TRY(must_follow(c, position, t->writer));
        for (int k = 0; writes && k < SL_STREAM_COUNT; k++) SL_TRY(must_follow(c, position, t->readers[k]));
        if (!writes) t->readers[stream_at(c, position)] = position;
    }
    if (writes) note_write(c, position, piece);
    return SLUICE_OK;
}

static void raise_to(int *known, const int *other)
{
    for (int m = 0; m < SL_STREAM_COUNT; m++)
        if (other[m] > known[m]) known[m] = other[m];
}

/* What is done before a step starts: all its stream did before, and all that was done before what it waits for. */
static sluice_status advance_clock(order_check *c, int step)
{
    const sl_step *s = &c->p->steps[step];
    int position = c->round * c->p->step_count + step, before = c->newest[s->stream];
    for (int k = 0; k < SL_STREAM_COUNT; k++) c->seen[position][k] = before < 0 ? -1 : c->seen[before][k];
    c->seen[position][s->stream] = before;
    if (c->joins[s->stream]) raise_to(c->seen[position], c->join);
    for (int k = 0; k < s->wait_count; k++) {
        int target = c->p->waits[s->first_wait + k], awaited = c->recorded[target];
        if (target == step || c->p->steps[target].event < 0)
            return sl_fail(SLUICE_ERR_FAILED, "plan check: step %d waits for step %d, which can never have fired", step,
                           target);
        if (awaited >= 0) raise_to(c->seen[position], c->seen[awaited]);
        sl_stream stream = c->p->steps[target].stream;
        if (awaited > c->seen[position][stream]) c->seen[position][stream] = awaited;
    }
    c->newest[s->stream] = c->recorded[step] = position;
    return SLUICE_OK;
}

static sluice_status check_segment(order_check *c, const sl_segment *g)
{
    for (int i = g->first_step; i < g->first_step + g->step_count; i++) {
        const sl_step *s = &c->p->steps[i];
        SL_TRY(sl_plan_poll(c->p));
        SL_TRY(advance_clock(c, i));
        for (int q = 0; q < sl_step_operands(s); q++)
            SL_TRY(touch(c, c->round * c->p->step_count + i, s->first_piece + q, q >= s->input_count));
    }
    return SLUICE_OK;
}

static void drain(order_check *c)
{
    for (int m = 0; m < SL_STREAM_COUNT; m++) c->newest[m] = c->join[m] = -1;
    for (int i = 0; i < c->p->step_count; i++) c->recorded[i] = -1;
    for (int i = sl_marks_next(&c->stretches, 0); i >= 0; i = sl_marks_next(&c->stretches, i + 1))
        sl_marks_clear(&c->stretches, i);
    sl_marks_set(&c->stretches, 0);
    c->of[0] = nobody();
}

/* What comes after it on a stream that is joined comes after all that these streams have done. */
static void join_streams(order_check *c)
{
    for (int k = 0; k < SL_STREAM_COUNT; k++) {
        int newest = c->newest[k];
        if (!c->joins[k] || newest < 0) continue;
        raise_to(c->join, c->seen[newest]);
        if (newest > c->join[k]) c->join[k] = newest;
    }
}

static sluice_status check_round(order_check *c, sl_segment_kind last)
{
    for (int k = SL_SEGMENT_FORWARD; k <= (int)last; k++) SL_TRY(check_segment(c, &c->p->segments[k]));
    c->round++;
    return SLUICE_OK;
}

/* Two training steps in a row, each up to the segment `last`. */
static sluice_status check_training(order_check *c, sl_segment_kind last)
{
    drain(c);
    c->round = 0;
    SL_TRY(check_round(c, last));
    if (c->p->options.accumulation > 1) {
        SL_TRY(check_round(c, SL_SEGMENT_BACKWARD));
        join_streams(c);
    }
    return check_round(c, last);
}

/* Without REDO and, where there is one, with it; then an evaluation with nothing under way. */
static sluice_status check_segments(order_check *c)
{
    SL_TRY(check_training(c, SL_SEGMENT_UPDATE));
    if (c->p->segments[SL_SEGMENT_REDO].step_count > 0) SL_TRY(check_training(c, SL_SEGMENT_REDO));
    drain(c);
    c->round = 0;
    return check_segment(c, &c->p->segments[SL_SEGMENT_EVALUATE]);
}

static sluice_status prepare_order(order_check *c)
{
    size_t pieces = (size_t)c->p->piece_count + 1;
    sl_plan_joined_streams(c->p, c->joins);
    c->seen = sl_alloc_array(MOST_ROUNDS * (size_t)c->p->step_count + 1, sizeof *c->seen, "plan check: clocks");
    c->recorded = sl_alloc_array((size_t)c->p->step_count + 1, sizeof *c->recorded, "plan check: recordings");
    c->begin = sl_alloc_array(2 * pieces, sizeof *c->begin, "plan check: parts of operands");
    operand_edge *edges = sl_alloc_array(2 * pieces, sizeof *edges, "plan check: ends of operands");
    bool room = c->seen != NULL && c->recorded != NULL && c->begin != NULL && edges != NULL;
    sluice_status st = room ? SLUICE_OK : SLUICE_ERR_NO_MEMORY;
    if (st == SLUICE_OK) {
        c->end = c->begin + pieces;
        number_parts(c, edges);
    }
    sl_free(edges);
    SL_TRY(st);
    c->of = sl_alloc_array((size_t)c->part_count, sizeof *c->of, "plan check: memory map");
    return c->of != NULL ? sl_marks_create(&c->stretches, c->part_count) : SLUICE_ERR_NO_MEMORY;
}

static sluice_status check_order(const sl_plan *p)
{
    order_check c = { .p = p };
    sluice_status st = prepare_order(&c);
    if (st == SLUICE_OK) st = check_segments(&c);
    sl_free(c.seen);
    sl_free(c.recorded);
    sl_free(c.begin);
    sl_free(c.of);
    sl_marks_destroy(&c.stretches);
    return st;
}

sluice_status sl_plan_verify(const sl_plan *p)
{
    for (int t = 0; t < SL_TIER_COUNT; t++)
        if (p->totals.peak[t] > p->options.budget[t])
            return sl_fail(SLUICE_ERR_FAILED, "plan check: the peak on the %s is over its budget", sl_tiers[t].name);
    SL_TRY(check_buffers(p));
    SL_TRY(check_steps(p));
    return check_order(p);
}
