/* measure_links.c: the durations of what is not a kernel of a graph: updates of flat buffers, copies between tiers,
 * latencies, collectives, and how much copies and kernels of a CPU slow each other down. */
#include "core/bytes.h"
#include "core/thread.h"
#include "ir/form.h"
#include "machine/measure.h"

/* ---- updates ---- */

/* A call on flat buffers, and where it runs. */
typedef struct flat_call {
    sl_op op;
    int64_t elements;
    sl_tier tier;
    sl_stream stream;
    sl_form states; /* UPDATE */
} flat_call;

#define ADAM_SLOTS 2

static sl_layer flat_layer(const flat_call *f)
{
    return (sl_layer){ .name = "measure", .element_count = f->elements };
}

/* An operand: bytes 0: absent. */
typedef struct flat_operand {
    uint64_t bytes;
    sl_form form;
} flat_operand;

/* Gradients have the form of the weights, sums of them are f32; f32 weights are their own master. */
static int flat_operands(const sl_bench *b, const flat_call *f, flat_operand out[SL_MAX_OPERANDS], int *inputs)
{
    sl_form weights = b->scale.weights;
    uint64_t n = (uint64_t)f->elements, narrow = n * sl_form_element_bytes(weights);
    flat_operand gradient = { narrow, weights }, sum = { n * sizeof(float), SL_FORM_F32 };
    flat_operand leaves = { (uint64_t)sl_ceil_div(f->elements, SL_CUT_ELEMENTS) * sizeof(double), SL_FORM_F32 };
    flat_operand norm = { sizeof(sl_norm_result), SL_FORM_F32 };
    *inputs = f->op == SL_OP_UPDATE ? 2 : 1;
    out[0] = f->op == SL_OP_NORM_FINISH ? leaves : f->op == SL_OP_CAST ? sum : gradient;
    out[1] = f->op == SL_OP_NORM_LEAVES  ? leaves
             : f->op == SL_OP_ACCUMULATE ? sum
             : f->op == SL_OP_CAST       ? gradient
                                         : norm;
    if (f->op != SL_OP_UPDATE) return 2;
    out[2] = gradient;
    out[3] = (flat_operand){ weights == SL_FORM_BF16 ? narrow : 0, SL_FORM_REMAINDER };
    sl_layer layer = flat_layer(f);
    uint64_t slot = sl_form_bytes(f->states, &layer, 0, f->elements);
    for (int k = 0; k < ADAM_SLOTS; k++) out[4 + k] = (flat_operand){ slot, f->states };
    return 4 + ADAM_SLOTS;
}

/* False: the regions are too small. Blocks of 8 bits begin with a header, which must be one: they stay where they
 * are. */
static bool place_operands(sl_bench *b, const flat_call *f, sl_call *c, sl_shape shapes[SL_MAX_OPERANDS])
{
    flat_operand operands[SL_MAX_OPERANDS];
    int count = flat_operands(b, f, operands, &c->input_count);
    uint64_t sizes[2] = { 0, 0 };
    for (int i = 0; i < count; i++) sizes[i >= c->input_count] += operands[i].bytes;
    if (!sl_bench_make_room(b, f->tier, sizes[0], sizes[1])) return false;
    if (f->states == SL_FORM_BLOCKS8) b->written_at[f->tier] = 0;
    c->output_count = count - c->input_count;
    for (int i = 0; i < count; i++) {
        flat_operand o = operands[i];
        size_t each = sl_form_element_bytes(o.form);
        int k = i - c->input_count;
        shapes[i] = (sl_shape){ 1, { each > 0 ? (int64_t)(o.bytes / each) : 0 } };
        if (k < 0) {
            c->inputs[i] = sl_bench_read_span(b, f->tier, o.bytes);
            c->input_shapes[i] = &shapes[i];
            c->input_forms[i] = o.form;
        } else if (o.bytes > 0) {
            c->outputs[k] = sl_bench_written_span(b, f->tier, o.bytes);
            c->output_shapes[k] = &shapes[i];
            c->output_forms[k] = o.form;
        }
    }
    return true;
}

