/* gpu.h: which GPUs there are, whether sluice can use one, and how much of its memory is taken. */
#ifndef SL_BACKEND_CUDA_GPU_H
#define SL_BACKEND_CUDA_GPU_H

#include "backend/cuda_plugin.h"

/* sl_cuda_plugin.count and .facts: without a context, unless only a context can tell the free memory. */
sluice_status sl_gpu_count(int *out);
sluice_status sl_gpu_facts(int ordinal, sl_cuda_facts *out);
/* SLUICE_ERR_USAGE where there is no such GPU, or it is too old. */
sluice_status sl_gpu_check(int ordinal);

/* How much of a GPU's memory is free, as NVIDIA's management library sees it from outside all processes. */
typedef struct sl_gpu_meter {
    void *library; /* of dlopen; NULL: not to be had */
    void *device;
    int (*memory)(void *device, void *out);
} sl_gpu_meter;

/* Never fails: without the library, CUDA is asked later, which sees less (not what its own context takes). Nothing is
 * to be closed: the library stays loaded, as its parts may run to the end of the process. */
void sl_gpu_meter_open(sl_gpu_meter *m, int ordinal);
/* 0 where nobody can say. Without the library the thread's current device is meant, and gets a context. */
uint64_t sl_gpu_meter_free(const sl_gpu_meter *m);

#endif
