/* grow_test.c: a list keeps what it has, doubles, and stays what it was where there is no memory. */
#include "core/grow.h"

#include "core/alloc.h"
#include "test.h"

TEST(a_list_doubles_keeps_its_elements_and_begins_with_the_least)
{
    int32_t *list = NULL;
    int64_t capacity = 0, grown = 0;
    for (int32_t i = 0; i < 1000; i++) {
        int64_t before = capacity;
        REQUIRE_OK(SL_GROW(list, capacity, i + 1, 16, "list"));
        CHECK(capacity > i);
        CHECK_EQ(list[i], before == capacity ? list[i] : 0); /* new elements are zero */
        grown += before != capacity;
        list[i] = i;
    }
    CHECK_EQ(capacity, 1024);
    CHECK_EQ(grown, 7);
    for (int32_t i = 0; i < 1000; i++) CHECK_EQ(list[i], i);
    REQUIRE_OK(SL_GROW(list, capacity, 5000, 16, "list"));
    CHECK_EQ(capacity, 5000);
    CHECK_EQ(list[999], 999);
    sl_free(list);
}

TEST(a_list_is_as_it_was_where_there_is_no_memory)
{
    double *list = NULL;
    int64_t capacity = 0;
    REQUIRE_OK(SL_GROW(list, capacity, 1, 4, "list"));
    double *before = list;
    list[3] = 1.5;
    sl_alloc_fail_nth(1, 0);
    CHECK_EQ(SL_GROW(list, capacity, 5, 4, "list"), SLUICE_ERR_NO_MEMORY);
    sl_alloc_fail_nth(0, 0);
    CHECK_EQ(SL_GROW(list, capacity, INT64_MAX / 2, 4, "list"), SLUICE_ERR_NO_MEMORY);
    CHECK_CONTAINS(sluice_error(), "more than any machine has");
    CHECK(list == before && capacity == 4 && list[3] == 1.5);
    sl_free(list);
}
