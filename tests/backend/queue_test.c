/* queue_test.c: host work on streams, addresses for it, and arenas that other processes see. */
#include "test.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/backend.h"
#include "core/alloc.h"

static const sl_backend *const cpu = &sl_cpu_backend;
static const sl_backend *const both[] = { &sl_cpu_backend, &sl_null_backend };

static sl_span on_device(uint64_t offset, uint64_t bytes)
{
    return (sl_span){ SL_TIER_DEVICE, offset, bytes };
}

static sl_span on_host(uint64_t offset, uint64_t bytes)
{
    return (sl_span){ SL_TIER_HOST, offset, bytes };
}

/* NULL after a reported failure. */
static sl_device *open_device(const sl_backend *backend, sl_device_options options, uint64_t bytes)
{
    sl_device *d = NULL;
    options.threads = 2;
    options.isa = sl_isa_best();
    if (backend->open(&options, &d) == SLUICE_OK && backend->reserve(d, SL_TIER_DEVICE, bytes) == SLUICE_OK &&
        backend->reserve(d, SL_TIER_HOST, bytes) == SLUICE_OK && backend->reserve_events(d, 4) == SLUICE_OK)
        return d;
    test_fail(__FILE__, __LINE__, "open: %s", sluice_error());
    backend->close(d);
    return NULL;
}

/* ---- host work ---- */

/* *to = *from + 1; the device gave both addresses. */
typedef struct increment {
    const float *from;
    float *to;
} increment;

static sluice_status add_one(void *user)
{
    increment *i = user;
    *i->to = *i->from + 1.0f;
    return SLUICE_OK;
}

/* One lap over four streams: caller's kernel-side word -> comm -> to-host copy -> to-device work -> caller. Each leg
 * waits for the one before, so a lap adds two. */
static void lap(sl_device *d, increment *on_comm, increment *on_way_back)
{
    REQUIRE_OK(cpu->record(d, SL_STREAM_COMPUTE, 0));
    REQUIRE_OK(cpu->wait(d, SL_STREAM_COMM, 0));
    REQUIRE_OK(cpu->submit(d, SL_STREAM_COMM, add_one, on_comm));
    REQUIRE_OK(cpu->record(d, SL_STREAM_COMM, 1));
    REQUIRE_OK(cpu->wait(d, SL_STREAM_TO_HOST, 1));
    REQUIRE_OK(cpu->copy(d, SL_STREAM_TO_HOST, on_host(0, 4), on_device(256, 4)));
    REQUIRE_OK(cpu->record(d, SL_STREAM_TO_HOST, 2));
    REQUIRE_OK(cpu->wait(d, SL_STREAM_TO_DEVICE, 2));
    REQUIRE_OK(cpu->submit(d, SL_STREAM_TO_DEVICE, add_one, on_way_back));
    REQUIRE_OK(cpu->record(d, SL_STREAM_TO_DEVICE, 3));
    REQUIRE_OK(cpu->wait(d, SL_STREAM_COMPUTE, 3));
}

TEST(submitted_work_is_ordered_with_copies_and_events_over_streams)
{
    void *start, *sent, *arrived;
    float zero = 0.0f, last = 0.0f;
    sl_alloc_stats before, after;
    sl_device *d = open_device(cpu, (sl_device_options){ .guard = true }, 1024);
    REQUIRE(d != NULL);
    REQUIRE_OK(cpu->upload(d, SL_STREAM_COMPUTE, on_device(0, 4), &zero));
    REQUIRE_OK(cpu->resolve(d, "start", on_device(0, 4), &start));
    REQUIRE_OK(cpu->resolve(d, "sent", on_device(256, 4), &sent));
    REQUIRE_OK(cpu->resolve(d, "arrived", on_host(0, 4), &arrived));
    increment on_comm = { start, sent }, on_way_back = { arrived, start };
    sl_alloc_get_stats(&before);
    for (int i = 0; i < 1000; i++) lap(d, &on_comm, &on_way_back);
    sl_alloc_get_stats(&after);
    CHECK_EQ(after.total_count - before.total_count, 0);
    REQUIRE_OK(cpu->synchronize(d));
    REQUIRE_OK(cpu->download(d, &last, on_device(0, 4)));
    CHECK(last == 2000.0f);
    cpu->close(d);
}

