/* half_test.c: conversions to 16 bits and back against the definition of rounding, worked out anew in double: the
 * candidates on both sides of a number are compared by distance, ties by the last bit. */
#include "core/half.h"

#include <math.h>
#include <pthread.h>

#include "test.h"

/* ---- the independent formulation ---- */

/* A 16-bit float with `digits` bits of fraction and least normal exponent `low`, as a double. Finite codes only. */
static double half_value(uint16_t magnitude, int digits, int low)
{
    int exponent = magnitude >> digits, fraction = magnitude & ((1 << digits) - 1);
    if (exponent == 0) return ldexp(fraction, low - digits);
    return ldexp((1 << digits) + fraction, low - digits + exponent - 1);
}

static double bf16_value(uint16_t magnitude)
{
    return half_value(magnitude, 7, -126);
}

static double f16_value(uint16_t magnitude)
{
    return half_value(magnitude, 10, -14);
}

/* Nearest code to x >= 0 among [0, infinity], where infinity counts as the next power of two. */
static uint16_t nearest(double x, uint16_t infinity, double (*value)(uint16_t))
{
    uint16_t low = 0, high = infinity;
    while (high - low > 1) {
        uint16_t middle = (uint16_t)(low + (high - low) / 2);
        if (value(middle) <= x)
            low = middle;
        else
            high = middle;
    }
    double below = x - value(low), above = value(high) - x;
    if (below != above) return below < above ? low : high;
    return low % 2 == 0 ? low : high;
}

static void check_f16(uint32_t bits)
{
    float x = sl_bits_float(bits);
    uint16_t have = sl_float_to_f16(x), sign = (uint16_t)(bits >> 16 & 0x8000u), want;
    if (isnan(x)) /* quiet, with the sign and the upper bits of the payload, as the processor's instruction */
        want = (uint16_t)(sign | 0x7e00u | (bits >> 13 & 0x1ffu));
    else
        want = (uint16_t)(sign | (isinf(x) ? 0x7c00u : nearest(fabs((double)x), 0x7c00, f16_value)));
    CHECK_THAT(have == want, "f16 of %08x is %04x, not %04x", bits, have, want);
}

static void check_bf16(uint32_t bits)
{
    float x = sl_bits_float(bits);
    uint16_t have = sl_float_to_bf16(x), sign = (uint16_t)(bits >> 16 & 0x8000u), want;
    if (isnan(x))
        want = (uint16_t)(bits >> 16 | 0x40u);
    else
        want = (uint16_t)(sign | (isinf(x) ? 0x7f80u : nearest(fabs((double)x), 0x7f80, bf16_value)));
    CHECK_THAT(have == want, "bf16 of %08x is %04x, not %04x", bits, have, want);
}

/* ---- 16 bits to float and back ---- */

TEST(every_f16_is_its_value_in_float_and_comes_back)
{
    for (uint32_t h = 0; h < 65536; h++) {
        float x = sl_f16_to_float((uint16_t)h);
        uint16_t magnitude = h & 0x7fff;
        if (magnitude > 0x7c00) {
            CHECK(isnan(x));
            CHECK_EQ(sl_float_bits(x), (h & 0x8000) << 16 | 0x7fc00000 | (uint32_t)(magnitude & 0x3ff) << 13);
            CHECK_EQ(sl_float_to_f16(x), h | 0x200);
            continue;
        }
        double want = magnitude == 0x7c00 ? INFINITY : f16_value(magnitude);
        if (fabsf(x) != want || (signbit(x) != 0) != (h >> 15 != 0))
            test_fail(__FILE__, __LINE__, "f16 %04x is %g, not %g", h, (double)x, want);
        CHECK_EQ(sl_float_to_f16(x), h);
    }
}

TEST(every_bf16_is_the_upper_half_of_its_float_and_comes_back)
{
    for (uint32_t h = 0; h < 65536; h++) {
        float x = sl_bf16_to_float((uint16_t)h);
        CHECK_EQ(sl_float_bits(x), h << 16);
        CHECK_EQ(sl_float_to_bf16(x), isnan(x) ? (h | 0x40) : h);
    }
}

/* ---- float to 16 bits ---- */

