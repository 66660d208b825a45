/* safetensors_read.c: opens a safetensors file that a stranger may have written.
 *
 * The header is walked once in place (scan.h): strings are decoded where they lie, and nothing is allocated but the
 * header itself and the list of tensors, both bounded. The rules are the format's, and stricter where it leaves room:
 * no leading white space, trailing padding of spaces alone, no key twice at any level that has a meaning, and the
 * limits of safetensors.h. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/bytes.h"
#include "core/grow.h"
#include "format/file_kind.h"
#include "format/safetensors.h"
#include "format/scan.h"

typedef struct reader {
    sl_st_file *f;
    const char *path;
    sl_scan scan;       /* over f->header */
    const char *tensor; /* being read, for messages; NULL outside of one */
    int64_t tensor_capacity, metadata_capacity;
    bool metadata_seen;
} reader;

/* "file: tensor "name": rule". */
static sluice_status refuse(const reader *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
static sluice_status refuse(const reader *r, const char *format, ...)
{
    char rule[512];
    va_list args;
    va_start(args, format);
    vsnprintf(rule, sizeof rule, format, args);
    va_end(args);
    if (r->tensor == NULL) return sl_fail(SLUICE_ERR_INPUT, "%s: safetensors: %s", r->path, rule);
    return sl_fail(SLUICE_ERR_INPUT, "%s: safetensors: tensor %s: %s", r->path, sl_quote(r->tensor).text, rule);
}

static sluice_status refuse_syntax(const reader *r)
{
    return refuse(r, "header, byte %zu: %s", r->scan.at, r->scan.fault);
}

/* A string, decoded in place and ended with NUL where its text ended. */
static sluice_status take_string(reader *r, const char *what, char **out)
{
    size_t begin, end;
    if (!sl_scan_string(&r->scan, &begin, &end)) return refuse_syntax(r);
    char *text = r->f->header + begin;
    size_t length = sl_scan_decode(text, end - begin, text);
    if (memchr(text, '\0', length) != NULL) return refuse(r, "header, byte %zu: %s contains a NUL", begin, what);
    text[length] = '\0';
    *out = text;
    return SLUICE_OK;
}

static sluice_status parse_dtype(reader *r, sl_st_tensor *t)
{
    char *name;
    SL_TRY(take_string(r, "dtype", &name));
    for (int i = 0; i < SL_ST_DTYPE_COUNT; i++) {
        if (strcmp(name, sl_st_dtype_name((sl_st_dtype)i)) != 0) continue;
        t->dtype = (sl_st_dtype)i;
        return SLUICE_OK;
    }
    return refuse(r, "unknown dtype %s", sl_quote(name).text);
}

static sluice_status parse_shape(reader *r, sl_st_tensor *t)
{
    if (!sl_scan_take(&r->scan, '[')) return refuse(r, "shape is not an array");
    if (sl_scan_accept(&r->scan, ']')) return SLUICE_OK;
    do {
        uint64_t dim;
        if (!sl_scan_unsigned(&r->scan, &dim)) return refuse(r, "shape: %s", r->scan.fault);
        if (dim > INT64_MAX) return refuse(r, "shape: dimension %" PRIu64 " is 2^63 or more", dim);
        if (t->rank == SL_ST_MAX_RANK) return refuse(r, "shape has more than %d dimensions", SL_ST_MAX_RANK);
        t->dim[t->rank++] = (int64_t)dim;
    } while (sl_scan_accept(&r->scan, ','));
    return sl_scan_take(&r->scan, ']') ? SLUICE_OK : refuse_syntax(r);
}

static sluice_status parse_offsets(reader *r, sl_st_tensor *t)
{
    uint64_t end;
    if (!sl_scan_take(&r->scan, '[')) return refuse(r, "data_offsets is not an array");
    if (!sl_scan_unsigned(&r->scan, &t->begin)) return refuse(r, "data_offsets: %s", r->scan.fault);
    if (!sl_scan_accept(&r->scan, ',')) return refuse(r, "data_offsets needs two numbers");
    if (!sl_scan_unsigned(&r->scan, &end)) return refuse(r, "data_offsets: %s", r->scan.fault);
    if (sl_scan_accept(&r->scan, ',')) return refuse(r, "data_offsets has more than two numbers");
    if (!sl_scan_take(&r->scan, ']')) return refuse_syntax(r);
    if (end < t->begin)
        return refuse(r, "data_offsets end at %" PRIu64 ", before they begin at %" PRIu64, end, t->begin);
    t->bytes = end - t->begin;
    return SLUICE_OK;
}

static const struct {
    const char *name;
    sluice_status (*parse)(reader *r, sl_st_tensor *t);
} fields[] = { { "dtype", parse_dtype }, { "shape", parse_shape }, { "data_offsets", parse_offsets } };
enum { FIELD_COUNT = sizeof fields / sizeof fields[0] };

/* One key of a tensor and its value. Keys without a meaning are allowed by the format and skipped. */
static sluice_status parse_field(reader *r, sl_st_tensor *t, bool seen[FIELD_COUNT])
{
    char *key;
    SL_TRY(take_string(r, "key", &key));
    if (!sl_scan_take(&r->scan, ':')) return refuse_syntax(r);
    for (int i = 0; i < FIELD_COUNT; i++) {
        if (strcmp(key, fields[i].name) != 0) continue;
        if (seen[i]) return refuse(r, "%s is given twice", key);
        seen[i] = true;
        return fields[i].parse(r, t);
    }
    return sl_scan_skip(&r->scan, 2) ? SLUICE_OK : refuse_syntax(r);
}

static sluice_status check_tensor(const reader *r, const sl_st_tensor *t)
{
    uint64_t bytes;
    if (!sl_st_size(t->dtype, t->rank, t->dim, &bytes))
        return refuse(r, "shape: the product of the dimensions overflows");
    if (bytes != t->bytes)
        return refuse(r, "shape and dtype need %" PRIu64 " bytes, data_offsets give %" PRIu64, bytes, t->bytes);
    return SLUICE_OK;
}

static sluice_status parse_tensor(reader *r, char *name)
{
    bool seen[FIELD_COUNT] = { false };
    sl_st_file *f = r->f;
    r->tensor = name;
    if (strlen(name) > SL_MAX_NAME_BYTES) return refuse(r, "the name has more than %d bytes", SL_MAX_NAME_BYTES);
    if (f->tensor_count == SL_ST_MAX_TENSORS) return refuse(r, "more than %d tensors", SL_ST_MAX_TENSORS);
    SL_TRY(SL_GROW(f->tensors, r->tensor_capacity, f->tensor_count + 1, 16, "safetensors list"));
    sl_st_tensor *t = &f->tensors[f->tensor_count++];
    t->name = name;
    if (!sl_scan_take(&r->scan, '{')) return refuse(r, "its description is not an object");
    if (!sl_scan_accept(&r->scan, '}')) {
        do SL_TRY(parse_field(r, t, seen));
        while (sl_scan_accept(&r->scan, ','));
        if (!sl_scan_take(&r->scan, '}')) return refuse_syntax(r);
    }
    for (int i = 0; i < FIELD_COUNT; i++)
        if (!seen[i]) return refuse(r, "%s is missing", fields[i].name);
    SL_TRY(check_tensor(r, t));
    r->tensor = NULL;
    return SLUICE_OK;
}

static sluice_status parse_metadata_pair(reader *r)
{
    sl_st_file *f = r->f;
    char *key, *value;
    SL_TRY(take_string(r, "metadata key", &key));
    if (!sl_scan_take(&r->scan, ':')) return refuse_syntax(r);
    sl_scan_space(&r->scan);
    if (r->scan.at < r->scan.bytes && r->scan.text[r->scan.at] != '"')
        return refuse(r, "__metadata__: the value of %s is not a string", sl_quote(key).text);
    SL_TRY(take_string(r, "metadata value", &value));
    if (f->metadata_count == SL_ST_MAX_TENSORS)
        return refuse(r, "__metadata__ has more than %d pairs", SL_ST_MAX_TENSORS);
    SL_TRY(sl_grow_list(&f->metadata, &r->metadata_capacity, f->metadata_count + 1, 16, 2 * sizeof(char *),
                        "safetensors metadata"));
    f->metadata[2 * f->metadata_count] = key;
    f->metadata[2 * f->metadata_count + 1] = value;
    f->metadata_count++;
    return SLUICE_OK;
}

static int compare_pairs(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static sluice_status parse_metadata(reader *r)
{
    sl_st_file *f = r->f;
    if (r->metadata_seen) return refuse(r, "__metadata__ is given twice");
    r->metadata_seen = true;
    if (!sl_scan_take(&r->scan, '{')) return refuse(r, "__metadata__ is not an object");
    if (sl_scan_accept(&r->scan, '}')) return SLUICE_OK;
    do SL_TRY(parse_metadata_pair(r));
    while (sl_scan_accept(&r->scan, ','));
    if (!sl_scan_take(&r->scan, '}')) return refuse_syntax(r);
    qsort(f->metadata, (size_t)f->metadata_count, 2 * sizeof(char *), compare_pairs);
    for (int64_t i = 1; i < f->metadata_count; i++)
        if (strcmp(f->metadata[2 * i - 2], f->metadata[2 * i]) == 0)
            return refuse(r, "__metadata__: key %s is given twice", sl_quote(f->metadata[2 * i]).text);
    return SLUICE_OK;
}

static sluice_status parse_header(reader *r)
{
    if (!sl_scan_take(&r->scan, '{')) return refuse_syntax(r);
    if (!sl_scan_accept(&r->scan, '}')) {
        do {
            char *name;
            SL_TRY(take_string(r, "tensor name", &name));
            if (!sl_scan_take(&r->scan, ':')) return refuse_syntax(r);
            SL_TRY(strcmp(name, "__metadata__") == 0 ? parse_metadata(r) : parse_tensor(r, name));
        } while (sl_scan_accept(&r->scan, ','));
        if (!sl_scan_take(&r->scan, '}')) return refuse_syntax(r);
    }
    for (; r->scan.at < r->scan.bytes; r->scan.at++)
        if (r->scan.text[r->scan.at] != ' ')
            return refuse(r, "header, byte %zu: only spaces may follow the closing '}'", r->scan.at);
    return SLUICE_OK;
}

static int compare_places(const void *pa, const void *pb)
{
    const sl_st_tensor *a = pa, *b = pb;
    if (a->begin != b->begin) return a->begin < b->begin ? -1 : 1;
    if (a->bytes != b->bytes) return a->bytes < b->bytes ? -1 : 1;
    return strcmp(a->name, b->name);
}

static int compare_names(const void *a, const void *b)
{
    return strcmp((*(const sl_st_tensor *const *)a)->name, (*(const sl_st_tensor *const *)b)->name);
}

static void sort_by_place(sl_st_file *f)
{
    if (f->tensor_count > 0) qsort(f->tensors, (size_t)f->tensor_count, sizeof *f->tensors, compare_places);
}

/* Data fills the rest of the file: each tensor begins where the one before it ended. */
static sluice_status check_places(reader *r, uint64_t data_bytes)
{
    sl_st_file *f = r->f;
    uint64_t end = 0;
    for (int64_t i = 0; i < f->tensor_count; i++) {
        const sl_st_tensor *t = &f->tensors[i];
        r->tensor = t->name;
        if (t->begin < end)
            return refuse(r, "its data at %" PRIu64 " overlaps data that ends at %" PRIu64, t->begin, end);
        if (t->begin > end) return refuse(r, "%" PRIu64 " bytes before its data belong to no tensor", t->begin - end);
        if (t->bytes > data_bytes - end)
            return refuse(r, "its data ends at %" PRIu64 ", but the file has %" PRIu64 " bytes of data", end + t->bytes,
                          data_bytes);
        end += t->bytes;
    }
    r->tensor = NULL;
    if (end != data_bytes) return refuse(r, "%" PRIu64 " bytes after the last tensor belong to none", data_bytes - end);
    return SLUICE_OK;
}

static sluice_status check_names(reader *r)
{
    sl_st_file *f = r->f;
    f->by_name = sl_alloc_array((size_t)f->tensor_count, sizeof *f->by_name, "safetensors names");
    if (f->by_name == NULL) return SLUICE_ERR_NO_MEMORY;
    for (int64_t i = 0; i < f->tensor_count; i++) f->by_name[i] = &f->tensors[i];
    if (f->tensor_count > 0) qsort(f->by_name, (size_t)f->tensor_count, sizeof *f->by_name, compare_names);
    for (int64_t i = 1; i < f->tensor_count; i++)
        if (strcmp(f->by_name[i - 1]->name, f->by_name[i]->name) == 0) {
            r->tensor = f->by_name[i]->name;
            return refuse(r, "the name is given twice");
        }
    return SLUICE_OK;
}

/* Reads the length and the header's text, each claim against what the file has. */
static sluice_status read_header(reader *r, uint64_t file_bytes)
{
    sl_st_file *f = r->f;
    unsigned char length[8];
    size_t bad;
    if (file_bytes < sizeof length) return refuse(r, "%" PRIu64 " bytes; the length of the header takes 8", file_bytes);
    SL_TRY(sl_file_pread(&f->file, length, sizeof length, 0));
    uint64_t bytes = sl_load_le64(length);
    if (bytes > SL_ST_MAX_HEADER)
        return refuse(r, "header of %" PRIu64 " bytes, at most %d are allowed", bytes, SL_ST_MAX_HEADER);
    if (bytes > file_bytes - sizeof length)
        return refuse(r, "header of %" PRIu64 " bytes in a file of %" PRIu64, bytes, file_bytes);
    if (bytes == 0) return refuse(r, "the header is empty");
    f->header = sl_alloc((size_t)bytes + 1, "safetensors header");
    if (f->header == NULL) return SLUICE_ERR_NO_MEMORY;
    SL_TRY(sl_file_pread(&f->file, f->header, (size_t)bytes, sizeof length));
    if (!sl_utf8_valid(f->header, (size_t)bytes, &bad)) return refuse(r, "header, byte %zu: not valid UTF-8", bad);
    if (f->header[0] != '{') return refuse(r, "the header does not begin with '{'");
    f->data_offset = sizeof length + bytes;
    r->scan = (sl_scan){ .text = f->header, .bytes = (size_t)bytes };
    return SLUICE_OK;
}

/* A length may begin with the byte of a bracket; its upper half is 0, and no text has four zeros there. */
static bool is_length(const char head[8])
{
    return (head[0] == '{' || head[0] == '[') && head[4] == 0 && head[5] == 0 && head[6] == 0 && head[7] == 0;
}

/* After a header was refused: where the file is no safetensors file at all, the message says what it is instead. */
static void name_kind(const reader *r, uint64_t file_bytes)
{
    char head[SL_FILE_HEAD_BYTES] = { 0 }, message[SL_MESSAGE_BYTES];
    size_t bytes = file_bytes < sizeof head ? (size_t)file_bytes : sizeof head;
    sl_error_copy(message);
    if (sl_file_pread(&r->f->file, head, bytes, 0) != SLUICE_OK || (bytes > 8 && (head[8] == '{' || is_length(head)))) {
        sl_error_record("%s", message);
        return;
    }
    const sl_file_kind *kind = sl_weights_file_kind(head, bytes);
    if (kind != NULL) sl_error_record("%s is %s, not safetensors: %s", r->path, kind->what, kind->as_weights);
}

static sluice_status read_file(sl_st_file *f, const char *path)
{
    reader r = { .f = f, .path = path };
    uint64_t file_bytes;
    SL_TRY(sl_file_size(&f->file, &file_bytes));
    sluice_status st = read_header(&r, file_bytes);
    if (st == SLUICE_ERR_INPUT) name_kind(&r, file_bytes);
    if (st != SLUICE_OK) return st;
    SL_TRY(parse_header(&r));
    sort_by_place(f);
    SL_TRY(check_names(&r)); /* before the places: a tensor given twice also overlaps itself */
    return check_places(&r, file_bytes - f->data_offset);
}

sluice_status sl_st_open(const char *path, sl_st_file **out)
{
    sl_st_file *f = sl_alloc(sizeof *f, "safetensors file");
    if (f == NULL) return SLUICE_ERR_NO_MEMORY;
    sluice_status st = sl_file_open(path, SL_READ, &f->file);
    if (st != SLUICE_OK) {
        sl_free(f);
        return st;
    }
    st = read_file(f, path);
    if (st != SLUICE_OK) {
        sl_st_close(f);
        return st;
    }
    *out = f;
    return SLUICE_OK;
}

void sl_st_close(sl_st_file *f)
{
    if (f == NULL) return;
    sl_file_close(&f->file);
    sl_file_close(&f->direct);
    sl_free(f->tensors);
    sl_free((void *)f->by_name);
    sl_free(f->metadata);
    sl_free(f->header);
    sl_free(f);
}

const sl_st_tensor *sl_st_find(const sl_st_file *f, const char *name)
{
    const sl_st_tensor key = { .name = name }, *wanted = &key;
    if (f->tensor_count == 0) return NULL;
    const sl_st_tensor **found =
        bsearch(&wanted, (const void *)f->by_name, (size_t)f->tensor_count, sizeof *f->by_name, compare_names);
    return found != NULL ? *found : NULL;
}
