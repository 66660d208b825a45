/* cost_test.c: seconds from points, and segments on clocks. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "plan/passes.h"
#include "support/planned.h"
#include "test.h"

#define SEED 3

/* ---- points ---- */

static const sl_rates three = { 3, { { 100, 1 }, { 1e4, 10 }, { 1e6, 500 } } };

TEST(seconds_at_a_point_are_the_measured_ones)
{
    for (int i = 0; i < three.count; i++)
        CHECK_NEAR(sl_rates_seconds(&three, three.points[i].work, 7), three.points[i].seconds, 1e-9);
}

TEST(seconds_between_points_follow_the_rate_on_logarithmic_scales)
{
    /* halfway between 1e2 and 1e4 the rate is the geometric mean of 100 and 1000 a second */
    CHECK_NEAR(1e3 / sl_rates_seconds(&three, 1e3, 7), sqrt(100.0 * 1000.0), 1e-6);
    CHECK_NEAR(1e5 / sl_rates_seconds(&three, 1e5, 7), sqrt(1000.0 * 2000.0), 1e-6);
}

TEST(seconds_beyond_the_points_keep_the_rate_and_add_the_latency)
{
    CHECK_NEAR(sl_rates_seconds(&three, 10, 7), 7 + 10 / 100.0, 1e-12);
    CHECK_NEAR(sl_rates_seconds(&three, 1e8, 7), 7 + 1e8 / 2000.0, 1e-6);
    CHECK_NEAR(sl_rates_seconds(&three, 0, 7), 7, 1e-12);
}

TEST(one_point_is_a_rate_for_all_work)
{
    const sl_rates one = { 1, { { 100, 2 } } };
    CHECK_NEAR(sl_rates_seconds(&one, 100, 1), 2, 1e-12);
    CHECK_NEAR(sl_rates_seconds(&one, 50, 1), 2, 1e-12);
    CHECK_NEAR(sl_rates_seconds(&one, 200, 1), 5, 1e-12);
}

/* ---- plans ---- */

static void set_points(sl_machine *m)
{
    for (int op = 0; op < SL_OP_COUNT; op++) m->kernels[SL_RATE_F32][op] = (sl_rates){ 1, { { 1, 1e-3 } } };
    m->copies[SL_LINK_TO_DEVICE] = m->copies[SL_LINK_TO_HOST] = (sl_rates){ 1, { { 1, 2e-3 } } };
    m->kernel_latency = m->link_latency = 0;
}

TEST(a_plan_with_points_takes_its_seconds_from_them)
{
    planned fx = { 0 };
    sl_plan *measured = NULL;
    plan_options_default(&fx.options);
    fx.options.parameters = fx.options.state = SLUICE_PLACE_HOST;
    REQUIRE_OK(plan_model(&fx, SEED));
    sl_machine m = fx.machine;
    set_points(&m);
    REQUIRE_OK(sl_plan_create(fx.graph, &m, &fx.options, &measured));
    CHECK(measured->totals.step_seconds > 2 * fx.plan->totals.step_seconds);
    for (int i = 0; i < measured->step_count; i++) {
        const sl_step *s = &measured->steps[i];
        if (s->kind == SL_STEP_COPY)
            CHECK_NEAR(s->seconds, 2e-3 * (double)measured->pieces[s->first_piece].bytes, 1e-9);
        if (s->op == SL_OP_UPDATE)
            CHECK_NEAR(s->seconds, 1e-3 * 28 * (double)measured->pieces[s->first_piece].bytes / 4, 1e-9);
        if (s->op != SL_OP_LINEAR) continue;
        double flops = sl_ops[s->op].cost(fx.graph, &fx.graph->nodes[s->node]).flops;
        CHECK_NEAR(s->seconds, 1e-3 * flops, 1e-9);
    }
    sl_plan_destroy(measured);
    planned_free(&fx);
}

