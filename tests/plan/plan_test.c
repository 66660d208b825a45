/* plan_test.c: what the passes decide. */
#include <limits.h>

#include "core/alloc.h"
#include "core/bytes.h"
#include "support/planned.h"
#include "test.h"

#define SEED 4212 /* a transformer of five blocks with a tied embedding */

TEST(every_offset_is_a_multiple_of_256_and_permanent_buffers_lie_lowest)
{
    planned fx = { 0 };
    plan_options_default(&fx.options);
    REQUIRE_OK(plan_model(&fx, SEED));
    uint64_t permanents_end = 0;
    for (int i = 0; i < fx.plan->buffer_count; i++) {
        const sl_buffer *b = &fx.plan->buffers[i];
        CHECK_EQ(b->offset % SL_ALIGNMENT, 0);
        if (b->permanent && b->tier == SL_TIER_DEVICE && b->offset + b->bytes > permanents_end)
            permanents_end = b->offset + b->bytes;
    }
    for (int i = 0; i < fx.plan->buffer_count; i++)
        if (!fx.plan->buffers[i].permanent && fx.plan->buffers[i].tier == SL_TIER_DEVICE &&
            fx.plan->buffers[i].bytes > 0)
            CHECK(fx.plan->buffers[i].offset >= permanents_end);
    planned_free(&fx);
}

TEST(bytes_are_reused_when_lifetimes_allow)
{
    planned fx = { 0 };
    plan_options_default(&fx.options);
    REQUIRE_OK(plan_model(&fx, SEED));
    CHECK(fx.plan->totals.peak[SL_TIER_DEVICE] < fx.plan->totals.naive[SL_TIER_DEVICE]);
    CHECK_EQ(fx.plan->totals.copies, 0);
    CHECK(fx.plan->totals.copies_naive > 0);
    planned_free(&fx);
}

/* Host link per parameter and step: a gradient out and a weight in, and once the norm; parameters on the host also go
 * in for every forward and backward, except the last level, which stays from one to the other. */
TEST(moved_bytes_follow_the_formulas)
{
    planned fx = { 0 };
    plan_options_default(&fx.options);
    fx.options.evaluation = false;
    fx.options.state = SLUICE_PLACE_HOST;
    fx.options.parameters = SLUICE_PLACE_DEVICE;
    REQUIRE_OK(plan_model(&fx, SEED));
    uint64_t bytes = (uint64_t)sl_graph_parameter_elements(fx.graph) * sizeof(float);
    CHECK_EQ(fx.plan->totals.moved[SL_LINK_TO_HOST], bytes + sizeof(sl_norm_result));
    CHECK_EQ(fx.plan->totals.moved[SL_LINK_TO_DEVICE], bytes);
    planned_free(&fx);

    planned staged = { 0 };
    plan_options_default(&staged.options);
    staged.options.evaluation = false;
    staged.options.levels = 1;
    staged.options.state = staged.options.parameters = SLUICE_PLACE_HOST;
    REQUIRE_OK(plan_model(&staged, SEED));
    CHECK_EQ(staged.plan->totals.moved[SL_LINK_TO_HOST], bytes + sizeof(sl_norm_result));
    CHECK_EQ(staged.plan->totals.moved[SL_LINK_TO_DEVICE], bytes); /* one level: fetched once, kept for backward */
    planned_free(&staged);
}

/* Updates that take no norm and wait for none; *after: the layer of the last one before. Returns how many. */
static int count_early(const sl_plan *p, sl_segment_kind segment, int *after)
{
    int count = 0;
    for (int i = 0; i < p->segments[segment].step_count; i++) {
        const sl_step *s = &p->steps[p->segments[segment].first_step + i];
        if (s->kind != SL_STEP_UPDATE) continue;
        CHECK_EQ(p->pieces[s->first_piece + 1].buffer, -1);
        CHECK(s->layer < *after);
        for (int w = 0; w < s->wait_count; w++) CHECK(p->steps[p->waits[s->first_wait + w]].op != SL_OP_NORM_FINISH);
        *after = s->layer;
        count++;
    }
    return count;
}

/* Where nothing of the whole gradient decides about a step, a layer is updated during backward: of several micro-batches
 * that of the last one. */
