/* emulated.c: see emulated.h. */
#include "support/cuda/emulated.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "backend/cpu/host_call.h"
#include "backend/cpu/memory.h"
#include "backend/cuda/args.h"
#include "backend/cuda/library.h"
#include "backend/failure.h"
#include "backend/ledger.h"
#include "backend/stamps.h"
#include "core/alloc.h"

#define MULTIPROCESSORS 3 /* few, so that the loops over a grid go round */

struct sl_device {
    sl_ledger ledger;
    bool guard;
    sl_host_kernels kernels; /* of the CPU */
    sl_pool *pool;
    sl_memory arenas[SL_TIER_COUNT];
    int arena_files[SL_TIER_COUNT]; /* borrowed; > 0: backs the arena */
    sl_failure failure;             /* of submitted work */
    sl_cuda_libraries *libraries;
    sl_stamps stamps;
};

/* ---- opening and closing ---- */

static sluice_status emulated_open(const sl_device_options *options, sl_device **out)
{
    sluice_status st;
    sl_device *d = sl_alloc(sizeof *d, "emulated cuda device");
    if (d == NULL) return SLUICE_ERR_NO_MEMORY;
    sl_ledger_init(&d->ledger);
    d->guard = options->guard;
    memcpy(d->arena_files, options->arena_files, sizeof d->arena_files);
    if ((st = sl_host_kernels_of(options->isa, &d->kernels)) != SLUICE_OK) goto free_device;
    if ((st = sl_pool_create(options->threads, &d->pool)) != SLUICE_OK) goto free_device;
    if ((st = sl_failure_open(&d->failure)) != SLUICE_OK) goto destroy_pool;
    if ((st = sl_cuda_libraries_open(options->tf32, &options->log, &d->libraries)) != SLUICE_OK) goto close_failure;
    *out = d;
    return SLUICE_OK;
close_failure:
    sl_failure_close(&d->failure);
destroy_pool:
    sl_pool_destroy(d->pool);
free_device:
    sl_free(d);
    return st;
}

static void emulated_close(sl_device *d)
{
    if (d == NULL) return;
    (void)sl_stamps_reserve(&d->stamps, 0);
    sl_cuda_libraries_close(d->libraries);
    sl_failure_close(&d->failure);
    for (int t = 0; t < SL_TIER_COUNT; t++) sl_memory_unmap(&d->arenas[t]);
    sl_pool_destroy(d->pool);
    sl_free(d);
}

static bool emulated_supports(sl_op op)
{
    return (unsigned)op < SL_OP_COUNT && (sl_ops[op].view || sl_cuda_kernels[op] != NULL);
}

/* ---- arenas ---- */

static sluice_status emulated_reserve(sl_device *d, sl_tier tier, uint64_t bytes)
{
    SL_TRY(sl_ledger_reserve(&d->ledger, tier, bytes));
    if (bytes == 0) return SLUICE_OK;
    sl_memory_options o = { .guard = d->guard, .paged = true, .file = d->arena_files[tier] };
    errno = ENOMEM;
    if (bytes <= SIZE_MAX / 2 && sl_memory_map(&d->arenas[tier], (size_t)bytes, &o)) return SLUICE_OK;
    d->ledger.reserved[tier] = 0; /* no span may point there */
    return sl_fail(SLUICE_ERR_NO_MEMORY, "the %s arena needs %" PRIu64 " bytes: %s", sl_tier_name(tier), bytes,
                   strerror(errno));
}

/* The span was checked: it lies in the arena. */
static void *address(const sl_device *d, sl_span s)
{
    return s.bytes > 0 ? d->arenas[s.tier].base + s.offset : NULL;
}

/* ---- work ---- */

/* What kernels leave in the workspace is nobody's: poisoned before each call, under guard. */
static void poison_workspace(const sl_device *d, sl_span s)
{
    if (d->guard && s.bytes > 0) memset(address(d, s), 0xff, (size_t)s.bytes);
}

static sluice_status run_on_gpu(sl_device *d, const sl_call *c, uint8_t *const bases[SL_TIER_COUNT])
{
    sl_cuda_args a;
    if (sl_cuda_kernels[c->op] == NULL)
        return sl_fail(SLUICE_ERR_FAILED, "%s %s: no kernel on the CUDA backend", sl_ops[c->op].name,
                       c->name ? c->name : "");
    poison_workspace(d, c->workspace);
    sl_cuda_args_fill(&a, c, bases);
    a.libraries = d->libraries;
    a.multiprocessors = MULTIPROCESSORS;
    return sl_cuda_kernels[c->op](&a);
}

static bool is_gpu_stream(sl_stream stream)
{
    return stream == SL_STREAM_COMPUTE || stream == SL_STREAM_TO_DEVICE || stream == SL_STREAM_TO_HOST;
}

static sluice_status emulated_run(sl_device *d, sl_stream stream, const sl_call *c)
{
    SL_TRY(sl_ledger_call(&d->ledger, stream, c));
    uint8_t *bases[SL_TIER_COUNT];
    for (int t = 0; t < SL_TIER_COUNT; t++) bases[t] = d->arenas[t].base;
    if (is_gpu_stream(stream)) return run_on_gpu(d, c, bases);
    SL_TRY(sl_host_call_check(&d->kernels, c));
    sl_host_call_run(&d->kernels, c, bases, d->pool);
    return SLUICE_OK;
}

