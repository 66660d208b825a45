/* recall.c: rates of one model's kernels on this machine, kept in the user's cache.
 *
 * A file of the cache is a machine file (machine_file.c). Its name is a hash of everything that the rates depend on: the
 * version of sluice, processor, instruction path, threads, GPU, number of ranks, and the kernels with their shapes. So another
 * machine that shares the home directory, a new GPU or another batch size never find the rates of something else. */
#include "machine/recall.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/hash.h"
#include "core/io.h"
#include "core/thread.h"
#include "machine/measure.h"

sl_machine_choice sl_machine_choose(const char *told)
{
    if (told == NULL) told = getenv("SLUICE_MACHINE");
    if (told == NULL || told[0] == '\0') return (sl_machine_choice){ NULL, true };
    if (strcmp(told, "default") == 0) return (sl_machine_choice){ NULL, false };
    return (sl_machine_choice){ told, false };
}

/* ---- where rates are kept ---- */

static uint64_t hash_of(const sl_recall *r)
{
    char cpu[128];
    uint64_t hash = sl_hash_number(sl_hash_text(sluice_version()), SL_RECALL_REVISION);
    sl_cpu_model(cpu, sizeof cpu);
    hash = sl_hash_bytes(hash, cpu, strlen(cpu));
    const int64_t numbers[] = { r->isa, r->threads, r->ranks, r->device->is_cuda };
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) hash = sl_hash_number(hash, numbers[i]);
    if (r->device->is_cuda) {
        const sl_cuda_facts *gpu = &r->device->facts;
        hash = sl_hash_bytes(hash, gpu->name, strlen(gpu->name));
        hash = sl_hash_number(hash, gpu->driver_version);
        hash = sl_hash_number(hash, r->device->sharing);
    }
    return sl_hash_number(hash, (int64_t)sl_bench_graph_hash(r->graph));
}

/* $XDG_CACHE_HOME/sluice or $HOME/.cache/sluice; false: this user has neither. */
static bool is_folder(const char *path)
{
    sl_path_info there;
    return sl_path_look(path, &there) == SLUICE_OK && there.kind == SL_PATH_FOLDER;
}

/* A home that is not there is none, as that of services: only the last folders of the path are ever made. */
bool sl_recall_folder(char out[PATH_MAX])
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    char above[PATH_MAX];
    if (cache != NULL && cache[0] == '/')
        return snprintf(out, PATH_MAX, "%s/sluice", cache) < PATH_MAX &&
               (is_folder(cache) || (sl_path_parent(cache, above) == SLUICE_OK && is_folder(above)));
    if (home != NULL && home[0] == '/')
        return snprintf(out, PATH_MAX, "%s/.cache/sluice", home) < PATH_MAX && is_folder(home);
    return false;
}

static bool cache_file(const sl_recall *r, char out[PATH_MAX])
{
    char folder[PATH_MAX];
    if (!sl_recall_folder(folder)) return false;
    return snprintf(out, PATH_MAX, "%s/rates-%016llx.json", folder, (unsigned long long)hash_of(r)) < PATH_MAX;
}

static bool load(const sl_recall *r, sl_machine *rates)
{
    char file[PATH_MAX];
    sl_machine_description d;
    if (!cache_file(r, file) || !sl_path_exists(file) || sl_machine_read(file, &d) != SLUICE_OK) return false;
    memcpy(d.rates.capacity, rates->capacity, sizeof rates->capacity);
    *rates = d.rates;
    sl_log_write(r->log, SLUICE_LOG_DETAIL, "rates: those measured here before (%s)", file);
    return true;
}

static void keep(const sl_recall *r, const sl_machine *rates, double seconds)
{
    char folder[PATH_MAX], file[PATH_MAX];
    sl_machine_description d = { .rates = *rates,
                                 .shared_memory = !r->device->is_cuda,
                                 .ranks = r->ranks,
                                 .threads = r->threads,
                                 .isa = r->isa,
                                 .is_cuda = r->device->is_cuda };
    for (int t = SL_TIER_DEVICE; t <= SL_TIER_HOST; t++) d.rates.capacity[t] = sl_memory_available();
    if (d.is_cuda) {
        d.rates.capacity[SL_TIER_DEVICE] = r->device->facts.total_bytes;
        snprintf(d.gpu, sizeof d.gpu, "%s", r->device->facts.name);
    }
    const bool kept = cache_file(r, file) && sl_recall_folder(folder) && sl_dir_make(folder) == SLUICE_OK &&
                      sl_machine_write(file, &d) == SLUICE_OK;
    sl_log_write(r->log, SLUICE_LOG_NOTE, "rates: this model's kernels were measured here in %.1f s%s%s%s", seconds,
                 kept ? " (kept in " : ", and could not be kept for the next time", kept ? file : "", kept ? ")" : "");
}

