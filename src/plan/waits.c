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
 * Two versions of one thing (sl_buffer.twin) count as one memory here: which of them a step really touches changes from
 * training step to training step, and the order of one memory is right for both.
 *
 * REDO runs after some training steps and not after others. A wait for it, or one that came to be superfluous because of
 * it, must not fail where it does not run: its events are those of an earlier training step then, or of none. So waits are
 * derived twice, with it and without it, and a step waits for what either says.
 *
 * Between micro-batches the streams that these use are joined (runtime/exec.c): steps of one need not wait for steps of
 * the one before. Streams of UPDATE and REDO alone are not: whatever touches what they do waits for that step itself, or
 * its stream already did in the first micro-batch. Around EVALUATE all streams are drained. */
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "plan/passes.h"
#include "plan/tenants.h"

/* Streams, and some that do not exist: loops over eight are done four at a time. */
#define STREAMS 8
_Static_assert(SL_STREAM_COUNT <= STREAMS, "a row has room for all streams");

/* Last position at which a buffer was touched, per stream; -1 never. Positions number the steps of both rounds. */
typedef struct touches {
    int reads[STREAMS], writes[STREAMS];
} touches;

typedef struct waiter {
    sl_plan *p;
    int round;
    touches *of; /* per buffer */
    sl_tenants tenants;
    int known[STREAMS][STREAMS]; /* newest position of stream b that stream a is already ordered after */
    int (*at_step)[STREAMS];     /* per position: known[] of its stream when it starts */
    int need[STREAMS];           /* of the step at hand */
} waiter;

static void raise_all(int *restrict to, const int *restrict positions)
{
    for (int i = 0; i < STREAMS; i++) to[i] = positions[i] > to[i] ? positions[i] : to[i];
}

