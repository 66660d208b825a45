/* faults_test.c: a placement that cannot be planned is passed over where its faults are counted, and ends the planning where
 * they are not. */
#include <string.h>

#include "plan/place.h"
#include "support/planned.h"
#include "test.h"

enum { BLOCKS = 8, ROWS = 256, WIDTH = 64, FEED = 128 };

/* Blocks of a norm, a gated map and a residual. A backward node of the last block also reads what the gate of the first one
 * makes: the schedule has it there unless the first block's activations leave the device, so that such placements fail. */
static sluice_status build_faulty(planned *fx)
{
    SL_TRY(sluice_graph_create(&fx->graph));
    sluice_graph *g = fx->graph;
    sluice_value x = sluice_input(g, "x", SLUICE_F32, 2, (int64_t[]){ ROWS, WIDTH }), gate = -1;
    for (int i = 0; i < BLOCKS; i++) {
        char name[4][24];
        for (int k = 0; k < 4; k++)
            snprintf(name[k], sizeof name[k], "%s%d", (const char *[]){ "block", "norm", "up", "down" }[k], i);
        sluice_layer(g, name[0]);
        sluice_value weight =
            sluice_parameter(g, name[1], 1, (int64_t[]){ WIDTH }, (sluice_init){ SLUICE_INIT_ONE, 0 });
        sluice_value gated =
            sluice_swiglu(g, sluice_linear(g, sluice_rms_norm(g, x, weight, 1e-5f), 2 * FEED, name[2]));
        if (i == 0) gate = gated;
        x = sluice_add(g, x, sluice_linear(g, gated, WIDTH, name[3]));
    }
    sluice_layer(g, "head");
    sluice_set_loss(g, sluice_mean(g, sluice_multiply(g, x, x)));
    SL_TRY(plan_prepare(fx));
    for (int n = g->forward_count; n < g->forward_count + g->backward_count; n++) {
        sl_node *node = &g->nodes[n];
        if (node->op != SL_OP_SWIGLU_GRAD) continue;
        node->inputs[node->input_count++] = gate;
        return SLUICE_OK; /* backward comes to the last block first */
    }
    return SLUICE_ERR_FAILED;
}

static void set_options(planned *fx)
{
    plan_options_default(&fx->options);
    fx->options.evaluation = false;
    fx->options.update = SL_UPDATE_MODE_SYNC;
}

static sluice_status plan_again(planned *fx)
{
    sl_plan_destroy(fx->plan);
    fx->plan = NULL;
    return sl_plan_create(fx->graph, &fx->machine, &fx->options, &fx->plan);
}

/* The budget is what keeping all takes, without the state: sent to the host, that does. */
TEST(a_search_passes_over_placements_that_cannot_be_planned)
{
    planned fx = { 0 };
    sl_plan_faults faults = { 0 };
    set_options(&fx);
    REQUIRE_OK(build_faulty(&fx));
    REQUIRE_OK(plan_again(&fx));
    fx.options.budget[SL_TIER_DEVICE] = fx.plan->totals.peak[SL_TIER_DEVICE] - fx.plan->totals.state_optimizer / 2;
    CHECK_EQ(plan_again(&fx), SLUICE_ERR_FAILED);
    CHECK_CONTAINS(sluice_error(), "is read where it is not on the device");
    fx.options.faults = &faults;
    REQUIRE_OK(plan_again(&fx));
    CHECK(faults.count > 0);
    CHECK_CONTAINS(faults.first, "is read where it is not on the device");
    CHECK(fx.plan->options.faults == NULL); /* which may be gone */
    CHECK(fx.plan->layers[0].activations != SL_ACT_OFFLOAD);
    CHECK(fx.plan->totals.peak[SL_TIER_DEVICE] <= fx.options.budget[SL_TIER_DEVICE]);
    REQUIRE_OK(sl_plan_verify(fx.plan));
    planned_free(&fx);
}

/* And what a refusal asks for is what some placement needs that can be planned. */
TEST(a_refusal_knows_nothing_of_placements_that_cannot_be_planned)
{
    planned fx = { 0 };
    sl_plan_faults faults = { 0 };
    sl_plan_need need;
    set_options(&fx);
    REQUIRE_OK(build_faulty(&fx));
    fx.options.faults = &faults;
    fx.options.budget[SL_TIER_DEVICE] = 1024;
    CHECK_EQ(sl_plan_create_or_need(fx.graph, &fx.machine, &fx.options, &fx.plan, &need), SLUICE_ERR_NO_FIT);
    CHECK(faults.count > 0);
    fx.options.budget[SL_TIER_DEVICE] = need.bytes[SL_TIER_DEVICE];
    REQUIRE_OK(plan_again(&fx));
    CHECK_EQ(fx.plan->totals.peak[SL_TIER_DEVICE], need.bytes[SL_TIER_DEVICE]);
    planned_free(&fx);
}

/* That of an activation. */
static int last_gradient(const sluice_graph *g)
{
    int n = g->forward_count + g->backward_count - 1;
    while (g->nodes[n].outputs[0] < 0 || g->values[g->nodes[n].outputs[0]].kind != SL_VALUE_GRADIENT) n--;
    return g->nodes[n].outputs[0];
}

TEST(where_no_placement_can_be_planned_the_first_fault_is_told)
{
    planned fx = { 0 };
    sl_plan_faults faults = { 0 };
    set_options(&fx);
    REQUIRE_OK(build_faulty(&fx));
    fx.options.faults = &faults;
    fx.graph->nodes[fx.graph->forward_count + 1].inputs[0] = last_gradient(fx.graph); /* before it is made */
    CHECK_EQ(plan_again(&fx), SLUICE_ERR_FAILED);
    CHECK_CONTAINS(sluice_error(), "is read where it is not on the device");
    planned_free(&fx);
}

/* As after the check of the whole plan. */
TEST(a_rejected_placement_is_not_found_again)
{
    planned fx = { 0 };
    sl_plan_faults faults = { 0 };
    sl_usage *u;
    bool again;
    set_options(&fx);
    REQUIRE_OK(build_faulty(&fx));
    fx.options.activations = SLUICE_ACTIVATIONS_KEEP;
    REQUIRE_OK(plan_again(&fx));
    REQUIRE_OK(sl_usage_create(fx.graph, 0, &u));
    CHECK_EQ(sl_plan_reject(fx.plan, sl_fail(SLUICE_ERR_FAILED, "unsound"), &again), SLUICE_ERR_FAILED);
    CHECK(!again); /* nobody counts */
    fx.plan->options.faults = &faults;
    REQUIRE_OK(sl_plan_reject(fx.plan, SLUICE_OK, &again));
    CHECK(!again && faults.count == 0);
    const sl_candidate first = fx.plan->placement;
    REQUIRE_OK(sl_plan_reject(fx.plan, sl_fail(SLUICE_ERR_FAILED, "unsound"), &again));
    CHECK(again);
    CHECK_EQ(faults.count, 1);
    CHECK_STR(faults.first, "unsound");
    REQUIRE_OK(sl_plan_place(fx.plan, u));
    CHECK(memcmp(first.layers, fx.plan->placement.layers, sizeof first.layers) != 0);
    sl_usage_destroy(u);
    planned_free(&fx);
}
