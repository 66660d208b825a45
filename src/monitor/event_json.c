/* event_json.c: events of a run as JSON, one object each.
 *
 * The text goes to memory of the caller, so that a step is told without an allocation. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/quote.h"
#include "sluice.h"

/* What does not fit is counted and not written. */
typedef struct json_line {
    char *out;
    size_t room, used;
} json_line;

__attribute__((format(printf, 2, 3))) static void add(json_line *l, const char *format, ...)
{
    size_t left = l->used < l->room ? l->room - l->used : 0;
    va_list args;
    va_start(args, format);
    int n = vsnprintf(left > 0 ? l->out + l->used : NULL, left, format, args);
    va_end(args);
    if (n > 0) l->used += (size_t)n;
}

/* The shortest of 15 to 17 digits that reads back to the same double; null when there is no such number. */
static void put_number(json_line *out, const char *name, double value)
{
    char text[32] = "null";
    for (int digits = 15; isfinite(value) && digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value) break;
    }
    add(out, ",\"%s\":%s", name, text);
}

static void put_count(json_line *out, const char *name, uint64_t value)
{
    add(out, ",\"%s\":%llu", name, (unsigned long long)value);
}

static void put_text(json_line *out, const char *name, const char *text)
{
    char escaped[SL_ESCAPE_BYTES];
    add(out, ",\"%s\":\"", name);
    for (const char *c = text != NULL ? text : ""; *c != '\0';) {
        c += sl_json_escape(c, escaped);
        add(out, "%s", escaped);
    }
    add(out, "\"");
}

static void put_peak(json_line *out, const sluice_event *e)
{
    add(out, ",\"peak_bytes\":{\"device\":%llu,\"host\":%llu,\"disk\":%llu}", (unsigned long long)e->peak.device,
        (unsigned long long)e->peak.host, (unsigned long long)e->peak.disk);
}

static void put_traffic(json_line *out, const sluice_event *e)
{
    add(out, ",\"moved_bytes\":{\"to_device\":%llu,\"to_host\":%llu,\"disk_read\":%llu,\"disk_write\":%llu}",
        (unsigned long long)e->moved_to_device, (unsigned long long)e->moved_to_host,
        (unsigned long long)e->moved_disk_read, (unsigned long long)e->moved_disk_write);
    add(out, ",\"comm_bytes\":{\"gather\":%llu,\"reduce\":%llu,\"norm\":%llu}", (unsigned long long)e->comm_gather,
        (unsigned long long)e->comm_reduce, (unsigned long long)e->comm_norm);
    if (e->table_rows > 0)
        add(out,
            ",\"tables\":{\"rows\":%llu,\"moved_bytes\":%llu,\"sent_bytes\":%llu,\"disk_read\":%llu,"
            "\"disk_write\":%llu}",
            (unsigned long long)e->table_rows, (unsigned long long)e->table_bytes, (unsigned long long)e->table_sent,
            (unsigned long long)e->table_disk_read, (unsigned long long)e->table_disk_written);
}

static void put_pace(json_line *out, const sluice_event *e)
{
    put_number(out, "tokens_per_second", e->tokens_per_second);
    put_number(out, "mfu", e->mfu);
}

static void put_candidates(json_line *out, const sluice_event *e)
{
    add(out, ",\"candidates\":[");
    for (int i = 0; i < e->candidate_count; i++) {
        const sluice_candidate *c = &e->candidates[i];
        add(out, "%s{\"settings\":%s,\"chosen\":%s,\"fits\":%s", i > 0 ? "," : "", c->settings,
            c->chosen ? "true" : "false", c->fits ? "true" : "false");
        put_number(out, "step_seconds", c->fits ? c->step_seconds : (double)NAN);
        if (c->measured_seconds > 0) put_number(out, "measured_seconds", c->measured_seconds);
        add(out, ",\"peak_bytes\":{\"device\":%llu,\"host\":%llu,\"disk\":%llu}", (unsigned long long)c->peak.device,
            (unsigned long long)c->peak.host, (unsigned long long)c->peak.disk);
        if (!c->fits) put_count(out, "lacks_bytes", c->lacks);
        add(out, "}");
    }
    add(out, "]");
}

static void put_tune(json_line *out, const sluice_event *e)
{
    put_count(out, "ranks", (uint64_t)e->ranks);
    put_text(out, "path", e->path);
    put_candidates(out, e);
}