/* Products of f16 are those of 16 bits on a GPU; a CPU computes them in f32. */
TEST(f16_has_the_rates_of_16_bits_where_kernels_do_not_take_turns)
{
    double seconds[2];
    for (int turns = 0; turns < 2; turns++) {
        planned fx = { .precision = SLUICE_F16, .wire = SLUICE_F16 };
        sl_plan *planned_again = NULL;
        plan_options_default(&fx.options);
        REQUIRE_OK(plan_model(&fx, SEED));
        sl_machine m = fx.machine;
        m.gemm_flops = 1e9;
        m.gemm_16bit_flops = 1e12;
        m.kernels_take_turns = turns == 1;
        REQUIRE_OK(sl_plan_create(fx.graph, &m, &fx.options, &planned_again));
        seconds[turns] = planned_again->segments[SL_SEGMENT_FORWARD].seconds;
        sl_plan_destroy(planned_again);
        planned_free(&fx);
    }
    CHECK(seconds[0] < seconds[1] / 2);
}

TEST(the_same_points_give_the_same_seconds)
{
    planned fx = { 0 };
    sl_plan *a = NULL, *b = NULL;
    plan_options_default(&fx.options);
    fx.options.budget[SL_TIER_DEVICE] = 200000; /* needs a search */
    REQUIRE_OK(plan_model(&fx, SEED));
    sl_machine m = fx.machine;
    set_points(&m);
    m.kernels_take_turns = true;
    m.kernel_slowdown = 0.5;
    m.move_slowdown = 0.75;
    REQUIRE_OK(sl_plan_create(fx.graph, &m, &fx.options, &a));
    REQUIRE_OK(sl_plan_create(fx.graph, &m, &fx.options, &b));
    CHECK(a->totals.step_seconds == b->totals.step_seconds);
    REQUIRE(a->step_count == b->step_count);
    for (int i = 0; i < a->step_count; i++) CHECK(a->steps[i].seconds == b->steps[i].seconds);
    sl_plan_destroy(a);
    sl_plan_destroy(b);
    planned_free(&fx);
}

/* Steps of attention, which must take `times` as long in the second plan as in the first; all others as long. */
static int compare_attention(const sl_plan *a, const sl_plan *b, double times)
{
    int found = 0;
    CHECK_EQ(a->step_count, b->step_count);
    for (int i = 0; i < a->step_count && i < b->step_count; i++) {
        const sl_step *s = &a->steps[i];
        bool attention = s->kind == SL_STEP_COMPUTE && (s->op == SL_OP_ATTENTION || s->op == SL_OP_ATTENTION_GRAD);
        CHECK_NEAR(b->steps[i].seconds, s->seconds * (attention ? times : 1), 1e-12);
        found += attention;
    }
    return found;
}

/* Seconds of the first step of an op, by a machine. */
static double seconds_of(const planned *fx, const sl_machine *m, sl_op op)
{
    sl_plan *plan = NULL;
    double seconds = -1;
    CHECK_EQ(sl_plan_create(fx->graph, m, &fx->options, &plan), SLUICE_OK);
    for (int i = 0; plan != NULL && i < plan->step_count && seconds < 0; i++)
        if (plan->steps[i].kind == SL_STEP_COMPUTE && plan->steps[i].op == op) seconds = plan->steps[i].seconds;
    sl_plan_destroy(plan);
    return seconds;
}

/* One small kernel says how long a call takes: more work is done at the memory's rate, not at the rate of that call. A CPU's kernels
 * are as fast as they were measured. */
TEST(a_point_of_a_small_call_is_no_rate_for_large_ones)
{
    planned fx = { 0 };
    plan_options_default(&fx.options);
    REQUIRE_OK(plan_model(&fx, SEED));
    sl_machine m = fx.machine;
    m.kernel_latency = 5e-6;
    m.device_bytes_per_second = 1e12;
    m.vector_flops = 1e15;
    m.kernels[SL_RATE_F32][SL_OP_ADD] = (sl_rates){ 1, { { 16, 10e-6 } } };
    m.kernels_take_turns = false;
    CHECK(seconds_of(&fx, &m, SL_OP_ADD) >= 10e-6 && seconds_of(&fx, &m, SL_OP_ADD) < 11e-6);
    m.kernels_take_turns = true;
    CHECK(seconds_of(&fx, &m, SL_OP_ADD) > 100e-6);
    m.kernels_take_turns = false;
    m.kernels[SL_RATE_F32][SL_OP_ADD].points[0].seconds = 60e-6; /* a large call, however little it does */
    CHECK(seconds_of(&fx, &m, SL_OP_ADD) > 600e-6);
    planned_free(&fx);
}

