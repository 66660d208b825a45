/* gradient_test.c: whole graphs, differentiated and run node by node, against finite differences of the reference.
 *
 * The forward pass in double is precise enough that a central difference has nine good digits, so the float gradients
 * of the backend are held to GRADIENT_TOLERANCE, element by element and along one random direction per parameter. A
 * wrong gradient rule, a wrong kernel and a wrong order of accumulation all show here. */
#include <string.h>

#include "backend/node_call.h"
#include "support/op_harness.h"
#include "test.h"

#define GRADIENT_TOLERANCE 1e-4 /* relative to the parameter's largest gradient */
#define DIFFERENCE         1e-5
#define PROBES             10 /* elements of each parameter */
#define MAX_CALLS          256

static const sl_run_context run_context = { .seed = 5, .step = 2, .micro = 1, .training = true, .seed_gradient = 0.5f };

/* ---- The reference's forward pass ---- */

typedef struct ref_graph {
    const sluice_graph *g;
    double **values; /* per value that is a storage; owned */
} ref_graph;

static double *ref_value(const ref_graph *r, int value)
{
    return r->values[r->g->values[value].storage];
}

static double ref_loss(const ref_graph *r)
{
    for (int n = 0; n < r->g->forward_count; n++) {
        const sl_node *node = &r->g->nodes[n];
        if (sl_ops[node->op].view) continue;
        ref_call call = { .op = node->op,
                          .attrs = &node->attrs,
                          .input_count = node->input_count,
                          .output_count = node->output_count,
                          .context = &run_context };
        for (int i = 0; i < node->input_count; i++)
            call.in[i] = (ref_tensor){ &r->g->values[node->inputs[i]].shape, ref_value(r, node->inputs[i]) };
        for (int i = 0; i < node->output_count; i++)
            if (node->outputs[i] >= 0)
                call.out[i] = (ref_tensor){ &r->g->values[node->outputs[i]].shape, ref_value(r, node->outputs[i]) };
        reference_run(&call);
    }
    return ref_value(r, r->g->loss)[0];
}

/* ---- The backend's arena and calls ---- */

typedef struct machine {
    const sluice_graph *g;
    test_image image;
    sl_span *spans; /* per value; owned */
    sl_call calls[MAX_CALLS];
    int call_count;
} machine;

static void fill_value(machine *m, int value)
{
    const sl_value *v = &m->g->values[value];
    test_random r = { .state = (uint64_t)value * 77 + 3 };
    for (int64_t i = 0; i < sl_shape_elements(&v->shape); i++) {
        if (v->dtype == SLUICE_I32) /* every fourth token is 9: what the graphs below ignore */
            test_indices(&m->image, m->spans[value])[i] = i % 4 == 2 ? 9 : (int32_t)test_uniform(&r, 0, 9);
        else
            test_floats(&m->image, m->spans[value])[i] = (float)test_uniform(&r, -0.8, 0.8);
    }
}

static void add_call(machine *m, const sl_node *node)
{
    sl_call *call = &m->calls[m->call_count++];
    sl_shape shapes[SL_MAX_OPERANDS]; /* none is used: every run has all rows */
    sl_node_call(m->g, node, sl_node_outputs(m->g, node, SL_RUN_TRAINING), &run_context, shapes, call);
    for (int i = 0; i < node->input_count; i++) call->inputs[i] = m->spans[node->inputs[i]];
    for (int i = 0; i < node->output_count; i++)
        if (node->outputs[i] >= 0) call->outputs[i] = m->spans[node->outputs[i]];
}

static void make_machine(const sluice_graph *g, machine *m)
{
    *m = (machine){ .g = g, .spans = calloc((size_t)g->value_count, sizeof *m->spans) };
    for (int v = 0; v < g->value_count; v++) {
        int root = g->values[v].storage;
        m->spans[v] = root == v ? test_image_add(&m->image, sl_shape_elements(&g->values[v].shape)) : m->spans[root];
    }
    for (int v = 0; v < g->value_count; v++)
        if (g->values[v].kind == SL_VALUE_INPUT || g->values[v].kind == SL_VALUE_PARAMETER) fill_value(m, v);
    for (int n = 0; n < g->node_count; n++)
        if (!sl_ops[g->nodes[n].op].view) add_call(m, &g->nodes[n]);
}

