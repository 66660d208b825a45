/* merge.c: a model's folder and an adapter's folder as one folder without adapters.
 *
 * The merged weights are a state (state.h) whose values are made as they are read: the base's, to which scale * B A is added
 * in f32, rounded once by whoever writes them. So neither model nor engine is needed, and no more memory than a few chunks
 * and one adapter. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "checkpoint/model_folder.h"
#include "checkpoint/state.h"
#include "core/alloc.h"
#include "core/bytes.h"
#include "core/file_set.h"
#include "core/quote.h"
#include "core/stop.h"
#include "format/adapter_config.h"
#include "format/weights_set.h"

/* What the adapter's folder has for one tensor of the base. */
typedef struct merged_tensor {
    const sl_set_tensor *base;
    const sl_set_tensor *a, *b; /* [rank, in], [out, rank]; NULL: there is no adapter */
    const sl_set_tensor *whole; /* stands in its place; NULL: none does */
} merged_tensor;

typedef struct merging {
    sl_weights_set *base, *adapter; /* owned */
    sl_adapter_config config;
    sl_arena arena;
    sl_state_tensor *tensors; /* owned */
    merged_tensor *sources;   /* owned; parallel to tensors */
    int64_t used, changed;    /* tensors of the adapter that have found their place; of the base that it changes */
    float *a, *b, *row;       /* owned; of the adapter read last, and one row of the product's sum */
    int64_t loaded;           /* its tensor; -1: none */
    const int *stop;          /* a request to stop; NULL: never */
} merging;

/* ---- Names ---- */

/* "base_model.model.<module><ending>" in the adapter, for a base that may have or lack the family's prefix. */
static const sl_set_tensor *find_in_adapter(const merging *m, const char *prefix, const char *base, const char *ending)
{
    char name[1024];
    size_t bytes = strlen(base) - strlen(SL_MODULE_WEIGHT);
    const char *const tries[] = { "", prefix };
    for (size_t i = 0; i < sizeof tries / sizeof tries[0]; i++) {
        if (snprintf(name, sizeof name, SL_PEFT_PREFIX "%s%.*s%s", tries[i], (int)bytes, base, ending) >=
            (int)sizeof name)
            continue;
        const sl_set_tensor *t = sl_weights_set_find(m->adapter, name);
        if (t != NULL) return t;
    }
    return NULL;
}

static sluice_status check_shape(const merging *m, const sl_set_tensor *t, int64_t rows, int64_t columns)
{
    const sl_st_tensor *s = t->stored;
    if (s->rank == 2 && s->dim[0] == rows && s->dim[1] == columns && sl_st_is_float(s->dtype)) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_INPUT,
                   "%s: tensor %s must be [%" PRId64 ", %" PRId64
                   "] of floats to fit the base model; this adapter is of "
                   "another one",
                   sl_show(m->adapter->path).text, sl_quote(t->name).text, rows, columns);
}

static sluice_status match_adapter(merging *m, merged_tensor *t, const char *prefix)
{
    const sl_st_tensor *base = t->base->stored;
    t->a = find_in_adapter(m, prefix, t->base->name, SL_LORA_A);
    t->b = find_in_adapter(m, prefix, t->base->name, SL_LORA_B);
    t->whole = find_in_adapter(m, prefix, t->base->name, SL_MODULE_WEIGHT);
    m->used += (t->a != NULL) + (t->b != NULL) + (t->whole != NULL);
    m->changed += t->a != NULL || t->whole != NULL;
    if ((t->a == NULL) != (t->b == NULL))
        return sl_fail(SLUICE_ERR_INPUT, "%s: the adapter of %s has only one of lora_A and lora_B",
                       sl_show(m->adapter->path).text, sl_quote(t->base->name).text);
    if (t->whole != NULL && (t->whole->stored->rank != base->rank ||
                             memcmp(t->whole->stored->dim, base->dim, (size_t)base->rank * sizeof base->dim[0]) != 0))
        return sl_fail(SLUICE_ERR_INPUT, "%s: tensor %s has another shape than the base model's",
                       sl_show(m->adapter->path).text, sl_quote(t->whole->name).text);
    if (t->a == NULL) return SLUICE_OK;
    if (base->rank != 2)
        return sl_fail(SLUICE_ERR_INPUT, "%s: the adapter of %s stands beside no matrix",
                       sl_show(m->adapter->path).text, sl_quote(t->base->name).text);
    int64_t in = base->dim[m->config.in_out ? 0 : 1], out = base->dim[m->config.in_out ? 1 : 0];
    SL_TRY(check_shape(m, t->a, m->config.rank, in));
    return check_shape(m, t->b, out, m->config.rank);
}