static const sl_attrs *update_attrs(sl_bench *b, const flat_call *f)
{
    if (b->update.segment.count == f->elements) return &b->update.attrs;
    b->update.layer = flat_layer(f);
    b->update.segment = (sl_update_segment){ .count = f->elements, .rows = 1, .columns = f->elements };
    b->update.rule = (sl_update_rule){
        .kind = SL_UPDATE_adam_decoupled, .layer = &b->update.layer, .segments = &b->update.segment, .segment_count = 1
    };
    b->update.attrs = (sl_attrs){ .update = &b->update.rule };
    return &b->update.attrs;
}

static sluice_status run_flat(sl_bench *b, void *what)
{
    static const sl_attrs none;
    const flat_call *f = what;
    const sl_attrs *attrs = f->op == SL_OP_UPDATE ? update_attrs(b, f) : &none;
    sl_shape shapes[SL_MAX_OPERANDS];
    sl_call c = { .op = f->op, .attrs = attrs, .context = &b->context, .name = "measure" };
    c.wire = (sluice_dtype)b->scale.weights;
    (void)place_operands(b, f, &c, shapes);
    bool on_host = b->scale.discrete && f->tier == SL_TIER_HOST;
    uint64_t workspace = on_host ? 0 : b->backend->workspace(&c);
    if (workspace > 0) c.workspace = sl_bench_written_span(b, f->tier, workspace);
    return b->backend->run(b->device, f->stream, &c);
}

/* As cost.c counts them: the operands once each, an update by the optimizer's bytes (optim.h): gradient in, the master,
 * whole or in halves, and the moments in and out. */
static double flat_work(const sl_bench *b, const flat_call *f)
{
    flat_operand operands[SL_MAX_OPERANDS];
    double sum = 0;
    int inputs, count = flat_operands(b, f, operands, &inputs);
    for (int i = 0; i < count; i++) sum += (double)operands[i].bytes * (f->op == SL_OP_UPDATE && i >= inputs ? 2 : 1);
    return f->op == SL_OP_UPDATE ? sum - sizeof(sl_norm_result) : sum;
}

static bool fits(sl_bench *b, const flat_call *f)
{
    sl_call c = { .op = f->op };
    sl_shape shapes[SL_MAX_OPERANDS];
    return place_operands(b, f, &c, shapes);
}

/* Measures the next smaller point and puts it first. Points are measured from the largest down, which matters most, and
 * is measured even when the group's time is over. */
static sluice_status measure_point(sl_bench *b, sl_bench_fn fn, void *call, const char *label, double work,
                                   sl_rates *rates)
{
    sl_rate_point p = { work, 0 };
    bool late = false;
    if (rates->count > 0) SL_TRY(sl_bench_late(b, &late));
    if (late) return SLUICE_OK;
    b->label = label;
    b->label_work = work;
    SL_TRY(sl_bench_time(b, NULL, fn, call, &p.seconds));
    for (int i = rates->count; i > 0; i--) rates->points[i] = rates->points[i - 1];
    rates->points[0] = p;
    rates->count++;
    return SLUICE_OK;
}

/* Blocks of 8 bits need headers, where other sizes have written other things; what an update writes is less than its
 * work. */
static sluice_status measure_flat(sl_bench *b, flat_call f, sl_rates *rates)
{
    rates->count = 0;
    for (int k = b->scale.flat_count - 1; k >= 0; k--) {
        f.elements = b->scale.flats[k];
        if (!fits(b, &f)) continue;
        if (f.states == SL_FORM_BLOCKS8) SL_TRY(sl_bench_clear(b, f.tier, (uint64_t)flat_work(b, &f)));
        /* a host's memory is faster for some tens of milliseconds than it stays */
        b->sustained = b->scale.discrete && f.tier == SL_TIER_HOST && f.op == SL_OP_UPDATE && rates->count == 0;
        SL_TRY(measure_point(b, run_flat, &f, sl_ops[f.op].name, flat_work(b, &f), rates));
        b->sustained = false;
    }
    return SLUICE_OK;
}

