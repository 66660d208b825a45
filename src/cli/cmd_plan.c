/* cmd_plan.c: sluice plan: what a run would need, without running it. */
#include "cli/cli.h"

int cli_plan(const cli_arguments *a)
{
    return cli_run_job(a, sluice_job_plan);
}
