/* waits.c: gives every step the waits that offsets and streams make necessary.
 *
 * Segments of training follow each other without a pause, and the next training step begins while the updates of this
 * one are still under way. So waits are derived on two rounds of FORWARD, BACKWARD, UPDATE in a row. In the second, a
 * step meets everything that can be under way: steps before it in its own round, and all of the round before. A wait
 * names a step; at run time it is for that step's newest recording, which for a later step of the list is that of the
 * round before. What the second round needs within itself it never learns from the first, so its waits serve the first
 * round too, in which waits for later steps are for nothing.
 *
 * Between micro-batches all streams are joined (runtime/exec.c), and around EVALUATE they are drained. */
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "plan/passes.h"

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

/* qsort has no context argument: the keys travel with the entries. */
typedef struct sort_entry {
    sl_tier tier;
    uint64_t offset;
    int buffer;
} sort_entry;

static int by_offset(const void *a, const void *b)
{
    const sort_entry *x = a, *y = b;
    if (x->tier != y->tier) return x->tier < y->tier ? -1 : 1;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    return x->buffer < y->buffer ? -1 : 1;
}

/* The transient buffers by tier and offset; permanent ones have their bytes to themselves. Returns how many. */
static int sort_by_offset(const sl_plan *p, sort_entry *entries)
{
    int count = 0;
    for (int i = 0; i < p->buffer_count; i++) {
        const sl_buffer *b = &p->buffers[i];
        if (!b->permanent && sl_buffer_takes_room(b)) entries[count++] = (sort_entry){ b->tier, b->offset, i };
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
        for (int j = i + 1; j < count && sorted[j].tier == sorted[i].tier; j++) {
            if (sorted[j].offset >= a->offset + a->bytes) break;
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
