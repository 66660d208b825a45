/* machine_place.h: where the threads of a rank run and its arenas lie on this machine. */
#ifndef SL_MACHINE_MACHINE_PLACE_H
#define SL_MACHINE_MACHINE_PLACE_H

#include "core/topology.h"

typedef struct sl_rank_place {
    sl_binding binding;
    int cpus;      /* for this rank, at least 1 */
    char note[96]; /* the binding in words */
} sl_rank_place;

/* Rank number `rank` of the job is the `index`-th of the `sharers` on this machine that may run on the same CPUs. To be
 * chosen before any of them is bound. */
void sl_rank_place_choose(int rank, int index, int sharers, sl_rank_place *out);
/* "huge pages yes (transparent); NUMA: 1 node, not bound". shared: the arenas are files that other ranks map. */
void sl_memory_describe(const sl_rank_place *place, bool shared, char *buf, size_t bytes);

#endif
