/* mpi_ranks_test.c: what each rank of an MPI job does and checks; started by mpi_test.c under mpirun.
 *
 * Tests named together_* run in one job, one after the other, and pass on every rank. Those named broken_* are jobs of
 * their own: a rank does something wrong, and each rank that notices leaves with the status it was given. `rate` is for
 * people: mpirun -n 2 mpi_ranks rate. */
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include "comm/comm.h"
#include "core/thread.h"
#include "support/reduction_forms.h"
#include "test.h"

/* ---- a device that is memory and one thread ---- */

enum { ARENA_BYTES = 96 << 20 };

typedef struct work {
    sluice_status (*run)(void *user);
    void *user;
    sluice_status status;
    char message[SL_MESSAGE_BYTES];
} work;

struct sl_device {
    char *arena[2];
    pthread_t thread; /* runs `current` */
    bool running;
    work current;
};

static void *run_work(void *p)
{
    work *w = p;
    w->status = w->run(w->user);
    if (w->status != SLUICE_OK) sl_error_copy(w->message);
    return NULL;
}

static sluice_status device_synchronize(sl_device *d)
{
    if (!d->running) return SLUICE_OK;
    pthread_join(d->thread, NULL);
    d->running = false;
    return d->current.status == SLUICE_OK ? SLUICE_OK : sl_fail(d->current.status, "%s", d->current.message);
}

/* In order, each piece of work in a thread of its own: control calls of the test really run beside it. */
static sluice_status device_submit(sl_device *d, sl_stream stream, sluice_status (*run)(void *user), void *user)
{
    SL_TRY(device_synchronize(d));
    CHECK_EQ(stream, SL_STREAM_COMM);
    d->current = (work){ .run = run, .user = user };
    d->running = true;
    return pthread_create(&d->thread, NULL, run_work, &d->current) == 0 ? SLUICE_OK
                                                                        : sl_fail(SLUICE_ERR_FAILED, "thread");
}

static sluice_status device_resolve(sl_device *d, const char *what, sl_span span, void **out)
{
    if (span.tier > SL_TIER_HOST || span.offset + span.bytes > ARENA_BYTES)
        return sl_fail(SLUICE_ERR_FAILED, "%s: span outside the arena", what);
    *out = d->arena[span.tier] + span.offset;
    return SLUICE_OK;
}

static const sl_backend backend = {
    .name = "double", .submit = device_submit, .resolve = device_resolve, .synchronize = device_synchronize
};
static sl_device device;

/* ---- the job, joined by the first test and left by the last ---- */

static sluice_world *job;
static int rank, size;

/* Leaves as the program would. */
static void leave_with(sluice_status st)
{
    fprintf(stderr, "rank %d: status %d: %s\n", rank, (int)st, sluice_error());
    if (job != NULL) job->ops->close(job);
    _exit(sluice_exit_status(st));
}

/* A rank that gives up at once is heard of by others while they still attach. */
static bool join_within(double timeout_seconds)
{
    if (job != NULL) return true;
    if (sluice_world_join(timeout_seconds, &job) != SLUICE_OK) {
        test_fail(__FILE__, __LINE__, "%s", sluice_error());
        return false;
    }
    rank = job->ops->rank(job), size = job->ops->size(job);
    for (int i = 0; i < 2; i++) device.arena[i] = calloc(1, ARENA_BYTES);
    sluice_status st = job->ops->attach(job, &backend, &device);
    if (st != SLUICE_OK) leave_with(st);
    return true;
}

static bool join(void)
{
    return join_within(30);
}

/* ---- numbers that show the order in which they are added ---- */

/* Element i of the contribution of rank r in round m: magnitudes differ so much that every order rounds differently,
 * and now and then it is no ordinary number. */
static float contribution(sl_form form, int r, int m, int64_t i)
{
    uint32_t x = (uint32_t)i * 2654435761u ^ (uint32_t)(r * 40503 + m * 9176 + 1) * 2246822519u;
    x ^= x >> 15, x *= 2246822519u, x ^= x >> 13;
    float unit = (float)(int32_t)x / 2147483648.0f;
    if (i % 61 == 7) return form_special(form, (int)(i / 61 % 9) + r * (1 + (int)(i / 61 % 5)) + m);
    if (form == SL_FORM_F32) return unit * (float)(1 << (x % 20));
    return form_nearest(form, unit * (float)(1 << (x % 29)) * 0x1p-14f);
}

