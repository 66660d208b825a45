/* table_file.c: rows of a CSV or TSV file: numbers, categories and a label.
 *
 * A file is read twice when it is opened: once to count rows, to find out which columns hold numbers and which labels there are, and
 * once to keep the values. Afterwards it is not looked at again: a value takes 4 bytes. Numbers are kept less the column's first one, in
 * which single precision loses less, until mean and deviation of the rows to train on are known; a missing one is the mean. Categories
 * are hashed by a rule that never changes (docs/data.md), so that a bucket means the same in every file and run. */
#include <fnmatch.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/hash.h"
#include "core/io.h"
#include "core/quote.h"
#include "data/labels.h"
#include "data/source.h"
#include "format/delimited.h"

#define MOST_ROWS ((int64_t)INT32_MAX)

/* What samples have; behind these each categorical column by itself, "category.0", "category.1" and so on. */
enum { COLUMN_X, COLUMN_CATEGORIES, COLUMN_TARGET, COLUMN_COUNT };
#define NAME_BYTES 32

typedef enum { USE_UNKNOWN, USE_NUMBER, USE_CATEGORY, USE_LABEL, USE_NOTHING } column_use;

typedef struct table_column {
    char *name; /* owned */
    column_use use;
    bool found;   /* by its values: nobody named it */
    bool numbers; /* so far every value is one, or missing */
    bool any;     /* number */
    int64_t missing;
    int64_t counted, odd; /* values that are numbers; others that are not missing */
    int64_t odd_line;     /* of the first of these, */
    char odd_text[32];    /* cut */
    double shift;         /* of numbers: the first one */
    float mean, deviation;
} table_column;

typedef struct table_rows {
    sl_table table;
    sl_data_column *columns;   /* owned: [COLUMN_COUNT + categorical] */
    char (*names)[NAME_BYTES]; /* owned: of the categorical ones */
    table_column *all;         /* owned: those of the file to train on, in its order */
    int all_count;
    int64_t numeric, categorical, buckets;
    sl_target_choice target;
    float *numbers;      /* owned: [total, numeric] */
    int32_t *categories; /* owned: [total, categorical] */
    void *targets;       /* owned: [total] i32 or f32 */
    sl_label_set labels; /* of classes */
    char identity[65];
} table_rows;

static bool is_missing(const char *text)
{
    static const char *const words[] = { "", "NA", "N/A", "nan", "NaN", "null", "NULL", "?" };
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strcmp(text, words[i]) == 0) return true;
    return false;
}

/* Decimal numbers alone: strtod reads more, and words among it. */
static bool read_number(const char *text, double *out)
{
    char *end;
    size_t bytes = strlen(text);
    if (bytes == 0 || strspn(text, "+-0123456789.eE") != bytes) return false;
    *out = strtod(text, &end);
    return *end == '\0' && isfinite(*out) && fabs(*out) <= 1e30;
}

/* ---- which columns there are ---- */

static bool matches(const char *const *patterns, int count, const char *name, uint8_t *used)
{
    bool any = false;
    for (int i = 0; i < count; i++)
        if (fnmatch(patterns[i], name, 0) == 0) {
            used[i] = 1;
            any = true;
        }
    return any;
}

static const char *first_unused(const char *const *patterns, int count, const uint8_t *used)
{
    for (int i = 0; i < count; i++)
        if (!used[i]) return patterns[i];
    return NULL;
}

static sluice_status fail_pattern(const sl_delimited *d, const char *key, const char *pattern)
{
    return sl_fail(SLUICE_ERR_USAGE, "%s: %s is no column of %s, which are %s, ... %s", key, sl_quote(pattern).text,
                   sl_show(d->path).text, sl_quote(d->names[0]).text, sl_quote(d->names[d->columns - 1]).text);
}

