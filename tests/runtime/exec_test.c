/* exec_test.c: the executor does what the plan says, all of it and nothing else. */
#include "runtime/exec.h"

#include <string.h>

#include "model/model.h"
#include "support/planned.h"
#include "test.h"

#define SEED 4212 /* a transformer of five blocks with a tied embedding */

typedef struct running {
    planned fx;
    sl_comm *comm;
    sl_exec *exec;
} running;

static sluice_status start(running *r, const sl_backend *backend)
{
    sl_exec_options o = { .backend = backend, .device = { .threads = 1, .isa = sl_isa_best(), .guard = true } };
    SL_TRY(plan_model(&r->fx, SEED));
    SL_TRY(sl_comm_self_open(&r->comm));
    o.comm = r->comm;
    return sl_exec_create(r->fx.plan, &o, &r->exec);
}

static void stop(running *r)
{
    sl_exec_destroy(r->exec);
    if (r->comm != NULL) r->comm->ops->close(r->comm);
    planned_free(&r->fx);
}

static uint64_t steps_of_kind(const sl_plan *p, sl_segment_kind segment, bool copies)
{
    uint64_t n = 0;
    for (int i = 0; i < p->segments[segment].step_count; i++)
        n += (p->steps[p->segments[segment].first_step + i].kind == SL_STEP_COPY) == copies;
    return n;
}

TEST(every_step_of_a_segment_reaches_the_device_exactly_once)
{
    running r = { 0 };
    sl_run_context context = { .step = 1, .training = true };
    plan_options_default(&r.fx.options);
    r.fx.options.parameters = r.fx.options.state = SLUICE_PLACE_HOST;
    r.fx.options.activations = SLUICE_ACTIVATIONS_OFFLOAD;
    REQUIRE_OK(start(&r, &sl_null_backend));
    for (int k = 0; k < SL_SEGMENT_COUNT; k++) {
        sl_device_stats before, after;
        sl_exec_stats(r.exec, &before, NULL);
        REQUIRE_OK(sl_exec_run(r.exec, (sl_segment_kind)k, &context));
        sl_exec_stats(r.exec, &after, NULL);
        CHECK_EQ(after.kernel_calls - before.kernel_calls, steps_of_kind(r.fx.plan, (sl_segment_kind)k, false));
        CHECK_EQ(after.copy_calls - before.copy_calls, steps_of_kind(r.fx.plan, (sl_segment_kind)k, true));
        CHECK(after.copy_calls > 0);
    }
    stop(&r);
}

/* Every second copy of backward belongs to the last micro-batch. */
TEST(a_step_whose_condition_does_not_hold_does_nothing_and_is_still_waited_for)
{
    running r = { 0 };
    sl_run_context context = { .step = 1, .training = true };
    plan_options_default(&r.fx.options);
    r.fx.options.state = SLUICE_PLACE_HOST;
    REQUIRE_OK(start(&r, &sl_null_backend));
    const sl_segment *backward = &r.fx.plan->segments[SL_SEGMENT_BACKWARD];
    uint64_t conditional = 0, all = steps_of_kind(r.fx.plan, SL_SEGMENT_BACKWARD, true);
    for (int i = 0, copies = 0; i < backward->step_count; i++) {
        sl_step *s = &r.fx.plan->steps[backward->first_step + i];
        if (s->kind != SL_STEP_COPY || copies++ % 2 == 0) continue;
        s->when = SL_WHEN_LAST_MICRO;
        conditional++;
    }
    REQUIRE(conditional > 0 && conditional < all);
    for (int last = 0; last < 2; last++) {
        sl_device_stats before, after;
        sl_exec_hold(r.exec, last == 1 ? SL_WHEN_LAST_MICRO : SL_WHEN_SPECULATING);
        sl_exec_stats(r.exec, &before, NULL);
        REQUIRE_OK(sl_exec_run(r.exec, SL_SEGMENT_FORWARD, &context));
        REQUIRE_OK(sl_exec_run(r.exec, SL_SEGMENT_BACKWARD, &context));
        REQUIRE_OK(sl_exec_run(r.exec, SL_SEGMENT_UPDATE, &context));
        sl_exec_stats(r.exec, &after, NULL);
        uint64_t others = steps_of_kind(r.fx.plan, SL_SEGMENT_FORWARD, true) +
                          steps_of_kind(r.fx.plan, SL_SEGMENT_UPDATE, true) + all - conditional;
        CHECK_EQ(after.copy_calls - before.copy_calls, others + (last == 1 ? conditional : 0));
    }
    stop(&r);
}

