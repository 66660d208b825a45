/* manifest_read.c: a manifest from a file that may be damaged, or made by someone who wants us to read past an end.
 *
 * The checksum of the text comes first; it finds damage. It is no signature, so that every number is checked against
 * the others before it is used: names, ranges, coverage, chunk counts. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "checkpoint/manifest.h"
#include "checkpoint/meta.h"
#include "core/alloc.h"
#include "core/bytes.h"
#include "format/json.h"
#include "format/safetensors.h"

typedef struct parser {
    sl_manifest *m;
    const char *path; /* of the manifest, for messages */
} parser;

static sluice_status malformed(const parser *p, const char *format, ...) __attribute__((format(printf, 2, 3)));
static sluice_status malformed(const parser *p, const char *format, ...)
{
    char fault[512];
    va_list args;
    va_start(args, format);
    vsnprintf(fault, sizeof fault, format, args);
    va_end(args);
    return sl_fail(SLUICE_ERR_INPUT, "%s is malformed: %s", p->path, fault);
}

static sluice_status get_integer(const parser *p, const json_t *object, const char *key, int64_t max, int64_t *out)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_integer(value) || json_integer_value(value) < 0 || json_integer_value(value) > max)
        return malformed(p, "%s is not an integer from 0 to %" PRId64, key, max);
    *out = json_integer_value(value);
    return SLUICE_OK;
}

static sluice_status get_string(const parser *p, const json_t *object, const char *key, const char **out)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_string(value)) return malformed(p, "%s is not a string", key);
    *out = sl_arena_strdup(&p->m->arena, json_string_value(value));
    return *out != NULL ? SLUICE_OK : SLUICE_ERR_NO_MEMORY;
}

static sluice_status get_array(const parser *p, const json_t *object, const char *key, json_t **out)
{
    json_t *value = json_object_get(object, key);
    if (!json_is_array(value)) return malformed(p, "%s is not an array", key);
    *out = value;
    return SLUICE_OK;
}

/* All of `text` as a number in the given base; digits alone, lower case. */
static bool parse_digits(const char *text, uint64_t base, uint64_t *out)
{
    static const char digits[] = "0123456789abcdef";
    uint64_t value = 0;
    if (*text == '\0') return false;
    for (; *text != '\0'; text++) {
        const char *digit = memchr(digits, *text, base);
        if (digit == NULL || !sl_mul_u64(value, base, &value) || !sl_add_u64(value, (uint64_t)(digit - digits), &value))
            return false;
    }
    *out = value;
    return true;
}

static sluice_status parse_meta_field(const parser *p, const json_t *object, const sl_meta_field *field)
{
    char *at = (char *)&p->m->meta + field->offset;
    const char *text;
    uint64_t bits;
    if (field->type == SL_META_COUNT) {
        int64_t count;
        SL_TRY(get_integer(p, object, field->name, INT64_MAX, &count));
        memcpy(at, &count, sizeof count);
        return SLUICE_OK;
    }
    SL_TRY(get_string(p, object, field->name, &text));
    if (field->type == SL_META_TEXT) {
        if (strlen(text) >= field->capacity)
            return malformed(p, "%s is longer than %zu bytes", field->name, field->capacity - 1);
        memcpy(at, text, strlen(text) + 1);
        return SLUICE_OK;
    }
    if (!parse_digits(text, field->type == SL_META_DOUBLE ? 16 : 10, &bits))
        return malformed(p, "%s is not a number", field->name);
    memcpy(at, &bits, sizeof bits);
    return SLUICE_OK;
}

static sluice_status parse_meta(const parser *p, const json_t *root)
{
    const json_t *meta = json_object_get(root, "meta");
    if (!json_is_object(meta)) return malformed(p, "meta is not an object");
    for (size_t i = 0; i < sl_meta_field_count; i++) {
        const sl_meta_field *field = &sl_meta_fields[i];
        if (field->optional && json_object_get(meta, field->name) == NULL) continue;
        SL_TRY(parse_meta_field(p, meta, field));
    }
    return SLUICE_OK;
}

/* Optional: older versions did not keep it, and not every model reads text. */
static sluice_status parse_vocabulary(const parser *p, const json_t *root)
{
    const json_t *object = json_object_get(root, "vocabulary");
    sl_kept_vocabulary *v = &p->m->vocabulary;
    if (object == NULL) return SLUICE_OK;
    SL_TRY(get_string(p, object, "unit", &v->unit));
    if (json_object_get(object, "characters") == NULL) return SLUICE_OK;
    return get_string(p, object, "characters", &v->characters);
}

/* Names of files, kinds and versions: plain words. A file of such a name lies in the checkpoint's folder, in the
 * open. */
