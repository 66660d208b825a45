/* weights.c: weights of a state into safetensors files. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/kept_vocabulary.h"
#include "checkpoint/rounds.h"
#include "checkpoint/weights.h"
#include "core/half.h"
#include "format/weight_names.h"

/* Rank 0: reads a tensor chunk by chunk and gives each to `use`, which may spoil it. */
static sluice_status for_each_chunk(sl_gather *g, int64_t tensor,
                                    sluice_status (*use)(void *user, void *data, size_t bytes), void *user)
{
    uint64_t elements = g->state->tensors[tensor].elements;
    float *chunk = (float *)g->chunk.chunk;
    for (uint64_t done = 0; done < elements;) {
        uint64_t count = elements - done < SL_CHUNK_ELEMENTS ? elements - done : SL_CHUNK_ELEMENTS;
        SL_TRY(sl_gather_read(g, tensor, done, count, chunk));
        SL_TRY(use(user, chunk, count * sizeof(float)));
        done += count;
    }
    return SLUICE_OK;
}

/* ---- safetensors ---- */

/* A tensor on its way to a file. */
typedef struct weights_writing {
    sl_st_writer *writer;
    sluice_dtype type;
    const char *name;
    bool counts; /* it is a count */
} weights_writing;

/* Makes 16-bit numbers of `count` floats at the beginning of the same memory. False: a finite one became infinite. */
static bool narrow(sluice_dtype type, const float *values, size_t count, char *out)
{
    bool fits = true;
    for (size_t i = 0; i < count; i++) {
        float x = values[i];
        uint16_t half = type == SLUICE_BF16 ? sl_float_to_bf16(x) : sl_float_to_f16(x);
        fits = fits && (!isfinite(x) || isfinite(type == SLUICE_BF16 ? sl_bf16_to_float(half) : sl_f16_to_float(half)));
        memcpy(out + i * sizeof half, &half, sizeof half);
    }
    return fits;
}

/* A count, from the two numbers it is kept as. */
static sluice_status write_count(sl_st_writer *writer, const float *halves)
{
    const int64_t count = (int64_t)((uint64_t)halves[0] + (uint64_t)halves[1] * SL_BATCHES_LOW);
    return sl_st_write_data(writer, &count, sizeof count);
}

static sluice_status write_chunk(void *user, void *data, size_t bytes)
{
    const weights_writing *w = user;
    if (w->counts) return write_count(w->writer, data);
    if (w->type == SLUICE_F32) return sl_st_write_data(w->writer, data, bytes);
    if (!narrow(w->type, data, bytes / sizeof(float), data))
        return sl_fail(SLUICE_ERR_USAGE, "tensor %s holds values too large for %s; write %sfp32",
                       sl_quote(w->name).text, w->type == SLUICE_F16 ? "fp16" : "bf16",
                       w->type == SLUICE_F16 ? "bf16 or " : "");
    return sl_st_write_data(w->writer, data, bytes / 2);
}

/* Tensors that a weight is in a file. */
static int64_t tensors_of(const sl_state_tensor *t)
{
    return t->part_count > 0 ? t->part_count : 1;
}

const char *sl_state_file_name(const sl_state *state, const char *name, char *buffer, size_t bytes)
{
    if (state->file_prefix == NULL || state->file_prefix[0] == '\0' || sl_weight_is_head(name)) return name;
    snprintf(buffer, bytes, "%s%s", state->file_prefix, name);
    return buffer;
}

/* A weight as it is in a file: one tensor, or one after the other of its parts, whose data together is its own. */
static int64_t describe(const sl_state_tensor *t, sluice_dtype type, sl_st_tensor *out)
{
    static const sl_st_dtype dtypes[] = {
        [SLUICE_F32] = SL_ST_F32, [SLUICE_BF16] = SL_ST_BF16, [SLUICE_F16] = SL_ST_F16
    };
    if (sl_state_is_counter(t)) {
        *out = (sl_st_tensor){ .name = t->name, .dtype = SL_ST_I64 };
        return 1;
    }
    for (int64_t k = 0; k < tensors_of(t); k++) {
        out[k] = (sl_st_tensor){ .name = t->name, .dtype = dtypes[type], .rank = t->shape.rank };
        for (int i = 0; i < t->shape.rank; i++) out[k].dim[i] = t->shape.dim[i];
        if (t->part_count == 0) break;
        out[k].name = t->parts[k].name;
        out[k].dim[0] = t->parts[k].rows;
    }
    return tensors_of(t);
}

