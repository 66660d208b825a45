/* loop.c: the training run: steps, schedule, evaluation, checkpoints, signals, events; and the plan command.
 *
 * Every rank runs the same loop. Once a step they tell each other their losses and whether anyone asked them to stop or
 * save; all decisions follow from what all said, so that all ranks stop, save and fail at the same step. */
#include <math.h>

#include "core/alloc.h"
#include "core/thread.h"
#include "machine/machine.h"
#include "machine/measure.h"
#include "train/run.h"
#include "train/verdict.h"

#define RUNNERS_UP           3   /* arrangements shown beside the chosen one */
#define WORTH_A_PEAK_SECONDS 1.0 /* measuring takes a tenth of that */
#define RESIDENT_SECONDS     0.1 /* between two looks at the memory of the process */

void sl_run_emit(const sl_run *r, const sluice_event *event)
{
    if (r->record != NULL) (void)sl_record_add_event(r->record, event); /* a page with less is better than no run */
    if (r->options->event != NULL && r->job->ranks.rank == 0) r->options->event(r->options->user, event);
}

/* ---- what ranks tell each other ---- */

static bool stop_asked(const sl_run *r)
{
    return sl_stop_asked(r->options->stop);
}

static const sl_step_note *note_of(const sl_run *r, int rank)
{
    return (const sl_step_note *)(const void *)(r->all + (size_t)rank * r->note_bytes);
}

/* The one exchange of a step. What one rank was asked for, all do. */
static sluice_status exchange_notes(sl_run *r)
{
    const sl_ranks *ranks = &r->job->ranks;
    int *save = r->options->save_request;
    r->mine->stop = stop_asked(r);
    r->mine->save = save != NULL && __atomic_exchange_n(save, 0, __ATOMIC_RELAXED) != 0;
    r->mine->written = r->pending == NULL || sl_save_done(r->pending);
    SL_TRY(ranks->comm->ops->exchange(ranks->comm, "step", r->mine, r->note_bytes, r->all));
    r->stop = r->save = false;
    r->written = true;
    for (int i = 0; i < ranks->count; i++) {
        r->stop = r->stop || note_of(r, i)->stop != 0;
        r->save = r->save || note_of(r, i)->save != 0;
        r->written = r->written && note_of(r, i)->written != 0;
    }
    r->replan = r->replan || note_of(r, 0)->replan != 0;
    if (note_of(r, 0)->renew != SL_RENEW_NEVER) r->renew = (sl_renew_when)note_of(r, 0)->renew;
    return SLUICE_OK;
}

/* ---- evaluation ---- */

/* Whether the run has been told to end when so many evaluations brought nothing better, and they have. */
static bool ends_early(const sl_run *r)
{
    int64_t patience = r->job->settings.early_stopping.patience;
    return patience > 0 && sl_best_is_by(&r->stopping, r->job->judge.stopping) &&
           r->stopping.since >= (uint64_t)patience;
}

/* The first weights are nobody's best: no checkpoint has them. An evaluation at the end of a run that is continued later would
 * not be there in a run that goes through, so that only those at multiples of evaluate.every are counted. Returns whether this
 * one is the best so far. */
static bool judge(sl_run *r, const sl_evaluation *found)
{
    const sl_settings *s = &r->job->settings;
    const sl_judge *j = &r->job->judge;
    uint64_t step = r->job->engine->step;
    if (step == 0) return false;
    if (s->early_stopping.patience > 0 && step % (uint64_t)s->evaluate.every == 0)
        (void)sl_best_observe(&r->stopping, j->stopping, s->early_stopping.min_delta, found->values[j->stopping.metric],
                              step);
    return sl_best_observe(&r->best, j->best, 0, found->values[j->best.metric], step);
}

static sluice_status evaluate(sl_run *r)
{
    sluice_event e = { .kind = SLUICE_EVENT_EVAL, .step = r->job->engine->step, .steps = r->steps };
    if (!r->job->validates) return SLUICE_OK;
    r->held = 0; /* evaluation uses the same buffers */
    sl_evaluation found;
    sluice_metric list[SL_METRIC_COUNT];
    SL_TRY(sl_job_evaluate(r->job, SL_SPLIT_VALIDATION, r->job->settings.evaluate.batches, &found));
    sl_evaluation_to_event(r->job, &found, list, &e);
    e.best = judge(r, &found);
    e.judge = sl_metric_name(r->job->judge.best.metric);
    e.judged = r->job->settings.checkpoint.keep_best || r->job->settings.early_stopping.patience > 0;
    sl_schedule_observe(&r->job->settings.schedule, &r->schedule, e.loss);
    sl_run_emit(r, &e);
    return SLUICE_OK;
}

static bool evaluation_due(const sl_run *r)
{
    int64_t every = r->job->settings.evaluate.every;
    uint64_t step = r->job->engine->step;
    return step == r->steps || (every > 0 && step % (uint64_t)every == 0);
}

/* ---- one step ---- */

uint64_t sl_run_position(const sl_run *r, uint64_t step)
{
    return sl_growth_before(&r->job->growth, step) * (uint64_t)r->job->ranks.count;
}

/* Passes over the data in so many steps. */
static double epochs_in(const sl_run *r, uint64_t steps)
{
    if (r->job->growth.every == 0) return (double)steps / r->batches_per_epoch;
    return (double)sl_growth_before(&r->job->growth, steps) / (double)r->job->growth.first / r->batches_per_epoch;
}

