/* build.h: what the public builders stand on: build.c, which makes inputs, parameters and nodes, and build_ops.c, which has
 * a builder for each operation.
 *
 * A builder never fails loudly. The first error is kept in the graph, every later builder does nothing, and
 * sluice_graph_check or the engine reports that first error. So a model is written without a check per line, and the
 * message is about the cause, not about what followed from it. */
#ifndef SL_IR_BUILD_H
#define SL_IR_BUILD_H

#include "core/quote.h"
#include "ir/graph.h"

#define SL_NODE_NAME_BYTES (SL_MAX_NAME_BYTES + 1)

/* True where a builder may go on. Every builder starts here. */
bool sl_building(sluice_graph *g, const char *what);
/* Keeps this thread's newest failure, which `status` is of, as the graph's error; returns SLUICE_NONE. */
sluice_value sl_keep_error(sluice_graph *g, sluice_status status);

/* Fails unless `value` is one that a builder of this graph returned; saved statistics are not handed out. */
sluice_status sl_check_value(const sluice_graph *g, sluice_value value, const char *what);
/* Fails unless `name` can be a name of anything: text, and not too long. */
sluice_status sl_check_name(const char *what, const char *name);
/* A parameter's name must come back from weights files and checkpoints as it went in. */
sluice_status sl_check_parameter_name(const char *name);
/* Batches, weights files and messages tell inputs and parameters apart by their names alone. */
sluice_status sl_check_new(const sluice_graph *g, const char *what, const char *name);
/* The shape of `rank` dimensions, if values of this type can have it. */
sluice_status sl_shape_from(const char *what, const char *name, sluice_dtype dtype, int rank, const int64_t *dims,
                            sl_shape *out);

sluice_status sl_add_parameter(sluice_graph *g, const char *name, int rank, const int64_t *dims,
                               const sluice_init *init, int *value);
/* A forward node at the end of the newest layer; makes the outputs that it has not. */
sluice_status sl_append_node(sluice_graph *g, sl_node *node);

#endif
