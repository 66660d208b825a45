/* job.c: from settings to a ready engine. */
#include "train/job.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/bytes.h"
#include "core/hash.h"
#include "core/quote.h"
#include "core/sized.h"
#include "core/thread.h"
#include "data/ahead.h"
#include "format/adapter_config.h"
#include "format/known_models.h"
#include "format/weights_set.h"
#include "ir/tile.h"
#include "machine/known.h"
#include "machine/recall.h"
#include "train/predictions.h"
#include "train/run.h"

void sluice_job_options_init_sized(sluice_job_options *o, size_t size)
{
    sluice_job_options defaults = {
        .tokens = 200, .temperature = 0.8, .top_p = 1, .repetition_penalty = 1, .seed = -1
    };
    sl_sized_fill(o, size, &defaults, sizeof defaults);
}

static sluice_status check_sampling(const sluice_job_options *o, const char *call)
{
    if (!(o->top_p > 0 && o->top_p <= 1))
        return sl_fail(SLUICE_ERR_USAGE, "%s: options.top_p is %g, must be above 0 and at most 1", call, o->top_p);
    if (!(o->min_p >= 0 && o->min_p <= 1))
        return sl_fail(SLUICE_ERR_USAGE, "%s: options.min_p is %g, must be 0 to 1", call, o->min_p);
    if (!(o->repetition_penalty > 0 && isfinite(o->repetition_penalty)))
        return sl_fail(SLUICE_ERR_USAGE, "%s: options.repetition_penalty is %g, must be finite and positive", call,
                       o->repetition_penalty);
    if ((o->from_folder & ~(unsigned)SLUICE_FOLDER_ALL) != 0)
        return sl_fail(SLUICE_ERR_USAGE, "%s: options.from_folder is %u, which has bits that mean nothing", call,
                       o->from_folder);
    if (o->batch < 0) return sl_fail(SLUICE_ERR_USAGE, "%s: options.batch is %d, must be 0 or more", call, o->batch);
    if (o->prompt != NULL && o->prompts != NULL)
        return sl_fail(SLUICE_ERR_USAGE, "%s: a prompt and a file of prompts are given; give one of them", call);
    if (o->chat && o->prompt == NULL && o->prompts == NULL && (o->in == NULL || fileno(o->in) < 0))
        return sl_fail(SLUICE_ERR_USAGE, "%s: chat without a prompt reads options.in, which is no open file", call);
    if (o->stop_count < 0 || (o->stop_count > 0 && o->stops == NULL))
        return sl_fail(SLUICE_ERR_USAGE, "%s: options.stop_count is %d, and %s", call, o->stop_count,
                       o->stops == NULL ? "options.stops is NULL" : "must be 0 or more");
    for (int i = 0; i < o->stop_count; i++)
        if (o->stops[i] == NULL || o->stops[i][0] == '\0')
            return sl_fail(SLUICE_ERR_USAGE, "%s: stop string %d is empty: it would end every reply at once", call, i);
    return SLUICE_OK;
}

static sluice_status check_numbers(const sluice_job_options *o, sl_job_purpose purpose, const char *call)
{
    if (o->ranks < 0) return sl_fail(SLUICE_ERR_USAGE, "%s: options.ranks is %d, must be 0 or more", call, o->ranks);
    if (o->gpus < 0) return sl_fail(SLUICE_ERR_USAGE, "%s: options.gpus is %d, must be 0 or more", call, o->gpus);
    if (o->gpu != NULL && o->machine != NULL)
        return sl_fail(SLUICE_ERR_USAGE, "%s: a machine is given by name and by file; give one of them", call);
    if (o->gpu != NULL && purpose != SL_JOB_PLAN)
        return sl_fail(SLUICE_ERR_USAGE, "%s: a machine by name is for plans; a run has the machine it is on", call);
    if (purpose != SL_JOB_GENERATE) return SLUICE_OK;
    if (o->tokens < 1)
        return sl_fail(SLUICE_ERR_USAGE, "%s: options.tokens is %lld, must be at least 1", call, (long long)o->tokens);
    if (o->top_k < 0) return sl_fail(SLUICE_ERR_USAGE, "%s: options.top_k is %d, must be 0 or more", call, o->top_k);
    if (!isfinite(o->temperature) || o->temperature < 0)
        return sl_fail(SLUICE_ERR_USAGE, "%s: options.temperature is %g, must be finite and not negative", call,
                       o->temperature);
    return check_sampling(o, call);
}

