/* engine.c: creates everything a training run needs, in pipeline order, and drives the plan's segments. */
#include "train/engine.h"

#include <math.h>
#include <string.h>

#include "core/alloc.h"
#include "core/bytes.h"
#include "core/half.h"
#include "core/rng.h"
#include "core/thread.h"
#include "ir/tile.h"

/* Room for what is allocated after planning: the executor, file names, JSON, a checkpoint's staging buffer. */
#define LATER_BYTES (SL_CHECKPOINT_STAGING_BYTES + ((uint64_t)8 << 20))
/* And for talking to other ranks: MPI's staging, or the shared segment, and what lies behind them. */
#define COMM_BYTES ((uint64_t)12 << 20)

/* ---- first values ---- */

static uint64_t name_hash(const char *name)
{
    uint64_t h = 0xcbf29ce484222325u; /* FNV-1a */
    for (; *name != '\0'; name++) h = (h ^ (unsigned char)*name) * 0x100000001b3u;
    return h;
}

static float initial_value(const sluice_init *init, const sl_rng *rng, uint64_t element)
{
    switch (init->kind) {
    case SLUICE_INIT_ONE:
        return 1.0f;
    case SLUICE_INIT_NORMAL:
        return init->scale * sl_rng_normal(rng, element);
    case SLUICE_INIT_UNIFORM:
        return init->scale * (2.0f * sl_rng_uniform(rng, element) - 1.0f);
    default:
        return 0.0f;
    }
}

/* Values depend on the global element alone; each rank stores those it keeps. */
#define INIT_CHUNK ((int64_t)1 << 20)
#define INIT_TASK  ((int64_t)1 << 14)

typedef struct init_work {
    const sluice_graph *graph;
    int parameter;
    int64_t first, count; /* elements of the chunk */
    sl_rng rng;
    float *chunk;
} init_work;

static void init_task(void *context, int64_t task, void *scratch)
{
    const init_work *w = context;
    const sluice_init *init = &w->graph->parameters[w->parameter].init;
    int64_t begin = task * INIT_TASK, end = begin + INIT_TASK < w->count ? begin + INIT_TASK : w->count;
    (void)scratch;
    if (init->kind == SLUICE_INIT_NORMAL && w->graph->parameters[w->parameter].whole == NULL) {
        sl_rng_normals(&w->rng, (uint64_t)(w->first + begin), end - begin, w->chunk + begin);
        for (int64_t i = begin; i < end; i++) w->chunk[i] *= init->scale;
        return;
    }
    for (int64_t i = begin; i < end; i++) {
        int64_t element = sl_parameter_whole_element(w->graph, w->parameter, w->first + i);
        w->chunk[i] = initial_value(init, &w->rng, (uint64_t)element);
    }
}

/* By name and element of the whole parameter, so that neither ranks nor tiles nor threads change a value. */
static sluice_status init_parameter(sluice_engine *e, int index, sl_pool *pool, float *chunk)
{
    const sl_parameter *q = &e->graph->parameters[index];
    init_work w = { .graph = e->graph, .parameter = index, .chunk = chunk };
    w.rng = sl_rng_stream(e->context.seed, SL_RNG_INIT, name_hash(sl_whole_name(e->graph, index)), 0, 0);
    for (w.first = 0; w.first < q->count; w.first += INIT_CHUNK) {
        w.count = q->count - w.first < INIT_CHUNK ? q->count - w.first : INIT_CHUNK;
        sl_pool_run(pool, init_task, &w, (w.count + INIT_TASK - 1) / INIT_TASK);
        SL_TRY(sl_exec_store(e->exec, index, -1, w.first, w.count, chunk));
    }
    return SLUICE_OK;
}

/* State starts as zero, as arenas do, except under guard, where they are poisoned. */
static sluice_status zero_state(sluice_engine *e, int index, const float *zeros)
{
    const sl_parameter *q = &e->graph->parameters[index];
    for (int k = 0; q->trainable && k < e->slots.count; k++)
        for (int64_t first = 0; first < q->count; first += INIT_CHUNK) {
            int64_t n = q->count - first < INIT_CHUNK ? q->count - first : INIT_CHUNK;
            SL_TRY(sl_exec_store(e->exec, index, k, first, n, zeros));
        }
    return SLUICE_OK;
}

static int64_t longest_parameter(const sluice_graph *g)
{
    int64_t longest = 0;
    for (int i = 0; i < g->parameter_count; i++)
        if (g->parameters[i].count > longest) longest = g->parameters[i].count;
    return longest < INIT_CHUNK ? longest : INIT_CHUNK;
}

