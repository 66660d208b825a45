/* cmd_devices.c: sluice devices: what this machine offers. */
#include <string.h>

#include "cli/cli.h"

bool cli_device(const char *name, sluice_device *out)
{
    static const struct {
        const char *name;
        sluice_device device;
    } names[] = { { "auto", SLUICE_DEVICE_AUTO }, { "cpu", SLUICE_DEVICE_CPU }, { "cuda", SLUICE_DEVICE_CUDA } };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(name, names[i].name) != 0) continue;
        *out = names[i].device;
        return true;
    }
    return false;
}

/* Disks alone: each path by itself. */
static int measure_disks(const cli_arguments *a)
{
    if (!a->measure) return cli_usage("devices: FOLDER is a disk that --measure measures; give both");
    if (a->machine != NULL || a->device != NULL || a->ranks > 0)
        return cli_usage("devices: of a FOLDER its disk alone is measured, and kept for every run; leave out "
                         "--machine, --device and "
                         "--ranks");
    for (int i = -1; i < a->operand_count; i++) {
        sluice_status status = sluice_disks(i < 0 ? a->operand : a->operands[i], stdout);
        fflush(stdout);
        if (status != SLUICE_OK) return cli_report(status);
    }
    return 0;
}

int cli_devices(const cli_arguments *a)
{
    sluice_device device = SLUICE_DEVICE_AUTO;
    if (a->known) {
        sluice_known_machines(stdout);
        sluice_known_models(stdout);
        return 0;
    }
    if (a->operand != NULL) return measure_disks(a);
    if (a->machine != NULL && !a->measure)
        return cli_usage("devices: --machine writes what --measure measures; give both");
    if (a->ranks > 0 && !a->measure) return cli_usage("devices: --ranks says how --measure measures; give both");
    if (a->device != NULL && !a->measure) return cli_usage("devices: --device says what --measure measures; give both");
    if (a->device != NULL && !cli_device(a->device, &device))
        return cli_usage("devices: --device is \"%s\"; give auto, cpu or cuda", a->device);
    sluice_status status = sluice_devices(a->measure, a->ranks > 0 ? (int)a->ranks : 1, device, a->machine, stdout);
    fflush(stdout);
    if (status == SLUICE_OK) status = sluice_largest_models(NULL, stdout);
    return cli_report(status);
}
