/* profile.c: see profile.h. Times in lists are microseconds from the beginning of the trace; totals are seconds. */
#include "report/profile.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"

#define MOST_MARKS 4000 /* of all streams, for predicted and for measured times each */
#define MOST_GAPS  1500 /* likewise */

/* Some neighbouring operations of a stream, drawn as one. */
typedef struct mark {
    double begin, end;
    double longest; /* of its operations: the one that gives the name */
    int name;       /* plan step that stands for it */
    int kind;       /* segment; SL_SEGMENT_COUNT: computed again */
    int count;
} mark;

typedef struct mark_list {
    mark *marks; /* owned */
    int count;
} mark_list;

typedef struct profile_writer {
    const sl_profile_source *source;
    const sl_trace *trace; /* the source's, or the plan's expectation */
    bool measured;
    sl_text *out;
    mark_list lists[SL_STREAM_COUNT][2]; /* predicted, measured */
    int *names;                          /* owned; per plan step: its number in the list of names, or -1 */
    sl_trace_totals totals[2];
} profile_writer;

/* ---- small things ---- */

void sl_profile_add_seconds(sl_text *out, double seconds)
{
    if (isfinite(seconds))
        sl_text_add(out, "%.9g", seconds);
    else
        sl_text_add(out, "null");
}

static void add_micro(sl_text *out, double seconds)
{
    sl_profile_add_seconds(out, seconds > 0 ? seconds * 1e6 : 0);
}

static void add_pair(const profile_writer *w, const char *key, double predicted, double measured)
{
    sl_text_add(w->out, "\"%s\":{\"predicted\":", key);
    sl_profile_add_seconds(w->out, predicted);
    sl_text_add(w->out, ",\"measured\":");
    sl_profile_add_seconds(w->out, w->measured ? measured : (double)INFINITY);
    sl_text_add(w->out, "}");
}

void sl_profile_step_name(const sl_plan *p, const sl_step *s, char *out, size_t bytes)
{
    const char *layer = s->layer >= 0 ? p->graph->layers[s->layer].name : NULL;
    bool copy = s->kind == SL_STEP_COPY;
    snprintf(out, bytes, "%s%s%s%s%.128s", sl_plan_step_name(s), copy ? " of " : "",
             copy ? sl_plan_buffer_name(p->buffers[p->pieces[s->first_piece].buffer].kind) : "",
             layer != NULL ? " " : "", layer != NULL ? layer : "");
}

bool sl_profile_traces(const sl_plan *p)
{
    return sl_trace_length(p, p->options.accumulation) <= SL_PROFILE_STEPS;
}

/* ---- marks ---- */

static sl_plan_time time_at(const sl_trace *t, int position, bool measured)
{
    return measured ? t->steps[position].measured : t->steps[position].expected;
}

static int kind_at(const sl_trace *t, int position)
{
    const sl_traced_step *q = &t->steps[position];
    if (t->plan->steps[q->step].recomputed) return SL_SEGMENT_COUNT;
    return (int)t->runs[q->run].what.segment;
}

/* Whether the operation is told together with the mark before it: both and the time between are shorter than
 * `resolution`. */
static bool joins(const mark *m, sl_plan_time time, int kind, double resolution)
{
    return m->kind == kind && m->longest < resolution && time.end - time.begin < resolution &&
           time.begin - m->end < resolution && m->end - m->begin < 4 * resolution;
}

static int collect_marks(const sl_trace *t, sl_stream stream, bool measured, double resolution, mark *out)
{
    int n = 0;
    for (int i = 0; i < t->step_count; i++) {
        if (t->plan->steps[t->steps[i].step].stream != stream) continue;
        sl_plan_time time = time_at(t, i, measured);
        double length = time.end - time.begin;
        int kind = kind_at(t, i);
        if (n > 0 && joins(&out[n - 1], time, kind, resolution)) {
            mark *m = &out[n - 1];
            m->count++;
            if (time.end > m->end) m->end = time.end;
            if (length > m->longest) m->name = t->steps[i].step;
            if (length > m->longest) m->longest = length;
        } else {
            out[n++] = (mark){ time.begin, time.end, length, t->steps[i].step, kind, 1 };
        }
    }
    return n;
}

