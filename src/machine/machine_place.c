/* machine_place.c: see machine_place.h. */
#include "machine/machine_place.h"

#include <stdio.h>

#include "backend/cpu/memory.h"
#include "core/thread.h"

void sl_rank_place_choose(int rank, int index, int sharers, sl_rank_place *out)
{
    sl_topology topology;
    int share = sl_cpu_count() / sharers, bound;
    sl_topology_read(&topology);
    sl_binding_choose(&topology, index, sharers, &out->binding);
    bound = out->binding.cpu_share;
    out->cpus = bound > 0 && bound < share ? bound : share;
    if (out->cpus < 1) out->cpus = 1;
    sl_binding_describe(&topology, &out->binding, rank, out->note, sizeof out->note);
}

void sl_memory_describe(const sl_rank_place *place, bool shared, char *buf, size_t bytes)
{
    char why[64];
    bool huge = sl_huge_pages_offered(shared, why, sizeof why);
    snprintf(buf, bytes, "huge pages %s (%s); NUMA: %s", huge ? "yes" : "no", why, place->note);
}
