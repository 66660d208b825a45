/* model_test.c: settings in, graph out: names, shapes, first values, layers, and what is refused. */
#include "model/model.h"
#include "test.h"

static const sl_model_options small_gpt = {
    .type = "gpt2", .batch = 2, .layers = 2, .heads = 4, .width = 64, .context = 32, .vocabulary = 65
};
static const sl_model_options small_llama = { .type = "llama",
                                              .batch = 2,
                                              .layers = 2,
                                              .heads = 4,
                                              .kv_heads = 2,
                                              .width = 64,
                                              .feed_forward = 96,
                                              .context = 32,
                                              .vocabulary = 65 };
static const sl_model_options small_mlp = { .type = "mlp",
                                            .batch = 8,
                                            .features = 784,
                                            .outputs = 10,
                                            .hidden = { 200, 200, 200 },
                                            .hidden_count = 3,
                                            .activation = "relu",
                                            .loss = "cross_entropy",
                                            .bias = true };

static const sl_model_options small_resnet = { .type = "resnet",
                                               .batch = 2,
                                               .depth = 18,
                                               .stem = "cifar",
                                               .image = { .height = 32, .width = 32, .channels = 3 },
                                               .outputs = 10 };
static const sl_model_options small_cnn = { .type = "cnn",
                                            .batch = 2,
                                            .image = { .height = 32, .width = 32, .channels = 3 },
                                            .outputs = 10,
                                            .filters = { 64, 128 },
                                            .filter_count = 2,
                                            .kernel = 3,
                                            .pool = 2,
                                            .hidden = { 1024 },
                                            .hidden_count = 1 };
static const sl_model_options small_vit = { .type = "vit",
                                            .batch = 2,
                                            .image = { .height = 32, .width = 32, .channels = 3 },
                                            .outputs = 10,
                                            .patch = 8,
                                            .layers = 2,
                                            .heads = 4,
                                            .width = 64 };
static const sl_model_options small_bert = {
    .type = "bert", .batch = 2, .layers = 2, .heads = 4, .width = 64, .context = 32, .vocabulary = 65
};
static const sl_model_options small_classifier = { .type = "bert",
                                                   .batch = 2,
                                                   .layers = 2,
                                                   .heads = 4,
                                                   .width = 64,
                                                   .context = 32,
                                                   .vocabulary = 65,
                                                   .head = "classifier",
                                                   .outputs = 2 };

static const sl_model_options small_speech = { .type = "speech",
                                               .batch = 2,
                                               .speech = { .rows = 51, .bands = 20, .labels = 5 },
                                               .filters = { 4, 6 },
                                               .filter_count = 2,
                                               .frame_stride = 2,
                                               .layers = 2,
                                               .width = 8,
                                               .outputs = 7 };

/* A finished graph of the options, or NULL with the failure noted. */
static sluice_graph *build(const sl_model_options *o, sl_model_info *info)
{
    sluice_graph *g = NULL;
    sluice_status st = sluice_graph_create(&g);
    if (st == SLUICE_OK) st = sl_model_build(g, o, info);
    if (st == SLUICE_OK) st = sl_graph_finish(g);
    if (st == SLUICE_OK) return g;
    test_fail(__FILE__, __LINE__, "build: status %d: %s", (int)st, sluice_error());
    sluice_graph_destroy(g);
    return NULL;
}

static void check_parameter(const sluice_graph *g, const char *name, int64_t rows, int64_t columns,
                            sluice_init_kind kind, double scale)
{
    int i = sl_graph_find_parameter(g, name);
    if (i < 0) {
        test_fail(__FILE__, __LINE__, "no parameter %s", name);
        return;
    }
    const sl_parameter *p = &g->parameters[i];
    const sl_shape *s = &g->values[p->value].shape;
    CHECK_EQ(s->rank, columns > 0 ? 2 : 1);
    CHECK_EQ(s->dim[0], rows);
    if (columns > 0) CHECK_EQ(s->dim[1], columns);
    CHECK_EQ(p->init.kind, kind);
    if (kind == SLUICE_INIT_NORMAL || kind == SLUICE_INIT_UNIFORM) CHECK_NEAR(p->init.scale, scale, 1e-7);
}

static void check_input(const sluice_graph *g, const char *name, sluice_dtype dtype, int rank, int64_t d0, int64_t d1)
{
    int i = sl_graph_find_input(g, name);
    REQUIRE(i >= 0);
    CHECK_EQ(g->values[i].dtype, dtype);
    CHECK_EQ(g->values[i].shape.rank, rank);
    CHECK_EQ(g->values[i].shape.dim[0], d0);
    if (rank > 1) CHECK_EQ(g->values[i].shape.dim[1], d1);
}

static int count_ops(const sluice_graph *g, sl_op op)
{
    int n = 0;
    for (int i = 0; i < g->node_count; i++) n += g->nodes[i].op == op;
    return n;
}

/* Layers that hold nodes, in graph order, against a list ended by NULL. */
static void check_layers(const sluice_graph *g, const char *const *names)
{
    for (int i = 0; i < g->layer_count; i++) {
        if (g->layers[i].node_count == 0) continue;
        REQUIRE(*names != NULL);
        CHECK_STR(g->layers[i].name, *names++);
    }
    CHECK(*names == NULL);
}

static void check_shape(const sluice_graph *g, int value, int rank, const int64_t *dims)
{
    REQUIRE(value >= 0);
    CHECK_EQ(g->values[value].shape.rank, rank);
    for (int i = 0; i < rank; i++) CHECK_EQ(g->values[value].shape.dim[i], dims[i]);
}

TEST(gpt2_has_hugging_faces_names_and_shapes)
{
    sl_model_info info;
    sluice_graph *g = build(&small_gpt, &info);
    REQUIRE(g != NULL);
    CHECK_EQ(g->parameter_count, 2 + 2 * 12 + 2);
    check_parameter(g, "wte.weight", 65, 64, SLUICE_INIT_NORMAL, 0.02);
    check_parameter(g, "wpe.weight", 32, 64, SLUICE_INIT_NORMAL, 0.02);
    for (int n = 0; n < 2; n++) {
        const struct {
            const char *name;
            int64_t rows, columns;
            sluice_init_kind kind;
            double scale;
        } expected[] = {
            { "ln_1.weight", 64, 0, SLUICE_INIT_ONE, 0 },
            { "ln_1.bias", 64, 0, SLUICE_INIT_ZERO, 0 },
            { "attn.c_attn.weight", 64, 192, SLUICE_INIT_NORMAL, 0.02 },
            { "attn.c_attn.bias", 192, 0, SLUICE_INIT_ZERO, 0 },
            { "attn.c_proj.weight", 64, 64, SLUICE_INIT_NORMAL, 0.01 },
            { "attn.c_proj.bias", 64, 0, SLUICE_INIT_ZERO, 0 },
            { "ln_2.weight", 64, 0, SLUICE_INIT_ONE, 0 },
            { "ln_2.bias", 64, 0, SLUICE_INIT_ZERO, 0 },
            { "mlp.c_fc.weight", 64, 256, SLUICE_INIT_NORMAL, 0.02 },
            { "mlp.c_fc.bias", 256, 0, SLUICE_INIT_ZERO, 0 },
            { "mlp.c_proj.weight", 256, 64, SLUICE_INIT_NORMAL, 0.01 },
            { "mlp.c_proj.bias", 64, 0, SLUICE_INIT_ZERO, 0 },
        };
        for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
            char name[64];
            snprintf(name, sizeof name, "h.%d.%s", n, expected[i].name);
            check_parameter(g, name, expected[i].rows, expected[i].columns, expected[i].kind, expected[i].scale);
        }
    }
    check_parameter(g, "ln_f.weight", 64, 0, SLUICE_INIT_ONE, 0);
    check_parameter(g, "ln_f.bias", 64, 0, SLUICE_INIT_ZERO, 0);
    sluice_graph_destroy(g);
}

