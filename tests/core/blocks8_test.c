/* blocks8_test.c: the 8-bit blocks keep what blocks8.h states: bounds, exactness of what was decoded, saturation, the
 * guard against zero, and random rounding that is right on average. */
#include "core/blocks8.h"

#include <math.h>
#include <string.h>

#include "core/half.h"
#include "core/rounding.h"
#include "test.h"

#define N     1024
#define BYTES (SL_BLOCKS8_HEADER + N)

static uint32_t bits_at(uint32_t seed, uint32_t i)
{
    return (uint32_t)(sl_mix64(sl_mix64(seed) + i) >> 32);
}

/* Magnitudes over `binades` binades below 2^top, of either sign where asked for. */
static void fill(float *x, size_t n, uint32_t seed, int top, int binades, bool is_signed)
{
    for (uint32_t i = 0; i < n; i++) {
        uint32_t b = bits_at(seed, i);
        float m = 1.0f + (float)(b & 0x7fffff) * 0x1p-23f;
        x[i] = ldexpf(m, top - 1 - (int)((b >> 23) % (uint32_t)binades));
        if (is_signed && b >> 31) x[i] = -x[i];
    }
}

static int32_t exponent_of(const uint8_t *block)
{
    int32_t e;
    memcpy(&e, block, sizeof e);
    return e;
}

TEST(nearest_codes_are_within_the_stated_bounds)
{
    static float x[N], y[N];
    static uint8_t block[BYTES];
    for (uint32_t seed = 0; seed < 64; seed++)
        for (int is_signed = 0; is_signed < 2; is_signed++) {
            fill(x, N, seed, (int)seed * 2 - 50, 40, is_signed);
            sl_blocks8_encode(x, N, is_signed, block);
            sl_blocks8_decode(block, N, is_signed, y);
            double unit = ldexp(1.0, exponent_of(block)), least = ldexp(unit, is_signed ? -14 : -30);
            for (int i = 0; i < N; i++) {
                double magnitude = fabs((double)x[i]), error = fabs((double)y[i] - (double)x[i]);
                CHECK(magnitude <= 1.875 * unit);
                if (magnitude >= least) CHECK(error <= magnitude / 16);
                if (magnitude < least && (is_signed || y[i] > ldexp(unit, -33))) CHECK(error <= least / 16);
                if (!is_signed) CHECK(y[i] > 0.0f);
            }
        }
}

TEST(the_exponent_is_the_least_that_holds_the_largest)
{
    static const float largest[] = { 1.0f, 1.875f, 1.8750001f, 1.9999999f, 2.0f, 0.9374999f, 0.9375f, 0.93750006f };
    static const int expected[] = { 0, 0, 1, 1, 1, -1, -1, 0 };
    for (int i = 0; i < 8; i++) {
        uint8_t block[SL_BLOCKS8_HEADER + 2];
        float x[2] = { largest[i], 0.0f };
        sl_blocks8_encode(x, 2, true, block);
        CHECK_EQ(exponent_of(block), expected[i]);
    }
    uint8_t zeros[SL_BLOCKS8_HEADER + 2], none[SL_BLOCKS8_HEADER + 2] = { 0 };
    float x[2] = { 0.0f, -0.0f };
    sl_blocks8_encode(x, 2, true, zeros);
    CHECK(memcmp(zeros, none, sizeof none) == 0);
    x[0] = 0x1p-149f;
    sl_blocks8_encode(x, 1, false, zeros);
    CHECK_EQ(exponent_of(zeros), SL_BLOCKS8_LEAST);
    sl_blocks8_decode(zeros, 1, false, x);
    CHECK(x[0] == 0x1p-126f);
}

/* Decodes every byte at several exponents and encodes all of it again, then pieces of it in scattered order. */
TEST(what_was_decoded_encodes_to_the_same_numbers_in_any_order)
{
    static uint8_t block[BYTES], again[BYTES];
    static float x[N], y[N];
    for (int32_t e = SL_BLOCKS8_LEAST; e <= 127; e += 11)
        for (int is_signed = 0; is_signed < 2; is_signed++) {
            memcpy(block, &e, sizeof(int32_t));
            for (uint32_t i = 0; i < N; i++) block[SL_BLOCKS8_HEADER + i] = (uint8_t)bits_at((uint32_t)e + 500, i);
            for (uint32_t i = 0; is_signed && i < N; i++)
                if (block[SL_BLOCKS8_HEADER + i] == 0x80) block[SL_BLOCKS8_HEADER + i] = 0;
            sl_blocks8_decode(block, N, is_signed, x);
            sl_blocks8_encode(x, N, is_signed, again);
            CHECK(memcmp(block, again, BYTES) == 0);
            memset(again, 0, BYTES);
            for (uint32_t piece = 0; piece < 16; piece++) {
                size_t at = (piece * 5 + 3) % 16 * 64;
                sl_blocks8_decode(again, N, is_signed, y);
                memcpy(y + at, x + at, 64 * sizeof *x);
                sl_blocks8_encode(y, N, is_signed, again);
            }
            sl_blocks8_decode(again, N, is_signed, y);
            CHECK(memcmp(x, y, sizeof x) == 0);
            CHECK(memcmp(block, again, BYTES) == 0);
        }
}

