/* nccl_move.c: collectives as groups of sends and receives of NCCL.
 *
 * Both sides walk the same cuts (shard_walk.h) and so agree on every message. A reduction goes in rounds: in each, every
 * rank sends every owner the next of its contribution, as much as the owner's slots of staging memory take, and then
 * adds what it received. Rounds depend on cuts and the slots' size alone, which are the same on all ranks. */
#include <string.h>

#include "comm/nccl_world.h"

#define PIECE_ALIGNMENT 256

static uint8_t *at(const sl_nccl *c, sl_span s)
{
    return c->bases[s.tier] + s.offset;
}

/* Where another rank's contributions lie. */
static uint8_t *slot_of(const sl_nccl *c, int r)
{
    return c->lane.staging + (uint64_t)(r - (r > c->rank)) * c->slot_bytes;
}

static sluice_status group_ends(sl_nccl *c, int result, const char *name)
{
    int ended = c->api.group_end();
    pthread_mutex_unlock(&c->lock);
    return sl_nccl_settle(c, result == SL_NCCL_SUCCESS ? ended : result, name);
}

/* With the lock held, unless the handle is gone. */
static sluice_status group_begins(sl_nccl *c, int *result)
{
    pthread_mutex_lock(&c->lock);
    if (c->handle != NULL) {
        *result = c->api.group_start();
        return SLUICE_OK;
    }
    pthread_mutex_unlock(&c->lock);
    return sl_nccl_failed(c);
}

static void send(sl_nccl *c, int *result, const void *from, uint64_t bytes, int peer)
{
    int sent = c->api.send(from, (size_t)bytes, SL_NCCL_UINT8, peer, c->handle, c->lane.stream);
    if (*result == SL_NCCL_SUCCESS && sent != SL_NCCL_IN_PROGRESS) *result = sent;
}

static void receive(sl_nccl *c, int *result, void *to, uint64_t bytes, int peer)
{
    int received = c->api.receive(to, (size_t)bytes, SL_NCCL_UINT8, peer, c->handle, c->lane.stream);
    if (*result == SL_NCCL_SUCCESS && received != SL_NCCL_IN_PROGRESS) *result = received;
}

/* ---- rounds ---- */

/* The part of a rank's shards that one round takes. */
typedef struct portion {
    sl_shard_walk *walk;
    uint64_t room; /* bytes; a multiple of PIECE_ALIGNMENT */
    int count;     /* pieces so far */
    uint64_t used; /* bytes so far, with what aligns the next */
} portion;

static bool portion_next(portion *p, sl_nccl_intake *out)
{
    if (p->used == p->room || p->count == SL_NCCL_PIECES) return false;
    p->walk->limit = p->room - p->used;
    if (!sl_shard_walk_next(p->walk, &out->piece)) return false;
    out->in_slot = p->used;
    p->used += (out->piece.whole.bytes + PIECE_ALIGNMENT - 1) / PIECE_ALIGNMENT * PIECE_ALIGNMENT;
    p->count++;
    return true;
}

static void walks_begin(sl_nccl *c, const sl_collective *what)
{
    for (int r = 0; r < c->ranks; r++) c->walks[r] = sl_shard_walk_make(what, r, 0);
}

/* Whether anybody has something left. */
static bool walks_go_on(const sl_nccl *c)
{
    for (int r = 0; r < c->ranks; r++) {
        sl_shard_walk ahead = c->walks[r];
        sl_shard_piece piece;
        ahead.limit = PIECE_ALIGNMENT;
        if (sl_shard_walk_next(&ahead, &piece)) return true;
    }
    return false;
}

/* ---- reductions ---- */

static void send_contributions(sl_nccl *c, int *result)
{
    sl_nccl_intake next;
    for (int i = 1; i < c->ranks; i++) {
        int owner = (c->rank + i) % c->ranks;
        portion theirs = { &c->walks[owner], c->slot_bytes, 0, 0 };
        while (portion_next(&theirs, &next)) send(c, result, at(c, next.piece.whole), next.piece.whole.bytes, owner);
    }
}

/* Returns how many pieces were taken in. */
static int receive_contributions(sl_nccl *c, int *result)
{
    portion mine = { &c->walks[c->rank], c->slot_bytes, 0, 0 };
    int count = 0;
    for (; portion_next(&mine, &c->intake[count]); count++)
        for (int i = 1; i < c->ranks; i++) {
            int from = (c->rank + i) % c->ranks;
            receive(c, result, slot_of(c, from) + c->intake[count].in_slot, c->intake[count].piece.whole.bytes, from);
        }
    return count;
}

static sluice_status add(sl_nccl *c, const sl_nccl_intake *in, bool first)
{
    const sl_comm_part *part = in->piece.part;
    sl_contributions sum = {
        .form = part->form,
        .sum_form = part->sum_form,
        .first = first,
        .rank = c->rank,
        .ranks = c->ranks,
        .own = at(c, in->piece.whole),
        .received = c->lane.staging + in->in_slot,
        .stride = c->slot_bytes,
        .sum = at(c, part->in_place ? in->piece.whole : sl_shard_piece_in_shard(&in->piece)),
        .elements = (int64_t)(in->piece.whole.bytes / part->unit),
    };
    return c->ops->add(c->device, &sum);
}

