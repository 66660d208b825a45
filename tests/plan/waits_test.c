/* waits_test.c: waits are derived on two rounds of a training step. */
#include "core/alloc.h"
#include "plan/passes.h"
#include "test.h"

enum { WEIGHTS, GRADIENT, HOST_GRADIENT, HOST_WEIGHTS, BUFFERS };
enum { STEPS = 5 };

/* The example at the top of waits.c: one layer that is updated on the host. */
static sl_plan *example(void)
{
    static const struct {
        sl_tier tier;
        bool permanent;
        int first, last;
        uint64_t offset;
    } buffers[BUFFERS] = {
        [WEIGHTS] = { SL_TIER_DEVICE, true, 0, 0, 0 },
        [GRADIENT] = { SL_TIER_DEVICE, false, 1, 2, 256 },
        [HOST_GRADIENT] = { SL_TIER_HOST, false, 2, 3, 256 },
        [HOST_WEIGHTS] = { SL_TIER_HOST, true, 0, 0, 0 },
    };
    static const struct {
        sl_step_kind kind;
        sl_stream stream;
        int in, out;
    } steps[STEPS] = {
        { SL_STEP_COMPUTE, SL_STREAM_COMPUTE, WEIGHTS, -1 },
        { SL_STEP_COMPUTE, SL_STREAM_COMPUTE, -1, GRADIENT },
        { SL_STEP_COPY, SL_STREAM_TO_HOST, GRADIENT, HOST_GRADIENT },
        { SL_STEP_UPDATE, SL_STREAM_UPDATE, HOST_GRADIENT, HOST_WEIGHTS },
        { SL_STEP_COPY, SL_STREAM_TO_DEVICE, HOST_WEIGHTS, WEIGHTS },
    };
    sl_plan *p = sl_alloc(sizeof *p, "test: plan");
    for (int i = 0; i < BUFFERS; i++) {
        sl_buffer b = { .tier = buffers[i].tier,
                        .bytes = 256,
                        .first = buffers[i].first,
                        .last = buffers[i].last,
                        .permanent = buffers[i].permanent,
                        .offset = buffers[i].offset };
        CHECK_EQ(sl_plan_add_buffer(p, &b), i);
    }
    for (int i = 0; i < STEPS; i++) {
        sl_step s = { .kind = steps[i].kind, .stream = steps[i].stream, .input_count = 1, .output_count = 1 };
        sl_piece pieces[2] = { { steps[i].in, 0, 256 }, { steps[i].out, 0, 256 } };
        CHECK_EQ(sl_plan_add_step(p, &s, pieces), SLUICE_OK);
    }
    for (int k = 0; k < SL_SEGMENT_COUNT; k++) p->segments[k].result_step = -1;
    p->segments[SL_SEGMENT_FORWARD].step_count = 1;
    p->segments[SL_SEGMENT_BACKWARD].first_step = 1;
    p->segments[SL_SEGMENT_BACKWARD].step_count = 2;
    p->segments[SL_SEGMENT_UPDATE].first_step = 3;
    p->segments[SL_SEGMENT_UPDATE].step_count = 2;
    return p;
}

TEST(the_forward_of_a_step_waits_for_the_weights_of_the_step_before_and_nothing_twice)
{
    static const int awaited[STEPS] = { 4, -1, 1, 2, 3 };
    sl_plan *p = example();
    REQUIRE_OK(sl_plan_waits(p));
    for (int i = 0; i < STEPS; i++) {
        const sl_step *s = &p->steps[i];
        CHECK_EQ(s->wait_count, awaited[i] >= 0);
        if (s->wait_count > 0) CHECK_EQ(p->waits[s->first_wait], awaited[i]);
    }
    CHECK_EQ(p->event_count, 4); /* nobody waits for forward */
    CHECK_EQ(p->steps[0].event, -1);
    sl_plan_destroy(p);
}
