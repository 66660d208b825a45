/* output_folder.c: see output_folder.h. */
#include "core/output_folder.h"

#include <stdio.h>
#include <string.h>

#include "core/quote.h"
#include "core/status.h"

/* ---- Targets ---- */

bool sl_is_folder_output(const char *path)
{
    sl_path_info there;
    size_t length = strlen(path);
    if (length > 0 && path[length - 1] == '/') return true;
    return sl_path_look(path, &there) == SLUICE_OK && there.kind == SL_PATH_FOLDER;
}

static sluice_status join(const char *folder, const char *name, char path[PATH_MAX])
{
    int length = snprintf(path, PATH_MAX, "%s/%s", folder, name);
    if (length >= 0 && length < PATH_MAX) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_USAGE, "the path of the folder to write is too long: %.80s...; use a shorter one",
                   folder);
}

/* Without the slashes at its end; links followed. "." and ".." have no name that could be given to another folder. */
static sluice_status follow(const char *path, char out[PATH_MAX])
{
    char plain[PATH_MAX];
    size_t length = strlen(path);
    if (length >= sizeof plain)
        return sl_fail(SLUICE_ERR_USAGE, "the path of the folder to write is too long: %.80s...; use a shorter one",
                       path);
    while (length > 1 && path[length - 1] == '/') length--;
    memcpy(plain, path, length);
    plain[length] = '\0';
    const char *slash = strrchr(plain, '/'), *name = slash != NULL ? slash + 1 : plain;
    if (name[0] == '\0' || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return sl_fail(SLUICE_ERR_USAGE, "%s cannot be replaced by another folder; name a new one", path);
    return sl_path_follow(plain, out);
}

/* What stands in a folder. */
typedef struct contents {
    const char *folder;
    const char *const *signs;
    bool has_sign, has_file;
} contents;

static sluice_status look_at_entry(void *user, const char *name)
{
    contents *c = user;
    char path[PATH_MAX];
    sl_path_info there;
    SL_TRY(join(c->folder, name, path));
    SL_TRY(sl_path_look_at_name(path, &there));
    if (there.kind != SL_PATH_FILE && there.kind != SL_PATH_LINK)
        return sl_fail(SLUICE_ERR_USAGE, "%s holds %s, a %s, so that it is not replaced; name a new folder", c->folder,
                       sl_quote(name).text, sl_path_kind_name(there.kind));
    c->has_file = true;
    for (const char *const *s = c->signs; *s != NULL; s++) c->has_sign = c->has_sign || strcmp(name, *s) == 0;
    return SLUICE_OK;
}

/* Only a folder that this program, or one with the same layout, may have written gives way. */
static sluice_status check_contents(const sl_folder_target *t, const char *const *signs)
{
    contents c = { .folder = t->path, .signs = signs };
    sl_path_info parent;
    SL_TRY(sl_path_look(t->parent, &parent));
    if (parent.device != t->before.device)
        return sl_fail(SLUICE_ERR_USAGE,
                       "%s is a mount point, which cannot be replaced as a whole; name a folder in it", t->path);
    SL_TRY(sl_dir_list(t->path, look_at_entry, &c));
    if (c.has_sign || !c.has_file) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_USAGE, "%s holds files, but no %s, so that it is not replaced; name a new folder",
                   t->path, signs[0]);
}

/* A run was killed between two renames. With the claim held. */
static sluice_status put_back(sl_folder_target *t)
{
    sl_path_info old;
    SL_TRY(sl_path_look(t->path, &t->before));
    if (t->before.kind != SL_PATH_MISSING) return SLUICE_OK;
    SL_TRY(sl_path_look_at_name(t->old, &old));
    if (old.kind != SL_PATH_FOLDER) return SLUICE_OK;
    SL_TRY(sl_path_rename(t->old, t->path));
    return sl_path_look(t->path, &t->before);
}

/* The same where it seems to be so; somebody who is between the two renames holds the claim and goes on. */
static sluice_status put_back_alone(sl_folder_target *t)
{
    sl_path_info old;
    sl_claim claim;
    if (t->before.kind != SL_PATH_MISSING) return SLUICE_OK;
    SL_TRY(sl_path_look_at_name(t->old, &old));
    if (old.kind != SL_PATH_FOLDER) return SLUICE_OK;
    SL_TRY(sl_claim_take(t->path, true, &claim));
    sluice_status st = put_back(t);
    sl_claim_end(&claim);
    return st;
}

