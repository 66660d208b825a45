/* export.c: a checkpoint's weights as safetensors, in one file or in several with an index as Hugging Face writes it.
 *
 * The weights are verified before the first file is begun, and hashed again as they are read. An index appears only
 * after all its files are in place, and an old one goes before the first of them is replaced: what an index names is
 * always of one export. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "checkpoint/checkpoint_verify.h"
#include "checkpoint/folder.h"
#include "checkpoint/stored.h"
#include "checkpoint/weights.h"
#include "core/alloc.h"
#include "core/bytes.h"
#include "core/output.h"
#include "core/utf8.h"

#define ENDING ".safetensors"

/* ---- Which checkpoint ---- */

static sluice_status verify_weights(const sl_manifest *m, const char *folder)
{
    int64_t *target = sl_alloc_array((size_t)m->tensor_count, sizeof *target, "checkpoint tensors");
    if (target == NULL) return SLUICE_ERR_NO_MEMORY;
    for (int64_t i = 0; i < m->tensor_count; i++) target[i] = sl_state_is_weight(&m->tensors[i]) ? i : -1;
    sluice_status st = sl_verify_data(m, folder, target);
    sl_free(target);
    return st;
}

/* A manifest in a known format whose weights verify. *known is false where it is of another format. */
static sluice_status open_checkpoint(const char *folder, const uint64_t *step, sl_manifest **out, bool *known)
{
    sl_manifest *m = NULL;
    *known = true;
    SL_TRY(sl_manifest_read(folder, step, &m));
    sluice_status st = sl_manifest_check_format(m, folder);
    *known = st == SLUICE_OK;
    if (st == SLUICE_OK) st = verify_weights(m, folder);
    if (st == SLUICE_OK)
        *out = m;
    else
        sl_manifest_free(m);
    return st;
}

/* The newest that verifies; damaged ones are told of and passed over. *out stays NULL where there is none. */
static sluice_status open_newest(const char *folder, const sl_entries *e, FILE *out_text, char path[PATH_MAX],
                                 sl_manifest **out)
{
    char first_fault[SL_MESSAGE_BYTES] = "";
    sluice_status first = SLUICE_OK;
    for (int64_t i = 0; i < e->count; i++) {
        bool known;
        if (e->list[i].kind == SL_ENTRY_TMP) continue;
        SL_TRY(sl_entry_path(folder, e->list[i], path));
        sluice_status st = open_checkpoint(path, &e->list[i].step, out, &known);
        if (st == SLUICE_OK || !known || (st != SLUICE_ERR_INPUT && st != SLUICE_ERR_IO)) return st;
        if (out_text != NULL) fprintf(out_text, "%s: skipped: %s\n", sl_show(path).text, sluice_error());
        if (first == SLUICE_OK) sl_error_copy(first_fault);
        if (first == SLUICE_OK) first = st;
    }
    if (first == SLUICE_OK) return sl_refuse_folder(folder);
    return sl_fail(first, "%s: no checkpoint can be exported; the newest: %s", folder, first_fault);
}

/* A file is no checkpoint: says what it is. */
static sluice_status refuse_file(const char *path)
{
    sl_weights_set *s;
    SL_TRY(sl_weights_set_open(path, &s));
    sl_weights_set_close(s);
    return sl_fail(
        SLUICE_ERR_INPUT,
        "%s is a weights file already; export takes a checkpoint: a folder of checkpoints, or a step-N in it", path);
}

/* *path gets the step's own folder. */
static sluice_status choose(const char *checkpoint, FILE *out_text, char path[PATH_MAX], sl_manifest **out)
{
    sl_entries e;
    bool known;
    if (sl_has_manifest(checkpoint)) {
        snprintf(path, PATH_MAX, "%s", checkpoint); /* its manifest's path fitted */
        return open_checkpoint(path, NULL, out, &known);
    }
    if (sl_path_exists(checkpoint) && !sl_is_folder(checkpoint)) return refuse_file(checkpoint);
    SL_TRY(sl_entries_read(checkpoint, &e));
    sluice_status st = open_newest(checkpoint, &e, out_text, path, out);
    sl_entries_free(&e);
    return st;
}

/* ---- Files ---- */

/* The export at hand. File k of n holds the weights among a run of tensors; runs follow one another. */
typedef struct export
{
    sl_stored stored;
    sl_gather gather;
    const char *path;     /* as the user gave it */
    uint64_t shard_bytes; /* 0: one file */
    int file_count;
    FILE *out; /* may be NULL */
}
export;

/* In the file. */
static uint64_t weight_bytes(const export *x, int64_t tensor)
{
    const sl_state_tensor *t = &x->stored.state.tensors[tensor];
    return sl_state_is_weight(t) ? t->elements * (x->stored.state.file_type == SLUICE_F32 ? 4 : 2) : 0;
}

