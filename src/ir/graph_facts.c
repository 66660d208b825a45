/* graph_facts.c: what a program may ask of the graph it builds: shapes of values, and the parameters. */
#include <string.h>

#include "core/status.h"
#include "ir/graph.h"
#include "ir/tile.h"

_Static_assert(SLUICE_MAX_RANK == SL_MAX_RANK, "the header says how many dimensions there may be");

sluice_status sluice_value_shape(const sluice_graph *g, sluice_value value, sluice_dtype *dtype, int *rank,
                                 int64_t dims[SLUICE_MAX_RANK])
{
    SL_NEED(g);
    SL_NEED(dtype);
    SL_NEED(rank);
    SL_NEED(dims);
    if (value < 0 || value >= g->value_count)
        return sl_fail(SLUICE_ERR_USAGE, "sluice_value_shape: value %d is not of this graph, which has %d", value,
                       g->value_count);
    const sl_value *v = &g->values[value];
    *dtype = v->dtype;
    *rank = v->shape.rank;
    memcpy(dims, v->shape.dim, (size_t)v->shape.rank * sizeof *dims);
    return SLUICE_OK;
}

int sluice_graph_parameters(const sluice_graph *g)
{
    int count = 0;
    for (int p = 0; g != NULL && p < g->parameter_count; p = sl_whole_end(g, p)) count++;
    return count;
}

/* The first tile of whole number `index`; -1: there are fewer. */
static int find_whole(const sluice_graph *g, int index)
{
    int p = 0;
    for (int i = 0; i < index && p < g->parameter_count; i++) p = sl_whole_end(g, p);
    return index >= 0 && p < g->parameter_count ? p : -1;
}

sluice_status sluice_graph_parameter(const sluice_graph *g, int index, const char **name, bool *trained, int *rank,
                                     int64_t dims[SLUICE_MAX_RANK])
{
    SL_NEED(g);
    SL_NEED(name);
    SL_NEED(trained);
    SL_NEED(rank);
    SL_NEED(dims);
    const int p = find_whole(g, index);
    if (p < 0)
        return sl_fail(SLUICE_ERR_USAGE, "sluice_graph_parameter: there is no parameter %d, the graph has %d", index,
                       sluice_graph_parameters(g));
    const sl_shape *shape = sl_whole_shape(g, p);
    *name = sl_whole_name(g, p);
    *trained = g->parameters[p].trainable;
    *rank = shape->rank;
    memcpy(dims, shape->dim, (size_t)shape->rank * sizeof *dims);
    return SLUICE_OK;
}
