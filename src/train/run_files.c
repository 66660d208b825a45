/* run_files.c: the files of a job: what it reads and what it writes.
 *
 * Whoever adds an input or an output adds it here, by the mark of its setting (config_table.c) or in list_files; then it is
 * tried before the first step, no output is an input, and no two outputs are one file (core/file_set.h). */
#include <stdio.h>
#include <string.h>

#include "core/bytes.h"
#include "core/file_set.h"
#include "format/model_files.h"
#include "train/predictions.h"
#include "train/run.h"

/* ---- the table ---- */

/* Files of a checkpoint folder that are there from one run to the next. */
static sluice_status add_folder(sl_file_set *f, const char *name, const char *path)
{
    static const char *const kept[] = { SL_RUN_LOCK, SL_LATEST_NAME, SL_JOURNAL_NAME, SL_PROFILE_NAME };
    sl_path_info there;
    char inside[PATH_MAX];
    SL_TRY(sl_file_set_add(f, name, path, SL_SET_FOLDER));
    if (sl_path_look(path, &there) != SLUICE_OK || there.kind != SL_PATH_FOLDER) return SLUICE_OK; /* its trial tells */
    for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++) {
        if (snprintf(inside, sizeof inside, "%s/%s", path, kept[i]) >= (int)sizeof inside) continue; /* likewise */
        SL_TRY(sl_file_set_add(f, name, inside, SL_SET_GUARD));
    }
    return SLUICE_OK;
}

static sluice_status add_trace(sl_file_set *f, const char *path, int rank)
{
    char own[PATH_MAX];
    SL_TRY(sl_trace_path(path, rank, own));
    return sl_file_set_add(f, "--trace", own, SL_SET_WRITE_FILE);
}

/* What the monitor of rank 0 writes beside the journal. */
static sluice_status add_logs(sl_file_set *f, const sl_settings *s, const char *log_file)
{
    char folders[2][PATH_MAX];
    static const char *const keys[2] = { "tensorboard.output_path", "csv_monitor.output_path" };
    if (log_file != NULL) SL_TRY(sl_log_file_check(log_file));
    SL_TRY(sl_file_set_add(f, "--log", log_file, SL_SET_APPEND));
    SL_TRY(sl_watch_folders(s, folders[0], folders[1]));
    for (int i = 0; i < 2; i++) SL_TRY(sl_file_set_add(f, keys[i], folders[i], SL_SET_FOLDER));
    return SLUICE_OK;
}

/* Of a setting that is read. */
static sl_set_role role_of(const sl_setting_file *s)
{
    return strncmp(s->key, "data.", 5) == 0 && strcmp(s->key, "data.tokenizer") != 0 ? SL_SET_DATA : SL_SET_READ;
}

/* What is read besides the settings. */
static sluice_status add_inputs(sl_file_set *f, const sluice_config *c, const sluice_job_options *o)
{
    if (!c->bare) SL_TRY(sl_file_set_add(f, "the configuration", c->path, SL_SET_READ));
    return sl_file_set_add(f, "--machine", o->machine, SL_SET_READ);
}

/* Rank 0 writes what the settings name; every rank its trace. */
static sluice_status list_files(const sl_job *j, const sluice_config *c, const sluice_job_options *o, sl_file_set *f)
{
    size_t row = 0;
    sl_setting_file s;
    SL_TRY(add_inputs(f, c, o));
    while (sl_settings_next_file(&j->settings, &row, &s)) {
        if (s.role == SL_FILE_READ)
            SL_TRY(sl_file_set_add(f, s.key, s.path, role_of(&s)));
        else if (j->ranks.rank == 0 && s.role == SL_FILE_FOLDER)
            SL_TRY(add_folder(f, s.key, s.path));
        else if (j->ranks.rank == 0)
            SL_TRY(sl_file_set_add(f, s.key, s.path, SL_SET_WRITE));
    }
    bool page = o->report != NULL && j->ranks.rank == 0;
    if (page && o->report[0] == '\0' && j->settings.checkpoint.path[0] == '\0')
        return sl_fail(SLUICE_ERR_USAGE,
                       "--report: without checkpoint.path the run has no folder to put the page in; name "
                       "its file, --report FILE.html");
    if (page) SL_TRY(sl_file_set_add(f, "--report", o->report, SL_SET_WRITE_FILE));
    if (j->ranks.rank == 0) SL_TRY(add_logs(f, &j->settings, o->log_file));
    return o->trace != NULL ? add_trace(f, o->trace, j->ranks.rank) : SLUICE_OK;
}

