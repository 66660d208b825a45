/* monitor.c: the journal of a run, and the order of its other files.
 *
 * Before the files are open, lines of the journal wait in memory without the run's id, which only the journal of a run that is
 * resumed can tell. */
#include "monitor/monitor.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "core/alloc.h"
#include "monitor/sinks.h"

/* Lines that wait, at most; later ones are not kept. A first sample may be long. */
#define MOST_WAITING ((size_t)4 << 20)
/* Room for a line, from the beginning on: then a step allocates nothing, and nothing is lost for want of memory. */
#define USUAL_LINE ((size_t)16 << 10)

struct sl_monitor {
    const sl_log *log;    /* borrowed */
    pthread_mutex_t lock; /* messages may come from any thread */
    bool open;
    bool told;  /* that something could not be written */
    bool ended; /* the last line of the run is written */
    sl_run_stamp stamp;
    uint64_t step;
    sl_text waiting;              /* lines without their end */
    sl_text line;                 /* the one at hand */
    sl_line_file journal, second; /* second: --log of the same lines */
    sl_csv_log csv;
    sl_tensorboard tensorboard;
    sl_csv_monitor csv_monitor;
};

double sl_wall_clock(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void sl_time_text(double seconds, char out[SL_TIME_BYTES])
{
    struct tm parts;
    double whole = floor(seconds);
    time_t t = (time_t)whole;
    int ms = (int)((seconds - whole) * 1000);
    gmtime_r(&t, &parts);
    size_t n = strftime(out, SL_TIME_BYTES, "%Y-%m-%dT%H:%M:%S", &parts);
    snprintf(out + n, SL_TIME_BYTES - n, ".%03dZ", ms);
}

sluice_status sl_log_file_check(const char *path)
{
    const char *dot = strrchr(path, '.');
    if (dot != NULL && (strcmp(dot, ".jsonl") == 0 || strcmp(dot, ".csv") == 0)) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_USAGE, "--log: %s must end in .jsonl (every event) or .csv (a row a step)", path);
}

sluice_status sl_monitor_create(const sl_log *log, sl_monitor **out)
{
    sl_monitor *m = sl_alloc(sizeof *m, "monitor");
    if (m == NULL) return SLUICE_ERR_NO_MEMORY;
    *m = (sl_monitor){ .log = log };
    pthread_mutex_init(&m->lock, NULL);
    if (sl_text_reserve(&m->line, USUAL_LINE) && sl_text_reserve(&m->waiting, USUAL_LINE)) {
        *out = m;
        return SLUICE_OK;
    }
    sl_monitor_destroy(m);
    return SLUICE_ERR_NO_MEMORY;
}

void sl_monitor_destroy(sl_monitor *m)
{
    if (m == NULL) return;
    sl_line_file_close(&m->journal);
    sl_line_file_close(&m->second);
    sl_csv_log_close(&m->csv);
    sl_tensorboard_close(&m->tensorboard);
    sl_csv_monitor_close(&m->csv_monitor);
    sl_text_free(&m->waiting);
    sl_text_free(&m->line);
    pthread_mutex_destroy(&m->lock);
    sl_free(m);
}

/* ---- failures ---- */

/* Of a write during the run: it goes on, and the log of the run may lack lines from here. */
static void tell(sl_monitor *m, sluice_status st)
{
    char message[SL_MESSAGE_BYTES];
    if (st == SLUICE_OK || m->told) return;
    m->told = true;
    sl_error_copy(message);
    sl_log_write(m->log, SLUICE_LOG_WARNING, "%s; training goes on, and its log lacks what cannot be written", message);
}

/* ---- lines of the journal ---- */

static bool has_journal(const sl_monitor *m)
{
    return m->journal.file.path != NULL || m->second.file.path != NULL;
}

/* One that there was no memory for is forgotten. */
static void begin_line(sl_monitor *m)
{
    m->line.bytes = 0;
    m->line.failed = false;
}

/* m->line holds an object without its closing brace. */
static void end_line(sl_monitor *m, double now)
{
    char time[SL_TIME_BYTES];
    sl_time_text(now, time);
    sl_text_add(&m->line, ",\"time\":\"%s\"", time);
}

static sluice_status write_line(sl_monitor *m, const char *text, size_t bytes)
{
    sluice_status first = SLUICE_OK, second = SLUICE_OK;
    if (m->journal.file.path != NULL) first = sl_line_file_add(&m->journal, text, bytes);
    if (m->second.file.path != NULL) second = sl_line_file_add(&m->second, text, bytes);
    return first != SLUICE_OK ? first : second;
}