TEST(random_rounding_takes_a_neighbour_and_keeps_what_is_exact)
{
    static float x[N], y[N], z[N];
    static uint32_t random[N];
    static uint8_t block[BYTES], again[BYTES];
    for (uint32_t seed = 0; seed < 32; seed++)
        for (int is_signed = 0; is_signed < 2; is_signed++) {
            fill(x, N, seed, 3, 20, is_signed);
            for (uint32_t i = 0; i < N; i++) random[i] = bits_at(seed + 100, i);
            sl_blocks8_encode_random(x, N, is_signed, random, block);
            sl_blocks8_decode(block, N, is_signed, y);
            double least = ldexp(1.0, exponent_of(block) - (is_signed ? 14 : 30));
            for (int i = 0; i < N; i++) {
                double magnitude = fabs((double)x[i]), spacing = fmax(magnitude, least) / 8;
                CHECK(fabs((double)y[i] - (double)x[i]) <= spacing);
            }
            sl_blocks8_encode_random(y, N, is_signed, random, again);
            sl_blocks8_decode(again, N, is_signed, z);
            CHECK(memcmp(y, z, sizeof y) == 0);
        }
}

/* The mean of many roundings of one number, in units of the spacing, beside what chance allows: six deviations. */
static void check_mean(float x, bool is_signed, double spacing)
{
    static float values[N], y[N];
    static uint32_t random[N];
    static uint8_t block[BYTES];
    double sum = 0.0;
    for (int i = 0; i < N; i++) values[i] = x;
    values[0] = 1.875f; /* holds the exponent at 0 */
    for (uint32_t round = 0; round < 64; round++) {
        for (uint32_t i = 0; i < N; i++) random[i] = bits_at(round + 1000, i);
        sl_blocks8_encode_random(values, N, is_signed, random, block);
        sl_blocks8_decode(block, N, is_signed, y);
        for (int i = 1; i < N; i++) sum += (double)y[i];
    }
    double count = 64.0 * (N - 1);
    CHECK_THAT(fabs(sum / count - (double)x) <= 6 * 0.5 * spacing / sqrt(count), "%a: the mean is %a", (double)x,
               sum / count);
}

TEST(random_rounding_is_right_on_average)
{
    check_mean(1.03f, false, 0.125);
    check_mean(1.03f, true, 0.125);
    check_mean(-0.7f, true, 0.0625);
    check_mean(0.0131f, false, 0x1p-10);
    check_mean(0x1.234p-20f, false, 0x1p-23);
    check_mean(0x1.9p-16f, true, 0x1p-17);  /* below the least normal */
    check_mean(-0x1.1p-18f, true, 0x1p-17); /* between zero and the least code */
    check_mean(0x1.dp-32f, false, 0x1p-33); /* likewise, unsigned, above the least code */
}

TEST(what_is_not_finite_becomes_the_largest_code)
{
    static const float bad[] = { INFINITY, NAN, 3.4028235e38f, -INFINITY };
    for (int i = 0; i < 4; i++)
        for (int is_signed = 0; is_signed < 2; is_signed++) {
            float x[2] = { bad[i], 1.0f }, y[2];
            uint8_t block[SL_BLOCKS8_HEADER + 2];
            uint32_t random[2] = { 0xfffffu, 0xfffffu };
            sl_blocks8_encode(x, 2, is_signed, block);
            sl_blocks8_decode(block, 2, is_signed, y);
            CHECK(y[0] == (is_signed && bad[i] < 0 ? -1.875f : 1.875f) * 0x1p127f);
            CHECK(is_signed ? y[1] == 0.0f : y[1] > 0.0f && y[1] < 1e30f);
            sl_blocks8_encode_random(x, 2, is_signed, random, block);
            sl_blocks8_decode(block, 2, is_signed, y);
            CHECK(fabsf(y[0]) == 1.875f * 0x1p127f);
        }
}

TEST(random_bits_depend_on_everything_and_are_even)
{
    int ones[32] = { 0 };
    for (uint32_t i = 0; i < 65536; i++) {
        uint32_t h = sl_rounding_hash(sl_rounding_key_of(7, 3, i / 1024), i % 1024);
        for (int b = 0; b < 32; b++) ones[b] += (int)(h >> b & 1);
    }
    for (int b = 0; b < 32; b++) CHECK(abs(ones[b] - 32768) < 6 * 128);
    const uint32_t here = sl_rounding_key_of(1, 2, 3).addend;
    CHECK(here != sl_rounding_key_of(1, 2, 4).addend && here != sl_rounding_key_of(1, 3, 3).addend);
    CHECK(here != sl_rounding_key_of(2, 2, 3).addend);
    CHECK(here != sl_rounding_key_of(1, 2, UINT64_C(3) + (UINT64_C(1) << 32)).addend);
}
