/* measure_kernels.c: the durations of the kernels that training runs, in f32 and in 16 bits.
 *
 * Models of one layer say which kernels there are, with which attributes and shapes, or the graph that is to be trained
 * does; each node is then timed by itself, on operands that have not just been used. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/node_call.h"
#include "core/alloc.h"
#include "core/bytes.h"
#include "core/thread.h"
#include "machine/measure.h"

#define ID_ALIGNMENT   ((uint64_t)256)
#define MIXED_PASSES   4    /* in what a mixture of kernels is timed for */
#define LEAST_PRODUCTS 0.25 /* of a mixture: with fewer nothing is said of them */
#define WARM_SECONDS   0.1
#define CLOCK_SHARE    0.5  /* of what products lose in a mixture; by all of it BERT and GPT-2 took 5 % less (H200) */
#define MOST_SUSTAINED 1.25 /* times as long as alone; beyond that something else was in the way */

/* ---- one node ---- */

typedef struct node_call {
    const sluice_graph *graph;
    const sl_node *node;
    uint64_t read, written; /* bytes; workspace is written */
    uint64_t workspace;
    sl_call call;                     /* the next one */
    sl_shape shapes[SL_MAX_OPERANDS]; /* of the call */
} node_call;

static const sl_value *input_of(const node_call *n, int i)
{
    return &n->graph->values[n->node->inputs[i]];
}

/* ---- ids ---- */

/* What an i32 operand says, for which ids to measure with can be made up. */
typedef enum {
    IDS_UNKNOWN,
    IDS_PLACES,    /* rows of a table, classes, labels */
    IDS_POSITIONS, /* of tokens in their document */
    IDS_LENGTHS    /* of sequences, in frames or tokens */
} id_role;

static id_role role_of(const node_call *n, int i)
{
    const int rank = input_of(n, i)->shape.rank;
    switch (n->node->op) {
    case SL_OP_EMBEDDING:
    case SL_OP_EMBEDDING_GRAD:
    case SL_OP_CROSS_ENTROPY:
    case SL_OP_CROSS_ENTROPY_GRAD:
    case SL_OP_LINEAR_CROSS_ENTROPY:
        return IDS_PLACES;
    case SL_OP_ATTENTION:
    case SL_OP_ATTENTION_GRAD:
        return rank == 2 ? IDS_POSITIONS : IDS_LENGTHS;
    case SL_OP_ROTARY:
        return IDS_POSITIONS;
    case SL_OP_GRU:
    case SL_OP_GRU_GRAD:
        return IDS_LENGTHS;
    case SL_OP_CTC_LOSS:
        return rank == 2 ? IDS_PLACES : IDS_LENGTHS;
    default:
        return IDS_UNKNOWN;
    }
}

/* Places are below it: rows of the table that is read, or whose gradient is written, or the last dimension of logits. */
static int64_t places_of(const sl_bench *b, const node_call *n)
{
    const sl_node *node = n->node;
    const sl_index_rule *rule = &sl_ops[node->op].index;
    const sl_shape *table = NULL;
    if (node->op == SL_OP_EMBEDDING_GRAD)
        table = &n->graph->values[node->outputs[0]].shape;
    else if (rule->there)
        table = &input_of(n, rule->table)->shape;
    for (int i = 0; table == NULL && i < node->input_count; i++)
        if (input_of(n, i)->dtype != SLUICE_I32 && input_of(n, i)->shape.rank >= 2) table = &input_of(n, i)->shape;
    if (table == NULL) return 1;
    const bool first = node->op == SL_OP_EMBEDDING_GRAD || (rule->there && !rule->last);
    const int64_t all = table->dim[first ? 0 : table->rank - 1];
    return all < b->scale.ids ? all : b->scale.ids;
}

/* Frames of a sequence: the second dimension of what is read first. */
static int32_t frames_of(const node_call *n)
{
    for (int i = 0; i < n->node->input_count; i++)
        if (input_of(n, i)->dtype != SLUICE_I32 && input_of(n, i)->shape.rank >= 2)
            return (int32_t)input_of(n, i)->shape.dim[1];
    return 1;
}

