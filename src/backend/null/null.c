/* null.c: the backend that computes nothing. It checks and counts what it is handed exactly as the CPU backend does and
 * takes no memory for the arenas, so that a plan far larger than this machine can be followed to its end. Downloads
 * give zeros. */
#include <string.h>

#include "backend/cpu/cpu_workspace.h"
#include "backend/failure.h"
#include "backend/ledger.h"
#include "backend/stamps.h"
#include "core/alloc.h"

struct sl_device {
    sl_ledger ledger;
    sl_failure failure; /* of submitted work */
    sl_stamps stamps;
};

static sluice_status null_open(const sl_device_options *options, sl_device **out)
{
    (void)options;
    sl_device *d = sl_alloc(sizeof *d, "null device");
    if (d == NULL) return SLUICE_ERR_NO_MEMORY;
    sl_ledger_init(&d->ledger);
    sluice_status st = sl_failure_open(&d->failure);
    if (st != SLUICE_OK) {
        sl_free(d);
        return st;
    }
    *out = d;
    return SLUICE_OK;
}

static void null_close(sl_device *d)
{
    if (d == NULL) return;
    sl_failure_close(&d->failure);
    (void)sl_stamps_reserve(&d->stamps, 0);
    sl_free(d);
}

static bool null_supports(sl_op op)
{
    return (unsigned)op < SL_OP_COUNT;
}

static sluice_status null_reserve(sl_device *d, sl_tier tier, uint64_t bytes)
{
    return sl_ledger_reserve(&d->ledger, tier, bytes);
}

static sluice_status null_run(sl_device *d, sl_stream stream, const sl_call *call)
{
    return sl_ledger_call(&d->ledger, stream, call);
}

static sluice_status null_copy(sl_device *d, sl_stream stream, sl_span dst, sl_span src)
{
    return sl_ledger_copy(&d->ledger, stream, dst, src);
}

static sluice_status null_upload(sl_device *d, sl_stream stream, sl_span dst, const void *src)
{
    (void)src;
    SL_TRY(sl_ledger_stream(stream));
    return sl_ledger_transfer(&d->ledger, "upload", dst);
}

static sluice_status null_download(sl_device *d, void *dst, sl_span src)
{
    SL_TRY(sl_ledger_transfer(&d->ledger, "download", src));
    memset(dst, 0, (size_t)src.bytes);
    return SLUICE_OK;
}

static sluice_status null_store(sl_device *d, sl_span dst, const void *src)
{
    (void)src;
    return sl_ledger_transfer(&d->ledger, "store", dst);
}

static sl_pool *null_pool(const sl_device *d)
{
    (void)d;
    return NULL;
}

static sluice_status null_reserve_events(sl_device *d, int event_count)
{
    return sl_ledger_events(&d->ledger, event_count);
}

/* Nothing is ever under way, so recording and waiting are the check alone. */
static sluice_status null_event(sl_device *d, sl_stream stream, int event)
{
    return sl_ledger_event(&d->ledger, stream, event);
}

static sluice_status null_await(sl_device *d, int event)
{
    SL_TRY(sl_ledger_event(&d->ledger, SL_STREAM_COMPUTE, event));
    return sl_failure_take(&d->failure);
}

static sluice_status null_submit(sl_device *d, sl_stream stream, sluice_status (*work)(void *user), void *user)
{
    SL_TRY(sl_ledger_stream(stream));
    sl_failure_run(&d->failure, work, user);
    return SLUICE_OK;
}

/* There is no memory, so there is no address. */
static sluice_status null_resolve(sl_device *d, const char *what, sl_span span, void **out)
{
    SL_TRY(sl_ledger_transfer(&d->ledger, what, span));
    *out = NULL;
    return SLUICE_OK;
}

static bool null_window(const sl_device *d, sl_tier tier, sl_window *out)
{
    (void)d, (void)tier, (void)out;
    return false;
}

static sluice_status null_synchronize(sl_device *d)
{
    return sl_failure_take(&d->failure);
}

static sluice_status null_reserve_stamps(sl_device *d, int count)
{
    return sl_stamps_reserve(&d->stamps, count);
}

static sluice_status null_stamp(sl_device *d, sl_stream stream, int index)
{
    SL_TRY(sl_ledger_stream(stream));
    return sl_stamps_set(&d->stamps, index);
}

static sluice_status null_read_stamps(sl_device *d, double *seconds, int count)
{
    return sl_stamps_read(&d->stamps, seconds, count);
}

static void null_stats(const sl_device *d, sl_device_stats *out)
{
    sl_ledger_stats(&d->ledger, out);
}

const sl_backend sl_null_backend = {
    .name = "null",
    .open = null_open,
    .close = null_close,
    .supports = null_supports,
    .workspace = sl_cpu_workspace,
    .reserve = null_reserve,
    .run = null_run,
    .copy = null_copy,
    .upload = null_upload,
    .download = null_download,
    .store = null_store,
    .pool = null_pool,
    .reserve_events = null_reserve_events,
    .record = null_event,
    .wait = null_event,
    .await = null_await,
    .submit = null_submit,
    .resolve = null_resolve,
    .window = null_window,
    .synchronize = null_synchronize,
    .reserve_stamps = null_reserve_stamps,
    .stamp = null_stamp,
    .read_stamps = null_read_stamps,
    .stats = null_stats,
};
