/* topology_test.c: where ranks are put, on made-up machines and on those that hwloc makes up. */
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/topology.h"
#include "test.h"

/* `nodes` nodes of `cpus` CPUs each, numbered as many systems do: CPU c is on node c % nodes. */
static void make_machine(sl_topology *t, int nodes, int cpus)
{
    *t = (sl_topology){ .node_count = nodes };
    for (int c = 0; c < nodes * cpus; c++) sl_cpu_set_add(&t->nodes[c % nodes].cpus, c);
    for (int n = 0; n < nodes; n++) t->nodes[n].number = n;
}

static bool overlap(const sl_cpu_set *a, const sl_cpu_set *b)
{
    for (size_t i = 0; i < sizeof a->bits / sizeof a->bits[0]; i++)
        if ((a->bits[i] & b->bits[i]) != 0) return true;
    return false;
}

static bool has(const sl_cpu_set *s, int cpu)
{
    return (s->bits[cpu / 64] >> (cpu % 64) & 1) != 0;
}

/* ---- deciding ---- */

TEST(on_one_node_nothing_is_bound)
{
    sl_topology t;
    sl_binding b;
    char text[96];
    make_machine(&t, 1, 8);
    for (int ranks = 1; ranks <= 3; ranks++) {
        sl_binding_choose(&t, ranks - 1, ranks, &b);
        CHECK(b.nodes == 0 && !b.threads && b.cpu_share == 0);
        CHECK(!sl_binding_apply(&b));
    }
    sl_binding_describe(&t, &b, 0, text, sizeof text);
    CHECK_STR(text, "1 node, not bound");
}

TEST(what_is_not_known_is_not_bound_and_says_why)
{
    sl_topology t = { .unknown = "hwloc not built in" };
    sl_binding b;
    char text[96];
    sl_binding_choose(&t, 1, 2, &b);
    CHECK(b.nodes == 0 && !b.threads);
    sl_binding_describe(&t, &b, 1, text, sizeof text);
    CHECK_STR(text, "not bound (hwloc not built in)");
}

TEST(a_rank_alone_spreads_its_arenas_and_keeps_its_threads)
{
    sl_topology t;
    sl_binding b;
    char text[96];
    make_machine(&t, 2, 4);
    t.nodes[1].number = 8; /* as on machines with gaps */
    sl_binding_choose(&t, 0, 1, &b);
    CHECK_EQ(b.nodes, 0x101);
    CHECK(!b.threads && b.cpu_share == 0);
    sl_binding_describe(&t, &b, 0, text, sizeof text);
    CHECK_STR(text, "2 nodes, arenas interleaved");
}

TEST(ranks_take_nodes_in_turn_and_share_their_cpus)
{
    sl_topology t;
    sl_binding b;
    char text[96];
    make_machine(&t, 2, 8);
    static const struct {
        int rank, ranks;
        uint64_t nodes;
        int share;
    } cases[] = { { 0, 2, 1, 8 }, { 1, 2, 2, 8 }, { 0, 3, 1, 4 }, { 1, 3, 2, 8 }, { 2, 3, 1, 4 }, { 3, 4, 2, 4 } };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sl_binding_choose(&t, cases[i].rank, cases[i].ranks, &b);
        CHECK_EQ(b.nodes, cases[i].nodes);
        CHECK(b.threads);
        CHECK_EQ(b.cpu_share, cases[i].share);
        CHECK_EQ(sl_cpu_set_count(&b.cpus), 8);
        for (int c = 0; c < 16; c++) CHECK_EQ(has(&b.cpus, c), (cases[i].nodes >> (c % 2) & 1) != 0);
    }
    sl_binding_choose(&t, 1, 2, &b);
    sl_binding_describe(&t, &b, 5, text, sizeof text);
    CHECK_STR(text, "rank 5 on node 1");
}

