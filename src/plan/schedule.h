/* schedule.h: the working state of the schedule pass, shared by its two files: schedule.c walks the layers, emit.c
 * writes steps. */
#ifndef SL_PLAN_SCHEDULE_H
#define SL_PLAN_SCHEDULE_H

#include "plan/internal.h"

typedef struct sl_scheduler {
    sl_plan *p;
    const sl_usage *u;
    const sluice_graph *g;
    int prefetch;       /* levels, and for activations layers, fetched ahead */
    int *device_buffer; /* root -> device buffer that holds it now; -1 */
    int *host_buffer;   /* root -> host copy of an offloaded activation; -1 */
    int *staged;        /* layer -> device copy of its streamed parameters now; -1 */
} sl_scheduler;

/* ---- emit.c ---- */

/* A buffer of the given kind; device_buffer and friends are the caller's to set. Negative on failure. */
int sl_emit_buffer(sl_scheduler *s, sl_buffer_kind kind, sl_tier tier, uint64_t bytes, int layer, bool permanent);
/* Copies a whole buffer to another of the same size, on the stream that the direction asks for. */
sluice_status sl_emit_copy(sl_scheduler *s, int from, int to, int layer);
/* Runs a graph node on the compute stream; outputs get buffers. With `recomputed`, values kept from forward are not
 * replaced. */
sluice_status sl_emit_node(sl_scheduler *s, int node, bool recomputed);
/* Runs an update op on whole buffers; the stream follows the tier it works on. */
sluice_status sl_emit_update(sl_scheduler *s, sl_op op, int node, int layer, sl_tier tier, const sl_piece *inputs,
                             int input_count, const sl_piece *outputs, int output_count);
/* Lets an output take over the buffer of an input that dies in the same step, where the op allows it. */
void sl_merge_in_place(sl_plan *p);
/* first and last of every buffer that is not permanent, from the steps. */
void sl_plan_lifetimes(sl_plan *p);

#endif