TEST(gpt2_small_has_its_published_parameter_count)
{
    sl_model_info info;
    sl_model_options o = {
        .type = "gpt2", .batch = 1, .layers = 12, .heads = 12, .width = 768, .context = 1024, .vocabulary = 50257
    };
    sluice_graph *g = build(&o, &info);
    REQUIRE(g != NULL);
    CHECK_EQ(sl_graph_parameter_elements(g), 124439808);
    sluice_graph_destroy(g);
}

TEST(gpt2_reads_tokens_and_gives_logits_where_they_are_asked_for)
{
    sl_model_info info;
    sl_model_options o = small_gpt;
    o.logits = true;
    sluice_graph *g = build(&o, &info);
    REQUIRE(g != NULL);
    check_input(g, "tokens", SLUICE_I32, 2, 2, 32);
    check_input(g, "targets", SLUICE_I32, 2, 2, 32);
    check_shape(g, g->output, 3, (int64_t[]){ 2, 32, 65 });
    check_shape(g, g->loss, 0, NULL);
    CHECK_EQ(info.tokens_per_sample, 32);
    CHECK(info.classifies);
    sluice_graph_destroy(g);
}

TEST(token_models_have_no_logits_unless_they_are_asked_for_or_the_head_is_tiled)
{
    const sl_model_options *models[] = { &small_gpt, &small_llama, &small_bert };
    for (int i = 0; i < 3; i++) {
        sl_model_info info;
        sl_model_options o = *models[i];
        sluice_graph *g = build(&o, &info);
        REQUIRE(g != NULL);
        CHECK_EQ(g->output, -1);
        CHECK_EQ(count_ops(g, SL_OP_LINEAR_CROSS_ENTROPY), 1);
        CHECK_EQ(count_ops(g, SL_OP_CROSS_ENTROPY), 0);
        CHECK_EQ(g->nodes[g->values[g->loss].producer].attrs.cross_entropy.ignore_index, -1);
        sluice_graph_destroy(g);
        o.tile_bytes = 65 * 64 * 4;
        g = build(&o, &info);
        REQUIRE(g != NULL);
        CHECK_EQ(count_ops(g, SL_OP_LINEAR_CROSS_ENTROPY), 1);
        sluice_graph_destroy(g);
        o.tile_bytes--;
        g = build(&o, &info);
        REQUIRE(g != NULL);
        CHECK_EQ(count_ops(g, SL_OP_LINEAR_CROSS_ENTROPY), 0);
        CHECK_EQ(count_ops(g, SL_OP_CROSS_ENTROPY), 1);
        CHECK_EQ(g->output, -1);
        sluice_graph_destroy(g);
    }
}

TEST(gpt2_layers_are_embed_blocks_and_head_with_the_tied_embedding_apart)
{
    sl_model_info info;
    sluice_graph *g = build(&small_gpt, &info);
    REQUIRE(g != NULL);
    check_layers(g, (const char *const[]){ "embed", "h.0", "h.1", "head", NULL });
    const sl_parameter *wte = &g->parameters[sl_graph_find_parameter(g, "wte.weight")];
    CHECK_EQ(g->layers[wte->layer].node_count, 0);
    CHECK_EQ(g->layers[wte->layer].parameter_count, 1);
    const sl_parameter *proj = &g->parameters[sl_graph_find_parameter(g, "h.1.mlp.c_proj.weight")];
    CHECK_STR(g->layers[proj->layer].name, "h.1");
    sluice_graph_destroy(g);
}

TEST(gpt2_attention_is_causal_and_packed_and_the_loss_ignores_minus_one)
{
    sl_model_info info;
    sluice_graph *g = build(&small_gpt, &info);
    REQUIRE(g != NULL);
    CHECK_EQ(count_ops(g, SL_OP_ATTENTION), 2);
    CHECK_EQ(count_ops(g, SL_OP_LAYER_NORM), 5);
    for (int i = 0; i < g->node_count; i++) {
        const sl_node *n = &g->nodes[i];
        if (n->op == SL_OP_ATTENTION)
            CHECK(n->attrs.attention.causal && n->attrs.attention.packed && n->attrs.attention.heads == 4);
        if (n->op == SL_OP_GELU) CHECK(!n->attrs.gelu.exact);
        if (n->op == SL_OP_LAYER_NORM) CHECK_NEAR(n->attrs.norm.epsilon, 1e-5, 1e-9);
        if (n->op == SL_OP_CROSS_ENTROPY) CHECK_EQ(n->attrs.cross_entropy.ignore_index, -1);
    }
    sluice_graph_destroy(g);
}

TEST(gpt2_drops_after_embedding_and_both_projections)
{
    sl_model_info info;
    sl_model_options o = small_gpt;
    sluice_graph *plain = build(&o, &info);
    o.dropout = 0.2;
    sluice_graph *g = build(&o, &info);
    REQUIRE(plain != NULL && g != NULL);
    CHECK_EQ(count_ops(plain, SL_OP_DROPOUT), 0);
    CHECK_EQ(count_ops(g, SL_OP_DROPOUT), 1 + 2 * 2);
    sluice_graph_destroy(plain);
    sluice_graph_destroy(g);
}

/* The rates of the dropout nodes, in graph order; how many. */
static int list_rates(const sluice_graph *g, float *rates, int most)
{
    int count = 0;
    for (int i = 0; i < g->forward_count && count < most; i++)
        if (g->nodes[i].op == SL_OP_DROPOUT) rates[count++] = g->nodes[i].attrs.dropout.p;
    return count;
}

