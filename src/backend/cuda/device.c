/* device.c: the backend that is an NVIDIA GPU.
 *
 * Kernels on a CUDA stream run on the GPU; kernels on a stream of the host, the update's above all, run on the CPU's
 * kernels and on host memory, beside the GPU. */
#include "backend/cuda/device.h"

#include <inttypes.h>
#include <string.h>

#include "backend/cuda/args.h"
#include "backend/cuda/cuda_backend.h"
#include "backend/operand.h"
#include "core/alloc.h"

#define MEASURE_SECONDS 1.0 /* between two questions how much memory is free */

/* ---- opening and closing ---- */

static void cuda_close(sl_device *d)
{
    if (d == NULL) return;
    (void)cudaSetDevice(d->options.ordinal);
    sl_order_close(d);
    sl_cuda_stamps_free(d);
    sl_cuda_libraries_close(d->libraries);
    sl_arenas_close(d);
    sl_pool_destroy(d->host.pool);
    sl_failure_close(&d->host.failure);
    sl_free(d->overhead);
    sl_free(d->calls);
    sl_free(d);
    (void)cudaGetLastError();
}

/* Before the context is made, which takes memory itself; where only a context can tell, after it. */
static sluice_status open_context(sl_device *d)
{
    d->overhead = sl_alloc(sizeof *d->overhead, "cuda device");
    if (d->overhead == NULL) return SLUICE_ERR_NO_MEMORY;
    sl_overhead *o = d->overhead;
    sl_gpu_meter_open(&o->meter, d->options.ordinal);
    if (o->meter.library != NULL) o->free_at_open = sl_gpu_meter_free(&o->meter);
    SL_CUDA(d, cudaSetDevice(d->options.ordinal), "opening the GPU");
    SL_CUDA(d, cudaFree(NULL), "opening the GPU");
    if (o->meter.library == NULL) o->free_at_open = sl_gpu_meter_free(&o->meter);
    return SLUICE_OK;
}

/* The instructions of sm_90a are of that compute capability alone, not of newer ones. */
static sluice_status find_map_maker(sl_device *d)
{
    int major, minor;
    SL_CUDA(d, cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, d->options.ordinal), "asking its age");
    SL_CUDA(d, cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, d->options.ordinal), "asking its age");
    if (major == 9 && minor == 0) d->map_maker = sl_driver_function("cuTensorMapEncodeTiled");
    return SLUICE_OK;
}

static sluice_status open_parts(sl_device *d)
{
    SL_TRY(sl_host_kernels_of(d->options.isa, &d->host.kernels));
    SL_TRY(sl_pool_create(d->options.threads, &d->host.pool));
    d->calls = sl_alloc_array(SL_CALL_RING, sizeof *d->calls, "names of calls");
    if (d->calls == NULL) return SLUICE_ERR_NO_MEMORY;
    SL_TRY(open_context(d));
    SL_CUDA(d, cudaDeviceGetAttribute(&d->multiprocessors, cudaDevAttrMultiProcessorCount, d->options.ordinal),
            "counting multiprocessors");
    SL_TRY(find_map_maker(d));
    SL_TRY(sl_order_open(d));
    SL_TRY(sl_arenas_open(d));
    return sl_cuda_libraries_open(d->options.tf32, &d->options.log, &d->libraries);
}

static sluice_status cuda_open(const sl_device_options *options, sl_device **out)
{
    SL_TRY(sl_gpu_check(options->ordinal));
    sl_device *d = sl_alloc(sizeof *d, "cuda device");
    if (d == NULL) return SLUICE_ERR_NO_MEMORY;
    sl_ledger_init(&d->ledger);
    d->options = *options;
    d->host.look = sl_device_look;
    d->host.user = d;
    sluice_status st = sl_failure_open(&d->host.failure);
    if (st != SLUICE_OK) {
        sl_free(d);
        return st;
    }
    st = open_parts(d);
    if (st != SLUICE_OK) {
        cuda_close(d);
        return st;
    }
    *out = d;
    return SLUICE_OK;
}

static bool cuda_supports(sl_op op)
{
    return (unsigned)op < SL_OP_COUNT && (sl_ops[op].view || sl_cuda_kernels[op] != NULL);
}

