/* synthetic.c: regression and classification problems made from a seed.
 *
 * Every number is element (sample, feature) of a counter-based stream, so a data set of any length exists without being
 * stored. Rows are still kept where they fit a modest limit: drawing normals again in each epoch would cost more than a
 * small model's step. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "core/alloc.h"
#include "core/bytes.h"
#include "core/rng.h"
#include "data/source.h"

/* Rows of data sets up to this size are drawn once and kept. */
#define KEEP_BYTES ((uint64_t)64 << 20)
/* No more than this many features, outputs, classes or samples: products of two stay below 2^63. */
#define MAX_COUNT ((int64_t)1 << 31)

/* Streams of the data domain. */
enum { STREAM_X = 1, STREAM_WEIGHTS = 2, STREAM_NOISE = 3, STREAM_CLASS = 4 };
enum { COLUMN_X = 0, COLUMN_TARGET = 1, COLUMN_COUNT = 2 };

typedef struct synthetic {
    sl_table table;
    sl_data_column columns[COLUMN_COUNT];
    int64_t features, outputs; /* outputs: targets, or classes */
    double noise;
    float *weights; /* owned. regression: w [outputs, features]; classification: cluster centres [classes, features] */
    float *kept[COLUMN_COUNT]; /* owned: all rows of a column, or NULL where they are drawn when asked for */
    uint64_t held_bytes;
    char identity[65];
    sl_rng x, noise_stream, class_stream;
} synthetic;

static int32_t class_of(const synthetic *s, int64_t sample)
{
    return (int32_t)sl_rng_below(&s->class_stream, (uint64_t)sample, (uint64_t)s->outputs);
}

static float draw_x(const synthetic *s, int64_t sample, int64_t feature)
{
    return sl_rng_normal(&s->x, (uint64_t)sample * (uint64_t)s->features + (uint64_t)feature);
}

/* row[features], row[outputs]: x ~ N(0, 1); target = w x + noise, summed in double and rounded once. */
static void draw_regression(const sl_table *t, int64_t sample, int column, void *row)
{
    const synthetic *s = (const synthetic *)t;
    float *out = row;
    if (column == COLUMN_X) {
        for (int64_t i = 0; i < s->features; i++) out[i] = draw_x(s, sample, i);
        return;
    }
    for (int64_t o = 0; o < s->outputs; o++) {
        double sum = s->noise * sl_rng_normal(&s->noise_stream, (uint64_t)sample * (uint64_t)s->outputs + (uint64_t)o);
        for (int64_t i = 0; i < s->features; i++) sum += (double)draw_x(s, sample, i) * s->weights[o * s->features + i];
        out[o] = (float)sum;
    }
}

/* row[features] ~ N(centre of the sample's class, 1); target: the class. */
static void draw_classification(const sl_table *t, int64_t sample, int column, void *row)
{
    const synthetic *s = (const synthetic *)t;
    int32_t class_id = class_of(s, sample);
    if (column == COLUMN_TARGET) {
        memcpy(row, &class_id, sizeof class_id);
        return;
    }
    const float *centre = s->weights + class_id * s->features;
    float *out = row;
    for (int64_t i = 0; i < s->features; i++) out[i] = centre[i] + draw_x(s, sample, i);
}

static void copy_kept(const sl_table *t, int64_t sample, int column, void *row)
{
    const synthetic *s = (const synthetic *)t;
    size_t elements = (size_t)s->columns[column].elements;
    memcpy(row, s->kept[column] + (size_t)sample * elements, elements * sizeof(float));
}

static void synthetic_destroy(sluice_data *d)
{
    synthetic *s = (synthetic *)d;
    for (int c = 0; c < COLUMN_COUNT; c++) sl_free(s->kept[c]);
    sl_free(s->weights);
    sl_free(s);
}

static uint64_t synthetic_memory(const sluice_data *d)
{
    return ((const synthetic *)d)->held_bytes;
}

static void synthetic_identity(const sluice_data *d, char sha256[65])
{
    memcpy(sha256, ((const synthetic *)d)->identity, 65);
}

static const sl_data_ops regression_ops = {
    .name = "regression",
    .destroy = synthetic_destroy,
    .samples = sl_table_samples,
    .fill = sl_table_fill,
    .fill_eval = sl_table_fill_eval,
    .memory_bytes = synthetic_memory,
    .identity = synthetic_identity,
};
static const sl_data_ops classification_ops = {
    .name = "classification",
    .destroy = synthetic_destroy,
    .samples = sl_table_samples,
    .fill = sl_table_fill,
    .fill_eval = sl_table_fill_eval,
    .memory_bytes = synthetic_memory,
    .identity = synthetic_identity,
};

static sluice_status check_count(const char *key, int64_t value, int64_t least)
{
    if (value < least || value > MAX_COUNT)
        return sl_fail(SLUICE_ERR_USAGE, "%s is %" PRId64 "; give %" PRId64 " to %" PRId64, key, value, least,
                       MAX_COUNT);
    return SLUICE_OK;
}

