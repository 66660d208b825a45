/* build_ops.c: the public builders of operations. Most are one line; what an operation takes and gives is checked by its
 * row of the table (ops.c) and its shape function. */
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/sized.h"
#include "ir/build.h"
#include "ir/op_rows.h"
#include "ir/rotary_table.h"

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
static const char *name_of_weight(const sluice_graph *g, sluice_value weight, char buf[SL_NODE_NAME_BYTES])
{
    static const char suffix[] = ".weight";
    if (g == NULL || weight < 0 || weight >= g->value_count) return NULL;
    const sl_value *v = &g->values[weight];
    size_t length = strlen(v->name), tail = sizeof suffix - 1;
    if (v->kind != SL_VALUE_PARAMETER || length <= tail || strcmp(v->name + length - tail, suffix) != 0) return NULL;
    snprintf(buf, SL_NODE_NAME_BYTES, "%.*s", (int)(length - tail), v->name);
    return buf;
}

/* ---- arithmetic, matrix products, tables ---- */

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
    if (!sl_building(g, "scale")) return SLUICE_NONE;
    if (!isfinite(factor))
        return sl_keep_error(g, sl_fail(SLUICE_ERR_USAGE, "scale: factor %g must be finite", (double)factor));
    return apply_one(g, SL_OP_SCALE, &(sl_attrs){ .scale = { factor } }, x);
}

sluice_value sluice_linear(sluice_graph *g, sluice_value x, int64_t features, const char *name)
{
    if (!sl_building(g, "linear")) return SLUICE_NONE;
    sluice_status st = sl_check_name("linear", name);
    if (st == SLUICE_OK) st = sl_check_value(g, x, name);
    if (st == SLUICE_OK && g->values[x].shape.rank == 0)
        st = sl_fail(SLUICE_ERR_USAGE, "linear \"%.64s\": its input \"%.64s\" is a scalar", name, g->values[x].name);
    if (st != SLUICE_OK) return sl_keep_error(g, st);
    int64_t in = sl_shape_last(&g->values[x].shape);
    sluice_init init = { SLUICE_INIT_UNIFORM, (float)(1.0 / sqrt((double)in)) };
    /* too long a name is the parameter's to refuse */
    char weight_name[SL_NODE_NAME_BYTES + 8], bias_name[SL_NODE_NAME_BYTES + 8];
    snprintf(weight_name, sizeof weight_name, "%s.weight", name);
    snprintf(bias_name, sizeof bias_name, "%s.bias", name);
    sluice_value weight = sluice_parameter(g, weight_name, 2, (int64_t[]){ features, in }, init);
    sluice_value bias = sluice_parameter(g, bias_name, 1, &features, init);
    return sluice_linear_with(g, x, weight, bias, false);
}

sluice_value sluice_linear_with(sluice_graph *g, sluice_value x, sluice_value weight, sluice_value bias, bool in_out)
{
    char name[SL_NODE_NAME_BYTES];
    return sl_graph_apply(g, SL_OP_LINEAR, name_of_weight(g, weight, name), &(sl_attrs){ .linear = { in_out } },
                          bias == SLUICE_NONE ? 2 : 3, (sluice_value[]){ x, weight, bias });
}

sluice_value sluice_matmul(sluice_graph *g, sluice_value a, sluice_value b, bool transpose_a, bool transpose_b)
{
    return apply_two(g, SL_OP_MATMUL, &(sl_attrs){ .matmul = { transpose_a, transpose_b } }, a, b);
}

