/* token_file_test.c: headers of token files: what is accepted, and every way to refuse one. */
#include "format/token_file.h"

#include "core/status.h"
#include "test.h"

/* A .npy header with this dictionary, padded as NumPy pads it. Returns its length. */
static size_t npy_header(const char *dictionary, unsigned char *out)
{
    size_t n = strlen(dictionary), whole = (10 + n + 1 + 63) / 64 * 64;
    memcpy(out, "\x93NUMPY\x01\x00", 8);
    out[8] = (unsigned char)((whole - 10) & 255);
    out[9] = (unsigned char)((whole - 10) >> 8);
    memset(out + 10, ' ', whole - 10);
    memcpy(out + 10, dictionary, n);
    out[whole - 1] = '\n';
    return whole;
}

static size_t llmc_header(uint32_t magic, uint32_t version, uint32_t count, unsigned char *out)
{
    memset(out, 0, 1024);
    memcpy(out, &magic, 4);
    memcpy(out + 4, &version, 4);
    memcpy(out + 8, &count, 4);
    return 1024;
}

TEST(headers_say_type_place_and_number_of_tokens)
{
    unsigned char head[SL_TOKEN_HEAD_BYTES];
    sl_token_layout l;
    size_t n = npy_header("{'descr': '<u2', 'fortran_order': False, 'shape': (10,), }", head);
    REQUIRE_OK(sl_token_layout_read("a.npy", head, n, n + 20, SL_TOKENS_UNKNOWN, &l));
    CHECK_STR(l.format, ".npy");
    CHECK_EQ(l.type, SL_TOKENS_U16);
    CHECK_EQ(l.width, 2);
    CHECK_EQ(l.offset, n);
    CHECK_EQ(l.count, 10);
    n = npy_header("{'shape': (7,), 'descr': '<i4', 'fortran_order': False}", head);
    head[6] = 2; /* version 2 has four bytes of length */
    memmove(head + 12, head + 10, n - 10);
    head[10] = head[11] = 0;
    REQUIRE_OK(sl_token_layout_read("a", head, n + 2, n + 2 + 28, SL_TOKENS_UNKNOWN, &l));
    CHECK_EQ(l.type, SL_TOKENS_I32);
    CHECK_EQ(l.offset, n + 2);
    n = npy_header("{'descr': '|b1', 'fortran_order': False, 'shape': (5,), }", head);
    REQUIRE_OK(sl_token_layout_read("mask.npy", head, n, n + 5, SL_TOKENS_U8, &l));
    CHECK_EQ(l.width, 1);
    n = llmc_header(20240520, 1, 9, head);
    REQUIRE_OK(sl_token_layout_read("a.bin", head, n, n + 18, SL_TOKENS_UNKNOWN, &l));
    CHECK_EQ(l.type, SL_TOKENS_U16);
    n = llmc_header(20240801, 7, 9, head);
    REQUIRE_OK(sl_token_layout_read("a.bin", head, n, n + 36, SL_TOKENS_U32, &l));
    CHECK_EQ(l.type, SL_TOKENS_U32);
    CHECK_EQ(l.count, 9);
    REQUIRE_OK(sl_token_layout_read("a.bin", (const unsigned char *)"abcdef", 6, 6, SL_TOKENS_U16, &l));
    CHECK_STR(l.format, "bare");
    CHECK_EQ(l.count, 3);
    CHECK_EQ(l.offset, 0);
}