/* Element i after `rounds` rounds of all ranks, by exact rule 1. */
static float expected_sum(sl_form form, int rounds, int64_t i)
{
    float sum = contribution(form, 0, 0, i);
    for (int m = 0; m < rounds; m++)
        for (int r = m == 0 ? 1 : 0; r < size; r++) sum += contribution(form, r, m, i);
    return sum;
}

/* ---- cuts ---- */

enum { CUT_COUNT = 4 };
typedef struct cut {
    sl_shards shards;
    int64_t bounds[17];
} cut;

/* Even; everything with the last rank; blocks dealt round and a rest; one leaf and a bit with rank 0. */
static void make_cut(cut *c, int kind, int64_t elements)
{
    int64_t even = (elements / size + 1023) / 1024 * 1024;
    *c = (cut){ .shards = { .rank_count = size, .elements = elements } };
    c->shards.bounds = c->bounds;
    if (kind == 2) {
        c->shards.block = 2048;
        c->shards.rounds = elements / (2048 * size);
    }
    int64_t dealt = c->shards.block * c->shards.rounds * size;
    for (int r = 0; r <= size; r++) {
        int64_t bound = kind == 0 ? r * even : kind == 3 ? r * elements : 0;
        c->bounds[r] = bound < dealt ? dealt : bound > elements ? elements : bound;
    }
    c->bounds[size] = elements;
}

static int64_t shard_bytes(const cut *c, int r, int64_t per, int64_t unit)
{
    return (sl_shard_elements(&c->shards, r) + per - 1) / per * unit;
}

/* f32 values at the start of the device's arena, gathered where they lie. */
static sl_comm_part in_place_part(const cut *c, uint64_t bytes)
{
    sl_comm_part part = { .shards = &c->shards, .per = 1, .unit = 4, .in_place = true };
    part.whole = (sl_span){ SL_TIER_DEVICE, 0, bytes };
    part.shard = (sl_span){ SL_TIER_HOST, 0, 0 };
    return part;
}

/* f32 values at `offset` of the device's arena, the shard at the start of the host's. */
static sl_comm_part f32_part(const cut *c, uint64_t offset)
{
    sl_comm_part part = { .shards = &c->shards, .per = 1, .unit = 4 };
    part.whole = (sl_span){ SL_TIER_DEVICE, offset, (uint64_t)c->shards.elements * 4 };
    part.shard = (sl_span){ SL_TIER_HOST, 0, (uint64_t)shard_bytes(c, rank, 1, 4) };
    return part;
}

/* ---- together ---- */

static void check_shard(const sl_comm_part *part, int rounds)
{
    const char *sums = device.arena[part->shard.tier] + part->shard.offset;
    const char *whole = device.arena[part->whole.tier] + part->whole.offset;
    int64_t wrong = 0;
    for (int64_t i = 0; i < sl_shard_range_count(part->shards, rank); i++) {
        sl_range range = sl_shard_range(part->shards, rank, i);
        if (part->in_place) sums = whole + (uint64_t)range.first * part->unit;
        for (int64_t k = 0; k < range.count; k++, sums += sl_comm_form_bytes(part->sum_form))
            wrong += !form_same(part->sum_form, sums, expected_sum(part->form, rounds, range.first + k));
    }
    CHECK_EQ(wrong, 0);
}

static void contribute(const sl_comm_part *part, int round)
{
    char *to = device.arena[part->whole.tier] + part->whole.offset;
    for (int64_t i = 0; i < part->shards->elements; i++, to += part->unit)
        form_encode(part->form, contribution(part->form, rank, round, i), to);
}

