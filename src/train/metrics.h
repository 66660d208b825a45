/* metrics.h: how good a model is: one table of metrics (config/metric_list.h), and what is collected for them in one pass.
 *
 * What is collected does not depend on the order of samples, on the batches they come in or on the rank that computes them:
 * counts are integers, sums are kept in twice the digits of a double, and areas under curves are counted in integers. The loss
 * alone is what the graph computes, batch by batch, and is summed by whoever collects (train/evaluate.c). */
#ifndef SL_TRAIN_METRICS_H
#define SL_TRAIN_METRICS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "config/metric_list.h"
#include "machine/ranks.h"
#include "sluice.h"

/* What a model gives and is compared with. */
typedef enum {
    SL_JUDGED_CLASSES,     /* logits of classes; the class */
    SL_JUDGED_BINARY,      /* one logit; 0 or 1 */
    SL_JUDGED_VALUES,      /* numbers; numbers */
    SL_JUDGED_TOKENS,      /* a loss, and logits where they are looked at; the token */
    SL_JUDGED_TRANSCRIPTS, /* a sequence of labels; the right one */
} sl_judged;

/* Confusion matrices are counted up to this many classes. */
#define SL_MOST_CONFUSED 256

typedef struct sl_metric_shape {
    sl_judged judged;
    int64_t classes; /* CLASSES; BINARY has two */
    int64_t outputs; /* VALUES: of a sample */
    int64_t scores;  /* samples of this rank that scores are kept of, at most; 0: none, and no area under a curve */
} sl_metric_shape;

/* Name, and whether more is better. */
const char *sl_metric_name(sl_metric m);
bool sl_metric_higher(sl_metric m);
/* Whether models of this shape have it. Of token_accuracy, bits_per_byte and auc the data, the logits or the room for scores
 * may still be missing: then it is NaN. */
bool sl_metric_applies(sl_metric m, const sl_metric_shape *shape);
/* "loss, accuracy, f1": those that apply. Returns out. */
const char *sl_metric_list(const sl_metric_shape *shape, char *out, size_t bytes);

typedef struct sl_metrics sl_metrics;
/* Bytes that one takes, and those of all ranks while they are put together. */
uint64_t sl_metrics_bytes(const sl_metric_shape *shape, int ranks);
sluice_status sl_metrics_create(const sl_metric_shape *shape, sl_metrics **out);
void sl_metrics_destroy(sl_metrics *m); /* NULL is fine */
void sl_metrics_reset(sl_metrics *m);

/* What the model made of a sample. `likeliest` is the class that it chose, the first of equal ones; `probability` of that. */
typedef struct sl_choice {
    int64_t likeliest;
    double probability;
} sl_choice;
sl_choice sl_choose(const float *logits, int64_t classes);

/* Of one sample each. CLASSES: `logits` of all classes; target below 0: it does not count. */
void sl_metrics_add_class(sl_metrics *m, const float *logits, int32_t target);
/* BINARY: target 1 or more than a half: positive. */
void sl_metrics_add_binary(sl_metrics *m, float logit, float target);
/* VALUES: shape.outputs of each. */
void sl_metrics_add_values(sl_metrics *m, const float *values, const float *targets);
/* TOKENS whose logits are known. */
void sl_metrics_add_token(sl_metrics *m, const float *logits, int64_t vocabulary, int32_t target);
/* TRANSCRIPTS: labels of what was said and of what was understood. Words end at the label `space`; below 0: every label is a
 * word. SLUICE_ERR_NO_MEMORY. */
sluice_status sl_metrics_add_transcript(sl_metrics *m, const int32_t *reference, int64_t reference_count,
                                        const int32_t *hypothesis, int64_t hypothesis_count, int32_t space);
/* The loss: its sum over `weight` targets, of `bytes` of text (NaN: not known), over the whole pass and all ranks. Replaces
 * what was set before. */
void sl_metrics_set_loss(sl_metrics *m, double loss, double weight, double bytes);
/* All ranks, after the last sample: what all of them collected, on each of them. */
sluice_status sl_metrics_share(sl_metrics *m, sl_ranks *ranks);

/* After that: NaN where it does not apply, or nothing was collected. */
double sl_metrics_value(sl_metrics *m, sl_metric which);
/* CLASSES, BINARY: classes, or 0 for others. */
int64_t sl_metrics_classes(const sl_metrics *m);
/* Of one class; name NULL. As scikit-learn has it: 0 / 0 is 0. */
sluice_class_score sl_metrics_class(const sl_metrics *m, int64_t class_index);
/* counts[target * classes + predicted]; NULL: not counted. */
const uint64_t *sl_metrics_confusion(const sl_metrics *m);

#endif
