/* create_test.c: what an optimizer adds to a graph, which group takes which parameter, what it refuses, and that it leaks
 * nothing. */
#include "core/alloc.h"
#include "ir/tile.h"
#include "support/optim_fixture.h"

static sl_optim_options options_of(sluice_optimizer_kind kind)
{
    sl_optim_options o = { 0 };
    sluice_optimizer_init(&o.optimizer, kind);
    return o;
}

TEST(nodes_are_leaves_then_the_norm_then_updates_in_layer_order)
{
    sluice_graph *g;
    sl_optim *o;
    sl_optim_options options = options_of(SLUICE_ADAMW);
    REQUIRE_OK(small_graph(&g));
    int before = g->node_count;
    REQUIRE_OK(sl_optim_create(g, &options, &o));
    static const sl_op ops[] = { SL_OP_NORM_LEAVES, SL_OP_NORM_LEAVES, SL_OP_NORM_FINISH, SL_OP_UPDATE, SL_OP_UPDATE };
    static const char *const layers[] = { "first", "second", NULL, "first", "second" };
    REQUIRE(g->node_count == before + 5);
    for (int i = 0; i < 5; i++) {
        const sl_node *n = &g->nodes[before + i];
        CHECK_EQ(n->op, ops[i]);
        CHECK_EQ(n->phase, SL_PHASE_UPDATE);
        if (layers[i] == NULL)
            CHECK_EQ(n->layer, -1);
        else
            CHECK_STR(g->layers[n->layer].name, layers[i]);
    }
    const sl_update_rule *rule = g->nodes[before + 3].attrs.update;
    CHECK_EQ(rule->segment_count, 3);
    CHECK_EQ(rule->segments[1].offset, 1);
    CHECK_EQ(rule->segments[2].offset, 78);
    CHECK_EQ(rule->segments[2].count, 1025);
    CHECK_EQ(rule->kind, SL_UPDATE_adam_decoupled);
    REQUIRE_OK(sl_graph_verify(g));
    sl_optim_destroy(o);
    sluice_graph_destroy(g);
}

TEST(segments_carry_the_rows_and_columns_of_their_parameters)
{
    static const struct {
        const char *name;
        int64_t rows, columns;
    } rows[] = { { "a.scale", 1, 1 }, { "a.bias", 1, 77 }, { "a.weight", 25, 41 }, { "b.weight", 50, 100 } };
    sluice_graph *g;
    sl_optim *o;
    sl_optim_options options = options_of(SLUICE_ADAMW);
    REQUIRE_OK(small_graph(&g));
    REQUIRE_OK(sl_optim_create(g, &options, &o));
    const sl_update_rule *first = g->nodes[g->node_count - 2].attrs.update,
                         *second = g->nodes[g->node_count - 1].attrs.update;
    for (int i = 0; i < 4; i++) {
        const sl_update_segment *s = i < 3 ? &first->segments[i] : &second->segments[0];
        CHECK_EQ(s->offset, g->parameters[sl_graph_find_parameter(g, rows[i].name)].offset);
        CHECK_EQ(s->rows, rows[i].rows);
        CHECK_EQ(s->columns, rows[i].columns);
    }
    sl_optim_destroy(o);
    sluice_graph_destroy(g);
}

/* Three dimensions: the first is the rows. */
TEST(a_tensor_of_many_dimensions_is_a_matrix_of_its_first_by_the_others)
{
    sluice_graph *g;
    sl_optim *o;
    sl_optim_options options = options_of(SLUICE_SGD);
    sluice_init zero = { SLUICE_INIT_ZERO, 0.0f };
    REQUIRE_OK(sluice_graph_create(&g));
    sluice_set_loss(g, sluice_sum(g, sluice_parameter(g, "kernel", 3, (int64_t[]){ 4, 3, 5 }, zero)));
    REQUIRE_OK(sl_graph_finish(g));
    REQUIRE_OK(sl_graph_differentiate(g));
    REQUIRE_OK(sl_optim_create(g, &options, &o));
    const sl_update_segment *s = g->nodes[g->node_count - 1].attrs.update->segments;
    CHECK_EQ(s->rows, 4);
    CHECK_EQ(s->columns, 15);
    sl_optim_destroy(o);
    sluice_graph_destroy(g);
}

/* Every optimizer with every combination of the options it has: as many slot names as its rule has slots, all
 * different, and no rule that nothing runs. */
