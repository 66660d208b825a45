/* batch.h: one micro-batch's buffers, shared by training, evaluation and generation. */
#ifndef SL_TRAIN_BATCH_H
#define SL_TRAIN_BATCH_H

#include "data/data.h"
#include "train/engine.h"

/* A recommender has an input for each category. */
#define SL_MAX_FIELDS (SL_MODEL_MAX_TABLES + 16)

typedef struct sl_batch_buffers {
    sl_data_field fields[SL_MAX_FIELDS]; /* buffers are owned */
    sluice_array arrays[SL_MAX_FIELDS];  /* the same buffers as the engine wants them */
    int count;
    int64_t rows; /* the first dimension of every input */
} sl_batch_buffers;

/* One buffer per graph input. Zero the struct first; free it also after a failure. */
sluice_status sl_batch_buffers_make(const sluice_graph *g, sl_batch_buffers *b);
void sl_batch_buffers_free(sl_batch_buffers *b);
static inline sluice_batch sl_batch_of(const sl_batch_buffers *b)
{
    return (sluice_batch){ b->arrays, b->count };
}
/* The field named `name`, or NULL. */
const sl_data_field *sl_batch_field(const sl_batch_buffers *b, const char *name);

#endif
