/* exec.c: walks the steps of a plan. Order, addresses, streams and waits are the plan's; this file only hands them to
 * the device. */
#include "runtime/exec.h"

#include <string.h>

#include "core/alloc.h"
#include "core/thread.h"

struct sl_exec {
    const sl_plan *plan; /* borrowed */
    const sl_backend *backend;
    sl_device *device; /* owned */
    sl_comm *comm;     /* borrowed */
    double seconds[SL_SEGMENT_COUNT];
    sl_shape flat[SL_MAX_OPERANDS]; /* shapes of update operands, refilled for each call */
};

/* ---- calls ---- */

/* Operands of graph ops have their value's shape; update ops see flat buffers. */
static const sl_shape *operand_shape(sl_exec *x, const sl_step *s, int k, sl_span span)
{
    const sluice_graph *g = x->plan->graph;
    if (s->node >= 0 && g->nodes[s->node].phase != SL_PHASE_UPDATE) {
        const sl_node *node = &g->nodes[s->node];
        int value = k < s->input_count ? node->inputs[k] : node->outputs[k - s->input_count];
        if (value >= 0) return &g->values[value].shape;
    }
    x->flat[k] = (sl_shape){ .rank = 1, .dim = { (int64_t)(span.bytes / sizeof(float)) } };
    return &x->flat[k];
}

static void fill_call(sl_exec *x, const sl_step *s, const sl_run_context *context, sl_call *call)
{
    static const sl_attrs no_attrs;
    const sluice_graph *g = x->plan->graph;
    memset(call, 0, sizeof *call);
    call->op = s->op;
    call->attrs = s->node >= 0 ? &g->nodes[s->node].attrs : &no_attrs;
    call->name = s->node >= 0 && g->nodes[s->node].name != NULL ? g->nodes[s->node].name : sl_ops[s->op].name;
    call->context = context;
    call->input_count = s->input_count;
    call->output_count = s->output_count;
    for (int k = 0; k < s->input_count + s->output_count; k++) {
        sl_span span = sl_plan_span(x->plan, x->plan->pieces[s->first_piece + k]);
        const sl_shape *shape = operand_shape(x, s, k, span);
        if (k < s->input_count) {
            call->inputs[k] = span;
            call->input_shapes[k] = shape;
        } else {
            call->outputs[k - s->input_count] = span;
            call->output_shapes[k - s->input_count] = shape;
        }
    }
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
    (void)context;
    const sl_piece *q = &x->plan->pieces[s->first_piece];
    return x->backend->copy(x->device, s->stream, sl_plan_span(x->plan, q[1]), sl_plan_span(x->plan, q[0]));
}

static const step_handler handlers[] = {
    [SL_STEP_COMPUTE] = do_kernel,
    [SL_STEP_COPY] = do_copy,
    [SL_STEP_UPDATE] = do_kernel,
};

static sluice_status run_step(sl_exec *x, const sl_step *s, const sl_run_context *context)
{
    for (int k = 0; k < s->wait_count; k++) {
        int event = x->plan->steps[x->plan->waits[s->first_wait + k]].event;
        SL_TRY(x->backend->wait(x->device, s->stream, event));
    }
    SL_TRY(handlers[s->kind](x, s, context));
    return s->event < 0 ? SLUICE_OK : x->backend->record(x->device, s->stream, s->event);
}

sluice_status sl_exec_run(sl_exec *x, sl_segment_kind segment, const sl_run_context *context)
{
    const sl_segment *g = &x->plan->segments[segment];
    double start = sl_now();
    for (int i = g->first_step; i < g->first_step + g->step_count; i++)
        SL_TRY(run_step(x, &x->plan->steps[i], context));
    SL_TRY(x->backend->synchronize(x->device));
    x->seconds[segment] = sl_now() - start;
    return SLUICE_OK;
}

/* ---- life ---- */

/* A step this runtime or device cannot do is found now and not in step 1. */
static sluice_status check_supported(const sl_exec *x)
{
    for (int i = 0; i < x->plan->step_count; i++) {
        const sl_step *s = &x->plan->steps[i];
        if ((size_t)s->kind >= sizeof handlers / sizeof handlers[0] || handlers[s->kind] == NULL)
            return sl_fail(SLUICE_ERR_USAGE, "plan step %d is of a kind that is not built in yet", i);
        if (s->kind != SL_STEP_COPY && !x->backend->supports(s->op))
            return sl_fail(SLUICE_ERR_USAGE, "the %s backend has no kernel for %s", x->backend->name,
                           sl_ops[s->op].name);
    }
    return SLUICE_OK;
}

static sluice_status open_device(sl_exec *x, const sl_exec_options *options)
{
    SL_TRY(x->backend->open(&options->device, &x->device));
    for (int t = 0; t < SL_TIER_COUNT; t++)
        if (x->plan->totals.peak[t] > 0) SL_TRY(x->backend->reserve(x->device, (sl_tier)t, x->plan->totals.peak[t]));
    return x->backend->reserve_events(x->device, x->plan->event_count);
}

sluice_status sl_exec_create(const sl_plan *plan, const sl_exec_options *options, sl_exec **out)
{
    sl_exec *x = sl_alloc(sizeof *x, "executor");
    if (x == NULL) return SLUICE_ERR_NO_MEMORY;
    x->plan = plan;
    x->backend = options->backend;
    x->comm = options->comm;
    sluice_status st = check_supported(x);
    if (st == SLUICE_OK) st = open_device(x, options);
    if (st != SLUICE_OK) {
        sl_exec_destroy(x);
        return st;
    }
    *out = x;
    return SLUICE_OK;
}

void sl_exec_destroy(sl_exec *x)
{
    if (x == NULL) return;
    x->backend->close(x->device);
    sl_free(x);
}

/* ---- data in and out ---- */

sluice_status sl_exec_set_input(sl_exec *x, int value, const void *data, size_t bytes)
{
    int buffer = x->plan->input_buffers[value];
    sl_span span = sl_plan_span(x->plan, (sl_piece){ buffer, 0, buffer < 0 ? 0 : x->plan->buffers[buffer].bytes });
    if (span.bytes != bytes)
        return sl_fail(SLUICE_ERR_USAGE, "input \"%s\" holds %llu bytes, %zu were given",
                       x->plan->graph->values[value].name, (unsigned long long)span.bytes, bytes);
    return x->backend->upload(x->device, span, data);
}

sluice_status sl_exec_read(sl_exec *x, sl_span span, void *out)
{
    return x->backend->download(x->device, out, span);
}

sluice_status sl_exec_write(sl_exec *x, sl_span span, const void *data)
{
    return x->backend->upload(x->device, span, data);
}

sluice_status sl_exec_write_parameter(sl_exec *x, int parameter, int64_t first, int64_t count, const float *data)
{
    const sl_plan *p = x->plan;
    const sl_parameter *q = &p->graph->parameters[parameter];
    const sl_layer_place *place = &p->layers[q->layer];
    sl_piece piece = { place->master, (uint64_t)(q->offset + first) * sizeof(float), (uint64_t)count * sizeof(float) };
    SL_TRY(x->backend->upload(x->device, sl_plan_span(p, piece), data));
    if (place->working < 0 || place->working == place->master) return SLUICE_OK;
    piece.buffer = place->working;
    return x->backend->upload(x->device, sl_plan_span(p, piece), data);
}

void sl_exec_stats(const sl_exec *x, sl_device_stats *device, sl_comm_stats *comm)
{
    x->backend->stats(x->device, device);
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
