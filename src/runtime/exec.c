/* exec.c: walks the steps of a plan. Order, addresses, streams and waits are the plan's; this file only hands them to
 * the device. */
#include "runtime/exec_parts.h"

#include <stdio.h>
#include <string.h>

#include "backend/node_call.h"
#include "core/alloc.h"
#include "core/bytes.h"
#include "core/thread.h"
#include "ir/form.h"

/* ---- calls ---- */

static bool runs_graph_node(const sl_exec *x, const sl_step *s)
{
    return s->node >= 0 && x->plan->graph->nodes[s->node].phase != SL_PHASE_UPDATE;
}

/* Bit k: the step writes output k. */
static unsigned outputs_of(const sl_exec *x, const sl_step *s)
{
    const sl_piece *pieces = &x->plan->pieces[s->first_piece + s->input_count];
    unsigned outputs = 0;
    for (int k = 0; k < s->output_count; k++) outputs |= (unsigned)(pieces[k].buffer >= 0) << k;
    return outputs;
}

/* An update op: its operands are parts of flat buffers. */
static void describe_update(sl_exec *x, const sl_step *s, const sl_run_context *context, sl_call *call)
{
    static const sl_attrs no_attrs;
    const sluice_graph *g = x->plan->graph;
    *call =
        (sl_call){ .op = s->op,
                   .attrs = s->node >= 0 ? &g->nodes[s->node].attrs : &no_attrs,
                   .input_count = s->input_count,
                   .output_count = s->output_count,
                   .wire = g->wire,
                   .context = context,
                   .name = s->node >= 0 && g->nodes[s->node].name != NULL ? g->nodes[s->node].name : sl_ops[s->op].name,
                   .layer = s->layer >= 0 ? g->layers[s->layer].name : NULL,
                   .first = s->first };
    for (int k = 0; k < s->input_count + s->output_count; k++) {
        const sl_piece piece = x->plan->pieces[s->first_piece + k];
        const int output = k - s->input_count;
        if (piece.buffer < 0) continue;
        const sl_form form = x->plan->buffers[piece.buffer].form;
        const size_t each = sl_form_element_bytes(form);
        *(output < 0 ? &call->input_forms[k] : &call->output_forms[output]) = form;
        if (piece.bytes == 0) continue; /* a part without elements */
        x->flat[k] = (sl_shape){ .rank = 1, .dim = { each > 0 ? (int64_t)(piece.bytes / each) : 0 } };
        *(output < 0 ? &call->input_shapes[k] : &call->output_shapes[output]) = &x->flat[k];
    }
}

static void fill_call(sl_exec *x, const sl_step *s, const sl_run_context *context, sl_call *call)
{
    const sl_piece *pieces = &x->plan->pieces[s->first_piece];
    if (runs_graph_node(x, s))
        sl_node_call(x->plan->graph, &x->plan->graph->nodes[s->node], outputs_of(x, s), context, x->flat, call);
    else
        describe_update(x, s, context, call);
    for (int k = 0; k < s->input_count; k++) call->inputs[k] = sl_exec_span(x, pieces[k]);
    pieces += s->input_count;
    for (int k = 0; k < s->output_count; k++) call->outputs[k] = sl_exec_span(x, pieces[k]);
    if (s->workspace_count > 0) call->workspace = sl_plan_span(x->plan, pieces[s->output_count]);
}

/* ---- steps: one handler per kind ---- */

typedef sluice_status (*step_handler)(sl_exec *x, const sl_step *s, const sl_run_context *context);

static sluice_status do_kernel(sl_exec *x, const sl_step *s, const sl_run_context *context)
{
    sl_call call;
    fill_call(x, s, context, &call);
    return x->backend->run(x->device, s->stream, &call);
}

static sluice_status do_copy(sl_exec *x, const sl_step *s, const sl_run_context *context)
{
    if (sl_exec_disk_copies(x, s)) return sl_exec_disk_copy(x, s, context);
    const sl_piece *q = &x->plan->pieces[s->first_piece];
    return x->backend->copy(x->device, s->stream, sl_exec_span(x, q[1]), sl_exec_span(x, q[0]));
}

static bool is_first_micro_batch(const sl_exec *x, const sl_run_context *context)
{
    return context->micro < (uint32_t)x->plan->options.rank_count; /* micro counts over all ranks */
}

