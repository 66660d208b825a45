/* weights.c: weights as safetensors. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/folder.h"
#include "checkpoint/kept_vocabulary.h"
#include "checkpoint/rounds.h"
#include "checkpoint/weights.h"
#include "checkpoint/weights_check.h"
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

static sluice_status write_chunk(void *user, void *data, size_t bytes)
{
    const weights_writing *w = user;
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

static sluice_status begin_file(const sl_state *state, int64_t begin, int64_t end, const char *path, sl_st_writer **out)
{
    sl_arena arena;
    const char *metadata[6];
    int64_t pairs = list_metadata(&state->vocabulary, metadata), count = 0, most = 0;
    for (int64_t i = begin; i < end; i++) most += tensors_of(&state->tensors[i]);
    sl_st_tensor *tensors = sl_alloc_array((size_t)most, sizeof *tensors, "list of weights");
    if (tensors == NULL) return SLUICE_ERR_NO_MEMORY;
    for (int64_t i = begin; i < end; i++)
        if (sl_state_is_weight(&state->tensors[i]))
            count += describe(&state->tensors[i], state->file_type, tensors + count);
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
        weights_writing writing = { w, g->state->file_type, g->state->tensors[i].name };
        if (sl_state_is_weight(&g->state->tensors[i])) st = for_each_chunk(g, i, write_chunk, &writing);
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

/* ---- loading ---- */

/* What a thread reads at a time: elements of one weight, all of which this rank may keep. */
typedef struct weights_chunk {
    int64_t tensor;
    uint64_t first, count;
} weights_chunk;

/* Chunks of a batch for each thread: enough that the last of a batch do not leave the others long without work. */
enum { CHUNKS_PER_THREAD = 4 };

typedef struct chunk_batch {
    weights_chunk *chunks; /* owned; CHUNKS_PER_THREAD for each thread */
    int64_t count;
} chunk_batch;

/* Weights on their way into a state. */
typedef struct weights_loading {
    const sl_state *state;
    sl_weights_set *f; /* owned */
    sl_chunk_staging staging;
    sl_pool *pool, *own_pool; /* the state's, or one thread that is owned */
    chunk_batch batches[2];   /* the one at hand, and the next, which the disk is told of meanwhile */
    int at_hand;
    sl_activity activity;
    uint64_t bytes; /* that were listed so far, or that this rank does not keep */
    int64_t tensor; /* the next to list */
    uint64_t done;  /* elements of it */
} weights_loading;

static int64_t batch_most(const weights_loading *l)
{
    return (int64_t)CHUNKS_PER_THREAD * sl_pool_threads(l->pool);
}

/* Everything is checked before the first value is replaced. */
static sluice_status open_weights(weights_loading *l, const char *path)
{
    SL_TRY(sl_weights_open(path, &l->f));
    sl_kept_vocabulary kept = sl_kept_in_set(l->f);
    SL_TRY(sl_weights_fit_names(l->f, l->state));
    SL_TRY(sl_weights_check(l->f, l->state));
    SL_TRY(sl_kept_check(&l->state->vocabulary, &kept, path));
    if (l->state->pool == NULL) SL_TRY(sl_pool_create(1, &l->own_pool));
    l->pool = l->state->pool != NULL ? l->state->pool : l->own_pool;
    for (int i = 0; i < 2; i++) {
        l->batches[i].chunks = sl_alloc_array((size_t)batch_most(l), sizeof(weights_chunk), "chunks of weights");
        if (l->batches[i].chunks == NULL) return SLUICE_ERR_NO_MEMORY;
    }
    return sl_staging_take(&l->staging);
}

/* ---- where a weight lies ---- */

/* Runs of elements of stored tensors. `out` is where the values go; NULL where that means nothing. */
typedef sluice_status (*stored_fn)(const sl_set_tensor *t, int64_t first, int64_t count, float *out);

static sluice_status expect_run(const sl_set_tensor *t, int64_t first, int64_t count, float *out)
{
    (void)out;
    sl_st_expect(t->file, t->stored, first, count);
    return SLUICE_OK;
}

/* Elements [first, first+count) of a weight that lies in parts: each has whole rows, so its elements are a run. */
static sluice_status for_each_part(const sl_weights_set *f, const sl_state_tensor *t, int64_t first, int64_t count,
                                   float *out, stored_fn fn)
{
    int64_t width = (int64_t)t->elements / t->shape.dim[0], begin = 0;
    for (int k = 0; k < t->part_count && count > 0; k++) {
        int64_t end = begin + t->parts[k].rows * width, take = end - first < count ? end - first : count;
        if (first < end) {
            SL_TRY(fn(sl_weights_set_find(f, t->parts[k].name), first - begin, take, out));
            if (out != NULL) out += take;
            first += take;
            count -= take;
        }
        begin = end;
    }
    return SLUICE_OK;
}