static sluice_status init_tensors(sluice_engine *e, bool poisoned)
{
    size_t room = (size_t)longest_parameter(e->graph);
    sl_pool *pool = NULL;
    float *chunk = sl_alloc_array(2 * room + 1, sizeof *chunk, "first values");
    sluice_status st = chunk != NULL ? sl_pool_create(e->threads, &pool) : SLUICE_ERR_NO_MEMORY;
    if (st == SLUICE_OK) st = sl_exec_lend_pool(e->exec, pool);
    for (int i = 0; st == SLUICE_OK && i < e->graph->parameter_count; i++) {
        st = init_parameter(e, i, pool, chunk);
        if (st == SLUICE_OK && poisoned) st = zero_state(e, i, chunk + room);
    }
    sl_exec_lend_pool(e->exec, NULL);
    sl_pool_destroy(pool);
    sl_free(chunk);
    return st;
}

/* ---- creation ---- */

/* Identity comes before the precision, so that a checkpoint tells another model from another precision. */
static sluice_status build_graph(sluice_engine *e, const sl_engine_options *o)
{
    SL_TRY(sl_graph_finish(e->graph));
    if (o->training && e->graph->loss < 0)
        return sl_fail(SLUICE_ERR_USAGE, "the graph has no loss: call sluice_set_loss before sluice_engine_create");
    sl_graph_identity(e->graph, e->identity);
    SL_TRY(sl_graph_lower(e->graph, o->precision, o->wire));
    if (o->training) {
        SL_TRY(sl_graph_differentiate(e->graph));
        SL_TRY(sl_optim_create(e->graph, &o->optim, &e->optim));
        e->slots.count = sl_optim_slots(e->optim);
        for (int k = 0; k < e->slots.count; k++) e->slots.names[k] = sl_optim_slot_name(e->optim, k);
    }
    return sl_graph_verify(e->graph);
}

/* ---- workspace ---- */

static void describe_operand(const sluice_graph *g, int value, const sl_shape **shape, sl_form *form, sl_span *span)
{
    if (value < 0) return;
    *shape = &g->values[value].shape;
    *form = (sl_form)g->values[value].dtype;
    *span = (sl_span){ SL_TIER_DEVICE, 0, sl_value_bytes(&g->values[value]) };
}

/* Bytes beside its operands that a node's kernel needs. */
static uint64_t node_workspace(const sluice_engine *e, const sl_node *node)
{
    sl_call call = { .op = node->op, .attrs = &node->attrs, .context = &e->context, .wire = e->graph->wire };
    call.input_count = node->input_count;
    call.output_count = node->output_count;
    for (int k = 0; k < node->input_count; k++)
        describe_operand(e->graph, node->inputs[k], &call.input_shapes[k], &call.input_forms[k], &call.inputs[k]);
    for (int k = 0; k < node->output_count; k++)
        describe_operand(e->graph, node->outputs[k], &call.output_shapes[k], &call.output_forms[k], &call.outputs[k]);
    return e->device.workspace(&call);
}

/* Of an update op on a run of `elements`, or for the end of the norm of as many leaves. */
static uint64_t update_workspace(const sluice_engine *e, sl_op op, const sl_attrs *attrs, int64_t elements)
{
    sl_shape shape = { 1, { elements } };
    uint64_t each = op == SL_OP_NORM_FINISH ? sizeof(double) : sizeof(float);
    sl_call call = { .op = op, .attrs = attrs, .context = &e->context, .wire = e->graph->wire };
    call.input_count = call.output_count = 1;
    call.input_shapes[0] = call.output_shapes[0] = &shape;
    call.inputs[0] = call.outputs[0] = (sl_span){ SL_TIER_DEVICE, 0, (uint64_t)elements * each };
    return e->device.workspace(&call);
}

static void raise_to(uint64_t *most, uint64_t bytes)
{
    if (bytes > *most) *most = bytes;
}

/* Update ops get as much as the layer that needs most; several are not made of graph nodes. */
static void ask_for_updates(const sluice_engine *e, uint64_t *of_op)
{
    static const sl_op by_layer[] = { SL_OP_CAST, SL_OP_ACCUMULATE, SL_OP_NORM_LEAVES };
    static const sl_attrs no_attrs;
    const sluice_graph *g = e->graph;
    int64_t leaves = 0;
    for (int i = 0; i < g->layer_count; i++) {
        int64_t n = g->layers[i].element_count;
        leaves += (n + SL_CUT_ELEMENTS - 1) / SL_CUT_ELEMENTS;
        for (size_t k = 0; n > 0 && k < sizeof by_layer / sizeof by_layer[0]; k++)
            raise_to(&of_op[by_layer[k]], update_workspace(e, by_layer[k], &no_attrs, n));
    }
    for (int i = g->forward_count + g->backward_count; i < g->node_count; i++) {
        const sl_node *node = &g->nodes[i];
        if (node->op == SL_OP_UPDATE)
            raise_to(&of_op[SL_OP_UPDATE],
                     update_workspace(e, SL_OP_UPDATE, &node->attrs, g->layers[node->layer].element_count));
    }
    raise_to(&of_op[SL_OP_NORM_FINISH], update_workspace(e, SL_OP_NORM_FINISH, &no_attrs, leaves));
}