static sl_collective *collective_of(const sl_exec *x, const sl_step *s)
{
    return &x->collectives[x->changed][s - x->plan->steps];
}

/* The first micro-batch of a step sets the sums, later ones add to them. */
static sluice_status do_collective(sl_exec *x, const sl_step *s, const sl_run_context *context)
{
    bool first = is_first_micro_batch(x, context);
    return x->comm->ops->start(x->comm, x->sequence++, collective_of(x, s), first);
}

static const step_handler handlers[] = {
    [SL_STEP_COMPUTE] = do_kernel,         [SL_STEP_COPY] = do_copy,
    [SL_STEP_GATHER] = do_collective,      [SL_STEP_REDUCE_SCATTER] = do_collective,
    [SL_STEP_GATHER_NORM] = do_collective, [SL_STEP_GATHER_VALUE] = do_collective,
    [SL_STEP_UPDATE] = do_kernel,
};

static sluice_status wait_for_step(sl_exec *x, const sl_step *s)
{
    for (int k = 0; k < s->wait_count; k++) {
        int event = x->plan->steps[x->plan->waits[s->first_wait + k]].event;
        SL_TRY(x->backend->wait(x->device, s->stream, event));
    }
    return SLUICE_OK;
}

static sluice_status run_step(sl_exec *x, const sl_step *s, const sl_run_context *context)
{
    SL_TRY(wait_for_step(x, s));
    if (x->tracer != NULL) SL_TRY(sl_tracer_before(x, s));
    if (sl_step_is_done(s, x->holds)) SL_TRY(handlers[s->kind](x, s, context));
    if (x->tracer != NULL) SL_TRY(sl_tracer_after(x, s));
    return s->event < 0 ? SLUICE_OK : x->backend->record(x->device, s->stream, s->event);
}

/* Everything queued so far on these streams comes before everything queued there later. Between micro-batches, whose steps
 * wait for none of the micro-batch before. */
static sluice_status join_streams(sl_exec *x, const bool *streams)
{
    const int first = x->plan->event_count;
    for (int k = 0; k < SL_STREAM_COUNT; k++)
        if (streams[k]) SL_TRY(x->backend->record(x->device, (sl_stream)k, first + k));
    for (int k = 0; k < SL_STREAM_COUNT; k++)
        for (int m = 0; streams[k] && m < SL_STREAM_COUNT; m++)
            if (m != k && streams[m]) SL_TRY(x->backend->wait(x->device, (sl_stream)k, first + m));
    return SLUICE_OK;
}

/* What a segment must not overlap with: plan/waits.c. */
static sluice_status begin_segment(sl_exec *x, sl_segment_kind segment, const sl_run_context *context)
{
    bool joined = segment == SL_SEGMENT_FORWARD && !is_first_micro_batch(x, context);
    if (x->tracer != NULL) sl_tracer_run(x, segment, context, joined || segment == SL_SEGMENT_EVALUATE);
    if (segment == SL_SEGMENT_FORWARD) SL_TRY(sl_statistics_show_frozen(x));
    if (segment != SL_SEGMENT_EVALUATE) return joined ? join_streams(x, x->passes) : SLUICE_OK;
    SL_TRY(sl_exec_settle(x));
    return sl_statistics_show(x);
}

static sluice_status end_segment(sl_exec *x, sl_segment_kind segment)
{
    int result = x->plan->segments[segment].result_step;
    if (segment == SL_SEGMENT_EVALUATE) return sl_exec_settle(x);
    return result >= 0 ? x->backend->await(x->device, x->plan->steps[result].event) : SLUICE_OK;
}

void sl_exec_hold(sl_exec *x, unsigned holds)
{
    x->holds = holds;
}

sl_span sl_exec_span(const sl_exec *x, sl_piece piece)
{
    const int twin = x->changed ? sl_plan_twin(x->plan, piece.buffer) : -1;
    if (twin >= 0) piece.buffer = twin;
    return sl_plan_span(x->plan, piece);
}

void sl_exec_commit(sl_exec *x)
{
    x->changed = !x->changed;
}

sluice_status sl_exec_run(sl_exec *x, sl_segment_kind segment, const sl_run_context *context)
{
    const sl_segment *g = &x->plan->segments[segment];
    double start = sl_now();
    SL_TRY(begin_segment(x, segment, context));
    x->busy = true;
    for (int i = g->first_step; i < g->first_step + g->step_count; i++)
        SL_TRY(run_step(x, &x->plan->steps[i], context));
    SL_TRY(end_segment(x, segment));
    x->seconds[segment] = sl_now() - start;
    return SLUICE_OK;
}

