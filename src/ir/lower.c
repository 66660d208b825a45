/* lower.c: a graph in a 16-bit type.
 *
 * The forward nodes are written anew, in order. Each is given the type it reads its operands in; an operand of the
 * other type is cast first, once, in the layer that needs it first, and later readers share the cast. The outputs then
 * have the types that the op's own infer says, so there is one statement of them. A product and the GELU of it, or
 * its sum with another tensor, become one node: a GPU then need not read it again, and rounds less. Values keep their
 * indices, so the loss, the output and what was fixed at building (the counter of a dropout) stay as they are. The
 * gradients follow from the types of their values (autodiff.c). */
#include <string.h>

#include "core/alloc.h"
#include "ir/graph.h"

typedef struct lowering {
    sluice_graph *g;
    sluice_dtype precision;
    int *casts;   /* per value: the same in the other of f32 and the precision; -1: not needed so far */
    int *readers; /* per value: operands of nodes that it is, before lowering */
} lowering;

/* ---- types ---- */

sluice_dtype sl_node_type(const sluice_graph *g, const sl_node *node)
{
    for (int i = 0; i < node->input_count; i++) {
        sluice_dtype t = g->values[node->inputs[i]].dtype;
        if (t == SLUICE_BF16 || t == SLUICE_F16) return t;
    }
    return SLUICE_F32;
}

/* The type a node reads its float operands in. */
static sluice_dtype operand_type(const lowering *l, const sl_node *node)
{
    const sl_value *in = &l->g->values[node->inputs[0]], *out = &l->g->values[node->outputs[0]];
    sluice_dtype by_result = out->shape.rank > 0 ? l->precision : SLUICE_F32;
    switch (sl_ops[node->op].lowering) {
    case SL_LOWER_AS_INPUT:
        return in->dtype;
    case SL_LOWER_PRECISION:
        return l->precision;
    case SL_LOWER_VIEW:
        return out->shape.rank > 0 ? in->dtype : SLUICE_F32;
    case SL_LOWER_BY_RESULT:
    case SL_LOWER_NOT_SAID: /* of no row (tests/ir/op_rows_test.c) */
        break;
    }
    return by_result;
}

/* ---- nodes ---- */

static sluice_status append(sluice_graph *g, const sl_node *node)
{
    int index = sl_graph_add_node(g, node);
    return index < 0 ? (sluice_status)-index : SLUICE_OK;
}

/* `value` in `type`, cast in the layer of its first reader. */
static sluice_status cast(lowering *l, int value, sluice_dtype type, int layer, int *out)
{
    sluice_graph *g = l->g;
    if (l->casts[value] < 0) {
        sl_shape shape = g->values[value].shape;
        sl_node node = { .op = SL_OP_CAST, .layer = layer, .forward_of = -1, .input_count = 1, .output_count = 1 };
        node.name = sl_arena_printf(&g->arena, "%s.%s", g->values[value].name, sl_dtype_name(type));
        if (node.name == NULL) return SLUICE_ERR_NO_MEMORY;
        int made = sl_graph_add_value(g, SL_VALUE_ACTIVATION, type, &shape, node.name);
        if (made < 0) return (sluice_status)-made;
        for (int i = 0; i < SL_MAX_OUTPUTS; i++) node.outputs[i] = -1;
        node.inputs[0] = value;
        node.outputs[0] = made;
        SL_TRY(append(g, &node));
        l->casts[value] = made;
    }
    *out = l->casts[value];
    return SLUICE_OK;
}

/* ---- nodes that become one ---- */

/* What follows the product at `n` and is its only reader, of the same layer and shape; NULL: nothing is. */
static const sl_node *follower(const lowering *l, const sl_node *nodes, int count, int n)
{
    const sluice_graph *g = l->g;
    const sl_node *linear = &nodes[n], *next = linear + 1;
    int y = linear->outputs[0];
    if (linear->op != SL_OP_LINEAR || n + 1 == count || next->layer != linear->layer || g->output == y) return NULL;
    if (!sl_shape_equal(&g->values[y].shape, &g->values[next->outputs[0]].shape)) return NULL;
    for (int i = 0; i < next->input_count; i++)
        if (l->readers[y] == 1 && next->inputs[i] == y) return next;
    return NULL;
}

/* A product and its GELU in the tanh form, which a GPU takes of results as it stores them. */
static bool join_gelu(sl_node *linear, const sl_node *gelu)
{
    if (gelu->op != SL_OP_GELU || gelu->attrs.gelu.exact) return false;
    linear->op = SL_OP_LINEAR_GELU;
    linear->outputs[1] = linear->outputs[0];
    linear->outputs[0] = gelu->outputs[0];
    linear->output_count = 2;
    return true;
}

/* A product and its sum with a tensor of its shape, a residual connection: a GPU adds as it stores. */
static bool join_add(const sluice_graph *g, sl_node *linear, const sl_node *add)
{
    if (add->op != SL_OP_ADD) return false;
    int base = add->inputs[add->inputs[0] == linear->outputs[0] ? 1 : 0];
    if (!sl_shape_equal(&g->values[base].shape, &g->values[linear->outputs[0]].shape)) return false;
    linear->op = SL_OP_LINEAR_ADD;
    if (linear->input_count == 3) linear->inputs[3] = linear->inputs[2];
    linear->inputs[2] = base;
    linear->input_count++;
    linear->outputs[0] = add->outputs[0];
    return true;
}

