/* cmd_report.c: sluice report: a page of a run, from what it left in its folder. */
#include "cli/cli.h"

int cli_report_run(const cli_arguments *a)
{
    cli_catch_signals();
    return cli_report(sluice_report_until(cli_stop_flag(), a->operand, a->out, stdout));
}
