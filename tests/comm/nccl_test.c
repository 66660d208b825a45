/* nccl_test.c: collectives of GPUs without GPUs: the communicator of src/comm/nccl*.c on an NCCL that is made of
 * sockets (support/modules/mock_nccl.c) and a device that is a thread (support/double_lane.h). The bits are those that
 * local ranks must give; ranks that vanish, stop or fail are named. */
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "comm/nccl_comm.h"
#include "support/collective_parts.h"
#include "support/double_lane.h"

#define MOCK SLUICE_BINARY_DIR "/mock/libmock_nccl.so"

enum { STAGING = 6000, MOST_RANKS = 3 }; /* of no round size, and far less than a shard */

static sluice_status launch(int ranks, double timeout, sluice_status (*body)(void *user, sluice_world *world),
                            void *user)
{
    sluice_launch_options o;
    sluice_launch_options_init(&o);
    o.ranks = ranks;
    o.timeout_seconds = timeout;
    return sluice_launch(&o, body, user);
}

static sluice_status verdict(void)
{
    return test_failures == 0 ? SLUICE_OK : sl_fail(SLUICE_ERR_FAILED, "checks failed in a rank");
}

static sluice_status open_on(sluice_world *world, bool checked, sl_comm **out)
{
    sl_nccl_options o = { .base = world, .lane = &double_lane_ops, .checked = checked, .staging_bytes = STAGING };
    return sl_comm_nccl_open(&o, out);
}

static sluice_status open_job(job *j, sluice_world *world, uint64_t arena)
{
    *j = (job){ .rank = sluice_world_rank(world), .ranks = sluice_world_size(world) };
    setenv("SLUICE_NCCL", MOCK, 1);
    SL_TRY(open_on(world, false, &j->comm));
    j->device = double_open(j->comm, arena);
    return j->comm->ops->attach(j->comm, &double_backend, j->device);
}

static void close_job(job *j)
{
    j->comm->ops->detach(j->comm);
    double_close(j->device);
    j->comm->ops->close(j->comm);
}

/* ---- bits ---- */

static sluice_status reduce_all_shapes(void *user, sluice_world *world)
{
    job j;
    uint64_t sequence = 0;
    SL_TRY(open_job(&j, world, ARENA));
    for (int f = 0; f < FORMS_REDUCED; f++) {
        j.forms = &forms_reduced[f];
        for (int s = 0; s < SHAPES; s++) {
            lay_out_sums(&j, (shape)s);
            for (int m = 0; m < j.forms->micro_batches; m++) {
                contribute(&j, m);
                SL_TRY(collective(&j, sequence++, SL_REDUCE_SCATTER, m == 0));
            }
            check_sums(&j, j.forms->micro_batches);
        }
    }
    (void)user;
    close_job(&j);
    return verdict();
}

TEST(contributions_travel_over_nccl_and_are_added_in_rank_order)
{
    for (int ranks = 1; ranks <= MOST_RANKS; ranks++) REQUIRE_OK(launch(ranks, 30, reduce_all_shapes, NULL));
}

static const struct {
    sl_collective_kind kind;
    int64_t per;
    uint64_t unit;
} gathered[] = { { SL_GATHER, 1, 4 }, { SL_GATHER, 1, 2 }, { SL_GATHER_NORM, 1024, 8 } };

static sluice_status gather_all_shapes(void *user, sluice_world *world)
{
    job j;
    uint64_t sequence = 0;
    SL_TRY(open_job(&j, world, ARENA));
    for (size_t g = 0; g < sizeof gathered / sizeof gathered[0]; g++)
        for (int i = 0; i < 2 * SHAPES; i++) {
            lay_out(&j, (shape)(i / 2), gathered[g].per, gathered[g].unit, i % 2 != 0);
            bring(&j);
            SL_TRY(collective(&j, sequence++, gathered[g].kind, false));
            check_whole(&j);
        }
    (void)user;
    close_job(&j);
    return verdict();
}

TEST(shards_are_gathered_over_nccl_in_place_and_not)
{
    for (int ranks = 1; ranks <= MOST_RANKS; ranks++) REQUIRE_OK(launch(ranks, 30, gather_all_shapes, NULL));
}

/* ---- cuts ---- */

enum { BLOCK = 1024, ROUNDS = 300, LARGE_ARENA = 16 << 20 };

