/* engine.c: creates everything a training run needs, in pipeline order, and drives the plan's segments. */
#include "train/engine.h"

#include <math.h>
#include <string.h>

#include "core/alloc.h"
#include "core/bytes.h"
#include "core/rng.h"
#include "core/sha256.h"
#include "core/thread.h"

/* Room for what is allocated after planning: the executor, file names, JSON, a checkpoint's staging buffer. */
#define LATER_BYTES (SL_CHECKPOINT_CHUNK + ((uint64_t)8 << 20))

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

#define INIT_CHUNK 16384

static sluice_status init_parameter(sluice_engine *e, int index, float *chunk)
{
    const sl_parameter *q = &e->graph->parameters[index];
    sl_rng rng = sl_rng_stream(e->context.seed, SL_RNG_INIT, name_hash(q->name), 0, 0);
    for (int64_t first = 0; first < q->count; first += INIT_CHUNK) {
        int64_t n = q->count - first < INIT_CHUNK ? q->count - first : INIT_CHUNK;
        for (int64_t i = 0; i < n; i++) chunk[i] = initial_value(&q->init, &rng, (uint64_t)(first + i));
        SL_TRY(sl_exec_write_parameter(e->exec, index, first, n, chunk));
    }
    return SLUICE_OK;
}

/* State starts as zero. Arenas are zero too, except under guard, where they are poisoned. */
static sluice_status zero_state(sluice_engine *e, int index, const float *zeros)
{
    const sl_parameter *q = &e->graph->parameters[index];
    for (int k = 0; q->trainable && k < e->slots.count; k++) {
        sl_span span = sl_plan_state_span(e->plan, index, k);
        for (uint64_t at = 0; at < span.bytes;) {
            uint64_t n = span.bytes - at < INIT_CHUNK * sizeof(float) ? span.bytes - at : INIT_CHUNK * sizeof(float);
            SL_TRY(sl_exec_write(e->exec, (sl_span){ span.tier, span.offset + at, n }, zeros));
            at += n;
        }
    }
    return SLUICE_OK;
}

static sluice_status init_tensors(sluice_engine *e)
{
    float *chunk = sl_alloc_array(2 * INIT_CHUNK, sizeof *chunk, "first values");
    if (chunk == NULL) return SLUICE_ERR_NO_MEMORY;
    sluice_status st = SLUICE_OK;
    for (int i = 0; st == SLUICE_OK && i < e->graph->parameter_count; i++) {
        st = init_parameter(e, i, chunk);
        if (st == SLUICE_OK) st = zero_state(e, i, chunk + INIT_CHUNK);
    }
    sl_free(chunk);
    return st;
}

/* ---- creation ---- */

static sluice_status build_graph(sluice_engine *e, const sl_engine_options *o)
{
    SL_TRY(sl_graph_finish(e->graph));
    if (o->training && e->graph->loss < 0)
        return sl_fail(SLUICE_ERR_USAGE, "the graph has no loss: call sluice_set_loss before sluice_engine_create");
    if (o->training) {
        SL_TRY(sl_graph_differentiate(e->graph));
        SL_TRY(sl_optim_create(e->graph, &o->optim, &e->optim));
        e->slots.count = sl_optim_slots(e->optim);
        for (int k = 0; k < e->slots.count; k++) e->slots.names[k] = sl_optim_slot_name(e->optim, k);
    }
    return sl_graph_verify(e->graph);
}

static void estimate_overhead(const sl_engine_options *o, int threads, sl_plan_options *p)
{
    uint64_t resident = sl_memory_resident();
    p->overhead_of[1] = o->data_bytes;
    p->overhead_of[0] = (resident > o->data_bytes ? resident - o->data_bytes : 0) + LATER_BYTES + o->extra_bytes;
    p->overhead_of[2] = sl_pool_overhead_bytes(threads);
    p->overhead_bytes = p->overhead_of[0] + p->overhead_of[1] + p->overhead_of[2];
}

static sluice_status make_plan(sluice_engine *e, const sl_engine_options *o, int threads)
{
    sl_plan_options p = o->plan;
    p.training = o->training;
    p.state_slots = e->slots.count;
    p.update_bytes_per_element = e->optim != NULL ? sl_optim_bytes_per_element(e->optim) : 0;
    estimate_overhead(o, threads, &p);
    sl_machine_budgets(&p, sl_memory_available());
    sl_machine_describe(e->isa, threads, &e->machine);
    double start = sl_now();
    SL_TRY(sl_plan_create(e->graph, &e->machine, &p, &e->plan));
    e->plan_seconds = sl_now() - start;
    return SLUICE_OK;
}

static sluice_status open_executor(sluice_engine *e, const sl_engine_options *o, int threads)
{
    double start = sl_now();
    sl_exec_options x = { .backend = o->backend,
                          .device = { .threads = threads, .isa = e->isa, .guard = o->guard, .log = o->log } };
    SL_TRY(sl_comm_self_open(&e->comm));
    x.comm = e->comm;
    SL_TRY(sl_exec_create(e->plan, &x, &e->exec));
    e->reserve_seconds = sl_now() - start;
    return SLUICE_OK;
}

