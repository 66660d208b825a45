/* tenants.h: which transient buffer used each byte last.
 *
 * The ends of all buffers cut a tier into parts; parts of one tenant that lie side by side are one lot. A buffer that
 * moves in makes all its lots one, so that each lot is made once and taken once. */
#ifndef SL_PLAN_TENANTS_H
#define SL_PLAN_TENANTS_H

#include "core/marks.h"
#include "plan/plan.h"

typedef struct sl_tenants {
    int *begin, *end; /* per buffer: its parts; permanent ones and those without room have none */
    int *tenant;      /* per part that a lot begins with: the buffer; -1: none yet */
    sl_marks lots;    /* parts that a lot begins with */
    int part_count;
} sl_tenants;

/* Nobody lives anywhere. SLUICE_ERR_NO_MEMORY; to be destroyed then too. */
sluice_status sl_tenants_create(sl_tenants *t, const sl_plan *p);
void sl_tenants_destroy(sl_tenants *t);

/* The lots that a buffer would take over, one after the other; -1: no more. The first call cuts lots at its ends. */
int sl_tenants_begin(sl_tenants *t, int buffer);
int sl_tenants_next(const sl_tenants *t, int buffer, int lot);
/* After sl_tenants_begin: its lots are one, and its own. */
void sl_tenants_move_in(sl_tenants *t, int buffer);
/* Nobody lives anywhere again. */
void sl_tenants_move_out(sl_tenants *t);

#endif
