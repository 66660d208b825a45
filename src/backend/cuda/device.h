/* device.h: a GPU at work. Private to the files of this folder that make up the device: device.c (the table, kernels,
 * copies), order.c (streams and events), arenas.c (memory), cuda_stamps.c (times), cuda_errors.c (errors).
 *
 * COMPUTE, TO_DEVICE and TO_HOST are CUDA streams, and COMM where ranks talk through NCCL (lane.c); the other streams
 * are threads of the host (host_queue.h) that start when they are first used. One thread submits; it alone calls
 * CUDA, but for downloads and stores while nothing is queued (sl_passages). */
#ifndef SL_BACKEND_CUDA_DEVICE_H
#define SL_BACKEND_CUDA_DEVICE_H

#include <pthread.h>
#include <stdatomic.h>

#include <cuda.h> /* types alone: the driver's functions are asked for by name */
#include <cuda_runtime_api.h>

#include "backend/cpu/memory.h"
#include "backend/cuda/gpu.h"
#include "backend/cuda/host_queue.h"
#include "backend/cuda/library.h"
#include "backend/ledger.h"

/* ---- order ---- */

/* The newest recording of an event. Waiting takes what it needs from here at once, so that a later recording moves no
 * wait that is still queued. */
typedef struct sl_cuda_event {
    int stream;       /* -1: never recorded */
    cudaEvent_t mark; /* of recordings on CUDA streams */
    uint32_t number;  /* of recordings on host queues */
} sl_cuda_event;

/* Words that GPU and host write for each other, in pinned memory. */
typedef struct sl_device_words {
    sl_queue_words queues[SL_STREAM_COUNT];
    _Alignas(64) _Atomic uint32_t finished_calls; /* kernels of COMPUTE that are done */
} sl_device_words;

typedef CUresult (*sl_stream_word)(CUstream stream, CUdeviceptr word, cuuint32_t value, unsigned flags);

/* ---- errors ---- */

#define SL_CALL_RING 4096

/* What was submitted to COMPUTE, for messages. Names are the graph's. */
typedef struct sl_call_note {
    sl_op op;
    const char *name, *layer;
} sl_call_note;

/* ---- memory ---- */

#define SL_STAGING_SLOTS 64
#define SL_STAGING_BYTES ((size_t)256 << 10) /* of one slot */

/* Pinned memory through which uploads pass. */
typedef struct sl_staging {
    uint8_t *base;
    cudaEvent_t free[SL_STAGING_SLOTS]; /* the slot's copy is done */
    int next;
} sl_staging;

/* Memory of the caller's that is pinned. */
#define SL_MAX_PINS 32
typedef struct sl_pin {
    const uint8_t *base; /* NULL: a free entry */
    size_t bytes;
} sl_pin;

#define SL_PASSAGES      16
#define SL_PASSAGE_SLOTS (SL_STAGING_SLOTS / SL_PASSAGES) /* of the staging memory, one behind the other */
#define SL_PASSAGE_BYTES (SL_PASSAGE_SLOTS * SL_STAGING_BYTES)
#define SL_PASSAGE_LEAST ((size_t)4 << 10) /* results of a step are smaller, and do not wait for uploads */

/* Ways between the caller's memory and the GPU's that several threads use at a time: each has a stream and a part of the
 * pinned memory of uploads, of which there are none meanwhile. */
typedef struct sl_passages {
    pthread_mutex_t lock;
    pthread_cond_t freed;
    bool open; /* lock and freed are made */
    bool taken[SL_PASSAGES];
    cudaStream_t streams[SL_PASSAGES];
} sl_passages;

/* What the GPU's memory holds beside the arena: context, code of kernels, libraries. */
typedef struct sl_overhead {
    sl_gpu_meter meter;
    uint64_t free_at_open, arena_bytes;
    uint64_t bytes;  /* as of `measured` */
    double measured; /* sl_now(); 0: never */
} sl_overhead;

typedef struct sl_cuda_stamps sl_cuda_stamps;

struct sl_device {
    sl_ledger ledger;
    sl_device_options options;
    int multiprocessors;
    void *map_maker; /* sl_cuda_args.map_maker */
    sl_cuda_libraries *libraries;
    sl_host_side host;

    cudaStream_t streams[SL_STREAM_COUNT]; /* NULL: a host queue */
    cudaStream_t transfer;                 /* downloads */
    sl_host_queue queues[SL_STREAM_COUNT]; /* of the streams that are none of CUDA's */
    cudaStream_t signals[SL_STREAM_COUNT]; /* one per open queue: carries the GPU's events to its `released` */
    sl_device_words *words;                /* pinned */
    sl_stream_word write_word, wait_word;  /* the driver's; NULL: not supported */
    uint32_t lane_marks[2];                /* lane.c: numbers written to the words of COMM so far */
    sl_cuda_event *events;
    sl_cuda_stamps *stamps; /* owned; NULL: nobody traces */

    uint8_t *device_arena; /* of cudaMalloc; under guard with canaries around the arena */
    sl_memory host_arena;
    bool pinned;                   /* the host arena is */
    uint8_t *bases[SL_TIER_COUNT]; /* of the arenas as kernels address them */
    sl_staging staging;
    sl_pin pins[SL_MAX_PINS];
    sl_passages passages;

