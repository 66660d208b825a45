/* engine.h: a graph, its optimizer, its plan and the executor that follows it. Behind sluice_engine of sluice.h. */
#ifndef SL_TRAIN_ENGINE_H
#define SL_TRAIN_ENGINE_H

#include "checkpoint/checkpoint.h"
#include "optim/optim.h"
#include "runtime/exec.h"
#include "train/machine.h"

typedef struct sl_engine_options {
    bool training; /* false: evaluation only; no gradients, no state */
    sl_optim_options optim;
    sl_plan_options plan; /* budgets 0: from the machine; overhead is filled in here */
    uint64_t data_bytes;  /* held by the data set, for overhead_bytes */
    uint64_t extra_bytes; /* other memory the caller will take, for overhead_bytes */
    uint64_t seed;
    int threads; /* 0: all */
    bool guard;
    const sl_backend *backend;
    sl_log log;
} sl_engine_options;

typedef enum {
    SL_ENGINE_READY,
    SL_ENGINE_FORWARD_DONE,
    SL_ENGINE_HALF_LOADED, /* loading weights failed halfway: only another load helps */
    SL_ENGINE_BROKEN,      /* a segment failed halfway: nothing is known of the arenas */
} sl_engine_phase;

struct sluice_engine {
    sluice_graph *graph; /* borrowed */
    sl_optim *optim;     /* NULL without training */
    sl_plan *plan;
    sl_comm *comm;
    sl_exec *exec;
    sl_machine machine;
    sl_isa isa;
    sl_log log;
    sl_run_context context;
    sl_engine_phase phase;
    bool computes;                            /* false on the null backend: its numbers mean nothing */
    int micro;                                /* micro-batches done in the step at hand */
    uint64_t step;                            /* completed */
    uint64_t applied;                         /* optimizer steps applied */
    double lr, momentum;                      /* of the next step; momentum < 0: the optimizer's own */
    double norm;                              /* of the newest step */
    double plan_seconds, reserve_seconds;     /* planning; creating the executor: arenas and threads */
    double segment_seconds[SL_SEGMENT_COUNT]; /* measured, summed over runs, the first run of each left out: it touches
                                                 new pages */
    uint64_t segment_runs[SL_SEGMENT_COUNT];  /* all runs */
    sl_checkpoint_slots slots;
};

sluice_status sl_engine_create(sluice_graph *g, const sl_engine_options *options, sluice_engine **out);
/* Names of the graph's inputs in value order and their values; fills at most `capacity`; returns how many there are. */
int sl_engine_inputs(const sluice_engine *e, int *values, int capacity);
/* SHA-256 of what the model is: parameters and forward nodes. */
void sl_graph_identity(const sluice_graph *g, char sha256[65]);
/* Everything of the engine's state that is not a tensor, and back. The caller adds its own fields. */
void sl_engine_meta(const sluice_engine *e, sl_checkpoint_meta *meta);
void sl_engine_restore(sluice_engine *e, const sl_checkpoint_meta *meta);

#endif