/* Each place has its own rate; a place at 0 has no node. */
TEST(dropout_behind_embeddings_and_before_classifiers_has_rates_of_its_own)
{
    static const struct {
        double stream, embedding, classifier;
        int count;
        float rates[4];
    } cases[] = { { 0.25, 0.5, 0.125, 4, { 0.5f, 0.25f, 0.25f, 0.125f } },
                  { 0.25, -1, -1, 4, { 0.25f, 0.25f, 0.25f, 0.25f } },
                  { 0.25, 0, 0, 2, { 0.25f, 0.25f } },
                  { 0, 0, 0.5, 1, { 0.5f } } };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sl_model_info info;
        float rates[8];
        sl_model_options o = { .type = "bert",
                               .head = "classifier",
                               .batch = 2,
                               .layers = 1,
                               .heads = 2,
                               .width = 8,
                               .context = 6,
                               .vocabulary = 20,
                               .outputs = 2,
                               .dropout = cases[i].stream,
                               .embedding_dropout = cases[i].embedding,
                               .classifier_dropout = cases[i].classifier,
                               .dropout_by_place = true };
        sluice_graph *g = build(&o, &info);
        REQUIRE(g != NULL);
        CHECK_EQ(list_rates(g, rates, 8), cases[i].count);
        for (int k = 0; k < cases[i].count; k++) CHECK_NEAR(rates[k], cases[i].rates[k], 0);
        sluice_graph_destroy(g);
        o = small_gpt, o.dropout = cases[i].stream, o.embedding_dropout = cases[i].embedding, o.dropout_by_place = true;
        g = build(&o, &info);
        REQUIRE(g != NULL);
        double first = cases[i].embedding >= 0 ? cases[i].embedding : cases[i].stream;
        CHECK_EQ(list_rates(g, rates, 8), (first > 0) + (cases[i].stream > 0 ? 4 : 0));
        if (first > 0) CHECK_NEAR(rates[0], first, 0);
        sluice_graph_destroy(g);
    }
}

TEST(every_family_differentiates)
{
    sl_model_info info;
    sl_model_options cases[] = {
        small_gpt,        small_llama,
        small_mlp,        { .type = "linear", .batch = 4, .features = 3, .outputs = 2, .bias = true },
        small_cnn,        small_resnet,
        small_vit,        small_bert,
        small_classifier, small_speech
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sluice_graph *g = build(&cases[i], &info);
        REQUIRE(g != NULL);
        REQUIRE_OK(sl_graph_differentiate(g));
        REQUIRE_OK(sl_graph_verify(g));
        for (int p = 0; p < g->parameter_count; p++) CHECK(g->parameters[p].gradient >= 0);
        sluice_graph_destroy(g);
    }
}

TEST(mlp_parameters_and_layers_are_numbered_from_fc1)
{
    sl_model_info info;
    sluice_graph *g = build(&small_mlp, &info);
    REQUIRE(g != NULL);
    CHECK_EQ(sl_graph_parameter_elements(g), 239410);
    check_parameter(g, "fc1.weight", 200, 784, SLUICE_INIT_UNIFORM, 1 / sqrt(784));
    check_parameter(g, "fc1.bias", 200, 0, SLUICE_INIT_UNIFORM, 1 / sqrt(784));
    check_parameter(g, "fc4.weight", 10, 200, SLUICE_INIT_UNIFORM, 1 / sqrt(200));
    check_layers(g, (const char *const[]){ "fc1", "fc2", "fc3", "fc4", NULL });
    check_input(g, "x", SLUICE_F32, 2, 8, 784);
    check_input(g, "target", SLUICE_I32, 1, 8, 0);
    CHECK_EQ(count_ops(g, SL_OP_RELU), 3);
    CHECK(info.classifies);
    CHECK_EQ(info.tokens_per_sample, 0);
    sluice_graph_destroy(g);
}

TEST(mlp_with_squared_error_and_one_output_has_237601_parameters)
{
    sl_model_info info;
    sl_model_options o = small_mlp;
    o.outputs = 1;
    o.loss = "mse";
    sluice_graph *g = build(&o, &info);
    REQUIRE(g != NULL);
    CHECK_EQ(sl_graph_parameter_elements(g), 237601);
    check_input(g, "target", SLUICE_F32, 2, 8, 1);
    CHECK(!info.classifies);
    sluice_graph_destroy(g);
}

TEST(mlp_with_binary_cross_entropy_judges_each_output_as_two_classes)
{
    sl_model_info info;
    sl_model_options o = small_mlp;
    o.loss = "bce";
    sluice_graph *g = build(&o, &info);
    REQUIRE(g != NULL);
    check_input(g, "target", SLUICE_F32, 2, 8, 10);
    CHECK_EQ(count_ops(g, SL_OP_BCE_WITH_LOGITS), 1);
    CHECK(info.classifies && info.binary);
    sluice_graph_destroy(g);
}

/* The smoothing of the one op of this kind; -1: there is none. */
static double smoothing_of(const sluice_graph *g, sl_op op)
{
    for (int n = 0; n < g->forward_count; n++)
        if (g->nodes[n].op == op) return (double)g->nodes[n].attrs.cross_entropy.smoothing;
    return -1;
}

TEST(label_smoothing_reaches_every_cross_entropy)
{
    const sl_model_options *models[] = { &small_mlp, &small_gpt, &small_gpt, &small_llama, &small_bert };
    for (int i = 0; i < 5; i++) {
        sl_model_info info;
        sl_model_options o = *models[i];
        o.label_smoothing = 0.125;
        o.logits = i == 2;
        sluice_graph *g = build(&o, &info);
        REQUIRE(g != NULL);
        const bool fused = count_ops(g, SL_OP_LINEAR_CROSS_ENTROPY) == 1;
        CHECK_EQ(fused, i == 1 || i == 3 || i == 4);
        CHECK_NEAR(smoothing_of(g, fused ? SL_OP_LINEAR_CROSS_ENTROPY : SL_OP_CROSS_ENTROPY), 0.125, 0);
        sluice_graph_destroy(g);
    }
}

TEST(each_activation_stands_between_layers_only)
{
    const struct {
        const char *name;
        sl_op op;
        int count;
    } cases[] = {
        { "relu", SL_OP_RELU, 3 }, { "gelu", SL_OP_GELU, 3 }, { "silu", SL_OP_SILU, 3 }, { "none", SL_OP_RELU, 0 }
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sl_model_info info;
        sl_model_options o = small_mlp;
        o.activation = cases[i].name;
        sluice_graph *g = build(&o, &info);
        REQUIRE(g != NULL);
        CHECK_EQ(count_ops(g, cases[i].op), cases[i].count);
        CHECK_EQ(g->forward_count, 4 + 1 + (i < 3 ? 3 : 0));
        sluice_graph_destroy(g);
    }
}

TEST(linear_is_one_layer_with_or_without_bias)
{
    sl_model_info info;
    sl_model_options o = { .type = "linear", .batch = 4, .features = 3, .outputs = 2, .bias = true };
    sluice_graph *g = build(&o, &info);
    REQUIRE(g != NULL);
    CHECK_EQ(sl_graph_parameter_elements(g), 8);
    check_parameter(g, "linear.weight", 2, 3, SLUICE_INIT_UNIFORM, 1 / sqrt(3));
    check_layers(g, (const char *const[]){ "linear", NULL });
    check_shape(g, g->output, 2, (int64_t[]){ 4, 2 });
    sluice_graph_destroy(g);
    o.bias = false;
    g = build(&o, &info);
    REQUIRE(g != NULL);
    CHECK_EQ(g->parameter_count, 1);
    check_parameter(g, "linear.weight", 2, 3, SLUICE_INIT_UNIFORM, 1 / sqrt(3));
    sluice_graph_destroy(g);
}

