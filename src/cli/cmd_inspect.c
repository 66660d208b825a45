/* cmd_inspect.c: sluice inspect: what a file or a checkpoint holds. */
#include "cli/cli.h"

int cli_inspect(const cli_arguments *a)
{
    return cli_report(sluice_inspect(a->operand, a->json, stdout));
}
