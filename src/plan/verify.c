/* verify.c: what must hold for every plan, checked from the finished data alone.
 *
 * Nothing here trusts the passes: memory is tracked by address, not by buffer, and order by clocks that only waits
 * advance. A failure is a fault of the planner, reported before anything runs. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/bytes.h"
#include "plan/passes.h"

/* ---- buffers ---- */

static sluice_status check_buffer(const sl_plan *p, int i)
{
    const sl_buffer *b = &p->buffers[i];
    if (b->bytes == 0) return SLUICE_OK;
    uint64_t end;
    if (b->offset % SL_ALIGNMENT != 0 || !sl_add_u64(b->offset, b->bytes, &end) || end > p->totals.peak[b->tier])
        return sl_fail(SLUICE_ERR_FAILED,
                       "plan check: buffer %d at offset %llu with %llu bytes is misaligned or past the peak", i,
                       (unsigned long long)b->offset, (unsigned long long)b->bytes);
    return SLUICE_OK;
}

typedef struct by_offset {
    uint64_t begin, end;
    int buffer;
} by_offset;

static int compare_offsets(const void *a, const void *b)
{
    const by_offset *x = a, *y = b;
    return x->begin < y->begin ? -1 : x->begin > y->begin;
}

/* No two buffers of a tier that live at the same time share a byte. */
static sluice_status check_overlap(const sl_plan *p, sl_tier tier, by_offset *sorted)
{
    int n = 0;
    for (int i = 0; i < p->buffer_count; i++) {
        const sl_buffer *b = &p->buffers[i];
        if (b->tier == tier && b->bytes > 0 && b->last >= 0)
            sorted[n++] = (by_offset){ b->offset, b->offset + b->bytes, i };
    }
    qsort(sorted, (size_t)n, sizeof *sorted, compare_offsets);
    for (int i = 0; i < n; i++)
        for (int j = i + 1; j < n && sorted[j].begin < sorted[i].end; j++) {
            const sl_buffer *a = &p->buffers[sorted[i].buffer], *b = &p->buffers[sorted[j].buffer];
            if (a->first <= b->last && b->first <= a->last)
                return sl_fail(SLUICE_ERR_FAILED, "plan check: buffers %d and %d live together and share bytes",
                               sorted[i].buffer, sorted[j].buffer);
        }
    return SLUICE_OK;
}

static sluice_status check_buffers(const sl_plan *p)
{
    for (int i = 0; i < p->buffer_count; i++) SL_TRY(check_buffer(p, i));
    by_offset *sorted = sl_alloc_array((size_t)p->buffer_count + 1, sizeof *sorted, "plan check: offsets");
    if (sorted == NULL) return SLUICE_ERR_NO_MEMORY;
    sluice_status st = SLUICE_OK;
    for (int t = 0; st == SLUICE_OK && t < SL_TIER_COUNT; t++) st = check_overlap(p, (sl_tier)t, sorted);
    sl_free(sorted);
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

/* Updates work in place, on what is permanent or copied in before; f16 weights are only written. */
static bool is_read_too(const sl_plan *p, const sl_step *s, int output, sl_piece q)
{
    if (s->kind != SL_STEP_UPDATE || q.buffer < 0) return false;
    return output > 0 || p->buffers[q.buffer].form != SL_FORM_F16;
}

/* Rates and counters of a copy are those of the link it crosses, and its stream is that link's. */
static sluice_status check_copy(const sl_plan *p, int step)
{
    sl_link link = sl_copy_link(p, &p->steps[step]);
    if (link < SL_LINK_COUNT && sl_links[link].stream == p->steps[step].stream) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_FAILED, "plan check: copy step %d crosses no link, or is not on its stream", step);
}

