/* tables_test.c: the rows of sparse tables in a plan: each kept by one rank, all with their state on the host. */
#include "support/planned.h"
#include "test.h"

enum { ROWS = 1003, WIDTH = 6, NAMED = 8 };

/* A table and a linear layer, for SGD, Adagrad and SparseAdam alike: the plan knows state slots alone. */
static sluice_status build(planned *fx)
{
    sluice_init some = { SLUICE_INIT_NORMAL, 1 };
    SL_TRY(sluice_graph_create(&fx->graph));
    sluice_graph *g = fx->graph;
    sluice_value ids = sluice_input(g, "ids", SLUICE_I32, 1, (int64_t[]){ NAMED });
    sluice_value table = sluice_parameter(g, "table", 2, (int64_t[]){ ROWS, WIDTH }, some);
    sluice_sparse(g, table, 0);
    sluice_value x = sluice_embedding(g, ids, table);
    sluice_layer(g, "head");
    sluice_set_loss(g, sluice_mean(g, sluice_linear(g, x, 3, "fc")));
    SL_TRY(sl_graph_compact(g, (uint64_t)(fx->options.accumulation * fx->options.rank_count)));
    SL_TRY(sl_graph_finish(g));
    return sl_graph_differentiate(g);
}

static void check_plan(planned *fx, int ranks, bool snapshot)
{
    sl_optim_options optim = { 0 };
    int64_t kept = 0, owned = 0;
    plan_options_default(&fx->options);
    fx->precision = fx->wire = SLUICE_F32;
    fx->options.rank_count = ranks;
    fx->options.rank = ranks - 1;
    fx->options.stage = ranks > 1 ? 3 : 0;
    fx->options.snapshot = snapshot;
    fx->options.state_slots = 1;
    sl_machine_default(&fx->machine);
    REQUIRE_OK(build(fx));
    sluice_optimizer_init(&optim.optimizer, SLUICE_ADAGRAD);
    REQUIRE_OK(sl_optim_create(fx->graph, &optim, &fx->optim));
    REQUIRE_OK(sl_plan_create(fx->graph, &fx->machine, &fx->options, &fx->plan));
    const sl_plan *p = fx->plan;
    for (int r = 0; r < ranks; r++) {
        sl_range rows = sl_plan_table_rows(p, 0, r);
        CHECK(rows.count == 0 || rows.first == kept);
        CHECK(rows.count <= sl_plan_table_room(p, 0));
        kept += rows.count;
        for (int64_t i = 0; i < sl_plan_owned_count(p, 0, r); i++) {
            CHECK_EQ(sl_plan_owned(p, 0, r, i).first, owned);
            owned += sl_plan_owned(p, 0, r, i).count;
        }
    }
    CHECK_EQ(kept, ROWS);
    CHECK_EQ(owned, ROWS * WIDTH);
    const sl_table_place *t = &p->tables[0];
    REQUIRE(t->home >= 0 && p->table_staging >= 0);
    const sl_buffer *b = &p->buffers[t->home];
    CHECK(b->tier == SL_TIER_HOST && b->permanent && b->kind == SL_BUFFER_TABLE);
    CHECK_EQ(b->bytes, (uint64_t)sl_plan_table_room(p, 0) * WIDTH * sizeof(float) * 2);
    CHECK_EQ(t->snapshot >= 0, snapshot);
    CHECK_EQ(p->tables[1].home, -1);
    CHECK(p->totals.peak[SL_TIER_HOST] >= b->bytes * (snapshot ? 2 : 1));
    planned_free(fx);
}

TEST(every_row_of_a_sparse_table_is_kept_by_one_rank_on_its_host)
{
    for (int ranks = 1; ranks <= 5; ranks += 2) {
        planned fx = { 0 };
        check_plan(&fx, ranks, false);
    }
    planned fx = { 0 };
    check_plan(&fx, 2, true);
}
