/* run_files.c: the files of a run in one table: what it reads and what it writes.
 *
 * Whoever adds an input or an output adds it to the table, by the mark of its setting (config_table.c) or in list_files;
 * then it is tried before the first step, no output is an input, and no two outputs are one file. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "core/arena.h"
#include "core/bytes.h"
#include "core/output.h"
#include "core/output_folder.h"
#include "core/path_list.h"
#include "format/model_files.h"
#include "report/profile.h"
#include "train/predictions.h"
#include "train/run.h"

typedef struct run_file {
    const char *name; /* of the setting or option */
    const char *path; /* in the table's arena, or borrowed */
    sl_file_role role;
    bool guarded;     /* written by other rules: only compared with the inputs */
    bool appended;    /* WRITE: what is there stays */
    bool is_folder;   /* WRITE: all of one is written */
    sl_target target; /* WRITE, of a file */
    sl_folder_target folder;
} run_file;

enum { MOST_FILES = 24 };

typedef struct run_files {
    const int *stop; /* core/stop.h */
    sl_arena arena;
    run_file *list; /* MOST_FILES */
    int count;
} run_files;

/* ---- the table ---- */

static run_file *add(run_files *f, const char *name, const char *path, sl_file_role role)
{
    assert(f->count < MOST_FILES);
    f->list[f->count] = (run_file){ .name = name, .path = path, .role = role };
    return &f->list[f->count++];
}

/* Files of a checkpoint folder that are there from one run to the next. */
static sluice_status add_folder(run_files *f, const char *name, const char *path)
{
    static const char *const kept[] = { "lock", "latest", SL_JOURNAL_NAME, SL_PROFILE_NAME };
    sl_path_info there;
    add(f, name, path, SL_FILE_FOLDER);
    if (sl_path_look(path, &there) != SLUICE_OK || there.kind != SL_PATH_FOLDER) return SLUICE_OK; /* its trial tells */
    for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++) {
        const char *inside = sl_arena_printf(&f->arena, "%s/%s", path, kept[i]);
        if (inside == NULL) return SLUICE_ERR_NO_MEMORY;
        add(f, name, inside, SL_FILE_WRITE)->guarded = true;
    }
    return SLUICE_OK;
}

static sluice_status add_trace(run_files *f, const char *path, int rank)
{
    char own[PATH_MAX];
    SL_TRY(sl_trace_path(path, rank, own));
    const char *kept = sl_arena_strdup(&f->arena, own);
    if (kept == NULL) return SLUICE_ERR_NO_MEMORY;
    add(f, "--trace", kept, SL_FILE_WRITE);
    return SLUICE_OK;
}

/* What the monitor of rank 0 writes beside the journal. */
static sluice_status add_logs(run_files *f, const sl_settings *s, const char *log_file)
{
    char folders[2][PATH_MAX];
    static const char *const keys[2] = { "tensorboard.output_path", "csv_monitor.output_path" };
    if (log_file != NULL) SL_TRY(sl_log_file_check(log_file));
    if (log_file != NULL) add(f, "--log", log_file, SL_FILE_WRITE)->appended = true;
    SL_TRY(sl_watch_folders(s, folders[0], folders[1]));
    for (int i = 0; i < 2; i++) {
        if (folders[i][0] == '\0') continue;
        const char *kept = sl_arena_strdup(&f->arena, folders[i]);
        if (kept == NULL) return SLUICE_ERR_NO_MEMORY;
        add(f, keys[i], kept, SL_FILE_FOLDER);
    }
    return SLUICE_OK;
}

