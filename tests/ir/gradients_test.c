/* Autodiff held to central differences: on every op by itself, made of the cases that kernels are tested with, on small
 * graphs that share values in every way, and on random ones full of them. */
#include "support/graph_interpreter.h"
#include "support/op_cases.h"
#include "test.h"

static uint64_t state;

static uint32_t pick(uint32_t n)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33) % n;
}

static double uniform(void)
{
    return (double)pick(2000001) / 1000000.0 - 1.0;
}

static const sluice_init some = { SLUICE_INIT_NORMAL, 1 };

static sluice_value parameter(sluice_graph *g, int rank, const int64_t *dims)
{
    char name[32];
    snprintf(name, sizeof name, "p%d", g->parameter_count);
    return sluice_parameter(g, name, rank, dims, some);
}

static sluice_value square(sluice_graph *g)
{
    return parameter(g, 2, (int64_t[]){ 4, 4 });
}

static sluice_value row(sluice_graph *g)
{
    return parameter(g, 1, (int64_t[]){ 4 });
}

/* Labels and lengths that an op's case has in the place of indices, in its inputs "ids0", "ids1", .. */
static const op_case *at_hand;

static double index_at(const sl_value *value, int64_t i)
{
    int input = 0;
    if (at_hand == NULL || sscanf(value->name, "ids%d", &input) != 1) return (double)pick(4);
    if (at_hand->fill[input] == LABEL) return (double)case_label(at_hand, input, i);
    if (at_hand->fill[input] == LENGTH) return (double)case_length(at_hand, i);
    if (at_hand->fill[input] == END) return (double)case_end(at_hand, input, i);
    return (double)pick(4);
}

/* Inputs and parameters random; i32 inputs small enough to index four rows. */
static void fill(interpreter *in)
{
    const sluice_graph *g = in->graph;
    for (int v = 0; v < g->value_count; v++) {
        const sl_value *value = &g->values[v];
        if (value->kind != SL_VALUE_INPUT && value->kind != SL_VALUE_PARAMETER) continue;
        for (int64_t i = 0; i < sl_shape_elements(&value->shape); i++)
            in->data[v][i] = value->dtype == SLUICE_I32 ? index_at(value, i) : uniform();
    }
}

static double loss_at(interpreter *in, double *x, double at)
{
    *x = at;
    interpreter_run(in, 0, in->graph->forward_count);
    return in->data[in->graph->loss][0];
}

/* The largest difference between analytic and numeric gradient, relative where they are large. */
static double worst_error(interpreter *in)
{
    const sluice_graph *g = in->graph;
    double worst = 0;
    for (int p = 0; p < g->parameter_count; p++) {
        if (!g->parameters[p].trainable) continue;
        double *x = in->data[g->parameters[p].value], *dx = in->data[g->parameters[p].gradient];
        for (int64_t i = 0; i < g->parameters[p].count; i++) {
            double kept = x[i], step = 1e-5;
            double numeric = (loss_at(in, &x[i], kept + step) - loss_at(in, &x[i], kept - step)) / (2 * step);
            x[i] = kept;
            double error = fabs(numeric - dx[i]) / fmax(1, fabs(numeric));
            if (!(error <= worst)) worst = error;
        }
    }
    return worst;
}

/* Precision and wire type of the graphs under test. The interpreter works in double whatever they are: casts must
 * change no gradient. */
static const struct types {
    sluice_dtype precision, wire;
} all_types[] = {
    { SLUICE_F32, SLUICE_F32 }, { SLUICE_BF16, SLUICE_BF16 }, { SLUICE_F16, SLUICE_F32 }, { SLUICE_F32, SLUICE_BF16 }
};
enum { TYPES = sizeof all_types / sizeof *all_types };

static void check_gradients(sluice_graph *g, const struct types *types, const char *what)
{
    sluice_status st = sl_graph_lower(g, types->precision, types->wire);
    if (st == SLUICE_OK) st = sl_graph_differentiate(g);
    if (st != SLUICE_OK) {
        test_fail(__FILE__, __LINE__, "%s: %s", what, sluice_error());
        return;
    }
    interpreter in;
    interpreter_open(&in, g);
    fill(&in);
    if (!interpreter_run(&in, 0, g->node_count)) test_fail(__FILE__, __LINE__, "%s: unknown op", what);
    double error = worst_error(&in);
    if (!(error < 1e-6)) {
        test_fail(__FILE__, __LINE__, "%s: gradient off by %g", what, error);
        sl_graph_print(g, stderr);
    }
    interpreter_close(&in);
}

