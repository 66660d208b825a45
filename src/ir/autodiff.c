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
 * layer's flat buffer.
 *
 * A gradient has the type of its value, a parameter's the wire type. Ops with wide outputs write that type themselves;
 * what the others give is a temporary, and a CAST follows. */
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
static sluice_status make_gradient(sl_autodiff *ad, int forward_value, sl_value_kind kind, sluice_dtype type, int *out)
{
    const sl_value *of = &ad->graph->values[forward_value];
    sl_shape shape = of->shape;
    const char *name = sl_arena_printf(&ad->graph->arena, "%s.grad", of->name);
    if (name == NULL) return SLUICE_ERR_NO_MEMORY;
    int value = sl_graph_add_value(ad->graph, kind, type, &shape, name);
    if (value < 0) return (sluice_status)-value;
    SL_TRY(sl_grow((void **)&ad->owners, &ad->owner_capacity, value + 1, sizeof *ad->owners, "gradient owners"));
    *out = value;
    return SLUICE_OK;
}

static sluice_status make_parameter_gradient(sl_autodiff *ad, int parameter, int *out)
{
    sluice_graph *g = ad->graph;
    SL_TRY(make_gradient(ad, g->parameters[parameter].value, SL_VALUE_PARAM_GRAD, g->wire, out));
    g->values[*out].parameter = parameter;
    g->parameters[parameter].gradient = *out;
    return SLUICE_OK;
}

static sluice_dtype target_type(const sl_autodiff *ad, int parameter)
{
    return ad->summed[parameter] ? SLUICE_F32 : ad->graph->wire;
}

