/* carry.c: state kept in memory between two executors. It is a state of its own (state.h) whose values are read from there,
 * so that ranks exchange them as they do those of an executor. */
#include "checkpoint/carry.h"

#include <math.h>
#include <stdint.h>
#include <sys/mman.h>

#include "checkpoint/gather.h"
#include "checkpoint/rounds.h"
#include "core/alloc.h"

/* A tensor as it was owned. */
typedef struct kept {
    uint64_t elements;
    sl_range *runs;     /* owned; those of rank 0, then those of rank 1, .. */
    int64_t *first_run; /* owned; of each rank, its first one; then their number */
    float *values;      /* owned; this rank's runs, one after the other; NULL: none, or they were brought back */
} kept;

struct sl_carried {
    sl_state state; /* of what is kept here */
    kept *tensors;  /* owned; state.count of them */
};

/* ---- as a state ---- */

static int64_t kept_run_count(void *user, int64_t tensor, int rank)
{
    const kept *k = &((const sl_carried *)user)->tensors[tensor];
    return k->first_run[rank + 1] - k->first_run[rank];
}

static sl_range kept_run(void *user, int64_t tensor, int rank, int64_t index)
{
    const kept *k = &((const sl_carried *)user)->tensors[tensor];
    return k->runs[k->first_run[rank] + index];
}

static sluice_status read_kept(void *user, int64_t tensor, uint64_t first, uint64_t count, float *out)
{
    const sl_carried *c = user;
    const kept *k = &c->tensors[tensor];
    const sl_range wanted = { (int64_t)first, (int64_t)count };
    const float *values = k->values;
    for (int64_t i = k->first_run[c->state.rank]; i < k->first_run[c->state.rank + 1]; i++) {
        const sl_range common = sl_range_common(wanted, k->runs[i]);
        if (common.count > 0)
            memcpy(out + (common.first - wanted.first), values + (common.first - k->runs[i].first),
                   (size_t)common.count * sizeof *out);
        values += k->runs[i].count;
    }
    return SLUICE_OK;
}

/* ---- out ---- */

/* Values of a tensor between an executor and the memory here, chunk by chunk on all threads. */
typedef struct passage {
    const sl_state *state;
    int64_t tensor;
    sl_range run;
    float *values; /* of the run */
    bool out;
} passage;

static sluice_status pass_chunk(void *context, int64_t task, void *scratch)
{
    const passage *p = context;
    const uint64_t done = (uint64_t)task * SL_CHUNK_ELEMENTS, left = (uint64_t)p->run.count - done;
    const uint64_t count = left < SL_CHUNK_ELEMENTS ? left : SL_CHUNK_ELEMENTS, first = (uint64_t)p->run.first + done;
    (void)scratch;
    if (p->out) return p->state->read(p->state->user, p->tensor, first, count, p->values + done);
    return p->state->write(p->state->user, p->tensor, first, count, p->values + done);
}

static sluice_status pass_run(passage *p)
{
    const int64_t chunks = (p->run.count + (int64_t)SL_CHUNK_ELEMENTS - 1) / (int64_t)SL_CHUNK_ELEMENTS;
    if (p->state->pool != NULL) return sl_pool_try(p->state->pool, pass_chunk, p, chunks);
    for (int64_t i = 0; i < chunks; i++) SL_TRY(pass_chunk(p, i, NULL));
    return SLUICE_OK;
}

static sluice_status list_runs(const sl_state *state, int64_t tensor, kept *k)
{
    int64_t count = 0;
    k->elements = state->tensors[tensor].elements;
    k->first_run = sl_alloc_array((size_t)state->rank_count + 1, sizeof *k->first_run, "carried state");
    if (k->first_run == NULL) return SLUICE_ERR_NO_MEMORY;
    for (int r = 0; r < state->rank_count; r++) {
        k->first_run[r] = count;
        count += state->owned_count(state->user, tensor, r);
    }
    k->first_run[state->rank_count] = count;
    k->runs = sl_alloc_array((size_t)count + 1, sizeof *k->runs, "carried state");
    if (k->runs == NULL) return SLUICE_ERR_NO_MEMORY;
    for (int r = 0; r < state->rank_count; r++)
        for (int64_t i = k->first_run[r]; i < k->first_run[r + 1]; i++)
            k->runs[i] = state->owned(state->user, tensor, r, i - k->first_run[r]);
    return SLUICE_OK;
}

