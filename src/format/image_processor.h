/* image_processor.h: what a model's folder says of the images that it reads: preprocessor_config.json of transformers.
 *
 * Files of ViT, DeiT, BiT and CLIP processors are read, also under their older names ("ViTFeatureExtractor") and with older
 * forms of their sizes. */
#ifndef SL_FORMAT_IMAGE_PROCESSOR_H
#define SL_FORMAT_IMAGE_PROCESSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/log.h"
#include "core/status.h"
#include "format/text_buffer.h"

#define SL_IMAGE_PROCESSOR   "preprocessor_config.json"
#define SL_PROCESSOR_NUMBERS 4 /* for each channel, at most */

/* Numbers of Pillow's filters. */
enum { SL_PILLOW_LANCZOS = 1, SL_PILLOW_BILINEAR = 2, SL_PILLOW_BICUBIC = 3 };

/* An image becomes `side` pixels, and of its middle `crop` x `crop` are read, less `mean`, divided by `deviation`. */
typedef struct sl_image_processor {
    int64_t side;   /* of the shorter side; 0: images stay as they are, and `crop` is 0 too */
    bool stretches; /* both sides become `side`, whatever shape the image had */
    int64_t crop;   /* at most side */
    int64_t pillow; /* number of Pillow's filter */
    double mean[SL_PROCESSOR_NUMBERS], deviation[SL_PROCESSOR_NUMBERS]; /* of pixels from 0 to 1 */
    int mean_count, deviation_count;                                    /* one for each channel, or one for all */
} sl_image_processor;

/* What somebody gives by hand: where it cannot be used, that is passed over. */
typedef struct sl_processor_by_hand {
    bool numbers; /* mean and deviation */
    bool sizes;   /* how large images become, and what is cut out */
    bool filter;  /* that resizes */
} sl_processor_by_hand;

/* `what` names the text in messages. SLUICE_ERR_INPUT: it asks for something that is not built in, or contradicts itself; the
 * message names the key. What is passed over is told as warnings. */
sluice_status sl_image_processor_parse(const char *text, size_t bytes, const char *what,
                                       const sl_processor_by_hand *hand, const sl_log *log, sl_image_processor *out);
/* Of a folder; *found is false where it has no such file. */
sluice_status sl_image_processor_read(const char *folder, const sl_processor_by_hand *hand, const sl_log *log,
                                      bool *found, sl_image_processor *out);
/* Whether images of `channels` become the same numbers, in fp32. */
bool sl_image_processor_same(const sl_image_processor *a, const sl_image_processor *b, int64_t channels);
/* The text of a file that says what p says. */
sluice_status sl_image_processor_write(const sl_image_processor *p, int64_t channels, sl_text *out);

#endif