/* ---- Values ---- */

/* `values` are of the tensor from element `first` on. A model of them computes nothing that is any good. */
static sluice_status check_finite(const char *path, const char *name, const char *more, uint64_t first, uint64_t count,
                                  const float *values)
{
    for (uint64_t i = 0; i < count; i++)
        if (!isfinite(values[i]))
            return sl_fail(SLUICE_ERR_NUMBERS, "%s: tensor %s%s: element %" PRIu64 " is %g, which is not finite",
                           sl_show(path).text, sl_quote(name).text, more, first + i, (double)values[i]);
    return SLUICE_OK;
}

static sluice_status read_part(const sl_weights_set *set, const sl_set_tensor *t, uint64_t first, uint64_t count,
                               float *out)
{
    SL_TRY(sl_set_read_f32(t, (int64_t)first, (int64_t)count, out));
    return check_finite(set->path, t->name, "", first, count, out);
}

static sluice_status read_adapter(merging *m, int64_t tensor)
{
    const merged_tensor *t = &m->sources[tensor];
    if (m->loaded == tensor) return SLUICE_OK;
    m->loaded = -1;
    SL_TRY(read_part(m->adapter, t->a, 0, (uint64_t)sl_st_elements(t->a->stored), m->a));
    SL_TRY(read_part(m->adapter, t->b, 0, (uint64_t)sl_st_elements(t->b->stored), m->b));
    m->loaded = tensor;
    return SLUICE_OK;
}

/* Row `row` of scale * B A for a base that is [out, in]: sums over the rank in order, all columns at a time. */
static void product_row(const merging *m, const merged_tensor *t, int64_t row, float *out)
{
    int64_t rank = m->config.rank, in = t->base->stored->dim[1];
    float scale = (float)sl_adapter_scale(&m->config);
    memset(out, 0, (size_t)in * sizeof *out);
    for (int64_t k = 0; k < rank; k++) {
        const float *a = m->a + k * in, b = m->b[row * rank + k];
        for (int64_t c = 0; c < in; c++) out[c] += b * a[c];
    }
    for (int64_t c = 0; c < in; c++) out[c] *= scale;
}

/* The same of its transpose, for a base that is [in, out]. */
static void product_column(const merging *m, const merged_tensor *t, int64_t row, float *out)
{
    int64_t rank = m->config.rank, in = t->base->stored->dim[0], columns = t->base->stored->dim[1];
    float scale = (float)sl_adapter_scale(&m->config);
    for (int64_t c = 0; c < columns; c++) {
        float sum = 0;
        for (int64_t k = 0; k < rank; k++) sum += m->b[c * rank + k] * m->a[k * in + row];
        out[c] = scale * sum;
    }
}

static sluice_status add_product(merging *m, int64_t tensor, uint64_t first, uint64_t count, float *out)
{
    const merged_tensor *t = &m->sources[tensor];
    uint64_t columns = (uint64_t)t->base->stored->dim[1];
    SL_TRY(read_adapter(m, tensor));
    for (uint64_t i = 0; i < count;) {
        uint64_t row = (first + i) / columns, column = (first + i) % columns;
        uint64_t take = columns - column < count - i ? columns - column : count - i;
        (m->config.in_out ? product_column : product_row)(m, t, (int64_t)row, m->row);
        for (uint64_t k = 0; k < take; k++) out[i + k] += m->row[column + k];
        i += take;
    }
    return check_finite(m->base->path, t->base->name, " with the adapter added", first, count, out);
}

static sluice_status read_merged(void *user, int64_t tensor, uint64_t first, uint64_t count, float *out)
{
    merging *m = user;
    const merged_tensor *t = &m->sources[tensor];
    SL_TRY(sl_stop_poll(m->stop, "merging"));
    SL_TRY(t->whole != NULL ? read_part(m->adapter, t->whole, first, count, out)
                            : read_part(m->base, t->base, first, count, out));
    return t->a != NULL ? add_product(m, tensor, first, count, out) : SLUICE_OK;
}

