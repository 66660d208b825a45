/* compared_test.c: lines of a comparison become a table, a verdict and a page that say the same; what is no such line is one
 * message. */
#include "report/compared.h"

#include "core/alloc.h"
#include "support/html_page.h"
#include "test.h"

#define HOSTILE "</script><b>\\\"x\\\" &'y' é"

/* A configuration that fits; `bits` and `losses` as the line has them. */
static void add_line(sl_text *out, const char *name, double seconds, const char *bits, const char *losses)
{
    sl_text_add(
        out,
        "{\"event\":\"compared\",\"name\":\"%s\",\"fits\":true,\"steps\":4,\"rounds\":2,\"seeds\":2,\"ranks\":1,"
        "\"step_seconds\":%.17g,\"step_seconds_10\":%.17g,\"step_seconds_90\":%.17g,"
        "\"predicted_step_seconds\":0.002,\"units\":\"tokens\",\"units_per_second\":%.17g,\"mfu\":null,"
        "\"peak_bytes\":{\"device\":%d,\"host\":4096,\"disk\":0},\"moved_bytes\":{\"to_device\":2048,"
        "\"to_host\":0,\"disk_read\":0,\"disk_write\":0},\"sent_bytes\":0,\"timed_seconds\":0.002,"
        "\"streams\":[{\"name\":\"compute\",\"busy_seconds\":0.001,\"exposed_seconds\":0},"
        "{\"name\":\"to device\",\"busy_seconds\":0.0005,\"exposed_seconds\":0.0001}],"
        "\"loss\":1.25,\"loss_spread\":0.5,\"validation_loss\":null,\"bits\":\"%s\",\"losses\":%s}\n",
        name, seconds, 0.9 * seconds, 1.1 * seconds, 64 / seconds, (int)(1e6 * seconds), bits, losses);
}

#define LOSSES "[[3,2,null,1],[4,3,2,1.5]]"

static void make_lines(sl_text *out)
{
    add_line(out, "a.json", 0.002, "repeatable", LOSSES);
    add_line(out, HOSTILE, 0.001, "differs from step 2", LOSSES);
    sl_text_add(out, "{\"name\":\"huge.json\",\"fits\":false,\"why\":\"needs 2 GiB\"}\n");
}

static char *print_table(const sl_comparison *c)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    sl_comparison_print(c, out);
    fclose(out);
    return text;
}

TEST(table_and_verdict_say_what_the_lines_say)
{
    sl_text lines = { .data = NULL };
    sl_comparison c;
    add_line(&lines, "a.json", 0.002, "repeatable", LOSSES);
    add_line(&lines, "b.json", 0.001, "the same bits", LOSSES);
    REQUIRE_OK(sl_comparison_read(lines.data, &c));
    char *table = print_table(&c);
    CHECK_CONTAINS(table, "4 steps, 2 rounds in turn, 2 seeds, 1 rank\n");
    CHECK_CONTAINS(table, "step, median                                 2.00 ms                 1.00 ms\n");
    CHECK_CONTAINS(table, "  10th to 90th percentile         1.80 ms .. 2.20 ms       900 us .. 1.10 ms\n");
    CHECK_CONTAINS(table, "to device, busy                25.0 %, 5.0 % exposed");
    CHECK_CONTAINS(table, "1.25 +- 0.5");
    CHECK(strstr(table, "between ranks") == NULL && strstr(table, "FLOPs") == NULL && strstr(table, "disk") == NULL);
    CHECK_CONTAINS(table,
                   "b.json is the fastest, at 1.00 ms a step: 2 times as fast as a.json (2.00 ms). It has 1000 B on "
                   "the device, 4.00 KiB on the host. All have the same bits.\n");
    free(table);
    sl_comparison_free(&c);
    sl_text_free(&lines);
}

TEST(steps_that_overlap_have_no_winner_and_what_differs_is_named)
{
    sl_text lines = { .data = NULL };
    sl_comparison c;
    add_line(&lines, "a.json", 0.00100, "repeatable", LOSSES);
    add_line(&lines, "b.json", 0.00105, "differs from step 3", LOSSES);
    sl_text_add(&lines, "{\"name\":\"huge.json\",\"fits\":false}\n");
    REQUIRE_OK(sl_comparison_read(lines.data, &c));
    char *table = print_table(&c);
    CHECK_CONTAINS(table, "a.json takes 1.00 ms a step: about as fast as b.json (1.05 ms).");
    CHECK_CONTAINS(table, "b.json beside a.json: differs from step 3. huge.json does not fit.\n");
    free(table);
    sl_comparison_free(&c);
    sl_text_free(&lines);
}

