/* identity_test.c: a model's identity follows every attribute that is not free, and the lines of attributes name each. */
#include <stdlib.h>

#include "ir/graph.h"
#include "ir/op_rows.h"
#include "test.h"

/* ---- descriptors ---- */

TEST(descriptors_cover_every_byte_of_an_attribute_but_padding)
{
    for (int op = 0; op < SL_OP_COUNT; op++) {
        const sl_attribute_list *list = sl_ops[op].attributes;
        size_t end = offsetof(sl_attrs, scale), first = end;
        for (int k = 0; k < list->count; k++) {
            const sl_attribute *a = &list->rows[k];
            size_t each = sl_attribute_bytes(a), padded = (end + each - 1) / each * each;
            CHECK_EQ(a->offset, padded); /* it begins where the one before ends, but for its own alignment */
            CHECK(a->count >= 1);
            end = a->offset + each * (size_t)a->count;
        }
        size_t bytes = list->count > 0 ? list->bytes : 0, tail = bytes - (end - first);
        CHECK(end - first <= bytes && tail < sizeof(int64_t));
    }
}

TEST(the_attributes_of_ops_are_all_that_the_union_holds)
{
    size_t largest = sizeof(((sl_attrs *)NULL)->update);
    for (int op = 0; op < SL_OP_COUNT; op++)
        if (sl_ops[op].attributes->bytes > largest) largest = sl_ops[op].attributes->bytes;
    size_t end = offsetof(sl_attrs, scale) + largest, each = _Alignof(sl_attrs);
    CHECK_EQ(sizeof(sl_attrs), (end + each - 1) / each * each);
}

TEST(a_free_attribute_says_why_it_is)
{
    int found = 0;
    for (int op = 0; op < SL_OP_COUNT; op++)
        for (int k = 0; k < sl_ops[op].attributes->count; k++) {
            const sl_attribute *a = &sl_ops[op].attributes->rows[k];
            found += a->free != NULL;
            CHECK(a->free == NULL || strlen(a->free) > 10);
        }
    CHECK(found > 0);
}

/* ---- the hash ---- */

/* A graph of one parameter and one forward node of the op, made by hand: no op refuses it, whatever its attributes. */
static sluice_graph *graph_of(sl_op op)
{
    sluice_graph *g;
    if (sluice_graph_create(&g) != SLUICE_OK) abort();
    sluice_value x = sluice_parameter(g, "x", 2, (int64_t[]){ 4, 6 }, (sluice_init){ SLUICE_INIT_ZERO, 0 });
    sluice_relu(g, x);
    g->nodes[0].op = op;
    memset(&g->nodes[0].attrs, 0, sizeof g->nodes[0].attrs);
    return g;
}

/* Sets element i of an attribute to its smallest step from zero. */
static void change(sl_attrs *attrs, const sl_attribute *a, int i)
{
    float small = 1e-30f;
    char *at = (char *)attrs + a->offset + (size_t)i * sl_attribute_bytes(a);
    if (a->type == SL_ATTRIBUTE_float)
        memcpy(at, &small, sizeof small);
    else
        *at = 1;
}

/* A change of the last byte of a number counts as one of the first does: all of it is hashed. */
static void change_last_byte(sl_attrs *attrs, const sl_attribute *a, int i)
{
    size_t each = sl_attribute_bytes(a);
    *((char *)attrs + a->offset + (size_t)i * each + each - 1) = 1;
}

static void check_attribute(sl_op op, const sl_attribute *a, int i, void (*by)(sl_attrs *, const sl_attribute *, int))
{
    sluice_graph *g = graph_of(op);
    char before[65], after[65];
    sl_graph_identity(g, before);
    by(&g->nodes[0].attrs, a, i);
    sl_graph_identity(g, after);
    if ((strcmp(before, after) != 0) != (a->free == NULL))
        test_fail(__FILE__, __LINE__, "%s.%s[%d] %s the identity", sl_ops[op].name, a->name, i,
                  a->free == NULL ? "does not change" : "is free and changes");
    sluice_graph_destroy(g);
}

TEST(every_attribute_changes_the_identity_unless_it_is_free)
{
    int checked = 0;
    for (int op = 0; op < SL_OP_COUNT; op++)
        for (int k = 0; sl_ops[op].phase == SL_PHASE_FORWARD && k < sl_ops[op].attributes->count; k++)
            for (int i = 0; i < sl_ops[op].attributes->rows[k].count; i++) {
                check_attribute((sl_op)op, &sl_ops[op].attributes->rows[k], i, change);
                check_attribute((sl_op)op, &sl_ops[op].attributes->rows[k], i, change_last_byte);
                checked++;
            }
    CHECK(checked >= 30);
}

/* A small model as its user builds it; what differs between two of them is said by the arguments. */
typedef struct variant {
    const char *name;
    int64_t width;
    float base, epsilon, dropout;
    bool silu, twice;
} variant;

static const variant usual = { "w", 8, 10000, 1e-5f, 0.1f, false, false };

