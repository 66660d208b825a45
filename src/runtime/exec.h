/* exec.h: follows a plan. Decides nothing: order, addresses, streams and waits are the plan's. */
#ifndef SL_RUNTIME_EXEC_H
#define SL_RUNTIME_EXEC_H

#include "backend/backend.h"
#include "comm/comm.h"
#include "plan/plan.h"

typedef struct sl_exec sl_exec;

typedef struct sl_exec_options {
    const sl_backend *backend;
    sl_device_options device;
    sl_comm *comm; /* borrowed */
} sl_exec_options;

/* Opens the device and reserves the arenas at the plan's peaks. `plan` is borrowed. No allocation after this. */
sluice_status sl_exec_create(const sl_plan *plan, const sl_exec_options *options, sl_exec **out);
void sl_exec_destroy(sl_exec *x);
/* Caller's data of graph input `value` for the next FORWARD or EVALUATE. */
sluice_status sl_exec_set_input(sl_exec *x, int value, const void *data, size_t bytes);
/* Runs one segment to its end. */
sluice_status sl_exec_run(sl_exec *x, sl_segment_kind segment, const sl_run_context *context);
/* Results and state, byte for byte. `bytes` is checked against the span. */
sluice_status sl_exec_read(sl_exec *x, sl_span span, void *out);
sluice_status sl_exec_write(sl_exec *x, sl_span span, const void *data);
/* Writes a parameter's master, and the device's working copy where the plan keeps one. */
sluice_status sl_exec_write_parameter(sl_exec *x, int parameter, int64_t first, int64_t count, const float *data);
void sl_exec_stats(const sl_exec *x, sl_device_stats *device, sl_comm_stats *comm);
/* Seconds each segment took when it ran last. */
double sl_exec_seconds(const sl_exec *x, sl_segment_kind segment);
const sl_plan *sl_exec_plan(const sl_exec *x);

#endif
