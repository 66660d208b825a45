/* run_record_test.c: what is read of a log is what was written, whatever happened to the run. */
#include "report/run_record.h"

#include <unistd.h>

#include "core/io.h"
#include "support/run.h"
#include "test.h"

#define STEP(n_, loss_)                                                                                                \
    "{\"event\":\"step\",\"step\":" #n_ ",\"epoch\":0.1,\"loss\":" loss_                                               \
    ",\"lr\":0.001,\"grad_norm\":2.5,\"seconds\":0.25,\"samples\":4,\"tokens\":128,\"targets\":128,\"skipped\":false," \
    "\"loss_scale\":1,\"tokens_per_second\":512,\"mfu\":null,\"data_seconds\":0}"
#define PLAN                                                                                                           \
    "{\"event\":\"plan\",\"ranks\":2,\"stage\":3,\"parameters\":1234,\"peak_bytes\":{\"device\":10,\"host\":20,"       \
    "\"disk\":0},"                                                                                                     \
    "\"overhead_bytes\":5,\"state_bytes\":{\"parameters\":1,\"gradients\":2,\"optimizer\":3},\"step_seconds\":0.2,"    \
    "\"moved_bytes\":{\"to_device\":7,\"to_host\":8,\"disk_read\":0,\"disk_write\":0},\"comm_bytes\":{\"gather\":1,"   \
    "\"reduce\":2,\"norm\":3},\"tokens_per_second\":640,\"mfu\":0.5}"

static void read_back(const char *log, sl_run_record *out)
{
    char folder[4096];
    snprintf(folder, sizeof folder, "%s", test_tmpdir());
    run_write(folder, "log.jsonl", log);
    sluice_status st = sl_record_read(folder, out);
    if (st != SLUICE_OK) test_fail(__FILE__, __LINE__, "%s", sluice_error());
}

TEST(steps_of_a_log_are_read_to_the_bit_by_the_quick_way_and_by_the_other)
{
    sl_run_record quick, slow;
    read_back(STEP(1, "5.4723684171835584") "\n" STEP(2, "null") "\n", &quick);
    /* a blank before a colon makes the scanner give up */
    read_back("{\"event\" :\"step\",\"step\":1,\"loss\":5.4723684171835584,\"lr\":0.001,\"grad_norm\":2.5,"
              "\"seconds\":0.25,\"samples\":4,\"tokens\":128,\"tokens_per_second\":512}\n",
              &slow);
    REQUIRE(quick.step_count == 2 && slow.step_count == 1);
    CHECK(quick.steps[0].loss == 5.4723684171835584 && slow.steps[0].loss == 5.4723684171835584);
    CHECK(!isfinite(quick.steps[1].loss));
    CHECK_EQ(memcmp(&quick.steps[0], &slow.steps[0], sizeof quick.steps[0]), 0);
    CHECK_NEAR(quick.steps[0].rate, 512, 0);
    CHECK(!quick.rate_is_samples);
    sl_record_free(&quick);
    sl_record_free(&slow);
}

TEST(a_run_that_was_killed_is_dead_and_its_torn_line_is_left_out)
{
    sl_run_record r;
    read_back(PLAN "\n" STEP(1, "3") "\n" STEP(2, "2") "\n{\"event\":\"step\",\"step\":3,\"lo", &r);
    CHECK_EQ(r.outcome, SL_RUN_DEAD);
    CHECK_EQ(r.step_count, 2);
    CHECK_EQ(r.unread_lines, 1);
    CHECK_EQ(r.plan.peak[1], 20);
    CHECK_NEAR(r.plan.step_seconds, 0.2, 0);
    sl_record_free(&r);
}

