/* mpi_lanes.c: messages between ranks that never block: how they are started, tested, waited for and given up. */
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "comm/mpi_world.h"

enum {
    YIELDS = 200, /* fruitless polls before sleeping between them */
    NAP_MICROSECONDS = 200,
    FAREWELL_MILLISECONDS = 1000
};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void sl_mpi_nap(int microseconds)
{
    nanosleep(&(struct timespec){ 0, microseconds * 1000L }, NULL);
}

/* ---- failing ---- */

/* Keeps the first failure; true when this was it. */
static bool keep_failure(sl_mpi_world *w, const char *text)
{
    if (atomic_load(&w->failed)) return false;
    snprintf(w->failure, sizeof w->failure, "%s", text);
    atomic_store(&w->failed, true);
    return true;
}

/* Starts telling the others why this rank gives up. Short enough to leave without the receiver's help. */
static void send_farewells(sl_mpi_world *w)
{
    for (int r = 0; r < w->size; r++) {
        w->farewells[r] = MPI_REQUEST_NULL;
        if (r != w->rank)
            MPI_Isend(w->failure, (int)strlen(w->failure) + 1, MPI_CHAR, r, SL_MPI_TAG_ABORT, w->control.comm,
                      &w->farewells[r]);
    }
}

static bool farewells_sent(sl_mpi_world *w)
{
    int done = 0;
    pthread_mutex_lock(&w->mpi);
    MPI_Testall(w->size, w->farewells, &done, MPI_STATUSES_IGNORE);
    pthread_mutex_unlock(&w->mpi);
    return done;
}

void sl_mpi_give_up(sl_mpi_world *w, const char *text)
{
    pthread_mutex_lock(&w->mpi);
    bool was_first = keep_failure(w, text);
    if (was_first) send_farewells(w);
    pthread_mutex_unlock(&w->mpi);
    if (!was_first) return;
    for (int i = 0; i < FAREWELL_MILLISECONDS && !farewells_sent(w); i++) sl_mpi_nap(1000);
}

sluice_status sl_mpi_failed(sl_mpi_world *w)
{
    w->host->error_record("%s", w->failure);
    return SLUICE_ERR_RANK;
}