static sluice_status cuda_reserve(sl_device *d, sl_tier tier, uint64_t bytes)
{
    SL_TRY(sl_device_enter(d));
    SL_TRY(sl_ledger_reserve(&d->ledger, tier, bytes));
    return sl_arenas_reserve(d, tier, bytes);
}

/* ---- kernels ---- */

/* What a kernel on the GPU may read or write in the host's arena, over the link: the norm and its leaves, which both
 * sides need and which are small. */
static bool may_be_on_host(sl_op op, bool output, int i)
{
    if (op == SL_OP_NORM_FINISH) return true;
    if (op == SL_OP_NORM_LEAVES) return output;
    return op == SL_OP_UPDATE && !output && i == 1;
}

static sluice_status check_place(const sl_device *d, sl_stream stream, const sl_call *c, bool output, int i)
{
    sl_span s = sl_call_operand(c, output, i).span;
    bool on_gpu = sl_on_cuda(d, stream);
    if (s.bytes == 0 || s.tier == (on_gpu ? SL_TIER_DEVICE : SL_TIER_HOST)) return SLUICE_OK;
    if (on_gpu && may_be_on_host(c->op, output, i) && d->bases[SL_TIER_HOST] != NULL) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_FAILED, "%s %s: %s %d is on the %s tier, but kernels of the %s stream run on the %s",
                   sl_ops[c->op].name, c->name ? c->name : "", output ? "output" : "input", i, sl_tier_name(s.tier),
                   sl_stream_name(stream), on_gpu ? "GPU" : "CPU");
}

static sluice_status check_places(const sl_device *d, sl_stream stream, const sl_call *c)
{
    for (int i = 0; i < c->input_count; i++) SL_TRY(check_place(d, stream, c, false, i));
    for (int i = 0; i < c->output_count; i++) SL_TRY(check_place(d, stream, c, true, i));
    if (c->workspace.bytes == 0 || (c->workspace.tier == SL_TIER_DEVICE) == sl_on_cuda(d, stream)) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_FAILED, "%s %s: its workspace is on the %s tier", sl_ops[c->op].name,
                   c->name ? c->name : "", sl_tier_name(c->workspace.tier));
}

static sluice_status run_on_host(sl_device *d, sl_stream stream, const sl_call *c)
{
    sl_host_queue *q;
    SL_TRY(sl_host_call_check(&d->host.kernels, c));
    SL_TRY(sl_order_queue(d, stream, &q));
    sl_host_queue_call(q, c);
    return SLUICE_OK;
}

static sluice_status run_on_gpu(sl_device *d, sl_stream stream, const sl_call *c)
{
    sl_cuda_args a;
    if (sl_cuda_kernels[c->op] == NULL)
        return sl_fail(SLUICE_ERR_FAILED, "%s %s: no kernel on the CUDA backend", sl_ops[c->op].name,
                       c->name ? c->name : "");
    sl_cuda_args_fill(&a, c, d->bases);
    a.stream = d->streams[stream];
    a.libraries = d->libraries;
    a.multiprocessors = d->multiprocessors;
    a.map_maker = d->map_maker;
    if (stream == SL_STREAM_COMPUTE) sl_device_note_call(d, c);
    SL_TRY(sl_device_launched(d, c, sl_cuda_kernels[c->op](&a)));
    if (stream == SL_STREAM_COMPUTE) sl_device_count_call(d);
    return SLUICE_OK;
}

static sluice_status cuda_run(sl_device *d, sl_stream stream, const sl_call *c)
{
    SL_TRY(sl_device_enter(d));
    SL_TRY(sl_ledger_call(&d->ledger, stream, c));
    SL_TRY(check_places(d, stream, c));
    return sl_on_cuda(d, stream) ? run_on_gpu(d, stream, c) : run_on_host(d, stream, c);
}

/* ---- copies ---- */

/* Within the host's arena: a queue's thread does it in its turn, on a CUDA stream the caller when the stream is
 * there. */