/* The size that the step at hand has by rule. */
static void grow_batch(sl_run *r)
{
    sluice_engine *e = r->job->engine;
    int micro = (int)sl_growth_at(&r->job->growth, e->step);
    if (micro == e->accumulation) return;
    sl_engine_set_accumulation(e, micro);
    sl_drift_forget(&r->drift);
    sl_job_pace(r->job, r->pace.peak, &r->pace);
    if (r->targets == NULL) r->step_targets = (uint64_t)r->pace.tokens;
}

/* Fills the job's buffers with this rank's micro-batch m of a step, unless they hold it already. */
static sluice_status fill_batch(sl_run *r, uint64_t step, int m)
{
    sl_job *j = r->job;
    uint64_t index = sl_run_position(r, step) + sl_engine_micro_index(j->engine, m);
    if (r->held == index + 1) return SLUICE_OK;
    r->held = 0;
    sl_engine_forget_sent(j->engine);
    double start = sl_now();
    SL_TRY(sl_job_fill(j, index));
    r->data_seconds += sl_now() - start;
    r->held = index + 1;
    return SLUICE_OK;
}

/* How many targets the micro-batches of the step have, which every rank finds in the data's order. False: none of them
 * has any, and there is nothing to compute. */
static sluice_status weigh_step(sl_run *r, bool *learns)
{
    sl_job *j = r->job;
    sluice_engine *e = j->engine;
    uint64_t count = sl_engine_micro_batches(e), first = sl_run_position(r, e->step);
    *learns = true;
    if (r->targets == NULL) return SLUICE_OK;
    r->step_targets = 0;
    for (uint64_t i = 0; i < count; i++) {
        int64_t valid;
        SL_TRY(j->data->ops->targets(j->data, first + i, j->batch.rows, &valid));
        r->targets[i] = (uint64_t)valid;
        r->step_targets += (uint64_t)valid;
    }
    *learns = r->step_targets > 0;
    if (*learns) return sl_engine_weigh(e, r->targets, "train");
    if (j->ranks.rank == 0)
        sl_log_write(&j->log, SLUICE_LOG_WARNING,
                     "step %llu is skipped: not one token of its %llu micro-batches counts in the loss",
                     (unsigned long long)(e->step + 1), (unsigned long long)count);
    return SLUICE_OK;
}

/* The next batch, while the device is still busy with a backward, which no longer needs the buffers: a forward has taken its
 * batch when it returns. A failure does not fail this step; the one that needs the batch reads it again and reports it. */
static void prefetch_batch(sl_run *r, uint64_t step, int m)
{
    const sluice_batch batch = sl_batch_of(&r->job->batch);
    if (fill_batch(r, step, m) == SLUICE_OK) sl_engine_send(r->job->engine, &batch);
}

/* Forward and backward of this rank's micro-batches. */
static sluice_status run_micro_batches(sl_run *r)
{
    sluice_engine *e = r->job->engine;
    sluice_batch batch = sl_batch_of(&r->job->batch);
    for (int m = 0; m < e->accumulation; m++) {
        SL_TRY(fill_batch(r, e->step, m));
        SL_TRY(sluice_forward(e, &batch, &r->mine->losses[m]));
        SL_TRY(sl_run_trace_end(r));
        SL_TRY(sluice_backward(e));
        bool last = m + 1 == e->accumulation;
        if (!last)
            prefetch_batch(r, e->step, m + 1);
        else if (e->step + 1 < r->steps)
            prefetch_batch(r, e->step + 1, 0);
    }
    return SLUICE_OK;
}

/* Counters of this rank since the engine was created. */
static void read_counters(const sl_run *r, sl_run_totals *out)
{
    sl_device_stats device;
    sl_comm_stats comm;
    sl_exec_stats(r->job->engine->exec, &device, &comm);
    *out = (sl_run_totals){ .gather = comm.gather_bytes, .reduce = comm.reduce_bytes, .norm = comm.norm_bytes };
    for (int k = 0; k < SL_LINK_COUNT; k++) out->moved[k] = device.moved[k];
    sl_row_stats rows;
    sl_exec_row_stats(r->job->engine->exec, &rows);
    out->table_rows = rows.rows;
    out->table_bytes = rows.moved_bytes;
    out->table_sent = rows.sent_bytes;
    out->table_disk_read = rows.disk_read;
    out->table_disk_written = rows.disk_written;
}

/* What was counted since the step before, or since the pause between them: collectives go on while one step ends and
 * the next begins, and belong to one of the two. */
static void count_step(sl_run *r, double seconds)
{
    sl_run_totals after, *before = &r->counters, *sum = &r->moved;
    if (r->job->engine->step == r->first_step + 1) return; /* means are over steps 2 to n */
    read_counters(r, &after);
    for (int k = 0; k < SL_LINK_COUNT; k++) sum->moved[k] += after.moved[k] - before->moved[k];
    sum->gather += after.gather - before->gather;
    sum->reduce += after.reduce - before->reduce;
    sum->norm += after.norm - before->norm;
    sum->table_rows += after.table_rows - before->table_rows;
    sum->table_bytes += after.table_bytes - before->table_bytes;
    sum->table_sent += after.table_sent - before->table_sent;
    sum->table_disk_read += after.table_disk_read - before->table_disk_read;
    sum->table_disk_written += after.table_disk_written - before->table_disk_written;
    *before = after;
    r->counted_steps++;
    r->counted_micro += (uint64_t)r->job->engine->accumulation;
    r->counted_seconds += seconds;
    r->counted_data += r->data_seconds;
}