sluice_status sl_job_take_options(const sluice_config *c, const sluice_job_options *given, sl_job_purpose purpose,
                                  const char *call, sluice_job_options *out)
{
    sluice_job_options o;
    if (c == NULL || given == NULL)
        return sl_fail(SLUICE_ERR_USAGE, "%s: the %s NULL", call, c == NULL ? "configuration is" : "options are");
    sluice_job_options_init(&o);
    SL_TRY(sl_sized_take("sluice_job_options", given, offsetof(sluice_job_options, weights), &o, sizeof o));
    bool prints = purpose == SL_JOB_GENERATE || (purpose == SL_JOB_PLAN && !o.json);
    if (prints && o.out == NULL && o.replies == NULL) return sl_fail(SLUICE_ERR_USAGE, "%s: options.out is NULL", call);
    SL_TRY(check_numbers(&o, purpose, call));
    *out = o;
    return SLUICE_OK;
}

/* ---- data and model ---- */

int64_t sl_job_vocabulary_number(const sl_settings *s)
{
    char *end;
    errno = 0;
    long long n = strtoll(s->given.vocabulary, &end, 10);
    return errno == 0 && *end == '\0' && end != s->given.vocabulary && n > 0 ? n : -1;
}

/* A graph without anything to train says so too, but cannot know why. */
static sluice_status check_frozen(const sl_job *j, const sluice_graph *g)
{
    const sl_model_options *m = &j->settings.model;
    for (int p = 0; p < g->parameter_count; p++)
        if (g->parameters[p].trainable) return SLUICE_OK;
    if (m->freeze_count == 0) return SLUICE_OK;
    return sl_fail(
        SLUICE_ERR_USAGE,
        "freeze: its patterns (the first is \"%.100s\") name every parameter%s, so nothing is left to train; leave "
        "one out",
        m->freeze[0], m->lora.rank > 0 ? " of the adapters" : "");
}

sluice_status sl_job_build_graph(const sl_job *j, const sl_model_options *m, bool trains, sluice_graph **out,
                                 sl_model_info *info)
{
    SL_TRY(sluice_graph_create(out));
    (*out)->stop = j->stop;
    SL_TRY(sl_model_build(*out, m, info));
    (*out)->vocabulary = (sl_kept_vocabulary){ j->unit, j->characters };
    if (trains) SL_TRY(check_frozen(j, *out));
    SL_TRY(sl_graph_tile(*out, m->tile_bytes));
    return sluice_graph_check(*out);
}

/* Logits of a micro-batch that evaluation looks at whole, to count right ones. */
#define MOST_LOGITS ((uint64_t)1 << 30)

/* 2^64 - 1 where a model has no tokens or there would be more. */
static uint64_t logits_bytes(const sl_model_options *m)
{
    uint64_t bytes;
    bool fits = sl_model_reads_tokens(m->type) && m->batch > 0 && m->context > 0 && m->vocabulary > 0 &&
                sl_mul_u64((uint64_t)m->batch, (uint64_t)m->context, &bytes) &&
                sl_mul_u64(bytes, (uint64_t)m->vocabulary * sizeof(float), &bytes);
    return fits ? bytes : UINT64_MAX;
}

/* A number that the model has from the data, unless it is given; then they must agree. */
static sluice_status take_from_data(const char *key, int64_t found, const char *what, int64_t *value)
{
    if (*value < 0) *value = found;
    if (*value == found) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_USAGE, "%s is %lld, and the data has %lld %s; leave it out", key, (long long)*value,
                   (long long)found, what);
}

/* Images: what the model is made for. More outputs than classes are never learned, and refused. */
static sluice_status fit_images(sl_job *j)
{
    sl_model_options *m = &j->settings.model;
    sl_image_size size;
    if (j->data == NULL || !sl_data_image(j->data, &size)) return SLUICE_OK;
    m->image.height = size.height;
    m->image.width = size.width;
    m->image.channels = size.channels;
    SL_TRY(take_from_data("model.features", size.height * size.width * size.channels,
                          "numbers in a sample (rows x columns x channels)", &m->features));
    return take_from_data("model.outputs", sl_data_classes(j->data), "classes", &m->outputs);
}

/* Rows of a table: what the model is made for. A model of numbers has no place for categories. */
static sluice_status fit_columns(sl_job *j)
{
    sl_model_options *m = &j->settings.model;
    sl_column_counts counts;
    if (j->data == NULL || !sl_data_columns(j->data, &counts)) return SLUICE_OK;
    m->columns.numeric = counts.numeric;
    m->columns.categorical = counts.categorical;
    m->columns.buckets = counts.buckets;
    bool clicks = sl_model_reads(m) == SL_SAMPLES_CLICKS;
    if (!clicks && counts.categorical > 0)
        return sl_fail(
            SLUICE_ERR_USAGE,
            "the table has %lld categorical column%s, which model.type \"%s\" does not read; leave %s out with "
            "data.columns.ignore",
            (long long)counts.categorical, counts.categorical == 1 ? "" : "s", m->type,
            counts.categorical == 1 ? "it" : "them");
    if (clicks) return SLUICE_OK;
    SL_TRY(take_from_data("model.features", counts.numeric, "numeric columns", &m->features));
    bool classes = j->settings.data.target == SL_TARGET_CLASS;
    return take_from_data("model.outputs", classes ? sl_data_classes(j->data) : 1, classes ? "classes" : "target",
                          &m->outputs);
}

