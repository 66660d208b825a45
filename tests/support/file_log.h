/* file_log.h: what log_files.so writes: everything a program did to files under its working folder, in order.
 *
 * One log serves all processes of a job. A record is appended after the call it tells of has returned and before its
 * caller goes on, so that what one process did because another was done stands behind it. */
#ifndef SLUICE_TEST_FILE_LOG_H
#define SLUICE_TEST_FILE_LOG_H

#include <stdint.h>

typedef enum {
    FILE_LOG_OPEN,     /* path, flags; fd is what came back */
    FILE_LOG_CLOSE,    /* fd */
    FILE_LOG_WRITE,    /* fd, offset, data */
    FILE_LOG_TRUNCATE, /* fd, offset: the new length */
    FILE_LOG_SYNC,     /* fd: fsync or fdatasync */
    FILE_LOG_RENAME,   /* path, to */
    FILE_LOG_REMOVE,   /* path: unlink or rmdir */
    FILE_LOG_MKDIR,    /* path */
    FILE_LOG_SAID      /* offset: so many bytes have been written to the file that is standard output */
} file_log_kind;

/* Followed by the bytes of path, to and data. */
typedef struct file_log_record {
    int32_t kind, pid, fd, flags;
    uint64_t offset, data_bytes;
    uint32_t path_bytes, to_bytes;
} file_log_record;

#endif