/* What the contributions to a parameter's gradient are written to. */
static sluice_status make_target(sl_autodiff *ad, int parameter)
{
    int *target = &ad->target[parameter];
    if (!ad->summed[parameter]) return make_parameter_gradient(ad, parameter, target);
    const sl_parameter *p = &ad->graph->parameters[parameter];
    const char *name = sl_arena_printf(&ad->graph->arena, "%s.grad.sum", p->name);
    if (name == NULL) return SLUICE_ERR_NO_MEMORY;
    SL_TRY(make_gradient(ad, p->value, SL_VALUE_GRADIENT, SLUICE_F32, target));
    ad->graph->values[*target].name = name;
    ad->owners[*target] = 1; /* only the parameter's */
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
    for (int i = 0; i < SL_MAX_OUTPUTS; i++) b.node.outputs[i] = b.joins[i] = b.arrives[i] = -1;
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

/* May this node add to `gradient` where it lies? */
static bool can_accumulate(const sl_autodiff *ad, const sl_node *node, int gradient)
{
    if (!sl_op_accumulates(node->op) || writes(node, gradient)) return false;
    bool aliased = ad->graph->values[gradient].kind == SL_VALUE_GRADIENT && ad->owners[storage(ad, gradient)] != 1;
    return !aliased;
}

/* A temporary output, added to the gradient of forward_value by nodes of its own. */
static sluice_status write_apart(sl_autodiff *ad, sl_backward *b, int slot, int forward_value, sluice_dtype type)
{
    b->joins[slot] = forward_value;
    return make_gradient(ad, forward_value, SL_VALUE_GRADIENT, type, &b->node.outputs[slot]);
}

static void write_here(sl_backward *b, int slot, int gradient, bool adds)
{
    b->node.outputs[slot] = gradient;
    if (adds) b->node.attrs.accumulate |= 1u << slot;
}

static sluice_status write_parameter(sl_autodiff *ad, sl_backward *b, int slot, int forward_value)
{
    int parameter = ad->graph->values[forward_value].parameter, have = ad->target[parameter];
    sluice_dtype own_type = ad->graph->values[forward_value].dtype, wanted = target_type(ad, parameter);
    bool wide = sl_ops[b->node.op].wide_outputs >> slot & 1;
    bool adds = have >= 0, possible = wide || wanted == own_type;
    if (!possible || (adds && !can_accumulate(ad, &b->node, have)))
        return write_apart(ad, b, slot, forward_value, wide ? wanted : own_type);
    if (!adds) SL_TRY(make_target(ad, parameter));
    b->arrives[slot] = parameter;
    write_here(b, slot, ad->target[parameter], adds);
    return SLUICE_OK;
}

static sluice_status write_activation(sl_autodiff *ad, sl_backward *b, int slot, int forward_value)
{
    int have = ad->gradient[forward_value], made;
    sluice_dtype type = ad->graph->values[forward_value].dtype;
    if (have >= 0 && !can_accumulate(ad, &b->node, have)) return write_apart(ad, b, slot, forward_value, type);
    if (have >= 0) {
        write_here(b, slot, have, true);
        return SLUICE_OK;
    }
    SL_TRY(make_gradient(ad, forward_value, SL_VALUE_GRADIENT, type, &made));
    own(ad, forward_value, made);
    write_here(b, slot, made, false);
    return SLUICE_OK;
}

sluice_status sl_backward_write(sl_autodiff *ad, sl_backward *b, int forward_value)
{
    int slot = b->node.output_count;
    if (sl_wants_gradient(ad, forward_value)) {
        if (ad->graph->values[forward_value].parameter >= 0)
            SL_TRY(write_parameter(ad, b, slot, forward_value));
        else
            SL_TRY(write_activation(ad, b, slot, forward_value));
    }
    b->node.output_count++; /* last: a node's own outputs so far are those before this one */
    return SLUICE_OK;
}

static sluice_status append(sl_autodiff *ad, const sl_node *node)
{
    int index = sl_graph_add_node(ad->graph, node);
    return index < 0 ? (sluice_status)-index : SLUICE_OK;
}

/* A contribution is in the parameter's target. The last one ends an f32 sum: it is rounded to the wire type. */
static sluice_status arrive(sl_autodiff *ad, int parameter)
{
    if (--ad->contributions[parameter] > 0 || !ad->summed[parameter]) return SLUICE_OK;
    sl_backward b = sl_backward_begin(ad, SL_OP_CAST);
    b.node.attrs = (sl_attrs){ 0 };
    sl_backward_read(&b, ad->target[parameter]);
    SL_TRY(make_parameter_gradient(ad, parameter, &b.node.outputs[b.node.output_count++]));
    return append(ad, &b.node);
}

sluice_status sl_backward_end(sl_autodiff *ad, sl_backward *b)
{
    SL_TRY(append(ad, &b->node));
    for (int i = 0; i < b->node.output_count; i++) {
        if (b->joins[i] >= 0) SL_TRY(sl_backward_pass(ad, b->joins[i], b->node.outputs[i]));
        if (b->arrives[i] >= 0) SL_TRY(arrive(ad, b->arrives[i]));
    }
    return SLUICE_OK;
}

/* target of the parameter (+)= gradient. Both ops can write any type and add, so this needs no further node. */
static sluice_status pass_to_parameter(sl_autodiff *ad, int forward_value, int gradient)
{
    int parameter = ad->graph->values[forward_value].parameter;
    bool same = ad->graph->values[gradient].dtype == target_type(ad, parameter);
    sl_backward b = sl_backward_begin(ad, same ? SL_OP_REDUCE_TO : SL_OP_CAST);
    b.node.attrs = (sl_attrs){ 0 };
    sl_backward_read(&b, gradient);
    SL_TRY(sl_backward_write(ad, &b, forward_value));
    return sl_backward_end(ad, &b);
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
    SL_TRY(make_gradient(ad, forward_value, SL_VALUE_GRADIENT, ad->graph->values[forward_value].dtype, &sum));
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
    SL_TRY(make_gradient(ad, forward_value, SL_VALUE_GRADIENT, ad->graph->values[gradient].dtype, &view));
    sl_backward b = sl_backward_begin(ad, SL_OP_RESHAPE);
    sl_backward_read(&b, gradient);
    b.node.outputs[b.node.output_count++] = view;
    SL_TRY(append(ad, &b.node));
    return sl_backward_pass(ad, forward_value, view);
}

void sl_backward_continue(sl_autodiff *ad, int output)
{
    ad->owners[storage(ad, ad->dy)]--;
    ad->dy = ad->gradient[output];
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
            if (ad->needs[node->inputs[i]])
                for (int k = 0; k < node->output_count; k++) ad->needs[node->outputs[k]] = true;
    }
}

/* How often each parameter is read on a way to the loss, and which are to be summed in f32 (exact rule 2). Every such
 * operand is one contribution. */
static void count_contributions(sl_autodiff *ad, bool *reaches_loss)
{
    const sluice_graph *g = ad->graph;
    reaches_loss[g->loss] = true;
    for (int n = g->forward_count - 1; n >= 0; n--) {
        const sl_node *node = &g->nodes[n];
        if (!reaches_loss[node->outputs[0]]) continue;
        for (int i = 0; i < node->input_count; i++) {
            int parameter = g->values[node->inputs[i]].parameter;
            reaches_loss[node->inputs[i]] = true;
            if (parameter >= 0) ad->contributions[parameter]++;
        }
    }
    for (int p = 0; p < g->parameter_count; p++) {
        ad->summed[p] = g->wire != SLUICE_F32 && ad->contributions[p] > 1;
        ad->target[p] = -1;
    }
}

