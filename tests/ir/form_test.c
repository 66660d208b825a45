/* form_test.c: bytes of runs in each form, and which blocks of a layer keep f32 states. */
#include "ir/form.h"

#include "core/bytes.h"
#include "ir/tile.h"
#include "test.h"

static const sluice_init zero = { SLUICE_INIT_ZERO, 0 };

/* Blocks 0, 1, 2 | 3, 4 | 5 of 1,024, the last of 100 elements; 1 and 4 to 5 are wide. */
static const sl_range wide[] = { { 1, 1 }, { 4, 2 } };
static const sl_layer mixed = { .name = "mixed", .element_count = 5220, .wide_blocks = wide, .wide_block_runs = 2 };
static const sl_layer narrow = { .name = "narrow", .element_count = 5220 };

TEST(forms_of_fixed_width_take_elements_times_width)
{
    CHECK_EQ(sl_form_bytes(SL_FORM_F32, &mixed, 7, 10), 40);
    CHECK_EQ(sl_form_bytes(SL_FORM_BF16, &mixed, 7, 10), 20);
    CHECK_EQ(sl_form_bytes(SL_FORM_F16, &mixed, 7, 10), 20);
    CHECK_EQ(sl_form_bytes(SL_FORM_REMAINDER, &mixed, 7, 10), 20);
    CHECK_STR(sl_form_name(SL_FORM_REMAINDER), "remainder");
    CHECK_EQ(sl_form_element_bytes(SL_FORM_BLOCKS8), 0);
}

TEST(blocks_are_a_header_and_a_byte_each_or_f32)
{
    CHECK_EQ(sl_form_bytes(SL_FORM_BLOCKS8, &mixed, 0, 1024), 1028);
    CHECK_EQ(sl_form_bytes(SL_FORM_BLOCKS8, &mixed, 1024, 1024), 4096);
    CHECK_EQ(sl_form_bytes(SL_FORM_BLOCKS8, &mixed, 2048, 2048), 2 * 1028);
    CHECK_EQ(sl_form_bytes(SL_FORM_BLOCKS8, &mixed, 5120, 100), 400);
    CHECK_EQ(sl_form_bytes(SL_FORM_BLOCKS8, &narrow, 5120, 100), 104);
    CHECK_EQ(sl_form_bytes(SL_FORM_BLOCKS8, &mixed, 1024, 0), 0);
}

TEST(bytes_of_runs_add_up_to_those_of_the_layer)
{
    const sl_layer *layers[] = { &mixed, &narrow };
    for (int l = 0; l < 2; l++) {
        uint64_t sum = 0;
        for (int64_t first = 0; first < 5220; first += 1024) {
            int64_t count = first + 1024 < 5220 ? 1024 : 5220 - first;
            CHECK_EQ(sl_form_bytes(SL_FORM_BLOCKS8, layers[l], 0, first), sum); /* the offset of this block */
            uint64_t bytes = sl_form_bytes(SL_FORM_BLOCKS8, layers[l], first, count);
            bool is_wide = sl_block_is_wide(layers[l], first / 1024);
            CHECK_EQ(bytes, (uint64_t)(is_wide ? 4 * count : 4 + count));
            sum += bytes;
        }
        CHECK_EQ(sl_form_bytes(SL_FORM_BLOCKS8, layers[l], 0, 5220), sum);
    }
}

/* ---- which blocks are wide ---- */

static sluice_value matrix(sluice_graph *g, const char *name, int64_t rows, int64_t columns)
{
    return sluice_parameter(g, name, 2, (int64_t[]){ rows, columns }, zero);
}

/* Weight of 2,048 elements, bias of 64, weight of 64 x 64, bias of 64: 6,272 elements, 7 blocks. */
TEST(wide_blocks_are_those_that_vectors_overlap)
{
    sluice_graph *g;
    REQUIRE_OK(sluice_graph_create(&g));
    sluice_value x = sluice_input(g, "x", SLUICE_F32, 2, (int64_t[]){ 2, 32 });
    sluice_layer(g, "one");
    x = sluice_linear(g, sluice_linear(g, x, 64, "a"), 64, "b");
    sluice_set_loss(g, sluice_mean(g, x));
    REQUIRE_OK(sl_graph_finish(g));
    const sl_layer *layer = &g->layers[0];
    CHECK_EQ(layer->element_count, 6272);
    REQUIRE(layer->wide_block_runs == 2);
    CHECK_EQ(layer->wide_blocks[0].first, 2); /* elements 2,048 to 2,112 */
    CHECK_EQ(layer->wide_blocks[0].count, 1);
    CHECK_EQ(layer->wide_blocks[1].first, 6); /* elements 6,208 to 6,272, in the short block */
    CHECK_EQ(layer->wide_blocks[1].count, 1);
    CHECK(!sl_block_is_wide(layer, 0) && sl_block_is_wide(layer, 2) && !sl_block_is_wide(layer, 5));
    CHECK(!g->parameters[sl_graph_find_parameter(g, "a.weight")].keeps_f32_state);
    CHECK(g->parameters[sl_graph_find_parameter(g, "a.bias")].keeps_f32_state);
    sluice_graph_destroy(g);
}