/* What is there gives way, or nothing is. */
static sluice_status check_before(const sl_folder_target *t, const char *path, const char *const *signs)
{
    if (t->before.kind == SL_PATH_MISSING) return SLUICE_OK;
    if (t->before.kind == SL_PATH_FOLDER) return check_contents(t, signs);
    return sl_fail(SLUICE_ERR_USAGE, "%s is a %s, which is not replaced by a folder; name a new folder", path,
                   sl_path_kind_name(t->before.kind));
}

sluice_status sl_folder_target_find(const char *path, const char *const *signs, sl_folder_target *out)
{
    SL_TRY(follow(path, out->path));
    SL_TRY(sl_path_parent(out->path, out->parent));
    SL_TRY(sl_claim_lock_path(out->path, out->lock));
    snprintf(out->old, sizeof out->old, "%.*s.old", (int)(strlen(out->lock) - strlen(".tmp")), out->lock);
    SL_TRY(sl_path_look(out->path, &out->before));
    SL_TRY(put_back_alone(out));
    return check_before(out, path, signs);
}

static bool same_file(const sl_path_info *a, const sl_path_info *b)
{
    return a->kind != SL_PATH_MISSING && b->kind != SL_PATH_MISSING && a->device == b->device && a->inode == b->inode;
}

/* The input as it is spelt and where its links lead: either may be in the folder. */
sluice_status sl_folder_target_holds(const sl_folder_target *target, const char *input, bool *holds)
{
    char real[PATH_MAX], parent[PATH_MAX];
    sl_path_info info;
    *holds = false;
    if (sl_path_look(input, &info) != SLUICE_OK) return SLUICE_OK; /* whoever reads it says so */
    *holds = same_file(&info, &target->before);
    SL_TRY(sl_path_parent(input, parent));
    if (sl_path_look(parent, &info) == SLUICE_OK) *holds = *holds || same_file(&info, &target->before);
    if (sl_path_follow(input, real) != SLUICE_OK) return SLUICE_OK;
    SL_TRY(sl_path_parent(real, parent));
    if (sl_path_look(parent, &info) == SLUICE_OK) *holds = *holds || same_file(&info, &target->before);
    return SLUICE_OK;
}

static const char *last_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

/* By folder and name, for what is not there yet. */
static sluice_status is_same_place(const sl_folder_target *target, const char *path, bool *same)
{
    char parent[PATH_MAX];
    sl_path_info mine, other;
    SL_TRY(sl_path_look(path, &other));
    *same = same_file(&target->before, &other);
    if (*same || strcmp(last_name(path), last_name(target->path)) != 0) return SLUICE_OK;
    SL_TRY(sl_path_parent(path, parent));
    SL_TRY(sl_path_look(parent, &other));
    SL_TRY(sl_path_look(target->parent, &mine));
    *same = same_file(&mine, &other);
    return SLUICE_OK;
}

sluice_status sl_folder_target_is_above(const sl_folder_target *target, const char *path, bool *above)
{
    char at[PATH_MAX], next[PATH_MAX];
    *above = false;
    if (snprintf(at, sizeof at, "%s", path) >= (int)sizeof at) return SLUICE_OK; /* whoever writes it says so */
    for (;;) {
        for (size_t n = strlen(at); n > 1 && at[n - 1] == '/'; n--) at[n - 1] = '\0';
        SL_TRY(is_same_place(target, at, above));
        if (*above || strcmp(at, "/") == 0 || strchr(at, '/') == NULL) return SLUICE_OK;
        SL_TRY(sl_path_parent(at, next));
        memcpy(at, next, sizeof at);
    }
}

/* An old folder that was to go when a run was killed. */
static sluice_status remove_old(const sl_folder_target *t)
{
    sl_path_info there;
    SL_TRY(sl_path_look_at_name(t->old, &there));
    if (there.kind == SL_PATH_MISSING) return SLUICE_OK;
    if (there.kind == SL_PATH_FOLDER) return sl_dir_remove_tree(t->old);
    return sl_fail(SLUICE_ERR_USAGE,
                   "%s, which is needed while %s is written, is a %s; remove it or name another folder", t->old,
                   t->path, sl_path_kind_name(there.kind));
}

static sluice_status check_parent(const sl_folder_target *t)
{
    sl_path_info parent;
    SL_TRY(sl_path_look(t->parent, &parent));
    if (parent.kind == SL_PATH_FOLDER) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_IO, "%s cannot be made: there is no folder %s", t->path, t->parent);
}

/* With the claim held: what is there now is what was written last, whoever did. */
static sluice_status make_temporary(sl_folder_output *o, const char *const *signs)
{
    sl_folder_target *t = &o->target;
    SL_TRY(put_back(t));
    if (signs != NULL) SL_TRY(check_before(t, t->path, signs));
    SL_TRY(remove_old(t));
    return sl_dir_make(o->claim.temporary);
}

