/* autodiff.c: appends the backward nodes of the loss.
 *
 * The forward nodes are walked once, last to first; each makes its backward nodes with the gradient function of its op.
 * By the time a node is reached, every use of its output has been differentiated, so that output's gradient is
 * complete.
 *
 * A value with several uses gets a sum. Adding in place saves the memory of a second tensor and is the common case, a
 * residual connection: the gradient of x + f(norm(x)) is first the gradient of both x and f; f reads it; then norm's
 * contribution may be added to it. It would be wrong before f has read it, so every gradient's storage counts the
 * forward values that still depend on it (sl_autodiff.owners). Where it is not safe, or the op cannot add, the
 * contribution is a temporary and an ADD makes the sum. Parameter gradients are never aliased: they lie in their
 * layer's flat buffer. */
#include "ir/autodiff.h"

#include <string.h>

#include "core/alloc.h"

bool sl_wants_gradient(const sl_autodiff *ad, int forward_value)
{
    return forward_value >= 0 && ad->needs[forward_value];
}

/* ---- gradients of forward values ---- */

static int storage(const sl_autodiff *ad, int value)
{
    return ad->graph->values[value].storage;
}

/* Makes `gradient` the gradient of an activation, in place of the one it has. */
static void own(sl_autodiff *ad, int forward_value, int gradient)
{
    int old = ad->gradient[forward_value];
    if (old >= 0) ad->owners[storage(ad, old)]--;
    ad->gradient[forward_value] = gradient;
    ad->owners[storage(ad, gradient)]++;
}

/* A new value with the shape of forward_value, named after it. */
static sluice_status make_gradient(sl_autodiff *ad, int forward_value, sl_value_kind kind, int *out)
{
    const sl_value *of = &ad->graph->values[forward_value];
    sl_shape shape = of->shape;
    const char *name = sl_arena_printf(&ad->graph->arena, "%s.grad", of->name);
    if (name == NULL) return SLUICE_ERR_NO_MEMORY;
    int value = sl_graph_add_value(ad->graph, kind, SLUICE_F32, &shape, name);
    if (value < 0) return (sluice_status)-value;
    SL_TRY(sl_grow((void **)&ad->owners, &ad->owner_capacity, value + 1, sizeof *ad->owners, "gradient owners"));
    *out = value;
    return SLUICE_OK;
}

static sluice_status make_parameter_gradient(sl_autodiff *ad, int parameter, int *out)
{
    SL_TRY(make_gradient(ad, ad->graph->parameters[parameter].value, SL_VALUE_PARAM_GRAD, out));
    ad->graph->values[*out].parameter = parameter;
    ad->graph->parameters[parameter].gradient = *out;
    return SLUICE_OK;
}

/* ---- nodes ---- */

sl_backward sl_backward_begin(const sl_autodiff *ad, sl_op op)
{
    sl_backward b = { .node = { .op = op,
                                .phase = SL_PHASE_BACKWARD,
                                .layer = ad->node.layer,
                                .forward_of = ad->node_index,
                                .attrs = ad->node.attrs,
                                .name = ad->node.name } };
    for (int i = 0; i < SL_MAX_OUTPUTS; i++) b.node.outputs[i] = b.joins[i] = -1;
    return b;
}

void sl_backward_read(sl_backward *b, int value)
{
    b->node.inputs[b->node.input_count++] = value;
}

static bool writes(const sl_node *node, int value)
{
    for (int i = 0; i < node->output_count; i++)
        if (node->outputs[i] == value) return true;
    return false;
}

/* What is there of a value's gradient; -1: nothing yet. */
static int existing_gradient(const sl_autodiff *ad, int forward_value)
{
    int parameter = ad->graph->values[forward_value].parameter;
    return parameter >= 0 ? ad->graph->parameters[parameter].gradient : ad->gradient[forward_value];
}

/* May this node add to `gradient` where it lies? */
static bool can_accumulate(const sl_autodiff *ad, const sl_node *node, int gradient)
{
    if (!sl_ops[node->op].accumulates || writes(node, gradient)) return false;
    bool aliased = ad->graph->values[gradient].kind == SL_VALUE_GRADIENT && ad->owners[storage(ad, gradient)] != 1;
    return !aliased;
}

