/* devices.c: sluice devices: what this machine offers. */
#include "cli/cli.h"

int cli_devices(const cli_arguments *a)
{
    if (a->machine != NULL && !a->measure)
        return cli_usage("devices: --machine writes what --measure measures; give both");
    if (a->ranks > 0 && !a->measure) return cli_usage("devices: --ranks says how --measure measures; give both");
    return cli_report(sluice_devices(a->measure, a->ranks > 0 ? (int)a->ranks : 1, a->machine, stdout));
}
