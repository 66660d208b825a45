/* cmd_config.c: sluice config: every key there is, or the effective values of a file. */
#include "cli/cli.h"

int cli_config(const cli_arguments *a)
{
    sluice_config *config;
    if ((a->operand == NULL && a->model == NULL) || a->markdown) {
        sluice_config_help(stdout, a->markdown);
        return 0;
    }
    int exit_status = cli_load_config(a, &config);
    if (exit_status != 0) return exit_status;
    sluice_job_options options;
    cli_job_options(a, &options);
    exit_status = cli_report(sluice_job_config(config, &options));
    sluice_config_destroy(config);
    return exit_status;
}
