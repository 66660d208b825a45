/* build.c: the public builders.
 *
 * A builder never fails loudly. The first error is kept in the graph, every later builder does nothing, and
 * sluice_graph_check or the engine reports that first error. So a model is written without a check per line, and the
 * message is about the cause, not about what followed from it. */
#include <assert.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/quote.h"
#include "core/sized.h"
#include "ir/graph.h"
#include "ir/op_rows.h"
#include "ir/rotary_table.h"

#define NAME_BYTES (SL_MAX_NAME_BYTES + 1)

/* Keeps this thread's newest failure as the graph's error. */
static sluice_value keep_error(sluice_graph *g, sluice_status status)
{
    g->error = status;
    snprintf(g->error_text, sizeof g->error_text, "%s", sluice_error());
    return SLUICE_NONE;
}

/* True where a builder may go on. Every builder starts here. */
static bool building(sluice_graph *g, const char *what)
{
    if (g == NULL) {
        sl_fail(SLUICE_ERR_USAGE, "%s: the graph is NULL", what);
        return false;
    }
    if (g->error != SLUICE_OK) return false;
    if (g->finished) {
        keep_error(g, sl_fail(SLUICE_ERR_USAGE, "%s: the graph belongs to an engine and can no longer grow", what));
        return false;
    }
    return true;
}

/* Fails unless `value` is one that a builder of this graph returned; saved statistics are not handed out. */
static sluice_status check_value(const sluice_graph *g, sluice_value value, const char *what)
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

static sluice_status check_name(const char *what, const char *name)
{
    if (name == NULL || name[0] == '\0') return sl_fail(SLUICE_ERR_USAGE, "%s: needs a name", what);
    const sl_name_fault fault = sl_text_name_fault(name);
    if (fault.text[0] == '\0') return SLUICE_OK;
    return sl_fail(SLUICE_ERR_USAGE, "%s %s: %s", what, sl_quote(name).text, fault.text);
}

/* A parameter's name must come back from weights files and checkpoints as it went in. */
static sluice_status check_parameter_name(const char *name)
{
    SL_TRY(check_name("parameter", name));
    const sl_name_fault fault = sl_tensor_name_fault(name);
    if (fault.text[0] != '\0') return sl_fail(SLUICE_ERR_USAGE, "parameter %s: %s", sl_quote(name).text, fault.text);
    if (sl_is_tile_name(name))
        return sl_fail(SLUICE_ERR_USAGE,
                       "parameter %s: names that end in .tile and a number belong to the tiles of large parameters",
                       sl_quote(name).text);
    return SLUICE_OK;
}

/* Batches, weights files and messages tell inputs and parameters apart by their names alone. */
static sluice_status check_new(const sluice_graph *g, const char *what, const char *name)
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
    if (!building(g, "layer")) return;
    sluice_status st = check_name("layer", name);
    if (st == SLUICE_OK) st = start_layer(g, name);
    if (st != SLUICE_OK) keep_error(g, st);
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
        char name[NAME_BYTES + 16];
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

static sluice_status append(sluice_graph *g, sl_node *node)
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
    if (!building(g, sl_ops[op].name)) return SLUICE_NONE;
    sl_node node = { .op = op, .input_count = count };
    if (attrs != NULL) node.attrs = *attrs;
    char made_up[NAME_BYTES];
    snprintf(made_up, sizeof made_up, "%s_%d", sl_ops[op].name, g->node_count);
    node.name = name != NULL ? name : made_up;
    char label[NAME_BYTES];
    snprintf(label, sizeof label, "%s \"%.64s\"", sl_ops[op].name, node.name);
    sluice_status st = SLUICE_OK;
    for (int i = 0; i < count && st == SLUICE_OK; i++) {
        st = check_value(g, inputs[i], label);
        node.inputs[i] = inputs[i];
    }
    for (int i = 0; i < SL_MAX_OUTPUTS; i++) node.outputs[i] = -1;
    if (st == SLUICE_OK) st = append(g, &node);
    return st == SLUICE_OK ? node.outputs[0] : keep_error(g, st);
}

static sluice_value apply_one(sluice_graph *g, sl_op op, const sl_attrs *attrs, sluice_value x)
{
    return sl_graph_apply(g, op, NULL, attrs, 1, &x);
}

static sluice_value apply_two(sluice_graph *g, sl_op op, const sl_attrs *attrs, sluice_value a, sluice_value b)
{
    return sl_graph_apply(g, op, NULL, attrs, 2, (sluice_value[]){ a, b });
}

/* Nodes with a weight are called after it: "h.0.ln_1" for "h.0.ln_1.weight". Returns buf, or NULL where there is no
 * such name. */
static const char *name_of_weight(const sluice_graph *g, sluice_value weight, char buf[NAME_BYTES])
{
    static const char suffix[] = ".weight";
    if (g == NULL || weight < 0 || weight >= g->value_count) return NULL;
    const sl_value *v = &g->values[weight];
    size_t length = strlen(v->name), tail = sizeof suffix - 1;
    if (v->kind != SL_VALUE_PARAMETER || length <= tail || strcmp(v->name + length - tail, suffix) != 0) return NULL;
    snprintf(buf, NAME_BYTES, "%.*s", (int)(length - tail), v->name);
    return buf;
}

