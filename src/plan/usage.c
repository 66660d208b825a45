/* usage.c: who reads what, once per graph, so that every candidate placement can be scheduled without looking again. */
#include <string.h>

#include "core/alloc.h"
#include "plan/passes.h"

static int root_of(const sluice_graph *g, int value)
{
    return g->values[value].storage;
}

static void find_order(sl_usage *u)
{
    const sluice_graph *g = u->graph;
    for (int i = 0; i < g->layer_count; i++) {
        u->position[i] = -1;
        if (g->layers[i].node_count == 0) continue;
        u->position[i] = u->order_count;
        u->order[u->order_count++] = i;
    }
}

/* Appends parameter layer `layer` to the uses of the position being listed, once. */
static void add_use(sl_usage *u, int position, int *count, int layer)
{
    for (int i = u->use_first[position]; i < *count; i++)
        if (u->uses[i] == layer) return;
    u->uses[(*count)++] = layer;
}

static void find_uses(sl_usage *u)
{
    const sluice_graph *g = u->graph;
    int count = 0;
    for (int i = 0; i < u->order_count; i++) {
        const sl_layer *layer = &g->layers[u->order[i]];
        u->use_first[i] = count;
        for (int n = layer->first_node; n < layer->first_node + layer->node_count; n++)
            for (int k = 0; k < g->nodes[n].input_count; k++) {
                const sl_value *v = &g->values[g->nodes[n].inputs[k]];
                if (v->parameter >= 0) add_use(u, i, &count, g->parameters[v->parameter].layer);
            }
    }
    u->use_first[u->order_count] = count;
}

static void note_forward(sl_usage *u, const sl_node *node)
{
    const sluice_graph *g = u->graph;
    for (int k = 0; k < node->output_count; k++) {
        if (node->outputs[k] < 0) continue;
        int r = root_of(g, node->outputs[k]);
        if (u->owner[r] < 0) u->owner[r] = node->layer;
        u->last_forward[r] = u->position[node->layer];
    }
    for (int k = 0; k < node->input_count; k++) {
        int r = root_of(g, node->inputs[k]);
        if (u->owner[r] < 0) continue;
        u->last_forward[r] = u->position[node->layer];
        if (u->owner[r] != node->layer) u->boundary[r] = true;
    }
}

/* The layer that has the parameter that a value is, or whose gradient it is; -1: neither. */
static int layer_of_parameter(const sluice_graph *g, int value)
{
    int parameter = value < 0 ? -1 : g->values[value].parameter;
    return parameter < 0 ? -1 : g->parameters[parameter].layer;
}

static void note_backward(sl_usage *u, int index)
{
    const sluice_graph *g = u->graph;
    const sl_node *node = &g->nodes[index];
    for (int k = 0; k < node->input_count; k++) {
        int root = root_of(g, node->inputs[k]), layer = layer_of_parameter(g, root);
        u->needed_backward[root] = true;
        if (layer >= 0) u->last_use_node[layer] = index;
    }
    for (int k = 0; k < node->output_count; k++) {
        int layer = layer_of_parameter(g, node->outputs[k]);
        if (layer >= 0) u->last_gradient_node[layer] = u->last_use_node[layer] = index;
    }
}

/* Marks the nodes of a layer that must run again so that its backward finds what it needs, walking from the last node
 * up. */
static void find_recompute(sl_usage *u, const sl_layer *layer, bool *wanted)
{
    const sluice_graph *g = u->graph;
    for (int n = layer->first_node + layer->node_count - 1; n >= layer->first_node; n--) {
        const sl_node *node = &g->nodes[n];
        if (sl_ops[node->op].view) continue;
        for (int k = 0; k < node->output_count; k++) {
            int r = node->outputs[k] < 0 ? -1 : root_of(g, node->outputs[k]);
            if (r >= 0 && !u->boundary[r] && (u->needed_backward[r] || wanted[r])) u->recompute[n] = true;
        }
        if (!u->recompute[n]) continue;
        for (int k = 0; k < node->input_count; k++) {
            int r = root_of(g, node->inputs[k]);
            if (u->owner[r] == node->layer && !u->boundary[r]) wanted[r] = true;
        }
    }
}