/* Rank 0 writes what the settings name; every rank its trace. */
static sluice_status list_files(const sl_job *j, const sluice_config *c, const sluice_job_options *o, run_files *f)
{
    size_t row = 0;
    sl_setting_file s;
    f->list = sl_arena_array(&f->arena, MOST_FILES, sizeof *f->list);
    if (f->list == NULL) return SLUICE_ERR_NO_MEMORY;
    if (!c->bare) add(f, "the configuration", c->path, SL_FILE_READ);
    if (o->machine != NULL) add(f, "--machine", o->machine, SL_FILE_READ);
    while (sl_settings_next_file(&j->settings, &row, &s)) {
        if (s.role != SL_FILE_READ && j->ranks.rank != 0) continue;
        if (s.role == SL_FILE_FOLDER)
            SL_TRY(add_folder(f, s.key, s.path));
        else
            add(f, s.key, s.path, s.role)->is_folder = s.role == SL_FILE_WRITE && sl_is_folder_output(s.path);
    }
    bool page = o->report != NULL && j->ranks.rank == 0;
    if (page && o->report[0] == '\0' && j->settings.checkpoint.path[0] == '\0')
        return sl_fail(SLUICE_ERR_USAGE,
                       "--report: without checkpoint.path the run has no folder to put the page in; name "
                       "its file, --report FILE.html");
    if (page && o->report[0] != '\0') add(f, "--report", o->report, SL_FILE_WRITE);
    if (j->ranks.rank == 0) SL_TRY(add_logs(f, &j->settings, o->log_file));
    return o->trace != NULL ? add_trace(f, o->trace, j->ranks.rank) : SLUICE_OK;
}

/* Of an evaluation: what the settings would write is not, and its folders are read. */
static sluice_status list_eval_files(const sl_job *j, const sluice_config *c, const sluice_job_options *o, run_files *f)
{
    size_t row = 0;
    sl_setting_file s;
    f->list = sl_arena_array(&f->arena, MOST_FILES, sizeof *f->list);
    if (f->list == NULL) return SLUICE_ERR_NO_MEMORY;
    if (!c->bare) add(f, "the configuration", c->path, SL_FILE_READ);
    if (o->weights != NULL) add(f, "--weights", o->weights, SL_FILE_READ);
    while (sl_settings_next_file(&j->settings, &row, &s)) add(f, s.key, s.path, SL_FILE_READ);
    add(f, "--predictions", o->predictions, SL_FILE_WRITE);
    return SLUICE_OK;
}

/* ---- trying ---- */

/* A file is not put into a folder that is read either: it may be one of those that are. */
static sluice_status is_in(const sl_target *target, const char *input, bool *in)
{
    sl_path_info folder, there;
    SL_TRY(sl_target_is_file(target, input, in));
    if (*in || sl_path_look(input, &there) != SLUICE_OK || there.kind != SL_PATH_FOLDER) return SLUICE_OK;
    SL_TRY(sl_path_look(target->folder, &folder));
    *in = folder.device == there.device && folder.inode == there.inode;
    return SLUICE_OK;
}

static sluice_status replaces(const run_file *out, const char *input, bool *same)
{
    return out->is_folder ? sl_folder_target_holds(&out->folder, input, same) : is_in(&out->target, input, same);
}

/* Whether an output replaces a file that `path` names, which may be a pattern. One that names nothing is reported when it is
 * read. */
static sluice_status is_input(const int *stop, const run_file *out, const char *path, bool *same)
{
    sl_path_list list;
    *same = false;
    if (sl_path_exists(path)) return replaces(out, path, same);
    sluice_status st = sl_path_expand(stop, path, &list);
    if (st == SLUICE_ERR_STOPPED) return st;
    if (st != SLUICE_OK) return replaces(out, path, same);
    for (int i = 0; i < list.count && st == SLUICE_OK && !*same; i++) st = replaces(out, list.paths[i], same);
    sl_path_list_free(&list);
    return st;
}

