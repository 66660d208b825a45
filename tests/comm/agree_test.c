/* agree_test.c: ranks that end differently return the same status and the same message. */
#include "comm/agree.h"
#include "core/alloc.h"
#include "test.h"

enum { RANKS = 3 };

/* What each rank brings, and what all must get. */
typedef struct agree_case {
    sluice_status status[RANKS];
    const char *message[RANKS];
    sluice_status expected;
    const char *expected_message;
} agree_case;

static const agree_case cases[] = {
    { { SLUICE_OK, SLUICE_OK, SLUICE_OK }, { NULL }, SLUICE_OK, NULL },
    { { SLUICE_OK, SLUICE_ERR_IO, SLUICE_OK },
      { NULL, "the disk is full" },
      SLUICE_ERR_IO,
      "on rank 1: the disk is full" },
    { { SLUICE_OK, SLUICE_ERR_INPUT, SLUICE_ERR_IO },
      { NULL, "line 3 is wrong", "the disk is full" },
      SLUICE_ERR_INPUT,
      "on rank 1: line 3 is wrong" },
    { { SLUICE_ERR_USAGE, SLUICE_ERR_USAGE, SLUICE_ERR_USAGE },
      { "no such key", "no such key", "no such key" },
      SLUICE_ERR_USAGE,
      "no such key" },
    { { SLUICE_ERR_USAGE, SLUICE_ERR_USAGE, SLUICE_OK },
      { "no such key", "no such key" },
      SLUICE_ERR_USAGE,
      "on rank 0: no such key" },
    { { SLUICE_ERR_USAGE, SLUICE_ERR_IO, SLUICE_ERR_USAGE },
      { "no such key", "no such key", "no such key" },
      SLUICE_ERR_USAGE,
      "on rank 0: no such key" },
};
enum { CASES = sizeof cases / sizeof cases[0] };

static sluice_status agree_on_cases(void *user, sluice_world *w)
{
    int rank = sluice_world_rank(w);
    (void)user;
    for (int i = 0; i < CASES; i++) {
        const agree_case *c = &cases[i];
        sl_agreement all;
        sluice_status mine = c->status[rank];
        if (mine != SLUICE_OK) mine = sl_fail(mine, "%s", c->message[rank]);
        sl_alloc_fail_nth(1, 1); /* agreeing must not need memory */
        sluice_status st = sl_agree_in_part(w, "case", mine, true, &all);
        sl_alloc_fail_nth(0, 0);
        CHECK_EQ(st, c->expected);
        if (c->expected != SLUICE_OK) CHECK_STR(sluice_error(), c->expected_message);
        CHECK_EQ(all.shared, c->expected != SLUICE_OK);
        CHECK_EQ(all.done, c->expected == SLUICE_OK);
    }
    return test_failures == 0 ? SLUICE_OK : sl_fail(SLUICE_ERR_FAILED, "checks failed in a rank");
}

static sluice_status launch(sluice_status (*body)(void *user, sluice_world *world))
{
    sluice_launch_options o;
    sluice_launch_options_init(&o);
    o.ranks = RANKS;
    o.timeout_seconds = 30;
    return sluice_launch(&o, body, NULL);
}

TEST(ranks_agree_on_the_failure_of_the_lowest_without_taking_memory)
{
    REQUIRE_OK(launch(agree_on_cases));
}

static sluice_status finish_one_after_the_other(void *user, sluice_world *w)
{
    int rank = sluice_world_rank(w);
    (void)user;
    for (int round = 0; round < RANKS; round++) {
        sl_agreement all;
        SL_TRY(sl_agree_in_part(w, "round", SLUICE_OK, rank <= round, &all));
        if (all.done != (round == RANKS - 1) || all.shared) return sl_fail(SLUICE_ERR_FAILED, "round %d", round);
    }
    return SLUICE_OK;
}

TEST(ranks_are_done_when_the_last_of_them_is)
{
    REQUIRE_OK(launch(finish_one_after_the_other));
}

TEST(a_rank_alone_keeps_its_status_and_message)
{
    sl_agreement all;
    CHECK_EQ(sl_agree(NULL, "work", SLUICE_OK), SLUICE_OK);
    CHECK_EQ(sl_agree_in_part(NULL, "work", sl_fail(SLUICE_ERR_IO, "the disk is full"), true, &all), SLUICE_ERR_IO);
    CHECK_STR(sluice_error(), "the disk is full");
    CHECK(all.done && !all.shared);
    CHECK(!sl_has_peers(NULL));
}

/* ---- many ranks ---- */

static int aborts;

static int many(const sl_comm *c)
{
    (void)c;
    return 300;
}

static sluice_status echo(sl_comm *c, const char *what, const void *mine, size_t bytes, void *all)
{
    (void)what;
    for (int r = 0; r < many(c); r++) memcpy((char *)all + (size_t)r * bytes, mine, bytes);
    return SLUICE_OK;
}

static sluice_status lost(sl_comm *c, const char *what, const void *mine, size_t bytes, void *all)
{
    (void)c, (void)what, (void)mine, (void)bytes, (void)all;
    return sl_fail(SLUICE_ERR_RANK, "rank 7 is gone");
}

static void count_abort(sl_comm *c, const char *reason)
{
    (void)c;
    CHECK_CONTAINS(reason, "outcomes of the ranks");
    aborts++;
}

TEST(of_many_ranks_one_without_memory_ends_the_job)
{
    const sl_comm_ops ops = { .size = many, .exchange = echo, .abort = count_abort };
    sl_comm comm = { &ops };
    aborts = 0;
    CHECK_EQ(sl_agree(&comm, "work", SLUICE_OK), SLUICE_OK);
    sl_alloc_fail_nth(1, 1);
    CHECK_EQ(sl_agree(&comm, "work", SLUICE_OK), SLUICE_ERR_NO_MEMORY);
    sl_alloc_fail_nth(0, 0);
    CHECK_EQ(aborts, 1);
}

TEST(a_failure_of_its_own_comes_before_that_of_the_exchange)
{
    const sl_comm_ops ops = { .size = many, .exchange = lost, .abort = count_abort };
    sl_comm comm = { &ops };
    sl_agreement all;
    CHECK_EQ(sl_agree(&comm, "work", SLUICE_OK), SLUICE_ERR_RANK);
    CHECK_STR(sluice_error(), "rank 7 is gone");
    CHECK_EQ(sl_agree_in_part(&comm, "work", sl_fail(SLUICE_ERR_IO, "the disk is full"), true, &all), SLUICE_ERR_IO);
    CHECK_STR(sluice_error(), "the disk is full");
    CHECK(!all.shared && !all.done);
}
