/* measure_links.c: the durations of what is not a kernel of a graph: updates of flat buffers, copies between tiers,
 * latencies, and how much copies and kernels slow each other down. */
#include "core/bytes.h"
#include "core/thread.h"
#include "train/measure.h"

/* ---- updates ---- */

typedef struct flat_call {
    sl_op op;
    int64_t elements;
    sl_tier tier;
} flat_call;

#define ADAM_BYTES 28.0 /* an element: gradient in; weight and two moments in and out */

/* f32 weights are their own master: there is no rest of it. */
static void adam_operands(sl_bench *b, const flat_call *f, sl_call *c)
{
    uint64_t bytes = (uint64_t)f->elements * sizeof(float);
    c->input_count = 2;
    c->output_count = 4;
    c->inputs[1] = sl_bench_read_span(b, f->tier, sizeof(sl_norm_result));
    for (int i = 0; i < 4; i++)
        if (i != 1) c->outputs[i] = sl_bench_written_span(b, f->tier, bytes);
}

/* Leaves are doubles, one per SL_CUT_ELEMENTS; the result of NORM_FINISH is of a fixed size. */
static void flat_operands(sl_bench *b, const flat_call *f, sl_call *c)
{
    uint64_t bytes = (uint64_t)f->elements * sizeof(float);
    uint64_t leaves = (uint64_t)(f->elements + SL_CUT_ELEMENTS - 1) / SL_CUT_ELEMENTS * sizeof(double);
    c->input_count = c->output_count = 1;
    c->inputs[0] = sl_bench_read_span(b, f->tier, f->op == SL_OP_NORM_FINISH ? leaves : bytes);
    if (f->op == SL_OP_UPDATE)
        adam_operands(b, f, c);
    else
        c->outputs[0] = sl_bench_written_span(b, f->tier,
                                              f->op == SL_OP_ACCUMULATE    ? bytes
                                              : f->op == SL_OP_NORM_LEAVES ? leaves
                                                                           : sizeof(sl_norm_result));
}

static sluice_status run_flat(sl_bench *b, void *what)
{
    const flat_call *f = what;
    sl_update_segment segment = { 0, f->elements, 0 };
    sl_update_rule rule = { .kind = SL_UPDATE_ADAM, .slots = 2, .decoupled_decay = true, .segments = &segment };
    rule.segment_count = 1;
    sl_attrs attrs = { .update = &rule };
    sl_shape shapes[SL_MAX_OPERANDS];
    sl_call c = { .op = f->op, .attrs = &attrs, .context = &b->context, .name = "measure" };
    flat_operands(b, f, &c);
    for (int i = 0; i < c.input_count + c.output_count; i++) {
        bool in = i < c.input_count;
        sl_span s = in ? c.inputs[i] : c.outputs[i - c.input_count];
        shapes[i] = (sl_shape){ 1, { (int64_t)(s.bytes / sizeof(float)) } };
        *(in ? &c.input_shapes[i] : &c.output_shapes[i - c.input_count]) = &shapes[i];
    }
    return b->backend->run(b->device, SL_STREAM_UPDATE, &c);
}

/* As cost.c counts them: the operands once each, an update by the optimizer's bytes. */
static double flat_work(const flat_call *f)
{
    double n = (double)f->elements, leaves = (n + SL_CUT_ELEMENTS - 1) / SL_CUT_ELEMENTS * sizeof(double);
    if (f->op == SL_OP_UPDATE) return n * ADAM_BYTES;
    if (f->op == SL_OP_ACCUMULATE) return 2 * n * sizeof(float);
    return leaves + (f->op == SL_OP_NORM_LEAVES ? n * sizeof(float) : sizeof(sl_norm_result));
}

sluice_status sl_measure_updates(sl_bench *b, sl_machine *m)
{
    static const sl_op ops[] = { SL_OP_UPDATE, SL_OP_ACCUMULATE, SL_OP_NORM_LEAVES, SL_OP_NORM_FINISH };
    static const int64_t sizes[] = { 1 << 12, 1 << 15, 1 << 18, 1 << 20, 3 << 20 };
    sl_rates *rates = NULL;
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++) {
        rates = &m->kernels[SL_RATE_F32][ops[i]];
        rates->count = 0;
        for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
            flat_call f = { ops[i], sizes[k], SL_TIER_DEVICE };
            double seconds;
            SL_TRY(sl_bench_time(b, NULL, run_flat, &f, &seconds));
            rates->points[rates->count++] = (sl_rate_point){ flat_work(&f), seconds };
        }
    }
    const sl_rates *updates = &m->kernels[SL_RATE_F32][SL_OP_UPDATE];
    const sl_rate_point *largest = &updates->points[updates->count - 1];
    m->update_bytes_per_second = largest->work / largest->seconds;
    flat_call tiny = { SL_OP_NORM_LEAVES, SL_CUT_ELEMENTS, SL_TIER_DEVICE };
    return sl_bench_time(b, NULL, run_flat, &tiny, &m->kernel_latency);
}

