/* output.h: every file that sluice writes whole is written through here.
 *
 * The bytes go to a temporary file of the writer's own (core/claim.h), which takes the place of the target only after they are
 * on the disk: whatever happens, and however many write it, the target is the old file or a whole new one. A target that is a
 * symbolic link is written through: the file that it leads to is replaced, or made where it is missing, and the link stays. A
 * file that is replaced keeps its mode and, where this process may decide that, its owner. What exists and is no regular file
 * is refused with SLUICE_ERR_USAGE: a device, a named pipe, a socket and a directory are never replaced. */
#ifndef SL_CORE_OUTPUT_H
#define SL_CORE_OUTPUT_H

#include <limits.h>

#include "core/claim.h"
#include "core/io.h"

/* Where an output goes. */
typedef struct sl_target {
    char path[PATH_MAX];   /* links followed */
    char lock[PATH_MAX];   /* beside it, while it is written */
    char folder[PATH_MAX]; /* of both */
    sl_path_info before;   /* what is there now */
} sl_target;

/* Finds the target of an output and refuses what may not be written. Changes nothing. */
sluice_status sl_target_find(const char *path, sl_target *out);
/* Whether an input is the target, or the lock that is needed on the way to it; by device and inode. */
sluice_status sl_target_is_file(const sl_target *target, const char *input, bool *same);
/* Whether two outputs would write the same file. */
sluice_status sl_target_is_target(const sl_target *a, const sl_target *b, bool *same);
/* Makes sure that the target can be written, now and not by another: its temporary file is made, and removed. */
sluice_status sl_target_try(const sl_target *target);

typedef struct sl_output {
    sl_target target;
    sl_claim claim;
    sl_file file; /* the temporary one: write the bytes to it */
} sl_output;

/* Every output that was begun must be finished or dropped. */
sluice_status sl_output_begin(const char *path, sl_output *out);
/* fdatasync, rename, fsync of the folder. Ends the output in any case; a failure leaves the old file and no other. */
sluice_status sl_output_finish(sl_output *o);
/* Removes the temporary file; keeps the message of the failure that led here. */
void sl_output_drop(sl_output *o);
/* All of it for a file whose bytes are in memory. */
sluice_status sl_file_replace(const char *path, const void *data, size_t bytes);
/* The same for a file of this program's own in a folder that this process has locked. */
sluice_status sl_file_replace_held(const char *path, const void *data, size_t bytes);
/* folder/name becomes a symbolic link to `to`, or stays what it was. What is there and is no link is SLUICE_ERR_USAGE. */
sluice_status sl_link_replace(const char *folder, const char *name, const char *to);

#endif
