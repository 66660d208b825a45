/* join.c: finds out whether a launcher started this process as one of several ranks, and joins them.
 *
 * Launchers speak through the environment. MPI itself is asked only where the environment tells of ranks: starting it
 * costs half a second and background threads, which a program that runs alone should not pay. The MPI part is a plugin,
 * so that the library and the program run where there is no MPI. */
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/plugin_file.h"
#include "comm/plugin.h"
#include "core/alloc.h"

#define DEFAULT_TIMEOUT_SECONDS 60.0

/* How a launcher says how many ranks there are. */
typedef struct launcher {
    const char *name;
    const char *size, *rank; /* variables */
    bool speaks_mpi;         /* false: its variables alone do not connect the ranks */
} launcher;

/* In this order: a job script of Slurm that calls mpirun has the variables of both, and the inner one counts. Slurm's
 * own are those of a step: in a batch script, which is no rank, they are not set. */
static const launcher launchers[] = {
    { "mpirun", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", true },
    { "mpiexec", "PMI_SIZE", "PMI_RANK", true },
    { "srun", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", false },
    { "torchrun", "WORLD_SIZE", "RANK", false },
};
enum { LAUNCHER_COUNT = sizeof launchers / sizeof launchers[0] };

/* A process manager that MPI can ask; srun has one only with --mpi=pmix or pmi2. */
static const char *const managers[] = { "PMIX_RANK", "PMI_RANK", "PMI_FD" };

static bool managed(void)
{
    for (size_t i = 0; i < sizeof managers / sizeof managers[0]; i++)
        if (getenv(managers[i]) != NULL) return true;
    return false;
}

/* A positive number in a variable; 0 where it is absent or something else. */
static int number_of(const char *variable)
{
    const char *text = getenv(variable);
    char *end;
    if (text == NULL || *text == '\0') return 0;
    long number = strtol(text, &end, 10);
    return *end == '\0' && number > 0 && number <= INT_MAX ? (int)number : 0;
}

/* The launcher that started this process; NULL: none, or none that is known. */
static const launcher *find_launcher(void)
{
    for (int i = 0; i < LAUNCHER_COUNT; i++)
        if (number_of(launchers[i].size) > 0 && getenv(launchers[i].rank) != NULL) return &launchers[i];
    return NULL;
}

/* ---- the plugin ---- */

/* The plugin stays loaded to the end of the process: MPI libraries do not bear being unloaded. */
static sluice_status load_plugin(const char *started, const sl_comm_plugin **out)
{
    char path[PATH_MAX];
    sl_plugin_find(SL_COMM_PLUGIN_FILE, path);
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL)
        return sl_fail(SLUICE_ERR_USAGE,
                       "%s, but the MPI part of sluice is not here: %s. Build sluice where MPI is installed "
                       "(libopenmpi-dev), or name the folder of %s in SLUICE_PLUGINS; on one machine --ranks needs no "
                       "MPI",
                       started, dlerror(), SL_COMM_PLUGIN_FILE);
    const sl_comm_plugin *plugin = dlsym(handle, SL_COMM_PLUGIN_SYMBOL);
    if (plugin == NULL) return sl_fail(SLUICE_ERR_USAGE, "%s is not a part of sluice", path);
    if (strcmp(plugin->version, SL_COMM_VERSION) != 0 || plugin->ops_bytes != sizeof(sl_comm_ops) ||
        plugin->backend_bytes != sizeof(sl_backend))
        return sl_fail(SLUICE_ERR_USAGE,
                       "%s belongs to another build of sluice (%s, this is %s): install them together", path,
                       plugin->version, SL_COMM_VERSION);
    *out = plugin;
    return SLUICE_OK;
}

static const sl_comm_host host = { sl_error_record, sluice_error, sl_alloc, sl_free };

static sluice_status join_mpi(const char *started, int ranks, double timeout_seconds, sluice_world **out)
{
    const sl_comm_plugin *plugin;
    SL_TRY(load_plugin(started, &plugin));
    return plugin->open(&host, ranks, timeout_seconds > 0 ? timeout_seconds : DEFAULT_TIMEOUT_SECONDS, out);
}

/* Several ranks that nothing connects: each would train alone and overwrite what the others save. */
static sluice_status refuse_unconnected(const launcher *l, const char *started)
{
    if (strcmp(l->name, "srun") == 0) return sl_fail(SLUICE_ERR_USAGE, "%s without MPI: use srun --mpi=pmix", started);
    return sl_fail(
        SLUICE_ERR_USAGE,
        "%s (%s=%d and %s are set), which is not built in yet: use mpirun or srun, or --ranks on one machine", started,
        l->size, number_of(l->size), l->rank);
}

sluice_status sluice_world_join(double timeout_seconds, sluice_world **out)
{
    const launcher *l = find_launcher();
    char started[160];
    if (l == NULL) {
        /* A process manager that does not say how many: only MPI can. */
        if (managed()) return join_mpi("started by a launcher of MPI jobs", 0, timeout_seconds, out);
        return sl_comm_self_open(out);
    }
    int ranks = number_of(l->size);
    if (ranks == 1) return sl_comm_self_open(out);
    snprintf(started, sizeof started, "started as one of %d ranks by %s", ranks, l->name);
    if (!l->speaks_mpi && !managed()) return refuse_unconnected(l, started);
    return join_mpi(started, ranks, timeout_seconds, out);
}
