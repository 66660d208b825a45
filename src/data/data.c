/* data.c: the arithmetic common to all data sets.
 *
 * The endless training sequence is cut into epochs by division alone, and the order inside an epoch is a permutation
 * computed per element, so sample number n costs the same whether or not n - 1 was ever drawn. */
#include "data/data.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/bytes.h"
#include "core/io.h"
#include "core/rng.h"
#include "data/source.h"

void sluice_data_destroy(sluice_data *d)
{
    if (d != NULL) d->ops->destroy(d);
}

bool sl_data_has_tokens(const sluice_data *d)
{
    return d->ops->has_tokens;
}

int64_t sl_data_vocabulary(const sluice_data *d)
{
    return d->ops->vocabulary != NULL ? d->ops->vocabulary(d) : 0;
}

bool sl_data_packs(const sluice_data *d)
{
    return d->ops->packs != NULL && d->ops->packs(d);
}

int64_t sl_data_classes(const sluice_data *d)
{
    return d->ops->classes != NULL ? d->ops->classes(d) : 0;
}

const char *sl_data_class_name(const sluice_data *d, int64_t i)
{
    const char *name = d->ops->class_name != NULL ? d->ops->class_name(d, i) : NULL;
    return name != NULL ? name : "";
}

bool sl_data_image(const sluice_data *d, sl_image_size *out)
{
    if (d->ops->image == NULL) return false;
    d->ops->image(d, out);
    return true;
}

bool sl_data_prepared(const sluice_data *d, sl_image_processor *out)
{
    if (d->ops->prepared == NULL) return false;
    d->ops->prepared(d, out);
    return true;
}

bool sl_data_columns(const sluice_data *d, sl_column_counts *out)
{
    if (d->ops->columns == NULL) return false;
    d->ops->columns(d, out);
    return true;
}

bool sl_data_speech_size(const sluice_data *d, sl_speech_size *out)
{
    if (d->ops->speech == NULL) return false;
    d->ops->speech(d, out);
    return true;
}

const sl_vocabulary *sl_data_characters(const sluice_data *d)
{
    return d != NULL && d->ops->characters != NULL ? d->ops->characters(d) : NULL;
}

void sl_data_say(const sluice_data *d, const sl_log *log)
{
    if (d->ops->say != NULL) d->ops->say(d, log);
}

sl_data_place sl_data_locate(uint64_t seed, bool shuffle, int64_t samples, uint64_t number)
{
    uint64_t n = (uint64_t)samples;
    sl_data_place place = { .epoch = number / n, .sample = (int64_t)(number % n) };
    if (shuffle) {
        sl_rng order = sl_rng_stream(seed, SL_RNG_SHUFFLE, place.epoch, 0, SL_SHUFFLE_ORDER);
        place.sample = (int64_t)sl_rng_permute(&order, (uint64_t)place.sample, n);
    }
    return place;
}

sluice_status sl_data_first_sample(uint64_t index, int64_t rows, uint64_t *out)
{
    uint64_t first, last;
    if (!sl_mul_u64(index, (uint64_t)rows, &first) || !sl_add_u64(first, (uint64_t)rows, &last))
        return sl_fail(SLUICE_ERR_USAGE, "micro-batch %" PRIu64 " of %" PRId64 " rows: sample numbers end at 2^64",
                       index, rows);
    *out = first;
    return SLUICE_OK;
}

sluice_status sl_data_train_count(int64_t total, double validation, int64_t *out)
{
    if (!(validation >= 0 && validation < 1))
        return sl_fail(SLUICE_ERR_USAGE, "data.validation is %g; give a share from 0 to below 1", validation);
    /* The small term undoes the rounding of 1 - validation, so that 0.9 of 10 leaves 1 and not 0. */
    *out = (int64_t)floor((double)total * (1.0 - validation) + 1e-6);
    return SLUICE_OK;
}

bool sl_data_is_target(const char *field_name)
{
    return strcmp(field_name, "target") == 0 || strcmp(field_name, "targets") == 0;
}

int sl_data_find_column(const sl_data_column *columns, int count, const char *name)
{
    for (int i = 0; i < count; i++)
        if (strcmp(columns[i].name, name) == 0) return i;
    return -1;
}

/* "x", "target" for a message. */
static void list_columns(const sl_data_column *columns, int count, char *buf, size_t bytes)
{
    size_t used = 0;
    buf[0] = '\0';
    for (int i = 0; i < count && used < bytes; i++)
        used += (size_t)snprintf(buf + used, bytes - used, "%s\"%s\"", i > 0 ? ", " : "", columns[i].name);
}

static const char *dtype_word(sluice_dtype t)
{
    return t == SLUICE_F32 ? "f32" : "i32";
}

static sluice_status match_field(const char *kind, const sl_data_column *columns, int column_count,
                                 const sl_data_field *f)
{
    char names[256];
    int i = sl_data_find_column(columns, column_count, f->name);
    if (i < 0) {
        list_columns(columns, column_count, names, sizeof names);
        return sl_fail(SLUICE_ERR_USAGE, "the model's input \"%s\" is not in the %s data, which has %s", f->name, kind,
                       names);
    }
    const sl_data_column *c = &columns[i];
    if (c->elements != f->row_elements)
        return sl_fail(SLUICE_ERR_USAGE,
                       "the model's input \"%s\" takes %" PRId64 " elements a sample, the %s data has %" PRId64
                       "; make the model and the data agree",
                       f->name, f->row_elements, kind, c->elements);
    if (c->dtype != SLUICE_DTYPE_COUNT && c->dtype != f->dtype)
        return sl_fail(SLUICE_ERR_USAGE,
                       "the model's input \"%s\" is %s, the %s data has %s; does the loss fit the data?", f->name,
                       dtype_word(f->dtype), kind, dtype_word(c->dtype));
    return SLUICE_OK;
}

sluice_status sl_data_match(const char *kind, const sl_data_column *columns, int column_count,
                            const sl_data_field *fields, int field_count)
{
    for (int i = 0; i < field_count; i++) SL_TRY(match_field(kind, columns, column_count, &fields[i]));
    return SLUICE_OK;
}

void sl_identity_begin(sl_sha256 *h, const char *format, ...)
{
    char settings[512];
    va_list args;
    va_start(args, format);
    vsnprintf(settings, sizeof settings, format, args);
    va_end(args);
    sl_sha256_init(h);
    sl_sha256_update(h, settings, strlen(settings) + 1); /* the NUL keeps settings and contents apart */
}

void sl_identity_end(sl_sha256 *h, char hex[65])
{
    uint8_t digest[32];
    sl_sha256_final(h, digest);
    sl_sha256_hex(digest, hex);
}

bool sl_find_in(const char *folder, const char *const *names, char out[PATH_MAX])
{
    for (; *names != NULL; names++) {
        int n = snprintf(out, PATH_MAX, "%s/%s", folder, *names);
        if (n > 0 && n < PATH_MAX && sl_path_exists(out)) return true;
    }
    return false;
}
