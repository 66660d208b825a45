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

sl_jsonl_where sl_jsonl_place(const sl_jsonl_file *f, int64_t record)
{
    sl_jsonl_where w;
    snprintf(w.text, sizeof w.text, "%s, line %" PRId64, sl_show(f->path).text, f->records[record].line);
    return w;
}

static sluice_status add_record(sl_jsonl_file *f, size_t begin, size_t end, int64_t line)
{
    if (end - begin > MAX_RECORD_BYTES)
        return sl_fail(SLUICE_ERR_INPUT, "%s, line %" PRId64 ": a sample of %zu bytes; at most %zu are read", f->path,
                       line, end - begin, MAX_RECORD_BYTES);
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

static sluice_status fail_in_array(const sl_jsonl_file *f, const sl_scan *s)
{
    int line, column;
    sl_scan_position(f->text, s->at, &line, &column);
    return sl_fail(SLUICE_ERR_INPUT, "%s: line %d, column %d: %s", f->path, line, column, s->fault);
}

static sluice_status find_elements(sl_jsonl_file *f, size_t at)
{
    sl_scan s = { .text = f->text, .bytes = f->bytes, .at = at };
    size_t counted = 0;
    int64_t line = 1;
    sl_scan_take(&s, '[');
    if (!sl_scan_accept(&s, ']')) {
        do {
            sl_scan_space(&s);
            size_t begin = s.at;
            for (; counted < begin; counted++) line += f->text[counted] == '\n';
            if (!sl_scan_skip(&s, 1)) return fail_in_array(f, &s);
            SL_TRY(add_record(f, begin, s.at, line));
        } while (sl_scan_accept(&s, ','));
        if (!sl_scan_take(&s, ']')) return fail_in_array(f, &s);
    }
    sl_scan_space(&s);
    if (s.at == f->bytes) return SLUICE_OK;
    s.fault = "more text after the end of the array";
    return fail_in_array(f, &s);
}

static sluice_status find_records(const int *stop, sl_jsonl_file *f)
{
    size_t at = 0;
    if (f->bytes >= 3 && memcmp(f->text, "\xef\xbb\xbf", 3) == 0) at = 3; /* a byte order mark */
    size_t begin = at;
    while (at < f->bytes && is_space(f->text[at])) at++;
    if (at == f->bytes)
        return sl_fail(SLUICE_ERR_INPUT, "%s is empty; give a JSON object a line, or an array of them", f->path);
    if (f->text[at] == '[') return find_elements(f, at);
    const sl_file_kind *kind = f->text[at] != '{' ? sl_text_file_kind("", f->text, f->bytes) : NULL;
    if (kind != NULL)
        return sl_fail(SLUICE_ERR_INPUT, "%s is %s; give a JSON object a line, or an array of them", f->path,
                       kind->what);
    return find_lines(stop, f, begin);
}

sluice_status sl_jsonl_file_read(const int *stop, const char *path, sl_jsonl_file *out)
{
    sl_jsonl_file f = { .path = path };
    sluice_status st = sl_file_read_all_until(stop, path, MAX_FILE_BYTES, &f.text, &f.bytes);
    if (st == SLUICE_OK && sl_is_gzip(f.text, f.bytes))
        st = sl_gzip_expand(stop, path, MAX_FILE_BYTES, &f.text, &f.bytes);
    if (st == SLUICE_OK) st = find_records(stop, &f);
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
