/* sparse_rows_test.c: what becomes of a sparse table, how many rows a step has room for, and what is refused; bags of rows. */
#include "ir/sparse.h"

#include "ir/tile.h"
#include "test.h"

enum { BATCH = 3, NAMED = 2, ROWS = 50, WIDTH = 4 };

typedef struct fixture {
    sluice_graph *g;
    sluice_value table, ids, x; /* rows that ids name */
} fixture;

static fixture open_fixture(int64_t most_rows)
{
    fixture f;
    sluice_init some = { SLUICE_INIT_NORMAL, 1 };
    if (sluice_graph_create(&f.g) != SLUICE_OK) abort();
    f.ids = sluice_input(f.g, "ids", SLUICE_I32, 2, (int64_t[]){ BATCH, NAMED });
    f.table = sluice_parameter(f.g, "table", 2, (int64_t[]){ ROWS, WIDTH }, some);
    sluice_sparse(f.g, f.table, most_rows);
    f.x = sluice_embedding(f.g, f.ids, f.table);
    return f;
}

static void finish(fixture *f)
{
    sluice_set_loss(f->g, sluice_mean(f->g, sluice_silu(f->g, f->x)));
}

static int64_t rows_of(int64_t most_rows, uint64_t micro_batches)
{
    fixture f = open_fixture(most_rows);
    finish(&f);
    CHECK(sl_graph_compact(f.g, micro_batches) == SLUICE_OK && sl_graph_finish(f.g) == SLUICE_OK);
    CHECK(sl_graph_differentiate(f.g) == SLUICE_OK && sl_graph_verify(f.g) == SLUICE_OK);
    const sl_parameter *p = &f.g->parameters[0];
    int64_t rows = f.g->values[p->value].shape.dim[0];
    CHECK_EQ(p->count, rows * WIDTH);
    CHECK_EQ(f.g->layers[p->layer].element_count, rows * WIDTH);
    CHECK(sl_shape_equal(&f.g->values[p->gradient].shape, &f.g->values[p->value].shape));
    CHECK_EQ(sl_parameter_shape(f.g, 0)->dim[0], ROWS);
    CHECK_EQ(sl_parameter_elements(f.g, 0), ROWS * WIDTH);
    CHECK_EQ(sl_graph_parameter_elements(f.g), ROWS * WIDTH);
    CHECK_EQ(sl_graph_table_of(f.g, f.ids), 0);
    sluice_graph_destroy(f.g);
    return rows;
}

TEST(a_step_has_room_for_the_rows_that_its_batches_can_name)
{
    CHECK_EQ(rows_of(0, 1), BATCH * NAMED);
    CHECK_EQ(rows_of(0, 5), 5 * BATCH * NAMED);
    CHECK_EQ(rows_of(0, 9), ROWS);
    CHECK_EQ(rows_of(0, UINT64_MAX), ROWS);
    CHECK_EQ(rows_of(7, 5), 7);
    CHECK_EQ(rows_of(1000, 5), 5 * BATCH * NAMED);
}

TEST(sparse_tables_are_not_cut_into_tiles)
{
    fixture f = open_fixture(0);
    finish(&f);
    REQUIRE_OK(sl_graph_tile(f.g, 64));
    CHECK_EQ(f.g->parameter_count, 1);
    CHECK(f.g->parameters[0].whole == NULL);
    sluice_graph_destroy(f.g);
}

static void check_refused(fixture *f, const char *part)
{
    finish(f);
    CHECK(sl_graph_compact(f->g, 1) == SLUICE_ERR_USAGE);
    CHECK_THAT(strstr(sluice_error(), part) != NULL, "no \"%s\" in: %s", part, sluice_error());
    CHECK(f->g->values[f->table].shape.dim[0] == ROWS);
    sluice_graph_destroy(f->g);
}