/* Of memory that all threads touch for the first time at once: with pages of 4 KiB they would wait for each other in the kernel. */
static void ask_for_huge_pages(void *p, size_t bytes)
{
    const uintptr_t page = (uintptr_t)2 << 20, first = ((uintptr_t)p + page - 1) / page * page;
    const uintptr_t end = ((uintptr_t)p + bytes) / page * page;
    if (end > first) madvise((void *)first, end - first, MADV_HUGEPAGE);
}

static sluice_status keep_tensor(const sl_state *state, int64_t tensor, kept *k)
{
    passage p = { .state = state, .tensor = tensor, .out = true };
    int64_t count = 0;
    SL_TRY(list_runs(state, tensor, k));
    const int64_t begin = k->first_run[state->rank], end = k->first_run[state->rank + 1];
    for (int64_t i = begin; i < end; i++) count += k->runs[i].count;
    if (count == 0) return SLUICE_OK;
    k->values = sl_alloc_array((size_t)count, sizeof *k->values, "carried state");
    if (k->values == NULL) return SLUICE_ERR_NO_MEMORY;
    ask_for_huge_pages(k->values, (size_t)count * sizeof *k->values);
    p.values = k->values;
    for (int64_t i = begin; i < end; i++) {
        p.run = k->runs[i];
        SL_TRY(pass_run(&p));
        p.values += p.run.count;
    }
    return SLUICE_OK;
}

static sluice_status open_carried(const sl_state *state, sl_carried **out)
{
    sl_carried *c = sl_alloc(sizeof *c, "carried state");
    if (c == NULL) return SLUICE_ERR_NO_MEMORY;
    *out = c;
    c->tensors = sl_alloc_array((size_t)state->count + 1, sizeof *c->tensors, "carried state");
    if (c->tensors == NULL) return SLUICE_ERR_NO_MEMORY;
    c->state = (sl_state){ .count = state->count, .rank = state->rank, .rank_count = state->rank_count };
    c->state.owned_count = kept_run_count;
    c->state.owned = kept_run;
    c->state.read = read_kept;
    c->state.user = c;
    return SLUICE_OK;
}

typedef struct departure {
    const sl_state *state;
    sl_carried *carried; /* NULL: not begun */
    int64_t next;        /* tensor */
} departure;

/* An sl_round_fn: ranks stay in touch while they copy. */
static sluice_status keep_next(void *user, bool *done)
{
    departure *d = user;
    if (d->carried == NULL) SL_TRY(open_carried(d->state, &d->carried));
    *done = d->next == d->state->count;
    if (*done) return SLUICE_OK;
    const int64_t tensor = d->next++;
    return keep_tensor(d->state, tensor, &d->carried->tensors[tensor]);
}

sluice_status sl_state_carry_out(const sl_state *state, sl_carried **out)
{
    departure d = { .state = state };
    sluice_status st = sl_rounds(state->comm, "carrying the state out", keep_next, &d);
    if (st == SLUICE_OK)
        *out = d.carried;
    else
        sl_carried_free(d.carried);
    return st;
}

/* ---- how fast ---- */

#define SAMPLE_SECONDS  0.25
#define SAMPLE_ELEMENTS ((int64_t)(64 * SL_CHUNK_ELEMENTS)) /* of a tensor at most, so that one takes no second */
#define GOLDEN_RATIO    0.6180339887498949

