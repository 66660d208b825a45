/* tables.c: all rows of sparse tables, and those of them that a step computes with.
 *
 * A table lies in the host arena: the weights of the rows that this rank keeps, then each of their state slots, in f32.
 * What a step touches is a parameter of the graph, wherever and in whatever form the plan keeps it (tensors.c). Rows
 * come to it before a forward and go back after the update; in between all ranks have the same rows at the same places
 * of it. Rows are passed in sorted order and ranks keep consecutive ones, so what a rank has of them is one run. */
#include <string.h>

#include "core/alloc.h"
#include "runtime/exec_parts.h"

/* One tensor of a table: of a parameter its weights (slot -1) or a state slot. */
typedef struct table {
    sl_range rows; /* that this rank keeps */
    int64_t width;
    float *values; /* NULL: a device that computes nothing has none */
} table;

static float *memory_of(sl_exec *x, int parameter, bool snapshot)
{
    return snapshot ? x->table_snapshots[parameter] : x->tables[parameter];
}

static table table_of(sl_exec *x, int parameter, int slot, bool snapshot)
{
    const sl_shape *shape = &x->plan->graph->parameters[parameter].table;
    float *values = memory_of(x, parameter, snapshot);
    if (values != NULL) values += (slot + 1) * sl_plan_table_room(x->plan, parameter) * shape->dim[1];
    return (table){ sl_plan_table_rows(x->plan, parameter, x->plan->options.rank), shape->dim[1], values };
}

/* ---- by element ---- */

/* What this rank keeps of elements [first, first + count); *at: where the first of them is. */
static sl_range kept(const table *t, int64_t first, int64_t count, float **at)
{
    sl_range mine = { t->rows.first * t->width, t->rows.count * t->width };
    sl_range common = sl_range_common(mine, (sl_range){ first, count });
    *at = common.count > 0 ? t->values + (common.first - mine.first) : NULL;
    return common;
}

void sl_table_store(sl_exec *x, int parameter, int slot, int64_t first, int64_t count, const float *data)
{
    table t = table_of(x, parameter, slot, false);
    float *at;
    if (t.values == NULL || slot + 1 >= x->plan->tables[parameter].tensors) return;
    sl_range r = kept(&t, first, count, &at);
    if (r.count > 0) memcpy(at, data + (r.first - first), (size_t)r.count * sizeof *at);
}

void sl_table_fetch(sl_exec *x, int parameter, int slot, int64_t first, int64_t count, bool snapshot, float *out)
{
    table t = table_of(x, parameter, slot, snapshot);
    float *at;
    if (t.values == NULL || slot + 1 >= x->plan->tables[parameter].tensors) return;
    sl_range r = kept(&t, first, count, &at);
    if (r.count > 0) memcpy(out + (r.first - first), at, (size_t)r.count * sizeof *at);
}

void sl_tables_snapshot(sl_exec *x)
{
    for (int p = 0; p < x->plan->graph->parameter_count; p++) {
        int home = x->plan->tables[p].home;
        if (home >= 0 && x->tables[p] != NULL)
            memcpy(x->table_snapshots[p], x->tables[p], (size_t)x->plan->buffers[home].bytes);
    }
}

/* ---- between ranks ---- */

/* Runs of the piece that ranks share next; those of rank r are known to it. */
static sl_range *next_piece(sl_exec *x)
{
    return x->table_runs + x->table_pieces++ * x->plan->options.rank_count;
}

/* The next `count` elements of a rank's stream, in runs; what is behind its end is passed over. To `stream`, or from it. */
static void walk(sl_exec *x, int rank, sl_table_cursor *c, int64_t count, float *stream, bool out)
{
    const int ranks = x->plan->options.rank_count;
    while (count > 0 && c->piece < x->table_pieces) {
        const sl_range run = x->table_runs[c->piece * ranks + rank];
        int64_t n = run.count - c->done < count ? run.count - c->done : count;
        float *values = x->table_staging + run.first + c->done;
        if (n > 0) memcpy(out ? stream : values, out ? values : stream, (size_t)n * sizeof *stream);
        stream += n;
        count -= n;
        c->done += n;
        if (c->done == run.count) *c = (sl_table_cursor){ c->piece + 1, 0 };
    }
}

