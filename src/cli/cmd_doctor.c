/* cmd_doctor.c: sluice doctor: what this machine has for training, what it lacks, and how to get it. */
#include "cli/cli.h"

int cli_doctor(const cli_arguments *a)
{
    sluice_device device = SLUICE_DEVICE_AUTO;
    if (a->device != NULL && !cli_device(a->device, &device))
        return cli_usage("doctor: --device is \"%s\"; give auto, cpu or cuda", a->device);
    return cli_report(sluice_doctor(a->operand, device, a->json, stdout));
}
