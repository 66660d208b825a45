/* graph_verify.c: what must hold of a graph, checked from the data alone.
 *
 * Nothing is taken on trust from the passes that built it: writers, storage, ranges and offsets are worked out again. A
 * failure is a fault of sluice, not of its user; it says which node or layer is wrong. */
#include <inttypes.h>
#include <string.h>

#include "core/alloc.h"
#include "ir/op_rows.h"

static sluice_status node_fault(const sluice_graph *g, int node, const char *what)
{
    const sl_node *n = &g->nodes[node];
    bool known = (unsigned)n->op < SL_OP_COUNT;
    return sl_fail(SLUICE_ERR_FAILED, "graph: node %d, %s \"%.64s\": %s", node,
                   known ? sl_ops[n->op].name : "unknown op", n->name ? n->name : "", what);
}

/* ---- one node ---- */

static sluice_status check_arity(const sluice_graph *g, int index)
{
    const sl_node *n = &g->nodes[index];
    if ((unsigned)n->op >= SL_OP_COUNT) return node_fault(g, index, "the op does not exist");
    const sl_op_def *row = &sl_ops[n->op];
    if (n->input_count < row->min_inputs || n->input_count > row->max_inputs)
        return node_fault(g, index, "wrong number of inputs");
    if (n->output_count < 0 || n->output_count > row->outputs) return node_fault(g, index, "wrong number of outputs");
    for (int i = 0; i < n->input_count; i++)
        if (n->inputs[i] < 0 || n->inputs[i] >= g->value_count) return node_fault(g, index, "an input does not exist");
    int present = 0, absent = sl_op_outputs(n->op, n->input_count) - n->output_count;
    for (int i = 0; i < n->output_count; i++) {
        if (n->outputs[i] < -1 || n->outputs[i] >= g->value_count)
            return node_fault(g, index, "an output does not exist");
        if (n->outputs[i] >= 0) present++;
        if (n->outputs[i] < 0 && !sl_op_serves_backward(n->op, i)) absent++;
    }
    if (n->phase != SL_PHASE_UPDATE && present == 0) return node_fault(g, index, "it writes nothing");
    if (n->phase == SL_PHASE_FORWARD && absent > 0) return node_fault(g, index, "a forward output is absent");
    if (row->infer == NULL && n->phase != SL_PHASE_UPDATE) return node_fault(g, index, "an update op in another phase");
    return SLUICE_OK;
}

static sluice_status check_shapes(const sluice_graph *g, int index)
{
    const sl_node *n = &g->nodes[index];
    if (sl_ops[n->op].infer == NULL) return SLUICE_OK;
    sl_shape shapes[SL_MAX_OUTPUTS];
    sluice_dtype dtypes[SL_MAX_OUTPUTS];
    SL_TRY(sl_ops[n->op].infer(g, n, shapes, dtypes));
    for (int i = 0; i < n->output_count; i++) {
        if (n->outputs[i] < 0) continue;
        const sl_value *v = &g->values[n->outputs[i]];
        if (!sl_shape_equal(&v->shape, &shapes[i]))
            return node_fault(g, index, "an output has another shape than the op gives");
        bool wide = sl_ops[n->op].wide_outputs >> i & 1 && v->dtype != SLUICE_I32;
        if (!wide && v->dtype != dtypes[i])
            return node_fault(g, index, "an output has another dtype than the op gives");
    }
    return SLUICE_OK;
}

/* Reads come after writes, nothing is read where it is being written, and only the first write may overwrite. */
static sluice_status check_dataflow(const sluice_graph *g, int index, bool *written)
{
    const sl_node *n = &g->nodes[index];
    for (int i = 0; i < n->input_count; i++)
        if (!written[n->inputs[i]]) return node_fault(g, index, "it reads a value that no earlier node writes");
    for (int i = 0; i < n->output_count; i++) {
        int v = n->outputs[i];
        bool adds = n->attrs.accumulate >> i & 1;
        if (v < 0 && adds) return node_fault(g, index, "it adds to an absent output");
        if (v < 0) continue;
        if (g->values[v].kind == SL_VALUE_INPUT || g->values[v].kind == SL_VALUE_PARAMETER)
            return node_fault(g, index, "it writes an input or a parameter");
        if (adds && !sl_op_accumulates(n->op)) return node_fault(g, index, "its op cannot add to an output");
        if (adds != written[v])
            return node_fault(g, index, adds ? "it adds to a value not written yet" : "it overwrites a value");
        if (!adds && g->values[v].producer != index) return node_fault(g, index, "an output names another producer");
        for (int j = 0; j < i; j++)
            if (n->outputs[j] == v) return node_fault(g, index, "two outputs are one value");
        for (int j = 0; j < n->input_count; j++)
            if (!sl_ops[n->op].view && g->values[n->inputs[j]].storage == g->values[v].storage)
                return node_fault(g, index, "it writes the storage of one of its inputs");
    }
    for (int i = 0; i < n->output_count; i++)
        if (n->outputs[i] >= 0) written[n->outputs[i]] = true;
    return SLUICE_OK;
}

