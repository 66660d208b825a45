/* infer.c: shapes and types of the forward ops, and the messages that say why operands do not fit together.
 *
 * Each function is one entry of the infer column of sl_ops. They are pure: builders call them before a node exists,
 * sl_graph_verify calls them again on the finished graph. A message names the node and both values that disagree, each
 * with its producer, because the wrong one is usually made far from where the mismatch shows. */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "ir/op_rows.h"

/* What made a value, in one word. */
static const char *origin(const sluice_graph *g, const sl_value *v)
{
    if (v->kind == SL_VALUE_INPUT) return "input";
    if (v->kind == SL_VALUE_PARAMETER) return "parameter";
    return v->producer < 0 ? "unwritten" : sl_ops[g->nodes[v->producer].op].name;
}

const char *sl_operand_text(const sluice_graph *g, int value, char *buf)
{
    const sl_value *v = &g->values[value];
    char shape[160];
    sl_shape_text(&v->shape, shape, sizeof shape);
    snprintf(buf, SL_OPERAND_BYTES, "\"%.64s\" (%s) %s", v->name, origin(g, v), shape);
    return buf;
}

sluice_status sl_node_fail(const sl_node *node, const char *format, ...)
{
    char text[SL_MESSAGE_BYTES / 2];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    return sl_fail(SLUICE_ERR_USAGE, "%s \"%.64s\": %s", sl_ops[node->op].name, node->name ? node->name : "", text);
}

sluice_status sl_expect_dtype(const sluice_graph *g, const sl_node *node, int i, sluice_dtype dtype)
{
    sluice_dtype have = g->values[node->inputs[i]].dtype;
    if (have == dtype) return SLUICE_OK;
    char text[SL_OPERAND_BYTES];
    return sl_node_fail(node, "%s is %s, must be %s", sl_operand_text(g, node->inputs[i], text), sl_dtype_name(have),
                        sl_dtype_name(dtype));
}

sluice_status sl_expect_equal(const sluice_graph *g, const sl_node *node, int i, int j)
{
    if (sl_shape_equal(sl_input_shape(g, node, i), sl_input_shape(g, node, j))) return SLUICE_OK;
    char a[SL_OPERAND_BYTES], b[SL_OPERAND_BYTES];
    return sl_node_fail(node, "%s and %s must have equal shapes", sl_operand_text(g, node->inputs[i], a),
                        sl_operand_text(g, node->inputs[j], b));
}

sluice_status sl_expect_float(const sluice_graph *g, const sl_node *node, int i)
{
    return g->values[node->inputs[i]].dtype != SLUICE_I32 ? SLUICE_OK : sl_expect_dtype(g, node, i, SLUICE_F32);
}

sluice_status sl_expect_one_type(const sluice_graph *g, const sl_node *node, int i, int j)
{
    SL_TRY(sl_expect_float(g, node, i));
    SL_TRY(sl_expect_float(g, node, j));
    sluice_dtype a = g->values[node->inputs[i]].dtype, b = g->values[node->inputs[j]].dtype;
    if (a == b) return SLUICE_OK;
    char at[SL_OPERAND_BYTES], bt[SL_OPERAND_BYTES];
    return sl_node_fail(node, "%s is %s and %s is %s: it reads one type", sl_operand_text(g, node->inputs[i], at),
                        sl_dtype_name(a), sl_operand_text(g, node->inputs[j], bt), sl_dtype_name(b));
}

/* Fails unless the inputs are of one float type. */
static sluice_status expect_floats(const sluice_graph *g, const sl_node *node)
{
    for (int i = 0; i < node->input_count; i++) SL_TRY(sl_expect_one_type(g, node, 0, i));
    return SLUICE_OK;
}

static sluice_status expect_rank(const sluice_graph *g, const sl_node *node, int i, int least, int most)
{
    int rank = sl_input_shape(g, node, i)->rank;
    if (rank >= least && rank <= most) return SLUICE_OK;
    char text[SL_OPERAND_BYTES];
    return sl_node_fail(node, "%s has %d dimensions, needs %d%s", sl_operand_text(g, node->inputs[i], text), rank,
                        least, least == most ? "" : " or more");
}

/* Fails unless input i is a vector as long as the last dimension of input 0: a norm's weight or bias. */
static sluice_status expect_row_vector(const sluice_graph *g, const sl_node *node, int i)
{
    const sl_shape *s = sl_input_shape(g, node, i);
    int64_t width = sl_shape_last(sl_input_shape(g, node, 0));
    if (s->rank == 1 && s->dim[0] == width) return SLUICE_OK;
    char x[SL_OPERAND_BYTES], w[SL_OPERAND_BYTES];
    return sl_node_fail(node, "%s must be [%" PRId64 "], the last dimension of %s",
                        sl_operand_text(g, node->inputs[i], w), width, sl_operand_text(g, node->inputs[0], x));
}

/* Output i has this shape and the type of the first input: expect_floats holds. */
static void give(const sluice_graph *g, const sl_node *node, sl_shape *shapes, sluice_dtype *dtypes, int i,
                 const sl_shape *shape)
{
    shapes[i] = *shape;
    dtypes[i] = g->values[node->inputs[0]].dtype;
}

/* Scalars and what is saved for backward are f32 whatever the inputs are. */
static void give_f32(sl_shape *shapes, sluice_dtype *dtypes, int i, const sl_shape *shape)
{
    shapes[i] = *shape;
    dtypes[i] = SLUICE_F32;
}