TEST(bytes_counted_by_the_device_are_the_bytes_of_the_plan)
{
    running r = { 0 };
    sl_device_stats stats;
    sl_run_context context = { .step = 1, .training = true };
    plan_options_default(&r.fx.options);
    r.fx.options.parameters = r.fx.options.state = SLUICE_PLACE_HOST;
    r.fx.options.accumulation = 3;
    REQUIRE_OK(start(&r, &sl_null_backend));
    for (context.micro = 0; context.micro < 3; context.micro++) {
        REQUIRE_OK(sl_exec_run(r.exec, SL_SEGMENT_FORWARD, &context));
        REQUIRE_OK(sl_exec_run(r.exec, SL_SEGMENT_BACKWARD, &context));
    }
    REQUIRE_OK(sl_exec_run(r.exec, SL_SEGMENT_UPDATE, &context));
    sl_exec_stats(r.exec, &stats, NULL);
    CHECK_EQ(stats.moved[SL_LINK_TO_DEVICE], r.fx.plan->totals.moved[SL_LINK_TO_DEVICE]);
    CHECK_EQ(stats.moved[SL_LINK_TO_HOST], r.fx.plan->totals.moved[SL_LINK_TO_HOST]);
    stop(&r);
}

TEST(a_written_parameter_reaches_the_master_and_the_working_copy)
{
    running r = { 0 };
    plan_options_default(&r.fx.options);
    r.fx.options.state = SLUICE_PLACE_HOST;
    r.fx.options.parameters = SLUICE_PLACE_DEVICE;
    REQUIRE_OK(start(&r, &sl_cpu_backend));
    const sl_parameter *q = &r.fx.graph->parameters[0];
    const sl_layer_place *place = &r.fx.plan->layers[q->layer];
    REQUIRE(place->working >= 0 && place->working != place->master);
    float value = 3.5f, master = 0, working = 0;
    REQUIRE_OK(sl_exec_store(r.exec, 0, -1, 1, 1, &value));
    sl_piece piece = { place->master, (uint64_t)(q->offset + 1) * sizeof value, sizeof value };
    REQUIRE_OK(sl_exec_read(r.exec, sl_plan_span(r.fx.plan, piece), &master));
    piece.buffer = place->working;
    REQUIRE_OK(sl_exec_read(r.exec, sl_plan_span(r.fx.plan, piece), &working));
    CHECK(master == value);
    CHECK(working == value);
    stop(&r);
}

TEST(an_input_of_the_wrong_size_is_refused_by_name)
{
    running r = { 0 };
    char bytes[4] = { 0 };
    plan_options_default(&r.fx.options);
    REQUIRE_OK(start(&r, &sl_cpu_backend));
    int value = sl_graph_find_input(r.fx.graph, "target");
    REQUIRE(value >= 0);
    CHECK_EQ(sl_exec_set_input(r.exec, value, bytes, sizeof bytes - 1), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "input \"target\"");
    stop(&r);
}

static bool supports_no_attention(sl_op op)
{
    return op != SL_OP_ATTENTION;
}

TEST(a_missing_kernel_is_found_before_the_first_step)
{
    running r = { 0 };
    sl_backend lacking = sl_null_backend;
    lacking.supports = supports_no_attention;
    plan_options_default(&r.fx.options);
    CHECK_EQ(start(&r, &lacking), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "has no kernel for attention");
    stop(&r);
}

/* ---- inputs that are sent ahead ---- */

/* Calls of a backend that computes nothing, in their order: u: upload on the compute stream, a: ahead, w: compute waits. */
static char calls[64];

static void note_call(char call)
{
    const size_t n = strlen(calls);
    if (n + 1 < sizeof calls) calls[n] = call;
}

