/* cmd_plan.c: sluice plan: what a run would need, without running it; here, or on a machine that has a name. */
#include <string.h>

#include "cli/cli.h"

int cli_plan(const cli_arguments *a)
{
    const char *alone = a->gpus > 0 ? "gpus" : a->ram > 0 ? "ram" : a->host != NULL ? "host" : NULL;
    if (a->gpu != NULL && strcmp(a->gpu, "list") == 0) {
        sluice_known_machines(stdout);
        return 0;
    }
    if (a->gpu == NULL && alone != NULL) return cli_usage("plan: --%s says more of --gpu; give both", alone);
    if (a->gpu != NULL && a->machine != NULL) return cli_usage("plan: --gpu and --machine are given; give one of them");
    if (a->gpus > 0 && a->ranks > 0 && a->gpus != a->ranks)
        return cli_usage("plan: --gpus %lld and --ranks %lld are given; every GPU is a rank: give one of them",
                         (long long)a->gpus, (long long)a->ranks);
    return cli_run_job(a, sluice_job_plan);
}
