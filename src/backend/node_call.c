/* node_call.c: see node_call.h. */
#include "backend/node_call.h"

#include "ir/form.h"

void sl_node_call(const sluice_graph *g, const sl_node *node, unsigned outputs, const sl_run_context *context,
                  sl_shape shapes[SL_MAX_OPERANDS], sl_call *out)
{
    *out = (sl_call){ .op = node->op,
                      .attrs = &node->attrs,
                      .input_count = node->input_count,
                      .output_count = node->output_count,
                      .wire = g->wire,
                      .context = context,
                      .name = node->name != NULL ? node->name : sl_ops[node->op].name,
                      .layer = node->layer >= 0 ? g->layers[node->layer].name : NULL };
    for (int k = 0; k < node->input_count; k++) {
        out->input_shapes[k] = sl_run_shape(g, node->inputs[k], context->rows, &shapes[k]);
        out->input_forms[k] = (sl_form)g->values[node->inputs[k]].dtype;
    }
    for (int k = 0; k < node->output_count; k++) {
        if (!(outputs >> k & 1u)) continue;
        out->output_shapes[k] = sl_run_shape(g, node->outputs[k], context->rows, &shapes[node->input_count + k]);
        out->output_forms[k] = (sl_form)g->values[node->outputs[k]].dtype;
    }
}

uint64_t sl_node_workspace(const sluice_graph *g, const sl_node *node, const sl_run_context *context,
                           uint64_t (*workspace)(const sl_call *call))
{
    uint64_t most = 0;
    for (int run = 0; run < SL_RUN_KINDS; run++) {
        sl_shape shapes[SL_MAX_OPERANDS];
        sl_call call;
        sl_node_call(g, node, sl_node_outputs(g, node, (sl_run_kind)run), context, shapes, &call);
        const uint64_t bytes = workspace(&call);
        if (bytes > most) most = bytes;
    }
    return most;
}