/* ---- delayed updates ----
 *
 * Waits are derived for the order of the plan, in which weights are published before the next update begins. Whoever
 * leaves that order joins the streams wherever it does: also behind steps that it passes over, because a step after them
 * may have no wait of its own for one before them where theirs order the two. */

/* A trace shows what is published as done in no time, in its place. */
static sluice_status pass_over(sl_exec *x, const sl_step *s)
{
    if (x->tracer == NULL) return SLUICE_OK;
    SL_TRY(sl_tracer_before(x, s));
    return sl_tracer_after(x, s);
}

/* Those steps of UPDATE that publish. */
sluice_status sl_exec_publish(sl_exec *x, const sl_run_context *context)
{
    const sl_segment *g = &x->plan->segments[SL_SEGMENT_UPDATE];
    bool passed = true;
    x->busy = true;
    for (int i = g->first_step; i < g->first_step + g->step_count; i++) {
        const sl_step *s = &x->plan->steps[i];
        if (s->publishes) {
            if (passed) SL_TRY(join_streams(x, x->uses));
            SL_TRY(wait_for_step(x, s));
            SL_TRY(handlers[s->kind](x, s, context));
            if (s->event >= 0) SL_TRY(x->backend->record(x->device, s->stream, s->event));
        }
        passed = !s->publishes;
    }
    return join_streams(x, x->uses);
}

/* Those that do not. */
static sluice_status update_unpublished(sl_exec *x, const sl_run_context *context)
{
    const sl_segment *g = &x->plan->segments[SL_SEGMENT_UPDATE];
    bool passed = true;
    for (int i = g->first_step; i < g->first_step + g->step_count; i++) {
        const sl_step *s = &x->plan->steps[i];
        if (passed && !s->publishes) SL_TRY(join_streams(x, x->uses));
        SL_TRY(s->publishes ? pass_over(x, s) : run_step(x, s, context));
        passed = s->publishes;
    }
    return SLUICE_OK;
}

sluice_status sl_exec_update_promptly(sl_exec *x, const sl_run_context *context)
{
    double start = sl_now();
    SL_TRY(begin_segment(x, SL_SEGMENT_UPDATE, context));
    x->busy = true;
    SL_TRY(update_unpublished(x, context));
    SL_TRY(sl_exec_publish(x, context));
    SL_TRY(end_segment(x, SL_SEGMENT_UPDATE));
    x->seconds[SL_SEGMENT_UPDATE] = sl_now() - start;
    return SLUICE_OK;
}

sluice_status sl_exec_settle(sl_exec *x)
{
    if (!x->busy) return SLUICE_OK;
    SL_TRY(x->backend->synchronize(x->device));
    x->busy = false;
    return SLUICE_OK;
}

/* ---- opening ---- */

/* A step this runtime or device cannot do is found now and not in step 1. */
static sluice_status check_supported(const sl_exec *x)
{
    for (int i = 0; i < x->plan->step_count; i++) {
        const sl_step *s = &x->plan->steps[i];
        if ((size_t)s->kind >= sizeof handlers / sizeof handlers[0] || handlers[s->kind] == NULL)
            return sl_fail(SLUICE_ERR_USAGE, "plan step %d is of a kind that is not built in yet", i);
        if ((s->kind == SL_STEP_COMPUTE || s->kind == SL_STEP_UPDATE) && !x->backend->supports(s->op))
            return sl_fail(SLUICE_ERR_USAGE, "the %s backend has no kernel for %s", x->backend->name,
                           sl_ops[s->op].name);
    }
    return SLUICE_OK;
}

static sluice_status open_device(sl_exec *x, const sl_exec_options *options)
{
    sl_device_options device = options->device;
    device.paged_host = x->plan->totals.peak[SL_TIER_DISK] > 0;
    SL_TRY(x->backend->open(&device, &x->device));
    for (int t = 0; t < SL_TIER_COUNT; t++)
        if (x->plan->totals.peak[t] > 0 && (sl_tiers[t].in_memory || options->swap.folder_count == 0))
            SL_TRY(x->backend->reserve(x->device, (sl_tier)t, x->plan->totals.peak[t]));
    if (x->plan->totals.peak[SL_TIER_DISK] > 0 && options->swap.folder_count > 0)
        SL_TRY(sl_exec_disk_open(x, &options->swap));
    for (int i = 0; i < x->plan->step_count; i++) x->uses[x->plan->steps[i].stream] = true;
    sl_plan_joined_streams(x->plan, x->passes);
    return x->backend->reserve_events(x->device, x->plan->event_count + SL_STREAM_COUNT + 1);
}

