/* tile.h: large parameters cut into tiles, and the whole behind the tiles.
 *
 * A tile is a parameter like any other: it has its own value, gradient, state and layer, so that the plan stages,
 * gathers and updates it alone without knowing what it is part of. Only what outlives the cut looks behind it: initial
 * values, names in weight files and checkpoints, parameter groups. Those ask here. Optimizers that take a parameter's
 * norm (LAMB, LARS) take each tile's.
 *
 * The tiles of a whole lie side by side in sluice_graph.parameters, in row-major order of the grid. A loop over wholes:
 *     for (int p = 0; p < g->parameter_count; p = sl_whole_end(g, p)) { ... parameters p .. sl_whole_end(g, p) - 1 }
 * A parameter that was not cut is a whole of one tile. */
#ifndef SL_IR_TILE_H
#define SL_IR_TILE_H

#include "ir/graph.h"

#define SL_MAX_TILES 4096 /* of one parameter: every tile costs nodes and a layer */

/* Cuts every parameter of more than tile_bytes into tiles of at most tile_bytes, evenly: along its stored rows, and
 * where one row is still too large along its columns. One that an embedding reads is cut along its columns alone, so
 * that each tile has a part of every row. Sparse tables (ir/sparse.h) are left whole. Tiles are called "<name>.tile<k>".
 *
 * An op on a tiled parameter becomes one op per tile: parts of the output are joined, parts of the sum over inputs are
 * added in the order of the inputs, the bias with the first. Elements of a joined output keep their bits, sums round
 * differently. Each such op is a layer "<layer>.tile<k>"; what lies between keeps the name "<layer>", later pieces of
 * it are called "<layer>.part<i>". The bias of a cut output is cut along.
 *
 * Runs after the last builder and before sl_graph_finish. tile_bytes 0, or no parameter over it: nothing changes. A
 * parameter over the limit that cannot be cut (read by another op than linear and embedding, or the limit is below one
 * slice) is refused, and the graph stays as it was. */
sluice_status sl_graph_tile(sluice_graph *g, uint64_t tile_bytes);

/* What a parameter is part of; of one that was not cut, itself. */
const char *sl_whole_name(const sluice_graph *g, int parameter);
const sl_shape *sl_whole_shape(const sluice_graph *g, int parameter);
/* Where an element of a parameter lies in the whole, counted row-major. */
int64_t sl_parameter_whole_element(const sluice_graph *g, int parameter, int64_t element);
/* First tile of the whole called `name`; -1: there is none. */
int sl_graph_find_whole(const sluice_graph *g, const char *name);
/* One past the last tile of the whole whose first tile is `first`. */
int sl_whole_end(const sluice_graph *g, int first);

/* Elements that are consecutive both in a whole and in one of its tiles. */
typedef struct sl_tile_run {
    int parameter;          /* the tile */
    int64_t element, count; /* of the tile */
} sl_tile_run;

/* The longest run that starts at `element` of the whole whose first tile is `first`; at most `most` long. */
sl_tile_run sl_whole_run(const sluice_graph *g, int first, int64_t element, int64_t most);

#endif