static int64_t one_run(void *user, int64_t tensor, int rank)
{
    (void)user, (void)tensor, (void)rank;
    return 1;
}

static sl_range all_of_it(void *user, int64_t tensor, int rank, int64_t index)
{
    const merging *m = user;
    (void)rank, (void)index;
    return (sl_range){ 0, (int64_t)m->tensors[tensor].elements };
}

static bool wants_all(void *user, int64_t tensor, sl_range range)
{
    (void)user, (void)tensor, (void)range;
    return true;
}

/* ---- All of it ---- */

static void list_tensor(merging *m, int64_t i)
{
    const sl_st_tensor *s = m->base->tensors[i].stored;
    m->sources[i].base = &m->base->tensors[i];
    m->tensors[i] = (sl_state_tensor){ .name = m->base->tensors[i].name,
                                       .kind = SL_KIND_WEIGHT,
                                       .elements = (uint64_t)sl_st_elements(s) };
    m->tensors[i].shape.rank = s->rank;
    for (int k = 0; k < s->rank && k < SL_MAX_RANK; k++) m->tensors[i].shape.dim[k] = s->dim[k];
}

/* The base's names are kept as they are; one type holds for all, the base's where it has but one. */
static sluice_status check_base(const merging *m, sluice_dtype *type)
{
    int64_t counts[SL_ST_DTYPE_COUNT] = { 0 };
    for (int64_t i = 0; i < m->base->tensor_count; i++) {
        const sl_st_tensor *s = m->base->tensors[i].stored;
        counts[s->dtype]++;
        if (!sl_st_is_float(s->dtype) || s->rank > SL_MAX_RANK || s->dtype == SL_ST_F64)
            return sl_fail(SLUICE_ERR_INPUT, "%s: tensor %s is %s of %d dimensions, which no model built in has",
                           sl_show(m->base->path).text, sl_quote(m->base->tensors[i].name).text,
                           sl_st_dtype_name(s->dtype), s->rank);
    }
    *type = counts[SL_ST_BF16] == m->base->tensor_count  ? SLUICE_BF16
            : counts[SL_ST_F16] == m->base->tensor_count ? SLUICE_F16
                                                         : SLUICE_F32;
    return SLUICE_OK;
}

static sluice_status match_all(merging *m, const char *prefix)
{
    int64_t count = m->base->tensor_count, most_a = 1, most_b = 1, most_row = 1;
    m->tensors = sl_alloc_array((size_t)count + 1, sizeof *m->tensors, "merged weights");
    m->sources = sl_alloc_array((size_t)count + 1, sizeof *m->sources, "merged weights");
    if (m->tensors == NULL || m->sources == NULL) return SLUICE_ERR_NO_MEMORY;
    for (int64_t i = 0; i < count; i++) {
        list_tensor(m, i);
        if (!sl_name_ends_in(m->base->tensors[i].name, SL_MODULE_WEIGHT)) continue;
        SL_TRY(match_adapter(m, &m->sources[i], prefix));
        if (m->sources[i].a == NULL) continue;
        int64_t a = sl_st_elements(m->sources[i].a->stored), b = sl_st_elements(m->sources[i].b->stored);
        int64_t row = m->base->tensors[i].stored->dim[1];
        most_a = a > most_a ? a : most_a;
        most_b = b > most_b ? b : most_b;
        most_row = row > most_row ? row : most_row;
    }
    if (m->used != m->adapter->tensor_count)
        return sl_fail(SLUICE_ERR_INPUT,
                       "%s: %" PRId64 " of its %" PRId64
                       " tensors belong to no weight of the base model; this adapter is of another one",
                       sl_show(m->adapter->path).text, m->adapter->tensor_count - m->used, m->adapter->tensor_count);
    m->a = sl_alloc_array((size_t)most_a, sizeof *m->a, "adapter");
    m->b = sl_alloc_array((size_t)most_b, sizeof *m->b, "adapter");
    m->row = sl_alloc_array((size_t)most_row, sizeof *m->row, "adapter");
    return m->a != NULL && m->b != NULL && m->row != NULL ? SLUICE_OK : SLUICE_ERR_NO_MEMORY;
}

