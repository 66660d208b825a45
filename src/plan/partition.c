/* partition.c: who owns which piece of every layer's flat buffer.
 *
 * With one rank every shard is the whole layer. Norm leaves are numbered here, layers in graph order, because the
 * numbering must not depend on who computes a leaf (exact rule 3). */
#include "core/bytes.h"
#include "plan/internal.h"

sluice_status sl_plan_partition(sl_plan *p, const sl_usage *u)
{
    const sluice_graph *g = p->graph;
    if (p->options.rank_count != 1)
        return sl_fail(SLUICE_ERR_USAGE, "plan for %d ranks: more than one rank is not built in yet",
                       p->options.rank_count);
    p->leaf_count = 0;
    for (int i = 0; i < g->layer_count; i++) {
        sl_layer_place *place = &p->layers[i];
        place->shard_first = 0;
        place->shard_count = g->layers[i].element_count;
        place->leaf_first = p->leaf_count;
        if (u->last_gradient_node[i] >= 0) p->leaf_count += sl_ceil_div(g->layers[i].element_count, SL_CUT_ELEMENTS);
    }
    return SLUICE_OK;
}
