/* collective.c: how fast local ranks gather and reduce, beside copying the same bytes within one process.
 *
 *     bench_collective [MiB]
 *
 * Each line: ranks, what, the best of several runs, and GB/s: the bytes of the whole layer (64 MiB unless given) by the
 * seconds from the first rank's start to the last one's end. The memcpy is rank 0's alone, between its two arenas. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/comm.h"
#include "core/bytes.h"
#include "core/thread.h"

enum { RUNS = 12, MAX_RANKS = 4 };

typedef struct rank {
    sl_comm *comm;
    sl_device *device;
    int64_t bounds[MAX_RANKS + 1];
    sl_shards shards;
    sl_comm_part part;
    uint64_t sequence, bytes;
} rank;

static const sl_backend *const backend = &sl_cpu_backend;

/* The whole on the device tier, the shard on the host tier. */
static sluice_status open_rank(rank *k, sluice_world *world, uint64_t bytes)
{
    int n = sluice_world_size(world), me = sluice_world_rank(world);
    int64_t elements = (int64_t)(bytes / sizeof(float)), cuts = elements / SL_CUT_ELEMENTS;
    sl_device_options options = { .threads = 1, .isa = sl_isa_best() };
    *k = (rank){ .comm = world, .bytes = bytes };
    for (int r = 0; r <= n; r++) k->bounds[r] = r == n ? elements : cuts * r / n * SL_CUT_ELEMENTS;
    k->shards = (sl_shards){ n, elements, 0, 0, k->bounds };
    k->part = (sl_comm_part){ .shards = &k->shards, .per = 1, .unit = sizeof(float) };
    k->part.whole = (sl_span){ SL_TIER_DEVICE, 0, bytes };
    k->part.shard = (sl_span){ SL_TIER_HOST, 0, (uint64_t)(k->bounds[me + 1] - k->bounds[me]) * sizeof(float) };
    world->ops->arena_files(world, options.arena_files);
    SL_TRY(backend->open(&options, &k->device));
    SL_TRY(backend->reserve(k->device, SL_TIER_DEVICE, bytes));
    SL_TRY(backend->reserve(k->device, SL_TIER_HOST, bytes));
    return world->ops->attach(world, backend, k->device);
}

static void close_rank(rank *k)
{
    k->comm->ops->detach(k->comm);
    backend->close(k->device);
}

static sluice_status run_collective(rank *k, sl_collective_kind kind, bool first)
{
    sl_collective what = { kind, "bench", 1, &k->part };
    SL_TRY(k->comm->ops->start(k->comm, k->sequence++, &what, first));
    return backend->synchronize(k->device);
}

static sluice_status run_memcpy(rank *k)
{
    void *to, *from;
    if (sluice_world_rank(k->comm) != 0) return SLUICE_OK;
    SL_TRY(backend->resolve(k->device, "bench", (sl_span){ SL_TIER_HOST, 0, k->bytes }, &to));
    SL_TRY(backend->resolve(k->device, "bench", (sl_span){ SL_TIER_DEVICE, 0, k->bytes }, &from));
    memcpy(to, from, k->bytes);
    return SLUICE_OK;
}

typedef enum { MEMCPY, GATHER, REDUCE, REDUCE_ADD, ACTS } act;
static const char *const act_names[ACTS] = { "memcpy", "gather", "reduce-scatter, first", "reduce-scatter, adding" };

static sluice_status perform(rank *k, act a)
{
    if (a == MEMCPY) return run_memcpy(k);
    return run_collective(k, a == GATHER ? SL_GATHER : SL_REDUCE_SCATTER, a == REDUCE);
}

static sluice_status measure(rank *k, act a)
{
    double best = 1e9;
    for (int i = 0; i < RUNS; i++) {
        SL_TRY(k->comm->ops->barrier(k->comm, "begin"));
        double begin = sl_now();
        SL_TRY(perform(k, a));
        SL_TRY(k->comm->ops->barrier(k->comm, "end"));
        if (sl_now() - begin < best) best = sl_now() - begin;
    }
    if (sluice_world_rank(k->comm) == 0)
        printf("%5d  %-24s %9.3f ms %8.2f GB/s\n", sluice_world_size(k->comm), act_names[a], best * 1e3,
               (double)k->bytes / best * 1e-9);
    return SLUICE_OK;
}

static sluice_status body(void *user, sluice_world *world)
{
    rank k;
    SL_TRY(open_rank(&k, world, *(const uint64_t *)user));
    for (int a = 0; a < ACTS; a++) SL_TRY(measure(&k, (act)a));
    close_rank(&k);
    return SLUICE_OK;
}

int main(int argc, char **argv)
{
    uint64_t bytes = (argc > 1 ? strtoull(argv[1], NULL, 10) : 64) << 20;
    printf("%llu MiB, %d CPUs\nranks  what                           best        rate\n",
           (unsigned long long)(bytes >> 20), sl_cpu_count());
    for (int ranks = 2; ranks <= MAX_RANKS; ranks += 2) {
        sluice_launch_options o;
        sluice_launch_options_init(&o);
        o.ranks = ranks;
        if (sluice_launch(&o, body, &bytes) == SLUICE_OK) continue;
        fprintf(stderr, "%s\n", sluice_error());
        return 1;
    }
    return 0;
}
