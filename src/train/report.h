/* report.h: predicted beside measured, after a run. */
#ifndef SL_TRAIN_REPORT_H
#define SL_TRAIN_REPORT_H

#include "train/engine.h"

/* moved_*: counted bytes in a step, mean over the counted steps. */
void sl_report_print(const sluice_engine *e, uint64_t moved_to_device, uint64_t moved_to_host, FILE *out);

#endif