static double trace_end(const sl_trace *t, bool measured)
{
    double end = 0;
    for (int i = 0; i < t->step_count; i++)
        if (time_at(t, i, measured).end > end) end = time_at(t, i, measured).end;
    return end;
}

/* Marks of all streams at a resolution; lists are made anew. */
static sluice_status collect_all(profile_writer *w, bool measured, double resolution, int *count)
{
    const sl_trace *t = w->trace;
    *count = 0;
    for (int m = 0; m < SL_STREAM_COUNT; m++) {
        mark_list *l = &w->lists[m][measured];
        if (l->marks == NULL) l->marks = sl_alloc_array((size_t)t->step_count + 1, sizeof *l->marks, "marks of a step");
        if (l->marks == NULL) return SLUICE_ERR_NO_MEMORY;
        l->count = collect_marks(t, (sl_stream)m, measured, resolution, l->marks);
        *count += l->count;
    }
    return SLUICE_OK;
}

/* As fine as MOST_MARKS allows. */
static sluice_status choose_marks(profile_writer *w, bool measured)
{
    int count;
    double resolution = trace_end(w->trace, measured) / 65536;
    SL_TRY(collect_all(w, measured, 0, &count));
    for (int i = 0; count > MOST_MARKS && i < 24; i++, resolution *= 2)
        SL_TRY(collect_all(w, measured, resolution, &count));
    return SLUICE_OK;
}

/* ---- names: of the steps that marks are called by, each once ---- */

typedef struct named_step {
    const sl_plan *plan;
    int step;
} named_step;

static int by_name(const void *a, const void *b)
{
    char x[256], y[256];
    const named_step *p = a, *q = b;
    sl_profile_step_name(p->plan, &p->plan->steps[p->step], x, sizeof x);
    sl_profile_step_name(q->plan, &q->plan->steps[q->step], y, sizeof y);
    return strcmp(x, y);
}

static int find_used(profile_writer *w, named_step *used)
{
    const sl_plan *p = w->trace->plan;
    int n = 0;
    for (int i = 0; i < p->step_count; i++) w->names[i] = -1;
    for (int m = 0; m < SL_STREAM_COUNT; m++)
        for (int k = 0; k < 2; k++)
            for (int i = 0; i < w->lists[m][k].count; i++) w->names[w->lists[m][k].marks[i].name] = 0;
    for (int i = 0; i < p->step_count; i++)
        if (w->names[i] == 0) used[n++] = (named_step){ p, i };
    return n;
}

static sluice_status add_names(profile_writer *w)
{
    const sl_plan *p = w->trace->plan;
    char name[256];
    int number = -1;
    named_step *used = sl_alloc_array((size_t)p->step_count + 1, sizeof *used, "names of a step");
    w->names = sl_alloc_array((size_t)p->step_count + 1, sizeof *w->names, "names of a step");
    if (used == NULL || w->names == NULL) {
        sl_free(used);
        return SLUICE_ERR_NO_MEMORY;
    }
    int count = find_used(w, used);
    qsort(used, (size_t)count, sizeof *used, by_name);
    sl_text_add(w->out, ",\n\"names\":[");
    for (int i = 0; i < count; i++) {
        if (i == 0 || by_name(&used[i - 1], &used[i]) != 0) {
            sl_profile_step_name(p, &p->steps[used[i].step], name, sizeof name);
            if (number++ >= 0) sl_text_add(w->out, ",");
            sl_text_add_string(w->out, name);
        }
        w->names[used[i].step] = number;
    }
    sl_text_add(w->out, "]");
    sl_free(used);
    return SLUICE_OK;
}

/* ---- streams ---- */

/* [begin, length, name, kind] and, where it stands for several, how many. */
static void add_marks(const profile_writer *w, int stream, bool measured)
{
    const mark_list *l = &w->lists[stream][measured];
    sl_text_add(w->out, ",\n\"%s\":[", measured ? "measured" : "predicted");
    for (int i = 0; i < l->count; i++) {
        const mark *m = &l->marks[i];
        sl_text_add(w->out, "%s[", i > 0 ? "," : "");
        add_micro(w->out, m->begin);
        sl_text_add(w->out, ",");
        add_micro(w->out, m->end - m->begin);
        sl_text_add(w->out, ",%d,%d", w->names[m->name], m->kind);
        if (m->count > 1) sl_text_add(w->out, ",%d", m->count);
        sl_text_add(w->out, "]");
    }
    sl_text_add(w->out, "]");
}