/* What settings say of the columns; the label is known. `used`: a byte for each pattern, zeroed. */
static sluice_status assign_uses(table_rows *t, const sl_data_options *o, const sl_delimited *d, uint8_t *used)
{
    uint8_t *numeric = used, *categorical = numeric + o->numeric_count, *ignored = categorical + o->categorical_count;
    bool complete = o->numeric_count > 0 && o->categorical_count > 0;
    for (int i = 0; i < t->all_count; i++) {
        table_column *c = &t->all[i];
        bool number = matches(o->numeric, o->numeric_count, c->name, numeric);
        bool category = matches(o->categorical, o->categorical_count, c->name, categorical);
        bool ignore = matches(o->ignored, o->ignored_count, c->name, ignored);
        if (c->use == USE_LABEL) continue;
        if (number && category)
            return sl_fail(SLUICE_ERR_USAGE, "data.columns: %s is both numeric and categorical",
                           sl_quote(c->name).text);
        c->use = ignore     ? USE_NOTHING
                 : number   ? USE_NUMBER
                 : category ? USE_CATEGORY
                 : complete ? USE_NOTHING
                            : USE_UNKNOWN;
        c->found = c->use == USE_UNKNOWN;
    }
    const char *left = first_unused(o->numeric, o->numeric_count, numeric);
    if (left != NULL) return fail_pattern(d, "data.columns.numeric", left);
    left = first_unused(o->categorical, o->categorical_count, categorical);
    if (left != NULL) return fail_pattern(d, "data.columns.categorical", left);
    left = first_unused(o->ignored, o->ignored_count, ignored);
    return left == NULL ? SLUICE_OK : fail_pattern(d, "data.columns.ignore", left);
}

static sluice_status find_label(const sl_data_options *o, const sl_delimited *d, int *out)
{
    static const char *const usual[] = { "label", "target", "class", "click", "clicked", "y" };
    *out = -1;
    if (sl_given(o->label_column)) {
        *out = sl_delimited_find(d, o->label_column, false);
        return *out >= 0 ? SLUICE_OK : fail_pattern(d, "data.columns.label", o->label_column);
    }
    for (size_t i = 0; i < sizeof usual / sizeof usual[0] && *out < 0; i++) *out = sl_delimited_find(d, usual[i], true);
    if (*out >= 0) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_INPUT,
                   "%s: line 1 names no column of labels that is known (label, target, class, click, y); name it with "
                   "data.columns.label",
                   sl_show(d->path).text);
}

static sluice_status take_header(table_rows *t, const sl_data_options *o, const sl_delimited *d)
{
    int label;
    size_t patterns = (size_t)(o->numeric_count + o->categorical_count + o->ignored_count);
    SL_TRY(find_label(o, d, &label));
    t->all = sl_alloc_array((size_t)d->columns, sizeof *t->all, "columns of a table");
    if (t->all == NULL) return SLUICE_ERR_NO_MEMORY;
    for (int i = 0; i < d->columns; i++, t->all_count++) {
        t->all[i] = (table_column){ .numbers = true, .use = i == label ? USE_LABEL : USE_UNKNOWN };
        if ((t->all[i].name = sl_strdup(d->names[i], "name of a column")) == NULL) return SLUICE_ERR_NO_MEMORY;
    }
    uint8_t *used = sl_alloc(patterns, "columns of a table");
    if (used == NULL) return SLUICE_ERR_NO_MEMORY;
    sluice_status st = assign_uses(t, o, d, used);
    sl_free(used);
    return st;
}

/* ---- the first reading ---- */

static sluice_status look_at_label(table_rows *t, const sl_delimited *d, const sl_delimited_field *f)
{
    int32_t id;
    if (t->target == SL_TARGET_NUMBER) return SLUICE_OK;
    if (f->bytes == 0) return sl_fail(SLUICE_ERR_INPUT, "%s: the label is empty", sl_delimited_place(d).text);
    if (f->bytes > SL_MOST_LABEL_BYTES)
        return sl_fail(SLUICE_ERR_INPUT, "%s: a label of %zu bytes; at most %d are read", sl_delimited_place(d).text,
                       f->bytes, SL_MOST_LABEL_BYTES);
    SL_TRY(sl_labels_add(&t->labels, f->text, &id));
    if (id < 0 || (t->target == SL_TARGET_BINARY && id > 1))
        return sl_fail(SLUICE_ERR_INPUT, "%s: label %s, and %d others come before it%s", sl_delimited_place(d).text,
                       sl_quote(f->text).text, (int)(t->target == SL_TARGET_BINARY ? 2 : SL_MOST_LABELS),
                       t->target == SL_TARGET_BINARY ? ", where there should be two in all"
                                                     : "; set data.target to \"number\" where it is one");
    return SLUICE_OK;
}

static void note_odd(table_column *c, int64_t line, const char *text)
{
    if (c->odd++ > 0) return;
    c->odd_line = line;
    snprintf(c->odd_text, sizeof c->odd_text, "%s", text);
}

