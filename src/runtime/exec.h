/* exec.h: follows a plan. Decides nothing: order, addresses, streams and waits are the plan's. */
#ifndef SL_RUNTIME_EXEC_H
#define SL_RUNTIME_EXEC_H

#include "backend/backend.h"
#include "comm/comm.h"
#include "core/phase.h"
#include "core/swap.h"
#include "core/thread.h"
#include "plan/plan.h"

typedef struct sl_exec sl_exec;

#define SL_SLOT_VISIBLE (-2)
#define SL_SLOT_MASTER  (-3)

typedef struct sl_exec_options {
    const sl_backend *backend;
    sl_device_options device;
    sl_comm *comm;        /* borrowed */
    sl_progress progress; /* of what takes a while */
    sl_swap_options swap; /* of the disk tier; bytes are the plan's. No folders: the device keeps that tier, too */
} sl_exec_options;

/* Opens the device and reserves the arenas at the plan's peaks. `plan` is borrowed. No allocation after this. */
sluice_status sl_exec_create(const sl_plan *plan, const sl_exec_options *options, sl_exec **out);
void sl_exec_destroy(sl_exec *x);
/* Caller's data of graph input `value` for the next FORWARD or EVALUATE. */
sluice_status sl_exec_set_input(sl_exec *x, int value, const void *data, size_t bytes);
/* Sends it ahead, beside what the device is doing, where that is another processor and nothing reads the input but forwards,
 * of which none may be under way; otherwise does nothing. The data stays as it is until the sl_exec_set_input with it, which
 * must follow and then has only to wait, or until sl_exec_forget_sent. */
sluice_status sl_exec_send_input(sl_exec *x, int value, const void *data, size_t bytes);
/* What was sent is not what comes next. */
void sl_exec_forget_sent(sl_exec *x);
/* Inputs that lie in this memory are read in place until it is unpinned: it stays as it is until a result of the run that takes
 * them was read. */
void sl_exec_pin(sl_exec *x, void *memory, size_t bytes);
void sl_exec_unpin(sl_exec *x, void *memory);
/* The conditions of steps that hold in the segments run from now on: sl_when of plan.h. None at first. All ranks alike. */
void sl_exec_hold(sl_exec *x, unsigned holds);
/* What was updated on speculation counts from now on. After UPDATE or REDO, and before anything else is run. */
void sl_exec_commit(sl_exec *x);
/* Queues one segment, and waits for its result: the loss of FORWARD, the norm of UPDATE, everything of EVALUATE. The
 * rest may still be under way on return; what fails of it is reported by a later call. */
sluice_status sl_exec_run(sl_exec *x, sl_segment_kind segment, const sl_run_context *context);
/* Of a plan with delayed updates. UPDATE of a step whose update the next step is to see: the same steps, those that publish
 * last. */
sluice_status sl_exec_update_promptly(sl_exec *x, const sl_run_context *context);
/* Of such a plan: shows what the newest update made, without another one. */
sluice_status sl_exec_publish(sl_exec *x, const sl_run_context *context);
/* Waits until nothing is under way. */
sluice_status sl_exec_settle(sl_exec *x);
/* The status of a call that failed. Where it says that the ranks have ended, and they have because the disk of this one failed:
 * that failure, with its message. NULL is fine. */
sluice_status sl_exec_cause(const sl_exec *x, sluice_status st);
/* The result of the segment run last, from a buffer the plan names for it: waits for nothing more. */
sluice_status sl_exec_read_result(sl_exec *x, int buffer, void *out, size_t bytes);
/* Any span, byte for byte, when nothing is under way any more. */
sluice_status sl_exec_read(sl_exec *x, sl_span span, void *out);
/* A parameter's values (slot < 0), or one of its state tensors, by element. Where updates are delayed its values are those
 * with all updates; the weights that the next step reads, which lack the newest one, are SL_SLOT_VISIBLE. To store values
 * of slot -1 sets both, of SL_SLOT_MASTER all but those that the next step reads.
 * store: every copy this rank keeps of elements [first, first + count); what it does not keep is passed over.
 * fetch: those of them that this rank owns (sl_plan_owned), to their places in `out`; the rest of `out` is left alone.
 * Both between segments only. When nothing is under way (sl_exec_settle), several threads may call them at a time, store
 * for other elements each. */