/* ---- inputs and parameters ---- */

static sluice_status shape_from(const char *what, const char *name, sluice_dtype dtype, int rank, const int64_t *dims,
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
    SL_TRY(check_name("input", name));
    if ((unsigned)dtype >= SLUICE_DTYPE_COUNT)
        return sl_fail(SLUICE_ERR_USAGE, "input \"%.64s\": there is no dtype %d", name, (int)dtype);
    if (dtype != SLUICE_F32 && dtype != SLUICE_I32)
        return sl_fail(SLUICE_ERR_USAGE, "input \"%.64s\": is %s, must be f32 or i32; an engine rounds what it reads",
                       name, sl_dtype_name(dtype));
    SL_TRY(shape_from("input", name, dtype, rank, dims, &shape));
    SL_TRY(check_new(g, "input", name));
    *value = sl_graph_add_value(g, SL_VALUE_INPUT, dtype, &shape, name);
    return *value < 0 ? (sluice_status) - *value : SLUICE_OK;
}

sluice_value sluice_input(sluice_graph *g, const char *name, sluice_dtype dtype, int rank, const int64_t *dims)
{
    if (!building(g, "input")) return SLUICE_NONE;
    int value = -1;
    sluice_status st = add_input(g, name, dtype, rank, dims, &value);
    return st == SLUICE_OK ? value : keep_error(g, st);
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

static sluice_status add_parameter(sluice_graph *g, const char *name, int rank, const int64_t *dims,
                                   const sluice_init *init, int *value)
{
    sl_shape shape;
    SL_TRY(check_parameter_name(name));
    SL_TRY(shape_from("parameter", name, SLUICE_F32, rank, dims, &shape));
    SL_TRY(check_init(name, init));
    SL_TRY(check_new(g, "parameter", name));
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
    if (!building(g, "parameter")) return SLUICE_NONE;
    int value = -1;
    sluice_status st = add_parameter(g, name, rank, dims, &init, &value);
    return st == SLUICE_OK ? value : keep_error(g, st);
}

void sluice_freeze(sluice_graph *g, sluice_value parameter)
{
    if (!building(g, "freeze")) return;
    sluice_status st = check_value(g, parameter, "freeze");
    if (st == SLUICE_OK && g->values[parameter].kind != SL_VALUE_PARAMETER) {
        char text[SL_OPERAND_BYTES];
        st = sl_fail(SLUICE_ERR_USAGE, "freeze: %s is not a parameter", sl_operand_text(g, parameter, text));
    }
    if (st == SLUICE_OK)
        g->parameters[g->values[parameter].parameter].trainable = false;
    else
        keep_error(g, st);
}

static sluice_status make_sparse(sluice_graph *g, sluice_value parameter, int64_t most_rows)
{
    char text[SL_OPERAND_BYTES];
    SL_TRY(check_value(g, parameter, "sparse"));
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
    if (!building(g, "sparse")) return;
    sluice_status st = make_sparse(g, parameter, most_rows);
    if (st != SLUICE_OK) keep_error(g, st);
}

static sluice_status set_parts(sluice_graph *g, sluice_value value, const sl_part *parts, int count)
{
    SL_TRY(check_value(g, value, "parts"));
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
    if (!building(g, "parts")) return;
    sluice_status st = set_parts(g, parameter, parts, count);
    if (st != SLUICE_OK) keep_error(g, st);
}

void sl_graph_limit_rows(sluice_graph *g, sluice_value value, sl_rows rows)
{
    if (!building(g, "rows")) return;
    sluice_status st = check_value(g, value, "rows");
    sl_value *v = st == SLUICE_OK ? &g->values[value] : NULL;
    if (v != NULL && (v->shape.rank == 0 || (g->row_room[rows] != 0 && g->row_room[rows] != v->shape.dim[0])))
        st = sl_fail(SLUICE_ERR_USAGE, "rows: \"%.64s\" does not have the %" PRId64 " rows of the values before it",
                     v->name, g->row_room[rows]);
    if (st != SLUICE_OK) {
        keep_error(g, st);
        return;
    }
    v->rows = rows;
    g->row_room[rows] = v->shape.dim[0];
}

/* ---- operations ---- */

sluice_value sluice_add(sluice_graph *g, sluice_value a, sluice_value b)
{
    return apply_two(g, SL_OP_ADD, NULL, a, b);
}

sluice_value sluice_subtract(sluice_graph *g, sluice_value a, sluice_value b)
{
    return sluice_add(g, a, sluice_scale(g, b, -1.0f));
}

sluice_value sluice_multiply(sluice_graph *g, sluice_value a, sluice_value b)
{
    return apply_two(g, SL_OP_MULTIPLY, NULL, a, b);
}

sluice_value sluice_scale(sluice_graph *g, sluice_value x, float factor)
{
    if (!building(g, "scale")) return SLUICE_NONE;
    if (!isfinite(factor))
        return keep_error(g, sl_fail(SLUICE_ERR_USAGE, "scale: factor %g must be finite", (double)factor));
    return apply_one(g, SL_OP_SCALE, &(sl_attrs){ .scale = { factor } }, x);
}

sluice_value sluice_linear(sluice_graph *g, sluice_value x, int64_t features, const char *name)
{
    if (!building(g, "linear")) return SLUICE_NONE;
    sluice_status st = check_name("linear", name);
    if (st == SLUICE_OK) st = check_value(g, x, name);
    if (st == SLUICE_OK && g->values[x].shape.rank == 0)
        st = sl_fail(SLUICE_ERR_USAGE, "linear \"%.64s\": its input \"%.64s\" is a scalar", name, g->values[x].name);
    if (st != SLUICE_OK) return keep_error(g, st);
    int64_t in = sl_shape_last(&g->values[x].shape);
    sluice_init init = { SLUICE_INIT_UNIFORM, (float)(1.0 / sqrt((double)in)) };
    char weight_name[NAME_BYTES + 8], bias_name[NAME_BYTES + 8]; /* too long a name is the parameter's to refuse */
    snprintf(weight_name, sizeof weight_name, "%s.weight", name);
    snprintf(bias_name, sizeof bias_name, "%s.bias", name);
    sluice_value weight = sluice_parameter(g, weight_name, 2, (int64_t[]){ features, in }, init);
    sluice_value bias = sluice_parameter(g, bias_name, 1, &features, init);
    return sluice_linear_with(g, x, weight, bias, false);
}

sluice_value sluice_linear_with(sluice_graph *g, sluice_value x, sluice_value weight, sluice_value bias, bool in_out)
{
    char name[NAME_BYTES];
    return sl_graph_apply(g, SL_OP_LINEAR, name_of_weight(g, weight, name), &(sl_attrs){ .linear = { in_out } },
                          bias == SLUICE_NONE ? 2 : 3, (sluice_value[]){ x, weight, bias });
}

sluice_value sluice_matmul(sluice_graph *g, sluice_value a, sluice_value b, bool transpose_a, bool transpose_b)
{
    return apply_two(g, SL_OP_MATMUL, &(sl_attrs){ .matmul = { transpose_a, transpose_b } }, a, b);
}

sluice_value sluice_embedding(sluice_graph *g, sluice_value ids, sluice_value table)
{
    char name[NAME_BYTES];
    return sl_graph_apply(g, SL_OP_EMBEDDING, name_of_weight(g, table, name), NULL, 2, (sluice_value[]){ ids, table });
}

sluice_value sluice_bag(sluice_graph *g, sluice_value rows, sluice_value ends, bool mean)
{
    return sl_graph_apply(g, SL_OP_BAG, NULL, &(sl_attrs){ .bag = { mean } }, 2, (sluice_value[]){ rows, ends });
}

sluice_value sluice_embedding_bag(sluice_graph *g, sluice_value ids, sluice_value ends, sluice_value table, bool mean)
{
    return sluice_bag(g, sluice_embedding(g, ids, table), ends, mean);
}

/* ---- images ---- */

void sluice_conv_options_init_sized(sluice_conv_options *o, size_t size)
{
    sluice_conv_options defaults = { .stride_h = 1, .stride_w = 1, .dilation_h = 1, .dilation_w = 1, .groups = 1 };
    sl_sized_fill(o, size, &defaults, sizeof defaults);
}

sluice_value sluice_conv2d(sluice_graph *g, sluice_value x, sluice_value weight, sluice_value bias,
                           const sluice_conv_options *options)
{
    sluice_conv_options o;
    char name[NAME_BYTES];
    if (!building(g, "conv2d")) return SLUICE_NONE;
    sluice_conv_options_init(&o);
    sluice_status st =
        sl_sized_take("sluice_conv_options", options, SL_THROUGH(sluice_conv_options, groups), &o, sizeof o);
    if (st != SLUICE_OK) return keep_error(g, st);
    sl_attrs attrs = { .conv = { o.stride_h, o.stride_w, o.padding_h, o.padding_w, o.dilation_h, o.dilation_w,
                                 o.groups } };
    return sl_graph_apply(g, SL_OP_CONV2D, name_of_weight(g, weight, name), &attrs, bias == SLUICE_NONE ? 2 : 3,
                          (sluice_value[]){ x, weight, bias });
}

void sluice_pool_options_init_sized(sluice_pool_options *o, size_t size)
{
    sl_sized_fill(o, size, &(sluice_pool_options){ .count_include_pad = true }, sizeof *o);
}

static sluice_value pool(sluice_graph *g, sl_op op, sluice_value x, const sluice_pool_options *options)
{
    sluice_pool_options o;
    if (!building(g, sl_ops[op].name)) return SLUICE_NONE;
    sluice_pool_options_init(&o);
    sluice_status st =
        sl_sized_take("sluice_pool_options", options, SL_THROUGH(sluice_pool_options, count_include_pad), &o, sizeof o);
    if (st != SLUICE_OK) return keep_error(g, st);
    sl_attrs attrs = { .pool = { .kernel_h = o.kernel_h,
                                 .kernel_w = o.kernel_w,
                                 .stride_h = o.stride_h != 0 ? o.stride_h : o.kernel_h,
                                 .stride_w = o.stride_w != 0 ? o.stride_w : o.kernel_w,
                                 .padding_h = o.padding_h,
                                 .padding_w = o.padding_w,
                                 .ceil_mode = o.ceil_mode,
                                 .include_padding = op == SL_OP_AVG_POOL2D && o.count_include_pad } };
    return apply_one(g, op, &attrs, x);
}

sluice_value sluice_max_pool2d(sluice_graph *g, sluice_value x, const sluice_pool_options *options)
{
    return pool(g, SL_OP_MAX_POOL2D, x, options);
}

sluice_value sluice_avg_pool2d(sluice_graph *g, sluice_value x, const sluice_pool_options *options)
{
    return pool(g, SL_OP_AVG_POOL2D, x, options);
}

sluice_value sluice_global_avg_pool(sluice_graph *g, sluice_value x)
{
    return apply_one(g, SL_OP_GLOBAL_AVG_POOL, NULL, x);
}

sluice_value sluice_flatten(sluice_graph *g, sluice_value x)
{
    if (!building(g, "flatten")) return SLUICE_NONE;
    sluice_status st = check_value(g, x, "flatten");
    int rank = st == SLUICE_OK ? g->values[x].shape.rank : 0;
    if (st == SLUICE_OK && rank < 2) {
        char text[SL_OPERAND_BYTES];
        st = sl_fail(SLUICE_ERR_USAGE, "flatten: %s has %d dimensions, needs 2 or more", sl_operand_text(g, x, text),
                     rank);
    }
    if (st != SLUICE_OK) return keep_error(g, st);
    int order[SL_MAX_RANK] = { 0, rank - 1 };
    for (int i = 2; i < rank; i++) order[i] = i - 1;
    sluice_value by_channel = rank == 2 ? x : sluice_transpose(g, x, order);
    if (by_channel == SLUICE_NONE || rank == 2) return by_channel;
    return sluice_reshape(g, by_channel, 2, (int64_t[]){ g->values[x].shape.dim[0], -1 });
}

sluice_value sluice_relu(sluice_graph *g, sluice_value x)
{
    return apply_one(g, SL_OP_RELU, NULL, x);
}

sluice_value sluice_gelu(sluice_graph *g, sluice_value x, bool exact)
{
    return apply_one(g, SL_OP_GELU, &(sl_attrs){ .gelu = { exact } }, x);
}

sluice_value sluice_silu(sluice_graph *g, sluice_value x)
{
    return apply_one(g, SL_OP_SILU, NULL, x);
}

sluice_value sluice_tanh(sluice_graph *g, sluice_value x)
{
    return apply_one(g, SL_OP_TANH, NULL, x);
}

sluice_value sluice_sigmoid(sluice_graph *g, sluice_value x)
{
    return apply_one(g, SL_OP_SIGMOID, NULL, x);
}

sluice_value sluice_swiglu(sluice_graph *g, sluice_value x)
{
    return apply_one(g, SL_OP_SWIGLU, NULL, x);
}

sluice_value sluice_geglu(sluice_graph *g, sluice_value x, bool exact)
{
    return apply_one(g, SL_OP_GEGLU, &(sl_attrs){ .gelu = { exact } }, x);
}

sluice_value sluice_softcap(sluice_graph *g, sluice_value x, float cap)
{
    return apply_one(g, SL_OP_SOFTCAP, &(sl_attrs){ .softcap = { cap } }, x);
}

sluice_value sluice_log_softmax(sluice_graph *g, sluice_value x)
{
    return apply_one(g, SL_OP_LOG_SOFTMAX, NULL, x);
}

sluice_value sluice_softmax(sluice_graph *g, sluice_value x)
{
    return apply_one(g, SL_OP_SOFTMAX, NULL, x);
}

sluice_value sluice_layer_norm(sluice_graph *g, sluice_value x, sluice_value weight, sluice_value bias, float epsilon)
{
    char name[NAME_BYTES];
    return sl_graph_apply(g, SL_OP_LAYER_NORM, name_of_weight(g, weight, name),
                          &(sl_attrs){ .norm = { .epsilon = epsilon } }, bias == SLUICE_NONE ? 2 : 3,
                          (sluice_value[]){ x, weight, bias });
}

sluice_value sluice_rms_norm(sluice_graph *g, sluice_value x, sluice_value weight, float epsilon)
{
    return sluice_rms_norm_offset(g, x, weight, epsilon, 0.0f);
}

sluice_value sluice_rms_norm_offset(sluice_graph *g, sluice_value x, sluice_value weight, float epsilon, float offset)
{
    char name[NAME_BYTES];
    return sl_graph_apply(g, SL_OP_RMS_NORM, name_of_weight(g, weight, name),
                          &(sl_attrs){ .norm = { .epsilon = epsilon, .offset = offset } }, 2,
                          (sluice_value[]){ x, weight });
}

/* "<name>.weight", all 1, and "<name>.bias", all 0, for the channels of x: inputs 1 and 2 of a channel norm. */
static sluice_status channel_parameters(sluice_graph *g, const char *what, sluice_value x, const char *name,
                                        sluice_value out[2])
{
    static const struct {
        const char *suffix;
        sluice_init_kind kind;
    } rows[2] = { { "weight", SLUICE_INIT_ONE }, { "bias", SLUICE_INIT_ZERO } };
    char text[SL_OPERAND_BYTES], full[NAME_BYTES + 8]; /* too long a name is the parameter's to refuse */
    SL_TRY(check_name(what, name));
    SL_TRY(check_value(g, x, what));
    if (g->values[x].shape.rank < 2)
        return sl_fail(SLUICE_ERR_USAGE, "%s \"%.64s\": %s must be [.., C]: rows of channels", what, name,
                       sl_operand_text(g, x, text));
    const int64_t channels = sl_shape_last(&g->values[x].shape);
    for (int i = 0; i < 2; i++) {
        snprintf(full, sizeof full, "%s.%s", name, rows[i].suffix);
        SL_TRY(add_parameter(g, full, 1, &channels, &(sluice_init){ rows[i].kind, 0 }, &out[i]));
    }
    return SLUICE_OK;
}

/* The names by which files have the running statistics of node `value`'s producer, whose name is `name`. */
static sluice_status add_running(sluice_graph *g, const char *name, sluice_value y)
{
    static const char *const suffixes[SL_RUNNING_NAMES] = { "running_mean", "running_var", "num_batches_tracked" };
    const sl_node *node = &g->nodes[g->values[y].producer];
    const int value = node->outputs[3];
    sl_running r = { .value = value, .channels = g->values[value].shape.dim[1] };
    r.momentum = node->attrs.batch_norm.momentum;
    SL_TRY(sl_grow((void **)&g->running, &g->running_capacity, g->running_count + 1, sizeof *g->running,
                   "running statistics"));
    for (int i = 0; i < SL_RUNNING_NAMES; i++) {
        r.names[i] = sl_arena_printf(&g->arena, "%s.%s", name, suffixes[i]);
        if (r.names[i] == NULL) return SLUICE_ERR_NO_MEMORY;
        SL_TRY(check_parameter_name(r.names[i]));
        SL_TRY(check_new(g, "running statistic", r.names[i]));
    }
    g->running[g->running_count++] = r;
    return SLUICE_OK;
}

void sluice_batch_norm_options_init_sized(sluice_batch_norm_options *o, size_t size)
{
    sluice_batch_norm_options defaults = { .epsilon = 1e-5f, .momentum = 0.1f, .residual = SLUICE_NONE };
    sl_sized_fill(o, size, &defaults, sizeof defaults);
}

static sluice_status read_batch_norm_options(const sluice_batch_norm_options *options, sluice_batch_norm_options *out)
{
    sluice_batch_norm_options_init(out);
    if (options == NULL) return SLUICE_OK;
    return sl_sized_take("sluice_batch_norm_options", options, SL_THROUGH(sluice_batch_norm_options, residual), out,
                         sizeof *out);
}

sluice_value sluice_batch_norm(sluice_graph *g, sluice_value x, const char *name,
                               const sluice_batch_norm_options *options)
{
    sluice_batch_norm_options o;
    sluice_value inputs[4] = { x };
    if (!building(g, "batch_norm")) return SLUICE_NONE;
    sluice_status st = read_batch_norm_options(options, &o);
    if (st == SLUICE_OK) st = channel_parameters(g, "batch_norm", x, name, inputs + 1);
    if (st != SLUICE_OK) return keep_error(g, st);
    const sl_attrs attrs = {
        .batch_norm = { .epsilon = o.epsilon, .momentum = o.momentum, .relu = o.relu, .all_ranks = o.all_ranks }
    };
    inputs[3] = o.residual;
    sluice_value y = sl_graph_apply(g, SL_OP_BATCH_NORM, name, &attrs, o.residual == SLUICE_NONE ? 3 : 4, inputs);
    if (y == SLUICE_NONE) return y;
    st = add_running(g, name, y);
    return st == SLUICE_OK ? y : keep_error(g, st);
}

sluice_value sluice_group_norm(sluice_graph *g, sluice_value x, int groups, const char *name, float epsilon)
{
    sluice_value inputs[3] = { x };
    if (!building(g, "group_norm")) return SLUICE_NONE;
    sluice_status st = channel_parameters(g, "group_norm", x, name, inputs + 1);
    if (st != SLUICE_OK) return keep_error(g, st);
    return sl_graph_apply(g, SL_OP_GROUP_NORM, name, &(sl_attrs){ .group_norm = { groups, epsilon } }, 3, inputs);
}

sluice_value sluice_rotary(sluice_graph *g, sluice_value x, int heads, int head_width, float base)
{
    return apply_one(g, SL_OP_ROTARY,
                     &(sl_attrs){ .rotary = { .heads = heads, .head_width = head_width, .base = base } }, x);
}

sluice_value sluice_rotary_with(sluice_graph *g, sluice_value x, sluice_value positions,
                                const sluice_rotary_options *options)
{
    sl_attrs attrs;
    if (!building(g, "rotary")) return SLUICE_NONE;
    sluice_status st = sl_rotary_attrs(options, &attrs);
    if (st != SLUICE_OK) return keep_error(g, st);
    return sl_graph_apply(g, SL_OP_ROTARY, NULL, &attrs, positions == SLUICE_NONE ? 1 : 2,
                          (sluice_value[]){ x, positions });
}

/* Width of one of `heads` heads side by side in x's rows; 0, which infer reports, where there is no such width. */
static int head_width(const sluice_graph *g, sluice_value x, int64_t heads)
{
    if (g == NULL || x < 0 || x >= g->value_count || heads < 1) return 0;
    int64_t width = sl_shape_last(&g->values[x].shape) / heads;
    return width > INT_MAX ? 0 : (int)width;
}

void sluice_attention_options_init_sized(sluice_attention_options *o, size_t size)
{
    sl_sized_fill(o, size, &(sluice_attention_options){ .causal = true }, sizeof *o);
}

static sluice_status take_attention_options(const sluice_attention_options *given, sluice_attention_options *o)
{
    sluice_attention_options_init(o);
    SL_TRY(sl_sized_take("sluice_attention_options", given, offsetof(sluice_attention_options, window), o, sizeof *o));
    if (o->kv_heads == 0) o->kv_heads = o->heads;
    return SLUICE_OK;
}

static sl_attrs attention_attrs(const sluice_attention_options *o, int width, bool packed)
{
    float usual = width > 0 ? (float)(1.0 / sqrt((double)width)) : 0.0f;
    return (sl_attrs){ .attention = { .heads = o->heads,
                                      .kv_heads = o->kv_heads,
                                      .head_width = width,
                                      .causal = o->causal,
                                      .packed = packed,
                                      .scale = o->scale != 0 ? o->scale : usual,
                                      .window = o->window,
                                      .softcap = o->softcap } };
}

sluice_value sluice_attention_with(sluice_graph *g, sluice_value q, sluice_value k, sluice_value v,
                                   sluice_value positions, const sluice_attention_options *options)
{
    if (!building(g, "attention")) return SLUICE_NONE;
    sluice_attention_options o;
    sluice_status st = take_attention_options(options, &o);
    if (st != SLUICE_OK) return keep_error(g, st);
    bool packed = k == SLUICE_NONE && v == SLUICE_NONE;
    int64_t side_by_side = packed ? (int64_t)o.heads + 2 * (int64_t)o.kv_heads : o.heads;
    sl_attrs attrs = attention_attrs(&o, head_width(g, q, side_by_side), packed);
    sluice_value inputs[4] = { q, k, v, positions };
    int operands = packed ? 1 : 3;
    inputs[operands] = positions;
    return sl_graph_apply(g, SL_OP_ATTENTION, NULL, &attrs, operands + (positions != SLUICE_NONE), inputs);
}

sluice_value sluice_attention(sluice_graph *g, sluice_value q, sluice_value k, sluice_value v, int heads, int kv_heads,
                              bool causal)
{
    sluice_attention_options o = { .heads = heads, .kv_heads = kv_heads, .causal = causal };
    sl_attrs attrs = attention_attrs(&o, head_width(g, q, heads), false);
    return sl_graph_apply(g, SL_OP_ATTENTION, NULL, &attrs, 3, (sluice_value[]){ q, k, v });
}

sluice_value sluice_attention_packed(sluice_graph *g, sluice_value qkv, int heads, int kv_heads, bool causal)
{
    sluice_attention_options o = { .heads = heads, .kv_heads = kv_heads, .causal = causal };
    int64_t all = (int64_t)heads + 2 * (int64_t)kv_heads;
    sl_attrs attrs = attention_attrs(&o, head_width(g, qkv, all), true);
    return apply_one(g, SL_OP_ATTENTION, &attrs, qkv);
}

sluice_value sluice_qk_norm(sluice_graph *g, sluice_value qkv, sluice_value q_weight, sluice_value k_weight, int heads,
                            int kv_heads, float epsilon, float offset)
{
    int width = head_width(g, qkv, (int64_t)heads + 2 * (int64_t)kv_heads);
    sl_attrs attrs = { .qk_norm = { heads, kv_heads, width, epsilon, offset } };
    return sl_graph_apply(g, SL_OP_QK_NORM, NULL, &attrs, 3, (sluice_value[]){ qkv, q_weight, k_weight });
}

/* With p = 0 there is nothing to do and no node is made. */
sluice_value sluice_dropout(sluice_graph *g, sluice_value x, float p)
{
    if (!building(g, "dropout")) return SLUICE_NONE;
    sluice_status st = check_value(g, x, "dropout");
    if (st == SLUICE_OK && !(p >= 0 && p < 1))
        st = sl_fail(SLUICE_ERR_USAGE, "dropout of \"%.64s\": p = %g must be at least 0 and below 1", g->values[x].name,
                     (double)p);
    if (st != SLUICE_OK) return keep_error(g, st);
    if (p == 0) return x;
    return apply_one(g, SL_OP_DROPOUT, &(sl_attrs){ .dropout = { p, (uint32_t)g->node_count } }, x);
}

/* Resolves one -1 in dims, from the elements of x. */
static sluice_status reshape_to(const sluice_graph *g, sluice_value x, int rank, const int64_t *dims, sl_shape *out)
{
    const sl_value *v = &g->values[x];
    if (rank < 0 || rank > SL_MAX_RANK || (rank > 0 && dims == NULL))
        return sl_fail(SLUICE_ERR_USAGE, "reshape of \"%.64s\": %d dimensions, must be 0 to %d and given", v->name,
                       rank, SL_MAX_RANK);
    int open = -1;
    sl_shape known = { .rank = rank };
    for (int i = 0; i < rank; i++) {
        known.dim[i] = dims[i] == -1 ? 1 : dims[i];
        if (dims[i] != -1) continue;
        if (open >= 0) return sl_fail(SLUICE_ERR_USAGE, "reshape of \"%.64s\": only one dimension may be -1", v->name);
        open = i;
    }
    SL_TRY(shape_from("reshape of", v->name, v->dtype, rank, known.dim, out));
    int64_t have = sl_shape_elements(&v->shape), want = sl_shape_elements(out);
    char from[160], to[160];
    if (open < 0 ? have != want : have % want != 0)
        return sl_fail(SLUICE_ERR_USAGE, "reshape of \"%.64s\" %s: %" PRId64 " elements do not make %s%s", v->name,
                       sl_shape_text(&v->shape, from, sizeof from), have, sl_shape_text(out, to, sizeof to),
                       open < 0 ? "" : " with one dimension open");
    if (open >= 0) out->dim[open] = have / want;
    return SLUICE_OK;
}

static sluice_status add_reshape(sluice_graph *g, sluice_value x, int rank, const int64_t *dims, int *value)
{
    sl_shape shape;
    SL_TRY(check_value(g, x, "reshape"));
    SL_TRY(reshape_to(g, x, rank, dims, &shape));
    char name[32];
    snprintf(name, sizeof name, "reshape_%d", g->node_count);
    *value = sl_graph_add_value(g, SL_VALUE_ACTIVATION, g->values[x].dtype, &shape, name);
    if (*value < 0) return (sluice_status) - *value;
    sl_node node = { .op = SL_OP_RESHAPE, .name = name, .input_count = 1, .inputs = { x } };
    node.output_count = 1;
    node.outputs[0] = *value;
    return append(g, &node);
}

sluice_value sluice_reshape(sluice_graph *g, sluice_value x, int rank, const int64_t *dims)
{
    if (!building(g, "reshape")) return SLUICE_NONE;
    int value = -1;
    sluice_status st = add_reshape(g, x, rank, dims, &value);
    return st == SLUICE_OK ? value : keep_error(g, st);
}

sluice_value sluice_transpose(sluice_graph *g, sluice_value x, const int *order)
{
    if (!building(g, "transpose")) return SLUICE_NONE;
    sluice_status st = check_value(g, x, "transpose");
    if (st == SLUICE_OK && order == NULL) st = sl_fail(SLUICE_ERR_USAGE, "transpose: order is NULL");
    if (st != SLUICE_OK) return keep_error(g, st);
    sl_attrs attrs = { 0 };
    for (int i = 0; i < g->values[x].shape.rank; i++) attrs.transpose.order[i] = order[i];
    return apply_one(g, SL_OP_TRANSPOSE, &attrs, x);
}

sluice_value sluice_split(sluice_graph *g, sluice_value x, int axis, int64_t start, int64_t size)
{
    return apply_one(g, SL_OP_SPLIT, &(sl_attrs){ .split = { axis, start, size } }, x);
}

sluice_value sluice_add_part(sluice_graph *g, sluice_value x, sluice_value part, int axis, int64_t start)
{
    if (!building(g, "add_part")) return SLUICE_NONE;
    sluice_status st = check_value(g, part, "add_part");
    if (st == SLUICE_OK && (axis < 0 || axis >= g->values[part].shape.rank))
        st = sl_fail(SLUICE_ERR_USAGE, "add_part: the part has no dimension %d", axis);
    if (st != SLUICE_OK) return keep_error(g, st);
    sl_attrs attrs = { .split = { axis, start, g->values[part].shape.dim[axis] } };
    return sl_graph_apply(g, SL_OP_ADD_PART, NULL, &attrs, 2, (sluice_value[]){ x, part });
}

sluice_value sluice_concat(sluice_graph *g, const sluice_value *values, int count, int axis)
{
    if (!building(g, "concat")) return SLUICE_NONE;
    if (values == NULL || count < 1 || count > SL_MAX_INPUTS)
        return keep_error(g, sl_fail(SLUICE_ERR_USAGE, "concat: joins 1 to %d values, got %d", SL_MAX_INPUTS, count));
    return sl_graph_apply(g, SL_OP_CONCAT, NULL, &(sl_attrs){ .concat = { axis } }, count, values);
}

/* -0 of either is 0, which is none: the bits of an attribute are part of a model's identity. */
static sl_attrs entropy_attrs(int32_t ignore_index, float softcap, float smoothing)
{
    return (sl_attrs){ .cross_entropy = { .ignore_index = ignore_index,
                                          .softcap = softcap == 0 ? 0.0f : softcap,
                                          .smoothing = smoothing == 0 ? 0.0f : smoothing } };
}

sluice_value sluice_cross_entropy(sluice_graph *g, sluice_value logits, sluice_value targets, int32_t ignore_index)
{
    return sluice_cross_entropy_smoothed(g, logits, targets, ignore_index, 0.0f, 0.0f);
}

sluice_value sluice_cross_entropy_capped(sluice_graph *g, sluice_value logits, sluice_value targets,
                                         int32_t ignore_index, float softcap)
{
    return sluice_cross_entropy_smoothed(g, logits, targets, ignore_index, softcap, 0.0f);
}

sluice_value sluice_cross_entropy_smoothed(sluice_graph *g, sluice_value logits, sluice_value targets,
                                           int32_t ignore_index, float softcap, float smoothing)
{
    sl_attrs attrs = entropy_attrs(ignore_index, softcap, smoothing);
    return apply_two(g, SL_OP_CROSS_ENTROPY, &attrs, logits, targets);
}

sluice_value sluice_linear_cross_entropy(sluice_graph *g, sluice_value x, sluice_value weight, sluice_value targets,
                                         int32_t ignore_index)
{
    return sluice_linear_cross_entropy_smoothed(g, x, weight, targets, ignore_index, 0.0f, 0.0f);
}

sluice_value sluice_linear_cross_entropy_capped(sluice_graph *g, sluice_value x, sluice_value weight,
                                                sluice_value targets, int32_t ignore_index, float softcap)
{
    return sluice_linear_cross_entropy_smoothed(g, x, weight, targets, ignore_index, softcap, 0.0f);
}

sluice_value sluice_linear_cross_entropy_smoothed(sluice_graph *g, sluice_value x, sluice_value weight,
                                                  sluice_value targets, int32_t ignore_index, float softcap,
                                                  float smoothing)
{
    return sluice_linear_cross_entropy_with(g, x, weight, SLUICE_NONE, targets, ignore_index, softcap, smoothing);
}

sluice_value sluice_linear_cross_entropy_with(sluice_graph *g, sluice_value x, sluice_value weight, sluice_value bias,
                                              sluice_value targets, int32_t ignore_index, float softcap,
                                              float smoothing)
{
    sl_attrs attrs = entropy_attrs(ignore_index, softcap, smoothing);
    return sl_graph_apply(g, SL_OP_LINEAR_CROSS_ENTROPY, NULL, &attrs, bias == SLUICE_NONE ? 3 : 4,
                          (sluice_value[]){ x, weight, targets, bias });
}

sluice_value sluice_bce_with_logits(sluice_graph *g, sluice_value y, sluice_value target, sluice_value weight)
{
    return sl_graph_apply(g, SL_OP_BCE_WITH_LOGITS, NULL, NULL, weight == SLUICE_NONE ? 2 : 3,
                          (sluice_value[]){ y, target, weight });
}

sluice_value sluice_gru(sluice_graph *g, sluice_value gates_x, sluice_value weight, sluice_value bias,
                        sluice_value lengths, bool reverse)
{
    return sl_graph_apply(g, SL_OP_GRU, NULL, &(sl_attrs){ .gru = { reverse } }, lengths == SLUICE_NONE ? 3 : 4,
                          (sluice_value[]){ gates_x, weight, bias, lengths });
}

sluice_value sluice_ctc_loss(sluice_graph *g, sluice_value logits, sluice_value labels, sluice_value lengths,
                             int32_t blank, bool zero_infinity)
{
    sl_attrs attrs = { .ctc = { .blank = blank, .zero_infinity = zero_infinity } };
    return sl_graph_apply(g, SL_OP_CTC_LOSS, NULL, &attrs, 3, (sluice_value[]){ logits, labels, lengths });
}

sluice_value sluice_mse(sluice_graph *g, sluice_value y, sluice_value target)
{
    return apply_two(g, SL_OP_MSE, NULL, y, target);
}

sluice_value sluice_sum(sluice_graph *g, sluice_value x)
{
    return apply_one(g, SL_OP_SUM, NULL, x);
}

sluice_value sluice_mean(sluice_graph *g, sluice_value x)
{
    return apply_one(g, SL_OP_MEAN, NULL, x);
}

/* ---- loss and output ---- */

void sluice_set_loss(sluice_graph *g, sluice_value loss)
{
    if (!building(g, "set_loss")) return;
    sluice_status st = check_value(g, loss, "set_loss");
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
        keep_error(g, st);
}

void sluice_set_output(sluice_graph *g, sluice_value output)
{
    if (!building(g, "set_output")) return;
    sluice_status st = check_value(g, output, "set_output");
    if (st == SLUICE_OK && g->values[output].dtype != SLUICE_F32)
        st = sl_fail(SLUICE_ERR_USAGE, "set_output: \"%.64s\" is %s, must be f32", g->values[output].name,
                     sl_dtype_name(g->values[output].dtype));
    if (st == SLUICE_OK)
        g->output = output;
    else
        keep_error(g, st);
}
