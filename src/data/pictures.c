/* pictures.c: from the pixels of a sample to a row of a batch.
 *
 * A sample goes through two stages. The first makes it the size that the model wants: a part of it is resampled, unless it has that
 * size already. The second shifts, mirrors and normalises it on the way into the batch. */
#include "data/pictures.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/io.h"
#include "core/rng.h"

/* Evaluation sees the middle of an image where training sees parts of it: objects then look as large. */
#define CENTRE_SHARE  0.875
#define MOST_PADDING  64
#define MOST_SAMPLES  ((int64_t)INT32_MAX)
#define NAMES_BYTES   (1 << 20)
#define RESIZED_TRIES 10
#define LEAST_AREA    0.08
#define MOST_ASPECT   (4.0 / 3.0)
enum { COLUMN_X = 0, COLUMN_TARGET = 1 };

/* Elements of a sample's random stream. */
enum { DRAW_FLIP = 0, DRAW_TOP = 1, DRAW_LEFT = 2, DRAW_TRIES = 4 /* four for each try */ };

/* ---- the first stage ---- */

/* Of an image that would first become p->side pixels, whole numbers as transformers has them, the middle. */
static sl_box resized_box(const sl_pictures *p, const sl_pixels *in)
{
    double shorter = (double)(in->height < in->width ? in->height : in->width), side = (double)p->side;
    double height = p->stretches ? side : floor(side * (double)in->height / shorter);
    double width = p->stretches ? side : floor(side * (double)in->width / shorter);
    double down = (double)in->height / height, across = (double)in->width / width; /* pixels of the image for one */
    double top = rint((height - (double)p->size.height) / 2), left = rint((width - (double)p->size.width) / 2);
    return (sl_box){ top * down, left * across, (double)p->size.height * down, (double)p->size.width * across, false };
}

/* The largest part in the middle that has the shape of what is wanted, or a share of it. */
static sl_box centre_box(const sl_pixels *in, const sl_image_size *size, double share)
{
    double aspect = (double)size->width / (double)size->height;
    double height = (double)in->height, width = height * aspect;
    if (width > (double)in->width) {
        width = (double)in->width;
        height = width / aspect;
    }
    height *= share;
    width *= share;
    return (sl_box){ ((double)in->height - height) / 2, ((double)in->width - width) / 2, height, width, false };
}

static double uniform_between(const sl_rng *r, uint64_t element, double low, double high)
{
    return low + (high - low) * (double)sl_rng_uniform(r, element);
}

/* A part of random area and shape, as in Inception's training and torchvision's RandomResizedCrop; where none fits, the middle
 * with the nearest shape. */
static sl_box random_box(const sl_pixels *in, const sl_rng *r)
{
    double area = (double)in->height * (double)in->width;
    for (uint64_t t = 0; t < RESIZED_TRIES; t++) {
        uint64_t at = DRAW_TRIES + 4 * t;
        double part = area * uniform_between(r, at, LEAST_AREA, 1);
        double aspect = exp(uniform_between(r, at + 1, -log(MOST_ASPECT), log(MOST_ASPECT)));
        double width = rint(sqrt(part * aspect)), height = rint(sqrt(part / aspect));
        if (width < 1 || height < 1 || width > (double)in->width || height > (double)in->height) continue;
        double top = floor((double)sl_rng_uniform(r, at + 2) * ((double)in->height - height + 1));
        double left = floor((double)sl_rng_uniform(r, at + 3) * ((double)in->width - width + 1));
        return (sl_box){ top, left, height, width, true };
    }
    double height = (double)in->height, width = (double)in->width;
    if (width > height * MOST_ASPECT) width = rint(height * MOST_ASPECT);
    if (height > width * MOST_ASPECT) height = rint(width * MOST_ASPECT);
    return (sl_box){ floor(((double)in->height - height) / 2), floor(((double)in->width - width) / 2), height, width,
                     true };
}

