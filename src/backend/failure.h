/* failure.h: the first failure of work that was queued, kept with its message until somebody waits for that work. */
#ifndef SL_BACKEND_FAILURE_H
#define SL_BACKEND_FAILURE_H

#include <pthread.h>
#include <stdatomic.h>

#include "core/status.h"

typedef struct sl_failure {
    pthread_mutex_t lock;
    _Atomic int status;             /* SLUICE_OK: nothing failed; written under lock */
    char message[SL_MESSAGE_BYTES]; /* under lock; of `status` */
} sl_failure;

sluice_status sl_failure_open(sl_failure *f);
void sl_failure_close(sl_failure *f);
/* Runs queued work in the calling thread, unless earlier work has failed; keeps the first failure. */
void sl_failure_run(sl_failure *f, sluice_status (*work)(void *user), void *user);
/* Hands the kept failure to the calling thread, once; SLUICE_OK where there is none. Work runs again afterwards. */
sluice_status sl_failure_take(sl_failure *f);

#endif
