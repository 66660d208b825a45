/* thin.h: which of very many steps a page shows. */
#ifndef SL_REPORT_THIN_H
#define SL_REPORT_THIN_H

#include "report/run_record.h"

#define SL_THIN_COLUMNS 400
#define SL_THIN_WHOLE   3200 /* so many steps are shown as they are */

/* Points in the order of their place, each with some numbers; the first number is shown also where it is not finite. */
typedef struct sl_thin_source {
    const void *of;
    size_t count;
    int series;
    size_t whole; /* so many points are kept as they are */
    size_t columns;
    double (*place)(const void *of, size_t i);
    double (*value)(const void *of, size_t i, int series);
} sl_thin_source;

/* Indices of points, increasing. Of more than `whole` those that have the smallest and the largest of each number in each of
 * `columns` equal columns, the first and the last: a line through them covers what a line through all would. *out is the
 * caller's, to be given to sl_free. */
sluice_status sl_thin(const sl_thin_source *s, size_t **out, size_t *kept);
/* The same of steps[], by loss, learning rate, norm and rate. */
sluice_status sl_thin_steps(const sl_recorded_step *steps, size_t count, size_t **out, size_t *kept);

#endif
