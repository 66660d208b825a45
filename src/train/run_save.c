/* run_save.c: the checkpoints of a run: when they are written, and what a run may continue from.
 *
 * All ranks save and load together. Rank 0 alone handles the folder itself: its lock, leftovers of killed runs, and
 * whether it is new; what it finds is then every rank's outcome. */
#include <string.h>
#include <time.h>

#include "core/thread.h"
#include "train/run.h"

/* How long the ranks of a killed run may take to die; the more memory they have, the longer they do. */
#define DYING_SECONDS    3.0
#define LOOK_NANOSECONDS 10000000

/* ---- saving ---- */

/* The present step, or there is no folder to save it to. */
static bool on_disk(const sl_run *r)
{
    return r->job->settings.checkpoint.path[0] == '\0' || r->job->engine->step == r->saved_step;
}

sluice_status sl_run_finish_save(sl_run *r)
{
    char path[4096];
    sl_save *save = r->pending;
    if (save == NULL) return SLUICE_OK;
    r->pending = NULL;
    SL_TRY(sl_ranks_together(&r->job->ranks, sl_checkpoint_finish(save, path)));
    r->saved_step = r->pending_step;
    sluice_event e = { .kind = SLUICE_EVENT_SAVED, .step = r->saved_step, .steps = r->steps, .path = path };
    sl_run_emit(r, &e);
    return SLUICE_OK;
}

static sluice_status begin(sl_run *r, bool background)
{
    const sl_settings *s = &r->job->settings;
    const sluice_engine *e = r->job->engine;
    sl_checkpoint_meta meta;
    sl_engine_meta(e, &meta);
    meta.schedule = r->schedule;
    meta.data_position = sl_run_position(r, meta.step);
    meta.stopping = r->stopping;
    meta.best = r->best;
    if (!s->checkpoint.keep_best) meta.best.step = 0;
    memcpy(meta.data_sha256, r->job->data_sha256, sizeof meta.data_sha256);
    r->pending_step = meta.step;
    sluice_status st =
        sl_checkpoint_begin(e->exec, &e->slots, &meta, s->checkpoint.path, s->checkpoint.keep, background, &r->pending);
    return sl_ranks_together(&r->job->ranks, st);
}

sluice_status sl_run_save(sl_run *r)
{
    SL_TRY(sl_run_finish_save(r));
    if (on_disk(r)) return SLUICE_OK;
    SL_TRY(begin(r, false));
    return sl_run_finish_save(r);
}

sluice_status sl_run_save_in_background(sl_run *r)
{
    if (!r->job->engine->plan->options.snapshot) return sl_run_save(r);
    SL_TRY(sl_run_finish_save(r));
    return on_disk(r) ? SLUICE_OK : begin(r, true);
}

void sl_run_drop_save(sl_run *r)
{
    char path[4096], message[SL_MESSAGE_BYTES];
    if (r->pending == NULL) return;
    sl_error_copy(message);
    sl_checkpoint_finish(r->pending, path);
    r->pending = NULL;
    sl_error_record("%s", message);
}

sluice_status sl_run_load_best(sl_run *r)
{
    char path[PATH_MAX];
    uint64_t step = 0;
    snprintf(path, sizeof path, "%s/step-%llu", r->job->settings.checkpoint.path, (unsigned long long)r->best.step);
    SL_TRY(sl_ranks_together(&r->job->ranks, sl_checkpoint_load_weights(r->job->engine->exec, path, &step)));
    if (step == r->best.step) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_INPUT, "%s, the best checkpoint, is gone: save_best has nothing to write", path);
}

/* ---- resuming ---- */

