/* delimited.c: see delimited.h. A record is split while it is looked for, by one state machine, in the buffer that it was read into:
 * what quotes and doubled quotes take away makes it shorter, never longer. */
#include "format/delimited.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "core/alloc.h"
#include "core/io.h"
#include "core/quote.h"
#include "core/status.h"
#include "core/stop.h"

#define BLOCK_BYTES    ((size_t)1 << 20)
#define POLLED_RECORDS 4096

struct sl_delimited_source {
    sl_file file;
    uint64_t bytes, read; /* of the file; in the buffer or behind it */
    uint64_t first;       /* where the first record begins */
    int64_t first_line;
    char *buffer; /* owned: capacity + 1 bytes, the last for a NUL */
    size_t capacity, begin, end;
    int64_t line;    /* that `begin` is in */
    int64_t records; /* so far */
    /* the record being split; offsets from `begin` */
    size_t starts[SL_MOST_COLUMNS + 1];
    int count;
};
typedef struct sl_delimited_source source;

/* ---- bytes ---- */

/* More of the file behind what is there; *any false: there is no more. */
static sluice_status read_more(const sl_delimited *d, source *s, bool *any)
{
    *any = s->read < s->bytes;
    if (!*any) return SLUICE_OK;
    if (s->begin > 0) {
        memmove(s->buffer, s->buffer + s->begin, s->end - s->begin);
        s->end -= s->begin;
        s->begin = 0;
    }
    if (s->end == s->capacity) {
        if (s->capacity >= SL_MOST_RECORD_BYTES)
            return sl_fail(SLUICE_ERR_INPUT, "%s, line %" PRId64 ": a record of more than %zu bytes begins here%s",
                           sl_show(d->path).text, d->line, SL_MOST_RECORD_BYTES,
                           d->quotes ? "; is a quote not closed?" : "");
        char *grown = sl_realloc(s->buffer, s->capacity + 1, 2 * s->capacity + 1, "records of a table");
        if (grown == NULL) return SLUICE_ERR_NO_MEMORY;
        s->buffer = grown;
        s->capacity *= 2;
    }
    size_t room = s->capacity - s->end;
    if (room > s->bytes - s->read) room = (size_t)(s->bytes - s->read);
    SL_TRY(sl_file_pread(&s->file, s->buffer + s->end, room, s->read));
    s->end += room;
    s->read += room;
    return SLUICE_OK;
}

/* ---- one record ---- */

typedef enum {
    AT_START, /* of a field */
    IN_FIELD,
    IN_QUOTES,
    AFTER_QUOTES, /* a quote that may end the field, or be the first of two */
    AFTER_RETURN  /* a CR behind that quote, which an LF must follow */
} split_state;

typedef struct splitter {
    split_state state;
    size_t from, to; /* next byte to look at; where the next one of a field goes */
    int64_t lines;   /* ended within the record */
    int64_t quote_line;
    bool ended, any_quotes;
} splitter;

static sluice_status fail_at(const sl_delimited *d, const splitter *p, const char *what)
{
    return sl_fail(SLUICE_ERR_INPUT, "%s, line %" PRId64 ", field %d: %s", sl_show(d->path).text, d->line + p->lines,
                   d->source->count + 1, what);
}

/* Ends the field that began where the last one ended. */
static sluice_status end_field(const sl_delimited *d, source *s, splitter *p)
{
    if (s->count == SL_MOST_COLUMNS)
        return sl_fail(SLUICE_ERR_INPUT, "%s, line %" PRId64 ": more than %d fields", sl_show(d->path).text, d->line,
                       SL_MOST_COLUMNS);
    s->buffer[s->begin + p->to++] = '\0';
    s->starts[++s->count] = p->to;
    p->state = AT_START;
    return SLUICE_OK;
}

static void end_line(source *s, splitter *p)
{
    size_t start = s->starts[s->count];
    if (p->state < AFTER_QUOTES && p->to > start && s->buffer[s->begin + p->to - 1] == '\r') p->to--;
    p->lines++;
    p->ended = true;
}

static void keep(source *s, splitter *p, char c)
{
    s->buffer[s->begin + p->to++] = c;
}

/* The byte behind a quote in a quoted field, or behind the CR there. */
static sluice_status after_quotes(const sl_delimited *d, source *s, splitter *p, char c)
{
    if (c == '"' && p->state == AFTER_QUOTES) {
        keep(s, p, c);
        p->state = IN_QUOTES;
        return SLUICE_OK;
    }
    if (c == d->separator && p->state == AFTER_QUOTES) return end_field(d, s, p);
    if (c == '\r' && p->state == AFTER_QUOTES) {
        p->state = AFTER_RETURN;
        return SLUICE_OK;
    }
    if (c != '\n')
        return fail_at(d, p, "text behind the quote that ends it; a quote within a quoted field is written twice");
    end_line(s, p);
    return end_field(d, s, p);
}

