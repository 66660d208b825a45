/* claim.c: see claim.h. */
#include "core/claim.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "core/io_calls.h"
#include "core/status.h"
#include "core/thread.h"

#define PATIENCE_SECONDS 1.0

enum { UNIQUE_DIGITS = 8, TEXT_BYTES = NAME_MAX + 64 };

/* ---- Names ---- */

static sluice_status too_long(const char *target)
{
    return sl_fail(SLUICE_ERR_USAGE, "the path of what is to be written is too long: %.80s...; use a shorter one",
                   target);
}

sluice_status sl_claim_lock_path(const char *target, char lock[PATH_MAX])
{
    int length = snprintf(lock, PATH_MAX, "%s.tmp", target);
    return length >= 0 && length < PATH_MAX ? SLUICE_OK : too_long(target);
}

static sluice_status choose_temporary(const char *target, sl_claim *c)
{
    uint32_t noise;
    if (getrandom(&noise, sizeof noise, GRND_NONBLOCK) != (ssize_t)sizeof noise)
        noise = (uint32_t)getpid() * 2654435761u ^ (uint32_t)(sl_now() * 1e6);
    int length = snprintf(c->temporary, sizeof c->temporary, "%s.%08" PRIx32 ".tmp", target, noise);
    return length >= 0 && length < (int)sizeof c->temporary ? SLUICE_OK : too_long(target);
}

static const char *last_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

/* Whether `name` is one that choose_temporary makes for the target of this lock. */
static bool is_temporary_name(const sl_claim *c, const char *name)
{
    const char *lock = last_name(c->lock);
    size_t stem = strlen(lock) - strlen(".tmp");
    return strlen(name) == stem + 1 + UNIQUE_DIGITS + strlen(".tmp") && strncmp(name, lock, stem) == 0 &&
           name[stem] == '.' && strspn(name + stem + 1, "0123456789abcdef") == UNIQUE_DIGITS &&
           strcmp(name + stem + 1 + UNIQUE_DIGITS, ".tmp") == 0;
}

/* ---- What the lock file says ---- */

/* "PID NAME\n" of whoever held it last; false: it says nothing of the kind. */
static bool parse_lock(const sl_claim *c, char *text, int64_t *pid, char name[TEXT_BYTES])
{
    char *end, *line = strchr(text, '\n');
    *pid = strtoll(text, &end, 10);
    if (line == NULL || line[1] != '\0' || *end != ' ') return false;
    *line = '\0';
    if (!is_temporary_name(c, end + 1)) return false;
    strcpy(name, end + 1);
    return true;
}

/* With the lock held. *name is "" where nothing was said yet; *ours false: the file is none of ours, but of a version without
 * locks, or another name of somebody's data. */
static sluice_status read_lock(const sl_claim *c, const struct stat *info, char name[TEXT_BYTES], bool *ours)
{
    char text[TEXT_BYTES];
    int64_t pid;
    name[0] = '\0';
    *ours = info->st_nlink == 1 && info->st_size < (off_t)sizeof text;
    if (!*ours || info->st_size == 0) return SLUICE_OK; /* empty: its maker was killed before it wrote */
    ssize_t bytes = sl_io_pread(c->fd, c->lock, text, sizeof text - 1, 0);
    if (bytes < 0) return sl_io_fail("read", c->lock);
    text[bytes] = '\0';
    *ours = parse_lock(c, text, &pid, name);
    return SLUICE_OK;
}

static sluice_status write_lock(const sl_claim *c, const struct stat *info)
{
    char text[TEXT_BYTES];
    int length = snprintf(text, sizeof text, "%ld %s\n", (long)getpid(), last_name(c->temporary));
    if (length >= (int)sizeof text) return too_long(c->temporary);
    if (info->st_size > 0 && sl_io_ftruncate(c->fd, c->lock, 0) != 0) return sl_io_fail("write", c->lock);
    ssize_t n = sl_io_pwrite(c->fd, c->lock, text, (size_t)length, 0);
    if (n >= 0 && n < length) errno = ENOSPC;
    return n == length ? SLUICE_OK : sl_io_fail("write", c->lock);
}

/* A file, or a folder with files, that a process which is dead now made under the name that its lock says. */
static sluice_status remove_dead(const sl_claim *c, const char *name)
{
    char path[PATH_MAX];
    sl_path_info there;
    const size_t folder = (size_t)(last_name(c->lock) - c->lock);
    if (name[0] == '\0' || folder + strlen(name) >= sizeof path) return SLUICE_OK;
    memcpy(path, c->lock, folder);
    strcpy(path + folder, name);
    SL_TRY(sl_path_look_at_name(path, &there));
    return there.kind == SL_PATH_FOLDER ? sl_dir_remove_tree(path)
           : there.kind == SL_PATH_FILE ? sl_path_remove(path)
                                        : SLUICE_OK;
}

/* ---- The lock ---- */

typedef enum { GOT_IT, GOT_NONE, HELD, TRY_AGAIN } outcome;

static bool has_no_locks(int error)
{
    return error == ENOSYS || error == EOPNOTSUPP || error == ENOLCK || error == EINVAL;
}

static sluice_status refuse_lock(const char *lock, const char *target, const char *what, sl_path_kind kind)
{
    return sl_fail(SLUICE_ERR_USAGE, "%s, which is needed while %s is written, is a %s; remove it or name another %s",
                   lock, target, sl_path_kind_name(kind), what);
}

