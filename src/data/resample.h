/* resample.h: pictures in another size; private to data/.
 *
 * With antialiasing: where a picture gets smaller, the filter widens with it, so that every pixel counts. Columns first, then
 * rows, sums in the order of pixels: what comes out depends on the pixels, the sizes and the filter alone. */
#ifndef SL_DATA_RESAMPLE_H
#define SL_DATA_RESAMPLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "data/data.h"

/* Pixels that belong to somebody else: [height, width, channels]. */
typedef struct sl_pixels {
    const uint8_t *bytes;
    int64_t height, width;
    int channels;
} sl_pixels;

/* A part of a picture, in pixels. */
typedef struct sl_box {
    double top, left, height, width;
    bool closed; /* pixels outside it do not count, as if it had been cut out; otherwise the filter reaches beyond */
} sl_box;

/* Memory that resampling another picture uses again; zero-initialise but for the filter. */
typedef struct sl_resampling {
    sl_filter filter;
    float *rows;    /* owned: columns done, rows not yet */
    float *weights; /* owned: of one line of output, taps each */
    int64_t *first; /* owned: the first pixel of each */
    size_t row_capacity, weight_capacity, first_capacity;
} sl_resampling;

/* The box, which lies in the picture, as out[height, width, channels], 0 to 255. */
sluice_status sl_resample(sl_resampling *r, const sl_pixels *in, const sl_box *box, int64_t height, int64_t width,
                          float *out);
void sl_resampling_free(sl_resampling *r);

#endif