/* Sentences: a class is an output. */
static sluice_status fit_sentences(sl_job *j)
{
    sl_model_options *m = &j->settings.model;
    if (j->data == NULL || sl_data_gives(j->settings.data.type) != SL_SAMPLES_SENTENCES) return SLUICE_OK;
    return take_from_data("model.outputs", sl_data_classes(j->data), "classes", &m->outputs);
}

/* Speech: a character is an output, and so is the blank. */
static sluice_status fit_speech(sl_job *j)
{
    sl_model_options *m = &j->settings.model;
    sl_speech_size size;
    if (j->data == NULL || !sl_data_speech_size(j->data, &size)) return SLUICE_OK;
    m->speech.rows = size.rows;
    m->speech.bands = size.bands;
    m->speech.labels = size.labels;
    return take_from_data("model.outputs", sl_data_classes(j->data), "characters, the blank among them", &m->outputs);
}

static bool is_training(sl_job_purpose purpose)
{
    return purpose == SL_JOB_TRAIN || purpose == SL_JOB_PLAN;
}

/* "classifier.bias, classifier.weight", the first few. */
static void tell_fresh(const sl_job *j)
{
    char names[400] = "";
    size_t used = 0;
    int count = 0;
    for (int p = 0; p < j->graph->parameter_count; p++) {
        const sl_parameter *q = &j->graph->parameters[p];
        if (!q->is_fresh) continue;
        if (count++ < 4 && used < sizeof names)
            used += (size_t)snprintf(names + used, sizeof names - used, "%s%.80s", count > 1 ? ", " : "", q->name);
    }
    if (count == 0 || j->settings.initial_weights[0] == '\0') return;
    sl_log_write(&j->log, SLUICE_LOG_NOTE, "%d parameter%s with random values, not with those of %s: %s%s", count,
                 count == 1 ? " starts" : "s start", j->settings.initial_weights, names, count > 4 ? ", ..." : "");
}

static sluice_status build_model(sl_job *j, const sluice_job_options *o, sl_job_purpose purpose)
{
    SL_TRY(fit_images(j));
    SL_TRY(fit_columns(j));
    SL_TRY(fit_sentences(j));
    SL_TRY(fit_speech(j));
    if (sl_model_reads_tokens(j->settings.model.type)) {
        int64_t given = sl_job_vocabulary_number(&j->settings);
        SL_TRY(sl_job_fit_vocabulary(j, given));
        int64_t tokens = j->vocabulary != NULL ? j->vocabulary->size
                         : j->data != NULL     ? sl_data_vocabulary(j->data)
                                               : 0;
        j->settings.model.vocabulary = given > 0 || tokens == 0 ? given : tokens;
    }
    /* also of the models that smaller micro-batches would have */
    j->settings.model.packed = purpose != SL_JOB_GENERATE && j->data != NULL && sl_data_packs(j->data);
    sl_model_options m = j->settings.model;
    m.accuracy = purpose == SL_JOB_EVALUATE && logits_bytes(&m) <= MOST_LOGITS;
    if (purpose == SL_JOB_EVALUATE && m.accuracy != sl_model_reads_tokens(m.type))
        sl_log_write(
            &j->log, SLUICE_LOG_NOTE,
            "the logits of a micro-batch take more than %d MiB, so the accuracy of tokens is not counted; a smaller "
            "train_micro_batch_size_per_gpu makes it possible",
            (int)(MOST_LOGITS >> 20));
    if (purpose == SL_JOB_GENERATE) {
        m.batch = 1;
        SL_TRY(sl_generation_prepare(j, o, &m));
    }
    if (!is_training(purpose)) m.fresh_count = 0; /* what is judged has been trained */
    SL_TRY(sl_job_build_graph(j, &m, is_training(purpose), &j->graph, &j->info));
    if (purpose == SL_JOB_TRAIN) tell_fresh(j);
    return SLUICE_OK;
}

/* The model of a job that trains, for other micro-batches. */
static sluice_status rebuild_model(void *user, int64_t micro_batch, sluice_graph **out)
{
    const sl_job *j = user;
    sl_model_options m = j->settings.model;
    sl_model_info info;
    m.batch = micro_batch;
    return sl_job_build_graph(j, &m, true, out, &info);
}

/* ---- engine ---- */

sluice_status sl_job_let_grow(sl_settings *s, int ranks, sl_batch_growth *out)
{
    const int64_t largest = 1000000; /* as many as gradient_accumulation_steps may be */
    sl_batch_growth g = { s->batch_growth.every, s->batch_growth.factor, s->plan.accumulation, s->plan.accumulation };
    if (g.every > 0) g.most = sl_growth_most(g.first, g.factor, s->model.batch * ranks, s->batch_growth.limit);
    if (g.most > largest)
        return sl_fail(SLUICE_ERR_USAGE,
                       "batch_growth.limit: %lld samples are %lld micro-batches of a rank in a step; at most %lld are "
                       "allowed",
                       (long long)s->batch_growth.limit, (long long)g.most, (long long)largest);
    s->plan.accumulation = (int)g.most;
    *out = g;
    return SLUICE_OK;
}