static int64_t longest_stream(const sl_exec *x)
{
    const int ranks = x->plan->options.rank_count;
    int64_t longest = 0;
    for (int r = 0; r < ranks; r++) {
        int64_t length = 0;
        for (int64_t i = 0; i < x->table_pieces; i++) length += x->table_runs[i * ranks + r].count;
        if (length > longest) longest = length;
    }
    return longest;
}

/* What ranks know of the pieces becomes known to all, in as few exchanges as there is room for: a rank that waits for
 * others waits for each of them. Every rank sends as much as the one with most. */
static sluice_status share_pieces(sl_exec *x)
{
    const int ranks = x->plan->options.rank_count, me = x->plan->options.rank;
    float *chunk = x->table_staging + x->table_staging_rows;
    const int64_t longest = longest_stream(x);
    memset(x->table_cursors, 0, (size_t)ranks * sizeof *x->table_cursors);
    for (int64_t done = 0; done < longest; done += SL_TABLE_CHUNK) {
        int64_t most = longest - done < SL_TABLE_CHUNK ? longest - done : SL_TABLE_CHUNK;
        size_t bytes = (size_t)most * sizeof *chunk;
        walk(x, me, &x->table_cursors[me], most, x->table_sent, true);
        SL_TRY(x->comm->ops->exchange(x->comm, "rows of sparse tables", x->table_sent, bytes, chunk));
        x->row_stats.sent_bytes += (uint64_t)bytes * (uint64_t)(ranks - 1);
        for (int r = 0; r < ranks; r++)
            if (r != me) walk(x, r, &x->table_cursors[r], most, chunk + r * most, false);
    }
    return SLUICE_OK;
}

/* ---- rows of a step ---- */

/* Where a tensor of a table is in the staging buffer. */
static int64_t staged_at(const sl_exec *x, int parameter, int slot)
{
    return x->table_offsets[parameter] + (slot + 1) * x->plan->graph->parameters[parameter].count;
}

static int tensors_of(const sl_exec *x, const sl_table_rows *t)
{
    return x->plan->tables[t->parameter].tensors;
}

static bool is_kept(const table *t, int32_t row)
{
    return row >= t->rows.first && row < t->rows.first + t->rows.count;
}

/* Of sorted rows those that each rank keeps. */
static void add_kept(sl_exec *x, const sl_table_rows *of, int64_t staged)
{
    int64_t width = x->plan->graph->parameters[of->parameter].table.dim[1], at = 0;
    sl_range *runs = next_piece(x);
    for (int r = 0; r < x->plan->options.rank_count; r++) {
        sl_range keeps = sl_plan_table_rows(x->plan, of->parameter, r);
        int64_t first = at;
        while (at < of->count && of->rows[at] < keeps.first + keeps.count) at++;
        runs[r] = (sl_range){ staged + first * width, (at - first) * width };
    }
}

static void stage_kept(sl_exec *x, const sl_table_rows *of, int slot)
{
    table t = table_of(x, of->parameter, slot, false);
    int64_t staged = staged_at(x, of->parameter, slot);
    for (int64_t i = 0; i < of->count; i++)
        if (is_kept(&t, of->rows[i]))
            memcpy(x->table_staging + staged + i * t.width, t.values + (of->rows[i] - t.rows.first) * t.width,
                   (size_t)t.width * sizeof *t.values);
    if (x->plan->options.rank_count > 1) add_kept(x, of, staged);
}

static void count_rows(sl_exec *x, const sl_table_rows *of)
{
    const sl_parameter *q = &x->plan->graph->parameters[of->parameter];
    x->row_stats.moved_bytes += (uint64_t)(of->count * q->table.dim[1] * tensors_of(x, of)) * sizeof(float);
}

static sluice_status bring_rows(sl_exec *x, const sl_table_rows *tables, int count)
{
    x->table_pieces = 0;
    for (int i = 0; i < count; i++)
        for (int slot = -1; slot + 1 < tensors_of(x, &tables[i]); slot++) stage_kept(x, &tables[i], slot);
    if (x->plan->options.rank_count > 1) SL_TRY(share_pieces(x));
    for (int i = 0; i < count; i++) {
        const sl_table_rows *of = &tables[i];
        int64_t width = x->plan->graph->parameters[of->parameter].table.dim[1];
        for (int slot = -1; slot + 1 < tensors_of(x, of); slot++)
            SL_TRY(sl_compact_store(x, of->parameter, slot, of->first * width, of->count * width,
                                    x->table_staging + staged_at(x, of->parameter, slot)));
        x->row_stats.rows += (uint64_t)of->count;
        count_rows(x, of);
    }
    return SLUICE_OK;
}

