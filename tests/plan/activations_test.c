/* activations_test.c: what becomes of activations between forward and backward: what costs little is computed again alone,
 * and what is offloaded leaves and comes back without anything waiting for it. */
#include "plan/passes.h"
#include "support/planned.h"
#include "test.h"

enum { BLOCKS = 24, ROWS = 512, WIDTH = 64, FEED = 128 };

/* Bytes of a block that a norm and a gate make: their results, and the norm's statistic. */
#define CHEAP_BYTES ((uint64_t)sizeof(float) * ROWS * (WIDTH + FEED + 1))
/* All that backward reads of it: those, the input, and the product that the gate reads. */
#define SAVED_BYTES (CHEAP_BYTES + (uint64_t)sizeof(float) * ROWS * (WIDTH + 2 * FEED))

/* Layers of a norm, a gated map and a residual, as in Llama. */
static sluice_status build_blocks(planned *fx)
{
    SL_TRY(sluice_graph_create(&fx->graph));
    sluice_graph *g = fx->graph;
    sluice_value x = sluice_input(g, "x", SLUICE_F32, 2, (int64_t[]){ ROWS, WIDTH });
    for (int i = 0; i < BLOCKS; i++) {
        char name[4][24];
        for (int k = 0; k < 4; k++)
            snprintf(name[k], sizeof name[k], "%s%d", (const char *[]){ "block", "norm", "up", "down" }[k], i);
        sluice_layer(g, name[0]);
        sluice_value weight =
            sluice_parameter(g, name[1], 1, (int64_t[]){ WIDTH }, (sluice_init){ SLUICE_INIT_ONE, 0 });
        sluice_value gates = sluice_linear(g, sluice_rms_norm(g, x, weight, 1e-5f), 2 * FEED, name[2]);
        x = sluice_add(g, x, sluice_linear(g, sluice_swiglu(g, gates), WIDTH, name[3]));
    }
    sluice_layer(g, "head");
    sluice_set_loss(g, sluice_mean(g, sluice_multiply(g, x, x)));
    return plan_prepare(fx);
}

static sluice_status plan_blocks(planned *fx, sluice_activations activations, bool offload)
{
    plan_options_default(&fx->options);
    fx->options.evaluation = false;
    fx->options.activations = activations;
    fx->options.offload_checkpoints = offload;
    SL_TRY(build_blocks(fx));
    return sl_plan_create(fx->graph, &fx->machine, &fx->options, &fx->plan);
}

/* Bytes of activations that live on the device when backward begins. */
static uint64_t kept_bytes(const sl_plan *p)
{
    int begin = p->segments[SL_SEGMENT_BACKWARD].first_step;
    uint64_t bytes = 0;
    for (int i = 0; i < p->buffer_count; i++) {
        const sl_buffer *b = &p->buffers[i];
        if (b->kind == SL_BUFFER_ACTIVATION && b->tier == SL_TIER_DEVICE && b->first < begin && b->last >= begin)
            bytes += b->bytes;
    }
    return bytes;
}

static int count_again(const sl_plan *p, sl_op op)
{
    int count = 0;
    for (int i = 0; i < p->step_count; i++)
        count += p->steps[i].recomputed && (op == SL_OP_COUNT || p->steps[i].op == op);
    return count;
}

TEST(norms_and_gates_run_again_and_nothing_else)
{
    planned kept = { 0 }, selective = { 0 };
    REQUIRE_OK(plan_blocks(&kept, SLUICE_ACTIVATIONS_KEEP, false));
    REQUIRE_OK(plan_blocks(&selective, SLUICE_ACTIVATIONS_SELECTIVE, false));
    CHECK_EQ(count_again(kept.plan, SL_OP_COUNT), 0);
    CHECK_EQ(count_again(selective.plan, SL_OP_RMS_NORM), BLOCKS);
    CHECK_EQ(count_again(selective.plan, SL_OP_SWIGLU), BLOCKS);
    CHECK_EQ(count_again(selective.plan, SL_OP_COUNT), 2 * BLOCKS);
    CHECK_EQ(selective.plan->totals.cheap_layers, BLOCKS);
    CHECK_EQ(selective.plan->totals.recomputed_layers, 0);
    CHECK_EQ(kept_bytes(kept.plan) - kept_bytes(selective.plan), BLOCKS * CHEAP_BYTES);
    CHECK_EQ(selective.plan->totals.model_flops == kept.plan->totals.model_flops, true);
    planned_free(&kept);
    planned_free(&selective);
}