/* Whether what is done every so many steps is done before the last one. */
static bool comes_before_the_end(int64_t every, double steps)
{
    return every > 0 && (steps < 1 || (double)every < steps);
}

/* The save after the last step has nothing to run beside. */
static bool saves_in_background(const sl_settings *s, double steps, bool validates)
{
    if (!s->checkpoint.background || s->checkpoint.path[0] == '\0') return false;
    return comes_before_the_end(s->checkpoint.every, steps) ||
           (s->checkpoint.keep_best && validates && comes_before_the_end(s->evaluate.every, steps));
}

void sl_job_fit_settings(sl_settings *s, sl_job_purpose purpose, double steps, bool validates)
{
    sl_plan_options *p = &s->plan;
    bool training = purpose == SL_JOB_TRAIN || purpose == SL_JOB_PLAN;
    p->snapshot = training && saves_in_background(s, steps, validates);
    p->evaluation = !training || validates;
    if (!training) {
        p->partition_weights = NULL;
        p->accumulation = 1;
    }
}

double sl_job_steps(const sl_job *j, double *per_epoch)
{
    const sl_settings *s = &j->settings;
    const double samples = j->data != NULL ? (double)j->data->ops->samples(j->data, SL_SPLIT_TRAIN) : 0;
    const double batches = samples / (double)s->train_batch_size, epochs = (double)s->epochs;
    if (per_epoch != NULL) *per_epoch = batches;
    if (s->steps > 0) return (double)s->steps;
    const double steps = ceil(epochs * batches - 1e-9);
    if (j->growth.every == 0 || steps > SL_MOST_STEPS) return steps;
    return (double)sl_growth_steps(&j->growth, epochs * batches * (double)j->growth.first);
}

/* Bytes of one micro-batch. */
static uint64_t batch_bytes(const sl_job *j)
{
    uint64_t bytes = 0;
    for (int v = 0; v < j->graph->value_count; v++)
        if (j->graph->values[v].kind == SL_VALUE_INPUT) bytes += sl_value_bytes(&j->graph->values[v]);
    return bytes;
}

/* Bytes that evaluation and batches take from the C library; *predicts: an output is copied out. */
static uint64_t outside_bytes(sl_job *j, sl_job_purpose purpose, bool evaluates, bool *predicts)
{
    uint64_t bytes = 0;
    if (j->graph->output >= 0)
        j->prediction_bytes =
            (size_t)sl_shape_elements(&j->graph->values[j->graph->output].shape) * sizeof *j->predictions;
    *predicts = purpose == SL_JOB_EVALUATE ? j->graph->output >= 0
                                           : purpose != SL_JOB_GENERATE && j->info.tokens_per_sample == 0 && evaluates;
    if (*predicts || purpose == SL_JOB_GENERATE) bytes += j->prediction_bytes;
    if (purpose != SL_JOB_GENERATE && evaluates) bytes += sl_metrics_bytes(&j->judge.shape, j->ranks.count);
    return bytes + batch_bytes(j);
}

sluice_status sl_job_describe_machine(const sluice_job_options *o, sl_machine_description *out, bool *described)
{
    int ranks;
    const sl_machine_choice choice = sl_machine_choose(o->machine);
    *described = choice.file != NULL || o->gpu != NULL;
    if (o->gpu == NULL) return choice.file != NULL ? sl_machine_read(choice.file, out) : SLUICE_OK;
    int gpus = o->gpus > 0 ? o->gpus : o->ranks;
    return sl_machine_named(&(sl_machine_query){ o->gpu, gpus, o->ram_bytes, o->host }, out, &ranks);
}

int sl_job_planned_ranks(const sluice_job_options *o)
{
    sl_machine_description d;
    int ranks = o->ranks > 0 ? o->ranks : sluice_world_size(o->world);
    if (o->ranks > 0 || o->gpu == NULL) return ranks;
    /* a name that is not known is refused where the machine is described */
    return sl_machine_named(&(sl_machine_query){ o->gpu, o->gpus, o->ram_bytes, o->host }, &d, &ranks) == SLUICE_OK
               ? ranks
               : 1;
}

/* Rank 0 speaks for all. */
static void tell_phase(void *job, const sl_activity_note *note)
{
    const sl_job *j = job;
    if (j->event == NULL || j->ranks.rank != 0) return;
    j->event(j->event_user, &(sluice_event){ .kind = SLUICE_EVENT_PHASE,
                                             .phase = note->name,
                                             .done = note->done,
                                             .total = note->total,
                                             .seconds = note->seconds,
                                             .over = note->over });
}

