/* op_cost.c: arithmetic and memory traffic of a node, for predicted times.
 *
 * Matrix products are counted exactly (a multiply and an add are two); other ops get a fixed number of operations per
 * element, which never decides anything because they are bound by memory. Bytes count every operand once, and an
 * accumulated output twice. */
#include "core/bytes.h"
#include "ir/op_rows.h"

/* Per element; an op that only moves data has none. */
static double element_flops(const sl_node *node)
{
    double flops = sl_ops[node->op].element_flops;
    return flops > 0 ? flops : 0;
}

static double elements(const sluice_graph *g, int value)
{
    return value < 0 ? 0 : (double)sl_shape_elements(&g->values[value].shape);
}

static double bytes(const sluice_graph *g, int value)
{
    return value < 0 ? 0 : (double)sl_value_bytes(&g->values[value]);
}

double sl_operand_bytes(const sluice_graph *g, const sl_node *node)
{
    double sum = 0;
    for (int i = 0; i < node->input_count; i++) sum += bytes(g, node->inputs[i]);
    for (int i = 0; i < node->output_count; i++)
        sum += bytes(g, node->outputs[i]) * (node->attrs.accumulate >> i & 1 ? 2 : 1);
    return sum;
}

sl_cost sl_cost_pointwise(const sluice_graph *g, const sl_node *node)
{
    double most = 0;
    for (int i = 0; i < node->input_count; i++)
        if (elements(g, node->inputs[i]) > most) most = elements(g, node->inputs[i]);
    for (int i = 0; i < node->output_count; i++)
        if (elements(g, node->outputs[i]) > most) most = elements(g, node->outputs[i]);
    return (sl_cost){ most * element_flops(node), sl_operand_bytes(g, node) };
}

sl_cost sl_cost_view(const sluice_graph *g, const sl_node *node)
{
    (void)g;
    (void)node;
    return (sl_cost){ 0, 0 };
}

/* y[rows, O] = x[rows, I] w, and what is added to it: bias, base */
sl_cost sl_cost_linear(const sluice_graph *g, const sl_node *node)
{
    double in = (double)sl_shape_last(sl_input_shape(g, node, 0)), out = elements(g, node->outputs[0]);
    return (sl_cost){ 2 * out * in + (node->input_count - 2) * out, sl_operand_bytes(g, node) };
}

sl_cost sl_cost_linear_grad_input(const sluice_graph *g, const sl_node *node)
{
    double out = (double)sl_shape_last(sl_input_shape(g, node, 0));
    return (sl_cost){ 2 * elements(g, node->outputs[0]) * out, sl_operand_bytes(g, node) };
}

sl_cost sl_cost_linear_grad_weight(const sluice_graph *g, const sl_node *node)
{
    double rows = (double)sl_shape_rows(sl_input_shape(g, node, 0));
    double bias = node->output_count > 1 ? elements(g, node->outputs[1]) : 0;
    return (sl_cost){ 2 * rows * elements(g, node->outputs[0]) + rows * bias, sl_operand_bytes(g, node) };
}

/* The logits, and one product as large for each gradient that is wanted; an addition for each logit with a bias, and one
 * with its gradient. */
sl_cost sl_cost_linear_cross_entropy(const sluice_graph *g, const sl_node *node)
{
    double rows = elements(g, node->inputs[2]), products = 1 + (node->outputs[2] >= 0) + (node->outputs[3] >= 0);
    double logits = rows * (double)sl_input_shape(g, node, 1)->dim[0], each = 8 + (node->input_count > 3);
    if (node->output_count > 4 && node->outputs[4] >= 0) each++;
    return (sl_cost){ 2 * rows * elements(g, node->inputs[1]) * products + each * logits, sl_operand_bytes(g, node) };
}

sl_cost sl_cost_matmul(const sluice_graph *g, const sl_node *node)
{
    const sl_shape *a = sl_input_shape(g, node, 0);
    double k = (double)a->dim[a->rank - (node->attrs.matmul.transpose_a ? 2 : 1)];
    return (sl_cost){ 2 * elements(g, node->outputs[0]) * k, sl_operand_bytes(g, node) };
}

/* Reads the rows it needs, not the table. */
sl_cost sl_cost_embedding(const sluice_graph *g, const sl_node *node)
{
    return (sl_cost){ 0, bytes(g, node->inputs[0]) + 2 * bytes(g, node->outputs[0]) };
}

/* Adds each row of dy to a row of the table, which is cleared first unless accumulating. */
sl_cost sl_cost_embedding_grad(const sluice_graph *g, const sl_node *node)
{
    double clear = node->attrs.accumulate & 1 ? 0 : bytes(g, node->outputs[0]), added = elements(g, node->inputs[1]);
    double rows = added * (double)sl_dtype_bytes(g->values[node->outputs[0]].dtype);
    return (sl_cost){ added, bytes(g, node->inputs[0]) + bytes(g, node->inputs[1]) + 2 * rows + clear };
}

