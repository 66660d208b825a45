/* jsonl_file.c: where the samples of a file are. A line is one, blank lines are none; a file that begins with '[' is one JSON array
 * of them, on as many lines as it likes. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/grow.h"
#include "core/io.h"
#include "core/stop.h"
#include "data/jsonl.h"
#include "format/file_kind.h"
#include "format/gzip.h"
#include "format/scan.h"

#define MAX_FILE_BYTES   ((size_t)64 << 30)
#define MAX_RECORD_BYTES ((size_t)64 << 20)
#define POLLED_BYTES     ((size_t)64 << 20)
/* What is kept of a compressed file: real text is a few times as large as its gzip file, and what is a thousand times as large
 * is there to fill memory. */
#define MAX_RATIO     ((size_t)200)
#define FREE_OF_RATIO (2 * MAX_RECORD_BYTES)

sl_jsonl_where sl_jsonl_place(const sl_jsonl_file *f, int64_t record)
{
    sl_jsonl_where w;
    snprintf(w.text, sizeof w.text, "%s, line %" PRId64, sl_show(f->path).text, f->records[record].line);
    return w;
}

static sluice_status fail_record(const sl_jsonl_file *f, int64_t line, const char *more, size_t bytes)
{
    return sl_fail(SLUICE_ERR_INPUT, "%s, line %" PRId64 ": a sample of %s%zu bytes; at most %zu are read",
                   sl_show(f->path).text, line, more, bytes, MAX_RECORD_BYTES);
}

static sluice_status add_record(sl_jsonl_file *f, size_t begin, size_t end, int64_t line)
{
    if (end - begin > MAX_RECORD_BYTES) return fail_record(f, line, "", end - begin);
    SL_TRY(SL_GROW(f->records, f->capacity, f->count + 1, 1024, "places of samples"));
    f->records[f->count++] = (sl_jsonl_record){ begin, end, line };
    return SLUICE_OK;
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static sluice_status find_lines(const int *stop, sl_jsonl_file *f, size_t at)
{
    int64_t line = 1;
    for (size_t polled = 0; at < f->bytes; line++) {
        const char *newline = memchr(f->text + at, '\n', f->bytes - at);
        size_t end = newline != NULL ? (size_t)(newline - f->text) : f->bytes, begin = at, past = end;
        while (begin < end && is_space(f->text[begin])) begin++;
        while (past > begin && is_space(f->text[past - 1])) past--;
        if (past > begin) SL_TRY(add_record(f, begin, past, line));
        at = end + 1;
        if (at - polled < POLLED_BYTES) continue;
        SL_TRY(sl_stop_poll(stop, "reading the data"));
        polled = at;
    }
    return SLUICE_OK;
}

static sluice_status fail_in_array(const sl_jsonl_file *f, int64_t first, const sl_scan *s)
{
    int line, column;
    sl_scan_position(f->text, s->at, &line, &column);
    return sl_fail(SLUICE_ERR_INPUT, "%s: line %" PRId64 ", column %d: %s", f->path, first + line - 1, column,
                   s->fault);
}

/* `first`: the line that the text begins with. */
static sluice_status find_elements(sl_jsonl_file *f, size_t at, int64_t first)
{
    sl_scan s = { .text = f->text, .bytes = f->bytes, .at = at };
    size_t counted = 0;
    int64_t line = first;
    sl_scan_take(&s, '[');
    if (!sl_scan_accept(&s, ']')) {
        do {
            sl_scan_space(&s);
            size_t begin = s.at;
            for (; counted < begin; counted++) line += f->text[counted] == '\n';
            if (!sl_scan_skip(&s, 1)) return fail_in_array(f, first, &s);
            SL_TRY(add_record(f, begin, s.at, line));
        } while (sl_scan_accept(&s, ','));
        if (!sl_scan_take(&s, ']')) return fail_in_array(f, first, &s);
    }
    sl_scan_space(&s);
    if (s.at == f->bytes) return SLUICE_OK;
    s.fault = "more text after the end of the array";
    return fail_in_array(f, first, &s);
}

static sluice_status fail_empty(const sl_jsonl_file *f)
{
    return sl_fail(SLUICE_ERR_INPUT, "%s is empty; give a JSON object a line, or an array of them", f->path);
}

/* A text that begins as none of JSON may be something else that is known. */
static sluice_status check_kind(const sl_jsonl_file *f, const char *head, size_t bytes)
{
    const sl_file_kind *kind = sl_text_file_kind("", head, bytes);
    if (kind == NULL) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_INPUT, "%s is %s; give a JSON object a line, or an array of them", f->path, kind->what);
}

static size_t mark_bytes(const char *text, size_t bytes)
{
    return bytes >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
}

static sluice_status find_records(const int *stop, sl_jsonl_file *f)
{
    size_t begin = mark_bytes(f->text, f->bytes), at = begin;
    while (at < f->bytes && is_space(f->text[at])) at++;
    if (at == f->bytes) return fail_empty(f);
    if (f->text[at] == '[') return find_elements(f, at, 1);
    if (f->text[at] != '{') SL_TRY(check_kind(f, f->text, f->bytes));
    return find_lines(stop, f, begin);
}

/* ---- compressed files ---- */