static void make_ids(const sl_bench *b, const node_call *n, int input, int32_t *out)
{
    const sl_shape *shape = &input_of(n, input)->shape;
    const id_role role = role_of(n, input);
    const int64_t count = sl_shape_elements(shape), row = shape->rank > 0 ? shape->dim[shape->rank - 1] : 1;
    const int64_t places = role == IDS_PLACES ? places_of(b, n) : 1;
    for (int64_t i = 0; i < count; i++)
        out[i] = role == IDS_PLACES      ? (int32_t)(i * 37 % places)
                 : role == IDS_POSITIONS ? (int32_t)(i % row)
                                         : frames_of(n);
}

/* Where the ids of an input begin. */
static uint64_t ids_at(const node_call *n, int input)
{
    uint64_t at = 0;
    for (int i = 0; i < input; i++)
        if (input_of(n, i)->dtype == SLUICE_I32) at = sl_align_up(at + sl_value_bytes(input_of(n, i)), ID_ALIGNMENT);
    return at;
}

static bool knows_ids(const sl_bench *b, const node_call *n)
{
    for (int i = 0; i < n->node->input_count; i++)
        if (input_of(n, i)->dtype == SLUICE_I32 && role_of(n, i) == IDS_UNKNOWN) return false;
    return ids_at(n, n->node->input_count) <= b->scale.id_bytes;
}

/* The ids of a node, before it is timed. */
static sluice_status upload_ids(sl_bench *b, const node_call *n)
{
    const uint64_t bytes = ids_at(n, n->node->input_count);
    if (bytes == 0) return SLUICE_OK;
    char *ids = sl_alloc(bytes, "ids to measure with");
    if (ids == NULL) return SLUICE_ERR_NO_MEMORY;
    for (int i = 0; i < n->node->input_count; i++)
        if (input_of(n, i)->dtype == SLUICE_I32) make_ids(b, n, i, (int32_t *)(void *)(ids + ids_at(n, i)));
    sluice_status st = b->backend->upload(b->device, SL_STREAM_COMPUTE, (sl_span){ SL_TIER_DEVICE, 0, bytes }, ids);
    if (st == SLUICE_OK) st = b->backend->synchronize(b->device);
    sl_free(ids);
    return st;
}

/* ---- operands ---- */

static sl_span input_span(sl_bench *b, const node_call *n, int i)
{
    const uint64_t bytes = sl_value_bytes(input_of(n, i));
    if (input_of(n, i)->dtype == SLUICE_I32) return (sl_span){ SL_TIER_DEVICE, ids_at(n, i), bytes };
    return sl_bench_read_span(b, SL_TIER_DEVICE, bytes);
}

/* The input that some node before this one computed last, or -1. */
static int newest_input(const node_call *n)
{
    int newest = -1, producer = -1;
    for (int i = 0; i < n->node->input_count; i++) {
        const sl_value *v = &n->graph->values[n->node->inputs[i]];
        if (v->dtype == SLUICE_I32 || v->producer <= producer) continue;
        newest = i;
        producer = v->producer;
    }
    return newest;
}

/* Passes over a span with a kernel that leaves it as it is, so that the caches hold what they would hold of it. */
static sluice_status touch(sl_bench *b, sl_span span)
{
    static const sl_attrs attrs = { .scale = { 1.0f } };
    sl_shape flat = { 1, { (int64_t)(span.bytes / sizeof(float)) } };
    sl_call c = { .op = SL_OP_SCALE, .attrs = &attrs, .input_count = 1, .output_count = 1, .context = &b->context };
    c.name = "measure";
    c.inputs[0] = c.outputs[0] = span;
    c.input_shapes[0] = c.output_shapes[0] = &flat;
    return b->backend->run(b->device, SL_STREAM_COMPUTE, &c);
}

static void describe_node(const sl_bench *b, node_call *n, sl_call *c)
{
    const unsigned outputs = sl_node_outputs(n->graph, n->node, SL_RUN_TRAINING);
    sl_node_call(n->graph, n->node, outputs, &b->context, n->shapes, c);
    c->name = "measure";
}

/* Operands that have not been used for a while, except the one that the node before has just written. On a discrete
 * device, where nothing may be queued in between, all of them. */
