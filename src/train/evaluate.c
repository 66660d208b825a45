/* evaluate.c: loss and accuracy over a split, each sample counted once, and the eval command. */
#include <math.h>

#include "train/job.h"

/* Sums over what was evaluated so far; means come last, so that batches of different size weigh what they should. */
typedef struct tally {
    double loss, weight;     /* weight: targets (or rows) that count */
    double correct, classed; /* rows with a class */
} tally;

/* Targets of a padded row are -1, the ignore index. */
static int64_t real_targets(const sl_data_field *targets, int64_t rows)
{
    const int32_t *t = targets->buffer;
    int64_t n = 0;
    for (int64_t i = 0; i < rows * targets->row_elements; i++) n += t[i] >= 0;
    return n;
}

static int64_t argmax(const float *row, int64_t n)
{
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (row[i] > row[best]) best = i;
    return best;
}

static void count_correct(const sl_job *j, const sl_data_field *targets, int64_t valid, tally *t)
{
    int64_t classes = (int64_t)(j->prediction_bytes / sizeof(float)) / j->batch.rows;
    const int32_t *target = targets->buffer;
    for (int64_t i = 0; i < valid; i++) {
        t->classed++;
        t->correct += argmax(j->predictions + i * classes, classes) == target[i];
    }
}

/* Squared error of the real rows alone: the graph's own loss averages over padding too. */
static double squared_error(const sl_job *j, const sl_data_field *targets, int64_t valid)
{
    const float *y = j->predictions, *t = targets->buffer;
    double sum = 0;
    for (int64_t i = 0; i < valid * targets->row_elements; i++) sum += ((double)y[i] - t[i]) * ((double)y[i] - t[i]);
    return sum / (double)targets->row_elements;
}

static sluice_status run_batch(sl_job *j, int64_t valid, tally *t)
{
    sluice_batch batch = sl_batch_of(&j->batch);
    const sl_data_field *targets = sl_batch_field(&j->batch, j->info.tokens_per_sample > 0 ? "targets" : "target");
    double loss = 0;
    if (j->predictions != NULL) {
        SL_TRY(sluice_predict(j->engine, &batch, j->predictions, j->prediction_bytes));
        if (!j->info.classifies) {
            t->loss += squared_error(j, targets, valid);
            t->weight += (double)valid;
            return SLUICE_OK;
        }
        count_correct(j, targets, valid, t);
    }
    SL_TRY(sluice_evaluate(j->engine, &batch, &loss));
    double weight = (double)real_targets(targets, j->batch.rows);
    t->loss += loss * weight;
    t->weight += weight;
    return SLUICE_OK;
}

sluice_status sl_job_evaluate(sl_job *j, sl_data_split split, int64_t batches, double *loss, double *accuracy)
{
    int64_t samples = j->data->ops->samples(j->data, split), rows = j->batch.rows;
    tally t = { 0 };
    for (int64_t first = 0, n = 0; first < samples && (batches == 0 || n < batches); first += rows, n++) {
        int64_t valid = 0;
        SL_TRY(j->data->ops->fill_eval(j->data, split, first, rows, j->batch.fields, j->batch.count, &valid));
        SL_TRY(run_batch(j, valid, &t));
    }
    *loss = t.weight > 0 ? t.loss / t.weight : (double)NAN;
    *accuracy = t.classed > 0 ? t.correct / t.classed : (double)NAN;
    return SLUICE_OK;
}

static void report(const sl_job *j, const sluice_job_options *o, double loss, double accuracy)
{
    if (o->event != NULL) {
        sluice_event e = { .kind = SLUICE_EVENT_EVAL, .step = j->engine->step, .loss = loss, .accuracy = accuracy };
        o->event(o->user, &e);
    }
    if (o->json || o->out == NULL) return;
    fprintf(o->out, "%s loss %.6f", j->validates ? "validation" : "training", loss);
    if (isfinite(accuracy)) fprintf(o->out, ", accuracy %.4f", accuracy);
    fprintf(o->out, "\n");
}

static sluice_status evaluate_job(sl_job *j, const sluice_job_options *o)
{
    double loss, accuracy;
    SL_TRY(sl_job_load_weights(j, o));
    SL_TRY(sl_job_evaluate(j, j->validates ? SL_SPLIT_VALIDATION : SL_SPLIT_TRAIN, 0, &loss, &accuracy));
    report(j, o, loss, accuracy);
    return SLUICE_OK;
}

sluice_status sluice_job_eval(const sluice_config *c, const sluice_job_options *o)
{
    sl_job j = { .data = NULL };
    sluice_status st = sl_job_open(&j, c, o, SL_JOB_EVALUATE);
    if (st == SLUICE_OK) st = evaluate_job(&j, o);
    sl_job_close(&j);
    return st;
}