/* Behind those of the plan and of the streams: inputs that were sent ahead are there. */
static int inputs_event(const sl_exec *x)
{
    return x->plan->event_count + SL_STREAM_COUNT;
}

static bool reads(const sl_plan *p, sl_segment_kind segment, int buffer)
{
    const sl_segment *g = &p->segments[segment];
    for (int i = g->first_step; i < g->first_step + g->step_count; i++)
        for (int k = 0; k < p->steps[i].input_count; k++)
            if (p->pieces[p->steps[i].first_piece + k].buffer == buffer) return true;
    return false;
}

/* Inputs that a step does not look at once more after its forward may be replaced as soon as that is done. */
static sluice_status find_early_inputs(sl_exec *x)
{
    const sl_plan *p = x->plan;
    x->sent = sl_alloc_array((size_t)p->graph->value_count + 1, sizeof *x->sent, "inputs sent ahead");
    x->sent_early = sl_alloc_array((size_t)p->graph->value_count + 1, sizeof *x->sent_early, "inputs sent ahead");
    if (x->sent == NULL || x->sent_early == NULL) return SLUICE_ERR_NO_MEMORY;
    for (int i = 0; i < p->graph->input_count; i++) {
        const int value = p->graph->inputs[i], buffer = p->input_buffers[value];
        x->sent_early[value] =
            buffer >= 0 && !reads(p, SL_SEGMENT_BACKWARD, buffer) && !reads(p, SL_SEGMENT_UPDATE, buffer);
    }
    return SLUICE_OK;
}

/* ---- collectives: described once, so that a step only names them ---- */

static const struct {
    sl_collective_kind kind;
    const char *name;
} collective_kinds[] = {
    [SL_STEP_GATHER] = { SL_GATHER, "gather" },
    [SL_STEP_REDUCE_SCATTER] = { SL_REDUCE_SCATTER, "reduce-scatter" },
    [SL_STEP_GATHER_NORM] = { SL_GATHER_NORM, "gather of the norm" },
    [SL_STEP_GATHER_VALUE] = { SL_GATHER, "gather" },
};

static bool is_collective(const sl_step *s)
{
    return handlers[s->kind] == do_collective;
}

static void describe_part(const sl_exec *x, const sl_step *s, int k, sl_comm_part *part)
{
    const sl_plan *p = x->plan;
    bool reduces = s->kind == SL_STEP_REDUCE_SCATTER;
    const sl_piece *outputs = &p->pieces[s->first_piece + s->input_count];
    sl_span out = sl_exec_span(x, outputs[k]);
    bool in_place = s->input_count == 0;
    sl_span in = in_place ? (sl_span){ out.tier, 0, 0 } : sl_exec_span(x, p->pieces[s->first_piece + k]);
    sl_form sum = p->buffers[outputs[k].buffer].form;
    sl_form form = reduces && !in_place ? p->buffers[p->pieces[s->first_piece + k].buffer].form : sum;
    const sl_part_cut cut = sl_plan_part_cut(p, s, k);
    *part = (sl_comm_part){ .shards = cut.shards,
                            .per = cut.per,
                            .unit = cut.unit,
                            .form = form,
                            .sum_form = sum,
                            .whole = reduces && !in_place ? in : out,
                            .shard = reduces && !in_place ? out : in,
                            .in_place = in_place };
}

