/* picture_file.h: PNG and JPEG files as bytes of pixels.
 *
 * The first bytes of a file tell its kind, not its name: collections have PNG files called .jpg. Sizes are checked before memory is
 * taken for them, and what a decoder would only warn of (a file that ends too early, damaged data that it makes up pixels for) is
 * a failure: a picture is read whole or not at all. */
#ifndef SL_FORMAT_PICTURE_FILE_H
#define SL_FORMAT_PICTURE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sluice.h"

#define SL_PICTURE_MOST_BYTES  ((size_t)256 << 20) /* of a file */
#define SL_PICTURE_MOST_PIXELS ((int64_t)1 << 26)

/* Zero-initialise; decoding another picture into it reuses its memory. */
typedef struct sl_raster {
    int64_t height, width;
    int channels;    /* 1: grey; 3: red, green, blue; while it is decoded also 4: CMYK as files have it, inverted */
    uint8_t *pixels; /* owned: [height, width, channels] */
    size_t capacity; /* bytes of it */
} sl_raster;

/* Decoders that are built in: "png, jpeg"; "": none. */
const char *sl_picture_formats(void);
/* Whether a file name ends as those of pictures do: .png, .jpg, .jpeg, in any case. */
bool sl_is_picture_name(const char *name);
/* A file into `channels` (1 or 3) channels of 8 bits: 16 bits are rounded to 8, palettes become colours, alpha is dropped, grey is
 * repeated, colours become grey by ITU-R 601's weights, CMYK becomes colours. SLUICE_ERR_INPUT names the file and, where a
 * decoder stopped, the byte. */
sluice_status sl_picture_read(const char *path, int channels, sl_raster *out);
/* The same of a file in memory; `path` is for messages. */
sluice_status sl_picture_decode(const char *path, const uint8_t *file, size_t bytes, int channels, sl_raster *out);
void sl_raster_free(sl_raster *r);

/* ---- what the decoders share; private to picture_file.c, png_file.c and jpeg_file.c ---- */

/* A file being decoded. */
typedef struct sl_picture_source {
    const char *path;
    const uint8_t *file;
    size_t bytes, at; /* at: how far a decoder has read */
    int channels;     /* wanted */
} sl_picture_source;

sluice_status sl_png_decode(sl_picture_source *s, sl_raster *out);
sluice_status sl_jpeg_decode(sl_picture_source *s, sl_raster *out);
/* Checks a size that a header says and takes the memory, also for the channels that are wanted in the end. A decoder fills in those
 * that the file has. */
sluice_status sl_raster_make(const sl_picture_source *s, int64_t height, int64_t width, int channels, sl_raster *out);

#endif
