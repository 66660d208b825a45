/* job.c: from settings to a ready engine. */
#include "train/job.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "ir/tile.h"
#include "train/run.h"

void sluice_job_options_init(sluice_job_options *o)
{
    *o = (sluice_job_options){ .size = sizeof *o, .tokens = 200, .temperature = 0.8 };
}

/* ---- data ---- */

static int64_t vocabulary_size(const sl_settings *s)
{
    char *end;
    errno = 0;
    long long n = strtoll(s->model.vocabulary, &end, 10);
    return errno == 0 && *end == '\0' && end != s->model.vocabulary && n > 0 ? n : -1;
}

static sluice_status text_unit(const sl_settings *s, sl_text_unit *out)
{
    static const sl_text_unit by_choice[] = { SL_TEXT_BYTES, SL_TEXT_BYTES, SL_TEXT_CHARACTERS };
    *out = by_choice[s->data.unit];
    if (s->data.unit != 0) return SLUICE_OK;
    if (strcmp(s->model.vocabulary, "characters") == 0) *out = SL_TEXT_CHARACTERS;
    return SLUICE_OK;
}

static sluice_status open_text(sl_job *j, uint64_t seed)
{
    const sl_settings *s = &j->settings;
    sl_text_unit unit;
    if (s->data.path == NULL || s->data.path[0] == '\0')
        return sl_fail(SLUICE_ERR_USAGE,
                       "data.path is missing: name the text file to learn from (or --set data.path=FILE)");
    SL_TRY(text_unit(s, &unit));
    return sl_data_text(s->data.path, unit, s->model.context, s->data.validation, s->data.shuffle, seed, &j->data);
}

static sluice_status open_data(sl_job *j)
{
    const sl_settings *s = &j->settings;
    uint64_t seed = (uint64_t)(s->data.seed >= 0 ? s->data.seed : s->seed);
    int64_t features = s->data.features > 0 ? s->data.features : s->model.features;
    int64_t outputs = s->data.outputs > 0 ? s->data.outputs : s->model.outputs;
    if (strcmp(s->data.type, "text") == 0) return open_text(j, seed);
    if (strcmp(s->data.type, "random_tokens") == 0)
        return sl_data_random_tokens(s->data.samples, s->model.context, vocabulary_size(s), s->data.validation, seed,
                                     &j->data);
    if (strcmp(s->data.type, "regression") == 0)
        return sl_data_regression(s->data.samples, features, outputs, s->data.noise, s->data.validation, seed,
                                  &j->data);
    if (strcmp(s->data.type, "classification") == 0)
        return sl_data_classification(s->data.samples, features, outputs, s->data.validation, seed, &j->data);
    return sl_fail(SLUICE_ERR_USAGE,
                   "data.type \"%s\" is not known; there are text, random_tokens, regression, classification",
                   s->data.type);
}

/* ---- model ---- */

static sluice_status resolve_vocabulary(const sl_job *j, int64_t *out)
{
    const sl_settings *s = &j->settings;
    const sl_vocabulary *v = sl_data_text_vocabulary(j->data);
    int64_t given = vocabulary_size(s);
    *out = v != NULL ? v->size : given;
    if (given > 0 && v != NULL && given < v->size)
        return sl_fail(SLUICE_ERR_USAGE, "model.vocabulary is %lld, but the text has %d different tokens",
                       (long long)given, v->size);
    if (given > 0) *out = given;
    return SLUICE_OK;
}

static void language_options(const sl_settings *s, sl_model_options *m)
{
    m->layers = s->model.layers;
    m->heads = s->model.heads;
    m->kv_heads = s->model.kv_heads > 0 ? s->model.kv_heads : 0;
    m->width = s->model.width;
    m->feed_forward = s->model.feed_forward > 0 ? s->model.feed_forward : 0;
    m->context = s->model.context;
    m->dropout = s->model.dropout;
    m->rope_theta = s->model.rope_theta;
    m->untied = !s->model.tied;
    m->tile_bytes = s->memory.tile_bytes;
    m->lora.rank = s->lora.rank;
    m->lora.alpha = s->lora.alpha > 0 ? s->lora.alpha : 0;
    m->lora.dropout = s->lora.dropout;
    m->lora.targets = s->lora.targets.list;
    m->lora.target_count = s->lora.targets.count;
}

