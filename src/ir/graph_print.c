/* graph_print.c: a graph for people, one line a node. */
#include <inttypes.h>

#include "ir/graph.h"

static const char *layer_name(const sluice_graph *g, int layer)
{
    return layer < 0 ? "-" : g->layers[layer].name;
}

static void print_value(const sluice_graph *g, int value, FILE *out)
{
    char shape[160];
    if (value < 0) {
        fputs("-", out);
        return;
    }
    const sl_value *v = &g->values[value];
    fprintf(out, "%%%d %s%s", value, v->name, sl_shape_text(&v->shape, shape, sizeof shape));
    if (v->dtype != SLUICE_F32) fprintf(out, ":%s", sl_dtype_name(v->dtype));
}

/* "%7 fc1[10, 5] = "; "+=" where the output is added to, one sign for each output. */
static void print_outputs(const sluice_graph *g, const sl_node *node, FILE *out)
{
    for (int i = 0; i < node->output_count; i++) {
        if (i > 0) fputs(", ", out);
        print_value(g, node->outputs[i], out);
        if (node->attrs.accumulate >> i & 1) fputs(" +", out);
    }
    if (node->output_count > 0) fputs(" = ", out);
}

/* " {heads 4, causal true}"; nothing for an op without attributes. */
static void print_attributes(const sl_node *node, FILE *out)
{
    const sl_attribute_list *list = sl_ops[node->op].attributes;
    char text[SL_ATTRIBUTE_TEXT_BYTES];
    int shown = 0;
    for (int i = 0; i < list->count; i++)
        if (sl_attribute_there(&node->attrs, &list->rows[i]))
            fprintf(out, "%s%s %s", shown++ == 0 ? " {" : ", ", list->rows[i].name,
                    sl_attribute_text(&node->attrs, &list->rows[i], text));
    if (shown > 0) fputc('}', out);
}

static void print_node(const sluice_graph *g, int index, FILE *out)
{
    const sl_node *node = &g->nodes[index];
    fprintf(out, "%5d  %-16s %-18s ", index, layer_name(g, node->layer), sl_ops[node->op].name);
    print_outputs(g, node, out);
    for (int i = 0; i < node->input_count; i++) {
        if (i > 0) fputs(", ", out);
        print_value(g, node->inputs[i], out);
    }
    print_attributes(node, out);
    fputc('\n', out);
}

static void print_layers(const sluice_graph *g, FILE *out)
{
    for (int i = 0; i < g->layer_count; i++) {
        const sl_layer *l = &g->layers[i];
        if (!g->finished) break; /* layouts do not exist yet */
        fprintf(out, "layer %-16s %4d nodes, %3d parameters, %12" PRId64 " elements%s\n", l->name, l->node_count,
                l->parameter_count, l->element_count, l->parameter_count > 0 && !l->trainable ? ", frozen" : "");
    }
}

void sl_graph_print(const sluice_graph *g, FILE *out)
{
    fprintf(out, "graph: %d forward and %d backward nodes, %d parameters of %" PRId64 " elements\n", g->forward_count,
            g->backward_count, g->parameter_count, sl_graph_parameter_elements(g));
    if (g->error != SLUICE_OK) fprintf(out, "error: %s\n", g->error_text);
    print_layers(g, out);
    for (int n = 0; n < g->node_count; n++) print_node(g, n, out);
}

void sluice_graph_print(const sluice_graph *g, FILE *out)
{
    if (g != NULL && out != NULL) sl_graph_print(g, out);
}
