/* stamps_test.c: times of work on streams, on every backend. */
#include <time.h>

#include "backend/cuda/host_queue.h"
#include "support/op_harness.h"
#include "test.h"

#define WORK_SECONDS 0.003

static sluice_status sleep_a_little(void *user)
{
    (void)user;
    nanosleep(&(struct timespec){ .tv_nsec = (long)(WORK_SECONDS * 1e9) }, NULL);
    return SLUICE_OK;
}

/* Stamps around work on two streams; the second stream waits for the first. */
static void check_order(const sl_backend *b, sl_device *d)
{
    double at[6];
    REQUIRE_OK(b->reserve_stamps(d, 6));
    REQUIRE_OK(b->stamp(d, SL_STREAM_TO_HOST, 0));
    REQUIRE_OK(b->submit(d, SL_STREAM_TO_HOST, sleep_a_little, NULL));
    REQUIRE_OK(b->stamp(d, SL_STREAM_TO_HOST, 1));
    REQUIRE_OK(b->record(d, SL_STREAM_TO_HOST, 0));
    REQUIRE_OK(b->wait(d, SL_STREAM_COMM, 0));
    REQUIRE_OK(b->stamp(d, SL_STREAM_COMM, 2));
    REQUIRE_OK(b->submit(d, SL_STREAM_COMM, sleep_a_little, NULL));
    REQUIRE_OK(b->stamp(d, SL_STREAM_COMM, 3));
    REQUIRE_OK(b->synchronize(d));
    REQUIRE_OK(b->stamp(d, SL_STREAM_COMPUTE, 4));
    REQUIRE_OK(b->synchronize(d));
    REQUIRE_OK(b->read_stamps(d, at, 6));
    CHECK(at[0] >= 0 && at[0] < at[1] && at[1] <= at[2] && at[2] < at[3] && at[3] <= at[4]);
    CHECK(at[1] - at[0] >= WORK_SECONDS && at[3] - at[2] >= WORK_SECONDS && at[4] < 60);
    CHECK(at[5] < 0);
}

static void check_limits(const sl_backend *b, sl_device *d)
{
    double at[3];
    CHECK_EQ(b->stamp(d, SL_STREAM_COMPUTE, 6), SLUICE_ERR_FAILED);
    CHECK_CONTAINS(sluice_error(), "there is no stamp 6: 6 are reserved");
    CHECK_EQ(b->stamp(d, SL_STREAM_COUNT, 0), SLUICE_ERR_FAILED);
    CHECK_EQ(b->read_stamps(d, at, 7), SLUICE_ERR_FAILED);
    REQUIRE_OK(b->reserve_stamps(d, 1)); /* anew: what was set is forgotten */
    REQUIRE_OK(b->read_stamps(d, at, 1));
    CHECK(at[0] < 0);
    REQUIRE_OK(b->reserve_stamps(d, 0));
    CHECK_EQ(b->stamp(d, SL_STREAM_COMPUTE, 0), SLUICE_ERR_FAILED);
}

TEST(stamps_are_in_the_order_of_streams_and_events_on_every_backend)
{
    test_device devices[MAX_TEST_DEVICES + 1];
    int count = test_devices(devices);
    devices[count++] = (test_device){ .backend = &sl_null_backend, .isa = sl_isa_best(), .threads = 1 };
    for (int i = 0; i < count; i++) {
        const sl_backend *b = devices[i].backend;
        sl_device_options o = { .threads = devices[i].threads, .isa = devices[i].isa };
        sl_device *d = NULL;
        REQUIRE_OK(b->open(&o, &d));
        REQUIRE_OK(b->reserve_events(d, 1));
        check_order(b, d);
        check_limits(b, d);
        REQUIRE_OK(b->reserve_stamps(d, 4)); /* closing frees them */
        b->close(d);
    }
}

static void look_away(void *user)
{
    (void)user;
}

TEST(a_queue_of_a_cuda_device_stamps_when_it_gets_there)
{
    sl_host_side side = { .look = look_away };
    sl_queue_words words = { 0 };
    sl_host_queue q = { 0 };
    double at[2] = { 0 }, start = sl_now();
    REQUIRE_OK(sl_failure_open(&side.failure));
    REQUIRE_OK(sl_host_queue_open(&q, &side, &words));
    sl_host_queue_stamp(&q, &at[0]);
    sl_host_queue_work(&q, sleep_a_little, NULL);
    sl_host_queue_stamp(&q, &at[1]);
    sl_host_queue_drain(&q);
    CHECK(at[0] >= start && at[1] - at[0] >= WORK_SECONDS && at[1] <= sl_now());
    sl_host_queue_close(&q);
    sl_failure_close(&side.failure);
}