static sluice_status sample_tensor(const sl_state *state, int64_t tensor, uint64_t *bytes)
{
    passage p = { .state = state, .tensor = tensor, .out = true };
    if (state->owned_count(state->user, tensor, state->rank) == 0) return SLUICE_OK;
    p.run = state->owned(state->user, tensor, state->rank, 0);
    if (p.run.count > SAMPLE_ELEMENTS) p.run.count = SAMPLE_ELEMENTS;
    if (p.run.count == 0) return SLUICE_OK;
    p.values = sl_alloc_array((size_t)p.run.count, sizeof *p.values, "a sample of the state");
    if (p.values == NULL) return SLUICE_ERR_NO_MEMORY;
    sluice_status st = pass_run(&p);
    sl_free(p.values);
    *bytes += (uint64_t)p.run.count * sizeof *p.values;
    return st;
}

/* Tensors at steps of the golden ratio: whatever the order in which weights and moments, first and last layers follow each other,
 * the first few of them are a fair sample. */
sluice_status sl_state_carry_rate(const sl_state *state, double *bytes_per_second)
{
    const double begin = sl_now();
    double place = 0, seconds = 0;
    uint64_t bytes = 0;
    for (int64_t i = 0; i < state->count && seconds < SAMPLE_SECONDS; i++) {
        place += GOLDEN_RATIO;
        place -= floor(place);
        SL_TRY(sample_tensor(state, (int64_t)(place * (double)state->count), &bytes));
        seconds = sl_now() - begin;
    }
    *bytes_per_second = bytes > 0 ? (double)bytes / fmax(seconds, 1e-9) : 0;
    return SLUICE_OK;
}

/* ---- in ---- */

static void free_tensor(kept *k)
{
    sl_free(k->values);
    sl_free(k->runs);
    sl_free(k->first_run);
    *k = (kept){ .elements = 0 };
}

/* A rank that is alone has all there is. */
static sluice_status bring_own(sl_carried *c, const sl_state *state, int64_t tensor)
{
    const kept *k = &c->tensors[tensor];
    passage p = { .state = state, .tensor = tensor, .values = k->values };
    for (int64_t i = 0; i < k->first_run[1]; i++) {
        p.run = k->runs[i];
        SL_TRY(pass_run(&p));
        p.values += p.run.count;
    }
    return SLUICE_OK;
}

/* What a rank keeps of others' values is its own affair: all of them get all. */
static sluice_status bring_shared(sl_carried *c, const sl_state *state, int64_t tensor, float *chunk)
{
    const uint64_t elements = c->tensors[tensor].elements;
    sluice_status wrote = SLUICE_OK;
    for (uint64_t first = 0; first < elements; first += SL_CHUNK_ELEMENTS) {
        const uint64_t left = elements - first, count = left < SL_CHUNK_ELEMENTS ? left : SL_CHUNK_ELEMENTS;
        SL_TRY(sl_state_read_all(&c->state, tensor, first, count, chunk));
        if (wrote == SLUICE_OK) wrote = state->write(state->user, tensor, first, count, chunk);
    }
    return sl_agree(state->comm, "carrying the state in", wrote);
}

sluice_status sl_state_carry_in(sl_carried *c, const sl_state *state)
{
    const bool shared = sl_has_peers(state->comm);
    sl_chunk_staging staging = { NULL, NULL };
    sluice_status st = c->state.count == state->count
                           ? SLUICE_OK
                           : sl_fail(SLUICE_ERR_FAILED, "carried state has %lld tensors, the engine %lld",
                                     (long long)c->state.count, (long long)state->count);
    c->state.comm = state->comm;
    if (st == SLUICE_OK && shared) st = sl_staging_take(&staging);
    st = sl_agree(state->comm, "carrying the state in", st);
    for (int64_t t = 0; st == SLUICE_OK && t < state->count; t++) {
        st = shared ? bring_shared(c, state, t, (float *)staging.chunk) : bring_own(c, state, t);
        free_tensor(&c->tensors[t]);
    }
    sl_staging_free(&staging);
    return st;
}

void sl_carried_free(sl_carried *c)
{
    if (c == NULL) return;
    for (int64_t t = 0; c->tensors != NULL && t < c->state.count; t++) free_tensor(&c->tensors[t]);
    sl_free(c->tensors);
    sl_free(c);
}