/* Two parts under one kind of cut. Ones of 16 bits begin between two words. */
static void reduce_and_check(const forms_pair *f, int kind, const int64_t elements[2], int rounds)
{
    cut cuts[2];
    sl_comm_part parts[2];
    sl_comm_stats before, after;
    uint64_t unit = sl_comm_form_bytes(f->form), kept = sl_comm_form_bytes(f->sum_form), sent = 0;
    for (int p = 0; p < 2; p++) {
        make_cut(&cuts[p], kind, elements[p]);
        int64_t own = sl_shard_elements(&cuts[p].shards, rank);
        uint64_t at = (uint64_t)p << 20;
        parts[p] = (sl_comm_part){ .shards = &cuts[p].shards, .per = 1, .unit = unit, .in_place = f->in_place };
        parts[p].form = f->form, parts[p].sum_form = f->sum_form;
        parts[p].whole = (sl_span){ SL_TIER_DEVICE, at + unit % 4, (uint64_t)elements[p] * unit };
        parts[p].shard = (sl_span){ SL_TIER_HOST, at + kept % 4, f->in_place ? 0 : (uint64_t)own * kept };
        sent += (uint64_t)(elements[p] - own) * unit * (uint64_t)rounds;
    }
    sl_collective reduce = { SL_REDUCE_SCATTER, "reduce-scatter of two layers", 2, parts };
    memset(device.arena[SL_TIER_HOST], 0xff, 16 << 20);
    job->ops->stats(job, &before);
    for (int m = 0; m < rounds; m++) {
        for (int p = 0; p < 2; p++) contribute(&parts[p], m);
        REQUIRE_OK(job->ops->start(job, (uint64_t)(100 + kind * 2 + m), &reduce, m == 0));
        REQUIRE_OK(device_synchronize(&device));
    }
    job->ops->stats(job, &after);
    CHECK_EQ(after.reduce_bytes - before.reduce_bytes, sent);
    for (int p = 0; p < 2; p++) check_shard(&parts[p], rounds);
}

TEST(together_contributions_are_added_in_rank_order_under_every_cut)
{
    REQUIRE(join());
    /* The second part is larger than all staging, so that slots are used again. */
    const int64_t elements[2] = { 20 * 1024 + 5, (int64_t)3 << 20 };
    for (int kind = 0; kind < CUT_COUNT; kind++) reduce_and_check(&forms_reduced[0], kind, elements, 2);
}

TEST(together_contributions_of_16_bits_are_added_in_f32_and_rounded_once)
{
    REQUIRE(join());
    const int64_t elements[2] = { 20 * 1024 + 5, (int64_t)600 * 1024 + 3 };
    for (int f = 1; f < FORMS_REDUCED; f++)
        for (int kind = 0; kind < CUT_COUNT; kind++)
            reduce_and_check(&forms_reduced[f], kind, elements, forms_reduced[f].micro_batches > 1 ? 2 : 1);
}

/* Byte k of a whole that all ranks should end up with. */
static char whole_byte(int64_t k, int salt)
{
    return (char)((k * 131 + salt * 7 + (k >> 11)) & 0xff);
}

static void fill_own(const sl_comm_part *part, int salt)
{
    char *shard = device.arena[part->shard.tier] + part->shard.offset, *whole = device.arena[part->whole.tier];
    for (int64_t i = 0; i < sl_shard_range_count(part->shards, rank); i++) {
        sl_span s = sl_comm_bytes(part, part->whole, sl_shard_range(part->shards, rank, i));
        for (uint64_t k = 0; k < s.bytes; k++) {
            char byte = whole_byte((int64_t)(s.offset - part->whole.offset + k), salt);
            if (part->in_place)
                whole[s.offset + k] = byte;
            else
                *shard++ = byte;
        }
    }
}

