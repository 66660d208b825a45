/* evaluate.c: loss and accuracy over a split, each sample counted once, and the eval command. */
#include <math.h>

#include "core/alloc.h"
#include "core/bytes.h"
#include "train/engine_parts.h"
#include "train/job.h"

/* Sums over what was evaluated so far; means come last, so that batches of different size weigh what they should. */
typedef struct tally {
    double loss, weight;     /* weight: targets (or rows) that count */
    double correct, classed; /* targets that were looked at, and how many of them were the likeliest class */
    double bytes;            /* of the text that the targets are; NaN: not known */
} tally;

static int64_t argmax(const float *row, int64_t n)
{
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (row[i] > row[best]) best = i;
    return best;
}

/* Right ones of the first `count` targets; those that are ignored do not count. */
static void count_correct(const sl_job *j, const sl_data_field *targets, int64_t count, tally *t)
{
    int64_t all = j->batch.rows * targets->row_elements;
    int64_t classes = (int64_t)(j->prediction_bytes / sizeof(float)) / all;
    const int32_t *target = targets->buffer;
    for (int64_t i = 0; i < count; i++) {
        if (target[i] < 0) continue;
        t->classed++;
        t->correct += argmax(j->predictions + i * classes, classes) == target[i];
    }
}

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

static sluice_status run_batch(sl_job *j, int64_t valid, tally *t)
{
    sluice_batch batch = sl_batch_of(&j->batch);
    const sl_data_field *targets = sl_batch_field(&j->batch, j->info.tokens_per_sample > 0 ? "targets" : "target");
    double loss = 0;
    SL_TRY(sl_engine_evaluate(j->engine, &batch, &loss, j->predictions));
    if (!j->info.classifies) {
        t->loss += squared_error(j, targets, valid);
        t->weight += (double)valid;
        t->bytes = (double)NAN;
        return SLUICE_OK;
    }
    if (j->predictions != NULL) count_correct(j, targets, valid * targets->row_elements, t);
    /* the loss is a mean over targets; those of padded rows are -1, the ignore index */
    const int32_t *target = targets->buffer;
    int64_t counted = 0;
    for (int64_t i = 0; i < j->batch.rows * targets->row_elements; i++) counted += target[i] >= 0;
    t->loss += loss * (double)counted;
    t->weight += (double)counted;
    t->bytes += count_bytes(j, targets);
    return SLUICE_OK;
}

/* All ranks, of a batch that `rank` evaluated: its own message says more. */
static sluice_status fail_round(const sl_job *j, int rank, int64_t batch)
{
    if (rank == j->ranks.rank) return SLUICE_ERR_NUMBERS;
    return sl_fail(SLUICE_ERR_NUMBERS, "evaluation: the loss of batch %lld (rank %d) is not finite", (long long)batch,
                   rank);
}

/* Rounds of one batch on each rank. Every pass may gather parameters, so a rank without a batch computes one too, which
 * does not count. Sums run in the order of batches, whoever computed them, so that the result does not depend on the
 * number of ranks. */
static sluice_status run_rounds(sl_job *j, sl_data_split split, int64_t batches, tally *all, tally *sum)
{
    for (int64_t first = 0; first < batches; first += j->ranks.count) {
        int64_t number = first + j->ranks.rank, rows = j->batch.rows, valid = 0;
        bool counts = number < batches;
        tally mine = { 0 };
        SL_TRY(j->data->ops->fill_eval(j->data, split, counts ? number * rows : 0, rows, j->batch.fields,
                                       j->batch.count, &valid));
        sluice_status st = run_batch(j, valid, &mine);
        if (st != SLUICE_OK && st != SLUICE_ERR_NUMBERS) return st;
        if (st == SLUICE_ERR_NUMBERS) mine.loss = (double)NAN;
        if (!counts) mine = (tally){ 0 };
        SL_TRY(j->ranks.comm->ops->exchange(j->ranks.comm, "evaluation", &mine, sizeof mine, all));
        for (int i = 0; i < j->ranks.count; i++) {
            sum->loss += all[i].loss;
            sum->weight += all[i].weight;
            sum->correct += all[i].correct;
            sum->classed += all[i].classed;
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
    sluice_status st = run_rounds(j, split, batches == 0 || batches > whole ? whole : batches, all, &t);
    sl_free(all);
    if (st != SLUICE_OK) return st;
    bool tokens = j->info.tokens_per_sample > 0;
    *out = (sl_evaluation){ .loss = t.weight > 0 ? t.loss / t.weight : (double)NAN,
                            .accuracy = t.classed > 0 ? t.correct / t.classed : (double)NAN,
                            .bits_per_byte = tokens && t.bytes > 0 ? t.loss / log(2.0) / t.bytes : (double)NAN,
                            .targets = (uint64_t)t.weight };
    out->perplexity = tokens ? exp(out->loss) : (double)NAN;
    return SLUICE_OK;
}

/* One line: what means something of this model. */
static void print_evaluation(const sl_job *j, const sl_evaluation *e, FILE *out)
{
    bool tokens = j->info.tokens_per_sample > 0;
    fprintf(out, "%s loss %.6f", j->validates ? "validation" : "training", e->loss);
    if (isfinite(e->perplexity)) fprintf(out, ", perplexity %.4f", e->perplexity);
    if (isfinite(e->bits_per_byte)) fprintf(out, ", bits per byte %.4f", e->bits_per_byte);
    if (isfinite(e->accuracy)) fprintf(out, ", %saccuracy %.4f", tokens ? "token " : "", e->accuracy);
    fprintf(out, "%s%llu %s, weights of %s", tokens ? "; " : ", ", (unsigned long long)e->targets,
            tokens ? "tokens" : "samples", j->weights);
    fprintf(out, "\n");
}

static sluice_status evaluate_job(sl_job *j, const sluice_job_options *o)
{
    sl_evaluation v;
    SL_TRY(sl_job_load_weights(j, o));
    SL_TRY(sl_job_evaluate(j, j->validates ? SL_SPLIT_VALIDATION : SL_SPLIT_TRAIN, 0, &v));
    sl_job_tell_left_out(j, true);
    if (o->event != NULL) {
        sluice_event e = { .kind = SLUICE_EVENT_EVAL,
                           .step = j->engine->step,
                           .loss = v.loss,
                           .accuracy = v.accuracy,
                           .perplexity = v.perplexity,
                           .bits_per_byte = v.bits_per_byte,
                           .path = j->weights };
        *(j->info.tokens_per_sample > 0 ? &e.tokens : &e.samples) = v.targets;
        o->event(o->user, &e);
    }
    if (!o->json && o->out != NULL) print_evaluation(j, &v, o->out);
    return SLUICE_OK;
}

sluice_status sluice_job_eval(const sluice_config *c, const sluice_job_options *o)
{
    return sl_job_run(c, o, SL_JOB_EVALUATE, "sluice_job_eval", evaluate_job);
}
