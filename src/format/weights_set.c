/* weights_set.c: see weights_set.h. */
#include "format/weights_set.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "format/weights_index.h"

/* ---- tensors of all files ---- */

static int compare_tensors(const void *pa, const void *pb)
{
    const sl_set_tensor *a = pa, *b = pb;
    return strcmp(a->name, b->name);
}

static void sort_tensors(sl_weights_set *s)
{
    if (s->tensor_count > 0) qsort(s->tensors, (size_t)s->tensor_count, sizeof *s->tensors, compare_tensors);
}

/* A name that stands twice in the sorted list; NULL: none does. */
static const sl_set_tensor *find_twice(const sl_weights_set *s)
{
    for (int64_t i = 1; i < s->tensor_count; i++)
        if (strcmp(s->tensors[i - 1].name, s->tensors[i].name) == 0) return &s->tensors[i];
    return NULL;
}

static sluice_status list_tensors(sl_weights_set *s)
{
    int64_t count = 0;
    for (int64_t i = 0; i < s->file_count; i++) count += s->files[i]->tensor_count;
    s->tensors = sl_arena_array(&s->arena, (size_t)count + 1, sizeof *s->tensors);
    if (s->tensors == NULL) return SLUICE_ERR_NO_MEMORY;
    for (int64_t i = 0; i < s->file_count; i++)
        for (int64_t k = 0; k < s->files[i]->tensor_count; k++) {
            const sl_st_tensor *t = &s->files[i]->tensors[k];
            s->tensors[s->tensor_count++] = (sl_set_tensor){ t->name, s->files[i], t };
        }
    sort_tensors(s);
    const sl_set_tensor *twice = find_twice(s);
    if (twice == NULL) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_INPUT, "%s: tensor %s is in two files, %s and %s", s->path, sl_quote(twice->name).text,
                   twice[-1].file->file.path, twice->file->file.path);
}

/* ---- files of an index ---- */

static sluice_status refuse_length(const char *path)
{
    return sl_fail(SLUICE_ERR_INPUT, "the path of the weights is too long: %.80s...; use a shorter one", path);
}

static sluice_status join(const char *folder, const char *name, char path[PATH_MAX])
{
    size_t length = strlen(folder);
    const char *slash = length > 0 && folder[length - 1] == '/' ? "" : "/";
    int bytes = snprintf(path, PATH_MAX, "%s%s%s", folder, slash, name);
    return bytes >= 0 && bytes < PATH_MAX ? SLUICE_OK : refuse_length(folder);
}

/* The entry's file, which must be there. */
static sluice_status open_named(sl_weights_set *s, const sl_index_entry *e)
{
    const char *slash = strrchr(s->index, '/');
    int folder = slash != NULL ? (int)(slash + 1 - s->index) : 0;
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%.*s%s", folder, s->index, e->file) >= (int)sizeof path)
        return refuse_length(s->index);
    if (!sl_path_exists(path))
        return sl_fail(SLUICE_ERR_INPUT, "%s: %s is missing, in which it says that tensor %s and perhaps others are",
                       s->index, path, sl_quote(e->tensor).text);
    SL_TRY(sl_st_open(path, &s->files[s->file_count]));
    s->file_count++;
    return SLUICE_OK;
}

/* Every entry's tensor is in its file. Entries are in the order of files, and files were opened in that order. */
static sluice_status check_entries(const sl_weights_set *s, const sl_weights_index *index)
{
    int64_t at = 0;
    for (int64_t i = 0; i < index->count; i++) {
        const sl_index_entry *e = &index->entries[i];
        if (i > 0 && strcmp(e->file, index->entries[i - 1].file) != 0) at++;
        if (sl_st_find(s->files[at], e->tensor) != NULL) continue;
        return sl_fail(SLUICE_ERR_INPUT, "%s: it says that tensor %s is in %s, which does not hold it", s->index,
                       sl_quote(e->tensor).text, s->files[at]->file.path);
    }
    return SLUICE_OK;
}

