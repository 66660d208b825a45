/* utf8_test.c: text from outside as a terminal may show it. */
#include "core/log.h"
#include "core/utf8.h"
#include "test.h"

static const char *shown(const char *text)
{
    static char out[256];
    size_t length = sluice_printable(text, out, sizeof out);
    CHECK_EQ(length, strlen(out));
    return out;
}

TEST(printable_text_stays_as_it_is)
{
    static const char *const texts[] = { "", "plain/path with spaces \"and\" back\\slash", "Z\xc3\xbcrich",
                                         "\xe6\xb0\xb4\xe9\x97\xa8", "\xf0\x9f\x8c\x8a" };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) CHECK_STR(shown(texts[i]), texts[i]);
}

TEST(control_characters_marks_of_direction_and_stray_bytes_are_escaped)
{
    static const struct {
        const char *text, *shown;
    } rows[] = {
        { "a\nb\tc\rd", "a\\nb\\tc\\rd" },
        { "\x1b[2J\x7f\x01", "\\x1b[2J\\x7f\\x01" },
        { "\xc2\x9b"
          "31m",
          "\\u009b31m" }, /* the one-character form of ESC [ */
        { "gpj.\xe2\x80\xae"
          "exe",
          "gpj.\\u202eexe" }, /* the rest would be drawn backwards */
        { "\xe2\x80\xa8\xe2\x81\xa6", "\\u2028\\u2066" },
        { "\xff\xc3(", "\\xff\\xc3(" },
        { "cut \xe6\xb0", "cut \\xe6\\xb0" },
        { "\xc0\xaf\xed\xa0\x80", "\\xc0\\xaf\\xed\\xa0\\x80" }, /* overlong, surrogate */
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) CHECK_STR(shown(rows[i].text), rows[i].shown);
}

TEST(text_without_room_is_left_off_in_whole_characters)
{
    char out[5] = "zzzz";
    CHECK_EQ(sluice_printable("ab\xe6\xb0\xb4", out, sizeof out), 2);
    CHECK_STR(out, "ab");
    CHECK_EQ(sluice_printable("abc\n", out, sizeof out), 3);
    CHECK_STR(out, "abc");
    CHECK_EQ(sluice_printable(NULL, out, sizeof out), 0);
    CHECK_STR(out, "");
    CHECK_EQ(sluice_printable("a", NULL, 5), 0);
    CHECK_EQ(sluice_printable("a", out, 0), 0);
}

static void take_line(void *user, sluice_log_level level, const char *line)
{
    (void)level;
    snprintf(user, 64, "%s", line);
}

TEST(log_lines_are_escaped)
{
    char line[64] = "";
    const sl_log log = { take_line, line, 0, 1 };
    sl_log_write(&log, SLUICE_LOG_NOTE, "saved in %s", "a\x1b[1mb\n");
    CHECK_STR(line, "saved in a\\x1b[1mb\\n");
}