/* Writes m->line, or lets it wait. */
static sluice_status keep_line(sl_monitor *m, double now)
{
    end_line(m, now);
    if (!m->open) {
        sl_text_add_bytes(&m->line, "\n", 1);
        if (!m->line.failed && m->waiting.bytes + m->line.bytes <= MOST_WAITING)
            sl_text_add_bytes(&m->waiting, m->line.data, m->line.bytes);
        return SLUICE_OK;
    }
    sl_text_add(&m->line, ",\"run\":\"%s\"}\n", m->stamp.run);
    SL_TRY(sl_text_status(&m->line));
    return write_line(m, m->line.data, m->line.bytes);
}

static sluice_status write_waiting(sl_monitor *m)
{
    sluice_status st = SLUICE_OK;
    for (const char *at = m->waiting.bytes > 0 ? m->waiting.data : NULL;
         at != NULL && *at != '\0' && st == SLUICE_OK;) {
        size_t bytes = strcspn(at, "\n");
        begin_line(m);
        sl_text_add_bytes(&m->line, at, bytes);
        sl_text_add(&m->line, ",\"run\":\"%s\"}\n", m->stamp.run);
        st = sl_text_status(&m->line);
        if (st == SLUICE_OK) st = write_line(m, m->line.data, m->line.bytes);
        at += bytes + 1;
    }
    sl_text_free(&m->waiting);
    return st;
}

/* ---- the beginning ---- */

/* By its time people find a run again; the rest tells runs of one second apart. */
static void make_id(sl_run_stamp *out, double now)
{
    struct tm parts;
    time_t t = (time_t)now;
    uint32_t noise = 0;
    if (getrandom(&noise, sizeof noise, GRND_NONBLOCK) != (ssize_t)sizeof noise)
        noise = (uint32_t)getpid() * 2654435761u ^ (uint32_t)(now * 1e6);
    gmtime_r(&t, &parts);
    size_t n = strftime(out->run, sizeof out->run, "%Y%m%d-%H%M%S", &parts);
    snprintf(out->run + n, sizeof out->run - n, "-%08x", (unsigned)noise);
}

/* The id at the end of a journal's last line; false: there is none. */
static bool find_id(sl_line_file *journal, sl_run_stamp *out)
{
    static const char key[] = ",\"run\":\"";
    char tail[256];
    if (sl_line_file_tail(journal, tail, sizeof tail) != SLUICE_OK) return false;
    const char *at = NULL;
    for (const char *p = tail; (p = strstr(p, key)) != NULL; p++) at = p + sizeof key - 1;
    size_t bytes = at != NULL ? strspn(at, "0123456789abcdef-") : 0;
    if (bytes == 0 || bytes >= sizeof out->run || strcmp(at + bytes, "\"}") != 0) return false;
    memcpy(out->run, at, bytes);
    out->run[bytes] = '\0';
    return true;
}

static sluice_status open_journal(sl_monitor *m, const sl_monitor_places *p, bool resume)
{
    char path[4096];
    make_id(&m->stamp, sl_wall_clock());
    if (p->run_folder == NULL) return SLUICE_OK;
    if (snprintf(path, sizeof path, "%s/" SL_JOURNAL_NAME, p->run_folder) >= (int)sizeof path)
        return sl_fail(SLUICE_ERR_USAGE, "checkpoint.path is too long: use a shorter one");
    SL_TRY(sl_line_file_open(&m->journal, path));
    if (resume) (void)find_id(&m->journal, &m->stamp);
    return SLUICE_OK;
}

static sluice_status open_log(sl_monitor *m, const char *path)
{
    if (path == NULL) return SLUICE_OK;
    SL_TRY(sl_log_file_check(path));
    return strcmp(strrchr(path, '.'), ".csv") == 0 ? sl_csv_log_open(&m->csv, path)
                                                   : sl_line_file_open(&m->second, path);
}

static void describe(sl_monitor *m, const sl_monitor_about *a)
{
    char host[128] = "";
    sl_text *l = &m->line;
    if (gethostname(host, sizeof host - 1) != 0) strcpy(host, "unknown");
    begin_line(m);
    sl_text_add(l, "{\"event\":\"run\",\"version\":\"%s\",\"pid\":%ld,\"host\":", sluice_version(), (long)getpid());
    sl_text_add_string(l, host);
    sl_text_add(l, ",\"ranks\":%d,\"steps\":%llu,\"resume\":%s,\"metric\":", a->ranks, (unsigned long long)a->steps,
                a->resume ? "true" : "false");
    sl_text_add_string(l, a->metric);
    sl_text_add(l, ",\"machine\":{\"device\":");
    sl_text_add_string(l, a->device);
    sl_text_add(l, ",\"cpu\":");
    sl_text_add_string(l, a->cpu);
    sl_text_add(l, ",\"cpus\":%d,\"memory_bytes\":%llu},\"configuration\":%s", a->cpus,
                (unsigned long long)a->memory_bytes, a->configuration);
}