/* Asking costs as much as a small step takes, and the answer hardly changes. */
static uint64_t resident_bytes(sl_run *r)
{
    double clock = sl_now();
    if (r->job->ranks.rank != 0) return 0; /* rank 0 speaks for itself */
    if (r->resident_bytes == 0 || clock - r->resident_at > RESIDENT_SECONDS) {
        r->resident_bytes = sl_memory_resident();
        r->resident_at = clock;
    }
    return r->resident_bytes;
}

/* Rank 0 watches the pace, and tells the others with the next step. What waits for data is told elsewhere. */
static void watch_pace(sl_run *r, double seconds)
{
    const sl_job *j = r->job;
    const uint64_t step = j->engine->step, slow_from = (uint64_t)j->settings.slow_from;
    const double planned = sl_renewal_expected(&r->renewal, r->predicted.seconds, j->engine->speculation.failed != 0);
    const double expected = j->measured && j->growth.every == 0 ? planned : 0, before = r->drift.usual;
    double took = seconds - r->data_seconds;
    if (j->ranks.rank != 0 || j->rehearses || step <= r->first_step + 2) return; /* the first ones touch new memory */
    if (slow_from > 0 && step >= slow_from) took *= 10;
    switch (sl_drift_observe(&r->drift, took, expected, slow_from > 0 ? 0 : SL_DRIFT_SECONDS)) {
    case SL_DRIFT_NONE:
        return;
    case SL_DRIFT_UNEXPECTED:
        sl_log_write(&j->log, SLUICE_LOG_NOTE,
                     "steps take %.3g s, and %.3g s were expected: another program may be using this machine",
                     r->drift.usual, expected);
        return;
    case SL_DRIFT_SLOWER:
        break;
    }
    sl_log_write(
        &j->log, SLUICE_LOG_WARNING,
        "steps have become slower: %.3g s instead of %.3g s; another program may be using this machine, or a link "
        "is slower; %s",
        r->drift.usual, before,
        j->settings.replan ? "a new plan follows at the next checkpoint"
                           : "with replan it would plan anew at the next checkpoint");
    r->mine->replan = j->settings.replan;
}

/* How the run would change to its other plan. */
static void expect_renewal(sl_run *r)
{
    const sl_settings *s = &r->job->settings;
    const bool saves = s->checkpoint.path[0] != '\0' && s->checkpoint.every > 0;
    r->renewal_seconds = 0;
    if (r->renewal.window == 0) return;
    if (sl_plan_may_carry(r->job->engine->plan))
        r->renewal_way = SL_RENEW_NOW;
    else
        r->renewal_way =
            saves && r->renewal.here.speculates && !r->renewal.other.speculates ? SL_RENEW_AT_A_SAVE : SL_RENEW_NEVER;
}

/* Whether the change is worth its time. How long it takes is measured when it matters: where reserving memory alone would not
 * take too long. */
static sluice_status renewal_pays(sl_run *r, double saved, bool *pays)
{
    sluice_engine *e = r->job->engine;
    const uint64_t left = r->steps - e->step;
    *pays = r->renewal_way != SL_RENEW_NEVER && sl_renewal_pays(saved, left, e->reserve_seconds);
    if (!*pays) return SLUICE_OK;
    if (r->renewal_seconds == 0) SL_TRY(sl_engine_replace_seconds(e, &r->renewal_seconds));
    *pays = sl_renewal_pays(saved, left, r->renewal_seconds);
    return SLUICE_OK;
}

/* Whether the run should do that: rank 0 decides, and tells the others with the next step. */
static sluice_status consider_renewal(sl_run *r)
{
    const sl_job *j = r->job;
    const uint64_t step = j->engine->step, forced = (uint64_t)j->settings.renew_every;
    const bool failed = (j->engine->speculation.failed & 1u) != 0;
    if (j->ranks.rank != 0 || j->rehearses || r->renewal.window == 0) return SLUICE_OK;
    const double saved = sl_renewal_observe(&r->renewal, failed);
    bool due = forced > 0 && step % forced == 0;
    if (forced == 0) SL_TRY(renewal_pays(r, saved, &due));
    r->mine->renew = due ? r->renewal_way : SL_RENEW_NEVER;
    return SLUICE_OK;
}

static void step_event(sl_run *r, double loss, double lr, double seconds)
{
    const sluice_engine *e = r->job->engine;
    sluice_event event = { .kind = SLUICE_EVENT_STEP,
                           .step = e->step,
                           .steps = r->steps,
                           .epoch = epochs_in(r, e->step),
                           .loss = loss,
                           .lr = lr,
                           .gradient_norm = e->norm,
                           .seconds = seconds,
                           .data_seconds = r->data_seconds,
                           .loss_scale = e->used_scale,
                           .skipped = e->skipped,
                           .speculated = e->speculation.speculated,
                           .rolled_back = e->speculation.rolled_back,
                           .samples = (uint64_t)r->pace.samples,
                           .tokens = (uint64_t)r->pace.tokens,
                           .targets = r->step_targets,
                           .total_samples = sl_run_position(r, e->step) * (uint64_t)r->job->batch.rows,
                           .resident_bytes = resident_bytes(r) };
    sluice_observed_peak(e, &event.memory);
    sl_pace_to_event(&r->pace, false, seconds, &event);
    sl_run_emit(r, &event);
}

