/* picture_file_test.c: PNG and JPEG files of every kind as bytes, and what is refused before memory is taken. */
#include "format/picture_file.h"

#include "support/picture_writer.h"
#include "test.h"

enum { WIDTH = 21, HEIGHT = 13, GREY = 0, RGB = 2, PALETTE = 3, GREY_ALPHA = 4, RGBA = 6 };

#if defined SLUICE_PNG && defined SLUICE_JPEG

static sl_raster decoded(picture_bytes file, int channels)
{
    sl_raster r = { .pixels = NULL };
    sluice_status st = sl_picture_decode("file", file.data, file.bytes, channels, &r);
    CHECK_THAT(st == SLUICE_OK, "status %d: %s", (int)st, sluice_error());
    free(file.data);
    if (st == SLUICE_OK) CHECK_EQ(r.channels, channels);
    return r;
}

static void check_grey(const sl_raster *r, int64_t i, int expected)
{
    for (int c = 0; c < r->channels; c++) CHECK_EQ(r->pixels[i * r->channels + c], expected);
}

TEST(grey_png_of_all_depths_is_read_as_grey_and_as_colours)
{
    static const int depths[] = { 1, 2, 4, 8, 16 };
    uint8_t samples[HEIGHT * WIDTH * 2];
    for (size_t d = 0; d < sizeof depths / sizeof depths[0]; d++)
        for (int channels = 1; channels <= 3; channels += 2)
            for (int interlaced = 0; interlaced < 2; interlaced++) {
                int depth = depths[d], most = (1 << (depth < 8 ? depth : 8)) - 1;
                for (int i = 0; i < HEIGHT * WIDTH; i++) {
                    if (depth < 16) samples[i] = (uint8_t)(i * 7 % (most + 1));
                    if (depth == 16) samples[2 * i] = samples[2 * i + 1] = (uint8_t)(i * 7);
                }
                sl_raster r = decoded(write_png(samples, WIDTH, HEIGHT, GREY, depth, interlaced), channels);
                REQUIRE(r.pixels != NULL);
                CHECK_EQ(r.height, HEIGHT);
                CHECK_EQ(r.width, WIDTH);
                for (int64_t i = 0; i < HEIGHT * WIDTH; i++)
                    check_grey(&r, i, depth == 16 ? (uint8_t)(i * 7) : samples[i] * (255 / most));
                sl_raster_free(&r);
            }
}

TEST(sixteen_bits_are_rounded_and_not_cut)
{
    const uint8_t samples[] = { 0x00, 0xff, 0x7f, 0xff, 0xff, 0x7e, 0x01, 0x81 };
    sl_raster r = decoded(write_png(samples, 4, 1, GREY, 16, false), 1);
    REQUIRE(r.pixels != NULL);
    CHECK_EQ(r.pixels[0], 1); /* 255 / 257 = 0.99 */
    CHECK_EQ(r.pixels[1], 127);
    CHECK_EQ(r.pixels[2], 254); /* 65406 / 257 = 254.498 */
    CHECK_EQ(r.pixels[3], 1);   /* 385 / 257 = 1.498 */
    sl_raster_free(&r);
}

TEST(palettes_become_colours_and_alpha_is_dropped)
{
    uint8_t samples[HEIGHT * WIDTH * 4];
    for (size_t i = 0; i < sizeof samples; i++) samples[i] = (uint8_t)(i * 11);
    sl_raster r = decoded(write_png(samples, WIDTH, HEIGHT, PALETTE, 8, false), 3);
    REQUIRE(r.pixels != NULL);
    for (int i = 0; i < HEIGHT * WIDTH; i++) {
        CHECK_EQ(r.pixels[3 * i], samples[i]);
        CHECK_EQ(r.pixels[3 * i + 1], 255 - samples[i]);
        CHECK_EQ(r.pixels[3 * i + 2], samples[i] / 2);
    }
    sl_raster_free(&r);
    r = decoded(write_png(samples, WIDTH, HEIGHT, RGBA, 8, true), 3);
    REQUIRE(r.pixels != NULL);
    for (int i = 0; i < HEIGHT * WIDTH; i++)
        for (int c = 0; c < 3; c++) CHECK_EQ(r.pixels[3 * i + c], samples[4 * i + c]);
    sl_raster_free(&r);
    r = decoded(write_png(samples, WIDTH, HEIGHT, GREY_ALPHA, 8, false), 3);
    REQUIRE(r.pixels != NULL);
    for (int64_t i = 0; i < HEIGHT * WIDTH; i++) check_grey(&r, i, samples[2 * i]);
    sl_raster_free(&r);
}