static sluice_status look_at_record(table_rows *t, const sl_delimited *d)
{
    for (int i = 0; i < t->all_count; i++) {
        table_column *c = &t->all[i];
        const char *text = d->fields[i].text;
        double number;
        if (c->use == USE_LABEL) SL_TRY(look_at_label(t, d, &d->fields[i]));
        if (c->use != USE_UNKNOWN && c->use != USE_NUMBER) continue;
        if (read_number(text, &number)) {
            if (!c->any) c->shift = number;
            c->any = true;
            c->counted++;
        } else if (is_missing(text)) {
            c->missing++;
        } else {
            c->numbers = false;
            note_odd(c, d->line, text);
        }
    }
    return SLUICE_OK;
}

static void decide_uses(table_rows *t)
{
    for (int i = 0; i < t->all_count; i++) {
        table_column *c = &t->all[i];
        if (c->use == USE_UNKNOWN) c->use = c->numbers && c->any ? USE_NUMBER : USE_CATEGORY;
        t->numeric += c->use == USE_NUMBER;
        t->categorical += c->use == USE_CATEGORY;
    }
}

static sluice_status count_rows(const int *stop, sl_delimited *d, table_rows *t, bool looks, int64_t *rows)
{
    bool more;
    *rows = 0;
    for (;;) {
        SL_TRY(sl_delimited_next(stop, d, &more));
        if (!more) break;
        if (looks) SL_TRY(look_at_record(t, d));
        if (++*rows > MOST_ROWS)
            return sl_fail(SLUICE_ERR_INPUT, "%s: more than %" PRId64 " rows", sl_show(d->path).text, MOST_ROWS);
    }
    if (*rows > 0) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_INPUT, "%s has no rows behind its header", sl_show(d->path).text);
}

static sluice_status settle_labels(table_rows *t, const sl_data_options *o, const char *path)
{
    int32_t *map;
    if (t->target == SL_TARGET_NUMBER) return SLUICE_OK;
    if (t->labels.count < 2)
        return sl_fail(SLUICE_ERR_INPUT, "%s: every label is %s; there is nothing to tell apart", sl_show(path).text,
                       sl_quote(t->labels.names[0]).text);
    if (o->classes > 0 && o->classes != t->labels.count)
        return sl_fail(SLUICE_ERR_INPUT, "%s has %" PRId64 " different labels (%s), and data.classes is %" PRId64,
                       sl_show(path).text, t->labels.count, sl_labels_list(&t->labels).text, o->classes);
    SL_TRY(sl_labels_sort(&t->labels, &map));
    sl_free(map); /* nothing was kept by the old numbers */
    return SLUICE_OK;
}

/* ---- the second reading ---- */

/* Where the columns of the file to train on are in the one at hand. */
static sluice_status match_columns(const table_rows *t, const sl_delimited *d, int *places)
{
    for (int i = 0; i < t->all_count; i++) {
        places[i] = t->all[i].use == USE_NOTHING ? 0 : sl_delimited_find(d, t->all[i].name, false);
        if (places[i] < 0)
            return sl_fail(SLUICE_ERR_INPUT, "%s: line 1 has no column %s, which is trained on", sl_show(d->path).text,
                           sl_quote(t->all[i].name).text);
    }
    return SLUICE_OK;
}

static sluice_status fail_number(const table_column *c, const sl_delimited *d, const char *text)
{
    return sl_fail(SLUICE_ERR_INPUT, "%s: %s in column %s is no number%s", sl_delimited_place(d).text,
                   sl_quote(text).text, sl_quote(c->name).text,
                   c->found ? ", as those of the rows to train on are; name it in data.columns.categorical"
                   : c->use == USE_NUMBER ? "; data.columns.numeric names it"
                                          : "; data.target is \"number\"");
}

/* FNV-1a, its upper half folded into the lower, modulo the buckets: part of what a trained model means. */
static int32_t bucket_of(const sl_delimited_field *f, int64_t buckets)
{
    uint64_t h = sl_hash_bytes(SL_HASH_START, f->text, f->bytes);
    return (int32_t)((h ^ h >> 32) % (uint64_t)buckets);
}

