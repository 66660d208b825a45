/* run_status.c: what a run is doing, from its journal and the lock of its folder.
 *
 * The journal is read once from its beginning, block by block. Steps are by far the most lines: only the newest of them are parsed.
 * Whatever cannot be read is passed over, so that a damaged line costs that line alone. */
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/arena.h"
#include "core/io.h"
#include "core/status.h"
#include "format/json.h"
#include "format/json_members.h"
#include "monitor/monitor.h"

enum { BLOCK_BYTES = 1 << 20, NEWEST_STEPS = 32, MOST_LINE = 1 << 26 };

/* One of the newest steps. */
typedef struct step_line {
    uint64_t offset;
    size_t bytes;
} step_line;

typedef struct journal_reader {
    sl_file file;
    sluice_run_status *status;
    step_line steps[NEWEST_STEPS]; /* the step number n is at n % NEWEST_STEPS */
    uint64_t step_count;           /* since the newest start or resumption */
    bool ended;                    /* the newest start came to an end that it told of */
    bool any;                      /* a start was seen */
} journal_reader;

/* ---- lines ---- */

static double number(const json_t *line, const char *key)
{
    const json_t *value = json_object_get(line, key);
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

static uint64_t count(const json_t *line, const char *key)
{
    json_int_t value = json_integer_value(json_object_get(line, key));
    return value > 0 ? (uint64_t)value : 0;
}

static const char *text(const json_t *line, const char *key)
{
    const char *value = json_string_value(json_object_get(line, key));
    return value != NULL ? value : "";
}

/* Copies what may be shown; cut where it is long. */
static void copy_text(char *out, size_t bytes, const char *from)
{
    sluice_printable(from, out, bytes);
}

/* "2026-01-31T12:34:56.789Z" as seconds since 1970; NaN: it is none. */
static double read_time(const char *from)
{
    struct tm parts = { 0 };
    const char *rest = strptime(from, "%Y-%m-%dT%H:%M:%S", &parts);
    if (rest == NULL) return (double)NAN;
    return (double)timegm(&parts) + (*rest == '.' ? strtod(rest, NULL) : 0);
}

static sluice_run_status nothing_known(void)
{
    const double none = (double)NAN;
    return (sluice_run_status){ .loss = none,
                                .best = none,
                                .validation_loss = none,
                                .step_seconds = none,
                                .samples_per_second = none,
                                .tokens_per_second = none,
                                .seconds_left = none };
}

static void on_run(journal_reader *r, const json_t *line)
{
    sluice_run_status *s = r->status;
    if (strcmp(s->run, text(line, "run")) != 0) { /* another run: nothing of the one before is its own */
        *s = nothing_known();
        copy_text(s->run, sizeof s->run, text(line, "run"));
    }
    copy_text(s->host, sizeof s->host, text(line, "host"));
    copy_text(s->metric, sizeof s->metric, text(line, "metric"));
    s->pid = (int64_t)count(line, "pid");
    s->ranks = (int)count(line, "ranks");
    s->steps = count(line, "steps");
    s->started = read_time(text(line, "time"));
    s->message[0] = s->warning[0] = '\0';
    s->exit_status = 0;
    s->early = false;
    r->step_count = 0;
    r->ended = false;
    r->any = true;
}

/* What came after the checkpoint is done again. */
static void on_resumed(journal_reader *r, const json_t *line)
{
    sluice_run_status *s = r->status;
    s->step = count(line, "step");
    r->step_count = 0;
    if (s->best_step <= s->step) return;
    s->best_step = 0;
    s->best = (double)NAN;
}

static void on_eval(journal_reader *r, const json_t *line)
{
    sluice_run_status *s = r->status;
    s->validation_loss = number(line, "loss");
    if (!json_is_true(json_object_get(line, "best"))) return;
    s->best_step = count(line, "step");
    s->best = number(json_object_get(line, "metrics"), s->metric);
}

static void on_saved(journal_reader *r, const json_t *line)
{
    r->status->saved_step = count(line, "step");
    copy_text(r->status->saved_path, sizeof r->status->saved_path, text(line, "path"));
}

static void on_log(journal_reader *r, const json_t *line)
{
    copy_text(r->status->warning, sizeof r->status->warning, text(line, "text"));
}

static void on_early_stop(journal_reader *r, const json_t *line)
{
    (void)line;
    r->status->early = true;
}

static void on_end(journal_reader *r, const json_t *line)
{
    r->status->state = SLUICE_RUN_FINISHED;
    r->status->step = count(line, "steps");
    r->ended = true;
}

static void on_exit_line(journal_reader *r, const json_t *line)
{
    sluice_run_status *s = r->status;
    s->exit_status = (int)count(line, "status");
    s->state = s->exit_status == sluice_exit_status(SLUICE_ERR_STOPPED) ? SLUICE_RUN_STOPPED : SLUICE_RUN_FAILED;
    copy_text(s->message, sizeof s->message, text(line, "message"));
    r->ended = true;
}

static const struct {
    const char *event;
    void (*read)(journal_reader *r, const json_t *line);
} line_readers[] = {
    { "run", on_run }, { "resumed", on_resumed },       { "eval", on_eval }, { "saved", on_saved },
    { "log", on_log }, { "early_stop", on_early_stop }, { "end", on_end },   { "exit", on_exit_line },
};

/* Whether a line is a step's, however it is written: with spaces, or with the event behind other members. */
static bool is_step(const char *from, size_t bytes)
{
    static const char step[] = "\"step\"";
    sl_json_members members;
    sl_json_member m;
    sl_json_members_begin(&members, from, bytes);
    while (sl_json_next_member(&members, &m))
        if (sl_json_member_is(&m, "event"))
            return m.value_bytes == sizeof step - 1 && memcmp(m.value, step, sizeof step - 1) == 0;
    return false;
}

static void keep_step(journal_reader *r, size_t bytes, uint64_t offset)
{
    r->steps[r->step_count++ % NEWEST_STEPS] = (step_line){ offset, bytes };
}

/* What is no JSON, or from a newer version, says nothing. */
static void read_line(journal_reader *r, const char *from, size_t bytes, uint64_t offset)
{
    if (is_step(from, bytes)) {
        keep_step(r, bytes, offset);
        return;
    }
    json_t *line = json_loadb(from, bytes, 0, NULL);
    const char *event = text(line, "event");
    if (strcmp(event, "step") == 0) keep_step(r, bytes, offset); /* written in a way that only the parser reads */
    for (size_t i = 0; i < sizeof line_readers / sizeof line_readers[0]; i++)
        if (strcmp(line_readers[i].event, event) == 0) line_readers[i].read(r, line);
    if (line != NULL && r->any) r->status->heard = fmax(r->status->heard, read_time(text(line, "time")));
    json_decref(line);
}

/* ---- the file ---- */

/* All whole lines of bytes [from, size); *buffer grows where a line is longer. */
static sluice_status read_lines(journal_reader *r, uint64_t size, char **buffer)
{
    size_t room = BLOCK_BYTES, held = 0;
    for (uint64_t at = 0; at < size;) {
        size_t n = size - at < room - held ? (size_t)(size - at) : room - held, begin = 0;
        SL_TRY(sl_file_pread(&r->file, *buffer + held, n, at));
        at += n;
        held += n;
        for (const char *end; (end = memchr(*buffer + begin, '\n', held - begin)) != NULL;) {
            size_t bytes = (size_t)(end - *buffer) - begin;
            read_line(r, *buffer + begin, bytes, at - held + begin);
            begin += bytes + 1;
        }
        held -= begin;
        memmove(*buffer, *buffer + begin, held);
        if (held < room) continue;
        if (room >= MOST_LINE) return SLUICE_OK; /* that is no line of ours */
        char *larger = sl_realloc(*buffer, room, 2 * room, "lines of a journal");
        if (larger == NULL) return SLUICE_ERR_NO_MEMORY;
        *buffer = larger;
        room *= 2;
    }
    return SLUICE_OK;
}

/* What the newest steps say: NULL where the line is none. */
static json_t *load_step(journal_reader *r, uint64_t index)
{
    const step_line *s = &r->steps[index % NEWEST_STEPS];
    char *line = s->bytes < MOST_LINE ? sl_alloc(s->bytes, "line of a journal") : NULL;
    json_t *found = NULL;
    if (line != NULL && sl_file_pread(&r->file, line, s->bytes, s->offset) == SLUICE_OK)
        found = json_loadb(line, s->bytes, 0, NULL);
    sl_free(line);
    return found;
}

static void take_step(sluice_run_status *s, const json_t *line)
{
    const json_t *memory = json_object_get(line, "memory_bytes");
    s->step = count(line, "step");
    s->loss = number(line, "loss");
    s->heard = fmax(s->heard, read_time(text(line, "time")));
    s->memory = (sluice_memory){ count(memory, "device"), count(memory, "host"), count(memory, "disk") };
    s->resident_bytes = count(memory, "resident");
}

/* The pace is that of the clock from the oldest of the newest steps to the newest: evaluations and saves count. */
static void read_pace(journal_reader *r)
{
    sluice_run_status *s = r->status;
    uint64_t kept = r->step_count < NEWEST_STEPS ? r->step_count : NEWEST_STEPS;
    json_t *first = load_step(r, r->step_count - kept), *last = load_step(r, r->step_count - 1);
    if (last != NULL) take_step(s, last);
    double from = read_time(text(first, "time")), to = read_time(text(last, "time"));
    uint64_t steps = s->step - count(first, "step");
    if (first != NULL && last != NULL && steps > 0 && to > from && s->step > count(first, "step"))
        s->step_seconds = (to - from) / (double)steps;
    else
        s->step_seconds = number(last, "seconds");
    if (!(s->step_seconds > 0)) s->step_seconds = (double)NAN;
    if (s->step_seconds > 0) {
        s->samples_per_second = (double)count(last, "samples") / s->step_seconds;
        if (count(last, "tokens") > 0) s->tokens_per_second = (double)count(last, "tokens") / s->step_seconds;
    }
    json_decref(first);
    json_decref(last);
}

static sluice_status read_journal(journal_reader *r, const char *path)
{
    uint64_t size = 0;
    SL_TRY(sl_file_open(path, SL_READ, &r->file));
    char *buffer = sl_alloc(BLOCK_BYTES, "lines of a journal");
    sluice_status st = buffer == NULL ? SLUICE_ERR_NO_MEMORY : sl_file_size(&r->file, &size);
    if (st == SLUICE_OK) st = read_lines(r, size, &buffer);
    if (st == SLUICE_OK && r->step_count > 0) read_pace(r);
    sl_free(buffer);
    sl_file_close(&r->file);
    return st;
}

/* ---- runs ---- */

static bool is_this_host(const char *host)
{
    char own[128] = "";
    return gethostname(own, sizeof own - 1) == 0 && strcmp(own, host) == 0;
}

/* The lock tells whether somebody lives; what the journal says last, how it ended. */
static sluice_status judge_state(journal_reader *r, const char *folder)
{
    sluice_run_status *s = r->status;
    char path[PATH_MAX];
    bool held;
    int64_t pid;
    snprintf(path, sizeof path, "%s/" SL_RUN_LOCK, folder);
    SL_TRY(sl_lock_look(path, &held, &pid));
    if (held && (!r->ended || pid != s->pid))
        s->state = SLUICE_RUN_RUNNING;
    else if (!r->ended)
        s->state = is_this_host(s->host) ? SLUICE_RUN_DEAD : SLUICE_RUN_UNKNOWN;
    bool goes_on = s->state == SLUICE_RUN_RUNNING || s->state == SLUICE_RUN_UNKNOWN;
    if (goes_on && s->steps >= s->step) s->seconds_left = s->step_seconds * (double)(s->steps - s->step);
    return SLUICE_OK;
}

static sluice_status look_at(const char *folder, sluice_run_status *out)
{
    char path[PATH_MAX];
    journal_reader r = { .status = out };
    *out = nothing_known();
    if (snprintf(path, sizeof path, "%s/" SL_JOURNAL_NAME, folder) >= (int)sizeof path)
        return sl_fail(SLUICE_ERR_INPUT, "%.200s...: the path is too long", folder);
    SL_TRY(read_journal(&r, path));
    if (!r.any) return sl_fail(SLUICE_ERR_INPUT, "%s is no journal of a run: no line of it begins one", path);
    return judge_state(&r, folder);
}

static bool has_journal(const char *folder)
{
    char path[PATH_MAX];
    return snprintf(path, sizeof path, "%s/" SL_JOURNAL_NAME, folder) < (int)sizeof path && sl_path_exists(path);
}

/* The folders with a journal in a folder. */
typedef struct run_list {
    const char *folder;
    sl_arena arena;
    const char *names[4096];
    int count;
} run_list;

static sluice_status add_run(void *user, const char *name)
{
    run_list *l = user;
    const char *path = sl_arena_printf(&l->arena, "%s/%s", l->folder, name);
    if (path == NULL) return SLUICE_ERR_NO_MEMORY;
    if (l->count < (int)(sizeof l->names / sizeof l->names[0]) && has_journal(path)) l->names[l->count++] = path;
    return SLUICE_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

typedef void (*found_fn)(void *user, const char *folder, const sluice_run_status *status);

static sluice_status look_inside(run_list *l, found_fn found, void *user)
{
    sluice_run_status status;
    SL_TRY(sl_dir_list(l->folder, add_run, l));
    if (l->count == 0)
        return sl_fail(SLUICE_ERR_INPUT,
                       "%s is no run: neither it nor a folder in it has a " SL_JOURNAL_NAME
                       ", which train writes into checkpoint.path",
                       l->folder);
    qsort(l->names, (size_t)l->count, sizeof l->names[0], by_name);
    for (int i = 0; i < l->count; i++) {
        SL_TRY(look_at(l->names[i], &status));
        found(user, l->names[i], &status);
    }
    return SLUICE_OK;
}

sluice_status sluice_runs_look(const char *path, found_fn found, void *user)
{
    sluice_run_status status;
    SL_NEED_PATH(path);
    SL_NEED(found);
    if (has_journal(path)) {
        SL_TRY(look_at(path, &status));
        found(user, path, &status);
        return SLUICE_OK;
    }
    run_list *list = sl_alloc(sizeof *list, "list of runs");
    if (list == NULL) return SLUICE_ERR_NO_MEMORY;
    list->folder = path;
    list->count = 0;
    sl_arena_init(&list->arena, "list of runs");
    sluice_status st = look_inside(list, found, user);
    sl_arena_free(&list->arena);
    sl_free(list);
    return st;
}

const char *sluice_run_state_name(sluice_run_state state)
{
    static const char *const names[] = {
        [SLUICE_RUN_RUNNING] = "running", [SLUICE_RUN_FINISHED] = "finished", [SLUICE_RUN_STOPPED] = "stopped",
        [SLUICE_RUN_FAILED] = "failed",   [SLUICE_RUN_DEAD] = "dead",         [SLUICE_RUN_UNKNOWN] = "unknown"
    };
    return (size_t)state < sizeof names / sizeof names[0] ? names[state] : "unknown";
}
