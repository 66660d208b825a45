/* kept_vocabulary.h: what token ids stand for, kept beside weights (docs/formats.md).
 *
 * In a weights file it is the metadata sluice.vocabulary and sluice.characters, in a checkpoint the member "vocabulary" of the
 * manifest. Files of other programs, and of older versions, have neither. */
#ifndef SL_CHECKPOINT_KEPT_VOCABULARY_H
#define SL_CHECKPOINT_KEPT_VOCABULARY_H

#include "core/arena.h"
#include "format/weights_set.h"
#include "ir/graph.h"

#define SL_VOCABULARY_KEY "sluice.vocabulary"
#define SL_CHARACTERS_KEY "sluice.characters"

/* That of open weights; strings are the set's. */
sl_kept_vocabulary sl_kept_in_set(const sl_weights_set *s);
/* SLUICE_ERR_INPUT where both sides are known and differ. `path` is where the second was found. */
sluice_status sl_kept_check(const sl_kept_vocabulary *here, const sl_kept_vocabulary *there, const char *path);

/* Looks into weights, before anything else is done with it. Strings are copied to the arena. */
sluice_status sl_weights_vocabulary(const char *path, sl_arena *arena, sl_kept_vocabulary *out);
/* The same for the newest checkpoint of a folder (or one step-N) whose manifest can be read: the checkpoints of a folder are
 * of one run, and keep the same. *found is false where there is none. Damage is not reported: loading does that. */
sluice_status sl_checkpoint_vocabulary(const char *folder, sl_arena *arena, sl_kept_vocabulary *out, bool *found);

#endif
