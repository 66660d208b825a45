/* shared_norm.c: see shared_norm.h.
 *
 * All nodes are written anew, in order; values keep their indices, and what ranks tell each other is a new value of each norm and
 * of each gradient. */
#include "ir/shared_norm.h"

#include "core/alloc.h"
#include "ir/op_rows.h"

void sl_graph_norm_over_ranks(sluice_graph *g)
{
    for (int i = 0; i < g->running_count; i++)
        g->nodes[g->values[g->running[i].value].producer].attrs.batch_norm.all_ranks = true;
}

void sl_graph_set_norm_ranks(sluice_graph *g, int ranks)
{
    for (int n = 0; n < g->forward_count; n++)
        if (g->nodes[n].op == SL_OP_BATCH_NORM && g->nodes[n].attrs.batch_norm.all_ranks)
            g->nodes[n].attrs.batch_norm.ranks = ranks;
}

bool sl_graph_shares_running(const sluice_graph *g, int i)
{
    return g->nodes[g->values[g->running[i].value].producer].op == SL_OP_BATCH_STATISTICS;
}

static bool is_shared(const sl_node *node)
{
    return (node->op == SL_OP_BATCH_NORM || node->op == SL_OP_BATCH_NORM_GRAD) && node->attrs.batch_norm.ranks > 0 &&
           !node->attrs.batch_norm.frozen;
}

/* ---- nodes ---- */

static sluice_status append(sluice_graph *g, const sl_node *node)
{
    int index = sl_graph_add_node(g, node);
    return index < 0 ? (sluice_status)-index : SLUICE_OK;
}

/* A node in the place of `from`, that reads these values and writes nothing yet. */
static sl_node begin(const sl_node *from, sl_op op, const int *inputs, int count)
{
    sl_node node = *from;
    node.op = op;
    node.attrs.accumulate = 0;
    node.input_count = count;
    for (int i = 0; i < count; i++) node.inputs[i] = inputs[i];
    node.output_count = 0;
    for (int i = 0; i < SL_MAX_OUTPUTS; i++) node.outputs[i] = -1;
    return node;
}

static void write_to(sl_node *node, int value, bool adds)
{
    if (adds) node->attrs.accumulate |= 1u << node->output_count;
    node->outputs[node->output_count++] = value;
}

/* Adds the value that ranks tell each other to a node without outputs. */
static sluice_status write_nodes(sluice_graph *g, sl_node *node, sl_value_kind kind, int *value)
{
    sl_shape shapes[SL_MAX_OUTPUTS];
    sluice_dtype dtypes[SL_MAX_OUTPUTS];
    SL_TRY(sl_ops[node->op].infer(g, node, shapes, dtypes));
    const char *name = sl_arena_printf(&g->arena, "%s.%s", node->name, sl_ops[node->op].name);
    if (name == NULL) return SLUICE_ERR_NO_MEMORY;
    *value = sl_graph_add_value(g, kind, dtypes[0], &shapes[0], name);
    if (*value < 0) return (sluice_status) - *value;
    write_to(node, *value, false);
    return SLUICE_OK;
}

static sluice_status share_forward(sluice_graph *g, const sl_node *from)
{
    int moments;
    const int x = from->inputs[0], mean = from->outputs[1], rstd = from->outputs[2];
    sl_node node = begin(from, SL_OP_BATCH_MOMENTS, &x, 1);
    SL_TRY(write_nodes(g, &node, SL_VALUE_ACTIVATION, &moments));
    SL_TRY(append(g, &node));
    node = begin(from, SL_OP_BATCH_STATISTICS, (int[]){ x, moments }, 2);
    for (int i = 1; i <= 3; i++) write_to(&node, from->outputs[i], false);
    SL_TRY(append(g, &node));
    const int inputs[] = { x, from->inputs[1], from->inputs[2], mean, rstd, from->inputs[3] };
    node = begin(from, SL_OP_BATCH_NORMALIZE, inputs, from->input_count + 2);
    write_to(&node, from->outputs[0], false);
    return append(g, &node);
}

