/* loop.c: the training run: steps, schedule, evaluation, checkpoints, signals, events; and the plan command. */
#include <math.h>
#include <string.h>

#include "core/thread.h"
#include "train/job.h"
#include "train/report.h"

typedef struct run {
    sl_job *job;
    const sluice_job_options *options;
    sl_lock lock;
    sl_schedule_state schedule;
    uint64_t steps;           /* planned in all */
    uint64_t first_step;      /* completed before this process began */
    uint64_t saved_step;      /* newest step on disk */
    double batches_per_epoch; /* steps; for the epoch number */
    /* copies counted during training segments only, from the second step of this process on */
    uint64_t moved_to_device, moved_to_host, counted_steps;
    double epoch_loss; /* sum over the epoch's steps so far */
    uint64_t epoch_steps;
    double start; /* of the run, seconds */
    char data_sha256[65];
} run;

static void emit(const run *r, const sluice_event *event)
{
    if (r->options->event != NULL) r->options->event(r->options->user, event);
}

/* ---- saving and resuming ---- */

static void fill_meta(const run *r, sl_checkpoint_meta *meta)
{
    sl_engine_meta(r->job->engine, meta);
    meta->schedule = r->schedule;
    memcpy(meta->data_sha256, r->data_sha256, sizeof meta->data_sha256);
}

static sluice_status save(run *r)
{
    const sl_settings *s = &r->job->settings;
    char path[4096];
    sl_checkpoint_meta meta;
    if (s->checkpoint.path[0] == '\0' || r->job->engine->step == r->saved_step) return SLUICE_OK;
    fill_meta(r, &meta);
    SL_TRY(sl_checkpoint_save(r->job->engine->exec, &r->job->engine->slots, &meta, s->checkpoint.path,
                              (int)s->checkpoint.keep, path));
    r->saved_step = meta.step;
    sluice_event e = { .kind = SLUICE_EVENT_SAVED, .step = meta.step, .steps = r->steps, .path = path };
    emit(r, &e);
    return SLUICE_OK;
}

static sluice_status resume(run *r)
{
    sluice_engine *e = r->job->engine;
    char identity[65];
    sl_checkpoint_meta meta = { 0 };
    sl_graph_identity(e->graph, identity);
    SL_TRY(sl_checkpoint_load(e->exec, &e->slots, r->job->settings.checkpoint.path, identity, &r->job->log, &meta));
    if (meta.step == 0) return SLUICE_OK;
    if (meta.seed != (uint64_t)r->job->settings.seed)
        return sl_fail(SLUICE_ERR_USAGE,
                       "seed is %lld, the checkpoint was made with %llu: a resumed run must keep its seed",
                       (long long)r->job->settings.seed, (unsigned long long)meta.seed);
    if (strcmp(meta.data_sha256, r->data_sha256) != 0)
        sl_log_write(&r->job->log, SLUICE_LOG_WARNING, "the data set is not the one the checkpoint was made with");
    sl_engine_restore(e, &meta);
    r->schedule = meta.schedule;
    r->saved_step = meta.step;
    sluice_event event = { .kind = SLUICE_EVENT_RESUMED, .step = meta.step, .steps = r->steps };
    emit(r, &event);
    return SLUICE_OK;
}

/* A run owns its checkpoint folder: the lock comes before the first look inside. */
static sluice_status open_folder(run *r)
{
    const char *folder = r->job->settings.checkpoint.path;
    char lock[4096];
    r->lock.fd = -1;
    if (folder[0] == '\0') {
        if (r->options->resume) return sl_fail(SLUICE_ERR_USAGE, "--resume needs checkpoint.path in the configuration");
        return SLUICE_OK;
    }
    if (snprintf(lock, sizeof lock, "%s/lock", folder) >= (int)sizeof lock)
        return sl_fail(SLUICE_ERR_USAGE, "checkpoint.path is too long");
    SL_TRY(sl_dir_make(folder));
    SL_TRY(sl_lock_take(lock, &r->lock));
    SL_TRY(sl_checkpoint_clean(folder));
    if (r->options->resume) return resume(r);
    uint64_t newest = 0;
    SL_TRY(sl_checkpoint_newest(folder, &newest));
    if (newest == 0) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_USAGE,
                   "%s holds the checkpoints of another run (newest: step %llu). Continue it with --resume, or choose "
                   "another checkpoint.path",
                   folder, (unsigned long long)newest);
}

/* ---- evaluation ---- */

static sluice_status evaluate(run *r)
{
    sluice_event e = { .kind = SLUICE_EVENT_EVAL, .step = r->job->engine->step, .steps = r->steps };
    if (!r->job->validates) return SLUICE_OK;
    SL_TRY(sl_job_evaluate(r->job, SL_SPLIT_VALIDATION, r->job->settings.evaluate.batches, &e.loss, &e.accuracy));
    sl_schedule_observe(&r->job->settings.schedule, &r->schedule, e.loss);
    emit(r, &e);
    return SLUICE_OK;
}