static void give_scalar(sl_shape *shapes, sluice_dtype *dtypes, int i)
{
    give_f32(shapes, dtypes, i, &(sl_shape){ .rank = 0 });
}

static void give_rows(sl_shape *shapes, sluice_dtype *dtypes, int i, const sl_shape *x)
{
    give_f32(shapes, dtypes, i, &(sl_shape){ .rank = 1, .dim = { sl_shape_rows(x) } });
}

/* ADD, MULTIPLY */
sluice_status sl_infer_broadcast(const sluice_graph *g, const sl_node *node, sl_shape *shapes, sluice_dtype *dtypes)
{
    SL_TRY(expect_floats(g, node));
    sl_shape out;
    if (!sl_shape_broadcast(sl_input_shape(g, node, 0), sl_input_shape(g, node, 1), &out)) {
        char a[SL_OPERAND_BYTES], b[SL_OPERAND_BYTES];
        return sl_node_fail(node, "%s and %s do not broadcast to one shape", sl_operand_text(g, node->inputs[0], a),
                            sl_operand_text(g, node->inputs[1], b));
    }
    give(g, node, shapes, dtypes, 0, &out);
    return SLUICE_OK;
}

/* SCALE, RELU, GELU, SILU, DROPOUT */
sluice_status sl_infer_same(const sluice_graph *g, const sl_node *node, sl_shape *shapes, sluice_dtype *dtypes)
{
    SL_TRY(expect_floats(g, node));
    give(g, node, shapes, dtypes, 0, sl_input_shape(g, node, 0));
    return SLUICE_OK;
}

/* Gates and values side by side in every row. */
sluice_status sl_infer_swiglu(const sluice_graph *g, const sl_node *node, sl_shape *shapes, sluice_dtype *dtypes)
{
    SL_TRY(expect_floats(g, node));
    SL_TRY(expect_rank(g, node, 0, 1, SL_MAX_RANK));
    sl_shape out = *sl_input_shape(g, node, 0);
    char text[SL_OPERAND_BYTES];
    if (out.dim[out.rank - 1] % 2 != 0)
        return sl_node_fail(node, "%s has rows of odd length: they must hold as many gates as values",
                            sl_operand_text(g, node->inputs[0], text));
    out.dim[out.rank - 1] /= 2;
    give(g, node, shapes, dtypes, 0, &out);
    return SLUICE_OK;
}

/* SOFTCAP */
sluice_status sl_infer_softcap(const sluice_graph *g, const sl_node *node, sl_shape *shapes, sluice_dtype *dtypes)
{
    float cap = node->attrs.softcap.cap;
    if (!(cap > 0) || isinf(cap)) return sl_node_fail(node, "a cap of %g must be finite and positive", (double)cap);
    return sl_infer_same(g, node, shapes, dtypes);
}

sluice_status sl_infer_softmax(const sluice_graph *g, const sl_node *node, sl_shape *shapes, sluice_dtype *dtypes)
{
    SL_TRY(expect_rank(g, node, 0, 1, SL_MAX_RANK));
    return sl_infer_same(g, node, shapes, dtypes);
}

/* Where a value is another one in other order or shape, as a flattened image is, `: of "pool" (max_pool2d) [..]`. */
static const char *before_views(const sluice_graph *g, const sl_value *v, char *buf)
{
    int source = -1;
    char text[SL_OPERAND_BYTES];
    for (int n = v->producer; n >= 0; n = g->values[source].producer) {
        sl_op op = g->nodes[n].op;
        if (op != SL_OP_RESHAPE && op != SL_OP_TRANSPOSE) break;
        source = g->nodes[n].inputs[0];
    }
    buf[0] = '\0';
    if (source >= 0) snprintf(buf, SL_OPERAND_BYTES + 8, ", of %s,", sl_operand_text(g, source, text));
    return buf;
}

/* Fails unless input 0 has rows of `in` elements, which weight input 1 maps. */
static sluice_status expect_features(const sluice_graph *g, const sl_node *node, int64_t in)
{
    const sl_value *x = &g->values[node->inputs[0]], *w = &g->values[node->inputs[1]];
    if (sl_shape_last(&x->shape) == in) return SLUICE_OK;
    char xs[160], ws[160], of[SL_OPERAND_BYTES + 8];
    return sl_node_fail(node,
                        "input \"%.64s\" (%s)%s has %" PRId64 " features, weight \"%.64s\" expects %" PRId64
                        " (shapes %s and %s)",
                        x->name, origin(g, x), before_views(g, x, of), sl_shape_last(&x->shape), w->name, in,
                        sl_shape_text(&x->shape, xs, sizeof xs), sl_shape_text(&w->shape, ws, sizeof ws));
}

/* Input `bias`, where it is there, is one of `out` elements. */
static sluice_status expect_bias(const sluice_graph *g, const sl_node *node, int bias, int64_t out)
{
    if (node->input_count <= bias) return SLUICE_OK;
    const sl_shape *b = sl_input_shape(g, node, bias);
    char wt[SL_OPERAND_BYTES], bt[SL_OPERAND_BYTES];
    if (b->rank == 1 && b->dim[0] == out) return SLUICE_OK;
    return sl_node_fail(node, "bias %s must be [%" PRId64 "], the outputs of weight %s",
                        sl_operand_text(g, node->inputs[bias], bt), out, sl_operand_text(g, node->inputs[1], wt));
}

