/* verify.h: reads a checkpoint's data files against their checksums. */
#ifndef SL_CHECKPOINT_VERIFY_H
#define SL_CHECKPOINT_VERIFY_H

#include "checkpoint/manifest.h"

/* Goes through the data files in order, one chunk at a time, and checks sizes and checksums. target maps each tensor of
 * the manifest to a tensor of `state`, or to -1; chunks without a mapped tensor are not read. target NULL: every chunk.
 * state not NULL: verified chunks are written to it. SLUICE_ERR_INPUT names file, offset and tensor of the first fault.
 */
sluice_status sl_data_walk(const sl_manifest *m, const char *folder, const int64_t *target, const sl_state *state);

#endif
