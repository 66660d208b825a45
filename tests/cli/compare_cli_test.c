/* compare_cli_test.c: sluice compare: the numbers are those of train, and what differs is told. */
#include <jansson.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/html_page.h"
#include "support/run.h"
#include "test.h"

static void new_folder(char folder[4096])
{
    snprintf(folder, 4096, "%s", test_tmpdir());
}

#define OFFLOADED                                                                                                      \
    ", \"checkpoint\": {\"path\": \"run\"}, \"save\": \"w.safetensors\", \"zero_optimization\": {\"stage\": 3, "       \
    "\"offload_param\": {\"device\": \"cpu\"}, \"offload_optimizer\": {\"device\": \"cpu\"}}"

/* Line `number` of JSON lines; NULL after a reported failure. */
static json_t *line_of(const char *out, int number)
{
    json_error_t error;
    for (; number > 0 && out != NULL; number--) out = strchr(out, '\n'), out += out != NULL;
    json_t *o = out != NULL ? json_loadb(out, strcspn(out, "\n"), 0, &error) : NULL;
    if (o == NULL) test_fail(__FILE__, __LINE__, "no such line");
    return o;
}

static const char *text(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s != NULL ? s : "";
}

static double number(const json_t *o, const char *key)
{
    return json_number_value(json_object_get(o, key));
}

/* The numbers of `train --json` with the same steps. */
static void check_against_train(const char *folder, const char *config, const json_t *compared)
{
    char arguments[256];
    snprintf(arguments, sizeof arguments, "train %s --json --set steps=6 --set checkpoint.path= --set save=", config);
    run_result r = run_sluice(folder, arguments);
    bool ended = false;
    CHECK_EQ(r.status, 0);
    for (const char *line = r.out; line != NULL && *line != '\0'; line = strchr(line, '\n'), line += line != NULL) {
        json_t *e = json_loadb(line, strcspn(line, "\n"), 0, NULL);
        if (strcmp(text(e, "event"), "step") == 0 && number(e, "step") > 5)
            CHECK(number(compared, "loss") == number(e, "loss"));
        if (strcmp(text(e, "event"), "end") == 0) {
            const json_t *here = json_object_get(compared, "peak_bytes"), *there = json_object_get(e, "peak_bytes");
            ended = true;
            CHECK_STR(text(compared, "weights_sha256"), text(e, "weights_sha256"));
            CHECK(number(here, "device") == number(there, "device") && number(here, "host") == number(there, "host"));
            CHECK(number(json_object_get(compared, "moved_bytes"), "to_device") ==
                  number(json_object_get(e, "moved_bytes"), "to_device"));
        }
        json_decref(e);
    }
    CHECK(ended);
    run_free(&r);
}

TEST(one_configuration_is_compared_with_itself_without_offloading_and_has_the_same_bits)
{
    char folder[4096], path[4200];
    new_folder(folder);
    run_write_config(folder, "a.json", OFFLOADED);
    run_result r = run_sluice(folder, "compare a.json --steps 6 --json");
    CHECK_EQ(r.status, 0);
    CHECK_STR(r.error, "");
    json_t *own = line_of(r.out, 0), *plain = line_of(r.out, 1);
    REQUIRE(own != NULL && plain != NULL);
    CHECK_STR(text(own, "bits"), "repeatable");
    CHECK_STR(text(plain, "name"), "plain");
    CHECK_STR(text(plain, "bits"), "the same bits");
    CHECK(number(json_object_get(own, "moved_bytes"), "to_device") > 0);
    CHECK_NEAR(number(json_object_get(plain, "moved_bytes"), "to_device"), 0, 0);
    CHECK(number(own, "step_seconds") > 0 && number(own, "step_seconds_10") <= number(own, "step_seconds_90"));
    check_against_train(folder, "a.json", own);
    snprintf(path, sizeof path, "%s/run", folder);
    CHECK(access(path, F_OK) != 0); /* nothing is written */
    json_decref(own);
    json_decref(plain);
    run_free(&r);
}

TEST(the_first_step_that_differs_is_named)
{
    char folder[4096];
    new_folder(folder);
    run_write_config(folder, "a.json", "");
    run_write_config(folder, "b.json", ", \"gradient_clipping\": 0.001");
    run_result r = run_sluice(folder, "compare a.json b.json a.json --steps 5 --rounds 1");
    CHECK_EQ(r.status, 0);
    CHECK_CONTAINS(r.out, "differs from step 2"); /* the first loss comes before the first update */
    CHECK_CONTAINS(r.out, "the same bits");
    CHECK_CONTAINS(r.out, "step, median");
    CHECK(strstr(r.out, "page written") == NULL);
    run_free(&r);
}

