/* swap_file.c: the unnamed files of a swap store.
 *
 * A file without a name is gone with its last descriptor, after kill -9 as after a power cut. O_TMPFILE makes one; where the
 * file system has none, a named one is made and unlinked at once. Space is reserved by fallocate, and O_DIRECT is tried by a
 * transfer of one unit: some file systems take the flag and refuse the transfer. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h> /* mkostemp */
#include <string.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/bytes.h"
#include "core/io.h"
#include "core/status.h"
#include "core/swap_parts.h"

#define TMPFS_MAGIC_NUMBER 0x01021994
#define RAMFS_MAGIC_NUMBER 0x858458f6

int sl_swap_folders(const char *path, char *text, size_t bytes, const char *out[SL_SWAP_MAX_FOLDERS])
{
    int count = 0;
    char *rest;
    snprintf(text, bytes, "%s", path != NULL ? path : "");
    for (char *name = strtok_r(text, ":", &rest); name != NULL && count < SL_SWAP_MAX_FOLDERS;
         name = strtok_r(NULL, ":", &rest))
        out[count++] = name;
    return count;
}

/* ---- System calls, which the hook of core/io.h may refuse ---- */

static bool refused(const char *call, const char *path)
{
    int answer = sl_io_ask(call, path);
    if (answer <= 0) return false;
    errno = answer;
    return true;
}

static int open_unnamed(const char *folder, int flags)
{
    int fd;
    do {
        if (refused("open", folder)) return -1;
        fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC | flags, 0600);
    } while (fd < 0 && errno == EINTR);
    return fd;
}

/* Where there is no O_TMPFILE. The name is there for an instant. */
static int open_unlinked(const char *folder, int flags)
{
    char path[PATH_MAX];
    if ((size_t)snprintf(path, sizeof path, "%s/.sluice-swap-XXXXXX", folder) >= sizeof path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    if (refused("open", folder)) return -1;
    int fd = mkostemp(path, O_CLOEXEC | flags);
    if (fd < 0) return -1;
    if (unlink(path) == 0) return fd;
    int error = errno;
    close(fd);
    errno = error;
    return -1;
}

static int reserve(int fd, const char *folder, uint64_t bytes)
{
    int result;
    do {
        if (refused("fallocate", folder)) return -1;
        result = fallocate(fd, 0, 0, (off_t)bytes);
    } while (result < 0 && errno == EINTR);
    return result;
}

/* ---- One file ---- */

static sluice_status open_failed(const char *folder)
{
    int error = errno;
    return sl_fail(error == EIO || error == EMFILE || error == ENFILE ? SLUICE_ERR_IO : SLUICE_ERR_USAGE,
                   "cannot make a swap file in %s: %s; name a folder that this user may write to", folder,
                   strerror(error));
}

static sluice_status look_at_folder(const char *folder)
{
    sl_path_info there;
    SL_TRY(sl_path_look(folder, &there));
    if (there.kind == SL_PATH_MISSING)
        return sl_fail(
            SLUICE_ERR_USAGE,
            "the folder for swap files (memory.disk_path, nvme_path), %s, does not exist; make it or name another",
            folder);
    if (there.kind != SL_PATH_FOLDER)
        return sl_fail(SLUICE_ERR_USAGE, "%s is a %s; name a folder for swap files", folder,
                       sl_path_kind_name(there.kind));
    return SLUICE_OK;
}

sluice_status sl_swap_room(const char *const *folders, int count, uint64_t *each)
{
    uint64_t room[SL_SWAP_MAX_FOLDERS], file_system[SL_SWAP_MAX_FOLDERS];
    *each = UINT64_MAX;
    for (int i = 0; i < count; i++) {
        SL_TRY(look_at_folder(folders[i]));
        SL_TRY(sl_path_room(folders[i], &room[i], &file_system[i]));
    }
    for (int i = 0; i < count; i++) {
        uint64_t sharing = 0;
        for (int k = 0; k < count; k++) sharing += file_system[k] == file_system[i];
        if (room[i] / sharing < *each) *each = room[i] / sharing;
    }
    return SLUICE_OK;
}

/* With O_DIRECT where the file system takes it. */
static int open_somehow(const char *folder, bool *direct)
{
    static const int flags[] = { O_DIRECT, 0 };
    for (int i = 0; i < 2; i++) {
        *direct = flags[i] != 0;
        int fd = open_unnamed(folder, flags[i]);
        /* EISDIR: a kernel before O_TMPFILE. EINVAL comes of either flag. */
        if (fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL || errno == ENOENT))
            fd = open_unlinked(folder, flags[i]);
        if (fd >= 0 || errno != EINVAL) return fd;
    }
    return -1;
}

