/* collective_test.c: what collectives among local ranks compute and count.
 *
 * Every test forks its ranks. A rank that finds something wrong returns a failure, which the launch reports. */
#include "double.h"
#include "forms.h"
#include "test.h"

enum { MAX_RANKS = 6, ARENA = 1 << 20, PARTS = 2, LARGE = 1 << 20 };

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

/* ---- partitions ---- */

typedef struct partition {
    sl_shards shards;
    int64_t bounds[MAX_RANKS + 1];
} partition;

typedef enum { EVEN, BLOCKS, OWNER, HOLES, TINY, EXACT_BLOCKS, SHAPES } shape;

/* How the rest behind the blocks is cut: a thousandth of it, in cuts of 1,024 elements. */
static int64_t cut_at(shape s, int ranks, int r, int64_t begin, int64_t end)
{
    int64_t cuts = (end - begin + 1023) / 1024, at;
    if (r == 0) return begin;
    if (r == ranks) return end;
    if (s == OWNER) return r <= ranks / 2 ? begin : end; /* all to one */
    if (s == HOLES)
        at = r % 2 == 1 ? (r + 1) / 2 : r / 2; /* every second rank has nothing */
    else
        at = cuts * r / ranks;
    at = begin + at * 1024;
    return at < end ? at : end;
}

static void cut(partition *p, shape s, int ranks)
{
    static const int64_t rests[SHAPES] = { 11 * 1024 + 37, 5 * 1024 + 1, 4096, 9 * 1024 + 5, 5, 0 };
    int64_t block = s == BLOCKS || s == EXACT_BLOCKS ? 2048 : 0, rounds = block > 0 ? 3 : 0;
    int64_t dealt = block * rounds * ranks;
    p->shards = (sl_shards){ ranks, dealt + rests[s], block, rounds, p->bounds };
    for (int r = 0; r <= ranks; r++) p->bounds[r] = cut_at(s, ranks, r, dealt, p->shards.elements);
}

/* ---- one job with two parts on two tiers, at other offsets on every rank ---- */

typedef struct job {
    sl_comm *comm;
    sl_device *device;
    int rank, ranks;
    const forms_pair *forms; /* of reductions; NULL: f32 */
    partition cuts[PARTS];
    sl_comm_part parts[PARTS];
} job;

static uint64_t units(const sl_comm_part *p, int64_t elements)
{
    return (uint64_t)((elements + p->per - 1) / p->per) * p->unit;
}

static uint64_t shard_bytes(const sl_comm_part *p, int rank)
{
    uint64_t bytes = 0;
    for (int64_t i = 0; i < sl_shard_range_count(p->shards, rank); i++)
        bytes += units(p, sl_shard_range(p->shards, rank, i).count);
    return bytes;
}

static void lay_out(job *j, shape s, int64_t per, uint64_t unit, bool in_place)
{
    for (int i = 0; i < PARTS; i++) {
        sl_comm_part *p = &j->parts[i];
        cut(&j->cuts[i], (shape)((s + i) % SHAPES), j->ranks);
        *p = (sl_comm_part){ .shards = &j->cuts[i].shards, .per = per, .unit = unit, .in_place = in_place };
        uint64_t at = 256 * (uint64_t)(1 + j->rank + 3 * i);
        p->whole = (sl_span){ (sl_tier)i, at, units(p, p->shards->elements) };
        p->shard = (sl_span){ (sl_tier)(1 - i), ARENA / 2 + at, in_place ? 0 : shard_bytes(p, j->rank) };
    }
}

static const forms_pair *forms_of(const job *j)
{
    return j->forms != NULL ? j->forms : &forms_reduced[0];
}

/* As lay_out, in the job's forms; 16-bit ones begin between two words. */
static void lay_out_sums(job *j, shape s)
{
    const forms_pair *f = forms_of(j);
    lay_out(j, s, 1, sl_comm_form_bytes(f->form), f->in_place);
    for (int i = 0; i < PARTS; i++) {
        sl_comm_part *p = &j->parts[i];
        p->form = f->form, p->sum_form = f->sum_form;
        p->whole.offset += p->unit % 4;
        p->shard.bytes = sl_comm_shard_bytes(SL_REDUCE_SCATTER, p, j->rank);
        p->shard.offset += sl_comm_form_bytes(f->sum_form) % 4;
    }
}

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

