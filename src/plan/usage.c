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
        if (sl_ops[node->op].kept) u->boundary[r] = true;
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

/* A by-product that backward reads is worth keeping beside an output so much larger, where that is all that the node would
 * run again for. */
#define BY_PRODUCT 32

/* The largest output of a node that other layers read; -1: none is. */
static int largest_boundary(const sl_usage *u, const sl_node *node)
{
    const sl_value *values = u->graph->values;
    int large = -1;
    for (int k = 0; k < node->output_count; k++) {
        int r = node->outputs[k] < 0 ? -1 : root_of(u->graph, node->outputs[k]);
        if (r < 0 || !u->boundary[r]) continue;
        if (large < 0 || sl_value_bytes(&values[r]) > sl_value_bytes(&values[large])) large = r;
    }
    return large;
}

/* Small outputs, such as the statistics of a norm, share the fate of the large one: where that is kept between forward
 * and backward of a recomputed layer, they are too, and the node need not run again. */
static void find_by_products(sl_usage *u, const sl_node *node)
{
    const sl_value *values = u->graph->values;
    int large = largest_boundary(u, node), count = 0, small[SL_MAX_OUTPUTS];
    for (int k = 0; large >= 0 && k < node->output_count; k++) {
        int r = node->outputs[k] < 0 ? -1 : root_of(u->graph, node->outputs[k]);
        if (r < 0 || u->boundary[r] || !u->needed_backward[r] || values[r].kind == SL_VALUE_STATE) continue;
        if (sl_value_bytes(&values[r]) > sl_value_bytes(&values[large]) / BY_PRODUCT) return;
        small[count++] = r;
    }
    for (int i = 0; i < count; i++) u->follows[small[i]] = large;
}

/* Of the bytes that a node reads and writes, what running it again must free to be worth while. */
#define WORTH_RUNNING_AGAIN 0.25

/* What need not be kept for backward where a cheap node runs again; 0: it is not cheap. Cheap are nodes that only pass over
 * memory, read what is kept anyway or what another cheap node makes again, and make much of what backward reads: norms,
 * gates, activation functions. Nodes before it are known. */
static uint64_t bytes_freed_by(const sl_usage *u, const sl_node *node)
{
    const sluice_graph *g = u->graph;
    const sl_op_def *op = &sl_ops[node->op];
    uint64_t touched = 0, freed = 0;
    if (op->view || op->kept || op->gathers || op->rate != SL_CLASS_VECTOR) return 0;
    for (int k = 0; k < node->input_count; k++) {
        int r = root_of(g, node->inputs[k]);
        touched += sl_value_bytes(&g->values[node->inputs[k]]);
        if (u->owner[r] < 0 || g->values[r].kind == SL_VALUE_STATE || u->needed_backward[r]) continue;
        if (u->owner[r] != node->layer || !sl_is_cheap(u, r)) return 0;
    }
    for (int k = 0; k < node->output_count; k++) {
        int r = node->outputs[k] < 0 ? -1 : root_of(g, node->outputs[k]);
        if (r < 0 || g->values[r].kind == SL_VALUE_STATE) continue;
        touched += sl_value_bytes(&g->values[r]);
        if (u->needed_backward[r] && !sl_survives(u, r, u->position[node->layer]))
            freed += sl_value_bytes(&g->values[r]);
    }
    return (double)freed < WORTH_RUNNING_AGAIN * (double)touched ? 0 : freed;
}

static void find_cheap(sl_usage *u)
{
    for (int n = 0; n < u->graph->forward_count; n++) {
        const sl_node *node = &u->graph->nodes[n];
        uint64_t freed = bytes_freed_by(u, node);
        u->cheap[n] = freed > 0;
        u->cheap_bytes[node->layer] += freed;
    }
}

/* Walks from the last node up: what backward reads, and what a node that runs again reads. */
void sl_usage_mark_again(const sl_usage *u, int first, int last, bool *again, bool *wanted)
{
    const sluice_graph *g = u->graph;
    const sl_layer *top = &g->layers[u->order[first]], *bottom = &g->layers[u->order[last]];
    for (int n = bottom->first_node + bottom->node_count - 1; n >= top->first_node; n--) {
        const sl_node *node = &g->nodes[n];
        if (sl_ops[node->op].view) continue;
        for (int k = 0; k < node->output_count; k++) {
            int r = node->outputs[k] < 0 ? -1 : root_of(g, node->outputs[k]);
            if (r >= 0 && !sl_survives(u, r, last) && (u->needed_backward[r] || wanted[r])) again[n] = true;
        }
        if (!again[n]) continue;
        for (int k = 0; k < node->input_count; k++) {
            int r = root_of(g, node->inputs[k]);
            if (u->owner[r] >= 0 && u->position[u->owner[r]] >= first && !sl_survives(u, r, last)) wanted[r] = true;
        }
    }
}

/* ---- groups ---- */

