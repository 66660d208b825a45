/* engine.h: a graph, its optimizer, its plan and the executor that follows it. Behind sluice_engine of sluice.h. */
#ifndef SL_TRAIN_ENGINE_H
#define SL_TRAIN_ENGINE_H

#include <sys/types.h>

#include "checkpoint/checkpoint.h"
#include "core/phase.h"
#include "format/text_buffer.h"
#include "machine/device_choice.h"
#include "machine/machine.h"
#include "machine/ranks.h"
#include "optim/loss_scale.h"
#include "optim/optim.h"
#include "runtime/exec.h"
#include "train/auto_search.h"
#include "train/gpu_comm.h"

/* What was asked for where a plan is refused, and the least that would do. */
typedef struct sl_refusal {
    bool is_set;
    sl_plan_options options;
    sl_machine machine;
    sl_plan_need need;
} sl_refusal;

typedef struct sl_engine_options {
    bool training;  /* false: evaluation only; no gradients, no state */
    bool plan_only; /* nothing is reserved or run; plan.rank and plan.rank_count are taken as given */
    /* Weights are loaded before anything uses them, so that only adapters, which files need not hold, get first values. */
    bool weights_follow;
    sl_ranks *ranks;                       /* borrowed; NULL: the engine joins `world` itself */
    sl_comm *world;                        /* borrowed; NULL: one rank */
    const sl_machine_description *machine; /* NULL: this machine */
    const sl_arrangement *tuned; /* what measuring found best for what is on "auto"; NULL: nothing was measured */
    bool measures_anew;          /* with `measures`: now, whatever is kept of it */
    bool measures; /* this machine by rates that were measured or are now; otherwise by those its kind usually has */
    const sl_settings *settings; /* borrowed during creation; resolved */
    uint64_t data_bytes;         /* held by the data set, for overhead_bytes */
    const int *stop;             /* a request to stop (core/stop.h); outlives the engine; NULL: none */
    uint64_t extra_bytes;        /* other memory the caller will take, for overhead_bytes */
    /* What micro-batches have, and the same model for smaller ones, so that a refusal can tell what those would need.
     * NULL: unknown. */
    int64_t micro_batch;
    sluice_status (*rebuild)(void *user, int64_t micro_batch, sluice_graph **out);
    void *rebuild_user;
    sl_refusal *refusal; /* filled in where the plan is refused; NULL: nobody asks */
    bool brief;          /* a refusal comes without advice */
    bool rehearses;      /* steps are measured and forgotten: with updates on speculation from the first one on */
    bool only_need;      /* with plan_only: no plan is made; what it would need at least is filled in there */
    sl_log log;
    sl_progress progress; /* of what takes a while; told on every rank */
} sl_engine_options;

typedef enum {
    SL_ENGINE_READY,
    SL_ENGINE_FORWARD_DONE,
    SL_ENGINE_HALF_LOADED, /* loading weights failed halfway: only another load helps */
    SL_ENGINE_BROKEN,      /* a segment failed halfway: nothing is known of the arenas */
} sl_engine_phase;

typedef struct sl_engine_tables sl_engine_tables; /* engine_tables.c */

/* What a rank saw in a step that is not finite: the first of each kind. Exchanged between ranks. */
typedef struct sl_found {
    int32_t loss_micro;         /* global micro-batch; -1: every loss is finite */
    int32_t input, input_micro; /* graph value, -1: every input is finite */
    int32_t weight;             /* parameter; -1: none, or not looked for */
    int32_t leaf_layer;         /* whose gradient has a norm leaf that is not finite; -1: none, or not looked for */
    int64_t input_element, weight_element;
    int64_t leaf; /* global number of that leaf */
    double loss, input_value, weight_value;
} sl_found;

/* An input whose elements are places in a table: token ids, targets. */
typedef struct sl_index_check {
    int value, node; /* the input; the node that reads the table */
    uint32_t places; /* elements are below this */
    bool ignores;    /* or `ignored` */
    int32_t ignored;
} sl_index_check;

/* Updates on speculation: engine_speculation.c. */
typedef struct sl_speculation {
    bool now;                               /* in the step at hand */
    uint32_t failed;                        /* bit i: the step i + 1 before was clipped or skipped */
    uint64_t plain;                         /* the last steps in a row that were neither */
    sl_group_scalars groups[SL_MAX_GROUPS]; /* what the step's updates were given */
    uint64_t speculated, rolled_back;       /* steps */
} sl_speculation;

