/* engine_targets.c: how much the micro-batches of a step weigh (exact rule 12).
 *
 * A loss is a mean over the valid targets of its micro-batch. With masks, packing or padding these differ in number, and
 * the mean of such means is not the mean over the step's targets. So the gradient of a micro-batch with c of the step's C
 * targets is seeded with loss scale * c / C, which must be known when its forward runs: a step is told the counts of all
 * its micro-batches before the first one, or every one of them counts fully and they weigh the same. */
#include <inttypes.h>
#include <string.h>

#include "train/engine_parts.h"

/* ---- the input that is counted ---- */

/* The node that makes the loss, scaled or not. */
static const sl_node *loss_node(const sluice_graph *g)
{
    int value = g->loss;
    while (value >= 0 && g->values[value].producer >= 0) {
        const sl_node *n = &g->nodes[g->values[value].producer];
        if (n->input_count != 1) return n;
        value = n->inputs[0];
    }
    return NULL;
}

sluice_status sl_engine_find_counted(sluice_engine *e)
{
    const sluice_graph *g = e->graph;
    const sl_node *n = loss_node(g);
    e->counted = -1;
    if (n == NULL || !sl_ops[n->op].index.there || !sl_ops[n->op].index.ignores) return SLUICE_OK;
    int value = g->values[n->inputs[sl_ops[n->op].index.input]].storage;
    if (g->values[value].kind != SL_VALUE_INPUT) return SLUICE_OK;
    e->counted = value;
    e->uncounted = n->attrs.cross_entropy.ignore_index;
    return SLUICE_OK;
}

static int64_t counted_elements(const sluice_engine *e)
{
    return sl_shape_elements(&e->graph->values[e->counted].shape);
}

/* Valid targets of a batch that was checked. */
static uint64_t count_valid(const sluice_engine *e, const sluice_batch *batch)
{
    const char *name = e->graph->values[e->counted].name;
    int64_t elements = counted_elements(e);
    uint64_t count = 0;
    int i = 0;
    while (strcmp(batch->arrays[i].name, name) != 0) i++;
    const int32_t *target = batch->arrays[i].data;
    for (int64_t k = 0; k < elements; k++) count += target[k] != e->uncounted;
    return count;
}

/* ---- what a step is told ---- */

/* Of rank r, as e->losses has its losses. */
static uint64_t *targets_of(const sluice_engine *e, int rank)
{
    return e->targets + (size_t)e->accumulation * (size_t)(1 + rank);
}

static uint64_t targets_at(const sluice_engine *e, uint64_t j)
{
    uint64_t ranks = (uint64_t)e->plan->options.rank_count;
    return targets_of(e, (int)(j % ranks))[j / ranks];
}

/* When the counts of all ranks are there. */
static sluice_status sum_targets(sluice_engine *e, const char *call)
{
    uint64_t total = 0, count = sl_engine_micro_batches(e);
    const uint64_t *all = targets_of(e, 0);
    e->weighed = false;
    for (uint64_t i = 0; i < count; i++)
        if (__builtin_add_overflow(total, all[i], &total) || total > INT64_MAX)
            return sl_fail(SLUICE_ERR_USAGE, "%s: the step's targets are more than can be counted, 2^63 - 1", call);
    if (total == 0)
        return sl_fail(SLUICE_ERR_INPUT,
                       "%s: none of the %" PRIu64 " micro-batches of step %" PRIu64
                       " has a target, so there is nothing to learn from; leave them out",
                       call, count, e->step + 1);
    e->all_targets = total;
    e->weighed = true;
    return SLUICE_OK;
}

sluice_status sl_engine_weigh(sluice_engine *e, const uint64_t *all, const char *call)
{
    uint64_t ranks = (uint64_t)e->plan->options.rank_count, count = sl_engine_micro_batches(e);
    for (uint64_t j = 0; j < count; j++) targets_of(e, (int)(j % ranks))[j / ranks] = all[j];
    return sum_targets(e, call);
}

/* All ranks: this one's counts are at the beginning of e->targets. */
static sluice_status exchange_targets(sluice_engine *e, const char *call)
{
    size_t bytes = (size_t)e->accumulation * sizeof *e->targets;
    SL_TRY(e->ranks->comm->ops->exchange(e->ranks->comm, "targets of a step", e->targets, bytes, targets_of(e, 0)));
    return sum_targets(e, call);
}

