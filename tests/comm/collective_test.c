/* collective_test.c: what collectives among local ranks compute and count.
 *
 * Every test forks its ranks. A rank that finds something wrong returns a failure, which the launch reports. */
#include "support/collective_parts.h"

enum { LARGE = 1 << 20 };

static sluice_status launch(int ranks, sluice_status (*body)(void *user, sluice_world *world), void *user)
{
    sluice_launch_options o;
    sluice_launch_options_init(&o);
    o.ranks = ranks;
    o.timeout_seconds = 30;
    return sluice_launch(&o, body, user);
}

static sluice_status verdict(void)
{
    return test_failures == 0 ? SLUICE_OK : sl_fail(SLUICE_ERR_FAILED, "checks failed in a rank");
}

/* ---- the job ---- */

static sluice_status open_job(job *j, sluice_world *world)
{
    *j = (job){ .comm = world, .rank = sluice_world_rank(world), .ranks = sluice_world_size(world) };
    j->device = double_open(world, ARENA);
    return world->ops->attach(world, &double_backend, j->device);
}

static void close_job(job *j)
{
    j->comm->ops->detach(j->comm);
    double_close(j->device);
}

static sluice_status reduce_all_shapes(void *user, sluice_world *world)
{
    job j;
    uint64_t sequence = 0;
    SL_TRY(open_job(&j, world));
    j.forms = user;
    for (int s = 0; s < SHAPES; s++) {
        lay_out_sums(&j, (shape)s);
        for (int m = 0; m < forms_of(&j)->micro_batches; m++) {
            contribute(&j, m);
            SL_TRY(collective(&j, sequence++, SL_REDUCE_SCATTER, m == 0));
        }
        check_sums(&j, forms_of(&j)->micro_batches);
    }
    close_job(&j);
    return verdict();
}

TEST(contributions_are_added_in_rank_order_whatever_the_partition)
{
    for (int ranks = 1; ranks <= MAX_RANKS; ranks++)
        for (int f = 0; f < FORMS_REDUCED; f++) {
            forms_pair forms = forms_reduced[f];
            REQUIRE_OK(launch(ranks, reduce_all_shapes, &forms));
        }
}

/* Shards of more than 4 MiB, which are written past the caches when they are set. */
static sluice_status reduce_large(void *user, sluice_world *world)
{
    job j = { .comm = world, .rank = sluice_world_rank(world), .ranks = sluice_world_size(world) };
    const int64_t elements = 2 * LARGE + 37, bounds[] = { 0, LARGE, elements };
    const sl_shards shards = { 2, elements, 0, 0, bounds };
    const forms_pair *f = user;
    j.device = double_open(world, 5 * LARGE * sizeof(float));
    SL_TRY(world->ops->attach(world, &double_backend, j.device));
    for (int i = 0; i < PARTS; i++)
        j.parts[i] = (sl_comm_part){ .shards = &shards,
                                     .per = 1,
                                     .unit = sl_comm_form_bytes(f->form),
                                     .form = f->form,
                                     .sum_form = f->sum_form,
                                     .whole = { (sl_tier)i, 256, (uint64_t)elements * sl_comm_form_bytes(f->form) },
                                     .shard = { (sl_tier)(1 - i), 3 * LARGE * sizeof(float), 0 } };
    for (int i = 0; i < PARTS; i++)
        j.parts[i].shard.bytes = sl_comm_shard_bytes(SL_REDUCE_SCATTER, &j.parts[i], j.rank);
    for (int m = 0; m < (f->micro_batches > 1 ? 2 : 1); m++) {
        contribute(&j, m);
        SL_TRY(collective(&j, (uint64_t)m, SL_REDUCE_SCATTER, m == 0));
        check_sums(&j, m + 1);
    }
    close_job(&j);
    return verdict();
}

TEST(large_sums_follow_the_same_order)
{
    static const forms_pair f32 = { SL_FORM_F32, SL_FORM_F32, 2, false };
    static const forms_pair wide = { SL_FORM_BF16, SL_FORM_F32, 2, false };
    forms_pair forms[] = { f32, wide };
    for (int i = 0; i < 2; i++) REQUIRE_OK(launch(2, reduce_large, &forms[i]));
}

/* ---- gather ---- */

typedef struct gathered {
    sl_collective_kind kind;
    int64_t per;
    uint64_t unit;
} gathered;

static sluice_status gather_all_shapes(void *user, sluice_world *world)
{
    job j;
    const gathered *g = user;
    uint64_t sequence = 0;
    SL_TRY(open_job(&j, world));
    for (int s = 0; s < SHAPES; s++)
        for (int in_place = 0; in_place < 2; in_place++) {
            lay_out(&j, (shape)s, g->per, g->unit, in_place != 0);
            for (int i = 0; g->unit == 2 && i < PARTS; i++) j.parts[i].whole.offset += 2, j.parts[i].shard.offset += 6;
            bring(&j);
            SL_TRY(collective(&j, sequence++, g->kind, false));
            check_whole(&j);
        }
    close_job(&j);
    return verdict();
}

TEST(a_gather_brings_all_shards_to_all_ranks_in_place_and_not)
{
    gathered values = { SL_GATHER, 1, 4 };
    for (int ranks = 1; ranks <= MAX_RANKS; ranks++) REQUIRE_OK(launch(ranks, gather_all_shapes, &values));
}

TEST(values_of_16_bits_are_gathered_from_and_to_any_even_address)
{
    gathered values = { SL_GATHER, 1, 2 };
    for (int ranks = 1; ranks <= MAX_RANKS; ranks++) REQUIRE_OK(launch(ranks, gather_all_shapes, &values));
}

