/* bounds_test.c: every whole number and every size of the table has an upper bound, which is taken, and told to whoever
 * goes over it. */
#include <inttypes.h>

#include "config/config.h"
#include "config/config_rows.h"
#include "core/status.h"
#include "test.h"

static sluice_config *open_config(void)
{
    char path[4200];
    sluice_config *c = NULL;
    snprintf(path, sizeof path, "%s/config.json", test_tmpdir());
    FILE *f = fopen(path, "w");
    if (f == NULL) return NULL;
    fputs("{}", f);
    fclose(f);
    if (sluice_config_load(path, &c) != SLUICE_OK) return NULL;
    return c;
}

static bool is_bounded(const sl_option *row)
{
    return row->fate == SL_KEY_HONOURED && (row->type == SL_OPT_INT || row->type == SL_OPT_SIZE);
}

static sluice_status assign(sluice_config *c, const sl_option *row, const char *value)
{
    char text[256];
    snprintf(text, sizeof text, "%s=%s", row->key, value);
    return sluice_config_set(c, text);
}

static void check_refused(sluice_config *c, const sl_option *row, const char *value)
{
    char bound[64];
    snprintf(bound, sizeof bound, "to %" PRId64, (int64_t)row->max);
    CHECK_THAT(assign(c, row, value) == SLUICE_ERR_USAGE, "%s takes %s", row->key, value);
    CHECK_CONTAINS(sluice_error(), row->key);
    CHECK_CONTAINS(sluice_error(), bound);
}

TEST(every_whole_number_and_size_has_an_upper_bound_that_its_field_can_hold)
{
    int rows = 0;
    for (size_t i = 0; i < sl_config_row_count; i++) {
        const sl_option *row = &sl_config_rows[i];
        if (!is_bounded(row)) continue;
        rows++;
        CHECK_THAT(row->max > row->min && row->max <= 9007199254740992.0, "%s: largest value %g", row->key, row->max);
        if (row->bytes == 4) CHECK_THAT(row->max <= INT32_MAX, "%s: largest value %g", row->key, row->max);
    }
    CHECK(rows > 40);
}

TEST(every_whole_number_and_size_takes_its_largest_value_and_refuses_one_more_by_name)
{
    sluice_config *c = open_config();
    REQUIRE(c != NULL);
    for (size_t i = 0; i < sl_config_row_count; i++) {
        const sl_option *row = &sl_config_rows[i];
        sl_config_value value;
        char text[64];
        if (!is_bounded(row)) continue;
        int64_t max = (int64_t)row->max, min = (int64_t)row->min;
        snprintf(text, sizeof text, "%" PRId64, max);
        REQUIRE_OK(assign(c, row, text));
        sl_config_value_load(row, &c->settings, &value);
        CHECK_THAT((row->type == SL_OPT_SIZE ? (int64_t)value.size : value.integer) == max,
                   "%s: %s is stored as %" PRId64, row->key, text, value.integer);
        snprintf(text, sizeof text, "%" PRId64, max + 1);
        check_refused(c, row, text);
        snprintf(text, sizeof text, "%" PRId64, max + ((int64_t)1 << 32));
        check_refused(c, row, text);
        check_refused(c, row, "9223372036854775807");
        check_refused(c, row, "99999999999999999999");
        check_refused(c, row, "1e30");
        snprintf(text, sizeof text, "%" PRId64, min - 1);
        check_refused(c, row, text);
        if (row->type == SL_OPT_SIZE) check_refused(c, row, "99999999TiB");
    }
    sluice_config_destroy(c);
}

/* The one text that may be a number. */
TEST(a_vocabulary_of_more_tokens_than_an_id_can_count_is_refused)
{
    static const char *const bad[] = { "2147483648", "9223372036854775807", "99999999999999999999", "0", "-5" };
    sluice_config *c = open_config();
    REQUIRE(c != NULL);
    REQUIRE_OK(sluice_config_set(c, "model.vocabulary=2147483647"));
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char text[64];
        snprintf(text, sizeof text, "model.vocabulary=%s", bad[i]);
        CHECK_THAT(sluice_config_set(c, text) == SLUICE_ERR_USAGE, "%s is taken", text);
        CHECK_CONTAINS(sluice_error(), "model.vocabulary");
        CHECK_CONTAINS(sluice_error(), "from 1 to 2147483647");
    }
    sluice_config_destroy(c);
}