/* *resized is NULL where the pixels are as they should be. */
static sluice_status make_size(const sl_pictures *p, const sl_pixels *in, const sl_rng *r, sl_picture_scratch *s,
                               const float **resized)
{
    bool random = p->resized_crop && r != NULL, cuts = p->resized_crop || p->side > p->size.height;
    *resized = NULL;
    if (!cuts && in->height == p->size.height && in->width == p->size.width) return SLUICE_OK;
    sl_box box = random        ? random_box(in, r)
                 : p->side > 0 ? resized_box(p, in)
                               : centre_box(in, &p->size, p->resized_crop ? CENTRE_SHARE : 1);
    s->resampling.filter = p->filter;
    if (s->resized == NULL) {
        s->resized = sl_alloc_array((size_t)(p->size.height * p->size.width), (size_t)p->size.channels * sizeof(float),
                                    "resized picture");
        if (s->resized == NULL) return SLUICE_ERR_NO_MEMORY;
    }
    SL_TRY(sl_resample(&s->resampling, in, &box, p->size.height, p->size.width, s->resized));
    *resized = s->resized;
    return SLUICE_OK;
}

/* ---- the second stage ---- */

/* Where the pixel of output (0, 0) is, and which way columns go. */
typedef struct placement {
    int64_t top, left;
    bool mirrored;
} placement;

static placement draw_placement(const sl_pictures *p, const sl_rng *r)
{
    placement at = { 0, 0, false };
    if (r == NULL) return at;
    if (p->padding > 0) {
        uint64_t places = 2 * (uint64_t)p->padding + 1;
        at.top = (int64_t)sl_rng_below(r, DRAW_TOP, places) - p->padding;
        at.left = (int64_t)sl_rng_below(r, DRAW_LEFT, places) - p->padding;
    }
    at.mirrored = p->flip && (sl_rng_u32(r, DRAW_FLIP) & 1) != 0;
    return at;
}

static float normalised(const sl_pictures *p, float value, int channel)
{
    return (value / 255.0f - p->mean[channel]) / p->deviation[channel];
}

/* One row of output: row y of the image, whose pixels are bytes or, where `resized` is there, numbers. What lies outside is
 * black. */
static void write_line(const sl_pictures *p, const uint8_t *bytes, const float *resized, int64_t y, placement at,
                       float *out)
{
    int64_t width = p->size.width;
    int channels = (int)p->size.channels;
    bool inside = y >= 0 && y < p->size.height;
    for (int64_t x = 0; x < width; x++) {
        int64_t from = (at.mirrored ? width - 1 - x : x) + at.left;
        bool black = !inside || from < 0 || from >= width;
        int64_t pixel = (y * width + from) * channels;
        for (int c = 0; c < channels; c++)
            out[x * channels + c] = black             ? p->table[c][0]
                                    : resized != NULL ? normalised(p, resized[pixel + c], c)
                                                      : p->table[c][bytes[pixel + c]];
    }
}

/* r: what the sample is changed by; NULL: nothing. */
static sluice_status write_sample(const sl_pictures *p, sl_data_split split, int64_t sample, const sl_rng *r,
                                  sl_picture_scratch *s, float *out)
{
    sl_pixels in;
    const float *resized;
    SL_TRY(p->kind->pixels(p, split, sample, s, &in));
    SL_TRY(make_size(p, &in, r, s, &resized));
    placement at = draw_placement(p, r);
    for (int64_t y = 0; y < p->size.height; y++)
        write_line(p, in.bytes, resized, y + at.top, at, out + y * p->size.width * p->size.channels);
    return SLUICE_OK;
}

/* ---- bad samples ---- */

static bool known_bad(sl_pictures *p, sl_data_split split, int64_t sample)
{
    if (!p->skip_bad) return false;
    pthread_mutex_lock(&p->lock);
    bool bad = p->bad[split][sample] != 0;
    pthread_mutex_unlock(&p->lock);
    return bad;
}

static void note_bad(sl_pictures *p, sl_data_split split, int64_t sample)
{
    pthread_mutex_lock(&p->lock);
    if (!p->bad[split][sample]) {
        p->bad[split][sample] = 1;
        if (p->left_out++ == 0) sl_error_copy(p->first_bad);
    }
    pthread_mutex_unlock(&p->lock);
}