static sluice_status keep_label(table_rows *t, const table_column *c, const sl_delimited *d, const char *text,
                                int64_t row)
{
    if (t->target == SL_TARGET_NUMBER) {
        double number;
        if (!read_number(text, &number)) return fail_number(c, d, text);
        ((float *)t->targets)[row] = (float)number;
        return SLUICE_OK;
    }
    int32_t id = sl_labels_find(&t->labels, text);
    if (id < 0)
        return sl_fail(SLUICE_ERR_INPUT, "%s: label %s is none of those that are trained on: %s",
                       sl_delimited_place(d).text, sl_quote(text).text, sl_labels_list(&t->labels).text);
    if (t->target == SL_TARGET_BINARY)
        ((float *)t->targets)[row] = (float)id;
    else
        ((int32_t *)t->targets)[row] = id;
    return SLUICE_OK;
}

static sluice_status keep_record(table_rows *t, const sl_delimited *d, const int *places, int64_t row)
{
    float *numbers = t->numbers + row * t->numeric;
    int32_t *categories = t->categories + row * t->categorical;
    for (int i = 0; i < t->all_count; i++) {
        const table_column *c = &t->all[i];
        const sl_delimited_field *f = &d->fields[places[i]];
        double number;
        if (c->use == USE_LABEL) SL_TRY(keep_label(t, c, d, f->text, row));
        if (c->use == USE_CATEGORY) *categories++ = bucket_of(f, t->buckets);
        if (c->use != USE_NUMBER) continue;
        if (read_number(f->text, &number))
            *numbers++ = (float)(number - c->shift);
        else if (is_missing(f->text))
            *numbers++ = NAN;
        else
            return fail_number(c, d, f->text);
    }
    return SLUICE_OK;
}

static sluice_status keep_rows(const int *stop, sl_delimited *d, table_rows *t, int64_t first, int64_t count)
{
    int *places = sl_alloc_array((size_t)t->all_count, sizeof *places, "columns of a table");
    sluice_status st = places != NULL ? match_columns(t, d, places) : SLUICE_ERR_NO_MEMORY;
    bool more = true;
    int64_t row = 0;
    while (st == SLUICE_OK && more) {
        st = sl_delimited_next(stop, d, &more);
        if (st != SLUICE_OK || !more) break;
        if (row == count) {
            row++;
            break;
        }
        st = keep_record(t, d, places, first + row++);
    }
    sl_free(places);
    if (st == SLUICE_OK && row != count)
        st = sl_fail(SLUICE_ERR_INPUT, "%s has changed while it was read", sl_show(d->path).text);
    return st;
}

/* ---- normalisation ---- */

/* Of one column over the rows to train on, in double precision and file order. */
static void measure_column(const table_rows *t, int64_t column, table_column *c)
{
    double sum = 0, squares = 0;
    int64_t count = 0;
    for (int64_t r = 0; r < t->table.train; r++) {
        double v = (double)t->numbers[r * t->numeric + column];
        if (isnan(v)) continue;
        sum += v;
        count++;
    }
    double mean = count > 0 ? sum / (double)count : 0;
    for (int64_t r = 0; r < t->table.train; r++) {
        double v = (double)t->numbers[r * t->numeric + column] - mean;
        if (!isnan(v)) squares += v * v;
    }
    double deviation = count > 0 ? sqrt(squares / (double)count) : 0;
    c->mean = (float)mean;
    c->deviation = deviation > 0 && isfinite(1 / (float)deviation) ? (float)deviation : 1;
}

static void normalise(table_rows *t)
{
    int64_t column = 0;
    for (int i = 0; i < t->all_count; i++) {
        table_column *c = &t->all[i];
        if (c->use != USE_NUMBER) continue;
        measure_column(t, column, c);
        for (int64_t r = 0; r < t->table.total; r++) {
            float *v = &t->numbers[r * t->numeric + column];
            *v = isnan(*v) ? 0 : (*v - c->mean) / c->deviation;
        }
        column++;
    }
}

/* ---- opening ---- */

static char separator_of(const sl_data_options *o)
{
    static const char characters[] = { ',', '\t', ';' };
    return o->separator == SL_SEPARATOR_AUTO ? SL_ANY_SEPARATOR : characters[o->separator];
}

static sluice_status make_room(table_rows *t)
{
    size_t rows = (size_t)t->table.total;
    t->numbers = sl_alloc_array(rows, (size_t)t->numeric * sizeof(float), "numbers of a table");
    t->categories = sl_alloc_array(rows, (size_t)t->categorical * sizeof(int32_t), "categories of a table");
    t->targets = sl_alloc_array(rows, 4, "labels of a table");
    return t->numbers != NULL && t->categories != NULL && t->targets != NULL ? SLUICE_OK : SLUICE_ERR_NO_MEMORY;
}

