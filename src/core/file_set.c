/* file_set.c: see file_set.h. */
#include "core/file_set.h"

#include <stdio.h>
#include <string.h>

#include "core/path_list.h"
#include "core/run_names.h"
#include "core/status.h"

struct sl_set_file {
    const char *name, *path; /* path: in the arena */
    sl_set_role role;
    bool is_folder;          /* of outputs: all of one is written */
    sl_target target;        /* of an output that is a file */
    sl_folder_target folder; /* of one that is a folder */
};

/* ---- The table ---- */

void sl_file_set_init(sl_file_set *f, const char *const *signs, bool (*is_model)(const char *name))
{
    *f = (sl_file_set){ .signs = signs, .is_model = is_model };
    sl_arena_init(&f->arena, "files of a command");
}

void sl_file_set_free(sl_file_set *f)
{
    sl_arena_free(&f->arena);
    *f = (sl_file_set){ .count = 0 };
}

static sluice_status grow(sl_file_set *f)
{
    if (f->count < f->capacity) return SLUICE_OK;
    int capacity = f->capacity == 0 ? 8 : 2 * f->capacity;
    sl_set_file *list = sl_arena_array(&f->arena, (size_t)capacity, sizeof *list);
    if (list == NULL) return SLUICE_ERR_NO_MEMORY;
    if (f->count > 0) memcpy(list, f->list, (size_t)f->count * sizeof *list);
    f->list = list;
    f->capacity = capacity;
    return SLUICE_OK;
}

static bool is_output(const sl_set_file *s)
{
    return s->role == SL_SET_WRITE || s->role == SL_SET_WRITE_FILE || s->role == SL_SET_WRITE_FOLDER ||
           s->role == SL_SET_APPEND || s->role == SL_SET_GUARD;
}

sluice_status sl_file_set_add(sl_file_set *f, const char *name, const char *path, sl_set_role role)
{
    if (path == NULL || path[0] == '\0') return SLUICE_OK;
    SL_TRY(grow(f));
    const char *kept = sl_arena_strdup(&f->arena, path);
    if (kept == NULL) return SLUICE_ERR_NO_MEMORY;
    bool is_folder = role == SL_SET_WRITE_FOLDER || (role == SL_SET_WRITE && sl_is_folder_output(path));
    f->list[f->count++] = (sl_set_file){ .name = name, .path = kept, .role = role, .is_folder = is_folder };
    return SLUICE_OK;
}

/* ---- Places ---- */

static bool same_place(const sl_path_info *a, const sl_path_info *b)
{
    return a->kind != SL_PATH_MISSING && b->kind != SL_PATH_MISSING && a->device == b->device && a->inode == b->inode;
}

static bool has_file(const char *folder, const char *name)
{
    char path[PATH_MAX];
    return snprintf(path, sizeof path, "%s/%s", folder, name) < (int)sizeof path && sl_path_exists(path);
}

static const char *last_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

/* How many folders `folder` lies below `top`, 0 for itself; -1: it does not. Whatever links there are on the way. */
static sluice_status depth_below(const char *folder, const char *top, int *depth)
{
    char at[PATH_MAX];
    sl_path_info wanted, here, above;
    *depth = -1;
    if (sl_path_look(top, &wanted) != SLUICE_OK || wanted.kind != SL_PATH_FOLDER) return SLUICE_OK;
    if (snprintf(at, sizeof at, "%s", folder) >= (int)sizeof at) return SLUICE_OK;
    SL_TRY(sl_path_look(at, &here));
    for (int n = 0; here.kind == SL_PATH_FOLDER; n++) {
        if (same_place(&here, &wanted)) {
            *depth = n;
            return SLUICE_OK;
        }
        size_t length = strlen(at);
        if (length + sizeof "/.." > sizeof at) return SLUICE_OK;
        strcpy(at + length, "/..");
        SL_TRY(sl_path_look(at, &above));
        if (same_place(&above, &here)) return SLUICE_OK; /* the root */
        here = above;
    }
    return SLUICE_OK;
}

/* ---- Runs and their checkpoints ---- */

static const char *const run_files[] = { SL_RUN_LOCK,   SL_LATEST_NAME, SL_JOURNAL_NAME, SL_PROFILE_NAME,
                                         SL_TUNED_FILE, SL_BEST_NAME,   SL_KEPT_MODEL };
enum { RUN_FILES = sizeof run_files / sizeof run_files[0] };

static bool is_run_file(const char *name)
{
    for (int i = 0; i < RUN_FILES; i++)
        if (strcmp(name, run_files[i]) == 0) return true;
    return false;
}

/* By what it holds: two of the files that nothing but a run makes, for there may be one of such a name anywhere. */
static bool looks_like_run(const char *folder)
{
    static const char *const signs[] = { SL_RUN_LOCK, SL_LATEST_NAME, SL_JOURNAL_NAME, SL_PROFILE_NAME };
    int found = 0;
    for (size_t i = 0; i < sizeof signs / sizeof signs[0]; i++) found += has_file(folder, signs[i]);
    return found >= 2;
}

