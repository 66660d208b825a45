/* trace.h: when each step of a plan really began and ended, beside when it was expected to.
 *
 * Tracing is off unless begun; then every step is stamped before and after on its stream (sl_backend.stamp). The
 * expected times are the plan's own clocks run over the same sequence of segments. */
#ifndef SL_RUNTIME_TRACE_H
#define SL_RUNTIME_TRACE_H

#include "runtime/exec.h"

/* A segment that was run. */
typedef struct sl_traced_run {
    sl_plan_run what;
    uint64_t step;  /* of training, from 1 */
    uint32_t micro; /* micro-batch within it */
} sl_traced_run;

typedef struct sl_traced_step {
    int run, step; /* of the trace; of the plan */
    sl_plan_time measured, expected;
} sl_traced_step;

/* In the order in which steps were queued. Seconds from the earliest beginning. */
typedef struct sl_trace {
    const sl_plan *plan; /* borrowed */
    sl_traced_run *runs; /* owned */
    int run_count;
    sl_traced_step *steps; /* owned */
    int step_count;
} sl_trace;

/* What a trace adds up to. A trace that goes on to the first forward of the following step holds one step as it is in
 * the middle of a run: from the end of one first forward to the end of the next. A trace without it is a whole step,
 * from its beginning until nothing is under way. */
typedef struct sl_trace_totals {
    double begin; /* of that step, on the trace's clock */
    double step;  /* seconds */
    double busy[SL_STREAM_COUNT];
    double exposed[SL_STREAM_COUNT]; /* compute stood still until this stream was done */
    double idle;                     /* compute stood still and waited for no stream: for the host, or for work */
} sl_trace_totals;

/* A stretch of time in which compute stood still. */
typedef struct sl_trace_gap {
    double begin, end;
    sl_stream stream; /* what it waited for; COMPUTE: for no stream (sl_trace_totals.idle) */
    bool counts;      /* it is part of the totals */
} sl_trace_gap;

/* Waits until nothing is under way, takes the memory for a training step and the first forward of the next, and traces
 * what is run from here on as far as that goes. SLUICE_ERR_USAGE: it is under way already, or too long. */
sluice_status sl_exec_trace_begin(sl_exec *x);
bool sl_exec_is_tracing(const sl_exec *x);
/* Waits until nothing is under way and ends it, also after a failure. *out is the caller's, to be freed before the plan
 * is. */
sluice_status sl_exec_trace_end(sl_exec *x, sl_trace **out);
void sl_trace_free(sl_trace *t); /* NULL is fine */
/* Of the measured or the expected times. */
sluice_status sl_trace_add_up(const sl_trace *t, bool expected, sl_trace_totals *out);
/* The first run that the totals count; those before it only lead up to the step. */
int sl_trace_first_counted(const sl_trace *t);
/* Every stretch in which compute stood still. Those that count are the totals' exposed and idle seconds. *out is the
 * caller's, to be given to sl_free. */
sluice_status sl_trace_find_gaps(const sl_trace *t, bool expected, sl_trace_gap **out, int *count);
/* Operations of a training step of so many micro-batches and of the first forward of the next. */
int64_t sl_trace_length(const sl_plan *p, int64_t micro_batches);
/* What the plan expects of such a step, without having run it: measured times are 0. *out as in sl_exec_trace_end. */
sluice_status sl_trace_expect(const sl_plan *p, int micro_batches, sl_trace **out);

#endif
