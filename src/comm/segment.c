/* segment.c: see segment.h. */
#include "comm/segment.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static size_t segment_bytes(int ranks)
{
    return sizeof(sl_local_segment) + (size_t)ranks * sizeof(sl_member);
}

/* Pages are taken when they are first touched: the staging of ranks that exchange little costs nothing. */
sluice_status sl_segment_create(int ranks, double timeout_seconds, sl_local_segment **out)
{
    size_t bytes = segment_bytes(ranks);
    sl_local_segment *s = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (s == MAP_FAILED)
        return sl_fail(SLUICE_ERR_NO_MEMORY, "%zu bytes of memory shared by %d ranks: %s", bytes, ranks,
                       strerror(errno));
    s->ranks = ranks;
    s->timeout_seconds = timeout_seconds;
    *out = s;
    return SLUICE_OK;
}

void sl_segment_destroy(sl_local_segment *s)
{
    if (s != NULL) munmap(s, segment_bytes(s->ranks));
}

/* ---- words ---- */

static void wake(sl_word *w)
{
    syscall(SYS_futex, &w->value, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* Sequentially consistent here and in sl_word_sleep: either the sleeper sees the new value, or we see the sleeper. */
void sl_word_advance(sl_word *w)
{
    atomic_fetch_add(&w->value, 1);
    if (atomic_load(&w->waiters) != 0) wake(w);
}

void sl_word_sleep(sl_word *w, uint32_t seen, double seconds)
{
    struct timespec t = { (time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9) };
    atomic_fetch_add(&w->waiters, 1);
    if (atomic_load(&w->value) == seen) syscall(SYS_futex, &w->value, FUTEX_WAIT, seen, &t, NULL, 0);
    atomic_fetch_sub(&w->waiters, 1);
}

/* ---- failures ---- */

/* Whoever sleeps now looks at once; whoever is about to sleep looks after SL_LOCAL_LOOK_SECONDS. */
static void wake_all(sl_local_segment *s)
{
    for (int r = 0; r < s->ranks; r++)
        for (int c = 0; c < SL_CHANNEL_COUNT; c++) {
            wake(&s->members[r].boxes[c].arrived);
            wake(&s->members[r].boxes[c].done);
        }
}

static void number_failure(sl_local_segment *s, sl_life *life)
{
    if (atomic_load(&life->order) == 0) atomic_store(&life->order, atomic_fetch_add(&s->failures, 1) + 1);
}

static void break_all(sl_local_segment *s, int rank)
{
    uint32_t none = 0;
    atomic_compare_exchange_strong(&s->broken, &none, (uint32_t)rank + 1);
    wake_all(s);
}

void sl_segment_break(sl_local_segment *s, int rank, sl_life_state state, const char *reason)
{
    sl_life *life = &s->members[rank].life;
    uint32_t before = atomic_load(&life->state);
    if (before >= (uint32_t)state) return;
    /* What a rank gave up with says more than that it is gone. */
    if (before != SL_LIFE_GAVE_UP) snprintf(life->reason, sizeof life->reason, "%s", reason);
    number_failure(s, life);
    atomic_store(&life->state, (uint32_t)state);
    break_all(s, rank);
}

void sl_segment_end(sl_local_segment *s, int rank, sluice_status status, const char *message)
{
    sl_life *life = &s->members[rank].life;
    bool failed = status != SLUICE_OK && status != SLUICE_ERR_STOPPED;
    life->status = status;
    snprintf(life->message, sizeof life->message, "%s", message);
    if (failed) number_failure(s, life);
    atomic_store(&life->state, SL_LIFE_ENDED);
    if (failed) break_all(s, rank);
}

/* ---- words for people ---- */

void sl_notice_describe(sl_channel channel, const sl_notice *n, char *out, size_t bytes)
{
    static const char *const controls[] = { "exchange", "broadcast", "collect", "barrier" };
    unsigned kind = (unsigned)n->kind % (sizeof controls / sizeof controls[0]); /* another rank may be writing it */
    if (channel == SL_CHANNEL_COLLECTIVE)
        snprintf(out, bytes, "collective %llu (%.*s, %llu bytes)", (unsigned long long)n->sequence,
                 SL_LOCAL_NAME_BYTES - 1, n->name, (unsigned long long)n->bytes);
    else
        snprintf(out, bytes, "\"%.*s\" (%s, %llu bytes)", SL_LOCAL_NAME_BYTES - 1, n->name, controls[kind],
                 (unsigned long long)n->bytes);
}

void sl_member_describe(const sl_member *m, char *out, size_t bytes)
{
    char what[SL_LOCAL_NAME_BYTES + 96];
    for (int c = 0; c < SL_CHANNEL_COUNT; c++) {
        const sl_mailbox *b = &m->boxes[c];
        if (atomic_load(&b->arrived.value) == atomic_load(&b->done.value)) continue;
        sl_notice_describe((sl_channel)c, &b->notice, what, sizeof what);
        snprintf(out, bytes, "in %s", what);
        return;
    }
    sl_channel last =
        atomic_load(&m->boxes[SL_CHANNEL_COLLECTIVE].arrived.value) > 0 ? SL_CHANNEL_COLLECTIVE : SL_CHANNEL_CONTROL;
    if (atomic_load(&m->boxes[last].arrived.value) == 0) {
        snprintf(out, bytes, "before its first call");
        return;
    }
    sl_notice_describe(last, &m->boxes[last].notice, what, sizeof what);
    snprintf(out, bytes, "after %s", what);
}
