/* image_processor.c: reading and writing preprocessor_config.json. */
#include "format/image_processor.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/io.h"
#include "core/quote.h"
#include "format/json.h"

#define MAX_BYTES ((size_t)4 << 20)
#define MAX_SIDE  65536
#define BYTE      (1.0 / 255)
#define LEAST     1e-6 /* of data.std */
#define LARGEST   1e6  /* of data.mean and data.std */

/* ---- kinds ---- */

/* What a class of transformers means by leaving keys out. */
typedef struct processor_kind {
    const char *name;
    bool crops, by_shorter; /* a size that is one number is of the shorter side */
    int64_t side, crop, pillow;
    double mean[3], deviation[3];
} processor_kind;

#define HALVES                                                                                                         \
    { 0.5, 0.5, 0.5 },                                                                                                 \
    {                                                                                                                  \
        0.5, 0.5, 0.5                                                                                                  \
    }
#define CLIPS                                                                                                          \
    { 0.48145466, 0.4578275, 0.40821073 },                                                                             \
    {                                                                                                                  \
        0.26862954, 0.26130258, 0.27577711                                                                             \
    }
static const processor_kind kinds[] = {
    { "ViT", false, false, 224, 224, SL_PILLOW_BILINEAR, HALVES },
    { "DeiT", true, false, 256, 224, SL_PILLOW_BICUBIC, HALVES },
    { "Bit", true, true, 224, 224, SL_PILLOW_BICUBIC, CLIPS },
    { "CLIP", true, true, 224, 224, SL_PILLOW_BICUBIC, CLIPS },
};
#undef HALVES
#undef CLIPS

/* "ViTImageProcessorFast" and "ViTFeatureExtractor" are of the kind "ViT". */
static const processor_kind *find_kind(const char *type)
{
    static const char *const endings[] = { "ImageProcessor", "ImageProcessorFast", "ImageProcessorPil",
                                           "FeatureExtractor" };
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        size_t length = strlen(kinds[k].name);
        if (strncmp(type, kinds[k].name, length) != 0) continue;
        for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++)
            if (strcmp(type + length, endings[i]) == 0) return &kinds[k];
    }
    return NULL;
}

/* ---- values ---- */

typedef struct reader {
    const json_t *root;
    const char *text, *what;
    size_t bytes;
    const processor_kind *kind;
    const sl_processor_by_hand *hand;
} reader;

/* "FOLDER/preprocessor_config.json:3: "; the buffer has PATH_MAX bytes. */
static const char *place(const reader *r, const char *key, char out[PATH_MAX])
{
    int line = sl_json_key_line(r->text, r->bytes, key);
    if (line > 0)
        snprintf(out, PATH_MAX, "%.3000s:%d: ", r->what, line);
    else
        snprintf(out, PATH_MAX, "%.3000s: ", r->what);
    return out;
}

static sluice_status refuse(const reader *r, const char *key, const char *must)
{
    char where[PATH_MAX];
    char *given = json_dumps(json_object_get(r->root, key), JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(15));
    sl_error_record("%s%s: %.100s is not %s", place(r, key, where), key, given != NULL ? given : "this value", must);
    sl_json_free_text(given);
    return sl_status_after(SLUICE_ERR_INPUT);
}

/* NULL: the key is not there, or null. */
static const json_t *find(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_null(value) ? NULL : value;
}

/* null is no; a key that is not there means what the kind does. */
static sluice_status read_flag(const reader *r, const char *key, bool absent, bool *out)
{
    const json_t *value = json_object_get(r->root, key);
    *out = value != NULL ? json_is_true(value) : absent;
    return value == NULL || json_is_null(value) || json_is_boolean(value) ? SLUICE_OK : refuse(r, key, "true or false");
}

static bool read_side(const json_t *value, int64_t *out)
{
    if (!json_is_integer(value) || json_integer_value(value) < 1 || json_integer_value(value) > MAX_SIDE) return false;
    *out = json_integer_value(value);
    return true;
}

