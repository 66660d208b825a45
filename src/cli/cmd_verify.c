/* cmd_verify.c: sluice verify: reads every byte and checks every checksum. */
#include "cli/cli.h"

int cli_verify(const cli_arguments *a)
{
    FILE *nowhere = a->quiet ? fopen("/dev/null", "w") : NULL;
    int exit_status = cli_report(sluice_verify(a->operand, nowhere != NULL ? nowhere : stdout));
    if (nowhere != NULL) fclose(nowhere);
    return exit_status;
}
