/* planned.h: a random model with its plan. */
#ifndef SLUICE_TEST_PLANNED_H
#define SLUICE_TEST_PLANNED_H

#include "optim/optim.h"
#include "plan/plan.h"
#include "support/random_model.h"

typedef struct planned {
    sluice_graph *graph;
    sl_optim *optim;
    sl_machine machine;
    sl_plan_options options;
    sluice_dtype precision, wire; /* of the graph */
    sl_plan *plan;
} planned;

/* Builds, differentiates and plans the model of `seed` with fx->options, which plan_options_default has set. */
sluice_status plan_model(planned *fx, uint64_t seed);
/* The part of it after building: lowers and differentiates fx->graph and makes the optimizer, an AdamW with
 * clipping. */
sluice_status plan_prepare(planned *fx);
void plan_options_default(sl_plan_options *o);
void planned_free(planned *fx);

#endif
