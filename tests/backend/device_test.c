/* device_test.c: what every device promises: arenas, spans, streams, events, counters. */
#include "support/shared_memory.h"
#include "test.h"

#include <sys/wait.h>
#include <unistd.h>

#include "backend/backend.h"
#include "core/alloc.h"

static const sl_backend *const cpu = &sl_cpu_backend;

static sl_span span(sl_tier tier, uint64_t offset, uint64_t bytes)
{
    return (sl_span){ tier, offset, bytes };
}

static sl_span on_device(uint64_t offset, uint64_t bytes)
{
    return span(SL_TIER_DEVICE, offset, bytes);
}

static sl_span on_host(uint64_t offset, uint64_t bytes)
{
    return span(SL_TIER_HOST, offset, bytes);
}

/* NULL after a reported failure. */
static sl_device *open_device(const sl_backend *backend, uint64_t device_bytes, uint64_t host_bytes, bool guard)
{
    sl_device_options options = { .threads = 2, .isa = sl_isa_best(), .guard = guard };
    sl_device *d = NULL;
    if (backend->open(&options, &d) != SLUICE_OK || backend->reserve(d, SL_TIER_DEVICE, device_bytes) != SLUICE_OK ||
        backend->reserve(d, SL_TIER_HOST, host_bytes) != SLUICE_OK || backend->reserve_events(d, 8) != SLUICE_OK) {
        test_fail(__FILE__, __LINE__, "open: %s", sluice_error());
        backend->close(d);
        return NULL;
    }
    return d;
}

/* y = x * factor over `count` floats of the device. */
static sluice_status run_scale(const sl_backend *backend, sl_device *d, uint64_t x, uint64_t y, int64_t count,
                               float factor)
{
    sl_shape shape = { 1, { count } };
    sl_attrs attrs = { .scale = { factor } };
    sl_call call = { .op = SL_OP_SCALE, .attrs = &attrs, .input_count = 1, .output_count = 1, .name = "twice" };
    call.inputs[0] = on_device(x, (uint64_t)count * 4);
    call.outputs[0] = on_device(y, (uint64_t)count * 4);
    call.input_shapes[0] = call.output_shapes[0] = &shape;
    return backend->run(d, SL_STREAM_COMPUTE, &call);
}

TEST(memory_is_zero_and_poisoned_under_guard)
{
    uint32_t word[2] = { 1, 1 };
    for (int guard = 0; guard < 2; guard++) {
        sl_device *d = open_device(cpu, 1000, 8, guard != 0);
        REQUIRE(d != NULL);
        REQUIRE_OK(cpu->download(d, word, on_device(992, 8)));
        CHECK(word[0] == (guard ? 0xffffffffu : 0u) && word[1] == word[0]);
        REQUIRE_OK(cpu->synchronize(d));
        cpu->close(d);
    }
}

TEST(several_threads_store_and_read_at_a_time)
{
    sl_device *d = open_device(cpu, SHARED_TASKS * SHARED_BYTES, SHARED_TASKS * SHARED_BYTES, true);
    sl_pool *pool;
    REQUIRE(d != NULL);
    REQUIRE_OK(sl_pool_create(5, &pool));
    for (int tier = SL_TIER_DEVICE; tier <= SL_TIER_HOST; tier++) {
        shared_memory m = { cpu, d, (sl_tier)tier };
        REQUIRE_OK(sl_pool_try(pool, store_and_read, &m, SHARED_TASKS));
    }
    sl_device_stats stats;
    cpu->stats(d, &stats);
    CHECK_EQ(stats.observed_peak[SL_TIER_HOST], SHARED_TASKS * SHARED_BYTES);
    CHECK(cpu->pool(d) != NULL && sl_pool_threads(cpu->pool(d)) == 2);
    CHECK_EQ(cpu->store(d, on_host(SHARED_TASKS * SHARED_BYTES, 4), &stats), SLUICE_ERR_FAILED);
    sl_pool_destroy(pool);
    cpu->close(d);
}