sluice_value sluice_embedding(sluice_graph *g, sluice_value ids, sluice_value table)
{
    char name[SL_NODE_NAME_BYTES];
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
    char name[SL_NODE_NAME_BYTES];
    if (!sl_building(g, "conv2d")) return SLUICE_NONE;
    sluice_conv_options_init(&o);
    sluice_status st =
        sl_sized_take("sluice_conv_options", options, SL_THROUGH(sluice_conv_options, groups), &o, sizeof o);
    if (st != SLUICE_OK) return sl_keep_error(g, st);
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
    if (!sl_building(g, sl_ops[op].name)) return SLUICE_NONE;
    sluice_pool_options_init(&o);
    sluice_status st =
        sl_sized_take("sluice_pool_options", options, SL_THROUGH(sluice_pool_options, count_include_pad), &o, sizeof o);
    if (st != SLUICE_OK) return sl_keep_error(g, st);
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
    if (!sl_building(g, "flatten")) return SLUICE_NONE;
    sluice_status st = sl_check_value(g, x, "flatten");
    int rank = st == SLUICE_OK ? g->values[x].shape.rank : 0;
    if (st == SLUICE_OK && rank < 2) {
        char text[SL_OPERAND_BYTES];
        st = sl_fail(SLUICE_ERR_USAGE, "flatten: %s has %d dimensions, needs 2 or more", sl_operand_text(g, x, text),
                     rank);
    }
    if (st != SLUICE_OK) return sl_keep_error(g, st);
    int order[SL_MAX_RANK] = { 0, rank - 1 };
    for (int i = 2; i < rank; i++) order[i] = i - 1;
    sluice_value by_channel = rank == 2 ? x : sluice_transpose(g, x, order);
    if (by_channel == SLUICE_NONE || rank == 2) return by_channel;
    return sluice_reshape(g, by_channel, 2, (int64_t[]){ g->values[x].shape.dim[0], -1 });
}

/* ---- activation functions ---- */

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

/* ---- norms ---- */