/* One number, of the shorter side or of both, or [height, width], or an object that says which. */
static sluice_status read_size(const reader *r, const char *key, bool by_shorter, int64_t *side, bool *stretches)
{
    const json_t *value = find(r->root, key), *height = NULL, *width = NULL;
    if (value == NULL) return SLUICE_OK;
    if (json_is_integer(value)) {
        *stretches = !by_shorter;
        return read_side(value, side) ? SLUICE_OK : refuse(r, key, "a number of pixels");
    }
    if (json_is_array(value) && json_array_size(value) == 2) {
        height = json_array_get(value, 0);
        width = json_array_get(value, 1);
    } else if (find(value, "shortest_edge") != NULL && find(value, "longest_edge") == NULL) {
        *stretches = false;
        return read_side(find(value, "shortest_edge"), side) ? SLUICE_OK : refuse(r, key, "a number of pixels");
    } else {
        height = find(value, "height");
        width = find(value, "width");
    }
    int64_t other;
    *stretches = true;
    if (height == NULL || width == NULL || !read_side(height, side) || !read_side(width, &other))
        return refuse(r, key, "a size that is built in: a number, {\"height\", \"width\"} or {\"shortest_edge\"}");
    return *side == other ? SLUICE_OK : refuse(r, key, "square; models here read square images");
}

static sluice_status read_sizes(const reader *r, sl_image_processor *p)
{
    bool resizes, crops, square, by_shorter = r->kind->by_shorter;
    SL_TRY(read_flag(r, "do_resize", true, &resizes));
    SL_TRY(read_flag(r, "do_center_crop", r->kind->crops, &crops));
    SL_TRY(read_flag(r, "default_to_square", !by_shorter, &square));
    p->side = r->kind->side;
    p->crop = r->kind->crop;
    p->stretches = !by_shorter;
    SL_TRY(read_size(r, "size", !square, &p->side, &p->stretches));
    bool whatever;
    if (crops) SL_TRY(read_size(r, "crop_size", false, &p->crop, &whatever));
    if (!crops) p->crop = p->side;
    if (!resizes && crops) return refuse(r, "do_center_crop", "built in where do_resize is false");
    if (p->crop > p->side) return refuse(r, "crop_size", "at most the size that images have by then");
    if (!resizes) p->side = p->crop = 0;
    return SLUICE_OK;
}

/* One number for all channels, or one for each. `above`: each is above it. */
static sluice_status read_numbers(const reader *r, const char *key, double above, const double absent[3],
                                  double out[SL_PROCESSOR_NUMBERS], int *count)
{
    const json_t *value = find(r->root, key);
    size_t size = json_is_array(value) ? json_array_size(value) : 1;
    memcpy(out, absent, 3 * sizeof out[0]);
    *count = 3;
    if (value == NULL) return SLUICE_OK;
    if (size < 1 || size > SL_PROCESSOR_NUMBERS) return refuse(r, key, "a number for each channel");
    for (size_t i = 0; i < size; i++) {
        const json_t *item = json_is_array(value) ? json_array_get(value, i) : value;
        double number = json_number_value(item);
        if (!json_is_number(item) || !(number > above && number < 1e6))
            return refuse(r, key, above == 0 ? "a positive number for each channel" : "a number for each channel");
        out[i] = number;
    }
    *count = (int)size;
    return SLUICE_OK;
}

static sluice_status read_factor(const reader *r, double *out)
{
    const json_t *value = find(r->root, "rescale_factor");
    bool rescales;
    SL_TRY(read_flag(r, "do_rescale", true, &rescales));
    *out = !rescales ? 1 : value == NULL ? BYTE : json_number_value(value);
    if (*out >= 1e-9 && *out <= 1e9) return SLUICE_OK;
    return refuse(r, "rescale_factor", "a positive number");
}

static void scale(double *values, int count, double by)
{
    for (int i = 0; i < count; i++) values[i] *= by;
}

static bool within(const double *values, int count, double least, double most)
{
    for (int i = 0; i < count; i++)
        if (!(values[i] >= least && values[i] <= most)) return false;
    return true;
}

/* Bytes times a factor, less means, divided by deviations, as means and deviations of pixels from 0 to 1. */
static sluice_status read_normalisation(const reader *r, sl_image_processor *p)
{
    static const double zeros[3], ones[3] = { 1, 1, 1 };
    bool normalises;
    double factor;
    SL_TRY(read_flag(r, "do_normalize", true, &normalises));
    SL_TRY(read_factor(r, &factor));
    memcpy(p->mean, zeros, sizeof zeros);
    memcpy(p->deviation, ones, sizeof ones);
    p->mean_count = p->deviation_count = 1;
    if (normalises) {
        SL_TRY(read_numbers(r, "image_mean", -1e6, r->kind->mean, p->mean, &p->mean_count));
        SL_TRY(read_numbers(r, "image_std", 0, r->kind->deviation, p->deviation, &p->deviation_count));
    }
    if (factor != BYTE) {
        scale(p->mean, p->mean_count, BYTE / factor);
        scale(p->deviation, p->deviation_count, BYTE / factor);
    }
    if (!within(p->mean, p->mean_count, -LARGEST, LARGEST))
        return refuse(r, "image_mean", "a number of pixels from 0 to 1 that can be computed with");
    if (!within(p->deviation, p->deviation_count, LEAST, LARGEST))
        return refuse(r, "image_std", "a number of pixels from 0 to 1 that can be computed with");
    return SLUICE_OK;
}

