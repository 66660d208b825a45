/* runner_sample.c: a test program with everything in it that tests/run must see (tests/core/runner_test.c). */
#include <signal.h>

#include "test.h"

TEST(a_good_test)
{
    CHECK_EQ(UINT64_MAX, UINT64_MAX);
    printf("output of a good test, without a newline");
}

TEST(a_wrong_number)
{
    fprintf(stderr, "output of a failed test\n");
    CHECK_EQ(UINT64_MAX, -1);
}

TEST(nothing_checked)
{
}

TEST(killed)
{
    raise(SIGABRT); /* a signal that sanitizers leave alone */
}

TEST(left_by_exit)
{
    exit(7);
}

TEST(skipped_without_a_line_in_the_list)
{
    SKIP(gpu, "of no interest");
}

/* Names of tests/expected-skips. */
TEST(a_step_allocates_nothing)
{
    SKIP(plain_build, "which is here");
}

TEST(five_runs_on_a_gpu_end_with_one_hash)
{
    SKIP(gpu, "which is not here");
}

TEST(a_good_test_at_the_end)
{
    CHECK(true);
}