static sluice_status copy_on_host(sl_device *d, sl_stream stream, sl_span dst, sl_span src)
{
    sl_host_queue *q;
    if (sl_on_cuda(d, stream)) {
        SL_TRY(sl_order_await_stream(d, stream));
        memcpy(sl_host_address(d, dst), sl_host_address(d, src), (size_t)src.bytes);
        return SLUICE_OK;
    }
    SL_TRY(sl_order_queue(d, stream, &q));
    sl_host_queue_copy(q, sl_host_address(d, dst), sl_host_address(d, src), (size_t)src.bytes);
    return SLUICE_OK;
}

static uint8_t *address_for_copy(const sl_device *d, sl_span s)
{
    return s.tier == SL_TIER_DEVICE ? sl_device_address(d, s) : sl_host_address(d, s);
}

static sluice_status cuda_copy(sl_device *d, sl_stream stream, sl_span dst, sl_span src)
{
    SL_TRY(sl_device_enter(d));
    SL_TRY(sl_ledger_copy(&d->ledger, stream, dst, src));
    if (src.bytes == 0) return SLUICE_OK;
    bool from_host = src.tier == SL_TIER_HOST, to_host = dst.tier == SL_TIER_HOST;
    if (from_host && to_host) return copy_on_host(d, stream, dst, src);
    if (!sl_on_cuda(d, stream))
        return sl_fail(SLUICE_ERR_FAILED, "a copy from or to the device tier cannot run on the %s stream",
                       sl_stream_name(stream));
    enum cudaMemcpyKind kind = from_host ? cudaMemcpyHostToDevice
                               : to_host ? cudaMemcpyDeviceToHost
                                         : cudaMemcpyDeviceToDevice;
    SL_CUDA(d,
            cudaMemcpyAsync(address_for_copy(d, dst), address_for_copy(d, src), (size_t)src.bytes, kind,
                            d->streams[stream]),
            "copy");
    return SLUICE_OK;
}

static sluice_status cuda_upload(sl_device *d, sl_stream stream, sl_span dst, const void *src)
{
    SL_TRY(sl_device_enter(d));
    SL_TRY(sl_ledger_stream(stream));
    SL_TRY(sl_ledger_transfer(&d->ledger, "upload", dst));
    return sl_arenas_upload(d, stream, dst, src);
}

static sluice_status cuda_download(sl_device *d, void *dst, sl_span src)
{
    SL_TRY(sl_device_enter(d));
    SL_TRY(sl_ledger_transfer(&d->ledger, "download", src));
    return sl_arenas_download(d, dst, src);
}

static sluice_status cuda_store(sl_device *d, sl_span dst, const void *src)
{
    SL_TRY(sl_device_enter(d));
    SL_TRY(sl_ledger_transfer(&d->ledger, "store", dst));
    return sl_arenas_store(d, dst, src);
}

static sl_pool *cuda_pool(const sl_device *d)
{
    return d->host.pool;
}

/* ---- events ---- */

static sluice_status cuda_reserve_events(sl_device *d, int event_count)
{
    SL_TRY(sl_device_enter(d));
    SL_TRY(sl_ledger_events(&d->ledger, event_count));
    return sl_order_reserve(d, event_count);
}

static sluice_status cuda_record(sl_device *d, sl_stream stream, int event)
{
    SL_TRY(sl_device_enter(d));
    SL_TRY(sl_ledger_event(&d->ledger, stream, event));
    return sl_order_record(d, stream, event);
}

static sluice_status cuda_wait(sl_device *d, sl_stream stream, int event)
{
    SL_TRY(sl_device_enter(d));
    SL_TRY(sl_ledger_event(&d->ledger, stream, event));
    return sl_order_wait(d, stream, event);
}

static sluice_status cuda_await(sl_device *d, int event)
{
    SL_TRY(sl_device_enter(d));
    SL_TRY(sl_ledger_event(&d->ledger, SL_STREAM_COMPUTE, event));
    SL_TRY(sl_order_await(d, event));
    return sl_failure_take(&d->host.failure);
}

static sluice_status cuda_synchronize(sl_device *d)
{
    SL_TRY(sl_device_enter(d));
    SL_TRY(sl_order_await_all(d));
    SL_TRY(sl_failure_take(&d->host.failure));
    return sl_arenas_check(d);
}

/* ---- host work ---- */