/* The options are refused as bad usage, and the message has `part`. */
static void check_refused(const sl_model_options *o, const char *part)
{
    sluice_graph *g;
    sl_model_info info;
    REQUIRE_OK(sluice_graph_create(&g));
    CHECK_EQ(sl_model_build(g, o, &info), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), part);
    sluice_graph_destroy(g);
}

TEST(bad_gpt2_settings_name_key_and_bound)
{
    sl_model_options o = small_gpt;
    o.width = 130;
    check_refused(&o, "model.width 130 is not a multiple of model.heads 4");
    o = small_gpt, o.layers = 0;
    check_refused(&o, "model.layers is 0; give 1 to 100000");
    o = small_gpt, o.heads = 0;
    check_refused(&o, "model.heads is 0");
    o = small_gpt, o.context = -5;
    check_refused(&o, "model.context is -5");
    o = small_gpt, o.vocabulary = 0;
    check_refused(&o, "model.vocabulary is 0");
    o = small_gpt, o.vocabulary = (int64_t)1 << 40;
    check_refused(&o, "model.vocabulary is 1099511627776");
    o = small_gpt, o.dropout = 1;
    check_refused(&o, "model.dropout is 1");
    o = small_gpt, o.dropout = NAN;
    check_refused(&o, "model.dropout");
    o = small_gpt, o.embedding_dropout = 1, o.dropout_by_place = true;
    check_refused(&o, "model.embedding_dropout is 1");
    o = small_gpt, o.norm_epsilon = -1;
    check_refused(&o, "model.norm_epsilon is -1");
    o = small_gpt, o.batch = 0;
    check_refused(&o, "train_micro_batch_size_per_gpu is 0");
}

TEST(bad_mlp_settings_name_key_and_choices)
{
    sl_model_options o = small_mlp;
    o.features = 0;
    check_refused(&o, "model.features is 0");
    o = small_mlp, o.hidden[1] = 0;
    check_refused(&o, "model.hidden[1] is 0");
    o = small_mlp, o.hidden_count = 17;
    check_refused(&o, "model.hidden has 17 entries; give at most 16");
    o = small_mlp, o.activation = "tanh";
    check_refused(&o, "model.activation \"tanh\" is not known; give none, relu, gelu or silu");
    o = small_mlp, o.loss = "hinge";
    check_refused(&o, "model.loss \"hinge\" is not known; give mse, bce or cross_entropy");
    o = small_mlp, o.outputs = 1;
    check_refused(&o, "at least 2 classes");
    o = small_mlp, o.loss = "bce", o.label_smoothing = 0.1;
    check_refused(&o, "model.label_smoothing is 0.1, and model.loss bce has no classes to smooth");
    o = small_mlp, o.label_smoothing = 1.5;
    check_refused(&o, "a label smoothing of 1.5 must be 0 to 1");
    o = small_mlp, o.type = "linear";
    check_refused(&o, "model.hidden has no meaning for model.type linear");
    o = small_mlp, o.type = "gpt3";
    check_refused(&o, "model.type \"gpt3\" is not known; give one of linear, mlp, cnn, resnet, vit, recommender, "
                      "speech, bert, gpt2, llama");
}

/* ---- llama ---- */

TEST(llama_has_hugging_faces_names_and_fused_projections)
{
    sl_model_info info;
    sluice_graph *g = build(&small_llama, &info);
    REQUIRE(g != NULL);
    CHECK_EQ(g->parameter_count, 1 + 2 * 6 + 1);
    check_parameter(g, "model.embed_tokens.weight", 65, 64, SLUICE_INIT_NORMAL, 0.02);
    for (int n = 0; n < 2; n++) {
        const struct {
            const char *name;
            int64_t rows, columns;
            sluice_init_kind kind;
            double scale;
        } expected[] = {
            { "input_layernorm.weight", 64, 0, SLUICE_INIT_ONE, 0 },
            { "self_attn.qkv_proj.weight", 128, 64, SLUICE_INIT_NORMAL, 0.02 },
            { "self_attn.o_proj.weight", 64, 64, SLUICE_INIT_NORMAL, 0.01 },
            { "post_attention_layernorm.weight", 64, 0, SLUICE_INIT_ONE, 0 },
            { "mlp.gate_up_proj.weight", 192, 64, SLUICE_INIT_NORMAL, 0.02 },
            { "mlp.down_proj.weight", 64, 96, SLUICE_INIT_NORMAL, 0.01 },
        };
        for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
            char name[96];
            snprintf(name, sizeof name, "model.layers.%d.%s", n, expected[i].name);
            check_parameter(g, name, expected[i].rows, expected[i].columns, expected[i].kind, expected[i].scale);
        }
    }
    check_parameter(g, "model.norm.weight", 64, 0, SLUICE_INIT_ONE, 0);
    check_layers(g, (const char *const[]){ "embed", "layers.0", "layers.1", "head", NULL });
    CHECK_EQ(info.tokens_per_sample, 32);
    sluice_graph_destroy(g);
}

TEST(llama_projections_name_the_parts_that_files_hold)
{
    sl_model_info info;
    sluice_graph *g = build(&small_llama, &info);
    REQUIRE(g != NULL);
    const sl_parameter *qkv = &g->parameters[sl_graph_find_parameter(g, "model.layers.1.self_attn.qkv_proj.weight")];
    CHECK_EQ(qkv->part_count, 3);
    CHECK_STR(qkv->parts[0].name, "model.layers.1.self_attn.q_proj.weight");
    CHECK_EQ(qkv->parts[0].rows, 64);
    CHECK_STR(qkv->parts[1].name, "model.layers.1.self_attn.k_proj.weight");
    CHECK_EQ(qkv->parts[1].rows, 32);
    CHECK_STR(qkv->parts[2].name, "model.layers.1.self_attn.v_proj.weight");
    CHECK_EQ(qkv->parts[2].rows, 32);
    const sl_parameter *up = &g->parameters[sl_graph_find_parameter(g, "model.layers.0.mlp.gate_up_proj.weight")];
    CHECK_EQ(up->part_count, 2);
    CHECK_STR(up->parts[0].name, "model.layers.0.mlp.gate_proj.weight");
    CHECK_STR(up->parts[1].name, "model.layers.0.mlp.up_proj.weight");
    CHECK_EQ(up->parts[1].rows, 96);
    sluice_graph_destroy(g);
}