static sluice_status ask_for_workspace(sluice_engine *e)
{
    const sluice_graph *g = e->graph;
    e->workspace = sl_alloc_array((size_t)g->node_count + SL_OP_COUNT, sizeof *e->workspace, "workspace of kernels");
    if (e->workspace == NULL) return SLUICE_ERR_NO_MEMORY;
    for (int i = 0; i < g->forward_count + g->backward_count; i++)
        e->workspace[i] = sl_ops[g->nodes[i].op].view ? 0 : node_workspace(e, &g->nodes[i]);
    if (e->optim != NULL) ask_for_updates(e, e->workspace + g->node_count);
    return SLUICE_OK;
}

/* ---- planning ---- */

/* Whose collectives the plan's are. */
static sl_comm *executor_comm(const sluice_engine *e)
{
    return e->gpu_comm != NULL ? e->gpu_comm : e->ranks->comm;
}

static void estimate_overhead(const sluice_engine *e, const sl_engine_options *o, int threads, sl_plan_options *p)
{
    uint64_t resident = sl_memory_resident();
    p->overhead_of[1] = o->data_bytes;
    p->overhead_of[0] = (resident > o->data_bytes ? resident - o->data_bytes : 0) + LATER_BYTES + o->extra_bytes;
    if (p->rank_count > 1) p->overhead_of[0] += COMM_BYTES;
    if (e->device.is_cuda) {
        p->overhead_of[0] += SL_CUDA_HOST_OVERHEAD_BYTES;
        p->device_overhead = SL_CUDA_OVERHEAD_BYTES + (e->gpu_comm != NULL ? SL_GPU_COMM_BYTES : 0);
    }
    p->overhead_of[2] = sl_pool_overhead_bytes(threads);
    p->overhead_bytes = p->overhead_of[0] + p->overhead_of[1] + p->overhead_of[2];
}

/* More was asked for than is free: another process may hold the rest. The plan goes by what there is. */
static void warn_of_full_device(const sluice_engine *e, const sl_plan_options *p, uint64_t room)
{
    char asked[32], there[32];
    uint64_t wanted = p->budget[SL_TIER_DEVICE], all = room + SL_CUDA_OVERHEAD_BYTES;
    if (wanted <= all || p->rank != 0) return;
    sl_log_write(&e->log, SLUICE_LOG_WARNING, "memory.device is %s, but only %s of the GPU is free; planning for that",
                 sl_format_bytes(wanted, asked, sizeof asked), sl_format_bytes(all, there, sizeof there));
}

/* What this rank may take of its machine. Ranks that planned with different budgets could place things differently, so
 * the least of all counts. */
static sluice_status set_budgets(sluice_engine *e, const sl_engine_options *o, sl_plan_options *p)
{
    uint64_t room;
    if (o->machine != NULL && o->plan_only) {
        sl_machine_described_budgets(p, o->machine);
        return SLUICE_OK;
    }
    uint64_t mine = sl_machine_room(p, sl_memory_available() / (uint64_t)e->ranks->local);
    SL_TRY(sl_ranks_least(e->ranks, "memory of the ranks", mine, &room));
    if (!e->device.is_cuda) {
        sl_machine_budgets(p, room);
        return SLUICE_OK;
    }
    uint64_t on_device, taken = e->gpu_comm != NULL ? SL_GPU_COMM_BYTES : 0, free_bytes = sl_device_room(&e->device);
    free_bytes = free_bytes > taken ? free_bytes - taken : 0;
    SL_TRY(sl_ranks_least(e->ranks, "memory of the GPUs", free_bytes, &on_device));
    warn_of_full_device(e, p, on_device);
    sl_machine_split_budgets(p, on_device, room);
    return SLUICE_OK;
}

static sluice_status compare_facts(sluice_engine *e, const char *what, const sl_text *facts)
{
    sluice_status st = sl_ranks_agree(e->ranks, what, sl_text_status(facts));
    return st == SLUICE_OK ? sl_ranks_same(e->ranks, what, facts->data) : st;
}

static sluice_status compare_options(sluice_engine *e, const sl_engine_options *o, const sl_plan_options *p)
{
    sl_text facts = { .data = NULL };
    if (e->ranks->count == 1) return SLUICE_OK;
    sl_engine_write_facts(e, o, p, &facts);
    sluice_status st = compare_facts(e, "settings", &facts);
    sl_text_free(&facts);
    return st;
}

static sluice_status compare_plans(sluice_engine *e)
{
    sl_text facts = { .data = NULL };
    if (e->ranks->count == 1) return SLUICE_OK;
    sl_plan_write_facts(e->plan, &facts);
    sluice_status st = compare_facts(e, "plan", &facts);
    sl_text_free(&facts);
    return st;
}