/* As write_sample, but for what is bad and is to be left out: *good tells. */
static sluice_status try_sample(sl_pictures *p, sl_data_split split, int64_t sample, const sl_rng *r,
                                sl_picture_scratch *s, float *out, bool *good)
{
    *good = false;
    if (known_bad(p, split, sample)) return SLUICE_OK;
    sluice_status st = write_sample(p, split, sample, r, s, out);
    *good = st == SLUICE_OK;
    if (st != SLUICE_ERR_INPUT || !p->skip_bad) return st;
    note_bad(p, split, sample);
    return SLUICE_OK;
}

/* The sample, or the next good one behind it, so that an epoch has as many as there are files whatever they hold. */
static sluice_status take_good(sl_pictures *p, int64_t *sample, const sl_rng *r, sl_picture_scratch *s, float *out)
{
    int64_t count = p->count[SL_SPLIT_TRAIN];
    for (int64_t i = 0; i < count; i++) {
        bool good;
        SL_TRY(try_sample(p, SL_SPLIT_TRAIN, *sample, r, s, out, &good));
        if (good) return SLUICE_OK;
        *sample = (*sample + 1) % count;
    }
    return sl_fail(SLUICE_ERR_INPUT, "all %" PRId64 " images to train on are bad; the first: %s", count, p->first_bad);
}

static int64_t pictures_left_out(sluice_data *d, char first[SL_MESSAGE_BYTES])
{
    sl_pictures *p = (sl_pictures *)d;
    pthread_mutex_lock(&p->lock);
    int64_t count = p->left_out;
    memcpy(first, p->first_bad, SL_MESSAGE_BYTES);
    pthread_mutex_unlock(&p->lock);
    return count;
}

/* ---- batches ---- */

static void free_scratch(sl_picture_scratch *s)
{
    sl_raster_free(&s->raster);
    sl_resampling_free(&s->resampling);
    sl_free(s->resized);
}

/* The field of a column; NULL: nobody asks for it. */
static const sl_data_field *field_of(const sl_pictures *p, int column, const sl_data_field *fields, int count)
{
    for (int i = 0; i < count; i++)
        if (strcmp(fields[i].name, p->columns[column].name) == 0) return &fields[i];
    return NULL;
}

static void write_label(const sl_pictures *p, sl_data_split split, int64_t sample, const sl_data_field *target,
                        int64_t row)
{
    int32_t label = p->kind->label(p, split, sample);
    if (target != NULL) memcpy(sl_data_row(target, row), &label, sizeof label);
}

static sluice_status fill_rows(sl_pictures *p, uint64_t first, int64_t rows, const sl_data_field *x,
                               const sl_data_field *target, sl_picture_scratch *s)
{
    for (int64_t i = 0; i < rows; i++) {
        sl_data_place place = sl_data_locate(p->seed, p->shuffle, p->count[SL_SPLIT_TRAIN], first + (uint64_t)i);
        sl_rng r = sl_rng_stream(p->seed, SL_RNG_AUGMENT, place.epoch, (uint32_t)place.sample, 0);
        if (x != NULL) SL_TRY(take_good(p, &place.sample, &r, s, sl_data_row(x, i)));
        write_label(p, SL_SPLIT_TRAIN, place.sample, target, i);
    }
    return SLUICE_OK;
}

static sluice_status pictures_fill(sluice_data *d, uint64_t index, int64_t rows, const sl_data_field *fields,
                                   int field_count)
{
    sl_pictures *p = (sl_pictures *)d;
    sl_picture_scratch s = { .resized = NULL };
    uint64_t first;
    SL_TRY(sl_data_match(d->ops->name, p->columns, 2, fields, field_count));
    SL_TRY(sl_data_first_sample(index, rows, &first));
    sluice_status st = fill_rows(p, first, rows, field_of(p, COLUMN_X, fields, field_count),
                                 field_of(p, COLUMN_TARGET, fields, field_count), &s);
    free_scratch(&s);
    return st;
}