TEST(attention_without_points_reaches_a_fraction_of_the_rate_of_products)
{
    int found = 0;
    for (uint64_t seed = 1; seed < 30 && found == 0; seed++) {
        planned fx = { 0 };
        sl_plan *slow = NULL, *slower = NULL;
        plan_options_default(&fx.options);
        REQUIRE_OK(plan_model(&fx, seed));
        sl_machine m = fx.machine;
        m.kernel_latency = 0;
        m.attention_fraction = 1e-6; /* so slow that memory does not count */
        REQUIRE_OK(sl_plan_create(fx.graph, &m, &fx.options, &slow));
        m.attention_fraction = 0.5e-6;
        REQUIRE_OK(sl_plan_create(fx.graph, &m, &fx.options, &slower));
        found = compare_attention(slow, slower, 2);
        sl_plan_destroy(slow);
        sl_plan_destroy(slower);
        planned_free(&fx);
    }
    CHECK(found > 0);
}

TEST(the_update_stream_has_rates_of_its_own_by_the_form_of_moments)
{
    sl_machine *m = calloc(1, sizeof *m);
    m->kernels[SL_RATE_F32][SL_OP_UPDATE] = (sl_rates){ 1, { { 1, 1 } } };
    CHECK(sl_machine_host_rates(m, SL_OP_UPDATE)->points[0].seconds == 1);
    CHECK(sl_machine_update_rates(m, true, SL_FORM_BLOCKS8)->points[0].seconds == 1);
    m->narrow_updates[0][1] = (sl_rates){ 1, { { 1, 2 } } };
    CHECK(sl_machine_update_rates(m, true, SL_FORM_BLOCKS8)->points[0].seconds == 2);
    CHECK(sl_machine_update_rates(m, false, SL_FORM_BF16)->points[0].seconds == 1);
    m->host_kernels[SL_OP_UPDATE] = (sl_rates){ 1, { { 1, 3 } } };
    CHECK(sl_machine_update_rates(m, true, SL_FORM_BLOCKS8)->points[0].seconds == 3);
    CHECK(sl_machine_update_rates(m, false, SL_FORM_BLOCKS8)->points[0].seconds == 2);
    m->narrow_updates[1][0] = (sl_rates){ 1, { { 1, 4 } } };
    CHECK(sl_machine_update_rates(m, true, SL_FORM_BF16)->points[0].seconds == 4);
    CHECK(sl_machine_update_rates(m, true, SL_FORM_F32)->points[0].seconds == 3);
    free(m);
}

TEST(updates_on_the_host_take_what_the_update_stream_takes)
{
    planned fx = { 0 };
    sl_plan *measured = NULL;
    plan_options_default(&fx.options);
    fx.options.parameters = fx.options.state = SLUICE_PLACE_HOST;
    REQUIRE_OK(plan_model(&fx, SEED));
    sl_machine m = fx.machine;
    set_points(&m);
    m.host_kernels[SL_OP_UPDATE] = (sl_rates){ 1, { { 1, 5e-3 } } };
    REQUIRE_OK(sl_plan_create(fx.graph, &m, &fx.options, &measured));
    int updates = 0;
    for (int i = 0; i < measured->step_count; i++) {
        const sl_step *s = &measured->steps[i];
        if (s->op != SL_OP_UPDATE || s->kind != SL_STEP_UPDATE) continue;
        CHECK_NEAR(s->seconds, 5e-3 * 28 * (double)measured->pieces[s->first_piece].bytes / 4, 1e-9);
        updates++;
    }
    CHECK(updates > 0);
    sl_plan_destroy(measured);
    planned_free(&fx);
}

/* ---- clocks, on plans of a few steps made by hand ---- */

enum { MOST = 8 };

typedef struct hand {
    sl_plan plan;
    sl_step steps[MOST];
    int waits[MOST];
} hand;

static hand *new_hand(void)
{
    hand *h = calloc(1, sizeof *h);
    h->plan.machine.copies_overlap = true;
    h->plan.steps = h->steps;
    h->plan.waits = h->waits;
    return h;
}

