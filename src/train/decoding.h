/* decoding.h: runs a generation graph (sl_model_options.decode): tokens of several sequences in, logits of what follows out.
 *
 * Every sequence of a run has a slot, whose cache keeps the keys and values of what it was fed. A run feeds at most as many
 * tokens as the graph has rows: all that are due of sequences in their turn, whole prompts or parts of them. Where a
 * sequence outgrows its slot, the newest half of it is kept and fed anew, from position 0 on. */
#ifndef SL_TRAIN_DECODING_H
#define SL_TRAIN_DECODING_H

#include "train/batch.h"

/* A sequence: prompt and what follows. Zero-initialise; sl_sequence_free. */
typedef struct sl_sequence {
    int32_t *ids; /* owned */
    int64_t count, capacity;
    int64_t start; /* what lies before was given up for room: ids[start] is at position 0 */
    int64_t fed;   /* ids[start .. fed) are in the cache */
    int slot;
} sl_sequence;
sluice_status sl_sequence_add(sl_sequence *s, const int32_t *ids, int64_t count);
/* Forgets the ids from `count` on, also in the cache. */
void sl_sequence_cut(sl_sequence *s, int64_t count);
void sl_sequence_free(sl_sequence *s);

typedef struct sl_cached_decoder sl_cached_decoder;

/* `engine` is borrowed: of a graph that was built with decode, with so many `places`. */
sluice_status sl_cached_decoder_create(sluice_engine *engine, int64_t places, sl_cached_decoder **out);
void sl_cached_decoder_destroy(sl_cached_decoder *d); /* NULL is fine */
int64_t sl_cached_decoder_vocabulary(const sl_cached_decoder *d);
int64_t sl_cached_decoder_slots(const sl_cached_decoder *d);
int64_t sl_cached_decoder_places(const sl_cached_decoder *d);
/* One run. Sequences are at most as many as there are slots, each in a slot of its own, and each has ids that were not fed.
 * logits[i]: of what follows sequence i, or NULL where it has more to feed. Valid until the next run. *slid, which may be
 * NULL, is set where a sequence had to give up its older half. */
sluice_status sl_cached_decoder_run(sl_cached_decoder *d, sl_sequence *const *sequences, int count,
                                    const float **logits, bool *slid);

#endif
