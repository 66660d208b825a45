/* trace.c: see trace.h. */
#include "runtime/trace.h"

#include "core/alloc.h"
#include "runtime/exec_parts.h"

#define MAX_STEPS (1 << 22) /* of one trace; what shows it takes no more */

struct sl_tracer {
    sl_trace *trace; /* owned */
    int run_room, step_room;
    bool on; /* the run at hand is traced */
};

/* ---- while segments are run ---- */

/* Steps of one run are traced all or not at all. */
void sl_tracer_run(sl_exec *x, sl_segment_kind segment, const sl_run_context *context, bool joined)
{
    sl_tracer *r = x->tracer;
    sl_trace *t = r->trace;
    r->on = t->run_count < r->run_room && x->plan->segments[segment].step_count <= r->step_room - t->step_count;
    if (!r->on) return;
    t->runs[t->run_count++] = (sl_traced_run){ { segment, joined, x->holds },
                                               context->step,
                                               context->micro / (uint32_t)x->plan->options.rank_count };
}

/* Stamps 2i and 2i + 1 are of the trace's step i. */
sluice_status sl_tracer_before(sl_exec *x, const sl_step *s)
{
    sl_trace *t = x->tracer->trace;
    if (!x->tracer->on) return SLUICE_OK;
    t->steps[t->step_count] = (sl_traced_step){ .run = t->run_count - 1, .step = (int)(s - x->plan->steps) };
    return x->backend->stamp(x->device, s->stream, 2 * t->step_count);
}

sluice_status sl_tracer_after(sl_exec *x, const sl_step *s)
{
    if (!x->tracer->on) return SLUICE_OK;
    return x->backend->stamp(x->device, s->stream, 2 * x->tracer->trace->step_count++ + 1);
}

/* ---- beginning ---- */

int64_t sl_trace_length(const sl_plan *p, int64_t micro_batches)
{
    const sl_segment *g = p->segments;
    int64_t forward = g[SL_SEGMENT_FORWARD].step_count, backward = g[SL_SEGMENT_BACKWARD].step_count;
    return micro_batches * (forward + backward) + g[SL_SEGMENT_UPDATE].step_count + forward;
}

static sluice_status make_room(sl_exec *x)
{
    int64_t passes = x->plan->options.accumulation, steps = sl_trace_length(x->plan, passes);
    if (steps > MAX_STEPS)
        return sl_fail(SLUICE_ERR_USAGE, "a training step of %lld micro-batches is too long to trace: %lld operations",
                       (long long)passes, (long long)steps);
    sl_tracer *r = x->tracer = sl_alloc(sizeof *r, "trace");
    sl_trace *t = r != NULL ? (r->trace = sl_alloc(sizeof *t, "trace")) : NULL;
    if (t == NULL) return SLUICE_ERR_NO_MEMORY;
    r->run_room = (int)(2 * passes + 2);
    r->step_room = (int)steps;
    t->plan = x->plan;
    t->runs = sl_alloc_array((size_t)r->run_room, sizeof *t->runs, "runs of a trace");
    t->steps = sl_alloc_array((size_t)steps + 1, sizeof *t->steps, "steps of a trace");
    if (t->runs == NULL || t->steps == NULL) return SLUICE_ERR_NO_MEMORY;
    return x->backend->reserve_stamps(x->device, 2 * (int)steps);
}

sluice_status sl_exec_trace_begin(sl_exec *x)
{
    if (x->tracer != NULL) return sl_fail(SLUICE_ERR_USAGE, "a trace is under way already");
    SL_TRY(sl_exec_settle(x));
    sluice_status st = make_room(x);
    if (st != SLUICE_OK) sl_tracer_drop(x);
    return st;
}

bool sl_exec_is_tracing(const sl_exec *x)
{
    return x->tracer != NULL;
}

/* ---- ending ---- */