static sluice_status take_byte(const sl_delimited *d, source *s, splitter *p, char c)
{
    if (c == '\0')
        return sl_fail(SLUICE_ERR_INPUT, "%s, line %" PRId64 ": a NUL byte; is it a text file in UTF-8?",
                       sl_show(d->path).text, d->line + p->lines);
    if (p->state >= AFTER_QUOTES) return after_quotes(d, s, p, c);
    if (p->state == IN_QUOTES) {
        if (c == '"') {
            p->state = AFTER_QUOTES;
            return SLUICE_OK;
        }
        p->lines += c == '\n';
        keep(s, p, c);
        return SLUICE_OK;
    }
    if (c == d->separator) return end_field(d, s, p);
    if (c == '\n') {
        end_line(s, p);
        return end_field(d, s, p);
    }
    if (c == '"' && d->quotes) {
        if (p->state == IN_FIELD)
            return fail_at(d, p,
                           "a quote within a field that does not begin with one; quote the field, and write the "
                           "quote twice");
        p->state = IN_QUOTES;
        p->quote_line = d->line + p->lines;
        p->any_quotes = true;
        return SLUICE_OK;
    }
    p->state = IN_FIELD;
    keep(s, p, c);
    return SLUICE_OK;
}

/* The end of the file ends a record, too. */
static sluice_status end_file(const sl_delimited *d, source *s, splitter *p)
{
    if (p->state == IN_QUOTES)
        return sl_fail(SLUICE_ERR_INPUT, "%s, line %" PRId64 ": the quote that opens here is not closed",
                       sl_show(d->path).text, p->quote_line);
    if (p->from == 0) return SLUICE_OK;
    end_line(s, p);
    return end_field(d, s, p);
}

/* Splits what begins at `begin`; *bytes: how many it took, 0 at the end of the file. */
static sluice_status split(const sl_delimited *d, splitter *p, size_t *bytes)
{
    source *s = d->source;
    *p = (splitter){ .state = AT_START };
    s->count = 0;
    s->starts[0] = 0;
    while (!p->ended) {
        if (s->begin + p->from == s->end) {
            bool any;
            SL_TRY(read_more(d, s, &any));
            if (!any) {
                SL_TRY(end_file(d, s, p));
                break;
            }
        }
        SL_TRY(take_byte(d, s, p, s->buffer[s->begin + p->from++]));
    }
    *bytes = p->from;
    return SLUICE_OK;
}

static bool is_empty_line(const source *s, const splitter *p)
{
    return s->count == 1 && s->starts[1] == 1 && !p->any_quotes;
}

/* The next record that is no empty line; s->count 0: there is none. */
static sluice_status next_record(sl_delimited *d)
{
    source *s = d->source;
    splitter p;
    size_t bytes;
    do {
        d->line = s->line;
        SL_TRY(split(d, &p, &bytes));
        d->fields[0].text = s->buffer + s->begin; /* read_more may have moved the record */
        s->begin += bytes;
        s->line += p.lines;
    } while (bytes > 0 && is_empty_line(s, &p));
    return SLUICE_OK;
}

/* Fields of the record that was split; each is UTF-8. */
static sluice_status take_fields(sl_delimited *d)
{
    const source *s = d->source;
    const char *record = d->fields[0].text;
    for (int i = 0; i < s->count; i++) {
        size_t bad, bytes = s->starts[i + 1] - s->starts[i] - 1;
        d->fields[i] = (sl_delimited_field){ record + s->starts[i], bytes };
        if (!sl_utf8_valid(d->fields[i].text, bytes, &bad))
            return sl_fail(SLUICE_ERR_INPUT, "%s, line %" PRId64 ", field %d: byte %zu of it is not UTF-8",
                           sl_show(d->path).text, d->line, i + 1, bad);
    }
    return SLUICE_OK;
}

sluice_status sl_delimited_next(const int *stop, sl_delimited *d, bool *more)
{
    source *s = d->source;
    *more = false;
    if (++s->records % POLLED_RECORDS == 0) SL_TRY(sl_stop_poll(stop, "reading the data"));
    SL_TRY(next_record(d));
    if (s->count == 0) return SLUICE_OK;
    if (s->count != d->columns)
        return sl_fail(SLUICE_ERR_INPUT, "%s, line %" PRId64 ": %d field%s, and the header has %d",
                       sl_show(d->path).text, d->line, s->count, s->count == 1 ? "" : "s", d->columns);
    SL_TRY(take_fields(d));
    *more = true;
    return SLUICE_OK;
}

/* ---- the header ---- */