/* One row of evaluation; a bad one that is left out is black, and does not count. */
static sluice_status evaluate_row(sl_pictures *p, sl_data_split split, int64_t sample, int64_t row,
                                  const sl_data_field *x, const sl_data_field *target, sl_picture_scratch *s)
{
    bool good = true;
    float *out = x != NULL ? sl_data_row(x, row) : NULL;
    if (out != NULL) SL_TRY(try_sample(p, split, sample, NULL, s, out, &good));
    write_label(p, split, sample, target, row);
    if (good) return SLUICE_OK;
    memset(out, 0, (size_t)x->row_elements * sizeof *out);
    if (target != NULL) *(int32_t *)sl_data_row(target, row) = -1;
    return SLUICE_OK;
}

static void pad_row(const sl_data_field *x, const sl_data_field *target, int64_t from, int64_t row)
{
    if (x != NULL) memcpy(sl_data_row(x, row), sl_data_row(x, from), (size_t)x->row_elements * sizeof(float));
    if (target != NULL) *(int32_t *)sl_data_row(target, row) = -1;
}

static sluice_status pictures_fill_eval(sluice_data *d, sl_data_split split, int64_t first, int64_t rows,
                                        const sl_data_field *fields, int field_count, int64_t *valid)
{
    sl_pictures *p = (sl_pictures *)d;
    sl_picture_scratch s = { .resized = NULL };
    sluice_status st = SLUICE_OK;
    int64_t count = p->count[split];
    SL_TRY(sl_data_match(d->ops->name, p->columns, 2, fields, field_count));
    if (first < 0 || first >= count)
        return sl_fail(SLUICE_ERR_USAGE,
                       "the %s data has %" PRId64 " samples to evaluate, number %" PRId64 " was asked for",
                       d->ops->name, count, first);
    int64_t real = count - first < rows ? count - first : rows;
    const sl_data_field *x = field_of(p, COLUMN_X, fields, field_count),
                        *target = field_of(p, COLUMN_TARGET, fields, field_count);
    for (int64_t i = 0; st == SLUICE_OK && i < real; i++) st = evaluate_row(p, split, first + i, i, x, target, &s);
    for (int64_t i = real; st == SLUICE_OK && i < rows; i++) pad_row(x, target, real - 1, i);
    free_scratch(&s);
    if (st == SLUICE_OK) *valid = real;
    return st;
}

/* ---- the other questions ---- */

static void pictures_destroy(sluice_data *d)
{
    sl_pictures *p = (sl_pictures *)d;
    p->kind->free(p);
}

static int64_t pictures_samples(const sluice_data *d, sl_data_split split)
{
    return ((const sl_pictures *)d)->count[split];
}

static uint64_t pictures_memory(const sluice_data *d)
{
    return ((const sl_pictures *)d)->held_bytes;
}

static void pictures_identity(const sluice_data *d, char sha256[65])
{
    const sl_pictures *p = (const sl_pictures *)d;
    sl_sha256 h;
    sl_identity_begin(&h,
                      "%s %" PRId64 " + %" PRId64 " of %" PRId64 " x %" PRId64 " x %" PRId64 ", classes %" PRId64
                      ", flip %d, padding %d, resized %d, skip %d, shuffle %d, seed %" PRIu64,
                      d->ops->name, p->count[0], p->count[1], p->size.height, p->size.width, p->size.channels,
                      p->classes, p->flip, p->padding, p->resized_crop, p->skip_bad, p->shuffle, p->seed);
    if (p->side > 0 || p->filter != SL_FILTER_BILINEAR) {
        const int64_t resizing[] = { p->side, p->stretches, p->filter };
        sl_sha256_update(&h, resizing, sizeof resizing);
    }
    sl_sha256_update(&h, p->table, sizeof p->table[0] * (size_t)p->size.channels);
    p->kind->hash(p, &h);
    sl_identity_end(&h, sha256);
}

static int64_t pictures_classes(const sluice_data *d)
{
    return ((const sl_pictures *)d)->classes;
}

static const char *pictures_class_name(const sluice_data *d, int64_t i)
{
    const sl_pictures *p = (const sl_pictures *)d;
    return p->class_names != NULL && i >= 0 && i < p->classes ? p->class_names[i] : NULL;
}

