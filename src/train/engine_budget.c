/* engine_budget.c: how much memory the plan of this rank may use in each tier, and what is said where a setting tells of
 * more than there is. */
#include "core/bytes.h"
#include "core/swap.h"
#include "core/thread.h"
#include "train/engine_parts.h"

/* Room for what is allocated after planning: the executor, file names, JSON, a checkpoint's staging buffer. */
#define LATER_BYTES (SL_CHECKPOINT_STAGING_BYTES + ((uint64_t)8 << 20))
/* And for talking to other ranks: MPI's staging, or the shared segment, and what lies behind them. */
#define COMM_BYTES ((uint64_t)12 << 20)

/* What a process has resident differs by some hundred kB from start to start; the plan should not. */
#define RESIDENT_UNIT ((uint64_t)4 << 20)
/* Of a disk that nobody knows: a plan says what it needs of it. */
#define UNKNOWN_DISK ((uint64_t)1 << 50)

/* No more than the parameters, their state and gradients would take of it, with as much again for activations. */
static uint64_t most_on_disk(const sluice_engine *e, const sl_plan_options *p)
{
    uint64_t each = sizeof(float) * (uint64_t)(3 + p->state_slots);
    uint64_t all = 2 * each * (uint64_t)sl_graph_parameter_elements(e->graph) + ((uint64_t)1 << 30);
    return p->budget[SL_TIER_DISK] < all ? p->budget[SL_TIER_DISK] : all;
}

void sl_engine_add_disk(const sluice_engine *e, sl_plan_options *p)
{
    p->budget[SL_TIER_DISK] = UNKNOWN_DISK;
    p->automatic[SL_TIER_DISK] = true;
    p->snapshot = false;
    const uint64_t memory = sl_exec_disk_memory(most_on_disk(e, p));
    uint64_t *const host = &p->budget[SL_TIER_HOST], *const both = &p->budget_together;
    if (p->automatic[SL_TIER_HOST])
        *host -= *host > memory ? memory : *host; /* otherwise as told, whatever is beside it */
    *both -= *both > memory ? memory : *both;
}

static void estimate_overhead(const sluice_engine *e, const sl_engine_options *o, int threads, sl_plan_options *p)
{
    const uint64_t resident = sl_align_up(sl_memory_resident(), RESIDENT_UNIT);
    p->overhead_of[1] = o->data_bytes;
    p->overhead_of[0] = (resident > o->data_bytes ? resident - o->data_bytes : 0) + LATER_BYTES + o->extra_bytes;
    p->overhead_of[0] += sl_statistics_bytes(e->graph, p->rank_count);
    p->overhead_of[0] += sl_engine_table_bytes(e->graph, p->rank_count);
    if (p->budget[SL_TIER_DISK] > 0) p->overhead_of[0] += sl_exec_disk_memory(most_on_disk(e, p));
    if (p->rank_count > 1) p->overhead_of[0] += COMM_BYTES;
    if (e->device.is_cuda) {
        p->overhead_of[0] += SL_CUDA_HOST_OVERHEAD_BYTES;
        p->device_overhead = SL_CUDA_OVERHEAD_BYTES + (e->gpu_comm != NULL ? SL_GPU_COMM_BYTES : 0);
    }
    p->overhead_of[2] = sl_pool_overhead_bytes(threads);
    p->overhead_bytes = p->overhead_of[0] + p->overhead_of[1] + p->overhead_of[2];
}

/* Budgets from what there is of both memories; of either the minimum over all ranks counts: with different budgets,
 * ranks could place layers differently. */
static sluice_status ask_machine(sluice_engine *e, sl_plan_options *p, sl_shortage *short_of)
{
    uint64_t room, mine = sl_machine_room(p, sl_memory_available() / (uint64_t)e->ranks->local);
    SL_TRY(sl_ranks_least(e->ranks, "memory of the ranks", mine, &room));
    if (!e->device.is_cuda) {
        sl_machine_budgets(p, room, short_of);
        return SLUICE_OK;
    }
    uint64_t on_device, taken = e->gpu_comm != NULL ? SL_GPU_COMM_BYTES : 0, free_bytes = sl_device_room(&e->device);
    free_bytes = free_bytes > taken ? free_bytes - taken : 0;
    SL_TRY(sl_ranks_least(e->ranks, "memory of the GPUs", free_bytes, &on_device));
    sl_machine_split_budgets(p, on_device, room, short_of);
    return SLUICE_OK;
}

/* "memory.host is 128.00 GiB (137438953472 bytes), but this machine has only 10.56 GiB (11337521858 bytes) free for each
 * of 2 ranks, after 5 % and what the program takes". */
static void describe_shortage(const sluice_engine *e, const sl_engine_options *o, const sl_shortage *x, char *out,
                              size_t room)
{
    char told[32], has[32], share[48] = "";
    bool described = o->machine != NULL && o->plan_only;
    int ranks = x->on_device ? e->device.sharing : e->ranks->local;
    const char *whose = x->on_disk               ? "the file system of memory.disk_path"
                        : described              ? "the described machine"
                        : x->on_device           ? "the GPU"
                        : sl_memory_is_limited() ? "the cgroup of this process"
                                                 : "this machine";
    if (!described && ranks > 1) snprintf(share, sizeof share, " for each of %d ranks", ranks);
    snprintf(out, room, "%s %s %s (%llu bytes), but %s has only %s (%llu bytes)%s%s%s", x->keys,
             x->both ? "are together" : "is", sl_format_bytes(x->told, told, sizeof told), (unsigned long long)x->told,
             whose, sl_format_bytes(x->has, has, sizeof has), (unsigned long long)x->has, described ? "" : " free",
             share, x->on_device && !described ? "" : ", after 5 % and what the program itself takes");
}

