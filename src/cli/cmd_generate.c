/* cmd_generate.c: sluice generate: text from a trained language model. */
#include "cli/cli.h"

int cli_generate(const cli_arguments *a)
{
    return cli_run_job(a, sluice_job_generate, NULL, 0);
}
