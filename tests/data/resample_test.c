/* resample_test.c: bilinear with antialiasing, against what PyTorch's interpolate(mode="bilinear", antialias=True) gave. */
#include "data/resample.h"

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