TEST(headers_that_are_wrong_are_refused_by_name)
{
    static const struct {
        const char *dictionary;
        sl_token_type given;
        const char *says;
    } rows[] = {
        { "{'descr': '>u2', 'fortran_order': False, 'shape': (10,), }", SL_TOKENS_UNKNOWN, "descr that is not <u2" },
        { "{'descr': '<i8', 'fortran_order': False, 'shape': (10,), }", SL_TOKENS_UNKNOWN, "descr that is not <u2" },
        { "{'descr': '<u2', 'fortran_order': False, 'shape': (2, 5), }", SL_TOKENS_UNKNOWN, "not (N,)" },
        { "{'descr': '<u2', 'fortran_order': False, 'shape': (), }", SL_TOKENS_UNKNOWN, "not (N,)" },
        { "{'descr': '<u2', 'fortran_order': False, 'shape': (10), }", SL_TOKENS_UNKNOWN, "not (N,)" },
        { "{'descr': '<u2', 'fortran_order': False, 'shape': (-10,), }", SL_TOKENS_UNKNOWN, "not (N,)" },
        { "{'descr': '<u2', 'fortran_order': False, 'shape': (9999999999999999999,), }", SL_TOKENS_UNKNOWN,
          "too large" },
        { "{'descr': '<u2', 'fortran_order': False, 'shape': (999999999999999999,), }", SL_TOKENS_UNKNOWN,
          "says 999999999999999999 tokens" },
        { "{'descr': '<u2', 'fortran_order': Maybe, 'shape': (10,), }", SL_TOKENS_UNKNOWN, "neither True nor False" },
        { "{'descr': '<u2', 'fortran_order': False}", SL_TOKENS_UNKNOWN, "lacks one of" },
        { "{'descr': '<u2', 'descr': '<u2', 'fortran_order': False, 'shape': (10,)}", SL_TOKENS_UNKNOWN, "twice" },
        { "{'descr': '<u2', 'fortran_order': False, 'shape': (10,), 'more': 1}", SL_TOKENS_UNKNOWN, "key other than" },
        { "{'descr': '<u2' 'fortran_order': False, 'shape': (10,)}", SL_TOKENS_UNKNOWN, "lacks a comma" },
        { "{'descr' '<u2', 'fortran_order': False, 'shape': (10,)}", SL_TOKENS_UNKNOWN, "lacks a colon" },
        { "{'descr': '<u2', 'fortran_order': False, 'shape': (10,)", SL_TOKENS_UNKNOWN, "lacks a comma" },
        { "{'descr': '<u2', 'fortran_order': False, 'shape': (10,)} x", SL_TOKENS_UNKNOWN, "newline behind" },
        { "['descr']", SL_TOKENS_UNKNOWN, "does not begin with {" },
        { "{'descr': '<u2', 'fortran_order': False, 'shape': (11,), }", SL_TOKENS_UNKNOWN, "says 11 tokens of uint16" },
        { "{'descr': '<u2', 'fortran_order': False, 'shape': (9,), }", SL_TOKENS_UNKNOWN, "says 9 tokens of uint16" },
        { "{'descr': '<u2', 'fortran_order': False, 'shape': (10,), }", SL_TOKENS_U32, "data.dtype is \"uint32\"" },
        { "{'descr': '<u2', 'fortran_order': False, 'shape': (10,), }", SL_TOKENS_U8, "a mask has one byte" },
        { "{'descr': '|u1', 'fortran_order': False, 'shape': (20,), }", SL_TOKENS_UNKNOWN, "a mask and no token ids" },
    };
    unsigned char head[SL_TOKEN_HEAD_BYTES];
    sl_token_layout l;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        size_t n = npy_header(rows[i].dictionary, head);
        CHECK_EQ(sl_token_layout_read("some.npy", head, n, n + 20, rows[i].given, &l), SLUICE_ERR_INPUT);
        CHECK_CONTAINS(sluice_error(), "some.npy");
        CHECK_CONTAINS(sluice_error(), rows[i].says);
    }
}

static void check_refused(const unsigned char *head, size_t head_bytes, uint64_t bytes, sl_token_type given,
                          const char *says)
{
    sl_token_layout l;
    CHECK_EQ(sl_token_layout_read("some.bin", head, head_bytes, bytes, given, &l), SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(), "some.bin");
    CHECK_CONTAINS(sluice_error(), says);
}

TEST(files_that_are_cut_or_odd_are_refused_by_name)
{
    unsigned char head[SL_TOKEN_HEAD_BYTES];
    sl_token_layout l;
    llmc_header(20240520, 1, 9, head);
    check_refused(head, 1024, 1024 + 17, SL_TOKENS_UNKNOWN, "1042 bytes with the header, and it has 1041");
    check_refused(head, 1024, 1024 + 19, SL_TOKENS_UNKNOWN, "and it has 1043");
    check_refused(head, 500, 500, SL_TOKENS_UNKNOWN, "and it has 500");
    check_refused(head, 1024, 1024 + 18, SL_TOKENS_U32, "says uint16");
    llmc_header(20240520, 2, 9, head);
    check_refused(head, 1024, 1024 + 18, SL_TOKENS_UNKNOWN, "version 2");
    llmc_header(20240520, 1, 0, head);
    check_refused(head, 1024, 1024, SL_TOKENS_UNKNOWN, "no tokens in it");
    llmc_header(20240520, 1, 0x80000000u, head);
    check_refused(head, 1024, 1024, SL_TOKENS_UNKNOWN, "negative");
    check_refused((const unsigned char *)"abc", 3, 3, SL_TOKENS_U16, "3 bytes, which is no whole number of tokens");
    check_refused((const unsigned char *)"abcdef", 6, 6, SL_TOKENS_U32, "no whole number of tokens of uint32");
    check_refused((const unsigned char *)"", 0, 0, SL_TOKENS_U16, "is empty");
    size_t n = npy_header("{'descr': '<u2', 'fortran_order': False, 'shape': (10,), }", head);
    for (size_t cut = 6; cut < n; cut++) check_refused(head, cut, cut, SL_TOKENS_UNKNOWN, "its header (.npy)");
    head[6] = 4;
    check_refused(head, n, n + 20, SL_TOKENS_UNKNOWN, "version other than");
    head[6] = 1;
    head[9] = 0x7f;
    check_refused(head, n, n + 20, SL_TOKENS_UNKNOWN, "longer than");
    CHECK_EQ(sl_token_layout_read("a.npy", (const unsigned char *)"abcdef", 6, 6, SL_TOKENS_U16, &l), SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(), "does not begin as such files do");
    CHECK_EQ(sl_token_layout_read("a.bin", (const unsigned char *)"abcdef", 6, 6, SL_TOKENS_UNKNOWN, &l),
             SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "set data.dtype");
}