/* ---- copies ---- */

typedef struct copy_call {
    int direction; /* 0: to the device */
    uint64_t bytes;
    int count;
} copy_call;

static sluice_status run_copies(sl_bench *b, void *what)
{
    const copy_call *c = what;
    sl_stream stream = c->direction == 0 ? SL_STREAM_TO_DEVICE : SL_STREAM_TO_HOST;
    sl_tier to = c->direction == 0 ? SL_TIER_DEVICE : SL_TIER_HOST;
    sl_tier from = c->direction == 0 ? SL_TIER_HOST : SL_TIER_DEVICE;
    for (int i = 0; i < c->count; i++)
        SL_TRY(b->backend->copy(b->device, stream, sl_bench_written_span(b, to, c->bytes),
                                sl_bench_read_span(b, from, c->bytes)));
    return SLUICE_OK;
}

/* A copy that compute waits for at once: what it costs before its first byte. */
static sluice_status run_awaited(sl_bench *b, void *what)
{
    SL_TRY(run_copies(b, what));
    SL_TRY(b->backend->record(b->device, SL_STREAM_TO_DEVICE, 0));
    return b->backend->wait(b->device, SL_STREAM_COMPUTE, 0);
}

static sluice_status measure_copies(sl_bench *b, sl_machine *m)
{
    static const uint64_t sizes[] = { 16 << 10, 256 << 10, 2 << 20, 16 << 20 };
    copy_call tiny = { 0, 64, 1 };
    for (int d = 0; d < 2; d++) {
        m->copies[d].count = 0;
        for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
            copy_call c = { d, sizes[k], 1 };
            sl_rate_point p = { (double)sizes[k], 0 };
            SL_TRY(sl_bench_time(b, NULL, run_copies, &c, &p.seconds));
            m->copies[d].points[m->copies[d].count++] = p;
            m->link_bytes_per_second[d] = p.work / p.seconds;
        }
    }
    m->comm_bytes_per_second = m->link_bytes_per_second[0]; /* where there is nobody to measure with */
    return sl_bench_time(b, NULL, run_awaited, &tiny, &m->link_latency);
}

/* ---- at the same time ---- */

/* Products, and beside each of them one copy, as when layers are fetched while others compute. */
typedef struct mixture {
    int products;
    bool copies;
    double started, copying; /* when the copy at hand began; seconds of all of them. For the stream's thread */
} mixture;

#define PRODUCT_SIZE     ((int64_t)512)
#define BESIDE_COPY_SIZE ((uint64_t)3 << 20) /* takes somewhat less than the product */