/* A view lies where its source lies; any other output lies in bytes of its own, unless it is an existing value added
 * to. */
static sluice_status check_storage(const sluice_graph *g, int index)
{
    const sl_node *n = &g->nodes[index];
    for (int i = 0; i < n->output_count; i++) {
        if (n->outputs[i] < 0 || n->attrs.accumulate >> i & 1) continue;
        int expected = sl_ops[n->op].view ? g->values[n->inputs[0]].storage : n->outputs[i];
        if (g->values[n->outputs[i]].storage != expected)
            return node_fault(g, index, "an output has the wrong storage");
    }
    return SLUICE_OK;
}

static sluice_status check_phase(const sluice_graph *g, int index)
{
    const sl_node *n = &g->nodes[index];
    sl_phase expected = index < g->forward_count                       ? SL_PHASE_FORWARD
                        : index < g->forward_count + g->backward_count ? SL_PHASE_BACKWARD
                                                                       : SL_PHASE_UPDATE;
    if (n->phase != expected) return node_fault(g, index, "it is out of phase");
    bool backward = n->phase == SL_PHASE_BACKWARD;
    if (backward ? n->forward_of < 0 || n->forward_of >= g->forward_count : n->forward_of != -1)
        return node_fault(g, index, "it names the wrong forward node");
    if (backward && g->nodes[n->forward_of].layer != n->layer)
        return node_fault(g, index, "it is in another layer than its forward node");
    if (n->layer < (n->phase == SL_PHASE_UPDATE ? -1 : 0) || n->layer >= g->layer_count)
        return node_fault(g, index, "its layer does not exist");
    return SLUICE_OK;
}

static sluice_status check_nodes(const sluice_graph *g, bool *written)
{
    for (int v = 0; v < g->value_count; v++) {
        const sl_value *value = &g->values[v];
        written[v] = value->kind == SL_VALUE_INPUT || value->kind == SL_VALUE_PARAMETER;
        int root = value->storage;
        if (value->rows != SL_ROWS_ALL &&
            (value->shape.rank == 0 || value->shape.dim[0] % g->row_room[value->rows] != 0))
            return sl_fail(SLUICE_ERR_FAILED, "graph: value %d \"%.64s\": its first dimension does not count rows", v,
                           value->name);
        if (root < 0 || root >= g->value_count || g->values[root].storage != root)
            return sl_fail(SLUICE_ERR_FAILED, "graph: value %d \"%.64s\": its storage is not a root", v, value->name);
    }
    for (int n = 0; n < g->node_count; n++) {
        SL_TRY(sl_graph_poll(g));
        SL_TRY(check_arity(g, n));
        SL_TRY(check_phase(g, n));
        SL_TRY(check_dataflow(g, n, written));
        SL_TRY(check_storage(g, n));
        SL_TRY(check_shapes(g, n));
    }
    return SLUICE_OK;
}

/* ---- layers and parameters ---- */

static sluice_status layer_fault(const sl_layer *layer, const char *what)
{
    return sl_fail(SLUICE_ERR_FAILED, "graph: layer \"%.64s\": %s", layer->name, what);
}

/* Nodes [first, first + count) are of one phase, which is [begin, end), and of the layer. */
static bool owns_run(const sluice_graph *g, int layer, int begin, int end, int first, int count)
{
    if (count < 0 || (count > 0 && (first < begin || count > end - first))) return false;
    for (int n = first; n < first + count; n++)
        if (g->nodes[n].layer != layer) return false;
    return true;
}

/* The layer's slice of layer_parameters tiles its flat buffer without gaps, in creation order, all trained or all
 * frozen. */