/* An epoch ends with the step that sees its last sample. */
static void note_epoch(sl_run *r, double loss)
{
    double before = floor(epochs_in(r, r->job->engine->step - 1) + 1e-9);
    double now = floor(epochs_in(r, r->job->engine->step) + 1e-9);
    if (isfinite(loss)) { /* others are of steps that were skipped */
        double weight = r->targets != NULL         ? (double)r->step_targets
                        : r->job->growth.every > 0 ? (double)r->job->engine->accumulation
                                                   : 1;
        r->epoch_loss += weight * loss;
        r->epoch_weight += weight;
    }
    if (now <= before) return;
    sluice_event e = { .kind = SLUICE_EVENT_EPOCH,
                       .step = r->job->engine->step,
                       .steps = r->steps,
                       .epoch = now,
                       .loss = r->epoch_weight > 0 ? r->epoch_loss / r->epoch_weight : (double)NAN,
                       .seconds = sl_now() - r->start };
    sl_run_emit(r, &e);
    r->epoch_loss = 0;
    r->epoch_weight = 0;
}

/* A rank alone has nobody to agree with, and need not wait for the exchange of the next step. */
static bool stops(const sl_run *r)
{
    return r->stop || (r->job->ranks.count == 1 && stop_asked(r));
}

static bool save_due(const sl_run *r)
{
    int64_t every = r->job->settings.checkpoint.every;
    return every > 0 && r->job->engine->step % (uint64_t)every == 0;
}

/* Steps follow each other while collectives of the one before are still under way. Where something else follows, and
 * before the first step that is counted, they are waited for, so that each is counted in some step. */
static sluice_status settle_before_pause(sl_run *r)
{
    const sluice_engine *e = r->job->engine;
    bool first = e->step == r->first_step + 1, last = e->step >= r->steps;
    r->pauses = first || last || r->save || stops(r) || evaluation_due(r) || save_due(r);
    if (!r->pauses) return SLUICE_OK;
    SL_TRY(sl_exec_settle(e->exec));
    return sl_run_trace_end(r);
}

static sluice_status train_step(sl_run *r)
{
    sluice_engine *e = r->job->engine;
    const sl_schedule_options *schedule = &r->job->settings.schedule;
    double start = sl_now(), loss = (double)NAN;
    bool learns;
    if (r->pauses || e->step == r->first_step) read_counters(r, &r->counters);
    r->aside = r->data_seconds = 0;
    grow_batch(r);
    SL_TRY(sl_run_trace_begin(r));
    /* steps that are skipped do not move the schedule, as under DeepSpeed */
    e->lr = sl_schedule_lr(schedule, &r->schedule, e->applied + 1);
    e->momentum = sl_schedule_momentum(schedule, e->applied + 1);
    SL_TRY(weigh_step(r, &learns));
    if (learns) SL_TRY(run_micro_batches(r));
    SL_TRY(exchange_notes(r));
    if (learns) {
        loss = sl_engine_mean_loss(e, note_of(r, 0)->losses, r->note_bytes / sizeof(double));
        SL_TRY(sl_engine_step(e, isfinite(loss)));
    } else {
        SL_TRY(sl_engine_pass_step(e));
    }
    SL_TRY(settle_before_pause(r));
    double seconds = sl_now() - start - r->aside;
    count_step(r, seconds);
    watch_pace(r, seconds);
    SL_TRY(consider_renewal(r));
    step_event(r, loss, e->lr, seconds);
    sl_job_tell_left_out(r->job, false);
    note_epoch(r, loss);
    return SLUICE_OK;
}

/* ---- the plan ---- */

static void print_plan(const sl_job *j, const sl_run_totals *predicted, const sl_pace *pace, FILE *out)
{
    sl_plan_verdict verdict;
    sl_verdict_of_plan(j, predicted, pace, &verdict);
    fprintf(out, "%s\n", verdict.text);
    const sl_batch_growth *g = &j->growth;
    long long unit = (long long)j->settings.model.batch * j->engine->plan->options.rank_count;
    if (g->most > g->first)
        fprintf(
            out,
            "batch: grows from %lld to %lld samples, times %lld every %lld steps; the plan is that of the largest\n",
            g->first * unit, g->most * unit, (long long)g->factor, (long long)g->every);
    sl_plan_print(j->engine->plan, out);
    sl_pace_print(pace, predicted->seconds, out);
    sl_auto_print(&j->arrangements, RUNNERS_UP, out);
}

static sluice_status announce(sl_run *r)
{
    sluice_event plan;
    sl_plan_verdict verdict;
    sl_candidate_list list;
    if (r->options->plan_out != NULL && r->job->ranks.rank == 0)
        print_plan(r->job, &r->predicted, &r->pace, r->options->plan_out);
    sl_job_plan_event(r->job, &r->predicted, &r->pace, &plan);
    sl_verdict_of_plan(r->job, &r->predicted, &r->pace, &verdict);
    sl_verdict_to_event(&verdict, &plan);
    sluice_status st = sl_auto_to_event(&r->job->arrangements, &list, &plan);
    if (st == SLUICE_OK) sl_run_emit(r, &plan);
    sl_candidate_list_free(&list);
    return st;
}

/* ---- the run ---- */