static void fill_measured(sl_trace *t, const double *stamps)
{
    double origin = t->step_count > 0 ? stamps[0] : 0;
    for (int i = 0; i < t->step_count; i++)
        if (stamps[2 * i] < origin) origin = stamps[2 * i];
    for (int i = 0; i < t->step_count; i++)
        t->steps[i].measured = (sl_plan_time){ stamps[2 * i] - origin, stamps[2 * i + 1] - origin };
}

static sluice_status measure(sl_exec *x, sl_trace *t)
{
    double *stamps = sl_alloc_array(2 * (size_t)t->step_count + 1, sizeof *stamps, "times of a trace");
    if (stamps == NULL) return SLUICE_ERR_NO_MEMORY;
    sluice_status st = x->backend->read_stamps(x->device, stamps, 2 * t->step_count);
    if (st == SLUICE_OK) fill_measured(t, stamps);
    sl_free(stamps);
    return st;
}

static sluice_status expect(sl_trace *t)
{
    sl_plan_run *runs = sl_alloc_array((size_t)t->run_count + 1, sizeof *runs, "runs of a trace");
    sl_plan_time *times = sl_alloc_array((size_t)t->step_count + 1, sizeof *times, "times of a trace");
    sluice_status st = runs != NULL && times != NULL ? SLUICE_OK : SLUICE_ERR_NO_MEMORY;
    for (int i = 0; st == SLUICE_OK && i < t->run_count; i++) runs[i] = t->runs[i].what;
    if (st == SLUICE_OK) st = sl_plan_timeline(t->plan, runs, t->run_count, times);
    for (int i = 0; st == SLUICE_OK && i < t->step_count; i++) t->steps[i].expected = times[i];
    sl_free(runs);
    sl_free(times);
    return st;
}

/* A run that failed halfway has left stamps unset: there is no trace of it. */
static sluice_status check_whole(const sl_trace *t)
{
    int steps = 0;
    for (int i = 0; i < t->run_count; i++) steps += t->plan->segments[t->runs[i].what.segment].step_count;
    if (steps == t->step_count) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_FAILED, "the trace has %d of %d operations", t->step_count, steps);
}

sluice_status sl_exec_trace_end(sl_exec *x, sl_trace **out)
{
    if (x->tracer == NULL) return sl_fail(SLUICE_ERR_USAGE, "no trace is under way");
    sl_trace *t = x->tracer->trace;
    sluice_status st = sl_exec_settle(x);
    if (st == SLUICE_OK) st = check_whole(t);
    if (st == SLUICE_OK) st = measure(x, t);
    if (st == SLUICE_OK) st = expect(t);
    if (st == SLUICE_OK) {
        *out = t;
        x->tracer->trace = NULL;
    }
    sl_tracer_drop(x);
    return st;
}

/* The device gives its stamps back, or never had any. */
void sl_tracer_drop(sl_exec *x)
{
    if (x->tracer == NULL) return;
    (void)x->backend->reserve_stamps(x->device, 0);
    sl_trace_free(x->tracer->trace);
    sl_free(x->tracer);
    x->tracer = NULL;
}

void sl_trace_free(sl_trace *t)
{
    if (t == NULL) return;
    sl_free(t->runs);
    sl_free(t->steps);
    sl_free(t);
}

/* ---- what it adds up to ---- */

typedef struct sum {
    const sl_trace *t;
    bool expected;
    int first_run;   /* runs before it are not counted */
    int *newest;     /* per step of the plan: where it was queued last; -1: nowhere yet */
    int last;        /* position that ended last; -1: none */
    int last_joined; /* of those on streams that are joined between micro-batches */
    bool joins[SL_STREAM_COUNT];
    double compute_idle; /* since when compute has had nothing to do */
    sl_trace_totals totals;
    sl_trace_gap *gaps; /* NULL: nobody wants them; room for three of each step */
    int gap_count;
} sum;

static sl_plan_time time_of(const sum *s, int position)
{
    const sl_traced_step *q = &s->t->steps[position];
    return s->expected ? q->expected : q->measured;
}

/* Not on the compute stream, but never beside it either: see plan/clock.c. Where the plan expects that of copies too,
 * they may still run beside it when they really do. */
