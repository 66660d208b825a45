/* bytes_test.c: checked arithmetic and sizes as text. */
#include "core/bytes.h"
#include "test.h"

TEST(parse_bytes_reads_plain_and_binary_sizes)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {
        { "0", 0 },
        { "123", 123 },
        { "007", 7 },
        { "1KiB", 1024 },
        { "20GiB", UINT64_C(20) << 30 },
        { "1.5 MiB", 1572864 },
        { "1.5MiB", 1572864 },
        { "0.5 KiB", 512 },
        { "2TiB", UINT64_C(2) << 40 },
        { "0.001KiB", 1 }, /* 1.024: cut, not rounded up */
        { "1kB", 1000 },
        { "55GB", UINT64_C(55000000000) },
        { "1.5 TB", UINT64_C(1500000000000) },
        { "0.25MB", 250000 },
        { "3.0GiB", UINT64_C(3) << 30 },
        { "0.12345678901234567890123456789KiB", 126 },
        { "18446744073709551615", UINT64_MAX },
        { "16777215TiB", UINT64_C(16777215) << 40 },
        { "16777215.999999999999999TiB", UINT64_MAX },
    };
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        uint64_t bytes = 77;
        CHECK_THAT(sl_parse_bytes(good[i].text, &bytes), "\"%s\" was refused", good[i].text);
        CHECK_THAT(bytes == good[i].bytes, "\"%s\" gave %llu", good[i].text, (unsigned long long)bytes);
    }
}

TEST(parse_bytes_refuses_everything_else)
{
    static const char *const bad[] = {
        "",
        " ",
        "-1",
        "+1",
        "1.5",
        ".5GiB",
        "5.GiB",
        "GiB",
        "1e9",
        "1 ",
        " 1",
        "1KB",
        "1gb",
        "1gib",
        "1GiBx",
        "1 GiB ",
        "1\tGiB",
        "0x10",
        "1,5GiB",
        "nan",
        "inf",
        "1.5.5GiB",
        "12 34",
        "1K",
        "auto",
        "1.5B",
        "18446744073709551616",
        "16777216TiB",
        "99999999999999999999999GiB",
        "18446744073709551615KiB",
        "\xc2\xb2GiB",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        uint64_t bytes = 77;
        if (sl_parse_bytes(bad[i], &bytes)) test_fail(__FILE__, __LINE__, "\"%s\" was accepted", bad[i]);
        CHECK_EQ(bytes, 77); /* set only on success */
    }
}

/* No text of bytes that occur in sizes may do more than be refused, and what is accepted is the same when parsed
 * again. */
TEST(parse_bytes_survives_all_short_texts)
{
    static const char alphabet[] = "019.KMiBG \x80";
    enum { LETTERS = sizeof alphabet - 1 };
    long long accepted = 0;
    for (int code = 0; code < LETTERS * LETTERS * LETTERS * LETTERS * LETTERS; code++) {
        char text[6] = "";
        for (int i = 0, rest = code; i < 5; i++, rest /= LETTERS) text[i] = alphabet[rest % LETTERS];
        uint64_t first = 0, second = 1;
        if (!sl_parse_bytes(text, &first)) continue;
        accepted++;
        CHECK(sl_parse_bytes(text, &second) && first == second);
    }
    CHECK(accepted > 0);
}

TEST(format_bytes_uses_the_largest_unit)
{
    static const struct {
        uint64_t bytes;
        const char *text;
    } rows[] = {
        { 0, "0 B" },
        { 512, "512 B" },
        { 1023, "1023 B" },
        { 1024, "1.00 KiB" },
        { 1536, "1.50 KiB" },
        { (1 << 20) - 1, "1.00 MiB" },
        { UINT64_C(3) << 29, "1.50 GiB" },
        { UINT64_C(1) << 40, "1.00 TiB" },
        { UINT64_MAX, "16777216.00 TiB" },
    };
    char buf[32];
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        CHECK_STR(sl_format_bytes(rows[i].bytes, buf, sizeof buf), rows[i].text);
}

TEST(format_bytes_stays_inside_a_small_buffer)
{
    char buf[5] = "zzzz";
    CHECK_STR(sl_format_bytes(UINT64_C(3) << 29, buf, sizeof buf), "1.50");
}

TEST(format_rate_has_plain_digits_and_a_suffix_but_no_exponent)
{
    static const struct {
        double rate;
        const char *text;
    } rows[] = {
        { 0, "0.00" },      { 8.25, "8.25" },   { 508.6, "509" },      { 9999, "9999" },  { 9999.6, "10.0k" },
        { 30271, "30.3k" }, { 999960, "1.0M" }, { 82280000, "82.3M" }, { 1.5e9, "1.5G" }, { 3e13, "30000.0G" },
    };
    char buf[32];
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        CHECK_STR(sl_format_rate(rows[i].rate, buf, sizeof buf), rows[i].text);
}

TEST(formatted_sizes_parse_back_within_their_digits)
{
    char buf[32];
    for (uint64_t bytes = 1024; bytes < UINT64_C(1) << 50; bytes = bytes * 7 / 3) {
        uint64_t back = 0;
        REQUIRE(sl_parse_bytes(sl_format_bytes(bytes, buf, sizeof buf), &back));
        CHECK_NEAR((double)back / (double)bytes, 1.0, 0.006);
    }
}

TEST(checked_arithmetic_refuses_overflow)
{
    uint64_t out = 0;
    CHECK(sl_add_u64(UINT64_MAX - 1, 1, &out) && out == UINT64_MAX);
    CHECK(!sl_add_u64(UINT64_MAX, 1, &out));
    CHECK(sl_mul_u64(UINT64_C(1) << 32, (UINT64_C(1) << 32) - 1, &out));
    CHECK(!sl_mul_u64(UINT64_C(1) << 32, UINT64_C(1) << 32, &out));
}

TEST(align_up_and_ceil_div_round_up)
{
    CHECK_EQ(sl_align_up(0, SL_ALIGNMENT), 0);
    CHECK_EQ(sl_align_up(1, SL_ALIGNMENT), SL_ALIGNMENT);
    CHECK_EQ(sl_align_up(SL_ALIGNMENT, SL_ALIGNMENT), SL_ALIGNMENT);
    CHECK_EQ(sl_ceil_div(0, 3), 0);
    CHECK_EQ(sl_ceil_div(1, 3), 1);
    CHECK_EQ(sl_ceil_div(4, 3), 2);
}

TEST(little_endian_words_survive_unaligned_places)
{
    unsigned char buf[16] = { 0 };
    sl_store_le64(buf + 3, UINT64_C(0x0102030405060708));
    CHECK_EQ(buf[3], 8);
    CHECK_EQ(sl_load_le64(buf + 3), 0x0102030405060708);
}
