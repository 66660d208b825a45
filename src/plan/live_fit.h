/* live_fit.h: the lowest free bytes for buffers that come in the order of their birth.
 *
 * What was placed before and lives on is all that a new buffer must keep clear of, whatever its own life: the others are
 * dead. So the bytes of the living, merged, are enough, without a tree over times (first_fit.h). */
#ifndef SL_PLAN_LIVE_FIT_H
#define SL_PLAN_LIVE_FIT_H

#include <stdint.h>

#include "core/status.h"
#include "plan/first_fit.h"

typedef struct sl_live_fit {
    uint64_t base;     /* nothing is placed below */
    sl_stretch *taken; /* sorted, apart from each other; owned */
    int count, capacity;
} sl_live_fit;

/* Nothing lives. A struct of zeros is one without memory. */
void sl_live_fit_begin(sl_live_fit *f, uint64_t base);
/* Places `bytes` at the lowest free offset. SLUICE_ERR_NO_MEMORY. */
sluice_status sl_live_fit_place(sl_live_fit *f, uint64_t bytes, uint64_t *offset);
/* What was placed at `offset` dies. SLUICE_ERR_NO_MEMORY. */
sluice_status sl_live_fit_release(sl_live_fit *f, uint64_t bytes, uint64_t offset);
void sl_live_fit_destroy(sl_live_fit *f);

#endif
