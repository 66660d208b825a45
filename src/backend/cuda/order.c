/* order.c: streams and events of the device.
 *
 * Between CUDA streams an event is an event of CUDA. From a CUDA stream to a host queue it travels over a stream that
 * the queue has for this alone: it waits for the event and then sets the queue's word `released`. As the signals of a
 * queue come in the order of its waits, one word and one stream serve all of them. From a host queue to a CUDA stream
 * the stream waits until the queue's word `reached` has passed the recording's number.
 *
 * Work is submitted in an order that is itself a legal order of execution, so whatever waits, waits for something
 * submitted before it: a stream that blocks, a full ring or a full launch queue delays, and cannot lock up. */
#include <string.h>

#include "backend/cuda/device.h"
#include "backend/cuda/spin_wait.h"
#include "core/alloc.h"

const char *sl_stream_name(sl_stream s)
{
    static const char *const names[SL_STREAM_COUNT] = {
        [SL_STREAM_COMPUTE] = "compute",       [SL_STREAM_TO_DEVICE] = "to-device", [SL_STREAM_TO_HOST] = "to-host",
        [SL_STREAM_COMM] = "communication",    [SL_STREAM_UPDATE] = "update",       [SL_STREAM_DISK_READ] = "disk-read",
        [SL_STREAM_DISK_WRITE] = "disk-write",
    };
    return (unsigned)s < SL_STREAM_COUNT ? names[s] : "unknown";
}

/* ---- opening ---- */

static sluice_status create_stream(sl_device *d, int priority, cudaStream_t *out)
{
    SL_CUDA(d, cudaStreamCreateWithPriority(out, cudaStreamNonBlocking, priority), "making a stream");
    return SLUICE_OK;
}

void *sl_driver_function(const char *name)
{
    void *function = NULL;
    enum cudaDriverEntryPointQueryResult found;
#if CUDART_VERSION >= 12050
    cudaError_t error = cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &found);
#else
    cudaError_t error = cudaGetDriverEntryPoint(name, &function, cudaEnableDefault, &found);
#endif
    (void)cudaGetLastError();
    return error == cudaSuccess && found == cudaDriverEntryPointSuccess ? function : NULL;
}

/* Waits on words and writes of words are tried once: some virtual GPUs do not have them. */
static void find_word_functions(sl_device *d)
{
    cudaStream_t s = d->streams[SL_STREAM_COMPUTE];
    CUdeviceptr word = (CUdeviceptr)(uintptr_t)&d->words->finished_calls;
    *(void **)&d->write_word = sl_driver_function("cuStreamWriteValue32");
    *(void **)&d->wait_word = sl_driver_function("cuStreamWaitValue32");
    if (d->write_word != NULL && d->wait_word != NULL &&
        d->write_word(s, word, 0, CU_STREAM_WRITE_VALUE_DEFAULT) == CUDA_SUCCESS &&
        d->wait_word(s, word, 0, CU_STREAM_WAIT_VALUE_GEQ) == CUDA_SUCCESS && cudaStreamSynchronize(s) == cudaSuccess)
        return;
    d->write_word = d->wait_word = NULL;
    sl_log_write(&d->options.log, SLUICE_LOG_DETAIL, "GPU %d cannot wait for words in memory: the host waits instead",
                 d->options.ordinal);
}

sluice_status sl_order_open(sl_device *d)
{
    int least, greatest;
    SL_CUDA(d, cudaHostAlloc((void **)&d->words, sizeof *d->words, cudaHostAllocPortable | cudaHostAllocMapped),
            "pinned memory for events");
    memset((void *)d->words, 0, sizeof *d->words);
    SL_CUDA(d, cudaDeviceGetStreamPriorityRange(&least, &greatest), "priorities of streams");
    for (int s = 0; s < SL_STREAM_COUNT; s++)
        if (sl_is_cuda_stream((sl_stream)s))
            SL_TRY(create_stream(d, s == SL_STREAM_COMPUTE ? greatest : least, &d->streams[s]));
    SL_TRY(create_stream(d, least, &d->transfer));
    find_word_functions(d);
    return SLUICE_OK;
}

