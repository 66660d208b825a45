/* report_cli_test.c: sluice report, train --report and plan --report: the page has the numbers of the run's events; runs that
 * died, runs without a profile and folders of something else have a page or one message. */
#include <jansson.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/html_page.h"
#include "support/run.h"
#include "test.h"

static void new_folder(char folder[4096])
{
    snprintf(folder, 4096, "%s", test_tmpdir());
}

static char *read_in(const char *folder, const char *name)
{
    char path[4200];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return run_read(path);
}

static bool is_there(const char *folder, const char *name)
{
    char path[4200];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return access(path, F_OK) == 0;
}

/* The numbers that a page has inside; NULL after a reported failure. */
static json_t *page_data(const char *folder, const char *name)
{
    char *page = read_in(folder, name);
    json_t *root = html_page_data(page);
    free(page);
    return root;
}

static double number(const json_t *o, const char *key)
{
    return json_number_value(json_object_get(o, key));
}

static const char *text(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s != NULL ? s : "";
}

static double cell(const json_t *table, size_t row, size_t column)
{
    return json_number_value(json_array_get(json_array_get(table, row), column));
}

/* Every step event of a log is in the page with its numbers, and so is the end. */
static int compare_with_log(const json_t *data, const char *log)
{
    int steps = 0;
    for (const char *line = log; line != NULL && *line != '\0'; line = strchr(line, '\n'), line += line != NULL) {
        json_t *e = json_loadb(line, strcspn(line, "\n"), 0, NULL);
        const json_t *rows = json_object_get(data, "steps"), *end = json_object_get(data, "end");
        if (strcmp(text(e, "event"), "step") == 0) {
            size_t i = (size_t)steps++;
            CHECK(cell(rows, i, 0) == number(e, "step"));
            CHECK(cell(rows, i, 1) == number(e, "loss"));
            CHECK(cell(rows, i, 2) == number(e, "lr"));
            CHECK(cell(rows, i, 3) == number(e, "grad_norm"));
            CHECK(cell(rows, i, 4) == number(e, "seconds"));
        }
        if (strcmp(text(e, "event"), "end") == 0) {
            CHECK_STR(text(end, "weights_sha256"), text(e, "weights_sha256"));
            CHECK(json_equal(json_object_get(end, "peak_bytes"), json_object_get(e, "peak_bytes")));
            CHECK(json_equal(json_object_get(end, "moved_bytes"), json_object_get(e, "moved_bytes")));
        }
        json_decref(e);
    }
    return steps;
}

#define OFFLOADED                                                                                                      \
    ", \"checkpoint\": {\"path\": \"run\", \"every\": 4}, \"zero_optimization\": {\"offload_param\": {\"device\": "    \
    "\"cpu\"}, \"offload_optimizer\": {\"device\": \"cpu\"}}"

TEST(a_report_of_a_run_has_the_numbers_of_its_events)
{
    char folder[4096];
    new_folder(folder);
    run_write_config(folder, "a.json", OFFLOADED);
    run_must(folder, "train a.json --json --set steps=9 >log.jsonl");
    CHECK(is_there(folder, "run/profile.json"));
    run_must(folder, "verify run");
    char *log = read_in(folder, "log.jsonl");
    run_write(folder, "run/log.jsonl", log);
    run_result r = run_sluice(folder, "report run -o page.html");
    CHECK_EQ(r.status, 0);
    CHECK_STR(r.out, "page.html\n");
    CHECK_STR(r.error, "");
    json_t *data = page_data(folder, "page.html");
    REQUIRE(data != NULL);
    CHECK_EQ(compare_with_log(data, log), 9);
    CHECK_STR(text(data, "outcome"), "finished");
    const json_t *profile = json_object_get(data, "profile");
    CHECK(json_is_true(json_object_get(profile, "measured")));
    CHECK_NEAR(number(profile, "training_step"), 3, 0);
    json_decref(data);
    free(log);
    run_free(&r);
}

