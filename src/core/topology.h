/* topology.h: which CPUs and which memory lie together (NUMA nodes), and where a rank should therefore run.
 *
 * Three things apart from each other: reading is hwloc's part, where it is built in; deciding is a pure function of
 * plain data; binding is a system call. A rank is given CPUs out of those its process may use already, never others. */
#ifndef SL_CORE_TOPOLOGY_H
#define SL_CORE_TOPOLOGY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SL_MAX_CPUS  4096
#define SL_MAX_NODES 64

typedef struct sl_cpu_set {
    uint64_t bits[SL_MAX_CPUS / 64];
} sl_cpu_set;

typedef struct sl_numa_node {
    int number; /* the kernel's, below SL_MAX_NODES */
    sl_cpu_set cpus;
} sl_numa_node;

/* As this process may use it: nodes without a CPU for it are not listed. */
typedef struct sl_topology {
    const char *unknown; /* why nothing is known; NULL: it is */
    int node_count;
    sl_numa_node nodes[SL_MAX_NODES]; /* in order of their numbers */
} sl_topology;

typedef struct sl_binding {
    uint64_t nodes; /* bit n: arenas are spread over the kernel's node n; 0: they lie where they are first touched */
    bool threads;   /* run on `cpus`; false: as the process may */
    sl_cpu_set cpus;
    int cpu_share; /* how many of them this rank should use: ranks with the same CPUs share them; 0: not bound */
} sl_binding;

/* Whether hwloc is built in. */
bool sl_topology_built_in(void);
/* Takes some milliseconds. Reads the environment that hwloc does (HWLOC_SYNTHETIC and others). */
void sl_topology_read(sl_topology *out);
/* The CPUs that the calling thread may run on. */
void sl_cpu_set_allowed(sl_cpu_set *out);
/* For `rank` of the `ranks` that share the CPUs of this topology. Several ranks: at least as many as nodes take a node
 * each in turn, fewer take neighbouring nodes. A rank alone: its threads stay as they are, and its arenas are
 * interleaved over the nodes. One node: nothing is bound. */
void sl_binding_choose(const sl_topology *t, int rank, int ranks, sl_binding *out);
/* The calling thread, and those it starts from now on, run on the binding's CPUs, as far as they may already. False
 * where there is nothing to bind, or it was refused: which costs speed alone. */
bool sl_binding_apply(const sl_binding *b);
/* "1 node, not bound", "rank 3 on node 1", "2 nodes, arenas interleaved". `rank` is what people call it. */
void sl_binding_describe(const sl_topology *t, const sl_binding *b, int rank, char *buf, size_t bytes);

void sl_cpu_set_add(sl_cpu_set *s, int cpu);
int sl_cpu_set_count(const sl_cpu_set *s);

#endif