/* Range i of each rank among the first `elements` of a parameter; false: no rank has one. */
static bool add_updated(sl_exec *x, int parameter, int64_t elements, int64_t i, int64_t staged)
{
    const sl_plan *p = x->plan;
    const sl_parameter *q = &p->graph->parameters[parameter];
    const sl_shards *s = &p->layers[q->layer].shards;
    sl_range *runs = next_piece(x);
    bool any = false;
    for (int r = 0; r < p->options.rank_count; r++) {
        int64_t index = sl_shard_range_at(s, r, q->offset) + i;
        sl_range run = { 0, 0 };
        if (index < sl_shard_range_count(s, r))
            run = sl_range_common(sl_shard_range(s, r, index), (sl_range){ q->offset, elements });
        any = any || run.count > 0;
        runs[r] = (sl_range){ run.count > 0 ? staged + run.first - q->offset : 0, run.count };
    }
    return any;
}

static sluice_status stage_updated(sl_exec *x, const sl_table_rows *of, int slot, bool all)
{
    int64_t elements = of->count * x->plan->graph->parameters[of->parameter].table.dim[1];
    int64_t staged = staged_at(x, of->parameter, slot);
    SL_TRY(sl_compact_fetch(x, of->parameter, slot, elements, all, x->table_staging + staged));
    for (int64_t i = 0; !all && add_updated(x, of->parameter, elements, i, staged); i++) {
    }
    return SLUICE_OK;
}

static void keep_tensor(sl_exec *x, const sl_table_rows *of, int slot)
{
    table t = table_of(x, of->parameter, slot, false);
    const float *staged = x->table_staging + staged_at(x, of->parameter, slot);
    for (int64_t i = 0; i < of->count; i++)
        if (is_kept(&t, of->rows[i]))
            memcpy(t.values + (of->rows[i] - t.rows.first) * t.width, staged + i * t.width,
                   (size_t)t.width * sizeof *staged);
}

static sluice_status keep_rows(sl_exec *x, const sl_table_rows *tables, int count)
{
    const sluice_graph *g = x->plan->graph;
    const bool all = x->plan->options.rank_count == 1 || x->plan->options.stage == 0; /* every rank has updated all */
    x->table_pieces = 0;
    for (int i = 0; i < count; i++)
        for (int slot = -1; g->parameters[tables[i].parameter].trainable && slot + 1 < tensors_of(x, &tables[i]);
             slot++)
            SL_TRY(stage_updated(x, &tables[i], slot, all));
    if (!all) SL_TRY(share_pieces(x));
    for (int i = 0; i < count; i++) {
        if (!g->parameters[tables[i].parameter].trainable) continue;
        for (int slot = -1; slot + 1 < tensors_of(x, &tables[i]); slot++) keep_tensor(x, &tables[i], slot);
        count_rows(x, &tables[i]);
    }
    return SLUICE_OK;
}

/* What the disk moves meanwhile is for the rows alone: nothing else is under way. */
static sluice_status move_rows(sl_exec *x, sluice_status (*work)(sl_exec *, const sl_table_rows *, int),
                               const sl_table_rows *tables, int count)
{
    sl_device_stats before = { .kernel_calls = 0 }, after = { .kernel_calls = 0 };
    if (x->table_staging == NULL) return SLUICE_OK;
    SL_TRY(sl_exec_settle(x));
    sl_exec_disk_stats(x, &before);
    sluice_status st = work(x, tables, count);
    sl_exec_disk_stats(x, &after);
    x->row_stats.disk_read += after.moved[SL_LINK_DISK_READ] - before.moved[SL_LINK_DISK_READ];
    x->row_stats.disk_written += after.moved[SL_LINK_DISK_WRITE] - before.moved[SL_LINK_DISK_WRITE];
    return st;
}

sluice_status sl_exec_bring_rows(sl_exec *x, const sl_table_rows *tables, int count)
{
    return move_rows(x, bring_rows, tables, count);
}

sluice_status sl_exec_keep_rows(sl_exec *x, const sl_table_rows *tables, int count)
{
    return move_rows(x, keep_rows, tables, count);
}

