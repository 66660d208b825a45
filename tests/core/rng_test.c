/* rng_test.c: Philox against its published vectors, and the numbers made of it. */
#include "core/normals.h"
#include "core/rng.h"
#include "test.h"

TEST(philox_gives_the_published_vectors)
{
    static const struct {
        sl_rng stream;
        uint32_t block;
        uint32_t expected[4];
    } rows[] = {
        { { { 0, 0 }, { 0, 0, 0 } }, 0, { 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 } },
        { { { 0xffffffff, 0xffffffff }, { 0xffffffff, 0xffffffff, 0xffffffff } },
          0xffffffff,
          { 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd } },
        { { { 0xa4093822, 0x299f31d0 }, { 0x85a308d3, 0x13198a2e, 0x03707344 } },
          0x243f6a88,
          { 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1 } },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uint32_t got[4];
        sl_rng_block(&rows[i].stream, rows[i].block, got);
        for (int w = 0; w < 4; w++) CHECK_EQ(got[w], rows[i].expected[w]);
    }
}

/* All parts of an address that could be mixed up with each other, one bit at a time, give different streams. Seeds that
 * differ above bit 55 only may meet in different domains: no run has two seeds. */
TEST(every_part_of_the_address_changes_the_stream)
{
    enum { STREAMS = 56 + 5 + 40 + 32 + 32 };
    uint32_t first[STREAMS][4];
    int n = 0;
    for (int b = 0; b < 56; b++) {
        sl_rng r = sl_rng_stream(UINT64_C(1) << b, SL_RNG_INIT, 0, 0, 0);
        sl_rng_block(&r, 0, first[n++]);
    }
    for (int d = SL_RNG_INIT; d <= SL_RNG_SAMPLE; d++) {
        sl_rng r = sl_rng_stream(0, (sl_rng_domain)d, 0, 0, 0);
        sl_rng_block(&r, 0, first[n++]);
    }
    for (int b = 0; b < 40; b++) {
        sl_rng r = sl_rng_stream(5, SL_RNG_INIT, UINT64_C(1) << b, 0, 0);
        sl_rng_block(&r, 0, first[n++]);
    }
    for (int b = 0; b < 32; b++) {
        sl_rng micro = sl_rng_stream(5, SL_RNG_INIT, 0, UINT32_C(1) << b, 0);
        sl_rng op = sl_rng_stream(5, SL_RNG_INIT, 0, 0, UINT32_C(1) << b);
        sl_rng_block(&micro, 0, first[n++]);
        sl_rng_block(&op, 0, first[n++]);
    }
    CHECK_EQ(n, STREAMS);
    for (int i = 0; i < n; i++)
        for (int j = 0; j < i; j++) CHECK(memcmp(first[i], first[j], sizeof first[i]) != 0);
}

TEST(blocks_beyond_32_bits_differ)
{
    sl_rng r = sl_rng_stream(1, SL_RNG_INIT, 2, 3, 4);
    uint32_t low[4], high[4];
    sl_rng_block(&r, 9, low);
    sl_rng_block(&r, UINT64_C(9) | UINT64_C(1) << 32, high);
    CHECK(memcmp(low, high, sizeof low) != 0);
}

TEST(elements_are_words_of_blocks)
{
    sl_rng r = sl_rng_stream(1337, SL_RNG_DROPOUT, 10, 3, 7);
    for (uint64_t e = 0; e < 16; e++) {
        uint32_t words[4];
        sl_rng_block(&r, e / 4, words);
        CHECK_EQ(sl_rng_u32(&r, e), words[e % 4]);
        CHECK(sl_rng_uniform(&r, e) == (float)(words[e % 4] >> 8) / 16777216.0f);
    }
}

TEST(uniform_is_in_range_with_the_right_moments)
{
    enum { N = 200000 };
    sl_rng r = sl_rng_stream(3, SL_RNG_INIT, 0, 0, 1);
    double sum = 0, squares = 0;
    for (uint64_t e = 0; e < N; e++) {
        double u = sl_rng_uniform(&r, e);
        CHECK(u >= 0 && u < 1);
        sum += u;
        squares += u * u;
    }
    CHECK_NEAR(sum / N, 0.5, 0.003);
    CHECK_NEAR(squares / N, 1.0 / 3, 0.003);
}