static sluice_status prepare_node(sl_bench *b, void *what)
{
    node_call *n = what;
    const sl_node *node = n->node;
    sl_call *c = &n->call;
    describe_node(b, n, c);
    (void)sl_bench_make_room(b, SL_TIER_DEVICE, n->read, n->written);
    for (int i = 0; i < node->input_count; i++) c->inputs[i] = input_span(b, n, i);
    for (int i = 0; i < node->output_count; i++)
        if (node->outputs[i] >= 0)
            c->outputs[i] =
                sl_bench_written_span(b, SL_TIER_DEVICE, sl_value_bytes(&n->graph->values[node->outputs[i]]));
    if (n->workspace > 0) c->workspace = sl_bench_written_span(b, SL_TIER_DEVICE, n->workspace);
    int newest = b->scale.discrete ? -1 : newest_input(n);
    return newest >= 0 ? touch(b, c->inputs[newest]) : SLUICE_OK;
}

/* How much memory a call needs. */
static void size_node(sl_bench *b, node_call *n)
{
    const sl_node *node = n->node;
    for (int i = 0; i < node->input_count; i++) {
        const sl_value *v = &n->graph->values[node->inputs[i]];
        if (v->dtype != SLUICE_I32) n->read += sl_value_bytes(v);
    }
    for (int i = 0; i < node->output_count; i++)
        if (node->outputs[i] >= 0) n->written += sl_value_bytes(&n->graph->values[node->outputs[i]]);
    describe_node(b, n, &n->call);
    n->workspace = b->backend->workspace(&n->call);
    n->written += n->workspace;
}

static sluice_status run_node(sl_bench *b, void *what)
{
    const node_call *n = what;
    return b->backend->run(b->device, SL_STREAM_COMPUTE, &n->call);
}

/* ---- a model's nodes ---- */

#define MOST_SEEN 2048 /* more are timed again */

/* Durations of the kernels of one type; in a 16-bit graph a few are f32's all the same, and are passed over. */
typedef struct survey {
    sluice_dtype type;
    const sl_machine *machine; /* general rates, to expect durations by */
    bool sustained;            /* of the model at hand, matrix ops are timed as long as a device needs to warm up */
    sl_samples samples[SL_OP_COUNT];
    /* Of the model at hand, only ops that the models before it do not have are timed. */
    bool fills;
    bool has[SL_OP_COUNT]; /* samples of the models before */
    int seen_count;
    uint64_t seen[MOST_SEEN]; /* ops and shapes that were timed, hashed */
} survey;

static uint64_t mix(uint64_t hash, int64_t x)
{
    return (hash ^ (uint64_t)x) * 1099511628211u;
}

/* What a kernel's duration depends on. */
static uint64_t hash_of(const node_call *n)
{
    uint64_t hash = mix(14695981039346656037u, (int64_t)n->node->op);
    bool attention = sl_ops[n->node->op].rate == SL_CLASS_ATTENTION;
    hash = mix(hash, attention ? n->node->attrs.attention.head_width : 0);
    for (int i = 0; i < n->node->input_count; i++) {
        const sl_shape *shape = &n->graph->values[n->node->inputs[i]].shape;
        for (int k = 0; k < shape->rank; k++) hash = mix(hash, shape->dim[k]);
        hash = mix(hash, -1);
    }
    return hash;
}

/* Whether the same was timed before; if not, it is now. */
static bool is_seen(survey *s, const node_call *n)
{
    uint64_t hash = hash_of(n);
    for (int i = 0; i < s->seen_count; i++)
        if (s->seen[i] == hash) return true;
    if (s->seen_count < MOST_SEEN) s->seen[s->seen_count++] = hash;
    return false;
}

static double work_of(sl_op op, sl_cost cost)
{
    return sl_is_matrix_op(op) ? cost.flops : cost.bytes;
}

/* Seconds by the general rates. */
static double expect(const survey *s, sl_op op, sl_cost cost)
{
    const sl_machine *m = s->machine;
    return sl_is_matrix_op(op) ? cost.flops / sl_machine_gemm_flops(m, s->type != SLUICE_F32)
                               : cost.bytes / m->device_bytes_per_second;
}

