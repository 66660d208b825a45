/* graph_interpreter.c: a graph, node by node, on the reference. A result is formed whole before any of it is stored, so an op
 * that must not write over its operands shows as a wrong number in a later node, as it would on a device. */
#include "support/graph_interpreter.h"

#include <stdlib.h>

#include "core/half.h"
#include "support/op_reference.h"

void interpreter_open(interpreter *in, const sluice_graph *g)
{
    in->graph = g;
    in->rounds = false;
    in->data = calloc((size_t)g->value_count, sizeof *in->data);
    for (int v = 0; v < g->value_count; v++) {
        bool root = g->values[v].storage == v;
        in->data[v] = root ? calloc((size_t)sl_shape_elements(&g->values[v].shape), sizeof(double)) : NULL;
    }
    for (int v = 0; v < g->value_count; v++) in->data[v] = in->data[g->values[v].storage];
}

void interpreter_close(interpreter *in)
{
    for (int v = 0; v < in->graph->value_count; v++)
        if (in->graph->values[v].storage == v) free(in->data[v]);
    free(in->data);
}

double interpreter_rounded(double x, sluice_dtype type)
{
    if (type == SLUICE_BF16) return sl_bf16_to_float(sl_float_to_bf16((float)x));
    if (type == SLUICE_F16) return sl_f16_to_float(sl_float_to_f16((float)x));
    return x;
}

static void round_value(interpreter *in, int value)
{
    const sl_value *v = &in->graph->values[value];
    for (int64_t k = 0; k < sl_shape_elements(&v->shape); k++)
        in->data[value][k] = interpreter_rounded(in->data[value][k], v->dtype);
}

static bool run_node(interpreter *in, const sl_node *node)
{
    static const sl_run_context context = { .seed = 1, .step = 1, .training = true, .seed_gradient = 1 };
    const sl_op_def *row = &sl_ops[node->op];
    sl_shape shapes[SL_MAX_OUTPUTS] = { { 0 } };
    sluice_dtype dtypes[SL_MAX_OUTPUTS];
    if (row->view) return true;
    if (!reference_has(node->op) || row->infer(in->graph, node, shapes, dtypes) != SLUICE_OK) return false;
    ref_call c = { .op = node->op,
                   .attrs = &node->attrs,
                   .input_count = node->input_count,
                   .output_count = row->outputs,
                   .context = &context };
    for (int i = 0; i < node->input_count; i++)
        c.in[i] = (ref_tensor){ &in->graph->values[node->inputs[i]].shape, in->data[node->inputs[i]] };
    for (int i = 0; i < row->outputs; i++) {
        int value = i < node->output_count ? node->outputs[i] : -1;
        c.out[i] = (ref_tensor){ &shapes[i], value >= 0 ? in->data[value] : NULL };
    }
    reference_run(&c);
    for (int i = 0; i < node->output_count && in->rounds; i++)
        if (node->outputs[i] >= 0) round_value(in, node->outputs[i]);
    return true;
}

bool interpreter_run(interpreter *in, int first, int end)
{
    for (int n = first; n < end; n++)
        if (!run_node(in, &in->graph->nodes[n])) return false;
    return true;
}
