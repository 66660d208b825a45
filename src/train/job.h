/* job.h: a configuration made real: data set, model, engine. What train, eval, generate and plan share. */
#ifndef SL_TRAIN_JOB_H
#define SL_TRAIN_JOB_H

#include "config/config.h"
#include "train/batch.h"
#include "train/batch_growth.h"
#include "train/judge.h"
#include "train/report.h"
#include "train/totals.h"

typedef struct sl_job {
    sl_settings settings;
    sl_log log;           /* of ranks other than 0: warnings only */
    sluice_log_fn log_to; /* the caller's */
    void *log_user;
    void (*event)(void *user, const sluice_event *event); /* the caller's; may be NULL */
    void *event_user;
    const int *stop; /* the caller's; NULL: never */
    sl_ranks ranks;
    sluice_data *data;     /* NULL: none is needed */
    int workers;           /* threads that fill batches ahead of the step; 0: none */
    bool ahead;            /* they are there: `data` is one of ahead.h */
    int64_t told_left_out; /* bad samples that were told of */
    /* Text: what token ids stand for. */
    const sl_vocabulary *vocabulary; /* in use: of the data, or kept; NULL: the data is no text */
    sl_vocabulary kept;              /* in the weights that the job begins with, where has_kept; code points owned */
    bool has_kept;
    const char *unit; /* `vocabulary` as files keep it; NULL without one */
    char *characters; /* owned; likewise */
    sl_arena arena;   /* of what was read to find `kept` */
    sluice_graph *graph;
    sl_model_info info;
    sluice_engine *engine;
    sl_batch_buffers batch;
    float *predictions; /* the graph's output for one micro-batch; NULL when not asked for */
    size_t prediction_bytes;
    sl_batch_growth growth; /* of jobs that train */
    sl_judge judge;         /* of jobs that evaluate */
    sl_metrics *metrics;    /* owned; what an evaluation collects; NULL: the job does not evaluate */
    struct sl_prediction_file *prediction_file; /* owned; where predictions go; NULL: nowhere */
    struct sl_generation *generation;           /* owned; prompts and replies; NULL: the job does not generate */
    /* What measuring found best for what is on "auto" (tuned_file.h), where has_tuned; else nothing was measured. */
    sl_arrangement tuned;
    bool has_tuned;
    bool measures_anew; /* rates as they are now: those that were planned by no longer hold */
    bool measured;      /* the plan goes by measured rates */
    bool waits;         /* its speculation has ended for good: updates wait for the norm */
    bool rehearses;     /* steps are measured and forgotten: nothing is read of or written to the run's files */
    sl_auto_candidate rows[SL_BATCH_CHOICES]; /* other micro-batches that were planned for */
    int row_count;
    sl_auto_result arrangements; /* all that was planned for what is on "auto", of jobs that train */
    char weights[4096];          /* where they came from, once they were loaded: a file, or a folder and the step */
    bool validates;              /* there is a validation split */
    sl_refusal refusal;          /* where its plan was refused */
    char data_sha256[65];
} sl_job;

#define SL_MOST_STEPS 9007199254740992.0 /* exact as a double, which epochs are counted in */

/* PLAN is TRAIN on the null backend: nothing is reserved, nothing runs. */
typedef enum { SL_JOB_TRAIN, SL_JOB_PLAN, SL_JOB_EVALUATE, SL_JOB_GENERATE } sl_job_purpose;

/* Reads the data, builds the model, plans and creates the engine. TRAIN: all ranks of o->world, which then have the
 * same configuration, data and plan, or the same failure. Zero the struct first; sl_job_close also after a failure. */
sluice_status sl_job_open(sl_job *j, const sluice_config *c, const sluice_job_options *o, sl_job_purpose purpose);
void sl_job_close(sl_job *j);
/* sl_engine_replace_plan, with the buffers of batches that the engine reads in place. */
sluice_status sl_job_replace_plan(sl_job *j, bool *done);
/* Micro-batch `index` of training into `batch`, whose buffers may be others than before. */
sluice_status sl_job_fill(sl_job *j, uint64_t index);
/* What the caller gave, with the defaults of what an older header does not know; SLUICE_ERR_USAGE names the call and what
 * it cannot be. The first thing that a public job does. */
sluice_status sl_job_take_options(const sluice_config *c, const sluice_job_options *given, sl_job_purpose purpose,
                                  const char *call, sluice_job_options *out);
/* Opens a job, does `work` where that succeeded, and closes it. */
sluice_status sl_job_run(const sluice_config *c, const sluice_job_options *given, sl_job_purpose purpose,
                         const char *call, sluice_status (*work)(sl_job *j, const sluice_job_options *o));
