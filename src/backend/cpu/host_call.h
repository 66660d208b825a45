/* host_call.h: a kernel call on memory that the CPU reaches, run by the CPU's kernels. What the CPU backend computes
 * with, and the CUDA backend where the optimizer runs on the host. */
#ifndef SL_BACKEND_CPU_HOST_CALL_H
#define SL_BACKEND_CPU_HOST_CALL_H

#include "backend/backend.h"
#include "backend/cpu/kernels.h"

typedef struct sl_host_kernels {
    const sl_kernel (*table)[SL_OP_COUNT]; /* one row per sl_kernel_type */
    bool amx;
} sl_host_kernels;

/* SLUICE_ERR_USAGE: this CPU cannot run the path. */
sluice_status sl_host_kernels_of(sl_isa isa, sl_host_kernels *out);
/* There is a kernel for the call, and it has the workspace it needs. SLUICE_ERR_FAILED, naming the call, otherwise. */
sluice_status sl_host_call_check(const sl_host_kernels *k, const sl_call *c);
/* Runs a checked call in the calling thread and the pool's. Spans lie in the arenas that begin at bases[tier]. */
void sl_host_call_run(const sl_host_kernels *k, const sl_call *c, uint8_t *const bases[SL_TIER_COUNT], sl_pool *pool);

#endif
