/* cli.h: what the commands of the program share. The program uses sluice.h and nothing else of the library. */
#ifndef SLUICE_CLI_H
#define SLUICE_CLI_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "sluice.h"

/* The command line of one command, from the table in arguments.c. */
typedef struct cli_arguments {
    const char *operand; /* CONFIG or PATH; NULL where it is optional and not given */
    char **operands;     /* borrowed: what follows the operand, of commands that take several */
    int operand_count;
    const char **sets; /* owned array of borrowed strings: --set, in order */
    int set_count;
    const char **stops; /* in the same array: --stop, in order */
    int stop_count;
    bool help, json, quiet, notes, resume, measure, markdown;
    const char *model;                                                     /* folder; NULL: not given */
    const char *weights, *prompt, *machine, *device, *out, *dtype, *trace; /* NULL: not given */
    const char *report;                                                    /* NULL: not given; "": without a file */
    int64_t ranks, tokens, top_k;                                          /* -1: not given */
    int64_t max_restarts, shard_size;                                      /* -1: not given */
    int64_t seed, batch;                                                   /* -1: not given */
    double temperature, top_p, min_p, repetition_penalty;                  /* -1: not given */
    const char *prompts, *system, *template_name;                          /* NULL: not given */
    const char *data, *adapter, *save;                                     /* NULL: not given */
    bool chat, lora;
    bool best;
    const char *predictions, *log;                 /* NULL: not given */
    bool lines, llmc, special_tokens, add_special; /* tokenize */
    const char *eos, *validation_out;              /* NULL: not given */
    int64_t threads;                               /* -1: not given */
    const char *gpu, *host;                        /* plan; NULL: not given */
    int64_t gpus, ram;                             /* plan; -1: not given */
    bool what_if, known;
    double validation;            /* -1: not given */
    int64_t steps, rounds, seeds; /* compare, tune; -1: not given */
    int64_t keep;                 /* tune; -1: not given */
} cli_arguments;

typedef struct cli_command {
    const char *name;
    int (*run)(const cli_arguments *a); /* returns the exit status, having said what went wrong */
    const char *
        operand; /* its name in the help, "A B ..." where more follow it, "A [A ...]" where they may; NULL: takes none */
    bool operand_optional;
    bool on_ranks; /* a launcher may start it as several ranks: it trains, or writes nothing but to standard output */
    const char *help;
} cli_command;

extern const cli_command cli_commands[];
extern const size_t cli_command_count;

int cli_plan(const cli_arguments *a);
int cli_train(const cli_arguments *a);
int cli_tune(const cli_arguments *a);
int cli_eval(const cli_arguments *a);
int cli_generate(const cli_arguments *a);
int cli_export(const cli_arguments *a);
int cli_merge(const cli_arguments *a);
int cli_tokenize(const cli_arguments *a);
int cli_inspect(const cli_arguments *a);
int cli_compare(const cli_arguments *a);
int cli_report_run(const cli_arguments *a);
int cli_verify(const cli_arguments *a);
int cli_devices(const cli_arguments *a);
int cli_config(const cli_arguments *a);
int cli_status(const cli_arguments *a);
int cli_doctor(const cli_arguments *a);

/* ---- arguments.c ---- */

/* Reads what follows the command's name (argv[0]). False after a message on standard error. */
bool cli_parse(const cli_command *command, int argc, char **argv, cli_arguments *out);
/* The nearest of `count` names to a misspelt one, or NULL. Names lie `stride` bytes apart. */
const char *cli_nearest(const char *name, const char *const *names, size_t count, size_t stride);

/* ---- common.c ---- */