/* Where the residual has no gradient of its own, or needs none, the output is left out. */
static sluice_status share_backward(sluice_graph *g, const sl_node *from)
{
    int sums;
    const int residual = from->output_count > 3 ? from->outputs[3] : -1;
    const bool masked = from->input_count > 6;
    sl_node node = begin(from, SL_OP_BATCH_NORM_SUMS, from->inputs, from->input_count);
    SL_TRY(write_nodes(g, &node, SL_VALUE_GRADIENT, &sums));
    if (residual >= 0) write_to(&node, residual, (from->attrs.accumulate >> 3 & 1u) != 0);
    SL_TRY(append(g, &node));
    int inputs[SL_MAX_INPUTS];
    for (int i = 0; i < 6; i++) inputs[i] = from->inputs[i];
    inputs[6] = sums;
    if (masked) inputs[7] = from->inputs[6];
    node = begin(from, SL_OP_BATCH_NORMALIZE_GRAD, inputs, masked ? 8 : 7);
    for (int i = 0; i < 3; i++) write_to(&node, from->outputs[i], (from->attrs.accumulate >> i & 1u) != 0);
    return append(g, &node);
}

/* ---- the change as a whole ---- */

typedef struct saved {
    sl_node *nodes;
    int node_count, node_capacity, forward_count, backward_count, value_count;
} saved;

static saved take_out(sluice_graph *g)
{
    saved old = { g->nodes, g->node_count, g->node_capacity, g->forward_count, g->backward_count, g->value_count };
    g->nodes = NULL;
    g->node_count = g->node_capacity = g->forward_count = g->backward_count = 0;
    for (int v = 0; v < g->value_count; v++) g->values[v].producer = -1;
    return old;
}

static void put_back(sluice_graph *g, const saved *old)
{
    sl_free(g->nodes);
    g->nodes = old->nodes;
    g->node_count = old->node_count;
    g->node_capacity = old->node_capacity;
    g->forward_count = old->forward_count;
    g->backward_count = old->backward_count;
    g->value_count = old->value_count;
    for (int n = g->node_count - 1; n >= 0; n--) /* the first writer is the producer */
        for (int i = 0; i < g->nodes[n].output_count; i++)
            if (g->nodes[n].outputs[i] >= 0) g->values[g->nodes[n].outputs[i]].producer = n;
}

/* Layers are the same runs of nodes, some of them longer. */
static void count_layer_nodes(sluice_graph *g)
{
    for (int i = 0; i < g->layer_count; i++) g->layers[i].node_count = g->layers[i].backward_count = 0;
    for (int n = 0; n < g->forward_count + g->backward_count; n++) {
        sl_layer *layer = &g->layers[g->nodes[n].layer];
        if (n < g->forward_count && layer->node_count++ == 0) layer->first_node = n;
        if (n >= g->forward_count && layer->backward_count++ == 0) layer->first_backward = n;
    }
}

/* `now`: what node of the graph stands for each of the old ones. */
static sluice_status rewrite(sluice_graph *g, const saved *old, int *now)
{
    for (int n = 0; n < old->node_count; n++) {
        sl_node node = old->nodes[n];
        if (node.forward_of >= 0) node.forward_of = now[node.forward_of];
        SL_TRY(sl_graph_poll(g));
        SL_TRY(!is_shared(&node)             ? append(g, &node)
               : node.op == SL_OP_BATCH_NORM ? share_forward(g, &node)
                                             : share_backward(g, &node));
        now[n] = g->node_count - 1;
    }
    return SLUICE_OK;
}

sluice_status sl_graph_share_norms(sluice_graph *g)
{
    bool any = false;
    for (int n = 0; n < g->node_count; n++) any = any || is_shared(&g->nodes[n]);
    if (!any) return SLUICE_OK;
    int *now = sl_alloc_array((size_t)g->node_count, sizeof *now, "nodes of batch norms over ranks");
    if (now == NULL) return SLUICE_ERR_NO_MEMORY;
    const saved old = take_out(g);
    const sluice_status st = rewrite(g, &old, now);
    sl_free(now);
    if (st != SLUICE_OK) {
        put_back(g, &old);
        return st;
    }
    sl_free(old.nodes);
    count_layer_nodes(g);
    return sl_graph_verify(g);
}
