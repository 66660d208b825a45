/* run_log.c: the log of a run, one event a line, as it was written: whole, cut off by a kill, or with lines that others
 * put there.
 *
 * Nearly all lines are steps. Their numbers are picked out by a scanner of the members of an object, some twenty times as fast as
 * building a tree; a line that it does not understand is read by the JSON parser like all others. */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/io.h"
#include "core/stop.h"
#include "core/utf8.h"
#include "format/json.h"
#include "format/json_members.h"
#include "report/profile.h"
#include "report/run_record.h"

#define CHUNK_BYTES ((size_t)1 << 20)
#define LINE_BYTES  ((size_t)16 << 20) /* longer ones are no events */

/* ---- steps, quickly ---- */

/* What a step's event has that is recorded. */
typedef struct step_line {
    bool is_step;
    double step, tokens, samples;
    sl_recorded_step found;
} step_line;

/* The number, or NaN for null. */
static double number_at(const char *value)
{
    return *value == 'n' ? (double)NAN : strtod(value, NULL);
}

static void take_member(step_line *s, const sl_json_member *m)
{
    static const struct {
        const char *name;
        size_t offset;
    } members[] = {
        { "step", offsetof(step_line, step) },
        { "loss", offsetof(step_line, found.loss) },
        { "lr", offsetof(step_line, found.lr) },
        { "grad_norm", offsetof(step_line, found.gradient_norm) },
        { "seconds", offsetof(step_line, found.seconds) },
        { "tokens", offsetof(step_line, tokens) },
        { "samples", offsetof(step_line, samples) },
        { "tokens_per_second", offsetof(step_line, found.rate) },
    };
    if (sl_json_member_is(m, "event")) s->is_step = strncmp(m->value, "\"step\"", 6) == 0;
    for (size_t i = 0; i < sizeof members / sizeof members[0]; i++)
        if (sl_json_member_is(m, members[i].name))
            *(double *)(void *)((char *)s + members[i].offset) = number_at(m->value);
}

/* False: not an object, or not as events are written. The line is followed by a NUL. */
static bool scan_step(const char *line, size_t bytes, step_line *out)
{
    sl_json_members members;
    sl_json_member m;
    *out = (step_line){ .found = { 0, (double)NAN, (double)NAN, (double)NAN, (double)NAN, (double)NAN } };
    sl_json_members_begin(&members, line, bytes);
    while (sl_json_next_member(&members, &m)) take_member(out, &m);
    return members.whole;
}

static sluice_status record_step(sl_run_record *r, const step_line *s)
{
    sl_recorded_step step = s->found;
    bool samples = !(s->tokens > 0);
    if (samples) step.rate = s->found.seconds > 0 ? s->samples / s->found.seconds : (double)NAN;
    r->rate_is_samples = samples;
    step.step = (uint64_t)s->step;
    return sl_record_add_step(r, &step);
}

/* ---- the others ---- */

static double real(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    return json_is_number(v) ? json_number_value(v) : (double)NAN;
}

static uint64_t whole(const json_t *o, const char *key)
{
    double v = real(o, key);
    const json_t *exact = json_object_get(o, key);
    if (json_is_integer(exact) && json_integer_value(exact) >= 0) return (uint64_t)json_integer_value(exact);
    return v > 0 && v < 9e15 ? (uint64_t)v : 0;
}

static const char *string(const json_t *o, const char *key)
{
    return json_string_value(json_object_get(o, key));
}

