/* norm_nodes_test.c: the nodes that a run of norm leaves makes. */
#include "core/norm_nodes.h"
#include "core/rng.h"
#include "test.h"

/* They follow each other without a gap, each lies where its level puts it, and none could be part of a larger one. */
static void check_nodes(int64_t first, int64_t end)
{
    int64_t count = sl_norm_node_count(first, end), at = first;
    for (int64_t i = 0; i < count; i++) {
        uint64_t place = sl_norm_node_place(first, end, i);
        int level = sl_norm_place_level(place);
        int64_t size = (int64_t)1 << level, parent = at / (2 * size) * (2 * size);
        REQUIRE(sl_norm_place_leaf(place) == at && level <= SL_NORM_CHUNK_LEVEL && at % size == 0);
        CHECK_THAT(level == SL_NORM_CHUNK_LEVEL || parent < first || parent + 2 * size > end,
                   "leaves %lld to %lld: the node at %lld of level %d is half of another", (long long)first,
                   (long long)end, (long long)at, level);
        at += size;
    }
    CHECK_EQ(at, end > first ? end : first);
    CHECK(count <= (end - first) / SL_NORM_CHUNK + 2 * SL_NORM_CHUNK_LEVEL);
}

TEST(a_run_of_leaves_is_few_nodes_of_the_tree)
{
    static const int64_t firsts[] = { 0, 1, 4095, 4096, 4097, 8191, INT64_C(1) << 40, (INT64_C(1) << 50) - 3 };
    sl_rng r = sl_rng_stream(5, SL_RNG_DATA, 0, 0, 0);
    for (size_t i = 0; i < sizeof firsts / sizeof firsts[0]; i++)
        for (int64_t n = 0; n < 70; n++) {
            check_nodes(firsts[i], firsts[i] + n);
            check_nodes(firsts[i], firsts[i] + 4096 * (n % 5) + n);
        }
    for (uint64_t k = 0; k < 2000; k += 2) {
        int64_t first = (int64_t)sl_rng_below(&r, k, 1000000);
        check_nodes(first, first + (int64_t)sl_rng_below(&r, k + 1, 50000));
    }
}
