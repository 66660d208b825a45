/* mpi_collective.c: gathers and reductions of spans of an attached device, on its COMM stream. */
#include <stdio.h>
#include <string.h>

#include "comm/mpi_world.h"
#include "comm/sums.h"

/* Copies what this rank owns to its place in the whole. */
static void copy_own(const sl_mpi_world *w, const sl_collective *collective)
{
    sl_shard_walk walk = sl_shard_walk_make(collective, w->rank, SL_MPI_MESSAGE_BYTES);
    sl_shard_piece piece;
    while (sl_shard_walk_next(&walk, &piece)) {
        if (piece.part->in_place || !w->has_memory) continue;
        memcpy(sl_mpi_address_of(w, piece.whole), sl_mpi_address_of(w, sl_shard_piece_in_shard(&piece)),
               piece.whole.bytes);
    }
}

static sluice_status gather(sl_mpi_world *w, const sl_collective *collective, bool first)
{
    sl_mpi_talk *t = &w->collectives;
    (void)first;
    for (int r = 0; r < w->size; r++) {
        t->out[r].walk = sl_shard_walk_make(collective, w->rank, SL_MPI_MESSAGE_BYTES);
        t->out[r].sent = &w->sent[collective->kind];
        t->in[r].walk = sl_shard_walk_make(collective, r, SL_MPI_MESSAGE_BYTES);
    }
    copy_own(w, collective);
    return sl_mpi_lanes_run(w, t, SL_MPI_TAG_BYTES);
}

/* The contributions to this rank's shard, in the order they are added: piece by piece, and of each piece rank by rank.
 * `posted` runs ahead of `added` by at most the slots there are. */
typedef struct place {
    sl_shard_walk walk;
    sl_shard_piece piece;
    int rank;  /* whose contribution to the piece */
    bool left; /* false after the last */
} place;

typedef struct intake {
    place post, add;
    uint64_t posted, added; /* messages; message i uses slot i % SL_COMM_MPI_SLOTS */
    MPI_Request slots[SL_COMM_MPI_SLOTS];
} intake;

static void place_begins(place *p, const sl_collective *collective, int owner)
{
    p->walk = sl_shard_walk_make(collective, owner, SL_COMM_MPI_SLOT_BYTES);
    p->rank = 0;
    p->left = sl_shard_walk_next(&p->walk, &p->piece);
}

static void place_advances(place *p, int size)
{
    if (++p->rank < size) return;
    p->rank = 0;
    p->left = sl_shard_walk_next(&p->walk, &p->piece);
}

static char *slot_of(sl_mpi_world *w, uint64_t message)
{
    return w->staging + message % SL_COMM_MPI_SLOTS * SL_COMM_MPI_SLOT_BYTES;
}

/* Behind the slots: the sums of one piece. */
static char *slot_of_sums(sl_mpi_world *w)
{
    return w->staging + SL_COMM_MPI_SLOTS * SL_COMM_MPI_SLOT_BYTES;
}

static sluice_status intake_post(sl_mpi_world *w, sl_mpi_talk *t, intake *in)
{
    while (in->post.left && in->posted - in->added < SL_COMM_MPI_SLOTS) {
        int from = in->post.rank;
        if (from != w->rank && w->has_memory) {
            SL_TRY(sl_mpi_post(w, t, false, from, SL_MPI_TAG_BYTES, slot_of(w, in->posted), in->post.piece.whole.bytes,
                               &in->slots[in->posted % SL_COMM_MPI_SLOTS]));
            in->posted++;
        }
        place_advances(&in->post, w->size);
    }
    return SLUICE_OK;
}

/* For each form of contributions: how one is set or added to sums in f32, and how those are rounded at the end. */
typedef struct arithmetic {
    void (*add)(float *sums, const unsigned char *from, bool set, int64_t n);
    void (*round)(unsigned char *to, const float *sums, int64_t n); /* NULL: f32 */
} arithmetic;