static sluice_status check_buffer(const sluice_graph *g, int index)
{
    const sl_layer *layer = &g->layers[index];
    int64_t offset = 0;
    if (layer->first_parameter < 0 || layer->first_parameter + layer->parameter_count > g->parameter_count)
        return layer_fault(layer, "its parameters are out of range");
    for (int i = 0; i < layer->parameter_count; i++) {
        int p = g->layer_parameters[layer->first_parameter + i];
        if (p < 0 || p >= g->parameter_count || (i > 0 && p <= g->layer_parameters[layer->first_parameter + i - 1]))
            return layer_fault(layer, "its parameters are not in creation order");
        const sl_parameter *parameter = &g->parameters[p];
        if (parameter->layer != index) return layer_fault(layer, "it lists a parameter of another layer");
        if (parameter->trainable != layer->trainable)
            return layer_fault(layer, "it mixes trained and frozen parameters");
        if (parameter->offset != offset) return layer_fault(layer, "its flat buffer has a gap or an overlap");
        if (parameter->count != sl_shape_elements(&g->values[parameter->value].shape))
            return layer_fault(layer, "a parameter's count is not that of its shape");
        offset += parameter->count;
    }
    if (offset != layer->element_count) return layer_fault(layer, "its element count is wrong");
    return SLUICE_OK;
}

static sluice_status check_layers(const sluice_graph *g)
{
    int listed = 0, forward = 0, backward = 0, backward_end = g->forward_count + g->backward_count;
    int next_forward = 0, previous_backward = backward_end;
    for (int i = 0; i < g->layer_count; i++) {
        const sl_layer *layer = &g->layers[i];
        SL_TRY(sl_graph_poll(g));
        if (!owns_run(g, i, 0, g->forward_count, layer->first_node, layer->node_count))
            return layer_fault(layer, "its forward nodes are not the ones it names");
        if (!owns_run(g, i, g->forward_count, backward_end, layer->first_backward, layer->backward_count))
            return layer_fault(layer, "its backward nodes are not the ones it names");
        if (layer->node_count > 0 && layer->first_node != next_forward) return layer_fault(layer, "it is out of order");
        if (layer->backward_count > 0 && layer->first_backward + layer->backward_count != previous_backward)
            return layer_fault(layer, "its backward nodes are not in reverse layer order");
        if (layer->node_count > 0) next_forward += layer->node_count;
        if (layer->backward_count > 0) previous_backward = layer->first_backward;
        SL_TRY(check_buffer(g, i));
        listed += layer->parameter_count;
        forward += layer->node_count;
        backward += layer->backward_count;
    }
    if (forward != g->forward_count || backward != g->backward_count) /* runs are apart: a node has one layer */
        return sl_fail(SLUICE_ERR_FAILED, "graph: layers name %d forward and %d backward nodes of %d and %d", forward,
                       backward, g->forward_count, g->backward_count);
    if (listed != g->parameter_count)
        return sl_fail(SLUICE_ERR_FAILED, "graph: layers list %d parameters of %d", listed, g->parameter_count);
    return SLUICE_OK;
}

static sluice_status check_parameters(const sluice_graph *g, const bool *written)
{
    for (int p = 0; p < g->parameter_count; p++) {
        const sl_parameter *parameter = &g->parameters[p];
        if (g->values[parameter->value].dtype != g->precision)
            return sl_fail(SLUICE_ERR_FAILED, "graph: parameter \"%.64s\" is not in the graph's precision",
                           parameter->name);
        bool wanted = g->backward_count > 0 && parameter->trainable;
        int d = parameter->gradient;
        bool right = wanted ? d >= 0 && d < g->value_count && g->values[d].kind == SL_VALUE_PARAM_GRAD &&
                                  g->values[d].parameter == p && g->values[d].dtype == g->wire && written[d]
                            : d == -1;
        if (g->values[parameter->value].parameter != p || !right)
            return sl_fail(SLUICE_ERR_FAILED, "graph: parameter \"%.64s\": its value or gradient is wrong",
                           parameter->name);
    }
    return SLUICE_OK;
}

sluice_status sl_graph_verify(const sluice_graph *g)
{
    bool *written = sl_alloc_array((size_t)g->value_count, sizeof *written, "graph check");
    if (written == NULL) return SLUICE_ERR_NO_MEMORY;
    sluice_status st = SLUICE_OK;
    if (g->forward_count + g->backward_count > g->node_count)
        st = sl_fail(SLUICE_ERR_FAILED, "graph: %d forward and %d backward nodes, but %d nodes", g->forward_count,
                     g->backward_count, g->node_count);
    if (st == SLUICE_OK) st = check_nodes(g, written);
    if (st == SLUICE_OK) st = check_parameters(g, written);
    if (st == SLUICE_OK && g->finished) st = check_layers(g);
    sl_free(written);
    return st;
}
