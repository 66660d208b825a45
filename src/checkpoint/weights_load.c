/* weights_load.c: weights of safetensors files into a state.
 *
 * Several threads take blocks in the order of the files. Each reads its block, makes values of it where the state does not
 * take it as it is, and stores them, so that the disk has as many requests at a time as there are threads, and works while
 * other blocks are stored. What is staged is a block for each thread.
 *
 * Through the page cache or past it? What went through it is there for the next run, but on a fast disk the cache itself is
 * the slower part. So a part of the files is read each way, and what remains goes past the cache only where that is clearly
 * faster. What the cache holds is always taken from there; what other ranks read as well always goes through it. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/folder.h"
#include "checkpoint/kept_vocabulary.h"
#include "checkpoint/rounds.h"
#include "checkpoint/weights_check.h"

/* A block of each of many threads, or of a few that are there for the disk alone. Fast disks want some megabytes of requests
 * at a time, in any number of them from about 8 on. */
#define BLOCK_BYTES       ((uint64_t)2 << 20)
#define SMALL_BLOCK_BYTES ((uint64_t)512 << 10)
#define LEAST_THREADS     8
/* Fewer are read before threads would have started. */
#define LEAST_BYTES_FOR_THREADS ((uint64_t)64 << 20)
/* Blocks that the disk is told of ahead, for each thread, where the page cache is between. */
#define AHEAD 2
/* Between two words to the other ranks and to whoever listens; at each end the disk is idle for a moment. The first parts are
 * for measuring. */
#define PART_SECONDS  0.5
#define TRIAL_SECONDS 0.1
/* How much faster it must be to leave nothing in the cache. */
#define WORTH_BYPASSING 1.15

/* A block and, behind it, a part of its values as float. */
#define ROOM_BYTES(block) (SL_ST_BLOCK_ROOM(block) + (block) / 2)

_Static_assert(ROOM_BYTES(BLOCK_BYTES) <= SL_SCRATCH_BYTES, "a block fits in the scratch memory of a thread");
_Static_assert(SL_CHECKPOINT_CHUNK + LEAST_THREADS * ROOM_BYTES(SMALL_BLOCK_BYTES) <= SL_CHECKPOINT_STAGING_BYTES,
               "what is staged outside the scratch memory of the engine's threads was planned");

/* A weight that the files hold. */
typedef struct weight_source {
    int64_t tensor;
    const sl_set_tensor *begin; /* the stored tensor that it begins in */
    bool shared;                /* other ranks read the same */
    bool takes_bf16;
} weight_source;

/* Elements of one weight, all of which this rank may keep. */
typedef struct weight_block {
    const weight_source *of;
    uint64_t first, count;
    sl_st_way way;
} weight_block;

/* What a part of the loading came to. */
typedef struct weights_part {
    sl_st_way way;
    uint64_t from_cache, from_disk; /* elements */
} weights_part;

/* Weights on their way into a state. */
typedef struct weights_loading {
    const sl_state *state;
    sl_weights_set *f; /* owned */
    sl_chunk_staging staging;
    sl_pool *pool, *own_pool; /* the state's, or one that is owned */
    uint64_t block_bytes;
    char *rooms; /* owned; one for each thread of the own pool; NULL: they use the scratch memory of theirs */
    weight_source *sources; /* owned; in the order of the files */
    int64_t source_count;
    sl_activity activity;
    bool can_bypass;     /* some file can be read past the cache */
    double rates[2];     /* by way: elements a second from the disk; 0: not known */
    double until;        /* when the part at hand ends: no block is listed from then on, and the listed ones are read */
    _Atomic bool failed; /* one thread: the others stop */
    pthread_mutex_t lock; /* of what follows */
    bool has_lock;
    weights_part part;
    uint64_t bytes;      /* that were taken so far, or that this rank does not keep */
    weight_block *ahead; /* owned; a ring of those to take next */
    int64_t ahead_first, ahead_count, ahead_most;
    int64_t source; /* the next to list */
    uint64_t done;  /* elements of it */
} weights_loading;

