/* batch_growth.h: a batch that grows by rule: every so many steps the micro-batches of a step become `factor` times as many.
 *
 * The micro-batch stays, so memory stays; the plan is made for the most micro-batches. Everything is a function of the step
 * alone: a resumed run knows the size of its next step and where it is in the data without having kept either. */
#ifndef SL_TRAIN_BATCH_GROWTH_H
#define SL_TRAIN_BATCH_GROWTH_H

#include <stdint.h>

typedef struct sl_batch_growth {
    int64_t every;  /* steps; 0: it does not grow */
    int64_t factor; /* at least 2 */
    int64_t first;  /* micro-batches of a rank in the first step */
    int64_t most;   /* in the last: first times a power of factor */
} sl_batch_growth;

/* The largest first * factor^k of which `unit` samples each are at most `limit` samples. */
int64_t sl_growth_most(int64_t first, int64_t factor, int64_t unit, int64_t limit);
/* Micro-batches of a rank in the step that follows `step` others. */
int64_t sl_growth_at(const sl_batch_growth *g, uint64_t step);
/* And in all steps before it. 2^63 - 1 where there are more. */
uint64_t sl_growth_before(const sl_batch_growth *g, uint64_t step);
/* The fewest steps with at least so many micro-batches of a rank. */
uint64_t sl_growth_steps(const sl_batch_growth *g, double micro_batches);

#endif