/* `after`: the step it waits for; -1: none. */
static void add(hand *h, sl_step_kind kind, sl_stream stream, double seconds, int after)
{
    sl_step *s = &h->steps[h->plan.step_count++];
    *s = (sl_step){ .kind = kind, .stream = stream, .seconds = seconds, .first_wait = h->plan.wait_count };
    if (after < 0) return;
    h->waits[h->plan.wait_count++] = after;
    s->wait_count = 1;
}

/* As one segment with nothing before and after it. */
static const sl_segment *run(hand *h)
{
    sl_segment *segment = &h->plan.segments[SL_SEGMENT_EVALUATE];
    *segment = (sl_segment){ .step_count = h->plan.step_count, .result_step = -1 };
    CHECK_EQ(sl_plan_clock(&h->plan), SLUICE_OK);
    return segment;
}

TEST(streams_that_do_not_disturb_each_other_run_side_by_side)
{
    hand *h = new_hand();
    add(h, SL_STEP_COPY, SL_STREAM_TO_DEVICE, 3, -1);
    add(h, SL_STEP_COMPUTE, SL_STREAM_COMPUTE, 2, -1);
    add(h, SL_STEP_COMPUTE, SL_STREAM_COMPUTE, 2, 0);
    const sl_segment *s = run(h);
    CHECK_NEAR(s->seconds, 5, 1e-12);
    CHECK_NEAR(s->exposed[SL_STREAM_TO_DEVICE], 1, 1e-12);
    CHECK_EQ(s->longest_step[SL_STREAM_TO_DEVICE], 0);
    free(h);
}

TEST(work_at_the_same_time_slows_down_as_the_machine_says)
{
    hand *h = new_hand();
    h->plan.machine.kernel_slowdown = 0.5;
    h->plan.machine.move_slowdown = 1;
    add(h, SL_STEP_COPY, SL_STREAM_TO_DEVICE, 1, -1);
    add(h, SL_STEP_COMPUTE, SL_STREAM_COMPUTE, 1, -1);
    /* the kernel runs at 2/3 and is done at 1.5; the copy has by then done 0.75 at 1/2, and the rest alone */
    const sl_segment *s = run(h);
    CHECK_NEAR(s->seconds, 1.75, 1e-12);
    CHECK_NEAR(s->exposed[SL_STREAM_TO_DEVICE], 0.25, 1e-12);
    free(h);
}

/* As measured on a server: an update 1.45 times as long beside copies both ways, these 1.29 times beside it. */
TEST(updates_on_the_host_and_copies_slow_each_other_down_and_leave_kernels_alone)
{
    hand *h = new_hand();
    h->plan.machine.update_slowdown = 0.225;
    h->plan.machine.move_update_slowdown = 0.29;
    add(h, SL_STEP_COMPUTE, SL_STREAM_COMPUTE, 2.5, -1);
    add(h, SL_STEP_COPY, SL_STREAM_TO_DEVICE, 2, -1);
    add(h, SL_STEP_COPY, SL_STREAM_TO_HOST, 2, -1);
    add(h, SL_STEP_UPDATE, SL_STREAM_UPDATE, 4, -1);
    /* the copies are done at 2.58, the update has then done 2.58 / 1.45 and the rest alone */
    const sl_segment *s = run(h);
    CHECK_NEAR(s->seconds, 2.58 + 4 - 2.58 / 1.45, 1e-12);
    CHECK_NEAR(s->exposed[SL_STREAM_UPDATE], s->seconds - 2.5, 1e-12);
    h->plan.machine.kernels_take_turns = true; /* then an update is a kernel like others */
    CHECK_NEAR(run(h)->seconds, 2.5 + 4, 1e-12);
    free(h);
}

