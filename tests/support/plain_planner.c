/* plain_planner.c: see plain_planner.h. */
#include "support/plain_planner.h"

#include <stdlib.h>
#include <string.h>

uint64_t plain_first_fit(plain_placed *placed, int count, uint64_t base, uint64_t bytes, int first, int last)
{
    uint64_t at = base;
    for (bool moved = true; moved;) {
        moved = false;
        for (int i = 0; i < count; i++) {
            const plain_placed *q = &placed[i];
            if (q->last < first || q->first > last || q->end <= at || q->begin >= at + bytes) continue;
            at = q->end;
            moved = true;
        }
    }
    placed[count] = (plain_placed){ at, at + bytes, first, last };
    return at;
}

/* ---- waits ---- */

typedef struct touched {
    int any[SL_STREAM_COUNT], writes[SL_STREAM_COUNT]; /* newest positions; -1: none */
} touched;

typedef struct plain_waiter {
    sl_plan *p;
    int round;
    touched *of;
    int known[SL_STREAM_COUNT][SL_STREAM_COUNT];
    int (*at_step)[SL_STREAM_COUNT];
} plain_waiter;

static void raise_all(int *need, const int *positions)
{
    for (int m = 0; m < SL_STREAM_COUNT; m++)
        if (positions[m] > need[m]) need[m] = positions[m];
}

static bool share_bytes(const sl_buffer *a, const sl_buffer *b)
{
    if (b->permanent || !sl_buffer_takes_room(b) || !sl_buffer_takes_room(a) || a->tier != b->tier) return false;
    return a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes;
}

static void find_needs(const plain_waiter *w, int index, int *need)
{
    const sl_plan *p = w->p;
    const sl_step *s = &p->steps[index];
    for (int m = 0; m < SL_STREAM_COUNT; m++) need[m] = -1;
    for (int k = 0; k < sl_step_operands(s); k++) {
        int b = sl_plan_memory(p, p->pieces[s->first_piece + k].buffer);
        if (b < 0) continue;
        raise_all(need, k >= s->input_count ? w->of[b].any : w->of[b].writes);
        if (p->buffers[b].permanent || p->buffers[b].first != index) continue;
        for (int other = 0; other < p->buffer_count; other++)
            if (share_bytes(&p->buffers[b], &p->buffers[other])) raise_all(need, w->of[other].any);
    }
}

static sluice_status wait_one(plain_waiter *w, int index)
{
    sl_plan *p = w->p;
    sl_step *s = &p->steps[index];
    int need[SL_STREAM_COUNT], *known = w->known[s->stream], position = w->round * p->step_count + index;
    find_needs(w, index, need);
    s->first_wait = p->wait_count;
    s->wait_count = 0;
    for (int target = 0; target >= 0;) {
        target = -1;
        for (int m = 0; m < SL_STREAM_COUNT; m++)
            if (m != (int)s->stream && need[m] > known[m] && need[m] > target) target = need[m];
        if (target < 0) break;
        sl_step *awaited = &p->steps[target % p->step_count];
        SL_TRY(sl_plan_add_wait(p, target % p->step_count));
        s->wait_count++;
        raise_all(known, w->at_step[target]);
        if (target > known[awaited->stream]) known[awaited->stream] = target;
        if (awaited->event < 0) awaited->event = p->event_count++;
    }
    memcpy(w->at_step[position], known, sizeof w->known[0]);
    for (int k = 0; k < sl_step_operands(s); k++) {
        int b = sl_plan_memory(p, p->pieces[s->first_piece + k].buffer);
        if (b < 0) continue;
        w->of[b].any[s->stream] = position;
        if (k >= s->input_count) w->of[b].writes[s->stream] = position;
    }
    return SLUICE_OK;
}

static sluice_status wait_all(plain_waiter *w, int first, int last)
{
    for (int k = first; k <= last; k++)
        for (int i = 0; i < w->p->segments[k].step_count; i++) SL_TRY(wait_one(w, w->p->segments[k].first_step + i));
    return SLUICE_OK;
}

static void forget(plain_waiter *w)
{
    memset(w->of, 0xff, (size_t)w->p->buffer_count * sizeof *w->of);
    memset(w->known, 0xff, sizeof w->known);
}

static sluice_status derive(plain_waiter *w)
{
    forget(w);
    for (w->round = 0; w->round < 2; w->round++) {
        w->p->wait_count = w->p->event_count = 0;
        for (int i = 0; i < w->p->step_count; i++) w->p->steps[i].event = -1;
        SL_TRY(wait_all(w, SL_SEGMENT_FORWARD, SL_SEGMENT_UPDATE));
    }
    w->round = 0;
    forget(w);
    SL_TRY(wait_all(w, SL_SEGMENT_REDO, SL_SEGMENT_REDO));
    forget(w);
    return wait_all(w, SL_SEGMENT_EVALUATE, SL_SEGMENT_EVALUATE);
}

sluice_status plain_waits(sl_plan *p)
{
    plain_waiter w = { .p = p };
    w.of = calloc((size_t)p->buffer_count + 1, sizeof *w.of);
    w.at_step = calloc(2 * (size_t)p->step_count + 1, sizeof *w.at_step);
    sluice_status st = w.of != NULL && w.at_step != NULL ? derive(&w) : SLUICE_ERR_NO_MEMORY;
    for (int k = 0; k < SL_SEGMENT_COUNT; k++) {
        int step = p->segments[k].result_step;
        if (step >= 0 && p->steps[step].event < 0) p->steps[step].event = p->event_count++;
    }
    free(w.of);
    free(w.at_step);
    return st;
}