static sluice_graph *model(variant v)
{
    static const sluice_init some = { SLUICE_INIT_NORMAL, 1 };
    sluice_graph *g;
    if (sluice_graph_create(&g) != SLUICE_OK) abort();
    sluice_value x = sluice_input(g, "x", SLUICE_F32, 3, (int64_t[]){ 2, 3, v.width });
    sluice_value w = sluice_parameter(g, v.name, 2, (int64_t[]){ v.width, v.width }, some);
    sluice_value n = sluice_parameter(g, "n", 1, &v.width, some);
    x = sluice_rotary(g, sluice_linear_with(g, x, w, SLUICE_NONE, false), 2, (int)v.width / 2, v.base);
    if (v.twice) x = sluice_rotary(g, x, 2, (int)v.width / 2, 2 * v.base);
    x = sluice_dropout(g, sluice_rms_norm(g, x, n, v.epsilon), v.dropout);
    x = v.silu ? sluice_silu(g, x) : sluice_relu(g, x);
    sluice_set_loss(
        g, sluice_mean(g, sluice_attention_packed(g, sluice_linear_with(g, x, w, SLUICE_NONE, false), 2, 1, true)));
    if (sl_graph_finish(g) != SLUICE_OK) test_fail(__FILE__, __LINE__, "%s", sluice_error());
    return g;
}

static void check_identity(variant v, bool same)
{
    sluice_graph *a = model(usual), *b = model(v);
    char one[65], other[65];
    sl_graph_identity(a, one);
    sl_graph_identity(b, other);
    CHECK_EQ(strcmp(one, other) == 0, same);
    sluice_graph_destroy(a);
    sluice_graph_destroy(b);
}

TEST(a_model_of_other_parameters_ops_or_attributes_has_another_identity)
{
    variant v = usual;
    check_identity(v, true);
    v = usual, v.name = "v", check_identity(v, false);
    v = usual, v.width = 16, check_identity(v, false);
    v = usual, v.silu = true, check_identity(v, false);
    v = usual, v.base = 10001, check_identity(v, false);
    v = usual, v.epsilon = 1e-6f, check_identity(v, false);
    v = usual, v.twice = true, check_identity(v, false);
    v = usual, v.dropout = 0.2f, check_identity(v, true);
    v = usual, v.dropout = 0, check_identity(v, true); /* no such node */
}

/* Recorded before ops got attributes that are marked SL_IDENTITY_IF_SET: at 0 they are not there. */
TEST(attributes_that_came_later_leave_the_identity_alone_where_they_are_zero)
{
    sluice_graph *g = model(usual);
    char sha256[65];
    sl_graph_identity(g, sha256);
    CHECK_STR(sha256, "35b796d136eaa654344fb336464ac0f0951cccf159c7fe31ae77ea98480c9434");
    sluice_graph_destroy(g);
}

TEST(the_identity_of_older_checkpoints_sees_parameters_ops_and_heads_alone)
{
    variant v = usual;
    sluice_graph *a = model(usual), *b;
    char one[65], other[65];
    sl_graph_identity_v1(a, one);
    CHECK_STR(one, "788da30aa09e4f96a9c7e4dc33b16fb7df6ba6dcd7dc2c616035ad809177ce0c");
    v.base = 500, v.epsilon = 1e-3f;
    b = model(v);
    sl_graph_identity_v1(b, other);
    CHECK_STR(other, one);
    sluice_graph_destroy(b);
    v = usual, v.silu = true;
    b = model(v);
    sl_graph_identity_v1(b, other);
    CHECK(strcmp(other, one) != 0);
    sluice_graph_destroy(a);
    sluice_graph_destroy(b);
}

/* ---- the lines ---- */

static char *lines_of(const sluice_graph *g)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    sl_graph_write_attributes(g, out);
    fclose(out);
    return text;
}

TEST(attributes_are_written_a_line_each_without_the_free_ones)
{
    sluice_graph *g = model(usual);
    char *text = lines_of(g);
    CHECK_STR(text, "linear.in_out: false\n"
                    "rms_norm.epsilon: 9.99999975e-06\n"
                    "rotary.heads: 2\nrotary.head_width: 4\nrotary.base: 10000\nrotary.inverse: false\n"
                    "attention.heads: 2\nattention.kv_heads: 1\nattention.head_width: 2\nattention.causal: true\n"
                    "attention.packed: true\nattention.scale: 0.707106769\n");
    free(text);
    sluice_graph_destroy(g);
}

TEST(values_that_differ_between_nodes_are_written_in_order)
{
    variant v = usual;
    v.twice = true;
    sluice_graph *g = model(v);
    char *text = lines_of(g);
    CHECK_CONTAINS(text, "\nrotary.base: 10000 20000\n");
    CHECK_CONTAINS(text, "\nrotary.heads: 2\n");
    free(text);
    sluice_graph_destroy(g);
}

static sluice_graph *many_scales(float last)
{
    sluice_graph *g;
    if (sluice_graph_create(&g) != SLUICE_OK) abort();
    sluice_value x = sluice_input(g, "x", SLUICE_F32, 1, (int64_t[]){ 4 });
    for (int i = 0; i < 40; i++) x = sluice_scale(g, x, 1.0f + (float)i);
    sluice_transpose(g, sluice_scale(g, x, last), (int[]){ 0 });
    return g;
}

TEST(many_values_are_cut_short_and_told_apart_by_a_hash)
{
    sluice_graph *a = many_scales(7), *b = many_scales(8);
    char *one = lines_of(a), *other = lines_of(b);
    CHECK_CONTAINS(one, "scale.factor: 1 2 3 4 5 ");
    CHECK_CONTAINS(one, " .. ");
    CHECK_CONTAINS(one, "transpose.order: 0,0,0,0,0,0\n");
    CHECK(strlen(one) < 200);
    CHECK(strcmp(one, other) != 0);
    free(one);
    free(other);
    sluice_graph_destroy(a);
    sluice_graph_destroy(b);
}