/* Measured rates hold for what they were measured with. A plan may be for another machine; then only the ranks count.
 */
static void warn_of_other_rates(const sluice_engine *e, const sl_engine_options *o, int ranks, int threads)
{
    const sl_machine_description *d = o->machine;
    bool same = o->plan_only || (d->threads == threads && d->isa == e->isa);
    if (d->ranks == 0 || (d->ranks == ranks && same)) return;
    sl_log_write(
        &e->log, SLUICE_LOG_WARNING,
        "the rates were measured with %d rank(s) of %d thread(s) on the %s path, this is %d of %d on %s: expected "
        "times may be wrong; measure with sluice devices --measure --ranks %d --machine FILE",
        d->ranks, d->threads, sl_isa_name(d->isa), ranks, threads, sl_isa_name(e->isa), ranks);
}

static const sl_form state_forms[] = {
    [SLUICE_STATES_F32] = SL_FORM_F32,
    [SLUICE_STATES_BF16] = SL_FORM_BF16,
    [SLUICE_STATES_COMPACT] = SL_FORM_BLOCKS8,
};

/* Whether the arenas are files that other ranks map. */
static bool shares_arenas(sl_comm *c)
{
    int files[SL_TIER_COUNT];
    c->ops->arena_files(c, files);
    return files[SL_TIER_DEVICE] > 0;
}

/* A plan that is not run goes by what was asked for: what ranks of another machine would find is not known here. */
static bool comm_reaches_gpus(const sluice_engine *e, const sl_engine_options *o)
{
    return o->plan_only ? o->gpu_comm == SL_GPU_COMM_NCCL : sl_comm_reaches_gpus(executor_comm(e));
}

static sluice_status make_plan(sluice_engine *e, const sl_engine_options *o, int threads)
{
    sl_plan_options p = o->plan;
    p.training = o->training;
    p.state_slots = e->slots.count;
    p.state_form = state_forms[o->states];
    p.update_bytes_per_element =
        e->optim != NULL ? sl_optim_bytes_per_element(e->optim, e->graph->precision, e->graph->wire, p.state_form) : 0;
    if (!o->plan_only) {
        p.rank = e->ranks->rank;
        p.rank_count = e->ranks->count;
    }
    p.early_updates &= o->optim.clip == 0 && !o->check_overflow && e->graph->precision != SLUICE_F16;
    p.comm_on_host = e->device.is_cuda && p.rank_count > 1 && !comm_reaches_gpus(e, o);
    SL_TRY(compare_options(e, o, &p));
    estimate_overhead(e, o, threads, &p);
    SL_TRY(set_budgets(e, o, &p));
    p.node_workspace = e->workspace;
    p.update_workspace = e->workspace + e->graph->node_count;
    sl_machine_describe(e->isa, threads, &e->machine);
    if (e->device.is_cuda) sl_machine_describe_cuda(&e->device.facts, &e->machine);
    if (o->machine != NULL) {
        e->machine = o->machine->rates;
        if (p.rank == 0) warn_of_other_rates(e, o, p.rank_count, threads);
    }
    if (o->machine == NULL || !o->plan_only)
        sl_memory_describe(&e->ranks->place, shares_arenas(executor_comm(e)), p.memory_note, sizeof p.memory_note);
    double start = sl_now();
    SL_TRY(sl_ranks_agree(e->ranks, "planning", sl_plan_create(e->graph, &e->machine, &p, &e->plan)));
    e->plan_seconds = sl_now() - start;
    return compare_plans(e);
}

static sluice_status open_executor(sluice_engine *e, const sl_engine_options *o, int threads)
{
    const sl_plan_options *p = &e->plan->options;
    double start = sl_now();
    sl_exec_options x = { .backend = o->null_backend ? &sl_null_backend : e->device.backend,
                          .device = { .threads = sl_device_host_threads(&e->device, threads),
                                      .isa = e->isa,
                                      .guard = o->guard,
                                      .log = o->log,
                                      .ordinal = e->device.ordinal,
                                      .tf32 = o->tf32 },
                          .comm = executor_comm(e) };
    x.comm->ops->arena_files(x.comm, x.device.arena_files);
    x.device.nodes = e->ranks->place.binding.nodes;
    /* of several ranks only: this thread computes, and starts the others that do */
    if (e->computes) sl_binding_apply(&e->ranks->place.binding);
    e->losses = sl_alloc_array((size_t)p->accumulation * (size_t)(1 + p->rank_count), sizeof *e->losses, "losses");
    e->all_found = sl_alloc_array((size_t)p->rank_count, sizeof *e->all_found, "what ranks found");
    if (e->losses == NULL || e->all_found == NULL) return SLUICE_ERR_NO_MEMORY;
    SL_TRY(sl_exec_create(e->plan, &x, &e->exec));
    e->reserve_seconds = sl_now() - start;
    return init_tensors(e, o->guard);
}