__attribute__((format(printf, 2, 3))) sluice_status sl_mpi_stop(sl_mpi_world *w, const char *format, ...)
{
    char text[SL_MESSAGE_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    sl_mpi_give_up(w, text);
    return sl_mpi_failed(w);
}

/* A failed MPI call made for `t`. */
static sluice_status stop_for_mpi(sl_mpi_world *w, const sl_mpi_talk *t, int peer, int code)
{
    char reason[MPI_MAX_ERROR_STRING] = "", title[160];
    int length = 0;
    MPI_Error_string(code, reason, &length);
    sl_comm_call_title(&t->call, title, sizeof title);
    return sl_mpi_stop(w, "MPI could not reach rank %d in %s: %s", peer, title, reason);
}

sluice_status sl_mpi_check(sl_mpi_world *w)
{
    int arrived = 0;
    MPI_Status from;
    char theirs[SL_MESSAGE_BYTES] = "", text[SL_MESSAGE_BYTES];
    if (atomic_load(&w->failed)) return sl_mpi_failed(w);
    pthread_mutex_lock(&w->mpi);
    if (MPI_Iprobe(MPI_ANY_SOURCE, SL_MPI_TAG_ABORT, w->control.comm, &arrived, &from) == MPI_SUCCESS && arrived) {
        MPI_Recv(theirs, sizeof theirs - 1, MPI_CHAR, from.MPI_SOURCE, SL_MPI_TAG_ABORT, w->control.comm,
                 MPI_STATUS_IGNORE);
        snprintf(text, sizeof text, "rank %d ended the job: %.*s", from.MPI_SOURCE, SL_MESSAGE_BYTES - 64, theirs);
        w->was_told = keep_failure(w, text);
    }
    pthread_mutex_unlock(&w->mpi);
    return atomic_load(&w->failed) ? sl_mpi_failed(w) : SLUICE_OK;
}

/* ---- waiting ---- */

void sl_mpi_wait_begins(sl_mpi_talk *t)
{
    t->since = now();
    t->idle = 0;
}

sluice_status sl_mpi_wait_a_little(sl_mpi_world *w, sl_mpi_talk *t, bool moved)
{
    char title[160];
    if (moved) {
        sl_mpi_wait_begins(t);
        return SLUICE_OK;
    }
    SL_TRY(sl_mpi_check(w));
    if (now() - t->since > w->timeout) {
        sl_comm_call_title(&t->call, title, sizeof title);
        return sl_mpi_stop(
            w,
            "rank %d was not heard of for %g s in %s: it is dead or stuck; if it is only slow, wait longer "
            "(timeout_seconds)",
            t->missing, w->timeout, title);
    }
    if (++t->idle < YIELDS)
        sched_yield();
    else
        sl_mpi_nap(NAP_MICROSECONDS);
    return SLUICE_OK;
}

/* ---- messages ---- */

sluice_status sl_mpi_post(sl_mpi_world *w, sl_mpi_talk *t, bool outgoing, int peer, int tag, void *address,
                          uint64_t bytes, MPI_Request *request)
{
    pthread_mutex_lock(&w->mpi);
    int code = outgoing ? MPI_Isend(address, (int)bytes, MPI_BYTE, peer, tag, t->comm, request)
                        : MPI_Irecv(address, (int)bytes, MPI_BYTE, peer, tag, t->comm, request);
    pthread_mutex_unlock(&w->mpi);
    return code == MPI_SUCCESS ? SLUICE_OK : stop_for_mpi(w, t, peer, code);
}

sluice_status sl_mpi_test(sl_mpi_world *w, sl_mpi_talk *t, int peer, MPI_Request *request, bool *done)
{
    int flag = 0;
    pthread_mutex_lock(&w->mpi);
    int code = MPI_Test(request, &flag, MPI_STATUS_IGNORE);
    pthread_mutex_unlock(&w->mpi);
    *done = flag;
    return code == MPI_SUCCESS ? SLUICE_OK : stop_for_mpi(w, t, peer, code);
}

/* Receives that will never be served must not write into memory that is given back. */
void sl_mpi_cancel(sl_mpi_world *w, MPI_Request *request)
{
    pthread_mutex_lock(&w->mpi);
    if (*request != MPI_REQUEST_NULL) {
        MPI_Cancel(request);
        MPI_Request_free(request);
    }
    pthread_mutex_unlock(&w->mpi);
}

/* Spans were resolved when the collective was started; this only adds up. NULL on a device without memory. */
void *sl_mpi_address_of(const sl_mpi_world *w, sl_span span)
{
    return w->has_memory && span.bytes > 0 ? w->bases[span.tier] + span.offset : NULL;
}

/* ---- lanes ---- */

static void lane_reset(sl_mpi_lane *l, bool outgoing)
{
    *l = (sl_mpi_lane){ .outgoing = outgoing };
    for (int i = 0; i < SL_MPI_LANE_DEPTH; i++) l->under_way[i] = MPI_REQUEST_NULL;
}

void sl_mpi_lanes_reset(sl_mpi_world *w, sl_mpi_talk *t)
{
    for (int r = 0; r < w->size; r++) {
        lane_reset(&t->out[r], true);
        lane_reset(&t->in[r], false);
    }
}

void sl_mpi_lane_carries(sl_mpi_lane *l, const void *memory, uint64_t bytes)
{
    l->memory = (char *)memory; /* only read when outgoing */
    l->memory_bytes = bytes;
}

bool sl_mpi_lane_done(const sl_mpi_lane *l)
{
    return l->drained && l->count == 0;
}

/* The next piece of plain memory; 0 bytes at the end. */
static uint64_t next_of_memory(sl_mpi_lane *l, void **address)
{
    uint64_t bytes = l->memory_bytes < SL_MPI_MESSAGE_BYTES ? l->memory_bytes : SL_MPI_MESSAGE_BYTES;
    *address = l->memory;
    if (bytes > 0) l->memory += bytes;
    l->memory_bytes -= bytes;
    return bytes;
}

/* The next piece of a collective; 0 bytes at the end. What this rank owns lies in its shard where it has one, all else
 * in the whole. */
static uint64_t next_of_walk(const sl_mpi_world *w, sl_mpi_lane *l, void **address)
{
    sl_shard_piece piece;
    if (!sl_shard_walk_next(&l->walk, &piece)) return 0;
    bool in_shard = l->walk.owner == w->rank && !piece.part->in_place;
    *address = sl_mpi_address_of(w, in_shard ? sl_shard_piece_in_shard(&piece) : piece.whole);
    return piece.whole.bytes;
}

/* Starts as many pieces as the lane has room for. */
static sluice_status lane_fill(sl_mpi_world *w, sl_mpi_talk *t, sl_mpi_lane *l, int peer, int tag)
{
    while (!l->drained && l->count < SL_MPI_LANE_DEPTH) {
        void *address;
        uint64_t bytes = l->walk.collective != NULL ? next_of_walk(w, l, &address) : next_of_memory(l, &address);
        l->drained = bytes == 0;
        if (l->drained) break;
        if (l->sent != NULL) atomic_fetch_add(l->sent, bytes);
        if (address == NULL) continue; /* a device without memory: nothing moves */
        SL_TRY(sl_mpi_post(w, t, l->outgoing, peer, tag, address, bytes,
                           &l->under_way[(l->oldest + l->count) % SL_MPI_LANE_DEPTH]));
        l->count++;
    }
    return SLUICE_OK;
}

sluice_status sl_mpi_lane_step(sl_mpi_world *w, sl_mpi_talk *t, sl_mpi_lane *l, int peer, int tag, bool *moved)
{
    SL_TRY(lane_fill(w, t, l, peer, tag));
    for (bool done = true; l->count > 0;) {
        SL_TRY(sl_mpi_test(w, t, peer, &l->under_way[l->oldest], &done));
        if (!done) break;
        l->oldest = (l->oldest + 1) % SL_MPI_LANE_DEPTH;
        l->count--;
        *moved = true;
    }
    return lane_fill(w, t, l, peer, tag);
}

void sl_mpi_cancel_lanes(sl_mpi_world *w, sl_mpi_talk *t)
{
    for (int r = 0; r < w->size; r++)
        for (int i = 0; i < SL_MPI_LANE_DEPTH; i++) sl_mpi_cancel(w, &t->in[r].under_way[i]);
}

/* One round over all lanes. Rank r begins with r + 1, so that not all send to the same rank at first. */
static sluice_status lanes_step(sl_mpi_world *w, sl_mpi_talk *t, int tag, bool *done, bool *moved)
{
    for (int i = 1; i < w->size; i++) {
        int to = (w->rank + i) % w->size, from = (w->rank + w->size - i) % w->size;
        SL_TRY(sl_mpi_lane_step(w, t, &t->out[to], to, tag, moved));
        SL_TRY(sl_mpi_lane_step(w, t, &t->in[from], from, tag, moved));
        if (!sl_mpi_lane_done(&t->out[to])) *done = false, t->missing = to;
        if (!sl_mpi_lane_done(&t->in[from])) *done = false, t->missing = from;
    }
    return SLUICE_OK;
}

sluice_status sl_mpi_lanes_run(sl_mpi_world *w, sl_mpi_talk *t, int tag)
{
    sl_mpi_wait_begins(t);
    for (;;) {
        bool done = true, moved = false;
        SL_TRY(lanes_step(w, t, tag, &done, &moved));
        if (done) return SLUICE_OK;
        SL_TRY(sl_mpi_wait_a_little(w, t, moved));
    }
}

sluice_status sl_mpi_meet(sl_mpi_world *w, sl_mpi_talk *t, sl_comm_call call)
{
    char text[SL_MESSAGE_BYTES];
    if (atomic_load(&w->failed)) return sl_mpi_failed(w);
    t->call = call;
    sl_mpi_lanes_reset(w, t);
    for (int r = 0; r < w->size; r++) {
        sl_mpi_lane_carries(&t->out[r], &t->call, sizeof t->call);
        sl_mpi_lane_carries(&t->in[r], &t->theirs[r], sizeof t->theirs[r]);
    }
    SL_TRY(sl_mpi_lanes_run(w, t, SL_MPI_TAG_HEAD));
    for (int r = 0; r < w->size; r++)
        if (r != w->rank && !sl_comm_call_same(&t->call, w->rank, &t->theirs[r], r, text, sizeof text))
            return sl_mpi_stop(w, "%s", text);
    sl_mpi_lanes_reset(w, t);
    return SLUICE_OK;
}