static sluice_status run_product(sl_bench *b)
{
    static const sl_attrs attrs;
    static const sl_shape square = { 2, { PRODUCT_SIZE, PRODUCT_SIZE } };
    const uint64_t bytes = PRODUCT_SIZE * PRODUCT_SIZE * sizeof(float);
    sl_call c = { .op = SL_OP_LINEAR, .attrs = &attrs, .context = &b->context, .name = "measure" };
    c.input_count = 2;
    c.output_count = 1;
    for (int k = 0; k < 2; k++) {
        c.inputs[k] = sl_bench_read_span(b, SL_TIER_DEVICE, bytes);
        c.input_shapes[k] = &square;
    }
    c.outputs[0] = sl_bench_written_span(b, SL_TIER_DEVICE, bytes);
    c.output_shapes[0] = &square;
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

static sluice_status start_copy(sl_bench *b, mixture *x)
{
    copy_call c = { 1, BESIDE_COPY_SIZE, 1 };
    SL_TRY(b->backend->submit(b->device, SL_STREAM_TO_HOST, note_start, x));
    SL_TRY(run_copies(b, &c));
    return b->backend->submit(b->device, SL_STREAM_TO_HOST, note_end, x);
}

/* Seconds of all the products; keeps the best, and what the copies took then. */
static sluice_status run_mixture(sl_bench *b, mixture *x, double *products, double *copies)
{
    x->copying = 0;
    if (b->ranks > 1) SL_TRY(b->comm->ops->barrier(b->comm, "products"));
    double start = sl_now();
    for (int k = 0; k < x->products; k++) {
        if (x->copies) SL_TRY(start_copy(b, x));
        SL_TRY(run_product(b));
    }
    double seconds = sl_now() - start;
    SL_TRY(b->backend->synchronize(b->device));
    if (seconds >= *products) return SLUICE_OK;
    *products = seconds;
    *copies = x->copying;
    return SLUICE_OK;
}

/* While a copy runs, a kernel's speed is 1 / (1 + kernel_slowdown): by how much the products took longer, in terms of
 * the time that copies ran, gives it. */
static sluice_status measure_slowdown(sl_bench *b, sl_machine *m)
{
    enum { TRIES = 15 };
    mixture products = { .products = 24 }, both = { .products = 24, .copies = true };
    double alone = 1e9, beside = 1e9, copying = 1, none = 0;
    for (int i = 0; i < TRIES; i++) {
        SL_TRY(run_mixture(b, &products, &alone, &none));
        SL_TRY(run_mixture(b, &both, &beside, &copying));
    }
    double unhindered = both.products * sl_rates_seconds(&m->copies[1], (double)BESIDE_COPY_SIZE, 0);
    double lost = beside > alone ? (beside - alone) / copying : 0;
    m->move_slowdown = copying > unhindered ? copying / unhindered - 1 : 0;
    m->kernel_slowdown = lost < 0.9 ? lost / (1 - lost) : 9;
    return SLUICE_OK;
}

sluice_status sl_measure_links(sl_bench *b, sl_machine *m)
{
    SL_TRY(measure_copies(b, m));
    return measure_slowdown(b, m);
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

static void cut(const sl_bench *b, collective_call *c)
{
    int64_t elements = (int64_t)(c->bytes / sizeof(float)), cuts = elements / SL_CUT_ELEMENTS;
    for (int r = 0; r <= b->ranks; r++) c->bounds[r] = r == b->ranks ? elements : cuts * r / b->ranks * SL_CUT_ELEMENTS;
    c->shards = (sl_shards){ b->ranks, elements, 0, 0, c->bounds };
}

static sluice_status run_collective(sl_bench *b, void *what)
{
    collective_call *c = what;
    uint64_t own = (uint64_t)(c->bounds[b->rank + 1] - c->bounds[b->rank]) * sizeof(float);
    bool reduces = c->kind == SL_REDUCE_SCATTER;
    c->part = (sl_comm_part){ .shards = &c->shards, .per = 1, .unit = sizeof(float) };
    c->part.whole =
        reduces ? sl_bench_read_span(b, SL_TIER_DEVICE, c->bytes) : sl_bench_written_span(b, SL_TIER_DEVICE, c->bytes);
    c->part.shard =
        reduces ? sl_bench_written_span(b, SL_TIER_DEVICE, own) : sl_bench_read_span(b, SL_TIER_DEVICE, own);
    c->what = (sl_collective){ c->kind, "measure", 1, &c->part };
    SL_TRY(b->comm->ops->start(b->comm, (*c->sequence)++, &c->what, true));
    return b->backend->synchronize(b->device);
}

static double received(const sl_bench *b, const collective_call *c)
{
    double own = (double)(c->bounds[b->rank + 1] - c->bounds[b->rank]) * sizeof(float);
    return c->kind == SL_REDUCE_SCATTER ? own * (b->ranks - 1) : (double)c->bytes - own;
}

sluice_status sl_measure_collectives(sl_bench *b, sl_machine *m)
{
    static const uint64_t sizes[] = { 16 << 10, 256 << 10, 2 << 20, 16 << 20 };
    uint64_t sequence = 0;
    m->gather.count = m->reduce.count = 0;
    for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++)
        for (int kind = SL_GATHER; kind <= SL_REDUCE_SCATTER; kind++) {
            collective_call c = { .kind = (sl_collective_kind)kind, .bytes = sizes[k], .sequence = &sequence };
            sl_rates *rates = kind == SL_GATHER ? &m->gather : &m->reduce;
            double seconds;
            cut(b, &c);
            SL_TRY(sl_bench_time(b, NULL, run_collective, &c, &seconds));
            rates->points[rates->count++] = (sl_rate_point){ received(b, &c), seconds };
        }
    m->comm_latency = m->gather.points[0].seconds;
    const sl_rate_point *largest = &m->gather.points[m->gather.count - 1];
    m->comm_bytes_per_second = largest->work / largest->seconds;
    return SLUICE_OK;
}