/* Bytes of the data set, and of the batches that are filled ahead. */
static uint64_t data_bytes(const sl_job *j)
{
    if (j->data == NULL) return 0;
    return j->data->ops->memory_bytes(j->data) + (j->workers > 0 ? sl_ahead_bytes(batch_bytes(j)) : 0);
}

static sluice_status start_ahead(sl_job *j)
{
    const sl_ahead_options ahead = { .workers = j->workers,
                                     .stride = j->ranks.count,
                                     .rows = j->batch.rows,
                                     .fields = j->batch.fields,
                                     .field_count = j->batch.count };
    if (j->workers == 0) return SLUICE_OK;
    SL_TRY(sl_data_ahead(j->data, &ahead, &j->data));
    j->ahead = true;
    return SLUICE_OK;
}

/* ---- memory that batches are uploaded from ---- */

static void pin_buffer(void *exec, void *buffer, size_t bytes)
{
    const size_t least = (size_t)1 << 20; /* smaller ones are staged as quickly */
    if (bytes >= least) sl_exec_pin(exec, buffer, bytes);
}

static void unpin_buffer(void *exec, void *buffer, size_t bytes)
{
    (void)bytes;
    sl_exec_unpin(exec, buffer);
}

/* The buffers that batches are filled in. A forward reads its loss before it returns, and so is done with its batch. */
static void each_buffer(sl_job *j, void (*visit)(void *exec, void *buffer, size_t bytes))
{
    for (int i = 0; i < j->batch.count; i++)
        visit(j->engine->exec, j->batch.fields[i].buffer, j->batch.arrays[i].bytes);
    if (j->ahead) sl_ahead_each_buffer(j->data, visit, j->engine->exec);
}

sluice_status sl_job_fill(sl_job *j, uint64_t index)
{
    if (!j->ahead) return j->data->ops->fill(j->data, index, j->batch.rows, j->batch.fields, j->batch.count);
    SL_TRY(sl_ahead_exchange(j->data, index, j->batch.rows, j->batch.fields, j->batch.count));
    for (int i = 0; i < j->batch.count; i++) j->batch.arrays[i].data = j->batch.fields[i].buffer;
    return SLUICE_OK;
}

sluice_status sl_job_replace_plan(sl_job *j, bool *done)
{
    each_buffer(j, unpin_buffer);
    SL_TRY(sl_engine_replace_plan(j->engine, &j->settings, done));
    each_buffer(j, pin_buffer);
    return SLUICE_OK;
}

/* How often a run that goes on was clipped of late, as far as its checkpoints tell. */
static sluice_status find_plain_steps(sl_job *j, const sluice_job_options *o)
{
    const char *folder = j->settings.checkpoint.path;
    uint64_t mine = 0;
    sluice_status st = SLUICE_OK;
    if (!o->resume || folder[0] == '\0') return SLUICE_OK;
    if (sl_path_exists(folder)) st = sl_checkpoint_plain_steps(folder, &mine);
    SL_TRY(sl_ranks_agree(&j->ranks, "looking at the checkpoints", st));
    return sl_ranks_least(&j->ranks, "clipped steps of the checkpoint", mine, &j->settings.plan.plain_steps);
}

