/* cmd_plan.c: sluice plan: what a run would need, without running it; here, or on a machine that has a name. */
#include <string.h>

#include "cli/cli.h"

/* The first line of a plan that there is none of. With --gpu, the choices that would fit stand behind it. */
static void tell_refusal(const cli_arguments *a, const char *verdict)
{
    char help[512] = "";
    if (a->gpu != NULL && !a->what_if) cli_what_would_help(a, help, sizeof help);
    printf("%s%s%s\n", verdict, help[0] != '\0' ? "; what would help: " : "", help);
}

/* The plan, what would help where there is none, and the alternatives that were asked for. */
static int plan(const cli_arguments *a)
{
    char verdict[512] = "";
    int status = cli_run_job(a, sluice_job_plan, verdict, sizeof verdict);
    if (verdict[0] != '\0' && !a->json) tell_refusal(a, verdict);
    bool planned = status == 0 || status == sluice_exit_status(SLUICE_ERR_NO_FIT);
    if (!a->what_if || !planned) return status;
    cli_tell_of_planning(!a->json && !a->quiet);
    int what_if = cli_what_if(a);
    return what_if != 0 ? what_if : status;
}

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
    cli_tell_of_planning(!a->json && !a->quiet);
    int status = plan(a);
    cli_tell_of_planning(false);
    return status;
}
