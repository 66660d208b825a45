/* cmd_tune.c: sluice tune: what is expected to be fastest, measured. With --ranks the ranks are processes of their own, as those of
 * sluice train. */
#include <stdlib.h>

#include "cli/cli.h"

typedef struct tuning {
    const cli_arguments *arguments;
    const sluice_config *config;
} tuning;

static void on_event(void *user, const sluice_event *event)
{
    if (event->kind == SLUICE_EVENT_TUNE) cli_event_json(user, event);
}

static sluice_status tune(void *user, sluice_world *world)
{
    const tuning *t = user;
    cli_events events = { .out = stdout };
    sluice_job_options options;
    cli_job_options(t->arguments, &options);
    options.world = world;
    options.stop = cli_stop_flag();
    if (t->arguments->json) {
        options.event = on_event;
        options.user = &events;
    }
    sluice_status status = sluice_job_tune(t->config, &options);
    cli_events_free(&events);
    fflush(stdout);
    return status;
}

static sluice_status tune_ranks(tuning *t, double timeout)
{
    const cli_arguments *a = t->arguments;
    sluice_launch_options launch;
    sluice_world *world = NULL;
    if (a->ranks > 1) {
        sluice_launch_options_init(&launch);
        launch.ranks = (int)a->ranks;
        launch.timeout_seconds = timeout;
        launch.stop = cli_stop_flag();
        return sluice_launch(&launch, tune, t);
    }
    sluice_status status = sluice_world_join(timeout, &world);
    if (status == SLUICE_OK) status = tune(t, world);
    sluice_world_leave(world);
    return status;
}

int cli_tune(const cli_arguments *a)
{
    sluice_config *config;
    char timeout[64];
    if (cli_launched_ranks() > 1 && a->ranks > 0)
        return cli_usage("--ranks: the ranks were started by a launcher such as mpirun; leave the option out");
    int exit_status = cli_load_config(a, &config);
    if (exit_status != 0) return exit_status;
    tuning t = { a, config };
    exit_status = cli_report(sluice_config_get(config, "timeout_seconds", timeout, sizeof timeout));
    if (exit_status == 0) {
        cli_catch_signals();
        exit_status = cli_report(tune_ranks(&t, strtod(timeout, NULL)));
    }
    sluice_config_destroy(config);
    return exit_status;
}