/* A run is refused: it would use what is not there. A plan is made for what it is told, with a warning. */
static sluice_status answer_shortage(const sluice_engine *e, const sl_engine_options *o, const sl_plan_options *p,
                                     const sl_shortage *x)
{
    char text[320];
    describe_shortage(e, o, x, text, sizeof text);
    if (!o->plan_only)
        return sl_fail(SLUICE_ERR_NO_FIT, "does not fit: %s. Lower %s, or leave %s out to use what there is", text,
                       x->keys, x->both ? "them" : "it");
    if (p->rank == 0)
        sl_log_write(&e->log, SLUICE_LOG_WARNING, "%s; planned as told, but train %s would refuse", text,
                     o->machine != NULL ? "there" : "here");
    return SLUICE_OK;
}

/* ---- the disk ---- */

/* What one rank may use of the folders. */
static sluice_status free_on_disk(const char *path, int ranks, uint64_t *out)
{
    char text[SL_SWAP_FOLDERS_BYTES];
    const char *folders[SL_SWAP_MAX_FOLDERS];
    uint64_t each;
    int count = sl_swap_folders(path, text, sizeof text, folders);
    SL_TRY(sl_swap_room(folders, count, &each));
    each = (each - each / 20) / (uint64_t)ranks / SL_DISK_UNIT * SL_DISK_UNIT;
    *out = count > 0 ? each * (uint64_t)count : 0;
    return SLUICE_OK;
}

/* Folders that are not here are those of another machine, where a plan is all that is asked. */
static sluice_status ask_disk(const sluice_engine *e, const sl_engine_options *o, const char *path, uint64_t *out)
{
    sluice_status st = free_on_disk(path, e->ranks->local, out);
    if (st != SLUICE_ERR_USAGE || !o->plan_only) return st;
    *out = UNKNOWN_DISK;
    sl_log_write(&e->log, SLUICE_LOG_WARNING,
                 "%s; planned for a disk that is large enough, but train here would refuse", sluice_error());
    return SLUICE_OK;
}

static uint64_t described_disk(const sl_machine_description *d)
{
    uint64_t bytes = d->rates.capacity[SL_TIER_DISK];
    return bytes > 0 ? bytes : UNKNOWN_DISK;
}

/* A plan may be made for a disk of another machine: as told, or as that is described. */
static sluice_status set_disk_budget(sluice_engine *e, const sl_engine_options *o, sl_plan_options *p,
                                     sl_shortage *short_of)
{
    const char *path = o->settings->device.disk_path;
    uint64_t told = p->budget[SL_TIER_DISK], mine = 0, room = 0;
    bool elsewhere = o->plan_only && (o->machine != NULL || path == NULL || path[0] == '\0');
    if (elsewhere) {
        bool named = path != NULL && path[0] != '\0';
        room = told > 0 ? told : named && o->machine != NULL ? described_disk(o->machine) : 0;
    } else {
        if (told > 0 && (path == NULL || path[0] == '\0'))
            return sl_fail(SLUICE_ERR_USAGE, "memory.disk is given, but no folder for swap files: name one on a fast "
                                             "local disk with memory.disk_path");
        sluice_status st = path != NULL && path[0] != '\0' ? ask_disk(e, o, path, &mine) : SLUICE_OK;
        SL_TRY(sl_ranks_agree(e->ranks, "the disk", st));
        SL_TRY(sl_ranks_least(e->ranks, "disks of the ranks", mine, &room));
    }
    p->told[SL_TIER_DISK] = told;
    p->automatic[SL_TIER_DISK] = told == 0;
    p->budget[SL_TIER_DISK] = told > 0 ? told : room;
    if (told > room && short_of->keys == NULL)
        *short_of = (sl_shortage){ .keys = sl_tiers[SL_TIER_DISK].setting, .told = told, .has = room, .on_disk = true };
    if (p->budget[SL_TIER_DISK] > 0) p->snapshot = false; /* a copy of what is there would be as large again */
    return SLUICE_OK;
}

/* How much memory the plan may use in each tier:
 *
 *     what is planned        device budget                               host budget
 *     described, plan only   its capacity in the file, less 5 %, less overhead: sl_machine_described_budgets
 *     CPU                    memory.device, or the room                  memory.host, or the room; both together no more
 *                                                                        than the room, as it is all RAM
 *     GPU                    memory.device less CUDA's overhead, or      memory.host, or the room
 *                            what is free of the GPU
 *
 * The room is this rank's share of the host's available memory, less 5 %, less the overhead that is still to come
 * (sl_machine_room). What is free of a GPU is this rank's share of it, less CUDA's overhead and NCCL's (sl_device_room).
 * A setting that tells of more than that: answer_shortage. The null backend takes no memory, so there it may. */
sluice_status sl_engine_set_budgets(sluice_engine *e, const sl_engine_options *o, int threads, sl_plan_options *p)
{
    sl_shortage short_of = { .keys = NULL }, disk = { .keys = NULL };
    SL_TRY(set_disk_budget(e, o, p, &disk));
    estimate_overhead(e, o, threads, p);
    if (o->machine != NULL && o->plan_only)
        sl_machine_described_budgets(p, o->machine, &short_of);
    else
        SL_TRY(ask_machine(e, p, &short_of));
    if (short_of.keys == NULL) short_of = disk;
    if (short_of.keys == NULL || (o->settings->device.null_backend && !o->plan_only)) return SLUICE_OK;
    return sl_ranks_agree(e->ranks, "budgets", answer_shortage(e, o, p, &short_of));
}
