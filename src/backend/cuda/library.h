/* library.h: the libraries of NVIDIA that a device works with, and what it remembers of them.
 *
 * They are opened when a device is, cuDNN when it is first wanted (cudnn_conv.h), with dlopen, so that the plugin loads on machines without them and can say what is
 * missing. No header of theirs is needed to include this one. */
#ifndef SL_BACKEND_CUDA_LIBRARY_H
#define SL_BACKEND_CUDA_LIBRARY_H

#include <stdbool.h>
#include <stddef.h>

#include "backend/cuda/cuda_kernels.h"
#include "core/log.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Opens them for the thread's current CUDA device. tf32: products of f32 may round their operands to tf32. All memory
 * on the host that later calls need is taken here. SLUICE_ERR_USAGE names what was not found; the log is told when
 * something is done without a library. The result serves one caller at a time. */
sluice_status sl_cuda_libraries_open(bool tf32, const sl_log *log, sl_cuda_libraries **out);
void sl_cuda_libraries_close(sl_cuda_libraries *l); /* NULL is fine; the device must be idle */
struct sl_cudnn *sl_cuda_libraries_cudnn(sl_cuda_libraries *l);
/* "cuBLASLt 13.1, cuDNN 9.19"; "not found" in place of a version. Needs no device. */
void sl_cuda_libraries_text(char *out, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
