/* devices.c: the devices command: what this machine offers, and with --measure how fast it is. */
#include "core/bytes.h"
#include "core/thread.h"
#include "train/machine.h"

static void print_rates(const sl_machine_description *d, FILE *out)
{
    const sl_machine *m = &d->rates;
    fprintf(out, "measured with %d rank%s of %d thread%s\n", d->ranks, d->ranks == 1 ? "" : "s", d->threads,
            d->threads == 1 ? "" : "s");
    fprintf(out, "  matrix products      %8.1f GFLOP/s\n", m->gemm_flops / 1e9);
    fprintf(out, "  kernels, streaming   %8.1f GB/s\n", m->device_bytes_per_second / 1e9);
    fprintf(out, "  host to device       %8.1f GB/s\n", m->link_bytes_per_second[0] / 1e9);
    fprintf(out, "  device to host       %8.1f GB/s\n", m->link_bytes_per_second[1] / 1e9);
    fprintf(out, "  AdamW on the host    %8.1f GB/s (%.2f G parameters/s)\n", m->update_bytes_per_second / 1e9,
            m->update_bytes_per_second / 28e9);
    if (d->ranks > 1) fprintf(out, "  between ranks        %8.1f GB/s\n", m->comm_bytes_per_second / 1e9);
    fprintf(out, "  latencies            kernel %.1f us, copy %.1f us", 1e6 * m->kernel_latency, 1e6 * m->link_latency);
    if (d->ranks > 1) fprintf(out, ", collective %.1f us", 1e6 * m->comm_latency);
    fprintf(out, "\n  at the same time     kernels take %.2f times as long, copies %.2f times\n",
            1 + m->kernel_slowdown, 1 + m->move_slowdown);
}

static void print_machine(sl_isa isa, FILE *out)
{
    char model[128], available[32];
    sl_cpu_model(model, sizeof model);
    fprintf(out, "cpu: %s\n", model);
    fprintf(out, "  threads              %8d\n", sl_cpu_count());
    fprintf(out, "  instruction path     %8s (best here: %s; force one with SLUICE_CPU=scalar|avx2|avx512)\n",
            sl_isa_name(isa), sl_isa_name(sl_isa_best()));
    fprintf(out, "  memory to use        %8s\n", sl_format_bytes(sl_memory_available(), available, sizeof available));
}

sluice_status sluice_devices(bool measure, int ranks, const char *machine_file, FILE *out)
{
    sl_isa isa;
    sl_machine_description here;
    SL_TRY(sl_machine_isa(&isa));
    fprintf(out, "sluice %s\n", sluice_version());
    print_machine(isa, out);
    if (measure) {
        fflush(out); /* ranks are copies of this process */
        SL_TRY(sl_machine_measure(isa, ranks > 0 ? ranks : 1, &here));
        print_rates(&here, out);
        if (machine_file != NULL) SL_TRY(sl_machine_write(machine_file, &here));
    }
    fprintf(out, "built in: backends cpu, null; communication self, local; formats json, safetensors\n");
    fprintf(out, "loaded where it is found: mpi\n");
    fprintf(out, "not built in yet: cuda, nccl, disk tier\n");
    return SLUICE_OK;
}
