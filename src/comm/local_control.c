/* local_control.c: the control calls of local ranks.
 *
 * Bytes go through each rank's staging in the segment, as many rounds as the largest payload needs; each round is a
 * meeting, so staging is written only when everybody has read it. */
#include <string.h>

#include "comm/local.h"

/* One control call under way. Rank r brings lengths(r) bytes. */
typedef struct control {
    sl_local *comm;
    sl_notice notice;
    const void *mine;
    const size_t *lengths; /* NULL: `bytes` from each rank that brings any */
    size_t bytes;
    int from; /* the only rank that brings bytes; -1: all */
    int to;   /* the only rank that takes them; -1: all */
    void *all;
} control;

static size_t length_of(const control *k, int rank)
{
    if (k->from >= 0 && rank != k->from) return 0;
    return k->lengths != NULL ? k->lengths[rank] : k->bytes;
}

/* What of rank's payload moves in the round that begins at `begin`. */
static size_t piece_of(const control *k, int rank, size_t begin)
{
    size_t length = length_of(k, rank);
    if (length <= begin) return 0;
    return length - begin < SL_LOCAL_STAGING ? length - begin : SL_LOCAL_STAGING;
}

/* Copies this round's pieces of all ranks to their places in `all`: payloads one after the other. */
static void take(const control *k, size_t begin)
{
    size_t at = begin;
    for (int r = 0; r < k->comm->ranks; at += length_of(k, r), r++) {
        size_t piece = piece_of(k, r, begin);
        if (piece == 0) continue;
        unsigned char *to = (unsigned char *)k->all + at;
        const unsigned char *from = k->comm->segment->members[r].staging;
        if (r == k->comm->rank) from = (const unsigned char *)k->mine + begin;
        if (to != from) memcpy(to, from, piece);
    }
}

static sluice_status round_of(const control *k, size_t begin)
{
    sl_local *c = k->comm;
    size_t piece = piece_of(k, c->rank, begin);
    /* After parting from the previous round, or in the first one, nobody reads this staging. */
    if (piece > 0) memcpy(c->segment->members[c->rank].staging, (const unsigned char *)k->mine + begin, piece);
    SL_TRY(sl_local_meet(c, SL_CHANNEL_CONTROL, &k->notice));
    if (k->to < 0 || k->to == c->rank) take(k, begin);
    return sl_local_part(c, SL_CHANNEL_CONTROL);
}

static sluice_status run(control *k, sl_control_kind kind, const char *what)
{
    size_t longest = 0;
    for (int r = 0; r < k->comm->ranks; r++) {
        size_t length = length_of(k, r);
        k->notice.bytes += length;
        if (length > longest) longest = length;
    }
    k->notice.kind = (int32_t)kind;
    k->notice.sequence = ++k->comm->controls;
    sl_notice_name(&k->notice, what);
    SL_TRY(sl_local_check(k->comm));
    size_t begin = 0;
    do {
        SL_TRY(round_of(k, begin));
        begin += SL_LOCAL_STAGING;
    } while (begin < longest);
    return SLUICE_OK;
}

static sluice_status check_root(const sl_local *c, const char *what, int root)
{
    if (root >= 0 && root < c->ranks) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_USAGE, "\"%s\": rank %d in a job of %d ranks", what, root, c->ranks);
}

sluice_status sl_local_exchange(sl_comm *base, const char *what, const void *mine, size_t bytes, void *all)
{
    control k = { .comm = (sl_local *)base, .mine = mine, .bytes = bytes, .from = -1, .to = -1, .all = all };
    return run(&k, SL_CONTROL_EXCHANGE, what);
}

sluice_status sl_local_broadcast(sl_comm *base, const char *what, int root, void *data, size_t bytes)
{
    sl_local *c = (sl_local *)base;
    control k = { .comm = c, .mine = data, .bytes = bytes, .from = root, .to = -1, .all = data };
    SL_TRY(check_root(c, what, root));
    k.notice.detail = root;
    return run(&k, SL_CONTROL_BROADCAST, what);
}

sluice_status sl_local_collect(sl_comm *base, const char *what, int root, const void *mine, const size_t *lengths,
                               void *all)
{
    sl_local *c = (sl_local *)base;
    control k = { .comm = c, .mine = mine, .lengths = lengths, .from = -1, .to = root, .all = all };
    SL_TRY(check_root(c, what, root));
    k.notice.detail = root;
    return run(&k, SL_CONTROL_COLLECT, what);
}

sluice_status sl_local_barrier(sl_comm *base, const char *what)
{
    control k = { .comm = (sl_local *)base, .from = -1, .to = -1 };
    return run(&k, SL_CONTROL_BARRIER, what);
}
