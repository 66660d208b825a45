/* engine_parts.h: what the files of the engine share.
 *
 *     engine.c          creation, in pipeline order
 *     engine_plan.c     workspace, planning, comparison between ranks
 *     engine_budget.c   how much memory the plan may use
 *     engine_remedy.c   what a disk or smaller micro-batches would need where the plan is refused
 *     engine_init.c     first values of parameters and state
 *     engine_batch.c    what a batch must be
 *     engine_tables.c   rows of sparse tables that a step touches
 *     engine_targets.c  how much micro-batches weigh in a step
 *     engine_run.c      forward, backward, step, evaluation
 *     engine_speculation.c  whether updates run on speculation, and whether that was right
 *     engine_replace.c  another plan between two steps
 *     engine_resume.c   what a checkpoint keeps, and which are continued
 *     engine_numbers.c  numbers that are not finite
 *     engine_facts.c    what an engine is, to be compared */
#ifndef SL_TRAIN_ENGINE_PARTS_H
#define SL_TRAIN_ENGINE_PARTS_H

#include "train/engine.h"

/* The communicator of the plan's collectives. */
sl_comm *sl_engine_comm(const sluice_engine *e);
/* Seconds that a disk has for a request: it fails before ranks that wait for this one take it for lost. */
double sl_engine_disk_deadline(const sluice_engine *e, const sl_settings *s);
/* Called whenever the loss scale changed. */
void sl_engine_use_scale(sluice_engine *e);

/* Completes the graph: its precision, gradients and updates. */
sluice_status sl_engine_build_graph(sluice_engine *e, const sl_engine_options *o);
/* engine_remedy.c: adds to the message of a refusal what a plan with swap files has on the disk, where there is none or one
 * with less space and that fits; and what smaller micro-batches would need, where that is less. `p` is what was refused.
 * Return SLUICE_ERR_NO_FIT. */
sluice_status sl_engine_try_disk(const sluice_engine *e, const sl_plan_options *p);
sluice_status sl_engine_try_smaller(const sluice_engine *e, const sl_engine_options *o, const sl_plan_options *p);

/* engine_plan.c: asks the backend how much workspace each kernel of the graph needs. */
sluice_status sl_engine_ask_workspace(sluice_engine *e);
/* engine_budget.c: all ranks. Budgets and overheads of the plan. SLUICE_ERR_NO_FIT: a run is told of more than there
 * is. */
sluice_status sl_engine_set_budgets(sluice_engine *e, const sl_engine_options *o, int threads, sl_plan_options *p);
/* Options of a plan with a disk that is large enough, and with the memory less that swap files take beside the arenas. */
void sl_engine_add_disk(const sluice_engine *e, sl_plan_options *p);
/* All ranks. */
sluice_status sl_engine_make_plan(sluice_engine *e, const sl_engine_options *o, int threads);

/* engine_resume.c: what the engine is to checkpoints. The model's hash and attributes, of the graph as it was built; then, after
 * planning, the lines of settings and of the step before them. */
sluice_status sl_engine_identify_model(sluice_engine *e);
sluice_status sl_engine_identify(sluice_engine *e, const sl_settings *settings);

/* engine_batch.c: finds the inputs that are ids or targets, of a graph that is lowered. */
sluice_status sl_engine_find_indices(sluice_engine *e);
/* SLUICE_ERR_USAGE: not what the graph's inputs are; SLUICE_ERR_INPUT: an id or target that its table does not have. */
sluice_status sl_engine_check_batch(const sluice_engine *e, const sluice_batch *batch, const char *call);

/* engine_tables.c: room for what is said below, of a graph with sparse tables (ir/sparse.h); nothing where it has none. */
sluice_status sl_engine_open_tables(sluice_engine *e);
void sl_engine_close_tables(sluice_engine *e);
/* Host memory outside the arenas for the rows of steps. */
uint64_t sl_engine_table_bytes(const sluice_graph *g, int ranks);
/* A step, or an evaluation, begins: it has no rows yet. */
void sl_engine_forget_rows(sluice_engine *e);
/* All ranks, before a checked batch of theirs is computed: its rows come, beside those that the step has. SLUICE_ERR_USAGE:
 * the plan has no room for so many; the same on all ranks, and nothing has changed. */
