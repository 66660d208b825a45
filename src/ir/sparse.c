/* sparse.c: see sparse.h. */
#include "ir/sparse.h"

#include <inttypes.h>

#include "ir/op_rows.h"

const sl_shape *sl_parameter_shape(const sluice_graph *g, int parameter)
{
    const sl_parameter *p = &g->parameters[parameter];
    return sl_parameter_is_compact(p) ? &p->table : &g->values[p->value].shape;
}

int64_t sl_parameter_elements(const sluice_graph *g, int parameter)
{
    const sl_parameter *p = &g->parameters[parameter];
    return sl_parameter_is_compact(p) ? sl_shape_elements(&p->table) : p->count;
}

/* ---- uses ---- */

/* Whether a node looks rows of `table` up, by the value `ids` or a view of it. */
static bool looks_up(const sluice_graph *g, const sl_node *n, int table)
{
    return n->op == SL_OP_EMBEDDING && n->inputs[1] == g->parameters[table].value;
}

static int root_of(const sluice_graph *g, int value)
{
    return g->values[value].storage;
}

int sl_graph_table_of(const sluice_graph *g, int input)
{
    for (int n = 0; n < g->forward_count; n++) {
        const sl_node *node = &g->nodes[n];
        if (node->op != SL_OP_EMBEDDING || root_of(g, node->inputs[0]) != input) continue;
        int table = g->values[root_of(g, node->inputs[1])].parameter;
        if (table >= 0 && sl_parameter_is_compact(&g->parameters[table])) return table;
    }
    return -1;
}

static sluice_status refuse(const sluice_graph *g, int table, const char *what, const sl_node *n)
{
    return sl_fail(SLUICE_ERR_USAGE, "parameter \"%.64s\" is sparse, and %s %s \"%.64s\"; leave it dense",
                   g->parameters[table].name, what, sl_ops[n->op].name, n->name);
}

/* The ids of a table become places among the rows of a step: nothing else may read them. */
static sluice_status check_ids(const sluice_graph *g, int table, const sl_node *embedding)
{
    int input = root_of(g, embedding->inputs[0]);
    if (g->values[input].kind != SL_VALUE_INPUT)
        return refuse(g, table, "its ids must be an input of the graph, which those are not of", embedding);
    for (int n = 0; n < g->forward_count; n++) {
        const sl_node *node = &g->nodes[n];
        if (sl_ops[node->op].view) continue;
        for (int i = 0; i < node->input_count; i++)
            if (root_of(g, node->inputs[i]) == input && !(i == 0 && looks_up(g, node, table)))
                return refuse(g, table, "its ids may have no other reader, as they have in", node);
    }
    return SLUICE_OK;
}

static sluice_status check_uses(const sluice_graph *g, int table)
{
    int value = g->parameters[table].value;
    for (int n = 0; n < g->forward_count; n++) {
        const sl_node *node = &g->nodes[n];
        for (int i = 0; i < node->input_count; i++) {
            if (root_of(g, node->inputs[i]) != value) continue;
            if (i != 1 || !looks_up(g, node, table)) return refuse(g, table, "only embeddings may read it, not", node);
            SL_TRY(check_ids(g, table, node));
        }
    }
    return SLUICE_OK;
}

/* ---- rows of a step ---- */

/* Ids of one micro-batch, each input once. */
static uint64_t ids_of(const sluice_graph *g, int table)
{
    uint64_t ids = 0;
    for (int i = 0; i < g->input_count; i++)
        for (int n = 0; n < g->forward_count; n++) {
            const sl_node *node = &g->nodes[n];
            if (!looks_up(g, node, table) || root_of(g, node->inputs[0]) != g->inputs[i]) continue;
            ids += (uint64_t)sl_shape_elements(&g->values[g->inputs[i]].shape);
            break;
        }
    return ids;
}

static int64_t rows_of_step(const sluice_graph *g, int table, int64_t rows, uint64_t micro_batches)
{
    uint64_t named = ids_of(g, table);
    int64_t most = g->parameters[table].most_rows;
    if (micro_batches > 0 && named > UINT64_MAX / micro_batches) return rows;
    named *= micro_batches;
    if (most > 0 && (uint64_t)most < named) named = (uint64_t)most;
    return named < (uint64_t)rows ? (int64_t)named : rows;
}

static sluice_status compact(sluice_graph *g, int table, uint64_t micro_batches)
{
    sl_parameter *p = &g->parameters[table];
    sl_value *v = &g->values[p->value];
    SL_TRY(check_uses(g, table));
    if (v->shape.dim[0] > INT32_MAX)
        return sl_fail(SLUICE_ERR_USAGE, "parameter \"%.64s\" has %" PRId64 " rows; a sparse one has at most %d",
                       p->name, v->shape.dim[0], INT32_MAX);
    p->table = v->shape;
    v->shape.dim[0] = rows_of_step(g, table, v->shape.dim[0], micro_batches);
    p->count = sl_shape_elements(&v->shape);
    return SLUICE_OK;
}

sluice_status sl_graph_compact(sluice_graph *g, uint64_t micro_batches)
{
    SL_TRY(sluice_graph_check(g));
    for (int p = 0; !g->finished && p < g->parameter_count; p++)
        if (g->parameters[p].is_sparse && !sl_parameter_is_compact(&g->parameters[p]))
            SL_TRY(compact(g, p, micro_batches));
    return SLUICE_OK;
}