static bool takes_turns(const sum *s, const sl_step *step)
{
    const sl_machine *m = &s->t->plan->machine;
    bool kernel = step->kind == SL_STEP_COMPUTE || step->kind == SL_STEP_UPDATE;
    if (step->stream == SL_STREAM_COMPUTE) return false;
    return (kernel && m->kernels_take_turns) || (s->expected && !m->copies_overlap);
}

static int later_of(const sum *s, int a, int b)
{
    if (a < 0 || b < 0) return a < 0 ? b : a;
    return time_of(s, b).end > time_of(s, a).end ? b : a;
}

/* What the step at `position` waited for longest; -1: nothing. */
static int waited_for(const sum *s, int position)
{
    const sl_trace *t = s->t;
    const sl_step *step = &t->plan->steps[t->steps[position].step];
    bool opens = position > 0 && t->steps[position - 1].run != t->steps[position].run;
    const sl_plan_run *run = &t->runs[t->steps[position].run].what;
    int late = !opens || !run->joined ? -1 : run->segment == SL_SEGMENT_EVALUATE ? s->last : s->last_joined;
    for (int k = 0; k < step->wait_count; k++)
        late = later_of(s, late, s->newest[t->plan->waits[step->first_wait + k]]);
    return late;
}

static void note_gap(sum *s, double begin, double seconds, sl_stream stream, bool counts)
{
    if (s->gaps == NULL || !(seconds > 0)) return;
    s->gaps[s->gap_count++] = (sl_trace_gap){ begin, begin + seconds, stream, counts };
}

/* Compute stood still before this step: part of that for a stream, the rest for something else. */
static void charge_gap(sum *s, int position, bool counts)
{
    sl_plan_time now = time_of(s, position);
    int late = waited_for(s, position);
    double since = s->compute_idle, gap = now.begin - since, waited = late >= 0 ? time_of(s, late).end - since : 0;
    s->compute_idle = now.end;
    if (gap <= 0) return;
    if (waited > gap) waited = gap;
    sl_stream stream = late >= 0 ? s->t->plan->steps[s->t->steps[late].step].stream : SL_STREAM_COMPUTE;
    if (stream == SL_STREAM_COMPUTE || waited < 0) waited = 0;
    note_gap(s, since, waited, stream, counts);
    note_gap(s, since + waited, gap - waited, SL_STREAM_COMPUTE, counts);
    if (!counts) return;
    s->totals.exposed[stream] += waited;
    s->totals.idle += gap - waited;
}

static void add_step(sum *s, int position)
{
    const sl_traced_step *q = &s->t->steps[position];
    const sl_step *step = &s->t->plan->steps[q->step];
    sl_plan_time time = time_of(s, position);
    bool counts = q->run >= s->first_run, turn = takes_turns(s, step);
    if (counts) s->totals.busy[step->stream] += time.end - time.begin;
    if (counts && turn) s->totals.exposed[step->stream] += time.end - time.begin;
    if (step->stream == SL_STREAM_COMPUTE || turn) charge_gap(s, position, counts);
    if (turn) note_gap(s, time.begin, time.end - time.begin, step->stream, counts);
    s->newest[q->step] = position;
    s->last = later_of(s, s->last, position);
    if (s->joins[step->stream]) s->last_joined = later_of(s, s->last_joined, position);
}

/* When the last step of a run that was compute's, or took turns with it, ended. */
static double run_end(const sum *s, int run)
{
    double end = 0;
    for (int i = 0; i < s->t->step_count; i++) {
        const sl_step *step = &s->t->plan->steps[s->t->steps[i].step];
        bool counts = s->t->steps[i].run == run && (step->stream == SL_STREAM_COMPUTE || takes_turns(s, step));
        if (counts && time_of(s, i).end > end) end = time_of(s, i).end;
    }
    return end;
}

int sl_trace_first_counted(const sl_trace *t)
{
    bool followed = t->run_count > 1 && t->runs[t->run_count - 1].step > t->runs[0].step;
    return followed ? 1 : 0;
}

