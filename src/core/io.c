/* io.c: files and directories.
 *
 * The first part has one wrapper per system call: it asks the hook, makes the call, and repeats it when a signal cut it
 * short. Everything after uses the wrappers only. Failing paths release what they hold with the same wrappers but keep
 * the message of the first failure. */
#include "core/io.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/status.h"
#include "core/stop.h"

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

static int io_open(const char *path, int flags)
{
    int fd;
    do {
        if (refused("open", path, NULL)) return -1;
        fd = open(path, flags | O_CLOEXEC, 0666);
    } while (fd < 0 && errno == EINTR);
    return fd;
}

/* The descriptor is closed whatever is returned: Linux frees it even when close reports an error. */
static int io_close(int fd, const char *path)
{
    int refusal = refused("close", path, NULL) ? errno : 0;
    int result = close(fd);
    if (refusal == 0) return result;
    errno = refusal;
    return -1;
}

static ssize_t io_pread(int fd, const char *path, void *buf, size_t bytes, uint64_t offset)
{
    ssize_t n;
    do {
        if (refused("pread", path, &bytes)) return -1;
        n = pread(fd, buf, bytes, (off_t)offset);
    } while (n < 0 && errno == EINTR);
    return n;
}

static ssize_t io_pwrite(int fd, const char *path, const void *buf, size_t bytes, uint64_t offset)
{
    ssize_t n;
    do {
        if (refused("pwrite", path, &bytes)) return -1;
        n = pwrite(fd, buf, bytes, (off_t)offset);
    } while (n < 0 && errno == EINTR);
    return n;
}

static int io_fstat(int fd, const char *path, struct stat *out)
{
    return refused("fstat", path, NULL) ? -1 : fstat(fd, out);
}

static int io_stat(const char *path, struct stat *out)
{
    return refused("stat", path, NULL) ? -1 : stat(path, out);
}

static int io_lstat(const char *path, struct stat *out)
{
    return refused("lstat", path, NULL) ? -1 : lstat(path, out);
}

static int io_access(const char *path, int how)
{
    return refused("access", path, NULL) ? -1 : access(path, how);
}

/* One byte for each page from `at` on, its lowest bit set where the page is in memory. */
static int io_mincore(const char *path, void *at, size_t bytes, unsigned char *pages)
{
    return refused("mincore", path, NULL) ? -1 : mincore(at, bytes, pages);
}

static ssize_t io_readlink(const char *path, char *buf, size_t bytes)
{
    return refused("readlink", path, NULL) ? -1 : readlink(path, buf, bytes);
}

static int io_statvfs(const char *path, struct statvfs *out)
{
    return refused("statvfs", path, NULL) ? -1 : statvfs(path, out);
}

static int io_fchmod(int fd, const char *path, unsigned mode)
{
    return refused("fchmod", path, NULL) ? -1 : fchmod(fd, (mode_t)mode);
}

static int io_fchown(int fd, const char *path, unsigned owner, unsigned group)
{
    return refused("fchown", path, NULL) ? -1 : fchown(fd, (uid_t)owner, (gid_t)group);
}

static int io_ftruncate(int fd, const char *path, uint64_t bytes)
{
    int result;
    do {
        if (refused("ftruncate", path, NULL)) return -1;
        result = ftruncate(fd, (off_t)bytes);
    } while (result < 0 && errno == EINTR);
    return result;
}

static int io_fdatasync(int fd, const char *path)
{
    return refused("fdatasync", path, NULL) ? -1 : fdatasync(fd);
}

static int io_fsync(int fd, const char *path)
{
    return refused("fsync", path, NULL) ? -1 : fsync(fd);
}

static int io_flock(int fd, const char *path, int operation)
{
    return refused("flock", path, NULL) ? -1 : flock(fd, operation);
}

static int io_rename(const char *from, const char *to)
{
    return refused("rename", from, NULL) ? -1 : rename(from, to);
}

