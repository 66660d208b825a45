/* random_images.c: images of normally distributed numbers with random classes, for timing models and filling memory: nothing
 * can be learned from them.
 *
 * An image is a stretch of one pool of numbers that are drawn once, from a place of its own, so that batches are made as fast
 * as memory is copied. */
#include <inttypes.h>
#include <string.h>

#include "core/alloc.h"
#include "core/rng.h"
#include "data/source.h"

enum { COLUMN_X, COLUMN_TARGET, COLUMN_COUNT };
/* Number its streams of the data domain (synthetic.c and random_tokens.c have the others). */
enum { STREAM_PIXELS = 6, STREAM_PLACES = 7, STREAM_CLASSES = 8 };
/* Numbers of the pool beyond one image: places that images begin at. */
#define PLACES 65536

typedef struct random_images {
    sl_table table;
    sl_data_column columns[COLUMN_COUNT];
    sl_image_size size;
    int64_t elements, classes;
    float *pool; /* owned; elements + PLACES numbers */
    sl_rng places, classes_stream;
    char identity[65];
} random_images;

static void write_row(const sl_table *t, int64_t sample, int column, void *row)
{
    const random_images *d = (const random_images *)t;
    if (column == COLUMN_TARGET) {
        *(int32_t *)row = (int32_t)sl_rng_below(&d->classes_stream, (uint64_t)sample, (uint64_t)d->classes);
        return;
    }
    uint64_t place = sl_rng_below(&d->places, (uint64_t)sample, PLACES);
    memcpy(row, d->pool + place, (size_t)d->elements * sizeof *d->pool);
}

static void destroy(sluice_data *data)
{
    random_images *d = (random_images *)data;
    sl_free(d->pool);
    sl_free(d);
}

static uint64_t memory_bytes(const sluice_data *data)
{
    const random_images *d = (const random_images *)data;
    return sizeof *d + (uint64_t)(d->elements + PLACES) * sizeof *d->pool;
}

static void identity(const sluice_data *d, char sha256[65])
{
    memcpy(sha256, ((const random_images *)d)->identity, 65);
}

static int64_t classes(const sluice_data *d)
{
    return ((const random_images *)d)->classes;
}

static void image(const sluice_data *d, sl_image_size *out)
{
    *out = ((const random_images *)d)->size;
}

static const sl_data_ops ops = {
    .name = "random images",
    .destroy = destroy,
    .samples = sl_table_samples,
    .fill = sl_table_fill,
    .fill_eval = sl_table_fill_eval,
    .memory_bytes = memory_bytes,
    .identity = identity,
    .effort = SL_FILL_SLOW, /* a batch of large ones is a hundred megabytes */
    .classes = classes,
    .image = image,
};

static sluice_status check(const sl_data_options *o, int64_t train)
{
    if (train < 1) return sl_fail(SLUICE_ERR_USAGE, "data.samples: random images need samples to train on");
    if (o->image_size < 1)
        return sl_fail(SLUICE_ERR_USAGE, "data.image_size is missing: random images have no size of their own");
    if (o->outputs < 2)
        return sl_fail(SLUICE_ERR_USAGE,
                       "data.outputs, the number of classes, is missing; random images need at least 2");
    return SLUICE_OK;
}

sluice_status sl_data_random_images(const sl_data_options *o, sluice_data **out)
{
    int64_t train, channels = o->channels > 0 ? o->channels : 3;
    sl_sha256 h;
    SL_TRY(sl_data_train_count(o->samples, o->validation, &train));
    SL_TRY(check(o, train));
    random_images *d = sl_alloc(sizeof *d, "random images");
    if (d == NULL) return SLUICE_ERR_NO_MEMORY;
    d->size = (sl_image_size){ o->image_size, o->image_size, channels };
    d->elements = o->image_size * o->image_size * channels;
    d->classes = o->outputs;
    d->table = (sl_table){ .base = { &ops },
                           .seed = (uint64_t)o->seed,
                           .shuffle = o->shuffle,
                           .train = train,
                           .total = o->samples,
                           .columns = d->columns,
                           .column_count = COLUMN_COUNT,
                           .write = write_row };
    d->columns[COLUMN_X] = (sl_data_column){ "x", SLUICE_F32, d->elements };
    d->columns[COLUMN_TARGET] = (sl_data_column){ "target", SLUICE_I32, 1 };
    d->places = sl_rng_stream((uint64_t)o->seed, SL_RNG_DATA, 0, 0, STREAM_PLACES);
    d->classes_stream = sl_rng_stream((uint64_t)o->seed, SL_RNG_DATA, 0, 0, STREAM_CLASSES);
    d->pool = sl_alloc_array((size_t)(d->elements + PLACES), sizeof *d->pool, "random images");
    if (d->pool == NULL) {
        sl_free(d);
        return SLUICE_ERR_NO_MEMORY;
    }
    sl_rng pixels = sl_rng_stream((uint64_t)o->seed, SL_RNG_DATA, 0, 0, STREAM_PIXELS);
    sl_rng_normals(&pixels, 0, d->elements + PLACES, d->pool);
    sl_identity_begin(&h,
                      "random images samples %" PRId64 " of %" PRId64 " x %" PRId64 " x %" PRId64 " classes %" PRId64
                      " validation %.17g seed %" PRId64,
                      o->samples, d->size.height, d->size.width, channels, d->classes, o->validation, o->seed);
    sl_identity_end(&h, d->identity);
    *out = &d->table.base;
    return SLUICE_OK;
}
