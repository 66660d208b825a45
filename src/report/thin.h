/* thin.h: which of very many steps a page shows. */
#ifndef SL_REPORT_THIN_H
#define SL_REPORT_THIN_H

#include "report/run_record.h"

#define SL_THIN_COLUMNS 400
#define SL_THIN_WHOLE   3200 /* so many steps are shown as they are */

/* Indices into steps[], increasing. Of more than SL_THIN_WHOLE steps those that have the smallest and the largest loss,
 * learning rate, norm and rate of each of SL_THIN_COLUMNS equal columns, the first and the last: a line through them covers
 * what a line through all would. *out is the caller's, to be given to sl_free. */
sluice_status sl_thin_steps(const sl_recorded_step *steps, size_t count, size_t **out, size_t *kept);

#endif