/* A batch norm of which nothing is trained stays as it was learned: it does not follow the rows of the run at hand. */
static void freeze_norms(sluice_graph *g)
{
    for (int i = 0; i < g->running_count; i++) {
        sl_node *node = &g->nodes[g->values[g->running[i].value].producer];
        node->attrs.batch_norm.frozen = true;
        for (int k = 1; k <= 2; k++) {
            const int parameter = g->values[node->inputs[k]].parameter;
            if (parameter < 0 || g->parameters[parameter].trainable) node->attrs.batch_norm.frozen = false;
        }
    }
}

/* Makes a forward node the current one. Its gradient comes by its first output, or by a saved value where only that has
 * one. */
static void select_node(sl_autodiff *ad, int index)
{
    ad->node = ad->graph->nodes[index];
    ad->node_index = index;
    ad->dy = ad->gradient[ad->node.outputs[0]];
    for (int k = 1; k < ad->node.output_count && ad->dy < 0; k++)
        if (sl_ops[ad->node.op].saved[k - 1].kind == SL_SAVED_VALUE) ad->dy = ad->gradient[ad->node.outputs[k]];
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

/* What is known of every value and parameter before the walk; `scratch` holds it. */
static sluice_status prepare(sl_autodiff *ad, sl_arena *scratch)
{
    size_t values = (size_t)ad->graph->value_count, parameters = (size_t)ad->graph->parameter_count;
    bool *reaches_loss = sl_arena_array(scratch, values, sizeof *reaches_loss);
    ad->readers = sl_arena_array(scratch, values, sizeof *ad->readers);
    ad->needs = sl_arena_array(scratch, values, sizeof *ad->needs);
    ad->gradient = sl_arena_array(scratch, values, sizeof *ad->gradient);
    ad->target = sl_arena_array(scratch, parameters, sizeof *ad->target);
    ad->contributions = sl_arena_array(scratch, parameters, sizeof *ad->contributions);
    ad->summed = sl_arena_array(scratch, parameters, sizeof *ad->summed);
    if (!reaches_loss || !ad->readers || !ad->needs || !ad->gradient || !ad->target || !ad->contributions ||
        !ad->summed)
        return SLUICE_ERR_NO_MEMORY;
    for (size_t i = 0; i < values; i++) ad->gradient[i] = -1;
    sl_graph_count_readers(ad->graph, ad->readers);
    mark_needs(ad);
    count_contributions(ad, reaches_loss);
    return SLUICE_OK;
}

/* Gradients that a forward node works out ahead (sl_op_serves_backward) and nobody wants are not made. */
static sluice_status drop_unwanted_outputs(sluice_graph *g)
{
    bool *read = sl_alloc_array((size_t)g->value_count, sizeof *read, "autodiff: values that backward reads");
    if (read == NULL) return SLUICE_ERR_NO_MEMORY;
    for (int n = g->forward_count; n < g->node_count; n++)
        for (int i = 0; i < g->nodes[n].input_count; i++) read[g->nodes[n].inputs[i]] = true;
    for (int n = 0; n < g->forward_count; n++)
        for (int i = 0; i < g->nodes[n].output_count; i++) {
            int *output = &g->nodes[n].outputs[i];
            if (!sl_op_serves_backward(g->nodes[n].op, i) || read[*output]) continue;
            g->values[*output].producer = -1;
            *output = -1;
        }
    sl_free(read);
    return SLUICE_OK;
}

static sluice_status differentiate(sl_autodiff *ad)
{
    SL_TRY(seed(ad));
    SL_TRY(walk(ad));
    SL_TRY(check_all_reached(ad->graph));
    find_backward_ranges(ad->graph);
    SL_TRY(sl_graph_verify(ad->graph));
    return drop_unwanted_outputs(ad->graph);
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
    freeze_norms(g);
    sl_autodiff ad = { .graph = g };
    sl_arena scratch;
    sl_arena_init(&scratch, "autodiff");
    sluice_status st = prepare(&ad, &scratch);
    if (st == SLUICE_OK) st = differentiate(&ad);
    if (st != SLUICE_OK) undo(g, value_count, node_count);
    sl_free(ad.owners);
    sl_arena_free(&scratch);
    return st;
}
