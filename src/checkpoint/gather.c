/* gather.c: requests and answers over control calls. Only values travel: who owns what is known to every rank. */
#include "checkpoint/gather.h"

#include <string.h>

#include "checkpoint/rounds.h"

/* What rank 0 asks for. */
typedef struct request {
    int64_t tensor; /* -1: nothing more */
    uint64_t first, count;
} request;

int64_t sl_state_find_owned(const sl_state *state, int64_t tensor, int rank, uint64_t element)
{
    int64_t low = 0, high = state->owned_count(state->user, tensor, rank);
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        sl_range r = state->owned(state->user, tensor, rank, middle);
        if ((uint64_t)(r.first + r.count) > element)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* Moves the values that `rank` owns between their places in `spread` and one after the other in `packed`; returns how
 * many. Packing a buffer onto its own beginning is fine: values only move towards the front. Both NULL: only counts. */
static uint64_t move_owned(const sl_state *state, int rank, const request *rq, float *spread, float *packed, bool pack)
{
    int64_t count = state->owned_count(state->user, rq->tensor, rank);
    sl_range all = { (int64_t)rq->first, (int64_t)rq->count };
    uint64_t moved = 0;
    for (int64_t i = sl_state_find_owned(state, rq->tensor, rank, rq->first); i < count; i++) {
        sl_range r = sl_range_common(all, state->owned(state->user, rq->tensor, rank, i));
        if (r.count == 0) break;
        size_t bytes = (size_t)r.count * sizeof(float);
        float *place = spread == NULL ? NULL : spread + (r.first - all.first);
        if (place != NULL) memmove(pack ? packed + moved : place, pack ? place : packed + moved, bytes);
        moved += (uint64_t)r.count;
    }
    return moved;
}

/* This rank's part in one reading. `out` has room for all elements and gets them on rank 0; elsewhere it is scratch.
 * Fails only where the ranks cannot talk. */
static sluice_status contribute(sl_gather *g, const request *rq, float *out)
{
    const sl_state *state = g->state;
    if (g->fault == SLUICE_OK) g->fault = state->read(state->user, rq->tensor, rq->first, rq->count, out);
    move_owned(state, state->rank, rq, out, out, true);
    for (int r = 0; r < state->rank_count; r++)
        g->lengths[r] = move_owned(state, r, rq, NULL, NULL, true) * sizeof(float);
    SL_TRY(state->comm->ops->collect(state->comm, "checkpoint values", 0, out, g->lengths, g->received.chunk));
    if (state->rank != 0) return SLUICE_OK;
    float *from = (float *)g->received.chunk;
    for (int r = 0; r < state->rank_count; r++) from += move_owned(state, r, rq, out, from, false);
    return SLUICE_OK;
}

static void free_gather(sl_gather *g)
{
    sl_staging_free(&g->chunk);
    sl_staging_free(&g->received);
    sl_free(g->lengths);
}

static sluice_status take_memory(sl_gather *g)
{
    SL_TRY(sl_staging_take(&g->chunk));
    if (!sl_has_peers(g->state->comm)) return SLUICE_OK;
    if (g->state->rank == 0) SL_TRY(sl_staging_take(&g->received));
    g->lengths = sl_alloc_array((size_t)g->state->rank_count, sizeof *g->lengths, "lengths of the ranks' parts");
    return g->lengths != NULL ? SLUICE_OK : SLUICE_ERR_NO_MEMORY;
}

sluice_status sl_gather_open(sl_gather *g, const sl_state *state)
{
    *g = (sl_gather){ .state = state };
    sluice_status st = sl_agree(state->comm, "checkpoint buffers", take_memory(g));
    if (st != SLUICE_OK) free_gather(g);
    return st;
}

sluice_status sl_gather_read(sl_gather *g, int64_t tensor, uint64_t first, uint64_t count, float *out)
{
    const sl_state *state = g->state;
    request rq = { tensor, first, count };
    if (!sl_has_peers(state->comm)) return state->read(state->user, tensor, first, count, out);
    SL_TRY(sl_share(state->comm, "checkpoint request", &rq, sizeof rq));
    SL_TRY(contribute(g, &rq, out));
    return g->fault;
}

sluice_status sl_gather_serve(sl_gather *g)
{
    for (;;) {
        request rq;
        SL_TRY(sl_share(g->state->comm, "checkpoint request", &rq, sizeof rq));
        if (rq.tensor < 0) return SLUICE_OK;
        SL_TRY(contribute(g, &rq, (float *)g->chunk.chunk));
    }
}

sluice_status sl_gather_close(sl_gather *g, sluice_status mine)
{
    sl_comm *comm = g->state->comm;
    request end = { .tensor = -1 };
    if (mine == SLUICE_OK) mine = g->fault;
    sluice_status st = g->state->rank == 0 ? sl_share(comm, "checkpoint request", &end, sizeof end) : SLUICE_OK;
    if (st == SLUICE_OK) st = sl_agree(comm, "checkpoint values read", mine);
    free_gather(g);
    return st;
}

sluice_status sl_state_read_all(const sl_state *state, int64_t tensor, uint64_t first, uint64_t count, float *out)
{
    sl_gather g;
    sluice_status st = SLUICE_OK;
    if (!sl_has_peers(state->comm)) return state->read(state->user, tensor, first, count, out);
    SL_TRY(sl_gather_open(&g, state));
    for (uint64_t done = 0; done < count && st == SLUICE_OK;) {
        uint64_t part = count - done < SL_CHUNK_ELEMENTS ? count - done : SL_CHUNK_ELEMENTS;
        request rq = { tensor, first + done, part };
        st = contribute(&g, &rq, out + done);
        if (st == SLUICE_OK) st = sl_share(state->comm, "checkpoint values", out + done, part * sizeof(float));
        done += part;
    }
    if (st == SLUICE_OK) st = sl_agree(state->comm, "checkpoint values read", g.fault);
    free_gather(&g);
    return st;
}
