/* Structs that carry their size, between programs and a library of different versions. */
#include "core/sized.h"

#include <string.h>

#include "test.h"

typedef struct {
    size_t size;
    int first;
} small; /* of an older header */
typedef struct {
    size_t size;
    int first;
    int64_t second;
} whole; /* of the library */
typedef struct {
    size_t size;
    int first;
    int64_t second, third;
} large; /* of a newer header */

static const whole defaults = { .first = 1, .second = 2 };

TEST(an_older_callers_struct_is_filled_and_nothing_behind_it)
{
    struct {
        small o;
        unsigned char behind[64];
    } caller;
    memset(&caller, 0xa5, sizeof caller);
    sl_sized_fill(&caller.o, sizeof caller.o, &defaults, sizeof defaults);
    CHECK_EQ(caller.o.size, sizeof caller.o);
    CHECK_EQ(caller.o.first, 1);
    for (size_t i = 0; i < sizeof caller.behind; i++) CHECK_EQ(caller.behind[i], 0xa5);
}

TEST(fields_that_only_a_newer_caller_has_become_zero)
{
    large o;
    memset(&o, 0xa5, sizeof o);
    sl_sized_fill(&o, sizeof o, &defaults, sizeof defaults);
    CHECK_EQ(o.size, sizeof o);
    CHECK_EQ(o.second, 2);
    CHECK_EQ(o.third, 0);
}

TEST(sizes_of_no_such_struct_fill_nothing)
{
    const size_t sizes[] = { 0, 1, sizeof(size_t) - 1, 17 * sizeof defaults, SIZE_MAX };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        whole o = { .size = 77, .first = 78 };
        sl_sized_fill(&o, sizes[i], &defaults, sizeof defaults);
        CHECK_EQ(o.size, 77);
        CHECK_EQ(o.first, 78);
    }
    sl_sized_fill(NULL, sizeof defaults, &defaults, sizeof defaults);
}

TEST(what_an_older_caller_does_not_know_keeps_its_default)
{
    small given = { sizeof given, 5 };
    whole copy = defaults;
    REQUIRE_OK(sl_sized_take("a_struct", &given, SL_THROUGH(whole, first), &copy, sizeof copy));
    CHECK_EQ(copy.first, 5);
    CHECK_EQ(copy.second, 2);
    CHECK_EQ(copy.size, sizeof copy);
}

TEST(a_newer_callers_field_is_refused_where_it_is_set)
{
    large given = { sizeof given, 5, 6, 0 };
    whole copy = defaults;
    REQUIRE_OK(sl_sized_take("a_struct", &given, SL_THROUGH(whole, first), &copy, sizeof copy));
    CHECK_EQ(copy.second, 6);
    given.third = 1;
    copy = defaults;
    CHECK_EQ(sl_sized_take("a_struct", &given, SL_THROUGH(whole, first), &copy, sizeof copy), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "a_struct.size");
    CHECK_CONTAINS(sluice_error(), "newer");
    CHECK_EQ(copy.second, 2);
}

TEST(structs_that_nobody_filled_are_refused_by_name)
{
    whole copy = defaults, given = { .size = sizeof(size_t) };
    const size_t sizes[] = { 0, sizeof(size_t), SL_THROUGH(whole, first) - 1, 17 * sizeof copy };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        given.size = sizes[i];
        CHECK_EQ(sl_sized_take("a_struct", &given, SL_THROUGH(whole, first), &copy, sizeof copy), SLUICE_ERR_USAGE);
        CHECK_CONTAINS(sluice_error(), "a_struct_init");
    }
    CHECK_EQ(sl_sized_take("a_struct", NULL, SL_THROUGH(whole, first), &copy, sizeof copy), SLUICE_ERR_USAGE);
}
