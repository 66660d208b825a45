/* meet.c: how local ranks wait for each other.
 *
 * A meeting has two halves. Meet: every rank publishes what it does and waits for the notices of all; they must agree.
 * Part: every rank says that it has read what it needed and waits for all, after which sources may be overwritten and
 * the next notice written. A rank waits for one peer after the other, so all waits together take as long as the
 * slowest. */
#include <stdarg.h>
#include <string.h>

#include "comm/local.h"
#include "core/hash.h"
#include "core/thread.h"

enum { DESCRIPTION_BYTES = SL_LOCAL_NAME_BYTES + 128 };

/* ---- failing ---- */

/* The first failure stays; all later calls repeat it. */
static sluice_status remember(sl_local *c, const char *message)
{
    pthread_mutex_lock(&c->lock);
    if (!atomic_load(&c->failed)) snprintf(c->failure, sizeof c->failure, "%s", message);
    atomic_store(&c->failed, true);
    sluice_status st = sl_fail(SLUICE_ERR_RANK, "%s", c->failure);
    pthread_mutex_unlock(&c->lock);
    return st;
}

sluice_status sl_local_fail(sl_local *c, const char *format, ...)
{
    char message[SL_MESSAGE_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    pthread_mutex_lock(&c->lock);
    sl_segment_break(c->segment, c->rank, SL_LIFE_GAVE_UP, message);
    pthread_mutex_unlock(&c->lock);
    return remember(c, message);
}

/* What the rank that ended the job had to say. */
static sluice_status follow(sl_local *c, int culprit)
{
    const sl_life *life = &c->segment->members[culprit].life;
    char message[SL_MESSAGE_BYTES + 64];
    uint32_t state = atomic_load(&life->state);
    if (state == SL_LIFE_LOST)
        snprintf(message, sizeof message, "%s", life->reason);
    else
        snprintf(message, sizeof message, "rank %d gave up: %s", culprit,
                 life->reason[0] != '\0' ? life->reason : life->message);
    return remember(c, message);
}

sluice_status sl_local_check(sl_local *c)
{
    if (atomic_load(&c->failed)) return remember(c, "");
    uint32_t culprit = atomic_load(&c->segment->broken);
    return culprit == 0 ? SLUICE_OK : follow(c, (int)culprit - 1);
}

/* ---- waiting ---- */

static bool reached(const sl_word *w, uint32_t round)
{
    return (int32_t)(atomic_load_explicit(&w->value, memory_order_acquire) - round) >= 0;
}

static void pause_cpu(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

static bool spin(const sl_local *c, const sl_word *w, uint32_t round)
{
    for (int i = 0; i < c->spins; i++) {
        if (reached(w, round)) return true;
        pause_cpu();
    }
    return reached(w, round);
}

/* This rank's call, as briefly as it can be told from others. */
static void describe_own(sl_local *c, sl_channel channel, char *out, size_t bytes)
{
    const sl_notice *n = sl_notice_of(c, channel, c->rank);
    if (channel == SL_CHANNEL_COLLECTIVE)
        sl_notice_describe(channel, n, out, bytes);
    else
        snprintf(out, bytes, "\"%s\"", n->name);
}

static sluice_status fail_ended(sl_local *c, sl_channel channel, int peer)
{
    char at[DESCRIPTION_BYTES];
    const char *message = c->segment->members[peer].life.message;
    describe_own(c, channel, at, sizeof at);
    return sl_local_fail(c, "rank %d has ended%s%s and did not arrive at %s", peer, message[0] != '\0' ? ": " : "",
                         message, at);
}

static sluice_status fail_late(sl_local *c, sl_channel channel, int peer, const char *verb)
{
    char at[DESCRIPTION_BYTES], other[DESCRIPTION_BYTES];
    atomic_store(&c->segment->late, true);
    describe_own(c, channel, at, sizeof at);
    sl_member_describe(&c->segment->members[peer], other, sizeof other);
    return sl_local_fail(c, "rank %d did not %s %s within %g s; it was last seen %s", peer, verb, at,
                         c->segment->timeout_seconds, other);
}

/* Waits for `peer` to reach `round`. Peers that reached it and then ended are fine. */
static sluice_status wait_for(sl_local *c, sl_channel channel, int peer, sl_word *w, uint32_t round, double deadline,
                              const char *verb)
{
    if (spin(c, w, round)) return SLUICE_OK;
    for (;;) {
        uint32_t seen = atomic_load(&w->value);
        if (reached(w, round)) return SLUICE_OK;
        SL_TRY(sl_local_check(c));
        if (atomic_load(&c->segment->members[peer].life.state) == SL_LIFE_ENDED && !reached(w, round))
            return fail_ended(c, channel, peer);
        double left = deadline - sl_now();
        if (left <= 0) return fail_late(c, channel, peer, verb);
        sl_word_sleep(w, seen, left < SL_LOCAL_LOOK_SECONDS ? left : SL_LOCAL_LOOK_SECONDS);
    }
}

/* ---- meeting ---- */

void sl_notice_name(sl_notice *n, const char *name)
{
    n->name_hash = sl_hash_text(name);
    snprintf(n->name, sizeof n->name, "%s", name);
}

static bool agree(const sl_notice *a, const sl_notice *b)
{
    return a->sequence == b->sequence && a->bytes == b->bytes && a->name_hash == b->name_hash && a->kind == b->kind &&
           a->parts == b->parts && a->forms == b->forms && a->detail == b->detail;
}

static sluice_status compare(sl_local *c, sl_channel channel, int peer)
{
    char mine[DESCRIPTION_BYTES], theirs[DESCRIPTION_BYTES];
    const sl_notice *a = sl_notice_of(c, channel, c->rank), *b = sl_notice_of(c, channel, peer);
    if (agree(a, b)) return SLUICE_OK;
    sl_notice_describe(channel, a, mine, sizeof mine);
    sl_notice_describe(channel, b, theirs, sizeof theirs);
    if (strcmp(mine, theirs) == 0) /* what differs is not in the description */
        return sl_local_fail(c, "ranks %d and %d differ in %s of %s", peer, c->rank,
                             a->kind != b->kind                 ? "the kind"
                             : a->parts != b->parts             ? "the number of parts"
                             : a->forms != b->forms             ? "the forms of the elements"
                             : channel == SL_CHANNEL_COLLECTIVE ? "whether accumulators are set"
                                                                : "the root",
                             mine);
    return sl_local_fail(c,
                         "rank %d is at %s while rank %d is at %s: all ranks must run the same program with the same "
                         "configuration",
                         peer, theirs, c->rank, mine);
}

sluice_status sl_local_meet(sl_local *c, sl_channel channel, const sl_notice *mine)
{
    sl_mailbox *box = &c->segment->members[c->rank].boxes[channel];
    SL_TRY(sl_local_check(c));
    box->notice = *mine;
    uint32_t round = ++c->rounds[channel];
    sl_word_advance(&box->arrived);
    double deadline = sl_now() + c->segment->timeout_seconds;
    for (int i = 1; i < c->ranks; i++) {
        int peer = (c->rank + i) % c->ranks;
        sl_word *w = &c->segment->members[peer].boxes[channel].arrived;
        SL_TRY(wait_for(c, channel, peer, w, round, deadline, "arrive at"));
        SL_TRY(compare(c, channel, peer));
    }
    return SLUICE_OK;
}

sluice_status sl_local_part(sl_local *c, sl_channel channel)
{
    uint32_t round = c->rounds[channel];
    sl_word_advance(&c->segment->members[c->rank].boxes[channel].done);
    double deadline = sl_now() + c->segment->timeout_seconds;
    for (int i = 1; i < c->ranks; i++) {
        int peer = (c->rank + i) % c->ranks;
        sl_word *w = &c->segment->members[peer].boxes[channel].done;
        SL_TRY(wait_for(c, channel, peer, w, round, deadline, "finish"));
    }
    return SLUICE_OK;
}
