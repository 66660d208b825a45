/* stop.h: a request to stop, as work that takes long sees it.
 *
 * Whoever catches signals owns a flag, an int that a signal's number is stored in. Work borrows a pointer to it (NULL:
 * nobody can ask) and polls it often enough to end within a fraction of a second; a load and a comparison is all that costs.
 * Only work that has written nothing yet is stopped this way: what writes goes on to its end. */
#ifndef SL_CORE_STOP_H
#define SL_CORE_STOP_H

#include <stdbool.h>
#include <stddef.h>

#include "core/status.h"

static inline bool sl_stop_asked(const int *stop)
{
    return stop != NULL && __atomic_load_n(stop, __ATOMIC_RELAXED) != 0;
}

/* SLUICE_ERR_STOPPED where it was asked for; `doing` is what was interrupted: "planning". */
static inline sluice_status sl_stop_poll(const int *stop, const char *doing)
{
    if (!sl_stop_asked(stop)) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_STOPPED, "stopped by a signal while %s; nothing was written", doing);
}

#endif
