/* output.c: see output.h. */
#include "core/output.h"

#include <stdio.h>
#include <string.h>

#include "core/status.h"

/* ---- Targets ---- */

static sluice_status refuse_kind(const char *path, sl_path_kind kind)
{
    if (kind == SL_PATH_MISSING || kind == SL_PATH_FILE) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_USAGE, "%s is a %s, which is not replaced by a file; name a regular file or a new one",
                   path, sl_path_kind_name(kind));
}

static sluice_status check_spelling(const char *path)
{
    size_t length = strlen(path);
    if (length == 0) return sl_fail(SLUICE_ERR_USAGE, "the path of the file to write is empty; name a file");
    if (path[length - 1] != '/') return SLUICE_OK;
    return sl_fail(SLUICE_ERR_USAGE, "%s ends in a slash, so that it names a directory; name a file", path);
}

/* Links into /proc need not lead to the file that they stand for. */
static sluice_status check_followed(const char *path, const sl_target *t)
{
    sl_path_info there;
    SL_TRY(sl_path_look(t->path, &there));
    if (there.kind == t->before.kind && there.device == t->before.device && there.inode == t->before.inode)
        return SLUICE_OK;
    return sl_fail(SLUICE_ERR_USAGE, "%s leads to %s, which is another file; name the file itself", path, t->path);
}

sluice_status sl_target_find(const char *path, sl_target *out)
{
    SL_TRY(check_spelling(path));
    SL_TRY(sl_path_look(path, &out->before));
    SL_TRY(refuse_kind(path, out->before.kind));
    SL_TRY(sl_path_follow(path, out->path));
    SL_TRY(check_followed(path, out));
    SL_TRY(sl_path_parent(out->path, out->folder));
    return sl_claim_lock_path(out->path, out->lock);
}

static bool same_file(const sl_path_info *a, const sl_path_info *b)
{
    return a->kind != SL_PATH_MISSING && b->kind != SL_PATH_MISSING && a->device == b->device && a->inode == b->inode;
}

sluice_status sl_target_is_file(const sl_target *target, const char *input, bool *same)
{
    sl_path_info lock, in;
    *same = false;
    if (sl_path_look(input, &in) != SLUICE_OK) return SLUICE_OK; /* whoever reads it says so */
    SL_TRY(sl_path_look(target->lock, &lock));
    *same = same_file(&target->before, &in) || same_file(&lock, &in);
    return SLUICE_OK;
}

static const char *last_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

/* By their folders and names, for files that are not there yet. */
sluice_status sl_target_is_target(const sl_target *a, const sl_target *b, bool *same)
{
    sl_path_info of_a, of_b;
    SL_TRY(sl_path_look(a->folder, &of_a));
    SL_TRY(sl_path_look(b->folder, &of_b));
    bool named = strcmp(last_name(a->path), last_name(b->path)) == 0 ||
                 strcmp(last_name(a->lock), last_name(b->path)) == 0 ||
                 strcmp(last_name(a->path), last_name(b->lock)) == 0;
    *same = same_file(&a->before, &b->before) || (named && same_file(&of_a, &of_b));
    return SLUICE_OK;
}

/* Another may have written the target meanwhile. */
static sluice_status claim(sl_output *o)
{
    SL_TRY(sl_claim_take(o->target.path, false, &o->claim));
    SL_TRY(sl_path_look(o->target.path, &o->target.before));
    return refuse_kind(o->target.path, o->target.before.kind);
}

static sluice_status open_temporary(sl_output *o)
{
    SL_TRY(sl_file_open(o->claim.temporary, SL_CREATE | SL_NEW, &o->file));
    if (o->target.before.kind == SL_PATH_MISSING) return SLUICE_OK;
    return sl_file_take_mode(&o->file, &o->target.before);
}

