/* engine_plan.c: what the plan is told: the kernels' workspace, the options as they are decided here; and the comparison
 * of all that between ranks. */
#include "backend/node_call.h"
#include "core/alloc.h"
#include "core/bytes.h"
#include "core/thread.h"
#include "ir/sparse.h"
#include "machine/recall.h"
#include "train/engine_parts.h"

/* ---- workspace ---- */

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

sluice_status sl_engine_ask_workspace(sluice_engine *e)
{
    const sluice_graph *g = e->graph;
    e->workspace = sl_alloc_array((size_t)g->node_count + SL_OP_COUNT, sizeof *e->workspace, "workspace of kernels");
    if (e->workspace == NULL) return SLUICE_ERR_NO_MEMORY;
    for (int i = 0; i < g->forward_count + g->backward_count; i++)
        e->workspace[i] =
            sl_ops[g->nodes[i].op].view ? 0 : sl_node_workspace(g, &g->nodes[i], &e->context, e->device.workspace);
    if (e->optim != NULL) ask_for_updates(e, e->workspace + g->node_count);
    return SLUICE_OK;
}

/* ---- planning ---- */

/* Whether all ranks have the same settings, or, given those as NULL, the same plan. */
static sluice_status compare_ranks(sluice_engine *e, const sl_engine_options *settings)
{
    const char *what = settings != NULL ? "settings" : "plan";
    sl_text facts = { .data = NULL };
    if (e->ranks->count == 1) return SLUICE_OK;
    if (settings != NULL)
        sl_engine_write_facts(e, settings, &facts);
    else
        sl_plan_write_facts(e->plan, &facts);
    sluice_status st = sl_ranks_agree(e->ranks, what, sl_text_status(&facts));
    if (st == SLUICE_OK) st = sl_ranks_same(e->ranks, what, facts.data);
    sl_text_free(&facts);
    return st;
}

sluice_status sl_engine_compare_plans(sluice_engine *e)
{
    return compare_ranks(e, NULL);
}

/* Measured rates hold for what they were measured with. A plan may be for another machine; then only the ranks
 * count. */
static void warn_of_other_rates(const sluice_engine *e, const sl_engine_options *o, int ranks, int threads)
{
    const sl_machine_description *d = o->machine;
    bool same = o->plan_only || (d->threads == threads && d->isa == e->isa);
    if (d->ranks == 0 || (d->ranks == ranks && same)) return;
    sl_log_write(
        &e->log, SLUICE_LOG_WARNING,
        "the rates were measured with %d rank(s) of %d thread(s) on the %s path, but this run has %d of %d on %s: "
        "expected times may be wrong; measure again with sluice devices --measure --ranks %d --machine FILE",
        d->ranks, d->threads, sl_isa_name(d->isa), ranks, threads, sl_isa_name(e->isa), ranks);
}

/* Whether the rates of a file were measured on such a machine as this, as it is used here. */
static bool describes_here(const sluice_engine *e, const sl_machine_description *d, int ranks, int threads)
{
    const bool same_gpu = !d->is_cuda || strcmp(d->gpu, e->device.facts.name) == 0;
    return d->ranks == ranks && d->threads == threads && d->isa == e->isa && d->is_cuda == e->device.is_cuda &&
           same_gpu;
}

/* Whether the arenas are files that other ranks map. */
static bool shares_arenas(sl_comm *c)
{
    int files[SL_TIER_COUNT];
    c->ops->arena_files(c, files);
    return files[SL_TIER_DEVICE] > 0;
}

/* What the plan expects durations by. All ranks have the same. */
static sluice_status find_rates(sluice_engine *e, const sl_engine_options *o, const sl_plan_options *p, int threads)
{
    sl_machine_describe(e->isa, threads, &e->machine);
    if (e->device.is_cuda) sl_machine_describe_cuda(&e->device.facts, &e->machine);
    char text[SL_SWAP_FOLDERS_BYTES];
    const char *folders[SL_SWAP_MAX_FOLDERS];
    const sl_recall r = { .graph = e->graph,
                          .device = &e->device,
                          .isa = e->isa,
                          .threads = threads,
                          .ranks = p->rank_count,
                          .here = e->ranks,
                          .anew = o->measures_anew,
                          .log = &e->log,
                          .folders = folders,
                          .folder_count = sl_swap_folders(o->settings->device.disk_path, text, sizeof text, folders),
                          .disk_deadline = sl_engine_disk_deadline(e, o->settings) };
    if (o->machine != NULL) {
        const sl_machine usual = e->machine;
        e->machine = o->machine->rates;
        if (p->rank == 0) warn_of_other_rates(e, o, p->rank_count, threads);
        const bool here = e->computes && describes_here(e, o->machine, p->rank_count, threads);
        return here ? sl_machine_recall_missing(&r, &usual, &e->machine) : SLUICE_OK;
    }
    if (!o->measures || !e->computes) return SLUICE_OK;
    SL_TRY(sl_machine_recall(&r, &e->machine));
    return sl_machine_recall_disk(&r, &e->machine);
}

