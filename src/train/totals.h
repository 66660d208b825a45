/* totals.h: what a run needs and moves, over all its ranks. */
#ifndef SL_TRAIN_TOTALS_H
#define SL_TRAIN_TOTALS_H

#include "machine/ranks.h"
#include "plan/plan.h"

/* Peaks, overhead, state and seconds are the largest over ranks; moved and comm bytes are sums over ranks of one
 * step. */
typedef struct sl_run_totals {
    uint64_t peak[SL_TIER_COUNT];
    uint64_t overhead;
    uint64_t state_parameters, state_gradients, state_optimizer;
    uint64_t moved[SL_LINK_COUNT];
    uint64_t gather, reduce, norm;
    uint64_t table_rows;              /* of sparse tables: touched, of a plan at most; the same on all ranks */
    uint64_t table_bytes, table_sent; /* brought and taken back; sent to other ranks, which a plan does not know */
    uint64_t table_disk_read, table_disk_written; /* for these rows; of a plan at most */
    double seconds;
    double data_seconds; /* measured: of them, filling batches or waiting for them */
} sl_run_totals;

/* What one rank's plan predicts. */
void sl_totals_of_plan(const sl_plan *p, sl_run_totals *out);
void sl_totals_add(sl_run_totals *sum, const sl_run_totals *one);
/* All ranks: *totals of this rank becomes that of all. */
sluice_status sl_totals_share(sl_ranks *r, sl_run_totals *totals);
/* Predicted for a job of p->options.rank_count ranks, without running one: every rank is planned where there are at
 * most SL_PLANNED_RANKS; otherwise the one that owns most, and sums are its numbers times the ranks. `weights` as in
 * the plan's options. */
#define SL_PLANNED_RANKS 8
sluice_status sl_totals_predict(const sl_plan *p, const double *weights, sl_run_totals *out);
/* Bytes by tier as the public interface names them. */
sluice_memory sl_totals_memory(const uint64_t bytes[SL_TIER_COUNT]);
void sl_totals_to_event(const sl_run_totals *t, sluice_event *event);

#endif