static sluice_status create(sluice_engine *e, const sl_engine_options *o)
{
    int threads = o->threads > 0 ? o->threads : sl_cpu_count();
    SL_TRY(sl_machine_isa(&e->isa));
    SL_TRY(build_graph(e, o));
    SL_TRY(make_plan(e, o, threads));
    SL_TRY(open_executor(e, o, threads));
    return init_tensors(e);
}

sluice_status sl_engine_create(sluice_graph *g, const sl_engine_options *o, sluice_engine **out)
{
    sluice_engine *e = sl_alloc(sizeof *e, "engine");
    if (e == NULL) return SLUICE_ERR_NO_MEMORY;
    e->graph = g;
    e->log = o->log;
    e->computes = o->backend != &sl_null_backend;
    e->lr = o->optim.optimizer.lr;
    e->momentum = -1;
    e->context = (sl_run_context){ .seed = o->seed, .loss_scale = 1, .clip = o->optim.clip };
    e->context.seed_gradient = (float)(1.0 / (o->plan.accumulation > 0 ? o->plan.accumulation : 1));
    sluice_status st = create(e, o);
    if (st != SLUICE_OK) {
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
    if (e->comm != NULL) e->comm->ops->close(e->comm);
    sl_plan_destroy(e->plan);
    sl_optim_destroy(e->optim);
    sl_free(e);
}

/* ---- running ---- */

int sl_engine_inputs(const sluice_engine *e, int *values, int capacity)
{
    int n = 0;
    for (int v = 0; v < e->graph->value_count; v++) {
        if (e->graph->values[v].kind != SL_VALUE_INPUT) continue;
        if (n < capacity) values[n] = v;
        n++;
    }
    return n;
}

static sluice_status set_inputs(sluice_engine *e, const sluice_batch *batch)
{
    int inputs = sl_engine_inputs(e, NULL, 0), given = 0;
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
        given++;
    }
    if (given != inputs) return sl_fail(SLUICE_ERR_USAGE, "the batch has %d of the graph's %d inputs", given, inputs);
    return SLUICE_OK;
}