/* ---- measuring ---- */

static sluice_status measure(const sl_recall *r, sl_machine *rates)
{
    sl_bench_scale scale = r->device->is_cuda ? sl_bench_gpu_graph : sl_bench_cpu_graph;
    sl_machine measured = *rates;
    uint64_t pinnable;
    scale.graph = r->graph;
    scale.threads = sl_device_host_threads(r->device, r->threads);
    if (!r->device->is_cuda) measured.copies_overlap = true;
    SL_TRY(sl_bench_measure(r->here->comm, r->device, &scale, r->isa, NULL, &measured, &pinnable));
    *rates = measured;
    return SLUICE_OK;
}

sluice_status sl_machine_recall(const sl_recall *r, sl_machine *rates)
{
    sl_comm *comm = r->here->comm;
    int32_t known = r->here->rank == 0 && !r->anew && load(r, rates);
    if (r->here->count > 1) SL_TRY(comm->ops->broadcast(comm, "known rates", 0, &known, sizeof known));
    if (!known) {
        if (r->here->count != r->ranks || r->here->local != r->ranks) return SLUICE_OK;
        double start = sl_now();
        sluice_status st = measure(r, rates);
        if (st == SLUICE_ERR_NO_MEMORY) return SLUICE_OK; /* on all ranks: they agree on how much there is */
        if (st != SLUICE_OK && r->here->count == 1) {     /* no reason not to train */
            sl_log_write(r->log, SLUICE_LOG_NOTE,
                         "rates: those that such a machine usually has, as measuring failed: %s", sluice_error());
            return SLUICE_OK;
        }
        SL_TRY(st);
        sl_memory_forget_high_water();
        if (r->here->rank == 0 && !r->anew) keep(r, rates, sl_now() - start);
    }
    return r->here->count > 1 ? comm->ops->broadcast(comm, "rates", 0, rates, sizeof *rates) : SLUICE_OK;
}

/* ---- what a file lacks ---- */

/* Where the plan looks for the points of a node; NULL: it asks for none. */
static const sl_rates *points_of(const sl_machine *m, const sluice_graph *g, const sl_node *node)
{
    if (sl_ops[node->op].view || sl_ops[node->op].cost == NULL) return NULL;
    return sl_machine_kernel_rates(m, node->op, sl_machine_is_narrow(m, sl_node_type(g, node)));
}

/* Kinds of kernels that the graph has and the rates do not know. */
static int count_missing(const sluice_graph *g, const sl_machine *rates)
{
    bool counted[SL_OP_COUNT] = { false };
    int count = 0;
    for (int i = 0; i < g->forward_count + g->backward_count; i++) {
        const sl_node *node = &g->nodes[i];
        const sl_rates *points = points_of(rates, g, node);
        if (points == NULL || points->count > 0 || counted[node->op]) continue;
        const sl_cost cost = sl_ops[node->op].cost(g, node);
        counted[node->op] = cost.flops > 0 || cost.bytes > 0;
        count += counted[node->op];
    }
    return count;
}

sluice_status sl_machine_recall_missing(const sl_recall *r, const sl_machine *usual, sl_machine *rates)
{
    const int missing = count_missing(r->graph, rates);
    if (missing == 0) return SLUICE_OK;
    sl_machine *own = sl_alloc(sizeof *own, "rates of this machine");
    if (own == NULL) return SLUICE_ERR_NO_MEMORY;
    *own = *usual;
    sluice_status st = sl_machine_recall(r, own);
    for (int type = 0; type < SL_RATE_TYPES && st == SLUICE_OK; type++)
        for (int op = 0; op < SL_OP_COUNT; op++)
            if (rates->kernels[type][op].count == 0) rates->kernels[type][op] = own->kernels[type][op];
    sl_free(own);
    if (st == SLUICE_OK && r->here->rank == 0)
        sl_log_write(r->log, SLUICE_LOG_NOTE,
                     "rates: the machine file has none of %d kind%s of kernels of this model; they are measured here",
                     missing, missing == 1 ? "" : "s");
    return st;
}
