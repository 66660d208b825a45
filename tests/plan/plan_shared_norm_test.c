/* plan_shared_norm_test.c: batch norms over ranks meet once in forward and once in backward of each micro-batch, whatever becomes
 * of activations; what that sends and moves is in the plan. */
#include "ir/shared_norm.h"
#include "support/planned.h"
#include "test.h"

enum { SAMPLES = 8, CHANNELS = 6, NORMS = 3, RANKS = 4, MICRO = 2 };

static sluice_graph *three_norms(void)
{
    sluice_graph *g = NULL;
    sluice_batch_norm_options o;
    sluice_batch_norm_options_init(&o);
    o.all_ranks = o.relu = true;
    if (sluice_graph_create(&g) != SLUICE_OK) return NULL;
    sluice_value x = sluice_input(g, "x", SLUICE_F32, 3, (int64_t[]){ SAMPLES, 5, CHANNELS });
    for (int i = 0; i < NORMS; i++) {
        char names[3][16];
        snprintf(names[0], sizeof names[0], "layer%d", i);
        snprintf(names[1], sizeof names[1], "fc%d", i);
        snprintf(names[2], sizeof names[2], "bn%d", i);
        sluice_layer(g, names[0]);
        x = sluice_linear(g, sluice_batch_norm(g, sluice_linear(g, x, CHANNELS, names[1]), names[2], &o), CHANNELS,
                          names[0]);
    }
    sluice_set_loss(g, sluice_mean(g, x));
    return g;
}

static void plan_norms(planned *fx, int ranks, sluice_activations activations, bool on_host)
{
    *fx = (planned){ .graph = three_norms() };
    plan_options_default(&fx->options);
    fx->options.rank_count = ranks;
    fx->options.accumulation = MICRO;
    fx->options.activations = activations;
    fx->options.comm_on_host = on_host;
    REQUIRE_OK(sl_graph_finish(fx->graph));
    sl_graph_set_norm_ranks(fx->graph, ranks);
    REQUIRE_OK(sl_graph_differentiate(fx->graph));
    REQUIRE_OK(sl_graph_share_norms(fx->graph));
    sl_machine_default(&fx->machine);
    sl_optim_options optim = { .clip = 1 };
    sluice_optimizer_init(&optim.optimizer, SLUICE_SGD);
    REQUIRE_OK(sl_optim_create(fx->graph, &optim, &fx->optim));
    fx->options.update_bytes_per_element = 12;
    REQUIRE_OK(sl_plan_create(fx->graph, &fx->machine, &fx->options, &fx->plan));
}

static int count_steps(const sl_plan *p, sl_segment_kind segment, sl_step_kind kind, sl_op op)
{
    int count = 0;
    for (int i = 0; i < p->segments[segment].step_count; i++) {
        const sl_step *s = &p->steps[p->segments[segment].first_step + i];
        count += s->kind == kind && (kind != SL_STEP_COMPUTE || s->op == op);
    }
    return count;
}

static int gathers(const planned *fx, sl_segment_kind segment)
{
    return count_steps(fx->plan, segment, SL_STEP_GATHER_VALUE, SL_OP_COUNT);
}

static const sluice_activations becomes[] = { SLUICE_ACTIVATIONS_KEEP, SLUICE_ACTIVATIONS_RECOMPUTE,
                                              SLUICE_ACTIVATIONS_OFFLOAD };

TEST(each_batch_norm_over_ranks_meets_once_in_forward_and_once_in_backward)
{
    for (int i = 0; i < 3; i++) {
        planned fx;
        plan_norms(&fx, RANKS, becomes[i], false);
        CHECK_EQ(gathers(&fx, SL_SEGMENT_FORWARD), NORMS);
        CHECK_EQ(gathers(&fx, SL_SEGMENT_BACKWARD), NORMS);
        CHECK_EQ(gathers(&fx, SL_SEGMENT_UPDATE), 0);
        CHECK_EQ(gathers(&fx, SL_SEGMENT_EVALUATE), 0);
        planned_free(&fx);
    }
}

