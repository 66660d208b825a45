/* fault_test.c: ranks that diverge, vanish or stop in a collective or a control call are named, and nobody waits on. */
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

#include "support/double_device.h"
#include "test.h"

enum { ARENA = 1 << 18, ELEMENTS = 4096 };
static const sl_form F32 = SL_FORM_F32, BF16 = SL_FORM_BF16, F16 = SL_FORM_F16;

/* What rank 2 does differently at the second collective. */
typedef struct fault {
    uint64_t sequence;
    sl_collective_kind kind;
    int64_t elements;
    const char *name;
    int parts;
    bool first;
    int signal_number; /* 0: none */
    const char *expected;
    sl_form form, sum_form;
} fault;

static sluice_status launch(int ranks, double timeout, sluice_status (*body)(void *user, sluice_world *world),
                            void *user)
{
    sluice_launch_options o;
    sluice_launch_options_init(&o);
    o.ranks = ranks;
    o.timeout_seconds = timeout;
    return sluice_launch(&o, body, user);
}

/* Three ranks of 1024 elements and a rest. */
static sluice_status run_collective(sl_comm *c, sl_device *d, const fault *f)
{
    const int64_t bounds[] = { 0, 1024, 2048, f->elements };
    const sl_shards shards = { 3, f->elements, 0, 0, bounds };
    int rank = c->ops->rank(c);
    uint64_t unit = sl_comm_form_bytes(f->form);
    sl_comm_part part = { .shards = &shards, .per = 1, .unit = unit, .form = f->form, .sum_form = f->sum_form };
    part.whole = (sl_span){ SL_TIER_DEVICE, 0, (uint64_t)f->elements * unit };
    part.shard = (sl_span){ SL_TIER_HOST, 0, sl_comm_shard_bytes(f->kind, &part, rank) };
    sl_comm_part parts[] = { part, part };
    sl_collective what = { f->kind, f->name, f->parts, parts };
    SL_TRY(c->ops->start(c, f->sequence, &what, f->first));
    return double_backend.synchronize(d);
}

static const fault regular = { 57,   SL_REDUCE_SCATTER, ELEMENTS,   "reduce-scatter of h.3", 1, true, 0,
                               NULL, SL_FORM_F32,       SL_FORM_F32 };

static sluice_status diverge(void *user, sluice_world *w)
{
    const fault *f = user;
    sl_device *d = double_open(w, ARENA);
    fault before = regular;
    before.sequence--;
    SL_TRY(w->ops->attach(w, &double_backend, d));
    SL_TRY(run_collective(w, d, &before));
    bool odd = w->ops->rank(w) == 2;
    if (odd && f->signal_number != 0) raise(f->signal_number);
    sluice_status st = run_collective(w, d, odd ? f : &regular);
    if (st == SLUICE_OK) return st;
    char message[SL_MESSAGE_BYTES];
    sl_error_copy(message);
    /* Every later call repeats the failure at once. */
    if (w->ops->barrier(w, "after it") != SLUICE_ERR_RANK || run_collective(w, d, &regular) != SLUICE_ERR_RANK)
        return sl_fail(SLUICE_ERR_FAILED, "a call after a failure succeeded");
    w->ops->detach(w);
    double_close(d);
    return sl_fail(st, "%s", message);
}

TEST(a_rank_at_another_collective_is_named_with_both)
{
    const fault faults[] = {
        { 58, SL_REDUCE_SCATTER, ELEMENTS, "reduce-scatter of h.3", 1, true, 0,
          "at collective 58 (reduce-scatter of h.3, 16384 bytes)", F32, F32 },
        { 57, SL_GATHER, ELEMENTS, "gather of h.1", 1, true, 0, "at collective 57 (gather of h.1, 16384 bytes)", F32,
          F32 },
        { 57, SL_REDUCE_SCATTER, ELEMENTS - 1, "reduce-scatter of h.3", 1, true, 0,
          "at collective 57 (reduce-scatter of h.3, 16380 bytes)", F32, F32 },
        { 57, SL_REDUCE_SCATTER, ELEMENTS, "reduce-scatter of h.4", 1, true, 0, "(reduce-scatter of h.4, 16384 bytes)",
          F32, F32 },
        { 57, SL_REDUCE_SCATTER, ELEMENTS, "reduce-scatter of h.3", 2, true, 0, "(reduce-scatter of h.3, 32768 bytes)",
          F32, F32 },
        { 57, SL_GATHER, ELEMENTS, "reduce-scatter of h.3", 1, true, 0, "differ in the kind of", F32, F32 },
        { 57, SL_REDUCE_SCATTER, ELEMENTS, "reduce-scatter of h.3", 1, false, 0,
          "differ in whether accumulators are set", F32, F32 },
        { 57, SL_REDUCE_SCATTER, ELEMENTS, "reduce-scatter of h.3", 1, true, 0,
          "at collective 57 (reduce-scatter of h.3, 8192 bytes)", BF16, F32 },
        { 57, SL_REDUCE_SCATTER, 2 * ELEMENTS, "reduce-scatter of h.3", 1, true, 0, "differ in the forms of", BF16,
          F32 },
    };
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        fault f = faults[i];
        CHECK_EQ(launch(3, 30, diverge, &f), SLUICE_ERR_RANK);
        CHECK_CONTAINS(sluice_error(), f.expected);
        CHECK_CONTAINS(sluice_error(), "2"); /* the rank */
        CHECK_CONTAINS(sluice_error(), "collective 57 (reduce-scatter of h.3, 16384 bytes)");
    }
}