static int io_exchange(const char *a, const char *b)
{
#ifdef RENAME_EXCHANGE
    return refused("exchange", a, NULL) ? -1 : renameat2(AT_FDCWD, a, AT_FDCWD, b, RENAME_EXCHANGE);
#else
    (void)a, (void)b;
    errno = ENOSYS;
    return -1;
#endif
}

static int io_link(const char *from, const char *to)
{
    return refused("link", to, NULL) ? -1 : linkat(AT_FDCWD, from, AT_FDCWD, to, 0);
}

static int io_mkdir(const char *path)
{
    return refused("mkdir", path, NULL) ? -1 : mkdir(path, 0777);
}

static int io_unlink(const char *path)
{
    return refused("unlink", path, NULL) ? -1 : unlink(path);
}

static int io_rmdir(const char *path)
{
    return refused("rmdir", path, NULL) ? -1 : rmdir(path);
}

static DIR *io_opendir(const char *path)
{
    return refused("opendir", path, NULL) ? NULL : opendir(path);
}

/* NULL with errno 0 at the end. */
static struct dirent *io_readdir(DIR *dir, const char *path)
{
    if (refused("readdir", path, NULL)) return NULL;
    errno = 0;
    return readdir(dir);
}

static void io_closedir(DIR *dir, const char *path)
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

/* Records errno as the failure of `verb` on `path`. */
static sluice_status io_fail(const char *verb, const char *path)
{
    int error = errno;
    return sl_fail(SLUICE_ERR_IO, "cannot %s %s: %s%s", verb, path, strerror(error), find_cause(error)->advice);
}

/* The same for files that the user gave: what is wrong with them is an input error, the machine's failures are not. */
static sluice_status input_fail(const char *verb, const char *path)
{
    bool input = find_cause(errno)->input;
    io_fail(verb, path);
    return input ? SLUICE_ERR_INPUT : SLUICE_ERR_IO;
}

/* ---- Files ---- */

/* Opens with O_DIRECT when asked, and without it where the file system has none. */
static int open_direct_or_not(const char *path, int flags, bool direct)
{
    int fd = direct ? io_open(path, flags | O_DIRECT) : -1;
    if (direct && (fd >= 0 || errno != EINVAL)) return fd;
    return io_open(path, flags);
}

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

/* Directories open for reading but hold no bytes; devices and pipes have no end, or none that a length tells of. */
static sluice_status refuse_irregular(int fd, const char *path)
{
    struct stat info;
    if (io_fstat(fd, path, &info) != 0) return io_fail("examine", path);
    sl_path_kind kind = info_of(&info).kind;
    if (kind == SL_PATH_FILE) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_INPUT, "%s is a %s; name a regular file", path, sl_path_kind_name(kind));
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
        st = create ? io_fail("create", path) : append ? io_fail("append to", path) : input_fail("open", path);
        goto free_path;
    }
    if (!create && (st = refuse_irregular(fd, path)) != SLUICE_OK) goto close_file;
    *out = (sl_file){ fd, own_path };
    return SLUICE_OK;
close_file:
    io_close(fd, path);
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
    io_close(f->fd, f->path);
    forget(f);
}

sluice_status sl_file_finish(sl_file *f)
{
    sluice_status st = SLUICE_OK;
    if (io_fdatasync(f->fd, f->path) != 0) st = io_fail("write", f->path);
    if (io_close(f->fd, f->path) != 0 && st == SLUICE_OK) st = io_fail("close", f->path);
    forget(f);
    return st;
}

sluice_status sl_file_size(sl_file *f, uint64_t *out)
{
    struct stat info;
    if (io_fstat(f->fd, f->path, &info) != 0) return io_fail("examine", f->path);
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
        ssize_t n = io_pread(f->fd, f->path, (char *)buf + done, most - done, offset + done);
        if (n < 0 && dropped_direct(f)) continue;
        if (n < 0) return input_fail("read", f->path);
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
        cached = io_mincore(f->path, at + done, part, pages) == 0;
        for (size_t i = 0; cached && i < count; i++) cached = (pages[i] & 1) != 0;
    }
    munmap(at, length);
    return cached;
}

