/* engine_remedy.c: what a disk or smaller micro-batches would need where a plan is refused. The graph has the size of a
 * micro-batch in its shapes, so each is tried on a graph of its own. */
#include <string.h>

#include "core/alloc.h"
#include "core/bytes.h"
#include "train/engine_parts.h"

#define MOST_TRIED 4 /* sizes between half and one sample */

/* The batch of a step stays: smaller micro-batches are more of them. */
static sluice_status plan_smaller(sluice_engine *trial, const sl_engine_options *o, const sl_plan_options *p,
                                  int64_t micro_batch, sl_plan_need *need)
{
    sl_plan_options q = *p;
    SL_TRY(sl_engine_build_graph(trial, o));
    SL_TRY(sl_engine_ask_workspace(trial));
    q.node_workspace = trial->workspace;
    q.update_workspace = trial->workspace + trial->graph->node_count;
    q.accumulation *= (int)(o->micro_batch / micro_batch);
    return sl_plan_least(trial->graph, &trial->machine, &q, need);
}

static sluice_status need_of(const sluice_engine *e, const sl_engine_options *o, const sl_plan_options *p,
                             int64_t micro_batch, sl_plan_need *need)
{
    sluice_engine trial = *e;
    trial.graph = NULL;
    trial.optim = NULL;
    trial.workspace = NULL;
    sluice_status st = o->rebuild(o->rebuild_user, micro_batch, &trial.graph);
    if (st == SLUICE_OK) st = plan_smaller(&trial, o, p, micro_batch, need);
    sl_free(trial.workspace);
    sl_optim_destroy(trial.optim);
    sluice_graph_destroy(trial.graph);
    return st;
}

/* The largest that fits, otherwise one sample where that needs less; *size 0: none. */
static sluice_status find_smaller(const sluice_engine *e, const sl_engine_options *o, const sl_plan_options *p,
                                  const sl_plan_need *now, int64_t *size, sl_plan_need *need)
{
    *size = 0;
    SL_TRY(need_of(e, o, p, 1, need));
    if (sl_plan_lack(p, need) >= sl_plan_lack(p, now)) return SLUICE_OK;
    *size = 1;
    if (sl_plan_lack(p, need) > 0) return SLUICE_OK;
    int64_t half = o->micro_batch / 2;
    for (int tried = 0; half > 1 && tried < MOST_TRIED; half /= 2, tried++) {
        sl_plan_need larger;
        if (o->micro_batch % half != 0) continue;
        SL_TRY(need_of(e, o, p, half, &larger));
        if (sl_plan_lack(p, &larger) > 0) continue;
        *size = half;
        *need = larger;
        return SLUICE_OK;
    }
    return SLUICE_OK;
}

sluice_status sl_engine_try_smaller(const sluice_engine *e, const sl_engine_options *o, const sl_plan_options *p)
{
    char message[SL_MESSAGE_BYTES], needs[160];
    sl_plan_need now, need;
    int64_t size = 0;
    if (o->rebuild == NULL || o->micro_batch <= 1) return SLUICE_ERR_NO_FIT;
    sl_error_copy(message);
    sluice_status st = sl_plan_least(e->graph, &e->machine, p, &now);
    if (st == SLUICE_OK) st = find_smaller(e, o, p, &now, &size, &need);
    if (st != SLUICE_OK || size == 0) return sl_fail(SLUICE_ERR_NO_FIT, "%s", message);
    sl_plan_describe_need(p, &now, &need, needs, sizeof needs);
    return sl_fail(SLUICE_ERR_NO_FIT, "%s; train_micro_batch_size_per_gpu %lld needs %s%s", message, (long long)size,
                   needs, sl_plan_lack(p, &need) == 0 ? " and fits" : "");
}

/* ---- the disk ---- */

/* What was told to be on the host goes to the disk: with "cpu" nothing would. Returns what says so. */
static const char *send_to_disk(sl_plan_options *q)
{
    const bool state = q->state == SLUICE_PLACE_HOST, parameters = q->parameters == SLUICE_PLACE_HOST;
    if (state) q->state = SLUICE_PLACE_DISK;
    if (parameters) q->parameters = SLUICE_PLACE_DISK;
    if (state && parameters)
        return "zero_optimization.offload_optimizer.device and offload_param.device \"nvme\" with their nvme_path";
    if (state) return "zero_optimization.offload_optimizer.device \"nvme\" with its nvme_path";
    if (parameters) return "zero_optimization.offload_param.device \"nvme\" with its nvme_path";
    return q->budget[SL_TIER_DISK] == 0 ? "a disk for swap files (memory.disk_path)" : "a disk with more space";
}

/* Whether a disk, or a larger one, may help and is not named among what is missing already. */
static sluice_status may_need_disk(const sluice_engine *e, const sl_plan_options *p, bool *may)
{
    sl_plan_need now;
    *may = p->training && !p->delayed && p->budget[SL_TIER_HOST] > 0;
    if (!*may || p->budget[SL_TIER_DISK] == 0) return SLUICE_OK;
    SL_TRY(sl_plan_least(e->graph, &e->machine, p, &now));
    *may = now.bytes[SL_TIER_DISK] <= p->budget[SL_TIER_DISK];
    return SLUICE_OK;
}

/* By a plan that has all it needs, so that what is told is what such a run would have there. */
sluice_status sl_engine_try_disk(const sluice_engine *e, const sl_plan_options *p)
{
    char message[SL_MESSAGE_BYTES], bytes[32];
    sl_plan_options q = *p;
    sl_plan *plan = NULL;
    bool may;
    sl_error_copy(message);
    sluice_status st = may_need_disk(e, p, &may);
    const char *keys = send_to_disk(&q);
    sl_engine_add_disk(e, &q);
    q.brief = true;
    if (st == SLUICE_OK && may) st = sl_plan_attempt(e->graph, &e->machine, &q, NULL, &plan, NULL);
    if (st != SLUICE_OK || plan == NULL) return sl_fail(SLUICE_ERR_NO_FIT, "%s", message);
    const uint64_t needs = plan->totals.peak[SL_TIER_DISK];
    const double seconds = plan->totals.step_seconds;
    sl_plan_destroy(plan);
    if (needs == 0)
        return sl_fail(SLUICE_ERR_NO_FIT, "%s", message); /* it is another thing that such a run does without */
    return sl_fail(SLUICE_ERR_NO_FIT, "%s; %s needs memory.disk %llu (%s) and fits, with %.3g s a step", message, keys,
                   (unsigned long long)needs, sl_format_bytes(needs, bytes, sizeof bytes), seconds);
}