TEST(a_sparse_table_is_read_by_embeddings_alone)
{
    fixture f = open_fixture(0);
    f.x = sluice_linear_with(f.g, f.x, f.table, SLUICE_NONE, false);
    check_refused(&f, "only embeddings may read it, not linear");
    f = open_fixture(0);
    f.x = sluice_add(f.g, f.x, sluice_mean(f.g, sluice_reshape(f.g, f.table, 1, (int64_t[]){ ROWS * WIDTH })));
    check_refused(&f, "only embeddings may read it");
}

TEST(ids_of_a_sparse_table_are_read_by_its_embeddings_alone)
{
    sluice_init some = { SLUICE_INIT_NORMAL, 1 };
    fixture f = open_fixture(0);
    sluice_value other = sluice_parameter(f.g, "other", 2, (int64_t[]){ ROWS, WIDTH }, some);
    f.x = sluice_add(f.g, f.x, sluice_embedding(f.g, f.ids, other));
    check_refused(&f, "may have no other reader");
}

TEST(what_is_no_table_cannot_be_sparse)
{
    sluice_graph *g;
    REQUIRE_OK(sluice_graph_create(&g));
    sluice_sparse(g, sluice_parameter(g, "bias", 1, (int64_t[]){ 4 }, (sluice_init){ SLUICE_INIT_ZERO, 0 }), 0);
    CHECK(sluice_graph_check(g) == SLUICE_ERR_USAGE);
    CHECK(strstr(sluice_error(), "two dimensions") != NULL);
    sluice_graph_destroy(g);
}

/* Some rules are others for a sparse table, so that its checkpoints are not continued with a dense one. */
TEST(a_sparse_table_makes_another_model_whatever_its_room)
{
    char hash[3][65];
    for (int i = 0; i < 3; i++) {
        fixture f = open_fixture(i);
        finish(&f);
        if (i == 2) f.g->parameters[0].is_sparse = false;
        REQUIRE_OK(sl_graph_compact(f.g, 1));
        REQUIRE_OK(sl_graph_finish(f.g));
        REQUIRE_OK(sl_graph_identity(f.g, hash[i]));
        sluice_graph_destroy(f.g);
    }
    CHECK_STR(hash[0], hash[1]);
    CHECK(strcmp(hash[0], hash[2]) != 0);
}

/* ---- bags ---- */

TEST(ends_of_bags_come_from_sorted_coordinates)
{
    int32_t ends[5];
    REQUIRE_OK(sluice_bag_ends((int32_t[]){ 1, 1, 3 }, 3, 5, ends));
    CHECK(ends[0] == 0 && ends[1] == 2 && ends[2] == 2 && ends[3] == 3 && ends[4] == 3);
    REQUIRE_OK(sluice_bag_ends(NULL, 0, 2, ends));
    CHECK(ends[0] == 0 && ends[1] == 0);
    CHECK(sluice_bag_ends((int32_t[]){ 1, 0 }, 2, 5, ends) == SLUICE_ERR_INPUT);
    CHECK(sluice_bag_ends((int32_t[]){ 0, 5 }, 2, 5, ends) == SLUICE_ERR_INPUT);
    CHECK(sluice_bag_ends((int32_t[]){ -1 }, 1, 5, ends) == SLUICE_ERR_INPUT);
    CHECK(sluice_bag_ends(NULL, 1, 5, ends) == SLUICE_ERR_USAGE);
}

TEST(a_bag_has_a_row_for_each_end)
{
    fixture f = open_fixture(0);
    sluice_value ends = sluice_input(f.g, "ends", SLUICE_I32, 1, (int64_t[]){ BATCH });
    sluice_value y = sluice_bag(f.g, f.x, ends, true);
    REQUIRE_OK(sluice_graph_check(f.g));
    CHECK_EQ(f.g->values[y].shape.rank, 2);
    CHECK(f.g->values[y].shape.dim[0] == BATCH && f.g->values[y].shape.dim[1] == WIDTH);
    (void)sluice_bag(f.g, f.x, f.ids, true);
    CHECK(sluice_graph_check(f.g) == SLUICE_ERR_USAGE);
    sluice_graph_destroy(f.g);
}
