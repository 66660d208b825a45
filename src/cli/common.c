/* common.c: messages, exit statuses, and the way from a command line to a job. */
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

int cli_usage(const char *format, ...)
{
    char text[4096], shown[4096];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    sluice_printable(text, shown, sizeof shown);
    fprintf(stderr, "sluice: %s\n", shown);
    return sluice_exit_status(SLUICE_ERR_USAGE);
}

int cli_report(sluice_status status)
{
    if (status != SLUICE_OK) fprintf(stderr, "sluice: %s\n", sluice_error());
    return sluice_exit_status(status);
}

int cli_finish_output(int status)
{
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout)) return status;
    fprintf(stderr, "sluice: standard output: %s\n", errno != 0 ? strerror(errno) : "write failed");
    /* a run that was stopped because nobody reads its output did not stop for a signal */
    return status == 0 || status == sluice_exit_status(SLUICE_ERR_STOPPED) ? sluice_exit_status(SLUICE_ERR_IO) : status;
}

void cli_log(void *user, sluice_log_level level, const char *line)
{
    const cli_arguments *a = user;
    if ((level == SLUICE_LOG_DETAIL && !a->notes) || (level == SLUICE_LOG_NOTE && a->quiet)) return;
    fprintf(stderr, "sluice: %s: %s\n", level == SLUICE_LOG_WARNING ? "warning" : "note", line);
}

int cli_launched_ranks(void)
{
    static const char *const variables[] = { "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS", "WORLD_SIZE" };
    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++) {
        const char *value = getenv(variables[i]);
        if (value != NULL && atoi(value) > 1) return atoi(value);
    }
    return 1;
}

/* As --set model.path=FOLDER, for folders of any name. */
static sluice_status set_model(sluice_config *config, const char *folder)
{
    char assignment[4096 + 16];
    snprintf(assignment, sizeof assignment, "model.path=%.4096s", folder);
    return sluice_config_set(config, assignment);
}

int cli_load_config(const cli_arguments *a, sluice_config **out)
{
    sluice_config *config;
    sluice_status status = a->operand != NULL ? sluice_config_load(a->operand, &config) : sluice_config_create(&config);
    if (status != SLUICE_OK) return cli_report(status);
    if (a->model != NULL) status = set_model(config, a->model);
    for (int i = 0; i < a->set_count && status == SLUICE_OK; i++) status = sluice_config_set(config, a->sets[i]);
    if (status != SLUICE_OK) {
        int exit_status = cli_report(status);
        sluice_config_destroy(config);
        return exit_status;
    }
    *out = config;
    return 0;
}

void cli_job_options(const cli_arguments *a, sluice_job_options *out)
{
    sluice_job_options_init(out);
    out->resume = a->resume;
    out->json = a->json;
    out->out = stdout;
    out->log = cli_log;
    out->log_user = (void *)a;
    if (a->ranks > 0) out->ranks = (int)a->ranks;
    out->machine = a->machine;
    out->trace = a->trace;
    if (a->weights != NULL) out->weights = a->weights;
    if (a->prompt != NULL) out->prompt = a->prompt;
    if (a->tokens >= 0) out->tokens = a->tokens;
    if (a->top_k >= 0) out->top_k = (int)a->top_k;
    if (a->temperature >= 0) out->temperature = a->temperature;
}

static void on_event(void *user, const sluice_event *event)
{
    cli_event_json(user, event);
}

int cli_run_job(const cli_arguments *a, sluice_status (*job)(const sluice_config *c, const sluice_job_options *o))
{
    sluice_config *config;
    sluice_job_options options;
    cli_events events = { .out = stdout };
    if (cli_launched_ranks() > 1)
        return cli_usage(
            "started by a launcher as one of %d ranks, but only train runs on several: start it without the launcher",
            cli_launched_ranks());
    int exit_status = cli_load_config(a, &config);
    if (exit_status != 0) return exit_status;
    cli_job_options(a, &options);
    if (a->json) options.event = on_event; /* the results come as events then */
    options.user = &events;
    exit_status = cli_report(job(config, &options));
    sluice_config_destroy(config);
    return exit_status;
}