sluice_status sl_engine_bring_rows(sluice_engine *e, const sluice_batch *batch, const char *call);
/* What the graph is given for an input of the batch whose rows were brought last: ids become places. */
const void *sl_engine_input(const sluice_engine *e, int value, const void *given);
/* All ranks, after an update: the rows go back. */
sluice_status sl_engine_keep_rows(sluice_engine *e);

/* engine_sequences.c: finds the nodes that read lengths of sequences, of a graph that is lowered. */
sluice_status sl_engine_find_sequences(sluice_engine *e);
/* SLUICE_ERR_INPUT: lengths that frames do not have, labels that are none or cannot be aligned. The batch's arrays are all
 * there, and in their sizes. */
sluice_status sl_engine_check_sequences(const sluice_engine *e, const sluice_batch *batch);

/* engine_targets.c: finds the input that the loss counts its targets in, of a graph whose indices are found. */
sluice_status sl_engine_find_counted(sluice_engine *e);
/* Whether a checked batch, this rank's next, has the targets that the step was told, or the step needs not be told. */
sluice_status sl_engine_check_targets(const sluice_engine *e, const sluice_batch *batch, const char *call);
/* All ranks: weighs the next step by what its batches have, one for each of this rank's micro-batches. */
sluice_status sl_engine_weigh_batches(sluice_engine *e, const sluice_batch *batches, const char *call);
/* What the gradient of global micro-batch `j` of the step is seeded with (exact rules 1 and 12). */
float sl_engine_seed(const sluice_engine *e, uint64_t j);

/* engine_run.c: SLUICE_ERR_USAGE in a process forked from the engine's. */
sluice_status sl_engine_check_process(const sluice_engine *e, const char *call);
/* What every call begins with that runs an engine, or reads or writes what is in it. */
#define SL_NEED_ENGINE(engine_)                                                                                        \
    do {                                                                                                               \
        SL_NEED(engine_);                                                                                              \
        SL_TRY(sl_engine_check_process(engine_, __func__));                                                            \
    } while (0)
/* engine_run.c: SLUICE_ERR_USAGE after a call that failed halfway. */
sluice_status sl_engine_check_whole(const sluice_engine *e, const char *call);

/* engine_run.c: sluice_evaluate and sluice_predict in one run; the output is read where `out` is not NULL. */
sluice_status sl_engine_evaluate(sluice_engine *e, const sluice_batch *batch, double *loss, float *out);

/* engine_run.c, of a generation graph: runs the first `rows` of the batch's rows, and reads logits of the first `wanted` of
 * them, which may be 0. `out` has room for those; it is untouched where none are wanted. */
sluice_status sl_engine_decode(sluice_engine *e, const sluice_batch *batch, int64_t rows, int64_t wanted, float *out);

/* engine.c: the executor of the plan at hand. */
sluice_status sl_engine_open_executor(sluice_engine *e, const sl_settings *s);
/* engine_plan.c, all ranks: whether they have the same plan. */
sluice_status sl_engine_compare_plans(sluice_engine *e);

/* engine_speculation.c: of the first plan. `rehearses`: its steps are measured, and none is taken for clipped before. */
void sl_engine_begin_speculation(sluice_engine *e, bool rehearses);
/* Of a run that goes on: so many of its last steps in a row were neither clipped nor skipped. */
void sl_engine_resume_speculation(sluice_engine *e, uint64_t plain_steps);
/* Whether the step that begins speculates. The same on all ranks. */
bool sl_engine_may_speculate(const sluice_engine *e);
/* Before the backward in which updates are run: what they are given. */
void sl_engine_note_scalars(sluice_engine *e);
/* Once a step, when its norm is known: whether what was updated on speculation is what the update has to be; true where
 * nothing was. */
bool sl_engine_judge_speculation(sluice_engine *e, const sl_norm_result *norm);

/* engine_init.c: `poisoned` arenas also need their state zeroed. */
sluice_status sl_engine_init_tensors(sluice_engine *e, bool adapters_alone, bool poisoned);

#endif