static sluice_status create_engine(sl_job *j, const sluice_job_options *o, sl_job_purpose purpose)
{
    const sl_machine_choice choice = sl_machine_choose(o->machine);
    sl_machine_description machine;
    sl_engine_options e = { .training = purpose == SL_JOB_TRAIN || purpose == SL_JOB_PLAN,
                            .plan_only = purpose == SL_JOB_PLAN,
                            .weights_follow = purpose != SL_JOB_TRAIN || j->settings.initial_weights[0] != '\0',
                            .ranks = &j->ranks,
                            .settings = &j->settings,
                            .rehearses = j->rehearses,
                            .data_bytes = data_bytes(j),
                            .stop = j->stop,
                            .refusal = purpose == SL_JOB_PLAN ? &j->refusal : NULL,
                            .brief = purpose == SL_JOB_PLAN && o->json &&
                                     o->out == NULL, /* one of many that are asked about */
                            .log = j->log,
                            .progress = { purpose != SL_JOB_PLAN ? tell_phase : NULL, j } };
    bool predicts;
    if (e.training) {
        e.micro_batch = j->settings.model.batch;
        e.rebuild = rebuild_model;
        e.rebuild_user = j;
    }
    if (e.training)
        SL_TRY(sl_job_let_grow(&j->settings, purpose == SL_JOB_PLAN ? sl_job_planned_ranks(o) : j->ranks.count,
                               &j->growth));
    sl_job_fit_settings(&j->settings, purpose, sl_job_steps(j, NULL), j->validates);
    if (purpose != SL_JOB_GENERATE) SL_TRY(sl_ranks_agree(&j->ranks, "metrics", sl_job_judge(j, !e.training)));
    if (purpose == SL_JOB_PLAN) {
        j->settings.plan.rank_count = sl_job_planned_ranks(o);
        /* as train --ranks would share this machine out; a file describes what each rank has */
        if (choice.file == NULL && o->gpu == NULL) j->ranks.local = j->settings.plan.rank_count;
    }
    bool described = false;
    if (e.training)
        SL_TRY(sl_ranks_agree(&j->ranks, "reading the machine", sl_job_describe_machine(o, &machine, &described)));
    if (described) e.machine = &machine;
    e.measures = choice.measures && e.training && !described;
    if (j->measures_anew) {
        e.machine = NULL;
        e.measures = e.measures_anew = true;
    }
    j->measured = e.measures;
    e.tuned = j->has_tuned && e.training ? &j->tuned : NULL;
    if (e.training) j->settings.plan.steps = (uint64_t)fmin(sl_job_steps(j, NULL), SL_MOST_STEPS);
    if (purpose == SL_JOB_TRAIN) SL_TRY(find_plain_steps(j, o));
    e.extra_bytes = outside_bytes(j, purpose, j->settings.plan.evaluation, &predicts);
    SL_TRY(sl_engine_create(j->graph, &e, &j->engine));
    sl_job_list_arrangements(j);
    if (purpose == SL_JOB_GENERATE) return SLUICE_OK;
    SL_TRY(sl_batch_buffers_make(j->graph, &j->batch));
    if (j->settings.plan.evaluation) SL_TRY(sl_metrics_create(&j->judge.shape, &j->metrics));
    if (purpose == SL_JOB_PLAN) return SLUICE_OK;
    SL_TRY(start_ahead(j));
    each_buffer(j, pin_buffer);
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
    if (text != NULL && memory == NULL)
        st = sl_fail(SLUICE_ERR_NO_MEMORY, "out of memory while comparing configurations");
    if (memory != NULL) {
        sl_settings_write(&j->settings, memory);
        fclose(memory);
        text[TEXT_BYTES - 1] = '\0';
    }
    st = sl_ranks_agree(&j->ranks, "configuration", st);
    if (st == SLUICE_OK) st = sl_ranks_same(&j->ranks, "configuration", text);
    sl_free(text);
    return st;
}

/* Threads for the data: ranks of a machine share its CPUs. */
static void share_threads(const sl_job *j, int given, int *threads)
{
    int share = sl_cpu_count() / (j->ranks.local > 1 ? j->ranks.local : 1);
    *threads = given > 0 ? given : share > 0 ? share : 1;
}

static int count_workers(const sl_job *j, int given, int threads)
{
    sl_fill_effort effort = j->data->ops->effort;
    if (effort == SL_FILL_QUICK) return 0;
    return given >= 0 ? given : effort == SL_FILL_SLOW ? threads : 0;
}

static sluice_status open_data(sl_job *j, const sluice_job_options *o, sl_job_purpose purpose)
{
    sl_settings *s = &j->settings;
    SL_TRY(sl_job_read_vocabulary(j, o, purpose));
    if (sl_job_needs_data(j, purpose)) {
        s->data.kept = j->has_kept ? &j->kept : NULL;
        s->data.stop = j->stop;
        sl_data_options opened = s->data;
        share_threads(j, s->data.threads, &opened.threads);
        SL_TRY(sl_data_open(&opened, s->model.context, sl_job_vocabulary_number(s), &j->data));
        j->workers = count_workers(j, s->data.threads, opened.threads);
        j->validates = j->data->ops->samples(j->data, SL_SPLIT_VALIDATION) > 0;
        if (purpose == SL_JOB_TRAIN) j->data->ops->identity(j->data, j->data_sha256);
        if (j->ranks.rank == 0) sl_data_jsonl_say(j->data, &j->log);
        if (j->ranks.rank == 0) sl_data_say(j->data, &j->log);
    }
    return sl_job_use_vocabulary(j);
}

/* Without positions the tokens of one document would see those of another. */
static sluice_status check_packed(const sl_job *j)
{
    if (sl_graph_find_input(j->graph, "positions") >= 0) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_USAGE,
                   "the data packs several documents into a row, and model.type \"%s\" cannot keep them apart; set "
                   "data.packing to \"none\", or take a model that can",
                   j->settings.model.type);
}

static sluice_status open_data_and_model(sl_job *j, const sluice_job_options *o, sl_job_purpose purpose)
{
    const sl_settings *s = &j->settings;
    SL_TRY(open_data(j, o, purpose));
    SL_TRY(build_model(j, o, purpose));
    /* the model's inputs must be what the data set can fill */
    bool wants_text = j->info.tokens_per_sample > 0;
    if (j->settings.model.packed) SL_TRY(check_packed(j));
    if (j->data == NULL || sl_data_has_tokens(j->data) == wants_text) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_USAGE, "model.type \"%s\" %s text, but data.type is \"%s\"", s->model.type,
                   wants_text ? "learns from" : "cannot read", s->data.type);
}