static bool reads(const sl_plan *p, const sl_step *s, int buffer)
{
    for (int k = 0; k < s->input_count; k++)
        if (p->pieces[s->first_piece + k].buffer == buffer) return true;
    return false;
}

/* So that of a layer no more is there at a time than backward needs. */
TEST(a_cheap_node_runs_again_right_before_the_first_that_reads_it)
{
    planned fx = { 0 };
    REQUIRE_OK(plan_blocks(&fx, SLUICE_ACTIVATIONS_SELECTIVE, false));
    const sl_segment *backward = &fx.plan->segments[SL_SEGMENT_BACKWARD];
    for (int i = backward->first_step; i < backward->first_step + backward->step_count; i++) {
        const sl_step *s = &fx.plan->steps[i];
        if (!s->recomputed) continue;
        int next = i + 1;
        while (fx.plan->steps[next].kind != SL_STEP_COMPUTE || fx.plan->steps[next].recomputed) next++;
        CHECK(reads(fx.plan, &fx.plan->steps[next], fx.plan->pieces[s->first_piece + s->input_count].buffer));
        CHECK_EQ(fx.plan->steps[next].layer, s->layer);
    }
    planned_free(&fx);
}

/* The last block's result is the head's input, and stays. */
TEST(of_offloaded_layers_only_what_does_not_run_again_is_sent)
{
    planned all = { 0 }, some = { 0 };
    REQUIRE_OK(plan_blocks(&all, SLUICE_ACTIVATIONS_OFFLOAD, false));
    REQUIRE_OK(plan_blocks(&some, SLUICE_ACTIVATIONS_SELECTIVE, true));
    CHECK_EQ(count_again(all.plan, SL_OP_COUNT), 0);
    CHECK_EQ(count_again(some.plan, SL_OP_COUNT), 2 * BLOCKS);
    const uint64_t before = all.plan->totals.moved[SL_LINK_TO_HOST], after = some.plan->totals.moved[SL_LINK_TO_HOST];
    CHECK_EQ(before - after, BLOCKS * CHEAP_BYTES);
    CHECK_EQ(some.plan->totals.moved[SL_LINK_TO_DEVICE], after);
    planned_free(&all);
    planned_free(&some);
}

/* Layers of a map and a norm over so few rows that its statistics are not small beside its result: what backward reads of a
 * norm is dropped, its result is the next layer's input and stays. */
static sluice_status build_few_rows(planned *fx)
{
    SL_TRY(sluice_graph_create(&fx->graph));
    sluice_graph *g = fx->graph;
    sluice_value x = sluice_input(g, "x", SLUICE_F32, 2, (int64_t[]){ 2, WIDTH });
    for (int i = 0; i < 3; i++) {
        char name[3][24];
        for (int k = 0; k < 3; k++)
            snprintf(name[k], sizeof name[k], "%s%d", (const char *[]){ "layer", "map", "norm" }[k], i);
        sluice_layer(g, name[0]);
        x = sluice_batch_norm(g, sluice_linear(g, x, WIDTH, name[1]), name[2], NULL);
    }
    sluice_layer(g, "head");
    sluice_set_loss(g, sluice_mean(g, sluice_multiply(g, x, x)));
    return plan_prepare(fx);
}