/* ---- what there is to load ---- */

/* Elements of a weight that lie in one stored tensor. */
typedef struct stored_run {
    const sl_set_tensor *in;
    int64_t first, count;
} stored_run;

/* The first run of elements [first, first+count). A part of a weight has whole rows, so its elements are a run. */
static stored_run run_at(const sl_weights_set *f, const sl_state_tensor *t, uint64_t first, uint64_t count)
{
    if (!sl_weight_is_in_parts(f, t))
        return (stored_run){ sl_weights_set_find(f, t->name), (int64_t)first, (int64_t)count };
    uint64_t width = t->elements / (uint64_t)t->shape.dim[0], begin = 0, end = (uint64_t)t->parts[0].rows * width;
    int k = 0;
    for (; first >= end; end = begin + (uint64_t)t->parts[k].rows * width) {
        begin = end;
        k++;
    }
    uint64_t most = end - first;
    return (stored_run){ sl_weights_set_find(f, t->parts[k].name), (int64_t)(first - begin),
                         (int64_t)(count < most ? count : most) };
}

static bool wants(const sl_state *state, int64_t tensor, uint64_t first, uint64_t end)
{
    return state->wants(state->user, tensor, (sl_range){ (int64_t)first, (int64_t)(end - first) });
}

/* Whether ranks keep what another one owns: then they read the same. */
static bool is_shared(const sl_state *state, int64_t tensor)
{
    for (int rank = 0; rank < state->rank_count; rank++) {
        if (rank == state->rank || state->owned_count(state->user, tensor, rank) == 0) continue;
        return state->wants(state->user, tensor, state->owned(state->user, tensor, rank, 0));
    }
    return false;
}

static int compare_places(const void *pa, const void *pb)
{
    const sl_set_tensor *a = ((const weight_source *)pa)->begin, *b = ((const weight_source *)pb)->begin;
    int files = a->file == b->file ? 0 : strcmp(a->file->file.path, b->file->file.path);
    if (files != 0) return files;
    return a->stored->begin < b->stored->begin ? -1 : a->stored->begin > b->stored->begin;
}

static sluice_status list_sources(weights_loading *l)
{
    const sl_state *state = l->state;
    l->sources = sl_alloc_array((size_t)state->count, sizeof *l->sources, "weights to load");
    if (l->sources == NULL) return SLUICE_ERR_NO_MEMORY;
    for (int64_t i = 0; i < state->count; i++) {
        const sl_state_tensor *t = &state->tensors[i];
        if (!sl_state_is_in_files(t) || sl_state_is_counter(t)) continue;
        if (sl_weight_is_left_out(l->f, t) || t->elements == 0) continue;
        bool takes = state->takes_bf16 != NULL && state->takes_bf16(state->user, i);
        l->sources[l->source_count++] = (weight_source){ i, run_at(l->f, t, 0, 1).in, is_shared(state, i), takes };
    }
    if (l->source_count > 0) qsort(l->sources, (size_t)l->source_count, sizeof *l->sources, compare_places);
    return SLUICE_OK;
}

static uint64_t bytes_to_load(const weights_loading *l)
{
    uint64_t elements = 0;
    for (int64_t i = 0; i < l->source_count; i++) elements += l->state->tensors[l->sources[i].tensor].elements;
    return elements * sizeof(float);
}

/* ---- blocks ---- */

/* The smallest run in a block with all that this rank keeps of it; false: it keeps nothing. `wants` is a question about
 * a set of elements, so a run that grows is wanted from some length on. */