/* A folder that nobody named is written by training alone, and never over another. */
static sluice_status settle_chosen_save(sl_settings *s, const sluice_job_options *o, sl_job_purpose purpose)
{
    if (purpose != SL_JOB_TRAIN) s->save = "";
    if (s->save[0] == '\0' || o->resume || !sl_path_exists(s->save)) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_USAGE,
                   "%s, where the result would go, is there already: name a folder with --out (one that is named is "
                   "replaced), or move it away",
                   s->save);
}

/* What a plan reads of the weights in the model's folder: the index and the headers. Without weights config.json is enough. */
static sluice_status check_headers(const sl_settings *s)
{
    sl_weights_set *weights;
    if (s->given.only_name || s->path[0] == '\0' || !sl_is_weights_folder(s->path)) return SLUICE_OK;
    SL_TRY(sl_weights_set_open(s->path, &weights));
    sl_weights_set_close(weights);
    return SLUICE_OK;
}

static sluice_status open_parts(sl_job *j, const sluice_config *c, const sluice_job_options *o, sl_job_purpose purpose)
{
    char data[128], hint[320];
    SL_TRY(sl_ranks_open(purpose == SL_JOB_TRAIN ? o->world : NULL, &j->ranks));
    j->log = (sl_log){ log_of_rank, j, j->ranks.rank, j->ranks.count };
    const sl_log notes = { j->ranks.rank == 0 ? o->log : NULL, o->log_user, 0, 1 };
    int ranks = purpose == SL_JOB_TRAIN ? j->ranks.count : sl_job_planned_ranks(o);
    sluice_status st = is_training(purpose) ? sl_config_resolve(c, ranks, &notes, &j->settings)
                                            : sl_config_resolve_use(c, &notes, &j->settings);
    SL_TRY(sl_ranks_agree(&j->ranks, "reading the configuration", st));
    j->settings.optim.groups = j->settings.groups;
    if (j->waits) j->settings.plan.update = SL_UPDATE_MODE_SYNC;
    SL_TRY(sl_job_take_tuned(j, o, purpose));
    SL_TRY(sl_job_choose_batch(j, o, purpose));
    if (j->settings.given.chosen_save && !j->rehearses)
        SL_TRY(sl_ranks_agree(&j->ranks, "choosing the folder", settle_chosen_save(&j->settings, o, purpose)));
    if (j->settings.given.only_name && purpose != SL_JOB_PLAN)
        return sl_fail(
            SLUICE_ERR_USAGE,
            "%s is the name of a published model, which is enough for a plan; give its folder, with config.json "
            "and weights, for anything else%s",
            sl_quote(j->settings.path).text, sl_hub_hint(j->settings.path, hint, sizeof hint));
    if (purpose == SL_JOB_PLAN) SL_TRY(check_headers(&j->settings));
    if (j->settings.given.no_data && (purpose == SL_JOB_TRAIN || purpose == SL_JOB_EVALUATE))
        return sl_fail(SLUICE_ERR_USAGE, "data.type is missing: say what to %s on, as in --data FILE",
                       purpose == SL_JOB_TRAIN ? "train" : "evaluate");
    SL_TRY(compare_settings(j));
    if (purpose == SL_JOB_TRAIN && !j->rehearses) SL_TRY(sl_run_try_files(j, c, o));
    if (purpose != SL_JOB_TRAIN) SL_TRY(sl_job_try_output(j, c, o, purpose));
    SL_TRY(sl_ranks_agree(&j->ranks, "opening the data", open_data_and_model(j, o, purpose)));
    snprintf(data, sizeof data, "sha256: %s\nvocabulary: %016" PRIx64 "\n", j->data_sha256,
             sl_hash_text(j->characters != NULL ? j->characters : ""));
    SL_TRY(sl_ranks_same(&j->ranks, "data", data));
    return create_engine(j, o, purpose);
}

sluice_status sl_job_open(sl_job *j, const sluice_config *c, const sluice_job_options *o, sl_job_purpose purpose)
{
    sl_arena_init(&j->arena, "vocabulary of the weights");
    j->log_to = o->log;
    j->log_user = o->log_user;
    j->event = o->event;
    j->event_user = o->user;
    j->stop = o->stop;
    return sl_ranks_failed(&j->ranks, open_parts(j, c, o, purpose));
}

void sl_job_tell_left_out(sl_job *j, bool over)
{
    char first[SL_MESSAGE_BYTES];
    int64_t count = j->data->ops->left_out != NULL ? j->data->ops->left_out(j->data, first) : 0;
    if (count == j->told_left_out || (!over && count < 2 * j->told_left_out)) return;
    sl_log_write(&j->log, SLUICE_LOG_WARNING, "%lld bad image%s left out%s; the first: %.600s", (long long)count,
                 count == 1 ? " is" : "s are", over ? "" : " so far", first);
    j->told_left_out = count;
}