TEST(every_rule_belongs_to_an_optimizer_which_names_its_slots)
{
    bool used[SL_UPDATE_KIND_COUNT] = { false };
    for (int kind = 0; kind < sl_optim_count(); kind++)
        for (int bits = 0; bits < 16; bits++) {
            sluice_graph *g;
            sl_optim *o;
            sl_optim_options options = options_of((sluice_optimizer_kind)kind);
            options.optimizer.momentum = bits & 1 ? 0.9 : 0.0;
            options.optimizer.nesterov = bits >> 1 & 1;
            options.optimizer.amsgrad = bits >> 2 & 1;
            options.optimizer.centered = bits >> 3 & 1;
            REQUIRE_OK(small_graph(&g));
            if (sl_optim_create(g, &options, &o) == SLUICE_OK) {
                const sl_update_rule *rule = g->nodes[g->node_count - 1].attrs.update;
                used[rule->kind] = true;
                CHECK_EQ(sl_optim_slots(o), sl_updates[rule->kind].slots);
                CHECK_EQ(sl_updates[rule->kind].whole_parameters,
                         sl_optim_needs_whole_parameters((sluice_optimizer_kind)kind));
                for (int k = 0; k < sl_optim_slots(o); k++) {
                    REQUIRE(sl_optim_slot_name(o, k) != NULL);
                    for (int j = 0; j < k; j++) CHECK(strcmp(sl_optim_slot_name(o, k), sl_optim_slot_name(o, j)) != 0);
                }
                sl_optim_destroy(o);
            }
            sluice_graph_destroy(g);
        }
    for (int rule = 0; rule < SL_UPDATE_KIND_COUNT; rule++)
        if (!used[rule]) test_fail(__FILE__, __LINE__, "no optimizer runs %s", sl_updates[rule].name);
}

/* Random rounding would shift the norms, and ranks would cut them. */
TEST(optimizers_with_norms_of_whole_parameters_have_no_compact_states)
{
    for (int kind = 0; kind < sl_optim_count(); kind++)
        if (sl_optim_needs_whole_parameters((sluice_optimizer_kind)kind))
            CHECK(!sl_optim_allows_compact((sluice_optimizer_kind)kind));
    CHECK(sl_optim_needs_whole_parameters(SLUICE_LAMB) && sl_optim_needs_whole_parameters(SLUICE_LARS));
    CHECK(!sl_optim_needs_whole_parameters(SLUICE_LION) && sl_optim_allows_compact(SLUICE_LION));
}

TEST(defaults_are_those_of_torch_and_deepspeed)
{
    static const struct {
        sluice_optimizer_kind kind;
        double lr, weight_decay, beta2, epsilon, momentum;
    } rows[] = {
        { SLUICE_SGD, 1e-3, 0, 0.999, 1e-8, 0 },  { SLUICE_ADAGRAD, 1e-2, 0, 0.999, 1e-10, 0 },
        { SLUICE_ADAM, 1e-3, 0, 0.999, 1e-8, 0 }, { SLUICE_ADAMW, 1e-3, 0.01, 0.999, 1e-8, 0 },
        { SLUICE_LAMB, 1e-3, 0, 0.999, 1e-8, 0 }, { SLUICE_LARS, 1e-3, 0, 0.999, 1e-8, 0.9 },
        { SLUICE_LION, 1e-3, 0, 0.999, 1e-8, 0 }, { SLUICE_RMSPROP, 1e-2, 0, 0.99, 1e-8, 0 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        sluice_optimizer o;
        memset(&o, 0xff, sizeof o);
        sluice_optimizer_init(&o, rows[i].kind);
        CHECK(o.size == sizeof o && o.kind == rows[i].kind);
        CHECK(o.lr == rows[i].lr && o.weight_decay == rows[i].weight_decay && o.beta1 == 0.9 &&
              o.beta2 == rows[i].beta2);
        CHECK(o.epsilon == rows[i].epsilon && o.momentum == rows[i].momentum && o.dampening == 0.0);
        CHECK(!o.nesterov && !o.amsgrad && !o.centered && o.trust == 0.001 && o.min_trust == 0.01 &&
              o.max_trust == 10.0);
    }
}

TEST(bytes_per_element_count_every_pass)
{
    static const struct {
        sluice_optimizer_kind kind;
        double momentum;
        bool amsgrad;
        double bytes;
        int slots;
    } rows[] = { { SLUICE_SGD, 0, false, 12, 0 },     { SLUICE_SGD, 0.9, false, 20, 1 },
                 { SLUICE_ADAGRAD, 0, false, 20, 1 }, { SLUICE_ADAMW, 0, false, 28, 2 },
                 { SLUICE_ADAM, 0, true, 36, 3 },     { SLUICE_LAMB, 0, false, 40, 2 },
                 { SLUICE_LARS, 0.9, false, 28, 1 },  { SLUICE_LION, 0, false, 20, 1 },
                 { SLUICE_RMSPROP, 0, false, 20, 1 }, { SLUICE_RMSPROP, 0.9, false, 28, 2 } };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        sluice_graph *g;
        sl_optim *o;
        sl_optim_options options = options_of(rows[i].kind);
        options.optimizer.momentum = rows[i].momentum;
        options.optimizer.amsgrad = rows[i].amsgrad;
        REQUIRE_OK(small_graph(&g));
        REQUIRE_OK(sl_optim_create(g, &options, &o));
        CHECK(sl_optim_bytes_per_element(o, SLUICE_F32, SLUICE_F32, SL_FORM_F32) == rows[i].bytes);
        CHECK_EQ(sl_optim_slots(o), rows[i].slots);
        sl_optim_destroy(o);
        sluice_graph_destroy(g);
    }
}