static sluice_status stopped(sl_run *r)
{
    uint64_t step = r->job->engine->step;
    SL_TRY(sl_run_trace_end(r));
    if (step > 0) SL_TRY(sl_run_save(r));
    const char *outcome = "; there was nothing to save yet";
    if (step > 0 && r->saved_step == step) outcome = "; saved, continue with --resume";
    if (step > 0 && r->saved_step != step) outcome = "; nothing was saved, as checkpoint.path is not set";
    return sl_fail(SLUICE_ERR_STOPPED, "stopped by a signal after step %llu%s", (unsigned long long)step, outcome);
}

static void tell_early_stop(const sl_run *r)
{
    sluice_metric watched = { sl_metric_name(r->job->judge.stopping.metric), r->stopping.value, true };
    sl_run_emit(r, &(sluice_event){ .kind = SLUICE_EVENT_EARLY_STOP,
                                    .step = r->job->engine->step,
                                    .steps = r->steps,
                                    .metrics = &watched,
                                    .metric_count = 1,
                                    .best_step = r->stopping.step,
                                    .evaluations = r->stopping.since });
}

static void tell_renewal(const sl_run *r, const sl_step_clock *before, const sl_step_clock *now)
{
    const bool rarely = now->speculates && (!before->speculates || now->without > before->without);
    sl_log_write(&r->job->log, SLUICE_LOG_NOTE, "%s: the run goes on by a plan %s, to the same bits",
                 rarely ? "steps are rarely clipped or skipped"
                        : "steps are clipped or skipped too often for updates on speculation",
                 rarely            ? "that is faster for such steps"
                 : now->speculates ? "with fewer of them"
                                   : "for updates that wait for the norm");
}

/* All ranks, between two steps: what was counted and expected is from here on that of the other plan. */
static sluice_status renew_plan(sl_run *r)
{
    sl_job *j = r->job;
    bool done;
    r->renew = SL_RENEW_NEVER;
    r->mine->renew = SL_RENEW_NEVER;
    SL_TRY(sl_run_trace_end(r));
    SL_TRY(sl_run_finish_save(r));
    r->held = 0;
    SL_TRY(sl_job_replace_plan(j, &done));
    if (!done) return SLUICE_OK;
    sl_renewal_change(&r->renewal);
    expect_renewal(r);
    sl_totals_of_plan(j->engine->plan, &r->predicted);
    SL_TRY(sl_totals_share(&j->ranks, &r->predicted));
    sl_job_pace(j, r->pace.peak, &r->pace);
    r->moved = r->counters = (sl_run_totals){ .seconds = 0 };
    r->counted_steps = r->counted_micro = 0;
    r->counted_seconds = r->counted_data = 0;
    r->first_step = j->engine->step;
    sl_drift_forget(&r->drift);
    if (j->ranks.rank == 0) tell_renewal(r, &r->renewal.other, &r->renewal.here);
    return announce(r);
}

static sluice_status train_steps(sl_run *r)
{
    const sl_settings *s = &r->job->settings;
    if (r->first_step == 0) SL_TRY(evaluate(r));
    SL_TRY(exchange_notes(r));
    while (r->job->engine->step < r->steps && !ends_early(r) && !r->again) {
        if (stops(r)) return stopped(r);
        SL_TRY(train_step(r));
        if (evaluation_due(r)) SL_TRY(evaluate(r));
        if (r->pending != NULL && r->written) SL_TRY(sl_run_finish_save(r));
        r->again = (r->replan || r->renew == SL_RENEW_AT_A_SAVE) && save_due(r) && r->job->engine->step < r->steps;
        if (r->save || r->again)
            SL_TRY(
                sl_run_save(r)); /* somebody asked for it, and waits for the event; or the next plan begins with it */
        else if (save_due(r) || (s->checkpoint.keep_best && r->best.step == r->job->engine->step))
            SL_TRY(sl_run_save_in_background(r));
        if (r->renew == SL_RENEW_NOW && !r->again && r->job->engine->step < r->steps && !stops(r))
            SL_TRY(renew_plan(r));
    }
    if (r->again && r->renew == SL_RENEW_AT_A_SAVE && r->job->ranks.rank == 0)
        tell_renewal(r, &r->renewal.here, &r->renewal.other);
    if (ends_early(r)) tell_early_stop(r);
    return SLUICE_OK;
}

/* What was counted, over all ranks. */
static sluice_status measure(sl_run *r, sl_run_totals *out)
{
    sl_device_stats stats;
    uint64_t n = r->counted_steps > 0 ? r->counted_steps : 1;
    sl_exec_stats(r->job->engine->exec, &stats, NULL);
    *out = r->moved;
    out->seconds = r->counted_seconds / (double)n;
    out->data_seconds = r->counted_data / (double)n;
    for (int i = 0; i < SL_TIER_COUNT; i++) out->peak[i] = stats.observed_peak[i];
    SL_TRY(sl_totals_share(&r->job->ranks, out));
    for (int k = 0; k < SL_LINK_COUNT; k++) out->moved[k] /= n;
    out->gather /= n;
    out->reduce /= n;
    out->norm /= n;
    out->table_rows /= n;
    out->table_bytes /= n;
    out->table_sent /= n;
    out->table_disk_read /= n;
    out->table_disk_written /= n;
    return SLUICE_OK;
}

