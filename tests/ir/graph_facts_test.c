/* graph_facts_test.c: what a program may ask of the graph it builds. */
#include "ir/graph.h"
#include "test.h"

TEST(values_have_the_shapes_that_builders_infer)
{
    sluice_graph *g;
    sluice_dtype dtype;
    int rank = 0;
    int64_t dims[SLUICE_MAX_RANK];
    REQUIRE_OK(sluice_graph_create(&g));
    sluice_value x = sluice_input(g, "x", SLUICE_F32, 2, (int64_t[]){ 3, 4 });
    sluice_value ids = sluice_input(g, "ids", SLUICE_I32, 1, (int64_t[]){ 5 });
    REQUIRE_OK(sluice_value_shape(g, sluice_linear(g, x, 7, "fc"), &dtype, &rank, dims));
    CHECK_EQ(dtype, SLUICE_F32);
    CHECK_EQ(rank, 2);
    CHECK_EQ(dims[0], 3);
    CHECK_EQ(dims[1], 7);
    REQUIRE_OK(sluice_value_shape(g, ids, &dtype, &rank, dims));
    CHECK_EQ(dtype, SLUICE_I32);
    CHECK_EQ(rank, 1);
    CHECK_EQ(dims[0], 5);
    REQUIRE_OK(sluice_value_shape(g, sluice_mean(g, x), &dtype, &rank, dims));
    CHECK_EQ(rank, 0);
    CHECK_EQ(sluice_value_shape(g, 1000, &dtype, &rank, dims), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "value 1000 is not of this graph");
    sluice_graph_destroy(g);
}

TEST(parameters_are_listed_in_the_order_in_which_they_were_made)
{
    sluice_graph *g;
    const char *name = NULL;
    bool trained = false;
    int rank = 0;
    int64_t dims[SLUICE_MAX_RANK];
    REQUIRE_OK(sluice_graph_create(&g));
    CHECK_EQ(sluice_graph_parameters(g), 0);
    sluice_value x = sluice_input(g, "x", SLUICE_F32, 2, (int64_t[]){ 3, 4 });
    sluice_value gain = sluice_parameter(g, "gain", 1, (int64_t[]){ 4 }, (sluice_init){ SLUICE_INIT_ONE, 0 });
    sluice_linear(g, sluice_rms_norm(g, x, gain, 1e-5f), 7, "fc");
    sluice_freeze(g, gain);
    CHECK_EQ(sluice_graph_parameters(g), 3);
    REQUIRE_OK(sluice_graph_parameter(g, 0, &name, &trained, &rank, dims));
    CHECK_STR(name, "gain");
    CHECK(!trained);
    CHECK_EQ(rank, 1);
    REQUIRE_OK(sluice_graph_parameter(g, 1, &name, &trained, &rank, dims));
    CHECK_STR(name, "fc.weight");
    CHECK(trained);
    CHECK_EQ(rank, 2);
    CHECK_EQ(dims[0], 7);
    CHECK_EQ(dims[1], 4);
    CHECK_EQ(sluice_graph_parameter(g, 3, &name, &trained, &rank, dims), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "there is no parameter 3, the graph has 3");
    CHECK_EQ(sluice_graph_parameter(g, -1, &name, &trained, &rank, dims), SLUICE_ERR_USAGE);
    sluice_graph_destroy(g);
}
