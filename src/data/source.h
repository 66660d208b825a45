/* source.h: what the kinds of data set share; private to data/.
 *
 * A kind is either a table (rows addressed by sample number: synthetic data, the user's arrays), and then table.c draws
 * from it and the kind only writes single rows, or it fills batches itself (text, callback). */
#ifndef SL_DATA_SOURCE_H
#define SL_DATA_SOURCE_H

#include <limits.h>

#include "core/sha256.h"
#include "data/data.h"

/* Streams of the shuffle domain within one epoch. */
enum { SL_SHUFFLE_ORDER = 0, SL_SHUFFLE_PHASE = 1, SL_SHUFFLE_SLOTS = 2 };

/* Where one sample of the endless training sequence lies. */
typedef struct sl_data_place {
    uint64_t epoch;
    int64_t sample; /* in [0, samples) */
} sl_data_place;

/* Sample `number` of the endless sequence over `samples` samples: every epoch is a permutation of its own, or file
 * order. */
sl_data_place sl_data_locate(uint64_t seed, bool shuffle, int64_t samples, uint64_t number);
/* First sample number of micro-batch `index`; fails where the count passes 2^64. */
sluice_status sl_data_first_sample(uint64_t index, int64_t rows, uint64_t *out);
/* floor(total * (1 - validation)): the samples or tokens before the split. Refuses a share outside [0, 1). */
sluice_status sl_data_train_count(int64_t total, double validation, int64_t *out);
/* Whether padding rows of this i32 field get the ignore index. */
bool sl_data_is_target(const char *field_name);

/* A field that a data set can fill. */
typedef struct sl_data_column {
    const char *name;
    sluice_dtype dtype; /* SLUICE_DTYPE_COUNT: any, only the size is known */
    int64_t elements;   /* per sample */
} sl_data_column;

/* Column of that name, or -1. */
int sl_data_find_column(const sl_data_column *columns, int count, const char *name);
/* Every wanted field has a column of its type and size; SLUICE_ERR_USAGE names both sides otherwise. */
sluice_status sl_data_match(const char *kind, const sl_data_column *columns, int column_count,
                            const sl_data_field *fields, int field_count);

/* Row `row` of a field's buffer. All dtypes have 4 bytes. */
static inline void *sl_data_row(const sl_data_field *f, int64_t row)
{
    return (char *)f->buffer + (size_t)row * (size_t)f->row_elements * 4;
}

/* Data sets of numbered rows. Kinds embed it first, fill it in, and use the two fill functions below in their ops. */
typedef struct sl_table {
    sluice_data base;
    uint64_t seed;
    bool shuffle;
    int64_t train, total;          /* samples [0, train) train, [train, total) validate */
    const sl_data_column *columns; /* owned by the kind */
    int column_count;
    void (*write)(const struct sl_table *t, int64_t sample, int column, void *row); /* writes one row of one column */
} sl_table;

int64_t sl_table_samples(const sluice_data *d, sl_data_split split);
sluice_status sl_table_fill(sluice_data *d, uint64_t index, int64_t rows, const sl_data_field *fields, int field_count);
sluice_status sl_table_fill_eval(sluice_data *d, sl_data_split split, int64_t first, int64_t rows,
                                 const sl_data_field *fields, int field_count, int64_t *valid);

/* Whether a setting of text is there. */
static inline bool sl_given(const char *setting)
{
    return setting != NULL && setting[0] != '\0';
}
/* The first of these files that a folder has; the names end with NULL. False: it has none. */
bool sl_find_in(const char *folder, const char *const *names, char out[PATH_MAX]);

/* A hash begun with the settings as text; the kind adds its contents and finishes it. */
void sl_identity_begin(sl_sha256 *h, const char *format, ...) __attribute__((format(printf, 2, 3)));
void sl_identity_end(sl_sha256 *h, char hex[65]);

/* Decodes one UTF-8 character of the `left` bytes at p; returns its length, or 0 where they are not valid (over-long
 * forms, surrogates and values over U+10FFFF are not). */
int sl_utf8_decode(const unsigned char *p, size_t left, uint32_t *code_point);

#endif
