/* engine_batch.c: what a batch must be before anything of it is used: every input once, in its size, no id or target that
 * its table does not have, and positions that count through documents. */
#include <inttypes.h>
#include <string.h>

#include "core/alloc.h"
#include "core/quote.h"
#include "ir/sparse.h"
#include "ir/tile.h"
#include "train/engine_parts.h"

/* ---- which inputs are places in a table ---- */

static sl_index_check check_of(const sluice_graph *g, int node)
{
    const sl_node *n = &g->nodes[node];
    const sl_index_rule *rule = &sl_ops[n->op].index;
    const sl_value *read = &g->values[n->inputs[rule->table]];
    const sl_shape *table = read->kind == SL_VALUE_PARAMETER ? sl_parameter_shape(g, read->parameter) : &read->shape;
    int64_t places = table->dim[rule->last ? table->rank - 1 : 0], most = (int64_t)INT32_MAX + 1;
    return (sl_index_check){ .value = g->values[n->inputs[rule->input]].storage,
                             .node = node,
                             .places = (uint32_t)(places < most ? places : most),
                             .ignores = rule->ignores || rule->labels,
                             .ignored = rule->ignores  ? n->attrs.cross_entropy.ignore_index
                                        : rule->labels ? -1
                                                       : 0 };
}

/* Tiles of one table, and tables of one size, ask for the same. */
static bool has_check(const sluice_engine *e, const sl_index_check *c)
{
    for (int i = 0; i < e->index_count; i++) {
        const sl_index_check *other = &e->indices[i];
        if (other->value == c->value && other->places == c->places && other->ignores == c->ignores &&
            other->ignored == c->ignored)
            return true;
    }
    return false;
}

/* The input that a node reads as positions in documents; -1: none. */
static int positions_of(const sluice_graph *g, const sl_node *n)
{
    if (!sl_ops[n->op].positions) return -1;
    int value = g->values[n->inputs[n->input_count - 1]].storage;
    const sl_value *v = &g->values[value];
    return v->kind == SL_VALUE_INPUT && v->dtype == SLUICE_I32 && v->shape.rank == 2 ? value : -1;
}

static sluice_status find_positions(sluice_engine *e)
{
    const sluice_graph *g = e->graph;
    e->position_inputs = sl_alloc_array((size_t)g->input_count + 1, sizeof *e->position_inputs, "inputs of positions");
    if (e->position_inputs == NULL) return SLUICE_ERR_NO_MEMORY;
    for (int n = 0; n < g->forward_count; n++) {
        int value = positions_of(g, &g->nodes[n]), i = 0;
        while (i < e->position_count && e->position_inputs[i] != value) i++;
        if (value >= 0 && i == e->position_count) e->position_inputs[e->position_count++] = value;
    }
    return SLUICE_OK;
}

static sluice_status find_bags(sluice_engine *e)
{
    const sluice_graph *g = e->graph;
    int count = 0;
    for (int n = 0; n < g->forward_count; n++) count += g->nodes[n].op == SL_OP_BAG;
    e->bag_nodes = sl_alloc_array((size_t)count + 1, sizeof *e->bag_nodes, "bags");
    if (e->bag_nodes == NULL) return SLUICE_ERR_NO_MEMORY;
    for (int n = 0; n < g->forward_count; n++)
        if (g->nodes[n].op == SL_OP_BAG) e->bag_nodes[e->bag_count++] = n;
    return SLUICE_OK;
}

sluice_status sl_engine_find_indices(sluice_engine *e)
{
    SL_TRY(find_positions(e));
    SL_TRY(find_bags(e));
    const sluice_graph *g = e->graph;
    int count = 0;
    for (int n = 0; n < g->forward_count; n++) count += sl_ops[g->nodes[n].op].index.there;
    e->indices = sl_alloc_array((size_t)count + 1, sizeof *e->indices, "inputs that are indices");
    if (e->indices == NULL) return SLUICE_ERR_NO_MEMORY;
    for (int n = 0; n < g->forward_count; n++) {
        if (!sl_ops[g->nodes[n].op].index.there) continue;
        sl_index_check c = check_of(g, n);
        if (g->values[c.value].kind == SL_VALUE_INPUT && !has_check(e, &c)) e->indices[e->index_count++] = c;
    }
    return SLUICE_OK;
}

