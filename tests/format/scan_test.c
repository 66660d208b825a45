/* JSON: limits, places in messages, the line of a key, and what the writers write. */
#include <locale.h>

#include "core/alloc.h"
#include "format/json.h"
#include "format/scan.h"
#include "test.h"

static sluice_status parse(const char *text, json_t **out)
{
    return sl_json_parse(text, strlen(text), "file.json", SLUICE_ERR_USAGE, out);
}

static void check_refused(const char *text, const char *message)
{
    json_t *root = NULL;
    CHECK_EQ(parse(text, &root), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "file.json: line ");
    CHECK_CONTAINS(sluice_error(), message);
    CHECK(root == NULL);
}

TEST(json_that_is_well_formed_parses)
{
    json_t *root;
    REQUIRE_OK(parse(" {\"a\": [1, -2.5e3, true, null, \"\\u00e9\\ud83d\\ude00\"], \"b\": {}} \n", &root));
    CHECK_NEAR(json_real_value(json_array_get(json_object_get(root, "a"), 1)), -2500.0, 0);
    CHECK_STR(json_string_value(json_array_get(json_object_get(root, "a"), 4)), "\xc3\xa9\xf0\x9f\x98\x80");
    json_decref(root);
}

TEST(json_faults_are_refused_with_their_place)
{
    static const struct {
        const char *text, *message;
    } bad[] = {
        { "", "line 1, column 1: the text ends too early" },
        { "{\n  \"a\": 1,\n  \"a\": 2\n}", "line 3, column 5: duplicate object key" },
        { "{\"a\": 1}\nx", "line 2, column 1: more text after the end" },
        { "{\"a\" 1}", "line 1, column 6: expected ':'" },
        { "{\"a\": 1", "the text ends too early" },
        { "{\"a\": 1 \"b\": 2}", "expected ',' or '}'" },
        { "{\"a\": [1 2]}", "expected ',' or ']'" },
        { "{\"a\": [1,]}", "expected a value" },
        { "{a: 1}", "expected a string" },
        { "{\"a\": 1e400}", "real number overflow" },
        { "{\"a\": -1000000000000000000000, \"b\": 1e400}", "line 1, column 41: real number overflow" },
        { "{\"a\": 01}", "leading zero" },
        { "{\"a\": -}", "malformed number" },
        { "{\"a\": 1.}", "malformed number" },
        { "{\"a\": 1e}", "malformed number" },
        { "{\"a\": nul}", "expected a value" },
        { "{\"a\": \"\\u0000\"}", "\\u0000 is not allowed" },
        { "{\"a\": \"\\ud800\"}", "lone surrogate" },
        { "{\"a\": \"\\ud800\\u0041\"}", "lone surrogate" },
        { "{\"a\": \"\\udc00\"}", "lone surrogate" },
        { "{\"a\": \"\\u12g4\"}", "four hexadecimal digits" },
        { "{\"a\": \"\\x\"}", "unknown escape" },
        { "{\"a\": \"x\ny\"}", "control character" },
        { "{\"a\": \"x", "the text ends inside a string" },
        { "{\"a\": \"x\\", "the text ends inside a string" },
        { "{\"a\": \"\xff\"}", "line 1, column 8: not valid UTF-8" },
        { "{\"a\": \"\xc0\x80\"}", "not valid UTF-8" },
        { "{\"a\": \"\xed\xa0\x80\"}", "not valid UTF-8" },
        { "{\"a\": \"\xf4\x90\x80\x80\"}", "not valid UTF-8" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) check_refused(bad[i].text, bad[i].message);
}

/* As Python's json, which has integers of any size: transformers writes 10^30 for a length without a limit. */
TEST(json_integers_beyond_64_bits_are_doubles_and_those_within_stay_integers)
{
    static const struct {
        const char *text;
        double value; /* NAN: an integer */
    } numbers[] = {
        { "1000000000000000019884624838656", 1e30 },
        { "9223372036854775808", 9223372036854775808.0 },
        { "-9223372036854775809", -9223372036854775808.0 },
        { "18446744073709551616", 18446744073709551616.0 },
        { "9223372036854775807", NAN },
        { "-9223372036854775808", NAN },
        { "12", NAN },
        { "100000000000000000000.5", 100000000000000000000.5 },
        { "10000000000000000000000e-3", 1e19 },
    };
    char text[4000] = "{\"text\": \"\\\"99999999999999999999\\\\\", \"99999999999999999999\": [";
    json_t *root = NULL;
    size_t count = sizeof numbers / sizeof numbers[0];
    for (int round = 0; round < 12; round++) /* more than jansson reads at once */
        for (size_t i = 0; i < count; i++) {
            size_t at = strlen(text);
            snprintf(text + at, sizeof text - at, "%s%s", round + (int)i > 0 ? ", " : "", numbers[i].text);
        }
    strcat(text, "]}");
    REQUIRE_OK(parse(text, &root));
    CHECK_STR(json_string_value(json_object_get(root, "text")), "\"99999999999999999999\\");
    const json_t *list = json_object_get(root, "99999999999999999999");
    REQUIRE(json_array_size(list) == 12 * count);
    for (size_t i = 0; i < 12 * count; i++) {
        const json_t *number = json_array_get(list, i);
        double value = numbers[i % count].value;
        CHECK_THAT(isnan(value) ? json_is_integer(number) : json_is_real(number) && json_real_value(number) == value,
                   "%s is %g", numbers[i % count].text, json_number_value(number));
        if (isnan(value)) CHECK_EQ(json_integer_value(number), strtoll(numbers[i % count].text, NULL, 10));
    }
    json_decref(root);
}

TEST(a_json_value_of_any_kind_stands_alone)
{
    static const struct {
        const char *text;
        json_type type;
    } values[] = { { "12", JSON_INTEGER },
                   { " 100000000000000000000 ", JSON_REAL },
                   { "\"a\"", JSON_STRING },
                   { "null", JSON_NULL },
                   { "[1]", JSON_ARRAY } };
    static const char *const none[] = { "", "a", "1 2", "\"a", "1000000000000000000000x", "\xff" };
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        json_t *value = sl_json_value(values[i].text);
        REQUIRE(value != NULL);
        CHECK_EQ(json_typeof(value), values[i].type);
        json_decref(value);
    }
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) CHECK(sl_json_value(none[i]) == NULL);
}

