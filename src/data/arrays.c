/* arrays.c: the user's own data: whole arrays in memory, or a callback that writes each micro-batch.
 *
 * Arrays are borrowed and never copied; a batch gathers their rows. A callback is handed the engine's buffers as they
 * are, so the user's reader can be as large as it likes without sluice knowing it. */
#include <inttypes.h>
#include <string.h>

#include "core/alloc.h"
#include "core/arena.h"
#include "data/source.h"

/* Inputs of a model that a callback can be asked to fill. */
#define MAX_CALLBACK_FIELDS 32

typedef struct arrays {
    sl_table table;
    sl_arena arena; /* owns columns, names and data[] */
    sl_data_column *columns;
    const char **data; /* data[i]: the user's bytes of column i; borrowed */
    uint64_t held_bytes;
} arrays;

static void arrays_write(const sl_table *t, int64_t sample, int column, void *row)
{
    const arrays *a = (const arrays *)t;
    size_t bytes = (size_t)a->columns[column].elements * 4;
    memcpy(row, a->data[column] + (size_t)sample * bytes, bytes);
}

static void arrays_destroy(sluice_data *d)
{
    arrays *a = (arrays *)d;
    sl_arena_free(&a->arena);
    sl_free(a);
}

static uint64_t arrays_memory(const sluice_data *d)
{
    return ((const arrays *)d)->held_bytes;
}

static void arrays_identity(const sluice_data *d, char sha256[65])
{
    const arrays *a = (const arrays *)d;
    sl_sha256 h;
    sl_identity_begin(&h, "arrays samples %" PRId64 " shuffle %d seed %" PRIu64, a->table.total, a->table.shuffle,
                      a->table.seed);
    for (int i = 0; i < a->table.column_count; i++) {
        const sl_data_column *c = &a->columns[i];
        sl_sha256_update(&h, c->name, strlen(c->name) + 1);
        sl_sha256_update(&h, &c->elements, sizeof c->elements);
        sl_sha256_update(&h, a->data[i], (size_t)a->table.total * (size_t)c->elements * 4);
    }
    sl_identity_end(&h, sha256);
}

static const sl_data_ops arrays_ops = {
    .name = "arrays",
    .destroy = arrays_destroy,
    .samples = sl_table_samples,
    .fill = sl_table_fill,
    .fill_eval = sl_table_fill_eval,
    .memory_bytes = arrays_memory,
    .identity = arrays_identity,
};

static sluice_status check_array(const sluice_array *all, int i, int64_t samples)
{
    const sluice_array *a = &all[i];
    uint64_t row = (uint64_t)a->bytes / (uint64_t)samples;
    if (a->name == NULL) return sl_fail(SLUICE_ERR_USAGE, "sluice_data_from_arrays: array %d has no name", i);
    if (a->data == NULL) return sl_fail(SLUICE_ERR_USAGE, "sluice_data_from_arrays: array \"%s\" has no data", a->name);
    if (row == 0 || row % 4 != 0 || row * (uint64_t)samples != a->bytes)
        return sl_fail(SLUICE_ERR_USAGE,
                       "sluice_data_from_arrays: array \"%s\" of %zu bytes is not %" PRId64
                       " rows of whole 4-byte elements",
                       a->name, a->bytes, samples);
    for (int j = 0; j < i; j++)
        if (strcmp(all[j].name, a->name) == 0)
            return sl_fail(SLUICE_ERR_USAGE, "sluice_data_from_arrays: array \"%s\" is given twice", a->name);
    return SLUICE_OK;
}

/* Copies the checked descriptions; the bytes stay the user's. */
static sluice_status take_columns(arrays *a, const sluice_array *given, int count, int64_t samples)
{
    a->columns = sl_arena_array(&a->arena, (size_t)count, sizeof *a->columns);
    a->data = sl_arena_array(&a->arena, (size_t)count, sizeof *a->data);
    if (a->columns == NULL || a->data == NULL) return SLUICE_ERR_NO_MEMORY;
    for (int i = 0; i < count; i++) {
        char *name = sl_arena_strdup(&a->arena, given[i].name);
        if (name == NULL) return SLUICE_ERR_NO_MEMORY;
        a->columns[i] = (sl_data_column){ name, SLUICE_DTYPE_COUNT, (int64_t)(given[i].bytes / (uint64_t)samples / 4) };
        a->data[i] = given[i].data;
        a->held_bytes += sizeof *a->columns + sizeof *a->data + strlen(name) + 1;
    }
    a->table.columns = a->columns;
    a->table.column_count = count;
    return SLUICE_OK;
}