struct sluice_engine {
    sluice_graph *graph;     /* borrowed */
    sl_index_check *indices; /* owned; what batches are checked for */
    int index_count;
    int *position_inputs; /* owned; values whose elements are positions in documents (sl_op_def.positions) */
    int position_count;
    int *bag_nodes; /* owned; forward nodes whose input says where bags end */
    int bag_count;
    int *sequence_nodes; /* owned; forward nodes whose input says how many frames of each sequence count */
    int sequence_count;
    /* Valid targets, by which the micro-batches of a step weigh (exact rule 12). */
    int counted;              /* the one input that the loss counts them in; -1: none, or several */
    int32_t uncounted;        /* the target that does not count */
    bool weighed;             /* `targets` is of the step at hand; false: micro-batches weigh the same */
    uint64_t *targets;        /* owned; laid out as `losses` */
    uint64_t all_targets;     /* their sum */
    sl_engine_tables *tables; /* owned; NULL: the graph has no sparse tables */
    sl_optim *optim;          /* NULL without training */
    sl_plan *plan;
    sl_auto_result arrangements; /* how the plan was chosen, of an engine that trains */
    sl_ranks *ranks;             /* borrowed, or own_ranks */
    sl_ranks own_ranks;
    sl_comm *gpu_comm; /* owned; of the executor's collectives; NULL: they are those of ranks->comm */
    sl_exec *exec;     /* NULL: plan only */
    sl_machine machine;
    sl_device_choice device;
    sl_isa isa; /* of what runs on the CPU */
    int threads;
    sl_log log;
    sl_run_context context;
    sl_engine_phase phase;
    pid_t process;        /* that made it: one forked from it has none of its threads */
    bool computes;        /* false on the null backend: its numbers mean nothing */
    int micro;            /* micro-batches this rank has done in the step at hand */
    int accumulation;     /* of them in this step, at most as many as the plan is made for: M */
    double micro_batches; /* of all ranks in this step: K */
    uint64_t step;        /* completed */
    uint64_t applied;     /* optimizer steps applied; the others were skipped */
    uint64_t updated,
        overflowed;       /* of this process: steps that were applied, and that were skipped for their gradients */
    bool skipped;         /* the newest step was skipped */
    uint64_t prompt;      /* delayed updates: steps that come first, whose updates the next step sees */
    sl_identity identity; /* what a checkpoint must have in common with it */
    sl_precision precision;
    sl_speculation speculation;
    sl_loss_scaler scaler; /* scale 1 unless in fp16 */
    double used_scale;     /* of the newest step */
    sl_found found;        /* in the step at hand */
    sl_found *all_found;   /* owned; one for each rank */
    double lr, momentum;   /* of the next step; momentum < 0: the optimizer's own */
    double norm;           /* of the newest step; NaN where it was skipped */
    double loss;           /* of the newest sluice_step: mean over its targets */
    double *losses;        /* owned: this rank's of the step at hand, then those of all ranks of the newest step;
                              accumulation * (1 + ranks) */
    sl_plan_faults plan_faults;
    uint64_t *workspace; /* owned: of each graph node, then of each update op */
    sl_progress progress;
    double plan_seconds, reserve_seconds; /* planning; creating the executor: arenas and threads */
    double fill_seconds;                  /* first values of the weights */
    double
        segment_seconds[SL_SEGMENT_COUNT];   /* measured, summed over runs, without the first run of each, which touches
                                                 new pages */
    uint64_t segment_runs[SL_SEGMENT_COUNT]; /* all runs */
    const void **
        looked_at; /* owned; per graph value: numbers of the input's next batch that were found to be finite; NULL: none */
    sl_checkpoint_slots slots;
};

/* All ranks. A failure is the same on all of them. */
sluice_status sl_engine_create(sluice_graph *g, const sl_engine_options *options, sluice_engine **out);
/* Between two steps, on all ranks, of an engine whose plan has another placement: goes on by that one, whose other placement is
 * then that of the first plan, with the same weights, state and bits. Memory of its own stays as it is: what was
 * pinned must be pinned anew. `settings` are those of its creation. *done false: it has no memory for that, and goes on as
 * before. After a failure the engine is of no use. */