/* What the chart marks as compute standing still is the step less compute. */
static void check_exposed(const json_t *profile, const char *which)
{
    const json_t *waits = json_object_get(json_object_get(profile, "waits"), which),
                 *list = json_object_get(waits, "list");
    const json_t *compute = json_array_get(json_object_get(profile, "streams"), 0);
    double still = number(waits, "rest_seconds"), step = number(json_object_get(profile, "step_seconds"), which);
    for (size_t i = 0; i < json_array_size(list); i++) still += cell(list, i, 3) > 0 ? cell(list, i, 1) / 1e6 : 0;
    CHECK(step > 0);
    CHECK_NEAR(still, step - number(json_object_get(compute, "busy_seconds"), which), 0.05 * step);
}

TEST(a_run_with_report_writes_a_page_after_it_also_without_a_folder_of_its_own)
{
    char folder[4096];
    new_folder(folder);
    run_write_config(folder, "a.json", "");
    run_result r = run_sluice(folder, "train a.json --report page.html");
    CHECK_EQ(r.status, 0);
    CHECK_CONTAINS(r.out, "report written to page.html");
    json_t *data = page_data(folder, "page.html");
    REQUIRE(data != NULL);
    CHECK_EQ(json_array_size(json_object_get(data, "steps")), 5);
    CHECK_STR(text(data, "outcome"), "finished");
    check_exposed(json_object_get(data, "profile"), "predicted");
    check_exposed(json_object_get(data, "profile"), "measured");
    json_decref(data);
    run_free(&r);
}

TEST(without_a_name_the_page_goes_into_the_folder_of_the_run)
{
    char folder[4096];
    new_folder(folder);
    run_write_config(folder, "a.json", OFFLOADED);
    run_must(folder, "train --report a.json --ranks 2 --set zero_optimization.stage=3");
    json_t *data = page_data(folder, "run/report.html");
    REQUIRE(data != NULL);
    check_exposed(json_object_get(data, "profile"), "measured");
    CHECK_NEAR(number(json_object_get(data, "plan"), "ranks"), 2, 0);
    json_decref(data);
    run_write_config(folder, "b.json", "");
    run_result r = run_sluice(folder, "train b.json --report");
    CHECK_EQ(r.status, 2);
    CHECK_CONTAINS(r.error, "--report FILE.html");
    CHECK_STR(r.out, "");
    run_free(&r);
}

TEST(a_profile_leaves_the_hashes_of_a_run_alone)
{
    char folder[4096];
    new_folder(folder);
    run_write_config(folder, "a.json", "");
    run_must(folder, "train a.json --json >plain");
    run_must(folder, "train a.json --json --set checkpoint.path=run --report page.html >profiled");
    char *plain = read_in(folder, "plain"), *profiled = read_in(folder, "profiled");
    char *a = strstr(plain, "\"weights_sha256\""), *b = strstr(profiled, "\"weights_sha256\"");
    REQUIRE(a != NULL && b != NULL);
    CHECK_EQ(strncmp(a, b, 80), 0);
    free(plain);
    free(profiled);
}

TEST(a_plan_has_a_page_for_a_machine_of_any_kind)
{
    char folder[4096];
    new_folder(folder);
    run_write_config(folder, "a.json", OFFLOADED);
    run_result r = run_sluice(folder, "plan a.json --ranks 4 --report plan.html");
    CHECK_EQ(r.status, 0);
    CHECK_CONTAINS(r.out, "expected step");
    json_t *data = page_data(folder, "plan.html");
    REQUIRE(data != NULL);
    CHECK_STR(text(data, "outcome"), "planned");
    CHECK(json_is_false(json_object_get(json_object_get(data, "profile"), "measured")));
    check_exposed(json_object_get(data, "profile"), "predicted");
    CHECK(!is_there(folder, "run"));
    json_decref(data);
    run_result bare = run_sluice(folder, "plan a.json --report");
    CHECK_EQ(bare.status, 2);
    CHECK_CONTAINS(bare.error, "name its file");
    run_free(&bare);
    run_free(&r);
}

