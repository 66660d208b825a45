/* plugin.h: what libsluice and the MPI communicator, a plugin (backend/plugin_file.h), know of each other. */
#ifndef SL_COMM_PLUGIN_H
#define SL_COMM_PLUGIN_H

#include "backend/plugin_file.h"
#include "comm/comm.h"

#define SL_COMM_PLUGIN_SYMBOL "sl_comm_plugin_mpi"
#define SL_COMM_PLUGIN_FILE   "libsluice_mpi.so"

/* Memory of the MPI communicator that grows with no arena: pieces of gradients on their way to their sum, and the sum
 * of one 16-bit piece in f32 until all ranks are in it. Taken when a device is attached; part of overhead_bytes. */
#define SL_COMM_MPI_SLOTS         8
#define SL_COMM_MPI_SLOT_BYTES    ((uint64_t)1 << 20)
#define SL_COMM_MPI_SUM_BYTES     (2 * SL_COMM_MPI_SLOT_BYTES)
#define SL_COMM_MPI_STAGING_BYTES (SL_COMM_MPI_SLOTS * SL_COMM_MPI_SLOT_BYTES + SL_COMM_MPI_SUM_BYTES)

/* The plugin's side. version and the sizes are compared before anything else is used: a plugin left behind by another
 * installation is refused. */
typedef struct sl_comm_plugin {
    const char *version; /* of sluice it was built with */
    size_t ops_bytes, backend_bytes;
    /* expected_ranks: what the launcher's environment says, 0: nothing. The host table is borrowed as long as the
     * communicator lives. */
    sluice_status (*open)(const sl_plugin_host *host, int expected_ranks, double timeout_seconds, sl_comm **out);
} sl_comm_plugin;

/* Finds, opens and checks the plugin. SLUICE_ERR_USAGE: it is not installed, cannot be loaded, or is of another version; the
 * message begins with `part`. */
sluice_status sl_comm_open_plugin(const char *part, const sl_comm_plugin **out);

#endif
