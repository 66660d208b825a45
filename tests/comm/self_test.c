/* self_test.c: a job of one rank. */
#include "comm/comm.h"
#include "test.h"

TEST(one_rank_is_rank_0_of_1_and_a_barrier_passes)
{
    sl_comm *c;
    sl_comm_stats stats;
    REQUIRE_OK(sl_comm_self_open(&c));
    CHECK_EQ(c->ops->rank(c), 0);
    CHECK_EQ(c->ops->size(c), 1);
    REQUIRE_OK(c->ops->barrier(c, 1));
    c->ops->stats(c, &stats);
    CHECK_EQ(stats.gather_bytes + stats.reduce_bytes, 0);
    c->ops->close(c);
}

TEST(a_collective_in_a_job_of_one_rank_is_named_with_its_number)
{
    sl_comm *c;
    sl_span span = { SL_TIER_DEVICE, 0, 4 };
    REQUIRE_OK(sl_comm_self_open(&c));
    CHECK_EQ(c->ops->gather(c, 7, NULL, span, span), SLUICE_ERR_RANK);
    CHECK_CONTAINS(sluice_error(), "gather (collective 7)");
    CHECK_EQ(c->ops->reduce_scatter(c, 8, NULL, span, span), SLUICE_ERR_RANK);
    CHECK_CONTAINS(sluice_error(), "reduce-scatter (collective 8)");
    CHECK_EQ(c->ops->all_reduce(c, 9, NULL, span), SLUICE_ERR_RANK);
    CHECK_CONTAINS(sluice_error(), "all-reduce (collective 9)");
    c->ops->close(c);
}
