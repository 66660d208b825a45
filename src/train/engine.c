/* engine.c: creates everything a training run needs, in pipeline order. */
#include "train/engine.h"

#include <unistd.h>

#include "core/alloc.h"
#include "core/bytes.h"
#include "core/thread.h"
#include "ir/shared_norm.h"
#include "ir/sparse.h"
#include "train/engine_parts.h"

sl_comm *sl_engine_comm(const sluice_engine *e)
{
    return e->gpu_comm != NULL ? e->gpu_comm : e->ranks->comm;
}

double sl_engine_disk_deadline(const sluice_engine *e, const sl_settings *s)
{
    return (double)s->timeout_seconds / (e->ranks->count > 1 ? 2 : 1);
}

void sl_engine_use_scale(sluice_engine *e)
{
    e->context.loss_scale = e->scaler.scale;
}

/* Identity comes before the precision, so that a checkpoint tells another model from another precision. */
sluice_status sl_engine_build_graph(sluice_engine *e, const sl_engine_options *o)
{
    SL_TRY(sl_graph_compact(e->graph, (uint64_t)e->micro_batches));
    SL_TRY(sl_graph_finish(e->graph));
    if (o->training && e->graph->loss < 0)
        return sl_fail(SLUICE_ERR_USAGE, "the graph has no loss: call sluice_set_loss before sluice_engine_create");
    SL_TRY(sl_engine_identify_model(e));
    SL_TRY(sl_graph_lower(e->graph, e->precision.type, e->precision.wire));
    if (o->training) {
        sl_graph_set_norm_ranks(e->graph, o->plan_only ? o->settings->plan.rank_count : e->ranks->count);
        SL_TRY(sl_graph_differentiate(e->graph));
        SL_TRY(sl_graph_share_norms(e->graph));
        sl_optim_options optim = o->settings->optim;
        optim.states = o->settings->precision.states;
        SL_TRY(sl_optim_create(e->graph, &optim, &e->optim));
        e->slots.count = sl_optim_slots(e->optim);
        for (int k = 0; k < e->slots.count; k++) e->slots.names[k] = sl_optim_slot_name(e->optim, k);
    }
    return sl_graph_verify(e->graph);
}

/* Of all tiers. */
static uint64_t planned_bytes(const sl_plan *p)
{
    uint64_t bytes = 0;
    for (int t = 0; t < SL_TIER_COUNT; t++) bytes += p->totals.peak[t];
    return bytes;
}

sluice_status sl_engine_open_executor(sluice_engine *e, const sl_settings *s)
{
    const sl_device_settings *d = &s->device;
    sl_activity activity;
    sl_exec_options x = { .backend = d->null_backend ? &sl_null_backend : e->device.backend,
                          .device = { .threads = sl_device_host_threads(&e->device, e->threads),
                                      .isa = e->isa,
                                      .guard = d->guard,
                                      .log = e->log,
                                      .ordinal = e->device.ordinal,
                                      .tf32 = d->tf32 },
                          .comm = sl_engine_comm(e),
                          .progress = e->progress };
    char text[SL_SWAP_FOLDERS_BYTES];
    const char *folders[SL_SWAP_MAX_FOLDERS];
    if (!d->null_backend) x.swap.folder_count = sl_swap_folders(d->disk_path, text, sizeof text, folders);
    x.swap.folders = folders;
    x.swap.log = &e->log;
    x.swap.deadline_seconds = sl_engine_disk_deadline(e, s);
    x.comm->ops->arena_files(x.comm, x.device.arena_files);
    x.device.nodes = e->ranks->place.binding.nodes;
    /* of several ranks only: this thread computes, and starts the others that do */
    if (e->computes) sl_binding_apply(&e->ranks->place.binding);
    sl_activity_begin(&activity, &e->progress, "reserve", planned_bytes(e->plan));
    SL_TRY(sl_exec_create(e->plan, &x, &e->exec));
    e->reserve_seconds = sl_activity_end(&activity);
    return SLUICE_OK;
}