static sluice_status allocate(sl_usage *u)
{
    const sluice_graph *g = u->graph;
    size_t layers = (size_t)g->layer_count, values = (size_t)g->value_count, nodes = (size_t)g->node_count;
    size_t most_uses = 0;
    for (size_t n = 0; n < nodes; n++) most_uses += (size_t)g->nodes[n].input_count;
    u->order = sl_alloc_array(layers + 1, sizeof *u->order, "plan: layer order");
    u->position = sl_alloc_array(layers + 1, sizeof *u->position, "plan: layer positions");
    u->uses = sl_alloc_array(most_uses + 1, sizeof *u->uses, "plan: parameter uses");
    u->use_first = sl_alloc_array(layers + 2, sizeof *u->use_first, "plan: parameter use index");
    u->owner = sl_alloc_array(values + 1, sizeof *u->owner, "plan: value owners");
    u->needed_backward = sl_alloc_array(values + 1, sizeof *u->needed_backward, "plan: backward needs");
    u->boundary = sl_alloc_array(values + 1, sizeof *u->boundary, "plan: boundaries");
    u->last_forward = sl_alloc_array(values + 1, sizeof *u->last_forward, "plan: last forward uses");
    u->recompute = sl_alloc_array(nodes + 1, sizeof *u->recompute, "plan: recomputed nodes");
    u->last_gradient_node = sl_alloc_array(layers + 1, sizeof *u->last_gradient_node, "plan: last gradients");
    u->last_use_node = sl_alloc_array(layers + 1, sizeof *u->last_use_node, "plan: last uses");
    bool ok = u->order && u->position && u->uses && u->use_first && u->owner && u->needed_backward && u->boundary &&
              u->last_forward && u->recompute && u->last_gradient_node && u->last_use_node;
    return ok ? SLUICE_OK : SLUICE_ERR_NO_MEMORY;
}

sluice_status sl_usage_create(const sluice_graph *g, sl_usage **out)
{
    sl_usage *u = sl_alloc(sizeof *u, "plan: usage");
    if (u == NULL) return SLUICE_ERR_NO_MEMORY;
    u->graph = g;
    bool *wanted = sl_alloc_array((size_t)g->value_count + 1, sizeof *wanted, "plan: recompute closure");
    if (wanted == NULL || allocate(u) != SLUICE_OK) {
        sl_free(wanted);
        sl_usage_destroy(u);
        return SLUICE_ERR_NO_MEMORY;
    }
    for (int i = 0; i < g->value_count; i++) u->owner[i] = u->last_forward[i] = -1;
    for (int i = 0; i < g->layer_count; i++) u->last_gradient_node[i] = u->last_use_node[i] = -1;
    find_order(u);
    find_uses(u);
    for (int n = 0; n < g->forward_count; n++) note_forward(u, &g->nodes[n]);
    for (int n = g->forward_count; n < g->forward_count + g->backward_count; n++) note_backward(u, n);
    if (g->loss >= 0) u->boundary[root_of(g, g->loss)] = true;
    for (int i = 0; i < u->order_count; i++) find_recompute(u, &g->layers[u->order[i]], wanted);
    sl_free(wanted);
    *out = u;
    return SLUICE_OK;
}

void sl_usage_destroy(sl_usage *u)
{
    if (u == NULL) return;
    void *owned[] = { u->order,     u->position,           u->uses,         u->use_first,
                      u->owner,     u->needed_backward,    u->boundary,     u->last_forward,
                      u->recompute, u->last_gradient_node, u->last_use_node };
    for (size_t i = 0; i < sizeof owned / sizeof owned[0]; i++) sl_free(owned[i]);
    sl_free(u);
}
