/* loose_names_test.c: names as people type them. */
#include "core/names.h"

#include "test.h"

TEST(names_are_compared_without_case_punctuation_and_maker)
{
    static const char names[] = "rtx-4090|4090";
    CHECK(sl_name_is("RTX 4090", names) && sl_name_is("rtx4090", names) && sl_name_is("4090", names));
    CHECK(sl_name_is("NVIDIA GeForce RTX 4090", names));
    CHECK(!sl_name_is("rtx 4080", names) && !sl_name_is("rtx40900", names));
    CHECK(!sl_name_is("", names) && !sl_name_is("-", names) && !sl_name_is("|", names));
    CHECK(!sl_name_is("nvidia", names));
}

TEST(the_nearest_names_are_told_nearest_first)
{
    static const char *const lists[] = { "rtx-3090|3090", "rtx-4090|4090", "h100", "a100-80gb|a100" };
    char text[128], first[16];
    CHECK_STR(sl_names_nearest("rtx 409", lists, 4, sizeof lists[0], text, sizeof text), "rtx-4090 or rtx-3090");
    CHECK_STR(sl_names_nearest("zzz", lists, 4, sizeof lists[0], text, sizeof text), "");
    CHECK_STR(sl_names_nearest("", lists, 4, sizeof lists[0], text, sizeof text), "");
    CHECK_STR(sl_name_first(lists[3], first, sizeof first), "a100-80gb");
    CHECK_STR(sl_name_first("h100", first, sizeof first), "h100");
}

TEST(a_name_longer_than_any_is_like_none)
{
    static const char *const lists[] = { "rtx-3090|3090" };
    char text[128], longest[4096];
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    CHECK(!sl_name_is(longest, lists[0]));
    CHECK_STR(sl_names_nearest(longest, lists, 1, sizeof lists[0], text, sizeof text), "");
}