static sluice_status read_scalar(sluice_engine *e, int buffer, double *out)
{
    float value = 0;
    if (buffer < 0) return sl_fail(SLUICE_ERR_USAGE, "the graph has no loss");
    SL_TRY(sl_exec_read(e->exec, sl_plan_span(e->plan, (sl_piece){ buffer, 0, sizeof value }), &value));
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

/* Work that fails halfway leaves the arenas in an unknown state. */
static sluice_status run_segment(sluice_engine *e, sl_segment_kind segment)
{
    sluice_status st = sl_exec_run(e->exec, segment, &e->context);
    if (st != SLUICE_OK) e->phase = SL_ENGINE_BROKEN;
    if (e->segment_runs[segment]++ > 0) e->segment_seconds[segment] += sl_exec_seconds(e->exec, segment);
    return st;
}

sluice_status sluice_forward(sluice_engine *e, const sluice_batch *batch, double *loss)
{
    SL_TRY(check_phase(e, SL_ENGINE_READY, "sluice_forward"));
    if (e->micro >= e->plan->options.accumulation)
        return sl_fail(SLUICE_ERR_USAGE, "sluice_forward: all %d micro-batches of the step are done; call sluice_step",
                       e->micro);
    SL_TRY(set_inputs(e, batch));
    e->context.step = e->step + 1;
    e->context.micro = (uint32_t)e->micro;
    e->context.training = true;
    SL_TRY(run_segment(e, SL_SEGMENT_FORWARD));
    SL_TRY(read_scalar(e, e->plan->loss_buffer, loss));
    e->phase = SL_ENGINE_FORWARD_DONE;
    return SLUICE_OK;
}

sluice_status sluice_backward(sluice_engine *e)
{
    SL_TRY(check_phase(e, SL_ENGINE_FORWARD_DONE, "sluice_backward"));
    SL_TRY(run_segment(e, SL_SEGMENT_BACKWARD));
    e->phase = SL_ENGINE_READY;
    e->micro++;
    return SLUICE_OK;
}

/* The first layer, in graph order, with a gradient that is not finite. */
static const char *bad_layer(sluice_engine *e)
{
    for (int i = 0; i < e->graph->layer_count; i++) {
        const sl_layer_place *place = &e->plan->layers[i];
        if (place->gradient < 0) continue;
        int64_t leaves = sl_ceil_div(e->graph->layers[i].element_count, SL_CUT_ELEMENTS);
        for (int64_t k = 0; k < leaves; k++) {
            double leaf = 0;
            sl_piece q = { e->plan->leaves_buffer, (uint64_t)(place->leaf_first + k) * sizeof leaf, sizeof leaf };
            if (sl_exec_read(e->exec, sl_plan_span(e->plan, q), &leaf) == SLUICE_OK && !isfinite(leaf))
                return e->graph->layers[i].name;
        }
    }
    return "unknown";
}

sluice_status sluice_step(sluice_engine *e)
{
    sl_norm_result norm;
    SL_TRY(check_phase(e, SL_ENGINE_READY, "sluice_step"));
    if (e->micro != e->plan->options.accumulation)
        return sl_fail(SLUICE_ERR_USAGE, "sluice_step: %d of %d micro-batches are done", e->micro,
                       e->plan->options.accumulation);
    e->context.step = e->step + 1;
    sl_optim_scalars(e->optim, e->applied + 1, e->lr, e->momentum, &e->context);
    SL_TRY(run_segment(e, SL_SEGMENT_UPDATE));
    SL_TRY(sl_exec_read(e->exec, sl_plan_span(e->plan, (sl_piece){ e->plan->norm_buffer, 0, sizeof norm }), &norm));
    e->micro = 0;
    e->norm = norm.norm;
    if (e->computes && !norm.finite)
        return sl_fail(SLUICE_ERR_NUMBERS,
                       "step %llu: the gradient of layer \"%s\" is not finite; the weights were left as they were. "
                       "Lower the learning rate, "
                       "lower gradient_clipping, or look at the data",
                       (unsigned long long)(e->step + 1), bad_layer(e));
    e->step++;
    e->applied++;
    return SLUICE_OK;
}

sluice_status sluice_train_step(sluice_engine *e, const sluice_batch *batches, double *loss)
{
    double sum = 0, one = 0;
    int count = e->plan->options.accumulation;
    for (int i = 0; i < count; i++) {
        SL_TRY(sluice_forward(e, &batches[i], &one));
        SL_TRY(sluice_backward(e));
        sum += one;
    }
    SL_TRY(sluice_step(e));
    *loss = sum / count;
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
    SL_TRY(set_inputs(e, batch));
    e->context.training = false;
    return run_segment(e, SL_SEGMENT_EVALUATE);
}

sluice_status sluice_evaluate(sluice_engine *e, const sluice_batch *batch, double *loss)
{
    SL_TRY(run_evaluation(e, batch, "sluice_evaluate"));
    return read_scalar(e, e->plan->eval_loss_buffer, loss);
}

sluice_status sluice_predict(sluice_engine *e, const sluice_batch *batch, float *out, size_t out_bytes)
{
    int buffer = e->plan->output_buffer;
    if (buffer < 0) return sl_fail(SLUICE_ERR_USAGE, "sluice_predict: the graph has no output; call sluice_set_output");
    uint64_t bytes = sl_value_bytes(&e->graph->values[e->graph->output]);
    if (bytes != out_bytes)
        return sl_fail(SLUICE_ERR_USAGE, "sluice_predict: the output has %llu bytes, room for %zu was given",
                       (unsigned long long)bytes, out_bytes);
    SL_TRY(run_evaluation(e, batch, "sluice_predict"));
    return sl_exec_read(e->exec, sl_plan_span(e->plan, (sl_piece){ buffer, 0, bytes }), out);
}

/* ---- state ---- */

void sl_graph_identity(const sluice_graph *g, char sha256[65])
{
    sl_sha256 h;
    uint8_t digest[32];
    sl_sha256_init(&h);
    for (int i = 0; i < g->parameter_count; i++) {
        const sl_parameter *q = &g->parameters[i];
        const sl_shape *s = &g->values[q->value].shape;
        sl_sha256_update(&h, q->name, strlen(q->name) + 1);
        sl_sha256_update(&h, s->dim, (size_t)s->rank * sizeof s->dim[0]);
    }
    for (int i = 0; i < g->forward_count; i++) {
        const char *op = sl_ops[g->nodes[i].op].name;
        sl_sha256_update(&h, op, strlen(op) + 1);
        sl_sha256_update(&h, g->nodes[i].inputs, (size_t)g->nodes[i].input_count * sizeof(int));
        if (g->nodes[i].op == SL_OP_ATTENTION) {
            int heads[2] = { g->nodes[i].attrs.attention.heads, g->nodes[i].attrs.attention.kv_heads };
            sl_sha256_update(&h, heads, sizeof heads);
        }
    }
    sl_sha256_final(&h, digest);
    sl_sha256_hex(digest, sha256);
}

void sl_engine_meta(const sluice_engine *e, sl_checkpoint_meta *meta)
{
    *meta = (sl_checkpoint_meta){ .step = e->step,
                                  .applied_steps = e->applied,
                                  .seed = e->context.seed,
                                  .data_position = e->step * (uint64_t)e->plan->options.accumulation,
                                  .loss_scale = e->context.loss_scale };
    sl_graph_identity(e->graph, meta->model_sha256);
    snprintf(meta->kernels, sizeof meta->kernels, "cpu-%s-1", sl_isa_name(e->isa));
}

void sl_engine_restore(sluice_engine *e, const sl_checkpoint_meta *meta)
{
    e->step = meta->step;
    e->applied = meta->applied_steps;
    e->context.seed = meta->seed;
    e->context.loss_scale = meta->loss_scale;
    e->micro = 0;
    e->phase = SL_ENGINE_READY;
}
