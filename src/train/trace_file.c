/* trace_file.c: `train --trace`: one training step as a timeline that trace viewers show, predicted and measured.
 *
 * The format is Chrome's trace events in JSON: two processes, "measured" and "predicted", with a thread for each stream
 * and a complete event for each step of the plan. Times are whole nanoseconds, so that rounding makes no two events of
 * a stream overlap. */
#include <math.h>
#include <stdio.h>

#include "core/alloc.h"
#include "core/output.h"
#include "core/thread.h"
#include "core/utf8.h"
#include "format/text_buffer.h"
#include "report/profile.h"
#include "train/run.h"

#define WARM_STEPS 2 /* of a process: they touch new memory, and choose kernels */

enum { MEASURED = 1, PREDICTED = 2 }; /* processes of the file */

static const char *const process_names[] = { [MEASURED] = "measured", [PREDICTED] = "predicted" };

/* ---- events ---- */

static void add_separator(sl_text *out)
{
    if (out->bytes > 0 && out->data[out->bytes - 1] != '[') sl_text_add(out, ",\n");
}

/* A name, or with a number the place in the list, of a process or of one of its threads. */
static void add_label(sl_text *out, const char *what, int process, int thread, const char *name, int number)
{
    add_separator(out);
    sl_text_add(out, "{\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"name\":\"%s\",\"args\":{", process, thread, what);
    if (name != NULL) {
        sl_text_add(out, "\"name\":");
        sl_text_add_string(out, name);
    } else {
        sl_text_add(out, "\"sort_index\":%d", number);
    }
    sl_text_add(out, "}}");
}

static void add_labels(sl_text *out, const sl_plan *p, int process)
{
    bool used[SL_STREAM_COUNT] = { false };
    char name[64];
    snprintf(name, sizeof name, "%s", process_names[process]);
    if (p->options.rank_count > 1) snprintf(name, sizeof name, "%s, rank %d", process_names[process], p->options.rank);
    add_label(out, "process_name", process, 0, name, 0);
    add_label(out, "process_sort_index", process, 0, NULL, process);
    for (int i = 0; i < p->step_count; i++) used[p->steps[i].stream] = true;
    for (int m = 0; m < SL_STREAM_COUNT; m++) {
        if (!used[m]) continue;
        add_label(out, "thread_name", process, m + 1, sl_plan_stream_name((sl_stream)m), 0);
        add_label(out, "thread_sort_index", process, m + 1, NULL, m);
    }
}

static const char *layer_name(const sl_plan *p, const sl_step *s)
{
    return s->layer >= 0 ? p->graph->layers[s->layer].name : NULL;
}

/* JSON has no infinity: what a machine file makes unreachable is null. */
static void add_seconds(sl_text *out, const char *key, double seconds)
{
    sl_text_add(out, "\"%s\":", key);
    if (isfinite(seconds))
        sl_text_add(out, "%.9g", seconds);
    else
        sl_text_add(out, "null");
}

static void add_field(sl_text *out, const char *key, const char *value)
{
    if (value == NULL) return;
    sl_text_add(out, "\"%s\":", key);
    sl_text_add_string(out, value);
    sl_text_add(out, ",");
}

/* The layer at a position of forward. */
static const char *name_at(const sl_plan *p, int position)
{
    for (int i = 0; i < p->graph->layer_count; i++)
        if (p->graph->layers[i].node_count > 0 && position-- == 0) return p->graph->layers[i].name;
    return "";
}

/* Where layers run again together: the first and the last of them. */
static void add_group(sl_text *out, const sl_plan *p, const sl_step *s)
{
    const sl_layer_place *place = s->layer >= 0 ? &p->layers[s->layer] : NULL;
    char group[256];
    sl_text_add(out, "\"recomputed\":true,");
    if (place == NULL || place->group_first == place->group_last) return;
    snprintf(group, sizeof group, "%s to %s", name_at(p, place->group_first), name_at(p, place->group_last));
    add_field(out, "group", group);
}

