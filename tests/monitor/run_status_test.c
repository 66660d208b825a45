/* run_status_test.c: what a journal tells, whatever is in it. */
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/io.h"
#include "monitor/monitor.h"
#include "support/plain_files.h"
#include "support/run.h"
#include "test.h"

/* A folder in a folder, which `at` may then be asked about; valid until the next call. */
static const char *inside(const char *folder, const char *name)
{
    static char path[2200];
    snprintf(path, sizeof path, "%.2000s/%.100s", folder, name);
    return path;
}

typedef struct seen {
    int count;
    char folder[4096];
    sluice_run_status status; /* of the last */
} seen;

static void on_run(void *user, const char *folder, const sluice_run_status *status)
{
    seen *s = user;
    s->count++;
    snprintf(s->folder, sizeof s->folder, "%s", folder);
    s->status = *status;
}

static seen look(const char *folder)
{
    seen s = { 0 };
    CHECK_EQ(sluice_runs_look(folder, on_run, &s), SLUICE_OK);
    return s;
}

#define STAMP(second_) ",\"time\":\"2026-01-01T00:00:" second_ ".000Z\",\"run\":\"r1\"}\n"
#define BEGIN(host_)                                                                                                   \
    "{\"event\":\"run\",\"version\":\"1\",\"pid\":42,\"host\":\"" host_                                                \
    "\",\"ranks\":2,\"steps\":100,\"metric\":\"f1\"" STAMP("00")
#define STEP(step_, second_)                                                                                           \
    "{\"event\":\"step\",\"step\":" #step_ ",\"loss\":0.5,\"seconds\":1,\"samples\":8,\"tokens\":80,"                  \
    "\"memory_bytes\":{\"device\":10,\"host\":20,\"disk\":0,\"resident\":30}" STAMP(second_)

static const char *own_host(void)
{
    static char host[128];
    gethostname(host, sizeof host - 1);
    return host;
}

/* A run of this host: `rest` follows its first line. */
static const char *make_run(const char *rest)
{
    const char *folder = test_tmpdir();
    char text[8192];
    snprintf(text, sizeof text,
             "{\"event\":\"run\",\"version\":\"1\",\"pid\":42,\"host\":\"%s\",\"ranks\":2,\"steps\":100,\"metric\":"
             "\"f1\"" STAMP("00") "%s",
             own_host(), rest);
    run_write(folder, SL_JOURNAL_NAME, text);
    return folder;
}

TEST(a_run_without_an_end_is_dead_unless_its_lock_is_held)
{
    sl_lock lock = { -1 };
    const char *folder = make_run(STEP(1, "10") STEP(3, "14"));
    seen s = look(folder);
    CHECK_EQ(s.status.state, SLUICE_RUN_DEAD);
    CHECK_EQ(s.status.step, 3);
    CHECK(isnan(s.status.seconds_left));
    CHECK_EQ(sl_lock_take(at(folder, "lock"), &lock), SLUICE_OK);
    s = look(folder);
    CHECK_EQ(s.status.state, SLUICE_RUN_RUNNING);
    CHECK_STR(s.status.run, "r1");
    CHECK_EQ(s.status.ranks, 2);
    CHECK_EQ(s.status.steps, 100);
    CHECK_NEAR(s.status.step_seconds, 2, 1e-9);
    CHECK_NEAR(s.status.seconds_left, 194, 1e-6);
    CHECK_NEAR(s.status.tokens_per_second, 40, 1e-9);
    CHECK_EQ(s.status.resident_bytes, 30);
    sl_lock_release(&lock);
    CHECK_EQ(look(folder).status.state, SLUICE_RUN_DEAD);
}

TEST(a_run_of_another_machine_is_unknown_where_its_lock_is_not_seen)
{
    const char *folder = test_tmpdir();
    run_write(folder, SL_JOURNAL_NAME, BEGIN("far.away") STEP(1, "10"));
    CHECK_EQ(look(folder).status.state, SLUICE_RUN_UNKNOWN);
    CHECK_STR(look(folder).status.host, "far.away");
}

