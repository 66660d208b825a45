/* shared_norm_test.c: batch norms over all ranks: R ranks with micro-batches of m samples have the statistics, and give the
 * gradients, of one rank with R m; at every stage, offloaded and recomputed; in checkpoints. */
#include "ir/shared_norm.h"
#include "support/shared_norm_runs.h"

static void run_divisions(bool convolves)
{
    for (int k = 0; k < 3; k++) run_all_divisions(SLUICE_DEVICE_CPU, precisions[k], convolves, false);
}

TEST(ranks_that_share_batch_statistics_give_the_bits_of_one_rank_with_all_samples)
{
    run_divisions(false);
}

TEST(ranks_that_share_statistics_of_images_give_the_bits_of_one_rank_with_all_samples)
{
    run_divisions(true);
}

TEST(every_way_to_run_shared_batch_statistics_on_two_ranks_gives_the_same_bits)
{
    for (int k = 0; k < 3; k++) run_all_ways(SLUICE_DEVICE_CPU, precisions[k], k == 1, 2);
}

TEST(every_way_to_run_shared_batch_statistics_on_four_ranks_gives_the_same_bits)
{
    for (int k = 0; k < 3; k++) run_all_ways(SLUICE_DEVICE_CPU, precisions[k], k != 1, 4);
}

/* The option is of consequence with several ranks, and of none but rounding with one. */
TEST(shared_statistics_are_those_of_one_micro_batch_on_one_rank_and_others_on_two)
{
    scenario s = { .results = share_results() };
    results r[2][2];
    REQUIRE(s.results != MAP_FAILED);
    for (int ranks = 1; ranks <= 2; ranks++)
        for (int shared = 0; shared < 2; shared++) {
            set_scenario(&s, SLUICE_DEVICE_CPU, SLUICE_F32, true);
            sluice_optimizer_init(&s.options.optimizer, SLUICE_SGD);
            s.network.all_ranks = shared;
            REQUIRE(run_scenario(&s, ranks));
            r[ranks - 1][shared] = *s.results;
        }
    for (int c = 0; c < CHANNELS; c++) {
        CHECK_NEAR(r[0][1].mean[0][c], r[0][0].mean[0][c], 1e-5 * (1 + fabs((double)r[0][0].mean[0][c])));
        CHECK_NEAR(r[0][1].variance[0][c], r[0][0].variance[0][c], 1e-5 * fabs((double)r[0][0].variance[0][c]));
        CHECK_NEAR(r[1][1].variance[0][c], r[0][1].variance[0][c], 1e-4 * fabs((double)r[0][1].variance[0][c]));
        CHECK_NEAR(r[1][1].mean[0][c], r[0][1].mean[0][c], 1e-4 * (1 + fabs((double)r[0][1].mean[0][c])));
    }
    CHECK_NEAR(r[0][1].evaluated, r[0][0].evaluated, 1e-4);
    CHECK_NEAR(r[1][1].loss, r[0][1].loss, 1e-4);
    CHECK(memcmp(r[1][0].variance[0], r[1][1].variance[0], sizeof r[1][0].variance[0]) != 0);
    CHECK(r[1][0].batches[0] == (float)(2 * STEPS * GROUPS));
    munmap(s.results, sizeof *s.results);
}

/* ---- checkpoints ---- */

TEST(a_run_with_shared_statistics_resumes_to_the_same_bits_and_only_on_as_many_ranks)
{
    scenario s = { .results = share_results() };
    results whole;
    char path[4096];
    REQUIRE(s.results != MAP_FAILED);
    snprintf(path, sizeof path, "%s/checkpoints", test_tmpdir());
    set_scenario(&s, SLUICE_DEVICE_CPU, SLUICE_BF16, true);
    s.save = path;
    REQUIRE(run_scenario(&s, 2));
    s.resume = path;
    s.save = NULL;
    s.options.stage = 3;
    REQUIRE(run_scenario(&s, 2));
    whole = *s.results;
    s.options.stage = 1;
    REQUIRE(run_scenario(&s, 2));
    CHECK_STR(s.results->weights, whole.weights);
    CHECK_STR(s.results->state, whole.state);
    s.options.accumulation_steps = 2 * GROUPS;
    CHECK_EQ(launch_scenario(&s, 1), SLUICE_ERR_USAGE);
    s.options.accumulation_steps = GROUPS;
    s.network.all_ranks = false;
    CHECK_EQ(launch_scenario(&s, 2), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "batch_norm.all_ranks");
    munmap(s.results, sizeof *s.results);
}