/* held: the folder of the target is locked already. */
static sluice_status begin(const sl_target *target, bool held, sl_output *out)
{
    *out = (sl_output){ .target = *target, .file = { -1, NULL } };
    sluice_status st = held ? sl_claim_held(target->path, &out->claim) : claim(out);
    if (st == SLUICE_OK) st = open_temporary(out);
    if (st != SLUICE_OK) sl_output_drop(out);
    return st;
}

sluice_status sl_target_try(const sl_target *target)
{
    sl_output o;
    SL_TRY(begin(target, false, &o));
    sl_file_close(&o.file);
    sluice_status st = sl_path_remove(o.claim.temporary);
    sl_claim_end(&o.claim);
    return st;
}

/* ---- Outputs ---- */

static sluice_status begin_at(const char *path, bool held, sl_output *out)
{
    sl_target target;
    SL_TRY(sl_target_find(path, &target));
    return begin(&target, held, out);
}

sluice_status sl_output_begin(const char *path, sl_output *out)
{
    return begin_at(path, false, out);
}

/* Of what failed, whose message stays. */
static void remove_temporary(sl_output *o)
{
    char message[SL_MESSAGE_BYTES];
    sl_error_copy(message);
    if (sl_path_remove(o->claim.temporary) != SLUICE_OK) sl_error_record("%s", message);
    sl_claim_end(&o->claim);
}

void sl_output_drop(sl_output *o)
{
    if (o->file.path != NULL) sl_file_close(&o->file);
    if (o->claim.taken) remove_temporary(o);
}

/* Time has passed since the target was found. */
static sluice_status put_in_place(const sl_output *o)
{
    const sl_target *t = &o->target;
    sl_path_info now;
    SL_TRY(sl_path_look_at_name(t->path, &now));
    SL_TRY(refuse_kind(t->path, now.kind));
    return sl_path_rename(o->claim.temporary, t->path);
}

sluice_status sl_output_finish(sl_output *o)
{
    sluice_status st = sl_file_finish(&o->file);
    if (st == SLUICE_OK) st = put_in_place(o);
    if (st != SLUICE_OK) {
        remove_temporary(o);
        return st;
    }
    st = sl_dir_sync(o->target.folder);
    sl_claim_end(&o->claim);
    return st;
}

static sluice_status replace(const char *path, bool held, const void *data, size_t bytes)
{
    sl_output o;
    SL_TRY(begin_at(path, held, &o));
    sluice_status st = sl_file_pwrite(&o.file, data, bytes, 0);
    if (st == SLUICE_OK) return sl_output_finish(&o);
    sl_output_drop(&o);
    return st;
}

sluice_status sl_file_replace(const char *path, const void *data, size_t bytes)
{
    return replace(path, false, data, bytes);
}

sluice_status sl_file_replace_held(const char *path, const void *data, size_t bytes)
{
    return replace(path, true, data, bytes);
}

static sluice_status make_link(const char *temporary, const char *path, const char *to)
{
    sl_path_info there;
    SL_TRY(sl_path_look_at_name(path, &there));
    if (there.kind != SL_PATH_MISSING && there.kind != SL_PATH_LINK)
        return sl_fail(SLUICE_ERR_USAGE, "%s, where a link to %s is to be, is a %s; move it away", path, to,
                       sl_path_kind_name(there.kind));
    SL_TRY(sl_path_look_at_name(temporary, &there));
    if (there.kind == SL_PATH_LINK) SL_TRY(sl_path_remove(temporary)); /* of a run that was killed */
    SL_TRY(sl_path_point(to, temporary));
    return sl_path_rename(temporary, path);
}

sluice_status sl_link_replace(const char *folder, const char *name, const char *to)
{
    char path[PATH_MAX], temporary[PATH_MAX];
    if (snprintf(temporary, sizeof temporary, "%s/%s.tmp", folder, name) >= (int)sizeof temporary)
        return sl_fail(SLUICE_ERR_USAGE, "%.80s...: the path of a link in it is too long", folder);
    snprintf(path, sizeof path, "%s/%s", folder, name); /* shorter */
    SL_TRY(make_link(temporary, path, to));
    return sl_dir_sync(folder);
}
