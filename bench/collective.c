/* collective.c: how fast local ranks gather and reduce, beside copying the same bytes within one process.
 *
 *     bench_collective [MiB]
 *
 * Each line: ranks, what, the best of several runs, and GB/s: the bytes of the whole layer (64 MiB in f32 unless given,
 * half of it in 16 bits) by the seconds from the first rank's start to the last one's end. The memcpy is rank 0's
 * alone, between its two arenas. */
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

static sluice_status open_rank(rank *k, sluice_world *world, uint64_t bytes)
{
    int n = sluice_world_size(world);
    int64_t elements = (int64_t)(bytes / sizeof(float)), cuts = elements / SL_CUT_ELEMENTS;
    sl_device_options options = { .threads = 1, .isa = sl_isa_best() };
    *k = (rank){ .comm = world, .bytes = bytes };
    for (int r = 0; r <= n; r++) k->bounds[r] = r == n ? elements : cuts * r / n * SL_CUT_ELEMENTS;
    k->shards = (sl_shards){ n, elements, 0, 0, k->bounds };
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

typedef struct act {
    const char *name;
    sl_collective_kind kind;
    sl_form form, sum_form;
    bool first;
} act;

static const act acts[] = {
    { "gather", SL_GATHER, SL_FORM_F32, SL_FORM_F32, false },
    { "reduce-scatter, first", SL_REDUCE_SCATTER, SL_FORM_F32, SL_FORM_F32, true },
    { "reduce-scatter, adding", SL_REDUCE_SCATTER, SL_FORM_F32, SL_FORM_F32, false },
    { "bf16 gather", SL_GATHER, SL_FORM_BF16, SL_FORM_BF16, false },
    { "bf16 reduce to bf16", SL_REDUCE_SCATTER, SL_FORM_BF16, SL_FORM_BF16, true },
    { "bf16 reduce to f32, first", SL_REDUCE_SCATTER, SL_FORM_BF16, SL_FORM_F32, true },
    { "bf16 reduce to f32, adding", SL_REDUCE_SCATTER, SL_FORM_BF16, SL_FORM_F32, false },
    { "f16 reduce to f16", SL_REDUCE_SCATTER, SL_FORM_F16, SL_FORM_F16, true },
    { "f16 reduce to f32, adding", SL_REDUCE_SCATTER, SL_FORM_F16, SL_FORM_F32, false },
};
enum { ACTS = sizeof acts / sizeof acts[0] };

/* The whole on the device tier, the shard on the host tier. */
static uint64_t lay_out(rank *k, const act *a)
{
    sl_comm_part *p = &k->part;
    *p = (sl_comm_part){ .shards = &k->shards, .per = 1, .unit = sl_comm_form_bytes(a->form) };
    p->form = a->form, p->sum_form = a->sum_form;
    p->whole = (sl_span){ SL_TIER_DEVICE, 0, (uint64_t)k->shards.elements * p->unit };
    p->shard = (sl_span){ SL_TIER_HOST, 0, sl_comm_shard_bytes(a->kind, p, sluice_world_rank(k->comm)) };
    return p->whole.bytes;
}

static sluice_status run_collective(rank *k, const act *a)
{
    sl_collective what = { a->kind, "bench", 1, &k->part };
    SL_TRY(k->comm->ops->start(k->comm, k->sequence++, &what, a->first));
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

/* An act, or the memcpy for NULL. */
static sluice_status measure(rank *k, const act *a)
{
    double best = 1e9;
    uint64_t bytes = a != NULL ? lay_out(k, a) : k->bytes;
    for (int i = 0; i < RUNS; i++) {
        SL_TRY(k->comm->ops->barrier(k->comm, "begin"));
        double begin = sl_now();
        SL_TRY(a != NULL ? run_collective(k, a) : run_memcpy(k));
        SL_TRY(k->comm->ops->barrier(k->comm, "end"));
        if (sl_now() - begin < best) best = sl_now() - begin;
    }
    if (sluice_world_rank(k->comm) == 0)
        printf("%5d  %-26s %9.3f ms %8.2f GB/s\n", sluice_world_size(k->comm), a != NULL ? a->name : "memcpy",
               best * 1e3, (double)bytes / best * 1e-9);
    return SLUICE_OK;
}

static sluice_status body(void *user, sluice_world *world)
{
    rank k;
    SL_TRY(open_rank(&k, world, *(const uint64_t *)user));
    SL_TRY(measure(&k, NULL));
    for (int a = 0; a < ACTS; a++) SL_TRY(measure(&k, &acts[a]));
    close_rank(&k);
    return SLUICE_OK;
}

int main(int argc, char **argv)
{
    uint64_t bytes = (argc > 1 ? strtoull(argv[1], NULL, 10) : 64) << 20;
    printf("%llu MiB, %d CPUs\nranks  what                             best        rate\n",
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