static sluice_status measure_updates_of(sl_bench *b, sl_bench_group group, sl_tier tier, sl_stream stream,
                                        sl_rates rates[SL_OP_COUNT], sl_rates narrow[2])
{
    static const sl_op ops[] = { SL_OP_UPDATE, SL_OP_ACCUMULATE, SL_OP_NORM_LEAVES, SL_OP_NORM_FINISH, SL_OP_CAST };
    static const sl_form states[] = { SL_FORM_BF16, SL_FORM_BLOCKS8 };
    /* a cast changes nothing where gradients are f32, and is not done */
    size_t count = sizeof ops / sizeof ops[0] - (b->scale.weights == SL_FORM_F32 ? 1 : 0);
    bool on_host = group == SL_BENCH_HOST_UPDATES;
    sl_bench_begin(b, on_host ? "updates on the host" : "updates on the device", b->scale.group_seconds[group]);
    for (size_t i = 0; i < count; i++)
        SL_TRY(measure_flat(b, (flat_call){ ops[i], 0, tier, stream, SL_FORM_F32 }, &rates[ops[i]]));
    for (int k = 0; k < 2; k++)
        SL_TRY(measure_flat(b, (flat_call){ SL_OP_UPDATE, 0, tier, stream, states[k] }, &narrow[k]));
    sl_bench_end(b);
    return SLUICE_OK;
}

sluice_status sl_measure_updates(sl_bench *b, sl_machine *m)
{
    bool discrete = b->scale.discrete;
    sl_stream stream = discrete ? SL_STREAM_COMPUTE : SL_STREAM_UPDATE;
    SL_TRY(
        measure_updates_of(b, SL_BENCH_UPDATES, SL_TIER_DEVICE, stream, m->kernels[SL_RATE_F32], m->narrow_updates[0]));
    if (discrete)
        SL_TRY(measure_updates_of(b, SL_BENCH_HOST_UPDATES, SL_TIER_HOST, SL_STREAM_UPDATE, m->host_kernels,
                                  m->narrow_updates[1]));
    const sl_rates *updates = sl_machine_host_rates(m, SL_OP_UPDATE);
    const sl_rate_point *largest = &updates->points[updates->count - 1];
    if (updates->count > 0) m->update_bytes_per_second = largest->work / largest->seconds;
    flat_call tiny = { SL_OP_NORM_LEAVES, SL_CUT_ELEMENTS, SL_TIER_DEVICE, stream, SL_FORM_F32 };
    b->label = "latency";
    return sl_bench_time(b, NULL, run_flat, &tiny, &m->kernel_latency);
}

sluice_status sl_bench_queue_update(sl_bench *b, int64_t elements)
{
    flat_call f = { SL_OP_UPDATE, elements, SL_TIER_HOST, SL_STREAM_UPDATE, SL_FORM_F32 };
    return run_flat(b, &f);
}

/* ---- copies ---- */

typedef struct copy_call {
    sl_link link;
    uint64_t bytes;
} copy_call;

sluice_status sl_bench_queue_copy(sl_bench *b, sl_link link, uint64_t bytes)
{
    const sl_link_row *row = &sl_links[link];
    return b->backend->copy(b->device, row->stream, sl_bench_written_span(b, row->to, bytes),
                            sl_bench_read_span(b, row->from, bytes));
}

static sluice_status run_copy(sl_bench *b, void *what)
{
    const copy_call *c = what;
    return sl_bench_queue_copy(b, c->link, c->bytes);
}

/* A copy that compute waits for at once: what it costs before its first byte. */
static sluice_status run_awaited(sl_bench *b, void *what)
{
    const copy_call *c = what;
    SL_TRY(run_copy(b, what));
    SL_TRY(b->backend->record(b->device, sl_links[c->link].stream, 0));
    return b->backend->wait(b->device, SL_STREAM_COMPUTE, 0);
}

static sluice_status measure_link(sl_bench *b, sl_link link, sl_machine *m)
{
    static const char *const labels[] = {
        [SL_LINK_TO_DEVICE] = "copy to the device", [SL_LINK_TO_HOST] = "copy to the host"
    };
    sl_rates *rates = &m->copies[link];
    rates->count = 0;
    for (int k = b->scale.copy_count - 1; k >= 0; k--) {
        copy_call c = { link, b->scale.copies[k] };
        if (c.bytes > b->scale.region[sl_links[link].from] || c.bytes > b->scale.region[sl_links[link].to]) continue;
        SL_TRY(measure_point(b, run_copy, &c, labels[link], (double)c.bytes, rates));
    }
    const sl_rate_point *largest = &rates->points[rates->count - 1];
    if (rates->count > 0) m->link_bytes_per_second[link] = largest->work / largest->seconds;
    return SLUICE_OK;
}