/* By now everything is written; a stop only costs the hashes. */
static sluice_status hash_end(const sl_run *r, char weights[65], char state[65])
{
    if (!r->job->settings.hashes) return SLUICE_OK;
    sluice_status st = sluice_hash(r->job->engine, weights, state);
    if (st != SLUICE_ERR_STOPPED) return st;
    return sl_fail(st, "stopped by a signal while hashing, after step %llu, the last one; all files are written",
                   (unsigned long long)r->job->engine->step);
}

/* Of a step as they were in the mean, where they grew. */
static sl_pace mean_pace(const sl_run *r)
{
    sl_pace p = r->pace;
    if (r->job->growth.every == 0 || r->counted_steps == 0) return p;
    double share = (double)r->counted_micro / (double)r->counted_steps / r->job->engine->accumulation;
    p.samples *= share;
    p.tokens *= share;
    p.flops *= share;
    return p;
}

/* The streams that the timed step used. Returns how many. */
static int stream_uses(const sl_run *r, sluice_stream_use out[SL_STREAM_COUNT])
{
    int count = 0;
    for (int i = 0; r->timed.step > 0 && i < SL_STREAM_COUNT; i++)
        if (r->timed.busy[i] > 0)
            out[count++] =
                (sluice_stream_use){ sl_plan_stream_name((sl_stream)i), r->timed.busy[i], r->timed.exposed[i] };
    return count;
}

static sluice_status end_event(sl_run *r, const char *weights, const char *state)
{
    sluice_engine *e = r->job->engine;
    const sl_pace pace = mean_pace(r);
    sl_run_totals measured;
    sluice_stream_use uses[SL_STREAM_COUNT];
    sluice_event event;
    sl_job_tell_left_out(r->job, true);
    SL_TRY(measure(r, &measured));
    sl_job_plan_event(r->job, &measured, &pace, &event);
    event.kind = SLUICE_EVENT_END;
    sl_pace_to_event(&pace, false, measured.seconds, &event);
    event.step = event.steps = e->step;
    event.seconds = sl_now() - r->start;
    event.speculated = e->speculation.speculated;
    event.rolled_back = e->speculation.rolled_back;
    event.streams = uses;
    event.stream_count = stream_uses(r, uses);
    event.timed_seconds = r->timed.step;
    event.weights_sha256 = r->job->settings.hashes ? weights : NULL;
    event.state_sha256 = r->job->settings.hashes ? state : NULL;
    if (r->options->plan_out != NULL && r->job->ranks.rank == 0) {
        bool decodes = r->job->data->ops->effort == SL_FILL_SLOW;
        sl_report_print(e, &r->predicted, &measured, &pace, decodes, r->options->plan_out);
        sl_run_trace_report(r, r->options->plan_out);
    }
    sl_run_emit(r, &event);
    return SLUICE_OK;
}

/* The hashes are those after the last step, whichever weights are saved. */
static sluice_status end_run(sl_run *r)
{
    char weights[65] = "", state[65] = "";
    bool other = r->job->settings.save_best && r->best.step > 0 && r->best.step != r->job->engine->step;
    SL_TRY(sl_engine_judge_skips(r->job->engine));
    SL_TRY(sl_run_save(r));
    if (other) SL_TRY(hash_end(r, weights, state));
    if (other) SL_TRY(sl_run_load_best(r));
    SL_TRY(sl_run_save_weights(r));
    if (!other) SL_TRY(hash_end(r, weights, state));
    return end_event(r, weights, state);
}

/* Epochs become steps: the steps that see every sample that often. A schedule without a length of its own has the
 * run's. */
/* Packed rows hold many samples: epochs of a small file can be a handful of steps, in which nothing is learnt. */
static void warn_of_few_steps(const sl_run *r)
{
    enum { FEW = 10 };
    const sl_settings *s = &r->job->settings;
    if (s->steps > 0 || r->steps >= FEW || r->job->ranks.rank != 0) return;
    sl_log_write(&r->job->log, SLUICE_LOG_WARNING,
                 "%lld epoch%s %llu step%s of %lld row%s; for more of them raise epochs, or lower train_batch_size",
                 (long long)s->epochs, s->epochs == 1 ? " is" : "s are", (unsigned long long)r->steps,
                 r->steps == 1 ? "" : "s", (long long)s->train_batch_size, s->train_batch_size == 1 ? "" : "s");
}

static sluice_status count_steps(sl_run *r)
{
    sl_settings *s = &r->job->settings;
    const double steps = sl_job_steps(r->job, &r->batches_per_epoch);
    if (steps > SL_MOST_STEPS)
        return sl_fail(SLUICE_ERR_USAGE,
                       "epochs: %lld epochs of %.17g samples are %.3g steps; at most %.0f are allowed",
                       (long long)s->epochs, r->batches_per_epoch * (double)s->train_batch_size, steps, SL_MOST_STEPS);
    r->steps = (uint64_t)steps;
    if (s->schedule.total_num_steps < 0) s->schedule.total_num_steps = (int64_t)r->steps;
    sl_schedule_place_warmup(&s->schedule, (int64_t)r->steps);
    if (s->steps < 0 && r->job->ranks.rank == 0) sl_config_warn_of_warmup(s, (int64_t)r->steps, &r->job->log);
    warn_of_few_steps(r);
    if (r->job->ranks.rank == 0) sl_config_tell_dropout(s, &r->job->log);
    return SLUICE_OK;
}

/* What steps are compared with, from GEMMs that all ranks compute at the same time, as they do in a step. A run that is
 * over in a moment is not kept waiting for it; its peak stays unknown. All ranks have the same prediction, so they take
 * the same way. */