/* Neighbouring runs are one; a tied table and one read through a view keep f32 too. */
TEST(tables_of_embeddings_are_wide_as_a_whole)
{
    sluice_graph *g;
    REQUIRE_OK(sluice_graph_create(&g));
    sluice_value ids = sluice_input(g, "ids", SLUICE_I32, 1, (int64_t[]){ 3 });
    sluice_value tied = matrix(g, "tied", 100, 32), viewed = matrix(g, "viewed", 48, 64), bias;
    sluice_layer(g, "one");
    sluice_value x = sluice_embedding(g, ids, tied);
    sluice_value view = sluice_reshape(g, viewed, 2, (int64_t[]){ 96, 32 });
    bias = sluice_parameter(g, "bias", 1, (int64_t[]){ 32 }, zero);
    x = sluice_add(g, sluice_add(g, x, sluice_embedding(g, ids, view)), bias);
    sluice_layer(g, "two");
    sluice_set_loss(g, sluice_mean(g, sluice_linear_with(g, x, tied, SLUICE_NONE, false)));
    REQUIRE_OK(sl_graph_finish(g));
    const sl_layer *own = &g->layers[g->parameters[0].layer], *one = &g->layers[g->parameters[1].layer];
    CHECK(g->parameters[0].keeps_f32_state && g->parameters[1].keeps_f32_state);
    CHECK(own != one);
    REQUIRE(own->wide_block_runs == 1 && one->wide_block_runs == 1);
    CHECK_EQ(own->wide_blocks[0].count, 4);
    CHECK_EQ(one->wide_blocks[0].first, 0);
    CHECK_EQ(one->wide_blocks[0].count, 4); /* 3,072 elements, then 32 in the next block */
    CHECK_EQ(sl_form_bytes(SL_FORM_BLOCKS8, one, 0, one->element_count), 4 * 3104);
    sluice_graph_destroy(g);
}

TEST(a_table_that_is_added_keeps_f32_and_a_matrix_that_multiplies_does_not)
{
    sluice_graph *g;
    REQUIRE_OK(sluice_graph_create(&g));
    sluice_value x = sluice_input(g, "x", SLUICE_F32, 2, (int64_t[]){ 64, 32 });
    x = sluice_add(g, x, matrix(g, "positions", 64, 32));
    sluice_set_loss(g, sluice_mean(g, sluice_matmul(g, x, matrix(g, "mixer", 32, 32), false, false)));
    REQUIRE_OK(sl_graph_finish(g));
    CHECK(g->parameters[sl_graph_find_parameter(g, "positions")].keeps_f32_state);
    CHECK(!g->parameters[sl_graph_find_parameter(g, "mixer")].keeps_f32_state);
    sluice_graph_destroy(g);
}

TEST(tiles_of_a_table_keep_f32_too)
{
    sluice_graph *g;
    REQUIRE_OK(sluice_graph_create(&g));
    sluice_value ids = sluice_input(g, "ids", SLUICE_I32, 1, (int64_t[]){ 3 });
    sluice_value x = sluice_embedding(g, ids, matrix(g, "table", 8, 16));
    sluice_set_loss(g, sluice_mean(g, sluice_linear(g, x, 4, "a")));
    REQUIRE_OK(sl_graph_tile(g, 8 * 8 * sizeof(float)));
    REQUIRE_OK(sl_graph_finish(g));
    REQUIRE(sl_graph_find_parameter(g, "table.tile1") >= 0);
    for (int p = 0; p < g->parameter_count; p++)
        CHECK_EQ(g->parameters[p].keeps_f32_state, strcmp(g->parameters[p].name, "a.weight") != 0);
    sluice_graph_destroy(g);
}