static bool looks_like_checkpoint(const char *folder)
{
    return has_file(folder, SL_MANIFEST_NAME) && has_file(folder, SL_RANK_0_NAME);
}

static const char *path_of(const sl_set_file *out)
{
    return out->is_folder ? out->folder.path : out->target.path;
}

static const char *folder_of(const sl_set_file *out)
{
    return out->is_folder ? out->folder.parent : out->target.folder;
}

static sluice_status refuse_run_file(const sl_set_file *out)
{
    return sl_fail(SLUICE_ERR_USAGE,
                   "%s: %s is a file of a run or of its checkpoints, which only the run itself writes; "
                   "name another",
                   out->name, out->path);
}

/* Wherever it is, and whatever the command reads. */
static sluice_status compare_with_runs(const sl_set_file *out)
{
    char above[PATH_MAX];
    const char *folder = folder_of(out);
    if (looks_like_checkpoint(folder) || (out->is_folder && looks_like_checkpoint(out->folder.path)))
        return refuse_run_file(out);
    if (is_run_file(last_name(path_of(out))) && looks_like_run(folder)) return refuse_run_file(out);
    if (snprintf(above, sizeof above, "%s/..", folder) >= (int)sizeof above) return SLUICE_OK;
    return strcmp(last_name(folder), SL_KEPT_MODEL) == 0 && looks_like_run(above) ? refuse_run_file(out) : SLUICE_OK;
}

/* The run that is read, also where nothing but its journal is left. */
static sluice_status compare_with_run(const sl_set_file *in, const sl_set_file *out)
{
    char run[PATH_MAX], path[PATH_MAX];
    bool same = false;
    int depth;
    const bool is_step = looks_like_checkpoint(in->path);
    if (snprintf(run, sizeof run, "%s%s", in->path, is_step ? "/.." : "") >= (int)sizeof run) return SLUICE_OK;
    SL_TRY(depth_below(folder_of(out), run, &depth));
    for (int i = 0; i < RUN_FILES && !out->is_folder && !same; i++) {
        if (snprintf(path, sizeof path, "%s/%s", run, run_files[i]) < (int)sizeof path)
            SL_TRY(sl_target_is_file(&out->target, path, &same));
    }
    if (same || (depth == 0 && is_run_file(last_name(path_of(out))))) return refuse_run_file(out);
    return SLUICE_OK;
}

/* ---- Inputs ---- */

/* A file is not put into a folder that is read either: it may be one of those that are. Of a model's folder these have
 * names. */
static sluice_status is_in(const sl_file_set *f, const sl_set_file *out, bool model, const char *input, bool *in)
{
    const sl_target *target = &out->target;
    sl_path_info folder, there;
    SL_TRY(sl_target_is_file(target, input, in));
    if (*in || sl_path_look(input, &there) != SLUICE_OK || there.kind != SL_PATH_FOLDER) return SLUICE_OK;
    SL_TRY(sl_path_look(target->folder, &folder));
    *in = same_place(&folder, &there) && (!model || f->is_model(last_name(target->path)));
    return SLUICE_OK;
}

static sluice_status replaces(const sl_file_set *f, const sl_set_file *out, bool model, const char *input, bool *same)
{
    return out->is_folder ? sl_folder_target_holds(&out->folder, input, same) : is_in(f, out, model, input, same);
}

typedef struct member_search {
    const sl_file_set *set;
    const sl_set_file *in, *out;
    bool found;
} member_search;

/* Another name of the target, a hard link, among the files of a model. */
static sluice_status look_at_member(void *user, const char *name)
{
    member_search *s = user;
    char path[PATH_MAX];
    if (s->found || !s->set->is_model(name)) return SLUICE_OK;
    if (snprintf(path, sizeof path, "%s/%s", s->in->path, name) >= (int)sizeof path) return SLUICE_OK;
    return sl_target_is_file(&s->out->target, path, &s->found);
}

static sluice_status is_member(const sl_file_set *f, const sl_set_file *in, const sl_set_file *out, bool *same)
{
    sl_path_info there;
    member_search s = { f, in, out, false };
    if (*same || in->role != SL_SET_MODEL || out->is_folder) return SLUICE_OK;
    if (sl_path_look(in->path, &there) != SLUICE_OK || there.kind != SL_PATH_FOLDER) return SLUICE_OK;
    SL_TRY(sl_dir_list(in->path, look_at_member, &s));
    *same = s.found;
    return SLUICE_OK;
}

/* Whether an output replaces a file that `path` names, which may be a pattern. One that names nothing is reported when it is
 * read. */
static sluice_status is_input(const sl_file_set *f, const sl_set_file *in, const sl_set_file *out, bool *same)
{
    const bool model = in->role == SL_SET_MODEL;
    sl_path_list list;
    *same = false;
    sluice_status st = sl_path_exists(in->path) ? SLUICE_ERR_INPUT : sl_path_expand(f->stop, in->path, &list);
    if (st == SLUICE_ERR_STOPPED) return st;
    if (st != SLUICE_OK) {
        SL_TRY(replaces(f, out, model, in->path, same));
        return is_member(f, in, out, same);
    }
    for (int i = 0; i < list.count && st == SLUICE_OK && !*same; i++) st = replaces(f, out, model, list.paths[i], same);
    sl_path_list_free(&list);
    return st;
}