static sluice_status collective(job *j, uint64_t sequence, sl_collective_kind kind, bool first)
{
    sl_collective c = { kind, "a collective", PARTS, j->parts };
    SL_TRY(j->comm->ops->start(j->comm, sequence, &c, first));
    return double_backend.synchronize(j->device);
}

/* ---- reduce-scatter ---- */

/* Values whose sum depends on the order of additions, and now and then one that is no ordinary number. */
static float contribution(sl_form form, int rank, int micro_batch, int part, int64_t i)
{
    static const float scales[][5] = { { 1e8f, 1.0f, 1e-3f, 3e4f, -1e8f }, { 3e4f, 1.0f, 1e-3f, 6e-7f, -3e4f } };
    uint32_t h = (uint32_t)(i * 2654435761u) + (uint32_t)rank * 40503u + (uint32_t)(micro_batch * 977 + part * 31);
    h ^= h >> 13, h *= 2246822519u, h ^= h >> 16;
    if (i % 61 == 7) return form_special(form, (int)(i / 61) + rank * (1 + (int)(i / 61) % 5) + micro_batch);
    return form_nearest(form, ((float)(h % 20011) / 10007.0f - 1.0f) * scales[form == SL_FORM_F16][(h >> 20) % 5]);
}

static void contribute(job *j, int micro_batch)
{
    for (int i = 0; i < PARTS; i++) {
        const sl_comm_part *p = &j->parts[i];
        unsigned char *to = double_at(j->device, p->whole);
        for (int64_t e = 0; e < p->shards->elements; e++)
            form_encode(p->form, contribution(p->form, j->rank, micro_batch, i, e), to + (uint64_t)e * p->unit);
    }
}

/* The exact rule, element by element: micro-batches in order, ranks in order within each. */
static float expected_sum(sl_form form, int ranks, int micro_batches, int part, int64_t e)
{
    volatile float sum = contribution(form, 0, 0, part, e);
    for (int m = 0; m < micro_batches; m++)
        for (int r = m == 0 ? 1 : 0; r < ranks; r++) sum = sum + contribution(form, r, m, part, e);
    return sum;
}

/* In place the sums lie in the whole, and what other ranks own of it is as it was brought. */
static void check_part(const job *j, int i, int micro_batches)
{
    const sl_comm_part *p = &j->parts[i];
    const unsigned char *got = double_at(j->device, p->shard), *whole = double_at(j->device, p->whole);
    int64_t behind = 0;
    for (int64_t k = 0; k < sl_shard_range_count(p->shards, j->rank); k++) {
        sl_range range = sl_shard_range(p->shards, j->rank, k);
        for (int64_t e = p->in_place ? behind : range.first; e < range.first; e++)
            CHECK(form_same(p->form, whole + (uint64_t)e * p->unit, contribution(p->form, j->rank, 0, i, e)));
        for (int64_t e = range.first; e < range.first + range.count; e++, got += sl_comm_form_bytes(p->sum_form))
            CHECK(form_same(p->sum_form, p->in_place ? whole + (uint64_t)e * p->unit : got,
                            expected_sum(p->form, j->ranks, micro_batches, i, e)));
        behind = range.first + range.count;
    }
}

static void check_sums(const job *j, int micro_batches)
{
    for (int i = 0; i < PARTS; i++) check_part(j, i, micro_batches);
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

static unsigned char unit_byte(int part, uint64_t at)
{
    return (unsigned char)(1 + (at * 31 + (uint64_t)part * 7 + at / 251) % 255);
}

/* Writes this rank's ranges where the gather takes them from. */
static void bring(job *j)
{
    for (int i = 0; i < PARTS; i++) {
        const sl_comm_part *p = &j->parts[i];
        unsigned char *whole = double_at(j->device, p->whole), *shard = double_at(j->device, p->shard);
        memset(whole, 0, p->whole.bytes);
        for (int64_t k = 0; k < sl_shard_range_count(p->shards, j->rank); k++) {
            sl_span at = sl_comm_bytes(p, (sl_span){ 0 }, sl_shard_range(p->shards, j->rank, k));
            for (uint64_t b = at.offset; b < at.offset + at.bytes; b++)
                *(p->in_place ? &whole[b] : shard++) = unit_byte(i, b);
        }
    }
}

static void check_whole(const job *j)
{
    for (int i = 0; i < PARTS; i++) {
        const unsigned char *whole = double_at(j->device, j->parts[i].whole);
        for (uint64_t b = 0; b < j->parts[i].whole.bytes; b++) CHECK_EQ(whole[b], unit_byte(i, b));
    }
}

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