TEST(a_large_arena_can_be_written_to_its_last_byte)
{
    const uint64_t bytes = ((uint64_t)20 << 20) + 4096 + 12;
    float x = 2.5f, y = 0.0f;
    sl_device *d = open_device(cpu, bytes, 0, false);
    REQUIRE(d != NULL);
    REQUIRE_OK(cpu->upload(d, SL_STREAM_COMPUTE, on_device(bytes - 4, 4), &x));
    REQUIRE_OK(cpu->download(d, &y, on_device(bytes - 4, 4)));
    CHECK(y == x);
    cpu->close(d);
}

TEST(a_span_beyond_its_arena_is_refused_with_names_and_sizes)
{
    const sl_backend *backends[] = { &sl_cpu_backend, &sl_null_backend };
    for (int i = 0; i < 2; i++) {
        const sl_backend *b = backends[i];
        sl_device_stats stats;
        float x[8] = { 0 };
        sl_device *d = open_device(b, 1024, 512, true);
        REQUIRE(d != NULL);
        CHECK_EQ(run_scale(b, d, 0, 1024 - 60, 16, 2.0f), SLUICE_ERR_FAILED);
        CHECK_CONTAINS(sluice_error(), "scale twice: output 0 is 64 bytes at offset 964 of the device tier");
        CHECK_CONTAINS(sluice_error(), "1024 bytes");
        CHECK_EQ(b->copy(d, SL_STREAM_TO_HOST, on_host(512, 4), on_device(0, 4)), SLUICE_ERR_FAILED);
        CHECK_EQ(b->copy(d, SL_STREAM_TO_HOST, on_host(UINT64_MAX - 3, 4), on_device(0, 4)), SLUICE_ERR_FAILED);
        CHECK_EQ(b->copy(d, SL_STREAM_TO_HOST, on_host(0, 8), on_device(0, 4)), SLUICE_ERR_FAILED);
        CHECK_EQ(b->copy(d, SL_STREAM_COMPUTE, on_device(4, 8), on_device(0, 8)), SLUICE_ERR_FAILED);
        CHECK_EQ(b->upload(d, SL_STREAM_COMPUTE, on_device(1020, 8), x), SLUICE_ERR_FAILED);
        CHECK_EQ(b->download(d, x, span(SL_TIER_COUNT, 0, 8)), SLUICE_ERR_FAILED);
        CHECK_EQ(b->record(d, SL_STREAM_COMPUTE, 8), SLUICE_ERR_FAILED);
        CHECK_EQ(b->wait(d, SL_STREAM_COMPUTE, -1), SLUICE_ERR_FAILED);
        CHECK_EQ(b->reserve(d, SL_TIER_HOST, 1), SLUICE_ERR_FAILED);
        b->stats(d, &stats);
        CHECK_EQ(stats.observed_peak[SL_TIER_DEVICE], 0);
        CHECK_EQ(stats.kernel_calls + stats.copy_calls, 0);
        b->close(d);
    }
}

TEST(a_shape_larger_than_its_span_is_refused)
{
    sl_shape large = { 1, { 5 } };
    sl_attrs attrs = { .scale = { 2.0f } };
    sl_call call = { .op = SL_OP_SCALE, .attrs = &attrs, .input_count = 1, .output_count = 1, .name = "s" };
    sl_device *d = open_device(cpu, 1024, 0, true);
    REQUIRE(d != NULL);
    call.inputs[0] = on_device(0, 20);
    call.outputs[0] = on_device(256, 16);
    call.input_shapes[0] = call.output_shapes[0] = &large;
    CHECK_EQ(cpu->run(d, SL_STREAM_COMPUTE, &call), SLUICE_ERR_FAILED);
    CHECK_CONTAINS(sluice_error(), "output 0 needs 20 bytes, its span has 16");
    call.input_forms[0] = call.output_forms[0] = SL_FORM_BF16;
    CHECK_EQ(cpu->run(d, SL_STREAM_COMPUTE, &call), SLUICE_OK);
    call.outputs[0].bytes = 8;
    CHECK_EQ(cpu->run(d, SL_STREAM_COMPUTE, &call), SLUICE_ERR_FAILED);
    CHECK_CONTAINS(sluice_error(), "output 0 needs 10 bytes, its span has 8");
    call.output_forms[0] = SL_FORM_COUNT;
    CHECK_EQ(cpu->run(d, SL_STREAM_COMPUTE, &call), SLUICE_ERR_FAILED);
    CHECK_CONTAINS(sluice_error(), "output 0 has no form");
    cpu->close(d);
}

