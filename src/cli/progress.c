/* progress.c: a run for people: one line drawn over and over on a terminal, plain lines elsewhere. */
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "cli/cli.h"

/* Redraws a second at most; more only costs time. */
#define REDRAW_SECONDS 0.1
/* Weight of the newest step in the smoothed step time. */
#define SMOOTHING 0.1
/* Phases that take less leave no line behind. */
#define PHASE_SECONDS 1.0
/* The share of a step that waiting for data must take to be told at the end. */
#define WORTH_A_WORD 0.1
/* Lines in a run, where nothing else is asked for. */
#define LINES_A_RUN 20

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void cli_progress_start(cli_progress *p, FILE *out, int64_t every)
{
    const char *terminal = getenv("TERM"), *plain = getenv("NO_COLOR");
    bool capable = terminal == NULL || strcmp(terminal, "dumb") != 0;
    *p = (cli_progress){ .out = out, .every = every, .started = now() };
    p->line = isatty(fileno(out)) && capable;
    p->colour = p->line && (plain == NULL || plain[0] == '\0');
}

static int terminal_width(const cli_progress *p)
{
    struct winsize size;
    const char *told = getenv("COLUMNS");
    if (ioctl(fileno(p->out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
    return told != NULL && atoi(told) > 0 ? atoi(told) : 80;
}

/* A line that was drawn on a wider terminal has been folded by it: all of its rows go. */
static void erase_line(const cli_progress *p)
{
    int width = terminal_width(p), rows = p->drawn && p->columns > width ? (p->columns - 1) / width : 0;
    if (rows > 0) fprintf(p->out, "\033[%dA", rows);
    fputs(rows > 0 ? "\r\033[J" : "\r\033[K", p->out);
}

void cli_progress_clear(cli_progress *p)
{
    if (p->drawn) erase_line(p);
    if (p->begun) fputc('\n', p->out);
    p->drawn = p->begun = false;
    fflush(p->out);
}

static void format_step_rate(const sluice_event *e, char *out, size_t bytes)
{
    double seconds = e->seconds > 0 ? e->seconds : 1e-9;
    bool tokens = e->tokens > 0;
    cli_format_rate((double)(tokens ? e->tokens : e->samples) / seconds, tokens ? "tokens" : "samples", out, bytes);
    if (e->targets >= e->tokens) return;
    size_t used = strlen(out);
    snprintf(out + used, bytes - used, ", %.0f%% targets", 100 * (double)e->targets / (double)e->tokens);
}

/* "  MFU 12.3%", or nothing where the machine's rate is not known. */
static void format_mfu(const sluice_event *e, char *out, size_t bytes)
{
    out[0] = '\0';
    if (isfinite(e->mfu)) snprintf(out, bytes, "  MFU %.1f%%", 100 * e->mfu);
}

/* "norm 1.234", or that the step was skipped. */
static void format_norm(const sluice_event *e, char *out, size_t bytes)
{
    if (!e->skipped)
        snprintf(out, bytes, "norm %.4g", e->gradient_norm);
    else if (e->loss_scale != 1)
        snprintf(out, bytes, "skipped at loss scale %g", e->loss_scale);
    else
        snprintf(out, bytes, "skipped");
}

/* ---- the line ---- */

/* One piece of the line. */
typedef struct line_part {
    char text[64];
    int rank; /* parts of the highest rank go first where the terminal is narrow */
    bool strong;
} line_part;

enum { MOST_PARTS = 12, HIGHEST_RANK = 7, BAR_AT = 2, LEAST_BAR = 8, MOST_BAR = 30 };

typedef struct status_line {
    line_part parts[MOST_PARTS];
    int count;
} status_line;

__attribute__((format(printf, 3, 4))) static line_part *add_part(status_line *l, int rank, const char *format, ...)
{
    line_part *part = &l->parts[l->count++];
    va_list args;
    va_start(args, format);
    vsnprintf(part->text, sizeof part->text, format, args);
    va_end(args);
    part->rank = rank;
    part->strong = false;
    return part;
}

static void add_size(status_line *l, const char *what, uint64_t bytes)
{
    char size[32];
    if (bytes == 0) return;
    cli_format_size(bytes, size, sizeof size);
    add_part(l, 5, "%s %s", what, size);
}

/* Seconds until the last step: steps as they are now, and what lies between them as it was so far. */
static double seconds_left(const cli_progress *p, const sluice_event *e)
{
    double spent = now() - p->first_clock, between = p->step_seconds > 0 ? spent / p->step_seconds : 1;
    return p->smooth_seconds * (double)(e->steps - e->step) * (between > 1 ? between : 1);
}

static void fill_line(const cli_progress *p, const sluice_event *e, status_line *l)
{
    char rate[48], time[32];
    double share = e->steps > 0 ? (double)e->step / (double)e->steps : 1;
    l->count = 0;
    add_part(l, 0, "step %llu/%llu", (unsigned long long)e->step, (unsigned long long)e->steps);
    add_part(l, 1, "%.0f%%", floor(100 * share));
    add_part(l, 0, "loss %.4f", e->loss)->strong = true;
    if (p->has_best) add_part(l, 3, "best %s%.4g", p->best_name, p->best);
    format_step_rate(e, rate, sizeof rate);
    add_part(l, 4, "%s", rate);
    if (isfinite(e->mfu)) add_part(l, 6, "MFU %.1f%%", 100 * e->mfu);
    add_size(l, "device", e->memory.device);
    add_size(l, "host", e->memory.host);
    cli_format_seconds(now() - p->started, time, sizeof time);
    add_part(l, 7, "%s elapsed", time);
    cli_format_seconds(seconds_left(p, e), time, sizeof time);
    add_part(l, 2, "%s left", time);
}

/* Columns of the parts up to a rank, with two spaces between them. */
static int line_width(const status_line *l, int rank)
{
    int width = -2;
    for (int i = 0; i < l->count; i++)
        if (l->parts[i].rank <= rank) width += (int)strlen(l->parts[i].text) + 2;
    return width;
}

static void draw_bar(FILE *out, double share, int width)
{
    char bar[MOST_BAR + 1];
    int inside = width - 2, full = (int)(share * inside);
    for (int i = 0; i < inside; i++) bar[i] = i < full ? '#' : '-';
    bar[inside] = '\0';
    fprintf(out, "  [%s]", bar);
}

/* The last column stays free: writing there moves some terminals to the next line. */
static int draw_parts(const cli_progress *p, const sluice_event *e, int columns)
{
    status_line l;
    int rank = HIGHEST_RANK, room = columns - 1;
    fill_line(p, e, &l);
    while (rank > 0 && line_width(&l, rank) > room) rank--;
    int width = line_width(&l, rank), spare = room - width - 2;
    bool bar = spare >= LEAST_BAR;
    if (width > room) { /* what is left does not fit either: as much of the step as does */
        fprintf(p->out, "%.*s", room > 0 ? room : 0, l.parts[0].text);
        return room;
    }
    for (int i = 0, shown = 0; i < l.count; i++) {
        if (i == BAR_AT && bar)
            draw_bar(p->out, (double)e->step / (double)e->steps, spare < MOST_BAR ? spare : MOST_BAR);
        if (l.parts[i].rank > rank) continue;
        bool strong = l.parts[i].strong && p->colour;
        fprintf(p->out, "%s%s%s%s", shown++ > 0 ? "  " : "", strong ? "\033[1m" : "", l.parts[i].text,
                strong ? "\033[0m" : "");
    }
    return bar ? width + 2 + (spare < MOST_BAR ? spare : MOST_BAR) : width;
}

static void draw_line(cli_progress *p, const sluice_event *e)
{
    double clock = now();
    if (p->drawn && e->step != e->steps && clock - p->drawn_at < REDRAW_SECONDS) return;
    erase_line(p);
    p->columns = draw_parts(p, e, terminal_width(p));
    p->drawn = e->step != e->steps; /* the last one stays: what follows may not know of it */
    if (!p->drawn) fputc('\n', p->out);
    fflush(p->out);
    p->drawn_at = clock;
}

/* ---- plain lines ---- */

/* Local time before what is a line of a log. */
static void print_stamp(const cli_progress *p)
{
    char text[32];
    struct tm parts;
    time_t t = time(NULL);
    if (p->line) return;
    localtime_r(&t, &parts);
    strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &parts);
    fprintf(p->out, "%s  ", text);
}

static void print_line(cli_progress *p, const sluice_event *e)
{
    char rate[48], mfu[32], norm[64], left[32];
    uint64_t every = p->every > 0 ? (uint64_t)p->every : e->steps / LINES_A_RUN;
    if (every == 0) every = 1;
    if (e->step % every != 0 && e->step != e->steps && e->step != p->first_step) return;
    format_step_rate(e, rate, sizeof rate);
    format_mfu(e, mfu, sizeof mfu);
    format_norm(e, norm, sizeof norm);
    cli_format_seconds(seconds_left(p, e), left, sizeof left);
    print_stamp(p);
    fprintf(p->out, "step %llu/%llu  loss %.4f  lr %.3g  %s  %s%s  %s left\n", (unsigned long long)e->step,
            (unsigned long long)e->steps, e->loss, e->lr, norm, rate, mfu, left);
    fflush(p->out);
}

static void on_step(cli_progress *p, const sluice_event *e)
{
    if (p->first_step == 0) {
        p->first_step = e->step;
        p->first_clock = now() - e->seconds;
        p->smooth_seconds = e->seconds;
    }
    p->step_seconds += e->seconds;
    p->smooth_seconds += SMOOTHING * (e->seconds - p->smooth_seconds);
    if (p->line)
        draw_line(p, e);
    else
        print_line(p, e);
}

/* ---- phases: what takes its time and is no step ---- */

static const struct {
    const char *name, *doing;
    bool weights; /* counts weights; otherwise bytes */
} phases[] = {
    { "plan", "planning", true }, { "reserve", "reserving", false }, { "fill", "filling", true },
    { "read", "reading", false }, { "verify", "verifying", false },  { "hash", "hashing", false },
};

/* "filling 8.03B weights", "hashing 89.7 GiB"; false: a phase of a newer library. */
static bool format_phase(const sluice_event *e, char *out, size_t bytes)
{
    static const char *const counts[] = { "", "k", "M", "B", "T" }, *const sizes[] = { "B", "KiB", "MiB", "GiB",
                                                                                       "TiB" };
    size_t i = 0, scale = 0;
    while (i < sizeof phases / sizeof phases[0] && strcmp(phases[i].name, e->phase) != 0) i++;
    if (i == sizeof phases / sizeof phases[0]) return false;
    double amount = (double)e->total, step = phases[i].weights ? 1000 : 1024;
    for (; amount >= step && scale < 4; scale++) amount /= step;
    if (phases[i].weights)
        snprintf(out, bytes, "%s %.3g%s weights", phases[i].doing, amount, counts[scale]);
    else
        snprintf(out, bytes, "%s %.3g %s", phases[i].doing, amount, sizes[scale]);
    return true;
}

/* On a terminal drawn from the beginning on; elsewhere begun as a line when it has taken a second. What took less leaves
 * nothing behind. */
static void on_phase(cli_progress *p, const sluice_event *e)
{
    char what[96];
    bool is_long = e->seconds >= PHASE_SECONDS;
    if (!format_phase(e, what, sizeof what)) return;
    if (e->over) {
        bool begun = p->begun;
        p->begun = false;
        cli_progress_clear(p);
        if (is_long && !begun) print_stamp(p);
        if (is_long) fprintf(p->out, "%s ... %.1f s\n", begun ? "" : what, e->seconds);
    } else if (p->line) {
        erase_line(p);
        p->columns = fprintf(p->out, "%s ... %.0f%%  %.1f s", what,
                             100 * (double)e->done / (double)(e->total > 0 ? e->total : 1), e->seconds);
        p->drawn = true;
    } else if (is_long && !p->begun) {
        print_stamp(p);
        fputs(what, p->out);
        p->begun = true;
    }
    fflush(p->out);
}

static void on_resumed(cli_progress *p, const sluice_event *e)
{
    fprintf(p->out, "resumed after step %llu\n", (unsigned long long)e->step);
}

static void on_eval(cli_progress *p, const sluice_event *e)
{
    fprintf(p->out, "step %llu: validation loss %.4f", (unsigned long long)e->step, e->loss);
    if (isfinite(e->accuracy) && e->accuracy > 0) fprintf(p->out, ", accuracy %.2f%%", 100 * e->accuracy);
    for (int i = 0; i < e->metric_count; i++) {
        const sluice_metric *m = &e->metrics[i];
        if (!m->shown || strcmp(m->name, "loss") == 0 || strcmp(m->name, "accuracy") == 0) continue;
        fprintf(p->out, isfinite(m->value) ? ", %s %.4g" : ", %s not known", m->name, m->value);
    }
    fputs(e->best && e->judged ? ", the best so far\n" : "\n", p->out);
}

static void on_early_stop(cli_progress *p, const sluice_event *e)
{
    const sluice_metric *m = e->metrics;
    fprintf(p->out, "stopped early after step %llu: %llu evaluations brought no better %s than ",
            (unsigned long long)e->step, (unsigned long long)e->evaluations, m->name);
    if (e->best_step > 0)
        fprintf(p->out, "%.6g, after step %llu\n", m->value, (unsigned long long)e->best_step);
    else
        fputs("a number\n", p->out);
}

static void on_saved(cli_progress *p, const sluice_event *e)
{
    char path[4096];
    sluice_printable(e->path, path, sizeof path);
    fprintf(p->out, "step %llu: saved %s\n", (unsigned long long)e->step, path);
}

static void on_epoch(cli_progress *p, const sluice_event *e)
{
    fprintf(p->out, "epoch %.0f: mean loss %.4f\n", e->epoch, e->loss);
}

/* "peak device 8.5 MiB, host 2.3 MiB", and the disk where there is something on it. */
static void print_peaks(const sluice_memory *peak, FILE *out)
{
    char device[32], host[32], disk[32];
    cli_format_size(peak->device, device, sizeof device);
    cli_format_size(peak->host, host, sizeof host);
    cli_format_size(peak->disk, disk, sizeof disk);
    fprintf(out, "peak device %s, host %s", device, host);
    if (peak->disk > 0) fprintf(out, ", disk %s", disk);
    fputc('\n', out);
}

static void on_end(cli_progress *p, const sluice_event *e)
{
    char took[32], rate[48], pace[96] = "", wait[64] = "", mfu[32];
    cli_format_seconds(now() - p->started, took, sizeof took);
    format_mfu(e, mfu, sizeof mfu);
    if (isfinite(e->tokens_per_second)) {
        cli_format_rate(e->tokens_per_second, "tokens", rate, sizeof rate);
        snprintf(pace, sizeof pace, ", %s%s", rate, mfu);
    }
    if (e->data_seconds > WORTH_A_WORD * e->step_seconds)
        snprintf(wait, sizeof wait, ", %.0f%% of it waiting for data", 100 * e->data_seconds / e->step_seconds);
    fprintf(p->out, "done: %llu steps in %s%s%s; ", (unsigned long long)e->steps, took, wait, pace);
    print_peaks(&e->peak, p->out);
    if (e->weights_sha256 != NULL) fprintf(p->out, "weights sha256 %s\n", e->weights_sha256);
}

/* A text on lines of its own, as a terminal may show it. Returns the bytes of it that are left of `room`. */
static size_t print_lines(FILE *out, const char *text, size_t room)
{
    char line[512], shown[4 * sizeof line];
    while (*text != '\0' && room > 0) {
        size_t n = strcspn(text, "\n"), most = room < sizeof line - 4 ? room : sizeof line - 4;
        bool whole = n <= most;
        if (!whole) n = most;
        while (!whole && n < sizeof line - 1 && ((unsigned char)text[n] & 0xc0) == 0x80)
            n++; /* not inside a character */
        memcpy(line, text, n);
        line[n] = '\0';
        sluice_printable(line, shown, sizeof shown);
        fputs(shown, out);
        text += n;
        room -= n < room ? n : room;
        if (whole && *text == '\n') {
            fputc('\n', out);
            text++;
            room--;
        }
    }
    return room;
}

/* The first sample as the model reads it; what counts in the loss is underlined, or between {+ and +} where nothing can be. */
static void on_sample(cli_progress *p, const sluice_event *e)
{
    enum { MOST_BYTES = 4000 };
    const sluice_sample *s = e->sample;
    size_t room = MOST_BYTES;
    int64_t targets = 0;
    for (int64_t i = 0; i < s->count; i++) targets += s->loss[i];
    fprintf(p->out, "the first sample, %lld tokens, of which %lld count in the loss (%s):\n", (long long)s->count,
            (long long)targets, p->colour ? "\033[4;32munderlined\033[0m" : "between {+ and +}");
    for (int i = 0; i < s->part_count && room > 0; i++) {
        if (s->part_loss[i]) fputs(p->colour ? "\033[4;32m" : "{+", p->out);
        room = print_lines(p->out, s->texts[i], room);
        if (s->part_loss[i]) fputs(p->colour ? "\033[0m" : "+}", p->out);
    }
    fputs(room == 0 ? " ...\n" : "\n", p->out);
}

/* The best evaluation so far, by the metric that judges; its name where that is not the loss. */
static void note_best(cli_progress *p, const sluice_event *e)
{
    bool tells = (e->kind == SLUICE_EVENT_EVAL && e->best) || (e->kind == SLUICE_EVENT_RESUMED && e->best_step > 0);
    for (int i = 0; tells && e->judge != NULL && i < e->metric_count; i++) {
        const sluice_metric *m = &e->metrics[i];
        if (strcmp(m->name, e->judge) != 0 || !isfinite(m->value)) continue;
        p->has_best = true;
        p->best = m->value;
        if (strcmp(m->name, "loss") != 0) snprintf(p->best_name, sizeof p->best_name, "%s ", m->name);
    }
}

static void (*const event_printers[])(cli_progress *p, const sluice_event *e) = {
    [SLUICE_EVENT_RESUMED] = on_resumed,       [SLUICE_EVENT_EVAL] = on_eval, [SLUICE_EVENT_SAVED] = on_saved,
    [SLUICE_EVENT_EPOCH] = on_epoch,           [SLUICE_EVENT_END] = on_end,   [SLUICE_EVENT_SAMPLE] = on_sample,
    [SLUICE_EVENT_EARLY_STOP] = on_early_stop,
};

void cli_progress_event(cli_progress *p, const sluice_event *event)
{
    if (event->kind == SLUICE_EVENT_STEP || event->kind == SLUICE_EVENT_PHASE) {
        (event->kind == SLUICE_EVENT_STEP ? on_step : on_phase)(p, event);
        return;
    }
    if ((size_t)event->kind >= sizeof event_printers / sizeof event_printers[0] || event_printers[event->kind] == NULL)
        return;
    cli_progress_clear(p);
    note_best(p, event);
    print_stamp(p);
    event_printers[event->kind](p, event);
    fflush(p->out);
}
