/* run_identity.h: what a run must have in common with a checkpoint to continue it (exact rule 15).
 *
 * Identity is kept as lines of "key: value", so that a refusal names the setting and both values, and as the hash of the
 * model's description, which covers what has no line. Lines that only one side has are not compared: an older checkpoint
 * does not say what a newer version keeps. */
#ifndef SL_CHECKPOINT_RUN_IDENTITY_H
#define SL_CHECKPOINT_RUN_IDENTITY_H

#include <stdbool.h>
#include <stdint.h>

#include "core/status.h"

struct sl_checkpoint_meta;

#define SL_IDENTITY_BYTES 16384
/* Keys of the lines that are no settings: what a step adds up. */
#define SL_IDENTITY_SAMPLES "samples in a micro-batch"
#define SL_IDENTITY_MICRO   "micro-batches in a step (gradient accumulation x ranks)"
#define SL_IDENTITY_SHARED  "ranks that share the statistics of batch norms"

typedef struct sl_identity {
    char model_sha256[65];
    char old_model_sha256[65]; /* as versions made it that kept no lines */
    char lines[SL_IDENTITY_BYTES];
    /* Whether a key says what the model is: such lines count only where the model's hash is another, so that a default
     * may be written out. NULL: none does. */
    bool (*is_model)(const char *key);
} sl_identity;

/* SLUICE_ERR_USAGE names the first line that differs, with both values. */
sluice_status sl_identity_check_lines(const sl_identity *here, const struct sl_checkpoint_meta *there);
/* Samples in a micro-batch of the run; 0: not known. */
uint64_t sl_identity_samples(const struct sl_checkpoint_meta *there);
/* Whether the model's description is the same. */
bool sl_identity_same_model(const sl_identity *here, const struct sl_checkpoint_meta *there);

#endif
