/* weights_index.c: the index is walked once in place (scan.h); strings are decoded where they lie. */
#include "format/weights_index.h"

#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/grow.h"
#include "core/io.h"
#include "core/quote.h"
#include "format/safetensors.h"
#include "format/scan.h"
#include "format/weights_set.h"

typedef struct index_reader {
    sl_weights_index *x;
    const char *path;
    sl_scan scan; /* over x->text */
    bool map_seen;
} index_reader;

static sluice_status refuse_syntax(const index_reader *r)
{
    int line, column;
    sl_scan_position(r->scan.text, r->scan.at, &line, &column);
    return sl_fail(SLUICE_ERR_INPUT, "%s, line %d, column %d: %s", r->path, line, column, r->scan.fault);
}

static sluice_status take_string(index_reader *r, const char **out)
{
    size_t begin, end;
    if (!sl_scan_string(&r->scan, &begin, &end)) return refuse_syntax(r);
    char *text = r->x->text + begin;
    size_t length = sl_scan_decode(text, end - begin, text);
    if (memchr(text, '\0', length) != NULL)
        return sl_fail(SLUICE_ERR_INPUT, "%s: a name in it contains a NUL", r->path);
    text[length] = '\0';
    *out = text;
    return SLUICE_OK;
}

/* A file beside the index, and nothing else: an index is a stranger's, and must not reach other folders. Its name is printed,
 * so that control characters are no part of it. */
static sluice_status check_file_name(const index_reader *r, const sl_index_entry *e)
{
    const char *name = e->file;
    bool plain = strchr(name, '/') == NULL && strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
    if (plain && strlen(name) <= NAME_MAX && sl_text_name_fault(name).text[0] == '\0') return SLUICE_OK;
    return sl_fail(SLUICE_ERR_INPUT,
                   "%s: tensor %s is said to be in %s, which is not the name of a file beside the index", r->path,
                   sl_quote(e->tensor).text, sl_quote(name).text);
}

static sluice_status add_entry(index_reader *r, const sl_index_entry *e)
{
    sl_weights_index *x = r->x;
    if (x->count == SL_ST_MAX_TENSORS)
        return sl_fail(SLUICE_ERR_INPUT, "%s names more than %d tensors", r->path, SL_ST_MAX_TENSORS);
    SL_TRY(SL_GROW(x->entries, x->capacity, x->count + 1, 64, "index of weights"));
    x->entries[x->count++] = *e;
    return SLUICE_OK;
}

static sluice_status parse_entry(index_reader *r)
{
    sl_index_entry e;
    SL_TRY(take_string(r, &e.tensor));
    if (!sl_scan_take(&r->scan, ':')) return refuse_syntax(r);
    sl_scan_space(&r->scan);
    if (r->scan.at < r->scan.bytes && r->scan.text[r->scan.at] != '"')
        return sl_fail(SLUICE_ERR_INPUT, "%s: the file of tensor %s is not a string", r->path, sl_quote(e.tensor).text);
    SL_TRY(take_string(r, &e.file));
    SL_TRY(check_file_name(r, &e));
    return add_entry(r, &e);
}

static sluice_status parse_map(index_reader *r)
{
    if (r->map_seen) return sl_fail(SLUICE_ERR_INPUT, "%s: weight_map is given twice", r->path);
    r->map_seen = true;
    if (!sl_scan_take(&r->scan, '{')) return sl_fail(SLUICE_ERR_INPUT, "%s: weight_map is not an object", r->path);
    if (sl_scan_accept(&r->scan, '}')) return SLUICE_OK;
    do SL_TRY(parse_entry(r));
    while (sl_scan_accept(&r->scan, ','));
    return sl_scan_take(&r->scan, '}') ? SLUICE_OK : refuse_syntax(r);
}

/* One key of the whole and its value; what has no meaning here is only checked to be JSON. */
static sluice_status parse_member(index_reader *r)
{
    const char *key;
    SL_TRY(take_string(r, &key));
    if (!sl_scan_take(&r->scan, ':')) return refuse_syntax(r);
    if (strcmp(key, "weight_map") == 0) return parse_map(r);
    return sl_scan_skip(&r->scan, 1) ? SLUICE_OK : refuse_syntax(r);
}