TEST(the_last_word_of_a_run_is_its_state)
{
    seen s = look(make_run(STEP(100, "10") "{\"event\":\"end\",\"steps\":100" STAMP("11")));
    CHECK_EQ(s.status.state, SLUICE_RUN_FINISHED);
    s = look(
        make_run(STEP(9, "10") "{\"event\":\"exit\",\"status\":75,\"step\":9,\"message\":\"by a signal\"" STAMP("11")));
    CHECK_EQ(s.status.state, SLUICE_RUN_STOPPED);
    CHECK_STR(s.status.message, "by a signal");
    s = look(make_run("{\"event\":\"exit\",\"status\":7,\"step\":9,\"message\":\"nan\"" STAMP("11")));
    CHECK_EQ(s.status.state, SLUICE_RUN_FAILED);
    CHECK_EQ(s.status.exit_status, 7);
}

TEST(best_saved_and_warning_are_the_newest)
{
    seen s = look(
        make_run("{\"event\":\"eval\",\"step\":2,\"loss\":3,\"metrics\":{\"loss\":3,\"f1\":0.5},\"best\":"
                 "true" STAMP("01") "{\"event\":\"eval\",\"step\":4,\"loss\":2,\"metrics\":{\"loss\":2,\"f1\":0.4},"
                                    "\"best\":false" STAMP("02") "{\"event\":\"saved\",\"step\":4,\"path\":\"x/"
                                                                 "step-4\"" STAMP("03") "{\"event\":\"log\",\"level\":"
                                                                                        "\"warning\",\"text\":\"look "
                                                                                        "out\"" STAMP("04")));
    CHECK_EQ(s.status.best_step, 2);
    CHECK_NEAR(s.status.best, 0.5, 0);
    CHECK_NEAR(s.status.validation_loss, 2, 0);
    CHECK_EQ(s.status.saved_step, 4);
    CHECK_STR(s.status.saved_path, "x/step-4");
    CHECK_STR(s.status.warning, "look out");
}

TEST(what_came_after_the_checkpoint_is_forgotten_when_a_run_is_resumed)
{
    seen s = look(make_run("{\"event\":\"eval\",\"step\":8,\"loss\":3,\"metrics\":{\"f1\":0.5},\"best\":true" STAMP(
        "01") STEP(9, "02") "{\"event\":\"resumed\",\"step\":5" STAMP("30") STEP(6, "40")));
    CHECK_EQ(s.status.best_step, 0);
    CHECK_EQ(s.status.step, 6);
    CHECK_NEAR(s.status.step_seconds, 1, 0); /* one step tells its own time only */
}

TEST(nothing_of_another_run_in_the_same_journal_is_the_last_ones)
{
    static const char second[] =
        "{\"event\":\"run\",\"pid\":43,\"host\":\"h\",\"ranks\":1,\"steps\":9,\"metric\":\"loss\","
        "\"time\":\"2026-01-01T01:00:00.000Z\",\"run\":\"r2\"}\n";
    char rest[2048];
    snprintf(rest, sizeof rest, "%s%s",
             "{\"event\":\"eval\",\"step\":8,\"loss\":3,\"metrics\":{\"f1\":0.5},\"best\":true" STAMP(
                 "01") "{\"event\":\"saved\",\"step\":8,\"path\":\"x\"" STAMP("02")
                 STEP(9, "03") "{\"event\":\"end\",\"steps\":9" STAMP("04"),
             second);
    seen s = look(make_run(rest));
    CHECK_STR(s.status.run, "r2");
    CHECK_EQ(s.status.best_step, 0);
    CHECK_EQ(s.status.saved_step, 0);
    CHECK_EQ(s.status.step, 0);
    CHECK_EQ(s.status.steps, 9);
    CHECK(s.status.state != SLUICE_RUN_FINISHED);
}