static void read_sums(const json_t *o, sl_recorded_sums *out)
{
    static const char *const tiers[] = { "device", "host", "disk" }, *const states[] = { "parameters", "gradients",
                                                                                         "optimizer" };
    static const char *const links[] = { "to_device", "to_host", "disk_read", "disk_write" };
    static const char *const collectives[] = { "gather", "reduce", "norm" };
    const char *weights = string(o, "weights_sha256"), *state = string(o, "state_sha256");
    *out = (sl_recorded_sums){ .known = true,
                               .steps = whole(o, "steps"),
                               .ranks = whole(o, "ranks"),
                               .stage = whole(o, "stage"),
                               .parameters = whole(o, "parameters"),
                               .overhead = whole(o, "overhead_bytes"),
                               .step_seconds = real(o, "step_seconds"),
                               .tokens_per_second = real(o, "tokens_per_second"),
                               .mfu = real(o, "mfu"),
                               .data_seconds = real(o, "data_seconds") };
    for (int i = 0; i < 3; i++) out->peak[i] = whole(json_object_get(o, "peak_bytes"), tiers[i]);
    for (int i = 0; i < 3; i++) out->state[i] = whole(json_object_get(o, "state_bytes"), states[i]);
    for (int i = 0; i < 4; i++) out->moved[i] = whole(json_object_get(o, "moved_bytes"), links[i]);
    for (int i = 0; i < 3; i++) out->comm[i] = whole(json_object_get(o, "comm_bytes"), collectives[i]);
    if (weights != NULL) snprintf(out->weights_sha256, sizeof out->weights_sha256, "%s", weights);
    if (state != NULL) snprintf(out->state_sha256, sizeof out->state_sha256, "%s", state);
}

static uint64_t newest_step(const sl_run_record *r)
{
    return r->step_count > 0 ? r->steps[r->step_count - 1].step : 0;
}

static sluice_status read_plan(sl_run_record *r, const json_t *o)
{
    read_sums(o, &r->plan);
    r->outcome = SL_RUN_DEAD; /* until it says what became of it */
    r->end.known = r->early = false;
    return SLUICE_OK;
}

static sluice_status read_run(sl_run_record *r, const json_t *o)
{
    char *text = json_dumps(o, JSON_COMPACT);
    if (text == NULL) return sl_fail(SLUICE_ERR_NO_MEMORY, "out of memory: an event of the log");
    sl_free(r->run_event);
    r->run_event = sl_strdup(text, "event of the log");
    sl_json_free_text(text);
    r->starts++;
    r->target_steps = whole(o, "steps");
    r->outcome = SL_RUN_DEAD;
    r->end.known = false;
    if (r->run_event == NULL) return SLUICE_ERR_NO_MEMORY;
    return r->starts > 1 ? sl_record_add_note(r, "started again", newest_step(r), string(o, "time"), "") : SLUICE_OK;
}

static sluice_status read_eval(sl_run_record *r, const json_t *o)
{
    return sl_record_add_eval(r, &(sl_recorded_eval){ whole(o, "step"), real(o, "loss"), real(o, "accuracy"),
                                                      json_is_true(json_object_get(o, "best")) });
}

static sluice_status read_saved(sl_run_record *r, const json_t *o)
{
    return sl_record_add_note(r, "saved", whole(o, "step"), string(o, "time"), string(o, "path"));
}

static sluice_status read_resumed(sl_run_record *r, const json_t *o)
{
    return sl_record_add_note(r, "resumed", whole(o, "step"), string(o, "time"), "");
}

static sluice_status read_early_stop(sl_run_record *r, const json_t *o)
{
    char text[160];
    r->early = true;
    snprintf(text, sizeof text, "%llu evaluations brought nothing better than that of step %llu",
             (unsigned long long)whole(o, "evaluations"), (unsigned long long)whole(o, "best_step"));
    return sl_record_add_note(r, "ended early", whole(o, "step"), string(o, "time"), text);
}

static sluice_status read_end(sl_run_record *r, const json_t *o)
{
    read_sums(o, &r->end);
    r->outcome = SL_RUN_FINISHED;
    return SLUICE_OK;
}

/* What a person is told. */
static const char *message_of(const json_t *o)
{
    const char *text = string(o, "text"), *message = string(o, "message");
    return text != NULL ? text : message != NULL ? message : "";
}

