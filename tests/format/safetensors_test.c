/* Good safetensors files: what is written reads back, converts, and survives every failure of memory and of the
 * disk. */
#include <errno.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/io.h"
#include "format/safetensors.h"
#include "test.h"

static const char *in_tmp(const char *name)
{
    static char path[4200];
    snprintf(path, sizeof path, "%s/%s", test_tmpdir(), name);
    return path;
}

static long file_bytes(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (f == NULL) return -1;
    fseek(f, 0, SEEK_END);
    long bytes = ftell(f);
    fclose(f);
    return bytes;
}

/* Writes a file with one tensor of `count` floats, all `value`. */
static sluice_status write_floats(const char *path, int64_t count, float value)
{
    sl_st_tensor t = { .name = "w", .dtype = SL_ST_F32, .rank = 1, .dim = { count } };
    sl_st_writer *w;
    SL_TRY(sl_st_write_begin(path, &t, 1, NULL, 0, &w));
    for (int64_t i = 0; i < count; i++) {
        sluice_status st = sl_st_write_data(w, &value, sizeof value);
        if (st != SLUICE_OK) {
            sl_st_write_abort(w);
            return st;
        }
    }
    return sl_st_write_finish(w);
}

static sluice_status read_floats(const char *path, int64_t count, float *out)
{
    sl_st_file *f;
    SL_TRY(sl_st_open(path, &f));
    const sl_st_tensor *t = sl_st_find(f, "w");
    sluice_status st = t == NULL ? SLUICE_ERR_INPUT : sl_st_read_f32(f, t, 0, count, out);
    sl_st_close(f);
    return st;
}

TEST(all_dtypes_zero_sizes_and_scalars_round_trip)
{
    const char *path = in_tmp("all.safetensors");
    sl_st_tensor tensors[SL_ST_DTYPE_COUNT + 3];
    char names[SL_ST_DTYPE_COUNT][16];
    const char *metadata[] = { "format", "pt", "q\"\n", "\xc3\xa9" };
    int count = 0;
    char data[24];
    for (int i = 0; i < 24; i++) data[i] = (char)(i * 11);
    for (int d = 0; d < SL_ST_DTYPE_COUNT; d++) {
        snprintf(names[d], sizeof names[d], "t.%d", d);
        tensors[count++] = (sl_st_tensor){ .name = names[d], .dtype = (sl_st_dtype)d, .rank = 2, .dim = { 1, 3 } };
    }
    tensors[count++] =
        (sl_st_tensor){ .name = "empty", .dtype = SL_ST_F32, .rank = 3, .dim = { 3, (int64_t)1 << 62, 0 } };
    tensors[count++] = (sl_st_tensor){ .name = "scalar", .dtype = SL_ST_U8, .rank = 0 };
    tensors[count++] = (sl_st_tensor){ .name = "", .dtype = SL_ST_I64, .rank = 8, .dim = { 1, 1, 1, 1, 1, 1, 1, 0 } };
    sl_st_writer *w;
    REQUIRE_OK(sl_st_write_begin(path, tensors, count, metadata, 2, &w));
    for (int i = 0; i < count; i++) {
        size_t bytes = (size_t)sl_st_elements(&tensors[i]) * sl_st_dtype_bytes(tensors[i].dtype);
        REQUIRE_OK(sl_st_write_data(w, data, bytes));
    }
    REQUIRE_OK(sl_st_write_finish(w));
    sl_st_file *f;
    REQUIRE_OK(sl_st_open(path, &f));
    CHECK_EQ(f->tensor_count, count);
    CHECK_EQ(f->data_offset % 64, 0);
    CHECK_EQ(f->metadata_count, 2);
    CHECK_STR(f->metadata[1], "pt");
    CHECK_STR(f->metadata[2], "q\"\n");
    CHECK_STR(f->metadata[3], "\xc3\xa9");
    CHECK(sl_st_find(f, "no such tensor") == NULL);
    for (int i = 0; i < count; i++) {
        char back[24];
        const sl_st_tensor *t = sl_st_find(f, tensors[i].name);
        REQUIRE(t != NULL);
        CHECK_EQ(t->dtype, tensors[i].dtype);
        CHECK_EQ(t->rank, tensors[i].rank);
        CHECK(memcmp(t->dim, tensors[i].dim, sizeof t->dim) == 0);
        REQUIRE_OK(sl_st_read(f, t, 0, sl_st_elements(t), back));
        CHECK(memcmp(back, data, t->bytes) == 0);
    }
    sl_st_close(f);
}

