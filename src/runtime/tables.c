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

/* runs[r] of `data` are known to rank r; they become known to all. As much at a time as there is room for. */
static sluice_status share_runs(sl_exec *x, const sl_range *runs, float *data)
{
    int ranks = x->plan->options.rank_count, me = x->plan->options.rank;
    float *chunk = x->table_staging + x->table_staging_rows;
    int64_t longest = 0;
    for (int r = 0; r < ranks; r++) longest = runs[r].count > longest ? runs[r].count : longest;
    for (int64_t done = 0; done < longest; done += SL_TABLE_CHUNK) {
        int64_t most = longest - done < SL_TABLE_CHUNK ? longest - done : SL_TABLE_CHUNK;
        int64_t mine = runs[me].count - done < most ? runs[me].count - done : most;
        /* what is behind the run of a rank is sent too, and nobody looks at it; it must be memory all the same */
        float *source = mine == most ? data + runs[me].first + done : x->table_padded;
        if (mine < most && mine > 0) memcpy(source, data + runs[me].first + done, (size_t)mine * sizeof *source);
        SL_TRY(x->comm->ops->exchange(x->comm, "rows of a table", source, (size_t)most * sizeof *source, chunk));
        x->row_stats.sent_bytes += (uint64_t)most * sizeof *source * (uint64_t)(ranks - 1);
        for (int r = 0; r < ranks; r++) {
            int64_t n = runs[r].count - done < most ? runs[r].count - done : most;
            if (r != me && n > 0) memcpy(data + runs[r].first + done, chunk + r * most, (size_t)n * sizeof *data);
        }
    }
    return SLUICE_OK;
}

/* ---- rows of a step ---- */

/* Of sorted rows, those that each rank keeps, as elements of all of them together. */
static void find_runs(const sl_exec *x, int parameter, const int32_t *rows, int64_t count, sl_range *runs)
{
    int64_t width = x->plan->graph->parameters[parameter].table.dim[1], at = 0;
    for (int r = 0; r < x->plan->options.rank_count; r++) {
        sl_range keeps = sl_plan_table_rows(x->plan, parameter, r);
        int64_t first = at;
        while (at < count && rows[at] < keeps.first + keeps.count) at++;
        runs[r] = (sl_range){ first * width, (at - first) * width };
    }
}

static sluice_status bring_tensor(sl_exec *x, int parameter, int slot, const int32_t *rows, int64_t count,
                                  int64_t first)
{
    table t = table_of(x, parameter, slot, false);
    float *data = x->table_staging;
    for (int64_t i = 0; i < count; i++)
        if (rows[i] >= t.rows.first && rows[i] < t.rows.first + t.rows.count)
            memcpy(data + i * t.width, t.values + (rows[i] - t.rows.first) * t.width, (size_t)t.width * sizeof *data);
    if (x->plan->options.rank_count > 1) {
        find_runs(x, parameter, rows, count, x->table_runs);
        SL_TRY(share_runs(x, x->table_runs, data));
    }
    return sl_compact_store(x, parameter, slot, first * t.width, count * t.width, data);
}

static void count_rows(sl_exec *x, int parameter, int64_t count)
{
    const sl_parameter *q = &x->plan->graph->parameters[parameter];
    x->row_stats.moved_bytes +=
        (uint64_t)(count * q->table.dim[1] * x->plan->tables[parameter].tensors) * sizeof(float);
}

sluice_status sl_exec_bring_rows(sl_exec *x, int parameter, const int32_t *rows, int64_t count, int64_t first)
{
    if (x->tables[parameter] == NULL || count == 0) return SLUICE_OK;
    SL_TRY(sl_exec_settle(x));
    for (int slot = -1; slot + 1 < x->plan->tables[parameter].tensors; slot++)
        SL_TRY(bring_tensor(x, parameter, slot, rows, count, first));
    x->row_stats.rows += (uint64_t)count;
    count_rows(x, parameter, count);
    return SLUICE_OK;
}