TEST(reads_and_writes_of_a_disk_slow_each_other_down_by_their_own_factors)
{
    hand *h = new_hand();
    h->plan.machine.disk_read_slowdown = 0.5;
    h->plan.machine.disk_write_slowdown = 2;
    add(h, SL_STEP_COPY, SL_STREAM_DISK_READ, 2, -1);
    add(h, SL_STEP_COPY, SL_STREAM_DISK_WRITE, 2, -1);
    add(h, SL_STEP_COMPUTE, SL_STREAM_COMPUTE, 1, 1);
    /* the read is done at 3, the write has then done 1 and the rest alone; the kernel comes after it */
    CHECK_NEAR(run(h)->seconds, 5, 1e-12);
    /* as measured for its size: 6 seconds instead of 2 */
    sl_piece piece = { 0, 0, 1000 };
    h->plan.pieces = &piece;
    h->plan.machine.disk_write_slowdown = 0;
    h->plan.machine.disk_beside[1] = (sl_rates){ 1, { { 1000, 6 } } };
    CHECK_NEAR(run(h)->seconds, 5, 1e-12);
    free(h);
}

/* A transfer that keeps half a processor busy is half a copy to kernels of a CPU, and loses half of what a copy would. */
TEST(a_transfer_of_the_disk_takes_its_part_of_the_processors)
{
    hand *h = new_hand();
    h->plan.machine.kernels_take_turns = true;
    h->plan.machine.kernel_slowdown = 0.5;
    h->plan.machine.move_slowdown = 1;
    h->plan.machine.disk_processor = 0.5;
    add(h, SL_STEP_COPY, SL_STREAM_DISK_READ, 1, -1);
    add(h, SL_STEP_COMPUTE, SL_STREAM_COMPUTE, 2, -1);
    /* both begin at 0; the transfer is done at 1.5, the kernel has then done 1.5 / 1.25 and the rest alone */
    CHECK_NEAR(run(h)->seconds, 1.5 + 2 - 1.5 / 1.25, 1e-12);
    h->plan.machine.kernels_take_turns = false; /* a device has processors of its own */
    CHECK_NEAR(run(h)->seconds, 2, 1e-12);
    free(h);
}

TEST(kernels_that_take_turns_do_not_overlap)
{
    hand *h = new_hand();
    add(h, SL_STEP_UPDATE, SL_STREAM_UPDATE, 3, -1);
    add(h, SL_STEP_COMPUTE, SL_STREAM_COMPUTE, 2, -1);
    CHECK_NEAR(run(h)->seconds, 3, 1e-12);
    h->plan.machine.kernels_take_turns = true;
    const sl_segment *s = run(h);
    CHECK_NEAR(s->seconds, 5, 1e-12);
    CHECK_NEAR(s->exposed[SL_STREAM_UPDATE], 3, 1e-12);
    free(h);
}

TEST(a_copy_listed_after_a_kernel_that_takes_turns_starts_after_it)
{
    hand *h = new_hand();
    add(h, SL_STEP_COMPUTE, SL_STREAM_COMPUTE, 2, -1);
    add(h, SL_STEP_COPY, SL_STREAM_TO_HOST, 1, -1);
    CHECK_NEAR(run(h)->seconds, 2, 1e-12);
    h->plan.machine.kernels_take_turns = true;
    CHECK_NEAR(run(h)->seconds, 3, 1e-12);
    free(h);
}

TEST(without_overlap_everything_takes_turns_in_list_order)
{
    hand *h = new_hand();
    h->plan.machine.copies_overlap = false;
    add(h, SL_STEP_COPY, SL_STREAM_TO_DEVICE, 1, -1);
    add(h, SL_STEP_COMPUTE, SL_STREAM_COMPUTE, 2, 0);
    add(h, SL_STEP_COPY, SL_STREAM_TO_HOST, 4, 1);
    const sl_segment *s = run(h);
    CHECK_NEAR(s->seconds, 7, 1e-12);
    CHECK_NEAR(s->exposed[SL_STREAM_TO_DEVICE], 1, 1e-12);
    CHECK_NEAR(s->exposed[SL_STREAM_TO_HOST], 4, 1e-12);
    free(h);
}

/* The steps so far are cut into forward, backward and update; `result`: the update's step that the host waits for. */
static void cut(hand *h, int forward, int backward, int result)
{
    int all = h->plan.step_count, update = all - forward - backward;
    h->plan.options.accumulation = 1;
    h->plan.segments[SL_SEGMENT_FORWARD] = (sl_segment){ 0, forward, .result_step = -1 };
    h->plan.segments[SL_SEGMENT_BACKWARD] = (sl_segment){ forward, backward, .result_step = -1 };
    h->plan.segments[SL_SEGMENT_UPDATE] = (sl_segment){ all - update, update, .result_step = result };
}

