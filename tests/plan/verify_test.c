/* verify_test.c: the planner's own check finds every kind of fault that is planted in a good plan. */
#include "support/planned.h"
#include "test.h"

#define SEED 4212 /* a transformer of five blocks with a tied embedding */

typedef void (*fault)(sl_plan *p);

static int first_transient(const sl_plan *p, sl_tier tier)
{
    for (int i = 0; i < p->buffer_count; i++)
        if (!p->buffers[i].permanent && p->buffers[i].tier == tier && p->buffers[i].bytes > 0) return i;
    return -1;
}

static int first_step_with_wait(const sl_plan *p)
{
    for (int i = 0; i < p->step_count; i++)
        if (p->steps[i].wait_count > 0) return i;
    return -1;
}

static void misalign(sl_plan *p)
{
    p->buffers[first_transient(p, SL_TIER_DEVICE)].offset += 4;
}

static void past_the_peak(sl_plan *p)
{
    p->buffers[first_transient(p, SL_TIER_DEVICE)].offset = (p->totals.peak[SL_TIER_DEVICE] + 255) & ~(uint64_t)255;
}

static void over_budget(sl_plan *p)
{
    p->options.budget[SL_TIER_DEVICE] = p->totals.peak[SL_TIER_DEVICE] - 1;
}

/* Two buffers that live together at one address. */
static void overlap(sl_plan *p)
{
    for (int i = 0; i < p->buffer_count; i++)
        for (int j = 0; j < i; j++) {
            sl_buffer *a = &p->buffers[i], *b = &p->buffers[j];
            if (a->tier != b->tier || a->bytes == 0 || b->bytes < a->bytes || a->first > b->last || b->first > a->last)
                continue;
            a->offset = b->offset;
            return;
        }
}

static void read_before_write(sl_plan *p)
{
    for (int i = 0; i < p->step_count; i++)
        for (int k = p->steps[i].input_count; k < p->steps[i].input_count + p->steps[i].output_count; k++) {
            sl_piece *q = &p->pieces[p->steps[i].first_piece + k];
            if (q->buffer < 0 || p->buffers[q->buffer].permanent || p->buffers[q->buffer].last == i) continue;
            q->bytes = 0;
            return;
        }
}

static void operand_past_its_buffer(sl_plan *p)
{
    p->pieces[p->steps[0].first_piece].offset += 4;
}

static void used_after_death(sl_plan *p)
{
    p->buffers[first_transient(p, SL_TIER_DEVICE)].last--;
}

static void wait_for_later(sl_plan *p)
{
    int i = first_step_with_wait(p);
    p->waits[p->steps[i].first_wait] = i;
}

static void wait_for_nothing(sl_plan *p)
{
    int i = first_step_with_wait(p);
    p->steps[p->waits[p->steps[i].first_wait]].event = -1;
}

/* In order, but at the rates and on the queue of another link. */
static void copies_on_another_stream(sl_plan *p)
{
    for (int i = 0; i < p->step_count; i++)
        if (p->steps[i].kind == SL_STEP_COPY) p->steps[i].stream = SL_STREAM_COMPUTE;
}

TEST(verify_finds_planted_faults)
{
    static const fault faults[] = { misalign,          past_the_peak,           over_budget,      overlap,
                                    read_before_write, operand_past_its_buffer, used_after_death, wait_for_later,
                                    wait_for_nothing,  copies_on_another_stream };
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        planned fx = { 0 };
        plan_options_default(&fx.options);
        fx.options.parameters = fx.options.state = SLUICE_PLACE_HOST;
        fx.options.activations = SLUICE_ACTIVATIONS_OFFLOAD;
        REQUIRE_OK(plan_model(&fx, SEED));
        REQUIRE_OK(sl_plan_verify(fx.plan));
        faults[i](fx.plan);
        if (sl_plan_verify(fx.plan) == SLUICE_OK) test_fail(__FILE__, __LINE__, "fault %d was not found", (int)i);
        planned_free(&fx);
    }
}

/* Every single wait of the plan is necessary: without it, verify finds two unordered steps. */
TEST(no_wait_is_superfluous_and_each_missing_one_is_found)
{
    planned fx = { 0 };
    int checked = 0;
    plan_options_default(&fx.options);
    fx.options.parameters = fx.options.state = SLUICE_PLACE_HOST;
    fx.options.activations = SLUICE_ACTIVATIONS_OFFLOAD;
    REQUIRE_OK(plan_model(&fx, SEED));
    for (int i = 0; i < fx.plan->step_count; i++) {
        sl_step *s = &fx.plan->steps[i];
        if (s->wait_count != 1) continue;
        s->wait_count = 0;
        CHECK(sl_plan_verify(fx.plan) != SLUICE_OK);
        s->wait_count = 1;
        checked++;
    }
    CHECK(checked >= 10);
    planned_free(&fx);
}