static sluice_status measure_copies(sl_bench *b, sl_machine *m)
{
    copy_call tiny = { SL_LINK_TO_DEVICE, 64 };
    SL_TRY(measure_link(b, SL_LINK_TO_DEVICE, m));
    SL_TRY(measure_link(b, SL_LINK_TO_HOST, m));
    /* where there is nobody to measure with; ranks meet in the host's memory */
    if (!b->scale.discrete) m->comm_bytes_per_second = m->link_bytes_per_second[SL_LINK_TO_DEVICE];
    b->label = "latency";
    return sl_bench_time(b, NULL, run_awaited, &tiny, &m->link_latency);
}

/* ---- at the same time, on a CPU ---- */

/* GEMMs, and while each of them runs one copy, as when a layer is prefetched while another one computes. */
typedef struct mixture {
    int gemms;
    bool copies;
    double started, copying; /* when the copy at hand began; seconds of all of them. For the stream's thread */
} mixture;

sluice_status sl_bench_queue_gemm(sl_bench *b, int64_t side)
{
    static const sl_attrs attrs;
    const sl_shape square = { 2, { side, side } };
    const uint64_t bytes = (uint64_t)(side * side) * sl_form_element_bytes(b->scale.weights);
    const sl_form form = b->scale.weights;
    sl_call c = { .op = SL_OP_LINEAR,
                  .attrs = &attrs,
                  .context = &b->context,
                  .name = "measure",
                  .input_count = 2,
                  .output_count = 1,
                  .input_shapes = { &square, &square },
                  .output_shapes = { &square },
                  .input_forms = { form, form },
                  .output_forms = { form } };
    uint64_t workspace = b->backend->workspace(&c);
    (void)sl_bench_make_room(b, SL_TIER_DEVICE, 2 * bytes, bytes + workspace);
    for (int k = 0; k < 2; k++) c.inputs[k] = sl_bench_read_span(b, SL_TIER_DEVICE, bytes);
    c.outputs[0] = sl_bench_written_span(b, SL_TIER_DEVICE, bytes);
    if (workspace > 0) c.workspace = sl_bench_written_span(b, SL_TIER_DEVICE, workspace);
    return b->backend->run(b->device, SL_STREAM_COMPUTE, &c);
}

static sluice_status note_start(void *user)
{
    ((mixture *)user)->started = sl_now();
    return SLUICE_OK;
}

static sluice_status note_end(void *user)
{
    mixture *x = user;
    x->copying += sl_now() - x->started;
    return SLUICE_OK;
}

/* Seconds of all the GEMMs; keeps the shortest, and what the copies took then. */
static sluice_status run_mixture(sl_bench *b, mixture *x, double *gemms, double *copies)
{
    x->copying = 0;
    if (b->ranks > 1) SL_TRY(b->comm->ops->barrier(b->comm, "GEMMs"));
    double start = sl_now();
    for (int k = 0; k < x->gemms; k++) {
        if (x->copies) {
            SL_TRY(b->backend->submit(b->device, SL_STREAM_TO_HOST, note_start, x));
            SL_TRY(sl_bench_queue_copy(b, SL_LINK_TO_HOST, b->scale.contention_copy));
            SL_TRY(b->backend->submit(b->device, SL_STREAM_TO_HOST, note_end, x));
        }
        SL_TRY(sl_bench_queue_gemm(b, b->scale.gemm_side));
    }
    double seconds = sl_now() - start;
    SL_TRY(b->backend->synchronize(b->device));
    if (seconds >= *gemms) return SLUICE_OK;
    *gemms = seconds;
    *copies = x->copying;
    return SLUICE_OK;
}

/* While a copy runs, a kernel's speed is 1 / (1 + kernel_slowdown): by how much the GEMMs took longer, in terms of
 * the time that copies ran, gives it. */
static sluice_status measure_slowdown(sl_bench *b, sl_machine *m)
{
    mixture gemms = { .gemms = 24 }, both = { .gemms = 24, .copies = true };
    double alone = 1e9, contended = 1e9, copying = 1, none = 0;
    for (int i = 0; i < b->scale.contention_tries; i++) {
        SL_TRY(run_mixture(b, &gemms, &alone, &none));
        SL_TRY(run_mixture(b, &both, &contended, &copying));
    }
    double unhindered = both.gemms * sl_rates_seconds(&m->copies[SL_LINK_TO_HOST], (double)b->scale.contention_copy, 0);
    double lost = contended > alone ? (contended - alone) / copying : 0;
    m->move_slowdown = copying > unhindered ? copying / unhindered - 1 : 0;
    m->kernel_slowdown = lost < 0.9 ? lost / (1 - lost) : 9;
    return SLUICE_OK;
}