/* The system tells the owner of a file, and who may write to it, what the cache holds. */
static bool is_told(const sl_file *f, const struct stat *info)
{
    return info->st_uid == geteuid() || geteuid() == 0 || io_access(f->path, W_OK) == 0;
}

/* The path may lead to another file by now. */
static bool is_same(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

bool sl_file_open_direct(const sl_file *f, sl_file *out)
{
    struct stat info, of_direct;
    if (io_fstat(f->fd, f->path, &info) != 0 || !is_told(f, &info)) return false;
    int fd = io_open(f->path, O_RDONLY | O_NONBLOCK | O_DIRECT);
    if (fd < 0) return false;
    char *path = sl_strdup(f->path, "file path");
    if (path != NULL && io_fstat(fd, path, &of_direct) == 0 && is_same(&info, &of_direct)) {
        *out = (sl_file){ fd, path };
        return true;
    }
    io_close(fd, f->path);
    sl_free(path);
    return false;
}

sluice_status sl_file_pwrite(sl_file *f, const void *buf, size_t bytes, uint64_t offset)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t n = io_pwrite(f->fd, f->path, (const char *)buf + done, bytes - done, offset + done);
        if (n < 0 && dropped_direct(f)) continue;
        if (n == 0) errno = ENOSPC; /* nothing taken and no reason given: no file system does better later */
        if (n <= 0) return io_fail("write", f->path);
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
    return io_ftruncate(f->fd, f->path, bytes) == 0 ? SLUICE_OK : io_fail("resize", f->path);
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
    if (io_flock(f->fd, f->path, LOCK_EX | LOCK_NB) == 0) return SLUICE_OK;
    if (errno != EWOULDBLOCK) return io_fail("lock", f->path);
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
        ssize_t n = io_pread(f->fd, f->path, *buf + done, part, done);
        if (n < 0) return input_fail("read", f->path);
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
    uint64_t size;
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
    int fd = io_open(path, O_RDONLY | O_NONBLOCK);
    if (fd < 0) return false;
    size_t done = 0;
    ssize_t n = 0;
    while (done + 1 < bytes && (n = io_pread(fd, path, buf + done, bytes - 1 - done, done)) > 0) done += (size_t)n;
    io_close(fd, path);
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

/* ---- Directories and paths ---- */

static sluice_status path_too_long(const char *path)
{
    errno = ENAMETOOLONG;
    return io_fail("use", path);
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
    if (failed && errno != ENOENT) return io_fail("examine", path);
    *out = failed ? (sl_path_info){ .kind = SL_PATH_MISSING } : info_of(info);
    return SLUICE_OK;
}

sluice_status sl_path_look(const char *path, sl_path_info *out)
{
    struct stat info;
    return look(path, io_stat(path, &info), &info, out);
}

sluice_status sl_path_look_at_name(const char *path, sl_path_info *out)
{
    struct stat info;
    return look(path, io_lstat(path, &info), &info, out);
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
        ssize_t length = io_readlink(out, target, sizeof target - 1);
        if (length < 0) return errno == EINVAL || errno == ENOENT ? SLUICE_OK : io_fail("examine", path);
        target[length] = '\0';
        SL_TRY(take_target(path, out, target));
    }
    errno = ELOOP;
    return io_fail("use", path);
}

sluice_status sl_path_room(const char *path, uint64_t *bytes, uint64_t *file_system)
{
    struct statvfs room;
    struct stat info;
    if (io_statvfs(path, &room) != 0 || io_stat(path, &info) != 0) return io_fail("examine", path);
    *bytes = (uint64_t)room.f_bavail * (uint64_t)room.f_frsize;
    *file_system = info.st_dev;
    return SLUICE_OK;
}