static sluice_status emulated_copy(sl_device *d, sl_stream stream, sl_span dst, sl_span src)
{
    SL_TRY(sl_ledger_copy(&d->ledger, stream, dst, src));
    if (src.bytes > 0) memcpy(address(d, dst), address(d, src), (size_t)src.bytes);
    return SLUICE_OK;
}

static sluice_status emulated_upload(sl_device *d, sl_stream stream, sl_span dst, const void *src)
{
    SL_TRY(sl_ledger_stream(stream));
    SL_TRY(sl_ledger_transfer(&d->ledger, "upload", dst));
    if (dst.bytes > 0) memcpy(address(d, dst), src, (size_t)dst.bytes);
    return SLUICE_OK;
}

static sluice_status emulated_download(sl_device *d, void *dst, sl_span src)
{
    SL_TRY(sl_ledger_transfer(&d->ledger, "download", src));
    if (src.bytes > 0) memcpy(dst, address(d, src), (size_t)src.bytes);
    return SLUICE_OK;
}

static sluice_status emulated_store(sl_device *d, sl_span dst, const void *src)
{
    SL_TRY(sl_ledger_transfer(&d->ledger, "store", dst));
    if (dst.bytes > 0) memcpy(address(d, dst), src, (size_t)dst.bytes);
    return SLUICE_OK;
}

static sl_pool *emulated_pool(const sl_device *d)
{
    return d->pool;
}

/* ---- events: all work is done when it was queued ---- */

static sluice_status emulated_reserve_events(sl_device *d, int event_count)
{
    return sl_ledger_events(&d->ledger, event_count);
}

static sluice_status emulated_record(sl_device *d, sl_stream stream, int event)
{
    return sl_ledger_event(&d->ledger, stream, event);
}

static sluice_status emulated_wait(sl_device *d, sl_stream stream, int event)
{
    return sl_ledger_event(&d->ledger, stream, event);
}

static sluice_status emulated_await(sl_device *d, int event)
{
    SL_TRY(sl_ledger_event(&d->ledger, SL_STREAM_COMPUTE, event));
    return sl_failure_take(&d->failure);
}

/* ---- host work ---- */

static sluice_status emulated_submit(sl_device *d, sl_stream stream, sluice_status (*work)(void *user), void *user)
{
    SL_TRY(sl_ledger_stream(stream));
    sl_failure_run(&d->failure, work, user);
    return SLUICE_OK;
}

static sluice_status emulated_resolve(sl_device *d, const char *what, sl_span span, void **out)
{
    SL_TRY(sl_ledger_transfer(&d->ledger, what, span));
    if (span.bytes > 0 && span.tier != SL_TIER_HOST)
        return sl_fail(SLUICE_ERR_FAILED, "%s: the host cannot reach the %s tier", what, sl_tier_name(span.tier));
    *out = address(d, span);
    return SLUICE_OK;
}

static bool emulated_window(const sl_device *d, sl_tier tier, sl_window *out)
{
    const sl_memory *m = tier == SL_TIER_HOST ? &d->arenas[tier] : NULL;
    if (m == NULL || m->mapping == NULL || !m->shared) return false;
    *out = (sl_window){ (uint64_t)(m->base - m->mapping), m->bytes };
    return true;
}

static sluice_status emulated_synchronize(sl_device *d)
{
    SL_TRY(sl_failure_take(&d->failure));
    for (int t = 0; t < SL_TIER_COUNT; t++) {
        if (!sl_memory_is_intact(&d->arenas[t]))
            return sl_fail(SLUICE_ERR_FAILED, "something was written outside the %s arena of %zu bytes",
                           sl_tier_name((sl_tier)t), d->arenas[t].bytes);
    }
    return SLUICE_OK;
}

static sluice_status emulated_reserve_stamps(sl_device *d, int count)
{
    return sl_stamps_reserve(&d->stamps, count);
}

static sluice_status emulated_stamp(sl_device *d, sl_stream stream, int index)
{
    SL_TRY(sl_ledger_stream(stream));
    return sl_stamps_set(&d->stamps, index);
}

static sluice_status emulated_read_stamps(sl_device *d, double *seconds, int count)
{
    return sl_stamps_read(&d->stamps, seconds, count);
}

static void emulated_stats(const sl_device *d, sl_device_stats *out)
{
    sl_ledger_stats(&d->ledger, out);
}

const sl_backend sl_emulated_cuda_backend = {
    .name = "cuda emulated",
    .open = emulated_open,
    .close = emulated_close,
    .supports = emulated_supports,
    .workspace = sl_cuda_call_workspace,
    .reserve = emulated_reserve,
    .run = emulated_run,
    .copy = emulated_copy,
    .upload = emulated_upload,
    .download = emulated_download,
    .store = emulated_store,
    .pool = emulated_pool,
    .reserve_events = emulated_reserve_events,
    .record = emulated_record,
    .wait = emulated_wait,
    .await = emulated_await,
    .submit = emulated_submit,
    .resolve = emulated_resolve,
    .window = emulated_window,
    .synchronize = emulated_synchronize,
    .reserve_stamps = emulated_reserve_stamps,
    .stamp = emulated_stamp,
    .read_stamps = emulated_read_stamps,
    .stats = emulated_stats,
};