/* files[1] is open where has_other. */
static sluice_status read_files(table_rows *t, const sl_data_options *o, sl_delimited files[2], bool has_other)
{
    int64_t rows[2] = { 0, 0 };
    SL_TRY(take_header(t, o, &files[0]));
    SL_TRY(count_rows(o->stop, &files[0], t, true, &rows[0]));
    decide_uses(t);
    if (t->numeric + t->categorical == 0)
        return sl_fail(SLUICE_ERR_INPUT, "%s: there is no column to learn from beside the label",
                       sl_show(files[0].path).text);
    SL_TRY(settle_labels(t, o, files[0].path));
    if (has_other) SL_TRY(count_rows(o->stop, &files[1], t, false, &rows[1]));
    t->table.total = rows[0] + rows[1];
    t->table.train = rows[0];
    if (!has_other) SL_TRY(sl_data_train_count(rows[0], o->validation, &t->table.train));
    if (t->table.train < 1)
        return sl_fail(SLUICE_ERR_USAGE, "data.validation %g leaves no row to train on", o->validation);
    SL_TRY(make_room(t));
    for (int i = 0; i < 1 + has_other; i++) {
        sl_delimited_rewind(&files[i]);
        SL_TRY(keep_rows(o->stop, &files[i], t, i * rows[0], rows[i]));
    }
    normalise(t);
    return SLUICE_OK;
}

static bool find_beside(const char *folder, const char *stem, char out[PATH_MAX])
{
    static const char *const endings[] = { "csv", "tsv" };
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++) {
        int n = snprintf(out, PATH_MAX, "%s/%s.%s", folder, stem, endings[i]);
        if (n > 0 && n < PATH_MAX && sl_path_exists(out)) return true;
    }
    out[0] = '\0';
    return false;
}

/* The file to train on and, where there is one, the file to validate on ("": none). */
static sluice_status find_files(const sl_data_options *o, char train[PATH_MAX], char other[PATH_MAX])
{
    static const char *const stems[] = { "validation", "valid", "val", "dev", "test" };
    sl_path_info info;
    other[0] = '\0';
    if (!sl_given(o->path)) return sl_fail(SLUICE_ERR_USAGE, "data.path is missing; give a CSV or TSV file");
    if (sl_given(o->validation_path) && o->validation > 0)
        return sl_fail(
            SLUICE_ERR_USAGE,
            "data.validation sets a share of data.path aside and data.validation_path names a file; give one");
    SL_TRY(sl_path_look(o->path, &info));
    if (info.kind == SL_PATH_FOLDER) {
        if (!find_beside(o->path, "train", train))
            return sl_fail(SLUICE_ERR_INPUT, "%s: neither train.csv nor train.tsv is there; name a file",
                           sl_show(o->path).text);
        for (size_t i = 0; i < sizeof stems / sizeof stems[0] && !(o->validation > 0) && other[0] == '\0'; i++)
            find_beside(o->path, stems[i], other);
    } else if (snprintf(train, PATH_MAX, "%s", o->path) >= PATH_MAX) {
        return sl_fail(SLUICE_ERR_USAGE, "data.path: the path is too long");
    }
    if (sl_given(o->validation_path) && snprintf(other, PATH_MAX, "%s", o->validation_path) >= PATH_MAX)
        return sl_fail(SLUICE_ERR_USAGE, "data.validation_path: the path is too long");
    return SLUICE_OK;
}

static sluice_status load(table_rows *t, const sl_data_options *o)
{
    char paths[2][PATH_MAX];
    sl_delimited files[2] = { { .path = NULL }, { .path = NULL } };
    SL_TRY(find_files(o, paths[0], paths[1]));
    bool has_other = paths[1][0] != '\0';
    sluice_status st = sl_delimited_open(paths[0], separator_of(o), true, &files[0]);
    if (st == SLUICE_OK && has_other) st = sl_delimited_open(paths[1], separator_of(o), true, &files[1]);
    if (st == SLUICE_OK) st = read_files(t, o, files, has_other);
    for (int i = 0; i < 2; i++) sl_delimited_close(&files[i]);
    return st;
}

/* ---- the data set ---- */

