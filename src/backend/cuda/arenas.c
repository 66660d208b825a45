/* arenas.c: the memory of the device's tiers, and how the caller's data gets in and out.
 *
 * The device arena is one allocation, the host arena one mapping, pinned where the system allows it. Uploads pass
 * through a ring of small pinned slots, so that the caller's memory is free when they return and the copy itself keeps
 * its place in its stream, unless that memory is pinned itself. Downloads and stores pass through the same memory, of which each thread takes a part. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "backend/cuda/device.h"
#include "core/bytes.h"

#define POISON       0xFF /* four of them are a NaN */
#define CANARY       0xA5
#define CANARY_BYTES ((size_t)256) /* before and behind the device arena, under guard */

/* ---- opening and closing ---- */

sluice_status sl_arenas_open(sl_device *d)
{
    SL_CUDA(d, cudaHostAlloc((void **)&d->staging.base, SL_STAGING_SLOTS * SL_STAGING_BYTES, cudaHostAllocPortable),
            "pinned memory for uploads");
    for (int i = 0; i < SL_STAGING_SLOTS; i++)
        SL_CUDA(d, cudaEventCreateWithFlags(&d->staging.free[i], cudaEventDisableTiming), "making an event");
    pthread_mutex_init(&d->passages.lock, NULL);
    pthread_cond_init(&d->passages.freed, NULL);
    d->passages.open = true;
    for (int i = 0; i < SL_PASSAGES; i++)
        SL_CUDA(d, cudaStreamCreateWithFlags(&d->passages.streams[i], cudaStreamNonBlocking), "making a stream");
    return SLUICE_OK;
}

/* What cudaHostRegister is told: whole pages, without the pages that nobody may touch. */
static size_t pinned_bytes(const sl_memory *m)
{
    return (size_t)sl_align_up(m->front_bytes + m->bytes + m->back_bytes, (size_t)sysconf(_SC_PAGESIZE));
}

static void close_passages(sl_passages *p)
{
    for (int i = 0; i < SL_PASSAGES; i++)
        if (p->streams[i] != NULL) (void)cudaStreamDestroy(p->streams[i]);
    if (!p->open) return;
    pthread_cond_destroy(&p->freed);
    pthread_mutex_destroy(&p->lock);
}

void sl_arenas_close(sl_device *d)
{
    close_passages(&d->passages);
    for (int i = 0; i < SL_MAX_PINS; i++)
        if (d->pins[i].base != NULL) (void)cudaHostUnregister((void *)d->pins[i].base);
    for (int i = 0; i < SL_STAGING_SLOTS; i++)
        if (d->staging.free[i] != NULL) (void)cudaEventDestroy(d->staging.free[i]);
    if (d->staging.base != NULL) (void)cudaFreeHost(d->staging.base);
    if (d->device_arena != NULL) (void)cudaFree(d->device_arena);
    if (d->pinned) (void)cudaHostUnregister(d->host_arena.base - d->host_arena.front_bytes);
    sl_memory_unmap(&d->host_arena);
}

/* ---- the device's arena ---- */

static sluice_status no_device_memory(sl_device *d, uint64_t bytes)
{
    size_t free_bytes = 0, total_bytes = 0;
    char needed[32], unused[32], total[32];
    (void)cudaMemGetInfo(&free_bytes, &total_bytes);
    return sl_fail(SLUICE_ERR_NO_MEMORY,
                   "the device arena needs %" PRIu64 " bytes (%s); GPU %d has %s free of %s: other programs may hold "
                   "the rest. Lower memory.device, or free the GPU",
                   bytes, sl_format_bytes(bytes, needed, sizeof needed), d->options.ordinal,
                   sl_format_bytes(free_bytes, unused, sizeof unused),
                   sl_format_bytes(total_bytes, total, sizeof total));
}

static size_t back_bytes(uint64_t bytes)
{
    return (size_t)(sl_align_up(bytes, CANARY_BYTES) - bytes) + CANARY_BYTES;
}

/* Zero, or under guard poison between canaries. Streams of ours do not wait for what CUDA does by itself, so this
 * does. */