static void add_arguments(sl_text *out, const sl_trace *t, const sl_traced_step *q)
{
    const sl_plan *p = t->plan;
    const sl_step *s = &p->steps[q->step];
    const sl_traced_run *run = &t->runs[q->run];
    uint64_t bytes = 0; /* of inputs and outputs; what a copy moves counts once */
    int operands = s->input_count + (s->kind == SL_STEP_COPY ? 0 : s->output_count);
    for (int k = 0; k < operands; k++) bytes += p->pieces[s->first_piece + k].bytes;
    add_field(out, "op", sl_plan_step_name(s));
    if (s->node >= 0) add_field(out, "node", p->graph->nodes[s->node].name);
    add_field(out, "layer", layer_name(p, s));
    if (s->recomputed) add_group(out, p, s);
    sl_text_add(out, "\"training_step\":%llu,\"micro_batch\":%u,\"plan_step\":%d,\"bytes\":%llu,",
                (unsigned long long)run->step, (unsigned)run->micro, q->step, (unsigned long long)bytes);
    add_seconds(out, "measured_seconds", q->measured.end - q->measured.begin);
    sl_text_add(out, ",");
    add_seconds(out, "predicted_seconds", q->expected.end - q->expected.begin);
}

/* Of a time that is not negative; small errors of two clocks against each other become 0. A prediction beyond what a
 * viewer can show ends at its edge, some months away. */
static long long nanoseconds(double seconds)
{
    return seconds > 0 ? (long long)(fmin(seconds, 1e7) * 1e9 + 0.5) : 0;
}

/* A step whose conditions did not hold has done nothing. */
static void add_event(sl_text *out, const sl_trace *t, int position, int process)
{
    const sl_traced_step *q = &t->steps[position];
    const sl_step *s = &t->plan->steps[q->step];
    if (!sl_step_is_done(s, t->runs[q->run].what.holds)) return;
    char name[256];
    sl_plan_time time = process == MEASURED ? q->measured : q->expected;
    long long begin = nanoseconds(time.begin), end = nanoseconds(time.end), length = end > begin ? end - begin : 0;
    add_separator(out);
    sl_text_add(out, "{\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"ts\":%lld.%03lld,\"dur\":%lld.%03lld,\"cat\":\"%s\",",
                process, (int)s->stream + 1, begin / 1000, begin % 1000, length / 1000, length % 1000,
                sl_plan_segment_name(t->runs[q->run].what.segment));
    sl_text_add(out, "\"name\":");
    sl_profile_step_name(t->plan, s, name, sizeof name);
    sl_text_add_string(out, name);
    sl_text_add(out, ",\"args\":{");
    add_arguments(out, t, q);
    sl_text_add(out, "}}");
}

/* ---- the summary ---- */

static void add_pair(sl_text *out, const char *key, double predicted, double measured)
{
    sl_text_add(out, "\"%s\":{", key);
    add_seconds(out, "predicted", predicted);
    sl_text_add(out, ",");
    add_seconds(out, "measured", measured);
    sl_text_add(out, "}");
}

static void add_summary(sl_text *out, const sl_trace *t, const sl_trace_totals *predicted,
                        const sl_trace_totals *measured)
{
    const char *between = "";
    uint64_t step = t->run_count > 0 ? t->runs[0].step : 0;
    uint64_t last = t->run_count > 0 ? t->runs[t->run_count - 1].step : 0;
    sl_text_add(
        out, "{\"program\":\"sluice %s\",\"rank\":%d,\"ranks\":%d,\"training_step\":%llu,\"covers\":\"step %llu%s\",",
        sluice_version(), t->plan->options.rank, t->plan->options.rank_count, (unsigned long long)step,
        (unsigned long long)step, last > step ? " and the first forward of the next" : "");
    add_seconds(out, "planned_step_seconds", t->plan->totals.step_seconds);
    sl_text_add(out, ",");
    add_pair(out, "step_seconds", predicted->step, measured->step);
    sl_text_add(out, ",");
    add_pair(out, "idle_seconds", predicted->idle, measured->idle);
    sl_text_add(out, ",\"streams\":{");
    for (int m = 0; m < SL_STREAM_COUNT; m++) {
        if (predicted->busy[m] <= 0 && measured->busy[m] <= 0) continue;
        sl_text_add(out, "%s\"%s\":{", between, sl_plan_stream_name((sl_stream)m));
        add_pair(out, "busy_seconds", predicted->busy[m], measured->busy[m]);
        sl_text_add(out, ",");
        add_pair(out, "exposed_seconds", predicted->exposed[m], measured->exposed[m]);
        sl_text_add(out, "}");
        between = ",";
    }
    sl_text_add(out, "}}");
}

