/* io_calls.c: one wrapper per system call: it asks the hook, makes the call, and repeats it when a signal cut it short. And what
 * people are told of one that failed. */
#include "core/io_calls.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/status.h"

/* ---- System calls ---- */

static _Atomic(sl_io_hook) hook_fn;
static _Atomic(void *) hook_user;

void sl_io_set_hook(sl_io_hook hook, void *user)
{
    atomic_store(&hook_fn, NULL);
    atomic_store(&hook_user, user);
    atomic_store(&hook_fn, hook);
}

int sl_io_ask(const char *call, const char *path)
{
    sl_io_hook hook = atomic_load(&hook_fn);
    return hook == NULL ? 0 : hook(atomic_load(&hook_user), call, path);
}

/* Asks the hook. True: the call must fail, errno is set. *bytes (may be NULL) is cut where the hook wants it
 * shorter. */
static bool refused(const char *call, const char *path, size_t *bytes)
{
    int answer = sl_io_ask(call, path);
    if (answer < 0 && bytes != NULL && *bytes > (size_t)-answer) *bytes = (size_t)-answer;
    if (answer <= 0) return false;
    errno = answer;
    return true;
}

int sl_io_open(const char *path, int flags)
{
    int fd;
    do {
        if (refused("open", path, NULL)) return -1;
        fd = open(path, flags | O_CLOEXEC, 0666);
    } while (fd < 0 && errno == EINTR);
    return fd;
}

/* The descriptor is closed whatever is returned: Linux frees it even when close reports an error. */
int sl_io_close(int fd, const char *path)
{
    int refusal = refused("close", path, NULL) ? errno : 0;
    int result = close(fd);
    if (refusal == 0) return result;
    errno = refusal;
    return -1;
}

ssize_t sl_io_pread(int fd, const char *path, void *buf, size_t bytes, uint64_t offset)
{
    ssize_t n;
    do {
        if (refused("pread", path, &bytes)) return -1;
        n = pread(fd, buf, bytes, (off_t)offset);
    } while (n < 0 && errno == EINTR);
    return n;
}

ssize_t sl_io_pwrite(int fd, const char *path, const void *buf, size_t bytes, uint64_t offset)
{
    ssize_t n;
    do {
        if (refused("pwrite", path, &bytes)) return -1;
        n = pwrite(fd, buf, bytes, (off_t)offset);
    } while (n < 0 && errno == EINTR);
    return n;
}

int sl_io_fstat(int fd, const char *path, struct stat *out)
{
    return refused("fstat", path, NULL) ? -1 : fstat(fd, out);
}

int sl_io_stat(const char *path, struct stat *out)
{
    return refused("stat", path, NULL) ? -1 : stat(path, out);
}

int sl_io_lstat(const char *path, struct stat *out)
{
    return refused("lstat", path, NULL) ? -1 : lstat(path, out);
}

int sl_io_access(const char *path, int how)
{
    return refused("access", path, NULL) ? -1 : access(path, how);
}

int sl_io_mincore(const char *path, void *at, size_t bytes, unsigned char *pages)
{
    return refused("mincore", path, NULL) ? -1 : mincore(at, bytes, pages);
}

ssize_t sl_io_readlink(const char *path, char *buf, size_t bytes)
{
    return refused("readlink", path, NULL) ? -1 : readlink(path, buf, bytes);
}

int sl_io_statvfs(const char *path, struct statvfs *out)
{
    return refused("statvfs", path, NULL) ? -1 : statvfs(path, out);
}

int sl_io_fchmod(int fd, const char *path, unsigned mode)
{
    return refused("fchmod", path, NULL) ? -1 : fchmod(fd, (mode_t)mode);
}

int sl_io_fchown(int fd, const char *path, unsigned owner, unsigned group)
{
    return refused("fchown", path, NULL) ? -1 : fchown(fd, (uid_t)owner, (gid_t)group);
}