static bool is_used(const sl_plan *p, int stream)
{
    for (int i = 0; i < p->step_count; i++)
        if ((int)p->steps[i].stream == stream) return true;
    return false;
}

static void add_streams(const profile_writer *w)
{
    const sl_trace_totals *p = &w->totals[0], *m = &w->totals[1];
    const char *between = "";
    sl_text_add(w->out, ",\n\"streams\":[");
    for (int i = 0; i < SL_STREAM_COUNT; i++) {
        if (!is_used(w->trace->plan, i)) continue;
        sl_text_add(w->out, "%s{\"stream\":%d,\"name\":\"%s\",", between, i, sl_plan_stream_name((sl_stream)i));
        add_pair(w, "busy_seconds", p->busy[i], m->busy[i]);
        sl_text_add(w->out, ",");
        add_pair(w, "exposed_seconds", p->exposed[i], m->exposed[i]);
        add_marks(w, i, false);
        if (w->measured) add_marks(w, i, true);
        sl_text_add(w->out, "}");
        between = ",\n";
    }
    sl_text_add(w->out, "]");
}

/* ---- waits ---- */

static int by_length(const void *a, const void *b)
{
    const sl_trace_gap *x = a, *y = b;
    double p = x->end - x->begin, q = y->end - y->begin;
    return p > q ? -1 : p < q;
}

static int by_time(const void *a, const void *b)
{
    const sl_trace_gap *x = a, *y = b;
    return x->begin < y->begin ? -1 : x->begin > y->begin;
}

/* [begin, length, stream, counts]: the longest, in order of time, and how long the others of the step are together. */
static sluice_status add_gaps(const profile_writer *w, bool measured)
{
    sl_trace_gap *gaps;
    int count;
    double rest = 0;
    SL_TRY(sl_trace_find_gaps(w->trace, !measured, &gaps, &count));
    qsort(gaps, (size_t)count, sizeof *gaps, by_length);
    for (int i = MOST_GAPS; i < count; i++) rest += gaps[i].counts ? gaps[i].end - gaps[i].begin : 0;
    if (count > MOST_GAPS) count = MOST_GAPS;
    qsort(gaps, (size_t)count, sizeof *gaps, by_time);
    sl_text_add(w->out, "\"%s\":{\"rest_seconds\":", measured ? "measured" : "predicted");
    sl_profile_add_seconds(w->out, rest);
    sl_text_add(w->out, ",\"list\":[");
    for (int i = 0; i < count; i++) {
        sl_text_add(w->out, "%s[", i > 0 ? "," : "");
        add_micro(w->out, gaps[i].begin);
        sl_text_add(w->out, ",");
        add_micro(w->out, gaps[i].end - gaps[i].begin);
        sl_text_add(w->out, ",%d,%d]", (int)gaps[i].stream, gaps[i].counts);
    }
    sl_text_add(w->out, "]}");
    sl_free(gaps);
    return SLUICE_OK;
}

static sluice_status add_waits(const profile_writer *w)
{
    sl_text_add(w->out, ",\n\"waits\":{");
    SL_TRY(add_gaps(w, false));
    if (w->measured) sl_text_add(w->out, ",\n");
    if (w->measured) SL_TRY(add_gaps(w, true));
    sl_text_add(w->out, "}");
    return SLUICE_OK;
}

/* ---- layers ---- */

/* Seconds that a layer takes in the step: its kernels by segment, then everything that moves for it. */
typedef struct layer_times {
    double seconds[2][4];
} layer_times;

enum { MOVES = 3 };

static void add_up_layers(const profile_writer *w, layer_times *times)
{
    const sl_trace *t = w->trace;
    int first = sl_trace_first_counted(t);
    for (int i = 0; i < t->step_count; i++) {
        const sl_traced_step *q = &t->steps[i];
        const sl_step *s = &t->plan->steps[q->step];
        bool kernel = s->kind == SL_STEP_COMPUTE || s->kind == SL_STEP_UPDATE;
        int part = kernel ? (int)t->runs[q->run].what.segment : MOVES;
        if (q->run < first || s->layer < 0 || part > MOVES) continue;
        for (int k = 0; k < 2; k++)
            times[s->layer].seconds[k][part] += time_at(t, i, k == 1).end - time_at(t, i, k == 1).begin;
    }
}