/* The node at *n, or the one that it and the next become; *n is then at the next. */
static sl_node joined(const lowering *l, const sl_node *nodes, int count, int *n)
{
    sl_node node = nodes[*n];
    const sl_node *next = follower(l, nodes, count, *n);
    if (next != NULL && (join_gelu(&node, next) || join_add(l->g, &node, next))) (*n)++;
    return node;
}

/* ---- nodes ---- */

static sluice_status lower_node(lowering *l, const sl_node *from)
{
    sluice_graph *g = l->g;
    sl_node node = *from;
    sluice_dtype type = operand_type(l, &node), dtypes[SL_MAX_OUTPUTS];
    sl_shape shapes[SL_MAX_OUTPUTS];
    for (int i = 0; i < node.input_count; i++) {
        sluice_dtype have = g->values[node.inputs[i]].dtype;
        if (have != SLUICE_I32 && have != type) SL_TRY(cast(l, node.inputs[i], type, node.layer, &node.inputs[i]));
    }
    SL_TRY(sl_ops[node.op].infer(g, &node, shapes, dtypes));
    for (int i = 0; i < node.output_count; i++) g->values[node.outputs[i]].dtype = dtypes[i];
    return append(g, &node);
}

/* ---- the change as a whole ---- */

/* The forward nodes as they were; nothing else of a finished graph is lost by lowering. */
typedef struct saved {
    sl_node *nodes;
    int node_count, node_capacity, value_count;
} saved;

static saved take_out(sluice_graph *g)
{
    saved old = { g->nodes, g->node_count, g->node_capacity, g->value_count };
    g->nodes = NULL;
    g->node_count = g->node_capacity = g->forward_count = 0;
    for (int v = 0; v < g->value_count; v++) g->values[v].producer = -1;
    return old;
}

/* Producers and the storage of views, from the nodes in order. */
static void link_values(sluice_graph *g)
{
    for (int n = 0; n < g->node_count; n++) {
        const sl_node *node = &g->nodes[n];
        for (int i = 0; i < node->output_count; i++) {
            sl_value *v = &g->values[node->outputs[i]];
            v->producer = n;
            if (sl_ops[node->op].view) v->storage = g->values[node->inputs[0]].storage;
        }
    }
}

static void put_back(sluice_graph *g, const saved *old)
{
    sl_free(g->nodes);
    g->nodes = old->nodes;
    g->node_count = g->forward_count = old->node_count;
    g->node_capacity = old->node_capacity;
    g->value_count = old->value_count;
    for (int v = 0; v < g->value_count; v++)
        if (g->values[v].dtype != SLUICE_I32) g->values[v].dtype = SLUICE_F32;
    link_values(g);
}

/* Layers are the same runs of nodes, some of them longer. */
static void count_layer_nodes(sluice_graph *g)
{
    for (int i = 0; i < g->layer_count; i++) g->layers[i].node_count = 0;
    for (int n = 0; n < g->forward_count; n++) {
        sl_layer *layer = &g->layers[g->nodes[n].layer];
        if (layer->node_count++ == 0) layer->first_node = n;
    }
}

static sluice_status rewrite(lowering *l)
{
    sluice_graph *g = l->g;
    saved old = take_out(g);
    for (int p = 0; p < g->parameter_count; p++) g->values[g->parameters[p].value].dtype = l->precision;
    sluice_status st = SLUICE_OK;
    for (int n = 0; n < old.node_count && st == SLUICE_OK; n++) {
        sl_node node = joined(l, old.nodes, old.node_count, &n);
        st = lower_node(l, &node);
    }
    if (st != SLUICE_OK) {
        put_back(g, &old);
        return st;
    }
    sl_free(old.nodes);
    count_layer_nodes(g);
    g->precision = l->precision;
    return sl_graph_verify(g);
}

static sluice_status check_type(const char *what, sluice_dtype type)
{
    if (type == SLUICE_F32 || type == SLUICE_BF16 || type == SLUICE_F16) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_USAGE, "%s: type %d is none of f32, bf16 and f16", what, (int)type);
}

sluice_status sl_graph_lower(sluice_graph *g, sluice_dtype precision, sluice_dtype wire)
{
    SL_TRY(check_type("precision", precision));
    SL_TRY(check_type("wire", wire));
    SL_TRY(sl_graph_finish(g));
    if (g->node_count > g->forward_count || g->precision != SLUICE_F32)
        return sl_fail(SLUICE_ERR_USAGE, "the graph has its types already: a graph serves one engine");
    g->wire = wire;
    if (precision == SLUICE_F32) return SLUICE_OK;
    lowering l = { .g = g, .precision = precision };
    l.casts = sl_alloc_array(2 * (size_t)g->value_count, sizeof *l.casts, "casts of a graph");
    if (l.casts == NULL) return SLUICE_ERR_NO_MEMORY;
    l.readers = l.casts + g->value_count;
    for (int v = 0; v < g->value_count; v++) l.casts[v] = -1;
    sl_graph_count_readers(g, l.readers);
    sluice_status st = rewrite(&l);
    sl_free(l.casts);
    return st;
}