static sluice_status read_outcome(sl_run_record *r, const json_t *o, sl_run_outcome outcome)
{
    sl_free(r->why);
    r->why = sl_strdup(message_of(o), "why a run ended");
    r->outcome = outcome;
    if (r->why == NULL) return SLUICE_ERR_NO_MEMORY;
    return sl_record_add_note(r, outcome == SL_RUN_STOPPED ? "stopped" : "failed", newest_step(r), string(o, "time"),
                              r->why);
}

/* The last line of a run that did not come to its end: exit status and message. */
static sluice_status read_exit(sl_run_record *r, const json_t *o)
{
    bool stopped = (int)whole(o, "status") == sluice_exit_status(SLUICE_ERR_STOPPED);
    return read_outcome(r, o, stopped ? SL_RUN_STOPPED : SL_RUN_FAILED);
}

static sluice_status read_message(sl_run_record *r, const json_t *o)
{
    const char *level = string(o, "level");
    return sl_record_add_note(r, level != NULL ? level : "note", newest_step(r), string(o, "time"), message_of(o));
}

static sluice_status read_slow_step(sl_run_record *r, const json_t *o)
{
    const step_line s = { .is_step = true,
                          .step = (double)whole(o, "step"),
                          .tokens = (double)whole(o, "tokens"),
                          .samples = (double)whole(o, "samples"),
                          .found = { 0, real(o, "loss"), real(o, "lr"), real(o, "grad_norm"), real(o, "seconds"),
                                     real(o, "tokens_per_second") } };
    return record_step(r, &s);
}

static const struct {
    const char *name;
    sluice_status (*read)(sl_run_record *r, const json_t *o);
} event_readers[] = {
    { "step", read_slow_step }, { "eval", read_eval },       { "saved", read_saved }, { "plan", read_plan },
    { "run", read_run },        { "resumed", read_resumed }, { "end", read_end },     { "early_stop", read_early_stop },
    { "exit", read_exit },      { "log", read_message },
};

static sluice_status read_event(sl_run_record *r, const json_t *o)
{
    const char *name = string(o, "event"), *time = string(o, "time"), *run = string(o, "run");
    if (name == NULL) {
        r->unread_lines++;
        return SLUICE_OK;
    }
    if (time != NULL && r->first_time[0] == '\0') snprintf(r->first_time, sizeof r->first_time, "%s", time);
    if (time != NULL) snprintf(r->last_time, sizeof r->last_time, "%s", time);
    if (run != NULL) snprintf(r->run_id, sizeof r->run_id, "%s", run);
    for (size_t i = 0; i < sizeof event_readers / sizeof event_readers[0]; i++)
        if (strcmp(name, event_readers[i].name) == 0) return event_readers[i].read(r, o);
    return SLUICE_OK; /* of a newer program, or of no use here */
}

sluice_status sl_record_add_line(sl_run_record *r, const char *line, size_t bytes)
{
    step_line step;
    json_t *root;
    while (bytes > 0 && (line[bytes - 1] == '\r' || line[bytes - 1] == ' ')) bytes--;
    if (bytes == 0) return SLUICE_OK;
    if (scan_step(line, bytes, &step) && step.is_step && step.step >= 1) return record_step(r, &step);
    if (bytes > LINE_BYTES || sl_json_parse(line, bytes, "log", SLUICE_ERR_INPUT, &root) != SLUICE_OK) {
        r->unread_lines++;
        return SLUICE_OK;
    }
    sluice_status st = read_event(r, root);
    json_decref(root);
    return st;
}

/* ---- the file ---- */

/* Adds the whole lines of `text`; *used gets how much of it they are. */
static sluice_status add_lines(sl_run_record *r, char *text, size_t bytes, size_t *used)
{
    *used = 0;
    for (char *end; (end = memchr(text + *used, '\n', bytes - *used)) != NULL; *used = (size_t)(end - text) + 1) {
        *end = '\0';
        SL_TRY(sl_record_add_line(r, text + *used, (size_t)(end - text) - *used));
    }
    return SLUICE_OK;
}