sluice_status sluice_set_targets(sluice_engine *e, const uint64_t *counts)
{
    SL_NEED_ENGINE(e);
    SL_NEED(counts);
    SL_TRY(sl_engine_check_whole(e, "sluice_set_targets"));
    if (!e->plan->options.training)
        return sl_fail(SLUICE_ERR_USAGE, "sluice_set_targets: this engine was created for evaluation only");
    if (e->phase != SL_ENGINE_READY || e->micro != 0)
        return sl_fail(SLUICE_ERR_USAGE,
                       "sluice_set_targets: a step is in progress, whose targets must be known when it begins; finish "
                       "it with sluice_step first");
    memcpy(e->targets, counts, (size_t)e->accumulation * sizeof *e->targets);
    return exchange_targets(e, "sluice_set_targets");
}

static sluice_status check_told(const sluice_engine *e, const sluice_batch *batch, int m, const char *call)
{
    uint64_t j = sl_engine_micro_index(e, m), told = targets_at(e, j), has = count_valid(e, batch);
    if (has == told) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_USAGE,
                   "%s: micro-batch %" PRIu64 " of step %" PRIu64 " has %" PRIu64
                   " targets in input \"%s\", and %" PRIu64
                   " were announced: its gradient would not weigh what it should",
                   call, j, e->step + 1, has, e->graph->values[e->counted].name, told);
}

sluice_status sl_engine_check_targets(const sluice_engine *e, const sluice_batch *batch, const char *call)
{
    if (e->counted < 0) return SLUICE_OK;
    if (e->weighed) return check_told(e, batch, e->micro, call);
    uint64_t has = count_valid(e, batch), all = (uint64_t)counted_elements(e);
    bool alone = sl_engine_micro_batches(e) == 1;
    if (has == all || (alone && has > 0)) return SLUICE_OK;
    if (alone)
        return sl_fail(SLUICE_ERR_INPUT,
                       "%s: every target in input \"%s\" is %" PRId32
                       ", which does not count, so there is nothing to learn from; leave the batch out",
                       call, e->graph->values[e->counted].name, e->uncounted);
    return sl_fail(SLUICE_ERR_USAGE,
                   "%s: %" PRIu64 " of the micro-batch's %" PRIu64
                   " targets count, and micro-batches of a step weigh by their targets: say how many each has with "
                   "sluice_set_targets before the step, or use sluice_train_step",
                   call, has, all);
}

sluice_status sl_engine_weigh_batches(sluice_engine *e, const sluice_batch *batches, const char *call)
{
    int count = e->accumulation;
    if (e->counted < 0) return SLUICE_OK;
    if (!e->weighed) {
        for (int m = 0; m < count; m++) e->targets[m] = count_valid(e, &batches[m]);
        return exchange_targets(e, call);
    }
    for (int m = 0; m < count; m++) SL_TRY(check_told(e, &batches[m], m, call));
    return SLUICE_OK;
}

/* ---- what follows from it ---- */

/* Whether micro-batch j weighs as much as all do when none has another weight than the others. */
static bool weighs_mean(const sluice_engine *e, uint64_t j)
{
    uint64_t count = sl_engine_micro_batches(e);
    return !e->weighed || (e->all_targets % count == 0 && e->all_targets / count == targets_at(e, j));
}

float sl_engine_seed(const sluice_engine *e, uint64_t j)
{
    double scale = e->scaler.scale;
    if (weighs_mean(e, j)) return (float)(scale / e->micro_batches);
    return (float)(scale * ((double)targets_at(e, j) / (double)e->all_targets));
}

double sl_engine_mean_loss(const sluice_engine *e, const double *all, size_t stride)
{
    uint64_t ranks = (uint64_t)e->plan->options.rank_count, count = sl_engine_micro_batches(e);
    double sum = 0, weighed = 0;
    bool equal = true;
    for (uint64_t j = 0; j < count; j++) {
        double loss = all[(size_t)(j % ranks) * stride + (size_t)(j / ranks)];
        uint64_t targets = e->weighed ? targets_at(e, j) : 1;
        equal = equal && weighs_mean(e, j);
        sum += loss;
        if (targets > 0) weighed += (double)targets * loss;
    }
    return equal ? sum / (double)count : weighed / (double)e->all_targets;
}
