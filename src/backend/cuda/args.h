/* args.h: a call as CUDA kernels want it. Plain C without CUDA: the library asks for workspace with it. */
#ifndef SL_BACKEND_CUDA_ARGS_H
#define SL_BACKEND_CUDA_ARGS_H

#include "backend/backend.h"
#include "backend/cuda/cuda_kernels.h"

/* All of *a that the call itself says; spans lie in the arenas that begin at bases[tier]. Stream, libraries and the
 * device's facts are left 0. */
void sl_cuda_args_fill(sl_cuda_args *a, const sl_call *c, uint8_t *const bases[SL_TIER_COUNT]);
/* sl_backend.workspace. An operand is there when its shape has elements, or its span bytes. */
uint64_t sl_cuda_call_workspace(const sl_call *c);

#endif
