/* address.c: gives every buffer its offset, and every step the waits that the offsets make necessary.
 *
 * Permanent buffers lie at the bottom of their arena. The others are placed largest first at the lowest offset that is
 * free during their whole life; a second attempt in order of birth is kept where it packs tighter. Two buffers may
 * share bytes exactly when their step ranges are disjoint. Because ranges are positions in the list and streams run
 * ahead of it, a step that is the first to use reused bytes must wait for the last users of those bytes on other
 * streams: sl_plan_waits derives that from the offsets. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/bytes.h"
#include "plan/internal.h"

typedef struct placed {
    uint64_t begin, end; /* bytes, end rounded up to the alignment */
    int first, last;
} placed;

typedef struct packer {
    sl_plan *p;
    sl_tier tier;
    int *order; /* transient buffers of the tier */
    int count;
    placed *by_offset; /* buffers placed so far, increasing begin */
    int placed_count;
    uint64_t base; /* end of the permanent buffers */
    bool patient;  /* gradients and the norm keep their bytes for the whole step */
} packer;

static bool takes_room(const sl_buffer *b)
{
    return b->bytes > 0 && b->last >= 0;
}

/* Lowest offset at which the bytes are free during its life. Keeps by_offset sorted. */
static uint64_t place_one(packer *k, const sl_buffer *buffer)
{
    uint64_t bytes = sl_align_up(buffer->bytes, SL_ALIGNMENT), at = k->base;
    bool stays = k->patient && (buffer->kind == SL_BUFFER_GRADIENTS || buffer->kind == SL_BUFFER_NORM);
    const placed life = { .first = stays ? 0 : buffer->first, .last = stays ? INT_MAX : buffer->last }, *b = &life;
    for (int i = 0; i < k->placed_count; i++) {
        const placed *q = &k->by_offset[i];
        if (q->last < b->first || q->first > b->last || q->end <= at) continue;
        if (q->begin >= at + bytes) break;
        at = q->end;
    }
    int i = k->placed_count++;
    for (; i > 0 && k->by_offset[i - 1].begin > at; i--) k->by_offset[i] = k->by_offset[i - 1];
    k->by_offset[i] = (placed){ at, at + bytes, b->first, b->last };
    return at;
}

static uint64_t pack(packer *k, uint64_t *offsets)
{
    uint64_t peak = 0;
    k->placed_count = 0;
    for (int i = 0; i < k->count; i++) {
        const sl_buffer *b = &k->p->buffers[k->order[i]];
        offsets[i] = place_one(k, b);
        if (offsets[i] + b->bytes > peak) peak = offsets[i] + b->bytes;
    }
    return peak;
}

/* qsort has no context argument: the keys travel with the entries. */
typedef struct sort_entry {
    uint64_t bytes;
    int first, last, buffer;
} sort_entry;

static int by_size(const void *a, const void *b)
{
    const sort_entry *x = a, *y = b;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
    if (x->first != y->first) return x->first < y->first ? -1 : 1;
    return x->buffer < y->buffer ? -1 : 1;
}

static int by_birth(const void *a, const void *b)
{
    const sort_entry *x = a, *y = b;
    if (x->first != y->first) return x->first < y->first ? -1 : 1;
    if (x->last != y->last) return x->last > y->last ? -1 : 1;
    return x->buffer < y->buffer ? -1 : 1;
}

static void sort_order(packer *k, sort_entry *entries, int (*compare)(const void *, const void *))
{
    for (int i = 0; i < k->count; i++) {
        const sl_buffer *b = &k->p->buffers[k->order[i]];
        entries[i] = (sort_entry){ b->bytes, b->first, b->last, k->order[i] };
    }
    qsort(entries, (size_t)k->count, sizeof *entries, compare);
    for (int i = 0; i < k->count; i++) k->order[i] = entries[i].buffer;
}

static void place_permanents(packer *k)
{
    uint64_t end = 0, peak = 0;
    for (int i = 0; i < k->p->buffer_count; i++) {
        sl_buffer *b = &k->p->buffers[i];
        if (b->tier != k->tier || !takes_room(b)) continue;
        if (!b->permanent) {
            k->order[k->count++] = i;
            continue;
        }
        b->offset = end;
        peak = end + b->bytes;
        end = sl_align_up(peak, SL_ALIGNMENT);
    }
    k->base = end;
    k->p->totals.peak[k->tier] = peak;
}

