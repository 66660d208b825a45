/* cmd_train.c: sluice train: a run, told as it goes: a progress line, plain lines, or JSON.
 *
 * One rank runs in this process. With --ranks or --max-restarts the ranks are processes of their own, which this one
 * watches; under mpirun or srun it is one of them itself. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "cli/cli.h"

/* What rank 0 leaves to the process that started it; shared memory. */
typedef struct report {
    int output_errno; /* of standard output; 0: it took everything */
} report;

typedef struct narrator {
    const cli_arguments *arguments;
    cli_progress progress;
    cli_events events;
} narrator;

/* All that a rank needs to run. */
typedef struct training {
    const cli_arguments *arguments;
    const sluice_config *config;
    bool resume;
    report *report;
} training;

/* Events go on even where nobody can read them any more; then the run is asked to stop, so that it saves first. */
static void on_event(void *user, const sluice_event *event)
{
    narrator *n = user;
    if (n->arguments->json)
        cli_event_json(&n->events, event);
    else if (!n->arguments->quiet)
        cli_progress_event(&n->progress, event);
    if (ferror(stdout)) cli_request_stop(SIGPIPE);
}

static void on_log(void *user, sluice_log_level level, const char *line)
{
    narrator *n = user;
    cli_progress_clear(&n->progress);
    cli_log((void *)n->arguments, level, line);
}

/* A whole number of the configuration; "auto" reads as 0. */
static sluice_status config_number(const sluice_config *config, const char *key, int64_t *out)
{
    char text[64];
    sluice_status status = sluice_config_get(config, key, text, sizeof text);
    *out = status == SLUICE_OK ? strtoll(text, NULL, 10) : 0;
    return status;
}

static sluice_status train(const training *t, sluice_world *world)
{
    const cli_arguments *a = t->arguments;
    narrator n = { .arguments = a, .events = { .out = stdout } };
    sluice_job_options options;
    int64_t every;
    sluice_status status = config_number(t->config, "steps_per_print", &every);
    if (status != SLUICE_OK) return status;
    cli_progress_start(&n.progress, stdout, every);
    cli_job_options(a, &options);
    options.resume = t->resume;
    options.world = world;
    options.event = on_event;
    options.user = &n;
    options.log = on_log;
    options.log_user = &n;
    options.plan_out = a->json || a->quiet ? NULL : stdout;
    options.stop = cli_stop_flag();
    options.save_request = cli_save_flag();
    status = sluice_job_train(t->config, &options);
    cli_progress_clear(&n.progress);
    cli_events_free(&n.events);
    return status;
}

/* ---- ranks started here ---- */

static sluice_status rank_body(void *user, sluice_world *world)
{
    const training *t = user;
    sluice_status status = train(t, world);
    errno = 0;
    if (sluice_world_rank(world) == 0 && (fflush(stdout) != 0 || ferror(stdout)))
        t->report->output_errno = errno != 0 ? errno : EIO;
    return status;
}

/* Starts the ranks, and restarts them while ranks are lost and --max-restarts allows it. */
static sluice_status launch(training *t, int64_t timeout)
{
    const cli_arguments *a = t->arguments;
    int64_t restarts = a->max_restarts > 0 ? a->max_restarts : 0;
    sluice_launch_options o;
    sluice_launch_options_init(&o);
    o.ranks = a->ranks > 1 ? (int)a->ranks : 1;
    o.timeout_seconds = (double)timeout;
    o.stop = cli_stop_flag();
    o.save_request = cli_save_flag();
    sluice_status status = sluice_launch(&o, rank_body, t);
    for (int64_t i = 1; i <= restarts && status == SLUICE_ERR_RANK; i++) {
        if (__atomic_load_n(cli_stop_flag(), __ATOMIC_RELAXED) != 0) break;
        fprintf(stderr, "sluice: warning: %s; restart %lld of %lld from the newest checkpoint\n", sluice_error(),
                (long long)i, (long long)restarts);
        t->resume = true;
        status = sluice_launch(&o, rank_body, t);
    }
    return status;
}

static int train_launched(training *t, int64_t timeout)
{
    report *r = mmap(NULL, sizeof *r, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (r == MAP_FAILED) return cli_usage("out of memory while starting the ranks");
    t->report = r;
    sluice_status status = launch(t, timeout);
    int failed = r->output_errno;
    munmap(r, sizeof *r);
    if (failed == 0) return cli_report(status);
    fprintf(stderr, "sluice: standard output: %s\n", strerror(failed));
    return sluice_exit_status(status == SLUICE_OK || status == SLUICE_ERR_STOPPED ? SLUICE_ERR_IO : status);
}

/* ---- this process is a rank ---- */

/* Every rank of a launcher's job fails alike, so rank 0 reports for all; rank 1 too where a rank was lost, which may
 * have been rank 0. */
static int train_here(const training *t, int64_t timeout)
{
    sluice_world *world = NULL;
    sluice_status status = sluice_world_join((double)timeout, &world);
    if (status != SLUICE_OK) return cli_report(status);
    status = train(t, world);
    int rank = sluice_world_rank(world);
    bool unread = status == SLUICE_ERR_STOPPED && ferror(stdout); /* cli_finish_output tells why */
    bool reports = rank == 0 || (rank == 1 && status == SLUICE_ERR_RANK);
    int exit_status = unread || !reports ? sluice_exit_status(status) : cli_report(status);
    sluice_world_leave(world);
    return exit_status;
}

/* ---- the command ---- */

/* 0, or the exit status after a message. */
static int check_launch(const cli_arguments *a, const sluice_config *config)
{
    char path[8];
    if (cli_launched_ranks() > 1 && (a->ranks > 0 || a->max_restarts > 0))
        return cli_usage("--%s: the ranks were started by a launcher such as mpirun; leave the option out",
                         a->ranks > 0 ? "ranks" : "max-restarts");
    if (a->max_restarts <= 0) return 0;
    sluice_status status = sluice_config_get(config, "checkpoint.path", path, sizeof path);
    if (status == SLUICE_OK && strcmp(path, "\"\"") == 0)
        return cli_usage(
            "--max-restarts needs checkpoint.path in the configuration; set checkpoint.every too, to lose few steps");
    return 0; /* a path that is longer than the buffer is one */
}

int cli_train(const cli_arguments *a)
{
    sluice_config *config;
    int64_t timeout;
    int exit_status = cli_load_config(a, &config);
    if (exit_status != 0) return exit_status;
    training t = { .arguments = a, .config = config, .resume = a->resume };
    exit_status = check_launch(a, config);
    if (exit_status == 0) exit_status = cli_report(config_number(config, "timeout_seconds", &timeout));
    if (exit_status == 0) {
        cli_catch_signals();
        exit_status = a->ranks > 1 || a->max_restarts > 0 ? train_launched(&t, timeout) : train_here(&t, timeout);
    }
    sluice_config_destroy(config);
    return exit_status;
}
