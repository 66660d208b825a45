/* gpu_comm.h: how ranks on GPUs talk: through NCCL, or through the host. */
#ifndef SL_TRAIN_GPU_COMM_H
#define SL_TRAIN_GPU_COMM_H

#include "config/config.h"
#include "core/log.h"
#include "machine/device_choice.h"
#include "machine/ranks.h"

/* What NCCL takes of a GPU outside the arena, before anything is measured: its buffers and kernels, and staging for
 * contributions. */
#define SL_GPU_COMM_BYTES ((uint64_t)544 << 20)

/* All ranks: *out becomes a communicator on top of ranks->comm whose collectives run on the GPUs, to be closed before
 * that; or NULL, where collectives are those of ranks->comm: one rank, no GPU, or HOST. AUTO says in the log why it
 * does not take NCCL; NCCL fails with SLUICE_ERR_USAGE instead. */
sluice_status sl_gpu_comm_choose(sl_ranks *ranks, const sl_device_choice *device, sl_gpu_comm wanted, const sl_log *log,
                                 sl_comm **out);

#endif
