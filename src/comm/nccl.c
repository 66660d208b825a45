/* nccl.c: the table of the communicator, attaching a GPU to it, and queueing. See nccl_comm.h. */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "comm/nccl_world.h"
#include "comm/sums.h"
#include "core/alloc.h"

static sl_nccl *nccl_of(const sl_comm *c)
{
    return (sl_nccl *)(uintptr_t)c;
}

/* ---- what is the base's ---- */

static int nccl_rank(const sl_comm *c)
{
    return nccl_of(c)->rank;
}

static int nccl_size(const sl_comm *c)
{
    return nccl_of(c)->ranks;
}

/* Ranks do not read each other's memory. */
static void nccl_arena_files(sl_comm *c, int files[SL_TIER_COUNT])
{
    (void)c;
    for (int t = 0; t < SL_TIER_COUNT; t++) files[t] = -1;
}

static sluice_status nccl_exchange(sl_comm *c, const char *what, const void *mine, size_t bytes, void *all)
{
    sl_comm *base = nccl_of(c)->base;
    return base->ops->exchange(base, what, mine, bytes, all);
}

static sluice_status nccl_broadcast(sl_comm *c, const char *what, int root, void *data, size_t bytes)
{
    sl_comm *base = nccl_of(c)->base;
    return base->ops->broadcast(base, what, root, data, bytes);
}

static sluice_status nccl_collect(sl_comm *c, const char *what, int root, const void *mine, const size_t *lengths,
                                  void *all)
{
    sl_comm *base = nccl_of(c)->base;
    return base->ops->collect(base, what, root, mine, lengths, all);
}

static sluice_status nccl_barrier(sl_comm *c, const char *what)
{
    sl_comm *base = nccl_of(c)->base;
    return base->ops->barrier(base, what);
}

static void nccl_abort(sl_comm *c, const char *message)
{
    sl_comm *base = nccl_of(c)->base;
    base->ops->abort(base, message);
}

static double nccl_timeout(const sl_comm *c)
{
    return nccl_of(c)->timeout;
}

static sluice_status nccl_check(sl_comm *c)
{
    sl_comm *base = nccl_of(c)->base;
    return base->ops->check(base);
}

static sluice_status nccl_meet(sl_comm *c, uint64_t sequence, const char *name, uint64_t bytes)
{
    sl_nccl *n = nccl_of(c);
    pthread_mutex_lock(&n->meeting);
    sluice_status st = n->base->ops->meet(n->base, sequence, name, bytes);
    pthread_mutex_unlock(&n->meeting);
    return st;
}

static void nccl_stats(const sl_comm *c, sl_comm_stats *out)
{
    sl_nccl *n = nccl_of(c);
    *out = (sl_comm_stats){ .gather_bytes = atomic_load(&n->sent[SL_GATHER]),
                            .reduce_bytes = atomic_load(&n->sent[SL_REDUCE_SCATTER]),
                            .norm_bytes = atomic_load(&n->sent[SL_GATHER_NORM]),
                            .collectives = atomic_load(&n->collective_count) };
}

/* ---- attaching ---- */

/* Politely where all is well: the others leave as well. */
static void close_handle(sl_nccl *c)
{
    bool well = !atomic_load(&c->failed) && c->base->ops->check(c->base) == SLUICE_OK &&
                atomic_load(c->lane.marks[SL_LANE_FINISHED]) == atomic_load(&c->queued);
    if (c->handle != NULL && well && sl_nccl_settle(c, c->api.finalize(c->handle), "leaving NCCL") == SLUICE_OK)
        (void)c->api.destroy(c->handle);
    else if (c->handle != NULL)
        (void)c->api.abort(c->handle);
    c->handle = NULL;
}

static void nccl_detach(sl_comm *base)
{
    sl_nccl *c = nccl_of(base);
    if (c->device == NULL) return;
    sl_nccl_unwatch(c);
    close_handle(c);
    c->ops->close(c->device, &c->lane);
    sl_free(c->walks);
    c->walks = NULL;
    c->device = NULL;
}

