/* clock.c: the plan run on clocks instead of a device.
 *
 * Work is done on lanes, one step at a time on each, in list order. On a device every stream is a lane. On a CPU
 * (kernels_take_turns) the kernels of all streams share one lane, and a copy or collective starts at the earliest when
 * the kernels listed before it are done, because the thread that runs them is the one that queues it. A step starts
 * when its lane is free and what it waits for is done.
 *
 * What is clocked is a sequence of runs of segments: a training step and the forward and backward of the next, since
 * the updates of one go on beside the other. A run begins when the result of the one before is known to the host, and
 * between micro-batches when nothing is under way on the streams that these use.
 *
 * Lanes that work at the same time disturb each other where the machine says so: a step's seconds are work, and a lane
 * works at a speed of 1 or less that depends on how many others are busy at that moment. Time moves from the end of one
 * step to the next; in between, speeds are constant.
 *
 * Where kernels stand still, the time is charged to the stream they waited for: that is the exposed part, the rest of
 * that stream's work is hidden. Kernels of the update stream that take turns with compute are exposed as a whole.
 *
 * An example: two layers a and b with their optimizer state on the host, on a device whose lanes do not disturb each
 * other (tests/plan/cost_test.c has it as a test).
 *
 *     segment   step           seconds  stream       waits for
 *     FORWARD   0  forward a   2        compute      5
 *               1  forward b   2        compute      7
 *     BACKWARD  2  both        4        compute
 *     UPDATE    3  norm        1        compute               its end is the segment's result
 *               4  update a    0.5      host update  3
 *               5  copy a      1        to device    4
 *               6  update b    0.5      host update
 *               7  copy b      1        to device    6
 *
 *     seconds      0    2    4         8   9    9.5  10    10.5   11.5   12.5      14.5
 *     compute      | 0  | 1  | 2       | 3 |  stands still  | 0          | 1       |
 *     host update                          | 4  | 6  |
 *     to device                                 | 5         | 7    |
 *
 * In the first training step the waits of 0 and 1 are for nothing: 5 and 7 were never recorded. The norm is known at 9,
 * and the next FORWARD begins; its step 0 waits for copy a until 10.5, so 1.5 seconds are charged to the stream "to
 * device". Copy b is hidden behind step 0. FORWARD takes 5.5 seconds, from 9 to 14.5.
 *
 * And of speeds: a kernel and a copy of 1 second each begin together, kernel_slowdown is 0.5 and move_slowdown 1. The
 * kernel works at 1 / 1.5 and is done at 1.5 seconds; the copy worked at 1 / 2, has 0.25 left, does that alone at speed
 * 1, and is done at 1.75. */
#include "core/alloc.h"
#include "plan/passes.h"

#define MAX_PASSES 3                    /* micro-batches of a training step that are clocked */
#define MAX_RUNS   (6 * MAX_PASSES + 3) /* of what a plan's own seconds are read off: up to three steps, and REDO */

/* One run of a segment in the sequence. Positions number the steps of all runs one after the other. */
typedef struct run {
    sl_segment_kind kind;
    bool joined;       /* begins when all before it is done on the streams that are joined */
    unsigned holds;    /* conditions of steps; the others take no time */
    int first;         /* position of its first step */
    int left;          /* steps not done yet */
    int left_joined;   /* of these on streams that are joined between micro-batches */
    double kernel_end; /* when its newest kernel of the compute lane was done */
    double result;     /* when its result was there; negative: not yet */
    sl_segment seen;   /* busy, exposed, longest */
} run;

typedef struct lane {
    int next;      /* its next position, the one at hand while busy; or the end */
    int run;       /* which that is in */
    int step;      /* of the plan; -1 at the end */
    int before;    /* the position that it was at work on before; -1: none */
    bool busy;     /* at work on `next` */
    int blocked;   /* a position that `next` waits for and that was not done when it was looked at last; -1: none */
    double left;   /* seconds of work still to do */
    double beside; /* of a transfer of the disk: how much longer it takes beside one in the other direction */
    double idle_since;
} lane;