TEST(llama_rotates_queries_and_keys_and_groups_heads)
{
    sl_model_info info;
    sluice_graph *g = build(&small_llama, &info);
    REQUIRE(g != NULL);
    CHECK_EQ(count_ops(g, SL_OP_ATTENTION), 2);
    CHECK_EQ(count_ops(g, SL_OP_ROTARY), 2);
    CHECK_EQ(count_ops(g, SL_OP_SWIGLU), 2);
    CHECK_EQ(count_ops(g, SL_OP_RMS_NORM), 5);
    for (int i = 0; i < g->node_count; i++) {
        const sl_node *n = &g->nodes[i];
        if (n->op == SL_OP_ATTENTION)
            CHECK(n->attrs.attention.causal && n->attrs.attention.heads == 4 && n->attrs.attention.kv_heads == 2);
        if (n->op == SL_OP_ROTARY) CHECK(n->attrs.rotary.heads == 6 && n->attrs.rotary.head_width == 16);
        if (n->op == SL_OP_ROTARY) CHECK_NEAR(n->attrs.rotary.base, 500000, 0);
    }
    sluice_graph_destroy(g);
}

TEST(llama_head_is_the_embedding_or_a_matrix_of_its_own)
{
    sl_model_info info;
    sl_model_options o = small_llama;
    sluice_graph *g = build(&o, &info);
    REQUIRE(g != NULL);
    int64_t tied = sl_graph_parameter_elements(g);
    CHECK_EQ(sl_graph_find_parameter(g, "lm_head.weight"), -1);
    sluice_graph_destroy(g);
    o.untied = true;
    g = build(&o, &info);
    REQUIRE(g != NULL);
    check_parameter(g, "lm_head.weight", 65, 64, SLUICE_INIT_NORMAL, 0.02);
    CHECK_EQ(sl_graph_parameter_elements(g), tied + 65 * 64);
    CHECK(!g->parameters[sl_graph_find_parameter(g, "lm_head.weight")].keeps_f32_state);
    sluice_graph_destroy(g);
}

TEST(llamas_have_their_published_parameter_counts)
{
    const struct {
        int64_t layers, width, heads, kv_heads, feed_forward, parameters;
    } cases[] = {
        { 16, 2048, 32, 8, 8192, 1235814400 },
        { 28, 3072, 24, 8, 8192, 3212749824 },
        { 32, 4096, 32, 8, 14336, 8030261248 - 128256 * 4096LL }, /* published with a head of its own */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sl_model_info info;
        sl_model_options o = { .type = "llama", .batch = 1, .context = 2048, .vocabulary = 128256 };
        o.layers = cases[i].layers;
        o.width = cases[i].width;
        o.heads = cases[i].heads;
        o.kv_heads = cases[i].kv_heads;
        o.feed_forward = cases[i].feed_forward;
        sluice_graph *g = build(&o, &info);
        REQUIRE(g != NULL);
        CHECK_EQ(sl_graph_parameter_elements(g), cases[i].parameters);
        sluice_graph_destroy(g);
    }
}

TEST(bad_llama_settings_name_key_and_bound)
{
    sl_model_options o = small_llama;
    o.kv_heads = 3;
    check_refused(&o, "model.kv_heads 3 does not divide model.heads 4");
    o = small_llama, o.kv_heads = 8;
    check_refused(&o, "model.kv_heads 8 does not divide model.heads 4");
    o = small_llama, o.width = 60;
    check_refused(&o, "model.width / model.heads is 15; the rotation needs an even number");
    o = small_llama, o.feed_forward = -1;
    check_refused(&o, "model.feed_forward is -1");
    o = small_llama, o.rope_theta = -1;
    check_refused(&o, "model.rope_theta is -1");
    o = small_llama, o.dropout = 0.1;
    check_refused(&o, "model.dropout has no meaning for model.type llama");
}

/* ---- frozen parameters and adapters ---- */

static int count_trainable(const sluice_graph *g)
{
    int n = 0;
    for (int p = 0; p < g->parameter_count; p++) n += g->parameters[p].trainable;
    return n;
}

TEST(freeze_takes_patterns_of_names)
{
    static const char *const patterns[] = { "w?e.weight", "h.0.*" };
    sl_model_info info;
    sl_model_options o = small_gpt;
    o.freeze = patterns;
    o.freeze_count = 2;
    sluice_graph *g = build(&o, &info);
    REQUIRE(g != NULL);
    CHECK_EQ(count_trainable(g), 12 + 2);
    CHECK(g->parameters[sl_graph_find_parameter(g, "h.1.ln_1.weight")].trainable);
    REQUIRE_OK(sl_graph_differentiate(g));
    sluice_graph_destroy(g);
    o.freeze = (const char *const[]){ "h.*", "h.7.*" };
    check_refused(&o, "freeze: no parameter of this model is called like \"h.7.*\"");
}

TEST(adapters_stand_beside_frozen_linears)
{
    static const char *const targets[] = { "*.c_attn", "h.1.mlp.c_proj" };
    sl_model_info info;
    sl_model_options o = small_gpt;
    o.lora.rank = 4;
    o.lora.alpha = 8;
    o.lora.targets = targets;
    o.lora.target_count = 2;
    sluice_graph *g = build(&o, &info);
    REQUIRE(g != NULL);
    CHECK_EQ(count_trainable(g), 2 * 3);
    check_parameter(g, "h.0.attn.c_attn.lora_A.weight", 4, 64, SLUICE_INIT_NORMAL, 1 / sqrt(64));
    check_parameter(g, "h.0.attn.c_attn.lora_B.weight", 192, 4, SLUICE_INIT_ZERO, 0);
    check_parameter(g, "h.1.mlp.c_proj.lora_A.weight", 4, 256, SLUICE_INIT_NORMAL, 1 / sqrt(256));
    check_parameter(g, "h.1.mlp.c_proj.lora_B.weight", 64, 4, SLUICE_INIT_ZERO, 0);
    CHECK_EQ(count_ops(g, SL_OP_SCALE), 3);
    for (int i = 0; i < g->node_count; i++)
        if (g->nodes[i].op == SL_OP_SCALE) CHECK_NEAR(g->nodes[i].attrs.scale.factor, 2, 0);
    REQUIRE_OK(sl_graph_differentiate(g));
    for (int p = 0; p < g->parameter_count; p++) CHECK_EQ(g->parameters[p].gradient >= 0, g->parameters[p].is_adapter);
    /* the head is frozen: its gradient is not made */
    CHECK_EQ(g->nodes[g->values[g->loss].producer].outputs[2], -1);
    sluice_graph_destroy(g);
}

TEST(every_linear_of_a_llama_can_have_an_adapter)
{
    static const char *const all[] = { "*" };
    sl_model_info info;
    sl_model_options o = small_llama;
    o.lora.rank = 2;
    o.lora.dropout = 0.1;
    o.lora.targets = all;
    o.lora.target_count = 1;
    sluice_graph *g = build(&o, &info);
    REQUIRE(g != NULL);
    CHECK_EQ(count_trainable(g), 2 * 2 * 4);
    CHECK_EQ(count_ops(g, SL_OP_DROPOUT), 2 * 4);
    check_parameter(g, "model.layers.0.self_attn.qkv_proj.lora_B.weight", 128, 2, SLUICE_INIT_ZERO, 0);
    REQUIRE_OK(sl_graph_differentiate(g));
    sluice_graph_destroy(g);
}