/* The end of the run of tensors that begins with `begin`: as many as fit, and at least one weight. */
static int64_t run_end(const export *x, int64_t begin)
{
    const sl_state *state = &x->stored.state;
    uint64_t bytes = 0;
    int64_t i = begin;
    if (x->shard_bytes == 0) return state->count;
    for (; i < state->count; i++) {
        uint64_t more = weight_bytes(x, i);
        if (bytes > 0 && more > 0 && more > x->shard_bytes - (bytes < x->shard_bytes ? bytes : x->shard_bytes)) break;
        bytes += more;
    }
    return i;
}

static int count_files(const export *x)
{
    int files = 0;
    for (int64_t begin = 0; begin < x->stored.state.count; begin = run_end(x, begin)) files++;
    return files > 0 ? files : 1;
}

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
    return sl_fail(SLUICE_ERR_USAGE, "the path of the export is too long: %.80s...; use a shorter one", path);
}

static sluice_status file_path(const export *x, int number, char path[PATH_MAX])
{
    int bytes = x->file_count == 1 ? snprintf(path, PATH_MAX, "%s", x->path)
                                   : snprintf(path, PATH_MAX, "%.*s-%05d-of-%05d" ENDING, stem_bytes(x->path), x->path,
                                              number, x->file_count);
    return check_length(x->path, bytes);
}

static sluice_status index_path(const export *x, char path[PATH_MAX])
{
    return check_length(x->path, snprintf(path, PATH_MAX, "%.*s" ENDING ".index.json", stem_bytes(x->path), x->path));
}

/* Tensors that a weight is in a file. */
static int file_tensors(const sl_state_tensor *t)
{
    return t->part_count > 0 ? t->part_count : 1;
}

static void tell(const export *x, const char *path, int64_t begin, int64_t end)
{
    int64_t tensors = 0;
    uint64_t bytes = 0;
    char size[32];
    if (x->out == NULL) return;
    for (int64_t i = begin; i < end; i++) {
        const sl_state_tensor *t = &x->stored.state.tensors[i];
        if (sl_state_is_weight(t)) tensors += file_tensors(t);
        bytes += weight_bytes(x, i);
    }
    fprintf(x->out, "%s: %" PRId64 " tensor%s of step %" PRIu64 ", %s\n", sl_show(path).text, tensors,
            tensors == 1 ? "" : "s", x->stored.m->meta.step, sl_format_bytes(bytes, size, sizeof size));
}

static sluice_status write_file(export *x, int number, int64_t begin, int64_t end)
{
    char path[PATH_MAX];
    sl_st_writer *w;
    SL_TRY(file_path(x, number, path));
    SL_TRY(sl_weights_write(&x->gather, begin, end, path, &w));
    SL_TRY(sl_st_write_finish(w));
    tell(x, path, begin, end);
    return SLUICE_OK;
}

/* Adds `"name": "file"` for the weights of one file. */
static sluice_status add_file(const export *x, sl_text *text, int number, int64_t begin, int64_t end)
{
    char path[PATH_MAX];
    SL_TRY(file_path(x, number, path));
    const char *slash = strrchr(path, '/');
    for (int64_t i = begin; i < end; i++) {
        const sl_state_tensor *t = &x->stored.state.tensors[i];
        for (int k = 0; sl_state_is_weight(t) && k < file_tensors(t); k++) {
            sl_text_add(text, "%s\n    ", text->data[text->bytes - 1] == '{' ? "" : ",");
            sl_text_add_string(text, t->part_count > 0 ? t->parts[k].name : t->name);
            sl_text_add(text, ": ");
            sl_text_add_string(text, slash != NULL ? slash + 1 : path);
        }
    }
    return sl_text_status(text);
}

static sluice_status make_index(const export *x, sl_text *text)
{
    const sl_state *state = &x->stored.state;
    uint64_t total = 0;
    for (int64_t i = 0; i < state->count; i++) total += weight_bytes(x, i);
    sl_text_add(text, "{\n  \"metadata\": {\n    \"total_size\": %" PRIu64 "\n  },\n  \"weight_map\": {", total);
    SL_TRY(sl_text_status(text));
    int number = 1;
    for (int64_t begin = 0; begin < state->count; number++) {
        int64_t end = run_end(x, begin);
        SL_TRY(add_file(x, text, number, begin, end));
        begin = end;
    }
    sl_text_add(text, "\n  }\n}\n");
    return sl_text_status(text);
}

