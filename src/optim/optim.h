/* optim.h: optimizers as graph nodes, and the numbers they need each step. */
#ifndef SL_OPTIM_OPTIM_H
#define SL_OPTIM_OPTIM_H

#include "ir/graph.h"
#include "sluice.h"

/* beta2 while a schedule cycles beta1: DeepSpeed's OneCycle sets both betas, to (momentum, 0.99). */
#define SL_CYCLE_BETA2 0.99

/* One parameter group: every parameter whose name matches `pattern` (fnmatch) and no earlier group's. Negative:
 * inherit. */
typedef struct sl_group_options {
    const char *pattern; /* or the preset "no_decay": norms and biases */
    double lr_scale;     /* the group's lr / the optimizer's lr; 1: the same */
    double weight_decay; /* negative: the optimizer's, or 0 for the preset "no_decay" */
} sl_group_options;

typedef struct sl_optim_options {
    sluice_optimizer optimizer;
    double clip;                    /* global norm, 0: none */
    const sl_group_options *groups; /* borrowed during create */
    int group_count;
    sluice_states states; /* how the state is kept: fp32, or narrower where sl_optim_allows_compact */
} sl_optim_options;

typedef struct sl_optim sl_optim;

/* The graph is finished and differentiated. Appends to it, per layer with trainable parameters in graph order:
 * SL_OP_NORM_LEAVES, then one SL_OP_NORM_FINISH, then per layer SL_OP_UPDATE. (SL_OP_ACCUMULATE is the plan's
 * business.) The nodes have no operands: the plan binds the layers' flat buffers (plan/plan.h). They borrow the update
 * rules, so the optimizer must outlive the graph's use. A group that matches nothing is SLUICE_ERR_USAGE and named. On
 * failure the graph is as it was.
 *
 * Mathematics: SGD, Adagrad, Adam, AdamW and RMSprop as torch.optim; LAMB as DeepSpeed's FusedLamb (epsilon outside the root,
 * bias correction in the step, trust ratio within bounds); Lion as DeepSpeed's with sign(0) = 0; LARS as in its paper:
 * momentum' = momentum * m + lr * local * (g + decay * w), local = trust * |w| / (|g| + decay * |w|), 1 where either
 * norm is zero.
 *
 * Sparse tables (ir/sparse.h): SGD without momentum and Adagrad are what they are for dense ones; Adam and AdamW become
 * torch.optim.SparseAdam, with moments that change in the steps that touch their row, and bias corrections by the steps of
 * the run. Everything else, and any weight decay on them, is SLUICE_ERR_USAGE. */
sluice_status sl_optim_create(sluice_graph *g, const sl_optim_options *options, sl_optim **out);
void sl_optim_destroy(sl_optim *o);

/* What an optimizer is, for those who have none yet. `kind` is from 0 to sl_optim_count() - 1. */
int sl_optim_count(void);
const char *sl_optim_name(sluice_optimizer_kind kind); /* "AdamW"; DeepSpeed's name where it has one */
/* Whether it scales a parameter's step by norms of the whole parameter, as LAMB and LARS do: ranks must not cut
 * parameters then (partition "owner"). */
bool sl_optim_needs_whole_parameters(sluice_optimizer_kind kind);
/* Whether the state may be kept in fewer than 32 bits. Not for LAMB and LARS: random rounding of the moments would
 * shift their norms. */
bool sl_optim_allows_compact(sluice_optimizer_kind kind);
sl_form sl_optim_state_form(sluice_states states);

/* State tensors per parameter: SGD 0 or 1, Adam 2 or 3, ... and their checkpoint names ("exp_avg"). */
int sl_optim_slots(const sl_optim *o);
const char *sl_optim_slot_name(const sl_optim *o, int slot);
int sl_optim_group_count(const sl_optim *o);
int sl_optim_group_of(const sl_optim *o,
                      int parameter); /* 0: no given group took it; i: the ith given one; -1: frozen */