/* ---- small graphs ---- */

static sluice_value one_add_self(sluice_graph *g)
{
    sluice_value x = sluice_silu(g, square(g));
    return sluice_add(g, x, x);
}

static sluice_value one_add_same_parameter(sluice_graph *g)
{
    sluice_value x = square(g);
    return sluice_add(g, x, x);
}

static sluice_value one_subtract(sluice_graph *g)
{
    return sluice_subtract(g, row(g), square(g));
}

static sluice_value one_square(sluice_graph *g)
{
    sluice_value x = sluice_silu(g, square(g));
    return sluice_multiply(g, x, x);
}

static sluice_value one_matmul_self(sluice_graph *g)
{
    sluice_value x = square(g);
    return sluice_matmul(g, x, x, false, true);
}

static sluice_value linear_gelu(sluice_graph *g, sluice_value x)
{
    return sluice_gelu(g, sluice_linear_with(g, x, square(g), row(g), false), false);
}

static sluice_value one_linear_gelu(sluice_graph *g)
{
    return linear_gelu(g, square(g));
}

/* In 16 bits the gradient of the second product's input is at once that of the first product. */
static sluice_value one_perceptron(sluice_graph *g)
{
    return sluice_linear_with(g, linear_gelu(g, square(g)), square(g), row(g), true);
}

/* Here it cannot be: the activation has another reader. */
static sluice_value one_perceptron_shared(sluice_graph *g)
{
    sluice_value y = linear_gelu(g, square(g));
    return sluice_add(g, sluice_linear_with(g, y, square(g), row(g), true), y);
}

static sluice_value one_perceptron_of_layers(sluice_graph *g)
{
    sluice_value y = linear_gelu(g, square(g));
    sluice_layer(g, "next");
    return sluice_linear_with(g, y, square(g), row(g), true);
}

static sluice_value one_gelu_of_a_shared_product(sluice_graph *g)
{
    sluice_value h = sluice_linear_with(g, square(g), square(g), row(g), false);
    return sluice_multiply(g, sluice_gelu(g, h, false), h);
}

/* A residual connection, and one to the product's own input. */
static sluice_value one_linear_add(sluice_graph *g)
{
    sluice_value x = square(g), y = sluice_add(g, square(g), sluice_linear_with(g, x, square(g), row(g), false));
    return sluice_add(g, sluice_linear_with(g, y, square(g), SLUICE_NONE, true), y);
}

static sluice_value one_linear_add_of_products(sluice_graph *g)
{
    sluice_value x = square(g), y = sluice_linear_with(g, x, square(g), row(g), false);
    return sluice_add(g, y, sluice_linear_with(g, x, square(g), row(g), true));
}

/* weight and bias are one parameter: two outputs of one node add up */
static sluice_value one_layer_norm_same(sluice_graph *g)
{
    sluice_value w = row(g);
    return sluice_layer_norm(g, square(g), w, w, 1e-2f);
}

static sluice_value one_reshape(sluice_graph *g)
{
    return sluice_silu(g, sluice_reshape(g, square(g), 3, (int64_t[]){ 2, -1, 2 }));
}

static sluice_value one_reshape_shared(sluice_graph *g)
{
    sluice_value x = sluice_silu(g, square(g)), flat = sluice_reshape(g, x, 1, (int64_t[]){ 16 });
    sluice_value y = sluice_multiply(g, flat, flat);
    return sluice_add(g, sluice_add(g, x, sluice_reshape(g, y, 2, (int64_t[]){ 4, 4 })),
                      sluice_reshape(g, flat, 2, (int64_t[]){ 4, 4 }));
}

static sluice_value one_split(sluice_graph *g)
{
    sluice_value x = sluice_silu(g, parameter(g, 3, (int64_t[]){ 2, 5, 3 }));
    sluice_value a = sluice_split(g, x, 1, 0, 2), b = sluice_split(g, x, 1, 3, 2);
    return sluice_multiply(g, a, b);
}

