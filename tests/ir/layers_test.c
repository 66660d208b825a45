/* sl_graph_finish: which layer owns a parameter, and where in its flat buffer. */
#include "ir/graph.h"
#include "test.h"

static const sluice_init zero = { SLUICE_INIT_ZERO, 0 };

static sluice_value param(sluice_graph *g, const char *name, int64_t rows, int64_t columns)
{
    return sluice_parameter(g, name, 2, (int64_t[]){ rows, columns }, zero);
}

static sluice_value start(sluice_graph **g)
{
    sluice_graph_create(g);
    return sluice_input(*g, "x", SLUICE_F32, 2, (int64_t[]){ 2, 4 });
}

static const sl_parameter *find(const sluice_graph *g, const char *name)
{
    return &g->parameters[sl_graph_find_parameter(g, name)];
}

TEST(graph_without_layer_calls_is_one_layer)
{
    sluice_graph *g;
    sluice_value x = start(&g);
    sluice_set_loss(g, sluice_sum(g, sluice_linear(g, sluice_relu(g, sluice_linear(g, x, 3, "a")), 2, "b")));
    REQUIRE_OK(sl_graph_finish(g));
    CHECK_EQ(g->layer_count, 1);
    CHECK_STR(g->layers[0].name, "layer_0");
    CHECK_EQ(g->layers[0].node_count, 4);
    CHECK_EQ(g->layers[0].element_count, 12 + 3 + 6 + 2);
    CHECK(g->layers[0].trainable);
    CHECK_EQ(find(g, "a.bias")->offset, 12);
    CHECK_EQ(find(g, "b.weight")->offset, 15);
    CHECK_EQ(find(g, "b.bias")->offset, 21);
    CHECK_EQ(sl_graph_parameter_elements(g), 23);
    sluice_graph_destroy(g);
}

TEST(parameters_lie_in_creation_order_in_the_layer_that_uses_them)
{
    sluice_graph *g;
    sluice_value x = start(&g);
    sluice_value late = param(g, "late", 4, 4), early = param(g, "early", 4, 4), other = param(g, "other", 4, 2);
    x = sluice_relu(g, x); /* before the first layer call: a default layer */
    sluice_layer(g, "empty");
    sluice_layer(g, "first");
    x = sluice_linear_with(g, x, early, SLUICE_NONE, false);
    x = sluice_linear_with(g, x, late, SLUICE_NONE, false);
    sluice_layer(g, "second");
    sluice_set_loss(g, sluice_sum(g, sluice_linear_with(g, x, other, SLUICE_NONE, true)));
    REQUIRE_OK(sl_graph_finish(g));
    REQUIRE(g->layer_count == 3);
    CHECK_STR(g->layers[0].name, "layer_0");
    CHECK_STR(g->layers[1].name, "first");
    CHECK_STR(g->layers[2].name, "second");
    CHECK(!g->layers[0].trainable);
    CHECK_EQ(g->layers[1].first_node, 1);
    CHECK_EQ(g->layers[1].node_count, 2);
    CHECK_EQ(g->nodes[3].layer, 2);
    CHECK_EQ(find(g, "late")->offset, 0);
    CHECK_EQ(find(g, "early")->offset, 16);
    CHECK_EQ(find(g, "early")->layer, 1);
    CHECK_EQ(g->layer_parameters[g->layers[2].first_parameter], sl_graph_find_parameter(g, "other"));
    sluice_graph_destroy(g);
}

TEST(tied_parameter_gets_a_layer_of_its_own_before_all_others)
{
    sluice_graph *g;
    sluice_value x = start(&g), w = param(g, "w", 4, 4), tied = param(g, "tied", 4, 4);
    sluice_layer(g, "one");
    x = sluice_linear_with(g, x, tied, SLUICE_NONE, false);
    x = sluice_linear_with(g, x, w, SLUICE_NONE, false);
    sluice_layer(g, "two");
    sluice_set_loss(g, sluice_sum(g, sluice_linear_with(g, x, tied, SLUICE_NONE, true)));
    REQUIRE_OK(sl_graph_finish(g));
    REQUIRE(g->layer_count == 3);
    CHECK_STR(g->layers[0].name, "tied");
    CHECK_EQ(g->layers[0].node_count, 0);
    CHECK_EQ(g->layers[0].element_count, 16);
    CHECK(g->layers[0].trainable);
    CHECK_EQ(find(g, "tied")->layer, 0);
    CHECK_EQ(find(g, "w")->layer, 1);
    CHECK_EQ(g->nodes[0].layer, 1);
    CHECK_EQ(g->layers[2].parameter_count, 0);
    sluice_graph_destroy(g);
}

TEST(view_of_a_parameter_used_in_another_layer_ties_it)
{
    sluice_graph *g;
    sluice_value x = start(&g), w = param(g, "w", 2, 8);
    sluice_layer(g, "one");
    sluice_value view = sluice_reshape(g, w, 2, (int64_t[]){ 4, 4 });
    sluice_layer(g, "two");
    sluice_set_loss(g, sluice_sum(g, sluice_linear_with(g, x, view, SLUICE_NONE, false)));
    REQUIRE_OK(sl_graph_differentiate(g));
    CHECK_STR(g->layers[0].name, "w");
    CHECK_EQ(g->layers[0].node_count, 0);
    sluice_graph_destroy(g);
}

TEST(frozen_parameters_move_to_a_layer_beside_their_own)
{
    sluice_graph *g;
    sluice_value x = start(&g);
    sluice_layer(g, "block");
    sluice_value a = param(g, "a", 4, 4), b = param(g, "b", 4, 4), c = param(g, "c", 4, 4), d = param(g, "d", 4, 4);
    sluice_freeze(g, a);
    sluice_freeze(g, c);
    sluice_freeze(g, d);
    sluice_value all[] = { a, b, c, d };
    for (int i = 0; i < 4; i++) x = sluice_linear_with(g, x, all[i], SLUICE_NONE, false);
    sluice_layer(g, "head");
    sluice_set_loss(g, sluice_sum(g, sluice_linear_with(g, x, d, SLUICE_NONE, false)));
    REQUIRE_OK(sl_graph_differentiate(g));
    REQUIRE(g->layer_count == 4);
    CHECK_STR(g->layers[0].name, "d");
    CHECK_STR(g->layers[1].name, "block.frozen");
    CHECK_STR(g->layers[2].name, "block");
    CHECK(!g->layers[0].trainable && !g->layers[1].trainable && g->layers[2].trainable);
    CHECK_EQ(g->layers[1].element_count, 32);
    CHECK_EQ(g->layers[2].element_count, 16);
    CHECK_EQ(find(g, "c")->offset, 16);
    CHECK_EQ(find(g, "b")->offset, 0);
    CHECK_EQ(find(g, "a")->gradient, -1);
    CHECK(find(g, "b")->gradient >= 0);
    sluice_graph_destroy(g);
}

TEST(unused_parameter_is_refused_by_name)
{
    sluice_graph *g;
    sluice_value x = start(&g);
    param(g, "forgotten", 4, 4);
    sluice_set_loss(g, sluice_sum(g, sluice_linear(g, x, 2, "fc")));
    CHECK_EQ(sl_graph_finish(g), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "parameter \"forgotten\" is used by no operation");
    sluice_graph_destroy(g);
}

TEST(graph_without_operations_is_refused)
{
    sluice_graph *g;
    start(&g);
    CHECK_EQ(sl_graph_finish(g), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "no operations");
    sluice_graph_destroy(g);
}
