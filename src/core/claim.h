/* claim.h: one process at a time writes an output, and what a killed one left goes.
 *
 * Whoever writes TARGET, a file or a folder, holds the lock on TARGET.tmp and writes to TARGET.XXXXXXXX.tmp, a name that
 * nobody else has. The lock file says that name before anything has it: whoever gets the lock next, because its holder
 * died, removes what it names. Both are gone when the target has been written.
 *
 * On a file system without locks several may write at once. Each still has a name of its own, so that the target is one
 * whole result; what was killed there is left for people to remove. */
#ifndef SL_CORE_CLAIM_H
#define SL_CORE_CLAIM_H

#include <limits.h>
#include <stdbool.h>

#include "core/io.h"

typedef struct sl_claim {
    bool taken;
    int fd;                   /* of the lock; -1: none can be had */
    char lock[PATH_MAX];      /* TARGET.tmp */
    char temporary[PATH_MAX]; /* TARGET.XXXXXXXX.tmp: nothing has that name when the claim is taken */
} sl_claim;

/* The lock of a target, whose links were followed. SLUICE_ERR_USAGE: its path is too long. */
sluice_status sl_claim_lock_path(const char *target, char lock[PATH_MAX]);
/* Waits a second at most for another that writes the target; SLUICE_ERR_USAGE names its process. What is neither a lock nor
 * a regular file under the lock's name is refused likewise; a folder there goes where `folder` says that the target is one. */
sluice_status sl_claim_take(const char *target, bool folder, sl_claim *out);
/* Without a lock, for a target whose folder this process holds the lock of already: its temporary name is TARGET.tmp, and what
 * is there was left by a run that was killed. */
sluice_status sl_claim_held(const char *target, sl_claim *out);
/* Ends the claim; whatever the temporary name leads to stays. Records no failure. One that was not taken is fine. */
void sl_claim_end(sl_claim *c);

#endif