/* Puts items[i] into group keys[i], in the order given; a negative key leaves it out. `items` NULL: i itself. */
static sluice_status group_by(sl_groups *to, int groups, const int *keys, const int *items, int count)
{
    to->first = sl_alloc_array((size_t)groups + 2, sizeof *to->first, "plan: index of groups");
    to->items = sl_alloc_array((size_t)count + 1, sizeof *to->items, "plan: groups");
    if (to->first == NULL || to->items == NULL) return SLUICE_ERR_NO_MEMORY;
    for (int i = 0; i < count; i++)
        if (keys[i] >= 0) to->first[keys[i] + 2]++;
    for (int k = 2; k < groups + 2; k++) to->first[k] += to->first[k - 1];
    for (int i = 0; i < count; i++) /* first[k + 1] moves from the beginning of group k to its end */
        if (keys[i] >= 0) to->items[to->first[keys[i] + 1]++] = items != NULL ? items[i] : i;
    return SLUICE_OK;
}

/* Groups of the same pairs by their other half; within each, increasing. */
static sluice_status transpose(const sl_groups *from, int groups, sl_groups *to, int to_groups)
{
    int count = from->first[groups];
    int *owner = sl_alloc_array((size_t)count + 1, sizeof *owner, "plan: groups of pairs");
    if (owner == NULL) return SLUICE_ERR_NO_MEMORY;
    for (int k = 0; k < groups; k++)
        for (int i = from->first[k]; i < from->first[k + 1]; i++) owner[i] = k;
    sluice_status st = group_by(to, to_groups, from->items, owner, count);
    sl_free(owner);
    return st;
}

/* use_levels from uses, in which a layer may be named by several positions of a level; level_uses from that. */
static sluice_status find_level_uses(sl_usage *u)
{
    int count = u->use_first[u->order_count], layers = u->graph->layer_count;
    int *keys = sl_alloc_array((size_t)count + 1, sizeof *keys, "plan: uses");
    int *levels = sl_alloc_array((size_t)count + 1, sizeof *levels, "plan: levels of uses");
    int *newest = sl_alloc_array((size_t)layers + 1, sizeof *newest, "plan: newest levels");
    sluice_status st = keys != NULL && levels != NULL && newest != NULL ? SLUICE_OK : SLUICE_ERR_NO_MEMORY;
    for (int i = 0; st == SLUICE_OK && i < layers; i++) newest[i] = -1;
    for (int i = 0; st == SLUICE_OK && i < u->order_count; i++)
        for (int k = u->use_first[i]; k < u->use_first[i + 1]; k++) {
            levels[k] = sl_level_at(u, i);
            keys[k] = newest[u->uses[k]] == levels[k] ? -1 : u->uses[k];
            newest[u->uses[k]] = levels[k];
        }
    if (st == SLUICE_OK) st = group_by(&u->use_levels, layers, keys, levels, count);
    if (st == SLUICE_OK) st = transpose(&u->use_levels, layers, &u->level_uses, u->level_count);
    sl_free(keys);
    sl_free(levels);
    sl_free(newest);
    return st;
}

/* A layer is in one group, or in two different ones. */
static sluice_status find_backward_ends(sl_usage *u)
{
    int layers = u->graph->layer_count, first = u->graph->forward_count;
    int *keys = sl_alloc_array(2 * (size_t)layers + 1, sizeof *keys, "plan: last backward nodes");
    int *of = sl_alloc_array(2 * (size_t)layers + 1, sizeof *of, "plan: layers of last nodes");
    sluice_status st = keys != NULL && of != NULL ? SLUICE_OK : SLUICE_ERR_NO_MEMORY;
    for (int i = 0; st == SLUICE_OK && i < layers; i++) {
        int gradient = u->last_gradient_node[i], use = u->last_use_node[i];
        of[2 * i] = of[2 * i + 1] = i;
        keys[2 * i] = gradient - first; /* negative where there is none */
        keys[2 * i + 1] = use == gradient ? -1 : use - first;
    }
    if (st == SLUICE_OK) st = group_by(&u->backward_ends, u->graph->backward_count, keys, of, 2 * layers);
    sl_free(keys);
    sl_free(of);
    return st;
}

static sluice_status find_groups(sl_usage *u)
{
    SL_TRY(find_level_uses(u));
    SL_TRY(group_by(&u->forward_ends, u->order_count, u->last_forward, NULL, u->graph->value_count));
    return find_backward_ends(u);
}

static void find_update_nodes(sl_usage *u)
{
    const sluice_graph *g = u->graph;
    for (int n = g->node_count - 1; n >= g->forward_count + g->backward_count; n--) {
        const sl_node *node = &g->nodes[n];
        if (node->layer >= 0 && node->op == SL_OP_NORM_LEAVES) u->leaves_node[node->layer] = n;
        if (node->layer >= 0 && node->op == SL_OP_UPDATE) u->update_node[node->layer] = n;
    }
}

/* ---- life ---- */

