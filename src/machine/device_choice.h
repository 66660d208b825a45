/* device_choice.h: which device a job computes on, and what the plan must know of it. */
#ifndef SL_MACHINE_DEVICE_CHOICE_H
#define SL_MACHINE_DEVICE_CHOICE_H

#include "backend/cuda_plugin.h"
#include "plan/rates.h"

/* What a CUDA context and its libraries take of a GPU outside the arena, before anything is measured. */
#define SL_CUDA_OVERHEAD_BYTES ((uint64_t)768 << 20)
/* And what the driver takes of the host. */
#define SL_CUDA_HOST_OVERHEAD_BYTES ((uint64_t)512 << 20)

typedef struct sl_device_choice {
    const sl_backend *backend;
    uint64_t (*workspace)(const sl_call *call); /* the backend's; known also where the device is not */
    bool is_cuda;
    int ordinal;         /* CUDA: which of the GPUs */
    int sharing;         /* ranks of this machine on the same device; at least 1 */
    sl_cuda_facts facts; /* CUDA, unless the machine is only described */
} sl_device_choice;

/* `wanted` as configured; the environment's SLUICE_DEVICE (cpu, cuda) stands in for AUTO. AUTO takes a GPU where the
 * plugin and a usable one are there. Rank `local_rank` of the `local_ranks` of this machine takes GPU local_rank modulo
 * their number. CUDA without any: SLUICE_ERR_USAGE with the reason. */
sluice_status sl_device_choose(sluice_device wanted, int local_rank, int local_ranks, sl_device_choice *out);
/* A GPU that is not here: enough to plan for it. */
void sl_device_describe_cuda(sl_device_choice *out);
/* Device memory that this rank's arena may take now: what is free, shared out, less the overhead. */
uint64_t sl_device_room(const sl_device_choice *c);
/* Threads of the pool that works on the host: with a GPU, updates leave room for the thread that queues its work and
 * for the driver's. */
int sl_device_host_threads(const sl_device_choice *c, int threads);
/* Rates of a GPU by its class; nothing is measured. The host's part is already in *m. */
void sl_machine_describe_cuda(const sl_cuda_facts *facts, sl_machine *m);
/* "cuda-sm90-2", "cpu-avx512-1": what the bits depend on; the number is raised with every change that gives others. */
const char *sl_device_kernels(const sl_device_choice *c, sl_isa isa, char *buf, size_t bytes);

#endif