/* q_proj, v_proj: two of the three parts of a fused linear; their A's are one matrix in two parts. */
TEST(a_part_of_a_fused_linear_can_have_an_adapter_of_its_own)
{
    static const char *const parts[] = { "q_proj", "v_proj" }, *const head[] = { "lm_head" };
    sl_model_info info;
    sl_model_options o = small_llama;
    o.lora.rank = 4;
    o.lora.alpha = 8;
    o.lora.rank_stabilised = true;
    o.lora.targets = parts;
    o.lora.target_count = 2;
    o.lora.whole = head;
    o.lora.whole_count = 1;
    o.untied = true;
    sluice_graph *g = build(&o, &info);
    REQUIRE(g != NULL);
    CHECK_EQ(count_trainable(g), 2 * 3 + 1);
    CHECK_EQ(count_ops(g, SL_OP_ADD_PART), 2 * 2);
    check_parameter(g, "model.layers.0.self_attn.qkv_proj.lora_A.weight", 8, 64, SLUICE_INIT_NORMAL, 1 / sqrt(64));
    check_parameter(g, "model.layers.0.self_attn.q_proj.lora_B.weight", 64, 4, SLUICE_INIT_ZERO, 0);
    check_parameter(g, "model.layers.1.self_attn.v_proj.lora_B.weight", 32, 4, SLUICE_INIT_ZERO, 0);
    CHECK_EQ(sl_graph_find_parameter(g, "model.layers.0.self_attn.k_proj.lora_B.weight"), -1);
    const sl_parameter *a =
        &g->parameters[sl_graph_find_parameter(g, "model.layers.1.self_attn.qkv_proj.lora_A.weight")];
    REQUIRE(a->part_count == 2);
    CHECK_STR(a->parts[1].name, "model.layers.1.self_attn.v_proj.lora_A.weight");
    int64_t starts[2] = { -1, -1 };
    for (int n = 0, k = 0; n < g->node_count; n++) {
        if (g->nodes[n].op == SL_OP_SCALE) CHECK_NEAR(g->nodes[n].attrs.scale.factor, 4, 0); /* 8 / sqrt(4) */
        if (g->nodes[n].op == SL_OP_ADD_PART && k < 2) starts[k++] = g->nodes[n].attrs.split.start;
    }
    CHECK_EQ(starts[0], 0);
    CHECK_EQ(starts[1], 64 + 32);
    REQUIRE_OK(sl_graph_differentiate(g));
    sluice_graph_destroy(g);
}

TEST(all_linears_of_a_llama_have_the_adapters_of_peft)
{
    static const char *const all[] = { "all-linear" };
    sl_model_info info;
    sl_model_options o = small_llama;
    o.lora.rank = 2;
    o.lora.targets = all;
    o.lora.target_count = 1;
    sluice_graph *g = build(&o, &info);
    REQUIRE(g != NULL);
    CHECK_EQ(count_trainable(g), 2 * (4 + 7)); /* A's: qkv, o, gate and up, down; a B each */
    CHECK(sl_graph_find_parameter(g, "model.layers.0.mlp.up_proj.lora_B.weight") >= 0);
    CHECK(sl_graph_find_parameter(g, "model.layers.0.self_attn.qkv_proj.lora_B.weight") < 0);
    sluice_graph_destroy(g);
}

/* What PEFT writes of every classifier: its head is called by one of the names. */
TEST(the_head_of_a_classifier_is_whole_by_either_of_the_names_that_peft_gives_it)
{
    static const char *const all[] = { "*" }, *const heads[] = { "score", "classifier" };
    sl_model_info info;
    sl_model_options o = small_classifier;
    o.lora.rank = 2;
    o.lora.targets = all;
    o.lora.target_count = 1;
    o.lora.whole = heads;
    o.lora.whole_count = 2;
    sluice_graph *g = build(&o, &info);
    REQUIRE(g != NULL);
    CHECK(g->parameters[sl_graph_find_parameter(g, "classifier.weight")].trainable);
    CHECK(!g->parameters[sl_graph_find_parameter(g, "bert.pooler.dense.weight")].trainable);
    sluice_graph_destroy(g);
    o.lora.whole_count = 1;
    check_refused(&o, "lora.modules_to_save: no module of this model is called like \"score\"");
}

static void check_lora_refused(sl_model_options o, const char *target, const char *part)
{
    const char *targets[] = { target };
    o.lora.targets = targets;
    o.lora.target_count = target != NULL;
    check_refused(&o, part);
}

TEST(bad_adapters_are_refused_by_name)
{
    sl_model_options gpt = small_gpt, llama = small_llama, mlp = small_mlp;
    gpt.lora.rank = llama.lora.rank = mlp.lora.rank = 4;
    check_lora_refused(gpt, "q_proj", "lora.targets: no linear of this model is called like \"q_proj\"");
    check_lora_refused(gpt, "wte", "lora.targets: \"wte\" names wte, which takes no adapter");
    check_lora_refused(gpt, "*ln_1", "\"*ln_1\" names h.0.ln_1, which takes no adapter");
    check_lora_refused(gpt, NULL, "lora.targets is empty");
    llama.untied = true;
    check_lora_refused(llama, "lm_head", "\"lm_head\" names lm_head, which takes no adapter: it is an embedding, the");
    check_lora_refused(llama, "*embed*", "names model.embed_tokens, which takes no adapter");
    static const char *const nothing[] = { "lm_heads" };
    llama.lora.whole = nothing, llama.lora.whole_count = 1;
    check_lora_refused(llama, "q_proj", "lora.modules_to_save: no module of this model is called like \"lm_heads\"");
    check_lora_refused(mlp, "fc1", "lora has no meaning for model.type mlp");
    gpt.lora.rank = -1;
    check_lora_refused(gpt, "*", "lora.rank is -1");
    gpt.lora.rank = 4, gpt.lora.dropout = 1;
    check_lora_refused(gpt, "*", "lora.dropout is 1");
    gpt.lora.dropout = 0, gpt.lora.alpha = -2;
    check_lora_refused(gpt, "*", "lora.alpha is -2");
}

/* ---- networks of images and sentences ---- */

static int64_t count_parameters(const sl_model_options *o)
{
    sl_model_info info;
    sluice_graph *g = build(o, &info);
    int64_t count = g != NULL ? sl_graph_parameter_elements(g) : 0;
    if (g != NULL) CHECK_EQ(sl_graph_differentiate(g), SLUICE_OK);
    sluice_graph_destroy(g);
    return count;
}

TEST(residual_networks_have_torchvisions_parameter_counts)
{
    static const struct {
        int64_t depth, imagenet;
    } known[] = { { 18, 11689512 }, { 34, 21797672 }, { 50, 25557032 }, { 101, 44549160 }, { 152, 60192808 } };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        sl_model_options o = small_resnet;
        int64_t in = known[i].depth < 50 ? 512 : 2048;
        o.depth = known[i].depth;
        o.stem = "imagenet";
        o.image.height = o.image.width = 224;
        o.outputs = 1000;
        CHECK_EQ(count_parameters(&o), known[i].imagenet);
        o.stem = "cifar"; /* 3 x 3 instead of 7 x 7, and 10 classes */
        o.image.height = o.image.width = 32;
        o.outputs = 10;
        CHECK_EQ(count_parameters(&o), known[i].imagenet - 64 * 3 * (49 - 9) - 990 * (in + 1));
    }
}