/* Only text that is being written needs logits; a loss is found without them. */
static sluice_status build_model(sl_job *j, sl_job_purpose purpose)
{
    static const char *activations[] = { "none", "relu", "gelu", "silu" }, *losses[] = { "mse", "cross_entropy" };
    const sl_settings *s = &j->settings;
    sl_model_options m = { .type = s->model.type,
                           .batch = purpose == SL_JOB_GENERATE ? 1 : s->micro_batch,
                           .logits = purpose == SL_JOB_GENERATE,
                           .features = s->model.features,
                           .outputs = s->model.outputs,
                           .activation = activations[s->model.activation],
                           .loss = losses[s->model.loss],
                           .bias = s->model.bias,
                           .norm_epsilon = s->model.norm_epsilon,
                           .freeze = s->freeze.list,
                           .freeze_count = s->freeze.count };
    m.hidden_count = s->model.hidden_count;
    memcpy(m.hidden, s->model.hidden_sizes, sizeof m.hidden);
    if (sl_model_reads_tokens(m.type)) {
        language_options(s, &m);
        SL_TRY(resolve_vocabulary(j, &m.vocabulary));
    }
    SL_TRY(sluice_graph_create(&j->graph));
    SL_TRY(sl_model_build(j->graph, &m, &j->info));
    SL_TRY(sl_graph_tile(j->graph, s->memory.tile_bytes));
    return sluice_graph_check(j->graph);
}

/* The model's inputs must be what the data set can fill. */
static sluice_status check_fit(const sl_job *j)
{
    bool text = sl_data_has_tokens(j->data), wants_text = j->info.tokens_per_sample > 0;
    if (text == wants_text) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_USAGE, "model.type \"%s\" %s text, but data.type is \"%s\"", j->settings.model.type,
                   wants_text ? "learns from" : "cannot read", j->settings.data.type);
}

/* ---- engine ---- */

static const double *partition_weights(const sl_settings *s)
{
    return s->zero.weight_count > 0 ? s->zero.weights : NULL;
}

static void plan_options(const sl_job *j, sl_job_purpose purpose, sl_plan_options *p)
{
    static const sluice_place places[] = { SLUICE_PLACE_DEVICE, SLUICE_PLACE_HOST, SLUICE_PLACE_HOST };
    const sl_settings *s = &j->settings;
    bool training = purpose == SL_JOB_TRAIN || purpose == SL_JOB_PLAN;
    *p = (sl_plan_options){ .budget = { s->memory.device, s->memory.host },
                            .stage = s->zero.stage,
                            .partition = (sluice_partition)s->zero.partition,
                            .partition_weights = training ? partition_weights(s) : NULL,
                            .partition_block = s->zero.partition_block > 0 ? s->zero.partition_block : 0,
                            .bucket_bytes = s->zero.bucket_bytes,
                            .keep_gathered = s->memory.keep_gathered,
                            .early_updates = s->zero.update == 0, /* auto */
                            .snapshot = training && s->checkpoint.background && s->checkpoint.path[0] != '\0',
                            .parameters = s->zero.offload_param < 0 ? SLUICE_PLACE_AUTO : places[s->zero.offload_param],
                            .state =
                                s->zero.offload_optimizer < 0 ? SLUICE_PLACE_AUTO : places[s->zero.offload_optimizer],
                            .state_ratio = s->zero.offload_optimizer_ratio,
                            .activations = (sluice_activations)s->activations.mode,
                            .offload_checkpoints = s->activations.device == 1,
                            .levels = (int)s->memory.levels,
                            .prefetch = (int)s->memory.prefetch,
                            .accumulation = training ? (int)s->accumulation : 1,
                            .evaluation = !training || j->validates };
}

static void optim_options(const sl_settings *s, sl_optim_options *o)
{
    sluice_optimizer *q = &o->optimizer;
    sluice_optimizer_init(q, (sluice_optimizer_kind)s->optimizer.type);
    q->lr = s->optimizer.lr;
    q->weight_decay = s->optimizer.weight_decay;
    q->beta1 = s->optimizer.betas[0];
    q->beta2 = s->optimizer.betas[1];
    q->epsilon = s->optimizer.eps;
    q->momentum = s->optimizer.momentum;
    q->dampening = s->optimizer.dampening;
    q->nesterov = s->optimizer.nesterov;
    q->amsgrad = s->optimizer.amsgrad;
    q->trust = s->optimizer.trust;
    q->min_trust = s->optimizer.min_trust;
    q->max_trust = s->optimizer.max_trust;
    o->clip = s->gradient_clipping;
    o->groups = s->groups;
    o->group_count = s->group_count;
}

