/* evaluate.c: one pass over a split, each sample counted once, and the eval command. */
#include <math.h>
#include <string.h>

#include "core/alloc.h"
#include "core/bytes.h"
#include "train/engine_parts.h"
#include "train/job.h"
#include "train/predictions.h"
#include "train/score_report.h"
#include "train/transcribe.h"

/* The loss over what was evaluated so far; means come last, so that batches of different size weigh what they should. */
typedef struct tally {
    double loss, weight; /* weight: targets (or rows) that count */
    double bytes;        /* of the text that the targets are; NaN: not known */
} tally;

/* Every token has a target; a model that reads tokens may also have one for the whole sample. */
static bool is_text(const sl_job *j)
{
    return sl_graph_find_input(j->graph, "targets") >= 0;
}

/* The input that holds what the model should find. */
static const char *target_input(const sl_job *j)
{
    return j->info.transcribes ? "labels" : is_text(j) ? "targets" : "target";
}

static const sl_data_field *targets_of(const sl_job *j)
{
    return sl_batch_field(&j->batch, target_input(j));
}

/* Numbers that the model gives for each target. */
static int64_t predicted_for_each(const sl_job *j, const sl_data_field *targets)
{
    return (int64_t)(j->prediction_bytes / sizeof(float)) / (j->batch.rows * targets->row_elements);
}

/* ---- how a job is judged ---- */

/* Samples of a rank in one evaluation. */
static int64_t samples_of_rank(const sl_job *j, sl_data_split split, int64_t most_batches)
{
    int64_t rows = j->settings.model.batch, batches = sl_ceil_div(j->data->ops->samples(j->data, split), rows);
    if (most_batches > 0 && most_batches < batches) batches = most_batches;
    return sl_ceil_div(batches, j->ranks.count) * rows;
}

/* Elements of a target of one sample. */
static int64_t target_elements(const sl_job *j)
{
    int input = sl_graph_find_input(j->graph, target_input(j));
    return input >= 0 ? sl_shape_elements(&j->graph->values[input].shape) / j->settings.model.batch : 1;
}

static void find_shape(sl_job *j)
{
    sl_metric_shape *s = &j->judge.shape;
    int64_t outputs = 0, elements = target_elements(j);
    if (j->graph->output >= 0)
        outputs = sl_shape_elements(&j->graph->values[j->graph->output].shape) / j->settings.model.batch;
    *s = (sl_metric_shape){ .judged = is_text(j) ? SL_JUDGED_TOKENS : SL_JUDGED_VALUES, .outputs = outputs };
    if (j->info.transcribes) *s = (sl_metric_shape){ .judged = SL_JUDGED_TRANSCRIPTS };
    if (j->info.transcribes || is_text(j) || !j->info.classifies) return;
    s->judged = j->info.binary ? SL_JUDGED_BINARY : SL_JUDGED_CLASSES;
    s->classes = j->info.binary ? 2 : outputs / elements;
}

sluice_status sl_job_judge(sl_job *j, bool whole)
{
    const sl_settings *s = &j->settings;
    find_shape(j);
    SL_TRY(sl_judge_choose(&j->judge, s, whole));
    bool judges = s->checkpoint.keep_best || s->early_stopping.patience > 0;
    if (!whole && judges && !j->validates)
        return sl_fail(SLUICE_ERR_USAGE, "%s: there is no validation data to judge by; set data.validation above 0",
                       s->early_stopping.patience > 0 ? "early_stopping.patience" : "checkpoint.keep_best");
    bool bytes = j->judge.best.metric == SL_METRIC_BITS_PER_BYTE || j->judge.stopping.metric == SL_METRIC_BITS_PER_BYTE;
    if (bytes && judges && j->vocabulary == NULL)
        return sl_fail(SLUICE_ERR_USAGE,
                       "evaluate.metric: bits_per_byte is not known of tokens of a tokenizer; take perplexity or loss");
    if (sl_wants(j->judge.wanted, SL_METRIC_AUC))
        j->judge.shape.scores =
            target_elements(j) *
            samples_of_rank(j, j->validates ? SL_SPLIT_VALIDATION : SL_SPLIT_TRAIN, whole ? 0 : s->evaluate.batches);
    return SLUICE_OK;
}

/* ---- one batch ---- */