/* Places of faults behind such integers are those of the text, in bytes. */
TEST(json_faults_behind_wide_integers_have_the_place_that_they_have_behind_short_ones)
{
#define LONG_ONE "1000000000000000019884624838656"
    static const struct {
        const char *text, *message;
    } bad[] = {
        { "{\"a\": " LONG_ONE ",\n \"b\": [" LONG_ONE ", -" LONG_ONE "], \"a\": 2}",
          "line 2, column 78: duplicate object key" },
        { "{\"\xc3\xa9\": " LONG_ONE ", \"b\": 1e999}", "line 1, column 50: real number overflow" },
        { "{\"a\": " LONG_ONE ",\n\"b\": " LONG_ONE ", \"b\": 1,\n\"c\": " LONG_ONE "}",
          "line 2, column 41: duplicate object key" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) check_refused(bad[i].text, bad[i].message);
    char text[500] = "{\"a\": 1, \"b\":\n";
    memset(text + strlen(text), '7', 400); /* more than a double holds */
    strcat(text, "}");
    check_refused(text, "line 2, column 400: real number overflow");
}

TEST(json_nested_more_than_64_deep_is_refused_and_64_is_not)
{
    static char text[2000001];
    json_t *root;
    memset(text, '[', 1000000);
    text[1000000] = '\0';
    check_refused(text, "nested more than 64 deep");
    memset(text, '[', 64);
    memset(text + 64, ']', 64);
    text[128] = '\0';
    REQUIRE_OK(parse(text, &root));
    json_decref(root);
    memset(text, '[', 65);
    memset(text + 65, ']', 65);
    text[130] = '\0';
    check_refused(text, "nested more than 64 deep");
}

TEST(json_over_100_million_bytes_is_refused)
{
    json_t *root;
    CHECK_EQ(sl_json_parse("", SL_JSON_MAX_BYTES + 1, "huge.json", SLUICE_ERR_INPUT, &root), SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(), "huge.json: 100000001 bytes");
}

TEST(key_line_follows_the_object_path)
{
    static const char text[] = "{\n \"b\": {\"x\": [\n  {\"a\": 1}, {\n   \"a\": 2}]},\n \"a\": \"b.x: \\\"c\\\"\",\n"
                               " \"c\": {\n   \"b\": {\n    \"x\": 3 } },\n \"c.d\": 4\n}";
    static const struct {
        const char *key;
        int line;
    } keys[] = { { "b", 2 },       { "a", 5 },   { "b.x", 2 },   { "b.x.0.a", 3 }, { "b.x.1", 3 },
                 { "b.x.1.a", 4 }, { "c.b", 7 }, { "c", 6 },     { "c.b.x", 8 },   { "c.d", 9 },
                 { "d", 0 },       { "x", 0 },   { "b.x.2", 0 }, { "", 0 } };
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        int line = sl_json_key_line(text, sizeof text - 1, keys[i].key);
        CHECK_THAT(line == keys[i].line, "\"%s\": line %d, expected %d", keys[i].key, line, keys[i].line);
    }
    for (size_t cut = 0; cut < sizeof text; cut++) sl_json_key_line(text, cut, "c.b.nothing"); /* must end */
}

static const char *written(void (*write)(FILE *, const void *), const void *value)
{
    static char text[256];
    FILE *out = fmemopen(text, sizeof text, "w");
    write(out, value);
    fclose(out);
    return text;
}

static void write_string(FILE *out, const void *value)
{
    sl_json_write_string(out, value);
}

static void write_double(FILE *out, const void *value)
{
    sl_json_write_double(out, *(const double *)value);
}

TEST(json_strings_are_written_with_escapes)
{
    CHECK_STR(written(write_string, "a\"b\\c\n\x01\xc3\xa9"), "\"a\\\"b\\\\c\\u000a\\u0001\xc3\xa9\"");
    CHECK_STR(written(write_string, "x\xff\xc3"), "\"x\\ufffd\\ufffd\"");
}

TEST(json_doubles_read_back_to_the_same_bits)
{
    static const double values[] = { 0.0, -0.0, 0.1, 1.0 / 3.0, 1e300, 5e-324, -123456789.0, 2.2250738585072014e-308 };
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        char text[300];
        json_t *root;
        snprintf(text, sizeof text, "[%s]", written(write_double, &values[i]));
        REQUIRE_OK(parse(text, &root));
        double back = json_number_value(json_array_get(root, 0));
        CHECK(memcmp(&back, &values[i], sizeof back) == 0);
        json_decref(root);
    }
    CHECK_STR(written(write_double, &(double){ 0.1 }), "0.1");
    CHECK_STR(written(write_double, &(double){ NAN }), "null");
    CHECK_STR(written(write_double, &(double){ -INFINITY }), "null");
}