/* A last line without its end is one that a kill cut off, or one that is being written. */
static sluice_status read_lines(const int *stop, sl_run_record *r, sl_file *f, char *buffer)
{
    uint64_t size, at = 0;
    size_t held = 0, used;
    SL_TRY(sl_file_size(f, &size));
    while (at < size) {
        size_t bytes = size - at < CHUNK_BYTES ? (size_t)(size - at) : CHUNK_BYTES;
        SL_TRY(sl_stop_poll(stop, "reading the run"));
        SL_TRY(sl_file_pread(f, buffer + held, bytes, at));
        at += bytes;
        held += bytes;
        SL_TRY(add_lines(r, buffer, held, &used));
        memmove(buffer, buffer + used, held -= used);
        if (held > LINE_BYTES) {
            r->unread_lines++;
            held = 0;
        }
    }
    if (held > 0) r->unread_lines++;
    return SLUICE_OK;
}

static sluice_status read_file(const int *stop, const char *path, sl_run_record *r)
{
    sl_file f;
    SL_TRY(sl_file_open(path, SL_READ, &f));
    char *buffer = sl_alloc(LINE_BYTES + CHUNK_BYTES + 1, "log of a run");
    sluice_status st = buffer != NULL ? read_lines(stop, r, &f, buffer) : SLUICE_ERR_NO_MEMORY;
    sl_free(buffer);
    sl_file_close(&f);
    return st;
}

static sluice_status join(const char *folder, const char *name, char out[PATH_MAX])
{
    int bytes = snprintf(out, PATH_MAX, "%s/%s", folder, name);
    if (bytes < PATH_MAX) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_USAGE, "the path is too long: %.80s...; use a shorter one", folder);
}

/* What makes a folder a run's: any of the files that a run leaves there. */
static sluice_status check_folder(const char *run)
{
    static const char *const signs[] = { SL_JOURNAL_NAME, SL_PROFILE_NAME, SL_LATEST_NAME, SL_RUN_LOCK };
    char path[PATH_MAX];
    sl_path_info info;
    SL_TRY(sl_path_look(run, &info));
    if (info.kind == SL_PATH_MISSING)
        return sl_fail(SLUICE_ERR_INPUT, "%s: there is no such folder; name the checkpoint.path of a run",
                       sl_show(run).text);
    if (info.kind != SL_PATH_FOLDER)
        return sl_fail(SLUICE_ERR_INPUT, "%s is a %s; name the folder of a run, its checkpoint.path", sl_show(run).text,
                       sl_path_kind_name(info.kind));
    for (size_t i = 0; i < sizeof signs / sizeof signs[0]; i++) {
        SL_TRY(join(run, signs[i], path));
        if (sl_path_exists(path)) return SLUICE_OK;
    }
    return sl_fail(SLUICE_ERR_INPUT,
                   "%s is not the folder of a run: it has neither " SL_JOURNAL_NAME " nor " SL_PROFILE_NAME
                   "; name the checkpoint.path of one",
                   sl_show(run).text);
}

sluice_status sl_record_read(const char *run, sl_run_record *out)
{
    return sl_record_read_until(NULL, run, out);
}

sluice_status sl_record_read_until(const int *stop, const char *run, sl_run_record *out)
{
    char path[PATH_MAX];
    bool held;
    int64_t pid;
    *out = (sl_run_record){ .outcome = SL_RUN_DEAD };
    SL_TRY(check_folder(run));
    SL_TRY(join(run, SL_JOURNAL_NAME, path));
    if (sl_path_exists(path)) SL_TRY(read_file(stop, path, out));
    SL_TRY(join(run, SL_RUN_LOCK, path));
    SL_TRY(sl_lock_look(path, &held, &pid));
    if (held) out->outcome = SL_RUN_RUNNING;
    return SLUICE_OK;
}