/* Forward of two layers, backward, then the norm, updates of both on the host and their way back. */
static hand *offloaded(double update_seconds)
{
    hand *h = new_hand();
    add(h, SL_STEP_COMPUTE, SL_STREAM_COMPUTE, 2, 5);
    add(h, SL_STEP_COMPUTE, SL_STREAM_COMPUTE, 2, 7);
    add(h, SL_STEP_COMPUTE, SL_STREAM_COMPUTE, 4, -1);
    add(h, SL_STEP_COMPUTE, SL_STREAM_COMPUTE, 1, -1);
    add(h, SL_STEP_UPDATE, SL_STREAM_UPDATE, update_seconds, 3);
    add(h, SL_STEP_COPY, SL_STREAM_TO_DEVICE, 1, 4);
    add(h, SL_STEP_UPDATE, SL_STREAM_UPDATE, update_seconds, -1);
    add(h, SL_STEP_COPY, SL_STREAM_TO_DEVICE, 1, 6);
    cut(h, 2, 1, 3);
    return h;
}

TEST(updates_go_on_beside_the_next_forward)
{
    hand *h = offloaded(0.5);
    REQUIRE_OK(sl_plan_clock(&h->plan));
    const sl_segment *g = h->plan.segments;
    /* the first layer waits for its update and copy, 1.5 after the norm; the second's are done by then */
    CHECK_NEAR(g[SL_SEGMENT_FORWARD].seconds, 1.5 + 4, 1e-12);
    CHECK_NEAR(g[SL_SEGMENT_BACKWARD].seconds, 4, 1e-12);
    CHECK_NEAR(g[SL_SEGMENT_UPDATE].seconds, 1, 1e-12);
    CHECK_NEAR(g[SL_SEGMENT_FORWARD].exposed[SL_STREAM_TO_DEVICE], 1.5, 1e-12);
    free(h);
}

TEST(updates_too_slow_for_the_next_forward_hold_it_up)
{
    hand *h = offloaded(5);
    REQUIRE_OK(sl_plan_clock(&h->plan));
    /* 6 for the first layer, whose 2 hide as much of the second update; that and its copy are done at 11 */
    CHECK_NEAR(h->plan.segments[SL_SEGMENT_FORWARD].seconds, 11 + 2, 1e-12);
    CHECK_EQ(h->plan.segments[SL_SEGMENT_FORWARD].longest_step[SL_STREAM_TO_DEVICE], 5);
    free(h);
}

TEST(micro_batches_after_the_first_begin_with_nothing_under_way)
{
    hand *h = offloaded(5);
    h->plan.options.accumulation = 4;
    REQUIRE_OK(sl_plan_clock(&h->plan));
    CHECK_NEAR(4 * h->plan.segments[SL_SEGMENT_FORWARD].seconds, 13 + 3 * 4, 1e-12);
    free(h);
}

TEST(work_of_the_last_micro_batch_alone_is_clocked_once_a_step)
{
    hand *h = offloaded(0.5);
    h->plan.options.accumulation = 4;
    h->steps[2].when = SL_WHEN_LAST_MICRO; /* all of backward */
    REQUIRE_OK(sl_plan_clock(&h->plan));
    CHECK_NEAR(4 * h->plan.segments[SL_SEGMENT_BACKWARD].seconds, 4, 1e-12);
    CHECK_NEAR(4 * h->plan.segments[SL_SEGMENT_BACKWARD].busy[SL_STREAM_COMPUTE], 4, 1e-12);
    h->steps[2].when = SL_WHEN_NOT_SPECULATING;
    REQUIRE_OK(sl_plan_clock(&h->plan));
    CHECK_NEAR(h->plan.segments[SL_SEGMENT_BACKWARD].seconds, 0, 1e-12);
    free(h);
}

TEST(an_empty_segment_takes_no_time)
{
    hand *h = new_hand();
    CHECK_NEAR(run(h)->seconds, 0, 0);
    free(h);
}