/* signs: NULL where what is there was looked at. */
static sluice_status begin(const sl_folder_target *target, const char *const *signs, sl_folder_output *o)
{
    *o = (sl_folder_output){ .target = *target };
    SL_TRY(check_parent(target));
    SL_TRY(sl_claim_take(target->path, true, &o->claim));
    sluice_status st = make_temporary(o, signs);
    if (st != SLUICE_OK) sl_claim_end(&o->claim);
    return st;
}

sluice_status sl_folder_target_try(const sl_folder_target *target)
{
    sl_folder_output o;
    SL_TRY(begin(target, NULL, &o));
    sluice_status st = sl_dir_remove_tree(o.claim.temporary);
    sl_claim_end(&o.claim);
    return st;
}

/* ---- Outputs ---- */

sluice_status sl_folder_output_begin(const char *path, const char *const *signs, sl_folder_output *out)
{
    sl_folder_target target;
    out->claim.taken = false;
    SL_TRY(sl_folder_target_find(path, signs, &target));
    return begin(&target, signs, out);
}

sluice_status sl_folder_output_path(const sl_folder_output *o, const char *name, char path[PATH_MAX])
{
    return join(o->claim.temporary, name, path);
}

void sl_folder_output_drop(sl_folder_output *o)
{
    char message[SL_MESSAGE_BYTES];
    if (!o->claim.taken) return;
    sl_error_copy(message);
    if (sl_dir_remove_tree(o->claim.temporary) != SLUICE_OK) sl_error_record("%s", message);
    sl_claim_end(&o->claim);
}

/* What of the old folder stays. */
typedef struct carrying {
    const sl_folder_output *output;
    bool (*disowns)(const char *name);
} carrying;

static sluice_status carry(void *user, const char *name)
{
    const carrying *c = user;
    char from[PATH_MAX], to[PATH_MAX];
    sl_path_info there;
    if (c->disowns(name)) return SLUICE_OK;
    SL_TRY(join(c->output->target.path, name, from));
    SL_TRY(join(c->output->claim.temporary, name, to));
    SL_TRY(sl_path_look_at_name(to, &there));
    if (there.kind != SL_PATH_MISSING || sl_path_link(from, to) == SLUICE_OK) return SLUICE_OK;
    return sl_file_copy(from, to); /* not every file system has links */
}

/* Two renames where the file system cannot exchange names. */
static sluice_status replace_by_renames(const sl_folder_output *o)
{
    char message[SL_MESSAGE_BYTES];
    const sl_folder_target *t = &o->target;
    SL_TRY(sl_path_rename(t->path, t->old));
    sluice_status st = sl_path_rename(o->claim.temporary, t->path);
    if (st == SLUICE_OK) return SLUICE_OK;
    sl_error_copy(message);
    (void)sl_path_rename(t->old, t->path);
    return sl_fail(st, "%s", message);
}

/* Gives the folder its name; *old is where the former contents are then, NULL where there were none. */
static sluice_status take_name(const sl_folder_output *o, const char **old)
{
    bool exchanged;
    const sl_folder_target *t = &o->target;
    *old = NULL;
    if (t->before.kind != SL_PATH_FOLDER) return sl_path_rename(o->claim.temporary, t->path);
    SL_TRY(sl_path_exchange(o->claim.temporary, t->path, &exchanged));
    *old = exchanged ? o->claim.temporary : t->old;
    return exchanged ? SLUICE_OK : replace_by_renames(o);
}

/* All that it holds is on the disk. */
static sluice_status put_in_place(const sl_folder_output *o)
{
    char message[SL_MESSAGE_BYTES];
    const char *old;
    sluice_status st = take_name(o, &old);
    if (st != SLUICE_OK) {
        sl_error_copy(message);
        return sl_fail(st, "%.1000s. What was to be written is whole in %.900s", message, o->claim.temporary);
    }
    SL_TRY(sl_dir_sync(o->target.parent));
    return old != NULL ? sl_dir_remove_tree(old) : SLUICE_OK;
}

sluice_status sl_folder_output_finish(sl_folder_output *o, bool (*disowns)(const char *name))
{
    const sl_folder_target *t = &o->target;
    carrying c = { o, disowns };
    sluice_status st = t->before.kind == SL_PATH_FOLDER ? sl_dir_list(t->path, carry, &c) : SLUICE_OK;
    if (st == SLUICE_OK) st = sl_dir_sync(o->claim.temporary);
    if (st != SLUICE_OK) {
        sl_folder_output_drop(o);
        return st;
    }
    st = put_in_place(o);
    sl_claim_end(&o->claim);
    return st;
}
