/* score_report.h: an evaluation for people: the line of losses, the metrics, classes and confusion matrix. */
#ifndef SL_TRAIN_SCORE_REPORT_H
#define SL_TRAIN_SCORE_REPORT_H

#include <stdio.h>

#include "sluice.h"

/* What `e`, of the kind EVAL, has. split: "validation". asked: only the metrics that the event marks as shown were asked for. */
void sl_score_report_print(const sluice_event *e, const char *split, bool asked, FILE *out);

#endif