TEST(the_page_of_a_comparison_has_its_numbers_to_the_bit_and_is_well_formed)
{
    sl_text lines = { .data = NULL }, page = { .data = NULL };
    sl_comparison c;
    make_lines(&lines);
    REQUIRE_OK(sl_comparison_read(lines.data, &c));
    REQUIRE_OK(sl_comparison_page(&c, &page));
    html_check_balance(page.data);
    CHECK(strstr(page.data, "<b>") == NULL);
    CHECK(strstr(page.data, "http://") == NULL && strstr(page.data, "https://") == NULL);
    CHECK_CONTAINS(page.data, "Other bits");
    CHECK_CONTAINS(page.data, "does not fit");
    CHECK_CONTAINS(page.data, "needs 2 GiB");
    json_t *data = html_page_data(page.data);
    REQUIRE(data != NULL);
    const json_t *compared = json_object_get(data, "compared");
    CHECK_EQ(json_array_size(compared), 3);
    for (size_t i = 0; i < 3; i++) {
        const char *key;
        json_t *value;
        json_object_foreach(c.variants[i].line, key, value) if (strcmp(key, "losses") != 0)
            CHECK_THAT(json_equal(json_object_get(json_array_get(compared, i), key), value), "%s differs", key);
    }
    const json_t *curve = json_object_get(json_array_get(compared, 0), "curve");
    CHECK_EQ(json_array_size(curve), 4);
    static const double wanted[4][4] = { { 1, 3.5, 3, 4 }, { 2, 2.5, 2, 3 }, { 3, 0, 0, 0 }, { 4, 1.25, 1, 1.5 } };
    for (size_t i = 0; i < 4; i++)
        for (size_t k = 0; k < 4; k++) {
            const json_t *n = json_array_get(json_array_get(curve, i), k);
            if (i == 2 && k > 0)
                CHECK(json_is_null(n)); /* a seed has no loss there */
            else
                CHECK(json_number_value(n) == wanted[i][k]);
        }
    json_decref(data);
    sl_comparison_free(&c);
    sl_text_free(&page);
    sl_text_free(&lines);
}

TEST(very_many_steps_of_eight_configurations_are_a_small_page)
{
    enum { STEPS = 20000, MOST = 2000000 };
    sl_text lines = { .data = NULL }, losses = { .data = NULL }, page = { .data = NULL };
    sl_comparison c;
    for (int seed = 0; seed < 2; seed++) {
        sl_text_add(&losses, seed == 0 ? "[[" : ",[");
        for (int i = 0; i < STEPS; i++)
            sl_text_add(&losses, "%s%.17g", i > 0 ? "," : "", 3 / sqrt(1 + i) + 0.01 * sin(7.13 * i + seed));
        sl_text_add(&losses, seed == 0 ? "]" : "]]");
    }
    for (int i = 0; i < SL_COMPARED_MOST; i++)
        add_line(&lines, "a.json", 0.001 * (i + 1), i == 0 ? "repeatable" : "the same bits", losses.data);
    REQUIRE_OK(sl_comparison_read(lines.data, &c));
    REQUIRE_OK(sl_comparison_page(&c, &page));
    CHECK_THAT(page.bytes < MOST, "%zu bytes", page.bytes);
    html_check_balance(page.data);
    sl_comparison_free(&c);
    sl_text_free(&page);
    sl_text_free(&losses);
    sl_text_free(&lines);
}

TEST(what_is_no_comparison_is_one_message)
{
    static const struct {
        const char *lines, *message;
    } bad[] = {
        { "", "without configurations" },
        { "{", "line 1" },
        { "{\"name\":\"a\",\"fits\":false}\n[1]", "line 2 is no line of sluice compare --json" },
        { "{\"name\":\"a\"}", "\"fits\"" },
        { "{\"name\":\"a\",\"fits\":true,\"losses\":[[1,2],[1]]}", "losses of 2 and of 1 steps" },
        { "{\"name\":\"a\",\"fits\":true,\"losses\":[[]]}", "losses of 0" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        sl_comparison c;
        CHECK_EQ(sl_comparison_read(bad[i].lines, &c), SLUICE_ERR_INPUT);
        CHECK_CONTAINS(sluice_error(), bad[i].message);
    }
    sl_text many = { .data = NULL };
    sl_comparison c;
    for (int i = 0; i <= SL_COMPARED_MOST; i++) sl_text_add(&many, "{\"name\":\"a\",\"fits\":false}\n");
    CHECK_EQ(sl_comparison_read(many.data, &c), SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(), "at most 8");
    sl_text_free(&many);
}

TEST(a_line_without_numbers_has_dashes_and_a_page)
{
    sl_text page = { .data = NULL };
    sl_comparison c;
    REQUIRE_OK(sl_comparison_read(
        "{\"name\":\"\",\"fits\":true,\"bits\":\"repeatable\",\"streams\":[{},{\"name\":\"x\"}]}", &c));
    char *table = print_table(&c);
    CHECK_CONTAINS(table, "step, median                                       -\n");
    REQUIRE_OK(sl_comparison_page(&c, &page));
    html_check_balance(page.data);
    free(table);
    sl_text_free(&page);
    sl_comparison_free(&c);
}

TEST(a_comparison_without_memory_fails_and_leaves_nothing_behind)
{
    sl_text lines = { .data = NULL };
    sl_alloc_stats before, after;
    bool done = false;
    make_lines(&lines);
    sl_alloc_get_stats(&before);
    for (int nth = 1; !done && nth < 500; nth++) {
        sl_text page = { .data = NULL };
        sl_comparison c;
        sl_alloc_fail_nth(nth, 0);
        sluice_status st = sl_comparison_read(lines.data, &c);
        if (st == SLUICE_OK) {
            st = sl_comparison_page(&c, &page);
            sl_comparison_free(&c);
        }
        sl_alloc_fail_nth(0, 0);
        sl_text_free(&page);
        done = st == SLUICE_OK;
        if (!done) CHECK_EQ(st, SLUICE_ERR_NO_MEMORY);
    }
    CHECK(done);
    sl_alloc_get_stats(&after);
    CHECK_EQ(after.live_bytes, before.live_bytes);
    sl_text_free(&lines);
}