/* Memory for its thread is taken when a stream is first used: most jobs use one or none of them. */
sluice_status sl_order_queue(sl_device *d, sl_stream s, sl_host_queue **out)
{
    int least, greatest;
    if (d->queues[s].side == NULL) {
        SL_CUDA(d, cudaDeviceGetStreamPriorityRange(&least, &greatest), "priorities of streams");
        if (d->signals[s] == NULL) SL_TRY(create_stream(d, greatest, &d->signals[s]));
        SL_TRY(sl_host_queue_open(&d->queues[s], &d->host, &d->words->queues[s]));
    }
    *out = &d->queues[s];
    return SLUICE_OK;
}

sluice_status sl_order_make_cuda(sl_device *d, sl_stream s)
{
    int least, greatest;
    if (d->streams[s] != NULL) return SLUICE_OK;
    if (d->queues[s].side != NULL)
        return sl_fail(SLUICE_ERR_FAILED, "the %s stream is in use by the host already", sl_stream_name(s));
    SL_CUDA(d, cudaDeviceGetStreamPriorityRange(&least, &greatest), "priorities of streams");
    return create_stream(d, greatest, &d->streams[s]);
}

/* ---- closing ---- */

static void destroy_stream(cudaStream_t *s)
{
    if (*s != NULL) (void)cudaStreamDestroy(*s);
    *s = NULL;
}

/* Queues first: what a CUDA stream waits for comes from them. On a dead device nothing waits, and CUDA refuses what it
 * is told at once. */
void sl_order_close(sl_device *d)
{
    for (int s = 0; s < SL_STREAM_COUNT; s++) sl_host_queue_close(&d->queues[s]);
    for (int s = 0; s < SL_STREAM_COUNT && !atomic_load(&d->host.dead); s++) {
        if (d->streams[s] != NULL) (void)sl_order_await_cuda(d, d->streams[s]);
        if (d->signals[s] != NULL) (void)sl_order_await_cuda(d, d->signals[s]);
    }
    for (int e = 0; d->events != NULL && e < d->ledger.event_count; e++)
        if (d->events[e].mark != NULL) (void)cudaEventDestroy(d->events[e].mark);
    sl_free(d->events);
    for (int s = 0; s < SL_STREAM_COUNT; s++) {
        destroy_stream(&d->streams[s]);
        destroy_stream(&d->signals[s]);
    }
    destroy_stream(&d->transfer);
    if (d->words != NULL) (void)cudaFreeHost((void *)d->words);
}

/* ---- events ---- */

sluice_status sl_order_reserve(sl_device *d, int event_count)
{
    d->events = sl_alloc_array((size_t)event_count, sizeof *d->events, "events");
    if (d->events == NULL) return SLUICE_ERR_NO_MEMORY;
    for (int e = 0; e < event_count; e++) {
        d->events[e].stream = -1;
        SL_CUDA(d, cudaEventCreateWithFlags(&d->events[e].mark, cudaEventDisableTiming), "making an event");
    }
    return SLUICE_OK;
}

sluice_status sl_order_record(sl_device *d, sl_stream s, int event)
{
    sl_cuda_event *e = &d->events[event];
    sl_host_queue *q;
    if (sl_on_cuda(d, s)) {
        SL_CUDA(d, cudaEventRecord(e->mark, d->streams[s]), "recording an event");
    } else {
        SL_TRY(sl_order_queue(d, s, &q));
        e->number = sl_host_queue_record(q);
    }
    e->stream = (int)s;
    return SLUICE_OK;
}

static sluice_status cuda_waits_for_queue(sl_device *d, cudaStream_t s, const sl_cuda_event *e)
{
    const _Atomic uint32_t *word = &d->words->queues[e->stream].reached;
    if (d->wait_word == NULL) {
        sl_host_side_await(&d->host, word, e->number);
        return sl_device_alive(d);
    }
    CUresult error = d->wait_word(s, (CUdeviceptr)(uintptr_t)word, e->number, CU_STREAM_WAIT_VALUE_GEQ);
    return error == CUDA_SUCCESS ? SLUICE_OK : sl_device_failed(d, (cudaError_t)error, "waiting for the host");
}

/* Runs in a thread of the driver, where there are no writes of words. Signals come in order, so counting is enough. */
static void CUDART_CB count_up(void *word)
{
    atomic_fetch_add_explicit((_Atomic uint32_t *)word, 1, memory_order_release);
}