static sluice_status no_room(const sl_swap_file *f, uint64_t bytes)
{
    int error = errno;
    char wanted[32], left[32];
    uint64_t room = 0, file_system;
    if (error == ENOSPC || error == EDQUOT || error == EFBIG) {
        if (sl_path_room(f->folder, &room, &file_system) != SLUICE_OK) room = 0;
        return sl_fail(SLUICE_ERR_NO_FIT,
                       "the swap file in %s needs %s (%" PRIu64 " bytes), %s (%" PRIu64
                       " bytes) are free there: %s; free space or name another folder",
                       f->folder, sl_format_bytes(bytes, wanted, sizeof wanted), bytes,
                       sl_format_bytes(room, left, sizeof left), room, strerror(error));
    }
    return sl_fail(SLUICE_ERR_IO, "cannot reserve %" PRIu64 " bytes in %s: %s", bytes, f->folder, strerror(error));
}

/* Where space cannot be reserved, what is free now must do: a disk that fills up later is a failed write. */
static sluice_status reserve_somehow(const sl_swap_file *f, uint64_t bytes, const sl_log *log)
{
    if (reserve(f->fd, f->folder, bytes) == 0) return SLUICE_OK;
    if (errno != EOPNOTSUPP && errno != ENOSYS) return no_room(f, bytes);
    uint64_t room, file_system;
    SL_TRY(sl_path_room(f->folder, &room, &file_system));
    errno = ENOSPC;
    if (room < bytes || ftruncate(f->fd, (off_t)bytes) != 0) return no_room(f, bytes);
    sl_log_write(log, SLUICE_LOG_NOTE, "%s: this file system reserves no space; a disk that fills up ends the run",
                 f->folder);
    return SLUICE_OK;
}

/* A unit out and back; false with errno set. */
static bool transfer_works(const sl_swap_file *f, void *unit)
{
    if (refused("swap_write", f->folder) || pwrite(f->fd, unit, SL_SWAP_UNIT, 0) != SL_SWAP_UNIT) return false;
    return !refused("swap_read", f->folder) && pread(f->fd, unit, SL_SWAP_UNIT, 0) == SL_SWAP_UNIT;
}

/* A transfer of one unit, which decides whether O_DIRECT works. */
static sluice_status try_file(sl_swap_file *f)
{
    char *memory = sl_alloc(2 * SL_SWAP_UNIT, "a unit to try the swap file with");
    if (memory == NULL) return SLUICE_ERR_NO_MEMORY;
    void *unit = memory + (SL_SWAP_UNIT - (uintptr_t)memory % SL_SWAP_UNIT);
    errno = EIO; /* of a short transfer */
    bool works = transfer_works(f, unit);
    if (!works && errno == EINVAL && f->direct) {
        f->direct = false;
        int flags = fcntl(f->fd, F_GETFL);
        works = flags >= 0 && fcntl(f->fd, F_SETFL, flags & ~O_DIRECT) == 0 && transfer_works(f, unit);
    }
    int error = errno;
    sl_free(memory);
    if (works) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_IO, "cannot use the swap file in %s: %s; name another folder", f->folder,
                   strerror(error));
}

static void tell_what_it_lacks(sl_swap_file *f, const sl_log *log)
{
    struct statfs system;
    if (fstatfs(f->fd, &system) == 0 &&
        ((unsigned long)system.f_type == TMPFS_MAGIC_NUMBER || (unsigned long)system.f_type == RAMFS_MAGIC_NUMBER)) {
        f->direct = false;
        sl_log_write(log, SLUICE_LOG_NOTE, "%s is kept in memory, not on a disk: what is put there takes host memory",
                     f->folder);
    } else if (!f->direct)
        sl_log_write(log, SLUICE_LOG_NOTE,
                     "%s: this file system has no O_DIRECT; transfers go through the page cache, which is slower",
                     f->folder);
}