/* `bias`: which input it is, where there is one. */
static sluice_status infer_product(const sluice_graph *g, const sl_node *node, int bias, sl_shape *shapes,
                                   sluice_dtype *dtypes)
{
    SL_TRY(expect_floats(g, node));
    SL_TRY(expect_rank(g, node, 0, 1, SL_MAX_RANK));
    SL_TRY(expect_rank(g, node, 1, 2, 2));
    const sl_shape *x = sl_input_shape(g, node, 0), *w = sl_input_shape(g, node, 1);
    bool in_out = node->attrs.linear.in_out;
    int64_t in = w->dim[in_out ? 0 : 1], out = w->dim[in_out ? 1 : 0];
    SL_TRY(expect_features(g, node, in));
    SL_TRY(expect_bias(g, node, bias, out));
    sl_shape y = *x;
    y.dim[y.rank - 1] = out;
    give(g, node, shapes, dtypes, 0, &y);
    return SLUICE_OK;
}

sluice_status sl_infer_linear(const sluice_graph *g, const sl_node *node, sl_shape *shapes, sluice_dtype *dtypes)
{
    return infer_product(g, node, 2, shapes, dtypes);
}

sluice_status sl_infer_linear_gelu(const sluice_graph *g, const sl_node *node, sl_shape *shapes, sluice_dtype *dtypes)
{
    SL_TRY(sl_infer_linear(g, node, shapes, dtypes));
    give(g, node, shapes, dtypes, 1, &shapes[0]);
    return SLUICE_OK;
}

sluice_status sl_infer_linear_add(const sluice_graph *g, const sl_node *node, sl_shape *shapes, sluice_dtype *dtypes)
{
    char text[SL_OPERAND_BYTES], shape[160];
    SL_TRY(infer_product(g, node, 3, shapes, dtypes));
    if (sl_shape_equal(sl_input_shape(g, node, 2), &shapes[0])) return SLUICE_OK;
    return sl_node_fail(node, "%s is to be added to a product of shape %s", sl_operand_text(g, node->inputs[2], text),
                        sl_shape_text(&shapes[0], shape, sizeof shape));
}

sluice_status sl_infer_matmul(const sluice_graph *g, const sl_node *node, sl_shape *shapes, sluice_dtype *dtypes)
{
    SL_TRY(expect_floats(g, node));
    SL_TRY(expect_rank(g, node, 0, 2, SL_MAX_RANK));
    SL_TRY(expect_rank(g, node, 1, 2, SL_MAX_RANK));
    const sl_shape *a = sl_input_shape(g, node, 0), *b = sl_input_shape(g, node, 1);
    char at[SL_OPERAND_BYTES], bt[SL_OPERAND_BYTES];
    bool leading = a->rank == b->rank;
    for (int i = 0; leading && i < a->rank - 2; i++) leading = a->dim[i] == b->dim[i];
    if (!leading)
        return sl_node_fail(node, "%s and %s must agree in all but the last two dimensions",
                            sl_operand_text(g, node->inputs[0], at), sl_operand_text(g, node->inputs[1], bt));
    bool ta = node->attrs.matmul.transpose_a, tb = node->attrs.matmul.transpose_b;
    int row = a->rank - 2, column = a->rank - 1;
    int64_t ka = a->dim[ta ? row : column], kb = b->dim[tb ? column : row];
    if (ka != kb)
        return sl_node_fail(node, "%s%s gives %" PRId64 " columns, %s%s takes %" PRId64 " rows",
                            sl_operand_text(g, node->inputs[0], at), ta ? " transposed" : "", ka,
                            sl_operand_text(g, node->inputs[1], bt), tb ? " transposed" : "", kb);
    sl_shape out = *a;
    out.dim[row] = a->dim[ta ? column : row];
    out.dim[column] = b->dim[tb ? row : column];
    give(g, node, shapes, dtypes, 0, &out);
    return SLUICE_OK;
}

sluice_status sl_infer_embedding(const sluice_graph *g, const sl_node *node, sl_shape *shapes, sluice_dtype *dtypes)
{
    SL_TRY(sl_expect_dtype(g, node, 0, SLUICE_I32));
    SL_TRY(sl_expect_float(g, node, 1));
    SL_TRY(expect_rank(g, node, 1, 2, 2));
    sl_shape out = *sl_input_shape(g, node, 0);
    char text[SL_OPERAND_BYTES];
    if (out.rank == SL_MAX_RANK)
        return sl_node_fail(node, "%s has %d dimensions, at most %d leave room for the rows",
                            sl_operand_text(g, node->inputs[0], text), out.rank, SL_MAX_RANK - 1);
    out.dim[out.rank++] = sl_input_shape(g, node, 1)->dim[1];
    shapes[0] = out;
    dtypes[0] = g->values[node->inputs[1]].dtype;
    return SLUICE_OK;
}

static sluice_status check_epsilon(const sl_node *node, float epsilon)
{
    if (epsilon >= 0 && !isinf(epsilon)) return SLUICE_OK;
    return sl_node_fail(node, "epsilon %g must be finite and not negative", (double)epsilon);
}

/* What is added to a weight before it is multiplied by. */
static sluice_status check_offset(const sl_node *node, float offset)
{
    if (offset == 0.0f || offset == 1.0f) return SLUICE_OK;
    return sl_node_fail(node, "offset %g must be 0, or 1 where weights are differences from 1", (double)offset);
}

static sluice_status check_norm(const sluice_graph *g, const sl_node *node)
{
    SL_TRY(expect_floats(g, node));
    SL_TRY(expect_rank(g, node, 0, 1, SL_MAX_RANK));
    for (int i = 1; i < node->input_count; i++) SL_TRY(expect_row_vector(g, node, i));
    return check_epsilon(node, node->attrs.norm.epsilon);
}