TEST(colours_become_grey_by_their_weights)
{
    const uint8_t colours[] = { 255, 0, 0, 0, 255, 0, 0, 0, 255, 255, 255, 255, 10, 200, 30 };
    const int grey[] = { 76, 150, 29, 255, 124 };
    sl_raster r = decoded(write_png(colours, 5, 1, RGB, 8, false), 1);
    REQUIRE(r.pixels != NULL);
    for (int i = 0; i < 5; i++) CHECK_EQ(r.pixels[i], grey[i]);
    sl_raster_free(&r);
}

/* Compression at quality 95 loses a little. */
static void check_near(const sl_raster *r, const uint8_t *pixels, int channels, double most)
{
    double sum = 0;
    REQUIRE(r->pixels != NULL && r->width == WIDTH && r->height == HEIGHT);
    for (int i = 0; i < HEIGHT * WIDTH; i++)
        for (int c = 0; c < r->channels; c++)
            sum += abs(r->pixels[i * r->channels + c] - pixels[i * channels + (channels > 1 ? c : 0)]);
    CHECK_NEAR(sum / (HEIGHT * WIDTH * r->channels), 0, most);
}

TEST(jpeg_of_one_three_and_four_components_is_read_sequential_and_progressive)
{
    uint8_t pixels[HEIGHT * WIDTH * 4], colours[HEIGHT * WIDTH * 3];
    for (int progressive = 0; progressive < 2; progressive++) {
        for (int y = 0; y < HEIGHT; y++)
            for (int x = 0; x < WIDTH; x++)
                for (int c = 0; c < 3; c++) colours[(y * WIDTH + x) * 3 + c] = (uint8_t)(40 + 6 * x + 3 * y);
        sl_raster r = decoded(write_jpeg(colours, WIDTH, HEIGHT, 3, progressive), 3);
        check_near(&r, colours, 3, 3);
        sl_raster_free(&r);
        for (int i = 0; i < HEIGHT * WIDTH; i++) pixels[i] = colours[3 * i];
        r = decoded(write_jpeg(pixels, WIDTH, HEIGHT, 1, progressive), 3);
        check_near(&r, pixels, 1, 3);
        sl_raster_free(&r);
        for (int i = 0; i < HEIGHT * WIDTH; i++) { /* without black ink, inverted inks are colours */
            memcpy(pixels + 4 * i, colours + 3 * i, 3);
            pixels[4 * i + 3] = 255;
        }
        r = decoded(write_jpeg(pixels, WIDTH, HEIGHT, 4, progressive), 3);
        check_near(&r, colours, 3, 3);
        sl_raster_free(&r);
    }
}

TEST(a_raster_is_used_again_for_larger_and_smaller_pictures)
{
    static const int sides[] = { 8, 40, 3, 40 };
    uint8_t pixels[40 * 40 * 3];
    sl_raster r = { .pixels = NULL };
    for (int i = 0; i < 4; i++) {
        paint(pixels, sides[i], sides[i], 3, i);
        picture_bytes file = write_png(pixels, sides[i], sides[i], RGB, 8, false);
        REQUIRE_OK(sl_picture_decode("file", file.data, file.bytes, 3, &r));
        CHECK_EQ(r.width, sides[i]);
        CHECK(memcmp(r.pixels, pixels, (size_t)(sides[i] * sides[i] * 3)) == 0);
        free(file.data);
    }
    sl_raster_free(&r);
}

/* Fails with `says`, and takes no more than a megabyte. */
static void check_refused(uint8_t *file, size_t bytes, const char *says)
{
    sl_raster r = { .pixels = NULL };
    CHECK_EQ(sl_picture_decode("some.file", file, bytes, 3, &r), SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(), "some.file");
    CHECK_CONTAINS(sluice_error(), says);
    CHECK(r.capacity < 1 << 20);
    sl_raster_free(&r);
}

static void put_big_endian(uint8_t *at, uint32_t value)
{
    for (int i = 0; i < 4; i++) at[i] = (uint8_t)(value >> (24 - 8 * i));
}

static uint32_t crc_of(const uint8_t *p, size_t n)
{
    uint32_t c = 0xffffffff;
    for (size_t i = 0; i < n; i++) {
        c ^= p[i];
        for (int k = 0; k < 8; k++) c = c & 1 ? c >> 1 ^ 0xedb88320 : c >> 1;
    }
    return ~c;
}

