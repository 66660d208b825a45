/* transcribe.h: what a model of CTC understood: the likeliest class of each frame, repetitions and blanks left out. */
#ifndef SL_TRAIN_TRANSCRIBE_H
#define SL_TRAIN_TRANSCRIBE_H

#include <stdint.h>

/* logits[frames, classes] -> labels in out, which has room for `frames`; returns how many. Of equal logits the first class counts. */
int64_t sl_ctc_greedy(const float *logits, int64_t frames, int64_t classes, int32_t blank, int32_t *out);
/* Labels before the first that is below 0, of at most `most`. */
int64_t sl_count_labels(const int32_t *labels, int64_t most);

#endif