sluice_status sl_infer_layer_norm(const sluice_graph *g, const sl_node *node, sl_shape *shapes, sluice_dtype *dtypes)
{
    SL_TRY(check_norm(g, node));
    const sl_shape *x = sl_input_shape(g, node, 0);
    give(g, node, shapes, dtypes, 0, x);
    give_rows(shapes, dtypes, 1, x);
    give_rows(shapes, dtypes, 2, x);
    return SLUICE_OK;
}

sluice_status sl_infer_rms_norm(const sluice_graph *g, const sl_node *node, sl_shape *shapes, sluice_dtype *dtypes)
{
    SL_TRY(check_norm(g, node));
    SL_TRY(check_offset(node, node->attrs.norm.offset));
    const sl_shape *x = sl_input_shape(g, node, 0);
    give(g, node, shapes, dtypes, 0, x);
    give_rows(shapes, dtypes, 1, x);
    return SLUICE_OK;
}

/* Rows of H query heads, G key heads and G value heads, all of width D. */
static sluice_status expect_packed_heads(const sluice_graph *g, const sl_node *node, int64_t h, int64_t kv, int64_t d)
{
    char text[SL_OPERAND_BYTES];
    SL_TRY(expect_rank(g, node, 0, 3, 3));
    int64_t row = sl_shape_last(sl_input_shape(g, node, 0));
    if (h >= 1 && kv >= 1 && d >= 1 && row % (h + 2 * kv) == 0 && row / (h + 2 * kv) == d) return SLUICE_OK;
    return sl_node_fail(node, "%s is not %" PRId64 " query and 2 * %" PRId64 " key and value heads of width %" PRId64,
                        sl_operand_text(g, node->inputs[0], text), h, kv, d);
}

sluice_status sl_infer_qk_norm(const sluice_graph *g, const sl_node *node, sl_shape *shapes, sluice_dtype *dtypes)
{
    const int64_t h = node->attrs.qk_norm.heads, kv = node->attrs.qk_norm.kv_heads, d = node->attrs.qk_norm.head_width;
    SL_TRY(expect_floats(g, node));
    SL_TRY(expect_packed_heads(g, node, h, kv, d));
    if (d > SL_MAX_HEAD_WIDTH)
        return sl_node_fail(node, "heads of width %" PRId64 ": kernels take heads up to %d wide; use more heads", d,
                            SL_MAX_HEAD_WIDTH);
    for (int i = 1; i <= 2; i++) {
        const sl_shape *w = sl_input_shape(g, node, i);
        char text[SL_OPERAND_BYTES];
        if (w->rank != 1 || w->dim[0] != d)
            return sl_node_fail(node, "%s must be [%" PRId64 "], the width of a head",
                                sl_operand_text(g, node->inputs[i], text), d);
    }
    SL_TRY(check_epsilon(node, node->attrs.qk_norm.epsilon));
    SL_TRY(check_offset(node, node->attrs.qk_norm.offset));
    const sl_shape *x = sl_input_shape(g, node, 0);
    give(g, node, shapes, dtypes, 0, x);
    give_f32(shapes, dtypes, 1, &(sl_shape){ .rank = 3, .dim = { x->dim[0], x->dim[1], h + kv } });
    return SLUICE_OK;
}

/* Heads inside the rows, pairs inside the heads. */
static sluice_status check_rotary_heads(const sluice_graph *g, const sl_node *node)
{
    int64_t heads = node->attrs.rotary.heads, head = node->attrs.rotary.head_width;
    int64_t rotated = node->attrs.rotary.rotated > 0 ? node->attrs.rotary.rotated : head;
    char text[SL_OPERAND_BYTES];
    if (heads < 1 || head < 2 || (rotated == head && head % 2 != 0))
        return sl_node_fail(node, "%" PRId64 " heads of width %" PRId64 ": needs a head or more of even width", heads,
                            head);
    if (node->attrs.rotary.rotated < 0 || rotated > head || rotated % 2 != 0)
        return sl_node_fail(node,
                            "%" PRId64 " rotated dimensions of heads of width %" PRId64
                            ": must be an even number up to the width",
                            node->attrs.rotary.rotated < 0 ? (int64_t)node->attrs.rotary.rotated : rotated, head);
    if (heads * head > sl_shape_last(sl_input_shape(g, node, 0)))
        return sl_node_fail(node, "%" PRId64 " heads of width %" PRId64 " are wider than %s", heads, head,
                            sl_operand_text(g, node->inputs[0], text));
    return SLUICE_OK;
}

static bool is_positive(float x)
{
    return x > 0 && !isinf(x);
}

