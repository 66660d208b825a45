/* options_test.c: rows by key, and guesses for misspelt ones. */
#include "core/options.h"
#include "test.h"

static const sl_option table[] = {
    { .key = "train_batch_size" },
    { .key = "train_micro_batch_size_per_gpu" },
    { .key = "optimizer.params.lr" },
    { .key = "zero_optimization.stage" },
    { .key = "steps" },
    { .key = "seed" },
};
enum { ROWS = sizeof table / sizeof table[0] };

TEST(option_find_wants_the_whole_key)
{
    const sl_option *row = sl_option_find(table, ROWS, "seed");
    REQUIRE(row != NULL);
    CHECK_STR(row->key, "seed");
    CHECK(sl_option_find(table, ROWS, "see") == NULL);
    CHECK(sl_option_find(table, ROWS, "seeds") == NULL);
    CHECK(sl_option_find(table, ROWS, "") == NULL);
    CHECK(sl_option_find(table, 0, "seed") == NULL);
}

TEST(option_nearest_finds_misspellings)
{
    static const char *const rows[][2] = {
        { "train_bach_size", "train_batch_size" },
        { "trainbatchsize", "train_batch_size" },
        { "zero_optimisation.stage", "zero_optimization.stage" },
        { "zero_optimization.stag", "zero_optimization.stage" },
        { "optimizer.params.ir", "optimizer.params.lr" },
        { "step", "steps" },
        { "sed", "seed" },
        { "seed", "seed" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const char *got = sl_option_nearest(table, ROWS, rows[i][0]);
        CHECK_STR(got == NULL ? "(none)" : got, rows[i][1]);
    }
}

TEST(option_nearest_is_silent_when_nothing_is_close)
{
    static const char *const keys[] = { "", "x", "lr", "wall_clock_breakdown", "stage", "dees" };
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const char *got = sl_option_nearest(table, ROWS, keys[i]);
        if (got != NULL) test_fail(__FILE__, __LINE__, "\"%s\" gave \"%s\"", keys[i], got);
    }
    CHECK(sl_option_nearest(table, 0, "seed") == NULL);
}

TEST(edit_distance_counts_single_edits)
{
    CHECK_EQ(sl_edit_distance("", ""), 0);
    CHECK_EQ(sl_edit_distance("abc", ""), 3);
    CHECK_EQ(sl_edit_distance("", "abc"), 3);
    CHECK_EQ(sl_edit_distance("kitten", "sitting"), 3);
    CHECK_EQ(sl_edit_distance("sitting", "kitten"), 3);
    CHECK_EQ(sl_edit_distance("flaw", "lawn"), 2);
    CHECK_EQ(sl_edit_distance("same", "same"), 0);
}

TEST(edit_distance_takes_texts_of_any_length)
{
    char *text = malloc(100001);
    REQUIRE(text != NULL);
    memset(text, 'a', 100000);
    text[100000] = '\0';
    CHECK_EQ(sl_edit_distance(text, "a"), 100000);
    CHECK_EQ(sl_edit_distance("b", text), 100000);
    CHECK(sl_option_nearest(table, ROWS, text) == NULL);
    text[255] = '\0'; /* the longest that is still compared letter by letter */
    CHECK_EQ(sl_edit_distance(text, "a"), 254);
    free(text);
}
