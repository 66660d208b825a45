/* speculate_test.c: which layers a plan updates on speculation, what that takes, and that both versions of what they write
 * are one memory to whoever orders steps. */
#include "plan/passes.h"
#include "support/planned.h"
#include "test.h"

#define SEED 4212 /* a transformer of five blocks with a tied embedding */

static void host_options(planned *fx, sl_update_mode update)
{
    plan_options_default(&fx->options);
    fx->options.state = SLUICE_PLACE_HOST;
    fx->options.parameters = SLUICE_PLACE_DEVICE;
    fx->options.update = update;
}

static uint64_t twin_bytes(const sl_plan *p)
{
    uint64_t bytes = 0;
    for (int i = 0; i < p->buffer_count; i++) {
        const sl_buffer *b = &p->buffers[i];
        if (b->kind != SL_BUFFER_TWIN) continue;
        const sl_buffer *of = &p->buffers[b->twin - 1];
        CHECK(b->tier == SL_TIER_HOST && b->permanent && b->bytes == of->bytes && b->form == of->form);
        CHECK_EQ(of->twin - 1, i);
        bytes += b->bytes;
    }
    return bytes;
}

TEST(every_layer_with_state_on_the_host_speculates_where_it_is_asked_for)
{
    planned sync = { 0 }, fx = { .precision = SLUICE_F32 };
    host_options(&sync, SL_UPDATE_MODE_SYNC);
    host_options(&fx, SL_UPDATE_MODE_SPECULATIVE);
    REQUIRE_OK(plan_model(&sync, SEED));
    REQUIRE_OK(plan_model(&fx, SEED));
    const sl_plan_totals *t = &fx.plan->totals;
    CHECK_EQ(sync.plan->totals.speculating_layers, 0);
    CHECK_EQ(sync.plan->segments[SL_SEGMENT_REDO].step_count, 0);
    CHECK_EQ(t->speculating_layers, t->host_state_layers);
    CHECK_EQ(t->speculation_bytes, twin_bytes(fx.plan));
    CHECK_NEAR(t->host_bytes_per_parameter, 12, 1e-9); /* a master and two moments */
    CHECK_NEAR(t->host_bytes_per_parameter, sync.plan->totals.host_bytes_per_parameter, 1e-9);
    CHECK(t->speculation_limit >= 1 && t->speculation_limit <= SL_SPECULATION_WINDOW);
    CHECK(t->redo_seconds > 0);
    for (int k = 0; k < SL_LINK_COUNT; k++) CHECK_EQ(t->moved[k], sync.plan->totals.moved[k]);
    planned_free(&sync);
    planned_free(&fx);
}

/* From the last layer on: their gradients come first. */
TEST(layers_speculate_as_far_as_the_host_has_room)
{
    planned all = { 0 }, sync = { 0 };
    int before = 0;
    host_options(&sync, SL_UPDATE_MODE_SYNC);
    host_options(&all, SL_UPDATE_MODE_SPECULATIVE);
    REQUIRE_OK(plan_model(&sync, SEED));
    REQUIRE_OK(plan_model(&all, SEED));
    const uint64_t least = sync.plan->totals.peak[SL_TIER_HOST], most = all.plan->totals.peak[SL_TIER_HOST];
    for (int eighths = 0; eighths <= 8; eighths++) {
        planned fx = { 0 };
        host_options(&fx, SL_UPDATE_MODE_SPECULATIVE);
        fx.options.budget[SL_TIER_HOST] = least + (most - least) * (uint64_t)eighths / 8;
        REQUIRE_OK(plan_model(&fx, SEED));
        const int now = fx.plan->totals.speculating_layers;
        CHECK(now >= before);
        bool begun = false;
        for (int i = 0; i < fx.graph->layer_count; i++) {
            if (fx.plan->layers[i].state != SL_TIER_HOST) continue;
            CHECK(!begun || fx.plan->layers[i].speculates);
            begun |= fx.plan->layers[i].speculates;
        }
        if (eighths == 0) CHECK_EQ(now, 0);
        if (eighths == 8) CHECK_EQ(now, all.plan->totals.speculating_layers);
        before = now;
        planned_free(&fx);
    }
    planned_free(&sync);
    planned_free(&all);
}

/* On "auto" with a host so slow, and a device so much faster, that the wait for the norm counts; and where updates take
 * turns with backward. */
TEST(auto_speculates_where_a_step_becomes_shorter)
{
    for (int turns = 0; turns < 2; turns++) {
        planned fx = { 0 };
        sl_plan *p = NULL;
        host_options(&fx, SL_UPDATE_MODE_AUTO);
        REQUIRE_OK(plan_model(&fx, SEED));
        sl_machine m = fx.machine;
        m.kernels_take_turns = turns == 1;
        m.copies_overlap = true;
        m.update_bytes_per_second /= 8;
        REQUIRE_OK(sl_plan_create(fx.graph, &m, &fx.options, &p));
        CHECK_EQ(p->totals.speculating_layers > 0, turns == 0);
        CHECK_EQ(p->totals.speculation_gain >= 0.01 * p->totals.step_seconds, turns == 0);
        sl_plan_destroy(p);
        planned_free(&fx);
    }
}

/* Copies of new weights read what updates on speculation wrote: without their waits, the check tells. */
TEST(a_plan_whose_twins_are_read_too_early_is_found)
{
    planned fx = { 0 };
    int found = 0;
    host_options(&fx, SL_UPDATE_MODE_SPECULATIVE);
    REQUIRE_OK(plan_model(&fx, SEED));
    sl_plan *p = fx.plan;
    for (int i = 0; i < p->step_count; i++) {
        sl_step *s = &p->steps[i];
        if (s->kind != SL_STEP_COPY || (s->when & SL_WHEN_SPECULATING) == 0 || s->wait_count == 0) continue;
        const int waits = s->wait_count;
        s->wait_count = 0;
        found += sl_plan_verify(p) != SLUICE_OK;
        s->wait_count = waits;
    }
    CHECK(found > 0);
    CHECK_EQ(sl_plan_verify(p), SLUICE_OK);
    planned_free(&fx);
}
