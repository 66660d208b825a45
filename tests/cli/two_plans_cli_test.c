/* two_plans_cli_test.c: a run with a plan for steps that are rarely clipped and one for those that are goes on by the one that is
 * faster, to the bits of a run that waits for every norm. */
#include <string.h>

#include "support/run.h"
#include "test.h"

/* A device whose kernels do not keep the host's updates waiting. Steps are expected to take seconds, which a change does not on any
 * machine: how long it really takes decides nothing here. */
#define MACHINE                                                                                                        \
    "{\"sluice_machine\": 1, \"gemm_flops\": 2e8, \"device_bytes_per_second\": 1e8, \"update_bytes_per_second\": 3e6," \
    " \"to_device_bytes_per_second\": 1.2e7, \"to_host_bytes_per_second\": 1.2e7, \"device_bytes\": \"2GiB\","         \
    " \"host_bytes\": \"8GiB\", \"shared_memory\": true, \"copies_overlap\": true, \"kernels_take_turns\": false}"

#define CONFIG                                                                                                         \
    "{\"model\": {\"type\": \"gpt2\", \"layers\": 6, \"heads\": 2, \"width\": 64, \"context\": 32, \"vocabulary\": "   \
    "\"61\"},"                                                                                                         \
    " \"data\": {\"type\": \"random_tokens\", \"samples\": 2000}, \"steps\": 40, \"seed\": 3, \"train_batch_size\": "  \
    "4,"                                                                                                               \
    " \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 1e-3}},"                                               \
    " \"memory\": {\"device\": \"4000KiB\", \"host\": \"100MiB\"}, \"zero_optimization\": {\"stage\": 0}}"

#define STAGE_2 " --set zero_optimization.stage=2 --set memory.device=2800KiB"
#define HARDLY  "2.4" /* which no step of it reaches, and no norm is far below */
#define RARELY  "few of its steps are clipped"
#define OFTEN   "where too many steps are clipped, the run goes on by a plan"

static void prepare(char *folder, size_t bytes)
{
    snprintf(folder, bytes, "%s", test_tmpdir());
    run_write(folder, "c.json", CONFIG);
    run_write(folder, "m.json", MACHINE);
}

static int plans_in(const char *events)
{
    int count = 0;
    for (; (events = strstr(events, "\"event\":\"plan\"")) != NULL; events++) count++;
    return count;
}

/* "weights_sha256":"...","state_sha256":"..." */
static void copy_hashes(const run_result *r, char out[RUN_HASHES])
{
    const char *at = strstr(r->out, "\"weights_sha256\"");
    CHECK(at != NULL);
    snprintf(out, RUN_HASHES, "%.166s", at != NULL ? at : "");
}

/* How many plans the run has, what it notes ("" : nothing of that kind), and that it ends with the bits of sync. */
static void check_run(const char *folder, const char *options, int plans, const char *note)
{
    char command[640], sync[RUN_HASHES], is[RUN_HASHES];
    snprintf(command, sizeof command, "train c.json --machine m.json --json %s", options);
    run_result r = run_sluice(folder, command);
    snprintf(command, sizeof command, "train c.json --json %s --set zero_optimization.update=sync", options);
    run_result waits = run_sluice(folder, command);
    CHECK_EQ(r.status, 0);
    CHECK_EQ(waits.status, 0);
    copy_hashes(&r, is);
    copy_hashes(&waits, sync);
    CHECK_STR(is, sync);
    CHECK_EQ(plans_in(r.out), plans);
    CHECK_EQ(plans_in(waits.out), 1);
    if (note[0] != '\0') CHECK_CONTAINS(r.error, note);
    CHECK_EQ(strstr(r.error, "goes on by a plan") != NULL, note[0] != '\0');
    run_free(&r);
    run_free(&waits);
}

static void check_plan(const char *folder, const char *options, const char *says)
{
    char command[512];
    snprintf(command, sizeof command, "plan c.json --machine m.json %s", options);
    run_result r = run_sluice(folder, command);
    CHECK_EQ(r.status, 0);
    CHECK_CONTAINS(r.out, says);
    run_free(&r);
}

TEST(a_run_goes_on_by_its_faster_plan_when_its_steps_are_seen_to_be_rarely_clipped)
{
    char folder[4096];
    prepare(folder, sizeof folder);
    check_plan(folder, "--set gradient_clipping=" HARDLY, RARELY);
    check_run(folder, "--set gradient_clipping=" HARDLY, 2,
              "steps are rarely clipped or skipped: the run goes on by a plan that is faster for such steps");
    check_run(folder, "--set gradient_clipping=1e-4", 1, "");
    check_run(folder, "--set gradient_clipping=" HARDLY " --ranks 2" STAGE_2, 2, "steps are rarely clipped or skipped");
}

/* It speculates from its first step on, and stops. */
TEST(a_long_run_begins_with_its_faster_plan_and_leaves_it_where_its_steps_are_clipped)
{
    char folder[4096];
    prepare(folder, sizeof folder);
    check_plan(folder, "--set gradient_clipping=1e-4 --set steps=400", OFTEN);
    check_run(folder, "--set gradient_clipping=1e-4 --set steps=400", 2,
              "steps are clipped or skipped too often for updates on speculation: the run goes on by a plan");
    check_run(folder, "--set gradient_clipping=" HARDLY " --set steps=400", 1, "");
}

/* What it knows from the beginning: of a threshold that norms do not reach, and of the steps of the run that it goes on with. */
TEST(a_run_that_will_hardly_be_clipped_begins_with_its_faster_plan)
{
    char folder[4096];
    prepare(folder, sizeof folder);
    check_run(folder, "--set gradient_clipping=1000", 1, "");
    run_result r = run_sluice(folder, "train c.json --machine m.json --set gradient_clipping=" HARDLY
                                      " --set checkpoint.path=kept --set checkpoint.every=12 --set steps=24");
    CHECK_EQ(r.status, 0);
    CHECK_CONTAINS(r.error, "steps are rarely clipped or skipped: the run goes on by a plan");
    run_free(&r);
    r = run_sluice(folder, "train c.json --machine m.json --json --set gradient_clipping=" HARDLY
                           " --set checkpoint.path=kept --resume");
    CHECK_EQ(r.status, 0);
    CHECK_EQ(plans_in(r.out), 1);
    CHECK_CONTAINS(r.out, "\"speculated\":16");
    run_free(&r);
}