static bool evaluation_due(const run *r)
{
    int64_t every = r->job->settings.evaluate.every;
    uint64_t step = r->job->engine->step;
    return step == r->steps || (every > 0 && step % (uint64_t)every == 0);
}

/* ---- one step ---- */

static sluice_status micro_batches(run *r, double *loss)
{
    sl_job *j = r->job;
    sluice_engine *e = j->engine;
    int count = e->plan->options.accumulation;
    sluice_batch batch = sl_batch_of(&j->batch);
    double sum = 0, one = 0;
    for (int m = 0; m < count; m++) {
        SL_TRY(j->data->ops->fill(j->data, e->step * (uint64_t)count + (uint64_t)m, j->batch.rows, j->batch.fields,
                                  j->batch.count));
        SL_TRY(sluice_forward(e, &batch, &one));
        SL_TRY(sluice_backward(e));
        sum += one;
    }
    *loss = sum / count;
    return SLUICE_OK;
}

/* The gradient of a loss that is not finite is not worth applying, and says less than the loss does. */
static sluice_status check_loss(const run *r, double loss)
{
    if (isfinite(loss) || !r->job->engine->computes) return SLUICE_OK;
    return sl_fail(
        SLUICE_ERR_NUMBERS,
        "step %llu: the loss is %s. The weights are those of step %llu%s. Lower the learning rate, or look at the data",
        (unsigned long long)(r->job->engine->step + 1), isnan(loss) ? "NaN" : "infinite",
        (unsigned long long)r->job->engine->step, r->saved_step > 0 ? "; the checkpoint is good" : "");
}

static void count_moves(run *r, const sl_device_stats *before)
{
    sl_device_stats after;
    sl_exec_stats(r->job->engine->exec, &after, NULL);
    if (r->job->engine->step == r->first_step + 1) return; /* means are over steps 2 to n */
    r->moved_to_device += after.moved_to_device - before->moved_to_device;
    r->moved_to_host += after.moved_to_host - before->moved_to_host;
    r->counted_steps++;
}

static void step_event(const run *r, double loss, double lr, double seconds)
{
    const sluice_engine *e = r->job->engine;
    uint64_t samples = (uint64_t)r->job->batch.rows * (uint64_t)e->plan->options.accumulation;
    sluice_event event = { .kind = SLUICE_EVENT_STEP,
                           .step = e->step,
                           .steps = r->steps,
                           .epoch = (double)e->step / r->batches_per_epoch,
                           .loss = loss,
                           .lr = lr,
                           .gradient_norm = e->norm,
                           .seconds = seconds,
                           .loss_scale = e->context.loss_scale,
                           .samples = samples,
                           .tokens = samples * (uint64_t)r->job->info.tokens_per_sample,
                           .model_flops = e->plan->totals.model_flops,
                           .peak_flops = e->machine.gemm_flops };
    emit(r, &event);
}

/* An epoch ends with the step that sees its last sample. */
static void note_epoch(run *r, double loss)
{
    double before = floor((double)(r->job->engine->step - 1) / r->batches_per_epoch + 1e-9);
    double now = floor((double)r->job->engine->step / r->batches_per_epoch + 1e-9);
    r->epoch_loss += loss;
    r->epoch_steps++;
    if (now <= before) return;
    sluice_event e = { .kind = SLUICE_EVENT_EPOCH,
                       .step = r->job->engine->step,
                       .steps = r->steps,
                       .epoch = now,
                       .loss = r->epoch_loss / (double)r->epoch_steps,
                       .seconds = sl_now() - r->start };
    emit(r, &e);
    r->epoch_loss = 0;
    r->epoch_steps = 0;
}

static sluice_status train_step(run *r)
{
    sluice_engine *e = r->job->engine;
    const sl_schedule_options *schedule = &r->job->settings.schedule;
    double start = sl_now(), loss = 0;
    sl_device_stats before;
    sl_exec_stats(e->exec, &before, NULL);
    e->lr = sl_schedule_lr(schedule, &r->schedule, e->step + 1);
    e->momentum = sl_schedule_momentum(schedule, e->step + 1);
    SL_TRY(micro_batches(r, &loss));
    SL_TRY(check_loss(r, loss));
    SL_TRY(sluice_step(e));
    count_moves(r, &before);
    step_event(r, loss, e->lr, sl_now() - start);
    note_epoch(r, loss);
    return SLUICE_OK;
}

/* ---- the run ---- */

static bool stop_asked(const run *r)
{
    return r->options->stop != NULL && __atomic_load_n(r->options->stop, __ATOMIC_RELAXED) != 0;
}

static bool save_asked(const run *r)
{
    return r->options->save_request != NULL && __atomic_exchange_n(r->options->save_request, 0, __ATOMIC_RELAXED) != 0;
}