static void gather_and_check(sl_collective_kind kind, int cut_kind, int64_t elements, int64_t per, uint64_t unit,
                             bool in_place)
{
    cut c;
    int salt = cut_kind * 2 + in_place;
    make_cut(&c, cut_kind, elements);
    uint64_t bytes = (uint64_t)((elements + per - 1) / per) * unit;
    uint64_t own = (uint64_t)shard_bytes(&c, rank, per, (int64_t)unit), odd = unit == 2 ? 2 : 0;
    sl_comm_part part = { .shards = &c.shards, .per = per, .unit = unit, .in_place = in_place };
    part.whole = (sl_span){ SL_TIER_DEVICE, 256 + odd, bytes };
    part.shard = (sl_span){ SL_TIER_HOST, 512 + 3 * odd, in_place ? 0 : own };
    sl_collective gather = { kind, "gather of a layer", 1, &part };
    sl_comm_stats before, after;
    memset(device.arena[SL_TIER_DEVICE], 0xee, 256 + bytes + 256);
    fill_own(&part, salt);
    job->ops->stats(job, &before);
    REQUIRE_OK(job->ops->start(job, 7, &gather, false));
    REQUIRE_OK(device_synchronize(&device));
    job->ops->stats(job, &after);
    const char *whole = device.arena[SL_TIER_DEVICE] + part.whole.offset;
    int64_t wrong = 0;
    for (uint64_t k = 0; k < bytes; k++) wrong += whole[k] != whole_byte((int64_t)k, salt);
    CHECK_EQ(wrong, 0);
    CHECK_EQ((unsigned char)whole[-1], 0xee);
    CHECK_EQ((unsigned char)whole[bytes], 0xee);
    uint64_t sent = own * (uint64_t)(size - 1);
    CHECK_EQ(after.gather_bytes - before.gather_bytes, kind == SL_GATHER ? sent : 0);
    CHECK_EQ(after.norm_bytes - before.norm_bytes, kind == SL_GATHER_NORM ? sent : 0);
    CHECK_EQ(after.collectives - before.collectives, 1);
}

TEST(together_gathers_put_every_range_in_its_place_and_count_what_was_sent)
{
    REQUIRE(join());
    for (int kind = 0; kind < CUT_COUNT; kind++)
        for (int in_place = 0; in_place < 2; in_place++) {
            gather_and_check(SL_GATHER, kind, 50 * 1024 + 17, 1, 4, in_place);
            gather_and_check(SL_GATHER, kind, 50 * 1024 + 17, 1, 2, in_place);
            gather_and_check(SL_GATHER_NORM, kind, 50 * 1024 + 17, 1024, 8, in_place);
        }
}

TEST(together_a_range_longer_than_one_message_arrives_whole)
{
    REQUIRE(join());
    gather_and_check(SL_GATHER, 3, (int64_t)17 << 20, 1, 4, true);
}

TEST(together_more_collectives_can_be_queued_than_are_kept)
{
    REQUIRE(join());
    cut c;
    make_cut(&c, 0, 1024);
    sl_comm_part part = in_place_part(&c, 4096);
    sl_collective gather = { SL_GATHER, "gather of little", 1, &part };
    for (uint64_t i = 0; i < 1100; i++) REQUIRE_OK(job->ops->start(job, i, &gather, false));
    REQUIRE_OK(device_synchronize(&device));
}

TEST(together_control_calls_need_no_order_with_collectives)
{
    REQUIRE(join());
    cut c;
    make_cut(&c, 0, 1 << 20);
    sl_comm_part part = in_place_part(&c, 4 << 20);
    sl_collective gather = { SL_GATHER, "gather of a layer", 1, &part };
    int all[16];
    /* Rank 0 first agrees and then gathers, the others the other way round. */
    if (rank != 0) REQUIRE_OK(job->ops->start(job, 1, &gather, false));
    for (int i = 0; i < 20; i++) {
        int mine = rank * 100 + i;
        REQUIRE_OK(job->ops->exchange(job, "losses", &mine, sizeof mine, all));
        for (int r = 0; r < size; r++) CHECK_EQ(all[r], r * 100 + i);
    }
    if (rank == 0) REQUIRE_OK(job->ops->start(job, 1, &gather, false));
    REQUIRE_OK(device_synchronize(&device));
}

TEST(together_control_calls_carry_nothing_little_and_much)
{
    REQUIRE(join());
    const size_t sizes[] = { 0, 1, 3000, (size_t)5 << 20, (size_t)70 << 20 };
    char *data = malloc(sizes[4]), *all = malloc((size_t)size * sizes[3]);
    for (int i = 0; i < 5; i++) {
        memset(data, rank == 1 ? 'b' : 'x', sizes[i]);
        REQUIRE_OK(job->ops->broadcast(job, "a file", 1, data, sizes[i]));
        for (size_t k = 0; k < sizes[i]; k += 997) CHECK_EQ(data[k], 'b');
    }
    for (int i = 0; i < 4; i++) {
        memset(data, 'a' + rank, sizes[i]);
        REQUIRE_OK(job->ops->exchange(job, "arrays", data, sizes[i], all));
        for (size_t k = 0; k < (size_t)size * sizes[i]; k++) CHECK_EQ(all[k], 'a' + (int)(k / sizes[i]));
    }
    free(all);
    free(data);
}