static void pictures_image(const sluice_data *d, sl_image_size *out)
{
    *out = ((const sl_pictures *)d)->size;
}

/* "[0.1307, 0.25]" */
static const char *list_floats(const float *values, int64_t count, char out[96])
{
    size_t used = 0;
    for (int64_t i = 0; i < count; i++)
        used += (size_t)snprintf(out + used, 96 - used, "%s%.4g", i > 0 ? ", " : "", (double)values[i]);
    return out;
}

static void pictures_say(const sluice_data *d, const sl_log *log)
{
    const sl_pictures *p = (const sl_pictures *)d;
    char mean[96], deviation[96];
    sl_log_write(log, SLUICE_LOG_NOTE,
                 "data: %" PRId64 " images to train on and %" PRId64 " to validate, %" PRId64 " classes, %" PRId64
                 " x %" PRId64 " x %" PRId64 "; pixels of 0 to 1 less [%s], divided by [%s]",
                 p->count[SL_SPLIT_TRAIN], p->count[SL_SPLIT_VALIDATION], p->classes, p->size.height, p->size.width,
                 p->size.channels, list_floats(p->mean, p->size.channels, mean),
                 list_floats(p->deviation, p->size.channels, deviation));
    if (p->others > 0)
        sl_log_write(log, SLUICE_LOG_NOTE,
                     "data: %" PRId64 " files that end in neither .png nor .jpg or .jpeg are ignored", p->others);
}

/* Where nothing is cut and all images have the size already, both ways of resizing are the same. */
static void pictures_prepared(const sluice_data *d, sl_image_processor *out)
{
    static const int64_t pillow[SL_FILTER_COUNT] = { SL_PILLOW_BILINEAR, SL_PILLOW_BICUBIC, SL_PILLOW_LANCZOS };
    const sl_pictures *p = (const sl_pictures *)d;
    int64_t side = p->side > 0 ? p->side : p->size.height;
    if (p->side == 0 && p->resized_crop) side = (int64_t)rint((double)side / CENTRE_SHARE);
    *out = (sl_image_processor){ .side = side,
                                 .stretches = p->side > 0 ? p->stretches : p->same_size && !p->resized_crop,
                                 .crop = p->size.height,
                                 .pillow = pillow[p->filter],
                                 .mean_count = (int)p->size.channels,
                                 .deviation_count = (int)p->size.channels };
    for (int c = 0; c < p->size.channels; c++) {
        out->mean[c] = p->mean[c];
        out->deviation[c] = p->deviation[c];
    }
}

static const sl_data_ops pictures_ops = {
    .destroy = pictures_destroy,
    .samples = pictures_samples,
    .fill = pictures_fill,
    .fill_eval = pictures_fill_eval,
    .memory_bytes = pictures_memory,
    .identity = pictures_identity,
    .classes = pictures_classes,
    .class_name = pictures_class_name,
    .image = pictures_image,
    .prepared = pictures_prepared,
    .say = pictures_say,
    .left_out = pictures_left_out,
};

/* ---- settings ---- */

static sluice_status read_crop(sl_pictures *p, const sl_data_options *o)
{
    const char *text = o->crop != NULL && o->crop[0] != '\0' ? o->crop : "none";
    char *end;
    if (strcmp(text, "none") == 0) return SLUICE_OK;
    if (strcmp(text, "resized") == 0) {
        p->resized_crop = true;
        return SLUICE_OK;
    }
    long pixels = strtol(text, &end, 10);
    if (*end != '\0' || pixels < 0 || pixels > MOST_PADDING || pixels >= p->size.width)
        return sl_fail(SLUICE_ERR_USAGE,
                       "data.crop is \"%.60s\"; it is \"none\", \"resized\", or a number of pixels to pad by, at most "
                       "%d and less than the image has",
                       text, MOST_PADDING);
    p->padding = (int)pixels;
    return SLUICE_OK;
}