/* Bytes of text that the targets stand for. */
static double count_bytes(const sl_job *j, const sl_data_field *targets)
{
    const int32_t *target = targets->buffer;
    int64_t bytes = 0;
    char text[4];
    if (j->vocabulary == NULL) return (double)NAN;
    for (int64_t i = 0; i < j->batch.rows * targets->row_elements; i++)
        if (target[i] >= 0 && target[i] < j->vocabulary->size)
            bytes += sl_vocabulary_decode(j->vocabulary, target[i], text);
    return (double)bytes;
}

/* Squared error of the real rows alone: the graph's own loss averages over padding too. */
static double squared_error(const sl_job *j, const sl_data_field *targets, int64_t valid)
{
    const float *y = j->predictions, *t = targets->buffer;
    double sum = 0;
    for (int64_t i = 0; i < valid * targets->row_elements; i++) sum += ((double)y[i] - t[i]) * ((double)y[i] - t[i]);
    return sum / (double)targets->row_elements;
}

/* log(1 + e^-z) of the real rows alone, z the logit of the right answer: likewise. */
static double binary_loss(const sl_job *j, const sl_data_field *targets, int64_t valid)
{
    const float *y = j->predictions, *t = targets->buffer;
    double sum = 0;
    for (int64_t i = 0; i < valid * targets->row_elements; i++)
        sum += fmax((double)y[i], 0) - (double)y[i] * t[i] + log1p(exp(-fabs((double)y[i])));
    return sum / (double)targets->row_elements;
}

static sluice_status run_batch(sl_job *j, int64_t valid, tally *t)
{
    sluice_batch batch = sl_batch_of(&j->batch);
    const sl_data_field *targets = targets_of(j);
    double loss = 0;
    SL_TRY(sl_engine_evaluate(j->engine, &batch, &loss, j->predictions));
    if (j->info.transcribes) { /* the loss is a mean over rows; that of padded ones is 0 */
        t->loss += loss * (double)j->batch.rows;
        t->weight += (double)valid;
        t->bytes = (double)NAN;
        return SLUICE_OK;
    }
    if (!j->info.classifies || j->info.binary) {
        t->loss += (j->info.binary ? binary_loss : squared_error)(j, targets, valid);
        t->weight += (double)valid;
        t->bytes = (double)NAN;
        return SLUICE_OK;
    }
    /* the loss is a mean over targets; those of padded rows are -1, the ignore index */
    const int32_t *target = targets->buffer;
    int64_t counted = 0;
    for (int64_t i = 0; i < j->batch.rows * targets->row_elements; i++) counted += target[i] >= 0;
    t->loss += loss * (double)counted;
    t->weight += (double)counted;
    t->bytes += count_bytes(j, targets);
    return SLUICE_OK;
}

/* ---- transcripts ---- */

/* The label of a space, at which words end; -1: there is none. */
static int32_t find_space(const sl_job *j)
{
    for (int64_t i = 0; i < sl_data_classes(j->data); i++)
        if (strcmp(sl_data_class_name(j->data, i), " ") == 0) return (int32_t)i;
    return -1;
}

/* What row i was understood as: `found` has room for all its frames. */
static int64_t understand(const sl_job *j, int64_t i, int32_t *found)
{
    const sl_shape *shape = &j->graph->values[j->graph->output].shape;
    const int32_t *lengths = sl_batch_field(&j->batch, "lengths")->buffer;
    int64_t classes = shape->dim[2];
    return sl_ctc_greedy(j->predictions + i * shape->dim[1] * classes, lengths[i], classes, 0, found);
}

/* Error rates of the first `valid` rows, and lines of the file of predictions, whose first row is sample `first`. */
static sluice_status collect_transcripts(sl_job *j, int64_t first, int64_t valid)
{
    const sl_data_field *targets = targets_of(j);
    const int32_t *labels = targets->buffer, space = find_space(j);
    int64_t frames = j->graph->values[j->graph->output].shape.dim[1];
    int32_t *found = sl_alloc_array((size_t)frames, sizeof *found, "transcript");
    sluice_status st = found != NULL ? SLUICE_OK : SLUICE_ERR_NO_MEMORY;
    for (int64_t i = 0; st == SLUICE_OK && i < valid; i++) {
        sl_transcript said = { labels + i * targets->row_elements, 0 }, heard = { found, 0 };
        said.count = sl_count_labels(said.labels, targets->row_elements);
        heard.count = understand(j, i, found);
        st = sl_metrics_add_transcript(j->metrics, said.labels, said.count, heard.labels, heard.count, space);
        if (st == SLUICE_OK && j->prediction_file != NULL)
            st = sl_prediction_file_add_transcript(j->prediction_file, first + i, said, heard);
    }
    sl_free(found);
    return st;
}