static void keep_offsets(packer *k, const uint64_t *offsets, uint64_t peak)
{
    for (int i = 0; i < k->count; i++) k->p->buffers[k->order[i]].offset = offsets[i];
    if (peak > k->p->totals.peak[k->tier]) k->p->totals.peak[k->tier] = peak;
}

static uint64_t pack_best(packer *k, sort_entry *entries, uint64_t *offsets)
{
    sort_order(k, entries, by_birth);
    uint64_t birth_peak = pack(k, offsets);
    sort_order(k, entries, by_size);
    uint64_t size_peak = pack(k, offsets);
    if (birth_peak < size_peak) {
        sort_order(k, entries, by_birth);
        size_peak = pack(k, offsets);
    }
    return size_peak;
}

/* Gradients and the norm on the host are read by updates that run on into the next training step. What comes to lie
 * over them there would wait for these, so where there is room nothing does. */
static void pack_tier(packer *k, sort_entry *entries, uint64_t *offsets)
{
    const sl_plan_options *o = &k->p->options;
    place_permanents(k);
    k->patient = k->tier == SL_TIER_HOST && o->budget_together == 0 && k->p->machine.copies_overlap;
    uint64_t peak = pack_best(k, entries, offsets);
    if (k->patient && peak > o->budget[k->tier]) {
        k->patient = false;
        peak = pack_best(k, entries, offsets);
    }
    keep_offsets(k, offsets, peak);
}

sluice_status sl_plan_address(sl_plan *p)
{
    size_t n = (size_t)p->buffer_count + 1;
    int *order = sl_alloc_array(n, sizeof *order, "plan: address order");
    placed *by_offset = sl_alloc_array(n, sizeof *by_offset, "plan: placed buffers");
    sort_entry *entries = sl_alloc_array(n, sizeof *entries, "plan: sort keys");
    uint64_t *offsets = sl_alloc_array(n, sizeof *offsets, "plan: offsets");
    sluice_status st = order && by_offset && entries && offsets ? SLUICE_OK : SLUICE_ERR_NO_MEMORY;
    for (int t = 0; st == SLUICE_OK && t < SL_TIER_COUNT; t++) {
        packer k = { .p = p, .tier = (sl_tier)t, .order = order, .by_offset = by_offset };
        pack_tier(&k, entries, offsets);
    }
    sl_free(order);
    sl_free(by_offset);
    sl_free(entries);
    sl_free(offsets);
    return st;
}

/* ---- waits ----
 *
 * Segments of training follow each other without a pause, and the next training step begins while the updates of this
 * one are still under way. So waits are derived on two rounds of FORWARD, BACKWARD, UPDATE in a row. In the second, a
 * step meets everything that can be under way: steps before it in its own round, and all of the round before. A wait
 * names a step; at run time it is for that step's newest recording, which for a later step of the list is that of the
 * round before. What the second round needs within itself it never learns from the first, so its waits serve the first
 * round too, in which waits for later steps are for nothing.
 *
 * Between micro-batches all streams are joined (runtime/exec.c), and around EVALUATE they are drained. */

/* Last position at which a buffer was touched, per stream; -1 never. Positions number the steps of both rounds. */
typedef struct touches {
    int reads[SL_STREAM_COUNT], writes[SL_STREAM_COUNT];
} touches;

typedef struct waiter {
    sl_plan *p;
    int round;
    touches *of;      /* per buffer */
    int *sharing;     /* buffers that share bytes with a transient one, itself included */
    int *share_first; /* per buffer: sharing[share_first[i] .. share_first[i + 1]) */
    int known[SL_STREAM_COUNT]
             [SL_STREAM_COUNT];      /* newest position of stream b that stream a is already ordered after */
    int (*at_step)[SL_STREAM_COUNT]; /* per position: known[] of its stream when it starts */
    int need[SL_STREAM_COUNT];       /* of the step at hand */
} waiter;