TEST(early_updates_need_their_own_gradient_alone)
{
    for (int accumulation = 1; accumulation <= 2; accumulation++) {
        planned fx = { 0 };
        int after = INT_MAX;
        plan_options_default(&fx.options);
        fx.options.evaluation = false;
        fx.options.accumulation = accumulation;
        fx.options.state = SLUICE_PLACE_HOST;
        fx.options.parameters = SLUICE_PLACE_DEVICE;
        fx.options.early_updates = true;
        REQUIRE_OK(plan_model(&fx, SEED));
        int during = count_early(fx.plan, SL_SEGMENT_BACKWARD, &after);
        int behind = count_early(fx.plan, SL_SEGMENT_UPDATE, &after);
        CHECK_EQ(behind, 0); /* with the last micro-batch, too */
        CHECK(during > 2);
        planned_free(&fx);
    }
}

/* Updates on the host run on into the next step and read gradients and the norm until they end: what forward sends to
 * the host does not lie there, or it would wait for them. */
TEST(activations_on_their_way_to_the_host_do_not_wait_for_updates)
{
    planned fx = { 0 };
    int sent = 0;
    plan_options_default(&fx.options);
    fx.options.evaluation = false;
    fx.options.state = SLUICE_PLACE_HOST;
    fx.options.activations = SLUICE_ACTIVATIONS_OFFLOAD;
    REQUIRE_OK(plan_model(&fx, SEED));
    REQUIRE(fx.machine.copies_overlap);
    const sl_segment *forward = &fx.plan->segments[SL_SEGMENT_FORWARD];
    for (int i = forward->first_step; i < forward->first_step + forward->step_count; i++) {
        const sl_step *s = &fx.plan->steps[i];
        if (s->stream != SL_STREAM_TO_HOST) continue;
        for (int w = 0; w < s->wait_count; w++)
            CHECK(fx.plan->steps[fx.plan->waits[s->first_wait + w]].kind != SL_STEP_UPDATE);
        sent++;
    }
    CHECK(sent > 0);
    planned_free(&fx);
}

/* A gradient that was used up makes room for the next. */
TEST(updates_during_backward_need_less_room_for_gradients)
{
    uint64_t peak[2];
    for (int early = 0; early < 2; early++) {
        planned fx = { 0 };
        plan_options_default(&fx.options);
        fx.options.evaluation = false;
        fx.options.state = fx.options.parameters = SLUICE_PLACE_DEVICE;
        fx.options.early_updates = early == 1;
        REQUIRE_OK(plan_model(&fx, SEED));
        peak[early] = fx.plan->totals.peak[SL_TIER_DEVICE];
        planned_free(&fx);
    }
    CHECK(peak[1] < peak[0]);
}

TEST(state_bytes_are_weight_gradient_and_two_moments)
{
    planned fx = { 0 };
    plan_options_default(&fx.options);
    REQUIRE_OK(plan_model(&fx, SEED));
    uint64_t bytes = (uint64_t)sl_graph_parameter_elements(fx.graph) * sizeof(float);
    CHECK_EQ(fx.plan->totals.state_parameters, bytes);
    CHECK_EQ(fx.plan->totals.state_gradients, bytes);
    CHECK_EQ(fx.plan->totals.state_optimizer, 2 * bytes);
    planned_free(&fx);
}

TEST(half_of_the_state_goes_to_the_host_by_ratio)
{
    planned fx = { 0 };
    plan_options_default(&fx.options);
    fx.options.state = SLUICE_PLACE_HOST;
    fx.options.state_ratio = 0.5;
    fx.options.parameters = SLUICE_PLACE_DEVICE;
    REQUIRE_OK(plan_model(&fx, SEED));
    int trainable = 0;
    for (int i = 0; i < fx.graph->layer_count; i++) trainable += fx.plan->layers[i].gradient >= 0;
    CHECK(fx.plan->totals.host_state_layers > 0);
    CHECK(fx.plan->totals.host_state_layers < trainable);
    planned_free(&fx);
}