static sluice_status read_filter(const reader *r, sl_image_processor *p)
{
    const json_t *value = find(r->root, "resample");
    p->pillow = value != NULL ? json_integer_value(value) : r->kind->pillow;
    if (json_is_integer(value) || value == NULL)
        if (p->pillow >= SL_PILLOW_LANCZOS && p->pillow <= SL_PILLOW_BICUBIC) return SLUICE_OK;
    return refuse(r, "resample",
                  "built in: 2 (bilinear), 3 (bicubic) and 1 (Lanczos) are; data.resample sets another by hand");
}

/* ---- the other keys ---- */

/* That say nothing of pixels, or are read here. do_convert_rgb: images are read with the channels that the model has. */
static const char *const known[] = { "image_processor_type",
                                     "feature_extractor_type",
                                     "do_resize",
                                     "size",
                                     "resample",
                                     "default_to_square",
                                     "do_center_crop",
                                     "crop_size",
                                     "do_rescale",
                                     "rescale_factor",
                                     "do_normalize",
                                     "image_mean",
                                     "image_std",
                                     "do_convert_rgb",
                                     "data_format",
                                     "input_data_format",
                                     "device",
                                     "disable_grouping",
                                     "return_tensors",
                                     "processor_class",
                                     "auto_map",
                                     "image_seq_length",
                                     "_valid_processor_keys" };

static bool is_known(const char *key)
{
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strcmp(known[i], key) == 0) return true;
    return false;
}

/* A step that is asked for and not built in would be missed; of other keys it is told that they have no effect. */
static sluice_status check_others(const reader *r, const sl_log *log)
{
    const char *key;
    json_t *value;
    char where[PATH_MAX];
    json_object_foreach((json_t *)r->root, key, value)
    {
        if (is_known(key) || json_is_null(value) || json_is_false(value)) continue;
        if (strncmp(key, "do_", 3) == 0) return refuse(r, key, "built in; set it to false where it is not wanted");
        sl_log_write(log, SLUICE_LOG_WARNING, "%s%s is not known and has no effect", place(r, key, where),
                     sl_quote(key).text);
    }
    return SLUICE_OK;
}

/* ---- the file ---- */

static sluice_status read_kind(reader *r)
{
    const json_t *type = find(r->root, "image_processor_type");
    const char *key = "image_processor_type";
    if (type == NULL) {
        key = "feature_extractor_type";
        type = find(r->root, key);
    }
    r->kind = type == NULL ? &kinds[0] : json_is_string(type) ? find_kind(json_string_value(type)) : NULL;
    if (r->kind != NULL) return SLUICE_OK;
    return refuse(
        r, key,
        "built in (ViT, DeiT, Bit and CLIP are); to do without it, give data.mean, data.std, data.image_size, "
        "data.resize and data.resample");
}

static sluice_status read_keys(reader *r, const sl_log *log, sl_image_processor *p)
{
    const sl_processor_by_hand *hand = r->hand;
    if (!json_is_object(r->root)) return sl_fail(SLUICE_ERR_INPUT, "%s is no JSON object", r->what);
    SL_TRY(read_kind(r));
    SL_TRY(check_others(r, log));
    sluice_status st = read_sizes(r, p);
    if (st != SLUICE_OK && !hand->sizes) return st;
    if (st != SLUICE_OK) p->side = p->crop = 0;
    st = read_filter(r, p);
    if (st != SLUICE_OK && !hand->filter) return st;
    if (st != SLUICE_OK) p->pillow = 0;
    st = read_normalisation(r, p);
    if (st != SLUICE_OK && !hand->numbers) return st;
    if (st != SLUICE_OK) p->mean_count = p->deviation_count = 0;
    return SLUICE_OK;
}

sluice_status sl_image_processor_parse(const char *text, size_t bytes, const char *what,
                                       const sl_processor_by_hand *hand, const sl_log *log, sl_image_processor *out)
{
    json_t *root;
    sl_image_processor p = { .side = 0 };
    SL_TRY(sl_json_parse(text, bytes, what, SLUICE_ERR_INPUT, &root));
    reader r = { .root = root, .text = text, .what = what, .bytes = bytes, .hand = hand };
    sluice_status st = read_keys(&r, log, &p);
    json_decref(root);
    if (st == SLUICE_OK) *out = p;
    return st;
}