static sluice_status compare_with_inputs(const run_files *f, const run_file *out)
{
    for (int i = 0; i < f->count; i++) {
        const run_file *in = &f->list[i];
        bool same;
        if (in->role != SL_FILE_READ) continue;
        SL_TRY(is_input(f->stop, out, in->path, &same));
        if (same)
            return sl_fail(SLUICE_ERR_USAGE,
                           "%s: writing %s would replace %s, %s, which this run reads; name another %s", out->name,
                           out->path, in->name, in->path, out->is_folder ? "folder" : "file");
    }
    return SLUICE_OK;
}

/* A folder that is replaced as a whole holds nothing that something else writes. */
static sluice_status compare_folder(const run_files *f, const run_file *out)
{
    for (int i = 0; i < f->count; i++) {
        const run_file *other = &f->list[i];
        bool above;
        if (other == out || other->role == SL_FILE_READ) continue;
        SL_TRY(sl_folder_target_is_above(&out->folder, other->path, &above));
        if (above)
            return sl_fail(SLUICE_ERR_USAGE, "%s, %s, is or lies in the folder that %s writes, %s; name another",
                           other->name, other->path, out->name, out->path);
    }
    return SLUICE_OK;
}

static sluice_status compare_with_outputs(const run_files *f, const run_file *out)
{
    if (out->is_folder) return compare_folder(f, out);
    for (const run_file *other = f->list; other < out; other++) {
        bool same;
        if (other->role != SL_FILE_WRITE || other->is_folder) continue;
        SL_TRY(sl_target_is_target(&out->target, &other->target, &same));
        if (same)
            return sl_fail(SLUICE_ERR_USAGE, "%s and %s would write the same file, %s; name two", other->name,
                           out->name, out->path);
    }
    return SLUICE_OK;
}

/* The setting or option in front of what is wrong with its path. */
static sluice_status named(const run_file *f, sluice_status st)
{
    char message[SL_MESSAGE_BYTES];
    if (st == SLUICE_OK) return st;
    sl_error_copy(message);
    return sl_fail(st, "%s: %s", f->name, message);
}

static sluice_status try_output(const run_file *f)
{
    char folder[PATH_MAX];
    if (f->role == SL_FILE_FOLDER) return sl_dir_try(f->path, folder);
    if (f->is_folder) return sl_folder_target_try(&f->folder);
    if (f->appended && f->target.before.kind != SL_PATH_MISSING) return sl_file_try_append(f->target.path);
    return f->role == SL_FILE_WRITE && !f->guarded ? sl_target_try(&f->target) : SLUICE_OK;
}

static sluice_status find_target(run_file *f)
{
    if (f->is_folder) return sl_folder_target_find(f->path, sl_model_folder_signs, &f->folder);
    return sl_target_find(f->path, &f->target);
}

/* All are compared before the first is tried: a trial removes what a killed run left beside its file. */
static sluice_status try_all(run_files *f)
{
    for (int i = 0; i < f->count; i++)
        if (f->list[i].role == SL_FILE_WRITE) SL_TRY(named(&f->list[i], find_target(&f->list[i])));
    for (int i = 0; i < f->count; i++) {
        if (f->list[i].role != SL_FILE_WRITE) continue;
        SL_TRY(compare_with_inputs(f, &f->list[i]));
        SL_TRY(compare_with_outputs(f, &f->list[i]));
    }
    for (int i = 0; i < f->count; i++) SL_TRY(named(&f->list[i], try_output(&f->list[i])));
    return SLUICE_OK;
}

static sluice_status try_files(const sl_job *j, const sluice_config *c, const sluice_job_options *o)
{
    run_files f = { .stop = j->stop };
    sl_arena_init(&f.arena, "files of the run");
    sluice_status st = SLUICE_OK;
    if (sl_is_folder_output(j->settings.save)) st = sl_run_check_folder(&j->settings);
    if (st == SLUICE_OK) st = list_files(j, c, o, &f);
    if (st == SLUICE_OK) st = try_all(&f);
    sl_arena_free(&f.arena);
    return st;
}