static bool trim(const sl_state *state, weight_block *b)
{
    uint64_t first = b->first, end = b->first + b->count, low, high;
    if (!wants(state, b->of->tensor, first, end)) return false;
    for (low = first, high = end - 1; low < high;) { /* the first wanted element is in [low, high] */
        uint64_t middle = low + (high - low) / 2;
        if (wants(state, b->of->tensor, low, middle + 1))
            high = middle;
        else
            low = middle + 1;
    }
    b->first = low;
    for (high = end - 1; low < high;) { /* the last one likewise */
        uint64_t middle = high - (high - low) / 2;
        if (wants(state, b->of->tensor, middle, high + 1))
            low = middle;
        else
            high = middle - 1;
    }
    b->count = low + 1 - b->first;
    return true;
}

/* The next block in which this rank keeps any value; false: there is none. */
static bool list_block(weights_loading *l, weight_block *out)
{
    while (l->source < l->source_count) {
        const weight_source *s = &l->sources[l->source];
        uint64_t elements = l->state->tensors[s->tensor].elements, left = elements - l->done;
        uint64_t most = l->block_bytes / sl_st_dtype_bytes(s->begin->stored->dtype);
        *out = (weight_block){ .of = s, .first = l->done, .count = left < most ? left : most };
        l->done += out->count;
        l->bytes += out->count * sizeof(float);
        if (l->done == elements) {
            l->source++;
            l->done = 0;
        }
        if (trim(l->state, out)) return true;
    }
    return false;
}

/* Calls fn for the stored runs of a block until it says false; whether it never did. */
typedef bool (*run_test)(const stored_run *run);
static bool for_each_stored(const weights_loading *l, const weight_block *b, run_test fn)
{
    const sl_state_tensor *t = &l->state->tensors[b->of->tensor];
    for (uint64_t done = 0; done < b->count;) {
        stored_run run = run_at(l->f, t, b->first + done, b->count - done);
        if (!fn(&run)) return false;
        done += (uint64_t)run.count;
    }
    return true;
}

static bool is_cached(const stored_run *run)
{
    return sl_st_is_cached(run->in->file, run->in->stored, run->first, run->count);
}

static bool expect(const stored_run *run)
{
    sl_st_expect(run->in->file, run->in->stored, run->first, run->count);
    return true;
}

/* Before the disk is told of it, which would change the answer. */
static void choose_way(weights_loading *l, weight_block *b)
{
    bool cached = l->can_bypass && !b->of->shared && for_each_stored(l, b, is_cached);
    b->way = cached || b->of->shared ? SL_ST_THROUGH_CACHE : l->part.way;
    *(cached ? &l->part.from_cache : &l->part.from_disk) += b->count;
}

/* Lists the next block, while the part at hand goes on. False: the ring is full, or there is none. */
static bool put_ahead(weights_loading *l, weight_block *out)
{
    if (l->ahead_count == l->ahead_most || sl_now() >= l->until || !list_block(l, out)) return false;
    choose_way(l, out);
    l->ahead[(l->ahead_first + l->ahead_count++) % l->ahead_most] = *out;
    return true;
}

static void tell_of(const weights_loading *l, const weight_block *b)
{
    if (b->way == SL_ST_THROUGH_CACHE) for_each_stored(l, b, expect);
}

static void fill_ahead(weights_loading *l)
{
    weight_block b;
    while (put_ahead(l, &b)) tell_of(l, &b);
}

/* Takes the next block, and tells of the one that takes its place in the ring. False: there is none. */
static bool take_block(weights_loading *l, weight_block *out)
{
    weight_block behind;
    pthread_mutex_lock(&l->lock);
    bool any = l->ahead_count > 0, more = false;
    if (any) {
        *out = l->ahead[l->ahead_first];
        l->ahead_first = (l->ahead_first + 1) % l->ahead_most;
        l->ahead_count--;
        more = put_ahead(l, &behind);
    }
    pthread_mutex_unlock(&l->lock);
    if (more) tell_of(l, &behind);
    return any;
}

/* ---- values ---- */