static void need_touches(waiter *w, const touches *t, bool reads_too)
{
    raise_all(w->need, t->writes);
    if (reads_too) raise_all(w->need, t->reads);
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
    raise_all(known, w->at_step[target]);
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

/* The first use of a buffer comes after all uses so far of the buffers whose bytes it takes over, its own of the round
 * before included. Of these only the last tenants of the bytes are asked: each of them came after the tenants before
 * it, and whatever is ordered after a step is ordered after all that the step was. */
static void need_tenants(waiter *w, int buffer)
{
    for (int i = sl_tenants_begin(&w->tenants, buffer); i >= 0; i = sl_tenants_next(&w->tenants, buffer, i))
        if (w->tenants.tenant[i] >= 0) need_touches(w, &w->of[w->tenants.tenant[i]], true);
    sl_tenants_move_in(&w->tenants, buffer);
}

/* A read comes after the writes of its buffer so far, a write also after the reads. */
static sluice_status wait_for_step(waiter *w, int index)
{
    const sl_step *step = &w->p->steps[index];
    for (int stream = 0; stream < STREAMS; stream++) w->need[stream] = -1;
    for (int k = 0; k < sl_step_operands(step); k++) {
        int b = sl_plan_memory(w->p, w->p->pieces[step->first_piece + k].buffer);
        if (b < 0) continue;
        need_touches(w, &w->of[b], k >= step->input_count);
        if (!w->p->buffers[b].permanent && w->p->buffers[b].first == index) need_tenants(w, b);
    }
    SL_TRY(record_waits(w, index));
    for (int k = 0; k < sl_step_operands(step); k++) {
        int b = sl_plan_memory(w->p, w->p->pieces[step->first_piece + k].buffer);
        if (b < 0) continue;
        touches *t = &w->of[b];
        (k >= step->input_count ? t->writes : t->reads)[step->stream] = position_of(w, index);
    }
    return SLUICE_OK;
}

static sluice_status wait_in_segment(waiter *w, sl_segment_kind kind)
{
    const sl_segment *g = &w->p->segments[kind];
    for (int i = 0; i < g->step_count; i++) {
        SL_TRY(sl_plan_poll(w->p));
        SL_TRY(wait_for_step(w, g->first_step + i));
    }
    return SLUICE_OK;
}

static void forget_touches(waiter *w)
{
    memset(w->of, 0xff, ((size_t)w->p->buffer_count + 1) * sizeof *w->of); /* all -1 */
    memset(w->known, 0xff, sizeof w->known);
    sl_tenants_move_out(&w->tenants);
}

static void forget_events(sl_plan *p)
{
    p->event_count = 0;
    for (int i = 0; i < p->step_count; i++) p->steps[i].event = -1;
}

/* Two rounds that end with segment `last`. */
static sluice_status derive_rounds(waiter *w, sl_segment_kind last)
{
    forget_touches(w);
    for (w->round = 0; w->round < 2; w->round++) {
        w->p->wait_count = 0; /* the second round's are kept */
        forget_events(w->p);
        for (int k = SL_SEGMENT_FORWARD; k <= (int)last; k++) SL_TRY(wait_in_segment(w, (sl_segment_kind)k));
    }
    return SLUICE_OK;
}

/* ---- with REDO and without ---- */

/* The waits of a derivation. */
typedef struct wait_lists {
    int *waits, *first, *count; /* owned: all; of each step */
} wait_lists;

static sluice_status save_waits(const sl_plan *p, wait_lists *l)
{
    const size_t steps = (size_t)p->step_count + 1;
    l->waits = sl_alloc_array((size_t)p->wait_count + 1, sizeof *l->waits, "plan: waits");
    l->first = sl_alloc_array(steps, sizeof *l->first, "plan: waits");
    l->count = sl_alloc_array(steps, sizeof *l->count, "plan: waits");
    if (l->waits == NULL || l->first == NULL || l->count == NULL) return SLUICE_ERR_NO_MEMORY;
    for (int i = 0; i < p->wait_count; i++) l->waits[i] = p->waits[i];
    for (int i = 0; i < p->step_count; i++) {
        l->first[i] = p->steps[i].first_wait;
        l->count[i] = p->steps[i].wait_count;
    }
    return SLUICE_OK;
}

static void free_lists(wait_lists *l)
{
    sl_free(l->waits);
    sl_free(l->first);
    sl_free(l->count);
}

/* What step `index` waits for in a derivation that it has no wait for yet. */
static sluice_status add_waits(sl_plan *p, int index, const wait_lists *l)
{
    sl_step *s = &p->steps[index];
    for (int k = 0; k < l->count[index]; k++) {
        const int target = l->waits[l->first[index] + k];
        bool known = false;
        for (int i = 0; i < s->wait_count && !known; i++) known = p->waits[s->first_wait + i] == target;
        if (known) continue;
        SL_TRY(sl_plan_add_wait(p, target));
        s->wait_count++;
        if (p->steps[target].event < 0) p->steps[target].event = p->event_count++;
    }
    return SLUICE_OK;
}

/* Steps of training wait for what either derivation says, those of REDO for what the one with it does. */
static sluice_status join_waits(sl_plan *p, const wait_lists *without, const wait_lists *with)
{
    const sl_segment *redo = &p->segments[SL_SEGMENT_REDO];
    p->wait_count = 0;
    forget_events(p);
    for (int i = 0; i < redo->first_step + redo->step_count; i++) {
        p->steps[i].first_wait = p->wait_count;
        p->steps[i].wait_count = 0;
        if (i < redo->first_step) SL_TRY(add_waits(p, i, without));
        SL_TRY(add_waits(p, i, with));
    }
    return SLUICE_OK;
}

static sluice_status derive_with_redo(waiter *w, wait_lists *without, wait_lists *with)
{
    SL_TRY(save_waits(w->p, without));
    SL_TRY(derive_rounds(w, SL_SEGMENT_REDO));
    SL_TRY(save_waits(w->p, with));
    return join_waits(w->p, without, with);
}

static sluice_status derive_waits(waiter *w)
{
    wait_lists without = { NULL, NULL, NULL }, with = { NULL, NULL, NULL };
    sluice_status st = derive_rounds(w, SL_SEGMENT_UPDATE);
    if (st == SLUICE_OK && w->p->segments[SL_SEGMENT_REDO].step_count > 0) st = derive_with_redo(w, &without, &with);
    free_lists(&without);
    free_lists(&with);
    SL_TRY(st);
    forget_touches(w);
    w->round = 0;
    return wait_in_segment(w, SL_SEGMENT_EVALUATE);
}

sluice_status sl_plan_waits(sl_plan *p)
{
    waiter w = { .p = p };
    w.of = sl_alloc_array((size_t)p->buffer_count + 1, sizeof *w.of, "plan: last uses");
    w.at_step = sl_alloc_array(2 * (size_t)p->step_count + 1, sizeof *w.at_step, "plan: clocks");
    sluice_status st = w.of != NULL && w.at_step != NULL ? sl_tenants_create(&w.tenants, p) : SLUICE_ERR_NO_MEMORY;
    if (st == SLUICE_OK) st = derive_waits(&w);
    for (int k = 0; k < SL_SEGMENT_COUNT; k++) { /* what the host waits for itself always has an event */
        int step = p->segments[k].result_step;
        if (step >= 0 && p->steps[step].event < 0) p->steps[step].event = p->event_count++;
    }
    sl_free(w.of);
    sl_free(w.at_step);
    sl_tenants_destroy(&w.tenants);
    return st;
}