TEST(normal_has_the_right_moments_and_independent_pairs)
{
    enum { N = 200000 };
    sl_rng r = sl_rng_stream(4, SL_RNG_INIT, 0, 0, 1);
    double moment[5] = { 0 }, product = 0, before = 0;
    for (uint64_t e = 0; e < N; e++) {
        double x = sl_rng_normal(&r, e), power = 1;
        CHECK(isfinite(x));
        for (int m = 1; m <= 4; m++) moment[m] += (power *= x);
        if (e % 2 == 1) product += x * before;
        before = x;
    }
    CHECK_NEAR(moment[1] / N, 0, 0.01);
    CHECK_NEAR(moment[2] / N, 1, 0.015);
    CHECK_NEAR(moment[3] / N, 0, 0.03);
    CHECK_NEAR(moment[4] / N, 3, 0.08);
    CHECK_NEAR(product / (N / 2), 0, 0.015);
}

TEST(below_is_even_over_small_and_huge_ranges)
{
    enum { N = 70000 };
    sl_rng r = sl_rng_stream(5, SL_RNG_DATA, 0, 0, 0);
    int count[7] = { 0 };
    for (uint64_t e = 0; e < N; e++) {
        uint64_t v = sl_rng_below(&r, e, 7);
        REQUIRE(v < 7);
        count[v]++;
    }
    for (int i = 0; i < 7; i++) CHECK_NEAR(count[i], N / 7, 500);
    for (uint64_t e = 0; e < 100; e++) {
        CHECK_EQ(sl_rng_below(&r, e, 1), 0);
        CHECK(sl_rng_below(&r, e, UINT64_MAX) < UINT64_MAX);
    }
}

TEST(permute_is_a_permutation_of_every_size)
{
    static unsigned char seen[5000];
    sl_rng r = sl_rng_stream(6, SL_RNG_SHUFFLE, 1, 0, 0);
    for (uint64_t n = 1; n <= sizeof seen; n = n < 70 ? n + 1 : n * 3 / 2) {
        memset(seen, 0, sizeof seen);
        for (uint64_t i = 0; i < n; i++) {
            uint64_t p = sl_rng_permute(&r, i, n);
            REQUIRE(p < n);
            CHECK_EQ(seen[p], 0);
            seen[p] = 1;
        }
    }
}

TEST(permute_stays_inside_huge_sizes)
{
    sl_rng r = sl_rng_stream(6, SL_RNG_SHUFFLE, 1, 0, 0);
    for (uint64_t i = 0; i < 50; i++) {
        CHECK(sl_rng_permute(&r, i, UINT64_MAX) < UINT64_MAX);
        CHECK(sl_rng_permute(&r, i, (UINT64_C(1) << 40) + 1) <= UINT64_C(1) << 40);
    }
}

TEST(permute_shuffles_and_epochs_differ)
{
    enum { N = 1000 };
    sl_rng a = sl_rng_stream(6, SL_RNG_SHUFFLE, 1, 0, 0), b = sl_rng_stream(6, SL_RNG_SHUFFLE, 2, 0, 0);
    int fixed = 0, same = 0;
    double distance = 0;
    for (uint64_t i = 0; i < N; i++) {
        uint64_t p = sl_rng_permute(&a, i, N);
        fixed += p == i;
        same += p == sl_rng_permute(&b, i, N);
        distance += fabs((double)p - (double)i);
    }
    CHECK(fixed < 10 && same < 10);
    CHECK_NEAR(distance / N, N / 3.0, 30);
}

TEST(many_normals_are_the_single_ones)
{
    sl_rng r = sl_rng_stream(9, SL_RNG_INIT, 4, 0, 0);
    float many[40];
    for (uint64_t first = 0; first < 9; first++)
        for (int64_t count = 0; count < 30; count += 7) {
            sl_rng_normals(&r, first, count, many);
            for (int64_t i = 0; i < count; i++) CHECK(many[i] == sl_rng_normal(&r, first + (uint64_t)i));
        }
}

