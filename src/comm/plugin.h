/* plugin.h: what libsluice and a communicator opened with dlopen know of each other.
 *
 * A plugin exports one symbol, SL_COMM_PLUGIN_SYMBOL, and needs none of the library or of the program: both may have
 * the library inside with its symbols hidden. What it uses of the library comes in a table. */
#ifndef SL_COMM_PLUGIN_H
#define SL_COMM_PLUGIN_H

#include "backend/plugin_file.h"
#include "comm/comm.h"

#define SL_COMM_PLUGIN_SYMBOL "sl_comm_plugin_mpi"
#define SL_COMM_PLUGIN_FILE   "libsluice_mpi.so"

#define SL_COMM_VERSION SL_PLUGIN_VERSION

/* Memory of the MPI communicator that grows with no arena: pieces of gradients on their way to their sum, and the sum
 * of one 16-bit piece in f32 until all ranks are in it. Taken when a device is attached; part of overhead_bytes. */
#define SL_COMM_MPI_SLOTS         8
#define SL_COMM_MPI_SLOT_BYTES    ((uint64_t)1 << 20)
#define SL_COMM_MPI_SUM_BYTES     (2 * SL_COMM_MPI_SLOT_BYTES)
#define SL_COMM_MPI_STAGING_BYTES (SL_COMM_MPI_SLOTS * SL_COMM_MPI_SLOT_BYTES + SL_COMM_MPI_SUM_BYTES)

/* The library's side. Messages must end up in its thread-local buffer and memory in its counters. */
typedef struct sl_comm_host {
    void (*error_record)(const char *format, ...) __attribute__((format(printf, 1, 2)));
    const char *(*error_text)(void); /* this thread's newest message */
    void *(*alloc)(size_t bytes, const char *name);
    void (*free)(void *p);
} sl_comm_host;

/* The plugin's side. version and the sizes are compared before anything else is used: a plugin left behind by another
 * installation is refused. */
typedef struct sl_comm_plugin {
    const char *version; /* of sluice it was built with */
    size_t ops_bytes, backend_bytes;
    /* expected_ranks: what the launcher's environment says, 0: nothing. The host table is borrowed as long as the
     * communicator lives. */
    sluice_status (*open)(const sl_comm_host *host, int expected_ranks, double timeout_seconds, sl_comm **out);
} sl_comm_plugin;

#endif