static sluice_status keep_differently(void *user, sluice_world *w)
{
    fault f = regular;
    sl_device *d = double_open(w, ARENA);
    (void)user;
    f.form = SL_FORM_BF16, f.sum_form = w->ops->rank(w) == 2 ? SL_FORM_BF16 : SL_FORM_F32;
    SL_TRY(w->ops->attach(w, &double_backend, d));
    return run_collective(w, d, &f);
}

TEST(ranks_that_keep_their_sums_in_different_forms_are_stopped)
{
    CHECK_EQ(launch(3, 30, keep_differently, NULL), SLUICE_ERR_RANK);
    CHECK_CONTAINS(sluice_error(), "differ in the forms of the elements of collective 57");
}

TEST(equal_collectives_pass)
{
    fault f = regular;
    REQUIRE_OK(launch(3, 30, diverge, &f));
}

TEST(a_rank_killed_before_a_collective_is_named_with_what_the_others_waited_for)
{
    fault f = regular;
    f.signal_number = SIGKILL;
    CHECK_EQ(launch(3, 30, diverge, &f), SLUICE_ERR_RANK);
    CHECK_CONTAINS(sluice_error(), "rank 2 was killed by signal 9 (Killed");
    CHECK_CONTAINS(sluice_error(), "after collective 56 (reduce-scatter of h.3, 16384 bytes)");
}

/* It is stopped, not dead: only the deadline can tell, and only the parent can end it. */
TEST(a_stopped_rank_is_named_at_the_deadline_and_killed)
{
    fault f = regular;
    f.signal_number = SIGSTOP;
    CHECK_EQ(launch(3, 0.3, diverge, &f), SLUICE_ERR_RANK);
    CHECK_CONTAINS(sluice_error(),
                   "rank 2 did not arrive at collective 57 (reduce-scatter of h.3, 16384 bytes) within");
    CHECK_CONTAINS(sluice_error(), "last seen after collective 56");
}

/* ---- parts that cannot be carried out ---- */