/* ---- the file ---- */

sluice_status sl_trace_path(const char *path, int rank, char out[PATH_MAX])
{
    int bytes = rank > 0 ? snprintf(out, PATH_MAX, "%s.rank%d", path, rank) : snprintf(out, PATH_MAX, "%s", path);
    if (bytes >= 0 && bytes < PATH_MAX) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_USAGE, "--trace: the path is too long: %.80s...; use a shorter one", path);
}

static sluice_status write_text(const sl_text *text, const char *path, int rank)
{
    char name[PATH_MAX];
    SL_TRY(sl_text_status(text));
    SL_TRY(sl_trace_path(path, rank, name));
    return sl_file_replace(name, text->data, text->bytes);
}

sluice_status sl_trace_write(const sl_trace *t, const char *path, int rank)
{
    sl_trace_totals predicted, measured;
    sl_text out = { .data = NULL };
    SL_TRY(sl_trace_add_up(t, true, &predicted));
    SL_TRY(sl_trace_add_up(t, false, &measured));
    sl_text_add(&out, "{\"displayTimeUnit\":\"ms\",\"otherData\":");
    add_summary(&out, t, &predicted, &measured);
    sl_text_add(&out, ",\n\"traceEvents\":[");
    for (int process = MEASURED; process <= PREDICTED; process++) {
        add_labels(&out, t->plan, process);
        for (int i = 0; i < t->step_count; i++) add_event(&out, t, i, process);
    }
    sl_text_add(&out, "]}\n");
    sluice_status st = write_text(&out, path, rank);
    sl_text_free(&out);
    return st;
}

/* ---- when ---- */

/* Whether a step is timed for the END event alone. */
static bool times_step(const sl_run *r)
{
    return r->options->time_step && r->job->ranks.rank == 0 && sl_profile_traces(r->job->engine->plan);
}

/* Both settle what is under way first: a failure of the training is none of the trace's, and is not excused. */

sluice_status sl_run_trace_begin(sl_run *r)
{
    uint64_t step = r->job->engine->step + 1, wanted = r->first_step + WARM_STEPS + 1;
    bool asked = r->options->trace != NULL;
    if (!(asked || times_step(r) || sl_run_times_profile(r)) || step != (wanted < r->steps ? wanted : r->steps))
        return SLUICE_OK;
    double start = sl_now();
    r->traced_step = step;
    SL_TRY(sl_exec_settle(r->job->engine->exec));
    sluice_status st = sl_exec_trace_begin(r->job->engine->exec);
    if (!asked) st = sl_run_excuse_profile(r, st);
    r->aside += sl_now() - start;
    return st;
}

sluice_status sl_run_trace_end(sl_run *r)
{
    const sluice_engine *e = r->job->engine;
    sl_trace *trace;
    if (!sl_exec_is_tracing(e->exec) || e->step < r->traced_step) return SLUICE_OK;
    double start = sl_now();
    const char *path = r->options->trace;
    SL_TRY(sl_exec_settle(e->exec));
    sluice_status st = sl_exec_trace_end(e->exec, &trace);
    if (st != SLUICE_OK) return path != NULL ? st : sl_run_excuse_profile(r, st);
    st = sl_trace_add_up(trace, false, &r->timed);
    r->aside += sl_now() - start;
    if (st == SLUICE_OK) st = sl_run_write_profile(r, trace);
    start = sl_now();
    if (st == SLUICE_OK && path != NULL) st = sl_trace_write(trace, path, r->job->ranks.rank);
    sl_trace_free(trace);
    r->aside += sl_now() - start;
    return st;
}

void sl_run_trace_report(const sl_run *r, FILE *out)
{
    const char *path = r->options->trace;
    int ranks = r->job->ranks.count;
    if (path == NULL) return;
    if (r->traced_step == 0) {
        fprintf(out, "no trace was written to %s: there was no step to trace\n", sl_show(path).text);
        return;
    }
    fprintf(out, "trace of step %llu written to %s", (unsigned long long)r->traced_step, sl_show(path).text);
    if (ranks == 2) fprintf(out, " and %s.rank1", sl_show(path).text);
    if (ranks > 2) fprintf(out, " and %s.rank1 to .rank%d", sl_show(path).text, ranks - 1);
    fprintf(out, ": open it in Perfetto\n");
}