/* ---- checks ---- */

/* A row of `count` at once, without a branch. */
static inline int32_t bad_in(const int32_t *x, int count, int32_t last, int32_t ignored)
{
    int32_t bad = 0;
    for (int i = 0; i < count; i++) bad |= ((x[i] < 0) | (x[i] > last)) & (x[i] != ignored);
    return bad;
}

/* In blocks of a fixed size, which compilers make vectors of: a batch is looked at in every step. */
static bool all_in_range(const int32_t *x, int64_t count, const sl_index_check *c)
{
    enum { BLOCK = 64 };
    int32_t bad = 0, last = (int32_t)(c->places - 1), ignored = c->ignored;
    int64_t i = 0;
    for (; i + BLOCK <= count; i += BLOCK) bad |= bad_in(x + i, BLOCK, last, ignored);
    return (bad | bad_in(x + i, (int)(count - i), last, ignored)) == 0;
}

static sluice_status fail_index(const sluice_engine *e, const sl_index_check *c, const int32_t *x)
{
    const sluice_graph *g = e->graph;
    const sl_node *n = &g->nodes[c->node];
    const sl_value *table = &g->values[n->inputs[sl_ops[n->op].index.table]];
    char ignored[48] = "", what[160];
    int64_t i = 0;
    while ((uint32_t)x[i] < c->places || (c->ignores && x[i] == c->ignored)) i++;
    if (c->ignores) snprintf(ignored, sizeof ignored, ", and %" PRId32 " is ignored", c->ignored);
    if (table->parameter >= 0)
        snprintf(what, sizeof what, "the rows of \"%.64s\"", sl_whole_name(g, table->parameter));
    else
        snprintf(what, sizeof what, "the classes of %s \"%.64s\"", sl_ops[n->op].name, n->name);
    return sl_fail(SLUICE_ERR_INPUT, "input \"%s\": element %" PRId64 " is %" PRId32 ", but %s are 0 to %" PRIu32 "%s",
                   g->values[c->value].name, i, x[i], what, c->places - 1, ignored);
}

static sluice_status check_indices(const sluice_engine *e, int value, const void *data)
{
    int64_t count = sl_shape_elements(&e->graph->values[value].shape);
    for (int i = 0; i < e->index_count; i++) {
        const sl_index_check *c = &e->indices[i];
        if (c->value == value && !all_in_range(data, count, c)) return fail_index(e, c, data);
    }
    return SLUICE_OK;
}

static inline uint32_t is_bad_position(const int32_t *x, int64_t t)
{
    return (x[t] != 0) & ((uint32_t)x[t] - 1 != (uint32_t)x[t - 1]);
}

/* The first position of a row that neither begins a document nor goes on in one; `count` where all are right. */
static int64_t bad_position(const int32_t *x, int64_t count)
{
    uint32_t bad = 0;
    int64_t t = 1;
    if (x[0] != 0) return 0;
    for (int64_t i = 1; i < count; i++) bad |= is_bad_position(x, i); /* without a branch: in every step */
    if (bad == 0) return count;
    while (!is_bad_position(x, t)) t++;
    return t;
}

