/* cpu_backend.c: the device that is this machine's CPU.
 *
 * Both tiers are mappings of exactly the planned size (memory.h). Kernels run in the caller's thread on the pool,
 * whatever their stream: compute and the optimizer's update want the same cores, and a pool runs one thing at a time,
 * so a second thread would only make them take turns. Copies and host work on the to-device, to-host, communication
 * and disk streams run alongside the caller, one thread each; on other streams they run at once. Events order all of
 * them. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "backend/cpu/cpu_workspace.h"
#include "backend/cpu/host_call.h"
#include "backend/cpu/memory.h"
#include "backend/cpu/stream.h"
#include "backend/ledger.h"
#include "backend/stamps.h"
#include "core/alloc.h"

struct sl_device {
    sl_ledger ledger;
    bool guard, paged_host;
    sl_host_kernels kernels;
    sl_pool *pool;
    sl_memory arenas[SL_TIER_COUNT];
    int arena_files[SL_TIER_COUNT]; /* borrowed; > 0: backs the arena */
    uint64_t nodes;                 /* of memory, that arenas lie on */
    sl_events events;
    sl_failure failure; /* of submitted work */
    sl_queue queues[SL_STREAM_COUNT];
    bool runs[SL_STREAM_COUNT]; /* the thread of the queue */
    sl_stamps stamps;
};

/* ---- streams ---- */

/* Compute and the update run in the caller's thread. */
static bool runs_apart(sl_stream stream)
{
    return stream != SL_STREAM_COMPUTE && stream != SL_STREAM_UPDATE;
}

/* *out NULL: what is queued on this stream runs in the caller's thread. Most jobs have no use for some streams, so that
 * their threads start when they are first used. */
static sluice_status queue_of(sl_device *d, sl_stream stream, sl_queue **out)
{
    *out = runs_apart(stream) ? &d->queues[stream] : NULL;
    if (*out == NULL || d->runs[stream]) return SLUICE_OK;
    SL_TRY(sl_queue_open(*out, &d->events, &d->failure));
    d->runs[stream] = true;
    return SLUICE_OK;
}

static void drain(sl_device *d)
{
    for (int k = 0; k < SL_STREAM_COUNT; k++)
        if (d->runs[k]) sl_queue_drain(&d->queues[k]);
}

static void close_queues(sl_device *d)
{
    for (int k = 0; k < SL_STREAM_COUNT; k++)
        if (d->runs[k]) sl_queue_close(&d->queues[k]);
}

/* ---- opening and closing ---- */

static sluice_status cpu_open(const sl_device_options *options, sl_device **out)
{
    sluice_status st;
    sl_device *d = sl_alloc(sizeof *d, "cpu device");
    if (d == NULL) return SLUICE_ERR_NO_MEMORY;
    sl_ledger_init(&d->ledger);
    d->guard = options->guard;
    d->paged_host = options->paged_host;
    memcpy(d->arena_files, options->arena_files, sizeof d->arena_files);
    d->nodes = options->nodes;
    if ((st = sl_host_kernels_of(options->isa, &d->kernels)) != SLUICE_OK) goto free_device;
    if ((st = sl_pool_create(options->threads, &d->pool)) != SLUICE_OK) goto free_device;
    if ((st = sl_events_open(&d->events)) != SLUICE_OK) goto destroy_pool;
    if ((st = sl_failure_open(&d->failure)) != SLUICE_OK) goto close_events;
    sl_queue *q;
    if ((st = queue_of(d, SL_STREAM_TO_DEVICE, &q)) != SLUICE_OK) goto close_failure;
    if ((st = queue_of(d, SL_STREAM_TO_HOST, &q)) != SLUICE_OK) goto close_failure;
    *out = d;
    return SLUICE_OK;
close_failure:
    close_queues(d);
    sl_failure_close(&d->failure);
close_events:
    sl_events_close(&d->events);
destroy_pool:
    sl_pool_destroy(d->pool);
free_device:
    sl_free(d);
    return st;
}

static void cpu_close(sl_device *d)
{
    if (d == NULL) return;
    close_queues(d);
    sl_failure_close(&d->failure);
    sl_events_close(&d->events);
    (void)sl_stamps_reserve(&d->stamps, 0);
    for (int t = 0; t < SL_TIER_COUNT; t++) sl_memory_unmap(&d->arenas[t]);
    sl_pool_destroy(d->pool);
    sl_free(d);
}

static bool cpu_supports(sl_op op)
{
    return (unsigned)op < SL_OP_COUNT && (sl_ops[op].view || sl_kernels_scalar[SL_KERNEL_F32][op] != NULL);
}

/* ---- arenas ---- */