/* One part with more ranges than one group takes, or cut evenly. */
static void cut_finely(job *j, bool even)
{
    int64_t dealt = even ? 0 : (int64_t)BLOCK * ROUNDS * j->ranks;
    partition *p = &j->cuts[0];
    p->shards = (sl_shards){ j->ranks, dealt + 2048 * j->ranks, even ? 0 : BLOCK, even ? 0 : ROUNDS, p->bounds };
    for (int r = 0; r <= j->ranks; r++) p->bounds[r] = dealt + 2048 * r;
    for (int i = 0; i < PARTS; i++) {
        sl_comm_part *part = &j->parts[i];
        *part = (sl_comm_part){ .shards = &p->shards, .per = 1, .unit = 2, .form = SL_FORM_BF16 };
        part->sum_form = SL_FORM_F32;
        uint64_t bytes = (uint64_t)p->shards.elements * 2;
        part->whole = (sl_span){ SL_TIER_DEVICE, (uint64_t)i * (LARGE_ARENA / 2), bytes };
        part->shard = (sl_span){ SL_TIER_HOST, (uint64_t)i * (LARGE_ARENA / 2), bytes };
    }
}

static sluice_status move_finely(void *user, sluice_world *world)
{
    job j;
    uint64_t sequence = 0;
    (void)user;
    SL_TRY(open_job(&j, world, LARGE_ARENA));
    for (int even = 0; even < 2; even++) {
        cut_finely(&j, even != 0);
        for (int i = 0; i < PARTS; i++) {
            j.parts[i].shard.bytes = sl_comm_shard_bytes(SL_REDUCE_SCATTER, &j.parts[i], j.rank);
        }
        contribute(&j, 0);
        SL_TRY(collective(&j, sequence++, SL_REDUCE_SCATTER, true));
        check_sums(&j, 1);
        bring(&j);
        SL_TRY(collective(&j, sequence++, SL_GATHER, false));
        check_whole(&j);
    }
    close_job(&j);
    return verdict();
}

TEST(more_ranges_than_a_group_takes_go_in_several)
{
    for (int ranks = 2; ranks <= MOST_RANKS; ranks++) REQUIRE_OK(launch(ranks, 30, move_finely, NULL));
}

/* ---- counters, and being above another communicator ---- */

static sluice_status count_bytes(void *user, sluice_world *world)
{
    job j;
    sl_comm_stats stats;
    uint64_t whole = 0, own = 0;
    char mine = (char)('a' + sluice_world_rank(world)), letters[MOST_RANKS + 1] = "";
    (void)user;
    SL_TRY(open_job(&j, world, ARENA));
    lay_out(&j, BLOCKS, 1, 4, false);
    SL_TRY(collective(&j, 0, SL_REDUCE_SCATTER, true));
    SL_TRY(collective(&j, 1, SL_GATHER, false));
    j.comm->ops->stats(j.comm, &stats);
    for (int i = 0; i < PARTS; i++) whole += j.parts[i].whole.bytes, own += shard_bytes(&j.parts[i], j.rank);
    CHECK_EQ(stats.collectives, 2);
    CHECK_EQ(stats.reduce_bytes, whole - own);
    CHECK_EQ(stats.gather_bytes, own * (uint64_t)(j.ranks - 1));
    CHECK(sl_comm_reaches_gpus(j.comm) && !sl_comm_reaches_gpus(world));
    SL_TRY(j.comm->ops->exchange(j.comm, "letters", &mine, 1, letters));
    CHECK_STR(letters, "abc");
    close_job(&j);
    return world->ops->barrier(world, "the base is still open") == SLUICE_OK ? verdict() : SLUICE_ERR_FAILED;
}

TEST(control_calls_are_the_bases_and_bytes_are_counted_here)
{
    REQUIRE_OK(launch(3, 30, count_bytes, NULL));
}

/* ---- libraries that cannot be used ---- */

TEST(a_missing_or_strange_library_is_named)
{
    static const struct {
        const char *file, *trouble, *expected;
    } rows[] = { { "/nowhere/libnccl.so.2", "", "/nowhere/libnccl.so.2" },
                 { "libm.so.6", "", "lacks the function ncclGetVersion" },
                 { MOCK, "old", "is NCCL version 21000; sluice needs 2.18" } };
    sl_comm *self, *c;
    REQUIRE_OK(sl_comm_self_open(&self));
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        setenv("SLUICE_NCCL", rows[i].file, 1);
        setenv("MOCK_NCCL", rows[i].trouble, 1);
        CHECK_EQ(open_on(self, false, &c), SLUICE_ERR_USAGE);
        CHECK_CONTAINS(sluice_error(), rows[i].expected);
    }
    unsetenv("SLUICE_NCCL");
    unsetenv("MOCK_NCCL");
    self->ops->close(self);
}