/* Of a job that only reads: what the settings would write is not, and its folders are read. Beside a model's own files
 * others may be put into its folder. */
static sluice_status list_settings_read(const sl_settings *settings, sl_file_set *f)
{
    size_t row = 0;
    sl_setting_file s;
    while (sl_settings_next_file(settings, &row, &s)) {
        sl_set_role role = s.role == SL_FILE_FOLDER     ? SL_SET_RUN
                           : role_of(&s) == SL_SET_DATA ? SL_SET_DATA
                                                        : SL_SET_MODEL;
        SL_TRY(sl_file_set_add(f, s.key, s.path, role));
    }
    return SLUICE_OK;
}

static sluice_status list_read_files(const sl_job *j, const sluice_config *c, const sluice_job_options *o,
                                     sl_file_set *f)
{
    SL_TRY(add_inputs(f, c, o));
    SL_TRY(sl_file_set_add(f, "--weights", o->weights, SL_SET_MODEL));
    SL_TRY(sl_file_set_add(f, "--prompts", o->prompts, SL_SET_READ));
    return list_settings_read(&j->settings, f);
}

/* ---- trying ---- */

static void begin_set(sl_file_set *f, const int *stop)
{
    sl_file_set_init(f, sl_model_folder_signs, sl_is_model_member);
    f->stop = stop;
}

static sluice_status try_files(const sl_job *j, const sluice_config *c, const sluice_job_options *o)
{
    sl_file_set f;
    if (sl_is_folder_output(j->settings.save)) SL_TRY(sl_run_check_folder(&j->settings));
    begin_set(&f, j->stop);
    return sl_file_set_try(&f, list_files(j, c, o, &f));
}

sluice_status sl_run_try_files(sl_job *j, const sluice_config *c, const sluice_job_options *o)
{
    return sl_ranks_agree(&j->ranks, "trying the outputs", try_files(j, c, o));
}

sluice_status sl_job_try_output(const sl_job *j, const sluice_config *c, const sluice_job_options *o,
                                sl_job_purpose purpose)
{
    const bool evaluates = purpose == SL_JOB_EVALUATE, generates = purpose == SL_JOB_GENERATE;
    const char *path = evaluates ? o->predictions : generates ? o->replies : o->report;
    const char *name = evaluates ? "--predictions" : generates ? "--out" : "--report";
    sl_file_set f;
    if (path == NULL) return SLUICE_OK;
    if (evaluates) SL_TRY(sl_prediction_file_check(path));
    begin_set(&f, j->stop);
    sluice_status st = list_read_files(j, c, o, &f);
    if (st == SLUICE_OK) st = sl_file_set_add(&f, name, path, SL_SET_WRITE_FILE);
    return sl_file_set_try(&f, st);
}

/* What cannot be resolved is reported by whoever runs it. */
static sluice_status list_config(const sluice_config *c, sl_file_set *f)
{
    const sl_log quiet = { NULL, NULL, 0, 1 };
    sl_settings settings;
    if (!c->bare) SL_TRY(sl_file_set_add(f, "the configuration", c->path, SL_SET_READ));
    return sl_config_resolve(c, 0, &quiet, &settings) == SLUICE_OK ? list_settings_read(&settings, f) : SLUICE_OK;
}

sluice_status sluice_config_check_output(const sluice_config *c, const char *name, const char *path)
{
    sl_file_set f;
    SL_NEED(c);
    SL_NEED(name);
    SL_NEED_PATH(path);
    begin_set(&f, NULL);
    sluice_status st = list_config(c, &f);
    if (st == SLUICE_OK) st = sl_file_set_add(&f, name, path, SL_SET_WRITE_FILE);
    return sl_file_set_try(&f, st);
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
