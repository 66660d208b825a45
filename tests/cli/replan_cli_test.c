/* replan_cli_test.c: a run whose steps become slower says so, and with replan goes on with another plan to the same bits. */
#include <string.h>

#include "support/run.h"
#include "test.h"

#define RUN "train c.json --json --set steps=60 --set checkpoint.path=%s --set checkpoint.every=10 %s"

static int count_of(const char *text, const char *part)
{
    int count = 0;
    for (; (text = strstr(text, part)) != NULL; text += strlen(part)) count++;
    return count;
}

static run_result train(const char *folder, const char *checkpoints, const char *options)
{
    char arguments[1024];
    snprintf(arguments, sizeof arguments, RUN, checkpoints, options);
    return run_sluice(folder, arguments);
}

static void copy_hash(const run_result *r, char out[65])
{
    const char *at = strstr(r->out, "\"weights_sha256\":\"");
    CHECK(at != NULL);
    snprintf(out, 65, "%s", at != NULL ? at + strlen("\"weights_sha256\":\"") : "");
}

static void check_replanned(const char *options)
{
    char folder[4096], through[65], again[65], slow[512];
    snprintf(folder, sizeof folder, "%s", test_tmpdir());
    run_write_config(folder, "c.json", "");
    run_result plain = train(folder, "plain", options);
    snprintf(slow, sizeof slow, "%s --set debug.slow_from=25 --set replan=true", options);
    run_result replanned = train(folder, "replanned", slow);
    CHECK_EQ(plain.status, 0);
    CHECK_EQ(replanned.status, 0);
    copy_hash(&plain, through);
    copy_hash(&replanned, again);
    CHECK_STR(again, through);
    CHECK_EQ(count_of(plain.out, "\"event\":\"plan\""), 1);
    CHECK_EQ(count_of(replanned.out, "\"event\":\"plan\""), 2);
    CHECK_EQ(count_of(replanned.out, "\"event\":\"step\""), 60); /* not one is computed twice */
    CHECK_EQ(count_of(replanned.out, "\"event\":\"end\""), 1);
    CHECK_CONTAINS(replanned.error, "steps have become slower: ");
    CHECK_CONTAINS(replanned.error, "; a new plan follows at the next checkpoint");
    run_free(&plain);
    run_free(&replanned);
}

TEST(a_run_whose_steps_become_slower_plans_anew_to_the_same_bits)
{
    check_replanned("");
}

TEST(ranks_whose_steps_become_slower_plan_anew_to_the_same_bits)
{
    check_replanned("--ranks 2 --set zero_optimization.stage=3");
}

TEST(without_replan_slower_steps_are_told_once_and_nothing_else)
{
    char folder[4096];
    snprintf(folder, sizeof folder, "%s", test_tmpdir());
    run_write_config(folder, "c.json", "");
    run_result r = train(folder, "a", "--set debug.slow_from=25");
    CHECK_EQ(r.status, 0);
    CHECK_EQ(count_of(r.out, "\"event\":\"plan\""), 1);
    CHECK_EQ(count_of(r.error, "steps have become slower"), 1);
    CHECK_CONTAINS(r.error, "with replan it would plan anew");
    run_result refused = run_sluice(folder, "train c.json --set replan=true");
    CHECK_EQ(refused.status, 2);
    CHECK_CONTAINS(refused.error, "a new plan begins at a checkpoint; set checkpoint.path and checkpoint.every");
    run_free(&r);
    run_free(&refused);
}