static sluice_status fill_device(sl_device *d, uint64_t bytes, size_t front, size_t back)
{
    bool guard = d->options.guard;
    if (guard) SL_CUDA(d, cudaMemset(d->device_arena, CANARY, front + bytes + back), "filling the device arena");
    SL_CUDA(d, cudaMemset(d->device_arena + front, guard ? POISON : 0, bytes), "filling the device arena");
    SL_CUDA(d, cudaDeviceSynchronize(), "filling the device arena");
    return SLUICE_OK;
}

static sluice_status reserve_device(sl_device *d, uint64_t bytes)
{
    size_t front = d->options.guard ? CANARY_BYTES : 0, back = d->options.guard ? back_bytes(bytes) : 0;
    cudaError_t error = cudaErrorMemoryAllocation;
    if (bytes < SIZE_MAX / 2) error = cudaMalloc((void **)&d->device_arena, front + bytes + back);
    (void)cudaGetLastError();
    if (error != cudaSuccess) d->device_arena = NULL;
    if (error == cudaErrorMemoryAllocation) return no_device_memory(d, bytes);
    if (error != cudaSuccess) return sl_device_failed(d, error, "reserving the device arena");
    SL_TRY(fill_device(d, bytes, front, back));
    d->bases[SL_TIER_DEVICE] = d->device_arena + front;
    d->overhead->arena_bytes = front + bytes + back;
    return SLUICE_OK;
}

/* ---- the host's arena ---- */

/* Without pinning all works, slowly. */
static void pin(sl_device *d)
{
    sl_memory *m = &d->host_arena;
    void *mapped = NULL;
    cudaError_t error =
        cudaHostRegister(m->base - m->front_bytes, pinned_bytes(m), cudaHostRegisterPortable | cudaHostRegisterMapped);
    d->pinned = error == cudaSuccess;
    if (d->pinned) error = cudaHostGetDevicePointer(&mapped, m->base, 0);
    (void)cudaGetLastError();
    d->bases[SL_TIER_HOST] = mapped;
    if (error == cudaSuccess) return;
    char bytes[32];
    sl_log_write(&d->options.log, SLUICE_LOG_WARNING,
                 "the host arena of %s cannot be pinned (%s): copies between host and GPU will be slow",
                 sl_format_bytes(m->bytes, bytes, sizeof bytes), cudaGetErrorString(error));
}

static sluice_status reserve_host(sl_device *d, uint64_t bytes)
{
    sl_memory_options o = { .guard = d->options.guard,
                            .paged = d->options.paged_host,
                            .file = d->options.arena_files[SL_TIER_HOST],
                            .nodes = d->options.nodes };
    errno = ENOMEM;
    if (bytes > SIZE_MAX / 2 || !sl_memory_map(&d->host_arena, (size_t)bytes, &o))
        return sl_fail(SLUICE_ERR_NO_MEMORY, "the host arena needs %" PRIu64 " bytes: %s", bytes, strerror(errno));
    sl_memory_touch(&d->host_arena, d->host.pool);
    d->host.bases[SL_TIER_HOST] = d->host_arena.base;
    pin(d);
    return SLUICE_OK;
}

sluice_status sl_arenas_reserve(sl_device *d, sl_tier tier, uint64_t bytes)
{
    if (bytes == 0) return SLUICE_OK;
    sluice_status st = tier == SL_TIER_DEVICE ? reserve_device(d, bytes) : reserve_host(d, bytes);
    if (st != SLUICE_OK) d->ledger.reserved[tier] = 0; /* no span may point there */
    return st;
}

/* ---- guards ---- */

static sluice_status outside(sl_tier tier, uint64_t bytes)
{
    return sl_fail(SLUICE_ERR_FAILED, "something was written outside the %s arena of %" PRIu64 " bytes",
                   sl_tier_name(tier), bytes);
}

