/* shared_norm.h: batch norms whose statistics are those of all ranks.
 *
 * A BATCH_NORM with attrs.batch_norm.all_ranks normalises by mean and variance of the micro-batches that all ranks compute
 * at the same time. Its node, and that of its gradient, become several, so that ranks can meet in between:
 *
 *   BATCH_NORM        BATCH_MOMENTS, gather, BATCH_STATISTICS, BATCH_NORMALIZE
 *   BATCH_NORM_GRAD   BATCH_NORM_SUMS, gather, BATCH_NORMALIZE_GRAD
 *
 * The gathers are the plan's (sl_op_def.gathers). Batch norms that are frozen, or without all_ranks, stay as they are. */
#ifndef SL_IR_SHARED_NORM_H
#define SL_IR_SHARED_NORM_H

#include "ir/graph.h"

/* For models: all batch norms that were built have all_ranks. */
void sl_graph_norm_over_ranks(sluice_graph *g);
/* Before differentiation: how many ranks there are. */
void sl_graph_set_norm_ranks(sluice_graph *g, int ranks);
/* After it: nodes of batch norms over ranks become those above. On failure the graph is as it was. */
sluice_status sl_graph_share_norms(sluice_graph *g);
/* Whether running statistics `i` are those of what all ranks compute at a time: the same on each of them. */
bool sl_graph_shares_running(const sluice_graph *g, int i);

#endif