static void put_verdict(json_line *out, const sluice_event *e)
{
    add(out, ",\"fits\":%s", e->fits ? "true" : "false");
    add(out, ",\"needs_bytes\":{\"device\":%llu,\"host\":%llu,\"disk\":%llu}", (unsigned long long)e->needs.device,
        (unsigned long long)e->needs.host, (unsigned long long)e->needs.disk);
    add(out, ",\"has_bytes\":{\"device\":%llu,\"host\":%llu,\"disk\":%llu}", (unsigned long long)e->has.device,
        (unsigned long long)e->has.host, (unsigned long long)e->has.disk);
    if (e->limit != NULL) put_text(out, "limited_by", e->limit);
    put_text(out, "verdict", e->verdict != NULL ? e->verdict : "");
}

static void put_plan(json_line *out, const sluice_event *e)
{
    put_count(out, "ranks", (uint64_t)e->ranks);
    put_count(out, "stage", (uint64_t)e->stage);
    if (!e->fits) {
        put_verdict(out, e);
        return;
    }
    put_count(out, "parameters", e->parameters);
    put_peak(out, e);
    put_count(out, "overhead_bytes", e->overhead_bytes);
    add(out, ",\"state_bytes\":{\"parameters\":%llu,\"gradients\":%llu,\"optimizer\":%llu}",
        (unsigned long long)e->state_parameters, (unsigned long long)e->state_gradients,
        (unsigned long long)e->state_optimizer);
    put_number(out, "step_seconds", e->step_seconds);
    put_traffic(out, e);
    add(out, ",\"speculation\":{\"layers\":%d,\"host_bytes\":%llu", e->speculating_layers,
        (unsigned long long)e->speculation_bytes);
    put_number(out, "gain_seconds", e->speculation_gain);
    put_number(out, "redo_seconds", e->redo_seconds);
    add(out, "}");
    put_number(out, "host_bytes_per_parameter", e->host_bytes_per_parameter);
    put_pace(out, e);
    put_verdict(out, e);
    if (e->candidate_count > 1) put_candidates(out, e);
}

static void put_resumed(json_line *out, const sluice_event *e)
{
    put_count(out, "step", e->step);
}

static void put_memory(json_line *out, const sluice_event *e)
{
    add(out, ",\"memory_bytes\":{\"device\":%llu,\"host\":%llu,\"disk\":%llu,\"resident\":%llu}",
        (unsigned long long)e->memory.device, (unsigned long long)e->memory.host, (unsigned long long)e->memory.disk,
        (unsigned long long)e->resident_bytes);
}

static void put_step(json_line *out, const sluice_event *e)
{
    put_count(out, "step", e->step);
    put_number(out, "epoch", e->epoch);
    put_number(out, "loss", e->loss);
    put_number(out, "lr", e->lr);
    put_number(out, "grad_norm", e->gradient_norm);
    put_number(out, "seconds", e->seconds);
    put_count(out, "samples", e->samples);
    put_count(out, "tokens", e->tokens);
    put_count(out, "targets", e->targets);
    add(out, ",\"skipped\":%s", e->skipped ? "true" : "false");
    put_number(out, "loss_scale", e->loss_scale);
    if (e->speculated > 0) {
        put_count(out, "speculated", e->speculated);
        put_count(out, "rolled_back", e->rolled_back);
    }
    put_pace(out, e);
    put_number(out, "data_seconds", e->data_seconds);
    put_memory(out, e);
}

static void put_metrics(json_line *out, const sluice_event *e)
{
    add(out, ",\"metrics\":{");
    for (int i = 0; i < e->metric_count; i++) {
        const sluice_metric *m = &e->metrics[i];
        add(out, isfinite(m->value) ? "%s\"%s\":%.17g" : "%s\"%s\":null", i > 0 ? "," : "", m->name, m->value);
    }
    add(out, "}");
}

/* What is known of each class, and which were taken for which. */
static void put_classes(json_line *out, const sluice_event *e)
{
    add(out, ",\"classes\":[");
    for (int64_t i = 0; i < e->class_count; i++) {
        const sluice_class_score *c = &e->classes[i];
        add(out, "%s{\"class\":%lld", i > 0 ? "," : "", (long long)i);
        if (c->name != NULL) put_text(out, "name", c->name);
        put_number(out, "precision", c->precision);
        put_number(out, "recall", c->recall);
        put_number(out, "f1", c->f1);
        put_count(out, "support", c->support);
        add(out, "}");
    }
    add(out, "]");
    if (e->confusion == NULL) return;
    add(out, ",\"confusion\":[");
    for (int64_t i = 0; i < e->class_count * e->class_count; i++) {
        bool begins = i % e->class_count == 0, ends = (i + 1) % e->class_count == 0;
        add(out, "%s%s%llu%s", i > 0 ? "," : "", begins ? "[" : "", (unsigned long long)e->confusion[i],
            ends ? "]" : "");
    }
    add(out, "]");
}