TEST(a_run_that_was_killed_has_a_page_that_says_so)
{
    char folder[4096], log[4200];
    new_folder(folder);
    run_write_config(folder, "a.json", OFFLOADED);
    snprintf(log, sizeof log, "%s/out", folder);
    pid_t child = run_start(folder, "train a.json --json --set steps=10000000");
    for (int i = 0; i < 600; i++) { /* until it is well under way */
        struct stat info;
        if (stat(log, &info) == 0 && info.st_size > 20000) break;
        usleep(50000);
    }
    kill(child, SIGKILL);
    run_result r = run_wait(folder, child);
    CHECK_EQ(r.status, 128 + SIGKILL);
    run_write(folder, "run/log.jsonl", r.out);
    run_must(folder, "report run");
    json_t *data = page_data(folder, "run/report.html");
    REQUIRE(data != NULL);
    CHECK_STR(text(data, "outcome"), "dead");
    CHECK(json_array_size(json_object_get(data, "steps")) > 10);
    json_decref(data);
    run_free(&r);
}

TEST(a_run_that_fails_has_its_page_and_its_own_message)
{
    char folder[4096];
    new_folder(folder);
    run_write_config(folder, "a.json", "");
    run_result r = run_sluice(folder, "train a.json --set optimizer.params.lr=1e30 --set steps=50 --report page.html");
    CHECK_EQ(r.status, 7);
    json_t *data = page_data(folder, "page.html");
    REQUIRE(data != NULL);
    CHECK_STR(text(data, "outcome"), "failed");
    json_decref(data);
    run_free(&r);
}

TEST(a_run_without_a_profile_has_a_page_without_a_step)
{
    char folder[4096];
    new_folder(folder);
    run_write_config(folder, "a.json", OFFLOADED);
    run_must(folder, "train a.json --json >log.jsonl");
    run_must(folder, "train a.json --resume --json >/dev/null");
    char *log = read_in(folder, "log.jsonl"), path[4200];
    run_write(folder, "run/log.jsonl", log);
    snprintf(path, sizeof path, "%s/run/profile.json", folder);
    CHECK_EQ(unlink(path), 0);
    run_must(folder, "report run");
    char *page = read_in(folder, "run/report.html");
    CHECK_CONTAINS(page, "This run has no profile");
    CHECK(strstr(page, "id=\"streams\"") == NULL);
    run_write(folder, "run/profile.json", "{\"sluice_profile\": 1,");
    run_result r = run_sluice(folder, "report run");
    CHECK_EQ(r.status, 4);
    CHECK_CONTAINS(r.error, "profile.json");
    run_free(&r);
    free(page);
    free(log);
}

TEST(what_is_no_run_and_what_cannot_be_written_is_one_message)
{
    static const struct {
        const char *arguments;
        int status;
        const char *says;
    } cases[] = {
        { "report empty", 4, "empty is not the folder of a run" },
        { "report missing", 4, "missing: there is no such folder" },
        { "report a.json", 4, "name the folder of a run" },
        { "report run -o no/such/page.html", 6, "no/such/page.html" },
        { "report run -o empty", 2, "empty" },
        { "train a.json --report no/such/page.html", 6, "no/such/page.html" },
        { "train a.json --report=a.json", 2, "--report" },
        { "plan a.json --report no/such/page.html", 6, "no/such/page.html" },
    };
    char folder[4096], path[4200];
    new_folder(folder);
    snprintf(path, sizeof path, "%s/empty", folder);
    CHECK_EQ(mkdir(path, 0700), 0);
    run_write_config(folder, "a.json", "");
    run_must(folder, "train a.json --quiet --set checkpoint.path=run");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        run_result r = run_sluice(folder, cases[i].arguments);
        CHECK_THAT(r.status == cases[i].status, "%s: status %d: %s", cases[i].arguments, r.status, r.error);
        CHECK_CONTAINS(r.error, cases[i].says);
        CHECK(strchr(r.error, '\n') != NULL && strchr(r.error, '\n')[1] == '\0'); /* one line */
        run_free(&r);
    }
}