static sluice_status queue_waits_for_cuda(sl_device *d, sl_stream s, const sl_cuda_event *e)
{
    sl_host_queue *q;
    SL_TRY(sl_order_queue(d, s, &q));
    _Atomic uint32_t *word = &q->words->released;
    cudaError_t error = cudaStreamWaitEvent(d->signals[s], e->mark, 0);
    if (error == cudaSuccess && d->write_word != NULL)
        error = (cudaError_t)d->write_word(d->signals[s], (CUdeviceptr)(uintptr_t)word, q->awaited + 1,
                                           CU_STREAM_WRITE_VALUE_DEFAULT);
    else if (error == cudaSuccess)
        error = cudaLaunchHostFunc(d->signals[s], count_up, (void *)word);
    if (error != cudaSuccess) return sl_device_failed(d, error, "signalling the host");
    sl_host_queue_wait(q, word, ++q->awaited);
    return SLUICE_OK;
}

static sluice_status queue_waits_for_queue(sl_device *d, sl_stream s, const sl_cuda_event *e)
{
    sl_host_queue *q;
    SL_TRY(sl_order_queue(d, s, &q));
    sl_host_queue_wait(q, &d->words->queues[e->stream].reached, e->number);
    return SLUICE_OK;
}

/* One that was never recorded is not waited for; within a stream all is in order anyway. */
sluice_status sl_order_wait(sl_device *d, sl_stream s, int event)
{
    const sl_cuda_event *e = &d->events[event];
    if (e->stream < 0 || e->stream == (int)s) return SLUICE_OK;
    bool from_cuda = sl_on_cuda(d, (sl_stream)e->stream);
    if (!sl_on_cuda(d, s)) return from_cuda ? queue_waits_for_cuda(d, s, e) : queue_waits_for_queue(d, s, e);
    if (!from_cuda) return cuda_waits_for_queue(d, d->streams[s], e);
    SL_CUDA(d, cudaStreamWaitEvent(d->streams[s], e->mark, 0), "waiting for an event");
    return SLUICE_OK;
}

/* ---- the submitting thread waits ---- */

/* "Not ready" is no error, but CUDA remembers it like one, and the next look for errors would find it. */
static bool is_pending(cudaError_t error)
{
    if (error != cudaErrorNotReady) return false;
    (void)cudaGetLastError();
    return true;
}

sluice_status sl_order_await_mark(sl_device *d, cudaEvent_t mark)
{
    sl_spin_wait wait = { 0 };
    cudaError_t error;
    while (is_pending(error = cudaEventQuery(mark))) (void)sl_spin_wait_once(&wait);
    return error == cudaSuccess ? SLUICE_OK : sl_device_failed(d, error, "waiting for the GPU");
}

sluice_status sl_order_await_cuda(sl_device *d, cudaStream_t s)
{
    sl_spin_wait wait = { 0 };
    cudaError_t error;
    while (is_pending(error = cudaStreamQuery(s))) (void)sl_spin_wait_once(&wait);
    return error == cudaSuccess ? SLUICE_OK : sl_device_failed(d, error, "waiting for the GPU");
}

sluice_status sl_order_await_stream(sl_device *d, sl_stream s)
{
    if (sl_on_cuda(d, s)) return sl_order_await_cuda(d, d->streams[s]);
    sl_host_queue_drain(&d->queues[s]);
    return sl_device_alive(d);
}

sluice_status sl_order_await(sl_device *d, int event)
{
    const sl_cuda_event *e = &d->events[event];
    if (e->stream < 0) return SLUICE_OK;
    if (sl_on_cuda(d, (sl_stream)e->stream)) return sl_order_await_mark(d, e->mark);
    sl_host_side_await(&d->host, &d->words->queues[e->stream].reached, e->number);
    return sl_device_alive(d);
}

/* Nothing new is submitted meanwhile, so one stream after the other will do. */
sluice_status sl_order_await_all(sl_device *d)
{
    for (int s = 0; s < SL_STREAM_COUNT; s++) SL_TRY(sl_order_await_stream(d, (sl_stream)s));
    return SLUICE_OK;
}