static void free_machine(machine *m)
{
    test_image_free(&m->image);
    free(m->spans);
}

/* The reference with the machine's inputs and parameters. */
static void make_ref_graph(const machine *m, ref_graph *r)
{
    *r = (ref_graph){ .g = m->g, .values = calloc((size_t)m->g->value_count, sizeof *r->values) };
    for (int v = 0; v < m->g->value_count; v++) {
        const sl_value *value = &m->g->values[v];
        if (value->storage != v) continue;
        int64_t n = sl_shape_elements(&value->shape);
        r->values[v] = calloc((size_t)n, sizeof(double));
        if (value->kind != SL_VALUE_INPUT && value->kind != SL_VALUE_PARAMETER) continue;
        for (int64_t i = 0; i < n; i++)
            r->values[v][i] = value->dtype == SLUICE_I32 ? test_indices(&m->image, m->spans[v])[i]
                                                         : (double)test_floats(&m->image, m->spans[v])[i];
    }
}

static void free_ref_graph(ref_graph *r)
{
    for (int v = 0; v < r->g->value_count; v++) free(r->values[v]);
    free(r->values);
}

/* ---- Comparing ---- */

/* d loss / d (parameter along direction) by a central difference. */
static double finite_difference(const ref_graph *r, const sl_parameter *p, const double *direction)
{
    double *data = ref_value(r, p->value), side[2];
    double *kept = malloc((size_t)p->count * sizeof *kept);
    memcpy(kept, data, (size_t)p->count * sizeof *kept);
    for (int k = 0; k < 2; k++) {
        for (int64_t i = 0; i < p->count; i++) data[i] = kept[i] + (k == 0 ? DIFFERENCE : -DIFFERENCE) * direction[i];
        side[k] = ref_loss(r);
    }
    memcpy(data, kept, (size_t)p->count * sizeof *kept);
    free(kept);
    return (side[0] - side[1]) / (2 * DIFFERENCE) * (double)run_context.seed_gradient;
}

static void check_direction(const ref_graph *r, const char *graph, const sl_parameter *p, const float *gradient,
                            const double *direction, double scale)
{
    double got = 0, expected = finite_difference(r, p, direction);
    for (int64_t i = 0; i < p->count; i++) got += (double)gradient[i] * direction[i];
    if (fabs(got - expected) <= GRADIENT_TOLERANCE * (fabs(expected) + scale) + 1e-7) return;
    test_fail(__FILE__, __LINE__, "%s: gradient of %s is %.9g, expected %.9g", graph, p->name, got, expected);
}

static void check_parameter(const ref_graph *r, const char *graph, const sl_parameter *p, const float *gradient)
{
    test_random random = { .state = (uint64_t)p->value };
    double *direction = calloc((size_t)p->count, sizeof *direction), largest = 0;
    for (int64_t i = 0; i < p->count; i++) largest = fmax(largest, fabs((double)gradient[i]));
    for (int probe = 0; probe < PROBES; probe++) {
        int64_t at = (int64_t)test_uniform(&random, 0, (double)p->count);
        direction[at] = 1;
        check_direction(r, graph, p, gradient, direction, largest);
        direction[at] = 0;
    }
    for (int64_t i = 0; i < p->count; i++) direction[i] = test_uniform(&random, -1, 1);
    check_direction(r, graph, p, gradient, direction, largest * sqrt((double)p->count));
    free(direction);
}

