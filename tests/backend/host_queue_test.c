/* host_queue_test.c: the host's streams of a CUDA device, without the GPU: its words are written here. */
#include <unistd.h>

#include "backend/cuda/host_queue.h"
#include "test.h"

enum { MORE_THAN_A_RING = 700 };

typedef struct fixture {
    sl_host_side side;
    sl_queue_words words[2];
    sl_host_queue queues[2];
    int looks;      /* of the submitting thread */
    int dies_after; /* looks; 0: never */
    float host[64]; /* the host's arena */
} fixture;

static void look(void *user)
{
    fixture *f = user;
    f->looks++;
    if (f->dies_after > 0 && f->looks >= f->dies_after) atomic_store(&f->side.dead, true);
}

/* False after a reported failure. */
static bool open_queues(fixture *f)
{
    memset(f, 0, sizeof *f);
    f->side.look = look;
    f->side.user = f;
    f->side.bases[SL_TIER_HOST] = (uint8_t *)f->host;
    if (sl_failure_open(&f->side.failure) == SLUICE_OK && sl_pool_create(2, &f->side.pool) == SLUICE_OK &&
        sl_host_kernels_of(sl_isa_best(), &f->side.kernels) == SLUICE_OK &&
        sl_host_queue_open(&f->queues[0], &f->side, &f->words[0]) == SLUICE_OK &&
        sl_host_queue_open(&f->queues[1], &f->side, &f->words[1]) == SLUICE_OK)
        return true;
    test_fail(__FILE__, __LINE__, "%s", sluice_error());
    return false;
}

static void close_queues(fixture *f)
{
    for (int i = 0; i < 2; i++) sl_host_queue_close(&f->queues[i]);
    sl_pool_destroy(f->side.pool);
    sl_failure_close(&f->side.failure);
}

/* sum = 3 * sum + 1: shows order. */
static sluice_status step(void *user)
{
    uint32_t *sum = user;
    *sum = 3 * *sum + 1;
    return SLUICE_OK;
}

static sluice_status twice(void *user)
{
    uint32_t *sum = user;
    *sum *= 2;
    return SLUICE_OK;
}

TEST(a_host_queue_works_in_order_through_a_full_ring)
{
    fixture f;
    uint32_t sum = 1, expected = 1, copy = 0;
    REQUIRE(open_queues(&f));
    for (int i = 0; i < MORE_THAN_A_RING; i++) {
        sl_host_queue_work(&f.queues[0], i % 3 == 0 ? twice : step, &sum);
        expected = i % 3 == 0 ? 2 * expected : 3 * expected + 1;
    }
    sl_host_queue_copy(&f.queues[0], &copy, &sum, sizeof sum);
    sl_host_queue_drain(&f.queues[0]);
    CHECK_EQ(sum, expected);
    CHECK_EQ(copy, expected);
    close_queues(&f);
}

TEST(host_queues_wait_for_each_others_recordings)
{
    fixture f;
    uint32_t sum = 1, expected = 1;
    REQUIRE(open_queues(&f));
    for (int i = 0; i < MORE_THAN_A_RING; i++) {
        sl_host_queue *mine = &f.queues[i % 2], *other = &f.queues[(i + 1) % 2];
        sl_host_queue_work(mine, i % 2 == 0 ? twice : step, &sum);
        expected = i % 2 == 0 ? 2 * expected : 3 * expected + 1;
        sl_host_queue_wait(other, &mine->words->reached, sl_host_queue_record(mine));
    }
    for (int i = 0; i < 2; i++) sl_host_queue_drain(&f.queues[i]);
    CHECK_EQ(sum, expected);
    CHECK(!atomic_load(&f.side.dead));
    close_queues(&f);
}