/* gradient + master in and out + f16 weights out + two moments in and out */
TEST(bytes_per_element_count_every_form)
{
    static const struct {
        sluice_dtype precision, wire;
        sl_form states;
        double bytes;
    } rows[] = { { SLUICE_BF16, SLUICE_BF16, SL_FORM_F32, 2 + 8 + 16 },
                 { SLUICE_F16, SLUICE_F16, SL_FORM_F32, 2 + 8 + 2 + 16 },
                 { SLUICE_BF16, SLUICE_F32, SL_FORM_BF16, 4 + 8 + 8 },
                 { SLUICE_BF16, SLUICE_BF16, SL_FORM_BLOCKS8, 2 + 8 + 4 * (1 + 4 / 1024.0) } };
    sluice_graph *g;
    sl_optim *o;
    sl_optim_options options = options_of(SLUICE_ADAM);
    REQUIRE_OK(small_graph(&g));
    REQUIRE_OK(sl_optim_create(g, &options, &o));
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        CHECK(sl_optim_bytes_per_element(o, rows[i].precision, rows[i].wire, rows[i].states) == rows[i].bytes);
    sl_optim_destroy(o);
    sluice_graph_destroy(g);
}

/* "first" has 1,103 elements, so "second" is counted from two whole blocks on. */
TEST(rules_name_their_layer_and_number_its_elements_among_all)
{
    sluice_graph *g;
    sl_optim *o;
    sl_optim_options options = options_of(SLUICE_ADAMW);
    options.states = SLUICE_STATES_COMPACT;
    REQUIRE_OK(small_graph(&g));
    int before = g->node_count;
    REQUIRE_OK(sl_optim_create(g, &options, &o));
    const sl_update_rule *first = g->nodes[before + 3].attrs.update, *second = g->nodes[before + 4].attrs.update;
    CHECK(first->layer == &g->layers[g->nodes[before + 3].layer]);
    CHECK(second->layer == &g->layers[g->nodes[before + 4].layer]);
    CHECK_EQ(first->layer->element_count, 1103);
    CHECK_EQ(first->first_element, 0);
    CHECK_EQ(second->first_element, 2048);
    sl_optim_destroy(o);
    sluice_graph_destroy(g);
}

