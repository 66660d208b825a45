/* exec.c: walks the steps of a plan. Order, addresses, streams and waits are the plan's; this file only hands them to
 * the device. */
#include "runtime/exec.h"

#include <stdio.h>
#include <string.h>

#include "core/alloc.h"
#include "core/bytes.h"
#include "core/thread.h"

#define COLLECTIVE_NAME_BYTES 96

struct sl_exec {
    const sl_plan *plan; /* borrowed */
    const sl_backend *backend;
    sl_device *device; /* owned */
    sl_comm *comm;     /* borrowed */
    bool attached;     /* the comm knows the device */
    double seconds[SL_SEGMENT_COUNT];
    sl_shape flat[SL_MAX_OPERANDS];       /* shapes of update operands, refilled for each call */
    sl_collective *collectives;           /* owned; per plan step, part_count 0 where it is none */
    sl_comm_part *parts;                  /* owned; what they point into, parallel to plan->parts */
    char (*names)[COLLECTIVE_NAME_BYTES]; /* owned; one per collective */
    uint64_t sequence;                    /* collectives started so far */
    const float **snapshots;              /* owned; per layer and tensor, where a snapshot lies; NULL: none */
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
    call->first = s->first;
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

/* The first micro-batch of a step sets the sums, later ones add to them. micro counts over all ranks. */
static sluice_status do_collective(sl_exec *x, const sl_step *s, const sl_run_context *context)
{
    bool first = context->micro < (uint32_t)x->plan->options.rank_count;
    return x->comm->ops->start(x->comm, x->sequence++, &x->collectives[s - x->plan->steps], first);
}

static const step_handler handlers[] = {
    [SL_STEP_COMPUTE] = do_kernel,         [SL_STEP_COPY] = do_copy,
    [SL_STEP_GATHER] = do_collective,      [SL_STEP_REDUCE_SCATTER] = do_collective,
    [SL_STEP_GATHER_NORM] = do_collective, [SL_STEP_UPDATE] = do_kernel,
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
    SL_TRY(x->backend->open(&options->device, &x->device));
    for (int t = 0; t < SL_TIER_COUNT; t++)
        if (x->plan->totals.peak[t] > 0) SL_TRY(x->backend->reserve(x->device, (sl_tier)t, x->plan->totals.peak[t]));
    return x->backend->reserve_events(x->device, x->plan->event_count);
}

/* ---- collectives: described once, so that a step only names them ---- */

static const struct {
    sl_collective_kind kind;
    const char *name;
} collective_kinds[] = {
    [SL_STEP_GATHER] = { SL_GATHER, "gather" },
    [SL_STEP_REDUCE_SCATTER] = { SL_REDUCE_SCATTER, "reduce-scatter" },
    [SL_STEP_GATHER_NORM] = { SL_GATHER_NORM, "gather of the norm" },
};

static bool is_collective(const sl_step *s)
{
    return handlers[s->kind] == do_collective;
}

static void describe_part(const sl_exec *x, const sl_step *s, int k, sl_comm_part *part)
{
    const sl_plan *p = x->plan;
    bool leaves = s->kind == SL_STEP_GATHER_NORM, reduces = s->kind == SL_STEP_REDUCE_SCATTER;
    const sl_piece *outputs = &p->pieces[s->first_piece + s->input_count];
    sl_span out = sl_plan_span(p, outputs[k]);
    sl_span in = s->input_count > 0 ? sl_plan_span(p, p->pieces[s->first_piece + k]) : (sl_span){ out.tier, 0, 0 };
    *part = (sl_comm_part){ .shards = &p->layers[p->parts[s->first_part + k]].shards,
                            .per = leaves ? SL_CUT_ELEMENTS : 1,
                            .unit = leaves ? sizeof(double) : sizeof(float),
                            .whole = reduces ? in : out,
                            .shard = reduces ? out : in,
                            .in_place = s->input_count == 0 };
}

static void describe_collective(sl_exec *x, const sl_step *s, char *name)
{
    const sl_plan *p = x->plan;
    const char *layer = p->graph->layers[p->parts[s->first_part]].name;
    sl_collective *c = &x->collectives[s - p->steps];
    int more = s->output_count - 1;
    if (s->kind == SL_STEP_GATHER_NORM)
        snprintf(name, COLLECTIVE_NAME_BYTES, "%s", collective_kinds[s->kind].name);
    else if (more == 0)
        snprintf(name, COLLECTIVE_NAME_BYTES, "%s of %.60s", collective_kinds[s->kind].name, layer);
    else
        snprintf(name, COLLECTIVE_NAME_BYTES, "%s of %.48s and %d more", collective_kinds[s->kind].name, layer, more);
    *c = (sl_collective){ .kind = collective_kinds[s->kind].kind, .name = name, .part_count = s->output_count };
    sl_comm_part *parts = x->parts + s->first_part;
    for (int k = 0; k < s->output_count; k++) describe_part(x, s, k, &parts[k]);
    c->parts = parts;
}

static sluice_status describe_collectives(sl_exec *x)
{
    const sl_plan *p = x->plan;
    size_t count = 0;
    for (int i = 0; i < p->step_count; i++) count += is_collective(&p->steps[i]);
    x->collectives = sl_alloc_array((size_t)p->step_count + 1, sizeof *x->collectives, "collectives");
    x->parts = sl_alloc_array((size_t)p->part_count + 1, sizeof *x->parts, "parts of collectives");
    x->names = sl_alloc_array(count + 1, sizeof *x->names, "names of collectives");
    if (x->collectives == NULL || x->parts == NULL || x->names == NULL) return SLUICE_ERR_NO_MEMORY;
    count = 0;
    for (int i = 0; i < p->step_count; i++)
        if (is_collective(&p->steps[i])) describe_collective(x, &p->steps[i], x->names[count++]);
    return SLUICE_OK;
}

/* ---- life ---- */

static sluice_status create(sl_exec *x, const sl_exec_options *options)
{
    size_t tensors = (size_t)x->plan->graph->layer_count * (1 + SL_MAX_STATE_SLOTS);
    SL_TRY(check_supported(x));
    SL_TRY(describe_collectives(x));
    x->snapshots = sl_alloc_array(tensors + 1, sizeof *x->snapshots, "snapshots");
    if (x->snapshots == NULL) return SLUICE_ERR_NO_MEMORY;
    SL_TRY(open_device(x, options));
    SL_TRY(x->comm->ops->attach(x->comm, x->backend, x->device));
    x->attached = true;
    return SLUICE_OK;
}

sluice_status sl_exec_create(const sl_plan *plan, const sl_exec_options *options, sl_exec **out)
{
    sl_exec *x = sl_alloc(sizeof *x, "executor");
    if (x == NULL) return SLUICE_ERR_NO_MEMORY;
    x->plan = plan;
    x->backend = options->backend;
    x->comm = options->comm;
    sluice_status st = create(x, options);
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
    if (x->attached) x->comm->ops->detach(x->comm);
    x->backend->close(x->device);
    sl_free(x->collectives);
    sl_free(x->parts);
    sl_free(x->names);
    sl_free((void *)x->snapshots);
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

/* ---- parameters and state by element ---- */

/* Elements [first, first + count) of a parameter in its layer's flat buffer. */
static sl_range run_of(const sl_exec *x, int parameter, int64_t first, int64_t count)
{
    return (sl_range){ x->plan->graph->parameters[parameter].offset + first, count };
}

typedef sluice_status (*run_fn)(sl_exec *x, sl_span span, float *data);

static sluice_status upload_run(sl_exec *x, sl_span span, float *data)
{
    return x->backend->upload(x->device, span, data);
}

static sluice_status download_run(sl_exec *x, sl_span span, float *data)
{
    return x->backend->download(x->device, data, span);
}

/* Calls fn for what the buffer holds of a run of its layer; with `owned` only for what this rank owns of it. data is
 * where the run's first element belongs. */
static sluice_status for_each_run(sl_exec *x, int buffer, sl_range run, bool owned, float *data, run_fn fn)
{
    const sl_plan *p = x->plan;
    const sl_buffer *b = &p->buffers[buffer];
    const sl_shards *s = &p->layers[b->layer].shards;
    int rank = p->options.rank;
    if (!b->shard && !owned)
        return fn(x,
                  sl_plan_span(p, (sl_piece){ buffer, (uint64_t)run.first * sizeof(float),
                                              (uint64_t)run.count * sizeof(float) }),
                  data);
    for (int64_t i = sl_shard_range_at(s, rank, run.first); i < sl_shard_range_count(s, rank); i++) {
        sl_range own = sl_shard_range(s, rank, i), common = sl_range_common(own, run);
        if (common.count == 0) break;
        int64_t at = b->shard ? sl_shard_offset(s, i) + common.first - own.first : common.first;
        sl_piece piece = { buffer, (uint64_t)at * sizeof(float), (uint64_t)common.count * sizeof(float) };
        SL_TRY(fn(x, sl_plan_span(p, piece), data + (common.first - run.first)));
    }
    return SLUICE_OK;
}

sluice_status sl_exec_store(sl_exec *x, int parameter, int slot, int64_t first, int64_t count, const float *data)
{
    const sl_layer_place *place = &x->plan->layers[x->plan->graph->parameters[parameter].layer];
    sl_range run = run_of(x, parameter, first, count);
    int master = slot < 0 ? place->master : place->slots[slot];
    if (count == 0) return SLUICE_OK;
    SL_TRY(for_each_run(x, master, run, false, (float *)data, upload_run));
    if (slot >= 0 || place->home == master) return SLUICE_OK;
    return for_each_run(x, place->home, run, false, (float *)data, upload_run);
}

sluice_status sl_exec_fetch(sl_exec *x, int parameter, int slot, int64_t first, int64_t count, float *out)
{
    const sl_layer_place *place = &x->plan->layers[x->plan->graph->parameters[parameter].layer];
    if (count == 0) return SLUICE_OK;
    return for_each_run(x, slot < 0 ? place->master : place->slots[slot], run_of(x, parameter, first, count),
                        x->plan->options.rank_count > 1, out, download_run);
}

/* ---- snapshots ---- */

/* Copies the owned part of a buffer to its snapshot, range by range where one is whole and the other a shard. */
static sluice_status copy_aside(sl_exec *x, int from, int to)
{
    const sl_plan *p = x->plan;
    const sl_buffer *source = &p->buffers[from];
    const sl_shards *s = &p->layers[source->layer].shards;
    bool whole = source->shard == p->buffers[to].shard;
    int64_t ranges = whole ? 1 : sl_shard_range_count(s, p->options.rank);
    for (int64_t i = 0; i < ranges; i++) {
        sl_range r =
            whole ? (sl_range){ 0, (int64_t)(source->bytes / sizeof(float)) } : sl_shard_range(s, p->options.rank, i);
        uint64_t bytes = (uint64_t)r.count * sizeof(float), at = whole ? 0 : (uint64_t)sl_shard_offset(s, i);
        sl_span src = sl_plan_span(p, (sl_piece){ from, (uint64_t)r.first * sizeof(float), bytes });
        sl_span dst = sl_plan_span(p, (sl_piece){ to, at * sizeof(float), bytes });
        if (bytes > 0) SL_TRY(x->backend->copy(x->device, SL_STREAM_TO_HOST, dst, src));
    }
    return SLUICE_OK;
}

static sluice_status snapshot_layer(sl_exec *x, int layer)
{
    const sl_plan *p = x->plan;
    const sl_layer_place *place = &p->layers[layer];
    for (int k = 0; k <= SL_MAX_STATE_SLOTS; k++) {
        int to = place->snapshots[k];
        void *address = NULL;
        if (to < 0) continue;
        SL_TRY(copy_aside(x, k == 0 ? place->master : place->slots[k - 1], to));
        sl_span span = sl_plan_span(p, (sl_piece){ to, 0, p->buffers[to].bytes });
        SL_TRY(x->backend->resolve(x->device, "snapshot", span, &address));
        x->snapshots[layer * (1 + SL_MAX_STATE_SLOTS) + k] = address;
    }
    return SLUICE_OK;
}

sluice_status sl_exec_snapshot(sl_exec *x)
{
    if (!x->plan->options.snapshot)
        return sl_fail(SLUICE_ERR_FAILED, "the plan has no room for a snapshot: it was made without that option");
    for (int i = 0; i < x->plan->graph->layer_count; i++) SL_TRY(snapshot_layer(x, i));
    return x->backend->synchronize(x->device);
}

sluice_status sl_exec_fetch_snapshot(sl_exec *x, int parameter, int slot, int64_t first, int64_t count, float *out)
{
    const sl_plan *p = x->plan;
    int layer = p->graph->parameters[parameter].layer, rank = p->options.rank;
    const sl_shards *s = &p->layers[layer].shards;
    const float *from = x->snapshots[layer * (1 + SL_MAX_STATE_SLOTS) + slot + 1];
    sl_range run = run_of(x, parameter, first, count);
    for (int64_t i = sl_shard_range_at(s, rank, run.first); from != NULL && i < sl_shard_range_count(s, rank); i++) {
        sl_range own = sl_shard_range(s, rank, i), common = sl_range_common(own, run);
        if (common.count == 0) break;
        memcpy(out + (common.first - run.first), from + sl_shard_offset(s, i) + common.first - own.first,
               (size_t)common.count * sizeof *out);
    }
    return SLUICE_OK;
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

sl_comm *sl_exec_comm(const sl_exec *x)
{
    return x->comm;
}
