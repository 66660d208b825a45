/* gpu_comm.c: see gpu_comm.h. */
#include "train/gpu_comm.h"

#include <stdio.h>
#include <string.h>

#include "core/alloc.h"

/* A GPU as all ranks know it. */
typedef struct seat {
    char host[SL_HOST_BYTES];
    char bus[sizeof((sl_cuda_facts *)0)->bus];
} seat;

/* NCCL refuses two ranks on one GPU. *a and *b are two that share one; -1: none do. */
static sluice_status find_sharers(sl_ranks *r, const sl_device_choice *device, int *a, int *b)
{
    seat mine;
    memset(&mine, 0, sizeof mine);
    sl_ranks_host(mine.host);
    memcpy(mine.bus, device->facts.bus, sizeof mine.bus);
    seat *all = sl_alloc_array((size_t)r->count, sizeof *all, "GPUs of the ranks");
    if (all == NULL) return SLUICE_ERR_NO_MEMORY;
    sluice_status st = r->comm->ops->exchange(r->comm, "GPUs of the ranks", &mine, sizeof mine, all);
    *a = *b = -1;
    for (int i = 0; st == SLUICE_OK && i < r->count && *a < 0; i++)
        for (int k = 0; k < i; k++)
            if (memcmp(&all[i], &all[k], sizeof mine) == 0) *a = k, *b = i;
    sl_free(all);
    return st;
}

static sluice_status open_nccl(sl_comm *base, sl_comm **out)
{
    const sl_cuda_plugin *plugin;
    SL_TRY(sl_cuda_open_plugin(&plugin));
    if (plugin->comm_ops_bytes != sizeof(sl_comm_ops))
        return sl_fail(SLUICE_ERR_USAGE,
                       "%s belongs to another build of sluice: install the plugin and the program of one build",
                       SL_CUDA_PLUGIN_FILE);
    return plugin->open_nccl(base, out);
}

static void say(const sl_ranks *r, const sl_log *log, const char *why)
{
    if (r->rank == 0)
        sl_log_write(log, SLUICE_LOG_NOTE, "GPU collectives are staged through host memory instead of NCCL: %s", why);
}

/* Opens it on every rank or on none. */
static sluice_status open_together(sl_ranks *r, bool required, const sl_log *log, sl_comm **out)
{
    char why[SL_MESSAGE_BYTES] = "";
    uint64_t everywhere;
    sluice_status st = open_nccl(r->comm, out);
    if (st != SLUICE_OK) {
        *out = NULL;
        sl_error_copy(why);
    }
    sluice_status together =
        required ? sl_ranks_agree(r, "NCCL", st) : sl_ranks_least(r, "NCCL", st == SLUICE_OK, &everywhere);
    if (together == SLUICE_OK && (required || everywhere == 1)) return SLUICE_OK;
    if (*out != NULL) (*out)->ops->close(*out);
    *out = NULL;
    if (together == SLUICE_OK) say(r, log, st != SLUICE_OK ? why : "another rank cannot open it");
    return together;
}

sluice_status sl_gpu_comm_choose(sl_ranks *r, const sl_device_choice *device, sl_gpu_comm wanted, const sl_log *log,
                                 sl_comm **out)
{
    char why[96];
    int a, b;
    *out = NULL;
    if (r->count == 1 || !device->is_cuda || wanted == SL_GPU_COMM_HOST) return SLUICE_OK;
    SL_TRY(find_sharers(r, device, &a, &b));
    if (a < 0) return open_together(r, wanted == SL_GPU_COMM_NCCL, log, out);
    snprintf(why, sizeof why, "ranks %d and %d share a GPU, which NCCL does not allow", a, b);
    if (wanted == SL_GPU_COMM_NCCL) return sl_fail(SLUICE_ERR_USAGE, "communication.gpu is nccl, but %s", why);
    say(r, log, why);
    return SLUICE_OK;
}