sluice_value sluice_layer_norm(sluice_graph *g, sluice_value x, sluice_value weight, sluice_value bias, float epsilon)
{
    char name[SL_NODE_NAME_BYTES];
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
    char name[SL_NODE_NAME_BYTES];
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
    char text[SL_OPERAND_BYTES], full[SL_NODE_NAME_BYTES + 8]; /* too long a name is the parameter's to refuse */
    SL_TRY(sl_check_name(what, name));
    SL_TRY(sl_check_value(g, x, what));
    if (g->values[x].shape.rank < 2)
        return sl_fail(SLUICE_ERR_USAGE, "%s \"%.64s\": %s must be [.., C]: rows of channels", what, name,
                       sl_operand_text(g, x, text));
    const int64_t channels = sl_shape_last(&g->values[x].shape);
    for (int i = 0; i < 2; i++) {
        snprintf(full, sizeof full, "%s.%s", name, rows[i].suffix);
        SL_TRY(sl_add_parameter(g, full, 1, &channels, &(sluice_init){ rows[i].kind, 0 }, &out[i]));
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
        SL_TRY(sl_check_parameter_name(r.names[i]));
        SL_TRY(sl_check_new(g, "running statistic", r.names[i]));
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
    if (!sl_building(g, "batch_norm")) return SLUICE_NONE;
    sluice_status st = read_batch_norm_options(options, &o);
    if (st == SLUICE_OK) st = channel_parameters(g, "batch_norm", x, name, inputs + 1);
    if (st != SLUICE_OK) return sl_keep_error(g, st);
    const sl_attrs attrs = {
        .batch_norm = { .epsilon = o.epsilon, .momentum = o.momentum, .relu = o.relu, .all_ranks = o.all_ranks }
    };
    inputs[3] = o.residual;
    sluice_value y = sl_graph_apply(g, SL_OP_BATCH_NORM, name, &attrs, o.residual == SLUICE_NONE ? 3 : 4, inputs);
    if (y == SLUICE_NONE) return y;
    st = add_running(g, name, y);
    return st == SLUICE_OK ? y : sl_keep_error(g, st);
}

sluice_value sluice_group_norm(sluice_graph *g, sluice_value x, int groups, const char *name, float epsilon)
{
    sluice_value inputs[3] = { x };
    if (!sl_building(g, "group_norm")) return SLUICE_NONE;
    sluice_status st = channel_parameters(g, "group_norm", x, name, inputs + 1);
    if (st != SLUICE_OK) return sl_keep_error(g, st);
    return sl_graph_apply(g, SL_OP_GROUP_NORM, name, &(sl_attrs){ .group_norm = { groups, epsilon } }, 3, inputs);
}

/* ---- attention ---- */

sluice_value sluice_rotary(sluice_graph *g, sluice_value x, int heads, int head_width, float base)
{
    return apply_one(g, SL_OP_ROTARY,
                     &(sl_attrs){ .rotary = { .heads = heads, .head_width = head_width, .base = base } }, x);
}

sluice_value sluice_rotary_with(sluice_graph *g, sluice_value x, sluice_value positions,
                                const sluice_rotary_options *options)
{
    sl_attrs attrs;
    if (!sl_building(g, "rotary")) return SLUICE_NONE;
    sluice_status st = sl_rotary_attrs(options, &attrs);
    if (st != SLUICE_OK) return sl_keep_error(g, st);
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
    if (!sl_building(g, "attention")) return SLUICE_NONE;
    sluice_attention_options o;
    sluice_status st = take_attention_options(options, &o);
    if (st != SLUICE_OK) return sl_keep_error(g, st);
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

/* ---- dropout, shapes ---- */

/* With p = 0 there is nothing to do and no node is made. */
sluice_value sluice_dropout(sluice_graph *g, sluice_value x, float p)
{
    if (!sl_building(g, "dropout")) return SLUICE_NONE;
    sluice_status st = sl_check_value(g, x, "dropout");
    if (st == SLUICE_OK && !(p >= 0 && p < 1))
        st = sl_fail(SLUICE_ERR_USAGE, "dropout of \"%.64s\": p = %g must be at least 0 and below 1", g->values[x].name,
                     (double)p);
    if (st != SLUICE_OK) return sl_keep_error(g, st);
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
    SL_TRY(sl_shape_from("reshape of", v->name, v->dtype, rank, known.dim, out));
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
    SL_TRY(sl_check_value(g, x, "reshape"));
    SL_TRY(reshape_to(g, x, rank, dims, &shape));
    char name[32];
    snprintf(name, sizeof name, "reshape_%d", g->node_count);
    *value = sl_graph_add_value(g, SL_VALUE_ACTIVATION, g->values[x].dtype, &shape, name);
    if (*value < 0) return (sluice_status) - *value;
    sl_node node = { .op = SL_OP_RESHAPE, .name = name, .input_count = 1, .inputs = { x } };
    node.output_count = 1;
    node.outputs[0] = *value;
    return sl_append_node(g, &node);
}

sluice_value sluice_reshape(sluice_graph *g, sluice_value x, int rank, const int64_t *dims)
{
    if (!sl_building(g, "reshape")) return SLUICE_NONE;
    int value = -1;
    sluice_status st = add_reshape(g, x, rank, dims, &value);
    return st == SLUICE_OK ? value : sl_keep_error(g, st);
}

sluice_value sluice_transpose(sluice_graph *g, sluice_value x, const int *order)
{
    if (!sl_building(g, "transpose")) return SLUICE_NONE;
    sluice_status st = sl_check_value(g, x, "transpose");
    if (st == SLUICE_OK && order == NULL) st = sl_fail(SLUICE_ERR_USAGE, "transpose: order is NULL");
    if (st != SLUICE_OK) return sl_keep_error(g, st);
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
    if (!sl_building(g, "add_part")) return SLUICE_NONE;
    sluice_status st = sl_check_value(g, part, "add_part");
    if (st == SLUICE_OK && (axis < 0 || axis >= g->values[part].shape.rank))
        st = sl_fail(SLUICE_ERR_USAGE, "add_part: the part has no dimension %d", axis);
    if (st != SLUICE_OK) return sl_keep_error(g, st);
    sl_attrs attrs = { .split = { axis, start, g->values[part].shape.dim[axis] } };
    return sl_graph_apply(g, SL_OP_ADD_PART, NULL, &attrs, 2, (sluice_value[]){ x, part });
}

sluice_value sluice_concat(sluice_graph *g, const sluice_value *values, int count, int axis)
{
    if (!sl_building(g, "concat")) return SLUICE_NONE;
    if (values == NULL || count < 1 || count > SL_MAX_INPUTS)
        return sl_keep_error(g,
                             sl_fail(SLUICE_ERR_USAGE, "concat: joins 1 to %d values, got %d", SL_MAX_INPUTS, count));
    return sl_graph_apply(g, SL_OP_CONCAT, NULL, &(sl_attrs){ .concat = { axis } }, count, values);
}

/* ---- losses, recurrence ---- */

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