/* Pairs of a file's metadata; how many. */
static int64_t list_metadata(const sl_kept_vocabulary *v, const char *metadata[6])
{
    const char *const pairs[][2] = {
        /* Loaders of other frameworks look for this pair before they take a file for weights in PyTorch's layout. */
        { "format", "pt" },
        { SL_CHARACTERS_KEY, v->characters },
        { SL_VOCABULARY_KEY, v->unit },
    };
    int64_t count = 0;
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        if (pairs[i][1] == NULL) continue;
        metadata[2 * count] = pairs[i][0];
        metadata[2 * count + 1] = pairs[i][1];
        count++;
    }
    return count;
}

/* Gives the tensors their names in files; strings are the arena's. */
static sluice_status name_tensors(const sl_state *state, sl_st_tensor *tensors, int64_t count, sl_arena *arena)
{
    for (int64_t i = 0; i < count; i++) {
        char made[SL_MAX_NAME_BYTES + 64];
        const char *name = sl_state_file_name(state, tensors[i].name, made, sizeof made);
        if (name == made) tensors[i].name = sl_arena_strdup(arena, made);
        if (tensors[i].name == NULL) return SLUICE_ERR_NO_MEMORY;
    }
    return SLUICE_OK;
}

/* Only weights are rounded. */
static sluice_dtype type_in_file(const sl_state *state, int64_t tensor)
{
    return sl_state_is_weight(&state->tensors[tensor]) ? state->file_type : SLUICE_F32;
}

static sluice_status begin_file(const sl_state *state, int64_t begin, int64_t end, const char *path, sl_st_writer **out)
{
    sl_arena arena;
    const char *metadata[6];
    int64_t pairs = list_metadata(&state->vocabulary, metadata), count = 0, most = 0;
    for (int64_t i = begin; i < end; i++) most += tensors_of(&state->tensors[i]);
    sl_st_tensor *tensors = sl_alloc_array((size_t)most, sizeof *tensors, "list of weights");
    if (tensors == NULL) return SLUICE_ERR_NO_MEMORY;
    for (int64_t i = begin; i < end; i++)
        if (sl_state_is_in_files(&state->tensors[i]))
            count += describe(&state->tensors[i], type_in_file(state, i), tensors + count);
    sl_arena_init(&arena, "names of weights");
    sluice_status st = name_tensors(state, tensors, count, &arena);
    if (st == SLUICE_OK) st = sl_st_write_begin(path, tensors, count, metadata, pairs, out);
    sl_arena_free(&arena);
    sl_free(tensors);
    return st;
}

sluice_status sl_weights_write(sl_gather *g, int64_t begin, int64_t end, const char *path, sl_st_writer **out)
{
    sl_st_writer *w;
    sluice_status st = begin_file(g->state, begin, end, path, &w);
    if (st != SLUICE_OK) return st;
    for (int64_t i = begin; i < end && st == SLUICE_OK; i++) {
        const sl_state_tensor *t = &g->state->tensors[i];
        weights_writing writing = { w, type_in_file(g->state, i), t->name, sl_state_is_counter(t) };
        if (sl_state_is_in_files(t)) st = for_each_chunk(g, i, write_chunk, &writing);
    }
    if (st == SLUICE_OK)
        *out = w;
    else
        sl_st_write_abort(w);
    return st;
}

static sluice_status finish_file(void *writer)
{
    return sl_st_write_finish(writer);
}

/* The file is put in its place only after every rank has said that its values were good. */
sluice_status sl_state_weights_save(const sl_state *state, const char *path)
{
    sl_gather g;
    sl_st_writer *w = NULL;
    SL_TRY(sl_gather_open(&g, state));
    sluice_status st = state->rank == 0 ? sl_weights_write(&g, 0, state->count, path, &w) : sl_gather_serve(&g);
    st = sl_gather_close(&g, st);
    if (st == SLUICE_OK) return sl_together(state->comm, "weights", w != NULL ? finish_file : NULL, w);
    sl_st_write_abort(w);
    return st;
}