static sluice_status refuse_parts(void *user, sluice_world *w)
{
    const int64_t bounds[] = { 0, 1024, 2048, 4096 };
    const sl_shards good = { 3, 4096, 0, 0, bounds }, two = { 2, 2048, 0, 0, bounds };
    int rank = w->ops->rank(w);
    const sl_span whole = { SL_TIER_DEVICE, 0, 16384 };
    const sl_span shard = { SL_TIER_HOST, 0, (uint64_t)(bounds[rank + 1] - bounds[rank]) * 4 };
    const sl_span short_whole = { SL_TIER_DEVICE, 0, 16380 }, short_shard = { SL_TIER_HOST, 0, shard.bytes - 4 };
    const sl_span elsewhere = { SL_TIER_COUNT, 0, 16384 }, outside = { SL_TIER_DEVICE, ARENA - 4, 16384 };
    const struct {
        sl_comm_part part;
        bool first;
        const char *expected;
    } rows[] = {
        { { &two, 1, 4, F32, F32, whole, shard, false }, true, "another number of ranks" },
        { { &good, 1, 4, F32, F32, short_whole, shard, false }, true, "the whole is too short" },
        { { &good, 1, 4, F32, F32, whole, short_shard, false }, true, "the shard is too short" },
        { { &good, 1, 2, BF16, F32, whole, short_shard, false }, true, "the shard is too short" },
        { { &good, 1024, 8, F32, F32, whole, shard, false }, true, "one element of its form" },
        { { &good, 1, 4, BF16, F32, whole, shard, false }, true, "one element of its form" },
        { { &good, 1, 2, F32, F32, whole, shard, false }, true, "one element of its form" },
        { { &good, 1, 4, SL_FORM_I32, SL_FORM_I32, whole, shard, false }, true, "f32, bf16 or f16" },
        { { &good, 1, 2, SL_FORM_REMAINDER, F32, whole, shard, false }, true, "f32, bf16 or f16" },
        { { &good, 1, 2, (sl_form)99, F32, whole, shard, false }, true, "f32, bf16 or f16" },
        { { &good, 1, 4, F32, BF16, whole, shard, false }, true, "in f32 or in the form of its contributions" },
        { { &good, 1, 2, BF16, F16, whole, shard, false }, true, "in f32 or in the form of its contributions" },
        { { &good, 1, 2, BF16, BF16, whole, shard, false }, false, "16 bits cannot be added to" },
        { { &good, 1, 4, F32, F32, whole, shard, true }, false, "takes the place of a contribution" },
        { { &good, 1, 2, BF16, F32, whole, shard, true }, true, "takes the place of a contribution" },
        { { &good, 1, 4, F32, F32, elsewhere, shard, false }, true, "do not share" },
        { { &good, 1, 4, F32, F32, outside, shard, false }, true, "not in the arena" },
    };
    sl_device *d = double_open(w, ARENA);
    (void)user;
    SL_TRY(w->ops->attach(w, &double_backend, d));
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        sl_collective what = { SL_REDUCE_SCATTER, "sum", 1, &rows[i].part };
        CHECK_EQ(w->ops->start(w, i, &what, rows[i].first), SLUICE_ERR_FAILED);
        CHECK_CONTAINS(sluice_error(), rows[i].expected);
    }
    sl_collective many = { SL_REDUCE_SCATTER, "sum", 100000, &rows[0].part };
    CHECK_EQ(w->ops->start(w, 9, &many, true), SLUICE_ERR_FAILED);
    CHECK_CONTAINS(sluice_error(), "100000 parts");
    w->ops->detach(w);
    CHECK_EQ(w->ops->start(w, 9, &many, true), SLUICE_ERR_USAGE);
    double_close(d);
    return test_failures == 0 ? SLUICE_OK : sl_fail(SLUICE_ERR_FAILED, "checks failed in a rank");
}

TEST(parts_that_do_not_fit_the_job_are_refused_when_started)
{
    REQUIRE_OK(launch(3, 30, refuse_parts, NULL));
}

/* ---- control calls ---- */

static sluice_status talk_differently(void *user, sluice_world *w)
{
    char data[64] = { 0 }, all[3 * 64];
    int rank = w->ops->rank(w), what = *(const int *)user;
    if (rank != 1) return w->ops->exchange(w, "losses of the step", data, 8, all);
    if (what == 0) return w->ops->exchange(w, "losses of the step", data, 16, all);
    if (what == 1) return w->ops->exchange(w, "norms of the step", data, 8, all);
    return w->ops->barrier(w, "losses of the step");
}

TEST(a_rank_in_another_control_call_is_named_with_both)
{
    static const char *const expected[] = { "\"losses of the step\" (exchange, 48 bytes)",
                                            "\"norms of the step\" (exchange, 24 bytes)",
                                            "\"losses of the step\" (barrier, 0 bytes)" };
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(launch(3, 30, talk_differently, &i), SLUICE_ERR_RANK);
        CHECK_CONTAINS(sluice_error(), "rank 1 ");
        CHECK_CONTAINS(sluice_error(), expected[i]);
        CHECK_CONTAINS(sluice_error(), "\"losses of the step\" (exchange, 24 bytes)");
    }
}

/* Rank 1 comes when the others are gone. */
static sluice_status come_late(void *user, sluice_world *w)
{
    char data[8] = { 0 }, all[3 * 8];
    _Atomic int *gone = user;
    if (w->ops->rank(w) == 1) {
        while (atomic_load(gone) < 2) usleep(1000);
        if (w->ops->exchange(w, "losses of the step", data, 8, all) == SLUICE_OK) return SLUICE_OK;
        CHECK_CONTAINS(sluice_error(), "gave up: rank 1 did not arrive");
        return test_failures == 0 ? SLUICE_OK : SLUICE_ERR_FAILED;
    }
    sluice_status st = w->ops->exchange(w, "losses of the step", data, 8, all);
    atomic_fetch_add(gone, 1);
    return st;
}

TEST(a_rank_that_comes_too_late_to_a_control_call_is_named)
{
    void *gone = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(gone != MAP_FAILED);
    CHECK_EQ(launch(3, 0.3, come_late, gone), SLUICE_ERR_RANK);
    CHECK_CONTAINS(sluice_error(), "rank 1 did not arrive at \"losses of the step\" within 0.3 s");
    munmap(gone, 4096);
}