static sluice_status check_steps(const sl_plan *p)
{
    uint64_t *filled = sl_alloc_array((size_t)p->buffer_count + 1, sizeof *filled, "plan check: written bytes");
    if (filled == NULL) return SLUICE_ERR_NO_MEMORY;
    sluice_status st = SLUICE_OK;
    for (int i = 0; st == SLUICE_OK && i < p->step_count; i++) {
        const sl_step *s = &p->steps[i];
        if (s->kind == SL_STEP_COPY) st = check_copy(p, i);
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
 * Two training steps are run through, one after the other without a pause, as on the device; positions number the steps
 * of both. A wait is for the newest recording: of the same round, or for a step that comes later in the list of the one
 * before. */

/* A stretch of a tier's memory with its newest writer and readers. Stretches tile what was touched, sorted by begin. */
typedef struct stretch {
    uint64_t begin, end;
    int writer;
    int readers[SL_STREAM_COUNT];
} stretch;

typedef struct order_check {
    const sl_plan *p;
    int round;
    int (*seen)[SL_STREAM_COUNT]; /* per position: newest one of each stream known to be done before it starts */
    stretch *of[SL_TIER_COUNT];
    int count[SL_TIER_COUNT], capacity[SL_TIER_COUNT];
    int newest[SL_STREAM_COUNT]; /* last position issued on each stream; -1: none */
} order_check;

static sluice_status insert_stretch(order_check *c, sl_tier t, int at, stretch s)
{
    if (c->count[t] == c->capacity[t]) {
        int larger = c->capacity[t] == 0 ? 256 : 2 * c->capacity[t];
        stretch *grown = sl_realloc(c->of[t], (size_t)c->capacity[t] * sizeof s, (size_t)larger * sizeof s,
                                    "plan check: memory map");
        if (grown == NULL) return SLUICE_ERR_NO_MEMORY;
        c->of[t] = grown;
        c->capacity[t] = larger;
    }
    memmove(&c->of[t][at + 1], &c->of[t][at], (size_t)(c->count[t] - at) * sizeof s);
    c->of[t][at] = s;
    c->count[t]++;
    return SLUICE_OK;
}

static stretch untouched(uint64_t begin, uint64_t end)
{
    stretch s = { .begin = begin, .end = end, .writer = -1 };
    for (int k = 0; k < SL_STREAM_COUNT; k++) s.readers[k] = -1;
    return s;
}

/* Makes [begin, end) a union of whole stretches; *first gets the index of the first one. */
static sluice_status cut(order_check *c, sl_tier t, uint64_t begin, uint64_t end, int *first)
{
    int low = 0, high = c->count[t];
    while (low < high) {
        int mid = (low + high) / 2;
        if (c->of[t][mid].end <= begin)
            low = mid + 1;
        else
            high = mid;
    }
    int i = low;
    if (i < c->count[t] && c->of[t][i].begin < begin) {
        stretch right = c->of[t][i];
        c->of[t][i].end = right.begin = begin;
        SL_TRY(insert_stretch(c, t, ++i, right));
    }
    *first = i;
    for (uint64_t at = begin; at < end; i++) {
        uint64_t next = i < c->count[t] ? c->of[t][i].begin : UINT64_MAX;
        if (next > at) SL_TRY(insert_stretch(c, t, i, untouched(at, next < end ? next : end)));
        if (c->of[t][i].end > end) {
            stretch right = c->of[t][i];
            c->of[t][i].end = right.begin = end;
            SL_TRY(insert_stretch(c, t, i + 1, right));
        }
        at = c->of[t][i].end;
    }
    return SLUICE_OK;
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
                   earlier / c->p->step_count < position / c->p->step_count ? " of the next training step" : "");
}

static sluice_status touch(order_check *c, int position, sl_piece q, bool writes)
{
    sl_span span = sl_plan_span(c->p, q);
    int i;
    if (span.bytes == 0) return SLUICE_OK;
    SL_TRY(cut(c, span.tier, span.offset, span.offset + span.bytes, &i));
    for (; i < c->count[span.tier] && c->of[span.tier][i].begin < span.offset + span.bytes; i++) {
        stretch *s = &c->of[span.tier][i];
        SL_TRY(must_follow(c, position, s->writer));
        for (int k = 0; writes && k < SL_STREAM_COUNT; k++) SL_TRY(must_follow(c, position, s->readers[k]));
        if (writes)
            s->writer = position;
        else
            s->readers[stream_at(c, position)] = position;
    }
    return SLUICE_OK;
}

/* The position that a wait of `step` for `target` is for: -1 where it was never recorded. */
static int awaited_position(const order_check *c, int step, int target)
{
    int round = target < step ? c->round : c->round - 1;
    return round < 0 ? -1 : round * c->p->step_count + target;
}

/* What is done before a step starts: all its stream did before, and all that was done before what it waits for. */
static sluice_status advance_clock(order_check *c, int step)
{
    const sl_step *s = &c->p->steps[step];
    int position = c->round * c->p->step_count + step, before = c->newest[s->stream];
    for (int k = 0; k < SL_STREAM_COUNT; k++) c->seen[position][k] = before < 0 ? -1 : c->seen[before][k];
    c->seen[position][s->stream] = before;
    for (int k = 0; k < s->wait_count; k++) {
        int target = c->p->waits[s->first_wait + k], awaited = awaited_position(c, step, target);
        if (target == step || c->p->steps[target].event < 0)
            return sl_fail(SLUICE_ERR_FAILED, "plan check: step %d waits for step %d, which can never have fired", step,
                           target);
        for (int m = 0; awaited >= 0 && m < SL_STREAM_COUNT; m++)
            if (c->seen[awaited][m] > c->seen[position][m]) c->seen[position][m] = c->seen[awaited][m];
        sl_stream stream = c->p->steps[target].stream;
        if (awaited > c->seen[position][stream]) c->seen[position][stream] = awaited;
    }
    c->newest[s->stream] = position;
    return SLUICE_OK;
}

static sluice_status check_segment(order_check *c, const sl_segment *g)
{
    for (int i = g->first_step; i < g->first_step + g->step_count; i++) {
        const sl_step *s = &c->p->steps[i];
        SL_TRY(advance_clock(c, i));
        for (int q = 0; q < sl_step_operands(s); q++)
            SL_TRY(touch(c, c->round * c->p->step_count + i, c->p->pieces[s->first_piece + q], q >= s->input_count));
    }
    return SLUICE_OK;
}

static void drain(order_check *c)
{
    for (int m = 0; m < SL_STREAM_COUNT; m++) c->newest[m] = -1;
    for (int t = 0; t < SL_TIER_COUNT; t++) c->count[t] = 0;
}

/* Two training steps in a row, then an evaluation with nothing under way. */
static sluice_status check_segments(order_check *c)
{
    drain(c);
    for (c->round = 0; c->round < 2; c->round++)
        for (int k = SL_SEGMENT_FORWARD; k <= SL_SEGMENT_UPDATE; k++) SL_TRY(check_segment(c, &c->p->segments[k]));
    drain(c);
    c->round = 0;
    return check_segment(c, &c->p->segments[SL_SEGMENT_EVALUATE]);
}

static sluice_status check_order(const sl_plan *p)
{
    order_check c = { .p = p };
    c.seen = sl_alloc_array(2 * (size_t)p->step_count + 1, sizeof *c.seen, "plan check: clocks");
    sluice_status st = c.seen != NULL ? check_segments(&c) : SLUICE_ERR_NO_MEMORY;
    sl_free(c.seen);
    for (int t = 0; t < SL_TIER_COUNT; t++) sl_free(c.of[t]);
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