TEST(work_on_a_queued_stream_runs_in_order_and_is_done_when_synchronized)
{
    static const sl_stream streams[] = { SL_STREAM_TO_DEVICE, SL_STREAM_TO_HOST, SL_STREAM_COMM, SL_STREAM_COMPUTE };
    sl_device *d = open_device(cpu, (sl_device_options){ 0 }, 1024);
    REQUIRE(d != NULL);
    for (int s = 0; s < 4; s++) {
        float sum = 0.0f;
        increment add = { &sum, &sum };
        for (int i = 0; i < 700; i++) REQUIRE_OK(cpu->submit(d, streams[s], add_one, &add)); /* a ring holds fewer */
        REQUIRE_OK(cpu->synchronize(d));
        CHECK(sum == 700.0f);
    }
    cpu->close(d);
}

TEST(work_of_the_update_stream_runs_at_once)
{
    for (int b = 0; b < 2; b++) {
        float sum = 0.0f;
        increment add = { &sum, &sum };
        sl_device *d = open_device(both[b], (sl_device_options){ 0 }, 1024);
        REQUIRE(d != NULL);
        REQUIRE_OK(both[b]->submit(d, SL_STREAM_UPDATE, add_one, &add));
        CHECK(sum == 1.0f);
        CHECK_EQ(both[b]->submit(d, SL_STREAM_COUNT, add_one, &add), SLUICE_ERR_FAILED);
        both[b]->close(d);
    }
}

TEST(kernels_and_copies_on_the_comm_stream_come_after_its_work)
{
    float x[2] = { 5.0f, 0.0f };
    void *p;
    sl_shape shape = { 1, { 1 } };
    sl_attrs attrs = { .scale = { 3.0f } };
    sl_call call = { .op = SL_OP_SCALE, .attrs = &attrs, .input_count = 1, .output_count = 1, .name = "s" };
    sl_device *d = open_device(cpu, (sl_device_options){ 0 }, 1024);
    REQUIRE(d != NULL);
    call.inputs[0] = on_device(0, 4);
    call.outputs[0] = on_device(256, 4);
    call.input_shapes[0] = call.output_shapes[0] = &shape;
    REQUIRE_OK(cpu->upload(d, SL_STREAM_COMPUTE, on_device(0, 4), x));
    REQUIRE_OK(cpu->resolve(d, "x", on_device(0, 4), &p));
    increment add = { p, p };
    for (int i = 0; i < 100; i++) REQUIRE_OK(cpu->submit(d, SL_STREAM_COMM, add_one, &add));
    REQUIRE_OK(cpu->run(d, SL_STREAM_COMM, &call));
    REQUIRE_OK(cpu->copy(d, SL_STREAM_COMM, on_host(0, 4), on_device(256, 4)));
    REQUIRE_OK(cpu->synchronize(d));
    REQUIRE_OK(cpu->download(d, x, on_host(0, 4)));
    CHECK(x[0] == 315.0f);
    cpu->close(d);
}

static sluice_status fail_with_number(void *user)
{
    return sl_fail(SLUICE_ERR_RANK, "rank %d is gone", *(int *)user);
}

TEST(the_first_failure_of_submitted_work_is_reported_once_and_stops_what_follows)
{
    static const sl_stream streams[] = { SL_STREAM_TO_DEVICE, SL_STREAM_COMM, SL_STREAM_COMPUTE };
    int numbers[] = { 3, 4 };
    for (int b = 0; b < 2; b++)
        for (int s = 0; s < 3; s++) {
            float sum = 0.0f;
            increment add = { &sum, &sum };
            sl_device *d = open_device(both[b], (sl_device_options){ 0 }, 1024);
            REQUIRE(d != NULL);
            REQUIRE_OK(both[b]->submit(d, streams[s], add_one, &add));
            REQUIRE_OK(both[b]->submit(d, streams[s], fail_with_number, &numbers[0]));
            REQUIRE_OK(both[b]->submit(d, streams[s], fail_with_number, &numbers[1]));
            REQUIRE_OK(both[b]->submit(d, streams[s], add_one, &add));
            REQUIRE_OK(both[b]->record(d, streams[s], 0));
            REQUIRE_OK(both[b]->wait(d, SL_STREAM_COMPUTE, 0)); /* nobody waits for ever */
            REQUIRE_OK(both[b]->submit(d, SL_STREAM_TO_HOST, add_one, &add));
            sl_error_record("another thread's trouble");
            CHECK_EQ(both[b]->synchronize(d), SLUICE_ERR_RANK);
            CHECK_STR(sluice_error(), "rank 3 is gone");
            CHECK(sum == 1.0f);
            CHECK_EQ(both[b]->synchronize(d), SLUICE_OK);
            REQUIRE_OK(both[b]->submit(d, streams[s], add_one, &add));
            REQUIRE_OK(both[b]->synchronize(d));
            CHECK(sum == 2.0f);
            both[b]->close(d);
        }
}