static int differing_pairs(int path, const uint32_t *radii, const uint32_t *angles)
{
    float even[SL_NORMALS_PAIRS], odd[SL_NORMALS_PAIRS], pair[2];
    int different = 0;
    sl_normals_pairs(path, radii, angles, even, odd);
    for (int i = 0; i < SL_NORMALS_PAIRS; i++) {
        sl_normal_pair(radii[i], angles[i], &pair[0], &pair[1]);
        different += memcmp(&pair[0], &even[i], sizeof(float)) != 0 || memcmp(&pair[1], &odd[i], sizeof(float)) != 0;
    }
    return different;
}

/* Every path against the C library, bit by bit, signs of zeros included. */
TEST(normals_in_lanes_have_the_bits_of_the_c_library)
{
    enum { BATCHES = 20000 };
    sl_rng r = sl_rng_stream(11, SL_RNG_INIT, 1, 0, 0);
    for (int path = 0; path < sl_normals_paths(); path++) {
        int different = 0;
        for (uint64_t b = 0; b < BATCHES; b++) {
            uint32_t words[2][SL_NORMALS_PAIRS];
            for (uint64_t i = 0; i < 2 * SL_NORMALS_PAIRS; i += 4)
                sl_rng_block(&r, b * 2 * SL_NORMALS_PAIRS + i, &words[0][0] + i);
            different += differing_pairs(path, words[0], words[1]);
        }
        CHECK_EQ(different, 0);
    }
}

/* Radii next to 0 and to their largest, powers of two; angles next to every multiple of pi/4. */
TEST(normals_in_lanes_have_the_bits_of_the_c_library_at_the_edges)
{
    uint32_t radii[SL_NORMALS_PAIRS], angles[SL_NORMALS_PAIRS];
    for (int path = 0; path < sl_normals_paths(); path++)
        for (uint32_t octant = 0; octant < 8; octant++)
            for (uint32_t near = 0; near < 64; near++) {
                for (uint32_t i = 0; i < SL_NORMALS_PAIRS; i++) {
                    uint32_t power = UINT32_C(1) << (i % 32);
                    radii[i] = i < 32 ? power + near - 32 : ~(power - 1) + near - 32;
                    angles[i] = octant * (UINT32_C(1) << 29) + near - 32;
                }
                CHECK_EQ(differing_pairs(path, radii, angles), 0);
            }
}

/* Words for which the sums in lanes, left as they are, round to another float than the C library's (found by searching 17e9). */
TEST(doubtful_normals_are_those_of_the_c_library)
{
    static const uint32_t rows[][2] = {
        { 0x463c07ab, 0x5c7b557a }, { 0x2255e9f4, 0xff3da28c }, { 0x5f63723c, 0xcfa66406 }, { 0xcab1b668, 0xa840e3a5 },
        { 0xe52e75bf, 0xc696f252 }, { 0x5f6a903e, 0x6f74b233 }, { 0x65239869, 0x44d38dad }, { 0x9a5b4766, 0xee9f4a07 },
        { 0xb0da5d57, 0x2dfc8a63 }, { 0x154862a7, 0xc1b67c15 }, { 0xcb30f279, 0x8cd31cca }, { 0xbccccb93, 0x7b6cb75a },
    };
    for (int path = 0; path < sl_normals_paths(); path++)
        for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++) {
            uint32_t radii[SL_NORMALS_PAIRS], angles[SL_NORMALS_PAIRS];
            for (int i = 0; i < SL_NORMALS_PAIRS; i++) {
                radii[i] = rows[k][0] + (uint32_t)i;
                angles[i] = rows[k][1];
            }
            CHECK_EQ(differing_pairs(path, radii, angles), 0);
        }
}

TEST(long_runs_of_normals_are_the_single_ones_from_any_element_on)
{
    sl_rng r = sl_rng_stream(9, SL_RNG_INIT, 4, 0, 0);
    enum { COUNT = 3 * SL_NORMALS_BATCH + 5 };
    static float many[COUNT];
    const uint64_t firsts[] = { 0, 1, 1023, (UINT64_C(1) << 34) - 2 * SL_NORMALS_BATCH - 8, (UINT64_C(5) << 34) - 300 };
    for (size_t k = 0; k < sizeof firsts / sizeof firsts[0]; k++) {
        sl_rng_normals(&r, firsts[k], COUNT, many);
        for (int64_t i = 0; i < COUNT; i++) {
            float one = sl_rng_normal(&r, firsts[k] + (uint64_t)i);
            CHECK(memcmp(&many[i], &one, sizeof one) == 0);
        }
    }
}