/* Micro-batches and their size alike, the ranks that share statistics not. */
static sluice_status resume_body(void *user, sluice_world *world)
{
    const scenario *s = user;
    const int ranks = sluice_world_size(world);
    sluice_options o = s->options;
    network n = s->network;
    sluice_engine *e = NULL;
    uint64_t step;
    n.samples = 3;
    o.world = world;
    o.accumulation_steps = 4 / ranks;
    sluice_graph *g = build_network(&n);
    sluice_status st = sluice_engine_create(g, &o, &e);
    if (st == SLUICE_OK && s->resume == NULL) st = sluice_checkpoint_save(e, s->save);
    if (st == SLUICE_OK && s->resume != NULL) st = sluice_checkpoint_resume(e, s->resume, &step);
    sluice_engine_destroy(e);
    sluice_graph_destroy(g);
    return st;
}

TEST(a_resumed_run_must_keep_the_number_of_ranks_that_share_statistics)
{
    scenario s = { .results = share_results() };
    sluice_launch_options o;
    char path[4096];
    REQUIRE(s.results != MAP_FAILED);
    snprintf(path, sizeof path, "%s/checkpoints", test_tmpdir());
    sluice_launch_options_init(&o);
    set_scenario(&s, SLUICE_DEVICE_CPU, SLUICE_F32, false);
    s.save = path;
    o.ranks = 4;
    REQUIRE_OK(sluice_launch(&o, resume_body, &s));
    s.resume = path;
    REQUIRE_OK(sluice_launch(&o, resume_body, &s));
    o.ranks = 2;
    CHECK_EQ(sluice_launch(&o, resume_body, &s), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "ranks that share the statistics of batch norms is 2");
    CHECK_CONTAINS(sluice_error(), "made with 4");
    munmap(s.results, sizeof *s.results);
}

/* ---- the graph ---- */

static int count_ops(const sluice_graph *g, sl_op op)
{
    int count = 0;
    for (int n = 0; n < g->node_count; n++) count += g->nodes[n].op == op;
    return count;
}

TEST(batch_norms_over_ranks_become_nodes_with_a_gather_in_between_and_frozen_ones_stay)
{
    const network n = { .all_ranks = true, .samples = 4 };
    sluice_graph *g = build_network(&n);
    REQUIRE_OK(sluice_graph_check(g));
    for (int p = 0; p < g->parameter_count; p++)
        if (strncmp(g->parameters[p].name, "bn2", 3) == 0) sluice_freeze(g, g->parameters[p].value);
    REQUIRE_OK(sl_graph_finish(g));
    sl_graph_set_norm_ranks(g, 3);
    REQUIRE_OK(sl_graph_differentiate(g));
    REQUIRE_OK(sl_graph_share_norms(g));
    CHECK_EQ(count_ops(g, SL_OP_BATCH_NORM), 1);
    CHECK_EQ(count_ops(g, SL_OP_BATCH_NORM_GRAD), 1);
    CHECK_EQ(count_ops(g, SL_OP_BATCH_MOMENTS), 2);
    CHECK_EQ(count_ops(g, SL_OP_BATCH_STATISTICS), 2);
    CHECK_EQ(count_ops(g, SL_OP_BATCH_NORMALIZE), 2);
    CHECK_EQ(count_ops(g, SL_OP_BATCH_NORM_SUMS), 2);
    CHECK_EQ(count_ops(g, SL_OP_BATCH_NORMALIZE_GRAD), 2);
    for (int i = 0; i < g->running_count; i++) CHECK(sl_graph_shares_running(g, i) == (i != 1));
    sluice_graph_destroy(g);
}

TEST(one_sample_on_each_rank_is_enough_for_statistics_of_several)
{
    network n = { .all_ranks = true, .samples = 1 };
    for (int ranks = 1; ranks <= 2; ranks++) {
        sluice_graph *g = build_network(&n);
        REQUIRE_OK(sl_graph_finish(g));
        sl_graph_set_norm_ranks(g, ranks);
        CHECK_EQ(sl_graph_differentiate(g), ranks == 1 ? SLUICE_ERR_USAGE : SLUICE_OK);
        sluice_graph_destroy(g);
    }
}