/* Of every other rank one slot. */
static sluice_status open_lane(sl_nccl *c)
{
    uint64_t bytes = c->options.staging_bytes > 0 ? c->options.staging_bytes : SL_NCCL_STAGING_BYTES;
    uint64_t slots = c->ranks > 1 ? (uint64_t)(c->ranks - 1) : 1;
    c->slot_bytes = bytes / slots / 256 * 256;
    if (c->slot_bytes == 0)
        return sl_fail(SLUICE_ERR_USAGE, "%d ranks are too many for %llu bytes of staging memory on the GPU", c->ranks,
                       (unsigned long long)bytes);
    c->walks = sl_alloc_array((size_t)c->ranks, sizeof *c->walks, "collectives on the GPU");
    if (c->walks == NULL) return SLUICE_ERR_NO_MEMORY;
    return c->ops->open(c->device, c->slot_bytes * slots, &c->lane);
}

static sluice_status open_handle(sl_nccl *c)
{
    sl_nccl_id id;
    sl_nccl_config config = { sizeof config, SL_NCCL_CONFIG_MAGIC, SL_NCCL_LEAST, 0, INT_MIN, INT_MIN, INT_MIN, NULL,
                              INT_MIN };
    memset(&id, 0, sizeof id);
    if (c->rank == 0) SL_TRY(sl_nccl_settle(c, c->api.unique_id(&id), "starting NCCL"));
    SL_TRY(c->base->ops->broadcast(c->base, "the name of NCCL's communicator", 0, &id, sizeof id));
    SL_TRY(c->base->ops->barrier(c->base, "starting NCCL")); /* its deadline begins when all are here */
    return sl_nccl_settle(c, c->api.init(&c->handle, c->ranks, id, c->rank, &config), "starting NCCL");
}

static sluice_status nccl_attach(sl_comm *base, const sl_backend *backend, sl_device *d)
{
    sl_nccl *c = nccl_of(base);
    (void)backend;
    if (c->device != NULL) return sl_fail(SLUICE_ERR_USAGE, "a device is attached to this communicator already");
    c->device = d;
    atomic_store(&c->queued, 0);
    sluice_status st = open_lane(c);
    if (st == SLUICE_OK) st = open_handle(c);
    if (st == SLUICE_OK) st = sl_nccl_watch(c);
    if (st == SLUICE_OK) return st;
    char message[SL_MESSAGE_BYTES];
    sl_error_copy(message);
    if (c->handle != NULL) (void)c->api.abort(c->handle);
    c->handle = NULL;
    nccl_detach(base);
    return sl_fail(st, "%s", message);
}

/* ---- queueing ---- */

static uint64_t whole_bytes(const sl_comm_part *p)
{
    return sl_comm_bytes(p, p->whole, (sl_range){ 0, p->shards->elements }).bytes;
}

static const char *fault_of(const sl_nccl *c, const sl_collective *what, const sl_comm_part *p, bool first)
{
    const char *fault = what->kind == SL_REDUCE_SCATTER ? sl_sum_fault(p, first) : NULL;
    if (fault != NULL) return fault;
    if (p->shards->rank_count != c->ranks) return "it is cut for another number of ranks";
    if (p->whole.bytes < whole_bytes(p)) return "the whole is too short";
    if (p->shard.bytes < sl_comm_shard_bytes(what->kind, p, c->rank)) return "the shard is too short";
    return NULL;
}

static sluice_status resolve(sl_nccl *c, const char *name, sl_span s)
{
    void *address;
    if (s.bytes == 0) return SLUICE_OK;
    SL_TRY(c->ops->address(c->device, name, s, &address));
    c->bases[s.tier] = (uint8_t *)address - s.offset;
    return SLUICE_OK;
}

