/* io.c: files: open, read, write, whole ones at once.
 *
 * Failing paths release what they hold with the same wrappers but keep the message of the first failure. */
#include "core/io.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/io_calls.h"
#include "core/status.h"
#include "core/stop.h"

/* Opens with O_DIRECT when asked, and without it where the file system has none. */
static int open_direct_or_not(const char *path, int flags, bool direct)
{
    int fd = direct ? sl_io_open(path, flags | O_DIRECT) : -1;
    if (direct && (fd >= 0 || errno != EINVAL)) return fd;
    return sl_io_open(path, flags);
}

sluice_status sl_file_open(const char *path, int mode, sl_file *out)
{
    bool create = (mode & SL_CREATE) != 0, append = (mode & SL_APPEND) != 0;
    /* Without O_NONBLOCK, opening a named pipe would wait for its other end; it changes nothing for files. */
    int flags = create ? O_RDWR | O_CREAT | O_TRUNC : O_RDONLY | O_NONBLOCK;
    if (append) flags = O_RDWR | O_CREAT | O_NONBLOCK;
    if ((mode & SL_NEW) != 0) flags |= O_EXCL;
    char *own_path = sl_strdup(path, "file path");
    if (own_path == NULL) return SLUICE_ERR_NO_MEMORY;
    sluice_status st = SLUICE_OK;
    int fd = open_direct_or_not(path, flags, (mode & SL_DIRECT) != 0);
    if (fd < 0) {
        st = create   ? sl_io_fail("create", path)
             : append ? sl_io_fail("append to", path)
                      : sl_io_fail_input("open", path);
        goto free_path;
    }
    if (!create && (st = sl_io_refuse_irregular(fd, path)) != SLUICE_OK) goto close_file;
    *out = (sl_file){ fd, own_path };
    return SLUICE_OK;
close_file:
    sl_io_close(fd, path);
free_path:
    sl_free(own_path);
    return st;
}

static void forget(sl_file *f)
{
    sl_free(f->path);
    *f = (sl_file){ -1, NULL };
}

void sl_file_close(sl_file *f)
{
    if (f->path == NULL) return;
    sl_io_close(f->fd, f->path);
    forget(f);
}

sluice_status sl_file_finish(sl_file *f)
{
    sluice_status st = SLUICE_OK;
    if (sl_io_fdatasync(f->fd, f->path) != 0) st = sl_io_fail("write", f->path);
    if (sl_io_close(f->fd, f->path) != 0 && st == SLUICE_OK) st = sl_io_fail("close", f->path);
    forget(f);
    return st;
}

sluice_status sl_file_size(sl_file *f, uint64_t *out)
{
    struct stat info;
    if (sl_io_fstat(f->fd, f->path, &info) != 0) return sl_io_fail("examine", f->path);
    *out = (uint64_t)info.st_size;
    return SLUICE_OK;
}

/* Direct I/O refuses unaligned transfers with EINVAL. True: it was that, and the file is now open without. */
static bool dropped_direct(const sl_file *f)
{
    if (errno != EINVAL) return false;
    int flags = fcntl(f->fd, F_GETFL);
    bool dropped = flags >= 0 && (flags & O_DIRECT) != 0 && fcntl(f->fd, F_SETFL, flags & ~O_DIRECT) == 0;
    errno = EINVAL;
    return dropped;
}

void sl_file_expect_random(sl_file *f)
{
    (void)posix_fadvise(f->fd, 0, 0, POSIX_FADV_RANDOM);
}

sluice_status sl_file_pread_some(sl_file *f, void *buf, size_t least, size_t most, uint64_t offset)
{
    for (size_t done = 0; done < least;) {
        ssize_t n = sl_io_pread(f->fd, f->path, (char *)buf + done, most - done, offset + done);
        if (n < 0 && dropped_direct(f)) continue;
        if (n < 0) return sl_io_fail_input("read", f->path);
        if (n == 0)
            return sl_fail(SLUICE_ERR_INPUT,
                           "%s ends at byte %llu, %zu more were expected: it was cut short or is another file", f->path,
                           (unsigned long long)(offset + done), least - done);
        done += (size_t)n;
    }
    return SLUICE_OK;
}

sluice_status sl_file_pread(sl_file *f, void *buf, size_t bytes, uint64_t offset)
{
    return sl_file_pread_some(f, buf, bytes, bytes, offset);
}

