/* io_calls.h: the system calls of the io*.c files alone; everything else uses core/io.h.
 *
 * Each asks the hook (sl_io_set_hook) first, is made, and is repeated when a signal cut it short. `path` is what the hook is
 * told. Results and errno are those of the call. */
#ifndef SL_CORE_IO_CALLS_H
#define SL_CORE_IO_CALLS_H

#include <dirent.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "core/io.h"

int sl_io_open(const char *path, int flags); /* O_CLOEXEC is added */
/* The descriptor is closed whatever is returned. */
int sl_io_close(int fd, const char *path);
ssize_t sl_io_pread(int fd, const char *path, void *buf, size_t bytes, uint64_t offset);
ssize_t sl_io_pwrite(int fd, const char *path, const void *buf, size_t bytes, uint64_t offset);
int sl_io_fstat(int fd, const char *path, struct stat *out);
int sl_io_stat(const char *path, struct stat *out);
int sl_io_lstat(const char *path, struct stat *out);
int sl_io_access(const char *path, int how);
/* One byte for each page from `at` on, its lowest bit set where the page is in memory. */
int sl_io_mincore(const char *path, void *at, size_t bytes, unsigned char *pages);
ssize_t sl_io_readlink(const char *path, char *buf, size_t bytes);
int sl_io_statvfs(const char *path, struct statvfs *out);
int sl_io_fchmod(int fd, const char *path, unsigned mode);
int sl_io_fchown(int fd, const char *path, unsigned owner, unsigned group);
int sl_io_ftruncate(int fd, const char *path, uint64_t bytes);
int sl_io_fdatasync(int fd, const char *path);
int sl_io_fsync(int fd, const char *path);
int sl_io_flock(int fd, const char *path, int operation);
int sl_io_rename(const char *from, const char *to);
int sl_io_exchange(const char *a, const char *b);
int sl_io_link(const char *from, const char *to);
int sl_io_mkdir(const char *path);
int sl_io_unlink(const char *path);
int sl_io_rmdir(const char *path);
DIR *sl_io_opendir(const char *path);
struct dirent *sl_io_readdir(DIR *dir, const char *path); /* NULL with errno 0 at the end */
void sl_io_closedir(DIR *dir, const char *path);

/* Records errno as the failure of `verb` on `path`. */
sluice_status sl_io_fail(const char *verb, const char *path);
/* The same for files that the user gave: what is wrong with them is an input error, the machine's failures are not. */
sluice_status sl_io_fail_input(const char *verb, const char *path);
/* What the user can do, to stand behind a message; "": the error does not tell. */
const char *sl_io_advice(int error);

/* Directories open for reading but hold no bytes; devices and pipes have no end, or none that a length tells of. */
sluice_status sl_io_refuse_irregular(int fd, const char *path);

#endif
