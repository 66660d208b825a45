/* page_test.c: a page is well-formed, says the numbers it was given, and stays small. */
#include "report/page.h"

#include "core/thread.h"
#include "report/profile.h"
#include "report/thin.h"
#include "support/html_page.h"
#include "support/planned.h"
#include "test.h"

#define HOSTILE "</script><b>\"x\"&'y' <!-- é"
#define MOST    2000000 /* bytes of a page */

static json_t *profile_of_a_plan(void)
{
    planned fx;
    sl_text text = { .data = NULL };
    json_error_t error;
    memset(&fx, 0, sizeof fx);
    plan_options_default(&fx.options);
    fx.options.parameters = fx.options.state = SLUICE_PLACE_HOST;
    if (plan_model(&fx, 4212) != SLUICE_OK) return NULL;
    const sl_profile_source s = {
        .plan = fx.plan, .device = HOSTILE, .configuration = "{\"data\": {\"path\": \"</script><i>\"}}", .threads = 2
    };
    json_t *root = sl_profile_write(&s, &text) == SLUICE_OK ? json_loadb(text.data, text.bytes, 0, &error) : NULL;
    sl_text_free(&text);
    planned_free(&fx);
    return root;
}

static void make_record(sl_run_record *r, size_t steps)
{
    *r = (sl_run_record){ .outcome = SL_RUN_DEAD };
    for (size_t i = 0; i < steps; i++) {
        double x = (double)i + 1;
        sl_recorded_step s = { i + 1,  3 / sqrt(x) + 0.01 * sin(x * 7.13), 1e-3 / x, 1 + cos(x), 0.1 + 1e-3 * sin(x),
                               1e4 + x };
        if (i == 7) s.loss = (double)NAN;
        REQUIRE_OK(sl_record_add_step(r, &s));
    }
    for (size_t i = 0; i < 5; i++)
        REQUIRE_OK(sl_record_add_eval(r, &(sl_recorded_eval){ i * steps / 5, 3.0 / (double)(i + 1), 0.5, i == 4 }));
    REQUIRE_OK(sl_record_add_note(r, "warning", 3, "2026-01-01T00:00:00.000Z", HOSTILE));
}

TEST(a_page_has_the_numbers_of_the_events_to_the_bit_and_is_well_formed)
{
    sl_run_record r;
    sl_text page = { .data = NULL };
    json_t *profile = profile_of_a_plan();
    REQUIRE(profile != NULL);
    make_record(&r, 500);
    REQUIRE_OK(sl_page_write(&r, profile, HOSTILE, &page));
    html_check_balance(page.data);
    CHECK(page.bytes < MOST);
    json_t *data = html_page_data(page.data);
    REQUIRE(data != NULL);
    const json_t *steps = json_object_get(data, "steps");
    CHECK_EQ(json_array_size(steps), 500);
    for (size_t i = 0; i < json_array_size(steps); i++) {
        const json_t *row = json_array_get(steps, i);
        const sl_recorded_step *s = &r.steps[i];
        CHECK_EQ(json_integer_value(json_array_get(row, 0)), s->step);
        if (i == 7)
            CHECK(json_is_null(json_array_get(row, 1)));
        else
            CHECK(json_number_value(json_array_get(row, 1)) == s->loss);
        CHECK(json_number_value(json_array_get(row, 2)) == s->lr);
        CHECK(json_number_value(json_array_get(row, 4)) == s->seconds);
    }
    CHECK_EQ(json_array_size(json_object_get(data, "evals")), 5);
    CHECK(json_equal(json_object_get(json_object_get(data, "profile"), "layers"), json_object_get(profile, "layers")));
    json_decref(data);
    json_decref(profile);
    sl_text_free(&page);
    sl_record_free(&r);
}

TEST(names_of_others_are_text_wherever_they_stand)
{
    sl_run_record r;
    sl_text page = { .data = NULL };
    json_t *profile = profile_of_a_plan();
    REQUIRE(profile != NULL);
    make_record(&r, 10);
    REQUIRE_OK(sl_page_write(&r, profile, HOSTILE, &page));
    CHECK(strstr(page.data, "<b>") == NULL);
    CHECK(strstr(page.data, "<i>") == NULL);
    CHECK_CONTAINS(page.data, "&#60;/script&#62;&#60;b&#62;");
    CHECK(strstr(page.data, "http://") == NULL && strstr(page.data, "https://") == NULL); /* nothing is fetched */
    json_decref(profile);
    sl_text_free(&page);
    sl_record_free(&r);
}

