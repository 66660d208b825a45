/* topology.c: see topology.h. */
#include "core/topology.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

#if defined(SLUICE_HWLOC)
#include <hwloc.h>
#endif

/* ---- sets of CPUs ---- */

void sl_cpu_set_add(sl_cpu_set *s, int cpu)
{
    s->bits[cpu / 64] |= (uint64_t)1 << (cpu % 64);
}

int sl_cpu_set_count(const sl_cpu_set *s)
{
    int n = 0;
    for (size_t i = 0; i < sizeof s->bits / sizeof s->bits[0]; i++) n += __builtin_popcountll(s->bits[i]);
    return n;
}

/* Where the kernel knows of more CPUs than fit, none. */
void sl_cpu_set_allowed(sl_cpu_set *out)
{
    *out = (sl_cpu_set){ { 0 } };
    if (sched_getaffinity(0, sizeof *out, (cpu_set_t *)(void *)out) != 0) *out = (sl_cpu_set){ { 0 } };
}

/* ---- reading ---- */

#if defined(SLUICE_HWLOC)

bool sl_topology_built_in(void)
{
    return true;
}

/* The CPUs of `node` in `usable`. False where one has a number that a set cannot hold. */
static bool read_node(hwloc_obj_t node, hwloc_const_bitmap_t usable, sl_numa_node *out)
{
    int cpu;
    *out = (sl_numa_node){ .number = (int)node->os_index };
    hwloc_bitmap_foreach_begin(cpu, node->cpuset)
    {
        if (!hwloc_bitmap_isset(usable, (unsigned)cpu)) continue;
        if (cpu >= SL_MAX_CPUS) return false;
        sl_cpu_set_add(&out->cpus, cpu);
    }
    hwloc_bitmap_foreach_end();
    return node->os_index < SL_MAX_NODES;
}

static bool read_nodes(hwloc_topology_t topology, hwloc_const_bitmap_t usable, sl_topology *out)
{
    hwloc_obj_t node = NULL;
    while ((node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, node)) != NULL) {
        sl_numa_node read;
        if (out->node_count == SL_MAX_NODES || !read_node(node, usable, &read)) return false;
        if (sl_cpu_set_count(&read.cpus) > 0) out->nodes[out->node_count++] = read;
    }
    return true;
}

/* Two kinds of memory may share CPUs, such as a fast one and a large one: the first of them is the CPUs' own. */
static void drop_second_memories(sl_topology *t)
{
    int kept = 0;
    for (int i = 0; i < t->node_count; i++) {
        bool second = false;
        for (int k = 0; k < kept; k++)
            for (size_t w = 0; w < sizeof t->nodes[k].cpus.bits / sizeof t->nodes[k].cpus.bits[0]; w++)
                second = second || (t->nodes[k].cpus.bits[w] & t->nodes[i].cpus.bits[w]) != 0;
        if (!second) t->nodes[kept++] = t->nodes[i];
    }
    t->node_count = kept;
}

static void read_topology(hwloc_topology_t topology, hwloc_bitmap_t usable, sl_topology *out)
{
    hwloc_const_bitmap_t allowed = hwloc_topology_get_allowed_cpuset(topology);
    if (hwloc_get_cpubind(topology, usable, HWLOC_CPUBIND_THREAD) != 0) hwloc_bitmap_copy(usable, allowed);
    hwloc_bitmap_and(usable, usable, allowed);
    if (!read_nodes(topology, usable, out)) {
        *out = (sl_topology){ .unknown = "more CPUs or nodes than can be handled" };
        return;
    }
    drop_second_memories(out);
    if (out->node_count == 0) out->unknown = "hwloc found no nodes";
}

void sl_topology_read(sl_topology *out)
{
    hwloc_topology_t topology;
    hwloc_bitmap_t usable = hwloc_bitmap_alloc();
    *out = (sl_topology){ .unknown = NULL };
    if (usable == NULL || hwloc_topology_init(&topology) != 0) {
        out->unknown = "hwloc failed";
        hwloc_bitmap_free(usable);
        return;
    }
    if (hwloc_topology_load(topology) == 0)
        read_topology(topology, usable, out);
    else
        out->unknown = "hwloc failed";
    hwloc_topology_destroy(topology);
    hwloc_bitmap_free(usable);
}

#else

bool sl_topology_built_in(void)
{
    return false;
}

void sl_topology_read(sl_topology *out)
{
    *out = (sl_topology){ .unknown = "hwloc not built in" };
}

#endif

/* ---- deciding ---- */

/* Nodes [first, end) of the topology. */
static void bind_memory(const sl_topology *t, int first, int end, sl_binding *out)
{
    for (int i = first; i < end; i++) out->nodes |= (uint64_t)1 << t->nodes[i].number;
}

static void bind_threads(const sl_topology *t, int first, int end, int sharers, sl_binding *out)
{
    out->threads = true;
    for (int i = first; i < end; i++)
        for (size_t w = 0; w < sizeof out->cpus.bits / sizeof out->cpus.bits[0]; w++)
            out->cpus.bits[w] |= t->nodes[i].cpus.bits[w];
    out->cpu_share = sl_cpu_set_count(&out->cpus) / sharers;
    if (out->cpu_share == 0) out->cpu_share = 1;
}

void sl_binding_choose(const sl_topology *t, int rank, int ranks, sl_binding *out)
{
    *out = (sl_binding){ .nodes = 0 };
    if (t->unknown != NULL || t->node_count < 2) return;
    int first = rank * t->node_count / ranks, end = (rank + 1) * t->node_count / ranks, sharers = 1;
    if (ranks >= t->node_count) {
        first = rank % t->node_count;
        end = first + 1;
        sharers = (ranks - first - 1) / t->node_count + 1;
    }
    bind_memory(t, first, end, out);
    if (ranks > 1) bind_threads(t, first, end, sharers, out);
}

/* ---- binding ---- */

bool sl_binding_apply(const sl_binding *b)
{
    sl_cpu_set now;
    if (!b->threads) return false;
    sl_cpu_set_allowed(&now);
    for (size_t i = 0; i < sizeof now.bits / sizeof now.bits[0]; i++) now.bits[i] &= b->cpus.bits[i];
    if (sl_cpu_set_count(&now) == 0) return false;
    return sched_setaffinity(0, sizeof now, (const cpu_set_t *)(const void *)&now) == 0;
}

/* ---- words ---- */

static void list_nodes(uint64_t nodes, char *buf, size_t bytes)
{
    size_t used = 0;
    buf[0] = '\0';
    for (int n = 0; n < SL_MAX_NODES && used < bytes; n++)
        if ((nodes >> n & 1) != 0) used += (size_t)snprintf(buf + used, bytes - used, "%s%d", used > 0 ? "," : "", n);
}

void sl_binding_describe(const sl_topology *t, const sl_binding *b, int rank, char *buf, size_t bytes)
{
    char nodes[64];
    list_nodes(b->nodes, nodes, sizeof nodes);
    if (t->unknown != NULL)
        snprintf(buf, bytes, "not bound (%s)", t->unknown);
    else if (b->threads)
        snprintf(buf, bytes, "rank %d on node%s %s", rank, __builtin_popcountll(b->nodes) > 1 ? "s" : "", nodes);
    else if (b->nodes != 0)
        snprintf(buf, bytes, "%d nodes, arenas interleaved", t->node_count);
    else
        snprintf(buf, bytes, "%d node%s, not bound", t->node_count, t->node_count == 1 ? "" : "s");
}