sluice_status sl_backward_write(sl_autodiff *ad, sl_backward *b, int forward_value)
{
    sl_node *node = &b->node;
    int slot = node->output_count, out = -1;
    if (!sl_wants_gradient(ad, forward_value)) {
        node->output_count++;
        return SLUICE_OK;
    }
    int parameter = ad->graph->values[forward_value].parameter;
    int have = existing_gradient(ad, forward_value);
    if (have >= 0 && can_accumulate(ad, node, have)) {
        out = have;
        node->attrs.accumulate |= 1u << slot;
    } else if (have >= 0) {
        SL_TRY(make_gradient(ad, forward_value, SL_VALUE_GRADIENT, &out));
        b->joins[slot] = forward_value;
    } else if (parameter >= 0) {
        SL_TRY(make_parameter_gradient(ad, parameter, &out));
    } else {
        SL_TRY(make_gradient(ad, forward_value, SL_VALUE_GRADIENT, &out));
        own(ad, forward_value, out);
    }
    node->outputs[node->output_count++] = out;
    return SLUICE_OK;
}

static sluice_status append(sl_autodiff *ad, const sl_node *node)
{
    int index = sl_graph_add_node(ad->graph, node);
    return index < 0 ? (sluice_status)-index : SLUICE_OK;
}

sluice_status sl_backward_end(sl_autodiff *ad, sl_backward *b)
{
    SL_TRY(append(ad, &b->node));
    for (int i = 0; i < b->node.output_count; i++)
        if (b->joins[i] >= 0) SL_TRY(sl_backward_pass(ad, b->joins[i], b->node.outputs[i]));
    return SLUICE_OK;
}

/* parameter gradient (+)= gradient */
static sluice_status pass_to_parameter(sl_autodiff *ad, int forward_value, int gradient)
{
    sl_backward b = sl_backward_begin(ad, SL_OP_REDUCE_TO);
    b.node.attrs = (sl_attrs){ 0 };
    sl_backward_read(&b, gradient);
    SL_TRY(sl_backward_write(ad, &b, forward_value));
    return append(ad, &b.node);
}

sluice_status sl_backward_pass(sl_autodiff *ad, int forward_value, int gradient)
{
    if (!sl_wants_gradient(ad, forward_value)) return SLUICE_OK;
    if (ad->graph->values[forward_value].parameter >= 0) return pass_to_parameter(ad, forward_value, gradient);
    int have = ad->gradient[forward_value];
    if (have < 0) {
        own(ad, forward_value, gradient);
        return SLUICE_OK;
    }
    int sum;
    SL_TRY(make_gradient(ad, forward_value, SL_VALUE_GRADIENT, &sum));
    sl_backward b = sl_backward_begin(ad, SL_OP_ADD);
    b.node.attrs = (sl_attrs){ 0 };
    sl_backward_read(&b, have);
    sl_backward_read(&b, gradient);
    b.node.outputs[b.node.output_count++] = sum;
    SL_TRY(append(ad, &b.node));
    own(ad, forward_value, sum);
    return SLUICE_OK;
}

sluice_status sl_backward_view(sl_autodiff *ad, int forward_value, int gradient)
{
    int view;
    SL_TRY(make_gradient(ad, forward_value, SL_VALUE_GRADIENT, &view));
    sl_backward b = sl_backward_begin(ad, SL_OP_RESHAPE);
    sl_backward_read(&b, gradient);
    b.node.outputs[b.node.output_count++] = view;
    SL_TRY(append(ad, &b.node));
    return sl_backward_pass(ad, forward_value, view);
}

/* ---- the walk ---- */

/* Marks the values that a trainable parameter reaches: only they have gradients. */
static void mark_needs(sl_autodiff *ad)
{
    const sluice_graph *g = ad->graph;
    for (int p = 0; p < g->parameter_count; p++) ad->needs[g->parameters[p].value] = g->parameters[p].trainable;
    for (int n = 0; n < g->forward_count; n++) {
        const sl_node *node = &g->nodes[n];
        for (int i = 0; i < node->input_count; i++)
            if (ad->needs[node->inputs[i]]) ad->needs[node->outputs[0]] = true;
    }
}