static sluice_status check_canary(sl_device *d, const uint8_t *at, size_t bytes)
{
    uint8_t seen[2 * CANARY_BYTES];
    SL_CUDA(d, cudaMemcpyAsync(seen, at, bytes, cudaMemcpyDeviceToHost, d->transfer), "reading the arena's guards");
    SL_TRY(sl_order_await_cuda(d, d->transfer));
    for (size_t i = 0; i < bytes; i++)
        if (seen[i] != CANARY) return outside(SL_TIER_DEVICE, d->ledger.reserved[SL_TIER_DEVICE]);
    return SLUICE_OK;
}

sluice_status sl_arenas_check(sl_device *d)
{
    uint64_t bytes = d->ledger.reserved[SL_TIER_DEVICE];
    if (!sl_memory_is_intact(&d->host_arena)) return outside(SL_TIER_HOST, d->host_arena.bytes);
    if (!d->options.guard || bytes == 0) return SLUICE_OK;
    SL_TRY(check_canary(d, d->device_arena, CANARY_BYTES));
    return check_canary(d, d->bases[SL_TIER_DEVICE] + bytes, back_bytes(bytes));
}

/* ---- the caller's memory ---- */

/* One slot's worth: the slot is free when its last copy is done. */
static sluice_status stage(sl_device *d, cudaStream_t stream, uint8_t *dst, const uint8_t *src, size_t bytes)
{
    sl_staging *s = &d->staging;
    int slot = s->next;
    uint8_t *pinned = s->base + (size_t)slot * SL_STAGING_BYTES;
    s->next = (slot + 1) % SL_STAGING_SLOTS;
    SL_TRY(sl_order_await_mark(d, s->free[slot]));
    memcpy(pinned, src, bytes);
    SL_CUDA(d, cudaMemcpyAsync(dst, pinned, bytes, cudaMemcpyHostToDevice, stream), "upload");
    SL_CUDA(d, cudaEventRecord(s->free[slot], stream), "upload");
    return SLUICE_OK;
}

void sl_arenas_pin(sl_device *d, void *memory, size_t bytes)
{
    sl_pin *free_one = NULL;
    for (int i = SL_MAX_PINS - 1; i >= 0; i--)
        if (d->pins[i].base == NULL) free_one = &d->pins[i];
    if (free_one == NULL || sl_device_enter(d) != SLUICE_OK) return;
    if (cudaHostRegister(memory, bytes, cudaHostRegisterPortable) == cudaSuccess)
        *free_one = (sl_pin){ memory, bytes };
    else
        (void)cudaGetLastError(); /* a limit of locked pages: uploads are staged as before */
}

void sl_arenas_unpin(sl_device *d, void *memory)
{
    for (int i = 0; i < SL_MAX_PINS; i++) {
        if (d->pins[i].base != memory) continue;
        (void)cudaHostUnregister(memory);
        d->pins[i] = (sl_pin){ NULL, 0 };
    }
}

static bool is_pinned(const sl_device *d, const uint8_t *src, size_t bytes)
{
    for (int i = 0; i < SL_MAX_PINS; i++)
        if (d->pins[i].base != NULL && src >= d->pins[i].base && src + bytes <= d->pins[i].base + d->pins[i].bytes)
            return true;
    return false;
}

static sluice_status upload_to_device(sl_device *d, sl_stream stream, uint8_t *dst, const uint8_t *src, size_t bytes)
{
    bool queued = sl_on_cuda(d, stream);
    cudaStream_t s = queued ? d->streams[stream] : d->transfer;
    if (!queued) SL_TRY(sl_order_await_stream(d, stream));
    if (queued && is_pinned(d, src, bytes)) {
        SL_CUDA(d, cudaMemcpyAsync(dst, src, bytes, cudaMemcpyHostToDevice, s), "upload");
        return SLUICE_OK;
    }
    for (size_t done = 0; done < bytes; done += SL_STAGING_BYTES) {
        size_t part = bytes - done < SL_STAGING_BYTES ? bytes - done : SL_STAGING_BYTES;
        SL_TRY(stage(d, s, dst + done, src + done, part));
    }
    return queued ? SLUICE_OK : sl_order_await_cuda(d, s);
}