int sl_io_ftruncate(int fd, const char *path, uint64_t bytes)
{
    int result;
    do {
        if (refused("ftruncate", path, NULL)) return -1;
        result = ftruncate(fd, (off_t)bytes);
    } while (result < 0 && errno == EINTR);
    return result;
}

int sl_io_fdatasync(int fd, const char *path)
{
    return refused("fdatasync", path, NULL) ? -1 : fdatasync(fd);
}

int sl_io_fsync(int fd, const char *path)
{
    return refused("fsync", path, NULL) ? -1 : fsync(fd);
}

int sl_io_flock(int fd, const char *path, int operation)
{
    return refused("flock", path, NULL) ? -1 : flock(fd, operation);
}

int sl_io_rename(const char *from, const char *to)
{
    return refused("rename", from, NULL) ? -1 : rename(from, to);
}

int sl_io_exchange(const char *a, const char *b)
{
#ifdef RENAME_EXCHANGE
    return refused("exchange", a, NULL) ? -1 : renameat2(AT_FDCWD, a, AT_FDCWD, b, RENAME_EXCHANGE);
#else
    (void)a, (void)b;
    errno = ENOSYS;
    return -1;
#endif
}

int sl_io_link(const char *from, const char *to)
{
    return refused("link", to, NULL) ? -1 : linkat(AT_FDCWD, from, AT_FDCWD, to, 0);
}

int sl_io_mkdir(const char *path)
{
    return refused("mkdir", path, NULL) ? -1 : mkdir(path, 0777);
}

int sl_io_unlink(const char *path)
{
    return refused("unlink", path, NULL) ? -1 : unlink(path);
}

int sl_io_rmdir(const char *path)
{
    return refused("rmdir", path, NULL) ? -1 : rmdir(path);
}

DIR *sl_io_opendir(const char *path)
{
    return refused("opendir", path, NULL) ? NULL : opendir(path);
}

struct dirent *sl_io_readdir(DIR *dir, const char *path)
{
    if (refused("readdir", path, NULL)) return NULL;
    errno = 0;
    return readdir(dir);
}

void sl_io_closedir(DIR *dir, const char *path)
{
    refused("close", path, NULL);
    closedir(dir);
}

/* ---- Messages ---- */

/* What the user can do, where the errno tells. `input`: something given to sluice is wrong, not the machine. */
static const struct cause {
    int error;
    bool input;
    const char *advice;
} causes[] = {
    { ENOENT, true, "; check the path" },
    { ENOTDIR, true, "; check the path" },
    { EISDIR, true, "; name a file" },
    { ENAMETOOLONG, true, "; use a shorter path" },
    { ELOOP, true, "; check the links on the path" },
    { EACCES, true, "; check the permissions" },
    { EPERM, true, "; check the permissions" },
    { ESPIPE, true, "; name a regular file" },
    { ENOSPC, false, "; free space there or choose another folder" },
    { EDQUOT, false, "; free space there or choose another folder" },
    { EROFS, false, "; choose another folder" },
    { EMFILE, false, "; raise the limit of open files" },
};

static const struct cause *find_cause(int error)
{
    static const struct cause other = { 0, false, "" };
    for (size_t i = 0; i < sizeof causes / sizeof causes[0]; i++)
        if (causes[i].error == error) return &causes[i];
    return &other;
}

const char *sl_io_advice(int error)
{
    return find_cause(error)->advice;
}

sluice_status sl_io_fail(const char *verb, const char *path)
{
    int error = errno;
    return sl_fail(SLUICE_ERR_IO, "cannot %s %s: %s%s", verb, path, strerror(error), sl_io_advice(error));
}

sluice_status sl_io_fail_input(const char *verb, const char *path)
{
    bool input = find_cause(errno)->input;
    sl_io_fail(verb, path);
    return input ? SLUICE_ERR_INPUT : SLUICE_ERR_IO;
}