TEST(copies_still_happen_after_submitted_work_has_failed)
{
    float x = 7.0f, y = 0.0f;
    int number = 1;
    sl_device *d = open_device(cpu, (sl_device_options){ 0 }, 1024);
    REQUIRE(d != NULL);
    REQUIRE_OK(cpu->upload(d, SL_STREAM_COMPUTE, on_host(0, 4), &x));
    REQUIRE_OK(cpu->submit(d, SL_STREAM_TO_DEVICE, fail_with_number, &number));
    REQUIRE_OK(cpu->copy(d, SL_STREAM_TO_DEVICE, on_device(0, 4), on_host(0, 4)));
    CHECK_EQ(cpu->synchronize(d), SLUICE_ERR_RANK);
    REQUIRE_OK(cpu->download(d, &y, on_device(0, 4)));
    CHECK(y == 7.0f);
    cpu->close(d);
}

/* ---- addresses ---- */

/* Resolves from the thread of a stream, as collectives may. */
typedef struct late_use {
    sl_device *d;
    sl_span span;
    void *address;
} late_use;

static sluice_status resolve_late(void *user)
{
    late_use *u = user;
    return cpu->resolve(u->d, "late", u->span, &u->address);
}

TEST(resolve_counts_the_peak_and_refuses_what_is_not_in_the_arena)
{
    for (int b = 0; b < 2; b++) {
        sl_device_stats stats;
        void *p = &stats;
        sl_device *d = open_device(both[b], (sl_device_options){ 0 }, 1024);
        REQUIRE(d != NULL);
        CHECK_EQ(both[b]->resolve(d, "gather of h.3", on_device(1000, 32), &p), SLUICE_ERR_FAILED);
        CHECK_CONTAINS(sluice_error(), "gather of h.3");
        CHECK_CONTAINS(sluice_error(), "32 bytes at offset 1000 of the device tier");
        CHECK_EQ(both[b]->resolve(d, "x", (sl_span){ SL_TIER_COUNT, 0, 4 }, &p), SLUICE_ERR_FAILED);
        CHECK(p == &stats);
        both[b]->stats(d, &stats);
        CHECK_EQ(stats.observed_peak[SL_TIER_DEVICE], 0);
        REQUIRE_OK(both[b]->resolve(d, "x", on_device(512, 128), &p));
        REQUIRE_OK(both[b]->resolve(d, "x", on_device(256, 128), &p));
        both[b]->stats(d, &stats);
        CHECK_EQ(stats.observed_peak[SL_TIER_DEVICE], 640);
        CHECK_EQ(stats.observed_peak[SL_TIER_HOST], 0);
        CHECK_EQ(stats.kernel_calls + stats.copy_calls, 0);
        CHECK((p != NULL) == (both[b] == cpu));
        both[b]->close(d);
    }
}

TEST(resolve_may_be_called_by_submitted_work)
{
    sl_device_stats stats;
    sl_device *d = open_device(cpu, (sl_device_options){ 0 }, 1024);
    REQUIRE(d != NULL);
    late_use use = { d, on_host(512, 256), NULL };
    REQUIRE_OK(cpu->submit(d, SL_STREAM_COMM, resolve_late, &use));
    for (uint64_t i = 0; i < 100; i++) REQUIRE_OK(cpu->copy(d, SL_STREAM_COMPUTE, on_host(i, 1), on_device(i, 1)));
    REQUIRE_OK(cpu->synchronize(d));
    cpu->stats(d, &stats);
    CHECK_EQ(stats.observed_peak[SL_TIER_HOST], 768);
    CHECK(use.address != NULL);
    cpu->close(d);
}

/* ---- arenas in files ---- */

static int new_file(void)
{
    return memfd_create("sluice test", MFD_CLOEXEC);
}