static void describe_collective(sl_exec *x, const sl_step *s, char *name)
{
    const sl_plan *p = x->plan;
    const char *layer = p->graph->layers[p->parts[s->first_part]].name;
    sl_collective *c = collective_of(x, s);
    int more = s->output_count - 1;
    if (s->kind == SL_STEP_GATHER_NORM)
        snprintf(name, SL_COLLECTIVE_NAME_BYTES, "%s", collective_kinds[s->kind].name);
    else if (s->kind == SL_STEP_GATHER_VALUE)
        snprintf(name, SL_COLLECTIVE_NAME_BYTES, "gather of %.80s",
                 p->graph->values[p->graph->nodes[s->node].outputs[0]].name);
    else if (more == 0)
        snprintf(name, SL_COLLECTIVE_NAME_BYTES, "%s of %.60s", collective_kinds[s->kind].name, layer);
    else
        snprintf(name, SL_COLLECTIVE_NAME_BYTES, "%s of %.48s and %d more", collective_kinds[s->kind].name, layer,
                 more);
    *c = (sl_collective){ .kind = collective_kinds[s->kind].kind, .name = name, .part_count = s->output_count };
    sl_comm_part *parts = x->parts[x->changed] + s->first_part;
    for (int k = 0; k < s->output_count; k++) describe_part(x, s, k, &parts[k]);
    c->parts = parts;
}

/* Of one of the two ways in which versions can lie. */
static sluice_status describe_version(sl_exec *x)
{
    const sl_plan *p = x->plan;
    size_t count = 0;
    for (int i = 0; i < p->step_count; i++) count += is_collective(&p->steps[i]);
    sl_collective *c = x->collectives[x->changed] = sl_alloc_array((size_t)p->step_count + 1, sizeof *c, "collectives");
    sl_comm_part *parts = x->parts[x->changed] =
        sl_alloc_array((size_t)p->part_count + 1, sizeof *parts, "parts of collectives");
    if (x->names == NULL) x->names = sl_alloc_array(count + 1, sizeof *x->names, "names of collectives");
    if (c == NULL || parts == NULL || x->names == NULL) return SLUICE_ERR_NO_MEMORY;
    count = 0;
    for (int i = 0; i < p->step_count; i++)
        if (is_collective(&p->steps[i])) describe_collective(x, &p->steps[i], x->names[count++]);
    return SLUICE_OK;
}

static sluice_status describe_collectives(sl_exec *x)
{
    for (int changed = 1; changed >= 0; changed--) {
        x->changed = changed == 1;
        SL_TRY(describe_version(x));
    }
    return SLUICE_OK;
}

/* ---- life ---- */

static sluice_status create(sl_exec *x, const sl_exec_options *options)
{
    size_t tensors = (size_t)x->plan->graph->layer_count * SL_LAYER_TENSORS;
    SL_TRY(check_supported(x));
    SL_TRY(describe_collectives(x));
    x->snapshots = sl_alloc_array(tensors + 1, sizeof *x->snapshots, "snapshots");
    x->rules = sl_alloc_array((size_t)x->plan->graph->layer_count + 1, sizeof *x->rules, "update rules of layers");
    if (x->snapshots == NULL || x->rules == NULL) return SLUICE_ERR_NO_MEMORY;
    for (int i = 0; i < x->plan->graph->node_count; i++) {
        const sl_node *node = &x->plan->graph->nodes[i];
        if (node->op == SL_OP_UPDATE) x->rules[node->layer] = node->attrs.update;
    }
    SL_TRY(find_early_inputs(x));
    SL_TRY(sl_statistics_open(x));
    SL_TRY(open_device(x, options));
    if (x->backend->pool(x->device) == NULL) SL_TRY(sl_pool_create(1, &x->own_pool));
    SL_TRY(x->comm->ops->attach(x->comm, x->backend, x->device));
    x->attached = true;
    return sl_tables_open(x);
}

sluice_status sl_exec_create(const sl_plan *plan, const sl_exec_options *options, sl_exec **out)
{
    sl_exec *x = sl_alloc(sizeof *x, "executor");
    if (x == NULL) return SLUICE_ERR_NO_MEMORY;
    x->plan = plan;
    x->backend = options->backend;
    x->comm = options->comm;
    pthread_mutex_init(&x->blocks, NULL);
    x->progress = options->progress;
    sluice_status st = create(x, options);
    if (st != SLUICE_OK) {
        sl_exec_destroy(x);
        return st;
    }
    *out = x;
    return SLUICE_OK;
}

/* Nothing may be under way when the comm forgets the device. What fails now interests nobody any more; the message of
 * an earlier failure may still be wanted. */
static void finish_quietly(sl_exec *x)
{
    char message[SL_MESSAGE_BYTES];
    sl_error_copy(message);
    if (sl_exec_settle(x) != SLUICE_OK) sl_error_record("%s", message);
}

