/* devices.c: the devices command: what this machine offers, and with --measure how fast it is. */
#include "backend/cpu/memory.h"
#include "core/bytes.h"
#include "core/thread.h"
#include "train/machine_place.h"
#include "train/measure.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

/* ---- what there is ---- */

/* Whether the CPU says that it has AMX tiles and bf16 products on them; whether they work is core/cpu.h's to find out.
 */
static bool amx_announced(void)
{
#if defined(__x86_64__)
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d >> 22 & 1) != 0 && (d >> 24 & 1) != 0;
#else
    return false;
#endif
}

static void print_paths(sl_isa isa, FILE *out)
{
    sl_isa best = sl_isa_best();
    fprintf(out, "  instruction path     %8s (available:", sl_isa_name(isa));
    for (int i = 0; i <= (int)best; i++) fprintf(out, " %s", sl_isa_name((sl_isa)i));
    fprintf(out, "; SLUICE_CPU forces one)\n");
    if (best < SL_ISA_AMX && amx_announced())
        fprintf(out, "  amx is announced by this CPU, but its self-test failed: it is not used\n");
}

static void print_memory(FILE *out)
{
    char available[32], why[2][64];
    sl_rank_place place;
    bool huge[2];
    for (int shared = 0; shared < 2; shared++)
        huge[shared] = sl_huge_pages_offered(shared == 1, why[shared], sizeof why[shared]);
    sl_rank_place_choose(0, 0, 1, &place);
    fprintf(out, "  memory to use        %8s\n", sl_format_bytes(sl_memory_available(), available, sizeof available));
    fprintf(out, "  huge pages           %8s (%s); for arenas that ranks share: %s (%s)\n", huge[0] ? "yes" : "no",
            why[0], huge[1] ? "yes" : "no", why[1]);
    fprintf(out, "  NUMA                 %s\n", place.note);
}

static void print_machine(sl_isa isa, FILE *out)
{
    char model[128];
    sl_cpu_model(model, sizeof model);
    fprintf(out, "cpu: %s\n", model);
    fprintf(out, "  threads              %8d\n", sl_cpu_count());
    print_paths(isa, out);
    print_memory(out);
}

/* ---- how fast it is ---- */

static void print_rates(const sl_machine_description *d, FILE *out)
{
    const sl_machine *m = &d->rates;
    fprintf(out, "measured with %d rank%s of %d thread%s\n", d->ranks, d->ranks == 1 ? "" : "s", d->threads,
            d->threads == 1 ? "" : "s");
    fprintf(out, "  matrix products      %8.1f GFLOP/s in f32, %.1f in bf16\n", m->gemm_flops / 1e9,
            sl_machine_gemm_flops(m, true) / 1e9);
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

/* The rates above are of products as models have them; these of a large one that has the machine to itself. */
static sluice_status print_peaks(const sl_machine_description *d, FILE *out)
{
    double f32, bf16;
    sl_device_choice cpu;
    SL_TRY(sl_device_choose(SLUICE_DEVICE_CPU, 0, 1, &cpu));
    SL_TRY(sl_measured_peak(&cpu, d->isa, d->threads, SLUICE_F32, &f32));
    SL_TRY(sl_measured_peak(&cpu, d->isa, d->threads, SLUICE_BF16, &bf16));
    fprintf(out, "  peak, alone          %8.1f GFLOP/s in f32, %.1f in bf16\n", f32 / 1e9, bf16 / 1e9);
    return SLUICE_OK;
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
        SL_TRY(print_peaks(&here, out));
        if (machine_file != NULL) SL_TRY(sl_machine_write(machine_file, &here));
    }
    fprintf(out, "built in: backends cpu, null; communication self, local; formats json, safetensors%s\n",
            sl_topology_built_in() ? "; hwloc" : "");
    fprintf(out, "loaded where it is found: mpi\n");
    if (!sl_topology_built_in()) fprintf(out, "not built in: hwloc, so ranks are not bound to NUMA nodes\n");
    fprintf(out, "not built in yet: cuda, nccl, disk tier\n");
    return SLUICE_OK;
}