TEST(the_first_matching_group_takes_a_parameter)
{
    sluice_graph *g;
    sl_optim *o;
    sl_group_options groups[] = { { "no_decay", 1.0, -1.0 }, { "a.*", 0.5, 0.25 } };
    sl_optim_options options = options_of(SLUICE_ADAMW);
    options.groups = groups;
    options.group_count = 2;
    options.clip = 2.5;
    REQUIRE_OK(small_graph(&g));
    REQUIRE_OK(sl_optim_create(g, &options, &o));
    CHECK_EQ(sl_optim_group_count(o), 3);
    static const struct {
        const char *name;
        int group;
    } rows[] = { { "a.scale", 1 }, { "a.bias", 1 }, { "a.weight", 2 }, { "b.weight", 0 } };
    for (int i = 0; i < 4; i++) CHECK_EQ(sl_optim_group_of(o, sl_graph_find_parameter(g, rows[i].name)), rows[i].group);
    sl_run_context run = { 0 };
    sl_optim_scalars(o, 3, 0.01, -1.0, &run);
    CHECK_EQ(run.group_count, 3);
    CHECK(run.clip == 2.5);
    CHECK(run.groups[0].weight_decay == 0.01f && run.groups[1].weight_decay == 0.0f);
    CHECK(run.groups[2].decay_factor == (float)(1.0 - 0.005 * 0.25));
    CHECK(run.groups[0].rate == (float)(0.01 / (1.0 - 0.9 * 0.9 * 0.9)) && run.groups[0].first_step == 0);
    CHECK(run.groups[2].rate == (float)(0.01 * 0.5 / (1.0 - 0.9 * 0.9 * 0.9)));
    CHECK(run.groups[0].one_minus_beta2 == (float)(1.0 - 0.999));
    sl_optim_scalars(o, 1, 0.01, 0.85, &run);
    CHECK(run.groups[0].beta1 == 0.85f && run.groups[0].beta2 == 0.99f && run.groups[0].first_step == 1);
    sl_optim_destroy(o);
    sluice_graph_destroy(g);
}

/* Its rule is SparseAdam's: both corrections are in the rate, and epsilon is added to the root as it is. */
TEST(a_sparse_table_keeps_its_group_and_has_scalars_of_its_own)
{
    sluice_graph *g;
    sl_optim *o;
    sl_group_options groups[] = { { "a.weight", 0.5, 0.0 } };
    sl_optim_options options = options_of(SLUICE_ADAMW);
    options.groups = groups;
    REQUIRE_OK(small_graph(&g));
    int table = sl_graph_find_parameter(g, "a.weight");
    g->parameters[table].is_sparse = true;
    CHECK(sl_optim_create(g, &options, &o) == SLUICE_ERR_USAGE); /* AdamW's decay */
    CHECK(strstr(sluice_error(), "weight_decay 0.01 would change rows of the sparse table \"a.weight\"") != NULL);
    options.group_count = 1;
    REQUIRE_OK(sl_optim_create(g, &options, &o));
    CHECK_EQ(sl_optim_group_count(o), 2);
    CHECK_EQ(sl_optim_group_of(o, table), 1);
    const sl_update_rule *first = g->nodes[g->node_count - 2].attrs.update;
    CHECK_EQ(first->segments[1].group, 0);
    CHECK_EQ(first->segments[2].group, 2);
    sl_run_context run = { 0 };
    sl_optim_scalars(o, 3, 0.01, -1.0, &run);
    CHECK_EQ(run.group_count, 3);
    double root = sqrt(1.0 - pow(0.999, 3));
    CHECK(run.groups[1].rate == (float)(0.005 / (1.0 - pow(0.9, 3))) && run.groups[1].bias2_sqrt == (float)root);
    CHECK(run.groups[2].rate == (float)(0.005 / (1.0 - pow(0.9, 3)) * root) && run.groups[2].bias2_sqrt == 1.0f);
    CHECK(run.groups[2].decay_factor == 1.0f && run.groups[2].epsilon == run.groups[1].epsilon);
    sl_optim_destroy(o);
    sluice_graph_destroy(g);
}

TEST(cycled_momentum_leaves_optimizers_without_betas_alone)
{
    sluice_graph *g;
    sl_optim *o;
    sl_optim_options options = options_of(SLUICE_SGD);
    sl_run_context run = { 0 };
    options.optimizer.momentum = 0.5;
    REQUIRE_OK(small_graph(&g));
    REQUIRE_OK(sl_optim_create(g, &options, &o));
    sl_optim_scalars(o, 2, 0.01, 0.85, &run);
    CHECK(run.groups[0].momentum == 0.5f);
    sl_optim_destroy(o);
    sluice_graph_destroy(g);
}

/* Refusals leave the graph as it was. */
static void expect_refusal(const sl_optim_options *options, const char *message)
{
    sluice_graph *g;
    sl_optim *o = NULL;
    REQUIRE_OK(small_graph(&g));
    int nodes = g->node_count;
    CHECK_EQ(sl_optim_create(g, options, &o), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), message);
    CHECK(o == NULL);
    CHECK_EQ(g->node_count, nodes);
    sluice_graph_destroy(g);
}

