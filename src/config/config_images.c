/* config_images.c: images for a model that is a folder: what its preprocessor_config.json says becomes of them stands in the
 * settings, unless it was typed. */
#include <string.h>

#include "config/config_rows.h"
#include "core/status.h"
#include "format/image_processor.h"
#include "format/json.h"

#define BY_FOLDER SL_IMAGE_PROCESSOR " of model.path"

static const sl_option *row_of(const char *key)
{
    return sl_option_find(sl_config_rows, sl_config_row_count, key);
}

static bool is_given(const sluice_config *c, const char *key)
{
    return c->private_data->origins[row_of(key) - sl_config_rows].line != 0;
}

/* A value of the folder's, unless one is typed. A typed one that differs is told. */
static void take(const sluice_config *c, const char *key, const sl_config_value *value, const sl_log *log,
                 sl_settings *s)
{
    const sl_option *row = row_of(key);
    sl_config_value typed;
    char says[256] = "";
    if (!is_given(c, key)) {
        sl_config_value_store(row, value, s);
        sl_config_tell_chosen(log, s, key, BY_FOLDER);
        return;
    }
    sl_config_value_load(row, s, &typed);
    if (sl_config_value_equal(row, &typed, value)) return;
    FILE *memory = fmemopen(says, sizeof says, "w");
    if (memory == NULL) return;
    sl_config_value_print(row, value, memory);
    fclose(memory);
    sl_log_write(log, SLUICE_LOG_NOTE, "%s is %.200s as given, and %.600s/" SL_IMAGE_PROCESSOR " says %s", key,
                 c->private_data->origins[row - sl_config_rows].given, s->path, says);
}

/* ---- numbers ---- */

/* "[0.5, 0.25]" */
static const char *list_numbers(const double *values, int count, char out[SL_PROCESSOR_NUMBERS * SL_JSON_DIGITS])
{
    size_t used = 0;
    for (int i = 0; i < count; i++) {
        char digits[SL_JSON_DIGITS];
        sl_json_digits(values[i], digits);
        used += (size_t)sprintf(out + used, "%s%s", i > 0 ? ", " : "[", digits);
    }
    snprintf(out + used, 2, "]");
    return out;
}

/* The text of a row as if it had been typed, so that a run is the same with either. */
static sluice_status store_list(const sluice_config *c, const char *key, const double *values, int count,
                                sl_settings *s)
{
    sl_config_value value;
    json_t *list = json_array();
    bool whole = list != NULL;
    for (int i = 0; whole && i < count; i++) whole = json_array_append_new(list, json_real(values[i])) == 0;
    sluice_status st = whole ? sl_config_value_from_json(row_of(key), list, "", &c->private_data->arena, &value)
                             : sl_fail(SLUICE_ERR_NO_MEMORY, "no memory for %s", key);
    json_decref(list);
    if (st == SLUICE_OK) sl_config_value_store(row_of(key), &value, s);
    return st;
}

/* As take, of numbers whose row is only their text. */
static sluice_status take_list(const sluice_config *c, const char *key, const double *values, int count,
                               const sl_log *log, sl_settings *s, double *to, int *to_count)
{
    char theirs[SL_PROCESSOR_NUMBERS * SL_JSON_DIGITS], typed[SL_PROCESSOR_NUMBERS * SL_JSON_DIGITS];
    bool given = is_given(c, key), same = *to_count == count && memcmp(to, values, (size_t)count * sizeof *to) == 0;
    list_numbers(values, count, theirs);
    if (given && same) return SLUICE_OK;
    if (given) {
        sl_log_write(log, SLUICE_LOG_NOTE, "%s is %s as given, and %.600s/" SL_IMAGE_PROCESSOR " says %s", key,
                     list_numbers(to, *to_count, typed), s->path, theirs);
        return SLUICE_OK;
    }
    sl_log_write(log, SLUICE_LOG_NOTE, "chosen: %s %s (" BY_FOLDER ")", key, theirs);
    memcpy(to, values, (size_t)count * sizeof *to);
    *to_count = count;
    return store_list(c, key, values, count, s);
}