void sl_job_close(sl_job *j)
{
    if (j->engine != NULL && j->engine->exec != NULL) each_buffer(j, unpin_buffer);
    sl_batch_buffers_free(&j->batch);
    sl_free(j->predictions);
    sl_metrics_destroy(j->metrics);
    sl_prediction_file_free(j->prediction_file);
    sl_generation_free(j->generation);
    sluice_engine_destroy(j->engine);
    sluice_graph_destroy(j->graph);
    sluice_data_destroy(j->data);
    sl_job_free_vocabulary(j);
    sl_ranks_close(&j->ranks);
}

sluice_status sl_job_run(const sluice_config *c, const sluice_job_options *given, sl_job_purpose purpose,
                         const char *call, sluice_status (*work)(sl_job *j, const sluice_job_options *o))
{
    sl_job j = { .data = NULL };
    sluice_job_options o;
    SL_TRY(sl_job_take_options(c, given, purpose, call, &o));
    sluice_status st = sl_job_open(&j, c, &o, purpose);
    if (st == SLUICE_OK) st = work(&j, &o);
    sl_job_close(&j);
    return st;
}

static sluice_status load_with_adapter(sl_job *j, const char *base, const char *adapter)
{
    if (base[0] == '\0')
        return sl_fail(SLUICE_ERR_USAGE, "%s is an adapter, which needs its base: give --model, --weights or load",
                       sl_show(adapter).text);
    snprintf(j->weights, sizeof j->weights, "%s with the adapter %s", base, adapter);
    SL_TRY(sl_weights_load(j->engine->exec, base));
    return sl_adapter_load(j->engine->exec, adapter);
}

static sluice_status load_best(sl_job *j, const sluice_job_options *o)
{
    const char *folder = j->settings.checkpoint.path;
    uint64_t step = 0;
    if (o->weights != NULL) return sl_fail(SLUICE_ERR_USAGE, "--weights and --best are given; give one of them");
    if (folder[0] == '\0')
        return sl_fail(SLUICE_ERR_USAGE,
                       "--best needs checkpoint.path in the configuration: the best step is kept there");
    snprintf(j->weights, sizeof j->weights, "%s/" SL_BEST_NAME, folder);
    if (sl_path_exists(j->weights)) SL_TRY(sl_checkpoint_load_weights(j->engine->exec, j->weights, &step));
    if (step == 0)
        return sl_fail(SLUICE_ERR_INPUT,
                       "%s is missing: no best checkpoint was kept there; train with "
                       "checkpoint.keep_best, or leave --best out",
                       sl_show(j->weights).text);
    j->engine->step = step;
    snprintf(j->weights, sizeof j->weights, "%s, step %llu, the best", folder, (unsigned long long)step);
    return SLUICE_OK;
}

/* The checkpoint's, else what `save` left, else the model's own. */
sluice_status sl_job_load_weights(sl_job *j, const sluice_job_options *o)
{
    const sl_settings *s = &j->settings;
    uint64_t step = 0;
    const char *file = o->weights != NULL ? o->weights : s->save;
    const char *base = o->weights != NULL ? o->weights : s->initial_weights;
    if (s->adapter[0] != '\0') return load_with_adapter(j, base, s->adapter);
    if (o->best) return load_best(j, o);
    if (o->weights == NULL && s->checkpoint.path[0] != '\0')
        SL_TRY(sl_checkpoint_load_weights(j->engine->exec, s->checkpoint.path, &step));
    if (step > 0) {
        j->engine->step = step;
        snprintf(j->weights, sizeof j->weights, "%s, step %llu", s->checkpoint.path, (unsigned long long)step);
        return SLUICE_OK;
    }
    if (s->model.lora.rank > 0 && sl_is_adapter_folder(s->save)) return load_with_adapter(j, base, s->save);
    if (file[0] == '\0' || (o->weights == NULL && !sl_path_exists(file)))
        file = s->path[0] != '\0' ? s->initial_weights : "";
    snprintf(j->weights, sizeof j->weights, "%s", file);
    if (file[0] != '\0') return sl_weights_load(j->engine->exec, file);
    return sl_fail(
        SLUICE_ERR_INPUT,
        "no weights to load: give --weights FILE, or a configuration whose checkpoint.path or save holds some");
}

void sl_job_pace(const sl_job *j, double peak, sl_pace *out)
{
    const sluice_engine *e = j->engine;
    double ranks = e->plan->options.rank_count, share = (double)e->accumulation / e->plan->options.accumulation;
    *out = (sl_pace){ .samples = (double)j->batch.rows * (double)sl_engine_micro_batches(e),
                      .flops = share * ranks * e->plan->totals.model_flops,
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
    event->speculating_layers = p->totals.speculating_layers;
    event->speculation_bytes = p->totals.speculation_bytes;
    event->speculation_gain = p->totals.speculation_gain;
    event->redo_seconds = p->totals.redo_seconds;
    event->host_bytes_per_parameter = p->totals.host_bytes_per_parameter;
}
