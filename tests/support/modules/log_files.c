/* log_files.c: a library to preload that logs what a program does to files; tests/support/file_log.h has the format.
 *
 * Only relative paths are followed: the program under test is started in the folder that is watched, and names
 * everything it keeps there relative to it. The log is named by SLUICE_FILE_LOG. */
#undef _FILE_OFFSET_BITS /* with it, open and open64 would be one name */
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "support/file_log.h"

#define EXPORT __attribute__((visibility("default")))
#define MAX_FD 4096

static bool followed[MAX_FD];
static int log_fd = -1;

static bool is_followed(int fd)
{
    return fd >= 0 && fd < MAX_FD && followed[fd];
}

/* One system call: records of different processes do not mix. */
static void append(file_log_record r, const char *path, const char *to, const void *data)
{
    if (log_fd < 0) return;
    r.pid = (int32_t)syscall(SYS_getpid);
    r.path_bytes = path != NULL ? (uint32_t)strlen(path) : 0;
    r.to_bytes = to != NULL ? (uint32_t)strlen(to) : 0;
    struct iovec parts[] = {
        { &r, sizeof r }, { (void *)path, r.path_bytes }, { (void *)to, r.to_bytes }, { (void *)data, r.data_bytes }
    };
    ssize_t all = (ssize_t)(sizeof r + r.path_bytes + r.to_bytes + r.data_bytes);
    if (syscall(SYS_writev, log_fd, parts, 4) != all) _exit(98); /* a log with holes would prove nothing */
}

static int do_open(const char *path, int flags, mode_t mode)
{
    int fd = (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
    if (fd < 0 || fd >= MAX_FD) return fd;
    followed[fd] = path[0] != '/';
    if (followed[fd]) append((file_log_record){ .kind = FILE_LOG_OPEN, .fd = fd, .flags = flags }, path, NULL, NULL);
    return fd;
}

#define OPEN(name_)                                                                                                    \
    EXPORT int name_(const char *path, int flags, ...)                                                                 \
    {                                                                                                                  \
        mode_t mode = 0;                                                                                               \
        va_list rest;                                                                                                  \
        va_start(rest, flags);                                                                                         \
        if ((flags & O_CREAT) != 0) mode = va_arg(rest, mode_t);                                                       \
        va_end(rest);                                                                                                  \
        return do_open(path, flags, mode);                                                                             \
    }
OPEN(open)
OPEN(open64)

EXPORT int close(int fd)
{
    if (is_followed(fd)) {
        append((file_log_record){ .kind = FILE_LOG_CLOSE, .fd = fd }, NULL, NULL, NULL);
        followed[fd] = false;
    }
    return (int)syscall(SYS_close, fd);
}

#define PWRITE(name_)                                                                                                  \
    EXPORT ssize_t name_(int fd, const void *data, size_t bytes, off_t offset)                                         \
    {                                                                                                                  \
        ssize_t n = syscall(SYS_pwrite64, fd, data, bytes, offset);                                                    \
        file_log_record r = { .kind = FILE_LOG_WRITE, .fd = fd, .offset = (uint64_t)offset };                          \
        r.data_bytes = n > 0 ? (uint64_t)n : 0;                                                                        \
        if (n > 0 && is_followed(fd)) append(r, NULL, NULL, data);                                                     \
        return n;                                                                                                      \
    }
PWRITE(pwrite)
PWRITE(pwrite64)

#define FTRUNCATE(name_)                                                                                               \
    EXPORT int name_(int fd, off_t bytes)                                                                              \
    {                                                                                                                  \
        int result = (int)syscall(SYS_ftruncate, fd, bytes);                                                           \
        file_log_record r = { .kind = FILE_LOG_TRUNCATE, .fd = fd, .offset = (uint64_t)bytes };                        \
        if (result == 0 && is_followed(fd)) append(r, NULL, NULL, NULL);                                               \
        return result;                                                                                                 \
    }
FTRUNCATE(ftruncate)
FTRUNCATE(ftruncate64)

static int sync_with(long call, int fd)
{
    int result = (int)syscall(call, fd);
    if (result == 0 && is_followed(fd)) append((file_log_record){ .kind = FILE_LOG_SYNC, .fd = fd }, NULL, NULL, NULL);
    return result;
}

EXPORT int fsync(int fd)
{
    return sync_with(SYS_fsync, fd);
}

EXPORT int fdatasync(int fd)
{
    return sync_with(SYS_fdatasync, fd);
}

EXPORT int rename(const char *from, const char *to)
{
    int result = (int)syscall(SYS_renameat, AT_FDCWD, from, AT_FDCWD, to);
    if (result == 0 && from[0] != '/') append((file_log_record){ .kind = FILE_LOG_RENAME }, from, to, NULL);
    return result;
}

static int note(int result, file_log_kind kind, const char *path)
{
    if (result == 0 && path[0] != '/') append((file_log_record){ .kind = kind }, path, NULL, NULL);
    return result;
}

EXPORT int unlink(const char *path)
{
    return note((int)syscall(SYS_unlinkat, AT_FDCWD, path, 0), FILE_LOG_REMOVE, path);
}

EXPORT int rmdir(const char *path)
{
    return note((int)syscall(SYS_unlinkat, AT_FDCWD, path, AT_REMOVEDIR), FILE_LOG_REMOVE, path);
}

EXPORT int mkdir(const char *path, mode_t mode)
{
    return note((int)syscall(SYS_mkdirat, AT_FDCWD, path, mode), FILE_LOG_MKDIR, path);
}

/* What has been said up to here can be read in the file that is standard output. */
EXPORT int fflush(FILE *f)
{
    struct stat info;
    int result = fflush_unlocked(f);
    file_log_record r = { .kind = FILE_LOG_SAID };
    if (f != stdout || result != 0 || fstat(1, &info) != 0) return result;
    r.offset = (uint64_t)info.st_size;
    append(r, NULL, NULL, NULL);
    return result;
}

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("SLUICE_FILE_LOG");
    if (path != NULL)
        log_fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}