/* "sluice: ..." on standard error; returns the exit status for a mistake in the command line. */
int cli_usage(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Says what the library's newest failure was and returns its exit status; 0 for SLUICE_OK. */
int cli_report(sluice_status status);
/* Flushes standard output: a failure there becomes exit status 6, unless `status` already tells of another. */
int cli_finish_output(int status);
/* fp32, bf16 or fp16; false: none of them. */
bool cli_float_type(const char *name, sluice_dtype *out);
/* auto, cpu or cuda; false: none of them. In cmd_devices.c. */
bool cli_device(const char *name, sluice_device *out);
/* How many ranks a launcher such as mpirun has started this process among; 1: alone. */
int cli_launched_ranks(void);
/* Loads the configuration and applies the options that stand for keys, and --set. */
sluice_status cli_make_config(const cli_arguments *a, sluice_config **out);
/* The same. Returns 0, or the exit status after a message. */
int cli_load_config(const cli_arguments *a, sluice_config **out);
/* Job options with everything that the command line says. */
void cli_job_options(const cli_arguments *a, sluice_job_options *out);
/* Runs a job that only reads its configuration and writes results: to standard output, or to the file --out names. Told as it
 * goes on standard error; signals stop it. `refusal`, where not NULL, gets the verdict of a plan that does not fit. */
int cli_run_job(const cli_arguments *a, sluice_status (*job)(const sluice_config *c, const sluice_job_options *o),
                char *refusal, size_t bytes);
/* sluice_log_fn that writes warnings, notes unless quiet, and details with --notes, to standard error; `user` is the cli_arguments. */
void cli_log(void *user, sluice_log_level level, const char *line);

/* ---- what_if.c ---- */

/* Plans what could be chosen otherwise, and prints a row for each: a table, or with --json an event. Returns the exit
 * status. */
int cli_what_if(const cli_arguments *a);
/* Of what does not fit: the choices that do, as "--lora (12.1k tokens/s), --ram 128GiB (2.4k tokens/s)"; "" where none does. */
void cli_what_would_help(const cli_arguments *a, char *out, size_t bytes);

/* ---- signals.c ---- */

/* In every command: a closed pipe and a file over its limit are errors of the write, with a message and an exit status, instead
 * of death. */
void cli_ignore_write_signals(void);
/* From here SIGTERM, SIGINT and, where it is not ignored, SIGHUP ask the run to stop (a second SIGTERM or SIGINT kills), and SIGUSR1
 * asks for a save. */
void cli_catch_signals(void);
const int *cli_stop_flag(void);
int *cli_save_flag(void);
/* From now on, or no more: a line on standard error says that planning goes on, where it takes longer than this. */
#define CLI_PATIENCE_SECONDS 3
void cli_tell_of_planning(bool tells);
/* Asks the run to stop, as a signal would. */
void cli_request_stop(int signal_number);

/* ---- events.c: --json ---- */

typedef struct cli_events {
    FILE *out;
    double phase_told; /* seconds into the phase at hand when it was written last */
    char *line;        /* owned; room for the longest event so far */
    size_t room;
} cli_events;

void cli_event_json(cli_events *e, const sluice_event *event);
void cli_events_free(cli_events *e);

/* ---- format_text.c ---- */

/* "12.3k tokens/s", as the plan prints it. */
void cli_format_rate(double rate, const char *unit, char *out, size_t bytes);
/* "1:02:03" or "2:03" */
void cli_format_seconds(double seconds, char *out, size_t bytes);
/* "1.5 GiB" */
void cli_format_size(uint64_t size, char *out, size_t bytes);

/* ---- progress.c: for people ---- */

typedef struct cli_progress {
    FILE *out;
    bool line; /* one line drawn over and over; otherwise plain lines */
    bool colour;
    bool drawn;            /* the line is on the screen */
    bool begun;            /* a plain line is, without its end: of a phase */
    int64_t every;         /* steps between plain lines; 0: about twenty lines a run */
    double smooth_seconds; /* of a step, slowly following */
    double drawn_at;       /* clock, for not drawing too often */
    double started;        /* clock */
    uint64_t first_step;   /* the first one seen; 0: none yet */
    double first_clock;    /* when it began */
    double step_seconds;   /* of all steps seen */
    int columns;           /* of the line on the screen */
    bool has_best;         /* an evaluation was the best so far: */
    double best;
    char best_name[32]; /* "f1 "; "": it is the loss */
} cli_progress;

void cli_progress_start(cli_progress *p, FILE *out, int64_t every);
void cli_progress_event(cli_progress *p, const sluice_event *event);
/* Takes the line off the screen, so that something else can be written. */
void cli_progress_clear(cli_progress *p);

#endif