static bool is_plain_name(const char *name)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";
    return name[0] != '\0' && name[0] != '.' && strspn(name, allowed) == strlen(name) && strlen(name) < 256;
}

static sluice_status parse_file(const parser *p, const json_t *object, sl_manifest_file *f)
{
    json_t *chunks = NULL, *chunk;
    size_t i;
    int64_t bytes;
    SL_TRY(get_string(p, object, "name", &f->name));
    if (!is_plain_name(f->name)) return malformed(p, "%s is no name of a data file", sl_quote(f->name).text);
    SL_TRY(get_integer(p, object, "bytes", INT64_MAX, &bytes));
    SL_TRY(get_array(p, object, "xxh3", &chunks));
    f->bytes = (uint64_t)bytes;
    f->chunk_count = (int64_t)json_array_size(chunks);
    if ((uint64_t)f->chunk_count != f->bytes / SL_CHECKPOINT_CHUNK + (f->bytes % SL_CHECKPOINT_CHUNK != 0))
        return malformed(p, "%s has %" PRIu64 " bytes and %" PRId64 " checksums", f->name, f->bytes, f->chunk_count);
    f->chunks = sl_arena_array(&p->m->arena, (size_t)f->chunk_count, sizeof *f->chunks);
    if (f->chunks == NULL) return SLUICE_ERR_NO_MEMORY;
    json_array_foreach(chunks, i, chunk)
    {
        if (!json_is_string(chunk) || !parse_digits(json_string_value(chunk), 16, &f->chunks[i]))
            return malformed(p, "%s: checksum %zu is not a number", f->name, i);
    }
    return SLUICE_OK;
}

/* Optional: the rows of a tensor under the names that weights files have for them; together all of them. */
static sluice_status parse_parts(const parser *p, const json_t *object, sl_state_tensor *t)
{
    json_t *array = NULL;
    if (json_object_get(object, "parts") == NULL) return SLUICE_OK;
    SL_TRY(get_array(p, object, "parts", &array));
    size_t count = json_array_size(array);
    int64_t rows = 0, all = t->shape.rank > 0 ? t->shape.dim[0] : 0;
    sl_part *parts = sl_arena_array(&p->m->arena, count + 1, sizeof *parts);
    if (parts == NULL) return SLUICE_ERR_NO_MEMORY;
    for (size_t i = 0; i < count && count <= SL_MAX_ROW_PARTS; i++) {
        const json_t *part = json_array_get(array, i);
        SL_TRY(get_string(p, part, "name", &parts[i].name));
        SL_TRY(get_integer(p, part, "rows", all - rows, &parts[i].rows));
        rows += parts[i].rows;
    }
    if (count < 1 || rows != all)
        return malformed(p, "the parts of tensor %s are not all of its rows", sl_quote(t->name).text);
    t->parts = parts;
    t->part_count = (int)count;
    return SLUICE_OK;
}

static sluice_status parse_tensor(const parser *p, const json_t *object, sl_state_tensor *t)
{
    const char *dtype;
    json_t *shape = NULL, *dim;
    size_t i;
    SL_TRY(get_string(p, object, "name", &t->name));
    SL_TRY(get_string(p, object, "kind", &t->kind));
    SL_TRY(get_string(p, object, "dtype", &dtype));
    SL_TRY(get_array(p, object, "shape", &shape));
    if (!is_plain_name(t->kind)) return malformed(p, "%s is no kind of tensor", sl_quote(t->kind).text);
    if (strcmp(dtype, "f32") != 0)
        return malformed(p, "tensor %s has the unknown dtype %s", sl_quote(t->name).text, sl_quote(dtype).text);
    if (json_array_size(shape) > SL_MAX_RANK)
        return malformed(p, "tensor %s has more than %d dimensions", sl_quote(t->name).text, SL_MAX_RANK);
    t->elements = 1;
    json_array_foreach(shape, i, dim)
    {
        int64_t n = json_is_integer(dim) ? json_integer_value(dim) : -1;
        if (n < 0 || !sl_mul_u64(t->elements, (uint64_t)n, &t->elements) || t->elements > INT64_MAX / sizeof(float))
            return malformed(p, "tensor %s has a shape that is none", sl_quote(t->name).text);
        t->shape.dim[t->shape.rank++] = n;
    }
    return parse_parts(p, object, t);
}