/* ---- faults ---- */

/* What rank 2 meets. */
typedef struct fault {
    const char *trouble;      /* of its NCCL */
    int signal_number;        /* before the second collective; 0: none */
    bool leaves;              /* returns there */
    bool checked, is_another; /* all compare collectives; it comes with another one */
    double timeout;
    const char *expected, *also;
} fault;

static sluice_status two_collectives(job *j, const fault *f)
{
    bool odd = j->rank == 2;
    lay_out(j, EVEN, 1, 4, false);
    SL_TRY(collective(j, 56, SL_GATHER, false));
    if (odd && f->signal_number != 0) raise(f->signal_number);
    if (odd && f->leaves) return sl_fail(SLUICE_ERR_IO, "the disk is full");
    return collective(j, odd && f->is_another ? 58 : 57, SL_GATHER, false);
}

static sluice_status meet_trouble(void *user, sluice_world *world)
{
    const fault *f = user;
    job j = { .rank = sluice_world_rank(world), .ranks = sluice_world_size(world) };
    char message[SL_MESSAGE_BYTES];
    setenv("SLUICE_NCCL", MOCK, 1);
    if (j.rank == 2 && f->trouble != NULL) setenv("MOCK_NCCL", f->trouble, 1);
    SL_TRY(open_on(world, f->checked, &j.comm));
    j.device = double_open(j.comm, ARENA);
    sluice_status st = j.comm->ops->attach(j.comm, &double_backend, j.device);
    if (st == SLUICE_OK) st = two_collectives(&j, f);
    sl_error_copy(message);
    if (st != SLUICE_OK) world->ops->abort(world, message);
    if (st == SLUICE_ERR_RANK && j.comm->ops->barrier(j.comm, "after it") == SLUICE_OK)
        st = sl_fail(SLUICE_ERR_FAILED, "a call after a failure succeeded");
    close_job(&j);
    return st == SLUICE_OK ? st : sl_fail(st, "%s", message);
}

static void check_fault(fault f)
{
    CHECK_EQ(launch(3, f.timeout, meet_trouble, &f), f.leaves ? SLUICE_ERR_IO : SLUICE_ERR_RANK);
    CHECK_CONTAINS(sluice_error(), f.expected);
    CHECK_CONTAINS(sluice_error(), f.also);
}

TEST(collectives_without_trouble_pass_checked_and_not)
{
    for (int checked = 0; checked < 2; checked++) {
        fault none = { .checked = checked != 0, .timeout = 30 };
        REQUIRE_OK(launch(3, 30, meet_trouble, &none));
    }
}

TEST(a_rank_killed_between_collectives_of_gpus_is_named_long_before_the_deadline)
{
    check_fault(
        (fault){ .signal_number = SIGKILL, .timeout = 30, .expected = "rank 2 was killed by signal 9", .also = "" });
}

TEST(a_stopped_rank_is_named_by_the_others_after_the_deadline)
{
    check_fault((fault){ .signal_number = SIGSTOP,
                         .timeout = 0.5,
                         .expected = "collective 57 (a collective) did not end on the GPU within 0.5 s",
                         .also = "rank 2 did not arrive" });
}

TEST(a_rank_that_fails_by_itself_ends_the_others)
{
    check_fault((fault){ .leaves = true, .timeout = 30, .expected = "the disk is full", .also = "" });
}

TEST(a_gpu_that_hangs_ends_the_job_at_the_deadline)
{
    check_fault(
        (fault){ .trouble = "hang:2", .timeout = 0.5, .expected = "did not end on the GPU within", .also = "57" });
}

TEST(errors_of_nccl_end_the_job_with_the_collective)
{
    check_fault((fault){ .trouble = "error:2", .timeout = 1, .expected = "NCCL failed in", .also = "mock error" });
}

TEST(nccl_that_does_not_start_ends_the_job)
{
    check_fault((fault){ .trouble = "init", .timeout = 30, .expected = "starting NCCL", .also = "mock system error" });
    check_fault(
        (fault){ .trouble = "stall", .timeout = 0.5, .expected = "did not get through starting NCCL", .also = "" });
}

TEST(a_rank_at_another_collective_is_named_where_collectives_are_checked)
{
    check_fault((fault){ .checked = true,
                         .is_another = true,
                         .timeout = 30,
                         .expected = "at collective 58 (a collective",
                         .also = "collective 57" });
}