/* Whether a node is worth its time. All ranks say the same. */
static bool is_wanted(sl_bench *b, survey *s, node_call *n, sl_cost cost, double work)
{
    double expected = expect(s, n->node->op, cost);
    if (work <= 0 || sl_node_type(n->graph, n->node) != s->type || !b->backend->supports(n->node->op)) return false;
    if (!knows_ids(b, n)) return false;
    if (b->scale.node_seconds > 0 && expected > b->scale.node_seconds) return false;
    size_node(b, n);
    return sl_bench_make_room(b, SL_TIER_DEVICE, n->read, n->written);
}

/* Products that a softmax follows. Of large operands it is 1 for one class and 0 for the others, and so are most gradients:
 * products of zeros draw less power, and a GPU's clock stays higher than it does in training. */
static bool reads_small(const sl_bench *b, const sl_node *node)
{
    return b->scale.discrete && node->op == SL_OP_LINEAR_CROSS_ENTROPY;
}

static sluice_status time_node(sl_bench *b, node_call *n, double work, double times, survey *s, double *seconds)
{
    b->label = sl_ops[n->node->op].name;
    b->label_work = work;
    b->sustained = s->sustained && sl_is_matrix_op(n->node->op);
    SL_TRY(upload_ids(b, n));
    if (reads_small(b, n->node)) SL_TRY(sl_bench_fill(b, SL_TIER_DEVICE, SL_BENCH_SMALL));
    SL_TRY(sl_bench_time(b, prepare_node, run_node, n, seconds));
    if (reads_small(b, n->node)) SL_TRY(sl_bench_fill(b, SL_TIER_DEVICE, SL_BENCH_PLAIN));
    b->sustained = false;
    return sl_samples_add(&s->samples[n->node->op], work, *seconds, times);
}

/* How many nodes of the graph have the same kernel. */
static double alike(const sluice_graph *g, const node_call *n)
{
    const uint64_t hash = hash_of(n);
    int count = 0;
    for (int i = 0; i < g->forward_count + g->backward_count; i++)
        count += g->nodes[i].op == n->node->op && hash_of(&(node_call){ .graph = g, .node = &g->nodes[i] }) == hash;
    return count;
}

static sluice_status time_nodes(sl_bench *b, const sluice_graph *g, survey *s)
{
    for (int i = 0; i < g->forward_count + g->backward_count; i++) {
        node_call n = { .graph = g, .node = &g->nodes[i] };
        double seconds;
        bool late;
        if (sl_ops[n.node->op].view || sl_ops[n.node->op].cost == NULL) continue;
        if (s->fills && s->has[n.node->op]) continue;
        sl_cost cost = sl_ops[n.node->op].cost(g, n.node);
        double work = work_of(n.node->op, cost);
        if (!is_wanted(b, s, &n, cost, work) || is_seen(s, &n)) continue;
        SL_TRY(sl_bench_late(b, &late));
        if (!late) SL_TRY(time_node(b, &n, work, alike(g, &n), s, &seconds));
    }
    return SLUICE_OK;
}

static sluice_status time_model(sl_bench *b, const sl_model_options *o, survey *s)
{
    sluice_graph *g;
    sl_model_info info;
    for (int op = 0; op < SL_OP_COUNT; op++) s->has[op] = s->samples[op].count > 0;
    SL_TRY(sluice_graph_create(&g));
    sluice_status st = sl_model_build(g, o, &info);
    if (st == SLUICE_OK) st = sl_graph_finish(g);
    if (st == SLUICE_OK) st = sl_graph_lower(g, s->type, s->type);
    if (st == SLUICE_OK) st = sl_graph_differentiate(g);
    if (st == SLUICE_OK) st = time_nodes(b, g, s);
    sluice_graph_destroy(g);
    return st;
}

/* ---- the nodes of a graph that is to be trained ---- */

/* A kernel of the graph: how many nodes have it, what they are all expected to take, and what one took by itself. */
typedef struct own_kernel {
    int node, times;
    uint64_t hash;
    double work, expected, seconds;
} own_kernel;

static int compare_expected(const void *a, const void *b)
{
    const own_kernel *x = a, *y = b;
    if (x->expected != y->expected) return x->expected < y->expected ? 1 : -1;
    return x->node - y->node;
}

