/* png_file.c: PNG by libpng. Its errors are long jumps; everything that outlives one is in png_reading. */
#include "format/picture_file.h"

#include <assert.h>
#include <string.h>
#ifdef SLUICE_PNG
#include <png.h>
#endif

#include "core/status.h"

#ifdef SLUICE_PNG

#define MOST_SIDE        (1u << 26)
#define MOST_CHUNK_BYTES ((png_alloc_size_t)8 << 20) /* of what is no pixels: profiles, texts */
#define MOST_CHUNKS      128
/* Deflate makes no more than this of a byte. */
#define MOST_EXPANSION 1032

typedef struct png_reading {
    sl_picture_source *source;
    png_structp png;
    png_infop info;
    sl_raster *out;
    sluice_status status; /* of a failure that is not libpng's */
    char what[160];
} png_reading;

static void on_error(png_structp png, png_const_charp message)
{
    png_reading *r = png_get_error_ptr(png);
    snprintf(r->what, sizeof r->what, "%s", message);
    longjmp(png_jmpbuf(png), 1);
}

/* Warnings are of chunks that do not matter here. */
static void on_warning(png_structp png, png_const_charp message)
{
    (void)png, (void)message;
}

static void read_bytes(png_structp png, png_bytep out, size_t bytes)
{
    sl_picture_source *s = ((png_reading *)png_get_io_ptr(png))->source;
    if (bytes > s->bytes - s->at) {
        s->at = s->bytes;
        png_error(png, "the file ends too early");
    }
    memcpy(out, s->file + s->at, bytes);
    s->at += bytes;
}

/* Every pixel becomes one or three channels of 8 bits. */
static void set_transformations(const png_reading *r)
{
    int type = png_get_color_type(r->png, r->info), depth = png_get_bit_depth(r->png, r->info);
    if (type == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(r->png);
    if (!(type & PNG_COLOR_MASK_COLOR) && depth < 8) png_set_expand_gray_1_2_4_to_8(r->png);
    if (depth == 16) png_set_scale_16(r->png);
    if (type & PNG_COLOR_MASK_ALPHA) png_set_strip_alpha(r->png);
}

/* Memory is taken only for what the file can hold. */
static sluice_status make_raster(png_reading *r)
{
    const sl_picture_source *s = r->source;
    uint64_t height = png_get_image_height(r->png, r->info), width = png_get_image_width(r->png, r->info);
    uint64_t bits = (uint64_t)png_get_bit_depth(r->png, r->info) * png_get_channels(r->png, r->info);
    bool colours = (png_get_color_type(r->png, r->info) & PNG_COLOR_MASK_COLOR) != 0;
    if (height * (width * bits / 8) / MOST_EXPANSION > s->bytes)
        return sl_fail(SLUICE_ERR_INPUT, "%s: a PNG file of %zu bytes cannot hold the %llu x %llu pixels of its header",
                       s->path, s->bytes, (unsigned long long)width, (unsigned long long)height);
    return sl_raster_make(s, (int64_t)height, (int64_t)width, colours ? 3 : 1, r->out);
}

/* Interlaced files come in passes over all rows, which fill in the pixels that are theirs. */
static void read_rows(const png_reading *r, int passes)
{
    const sl_raster *out = r->out;
    size_t row_bytes = (size_t)out->width * (size_t)out->channels;
    assert(png_get_rowbytes(r->png, r->info) == row_bytes);
    for (int p = 0; p < passes; p++)
        for (int64_t y = 0; y < out->height; y++) png_read_row(r->png, out->pixels + (size_t)y * row_bytes, NULL);
    png_read_end(r->png, NULL);
}

/* Where libpng's errors jump to; false: r->status or r->what says why. */
static bool run(png_reading *r)
{
    if (setjmp(png_jmpbuf(r->png)) != 0) return false;
    png_set_read_fn(r->png, r, read_bytes);
    png_set_user_limits(r->png, MOST_SIDE, MOST_SIDE);
    png_set_chunk_malloc_max(r->png, MOST_CHUNK_BYTES);
    png_set_chunk_cache_max(r->png, MOST_CHUNKS);
    png_read_info(r->png, r->info);
    if ((r->status = make_raster(r)) != SLUICE_OK) return false;
    set_transformations(r);
    int passes = png_set_interlace_handling(r->png);
    png_read_update_info(r->png, r->info);
    read_rows(r, passes);
    return true;
}

sluice_status sl_png_decode(sl_picture_source *s, sl_raster *out)
{
    png_reading r = { .source = s, .out = out };
    r.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &r, on_error, on_warning);
    r.info = r.png != NULL ? png_create_info_struct(r.png) : NULL;
    bool whole = r.info != NULL && run(&r);
    bool made = r.info != NULL;
    png_destroy_read_struct(&r.png, &r.info, NULL);
    if (whole) return SLUICE_OK;
    if (!made) return sl_fail(SLUICE_ERR_NO_MEMORY, "%s: no memory for decoding", s->path);
    if (r.status != SLUICE_OK) return r.status;
    return sl_fail(SLUICE_ERR_INPUT, "%s, before byte %zu: damaged PNG file: %s", s->path, s->at, r.what);
}

#else

sluice_status sl_png_decode(sl_picture_source *s, sl_raster *out)
{
    (void)out;
    return sl_fail(SLUICE_ERR_INPUT,
                   "%s is a PNG file, and this sluice was built without libpng; install libpng-dev and "
                   "build again",
                   s->path);
}

#endif
