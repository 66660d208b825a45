/* weights.c: weights as safetensors, and the hashes by which two runs are compared. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/staging.h"
#include "checkpoint/state.h"
#include "core/sha256.h"
#include "format/safetensors.h"

enum { CHUNK_ELEMENTS = SL_CHECKPOINT_CHUNK / sizeof(float) };

static bool is_weight(const sl_state_tensor *t)
{
    return strcmp(t->kind, SL_KIND_WEIGHT) == 0;
}

/* Reads a tensor chunk by chunk and gives each to `use`. */
static sluice_status for_each_chunk(const sl_state *state, int64_t tensor, char *chunk,
                                    sluice_status (*use)(void *user, const void *data, size_t bytes), void *user)
{
    uint64_t elements = state->tensors[tensor].elements;
    for (uint64_t done = 0; done < elements;) {
        uint64_t count = elements - done < CHUNK_ELEMENTS ? elements - done : CHUNK_ELEMENTS;
        SL_TRY(state->read(state->user, tensor, done, count, (float *)chunk));
        SL_TRY(use(user, chunk, count * sizeof(float)));
        done += count;
    }
    return SLUICE_OK;
}

/* ---- safetensors ----------------------------------------------------------------------------------------------------
 */

static sluice_status write_chunk(void *user, const void *data, size_t bytes)
{
    return sl_st_write_data(user, data, bytes);
}

static sluice_status write_weights(const sl_state *state, sl_st_writer *w)
{
    sl_staging staging;
    sluice_status st = SLUICE_OK;
    SL_TRY(sl_staging_take(&staging));
    for (int64_t i = 0; i < state->count && st == SLUICE_OK; i++)
        if (is_weight(&state->tensors[i])) st = for_each_chunk(state, i, staging.chunk, write_chunk, w);
    sl_staging_free(&staging);
    return st;
}

static sl_st_tensor describe(const sl_state_tensor *t)
{
    sl_st_tensor out = { .name = t->name, .dtype = SL_ST_F32, .rank = t->shape.rank };
    for (int i = 0; i < t->shape.rank; i++) out.dim[i] = t->shape.dim[i];
    return out;
}

sluice_status sl_state_weights_save(const sl_state *state, const char *path)
{
    /* Loaders of other frameworks look for this pair before they take a file for weights in PyTorch's layout. */
    static const char *const metadata[] = { "format", "pt" };
    sl_st_writer *w;
    int64_t count = 0;
    sl_st_tensor *tensors = sl_alloc_array((size_t)state->count, sizeof *tensors, "list of weights");
    if (tensors == NULL) return SLUICE_ERR_NO_MEMORY;
    for (int64_t i = 0; i < state->count; i++)
        if (is_weight(&state->tensors[i])) tensors[count++] = describe(&state->tensors[i]);
    sluice_status st = sl_st_write_begin(path, tensors, count, metadata, 1, &w);
    sl_free(tensors);
    if (st != SLUICE_OK) return st;
    st = write_weights(state, w);
    if (st == SLUICE_OK) return sl_st_write_finish(w);
    sl_st_write_abort(w);
    return st;
}

static sluice_status refuse_shape(const sl_st_file *f, const sl_st_tensor *found, const sl_state_tensor *t)
{
    char have[128], want[128];
    sl_shape shape = { .rank = found->rank < SL_MAX_RANK ? found->rank : SL_MAX_RANK };
    for (int i = 0; i < shape.rank; i++) shape.dim[i] = found->dim[i];
    return sl_fail(SLUICE_ERR_INPUT, "%s: tensor %s has the shape %s%s, this model's has %s", f->file.path,
                   sl_quote(t->name).text, sl_shape_text(&shape, have, sizeof have),
                   found->rank > SL_MAX_RANK ? "..." : "", sl_shape_text(&t->shape, want, sizeof want));
}

static sluice_status check_weight(const sl_st_file *f, const sl_state_tensor *t)
{
    const sl_st_tensor *found = sl_st_find(f, t->name);
    if (found == NULL)
        return sl_fail(SLUICE_ERR_INPUT, "%s: tensor %s of this model is missing", f->file.path,
                       sl_quote(t->name).text);
    if (found->rank != t->shape.rank ||
        memcmp(found->dim, t->shape.dim, (size_t)found->rank * sizeof found->dim[0]) != 0)
        return refuse_shape(f, found, t);
    if (!sl_st_is_float(found->dtype))
        return sl_fail(SLUICE_ERR_INPUT, "%s: tensor %s has dtype %s; weights are F32, F16, BF16 or F64", f->file.path,
                       sl_quote(t->name).text, sl_st_dtype_name(found->dtype));
    return SLUICE_OK;
}

static int compare_with_name(const void *key, const void *element)
{
    return strcmp(key, (*(const sl_state_tensor *const *)element)->name);
}

/* Names in the file that the model does not have. The state lists weights in byte order of names, as the file's index
 * does. */
static sluice_status check_extra(const sl_st_file *f, const sl_state *state)
{
    int64_t weights = 0;
    const sl_state_tensor **sorted = sl_alloc_array((size_t)state->count, sizeof *sorted, "list of weights");
    sluice_status st = SLUICE_OK;
    if (sorted == NULL) return SLUICE_ERR_NO_MEMORY;
    for (int64_t i = 0; i < state->count; i++)
        if (is_weight(&state->tensors[i])) sorted[weights++] = &state->tensors[i];
    for (int64_t i = 0; i < f->tensor_count && st == SLUICE_OK; i++) {
        const char *name = f->by_name[i]->name;
        if (bsearch(name, (const void *)sorted, (size_t)weights, sizeof *sorted, compare_with_name) == NULL)
            st = sl_fail(SLUICE_ERR_INPUT, "%s: tensor %s is not one of this model's", f->file.path,
                         sl_quote(name).text);
    }
    sl_free((void *)sorted);
    return st;
}

