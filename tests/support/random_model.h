/* random_model.h: graphs, settings and budgets drawn from a seed, for tests that must hold for every model. */
#ifndef SLUICE_TEST_RANDOM_MODEL_H
#define SLUICE_TEST_RANDOM_MODEL_H

#include "sluice.h"

typedef struct random_state {
    uint64_t state;
} random_state;

/* Uniform in [low, high]. */
int64_t random_between(random_state *r, int64_t low, int64_t high);
/* A multi-layer network or a small transformer of random shape, with loss and output. Inputs "x" or "tokens", and
 * "target". */
sluice_status random_graph(random_state *r, sluice_graph **out);

/* Data for every input of a graph, made from a seed; ids stay below 7. The caller frees with random_batch_free. */
typedef struct random_batch {
    sluice_array arrays[4];
    int count;
} random_batch;
sluice_status random_batch_make(const sluice_graph *g, uint64_t seed, random_batch *out);
void random_batch_free(random_batch *b);

#endif
