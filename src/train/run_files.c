/* run_files.c: the files of a run in one table: what it reads and what it writes.
 *
 * Whoever adds an input or an output adds it to the table, by the mark of its setting (config_table.c) or in list_files;
 * then it is tried before the first step, no output is an input, and no two outputs are one file. */
#include <assert.h>
#include <stdio.h>

#include "core/arena.h"
#include "core/bytes.h"
#include "core/output.h"
#include "core/path_list.h"
#include "train/run.h"

typedef struct run_file {
    const char *name; /* of the setting or option */
    const char *path; /* in the table's arena, or borrowed */
    sl_file_role role;
    bool guarded;     /* written by other rules: only compared with the inputs */
    sl_target target; /* WRITE */
} run_file;

enum { MOST_FILES = 16 };

typedef struct run_files {
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
    static const char *const kept[] = { "lock", "latest" };
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

/* Rank 0 writes what the settings name; every rank its trace. */
static sluice_status list_files(const sl_job *j, const sluice_config *c, const sluice_job_options *o, run_files *f)
{
    size_t row = 0;
    sl_setting_file s;
    f->list = sl_arena_array(&f->arena, MOST_FILES, sizeof *f->list);
    if (f->list == NULL) return SLUICE_ERR_NO_MEMORY;
    add(f, "the configuration", c->path, SL_FILE_READ);
    if (o->machine != NULL) add(f, "--machine", o->machine, SL_FILE_READ);
    while (sl_settings_next_file(&j->settings, &row, &s)) {
        if (s.role != SL_FILE_READ && j->ranks.rank != 0) continue;
        if (s.role == SL_FILE_FOLDER)
            SL_TRY(add_folder(f, s.key, s.path));
        else
            add(f, s.key, s.path, s.role);
    }
    return o->trace != NULL ? add_trace(f, o->trace, j->ranks.rank) : SLUICE_OK;
}

/* ---- trying ---- */

/* Whether an output is a file that `path` names, which may be a pattern. One that names nothing is reported when it is read. */
static sluice_status is_input(const sl_target *out, const char *path, bool *same)
{
    sl_path_list list;
    sluice_status st = SLUICE_OK;
    *same = false;
    if (sl_path_exists(path) || sl_path_expand(path, &list) != SLUICE_OK) return sl_target_is_file(out, path, same);
    for (int i = 0; i < list.count && st == SLUICE_OK && !*same; i++) st = sl_target_is_file(out, list.paths[i], same);
    sl_path_list_free(&list);
    return st;
}

static sluice_status compare_with_inputs(const run_files *f, const run_file *out)
{
    for (int i = 0; i < f->count; i++) {
        const run_file *in = &f->list[i];
        bool same;
        if (in->role != SL_FILE_READ) continue;
        SL_TRY(is_input(&out->target, in->path, &same));
        if (same)
            return sl_fail(SLUICE_ERR_USAGE,
                           "%s: writing %s would replace %s, %s, which this run reads; name another file", out->name,
                           out->path, in->name, in->path);
    }
    return SLUICE_OK;
}

static sluice_status compare_with_outputs(const run_files *f, const run_file *out)
{
    for (const run_file *other = f->list; other < out; other++) {
        bool same;
        if (other->role != SL_FILE_WRITE) continue;
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
    return f->role == SL_FILE_WRITE && !f->guarded ? sl_target_try(&f->target) : SLUICE_OK;
}

/* All are compared before the first is tried: a trial removes what a killed run left beside its file. */
static sluice_status try_all(run_files *f)
{
    for (int i = 0; i < f->count; i++)
        if (f->list[i].role == SL_FILE_WRITE)
            SL_TRY(named(&f->list[i], sl_target_find(f->list[i].path, &f->list[i].target)));
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
    run_files f = { .count = 0 };
    sl_arena_init(&f.arena, "files of the run");
    sluice_status st = list_files(j, c, o, &f);
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
        elements += (uint64_t)q->count * (q->trainable ? 1 + (uint64_t)e->slots.count : 1);
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

/* The folders of `save` and of the checkpoints may lie on one file system, and then share what it has left. The
 * checkpoint is the one to come: older ones only go after it is written. */
static sluice_status find_room(const sl_run *r)
{
    const sl_settings *s = &r->job->settings;
    char folder[PATH_MAX];
    sl_target save;
    uint64_t room, save_system = 0, checkpoint_system = 0, weights = 0, checkpoint = 0;
    if (s->save[0] != '\0') {
        SL_TRY(sl_target_find(s->save, &save));
        SL_TRY(sl_path_room(save.folder, &room, &save_system));
        weights = weight_bytes(r);
        SL_TRY(has_room("save", save.folder, weights));
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
