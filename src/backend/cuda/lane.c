/* lane.c: see lane.h. */
#include "backend/cuda/lane.h"

#include <inttypes.h>

#include "backend/cuda/device.h"

/* The words of the host queue that COMM is not any more. */
static _Atomic uint32_t *word_of(const sl_device *d, sl_lane_mark which)
{
    sl_queue_words *w = &d->words->queues[SL_STREAM_COMM];
    return which == SL_LANE_BEGUN ? &w->released : &w->reached;
}

static void lane_close(sl_device *d, sl_lane *lane)
{
    (void)cudaSetDevice(d->options.ordinal);
    if (lane->staging != NULL) (void)cudaFree(lane->staging);
    (void)cudaGetLastError();
    *lane = (sl_lane){ .stream = NULL };
}

static sluice_status lane_open(sl_device *d, uint64_t staging_bytes, sl_lane *out)
{
    SL_TRY(sl_device_enter(d));
    SL_TRY(sl_order_make_cuda(d, SL_STREAM_COMM));
    *out = (sl_lane){ .stream = d->streams[SL_STREAM_COMM] };
    for (int i = 0; i < SL_LANE_MARKS; i++) {
        atomic_store(word_of(d, (sl_lane_mark)i), 0);
        d->lane_marks[i] = 0;
        out->marks[i] = word_of(d, (sl_lane_mark)i);
    }
    SL_CUDA(d, cudaMalloc((void **)&out->staging, (size_t)staging_bytes), "memory for contributions of other ranks");
    return SLUICE_OK;
}

static sluice_status lane_address(sl_device *d, const char *what, sl_span span, void **out)
{
    SL_TRY(sl_ledger_transfer(&d->ledger, what, span));
    if (span.bytes > 0 && d->bases[span.tier] == NULL)
        return sl_fail(SLUICE_ERR_FAILED,
                       "%s: %" PRIu64 " bytes at offset %" PRIu64
                       " of the %s tier are not pinned, and the GPU does not reach them",
                       what, span.bytes, span.offset, sl_tier_name(span.tier));
    *out = sl_device_address(d, span);
    return SLUICE_OK;
}

static sluice_status lane_copy(sl_device *d, void *to, const void *from, uint64_t bytes)
{
    SL_TRY(sl_device_enter(d));
    SL_CUDA(d, cudaMemcpyAsync(to, from, (size_t)bytes, cudaMemcpyDefault, d->streams[SL_STREAM_COMM]), "copy");
    return SLUICE_OK;
}

static sluice_status lane_add(sl_device *d, const sl_contributions *c)
{
    SL_TRY(sl_device_enter(d));
    return sl_cuda_add_contributions(d->streams[SL_STREAM_COMM], d->multiprocessors, c);
}

/* Runs in a thread of the driver, where there are no writes of words. */
static void CUDART_CB count_up(void *word)
{
    atomic_fetch_add_explicit((_Atomic uint32_t *)word, 1, memory_order_release);
}

static sluice_status lane_mark(sl_device *d, sl_lane_mark which)
{
    cudaStream_t s = d->streams[SL_STREAM_COMM];
    cudaError_t error;
    SL_TRY(sl_device_enter(d));
    if (d->write_word != NULL)
        error = (cudaError_t)d->write_word(s, (CUdeviceptr)(uintptr_t)word_of(d, which), ++d->lane_marks[which],
                                           CU_STREAM_WRITE_VALUE_DEFAULT);
    else
        error = cudaLaunchHostFunc(s, count_up, (void *)word_of(d, which));
    return error == cudaSuccess ? SLUICE_OK : sl_device_failed(d, error, "marking the progress of a collective");
}

typedef struct report {
    sluice_status status;
    const char *message;
} report;

static sluice_status say(void *user)
{
    const report *r = user;
    return sl_fail(r->status, "%s", r->message);
}

static void lane_fail(sl_device *d, sluice_status status, const char *message)
{
    report r = { status, message };
    sl_failure_run(&d->host.failure, say, &r);
}

const sl_lane_ops sl_cuda_lane_ops = {
    .open = lane_open,
    .close = lane_close,
    .address = lane_address,
    .copy = lane_copy,
    .add = lane_add,
    .mark = lane_mark,
    .fail = lane_fail,
};
