/* io_paths.c: what is behind a path; directories; names and links. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/io.h"
#include "core/io_calls.h"
#include "core/status.h"

static sl_path_info info_of(const struct stat *s)
{
    static const struct {
        mode_t type;
        sl_path_kind kind;
    } kinds[] = {
        { S_IFREG, SL_PATH_FILE },    { S_IFDIR, SL_PATH_FOLDER }, { S_IFLNK, SL_PATH_LINK },
        { S_IFIFO, SL_PATH_FIFO },    { S_IFBLK, SL_PATH_DEVICE }, { S_IFCHR, SL_PATH_DEVICE },
        { S_IFSOCK, SL_PATH_SOCKET },
    };
    sl_path_info info = { SL_PATH_OTHER,
                          s->st_dev,
                          s->st_ino,
                          s->st_mode & 07777,
                          s->st_uid,
                          s->st_gid,
                          s->st_size > 0 ? (uint64_t)s->st_size : 0 };
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if ((s->st_mode & S_IFMT) == kinds[i].type) info.kind = kinds[i].kind;
    return info;
}

const char *sl_path_kind_name(sl_path_kind kind)
{
    static const char *const names[] = {
        [SL_PATH_MISSING] = "missing file", [SL_PATH_FILE] = "regular file", [SL_PATH_FOLDER] = "directory",
        [SL_PATH_LINK] = "symbolic link",   [SL_PATH_FIFO] = "named pipe",   [SL_PATH_SOCKET] = "socket",
        [SL_PATH_DEVICE] = "device",        [SL_PATH_OTHER] = "special file"
    };
    return names[kind];
}

sluice_status sl_io_refuse_irregular(int fd, const char *path)
{
    struct stat info;
    if (sl_io_fstat(fd, path, &info) != 0) return sl_io_fail("examine", path);
    sl_path_kind kind = info_of(&info).kind;
    if (kind == SL_PATH_FILE) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_INPUT, "%s is a %s; name a regular file", path, sl_path_kind_name(kind));
}

static sluice_status path_too_long(const char *path)
{
    errno = ENAMETOOLONG;
    return sl_io_fail("use", path);
}

sluice_status sl_path_parent(const char *path, char *out)
{
    const char *slash = strrchr(path, '/');
    size_t length = slash == NULL ? 0 : (size_t)(slash - path);
    if (length >= PATH_MAX) return path_too_long(path);
    if (length == 0)
        strcpy(out, slash == NULL ? "." : "/");
    else
        snprintf(out, PATH_MAX, "%.*s", (int)length, path);
    return SLUICE_OK;
}

static sluice_status look(const char *path, int failed, const struct stat *info, sl_path_info *out)
{
    if (failed && errno != ENOENT) return sl_io_fail("examine", path);
    *out = failed ? (sl_path_info){ .kind = SL_PATH_MISSING } : info_of(info);
    return SLUICE_OK;
}

sluice_status sl_path_look(const char *path, sl_path_info *out)
{
    struct stat info;
    return look(path, sl_io_stat(path, &info), &info, out);
}

sluice_status sl_path_look_at_name(const char *path, sl_path_info *out)
{
    struct stat info;
    return look(path, sl_io_lstat(path, &info), &info, out);
}

/* The target of a link, relative to where the link lies, takes the place of *at. */
static sluice_status take_target(const char *path, char *at, const char *target)
{
    char folder[PATH_MAX];
    int length;
    if (target[0] == '/' || strchr(at, '/') == NULL) {
        length = snprintf(at, PATH_MAX, "%s", target);
    } else {
        SL_TRY(sl_path_parent(at, folder));
        length = snprintf(at, PATH_MAX, "%s/%s", folder, target);
    }
    return length >= 0 && length < PATH_MAX ? SLUICE_OK : path_too_long(path);
}

