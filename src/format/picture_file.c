/* picture_file.c: which decoder a file is for, and the bounds that both have. */
#include "format/picture_file.h"

#include <inttypes.h>
#include <string.h>
#include <strings.h>

#include "core/alloc.h"
#include "core/io.h"
#include "core/status.h"

const char *sl_picture_formats(void)
{
#if defined SLUICE_PNG && defined SLUICE_JPEG
    return "png, jpeg";
#elif defined SLUICE_PNG
    return "png";
#elif defined SLUICE_JPEG
    return "jpeg";
#else
    return "";
#endif
}

bool sl_is_picture_name(const char *name)
{
    static const char *const endings[] = { ".png", ".jpg", ".jpeg" };
    size_t n = strlen(name);
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++) {
        size_t k = strlen(endings[i]);
        if (n > k && strcasecmp(name + n - k, endings[i]) == 0) return true;
    }
    return false;
}

sluice_status sl_raster_make(const sl_picture_source *s, int64_t height, int64_t width, int channels, sl_raster *out)
{
    if (height < 1 || width < 1 || height > SL_PICTURE_MOST_PIXELS / width)
        return sl_fail(SLUICE_ERR_INPUT,
                       "%s: %" PRId64 " x %" PRId64 " pixels; pictures of 1 to %" PRId64 " pixels are read", s->path,
                       width, height, SL_PICTURE_MOST_PIXELS);
    size_t bytes = (size_t)(height * width) * (size_t)(channels > s->channels ? channels : s->channels);
    if (bytes > out->capacity) {
        sl_free(out->pixels);
        out->capacity = 0;
        if ((out->pixels = sl_alloc(bytes, "pixels")) == NULL) return SLUICE_ERR_NO_MEMORY;
        out->capacity = bytes;
    }
    out->height = height;
    out->width = width;
    out->channels = channels;
    return SLUICE_OK;
}

/* ---- channels, each function in place ---- */

static void colours_of_cmyk(uint8_t *pixels, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        const uint8_t *in = pixels + 4 * i;
        unsigned black = in[3];
        for (int c = 0; c < 3; c++) pixels[3 * i + c] = (uint8_t)((in[c] * black + 127) / 255);
    }
}

static void grey_of_colours(uint8_t *pixels, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        const uint8_t *rgb = pixels + 3 * i;
        pixels[i] = (uint8_t)((rgb[0] * 19595u + rgb[1] * 38470u + rgb[2] * 7471u + 0x8000u) >> 16);
    }
}

/* From the end on, as the copies are longer. */
static void colours_of_grey(uint8_t *pixels, int64_t count)
{
    for (int64_t i = count - 1; i >= 0; i--) {
        uint8_t grey = pixels[i];
        for (int c = 0; c < 3; c++) pixels[3 * i + c] = grey;
    }
}

static void convert_channels(sl_raster *r, int wanted)
{
    int64_t count = r->height * r->width;
    if (r->channels == 4) {
        colours_of_cmyk(r->pixels, count);
        r->channels = 3;
    }
    if (r->channels == 3 && wanted == 1) grey_of_colours(r->pixels, count);
    if (r->channels == 1 && wanted == 3) colours_of_grey(r->pixels, count);
    r->channels = wanted;
}

void sl_raster_free(sl_raster *r)
{
    sl_free(r->pixels);
    *r = (sl_raster){ .pixels = NULL };
}

/* What files of other kinds begin with, to say so. */
static const char *kind_of(const uint8_t *file, size_t bytes)
{
    static const struct {
        size_t at, bytes;
        const char *magic, *name;
    } kinds[] = { { 0, 3, "GIF", "a GIF picture" },    { 0, 2, "BM", "a BMP picture" },
                  { 8, 4, "WEBP", "a WebP picture" },  { 0, 4, "II*\0", "a TIFF picture" },
                  { 0, 4, "MM\0*", "a TIFF picture" }, { 4, 4, "ftyp", "an AVIF or HEIF picture, or a film" },
                  { 0, 4, "\x76\x2f\x31\x01", "EXR" }, { 0, 2, "\x1f\x8b", "compressed by gzip" } };
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (bytes >= kinds[i].at + kinds[i].bytes && memcmp(file + kinds[i].at, kinds[i].magic, kinds[i].bytes) == 0)
            return kinds[i].name;
    return "something else";
}

sluice_status sl_picture_decode(const char *path, const uint8_t *file, size_t bytes, int channels, sl_raster *out)
{
    static const uint8_t png[8] = { 0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n' };
    sl_picture_source s = { .path = path, .file = file, .bytes = bytes, .channels = channels };
    if (bytes == 0) return sl_fail(SLUICE_ERR_INPUT, "%s is empty", path);
    bool is_png = memcmp(file, png, bytes < sizeof png ? bytes : sizeof png) == 0;
    bool is_jpeg = bytes >= 2 && file[0] == 0xff && file[1] == 0xd8;
    if (!is_png && !is_jpeg)
        return sl_fail(SLUICE_ERR_INPUT, "%s, byte 0: neither a PNG nor a JPEG file, but %s", path,
                       kind_of(file, bytes));
    SL_TRY(is_png ? sl_png_decode(&s, out) : sl_jpeg_decode(&s, out));
    convert_channels(out, channels);
    return SLUICE_OK;
}

sluice_status sl_picture_read(const char *path, int channels, sl_raster *out)
{
    char *file;
    size_t bytes;
    SL_TRY(sl_file_read_all(path, SL_PICTURE_MOST_BYTES, &file, &bytes));
    sluice_status st = sl_picture_decode(path, (const uint8_t *)file, bytes, channels, out);
    sl_free(file);
    return st;
}