/* `s` has the trace, which times, and where gaps go. */
static sluice_status add_up(sum *s)
{
    const sl_trace *t = s->t;
    s->last = s->last_joined = -1;
    sl_plan_joined_streams(t->plan, s->joins);
    s->first_run = sl_trace_first_counted(t);
    s->newest = sl_alloc_array((size_t)t->plan->step_count + 1, sizeof *s->newest, "steps of a trace");
    if (s->newest == NULL) return SLUICE_ERR_NO_MEMORY;
    for (int i = 0; i < t->plan->step_count; i++) s->newest[i] = -1;
    for (int i = 0; i < t->step_count; i++) add_step(s, i);
    sl_free(s->newest);
    if (s->first_run > 0) {
        s->totals.begin = run_end(s, 0);
        s->totals.step = run_end(s, t->run_count - 1) - s->totals.begin;
    } else if (s->last >= 0) {
        s->totals.step = time_of(s, s->last).end;
    }
    return SLUICE_OK;
}

sluice_status sl_trace_add_up(const sl_trace *t, bool expected, sl_trace_totals *out)
{
    sum s = { .t = t, .expected = expected };
    SL_TRY(add_up(&s));
    *out = s.totals;
    return SLUICE_OK;
}

sluice_status sl_trace_find_gaps(const sl_trace *t, bool expected, sl_trace_gap **out, int *count)
{
    sum s = { .t = t, .expected = expected };
    s.gaps = sl_alloc_array(3 * (size_t)t->step_count + 1, sizeof *s.gaps, "gaps of a trace");
    if (s.gaps == NULL) return SLUICE_ERR_NO_MEMORY;
    sluice_status st = add_up(&s);
    if (st != SLUICE_OK) {
        sl_free(s.gaps);
        return st;
    }
    *out = s.gaps;
    *count = s.gap_count;
    return SLUICE_OK;
}

/* ---- without running ---- */

static void add_expected_run(sl_trace *t, sl_segment_kind segment, uint64_t step, int micro, bool last)
{
    const sl_segment *g = &t->plan->segments[segment];
    bool joined = segment == SL_SEGMENT_FORWARD && micro > 0;
    for (int i = 0; i < g->step_count; i++)
        t->steps[t->step_count++] = (sl_traced_step){ .run = t->run_count, .step = g->first_step + i };
    const unsigned holds = SL_WHEN_COMMON | (last ? (unsigned)SL_WHEN_LAST_MICRO : 0);
    t->runs[t->run_count++] = (sl_traced_run){ { segment, joined, holds }, step, (uint32_t)micro };
}

sluice_status sl_trace_expect(const sl_plan *p, int micro_batches, sl_trace **out)
{
    sl_trace *t = sl_alloc(sizeof *t, "trace");
    if (t == NULL) return SLUICE_ERR_NO_MEMORY;
    t->plan = p;
    t->runs = sl_alloc_array(2 * (size_t)micro_batches + 2, sizeof *t->runs, "runs of a trace");
    t->steps = sl_alloc_array((size_t)sl_trace_length(p, micro_batches) + 1, sizeof *t->steps, "steps of a trace");
    sluice_status st = t->runs != NULL && t->steps != NULL ? SLUICE_OK : SLUICE_ERR_NO_MEMORY;
    for (int m = 0; st == SLUICE_OK && m < micro_batches; m++) {
        add_expected_run(t, SL_SEGMENT_FORWARD, 1, m, m == micro_batches - 1);
        add_expected_run(t, SL_SEGMENT_BACKWARD, 1, m, m == micro_batches - 1);
    }
    if (st == SLUICE_OK) {
        add_expected_run(t, SL_SEGMENT_UPDATE, 1, 0, true);
        add_expected_run(t, SL_SEGMENT_FORWARD, 2, 0, micro_batches == 1);
        st = expect(t);
    }
    if (st == SLUICE_OK)
        *out = t;
    else
        sl_trace_free(t);
    return st;
}
