/* totals.c: adds up over ranks what the plan predicts and what was counted. */
#include "train/totals.h"

#include "core/alloc.h"
#include "core/norm_nodes.h"

void sl_totals_of_plan(const sl_plan *p, sl_run_totals *out)
{
    const sl_plan_totals *t = &p->totals;
    *out = (sl_run_totals){ .overhead = p->options.overhead_bytes,
                            .state_parameters = t->state_parameters,
                            .state_gradients = t->state_gradients,
                            .state_optimizer = t->state_optimizer,
                            .gather = t->comm_gather,
                            .reduce = t->comm_reduce,
                            .norm = t->comm_norm,
                            .seconds = t->step_seconds };
    for (int i = 0; i < SL_TIER_COUNT; i++) out->peak[i] = t->peak[i];
    for (int k = 0; k < SL_LINK_COUNT; k++) out->moved[k] = t->moved[k];
    for (int i = 0; i < p->graph->parameter_count; i++) {
        const sl_parameter *q = &p->graph->parameters[i];
        if (p->tables[i].home < 0) continue;
        uint64_t way = (uint64_t)q->count * sizeof(float) * (uint64_t)p->tables[i].tensors;
        out->table_rows += (uint64_t)(q->count / q->table.dim[1]);
        out->table_bytes += p->options.training && q->trainable ? 2 * way : way;
    }
    sl_plan_table_disk(p, &out->table_disk_read, &out->table_disk_written);
}

static void lift(uint64_t *most, uint64_t value)
{
    if (value > *most) *most = value;
}

void sl_totals_add(sl_run_totals *sum, const sl_run_totals *one)
{
    for (int i = 0; i < SL_TIER_COUNT; i++) lift(&sum->peak[i], one->peak[i]);
    lift(&sum->overhead, one->overhead);
    lift(&sum->state_parameters, one->state_parameters);
    lift(&sum->state_gradients, one->state_gradients);
    lift(&sum->state_optimizer, one->state_optimizer);
    if (one->seconds > sum->seconds) sum->seconds = one->seconds;
    if (one->data_seconds > sum->data_seconds) sum->data_seconds = one->data_seconds;
    for (int k = 0; k < SL_LINK_COUNT; k++) sum->moved[k] += one->moved[k];
    sum->gather += one->gather;
    sum->reduce += one->reduce;
    sum->norm += one->norm;
    lift(&sum->table_rows, one->table_rows);
    sum->table_bytes += one->table_bytes;
    sum->table_sent += one->table_sent;
    sum->table_disk_read += one->table_disk_read;
    sum->table_disk_written += one->table_disk_written;
}

sluice_status sl_totals_share(sl_ranks *r, sl_run_totals *totals)
{
    sl_run_totals sum = { .overhead = 0 };
    sl_run_totals *all = sl_alloc_array((size_t)r->count, sizeof *all, "totals of the ranks");
    if (all == NULL) return SLUICE_ERR_NO_MEMORY;
    sluice_status st = r->comm->ops->exchange(r->comm, "totals", totals, sizeof *totals, all);
    for (int i = 0; st == SLUICE_OK && i < r->count; i++) sl_totals_add(&sum, &all[i]);
    sl_free(all);
    if (st == SLUICE_OK) *totals = sum;
    return st;
}

static sluice_status predict_rank(const sl_plan *p, const double *weights, int rank, sl_run_totals *out)
{
    sl_plan *other;
    SL_TRY(sl_plan_create_for_rank(p, weights, rank, &other));
    sl_totals_of_plan(other, out);
    sl_plan_destroy(other);
    return SLUICE_OK;
}

sluice_status sl_totals_predict(const sl_plan *p, const double *weights, sl_run_totals *out)
{
    int ranks = p->options.rank_count;
    sl_run_totals sum = { .overhead = 0 }, one;
    if (ranks > SL_PLANNED_RANKS) {
        SL_TRY(predict_rank(p, weights, sl_plan_heaviest_rank(p), &sum));
        for (int k = 0; k < SL_LINK_COUNT; k++) sum.moved[k] *= (uint64_t)ranks;
        sum.gather *= (uint64_t)ranks;
        sum.reduce *= (uint64_t)ranks;
        sum.norm *= (uint64_t)ranks;
        sum.table_bytes *= (uint64_t)ranks;
        sum.table_disk_read *= (uint64_t)ranks;
        sum.table_disk_written *= (uint64_t)ranks;
        if (sl_combines_norm(p)) /* ranks that own as much send more or fewer */
            sum.norm = (uint64_t)p->node_count * sizeof(sl_norm_node) * (uint64_t)(ranks - 1);
    }
    for (int r = 0; ranks <= SL_PLANNED_RANKS && r < ranks; r++) {
        if (r == p->options.rank)
            sl_totals_of_plan(p, &one);
        else
            SL_TRY(predict_rank(p, weights, r, &one));
        sl_totals_add(&sum, &one);
    }
    *out = sum;
    return SLUICE_OK;
}

sluice_memory sl_totals_memory(const uint64_t bytes[SL_TIER_COUNT])
{
    return (sluice_memory){ .device = bytes[SL_TIER_DEVICE], .host = bytes[SL_TIER_HOST], .disk = bytes[SL_TIER_DISK] };
}

void sl_totals_to_event(const sl_run_totals *t, sluice_event *event)
{
    event->peak = sl_totals_memory(t->peak);
    event->overhead_bytes = t->overhead;
    event->state_parameters = t->state_parameters;
    event->state_gradients = t->state_gradients;
    event->state_optimizer = t->state_optimizer;
    event->step_seconds = t->seconds;
    event->data_seconds = t->data_seconds;
    event->moved_to_device = t->moved[SL_LINK_TO_DEVICE];
    event->moved_to_host = t->moved[SL_LINK_TO_HOST];
    event->moved_disk_read = t->moved[SL_LINK_DISK_READ];
    event->moved_disk_write = t->moved[SL_LINK_DISK_WRITE];
    event->comm_gather = t->gather;
    event->comm_reduce = t->reduce;
    event->comm_norm = t->norm;
    event->table_rows = t->table_rows;
    event->table_bytes = t->table_bytes;
    event->table_sent = t->table_sent;
    event->table_disk_read = t->table_disk_read;
    event->table_disk_written = t->table_disk_written;
}