static void need_touches(waiter *w, const touches *t, bool reads_too)
{
    for (int stream = 0; stream < SL_STREAM_COUNT; stream++) {
        if (t->writes[stream] > w->need[stream]) w->need[stream] = t->writes[stream];
        if (reads_too && t->reads[stream] > w->need[stream]) w->need[stream] = t->reads[stream];
    }
}

/* ---- who shares bytes with whom ---- */

static int by_offset(const void *a, const void *b)
{
    const sort_entry *x = a, *y = b; /* `bytes` is the offset here, `first` the tier */
    if (x->first != y->first) return x->first < y->first ? -1 : 1;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? -1 : 1;
    return x->buffer < y->buffer ? -1 : 1;
}

/* The transient buffers by tier and offset; permanent ones have their bytes to themselves. Returns how many. */
static int sort_by_offset(const sl_plan *p, sort_entry *entries)
{
    int count = 0;
    for (int i = 0; i < p->buffer_count; i++) {
        const sl_buffer *b = &p->buffers[i];
        if (!b->permanent && takes_room(b)) entries[count++] = (sort_entry){ b->offset, (int)b->tier, 0, i };
    }
    qsort(entries, (size_t)count, sizeof *entries, by_offset);
    return count;
}

/* Calls `found` for each pair, both ways, and for each buffer with itself. */
static void find_sharing(waiter *w, const sort_entry *sorted, int count, void (*found)(waiter *w, int a, int b))
{
    for (int i = 0; i < count; i++) {
        const sl_buffer *a = &w->p->buffers[sorted[i].buffer];
        found(w, sorted[i].buffer, sorted[i].buffer);
        for (int j = i + 1; j < count && sorted[j].first == sorted[i].first; j++) {
            if (sorted[j].bytes >= a->offset + a->bytes) break;
            found(w, sorted[i].buffer, sorted[j].buffer);
            found(w, sorted[j].buffer, sorted[i].buffer);
        }
    }
}

static void count_pair(waiter *w, int a, int b)
{
    (void)b;
    w->share_first[a + 2]++;
}

static void keep_pair(waiter *w, int a, int b)
{
    w->sharing[w->share_first[a + 1]++] = b;
}

static sluice_status list_sharing(waiter *w)
{
    size_t buffers = (size_t)w->p->buffer_count;
    sort_entry *sorted = sl_alloc_array(buffers + 1, sizeof *sorted, "plan: buffers by offset");
    w->share_first = sl_alloc_array(buffers + 2, sizeof *w->share_first, "plan: shared bytes");
    sluice_status st = sorted != NULL && w->share_first != NULL ? SLUICE_OK : SLUICE_ERR_NO_MEMORY;
    int count = st == SLUICE_OK ? sort_by_offset(w->p, sorted) : 0;
    find_sharing(w, sorted, count, count_pair);
    for (size_t i = 2; st == SLUICE_OK && i < buffers + 2; i++) w->share_first[i] += w->share_first[i - 1];
    if (st == SLUICE_OK)
        w->sharing = sl_alloc_array((size_t)w->share_first[buffers + 1] + 1, sizeof *w->sharing, "plan: shared bytes");
    if (st == SLUICE_OK && w->sharing == NULL) st = SLUICE_ERR_NO_MEMORY;
    if (st == SLUICE_OK) find_sharing(w, sorted, count, keep_pair);
    sl_free(sorted);
    return st;
}

/* ---- what a step needs ---- */

/* The first use of a buffer comes after all uses so far of the buffers whose bytes it takes over, its own of the round
 * before included. */
static void need_predecessors(waiter *w, int buffer, int step)
{
    const sl_buffer *b = &w->p->buffers[buffer];
    if (b->permanent || b->first != step) return;
    for (int i = w->share_first[buffer]; i < w->share_first[buffer + 1]; i++)
        need_touches(w, &w->of[w->sharing[i]], true);
}

static int position_of(const waiter *w, int step)
{
    return w->round * w->p->step_count + step;
}

/* Waiting for `target` orders a stream after it and after everything that came before it. */
static void learn(waiter *w, int stream, int target)
{
    int *known = w->known[stream], of = (int)w->p->steps[target % w->p->step_count].stream;
    for (int m = 0; m < SL_STREAM_COUNT; m++)
        if (w->at_step[target][m] > known[m]) known[m] = w->at_step[target][m];
    if (target > known[of]) known[of] = target;
}

