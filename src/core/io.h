/* io.h: the only file system calls in sluice, each one countable and breakable.
 *
 * Every call passes a hook first. The tests use it to fail the nth call with a chosen errno, to shorten writes, and to
 * kill the process right before the nth call: that is how the save protocol is proved. */
#ifndef SL_CORE_IO_H
#define SL_CORE_IO_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "sluice.h"

/* Called before each system call with its name ("open", "pwrite", "fdatasync", "fsync", "rename", "mkdir", "unlink",
 * "rmdir", "pread", "fstat", "stat", "lstat", "access", "mincore", "link", "exchange", "readlink", "statvfs", "fchmod", "fchown", "ftruncate", "close", "flock",
 * "opendir", "readdir", "fallocate", "io_uring", "swap_read", "swap_write") and path. Returns 0 to go on, an errno to fail with, or -n to let a pread, pwrite,
 * swap_read or swap_write transfer at most n bytes. "close" cannot be refused, only observed and failed: the descriptor is gone either way. */
/* Answers for "swap_read" and "swap_write" (core/swap.h), whose paths are folders: the request is never answered; one bit of
 * what is read comes back as another. */
#define SL_IO_NEVER INT_MIN
#define SL_IO_FLIP  (INT_MIN + 1)
typedef int (*sl_io_hook)(void *user, const char *call, const char *path);
void sl_io_set_hook(sl_io_hook hook, void *user); /* NULL: none. Test instrument, process-wide. */
/* For system calls outside this file, which ask before they are made: the hook's answer, 0 where there is none. */
int sl_io_ask(const char *call, const char *path);

typedef struct sl_file {
    int fd;
    char *path; /* owned; for messages */
} sl_file;

/* Modes: SL_READ opens an existing regular file; SL_CREATE makes a new one or truncates; SL_NEW, with SL_CREATE, fails
 * where the name is taken, also by a link; SL_APPEND opens one for reading and writing, and makes it where it is missing; SL_DIRECT
 * adds O_DIRECT where the file system has it and silently goes without where it has not. */
enum { SL_READ = 1, SL_CREATE = 2, SL_DIRECT = 4, SL_NEW = 8, SL_APPEND = 16 };
/* A missing file, no permission to read, or something that is no regular file: SLUICE_ERR_INPUT. Failing to create or to
 * append: SLUICE_ERR_IO. */
sluice_status sl_file_open(const char *path, int mode, sl_file *out);
void sl_file_close(sl_file *f);           /* for readers, and on error paths; reports nothing */
sluice_status sl_file_finish(sl_file *f); /* for writers: fdatasync and close, both checked */
sluice_status sl_file_size(sl_file *f, uint64_t *out);
/* A hint: what is read next is nowhere near, so that nothing is read ahead. */
void sl_file_expect_random(sl_file *f);
/* Whole-length transfers: short counts and EINTR are retried, end of file is an error (SLUICE_ERR_INPUT). */
sluice_status sl_file_pread(sl_file *f, void *buf, size_t bytes, uint64_t offset);
/* Whether the page cache holds all of bytes [offset, offset+bytes); asking reads nothing from the disk. False where that cannot
 * be told; always true where this process may neither write nor own the file. */
bool sl_file_is_cached(const sl_file *f, size_t bytes, uint64_t offset);
/* At least `least` bytes and at most `most`: for files of SL_DIRECT, whose transfers are of multiples of SL_DIRECT_ALIGNMENT
 * bytes, to and from such places, while the end of a file is none. Otherwise as sl_file_pread. */
#define SL_DIRECT_ALIGNMENT 4096
sluice_status sl_file_pread_some(sl_file *f, void *buf, size_t least, size_t most, uint64_t offset);
/* Another descriptor of a file that is open, which reads past the page cache. False: the file system has none, the limit of
 * open files is reached, or this process would not be told what the cache holds. None of these is recorded as a failure. */
bool sl_file_open_direct(const sl_file *f, sl_file *out);
/* Bytes that will be read soon: the system may fetch them meanwhile. A hint, which cannot fail and passes no hook. */
void sl_file_expect(const sl_file *f, uint64_t offset, uint64_t bytes);
sluice_status sl_file_pwrite(sl_file *f, const void *buf, size_t bytes, uint64_t offset);
sluice_status sl_file_truncate(sl_file *f, uint64_t bytes);
/* Whether an existing file can be opened for appending; changes nothing. */
sluice_status sl_file_try_append(const char *path);
/* Until it is closed no other process holds the file; one that does: SLUICE_ERR_USAGE. */
sluice_status sl_file_hold(sl_file *f);

