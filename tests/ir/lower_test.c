/* lower_test.c: the types of a graph in 16 bits, where casts stand, and how gradients of parameters reach the wire type. */
#include "core/alloc.h"
#include "ir/tile.h"
#include "support/graph_interpreter.h"
#include "test.h"

static const sluice_init zero = { SLUICE_INIT_ZERO, 0 }, some = { SLUICE_INIT_NORMAL, 1 };

static sluice_value input(sluice_graph *g, const char *name, int64_t rows, int64_t columns)
{
    return sluice_input(g, name, SLUICE_F32, 2, (int64_t[]){ rows, columns });
}

static sluice_value vector(sluice_graph *g, const char *name, int64_t n)
{
    return sluice_parameter(g, name, 1, &n, zero);
}

/* Nodes [first, end) as "cast linear +cast ...", "+" before those that add in place. */
static const char *text_of(const sluice_graph *g, int first, int end, char *buf, size_t bytes)
{
    size_t at = 0;
    buf[0] = '\0';
    for (int n = first; n < end && at < bytes; n++)
        at += (size_t)snprintf(buf + at, bytes - at, "%s%s%s", n == first ? "" : " ",
                               g->nodes[n].attrs.accumulate ? "+" : "", sl_ops[g->nodes[n].op].name);
    return buf;
}

static const char *forward_text(const sluice_graph *g, char *buf, size_t bytes)
{
    return text_of(g, 0, g->forward_count, buf, bytes);
}

static const char *backward_text(const sluice_graph *g, char *buf, size_t bytes)
{
    return text_of(g, g->forward_count, g->forward_count + g->backward_count, buf, bytes);
}

static sluice_dtype type_of(const sluice_graph *g, int value)
{
    return g->values[value].dtype;
}

static int count_ops(const sluice_graph *g, sl_op op)
{
    int n = 0;
    for (int i = 0; i < g->node_count; i++) n += g->nodes[i].op == op;
    return n;
}

/* What must hold of the types of every value and node, whatever the graph. */
static void check_types(const sluice_graph *g)
{
    for (int p = 0; p < g->parameter_count; p++) {
        CHECK_EQ(type_of(g, g->parameters[p].value), g->precision);
        if (g->parameters[p].gradient >= 0) CHECK_EQ(type_of(g, g->parameters[p].gradient), g->wire);
    }
    for (int n = 0; n < g->forward_count; n++) {
        const sl_node *node = &g->nodes[n];
        const sl_value *out = &g->values[node->outputs[0]];
        if (node->op != SL_OP_CAST && node->op != SL_OP_RESHAPE)
            CHECK_EQ(out->dtype, out->shape.rank > 0 ? g->precision : SLUICE_F32);
        for (int i = 1; i < node->output_count; i++)
            CHECK_EQ(type_of(g, node->outputs[i]), node->op == SL_OP_LINEAR_GELU ? g->precision : SLUICE_F32);
    }
    CHECK_EQ(type_of(g, g->loss), SLUICE_F32);
    for (int v = 0; v < g->value_count; v++) {
        CHECK(g->values[v].kind != SL_VALUE_INPUT || g->values[v].dtype < SLUICE_BF16);
        CHECK_EQ(g->values[v].dtype, type_of(g, g->values[v].storage));
    }
}

/* ---- graphs ---- */

static sluice_graph *mlp(void)
{
    sluice_graph *g;
    if (sluice_graph_create(&g) != SLUICE_OK) return NULL;
    sluice_value x = input(g, "x", 2, 4), t = input(g, "t", 2, 3);
    sluice_layer(g, "one");
    sluice_value h = sluice_relu(g, sluice_linear(g, x, 5, "a"));
    sluice_layer(g, "two");
    sluice_value y = sluice_linear(g, sluice_concat(g, (sluice_value[]){ h, x }, 2, 1), 3, "b");
    sluice_set_loss(g, sluice_mse(g, y, t));
    sluice_set_output(g, y);
    return g;
}