static sluice_status parse_piece(const parser *p, const json_t *object, sl_manifest_piece *piece)
{
    int64_t first, count, offset;
    SL_TRY(get_integer(p, object, "tensor", p->m->tensor_count - 1, &piece->tensor));
    SL_TRY(get_integer(p, object, "file", p->m->file_count - 1, &piece->file));
    const sl_state_tensor *t = &p->m->tensors[piece->tensor];
    const sl_manifest_file *f = &p->m->files[piece->file];
    SL_TRY(get_integer(p, object, "first", (int64_t)t->elements, &first));
    SL_TRY(get_integer(p, object, "count", (int64_t)t->elements - first, &count));
    SL_TRY(get_integer(p, object, "offset", (int64_t)f->bytes, &offset));
    piece->first = (uint64_t)first;
    piece->count = (uint64_t)count;
    piece->offset = (uint64_t)offset;
    if (piece->offset % SL_PIECE_ALIGNMENT != 0 || piece->count * sizeof(float) > f->bytes - piece->offset)
        return malformed(p, "a piece of tensor %s does not lie inside %s", sl_quote(t->name).text, f->name);
    return SLUICE_OK;
}

static sluice_status parse_files(const parser *p, const json_t *root)
{
    json_t *array = NULL;
    SL_TRY(get_array(p, root, "files", &array));
    p->m->file_count = (int64_t)json_array_size(array);
    p->m->files = sl_arena_array(&p->m->arena, (size_t)p->m->file_count, sizeof *p->m->files);
    if (p->m->files == NULL) return SLUICE_ERR_NO_MEMORY;
    for (int64_t i = 0; i < p->m->file_count; i++)
        SL_TRY(parse_file(p, json_array_get(array, (size_t)i), &p->m->files[i]));
    return SLUICE_OK;
}

static sluice_status parse_tensors(const parser *p, const json_t *root)
{
    json_t *array = NULL;
    SL_TRY(get_array(p, root, "tensors", &array));
    p->m->tensor_count = (int64_t)json_array_size(array);
    p->m->tensors = sl_arena_array(&p->m->arena, (size_t)p->m->tensor_count, sizeof *p->m->tensors);
    if (p->m->tensors == NULL) return SLUICE_ERR_NO_MEMORY;
    for (int64_t i = 0; i < p->m->tensor_count; i++)
        SL_TRY(parse_tensor(p, json_array_get(array, (size_t)i), &p->m->tensors[i]));
    return SLUICE_OK;
}

static sluice_status parse_pieces(const parser *p, const json_t *root)
{
    json_t *array = NULL;
    SL_TRY(get_array(p, root, "pieces", &array));
    p->m->piece_count = (int64_t)json_array_size(array);
    p->m->pieces = sl_arena_array(&p->m->arena, (size_t)p->m->piece_count, sizeof *p->m->pieces);
    if (p->m->pieces == NULL) return SLUICE_ERR_NO_MEMORY;
    for (int64_t i = 0; i < p->m->piece_count; i++)
        SL_TRY(parse_piece(p, json_array_get(array, (size_t)i), &p->m->pieces[i]));
    return SLUICE_OK;
}

/* In their files pieces follow one another without overlap: readers rely on it to go through a file once. */
static sluice_status check_order(const parser *p)
{
    for (int64_t i = 1; i < p->m->piece_count; i++) {
        const sl_manifest_piece *a = &p->m->pieces[i - 1], *b = &p->m->pieces[i];
        if (b->file < a->file || (b->file == a->file && b->offset < sl_piece_end(a)))
            return malformed(p, "pieces %" PRId64 " and %" PRId64 " overlap", i - 1, i);
    }
    return SLUICE_OK;
}

static int compare_ranges(const void *pa, const void *pb)
{
    const sl_manifest_piece *a = *(const sl_manifest_piece *const *)pa, *b = *(const sl_manifest_piece *const *)pb;
    if (a->tensor != b->tensor) return a->tensor < b->tensor ? -1 : 1;
    if (a->first != b->first) return a->first < b->first ? -1 : 1;
    return (a->count > b->count) - (a->count < b->count);
}

/* Walks the pieces by tensor and element: each must begin where the one before ended. */
static sluice_status check_ranges(const parser *p, const sl_manifest_piece *const *sorted)
{
    int64_t next = 0;
    for (int64_t i = 0; i < p->m->tensor_count; i++) {
        const sl_state_tensor *t = &p->m->tensors[i];
        uint64_t covered = 0;
        for (; next < p->m->piece_count && sorted[next]->tensor == i && sorted[next]->first == covered; next++)
            covered += sorted[next]->count;
        if (covered != t->elements || (next < p->m->piece_count && sorted[next]->tensor == i))
            return malformed(p, "the pieces of tensor %s do not cover it once", sl_quote(t->name).text);
    }
    return SLUICE_OK;
}

sluice_status sl_manifest_sort_pieces(const sl_manifest *m, const sl_manifest_piece ***out)
{
    size_t count = (size_t)m->piece_count;
    const sl_manifest_piece **sorted = sl_alloc_array(count, sizeof *sorted, "checkpoint pieces");
    if (sorted == NULL) return SLUICE_ERR_NO_MEMORY;
    for (size_t i = 0; i < count; i++) sorted[i] = &m->pieces[i];
    if (count > 0) qsort(sorted, count, sizeof *sorted, compare_ranges);
    *out = sorted;
    return SLUICE_OK;
}