/* Every tensor of the files was named: as many as there are entries, since the entries were all found. */
static sluice_status check_unnamed(const sl_weights_set *s, const sl_weights_index *index)
{
    if (s->tensor_count == index->count) return SLUICE_OK;
    for (int64_t i = 0; i < s->tensor_count; i++)
        if (sl_weights_index_find(index, s->tensors[i].name) == NULL)
            return sl_fail(SLUICE_ERR_INPUT, "%s holds tensor %s, which %s does not name",
                           s->tensors[i].file->file.path, sl_quote(s->tensors[i].name).text, s->index);
    return SLUICE_OK;
}

static sluice_status open_files(sl_weights_set *s, const sl_weights_index *index)
{
    int64_t files = 0;
    for (int64_t i = 0; i < index->count; i++)
        files += i == 0 || strcmp(index->entries[i].file, index->entries[i - 1].file) != 0;
    if (files > SL_SET_MAX_FILES)
        return sl_fail(SLUICE_ERR_INPUT, "%s names %" PRId64 " files, at most %d are allowed", s->index, files,
                       SL_SET_MAX_FILES);
    s->files = sl_arena_array(&s->arena, (size_t)files + 1, sizeof *s->files);
    if (s->files == NULL) return SLUICE_ERR_NO_MEMORY;
    for (int64_t i = 0; i < index->count; i++)
        if (i == 0 || strcmp(index->entries[i].file, index->entries[i - 1].file) != 0)
            SL_TRY(open_named(s, &index->entries[i]));
    return SLUICE_OK;
}

static sluice_status open_index(sl_weights_set *s)
{
    sl_weights_index index;
    SL_TRY(sl_weights_index_read(s->index, &index));
    sluice_status st = open_files(s, &index);
    if (st == SLUICE_OK) st = check_entries(s, &index);
    if (st == SLUICE_OK) st = list_tensors(s);
    if (st == SLUICE_OK) st = check_unnamed(s, &index);
    sl_weights_index_free(&index);
    return st;
}

static sluice_status open_single(sl_weights_set *s, const char *path)
{
    s->files = sl_arena_array(&s->arena, 1, sizeof *s->files);
    if (s->files == NULL) return SLUICE_ERR_NO_MEMORY;
    SL_TRY(sl_st_open(path, &s->files[0]));
    s->file_count = 1;
    return list_tensors(s);
}

/* ---- what a path is ---- */

static bool is_folder(const char *path)
{
    sl_path_info there;
    return sl_path_look(path, &there) == SLUICE_OK && there.kind == SL_PATH_FOLDER;
}

static bool folder_has(const char *folder, const char *name)
{
    char path[PATH_MAX];
    return join(folder, name, path) == SLUICE_OK && sl_path_exists(path);
}

bool sl_is_weights_folder(const char *path)
{
    return is_folder(path) && (folder_has(path, SL_WEIGHTS_FILE) || folder_has(path, SL_WEIGHTS_INDEX));
}

/* Weights of a folder in a form that is not read. */
static sluice_status refuse_folder(const char *path)
{
    static const char *const pickles[] = { "pytorch_model.bin", "pytorch_model.bin.index.json", "consolidated.00.pth" };
    for (size_t i = 0; i < sizeof pickles / sizeof pickles[0]; i++)
        if (folder_has(path, pickles[i]))
            return sl_fail(SLUICE_ERR_INPUT,
                           "%s holds %s, but no " SL_WEIGHTS_FILE
                           ": pickles can run code and are not read. Let transformers write the folder anew: "
                           "AutoModelForCausalLM.from_pretrained(FOLDER).save_pretrained(OUT)",
                           path, pickles[i]);
    return sl_fail(SLUICE_ERR_INPUT, "%s holds no weights: neither " SL_WEIGHTS_FILE " nor " SL_WEIGHTS_INDEX, path);
}

static bool ends_in(const char *path, const char *ending)
{
    size_t bytes = strlen(path), length = strlen(ending);
    return bytes > length && strcmp(path + bytes - length, ending) == 0;
}

static sluice_status open_folder(sl_weights_set *s)
{
    const char *path = s->path;
    if (folder_has(path, SL_WEIGHTS_FILE)) {
        char file[PATH_MAX];
        SL_TRY(join(path, SL_WEIGHTS_FILE, file));
        return open_single(s, file);
    }
    if (!folder_has(path, SL_WEIGHTS_INDEX)) return refuse_folder(path);
    char index[PATH_MAX];
    SL_TRY(join(path, SL_WEIGHTS_INDEX, index));
    s->index = sl_arena_strdup(&s->arena, index);
    return s->index != NULL ? open_index(s) : SLUICE_ERR_NO_MEMORY;
}