TEST(the_refusal_names_bytes_and_remedies)
{
    planned fx = { 0 };
    plan_options_default(&fx.options);
    fx.options.budget[SL_TIER_DEVICE] = 1000;
    fx.options.activations = SLUICE_ACTIVATIONS_KEEP;
    CHECK_EQ(plan_model(&fx, SEED), SLUICE_ERR_NO_FIT);
    CHECK_CONTAINS(sluice_error(), "memory.device has 1000 bytes");
    CHECK_CONTAINS(sluice_error(), "are missing");
    CHECK_CONTAINS(sluice_error(), "What would help: memory.device ");
    CHECK_CONTAINS(sluice_error(), "activation_checkpointing.mode \"auto\" needs memory.device ");
    planned_free(&fx);
}

TEST(the_refusal_names_every_setting_that_forbids_a_saving)
{
    planned fx = { 0 };
    plan_options_default(&fx.options);
    fx.options.budget[SL_TIER_DEVICE] = 1000;
    fx.options.budget[SL_TIER_HOST] = 0;
    fx.options.activations = SLUICE_ACTIVATIONS_KEEP;
    fx.options.state = fx.options.parameters = SLUICE_PLACE_DEVICE;
    CHECK_EQ(plan_model(&fx, SEED), SLUICE_ERR_NO_FIT);
    CHECK_CONTAINS(sluice_error(), "even with every permitted saving");
    CHECK(strstr(sluice_error(), "offload_") == NULL); /* where to: there is no host memory */
    fx.options.budget[SL_TIER_HOST] = 1 << 30;
    CHECK_EQ(sl_plan_create(fx.graph, &fx.machine, &fx.options, &fx.plan), SLUICE_ERR_NO_FIT);
    CHECK_CONTAINS(sluice_error(), "zero_optimization.offload_optimizer.device \"cpu\" needs memory.device ");
    CHECK_CONTAINS(sluice_error(), "zero_optimization.offload_param.device \"cpu\" needs memory.device ");
    CHECK_CONTAINS(sluice_error(), "activation_checkpointing.mode \"auto\" needs memory.device ");
    CHECK_CONTAINS(sluice_error(), "all of these need memory.device ");
    planned_free(&fx);
}

/* Bytes that were found and not told are part of something, and of a disk that is no machine's memory. */
TEST(a_disk_that_lacks_space_is_told_as_one)
{
    planned fx = { 0 };
    plan_options_default(&fx.options);
    fx.options.state = SLUICE_PLACE_DISK;
    fx.options.budget[SL_TIER_DISK] = 4096;
    for (int t = 0; t < SL_TIER_COUNT; t++) fx.options.automatic[t] = true;
    CHECK_EQ(plan_model(&fx, SEED), SLUICE_ERR_NO_FIT);
    CHECK_CONTAINS(sluice_error(), "memory.disk (auto: all there is) has 4096 bytes");
    CHECK_CONTAINS(sluice_error(), "What would help: folders (memory.disk_path) with more free space: a rank needs ");
    CHECK(strstr(sluice_error(), "cgroup") == NULL);
    planned_free(&fx);
    fx = (planned){ 0 };
    plan_options_default(&fx.options);
    fx.options.budget[SL_TIER_DEVICE] = fx.options.budget[SL_TIER_HOST] = 1024;
    for (int t = 0; t < SL_TIER_COUNT; t++) fx.options.automatic[t] = true;
    CHECK_EQ(plan_model(&fx, SEED), SLUICE_ERR_NO_FIT);
    CHECK_CONTAINS(sluice_error(), "What would help: a machine or a cgroup with more memory");
    planned_free(&fx);
}

TEST(tiers_that_share_one_memory_are_held_to_their_sum)
{
    planned fx = { 0 };
    plan_options_default(&fx.options);
    fx.options.state = fx.options.parameters = SLUICE_PLACE_HOST;
    fx.options.budget_together = 4096;
    CHECK_EQ(plan_model(&fx, SEED), SLUICE_ERR_NO_FIT);
    CHECK_CONTAINS(sluice_error(), "the memory this process may use has 4096 bytes");
    planned_free(&fx);
}