TEST(a_file_without_tensors_round_trips)
{
    const char *path = in_tmp("none.safetensors");
    sl_st_writer *w;
    sl_st_file *f;
    REQUIRE_OK(sl_st_write_begin(path, NULL, 0, NULL, 0, &w));
    REQUIRE_OK(sl_st_write_finish(w));
    REQUIRE_OK(sl_st_open(path, &f));
    CHECK_EQ(f->tensor_count, 0);
    CHECK(sl_st_find(f, "x") == NULL);
    sl_st_close(f);
}

/* Headers as other writers make them: no padding, other order, white space, keys without a meaning. */
TEST(headers_of_other_writers_are_read)
{
    static const char header[] = "{ \"b\" : { \"data_offsets\" : [ 4 , 6 ],\n\"shape\":[2],\t\"dtype\":\"BOOL\", "
                                 "\"note\": [1.5e-3, {\"x\": null}] },"
                                 "\"z\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[4,4]},"
                                 "\"\\u0061\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}   ";
    const char *path = in_tmp("other.safetensors");
    uint64_t length = sizeof header - 1;
    FILE *out = fopen(path, "wb");
    fwrite(&length, 1, 8, out);
    fwrite(header, 1, length, out);
    fwrite("\0\0\x80\x3f\1\0", 1, 6, out);
    fclose(out);
    sl_st_file *f;
    float value;
    REQUIRE_OK(sl_st_open(path, &f));
    REQUIRE(f->tensor_count == 3);
    CHECK_STR(f->tensors[0].name, "a");
    CHECK_STR(f->tensors[1].name, "z");
    CHECK_STR(f->tensors[2].name, "b");
    REQUIRE_OK(sl_st_read_f32(f, sl_st_find(f, "a"), 0, 1, &value));
    CHECK_NEAR(value, 1.0, 0);
    CHECK_EQ(sl_st_read_f32(f, sl_st_find(f, "b"), 0, 1, &value), SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(), "tensor \"b\" has dtype BOOL");
    sl_st_close(f);
}

static void write_one(const char *path, sl_st_dtype dtype, const void *data, int64_t count)
{
    sl_st_tensor t = { .name = "w", .dtype = dtype, .rank = 1, .dim = { count } };
    sl_st_writer *w;
    REQUIRE_OK(sl_st_write_begin(path, &t, 1, NULL, 0, &w));
    REQUIRE_OK(sl_st_write_data(w, data, (size_t)count * sl_st_dtype_bytes(dtype)));
    REQUIRE_OK(sl_st_write_finish(w));
}

/* The value of a 16-bit pattern by its definition, in double. */
static double value_by_definition(uint16_t bits, int exponent_bits)
{
    int fraction_bits = 15 - exponent_bits, bias = (1 << (exponent_bits - 1)) - 1;
    int exponent = (bits >> fraction_bits) & ((1 << exponent_bits) - 1), fraction = bits & ((1 << fraction_bits) - 1);
    double sign = bits & 0x8000 ? -1.0 : 1.0;
    if (exponent == (1 << exponent_bits) - 1) return fraction != 0 ? NAN : sign * INFINITY;
    if (exponent == 0) return sign * ldexp(fraction, 1 - bias - fraction_bits);
    return sign * ldexp(fraction + (1 << fraction_bits), exponent - bias - fraction_bits);
}

TEST(every_f16_and_bf16_pattern_converts_exactly)
{
    static const struct {
        sl_st_dtype dtype;
        int exponent_bits;
    } kinds[] = { { SL_ST_F16, 5 }, { SL_ST_BF16, 8 } };
    static uint16_t bits[65536];
    static float values[65536];
    const char *path = in_tmp("half.safetensors");
    for (int i = 0; i < 65536; i++) bits[i] = (uint16_t)i;
    for (int k = 0; k < 2; k++) {
        write_one(path, kinds[k].dtype, bits, 65536);
        REQUIRE_OK(read_floats(path, 65536, values));
        int wrong = 0;
        for (int i = 0; i < 65536; i++) {
            double expected = value_by_definition(bits[i], kinds[k].exponent_bits);
            bool same =
                isnan(expected) ? isnan(values[i]) : values[i] == expected && !signbit(values[i]) == !signbit(expected);
            wrong += !same;
        }
        CHECK_EQ(wrong, 0);
    }
}

TEST(f64_converts_to_the_nearest_float)
{
    static const double values[] = { 0.1, -0.0, 1e300, 1e-300, 16777217.0, 3.0, NAN };
    float back[7];
    const char *path = in_tmp("double.safetensors");
    write_one(path, SL_ST_F64, values, 7);
    REQUIRE_OK(read_floats(path, 7, back));
    CHECK(back[0] == 0.1f && back[1] == 0.0f && signbit(back[1]) && isinf(back[2]) && back[3] == 0.0f);
    CHECK(back[4] == 16777216.0f && back[5] == 3.0f && isnan(back[6]));
}