static sluice_status parse_index(index_reader *r)
{
    if (!sl_scan_take(&r->scan, '{')) return refuse_syntax(r);
    if (!sl_scan_accept(&r->scan, '}')) {
        do SL_TRY(parse_member(r));
        while (sl_scan_accept(&r->scan, ','));
        if (!sl_scan_take(&r->scan, '}')) return refuse_syntax(r);
    }
    sl_scan_space(&r->scan);
    if (r->scan.at != r->scan.bytes) {
        r->scan.fault = "nothing may follow the closing '}'";
        return refuse_syntax(r);
    }
    if (!r->map_seen) return sl_fail(SLUICE_ERR_INPUT, "%s is no index of weights: it has no weight_map", r->path);
    return r->x->count > 0 ? SLUICE_OK : sl_fail(SLUICE_ERR_INPUT, "%s: weight_map is empty", r->path);
}

static int compare_places(const void *pa, const void *pb)
{
    const sl_index_entry *a = pa, *b = pb;
    int files = strcmp(a->file, b->file);
    return files != 0 ? files : strcmp(a->tensor, b->tensor);
}

static int compare_tensors(const void *a, const void *b)
{
    return strcmp((*(const sl_index_entry *const *)a)->tensor, (*(const sl_index_entry *const *)b)->tensor);
}

static sluice_status sort_entries(index_reader *r)
{
    sl_weights_index *x = r->x;
    qsort(x->entries, (size_t)x->count, sizeof *x->entries, compare_places);
    x->by_tensor = sl_alloc_array((size_t)x->count, sizeof *x->by_tensor, "index of weights");
    if (x->by_tensor == NULL) return SLUICE_ERR_NO_MEMORY;
    for (int64_t i = 0; i < x->count; i++) x->by_tensor[i] = &x->entries[i];
    qsort((void *)x->by_tensor, (size_t)x->count, sizeof *x->by_tensor, compare_tensors);
    for (int64_t i = 1; i < x->count; i++)
        if (strcmp(x->by_tensor[i - 1]->tensor, x->by_tensor[i]->tensor) == 0)
            return sl_fail(SLUICE_ERR_INPUT, "%s: tensor %s is given twice, in %s and in %s", r->path,
                           sl_quote(x->by_tensor[i]->tensor).text, sl_quote(x->by_tensor[i - 1]->file).text,
                           sl_quote(x->by_tensor[i]->file).text);
    return SLUICE_OK;
}

static sluice_status read_text(index_reader *r)
{
    size_t bytes, bad;
    SL_TRY(sl_file_read_all(r->path, SL_SET_MAX_INDEX, &r->x->text, &bytes));
    if (!sl_utf8_valid(r->x->text, bytes, &bad))
        return sl_fail(SLUICE_ERR_INPUT, "%s, byte %zu: not valid UTF-8", r->path, bad);
    r->scan = (sl_scan){ .text = r->x->text, .bytes = bytes };
    SL_TRY(parse_index(r));
    return sort_entries(r);
}

sluice_status sl_weights_index_read(const char *path, sl_weights_index *out)
{
    sl_weights_index x = { 0 };
    index_reader r = { .x = &x, .path = path };
    sluice_status st = read_text(&r);
    if (st == SLUICE_OK)
        *out = x;
    else
        sl_weights_index_free(&x);
    return st;
}

void sl_weights_index_free(sl_weights_index *x)
{
    sl_free(x->text);
    sl_free(x->entries);
    sl_free((void *)x->by_tensor);
    *x = (sl_weights_index){ 0 };
}

const sl_index_entry *sl_weights_index_find(const sl_weights_index *x, const char *tensor)
{
    const sl_index_entry key = { .tensor = tensor }, *wanted = &key;
    const sl_index_entry **found =
        bsearch(&wanted, (const void *)x->by_tensor, (size_t)x->count, sizeof *x->by_tensor, compare_tensors);
    return found != NULL ? *found : NULL;
}