static void check_gradients(const machine *m, const char *graph)
{
    ref_graph r;
    make_ref_graph(m, &r);
    double loss = ref_loss(&r);
    CHECK_NEAR((double)test_floats(&m->image, m->spans[m->g->loss])[0], loss, 1e-5 * (1 + fabs(loss)));
    for (int p = 0; p < m->g->parameter_count; p++) {
        const sl_parameter *parameter = &m->g->parameters[p];
        if (!parameter->trainable) continue;
        check_parameter(&r, graph, parameter, test_floats(&m->image, m->spans[parameter->gradient]));
    }
    free_ref_graph(&r);
}

typedef void (*build_fn)(sluice_graph *g);

static sluice_status build_and_differentiate(build_fn build, sluice_graph **out)
{
    SL_TRY(sluice_graph_create(out));
    build(*out);
    SL_TRY(sl_graph_finish(*out));
    return sl_graph_differentiate(*out);
}

/* Runs a graph on all device variants: each backend's gradients are right, and its variants' images the same. */
static void check_graph(build_fn build, const char *name)
{
    test_device devices[MAX_TEST_DEVICES];
    int device_count = test_devices(devices);
    sluice_graph *g = NULL;
    REQUIRE_OK(build_and_differentiate(build, &g));
    REQUIRE(g->node_count <= MAX_CALLS);
    machine first;
    for (int d = 0; d < device_count; d++) {
        machine m;
        make_machine(g, &m);
        REQUIRE_OK(test_run(&devices[d], &m.image, m.calls, m.call_count));
        const bool alike = d > 0 && test_same_bits(&devices[d], &devices[0]);
        if (!alike) check_gradients(&m, name);
        if (d == 0) {
            first = m;
            continue;
        }
        if (alike && memcmp(first.image.bytes, m.image.bytes, m.image.size) != 0)
            test_fail(__FILE__, __LINE__, "%s: %s has other bits than %s", name, devices[d].name, devices[0].name);
        free_machine(&m);
    }
    free_machine(&first);
    sluice_graph_destroy(g);
}

/* ---- Graphs ---- */