static sluice_status noted_upload(sl_device *d, sl_stream stream, sl_span dst, const void *src)
{
    note_call(stream == SL_STREAM_COMPUTE ? 'u' : stream == SL_STREAM_TO_DEVICE ? 'a' : '?');
    return sl_null_backend.upload(d, stream, dst, src);
}

static sluice_status noted_wait(sl_device *d, sl_stream stream, int event)
{
    note_call(stream == SL_STREAM_COMPUTE ? 'w' : '?');
    return sl_null_backend.wait(d, stream, event);
}

static void pin_nothing(sl_device *d, void *memory, size_t bytes)
{
    (void)d, (void)memory, (void)bytes;
}

/* An MLP in bf16: of its input backward needs what the cast made of it, its targets backward reads once more. */
static sluice_status start_mlp(running *r, sluice_dtype precision, const sl_backend *backend)
{
    static const sl_model_options mlp = { .type = "mlp",
                                          .batch = 4,
                                          .features = 8,
                                          .hidden = { 8 },
                                          .hidden_count = 1,
                                          .outputs = 8,
                                          .activation = "relu",
                                          .bias = true };
    sl_exec_options o = { .backend = backend, .device = { .threads = 1, .isa = sl_isa_best() } };
    sl_model_info info;
    plan_options_default(&r->fx.options);
    r->fx.precision = r->fx.wire = precision;
    SL_TRY(sluice_graph_create(&r->fx.graph));
    SL_TRY(sl_model_build(r->fx.graph, &mlp, &info));
    SL_TRY(plan_prepare(&r->fx));
    SL_TRY(sl_plan_create(r->fx.graph, &r->fx.machine, &r->fx.options, &r->fx.plan));
    SL_TRY(sl_comm_self_open(&r->comm));
    o.comm = r->comm;
    return sl_exec_create(r->fx.plan, &o, &r->exec);
}

static const char *calls_of_set(running *r, int value, const void *data)
{
    memset(calls, 0, sizeof calls);
    CHECK_EQ(sl_exec_set_input(r->exec, value, data, 32 * sizeof(float)), SLUICE_OK);
    return calls;
}

static const char *calls_of_send(running *r, int value, const void *data)
{
    memset(calls, 0, sizeof calls);
    CHECK_EQ(sl_exec_send_input(r->exec, value, data, 32 * sizeof(float)), SLUICE_OK);
    return calls;
}

TEST(an_input_that_only_forward_reads_is_sent_ahead_and_then_waited_for)
{
    sl_backend noted = sl_null_backend;
    running r = { 0 };
    float one[32] = { 0 }, other[32] = { 0 };
    noted.upload = noted_upload;
    noted.wait = noted_wait;
    noted.pin = pin_nothing;
    REQUIRE_OK(start_mlp(&r, SLUICE_BF16, &noted));
    int x = r.fx.graph->inputs[0], target = r.fx.graph->inputs[1];
    CHECK_STR(calls_of_send(&r, x, one), "a");
    CHECK_STR(calls_of_set(&r, x, one), "w");
    CHECK_STR(calls_of_set(&r, x, one), "u"); /* it was taken */
    CHECK_STR(calls_of_send(&r, x, one), "a");
    CHECK_STR(calls_of_set(&r, x, other), "wu"); /* which must not arrive before what was sent */
    CHECK_STR(calls_of_send(&r, x, one), "a");
    sl_exec_forget_sent(r.exec);
    CHECK_STR(calls_of_set(&r, x, one), "wu"); /* other numbers in the same place */
    CHECK_STR(calls_of_send(&r, target, one), "");
    CHECK_STR(calls_of_set(&r, target, one), "u");
    stop(&r);
}

TEST(an_input_that_backward_reads_is_not_sent_ahead)
{
    sl_backend noted = sl_null_backend;
    running r = { 0 };
    float one[32] = { 0 };
    noted.upload = noted_upload;
    noted.pin = pin_nothing;
    REQUIRE_OK(start_mlp(&r, SLUICE_F32, &noted));
    CHECK_STR(calls_of_send(&r, r.fx.graph->inputs[0], one), "");
    stop(&r);
}