static sluice_status write_index(const export *x, const char *path)
{
    sl_text text = { 0 };
    sluice_status st = make_index(x, &text);
    if (st == SLUICE_OK) st = sl_file_replace(path, text.data, text.bytes);
    sl_text_free(&text);
    if (st == SLUICE_OK && x->out != NULL)
        fprintf(x->out, "%s: index of %d files\n", sl_show(path).text, x->file_count);
    return st;
}

/* An old index goes; where it is a link, what that leads to. */
static sluice_status remove_index(const char *index)
{
    sl_target target;
    SL_TRY(sl_target_find(index, &target));
    return sl_path_remove(target.path);
}

static sluice_status write_files(export *x)
{
    char index[PATH_MAX];
    int64_t begin = 0;
    if (x->file_count == 1) return write_file(x, 1, 0, x->stored.state.count);
    SL_TRY(index_path(x, index));
    SL_TRY(remove_index(index));
    for (int number = 1; number <= x->file_count; number++) {
        int64_t end = run_end(x, begin);
        SL_TRY(write_file(x, number, begin, end));
        begin = end;
    }
    return write_index(x, index);
}

static sluice_status export_weights(export *x)
{
    SL_TRY(sl_gather_open(&x->gather, &x->stored.state));
    return sl_gather_close(&x->gather, write_files(x));
}

/* ---- What may be written ---- */

/* None of the checkpoint's own files is. */
static sluice_status check_output(const char *path, const sl_manifest *m, const char *folder)
{
    char input[PATH_MAX];
    sl_target target;
    bool same = false;
    SL_TRY(sl_target_find(path, &target));
    for (int64_t i = -1; i < m->file_count; i++) {
        SL_TRY(sl_folder_path(folder, i < 0 ? SL_MANIFEST_NAME : m->files[i].name, input));
        SL_TRY(sl_target_is_file(&target, input, &same));
        if (same)
            return sl_fail(SLUICE_ERR_USAGE, "%s is a file of the checkpoint that is exported; write to another file",
                           path);
    }
    return sl_target_try(&target);
}

static sluice_status check_outputs(const export *x, const sl_manifest *m, const char *folder)
{
    char path[PATH_MAX];
    for (int number = 1; number <= x->file_count; number++) {
        SL_TRY(file_path(x, number, path));
        SL_TRY(check_output(path, m, folder));
    }
    if (x->file_count == 1) return SLUICE_OK;
    SL_TRY(index_path(x, path));
    return check_output(path, m, folder);
}

/* Before the checkpoint is verified, which reads all of it: whether there can be files of these names at all. */
static sluice_status try_folder(const export *x)
{
    char path[PATH_MAX];
    sl_target target;
    if (x->shard_bytes > 0)
        SL_TRY(index_path(x, path));
    else
        SL_TRY(check_length(x->path, snprintf(path, sizeof path, "%s", x->path)));
    SL_TRY(sl_target_find(path, &target));
    return sl_target_try(&target);
}

/* A checkpoint keeps the tiles of a large parameter as they are, and does not say how they lie in the whole. */
static sluice_status refuse_tiles(const sl_manifest *m, const char *folder)
{
    for (int64_t i = 0; i < m->tensor_count; i++) {
        if (!sl_is_tile_name(m->tensors[i].name)) continue;
        return sl_fail(SLUICE_ERR_INPUT,
                       "%s: tensor %s is a tile: the model was cut by memory.tile_bytes. Write its weights with the "
                       "configuration's \"save\", which joins the tiles",
                       folder, sl_quote(m->tensors[i].name).text);
    }
    return SLUICE_OK;
}

sluice_status sluice_export(const char *checkpoint, const char *out_path, sluice_dtype type, uint64_t shard_bytes,
                            FILE *out)
{
    char folder[PATH_MAX];
    sl_manifest *m = NULL;
    export x = { .path = out_path, .shard_bytes = shard_bytes, .out = out };
    SL_NEED_PATH(checkpoint);
    SL_NEED_PATH(out_path);
    if (type != SLUICE_F32 && type != SLUICE_BF16 && type != SLUICE_F16)
        return sl_fail(SLUICE_ERR_USAGE, "sluice_export: the type is %d, must be SLUICE_F32, SLUICE_BF16 or SLUICE_F16",
                       (int)type);
    SL_TRY(try_folder(&x));
    SL_TRY(choose(checkpoint, out, folder, &m));
    sluice_status st = refuse_tiles(m, folder);
    if (st == SLUICE_OK) st = sl_stored_open(&x.stored, m, folder);
    if (st == SLUICE_OK) {
        x.stored.state.file_type = type;
        x.file_count = count_files(&x);
        st = check_outputs(&x, m, folder);
        if (st == SLUICE_OK) st = export_weights(&x);
        sl_stored_close(&x.stored);
    }
    sl_manifest_free(m);
    return st;
}