/* Where images are square: others have no side. */
static sluice_status read_resizing(sl_pictures *p, const sl_data_options *o)
{
    p->filter = o->resample < 0 ? SL_FILTER_BILINEAR : (sl_filter)o->resample;
    p->stretches = o->resize == SL_RESIZE_STRETCH;
    p->side = o->resize_side;
    if (p->side == 0 && p->stretches) p->side = p->size.height;
    if (p->side == 0) return SLUICE_OK;
    if (p->size.height != p->size.width)
        return sl_fail(SLUICE_ERR_USAGE,
                       "data.%s is for square images, and these are %" PRId64 " x %" PRId64 "; set data.image_size",
                       o->resize_side > 0 ? "resize_side" : "resize", p->size.height, p->size.width);
    if (p->side < p->size.height)
        return sl_fail(SLUICE_ERR_USAGE,
                       "data.resize_side is %" PRId64 ", and %" PRId64 " pixels are to be cut out of the middle",
                       p->side, p->size.height);
    return SLUICE_OK;
}

void sl_channel_sums_add(sl_channel_sums *s, const uint8_t *pixels, size_t count, int channels)
{
    for (size_t i = 0; i < count; i++)
        for (int c = 0; c < channels; c++) {
            uint64_t v = pixels[i * (size_t)channels + (size_t)c];
            s->sum[c] += v;
            s->squares[c] += v * v;
        }
    s->count += count;
}

static void compute_normalisation(const sl_channel_sums *sums, int64_t channels, double mean[], double deviation[])
{
    double n = (double)sums->count;
    for (int64_t c = 0; c < channels; c++) {
        double m = (double)sums->sum[c] / n, variance = (double)sums->squares[c] / n - m * m;
        mean[c] = m / 255;
        deviation[c] = variance > 0 ? sqrt(variance) / 255 : 1;
    }
}

/* One of the two lists that settings may give: for each channel, or one for all of them. */
static sluice_status take_list(const char *key, const double *given, int count, int64_t channels, double out[])
{
    if (count == 0) return SLUICE_OK;
    if (count != 1 && count != channels)
        return sl_fail(SLUICE_ERR_USAGE,
                       "%s has %d numbers, and images have %" PRId64 " channels; give as many, or one", key, count,
                       channels);
    for (int64_t c = 0; c < channels; c++) out[c] = given[count == 1 ? 0 : c];
    return SLUICE_OK;
}

static sluice_status choose_normalisation(sl_pictures *p, const sl_data_options *o, const sl_channel_sums *sums,
                                          const double usual[2][SL_MAX_CHANNELS])
{
    double mean[SL_MAX_CHANNELS] = { 0 }, deviation[SL_MAX_CHANNELS] = { 1, 1, 1, 1 };
    int choice = o->normalize;
    bool given = o->mean_count > 0 && o->deviation_count > 0;
    if (choice == SL_NORMALIZE_UTTERANCE)
        return sl_fail(SLUICE_ERR_USAGE, "data.normalize \"utterance\" is for speech; images are none");
    if (choice == SL_NORMALIZE_AUTO && usual == NULL) choice = SL_NORMALIZE_COMPUTED;
    if (choice == SL_NORMALIZE_COMPUTED && sums == NULL && !given)
        return sl_fail(
            SLUICE_ERR_USAGE,
            "data.normalize \"computed\" would decode all images of a folder; give data.mean and data.std, or "
            "leave it out for the usual numbers");
    if (choice == SL_NORMALIZE_AUTO) {
        memcpy(mean, usual[0], sizeof mean);
        memcpy(deviation, usual[1], sizeof deviation);
    } else if (choice == SL_NORMALIZE_COMPUTED && sums != NULL) {
        compute_normalisation(sums, p->size.channels, mean, deviation);
    }
    SL_TRY(take_list("data.mean", o->mean, o->mean_count, p->size.channels, mean));
    SL_TRY(take_list("data.std", o->deviation, o->deviation_count, p->size.channels, deviation));
    for (int c = 0; c < p->size.channels; c++) {
        p->mean[c] = (float)mean[c];
        p->deviation[c] = (float)deviation[c];
        for (int v = 0; v < 256; v++) p->table[c][v] = normalised(p, (float)v, c);
    }
    return SLUICE_OK;
}