TEST(the_network_of_cifar_has_its_published_parameter_count)
{
    sl_model_info info;
    CHECK_EQ(count_parameters(&small_cnn), 4805514);
    sluice_graph *g = build(&small_cnn, &info);
    REQUIRE(g != NULL);
    CHECK(info.classifies);
    check_layers(g, (const char *const[]){ "conv1", "conv2", "fc1", "fc2", NULL });
    int i = sl_graph_find_parameter(g, "conv2.weight");
    REQUIRE(i >= 0);
    check_shape(g, g->parameters[i].value, 4, (int64_t[]){ 128, 64, 3, 3 });
    CHECK_NEAR(g->parameters[i].init.scale, 1 / sqrt(64 * 9), 1e-7);
    check_parameter(g, "fc1.weight", 1024, 4608, SLUICE_INIT_UNIFORM, 1 / sqrt(4608));
    sluice_graph_destroy(g);
}

TEST(bert_and_vit_have_transformers_parameter_counts)
{
    sl_model_options bert = {
        .type = "bert", .batch = 1, .layers = 12, .heads = 12, .width = 768, .context = 512, .vocabulary = 30522
    };
    sl_model_options vit = small_vit;
    vit.layers = vit.heads = 12;
    vit.width = 768;
    vit.patch = 16;
    vit.outputs = 1000;
    vit.image.height = vit.image.width = 224;
    CHECK_EQ(count_parameters(&bert), 109514298);
    CHECK_EQ(count_parameters(&vit), 86567656);
    bert.head = "classifier";
    bert.outputs = 2;
    CHECK_EQ(count_parameters(&bert), 109483778);
    bert.layers = 24, bert.heads = 16, bert.width = 1024; /* large */
    CHECK_EQ(count_parameters(&bert), 335143938);
}

TEST(a_block_of_a_residual_network_is_a_layer)
{
    sl_model_info info;
    sluice_graph *g = build(&small_resnet, &info);
    REQUIRE(g != NULL);
    check_layers(g, (const char *const[]){ "stem", "layer1.0", "layer1.1", "layer2.0", "layer2.1", "layer3.0",
                                           "layer3.1", "layer4.0", "layer4.1", "fc", NULL });
    CHECK_EQ(count_ops(g, SL_OP_CONV2D), 1 + 4 * 4 + 3);
    CHECK_EQ(count_ops(g, SL_OP_BATCH_NORM), 1 + 4 * 4 + 3);
    CHECK_EQ(count_ops(g, SL_OP_RELU), 0); /* they are of the norms */
    CHECK_EQ(count_ops(g, SL_OP_MAX_POOL2D), 0);
    CHECK(sl_graph_find_parameter(g, "layer2.0.downsample.1.weight") >= 0);
    CHECK(sl_graph_find_parameter(g, "layer1.0.downsample.0.weight") < 0);
    sluice_graph_destroy(g);
}

TEST(all_batch_norms_of_a_model_take_statistics_over_all_ranks_or_none)
{
    for (int k = 0; k < 2; k++) {
        sl_model_info info;
        sl_model_options o = small_resnet;
        o.batch_norm = k == 0 ? "micro_batch" : "all_ranks";
        sluice_graph *g = build(&o, &info);
        int shared = 0;
        REQUIRE(g != NULL);
        for (int n = 0; n < g->node_count; n++)
            shared += g->nodes[n].op == SL_OP_BATCH_NORM && g->nodes[n].attrs.batch_norm.all_ranks;
        CHECK_EQ(shared, k == 0 ? 0 : 1 + 4 * 4 + 3);
        sluice_graph_destroy(g);
    }
}

TEST(encoders_name_the_parts_that_files_hold_and_see_in_both_directions)
{
    const sl_model_options *cases[] = { &small_bert, &small_vit, &small_classifier };
    const char *const names[][2] = {
        { "bert.encoder.layer.1.attention.self.qkv.weight", "bert.encoder.layer.1.attention.self.key.weight" },
        { "vit.encoder.layer.1.attention.attention.qkv.weight", "vit.encoder.layer.1.attention.attention.key.weight" },
        { "bert.encoder.layer.1.attention.self.qkv.weight", "bert.encoder.layer.1.attention.self.key.weight" },
    };
    for (int i = 0; i < 3; i++) {
        sl_model_info info;
        sluice_graph *g = build(cases[i], &info);
        REQUIRE(g != NULL);
        int p = sl_graph_find_parameter(g, names[i][0]);
        REQUIRE(p >= 0);
        REQUIRE(g->parameters[p].part_count == 3);
        CHECK_STR(g->parameters[p].parts[1].name, names[i][1]);
        for (int n = 0; n < g->node_count; n++)
            if (g->nodes[n].op == SL_OP_ATTENTION) CHECK(!g->nodes[n].attrs.attention.causal);
        check_layers(g, (const char *const[]){ "embed", "layer.0", "layer.1", "head", NULL });
        sluice_graph_destroy(g);
    }
}

/* The decoder is the token embedding; its bias stays a parameter of its own, in the loss and in the output. */
TEST(a_bert_guesses_tokens_with_a_bias_of_its_own)
{
    for (int accuracy = 0; accuracy < 2; accuracy++) {
        sl_model_info info;
        sl_model_options o = small_bert;
        o.accuracy = accuracy != 0;
        sluice_graph *g = build(&o, &info);
        REQUIRE(g != NULL);
        const int words = sl_graph_find_parameter(g, "bert.embeddings.word_embeddings.weight");
        const int bias = sl_graph_find_parameter(g, "cls.predictions.bias");
        REQUIRE(words >= 0 && bias >= 0);
        const sl_node *loss = &g->nodes[g->values[g->loss].producer];
        CHECK_EQ(loss->op, SL_OP_LINEAR_CROSS_ENTROPY);
        CHECK_EQ(loss->input_count, 4);
        CHECK_EQ(loss->inputs[1], g->parameters[words].value);
        CHECK_EQ(loss->inputs[3], g->parameters[bias].value);
        CHECK_EQ(g->output >= 0, accuracy != 0);
        if (accuracy) CHECK_EQ(g->nodes[g->values[g->output].producer].inputs[2], g->parameters[bias].value);
        check_input(g, "targets", SLUICE_I32, 2, 2, 32);
        sluice_graph_destroy(g);
    }
}

