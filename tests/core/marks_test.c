/* marks_test.c: a set of numbers beside one array of truths. */
#include "core/marks.h"

#include "test.h"

static int plain_next(const bool *has, int size, int i)
{
    while (i < size && !has[i]) i++;
    return i < size ? i : -1;
}

static int plain_previous(const bool *has, int i)
{
    while (i >= 0 && !has[i]) i--;
    return i;
}

/* Every neighbour of every number. */
static void compare(const sl_marks *m, const bool *has, int size)
{
    int wrong = 0;
    for (int i = 0; i < size; i++) wrong += sl_marks_has(m, i) != has[i];
    for (int i = 0; i <= size; i++) wrong += sl_marks_next(m, i) != plain_next(has, size, i);
    for (int i = -1; i < size; i++) wrong += sl_marks_previous(m, i) != plain_previous(has, i);
    CHECK_EQ(wrong, 0);
}

TEST(marks_find_the_neighbours_that_a_plain_search_finds)
{
    static const int sizes[] = { 1, 2, 63, 64, 65, 4095, 4096, 4097, 9000 };
    static bool has[9000];
    uint64_t random = 1;
    for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
        sl_marks m;
        memset(has, 0, sizeof has);
        REQUIRE_OK(sl_marks_create(&m, sizes[k]));
        compare(&m, has, sizes[k]);
        for (int round = 0; round < 6; round++) {
            for (int n = 0; n < 40; n++) { /* few, then more; then fewer */
                random = random * 6364136223846793005u + 1442695040888963407u;
                int i = (int)((random >> 33) % (uint64_t)sizes[k]);
                has[i] = round < 3;
                (has[i] ? sl_marks_set : sl_marks_clear)(&m, i);
            }
            compare(&m, has, sizes[k]);
        }
        sl_marks_destroy(&m);
    }
}

TEST(marks_of_no_numbers_are_empty)
{
    sl_marks m;
    REQUIRE_OK(sl_marks_create(&m, 0));
    CHECK_EQ(sl_marks_next(&m, 0), -1);
    CHECK_EQ(sl_marks_previous(&m, -1), -1);
    sl_marks_destroy(&m);
}

/* The ends of the largest level: 64^3 numbers need three. */
TEST(marks_reach_over_three_levels)
{
    sl_marks m;
    int last = 64 * 64 * 64;
    REQUIRE_OK(sl_marks_create(&m, last + 1));
    sl_marks_set(&m, 0);
    sl_marks_set(&m, last);
    CHECK_EQ(sl_marks_next(&m, 1), last);
    CHECK_EQ(sl_marks_previous(&m, last - 1), 0);
    sl_marks_clear(&m, last);
    CHECK_EQ(sl_marks_next(&m, 1), -1);
    sl_marks_destroy(&m);
}
