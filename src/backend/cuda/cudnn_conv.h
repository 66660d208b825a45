/* cudnn_conv.h: what a device keeps of cuDNN: the plans made so far. Part of its libraries (library.h). */
#ifndef SL_BACKEND_CUDA_CUDNN_CONV_H
#define SL_BACKEND_CUDA_CUDNN_CONV_H

#include "core/log.h"
#include "core/status.h"

typedef struct sl_cudnn sl_cudnn;

/* Takes the memory for what is remembered; cuDNN itself is opened by the first convolution that wants it, because most
 * models have none and it takes memory of the device. Where it is not found the log is told, once. */
sluice_status sl_cudnn_open(bool tf32, const sl_log *log, sl_cudnn **out);
void sl_cudnn_close(sl_cudnn *d); /* NULL is fine; the device must be idle */
/* "cuDNN 9.19", or "cuDNN not found". Needs no device. */
void sl_cudnn_text(char *out, size_t bytes);

#endif