TEST(damaged_lines_cost_themselves_alone)
{
    seen s = look(make_run("{\"event\":\"sav\n\n[]\n7\nnull\n\"x\"\n{}\n{\"event\":5}\n{\"event\":\"step\"}\n" STEP(
        7, "09") "{\"event\":\"st"));
    CHECK_EQ(s.status.step, 7);
    CHECK_EQ(s.status.state, SLUICE_RUN_DEAD);
}

/* As a program that reads and writes JSON leaves it: with spaces, and with members in another order. */
TEST(a_step_is_one_however_its_line_is_written)
{
    seen spaces = look(make_run("{\"event\": \"step\", \"step\": 7, \"loss\": 0.5, \"time\": "
                                "\"2026-01-01T00:00:09.000Z\", \"run\": \"r1\"}\n"));
    CHECK_EQ(spaces.status.step, 7);
    CHECK_NEAR(spaces.status.loss, 0.5, 0);
    seen moved =
        look(make_run("{\"time\":\"2026-01-01T00:00:09.000Z\",\"step\":8,\"event\":\"step\",\"loss\":0.25}\n"));
    CHECK_EQ(moved.status.step, 8);
    seen odd = look(make_run("{ \"event\" : \"step\" , \"step\" : 9 }\n"));
    CHECK_EQ(odd.status.step, 9);
    seen other = look(make_run(STEP(3, "09") "{\"event\":\"stepped\",\"step\":10}\n"));
    CHECK_EQ(other.status.step, 3);
}

/* More steps than are kept, over several blocks of the file. */
TEST(a_long_journal_is_read_to_its_end)
{
    const char *folder = make_run(STEP(1, "10"));
    FILE *f = fopen(at(folder, SL_JOURNAL_NAME), "a");
    REQUIRE(f != NULL);
    for (int i = 2; i <= 20000; i++)
        fprintf(f,
                "{\"event\":\"step\",\"step\":%d,\"loss\":0.25,\"seconds\":1,\"samples\":8,\"tokens\":0,\"padding\":"
                "\"%0100d\",\"time\":\"2026-01-01T%02d:%02d:%02d.500Z\",\"run\":\"r1\"}\n",
                i, i, i / 3600, i / 60 % 60, i % 60);
    fclose(f);
    seen s = look(folder);
    CHECK_EQ(s.status.step, 20000);
    CHECK_NEAR(s.status.step_seconds, 1, 1e-6);
    CHECK_NEAR(s.status.samples_per_second, 8, 1e-6);
    CHECK(isnan(s.status.tokens_per_second));
}

TEST(a_folder_of_runs_is_looked_into_in_the_order_of_names)
{
    const char *folder = test_tmpdir();
    static const char *const names[] = { "b", "a", "none" };
    for (int i = 0; i < 3; i++) {
        REQUIRE(mkdir(at(folder, names[i]), 0700) == 0);
        if (i < 2) run_write(inside(folder, names[i]), SL_JOURNAL_NAME, BEGIN("h"));
    }
    seen s = look(folder);
    CHECK_EQ(s.count, 2);
    CHECK_CONTAINS(s.folder, "/b");
}

TEST(what_is_no_run_is_refused_with_one_message)
{
    seen s = { 0 };
    const char *folder = test_tmpdir();
    CHECK_EQ(sluice_runs_look(folder, on_run, &s), SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(), "is no run: neither it nor a folder in it has a log.jsonl");
    CHECK_EQ(sluice_runs_look(at(folder, "missing"), on_run, &s), SLUICE_ERR_INPUT);
    run_write(folder, SL_JOURNAL_NAME, "hello\n");
    CHECK_EQ(sluice_runs_look(folder, on_run, &s), SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(), "no journal of a run");
    CHECK_EQ(s.count, 0);
    CHECK_STR(sluice_run_state_name(SLUICE_RUN_DEAD), "dead");
}