static sluice_status stopped(run *r)
{
    uint64_t step = r->job->engine->step;
    if (step > 0) SL_TRY(save(r));
    const char *outcome = "; there was nothing to save yet";
    if (step > 0 && r->saved_step == step) outcome = "; saved, continue with --resume";
    if (step > 0 && r->saved_step != step) outcome = "; nothing was saved, as checkpoint.path is not set";
    return sl_fail(SLUICE_ERR_STOPPED, "stopped by a signal after step %llu%s", (unsigned long long)step, outcome);
}

static sluice_status train_steps(run *r)
{
    int64_t every = r->job->settings.checkpoint.every;
    if (r->first_step == 0) SL_TRY(evaluate(r));
    while (r->job->engine->step < r->steps) {
        if (stop_asked(r)) return stopped(r);
        SL_TRY(train_step(r));
        if (evaluation_due(r)) SL_TRY(evaluate(r));
        bool due = every > 0 && r->job->engine->step % (uint64_t)every == 0;
        if (save_asked(r) || due) SL_TRY(save(r));
    }
    return SLUICE_OK;
}

static sluice_status end_event(run *r)
{
    sluice_engine *e = r->job->engine;
    char weights[65], state[65];
    sl_device_stats stats;
    sl_comm_stats comm;
    SL_TRY(sluice_hash(e, weights, state));
    sl_exec_stats(e->exec, &stats, &comm);
    uint64_t n = r->counted_steps > 0 ? r->counted_steps : 1;
    sluice_event event;
    sl_job_plan_event(r->job, &event);
    event.kind = SLUICE_EVENT_END;
    event.step = event.steps = e->step;
    event.peak = (sluice_memory){ stats.observed_peak[SL_TIER_DEVICE], stats.observed_peak[SL_TIER_HOST],
                                  stats.observed_peak[SL_TIER_DISK] };
    event.moved_to_device = r->moved_to_device / n;
    event.moved_to_host = r->moved_to_host / n;
    event.comm_gather = comm.gather_bytes;
    event.comm_reduce = comm.reduce_bytes;
    event.seconds = sl_now() - r->start;
    event.weights_sha256 = weights;
    event.state_sha256 = state;
    if (r->options->plan_out != NULL)
        sl_report_print(e, event.moved_to_device, event.moved_to_host, r->options->plan_out);
    emit(r, &event);
    return SLUICE_OK;
}

/* Epochs become steps: the steps that see every sample that often. A schedule without a length of its own has the
 * run's. */
static void count_steps(run *r)
{
    sl_settings *s = &r->job->settings;
    double samples = (double)r->job->data->ops->samples(r->job->data, SL_SPLIT_TRAIN);
    r->batches_per_epoch = samples / (double)s->train_batch_size;
    r->steps = s->steps > 0 ? (uint64_t)s->steps : (uint64_t)ceil((double)s->epochs * r->batches_per_epoch - 1e-9);
    if (s->schedule.total_num_steps < 0) s->schedule.total_num_steps = (int64_t)r->steps;
}

static sluice_status run_training(run *r)
{
    const sl_settings *s = &r->job->settings;
    sluice_event plan;
    r->job->data->ops->identity(r->job->data, r->data_sha256);
    count_steps(r);
    sl_schedule_start(&s->schedule, &r->schedule);
    if (s->initial_weights[0] != '\0') SL_TRY(sl_weights_load(r->job->engine->exec, s->initial_weights));
    if (r->options->plan_out != NULL) sl_plan_print(r->job->engine->plan, r->options->plan_out);
    sl_job_plan_event(r->job, &plan);
    emit(r, &plan);
    SL_TRY(open_folder(r));
    r->first_step = r->job->engine->step;
    r->start = sl_now();
    SL_TRY(train_steps(r));
    SL_TRY(save(r));
    if (s->save[0] != '\0') SL_TRY(sl_weights_save(r->job->engine->exec, s->save));
    return end_event(r);
}

sluice_status sluice_job_train(const sluice_config *c, const sluice_job_options *o)
{
    sl_job j = { .data = NULL };
    run r = { .job = &j, .options = o, .lock = { -1 } };
    sluice_status st = sl_job_open(&j, c, o, SL_JOB_TRAIN);
    if (st == SLUICE_OK) st = run_training(&r);
    sl_lock_release(&r.lock);
    sl_job_close(&j);
    return st;
}

sluice_status sluice_job_plan(const sluice_config *c, const sluice_job_options *o)
{
    sl_job j = { .data = NULL };
    sluice_status st = sl_job_open(&j, c, o, SL_JOB_PLAN);
    if (st == SLUICE_OK && o->event != NULL) {
        sluice_event e;
        sl_job_plan_event(&j, &e);
        o->event(o->user, &e);
    }
    if (st == SLUICE_OK && !o->json) sl_plan_print(j.engine->plan, o->out);
    sl_job_close(&j);
    return st;
}
