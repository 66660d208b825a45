/* judge.h: by which metrics a job judges its model, and which evaluation was the best so far. */
#ifndef SL_TRAIN_JUDGE_H
#define SL_TRAIN_JUDGE_H

#include "checkpoint/checkpoint.h"
#include "config/config.h"
#include "train/metrics.h"

/* A metric, and which of its values are better. */
typedef struct sl_criterion {
    sl_metric metric;
    bool higher;
} sl_criterion;

typedef struct sl_judge {
    sl_metric_shape shape;
    uint64_t wanted;       /* bits 1 << sl_metric of what is computed and told */
    uint64_t shown;        /* of these: what lines for people name, beside the loss and the accuracy */
    sl_criterion best;     /* evaluate.metric */
    sl_criterion stopping; /* early_stopping.metric */
} sl_judge;

static inline bool sl_wants(uint64_t metrics, sl_metric m)
{
    return (metrics >> m & 1) != 0;
}

/* Fills in everything but `shape`, which is there; SLUICE_ERR_USAGE names the setting whose metric a model of that shape does
 * not have. `whole`: the job only evaluates, so that everything is counted that can be. */
sluice_status sl_judge_choose(sl_judge *j, const sl_settings *s, bool whole);

/* Tells *b of an evaluation after `step`. Returns whether it is better than all before, by more than `least`; the others
 * count in b->since. What *b knows of another criterion is forgotten. A value that is no number is never better. */
bool sl_best_observe(sl_best *b, sl_criterion by, double least, double value, uint64_t step);
/* Whether what *b knows is by this criterion. */
bool sl_best_is_by(const sl_best *b, sl_criterion by);

#endif
