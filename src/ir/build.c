/* build.c: graphs as the public builders make them: layers, inputs, parameters, nodes, loss and output. */
#include "ir/build.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ir/op_rows.h"

sluice_value sl_keep_error(sluice_graph *g, sluice_status status)
{
    g->error = status;
    snprintf(g->error_text, sizeof g->error_text, "%s", sluice_error());
    return SLUICE_NONE;
}

bool sl_building(sluice_graph *g, const char *what)
{
    if (g == NULL) {
        sl_fail(SLUICE_ERR_USAGE, "%s: the graph is NULL", what);
        return false;
    }
    if (g->error != SLUICE_OK) return false;
    if (g->finished) {
        sl_keep_error(g, sl_fail(SLUICE_ERR_USAGE, "%s: the graph belongs to an engine and can no longer grow", what));
        return false;
    }
    return true;
}

sluice_status sl_check_value(const sluice_graph *g, sluice_value value, const char *what)
{
    if (value == SLUICE_NONE) return sl_fail(SLUICE_ERR_USAGE, "%s: got SLUICE_NONE where a value is needed", what);
    if (value < 0 || value >= g->value_count)
        return sl_fail(SLUICE_ERR_USAGE, "%s: value %d is not of this graph, which has %d", what, value,
                       g->value_count);
    int producer = g->values[value].producer;
    if (producer >= 0 && g->nodes[producer].outputs[0] != value)
        return sl_fail(SLUICE_ERR_USAGE, "%s: value %d was not returned by a builder", what, value);
    return SLUICE_OK;
}

sluice_status sl_check_name(const char *what, const char *name)
{
    if (name == NULL || name[0] == '\0') return sl_fail(SLUICE_ERR_USAGE, "%s: needs a name", what);
    const sl_name_fault fault = sl_text_name_fault(name);
    if (fault.text[0] == '\0') return SLUICE_OK;
    return sl_fail(SLUICE_ERR_USAGE, "%s %s: %s", what, sl_quote(name).text, fault.text);
}

sluice_status sl_check_parameter_name(const char *name)
{
    SL_TRY(sl_check_name("parameter", name));
    const sl_name_fault fault = sl_tensor_name_fault(name);
    if (fault.text[0] != '\0') return sl_fail(SLUICE_ERR_USAGE, "parameter %s: %s", sl_quote(name).text, fault.text);
    if (sl_is_tile_name(name))
        return sl_fail(SLUICE_ERR_USAGE,
                       "parameter %s: names that end in .tile and a number belong to the tiles of large parameters",
                       sl_quote(name).text);
    return SLUICE_OK;
}

sluice_status sl_check_new(const sluice_graph *g, const char *what, const char *name)
{
    bool input = sl_graph_find_input(g, name) >= 0, parameter = sl_graph_find_parameter(g, name) >= 0;
    if (sl_graph_has_running(g, name))
        return sl_fail(SLUICE_ERR_USAGE, "%s \"%.64s\": a running statistic has this name already", what, name);
    if (!input && !parameter) return SLUICE_OK;
    bool same = input == (strcmp(what, "input") == 0);
    return sl_fail(SLUICE_ERR_USAGE, "%s \"%.64s\": %s", what, name,
                   same    ? "there is one of this name already"
                   : input ? "an input has this name already"
                           : "a parameter has this name already");
}

/* ---- layers ---- */

static sluice_status start_layer(sluice_graph *g, const char *name)
{
    SL_TRY(sl_grow((void **)&g->layers, &g->layer_capacity, g->layer_count + 1, sizeof *g->layers, "graph layers"));
    const char *kept = sl_arena_strdup(&g->arena, name);
    if (kept == NULL) return SLUICE_ERR_NO_MEMORY;
    g->layers[g->layer_count++] = (sl_layer){ .name = kept, .first_node = g->node_count };
    return SLUICE_OK;
}

void sluice_layer(sluice_graph *g, const char *name)
{
    if (!sl_building(g, "layer")) return;
    sluice_status st = sl_check_name("layer", name);
    if (st == SLUICE_OK) st = start_layer(g, name);
    if (st != SLUICE_OK) sl_keep_error(g, st);
}

/* ---- nodes ---- */

