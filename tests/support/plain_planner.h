/* plain_planner.h: passes of the planner written the plain way, comparing each with all; what the quick ones are held
 * to. */
#ifndef SLUICE_TEST_PLAIN_PLANNER_H
#define SLUICE_TEST_PLAIN_PLANNER_H

#include "plan/passes.h"

typedef struct plain_placed {
    uint64_t begin, end;
    int first, last;
} plain_placed;

/* Lowest offset from `base` on at which `bytes` are free from `first` to `last`, beside the `count` of `placed`, to which
 * it is added. */
uint64_t plain_first_fit(plain_placed *placed, int count, uint64_t base, uint64_t bytes, int first, int last);

/* Derives waits and events anew; what was there is lost. Each first use asks every buffer that shares its bytes. */
sluice_status plain_waits(sl_plan *p);

#endif
