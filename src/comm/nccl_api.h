/* nccl_api.h: what is used of NCCL: its functions as they are found in libnccl.so.2 at run time.
 *
 * The types are declared here, so that nothing of NCCL is needed to build; where its header is, nccl_api.c compares
 * them. They hold for every NCCL 2 from 2.18 on: NCCL completes a configuration of an older version by itself. */
#ifndef SL_COMM_NCCL_API_H
#define SL_COMM_NCCL_API_H

#include <stddef.h>

#include "core/status.h"

#define SL_NCCL_FILE         "libnccl.so.2"
#define SL_NCCL_LEAST        21800 /* 2.18.0: non-blocking groups of sends and receives are sound */
#define SL_NCCL_CONFIG_MAGIC 0xcafebeefu
#define SL_NCCL_UINT8        1 /* ncclUint8: all that travels is bytes */

typedef struct sl_nccl_comm sl_nccl_comm;

typedef struct sl_nccl_id {
    char internal[128];
} sl_nccl_id;

enum { SL_NCCL_SUCCESS = 0, SL_NCCL_IN_PROGRESS = 7 };

/* ncclConfig_t of 2.18. Fields at INT_MIN and NULL are left to NCCL. */
typedef struct sl_nccl_config {
    size_t size;
    unsigned magic, version;
    int blocking;
    int cga_cluster_size, min_ctas, max_ctas;
    const char *net_name;
    int split_share;
} sl_nccl_config;

/* field, symbol, parameters; results are ncclResult_t unless listed below */
#define SL_NCCL_FUNCTIONS(X)                                                                                           \
    X(version, ncclGetVersion, (int *version))                                                                         \
    X(unique_id, ncclGetUniqueId, (sl_nccl_id * id))                                                                   \
    X(init, ncclCommInitRankConfig,                                                                                    \
      (sl_nccl_comm * *comm, int ranks, sl_nccl_id id, int rank, sl_nccl_config *config))                              \
    X(finalize, ncclCommFinalize, (sl_nccl_comm * comm))                                                               \
    X(destroy, ncclCommDestroy, (sl_nccl_comm * comm))                                                                 \
    X(abort, ncclCommAbort, (sl_nccl_comm * comm))                                                                     \
    X(async_error, ncclCommGetAsyncError, (sl_nccl_comm * comm, int *error))                                           \
    X(group_start, ncclGroupStart, (void))                                                                             \
    X(group_end, ncclGroupEnd, (void))                                                                                 \
    X(send, ncclSend, (const void *from, size_t count, int type, int peer, sl_nccl_comm *comm, void *stream))          \
    X(receive, ncclRecv, (void *to, size_t count, int type, int peer, sl_nccl_comm *comm, void *stream))               \
    X(all_gather, ncclAllGather, (const void *from, void *to, size_t count, int type, sl_nccl_comm *comm, void *stream))

typedef struct sl_nccl_api {
#define SL_FIELD(field, symbol, parameters) int(*field) parameters;
    SL_NCCL_FUNCTIONS(SL_FIELD)
#undef SL_FIELD
    const char *(*error_text)(int result);
    const char *(*last_error)(sl_nccl_comm *comm);
} sl_nccl_api;

/* Finds the library, or the one named by the environment's SLUICE_NCCL, and its functions. SLUICE_ERR_USAGE names what
 * is missing. It stays loaded: threads of NCCL may outlive a communicator. */
sluice_status sl_nccl_api_open(sl_nccl_api *out);

#endif