TEST(fewer_ranks_than_nodes_take_neighbouring_nodes)
{
    sl_topology t;
    sl_binding b;
    char text[96];
    make_machine(&t, 4, 2);
    sl_binding_choose(&t, 0, 2, &b);
    CHECK_EQ(b.nodes, 3);
    CHECK_EQ(b.cpu_share, 4);
    sl_binding_choose(&t, 1, 2, &b);
    CHECK_EQ(b.nodes, 12);
    sl_binding_describe(&t, &b, 1, text, sizeof text);
    CHECK_STR(text, "rank 1 on nodes 2,3");
}

TEST(all_cpus_have_ranks_and_no_node_is_given_more_threads_than_cpus)
{
    for (int nodes = 2; nodes <= 9; nodes++)
        for (int ranks = 2; ranks <= 21; ranks++) {
            sl_topology t;
            int used[9] = { 0 };
            make_machine(&t, nodes, 6);
            for (int r = 0; r < ranks; r++) {
                sl_binding b;
                sl_binding_choose(&t, r, ranks, &b);
                CHECK(b.threads && b.cpu_share >= 1 && b.cpu_share <= sl_cpu_set_count(&b.cpus));
                for (int n = 0; n < nodes; n++) {
                    CHECK_EQ(overlap(&b.cpus, &t.nodes[n].cpus), (b.nodes >> n & 1) != 0);
                    if ((b.nodes >> n & 1) != 0) used[n] += b.cpu_share / __builtin_popcountll(b.nodes);
                }
            }
            for (int n = 0; n < nodes; n++) CHECK(used[n] >= 1 && (used[n] <= 6 || ranks > 6 * nodes));
        }
}

/* ---- binding ---- */

/* The number of failed checks of `body` in a process of its own, whose affinity is its own too. */
static int in_child(void (*body)(void))
{
    int status = -1;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        test_failures = 0;
        body();
        fflush(NULL);
        _exit(test_failures != 0);
    }
    if (child < 0 || waitpid(child, &status, 0) != child) return -1;
    return status;
}

static int first_cpu(const sl_cpu_set *s)
{
    int cpu = 0;
    while (cpu < SL_MAX_CPUS && !has(s, cpu)) cpu++;
    return cpu;
}

/* Leaves this process one CPU. */
static int keep_one_cpu(void)
{
    sl_cpu_set all, one = { { 0 } };
    sl_cpu_set_allowed(&all);
    int cpu = first_cpu(&all);
    sl_cpu_set_add(&one, cpu);
    CHECK_EQ(sched_setaffinity(0, sizeof one, (const cpu_set_t *)(const void *)&one), 0);
    return cpu;
}

static void bind_wider(void)
{
    int cpu = keep_one_cpu();
    sl_binding b = { .threads = true };
    sl_cpu_set after;
    memset(&b.cpus, 0xff, sizeof b.cpus);
    CHECK(sl_binding_apply(&b));
    sl_cpu_set_allowed(&after);
    CHECK(has(&after, cpu));
    CHECK_EQ(sl_cpu_set_count(&after), 1);
}

static void bind_elsewhere(void)
{
    int cpu = keep_one_cpu();
    sl_binding b = { .threads = true };
    sl_cpu_set after;
    sl_cpu_set_add(&b.cpus, cpu + 1);
    CHECK(!sl_binding_apply(&b));
    sl_cpu_set_allowed(&after);
    CHECK(has(&after, cpu));
    CHECK_EQ(sl_cpu_set_count(&after), 1);
}

static void bind_narrower(void)
{
    sl_binding b = { .threads = true };
    sl_cpu_set all, after;
    sl_cpu_set_allowed(&all);
    sl_cpu_set_add(&b.cpus, first_cpu(&all));
    CHECK(sl_binding_apply(&b));
    sl_cpu_set_allowed(&after);
    CHECK(has(&after, first_cpu(&all)));
    CHECK_EQ(sl_cpu_set_count(&after), 1);
}

TEST(binding_never_widens_an_affinity_mask)
{
    CHECK_EQ(in_child(bind_narrower), 0);
    CHECK_EQ(in_child(bind_wider), 0);
    CHECK_EQ(in_child(bind_elsewhere), 0);
}