/* The values a new node writes. An op whose shape its inputs leave open comes with outputs[0] already made. */
static sluice_status make_outputs(sluice_graph *g, sl_node *node)
{
    const sl_op_def *row = &sl_ops[node->op];
    sl_shape shapes[SL_MAX_OUTPUTS];
    sluice_dtype dtypes[SL_MAX_OUTPUTS];
    const int count = sl_op_outputs(node->op, node->input_count);
    SL_TRY(row->infer(g, node, shapes, dtypes));
    for (int i = node->output_count; i < count; i++) {
        char name[SL_NODE_NAME_BYTES + 16];
        if (i == 0)
            snprintf(name, sizeof name, "%s", node->name);
        else
            snprintf(name, sizeof name, "%s.%s", node->name, row->saved[i - 1].name);
        const char *fault = sl_shape_fault(&shapes[i], dtypes[i]);
        if (fault != NULL) return sl_node_fail(node, "its result cannot be held: %s", fault);
        bool kept = i > 0 && row->saved[i - 1].kind == SL_SAVED_STATE;
        int value = sl_graph_add_value(g, kept ? SL_VALUE_STATE : SL_VALUE_ACTIVATION, dtypes[i], &shapes[i], name);
        if (value < 0) return (sluice_status)-value;
        node->outputs[i] = value;
    }
    node->output_count = count;
    return SLUICE_OK;
}

sluice_status sl_append_node(sluice_graph *g, sl_node *node)
{
    SL_TRY(make_outputs(g, node));
    if (g->layer_count == 0) SL_TRY(start_layer(g, "layer_0"));
    node->layer = g->layer_count - 1;
    node->phase = SL_PHASE_FORWARD;
    node->forward_of = -1;
    int index = sl_graph_add_node(g, node);
    if (index < 0) return (sluice_status)-index;
    g->layers[node->layer].node_count++;
    return SLUICE_OK;
}

sluice_value sl_graph_apply(sluice_graph *g, sl_op op, const char *name, const sl_attrs *attrs, int count,
                            const sluice_value *inputs)
{
    if (!sl_building(g, sl_ops[op].name)) return SLUICE_NONE;
    sl_node node = { .op = op, .input_count = count };
    if (attrs != NULL) node.attrs = *attrs;
    char made_up[SL_NODE_NAME_BYTES];
    snprintf(made_up, sizeof made_up, "%s_%d", sl_ops[op].name, g->node_count);
    node.name = name != NULL ? name : made_up;
    char label[SL_NODE_NAME_BYTES];
    snprintf(label, sizeof label, "%s \"%.64s\"", sl_ops[op].name, node.name);
    sluice_status st = SLUICE_OK;
    for (int i = 0; i < count && st == SLUICE_OK; i++) {
        st = sl_check_value(g, inputs[i], label);
        node.inputs[i] = inputs[i];
    }
    for (int i = 0; i < SL_MAX_OUTPUTS; i++) node.outputs[i] = -1;
    if (st == SLUICE_OK) st = sl_append_node(g, &node);
    return st == SLUICE_OK ? node.outputs[0] : sl_keep_error(g, st);
}

/* ---- inputs and parameters ---- */

sluice_status sl_shape_from(const char *what, const char *name, sluice_dtype dtype, int rank, const int64_t *dims,
                            sl_shape *out)
{
    if (rank < 0 || rank > SL_MAX_RANK)
        return sl_fail(SLUICE_ERR_USAGE, "%s \"%.64s\": %d dimensions, must be 0 to %d", what, name, rank, SL_MAX_RANK);
    if (rank > 0 && dims == NULL) return sl_fail(SLUICE_ERR_USAGE, "%s \"%.64s\": dims is NULL", what, name);
    sl_shape s = { .rank = rank };
    for (int i = 0; i < rank; i++) s.dim[i] = dims[i];
    const char *fault = sl_shape_fault(&s, dtype);
    char text[160];
    if (fault != NULL)
        return sl_fail(SLUICE_ERR_USAGE, "%s \"%.64s\": shape %s: %s", what, name, sl_shape_text(&s, text, sizeof text),
                       fault);
    *out = s;
    return SLUICE_OK;
}

