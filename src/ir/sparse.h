/* sparse.h: tables of embeddings of which a step touches few rows.
 *
 * All rows of a sparse table, and the state of the optimizer for them, are on the host, each on one rank. What the graph
 * computes with is a small parameter that holds the rows which the global batch names: sl_graph_compact replaces the
 * table by it, and the caller replaces ids by places in it (train/engine_tables.c). So gradient, reduction, norm and
 * update are of those rows alone, and every pass sees a parameter like any other. Only what outlives a step looks behind
 * it: first values, weights files, checkpoints, counts of parameters. Those ask here.
 *
 * A row that no id names has a gradient of zero. Rules that leave a weight and its state alone then (SGD without momentum
 * and decay, Adagrad without decay) give the bits of the dense table; the others are lazy (optim/optim.h). */
#ifndef SL_IR_SPARSE_H
#define SL_IR_SPARSE_H

#include "ir/graph.h"

/* Once, before sl_graph_finish; a finished graph stays as it is. `micro_batches`: of all ranks in a step. A sparse
 * parameter that is not the table of embeddings alone, or whose ids are used for anything else, is refused. */
sluice_status sl_graph_compact(sluice_graph *g, uint64_t micro_batches);

/* A parameter as files have it: of a table all rows. */
const sl_shape *sl_parameter_shape(const sluice_graph *g, int parameter);
int64_t sl_parameter_elements(const sluice_graph *g, int parameter);

/* Whether the value has rows of a table that is kept elsewhere. */
static inline bool sl_parameter_is_compact(const sl_parameter *p)
{
    return p->table.rank > 0;
}

/* The compacted table whose rows the elements of an input name; -1: none. */
int sl_graph_table_of(const sluice_graph *g, int input);

#endif
