/* report.h: predicted and measured numbers, after a run. */
#ifndef SL_TRAIN_REPORT_H
#define SL_TRAIN_REPORT_H

#include "train/engine.h"
#include "train/totals.h"

/* What a step of given length amounts to. Of all ranks together. */
typedef struct sl_pace {
    double samples, tokens; /* in a step; tokens 0: the model has none */
    double flops;           /* of the model in a step */
    double planned_peak;    /* flops a second of GEMMs that plans assume */
    double peak;            /* the same of a large one, measured; 0: not known */
} sl_pace;

/* Of a step that took `seconds`. planned: of one that is expected to; its MFU is of the measured peak as well where that
 * is known, so that what is expected and what was seen compare. */
void sl_pace_to_event(const sl_pace *p, bool planned, double seconds, sluice_event *event);
/* "expected: 812 tokens/s, MFU 41.0 %", for a plan. */
void sl_pace_print(const sl_pace *p, double seconds, FILE *out);

/* Both over all ranks; measured bytes are means over the counted steps. Times are those of the engine's own rank. `decodes`: the
 * data set takes memory for what it decodes. */
void sl_report_print(const sluice_engine *e, const sl_run_totals *predicted, const sl_run_totals *measured,
                     const sl_pace *pace, bool decodes, FILE *out);

#endif
