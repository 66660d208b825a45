/* run_record.h: what happened in a run, as its events tell: from its log, or as they come.
 *
 * Steps that a restart repeats replace what was recorded of them: the record is of the run that led to its end. */
#ifndef SL_REPORT_RUN_RECORD_H
#define SL_REPORT_RUN_RECORD_H

#include <stddef.h>

#include "core/run_names.h"
#include "core/status.h"

/* Not finite where an event has no number. */
typedef struct sl_recorded_step {
    uint64_t step;
    double loss, lr, gradient_norm, seconds;
    double rate; /* tokens a second; of data without tokens samples */
} sl_recorded_step;

typedef struct sl_recorded_eval {
    uint64_t step;
    double loss, accuracy;
    bool best;
} sl_recorded_eval;

/* What else is worth telling: saves, warnings, restarts. */
typedef struct sl_recorded_note {
    uint64_t step; /* of which it was said, or the newest before it */
    char time[32]; /* "": not known */
    char kind[24];
    char *text; /* owned */
} sl_recorded_note;

/* The numbers of a plan event, or of the end. */
typedef struct sl_recorded_sums {
    bool known;
    uint64_t steps, ranks, stage, parameters, overhead;
    uint64_t peak[3];  /* device, host, disk */
    uint64_t state[3]; /* parameters, gradients, optimizer */
    uint64_t moved[4]; /* to device, to host, disk read, disk write */
    uint64_t comm[3];  /* gather, reduce, norm */
    double step_seconds, tokens_per_second, mfu, data_seconds;
    char weights_sha256[65], state_sha256[65];
} sl_recorded_sums;

typedef enum {
    SL_RUN_PLANNED,  /* nothing was run */
    SL_RUN_RUNNING,  /* somebody holds its lock */
    SL_RUN_FINISHED, /* it told its end */
    SL_RUN_STOPPED,  /* by a signal, which it told */
    SL_RUN_FAILED,   /* for a reason that it told */
    SL_RUN_DEAD      /* without a word: killed, or the machine went away */
} sl_run_outcome;

typedef struct sl_run_record {
    sl_run_outcome outcome;
    char *why; /* owned; FAILED, STOPPED: what it said; NULL: nothing */
    sl_recorded_step *steps;
    size_t step_count, step_room;
    sl_recorded_eval *evals;
    size_t eval_count, eval_room;
    sl_recorded_note *notes;
    size_t note_count, note_room;
    size_t notes_left_out;
    sl_recorded_sums plan, end;
    uint64_t target_steps;   /* of the whole run; 0: not known */
    uint64_t repeated_steps; /* recorded more than once */
    uint64_t starts;         /* of processes; resumes and restarts included */
    uint64_t unread_lines;   /* of the log, that are no events */
    bool rate_is_samples;    /* else tokens */
    bool early;              /* ended by early stopping */
    char first_time[32], last_time[32];
    char run_id[64];
    char *run_event; /* owned; the newest event "run", as JSON; NULL: there was none */
} sl_run_record;

void sl_record_free(sl_run_record *r);

/* ---- adding, in the order of the run ---- */

sluice_status sl_record_add_step(sl_run_record *r, const sl_recorded_step *step);
sluice_status sl_record_add_eval(sl_run_record *r, const sl_recorded_eval *eval);
/* `time` and `text` may be NULL. */
sluice_status sl_record_add_note(sl_run_record *r, const char *kind, uint64_t step, const char *time, const char *text);
/* Of a run at hand. */
sluice_status sl_record_add_event(sl_run_record *r, const sluice_event *event);
/* One line of a log. What is no event is counted, and is no failure. */
sluice_status sl_record_add_line(sl_run_record *r, const char *line, size_t bytes);

/* Reads RUN/log.jsonl and finds out whether the run is still going. SLUICE_ERR_INPUT: there is no such folder, or it is no
 * run's. A run without a log is one without steps. */
sluice_status sl_record_read(const char *run, sl_run_record *out);
/* The same; a request to stop (core/stop.h) ends it. */
sluice_status sl_record_read_until(const int *stop, const char *run, sl_run_record *out);

#endif
