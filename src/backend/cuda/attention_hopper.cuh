/* attention_hopper.cuh: attention on sm_90a: heads of 64 or 128 in 16 bits, on warpgroup MMAs (hopper.cuh).
 *
 * A block has three warpgroups of 128 threads: a producer, of which one thread asks for tiles, and two consumers, each
 * with 64 rows of its own. attention_hopper_maps.cuh has the register budget of a block; the tables of what a consumer
 * keeps in registers and of shared memory stand at the head of each kernel's file. */
#ifndef SL_BACKEND_CUDA_ATTENTION_HOPPER_CUH
#define SL_BACKEND_CUDA_ATTENTION_HOPPER_CUH

#include "backend/cuda/attention.cuh"

/* Queue the work on the stream, of heads of 64 or 128 at multiples of 16 bytes. maker: cuTensorMapEncodeTiled of the
 * driver. False: it did not take the operands, or these kernels are not there; nothing was queued. */
bool sl_attention_forward_hopper(const AttentionCall &c, sl_form form, void *maker, void *stream);
bool sl_attention_backward_hopper(const AttentionCall &c, sl_form form, void *maker, void *stream);

#endif
