/* failure.c: see failure.h. Messages live in the thread that failed, so the message is copied along. */
#include "backend/failure.h"

#include <string.h>

sluice_status sl_failure_open(sl_failure *f)
{
    int failed = pthread_mutex_init(&f->lock, NULL);
    if (failed) return sl_fail(SLUICE_ERR_NO_MEMORY, "device: %s", strerror(failed));
    atomic_init(&f->status, SLUICE_OK);
    f->message[0] = '\0';
    return SLUICE_OK;
}

void sl_failure_close(sl_failure *f)
{
    pthread_mutex_destroy(&f->lock);
}

static void keep(sl_failure *f, sluice_status status)
{
    pthread_mutex_lock(&f->lock);
    if (atomic_load(&f->status) == SLUICE_OK) {
        sl_error_copy(f->message);
        atomic_store(&f->status, (int)status);
    }
    pthread_mutex_unlock(&f->lock);
}

void sl_failure_run(sl_failure *f, sluice_status (*work)(void *user), void *user)
{
    if (atomic_load(&f->status) != SLUICE_OK) return;
    sluice_status status = work(user);
    if (status != SLUICE_OK) keep(f, status);
}

sluice_status sl_failure_take(sl_failure *f)
{
    if (atomic_load(&f->status) == SLUICE_OK) return SLUICE_OK;
    pthread_mutex_lock(&f->lock);
    sluice_status status = (sluice_status)atomic_load(&f->status);
    sl_error_record("%s", f->message);
    atomic_store(&f->status, SLUICE_OK);
    pthread_mutex_unlock(&f->lock);
    return status;
}