TEST(parts_of_a_tensor_are_read_and_others_refused)
{
    const char *path = in_tmp("parts.safetensors");
    uint16_t bits[20000];
    float back[3];
    sl_st_file *f;
    for (int i = 0; i < 20000; i++) bits[i] = (uint16_t)(0x3f80 + i % 64);
    write_one(path, SL_ST_BF16, bits, 20000);
    REQUIRE_OK(sl_st_open(path, &f));
    const sl_st_tensor *t = sl_st_find(f, "w");
    REQUIRE_OK(sl_st_read_f32(f, t, 19997, 3, back));
    CHECK_NEAR(back[0], 1.0 + (19997 % 64) / 128.0, 0);
    REQUIRE_OK(sl_st_read_f32(f, t, 20000, 0, back));
    CHECK_EQ(sl_st_read_f32(f, t, 19998, 3, back), SLUICE_ERR_USAGE);
    CHECK_EQ(sl_st_read_f32(f, t, -1, 1, back), SLUICE_ERR_USAGE);
    CHECK_EQ(sl_st_read_f32(f, t, 1, INT64_MAX, back), SLUICE_ERR_USAGE);
    sl_st_close(f);
}

/* ---- large reads ---- */

enum { LARGE = 3 << 20 }; /* numbers of 2 bytes, in a file that is large enough to be read past the cache */

static void write_large(const char *path)
{
    uint16_t *bits = malloc(2 * LARGE);
    REQUIRE(bits != NULL);
    for (uint32_t i = 0; i < LARGE; i++) bits[i] = (uint16_t)(i * 40503u >> 7);
    write_one(path, SL_ST_BF16, bits, LARGE);
    free(bits);
}

TEST(blocks_that_begin_and_end_anywhere_are_read_both_ways)
{
    static const struct {
        int64_t first, count;
    } blocks[] = { { 0, LARGE / 2 },    { 1, 1 },     { 2047, 4099 }, { 100000, 1 << 20 }, { LARGE - 3, 3 },
                   { LARGE / 2, 2048 }, { LARGE, 0 }, { 12345, 0 } };
    const char *path = in_tmp("large.safetensors");
    char *room = malloc(SL_ST_BLOCK_ROOM(LARGE) + 1), *plain = malloc(LARGE);
    const char *data;
    sl_st_file *f;
    write_large(path);
    REQUIRE_OK(sl_st_open(path, &f));
    const sl_st_tensor *t = sl_st_find(f, "w");
    for (int ready = 0; ready < 2; ready++) {
        for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++)
            for (int way = SL_ST_THROUGH_CACHE; way <= SL_ST_PAST_CACHE; way++) {
                size_t bytes = 2 * (size_t)blocks[i].count;
                REQUIRE_OK(sl_st_read(f, t, blocks[i].first, blocks[i].count, plain));
                REQUIRE_OK(sl_st_read_block(f, t, blocks[i].first, blocks[i].count, (sl_st_way)way, room + 1, &data));
                CHECK(data > room && data + bytes <= room + 1 + SL_ST_BLOCK_ROOM(bytes));
                CHECK(memcmp(data, plain, bytes) == 0);
            }
        sl_st_bypass_cache(f);
    }
    CHECK_EQ(sl_st_read_block(f, t, LARGE - 1, 2, SL_ST_PAST_CACHE, room, &data), SLUICE_ERR_USAGE);
    sl_st_close(f);
    free(room);
    free(plain);
}

static int fail_reads(void *error, const char *call, const char *path)
{
    (void)path;
    return strcmp(call, "pread") == 0 ? *(const int *)error : 0;
}

