/* plan.c: sluice plan: what a run would need, without running it. */
#include "cli/cli.h"

int cli_plan(const cli_arguments *a)
{
    if (a->machine != NULL) return cli_usage("plan: --machine: planning for another machine is not built in yet");
    return cli_run_job(a, sluice_job_plan);
}