static void rows_write(const sl_table *table, int64_t sample, int column, void *row)
{
    const table_rows *t = (const table_rows *)table;
    if (column == COLUMN_X) memcpy(row, t->numbers + sample * t->numeric, (size_t)t->numeric * 4);
    if (column == COLUMN_CATEGORIES) memcpy(row, t->categories + sample * t->categorical, (size_t)t->categorical * 4);
    if (column == COLUMN_TARGET) memcpy(row, (const char *)t->targets + sample * 4, 4);
    if (column >= COLUMN_COUNT) memcpy(row, t->categories + sample * t->categorical + (column - COLUMN_COUNT), 4);
}

static void rows_destroy(sluice_data *d)
{
    table_rows *t = (table_rows *)d;
    for (int i = 0; i < t->all_count; i++) sl_free(t->all[i].name);
    sl_free(t->all);
    sl_free(t->numbers);
    sl_free(t->categories);
    sl_free(t->targets);
    sl_free(t->columns);
    sl_free(t->names);
    sl_labels_free(&t->labels);
    sl_free(t);
}

static uint64_t rows_memory(const sluice_data *d)
{
    const table_rows *t = (const table_rows *)d;
    return sizeof *t + (uint64_t)t->table.total * (uint64_t)(t->numeric + t->categorical + 1) * 4 +
           (uint64_t)t->all_count * (sizeof *t->all + 64) + (uint64_t)t->labels.capacity * 64;
}

static void rows_identity(const sluice_data *d, char sha256[65])
{
    memcpy(sha256, ((const table_rows *)d)->identity, 65);
}

static int64_t rows_classes(const sluice_data *d)
{
    return ((const table_rows *)d)->labels.count;
}

static const char *rows_class_name(const sluice_data *d, int64_t i)
{
    const table_rows *t = (const table_rows *)d;
    return i >= 0 && i < t->labels.count ? t->labels.names[i] : NULL;
}

static void rows_columns(const sluice_data *d, sl_column_counts *out)
{
    const table_rows *t = (const table_rows *)d;
    *out = (sl_column_counts){ t->numeric, t->categorical, t->buckets };
}

/* "a, b, c, ..." of one use. */
static const char *list_columns(const table_rows *t, column_use use, char *out, size_t bytes)
{
    size_t used = 0;
    out[0] = '\0';
    for (int i = 0; i < t->all_count; i++) {
        if (t->all[i].use != use) continue;
        sl_quoted name = sl_quote(t->all[i].name);
        if (used + strlen(name.text) + 8 > bytes) {
            snprintf(out + used, bytes - used, ", ...");
            break;
        }
        used += (size_t)snprintf(out + used, bytes - used, "%s%s", used > 0 ? ", " : "", name.text);
    }
    return out;
}

/* A column that would be one of numbers but for a few values, of which the first is told. */
static void say_odd(const table_rows *t, const sl_log *log)
{
    enum { NUMBERS_TO_ONE = 3 };
    for (int i = 0; i < t->all_count; i++) {
        const table_column *c = &t->all[i];
        if (!c->found || c->use != USE_CATEGORY || c->odd == 0 || c->counted < NUMBERS_TO_ONE * c->odd) continue;
        sl_log_write(log, SLUICE_LOG_NOTE,
                     "data: column %s is taken as categories: %" PRId64 " of its values are numbers, and %" PRId64
                     " %s none, the first %s in line %" PRId64
                     "; mend %s, or name the column in data.columns.categorical",
                     sl_quote(c->name).text, c->counted, c->odd, c->odd == 1 ? "is" : "are", sl_quote(c->odd_text).text,
                     c->odd_line, c->odd == 1 ? "it" : "them");
    }
}