/* The owner first: changing it takes bits off the mode. */
sluice_status sl_file_take_mode(sl_file *f, const sl_path_info *from)
{
    struct stat now;
    if (io_fstat(f->fd, f->path, &now) != 0) return io_fail("examine", f->path);
    bool owned = now.st_uid == from->owner && now.st_gid == from->group;
    if (!owned && geteuid() == 0 && io_fchown(f->fd, f->path, from->owner, from->group) != 0)
        return io_fail("set the owner of", f->path);
    if ((now.st_mode & 07777) != from->mode && io_fchmod(f->fd, f->path, from->mode) != 0)
        return io_fail("set the mode of", f->path);
    return SLUICE_OK;
}

/* Makes one directory whose parent exists. True also where it is there already. */
static bool make_one(const char *path)
{
    struct stat info;
    if (io_mkdir(path) == 0) return true;
    if (errno != EEXIST) return false;
    if (io_stat(path, &info) != 0) return false;
    errno = ENOTDIR;
    return S_ISDIR(info.st_mode);
}

sluice_status sl_dir_make(const char *path)
{
    char prefix[PATH_MAX];
    if (make_one(path)) return SLUICE_OK;
    if (errno != ENOENT || path[0] == '\0') return io_fail("make directory", path);
    if (strlen(path) >= sizeof prefix) return path_too_long(path);
    for (const char *slash = strchr(path + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        memcpy(prefix, path, (size_t)(slash - path));
        prefix[slash - path] = '\0';
        if (!make_one(prefix)) return io_fail("make directory", prefix);
    }
    return make_one(path) ? SLUICE_OK : io_fail("make directory", path);
}

/* Makes one directory where it is not there yet, and its name last. */
static sluice_status make_lasting(const char *path)
{
    char folder[PATH_MAX];
    struct stat info;
    if (io_stat(path, &info) == 0 && S_ISDIR(info.st_mode)) return SLUICE_OK;
    if (!make_one(path)) return io_fail("make directory", path);
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
    if (there.kind != SL_PATH_FOLDER || io_access(folder, W_OK | X_OK) != 0)
        return io_fail(strcmp(folder, path) == 0 ? "write to directory" : "make a directory in", folder);
    return SLUICE_OK;
}

sluice_status sl_dir_sync(const char *path)
{
    sluice_status st = SLUICE_OK;
    int fd = io_open(path, O_RDONLY | O_DIRECTORY);
    if (fd < 0) return io_fail("open directory", path);
    /* EINVAL: the file system keeps directories in order by itself. */
    if (io_fsync(fd, path) != 0 && errno != EINVAL) st = io_fail("write directory", path);
    if (io_close(fd, path) != 0 && st == SLUICE_OK) st = io_fail("close directory", path);
    return st;
}

sluice_status sl_path_rename(const char *from, const char *to)
{
    if (io_rename(from, to) == 0) return SLUICE_OK;
    int error = errno;
    return sl_fail(SLUICE_ERR_IO, "cannot rename %s to %s: %s%s", from, to, strerror(error), find_cause(error)->advice);
}

sluice_status sl_path_point(const char *to, const char *path)
{
    if (symlink(to, path) == 0) return SLUICE_OK;
    int error = errno;
    return sl_fail(SLUICE_ERR_IO, "%s: cannot make a link to %s: %s%s", path, to, strerror(error),
                   find_cause(error)->advice);
}

void sl_path_link_target(const char *path, char *out, size_t bytes)
{
    ssize_t length = readlink(path, out, bytes);
    out[length >= 0 && (size_t)length < bytes ? length : 0] = '\0';
}

sluice_status sl_path_exchange(const char *a, const char *b, bool *exchanged)
{
    *exchanged = io_exchange(a, b) == 0;
    int error = errno;
    if (*exchanged || error == ENOSYS || error == EINVAL || error == ENOTSUP) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_IO, "cannot rename %s to %s: %s%s", a, b, strerror(error), find_cause(error)->advice);
}