/* Of a row: query t sees t + 1 keys, or `window` of them (0: all). Where documents begin is in the data: a row counts as
 * one. */
static double causal_pairs(double queries, int window)
{
    double most = window > 0 && window < queries ? window : queries;
    return most * (most + 1) / 2 + (queries - most) * most;
}

/* Query-key pairs over all batches and heads, times the width of a head. lse is [B, H, T]. */
static double attention_products(const sluice_graph *g, const sl_node *node, int lse)
{
    const sl_shape *l = &g->values[lse].shape;
    double queries = (double)l->dim[2];
    double keys = (double)sl_input_shape(g, node, node->attrs.attention.packed ? 0 : 1)->dim[1];
    double pairs = node->attrs.attention.causal ? causal_pairs(queries, node->attrs.attention.window) : queries * keys;
    return (double)l->dim[0] * (double)l->dim[1] * pairs * node->attrs.attention.head_width;
}

/* Two products: scores and weighted values. */
sl_cost sl_cost_attention(const sluice_graph *g, const sl_node *node)
{
    return (sl_cost){ 4 * attention_products(g, node, node->outputs[1]), sl_operand_bytes(g, node) };
}

/* Five products: the scores again, and the gradients of the weights, q, k and v. */
sl_cost sl_cost_attention_grad(const sluice_graph *g, const sl_node *node)
{
    int lse = node->inputs[node->input_count - 2];
    return (sl_cost){ 10 * attention_products(g, node, lse), sl_operand_bytes(g, node) };
}

/* Rows of sequences whose caches are full, all of a prompt: each reads its slot's. */
sl_cost sl_cost_attention_cached(const sluice_graph *g, const sl_node *node)
{
    double rows = (double)sl_input_shape(g, node, 0)->dim[0], places = (double)node->attrs.cached.kept;
    return (sl_cost){ 4 * rows * node->attrs.cached.heads * node->attrs.cached.head_width * places,
                      sl_operand_bytes(g, node) };
}

/* SPLIT, CONCAT_GRAD read, and SPLIT_GRAD accumulating writes, only the part. */
sl_cost sl_cost_part(const sluice_graph *g, const sl_node *node)
{
    double in = bytes(g, node->inputs[0]), out = bytes(g, node->outputs[0]), part = in < out ? in : out;
    double each = (double)sl_dtype_bytes(g->values[node->outputs[0]].dtype);
    if (node->attrs.accumulate & 1) return (sl_cost){ part / each, 3 * part };
    return (sl_cost){ 0, out > in ? in + out : 2 * part }; /* SPLIT_GRAD clears the rest of the output */
}

/* In place, as the plan runs it wherever it can: the part is read twice and written once. */
sl_cost sl_cost_add_part(const sluice_graph *g, const sl_node *node)
{
    double part = bytes(g, node->inputs[1]);
    return (sl_cost){ part / (double)sl_dtype_bytes(g->values[node->inputs[1]].dtype), 3 * part };
}

/* ---- update ops, on the flat buffer of a layer ---- */

static double layer_elements(const sluice_graph *g, const sl_node *node)
{
    bool updated = node->layer >= 0 && g->layers[node->layer].trainable;
    return updated ? (double)g->layers[node->layer].element_count : 0;
}

/* `bytes` are read and written per element: gradients in the wire type, sums in f32. */
static sl_cost flat_cost(const sluice_graph *g, const sl_node *node, double bytes_each)
{
    double n = layer_elements(g, node);
    return (sl_cost){ n * element_flops(node), n * bytes_each };
}

sl_cost sl_cost_norm_leaves(const sluice_graph *g, const sl_node *node)
{
    return flat_cost(g, node, (double)sl_dtype_bytes(g->wire));
}

sl_cost sl_cost_accumulate(const sluice_graph *g, const sl_node *node)
{
    return flat_cost(g, node, (double)sl_dtype_bytes(g->wire) + 8);
}

/* The states count as f32; optim/ knows better for the plan. */
sl_cost sl_cost_update(const sluice_graph *g, const sl_node *node)
{
    double weights = g->precision == SLUICE_F16 ? 10 : 8; /* the master in and out; f16 weights out besides */
    double states = node->attrs.update != NULL ? 8 * sl_updates[node->attrs.update->kind].slots : 0;
    return flat_cost(g, node, (double)sl_dtype_bytes(g->wire) + weights + states);
}

/* Reads one leaf sum per SL_CUT_ELEMENTS of all layers. */
sl_cost sl_cost_norm_finish(const sluice_graph *g, const sl_node *node)
{
    double leaves = 0;
    (void)node;
    for (int i = 0; i < g->layer_count; i++)
        if (g->layers[i].trainable) leaves += (double)sl_ceil_div(g->layers[i].element_count, SL_CUT_ELEMENTS);
    return (sl_cost){ leaves, 8 * leaves };
}
