/* io_lock.c: a file that one process at a time holds. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>

#include "core/io.h"
#include "core/io_calls.h"
#include "core/status.h"

/* The holder writes its pid into the lock file; it may not have come to that yet. */
static long read_pid(int fd, const char *path)
{
    char text[32] = "";
    ssize_t n = sl_io_pread(fd, path, text, sizeof text - 1, 0);
    return n > 0 ? strtol(text, NULL, 10) : 0;
}

static sluice_status report_holder(int fd, const char *path)
{
    long pid = read_pid(fd, path);
    if (pid > 0)
        return sl_fail(SLUICE_ERR_USAGE, "%s is held by process %ld; wait for it or use another folder", path, pid);
    return sl_fail(SLUICE_ERR_USAGE, "%s is held by another process; wait for it or use another folder", path);
}

static sluice_status write_pid(int fd, const char *path)
{
    char text[32];
    int length = snprintf(text, sizeof text, "%ld\n", (long)getpid());
    if (sl_io_ftruncate(fd, path, 0) != 0) return sl_io_fail("write", path);
    ssize_t n = sl_io_pwrite(fd, path, text, (size_t)length, 0);
    if (n >= 0 && n < length) errno = ENOSPC;
    return n == length ? SLUICE_OK : sl_io_fail("write", path);
}

sluice_status sl_lock_take(const char *path, sl_lock *out)
{
    sluice_status st;
    int fd = sl_io_open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) return sl_io_fail("open", path);
    if ((st = sl_io_refuse_irregular(fd, path)) != SLUICE_OK) goto close_file;
    if (sl_io_flock(fd, path, LOCK_EX | LOCK_NB) != 0) {
        st = errno == EWOULDBLOCK ? report_holder(fd, path) : sl_io_fail("lock", path);
        goto close_file;
    }
    if ((st = write_pid(fd, path)) != SLUICE_OK) goto close_file;
    out->fd = fd;
    return SLUICE_OK;
close_file:
    sl_io_close(fd, path);
    return st;
}

void sl_lock_release(sl_lock *lock)
{
    if (lock->fd < 0) return;
    sl_io_flock(lock->fd, "lock",
                LOCK_UN); /* forked children may share the descriptor: closing alone would not unlock */
    sl_io_close(lock->fd, "lock");
    lock->fd = -1;
}

/* A shared lock, which is given back at once, is granted exactly where nobody has the exclusive one. */
sluice_status sl_lock_look(const char *path, bool *held, int64_t *pid)
{
    sluice_status st = SLUICE_OK;
    *held = false;
    *pid = 0;
    int fd = sl_io_open(path, O_RDONLY | O_NONBLOCK);
    if (fd < 0) return errno == ENOENT ? SLUICE_OK : sl_io_fail("open", path);
    if (sl_io_flock(fd, path, LOCK_SH | LOCK_NB) == 0)
        sl_io_flock(fd, path, LOCK_UN);
    else if (errno == EWOULDBLOCK)
        *held = true;
    else
        st = sl_io_fail("lock", path);
    *pid = read_pid(fd, path);
    sl_io_close(fd, path);
    return st;
}