/* Transfers that a long kernel can cover are hidden; without overlap all of them are exposed. */
TEST(cost_exposes_transfers_only_where_compute_cannot_cover_them)
{
    double exposed[2];
    for (int overlap = 0; overlap < 2; overlap++) {
        planned fx = { 0 };
        plan_options_default(&fx.options);
        fx.options.parameters = fx.options.state = SLUICE_PLACE_HOST;
        REQUIRE_OK(plan_model(&fx, SEED));
        sl_plan *second = NULL;
        fx.machine.copies_overlap = overlap == 1;
        fx.machine.kernel_latency = 1e-3;
        fx.machine.link_latency = 1e-5;
        REQUIRE_OK(sl_plan_create(fx.graph, &fx.machine, &fx.options, &second));
        const sl_segment *s = &second->segments[SL_SEGMENT_BACKWARD];
        exposed[overlap] = s->exposed[SL_STREAM_TO_DEVICE];
        CHECK(s->busy[SL_STREAM_TO_DEVICE] > 0);
        if (overlap == 0) CHECK_NEAR(exposed[0], s->busy[SL_STREAM_TO_DEVICE], 1e-12);
        sl_plan_destroy(second);
        planned_free(&fx);
    }
    CHECK(exposed[1] < exposed[0]);
}

TEST(the_same_input_gives_the_same_plan)
{
    planned a = { 0 }, b = { 0 };
    plan_options_default(&a.options);
    a.options.budget[SL_TIER_DEVICE] = 200000; /* needs a search */
    b.options = a.options;
    REQUIRE_OK(plan_model(&a, SEED));
    REQUIRE_OK(plan_model(&b, SEED));
    REQUIRE(a.plan->step_count == b.plan->step_count && a.plan->buffer_count == b.plan->buffer_count);
    for (int i = 0; i < a.plan->buffer_count; i++) CHECK_EQ(a.plan->buffers[i].offset, b.plan->buffers[i].offset);
    planned_free(&a);
    planned_free(&b);
}

TEST(every_failing_allocation_while_planning_ends_cleanly)
{
    sl_alloc_stats before, after;
    bool done = false;
    sl_alloc_get_stats(&before);
    for (int64_t n = 1; !done && n < 5000; n++) {
        planned fx = { 0 };
        plan_options_default(&fx.options);
        sl_alloc_fail_nth(n, 0);
        sluice_status st = plan_model(&fx, SEED);
        sl_alloc_fail_nth(0, 0);
        CHECK(st == SLUICE_OK || st == SLUICE_ERR_NO_MEMORY);
        done = st == SLUICE_OK;
        planned_free(&fx);
    }
    CHECK(done);
    sl_alloc_get_stats(&after);
    CHECK_EQ(after.live_bytes, before.live_bytes);
}

/* A refusal plans again and again; of its many allocations some are tried. */
TEST(a_failing_allocation_while_refusing_ends_cleanly)
{
    sl_alloc_stats before, after;
    bool done = false;
    sl_alloc_get_stats(&before);
    for (int64_t n = 1; !done && n < 10000000; n += 1 + n / 3) {
        planned fx = { 0 };
        plan_options_default(&fx.options);
        fx.options.budget[SL_TIER_DEVICE] = 1000;
        sl_alloc_fail_nth(n, 0);
        sluice_status st = plan_model(&fx, SEED);
        sl_alloc_fail_nth(0, 0);
        CHECK(st == SLUICE_ERR_NO_FIT || st == SLUICE_ERR_NO_MEMORY);
        done = st == SLUICE_ERR_NO_FIT;
        planned_free(&fx);
    }
    CHECK(done);
    sl_alloc_get_stats(&after);
    CHECK_EQ(after.live_bytes, before.live_bytes);
}

TEST(the_printed_plan_names_memory_movement_and_time)
{
    planned fx = { 0 };
    char *text = NULL;
    size_t bytes = 0;
    plan_options_default(&fx.options);
    fx.options.parameters = SLUICE_PLACE_HOST;
    REQUIRE_OK(plan_model(&fx, SEED));
    FILE *f = open_memstream(&text, &bytes);
    REQUIRE(f != NULL);
    sl_plan_print(fx.plan, f);
    sl_plan_print_steps(fx.plan, f);
    fclose(f);
    const char *parts[] = { "parameters",      "optimizer state", "activations",
                            "arena",           "budget",          "outside the arenas",
                            "moved in a step", "expected step",   "exposed",
                            "forward",         "backward",        "copy" };
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) CHECK_CONTAINS(text, parts[i]);
    free(text);
    planned_free(&fx);
}