/* The same work on both backends: the counters must not depend on anything being computed. */
static void count_some_work(const sl_backend *b, sl_device_stats *stats)
{
    float x[16] = { 1.0f };
    sl_device *d = open_device(b, 4096, 2048, false);
    REQUIRE(d != NULL);
    REQUIRE_OK(b->upload(d, SL_STREAM_COMPUTE, on_host(256, 64), x));
    REQUIRE_OK(b->copy(d, SL_STREAM_TO_DEVICE, on_device(512, 64), on_host(256, 64)));
    REQUIRE_OK(b->record(d, SL_STREAM_TO_DEVICE, 0));
    REQUIRE_OK(b->wait(d, SL_STREAM_COMPUTE, 0));
    REQUIRE_OK(run_scale(b, d, 512, 1024, 16, 2.0f));
    REQUIRE_OK(b->copy(d, SL_STREAM_TO_HOST, on_host(1024, 32), on_device(1024, 32)));
    REQUIRE_OK(b->copy(d, SL_STREAM_COMPUTE, on_device(1536, 64), on_device(1024, 64)));
    REQUIRE_OK(b->synchronize(d));
    REQUIRE_OK(b->download(d, x, on_host(1024, 64)));
    b->stats(d, stats);
    b->close(d);
}

/* A workspace at the end of the arena is memory that a kernel was handed. */
TEST(the_workspace_of_a_kernel_counts_in_the_peak_and_is_checked)
{
    const sl_backend *backends[] = { &sl_cpu_backend, &sl_null_backend };
    const sl_attrs attrs = { .scale = { 2.0f } };
    const sl_shape shape = { 1, { 16 } };
    static const sl_run_context context = { .training = true };
    for (int i = 0; i < 2; i++) {
        sl_device_stats stats;
        sl_device *d = open_device(backends[i], 1024, 512, true);
        REQUIRE(d != NULL);
        sl_call c = { .op = SL_OP_SCALE, .attrs = &attrs, .context = &context, .name = "twice" };
        c.input_count = c.output_count = 1;
        c.inputs[0] = on_device(0, 64);
        c.outputs[0] = on_device(64, 64);
        c.input_shapes[0] = c.output_shapes[0] = &shape;
        c.workspace = on_device(1000, 32);
        CHECK_EQ(backends[i]->run(d, SL_STREAM_COMPUTE, &c), SLUICE_ERR_FAILED);
        CHECK_CONTAINS(sluice_error(), "scale twice: workspace 0 is 32 bytes at offset 1000 of the device tier");
        c.workspace = on_device(768, 128);
        REQUIRE_OK(backends[i]->run(d, SL_STREAM_COMPUTE, &c));
        REQUIRE_OK(backends[i]->synchronize(d));
        backends[i]->stats(d, &stats);
        CHECK_EQ(stats.observed_peak[SL_TIER_DEVICE], 896);
        backends[i]->close(d);
    }
}