/* The whole file, mapped anew; NULL on failure. */
static uint8_t *map_file(int file, size_t *bytes)
{
    struct stat s;
    if (fstat(file, &s) != 0) return NULL;
    *bytes = (size_t)s.st_size;
    void *p = mmap(NULL, *bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    return p == MAP_FAILED ? NULL : p;
}

/* What the device writes is seen through another mapping, and the other way round. */
static void check_shared(bool guard, uint64_t bytes)
{
    uint32_t word = 1, first = guard ? 0xffffffffu : 0u;
    size_t file_bytes;
    sl_window window;
    sl_device_options options = { .guard = guard, .arena_files = { new_file() } };
    REQUIRE(options.arena_files[0] > 0);
    REQUIRE(write(options.arena_files[0], "old contents", 12) == 12);
    sl_device *d = open_device(cpu, options, bytes);
    REQUIRE(d != NULL);
    CHECK(!cpu->window(d, SL_TIER_HOST, &window) && !cpu->window(d, SL_TIER_COUNT, &window));
    REQUIRE(cpu->window(d, SL_TIER_DEVICE, &window));
    CHECK_EQ(window.bytes, bytes);
    uint8_t *other = map_file(options.arena_files[0], &file_bytes);
    REQUIRE(other != NULL);
    REQUIRE(window.offset + window.bytes <= file_bytes);
    CHECK(memcmp(other + window.offset, &first, 4) == 0);
    CHECK(memcmp(other + window.offset + bytes - 4, &first, 4) == 0);
    REQUIRE_OK(cpu->upload(d, SL_STREAM_COMPUTE, on_device(bytes - 4, 4), &word));
    CHECK(memcmp(other + window.offset + bytes - 4, &word, 4) == 0);
    word = 77;
    memcpy(other + window.offset + 8, &word, 4);
    REQUIRE_OK(cpu->download(d, &first, on_device(8, 4)));
    CHECK_EQ(first, 77);
    REQUIRE_OK(cpu->synchronize(d));
    if (guard) { /* the file holds the canaries: another process's stray write is found too */
        other[window.offset + bytes] ^= 1;
        CHECK_EQ(cpu->synchronize(d), SLUICE_ERR_FAILED);
    }
    cpu->close(d);
    munmap(other, file_bytes);
    close(options.arena_files[0]);
}

TEST(an_arena_in_a_file_is_seen_through_another_mapping)
{
    check_shared(false, 1000);
    check_shared(true, 1000);
    check_shared(false, ((uint64_t)9 << 20) + 4); /* starts on a huge page */
}

TEST(a_forked_process_shares_an_arena_in_a_file)
{
    int status = 1;
    float x = 4.0f;
    void *p;
    sl_device_options options = { .arena_files = { new_file(), -1 } };
    sl_device *d = open_device(cpu, options, 4096);
    REQUIRE(d != NULL);
    REQUIRE_OK(cpu->upload(d, SL_STREAM_COMPUTE, on_device(1024, 4), &x));
    REQUIRE_OK(cpu->resolve(d, "x", on_device(1024, 4), &p));
    float *word = p;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        bool seen = *word == 4.0f;
        *word = 5.0f;
        _exit(seen ? 0 : 1);
    }
    REQUIRE(child > 0 && waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    REQUIRE_OK(cpu->synchronize(d));
    REQUIRE_OK(cpu->download(d, &x, on_device(1024, 4)));
    CHECK(x == 5.0f);
    cpu->close(d);
    close(options.arena_files[0]);
}

TEST(a_file_that_cannot_hold_an_arena_is_refused)
{
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    sl_window window;
    sl_device_options options = { .threads = 1, .isa = SL_ISA_SCALAR, .arena_files = { ends[1] } };
    sl_device *d;
    REQUIRE_OK(cpu->open(&options, &d));
    CHECK_EQ(cpu->reserve(d, SL_TIER_DEVICE, 4096), SLUICE_ERR_NO_MEMORY);
    CHECK_CONTAINS(sluice_error(), "device arena needs 4096 bytes");
    CHECK(!cpu->window(d, SL_TIER_DEVICE, &window));
    cpu->close(d);
    close(ends[0]);
    close(ends[1]);
}

TEST(the_null_backend_has_no_windows)
{
    sl_window window;
    sl_device *d = open_device(&sl_null_backend, (sl_device_options){ .arena_files = { 1 } }, 4096);
    REQUIRE(d != NULL);
    CHECK(!sl_null_backend.window(d, SL_TIER_DEVICE, &window));
    sl_null_backend.close(d);
}
