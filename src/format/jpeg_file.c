/* jpeg_file.c: JPEG by libjpeg-turbo, with the slow integer transform and smooth upsampling, which are its defaults and Pillow's.
 *
 * Its errors are long jumps; everything that outlives one is in jpeg_reading. What it warns of is an error here, because it then
 * makes up the pixels that are missing. */
#include "format/picture_file.h"

#ifdef SLUICE_JPEG
#include <jerror.h>
#include <jpeglib.h>
#include <setjmp.h>
#include <stdio.h> /* jpeglib.h uses FILE */
#endif

#include "core/status.h"

#ifdef SLUICE_JPEG

/* A scan may cost all pixels and a few bytes. */
#define MOST_SCANS 500
/* Pixels that a byte codes at most: a block of 8 x 8 takes a bit at least. */
#define MOST_EXPANSION 512

typedef struct jpeg_reading {
    struct jpeg_decompress_struct jpeg;
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    jmp_buf jump;
    sl_picture_source *source;
    sl_raster *out;
    sluice_status status; /* of a failure that is not libjpeg's */
    char what[JMSG_LENGTH_MAX];
} jpeg_reading;

static void on_error(j_common_ptr jpeg)
{
    jpeg_reading *r = jpeg->client_data;
    jpeg->err->format_message(jpeg, r->what);
    if (r->jpeg.src != NULL) r->source->at = r->source->bytes - r->jpeg.src->bytes_in_buffer;
    longjmp(r->jump, 1);
}

static void on_message(j_common_ptr jpeg, int level)
{
    int code = jpeg->err->msg_code;
    if (level >= 0 || code == JWRN_ADOBE_XFORM || code == JWRN_JFIF_MAJOR) return;
    on_error(jpeg);
}

static void on_progress(j_common_ptr jpeg)
{
    jpeg_reading *r = jpeg->client_data;
    if (r->jpeg.input_scan_number <= MOST_SCANS) return;
    jpeg->err->msg_code = JERR_BAD_PROGRESSION; /* the nearest that there is */
    for (int i = 0; i < 4; i++) jpeg->err->msg_parm.i[i] = MOST_SCANS;
    on_error(jpeg);
}

/* Memory is taken only for what the file can hold. */
static sluice_status make_raster(jpeg_reading *r)
{
    const sl_picture_source *s = r->source;
    uint64_t pixels = (uint64_t)r->jpeg.image_height * r->jpeg.image_width;
    int channels = r->jpeg.num_components;
    if (r->jpeg.arith_code)
        return sl_fail(SLUICE_ERR_INPUT, "%s: JPEG with arithmetic coding, which is not read", s->path);
    if (channels != 1 && channels != 3 && channels != 4)
        return sl_fail(SLUICE_ERR_INPUT, "%s: JPEG with %d components; 1, 3 and 4 are read", s->path, channels);
    if (pixels / MOST_EXPANSION > s->bytes)
        return sl_fail(SLUICE_ERR_INPUT, "%s: a JPEG file of %zu bytes cannot hold the %u x %u pixels of its header",
                       s->path, s->bytes, r->jpeg.image_width, r->jpeg.image_height);
    return sl_raster_make(s, r->jpeg.image_height, r->jpeg.image_width, channels, r->out);
}

static void read_rows(jpeg_reading *r)
{
    size_t row_bytes = (size_t)r->out->width * (size_t)r->out->channels;
    while (r->jpeg.output_scanline < r->jpeg.output_height) {
        JSAMPROW row = r->out->pixels + (size_t)r->jpeg.output_scanline * row_bytes;
        jpeg_read_scanlines(&r->jpeg, &row, 1);
    }
}

/* Where libjpeg's errors jump to; false: r->status or r->what says why. */
static bool run(jpeg_reading *r)
{
    if (setjmp(r->jump) != 0) return false;
    jpeg_create_decompress(&r->jpeg);
    r->jpeg.client_data = r;
    r->jpeg.progress = &r->progress;
    jpeg_mem_src(&r->jpeg, r->source->file, r->source->bytes);
    jpeg_read_header(&r->jpeg, TRUE);
    if ((r->status = make_raster(r)) != SLUICE_OK) return false;
    r->jpeg.out_color_space = r->out->channels == 1 ? JCS_GRAYSCALE : r->out->channels == 3 ? JCS_RGB : JCS_CMYK;
    r->jpeg.dct_method = JDCT_ISLOW;
    jpeg_start_decompress(&r->jpeg);
    read_rows(r);
    jpeg_finish_decompress(&r->jpeg);
    return true;
}

sluice_status sl_jpeg_decode(sl_picture_source *s, sl_raster *out)
{
    jpeg_reading r = { .source = s, .out = out };
    r.jpeg.err = jpeg_std_error(&r.errors);
    r.jpeg.client_data = &r;
    r.errors.error_exit = on_error;
    r.errors.emit_message = on_message;
    r.progress.progress_monitor = on_progress;
    bool whole = run(&r);
    jpeg_destroy_decompress(&r.jpeg);
    if (whole) return SLUICE_OK;
    if (r.status != SLUICE_OK) return r.status;
    return sl_fail(SLUICE_ERR_INPUT, "%s, before byte %zu: damaged JPEG file: %s", s->path, s->at, r.what);
}

#else

sluice_status sl_jpeg_decode(sl_picture_source *s, sl_raster *out)
{
    (void)out;
    return sl_fail(SLUICE_ERR_INPUT,
                   "%s is a JPEG file, and this sluice was built without libjpeg; install libjpeg-dev and build again",
                   s->path);
}

#endif
