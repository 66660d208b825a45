/* marks.h: a set of numbers from 0 to size - 1 in which the neighbours of a number are found at once.
 *
 * One bit a number, and above each 64 bits one bit that says whether any of them is set, up to a single word. */
#ifndef SL_CORE_MARKS_H
#define SL_CORE_MARKS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/status.h"

#define SL_MARKS_LEVELS 6 /* 64^6 numbers: more than an int counts */

typedef struct sl_marks {
    uint64_t *level[SL_MARKS_LEVELS]; /* level[0]: the numbers; level[k + 1]: the words of level[k] that are not 0 */
    int words[SL_MARKS_LEVELS];       /* of each level */
    int levels;
} sl_marks;

/* An empty set. SLUICE_ERR_NO_MEMORY. */
sluice_status sl_marks_create(sl_marks *m, int size);
void sl_marks_destroy(sl_marks *m); /* of zeros is fine */

bool sl_marks_has(const sl_marks *m, int i);
void sl_marks_set(sl_marks *m, int i);
void sl_marks_clear(sl_marks *m, int i);
/* The smallest number in the set that is `i` or more; -1: none. `i` may be `size`. */
int sl_marks_next(const sl_marks *m, int i);
/* The largest number in the set that is `i` or less; -1: none. `i` may be -1. */
int sl_marks_previous(const sl_marks *m, int i);

#endif