/* A text that comes in parts. Of lines their samples are kept, one after the other, without the white space around them; an array is kept
 * as it is, because messages name its columns. */
typedef struct unpacking {
    sl_jsonl_file *f;
    size_t capacity;   /* of f->text */
    size_t compressed; /* bytes of the file */
    bool begun;        /* something was not white space */
    bool array;
    size_t sample; /* lines: where the one at hand begins in f->text */
    int64_t line;
} unpacking;

static sluice_status keep(unpacking *u, const char *part, size_t bytes)
{
    sl_jsonl_file *f = u->f;
    size_t needed = f->bytes + bytes + 1, kept = needed + (size_t)f->count * sizeof *f->records;
    if (kept > MAX_FILE_BYTES || (kept > FREE_OF_RATIO && kept / MAX_RATIO > u->compressed))
        return sl_fail(SLUICE_ERR_INPUT,
                       "%s, line %" PRId64
                       ": the text is more than %zu times as large as its gzip file of %zu bytes, as no text is that "
                       "somebody wrote; unpack it by gzip -d and give that, if it is right",
                       sl_show(f->path).text, u->line, MAX_RATIO, u->compressed);
    if (needed > u->capacity) {
        size_t wanted = 2 * u->capacity > needed ? 2 * u->capacity : needed;
        char *grown = sl_realloc(f->text, u->capacity, wanted, "uncompressed data");
        if (grown == NULL) return SLUICE_ERR_NO_MEMORY;
        f->text = grown;
        u->capacity = wanted;
    }
    memcpy(f->text + f->bytes, part, bytes);
    f->bytes += bytes;
    return SLUICE_OK;
}

/* The line at hand is over; white space behind its sample is given up. */
static sluice_status end_line(unpacking *u)
{
    sl_jsonl_file *f = u->f;
    while (f->bytes > u->sample && is_space(f->text[f->bytes - 1])) f->bytes--;
    if (f->bytes > u->sample) SL_TRY(add_record(f, u->sample, f->bytes, u->line));
    u->sample = f->bytes;
    return SLUICE_OK;
}

/* What is left of a line's sample, or a part of it. */
static sluice_status keep_of_line(unpacking *u, const char *part, size_t bytes)
{
    if (u->f->bytes - u->sample + bytes > MAX_RECORD_BYTES)
        return fail_record(u->f, u->line, "more than ", MAX_RECORD_BYTES);
    return keep(u, part, bytes);
}

/* Blank lines, and what is before a sample. */
static size_t skip_space(const char *part, size_t at, size_t bytes, int64_t *line)
{
    int64_t lines = 0;
    for (; at < bytes && is_space(part[at]); at++) lines += part[at] == '\n';
    *line += lines;
    return at;
}

static sluice_status take_lines(unpacking *u, const char *part, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        if (u->f->bytes == u->sample) at = skip_space(part, at, bytes, &u->line);
        const char *newline = memchr(part + at, '\n', bytes - at);
        size_t end = newline != NULL ? (size_t)(newline - part) : bytes;
        if (end > at) SL_TRY(keep_of_line(u, part + at, end - at));
        at = end;
        if (newline == NULL) continue;
        SL_TRY(end_line(u));
        u->line++;
        at++;
    }
    return SLUICE_OK;
}

static sluice_status take_part(void *user, const char *part, size_t bytes)
{
    unpacking *u = user;
    size_t begin = u->line == 0 ? mark_bytes(part, bytes) : 0, at = begin;
    if (u->line == 0) u->line = 1;
    int64_t ignored = 0;
    if (!u->begun) at = skip_space(part, at, bytes, &ignored);
    if (!u->begun && at < bytes) {
        u->begun = true;
        u->array = part[at] == '[';
        if (!u->array && part[at] != '{') SL_TRY(check_kind(u->f, part, bytes));
    }
    return u->array ? keep(u, part + begin, bytes - begin) : take_lines(u, part + begin, bytes - begin);
}

static sluice_status unpack(const int *stop, sl_jsonl_file *f)
{
    sl_jsonl_file out = { .path = f->path };
    unpacking u = { .f = &out, .compressed = f->bytes };
    sluice_status st = sl_gzip_unpack(stop, f->path, f->text, f->bytes, take_part, &u);
    sl_free(f->text);
    *f = out;
    SL_TRY(st);
    if (!u.begun) return fail_empty(f);
    u.f = f;
    return u.array ? find_elements(f, 0, u.line) : end_line(&u);
}

sluice_status sl_jsonl_file_read(const int *stop, const char *path, sl_jsonl_file *out)
{
    sl_jsonl_file f = { .path = path };
    sluice_status st = sl_file_read_all_until(stop, path, MAX_FILE_BYTES, &f.text, &f.bytes);
    if (st == SLUICE_OK) st = sl_is_gzip(f.text, f.bytes) ? unpack(stop, &f) : find_records(stop, &f);
    if (st != SLUICE_OK) {
        sl_jsonl_file_free(&f);
        return st;
    }
    *out = f;
    return SLUICE_OK;
}

void sl_jsonl_file_free(sl_jsonl_file *f)
{
    sl_free(f->text);
    sl_free(f->records);
    *f = (sl_jsonl_file){ .path = NULL };
}