/* The numbers that each scaling reads. */
static sluice_status check_rotary_scaling(const sl_node *node)
{
    const float base = node->attrs.rotary.base, factor = node->attrs.rotary.factor;
    const float low = node->attrs.rotary.low, high = node->attrs.rotary.high;
    const int scaling = node->attrs.rotary.scaling;
    const bool by_turns = scaling == SLUICE_ROTARY_LLAMA3 || scaling == SLUICE_ROTARY_YARN;
    if (!is_positive(base)) return sl_node_fail(node, "base %g must be finite and positive", (double)base);
    if (scaling < SLUICE_ROTARY_DEFAULT || scaling > SLUICE_ROTARY_YARN)
        return sl_node_fail(node, "there is no scaling %d", scaling);
    if (node->attrs.rotary.attention != 0 && !is_positive(node->attrs.rotary.attention))
        return sl_node_fail(node, "an attention factor of %g must be finite and positive",
                            (double)node->attrs.rotary.attention);
    if (scaling != SLUICE_ROTARY_DEFAULT && !(factor >= 1 && !isinf(factor)))
        return sl_node_fail(node, "a scaling factor of %g must be finite and at least 1", (double)factor);
    if ((by_turns || scaling == SLUICE_ROTARY_DYNAMIC) && node->attrs.rotary.context < 1)
        return sl_node_fail(node, "its scaling needs the context, in tokens, that positions were trained for");
    if (by_turns && !(is_positive(low) && is_positive(high) && low < high))
        return sl_node_fail(node, "its scaling lies between %g and %g turns: both must be positive, in this order",
                            (double)low, (double)high);
    if (scaling == SLUICE_ROTARY_YARN && !(base > 1)) return sl_node_fail(node, "yarn needs a base above 1");
    return SLUICE_OK;
}

sluice_status sl_infer_rotary(const sluice_graph *g, const sl_node *node, sl_shape *shapes, sluice_dtype *dtypes)
{
    SL_TRY(sl_expect_float(g, node, 0));
    SL_TRY(expect_rank(g, node, 0, 3, 3));
    SL_TRY(check_rotary_heads(g, node));
    SL_TRY(check_rotary_scaling(node));
    const sl_shape *x = sl_input_shape(g, node, 0);
    const int rotated = node->attrs.rotary.rotated;
    if (node->attrs.rotary.scaling == SLUICE_ROTARY_DYNAMIC &&
        (rotated > 0 ? rotated : node->attrs.rotary.head_width) < 4)
        return sl_node_fail(node, "dynamic scaling needs 4 rotated dimensions or more");
    if (node->input_count > 1) {
        char a[SL_OPERAND_BYTES], b[SL_OPERAND_BYTES];
        const sl_shape rows = { .rank = 2, .dim = { x->dim[0], x->dim[1] } };
        SL_TRY(sl_expect_dtype(g, node, 1, SLUICE_I32));
        if (!sl_shape_equal(sl_input_shape(g, node, 1), &rows))
            return sl_node_fail(node, "positions %s must be one for each row of %s",
                                sl_operand_text(g, node->inputs[1], a), sl_operand_text(g, node->inputs[0], b));
    }
    give(g, node, shapes, dtypes, 0, x);
    return SLUICE_OK;
}

/* Sizes of an attention's operands, after the checks common to both forms. */
static sluice_status attention_packed_shape(const sluice_graph *g, const sl_node *node, sl_shape *out)
{
    const sl_shape *x = sl_input_shape(g, node, 0);
    int64_t h = node->attrs.attention.heads, kv = node->attrs.attention.kv_heads, d = node->attrs.attention.head_width;
    char text[SL_OPERAND_BYTES];
    if (d < 1 || x->dim[2] / (h + 2 * kv) != d || x->dim[2] % (h + 2 * kv) != 0)
        return sl_node_fail(node, "%s is not %" PRId64 " query and 2 * %" PRId64 " key and value heads of one width",
                            sl_operand_text(g, node->inputs[0], text), h, kv);
    *out = *x;
    out->dim[2] = h * d;
    return SLUICE_OK;
}

static sluice_status attention_separate_shape(const sluice_graph *g, const sl_node *node, sl_shape *out)
{
    const sl_shape *q = sl_input_shape(g, node, 0), *k = sl_input_shape(g, node, 1);
    int64_t h = node->attrs.attention.heads, kv = node->attrs.attention.kv_heads, d = node->attrs.attention.head_width;
    char qt[SL_OPERAND_BYTES], kt[SL_OPERAND_BYTES];
    sl_operand_text(g, node->inputs[0], qt);
    sl_operand_text(g, node->inputs[1], kt);
    SL_TRY(expect_rank(g, node, 1, 3, 3));
    SL_TRY(sl_expect_equal(g, node, 1, 2));
    if (d < 1 || h * d != q->dim[2])
        return sl_node_fail(node, "queries %s are not %" PRId64 " heads of one width", qt, h);
    if (kv * d != k->dim[2])
        return sl_node_fail(node, "keys %s are not %" PRId64 " heads as wide as those of queries %s", kt, kv, qt);
    if (q->dim[0] != k->dim[0]) return sl_node_fail(node, "queries %s and keys %s differ in batch", qt, kt);
    if (node->attrs.attention.causal && q->dim[1] != k->dim[1])
        return sl_node_fail(node, "causal attention needs as many keys %s as queries %s", kt, qt);
    *out = *q;
    return SLUICE_OK;
}

/* What limits the keys of a query: of a causal one a window and documents, of others the length of their row. */
static sluice_status attention_limits(const sluice_graph *g, const sl_node *node, const sl_shape *out)
{
    int window = node->attrs.attention.window, operands = sl_attention_operands(&node->attrs);
    char text[SL_OPERAND_BYTES];
    if (window < 0) return sl_node_fail(node, "a window of %d keys: must be at least 1, or 0 for no window", window);
    if (window > 0 && !node->attrs.attention.causal)
        return sl_node_fail(node, "a window of %d keys ends at a causal query: attention must be causal", window);
    if (node->input_count == operands) return SLUICE_OK;
    SL_TRY(sl_expect_dtype(g, node, operands, SLUICE_I32));
    const sl_shape *given = sl_input_shape(g, node, operands);
    sl_operand_text(g, node->inputs[operands], text);
    if (node->attrs.attention.causal &&
        (given->rank != 2 || given->dim[0] != out->dim[0] || given->dim[1] != out->dim[1]))
        return sl_node_fail(node, "positions %s must be [%" PRId64 ", %" PRId64 "], one for each query", text,
                            out->dim[0], out->dim[1]);
    if (!node->attrs.attention.causal && (given->rank != 1 || given->dim[0] != out->dim[0]))
        return sl_node_fail(node,
                            "%s: attention that is not causal takes lengths [%" PRId64
                            "], the keys that count of each row; positions separate documents for causal queries",
                            text, out->dim[0]);
    return SLUICE_OK;
}

