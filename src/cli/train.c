/* train.c: sluice train: a run, told as it goes: a progress line, plain lines, or JSON. */
#include <signal.h>
#include <stdlib.h>

#include "cli/cli.h"

typedef struct narrator {
    const cli_arguments *arguments;
    cli_progress progress;
} narrator;

/* Events go on even where nobody can read them any more; then the run is asked to stop, so that it saves first. */
static void on_event(void *user, const sluice_event *event)
{
    narrator *n = user;
    if (n->arguments->json)
        cli_event_json(stdout, event);
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

/* steps_per_print, or 0 where it is left to the program. */
static sluice_status lines_every(const sluice_config *config, int64_t *out)
{
    char text[32];
    sluice_status status = sluice_config_get(config, "steps_per_print", text, sizeof text);
    *out = status == SLUICE_OK ? strtoll(text, NULL, 10) : 0; /* "auto" reads as 0 */
    return status;
}

static sluice_status train(const cli_arguments *a, const sluice_config *config)
{
    narrator n = { .arguments = a };
    sluice_job_options options;
    int64_t every;
    sluice_status status = lines_every(config, &every);
    if (status != SLUICE_OK) return status;
    cli_progress_start(&n.progress, stdout, every);
    cli_job_options(a, &options);
    options.event = on_event;
    options.user = &n;
    options.log = on_log;
    options.log_user = &n;
    options.plan_out = a->json || a->quiet ? NULL : stdout;
    options.stop = cli_stop_flag();
    options.save_request = cli_save_flag();
    status = sluice_job_train(config, &options);
    cli_progress_clear(&n.progress);
    return status;
}

int cli_train(const cli_arguments *a)
{
    sluice_config *config;
    int exit_status = cli_load_config(a, &config);
    if (exit_status != 0) return exit_status;
    cli_catch_signals();
    sluice_status status = train(a, config);
    bool unread = status == SLUICE_ERR_STOPPED && ferror(stdout); /* cli_finish_output tells why */
    exit_status = unread ? sluice_exit_status(status) : cli_report(status);
    sluice_config_destroy(config);
    return exit_status;
}