TEST(what_a_restart_repeats_replaces_what_was_lost)
{
    sl_run_record r;
    read_back(
        PLAN
        "\n" STEP(1, "3") "\n" STEP(2, "2") "\n{\"event\":\"eval\",\"step\":2,\"loss\":9,\"accuracy\":null}\n" STEP(
            3, "1") "\n" PLAN
                    "\n{\"event\":\"resumed\",\"step\":1}\n" STEP(
                        2, "2.5") "\n{\"event\":\"end\",\"steps\":2,"
                                  "\"peak_bytes\":{\"device\":10,\"host\":20,\"disk\":0},\"weights_sha256\":\"ab\"}\n",
        &r);
    CHECK_EQ(r.outcome, SL_RUN_FINISHED);
    REQUIRE(r.step_count == 2);
    CHECK_NEAR(r.steps[1].loss, 2.5, 0);
    CHECK_EQ(r.repeated_steps, 2);
    CHECK_EQ(r.eval_count, 0);
    CHECK_EQ(r.note_count, 1);
    CHECK_STR(r.notes[0].kind, "resumed");
    CHECK_STR(r.end.weights_sha256, "ab");
    sl_record_free(&r);
}

TEST(lines_that_are_no_events_are_counted_and_unknown_events_passed_over)
{
    sl_run_record r;
    read_back("hello\n\n[1,2]\n{\"event\":\"phase\",\"phase\":\"plan\"}\n{\"no\":1}\n" STEP(1, "1") "\r\n", &r);
    CHECK_EQ(r.unread_lines, 3);
    CHECK_EQ(r.step_count, 1);
    sl_record_free(&r);
}

TEST(what_a_run_says_of_its_end_and_its_warnings_is_recorded)
{
    sl_run_record r;
    read_back(
        "{\"event\":\"run\",\"steps\":90,\"time\":\"2026-01-01T00:00:00.000Z\",\"run\":\"ab12\"}\n" PLAN
        "\n{\"event\":\"step\",\"memory_bytes\":{\"step\":7,\"of\":[1,\"}\"]},\"step\":1,\"loss\":2,\"tokens\":5}\n"
        "{\"event\":\"log\",\"level\":\"warning\",\"text\":\"hot\",\"time\":\"2026-01-01T00:00:01.000Z\"}\n"
        "{\"event\":\"exit\",\"status\":75,\"step\":1,\"message\":\"stopped by a signal\"}\n",
        &r);
    CHECK_EQ(r.outcome, SL_RUN_STOPPED);
    CHECK_STR(r.why, "stopped by a signal");
    CHECK_STR(r.run_id, "ab12");
    CHECK_EQ(r.target_steps, 90);
    REQUIRE(r.step_count == 1 && r.note_count == 2);
    CHECK_EQ(r.steps[0].step, 1);
    CHECK_STR(r.notes[0].kind, "warning");
    CHECK_STR(r.notes[0].text, "hot");
    CHECK_STR(r.notes[0].time, "2026-01-01T00:00:01.000Z");
    sl_record_free(&r);
    read_back(PLAN "\n{\"event\":\"exit\",\"status\":7,\"step\":0,\"message\":\"bad numbers\"}\n", &r);
    CHECK_EQ(r.outcome, SL_RUN_FAILED);
    sl_record_free(&r);
}

TEST(a_run_that_holds_its_lock_is_running)
{
    char folder[4096], path[4200];
    sl_lock lock;
    sl_run_record r;
    snprintf(folder, sizeof folder, "%s", test_tmpdir());
    snprintf(path, sizeof path, "%s/lock", folder);
    run_write(folder, "log.jsonl", PLAN "\n" STEP(1, "1") "\n");
    REQUIRE_OK(sl_lock_take(path, &lock));
    REQUIRE_OK(sl_record_read(folder, &r));
    CHECK_EQ(r.outcome, SL_RUN_RUNNING);
    sl_record_free(&r);
    sl_lock_release(&lock);
    REQUIRE_OK(sl_record_read(folder, &r));
    CHECK_EQ(r.outcome, SL_RUN_DEAD);
    sl_record_free(&r);
}

TEST(a_folder_that_no_run_was_in_is_refused)
{
    sl_run_record r;
    char folder[4096], missing[4200];
    snprintf(folder, sizeof folder, "%s", test_tmpdir());
    CHECK_EQ(sl_record_read(folder, &r), SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(), "is not the folder of a run");
    snprintf(missing, sizeof missing, "%s/missing", folder);
    CHECK_EQ(sl_record_read(missing, &r), SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(), "there is no such folder");
}
