/* control_test.c: what control calls among local ranks bring, at every size. */
#include <sys/mman.h>

#include "comm/comm.h"
#include "comm/segment.h"
#include "test.h"

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

static unsigned char byte_of(int rank, size_t i)
{
    return (unsigned char)(i * 37 + i / 253 + (size_t)rank * 101);
}

static void fill(unsigned char *to, int rank, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) to[i] = byte_of(rank, i);
}

static bool holds(const unsigned char *got, int rank, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (got[i] != byte_of(rank, i)) return false;
    return true;
}

static const size_t sizes[] = { 0, 1, 8, SL_LOCAL_STAGING - 1, SL_LOCAL_STAGING, 2 * SL_LOCAL_STAGING + 13 };
enum { SIZES = sizeof sizes / sizeof sizes[0], MAX_RANKS = 4 };

static sluice_status exchange_sizes(void *user, sluice_world *w)
{
    int rank = sluice_world_rank(w), ranks = sluice_world_size(w);
    unsigned char *mine = malloc(sizes[SIZES - 1]), *all = malloc(MAX_RANKS * sizes[SIZES - 1]);
    (void)user;
    for (int s = 0; s < SIZES; s++) {
        fill(mine, rank, sizes[s]);
        memset(all, 0, (size_t)ranks * sizes[s]);
        SL_TRY(w->ops->exchange(w, "everything", mine, sizes[s], all));
        for (int r = 0; r < ranks; r++) CHECK(holds(all + (size_t)r * sizes[s], r, sizes[s]));
    }
    free(mine);
    free(all);
    return verdict();
}

TEST(an_exchange_of_any_size_brings_all_to_all)
{
    for (int ranks = 1; ranks <= MAX_RANKS; ranks++) REQUIRE_OK(launch(ranks, exchange_sizes, NULL));
}

static sluice_status broadcast_sizes(void *user, sluice_world *w)
{
    unsigned char *data = malloc(sizes[SIZES - 1]);
    (void)user;
    for (int s = 0; s < SIZES; s++)
        for (int root = 0; root < sluice_world_size(w); root++) {
            fill(data, sluice_world_rank(w), sizes[s]);
            SL_TRY(w->ops->broadcast(w, "weights", root, data, sizes[s]));
            CHECK(holds(data, root, sizes[s]));
        }
    free(data);
    return verdict();
}

TEST(a_broadcast_of_any_size_brings_the_roots_bytes_to_all)
{
    for (int ranks = 1; ranks <= MAX_RANKS; ranks++) REQUIRE_OK(launch(ranks, broadcast_sizes, NULL));
}

/* Lengths differ, one is 0, one needs several rounds; only the root has room. */
static sluice_status collect_uneven(void *user, sluice_world *w)
{
    const size_t lengths[MAX_RANKS] = { 5, 0, 2 * SL_LOCAL_STAGING + 13, 1000 };
    int rank = sluice_world_rank(w), ranks = sluice_world_size(w);
    unsigned char *mine = lengths[rank] > 0 ? malloc(lengths[rank]) : NULL, *all = malloc(3 * SL_LOCAL_STAGING);
    (void)user;
    fill(mine, rank, lengths[rank]);
    for (int root = 0; root < ranks; root++) {
        const unsigned char *at = all;
        SL_TRY(w->ops->collect(w, "shards", root, mine, lengths, rank == root ? all : NULL));
        for (int r = 0; r < ranks && rank == root; at += lengths[r], r++) CHECK(holds(at, r, lengths[r]));
    }
    free(mine);
    free(all);
    return verdict();
}

TEST(a_collect_puts_uneven_pieces_one_after_the_other_at_the_root)
{
    for (int ranks = 1; ranks <= MAX_RANKS; ranks++) REQUIRE_OK(launch(ranks, collect_uneven, NULL));
}

/* Each rank's counter must be seen by all after a barrier, and no later one before the next. */
static sluice_status count_barriers(void *user, sluice_world *w)
{
    _Atomic int *counter = user;
    int ranks = sluice_world_size(w);
    for (int i = 0; i < 500; i++) {
        atomic_fetch_add(counter, 1);
        SL_TRY(w->ops->barrier(w, "counted"));
        CHECK_EQ(atomic_load(counter), (i + 1) * ranks);
        SL_TRY(w->ops->barrier(w, "looked"));
    }
    return verdict();
}

TEST(nobody_passes_a_barrier_before_all_arrived)
{
    for (int ranks = 1; ranks <= MAX_RANKS; ranks++) {
        void *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        REQUIRE(shared != MAP_FAILED);
        sluice_status st = launch(ranks, count_barriers, shared);
        munmap(shared, 4096);
        REQUIRE_OK(st);
    }
}
