/* weights_check.h: whether a weights file is of this model, before its first value is used. */
#ifndef SL_CHECKPOINT_WEIGHTS_CHECK_H
#define SL_CHECKPOINT_WEIGHTS_CHECK_H

#include "checkpoint/staging.h"
#include "checkpoint/state.h"
#include "format/weights_set.h"

/* Files may hold a weight by its own name, or all of its parts. */
bool sl_weight_is_in_parts(const sl_weights_set *f, const sl_state_tensor *t);
/* Files need not hold adapters, and are not read for what starts anew: the values stay as they are. */
bool sl_weight_is_left_out(const sl_weights_set *f, const sl_state_tensor *t);

/* Where none of the model's names is there, and all would be with a prefix taken from them or put before them
 * (sl_weight_prefixes), does that; else changes nothing. Comes before the check. */
sluice_status sl_weights_fit_names(sl_weights_set *f, const sl_state *state);
/* Names, shapes and dtypes. SLUICE_ERR_INPUT names up to five tensors that the file lacks and five that the model does not
 * have, and says what the file looks like. */
sluice_status sl_weights_check(const sl_weights_set *f, const sl_state *state);

/* A count that the file holds (SL_KIND_COUNTER): one I64 number from 0 on. */
sluice_status sl_weights_read_count(const sl_weights_set *f, const char *name, uint64_t *out);

/* The values of tensors that repeat a parameter (sl_weight_names.copies). All ranks go through them together, each a share
 * of the chunks. */
typedef struct sl_copies_walk {
    const sl_state *state;
    const sl_weights_set *f;
    float *buffer;  /* of SL_CHECKPOINT_CHUNK bytes; the caller's */
    int copy;       /* row at hand */
    uint64_t chunk; /* of it */
} sl_copies_walk;
/* The next share; an sl_round_fn. SLUICE_ERR_INPUT where values differ. */
sluice_status sl_copies_walk_next(void *walk, bool *done);

#endif