static void select_node(sl_autodiff *ad, int index)
{
    ad->node = ad->graph->nodes[index];
    ad->node_index = index;
    ad->dy = ad->gradient[ad->node.outputs[0]];
}

static sluice_status seed(sl_autodiff *ad)
{
    const sluice_graph *g = ad->graph;
    if (!ad->needs[g->loss])
        return sl_fail(SLUICE_ERR_USAGE, "loss \"%.64s\" depends on no trainable parameter", g->values[g->loss].name);
    select_node(ad, g->values[g->loss].producer);
    sl_backward b = sl_backward_begin(ad, SL_OP_SEED);
    SL_TRY(sl_backward_write(ad, &b, g->loss));
    return sl_backward_end(ad, &b);
}

static sluice_status walk(sl_autodiff *ad)
{
    for (int n = ad->graph->forward_count - 1; n >= 0; n--) {
        select_node(ad, n);
        if (ad->dy < 0) continue;
        SL_TRY(sl_ops[ad->node.op].gradient(ad));
        ad->owners[storage(ad, ad->dy)]--; /* all readers of this node's gradient are made */
    }
    return SLUICE_OK;
}

static sluice_status check_all_reached(const sluice_graph *g)
{
    for (int p = 0; p < g->parameter_count; p++)
        if (g->parameters[p].trainable && g->parameters[p].gradient < 0)
            return sl_fail(SLUICE_ERR_USAGE,
                           "parameter \"%.64s\" does not influence loss \"%.64s\": use it, freeze it or do not make it",
                           g->parameters[p].name, g->values[g->loss].name);
    return SLUICE_OK;
}

static void find_backward_ranges(sluice_graph *g)
{
    for (int n = g->forward_count; n < g->node_count; n++) {
        sl_layer *layer = &g->layers[g->nodes[n].layer];
        if (layer->backward_count++ == 0) layer->first_backward = n;
    }
}

static sluice_status differentiate(sl_autodiff *ad)
{
    mark_needs(ad);
    SL_TRY(seed(ad));
    SL_TRY(walk(ad));
    SL_TRY(check_all_reached(ad->graph));
    find_backward_ranges(ad->graph);
    return sl_graph_verify(ad->graph);
}

/* The graph as it was before differentiation; its names stay in the arena. */
static void undo(sluice_graph *g, int value_count, int node_count)
{
    g->value_count = value_count;
    g->node_count = node_count;
    g->backward_count = 0;
    for (int p = 0; p < g->parameter_count; p++) g->parameters[p].gradient = -1;
    for (int i = 0; i < g->layer_count; i++) g->layers[i].first_backward = g->layers[i].backward_count = 0;
}

sluice_status sl_graph_differentiate(sluice_graph *g)
{
    SL_TRY(sl_graph_finish(g));
    if (g->loss < 0) return sl_fail(SLUICE_ERR_USAGE, "the graph has no loss: call sluice_set_loss");
    if (g->node_count > g->forward_count)
        return sl_fail(SLUICE_ERR_USAGE, "the graph is differentiated already: a graph serves one engine");
    int value_count = g->value_count, node_count = g->node_count;
    sl_autodiff ad = { .graph = g };
    sluice_status st = SLUICE_ERR_NO_MEMORY;
    ad.needs = sl_alloc_array((size_t)value_count, sizeof *ad.needs, "autodiff needs");
    if (ad.needs == NULL) return st;
    ad.gradient = sl_alloc_array((size_t)value_count, sizeof *ad.gradient, "autodiff gradients");
    if (ad.gradient == NULL) goto free_needs;
    for (int i = 0; i < value_count; i++) ad.gradient[i] = -1;
    st = differentiate(&ad);
    if (st != SLUICE_OK) undo(g, value_count, node_count);
    sl_free(ad.owners);
    sl_free(ad.gradient);
free_needs:
    sl_free(ad.needs);
    return st;
}
