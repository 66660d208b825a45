/* run.h: a training run under way; what the loop and its saves share. */
#ifndef SL_TRAIN_RUN_H
#define SL_TRAIN_RUN_H

#include <limits.h>

#include "format/model_files.h"
#include "monitor/monitor.h"
#include "report/run_record.h"
#include "runtime/trace.h"
#include "train/drift.h"
#include "train/job.h"
#include "train/renewal.h"

/* When a run changes to its other plan. */
typedef enum {
    SL_RENEW_NEVER,
    SL_RENEW_NOW,       /* between two steps, in memory */
    SL_RENEW_AT_A_SAVE, /* there is no room for that: from the next checkpoint on, for good */
} sl_renew_when;

/* What one rank tells the others in a step; the losses of its micro-batches follow. */
typedef struct sl_step_note {
    int32_t stop, save; /* asked for on this rank */
    int32_t written;    /* this rank's part of the save in the background is on disk, or there is none */
    int32_t replan;     /* rank 0 saw that steps have become slower */
    int32_t renew;      /* rank 0 finds that its other plan is better for what the norms are: an sl_renew_when */
    double losses[];
} sl_step_note;

typedef struct sl_run {
    sl_job *job;
    const sluice_job_options *options;
    sl_lock lock; /* rank 0's */
    sl_schedule_state schedule;
    sl_best best, stopping;   /* of the evaluations: by evaluate.metric, and as early_stopping counts them */
    uint64_t steps;           /* planned in all */
    uint64_t first_step;      /* completed before this process began */
    uint64_t saved_step;      /* newest step on disk */
    double batches_per_epoch; /* steps; for the epoch number */
    uint64_t held;            /* micro-batch of the run that the job's buffers hold, from 1; 0: none */
    sl_save *pending;         /* being written in the background; NULL: none */
    uint64_t pending_step;
    /* the notes of the newest exchange: all ranks decide by these, and hence the same */
    sl_step_note *mine; /* owned; note_bytes long */
    char *all;          /* owned; a note of each rank */
    size_t note_bytes;
    bool stop, save, written, replan;
    sl_renew_when renew;
    sl_renewal renewal;
    double renewal_seconds; /* that it takes; 0: not known yet */
    sl_renew_when renewal_way;
    bool again; /* the run has ended at a checkpoint, to go on with another plan */
    sl_drift drift;
    uint64_t *targets;     /* owned; of each micro-batch of the step at hand; NULL: all of them count */
    uint64_t step_targets; /* of the step at hand, in all; 0: the data has no tokens, or none of the step's counts */
    /* counted during training segments only, from the second step of this process on */
    sl_run_totals predicted, moved;
    sl_run_totals counters; /* when the step at hand began to be counted */
    bool pauses;            /* something else follows the step, and nothing of it is under way any more */
    uint64_t counted_steps;
    uint64_t counted_micro; /* micro-batches of a rank in these */
    double counted_seconds; /* of these steps */
    double counted_data;    /* of them, in fill_batch */
    double data_seconds;    /* of the step at hand: filling batches, or waiting for those who do */
    sl_pace pace;
    double epoch_loss; /* sum over the epoch's steps so far, each times its weight */
    double epoch_weight;
    double start;              /* of the run, seconds */
    uint64_t traced_step;      /* 0: none so far */
    sl_trace_totals timed;     /* of that step, measured; step 0: not yet */
    sl_model_files files;      /* rank 0's: for a `save` that is a folder; made before the first step */
    double aside;              /* seconds of the step at hand that went into the trace */
    sl_text profile;           /* rank 0's: the newest one */
    bool profile_failed;       /* it could not be made or written, which was told */
    sl_run_record *record;     /* owned; rank 0's with options.report: what happened; NULL: nobody asks */
    uint64_t resident_bytes;   /* of this process, */
    double resident_at;        /* at that clock */
    sl_monitor *monitor;       /* owned; rank 0's; NULL on the others */
    sluice_job_options caller; /* as they were given: `options` has this run's own receivers of events and messages */
    sl_log to_caller;          /* messages that the monitor does not hear */
} sl_run;

/* All ranks, of a run whose job is open and rehearses: computes a step and then so many whose seconds are wanted. Saves, evaluates
 * and tells nothing. */
sluice_status sl_run_rehearse(sl_run *r, uint64_t steps, double *seconds);
/* Ends the run and its job, also after a failure. */
void sl_run_close(sl_run *r);

/* Rank 0 speaks for all. */
void sl_run_emit(const sl_run *r, const sluice_event *event);

/* Global micro-batches of so many steps: where the data of the next one begins. */
uint64_t sl_run_position(const sl_run *r, uint64_t step);

/* ---- run_save.c: all ranks ---- */

