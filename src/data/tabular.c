/* tabular.c: batches out of numbered rows, for every kind that can write one row at a time. */
#include <inttypes.h>

#include "data/source.h"

int64_t sl_table_samples(const sluice_data *d, sl_data_split split)
{
    const sl_table *t = (const sl_table *)d;
    return split == SL_SPLIT_TRAIN ? t->train : t->total - t->train;
}

/* Fields that are written together: their columns are looked up once for all rows. */
#define FIELDS_AT_ONCE 32

typedef struct field_group {
    const sl_data_field *fields;
    int count, columns[FIELDS_AT_ONCE];
} field_group;

static field_group group_from(const sl_table *t, const sl_data_field *fields, int first, int field_count)
{
    field_group g = { .fields = fields + first, .count = field_count - first };
    if (g.count > FIELDS_AT_ONCE) g.count = FIELDS_AT_ONCE;
    for (int f = 0; f < g.count; f++) g.columns[f] = sl_data_find_column(t->columns, t->column_count, g.fields[f].name);
    return g;
}

sluice_status sl_table_fill(sluice_data *d, uint64_t index, int64_t rows, const sl_data_field *fields, int field_count)
{
    const sl_table *t = (const sl_table *)d;
    uint64_t first;
    SL_TRY(sl_data_match(d->ops->name, t->columns, t->column_count, fields, field_count));
    SL_TRY(sl_data_first_sample(index, rows, &first));
    for (int from = 0; from < field_count; from += FIELDS_AT_ONCE) {
        field_group g = group_from(t, fields, from, field_count);
        for (int64_t r = 0; r < rows; r++) {
            sl_data_place place = sl_data_locate(t->seed, t->shuffle, t->train, first + (uint64_t)r);
            for (int f = 0; f < g.count; f++) t->write(t, place.sample, g.columns[f], sl_data_row(&g.fields[f], r));
        }
    }
    return SLUICE_OK;
}

static void ignore_row(const sl_data_field *f, int64_t row)
{
    int32_t *ids = sl_data_row(f, row);
    for (int64_t i = 0; i < f->row_elements; i++) ids[i] = -1;
}

/* Rows behind the last sample repeat it, and do not count where targets are classes. */
static void write_eval(const sl_table *t, int64_t sample, int column, const sl_data_field *f, int64_t row, bool real)
{
    if (!real && f->dtype == SLUICE_I32 && sl_data_is_target(f->name))
        ignore_row(f, row);
    else
        t->write(t, sample, column, sl_data_row(f, row));
}

sluice_status sl_table_fill_eval(sluice_data *d, sl_data_split split, int64_t first, int64_t rows,
                                 const sl_data_field *fields, int field_count, int64_t *valid)
{
    const sl_table *t = (const sl_table *)d;
    int64_t base = split == SL_SPLIT_TRAIN ? 0 : t->train, count = sl_table_samples(d, split);
    SL_TRY(sl_data_match(d->ops->name, t->columns, t->column_count, fields, field_count));
    if (first < 0 || first >= count)
        return sl_fail(SLUICE_ERR_USAGE,
                       "the %s data has %" PRId64 " samples to evaluate, number %" PRId64 " was asked for",
                       d->ops->name, count, first);
    int64_t real = count - first < rows ? count - first : rows;
    for (int from = 0; from < field_count; from += FIELDS_AT_ONCE) {
        field_group g = group_from(t, fields, from, field_count);
        for (int64_t r = 0; r < rows; r++)
            for (int f = 0; f < g.count; f++)
                write_eval(t, base + first + (r < real ? r : real - 1), g.columns[f], &g.fields[f], r, r < real);
    }
    *valid = real;
    return SLUICE_OK;
}
