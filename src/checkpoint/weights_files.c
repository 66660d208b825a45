/* weights_files.c: see weights_files.h. */
#include "checkpoint/weights_files.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "comm/agree.h"
#include "core/alloc.h"
#include "core/output.h"
#include "format/text_buffer.h"

#define ENDING ".safetensors"

/* ---- Which tensors are in which file ---- */

/* In the file. */
static uint64_t weight_bytes(const sl_weights_files *w, int64_t tensor)
{
    const sl_state_tensor *t = &w->state->tensors[tensor];
    if (!sl_state_is_in_files(t)) return 0;
    return t->elements * (sl_state_is_weight(t) && w->state->file_type != SLUICE_F32 ? 2 : 4);
}

/* The end of the run of tensors that begins with `begin`: as many as fit, and at least one weight. */
static int64_t run_end(const sl_weights_files *w, int64_t begin)
{
    uint64_t bytes = 0;
    int64_t i = begin;
    if (w->shard_bytes == 0) return w->state->count;
    for (; i < w->state->count; i++) {
        uint64_t more = weight_bytes(w, i);
        if (bytes > 0 && more > 0 && more > w->shard_bytes - (bytes < w->shard_bytes ? bytes : w->shard_bytes)) break;
        bytes += more;
    }
    return i;
}

void sl_weights_files_plan(sl_weights_files *w, const sl_state *state, const char *path, uint64_t shard_bytes)
{
    *w = (sl_weights_files){ .state = state, .path = path, .shard_bytes = shard_bytes };
    for (int64_t begin = 0; begin < state->count; begin = run_end(w, begin)) w->file_count++;
    if (w->file_count == 0) w->file_count = 1;
}

/* ---- Names ---- */

/* The path without its ending, which is put back at the end of each name. */
static int stem_bytes(const char *path)
{
    size_t bytes = strlen(path), ending = strlen(ENDING);
    bool ends = bytes > ending && strcmp(path + bytes - ending, ENDING) == 0;
    return (int)(ends ? bytes - ending : bytes);
}

static sluice_status check_length(const char *path, int bytes)
{
    if (bytes >= 0 && bytes < PATH_MAX) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_USAGE, "the path of the weights to write is too long: %.80s...; use a shorter one", path);
}

sluice_status sl_weights_files_path(const sl_weights_files *w, int number, char path[PATH_MAX])
{
    int bytes = w->file_count == 1 ? snprintf(path, PATH_MAX, "%s", w->path)
                                   : snprintf(path, PATH_MAX, "%.*s-%05d-of-%05d" ENDING, stem_bytes(w->path), w->path,
                                              number, w->file_count);
    return check_length(w->path, bytes);
}

sluice_status sl_weights_files_index(const sl_weights_files *w, char path[PATH_MAX])
{
    return check_length(w->path, snprintf(path, PATH_MAX, "%.*s" ENDING ".index.json", stem_bytes(w->path), w->path));
}

bool sl_weights_files_have_index(const sl_weights_files *w)
{
    return w->file_count > 1;
}

/* ---- Writing ---- */

/* An old index goes; where it is a link, what that leads to. */
static sluice_status remove_index(const sl_weights_files *w)
{
    char index[PATH_MAX];
    sl_target target;
    if (!sl_weights_files_have_index(w)) return SLUICE_OK;
    SL_TRY(sl_weights_files_index(w, index));
    SL_TRY(sl_target_find(index, &target));
    return sl_path_remove(target.path);
}

static sluice_status finish_file(sl_weights_files *w, int number, int64_t begin, int64_t end)
{
    char path[PATH_MAX];
    int64_t tensors = 0;
    uint64_t bytes = 0;
    sl_st_writer *writer = w->writers[number - 1];
    if (writer == NULL) return SLUICE_OK;
    w->writers[number - 1] = NULL;
    SL_TRY(sl_st_write_finish(writer));
    if (w->tell == NULL) return SLUICE_OK;
    for (int64_t i = begin; i < end; i++) {
        const sl_state_tensor *t = &w->state->tensors[i];
        if (sl_state_is_in_files(t)) tensors += t->part_count > 0 ? t->part_count : 1;
        bytes += weight_bytes(w, i);
    }
    SL_TRY(sl_weights_files_path(w, number, path));
    w->tell(w->user, path, tensors, bytes);
    return SLUICE_OK;
}