static sluice_status reduce(sl_nccl *c, const sl_collective *what, bool first)
{
    walks_begin(c, what);
    while (walks_go_on(c)) {
        int result = SL_NCCL_SUCCESS;
        SL_TRY(group_begins(c, &result));
        send_contributions(c, &result);
        int count = receive_contributions(c, &result);
        SL_TRY(group_ends(c, result, what->name));
        for (int i = 0; i < count; i++) SL_TRY(add(c, &c->intake[i], first));
    }
    return SLUICE_OK;
}

/* ---- gathers ---- */

/* Whether the ranks' shards are equal runs of bytes, in rank order, that together are the whole. Cuts alone decide. */
static bool is_even(const sl_nccl *c, const sl_comm_part *part)
{
    uint64_t each = sl_comm_range_bytes(part, 0);
    for (int r = 0; r < c->ranks; r++) {
        if (sl_shard_range_count(part->shards, r) != 1) return false;
        sl_span s = sl_comm_bytes(part, (sl_span){ 0 }, sl_shard_range(part->shards, r, 0));
        if (s.bytes != each || s.offset != (uint64_t)r * each) return false;
    }
    return true;
}

static sluice_status gather_even(sl_nccl *c, const sl_collective *what)
{
    int result = SL_NCCL_SUCCESS;
    SL_TRY(group_begins(c, &result));
    for (int i = 0; i < what->part_count; i++) {
        const sl_comm_part *p = &what->parts[i];
        if (!is_even(c, p)) continue;
        uint64_t each = sl_comm_range_bytes(p, 0);
        const void *from = p->in_place ? at(c, p->whole) + (uint64_t)c->rank * each : at(c, p->shard);
        int done = c->api.all_gather(from, at(c, p->whole), (size_t)each, SL_NCCL_UINT8, c->handle, c->lane.stream);
        if (result == SL_NCCL_SUCCESS && done != SL_NCCL_IN_PROGRESS) result = done;
    }
    return group_ends(c, result, what->name);
}

static void send_own(sl_nccl *c, int *result, const sl_shard_piece *piece)
{
    sl_span from = piece->part->in_place ? piece->whole : sl_shard_piece_in_shard(piece);
    for (int i = 1; i < c->ranks; i++) send(c, result, at(c, from), from.bytes, (c->rank + i) % c->ranks);
}

/* Every rank's next pieces go to all others. Returns how many of this rank's were sent, in c->intake. */
static int exchange_pieces(sl_nccl *c, int *result)
{
    sl_nccl_intake next;
    int count = 0;
    for (int i = 0; i < c->ranks; i++) {
        int owner = (c->rank + i) % c->ranks;
        portion theirs = { &c->walks[owner], (uint64_t)1 << 62, 0, 0 };
        while (portion_next(&theirs, &next)) {
            if (is_even(c, next.piece.part)) continue;
            if (owner != c->rank) {
                receive(c, result, at(c, next.piece.whole), next.piece.whole.bytes, owner);
            } else {
                c->intake[count++] = next;
                send_own(c, result, &next.piece);
            }
        }
    }
    return count;
}

static sluice_status copy_own(sl_nccl *c, const sl_shard_piece *piece)
{
    if (piece->part->in_place) return SLUICE_OK;
    return c->ops->copy(c->device, at(c, piece->whole), at(c, sl_shard_piece_in_shard(piece)), piece->whole.bytes);
}

static sluice_status gather_pieces(sl_nccl *c, const sl_collective *what)
{
    walks_begin(c, what);
    while (walks_go_on(c)) {
        int result = SL_NCCL_SUCCESS;
        SL_TRY(group_begins(c, &result));
        int count = exchange_pieces(c, &result);
        SL_TRY(group_ends(c, result, what->name));
        for (int i = 0; i < count; i++) SL_TRY(copy_own(c, &c->intake[i].piece));
    }
    return SLUICE_OK;
}

static sluice_status gather(sl_nccl *c, const sl_collective *what, bool first)
{
    int even = 0;
    (void)first;
    for (int i = 0; i < what->part_count; i++) even += is_even(c, &what->parts[i]);
    if (even > 0) SL_TRY(gather_even(c, what));
    return even < what->part_count ? gather_pieces(c, what) : SLUICE_OK;
}

static sluice_status (*const moves[])(sl_nccl *c, const sl_collective *what, bool first) = {
    [SL_GATHER] = gather, [SL_REDUCE_SCATTER] = reduce, [SL_GATHER_NORM] = gather
};

sluice_status sl_nccl_move(sl_nccl *c, const sl_collective *what, bool first)
{
    return moves[what->kind](c, what, first);
}