/* ---- other metrics ---- */

/* Metrics of the first `valid` rows, whose predictions are there. */
static void collect(sl_job *j, int64_t valid)
{
    const sl_data_field *targets = targets_of(j);
    const int32_t *classes = targets->buffer;
    const float *values = targets->buffer, *y = j->predictions;
    int64_t each = predicted_for_each(j, targets), count = valid * targets->row_elements;
    if (j->judge.shape.judged == SL_JUDGED_VALUES) {
        for (int64_t i = 0; i < valid; i++)
            sl_metrics_add_values(j->metrics, y + i * targets->row_elements, values + i * targets->row_elements);
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        if (j->judge.shape.judged == SL_JUDGED_TOKENS) sl_metrics_add_token(j->metrics, y + i * each, each, classes[i]);
        if (j->judge.shape.judged == SL_JUDGED_CLASSES) sl_metrics_add_class(j->metrics, y + i * each, classes[i]);
        if (j->judge.shape.judged == SL_JUDGED_BINARY) sl_metrics_add_binary(j->metrics, y[i], values[i]);
    }
}

/* ---- all of them ---- */

/* All ranks, of a batch that `rank` evaluated: its own message says more. */
static sluice_status fail_round(const sl_job *j, int rank, int64_t batch)
{
    if (rank == j->ranks.rank) return SLUICE_ERR_NUMBERS;
    return sl_fail(SLUICE_ERR_NUMBERS, "evaluation: the loss of batch %lld (rank %d) is not finite", (long long)batch,
                   rank);
}

/* What this rank's batch gives. One that does not count is computed all the same. */
static sluice_status evaluate_batch(sl_job *j, sl_data_split split, int64_t number, bool counts, tally *mine)
{
    int64_t rows = j->batch.rows, valid = 0, first = counts ? number * rows : 0;
    SL_TRY(j->data->ops->fill_eval(j->data, split, first, rows, j->batch.fields, j->batch.count, &valid));
    sluice_status st = run_batch(j, valid, mine);
    if (st != SLUICE_OK && st != SLUICE_ERR_NUMBERS) return st;
    if (st == SLUICE_ERR_NUMBERS) mine->loss = (double)NAN;
    if (!counts) *mine = (tally){ 0 };
    if (st != SLUICE_OK || !counts || j->predictions == NULL) return SLUICE_OK;
    if (j->info.transcribes) return collect_transcripts(j, first, valid);
    collect(j, valid);
    if (j->prediction_file == NULL) return SLUICE_OK;
    const sl_data_field *targets = targets_of(j);
    return sl_prediction_file_add(j->prediction_file, first, valid, j->predictions, targets->buffer);
}

/* Rounds of one batch on each rank. Every pass may gather parameters, so a rank without a batch computes one too, which
 * does not count. Sums run in the order of batches, whoever computed them, so that the result does not depend on the
 * number of ranks. */
static sluice_status run_rounds(sl_job *j, sl_data_split split, int64_t batches, tally *all, tally *sum)
{
    for (int64_t first = 0; first < batches; first += j->ranks.count) {
        int64_t number = first + j->ranks.rank;
        tally mine = { 0 };
        SL_TRY(evaluate_batch(j, split, number, number < batches, &mine));
        SL_TRY(j->ranks.comm->ops->exchange(j->ranks.comm, "evaluation", &mine, sizeof mine, all));
        for (int i = 0; i < j->ranks.count; i++) {
            sum->loss += all[i].loss;
            sum->weight += all[i].weight;
            sum->bytes += all[i].bytes;
            if (isnan(all[i].loss)) return fail_round(j, i, first + i);
        }
    }
    return SLUICE_OK;
}