static sluice_status add_input(sluice_graph *g, const char *name, sluice_dtype dtype, int rank, const int64_t *dims,
                               int *value)
{
    sl_shape shape;
    SL_TRY(sl_check_name("input", name));
    if ((unsigned)dtype >= SLUICE_DTYPE_COUNT)
        return sl_fail(SLUICE_ERR_USAGE, "input \"%.64s\": there is no dtype %d", name, (int)dtype);
    if (dtype != SLUICE_F32 && dtype != SLUICE_I32)
        return sl_fail(SLUICE_ERR_USAGE, "input \"%.64s\": is %s, must be f32 or i32; an engine rounds what it reads",
                       name, sl_dtype_name(dtype));
    SL_TRY(sl_shape_from("input", name, dtype, rank, dims, &shape));
    SL_TRY(sl_check_new(g, "input", name));
    *value = sl_graph_add_value(g, SL_VALUE_INPUT, dtype, &shape, name);
    return *value < 0 ? (sluice_status) - *value : SLUICE_OK;
}

sluice_value sluice_input(sluice_graph *g, const char *name, sluice_dtype dtype, int rank, const int64_t *dims)
{
    if (!sl_building(g, "input")) return SLUICE_NONE;
    int value = -1;
    sluice_status st = add_input(g, name, dtype, rank, dims, &value);
    return st == SLUICE_OK ? value : sl_keep_error(g, st);
}

static sluice_status check_init(const char *name, const sluice_init *init)
{
    if ((unsigned)init->kind > SLUICE_INIT_UNIFORM)
        return sl_fail(SLUICE_ERR_USAGE, "parameter \"%.64s\": there is no initialisation %d", name, (int)init->kind);
    bool scaled = init->kind == SLUICE_INIT_NORMAL || init->kind == SLUICE_INIT_UNIFORM;
    if (scaled && (!(init->scale >= 0) || isinf(init->scale)))
        return sl_fail(SLUICE_ERR_USAGE, "parameter \"%.64s\": initial scale %g must be finite and not negative", name,
                       (double)init->scale);
    return SLUICE_OK;
}

sluice_status sl_add_parameter(sluice_graph *g, const char *name, int rank, const int64_t *dims,
                               const sluice_init *init, int *value)
{
    sl_shape shape;
    SL_TRY(sl_check_parameter_name(name));
    SL_TRY(sl_shape_from("parameter", name, SLUICE_F32, rank, dims, &shape));
    SL_TRY(check_init(name, init));
    SL_TRY(sl_check_new(g, "parameter", name));
    SL_TRY(sl_grow((void **)&g->parameters, &g->parameter_capacity, g->parameter_count + 1, sizeof *g->parameters,
                   "graph parameters"));
    int v = sl_graph_add_value(g, SL_VALUE_PARAMETER, SLUICE_F32, &shape, name);
    if (v < 0) return (sluice_status)-v;
    g->values[v].parameter = g->parameter_count;
    g->parameters[g->parameter_count++] = (sl_parameter){
        .name = g->values[v].name,
        .value = v,
        .gradient = -1,
        .layer = -1,
        .count = sl_shape_elements(&shape),
        .init = *init,
        .trainable = true,
        .is_norm_or_bias = rank < 2,
    };
    *value = v;
    return sl_graph_name_parameters(g);
}

sluice_value sluice_parameter(sluice_graph *g, const char *name, int rank, const int64_t *dims, sluice_init init)
{
    if (!sl_building(g, "parameter")) return SLUICE_NONE;
    int value = -1;
    sluice_status st = sl_add_parameter(g, name, rank, dims, &init, &value);
    return st == SLUICE_OK ? value : sl_keep_error(g, st);
}

void sluice_freeze(sluice_graph *g, sluice_value parameter)
{
    if (!sl_building(g, "freeze")) return;
    sluice_status st = sl_check_value(g, parameter, "freeze");
    if (st == SLUICE_OK && g->values[parameter].kind != SL_VALUE_PARAMETER) {
        char text[SL_OPERAND_BYTES];
        st = sl_fail(SLUICE_ERR_USAGE, "freeze: %s is not a parameter", sl_operand_text(g, parameter, text));
    }
    if (st == SLUICE_OK)
        g->parameters[g->values[parameter].parameter].trainable = false;
    else
        sl_keep_error(g, st);
}

