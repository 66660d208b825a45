/* hashes.c: the hashes by which two runs are compared (exact rule 10).
 *
 * Each tensor has a SHA-256 of its own, so tensors are hashed side by side: on all threads of a rank, and on all ranks.
 * Within a tensor a hash goes from the first element to the last. Where the next elements are another rank's, that rank
 * goes on with it: what travels is the state of the hash, a hundred bytes, and never a value. Work goes in rounds. In a
 * round each rank goes a bounded way on in the tensors it can go on with, those with the most left first; then all ranks
 * tell each other how far they came, and all know the same again.
 *
 * Tensors whose owner changes every few elements (tiles of a matrix, cut by columns, on several ranks) would need a round
 * for each change. Their values are read by rank 0 instead (gather.h). */
#include <stdlib.h>
#include <string.h>

#include "checkpoint/gather.h"
#include "checkpoint/rounds.h"
#include "core/arena.h"
#include "core/sha256.h"

#define CHUNK_ELEMENTS                                                                                                 \
    ((uint64_t)1 << 18)                   /* read at a time, to the scratch memory of a thread: it stays in its cache */
#define TURN_ELEMENTS ((uint64_t)1 << 23) /* of a tensor in one round: some hundredths of a second */
#define SHARED_TURNS  64                  /* of one rank in a round, where ranks tell each other of them */
/* A tensor in more runs than the first, of fewer elements in the mean than the second, is read by rank 0. */
#define MANY_RUNS 64
#define SHORT_RUN ((uint64_t)1 << 16)
_Static_assert(CHUNK_ELEMENTS * sizeof(float) <= SL_SCRATCH_BYTES, "a chunk fits in the scratch memory of a thread");
_Static_assert(CHUNK_ELEMENTS <= SL_CHUNK_ELEMENTS, "a chunk can be gathered");

/* How far the hash of a tensor's values is. */
typedef struct value_hash {
    uint64_t done; /* elements */
    sl_sha256 sha;
} value_hash;

/* A tensor that a rank goes on with in a round, and how far it comes. Travels between ranks. */
typedef struct turn {
    int64_t tensor; /* -1: none */
    uint64_t end;   /* elements [hash.done, end) are hashed */
    value_hash hash;
} turn;

typedef struct hashing {
    const sl_state *state;
    sl_pool *pool;      /* the state's, or own_pool */
    sl_pool *own_pool;  /* owned; may be NULL */
    sl_arena arena;     /* owns everything below */
    value_hash *hashes; /* of each tensor; between rounds the same on all ranks */
    bool *gathered;     /* by tensor: read by rank 0 */
    int64_t most_turns; /* of a rank in a round */
    turn *mine, *all;   /* most_turns; as many for each rank, in rank order */
    int64_t turn_count; /* of mine */
    sl_activity activity;
} hashing;

/* ---- opening ---- */

static bool is_gathered(const sl_state *state, int64_t tensor)
{
    int64_t runs = 0;
    for (int r = 0; state->rank_count > 1 && r < state->rank_count; r++)
        runs += state->owned_count(state->user, tensor, r);
    return runs > MANY_RUNS && state->tensors[tensor].elements / (uint64_t)runs < SHORT_RUN;
}

static sluice_status allocate(hashing *h)
{
    const sl_state *state = h->state;
    size_t count = (size_t)state->count, ranks = (size_t)state->rank_count;
    if (state->pool == NULL) SL_TRY(sl_pool_create(1, &h->own_pool));
    h->pool = state->pool != NULL ? state->pool : h->own_pool;
    /* A rank alone gives each thread one turn, of the tensors with the most left: so the largest, which only one thread at
     * a time can hash, goes on in every round and is not what is left at the end. */
    h->most_turns = sl_has_peers(state->comm) ? SHARED_TURNS : sl_pool_threads(h->pool);
    h->hashes = sl_arena_array(&h->arena, count, sizeof *h->hashes);
    h->gathered = sl_arena_array(&h->arena, count, sizeof *h->gathered);
    h->mine = sl_arena_array(&h->arena, (size_t)h->most_turns, sizeof *h->mine);
    h->all = sl_arena_array(&h->arena, (size_t)h->most_turns * ranks, sizeof *h->all);
    if (h->hashes == NULL || h->gathered == NULL || h->mine == NULL || h->all == NULL) return SLUICE_ERR_NO_MEMORY;
    for (int64_t i = 0; i < state->count; i++) {
        sl_sha256_init(&h->hashes[i].sha);
        h->gathered[i] = is_gathered(state, i);
    }
    return SLUICE_OK;
}

static uint64_t bytes_done(const hashing *h, bool all)
{
    uint64_t elements = 0;
    for (int64_t i = 0; i < h->state->count; i++) elements += all ? h->state->tensors[i].elements : h->hashes[i].done;
    return elements * sizeof(float);
}