static sluice_status cpu_reserve(sl_device *d, sl_tier tier, uint64_t bytes)
{
    SL_TRY(sl_ledger_reserve(&d->ledger, tier, bytes));
    if (bytes == 0) return SLUICE_OK;
    sl_memory_options o = { .guard = d->guard,
                            .paged = d->paged_host && tier == SL_TIER_HOST,
                            .file = d->arena_files[tier],
                            .nodes = d->nodes };
    errno = ENOMEM;
    if (bytes <= SIZE_MAX / 2 && sl_memory_map(&d->arenas[tier], (size_t)bytes, &o)) {
        sl_memory_touch(&d->arenas[tier], d->pool);
        return SLUICE_OK;
    }
    d->ledger.reserved[tier] = 0; /* no span may point there */
    return sl_fail(SLUICE_ERR_NO_MEMORY, "the %s arena needs %" PRIu64 " bytes: %s", sl_tier_name(tier), bytes,
                   strerror(errno));
}

/* The span was checked: it lies in the arena. */
static void *address(const sl_device *d, sl_span s)
{
    return s.bytes > 0 ? d->arenas[s.tier].base + s.offset : NULL;
}

static sluice_status check_canaries(const sl_device *d)
{
    for (int t = 0; t < SL_TIER_COUNT; t++) {
        if (!sl_memory_is_intact(&d->arenas[t]))
            return sl_fail(SLUICE_ERR_FAILED, "something was written outside the %s arena of %zu bytes",
                           sl_tier_name((sl_tier)t), d->arenas[t].bytes);
    }
    return SLUICE_OK;
}

/* ---- work ---- */

static sluice_status cpu_run(sl_device *d, sl_stream stream, const sl_call *c)
{
    SL_TRY(sl_ledger_call(&d->ledger, stream, c));
    SL_TRY(sl_host_call_check(&d->kernels, c));
    sl_queue *q;
    SL_TRY(queue_of(d, stream, &q));
    if (q != NULL) sl_queue_drain(q);
    uint8_t *bases[SL_TIER_COUNT];
    for (int t = 0; t < SL_TIER_COUNT; t++) bases[t] = d->arenas[t].base;
    sl_host_call_run(&d->kernels, c, bases, d->pool);
    return SLUICE_OK;
}

static sluice_status cpu_copy(sl_device *d, sl_stream stream, sl_span dst, sl_span src)
{
    SL_TRY(sl_ledger_copy(&d->ledger, stream, dst, src));
    if (src.bytes == 0) return SLUICE_OK;
    sl_queue *q;
    SL_TRY(queue_of(d, stream, &q));
    if (q == NULL)
        memcpy(address(d, dst), address(d, src), (size_t)src.bytes);
    else
        sl_queue_submit(
            q, &(sl_work){
                   .kind = SL_WORK_COPY, .dst = address(d, dst), .src = address(d, src), .bytes = (size_t)src.bytes });
    return SLUICE_OK;
}

/* Kernels are done when they were queued; what a stream of its own still does comes first. */
static sluice_status cpu_upload(sl_device *d, sl_stream stream, sl_span dst, const void *src)
{
    SL_TRY(sl_ledger_stream(stream));
    SL_TRY(sl_ledger_transfer(&d->ledger, "upload", dst));
    sl_queue *q;
    SL_TRY(queue_of(d, stream, &q));
    if (q != NULL) sl_queue_drain(q);
    if (dst.bytes > 0) memcpy(address(d, dst), src, (size_t)dst.bytes);
    return SLUICE_OK;
}

static sluice_status cpu_download(sl_device *d, void *dst, sl_span src)
{
    SL_TRY(sl_ledger_transfer(&d->ledger, "download", src));
    if (src.bytes > 0) memcpy(dst, address(d, src), (size_t)src.bytes);
    return SLUICE_OK;
}

static sluice_status cpu_store(sl_device *d, sl_span dst, const void *src)
{
    SL_TRY(sl_ledger_transfer(&d->ledger, "store", dst));
    if (dst.bytes > 0) memcpy(address(d, dst), src, (size_t)dst.bytes);
    return SLUICE_OK;
}

static sl_pool *cpu_pool(const sl_device *d)
{
    return d->pool;
}

/* ---- events ---- */

static sluice_status cpu_reserve_events(sl_device *d, int event_count)
{
    SL_TRY(sl_ledger_events(&d->ledger, event_count));
    return sl_events_reserve(&d->events, event_count);
}