sluice_status sl_engine_replace_plan(sluice_engine *e, const sl_settings *settings, bool *done);
/* Between two steps: about how long it would take, by what some of the state takes; that is a quarter of a second. */
sluice_status sl_engine_replace_seconds(sluice_engine *e, double *seconds);
/* Between two steps, on all ranks alike: how many micro-batches a rank has in the steps from here on, at most as many as the
 * plan is made for. */
void sl_engine_set_accumulation(sluice_engine *e, int accumulation);
/* Micro-batches of all ranks in a step: K. */
uint64_t sl_engine_micro_batches(const sluice_engine *e);
/* A batch whose forward comes next, after the one that is done: its inputs are sent ahead where they may be. The
 * arrays stay as they are until that forward, or until they are forgotten. */
void sl_engine_send(sluice_engine *e, const sluice_batch *batch);
/* The arrays that were sent are about to hold something else. */
void sl_engine_forget_sent(sluice_engine *e);
/* Global number, within the step, of this rank's micro-batch `m`. */
uint64_t sl_engine_micro_index(const sluice_engine *e, int m);
/* The mean over the targets of the step at hand, from its losses in order of their global micro-batches.
 * all[r * stride + m] is the m-th of rank r. */
double sl_engine_mean_loss(const sluice_engine *e, const double *all, size_t stride);
/* sluice_step of ranks that know each other's losses. losses_finite: all of them are; otherwise the step changes
 * nothing, as one whose gradient is not finite. */
sluice_status sl_engine_step(sluice_engine *e, bool losses_finite);
/* Passes over a step of which no micro-batch has a target: it is counted as skipped, and nothing is computed. All ranks. */
sluice_status sl_engine_pass_step(sluice_engine *e);
/* Forgets the micro-batches of a step that will not be finished; the next one begins anew. Only an engine that is alone
 * can: others would wait for its contributions. */
void sl_engine_abandon_step(sluice_engine *e);
/* Names of the graph's inputs in value order and their values; fills at most `capacity`; returns how many there are. */
int sl_graph_inputs(const sluice_graph *g, int *values, int capacity);
/* What must be the same on all ranks before planning, and of a plan: lines of "key: value". */
void sl_engine_write_facts(const sluice_engine *e, const sl_engine_options *o, sl_text *out);
void sl_plan_write_facts(const sl_plan *p, sl_text *out);
/* Whether the kernels that made a checkpoint give this engine's bits. */
bool sl_engine_has_kernels(const sluice_engine *e, const char *there);
/* Everything of the engine's state that is not a tensor, and back. The caller adds its own fields. */
void sl_engine_meta(const sluice_engine *e, sl_checkpoint_meta *meta);
void sl_engine_restore(sluice_engine *e, const sl_checkpoint_meta *meta);

/* ---- engine_targets.c: how much micro-batches weigh ---- */

/* Valid targets of all micro-batches of the next step, in global order; the same on all ranks, and not all 0. */
sluice_status sl_engine_weigh(sluice_engine *e, const uint64_t *all, const char *call);

/* ---- engine_numbers.c: numbers that are not finite ---- */

void sl_engine_reset_watch(sluice_engine *e);
void sl_engine_watch_input(sluice_engine *e, int value, const void *data, size_t bytes);
/* Whether all numbers of an input are; ids always are. */
bool sl_engine_is_finite(const sluice_engine *e, int value, const void *data, size_t bytes);
void sl_engine_watch_loss(sluice_engine *e, double loss);
/* Of an evaluation: SLUICE_ERR_NUMBERS names the batch's first input that is not finite, or the loss or output. */
sluice_status sl_engine_check_loss(const sluice_engine *e, const sluice_batch *batch, const char *call, double loss);
sluice_status sl_engine_check_output(const sluice_engine *e, const sluice_batch *batch, const char *call,
                                     const float *output, int64_t count);
/* All ranks, after an update that changed nothing because the gradient is not finite: SLUICE_OK where the step is just
 * skipped, and the loss scale is the next step's; otherwise as sl_engine_fail_numbers. */
sluice_status sl_engine_skip_or_fail(sluice_engine *e);
/* All ranks, after the last step of a run: SLUICE_ERR_NUMBERS where all were skipped so and none of the next would do better;
 * a warning where most were. */
sluice_status sl_engine_judge_skips(const sluice_engine *e);
/* All ranks: SLUICE_ERR_NUMBERS with the same message on all of them: the step, the first tensor that is not finite,
 * its layer and rank. `why` is put behind that; "" where there is nothing to say. */
sluice_status sl_engine_fail_numbers(sluice_engine *e, const char *why);

#endif
