/* pictures.h: what the kinds of images share; private to data/.
 *
 * A kind says how many images there are, what class each is of, and gives the pixels of one; pictures.c draws, resizes, flips,
 * crops and normalises. What becomes of a sample in an epoch follows from the seed, the epoch and the sample's number alone, so
 * neither threads nor ranks nor the place where a run was resumed change a bit. Samples of evaluation are never changed at
 * random. */
#ifndef SL_DATA_PICTURES_H
#define SL_DATA_PICTURES_H

#include <pthread.h>

#include "data/resample.h"
#include "data/source.h"
#include "format/picture_file.h"

#define SL_SPLIT_COUNT 2

typedef struct sl_pictures sl_pictures;

/* One thread's memory while it fills rows; zero-initialise. */
typedef struct sl_picture_scratch {
    sl_raster raster;
    sl_resampling resampling;
    float *resized; /* owned: [height, width, channels] of 0 to 255 */
} sl_picture_scratch;

/* A kind of images, which embeds sl_pictures first. */
typedef struct sl_picture_kind {
    /* The pixels of a sample; they are the kind's, or scratch->raster's. */
    sluice_status (*pixels)(const sl_pictures *p, sl_data_split split, int64_t sample, sl_picture_scratch *scratch,
                            sl_pixels *out);
    int32_t (*label)(const sl_pictures *p, sl_data_split split, int64_t sample);
    void (*hash)(const sl_pictures *p, sl_sha256 *h); /* contents, for the identity */
    void (*free)(sl_pictures *p);                     /* all that is the kind's, and p */
    bool decodes;                                     /* pixels come from files */
} sl_picture_kind;

struct sl_pictures {
    sluice_data base;
    sl_data_ops ops; /* base.ops */
    const sl_picture_kind *kind;
    uint64_t seed;
    bool shuffle;
    int64_t count[SL_SPLIT_COUNT];
    sl_image_size size;
    int64_t classes;
    char **class_names; /* owned: classes of them; NULL: none */
    sl_data_column columns[2];
    /* what is changed */
    float mean[SL_MAX_CHANNELS], deviation[SL_MAX_CHANNELS];
    float table[SL_MAX_CHANNELS][256]; /* what a byte becomes */
    bool flip, resized_crop;
    int padding;
    int64_t
        side; /* what a side becomes before `size` is cut out of the middle; 0: nothing is but what size's shape lacks */
    bool stretches; /* both sides become that; otherwise the shorter one */
    sl_filter filter;
    bool same_size; /* all images have `size` */
    /* bad samples */
    bool skip_bad;
    uint8_t *bad[SL_SPLIT_COUNT]; /* owned: 1 for each that was found to be; NULL: none is left out */
    pthread_mutex_t lock;         /* of the two below and of `bad` */
    int64_t left_out;
    char first_bad[SL_MESSAGE_BYTES];
    int64_t others; /* files that are no images, and were not looked at */
    uint64_t held_bytes;
};

/* Channel sums over bytes, for means that do not depend on an order. */
typedef struct sl_channel_sums {
    uint64_t sum[SL_MAX_CHANNELS], squares[SL_MAX_CHANNELS];
    uint64_t count; /* of pixels */
} sl_channel_sums;
void sl_channel_sums_add(sl_channel_sums *s, const uint8_t *pixels, size_t count, int channels);

/* Where the kind has set kind, count, classes and `size` (of its images, or of what o->image_size asks for): everything else.
 * `type` is a literal. `sums`: of the training images; NULL: they are not at hand. `usual`: mean and deviation of each channel;
 * NULL: there are none. SLUICE_ERR_USAGE names the setting. The kind frees `p` after a failure, too. */
sluice_status sl_pictures_finish(sl_pictures *p, const char *type, const sl_data_options *o,
                                 const sl_channel_sums *sums, const double usual[2][SL_MAX_CHANNELS]);
void sl_pictures_free(sl_pictures *p); /* what sl_pictures_finish made; not p */

/* Images in memory: [count, height, width, channels] with a label each. */
typedef struct sl_picture_store {
    uint8_t *pixels; /* owned */
    int32_t *labels; /* owned */
    int64_t count;
} sl_picture_store;

/* A data set of the stores, which it takes over also after a failure: the first is for training but for the share of o->validation,
 * the second for evaluation where it has any. `kept`: size of what is stored. */
sluice_status sl_pictures_of_stores(const char *type, const sl_data_options *o, sl_picture_store stores[SL_SPLIT_COUNT],
                                    const sl_image_size *kept, int64_t classes, char **class_names,
                                    const double usual[2][SL_MAX_CHANNELS], sluice_data **out);
void sl_picture_store_free(sl_picture_store *s);

/* "FOLDER/NAME"; `out` has PATH_MAX bytes. */
sluice_status sl_picture_path(const char *folder, const char *name, char *out);
/* Names, a line each, of a file that may be missing: NULL then, or where it has another number of them. The caller's. */
sluice_status sl_class_names_read(const char *path, int64_t classes, char ***out);
void sl_class_names_free(char **names, int64_t classes);

#endif