/* Around every code and every middle between two codes, both signs: ties, denormals, the edge of infinity. */
TEST(floats_around_every_16_bit_number_round_to_nearest_even)
{
    for (uint32_t h = 0; h < 0x7c00; h++) {
        double middle = (f16_value((uint16_t)h) + f16_value((uint16_t)(h + 1))) / 2;
        uint32_t at = sl_float_bits((float)middle), code = sl_float_bits((float)f16_value((uint16_t)h));
        for (uint32_t d = 0; d < 5; d++) {
            check_f16(at + d - 2);
            check_f16((at + d - 2) | 0x80000000u);
            if (code + d >= 2) check_f16(code + d - 2);
        }
    }
    for (uint32_t h = 0; h < 0x8000; h++)
        for (uint32_t d = 0; d < 5; d++) {
            check_bf16(((h << 16 | 0x8000u) + d - 2) & 0x7fffffffu);
            check_bf16((h << 16 | 0x8000u) + d - 2 + 0x80000000u);
            check_bf16((h << 16) + d);
        }
}

TEST(floats_all_over_the_range_round_to_nearest_even)
{
    for (uint64_t bits = 0; bits <= UINT32_MAX; bits += 8191) { /* odd: every low digit occurs */
        check_f16((uint32_t)bits);
        check_bf16((uint32_t)bits);
    }
}

TEST(the_edges_of_f16_are_where_ieee_has_them)
{
    CHECK_EQ(sl_float_to_f16(65504.0f), 0x7bff);
    CHECK_EQ(sl_float_to_f16(65519.996f), 0x7bff);
    CHECK_EQ(sl_float_to_f16(65520.0f), 0x7c00);
    CHECK_EQ(sl_float_to_f16(-65520.0f), 0xfc00);
    CHECK_EQ(sl_float_to_f16(0x1p-25f), 0x0000); /* half of the least denormal: a tie, to even */
    CHECK_EQ(sl_float_to_f16(nextafterf(0x1p-25f, 1.0f)), 0x0001);
    CHECK_EQ(sl_float_to_f16(0x1.8p-24f), 0x0002);
    CHECK_EQ(sl_float_to_f16(nextafterf(0x1p-14f, 0.0f)), 0x0400); /* rounds up into the normal numbers */
    CHECK_EQ(sl_float_to_f16(-0x1p-149f), 0x8000);
    CHECK_EQ(sl_float_to_bf16(-0x1p-149f), 0x8000);
    CHECK_EQ(sl_float_to_bf16(sl_bits_float(0x7f7fffff)), 0x7f80);
    CHECK_EQ(sl_float_to_f16(sl_bits_float(0x7f800001)), 0x7e00);
    CHECK_EQ(sl_float_to_f16(sl_bits_float(0xffabc000)), 0xff5e);
}

/* ---- the two halves of a master weight (exact rule 5) ---- */

typedef struct half_range {
    uint32_t first, end; /* upper halves */
    uint32_t wrong;
} half_range;

/* The upper half is the master rounded to 16 bits, halves away from zero: within half a step of it, seen as integers.
 * Differences are collected, not counted, so that the compiler can take many patterns at a time. */
static uint32_t check_lower_halves(uint32_t upper)
{
    uint32_t wrong = 0;
    for (uint32_t lower = 0; lower < 65536; lower++) {
        uint32_t master = upper << 16 | lower;
        uint16_t high = sl_weight_high(master), low = sl_weight_low(master);
        uint32_t rest = master - ((uint32_t)high << 16) + 0x8000u;
        wrong |= (sl_weight_join(high, low) ^ master) | rest >> 16;
    }
    return wrong;
}

static void *check_masters(void *context)
{
    half_range *r = context;
    for (uint32_t upper = r->first; upper < r->end; upper++) r->wrong |= check_lower_halves(upper);
    return NULL;
}

TEST(every_master_is_its_two_halves_again)
{
    half_range ranges[2] = { { 0, 32768, 0 }, { 32768, 65536, 0 } };
    pthread_t other;
    REQUIRE(pthread_create(&other, NULL, check_masters, &ranges[0]) == 0);
    check_masters(&ranges[1]);
    pthread_join(other, NULL);
    CHECK_EQ(ranges[0].wrong, 0);
    CHECK_EQ(ranges[1].wrong, 0);
}