static sluice_value one_concat(sluice_graph *g)
{
    sluice_value x = parameter(g, 3, (int64_t[]){ 2, 1, 3 }),
                 y = sluice_silu(g, parameter(g, 3, (int64_t[]){ 2, 2, 3 }));
    return sluice_concat(g, (sluice_value[]){ x, y, x, y }, 4, 1);
}

static sluice_value one_mse_self(sluice_graph *g)
{
    sluice_value x = square(g);
    return sluice_add(g, sluice_mse(g, x, x), sluice_sum(g, x));
}

static sluice_value one_cross_entropy(sluice_graph *g)
{
    return sluice_cross_entropy(g, square(g), sluice_input(g, "t", SLUICE_I32, 1, (int64_t[]){ 4 }), 2);
}

static sluice_value one_swiglu(sluice_graph *g)
{
    sluice_value x = sluice_silu(g, parameter(g, 2, (int64_t[]){ 3, 6 }));
    return sluice_add(g, sluice_swiglu(g, x), sluice_split(g, x, 1, 2, 3));
}

static sluice_value head(sluice_graph *g, sluice_value x, sluice_value weight)
{
    sluice_value targets = sluice_input(g, "t", SLUICE_I32, 1, (int64_t[]){ 4 });
    return sluice_linear_cross_entropy(g, x, weight, targets, 2);
}

/* The weight is read twice more: its gradient is a sum. */
static sluice_value one_linear_cross_entropy_shared(sluice_graph *g)
{
    sluice_value w = square(g), x = sluice_silu(g, sluice_add(g, square(g), w));
    sluice_value loss = sluice_scale(g, head(g, x, w), 0.7f);
    return sluice_add(g, loss, sluice_mean(g, sluice_multiply(g, x, w)));
}

/* Weight and input are one. */
static sluice_value one_linear_cross_entropy_self(sluice_graph *g)
{
    sluice_value x = square(g);
    return head(g, x, x);
}

static sluice_value one_linear_cross_entropy_frozen(sluice_graph *g)
{
    sluice_value w = square(g);
    sluice_freeze(g, w);
    return head(g, sluice_silu(g, square(g)), w);
}

static sluice_value one_linear_cross_entropy_alone(sluice_graph *g)
{
    return head(g, sluice_input(g, "x", SLUICE_F32, 2, (int64_t[]){ 4, 4 }), square(g));
}

static sluice_value biased_head(sluice_graph *g, sluice_value x, sluice_value weight, sluice_value bias)
{
    sluice_value targets = sluice_input(g, "t", SLUICE_I32, 1, (int64_t[]){ 4 });
    return sluice_linear_cross_entropy_with(g, x, weight, bias, targets, 2, 0, 0.1f);
}

/* The bias is read once more: its gradient is a sum. */
static sluice_value one_biased_head_shared(sluice_graph *g)
{
    sluice_value w = square(g), b = row(g), x = sluice_silu(g, sluice_add(g, square(g), b));
    return sluice_scale(g, biased_head(g, x, w, b), 0.7f);
}

/* A bias that is computed. */
static sluice_value one_biased_head_activation(sluice_graph *g)
{
    sluice_value w = square(g), b = sluice_silu(g, row(g));
    return sluice_add(g, biased_head(g, sluice_silu(g, square(g)), w, b), sluice_mean(g, b));
}

/* Only the bias learns; all but it do. */
static sluice_value one_biased_head_alone(sluice_graph *g)
{
    sluice_value w = square(g), x = sluice_input(g, "x", SLUICE_F32, 2, (int64_t[]){ 4, 4 });
    sluice_freeze(g, w);
    return biased_head(g, x, w, row(g));
}

static sluice_value one_biased_head_frozen(sluice_graph *g)
{
    sluice_value b = row(g);
    sluice_freeze(g, b);
    return biased_head(g, sluice_silu(g, square(g)), square(g), b);
}

static sluice_value one_mean(sluice_graph *g)
{
    sluice_value x = sluice_silu(g, square(g));
    return sluice_multiply(g, sluice_mean(g, x), sluice_sum(g, x));
}

static sluice_value one_scalar_parameter(sluice_graph *g)
{
    sluice_value s = parameter(g, 0, NULL), x = sluice_multiply(g, square(g), s);
    return sluice_multiply(g, x, sluice_multiply(g, sluice_mean(g, x), s));
}