static sluice_status load_weight(sl_st_file *f, const sl_state *state, int64_t tensor, float *chunk)
{
    const sl_st_tensor *t = sl_st_find(f, state->tensors[tensor].name);
    uint64_t elements = state->tensors[tensor].elements;
    for (uint64_t done = 0; done < elements;) {
        uint64_t count = elements - done < CHUNK_ELEMENTS ? elements - done : CHUNK_ELEMENTS;
        SL_TRY(sl_st_read_f32(f, t, (int64_t)done, (int64_t)count, chunk));
        SL_TRY(state->write(state->user, tensor, done, count, chunk));
        done += count;
    }
    return SLUICE_OK;
}

/* All names, shapes and dtypes are checked before the first value is replaced. */
static sluice_status load_weights(sl_st_file *f, const sl_state *state)
{
    sl_staging staging;
    sluice_status st = SLUICE_OK;
    for (int64_t i = 0; i < state->count; i++)
        if (is_weight(&state->tensors[i])) SL_TRY(check_weight(f, &state->tensors[i]));
    SL_TRY(check_extra(f, state));
    SL_TRY(sl_staging_take(&staging));
    for (int64_t i = 0; i < state->count && st == SLUICE_OK; i++)
        if (is_weight(&state->tensors[i])) st = load_weight(f, state, i, (float *)staging.chunk);
    sl_staging_free(&staging);
    return st;
}

sluice_status sl_state_weights_load(const sl_state *state, const char *path)
{
    sl_st_file *f;
    SL_TRY(sl_st_open(path, &f));
    sluice_status st = load_weights(f, state);
    sl_st_close(f);
    return st;
}

/* ---- Hashes ---------------------------------------------------------------------------------------------------------
 */

/* One entry of a hash: exact rule 10. */
typedef struct entry {
    const char *name;
    int64_t tensor;
} entry;

static int compare_entries(const void *a, const void *b)
{
    return strcmp(((const entry *)a)->name, ((const entry *)b)->name);
}

static sluice_status update_digest(void *user, const void *data, size_t bytes)
{
    sl_sha256_update(user, data, bytes);
    return SLUICE_OK;
}

static void add_named_digest(sl_sha256 *h, const char *name, sl_sha256 *values)
{
    uint8_t digest[32];
    sl_sha256_final(values, digest);
    sl_sha256_update(h, name, strlen(name) + 1);
    sl_sha256_update(h, digest, sizeof digest);
}

static sluice_status hash_entries(const sl_state *state, const entry *entries, int64_t count, char *chunk, sl_sha256 *h)
{
    for (int64_t i = 0; i < count; i++) {
        sl_sha256 values;
        sl_sha256_init(&values);
        SL_TRY(for_each_chunk(state, entries[i].tensor, chunk, update_digest, &values));
        add_named_digest(h, entries[i].name, &values);
    }
    return SLUICE_OK;
}

/* The entries of the weights, or of everything else, in byte order of their names. */
static sluice_status list_entries(const sl_state *state, bool weights, sl_arena *arena, entry **out, int64_t *count)
{
    entry *entries = sl_arena_array(arena, (size_t)state->count, sizeof *entries);
    int64_t n = 0;
    if (entries == NULL) return SLUICE_ERR_NO_MEMORY;
    for (int64_t i = 0; i < state->count; i++) {
        const sl_state_tensor *t = &state->tensors[i];
        if (is_weight(t) != weights) continue;
        const char *name = weights ? t->name : sl_arena_printf(arena, "%s.%s", t->name, t->kind);
        if (name == NULL) return SLUICE_ERR_NO_MEMORY;
        entries[n++] = (entry){ name, i };
    }
    if (n > 0) qsort(entries, (size_t)n, sizeof *entries, compare_entries);
    *out = entries;
    *count = n;
    return SLUICE_OK;
}

static sluice_status hash_group(const sl_state *state, bool weights, char *chunk, sl_sha256 *h)
{
    sl_arena arena;
    entry *entries;
    int64_t count;
    sl_arena_init(&arena, "names for hashing");
    sluice_status st = list_entries(state, weights, &arena, &entries, &count);
    if (st == SLUICE_OK) st = hash_entries(state, entries, count, chunk, h);
    sl_arena_free(&arena);
    return st;
}

static void finish_hex(sl_sha256 *h, char hex[65])
{
    uint8_t digest[32];
    sl_sha256_final(h, digest);
    sl_sha256_hex(digest, hex);
}

sluice_status sl_state_sha256(const sl_state *state, double loss_scale, char weights[65], char optimizer[65])
{
    sl_staging staging;
    sl_sha256 w, o, scale;
    sl_sha256_init(&w);
    sl_sha256_init(&o);
    SL_TRY(sl_staging_take(&staging));
    sluice_status st = hash_group(state, true, staging.chunk, &w);
    if (st == SLUICE_OK) st = hash_group(state, false, staging.chunk, &o);
    sl_staging_free(&staging);
    if (st != SLUICE_OK) return st;
    sl_sha256_init(&scale);
    sl_sha256_update(&scale, &loss_scale, sizeof loss_scale);
    add_named_digest(&o, "loss_scale", &scale);
    finish_hex(&w, weights);
    finish_hex(&o, optimizer);
    return SLUICE_OK;
}