typedef struct clocks {
    const sl_plan *p;
    double now;
    run *runs;
    int run_count, end;  /* end: position after the last */
    int settled, joined; /* first runs that have their results; of which nothing is left on streams that are joined */
    sl_plan_time *times; /* per position; end negative: not done yet */
    int newest;          /* position done last; -1: none */
    int *after; /* per position: what was done last of all that its step waited for; NULL: no step is the disk's */
    int newest_joined; /* of those on streams that are joined */
    bool joins[SL_STREAM_COUNT];
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

/* ---- positions ---- */

static int run_at(const clocks *c, int position)
{
    int low = 0, high = c->run_count - 1;
    while (low < high) {
        int middle = (low + high + 1) / 2;
        if (c->runs[middle].first <= position)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

static int step_at(const clocks *c, int position)
{
    const run *r = &c->runs[run_at(c, position)];
    return c->p->segments[r->kind].first_step + position - r->first;
}

static bool holds(const sl_plan *p, sl_segment_kind kind, int step)
{
    const sl_segment *g = &p->segments[kind];
    return step >= g->first_step && step < g->first_step + g->step_count;
}

/* The newest recording of step `target` when a lane's next step is queued; -1: there is none. */
static int recording(const clocks *c, const lane *l, int target)
{
    int r = l->run;
    if (holds(c->p, c->runs[r].kind, target) && target >= l->step) r--;
    for (; r >= 0; r--)
        if (holds(c->p, c->runs[r].kind, target))
            return c->runs[r].first + target - c->p->segments[c->runs[r].kind].first_step;
    return -1;
}

/* Moves the lane to its first step from `next` on, or to the end. */
static void find_next(clocks *c, int k)
{
    lane *l = &c->lanes[k];
    for (; l->run < c->run_count; l->run++) {
        const run *r = &c->runs[l->run];
        const sl_segment *g = &c->p->segments[r->kind];
        for (; l->next < r->first + g->step_count; l->next++) {
            l->step = g->first_step + l->next - r->first;
            if (lane_of(&c->p->machine, &c->p->steps[l->step]) == k) return;
        }
    }
    l->step = -1;
}

/* ---- starting ---- */

/* False: the run may not begin yet, or something that a lane's next step waits for is not done; else *late is the last of
 * all that to be done, or -1. */
static bool waits_done(clocks *c, lane *l, int *late)
{
    int r = l->run;
    const sl_step *s = &c->p->steps[l->step];
    if (l->blocked >= 0 && c->times[l->blocked].end < 0) return false;
    while (c->settled < r && c->runs[c->settled].result >= 0) c->settled++;
    while (c->joined < r && c->runs[c->joined].left_joined == 0) c->joined++;
    if (c->settled < r || (c->runs[r].joined && c->joined < r)) return false;
    *late = c->runs[r].joined ? c->newest_joined : -1;
    for (int k = 0; k < s->wait_count; k++) {
        int target = recording(c, l, c->p->waits[s->first_wait + k]);
        if (target < 0) continue;
        if (c->times[target].end < 0) {
            l->blocked = target;
            return false;
        }
        if (*late < 0 || c->times[target].end > c->times[*late].end) *late = target;
    }
    return true;
}

static bool is_disk(sl_stream stream)
{
    return stream == SL_STREAM_DISK_READ || stream == SL_STREAM_DISK_WRITE;
}

/* Compute stood still for `seconds` in run `r` because of what is at `position`. */
static void charge(clocks *c, int r, int position, double seconds)
{
    int step = step_at(c, position);
    sl_stream stream = c->p->steps[step].stream;
    sl_segment *seen = &c->runs[r].seen;
    if (stream == SL_STREAM_COMPUTE) return;
    seen->exposed[stream] += seconds;
    if (seconds <= seen->longest[stream]) return;
    seen->longest[stream] = seconds;
    seen->longest_step[stream] = step;
}

/* The same. What is at `position` may itself have waited for the disk, through other steps: that part is the disk's. */
static void expose(clocks *c, int r, int position, double seconds)
{
    double until = c->now, since = c->now - seconds;
    for (int p = position; c->after != NULL && p >= 0 && until > since; p = c->after[p]) {
        double begin = c->times[p].begin > since ? c->times[p].begin : since;
        if (is_disk(c->p->steps[step_at(c, p)].stream) && begin < until) {
            charge(c, r, p, until - begin);
            seconds -= until - begin;
        }
        if (begin < until) until = begin;
    }
    if (seconds > 0) charge(c, r, position, seconds);
}

/* By the transfer's size where that was measured: small ones lose more. */
static double disk_slowdown(const sl_plan *p, const sl_step *s)
{
    const sl_machine *m = &p->machine;
    const bool writes = s->stream == SL_STREAM_DISK_WRITE;
    const sl_rates *beside = &m->disk_beside[writes];
    if (beside->count == 0 || s->seconds <= 0) return writes ? m->disk_write_slowdown : m->disk_read_slowdown;
    double slowdown =
        sl_rates_seconds(beside, (double)p->pieces[s->first_piece].bytes, m->disk_latency) / s->seconds - 1;
    return slowdown > 0 ? slowdown : 0;
}

static void start(clocks *c, int k, int late)
{
    lane *l = &c->lanes[k];
    int r = l->run;
    const sl_step *s = &c->p->steps[l->step];
    l->busy = true;
    l->blocked = -1;
    l->left = sl_step_is_done(s, c->runs[r].holds) ? s->seconds : 0;
    l->beside = is_disk(s->stream) ? disk_slowdown(c->p, s) : 0;
    c->times[l->next].begin = c->now;
    if (c->after != NULL) {
        int before = l->before; /* on the same lane, where that was done last */
        c->after[l->next] = late < 0 || (before >= 0 && c->times[before].end > c->times[late].end) ? before : late;
    }
    c->runs[r].seen.busy[s->stream] += l->left;
    if (k != SL_STREAM_COMPUTE) return;
    if (late >= 0 && c->now > l->idle_since) expose(c, r, late, c->now - l->idle_since);
    if (s->stream != SL_STREAM_COMPUTE) charge(c, r, l->next, l->left);
}

static void start_ready(clocks *c)
{
    for (int k = 0; k < SL_STREAM_COUNT; k++) {
        lane *l = &c->lanes[k];
        int late, issued = c->p->machine.kernels_take_turns ? c->lanes[SL_STREAM_COMPUTE].next : c->end;
        bool may = k == SL_STREAM_COMPUTE || l->next < issued;
        if (!l->busy && l->next < c->end && may && waits_done(c, l, &late)) start(c, k, late);
    }
}

/* ---- running ---- */

/* What a step is to the others that run beside it. */
typedef enum { KERNEL, MOVE, UPDATE, DISK, WORK_KINDS } work_kind;

static work_kind work_of(const sl_machine *m, const sl_step *s)
{
    if (is_disk(s->stream)) return DISK;
    if (!is_kernel(s)) return MOVE;
    return s->stream == SL_STREAM_UPDATE && !m->kernels_take_turns ? UPDATE : KERNEL;
}

/* What a copy loses to what is at work beside it. */
static double lost_of_move(const sl_machine *m, const int others[WORK_KINDS], double moves)
{
    return m->move_slowdown * (moves + (others[KERNEL] > 0)) + m->move_update_slowdown * others[UPDATE];
}

/* 1, or less where others are at work: rates.h. `busy`: lanes at work of each kind, this one of `kind` among them; `beside`: of a
 * transfer of the disk, how much longer it takes beside one in the other direction. Such a transfer is a part of a copy to
 * what the host's processors do; a device has its own. */
static double speed(const sl_machine *m, work_kind kind, double beside, const int busy[WORK_KINDS])
{
    int others[WORK_KINDS];
    for (int i = 0; i < WORK_KINDS; i++) others[i] = busy[i] - (i == (int)kind);
    double moves = others[MOVE], on_host = moves + m->disk_processor * others[DISK];
    switch (kind) {
    case KERNEL:
        return 1 / (1 + m->kernel_slowdown * (m->kernels_take_turns ? on_host : moves));
    case UPDATE:
        return 1 / (1 + m->update_slowdown * on_host);
    case DISK:
        return 1 / (1 + others[DISK] * beside + m->disk_processor * lost_of_move(m, others, moves));
    default:
        return 1 / (1 + lost_of_move(m, others, m->kernels_take_turns ? on_host : moves));
    }
}

static void finish_step(clocks *c, int k)
{
    lane *l = &c->lanes[k];
    run *r = &c->runs[l->run];
    c->times[l->next].end = l->idle_since = c->now;
    bool joined = c->joins[c->p->steps[l->step].stream];
    c->newest = l->next;
    if (joined) c->newest_joined = l->next;
    r->left--;
    r->left_joined -= joined;
    if (k == SL_STREAM_COMPUTE) r->kernel_end = c->now;
    if (l->step == c->p->segments[r->kind].result_step || r->left == 0) {
        if (r->result < 0) r->result = c->now;
    }
    l->busy = false;
    l->before = l->next;
    l->next++;
    find_next(c, k);
}

/* To the next end of a step; all that end then are done. False: nothing is at work. */
static bool advance(clocks *c)
{
    const sl_machine *m = &c->p->machine;
    double speeds[SL_STREAM_COUNT] = { 0 }, wait = -1;
    work_kind kinds[SL_STREAM_COUNT];
    int busy[WORK_KINDS] = { 0 };
    for (int k = 0; k < SL_STREAM_COUNT; k++)
        if (c->lanes[k].busy) busy[kinds[k] = work_of(m, &c->p->steps[c->lanes[k].step])]++;
    for (int k = 0; k < SL_STREAM_COUNT; k++) {
        if (!c->lanes[k].busy) continue;
        speeds[k] = speed(m, kinds[k], c->lanes[k].beside, busy);
        if (wait < 0 || c->lanes[k].left / speeds[k] < wait) wait = c->lanes[k].left / speeds[k];
    }
    if (wait < 0) return false;
    c->now += wait;
    for (int k = 0; k < SL_STREAM_COUNT; k++) {
        lane *l = &c->lanes[k];
        if (!l->busy) continue;
        bool done = l->left / speeds[k] <= wait;
        l->left -= wait * speeds[k];
        if (done) finish_step(c, k);
    }
    return true;
}

static void add_run(clocks *c, sl_segment_kind kind, bool joined, unsigned holds)
{
    run *r = &c->runs[c->run_count++];
    int steps = c->p->segments[kind].step_count;
    *r = (run){ .kind = kind, .joined = joined, .holds = holds, .first = c->end, .left = steps, .result = -1 };
    /* a segment whose result nobody reads holds nobody up */
    if (steps == 0 || c->p->segments[kind].result_step < 0) r->result = 0;
    for (int m = 0; m < SL_STREAM_COUNT; m++) r->seen.longest_step[m] = -1;
    c->end += steps;
}

void sl_plan_joined_streams(const sl_plan *p, bool streams[SL_STREAM_COUNT])
{
    for (int m = 0; m < SL_STREAM_COUNT; m++) streams[m] = false;
    for (int k = SL_SEGMENT_FORWARD; k <= SL_SEGMENT_BACKWARD; k++)
        for (int i = 0; i < p->segments[k].step_count; i++)
            streams[p->steps[p->segments[k].first_step + i].stream] = true;
}

static void count_joined(clocks *c)
{
    sl_plan_joined_streams(c->p, c->joins);
    for (int r = 0; r < c->run_count; r++) {
        const sl_segment *g = &c->p->segments[c->runs[r].kind];
        c->runs[r].left_joined = 0;
        for (int i = 0; i < g->step_count; i++)
            c->runs[r].left_joined += c->joins[c->p->steps[g->first_step + i].stream];
    }
}

/* `times` has room for all positions. */
static sluice_status run_in(clocks *c, const int *stop, sl_plan_time *times)
{
    c->times = times;
    for (int i = 0; i < c->end; i++) times[i].end = -1;
    c->newest = c->newest_joined = -1;
    count_joined(c);
    if (c->p->totals.peak[SL_TIER_DISK] > 0) {
        c->after = sl_alloc_array((size_t)c->end + 1, sizeof *c->after, "plan: what steps waited for");
        if (c->after == NULL) return SLUICE_ERR_NO_MEMORY;
    }
    for (int k = 0; k < SL_STREAM_COUNT; k++) c->lanes[k].before = c->lanes[k].blocked = -1;
    for (int k = 0; k < SL_STREAM_COUNT; k++) find_next(c, k);
    do start_ready(c);
    while (!sl_stop_asked(stop) && advance(c));
    sl_free(c->after);
    c->after = NULL;
    return sl_stop_poll(stop, "planning");
}

static sluice_status run_all(clocks *c)
{
    sl_plan_time *times = sl_alloc_array((size_t)c->end + 1, sizeof *times, "plan: times of steps");
    if (times == NULL) return SLUICE_ERR_NO_MEMORY;
    sluice_status st = run_in(c, c->p->options.stop, times);
    sl_free(times);
    return st;
}

/* ---- what is read off ---- */

/* Adds `weight` times what was seen in a run to a segment's numbers. */
static void count_run(sl_segment *g, const run *r, double seconds, double weight)
{
    g->seconds += weight * seconds;
    for (int m = 0; m < SL_STREAM_COUNT; m++) {
        g->busy[m] += weight * r->seen.busy[m];
        g->exposed[m] += weight * r->seen.exposed[m];
        if (r->seen.longest[m] <= g->longest[m]) continue;
        g->longest[m] = r->seen.longest[m];
        g->longest_step[m] = r->seen.longest_step[m];
    }
}

static bool has_last_work(const sl_plan *p)
{
    for (int i = 0; i < p->step_count; i++)
        if ((p->steps[i].when & SL_WHEN_LAST_MICRO) != 0) return true;
    return false;
}

/* A micro-batch of a step that is clocked, and of how many it is one. */
typedef struct passes {
    int count, of[MAX_PASSES];
} passes;

/* The first, beside which updates may still run, one of the others, and the last where it does more than they. Delayed
 * updates may also hold up the second, which then stands for itself. */
static passes clocked_passes(const sl_plan *p)
{
    int all = p->options.accumulation;
    if (all == 1) return (passes){ 1, { 1 } };
    if (p->options.delayed && all > 2) return (passes){ 3, { 1, 1, all - 2 } };
    if (all == 2 || !has_last_work(p)) return (passes){ 2, { 1, all - 1 } };
    return (passes){ 3, { 1, all - 2, 1 } };
}

static void add_passes(clocks *c, const passes *q)
{
    for (int m = 0; m < q->count; m++) {
        const unsigned holds = SL_WHEN_COMMON | (m == q->count - 1 ? (unsigned)SL_WHEN_LAST_MICRO : 0);
        add_run(c, SL_SEGMENT_FORWARD, m > 0, holds);
        add_run(c, SL_SEGMENT_BACKWARD, false, holds);
    }
}

/* Two training steps, the second without its update. Delayed updates may take longer than the step they run beside, and
 * then hold up the one after it: one more comes first. */
static sluice_status clock_sequence(clocks *c, const passes *q, bool redo)
{
    for (int step = c->p->options.delayed ? 0 : 1; step < 2; step++) {
        add_passes(c, q);
        add_run(c, SL_SEGMENT_UPDATE, false, SL_WHEN_COMMON | SL_WHEN_LAST_MICRO);
    }
    if (redo) add_run(c, SL_SEGMENT_REDO, false, SL_WHEN_COMMON | SL_WHEN_LAST_MICRO);
    add_passes(c, q);
    return run_all(c);
}

/* By how much a training step becomes longer whose updates are done once more: REDO keeps the next one waiting. */
static sluice_status clock_redo(sl_plan *p, const passes *q, double without)
{
    run runs[MAX_RUNS];
    clocks c = { .p = p, .runs = runs };
    SL_TRY(clock_sequence(&c, q, true));
    const run *redo = &runs[2 * q->count + 1], *last = &runs[c.run_count - 1];
    double longer = last->kernel_end - without;
    count_run(&p->segments[SL_SEGMENT_REDO], redo, longer > 0 ? longer : 0, 1);
    return SLUICE_OK;
}

/* Of two training steps, the second without its update. Read off are FORWARD and BACKWARD of the second, which began
 * beside the updates of the first, and UPDATE of the first; each run counts from the end of what came before it. */
static sluice_status clock_training(sl_plan *p)
{
    run runs[MAX_RUNS];
    clocks c = { .p = p, .runs = runs };
    sl_segment *of = p->segments;
    const passes q = clocked_passes(p);
    SL_TRY(clock_sequence(&c, &q, false));
    const run *update = &runs[c.run_count - 1 - 2 * q.count];
    double before = update->result > update->kernel_end ? update->result : update->kernel_end;
    count_run(&of[SL_SEGMENT_UPDATE], update, before - update[-1].kernel_end, 1);
    for (int m = 0; m < q.count; m++) {
        const run *forward = update + 1 + 2 * m, *backward = forward + 1;
        double share = (double)q.of[m] / p->options.accumulation;
        count_run(&of[SL_SEGMENT_FORWARD], forward, forward->kernel_end - before, share);
        count_run(&of[SL_SEGMENT_BACKWARD], backward, backward->kernel_end - forward->kernel_end, share);
        before = backward->kernel_end;
    }
    return p->segments[SL_SEGMENT_REDO].step_count > 0 ? clock_redo(p, &q, before) : SLUICE_OK;
}

static sluice_status clock_evaluation(sl_plan *p)
{
    run runs[1];
    clocks c = { .p = p, .runs = runs };
    add_run(&c, SL_SEGMENT_EVALUATE, false, SL_WHEN_COMMON);
    SL_TRY(run_all(&c));
    /* what runs on after the last kernel is exposed too: nothing follows */
    if (c.newest >= 0) expose(&c, 0, c.newest, c.now - c.lanes[SL_STREAM_COMPUTE].idle_since);
    count_run(&p->segments[SL_SEGMENT_EVALUATE], &c.runs[0], c.now, 1);
    return SLUICE_OK;
}

sluice_status sl_plan_clock(sl_plan *p)
{
    for (int k = 0; k < SL_SEGMENT_COUNT; k++) {
        sl_segment *g = &p->segments[k];
        *g = (sl_segment){ .first_step = g->first_step, .step_count = g->step_count, .result_step = g->result_step };
        for (int m = 0; m < SL_STREAM_COUNT; m++) g->longest_step[m] = -1;
    }
    if (p->segments[SL_SEGMENT_FORWARD].step_count > 0) SL_TRY(clock_training(p));
    return p->segments[SL_SEGMENT_EVALUATE].step_count > 0 ? clock_evaluation(p) : SLUICE_OK;
}

sluice_status sl_plan_timeline(const sl_plan *p, const sl_plan_run *runs, int run_count, sl_plan_time *times)
{
    clocks c = { .p = p };
    c.runs = sl_alloc_array((size_t)run_count + 1, sizeof *c.runs, "plan: runs of segments");
    if (c.runs == NULL) return SLUICE_ERR_NO_MEMORY;
    for (int i = 0; i < run_count; i++) add_run(&c, runs[i].segment, runs[i].joined, runs[i].holds);
    sluice_status st = run_in(&c, NULL, times); /* asked for by a run, whatever it was asked */
    sl_free(c.runs);
    return st;
}
