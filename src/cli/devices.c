/* devices.c: sluice devices: what this machine offers. */
#include "cli/cli.h"

int cli_devices(const cli_arguments *a)
{
    if (a->machine != NULL && !a->measure)
        return cli_usage("devices: --machine writes what --measure measures; give both");
    return cli_report(sluice_devices(a->measure, a->machine, stdout));
}