static bool is_kernel(const sl_bench *b, const node_call *n)
{
    return !sl_ops[n->node->op].view && sl_ops[n->node->op].cost != NULL && knows_ids(b, n);
}

/* Each kernel once, those first that the graph spends most time in: the time for all may be too short. */
static int list_kernels(sl_bench *b, const sluice_graph *g, survey *s, own_kernel *out)
{
    int count = 0;
    for (int i = 0; i < g->forward_count + g->backward_count; i++) {
        node_call n = { .graph = g, .node = &g->nodes[i] };
        if (!is_kernel(b, &n)) continue;
        sl_cost cost = sl_ops[n.node->op].cost(g, n.node);
        double work = work_of(n.node->op, cost), expected = expect(s, n.node->op, cost);
        uint64_t hash = hash_of(&n);
        int k = 0;
        while (k < count && out[k].hash != hash) k++;
        if (k < count) {
            out[k].expected += expected;
            out[k].times++;
        } else if (is_wanted(b, s, &n, cost, work)) {
            out[count++] = (own_kernel){ i, 1, hash, work, expected, 0 };
        }
    }
    qsort(out, (size_t)count, sizeof *out, compare_expected);
    return count;
}

static sluice_status time_list(sl_bench *b, const sluice_graph *g, own_kernel *list, int count, survey *s)
{
    for (int k = 0; k < count; k++) {
        node_call n = { .graph = g, .node = &g->nodes[list[k].node] };
        bool late;
        SL_TRY(sl_bench_late(b, &late));
        if (late) continue;
        size_node(b, &n);
        SL_TRY(time_node(b, &n, list[k].work, list[k].times, s, &list[k].seconds));
    }
    return SLUICE_OK;
}

/* ---- the same kernels one after the other, as in a step ----
 *
 * Timed alone for some milliseconds a product runs at a clock that a GPU does not keep up: in a step, products follow each
 * other for as long as it takes, and how much power the kernels between them draw decides how far the clock goes down. So
 * those of the graph are run in a mixture, each in proportion to its nodes, until that has settled. It takes longer than the sum
 * of them alone: in part by the clock, which a step has as well, and in part because no operand is in the caches, as some are in
 * a step. */

/* One kernel of a mixture. */
typedef struct mixed_kernel {
    node_call call;
    int runs; /* in a pass */
} mixed_kernel;

typedef struct mixture {
    mixed_kernel *kernels; /* owned */
    int count;
    int rounds;             /* of a pass: the most runs of a kernel */
    double alone, products; /* seconds that a pass, and its products, take by what each takes alone */
} mixture;

/* Each kernel at least once, so that a pass takes about `seconds`. Without those that were not timed, and those that read ids, of
 * which each has its own. */
static sluice_status make_mixture(sl_bench *b, const sluice_graph *g, const own_kernel *list, int count, double seconds,
                                  mixture *m)
{
    double all = 0;
    *m = (mixture){ sl_alloc_array((size_t)count + 1, sizeof *m->kernels, "kernels to run in turn"), 0, 1, 0, 0 };
    if (m->kernels == NULL) return SLUICE_ERR_NO_MEMORY;
    for (int k = 0; k < count; k++) all += list[k].times * list[k].seconds;
    for (int k = 0; k < count; k++) {
        mixed_kernel *one = &m->kernels[m->count];
        one->call = (node_call){ .graph = g, .node = &g->nodes[list[k].node] };
        if (list[k].seconds <= 0 || ids_at(&one->call, one->call.node->input_count) > 0) continue;
        size_node(b, &one->call);
        one->runs = (int)fmax(1, list[k].times * fmin(1, seconds / all));
        if (one->runs > m->rounds) m->rounds = one->runs;
        m->alone += one->runs * list[k].seconds;
        if (sl_is_matrix_op(one->call.node->op)) m->products += one->runs * list[k].seconds;
        m->count++;
    }
    return SLUICE_OK;
}

/* Queues a pass. Kernels take turns: the runs of each are spread evenly over it. */
static sluice_status run_pass(sl_bench *b, mixture *m)
{
    for (int r = 0; r < m->rounds; r++)
        for (mixed_kernel *k = m->kernels; k < m->kernels + m->count; k++) {
            if ((r + 1) * k->runs / m->rounds == r * k->runs / m->rounds) continue;
            SL_TRY(prepare_node(b, &k->call));
            SL_TRY(run_node(b, &k->call));
        }
    return b->backend->synchronize(b->device);
}