void sl_exec_row_stats(const sl_exec *x, sl_row_stats *out)
{
    *out = x->row_stats;
}

/* ---- life ---- */

static sluice_status resolve(sl_exec *x, int buffer, float **out)
{
    void *address = NULL;
    if (buffer < 0) return SLUICE_OK;
    sl_span span = sl_plan_span(x->plan, (sl_piece){ buffer, 0, x->plan->buffers[buffer].bytes });
    SL_TRY(x->backend->resolve(x->device, "sparse table", span, &address));
    *out = address;
    return SLUICE_OK;
}

/* Places of the parameter that no row of a step has yet are computed with too, to no effect. */
static sluice_status clear_compact(sl_exec *x, int parameter)
{
    const sl_parameter *q = &x->plan->graph->parameters[parameter];
    memset(x->table_staging, 0, (size_t)q->count * sizeof(float));
    for (int slot = -1; slot + 1 < x->plan->tables[parameter].tensors; slot++)
        SL_TRY(sl_compact_store(x, parameter, slot, 0, q->count, x->table_staging));
    return SLUICE_OK;
}

/* Pieces that ranks share at most: of each tensor one before a forward; after an update as many as some rank has ranges of
 * it, and one that is empty. */
static int64_t most_pieces(const sl_exec *x)
{
    const sl_plan *p = x->plan;
    int64_t pieces = 1;
    for (int i = 0; i < p->graph->parameter_count; i++) {
        if (p->tables[i].home < 0) continue;
        const sl_shards *s = &p->layers[p->graph->parameters[i].layer].shards;
        int64_t ranges = 1;
        for (int r = 0; r < p->options.rank_count; r++)
            if (sl_shard_range_count(s, r) > ranges) ranges = sl_shard_range_count(s, r);
        pieces += (ranges + 1) * p->tables[i].tensors;
    }
    return pieces;
}

static sluice_status allocate(sl_exec *x)
{
    const sl_plan *p = x->plan;
    size_t parameters = (size_t)p->graph->parameter_count + 1, ranks = (size_t)p->options.rank_count;
    x->tables = sl_alloc_array(parameters, sizeof *x->tables, "sparse tables");
    x->table_snapshots = sl_alloc_array(parameters, sizeof *x->table_snapshots, "sparse tables");
    x->table_offsets = sl_alloc_array(parameters, sizeof *x->table_offsets, "sparse tables");
    if (x->tables == NULL || x->table_snapshots == NULL || x->table_offsets == NULL) return SLUICE_ERR_NO_MEMORY;
    if (p->table_staging < 0 || ranks == 1) return SLUICE_OK;
    x->table_runs = sl_alloc_array((size_t)most_pieces(x) * ranks, sizeof *x->table_runs, "rows of tables");
    x->table_cursors = sl_alloc_array(ranks, sizeof *x->table_cursors, "rows of tables");
    x->table_sent = sl_alloc_array((size_t)SL_TABLE_CHUNK, sizeof *x->table_sent, "rows of tables");
    return x->table_runs == NULL || x->table_cursors == NULL || x->table_sent == NULL ? SLUICE_ERR_NO_MEMORY
                                                                                      : SLUICE_OK;
}

sluice_status sl_tables_open(sl_exec *x)
{
    const sl_plan *p = x->plan;
    SL_TRY(allocate(x));
    if (p->table_staging < 0) return SLUICE_OK;
    SL_TRY(resolve(x, p->table_staging, &x->table_staging));
    for (int i = 0; i < p->graph->parameter_count; i++) {
        SL_TRY(resolve(x, p->tables[i].home, &x->tables[i]));
        SL_TRY(resolve(x, p->tables[i].snapshot, &x->table_snapshots[i]));
        if (x->tables[i] != NULL) SL_TRY(clear_compact(x, i));
        x->table_offsets[i] = x->table_staging_rows;
        if (p->tables[i].home >= 0) x->table_staging_rows += p->graph->parameters[i].count * p->tables[i].tensors;
    }
    return SLUICE_OK;
}

void sl_tables_close(sl_exec *x)
{
    sl_free((void *)x->tables);
    sl_free((void *)x->table_snapshots);
    sl_free(x->table_offsets);
    sl_free(x->table_runs);
    sl_free(x->table_cursors);
    sl_free(x->table_sent);
}