static void note_need(const sluice_engine *e, const sl_plan_options *p, sl_refusal *out)
{
    out->options = *p;
    out->options.faults = NULL;
    if (p->stage < 0) out->options.stage = p->rank_count > 1 ? 3 : 0; /* which needs least */
    out->machine = e->machine;
    out->is_set = sl_plan_least(e->graph, &e->machine, &out->options, &out->need) == SLUICE_OK;
}

/* As the message says. */
static void note_refusal(const sluice_engine *e, const sl_plan_options *p, sl_refusal *out)
{
    *out = (sl_refusal){ .is_set = true, .options = *p, .machine = e->machine, .need = e->arrangements.need };
    out->options.faults = NULL;
}

/* Of every candidate; the table shows the best ones. */
static void tell_candidates(const sluice_engine *e)
{
    char name[128], verdict[96];
    const sl_auto_result *found = &e->arrangements;
    if (found->count < 2 || e->ranks->rank != 0) return;
    for (int i = 0; i < found->count; i++) {
        const sl_auto_candidate *c = &found->tried[i];
        sl_log_write(&e->log, SLUICE_LOG_DETAIL, "auto: %s: expected step %.4g s, device %llu, host %llu bytes: %s",
                     sl_arrangement_describe(&c->arrangement, name, sizeof name), c->seconds,
                     (unsigned long long)c->peak[SL_TIER_DEVICE], (unsigned long long)c->peak[SL_TIER_HOST],
                     sl_auto_verdict(found, i, verdict, sizeof verdict));
    }
}

/* Only training has anything to choose; one rank has one stage. */
static sluice_status choose_plan(sluice_engine *e, const sl_engine_options *o, sl_plan_options *p)
{
    if (p->stage < 0 && (p->rank_count == 1 || !p->training)) p->stage = 0;
    const sl_plan_options open = *p;
    const sl_auto_problem problem = { .graph = e->graph, .machine = &e->machine, .options = &open, .tuned = o->tuned };
    e->arrangements = (sl_auto_result){ .chosen = -1, .ranks = p->rank_count };
    /* one of many that are asked about is planned as it is, where it can be */
    if (!p->training || (p->brief && p->stage >= 0))
        return sl_plan_create_or_need(e->graph, &e->machine, p, &e->plan, &e->arrangements.need);
    SL_TRY(sl_auto_search(&problem, p, &e->arrangements, &e->plan));
    if (o->tuned != NULL && !e->arrangements.tuned && e->ranks->rank == 0)
        sl_log_write(&e->log, SLUICE_LOG_NOTE,
                     "what sluice tune found best does not fit in the memory that there is now, so it was chosen anew");
    tell_candidates(e);
    return SLUICE_OK;
}

/* A run is none the worse for it, but the plan may be: whoever can mend the planner should hear of it. */
static void tell_faults(const sluice_engine *e)
{
    const sl_plan_faults *f = &e->plan_faults;
    if (f->count == 0 || e->ranks->rank != 0) return;
    sl_log_write(&e->log, SLUICE_LOG_WARNING,
                 "%d placements could not be planned, which is a mistake of sluice: please report it. Others were "
                 "searched instead. The first one: %s",
                 f->count, f->first);
}

/* Asked for and not done: that is no error, as the results are the same. */
static void tell_speculation(const sluice_engine *e)
{
    const sl_plan *p = e->plan;
    bool asked = p->options.training && p->options.update == SL_UPDATE_MODE_SPECULATIVE && !p->options.early_updates;
    if (!asked || p->totals.speculating_layers > 0 || e->ranks->rank != 0) return;
    if (p->totals.host_state_layers == 0)
        sl_log_write(
            &e->log, SLUICE_LOG_NOTE,
            "zero_optimization.update is \"speculative\", but no layer is updated on the host: updates wait for "
            "the norm");
    else
        sl_log_write(&e->log, SLUICE_LOG_NOTE,
                     "zero_optimization.update is \"speculative\", but the host has no room for a second copy of a "
                     "layer's weights and state: updates wait for the norm; memory.host would have to be larger");
}

#define FAR_CLIP 1000.0 /* norms of the gradient of a mean are some tens at most */

