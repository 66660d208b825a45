/* join.c: finds out whether a launcher started this process as one of several ranks, and joins them.
 *
 * Launchers speak through the environment. MPI itself is asked only where the environment tells of ranks: starting it
 * costs half a second and background threads, which a program that runs alone should not pay. The MPI part is a plugin,
 * so that the library and the program run where there is no MPI. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/plugin.h"

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

sluice_status sl_comm_open_plugin(const char *part, const sl_comm_plugin **out)
{
    char path[PATH_MAX];
    const void *table;
    const sl_plugin what = { .file = SL_COMM_PLUGIN_FILE,
                             .symbol = SL_COMM_PLUGIN_SYMBOL,
                             .part = part,
                             .needs = "MPI (libopenmpi-dev)",
                             .otherwise = "; on one machine --ranks needs no MPI" };
    SL_TRY(sl_plugin_open(&what, path, &table));
    const sl_comm_plugin *plugin = table;
    SL_TRY(sl_plugin_check(path, plugin->version,
                           plugin->ops_bytes == sizeof(sl_comm_ops) && plugin->backend_bytes == sizeof(sl_backend)));
    *out = plugin;
    return SLUICE_OK;
}

static sluice_status join_mpi(const char *started, int ranks, double timeout_seconds, sluice_world **out)
{
    char part[256];
    const sl_comm_plugin *plugin;
    snprintf(part, sizeof part, "%s, but the MPI part of sluice", started);
    SL_TRY(sl_comm_open_plugin(part, &plugin));
    return plugin->open(&sl_plugin_library, ranks, timeout_seconds > 0 ? timeout_seconds : DEFAULT_TIMEOUT_SECONDS,
                        out);
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
    SL_NEED(out);
    if (!(timeout_seconds >= 0 && timeout_seconds <= SL_MOST_TIMEOUT))
        return sl_fail(SLUICE_ERR_USAGE, "sluice_world_join: timeout_seconds is %g, must be from 0 to %g",
                       timeout_seconds, SL_MOST_TIMEOUT);
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
