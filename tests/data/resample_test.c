/* resample_test.c: filters with antialiasing, against what PyTorch's interpolate(mode="bilinear", antialias=True) and Pillow gave. */
#include "data/resample.h"

#include <math.h>

#include "support/picture_writer.h"
#include "test.h"

static const float smaller[] = { 40.7143f, 47.1429f, 53.5714f,  50.8397f, 74.7001f,  122.9651f,
                                 62.3031f, 95.2023f, 165.1603f, 72.4286f, 105.3277f, 175.2857f };
static const float larger[] = { 34.0000f,  36.2500f,  38.7500f,  41.2500f,  43.7500f, 46.0000f, 36.1875f,  38.4375f,
                                40.9375f,  43.4375f,  45.9375f,  48.1875f,  39.3125f, 41.5625f, 44.0625f,  46.5625f,
                                49.0625f,  51.3125f,  42.4375f,  44.6875f,  47.1875f, 49.6875f, 52.1875f,  54.4375f,
                                45.5625f,  47.8125f,  50.3125f,  64.5312f,  83.4375f, 85.6875f, 48.6875f,  50.9375f,
                                53.4375f,  91.0937f,  142.8125f, 145.0625f, 51.8125f, 54.0625f, 56.5625f,  96.5625f,
                                151.5625f, 153.8125f, 54.0000f,  56.2500f,  58.7500f, 98.7500f, 153.7500f, 156.0000f };
static const float narrow[] = { 52.2464f, 76.5036f, 58.4964f, 82.7536f };

static const struct {
    int height, width, out_height, out_width;
    const float *expected;
} cases[] = { { 9, 7, 4, 3, smaller }, { 5, 5, 8, 6, larger }, { 3, 20, 2, 2, narrow } };

TEST(resampling_is_that_of_pytorch_with_antialiasing)
{
    sl_resampling r = { .rows = NULL };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int h = cases[i].height, w = cases[i].width, count = cases[i].out_height * cases[i].out_width;
        uint8_t pixels[100];
        float out[100];
        paint(pixels, w, h, 1, 2);
        const sl_pixels in = { pixels, h, w, 1 };
        REQUIRE_OK(sl_resample(&r, &in, &(sl_box){ 0, 0, h, w, false }, cases[i].out_height, cases[i].out_width, out));
        for (int k = 0; k < count; k++) CHECK_NEAR(out[k], cases[i].expected[k], 2e-4);
    }
    sl_resampling_free(&r);
}

/* Pillow's, of images of mode F, cut to what bytes can be. */
static const float smaller_cubic[] = { 39.6855f, 45.2872f, 49.2937f,  48.1329f, 74.4433f,  125.6900f,
                                       58.6257f, 95.9816f, 172.4252f, 69.4930f, 105.7598f, 179.7188f };
static const float smaller_lanczos[] = { 39.5576f, 44.2129f, 46.0906f,  45.9711f, 74.3480f,  127.3848f,
                                         55.2701f, 97.0092f, 178.8636f, 66.7204f, 105.6840f, 181.5526f };
static const float larger_cubic[] = { 33.5295f,  35.7700f, 38.3902f, 40.8902f, 43.5104f,  45.7510f,  35.6115f,
                                      37.8520f,  40.4722f, 42.9722f, 45.5925f, 47.8330f,  39.2018f,  41.4423f,
                                      44.0742f,  46.4972f, 49.0066f, 51.2584f, 42.3268f,  44.5673f,  47.6587f,
                                      47.0527f,  45.2044f, 47.9015f, 45.4518f, 47.6923f,  48.5757f,  62.5244f,
                                      81.6154f,  82.1727f, 48.5768f, 50.8173f, 47.2925f,  90.2993f,  151.1951f,
                                      147.4804f, 52.1670f, 54.4075f, 50.3263f, 97.0011f,  163.1739f, 158.9198f,
                                      54.2490f,  56.4896f, 52.7296f, 97.2869f, 160.4132f, 156.4705f };
static const float larger_lanczos[] = { 33.5462f,  35.6720f, 38.5706f, 40.7198f, 43.6184f,  45.7442f,  35.4318f,
                                        37.6038f,  40.2612f, 43.2360f, 47.2895f, 49.2314f,  39.2867f,  41.3770f,
                                        44.4607f,  45.9761f, 47.9879f, 50.2549f, 42.5806f,  44.4138f,  48.8390f,
                                        45.7613f,  41.3467f, 44.6372f, 45.2215f, 48.0363f,  47.3392f,  61.7994f,
                                        81.9224f,  81.3049f, 48.5153f, 53.0867f, 43.2226f,  89.0695f,  153.1059f,
                                        145.4947f, 52.3703f, 57.2854f, 45.6274f, 97.6161f,  170.2458f, 161.2660f,
                                        54.2558f,  58.8571f, 48.8371f, 95.2174f, 160.0002f, 152.2701f };