/* This rank's CPUs: those of the machine, shared out. */
static int count_threads(const sluice_engine *e, const sl_engine_options *o)
{
    return o->threads > 0 ? o->threads : e->ranks->place.cpus;
}

/* Every micro-batch's gradient begins with loss scale / K (exact rule 1). */
static void use_scale(sluice_engine *e)
{
    e->context.loss_scale = e->scaler.scale;
    e->context.seed_gradient = (float)(e->scaler.scale / e->micro_batches);
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
    return sl_device_choose(o->device, e->ranks->local_rank, e->ranks->local, &e->device);
}

static sluice_status create(sluice_engine *e, const sl_engine_options *o)
{
    e->ranks = o->ranks != NULL ? o->ranks : &e->own_ranks;
    if (o->ranks == NULL) SL_TRY(sl_ranks_open(o->world, &e->own_ranks));
    int threads = e->threads = count_threads(e, o);
    int ranks = o->plan_only ? o->plan.rank_count : e->ranks->count, steps = o->plan.accumulation;
    e->micro_batches = (double)(steps > 0 ? steps : 1) * ranks;
    use_scale(e);
    sluice_status st = sl_machine_isa(&e->isa);
    if (st == SLUICE_OK) st = choose_device(e, o);
    if (st == SLUICE_OK) st = build_graph(e, o);
    if (st == SLUICE_OK) st = ask_for_workspace(e);
    SL_TRY(sl_ranks_agree(e->ranks, "preparing the model", st));
    if (!o->plan_only && !o->null_backend)
        SL_TRY(sl_gpu_comm_choose(e->ranks, &e->device, o->gpu_comm, &e->log, &e->gpu_comm));
    SL_TRY(make_plan(e, o, threads));
    if (o->plan_only) return SLUICE_OK;
    /* creating the executor is a meeting of all ranks: one that fails on the way there has to say so at once */
    return sl_ranks_agree(e->ranks, "reserving memory", sl_ranks_failed(e->ranks, open_executor(e, o, threads)));
}

sluice_status sl_engine_create(sluice_graph *g, const sl_engine_options *o, sluice_engine **out)
{
    sluice_engine *e = sl_alloc(sizeof *e, "engine");
    if (e == NULL) return SLUICE_ERR_NO_MEMORY;
    e->graph = g;
    e->log = o->log;
    e->computes = !o->null_backend;
    e->lr = o->optim.optimizer.lr;
    e->optimizer = o->optim.optimizer.kind;
    e->momentum = -1;
    e->context = (sl_run_context){ .seed = o->seed, .clip = o->optim.clip };
    e->states = o->states;
    e->check_overflow = o->check_overflow;
    e->loss_scale = o->loss_scale;
    if (o->precision != SLUICE_F16) e->loss_scale = (sluice_loss_scale){ .fixed = 1 };
    sl_loss_scale_start(&e->loss_scale, &e->scaler);
    sl_engine_watch_anew(e);
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
    if (e == NULL) return;
    sl_exec_destroy(e->exec);
    if (e->gpu_comm != NULL) e->gpu_comm->ops->close(e->gpu_comm);
    sl_ranks_close(&e->own_ranks);
    sl_plan_destroy(e->plan);
    sl_optim_destroy(e->optim);
    sl_free(e->losses);
    sl_free(e->workspace);
    sl_free(e->all_found);
    sl_free(e);
}

/* ---- running ---- */

int sl_graph_inputs(const sluice_graph *g, int *values, int capacity)
{
    int n = 0;
    for (int v = 0; v < g->value_count; v++) {
        if (g->values[v].kind != SL_VALUE_INPUT) continue;
        if (n < capacity) values[n] = v;
        n++;
    }
    return n;
}

static sluice_status set_inputs(sluice_engine *e, const sluice_batch *batch, bool training)
{
    int inputs = sl_graph_inputs(e->graph, NULL, 0), given = 0;
    for (int i = 0; i < batch->count; i++) {
        const sluice_array *a = &batch->arrays[i];
        int value = a->name != NULL ? sl_graph_find_input(e->graph, a->name) : -1;
        if (value < 0)
            return sl_fail(SLUICE_ERR_USAGE, "the batch has an array \"%s\", the graph no such input",
                           a->name != NULL ? a->name : "");
        for (int k = 0; k < i; k++)
            if (strcmp(batch->arrays[k].name, a->name) == 0)
                return sl_fail(SLUICE_ERR_USAGE, "the batch has input \"%s\" twice", a->name);
        SL_TRY(sl_exec_set_input(e->exec, value, a->data, a->bytes));
        if (training) sl_engine_watch_input(e, value, a->data, a->bytes);
        given++;
    }
    if (given != inputs) return sl_fail(SLUICE_ERR_USAGE, "the batch has %d of the graph's %d inputs", given, inputs);
    return SLUICE_OK;
}

