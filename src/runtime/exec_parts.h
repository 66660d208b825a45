/* exec_parts.h: what the files of the runtime share. Not for other folders. */
#ifndef SL_RUNTIME_EXEC_PARTS_H
#define SL_RUNTIME_EXEC_PARTS_H

#include "core/thread.h"
#include "runtime/exec.h"

#define SL_COLLECTIVE_NAME_BYTES 96

typedef struct sl_tracer sl_tracer;

/* Running statistics as they are after the newest step, as the micro-batches of the step at hand have changed them, and as
 * a save in the background writes them. */
typedef enum {
    SL_STATISTICS_KEPT,
    SL_STATISTICS_STEP,
    SL_STATISTICS_SNAPSHOT,
    SL_STATISTICS_COPIES
} sl_statistics_copy;

/* In the order of sluice_graph.running; nothing where that is empty. All owned. */
typedef struct sl_running_values {
    int64_t numbers; /* of all: two for each channel */
    int64_t *first;  /* of each batch norm: its means, then its variances; behind the last one: numbers */
    float *values[SL_STATISTICS_COPIES];
    uint64_t *batches[SL_STATISTICS_COPIES]; /* micro-batches that changed them */
    float *mine;                             /* this rank's of a micro-batch; then those of all ranks */
    bool begun;                              /* a micro-batch of the step at hand has come */
    bool stale;                              /* the device has others */
    bool frozen_stale;                       /* and of frozen ones, too */
} sl_running_values;

/* How far what a rank shares of tables was walked: its runs of all pieces, one after the other. */
typedef struct sl_table_cursor {
    int64_t piece, done; /* done: elements of the piece */
} sl_table_cursor;

struct sl_exec {
    const sl_plan *plan; /* borrowed */
    const sl_backend *backend;
    sl_device *device; /* owned */
    sl_comm *comm;     /* borrowed */
    sl_progress progress;
    bool attached;                /* the comm knows the device */
    bool busy;                    /* steps may be under way */
    bool uses[SL_STREAM_COUNT];   /* the plan has steps there */
    bool passes[SL_STREAM_COUNT]; /* and micro-batches: sl_plan_joined_streams */
    unsigned holds;               /* conditions of steps: sl_when */
    pthread_mutex_t blocks;       /* held while 8-bit blocks are stored, of which neighbours may share one */
    sl_pool *own_pool;            /* owned; of one thread, where the device has none */
    double seconds[SL_SEGMENT_COUNT];
    sl_shape flat[SL_MAX_OPERANDS]; /* shapes that no value has, refilled for each call */
    /* Of what has two versions (sl_buffer.twin), the twin is the one that counts. It changes with every commit. */
    bool changed;
    sl_collective *collectives[2];           /* by `changed`. Owned; per plan step, part_count 0 where it is none */
    sl_comm_part *parts[2];                  /* owned; what they point into, parallel to plan->parts */
    char (*names)[SL_COLLECTIVE_NAME_BYTES]; /* owned; one per collective */
    uint64_t sequence;                       /* collectives started so far */
    const uint8_t **snapshots;               /* owned; per layer and tensor, where a snapshot lies; NULL: none */
    const sl_update_rule **rules;            /* owned; per layer; NULL: not trained */
    const void **sent;         /* owned; per value: the data of an input that was sent ahead; NULL: none */
    bool *sent_early;          /* owned; per value: an input that only forwards read */
    sl_tracer *tracer;         /* owned; NULL: nothing is traced */
    struct sl_exec_disk *disk; /* owned; NULL: the plan has no disk tier, or the device keeps it */
    sl_running_values running;
    /* tables.c, of plans with sparse tables. Addresses in the host arena, by parameter; NULL: it is none, or the device
     * computes nothing. */
    float **tables, **table_snapshots; /* owned lists */
    /* Rows of a step: of each table at its offset each tensor, table_staging_rows elements in all; then a chunk of each
     * rank. */
    float *table_staging;
    int64_t *table_offsets, table_staging_rows; /* owned list */
    /* Of several ranks, all owned: what they share next, table_pieces times a run of each; how far each was walked; a chunk
     * that is sent. */
    sl_range *table_runs;
    int64_t table_pieces;
    sl_table_cursor *table_cursors;
    float *table_sent;
    sl_row_stats row_stats;
};

/* ---- exec.c ---- */

/* Where a piece of a buffer lies now: of the version that counts, or where a twin is named of the other. */
sl_span sl_exec_span(const sl_exec *x, sl_piece piece);

/* ---- tensors.c: the parameter that holds the rows of a step, and its state, by element ---- */

sluice_status sl_compact_store(sl_exec *x, int parameter, int slot, int64_t first, int64_t count, const float *data);
/* The first `count` elements; `all`: this rank keeps all of them, not its shard alone. */
sluice_status sl_compact_fetch(sl_exec *x, int parameter, int slot, int64_t count, bool all, float *out);

/* ---- tables.c ---- */

sluice_status sl_tables_open(sl_exec *x);
void sl_tables_close(sl_exec *x); /* what was not opened is fine */
/* As sl_exec_store and sl_exec_fetch, of all rows of a table. */
void sl_table_store(sl_exec *x, int parameter, int slot, int64_t first, int64_t count, const float *data);
void sl_table_fetch(sl_exec *x, int parameter, int slot, int64_t first, int64_t count, bool snapshot, float *out);
void sl_tables_snapshot(sl_exec *x);

/* ---- exec_disk.c ---- */

sluice_status sl_exec_disk_open(sl_exec *x, const sl_swap_options *options);
void sl_exec_disk_close(sl_exec *x); /* what was not opened is fine */
/* Whether a copy of the plan is from or to swap files; and queues it. */
bool sl_exec_disk_copies(const sl_exec *x, const sl_step *s);
sluice_status sl_exec_disk_copy(sl_exec *x, const sl_step *s, const sl_run_context *context);
/* Whether a buffer lives in swap files; and its bytes, at any place, by any thread while nothing is under way. */
bool sl_exec_disk_has(const sl_exec *x, int buffer);
sluice_status sl_exec_disk_get(sl_exec *x, sl_piece q, void *out);
sluice_status sl_exec_disk_put(sl_exec *x, sl_piece q, const void *data);
void sl_exec_disk_stats(const sl_exec *x, sl_device_stats *out);

/* ---- statistics.c ---- */

sluice_status sl_statistics_open(sl_exec *x);
void sl_statistics_close(sl_exec *x); /* what was not opened is fine */
/* Before an evaluation, when nothing is under way. */
sluice_status sl_statistics_show(sl_exec *x);
/* The same before a training step, where a frozen batch norm would read others. */
sluice_status sl_statistics_show_frozen(sl_exec *x);
void sl_statistics_snapshot(sl_exec *x);

/* ---- trace.c; of an executor that traces ---- */

/* A run of a segment begins; around each of its steps, with nothing but the step in between. */
void sl_tracer_run(sl_exec *x, sl_segment_kind segment, const sl_run_context *context, bool joined);
sluice_status sl_tracer_before(sl_exec *x, const sl_step *s);
sluice_status sl_tracer_after(sl_exec *x, const sl_step *s);
void sl_tracer_drop(sl_exec *x); /* nothing traced is fine */

#endif