TEST(both_backends_count_the_same_spans_and_moves)
{
    sl_device_stats c = { 0 }, n = { 0 };
    count_some_work(&sl_cpu_backend, &c);
    count_some_work(&sl_null_backend, &n);
    CHECK_EQ(c.observed_peak[SL_TIER_DEVICE], 1600);
    CHECK_EQ(c.observed_peak[SL_TIER_HOST], 1088);
    CHECK_EQ(c.moved[SL_LINK_TO_DEVICE], 64);
    CHECK_EQ(c.moved[SL_LINK_TO_HOST], 32);
    CHECK_EQ(c.kernel_calls, 1);
    CHECK_EQ(c.copy_calls, 3);
    CHECK(memcmp(&c, &n, sizeof c) == 0);
}

TEST(the_null_backend_reserves_no_memory)
{
    sl_device *d = open_device(&sl_null_backend, (uint64_t)1 << 60, (uint64_t)1 << 60, false);
    REQUIRE(d != NULL);
    REQUIRE_OK(sl_null_backend.copy(d, SL_STREAM_TO_DEVICE, on_device((uint64_t)1 << 59, 4096), on_host(0, 4096)));
    sl_null_backend.close(d);
}

/* One lap of a pipeline over slot s: host -> device, times two, device -> host. Six events keep the laps apart. */
enum { SLOT_FLOATS = 4096, SLOT_BYTES = SLOT_FLOATS * 4, LAPS = 3000 };

static void pipeline_lap(sl_device *d, int lap)
{
    int s = lap % 2, ready = s, done = 2 + s, gone = 4 + s;
    uint64_t in = (uint64_t)s * SLOT_BYTES, out = (uint64_t)(2 + s) * SLOT_BYTES;
    sl_span source = on_host((uint64_t)(lap % 4) * SLOT_BYTES, SLOT_BYTES);
    sl_span target = on_host((uint64_t)(4 + lap % 4) * SLOT_BYTES, SLOT_BYTES);
    REQUIRE_OK(cpu->wait(d, SL_STREAM_TO_DEVICE, done)); /* the kernel of the lap before last has read the slot */
    REQUIRE_OK(cpu->copy(d, SL_STREAM_TO_DEVICE, on_device(in, SLOT_BYTES), source));
    REQUIRE_OK(cpu->record(d, SL_STREAM_TO_DEVICE, ready));
    REQUIRE_OK(cpu->wait(d, SL_STREAM_COMPUTE, ready));
    REQUIRE_OK(cpu->wait(d, SL_STREAM_COMPUTE, gone)); /* its result has left */
    REQUIRE_OK(run_scale(cpu, d, in, out, SLOT_FLOATS, (float)(lap + 1)));
    REQUIRE_OK(cpu->record(d, SL_STREAM_COMPUTE, done));
    REQUIRE_OK(cpu->wait(d, SL_STREAM_TO_HOST, done));
    REQUIRE_OK(cpu->copy(d, SL_STREAM_TO_HOST, target, on_device(out, SLOT_BYTES)));
    REQUIRE_OK(cpu->record(d, SL_STREAM_TO_HOST, gone));
}

TEST(events_order_copies_against_kernels)
{
    static float slot[SLOT_FLOATS];
    sl_device *d = open_device(cpu, 4 * SLOT_BYTES, 8 * SLOT_BYTES, true);
    sl_alloc_stats before, after;
    REQUIRE(d != NULL);
    for (int s = 0; s < 4; s++) {
        for (int i = 0; i < SLOT_FLOATS; i++) slot[i] = (float)(s * 7 + i % 5);
        REQUIRE_OK(cpu->upload(d, SL_STREAM_COMPUTE, on_host((uint64_t)s * SLOT_BYTES, SLOT_BYTES), slot));
    }
    sl_alloc_get_stats(&before);
    for (int lap = 0; lap < LAPS; lap++) {
        pipeline_lap(d, lap);
        if (lap % 97 != 3) continue; /* the newest result, without waiting for anything else */
        REQUIRE_OK(cpu->synchronize(d));
        REQUIRE_OK(cpu->download(d, slot, on_host((uint64_t)(4 + lap % 4) * SLOT_BYTES, SLOT_BYTES)));
        for (int i = 0; i < SLOT_FLOATS; i++) CHECK(slot[i] == (float)(lap % 4 * 7 + i % 5) * (float)(lap + 1));
    }
    REQUIRE_OK(cpu->synchronize(d));
    sl_alloc_get_stats(&after);
    CHECK_EQ(after.total_count - before.total_count, 0);
    cpu->close(d);
}