static void add_layer(const profile_writer *w, int i, const layer_times *times)
{
    static const char *const parts[] = { "forward", "backward", "update", "moves" };
    static const char *const modes[] = { [SL_ACT_KEEP] = "kept",
                                         [SL_ACT_RECOMPUTE] = "recomputed",
                                         [SL_ACT_OFFLOAD] = "sent to the host",
                                         [SL_ACT_RECOMPUTE_OFFLOAD] = "recomputed, input sent to the host" };
    const sl_plan *p = w->trace->plan;
    const sl_layer *l = &p->graph->layers[i];
    const sl_layer_place *place = &p->layers[i];
    sl_text_add(w->out, "{\"name\":");
    sl_text_add_string(w->out, l->name);
    sl_text_add(w->out, ",\"parameters\":%lld", (long long)l->element_count);
    if (l->element_count > 0) {
        sl_text_add(w->out, ",\"parameters_on\":\"%s\",\"parameter_bytes\":%llu", sl_tier_name(place->parameters),
                    (unsigned long long)(place->home >= 0 ? p->buffers[place->home].bytes : 0));
        sl_text_add(w->out, ",\"trained\":%s", l->trainable ? "true" : "false");
    }
    if (l->trainable && p->options.training && l->element_count > 0)
        sl_text_add(w->out, ",\"state_on\":\"%s\"", sl_tier_name(place->state));
    if (l->node_count > 0) sl_text_add(w->out, ",\"activations\":\"%s\"", modes[place->activations]);
    for (int k = 0; k < 4; k++) {
        sl_text_add(w->out, ",");
        add_pair(w, parts[k], times->seconds[0][k], times->seconds[1][k]);
    }
    sl_text_add(w->out, "}");
}

static sluice_status add_layers(const profile_writer *w)
{
    int count = w->trace->plan->graph->layer_count;
    layer_times *times = sl_alloc_array((size_t)count + 1, sizeof *times, "times of layers");
    if (times == NULL) return SLUICE_ERR_NO_MEMORY;
    add_up_layers(w, times);
    sl_text_add(w->out, ",\n\"layers\":[");
    for (int i = 0; i < count; i++) {
        if (i > 0) sl_text_add(w->out, ",\n");
        add_layer(w, i, &times[i]);
    }
    sl_text_add(w->out, "]");
    sl_free(times);
    return SLUICE_OK;
}

/* ---- the rest ---- */

static void add_head(const profile_writer *w)
{
    const sl_profile_source *s = w->source;
    const sl_trace *t = w->trace;
    const sl_plan *p = t->plan;
    uint64_t step = t->run_count > 0 ? t->runs[0].step : 0;
    sl_text_add(w->out, "{\"sluice_profile\":%d,\"version\":\"%s\",\"measured\":%s,\"device\":", SL_PROFILE_VERSION,
                sluice_version(), w->measured ? "true" : "false");
    sl_text_add_string(w->out, s->device);
    sl_text_add(w->out, ",\"threads\":%d,\"rank\":%d,\"ranks\":%d,\"stage\":%d,\"micro_batches\":%d,\"operations\":%d",
                s->threads, p->options.rank, p->options.rank_count, p->options.stage, p->options.accumulation,
                p->step_count);
    sl_text_add(w->out, ",\"parameters\":%lld,\"precision\":\"%s\"", (long long)sl_graph_parameter_elements(p->graph),
                sl_dtype_name(p->graph->precision));
    if (!w->measured && s->why_predicted != NULL) {
        sl_text_add(w->out, ",\"why_predicted\":");
        sl_text_add_string(w->out, s->why_predicted);
    }
    if (w->measured) sl_text_add(w->out, ",\"training_step\":%llu", (unsigned long long)step);
    sl_text_add(w->out, ",\"shown_micro_batches\":%d,\"followed\":%s", (t->run_count - 1) / 2,
                sl_trace_first_counted(t) > 0 ? "true" : "false");
    sl_text_add(w->out, ",\"planned_step_seconds\":");
    sl_profile_add_seconds(w->out, p->totals.step_seconds);
    sl_text_add(w->out, ",");
    add_pair(w, "begin_seconds", w->totals[0].begin, w->totals[1].begin);
    sl_text_add(w->out, ",");
    add_pair(w, "step_seconds", w->totals[0].step, w->totals[1].step);
    sl_text_add(w->out, ",");
    add_pair(w, "idle_seconds", w->totals[0].idle, w->totals[1].idle);
}