/* Passes for so many seconds; what one took. */
static sluice_status time_passes(sl_bench *b, mixture *m, double seconds, double *each)
{
    const double start = sl_now();
    int passes = 0;
    do {
        SL_TRY(run_pass(b, m));
        passes++;
    } while (sl_now() - start < seconds);
    *each = (sl_now() - start) / passes;
    return SLUICE_OK;
}

/* What products take longer among the other kernels than alone, as a factor. Not where they are so few that what the others lose
 * would count as theirs. */
static sluice_status sustained_factor(sl_bench *b, const sluice_graph *g, const own_kernel *list, int count,
                                      double *factor)
{
    const double seconds = b->scale.mixed_seconds;
    mixture m;
    double each;
    *factor = 1;
    if (seconds <= 0) return SLUICE_OK;
    b->label = "all kernels in turn";
    sl_bench_progress_start(b);
    sluice_status st = make_mixture(b, g, list, count, seconds / MIXED_PASSES, &m);
    const bool says = st == SLUICE_OK && m.products > LEAST_PRODUCTS * m.alone;
    if (says) st = time_passes(b, &m, seconds, &each); /* until the clock has settled */
    if (says && st == SLUICE_OK) st = time_passes(b, &m, seconds, &each);
    if (says && st == SLUICE_OK)
        *factor = fmin(fmax(1, 1 + CLOCK_SHARE * (each - m.alone) / m.products), MOST_SUSTAINED);
    sl_free(m.kernels);
    sl_bench_progress_done(b);
    return st;
}

/* Products of the graph take what they take in a step. */
static sluice_status sustain(sl_bench *b, const sluice_graph *g, const own_kernel *list, int count, survey *s)
{
    double factor;
    SL_TRY(sustained_factor(b, g, list, count, &factor));
    for (int op = 0; op < SL_OP_COUNT; op++)
        for (int i = 0; sl_is_matrix_op((sl_op)op) && i < s->samples[op].count; i++)
            s->samples[op].samples[i].seconds *= factor;
    return SLUICE_OK;
}

/* A GPU that was idle runs at a low clock for some milliseconds: what is timed first must not count that. */
static sluice_status warm_up(sl_bench *b, const sluice_graph *g, const own_kernel *first)
{
    node_call n = { .graph = g, .node = &g->nodes[first->node] };
    size_node(b, &n);
    SL_TRY(upload_ids(b, &n));
    for (const double start = sl_now(); sl_now() - start < WARM_SECONDS;) {
        SL_TRY(prepare_node(b, &n));
        SL_TRY(run_node(b, &n));
        SL_TRY(b->backend->synchronize(b->device));
    }
    return SLUICE_OK;
}

static sluice_status time_kernels(sl_bench *b, const sluice_graph *g, own_kernel *list, survey *s)
{
    const int count = list_kernels(b, g, s, list);
    if (count > 0 && b->scale.mixed_seconds > 0) SL_TRY(warm_up(b, g, &list[0]));
    SL_TRY(time_list(b, g, list, count, s));
    return sustain(b, g, list, count, s);
}

static sluice_status time_graph(sl_bench *b, survey *s)
{
    const sluice_graph *g = b->scale.graph;
    const int group = s->type == SLUICE_F32 ? SL_BENCH_F32 : SL_BENCH_16BIT;
    own_kernel *list = sl_alloc_array((size_t)g->node_count + 1, sizeof *list, "kernels to measure");
    if (list == NULL) return SLUICE_ERR_NO_MEMORY;
    sl_bench_begin(b, s->type == SLUICE_F32 ? "the model's kernels in f32" : "the model's kernels in 16 bits",
                   b->scale.group_seconds[group]);
    sluice_status st = time_kernels(b, g, list, s);
    sl_free(list);
    if (st == SLUICE_OK) sl_bench_end(b);
    return st;
}