/* A journal is a file that anyone may have changed. */
TEST(what_stands_where_hashes_should_leaves_the_data_of_a_page_whole)
{
    sl_run_record r;
    sl_text page = { .data = NULL };
    make_record(&r, 10);
    r.end.known = true;
    snprintf(r.end.weights_sha256, sizeof r.end.weights_sha256, "a\"b\\");
    snprintf(r.end.state_sha256, sizeof r.end.state_sha256, "</script>\n");
    REQUIRE_OK(sl_page_write(&r, NULL, "run", &page));
    html_check_balance(page.data);
    json_t *data = html_page_data(page.data);
    REQUIRE(data != NULL);
    CHECK_STR(json_string_value(json_object_get(json_object_get(data, "end"), "weights_sha256")), "a\"b\\");
    CHECK_STR(json_string_value(json_object_get(json_object_get(data, "end"), "state_sha256")), "</script>\n");
    json_decref(data);
    sl_text_free(&page);
    sl_record_free(&r);
}

static void write_page(json_t *profile, double drawn, sl_text *page)
{
    sl_run_record r;
    json_t *step = json_object_get(profile, "step_seconds");
    json_object_set_new(profile, "measured", json_true());
    json_object_set_new(profile, "training_step", json_integer(3));
    json_object_set_new(step, "measured", json_real(drawn));
    make_record(&r, 10); /* of about 0.1 s each */
    *page = (sl_text){ .data = NULL };
    REQUIRE_OK(sl_page_write(&r, profile, "run", page));
    html_check_balance(page->data);
    sl_record_free(&r);
}

TEST(a_step_that_is_not_like_the_others_is_shown_as_such)
{
    sl_text page;
    json_t *profile = profile_of_a_plan();
    REQUIRE(profile != NULL);
    write_page(profile, 0.32, &page);
    CHECK_CONTAINS(page.data, "Step 3 of the run");
    CHECK_CONTAINS(page.data, "It is not typical</strong>: it took 320 ms, 3.2 times the ");
    sl_text_free(&page);
    write_page(profile, 0.11, &page);
    CHECK_CONTAINS(page.data, "Step 3 of the run");
    CHECK(strstr(page.data, "not typical") == NULL);
    sl_text_free(&page);
    json_decref(profile);
}

/* Texts that are none, and numbers that lead to none. */
TEST(a_profile_that_others_changed_has_a_page)
{
    sl_run_record r;
    sl_text page = { .data = NULL };
    size_t i;
    json_t *profile = profile_of_a_plan(), *tier;
    REQUIRE(profile != NULL && json_array_size(json_object_get(profile, "memory")) > 0);
    json_array_foreach(json_object_get(profile, "memory"), i, tier)
    {
        json_t *kinds = json_object_get(tier, "kinds"), *tenant = json_array_get(json_object_get(tier, "tenants"), 0);
        json_array_set_new(kinds, 0, json_array());
        json_array_set_new(tenant, 0, json_null());
        json_array_set_new(tenant, 1, json_integer(1000));
    }
    make_record(&r, 10);
    REQUIRE_OK(sl_page_write(&r, profile, "run", &page));
    html_check_balance(page.data);
    CHECK(strstr(page.data, "(null)") == NULL);
    json_decref(profile);
    sl_text_free(&page);
    sl_record_free(&r);
}

TEST(a_million_steps_are_a_small_page_that_says_it_shows_some)
{
    sl_run_record r;
    sl_text page = { .data = NULL };
    json_t *profile = profile_of_a_plan();
    REQUIRE(profile != NULL);
    make_record(&r, 1000000);
    double start = sl_now();
    REQUIRE_OK(sl_page_write(&r, profile, "long", &page));
    CHECK(sl_now() - start < 20);
    CHECK(page.bytes < MOST);
    html_check_balance(page.data);
    CHECK_CONTAINS(page.data, "1,000,000 steps, of which ");
    json_t *data = html_page_data(page.data);
    REQUIRE(data != NULL);
    CHECK(json_array_size(json_object_get(data, "steps")) <= 9 * SL_THIN_COLUMNS + 2);
    CHECK_EQ(json_integer_value(json_object_get(data, "step_count")), 1000000);
    json_decref(data);
    json_decref(profile);
    sl_text_free(&page);
    sl_record_free(&r);
}

TEST(a_run_of_which_nothing_is_known_has_a_page)
{
    const sl_run_record r = { .outcome = SL_RUN_DEAD };
    sl_text page = { .data = NULL };
    REQUIRE_OK(sl_page_write(&r, NULL, "empty", &page));
    html_check_balance(page.data);
    CHECK_CONTAINS(page.data, "No step is recorded");
    CHECK_CONTAINS(page.data, "This run has no profile");
    sl_text_free(&page);
}