/* What evaluation finds; NaN where something means nothing, or is not known. */
typedef struct sl_evaluation {
    double values[SL_METRIC_COUNT];
    uint64_t targets; /* that counted */
} sl_evaluation;
/* Over a split (at most `batches` micro-batches; 0: all). Every sample counts once: padding does not count. */
sluice_status sl_job_evaluate(sl_job *j, sl_data_split split, int64_t batches, sl_evaluation *out);
/* What it found as an event of that kind. *list, of SL_METRIC_COUNT entries, is where the event's metrics are. */
void sl_evaluation_to_event(const sl_job *j, const sl_evaluation *v, sluice_metric *list, sluice_event *event);
/* Weights from o->weights, the newest checkpoint, or the configuration's "save", in this order. */
sluice_status sl_job_load_weights(sl_job *j, const sluice_job_options *o);
/* Warns of samples that the data set left out since that was told last; not of each. `over`: of all that were not told. */
void sl_job_tell_left_out(sl_job *j, bool over);
/* What a step is; peak: measured, of all ranks together; 0: not known. */
void sl_job_pace(const sl_job *j, double peak, sl_pace *out);
/* A prediction for all ranks as an event. */
void sl_job_plan_event(const sl_job *j, const sl_run_totals *predicted, const sl_pace *pace, sluice_event *event);

/* Steps of a training run, which may be more than there are numbers for; 0: not known without its data. *per_epoch: full
 * batches in a pass over the data; NULL: not asked for. */
double sl_job_steps(const sl_job *j, double *per_epoch);
/* The number in model.vocabulary; -1: it is a word. */
int64_t sl_job_vocabulary_number(const sl_settings *s);
/* What the purpose of a job changes in its settings. `steps` of the run, below 1: not known; validates: there is a validation
 * split. */
void sl_job_fit_settings(sl_settings *s, sl_job_purpose purpose, double steps, bool validates);
/* Of a job that trains on so many ranks: what its batch grows to, for which it is planned. */
sluice_status sl_job_let_grow(sl_settings *s, int ranks, sl_batch_growth *out);
/* Of a plan. */
int sl_job_planned_ranks(const sluice_job_options *o);
/* The machine that a plan is for where it is not this one: by file or by name. *out: *described says whether there is one. */
sluice_status sl_job_describe_machine(const sluice_job_options *o, sl_machine_description *out, bool *described);
/* The model as the job has it, for other options. *out is the caller's, also after a failure. */
sluice_status sl_job_build_graph(const sl_job *j, const sl_model_options *m, bool trains, sluice_graph **out,
                                 sl_model_info *info);

/* ---- job_tune.c ---- */

/* All ranks, with resolved settings: reads what was measured for this run before, if anything was. A damaged file is
 * SLUICE_ERR_INPUT; one of another machine or model is told and ignored. */
sluice_status sl_job_take_tuned(sl_job *j, const sluice_job_options *o, sl_job_purpose purpose);

/* ---- job_settle.c ---- */

/* All ranks, with resolved settings and no data yet: chooses the micro-batch that nobody gave, and tells it. */
sluice_status sl_job_choose_batch(sl_job *j, const sluice_job_options *o, sl_job_purpose purpose);
/* When the engine is there: puts together what was planned for it and for other micro-batches. */
void sl_job_list_arrangements(sl_job *j);

/* ---- evaluate.c ---- */

/* When the graph is there, of a job that evaluates: how it is judged. `whole`: it does nothing else. */
sluice_status sl_job_judge(sl_job *j, bool whole);

/* ---- generate.c ---- */

/* When the vocabulary is there and the model is not: reads and encodes the prompts, and sets m->decode for them. */
sluice_status sl_generation_prepare(sl_job *j, const sluice_job_options *o, sl_model_options *m);
void sl_generation_free(struct sl_generation *g); /* NULL is fine */

/* ---- job_vocabulary.c ---- */

/* Before the data is opened: finds what the weights keep that the job will begin with, and refuses what does not go with the
 * configuration. */
sluice_status sl_job_read_vocabulary(sl_job *j, const sluice_job_options *o, sl_job_purpose purpose);
/* Whether the data set must be opened: generating needs the vocabulary alone. */
bool sl_job_needs_data(const sl_job *j, sl_job_purpose purpose);
/* After that: the vocabulary in use. */
sluice_status sl_job_use_vocabulary(sl_job *j);
/* Refuses a number as model.vocabulary (`given`; -1: none) that is less than the text has tokens, and warns of what a text
 * is read as where its user may mean something else: a larger number, a file that is no plain text. */
sluice_status sl_job_fit_vocabulary(const sl_job *j, int64_t given);
void sl_job_free_vocabulary(sl_job *j);

#endif