/* Adam's first step without bias correction: -lr * (1 - beta1) g / (sqrt((1 - beta2) g^2) + eps). */
TEST(moments_are_not_corrected_where_the_optimizer_says_so)
{
    trainer t;
    sl_optim_options o = { .clip = 0 };
    sluice_optimizer_init(&o.optimizer, SLUICE_ADAM);
    o.optimizer.weight_decay = 0;
    for (int corrected = 0; corrected < 2; corrected++) {
        o.optimizer.uncorrected = !corrected;
        REQUIRE_OK(trainer_open(&t, &o, SL_ISA_SCALAR, 1));
        trainer_set_weights(&t);
        trainer_set_gradients(&t, 1);
        double before = (double)t.weights[0][0], g = (double)t.gradients[0][0];
        trainer_step(&t, 1, 0.5, -1);
        double m = corrected ? g : 0.1 * g, v = corrected ? g * g : 0.001 * g * g;
        CHECK_NEAR((double)t.weights[0][0], before - 0.5 * m / (sqrt(v) + 1e-8), 1e-5);
        trainer_close(&t);
    }
}

TEST(a_group_takes_the_tiles_of_a_parameter_it_matches)
{
    sluice_graph *g;
    sl_optim *o;
    sl_group_options groups[] = { { "no_decay", 1.0, -1.0 }, { "*.weight", 0.5, -1.0 } };
    sl_optim_options options = options_of(SLUICE_ADAMW);
    options.groups = groups;
    options.group_count = 2;
    REQUIRE_OK(sluice_graph_create(&g));
    sluice_value x = sluice_input(g, "x", SLUICE_F32, 2, (int64_t[]){ 2, 4 });
    sluice_set_loss(g, sluice_mean(g, sluice_linear(g, x, 6, "a")));
    REQUIRE_OK(sl_graph_tile(g, 3 * 4 * sizeof(float)));
    REQUIRE_OK(sl_graph_differentiate(g));
    REQUIRE_OK(sl_optim_create(g, &options, &o));
    CHECK_EQ(sl_optim_group_of(o, sl_graph_find_parameter(g, "a.weight.tile1")), 2);
    CHECK_EQ(sl_optim_group_of(o, sl_graph_find_parameter(g, "a.bias.tile1")), 1);
    sl_optim_destroy(o);
    sluice_graph_destroy(g);
}

TEST(group_errors_name_the_pattern)
{
    sl_group_options groups[2] = { { "c.*", 1.0, -1.0 }, { "a.*", 1.0, -1.0 } };
    sl_optim_options options = options_of(SLUICE_ADAMW);
    options.groups = groups;
    options.group_count = 1;
    expect_refusal(&options, "\"c.*\" matches no trainable parameter");
    groups[0].pattern = "*";
    options.group_count = 2;
    expect_refusal(&options, "\"a.*\" is empty: earlier groups took all 3");
    groups[0].pattern = "";
    expect_refusal(&options, "group 1 has no pattern");
    groups[0] = (sl_group_options){ "a.*", NAN, -1.0 };
    expect_refusal(&options, "\"a.*\": lr scale is");
    groups[0] = (sl_group_options){ "a.*", 1.0, INFINITY };
    expect_refusal(&options, "\"a.*\": weight_decay is inf");
    options.group_count = SL_MAX_GROUPS;
    expect_refusal(&options, "at most 15");
}

TEST(bad_optimizers_are_refused_by_name)
{
    sl_optim_options o = options_of(SLUICE_ADAMW);
    o.optimizer.lr = -0.1;
    expect_refusal(&o, "AdamW: lr is -0.1");
    o = options_of(SLUICE_ADAM);
    o.optimizer.beta2 = 1.0;
    expect_refusal(&o, "Adam: beta2 is 1");
    o = options_of(SLUICE_SGD);
    o.optimizer.nesterov = true;
    expect_refusal(&o, "nesterov needs momentum");
    o = options_of(SLUICE_LION);
    o.optimizer.amsgrad = true;
    expect_refusal(&o, "Lion has no amsgrad");
    o = options_of(SLUICE_ADAM);
    o.optimizer.nesterov = true;
    expect_refusal(&o, "Adam has no Nesterov");
    o.optimizer = options_of(SLUICE_SGD).optimizer;
    o.optimizer.centered = true;
    expect_refusal(&o, "SGD has no centered form; use RMSprop");
    o = options_of(SLUICE_RMSPROP);
    o.optimizer.nesterov = true;
    expect_refusal(&o, "RMSprop has no Nesterov");
    o = options_of(SLUICE_LAMB);
    o.optimizer.min_trust = 20.0;
    expect_refusal(&o, "min_trust 20 is above");
    o = options_of(SLUICE_SGD);
    o.optimizer.kind = (sluice_optimizer_kind)99;
    expect_refusal(&o, "kind 99 is unknown");
    o = options_of(SLUICE_SGD);
    o.optimizer.size = 8;
    expect_refusal(&o, "sluice_optimizer_init");
    o = options_of(SLUICE_SGD);
    o.clip = NAN;
    expect_refusal(&o, "gradient clipping");
}