static void precision_options(const sl_settings *s, sl_engine_options *e)
{
    static const sluice_dtype wires[] = { SLUICE_F32, SLUICE_BF16, SLUICE_F16 };
    e->precision = s->precision.type;
    e->wire = wires[s->precision.wire];
    e->states = (sluice_states)s->zero.states;
    e->check_overflow = s->precision.check_overflow;
    e->loss_scale = (sluice_loss_scale){ .fixed = s->precision.loss_scale,
                                         .initial_power = (int)s->precision.scale_power,
                                         .window = (int)s->precision.scale_window,
                                         .hysteresis = (int)s->precision.hysteresis,
                                         .consecutive = s->precision.consecutive_hysteresis,
                                         .minimum = (double)s->precision.min_loss_scale };
}

/* Bytes that evaluation and batches take from the C library; *predicts: an output is copied out. */
static uint64_t outside_bytes(sl_job *j, sl_job_purpose purpose, bool evaluates, bool *predicts)
{
    uint64_t bytes = 0;
    if (j->graph->output >= 0)
        j->prediction_bytes =
            (size_t)sl_shape_elements(&j->graph->values[j->graph->output].shape) * sizeof *j->predictions;
    *predicts = purpose == SL_JOB_GENERATE || (j->info.tokens_per_sample == 0 && evaluates);
    if (*predicts) bytes += j->prediction_bytes;
    for (int v = 0; v < j->graph->value_count; v++)
        if (j->graph->values[v].kind == SL_VALUE_INPUT) bytes += sl_value_bytes(&j->graph->values[v]);
    return bytes;
}

static int planned_ranks(const sluice_job_options *o)
{
    return o->ranks > 0 ? o->ranks : sluice_world_size(o->world);
}

static sluice_status create_engine(sl_job *j, const sluice_job_options *o, sl_job_purpose purpose)
{
    const sl_settings *s = &j->settings;
    sl_machine_description machine;
    sl_engine_options e = { .training = purpose == SL_JOB_TRAIN || purpose == SL_JOB_PLAN,
                            .plan_only = purpose == SL_JOB_PLAN,
                            .ranks = &j->ranks,
                            .data_bytes = j->data->ops->memory_bytes(j->data),
                            .seed = (uint64_t)s->seed,
                            .threads = s->threads > 0 ? (int)s->threads : 0,
                            .guard = s->guard,
                            .null_backend = s->null_backend,
                            .device = (sluice_device)s->device,
                            .tf32 = s->tf32,
                            .gpu_comm = (sl_gpu_comm)s->communication.gpu,
                            .log = j->log };
    bool predicts;
    plan_options(j, purpose, &e.plan);
    optim_options(s, &e.optim);
    precision_options(s, &e);
    if (purpose == SL_JOB_PLAN) {
        e.plan.rank_count = planned_ranks(o);
        /* as train --ranks would share this machine out; a file describes what each rank has */
        if (o->machine == NULL) j->ranks.local = e.plan.rank_count;
    }
    if (o->machine != NULL && e.training) {
        SL_TRY(sl_ranks_agree(&j->ranks, "reading the machine", sl_machine_read(o->machine, &machine)));
        e.machine = &machine;
    }
    e.extra_bytes = outside_bytes(j, purpose, e.plan.evaluation, &predicts);
    SL_TRY(sl_engine_create(j->graph, &e, &j->engine));
    SL_TRY(sl_batch_buffers_make(j->graph, &j->batch));
    if (!predicts) return SLUICE_OK;
    j->predictions = sl_alloc(j->prediction_bytes, "predictions");
    return j->predictions != NULL ? SLUICE_OK : SLUICE_ERR_NO_MEMORY;
}

/* ---- all of it ---- */

/* What rank 0 says is said once; of the others only warnings are worth a line. */
static void log_of_rank(void *user, sluice_log_level level, const char *line)
{
    const sl_job *j = user;
    if (j->log_to == NULL || (level != SLUICE_LOG_WARNING && j->ranks.rank > 0)) return;
    j->log_to(j->log_user, level, line);
}

static sluice_status compare_settings(sl_job *j)
{
    enum { TEXT_BYTES = 256 << 10 }; /* a whole configuration; more is not compared */
    if (j->ranks.count == 1) return SLUICE_OK;
    char *text = sl_alloc(TEXT_BYTES, "configuration to compare");
    FILE *memory = text != NULL ? fmemopen(text, TEXT_BYTES, "w") : NULL;
    sluice_status st = text != NULL ? SLUICE_OK : SLUICE_ERR_NO_MEMORY;
    if (text != NULL && memory == NULL) st = sl_fail(SLUICE_ERR_NO_MEMORY, "no memory to compare configurations");
    if (memory != NULL) {
        sl_config_write_lines(&j->settings, memory);
        fclose(memory);
        text[TEXT_BYTES - 1] = '\0';
    }
    st = sl_ranks_agree(&j->ranks, "configuration", st);
    if (st == SLUICE_OK) st = sl_ranks_same(&j->ranks, "configuration", text);
    sl_free(text);
    return st;
}