static sluice_status resume(sl_run *r)
{
    sluice_engine *e = r->job->engine;
    sl_checkpoint_meta meta = { 0 };
    sluice_status st =
        sl_checkpoint_load(e->exec, &e->slots, r->job->settings.checkpoint.path, &e->identity, &r->job->log, &meta);
    SL_TRY(sl_ranks_together(&r->job->ranks, st));
    if (meta.step == 0) return SLUICE_OK;
    if (r->job->ranks.rank == 0 && strcmp(meta.data_sha256, r->job->data_sha256) != 0)
        sl_log_write(&r->job->log, SLUICE_LOG_WARNING,
                     "the data set differs from the one the checkpoint was made with: the run goes on, with the "
                     "new data from here");
    if (r->job->ranks.rank == 0 && !sl_engine_has_kernels(e, meta.kernels))
        sl_log_write(&r->job->log, SLUICE_LOG_WARNING,
                     "the checkpoint was made by other kernels (%s): the run goes on, but its weights will not be "
                     "bit-identical to "
                     "those of a run that stayed with them",
                     meta.kernels);
    sl_engine_restore(e, &meta);
    r->schedule = meta.schedule;
    r->best = meta.best;
    r->stopping = meta.stopping;
    if (r->job->ranks.rank == 0 && r->job->settings.checkpoint.keep_best && meta.best.step > 0)
        st = sl_checkpoint_name_best(r->job->settings.checkpoint.path, meta.best.step);
    SL_TRY(sl_ranks_agree(&r->job->ranks, "naming the best checkpoint", st));
    r->saved_step = meta.step;
    sluice_metric best = { sl_metric_name(r->job->judge.best.metric), r->best.value, true };
    sluice_event event = { .kind = SLUICE_EVENT_RESUMED, .step = meta.step, .steps = r->steps };
    if (r->best.step > 0 && sl_best_is_by(&r->best, r->job->judge.best)) {
        event.judge = best.name;
        event.metrics = &best;
        event.metric_count = 1;
        event.best_step = r->best.step;
    }
    sl_run_emit(r, &event);
    return SLUICE_OK;
}

/* A run that was killed holds its folder until the last of its memory is freed; one that lives holds it on. The other
 * ranks wait meanwhile, so that half their deadline is the most. */
static sluice_status take_lock(sl_run *r, const char *path)
{
    const struct timespec look = { 0, LOOK_NANOSECONDS };
    double half = (double)r->job->settings.timeout_seconds / 2, until;
    until = sl_now() + (half < DYING_SECONDS ? half : DYING_SECONDS);
    sluice_status st = sl_lock_take(path, &r->lock);
    while (st == SLUICE_ERR_USAGE && sl_now() < until) {
        nanosleep(&look, NULL);
        st = sl_lock_take(path, &r->lock);
    }
    return st;
}

/* Before the first step: what is called as the link to the best checkpoint will be. */
static sluice_status check_best_name(const char *folder)
{
    char path[PATH_MAX];
    sl_path_info there;
    snprintf(path, sizeof path, "%s/" SL_BEST_NAME, folder); /* shorter than the lock's */
    SL_TRY(sl_path_look_at_name(path, &there));
    if (there.kind == SL_PATH_MISSING || there.kind == SL_PATH_LINK) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_USAGE,
                   "checkpoint.keep_best: %s, which will be a link to the best checkpoint, is a %s; move it away", path,
                   sl_path_kind_name(there.kind));
}

/* The lock comes before the first look inside. */
static sluice_status claim_folder(sl_run *r)
{
    const char *folder = r->job->settings.checkpoint.path;
    char lock[4096];
    uint64_t newest = 0;
    if (snprintf(lock, sizeof lock, "%s/" SL_RUN_LOCK, folder) >= (int)sizeof lock)
        return sl_fail(SLUICE_ERR_USAGE, "checkpoint.path is too long: give one of less than %zu bytes",
                       sizeof lock - sizeof "/" SL_RUN_LOCK);
    SL_TRY(sl_dir_make_lasting(folder));
    SL_TRY(take_lock(r, lock));
    SL_TRY(sl_checkpoint_clean(folder));
    if (r->job->settings.checkpoint.keep_best) SL_TRY(check_best_name(folder));
    if (r->options->resume) return sl_run_keep_model(r);
    SL_TRY(sl_checkpoint_newest(folder, &newest));
    if (newest == 0) return sl_run_keep_model(r);
    return sl_fail(SLUICE_ERR_USAGE,
                   "%s holds the checkpoints of another run (newest: step %llu). Continue it with --resume, or choose "
                   "another checkpoint.path",
                   folder, (unsigned long long)newest);
}

sluice_status sl_run_open_folder(sl_run *r)
{
    bool has_folder = r->job->settings.checkpoint.path[0] != '\0';
    sluice_status st = SLUICE_OK;
    if (!has_folder && r->options->resume)
        return sl_fail(SLUICE_ERR_USAGE, "--resume needs checkpoint.path in the configuration");
    if (has_folder && r->job->ranks.rank == 0) st = claim_folder(r);
    SL_TRY(sl_ranks_agree(&r->job->ranks, "opening the checkpoint folder", st));
    return r->options->resume ? resume(r) : SLUICE_OK;
}