void sl_bench_fit_graph(sl_bench *b)
{
    const sluice_graph *g = b->scale.graph;
    uint64_t largest = 0, all = 0;
    for (int i = 0; i < g->forward_count + g->backward_count; i++) {
        node_call n = { .graph = g, .node = &g->nodes[i] };
        if (!is_kernel(b, &n)) continue;
        size_node(b, &n);
        all += n.written;
        const uint64_t larger = n.read > n.written ? n.read : n.written;
        if (larger > largest) largest = larger;
    }
    /* as much as a step walks through, where the caches may hold that, and room for the largest call twice */
    uint64_t region = b->scale.region[SL_TIER_DEVICE], least = SL_BENCH_LEAST_REGION(b->scale.discrete);
    if (all < region) region = all;
    if (2 * largest > region) region = 2 * largest;
    b->scale.region[SL_TIER_DEVICE] = sl_align_up(region > least ? region : least, SL_BENCH_CHUNK);
}

/* Of each kernel once: a model with more layers of the same kind has the same ones. */
uint64_t sl_bench_graph_hash(const sluice_graph *g)
{
    survey kernels = { .type = g->precision };
    uint64_t hash = mix(14695981039346656037u, (int64_t)g->precision);
    for (int i = 0; i < g->forward_count + g->backward_count; i++) {
        const node_call n = { .graph = g, .node = &g->nodes[i] };
        if (!is_seen(&kernels, &n)) hash = mix(hash, (int64_t)hash_of(&n));
    }
    return hash;
}

/* ---- which models ---- */

/* Models that would take longer than this are skipped: on a slow CPU the smaller ones say enough. */
#define MODEL_SECONDS 3.0

/* Rate of the models of a type timed so far, to tell how long the next one will take. */
typedef struct pace {
    double work, seconds;
} pace;

/* Multiply-adds of a model's GEMMs, in any unit. */
static double model_work(const sl_model_options *o)
{
    int64_t width = o->width > 0 ? o->width : o->features, context = o->context > 0 ? o->context : 1;
    double per_row = (double)(width * width) * (o->layers > 0 ? 12 : 2);
    return per_row * (double)(o->batch * context);
}

static sluice_status time_at_pace(sl_bench *b, const sl_model_options *o, pace *p, survey *s)
{
    double work = model_work(o), start = sl_now();
    if (p->work > 0 && work / p->work * p->seconds > MODEL_SECONDS) return SLUICE_OK;
    SL_TRY(time_model(b, o, s));
    *p = (pace){ work, sl_now() - start };
    return b->ranks > 1 ? b->comm->ops->broadcast(b->comm, "pace", 0, p, sizeof *p) : SLUICE_OK;
}

/* The models of a type share its time. */
static sluice_status time_as_group(sl_bench *b, const sl_model_options *o, double end, pace *p, survey *s)
{
    char name[64]; /* "bf16: llama 8x2048, width 3072" */
    double left = end - sl_now();
    int64_t width = o->width > 0 ? o->width : o->features, context = o->context > 0 ? o->context : 1;
    const char *type = s->type == SLUICE_F32 ? "f32" : "bf16";
    if (o->image.height > 0)
        snprintf(name, sizeof name, "%s: %s %lld of %lldx%lld", type, o->type, (long long)o->batch,
                 (long long)o->image.height, (long long)o->image.width);
    else
        snprintf(name, sizeof name, "%s: %s %lldx%lld, width %lld", type, o->type, (long long)o->batch,
                 (long long)context, (long long)width);
    sl_bench_begin(b, name, end <= 0 ? 0 : left > 0 ? left : 1e-9);
    SL_TRY(time_at_pace(b, o, p, s));
    sl_bench_end(b);
    return SLUICE_OK;
}

static sluice_status time_each_model(sl_bench *b, const sl_model_options *models, int count, double end, survey *s)
{
    const sl_bench_scale *scale = &b->scale;
    pace p = { 0, 0 };
    for (int i = 0; i < count; i++) {
        const bool first = i == 0 || strcmp(models[i].type, models[i - 1].type) != 0;
        s->sustained = !s->fills && s->type != SLUICE_F32 && i < scale->sustained_models;
        if (first || scale->node_seconds > 0) p = (pace){ 0, 0 };
        SL_TRY(scale->discrete ? time_as_group(b, &models[i], end, &p, s) : time_at_pace(b, &models[i], &p, s));
    }
    return SLUICE_OK;
}