static void close_hashing(hashing *h)
{
    sl_pool_destroy(h->own_pool);
    sl_arena_free(&h->arena);
}

/* ---- a round ---- */

/* Where the elements from `first` on that this rank owns end, at the most TURN_ELEMENTS away; `first` where it does not
 * own that one. */
static uint64_t owned_end(const sl_state *state, int64_t tensor, uint64_t first)
{
    uint64_t elements = state->tensors[tensor].elements, end = first;
    uint64_t most = elements - first < TURN_ELEMENTS ? elements : first + TURN_ELEMENTS;
    if (state->rank_count == 1) return most;
    int64_t count = state->owned_count(state->user, tensor, state->rank);
    for (int64_t i = sl_state_find_owned(state, tensor, state->rank, first); i < count && end < most; i++) {
        sl_range r = state->owned(state->user, tensor, state->rank, i);
        if ((uint64_t)r.first > end) break;
        end = (uint64_t)(r.first + r.count);
    }
    return end < most ? end : most;
}

/* Keeps the turns with the most left of their tensors, in that order. */
static void offer_turn(hashing *h, const turn *t)
{
    const sl_state_tensor *tensors = h->state->tensors;
    uint64_t left = tensors[t->tensor].elements - t->hash.done;
    int64_t at = h->turn_count;
    while (at > 0 && tensors[h->mine[at - 1].tensor].elements - h->mine[at - 1].hash.done < left) at--;
    if (at == h->most_turns) return;
    if (h->turn_count < h->most_turns) h->turn_count++;
    memmove(h->mine + at + 1, h->mine + at, (size_t)(h->turn_count - 1 - at) * sizeof *h->mine);
    h->mine[at] = *t;
}

static void choose_turns(hashing *h)
{
    h->turn_count = 0;
    for (int64_t i = 0; i < h->state->count; i++) {
        turn t = { .tensor = i, .hash = h->hashes[i] };
        if (h->gathered[i] || t.hash.done == h->state->tensors[i].elements) continue;
        t.end = owned_end(h->state, i, t.hash.done);
        if (t.end > t.hash.done) offer_turn(h, &t);
    }
    for (int64_t i = h->turn_count; i < h->most_turns; i++) h->mine[i].tensor = -1;
}

static sluice_status take_turn(void *context, int64_t task, void *scratch)
{
    const hashing *h = context;
    const sl_state *state = h->state;
    turn *t = &h->mine[task];
    while (t->hash.done < t->end) {
        uint64_t left = t->end - t->hash.done, count = left < CHUNK_ELEMENTS ? left : CHUNK_ELEMENTS;
        SL_TRY(sl_stop_poll(state->stop, "hashing"));
        SL_TRY(state->read(state->user, t->tensor, t->hash.done, count, scratch));
        sl_sha256_update(&t->hash.sha, scratch, count * sizeof(float));
        t->hash.done += count;
    }
    return SLUICE_OK;
}

/* How far each rank came, on all of them. */
static sluice_status exchange_turns(hashing *h, sluice_status mine)
{
    sl_comm *comm = h->state->comm;
    if (!sl_has_peers(comm)) {
        memcpy(h->all, h->mine, (size_t)h->most_turns * sizeof *h->all);
        return mine;
    }
    SL_TRY(sl_agree(comm, "hashing", mine));
    return comm->ops->exchange(comm, "hashes", h->mine, (size_t)h->most_turns * sizeof *h->mine, h->all);
}

static sluice_status run_round(hashing *h)
{
    choose_turns(h);
    SL_TRY(exchange_turns(h, sl_pool_try(h->pool, take_turn, h, h->turn_count)));
    for (int64_t i = 0; i < h->most_turns * h->state->rank_count; i++)
        if (h->all[i].tensor >= 0) h->hashes[h->all[i].tensor] = h->all[i].hash;
    sl_activity_at(&h->activity, bytes_done(h, false));
    return SLUICE_OK;
}

static bool has_rounds_left(const hashing *h)
{
    for (int64_t i = 0; i < h->state->count; i++)
        if (!h->gathered[i] && h->hashes[i].done < h->state->tensors[i].elements) return true;
    return false;
}

/* ---- tensors that rank 0 reads ---- */

static sluice_status read_and_hash(hashing *h, sl_gather *g, int64_t tensor)
{
    value_hash *v = &h->hashes[tensor];
    uint64_t elements = h->state->tensors[tensor].elements;
    float *chunk = (float *)g->chunk.chunk;
    while (v->done < elements) {
        uint64_t left = elements - v->done, count = left < CHUNK_ELEMENTS ? left : CHUNK_ELEMENTS;
        SL_TRY(sl_stop_poll(h->state->stop, "hashing"));
        SL_TRY(sl_gather_read(g, tensor, v->done, count, chunk));
        sl_sha256_update(&v->sha, chunk, count * sizeof(float));
        v->done += count;
        sl_activity_at(&h->activity, bytes_done(h, false));
    }
    return SLUICE_OK;
}