/* ---- reading ---- */

#define NO_HWLOC "hwloc is not built in"

static void read_synthetic(const char *description, sl_topology *t)
{
    setenv("HWLOC_SYNTHETIC", description, 1);
    sl_topology_read(t);
    unsetenv("HWLOC_SYNTHETIC");
}

TEST(hwloc_tells_the_nodes_and_their_cpus)
{
    sl_topology t;
    sl_binding b;
    if (!sl_topology_built_in()) SKIP(hwloc, NO_HWLOC);
    read_synthetic("NUMANode:2 Core:4 PU:2", &t);
    CHECK(t.unknown == NULL);
    CHECK_EQ(t.node_count, 2);
    for (int n = 0; n < 2; n++) {
        CHECK_EQ(t.nodes[n].number, n);
        CHECK_EQ(sl_cpu_set_count(&t.nodes[n].cpus), 8);
        CHECK(has(&t.nodes[n].cpus, 8 * n) && has(&t.nodes[n].cpus, 8 * n + 7));
    }
    sl_binding_choose(&t, 3, 4, &b);
    CHECK_EQ(b.nodes, 2);
    CHECK_EQ(b.cpu_share, 4);
}

TEST(hwloc_tells_of_many_nodes_and_of_one)
{
    sl_topology t;
    if (!sl_topology_built_in()) SKIP(hwloc, NO_HWLOC);
    read_synthetic("Package:4 NUMANode:2 Core:64 PU:2", &t);
    CHECK(t.unknown == NULL);
    CHECK_EQ(t.node_count, 8);
    CHECK_EQ(sl_cpu_set_count(&t.nodes[7].cpus), 128);
    read_synthetic("Core:3 PU:1", &t);
    CHECK_EQ(t.node_count, 1);
    CHECK_EQ(sl_cpu_set_count(&t.nodes[0].cpus), 3);
}

TEST(a_second_kind_of_memory_is_not_a_node_to_run_on)
{
    sl_topology t;
    if (!sl_topology_built_in()) SKIP(hwloc, NO_HWLOC);
    read_synthetic("Package:2 [NUMANode] [NUMANode] Core:4 PU:1", &t);
    CHECK(t.unknown == NULL);
    CHECK_EQ(t.node_count, 2);
    CHECK(!overlap(&t.nodes[0].cpus, &t.nodes[1].cpus));
    CHECK_EQ(sl_cpu_set_count(&t.nodes[1].cpus), 4);
}

TEST(a_machine_with_too_many_cpus_is_left_alone)
{
    sl_topology t;
    sl_binding b;
    if (!sl_topology_built_in()) SKIP(hwloc, NO_HWLOC);
    read_synthetic("NUMANode:2 Core:2049 PU:1", &t);
    CHECK(t.unknown != NULL);
    CHECK_EQ(t.node_count, 0);
    sl_binding_choose(&t, 0, 2, &b);
    CHECK(b.nodes == 0 && !b.threads);
}

static void read_with_one_cpu(void)
{
    int cpu = keep_one_cpu();
    sl_topology t;
    sl_topology_read(&t);
    CHECK(t.unknown == NULL);
    CHECK_EQ(t.node_count, 1);
    CHECK(has(&t.nodes[0].cpus, cpu));
    CHECK_EQ(sl_cpu_set_count(&t.nodes[0].cpus), 1);
}

TEST(only_cpus_of_the_affinity_mask_count)
{
    if (!sl_topology_built_in()) SKIP(hwloc, NO_HWLOC);
    CHECK_EQ(in_child(read_with_one_cpu), 0);
}

TEST(without_hwloc_the_topology_says_so)
{
    sl_topology t;
    sl_topology_read(&t);
    if (sl_topology_built_in())
        CHECK(t.unknown == NULL && t.node_count >= 1);
    else
        CHECK_STR(t.unknown, "hwloc not built in");
}