static sluice_value one_reshape_scalar(sluice_graph *g)
{
    int64_t one = 1;
    sluice_value s = sluice_reshape(g, sluice_mean(g, sluice_silu(g, square(g))), 1, &one);
    return sluice_multiply(g, sluice_reshape(g, sluice_silu(g, s), 0, NULL), sluice_sum(g, row(g)));
}

/* Packed documents: places in a learned table, and angles, of one input. */
static sluice_value one_packed_positions(sluice_graph *g)
{
    sluice_rotary_options o;
    sluice_rotary_options_init(&o);
    o.heads = 2, o.head_width = 4, o.base = 10;
    sluice_value places = sluice_input(g, "positions", SLUICE_I32, 2, (int64_t[]){ 2, 3 });
    sluice_value x = sluice_embedding(g, places, parameter(g, 2, (int64_t[]){ 4, 12 }));
    return sluice_rotary_with(g, sluice_add(g, x, parameter(g, 3, (int64_t[]){ 2, 3, 12 })), places, &o);
}

/* Norms of heads, rotated and attended to, with Gemma's offset; the weight serves queries and keys. */
static sluice_value one_qk_norm_same(sluice_graph *g)
{
    sluice_value x = sluice_silu(g, parameter(g, 3, (int64_t[]){ 1, 3, 16 })), w = row(g);
    return sluice_attention_packed(g, sluice_rotary(g, sluice_qk_norm(g, x, w, w, 2, 1, 1e-2f, 1), 3, 4, 10), 2, 1,
                                   true);
}

/* Gemma's head: the logits under a cap as an op, and inside the loss. */
static sluice_value one_softcap(sluice_graph *g)
{
    sluice_value x = square(g), w = square(g), t = sluice_input(g, "t", SLUICE_I32, 1, (int64_t[]){ 4 });
    sluice_value a = sluice_linear_cross_entropy_capped(g, x, w, t, 2, 1.5f);
    sluice_value logits = sluice_linear_with(g, x, w, SLUICE_NONE, false);
    sluice_value b = sluice_cross_entropy(g, sluice_softcap(g, logits, 1.5f), t, 2);
    return sluice_add(g, sluice_scale(g, a, 0.3f), b);
}

static const struct {
    const char *name;
    sluice_value (*build)(sluice_graph *g);
} small_graphs[] = {
    { "add_self", one_add_self },
    { "add_same_parameter", one_add_same_parameter },
    { "subtract", one_subtract },
    { "square", one_square },
    { "matmul_self", one_matmul_self },
    { "linear_gelu", one_linear_gelu },
    { "perceptron", one_perceptron },
    { "perceptron_shared", one_perceptron_shared },
    { "perceptron_of_layers", one_perceptron_of_layers },
    { "gelu_of_a_shared_product", one_gelu_of_a_shared_product },
    { "linear_add", one_linear_add },
    { "linear_add_of_products", one_linear_add_of_products },
    { "layer_norm_same", one_layer_norm_same },
    { "reshape", one_reshape },
    { "reshape_shared", one_reshape_shared },
    { "split", one_split },
    { "concat", one_concat },
    { "mse_self", one_mse_self },
    { "cross_entropy", one_cross_entropy },
    { "swiglu", one_swiglu },
    { "linear_cross_entropy_shared", one_linear_cross_entropy_shared },
    { "linear_cross_entropy_self", one_linear_cross_entropy_self },
    { "linear_cross_entropy_frozen", one_linear_cross_entropy_frozen },
    { "linear_cross_entropy_alone", one_linear_cross_entropy_alone },
    { "biased_head_shared", one_biased_head_shared },
    { "biased_head_activation", one_biased_head_activation },
    { "biased_head_alone", one_biased_head_alone },
    { "biased_head_frozen", one_biased_head_frozen },
    { "mean", one_mean },
    { "scalar_parameter", one_scalar_parameter },
    { "reshape_scalar", one_reshape_scalar },
    { "packed_positions", one_packed_positions },
    { "qk_norm_same", one_qk_norm_same },
    { "softcap", one_softcap },
};

/* The loss weighs every element differently, so that a permuted gradient does not pass. */
static sluice_value weighted_loss(sluice_graph *g, sluice_value y)
{
    sl_shape shape = g->values[y].shape;
    sluice_value weights = sluice_input(g, "weights", SLUICE_F32, shape.rank, shape.dim);
    return sluice_sum(g, sluice_multiply(g, y, weights));
}