/* positions[B,T]: kernels take t - positions[t] for where the document of t begins, and never check it. */
static sluice_status check_positions(const sluice_engine *e, int value, const int32_t *x)
{
    const sl_value *v = &e->graph->values[value];
    int64_t length = v->shape.dim[v->shape.rank - 1], rows = sl_shape_elements(&v->shape) / length;
    for (int64_t row = 0; row < rows; row++) {
        const int32_t *in = x + row * length;
        int64_t t = bad_position(in, length);
        if (t == length) continue;
        char after[64] = "a row begins with a document";
        if (t > 0) snprintf(after, sizeof after, "the one before it is %" PRId32, in[t - 1]);
        return sl_fail(SLUICE_ERR_INPUT,
                       "input \"%s\": row %" PRId64 ", element %" PRId64 " is %" PRId32
                       ", but %s: a position is 0 where a document begins, else one more than the position before it",
                       v->name, row, t, in[t], after);
    }
    return SLUICE_OK;
}

/* ends[B] of a bag: none before the one before it, none behind the rows. */
static sluice_status check_bags(const sluice_engine *e, int value, const int32_t *ends)
{
    const sluice_graph *g = e->graph;
    const sl_value *v = &g->values[value];
    for (int k = 0; k < e->bag_count; k++) {
        const sl_node *n = &g->nodes[e->bag_nodes[k]];
        const sl_shape *x = &g->values[n->inputs[0]].shape;
        int64_t rows = sl_shape_elements(x) / x->dim[x->rank - 1];
        if (g->values[n->inputs[1]].storage != value) continue;
        for (int64_t i = 0, before = 0; i < sl_shape_elements(&v->shape); before = ends[i++])
            if (ends[i] < before || ends[i] > rows)
                return sl_fail(SLUICE_ERR_INPUT,
                               "input \"%s\": element %" PRId64 " is %" PRId32 ", but bag \"%.64s\" begins at %" PRId64
                               " and there are %" PRId64 " rows",
                               v->name, i, ends[i], n->name, before, rows);
    }
    return SLUICE_OK;
}

static sluice_status check_array(const sluice_engine *e, const sluice_batch *batch, int i, const char *call)
{
    const sluice_array *a = &batch->arrays[i];
    int value = a->name != NULL ? sl_graph_find_input(e->graph, a->name) : -1;
    if (a->name == NULL) return sl_fail(SLUICE_ERR_USAGE, "%s: array %d of the batch has no name", call, i);
    if (value < 0)
        return sl_fail(SLUICE_ERR_USAGE, "the batch has an array %s, but the graph has no input of that name",
                       sl_quote(a->name).text);
    for (int k = 0; k < i; k++)
        if (strcmp(batch->arrays[k].name, a->name) == 0)
            return sl_fail(SLUICE_ERR_USAGE, "the batch has input \"%s\" twice", a->name);
    if (a->data == NULL) return sl_fail(SLUICE_ERR_USAGE, "%s: the data of input \"%s\" is NULL", call, a->name);
    if (a->bytes != sl_value_bytes(&e->graph->values[value]))
        return sl_fail(SLUICE_ERR_USAGE, "input \"%s\" holds %llu bytes, %zu were given", a->name,
                       (unsigned long long)sl_value_bytes(&e->graph->values[value]), a->bytes);
    for (int k = 0; k < e->position_count; k++)
        if (e->position_inputs[k] == value) SL_TRY(check_positions(e, value, a->data));
    if (e->bag_count > 0) SL_TRY(check_bags(e, value, a->data));
    return check_indices(e, value, a->data);
}

sluice_status sl_engine_check_batch(const sluice_engine *e, const sluice_batch *batch, const char *call)
{
    int inputs = e->graph->input_count;
    if (batch->count < 0 || (batch->count > 0 && batch->arrays == NULL))
        return sl_fail(SLUICE_ERR_USAGE, "%s: the batch has %d arrays, and %s", call, batch->count,
                       batch->arrays == NULL ? "they are NULL" : "must have at least 0");
    for (int i = 0; i < batch->count; i++) SL_TRY(check_array(e, batch, i, call));
    if (batch->count != inputs)
        return sl_fail(SLUICE_ERR_USAGE, "the batch has %d of the graph's %d inputs; give them all", batch->count,
                       inputs);
    return sl_engine_check_sequences(e, batch);
}
