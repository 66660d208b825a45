/* carry_rate_test.c: how fast a state leaves an executor is told by a sample of it. */
#include <time.h>

#include "checkpoint/carry.h"
#include "checkpoint/gather.h"
#include "test.h"

enum { TENSORS = 90, ELEMENTS = 1 << 18, FAILING = 7 };

/* A state whose tensors take a known time to read at least: a third of them weights, then two moments of each. */
typedef struct slow_state {
    double seconds; /* of a read */
    bool owned;
    int failing;          /* tensor that cannot be read; -1: none */
    int reads[3];         /* of weights, of the moments of the first half, of the second */
    uint64_t most_values; /* that were read of a tensor */
    int64_t elements;
} slow_state;

static int64_t runs_of(void *user, int64_t tensor, int rank)
{
    (void)tensor, (void)rank;
    return ((const slow_state *)user)->owned ? 1 : 0;
}

static sl_range run_of(void *user, int64_t tensor, int rank, int64_t index)
{
    (void)tensor, (void)rank, (void)index;
    return (sl_range){ 0, ((const slow_state *)user)->elements };
}

static sluice_status read_slowly(void *user, int64_t tensor, uint64_t first, uint64_t count, float *out)
{
    slow_state *s = user;
    const struct timespec pause = { .tv_nsec = (long)(s->seconds * 1e9) };
    if (tensor < 0 || tensor >= TENSORS) return sl_fail(SLUICE_ERR_FAILED, "there is no tensor %d", (int)tensor);
    if (tensor == s->failing) return sl_fail(SLUICE_ERR_IO, "the disk does not answer");
    s->reads[tensor / (TENSORS / 3)]++;
    if (first + count > s->most_values) s->most_values = first + count;
    memset(out, 0, (size_t)count * sizeof *out);
    nanosleep(&pause, NULL);
    return SLUICE_OK;
}

static sluice_status rate_of(slow_state *s, double *rate)
{
    const sl_state state = {
        .count = TENSORS, .rank_count = 1, .owned_count = runs_of, .owned = run_of, .read = read_slowly, .user = s
    };
    *rate = -1;
    return sl_state_carry_rate(&state, rate);
}

TEST(a_few_tensors_of_every_kind_tell_how_fast_a_state_is_carried)
{
    slow_state s = { .seconds = 0.01, .owned = true, .failing = -1, .elements = ELEMENTS };
    double rate;
    REQUIRE_OK(rate_of(&s, &rate));
    const int reads = s.reads[0] + s.reads[1] + s.reads[2];
    CHECK(rate > 0 && rate <= ELEMENTS * sizeof(float) / s.seconds);
    CHECK(reads <= 26); /* a quarter of a second, and the one that ends it */
    for (int i = 0; reads >= 6 && i < 3; i++) CHECK(s.reads[i] >= reads / 4 && s.reads[i] <= reads / 2);
}

TEST(a_small_state_is_sampled_whole)
{
    slow_state s = { .seconds = 0, .owned = true, .failing = -1, .elements = 16 };
    double rate;
    REQUIRE_OK(rate_of(&s, &rate));
    CHECK_EQ(s.reads[0] + s.reads[1] + s.reads[2], TENSORS);
    CHECK(rate > 0);
}

/* An embedding of gigabytes is not read to its end. */
TEST(of_a_large_tensor_some_is_enough)
{
    slow_state s = { .seconds = 0.26 / 64, .owned = true, .failing = -1, .elements = (int64_t)1 << 34 };
    double rate;
    REQUIRE_OK(rate_of(&s, &rate));
    CHECK_EQ(s.reads[0] + s.reads[1] + s.reads[2], 64);
    CHECK_EQ(s.most_values, 64 * SL_CHUNK_ELEMENTS);
}

TEST(a_state_of_nothing_has_no_rate)
{
    slow_state s = { .owned = false, .failing = -1, .elements = ELEMENTS };
    double rate;
    REQUIRE_OK(rate_of(&s, &rate));
    CHECK_EQ(rate == 0, true);
}

TEST(a_sample_that_cannot_be_read_is_an_error)
{
    slow_state s = { .owned = true, .failing = FAILING, .elements = 16 };
    double rate;
    CHECK_EQ(rate_of(&s, &rate), SLUICE_ERR_IO);
    CHECK_CONTAINS(sluice_error(), "does not answer");
}
