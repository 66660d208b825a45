/* span_test.c: tiers and links: every row is filled, and asking for a link gives its row. */
#include "ir/span.h"

#include <string.h>

#include "test.h"

TEST(every_tier_has_a_name_a_setting_and_a_letter_of_its_own)
{
    for (int t = 0; t < SL_TIER_COUNT; t++) {
        REQUIRE(sl_tiers[t].name != NULL && sl_tiers[t].setting != NULL);
        CHECK_STR(sl_tier_name((sl_tier)t), sl_tiers[t].name);
        for (int other = 0; other < t; other++) {
            CHECK(strcmp(sl_tiers[t].name, sl_tiers[other].name) != 0);
            CHECK(strcmp(sl_tiers[t].setting, sl_tiers[other].setting) != 0);
            CHECK(sl_tiers[t].letter != sl_tiers[other].letter);
        }
    }
    CHECK_STR(sl_tier_name(SL_TIER_COUNT), "unknown");
}

TEST(the_link_of_two_tiers_is_the_row_that_joins_them)
{
    for (int k = 0; k < SL_LINK_COUNT; k++) {
        const sl_link_row *row = &sl_links[k];
        REQUIRE(row->name != NULL && row->from != row->to);
        CHECK_EQ(sl_link_of(row->from, row->to), k);
        CHECK_EQ(sl_copy_stream(row->from, row->to), row->stream);
        for (int other = 0; other < k; other++) CHECK(row->stream != sl_links[other].stream);
    }
}

TEST(a_copy_within_a_tier_crosses_no_link_and_has_the_stream_of_one_that_leads_there)
{
    for (int t = 0; t < SL_TIER_COUNT; t++) CHECK_EQ(sl_link_of((sl_tier)t, (sl_tier)t), SL_LINK_COUNT);
    CHECK_EQ(sl_copy_stream(SL_TIER_HOST, SL_TIER_HOST), SL_STREAM_TO_HOST);
    CHECK_EQ(sl_copy_stream(SL_TIER_DEVICE, SL_TIER_DEVICE), SL_STREAM_TO_DEVICE);
}