#define DIMS(...)                                                                                                      \
    (int)(sizeof((int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t)), (int64_t[])                                           \
    {                                                                                                                  \
        __VA_ARGS__                                                                                                    \
    }
#define RANDOM     ((sluice_init){ SLUICE_INIT_NORMAL, 1.0f })
#define PARAM(...) sluice_parameter(g, __VA_ARGS__, RANDOM)

static void build_mlp(sluice_graph *g)
{
    sluice_value x = sluice_input(g, "x", SLUICE_F32, DIMS(6, 10)), t = sluice_input(g, "t", SLUICE_F32, DIMS(6, 3));
    sluice_layer(g, "hidden");
    sluice_value h = sluice_relu(g, sluice_linear(g, x, 17, "fc1"));
    sluice_layer(g, "head");
    sluice_set_loss(g, sluice_mse(g, sluice_linear(g, h, 3, "fc2"), t));
}

TEST(gradients_of_a_perceptron)
{
    check_graph(build_mlp, "perceptron");
}

static void build_pointwise(sluice_graph *g)
{
    sluice_value a = PARAM("a", DIMS(5, 7)), b = PARAM("b", DIMS(7)), c = PARAM("c", DIMS(5, 1)),
                 d = PARAM("d", DIMS(1));
    sluice_value x = sluice_gelu(g, sluice_add(g, a, b), false);
    x = sluice_add(g, x, sluice_gelu(g, sluice_multiply(g, c, b), true));
    x = sluice_multiply(g, x, sluice_silu(g, sluice_multiply(g, a, c)));
    x = sluice_subtract(g, x, sluice_scale(g, sluice_multiply(g, a, a), 0.3f));
    x = sluice_multiply(g, x, d);
    sluice_set_loss(g, sluice_add(g, sluice_sum(g, x), sluice_mean(g, sluice_multiply(g, x, x))));
}

TEST(gradients_of_broadcasting_and_activations)
{
    check_graph(build_pointwise, "pointwise");
}

static void build_products(sluice_graph *g)
{
    sluice_value a = PARAM("a", DIMS(2, 3, 4)), b = PARAM("b", DIMS(2, 4, 5)), c = PARAM("c", DIMS(2, 3, 5));
    sluice_value w = PARAM("w", DIMS(5, 6)), target = sluice_input(g, "t", SLUICE_F32, DIMS(2, 5, 6));
    sluice_value x = sluice_matmul(g, a, b, false, false); /* 3, 5 */
    sluice_value y = sluice_matmul(g, x, c, true, false);  /* 5, 5 */
    sluice_value z = sluice_matmul(g, y, b, false, true);  /* 5, 4 */
    sluice_value v = sluice_matmul(g, b, z, true, true);   /* 5, 5 */
    sluice_value p = sluice_linear_with(g, v, w, SLUICE_NONE, true);
    sluice_set_loss(g, sluice_mse(g, sluice_softmax(g, p), target));
}

TEST(gradients_of_products_and_softmax)
{
    check_graph(build_products, "products");
}

static void build_shapes(sluice_graph *g)
{
    sluice_value a = PARAM("a", DIMS(4, 6, 5)), b = PARAM("b", DIMS(4, 2, 5));
    sluice_value x = sluice_concat(g, (sluice_value[]){ a, b, a }, 3, 1);          /* 4, 14, 5 */
    sluice_value y = sluice_transpose(g, x, (int[]){ 2, 0, 1 });                   /* 5, 4, 14 */
    sluice_value s = sluice_split(g, y, 2, 3, 8), t = sluice_split(g, y, 2, 5, 8); /* overlapping parts */
    sluice_value r = sluice_reshape(g, sluice_multiply(g, s, t), DIMS(20, -1));
    sluice_value n = sluice_layer_norm(g, r, PARAM("w", DIMS(8)), SLUICE_NONE, 1e-5f);
    sluice_set_loss(g, sluice_mean(g, sluice_multiply(g, n, r)));
}

TEST(gradients_of_concat_split_transpose_reshape)
{
    check_graph(build_shapes, "shapes");
}

static void build_both_sides(sluice_graph *g)
{
    sluice_value a = PARAM("a", DIMS(3, 4)), b = PARAM("b", DIMS(3, 4)), frozen = PARAM("frozen", DIMS(4));
    sluice_freeze(g, frozen);
    sluice_value n = sluice_rms_norm(g, sluice_add(g, a, b), frozen, 1e-6f);
    sluice_set_loss(g, sluice_mse(g, n, sluice_multiply(g, b, frozen)));
}

TEST(gradients_of_both_sides_of_an_error_and_around_frozen_parameters)
{
    check_graph(build_both_sides, "both sides");
}

static void build_cross_attention(sluice_graph *g)
{
    sluice_value q = PARAM("q", DIMS(2, 5, 24)), kv = PARAM("kv", DIMS(2, 7, 16));
    sluice_value k = sluice_rotary(g, sluice_linear(g, kv, 12, "key"), 2, 6, 100.0f);
    sluice_value v = sluice_linear(g, kv, 12, "value");
    sluice_value out = sluice_attention(g, sluice_rotary(g, q, 4, 6, 100.0f), k, v, 4, 2, false);
    sluice_set_loss(g, sluice_mse(g, out, sluice_input(g, "t", SLUICE_F32, DIMS(2, 5, 24))));
}

TEST(gradients_of_grouped_attention_across_sequences)
{
    check_graph(build_cross_attention, "cross attention");
}

/* A block of a GPT: tied embedding, layer norms, packed causal attention, dropout, ignored targets. */
static void build_gpt(sluice_graph *g)
{
    enum { BATCH = 2, LENGTH = 6, WIDTH = 8, HEADS = 2, CLASSES = 10 };
    sluice_value ids = sluice_input(g, "ids", SLUICE_I32, DIMS(BATCH, LENGTH));
    sluice_value targets = sluice_input(g, "targets", SLUICE_I32, DIMS(BATCH, LENGTH));
    sluice_layer(g, "embed");
    sluice_value table = PARAM("table", DIMS(CLASSES, WIDTH)), positions = PARAM("positions", DIMS(LENGTH, WIDTH));
    sluice_value x = sluice_dropout(g, sluice_add(g, sluice_embedding(g, ids, table), positions), 0.2f);
    sluice_layer(g, "block");
    sluice_value n = sluice_layer_norm(g, x, PARAM("n1.w", DIMS(WIDTH)), PARAM("n1.b", DIMS(WIDTH)), 1e-5f);
    sluice_value qkv = sluice_linear(g, n, 3 * WIDTH, "qkv");
    sluice_value a = sluice_linear(g, sluice_attention_packed(g, qkv, HEADS, HEADS, true), WIDTH, "proj");
    x = sluice_add(g, x, sluice_dropout(g, a, 0.2f));
    n = sluice_layer_norm(g, x, PARAM("n2.w", DIMS(WIDTH)), PARAM("n2.b", DIMS(WIDTH)), 1e-5f);
    sluice_value h = sluice_gelu(g, sluice_linear(g, n, 4 * WIDTH, "up"), false);
    x = sluice_add(g, x, sluice_dropout(g, sluice_linear(g, h, WIDTH, "down"), 0.2f));
    sluice_layer(g, "head");
    n = sluice_layer_norm(g, x, PARAM("n3.w", DIMS(WIDTH)), SLUICE_NONE, 1e-5f);
    sluice_value logits = sluice_linear_with(g, n, table, SLUICE_NONE, false);
    sluice_set_loss(g, sluice_cross_entropy(g, logits, targets, 9));
}

TEST(gradients_of_a_gpt_block_with_tied_embedding_and_dropout)
{
    check_graph(build_gpt, "gpt block");
}

/* A block of a Llama: RMS norms, rotary on a packed tensor, grouped attention, gated feed-forward. */
static void build_llama(sluice_graph *g)
{
    enum { BATCH = 2, LENGTH = 5, WIDTH = 16, HEADS = 4, KV = 2, HEAD = 4, CLASSES = 10 };
    sluice_value ids = sluice_input(g, "ids", SLUICE_I32, DIMS(BATCH, LENGTH));
    sluice_value targets = sluice_input(g, "targets", SLUICE_I32, DIMS(BATCH, LENGTH));
    sluice_value x = sluice_embedding(g, ids, PARAM("table", DIMS(CLASSES, WIDTH)));
    sluice_layer(g, "block");
    sluice_value n = sluice_rms_norm(g, x, PARAM("n1", DIMS(WIDTH)), 1e-5f);
    sluice_value qkv = sluice_linear_with(g, n, PARAM("qkv", DIMS((HEADS + 2 * KV) * HEAD, WIDTH)), SLUICE_NONE, false);
    qkv = sluice_rotary(g, qkv, HEADS + KV, HEAD, 10000.0f);
    sluice_value a = sluice_attention_packed(g, qkv, HEADS, KV, true);
    x = sluice_add(g, x, sluice_linear_with(g, a, PARAM("out", DIMS(WIDTH, HEADS * HEAD)), SLUICE_NONE, false));
    n = sluice_rms_norm(g, x, PARAM("n2", DIMS(WIDTH)), 1e-5f);
    sluice_value gate = sluice_silu(g, sluice_linear_with(g, n, PARAM("gate", DIMS(24, WIDTH)), SLUICE_NONE, false));
    sluice_value up = sluice_linear_with(g, n, PARAM("up", DIMS(24, WIDTH)), SLUICE_NONE, false);
    x = sluice_add(
        g, x, sluice_linear_with(g, sluice_multiply(g, gate, up), PARAM("down", DIMS(WIDTH, 24)), SLUICE_NONE, false));
    sluice_layer(g, "head");
    n = sluice_rms_norm(g, x, PARAM("n3", DIMS(WIDTH)), 1e-5f);
    sluice_set_loss(g, sluice_cross_entropy(g, sluice_linear(g, n, CLASSES, "logits"), targets, 9));
}

TEST(gradients_of_a_llama_block_with_grouped_attention)
{
    check_graph(build_llama, "llama block");
}

/* The same head in one op, under a gated feed-forward part in one op. */
static void build_fused(sluice_graph *g, bool tied, bool frozen_head, bool biased)
{
    enum { BATCH = 2, LENGTH = 5, WIDTH = 8, CLASSES = 10 };
    sluice_value ids = sluice_input(g, "ids", SLUICE_I32, DIMS(BATCH, LENGTH));
    sluice_value targets = sluice_input(g, "targets", SLUICE_I32, DIMS(BATCH, LENGTH));
    sluice_value table = PARAM("table", DIMS(CLASSES, WIDTH));
    sluice_value head = tied ? table : PARAM("head", DIMS(CLASSES, WIDTH));
    if (frozen_head) sluice_freeze(g, head);
    sluice_value x = sluice_embedding(g, ids, table);
    sluice_layer(g, "block");
    sluice_value both = sluice_linear_with(g, x, PARAM("gate_up", DIMS(2 * 12, WIDTH)), SLUICE_NONE, false);
    sluice_value y = sluice_linear_with(g, sluice_swiglu(g, both), PARAM("down", DIMS(WIDTH, 12)), SLUICE_NONE, false);
    x = sluice_add(g, x, y);
    sluice_layer(g, "head");
    sluice_value bias = biased ? PARAM("bias", DIMS(CLASSES)) : SLUICE_NONE;
    sluice_set_loss(g, sluice_linear_cross_entropy_with(g, x, head, bias, targets, 9, 0, 0));
}

static void build_fused_apart(sluice_graph *g)
{
    build_fused(g, false, false, false);
}

static void build_fused_tied(sluice_graph *g)
{
    build_fused(g, true, false, false);
}

static void build_fused_frozen(sluice_graph *g)
{
    build_fused(g, false, true, false);
}

static void build_fused_biased(sluice_graph *g)
{
    build_fused(g, true, false, true);
}

static void build_fused_frozen_biased(sluice_graph *g)
{
    build_fused(g, false, true, true);
}

/* Only the head learns: nobody wants the gradient of its input. */
static void build_fused_alone(sluice_graph *g)
{
    sluice_value x = sluice_input(g, "x", SLUICE_F32, DIMS(7, 6));
    sluice_value targets = sluice_input(g, "targets", SLUICE_I32, DIMS(7));
    sluice_set_loss(g, sluice_linear_cross_entropy(g, x, PARAM("head", DIMS(10, 6)), targets, 9));
}

/* The loss is not the head's: what forward worked out ahead is scaled, and joins another gradient. */
static void build_fused_scaled(sluice_graph *g)
{
    sluice_value x = PARAM("x", DIMS(7, 6)), head = PARAM("head", DIMS(10, 6));
    sluice_value targets = sluice_input(g, "targets", SLUICE_I32, DIMS(7));
    sluice_value loss = sluice_linear_cross_entropy(g, sluice_silu(g, x), head, targets, 9);
    sluice_value decay = sluice_mean(g, sluice_multiply(g, head, head));
    sluice_set_loss(g, sluice_add(g, sluice_scale(g, loss, 0.3f), decay));
}

TEST(gradients_of_a_head_whose_logits_never_exist)
{
    check_graph(build_fused_apart, "fused head");
    check_graph(build_fused_tied, "fused tied head");
    check_graph(build_fused_frozen, "fused frozen head");
    check_graph(build_fused_alone, "fused head alone");
    check_graph(build_fused_scaled, "fused head scaled");
    check_graph(build_fused_biased, "fused tied head with a bias");
    check_graph(build_fused_frozen_biased, "fused frozen head with a bias");
}
