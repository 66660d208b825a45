/* nccl_comm.h: a communicator whose collectives run on GPUs through NCCL, on top of one that is there already.
 *
 * Compiled into libsluice_cuda.so, which hands it out (backend/cuda_plugin.h). Control calls, deadlines and the news of
 * ranks that are gone are the base's. NCCL only moves bytes: contributions go to their owner, who adds them in rank
 * order (exact rule 1); its own reductions, whose order is not fixed, are not used. */
#ifndef SL_COMM_NCCL_COMM_H
#define SL_COMM_NCCL_COMM_H

#include "backend/cuda/lane.h"
#include "comm/comm.h"

/* Memory of the GPU for contributions on their way to their sum; taken at attach, outside the arenas. */
#define SL_NCCL_STAGING_BYTES ((uint64_t)32 << 20)
/* Beside it NCCL's own buffers and kernels, before anything is measured. */
#define SL_NCCL_OVERHEAD_BYTES ((uint64_t)512 << 20)

typedef struct sl_nccl_options {
    sl_comm *base; /* borrowed, and outlives this */
    const sl_lane_ops *lane;
    /* Beside the deadline: compare the sequence number and bytes of every collective over the base, before it is
     * queued. Slow: ranks go in step. Otherwise the plan, which all ranks compared before the first step, vouches for
     * both. */
    bool checked;
    uint64_t staging_bytes; /* 0: SL_NCCL_STAGING_BYTES */
} sl_nccl_options;

/* Finds NCCL; nothing is said to other ranks before `attach`. Closing it leaves the base open. */
sluice_status sl_comm_nccl_open(const sl_nccl_options *options, sl_comm **out);

#endif