sluice_status sl_path_link(const char *from, const char *to)
{
    if (io_link(from, to) == 0) return SLUICE_OK;
    int error = errno;
    return sl_fail(SLUICE_ERR_IO, "cannot link %s to %s: %s%s", from, to, strerror(error), find_cause(error)->advice);
}

sluice_status sl_path_remove(const char *path)
{
    return io_unlink(path) == 0 || errno == ENOENT ? SLUICE_OK : io_fail("remove", path);
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
    if (io_stat(path, &info) != 0) return errno == ENOENT ? SLUICE_OK : io_fail("examine", path);
    SL_TRY(sl_dir_list(path, remove_entry, (void *)path));
    return io_rmdir(path) == 0 || errno == ENOENT ? SLUICE_OK : io_fail("remove directory", path);
}

bool sl_path_exists(const char *path)
{
    struct stat info;
    return io_stat(path, &info) == 0;
}

sluice_status sl_dir_list(const char *path, sluice_status (*fn)(void *user, const char *name), void *user)
{
    sluice_status st = SLUICE_OK;
    struct dirent *entry;
    DIR *dir = io_opendir(path);
    if (dir == NULL) return input_fail("list", path);
    while (st == SLUICE_OK && (entry = io_readdir(dir, path)) != NULL) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) st = fn(user, entry->d_name);
    }
    if (st == SLUICE_OK && errno != 0) st = io_fail("list", path);
    io_closedir(dir, path);
    return st;
}

/* ---- Locks ---- */

/* The holder writes its pid into the lock file; it may not have come to that yet. */
static long read_pid(int fd, const char *path)
{
    char text[32] = "";
    ssize_t n = io_pread(fd, path, text, sizeof text - 1, 0);
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
    if (io_ftruncate(fd, path, 0) != 0) return io_fail("write", path);
    ssize_t n = io_pwrite(fd, path, text, (size_t)length, 0);
    if (n >= 0 && n < length) errno = ENOSPC;
    return n == length ? SLUICE_OK : io_fail("write", path);
}

sluice_status sl_lock_take(const char *path, sl_lock *out)
{
    sluice_status st;
    int fd = io_open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) return io_fail("open", path);
    if ((st = refuse_irregular(fd, path)) != SLUICE_OK) goto close_file;
    if (io_flock(fd, path, LOCK_EX | LOCK_NB) != 0) {
        st = errno == EWOULDBLOCK ? report_holder(fd, path) : io_fail("lock", path);
        goto close_file;
    }
    if ((st = write_pid(fd, path)) != SLUICE_OK) goto close_file;
    out->fd = fd;
    return SLUICE_OK;
close_file:
    io_close(fd, path);
    return st;
}

void sl_lock_release(sl_lock *lock)
{
    if (lock->fd < 0) return;
    io_flock(lock->fd, "lock", LOCK_UN); /* forked children may share the descriptor: closing alone would not unlock */
    io_close(lock->fd, "lock");
    lock->fd = -1;
}

/* A shared lock, which is given back at once, is granted exactly where nobody has the exclusive one. */
sluice_status sl_lock_look(const char *path, bool *held, int64_t *pid)
{
    sluice_status st = SLUICE_OK;
    *held = false;
    *pid = 0;
    int fd = io_open(path, O_RDONLY | O_NONBLOCK);
    if (fd < 0) return errno == ENOENT ? SLUICE_OK : io_fail("open", path);
    if (io_flock(fd, path, LOCK_SH | LOCK_NB) == 0)
        io_flock(fd, path, LOCK_UN);
    else if (errno == EWOULDBLOCK)
        *held = true;
    else
        st = io_fail("lock", path);
    *pid = read_pid(fd, path);
    io_close(fd, path);
    return st;
}