/* Elements of a weight as a file stores them. */
static sluice_status store(const weights_loading *l, const weight_source *s, uint64_t first, uint64_t count,
                           sl_st_dtype type, const char *data, float *values)
{
    const sl_state *state = l->state;
    uint64_t most = l->block_bytes / 2 / sizeof *values, each = sl_st_dtype_bytes(type);
    if (type == SL_ST_BF16 && s->takes_bf16) return state->write_bf16(state->user, s->tensor, first, count, data);
    if (type == SL_ST_F32 && (uintptr_t)data % _Alignof(float) == 0)
        return state->write(state->user, s->tensor, first, count, (const float *)(const void *)data);
    for (uint64_t done = 0; done < count;) {
        uint64_t part = count - done < most ? count - done : most;
        sl_st_to_f32(type, data + done * each, (int64_t)part, values);
        SL_TRY(state->write(state->user, s->tensor, first + done, part, values));
        done += part;
    }
    return SLUICE_OK;
}

/* The parts of a weight may be of different types, and larger than the one that the size of a block was made of. */
static sluice_status load_block(const weights_loading *l, const weight_block *b, char *room)
{
    const sl_state_tensor *t = &l->state->tensors[b->of->tensor];
    float *values = (float *)(void *)(room + SL_ST_BLOCK_ROOM(l->block_bytes));
    for (uint64_t done = 0; done < b->count;) {
        const char *data;
        stored_run run = run_at(l->f, t, b->first + done, b->count - done);
        sl_st_dtype type = run.in->stored->dtype;
        int64_t most = (int64_t)(l->block_bytes / sl_st_dtype_bytes(type));
        if (run.count > most) run.count = most;
        SL_TRY(sl_st_read_block(run.in->file, run.in->stored, run.first, run.count, b->way, room, &data));
        SL_TRY(store(l, b->of, b->first + done, (uint64_t)run.count, type, data, values));
        done += (uint64_t)run.count;
    }
    return SLUICE_OK;
}

/* An sl_try_fn: one thread, until the part at hand ends. */
static sluice_status load_blocks(void *loading, int64_t thread, void *scratch)
{
    weights_loading *l = loading;
    weight_block b;
    sluice_status st = SLUICE_OK;
    char *room = l->rooms != NULL ? l->rooms + (size_t)thread * ROOM_BYTES(l->block_bytes) : scratch;
    while (st == SLUICE_OK && !atomic_load(&l->failed) && take_block(l, &b)) {
        st = sl_stop_poll(l->state->stop, "loading weights");
        if (st == SLUICE_OK) st = load_block(l, &b, room);
    }
    if (st != SLUICE_OK) atomic_store(&l->failed, true);
    return st;
}

/* ---- parts ---- */

/* Each way once, then the better one. */
static sl_st_way next_way(const weights_loading *l)
{
    double through = l->rates[SL_ST_THROUGH_CACHE], past = l->rates[SL_ST_PAST_CACHE];
    if (!l->can_bypass || through == 0) return SL_ST_THROUGH_CACHE;
    return past == 0 || past > WORTH_BYPASSING * through ? SL_ST_PAST_CACHE : SL_ST_THROUGH_CACHE;
}

/* A part that the cache had most of tells nothing of the disk. */
static void note_rate(weights_loading *l, double seconds)
{
    const weights_part *p = &l->part;
    if (p->from_disk > 0 && p->from_cache <= p->from_disk / 8 && l->rates[p->way] == 0)
        l->rates[p->way] = (double)p->from_disk / seconds;
}

/* An sl_round_fn. */
static sluice_status load_part(void *loading, bool *done)
{
    weights_loading *l = loading;
    bool trial = l->can_bypass && l->rates[SL_ST_PAST_CACHE] == 0;
    double start = sl_now();
    l->part = (weights_part){ .way = next_way(l) };
    l->until = start + (trial ? TRIAL_SECONDS : PART_SECONDS);
    fill_ahead(l);
    SL_TRY(sl_pool_try(l->pool, load_blocks, l, sl_pool_threads(l->pool)));
    note_rate(l, sl_now() - start);
    sl_activity_at(&l->activity, l->bytes);
    *done = l->source == l->source_count;
    return SLUICE_OK;
}