static sluice_status read_gathered(hashing *h, sl_gather *g)
{
    for (int64_t i = 0; i < h->state->count; i++)
        if (h->gathered[i]) SL_TRY(read_and_hash(h, g, i));
    return SLUICE_OK;
}

static sluice_status hash_gathered(hashing *h)
{
    const sl_state *state = h->state;
    sl_gather g;
    bool any = false;
    for (int64_t i = 0; i < state->count; i++) any = any || h->gathered[i];
    if (!any) return SLUICE_OK;
    SL_TRY(sl_gather_open(&g, state));
    sluice_status st = state->rank == 0 ? read_gathered(h, &g) : sl_gather_serve(&g);
    SL_TRY(sl_gather_close(&g, st));
    return sl_share(state->comm, "hashes", h->hashes, (size_t)state->count * sizeof *h->hashes);
}

/* ---- the two hashes ---- */

/* One entry of a hash. */
typedef struct entry {
    const char *name;
    int64_t tensor;
} entry;

static int compare_entries(const void *a, const void *b)
{
    return strcmp(((const entry *)a)->name, ((const entry *)b)->name);
}

static void add_named_digest(sl_sha256 *h, const char *name, sl_sha256 *values)
{
    uint8_t digest[32];
    sl_sha256_final(values, digest);
    sl_sha256_update(h, name, strlen(name) + 1);
    sl_sha256_update(h, digest, sizeof digest);
}

/* The entries of the weights, or of everything else, in byte order of their names. */
static sluice_status list_entries(const sl_state *state, bool weights, sl_arena *arena, entry **out, int64_t *count)
{
    entry *entries = sl_arena_array(arena, (size_t)state->count, sizeof *entries);
    int64_t n = 0;
    if (entries == NULL) return SLUICE_ERR_NO_MEMORY;
    for (int64_t i = 0; i < state->count; i++) {
        const sl_state_tensor *t = &state->tensors[i];
        if (sl_state_is_weight(t) != weights) continue;
        const char *name = sl_state_is_in_files(t) ? t->name : sl_arena_printf(arena, "%s.%s", t->name, t->kind);
        if (name == NULL) return SLUICE_ERR_NO_MEMORY;
        entries[n++] = (entry){ name, i };
    }
    if (n > 0) qsort(entries, (size_t)n, sizeof *entries, compare_entries);
    *out = entries;
    *count = n;
    return SLUICE_OK;
}

static sluice_status add_group(hashing *h, bool weights, sl_sha256 *sum)
{
    entry *entries;
    int64_t count;
    SL_TRY(list_entries(h->state, weights, &h->arena, &entries, &count));
    for (int64_t i = 0; i < count; i++) add_named_digest(sum, entries[i].name, &h->hashes[entries[i].tensor].sha);
    return SLUICE_OK;
}

static void finish_hex(sl_sha256 *h, char hex[65])
{
    uint8_t digest[32];
    sl_sha256_final(h, digest);
    sl_sha256_hex(digest, hex);
}

static sluice_status combine(hashing *h, double loss_scale, char weights[65], char optimizer[65])
{
    sl_sha256 w, o, scale;
    sl_sha256_init(&w);
    sl_sha256_init(&o);
    SL_TRY(add_group(h, true, &w));
    SL_TRY(add_group(h, false, &o));
    sl_sha256_init(&scale);
    sl_sha256_update(&scale, &loss_scale, sizeof loss_scale);
    add_named_digest(&o, "loss_scale", &scale);
    finish_hex(&w, weights);
    finish_hex(&o, optimizer);
    return SLUICE_OK;
}

static sluice_status hash_values(hashing *h)
{
    sl_activity_begin(&h->activity, h->state->progress, "hash", bytes_done(h, true));
    while (has_rounds_left(h)) SL_TRY(run_round(h));
    SL_TRY(hash_gathered(h));
    sl_activity_end(&h->activity);
    return SLUICE_OK;
}

sluice_status sl_state_sha256(const sl_state *state, double loss_scale, char weights[65], char optimizer[65])
{
    hashing h = { .state = state };
    sl_arena_init(&h.arena, "hashes of tensors");
    sluice_status st = sl_agree(state->comm, "hashing", allocate(&h));
    if (st == SLUICE_OK) st = hash_values(&h);
    if (st == SLUICE_OK) st = sl_agree(state->comm, "hashing", combine(&h, loss_scale, weights, optimizer));
    close_hashing(&h);
    return st;
}