void sl_exec_destroy(sl_exec *x)
{
    if (x == NULL) return;
    if (x->attached) {
        finish_quietly(x);
        x->comm->ops->detach(x->comm);
    }
    sl_tracer_drop(x);
    x->backend->close(x->device);
    sl_exec_disk_close(x);
    for (int changed = 0; changed < 2; changed++) {
        sl_free(x->collectives[changed]);
        sl_free(x->parts[changed]);
    }
    sl_free(x->names);
    sl_pool_destroy(x->own_pool);
    pthread_mutex_destroy(&x->blocks);
    sl_free((void *)x->snapshots);
    sl_free((void *)x->rules);
    sl_free((void *)x->sent);
    sl_free(x->sent_early);
    sl_statistics_close(x);
    sl_tables_close(x);
    sl_free(x);
}

sl_pool *sl_exec_pool(const sl_exec *x)
{
    return x->own_pool != NULL ? x->own_pool : x->backend->pool(x->device);
}

/* ---- data in and out ---- */

static sl_span input_span(const sl_exec *x, int value)
{
    const int buffer = x->plan->input_buffers[value];
    return sl_plan_span(x->plan, (sl_piece){ buffer, 0, buffer < 0 ? 0 : x->plan->buffers[buffer].bytes });
}

sluice_status sl_exec_send_input(sl_exec *x, int value, const void *data, size_t bytes)
{
    const sl_span span = input_span(x, value);
    if (!x->sent_early[value] || x->backend->pin == NULL || span.bytes != bytes) return SLUICE_OK;
    x->sent[value] = data;
    x->busy = true;
    SL_TRY(x->backend->upload(x->device, SL_STREAM_TO_DEVICE, span, data));
    return x->backend->record(x->device, SL_STREAM_TO_DEVICE, inputs_event(x));
}

void sl_exec_forget_sent(sl_exec *x)
{
    for (int i = 0; i < x->plan->graph->input_count; i++) {
        const void **sent = &x->sent[x->plan->graph->inputs[i]];
        if (*sent != NULL) *sent = x; /* no data of anybody's, but still to be waited for */
    }
}

sluice_status sl_exec_set_input(sl_exec *x, int value, const void *data, size_t bytes)
{
    const sl_span span = input_span(x, value);
    if (span.bytes != bytes)
        return sl_fail(SLUICE_ERR_USAGE, "input \"%s\" holds %llu bytes, %zu were given",
                       x->plan->graph->values[value].name, (unsigned long long)span.bytes, bytes);
    if (x->sent[value] != NULL) { /* what was sent may still be on its way, also where something else follows it */
        const bool is_there = x->sent[value] == data;
        x->sent[value] = NULL;
        SL_TRY(x->backend->wait(x->device, SL_STREAM_COMPUTE, inputs_event(x)));
        if (is_there) return SLUICE_OK;
    }
    return x->backend->upload(x->device, SL_STREAM_COMPUTE, span, data); /* only kernels on it read inputs */
}

void sl_exec_pin(sl_exec *x, void *memory, size_t bytes)
{
    if (x->backend->pin != NULL) x->backend->pin(x->device, memory, bytes);
}

void sl_exec_unpin(sl_exec *x, void *memory)
{
    if (x->backend->unpin != NULL) x->backend->unpin(x->device, memory);
}

sluice_status sl_exec_read(sl_exec *x, sl_span span, void *out)
{
    SL_TRY(sl_exec_settle(x));
    return x->backend->download(x->device, out, span);
}

sluice_status sl_exec_read_result(sl_exec *x, int buffer, void *out, size_t bytes)
{
    return x->backend->download(x->device, out, sl_plan_span(x->plan, (sl_piece){ buffer, 0, bytes }));
}

void sl_exec_stats(const sl_exec *x, sl_device_stats *device, sl_comm_stats *comm)
{
    x->backend->stats(x->device, device);
    sl_exec_disk_stats(x, device);
    if (comm != NULL) x->comm->ops->stats(x->comm, comm);
}

double sl_exec_seconds(const sl_exec *x, sl_segment_kind segment)
{
    return x->seconds[segment];
}

const sl_plan *sl_exec_plan(const sl_exec *x)
{
    return x->plan;
}

sl_comm *sl_exec_comm(const sl_exec *x)
{
    return x->comm;
}

const sl_progress *sl_exec_progress(const sl_exec *x)
{
    return &x->progress;
}