TEST(sizes_that_a_file_cannot_hold_are_refused_before_memory_is_taken)
{
    uint8_t pixels[16 * 16 * 3];
    paint(pixels, 16, 16, 3, 1);
    picture_bytes png = write_png(pixels, 16, 16, RGB, 8, false), jpeg = write_jpeg(pixels, 16, 16, 3, false);
    put_big_endian(png.data + 16, 8000);
    put_big_endian(png.data + 20, 8000);
    put_big_endian(png.data + 29, crc_of(png.data + 12, 17));
    check_refused(png.data, png.bytes, "cannot hold the 8000 x 8000 pixels");
    put_big_endian(png.data + 16, 60000000);
    put_big_endian(png.data + 20, 60000000);
    put_big_endian(png.data + 29, crc_of(png.data + 12, 17));
    check_refused(png.data, png.bytes, "60000000 x 60000000 pixels");
    for (size_t i = 0; i + 9 < jpeg.bytes; i++)
        if (jpeg.data[i] == 0xff && jpeg.data[i + 1] == 0xc0)
            memcpy(jpeg.data + i + 5, (uint8_t[]){ 0x1f, 0x40, 0x1f, 0x40 }, 4);
    check_refused(jpeg.data, jpeg.bytes, "cannot hold the 8000 x 8000 pixels");
    free(png.data);
    free(jpeg.data);
}

/* Every cut of a file is an error, not a picture with made up pixels. */
TEST(a_picture_that_is_cut_anywhere_is_refused_with_its_byte)
{
    uint8_t pixels[24 * 24 * 3];
    paint(pixels, 24, 24, 3, 5);
    picture_bytes files[] = { write_png(pixels, 24, 24, RGB, 8, false), write_jpeg(pixels, 24, 24, 3, false),
                              write_jpeg(pixels, 24, 24, 3, true) };
    for (int f = 0; f < 3; f++) {
        for (size_t cut = 0; cut + 1 < files[f].bytes; cut++) {
            sl_raster r = { .pixels = NULL };
            CHECK_THAT(sl_picture_decode("cut", files[f].data, cut, 3, &r) == SLUICE_ERR_INPUT,
                       "file %d, cut at byte %zu of %zu", f, cut, files[f].bytes);
            sl_raster_free(&r);
        }
        check_refused(files[f].data, files[f].bytes / 2, "before byte");
        free(files[f].data);
    }
}

#else

TEST(pictures_without_their_libraries_say_what_is_missing)
{
    sl_raster r = { .pixels = NULL };
    const uint8_t png[] = "\x89PNG\r\n\x1a\n", jpeg[] = "\xff\xd8";
    (void)paint;
#ifndef SLUICE_PNG
    CHECK_EQ(sl_picture_decode("a.png", png, 8, 3, &r), SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(), "a.png is a PNG file, and this sluice was built without libpng");
#endif
#ifndef SLUICE_JPEG
    CHECK_EQ(sl_picture_decode("a.jpg", jpeg, 2, 3, &r), SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(), "a.jpg is a JPEG file, and this sluice was built without libjpeg");
#endif
    (void)png, (void)jpeg, (void)r;
}

#endif

TEST(files_of_other_kinds_are_named)
{
    static const struct {
        const char *bytes, *says;
    } files[] = { { "GIF89a", "but a GIF picture" }, { "BM1234", "but a BMP picture" }, { "hello", "something else" } };
    sl_raster r = { .pixels = NULL };
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        CHECK_EQ(sl_picture_decode("x.png", (const uint8_t *)files[i].bytes, strlen(files[i].bytes), 3, &r),
                 SLUICE_ERR_INPUT);
        CHECK_CONTAINS(sluice_error(), files[i].says);
    }
    CHECK_EQ(sl_picture_decode("x.png", (const uint8_t *)"", 0, 3, &r), SLUICE_ERR_INPUT);
    CHECK_CONTAINS(sluice_error(), "x.png is empty");
}

TEST(names_of_pictures_are_known_in_any_case)
{
    CHECK(sl_is_picture_name("a.png") && sl_is_picture_name("b.JPEG") && sl_is_picture_name("c.d.Jpg"));
    CHECK(!sl_is_picture_name(".png") && !sl_is_picture_name("a.gif") && !sl_is_picture_name("png"));
}