static sluice_status check_count(const sl_settings *s, const char *key, int count)
{
    if (count == 1 || count == s->model.folder.channels) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_INPUT,
                   "%.600s/" SL_IMAGE_PROCESSOR ": %s has %d numbers, and config.json says that images have %lld "
                   "channels; give data.mean and data.std",
                   s->path, key, count, (long long)s->model.folder.channels);
}

static sluice_status take_numbers(const sluice_config *c, const sl_image_processor *p, const sl_log *log,
                                  sl_settings *s)
{
    sl_data_options *d = &s->data;
    if (p->mean_count == 0) return SLUICE_OK; /* given by hand, and the file's are none */
    SL_TRY(check_count(s, "image_mean", p->mean_count));
    SL_TRY(check_count(s, "image_std", p->deviation_count));
    SL_TRY(take_list(c, "data.mean", p->mean, p->mean_count, log, s, d->mean, &d->mean_count));
    return take_list(c, "data.std", p->deviation, p->deviation_count, log, s, d->deviation, &d->deviation_count);
}

/* ---- sizes ---- */

/* Images that the processor leaves as they are must have the model's size. */
static void take_no_size(const sluice_config *c, const sl_log *log, sl_settings *s)
{
    if (is_given(c, "data.image_size") || strcmp(s->data.type, "images") != 0) return;
    s->data.image_size = s->model.folder.image_size;
    sl_log_write(log, SLUICE_LOG_WARNING,
                 "%.600s/" SL_IMAGE_PROCESSOR " says that images are not resized (do_resize); those that are not %lld "
                 "x %lld, which this model needs, are resized all the same",
                 s->path, (long long)s->data.image_size, (long long)s->data.image_size);
}

static void take_sizes(const sluice_config *c, const sl_image_processor *p, const sl_log *log, sl_settings *s)
{
    if (p->side == 0) {
        take_no_size(c, log, s);
        return;
    }
    take(c, "data.image_size", &(sl_config_value){ .integer = p->crop }, log, s);
    int way = p->stretches ? SL_RESIZE_STRETCH : SL_RESIZE_MIDDLE;
    take(c, "data.resize", &(sl_config_value){ .choice = way }, log, s);
    bool as_said = s->data.image_size == p->crop && s->data.resize == way;
    if (as_said && (p->side > p->crop || !p->stretches))
        take(c, "data.resize_side", &(sl_config_value){ .integer = p->side }, log, s);
}

static int filter_of(int64_t pillow)
{
    return pillow == SL_PILLOW_BICUBIC   ? SL_FILTER_BICUBIC
           : pillow == SL_PILLOW_LANCZOS ? SL_FILTER_LANCZOS
                                         : SL_FILTER_BILINEAR;
}

sluice_status sl_config_resolve_images(const sluice_config *c, const sl_log *log, sl_settings *s)
{
    bool found, images = s->model.folder.family == SL_DECODER_VIT && sl_data_gives(s->data.type) == SL_SAMPLES_IMAGES;
    sl_image_processor p;
    if (s->path[0] == '\0' || s->given.only_name || !images) return SLUICE_OK;
    const sl_processor_by_hand hand = {
        .numbers = is_given(c, "data.normalize") || (is_given(c, "data.mean") && is_given(c, "data.std")),
        .sizes = is_given(c, "data.image_size") && is_given(c, "data.resize"),
        .filter = is_given(c, "data.resample"),
    };
    SL_TRY(sl_image_processor_read(s->path, &hand, log, &found, &p));
    if (!found) return SLUICE_OK;
    if (is_given(c, "data.normalize"))
        sl_log_write(log, SLUICE_LOG_NOTE,
                     "image_mean and image_std of %.600s/" SL_IMAGE_PROCESSOR " are not used: "
                     "data.normalize is given",
                     s->path);
    else
        SL_TRY(take_numbers(c, &p, log, s));
    take_sizes(c, &p, log, s);
    if (p.pillow != 0) take(c, "data.resample", &(sl_config_value){ .choice = filter_of(p.pillow) }, log, s);
    return SLUICE_OK;
}