/* Latest targets first: what they came after needs no wait of its own. */
static sluice_status record_waits(waiter *w, int index)
{
    sl_step *step = &w->p->steps[index];
    step->first_wait = w->p->wait_count;
    step->wait_count = 0;
    for (;;) {
        int target = -1;
        for (int stream = 0; stream < SL_STREAM_COUNT; stream++)
            if (stream != (int)step->stream && w->need[stream] > w->known[step->stream][stream] &&
                w->need[stream] > target)
                target = w->need[stream];
        if (target < 0) break;
        sl_step *awaited = &w->p->steps[target % w->p->step_count];
        SL_TRY(sl_plan_add_wait(w->p, (int)(awaited - w->p->steps)));
        step->wait_count++;
        learn(w, (int)step->stream, target);
        if (awaited->event < 0) awaited->event = w->p->event_count++;
    }
    memcpy(w->at_step[position_of(w, index)], w->known[step->stream], sizeof w->known[0]);
    return SLUICE_OK;
}

static sluice_status wait_for_step(waiter *w, int index)
{
    const sl_step *step = &w->p->steps[index];
    for (int stream = 0; stream < SL_STREAM_COUNT; stream++) w->need[stream] = -1;
    for (int k = 0; k < sl_step_operands(step); k++) {
        int b = w->p->pieces[step->first_piece + k].buffer;
        if (b < 0) continue;
        need_touches(w, &w->of[b], k >= step->input_count);
        need_predecessors(w, b, index);
    }
    SL_TRY(record_waits(w, index));
    for (int k = 0; k < sl_step_operands(step); k++) {
        int b = w->p->pieces[step->first_piece + k].buffer;
        if (b < 0) continue;
        touches *t = &w->of[b];
        (k >= step->input_count ? t->writes : t->reads)[step->stream] = position_of(w, index);
    }
    return SLUICE_OK;
}

static sluice_status wait_in_segment(waiter *w, sl_segment_kind kind)
{
    const sl_segment *g = &w->p->segments[kind];
    for (int i = 0; i < g->step_count; i++) SL_TRY(wait_for_step(w, g->first_step + i));
    return SLUICE_OK;
}

static void forget_touches(waiter *w)
{
    memset(w->of, 0xff, ((size_t)w->p->buffer_count + 1) * sizeof *w->of); /* all -1 */
    memset(w->known, 0xff, sizeof w->known);
}

static void forget_waits(sl_plan *p)
{
    p->wait_count = p->event_count = 0;
    for (int i = 0; i < p->step_count; i++) p->steps[i].event = -1;
}

static sluice_status derive_waits(waiter *w)
{
    forget_touches(w);
    for (w->round = 0; w->round < 2; w->round++) {
        forget_waits(w->p);
        for (int k = SL_SEGMENT_FORWARD; k <= SL_SEGMENT_UPDATE; k++) SL_TRY(wait_in_segment(w, (sl_segment_kind)k));
    }
    forget_touches(w);
    w->round = 0;
    return wait_in_segment(w, SL_SEGMENT_EVALUATE);
}

/* What the host waits for itself always has an event. */
static void mark_result(sl_plan *p, int step)
{
    if (step >= 0 && p->steps[step].event < 0) p->steps[step].event = p->event_count++;
}

sluice_status sl_plan_waits(sl_plan *p)
{
    waiter w = { .p = p };
    w.of = sl_alloc_array((size_t)p->buffer_count + 1, sizeof *w.of, "plan: last uses");
    w.at_step = sl_alloc_array(2 * (size_t)p->step_count + 1, sizeof *w.at_step, "plan: clocks");
    sluice_status st = w.of != NULL && w.at_step != NULL ? list_sharing(&w) : SLUICE_ERR_NO_MEMORY;
    if (st == SLUICE_OK) st = derive_waits(&w);
    for (int k = 0; k < SL_SEGMENT_COUNT; k++) mark_result(p, p->segments[k].result_step);
    sl_free(w.of);
    sl_free(w.at_step);
    sl_free(w.sharing);
    sl_free(w.share_first);
    return st;
}