TEST(together_collecting_puts_unequal_lengths_in_rank_order_at_the_root)
{
    REQUIRE(join());
    size_t lengths[16] = { 0 };
    static char mine[16 * 1024], all[16 * sizeof mine], expected[16 * sizeof mine];
    size_t total = 0;
    for (int r = 0; r < size; r++) {
        lengths[r] = r == 0 ? 0 : (size_t)(r * 1000 + 7);
        memset(expected + total, 'A' + r, lengths[r]);
        total += lengths[r];
    }
    memset(mine, 'A' + rank, sizeof mine);
    for (int root = 0; root < size; root++) {
        memset(all, 0, sizeof all);
        REQUIRE_OK(job->ops->collect(job, "index", root, mine, lengths, rank == root ? all : NULL));
        if (rank == root) CHECK(memcmp(all, expected, total) == 0);
    }
}

TEST(together_ranks_know_their_number_and_map_their_own_arenas)
{
    REQUIRE(join());
    int files[SL_TIER_COUNT];
    job->ops->arena_files(job, files);
    for (int i = 0; i < SL_TIER_COUNT; i++) CHECK_EQ(files[i], -1);
    CHECK_STR(job->ops->name, "mpi");
    CHECK(rank >= 0 && rank < size);
}

TEST(together_a_device_without_memory_counts_and_moves_nothing)
{
    REQUIRE(join());
    sl_device *null;
    REQUIRE_OK(sl_null_backend.open(&(sl_device_options){ .threads = 1 }, &null));
    for (int t = 0; t < 2; t++) REQUIRE_OK(sl_null_backend.reserve(null, (sl_tier)t, ARENA_BYTES));
    job->ops->detach(job);
    REQUIRE_OK(job->ops->attach(job, &sl_null_backend, null));
    cut c;
    make_cut(&c, 2, 50 * 1024 + 17);
    sl_comm_part part = f32_part(&c, 256);
    sl_comm_stats before, after;
    sl_device_stats seen;
    job->ops->stats(job, &before);
    for (int kind = SL_GATHER; kind <= SL_REDUCE_SCATTER; kind++) {
        sl_collective collective = { (sl_collective_kind)kind, "collective of a layer", 1, &part };
        REQUIRE_OK(job->ops->start(job, (uint64_t)kind, &collective, true));
        REQUIRE_OK(sl_null_backend.synchronize(null));
    }
    job->ops->stats(job, &after);
    sl_null_backend.stats(null, &seen);
    CHECK_EQ(after.gather_bytes - before.gather_bytes, part.shard.bytes * (uint64_t)(size - 1));
    CHECK_EQ(after.reduce_bytes - before.reduce_bytes, part.whole.bytes - part.shard.bytes);
    CHECK_EQ(seen.observed_peak[SL_TIER_DEVICE], 256 + part.whole.bytes);
    CHECK_EQ(seen.observed_peak[SL_TIER_HOST], part.shard.bytes);
    job->ops->detach(job);
    sl_null_backend.close(null);
    REQUIRE_OK(job->ops->attach(job, &backend, &device));
}

/* The last: what is open is closed, and MPI ends in order. */
TEST(together_the_ranks_leave)
{
    REQUIRE(join());
    REQUIRE_OK(job->ops->barrier(job, "end"));
    job->ops->detach(job);
    job->ops->close(job);
    job = NULL;
    for (int i = 0; i < 2; i++) free(device.arena[i]);
}

/* ---- broken ---- */

/* Waits to be ended by the launcher. */
static void never_return(void)
{
    for (;;) pause();
}

static sluice_status gather_as(uint64_t sequence, const char *name)
{
    static cut c;
    make_cut(&c, 0, 4096);
    static sl_comm_part part;
    part = in_place_part(&c, 4096 * 4);
    sl_collective gather = { SL_GATHER, name, 1, &part };
    SL_TRY(job->ops->start(job, sequence, &gather, false));
    return device_synchronize(&device);
}