#define ADD_OF(form_)                                                                                                  \
    static void add_##form_(float *sums, const unsigned char *from, bool set, int64_t n)                               \
    {                                                                                                                  \
        sl_sum_add(SL_FORM_##form_, sums, &from, 1, set, false, n);                                                    \
    }
#define ROUND_OF(form_)                                                                                                \
    static void round_##form_(unsigned char *to, const float *sums, int64_t n)                                         \
    {                                                                                                                  \
        sl_sum_round(SL_FORM_##form_, to, sums, n);                                                                    \
    }
ADD_OF(F32)
ADD_OF(BF16)
ADD_OF(F16)
ROUND_OF(BF16)
ROUND_OF(F16)

static const arithmetic arithmetics[SL_FORM_COUNT] = {
    [SL_FORM_F32] = { add_F32, NULL }, [SL_FORM_BF16] = { add_BF16, round_BF16 }, [SL_FORM_F16] = { add_F16, round_F16 }
};

/* Rank `rank`'s contribution to a piece goes into its sum. Pieces are summed one after the other, so one place is
 * enough for a sum that is made aside: because it is rounded in the end, or takes the place of a contribution. */
static void take_in(sl_mpi_world *w, const sl_shard_piece *piece, int rank, const unsigned char *from, bool first)
{
    const sl_comm_part *part = piece->part;
    unsigned char *to = sl_mpi_address_of(w, part->in_place ? piece->whole : sl_shard_piece_in_shard(piece));
    bool rounds = part->sum_form != SL_FORM_F32, aside = rounds || part->in_place;
    void *sums = aside ? (void *)slot_of_sums(w) : to;
    int64_t n = (int64_t)(piece->whole.bytes / part->unit);
    arithmetics[part->form].add(sums, from, first && rank == 0, n);
    if (!aside || rank < w->size - 1) return;
    if (rounds)
        arithmetics[part->form].round(to, sums, n);
    else
        memcpy(to, sums, piece->whole.bytes);
}

/* Adds the contribution whose turn it is, if it is here. */
static sluice_status intake_add(sl_mpi_world *w, sl_mpi_talk *t, intake *in, bool first, bool *moved)
{
    const place *p = &in->add;
    bool own = p->rank == w->rank, here = own || !w->has_memory;
    void *from = slot_of(w, in->added);
    t->missing = p->rank;
    if (!here && in->added < in->posted)
        SL_TRY(sl_mpi_test(w, t, p->rank, &in->slots[in->added % SL_COMM_MPI_SLOTS], &here));
    if (!here) return SLUICE_OK;
    if (own) from = sl_mpi_address_of(w, p->piece.whole);
    if (w->has_memory) {
        take_in(w, &p->piece, p->rank, from, first);
        in->added += !own;
    }
    place_advances(&in->add, w->size);
    *moved = true;
    return SLUICE_OK;
}

static sluice_status reduce_step(sl_mpi_world *w, sl_mpi_talk *t, intake *in, bool first, bool *done, bool *moved)
{
    for (int i = 1; i < w->size; i++) {
        int to = (w->rank + i) % w->size;
        SL_TRY(sl_mpi_lane_step(w, t, &t->out[to], to, SL_MPI_TAG_BYTES, moved));
        if (!sl_mpi_lane_done(&t->out[to])) *done = false, t->missing = to;
    }
    SL_TRY(intake_post(w, t, in));
    if (!in->add.left) return SLUICE_OK;
    *done = false;
    return intake_add(w, t, in, first, moved);
}

static sluice_status reduce_run(sl_mpi_world *w, sl_mpi_talk *t, intake *in, bool first)
{
    sl_mpi_wait_begins(t);
    for (;;) {
        bool done = true, moved = false;
        SL_TRY(reduce_step(w, t, in, first, &done, &moved));
        if (done) return SLUICE_OK;
        SL_TRY(sl_mpi_wait_a_little(w, t, moved));
    }
}

static sluice_status reduce_scatter(sl_mpi_world *w, const sl_collective *collective, bool first)
{
    sl_mpi_talk *t = &w->collectives;
    intake in = { .posted = 0 };
    for (int i = 0; i < SL_COMM_MPI_SLOTS; i++) in.slots[i] = MPI_REQUEST_NULL;
    place_begins(&in.post, collective, w->rank);
    place_begins(&in.add, collective, w->rank);
    for (int r = 0; r < w->size; r++) {
        t->out[r].walk = sl_shard_walk_make(collective, r, SL_COMM_MPI_SLOT_BYTES);
        t->out[r].sent = &w->sent[collective->kind];
    }
    sluice_status st = reduce_run(w, t, &in, first);
    for (int i = 0; st != SLUICE_OK && i < SL_COMM_MPI_SLOTS; i++) sl_mpi_cancel(w, &in.slots[i]);
    return st;
}

static sluice_status (*const collective_runs[])(sl_mpi_world *w, const sl_collective *collective, bool first) = {
    [SL_GATHER] = gather, [SL_REDUCE_SCATTER] = reduce_scatter, [SL_GATHER_NORM] = gather
};

/* On the COMM stream. */
static sluice_status run_job(void *user)
{
    const sl_mpi_job *j = user;
    sl_mpi_world *w = j->w;
    const sl_collective *collective = j->collective;
    memcpy(w->bases, j->bases, sizeof w->bases);
    sluice_status st = sl_mpi_meet(w, &w->collectives, sl_comm_call_of(collective, j->sequence, j->first));
    if (st == SLUICE_OK) st = collective_runs[collective->kind](w, collective, j->first);
    if (st != SLUICE_OK) sl_mpi_cancel_lanes(w, &w->collectives);
    atomic_fetch_add(&w->collective_count, 1);
    atomic_fetch_add(&w->ran, 1);
    return st;
}

static bool part_is_sound(const sl_mpi_world *w, const sl_collective *collective, const sl_comm_part *part)
{
    const sl_shards *s = part->shards;
    return s->rank_count == w->size &&
           sl_comm_bytes(part, part->whole, (sl_range){ 0, s->elements }).bytes == part->whole.bytes &&
           part->shard.bytes == sl_comm_shard_bytes(collective->kind, part, w->rank);
}

static sluice_status check_collective(sl_mpi_world *w, const sl_collective *collective, bool first)
{
    if (w->device == NULL) return sl_mpi_stop(w, "%s before a device is attached", collective->name);
    for (int i = 0; i < collective->part_count; i++) {
        const sl_comm_part *part = &collective->parts[i];
        const char *fault = collective->kind == SL_REDUCE_SCATTER ? sl_sum_fault(part, first) : NULL;
        if (fault != NULL)
            return sl_mpi_stop(w, "part %d of %s: %s: the plan and this job differ", i, collective->name, fault);
        if (!part_is_sound(w, collective, part))
            return sl_mpi_stop(w, "part %d of %s does not fit its cuts: the plan was made for another job", i,
                               collective->name);
    }
    return SLUICE_OK;
}

/* In the caller's thread: the device counts what it hands out, and is not told from two threads. */
static sluice_status resolve(sl_mpi_world *w, sl_mpi_job *j, sl_span span)
{
    void *address;
    if (span.bytes == 0) return SLUICE_OK;
    sluice_status st = w->backend->resolve(w->device, j->collective->name, span, &address);
    if (st != SLUICE_OK) {
        sl_mpi_give_up(w, w->host->error_text());
        return st;
    }
    if (w->has_memory) j->bases[span.tier] = (char *)address - span.offset;
    return SLUICE_OK;
}

static sluice_status resolve_parts(sl_mpi_world *w, sl_mpi_job *j)
{
    for (int i = 0; i < j->collective->part_count; i++) {
        SL_TRY(resolve(w, j, j->collective->parts[i].whole));
        SL_TRY(resolve(w, j, j->collective->parts[i].shard));
    }
    return SLUICE_OK;
}

sluice_status sl_mpi_start(sl_comm *c, uint64_t sequence, const sl_collective *collective, bool first)
{
    sl_mpi_world *w = sl_mpi_world_of(c);
    if (atomic_load(&w->failed)) return sl_mpi_failed(w);
    SL_TRY(check_collective(w, collective, first));
    if (w->queued - atomic_load(&w->ran) == SL_MPI_JOB_COUNT) {
        SL_TRY(w->backend->synchronize(w->device));
        atomic_store(&w->ran, w->queued);
    }
    sl_mpi_job *j = &w->jobs[w->queued % SL_MPI_JOB_COUNT];
    *j = (sl_mpi_job){ .w = w, .collective = collective, .sequence = sequence, .first = first };
    SL_TRY(resolve_parts(w, j));
    w->queued++;
    return w->backend->submit(w->device, SL_STREAM_COMM, run_job, j);
}

void sl_mpi_detach(sl_comm *c)
{
    sl_mpi_world *w = sl_mpi_world_of(c);
    w->host->free(w->jobs);
    w->host->free(w->staging);
    w->jobs = NULL, w->staging = NULL, w->device = NULL, w->backend = NULL;
}

/* All ranks must be of one kind: the null device has no memory to send or receive. */
sluice_status sl_mpi_attach(sl_comm *c, const sl_backend *backend, sl_device *d)
{
    sl_mpi_world *w = sl_mpi_world_of(c);
    char what[80];
    w->staging = w->host->alloc(SL_COMM_MPI_STAGING_BYTES, "staging of gradients from other ranks");
    w->jobs = w->host->alloc(SL_MPI_JOB_COUNT * sizeof *w->jobs, "queued collectives");
    if (w->staging == NULL || w->jobs == NULL) {
        sl_mpi_detach(c);
        return SLUICE_ERR_NO_MEMORY;
    }
    snprintf(what, sizeof what, "attaching a %s device", backend->name);
    sluice_status st = c->ops->barrier(c, what);
    if (st != SLUICE_OK) {
        sl_mpi_detach(c);
        return st;
    }
    w->backend = backend, w->device = d;
    w->has_memory = strcmp(backend->name, "null") != 0;
    w->queued = 0;
    atomic_store(&w->ran, 0);
    return SLUICE_OK;
}