sluice_status sl_measure_links(sl_bench *b, sl_machine *m)
{
    sl_bench_begin(b, "copies", b->scale.group_seconds[SL_BENCH_COPIES]);
    SL_TRY(measure_copies(b, m));
    sl_bench_end(b);
    if (b->scale.discrete) return SLUICE_OK;
    sl_bench_begin(b, "at the same time", 0);
    SL_TRY(measure_slowdown(b, m));
    sl_bench_end(b);
    return SLUICE_OK;
}

/* ---- collectives ---- */

typedef struct collective_call {
    sl_collective_kind kind;
    uint64_t bytes; /* of the whole */
    uint64_t *sequence;
    sl_shards shards;
    sl_comm_part part; /* borrowed by the collective until the device is synchronized */
    sl_collective what;
    int64_t bounds[65];
} collective_call;

/* Shares the elements out between the ranks, at multiples of a cut. */
static void cut(const sl_bench *b, collective_call *c)
{
    int64_t elements = (int64_t)(c->bytes / sizeof(float)), cuts = elements / SL_CUT_ELEMENTS;
    for (int r = 0; r <= b->ranks; r++) c->bounds[r] = r == b->ranks ? elements : cuts * r / b->ranks * SL_CUT_ELEMENTS;
    c->shards = (sl_shards){ b->ranks, elements, 0, 0, c->bounds };
}

static sluice_status run_collective(sl_bench *b, void *what)
{
    collective_call *c = what;
    sl_tier tier = b->scale.discrete ? SL_TIER_HOST : SL_TIER_DEVICE; /* where ranks meet */
    uint64_t own = (uint64_t)(c->bounds[b->rank + 1] - c->bounds[b->rank]) * sizeof(float);
    bool reduces = c->kind == SL_REDUCE_SCATTER;
    c->part = (sl_comm_part){ .shards = &c->shards, .per = 1, .unit = sizeof(float) };
    c->part.whole = reduces ? sl_bench_read_span(b, tier, c->bytes) : sl_bench_written_span(b, tier, c->bytes);
    c->part.shard = reduces ? sl_bench_written_span(b, tier, own) : sl_bench_read_span(b, tier, own);
    c->what = (sl_collective){ c->kind, "measure", 1, &c->part };
    SL_TRY(b->comm->ops->start(b->comm, (*c->sequence)++, &c->what, true));
    return b->backend->synchronize(b->device);
}

sluice_status sl_measure_collectives(sl_bench *b, sl_machine *m)
{
    const uint64_t *sizes = b->scale.collectives;
    uint64_t sequence = 0;
    m->gather.count = m->reduce.count = 0;
    sl_bench_begin(b, "collectives", 0);
    for (int k = 0; k < b->scale.collective_count; k++)
        for (int kind = SL_GATHER; kind <= SL_REDUCE_SCATTER; kind++) {
            collective_call c = { .kind = (sl_collective_kind)kind, .bytes = sizes[k], .sequence = &sequence };
            sl_rates *rates = kind == SL_GATHER ? &m->gather : &m->reduce;
            double seconds;
            if (c.bytes > b->scale.region[SL_TIER_HOST]) break;
            cut(b, &c);
            b->label = kind == SL_GATHER ? "gather" : "reduce_scatter";
            b->label_work = (double)c.bytes;
            SL_TRY(sl_bench_time(b, NULL, run_collective, &c, &seconds));
            /* the work is what a rank receives */
            double own = (double)(c.bounds[b->rank + 1] - c.bounds[b->rank]) * sizeof(float);
            double received = kind == SL_REDUCE_SCATTER ? own * (b->ranks - 1) : (double)c.bytes - own;
            rates->points[rates->count++] = (sl_rate_point){ received, seconds };
        }
    sl_bench_end(b);
    m->comm_latency = m->gather.points[0].seconds;
    const sl_rate_point *largest = &m->gather.points[m->gather.count - 1];
    m->comm_bytes_per_second = largest->work / largest->seconds;
    return SLUICE_OK;
}