static sluice_status for_each_stored(const weights_loading *l, const weights_chunk *c, float *out, stored_fn fn)
{
    const sl_state_tensor *t = &l->state->tensors[c->tensor];
    if (sl_weight_is_in_parts(l->f, t)) return for_each_part(l->f, t, (int64_t)c->first, (int64_t)c->count, out, fn);
    return fn(sl_weights_set_find(l->f, t->name), (int64_t)c->first, (int64_t)c->count, out);
}

/* ---- chunks ---- */

static bool wants(const sl_state *state, int64_t tensor, uint64_t first, uint64_t end)
{
    return state->wants(state->user, tensor, (sl_range){ (int64_t)first, (int64_t)(end - first) });
}

/* The smallest run in [first, end) with all that this rank keeps of it; false: it keeps nothing. `wants` is a question about
 * a set of elements, so a run that grows is wanted from some length on. */
static bool trim(const sl_state *state, weights_chunk *c)
{
    uint64_t first = c->first, end = c->first + c->count, low, high;
    if (!wants(state, c->tensor, first, end)) return false;
    for (low = first, high = end - 1; low < high;) { /* the first wanted element is in [low, high] */
        uint64_t middle = low + (high - low) / 2;
        if (wants(state, c->tensor, low, middle + 1))
            high = middle;
        else
            low = middle + 1;
    }
    c->first = low;
    for (high = end - 1; low < high;) { /* the last one likewise */
        uint64_t middle = high - (high - low) / 2;
        if (wants(state, c->tensor, middle, high + 1))
            low = middle;
        else
            high = middle - 1;
    }
    c->count = low + 1 - c->first;
    return true;
}

static uint64_t bytes_to_load(const weights_loading *l)
{
    uint64_t elements = 0;
    for (int64_t i = 0; i < l->state->count; i++) {
        const sl_state_tensor *t = &l->state->tensors[i];
        if (sl_state_is_weight(t) && !sl_weight_is_left_out(l->f, t)) elements += t->elements;
    }
    return elements * sizeof(float);
}

/* The next chunks in which this rank keeps any value, as many as go into a batch; the disk is told of them. */
static sluice_status list_chunks(weights_loading *l, chunk_batch *b)
{
    const sl_state *state = l->state;
    b->count = 0;
    while (l->tensor < state->count && b->count < batch_most(l)) {
        const sl_state_tensor *t = &state->tensors[l->tensor];
        if (!sl_state_is_weight(t) || sl_weight_is_left_out(l->f, t) || l->done == t->elements) {
            l->tensor++;
            l->done = 0;
            continue;
        }
        uint64_t left = t->elements - l->done;
        weights_chunk c = { l->tensor, l->done, left < SL_CHUNK_ELEMENTS ? left : SL_CHUNK_ELEMENTS };
        l->done += c.count;
        l->bytes += c.count * sizeof(float);
        if (trim(state, &c)) {
            b->chunks[b->count++] = c;
            SL_TRY(for_each_stored(l, &c, NULL, expect_run));
        }
    }
    return SLUICE_OK;
}

_Static_assert(SL_CHECKPOINT_CHUNK <= SL_SCRATCH_BYTES, "a chunk fits in the scratch memory of a thread");

/* An sl_try_fn. */
static sluice_status load_chunk(void *loading, int64_t task, void *scratch)
{
    const weights_loading *l = loading;
    const weights_chunk *c = &l->batches[l->at_hand].chunks[task];
    SL_TRY(for_each_stored(l, c, scratch, sl_set_read_f32));
    return l->state->write(l->state->user, c->tensor, c->first, c->count, scratch);
}

/* An sl_round_fn. While one batch is read, the disk knows of the next. */
static sluice_status load_next(void *loading, bool *done)
{
    weights_loading *l = loading;
    SL_TRY(sl_stop_poll(l->state->stop, "loading weights"));
    uint64_t listed = l->bytes;
    SL_TRY(list_chunks(l, &l->batches[!l->at_hand]));
    SL_TRY(sl_pool_try(l->pool, load_chunk, l, l->batches[l->at_hand].count));
    sl_activity_at(&l->activity, listed);
    l->at_hand = !l->at_hand;
    *done = l->batches[l->at_hand].count == 0;
    return SLUICE_OK;
}

/* Every rank reads for itself what it keeps. */
sluice_status sl_state_weights_load(const sl_state *state, const char *path)
{
    weights_loading l = { .state = state };
    sluice_status st = sl_agree(state->comm, "weights file", open_weights(&l, path));
    sl_copies_walk copies = { .state = state, .f = l.f, .buffer = (float *)l.staging.chunk };
    if (st == SLUICE_OK) st = sl_rounds(state->comm, "weights comparison", sl_copies_walk_next, &copies);
    if (st == SLUICE_OK) {
        sl_activity_begin(&l.activity, state->progress, "read", bytes_to_load(&l));
        st = sl_rounds(state->comm, "weights loading", load_next, &l);
        if (st == SLUICE_OK) sl_activity_end(&l.activity);
    }
    sl_pool_destroy(l.own_pool);
    for (int i = 0; i < 2; i++) sl_free(l.batches[i].chunks);
    sl_staging_free(&l.staging);
    sl_weights_set_close(l.f);
    return st;
}
