/* lane.h: the COMM stream of a CUDA device as a communicator of the GPU uses it. Plain C: a table, so that such a
 * communicator is compiled and tested without CUDA.
 *
 * All but `fail` belong to the submitting thread. What they queue comes in order with all that is queued on COMM. */
#ifndef SL_BACKEND_CUDA_LANE_H
#define SL_BACKEND_CUDA_LANE_H

#include <stdatomic.h>

#include "backend/backend.h"
#include "backend/cuda/contributions.h"

/* Which of two words that the stream writes and any thread may read. Both only grow, and are compared cyclically. */
typedef enum { SL_LANE_BEGUN, SL_LANE_FINISHED, SL_LANE_MARKS } sl_lane_mark;

typedef struct sl_lane {
    void *stream;                                 /* cudaStream_t */
    uint8_t *staging;                             /* on the device, 256-byte aligned */
    const _Atomic uint32_t *marks[SL_LANE_MARKS]; /* in memory of the host; 0 at first */
} sl_lane;

typedef struct sl_lane_ops {
    /* Makes COMM a stream of the GPU, which it stays, and takes staging memory. Nothing was queued on COMM before.
     * Makes the GPU the thread's. */
    sluice_status (*open)(sl_device *d, uint64_t staging_bytes, sl_lane *out);
    /* COMM is idle, or what it holds has failed. */
    void (*close)(sl_device *d, sl_lane *lane);
    /* A span as the GPU addresses it, counted like any operand. SLUICE_ERR_FAILED where it does not reach the tier. */
    sluice_status (*address)(sl_device *d, const char *what, sl_span span, void **out);
    sluice_status (*copy)(sl_device *d, void *to, const void *from, uint64_t bytes);
    sluice_status (*add)(sl_device *d, const sl_contributions *c);
    /* The word becomes one more than it was when COMM has got here. */
    sluice_status (*mark)(sl_device *d, sl_lane_mark which);
    /* Any thread: the device's next await or synchronize reports it. */
    void (*fail)(sl_device *d, sluice_status status, const char *message);
} sl_lane_ops;

extern const sl_lane_ops sl_cuda_lane_ops;

#endif