sluice_status sl_arenas_upload(sl_device *d, sl_stream stream, sl_span dst, const void *src)
{
    if (dst.bytes == 0) return SLUICE_OK;
    if (dst.tier == SL_TIER_DEVICE)
        return upload_to_device(d, stream, sl_device_address(d, dst), src, (size_t)dst.bytes);
    SL_TRY(sl_order_await_stream(d, stream));
    memcpy(sl_host_address(d, dst), src, (size_t)dst.bytes);
    return SLUICE_OK;
}

/* ---- passages ---- */

static int take_passage(sl_passages *p)
{
    int i = 0;
    pthread_mutex_lock(&p->lock);
    for (;;) {
        for (i = 0; i < SL_PASSAGES && p->taken[i]; i++) continue;
        if (i < SL_PASSAGES) break;
        pthread_cond_wait(&p->freed, &p->lock);
    }
    p->taken[i] = true;
    pthread_mutex_unlock(&p->lock);
    return i;
}

static void free_passage(sl_passages *p, int i)
{
    pthread_mutex_lock(&p->lock);
    p->taken[i] = false;
    pthread_cond_signal(&p->freed);
    pthread_mutex_unlock(&p->lock);
}

/* Bytes of the GPU's memory at `device` to `to` or, where that is NULL, from `from`, a pinned part after the other. The
 * uploads that used the same pinned memory are over. */
static sluice_status pass(sl_device *d, int passage, uint8_t *device, uint8_t *to, const uint8_t *from, size_t bytes)
{
    int first = passage * SL_PASSAGE_SLOTS;
    uint8_t *pinned = d->staging.base + (size_t)first * SL_STAGING_BYTES;
    cudaStream_t stream = d->passages.streams[passage];
    for (int i = 0; i < SL_PASSAGE_SLOTS; i++) SL_TRY(sl_order_await_mark(d, d->staging.free[first + i]));
    for (size_t done = 0; done < bytes; done += SL_PASSAGE_BYTES) {
        size_t part = bytes - done < SL_PASSAGE_BYTES ? bytes - done : SL_PASSAGE_BYTES;
        if (to == NULL) memcpy(pinned, from + done, part);
        SL_CUDA(d,
                to == NULL ? cudaMemcpyAsync(device + done, pinned, part, cudaMemcpyHostToDevice, stream)
                           : cudaMemcpyAsync(pinned, device + done, part, cudaMemcpyDeviceToHost, stream),
                to == NULL ? "store" : "download");
        /* not by asking again and again: a dozen threads that do disturb each other in the driver */
        SL_CUDA(d, cudaStreamSynchronize(stream), to == NULL ? "store" : "download");
        if (to != NULL) memcpy(to + done, pinned, part);
    }
    return SLUICE_OK;
}

static sluice_status pass_through(sl_device *d, uint8_t *device, uint8_t *to, const uint8_t *from, size_t bytes)
{
    int passage = take_passage(&d->passages);
    sluice_status st = pass(d, passage, device, to, from, bytes);
    free_passage(&d->passages, passage);
    return st;
}

sluice_status sl_arenas_download(sl_device *d, void *dst, sl_span src)
{
    if (src.bytes == 0) return SLUICE_OK;
    if (src.tier != SL_TIER_DEVICE) {
        memcpy(dst, sl_host_address(d, src), (size_t)src.bytes);
        return SLUICE_OK;
    }
    if (src.bytes >= SL_PASSAGE_LEAST) return pass_through(d, sl_device_address(d, src), dst, NULL, (size_t)src.bytes);
    SL_CUDA(d, cudaMemcpyAsync(dst, sl_device_address(d, src), (size_t)src.bytes, cudaMemcpyDeviceToHost, d->transfer),
            "download");
    return sl_order_await_cuda(d, d->transfer);
}

sluice_status sl_arenas_store(sl_device *d, sl_span dst, const void *src)
{
    if (dst.bytes == 0) return SLUICE_OK;
    if (dst.tier == SL_TIER_DEVICE) return pass_through(d, sl_device_address(d, dst), NULL, src, (size_t)dst.bytes);
    memcpy(sl_host_address(d, dst), src, (size_t)dst.bytes);
    return SLUICE_OK;
}