TEST(wider_filters_are_those_of_pillow)
{
    static const struct {
        int number; /* of cases, whose sizes these are */
        sl_filter filter;
        const float *expected;
    } wide[] = { { 0, SL_FILTER_BICUBIC, smaller_cubic },
                 { 0, SL_FILTER_LANCZOS, smaller_lanczos },
                 { 1, SL_FILTER_BICUBIC, larger_cubic },
                 { 1, SL_FILTER_LANCZOS, larger_lanczos } };
    sl_resampling r = { .rows = NULL };
    for (size_t i = 0; i < sizeof wide / sizeof wide[0]; i++) {
        int h = cases[wide[i].number].height, w = cases[wide[i].number].width;
        int out_h = cases[wide[i].number].out_height, out_w = cases[wide[i].number].out_width;
        uint8_t pixels[100];
        float out[100];
        paint(pixels, w, h, 1, 2);
        const sl_pixels in = { pixels, h, w, 1 };
        r.filter = wide[i].filter;
        REQUIRE_OK(sl_resample(&r, &in, &(sl_box){ 0, 0, h, w, false }, out_h, out_w, out));
        for (int k = 0; k < out_h * out_w; k++) CHECK_NEAR(out[k], wide[i].expected[k], 2e-4);
    }
    sl_resampling_free(&r);
}

/* A step from black to white: what goes beyond bytes is cut, as in a picture of them. */
TEST(wider_filters_leave_no_pixel_outside_bytes)
{
    const uint8_t step[] = { 0, 0, 0, 0, 255, 255, 255, 255 };
    const sl_pixels in = { step, 1, 8, 1 };
    sl_resampling r = { .filter = SL_FILTER_LANCZOS };
    float out[24], least = 255, most = 0;
    REQUIRE_OK(sl_resample(&r, &in, &(sl_box){ 0, 0, 1, 8, false }, 1, 24, out));
    for (int i = 0; i < 24; i++) {
        least = out[i] < least ? out[i] : least;
        most = out[i] > most ? out[i] : most;
    }
    CHECK(least == 0 && most == 255);
    sl_resampling_free(&r);
}

TEST(channels_are_resampled_apart_and_the_same_size_changes_nothing)
{
    uint8_t pixels[6 * 5 * 3];
    float out[6 * 5 * 3];
    sl_resampling r = { .rows = NULL };
    paint(pixels, 5, 6, 3, 1);
    const sl_pixels in = { pixels, 6, 5, 3 };
    REQUIRE_OK(sl_resample(&r, &in, &(sl_box){ 0, 0, 6, 5, false }, 6, 5, out));
    for (int i = 0; i < 6 * 5 * 3; i++) CHECK_NEAR(out[i], pixels[i], 0);
    sl_resampling_free(&r);
}

/* A part that is closed is what a picture of that part alone would be; an open one sees its neighbours. */
TEST(a_closed_box_is_a_picture_of_its_own)
{
    uint8_t pixels[12 * 12], part[6 * 5];
    float whole[4], alone[4], open[4];
    sl_resampling r = { .rows = NULL };
    paint(pixels, 12, 12, 1, 3);
    for (int y = 0; y < 6; y++) memcpy(part + y * 5, pixels + (y + 4) * 12 + 3, 5);
    const sl_pixels in = { pixels, 12, 12, 1 }, cut = { part, 6, 5, 1 };
    REQUIRE_OK(sl_resample(&r, &in, &(sl_box){ 4, 3, 6, 5, true }, 2, 2, whole));
    REQUIRE_OK(sl_resample(&r, &in, &(sl_box){ 4, 3, 6, 5, false }, 2, 2, open));
    REQUIRE_OK(sl_resample(&r, &cut, &(sl_box){ 0, 0, 6, 5, false }, 2, 2, alone));
    CHECK(memcmp(whole, alone, sizeof whole) == 0);
    CHECK(memcmp(whole, open, sizeof whole) != 0);
    sl_resampling_free(&r);
}

/* Of a box in the middle of a picture only the rows that the filter reaches are there after the first pass. What else that memory
 * holds from pictures before does not count, not even by a weight of 0. */
TEST(rows_that_a_filter_does_not_reach_are_not_read)
{
    uint8_t pixels[40 * 40];
    float out[5 * 5], again[5 * 5];
    paint(pixels, 40, 40, 1, 2);
    const sl_pixels in = { pixels, 40, 40, 1 };
    for (int filter = 0; filter < SL_FILTER_COUNT; filter++)
        for (int side = 4; side <= 12; side += 4) {
            const sl_box box = { 14, 14, side, side, false };
            sl_resampling r = { .filter = (sl_filter)filter };
            REQUIRE_OK(sl_resample(&r, &in, &box, 5, 5, out));
            REQUIRE_OK(sl_resample(&r, &in, &(sl_box){ 0, 0, 40, 40, false }, 5, 5, again));
            for (size_t i = 0; i < r.row_capacity; i++) r.rows[i] = NAN;
            REQUIRE_OK(sl_resample(&r, &in, &box, 5, 5, again));
            for (int i = 0; i < 25; i++) CHECK(again[i] == out[i]);
            sl_resampling_free(&r);
        }
}