sluice_status sl_image_processor_read(const char *folder, const sl_processor_by_hand *hand, const sl_log *log,
                                      bool *found, sl_image_processor *out)
{
    char path[PATH_MAX], *text;
    size_t bytes;
    *found = false;
    if (snprintf(path, sizeof path, "%s/" SL_IMAGE_PROCESSOR, folder) >= (int)sizeof path || !sl_path_exists(path))
        return SLUICE_OK;
    SL_TRY(sl_file_read_all(path, MAX_BYTES, &text, &bytes));
    sluice_status st = sl_image_processor_parse(text, bytes, path, hand, log, out);
    sl_free(text);
    *found = st == SLUICE_OK;
    if (st != SLUICE_ERR_INPUT || !hand->numbers || !hand->sizes || !hand->filter) return st;
    sl_log_write(log, SLUICE_LOG_WARNING, "%s; it is not used, because all that it could say is given", sluice_error());
    return SLUICE_OK;
}

/* ---- out ---- */

static bool same_numbers(const double *a, int a_count, const double *b, int b_count, int64_t channels)
{
    for (int64_t c = 0; c < channels; c++)
        if ((float)a[a_count > 1 ? c : 0] != (float)b[b_count > 1 ? c : 0]) return false;
    return true;
}

bool sl_image_processor_same(const sl_image_processor *a, const sl_image_processor *b, int64_t channels)
{
    return a->side == b->side && a->crop == b->crop && a->stretches == b->stretches && a->pillow == b->pillow &&
           same_numbers(a->mean, a->mean_count, b->mean, b->mean_count, channels) &&
           same_numbers(a->deviation, a->deviation_count, b->deviation, b->deviation_count, channels);
}

/* The fewest digits that give the same fp32 number. */
static void add_number(sl_text *out, double value)
{
    char digits[SL_JSON_DIGITS];
    for (int precision = 6; precision <= 9; precision++) {
        snprintf(digits, sizeof digits, "%.*g", precision, (double)(float)value);
        if (strtof(digits, NULL) == (float)value) break;
    }
    sl_json_digits(strtod(digits, NULL), digits);
    sl_text_add(out, "%s%s", digits, strpbrk(digits, ".e") == NULL ? ".0" : "");
}

static void add_numbers(sl_text *out, const char *key, const double *values, int count, int64_t channels)
{
    sl_text_add(out, "  \"%s\": [", key);
    for (int64_t c = 0; c < channels; c++) {
        if (c > 0) sl_text_add(out, ", ");
        add_number(out, values[count > 1 ? c : 0]);
    }
    sl_text_add(out, "],\n");
}

/* The class whose code in every version of transformers does just this. */
static const char *class_of(const sl_image_processor *p)
{
    if (!p->stretches) return "BitImageProcessor";
    return p->crop < p->side ? "DeiTImageProcessor" : "ViTImageProcessor";
}

sluice_status sl_image_processor_write(const sl_image_processor *p, int64_t channels, sl_text *out)
{
    bool crops = p->side > 0 && (!p->stretches || p->crop < p->side);
    sl_text_add(out, "{\n");
    if (crops)
        sl_text_add(out, "  \"crop_size\": {\n    \"height\": %" PRId64 ",\n    \"width\": %" PRId64 "\n  },\n",
                    p->crop, p->crop);
    sl_text_add(out, "  \"do_center_crop\": %s,\n  \"do_normalize\": true,\n  \"do_rescale\": true,\n",
                crops ? "true" : "false");
    sl_text_add(out, "  \"do_resize\": %s,\n", p->side > 0 ? "true" : "false");
    add_numbers(out, "image_mean", p->mean, p->mean_count, channels);
    sl_text_add(out, "  \"image_processor_type\": \"%s\",\n", class_of(p));
    add_numbers(out, "image_std", p->deviation, p->deviation_count, channels);
    sl_text_add(out, "  \"resample\": %" PRId64 ",\n  \"rescale_factor\": 0.00392156862745098", p->pillow);
    if (p->side > 0 && p->stretches)
        sl_text_add(out, ",\n  \"size\": {\n    \"height\": %" PRId64 ",\n    \"width\": %" PRId64 "\n  }", p->side,
                    p->side);
    if (p->side > 0 && !p->stretches)
        sl_text_add(out, ",\n  \"size\": {\n    \"shortest_edge\": %" PRId64 "\n  }", p->side);
    sl_text_add(out, "\n}\n");
    return sl_text_status(out);
}