static sluice_status time_models(sl_bench *b, survey *s)
{
    const sl_bench_scale *scale = &b->scale;
    const bool wide = s->type == SLUICE_F32, one_group = !scale->discrete;
    double limit = scale->group_seconds[wide ? SL_BENCH_F32 : SL_BENCH_16BIT];
    double end = limit > 0 ? sl_now() + limit : 0;
    const sl_model_options *models = wide ? scale->wide_models : scale->models;
    if (one_group) sl_bench_begin(b, wide ? "kernels in f32" : "kernels in bf16", limit);
    SL_TRY(time_each_model(b, models, wide ? scale->wide_model_count : scale->model_count, end, s));
    s->fills = true;
    SL_TRY(time_each_model(b, scale->others, scale->other_count, end, s));
    if (one_group) sl_bench_end(b);
    return SLUICE_OK;
}

/* Of all points; 0 where there are none. */
static double best_rate(const sl_rates *r)
{
    double best = 0;
    for (int i = 0; i < r->count; i++)
        if (r->points[i].work / r->points[i].seconds > best) best = r->points[i].work / r->points[i].seconds;
    return best;
}

static void take_rate(double *rate, double measured)
{
    if (measured > 0) *rate = measured;
}

/* Bytes a second of the largest call of an op that streams, the best of several: of some a model has only small
 * ones. */
static double streaming_rate(const sl_rates kernels[SL_OP_COUNT])
{
    static const sl_op streaming[] = { SL_OP_ADD, SL_OP_SWIGLU, SL_OP_RMS_NORM, SL_OP_LAYER_NORM };
    double best = 0;
    for (size_t i = 0; i < sizeof streaming / sizeof streaming[0]; i++) {
        const sl_rates *r = &kernels[streaming[i]];
        double rate = r->count > 0 ? r->points[r->count - 1].work / r->points[r->count - 1].seconds : 0;
        if (rate > best) best = rate;
    }
    return best;
}

/* The general rates, for ops without points: the best GEMM, and the best streaming. */
static void set_general_rates(sl_machine *m)
{
    double narrow = m->kernels_take_turns ? 0 : streaming_rate(m->kernels[SL_RATE_16BIT]);
    take_rate(&m->gemm_flops, best_rate(&m->kernels[SL_RATE_F32][SL_OP_LINEAR]));
    take_rate(&m->gemm_16bit_flops, best_rate(&m->kernels[SL_RATE_16BIT][SL_OP_LINEAR]));
    m->vector_flops = m->kernels_take_turns ? m->gemm_flops / 8 : m->gemm_flops;
    take_rate(&m->device_bytes_per_second, narrow > 0 ? narrow : streaming_rate(m->kernels[SL_RATE_F32]));
}

static sluice_status measure_type(sl_bench *b, sluice_dtype type, const sl_machine *m, sl_rates rates[SL_OP_COUNT])
{
    survey s = { .type = type, .machine = m };
    sluice_status st = b->scale.graph != NULL ? time_graph(b, &s) : time_models(b, &s);
    for (int op = 0; op < SL_OP_COUNT; op++) {
        if (st == SLUICE_OK) st = sl_samples_to_rates(&s.samples[op], &rates[op]);
        sl_samples_free(&s.samples[op]);
    }
    return st;
}

sluice_status sl_measure_kernels(sl_bench *b, sl_machine *m)
{
    const sluice_dtype narrow = b->scale.graph != NULL ? b->scale.graph->precision : SLUICE_BF16;
    SL_TRY(sl_bench_fill(b, SL_TIER_DEVICE, SL_BENCH_PLAIN));
    if (narrow != SLUICE_F32) SL_TRY(measure_type(b, narrow, m, m->kernels[SL_RATE_16BIT]));
    SL_TRY(sl_bench_fill(b, SL_TIER_DEVICE, SL_BENCH_PLAIN));
    SL_TRY(measure_type(b, SLUICE_F32, m, m->kernels[SL_RATE_F32]));
    set_general_rates(m);
    return SLUICE_OK;
}