/* Fills context->groups, group_count and clip for optimizer step `t` (from 1; counts applied steps) at learning rate
 * `lr` and, for schedules that cycle it, beta1 = `momentum` and beta2 = SL_CYCLE_BETA2 (`momentum` < 0: unchanged;
 * optimizers without betas keep theirs, as under DeepSpeed). In double, rounded once. */
void sl_optim_scalars(const sl_optim *o, uint64_t t, double lr, double momentum, sl_run_context *context);
/* Bytes an update reads and writes per element, for cost: f32 Adam moves 28. */
double sl_optim_bytes_per_element(const sl_optim *o, sluice_dtype precision, sluice_dtype wire, sl_form state_form);

/* ---- Learning-rate schedules, with DeepSpeed's parameters and formulas
 * ------------------------------------------------ */

typedef enum {
    SL_SCHEDULE_CONSTANT,
    SL_SCHEDULE_WARMUP,
    SL_SCHEDULE_WARMUP_DECAY,
    SL_SCHEDULE_WARMUP_COSINE,
    SL_SCHEDULE_ONE_CYCLE,
    SL_SCHEDULE_RANGE_TEST,
    SL_SCHEDULE_PLATEAU
} sl_schedule_kind;

/* One struct for all kinds; each reads its own fields. Defaults: DeepSpeed's code. */
typedef struct sl_schedule_options {
    sl_schedule_kind kind;
    double base_lr; /* the optimizer's */
    /* WarmupLR, WarmupDecayLR, WarmupCosineLR */
    double warmup_min_lr, warmup_max_lr; /* max < 0: base_lr */
    int64_t warmup_num_steps, total_num_steps;
    double warmup_ratio; /* above 0: sl_schedule_place_warmup makes warmup_num_steps of it */
    bool warmup_linear;  /* otherwise logarithmic */
    double warmup_min_ratio, cos_min_ratio;
    /* LRRangeTest */
    double range_min_lr, range_step_rate;
    int64_t range_step_size;
    bool range_staircase;
    /* OneCycle */
    double cycle_min_lr, cycle_max_lr, decay_lr_rate;
    int64_t cycle_first_step_size, cycle_second_step_size;     /* second < 0: as first */
    int64_t cycle_first_stair_count, cycle_second_stair_count; /* second < 0: as first */
    int64_t decay_step_size;
    bool cycle_momentum;
    double cycle_min_mom, cycle_max_mom, decay_mom_rate;
    /* reduction on plateau (as torch.optim.lr_scheduler.ReduceLROnPlateau, mode min) */
    double factor, threshold, min_lr;
    bool threshold_absolute;
    int64_t patience, cooldown;
} sl_schedule_options;

void sl_schedule_options_init(sl_schedule_options *o, sl_schedule_kind kind, double base_lr);

/* The only state a schedule has; part of the checkpoint. Plain data: zero-initialise, then sl_schedule_start. */
typedef struct sl_schedule_state {
    double plateau_best, plateau_lr;
    int64_t plateau_bad, plateau_cooldown;
} sl_schedule_state;

/* With warmup_ratio: the steps of warm-up in a run of so many; 0 or fewer: not known yet, which changes nothing. */
void sl_schedule_place_warmup(sl_schedule_options *o, int64_t steps);
sluice_status sl_schedule_check(const sl_schedule_options *o); /* SLUICE_ERR_USAGE naming the parameter */
void sl_schedule_start(const sl_schedule_options *o, sl_schedule_state *s);
/* Rate for step `step` (from 1), exactly as DeepSpeed's optimizer would use it at that step. */
double sl_schedule_lr(const sl_schedule_options *o, const sl_schedule_state *s, uint64_t step);
/* Momentum (beta1) at that step, or a negative number where the schedule leaves it alone. */
double sl_schedule_momentum(const sl_schedule_options *o, uint64_t step);
/* Tells a plateau schedule of an evaluation loss; the others ignore it. */
void sl_schedule_observe(const sl_schedule_options *o, sl_schedule_state *s, double loss);

#endif
