/* predictions.h: what a model made of every sample, as a file of one row each: CSV or JSON lines. */
#ifndef SL_TRAIN_PREDICTIONS_H
#define SL_TRAIN_PREDICTIONS_H

#include "train/metrics.h"

/* Names of classes. `name` may give NULL: that class has none. */
typedef struct sl_class_names {
    const char *(*name)(const void *user, int64_t class_index); /* NULL: there are no names */
    const void *user;
} sl_class_names;

typedef struct sl_prediction_file sl_prediction_file;

/* The kind by the end of the name: ".csv" or ".jsonl"; another is SLUICE_ERR_USAGE. `targets`: elements of a sample's target,
 * which is a class, 0 or 1, numbers, or labels of a transcript, as the shape has it. Written whole by finish, or not at all (core/output.h). */
sluice_status sl_prediction_file_begin(const char *path, const sl_metric_shape *shape, int64_t targets,
                                       sl_class_names names, sl_prediction_file **out);
/* Labels of what was said, or of what was understood. */
typedef struct sl_transcript {
    const int32_t *labels;
    int64_t count;
} sl_transcript;
/* A sample of SL_JUDGED_TRANSCRIPTS, as text by the names of its labels. */
sluice_status sl_prediction_file_add_transcript(sl_prediction_file *f, int64_t index, sl_transcript target,
                                                sl_transcript predicted);
/* Samples first .. first + count - 1: `predictions` and `targets` (i32 classes, or f32) of each, one after the other. */
sluice_status sl_prediction_file_add(sl_prediction_file *f, int64_t first, int64_t count, const float *predictions,
                                     const void *targets);
/* Puts the file in place. */
sluice_status sl_prediction_file_finish(sl_prediction_file *f);
/* After finish, or instead of it: then nothing is left behind. NULL is fine. */
void sl_prediction_file_free(sl_prediction_file *f);
/* Whether a name ends as one of the two kinds; SLUICE_ERR_USAGE otherwise. */
sluice_status sl_prediction_file_check(const char *path);

#endif