static sluice_status attention_factors(const sl_node *node)
{
    float scale = node->attrs.attention.scale, softcap = node->attrs.attention.softcap;
    if (!(scale > 0 && scale <= SL_MAX_SCORE_SCALE))
        return sl_node_fail(node, "scores scaled by %g: must be above 0 and at most %g", (double)scale,
                            SL_MAX_SCORE_SCALE);
    if (!(softcap >= 0 && softcap <= SL_MAX_SCORE_SCALE))
        return sl_node_fail(node, "scores capped at %g: must be at least 0, which is no cap, and at most %g",
                            (double)softcap, SL_MAX_SCORE_SCALE);
    return SLUICE_OK;
}

sluice_status sl_infer_attention(const sluice_graph *g, const sl_node *node, sl_shape *shapes, sluice_dtype *dtypes)
{
    int operands = sl_attention_operands(&node->attrs);
    if (node->input_count != operands && node->input_count != operands + 1)
        return sl_node_fail(node, "takes q, k and v, or all three packed, and positions or none; got %d inputs",
                            node->input_count);
    for (int i = 0; i < operands; i++) SL_TRY(sl_expect_one_type(g, node, 0, i));
    SL_TRY(expect_rank(g, node, 0, 3, 3));
    int h = node->attrs.attention.heads, kv = node->attrs.attention.kv_heads;
    if (h < 1 || kv < 1 || h % kv != 0)
        return sl_node_fail(node, "%d heads with %d key and value heads: the second must divide the first", h, kv);
    if (node->attrs.attention.head_width > SL_MAX_HEAD_WIDTH)
        return sl_node_fail(node, "heads of width %d: kernels keep tiles of heads up to %d wide; use more heads",
                            node->attrs.attention.head_width, SL_MAX_HEAD_WIDTH);
    sl_shape out;
    if (node->attrs.attention.packed)
        SL_TRY(attention_packed_shape(g, node, &out));
    else
        SL_TRY(attention_separate_shape(g, node, &out));
    SL_TRY(attention_limits(g, node, &out));
    SL_TRY(attention_factors(node));
    give(g, node, shapes, dtypes, 0, &out);
    give_f32(shapes, dtypes, 1, &(sl_shape){ .rank = 3, .dim = { out.dim[0], h, out.dim[1] } });
    return SLUICE_OK;
}

/* The row's own sizes; those of the operands must go with them. */
static sluice_status check_cache(const sl_node *node)
{
    int h = node->attrs.cached.heads, kv = node->attrs.cached.kv_heads, d = node->attrs.cached.head_width;
    if (h < 1 || kv < 1 || h % kv != 0)
        return sl_node_fail(node, "%d heads with %d key and value heads: the second must divide the first", h, kv);
    if (d < 1 || d > SL_MAX_HEAD_WIDTH)
        return sl_node_fail(node, "heads of width %d: must be 1 to %d", d, SL_MAX_HEAD_WIDTH);
    if (node->attrs.cached.slots < 1 || node->attrs.cached.kept < 1 || node->attrs.cached.kept % SL_CACHE_KEYS != 0)
        return sl_node_fail(node,
                            "a cache of %" PRId64 " slots of %" PRId64 " places: the second must be a multiple of %d",
                            node->attrs.cached.slots, node->attrs.cached.kept, SL_CACHE_KEYS);
    if (!(node->attrs.cached.softcap >= 0) || node->attrs.cached.window < 0)
        return sl_node_fail(node, "softcap %g and window %" PRId64 " must not be negative",
                            (double)node->attrs.cached.softcap, node->attrs.cached.window);
    return SLUICE_OK;
}

sluice_status sl_infer_attention_cached(const sluice_graph *g, const sl_node *node, sl_shape *shapes,
                                        sluice_dtype *dtypes)
{
    const sl_shape *x = sl_input_shape(g, node, 0);
    int64_t h = node->attrs.cached.heads, kv = node->attrs.cached.kv_heads, d = node->attrs.cached.head_width;
    char text[SL_OPERAND_BYTES];
    SL_TRY(check_cache(node));
    SL_TRY(expect_rank(g, node, 0, 3, 3));
    if (x->dim[1] != 1 || x->dim[2] != (h + 2 * kv) * d)
        return sl_node_fail(
            node, "%s is not rows of %" PRId64 " query and 2 * %" PRId64 " key and value heads %" PRId64 " wide",
            sl_operand_text(g, node->inputs[0], text), h, kv, d);
    for (int i = 1; i < 3; i++)
        if (g->values[node->inputs[i]].dtype != SLUICE_I32 ||
            sl_shape_elements(sl_input_shape(g, node, i)) != x->dim[0])
            return sl_node_fail(node, "%s is not one index for each of %" PRId64 " rows",
                                sl_operand_text(g, node->inputs[i], text), x->dim[0]);
    give(g, node, shapes, dtypes, 0, &(sl_shape){ .rank = 3, .dim = { x->dim[0], 1, h * d } });
    give(g, node, shapes, dtypes, 1,
         &(sl_shape){ .rank = 3, .dim = { node->attrs.cached.slots, kv, 2 * node->attrs.cached.kept * d } });
    return SLUICE_OK;
}

