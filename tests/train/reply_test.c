/* reply_test.c: stop strings end a reply wherever they lie in its pieces, and nothing of them is ever shown. */
#include <string.h>

#include "test.h"
#include "train/reply.h"

static void add(sl_reply *r, const char *text, bool last)
{
    sl_text_add_bytes(&r->text, text, strlen(text));
    sl_reply_look(r, last);
}

/* What may be shown so far. */
static const char *shown(const sl_reply *r)
{
    static char text[256];
    snprintf(text, sizeof text, "%.*s", (int)r->shown, r->text.data != NULL ? r->text.data : "");
    return text;
}

TEST(without_stop_strings_everything_is_shown_at_once)
{
    sl_reply r;
    sl_reply_start(&r, NULL, 0);
    add(&r, "a", false);
    CHECK_STR(shown(&r), "a");
    add(&r, "bc", false);
    CHECK_STR(shown(&r), "abc");
    sl_reply_free(&r);
}

TEST(a_stop_string_that_straddles_pieces_is_held_back_and_cut)
{
    static const char *const stops[] = { "<|end|>", "\n\n" };
    sl_reply r;
    sl_reply_start(&r, stops, 2);
    add(&r, "one <|", false);
    CHECK_STR(shown(&r), "one ");
    add(&r, "en", false);
    CHECK_STR(shown(&r), "one ");
    add(&r, "d|> two", false);
    CHECK(r.stopped);
    CHECK_STR(shown(&r), "one ");
    CHECK_STR(r.text.data, "one ");
    sl_reply_free(&r);
}

TEST(what_only_looked_like_a_stop_string_is_shown)
{
    static const char *const stops[] = { "aab" };
    sl_reply r;
    sl_reply_start(&r, stops, 1);
    add(&r, "xaa", false);
    CHECK_STR(shown(&r), "x");
    add(&r, "a", false);
    CHECK_STR(shown(&r), "xa");
    add(&r, "c", false);
    CHECK_STR(shown(&r), "xaaac");
    add(&r, "aa", true);
    CHECK_STR(shown(&r), "xaaacaa");
    CHECK(!r.stopped);
    sl_reply_free(&r);
}

TEST(the_first_of_several_stop_strings_counts)
{
    static const char *const stops[] = { "stop", "top" };
    sl_reply r;
    sl_reply_start(&r, stops, 2);
    add(&r, "a stop", false);
    CHECK_STR(shown(&r), "a ");
    sl_reply_free(&r);
}