/* ---- Files and the page cache ---- */

/* A mapping that nobody touches reads nothing; a read that is told not to wait (RWF_NOWAIT) makes some systems read ahead. */
bool sl_file_is_cached(const sl_file *f, size_t bytes, uint64_t offset)
{
    enum { WINDOW = 512 };
    size_t page = (size_t)sysconf(_SC_PAGESIZE), before = (size_t)(offset % page), length = before + bytes;
    unsigned char pages[WINDOW];
    char *at = mmap(NULL, length, PROT_READ, MAP_SHARED, f->fd, (off_t)(offset - before));
    if (at == MAP_FAILED) return false;
    bool cached = true;
    for (size_t done = 0; cached && done < length; done += WINDOW * page) {
        size_t part = length - done < WINDOW * page ? length - done : WINDOW * page, count = (part + page - 1) / page;
        cached = sl_io_mincore(f->path, at + done, part, pages) == 0;
        for (size_t i = 0; cached && i < count; i++) cached = (pages[i] & 1) != 0;
    }
    munmap(at, length);
    return cached;
}

/* The system tells the owner of a file, and who may write to it, what the cache holds. */
static bool is_told(const sl_file *f, const struct stat *info)
{
    return info->st_uid == geteuid() || geteuid() == 0 || sl_io_access(f->path, W_OK) == 0;
}

/* The path may lead to another file by now. */
static bool is_same(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

bool sl_file_open_direct(const sl_file *f, sl_file *out)
{
    struct stat info, of_direct;
    if (sl_io_fstat(f->fd, f->path, &info) != 0 || !is_told(f, &info)) return false;
    int fd = sl_io_open(f->path, O_RDONLY | O_NONBLOCK | O_DIRECT);
    if (fd < 0) return false;
    char *path = sl_strdup(f->path, "file path");
    if (path != NULL && sl_io_fstat(fd, path, &of_direct) == 0 && is_same(&info, &of_direct)) {
        *out = (sl_file){ fd, path };
        return true;
    }
    sl_io_close(fd, f->path);
    sl_free(path);
    return false;
}

sluice_status sl_file_pwrite(sl_file *f, const void *buf, size_t bytes, uint64_t offset)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t n = sl_io_pwrite(f->fd, f->path, (const char *)buf + done, bytes - done, offset + done);
        if (n < 0 && dropped_direct(f)) continue;
        if (n == 0) errno = ENOSPC; /* nothing taken and no reason given: no file system does better later */
        if (n <= 0) return sl_io_fail("write", f->path);
        done += (size_t)n;
    }
    return SLUICE_OK;
}

void sl_file_expect(const sl_file *f, uint64_t offset, uint64_t bytes)
{
    if (bytes == 0) return; /* 0 would mean all of the file */
    (void)posix_fadvise(f->fd, (off_t)offset, (off_t)bytes, POSIX_FADV_WILLNEED);
}

sluice_status sl_file_truncate(sl_file *f, uint64_t bytes)
{
    return sl_io_ftruncate(f->fd, f->path, bytes) == 0 ? SLUICE_OK : sl_io_fail("resize", f->path);
}

sluice_status sl_file_try_append(const char *path)
{
    sl_file f;
    SL_TRY(sl_file_open(path, SL_APPEND, &f));
    sl_file_close(&f);
    return SLUICE_OK;
}

sluice_status sl_file_hold(sl_file *f)
{
    if (sl_io_flock(f->fd, f->path, LOCK_EX | LOCK_NB) == 0) return SLUICE_OK;
    if (errno != EWOULDBLOCK) return sl_io_fail("lock", f->path);
    return sl_fail(SLUICE_ERR_USAGE, "%s is being written by another run; wait for it or name another file", f->path);
}

/* ---- Whole files ---- */

static sluice_status too_large(const char *path, size_t limit)
{
    return sl_fail(SLUICE_ERR_INPUT, "%s is larger than %zu bytes, the most such a file may have", path, limit);
}