TEST(a_copy_stream_does_not_pass_an_event_of_the_other)
{
    const uint64_t large = (uint64_t)8 << 20;
    float x = 3.0f, y = 0.0f;
    sl_device *d = open_device(cpu, large + 8192, large, false);
    REQUIRE(d != NULL);
    for (int i = 0; i < 600; i++) { /* more than a ring holds */
        x = (float)i;
        REQUIRE_OK(cpu->upload(d, SL_STREAM_COMPUTE, on_host(0, 4), &x));
        if (i % 100 == 0)
            REQUIRE_OK(cpu->copy(d, SL_STREAM_TO_DEVICE, on_device(4096, large - 4096), on_host(4096, large - 4096)));
        REQUIRE_OK(cpu->copy(d, SL_STREAM_TO_DEVICE, on_device(0, 4), on_host(0, 4)));
        REQUIRE_OK(cpu->record(d, SL_STREAM_TO_DEVICE, 0));
        REQUIRE_OK(cpu->wait(d, SL_STREAM_TO_HOST, 0));
        REQUIRE_OK(cpu->copy(d, SL_STREAM_TO_HOST, on_host(256, 4), on_device(0, 4)));
        REQUIRE_OK(cpu->synchronize(d));
        REQUIRE_OK(cpu->download(d, &y, on_host(256, 4)));
        CHECK(y == x);
    }
    cpu->close(d);
}

TEST(more_work_than_a_ring_holds_makes_the_submitter_wait)
{
    float x = 1.0f, y = 0.0f;
    sl_device *d = open_device(cpu, 1 << 16, 1 << 16, false);
    REQUIRE(d != NULL);
    REQUIRE_OK(cpu->upload(d, SL_STREAM_COMPUTE, on_host(0, 4), &x));
    for (int i = 0; i < 5000; i++) {
        REQUIRE_OK(cpu->copy(d, SL_STREAM_TO_DEVICE, on_device((uint64_t)(i + 1) % 10000 * 4, 4), on_host(0, 4)));
        REQUIRE_OK(cpu->record(d, i % 2 ? SL_STREAM_TO_DEVICE : SL_STREAM_TO_HOST, 1));
        REQUIRE_OK(cpu->wait(d, SL_STREAM_TO_HOST, 1));
    }
    REQUIRE_OK(cpu->synchronize(d));
    REQUIRE_OK(cpu->download(d, &y, on_device(5000 * 4, 4)));
    CHECK(y == 1.0f);
    cpu->close(d);
}

/* A weight gradient of [4, in] floats at `at`, declared as one float: the device cannot know better, and the kernel
 * writes 16 * in bytes. This is the kind of mistake that guards are there to catch. */
static sluice_status write_too_much(sl_device *d, uint64_t at, int64_t in)
{
    sl_shape dy = { 2, { 1, 4 } }, x = { 2, { 1, in } }, one = { 1, { 1 } };
    sl_attrs attrs = { 0 };
    sl_call call = {
        .op = SL_OP_LINEAR_GRAD_WEIGHT, .attrs = &attrs, .input_count = 2, .output_count = 1, .name = "wrong"
    };
    call.inputs[0] = on_device(0, 16);
    call.inputs[1] = on_device(256, (uint64_t)in * 4);
    call.outputs[0] = on_device(at, 4);
    call.input_shapes[0] = &dy;
    call.input_shapes[1] = &x;
    call.output_shapes[0] = &one;
    return cpu->run(d, SL_STREAM_COMPUTE, &call);
}