static sluice_status open_files(sl_monitor *m, const sl_monitor_places *p, const sl_monitor_about *a)
{
    double now = sl_wall_clock();
    SL_TRY(open_journal(m, p, a->resume));
    SL_TRY(open_log(m, p->log_file));
    if (p->tensorboard != NULL)
        SL_TRY(sl_tensorboard_open(&m->tensorboard, p->tensorboard, now, a->configuration, a->plan));
    if (p->csv_monitor != NULL) SL_TRY(sl_csv_monitor_open(&m->csv_monitor, p->csv_monitor));
    m->open = true;
    if (!has_journal(m)) return SLUICE_OK;
    describe(m, a);
    SL_TRY(keep_line(m, now));
    return write_waiting(m);
}

sluice_status sl_monitor_open(sl_monitor *m, const sl_monitor_places *places, const sl_monitor_about *about)
{
    pthread_mutex_lock(&m->lock);
    sluice_status st = open_files(m, places, about);
    if (st == SLUICE_OK) sl_text_free(&m->waiting);
    pthread_mutex_unlock(&m->lock);
    return st;
}

/* ---- the run ---- */

/* The event's JSON into m->line, less its last brace. */
static void make_line(sl_monitor *m, const sluice_event *e)
{
    sl_text *l = &m->line;
    begin_line(m);
    size_t bytes = sluice_event_json(e, l->data, l->capacity);
    if (bytes >= l->capacity) {
        if (!sl_text_reserve(l, bytes)) return;
        sluice_event_json(e, l->data, l->capacity);
    }
    l->bytes = bytes > 0 ? bytes - 1 : 0;
}

/* A phase goes into the journal when it is over: until then it only moves. */
static void journal_event(sl_monitor *m, const sluice_event *e, double now)
{
    if ((m->open && !has_journal(m)) || (e->kind == SLUICE_EVENT_PHASE && !e->over)) return;
    make_line(m, e);
    if (m->line.bytes > 0) tell(m, keep_line(m, now));
}

void sl_monitor_event(sl_monitor *m, const sluice_event *event)
{
    char time[SL_TIME_BYTES];
    if (m == NULL) return;
    double now = sl_wall_clock();
    pthread_mutex_lock(&m->lock);
    if (event->kind == SLUICE_EVENT_STEP || event->kind == SLUICE_EVENT_RESUMED) m->step = event->step;
    m->ended = m->ended || event->kind == SLUICE_EVENT_END;
    journal_event(m, event, now);
    if (m->csv.file.file.path != NULL) {
        sl_time_text(now, time);
        tell(m, sl_csv_log_event(&m->csv, &m->stamp, time, event));
    }
    if (m->tensorboard.file.file.path != NULL) tell(m, sl_tensorboard_event(&m->tensorboard, now, event));
    if (m->csv_monitor.folder[0] != '\0') tell(m, sl_csv_monitor_event(&m->csv_monitor, event));
    pthread_mutex_unlock(&m->lock);
}

/* Notes are for whoever starts the run; warnings for whoever watches it. */
void sl_monitor_message(sl_monitor *m, sluice_log_level level, const char *text)
{
    if (m == NULL || level != SLUICE_LOG_WARNING) return;
    pthread_mutex_lock(&m->lock);
    if (!m->open || has_journal(m)) {
        begin_line(m);
        sl_text_add(&m->line, "{\"event\":\"log\",\"level\":\"warning\",\"text\":");
        sl_text_add_string(&m->line, text);
        tell(m, keep_line(m, sl_wall_clock()));
    }
    pthread_mutex_unlock(&m->lock);
}

void sl_monitor_end(sl_monitor *m, sluice_status status)
{
    char message[SL_MESSAGE_BYTES];
    if (m == NULL || !m->open || !has_journal(m) || m->ended || status == SLUICE_OK) return;
    sl_error_copy(message);
    begin_line(m);
    sl_text_add(&m->line, "{\"event\":\"exit\",\"status\":%d,\"step\":%llu,\"message\":", sluice_exit_status(status),
                (unsigned long long)m->step);
    sl_text_add_string(&m->line, message);
    tell(m, keep_line(m, sl_wall_clock()));
    sl_error_record("%s", message);
}