/* Ranges of the parameter that ranks updated, one of each at a time: the block partition has many. */
static sluice_status share_updated(sl_exec *x, int parameter, int64_t elements, float *data)
{
    const sl_plan *p = x->plan;
    const sl_parameter *q = &p->graph->parameters[parameter];
    const sl_shards *s = &p->layers[q->layer].shards;
    bool any = true;
    for (int64_t i = 0; any; i++) {
        any = false;
        for (int r = 0; r < p->options.rank_count; r++) {
            int64_t index = sl_shard_range_at(s, r, q->offset) + i;
            sl_range run = { 0, 0 };
            if (index < sl_shard_range_count(s, r))
                run = sl_range_common(sl_shard_range(s, r, index), (sl_range){ q->offset, elements });
            any = any || run.count > 0;
            x->table_runs[r] = (sl_range){ run.count > 0 ? run.first - q->offset : 0, run.count };
        }
        if (any) SL_TRY(share_runs(x, x->table_runs, data));
    }
    return SLUICE_OK;
}

static sluice_status keep_tensor(sl_exec *x, int parameter, int slot, const int32_t *rows, int64_t count)
{
    table t = table_of(x, parameter, slot, false);
    float *data = x->table_staging;
    bool all = x->plan->options.rank_count == 1 || x->plan->options.stage == 0; /* every rank has updated all */
    SL_TRY(sl_compact_fetch(x, parameter, slot, count * t.width, all, data));
    if (!all) SL_TRY(share_updated(x, parameter, count * t.width, data));
    for (int64_t i = 0; i < count; i++)
        if (rows[i] >= t.rows.first && rows[i] < t.rows.first + t.rows.count)
            memcpy(t.values + (rows[i] - t.rows.first) * t.width, data + i * t.width, (size_t)t.width * sizeof *data);
    return SLUICE_OK;
}

sluice_status sl_exec_keep_rows(sl_exec *x, int parameter, const int32_t *rows, int64_t count)
{
    if (x->tables[parameter] == NULL || count == 0 || !x->plan->graph->parameters[parameter].trainable)
        return SLUICE_OK;
    SL_TRY(sl_exec_settle(x));
    for (int slot = -1; slot + 1 < x->plan->tables[parameter].tensors; slot++)
        SL_TRY(keep_tensor(x, parameter, slot, rows, count));
    count_rows(x, parameter, count);
    return SLUICE_OK;
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

sluice_status sl_tables_open(sl_exec *x)
{
    const sl_plan *p = x->plan;
    size_t parameters = (size_t)p->graph->parameter_count + 1, ranks = (size_t)p->options.rank_count;
    x->tables = sl_alloc_array(parameters, sizeof *x->tables, "sparse tables");
    x->table_snapshots = sl_alloc_array(parameters, sizeof *x->table_snapshots, "sparse tables");
    if (x->tables == NULL || x->table_snapshots == NULL) return SLUICE_ERR_NO_MEMORY;
    if (p->table_staging < 0) return SLUICE_OK;
    x->table_runs = sl_alloc_array(ranks, sizeof *x->table_runs, "rows of tables");
    x->table_padded = sl_alloc_array((size_t)SL_TABLE_CHUNK, sizeof *x->table_padded, "rows of tables");
    if (x->table_runs == NULL || x->table_padded == NULL) return SLUICE_ERR_NO_MEMORY;
    SL_TRY(resolve(x, p->table_staging, &x->table_staging));
    x->table_staging_rows = (int64_t)(p->buffers[p->table_staging].bytes / sizeof(float));
    if (ranks > 1) x->table_staging_rows -= SL_TABLE_CHUNK * (int64_t)ranks;
    for (int i = 0; i < p->graph->parameter_count; i++) {
        SL_TRY(resolve(x, p->tables[i].home, &x->tables[i]));
        SL_TRY(resolve(x, p->tables[i].snapshot, &x->table_snapshots[i]));
        if (x->tables[i] != NULL) SL_TRY(clear_compact(x, i));
    }
    return SLUICE_OK;
}

void sl_tables_close(sl_exec *x)
{
    sl_free((void *)x->tables);
    sl_free((void *)x->table_snapshots);
    sl_free(x->table_runs);
    sl_free(x->table_padded);
}