/* A run owns its checkpoint folder: takes the lock, then resumes or makes sure that the folder is new. */
sluice_status sl_run_open_folder(sl_run *r);
/* Writes a checkpoint of the present step and waits for it. Nothing where it is on disk already, or no folder is
 * set. */
sluice_status sl_run_save(sl_run *r);
/* The same in the background, while the following steps run, where the configuration asks for that. */
sluice_status sl_run_save_in_background(sl_run *r);
/* Commits the save in the background; waits for its writers. Nothing where there is none. */
sluice_status sl_run_finish_save(sl_run *r);
/* After the last step: the weights of the best checkpoint take the place of the engine's. */
sluice_status sl_run_load_best(sl_run *r);
/* Ends a save that a failure left behind; keeps the message of that failure. */
void sl_run_drop_save(sl_run *r);

/* ---- run_folder.c: the model's files beside its weights ---- */

/* Whether the model is of a family that other programs open as a folder, and has nothing that such a folder cannot hold. */
bool sl_run_has_model_files(const sl_settings *s);
/* Refuses a `save` that is a folder for a model without such files. */
sluice_status sl_run_check_folder(const sl_settings *s);
/* All ranks, before the first step: gets the files ready that `save` takes from the model's folder, which may be gone by the
 * last. */
sluice_status sl_run_hold_files(sl_run *r);
/* All ranks, after the last step: what `save` asks for. */
sluice_status sl_run_save_weights(sl_run *r);
/* Rank 0, which has the folder of the checkpoints: keeps them there for exports. */
sluice_status sl_run_keep_model(sl_run *r);

/* ---- run_files.c: what the run reads and writes ---- */

/* All ranks, before anything is read or planned: every output can be written, is none of the inputs and not another
 * output. Changes nothing. */
sluice_status sl_run_try_files(sl_job *j, const sluice_config *c, const sluice_job_options *o);
/* The same of what the options of another job ask for: predictions, replies or a page. */
sluice_status sl_job_try_output(const sl_job *j, const sluice_config *c, const sluice_job_options *o,
                                sl_job_purpose purpose);
/* All ranks, before the first step: whether the file systems have room for what the run is sure to write. */
sluice_status sl_run_check_room(sl_run *r);

/* ---- run_watch.c: what a run leaves for those who watch it ---- */

/* First of all: events and messages of `o`, this run's options, go to the caller and to the monitor from here on. */
sluice_status sl_run_begin_watch(sl_run *r, sluice_job_options *o);
/* Rank 0, which has the folder of the checkpoints where there is one, when nothing but the steps can fail any more: opens the journal and
 * the other files. */
sluice_status sl_run_open_watch(sl_run *r);
/* The folders of TensorBoard's files and of csv_monitor; "": there are none. */
sluice_status sl_watch_folders(const sl_settings *s, char tensorboard[PATH_MAX], char csv_monitor[PATH_MAX]);

/* ---- trace_file.c: every rank for itself ---- */

/* Rank 0 writes the file that was asked for, the others files of that name with a suffix. */
sluice_status sl_trace_path(const char *path, int rank, char out[PATH_MAX]);
sluice_status sl_trace_write(const sl_trace *t, const char *path, int rank);
/* At the beginning of every step: begins the trace where this is the step for it, the third of the run or its last. */
sluice_status sl_run_trace_begin(sl_run *r);
/* After the first forward of every step, and where training pauses: writes the trace when its step is done. */
sluice_status sl_run_trace_end(sl_run *r);
/* Where it was written. */
void sl_run_trace_report(const sl_run *r, FILE *out);

/* ---- run_report.c: rank 0, for itself ---- */

/* Whether somebody will look at a profile of the run, and whether a step is timed for it. */
bool sl_run_wants_profile(const sl_run *r);
bool sl_run_times_profile(const sl_run *r);
/* Writes it; NULL: with what the plan expects. */
sluice_status sl_run_write_profile(sl_run *r, const sl_trace *trace);
/* A failure on the way to it is a warning, and there will be none; a lack of memory stays one. */
sluice_status sl_run_excuse_profile(sl_run *r, sluice_status st);
/* Before the first event, and when all is over. */
sluice_status sl_run_begin_report(sl_run *r);
void sl_run_end_report(sl_run *r);
/* After the run, which ended so: writes the page that was asked for. Returns what the run is to return. */
sluice_status sl_run_report(sl_run *r, sluice_status ended);
/* The profile of a job's plan, with the times of a trace where there is one. `machine`: the file that describes what it is for;
 * NULL: it is for this one. */
sluice_status sl_job_profile(const sl_job *j, const sl_trace *trace, const char *machine, sl_text *out);
/* The page of a plan that is not run, as the options ask. */
sluice_status sl_job_report_plan(const sl_job *j, const sluice_job_options *o, const sluice_event *plan);

#endif