sluice_status sl_eval_try_files(const sl_job *j, const sluice_config *c, const sluice_job_options *o)
{
    run_files f = { .stop = j->stop };
    SL_TRY(sl_prediction_file_check(o->predictions));
    sl_arena_init(&f.arena, "files of the evaluation");
    sluice_status st = list_eval_files(j, c, o, &f);
    if (st == SLUICE_OK) st = try_all(&f);
    sl_arena_free(&f.arena);
    return st;
}

sluice_status sl_run_try_files(sl_job *j, const sluice_config *c, const sluice_job_options *o)
{
    return sl_ranks_agree(&j->ranks, "trying the outputs", try_files(j, c, o));
}

/* ---- room ---- */

/* What is sure to be written: bytes of values, without headers. */
static uint64_t weight_bytes(const sl_run *r)
{
    uint64_t each = r->job->settings.save_type == SLUICE_F32 ? sizeof(float) : sizeof(uint16_t);
    return (uint64_t)sl_graph_parameter_elements(r->job->graph) * each;
}

static uint64_t checkpoint_bytes(const sl_run *r)
{
    const sluice_engine *e = r->job->engine;
    uint64_t elements = 0;
    for (int i = 0; i < e->graph->parameter_count; i++) {
        const sl_parameter *q = &e->graph->parameters[i];
        elements += (uint64_t)sl_parameter_elements(e->graph, i) * (q->trainable ? 1 + (uint64_t)e->slots.count : 1);
    }
    return elements * sizeof(float);
}

static sluice_status has_room(const char *what, const char *folder, uint64_t needed)
{
    uint64_t room, file_system;
    char wanted[32], there[32];
    SL_TRY(sl_path_room(folder, &room, &file_system));
    if (room >= needed) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_IO, "%s needs at least %s, but %s has %s left; free space there or choose another folder",
                   what, sl_format_bytes(needed, wanted, sizeof wanted), folder,
                   sl_format_bytes(room, there, sizeof there));
}

/* The folder in which `save` makes something. */
static sluice_status find_save_place(const char *save, char place[PATH_MAX])
{
    sl_target file;
    sl_folder_target folder;
    if (sl_is_folder_output(save)) {
        SL_TRY(sl_folder_target_find(save, sl_model_folder_signs, &folder));
        memcpy(place, folder.parent, PATH_MAX);
        return SLUICE_OK;
    }
    SL_TRY(sl_target_find(save, &file));
    memcpy(place, file.folder, PATH_MAX);
    return SLUICE_OK;
}

/* The folders of `save` and of the checkpoints may lie on one file system, and then share what it has left. The
 * checkpoint is the one to come: older ones only go after it is written. */
static sluice_status find_room(const sl_run *r)
{
    const sl_settings *s = &r->job->settings;
    char folder[PATH_MAX], place[PATH_MAX];
    uint64_t room, save_system = 0, checkpoint_system = 0, weights = 0, checkpoint = 0;
    if (s->save[0] != '\0') {
        SL_TRY(find_save_place(s->save, place));
        SL_TRY(sl_path_room(place, &room, &save_system));
        weights = weight_bytes(r);
        SL_TRY(has_room("save", place, weights));
    }
    if (s->checkpoint.path[0] != '\0' && r->job->engine->step < r->steps) {
        SL_TRY(sl_dir_try(s->checkpoint.path, folder));
        SL_TRY(sl_path_room(folder, &room, &checkpoint_system));
        checkpoint = checkpoint_bytes(r);
        SL_TRY(has_room("a checkpoint", folder, checkpoint));
    }
    if (weights == 0 || checkpoint == 0 || save_system != checkpoint_system) return SLUICE_OK;
    return has_room("a checkpoint together with save", folder, weights + checkpoint);
}

sluice_status sl_run_check_room(sl_run *r)
{
    return sl_ranks_agree(&r->job->ranks, "looking for room", r->job->ranks.rank == 0 ? find_room(r) : SLUICE_OK);
}