/* The wanted shape is that of the output value; only the number of elements is tied to the input. */
sluice_status sl_infer_reshape(const sluice_graph *g, const sl_node *node, sl_shape *shapes, sluice_dtype *dtypes)
{
    if (node->outputs[0] < 0) return sl_node_fail(node, "needs its output");
    const sl_shape *to = &g->values[node->outputs[0]].shape;
    char text[SL_OPERAND_BYTES], shape[160];
    if (sl_shape_elements(to) != sl_shape_elements(sl_input_shape(g, node, 0)))
        return sl_node_fail(node, "%s has another number of elements than %s",
                            sl_operand_text(g, node->inputs[0], text), sl_shape_text(to, shape, sizeof shape));
    shapes[0] = *to;
    dtypes[0] = g->values[node->inputs[0]].dtype;
    return SLUICE_OK;
}

sluice_status sl_infer_transpose(const sluice_graph *g, const sl_node *node, sl_shape *shapes, sluice_dtype *dtypes)
{
    SL_TRY(expect_floats(g, node));
    const sl_shape *x = sl_input_shape(g, node, 0);
    sl_shape out = { .rank = x->rank };
    unsigned seen = 0;
    for (int i = 0; i < x->rank; i++) {
        int from = node->attrs.transpose.order[i];
        char text[SL_OPERAND_BYTES];
        if (from < 0 || from >= x->rank || (seen & 1u << from))
            return sl_node_fail(node, "order[%d] = %d: the order must name each dimension of %s once", i, from,
                                sl_operand_text(g, node->inputs[0], text));
        seen |= 1u << from;
        out.dim[i] = x->dim[from];
    }
    give(g, node, shapes, dtypes, 0, &out);
    return SLUICE_OK;
}

/* SPLIT, CONCAT_GRAD */
sluice_status sl_infer_split(const sluice_graph *g, const sl_node *node, sl_shape *shapes, sluice_dtype *dtypes)
{
    SL_TRY(expect_floats(g, node));
    sl_shape out = *sl_input_shape(g, node, 0);
    int axis = node->attrs.split.axis;
    int64_t start = node->attrs.split.start, size = node->attrs.split.size;
    char text[SL_OPERAND_BYTES];
    sl_operand_text(g, node->inputs[0], text);
    if (axis < 0 || axis >= out.rank) return sl_node_fail(node, "%s has no dimension %d", text, axis);
    if (start < 0 || size < 1 || size > out.dim[axis] || start > out.dim[axis] - size)
        return sl_node_fail(node, "[%" PRId64 ", %" PRId64 " + %" PRId64 ") is not inside dimension %d of %s", start,
                            start, size, axis, text);
    out.dim[axis] = size;
    give(g, node, shapes, dtypes, 0, &out);
    return SLUICE_OK;
}

sluice_status sl_infer_add_part(const sluice_graph *g, const sl_node *node, sl_shape *shapes, sluice_dtype *dtypes)
{
    const sl_shape *whole = sl_input_shape(g, node, 0);
    char a[SL_OPERAND_BYTES], b[SL_OPERAND_BYTES];
    sl_shape part;
    sluice_dtype type;
    SL_TRY(sl_infer_split(g, node, &part, &type));
    if (!sl_shape_equal(&part, sl_input_shape(g, node, 1)))
        return sl_node_fail(node, "%s is not [%" PRId64 ", %" PRId64 " + %" PRId64 ") of dimension %d of %s",
                            sl_operand_text(g, node->inputs[1], b), node->attrs.split.start, node->attrs.split.start,
                            node->attrs.split.size, node->attrs.split.axis, sl_operand_text(g, node->inputs[0], a));
    give(g, node, shapes, dtypes, 0, whole);
    return SLUICE_OK;
}

sluice_status sl_infer_concat(const sluice_graph *g, const sl_node *node, sl_shape *shapes, sluice_dtype *dtypes)
{
    SL_TRY(expect_floats(g, node));
    sl_shape out = *sl_input_shape(g, node, 0);
    int axis = node->attrs.concat.axis;
    char a[SL_OPERAND_BYTES], b[SL_OPERAND_BYTES];
    sl_operand_text(g, node->inputs[0], a);
    if (axis < 0 || axis >= out.rank) return sl_node_fail(node, "%s has no dimension %d", a, axis);
    for (int i = 1; i < node->input_count; i++) {
        sl_shape part = *sl_input_shape(g, node, i);
        int64_t joined = 0;
        bool fits = part.rank == out.rank && !__builtin_add_overflow(out.dim[axis], part.dim[axis], &joined);
        part.dim[axis] = out.dim[axis]; /* the one dimension that may differ */
        if (!fits || !sl_shape_equal(&part, &out))
            return sl_node_fail(node, "%s and %s differ in another dimension than %d", a,
                                sl_operand_text(g, node->inputs[i], b), axis);
        out.dim[axis] = joined;
    }
    give(g, node, shapes, dtypes, 0, &out);
    return SLUICE_OK;
}

