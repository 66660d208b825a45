/* arrays_test.c: the user's own data, as arrays and through a callback. */
#include "core/alloc.h"
#include "data/data.h"
#include "test.h"

static const float x_rows[3][2] = { { 1, 2 }, { 3, 4 }, { 5, 6 } };
static const int32_t classes[3] = { 0, 1, 2 };
static const sluice_array both[2] = { { "x", x_rows, sizeof x_rows }, { "target", classes, sizeof classes } };

TEST(rows_of_all_arrays_stay_together)
{
    sluice_data *d;
    float x[30][2];
    int32_t t[30];
    sl_data_field f[] = { { "target", SLUICE_I32, 1, t }, { "x", SLUICE_F32, 2, x } };
    REQUIRE_OK(sluice_data_from_arrays(both, 2, 3, true, 9, &d));
    REQUIRE_OK(d->ops->fill(d, 0, 30, f, 2));
    for (int i = 0; i < 30; i++) {
        CHECK(x[i][0] == x_rows[t[i]][0]);
        CHECK(x[i][1] == x_rows[t[i]][1]);
    }
    sluice_data_destroy(d);
}

TEST(evaluation_pads_with_the_last_row_and_ignored_targets)
{
    sluice_data *d;
    float x[4][2];
    int32_t t[4];
    int64_t valid;
    sl_data_field f[] = { { "x", SLUICE_F32, 2, x }, { "target", SLUICE_I32, 1, t } };
    REQUIRE_OK(sluice_data_from_arrays(both, 2, 3, true, 9, &d));
    CHECK_EQ(d->ops->samples(d, SL_SPLIT_TRAIN), 3);
    CHECK_EQ(d->ops->samples(d, SL_SPLIT_VALIDATION), 0);
    REQUIRE_OK(d->ops->fill_eval(d, SL_SPLIT_TRAIN, 1, 4, f, 2, &valid));
    CHECK_EQ(valid, 2);
    const float expected[4][2] = { { 3, 4 }, { 5, 6 }, { 5, 6 }, { 5, 6 } };
    const int32_t expected_targets[4] = { 1, 2, -1, -1 };
    CHECK(memcmp(x, expected, sizeof x) == 0);
    CHECK(memcmp(t, expected_targets, sizeof t) == 0);
    CHECK_EQ(d->ops->fill_eval(d, SL_SPLIT_TRAIN, 3, 4, f, 2, &valid), SLUICE_ERR_USAGE);
    sluice_data_destroy(d);
}

TEST(arrays_that_do_not_hold_whole_rows_are_refused)
{
    sluice_data *d = NULL;
    sluice_array uneven = { "x", x_rows, sizeof x_rows - 4 };
    sluice_array bytes = { "x", x_rows, 3 * 2 };
    sluice_array nameless = { NULL, x_rows, sizeof x_rows };
    sluice_array empty = { "x", x_rows, 0 };
    sluice_array twice[] = { both[0], both[0] };
    CHECK_EQ(sluice_data_from_arrays(&uneven, 1, 3, true, 0, &d), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "\"x\" of 20 bytes is not 3 rows");
    CHECK_EQ(sluice_data_from_arrays(&bytes, 1, 3, true, 0, &d), SLUICE_ERR_USAGE);
    CHECK_EQ(sluice_data_from_arrays(&nameless, 1, 3, true, 0, &d), SLUICE_ERR_USAGE);
    CHECK_EQ(sluice_data_from_arrays(&empty, 1, 3, true, 0, &d), SLUICE_ERR_USAGE);
    CHECK_EQ(sluice_data_from_arrays(twice, 2, 3, true, 0, &d), SLUICE_ERR_USAGE);
    CHECK_EQ(sluice_data_from_arrays(both, 2, 0, true, 0, &d), SLUICE_ERR_USAGE);
    CHECK_EQ(sluice_data_from_arrays(both, 0, 3, true, 0, &d), SLUICE_ERR_USAGE);
    CHECK(d == NULL);
}

