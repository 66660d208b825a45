/* report_run.h: a page for a run that a folder holds, or for one at hand. */
#ifndef SL_REPORT_REPORT_RUN_H
#define SL_REPORT_REPORT_RUN_H

#include "format/text_buffer.h"
#include "report/run_record.h"

#define SL_REPORT_NAME "report.html"

/* Where a report goes that was asked for as `wanted`: there, or into the run's folder where that is "". */
sluice_status sl_report_path(const char *wanted, const char *run, char *out, size_t bytes);
/* `profile`: the text of a profile, or NULL. */
sluice_status sl_report_write(const sl_run_record *record, const sl_text *profile, const char *name, const char *path);

#endif