static sluice_status open_steps(sluice_engine *e, const sl_settings *s)
{
    const sl_plan_options *p = &e->plan->options;
    e->losses = sl_alloc_array((size_t)p->accumulation * (size_t)(1 + p->rank_count), sizeof *e->losses, "losses");
    e->targets = sl_alloc_array((size_t)p->accumulation * (size_t)(1 + p->rank_count), sizeof *e->targets, "targets");
    e->all_found = sl_alloc_array((size_t)p->rank_count, sizeof *e->all_found, "what ranks found");
    e->looked_at =
        sl_alloc_array((size_t)e->graph->value_count + 1, sizeof *e->looked_at, "inputs that were looked at");
    if (e->losses == NULL || e->targets == NULL || e->all_found == NULL || e->looked_at == NULL)
        return SLUICE_ERR_NO_MEMORY;
    return sl_engine_open_executor(e, s);
}

/* A plan for a machine that is described needs nothing of this one's devices. */
static sluice_status choose_device(sluice_engine *e, const sl_engine_options *o)
{
    if (o->plan_only && o->machine != NULL) {
        if (o->machine->is_cuda)
            sl_device_describe_cuda(&e->device);
        else
            SL_TRY(sl_device_choose(SLUICE_DEVICE_CPU, 0, 1, &e->device));
        return SLUICE_OK;
    }
    return sl_device_choose(o->settings->device.kind, e->ranks->local_rank, e->ranks->local, &e->device);
}

/* Micro-batches of a step are counted in 32 bits: by random numbers (exact rule 8), and between ranks. */
static sluice_status count_micro_batches(sluice_engine *e, int accumulation, int ranks)
{
    int64_t count = (int64_t)(accumulation > 0 ? accumulation : 1) * ranks;
    if (count > INT32_MAX)
        return sl_fail(SLUICE_ERR_USAGE,
                       "gradient_accumulation_steps %d x %d ranks is %lld micro-batches in a step; at most %d are "
                       "allowed",
                       accumulation, ranks, (long long)count, INT32_MAX);
    e->micro_batches = (double)count;
    return SLUICE_OK;
}

/* Threads cost memory each. Where they take most of what there is, the message about what is left for the model would
 * blame its budget. */
static sluice_status check_threads(const sluice_engine *e, const sl_engine_options *o, int threads)
{
    char needs[32], has[32];
    uint64_t scratch = sl_pool_overhead_bytes(threads), memory = sl_memory_available() / (uint64_t)e->ranks->local;
    bool described = o->machine != NULL && o->plan_only; /* the memory of another machine */
    if (described || scratch <= memory / 2) return SLUICE_OK;
    return sl_fail(
        SLUICE_ERR_USAGE,
        "threads: %d threads take %s of scratch memory, and a rank has %s here for everything; \"auto\" takes "
        "the %d CPUs that it has",
        threads, sl_format_bytes(scratch, needs, sizeof needs), sl_format_bytes(memory, has, sizeof has),
        e->ranks->place.cpus);
}

static int cpus_of_rank(const sluice_engine *e, const sl_engine_options *o)
{
    bool described = o->machine != NULL && o->plan_only && o->machine->host_cores > 0;
    return described ? o->machine->host_cores : e->ranks->place.cpus;
}