static sluice_status open_set(sl_weights_set *s, const char *path)
{
    s->path = sl_arena_strdup(&s->arena, path);
    if (s->path == NULL) return SLUICE_ERR_NO_MEMORY;
    if (is_folder(path)) return open_folder(s);
    if (!ends_in(path, ".index.json")) return open_single(s, path);
    s->index = s->path;
    return open_index(s);
}

sluice_status sl_weights_set_open(const char *path, sl_weights_set **out)
{
    sl_weights_set *s = sl_alloc(sizeof *s, "set of weights");
    if (s == NULL) return SLUICE_ERR_NO_MEMORY;
    sl_arena_init(&s->arena, "set of weights");
    sluice_status st = open_set(s, path);
    if (st != SLUICE_OK) {
        sl_weights_set_close(s);
        return st;
    }
    *out = s;
    return SLUICE_OK;
}

void sl_weights_set_close(sl_weights_set *s)
{
    if (s == NULL) return;
    for (int64_t i = 0; i < s->file_count; i++) sl_st_close(s->files[i]);
    sl_arena_free(&s->arena);
    sl_free(s);
}

/* ---- looking and reading ---- */

const sl_set_tensor *sl_weights_set_find(const sl_weights_set *s, const char *name)
{
    const sl_set_tensor key = { .name = name };
    if (s->tensor_count == 0) return NULL;
    return bsearch(&key, s->tensors, (size_t)s->tensor_count, sizeof *s->tensors, compare_tensors);
}

const char *sl_weights_set_metadata(const sl_weights_set *s, const char *key)
{
    for (int64_t i = 0; i < s->file_count; i++)
        for (int64_t k = 0; k < s->files[i]->metadata_count; k++)
            if (strcmp(s->files[i]->metadata[2 * k], key) == 0) return s->files[i]->metadata[2 * k + 1];
    return NULL;
}

sluice_status sl_set_read_f32(const sl_set_tensor *t, int64_t first, int64_t count, float *out)
{
    return sl_st_read_f32(t->file, t->stored, first, count, out);
}

/* ---- prefixes ---- */

static bool begins_with(const char *name, const char *prefix)
{
    return strncmp(name, prefix, strlen(prefix)) == 0;
}

static bool is_outside(const char *name, const char *const *outside)
{
    for (; outside != NULL && *outside != NULL; outside++)
        if (begins_with(name, *outside)) return true;
    return false;
}

/* All the names that are not outside have the prefix (`take`) or all lack it, and there is one. */
static bool is_uniform(const sl_weights_set *s, const char *prefix, bool take, const char *const *outside)
{
    int64_t inside = 0;
    for (int64_t i = 0; i < s->tensor_count; i++) {
        if (is_outside(s->tensors[i].name, outside)) continue;
        if (begins_with(s->tensors[i].name, prefix) != take) return false;
        inside++;
    }
    return inside > 0;
}

sluice_status sl_weights_set_rename(sl_weights_set *s, const char *prefix, bool take, const char *const *outside,
                                    bool *out)
{
    bool done = is_uniform(s, prefix, take, outside);
    sl_set_tensor *before = s->tensors, *after;
    if (!done) {
        *out = false;
        return SLUICE_OK;
    }
    after = sl_arena_array(&s->arena, (size_t)s->tensor_count + 1, sizeof *after);
    if (after == NULL) return SLUICE_ERR_NO_MEMORY;
    for (int64_t i = 0; i < s->tensor_count; i++) {
        after[i] = before[i];
        if (is_outside(before[i].name, outside)) continue;
        after[i].name =
            take ? before[i].name + strlen(prefix) : sl_arena_printf(&s->arena, "%s%s", prefix, before[i].name);
        if (after[i].name == NULL) return SLUICE_ERR_NO_MEMORY;
    }
    s->tensors = after;
    sort_tensors(s);
    *out = find_twice(s) == NULL;
    if (!*out) s->tensors = before;
    return SLUICE_OK;
}