/* Tied table, position table, norms, attention, dropout: GPT-2 in one block. */
static sluice_graph *gpt(void)
{
    enum { B = 2, T = 3, C = 4, V = 7 };
    sluice_graph *g;
    if (sluice_graph_create(&g) != SLUICE_OK) return NULL;
    sluice_value ids = sluice_input(g, "ids", SLUICE_I32, 2, (int64_t[]){ B, T });
    sluice_value targets = sluice_input(g, "targets", SLUICE_I32, 2, (int64_t[]){ B, T });
    sluice_value table = sluice_parameter(g, "wte", 2, (int64_t[]){ V, C }, some);
    sluice_layer(g, "embed");
    sluice_value x = sluice_embedding(g, ids, table);
    x = sluice_dropout(g, sluice_add(g, x, sluice_parameter(g, "wpe", 2, (int64_t[]){ T, C }, some)), 0.5f);
    sluice_layer(g, "block");
    sluice_value y = sluice_layer_norm(g, x, vector(g, "ln.weight", C), vector(g, "ln.bias", C), 1e-5f);
    y = sluice_attention_packed(g, sluice_linear(g, y, 3 * C, "qkv"), 2, 2, true);
    x = sluice_add(g, x, sluice_dropout(g, sluice_linear(g, y, C, "proj"), 0.5f));
    sluice_layer(g, "head");
    y = sluice_linear_with(g, sluice_rms_norm(g, x, vector(g, "norm.weight", C), 1e-5f), table, SLUICE_NONE, false);
    sluice_set_output(g, y);
    sluice_set_loss(g, sluice_cross_entropy(g, y, targets, -1));
    return g;
}

/* ---- forward ---- */

TEST(lower_casts_an_input_once_for_all_its_readers_and_back_for_mse)
{
    sluice_graph *g = mlp();
    REQUIRE(g != NULL);
    int loss = g->loss, output = g->output;
    REQUIRE_OK(sl_graph_lower(g, SLUICE_BF16, SLUICE_BF16));
    char text[512];
    CHECK_STR(forward_text(g, text, sizeof text), "cast linear relu concat linear cast mse");
    CHECK_EQ(g->nodes[3].inputs[1], g->nodes[0].outputs[0]); /* the second layer reads the first one's cast */
    CHECK_EQ(g->nodes[0].layer, g->nodes[1].layer);
    CHECK_EQ(g->nodes[5].layer, g->nodes[6].layer);
    CHECK_EQ(type_of(g, g->nodes[5].outputs[0]), SLUICE_F32);
    CHECK_STR(g->nodes[0].name, "x.bf16");
    CHECK_EQ(g->loss, loss);
    CHECK_EQ(g->output, output);
    CHECK_EQ(type_of(g, output), SLUICE_BF16);
    CHECK_EQ(g->layers[0].node_count, 3);
    CHECK_EQ(g->layers[1].first_node, 3);
    CHECK_EQ(sl_node_type(g, &g->nodes[0]), SLUICE_F32);
    CHECK_EQ(sl_node_type(g, &g->nodes[1]), SLUICE_BF16);
    CHECK_EQ(sl_node_type(g, &g->nodes[6]), SLUICE_F32);
    check_types(g);
    REQUIRE_OK(sl_graph_differentiate(g));
    CHECK_STR(backward_text(g, text, sizeof text),
              "seed mse_grad cast linear_grad_weight linear_grad_input concat_grad "
              "relu_grad linear_grad_weight");
    check_types(g);
    sluice_graph_destroy(g);
}

TEST(lower_gives_a_transformer_types_without_a_cast_and_keeps_its_masks)
{
    static const sluice_dtype types[] = { SLUICE_BF16, SLUICE_F16 };
    for (int i = 0; i < 2; i++) {
        sluice_graph *plain = gpt(), *g = gpt();
        REQUIRE(plain != NULL && g != NULL);
        REQUIRE_OK(sl_graph_lower(g, types[i], types[i]));
        REQUIRE_OK(sl_graph_finish(plain));
        CHECK_EQ(count_ops(g, SL_OP_CAST), 0);
        REQUIRE(g->forward_count == plain->forward_count);
        for (int n = 0; n < g->forward_count; n++)
            if (g->nodes[n].op == SL_OP_DROPOUT)
                CHECK_EQ(g->nodes[n].attrs.dropout.op, plain->nodes[n].attrs.dropout.op);
        check_types(g);
        REQUIRE_OK(sl_graph_differentiate(g));
        check_types(g);
        CHECK_EQ(count_ops(g, SL_OP_CAST), 1); /* of the tied table's gradient */
        sluice_graph_destroy(plain);
        sluice_graph_destroy(g);
    }
}

