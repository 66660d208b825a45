/* attention_cudnn.h: attention by cuDNN, where it is installed and serves the shape: an alternative to the kernels of
 * this folder. attention_size.h says for which ops it is asked at all.
 *
 * The library is opened with dlopen. Which of its engines computes a call is a function of shape, type, the library's
 * version and the GPU, and so are the bits: engines that it calls non-deterministic are never taken. */
#ifndef SL_BACKEND_CUDA_ATTENTION_CUDNN_H
#define SL_BACKEND_CUDA_ATTENTION_CUDNN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/cuda/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sl_cudnn sl_cudnn; /* the library, and the plans made so far */

size_t sl_cudnn_version(void); /* 91900 for 9.19.0; 0: missing or too old. Needs no device */
/* For the thread's current CUDA device. NULL where cuDNN is missing, too old or does not start. One caller at a time.
 */
sl_cudnn *sl_cudnn_open(void);
void sl_cudnn_close(sl_cudnn *c); /* NULL is fine; the device must be idle */

/* Queues ATTENTION or ATTENTION_GRAD. *served: it did; otherwise nothing was queued, and never is for this shape. */
sluice_status sl_cuda_cudnn_attention(sl_op op, const sl_cuda_args *a, bool *served);

/* What a call is cut into: pieces of `batches` x `key_heads` whole groups of heads. All that plans depend on; no
 * padding, compared by bytes. */
typedef struct sl_cudnn_shape {
    int64_t batches, heads, key_heads; /* of a piece */
    int64_t queries, keys, width;
    int64_t all_heads, all_key_heads; /* of the operands, for their strides */
    int32_t form, backward, causal, packed;
} sl_cudnn_shape;

/* For messages and measurements: 0 and "" until the first plan. */
typedef struct sl_cudnn_report {
    uint64_t workspace; /* of the plan itself, without what attention_size.h adds */
    int64_t engine;
    bool found;
    char text[1024]; /* why there is no plan, or the engine's notes */
} sl_cudnn_report;

/* Makes the plan for the shape, or finds it. */
sluice_status sl_cudnn_prepare(sl_cudnn *c, const sl_cudnn_shape *shape, sl_cudnn_report *out);

#ifdef __cplusplus
}
#endif
#endif