/* Recordings of one event come true in order: one on another stream first waits for its predecessor. */
static sluice_status cpu_record(sl_device *d, sl_stream stream, int event)
{
    SL_TRY(sl_ledger_event(&d->ledger, stream, event));
    sl_queue *q;
    SL_TRY(queue_of(d, stream, &q));
    sl_event *e = &d->events.list[event];
    if (e->stream != (int)stream) sl_event_wait(&d->events, event, e->issued);
    e->stream = (int)stream;
    e->issued++;
    if (q == NULL)
        sl_event_fire(&d->events, event, e->issued);
    else
        sl_queue_submit(q, &(sl_work){ .kind = SL_WORK_FIRE, .event = event, .number = e->issued });
    return SLUICE_OK;
}

/* For the newest recording; one that was never recorded is not waited for. */
static sluice_status cpu_wait(sl_device *d, sl_stream stream, int event)
{
    SL_TRY(sl_ledger_event(&d->ledger, stream, event));
    uint64_t number = d->events.list[event].issued;
    sl_queue *q;
    SL_TRY(queue_of(d, stream, &q));
    if (q == NULL)
        sl_event_wait(&d->events, event, number);
    else
        sl_queue_submit(q, &(sl_work){ .kind = SL_WORK_WAIT, .event = event, .number = number });
    return SLUICE_OK;
}

static sluice_status cpu_await(sl_device *d, int event)
{
    SL_TRY(sl_ledger_event(&d->ledger, SL_STREAM_COMPUTE, event));
    sl_event_wait(&d->events, event, d->events.list[event].issued);
    return sl_failure_take(&d->failure);
}

/* ---- host work ---- */

static sluice_status cpu_submit(sl_device *d, sl_stream stream, sluice_status (*work)(void *user), void *user)
{
    SL_TRY(sl_ledger_stream(stream));
    sl_queue *q;
    SL_TRY(queue_of(d, stream, &q));
    if (q == NULL)
        sl_failure_run(&d->failure, work, user);
    else
        sl_queue_submit(q, &(sl_work){ .kind = SL_WORK_HOST, .call = work, .user = user });
    return SLUICE_OK;
}

static sluice_status cpu_resolve(sl_device *d, const char *what, sl_span span, void **out)
{
    SL_TRY(sl_ledger_transfer(&d->ledger, what, span));
    *out = address(d, span);
    return SLUICE_OK;
}

static bool cpu_window(const sl_device *d, sl_tier tier, sl_window *out)
{
    const sl_memory *m = (unsigned)tier < SL_TIER_COUNT ? &d->arenas[tier] : NULL;
    if (m == NULL || m->mapping == NULL || !m->shared) return false;
    *out = (sl_window){ (uint64_t)(m->base - m->mapping), m->bytes };
    return true;
}

static sluice_status cpu_synchronize(sl_device *d)
{
    drain(d);
    SL_TRY(sl_failure_take(&d->failure));
    return check_canaries(d);
}

/* ---- times ---- */

static sluice_status cpu_reserve_stamps(sl_device *d, int count)
{
    return sl_stamps_reserve(&d->stamps, count);
}

static sluice_status cpu_stamp(sl_device *d, sl_stream stream, int index)
{
    sl_queue *q;
    double *slot;
    SL_TRY(sl_ledger_stream(stream));
    SL_TRY(queue_of(d, stream, &q));
    if (q == NULL) return sl_stamps_set(&d->stamps, index);
    SL_TRY(sl_stamps_slot(&d->stamps, index, &slot));
    sl_queue_submit(q, &(sl_work){ .kind = SL_WORK_STAMP, .stamp = slot });
    return SLUICE_OK;
}

static sluice_status cpu_read_stamps(sl_device *d, double *seconds, int count)
{
    return sl_stamps_read(&d->stamps, seconds, count);
}

static void cpu_stats(const sl_device *d, sl_device_stats *out)
{
    sl_ledger_stats(&d->ledger, out);
}

const sl_backend sl_cpu_backend = {
    .name = "cpu",
    .open = cpu_open,
    .close = cpu_close,
    .supports = cpu_supports,
    .workspace = sl_cpu_workspace,
    .reserve = cpu_reserve,
    .run = cpu_run,
    .copy = cpu_copy,
    .upload = cpu_upload,
    .download = cpu_download,
    .store = cpu_store,
    .pool = cpu_pool,
    .reserve_events = cpu_reserve_events,
    .record = cpu_record,
    .wait = cpu_wait,
    .await = cpu_await,
    .submit = cpu_submit,
    .resolve = cpu_resolve,
    .window = cpu_window,
    .synchronize = cpu_synchronize,
    .reserve_stamps = cpu_reserve_stamps,
    .stamp = cpu_stamp,
    .read_stamps = cpu_read_stamps,
    .stats = cpu_stats,
};
