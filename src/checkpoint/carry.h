/* carry.h: training state in memory, on its way from one executor to another of the same model.
 *
 * Each rank keeps what it owned; when it is brought to the other executor, ranks exchange what that one keeps where. So the
 * two may have other placements, stages and partitions. Nothing of the first executor, nor of its communicator, is needed
 * in between. */
#ifndef SL_CHECKPOINT_CARRY_H
#define SL_CHECKPOINT_CARRY_H

#include "checkpoint/state.h"

typedef struct sl_carried sl_carried;

/* All ranks, as with everything here: the outcome is the same on all of them. */
sluice_status sl_state_carry_out(const sl_state *state, sl_carried **out);
/* Bytes a second at which this rank takes its state out, by a sample of it that takes a quarter of a second or little more; 0:
 * it owns nothing. For a rank that is alone. */
sluice_status sl_state_carry_rate(const sl_state *state, double *bytes_per_second);
/* Frees what it has brought as it goes. After a failure some of the state is there. */
sluice_status sl_state_carry_in(sl_carried *c, const sl_state *state);
void sl_carried_free(sl_carried *c); /* NULL is fine */

/* engine_state.c: the same of a running engine, parameters and state. */
sluice_status sl_carry_out(sl_exec *x, const sl_checkpoint_slots *slots, sl_carried **out);
sluice_status sl_carry_in(sl_carried *c, sl_exec *x, const sl_checkpoint_slots *slots);
/* Nothing of it may be under way (sl_exec_settle). */
sluice_status sl_carry_rate(sl_exec *x, const sl_checkpoint_slots *slots, double *bytes_per_second);

#endif