sluice_status sluice_data_from_arrays(const sluice_array *given, int count, int64_t samples, bool shuffle,
                                      uint64_t seed, sluice_data **out)
{
    sluice_status st;
    if (given == NULL || count < 1 || out == NULL)
        return sl_fail(SLUICE_ERR_USAGE,
                       "sluice_data_from_arrays: at least one array and a place for the result are needed");
    if (samples < 1)
        return sl_fail(SLUICE_ERR_USAGE, "sluice_data_from_arrays: samples is %" PRId64 "; give 1 or more", samples);
    for (int i = 0; i < count; i++) SL_TRY(check_array(given, i, samples));
    arrays *a = sl_alloc(sizeof *a, "arrays data");
    if (a == NULL) return SLUICE_ERR_NO_MEMORY;
    a->table = (sl_table){ .base = { &arrays_ops },
                           .seed = seed,
                           .shuffle = shuffle,
                           .train = samples,
                           .total = samples,
                           .write = arrays_write };
    a->held_bytes = sizeof *a;
    sl_arena_init(&a->arena, "arrays data");
    if ((st = take_columns(a, given, count, samples)) != SLUICE_OK) {
        arrays_destroy(&a->table.base);
        return st;
    }
    *out = &a->table.base;
    return SLUICE_OK;
}

typedef struct callback {
    sluice_data base;
    sluice_fill_fn fill;
    void *user; /* borrowed */
} callback;

static void callback_destroy(sluice_data *d)
{
    sl_free(d);
}

static int64_t callback_samples(const sluice_data *d, sl_data_split split)
{
    (void)d, (void)split;
    return 0;
}

static sluice_status callback_fill(sluice_data *d, uint64_t index, int64_t rows, const sl_data_field *fields,
                                   int field_count)
{
    callback *c = (callback *)d;
    const char *names[MAX_CALLBACK_FIELDS];
    void *buffers[MAX_CALLBACK_FIELDS];
    size_t bytes[MAX_CALLBACK_FIELDS];
    if (field_count > MAX_CALLBACK_FIELDS)
        return sl_fail(SLUICE_ERR_USAGE, "a data callback can fill %d inputs, the model has %d", MAX_CALLBACK_FIELDS,
                       field_count);
    for (int i = 0; i < field_count; i++) {
        names[i] = fields[i].name;
        buffers[i] = fields[i].buffer;
        bytes[i] = (size_t)rows * (size_t)fields[i].row_elements * 4;
    }
    sluice_status st = c->fill(c->user, index, names, buffers, bytes, field_count);
    if (st != SLUICE_OK)
        return sl_fail(st, "the data callback returned status %d for micro-batch %" PRIu64, (int)st, index);
    return SLUICE_OK;
}

static sluice_status callback_fill_eval(sluice_data *d, sl_data_split split, int64_t first, int64_t rows,
                                        const sl_data_field *fields, int field_count, int64_t *valid)
{
    (void)d, (void)split, (void)first, (void)rows, (void)fields, (void)field_count, (void)valid;
    return sl_fail(SLUICE_ERR_USAGE,
                   "a data callback has no evaluation split; evaluate with sluice_evaluate on batches of your own");
}

static uint64_t callback_memory(const sluice_data *d)
{
    (void)d;
    return sizeof(callback);
}

/* What the callback will write cannot be known. */
static void callback_identity(const sluice_data *d, char sha256[65])
{
    (void)d;
    sha256[0] = '\0';
}

static const sl_data_ops callback_ops = {
    .name = "callback",
    .destroy = callback_destroy,
    .samples = callback_samples,
    .fill = callback_fill,
    .fill_eval = callback_fill_eval,
    .memory_bytes = callback_memory,
    .identity = callback_identity,
};

sluice_status sluice_data_from_callback(sluice_fill_fn fill, void *user, sluice_data **out)
{
    if (fill == NULL || out == NULL)
        return sl_fail(SLUICE_ERR_USAGE, "sluice_data_from_callback: a function and a place for the result are needed");
    callback *c = sl_alloc(sizeof *c, "callback data");
    if (c == NULL) return SLUICE_ERR_NO_MEMORY;
    *c = (callback){ { &callback_ops }, fill, user };
    *out = &c->base;
    return SLUICE_OK;
}