static sluice_status measure_peak(sl_run *r)
{
    const sluice_engine *e = r->job->engine;
    sl_job_pace(r->job, 0, &r->pace);
    if ((double)r->steps * r->predicted.seconds < WORTH_A_PEAK_SECONDS) return SLUICE_OK;
    sl_ranks *ranks = &r->job->ranks;
    double peak = 0;
    double *all = sl_alloc_array((size_t)ranks->count, sizeof *all, "rates of the ranks");
    if (all == NULL) return SLUICE_ERR_NO_MEMORY;
    sluice_status st = ranks->comm->ops->barrier(ranks->comm, "measuring together");
    if (st == SLUICE_OK && e->computes) {
        st = sl_measured_peak(&e->device, e->isa, e->threads, e->graph->precision, &peak);
        /* an arena that fills the GPU leaves no room to measure: then the peak stays unknown */
        if (e->device.is_cuda && st == SLUICE_ERR_NO_MEMORY) st = SLUICE_OK;
    }
    st = sl_ranks_agree(ranks, "measuring", st);
    if (st == SLUICE_OK) st = ranks->comm->ops->exchange(ranks->comm, "measured rates", &peak, sizeof peak, all);
    peak = 0;
    for (int i = 0; i < ranks->count; i++) peak += all[i];
    sl_free(all);
    sl_job_pace(r->job, peak, &r->pace);
    return st;
}

/* A run that is resumed has shown it. */
static void show_first_sample(const sl_run *r)
{
    const sluice_sample *first = sl_data_jsonl_first(r->job->data);
    if (first != NULL && r->first_step == 0)
        sl_run_emit(r, &(sluice_event){ .kind = SLUICE_EVENT_SAMPLE, .sample = first });
}

/* Everything that steps need: notes, weights, expectations. */
static sluice_status prepare(sl_run *r)
{
    sl_job *j = r->job;
    const sl_settings *s = &j->settings;
    const sluice_engine *e = j->engine;
    sl_ranks *ranks = &j->ranks;
    SL_TRY(count_steps(r));
    sl_schedule_start(&s->schedule, &r->schedule);
    r->note_bytes = sizeof(sl_step_note) + (size_t)e->plan->options.accumulation * sizeof(double);
    r->mine = sl_alloc(r->note_bytes, "note to the ranks");
    r->all = sl_alloc_array((size_t)ranks->count, r->note_bytes, "notes of the ranks");
    if (r->mine == NULL || r->all == NULL) return SLUICE_ERR_NO_MEMORY;
    r->step_targets = (uint64_t)(j->info.tokens_per_sample * j->batch.rows) * sl_engine_micro_batches(e);
    if (j->data->ops->targets != NULL) {
        r->targets = sl_alloc_array((size_t)sl_engine_micro_batches(e), sizeof *r->targets, "targets of a step");
        if (r->targets == NULL) return SLUICE_ERR_NO_MEMORY;
    }
    if (s->initial_weights[0] != '\0') SL_TRY(sl_ranks_together(ranks, sl_weights_load(e->exec, s->initial_weights)));
    if (s->adapter[0] != '\0') SL_TRY(sl_ranks_together(ranks, sl_adapter_load(e->exec, s->adapter)));
    sl_renewal_begin(&r->renewal, sl_plan_step_clock(e->plan), e->plan->placement.other.clock);
    expect_renewal(r);
    sl_totals_of_plan(e->plan, &r->predicted);
    return sl_totals_share(ranks, &r->predicted);
}

sluice_status sl_run_rehearse(sl_run *r, uint64_t steps, double *seconds)
{
    const sluice_engine *e = r->job->engine;
    SL_TRY(prepare(r));
    sl_job_pace(r->job, 0, &r->pace);
    r->steps = steps + 1; /* the first one touches new memory, and is not counted */
    SL_TRY(exchange_notes(r));
    while (e->step < r->steps) {
        double before = r->counted_seconds;
        if (stops(r)) return sl_fail(SLUICE_ERR_STOPPED, "stopped by a signal while measuring; nothing was kept");
        SL_TRY(train_step(r));
        if (e->step > 1) *seconds++ = r->counted_seconds - before;
    }
    return SLUICE_OK;
}

void sl_run_close(sl_run *r)
{
    sl_run_drop_save(r);
    sl_lock_release(&r->lock);
    sl_model_files_free(&r->files);
    sl_free(r->targets);
    sl_free(r->mine);
    sl_free(r->all);
    sl_job_close(r->job);
}

/* Behind everything that may refuse the run: what the journal says of the run before it stays its last word then. Events and
 * warnings up to here have waited. */
static sluice_status open_watch(sl_run *r)
{
    sl_ranks *ranks = &r->job->ranks;
    return sl_ranks_agree(ranks, "opening the journal", ranks->rank == 0 ? sl_run_open_watch(r) : SLUICE_OK);
}

static sluice_status run_training(sl_run *r)
{
    const sluice_engine *e = r->job->engine;
    SL_TRY(prepare(r));
    SL_TRY(measure_peak(r));
    SL_TRY(sl_run_begin_report(r));
    SL_TRY(announce(r));
    SL_TRY(sl_run_open_folder(r));
    SL_TRY(sl_run_hold_files(r));
    SL_TRY(sl_run_check_room(r));
    SL_TRY(open_watch(r));
    r->first_step = e->step;
    if (e->step < r->steps) SL_TRY(sl_run_write_profile(r, NULL));
    show_first_sample(r);
    r->start = sl_now();
    SL_TRY(train_steps(r));
    return r->again ? SLUICE_OK : end_run(r);
}

