/* report.h: predicted beside measured, after a run. */
#ifndef SL_TRAIN_REPORT_H
#define SL_TRAIN_REPORT_H

#include "train/engine.h"
#include "train/totals.h"

/* Both over all ranks; measured bytes are means over the counted steps. Times are those of the engine's own rank. */
void sl_report_print(const sluice_engine *e, const sl_run_totals *predicted, const sl_run_totals *measured, FILE *out);

#endif
