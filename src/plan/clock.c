/* clock.c: a segment of the plan run on clocks instead of a device.
 *
 * Work is done on lanes, one step at a time on each, in list order. On a device every stream is a lane. On a CPU
 * (kernels_take_turns) the kernels of all streams share one lane, and a copy or collective starts at the earliest when
 * the kernels listed before it are done, because the thread that runs them is the one that queues it. A step starts
 * when its lane is free and what it waits for is done.
 *
 * Lanes that work at the same time disturb each other where the machine says so: a step's seconds are work, and a lane
 * works at a speed of 1 or less that depends on how many others are busy at that moment. Time moves from the end of one
 * step to the next; in between, speeds are constant.
 *
 * Where kernels stand still, the time is charged to the stream they waited for: that is the exposed part, the rest of
 * that stream's work is hidden. Kernels of the update stream that take turns with compute are exposed as a whole. */
#include "plan/internal.h"

typedef struct lane {
    int next;    /* first step of the segment that may still be its; the one at hand while busy */
    bool busy;   /* at work on step `next` */
    double left; /* seconds of work still to do */
    double idle_since;
    int last; /* step done last; -1: none */
} lane;

typedef struct clocks {
    sl_plan *p;
    sl_segment *segment;
    double now;
    double *finish; /* per step of the plan; negative: not done yet */
    int end;        /* step after the segment's last */
    lane lanes[SL_STREAM_COUNT];
} clocks;

static bool is_kernel(const sl_step *s)
{
    return s->kind == SL_STEP_COMPUTE || s->kind == SL_STEP_UPDATE;
}

static int lane_of(const sl_machine *m, const sl_step *s)
{
    if (!m->copies_overlap) return SL_STREAM_COMPUTE;
    return m->kernels_take_turns && is_kernel(s) ? SL_STREAM_COMPUTE : (int)s->stream;
}

/* Moves the lane to its next step, or to the end. */
static void find_next(clocks *c, int k)
{
    int *next = &c->lanes[k].next;
    while (*next < c->end && lane_of(&c->p->machine, &c->p->steps[*next]) != k) ++*next;
}

/* The step that is waited for longest so far: the undone one gives false, else *late is the last to be done, or -1. */
static bool waits_done(const clocks *c, const sl_step *s, int *late)
{
    *late = -1;
    for (int k = 0; k < s->wait_count; k++) {
        int target = c->p->waits[s->first_wait + k];
        if (target < c->segment->first_step) continue; /* segments end with all streams drained */
        if (c->finish[target] < 0) return false;
        if (*late < 0 || c->finish[target] > c->finish[*late]) *late = target;
    }
    return true;
}

/* Compute stood still for `seconds` because of `step` of another stream. */
static void expose(clocks *c, int step, double seconds)
{
    sl_stream stream = c->p->steps[step].stream;
    sl_segment *segment = c->segment;
    segment->exposed[stream] += seconds;
    if (seconds <= segment->longest[stream]) return;
    segment->longest[stream] = seconds;
    segment->longest_step[stream] = step;
}

static void start(clocks *c, int k, int late)
{
    lane *l = &c->lanes[k];
    const sl_step *s = &c->p->steps[l->next];
    l->busy = true;
    l->left = s->seconds;
    c->segment->busy[s->stream] += s->seconds;
    if (k != SL_STREAM_COMPUTE) return;
    if (late >= 0 && c->now > l->idle_since) expose(c, late, c->now - l->idle_since);
    if (s->stream != SL_STREAM_COMPUTE) expose(c, l->next, s->seconds);
}

static void start_ready(clocks *c)
{
    for (int k = 0; k < SL_STREAM_COUNT; k++) {
        lane *l = &c->lanes[k];
        int late, issued = c->p->machine.kernels_take_turns ? c->lanes[SL_STREAM_COMPUTE].next : c->end;
        bool may = k == SL_STREAM_COMPUTE || l->next < issued;
        if (!l->busy && l->next < c->end && may && waits_done(c, &c->p->steps[l->next], &late)) start(c, k, late);
    }
}

/* 1, or less where others are at work: machine.h. */
static double speed(const clocks *c, int k)
{
    const sl_machine *m = &c->p->machine;
    int kernels = 0, moves = 0;
    for (int i = 0; i < SL_STREAM_COUNT; i++) {
        if (!c->lanes[i].busy || i == k) continue;
        bool kernel = is_kernel(&c->p->steps[c->lanes[i].next]);
        kernels += kernel;
        moves += !kernel;
    }
    if (is_kernel(&c->p->steps[c->lanes[k].next])) return 1 / (1 + m->kernel_slowdown * moves);
    return 1 / (1 + m->move_slowdown * (moves + (kernels > 0)));
}

/* To the next end of a step; all that end then are done. False: nothing is at work. */
static bool advance(clocks *c)
{
    double speeds[SL_STREAM_COUNT] = { 0 }, wait = -1;
    for (int k = 0; k < SL_STREAM_COUNT; k++) {
        if (!c->lanes[k].busy) continue;
        speeds[k] = speed(c, k);
        if (wait < 0 || c->lanes[k].left / speeds[k] < wait) wait = c->lanes[k].left / speeds[k];
    }
    if (wait < 0) return false;
    c->now += wait;
    for (int k = 0; k < SL_STREAM_COUNT; k++) {
        lane *l = &c->lanes[k];
        if (!l->busy) continue;
        bool done = l->left / speeds[k] <= wait;
        l->left -= wait * speeds[k];
        if (!done) continue;
        c->finish[l->next] = l->idle_since = c->now;
        l->busy = false;
        l->last = l->next++;
        find_next(c, k);
    }
    return true;
}

/* What runs on after the last kernel of the segment is exposed too. */
static void expose_tail(clocks *c)
{
    int longest = -1;
    for (int k = 0; k < SL_STREAM_COUNT; k++) {
        const lane *l = &c->lanes[k];
        if (l->last >= 0 && (longest < 0 || l->idle_since > c->lanes[longest].idle_since)) longest = k;
    }
    if (longest <= SL_STREAM_COMPUTE) return;
    expose(c, c->lanes[longest].last, c->now - c->lanes[SL_STREAM_COMPUTE].idle_since);
}

void sl_segment_clock(sl_plan *p, sl_segment *segment, double *finish)
{
    clocks c = { .p = p, .segment = segment, .finish = finish, .end = segment->first_step + segment->step_count };
    for (int i = segment->first_step; i < c.end; i++) finish[i] = -1;
    for (int k = 0; k < SL_STREAM_COUNT; k++) {
        c.lanes[k] = (lane){ .next = segment->first_step, .last = -1 };
        find_next(&c, k);
    }
    do start_ready(&c);
    while (advance(&c));
    expose_tail(&c);
    segment->seconds = c.now;
}
