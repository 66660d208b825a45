/* statistics.c: running statistics of batch norms: state that is not trained.
 *
 * They are f32 in host memory, all of them on every rank. A kernel leaves the statistics of its micro-batch on the device;
 * they are read while backward runs, exchanged between ranks, and applied in the order of global micro-batches j = m * N +
 * r: the same operations on every rank and for every N, so that the bits are the same (exact rule 8). Those of batch norms over
 * all ranks are the same on each of them, and count once for the N micro-batches that they are of. Of a step they are
 * kept apart until it ends, so that one that fails leaves what was there. The device's copies, which evaluation reads, are
 * written before it where they are out of date. Frozen batch norms read theirs in training, too; these change only where a file or the caller
 * gives others. */
#include <math.h>
#include <string.h>

#include "core/alloc.h"
#include "ir/shared_norm.h"
#include "runtime/exec_parts.h"

/* ---- opening ---- */

uint64_t sl_statistics_bytes(const sluice_graph *g, int ranks)
{
    uint64_t channels = 0;
    for (int i = 0; i < g->running_count; i++) channels += (uint64_t)g->running[i].channels;
    return channels * 2 * sizeof(float) * (SL_STATISTICS_COPIES + 1 + (uint64_t)ranks);
}

sluice_status sl_statistics_open(sl_exec *x)
{
    const sluice_graph *g = x->plan->graph;
    sl_running_values *v = &x->running;
    size_t layers = (size_t)g->running_count, ranks = (size_t)x->plan->options.rank_count;
    if (layers == 0) return SLUICE_OK;
    v->first = sl_alloc_array(layers + 1, sizeof *v->first, "running statistics");
    if (v->first == NULL) return SLUICE_ERR_NO_MEMORY;
    for (size_t i = 0; i < layers; i++) v->first[i + 1] = v->first[i] + 2 * g->running[i].channels;
    v->numbers = v->first[layers];
    v->mine = sl_alloc_array((size_t)v->numbers * (1 + ranks), sizeof *v->mine, "statistics of a micro-batch");
    for (int k = 0; k < SL_STATISTICS_COPIES; k++) {
        v->values[k] = sl_alloc_array((size_t)v->numbers, sizeof(float), "running statistics");
        v->batches[k] = sl_alloc_array(layers, sizeof(uint64_t), "running statistics");
        if (v->values[k] == NULL || v->batches[k] == NULL) return SLUICE_ERR_NO_MEMORY;
    }
    if (v->mine == NULL) return SLUICE_ERR_NO_MEMORY;
    for (size_t i = 0; i < layers; i++) /* means are 0 */
        for (int64_t c = 0; c < g->running[i].channels; c++)
            v->values[SL_STATISTICS_KEPT][v->first[i] + g->running[i].channels + c] = 1.0f;
    v->stale = v->frozen_stale = true;
    return SLUICE_OK;
}

void sl_statistics_close(sl_exec *x)
{
    sl_running_values *v = &x->running;
    for (int k = 0; k < SL_STATISTICS_COPIES; k++) {
        sl_free(v->values[k]);
        sl_free(v->batches[k]);
    }
    sl_free(v->mine);
    sl_free(v->first);
}

static void copy(sl_exec *x, sl_statistics_copy from, sl_statistics_copy to)
{
    sl_running_values *v = &x->running;
    memcpy(v->values[to], v->values[from], (size_t)v->numbers * sizeof(float));
    memcpy(v->batches[to], v->batches[from], (size_t)x->plan->graph->running_count * sizeof(uint64_t));
}

/* ---- a step ---- */

/* Rows [row, row + 2) of the statistics of batch norm `i` on the device. */
static sl_span rows_on_device(const sl_exec *x, int i, int row)
{
    const sl_running *r = &x->plan->graph->running[i];
    const uint64_t bytes = (uint64_t)r->channels * sizeof(float);
    return sl_plan_span(x->plan, (sl_piece){ x->plan->input_buffers[r->value], (uint64_t)row * bytes, 2 * bytes });
}

/* A frozen batch norm keeps its statistics. */
static bool is_frozen(const sluice_graph *g, int i)
{
    return sl_node_is_frozen_norm(&g->nodes[g->values[g->running[i].value].producer]);
}

/* A micro-batch whose numbers are not finite says nothing about those to come, and would spoil the rest for ever. */
static bool all_finite(const float *numbers, int64_t count)
{
    bool finite = true;
    for (int64_t i = 0; i < count; i++) finite = finite && isfinite(numbers[i]);
    return finite;
}

/* What `rank` has of one micro-batch: new = (1 - m) old + m batch, as PyTorch. Statistics of all ranks count once. */
static void apply(sl_exec *x, const float *batch, int rank)
{
    const sluice_graph *g = x->plan->graph;
    sl_running_values *v = &x->running;
    for (int i = 0; i < g->running_count; i++) {
        const float momentum = g->running[i].momentum, rest = 1.0f - momentum;
        const int64_t count = v->first[i + 1] - v->first[i];
        const float *from = batch + v->first[i];
        float *to = v->values[SL_STATISTICS_STEP] + v->first[i];
        if (is_frozen(g, i) || !all_finite(from, count)) continue;
        if (rank > 0 && sl_graph_shares_running(g, i)) continue;
        for (int64_t c = 0; c < count; c++) to[c] = rest * to[c] + momentum * from[c];
        v->batches[SL_STATISTICS_STEP][i]++;
    }
}