/* 0: logits are taken as they are. */
static sluice_status check_softcap(const sl_node *node)
{
    float cap = node->attrs.cross_entropy.softcap;
    if (cap >= 0 && !isinf(cap)) return SLUICE_OK;
    return sl_node_fail(node, "a soft cap of %g must be finite and positive, or 0 for none", (double)cap);
}

/* What is given to all classes alike, of 1. */
static sluice_status check_smoothing(const sl_node *node)
{
    float smoothing = node->attrs.cross_entropy.smoothing;
    if (smoothing >= 0 && smoothing <= 1) return SLUICE_OK;
    return sl_node_fail(node, "a label smoothing of %g must be 0 to 1", (double)smoothing);
}

sluice_status sl_infer_cross_entropy(const sluice_graph *g, const sl_node *node, sl_shape *shapes, sluice_dtype *dtypes)
{
    SL_TRY(sl_expect_float(g, node, 0));
    SL_TRY(sl_expect_dtype(g, node, 1, SLUICE_I32));
    SL_TRY(check_softcap(node));
    SL_TRY(check_smoothing(node));
    SL_TRY(expect_rank(g, node, 0, 1, SL_MAX_RANK));
    const sl_shape *logits = sl_input_shape(g, node, 0);
    sl_shape rows = *logits;
    rows.rank--;
    if (!sl_shape_equal(&rows, sl_input_shape(g, node, 1))) {
        char a[SL_OPERAND_BYTES], b[SL_OPERAND_BYTES], s[160];
        return sl_node_fail(node, "logits %s need targets of shape %s, not %s", sl_operand_text(g, node->inputs[0], a),
                            sl_shape_text(&rows, s, sizeof s), sl_operand_text(g, node->inputs[1], b));
    }
    give_scalar(shapes, dtypes, 0);
    give_rows(shapes, dtypes, 1, logits);
    give_scalar(shapes, dtypes, 2);
    return SLUICE_OK;
}

sluice_status sl_infer_linear_cross_entropy(const sluice_graph *g, const sl_node *node, sl_shape *shapes,
                                            sluice_dtype *dtypes)
{
    SL_TRY(sl_expect_one_type(g, node, 0, 1));
    SL_TRY(sl_expect_dtype(g, node, 2, SLUICE_I32));
    SL_TRY(check_softcap(node));
    SL_TRY(check_smoothing(node));
    SL_TRY(expect_rank(g, node, 0, 1, SL_MAX_RANK));
    SL_TRY(expect_rank(g, node, 1, 2, 2));
    const sl_shape *x = sl_input_shape(g, node, 0), *w = sl_input_shape(g, node, 1);
    SL_TRY(expect_features(g, node, w->dim[1]));
    sl_shape rows = *x;
    rows.rank--;
    if (!sl_shape_equal(&rows, sl_input_shape(g, node, 2))) {
        char a[SL_OPERAND_BYTES], b[SL_OPERAND_BYTES], s[160];
        return sl_node_fail(node, "rows %s need targets of shape %s, not %s", sl_operand_text(g, node->inputs[0], a),
                            sl_shape_text(&rows, s, sizeof s), sl_operand_text(g, node->inputs[2], b));
    }
    give_scalar(shapes, dtypes, 0);
    give_scalar(shapes, dtypes, 1);
    give_f32(shapes, dtypes, 2, w);
    give(g, node, shapes, dtypes, 3, x);
    if (node->input_count < 4) return SLUICE_OK;
    SL_TRY(sl_expect_one_type(g, node, 0, 3));
    SL_TRY(expect_bias(g, node, 3, w->dim[0]));
    give_f32(shapes, dtypes, 4, sl_input_shape(g, node, 3));
    return SLUICE_OK;
}

/* Differences of nearly equal numbers: always of f32 ones. */
sluice_status sl_infer_mse(const sluice_graph *g, const sl_node *node, sl_shape *shapes, sluice_dtype *dtypes)
{
    for (int i = 0; i < 2; i++) SL_TRY(sl_expect_dtype(g, node, i, SLUICE_F32));
    SL_TRY(sl_expect_equal(g, node, 0, 1));
    give_scalar(shapes, dtypes, 0);
    return SLUICE_OK;
}

/* log(1 + e^y) - target y is a small difference where a prediction is right: of f32 numbers. */
sluice_status sl_infer_bce_with_logits(const sluice_graph *g, const sl_node *node, sl_shape *shapes,
                                       sluice_dtype *dtypes)
{
    for (int i = 0; i < node->input_count; i++) {
        SL_TRY(sl_expect_dtype(g, node, i, SLUICE_F32));
        SL_TRY(sl_expect_equal(g, node, 0, i));
    }
    give_scalar(shapes, dtypes, 0);
    return SLUICE_OK;
}

/* SUM, MEAN */
sluice_status sl_infer_scalar(const sluice_graph *g, const sl_node *node, sl_shape *shapes, sluice_dtype *dtypes)
{
    SL_TRY(expect_floats(g, node));
    give_scalar(shapes, dtypes, 0);
    return SLUICE_OK;
}

/* The output is already a value, whose type says what to cast to. */
sluice_status sl_infer_cast(const sluice_graph *g, const sl_node *node, sl_shape *shapes, sluice_dtype *dtypes)
{
    SL_TRY(expect_floats(g, node));
    if (node->outputs[0] < 0 || g->values[node->outputs[0]].dtype == SLUICE_I32)
        return sl_node_fail(node, "a cast needs an output of a float type");
    shapes[0] = *sl_input_shape(g, node, 0);
    dtypes[0] = g->values[node->outputs[0]].dtype;
    return SLUICE_OK;
}
