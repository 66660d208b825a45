/* edit_distance.h: how far one sequence of labels is from another: what character and word error rates count. */
#ifndef SL_TRAIN_EDIT_DISTANCE_H
#define SL_TRAIN_EDIT_DISTANCE_H

#include <stdint.h>

#include "core/status.h"

/* Least number of labels to insert, remove or replace to make one sequence of the other. Time is the product of the counts,
 * memory the second of them. */
sluice_status sl_label_distance(const int32_t *a, int64_t a_count, const int32_t *b, int64_t b_count, int64_t *out);
/* The same of words, which are runs of labels other than `space`; space below 0: every label is a word. *words: how many `a`
 * has. */
sluice_status sl_word_distance(const int32_t *a, int64_t a_count, const int32_t *b, int64_t b_count, int32_t space,
                               int64_t *out, int64_t *words);

#endif