TEST(one_rank_has_nobody_to_share_statistics_with)
{
    planned fx;
    plan_norms(&fx, 1, SLUICE_ACTIVATIONS_KEEP, false);
    CHECK_EQ(gathers(&fx, SL_SEGMENT_FORWARD) + gathers(&fx, SL_SEGMENT_BACKWARD), 0);
    CHECK_EQ(fx.plan->totals.comm_gather, 0);
    planned_free(&fx);
}

TEST(recomputation_normalises_again_by_statistics_that_were_kept)
{
    planned fx;
    plan_norms(&fx, RANKS, SLUICE_ACTIVATIONS_RECOMPUTE, false);
    CHECK(count_steps(fx.plan, SL_SEGMENT_BACKWARD, SL_STEP_COMPUTE, SL_OP_BATCH_NORMALIZE) > 0);
    CHECK_EQ(count_steps(fx.plan, SL_SEGMENT_BACKWARD, SL_STEP_COMPUTE, SL_OP_BATCH_MOMENTS), 0);
    CHECK_EQ(count_steps(fx.plan, SL_SEGMENT_BACKWARD, SL_STEP_COMPUTE, SL_OP_BATCH_STATISTICS), 0);
    planned_free(&fx);
}

/* At stage 0 a step also gathers the summed gradients: once, whatever the number of micro-batches. */
TEST(what_ranks_tell_each_other_of_statistics_is_counted_and_takes_time)
{
    planned fx;
    const uint64_t own = 2 * CHANNELS * sizeof(float); /* eight samples are one node */
    plan_norms(&fx, RANKS, SLUICE_ACTIVATIONS_KEEP, false);
    uint64_t gradients = 0;
    for (int i = 0; i < fx.graph->layer_count; i++)
        gradients += (uint64_t)sl_shard_elements(&fx.plan->layers[i].shards, 0) * sizeof(float) * (RANKS - 1);
    CHECK_EQ(fx.plan->totals.comm_gather, gradients + 2 * NORMS * MICRO * own * (RANKS - 1));
    for (int i = 0; i < fx.plan->step_count; i++) {
        const sl_step *s = &fx.plan->steps[i];
        if (s->kind != SL_STEP_GATHER_VALUE) continue;
        CHECK(s->stream == SL_STREAM_COMM && s->seconds >= fx.machine.comm_latency);
        CHECK_STR(sl_plan_step_name(s), "gather statistics");
    }
    planned_free(&fx);
}

/* The own part goes to the host, the parts of all come back. */
TEST(statistics_pass_through_the_host_where_ranks_reach_nothing_else)
{
    planned direct, staged;
    const uint64_t own = 2 * CHANNELS * sizeof(float), times = 2 * NORMS * MICRO;
    plan_norms(&direct, RANKS, SLUICE_ACTIVATIONS_KEEP, false);
    plan_norms(&staged, RANKS, SLUICE_ACTIVATIONS_KEEP, true);
    uint64_t to_host = 0, to_device = 0;
    for (int i = 0; i < staged.plan->step_count; i++) {
        const sl_step *s = &staged.plan->steps[i];
        if (s->kind != SL_STEP_GATHER_VALUE) continue;
        const sl_piece whole = staged.plan->pieces[s->first_piece];
        CHECK_EQ(staged.plan->buffers[whole.buffer].tier, SL_TIER_HOST);
        CHECK_EQ(whole.bytes, RANKS * own);
        to_host += staged.plan->pieces[staged.plan->steps[i - 1].first_piece].bytes;
        to_device += staged.plan->pieces[staged.plan->steps[i + 1].first_piece].bytes;
    }
    CHECK_EQ(to_host * MICRO, times * own);
    CHECK_EQ(to_device * MICRO, times * RANKS * own);
    CHECK_EQ(direct.plan->totals.comm_gather, staged.plan->totals.comm_gather);
    planned_free(&direct);
    planned_free(&staged);
}