/* A line of the table that is not followed by others of it would stand under another heading. */
TEST(memory_outside_the_device_arena_stands_in_the_table_of_memory)
{
    planned fx = { 0 };
    char *text = NULL;
    size_t bytes = 0;
    plan_options_default(&fx.options);
    fx.options.device_overhead = UINT64_C(512) << 20;
    snprintf(fx.options.memory_note, sizeof fx.options.memory_note, "huge pages no");
    REQUIRE_OK(plan_model(&fx, SEED));
    FILE *f = open_memstream(&text, &bytes);
    REQUIRE(f != NULL);
    sl_plan_print(fx.plan, f);
    fclose(f);
    const char *outside = strstr(text, "\n  outside the arenas"), *device = strstr(text, "\n  outside, on the device");
    REQUIRE(outside != NULL && device != NULL);
    CHECK(strchr(outside + 1, '\n') == device);
    CHECK_CONTAINS(device, "512.00 MiB (driver and libraries)\nmemory: huge pages no\n");
    free(text);
    planned_free(&fx);
}

/* "Step" is a step of training everywhere else. */
TEST(the_printed_plan_counts_operations_not_steps)
{
    planned fx = { 0 };
    char *text = NULL, expected[64];
    size_t bytes = 0;
    plan_options_default(&fx.options);
    REQUIRE_OK(plan_model(&fx, SEED));
    FILE *f = open_memstream(&text, &bytes);
    REQUIRE(f != NULL);
    sl_plan_print(fx.plan, f);
    fclose(f);
    snprintf(expected, sizeof expected, "a step, %d operations\n", fx.plan->step_count);
    CHECK_CONTAINS(text, expected);
    CHECK(strstr(text, "steps") == NULL);
    free(text);
    planned_free(&fx);
}

/* ---- asked to stop ---- */

TEST(a_stop_ends_planning_at_once)
{
    int stop = 0;
    planned fx = { .plan = NULL };
    sl_plan *second = NULL;
    plan_options_default(&fx.options);
    fx.options.stop = &stop;
    REQUIRE_OK(plan_model(&fx, 3));
    stop = 15;
    CHECK_EQ(sl_plan_create(fx.graph, &fx.machine, &fx.options, &second), SLUICE_ERR_STOPPED);
    CHECK_CONTAINS(sluice_error(), "stopped by a signal while planning");
    CHECK_EQ(sl_plan_verify(fx.plan), SLUICE_ERR_STOPPED);
    fx.options.budget[SL_TIER_DEVICE] = 1000; /* what does not fit is not told of either */
    CHECK_EQ(sl_plan_create(fx.graph, &fx.machine, &fx.options, &second), SLUICE_ERR_STOPPED);
    stop = 0;
    CHECK_EQ(sl_plan_verify(fx.plan), SLUICE_OK);
    planned_free(&fx);
}

/* From the placement of nearly the same options, one is found that fits and is about as fast as by the whole search. */
TEST(a_search_near_a_placement_finds_what_the_whole_search_finds)
{
    planned fx = { 0 };
    sl_plan *whole = NULL, *near = NULL;
    plan_options_default(&fx.options);
    REQUIRE_OK(plan_model(&fx, SEED));
    fx.options.budget[SL_TIER_DEVICE] = fx.plan->totals.peak[SL_TIER_DEVICE] / 2;
    sl_plan_destroy(fx.plan);
    fx.plan = NULL;
    REQUIRE_OK(sl_plan_create(fx.graph, &fx.machine, &fx.options, &fx.plan));
    const sl_candidate from = fx.plan->placement;
    fx.options.prefetch = 2;
    REQUIRE_OK(sl_plan_attempt(fx.graph, &fx.machine, &fx.options, NULL, &whole, NULL));
    REQUIRE_OK(sl_plan_attempt(fx.graph, &fx.machine, &fx.options, &from, &near, NULL));
    CHECK(whole != NULL && near != NULL);
    if (whole != NULL && near != NULL) {
        CHECK(near->totals.peak[SL_TIER_DEVICE] <= fx.options.budget[SL_TIER_DEVICE]);
        CHECK_THAT(near->totals.step_seconds <= 1.05 * whole->totals.step_seconds, "%g s near it, %g s anywhere",
                   near->totals.step_seconds, whole->totals.step_seconds);
    }
    sl_plan_destroy(whole);
    sl_plan_destroy(near);
    planned_free(&fx);
}
