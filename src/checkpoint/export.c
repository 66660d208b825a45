/* export.c: a checkpoint's weights as safetensors, in one file or in several (weights_files.h), or as a model's folder.
 *
 * The weights are verified before the first file is begun, and hashed again as they are read. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "checkpoint/checkpoint_verify.h"
#include "checkpoint/folder.h"
#include "checkpoint/model_folder.h"
#include "checkpoint/stored.h"
#include "core/alloc.h"
#include "core/bytes.h"
#include "core/file_set.h"
#include "core/utf8.h"

/* ---- Which checkpoint ---- */

static sluice_status verify_weights(const int *stop, const sl_manifest *m, const char *folder)
{
    int64_t *target = sl_alloc_array((size_t)m->tensor_count, sizeof *target, "checkpoint tensors");
    if (target == NULL) return SLUICE_ERR_NO_MEMORY;
    for (int64_t i = 0; i < m->tensor_count; i++) target[i] = sl_state_is_in_files(&m->tensors[i]) ? i : -1;
    sluice_status st = sl_verify_data(stop, m, folder, target);
    sl_free(target);
    return st;
}

/* A manifest in a known format whose weights verify. *known is false where it is of another format. */
static sluice_status open_checkpoint(const int *stop, const char *folder, const uint64_t *step, sl_manifest **out,
                                     bool *known)
{
    sl_manifest *m = NULL;
    *known = true;
    SL_TRY(sl_manifest_read(folder, step, &m));
    sluice_status st = sl_manifest_check_format(m, folder);
    *known = st == SLUICE_OK;
    if (st == SLUICE_OK) st = verify_weights(stop, m, folder);
    if (st == SLUICE_OK)
        *out = m;
    else
        sl_manifest_free(m);
    return st;
}