sluice_status sl_exec_store(sl_exec *x, int parameter, int slot, int64_t first, int64_t count, const float *data);
sluice_status sl_exec_fetch(sl_exec *x, int parameter, int slot, int64_t first, int64_t count, float *out);
/* A parameter's values as bf16, at any address; to store them gives the bits that storing them as float gives. Only where
 * sl_exec_takes_bf16 says that the plan keeps nothing of the parameter in another form. */
bool sl_exec_takes_bf16(const sl_exec *x, int parameter);
sluice_status sl_exec_store_bf16(sl_exec *x, int parameter, int64_t first, int64_t count, const void *data);
/* The threads of the host, for work of the caller's between segments. Not while anything is under way. */
sl_pool *sl_exec_pool(const sl_exec *x);
/* Copies what this rank owns aside (needs plan option snapshot); from then on fetch_snapshot reads that copy, from any
 * thread, while training goes on. */
sluice_status sl_exec_snapshot(sl_exec *x);
sluice_status sl_exec_fetch_snapshot(sl_exec *x, int parameter, int slot, int64_t first, int64_t count, float *out);

/* ---- tables.c: rows of sparse tables (ir/sparse.h) that a step computes with. All ranks, between segments ---- */

/* Some rows of a table. In the parameter that stands for it in the graph they are rows first, first + 1, .. */
typedef struct sl_table_rows {
    int parameter;
    const int32_t *rows;
    int64_t count, first;
} sl_table_rows;
/* Rows of tables, each in increasing order, and their state come to the parameters; each table once. */
sluice_status sl_exec_bring_rows(sl_exec *x, const sl_table_rows *tables, int count);
/* After an update: rows, in any order and from the first one on, are what the parameters have become. */
sluice_status sl_exec_keep_rows(sl_exec *x, const sl_table_rows *tables, int count);
/* Since the executor was created. */
typedef struct sl_row_stats {
    uint64_t rows;        /* brought */
    uint64_t moved_bytes; /* of weights and state, brought and taken back */
    uint64_t sent_bytes;  /* of these by this rank to others */
    /* For them, of the disk tier where a parameter's tensors live there: in whole units, also of their neighbours. */
    uint64_t disk_read, disk_written;
} sl_row_stats;
void sl_exec_row_stats(const sl_exec *x, sl_row_stats *out);

/* ---- statistics.c: running statistics of batch norms (sluice_graph.running), the same on all ranks ---- */

/* All ranks, when the forward of a micro-batch is done: what it left of each batch norm changes the statistics, that of
 * rank 0 first. Nothing where there is no batch norm. */
sluice_status sl_exec_take_statistics(sl_exec *x);
/* The step at hand has ended: they are the ones from now on. Or it is given up: they are as before it. */
void sl_exec_keep_statistics(sl_exec *x);
void sl_exec_drop_statistics(sl_exec *x);
/* By element, in f32: the means, the variances, or (SL_NAME_BATCHES) how many micro-batches changed them, as two numbers:
 * the count modulo SL_BATCHES_LOW, and the rest of it divided by that. Several threads may call them at a time when
 * nothing is under way, store for other elements each; with `snapshot` fetch reads what sl_exec_snapshot copied. */
#define SL_BATCHES_LOW ((uint64_t)1 << 24)
int64_t sl_exec_running_count(const sl_exec *x, int running, int name);
void sl_exec_fetch_running(sl_exec *x, bool snapshot, int running, int name, int64_t first, int64_t count, float *out);
void sl_exec_store_running(sl_exec *x, int running, int name, int64_t first, int64_t count, const float *data);
/* Host memory that they take outside the arenas. */
uint64_t sl_statistics_bytes(const sluice_graph *g, int ranks);

/* Host memory that a disk tier of so many bytes takes outside the arenas. */
uint64_t sl_exec_disk_memory(uint64_t bytes);
/* What the disk reads and writes for rows of sparse tables is in sl_exec_row_stats, and not here. */
void sl_exec_stats(const sl_exec *x, sl_device_stats *device, sl_comm_stats *comm);
/* Seconds until the result of each segment was there when it ran last. */
double sl_exec_seconds(const sl_exec *x, sl_segment_kind segment);
const sl_plan *sl_exec_plan(const sl_exec *x);
sl_comm *sl_exec_comm(const sl_exec *x);
const sl_progress *sl_exec_progress(const sl_exec *x);

#endif