TEST(seeds_have_a_spread_and_ranks_the_bits_of_one)
{
    char folder[4096];
    new_folder(folder);
    run_write_config(folder, "a.json", OFFLOADED);
    run_result one = run_sluice(
        folder, "compare a.json --steps 4 --seeds 3 --rounds 1 --json --set train_micro_batch_size_per_gpu=2");
    run_result two = run_sluice(
        folder,
        "compare a.json --steps 4 --seeds 3 --rounds 1 --json --set train_micro_batch_size_per_gpu=2 --ranks 2");
    CHECK_EQ(one.status, 0);
    CHECK_EQ(two.status, 0);
    json_t *a = line_of(one.out, 0), *b = line_of(two.out, 0), *plain = line_of(two.out, 1);
    REQUIRE(a != NULL && b != NULL && plain != NULL);
    CHECK(number(a, "loss_spread") > 0);
    CHECK(number(a, "loss") == number(b, "loss"));
    CHECK_STR(text(a, "weights_sha256"), text(b, "weights_sha256"));
    CHECK_STR(text(plain, "bits"), "the same bits");
    CHECK(number(b, "sent_bytes") > 0);
    json_decref(a);
    json_decref(b);
    json_decref(plain);
    run_free(&one);
    run_free(&two);
}

TEST(what_does_not_fit_is_a_column_and_what_fails_ends_the_comparison)
{
    char folder[4096];
    new_folder(folder);
    run_write_config(folder, "a.json", ", \"memory\": {\"device\": \"1KiB\"}");
    run_result r = run_sluice(folder, "compare a.json --steps 3");
    CHECK_EQ(r.status, 0);
    CHECK_CONTAINS(r.out, "does not fit");
    CHECK_CONTAINS(r.error, "a.json: does not fit");
    run_free(&r);
    r = run_sluice(folder, "compare a.json a.json --steps 3");
    CHECK_EQ(r.status, 3);
    CHECK_STR(r.out, "");
    run_free(&r);
    r = run_sluice(folder, "compare missing.json");
    CHECK_EQ(r.status, 2);
    CHECK_CONTAINS(r.error, "missing.json");
    run_free(&r);
    r = run_sluice(folder, "compare a.json a.json a.json a.json a.json a.json a.json a.json a.json");
    CHECK_EQ(r.status, 2);
    CHECK_CONTAINS(r.error, "at most 8");
    run_free(&r);
    r = run_sluice(folder, "compare");
    CHECK_EQ(r.status, 2);
    CHECK_CONTAINS(r.error, "missing");
    run_free(&r);
}

TEST(the_page_has_the_numbers_of_the_lines)
{
    char folder[4096], path[4200];
    new_folder(folder);
    run_write_config(folder, "a.json", OFFLOADED);
    run_result r = run_sluice(folder, "compare a.json --steps 6 --seeds 2 --json -o page.html");
    CHECK_EQ(r.status, 0);
    CHECK_STR(r.error, "");
    snprintf(path, sizeof path, "%s/page.html", folder);
    char *page = run_read(path);
    html_check_balance(page);
    json_t *data = html_page_data(page);
    REQUIRE(data != NULL);
    CHECK_EQ(json_array_size(json_object_get(data, "compared")), 2);
    for (int i = 0; i < 2; i++) {
        const json_t *here = json_array_get(json_object_get(data, "compared"), (size_t)i);
        json_t *line = line_of(r.out, i), *value;
        const char *key;
        REQUIRE(line != NULL);
        json_object_foreach(line, key, value) if (strcmp(key, "losses") != 0)
            CHECK_THAT(json_equal(json_object_get(here, key), value), "%s differs", key);
        CHECK(number(line, "timed_seconds") > 0);
        CHECK_EQ(json_array_size(json_object_get(line, "streams")), i == 0 ? 4 : 1); /* plain: compute alone */
        CHECK_EQ(json_array_size(json_object_get(here, "curve")), 6);
        json_decref(line);
    }
    json_decref(data);
    free(page);
    run_free(&r);
    r = run_sluice(folder, "compare a.json --steps 3 --rounds 1 --out again.html");
    CHECK_CONTAINS(r.out, "page written to again.html\n");
    snprintf(path, sizeof path, "%s/again.html", folder);
    CHECK(access(path, F_OK) == 0);
    run_free(&r);
}

TEST(a_page_that_cannot_be_written_is_refused_before_anything_runs)
{
    static const struct {
        const char *path, *message;
        int status;
    } bad[] = {
        { "folder", "folder", 2 },
        { "missing/page.html", "missing", 6 },
        { "''", "no file name", 2 },
    };
    char folder[4096], path[4200], arguments[256];
    new_folder(folder);
    snprintf(path, sizeof path, "%s/folder", folder);
    CHECK_EQ(mkdir(path, 0777), 0);
    run_write_config(folder, "a.json", "");
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        snprintf(arguments, sizeof arguments, "compare a.json --steps 4 -o %s", bad[i].path);
        run_result r = run_sluice(folder, arguments);
        CHECK_EQ(r.status, bad[i].status);
        CHECK_STR(r.out, "");
        CHECK_CONTAINS(r.error, bad[i].message);
        CHECK(strchr(r.error, '\n') == r.error + strlen(r.error) - 1);
        run_free(&r);
    }
}