static sluice_status open_lock(const char *target, bool folder, sl_claim *c)
{
    sl_path_info there;
    SL_TRY(sl_path_look_at_name(c->lock, &there));
    if (folder && there.kind == SL_PATH_FOLDER)
        SL_TRY(sl_dir_remove_tree(c->lock)); /* of a version without locks */
    else if (there.kind != SL_PATH_MISSING && there.kind != SL_PATH_FILE)
        return refuse_lock(c->lock, target, folder ? "folder" : "file", there.kind);
    c->fd = sl_io_open(c->lock, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK);
    return c->fd >= 0 ? SLUICE_OK : sl_io_fail("create", c->lock);
}

/* Whether the lock file still has its name: whoever held it before may have removed that meanwhile. */
static sluice_status look_at_lock(const sl_claim *c, struct stat *info, bool *named)
{
    struct stat there;
    if (sl_io_fstat(c->fd, c->lock, info) != 0) return sl_io_fail("examine", c->lock);
    *named = sl_io_lstat(c->lock, &there) == 0;
    if (!*named && errno != ENOENT) return sl_io_fail("examine", c->lock);
    *named = *named && there.st_dev == info->st_dev && there.st_ino == info->st_ino;
    return SLUICE_OK;
}

/* With the lock held: takes over from whoever is dead, and says what is to come. */
static sluice_status take_over(sl_claim *c, outcome *found)
{
    char dead[TEXT_BYTES];
    struct stat info;
    bool named = false, ours = false;
    SL_TRY(look_at_lock(c, &info, &named));
    if (!named) return SLUICE_OK;
    SL_TRY(read_lock(c, &info, dead, &ours));
    if (!ours) return sl_path_remove(c->lock); /* a name less, and nothing is written through it */
    SL_TRY(remove_dead(c, dead));
    sluice_status st = write_lock(c, &info);
    if (st != SLUICE_OK) (void)sl_io_unlink(c->lock);
    *found = GOT_IT;
    return st;
}

static void let_go(sl_claim *c)
{
    if (c->fd < 0) return;
    sl_io_flock(c->fd, c->lock, LOCK_UN); /* forked children may share the descriptor: closing alone would not unlock */
    sl_io_close(c->fd, c->lock);
    c->fd = -1;
}

/* The lock file stays open in HELD alone. */
static sluice_status take_once(const char *target, bool folder, sl_claim *c, outcome *found)
{
    sluice_status st = open_lock(target, folder, c);
    if (st != SLUICE_OK) return st;
    if (sl_io_flock(c->fd, c->lock, LOCK_EX | LOCK_NB) == 0) {
        st = take_over(c, found);
    } else if (errno == EWOULDBLOCK) {
        *found = HELD;
        return SLUICE_OK;
    } else if (has_no_locks(errno)) {
        *found = GOT_NONE;
        st = sl_path_remove(c->lock);
    } else {
        st = sl_io_fail("lock", c->lock);
    }
    if (st != SLUICE_OK || *found != GOT_IT) let_go(c);
    return st;
}

static sluice_status refuse_second(const char *target, const sl_claim *c)
{
    char text[TEXT_BYTES], name[TEXT_BYTES];
    int64_t pid;
    ssize_t bytes = sl_io_pread(c->fd, c->lock, text, sizeof text - 1, 0);
    text[bytes > 0 ? bytes : 0] = '\0';
    if (!parse_lock(c, text, &pid, name) || pid <= 0)
        return sl_fail(SLUICE_ERR_USAGE, "%s is being written by another process; wait for it or name another output",
                       target);
    return sl_fail(SLUICE_ERR_USAGE, "%s is being written by process %" PRId64 "; wait for it or name another output",
                   target, pid);
}

sluice_status sl_claim_take(const char *target, bool folder, sl_claim *out)
{
    static const struct timespec nap = { 0, 10000000 };
    const double until = sl_now() + PATIENCE_SECONDS;
    out->taken = false;
    out->fd = -1;
    SL_TRY(sl_claim_lock_path(target, out->lock));
    SL_TRY(choose_temporary(target, out));
    for (;;) {
        outcome found = TRY_AGAIN;
        SL_TRY(take_once(target, folder, out, &found));
        out->taken = found == GOT_IT || found == GOT_NONE;
        if (out->taken) return SLUICE_OK;
        const bool over = sl_now() >= until;
        sluice_status st = found == HELD && over ? refuse_second(target, out) : SLUICE_OK;
        let_go(out);
        if (st != SLUICE_OK) return st;
        if (over)
            return sl_fail(SLUICE_ERR_USAGE,
                           "%s: others that write it come and go; wait for them or name another output", target);
        if (found == HELD) nanosleep(&nap, NULL);
    }
}

sluice_status sl_claim_held(const char *target, sl_claim *out)
{
    sl_path_info there;
    out->taken = false;
    out->fd = -1;
    SL_TRY(sl_claim_lock_path(target, out->temporary));
    SL_TRY(sl_path_look_at_name(out->temporary, &there));
    if (there.kind == SL_PATH_FILE) SL_TRY(sl_path_remove(out->temporary));
    if (there.kind != SL_PATH_FILE && there.kind != SL_PATH_MISSING)
        return refuse_lock(out->temporary, target, "file", there.kind);
    out->taken = true;
    return SLUICE_OK;
}

void sl_claim_end(sl_claim *c)
{
    if (!c->taken) return;
    c->taken = false;
    if (c->fd >= 0) (void)sl_io_unlink(c->lock); /* a leftover is the next one's */
    let_go(c);
}