static sluice_status allocate(sl_usage *u)
{
    const sluice_graph *g = u->graph;
    size_t layers = (size_t)g->layer_count, values = (size_t)g->value_count;
    size_t most_uses = 0;
    for (int n = 0; n < g->node_count; n++) most_uses += (size_t)g->nodes[n].input_count;
    u->order = sl_alloc_array(layers + 1, sizeof *u->order, "plan: layer order");
    u->position = sl_alloc_array(layers + 1, sizeof *u->position, "plan: layer positions");
    u->uses = sl_alloc_array(most_uses + 1, sizeof *u->uses, "plan: parameter uses");
    u->use_first = sl_alloc_array(layers + 2, sizeof *u->use_first, "plan: parameter use index");
    u->owner = sl_alloc_array(values + 1, sizeof *u->owner, "plan: value owners");
    u->needed_backward = sl_alloc_array(values + 1, sizeof *u->needed_backward, "plan: backward needs");
    u->boundary = sl_alloc_array(values + 1, sizeof *u->boundary, "plan: boundaries");
    u->last_forward = sl_alloc_array(values + 1, sizeof *u->last_forward, "plan: last forward uses");
    u->follows = sl_alloc_array(values + 1, sizeof *u->follows, "plan: by-products");
    u->cheap = sl_alloc_array((size_t)g->forward_count + 1, sizeof *u->cheap, "plan: cheap nodes");
    u->cheap_bytes = sl_alloc_array(layers + 1, sizeof *u->cheap_bytes, "plan: what cheap nodes make");
    u->last_gradient_node = sl_alloc_array(layers + 1, sizeof *u->last_gradient_node, "plan: last gradients");
    u->last_use_node = sl_alloc_array(layers + 1, sizeof *u->last_use_node, "plan: last uses");
    u->leaves_node = sl_alloc_array(layers + 1, sizeof *u->leaves_node, "plan: nodes of norm leaves");
    u->update_node = sl_alloc_array(layers + 1, sizeof *u->update_node, "plan: nodes of updates");
    bool ok = u->order && u->position && u->uses && u->use_first && u->owner && u->needed_backward && u->boundary &&
              u->last_forward && u->follows && u->cheap && u->cheap_bytes && u->last_gradient_node &&
              u->last_use_node && u->leaves_node && u->update_node;
    return ok ? SLUICE_OK : SLUICE_ERR_NO_MEMORY;
}

/* All but the groups. */
static void find_facts(sl_usage *u, int levels)
{
    const sluice_graph *g = u->graph;
    for (int i = 0; i < g->value_count; i++) u->owner[i] = u->last_forward[i] = u->follows[i] = -1;
    for (int i = 0; i < g->layer_count; i++)
        u->last_gradient_node[i] = u->last_use_node[i] = u->leaves_node[i] = u->update_node[i] = -1;
    find_order(u);
    u->level_count = levels <= 0 || levels > u->order_count ? u->order_count : levels;
    find_uses(u);
    for (int n = 0; n < g->forward_count; n++) note_forward(u, &g->nodes[n]);
    for (int n = g->forward_count; n < g->forward_count + g->backward_count; n++) note_backward(u, n);
    u->loss = g->loss >= 0 ? root_of(g, g->loss) : -1;
    if (u->loss >= 0) u->boundary[u->loss] = true;
    for (int n = 0; n < g->forward_count; n++) find_by_products(u, &g->nodes[n]);
    find_cheap(u);
    find_update_nodes(u);
}

sluice_status sl_usage_create(const sluice_graph *g, int levels, sl_usage **out)
{
    sl_usage *u = sl_alloc(sizeof *u, "plan: usage");
    if (u == NULL) return SLUICE_ERR_NO_MEMORY;
    u->graph = g;
    u->elements = sl_graph_parameter_elements(g);
    sluice_status st = allocate(u);
    if (st == SLUICE_OK) {
        find_facts(u, levels);
        st = find_groups(u);
    }
    if (st == SLUICE_OK)
        *out = u;
    else
        sl_usage_destroy(u);
    return st;
}

void sl_usage_destroy(sl_usage *u)
{
    if (u == NULL) return;
    void *owned[] = { u->order,
                      u->position,
                      u->uses,
                      u->use_first,
                      u->owner,
                      u->needed_backward,
                      u->boundary,
                      u->last_forward,
                      u->follows,
                      u->cheap,
                      u->cheap_bytes,
                      u->last_gradient_node,
                      u->last_use_node,
                      u->leaves_node,
                      u->update_node,
                      u->level_uses.first,
                      u->level_uses.items,
                      u->use_levels.first,
                      u->use_levels.items,
                      u->forward_ends.first,
                      u->forward_ends.items,
                      u->backward_ends.first,
                      u->backward_ends.items };
    for (size_t i = 0; i < sizeof owned / sizeof owned[0]; i++) sl_free(owned[i]);
    sl_free(u);
}