sluice_status sl_path_follow(const char *path, char *out)
{
    enum { MOST_LINKS = 40 }; /* as Linux has it */
    char target[PATH_MAX];
    if (strlen(path) >= PATH_MAX) return path_too_long(path);
    strcpy(out, path);
    for (int links = 0; links <= MOST_LINKS; links++) {
        ssize_t length = sl_io_readlink(out, target, sizeof target - 1);
        if (length < 0) return errno == EINVAL || errno == ENOENT ? SLUICE_OK : sl_io_fail("examine", path);
        target[length] = '\0';
        SL_TRY(take_target(path, out, target));
    }
    errno = ELOOP;
    return sl_io_fail("use", path);
}

sluice_status sl_path_room(const char *path, uint64_t *bytes, uint64_t *file_system)
{
    struct statvfs room;
    struct stat info;
    if (sl_io_statvfs(path, &room) != 0 || sl_io_stat(path, &info) != 0) return sl_io_fail("examine", path);
    *bytes = (uint64_t)room.f_bavail * (uint64_t)room.f_frsize;
    *file_system = info.st_dev;
    return SLUICE_OK;
}

/* The owner first: changing it takes bits off the mode. */
sluice_status sl_file_take_mode(sl_file *f, const sl_path_info *from)
{
    struct stat now;
    if (sl_io_fstat(f->fd, f->path, &now) != 0) return sl_io_fail("examine", f->path);
    bool owned = now.st_uid == from->owner && now.st_gid == from->group;
    if (!owned && geteuid() == 0 && sl_io_fchown(f->fd, f->path, from->owner, from->group) != 0)
        return sl_io_fail("set the owner of", f->path);
    if ((now.st_mode & 07777) != from->mode && sl_io_fchmod(f->fd, f->path, from->mode) != 0)
        return sl_io_fail("set the mode of", f->path);
    return SLUICE_OK;
}

/* Makes one directory whose parent exists. True also where it is there already. */
static bool make_one(const char *path)
{
    struct stat info;
    if (sl_io_mkdir(path) == 0) return true;
    if (errno != EEXIST) return false;
    if (sl_io_stat(path, &info) != 0) return false;
    errno = ENOTDIR;
    return S_ISDIR(info.st_mode);
}

sluice_status sl_dir_make(const char *path)
{
    char prefix[PATH_MAX];
    if (make_one(path)) return SLUICE_OK;
    if (errno != ENOENT || path[0] == '\0') return sl_io_fail("make directory", path);
    if (strlen(path) >= sizeof prefix) return path_too_long(path);
    for (const char *slash = strchr(path + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        memcpy(prefix, path, (size_t)(slash - path));
        prefix[slash - path] = '\0';
        if (!make_one(prefix)) return sl_io_fail("make directory", prefix);
    }
    return make_one(path) ? SLUICE_OK : sl_io_fail("make directory", path);
}

/* Makes one directory where it is not there yet, and its name last. */
static sluice_status make_lasting(const char *path)
{
    char folder[PATH_MAX];
    struct stat info;
    if (sl_io_stat(path, &info) == 0 && S_ISDIR(info.st_mode)) return SLUICE_OK;
    if (!make_one(path)) return sl_io_fail("make directory", path);
    SL_TRY(sl_path_parent(path, folder));
    return sl_dir_sync(folder);
}

sluice_status sl_dir_make_lasting(const char *path)
{
    char prefix[PATH_MAX];
    if (strlen(path) >= sizeof prefix) return path_too_long(path);
    for (const char *slash = path[0] != '\0' ? strchr(path + 1, '/') : NULL; slash != NULL;
         slash = strchr(slash + 1, '/')) {
        memcpy(prefix, path, (size_t)(slash - path));
        prefix[slash - path] = '\0';
        SL_TRY(make_lasting(prefix));
    }
    return make_lasting(path);
}

sluice_status sl_dir_try(const char *path, char *folder)
{
    char above[PATH_MAX];
    sl_path_info there;
    if (strlen(path) >= PATH_MAX) return path_too_long(path);
    strcpy(folder, path);
    SL_TRY(sl_path_look(folder, &there));
    while (there.kind == SL_PATH_MISSING) {
        for (size_t n = strlen(folder); n > 1 && folder[n - 1] == '/'; n--) folder[n - 1] = '\0';
        SL_TRY(sl_path_parent(folder, above));
        strcpy(folder, above);
        SL_TRY(sl_path_look(folder, &there));
    }
    errno = ENOTDIR;
    if (there.kind != SL_PATH_FOLDER || sl_io_access(folder, W_OK | X_OK) != 0)
        return sl_io_fail(strcmp(folder, path) == 0 ? "write to directory" : "make a directory in", folder);
    return SLUICE_OK;
}

sluice_status sl_dir_sync(const char *path)
{
    sluice_status st = SLUICE_OK;
    int fd = sl_io_open(path, O_RDONLY | O_DIRECTORY);
    if (fd < 0) return sl_io_fail("open directory", path);
    /* EINVAL: the file system keeps directories in order by itself. */
    if (sl_io_fsync(fd, path) != 0 && errno != EINVAL) st = sl_io_fail("write directory", path);
    if (sl_io_close(fd, path) != 0 && st == SLUICE_OK) st = sl_io_fail("close directory", path);
    return st;
}

sluice_status sl_path_rename(const char *from, const char *to)
{
    if (sl_io_rename(from, to) == 0) return SLUICE_OK;
    int error = errno;
    return sl_fail(SLUICE_ERR_IO, "cannot rename %s to %s: %s%s", from, to, strerror(error), sl_io_advice(error));
}

sluice_status sl_path_point(const char *to, const char *path)
{
    if (symlink(to, path) == 0) return SLUICE_OK;
    int error = errno;
    return sl_fail(SLUICE_ERR_IO, "%s: cannot make a link to %s: %s%s", path, to, strerror(error), sl_io_advice(error));
}

void sl_path_link_target(const char *path, char *out, size_t bytes)
{
    ssize_t length = readlink(path, out, bytes);
    out[length >= 0 && (size_t)length < bytes ? length : 0] = '\0';
}

sluice_status sl_path_exchange(const char *a, const char *b, bool *exchanged)
{
    *exchanged = sl_io_exchange(a, b) == 0;
    int error = errno;
    if (*exchanged || error == ENOSYS || error == EINVAL || error == ENOTSUP) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_IO, "cannot rename %s to %s: %s%s", a, b, strerror(error), sl_io_advice(error));
}

