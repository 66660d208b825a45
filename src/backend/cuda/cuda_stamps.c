/* cuda_stamps.c: times for traces (sl_backend.stamp), of two clocks made one.
 *
 * On a CUDA stream a stamp is an event of CUDA with its time taken by the GPU; on a host queue it is the host's clock.
 * The two are tied together when stamps are reserved and again when they are read, both times with nothing under way: a
 * mark is recorded on an empty stream between two looks at the host's clock. In between the clocks are taken to run
 * evenly, so the host's times are stretched to the GPU's. What is left is half the time such a mark takes, a few
 * microseconds. */
#include "backend/cuda/device.h"
#include "core/alloc.h"
#include "core/thread.h"

#define TRIES 8 /* the quickest mark of so many is the tie */

typedef struct tie {
    cudaEvent_t mark;
    double host; /* sl_now() of the same moment */
} tie;

typedef struct stamp {
    bool set, on_cuda;
    cudaEvent_t mark; /* of CUDA streams */
    double host;      /* sl_now(), of host queues */
} stamp;

struct sl_cuda_stamps {
    stamp *list; /* owned */
    int count;   /* of those that have a mark */
    tie first, last;
};

/* Marks on an empty stream until one was quick; *host is the middle of the time it took. */
static sluice_status make_tie(sl_device *d, tie *t)
{
    double best = -1;
    for (int i = 0; i < TRIES; i++) {
        cudaEvent_t mark;
        SL_CUDA(d, cudaEventCreate(&mark), "making an event");
        double before = sl_now();
        cudaError_t error = cudaEventRecord(mark, d->streams[SL_STREAM_COMPUTE]);
        if (error == cudaSuccess) error = cudaEventSynchronize(mark);
        double after = sl_now();
        bool better = error == cudaSuccess && (best < 0 || after - before < best);
        cudaEvent_t worse = better ? t->mark : mark;
        if (worse != NULL) (void)cudaEventDestroy(worse);
        if (error != cudaSuccess) return sl_device_failed(d, error, "reading the clock of the GPU");
        if (!better) continue;
        best = after - before;
        t->mark = mark;
        t->host = before + best / 2;
    }
    return SLUICE_OK;
}

static void destroy_tie(tie *t)
{
    if (t->mark != NULL) (void)cudaEventDestroy(t->mark);
    t->mark = NULL;
}

void sl_cuda_stamps_free(sl_device *d)
{
    sl_cuda_stamps *s = d->stamps;
    if (s == NULL) return;
    for (int k = 0; k < SL_STREAM_COUNT; k++) sl_host_queue_drain(&d->queues[k]); /* a queue may yet write one */
    for (int i = 0; i < s->count; i++) (void)cudaEventDestroy(s->list[i].mark);
    destroy_tie(&s->first);
    destroy_tie(&s->last);
    sl_free(s->list);
    sl_free(s);
    d->stamps = NULL;
}

static sluice_status make_marks(sl_device *d, sl_cuda_stamps *s, int count)
{
    for (; s->count < count; s->count++) SL_CUDA(d, cudaEventCreate(&s->list[s->count].mark), "making an event");
    return SLUICE_OK;
}

sluice_status sl_cuda_stamps_reserve(sl_device *d, int count)
{
    sl_cuda_stamps_free(d);
    if (count == 0) return SLUICE_OK;
    if (count < 0) return sl_fail(SLUICE_ERR_FAILED, "%d stamps asked for", count);
    sl_cuda_stamps *s = d->stamps = sl_alloc(sizeof *s, "times of a trace");
    if (s == NULL) return SLUICE_ERR_NO_MEMORY;
    s->list = sl_alloc_array((size_t)count, sizeof *s->list, "times of a trace");
    if (s->list == NULL) return SLUICE_ERR_NO_MEMORY;
    SL_TRY(make_marks(d, s, count));
    SL_TRY(sl_order_await_all(d));
    return make_tie(d, &s->first);
}

sluice_status sl_cuda_stamp(sl_device *d, sl_stream stream, int index)
{
    sl_cuda_stamps *s = d->stamps;
    sl_host_queue *q;
    if (s == NULL || index < 0 || index >= s->count)
        return sl_fail(SLUICE_ERR_FAILED, "there is no stamp %d: %d are reserved", index, s != NULL ? s->count : 0);
    if (sl_on_cuda(d, stream)) {
        SL_CUDA(d, cudaEventRecord(s->list[index].mark, d->streams[stream]), "taking the time");
    } else {
        SL_TRY(sl_order_queue(d, stream, &q));
        sl_host_queue_stamp(q, &s->list[index].host);
    }
    s->list[index].set = true;
    s->list[index].on_cuda = sl_on_cuda(d, stream);
    return SLUICE_OK;
}

/* Seconds from the first tie to a mark, by the GPU's clock. */
static sluice_status since_first(sl_device *d, cudaEvent_t mark, double *out)
{
    float milliseconds;
    SL_CUDA(d, cudaEventElapsedTime(&milliseconds, d->stamps->first.mark, mark), "reading a time");
    *out = (double)milliseconds / 1000;
    return SLUICE_OK;
}

sluice_status sl_cuda_stamps_read(sl_device *d, double *seconds, int count)
{
    sl_cuda_stamps *s = d->stamps;
    double elapsed = 0;
    if (s == NULL || count < 0 || count > s->count)
        return sl_fail(SLUICE_ERR_FAILED, "%d stamps asked for, %d are reserved", count, s != NULL ? s->count : 0);
    destroy_tie(&s->last);
    SL_TRY(make_tie(d, &s->last));
    SL_TRY(since_first(d, s->last.mark, &elapsed));
    double span = s->last.host - s->first.host, stretch = span > 0 ? elapsed / span : 1;
    for (int i = 0; i < count; i++) {
        seconds[i] = -1;
        if (!s->list[i].set) continue;
        if (s->list[i].on_cuda)
            SL_TRY(since_first(d, s->list[i].mark, &seconds[i]));
        else
            seconds[i] = (s->list[i].host - s->first.host) * stretch;
    }
    return SLUICE_OK;
}