/* The tokenizer and the chat template are the adapter's, where its folder has them: it was trained by them. */
static sluice_status write_merged(merging *m, const char *base, const char *adapter, const char *out_path,
                                  const sluice_dtype *wanted, uint64_t shard_bytes)
{
    sl_model_config config;
    sl_model_files files = { .list = NULL };
    sluice_dtype type;
    SL_TRY(sl_model_config_read(base, &config, NULL));
    m->config.in_out = config.family == SL_DECODER_GPT2;
    SL_TRY(check_base(m, &type));
    SL_TRY(match_all(m, sl_decoder_prefix(config.family)));
    if (wanted != NULL) type = *wanted;
    config.has_dtype = true;
    config.dtype = type;
    const sl_state state = { .tensors = m->tensors,
                             .count = m->base->tensor_count,
                             .file_type = type,
                             .rank_count = 1,
                             .owned_count = one_run,
                             .owned = all_of_it,
                             .wants = wants_all,
                             .read = read_merged,
                             .user = m };
    sluice_status st = sl_model_files_make(&config, base, &(sl_ids_meaning){ .over = adapter }, NULL, &files);
    if (st == SLUICE_OK) st = sl_state_folder_save(&state, out_path, shard_bytes, &files);
    sl_model_files_free(&files);
    return st;
}

static sluice_status open_both(merging *m, const char *base, const char *adapter)
{
    if (!sl_is_weights_folder(base))
        return sl_fail(SLUICE_ERR_INPUT, "%s is no folder with a model's weights; merge takes the base model's folder",
                       sl_show(base).text);
    SL_TRY(sl_adapter_open(adapter, &m->arena, &m->config, &m->adapter));
    return sl_weights_set_open(base, &m->base);
}

/* Neither of the two is replaced by what is made of them. */
static sluice_status check_files(const char *base, const char *adapter, const char *out_path)
{
    sl_file_set files;
    sl_file_set_init(&files, sl_model_folder_signs, sl_is_model_member);
    sluice_status st = sl_file_set_add(&files, "the base model", base, SL_SET_READ);
    if (st == SLUICE_OK) st = sl_file_set_add(&files, "the adapter", adapter, SL_SET_READ);
    if (st == SLUICE_OK) st = sl_file_set_add(&files, "--out", out_path, SL_SET_WRITE_FOLDER);
    if (st == SLUICE_OK) st = sl_file_set_check(&files);
    sl_file_set_free(&files);
    return st;
}

sluice_status sluice_merge(const char *base, const char *adapter, const char *out_path, sluice_dtype type,
                           uint64_t shard_bytes, FILE *out)
{
    return sluice_merge_until(NULL, base, adapter, out_path, type, shard_bytes, out);
}

sluice_status sluice_merge_until(const int *stop, const char *base, const char *adapter, const char *out_path,
                                 sluice_dtype type, uint64_t shard_bytes, FILE *out)
{
    merging m = { .loaded = -1, .stop = stop };
    SL_NEED_PATH(base);
    SL_NEED_PATH(adapter);
    SL_NEED_PATH(out_path);
    if (type != SLUICE_F32 && type != SLUICE_BF16 && type != SLUICE_F16 && type != SLUICE_I32)
        return sl_fail(
            SLUICE_ERR_USAGE,
            "sluice_merge: the type is %d, must be SLUICE_F32, SLUICE_BF16, SLUICE_F16, or SLUICE_I32 for the "
            "base's",
            (int)type);
    SL_TRY(check_files(base, adapter, out_path));
    sl_arena_init(&m.arena, "adapter");
    sluice_status st = open_both(&m, base, adapter);
    if (st == SLUICE_OK) st = write_merged(&m, base, adapter, out_path, type == SLUICE_I32 ? NULL : &type, shard_bytes);
    if (st == SLUICE_OK && out != NULL)
        fprintf(out, "%s: %" PRId64 " tensors, of which the adapter changed %" PRId64 "\n", sl_show(out_path).text,
                m.base->tensor_count, m.changed);
    sl_free(m.a);
    sl_free(m.b);
    sl_free(m.row);
    sl_free(m.tensors);
    sl_free(m.sources);
    sl_weights_set_close(m.base);
    sl_weights_set_close(m.adapter);
    sl_arena_free(&m.arena);
    return st;
}
