/* waits.c: gives every step the waits that offsets and streams make necessary.
 *
 * Segments of training follow each other without a pause, and the next training step begins while the updates of this
 * one are still under way. So waits are derived on two rounds of FORWARD, BACKWARD, UPDATE in a row. In the second, a
 * step meets everything that can be under way: steps before it in its own round, and all of the round before. A wait
 * names a step; at run time it is for that step's newest recording, which for a later step of the list is that of the
 * round before. The waits of the second round are kept, and serve the first training step too: what a stream knows of
 * the first round never makes a wait within the second superfluous, because its positions are smaller; and a wait for a
 * later step, which was never recorded then, is for nothing.
 *
 * An example: one layer whose weights w and gradient g are on the device, with w' and g' on the host, where it is
 * updated. Positions are those of the second round; in the first they are 0 to 4.
 *
 *     step  position  does                           stream       needs                        waits for
 *     0     5         forward   reads w              compute      4 of round 1: it wrote w     4
 *     1     6         backward  writes g             compute      2 of round 1: it read g      nothing
 *     2     7         copy      reads g, writes g'   to host      6: it wrote g                1
 *     3     8         update    reads g', writes w'  host update  7: it wrote g'               2
 *     4     9         copy      reads w', writes w   to device    8: it wrote w'; 5: it read w 3
 *
 * Backward waits for nothing: its stream waited for 4, which came after 3, and that after 2. Step 4 does not wait for
 * 0: 3 came after 2, and that after 1 and 0. Forward waits for a later step of the list: for the copy of the training
 * step before. tests/plan/waits_test.c has this plan.
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

/* Buffer `a` shares bytes with `b`: counted in the first pass, listed in the second. */
static void note_pair(waiter *w, int a, int b)
{
    if (w->sharing == NULL)
        w->share_first[a + 2]++;
    else
        w->sharing[w->share_first[a + 1]++] = b;
}

/* Notes each pair, both ways, and each buffer with itself. */
static void find_sharing(waiter *w, const sort_entry *sorted, int count)
{
    for (int i = 0; i < count; i++) {
        const sl_buffer *a = &w->p->buffers[sorted[i].buffer];
        note_pair(w, sorted[i].buffer, sorted[i].buffer);
        for (int j = i + 1; j < count && sorted[j].tier == sorted[i].tier; j++) {
            if (sorted[j].offset >= a->offset + a->bytes) break;
            note_pair(w, sorted[i].buffer, sorted[j].buffer);
            note_pair(w, sorted[j].buffer, sorted[i].buffer);
        }
    }
}

/* After counting, share_first[i + 1] is where the list of buffer i begins; listing moves it to its end, which is where
 * that of i + 1 begins. */
static sluice_status list_sharing(waiter *w)
{
    size_t buffers = (size_t)w->p->buffer_count;
    sort_entry *sorted = sl_alloc_array(buffers + 1, sizeof *sorted, "plan: buffers by offset");
    w->share_first = sl_alloc_array(buffers + 2, sizeof *w->share_first, "plan: shared bytes");
    sluice_status st = sorted != NULL && w->share_first != NULL ? SLUICE_OK : SLUICE_ERR_NO_MEMORY;
    int count = st == SLUICE_OK ? sort_by_offset(w->p, sorted) : 0;
    find_sharing(w, sorted, count);
    for (size_t i = 2; st == SLUICE_OK && i < buffers + 2; i++) w->share_first[i] += w->share_first[i - 1];
    if (st == SLUICE_OK)
        w->sharing = sl_alloc_array((size_t)w->share_first[buffers + 1] + 1, sizeof *w->sharing, "plan: shared bytes");
    if (st == SLUICE_OK && w->sharing == NULL) st = SLUICE_ERR_NO_MEMORY;
    if (st == SLUICE_OK) find_sharing(w, sorted, count);
    sl_free(sorted);
    return st;
}

/* ---- what a step needs ---- */

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

/* A read comes after the writes of its buffer so far, a write also after the reads. The first use of a buffer comes
 * after all uses so far of the buffers whose bytes it takes over, its own of the round before included. */
static sluice_status wait_for_step(waiter *w, int index)
{
    const sl_step *step = &w->p->steps[index];
    for (int stream = 0; stream < SL_STREAM_COUNT; stream++) w->need[stream] = -1;
    for (int k = 0; k < sl_step_operands(step); k++) {
        int b = w->p->pieces[step->first_piece + k].buffer;
        if (b < 0) continue;
        need_touches(w, &w->of[b], k >= step->input_count);
        bool first_use = !w->p->buffers[b].permanent && w->p->buffers[b].first == index;
        for (int i = w->share_first[b]; first_use && i < w->share_first[b + 1]; i++)
            need_touches(w, &w->of[w->sharing[i]], true);
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

static sluice_status derive_waits(waiter *w)
{
    forget_touches(w);
    for (w->round = 0; w->round < 2; w->round++) {
        w->p->wait_count = w->p->event_count = 0; /* the second round's are kept */
        for (int i = 0; i < w->p->step_count; i++) w->p->steps[i].event = -1;
        for (int k = SL_SEGMENT_FORWARD; k <= SL_SEGMENT_UPDATE; k++) SL_TRY(wait_in_segment(w, (sl_segment_kind)k));
    }
    forget_touches(w);
    w->round = 0;
    return wait_in_segment(w, SL_SEGMENT_EVALUATE);
}

sluice_status sl_plan_waits(sl_plan *p)
{
    waiter w = { .p = p };
    w.of = sl_alloc_array((size_t)p->buffer_count + 1, sizeof *w.of, "plan: last uses");
    w.at_step = sl_alloc_array(2 * (size_t)p->step_count + 1, sizeof *w.at_step, "plan: clocks");
    sluice_status st = w.of != NULL && w.at_step != NULL ? list_sharing(&w) : SLUICE_ERR_NO_MEMORY;
    if (st == SLUICE_OK) st = derive_waits(&w);
    for (int k = 0; k < SL_SEGMENT_COUNT; k++) { /* what the host waits for itself always has an event */
        int step = p->segments[k].result_step;
        if (step >= 0 && p->steps[step].event < 0) p->steps[step].event = p->event_count++;
    }
    sl_free(w.of);
    sl_free(w.at_step);
    sl_free(w.sharing);
    sl_free(w.share_first);
    return st;
}