/* A file in the folders below one that is read. */
static sluice_status is_below(const sl_set_file *in, const sl_set_file *out, bool *same)
{
    int depth;
    if (*same || in->role != SL_SET_DATA || out->is_folder || out->target.before.kind == SL_PATH_MISSING)
        return SLUICE_OK;
    SL_TRY(depth_below(out->target.folder, in->path, &depth));
    *same = depth > 0;
    return SLUICE_OK;
}

static bool is_input_role(sl_set_role role)
{
    return role == SL_SET_READ || role == SL_SET_DATA || role == SL_SET_MODEL;
}

static sluice_status compare_with_inputs(const sl_file_set *f, const sl_set_file *out)
{
    for (int i = 0; i < f->count; i++) {
        const sl_set_file *in = &f->list[i];
        bool same = false;
        if (in->role == SL_SET_RUN) SL_TRY(compare_with_run(in, out));
        if (in->role == SL_SET_RUN && out->is_folder) SL_TRY(sl_folder_target_holds(&out->folder, in->path, &same));
        if (is_input_role(in->role)) SL_TRY(is_input(f, in, out, &same));
        if (is_input_role(in->role)) SL_TRY(is_below(in, out, &same));
        if (same)
            return sl_fail(SLUICE_ERR_USAGE,
                           "%s: writing %s would replace %s, %s, which this run reads; name another %s", out->name,
                           out->path, in->name, in->path, out->is_folder ? "folder" : "file");
    }
    return SLUICE_OK;
}

/* ---- Outputs ---- */

/* A folder that is replaced as a whole holds nothing that something else writes. */
static sluice_status compare_folder(const sl_file_set *f, const sl_set_file *out)
{
    for (int i = 0; i < f->count; i++) {
        const sl_set_file *other = &f->list[i];
        bool above;
        if (other == out || (!is_output(other) && other->role != SL_SET_FOLDER)) continue;
        SL_TRY(sl_folder_target_is_above(&out->folder, other->path, &above));
        if (above)
            return sl_fail(SLUICE_ERR_USAGE, "%s, %s, is or lies in the folder that %s writes, %s; name another",
                           other->name, other->path, out->name, out->path);
    }
    return SLUICE_OK;
}

static sluice_status compare_with_outputs(const sl_file_set *f, const sl_set_file *out)
{
    if (out->is_folder) return compare_folder(f, out);
    for (const sl_set_file *other = f->list; other < out; other++) {
        bool same;
        if (!is_output(other) || other->is_folder) continue;
        SL_TRY(sl_target_is_target(&out->target, &other->target, &same));
        if (same)
            return sl_fail(SLUICE_ERR_USAGE, "%s and %s would write the same file, %s; name two", other->name,
                           out->name, out->path);
    }
    return SLUICE_OK;
}

/* The setting or option in front of what is wrong with its path. */
static sluice_status named(const sl_set_file *s, sluice_status st)
{
    char message[SL_MESSAGE_BYTES];
    if (st == SLUICE_OK) return st;
    sl_error_copy(message);
    return sl_fail(st, "%s: %s", s->name, message);
}

/* ---- All of them ---- */

static sluice_status find_target(const sl_file_set *f, sl_set_file *s)
{
    if (s->is_folder) return sl_folder_target_find(s->path, f->signs, &s->folder);
    return sl_target_find(s->path, &s->target);
}

sluice_status sl_file_set_check(sl_file_set *f)
{
    for (int i = 0; i < f->count; i++)
        if (is_output(&f->list[i])) SL_TRY(named(&f->list[i], find_target(f, &f->list[i])));
    for (int i = 0; i < f->count; i++) {
        const sl_set_file *out = &f->list[i];
        if (!is_output(out)) continue;
        SL_TRY(compare_with_inputs(f, out));
        SL_TRY(compare_with_outputs(f, out));
        if (out->role != SL_SET_GUARD) SL_TRY(compare_with_runs(out));
    }
    return SLUICE_OK;
}

static sluice_status try_output(const sl_set_file *s)
{
    char folder[PATH_MAX];
    if (s->role == SL_SET_FOLDER) return sl_dir_try(s->path, folder);
    if (!is_output(s) || s->role == SL_SET_GUARD) return SLUICE_OK;
    if (s->is_folder) return sl_folder_target_try(&s->folder);
    if (s->role == SL_SET_APPEND && s->target.before.kind != SL_PATH_MISSING) return sl_file_try_append(s->target.path);
    return sl_target_try(&s->target);
}

/* All are compared before the first is tried: a trial removes what a killed run left beside its file. */
sluice_status sl_file_set_try(sl_file_set *f, sluice_status st)
{
    if (st == SLUICE_OK) st = sl_file_set_check(f);
    for (int i = 0; i < f->count && st == SLUICE_OK; i++) st = named(&f->list[i], try_output(&f->list[i]));
    sl_file_set_free(f);
    return st;
}