/* Reads a whole file of at most `limit` bytes; *out is sl_alloc'ed, NUL-terminated beyond *bytes. */
sluice_status sl_file_read_all(const char *path, size_t limit, char **out, size_t *bytes);
/* The same, for files that take long to read: a request to stop (core/stop.h) ends it. */
sluice_status sl_file_read_all_until(const int *stop, const char *path, size_t limit, char **out, size_t *bytes);
/* Writes a small file in a folder that nobody reads yet, fdatasync included; for all others see core/output.h. */
sluice_status sl_file_write_all(const char *path, const void *data, size_t bytes);
/* The same with the bytes of another file. */
sluice_status sl_file_copy(const char *from, const char *to);
/* The same of a file that is open for reading, wherever its name is by now. */
sluice_status sl_file_copy_open(sl_file *in, const char *to);
/* The start of a small system file (/proc, /sys) into buf, NUL-terminated, cut to fit. False where there is none;
 * records no failure and allocates nothing, because such files are optional. */
bool sl_file_peek(const char *path, char *buf, size_t bytes);

/* What a path leads to. */
typedef enum {
    SL_PATH_MISSING,
    SL_PATH_FILE,
    SL_PATH_FOLDER,
    SL_PATH_LINK, /* sl_path_look_at_name alone */
    SL_PATH_FIFO,
    SL_PATH_SOCKET,
    SL_PATH_DEVICE,
    SL_PATH_OTHER
} sl_path_kind;
typedef struct sl_path_info {
    sl_path_kind kind;
    uint64_t device, inode; /* two paths with the same ones are the same file, however they are spelt */
    unsigned mode, owner, group;
    uint64_t bytes; /* of a file */
} sl_path_info;
/* "directory", "named pipe", ... for messages. */
const char *sl_path_kind_name(sl_path_kind kind);
/* What is behind all links; MISSING is no failure. */
sluice_status sl_path_look(const char *path, sl_path_info *out);
/* What the name itself is: a link is one. */
sluice_status sl_path_look_at_name(const char *path, sl_path_info *out);
/* Where the links that the path's last name is lead to, which may be missing. `out` has PATH_MAX bytes. */
sluice_status sl_path_follow(const char *path, char *out);
/* "a/b/c" -> "a/b", "c" -> ".", "/c" -> "/". `out` has PATH_MAX bytes. */
sluice_status sl_path_parent(const char *path, char *out);
/* Bytes that this process may still write to the file system of `path`, and which one it is. */
sluice_status sl_path_room(const char *path, uint64_t *bytes, uint64_t *file_system);
/* Gives an open file the mode of another and, where this process may decide that, its owner. */
sluice_status sl_file_take_mode(sl_file *f, const sl_path_info *from);

sluice_status sl_dir_make(const char *path);         /* existing is fine; parents are made */
sluice_status sl_dir_make_lasting(const char *path); /* the same; what was made outlasts a power cut */
/* Whether the directory can be made and written to; changes nothing. `folder` (PATH_MAX bytes) gets the directory, or
 * the one above it that is there. */
sluice_status sl_dir_try(const char *path, char *folder);
sluice_status sl_dir_sync(const char *path);
sluice_status sl_path_rename(const char *from, const char *to);
/* A symbolic link at `path` that says `to`. Nothing may be there. */
sluice_status sl_path_point(const char *to, const char *path);
/* What the link at `path` says; "": it is none, or says more than fits. */
void sl_path_link_target(const char *path, char *out, size_t bytes);
/* Each of two folders of one file system gets the name of the other, at once; false: this file system cannot do that, and
 * nothing was changed. */
sluice_status sl_path_exchange(const char *a, const char *b, bool *exchanged);
/* Another name for a file, or for a link itself. */
sluice_status sl_path_link(const char *from, const char *to);
sluice_status sl_path_remove(const char *path);     /* a file; missing is fine */
sluice_status sl_dir_remove_tree(const char *path); /* a directory and the files in it (one level); missing is fine */
bool sl_path_exists(const char *path);
/* Calls fn for every entry but "." and ".."; stops at the first failure. Missing directory: SLUICE_ERR_INPUT. */
sluice_status sl_dir_list(const char *path, sluice_status (*fn)(void *user, const char *name), void *user);

/* Takes an exclusive lock on `path` (created if missing), held until sl_lock_release or the death of the process.
 * Held by another: SLUICE_ERR_USAGE naming its pid. */
typedef struct sl_lock {
    int fd; /* -1: not held */
} sl_lock;
sluice_status sl_lock_take(const char *path, sl_lock *out);
void sl_lock_release(sl_lock *lock);
/* Whether somebody holds the lock now, and the process that wrote its number there last (0: none did). Changes nothing; whoever
 * tries to take the lock at that very instant may be refused once. A missing file is a lock that nobody holds. */
sluice_status sl_lock_look(const char *path, bool *held, int64_t *pid);

#endif