TEST(gradients_of_small_graphs_agree_with_finite_differences)
{
    state = 1;
    for (size_t i = 0; i < TYPES * (sizeof small_graphs / sizeof *small_graphs); i++) {
        sluice_graph *g;
        REQUIRE_OK(sluice_graph_create(&g));
        sluice_set_loss(g, weighted_loss(g, small_graphs[i / TYPES].build(g)));
        check_gradients(g, &all_types[i % TYPES], small_graphs[i / TYPES].name);
        sluice_graph_destroy(g);
    }
}

/* ---- every op, by its cases ---- */

enum { MOST_ELEMENTS = 240 }; /* of a case's inputs: two runs of the graph for each */

/* Whether the op of a case is differentiated by itself. CAST is of every graph in 16 bits instead: its result's type is
 * not for its inputs to say. */
static bool is_small(const op_case *c)
{
    int64_t elements = 0;
    for (int i = 0; i < c->inputs; i++) elements += sl_shape_elements(&c->in[i]);
    return sl_ops[c->op].gradient != NULL && !sl_ops[c->op].only_evaluates && c->op != SL_OP_CAST && !c->evaluation &&
           c->absent == 0 && elements <= MOST_ELEMENTS;
}

/* Every float operand is a parameter. */
static sluice_value operand(sluice_graph *g, const op_case *c, int i)
{
    char name[16];
    snprintf(name, sizeof name, "ids%d", i);
    if (c->fill[i] == INDEX || c->fill[i] == TARGET || c->fill[i] == POSITION || c->fill[i] == LABEL ||
        c->fill[i] == LENGTH || c->fill[i] == SEEN || c->fill[i] == END)
        return sluice_input(g, name, SLUICE_I32, c->in[i].rank, c->in[i].dim);
    return parameter(g, c->in[i].rank, c->in[i].dim);
}

static void check_case(const op_case *c, const struct types *types)
{
    sluice_graph *g;
    sluice_value inputs[SL_MAX_INPUTS];
    char what[64];
    snprintf(what, sizeof what, "%s (case %d)", sl_ops[c->op].name, (int)(c - cases));
    REQUIRE_OK(sluice_graph_create(&g));
    for (int i = 0; i < c->inputs; i++) inputs[i] = operand(g, c, i);
    sluice_value y = sl_graph_apply(g, c->op, NULL, &c->attrs, c->inputs, inputs);
    if (y == SLUICE_NONE)
        test_fail(__FILE__, __LINE__, "%s: %s", what, sluice_error());
    else if (!sl_shape_equal(&g->values[y].shape, &c->out[0]))
        test_fail(__FILE__, __LINE__, "%s: its shape is not the case's", what);
    else
        sluice_set_loss(g, weighted_loss(g, y)), at_hand = c, check_gradients(g, types, what);
    at_hand = NULL;
    sluice_graph_destroy(g);
}

TEST(gradients_of_every_op_agree_with_finite_differences_in_every_type)
{
    state = 1;
    for (int i = 0; i < CASE_COUNT; i++)
        for (int t = 0; t < TYPES && is_small(&cases[i]); t++) check_case(&cases[i], &all_types[t]);
}

TEST(every_forward_op_has_a_case_small_enough_for_finite_differences)
{
    for (int op = 0; op < SL_OP_COUNT; op++) {
        bool found = sl_ops[op].gradient == NULL || sl_ops[op].view || op == SL_OP_CAST || sl_ops[op].only_evaluates;
        for (int i = 0; i < CASE_COUNT; i++) found = found || ((int)cases[i].op == op && is_small(&cases[i]));
        CHECK_THAT(found, "op_cases.h: no case of %s has at most %d elements", sl_ops[op].name, MOST_ELEMENTS);
    }
}

/* ---- random graphs ---- */

enum { POOL = 24 };