static sluice_status make_sparse(sluice_graph *g, sluice_value parameter, int64_t most_rows)
{
    char text[SL_OPERAND_BYTES];
    SL_TRY(sl_check_value(g, parameter, "sparse"));
    const sl_value *v = &g->values[parameter];
    if (v->kind != SL_VALUE_PARAMETER || v->shape.rank != 2)
        return sl_fail(SLUICE_ERR_USAGE, "sparse: %s is not a parameter of two dimensions",
                       sl_operand_text(g, parameter, text));
    if (most_rows < 0)
        return sl_fail(SLUICE_ERR_USAGE, "sparse: a step of %s touches at most %" PRId64 " rows? Give 0 or more",
                       sl_operand_text(g, parameter, text), most_rows);
    g->parameters[v->parameter].is_sparse = true;
    g->parameters[v->parameter].most_rows = most_rows;
    return SLUICE_OK;
}

void sluice_sparse(sluice_graph *g, sluice_value parameter, int64_t most_rows)
{
    if (!sl_building(g, "sparse")) return;
    sluice_status st = make_sparse(g, parameter, most_rows);
    if (st != SLUICE_OK) sl_keep_error(g, st);
}

static sluice_status set_parts(sluice_graph *g, sluice_value value, const sl_part *parts, int count)
{
    SL_TRY(sl_check_value(g, value, "parts"));
    sl_parameter *p = &g->parameters[g->values[value].parameter];
    int64_t rows = 0;
    assert(g->values[value].kind == SL_VALUE_PARAMETER && count <= SL_MAX_ROW_PARTS);
    for (int i = 0; i < count; i++) {
        rows += parts[i].rows;
        p->parts[i] = (sl_part){ sl_arena_strdup(&g->arena, parts[i].name), parts[i].rows };
        if (p->parts[i].name == NULL) return SLUICE_ERR_NO_MEMORY;
    }
    if (rows != g->values[value].shape.dim[0])
        return sl_fail(SLUICE_ERR_USAGE, "parts of \"%.64s\": they have %" PRId64 " rows, it has %" PRId64, p->name,
                       rows, g->values[value].shape.dim[0]);
    p->part_count = count;
    return SLUICE_OK;
}

void sl_graph_set_parts(sluice_graph *g, sluice_value parameter, const sl_part *parts, int count)
{
    if (!sl_building(g, "parts")) return;
    sluice_status st = set_parts(g, parameter, parts, count);
    if (st != SLUICE_OK) sl_keep_error(g, st);
}

void sl_graph_limit_rows(sluice_graph *g, sluice_value value, sl_rows rows)
{
    if (!sl_building(g, "rows")) return;
    sluice_status st = sl_check_value(g, value, "rows");
    sl_value *v = st == SLUICE_OK ? &g->values[value] : NULL;
    if (v != NULL && (v->shape.rank == 0 || (g->row_room[rows] != 0 && g->row_room[rows] != v->shape.dim[0])))
        st = sl_fail(SLUICE_ERR_USAGE, "rows: \"%.64s\" does not have the %" PRId64 " rows of the values before it",
                     v->name, g->row_room[rows]);
    if (st != SLUICE_OK) {
        sl_keep_error(g, st);
        return;
    }
    v->rows = rows;
    g->row_room[rows] = v->shape.dim[0];
}

/* ---- loss and output ---- */

void sluice_set_loss(sluice_graph *g, sluice_value loss)
{
    if (!sl_building(g, "set_loss")) return;
    sluice_status st = sl_check_value(g, loss, "set_loss");
    if (st == SLUICE_OK) {
        const sl_value *v = &g->values[loss];
        char text[SL_OPERAND_BYTES];
        if (v->shape.rank != 0 || v->dtype != SLUICE_F32 || v->producer < 0)
            st = sl_fail(SLUICE_ERR_USAGE, "set_loss: %s is not a computed scalar: use a loss, sum or mean",
                         sl_operand_text(g, loss, text));
    }
    if (st == SLUICE_OK)
        g->loss = loss;
    else
        sl_keep_error(g, st);
}

void sluice_set_output(sluice_graph *g, sluice_value output)
{
    if (!sl_building(g, "set_output")) return;
    sluice_status st = sl_check_value(g, output, "set_output");
    if (st == SLUICE_OK && g->values[output].dtype != SLUICE_F32)
        st = sl_fail(SLUICE_ERR_USAGE, "set_output: \"%.64s\" is %s, must be f32", g->values[output].name,
                     sl_dtype_name(g->values[output].dtype));
    if (st == SLUICE_OK)
        g->output = output;
    else
        sl_keep_error(g, st);
}
