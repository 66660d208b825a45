/* Malformed safetensors files: one per rule and per known attack, each refused with its own message. */
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "core/alloc.h"
#include "format/safetensors.h"
#include "test.h"

/* A file: length (UINT64_MAX: the true one), header, and `data` zero bytes. */
static const char *make_file(uint64_t length, const char *header, size_t header_bytes, size_t data)
{
    static char path[4200];
    char zero[64] = { 0 };
    if (path[0] == '\0') snprintf(path, sizeof path, "%s/bad.safetensors", test_tmpdir());
    if (length == UINT64_MAX) length = header_bytes;
    FILE *f = fopen(path, "wb");
    fwrite(&length, 1, 8, f);
    fwrite(header, 1, header_bytes, f);
    fwrite(zero, 1, data, f);
    fclose(f);
    return path;
}

static void check_refused(const char *path, const char *message)
{
    sl_st_file *f = NULL;
    sl_alloc_stats before, after;
    sl_alloc_get_stats(&before);
    sluice_status st = sl_st_open(path, &f);
    sl_alloc_get_stats(&after);
    if (st != SLUICE_ERR_INPUT)
        test_fail(__FILE__, __LINE__, "status %d for the file that is \"%s\"", (int)st, message);
    CHECK_CONTAINS(sluice_error(), message);
    CHECK_CONTAINS(sluice_error(), path);
    CHECK(f == NULL);
    CHECK_EQ(before.live_count, after.live_count);
}

#define T(dtype_, shape_, offsets_) "{\"dtype\":\"" dtype_ "\",\"shape\":" shape_ ",\"data_offsets\":" offsets_ "}"
#define ANY                         UINT64_MAX

