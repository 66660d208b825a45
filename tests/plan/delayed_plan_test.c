/* delayed_plan_test.c: plans in which the next step does not see an update yet: what they keep, move and hide. */
#include "support/planned.h"
#include "test.h"

#define SEED 4212 /* a transformer of five blocks with a tied embedding */

/* A machine whose host takes about as long for the updates as the device for forward and backward. */
static sluice_status plan_delayed(planned *fx, bool delayed, int accumulation, bool streamed, double host_rate)
{
    random_state r = { SEED };
    plan_options_default(&fx->options);
    fx->options.evaluation = false;
    fx->options.delayed = delayed;
    fx->options.accumulation = accumulation;
    fx->options.state = SLUICE_PLACE_HOST;
    fx->options.parameters = streamed ? SLUICE_PLACE_HOST : SLUICE_PLACE_DEVICE;
    SL_TRY(random_graph(&r, &fx->graph));
    SL_TRY(plan_prepare(fx));
    fx->machine.copies_overlap = true;
    fx->machine.kernels_take_turns = false;
    fx->machine.kernel_slowdown = fx->machine.move_slowdown = 0;
    fx->machine.update_slowdown = fx->machine.move_update_slowdown = 0;
    fx->machine.update_bytes_per_second = host_rate;
    return sl_plan_create(fx->graph, &fx->machine, &fx->options, &fx->plan);
}

static double on_stream(const sl_plan *p, sl_stream stream, bool exposed)
{
    double sum = 0;
    for (int k = SL_SEGMENT_FORWARD; k <= SL_SEGMENT_UPDATE; k++) {
        int times = k == SL_SEGMENT_UPDATE ? 1 : p->options.accumulation;
        sum += times * (exposed ? p->segments[k].exposed[stream] : p->segments[k].busy[stream]);
    }
    return sum;
}

/* The host's updates take three quarters of the time of all micro-batches: nothing of them is waited for. */
TEST(delayed_updates_on_the_host_hide_behind_all_micro_batches_of_the_next_step)
{
    for (int k = 0; k < 4; k++) {
        planned probe = { 0 }, sync = { 0 }, late = { 0 };
        int accumulation = k % 2 == 0 ? 1 : 4;
        bool streamed = k / 2 == 1;
        REQUIRE_OK(plan_delayed(&probe, false, accumulation, streamed, 1e12));
        double compute = on_stream(probe.plan, SL_STREAM_COMPUTE, false), bytes = 0;
        bytes = (double)sl_graph_parameter_elements(probe.graph) * probe.options.update_bytes_per_element;
        double rate = bytes / (0.75 * compute);
        REQUIRE_OK(plan_delayed(&sync, false, accumulation, streamed, rate));
        REQUIRE_OK(plan_delayed(&late, true, accumulation, streamed, rate));
        double busy = on_stream(late.plan, SL_STREAM_UPDATE, false);
        CHECK(busy > 0.5 * compute);
        CHECK_THAT(on_stream(late.plan, SL_STREAM_UPDATE, true) < 0.05 * busy, "case %d: %g of %g s are exposed", k,
                   on_stream(late.plan, SL_STREAM_UPDATE, true), busy);
        double saved = (streamed ? 0.05 : 0.3) * busy; /* links are busy where parameters are streamed */
        CHECK_THAT(late.plan->totals.step_seconds < sync.plan->totals.step_seconds - saved,
                   "case %d: %g s, and %g s at once", k, late.plan->totals.step_seconds,
                   sync.plan->totals.step_seconds);
        planned_free(&probe);
        planned_free(&sync);
        planned_free(&late);
    }
}

static uint64_t kept_weights(const sl_plan *p)
{
    uint64_t bytes = 0;
    for (int i = 0; i < p->buffer_count; i++)
        if (p->buffers[i].kind == SL_BUFFER_PARAMETERS && p->buffers[i].permanent) bytes += p->buffers[i].bytes;
    return bytes;
}

/* Where the host has the weights anyway nothing is added; otherwise one copy of them. What moves is the same. */
TEST(delayed_updates_cost_a_copy_of_the_weights_where_there_is_none_and_move_no_more)
{
    for (int k = 0; k < 3; k++) {
        planned fx[2] = { { 0 }, { 0 } };
        for (int delayed = 0; delayed < 2; delayed++) {
            plan_options_default(&fx[delayed].options);
            fx[delayed].options.evaluation = false;
            fx[delayed].options.delayed = delayed == 1;
            fx[delayed].options.state = k > 0 ? SLUICE_PLACE_HOST : SLUICE_PLACE_DEVICE;
            fx[delayed].options.parameters = k > 1 ? SLUICE_PLACE_HOST : SLUICE_PLACE_DEVICE;
            REQUIRE_OK(plan_model(&fx[delayed], SEED));
        }
        uint64_t weights = (uint64_t)sl_graph_parameter_elements(fx[0].graph) * sizeof(float);
        CHECK_EQ(kept_weights(fx[0].plan), (k == 1 ? 2 : 1) * weights);
        CHECK_EQ(kept_weights(fx[1].plan), 2 * weights);
        for (int link = 0; link < SL_LINK_COUNT; link++)
            CHECK_EQ(fx[1].plan->totals.moved[link], fx[0].plan->totals.moved[link]);
        planned_free(&fx[0]);
        planned_free(&fx[1]);
    }
}

/* An update begins on weights that were published; what is published comes of the update before. */
TEST(weights_are_published_before_the_update_that_follows)
{
    planned fx = { 0 };
    int published = 0, updated = 0;
    plan_options_default(&fx.options);
    fx.options.delayed = true;
    fx.options.rank_count = 4;
    fx.options.stage = 2;
    fx.options.state = SLUICE_PLACE_HOST;
    REQUIRE_OK(plan_model(&fx, SEED));
    for (int i = 0; i < fx.plan->step_count; i++) {
        const sl_step *s = &fx.plan->steps[i];
        const sl_segment *update = &fx.plan->segments[SL_SEGMENT_UPDATE];
        bool inside = i >= update->first_step && i < update->first_step + update->step_count;
        if (s->publishes) CHECK(inside && updated == 0);
        published += s->publishes;
        updated += s->kind == SL_STEP_UPDATE && s->op == SL_OP_UPDATE;
    }
    CHECK(published > 2 && updated > 2);
    planned_free(&fx);
}