/* What follows a run that ended at a checkpoint. */
typedef struct succession {
    bool again; /* the run, by another plan */
    bool slow;  /* because its steps have become slower */
    bool waits; /* for updates that wait for the norm */
} succession;

/* One plan, to the last step or to the checkpoint where another one takes over. */
static sluice_status train_by_one_plan(const sluice_config *c, sluice_job_options *o, succession *next)
{
    sl_job j = { .data = NULL, .measures_anew = next->slow, .waits = next->waits };
    sl_run r = { .job = &j, .options = o, .lock = { -1 } };
    sluice_job_options options = *o;
    r.options = &options;
    next->again = next->slow = false;
    SL_TRY(sl_run_begin_watch(&r, &options));
    sluice_status st = sl_job_open(&j, c, &options, SL_JOB_TRAIN);
    if (st == SLUICE_OK) {
        st = run_training(&r);
        if (j.engine != NULL) st = sl_exec_cause(j.engine->exec, st);
        /* bad numbers and a stop happen on all ranks at the same step; the others have to be told of anything else */
        if (st != SLUICE_ERR_NUMBERS && st != SLUICE_ERR_STOPPED) sl_ranks_failed(&j.ranks, st);
    }
    sl_run_drop_save(&r);
    next->again = st == SLUICE_OK && r.again;
    next->slow = next->again && r.replan;
    next->waits = next->waits || (next->again && r.renew == SL_RENEW_AT_A_SAVE);
    if (!next->again) sl_monitor_end(r.monitor, st);
    sl_lock_release(&r.lock);
    if (!next->again) st = sl_run_report(&r, st);
    sl_run_end_report(&r);
    sl_monitor_destroy(r.monitor);
    sl_run_close(&r);
    return st;
}

sluice_status sluice_job_train(const sluice_config *c, const sluice_job_options *given)
{
    sluice_job_options o;
    succession next = { .again = false };
    SL_TRY(sl_job_take_options(c, given, SL_JOB_TRAIN, "sluice_job_train", &o));
    sluice_status st = train_by_one_plan(c, &o, &next);
    while (st == SLUICE_OK && next.again) {
        o.resume = true;
        st = train_by_one_plan(c, &o, &next);
    }
    return st;
}

static sluice_status report_plan(sl_job *j, const sluice_job_options *o)
{
    sl_run_totals predicted;
    sl_pace pace;
    sluice_event e;
    sl_plan_verdict verdict;
    const sl_settings *s = &j->settings;
    SL_TRY(sl_totals_predict(j->engine->plan, s->plan.partition_weights, &predicted));
    sl_job_pace(j, 0, &pace);
    sl_candidate_list list;
    sl_job_plan_event(j, &predicted, &pace, &e);
    sl_verdict_of_plan(j, &predicted, &pace, &verdict);
    sl_verdict_to_event(&verdict, &e);
    sluice_status st = sl_auto_to_event(&j->arrangements, &list, &e);
    if (st == SLUICE_OK && o->event != NULL) o->event(o->user, &e);
    if (st == SLUICE_OK && o->report != NULL) st = sl_job_report_plan(j, o, &e);
    if (!o->json) print_plan(j, &predicted, &pace, o->out);
    sl_candidate_list_free(&list);
    return st;
}

static void report_refusal(const sl_job *j, const sluice_job_options *o)
{
    sl_plan_verdict verdict;
    const sl_plan_options *p = &j->refusal.options;
    sluice_event e = { .kind = SLUICE_EVENT_PLAN, .ranks = p->rank_count, .stage = p->stage };
    sl_verdict_of_refusal(j, &verdict);
    sl_verdict_to_event(&verdict, &e);
    if (o->event != NULL) o->event(o->user, &e);
}

sluice_status sluice_job_plan(const sluice_config *c, const sluice_job_options *given)
{
    sl_job j = { .data = NULL };
    sluice_job_options o;
    SL_TRY(sl_job_take_options(c, given, SL_JOB_PLAN, "sluice_job_plan", &o));
    if (o.report != NULL && o.report[0] == '\0')
        return sl_fail(SLUICE_ERR_USAGE,
                       "--report: a plan has no folder to put the page in; name its file, --report FILE.html");
    sluice_status st = sl_job_open(&j, c, &o, SL_JOB_PLAN);
    const uint64_t *told = j.settings.plan.budget;
    bool shared =
        o.ranks > 1 && o.machine == NULL && o.gpu == NULL && (told[SL_TIER_DEVICE] == 0 || told[SL_TIER_HOST] == 0);
    if (st == SLUICE_ERR_NO_FIT && shared) {
        /* without a file the ranks share this machine, which whoever plans for a cluster may not have meant */
        char message[SL_MESSAGE_BYTES];
        sl_error_copy(message);
        sl_fail(st, "%s; for ranks that do not share this machine, --machine FILE with what each has", message);
    }
    if (st == SLUICE_ERR_NO_FIT && j.refusal.is_set) report_refusal(&j, &o);
    if (st == SLUICE_OK) st = report_plan(&j, &o);
    sl_job_close(&j);
    return st;
}
