/* engine_replace.c: an engine goes on by another plan, between two steps and in the same process.
 *
 * A plan for updates on speculation keeps more on the host than one for updates that wait for the norm, and is slower where
 * speculation has ended. Both are placements that the same search found, so that no search is needed here: the one plan
 * remembers the placement of the other. The state is carried from the one executor to the other in memory. */
#include "checkpoint/carry.h"
#include "core/thread.h"
#include "train/engine_parts.h"

static sluice_status make_plan(sluice_engine *e, const sl_settings *settings, sl_plan **out)
{
    const sl_candidate placement = sl_plan_other_placement(e->plan);
    sl_plan_options o = e->plan->options;
    o.partition_weights = settings->plan.partition_weights;
    return sl_plan_create_placed(e->graph, &e->machine, &o, &placement, out);
}

/* All ranks. What fails here leaves nothing to go on with. */
static sluice_status take_over(sluice_engine *e, const sl_settings *settings, sl_plan *plan, sl_carried *carried)
{
    sl_engine_forget_sent(e);
    sl_exec_destroy(e->exec);
    sl_plan_destroy(e->plan);
    e->exec = NULL;
    e->plan = plan;
    e->phase = SL_ENGINE_BROKEN;
    for (int i = 0; i < SL_SEGMENT_COUNT; i++) e->segment_seconds[i] = 0, e->segment_runs[i] = 0;
    SL_TRY(sl_engine_compare_plans(e)); /* and no rank holds on to another's memory any more */
    SL_TRY(
        sl_ranks_agree(e->ranks, "reserving memory", sl_ranks_failed(e->ranks, sl_engine_open_executor(e, settings))));
    SL_TRY(
        sl_ranks_agree(e->ranks, "weights of another plan", sl_engine_init_tensors(e, true, settings->device.guard)));
    SL_TRY(sl_carry_in(carried, e->exec, &e->slots));
    e->phase = SL_ENGINE_READY;
    return SLUICE_OK;
}

/* The state comes in about as fast as it goes out: the same copies and conversions, the other way round. */
sluice_status sl_engine_replace_seconds(sluice_engine *e, double *seconds)
{
    const double bytes = (double)sl_plan_carried_bytes(e->plan);
    double rate = 2 * SL_CARRIED_PER_SECOND; /* of ranks that share the machine: not measured */
    if (e->ranks->count == 1) {
        SL_TRY(sl_exec_settle(e->exec));
        SL_TRY(sl_carry_rate(e->exec, &e->slots, &rate));
    }
    *seconds = e->reserve_seconds + (rate > 0 ? 2 * bytes / rate : 0);
    return SLUICE_OK;
}

sluice_status sl_engine_replace_plan(sluice_engine *e, const sl_settings *settings, bool *done)
{
    sl_carried *carried = NULL;
    sl_plan *plan = NULL;
    *done = false;
    sluice_status st = sl_ranks_agree(e->ranks, "planning", make_plan(e, settings, &plan));
    if (st == SLUICE_OK) st = sl_carry_out(e->exec, &e->slots, &carried);
    if (st != SLUICE_OK) {
        sl_plan_destroy(plan);
        return st == SLUICE_ERR_NO_MEMORY ? SLUICE_OK : st;
    }
    st = take_over(e, settings, plan, carried);
    sl_carried_free(carried);
    *done = st == SLUICE_OK;
    return st;
}