TEST(broken_sequence)
{
    if (!join()) return;
    REQUIRE_OK(gather_as(6, "gather of h.2"));
    sluice_status st = gather_as(rank == 1 ? 8 : 7, rank == 1 ? "gather of h.4" : "gather of h.3");
    /* Every further call fails at once and with the same words. */
    char words[SL_MESSAGE_BYTES];
    sl_error_copy(words);
    CHECK_EQ(job->ops->barrier(job, "end"), SLUICE_ERR_RANK);
    CHECK_STR(sluice_error(), words);
    CHECK_EQ(gather_as(9, "gather of h.5"), SLUICE_ERR_RANK);
    if (test_failures == 0) leave_with(st);
}

/* As many bytes in the same cuts: only the forms tell. */
TEST(broken_forms)
{
    if (!join()) return;
    cut c;
    make_cut(&c, 0, 4096);
    sl_comm_part part = f32_part(&c, 0);
    part.unit = 2, part.whole.bytes /= 2;
    part.form = rank == 1 ? SL_FORM_F16 : SL_FORM_BF16;
    sl_collective reduce = { SL_REDUCE_SCATTER, "reduce-scatter of h.3", 1, &part };
    sluice_status st = job->ops->start(job, 7, &reduce, true);
    leave_with(st == SLUICE_OK ? device_synchronize(&device) : st);
}

/* No rank can do this, and each says why. */
TEST(broken_sum)
{
    if (!join()) return;
    cut c;
    make_cut(&c, 0, 4096);
    sl_comm_part part = f32_part(&c, 0);
    part.sum_form = SL_FORM_BF16, part.shard.bytes /= 2;
    sl_collective reduce = { SL_REDUCE_SCATTER, "reduce-scatter of h.3", 1, &part };
    leave_with(job->ops->start(job, 7, &reduce, true));
}

TEST(broken_silence)
{
    if (!join_within(2)) return;
    if (rank == 1) never_return();
    leave_with(gather_as(1, "gather of h.0"));
}

TEST(broken_killed)
{
    if (!join()) return;
    if (rank == 1) raise(SIGKILL);
    leave_with(gather_as(1, "gather of h.0"));
}

TEST(broken_abort)
{
    if (!join()) return;
    if (rank == 1) {
        job->ops->abort(job, "open data.txt: no such file");
        CHECK_EQ(job->ops->barrier(job, "first step"), SLUICE_ERR_RANK);
        CHECK_STR(sluice_error(), "open data.txt: no such file");
        if (test_failures == 0) never_return();
    }
    leave_with(job->ops->barrier(job, "first step"));
}

TEST(broken_control)
{
    if (!join()) return;
    char all[64];
    leave_with(job->ops->exchange(job, rank == 1 ? "losses of step 2" : "losses of step 1", "abc", 3, all));
}

/* A rank that simply leaves is noticed by those that go on. */
TEST(broken_leaving)
{
    if (!join()) return;
    if (rank == 1) {
        job->ops->close(job);
        never_return();
    }
    leave_with(job->ops->barrier(job, "first step"));
}

TEST(broken_joining)
{
    sluice_status st = sluice_world_join(1, &job);
    if (st == SLUICE_OK) fprintf(stderr, "rank %d of %d\n", job->ops->rank(job), job->ops->size(job));
    leave_with(st);
}

/* ---- for people ---- */

TEST(rate)
{
    if (!join()) return;
    cut c;
    int64_t elements = (int64_t)16 << 20;
    make_cut(&c, 0, elements);
    sl_comm_part part = f32_part(&c, 0);
    sl_collective reduce = { SL_REDUCE_SCATTER, "reduce-scatter", 1, &part },
                  gather = { SL_GATHER, "gather", 1, &part };
    const sl_collective *both[] = { &reduce, &gather };
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < 6; i++) {
            REQUIRE_OK(job->ops->barrier(job, "rate"));
            double start = sl_now();
            REQUIRE_OK(job->ops->start(job, (uint64_t)i, both[k], false));
            REQUIRE_OK(device_synchronize(&device));
            if (rank == 0)
                printf("%s of 64 MiB over %d ranks: %.1f ms\n", both[k]->name, size, (sl_now() - start) * 1e3);
        }
    job->ops->close(job);
}