TEST(lower_keeps_two_losses_and_what_joins_them_in_f32)
{
    sluice_graph *g;
    REQUIRE_OK(sluice_graph_create(&g));
    sluice_value ids = sluice_input(g, "ids", SLUICE_I32, 1, (int64_t[]){ 2 });
    sluice_value h = sluice_linear(g, input(g, "x", 2, 4), 3, "a");
    sluice_value first = sluice_cross_entropy(g, h, ids, -1), second = sluice_mean(g, sluice_multiply(g, h, h));
    sluice_set_loss(g, sluice_add(g, first, sluice_scale(g, second, 0.5f)));
    REQUIRE_OK(sl_graph_lower(g, SLUICE_BF16, SLUICE_BF16));
    char text[512];
    CHECK_STR(forward_text(g, text, sizeof text), "cast linear cross_entropy multiply mean scale add");
    REQUIRE_OK(sl_graph_differentiate(g));
    check_types(g);
    for (int n = g->forward_count; n < g->node_count; n++)
        if (g->nodes[n].op == SL_OP_EXPAND) CHECK_EQ(type_of(g, g->nodes[n].outputs[0]), SLUICE_BF16);
    sluice_graph_destroy(g);
}

TEST(lower_casts_a_scalar_where_it_meets_a_tensor)
{
    sluice_graph *g;
    REQUIRE_OK(sluice_graph_create(&g));
    sluice_value s = sluice_parameter(g, "s", 0, NULL, some), x = sluice_linear(g, input(g, "x", 2, 4), 3, "a");
    x = sluice_multiply(g, x, sluice_mean(g, x));                 /* the mean is cast to the tensor's type */
    sluice_set_loss(g, sluice_multiply(g, sluice_mean(g, x), s)); /* the parameter to the scalar's */
    REQUIRE_OK(sl_graph_lower(g, SLUICE_F16, SLUICE_F16));
    char text[512];
    CHECK_STR(forward_text(g, text, sizeof text), "cast linear mean cast multiply mean cast multiply");
    CHECK_EQ(type_of(g, g->nodes[3].outputs[0]), SLUICE_F16);
    CHECK_EQ(type_of(g, g->nodes[6].outputs[0]), SLUICE_F32);
    REQUIRE_OK(sl_graph_differentiate(g));
    check_types(g);
    sluice_graph_destroy(g);
}

/* A view has the type of its source: a reshaped target is as exact as it came. */
TEST(lower_does_not_round_a_view_of_an_input)
{
    sluice_graph *g;
    REQUIRE_OK(sluice_graph_create(&g));
    sluice_value y = sluice_linear(g, input(g, "x", 2, 4), 6, "a"), t = input(g, "t", 4, 3);
    sluice_set_loss(g, sluice_mse(g, y, sluice_reshape(g, t, 2, (int64_t[]){ 2, 6 })));
    REQUIRE_OK(sl_graph_lower(g, SLUICE_BF16, SLUICE_BF16));
    char text[512];
    CHECK_STR(forward_text(g, text, sizeof text), "cast linear reshape cast mse");
    CHECK_EQ(type_of(g, g->nodes[2].outputs[0]), SLUICE_F32);
    REQUIRE_OK(sl_graph_differentiate(g));
    check_types(g);
    sluice_graph_destroy(g);
}

/* Two products around an activation, which `exact` and `shared` keep apart from the first. */
static sluice_graph *perceptron(bool exact, bool shared)
{
    sluice_graph *g;
    if (sluice_graph_create(&g) != SLUICE_OK) return NULL;
    sluice_value h = sluice_linear(g, input(g, "x", 2, 4), 8, "up");
    sluice_value y = sluice_linear(g, sluice_gelu(g, h, exact), 4, "down");
    sluice_set_loss(g, sluice_mse(g, shared ? sluice_add(g, y, sluice_split(g, h, 1, 0, 4)) : y, input(g, "t", 2, 4)));
    return g;
}