static sluice_value random_op(sluice_graph *g, sluice_value a, sluice_value b, sluice_value w, sluice_value v)
{
    int64_t flat[] = { 2, 8 }, back[] = { 4, 4 };
    sluice_value t;
    switch (pick(16)) {
    case 0:
        return sluice_multiply(g, sluice_scale(g, a, 0.5f), sluice_softmax(g, b));
    case 1:
        return sluice_linear_with(g, a, w, pick(2) ? v : SLUICE_NONE, pick(2));
    case 2:
        return sluice_matmul(g, sluice_scale(g, a, 0.25f), sluice_softmax(g, b), pick(2), pick(2));
    case 3:
        return sluice_silu(g, a);
    case 4:
        return sluice_layer_norm(g, a, v, pick(2) ? v : SLUICE_NONE, 0.1f);
    case 5:
        return sluice_rms_norm(g, a, v, 0.1f);
    case 6:
        return sluice_reshape(g, sluice_silu(g, sluice_reshape(g, a, 2, flat)), 2, back);
    case 7:
        return sluice_transpose(g, a, (int[]){ 1, 0 });
    case 8:
        return sluice_add(g, a, v);
    case 9:
        t = sluice_split(g, a, 1, pick(3), 2);
        return sluice_concat(g, (sluice_value[]){ t, sluice_split(g, b, 1, pick(3), 2) }, 2, 1);
    case 10:
        return sluice_reshape(g, sluice_reshape(g, a, 2, flat), 2, back);
    case 11:
        return sluice_gelu(g, sluice_linear_with(g, a, w, v, pick(2)), false);
    case 12:
        t = sluice_gelu(g, sluice_linear_with(g, a, w, v, pick(2)), false);
        return sluice_linear_with(g, t, w, SLUICE_NONE, pick(2));
    case 13:
        return sluice_add(g, b, sluice_linear_with(g, a, w, pick(2) ? v : SLUICE_NONE, pick(2)));
    default:
        return sluice_add(g, a, b); /* twice as often: it is what shares gradients */
    }
}

/* Every value ends in the loss, most of them through several ways. */
static void random_graph(sluice_graph *g)
{
    sluice_value pool[POOL];
    bool used[POOL] = { false };
    int n = 0;
    pool[n++] = sluice_input(g, "x", SLUICE_F32, 2, (int64_t[]){ 4, 4 });
    pool[n++] = square(g);
    pool[n++] = square(g);
    sluice_value w = square(g), v = row(g), total = SLUICE_NONE;
    int size = 6 + (int)pick(POOL - 6);
    while (n < size) {
        if (pick(4) == 0) sluice_layer(g, "next");
        int a = (int)pick((uint32_t)n), b = n - 1 - (int)pick(n < 4 ? (uint32_t)n : 4);
        pool[n++] = random_op(g, pool[a], pool[b], pool[1], v);
        used[a] = used[b] = true;
    }
    for (int i = 0; i < n; i++)
        if (!used[i] || pick(3) == 0) total = total == SLUICE_NONE ? pool[i] : sluice_add(g, total, pool[i]);
    for (int i = 1; i < 3; i++) total = sluice_add(g, total, pool[i]);
    total = sluice_linear_with(g, sluice_rms_norm(g, total, v, 0.1f), w, v, false);
    sluice_set_loss(g, weighted_loss(g, total));
}

TEST(gradients_of_random_graphs_with_shared_values_agree_with_finite_differences)
{
    for (int seed = 0; seed < 300; seed++) {
        sluice_graph *g;
        char what[32];
        snprintf(what, sizeof what, "seed %d", seed);
        state = (uint64_t)seed * 7919 + 1;
        REQUIRE_OK(sluice_graph_create(&g));
        random_graph(g);
        check_gradients(g, &all_types[seed % TYPES], what);
        sluice_graph_destroy(g);
        if (test_failures > 0) return;
    }
}

/* ---- ids ---- */

/* What an op reads as places in a table is what its row says, so that batches are checked for it. */
TEST(every_op_that_reads_ids_says_which_table_they_are_of)
{
    int found = 0;
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        const sl_op_def *row = &sl_ops[cases[c].op];
        if (row->phase != SL_PHASE_FORWARD) continue;
        for (int i = 0; i < cases[c].inputs; i++) {
            if (cases[c].fill[i] != INDEX && cases[c].fill[i] != TARGET) continue;
            found++;
            const sl_shape *table = &cases[c].in[row->index.table];
            CHECK_THAT(row->index.there && row->index.input == i, "op_list.h: the row of %s has no index rule",
                       row->name);
            if (cases[c].fill[i] == TARGET) CHECK_THAT(row->index.ignores, "%s: an ignored index", row->name);
            CHECK_EQ(table->dim[row->index.last ? table->rank - 1 : 0], cases[c].classes);
        }
    }
    CHECK(found > 2);
}