static sluice_status prepare_skipping(sl_pictures *p, const sl_data_options *o)
{
    if (!o->skip_bad) return SLUICE_OK;
    for (int i = 0; i < SL_SPLIT_COUNT; i++) {
        p->bad[i] = sl_alloc((size_t)p->count[i], "marks of bad images");
        if (p->bad[i] == NULL) return SLUICE_ERR_NO_MEMORY;
        p->held_bytes += (uint64_t)p->count[i];
    }
    p->skip_bad = true;
    return SLUICE_OK;
}

sluice_status sl_pictures_finish(sl_pictures *p, const char *type, const sl_data_options *o,
                                 const sl_channel_sums *sums, const double usual[2][SL_MAX_CHANNELS])
{
    p->ops = pictures_ops;
    p->ops.name = type;
    p->base.ops = &p->ops;
    pthread_mutex_init(&p->lock, NULL);
    p->seed = (uint64_t)o->seed;
    p->shuffle = o->shuffle;
    p->flip = o->flip;
    if (p->count[SL_SPLIT_TRAIN] < 1)
        return sl_fail(SLUICE_ERR_USAGE, "data.validation %g leaves nothing of the images to train on", o->validation);
    if (p->count[SL_SPLIT_TRAIN] > MOST_SAMPLES || p->count[SL_SPLIT_VALIDATION] > MOST_SAMPLES)
        return sl_fail(SLUICE_ERR_INPUT, "more than %" PRId64 " images", MOST_SAMPLES);
    p->columns[COLUMN_X] = (sl_data_column){ "x", SLUICE_F32, p->size.height * p->size.width * p->size.channels };
    p->columns[COLUMN_TARGET] = (sl_data_column){ "target", SLUICE_I32, 1 };
    SL_TRY(read_crop(p, o));
    SL_TRY(read_resizing(p, o));
    bool resizes = p->kind->decodes || (o->image_size > 0 && !p->same_size) || p->side > p->size.height;
    p->ops.effort = resizes ? SL_FILL_SLOW : SL_FILL_SOME;
    SL_TRY(choose_normalisation(p, o, sums, usual));
    return prepare_skipping(p, o);
}

void sl_pictures_free(sl_pictures *p)
{
    if (p->base.ops != NULL) pthread_mutex_destroy(&p->lock);
    for (int i = 0; i < SL_SPLIT_COUNT; i++) sl_free(p->bad[i]);
    sl_class_names_free(p->class_names, p->classes);
}

/* ---- paths, and names of classes ---- */

sluice_status sl_picture_path(const char *folder, const char *name, char *out)
{
    int n = snprintf(out, PATH_MAX, "%s/%s", folder, name);
    if (n >= 0 && n < PATH_MAX) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_INPUT, "%.200s...: the path of a file in it is too long", folder);
}

void sl_class_names_free(char **names, int64_t classes)
{
    for (int64_t i = 0; names != NULL && i < classes; i++) sl_free(names[i]);
    sl_free(names);
}

sluice_status sl_class_names_read(const char *path, int64_t classes, char ***out)
{
    char *text, **names, *save;
    size_t bytes;
    int64_t count = 0;
    *out = NULL;
    if (!sl_path_exists(path)) return SLUICE_OK;
    SL_TRY(sl_file_read_all(path, NAMES_BYTES, &text, &bytes));
    names = sl_alloc_array((size_t)classes, sizeof *names, "names of classes");
    sluice_status st = names != NULL ? SLUICE_OK : SLUICE_ERR_NO_MEMORY;
    for (char *line = strtok_r(text, "\r\n", &save); st == SLUICE_OK && line != NULL;
         line = strtok_r(NULL, "\r\n", &save), count++)
        if (count < classes && (names[count] = sl_strdup(line, "name of a class")) == NULL) st = SLUICE_ERR_NO_MEMORY;
    sl_free(text);
    if (st != SLUICE_OK || count != classes) {
        sl_class_names_free(names, classes);
        return st;
    }
    *out = names;
    return SLUICE_OK;
}
