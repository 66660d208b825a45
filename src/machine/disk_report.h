/* disk_report.h: disks for swap files, for people. */
#ifndef SL_MACHINE_DISK_REPORT_H
#define SL_MACHINE_DISK_REPORT_H

#include <stdio.h>

/* Those that the user's cache has rates of. */
void sl_print_known_disks(FILE *out);

#endif
