/* group_test.c: layers that are recomputed together: what is kept, what runs again and when, and what that saves. */
#include "core/alloc.h"
#include "support/planned.h"
#include "test.h"

enum { BLOCKS = 24, ROWS = 256, WIDTH = 16 };

/* Layers of a linear map, a batch norm with ReLU and a residual. What backward needs of a layer is the map's result, the
 * statistics, and its output. */
static sluice_status build_chain(planned *fx)
{
    SL_TRY(sluice_graph_create(&fx->graph));
    sluice_value x = sluice_input(fx->graph, "x", SLUICE_F32, 2, (int64_t[]){ ROWS, WIDTH });
    for (int i = 0; i < BLOCKS; i++) {
        char name[3][24];
        sluice_batch_norm_options o;
        sluice_batch_norm_options_init(&o);
        o.relu = true;
        o.residual = x;
        snprintf(name[0], sizeof name[0], "block%d", i);
        snprintf(name[1], sizeof name[1], "fc%d", i);
        snprintf(name[2], sizeof name[2], "norm%d", i);
        sluice_layer(fx->graph, name[0]);
        x = sluice_batch_norm(fx->graph, sluice_linear(fx->graph, x, WIDTH, name[1]), name[2], &o);
    }
    sluice_layer(fx->graph, "head");
    sluice_set_loss(fx->graph, sluice_mean(fx->graph, sluice_multiply(fx->graph, x, x)));
    return plan_prepare(fx);
}

static sluice_status plan_chain(planned *fx, int checkpoints)
{
    plan_options_default(&fx->options);
    fx->options.evaluation = false;
    fx->options.activations = SLUICE_ACTIVATIONS_RECOMPUTE;
    fx->options.checkpoints = checkpoints;
    SL_TRY(build_chain(fx));
    return sl_plan_create(fx->graph, &fx->machine, &fx->options, &fx->plan);
}

/* Activations of at least a row that live on from forward to backward. */
static int count_kept(const sl_plan *p)
{
    int begin = p->segments[SL_SEGMENT_BACKWARD].first_step, count = 0;
    for (int i = 0; i < p->buffer_count; i++) {
        const sl_buffer *b = &p->buffers[i];
        count += b->kind == SL_BUFFER_ACTIVATION && b->bytes >= sizeof(float) * ROWS * WIDTH && b->first < begin &&
                 b->last >= begin;
    }
    return count;
}

static int count_again(const sl_plan *p, sl_op op)
{
    int count = 0;
    for (int i = 0; i < p->step_count; i++) count += p->steps[i].recomputed && p->steps[i].op == op;
    return count;
}

/* Kept are the inputs of all groups but the first, whose input is one of the graph, and the last group's output. A group's
 * last norm need not run again: its output is kept, and its statistics with it. */
TEST(a_group_keeps_the_input_of_its_first_layer_alone)
{
    static const int numbers[] = { 1, 3, 6, BLOCKS };
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        planned fx = { 0 };
        REQUIRE_OK(plan_chain(&fx, numbers[i]));
        CHECK_EQ(fx.plan->totals.recomputed_layers, BLOCKS);
        CHECK_EQ(fx.plan->totals.recomputed_groups, numbers[i]);
        CHECK_EQ(fx.plan->totals.largest_group, BLOCKS / numbers[i]);
        CHECK_EQ(count_kept(fx.plan), numbers[i]);
        CHECK_EQ(count_again(fx.plan, SL_OP_BATCH_NORM), BLOCKS - numbers[i]);
        CHECK_EQ(count_again(fx.plan, SL_OP_MATMUL) + count_again(fx.plan, SL_OP_LINEAR), BLOCKS);
        planned_free(&fx);
    }
}

/* A group runs again as a whole, in forward order, right before the backward of its last layer; no statistic of a batch
 * is written then. */
TEST(a_group_runs_again_before_the_backward_of_its_layers)
{
    planned fx = { 0 };
    int backward_of = BLOCKS, again_of = -1;
    REQUIRE_OK(plan_chain(&fx, 5));
    const sl_segment *backward = &fx.plan->segments[SL_SEGMENT_BACKWARD];
    for (int i = backward->first_step; i < backward->first_step + backward->step_count; i++) {
        const sl_step *s = &fx.plan->steps[i];
        if (s->node < 0 || s->kind != SL_STEP_COMPUTE || s->layer >= BLOCKS) continue;
        const sl_layer_place *place = &fx.plan->layers[s->layer];
        if (s->recomputed) {
            CHECK(place->group_last < backward_of);
            CHECK(s->layer >= again_of);
            again_of = s->layer;
            for (int k = s->input_count; k < s->input_count + s->output_count; k++) {
                int b = fx.plan->pieces[s->first_piece + k].buffer;
                CHECK(b < 0 || !fx.plan->buffers[b].permanent);
            }
        } else if (fx.graph->nodes[s->node].phase == SL_PHASE_BACKWARD) {
            CHECK(s->layer <= backward_of);
            CHECK(place->group_first <= s->layer && s->layer <= place->group_last);
            if (place->group_first == s->layer) again_of = -1;
            backward_of = s->layer;
        }
    }
    CHECK_EQ(backward_of, 0);
    planned_free(&fx);
}

static sl_step *find_norm(sl_plan *p, bool recomputed)
{
    for (int i = 0; i < p->step_count; i++)
        if (p->steps[i].op == SL_OP_BATCH_NORM && p->steps[i].recomputed == recomputed) return &p->steps[i];
    return NULL;
}