TEST(a_host_queue_waits_for_a_word_also_where_it_wraps)
{
    fixture f;
    uint32_t sum = 1;
    REQUIRE(open_queues(&f));
    atomic_store(&f.words[0].released, UINT32_MAX - 1);
    sl_host_queue_wait(&f.queues[0], &f.words[0].released, UINT32_MAX);
    sl_host_queue_wait(&f.queues[0], &f.words[0].released, 1); /* two later */
    sl_host_queue_work(&f.queues[0], step, &sum);
    uint32_t done = sl_host_queue_record(&f.queues[0]);
    usleep(3000);
    CHECK(!sl_word_passed(&f.words[0].reached, done));
    atomic_store(&f.words[0].released, UINT32_MAX);
    usleep(3000);
    CHECK(!sl_word_passed(&f.words[0].reached, done));
    atomic_store(&f.words[0].released, 1);
    sl_host_side_await(&f.side, &f.words[0].reached, done);
    CHECK_EQ(sum, 4);
    close_queues(&f);
}

TEST(a_queued_call_owns_its_context_and_shapes)
{
    fixture f;
    static const sl_attrs none;
    REQUIRE(open_queues(&f));
    sl_host_queue_wait(&f.queues[0], &f.words[0].released, 1);
    for (int i = 0; i < 2; i++) {
        sl_run_context context = { .seed_gradient = 3.0f + (float)i };
        sl_shape scalar = { 0, { 0 } };
        sl_call c = { .op = SL_OP_SEED, .attrs = &none, .output_count = 1, .context = &context, .name = "seed" };
        c.outputs[0] = (sl_span){ SL_TIER_HOST, (uint64_t)i * 4, 4 };
        c.output_shapes[0] = &scalar;
        sl_host_queue_call(&f.queues[0], &c);
        memset(&context, 0x7f, sizeof context);
        memset(&scalar, 0x7f, sizeof scalar);
    }
    atomic_store(&f.words[0].released, 1);
    sl_host_queue_drain(&f.queues[0]);
    CHECK(f.host[0] == 3.0f && f.host[1] == 4.0f);
    close_queues(&f);
}

/* Nothing ever writes the word: what waits goes on only because somebody looked and found the device dead. */
TEST(a_dead_device_stops_work_and_lets_nobody_wait)
{
    fixture f;
    uint32_t sum = 1;
    REQUIRE(open_queues(&f));
    f.dies_after = 2;
    sl_host_queue_wait(&f.queues[0], &f.words[0].released, 1);
    for (int i = 0; i < MORE_THAN_A_RING; i++) sl_host_queue_work(&f.queues[0], step, &sum); /* the ring is full */
    uint32_t done = sl_host_queue_record(&f.queues[0]);
    sl_host_queue_wait(&f.queues[1], &f.words[0].reached, done);
    sl_host_queue_drain(&f.queues[0]);
    CHECK_EQ(sum, 1);
    CHECK(f.looks >= 2 && sl_word_passed(&f.words[0].reached, done));
    close_queues(&f);
}

static sluice_status fail(void *user)
{
    return sl_fail(SLUICE_ERR_RANK, "rank %d is gone", *(int *)user);
}

TEST(failed_host_work_stops_further_work_but_no_copies_and_recordings)
{
    fixture f;
    uint32_t sum = 1, copy = 0;
    int rank = 3;
    REQUIRE(open_queues(&f));
    sl_host_queue_work(&f.queues[0], fail, &rank);
    sl_host_queue_work(&f.queues[0], step, &sum);
    sl_host_queue_copy(&f.queues[0], &copy, &rank, sizeof rank);
    uint32_t done = sl_host_queue_record(&f.queues[0]);
    sl_host_side_await(&f.side, &f.words[0].reached, done);
    CHECK_EQ(sum, 1);
    CHECK_EQ(copy, 3);
    CHECK_EQ(sl_failure_take(&f.side.failure), SLUICE_ERR_RANK);
    CHECK_STR(sluice_error(), "rank 3 is gone");
    close_queues(&f);
}