static sluice_status read_scalar(sluice_engine *e, int buffer, double *out)
{
    float value = 0;
    if (buffer < 0) return sl_fail(SLUICE_ERR_USAGE, "the graph has no loss");
    SL_TRY(sl_exec_read_result(e->exec, buffer, &value, sizeof value));
    *out = (double)value;
    return SLUICE_OK;
}

static sluice_status check_whole(const sluice_engine *e, const char *call)
{
    if (e->phase == SL_ENGINE_HALF_LOADED)
        return sl_fail(SLUICE_ERR_USAGE, "%s: loading weights failed halfway; load a whole file first", call);
    if (e->phase == SL_ENGINE_BROKEN)
        return sl_fail(SLUICE_ERR_USAGE,
                       "%s: an earlier call failed halfway; create the engine anew or load a checkpoint", call);
    return SLUICE_OK;
}

static sluice_status check_phase(const sluice_engine *e, sl_engine_phase wanted, const char *call)
{
    SL_TRY(check_whole(e, call));
    if (!e->plan->options.training)
        return sl_fail(SLUICE_ERR_USAGE, "%s: this engine was made for evaluation only", call);
    if (e->phase != wanted)
        return sl_fail(SLUICE_ERR_USAGE, "%s: %s", call,
                       wanted == SL_ENGINE_READY ? "call sluice_backward first" : "call sluice_forward first");
    return SLUICE_OK;
}

/* Work that fails halfway leaves the arenas in an unknown state, and the other ranks waiting for this one. */
static sluice_status run_segment(sluice_engine *e, sl_segment_kind segment)
{
    sluice_status st = sl_exec_run(e->exec, segment, &e->context);
    if (st != SLUICE_OK) {
        e->phase = SL_ENGINE_BROKEN;
        return sl_ranks_failed(e->ranks, st);
    }
    if (e->segment_runs[segment]++ > 0) e->segment_seconds[segment] += sl_exec_seconds(e->exec, segment);
    return st;
}

sluice_status sluice_forward(sluice_engine *e, const sluice_batch *batch, double *loss)
{
    SL_TRY(check_phase(e, SL_ENGINE_READY, "sluice_forward"));
    if (e->micro >= e->plan->options.accumulation)
        return sl_fail(SLUICE_ERR_USAGE, "sluice_forward: all %d micro-batches of the step are done; call sluice_step",
                       e->micro);
    SL_TRY(set_inputs(e, batch, true));
    e->context.step = e->step + 1;
    e->context.micro = (uint32_t)sl_engine_micro_index(e, e->micro);
    e->context.training = true;
    SL_TRY(run_segment(e, SL_SEGMENT_FORWARD));
    SL_TRY(read_scalar(e, e->plan->loss_buffer, loss));
    sl_engine_watch_loss(e, *loss);
    e->phase = SL_ENGINE_FORWARD_DONE;
    return SLUICE_OK;
}

/* What the step's updates are given, which may be part of backward. */
static void set_scalars(sluice_engine *e)
{
    e->context.step = e->step + 1;
    sl_optim_scalars(e->optim, e->applied + 1, e->lr, e->momentum, &e->context);
}

sluice_status sluice_backward(sluice_engine *e)
{
    SL_TRY(check_phase(e, SL_ENGINE_FORWARD_DONE, "sluice_backward"));
    if (e->plan->options.early_updates) set_scalars(e);
    SL_TRY(run_segment(e, SL_SEGMENT_BACKWARD));
    e->phase = SL_ENGINE_READY;
    e->micro++;
    return SLUICE_OK;
}

/* After the update: whether it happened, and the loss scale of the next step. */
static sluice_status judge_step(sluice_engine *e, const sl_norm_result *norm)
{
    e->skipped = e->computes && !norm->finite;
    e->norm = e->skipped ? (double)NAN : norm->norm;
    e->used_scale = e->scaler.scale;
    sluice_status st = SLUICE_OK;
    if (e->skipped)
        st = sl_engine_skip_or_fail(e);
    else
        sl_loss_scale_update(&e->loss_scale, &e->scaler, false);
    sl_engine_watch_anew(e);
    use_scale(e);
    return st;
}

sluice_status sluice_step(sluice_engine *e)
{
    sl_norm_result norm;
    SL_TRY(check_phase(e, SL_ENGINE_READY, "sluice_step"));
    if (e->micro != e->plan->options.accumulation)
        return sl_fail(SLUICE_ERR_USAGE, "sluice_step: %d of %d micro-batches are done", e->micro,
                       e->plan->options.accumulation);
    set_scalars(e);
    SL_TRY(run_segment(e, SL_SEGMENT_UPDATE));
    SL_TRY(sl_exec_read_result(e->exec, e->plan->norm_buffer, &norm, sizeof norm));
    e->micro = 0;
    SL_TRY(judge_step(e, &norm));
    e->step++;
    if (!e->skipped) e->applied++;
    return SLUICE_OK;
}

