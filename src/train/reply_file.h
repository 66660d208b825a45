/* reply_file.h: where replies go: to a stream as they come, or to a file that has all of them or is what it was. */
#ifndef SL_TRAIN_REPLY_FILE_H
#define SL_TRAIN_REPLY_FILE_H

#include <stdio.h>

#include "core/output.h"
#include "core/status.h"

typedef struct sl_reply_file {
    FILE *out; /* write to it */
    const char *path;
    bool begun; /* the first bytes are there, and the output is neither finished nor dropped */
    sl_output output;
    uint64_t written;
    sluice_status fault; /* of the first write that failed */
    char message[SL_MESSAGE_BYTES];
} sl_reply_file;

/* path NULL: replies go to `out`. The struct stays where it is. Nothing is opened before the first byte is written. */
sluice_status sl_reply_file_open(sl_reply_file *f, const char *path, FILE *out);
/* The failure of a write so far. */
sluice_status sl_reply_file_check(sl_reply_file *f);
/* `st` is how the replies ended: the file takes its place where that is well, otherwise what was written goes. */
sluice_status sl_reply_file_close(sl_reply_file *f, sluice_status st);

#endif