TEST(a_block_that_cannot_be_read_names_file_tensor_and_byte)
{
    const char *path = in_tmp("large.safetensors");
    char *room = malloc(SL_ST_BLOCK_ROOM(LARGE)), place[32];
    const char *data;
    int error = EIO;
    sl_st_file *f;
    write_large(path);
    REQUIRE_OK(sl_st_open(path, &f));
    sl_st_bypass_cache(f);
    const sl_st_tensor *t = sl_st_find(f, "w");
    for (int way = SL_ST_THROUGH_CACHE; way <= SL_ST_PAST_CACHE; way++) {
        sl_io_set_hook(fail_reads, &error);
        CHECK_EQ(sl_st_read_block(f, t, 1000, 1000, (sl_st_way)way, room, &data), SLUICE_ERR_IO);
        sl_io_set_hook(NULL, NULL);
        snprintf(place, sizeof place, "from byte %llu on", (unsigned long long)f->data_offset + 2000);
        CHECK_CONTAINS(sluice_error(), path);
        CHECK_CONTAINS(sluice_error(), "Input/output error");
        CHECK_CONTAINS(sluice_error(), "tensor \"w\"");
        CHECK_CONTAINS(sluice_error(), place);
    }
    REQUIRE(truncate(path, (off_t)f->data_offset + 1500) == 0);
    for (int way = SL_ST_THROUGH_CACHE; way <= SL_ST_PAST_CACHE; way++) {
        CHECK_EQ(sl_st_read_block(f, t, 500, 1000, (sl_st_way)way, room, &data), SLUICE_ERR_INPUT);
        CHECK_CONTAINS(sluice_error(), "it was cut short or is another file (tensor \"w\"");
    }
    sl_st_close(f);
    free(room);
}

TEST(the_writer_refuses_what_the_reader_would_refuse)
{
    char path[4200], long_name[1026];
    snprintf(path, sizeof path, "%s", in_tmp("never"));
    memset(long_name, 'x', 1025);
    long_name[1025] = '\0';
    const struct {
        sl_st_tensor t;
        const char *message;
    } bad[] = {
        { { .name = long_name, .dtype = SL_ST_F32 }, "the name has 1025 bytes, at most 1024" },
        { { .name = "\xff", .dtype = SL_ST_F32 }, "not valid UTF-8" },
        { { .name = "__metadata__", .dtype = SL_ST_F32 }, "safetensors files reserve this name" },
        { { .name = "r", .dtype = SL_ST_F32, .rank = 9 }, "more than 8 dimensions" },
        { { .name = "n", .dtype = SL_ST_F32, .rank = 1, .dim = { -1 } }, "negative dimension" },
        { { .name = "o", .dtype = SL_ST_F32, .rank = 2, .dim = { INT64_MAX, 4 } }, "overflows" },
    };
    sl_st_writer *w;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        CHECK_EQ(sl_st_write_begin(path, &bad[i].t, 1, NULL, 0, &w), SLUICE_ERR_USAGE);
        CHECK_CONTAINS(sluice_error(), bad[i].message);
    }
    sl_st_tensor twice[] = { { .name = "a", .dtype = SL_ST_U8 }, { .name = "a", .dtype = SL_ST_U8 } };
    CHECK_EQ(sl_st_write_begin(path, twice, 2, NULL, 0, &w), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "two tensors have the name \"a\"");
    CHECK_EQ(file_bytes(path), -1);
}

TEST(too_little_or_too_much_data_leaves_the_old_file)
{
    char path[4200], tmp[4300];
    float value = 2.0f, back;
    snprintf(path, sizeof path, "%s", in_tmp("kept.safetensors"));
    snprintf(tmp, sizeof tmp, "%s.tmp", path);
    REQUIRE_OK(write_floats(path, 1, 1.0f));
    sl_st_tensor t = { .name = "w", .dtype = SL_ST_F32, .rank = 1, .dim = { 2 } };
    sl_st_writer *w;
    REQUIRE_OK(sl_st_write_begin(path, &t, 1, NULL, 0, &w));
    REQUIRE_OK(sl_st_write_data(w, &value, sizeof value));
    CHECK_EQ(sl_st_write_finish(w), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "4 bytes of data were not given");
    REQUIRE_OK(sl_st_write_begin(path, &t, 1, NULL, 0, &w));
    CHECK_EQ(sl_st_write_data(w, (float[3]){ 0 }, 12), SLUICE_ERR_USAGE);
    sl_st_write_abort(w);
    sl_st_write_abort(NULL);
    REQUIRE_OK(read_floats(path, 1, &back));
    CHECK_NEAR(back, 1.0, 0);
    CHECK_EQ(file_bytes(tmp), -1);
}

/* Fails call number `at` (and later ones when persistent); remembers the last call seen. */
typedef struct failing {
    int calls, at, error;
    bool persistent;
    char last[16];
} failing;

static int fail_nth(void *user, const char *call, const char *path)
{
    failing *f = user;
    (void)path;
    f->calls++;
    if (f->calls != f->at && !(f->persistent && f->calls > f->at)) return 0;
    if (f->calls == f->at) snprintf(f->last, sizeof f->last, "%s", call);
    return f->error;
}

/* Every call of a rewrite fails once, for a moment or for good: the file is whole, and old unless all was already
 * done. */
