/* picture_fuzz.c: PNG and JPEG files, in grey and colours: what is decoded is whole, and memory is as its size says. */
#include "format/picture_file.h"
#include "support/fuzz/fuzz.h"

void fuzz_picture(const uint8_t *data, size_t bytes)
{
    sl_raster r = { .pixels = NULL };
    for (int channels = 1; channels <= 3; channels += 2) {
        if (!fuzz_accepted(sl_picture_decode("picture", data, bytes, channels, &r))) continue;
        size_t sum = 0, count = (size_t)(r.height * r.width * r.channels);
        FUZZ_CHECK(r.channels == channels && count <= r.capacity);
        FUZZ_CHECK(r.height > 0 && r.width > 0 && r.height * r.width <= SL_PICTURE_MOST_PIXELS);
        for (size_t i = 0; i < count; i++) sum += r.pixels[i];
        FUZZ_CHECK(sum <= 255 * count);
    }
    sl_raster_free(&r);
}