/* Reads to the end, growing *buf (*capacity bytes, one of them for the NUL): files in /proc say that they are empty. */
static sluice_status read_to_end(const int *stop, sl_file *f, size_t limit, char **buf, size_t capacity, size_t *bytes)
{
    enum { AT_ONCE = 16 << 20 }; /* of a slow disk's, between two looks at the request */
    size_t done = 0;
    for (;;) {
        SL_TRY(sl_stop_poll(stop, "reading the data"));
        if (done + 1 == capacity) {
            char *grown = sl_realloc(*buf, done, 2 * capacity, "file contents");
            if (grown == NULL) return SLUICE_ERR_NO_MEMORY;
            *buf = grown;
            capacity *= 2;
        }
        size_t room = capacity - 1 - done, part = stop == NULL || room < AT_ONCE ? room : AT_ONCE;
        ssize_t n = sl_io_pread(f->fd, f->path, *buf + done, part, done);
        if (n < 0) return sl_io_fail_input("read", f->path);
        if (n == 0) break;
        done += (size_t)n;
        if (done > limit) return too_large(f->path, limit);
    }
    (*buf)[done] = '\0';
    *bytes = done;
    return SLUICE_OK;
}

sluice_status sl_file_read_all(const char *path, size_t limit, char **out, size_t *bytes)
{
    return sl_file_read_all_until(NULL, path, limit, out, bytes);
}

sluice_status sl_file_read_all_until(const int *stop, const char *path, size_t limit, char **out, size_t *bytes)
{
    sl_file f;
    uint64_t size = 0;
    char *buf = NULL;
    SL_TRY(sl_file_open(path, SL_READ, &f));
    sluice_status st = sl_file_size(&f, &size);
    if (st != SLUICE_OK) goto close_file;
    if (size > limit) {
        st = too_large(path, limit);
        goto close_file;
    }
    size_t capacity = (size_t)size + 2; /* the NUL, and one that lets the read see the end without growing */
    buf = sl_alloc(capacity, "file contents");
    st = buf == NULL ? SLUICE_ERR_NO_MEMORY : read_to_end(stop, &f, limit, &buf, capacity, bytes);
    if (st != SLUICE_OK) goto free_buf;
    *out = buf;
    sl_file_close(&f);
    return SLUICE_OK;
free_buf:
    sl_free(buf);
close_file:
    sl_file_close(&f);
    return st;
}

bool sl_file_peek(const char *path, char *buf, size_t bytes)
{
    int fd = sl_io_open(path, O_RDONLY | O_NONBLOCK);
    if (fd < 0) return false;
    size_t done = 0;
    ssize_t n = 0;
    while (done + 1 < bytes && (n = sl_io_pread(fd, path, buf + done, bytes - 1 - done, done)) > 0) done += (size_t)n;
    sl_io_close(fd, path);
    buf[done] = '\0';
    return n >= 0;
}

sluice_status sl_file_write_all(const char *path, const void *data, size_t bytes)
{
    sl_file f;
    SL_TRY(sl_file_open(path, SL_CREATE, &f));
    sluice_status st = sl_file_pwrite(&f, data, bytes, 0);
    if (st != SLUICE_OK) {
        sl_file_close(&f);
        return st;
    }
    return sl_file_finish(&f);
}

static sluice_status copy_bytes(sl_file *from, sl_file *to, uint64_t bytes)
{
    enum { AT_ONCE = 1 << 20 };
    char *buffer = sl_alloc(AT_ONCE, "copy of a file");
    sluice_status st = buffer != NULL ? SLUICE_OK : SLUICE_ERR_NO_MEMORY;
    for (uint64_t done = 0; st == SLUICE_OK && done < bytes;) {
        size_t n = bytes - done < AT_ONCE ? (size_t)(bytes - done) : AT_ONCE;
        st = sl_file_pread(from, buffer, n, done);
        if (st == SLUICE_OK) st = sl_file_pwrite(to, buffer, n, done);
        done += n;
    }
    sl_free(buffer);
    return st;
}

sluice_status sl_file_copy_open(sl_file *in, const char *to)
{
    sl_file out;
    uint64_t bytes;
    SL_TRY(sl_file_size(in, &bytes));
    SL_TRY(sl_file_open(to, SL_CREATE, &out));
    sluice_status st = copy_bytes(in, &out, bytes);
    if (st == SLUICE_OK) return sl_file_finish(&out);
    sl_file_close(&out);
    return st;
}

sluice_status sl_file_copy(const char *from, const char *to)
{
    sl_file in;
    SL_TRY(sl_file_open(from, SL_READ, &in));
    sluice_status st = sl_file_copy_open(&in, to);
    sl_file_close(&in);
    return st;
}
