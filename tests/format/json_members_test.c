/* json_members_test.c: members of an object as they are written, and texts that are none. */
#include "format/json_members.h"

#include <stdio.h>
#include <string.h>

#include "test.h"

/* "key=value;" of each member. */
static bool list(const char *text, char out[256])
{
    sl_json_members members;
    sl_json_member m;
    size_t used = 0;
    out[0] = '\0';
    sl_json_members_begin(&members, text, strlen(text));
    while (sl_json_next_member(&members, &m))
        used += (size_t)snprintf(out + used, 256 - used, "%.*s=%.*s;", (int)m.key_bytes, m.key, (int)m.value_bytes,
                                 m.value);
    return members.whole;
}

TEST(members_are_found_whatever_is_in_them)
{
    char out[256];
    CHECK(list("{\"a\":1,\"b\": \"x,}\\\"\", \"c\":{\"d\":[\"]\",{}]},\"e\":null}", out));
    CHECK_STR(out, "a=1;b=\"x,}\\\"\";c={\"d\":[\"]\",{}]};e=null;");
    CHECK(list("{\"a\":[1,2]}", out));
    CHECK_STR(out, "a=[1,2];");
}

TEST(what_is_no_whole_object_is_not_taken_for_one)
{
    static const char *const texts[] = { "",           "{",          "{}",         "[1]",         "7",
                                         "{\"a\"",     "{\"a\":",    "{\"a\":1",   "{\"a\":\"1}", "{\"a\":{}",
                                         "{\"a\":1,}", "{\"a\":1}x", "{\"a\" :1}", "{a:1}",       "{\"a\":\"\\" };
    char out[256];
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        CHECK_THAT(!list(texts[i], out), "%s is taken for an object: %s", texts[i], out);
    list("{\"a\":1,\"b\":\"", out);
    CHECK_STR(out, "a=1;");
}

TEST(a_key_is_compared_in_its_whole_length)
{
    const sl_json_member m = { "step", 4, "1", 1 };
    CHECK(sl_json_member_is(&m, "step"));
    CHECK(!sl_json_member_is(&m, "ste") && !sl_json_member_is(&m, "steps"));
}