/* Finds out where all spans are, and how many bytes the whole collective is of. */
static sluice_status prepare(sl_nccl *c, const sl_collective *what, bool first, uint64_t *bytes)
{
    *bytes = 0;
    for (int i = 0; i < what->part_count; i++) {
        const sl_comm_part *p = &what->parts[i];
        const char *fault = fault_of(c, what, p, first);
        if (fault != NULL)
            return sl_fail(SLUICE_ERR_FAILED, "part %d of %s: %s: the plan and this job differ", i, what->name, fault);
        SL_TRY(resolve(c, what->name, p->whole));
        SL_TRY(resolve(c, what->name, p->shard));
        *bytes += whole_bytes(p);
    }
    return SLUICE_OK;
}

static void take_note(sl_nccl *c, uint64_t sequence, const char *name)
{
    pthread_mutex_lock(&c->lock);
    sl_nccl_note *n = &c->notes[atomic_load(&c->queued) % SL_NCCL_NOTES];
    n->sequence = sequence;
    snprintf(n->name, sizeof n->name, "%s", name);
    pthread_mutex_unlock(&c->lock);
}

/* Bytes of this rank that the others receive. */
static void count(sl_nccl *c, const sl_collective *what)
{
    uint64_t sent = 0;
    for (int i = 0; i < what->part_count; i++) {
        const sl_comm_part *p = &what->parts[i];
        uint64_t own = sl_comm_range_bytes(p, c->rank);
        sent += what->kind == SL_REDUCE_SCATTER ? whole_bytes(p) - own : own * (uint64_t)(c->ranks - 1);
    }
    atomic_fetch_add(&c->sent[what->kind], sent);
    atomic_fetch_add(&c->collective_count, 1);
}

static sluice_status nccl_start(sl_comm *base, uint64_t sequence, const sl_collective *what, bool first)
{
    sl_nccl *c = nccl_of(base);
    uint64_t bytes;
    if (c->device == NULL) return sl_fail(SLUICE_ERR_USAGE, "%s: no device is attached", what->name);
    if (atomic_load(&c->failed)) return sl_nccl_failed(c);
    SL_TRY(prepare(c, what, first, &bytes));
    if (c->options.checked) SL_TRY(nccl_meet(base, sequence, what->name, bytes));
    take_note(c, sequence, what->name);
    SL_TRY(c->ops->mark(c->device, SL_LANE_BEGUN));
    SL_TRY(sl_nccl_move(c, what, first));
    SL_TRY(c->ops->mark(c->device, SL_LANE_FINISHED));
    atomic_fetch_add(&c->queued, 1);
    count(c, what);
    return SLUICE_OK;
}

/* ---- opening and closing ---- */

static void nccl_close(sl_comm *base)
{
    sl_nccl *c = nccl_of(base);
    nccl_detach(base);
    pthread_mutex_destroy(&c->lock);
    pthread_mutex_destroy(&c->meeting);
    sl_free(c);
}

static const sl_comm_ops nccl_ops = {
    .name = "nccl",
    .reaches_gpus = true,
    .close = nccl_close,
    .rank = nccl_rank,
    .size = nccl_size,
    .arena_files = nccl_arena_files,
    .attach = nccl_attach,
    .detach = nccl_detach,
    .start = nccl_start,
    .exchange = nccl_exchange,
    .broadcast = nccl_broadcast,
    .collect = nccl_collect,
    .barrier = nccl_barrier,
    .abort = nccl_abort,
    .stats = nccl_stats,
    .timeout = nccl_timeout,
    .check = nccl_check,
    .meet = nccl_meet,
};

sluice_status sl_comm_nccl_open(const sl_nccl_options *options, sl_comm **out)
{
    sl_nccl_api api;
    SL_TRY(sl_nccl_api_open(&api));
    sl_nccl *c = sl_alloc(sizeof *c, "communicator of GPUs");
    if (c == NULL) return SLUICE_ERR_NO_MEMORY;
    c->comm.ops = &nccl_ops;
    c->options = *options;
    c->base = options->base;
    c->ops = options->lane;
    c->api = api;
    c->rank = c->base->ops->rank(c->base);
    c->ranks = c->base->ops->size(c->base);
    c->timeout = c->base->ops->timeout(c->base);
    pthread_mutex_init(&c->lock, NULL);
    pthread_mutex_init(&c->meeting, NULL);
    *out = &c->comm;
    return SLUICE_OK;
}