static sluice_status check_coverage(const parser *p)
{
    const sl_manifest_piece **sorted;
    SL_TRY(sl_manifest_sort_pieces(p->m, &sorted));
    sluice_status st = check_ranges(p, sorted);
    sl_free((void *)sorted);
    return st;
}

static sluice_status parse_root(const parser *p, const json_t *root)
{
    if (!json_is_object(root)) return malformed(p, "it is not an object");
    SL_TRY(get_integer(p, root, "format", INT64_MAX, &p->m->format));
    SL_TRY(get_string(p, root, "sluice", &p->m->version));
    if (!is_plain_name(p->m->version)) return malformed(p, "%s is no version", sl_quote(p->m->version).text);
    if (p->m->format != SL_CHECKPOINT_FORMAT) return SLUICE_OK;
    SL_TRY(get_integer(p, root, "ranks", INT64_MAX, &p->m->ranks));
    SL_TRY(parse_meta(p, root));
    SL_TRY(parse_vocabulary(p, root));
    SL_TRY(parse_files(p, root));
    SL_TRY(parse_tensors(p, root));
    SL_TRY(parse_pieces(p, root));
    SL_TRY(check_order(p));
    return check_coverage(p);
}

/* The text ends with the line ` "xxh3": "<16 digits>"` and `}`; the digits are the hash of all that comes before the
 * line. */
static sluice_status check_text(const char *path, const char *text, size_t bytes)
{
    char line[64];
    size_t line_bytes = (size_t)snprintf(line, sizeof line, " \"xxh3\": \"%016x\"\n}\n", 0);
    if (bytes < line_bytes)
        return sl_fail(SLUICE_ERR_INPUT, "%s is damaged: %zu bytes, its end is missing", path, bytes);
    size_t body = bytes - line_bytes;
    snprintf(line, sizeof line, " \"xxh3\": \"%016" PRIx64 "\"\n}\n", (uint64_t)XXH3_64bits(text, body));
    if (memcmp(text + body, line, line_bytes) == 0) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_INPUT, "%s is damaged: its text does not match its checksum", path);
}

static sluice_status parse_text(sl_manifest *m, const char *path, const char *text, size_t bytes)
{
    parser p = { m, path };
    json_t *root = NULL;
    SL_TRY(check_text(path, text, bytes));
    m->checksum = XXH3_64bits(text, bytes);
    SL_TRY(sl_json_parse(text, bytes, path, SLUICE_ERR_INPUT, &root));
    sluice_status st = parse_root(&p, root);
    json_decref(root);
    return st;
}

/* A folder renamed by hand would break the order of checkpoints. */
static sluice_status check_step(const sl_manifest *m, const char *path, const uint64_t *step)
{
    if (step == NULL || m->format != SL_CHECKPOINT_FORMAT || m->meta.step == *step) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_INPUT, "%s is damaged: it is of step %" PRIu64, path, m->meta.step);
}

sluice_status sl_manifest_read(const char *folder, const uint64_t *step, sl_manifest **out)
{
    char *text;
    size_t bytes;
    sl_manifest *m = sl_alloc(sizeof *m, "checkpoint manifest");
    if (m == NULL) return SLUICE_ERR_NO_MEMORY;
    sl_arena_init(&m->arena, "checkpoint manifest");
    char *path = sl_arena_printf(&m->arena, "%s/" SL_MANIFEST_NAME, folder);
    sluice_status st = path == NULL ? SLUICE_ERR_NO_MEMORY : sl_file_read_all(path, SL_JSON_MAX_BYTES, &text, &bytes);
    if (st != SLUICE_OK) goto free_manifest;
    st = parse_text(m, path, text, bytes);
    if (st == SLUICE_OK) st = check_step(m, path, step);
    sl_free(text);
    if (st != SLUICE_OK) goto free_manifest;
    *out = m;
    return SLUICE_OK;
free_manifest:
    sl_manifest_free(m);
    return st;
}

void sl_manifest_free(sl_manifest *m)
{
    if (m == NULL) return;
    sl_arena_free(&m->arena);
    sl_free(m);
}

sluice_status sl_manifest_check_format(const sl_manifest *m, const char *folder)
{
    if (m->format == SL_CHECKPOINT_FORMAT) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_INPUT,
                   "%s: checkpoint format %" PRId64
                   ", written by sluice %s; this is sluice %s, which reads format %d: use a newer one",
                   folder, m->format, m->version, sluice_version(), SL_CHECKPOINT_FORMAT);
}
