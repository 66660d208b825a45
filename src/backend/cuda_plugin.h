/* cuda_plugin.h: what libsluice and libsluice_cuda.so know of each other, and how the former opens the latter.
 *
 * The plugin has copies of core/, ir/ and backend/ inside, with hidden symbols, and exports one: SL_CUDA_PLUGIN_SYMBOL.
 * What must be the library's own, messages and counted memory, comes in a table. */
#ifndef SL_BACKEND_CUDA_PLUGIN_H
#define SL_BACKEND_CUDA_PLUGIN_H

#include "backend/backend.h"
#include "backend/plugin_file.h"

#define SL_CUDA_PLUGIN_SYMBOL "sl_cuda_plugin"
#define SL_CUDA_PLUGIN_FILE   "libsluice_cuda.so"
#define SL_CUDA_LEAST_MAJOR   8 /* compute capability of the oldest GPUs that kernels are built for: 8.0 */

struct sl_comm;     /* comm/comm.h */
struct sl_lane_ops; /* backend/cuda/lane.h */

/* One GPU, without opening it for work. */
typedef struct sl_cuda_facts {
    char name[64];
    int major, minor; /* compute capability */
    int multiprocessors;
    uint64_t total_bytes, free_bytes;    /* now */
    int runtime_version, driver_version; /* 13000: 13.0 */
    int numa_node;                       /* of its PCIe slot; -1: not known */
    char bus[32];                        /* the slot: tells the GPUs of a machine apart, whichever are visible */
} sl_cuda_facts;

/* The plugin's side. version and sizes are compared before anything else is used: a plugin left behind by another
 * installation is refused. */
typedef struct sl_cuda_plugin {
    const char *version; /* of sluice it was built with */
    size_t backend_bytes, call_bytes, options_bytes;
    /* Once, before anything else. */
    void (*connect)(const sl_plugin_host *host);
    const sl_backend *backend;
    /* How many GPUs there are; SLUICE_ERR_USAGE with the reason (no driver, driver too old) where that cannot be
     * said. */
    sluice_status (*count)(int *out);
    sluice_status (*facts)(int ordinal, sl_cuda_facts *out);
    /* Libraries in use: "cuBLASLt 13.1, cuDNN 9.19, NCCL 2.28"; for `sluice devices`. */
    const char *(*libraries)(void);
    /* A communicator on top of `base` whose collectives run on this process's GPU through NCCL (comm/nccl_comm.h). It
     * is compiled for a table of comm_ops_bytes. SLUICE_ERR_USAGE: there is no NCCL here. */
    size_t comm_ops_bytes;
    sluice_status (*open_nccl)(struct sl_comm *base, struct sl_comm **out);
    const struct sl_lane_ops *lane; /* what such a communicator uses of a device; for tests */
} sl_cuda_plugin;

/* Finds, opens and checks the plugin; later calls give the same one. SLUICE_ERR_USAGE: it is not installed, cannot be
 * loaded (which library is missing), or is of another version. It stays loaded. Not thread-safe the first time. */
sluice_status sl_cuda_open_plugin(const sl_cuda_plugin **out);
/* What the CUDA backend needs as workspace, known without the plugin, so that plans for a GPU are made anywhere. */
uint64_t sl_cuda_plan_workspace(const sl_call *call);

#endif