TEST(a_failing_disk_leaves_the_old_file)
{
    char path[4200], tmp[4300];
    snprintf(path, sizeof path, "%s", in_tmp("disk.safetensors"));
    snprintf(tmp, sizeof tmp, "%s.tmp", path);
    for (int mode = 0; mode < 4; mode++) {
        for (int n = 1;; n++) {
            float back[3];
            failing f = { .at = n, .error = mode & 1 ? ENOSPC : EIO, .persistent = mode >= 2 };
            REQUIRE_OK(write_floats(path, 3, 1.0f));
            CHECK_EQ(file_bytes(tmp), -1); /* whatever the round before has left */
            sl_io_set_hook(fail_nth, &f);
            sluice_status st = write_floats(path, 3, 2.0f);
            sl_io_set_hook(NULL, NULL);
            if (f.calls < n) {
                CHECK(n > 5);
                break;
            }
            bool committed = strcmp(f.last, "fsync") == 0 || (f.calls > 16 && strcmp(f.last, "rename") != 0);
            REQUIRE_OK(read_floats(path, 3, back));
            CHECK(back[0] == back[2] && (back[0] == 1.0f || (committed && back[0] == 2.0f)));
            /* at the end the lock loses its name, and what fails then is nobody's loss */
            CHECK(st == SLUICE_ERR_IO || (st == SLUICE_OK && back[0] == 2.0f));
            if (st != SLUICE_OK) CHECK_CONTAINS(sluice_error(), mode & 1 ? "free space there" : "Input/output error");
            if (!f.persistent) CHECK(file_bytes(tmp) < 100); /* no data: at most a lock that nobody holds */
        }
    }
}

TEST(a_failing_disk_is_reported_when_reading)
{
    char path[4200];
    float back[3];
    snprintf(path, sizeof path, "%s", in_tmp("read.safetensors"));
    REQUIRE_OK(write_floats(path, 3, 1.0f));
    for (int n = 1;; n++) {
        failing f = { .at = n, .error = EIO };
        sl_io_set_hook(fail_nth, &f);
        sluice_status st = read_floats(path, 3, back);
        sl_io_set_hook(NULL, NULL);
        if (f.calls < n) break;
        CHECK(strcmp(f.last, "close") == 0 ? st == SLUICE_OK : st == SLUICE_ERR_IO);
    }
}

TEST(short_memory_is_reported_and_leaves_the_old_file)
{
    char path[4200];
    sl_alloc_stats before, after;
    snprintf(path, sizeof path, "%s", in_tmp("memory.safetensors"));
    REQUIRE_OK(write_floats(path, 3, 1.0f));
    for (int n = 1, done = 0; !done; n++) {
        float back[3];
        sl_alloc_get_stats(&before);
        sl_alloc_fail_nth(n, 0);
        sluice_status written = write_floats(path, 3, 2.0f);
        sl_alloc_fail_nth(0, 0);
        done = written == SLUICE_OK;
        if (!done) CHECK_EQ(written, SLUICE_ERR_NO_MEMORY);
        sl_alloc_get_stats(&after);
        CHECK_EQ(before.live_count, after.live_count);
        REQUIRE_OK(read_floats(path, 3, back));
        CHECK(back[2] == (done ? 2.0f : 1.0f));
    }
    for (int n = 1, done = 0; !done; n++) {
        float back[3];
        sl_alloc_get_stats(&before);
        sl_alloc_fail_nth(n, 0);
        sluice_status st = read_floats(path, 3, back);
        sl_alloc_fail_nth(0, 0);
        done = st == SLUICE_OK;
        if (!done) CHECK_EQ(st, SLUICE_ERR_NO_MEMORY);
        sl_alloc_get_stats(&after);
        CHECK_EQ(before.live_count, after.live_count);
    }
}

static char trace[1024];

static int record_call(void *user, const char *call, const char *path)
{
    (void)user;
    (void)path;
    snprintf(trace + strlen(trace), sizeof trace - strlen(trace), "%s ", call);
    return 0;
}

/* What a power cut would leave cannot be tried here; the order of calls that makes it safe can be held. */
TEST(data_is_on_the_disk_before_the_file_takes_its_name)
{
    char path[4200];
    snprintf(path, sizeof path, "%s", in_tmp("order.safetensors"));
    trace[0] = '\0';
    sl_io_set_hook(record_call, NULL);
    sluice_status st = write_floats(path, 1, 1.0f);
    sl_io_set_hook(NULL, NULL);
    REQUIRE_OK(st);
    CHECK_STR(trace,
              "stat readlink stat lstat open flock fstat lstat pwrite stat open pwrite pwrite fdatasync close lstat "
              "rename open fsync close unlink flock close ");
}