uint64_t sl_engine_micro_batches(const sluice_engine *e)
{
    return (uint64_t)e->plan->options.accumulation * (uint64_t)e->plan->options.rank_count;
}

uint64_t sl_engine_micro_index(const sluice_engine *e, int m)
{
    return (uint64_t)m * (uint64_t)e->plan->options.rank_count + (uint64_t)e->plan->options.rank;
}

double sl_engine_mean_loss(const sluice_engine *e, const double *all, size_t stride)
{
    double sum = 0;
    for (int m = 0; m < e->plan->options.accumulation; m++)
        for (int r = 0; r < e->plan->options.rank_count; r++) sum += all[(size_t)r * stride + (size_t)m];
    return sum / (double)sl_engine_micro_batches(e);
}

static sluice_status run_micro_batches(sluice_engine *e, const sluice_batch *batches, double *losses)
{
    for (int i = 0; i < e->plan->options.accumulation; i++) {
        SL_TRY(sluice_forward(e, &batches[i], &losses[i]));
        SL_TRY(sluice_backward(e));
    }
    return sluice_step(e);
}

sluice_status sluice_train_step(sluice_engine *e, const sluice_batch *batches, double *loss)
{
    size_t count = (size_t)e->plan->options.accumulation;
    double *mine = e->losses, *all = e->losses + count;
    SL_TRY(run_micro_batches(e, batches, mine));
    SL_TRY(e->ranks->comm->ops->exchange(e->ranks->comm, "losses of a step", mine, count * sizeof *mine, all));
    *loss = sl_engine_mean_loss(e, all, count);
    return SLUICE_OK;
}

/* Evaluation shares bytes with a step in progress, so it may only run between steps. */
static sluice_status run_evaluation(sluice_engine *e, const sluice_batch *batch, const char *call)
{
    if (!e->plan->options.evaluation)
        return sl_fail(SLUICE_ERR_USAGE,
                       "%s: the engine was made without options.evaluation, so its plan has no room for it", call);
    SL_TRY(check_whole(e, call));
    if (e->phase != SL_ENGINE_READY || e->micro != 0)
        return sl_fail(SLUICE_ERR_USAGE, "%s: a training step is under way; finish it with sluice_step first", call);
    SL_TRY(set_inputs(e, batch, false));
    e->context.training = false;
    return run_segment(e, SL_SEGMENT_EVALUATE);
}

sluice_status sluice_evaluate(sluice_engine *e, const sluice_batch *batch, double *loss)
{
    SL_TRY(run_evaluation(e, batch, "sluice_evaluate"));
    return read_scalar(e, e->plan->eval_loss_buffer, loss);
}

/* Makes floats of 16-bit numbers at the beginning of the same memory, from the last one on. */
static void widen(sluice_dtype type, int64_t count, float *values)
{
    const char *narrow = (const char *)values;
    uint16_t half;
    if (type != SLUICE_BF16 && type != SLUICE_F16) return;
    for (int64_t i = count - 1; i >= 0; i--) {
        memcpy(&half, narrow + (size_t)i * sizeof half, sizeof half);
        values[i] = type == SLUICE_BF16 ? sl_bf16_to_float(half) : sl_f16_to_float(half);
    }
}

sluice_status sluice_predict(sluice_engine *e, const sluice_batch *batch, float *out, size_t out_bytes)
{
    int buffer = e->plan->output_buffer;
    if (buffer < 0) return sl_fail(SLUICE_ERR_USAGE, "sluice_predict: the graph has no output; call sluice_set_output");
    const sl_value *v = &e->graph->values[e->graph->output];
    int64_t count = sl_shape_elements(&v->shape);
    if ((uint64_t)count * sizeof *out != out_bytes)
        return sl_fail(SLUICE_ERR_USAGE, "sluice_predict: the output has %llu bytes, room for %zu was given",
                       (unsigned long long)count * sizeof *out, out_bytes);
    SL_TRY(run_evaluation(e, batch, "sluice_predict"));
    SL_TRY(sl_exec_read(e->exec, sl_plan_span(e->plan, (sl_piece){ buffer, 0, sl_value_bytes(v) }), out));
    widen(v->dtype, count, out);
    return SLUICE_OK;
}

/* ---- state ---- */

static const char *const optimizer_names[] = {
    [SLUICE_SGD] = "SGD",   [SLUICE_ADAGRAD] = "Adagrad", [SLUICE_ADAM] = "Adam", [SLUICE_ADAMW] = "AdamW",
    [SLUICE_LAMB] = "LAMB", [SLUICE_LARS] = "LARS",       [SLUICE_LION] = "Lion",
};