/* The newest that verifies; damaged ones are told of and passed over. *out stays NULL where there is none. */
static sluice_status open_newest(const int *stop, const char *folder, const sl_entries *e, FILE *out_text,
                                 char path[PATH_MAX], sl_manifest **out)
{
    char first_fault[SL_MESSAGE_BYTES] = "";
    sluice_status first = SLUICE_OK;
    for (int64_t i = 0; i < e->count; i++) {
        bool known;
        if (e->list[i].kind == SL_ENTRY_TMP) continue;
        SL_TRY(sl_entry_path(folder, e->list[i], path));
        sluice_status st = open_checkpoint(stop, path, &e->list[i].step, out, &known);
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
static sluice_status choose(const int *stop, const char *checkpoint, FILE *out_text, char path[PATH_MAX],
                            sl_manifest **out)
{
    sl_entries e;
    bool known;
    if (sl_has_manifest(checkpoint)) {
        snprintf(path, PATH_MAX, "%s", checkpoint); /* its manifest's path fitted */
        return open_checkpoint(stop, path, NULL, out, &known);
    }
    if (sl_path_exists(checkpoint) && !sl_is_folder(checkpoint)) return refuse_file(checkpoint);
    SL_TRY(sl_entries_read(checkpoint, &e));
    sluice_status st = open_newest(stop, checkpoint, &e, out_text, path, out);
    sl_entries_free(&e);
    return st;
}

/* ---- Files ---- */

/* The export at hand. */
typedef struct export
{
    sl_stored stored;
    sl_weights_files files;
    const char *path; /* as the user gave it */
    FILE *out;        /* may be NULL */
}
export;

static void tell(void *user, const char *path, int64_t tensors, uint64_t bytes)
{
    const export *x = user;
    char size[32];
    if (x->out == NULL) return;
    if (tensors == 0 && sl_weights_files_have_index(&x->files))
        fprintf(x->out, "%s: index of %d files\n", sl_show(path).text, x->files.file_count);
    else
        fprintf(x->out, "%s: %" PRId64 " tensor%s of step %" PRIu64 ", %s\n", sl_show(path).text, tensors,
                tensors == 1 ? "" : "s", x->stored.m->meta.step, sl_format_bytes(bytes, size, sizeof size));
}

static sluice_status write_weights(export *x)
{
    sl_gather g;
    SL_TRY(sl_gather_open(&g, &x->stored.state));
    sluice_status st = sl_gather_close(&g, sl_weights_files_write(&x->files, &g));
    if (st == SLUICE_OK) return sl_weights_files_finish(&x->files);
    sl_weights_files_abort(&x->files);
    return st;
}

/* ---- What may be written ---- */

/* Before the checkpoint is opened: no file of its run is, and there can be files of these names at all. */
static sluice_status check_run(const char *out_path, bool is_folder, const char *checkpoint)
{
    sl_file_set files;
    sl_file_set_init(&files, sl_model_folder_signs, sl_is_model_member);
    sluice_status st = sl_file_set_add(&files, "the checkpoint", checkpoint, SL_SET_RUN);
    if (st == SLUICE_OK)
        st = sl_file_set_add(&files, "--out", out_path, is_folder ? SL_SET_WRITE_FOLDER : SL_SET_WRITE_FILE);
    if (st == SLUICE_OK) st = sl_file_set_check(&files);
    sl_file_set_free(&files);
    return st;
}

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
    for (int number = 1; number <= x->files.file_count; number++) {
        SL_TRY(sl_weights_files_path(&x->files, number, path));
        SL_TRY(check_output(path, m, folder));
    }
    if (!sl_weights_files_have_index(&x->files)) return SLUICE_OK;
    SL_TRY(sl_weights_files_index(&x->files, path));
    return check_output(path, m, folder);
}

/* Before the checkpoint is verified, which reads all of it: whether there can be files of these names at all. */
static sluice_status try_files(const char *out_path, uint64_t shard_bytes)
{
    const sl_weights_files names = { .path = out_path, .file_count = 1 };
    char path[PATH_MAX];
    sl_target target;
    SL_TRY(shard_bytes > 0 ? sl_weights_files_index(&names, path) : sl_weights_files_path(&names, 1, path));
    SL_TRY(sl_target_find(path, &target));
    return sl_target_try(&target);
}

static sluice_status try_folder(const char *out_path, const char *checkpoint)
{
    sl_folder_target target;
    bool holds;
    SL_TRY(sl_folder_target_find(out_path, sl_model_folder_signs, &target));
    SL_TRY(sl_folder_target_holds(&target, checkpoint, &holds));
    if (holds)
        return sl_fail(SLUICE_ERR_USAGE, "%s is or holds the checkpoint that is exported; write to another folder",
                       out_path);
    return sl_folder_target_try(&target);
}

/* ---- Files by themselves ---- */

static sluice_status export_files(export *x, const sl_manifest *m, const char *folder, uint64_t shard_bytes)
{
    sl_weights_files_plan(&x->files, &x->stored.state, x->path, shard_bytes);
    x->files.tell = tell;
    x->files.user = x;
    SL_TRY(check_outputs(x, m, folder));
    sluice_status st = write_weights(x);
    if (st != SLUICE_ERR_STOPPED || !sl_weights_files_have_index(&x->files)) return st;
    return sl_fail(st, "stopped by a signal while exporting; some of the %d files may be written, the index is not",
                   x->files.file_count);
}

/* ---- A folder ---- */

/* The files of the model that were kept beside the checkpoint, for weights of the type that is written. */
static sluice_status read_kept(const char *step, sluice_dtype type, sl_model_files *out)
{
    char run[PATH_MAX], kept[PATH_MAX], config[PATH_MAX];
    sl_model_config c;
    SL_TRY(sl_path_parent(step, run));
    SL_TRY(sl_folder_path(run, SL_KEPT_MODEL, kept));
    SL_TRY(sl_folder_path(kept, "config.json", config));
    if (!sl_path_exists(config))
        return sl_fail(SLUICE_ERR_INPUT,
                       "%s is missing, without which the folder of a model cannot be written: the run was made by an "
                       "older version, or its model is none that other programs know. Write a file: --out "
                       "FILE.safetensors",
                       config);
    SL_TRY(sl_model_config_read(kept, &c, NULL));
    c.has_dtype = true;
    c.dtype = type;
    return sl_model_files_make(&c, kept, NULL, NULL, out);
}

static sluice_status write_folder(export *x, const sl_model_files *others, uint64_t shard_bytes)
{
    sl_folder_writing w;
    sl_gather g;
    SL_TRY(sl_folder_writing_begin(&w, x->path, &x->stored.state, shard_bytes, others));
    sluice_status st = sl_gather_open(&g, &x->stored.state);
    if (st == SLUICE_OK) st = sl_gather_close(&g, sl_weights_files_write(&w.weights, &g));
    int files = w.weights.file_count;
    if (st == SLUICE_OK)
        st = sl_folder_writing_finish(&w);
    else
        sl_folder_writing_abort(&w);
    if (st == SLUICE_OK && x->out != NULL)
        fprintf(x->out, "%s: the model of step %" PRIu64 ", its weights in %d file%s, and %d other file%s\n",
                sl_show(x->path).text, x->stored.m->meta.step, files, files == 1 ? "" : "s", others->count,
                others->count == 1 ? "" : "s");
    return st;
}

static sluice_status export_folder(export *x, const char *step, uint64_t shard_bytes)
{
    sl_model_files others = { .count = 0 };
    sluice_status st = read_kept(step, x->stored.state.file_type, &others);
    x->stored.state.file_prefix = others.prefix;
    if (st == SLUICE_OK) st = write_folder(x, &others, shard_bytes > 0 ? shard_bytes : SL_SHARD_BYTES);
    sl_model_files_free(&others);
    return st;
}

/* ---- All of it ---- */

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
    return sluice_export_until(NULL, checkpoint, out_path, type, shard_bytes, out);
}

sluice_status sluice_export_until(const int *stop, const char *checkpoint, const char *out_path, sluice_dtype type,
                                  uint64_t shard_bytes, FILE *out)
{
    char folder[PATH_MAX];
    sl_manifest *m = NULL;
    export x = { .path = out_path, .out = out };
    SL_NEED_PATH(checkpoint);
    SL_NEED_PATH(out_path);
    if (type != SLUICE_F32 && type != SLUICE_BF16 && type != SLUICE_F16)
        return sl_fail(SLUICE_ERR_USAGE, "sluice_export: the type is %d, must be SLUICE_F32, SLUICE_BF16 or SLUICE_F16",
                       (int)type);
    bool is_folder = sl_is_folder_output(out_path);
    SL_TRY(check_run(out_path, is_folder, checkpoint));
    SL_TRY(is_folder ? try_folder(out_path, checkpoint) : try_files(out_path, shard_bytes));
    SL_TRY(choose(stop, checkpoint, out, folder, &m));
    sluice_status st = refuse_tiles(m, folder);
    if (st == SLUICE_OK) st = sl_stored_open(&x.stored, m, folder);
    if (st == SLUICE_OK) {
        x.stored.state.file_type = type;
        x.stored.stop = stop;
        if (is_folder)
            st = export_folder(&x, folder, shard_bytes);
        else
            st = export_files(&x, m, folder, shard_bytes);
        sl_stored_close(&x.stored);
    }
    sl_manifest_free(m);
    return st;
}
