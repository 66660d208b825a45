/* first_fit.h: the lowest bytes that are free during the whole of a life.
 *
 * A life is a range of times, from 0 to times - 1. Over the times stands a binary tree; each of its nodes spans a range
 * of them, and has two sets of stretches of bytes: `covered`, of what was placed for all its times (and not for all of
 * its parent's), and `touched`, of what was placed for any of them. Sets keep their stretches sorted and merged, and a
 * stack of buffers is one stretch. What was placed for a time of a life is in `touched` of one of the nodes that the
 * life consists of, or in `covered` of a node above them: of n times, in one of about 4 log n sets. */
#ifndef SL_PLAN_FIRST_FIT_H
#define SL_PLAN_FIRST_FIT_H

#include <stdint.h>

#include "core/status.h"

typedef struct sl_stretch {
    uint64_t begin, end;
} sl_stretch;

typedef struct sl_stretches {
    int first, count, capacity; /* of the pool */
} sl_stretches;

typedef struct sl_first_fit {
    uint64_t base; /* nothing is placed below */
    int times;     /* a power of two; node k spans those of nodes 2k and 2k + 1; times + t is time t alone */
    sl_stretches *covered, *touched;
    sl_stretch *pool;
    int pool_count, pool_capacity;
    int node_capacity;
    uint64_t looked; /* stretches that were looked at so far: the work done */
} sl_first_fit;

/* Forgets what was placed. A struct of zeros is one without memory. SLUICE_ERR_NO_MEMORY. */
sluice_status sl_first_fit_begin(sl_first_fit *f, uint64_t base, int times);
/* Places `bytes` at the lowest offset that is free from `first` to `last`, at a multiple of what all sizes and the base
 * are multiples of. SLUICE_ERR_NO_MEMORY. */
sluice_status sl_first_fit_place(sl_first_fit *f, uint64_t bytes, int first, int last, uint64_t *offset);
void sl_first_fit_destroy(sl_first_fit *f);

#endif