/* On a CUDA stream the caller does it when the stream has got there: the driver's own threads must not be kept
 * waiting. */
static sluice_status cuda_submit(sl_device *d, sl_stream stream, sluice_status (*work)(void *user), void *user)
{
    sl_host_queue *q;
    SL_TRY(sl_device_enter(d));
    SL_TRY(sl_ledger_stream(stream));
    if (sl_on_cuda(d, stream)) {
        SL_TRY(sl_order_await_stream(d, stream));
        sl_failure_run(&d->host.failure, work, user);
        return SLUICE_OK;
    }
    SL_TRY(sl_order_queue(d, stream, &q));
    sl_host_queue_work(q, work, user);
    return SLUICE_OK;
}

static sluice_status cuda_resolve(sl_device *d, const char *what, sl_span span, void **out)
{
    SL_TRY(sl_ledger_transfer(&d->ledger, what, span));
    if (span.bytes > 0 && span.tier != SL_TIER_HOST)
        return sl_fail(SLUICE_ERR_FAILED,
                       "%s: %" PRIu64 " bytes at offset %" PRIu64
                       " of the %s tier are in the GPU's memory, where code of the host does not "
                       "reach",
                       what, span.bytes, span.offset, sl_tier_name(span.tier));
    *out = sl_host_address(d, span);
    return SLUICE_OK;
}

static bool cuda_window(const sl_device *d, sl_tier tier, sl_window *out)
{
    const sl_memory *m = &d->host_arena;
    if (tier != SL_TIER_HOST || m->mapping == NULL || !m->shared) return false;
    *out = (sl_window){ (uint64_t)(m->base - m->mapping), m->bytes };
    return true;
}

/* ---- times ---- */

static sluice_status cuda_reserve_stamps(sl_device *d, int count)
{
    SL_TRY(sl_device_enter(d));
    return sl_cuda_stamps_reserve(d, count);
}

static sluice_status cuda_stamp(sl_device *d, sl_stream stream, int index)
{
    SL_TRY(sl_device_enter(d));
    SL_TRY(sl_ledger_stream(stream));
    return sl_cuda_stamp(d, stream, index);
}

static sluice_status cuda_read_stamps(sl_device *d, double *seconds, int count)
{
    SL_TRY(sl_device_enter(d));
    return sl_cuda_stamps_read(d, seconds, count);
}

/* ---- counters ---- */

static uint64_t measure_overhead(const sl_device *d)
{
    sl_overhead *o = d->overhead;
    double now = sl_now();
    if (atomic_load(&d->host.dead) || (o->measured > 0 && now - o->measured < MEASURE_SECONDS)) return o->bytes;
    uint64_t unused = sl_gpu_meter_free(&o->meter);
    uint64_t taken = o->free_at_open > unused ? o->free_at_open - unused : 0;
    o->bytes = unused > 0 && taken > o->arena_bytes ? taken - o->arena_bytes : 0;
    o->measured = now;
    return o->bytes;
}

static void cuda_stats(const sl_device *d, sl_device_stats *out)
{
    sl_ledger_stats(&d->ledger, out);
    out->device_overhead = measure_overhead(d);
    out->pageable = d->host_arena.mapping != NULL && !d->pinned;
}

const sl_backend sl_cuda_backend = {
    .name = "cuda",
    .open = cuda_open,
    .close = cuda_close,
    .supports = cuda_supports,
    .workspace = sl_cuda_call_workspace,
    .reserve = cuda_reserve,
    .run = cuda_run,
    .copy = cuda_copy,
    .upload = cuda_upload,
    .pin = sl_arenas_pin,
    .unpin = sl_arenas_unpin,
    .download = cuda_download,
    .store = cuda_store,
    .pool = cuda_pool,
    .reserve_events = cuda_reserve_events,
    .record = cuda_record,
    .wait = cuda_wait,
    .await = cuda_await,
    .submit = cuda_submit,
    .resolve = cuda_resolve,
    .window = cuda_window,
    .synchronize = cuda_synchronize,
    .reserve_stamps = cuda_reserve_stamps,
    .stamp = cuda_stamp,
    .read_stamps = cuda_read_stamps,
    .stats = cuda_stats,
};
