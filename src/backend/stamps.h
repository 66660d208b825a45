/* stamps.h: times by the host's clock, for backends whose work the host does (sl_backend.stamp). */
#ifndef SL_BACKEND_STAMPS_H
#define SL_BACKEND_STAMPS_H

#include "core/status.h"

/* Zero-initialise. Each stamp is written by one thread and read when that thread has been waited for. */
typedef struct sl_stamps {
    double *at; /* owned; sl_now(), 0 where not set; NULL: none are reserved */
    int count;
    double origin; /* sl_now() */
} sl_stamps;

/* As sl_backend.reserve_stamps and read_stamps; count 0 also frees. */
sluice_status sl_stamps_reserve(sl_stamps *s, int count);
sluice_status sl_stamps_read(const sl_stamps *s, double *seconds, int count);
/* Where stamp `index` is to be written; SLUICE_ERR_FAILED where there is no such stamp. */
sluice_status sl_stamps_slot(sl_stamps *s, int index, double **out);
/* Sets it to the present moment. */
sluice_status sl_stamps_set(sl_stamps *s, int index);

#endif
