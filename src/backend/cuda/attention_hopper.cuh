/* attention_hopper.cuh: attention on sm_90a: heads of 64 or 128 in 16 bits, on warpgroup products (hopper.cuh).
 *
 * One warp of a block only asks for tiles; two or three warpgroups compute, each on 64 rows of its own. */
#ifndef SL_BACKEND_CUDA_ATTENTION_HOPPER_CUH
#define SL_BACKEND_CUDA_ATTENTION_HOPPER_CUH

#include "backend/cuda/attention.cuh"

/* Queue the work on the stream, of heads of 64 or 128 at multiples of 16 bytes. maker: cuTensorMapEncodeTiled of the
 * driver. False: it did not take the operands, or these kernels are not there; nothing was queued. */
bool sl_attention_forward_hopper(const AttentionCall &c, sl_form form, void *maker, void *stream);
bool sl_attention_backward_hopper(const AttentionCall &c, sl_form form, void *maker, void *stream);

#endif
