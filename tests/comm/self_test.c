/* self_test.c: a job of one rank. */
#include "comm/comm.h"
#include "test.h"

TEST(one_rank_is_rank_0_of_1_and_talks_to_itself)
{
    sl_comm *c;
    sl_comm_stats stats;
    int files[SL_TIER_COUNT] = { 5, 5 };
    char data[] = "abc", all[4] = { 0 };
    size_t length = 4;
    REQUIRE_OK(sl_comm_self_open(&c));
    CHECK_EQ(c->ops->rank(c), 0);
    CHECK_EQ(c->ops->size(c), 1);
    REQUIRE_OK(c->ops->barrier(c, "start"));
    REQUIRE_OK(c->ops->exchange(c, "one", data, 4, all));
    CHECK_STR(all, "abc");
    memset(all, 0, sizeof all);
    REQUIRE_OK(c->ops->collect(c, "two", 0, data, &length, all));
    CHECK_STR(all, "abc");
    REQUIRE_OK(c->ops->broadcast(c, "three", 0, data, 4));
    CHECK_STR(data, "abc");
    c->ops->arena_files(c, files);
    for (int t = 0; t < SL_TIER_COUNT; t++) CHECK_EQ(files[t], -1);
    REQUIRE_OK(c->ops->attach(c, &sl_null_backend, NULL));
    c->ops->abort(c, "nobody listens");
    c->ops->detach(c);
    c->ops->stats(c, &stats);
    CHECK_EQ(stats.gather_bytes + stats.reduce_bytes + stats.norm_bytes + stats.collectives, 0);
    c->ops->close(c);
}

TEST(a_collective_in_a_job_of_one_rank_is_named_with_its_number)
{
    sl_comm *c;
    sl_collective gather = { SL_GATHER, "gather of h.1", 0, NULL };
    REQUIRE_OK(sl_comm_self_open(&c));
    CHECK_EQ(c->ops->start(c, 7, &gather, false), SLUICE_ERR_RANK);
    CHECK_CONTAINS(sluice_error(), "gather of h.1 (collective 7)");
    c->ops->close(c);
}

TEST(a_root_outside_a_job_of_one_rank_is_refused)
{
    sl_comm *c;
    char data[1] = { 0 };
    REQUIRE_OK(sl_comm_self_open(&c));
    CHECK_EQ(c->ops->broadcast(c, "weights", 1, data, 1), SLUICE_ERR_USAGE);
    CHECK_CONTAINS(sluice_error(), "\"weights\": rank 1");
    c->ops->close(c);
}