TEST(lower_joins_a_product_and_its_gelu)
{
    static const struct {
        bool exact, shared;
        const char *forward, *backward;
    } cases[] = {
        { false, false, "cast linear_gelu linear cast mse",
          "seed mse_grad cast linear_grad_weight linear_grad_gelu linear_grad_weight" },
        { true, false, "cast linear gelu linear cast mse",
          "seed mse_grad cast linear_grad_weight linear_grad_input gelu_grad linear_grad_weight" },
        { false, true, "cast linear gelu linear split add cast mse",
          "seed mse_grad cast split_grad linear_grad_weight linear_grad_input +gelu_grad linear_grad_weight" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sluice_graph *g = perceptron(cases[i].exact, cases[i].shared);
        char text[512];
        REQUIRE(g != NULL);
        REQUIRE_OK(sl_graph_lower(g, SLUICE_BF16, SLUICE_BF16));
        CHECK_STR(forward_text(g, text, sizeof text), cases[i].forward);
        REQUIRE_OK(sl_graph_differentiate(g));
        CHECK_STR(backward_text(g, text, sizeof text), cases[i].backward);
        check_types(g);
        sluice_graph_destroy(g);
    }
}

TEST(lower_joins_a_product_and_its_sum_with_a_tensor_of_its_shape)
{
    sluice_graph *g;
    char text[512];
    REQUIRE_OK(sluice_graph_create(&g));
    sluice_value x = input(g, "x", 2, 4), y = sluice_add(g, x, sluice_linear(g, x, 4, "a"));
    y = sluice_add(g, sluice_linear(g, y, 4, "b"), y);
    y = sluice_add(g, sluice_linear(g, y, 4, "c"), vector(g, "v", 4)); /* stretched to the product's */
    y = sluice_add(g, sluice_linear(g, y, 4, "d"), sluice_parameter(g, "p", 3, (int64_t[]){ 2, 2, 4 }, some));
    sluice_set_loss(g, sluice_sum(g, y));
    REQUIRE_OK(sl_graph_lower(g, SLUICE_BF16, SLUICE_BF16));
    CHECK_STR(forward_text(g, text, sizeof text), "cast linear_add linear_add linear add linear add sum");
    CHECK_EQ(g->nodes[1].input_count, 4); /* the bias is behind what is added */
    CHECK_EQ(g->values[g->nodes[1].inputs[3]].shape.rank, 1);
    REQUIRE_OK(sl_graph_differentiate(g));
    check_types(g);
    sluice_graph_destroy(g);
}

TEST(lower_to_f32_changes_nothing_but_the_wire_type)
{
    sluice_graph *g = gpt(), *plain = gpt();
    REQUIRE(g != NULL && plain != NULL);
    REQUIRE_OK(sl_graph_lower(g, SLUICE_F32, SLUICE_F32));
    REQUIRE_OK(sl_graph_differentiate(g));
    REQUIRE_OK(sl_graph_differentiate(plain));
    REQUIRE(g->node_count == plain->node_count && g->value_count == plain->value_count);
    for (int n = 0; n < g->node_count; n++) {
        CHECK_EQ(g->nodes[n].op, plain->nodes[n].op);
        CHECK_EQ(g->nodes[n].attrs.accumulate, plain->nodes[n].attrs.accumulate);
        for (int i = 0; i < g->nodes[n].output_count; i++) CHECK_EQ(g->nodes[n].outputs[i], plain->nodes[n].outputs[i]);
    }
    check_types(g);
    sluice_graph_destroy(g);
    sluice_graph_destroy(plain);
}

TEST(lower_works_on_tiles)
{
    sluice_graph *g;
    REQUIRE_OK(sluice_graph_create(&g));
    sluice_value x = input(g, "x", 2, 8);
    sluice_layer(g, "one");
    sluice_set_loss(g, sluice_mse(g, sluice_linear(g, x, 6, "a"), input(g, "t", 2, 6)));
    REQUIRE_OK(sl_graph_tile(g, 3 * 8 * sizeof(float)));
    REQUIRE_OK(sl_graph_lower(g, SLUICE_BF16, SLUICE_BF16));
    char text[512];
    CHECK_STR(forward_text(g, text, sizeof text), "cast linear linear concat cast mse");
    REQUIRE_OK(sl_graph_differentiate(g));
    check_types(g);
    sluice_graph_destroy(g);
}

/* ---- gradients of parameters ---- */

TEST(lower_sums_a_tied_gradient_in_f32_and_rounds_it_after_the_last_use)
{
    sluice_graph *g = gpt();
    REQUIRE(g != NULL);
    REQUIRE_OK(sl_graph_lower(g, SLUICE_BF16, SLUICE_BF16));
    REQUIRE_OK(sl_graph_differentiate(g));
    const sl_node *cast = &g->nodes[g->node_count - 1], *last = cast - 1;
    int gradient = g->parameters[sl_graph_find_parameter(g, "wte")].gradient, sum = cast->inputs[0];
    CHECK_EQ(cast->op, SL_OP_CAST);
    CHECK_EQ(cast->outputs[0], gradient);
    CHECK_EQ(g->values[sum].kind, SL_VALUE_GRADIENT);
    CHECK_EQ(type_of(g, sum), SLUICE_F32);
    CHECK_EQ(last->op, SL_OP_EMBEDDING_GRAD);
    CHECK_EQ(last->outputs[0], sum);
    CHECK_EQ(last->attrs.accumulate, 1);
    const sl_node *first = &g->nodes[g->values[sum].producer];
    CHECK_EQ(first->op, SL_OP_LINEAR_GRAD_WEIGHT);
    CHECK_EQ(first->attrs.accumulate, 0);
    CHECK_EQ(cast->layer, last->layer);
    sluice_graph_destroy(g);
}

/* A gradient of f32 is its own sum; ops that cannot write it give theirs through a cast that adds. */
TEST(lower_with_an_f32_wire_adds_up_in_the_gradient_itself)
{
    sluice_graph *g = gpt();
    REQUIRE(g != NULL);
    REQUIRE_OK(sl_graph_lower(g, SLUICE_BF16, SLUICE_F32));
    REQUIRE_OK(sl_graph_differentiate(g));
    check_types(g);
    CHECK_EQ(count_ops(g, SL_OP_CAST), 0);
    CHECK_EQ(g->nodes[g->node_count - 1].outputs[0], g->parameters[sl_graph_find_parameter(g, "wte")].gradient);
    sluice_graph_destroy(g);
}

/* w is used three times: by two products, whose op gives only its own type, and by a sum. */
static sluice_graph *thrice(void)
{
    sluice_graph *g;
    if (sluice_graph_create(&g) != SLUICE_OK) return NULL;
    sluice_value w = sluice_parameter(g, "w", 2, (int64_t[]){ 4, 4 }, some);
    sluice_value y = sluice_matmul(g, sluice_matmul(g, input(g, "x", 4, 4), w, false, false), w, false, false);
    sluice_set_loss(g, sluice_sum(g, sluice_add(g, y, w)));
    return g;
}

TEST(lower_sends_what_is_not_written_wide_through_casts)
{
    static const struct {
        sluice_dtype precision, wire;
        const char *backward;
    } rows[] = {
        { SLUICE_F32, SLUICE_F32, "seed expand reduce_to matmul matmul +reduce_to matmul +reduce_to" },
        { SLUICE_BF16, SLUICE_BF16, "seed expand cast matmul matmul +cast matmul +cast cast" },
        { SLUICE_BF16, SLUICE_F32, "seed expand cast matmul matmul +cast matmul +cast" },
        { SLUICE_F32, SLUICE_BF16, "seed expand reduce_to matmul matmul +reduce_to matmul +reduce_to cast" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        sluice_graph *g = thrice();
        REQUIRE(g != NULL);
        char text[512];
        REQUIRE_OK(sl_graph_lower(g, rows[i].precision, rows[i].wire));
        REQUIRE_OK(sl_graph_differentiate(g));
        CHECK_STR(backward_text(g, text, sizeof text), rows[i].backward);
        check_types(g);
        sluice_graph_destroy(g);
    }
}

/* One use: a wide op writes the wire type itself, another one a temporary in its own. */
TEST(lower_writes_a_single_use_in_the_wire_type)
{
    sluice_graph *g;
    char text[512];
    REQUIRE_OK(sluice_graph_create(&g));
    sluice_value w = sluice_parameter(g, "w", 2, (int64_t[]){ 4, 4 }, some), x = input(g, "x", 4, 4);
    sluice_value y = sluice_matmul(g, sluice_linear(g, x, 4, "a"), w, false, false);
    sluice_set_loss(g, sluice_sum(g, y));
    REQUIRE_OK(sl_graph_lower(g, SLUICE_F32, SLUICE_F16));
    REQUIRE_OK(sl_graph_differentiate(g));
    CHECK_STR(backward_text(g, text, sizeof text), "seed expand matmul matmul cast linear_grad_weight");
    check_types(g);
    sluice_graph_destroy(g);
}

/* ---- numbers ---- */

static sluice_graph *numeric(void)
{
    enum { N = 6, C = 8, V = 9 };
    sluice_graph *g;
    if (sluice_graph_create(&g) != SLUICE_OK) return NULL;
    sluice_value ids = sluice_input(g, "ids", SLUICE_I32, 1, (int64_t[]){ N });
    sluice_value table = sluice_parameter(g, "table", 2, (int64_t[]){ V, C }, some);
    sluice_value x = sluice_add(g, sluice_embedding(g, ids, table), input(g, "x", N, C));
    x = sluice_add(g, x, sluice_silu(g, sluice_linear(g, sluice_rms_norm(g, x, vector(g, "n", C), 1e-5f), C, "a")));
    x = sluice_linear_with(g, x, table, SLUICE_NONE, false);
    sluice_value loss = sluice_cross_entropy(g, x, sluice_input(g, "t", SLUICE_I32, 1, (int64_t[]){ N }), -1);
    sluice_set_loss(g, sluice_add(g, loss, sluice_mse(g, sluice_softmax(g, x), input(g, "p", N, V))));
    return g;
}

/* Parameters as 16 bits hold them, so that every graph starts from the same numbers. */
static void fill(interpreter *in)
{
    uint64_t state = 5;
    for (int v = 0; v < in->graph->value_count; v++) {
        const sl_value *value = &in->graph->values[v];
        if (value->kind != SL_VALUE_INPUT && value->kind != SL_VALUE_PARAMETER) continue;
        for (int64_t i = 0; i < sl_shape_elements(&value->shape); i++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            double x = (double)(state >> 40) / 8388608.0 - 1.0;
            in->data[v][i] =
                value->dtype == SLUICE_I32 ? (double)((state >> 33) % 9) : interpreter_rounded(x, SLUICE_BF16);
        }
    }
}

static bool run(interpreter *in, sluice_dtype precision, sluice_dtype wire)
{
    sluice_graph *g = numeric();
    if (g == NULL || sl_graph_lower(g, precision, wire) != SLUICE_OK || sl_graph_differentiate(g) != SLUICE_OK)
        return false;
    interpreter_open(in, g);
    in->rounds = true;
    fill(in);
    return interpreter_run(in, 0, g->node_count);
}

static void end(interpreter *in)
{
    sluice_graph *g = (sluice_graph *)(uintptr_t)in->graph;
    interpreter_close(in);
    sluice_graph_destroy(g);
}

TEST(lower_keeps_gradients_near_those_of_f32)
{
    static const struct {
        sluice_dtype precision, wire;
        double most;
    } rows[] = { { SLUICE_BF16, SLUICE_BF16, 2e-2 },
                 { SLUICE_BF16, SLUICE_F32, 2e-2 },
                 { SLUICE_F16, SLUICE_F16, 3e-3 },
                 { SLUICE_F32, SLUICE_BF16, 4e-3 } };
    interpreter exact;
    REQUIRE(run(&exact, SLUICE_F32, SLUICE_F32));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        interpreter in;
        REQUIRE(run(&in, rows[i].precision, rows[i].wire));
        for (int p = 0; p < in.graph->parameter_count; p++) {
            const double *a = exact.data[exact.graph->parameters[p].gradient];
            const double *b = in.data[in.graph->parameters[p].gradient];
            double difference = 0, size = 0;
            for (int64_t k = 0; k < in.graph->parameters[p].count; k++) {
                difference += (a[k] - b[k]) * (a[k] - b[k]);
                size += a[k] * a[k];
                CHECK(b[k] == interpreter_rounded(b[k], rows[i].wire));
            }
            double error = sqrt(difference / size);
            if (!(error > 0 && error < rows[i].most))
                test_fail(__FILE__, __LINE__, "%s in %s: off by %g", in.graph->parameters[p].name,
                          sl_dtype_name(rows[i].precision), error);
        }
        end(&in);
    }
    end(&exact);
}

/* ---- costs and refusals ---- */

TEST(lower_halves_the_bytes_of_a_node)
{
    sluice_graph *g = mlp(), *half = mlp();
    REQUIRE(g != NULL && half != NULL);
    REQUIRE_OK(sl_graph_finish(g));
    REQUIRE_OK(sl_graph_lower(half, SLUICE_BF16, SLUICE_BF16));
    CHECK(sl_ops[SL_OP_LINEAR].cost(g, &g->nodes[0]).bytes ==
          2 * sl_ops[SL_OP_LINEAR].cost(half, &half->nodes[1]).bytes);
    CHECK(sl_ops[SL_OP_CAST].cost(half, &half->nodes[0]).bytes == 8 * 4 + 8 * 2);
    sl_node leaves = { .op = SL_OP_NORM_LEAVES, .phase = SL_PHASE_UPDATE, .layer = 0 };
    CHECK(sl_ops[SL_OP_NORM_LEAVES].cost(g, &leaves).bytes == 2 * sl_ops[SL_OP_NORM_LEAVES].cost(half, &leaves).bytes);
    sluice_graph_destroy(g);
    sluice_graph_destroy(half);
}

TEST(lower_refuses_a_second_time_and_other_types)
{
    sluice_graph *g = mlp();
    REQUIRE(g != NULL);
    CHECK_EQ(sl_graph_lower(g, SLUICE_I32, SLUICE_F32), SLUICE_ERR_USAGE);
    CHECK_EQ(sl_graph_lower(g, SLUICE_F32, SLUICE_I32), SLUICE_ERR_USAGE);
    REQUIRE_OK(sl_graph_lower(g, SLUICE_BF16, SLUICE_BF16));
    CHECK_EQ(sl_graph_lower(g, SLUICE_BF16, SLUICE_BF16), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "serves one engine");
    sluice_graph_destroy(g);
    g = mlp();
    REQUIRE(g != NULL);
    REQUIRE_OK(sl_graph_differentiate(g));
    CHECK_EQ(sl_graph_lower(g, SLUICE_BF16, SLUICE_BF16), SLUICE_ERR_USAGE);
    sluice_graph_destroy(g);
}

TEST(lower_out_of_memory_leaves_a_graph_that_is_as_it_was)
{
    bool succeeded = false;
    for (int64_t nth = 1; nth < 100 && !succeeded; nth++) {
        sl_alloc_stats before, after;
        sl_alloc_get_stats(&before);
        sluice_graph *g = mlp();
        REQUIRE(g != NULL);
        REQUIRE_OK(sl_graph_finish(g));
        int values = g->value_count;
        sl_alloc_fail_nth(nth, 1);
        sluice_status st = sl_graph_lower(g, SLUICE_BF16, SLUICE_BF16);
        sl_alloc_fail_nth(0, 0);
        succeeded = st == SLUICE_OK;
        if (!succeeded) {
            CHECK_EQ(st, SLUICE_ERR_NO_MEMORY);
            REQUIRE_OK(sl_graph_verify(g));
            if (g->precision == SLUICE_F32) CHECK_EQ(g->value_count, values);
        }
        REQUIRE_OK(sl_graph_differentiate(g));
        sluice_graph_destroy(g);
        sl_alloc_get_stats(&after);
        CHECK_EQ(after.live_bytes, before.live_bytes);
        if (nth == 1) CHECK(!succeeded);
    }
    CHECK(succeeded);
}