static sluice_status make_file(const char *folder, uint64_t bytes, const sl_log *log, sl_swap_file *f)
{
    SL_TRY(look_at_folder(folder));
    f->folder = sl_strdup(folder, "swap folder");
    if (f->folder == NULL) return SLUICE_ERR_NO_MEMORY;
    f->fd = open_somehow(folder, &f->direct);
    if (f->fd < 0) return open_failed(folder);
    SL_TRY(reserve_somehow(f, bytes, log));
    SL_TRY(try_file(f));
    tell_what_it_lacks(f, log);
    return SLUICE_OK;
}

/* ---- All of them ---- */

/* Of the file with the most stripes, whole ones. */
static uint64_t file_bytes(uint64_t bytes, int count)
{
    if (count == 1) return bytes;
    uint64_t stripes = (bytes + SL_SWAP_STRIPE - 1) / SL_SWAP_STRIPE;
    return (stripes + (uint64_t)count - 1) / (uint64_t)count * SL_SWAP_STRIPE;
}

sluice_status sl_swap_files_make(const sl_swap_options *o, sl_swap_files *out)
{
    sl_swap_files f = { sl_alloc_array((size_t)o->folder_count, sizeof *f.file, "swap files"), o->folder_count };
    if (f.file == NULL) return SLUICE_ERR_NO_MEMORY;
    for (int i = 0; i < f.count; i++) f.file[i].fd = -1;
    uint64_t each = file_bytes(sl_align_up(o->bytes, SL_SWAP_UNIT), f.count);
    for (int i = 0; i < f.count; i++) {
        sluice_status st = make_file(o->folders[i], each, o->log, &f.file[i]);
        if (st == SLUICE_OK) continue;
        sl_swap_files_close(&f, false);
        return st;
    }
    *out = f;
    return SLUICE_OK;
}

void sl_swap_files_close(sl_swap_files *f, bool keep_open)
{
    for (int i = 0; f->file != NULL && i < f->count; i++) {
        if (f->file[i].fd >= 0 && !keep_open) close(f->file[i].fd);
        sl_free(f->file[i].folder);
    }
    sl_free(f->file);
    *f = (sl_swap_files){ 0 };
}

sluice_status sl_swap_files_copy(const sl_swap_files *f, sl_swap_files *out)
{
    sl_swap_files copy = { sl_alloc_array((size_t)f->count, sizeof *copy.file, "swap files"), f->count };
    if (copy.file == NULL) return SLUICE_ERR_NO_MEMORY;
    for (int i = 0; i < f->count; i++) {
        copy.file[i] = f->file[i];
        copy.file[i].folder = sl_strdup(f->file[i].folder, "swap folder");
        if (copy.file[i].folder != NULL) continue;
        sl_swap_files_close(&copy, true);
        return SLUICE_ERR_NO_MEMORY;
    }
    *out = copy;
    return SLUICE_OK;
}

sl_swap_place sl_swap_place_of(const sl_swap_files *f, uint64_t offset)
{
    if (f->count == 1) return (sl_swap_place){ 0, offset, UINT64_MAX - offset };
    uint64_t stripe = offset / SL_SWAP_STRIPE, within = offset % SL_SWAP_STRIPE, count = (uint64_t)f->count;
    return (sl_swap_place){ (int)(stripe % count), stripe / count * SL_SWAP_STRIPE + within, SL_SWAP_STRIPE - within };
}

bool sl_swap_refused(const sl_swap_files *files, sl_swap_request *r, uint64_t *limit, bool *never)
{
    int answer = sl_io_ask(r->write ? "swap_write" : "swap_read", files->file[r->file].folder);
    *never = answer == SL_IO_NEVER;
    r->flip = answer == SL_IO_FLIP;
    *limit = answer < 0 && !*never && !r->flip ? (uint64_t)-answer : UINT64_MAX;
    if (answer > 0) r->result = -answer;
    return answer > 0 || *never;
}