/* Not for the layer behind it, which reads the result: its own parameters may not be there yet. */
TEST(a_cheap_node_runs_again_for_what_was_dropped_alone)
{
    planned fx = { 0 };
    plan_options_default(&fx.options);
    fx.options.activations = SLUICE_ACTIVATIONS_SELECTIVE;
    fx.options.parameters = SLUICE_PLACE_HOST;
    fx.options.prefetch = 0;
    REQUIRE_OK(build_few_rows(&fx));
    REQUIRE_OK(sl_plan_create(fx.graph, &fx.machine, &fx.options, &fx.plan));
    CHECK_EQ(count_again(fx.plan, SL_OP_BATCH_NORM), 3);
    for (int i = 0; i + 1 < fx.plan->step_count; i++) {
        const sl_step *s = &fx.plan->steps[i];
        if (!s->recomputed) continue;
        CHECK_EQ(fx.plan->steps[i + 1].op, SL_OP_BATCH_NORM_GRAD);
        CHECK_EQ(fx.plan->steps[i + 1].layer, s->layer);
    }
    planned_free(&fx);
}

TEST(verify_finds_a_cheap_node_of_a_layer_that_keeps_all)
{
    planned fx = { 0 };
    REQUIRE_OK(plan_blocks(&fx, SLUICE_ACTIVATIONS_SELECTIVE, false));
    REQUIRE_OK(sl_plan_verify(fx.plan));
    fx.plan->layers[3].cheap = false;
    CHECK_EQ(sl_plan_verify(fx.plan), SLUICE_ERR_FAILED);
    planned_free(&fx);
}

/* ---- in transit ---- */

/* A plan of the same blocks, of which the first `offloaded` are, and `recomputed` behind them; the link takes as long for a
 * block as its forward does `times`. */
static sluice_status plan_transit(planned *fx, int offloaded, int recomputed, double times, int prefetch)
{
    sl_candidate c = { .prefetch = prefetch };
    sl_plan *resident = NULL;
    plan_options_default(&fx->options);
    fx->options.evaluation = false;
    fx->options.prefetch = prefetch;
    SL_TRY(build_blocks(fx));
    fx->machine.copies_overlap = true;
    fx->machine.kernels_take_turns = false;
    fx->machine.link_latency = fx->machine.kernel_slowdown = fx->machine.move_slowdown = 0;
    SL_TRY(sl_plan_create(fx->graph, &fx->machine, &fx->options, &resident));
    const double block = resident->segments[SL_SEGMENT_FORWARD].seconds / BLOCKS;
    sl_plan_destroy(resident);
    sl_machine_set_links(&fx->machine, (double)SAVED_BYTES / (times * block));
    c.layers[SL_SAVING_OFFLOAD] = offloaded;
    c.layers[SL_SAVING_RECOMPUTE] = recomputed;
    return sl_plan_create_placed(fx->graph, &fx->machine, &fx->options, &c, &fx->plan);
}

/* Copies of four times a block's forward fall behind it at once, and backward comes to the blocks in half of the time that
 * they take to come back. */
TEST(nothing_waits_for_a_slow_link_while_there_is_memory)
{
    planned resident = { 0 }, fx = { 0 };
    REQUIRE_OK(plan_transit(&resident, 0, 0, 4, 1));
    REQUIRE_OK(plan_transit(&fx, 4, 0, 4, 1));
    CHECK_EQ(fx.plan->totals.offloaded_layers, 4);
    CHECK(fx.plan->totals.peak[SL_TIER_DEVICE] + 4 * (SAVED_BYTES - CHEAP_BYTES) <=
          resident.plan->totals.peak[SL_TIER_DEVICE]);
    for (int k = SL_SEGMENT_FORWARD; k <= SL_SEGMENT_BACKWARD; k++) {
        CHECK_NEAR(fx.plan->segments[k].exposed[SL_STREAM_TO_HOST], 0, 1e-9);
        CHECK_NEAR(fx.plan->segments[k].exposed[SL_STREAM_TO_DEVICE], 0, 1e-9);
    }
    planned_free(&fx);
    fx = (planned){ 0 };
    REQUIRE_OK(plan_transit(&fx, 4, 0, 4, 0)); /* as late as can be: backward waits */
    CHECK(fx.plan->segments[SL_SEGMENT_BACKWARD].exposed[SL_STREAM_TO_DEVICE] > 0);
    planned_free(&fx);
    planned_free(&resident);
}