static sluice_status skip_mark(sl_delimited *d, source *s)
{
    const unsigned char *p = (const unsigned char *)s->buffer;
    if (s->end >= 3 && memcmp(p, "\xef\xbb\xbf", 3) == 0) s->begin = 3;
    if (s->end >= 2 && p[0] == 0x1f && p[1] == 0x8b)
        return sl_fail(SLUICE_ERR_INPUT, "%s is compressed by gzip; unpack it first", sl_show(d->path).text);
    if (s->end >= 2 && ((p[0] == 0xff && p[1] == 0xfe) || (p[0] == 0xfe && p[1] == 0xff)))
        return sl_fail(SLUICE_ERR_INPUT, "%s is UTF-16; convert it to UTF-8", sl_show(d->path).text);
    return SLUICE_OK;
}

/* By the first line, outside quotes. */
static char find_separator(const source *s)
{
    bool quoted = false, comma = false, semicolon = false;
    for (size_t i = s->begin; i < s->end && (quoted || s->buffer[i] != '\n'); i++) {
        char c = s->buffer[i];
        quoted ^= c == '"';
        if (quoted) continue;
        if (c == '\t') return '\t';
        comma |= c == ',';
        semicolon |= c == ';';
    }
    return semicolon && !comma ? ';' : ',';
}

static sluice_status name_columns(sl_delimited *d)
{
    const source *s = d->source;
    d->names = sl_alloc_array((size_t)s->count, sizeof *d->names, "names of columns");
    if (d->names == NULL) return SLUICE_ERR_NO_MEMORY;
    for (int i = 0; i < s->count; i++) {
        const char *name = d->fields[i].text;
        if (name[0] == '\0')
            return sl_fail(SLUICE_ERR_INPUT, "%s, line %" PRId64 ": column %d of the header has no name",
                           sl_show(d->path).text, d->line, i + 1);
        if (sl_delimited_find(d, name, false) >= 0)
            return sl_fail(SLUICE_ERR_INPUT, "%s, line %" PRId64 ": the header names two columns %s",
                           sl_show(d->path).text, d->line, sl_quote(name).text);
        if ((d->names[i] = sl_strdup(name, "name of a column")) == NULL) return SLUICE_ERR_NO_MEMORY;
        d->columns++;
    }
    return SLUICE_OK;
}

static sluice_status read_header(sl_delimited *d)
{
    source *s = d->source;
    bool any;
    SL_TRY(sl_file_size(&s->file, &s->bytes));
    SL_TRY(read_more(d, s, &any));
    SL_TRY(skip_mark(d, s));
    if (d->separator == SL_ANY_SEPARATOR) d->separator = find_separator(s);
    SL_TRY(next_record(d));
    if (s->count == 0)
        return sl_fail(SLUICE_ERR_INPUT, "%s is empty; its first line names the columns", sl_show(d->path).text);
    SL_TRY(take_fields(d));
    SL_TRY(name_columns(d));
    s->first = s->read - (s->end - s->begin);
    s->first_line = s->line;
    return SLUICE_OK;
}

static sluice_status open_source(sl_delimited *d)
{
    source *s = sl_alloc(sizeof *s, "reader of a table");
    if (s == NULL) return SLUICE_ERR_NO_MEMORY;
    d->source = s;
    s->file.fd = -1;
    s->line = 1;
    s->capacity = BLOCK_BYTES;
    s->buffer = sl_alloc(s->capacity + 1, "records of a table");
    d->fields = sl_alloc_array(SL_MOST_COLUMNS, sizeof *d->fields, "fields of a table");
    if (s->buffer == NULL || d->fields == NULL) return SLUICE_ERR_NO_MEMORY;
    return sl_file_open(d->path, SL_READ, &s->file);
}

sluice_status sl_delimited_open(const char *path, char separator, bool quotes, sl_delimited *out)
{
    *out = (sl_delimited){ .path = path, .separator = separator, .quotes = quotes };
    sluice_status st = open_source(out);
    if (st == SLUICE_OK) st = read_header(out);
    if (st != SLUICE_OK) sl_delimited_close(out);
    return st;
}

void sl_delimited_close(sl_delimited *d)
{
    for (int i = 0; i < d->columns; i++) sl_free(d->names[i]);
    sl_free((void *)d->names);
    sl_free(d->fields);
    if (d->source != NULL) {
        if (d->source->file.path != NULL) sl_file_close(&d->source->file);
        sl_free(d->source->buffer);
        sl_free(d->source);
    }
    *d = (sl_delimited){ .path = NULL };
}

void sl_delimited_rewind(sl_delimited *d)
{
    source *s = d->source;
    s->read = s->first;
    s->begin = s->end = 0;
    s->line = s->first_line;
}

int sl_delimited_find(const sl_delimited *d, const char *name, bool fold)
{
    for (int i = 0; i < d->columns; i++)
        if ((fold ? strcasecmp(d->names[i], name) : strcmp(d->names[i], name)) == 0) return i;
    return -1;
}

sl_delimited_where sl_delimited_place(const sl_delimited *d)
{
    sl_delimited_where w;
    snprintf(w.text, sizeof w.text, "%s, line %" PRId64, sl_show(d->path).text, d->line);
    return w;
}