sluice_status sl_job_evaluate(sl_job *j, sl_data_split split, int64_t batches, sl_evaluation *out)
{
    int64_t whole = sl_ceil_div(j->data->ops->samples(j->data, split), j->batch.rows);
    tally t = { 0 };
    tally *all = sl_alloc_array((size_t)j->ranks.count, sizeof *all, "tallies of the ranks");
    if (all == NULL) return SLUICE_ERR_NO_MEMORY;
    sl_metrics_reset(j->metrics);
    sluice_status st = run_rounds(j, split, batches == 0 || batches > whole ? whole : batches, all, &t);
    sl_free(all);
    if (st != SLUICE_OK) return st;
    sl_metrics_set_loss(j->metrics, t.loss, t.weight, t.bytes);
    SL_TRY(sl_metrics_share(j->metrics, &j->ranks));
    for (int m = 0; m < SL_METRIC_COUNT; m++)
        out->values[m] =
            sl_wants(j->judge.wanted, (sl_metric)m) ? sl_metrics_value(j->metrics, (sl_metric)m) : (double)NAN;
    out->targets = (uint64_t)t.weight;
    return SLUICE_OK;
}

void sl_evaluation_to_event(const sl_job *j, const sl_evaluation *v, sluice_metric *list, sluice_event *event)
{
    sl_metric accuracy = is_text(j) ? SL_METRIC_TOKEN_ACCURACY : SL_METRIC_ACCURACY;
    event->loss = v->values[SL_METRIC_LOSS];
    event->accuracy = v->values[accuracy];
    event->perplexity = v->values[SL_METRIC_PERPLEXITY];
    event->bits_per_byte = v->values[SL_METRIC_BITS_PER_BYTE];
    event->metrics = list;
    for (int m = 0; m < SL_METRIC_COUNT; m++)
        if (sl_wants(j->judge.wanted, (sl_metric)m))
            list[event->metric_count++] =
                (sluice_metric){ sl_metric_name((sl_metric)m), v->values[m], sl_wants(j->judge.shown, (sl_metric)m) };
}

/* ---- the command ---- */

static const char *name_of_class(const void *data, int64_t class_index)
{
    return sl_data_class_name(data, class_index);
}

/* The data's own, where it has them. */
static sl_class_names class_names(const sl_job *j)
{
    bool named = j->info.transcribes || sl_data_class_name(j->data, 0)[0] != '\0';
    return (sl_class_names){ named ? name_of_class : NULL, j->data };
}

static sluice_status tell(const sl_job *j, const sluice_job_options *o, const sl_evaluation *v)
{
    sluice_metric list[SL_METRIC_COUNT];
    sluice_event e = { .kind = SLUICE_EVENT_EVAL,
                       .step = j->engine->step,
                       .path = j->weights,
                       .class_count = sl_metrics_classes(j->metrics),
                       .confusion = sl_metrics_confusion(j->metrics) };
    sluice_class_score *classes = NULL;
    sl_evaluation_to_event(j, v, list, &e);
    *(is_text(j) ? &e.tokens : &e.samples) = v->targets;
    if (e.class_count > 0) {
        classes = sl_alloc_array((size_t)e.class_count, sizeof *classes, "scores of classes");
        if (classes == NULL) return SLUICE_ERR_NO_MEMORY;
    }
    for (int64_t i = 0; i < e.class_count; i++) {
        classes[i] = sl_metrics_class(j->metrics, i);
        const char *name = sl_data_class_name(j->data, i);
        classes[i].name = name[0] != '\0' ? name : NULL;
    }
    e.classes = classes;
    if (o->event != NULL) o->event(o->user, &e);
    if (!o->json && o->out != NULL)
        sl_score_report_print(&e, j->validates ? "validation" : "training", j->settings.evaluate.metrics != 0, o->out);
    sl_free(classes);
    return SLUICE_OK;
}

static sluice_status evaluate_job(sl_job *j, const sluice_job_options *o)
{
    sl_evaluation v;
    SL_TRY(sl_job_load_weights(j, o));
    if (o->predictions != NULL)
        SL_TRY(sl_prediction_file_begin(o->predictions, &j->judge.shape, targets_of(j)->row_elements, class_names(j),
                                        &j->prediction_file));
    SL_TRY(sl_job_evaluate(j, j->validates ? SL_SPLIT_VALIDATION : SL_SPLIT_TRAIN, 0, &v));
    sl_job_tell_left_out(j, true);
    if (j->prediction_file != NULL) SL_TRY(sl_prediction_file_finish(j->prediction_file));
    return tell(j, o, &v);
}

sluice_status sluice_job_eval(const sluice_config *c, const sluice_job_options *o)
{
    return sl_job_run(c, o, SL_JOB_EVALUATE, "sluice_job_eval", evaluate_job);
}