/* Whether steps of this run are hardly ever clipped or skipped: nothing is, or the threshold is one that norms do not reach, or the
 * run goes on and its last steps were not. An f16 run finds its loss scale by skipping steps. */
static bool rarely_fails(const sluice_engine *e, const sl_settings *s)
{
    const double clip = s->optim.clip;
    if (s->plan.plain_steps >= SL_SPECULATION_WINDOW) return true;
    return e->graph->precision != SLUICE_F16 && (clip == 0 || clip >= FAR_CLIP);
}

/* Rows of a sparse table go back to it before the next step brings others, with their update or without it. */
static sluice_status check_delayed(const sluice_engine *e, const sl_settings *s)
{
    if (s->device.disk_path[0] != '\0')
        return sl_fail(
            SLUICE_ERR_USAGE,
            "zero_optimization.update: \"delayed\" does not go with swap files (memory.disk_path, nvme_path): "
            "an update would wait for the disk longer than a step; use \"sync\"");
    for (int i = 0; i < e->graph->parameter_count; i++)
        if (sl_parameter_is_compact(&e->graph->parameters[i]))
            return sl_fail(
                SLUICE_ERR_USAGE,
                "zero_optimization.update: \"delayed\" cannot be used with a sparse table, and \"%s\" is one: "
                "rows of a step are kept when it ends; use \"sync\"",
                e->graph->parameters[i].name);
    return SLUICE_OK;
}

sluice_status sl_engine_make_plan(sluice_engine *e, const sl_engine_options *o, int threads)
{
    const sl_settings *s = o->settings;
    sl_plan_options p = s->plan;
    p.training = o->training;
    p.state_slots = e->slots.count;
    p.state_form = sl_optim_state_form(s->precision.states);
    p.update_bytes_per_element =
        e->optim != NULL ? sl_optim_bytes_per_element(e->optim, e->graph->precision, e->graph->wire, p.state_form) : 0;
    if (!o->plan_only) {
        p.rank = e->ranks->rank;
        p.rank_count = e->ranks->count;
    }
    p.early_updates = (p.update == SL_UPDATE_MODE_AUTO || p.update == SL_UPDATE_MODE_SPECULATIVE) &&
                      s->optim.clip == 0 && !s->precision.check_overflow && e->graph->precision != SLUICE_F16;
    p.rarely_fails = rarely_fails(e, s);
    p.delayed = o->training && p.update == SL_UPDATE_MODE_DELAYED;
    if (p.delayed) SL_TRY(check_delayed(e, s));
    e->prompt = (uint64_t)p.delay_warmup;
    /* a plan that is not run goes by the setting and the description: what ranks of another machine would find is not
     * known here */
    bool meet = s->device.comm == SL_GPU_COMM_NCCL ||
                (s->device.comm == SL_GPU_COMM_AUTO && o->machine != NULL && o->machine->gpus_meet);
    bool reaches_gpus = o->plan_only ? meet : sl_comm_reaches_gpus(sl_engine_comm(e));
    p.comm_on_host = e->device.is_cuda && p.rank_count > 1 && !reaches_gpus;
    SL_TRY(compare_ranks(e, o));
    SL_TRY(sl_engine_set_budgets(e, o, threads, &p));
    p.stop = o->stop;
    p.brief = o->brief;
    p.faults = &e->plan_faults;
    p.node_workspace = e->workspace;
    p.update_workspace = e->workspace + e->graph->node_count;
    SL_TRY(find_rates(e, o, &p, threads));
    if (o->machine == NULL || !o->plan_only)
        sl_memory_describe(&e->ranks->place, shares_arenas(sl_engine_comm(e)), p.memory_note, sizeof p.memory_note);
    if (o->only_need) {
        note_need(e, &p, o->refusal);
        return o->refusal->is_set ? SLUICE_OK : SLUICE_ERR_NO_FIT;
    }
    sl_activity activity;
    sl_activity_begin(&activity, &e->progress, "plan", (uint64_t)sl_graph_parameter_elements(e->graph));
    sluice_status st = choose_plan(e, o, &p);
    tell_faults(e);
    if (st == SLUICE_ERR_NO_FIT && !o->brief) st = sl_engine_try_smaller(e, o, &p);
    if (st == SLUICE_ERR_NO_FIT && !o->brief) st = sl_engine_try_disk(e, &p);
    if (st == SLUICE_ERR_NO_FIT && o->refusal != NULL) note_refusal(e, &p, o->refusal);
    SL_TRY(sl_ranks_agree(e->ranks, "planning", st));
    tell_speculation(e);
    e->plan_seconds = sl_activity_end(&activity);
    return compare_ranks(e, NULL);
}