static void rows_say(const sluice_data *d, const sl_log *log)
{
    const table_rows *t = (const table_rows *)d;
    char list[400], classes[200] = "numbers as labels";
    if (t->target != SL_TARGET_NUMBER) snprintf(classes, sizeof classes, "labels %s", sl_labels_list(&t->labels).text);
    sl_log_write(log, SLUICE_LOG_NOTE, "data: %" PRId64 " rows to train on and %" PRId64 " to validate, %s",
                 t->table.train, t->table.total - t->table.train, classes);
    if (t->numeric > 0)
        sl_log_write(log, SLUICE_LOG_NOTE, "data: %" PRId64 " numeric column%s: %s", t->numeric,
                     t->numeric == 1 ? "" : "s", list_columns(t, USE_NUMBER, list, sizeof list));
    if (t->categorical > 0)
        sl_log_write(log, SLUICE_LOG_NOTE, "data: %" PRId64 " categorical column%s in %" PRId64 " buckets%s: %s",
                     t->categorical, t->categorical == 1 ? "" : "s", t->buckets, t->categorical == 1 ? "" : " each",
                     list_columns(t, USE_CATEGORY, list, sizeof list));
    say_odd(t, log);
    for (int i = 0; i < t->all_count; i++)
        if (t->all[i].use == USE_NUMBER && t->all[i].missing > 0)
            sl_log_write(log, SLUICE_LOG_DETAIL, "data: %" PRId64 " numbers of %s are missing, and taken as the mean",
                         t->all[i].missing, sl_quote(t->all[i].name).text);
}

static const sl_data_ops rows_ops = {
    .name = "table",
    .destroy = rows_destroy,
    .samples = sl_table_samples,
    .fill = sl_table_fill,
    .fill_eval = sl_table_fill_eval,
    .memory_bytes = rows_memory,
    .identity = rows_identity,
    .classes = rows_classes,
    .class_name = rows_class_name,
    .columns = rows_columns,
    .say = rows_say,
};

static void identify(table_rows *t)
{
    sl_sha256 h;
    size_t rows = (size_t)t->table.total;
    sl_identity_begin(&h,
                      "table of %" PRId64 " rows, train %" PRId64 ", numeric %" PRId64 ", categorical %" PRId64
                      " in %" PRId64 ", target %d, shuffle %d, seed %" PRIu64,
                      t->table.total, t->table.train, t->numeric, t->categorical, t->buckets, (int)t->target,
                      t->table.shuffle, t->table.seed);
    sl_sha256_update(&h, t->numbers, rows * (size_t)t->numeric * 4);
    sl_sha256_update(&h, t->categories, rows * (size_t)t->categorical * 4);
    sl_sha256_update(&h, t->targets, rows * 4);
    sl_identity_end(&h, t->identity);
}

static sluice_status describe(table_rows *t)
{
    size_t count = (size_t)(COLUMN_COUNT + t->categorical);
    t->columns = sl_alloc_array(count, sizeof *t->columns, "columns of a table");
    t->names = sl_alloc_array((size_t)t->categorical, sizeof *t->names, "columns of a table");
    if (t->columns == NULL || t->names == NULL) return SLUICE_ERR_NO_MEMORY;
    t->columns[COLUMN_X] = (sl_data_column){ "x", SLUICE_F32, t->numeric };
    t->columns[COLUMN_CATEGORIES] = (sl_data_column){ "categories", SLUICE_I32, t->categorical };
    t->columns[COLUMN_TARGET] = (sl_data_column){ "target", t->target == SL_TARGET_CLASS ? SLUICE_I32 : SLUICE_F32, 1 };
    for (int64_t i = 0; i < t->categorical; i++) {
        snprintf(t->names[i], NAME_BYTES, "category.%" PRId64, i);
        t->columns[COLUMN_COUNT + i] = (sl_data_column){ t->names[i], SLUICE_I32, 1 };
    }
    t->table.columns = t->columns;
    t->table.column_count = (int)count;
    return SLUICE_OK;
}

sluice_status sl_data_table(const sl_data_options *o, sluice_data **out)
{
    if (o->hash_buckets < 1 || o->hash_buckets > INT32_MAX)
        return sl_fail(SLUICE_ERR_USAGE, "data.hash_buckets is %" PRId64 "; give 1 to %d", o->hash_buckets, INT32_MAX);
    table_rows *t = sl_alloc(sizeof *t, "table");
    if (t == NULL) return SLUICE_ERR_NO_MEMORY;
    t->buckets = o->hash_buckets;
    t->target = o->target == SL_TARGET_AUTO ? SL_TARGET_CLASS : (sl_target_choice)o->target;
    t->table =
        (sl_table){ .base = { &rows_ops }, .seed = (uint64_t)o->seed, .shuffle = o->shuffle, .write = rows_write };
    sluice_status st = load(t, o);
    if (st == SLUICE_OK) st = describe(t);
    if (st != SLUICE_OK) {
        rows_destroy(&t->table.base);
        return st;
    }
    identify(t);
    *out = &t->table.base;
    return SLUICE_OK;
}