/* ---- counts ---- */

/* Those that the files hold; the others stay as they are. */
static sluice_status load_counts(const weights_loading *l)
{
    const sl_state *state = l->state;
    for (int64_t i = 0; i < state->count; i++) {
        const sl_state_tensor *t = &state->tensors[i];
        uint64_t count;
        if (!sl_state_is_counter(t) || sl_weight_is_left_out(l->f, t)) continue;
        SL_TRY(sl_weights_read_count(l->f, t->name, &count));
        const float halves[2] = { (float)(count % SL_BATCHES_LOW), (float)(count / SL_BATCHES_LOW) };
        SL_TRY(state->write(state->user, i, 0, 2, halves));
    }
    return SLUICE_OK;
}

/* ---- the whole ---- */

/* The state's threads where they are many enough for a disk, otherwise as many as it wants, which mostly wait. */
static sluice_status choose_threads(weights_loading *l)
{
    int threads = l->state->pool != NULL ? sl_pool_threads(l->state->pool) : 1;
    bool more = l->state->pool != NULL && threads < LEAST_THREADS && bytes_to_load(l) >= LEAST_BYTES_FOR_THREADS;
    l->block_bytes = more ? SMALL_BLOCK_BYTES : BLOCK_BYTES;
    l->pool = l->state->pool;
    if (!more && l->pool != NULL) return SLUICE_OK;
    SL_TRY(sl_pool_create(more ? LEAST_THREADS : 1, &l->own_pool));
    l->pool = l->own_pool;
    if (!more) return SLUICE_OK;
    l->rooms = sl_alloc_array(LEAST_THREADS, ROOM_BYTES(l->block_bytes), "blocks of weights on their way");
    return l->rooms != NULL ? SLUICE_OK : SLUICE_ERR_NO_MEMORY;
}

static sluice_status prepare(weights_loading *l)
{
    SL_TRY(list_sources(l));
    SL_TRY(choose_threads(l));
    l->ahead_most = (int64_t)AHEAD * sl_pool_threads(l->pool);
    l->ahead = sl_alloc_array((size_t)l->ahead_most, sizeof *l->ahead, "blocks of weights");
    if (l->ahead == NULL) return SLUICE_ERR_NO_MEMORY;
    for (int64_t i = 0; i < l->f->file_count; i++) {
        sl_st_bypass_cache(l->f->files[i]);
        l->can_bypass = l->can_bypass || l->f->files[i]->direct.path != NULL;
    }
    l->has_lock = pthread_mutex_init(&l->lock, NULL) == 0;
    return sl_staging_take(&l->staging);
}

/* Everything is checked before the first value is replaced. */
static sluice_status open_weights(weights_loading *l, const char *path)
{
    SL_TRY(sl_weights_open(path, &l->f));
    sl_kept_vocabulary kept = sl_kept_in_set(l->f);
    SL_TRY(sl_weights_fit_names(l->f, l->state));
    SL_TRY(sl_weights_check(l->f, l->state));
    SL_TRY(sl_kept_check(&l->state->vocabulary, &kept, path));
    return prepare(l);
}

static void close_weights(weights_loading *l)
{
    if (l->has_lock) pthread_mutex_destroy(&l->lock);
    sl_pool_destroy(l->own_pool);
    sl_free(l->rooms);
    sl_free(l->ahead);
    sl_free(l->sources);
    sl_staging_free(&l->staging);
    sl_weights_set_close(l->f);
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
        st = sl_agree(state->comm, "weights loading", load_counts(&l));
        if (st == SLUICE_OK) st = sl_rounds(state->comm, "weights loading", load_part, &l);
        if (st == SLUICE_OK) sl_activity_end(&l.activity);
    }
    close_weights(&l);
    return st;
}