static sluice_status resolve(sl_job *j, const sluice_config *c, const sluice_job_options *o, sl_job_purpose purpose)
{
    const sl_log notes = { j->ranks.rank == 0 ? o->log : NULL, o->log_user, 0, 1 };
    int ranks = purpose == SL_JOB_TRAIN ? j->ranks.count : purpose == SL_JOB_PLAN ? planned_ranks(o) : 0;
    SL_TRY(sl_ranks_agree(&j->ranks, "reading the configuration", sl_config_resolve(c, ranks, &notes, &j->settings)));
    return compare_settings(j);
}

static sluice_status open_data_and_model(sl_job *j, sl_job_purpose purpose)
{
    SL_TRY(open_data(j));
    j->validates = j->data->ops->samples(j->data, SL_SPLIT_VALIDATION) > 0;
    if (purpose == SL_JOB_TRAIN) j->data->ops->identity(j->data, j->data_sha256);
    SL_TRY(build_model(j, purpose));
    return check_fit(j);
}

static sluice_status open_parts(sl_job *j, const sluice_config *c, const sluice_job_options *o, sl_job_purpose purpose)
{
    char data[80];
    SL_TRY(sl_ranks_open(purpose == SL_JOB_TRAIN ? o->world : NULL, &j->ranks));
    j->log = (sl_log){ log_of_rank, j, j->ranks.rank, j->ranks.count };
    SL_TRY(resolve(j, c, o, purpose));
    if (purpose == SL_JOB_TRAIN && o->trace != NULL)
        SL_TRY(sl_ranks_agree(&j->ranks, "opening the trace", sl_trace_prepare(o->trace, j->ranks.rank)));
    SL_TRY(sl_ranks_agree(&j->ranks, "opening the data", open_data_and_model(j, purpose)));
    snprintf(data, sizeof data, "sha256: %s\n", j->data_sha256);
    SL_TRY(sl_ranks_same(&j->ranks, "data", data));
    return create_engine(j, o, purpose);
}

sluice_status sl_job_open(sl_job *j, const sluice_config *c, const sluice_job_options *o, sl_job_purpose purpose)
{
    j->log_to = o->log;
    j->log_user = o->log_user;
    return sl_ranks_failed(&j->ranks, open_parts(j, c, o, purpose));
}

void sl_job_close(sl_job *j)
{
    sl_batch_buffers_free(&j->batch);
    sl_free(j->predictions);
    sluice_engine_destroy(j->engine);
    sluice_graph_destroy(j->graph);
    sluice_data_destroy(j->data);
    sl_ranks_close(&j->ranks);
}

sluice_status sl_job_load_weights(sl_job *j, const sluice_job_options *o)
{
    const sl_settings *s = &j->settings;
    uint64_t step = 0;
    if (o->weights != NULL) return sl_weights_load(j->engine->exec, o->weights);
    if (s->checkpoint.path[0] != '\0') SL_TRY(sl_checkpoint_load_weights(j->engine->exec, s->checkpoint.path, &step));
    if (step > 0) {
        j->engine->step = step;
        return SLUICE_OK;
    }
    if (s->save[0] != '\0' && sl_path_exists(s->save)) return sl_weights_load(j->engine->exec, s->save);
    return sl_fail(
        SLUICE_ERR_INPUT,
        "no weights to load: give --weights FILE, or a configuration whose checkpoint.path or save holds some");
}

void sl_job_pace(const sl_job *j, double peak, sl_pace *out)
{
    const sluice_engine *e = j->engine;
    double ranks = e->plan->options.rank_count;
    *out = (sl_pace){ .samples = (double)j->batch.rows * (double)sl_engine_micro_batches(e),
                      .flops = ranks * e->plan->totals.model_flops,
                      .planned_peak = sl_machine_gemm_flops(&e->machine, e->graph->precision == SLUICE_BF16) * ranks,
                      .peak = peak };
    out->tokens = out->samples * (double)j->info.tokens_per_sample;
}

void sl_job_plan_event(const sl_job *j, const sl_run_totals *predicted, const sl_pace *pace, sluice_event *event)
{
    const sl_plan *p = j->engine->plan;
    *event = (sluice_event){ .kind = SLUICE_EVENT_PLAN,
                             .ranks = p->options.rank_count,
                             .stage = p->options.stage,
                             .parameters = (uint64_t)sl_graph_parameter_elements(p->graph) };
    sl_totals_to_event(predicted, event);
    sl_pace_to_event(pace, true, predicted->seconds, event);
}