TEST(lamb_and_lars_keep_their_states_in_fp32)
{
    sl_optim_options o = options_of(SLUICE_LAMB);
    o.states = SLUICE_STATES_COMPACT;
    expect_refusal(&o, "LAMB keeps its states in fp32, not in 8-bit blocks");
    o = options_of(SLUICE_LARS);
    o.states = SLUICE_STATES_BF16;
    expect_refusal(&o, "LARS keeps its states in fp32, not in bf16");
    o = options_of(SLUICE_ADAM);
    o.states = (sluice_states)7;
    expect_refusal(&o, "states is 7");
    o = options_of(SLUICE_RMSPROP);
    o.optimizer.centered = true;
    o.states = SLUICE_STATES_BF16;
    expect_refusal(&o, "RMSprop, with the options it has here, keeps its states in fp32, not in bf16");
    CHECK(sl_optim_allows_compact(SLUICE_LION) && !sl_optim_allows_compact(SLUICE_LAMB));
}

TEST(frozen_parameters_get_no_segment_and_no_group)
{
    sluice_graph *g;
    sl_optim *o;
    sl_optim_options options = options_of(SLUICE_ADAMW);
    sluice_init zero = { SLUICE_INIT_ZERO, 0.0f };
    REQUIRE_OK(sluice_graph_create(&g));
    sluice_value frozen = sluice_parameter(g, "frozen", 1, (int64_t[]){ 8 }, zero);
    sluice_value free_one = sluice_parameter(g, "free", 1, (int64_t[]){ 8 }, zero);
    sluice_freeze(g, frozen);
    sluice_set_loss(g, sluice_sum(g, sluice_add(g, frozen, free_one)));
    REQUIRE_OK(sl_graph_finish(g));
    REQUIRE_OK(sl_graph_differentiate(g));
    REQUIRE_OK(sl_optim_create(g, &options, &o));
    int index = sl_graph_find_parameter(g, "free");
    CHECK_EQ(sl_optim_group_of(o, sl_graph_find_parameter(g, "frozen")), -1);
    CHECK_EQ(sl_optim_group_of(o, index), 0);
    const sl_update_rule *rule = g->nodes[g->node_count - 1].attrs.update;
    CHECK_EQ(rule->segment_count, 1);
    CHECK_EQ(rule->segments[0].offset, g->parameters[index].offset);
    sl_optim_destroy(o);
    sluice_graph_destroy(g);
}

TEST(every_failing_allocation_is_reported_and_leaks_nothing)
{
    sl_group_options groups[] = { { "a.*", 0.5, 0.25 } };
    sl_optim_options options = options_of(SLUICE_ADAMW);
    options.groups = groups;
    options.group_count = 1;
    bool succeeded = false;
    for (int64_t nth = 1; nth < 100 && !succeeded; nth++) {
        sluice_graph *g;
        sl_optim *o = NULL;
        sl_alloc_stats before, after;
        sl_alloc_get_stats(&before);
        REQUIRE_OK(small_graph(&g));
        int nodes = g->node_count;
        sl_alloc_fail_nth(nth, 1);
        sluice_status st = sl_optim_create(g, &options, &o);
        sl_alloc_fail_nth(0, 0);
        succeeded = st == SLUICE_OK;
        if (!succeeded) {
            CHECK_EQ(st, SLUICE_ERR_NO_MEMORY);
            CHECK(o == NULL);
            CHECK_EQ(g->node_count, nodes);
        }
        sl_optim_destroy(o);
        sluice_graph_destroy(g);
        sl_alloc_get_stats(&after);
        CHECK_EQ(after.live_count, before.live_count);
        CHECK_EQ(after.live_bytes, before.live_bytes);
        if (nth == 1) CHECK(!succeeded);
    }
    CHECK(succeeded);
}