TEST(a_model_input_that_the_arrays_lack_or_that_has_another_size_is_named)
{
    sluice_data *d;
    float x[2][3];
    sl_data_field missing = { "image", SLUICE_F32, 3, x }, wide = { "x", SLUICE_F32, 3, x };
    REQUIRE_OK(sluice_data_from_arrays(both, 2, 3, true, 0, &d));
    CHECK_EQ(d->ops->fill(d, 0, 2, &missing, 1), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "\"image\" is not in the arrays data, which has \"x\", \"target\"");
    CHECK_EQ(d->ops->fill(d, 0, 2, &wide, 1), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "takes 3 elements a sample, the arrays data has 2");
    sluice_data_destroy(d);
}

TEST(identity_of_arrays_follows_their_contents)
{
    float values[4] = { 1, 2, 3, 4 };
    sluice_array a = { "x", values, sizeof values };
    sluice_data *d;
    char before[65], same[65], after[65];
    REQUIRE_OK(sluice_data_from_arrays(&a, 1, 2, true, 5, &d));
    d->ops->identity(d, before);
    d->ops->identity(d, same);
    values[3] = 5;
    d->ops->identity(d, after);
    CHECK_STR(before, same);
    CHECK(strcmp(before, after) != 0);
    CHECK_EQ(strlen(before), 64);
    sluice_data_destroy(d);
}

TEST(failed_allocations_leak_nothing)
{
    sl_alloc_stats before, after;
    sluice_data *d;
    sl_alloc_get_stats(&before);
    for (int n = 1; n < 20; n++) {
        sl_alloc_fail_nth(n, 0);
        sluice_status st = sluice_data_from_arrays(both, 2, 3, true, 0, &d);
        sl_alloc_fail_nth(0, 0);
        if (st == SLUICE_OK) {
            CHECK(n > 1);
            sluice_data_destroy(d);
        } else {
            CHECK_EQ(st, SLUICE_ERR_NO_MEMORY);
        }
        sl_alloc_get_stats(&after);
        CHECK_EQ(after.live_bytes, before.live_bytes);
    }
}

/* Writes the index and the sizes it was given; refuses micro-batch 3. */
static sluice_status fill_with_index(void *user, uint64_t index, const char *const *names, void *const *buffers,
                                     const size_t *bytes, int count)
{
    int *calls = user;
    ++*calls;
    if (index == 3) return SLUICE_ERR_IO;
    for (int i = 0; i < count; i++) {
        CHECK_STR(names[i], i == 0 ? "x" : "target");
        CHECK_EQ(bytes[i], i == 0 ? 5 * 2 * 4 : 5 * 4);
        memset(buffers[i], (int)index, bytes[i]);
    }
    return SLUICE_OK;
}

TEST(a_callback_writes_into_the_buffers_it_is_given)
{
    sluice_data *d;
    int calls = 0;
    unsigned char x[40], t[20];
    char identity[65] = "unset";
    sl_data_field f[] = { { "x", SLUICE_F32, 2, x }, { "target", SLUICE_I32, 1, t } };
    REQUIRE_OK(sluice_data_from_callback(fill_with_index, &calls, &d));
    REQUIRE_OK(d->ops->fill(d, 2, 5, f, 2));
    CHECK_EQ(calls, 1);
    for (int i = 0; i < 40; i++) CHECK_EQ(x[i], 2);
    for (int i = 0; i < 20; i++) CHECK_EQ(t[i], 2);
    d->ops->identity(d, identity);
    CHECK_STR(identity, "");
    sluice_data_destroy(d);
}

TEST(a_callbacks_failure_is_passed_on_with_its_micro_batch)
{
    sluice_data *d;
    int calls = 0;
    int64_t valid;
    unsigned char x[40];
    sl_data_field f = { "x", SLUICE_F32, 2, x };
    REQUIRE_OK(sluice_data_from_callback(fill_with_index, &calls, &d));
    CHECK_EQ(d->ops->fill(d, 3, 5, &f, 1), SLUICE_ERR_IO);
    CHECK_CONTAINS(sluice_error(), "status 6 for micro-batch 3");
    CHECK_EQ(d->ops->fill_eval(d, SL_SPLIT_TRAIN, 0, 5, &f, 1, &valid), SLUICE_ERR_USAGE);
    CHECK_EQ(sluice_data_from_callback(NULL, NULL, &d), SLUICE_ERR_USAGE);
    sluice_data_destroy(d);
    sluice_data_destroy(NULL);
}