static sluice_status draw_weights(synthetic *s, float scale)
{
    size_t count = (size_t)(s->features * s->outputs);
    sl_rng stream = sl_rng_stream(s->table.seed, SL_RNG_DATA, 0, 0, STREAM_WEIGHTS);
    s->weights = sl_alloc_array(count, sizeof(float), "synthetic weights");
    if (s->weights == NULL) return SLUICE_ERR_NO_MEMORY;
    for (size_t i = 0; i < count; i++) s->weights[i] = scale * sl_rng_normal(&stream, i);
    s->held_bytes += count * sizeof(float);
    return SLUICE_OK;
}

static sluice_status keep_rows(synthetic *s)
{
    uint64_t row_bytes = 0, all;
    for (int c = 0; c < COLUMN_COUNT; c++) row_bytes += (uint64_t)s->columns[c].elements * sizeof(float);
    if (!sl_mul_u64(row_bytes, (uint64_t)s->table.total, &all) || all > KEEP_BYTES) return SLUICE_OK;
    for (int c = 0; c < COLUMN_COUNT; c++) {
        size_t elements = (size_t)s->columns[c].elements;
        s->kept[c] = sl_alloc_array((size_t)s->table.total, elements * sizeof(float), "synthetic rows");
        if (s->kept[c] == NULL) return SLUICE_ERR_NO_MEMORY;
        for (int64_t i = 0; i < s->table.total; i++) s->table.write(&s->table, i, c, s->kept[c] + (size_t)i * elements);
    }
    s->held_bytes += all;
    s->table.write = copy_kept;
    return SLUICE_OK;
}

/* What both kinds share once their own settings are in `settings`. Takes over nothing on failure. */
static sluice_status create(const synthetic *settings, int64_t samples, double validation, float weight_scale,
                            sluice_data **out)
{
    sluice_status st;
    sl_sha256 h;
    synthetic *s;
    int64_t train;
    uint64_t seed = settings->table.seed;
    SL_TRY(sl_data_train_count(samples, validation, &train));
    if (train < 1)
        return sl_fail(SLUICE_ERR_USAGE, "data.samples %" PRId64 " with data.validation %g leaves nothing to train on",
                       samples, validation);
    if ((s = sl_alloc(sizeof *s, "synthetic data")) == NULL) return SLUICE_ERR_NO_MEMORY;
    *s = *settings;
    s->table.train = train;
    s->table.total = samples;
    s->table.shuffle = true;
    s->table.columns = s->columns;
    s->table.column_count = COLUMN_COUNT;
    s->held_bytes = sizeof *s;
    s->x = sl_rng_stream(seed, SL_RNG_DATA, 0, 0, STREAM_X);
    s->noise_stream = sl_rng_stream(seed, SL_RNG_DATA, 0, 0, STREAM_NOISE);
    s->class_stream = sl_rng_stream(seed, SL_RNG_DATA, 0, 0, STREAM_CLASS);
    sl_identity_begin(&h,
                      "%s samples %" PRId64 " features %" PRId64 " outputs %" PRId64
                      " noise %.17g validation %.17g seed %" PRIu64,
                      s->table.base.ops->name, samples, s->features, s->outputs, s->noise, validation, seed);
    sl_identity_end(&h, s->identity);
    if ((st = draw_weights(s, weight_scale)) != SLUICE_OK) goto destroy;
    if ((st = keep_rows(s)) != SLUICE_OK) goto destroy;
    *out = &s->table.base;
    return SLUICE_OK;
destroy:
    synthetic_destroy(&s->table.base);
    return st;
}

sluice_status sl_data_regression(int64_t samples, int64_t features, int64_t outputs, double noise, double validation,
                                 uint64_t seed, sluice_data **out)
{
    SL_TRY(check_count("data.samples", samples, 1));
    SL_TRY(check_count("data.features", features, 1));
    SL_TRY(check_count("data.outputs", outputs, 1));
    if (!(noise >= 0 && noise < INFINITY))
        return sl_fail(SLUICE_ERR_USAGE, "data.noise is %g; give a standard deviation, 0 or more", noise);
    synthetic s = {
        .table = { .base = { &regression_ops }, .seed = seed, .write = draw_regression },
        .columns = { { "x", SLUICE_F32, features }, { "target", SLUICE_F32, outputs } },
        .features = features,
        .outputs = outputs,
        .noise = noise,
    };
    return create(&s, samples, validation, (float)(1.0 / sqrt((double)features)), out);
}

sluice_status sl_data_classification(int64_t samples, int64_t features, int64_t classes, double validation,
                                     uint64_t seed, sluice_data **out)
{
    SL_TRY(check_count("data.samples", samples, 1));
    SL_TRY(check_count("data.features", features, 1));
    SL_TRY(check_count("data.outputs (classes)", classes, 2));
    synthetic s = {
        .table = { .base = { &classification_ops }, .seed = seed, .write = draw_classification },
        .columns = { { "x", SLUICE_F32, features }, { "target", SLUICE_I32, 1 } },
        .features = features,
        .outputs = classes,
    };
    return create(&s, samples, validation, 1.0f, out);
}
