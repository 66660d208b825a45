/* cmd_eval.c: sluice eval: how good trained weights are. */
#include "cli/cli.h"

int cli_eval(const cli_arguments *a)
{
    return cli_run_job(a, sluice_job_eval, NULL, 0);
}
