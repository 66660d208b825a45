/* node_call.h: the kernel call of a node. Whoever plans, runs or times a node has its call from here: what a plan asks a
 * backend about is then what the backend is handed. */
#ifndef SL_BACKEND_NODE_CALL_H
#define SL_BACKEND_NODE_CALL_H

#include "backend/backend.h"

/* All of the call of a forward or backward node but where operands and workspace lie. Bit k of `outputs`: the run writes
 * output k (sl_node_outputs); the others have no shape and are to get no span. Shapes are those of the run that *context
 * tells of; `shapes` holds what no value of the graph has, and must stay as long as *out. */
void sl_node_call(const sluice_graph *g, const sl_node *node, unsigned outputs, const sl_run_context *context,
                  sl_shape shapes[SL_MAX_OPERANDS], sl_call *out);
/* Bytes of workspace with which every kind of run of the node can do, at most as many rows as the graph has room for. */
uint64_t sl_node_workspace(const sluice_graph *g, const sl_node *node, const sl_run_context *context,
                           uint64_t (*workspace)(const sl_call *call));

#endif