static sluice_status create(sluice_engine *e, const sl_engine_options *o)
{
    e->ranks = o->ranks != NULL ? o->ranks : &e->own_ranks;
    if (o->ranks == NULL) SL_TRY(sl_ranks_open(o->world, &e->own_ranks));
    const sl_settings *s = o->settings;
    /* without a setting: this rank's share of the machine's CPUs */
    int threads = e->threads = s->device.threads > 0 ? s->device.threads : cpus_of_rank(e, o);
    SL_TRY(count_micro_batches(e, s->plan.accumulation, o->plan_only ? s->plan.rank_count : e->ranks->count));
    sl_engine_use_scale(e);
    sluice_status st = sl_machine_isa(&e->isa);
    if (st == SLUICE_OK) st = check_threads(e, o, threads);
    if (st == SLUICE_OK) st = choose_device(e, o);
    if (st == SLUICE_OK) st = sl_engine_build_graph(e, o);
    if (st == SLUICE_OK) st = sl_engine_find_indices(e);
    if (st == SLUICE_OK) st = sl_engine_find_sequences(e);
    if (st == SLUICE_OK) st = sl_engine_find_counted(e);
    if (st == SLUICE_OK) st = sl_engine_ask_workspace(e);
    if (st == SLUICE_OK && !o->plan_only) st = sl_engine_open_tables(e);
    SL_TRY(sl_ranks_agree(e->ranks, "preparing the model", st));
    if (!o->plan_only && !s->device.null_backend)
        SL_TRY(sl_gpu_comm_choose(e->ranks, &e->device, s->device.comm, &e->log, &e->gpu_comm));
    SL_TRY(sl_engine_make_plan(e, o, threads));
    if (o->only_need) return SLUICE_OK;
    e->accumulation = e->plan->options.accumulation;
    sl_engine_begin_speculation(e, o->rehearses);
    if (o->plan_only) return SLUICE_OK;
    SL_TRY(sl_engine_identify(e, s));
    /* creating the executor is a meeting of all ranks: one that fails on the way there has to say so at once */
    SL_TRY(sl_ranks_agree(e->ranks, "reserving memory", sl_ranks_failed(e->ranks, open_steps(e, s))));
    /* a rank may be asked to stop here before the others are: that is no failure of theirs */
    return sl_ranks_agree(e->ranks, "first weights", sl_engine_init_tensors(e, o->weights_follow, s->device.guard));
}

sluice_status sl_engine_create(sluice_graph *g, const sl_engine_options *o, sluice_engine **out)
{
    sluice_engine *e = sl_alloc(sizeof *e, "engine");
    if (e == NULL) return SLUICE_ERR_NO_MEMORY;
    e->graph = g;
    e->process = getpid();
    e->log = o->log;
    e->progress = o->progress;
    e->computes = !o->settings->device.null_backend;
    e->lr = o->settings->optim.optimizer.lr;
    e->momentum = -1;
    e->context = (sl_run_context){ .seed = (uint64_t)o->settings->seed, .clip = o->settings->optim.clip };
    e->precision = o->settings->precision;
    if (e->precision.type != SLUICE_F16) e->precision.loss_scale = (sluice_loss_scale){ .fixed = 1 };
    sl_loss_scale_start(&e->precision.loss_scale, &e->scaler);
    sl_engine_reset_watch(e);
    sluice_status st = create(e, o);
    if (st != SLUICE_OK) {
        if (e->ranks != NULL) sl_ranks_failed(e->ranks, st);
        sluice_engine_destroy(e);
        return st;
    }
    *out = e;
    return SLUICE_OK;
}

void sluice_engine_destroy(sluice_engine *e)
{
    /* A forked process has a copy of the memory, which ends with it. Swap files, ranks and devices are its parent's, and the threads
     * that would have to end first are not there. */
    if (e == NULL || e->process != getpid()) return;
    sl_exec_destroy(e->exec);
    if (e->gpu_comm != NULL) e->gpu_comm->ops->close(e->gpu_comm);
    sl_ranks_close(&e->own_ranks);
    sl_plan_destroy(e->plan);
    sl_optim_destroy(e->optim);
    sl_engine_close_tables(e);
    sl_free(e->indices);
    sl_free(e->position_inputs);
    sl_free(e->bag_nodes);
    sl_free(e->sequence_nodes);
    sl_free(e->targets);
    sl_free(e->losses);
    sl_free(e->workspace);
    sl_free(e->all_found);
    sl_free((void *)e->looked_at);
    sl_free(e);
}