static int child_status(uint64_t at)
{
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        if (freopen("/dev/null", "w", stderr) == NULL) _exit(2);
        sl_device_options options = { .threads = 1, .isa = sl_isa_best(), .guard = true };
        sl_device *d;
        if (cpu->open(&options, &d) != SLUICE_OK || cpu->reserve(d, SL_TIER_DEVICE, 8192) != SLUICE_OK) _exit(0);
        _exit(write_too_much(d, at, 16) == SLUICE_OK ? 3 : 0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return status;
}

TEST(a_kernel_that_leaves_the_arena_dies_on_a_guard_page)
{
    int status = child_status(8192 - 256);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 3);
    status = child_status(8192 - 252);
    /* a sanitizer turns the signal into an exit of its own */
    CHECK(WIFSIGNALED(status) || (WIFEXITED(status) && WEXITSTATUS(status) != 0 && WEXITSTATUS(status) != 3));
}

TEST(a_write_just_behind_the_arena_is_reported)
{
    sl_device *d = open_device(cpu, 1024 + 32, 0, true);
    REQUIRE(d != NULL);
    REQUIRE_OK(write_too_much(d, 1024, 2));
    REQUIRE_OK(cpu->synchronize(d));
    REQUIRE_OK(write_too_much(d, 1024, 3));
    CHECK_EQ(cpu->synchronize(d), SLUICE_ERR_FAILED);
    CHECK_CONTAINS(sluice_error(), "outside the device arena of 1056 bytes");
    cpu->close(d);
}

TEST(a_device_supports_every_op_and_never_runs_a_reshape)
{
    sl_call call = { .op = SL_OP_RESHAPE, .name = "view" };
    for (int op = 0; op < SL_OP_COUNT; op++) CHECK(cpu->supports((sl_op)op));
    CHECK(!cpu->supports(SL_OP_COUNT));
    sl_device *d = open_device(cpu, 256, 0, false);
    REQUIRE(d != NULL);
    CHECK_EQ(cpu->run(d, SL_STREAM_COMPUTE, &call), SLUICE_ERR_FAILED);
    CHECK_CONTAINS(sluice_error(), "no kernel");
    cpu->close(d);
}

TEST(opening_fails_cleanly_when_memory_runs_out)
{
    sl_device_options options = { .threads = 2, .isa = sl_isa_best() };
    sl_alloc_stats before, after;
    sl_device *d = NULL;
    sl_alloc_get_stats(&before);
    for (int64_t nth = 1;; nth++) {
        sl_alloc_fail_nth(nth, 0);
        sluice_status st = cpu->open(&options, &d);
        if (st == SLUICE_OK) break;
        CHECK_EQ(st, SLUICE_ERR_NO_MEMORY);
        REQUIRE(nth < 100);
    }
    sl_alloc_fail_nth(0, 0);
    cpu->close(d);
    sl_alloc_get_stats(&after);
    CHECK_EQ(after.live_count, before.live_count);
    options.isa = (sl_isa)99;
    CHECK_EQ(cpu->open(&options, &d), SLUICE_ERR_USAGE);
    cpu->close(NULL);
}

TEST(an_arena_that_cannot_be_had_is_refused_with_its_size)
{
    sl_device_options options = { .threads = 1, .isa = SL_ISA_SCALAR };
    sl_device *d;
    REQUIRE_OK(cpu->open(&options, &d));
    CHECK_EQ(cpu->reserve(d, SL_TIER_DEVICE, (uint64_t)1 << 60), SLUICE_ERR_NO_MEMORY);
    CHECK_CONTAINS(sluice_error(), "device arena needs 1152921504606846976 bytes");
    CHECK_EQ(cpu->upload(d, SL_STREAM_COMPUTE, on_device(0, 4), &options), SLUICE_ERR_FAILED);
    CHECK_EQ(cpu->reserve(d, SL_TIER_COUNT, 1), SLUICE_ERR_FAILED);
    cpu->close(d);
}