TEST(a_bert_that_classifies_reads_sentences)
{
    sl_model_info info;
    sluice_graph *g = build(&small_classifier, &info);
    REQUIRE(g != NULL);
    check_input(g, "tokens", SLUICE_I32, 2, 2, 32);
    check_input(g, "segments", SLUICE_I32, 2, 2, 32);
    check_input(g, "lengths", SLUICE_I32, 1, 2, 0);
    check_input(g, "target", SLUICE_I32, 1, 2, 0);
    sluice_graph_destroy(g);
    CHECK_EQ(sl_model_reads(&small_classifier), SL_SAMPLES_SENTENCES);
    CHECK_EQ(sl_model_reads(&small_bert), SL_SAMPLES_TOKENS);
    CHECK_EQ(sl_model_reads(&small_vit), SL_SAMPLES_IMAGES);
}

TEST(a_recogniser_has_pytorchs_names_and_counts)
{
    static const char *const layers[] = { "conv1", "conv2", "rnn1", "rnn2", "fc", NULL };
    sl_model_info info;
    sl_model_options o = small_speech;
    sluice_graph *g = build(&o, &info);
    REQUIRE(g != NULL);
    CHECK(info.transcribes && !info.classifies);
    CHECK_EQ(info.tokens_per_sample, 0);
    check_layers(g, layers);
    check_input(g, "x", SLUICE_F32, 4, 2, 51);
    check_input(g, "lengths", SLUICE_I32, 1, 2, 0);
    check_input(g, "labels", SLUICE_I32, 2, 2, 5);
    check_parameter(g, "rnn1.weight_ih_l0", 24, 30, SLUICE_INIT_UNIFORM, 1 / sqrt(8));
    check_parameter(g, "rnn1.weight_hh_l0_reverse", 24, 8, SLUICE_INIT_UNIFORM, 1 / sqrt(8));
    check_parameter(g, "rnn2.bias_hh_l0", 24, 0, SLUICE_INIT_UNIFORM, 1 / sqrt(8));
    check_parameter(g, "norm2.weight", 16, 0, SLUICE_INIT_ONE, 0);
    check_parameter(g, "fc.weight", 7, 16, SLUICE_INIT_UNIFORM, 0.25);
    check_shape(g, g->output, 3, (int64_t[]){ 2, 26, 7 }); /* halves are rounded up */
    /* convolutions 40 + 222; norms 60 + 32 + 32; both directions 1920 + 1248; the linear 119 */
    CHECK_EQ(sl_graph_parameter_elements(g), 3673);
    sluice_graph_destroy(g);
    o.one_way = true;
    o.frame_stride = 4;
    REQUIRE((g = build(&o, &info)) != NULL);
    check_shape(g, g->output, 3, (int64_t[]){ 2, 13, 7 });
    CHECK(sl_graph_find_parameter(g, "rnn1.weight_hh_l0_reverse") < 0);
    CHECK_EQ(count_ops(g, SL_OP_GRU), 2);
    CHECK_EQ(count_ops(g, SL_OP_DROPOUT), 0);
    sluice_graph_destroy(g);
    o.dropout = 0.1;
    REQUIRE((g = build(&o, &info)) != NULL);
    CHECK_EQ(count_ops(g, SL_OP_DROPOUT), 2);
    sluice_graph_destroy(g);
}

TEST(bad_settings_of_recognisers_name_key_and_bound)
{
    sl_model_options o = small_speech;
    o.frame_stride = 3;
    check_refused(&o, "model.frame_stride is 3; give 1, 2, 4, ..");
    o.frame_stride = 8;
    check_refused(&o, "model.frame_stride is 8; give 1, 2, 4, .., at most twice for each of the 2 convolutions");
    o = small_speech, o.outputs = 1;
    check_refused(&o, "model.outputs is 1, which is the blank");
    o = small_speech, o.filter_count = 0;
    check_refused(&o, "model.filters has 0 entries");
    o = small_speech, o.filters[1] = 0;
    check_refused(&o, "model.filters[1] is 0");
    o = small_speech, o.layers = 0;
    check_refused(&o, "model.layers is 0");
    o = small_speech, o.width = 0;
    check_refused(&o, "model.width is 0");
    o = small_speech, o.speech.rows = 0;
    check_refused(&o, "the rows of an utterance is 0");
    o = small_speech, o.dropout = 1;
    check_refused(&o, "model.dropout is 1");
    o = small_speech, o.hidden_count = 1, o.hidden[0] = 3;
    check_refused(&o, "model.hidden has no meaning for model.type speech");
}

TEST(bad_settings_of_networks_name_key_and_bound)
{
    sl_model_options o = small_resnet;
    o.depth = 19;
    check_refused(&o, "model.depth is 19; give 18, 34, 50, 101 or 152");
    o = small_resnet, o.stem = "mnist";
    check_refused(&o, "model.stem \"mnist\" is not known; give imagenet or cifar");
    o = small_resnet, o.batch_norm = "rank";
    check_refused(&o, "model.batch_norm \"rank\" is not known; give micro_batch or all_ranks");
    o = small_vit, o.batch_norm = "all_ranks";
    check_refused(&o, "model.batch_norm all_ranks has no meaning for model.type vit");
    o = small_resnet, o.outputs = 1;
    check_refused(&o, "model.outputs is 1, and a classifier needs at least 2 classes");
    o = small_resnet, o.image.channels = 0;
    check_refused(&o, "the channels of images is 0");
    o = small_resnet, o.dropout = 0.1;
    check_refused(&o, "model.dropout has no meaning for model.type resnet");
    o = small_resnet, o.filters[0] = 8, o.filter_count = 1;
    check_refused(&o, "model.filters has no meaning for model.type resnet");
    o = small_bert, o.hidden[0] = 8, o.hidden_count = 1;
    check_refused(&o, "model.hidden has no meaning for model.type bert");
    o = small_cnn, o.filter_count = 0;
    check_refused(&o, "model.filters has 0 entries; give the channels of 1 to 16 convolutions");
    o = small_cnn, o.filters[1] = 0;
    check_refused(&o, "model.filters[1] is 0");
    o = small_cnn, o.padding = 3;
    check_refused(&o, "model.padding is 3; give 0 to below model.kernel, 3");
    o = small_cnn, o.pool = 0;
    check_refused(&o, "model.pool is 0");
    o = small_cnn, o.dropout = 1;
    check_refused(&o, "model.dropout is 1");
    o = small_cnn, o.kernel = 40;
    check_refused(&o, "conv1");
    o = small_vit, o.patch = 7;
    check_refused(&o, "change model.patch or data.image_size");
    o = small_vit, o.image.width = 40;
    check_refused(&o, "images of 32 x 40 are no squares");
    o = small_vit, o.heads = 5;
    check_refused(&o, "model.width 64 is not a multiple of model.heads 5");
    o = small_bert, o.head = "pooler";
    check_refused(&o, "model.head \"pooler\" is not known; give masked_language or classifier");
    o = small_classifier, o.outputs = 0;
    check_refused(&o, "model.outputs is 0");
    o = small_bert, o.untied = true;
    check_refused(&o, "model.tie_word_embeddings has no meaning for model.type bert");
    o = small_bert, o.kv_heads = 2;
    check_refused(&o, "model.kv_heads has no meaning for model.type bert");
}