static bool all_frozen(const sluice_graph *g)
{
    bool all = true;
    for (int i = 0; i < g->running_count; i++) all = all && is_frozen(g, i);
    return all;
}

sluice_status sl_exec_take_statistics(sl_exec *x)
{
    const sluice_graph *g = x->plan->graph;
    sl_running_values *v = &x->running;
    if (all_frozen(g)) return SLUICE_OK; /* or there are none, and no memory for them */
    float *all = v->mine + v->numbers;
    for (int i = 0; i < g->running_count; i++) {
        if (is_frozen(g, i)) continue;
        SL_TRY(x->backend->download(x->device, v->mine + v->first[i], rows_on_device(x, i, SL_BATCH_MEAN)));
    }
    SL_TRY(x->comm->ops->exchange(x->comm, "batch statistics", v->mine, (size_t)v->numbers * sizeof *v->mine, all));
    if (!v->begun) copy(x, SL_STATISTICS_KEPT, SL_STATISTICS_STEP);
    v->begun = true;
    for (int r = 0; r < x->plan->options.rank_count; r++) apply(x, all + (int64_t)r * v->numbers, r);
    return SLUICE_OK;
}

void sl_exec_keep_statistics(sl_exec *x)
{
    sl_running_values *v = &x->running;
    if (!v->begun) return;
    copy(x, SL_STATISTICS_STEP, SL_STATISTICS_KEPT);
    v->begun = false;
    v->stale = true;
}

void sl_exec_drop_statistics(sl_exec *x)
{
    x->running.begun = false;
}

/* ---- evaluation ---- */

sluice_status sl_statistics_show(sl_exec *x)
{
    sl_running_values *v = &x->running;
    if (!v->stale) return SLUICE_OK;
    for (int i = 0; i < x->plan->graph->running_count; i++)
        SL_TRY(x->backend->store(x->device, rows_on_device(x, i, SL_RUNNING_MEAN),
                                 v->values[SL_STATISTICS_KEPT] + v->first[i]));
    v->stale = v->frozen_stale = false;
    return SLUICE_OK;
}

sluice_status sl_statistics_show_frozen(sl_exec *x)
{
    bool any = false;
    for (int i = 0; i < x->plan->graph->running_count; i++) any = any || is_frozen(x->plan->graph, i);
    if (!any || !x->running.frozen_stale) return SLUICE_OK;
    SL_TRY(sl_exec_settle(x));
    x->running.stale = true;
    return sl_statistics_show(x);
}

/* ---- by element ---- */

void sl_statistics_snapshot(sl_exec *x)
{
    if (x->running.numbers > 0) copy(x, SL_STATISTICS_KEPT, SL_STATISTICS_SNAPSHOT);
}

int64_t sl_exec_running_count(const sl_exec *x, int running, int name)
{
    return name == SL_NAME_BATCHES ? 2 : x->plan->graph->running[running].channels;
}

static float *numbers_of(sl_exec *x, sl_statistics_copy from, int running, int name)
{
    const sl_running_values *v = &x->running;
    const int64_t channels = x->plan->graph->running[running].channels;
    return v->values[from] + v->first[running] + (name == SL_NAME_VARIANCE ? channels : 0);
}

void sl_exec_fetch_running(sl_exec *x, bool snapshot, int running, int name, int64_t first, int64_t count, float *out)
{
    const sl_statistics_copy from = snapshot ? SL_STATISTICS_SNAPSHOT : SL_STATISTICS_KEPT;
    if (name != SL_NAME_BATCHES) {
        memcpy(out, numbers_of(x, from, running, name) + first, (size_t)count * sizeof *out);
        return;
    }
    const uint64_t batches = x->running.batches[from][running];
    const float halves[2] = { (float)(batches % SL_BATCHES_LOW), (float)(batches / SL_BATCHES_LOW) };
    memcpy(out, halves + first, (size_t)count * sizeof *out);
}

void sl_exec_store_running(sl_exec *x, int running, int name, int64_t first, int64_t count, const float *data)
{
    __atomic_store_n(&x->running.stale, true, __ATOMIC_RELAXED); /* several threads may store */
    __atomic_store_n(&x->running.frozen_stale, true, __ATOMIC_RELAXED);
    if (name != SL_NAME_BATCHES) {
        memcpy(numbers_of(x, SL_STATISTICS_KEPT, running, name) + first, data, (size_t)count * sizeof *data);
        return;
    }
    uint64_t *batches = &x->running.batches[SL_STATISTICS_KEPT][running];
    uint64_t halves[2] = { *batches % SL_BATCHES_LOW, *batches / SL_BATCHES_LOW };
    for (int64_t i = 0; i < count; i++) halves[first + i] = data[i] > 0 ? (uint64_t)data[i] : 0;
    *batches = halves[0] + halves[1] * SL_BATCHES_LOW;
}