/* Where all leaves there is no memory to wait in: the peak is what a few blocks need, and compute waits for the link. */
TEST(activations_in_transit_do_not_raise_the_peak)
{
    planned all = { 0 }, some = { 0 };
    REQUIRE_OK(plan_transit(&all, BLOCKS, 0, 4, 1));
    REQUIRE_OK(plan_transit(&some, BLOCKS / 2, 0, 4, 1));
    CHECK(all.plan->totals.peak[SL_TIER_DEVICE] < some.plan->totals.peak[SL_TIER_DEVICE]);
    CHECK(all.plan->totals.by_kind[SL_TIER_DEVICE][SL_BUFFER_ACTIVATION] < 4 * SAVED_BYTES);
    CHECK(all.plan->segments[SL_SEGMENT_FORWARD].exposed[SL_STREAM_TO_HOST] > 0);
    planned_free(&all);
    planned_free(&some);
}

/* Offloaded from the first on, recomputed behind them; only where both are all, inputs of recomputed layers leave. */
TEST(offloaded_layers_come_before_recomputed_ones)
{
    static const struct {
        int offloaded, recomputed;
        sl_activation_mode first, second, third; /* at positions 0, BLOCKS / 2 and BLOCKS - 1 */
    } cases[] = {
        { 8, 8, SL_ACT_OFFLOAD, SL_ACT_RECOMPUTE, SL_ACT_KEEP },
        { 0, 13, SL_ACT_RECOMPUTE, SL_ACT_RECOMPUTE, SL_ACT_KEEP },
        { 8, 16, SL_ACT_OFFLOAD, SL_ACT_RECOMPUTE, SL_ACT_RECOMPUTE },
        { BLOCKS, 12, SL_ACT_OFFLOAD, SL_ACT_RECOMPUTE_OFFLOAD, SL_ACT_RECOMPUTE_OFFLOAD },
        { 1, BLOCKS, SL_ACT_RECOMPUTE_OFFLOAD, SL_ACT_RECOMPUTE, SL_ACT_RECOMPUTE },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        planned fx = { 0 };
        REQUIRE_OK(plan_transit(&fx, cases[i].offloaded, cases[i].recomputed, 1, 1));
        CHECK_EQ(fx.plan->layers[0].activations, cases[i].first);
        CHECK_EQ(fx.plan->layers[BLOCKS / 2].activations, cases[i].second);
        CHECK_EQ(fx.plan->layers[BLOCKS - 1].activations, cases[i].third);
        planned_free(&fx);
    }
}

/* Half of what everything takes: what costs little goes first. */
TEST(the_search_takes_what_costs_little_before_whole_layers)
{
    planned fx = { 0 };
    plan_options_default(&fx.options);
    fx.options.evaluation = false;
    fx.options.budget[SL_TIER_HOST] = 0;
    REQUIRE_OK(build_blocks(&fx));
    REQUIRE_OK(sl_plan_create(fx.graph, &fx.machine, &fx.options, &fx.plan));
    const uint64_t all = fx.plan->totals.peak[SL_TIER_DEVICE];
    sl_plan_destroy(fx.plan);
    fx.plan = NULL;
    fx.options.budget[SL_TIER_DEVICE] = all - BLOCKS / 2 * CHEAP_BYTES;
    REQUIRE_OK(sl_plan_create(fx.graph, &fx.machine, &fx.options, &fx.plan));
    CHECK_EQ(fx.plan->totals.recomputed_layers, 0);
    CHECK(fx.plan->totals.cheap_layers >= BLOCKS / 2 && fx.plan->totals.cheap_layers <= BLOCKS / 2 + 2);
    CHECK(fx.plan->totals.peak[SL_TIER_DEVICE] <= fx.options.budget[SL_TIER_DEVICE]);
    planned_free(&fx);
}