    uint32_t call_count; /* of COMPUTE */
    sl_call_note *calls; /* the newest SL_CALL_RING, by number */
    atomic_flag dying;   /* `death` is being written, or was */
    char death[SL_MESSAGE_BYTES];

    sl_overhead *overhead; /* owned; changes where the device does not */
};

/* ---- cuda_errors.c ---- */

/* Every entry begins with it: SLUICE_ERR_FAILED with the first message once the device has failed; makes the GPU the
 * thread's. */
sluice_status sl_device_enter(sl_device *d);
/* Reports a CUDA error in `what`. One that kills the context is remembered: all later calls report it as well. */
sluice_status sl_device_failed(sl_device *d, cudaError_t error, const char *what);
/* After a kernel was submitted: whether that failed, or an earlier one has. */
sluice_status sl_device_launched(sl_device *d, const sl_call *c, sluice_status st);
/* Sets host.dead where the context is. */
void sl_device_look(void *device);
/* The message of a dead device; SLUICE_OK while it lives. */
sluice_status sl_device_alive(const sl_device *d);
/* Notes a call of COMPUTE that is about to be submitted, and makes the GPU count it when it is done. */
void sl_device_note_call(sl_device *d, const sl_call *c);
void sl_device_count_call(sl_device *d);

/* Runs a CUDA call; on an error the calling function reports it. */
#define SL_CUDA(d, call, what)                                                                                         \
    do {                                                                                                               \
        cudaError_t e_ = (call);                                                                                       \
        if (e_ != cudaSuccess) return sl_device_failed(d, e_, what);                                                   \
    } while (0)

/* ---- order.c ---- */

/* From the start, on every device. */
static inline bool sl_is_cuda_stream(sl_stream s)
{
    return s == SL_STREAM_COMPUTE || s == SL_STREAM_TO_DEVICE || s == SL_STREAM_TO_HOST;
}

/* Of this device: also COMM, where a communicator of the GPU has made it one (lane.h). */
static inline bool sl_on_cuda(const sl_device *d, sl_stream s)
{
    return d->streams[s] != NULL;
}

const char *sl_stream_name(sl_stream s);
void *sl_driver_function(const char *name); /* NULL where the driver has no such function */
sluice_status sl_order_open(sl_device *d);
void sl_order_close(sl_device *d); /* of what is open; waits for it */
/* The queue of a stream that is none of CUDA's, started where it is not. */
sluice_status sl_order_queue(sl_device *d, sl_stream s, sl_host_queue **out);
/* Makes a stream of the host one of CUDA's, for good, before anything was queued on it. */
sluice_status sl_order_make_cuda(sl_device *d, sl_stream s);
sluice_status sl_order_reserve(sl_device *d, int event_count);
sluice_status sl_order_record(sl_device *d, sl_stream s, int event);
sluice_status sl_order_wait(sl_device *d, sl_stream s, int event);
/* Block the submitting thread: until the newest recording of an event, until a CUDA stream is empty, until a stream of
 * either kind is, until all are. */
sluice_status sl_order_await(sl_device *d, int event);
sluice_status sl_order_await_cuda(sl_device *d, cudaStream_t s);
sluice_status sl_order_await_stream(sl_device *d, sl_stream s);
sluice_status sl_order_await_all(sl_device *d);
/* Until a mark recorded on some stream has come. */
sluice_status sl_order_await_mark(sl_device *d, cudaEvent_t mark);

/* ---- cuda_stamps.c: sl_backend.reserve_stamps, stamp and read_stamps ---- */

sluice_status sl_cuda_stamps_reserve(sl_device *d, int count);
sluice_status sl_cuda_stamp(sl_device *d, sl_stream stream, int index);
sluice_status sl_cuda_stamps_read(sl_device *d, double *seconds, int count);
void sl_cuda_stamps_free(sl_device *d);

/* ---- arenas.c ---- */

sluice_status sl_arenas_open(sl_device *d);
void sl_arenas_close(sl_device *d);
sluice_status sl_arenas_reserve(sl_device *d, sl_tier tier, uint64_t bytes);
/* Of a span that was checked, as the GPU and as the host address it; NULL: absent. */
static inline uint8_t *sl_device_address(const sl_device *d, sl_span s)
{
    return s.bytes > 0 ? d->bases[s.tier] + s.offset : NULL;
}
static inline uint8_t *sl_host_address(const sl_device *d, sl_span s)
{
    return s.bytes > 0 ? d->host.bases[s.tier] + s.offset : NULL;
}
sluice_status sl_arenas_upload(sl_device *d, sl_stream stream, sl_span dst, const void *src);
void sl_arenas_pin(sl_device *d, void *memory, size_t bytes);
void sl_arenas_unpin(sl_device *d, void *memory);
sluice_status sl_arenas_download(sl_device *d, void *dst, sl_span src);
sluice_status sl_arenas_store(sl_device *d, sl_span dst, const void *src);
/* Under guard: nothing was written outside the arenas. */
sluice_status sl_arenas_check(sl_device *d);

#endif