TEST(norm_leaves_are_gathered_per_1024_elements)
{
    gathered leaves = { SL_GATHER_NORM, 1024, 8 };
    for (int ranks = 1; ranks <= MAX_RANKS; ranks++) REQUIRE_OK(launch(ranks, gather_all_shapes, &leaves));
}

/* ---- counters ---- */

static void check_counters(const job *j)
{
    sl_comm_stats stats;
    uint64_t whole = 0, shard = 0;
    j->comm->ops->stats(j->comm, &stats);
    for (int i = 0; i < PARTS; i++) {
        whole += j->parts[i].whole.bytes;
        shard += shard_bytes(&j->parts[i], j->rank);
    }
    CHECK_EQ(stats.collectives, 3);
    CHECK_EQ(stats.reduce_bytes, whole - shard);
    CHECK_EQ(stats.gather_bytes, shard * (uint64_t)(j->ranks - 1));
    CHECK_EQ(stats.norm_bytes, shard * (uint64_t)(j->ranks - 1));
}

static sluice_status count_bytes(void *user, sluice_world *world)
{
    job j;
    (void)user;
    SL_TRY(open_job(&j, world));
    lay_out(&j, BLOCKS, 1, 4, false);
    SL_TRY(collective(&j, 0, SL_REDUCE_SCATTER, true));
    SL_TRY(collective(&j, 1, SL_GATHER, false));
    SL_TRY(collective(&j, 2, SL_GATHER_NORM, false));
    check_counters(&j);
    close_job(&j);
    return verdict();
}

TEST(counters_hold_what_the_others_received)
{
    for (int ranks = 2; ranks <= 4; ranks++) REQUIRE_OK(launch(ranks, count_bytes, NULL));
}

/* Sums may be wider than what travels: the counter holds the latter. */
static sluice_status count_reduced(void *user, sluice_world *world)
{
    job j;
    sl_comm_stats stats;
    uint64_t sent = 0;
    SL_TRY(open_job(&j, world));
    j.forms = user;
    lay_out_sums(&j, BLOCKS);
    SL_TRY(collective(&j, 0, SL_REDUCE_SCATTER, true));
    for (int i = 0; i < PARTS; i++) {
        const sl_shards *s = j.parts[i].shards;
        sent += (uint64_t)(s->elements - sl_shard_elements(s, j.rank)) * (j.forms->form == SL_FORM_F32 ? 4 : 2);
    }
    j.comm->ops->stats(j.comm, &stats);
    CHECK_EQ(stats.reduce_bytes, sent);
    close_job(&j);
    return verdict();
}

TEST(contributions_are_counted_in_the_form_they_travel_in)
{
    for (int f = 0; f < FORMS_REDUCED; f++) {
        forms_pair forms = forms_reduced[f];
        REQUIRE_OK(launch(3, count_reduced, &forms));
    }
}

static sluice_status walk_null(void *user, sluice_world *world)
{
    job j = { .comm = world, .rank = sluice_world_rank(world), .ranks = sluice_world_size(world) };
    sl_device_options options = { .threads = 1 };
    const sl_backend *b = &sl_null_backend;
    static const sl_collective_kind kinds[] = { SL_REDUCE_SCATTER, SL_GATHER, SL_GATHER_NORM };
    (void)user;
    SL_TRY(b->open(&options, &j.device));
    for (int t = 0; t < 2; t++) SL_TRY(b->reserve(j.device, (sl_tier)t, ARENA));
    SL_TRY(world->ops->attach(world, b, j.device));
    lay_out(&j, BLOCKS, 1, 4, false);
    for (uint64_t i = 0; i < 3; i++) {
        sl_collective c = { kinds[i], "a collective", PARTS, j.parts };
        SL_TRY(world->ops->start(world, i, &c, true));
        SL_TRY(b->synchronize(j.device));
    }
    check_counters(&j);
    world->ops->detach(world);
    b->close(j.device);
    return verdict();
}

TEST(a_device_without_memory_walks_and_counts_collectives)
{
    REQUIRE_OK(launch(3, walk_null, NULL));
}

/* ---- queueing ---- */

/* More than the queue takes, without a synchronization; each adds one to the accumulator. */
static sluice_status queue_many(void *user, sluice_world *world)
{
    job j;
    enum { MANY = 2000 };
    (void)user;
    SL_TRY(open_job(&j, world));
    lay_out(&j, EVEN, 1, 4, false);
    for (int i = 0; i < PARTS; i++) {
        float *to = (float *)(void *)double_at(j.device, j.parts[i].whole);
        for (int64_t e = 0; e < j.parts[i].shards->elements; e++) to[e] = 1.0f;
    }
    sl_collective c = { SL_REDUCE_SCATTER, "ones", PARTS, j.parts };
    for (uint64_t n = 0; n < MANY; n++) SL_TRY(world->ops->start(world, n, &c, n == 0));
    SL_TRY(double_backend.synchronize(j.device));
    for (int i = 0; i < PARTS; i++) {
        const float *got = (const float *)(const void *)double_at(j.device, j.parts[i].shard);
        for (uint64_t e = 0; e < j.parts[i].shard.bytes / 4; e++) CHECK(got[e] == (float)(MANY * j.ranks));
    }
    close_job(&j);
    return verdict();
}

TEST(more_collectives_than_the_queue_holds_all_happen_once)
{
    REQUIRE_OK(launch(2, queue_many, NULL));
}

/* A device may be closed and another one attached, with arenas of another size. */
static sluice_status attach_again(void *user, sluice_world *world)
{
    job j;
    (void)user;
    SL_TRY(open_job(&j, world));
    close_job(&j);
    return reduce_all_shapes(NULL, world);
}

TEST(a_second_device_can_be_attached)
{
    REQUIRE_OK(launch(2, attach_again, NULL));
}