TEST(verify_finds_what_runs_again_where_it_must_not)
{
    planned fx = { 0 };
    REQUIRE_OK(plan_chain(&fx, 5));
    sl_step *forward = find_norm(fx.plan, false), *again = find_norm(fx.plan, true);
    REQUIRE(forward != NULL && again != NULL);
    REQUIRE_OK(sl_plan_verify(fx.plan));
    forward->recomputed = true;
    CHECK_EQ(sl_plan_verify(fx.plan), SLUICE_ERR_FAILED);
    forward->recomputed = false;
    fx.plan->layers[again->layer].activations = SL_ACT_KEEP;
    CHECK_EQ(sl_plan_verify(fx.plan), SLUICE_ERR_FAILED);
    fx.plan->layers[again->layer].activations = SL_ACT_RECOMPUTE;
    int statistics = forward->output_count - 1; /* the batch's mean and variance, which stay */
    sl_piece *kept = &fx.plan->pieces[forward->first_piece + forward->input_count + statistics];
    sl_piece *written = &fx.plan->pieces[again->first_piece + again->input_count + statistics];
    REQUIRE(kept->buffer >= 0 && fx.plan->buffers[kept->buffer].permanent && written->buffer < 0);
    *written = *kept;
    CHECK_EQ(sl_plan_verify(fx.plan), SLUICE_ERR_FAILED);
    CHECK_CONTAINS(sluice_error(), "into memory that stays");
    *written = (sl_piece){ -1, 0, 0 };
    CHECK_EQ(sl_plan_verify(fx.plan), SLUICE_OK);
    planned_free(&fx);
}

static uint64_t least_device(sl_plan_options *o, int checkpoints)
{
    planned fx = { .options = *o };
    sl_plan_need need = { .together = 0 };
    fx.options.checkpoints = checkpoints;
    fx.options.budget[SL_TIER_DEVICE] = 1;
    CHECK_EQ(build_chain(&fx), SLUICE_OK);
    CHECK_EQ(sl_plan_least(fx.graph, &fx.machine, &fx.options, &need), SLUICE_OK);
    planned_free(&fx);
    return need.bytes[SL_TIER_DEVICE];
}

/* 24 inputs of 16 KiB, of which groups keep a few, and hold the inside of some layers instead. */
TEST(groups_need_less_memory_than_single_layers)
{
    sl_plan_options o;
    plan_options_default(&o);
    o.evaluation = false;
    o.state = o.parameters = SLUICE_PLACE_DEVICE;
    o.activations = SLUICE_ACTIVATIONS_RECOMPUTE;
    uint64_t alone = least_device(&o, BLOCKS), grouped = least_device(&o, 0);
    CHECK_THAT(grouped + 10 * sizeof(float) * ROWS * WIDTH < alone, "%llu bytes alone, %llu in groups",
               (unsigned long long)alone, (unsigned long long)grouped);
}

/* Plans for each budget down to the least fit, are verified, and put more layers into a group the less there is. */
TEST(less_memory_makes_larger_groups)
{
    planned all = { 0 };
    int largest = 0;
    REQUIRE_OK(plan_chain(&all, BLOCKS));
    uint64_t budget = all.plan->totals.peak[SL_TIER_DEVICE];
    for (int k = 0; k < 6; k++) {
        sl_plan_options o = all.options;
        sl_plan *p = NULL;
        o.checkpoints = 0;
        o.state = o.parameters = SLUICE_PLACE_DEVICE;
        o.budget[SL_TIER_DEVICE] = budget - (uint64_t)k * 2 * sizeof(float) * ROWS * WIDTH;
        REQUIRE_OK(sl_plan_create(all.graph, &all.machine, &o, &p));
        CHECK(p->totals.peak[SL_TIER_DEVICE] <= o.budget[SL_TIER_DEVICE]);
        CHECK(p->totals.largest_group >= largest);
        CHECK_EQ(p->totals.largest_group > 1, k > 0);
        largest = p->totals.largest_group;
        sl_plan_destroy(p);
    }
    planned_free(&all);
}

/* A placement is the same for all ranks, so its groups must not depend on which of them plans. */
TEST(all_ranks_have_the_same_groups)
{
    planned fx = { 0 };
    plan_options_default(&fx.options);
    fx.options.evaluation = false;
    fx.options.rank_count = 3;
    fx.options.stage = 3;
    fx.options.state = fx.options.parameters = SLUICE_PLACE_DEVICE;
    fx.options.activations = SLUICE_ACTIVATIONS_RECOMPUTE;
    fx.options.budget[SL_TIER_DEVICE] = least_device(&fx.options, 0);
    REQUIRE_OK(build_chain(&fx));
    REQUIRE_OK(sl_plan_create(fx.graph, &fx.machine, &fx.options, &fx.plan));
    CHECK(fx.plan->totals.largest_group > 1);
    for (int rank = 1; rank < 3; rank++) {
        sl_plan *other;
        REQUIRE_OK(sl_plan_create_for_rank(fx.plan, NULL, rank, &other));
        CHECK_EQ(sl_plan_fingerprint(other), sl_plan_fingerprint(fx.plan));
        for (int i = 0; i < fx.graph->layer_count; i++)
            CHECK_EQ(other->layers[i].group_last, fx.plan->layers[i].group_last);
        sl_plan_destroy(other);
    }
    planned_free(&fx);
}