static void put_early_stop(json_line *out, const sluice_event *e)
{
    put_count(out, "step", e->step);
    put_text(out, "metric", e->metric_count > 0 ? e->metrics[0].name : "");
    put_number(out, "best", e->metric_count > 0 ? e->metrics[0].value : (double)NAN);
    put_count(out, "best_step", e->best_step);
    put_count(out, "evaluations", e->evaluations);
}

static void put_eval(json_line *out, const sluice_event *e)
{
    put_count(out, "step", e->step);
    put_number(out, "loss", e->loss);
    put_number(out, "accuracy", e->accuracy);
    if (e->path == NULL) { /* during training */
        put_metrics(out, e);
        add(out, ",\"best\":%s", e->best ? "true" : "false");
        return;
    }
    put_number(out, "perplexity", e->perplexity);
    put_number(out, "bits_per_byte", e->bits_per_byte);
    put_count(out, e->tokens > 0 ? "tokens" : "samples", e->tokens > 0 ? e->tokens : e->samples);
    put_text(out, "weights", e->path);
    put_metrics(out, e);
    if (e->class_count > 0) put_classes(out, e);
}

static void put_saved(json_line *out, const sluice_event *e)
{
    put_count(out, "step", e->step);
    put_text(out, "path", e->path);
}

static void put_epoch(json_line *out, const sluice_event *e)
{
    put_count(out, "step", e->step);
    put_number(out, "epoch", e->epoch);
    put_number(out, "loss", e->loss);
    put_number(out, "seconds", e->seconds);
}

static void put_end(json_line *out, const sluice_event *e)
{
    put_count(out, "steps", e->steps);
    put_peak(out, e);
    put_traffic(out, e);
    put_count(out, "speculated", e->speculated);
    put_count(out, "rolled_back", e->rolled_back);
    if (e->weights_sha256 != NULL) put_text(out, "weights_sha256", e->weights_sha256);
    if (e->state_sha256 != NULL) put_text(out, "state_sha256", e->state_sha256);
    put_pace(out, e);
    put_number(out, "data_seconds", e->data_seconds);
}

static void put_phase(json_line *out, const sluice_event *e)
{
    put_text(out, "phase", e->phase);
    put_count(out, "done", e->done);
    put_count(out, "total", e->total);
    put_number(out, "seconds", e->seconds);
    add(out, ",\"over\":%s", e->over ? "true" : "false");
}

/* Ids, which of them count, and the text in parts: [text, counts]. */
static void put_sample(json_line *out, const sluice_event *e)
{
    const sluice_sample *s = e->sample;
    if (s == NULL) return;
    add(out, ",\"tokens\":[");
    for (int64_t i = 0; i < s->count; i++) add(out, "%s%d", i > 0 ? "," : "", (int)s->ids[i]);
    add(out, "],\"loss\":[");
    for (int64_t i = 0; i < s->count; i++) add(out, "%s%d", i > 0 ? "," : "", s->loss[i]);
    add(out, "],\"parts\":[");
    for (int i = 0; i < s->part_count; i++) {
        add(out, "%s{\"loss\":%s", i > 0 ? "," : "", s->part_loss[i] ? "true" : "false");
        put_text(out, "text", s->texts[i]);
        add(out, "}");
    }
    add(out, "]");
}

static const struct {
    const char *name;
    void (*put)(json_line *out, const sluice_event *e);
} event_writers[] = {
    [SLUICE_EVENT_PLAN] = { "plan", put_plan },       [SLUICE_EVENT_RESUMED] = { "resumed", put_resumed },
    [SLUICE_EVENT_STEP] = { "step", put_step },       [SLUICE_EVENT_EVAL] = { "eval", put_eval },
    [SLUICE_EVENT_SAVED] = { "saved", put_saved },    [SLUICE_EVENT_EPOCH] = { "epoch", put_epoch },
    [SLUICE_EVENT_END] = { "end", put_end },          [SLUICE_EVENT_PHASE] = { "phase", put_phase },
    [SLUICE_EVENT_SAMPLE] = { "sample", put_sample }, [SLUICE_EVENT_EARLY_STOP] = { "early_stop", put_early_stop },
    [SLUICE_EVENT_TUNE] = { "tune", put_tune },
};

size_t sluice_event_json(const sluice_event *event, char *out, size_t out_bytes)
{
    json_line l = { out, out != NULL ? out_bytes : 0, 0 };
    if (event == NULL || (size_t)event->kind >= sizeof event_writers / sizeof event_writers[0]) return 0;
    add(&l, "{\"event\":\"%s\"", event_writers[event->kind].name);
    event_writers[event->kind].put(&l, event);
    add(&l, "}");
    return l.used;
}
