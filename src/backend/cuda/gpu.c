/* gpu.c: see gpu.h. */
#include "backend/cuda/gpu.h"

#include <ctype.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/io.h"

/* ---- which there are ---- */

static sluice_status no_gpu(cudaError_t error)
{
    int driver = 0;
    (void)cudaDriverGetVersion(&driver);
    if (driver == 0)
        return sl_fail(SLUICE_ERR_USAGE,
                       "there is no NVIDIA driver on this machine (libcuda.so.1 was not found): install it, or use the "
                       "CPU");
    if (error == cudaErrorInsufficientDriver)
        return sl_fail(SLUICE_ERR_USAGE,
                       "the NVIDIA driver is too old: it runs CUDA %d.%d, sluice was built with %d.%d; install a newer "
                       "driver",
                       driver / 1000, driver / 10 % 100, CUDART_VERSION / 1000, CUDART_VERSION / 10 % 100);
    if (error == cudaErrorNoDevice)
        return sl_fail(SLUICE_ERR_USAGE, "the NVIDIA driver finds no GPU%s",
                       getenv("CUDA_VISIBLE_DEVICES") != NULL ? " (CUDA_VISIBLE_DEVICES is set)" : "");
    return sl_fail(SLUICE_ERR_USAGE, "the NVIDIA driver does not work: %s", cudaGetErrorString(error));
}

sluice_status sl_gpu_count(int *out)
{
    int count = 0;
    cudaError_t error = cudaGetDeviceCount(&count);
    (void)cudaGetLastError();
    if (error != cudaSuccess) return no_gpu(error);
    *out = count;
    return SLUICE_OK;
}

static sluice_status check_ordinal(int ordinal)
{
    int count;
    SL_TRY(sl_gpu_count(&count));
    if (ordinal >= 0 && ordinal < count) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_USAGE, "there is no GPU %d: this machine has %d, counted from 0", ordinal, count);
}

static sluice_status properties_of(int ordinal, struct cudaDeviceProp *out)
{
    SL_TRY(check_ordinal(ordinal));
    cudaError_t error = cudaGetDeviceProperties(out, ordinal);
    if (error == cudaSuccess) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_USAGE, "GPU %d tells nothing about itself: %s", ordinal, cudaGetErrorString(error));
}

sluice_status sl_gpu_check(int ordinal)
{
    struct cudaDeviceProp p;
    SL_TRY(properties_of(ordinal, &p));
    if (p.major >= SL_CUDA_LEAST_MAJOR) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_USAGE,
                   "GPU %d (%s) is too old: its compute capability is %d.%d, sluice needs %d.0 or newer", ordinal,
                   p.name, p.major, p.minor, SL_CUDA_LEAST_MAJOR);
}

/* ---- facts ---- */

/* The kernel names PCI devices in lower case, CUDA in upper. */
static int numa_node_of(int ordinal)
{
    char bus[32], path[96], text[16];
    int node = -1;
    if (cudaDeviceGetPCIBusId(bus, sizeof bus, ordinal) != cudaSuccess) return -1;
    for (char *c = bus; *c != '\0'; c++) *c = (char)tolower((unsigned char)*c);
    snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/numa_node", bus);
    if (!sl_file_peek(path, text, sizeof text) || sscanf(text, "%d", &node) != 1) return -1;
    return node;
}

sluice_status sl_gpu_facts(int ordinal, sl_cuda_facts *out)
{
    struct cudaDeviceProp p;
    sl_gpu_meter meter;
    SL_TRY(properties_of(ordinal, &p));
    *out = (sl_cuda_facts){ .major = p.major, .minor = p.minor, .multiprocessors = p.multiProcessorCount };
    snprintf(out->name, sizeof out->name, "%.*s", (int)sizeof out->name - 1, p.name);
    out->total_bytes = p.totalGlobalMem;
    (void)cudaDriverGetVersion(&out->driver_version);
    (void)cudaRuntimeGetVersion(&out->runtime_version);
    out->numa_node = numa_node_of(ordinal);
    if (cudaDeviceGetPCIBusId(out->bus, sizeof out->bus, ordinal) != cudaSuccess) (void)cudaGetLastError();
    sl_gpu_meter_open(&meter, ordinal);
    if (meter.library == NULL) (void)cudaSetDevice(ordinal);
    out->free_bytes = sl_gpu_meter_free(&meter);
    (void)cudaGetLastError();
    return SLUICE_OK;
}

/* ---- free memory ---- */

/* nvmlMemory_t */
typedef struct device_memory {
    unsigned long long total, free, used;
} device_memory;

/* On a slice of a GPU (MIG) the library tells of the whole: then it is of no use. */
static bool means_same_memory(const sl_gpu_meter *m, int ordinal)
{
    device_memory seen;
    struct cudaDeviceProp p;
    if (m->memory(m->device, &seen) != 0 || cudaGetDeviceProperties(&p, ordinal) != cudaSuccess) return false;
    return seen.total >= p.totalGlobalMem && seen.total - p.totalGlobalMem < seen.total / 8;
}

static bool find_device(sl_gpu_meter *m, int ordinal)
{
    char bus[32];
    int (*start)(void);
    int (*by_bus)(const char *, void **);
    *(void **)&start = dlsym(m->library, "nvmlInit_v2");
    *(void **)&by_bus = dlsym(m->library, "nvmlDeviceGetHandleByPciBusId_v2");
    *(void **)&m->memory = dlsym(m->library, "nvmlDeviceGetMemoryInfo");
    if (start == NULL || by_bus == NULL || m->memory == NULL) return false;
    if (cudaDeviceGetPCIBusId(bus, sizeof bus, ordinal) != cudaSuccess) return false;
    return start() == 0 && by_bus(bus, &m->device) == 0 && means_same_memory(m, ordinal);
}

void sl_gpu_meter_open(sl_gpu_meter *m, int ordinal)
{
    *m = (sl_gpu_meter){ .library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL) };
    if (m->library != NULL && !find_device(m, ordinal)) m->library = NULL;
}

uint64_t sl_gpu_meter_free(const sl_gpu_meter *m)
{
    device_memory seen = { 0 };
    size_t free_bytes = 0, total_bytes = 0;
    if (m->library != NULL) return m->memory(m->device, &seen) == 0 ? seen.free : 0;
    return cudaMemGetInfo(&free_bytes, &total_bytes) == cudaSuccess ? free_bytes : 0;
}