sluice_status sl_path_link(const char *from, const char *to)
{
    if (sl_io_link(from, to) == 0) return SLUICE_OK;
    int error = errno;
    return sl_fail(SLUICE_ERR_IO, "cannot link %s to %s: %s%s", from, to, strerror(error), sl_io_advice(error));
}

sluice_status sl_path_remove(const char *path)
{
    return sl_io_unlink(path) == 0 || errno == ENOENT ? SLUICE_OK : sl_io_fail("remove", path);
}

static sluice_status remove_entry(void *user, const char *name)
{
    const char *folder = user;
    char path[PATH_MAX];
    int length = snprintf(path, sizeof path, "%s/%s", folder, name);
    if (length < 0 || length >= PATH_MAX) return path_too_long(folder);
    return sl_path_remove(path);
}

sluice_status sl_dir_remove_tree(const char *path)
{
    struct stat info;
    if (sl_io_stat(path, &info) != 0) return errno == ENOENT ? SLUICE_OK : sl_io_fail("examine", path);
    SL_TRY(sl_dir_list(path, remove_entry, (void *)path));
    return sl_io_rmdir(path) == 0 || errno == ENOENT ? SLUICE_OK : sl_io_fail("remove directory", path);
}

bool sl_path_exists(const char *path)
{
    struct stat info;
    return sl_io_stat(path, &info) == 0;
}

sluice_status sl_dir_list(const char *path, sluice_status (*fn)(void *user, const char *name), void *user)
{
    sluice_status st = SLUICE_OK;
    struct dirent *entry;
    DIR *dir = sl_io_opendir(path);
    if (dir == NULL) return sl_io_fail_input("list", path);
    while (st == SLUICE_OK && (entry = sl_io_readdir(dir, path)) != NULL) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) st = fn(user, entry->d_name);
    }
    if (st == SLUICE_OK && errno != 0) st = sl_io_fail("list", path);
    sl_io_closedir(dir, path);
    return st;
}