/* Samples in a micro-batch: the first dimension of the inputs. */
static uint64_t batch_rows(const sluice_graph *g)
{
    int value;
    if (sl_graph_inputs(g, &value, 1) == 0 || g->values[value].shape.rank == 0) return 1;
    return (uint64_t)g->values[value].shape.dim[0];
}

static const char *const dtype_names[] = { [SLUICE_F32] = "fp32", [SLUICE_BF16] = "bf16", [SLUICE_F16] = "fp16" };
static const char *const state_names[] = {
    [SLUICE_STATES_F32] = "fp32", [SLUICE_STATES_BF16] = "bf16", [SLUICE_STATES_COMPACT] = "compact"
};

void sl_engine_meta(const sluice_engine *e, sl_checkpoint_meta *meta)
{
    *meta = (sl_checkpoint_meta){ .step = e->step,
                                  .applied_steps = e->applied,
                                  .seed = e->context.seed,
                                  .data_position = e->step * sl_engine_micro_batches(e),
                                  .loss_scale = e->scaler.scale,
                                  .scale_steps = (uint64_t)e->scaler.clean_steps,
                                  .scale_hysteresis = e->loss_scale.fixed > 0 ? 0 : (uint64_t)e->scaler.hysteresis,
                                  .micro_batch = batch_rows(e->graph),
                                  .global_micro_batches = sl_engine_micro_batches(e) };
    snprintf(meta->optimizer, sizeof meta->optimizer, "%s", optimizer_names[e->optimizer]);
    snprintf(meta->precision, sizeof meta->precision, "%s", dtype_names[e->graph->precision]);
    snprintf(meta->wire, sizeof meta->wire, "%s", dtype_names[e->graph->wire]);
    snprintf(meta->states, sizeof meta->states, "%s", state_names[e->states]);
    memcpy(meta->model_sha256, e->identity, sizeof meta->model_sha256);
    sl_device_kernels(&e->device, e->isa, meta->kernels, sizeof meta->kernels);
}

/* A type that the checkpoint's bits depend on. Older checkpoints do not say: they were all fp32. */
static sluice_status check_type(const char *key, const char *here, const char *there)
{
    if (there[0] == '\0') there = "fp32";
    if (strcmp(here, there) == 0) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_USAGE,
                   "%s is %s, the checkpoint was made with %s: a resumed run must keep it, since bits depend on it",
                   key, here, there);
}

static sluice_status check_types(const sl_checkpoint_meta *here, const sl_checkpoint_meta *there)
{
    SL_TRY(check_type("the precision (fp16.enabled, bf16.enabled)", here->precision, there->precision));
    SL_TRY(check_type("communication_data_type", here->wire, there->wire));
    return check_type("zero_optimization.states", here->states, there->states);
}

sluice_status sl_engine_check_resume(const sluice_engine *e, const sl_checkpoint_meta *meta)
{
    sl_checkpoint_meta here;
    sl_engine_meta(e, &here);
    if (meta->optimizer[0] != '\0' && strcmp(meta->optimizer, here.optimizer) != 0)
        return sl_fail(SLUICE_ERR_USAGE,
                       "optimizer.type is %s, the checkpoint was made with %s: a resumed run must keep it",
                       here.optimizer, meta->optimizer);
    if (meta->micro_batch != 0 && meta->micro_batch != here.micro_batch)
        return sl_fail(
            SLUICE_ERR_USAGE,
            "train_micro_batch_size_per_gpu is %llu, the checkpoint was made with %llu: a resumed run must keep "
            "it, since sums depend on it",
            (unsigned long long)here.micro_batch, (unsigned long long)meta->micro_batch);
    if (meta->global_micro_batches != 0 && meta->global_micro_batches != here.global_micro_batches)
        return sl_fail(SLUICE_ERR_USAGE,
                       "train_batch_size is %llu micro-batches a step (gradient_accumulation_steps %d x ranks %d), the "
                       "checkpoint was made with %llu: a resumed run must keep their product; either may change",
                       (unsigned long long)here.global_micro_batches, e->plan->options.accumulation,
                       e->plan->options.rank_count, (unsigned long long)meta->global_micro_batches);
    return check_types(&here, meta);
}

/* A scale that is fixed now, or was, is what the settings say. */
static void restore_scale(sluice_engine *e, const sl_checkpoint_meta *meta)
{
    if (e->loss_scale.fixed > 0 || meta->scale_hysteresis == 0) return;
    e->scaler.scale = meta->loss_scale;
    e->scaler.clean_steps = (int64_t)meta->scale_steps;
    e->scaler.hysteresis = (int)meta->scale_hysteresis;
    use_scale(e);
}

void sl_engine_restore(sluice_engine *e, const sl_checkpoint_meta *meta)
{
    e->step = meta->step;
    e->applied = meta->applied_steps;
    e->context.seed = meta->seed;
    if (e->graph->precision == SLUICE_F16) restore_scale(e, meta);
    e->micro = 0;
    e->phase = SL_ENGINE_READY;
}