sluice_status sl_weights_files_write(sl_weights_files *w, sl_gather *g)
{
    int64_t begin = 0;
    SL_TRY(remove_index(w));
    w->writers = sl_alloc_array((size_t)w->file_count, sizeof *w->writers, "files of weights");
    if (w->writers == NULL) return SLUICE_ERR_NO_MEMORY;
    for (int number = 1; number <= w->file_count; number++) {
        int64_t end = run_end(w, begin);
        char path[PATH_MAX];
        SL_TRY(sl_weights_files_path(w, number, path));
        SL_TRY(sl_weights_write(g, begin, end, path, &w->writers[number - 1]));
        if (!sl_has_peers(w->state->comm)) SL_TRY(finish_file(w, number, begin, end));
        begin = end;
    }
    return SLUICE_OK;
}

/* ---- The index ---- */

static void add_name(const sl_weights_files *w, sl_text *text, const char *name, const char *file)
{
    char full[SL_MAX_NAME_BYTES + 64];
    sl_text_add(text, "%s\n    ", text->data != NULL && text->data[text->bytes - 1] == '{' ? "" : ",");
    sl_text_add_string(text, sl_state_file_name(w->state, name, full, sizeof full));
    sl_text_add(text, ": ");
    sl_text_add_string(text, file);
}

/* Adds `"name": "file"` for the weights of one file. */
static sluice_status add_file(const sl_weights_files *w, sl_text *text, int number, int64_t begin, int64_t end)
{
    char path[PATH_MAX];
    SL_TRY(sl_weights_files_path(w, number, path));
    const char *slash = strrchr(path, '/'), *file = slash != NULL ? slash + 1 : path;
    for (int64_t i = begin; i < end; i++) {
        const sl_state_tensor *t = &w->state->tensors[i];
        if (!sl_state_is_in_files(t)) continue;
        if (t->part_count == 0) add_name(w, text, t->name, file);
        for (int k = 0; k < t->part_count; k++) add_name(w, text, t->parts[k].name, file);
    }
    return sl_text_status(text);
}

static sluice_status make_index(const sl_weights_files *w, sl_text *text)
{
    uint64_t bytes = 0, elements = 0;
    for (int64_t i = 0; i < w->state->count; i++) {
        bytes += weight_bytes(w, i);
        if (sl_state_is_weight(&w->state->tensors[i])) elements += w->state->tensors[i].elements;
    }
    sl_text_add(text,
                "{\n  \"metadata\": {\n    \"total_parameters\": %" PRIu64 ",\n    \"total_size\": %" PRIu64
                "\n  },\n  \"weight_map\": {",
                elements, bytes);
    SL_TRY(sl_text_status(text));
    int number = 1;
    for (int64_t begin = 0; begin < w->state->count; number++) {
        int64_t end = run_end(w, begin);
        SL_TRY(add_file(w, text, number, begin, end));
        begin = end;
    }
    sl_text_add(text, "\n  }\n}\n");
    return sl_text_status(text);
}

static sluice_status write_index(sl_weights_files *w)
{
    char path[PATH_MAX];
    sl_text text = { 0 };
    SL_TRY(sl_weights_files_index(w, path));
    sluice_status st = make_index(w, &text);
    if (st == SLUICE_OK) st = sl_file_replace(path, text.data, text.bytes);
    sl_text_free(&text);
    if (st == SLUICE_OK && w->tell != NULL) w->tell(w->user, path, 0, 0);
    return st;
}

static sluice_status finish_all(sl_weights_files *w)
{
    int64_t begin = 0;
    for (int number = 1; number <= w->file_count; number++) {
        int64_t end = run_end(w, begin);
        SL_TRY(finish_file(w, number, begin, end));
        begin = end;
    }
    return sl_weights_files_have_index(w) ? write_index(w) : SLUICE_OK;
}

sluice_status sl_weights_files_finish(sl_weights_files *w)
{
    sluice_status st = finish_all(w);
    sl_weights_files_abort(w);
    return st;
}

void sl_weights_files_abort(sl_weights_files *w)
{
    for (int i = 0; w->writers != NULL && i < w->file_count; i++) sl_st_write_abort(w->writers[i]);
    sl_free((void *)w->writers);
    w->writers = NULL;
}
