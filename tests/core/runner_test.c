/* runner_test.c: what tests/run and tests/test.c make of a program whose tests fail in every way there is
 * (support/modules/runner_sample.c). */
#include "test.h"

static char report[1 << 16];

/* Runs tests/run over the sample, which lies in a build folder of its own; its exit status. */
static int run_sample(const char *what)
{
    char command[1024];
    snprintf(command, sizeof command, SLUICE_SOURCE_DIR "/tests/run " SLUICE_BINARY_DIR "/runner %s 2>&1", what);
    FILE *p = popen(command, "r");
    if (p == NULL) return -1;
    report[fread(report, 1, sizeof report - 1, p)] = '\0';
    return pclose(p);
}

static bool said(const char *text)
{
    return strstr(report, text) != NULL;
}

TEST(a_run_counts_every_kind_of_failure_and_goes_on_behind_a_test_that_ends_the_program)
{
    CHECK(run_sample("") != 0);
    CHECK_CONTAINS(report, "a_wrong_number\n");
    CHECK_CONTAINS(report, "18446744073709551615, -1\n"); /* -1 is not UINT64_MAX */
    CHECK_CONTAINS(report, "ran no check\nFAILED nothing_checked\n");
    CHECK_CONTAINS(report, "DIED killed: SIGABRT\n");
    CHECK_CONTAINS(report, "FAILED killed\n");
    CHECK_CONTAINS(report, "DIED left_by_exit: exit() in the middle of it\nended the program with status 7\n");
    CHECK_CONTAINS(report,
                   "FAILED skipped_without_a_line_in_the_list: skipped for want of gpu, which tests/expected-skips");
    CHECK_CONTAINS(report, "FAILED a_step_allocates_nothing: skipped for want of plain_build, which is here\n");
    CHECK_CONTAINS(report, "skipped: five_runs_on_a_gpu_end_with_one_hash: gpu: which is not here\n");
    CHECK_CONTAINS(report, "not here: gpu\n2 passed, 6 failed, 1 skipped\n");
}

TEST(a_run_shows_what_failed_tests_printed_and_nothing_of_the_others)
{
    CHECK(run_sample("") != 0);
    CHECK(said("output of a failed test"));
    CHECK(!said("output of a good test"));
}

TEST(a_run_can_be_of_tests_whose_names_contain_a_part)
{
    CHECK_EQ(run_sample("sample:a_good_test"), 0);
    CHECK_STR(strrchr(report, '(') != NULL ? strchr(strrchr(report, '('), '\n') : "",
              "\n2 passed, 0 failed, 0 skipped\n");
    CHECK(run_sample("sample:no_such_test") != 0);
    CHECK(run_sample("nothing") != 0);
    CHECK_CONTAINS(report, "there is no ");
}