/* What the plan was made with. Rates of the machine, for people who compare two reports. */
static void add_machine(const profile_writer *w)
{
    const sl_plan *p = w->trace->plan;
    const sl_machine *m = &p->machine;
    const struct {
        const char *name;
        double value;
    } rates[] = {
        { "gemm_flops", m->gemm_flops },
        { "gemm_16bit_flops", m->gemm_16bit_flops },
        { "vector_flops", m->vector_flops },
        { "device_bytes_per_second", m->device_bytes_per_second },
        { "update_bytes_per_second", m->update_bytes_per_second },
        { "to_device_bytes_per_second", m->link_bytes_per_second[SL_LINK_TO_DEVICE] },
        { "to_host_bytes_per_second", m->link_bytes_per_second[SL_LINK_TO_HOST] },
        { "disk_read_bytes_per_second",
          p->options.budget[SL_TIER_DISK] > 0 ? m->link_bytes_per_second[SL_LINK_DISK_READ] : 0 },
        { "disk_write_bytes_per_second",
          p->options.budget[SL_TIER_DISK] > 0 ? m->link_bytes_per_second[SL_LINK_DISK_WRITE] : 0 },
        { "comm_bytes_per_second", p->options.rank_count > 1 ? m->comm_bytes_per_second : 0 },
    };
    sl_text_add(w->out, ",\n\"machine\":{");
    for (size_t i = 0, n = 0; i < sizeof rates / sizeof rates[0]; i++) {
        if (!(rates[i].value > 0)) continue;
        sl_text_add(w->out, "%s\"%s\":", n++ > 0 ? "," : "", rates[i].name);
        sl_profile_add_seconds(w->out, rates[i].value);
    }
    sl_text_add(w->out, "},\"overhead_bytes\":%llu,\"device_overhead_bytes\":%llu",
                (unsigned long long)p->options.overhead_bytes, (unsigned long long)p->options.device_overhead);
    if (w->source->configuration != NULL) sl_text_add(w->out, ",\n\"configuration\":%s", w->source->configuration);
}

static sluice_status write_all(profile_writer *w)
{
    for (int k = 0; k < (w->measured ? 2 : 1); k++) {
        SL_TRY(sl_trace_add_up(w->trace, k == 0, &w->totals[k]));
        SL_TRY(choose_marks(w, k == 1));
    }
    add_head(w);
    add_machine(w);
    SL_TRY(add_names(w));
    add_streams(w);
    SL_TRY(add_waits(w));
    SL_TRY(sl_profile_add_memory(w->trace, w->measured, w->out));
    SL_TRY(add_layers(w));
    sl_text_add(w->out, "}\n");
    return sl_text_status(w->out);
}

/* The micro-batches whose expected timeline is short enough: all of them, or some and what is told of them stands for
 * the others. */
static int shown_passes(const sl_plan *p)
{
    int64_t pass = sl_trace_length(p, 1), all = p->options.accumulation,
            room = SL_PROFILE_STEPS / (pass > 0 ? pass : 1);
    if (room < 1) room = 1;
    return (int)(all < room ? all : room);
}

sluice_status sl_profile_write(const sl_profile_source *s, sl_text *out)
{
    profile_writer w = { .source = s, .trace = s->trace, .measured = s->trace != NULL, .out = out };
    sl_trace *expected = NULL;
    sluice_status st = SLUICE_OK;
    if (!w.measured) st = sl_trace_expect(s->plan, shown_passes(s->plan), &expected);
    if (!w.measured) w.trace = expected;
    if (st == SLUICE_OK) st = write_all(&w);
    for (int m = 0; m < SL_STREAM_COUNT; m++)
        for (int k = 0; k < 2; k++) sl_free(w.lists[m][k].marks);
    sl_free(w.names);
    sl_trace_free(expected);
    return st;
}