static const struct {
    const char *message;
    uint64_t length;
    const char *header;
    size_t data;
} corpus[] = {
    { "header of 100000001 bytes, at most", 100000001, "{}", 0 },
    { "header of 18446744073709551614 bytes, at most", UINT64_MAX - 1, "{}", 0 },
    { "header of 18446744073709551608 bytes, at most", UINT64_MAX - 7, "{}", 0 },
    { "header of 3 bytes in a file of 10", 3, "{}", 0 },
    { "header of 99999999 bytes in a file of 10", 99999999, "{}", 0 },
    { "the header is empty", 0, "", 0 },
    { "the header is empty", 0, "{}", 0 },
    { "does not begin with '{'", ANY, " {}", 0 },
    { "does not begin with '{'", ANY, "\xef\xbb\xbf{}", 0 },
    { "does not begin with '{'", ANY, "[]", 0 },
    { "header, byte 2: not valid UTF-8", ANY, "{\"\xff\":" T("U8", "[1]", "[0,1]") "}", 1 },
    { "header, byte 2: not valid UTF-8", ANY, "{\"\xc0\xaf\":" T("U8", "[1]", "[0,1]") "}", 1 },
    { "the text ends too early", ANY, "{", 0 },
    { "expected a string", ANY, "{a:1}", 0 },
    { "expected ':'", ANY, "{\"a\"}", 0 },
    { "expected ',' or '}'", ANY, "{\"a\":" T("U8", "[1]", "[0,1]") ";}", 1 },
    { "expected a string", ANY, "{\"a\":" T("U8", "[1]", "[0,1]") ",}", 1 },
    { "only spaces may follow", ANY, "{}\n", 0 },
    { "only spaces may follow", ANY, "{}  {}", 0 },
    { "the text ends inside a string", ANY, "{\"a", 0 },
    { "control character in a string", ANY, "{\"a\tb\":1}", 0 },
    { "unknown escape", ANY, "{\"a\\x\":1}", 0 },
    { "lone surrogate", ANY, "{\"\\ud800\":1}", 0 },
    { "tensor name contains a NUL", ANY, "{\"a\\u0000b\":" T("U8", "[1]", "[0,1]") "}", 1 },
    { "metadata value contains a NUL", ANY, "{\"__metadata__\":{\"a\":\"\\u0000\"}}", 0 },
    { "__metadata__ is not an object", ANY, "{\"__metadata__\":[]}", 0 },
    { "__metadata__ is not an object", ANY, "{\"__metadata__\":null}", 0 },
    { "the value of \"a\" is not a string", ANY, "{\"__metadata__\":{\"a\":1}}", 0 },
    { "the value of \"b\" is not a string", ANY, "{\"__metadata__\":{\"a\":\"x\",\"b\":{\"c\":\"d\"}}}", 0 },
    { "__metadata__ is given twice", ANY, "{\"__metadata__\":{},\"__metadata__\":{}}", 0 },
    { "__metadata__: key \"a\" is given twice", ANY, "{\"__metadata__\":{\"a\":\"1\",\"b\":\"\",\"a\":\"2\"}}", 0 },
    { "tensor \"a\": the name is given twice", ANY,
      "{\"a\":" T("U8", "[1]", "[0,1]") ",\"b\":" T("U8", "[1]", "[1,2]") ",\"a\":" T("U8", "[1]", "[2,3]") "}", 3 },
    { "tensor \"a\": the name is given twice", ANY,
      "{\"a\":" T("U8", "[1]", "[0,1]") ",\"\\u0061\":" T("U8", "[1]", "[0,1]") "}", 1 },
    { "tensor \"a\": dtype is given twice", ANY,
      "{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1 },
    { "tensor \"a\": shape is given twice", ANY,
      "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"shape\":[1],\"data_offsets\":[0,1]}}", 1 },
    { "tensor \"a\": its description is not an object", ANY, "{\"a\":1}", 0 },
    { "tensor \"a\": dtype is missing", ANY, "{\"a\":{\"shape\":[1],\"data_offsets\":[0,1]}}", 1 },
    { "tensor \"a\": dtype is missing", ANY, "{\"a\":{}}", 0 },
    { "tensor \"a\": shape is missing", ANY, "{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,1]}}", 1 },
    { "tensor \"a\": data_offsets is missing", ANY, "{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1 },
    { "tensor \"a\": unknown dtype \"F33\"", ANY, "{\"a\":" T("F33", "[1]", "[0,1]") "}", 1 },
    { "tensor \"a\": unknown dtype \"f32\"", ANY, "{\"a\":" T("f32", "[1]", "[0,4]") "}", 4 },
    { "tensor \"a\": header, byte 14: expected a string", ANY,
      "{\"a\":{\"dtype\":5,\"shape\":[1],\"data_offsets\":[0,1]}}", 1 },
    { "shape is not an array", ANY, "{\"a\":" T("U8", "1", "[0,1]") "}", 1 },
    { "shape: expected a non-negative integer", ANY, "{\"a\":" T("U8", "[-1]", "[0,1]") "}", 1 },
    { "shape: expected a non-negative integer", ANY, "{\"a\":" T("U8", "[\\\"1\\\"]", "[0,1]") "}", 1 },
    { "shape: expected an integer without fraction", ANY, "{\"a\":" T("U8", "[1.0]", "[0,1]") "}", 1 },
    { "shape: expected an integer without fraction", ANY, "{\"a\":" T("U8", "[1e0]", "[0,1]") "}", 1 },
    { "shape: number with a leading zero", ANY, "{\"a\":" T("U8", "[01]", "[0,1]") "}", 1 },
    { "shape: integer of 2^64 or more", ANY, "{\"a\":" T("U8", "[18446744073709551616]", "[0,1]") "}", 1 },
    { "shape: dimension 9223372036854775808 is 2^63 or more", ANY,
      "{\"a\":" T("U8", "[0,9223372036854775808]", "[0,0]") "}", 0 },
    { "shape has more than 8 dimensions", ANY, "{\"a\":" T("U8", "[1,1,1,1,1,1,1,1,1]", "[0,1]") "}", 1 },
    { "product of the dimensions overflows", ANY, "{\"a\":" T("U8", "[4294967296,4294967296]", "[0,0]") "}", 0 },
    { "product of the dimensions overflows", ANY, "{\"a\":" T("F32", "[4611686018427387905]", "[0,4]") "}", 4 },
    { "product of the dimensions overflows", ANY, "{\"a\":" T("F64", "[9223372036854775807,3]", "[0,8]") "}", 8 },
    { "data_offsets is not an array", ANY, "{\"a\":" T("U8", "[1]", "{}") "}", 1 },
    { "data_offsets: expected a non-negative integer", ANY, "{\"a\":" T("U8", "[1]", "[-1,0]") "}", 1 },
    { "data_offsets: expected a non-negative integer", ANY, "{\"a\":" T("U8", "[1]", "[0,]") "}", 1 },
    { "data_offsets needs two numbers", ANY, "{\"a\":" T("U8", "[1]", "[0]") "}", 1 },
    { "data_offsets has more than two numbers", ANY, "{\"a\":" T("U8", "[1]", "[0,1,2]") "}", 1 },
    { "data_offsets end at 0, before they begin at 1", ANY, "{\"a\":" T("U8", "[1]", "[1,0]") "}", 1 },
    { "need 4 bytes, data_offsets give 3", ANY, "{\"a\":" T("F32", "[1]", "[0,3]") "}", 3 },
    { "need 2 bytes, data_offsets give 0", ANY, "{\"a\":" T("U8", "[2]", "[0,0]") "}", 0 },
    { "need 1 bytes, data_offsets give 18446744073709551615", ANY,
      "{\"a\":" T("U8", "[]", "[0,18446744073709551615]") "}", 1 },
    { "tensor \"b\": its data at 1 overlaps data that ends at 2", ANY,
      "{\"a\":" T("U8", "[2]", "[0,2]") ",\"b\":" T("U8", "[2]", "[1,3]") "}", 3 },
    { "tensor \"b\": its data at 0 overlaps data that ends at 2", ANY,
      "{\"b\":" T("U8", "[2]", "[0,2]") ",\"a\":" T("U8", "[2]", "[0,2]") "}", 2 },
    { "tensor \"e\": its data at 1 overlaps", ANY,
      "{\"a\":" T("U8", "[2]", "[0,2]") ",\"e\":" T("U8", "[0]", "[1,1]") "}", 2 },
    { "tensor \"a\": 1 bytes before its data belong to no tensor", ANY, "{\"a\":" T("U8", "[1]", "[1,2]") "}", 2 },
    { "tensor \"b\": 2 bytes before its data belong to no tensor", ANY,
      "{\"b\":" T("U8", "[1]", "[3,4]") ",\"a\":" T("U8", "[1]", "[0,1]") "}", 4 },
    { "tensor \"a\": its data ends at 2, but the file has 1 bytes", ANY, "{\"a\":" T("U8", "[2]", "[0,2]") "}", 1 },
    { "tensor \"a\": its data ends at 9223372036854775807, but the file has 1", ANY,
      "{\"a\":" T("U8", "[9223372036854775807]", "[0,9223372036854775807]") "}", 1 },
    { "1 bytes after the last tensor belong to none", ANY, "{\"a\":" T("U8", "[1]", "[0,1]") "}", 2 },
    { "5 bytes after the last tensor belong to none", ANY, "{}", 5 },
    { "nested more than 64 deep", ANY,
      "{\"a\":{\"x\":[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[", 0 },
};

TEST(every_malformed_safetensors_file_is_refused_by_its_own_rule)
{
    int count = (int)(sizeof corpus / sizeof corpus[0]);
    CHECK(count >= 45);
    for (int i = 0; i < count; i++)
        check_refused(make_file(corpus[i].length, corpus[i].header, strlen(corpus[i].header), corpus[i].data),
                      corpus[i].message);
}

TEST(files_of_fewer_than_8_bytes_are_refused)
{
    char path[4200];
    snprintf(path, sizeof path, "%s/short", test_tmpdir());
    for (int bytes = 0; bytes < 8; bytes++) {
        FILE *f = fopen(path, "wb");
        fwrite("\2\0\0\0\0\0\0", 1, (size_t)bytes, f);
        fclose(f);
        check_refused(path, "the length of the header takes 8");
    }
    check_refused("/nonexistent/x.safetensors", "No such file");
    check_refused(test_tmpdir(), "is a directory");
}

TEST(names_of_1024_bytes_are_read_and_longer_ones_refused)
{
    char header[1400], name[1026];
    sl_st_file *f;
    for (int bytes = 1024; bytes <= 1025; bytes++) {
        memset(name, 'n', (size_t)bytes);
        name[bytes] = '\0';
        snprintf(header, sizeof header, "{\"%s\":" T("U8", "[1]", "[0,1]") "}", name);
        const char *path = make_file(ANY, header, strlen(header), 1);
        if (bytes > 1024) {
            check_refused(path, "the name has more than 1024 bytes");
            continue;
        }
        REQUIRE_OK(sl_st_open(path, &f));
        CHECK(sl_st_find(f, name) == f->tensors);
        sl_st_close(f);
    }
}

TEST(nul_and_control_bytes_in_names_do_not_reach_messages)
{
    const char *header = "{\"a\\u001b[31m\\n\":" T("U9", "[1]", "[0,1]") "}";
    check_refused(make_file(ANY, header, strlen(header), 1), "tensor \"a\\u001b[31m\\u000a\"");
}

/* 100 MB of `unit` after `head`. */
static const char *make_hostile(const char *head, const char *unit, char *text)
{
    size_t at = strlen(head), length = strlen(unit);
    memcpy(text, head, at);
    for (; at + length <= SL_ST_MAX_HEADER; at += length) memcpy(text + at, unit, length);
    return make_file(ANY, text, at, 1);
}

static double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The largest headers the format allows, each made to be as costly as it can be. Memory decides; the time bound only
 * catches work that is not linear. */
TEST(hostile_headers_of_100_megabytes_are_refused_in_bounded_memory)
{
    static const struct {
        const char *head, *unit, *message;
    } hostile[] = {
        { "{\"x\":", "[", "its description is not an object" },
        { "{\"x\":{\"y\":", "[", "nested more than 64 deep" },
        { "{\"x\":{\"y\":[", "[],", "the text ends too early" },
        { "{\"__metadata__\":{", "\"\":\"\",", "__metadata__ has more than 1000000 pairs" },
        { "{", "\"\":" T("U8", "[]", "[0,1]") ",", "more than 1000000 tensors" },
        { "{", "                                                                ", "the text ends too early" },
        { "{\"", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "the text ends inside a string" },
    };
    char *text = malloc(SL_ST_MAX_HEADER);
    struct rusage before, after;
    REQUIRE(text != NULL);
    memset(text, 0, SL_ST_MAX_HEADER);
    getrusage(RUSAGE_SELF, &before);
    for (size_t i = 0; i < sizeof hostile / sizeof hostile[0]; i++) {
        const char *path = make_hostile(hostile[i].head, hostile[i].unit, text);
        double start = seconds_now();
        check_refused(path, hostile[i].message);
        CHECK(seconds_now() - start < 60);
    }
    getrusage(RUSAGE_SELF, &after);
    CHECK(after.ru_maxrss - before.ru_maxrss < 1024 * 1024); /* KiB */
    make_file(ANY, "{}", 2, 0);
    free(text);
}

/* Every truncation and every bit flip of a good file is refused or still a file that keeps all rules; never a crash. */
TEST(mutated_files_never_crash_the_reader)
{
    static const char header[] =
        "{\"__metadata__\":{\"k\":\"v\"},\"a\":" T("F32", "[2]", "[0,8]") ",\"b\":" T("U8", "[]", "[8,9]") "}";
    char copy[sizeof header];
    size_t bytes = sizeof header - 1;
    int accepted = 0;
    for (size_t bit = 0; bit < 8 * bytes; bit++) {
        memcpy(copy, header, sizeof header);
        copy[bit / 8] = (char)(copy[bit / 8] ^ (1 << bit % 8));
        sl_st_file *f = NULL;
        sluice_status st = sl_st_open(make_file(ANY, copy, bytes, 9), &f);
        CHECK(st == SLUICE_OK || st == SLUICE_ERR_INPUT);
        accepted += st == SLUICE_OK;
        sl_st_close(f);
    }
    CHECK(accepted > 0 && accepted < 64); /* changed letters of names and metadata remain legal */
    for (size_t cut = 0; cut < bytes; cut++) {
        sl_st_file *f = NULL;
        CHECK_EQ(sl_st_open(make_file(ANY, header, cut, 9), &f), SLUICE_ERR_INPUT);
    }
}
