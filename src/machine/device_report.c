/* device_report.c: the devices command: what this machine offers, and with --measure how fast it is. */
#include <string.h>
#include <sys/resource.h>

#include "backend/cpu/memory.h"
#include "comm/segment.h"
#include "core/bytes.h"
#include "core/file_set.h"
#include "core/swap.h"
#include "core/thread.h"
#include "core/utf8.h"
#include "format/picture_file.h"
#include "format/sound_file.h"
#include "machine/disk_report.h"
#include "machine/machine_place.h"
#include "machine/measure.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

/* ---- what there is ---- */

/* Whether the CPU says that it has AMX tiles and bf16 GEMMs on them; whether they work is core/cpu.h's to find
 * out. */
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
        fprintf(out, "  amx is not used: this CPU announces it, but its self-test failed\n");
}

static void print_machine(sl_isa isa, FILE *out)
{
    char model[128], available[32], why[2][64];
    sl_rank_place place;
    bool huge[2];
    sl_cpu_model(model, sizeof model);
    fprintf(out, "cpu: %s\n", model);
    fprintf(out, "  threads              %8d\n", sl_cpu_count());
    print_paths(isa, out);
    for (int shared = 0; shared < 2; shared++)
        huge[shared] = sl_huge_pages_offered(shared == 1, why[shared], sizeof why[shared]);
    sl_rank_place_choose(0, 0, 1, &place);
    fprintf(out, "  usable memory        %8s\n", sl_format_bytes(sl_memory_available(), available, sizeof available));
    fprintf(out, "  huge pages           %8s (%s); for arenas that ranks share: %s (%s)\n", huge[0] ? "yes" : "no",
            why[0], huge[1] ? "yes" : "no", why[1]);
    fprintf(out, "  NUMA                 %s\n", place.note);
}

static void print_gpu(int ordinal, const sl_cuda_facts *f, FILE *out)
{
    char total[32], unused[32];
    fprintf(out, "gpu %d: %s\n", ordinal, f->name);
    fprintf(out, "  compute capability   %6d.%d (%d multiprocessors)\n", f->major, f->minor, f->multiprocessors);
    fprintf(out, "  memory               %8s, %s free\n", sl_format_bytes(f->total_bytes, total, sizeof total),
            sl_format_bytes(f->free_bytes, unused, sizeof unused));
    fprintf(out, "  CUDA                 driver for %d.%d, runtime %d.%d\n", f->driver_version / 1000,
            f->driver_version % 1000 / 10, f->runtime_version / 1000, f->runtime_version % 1000 / 10);
    if (f->numa_node >= 0)
        fprintf(out, "  NUMA                 on node %d\n", f->numa_node);
    else
        fprintf(out, "  NUMA                 node not known\n");
}

/* Fails with the reason where there is none. */
static sluice_status print_gpus(FILE *out)
{
    char bytes[32];
    struct rlimit limit;
    const sl_cuda_plugin *plugin;
    int count = 0;
    SL_TRY(sl_cuda_open_plugin(&plugin));
    SL_TRY(plugin->count(&count));
    if (count == 0) return sl_fail(SLUICE_ERR_USAGE, "CUDA finds no GPU");
    for (int i = 0; i < count; i++) {
        sl_cuda_facts facts;
        SL_TRY(plugin->facts(i, &facts));
        print_gpu(i, &facts, out);
        fprintf(out, "  libraries            %s\n", plugin->libraries());
    }
    /* copies to a GPU need pinned memory, for which not every driver asks this limit: --measure tries */
    if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0) return SLUICE_OK;
    bool none = limit.rlim_cur == RLIM_INFINITY;
    fprintf(out, "  locked memory        %8s (RLIMIT_MEMLOCK; --measure finds out how much can be pinned)\n",
            none ? "no limit" : sl_format_bytes(limit.rlim_cur, bytes, sizeof bytes));
    return SLUICE_OK;
}

/* ---- how fast it is ---- */

static double best_rate(const sl_rates *r)
{
    double best = 0;
    for (int i = 0; i < r->count; i++) {
        double rate = r->points[i].work / r->points[i].seconds;
        if (rate > best) best = rate;
    }
    return best;
}

/* "123.4 GFLOP/s", and in T where there are many. */
static const char *flops_text(double rate, char *buf, size_t bytes)
{
    bool many = rate >= 10e12;
    snprintf(buf, bytes, "%.1f %cFLOP/s", rate / (many ? 1e12 : 1e9), many ? 'T' : 'G');
    return buf;
}

static void print_gemm_rates(const char *what, double f32, double narrow, FILE *out)
{
    char wide[32], half[32];
    fprintf(out, "  %-20s %16s in f32, %s in bf16\n", what, flops_text(f32, wide, sizeof wide),
            flops_text(narrow, half, sizeof half));
}

static void print_updates(const char *what, const sl_rates *full, const sl_rates narrow[2], const double bytes[3],
                          FILE *out)
{
    const sl_rates *rates[] = { full, &narrow[0], &narrow[1] };
    static const char *const forms[] = { "f32", "bf16", "8 bits" };
    const char *between = "";
    fprintf(out, "  %-20s ", what);
    for (int i = 0; i < 3; i++) {
        if (rates[i]->count == 0) continue;
        double rate = best_rate(rates[i]);
        fprintf(out, "%s%.2f G parameters/s (%.1f GB/s) with moments in %s", between, rate / bytes[i] / 1e9, rate / 1e9,
                forms[i]);
        between = "; ";
    }
    fprintf(out, "\n");
}

/* Bytes that an update moves for an element, with the weights that were measured (optim.h). */
static const double update_bytes[2][3] = { { 28, 20, 16 }, { 26, 18, 14 } };

static void print_contention(const sl_machine_description *d, FILE *out)
{
    const sl_machine *m = &d->rates;
    if (!d->is_cuda) {
        fprintf(out, "  contention           while both run, kernels take %.2f times as long, copies %.2f times\n",
                1 + m->kernel_slowdown, 1 + m->move_slowdown);
        return;
    }
    fprintf(out,
            "  contention           during copies both ways kernels take %.2f times as long, host updates %.2f times\n",
            1 + 2 * m->kernel_slowdown, 1 + 2 * m->update_slowdown);
    fprintf(out,
            "                       copies both ways during kernels take %.2f times as long, with host updates %.2f\n",
            1 + 2 * m->move_slowdown, 1 + 2 * m->move_slowdown + m->move_update_slowdown);
}

static void print_rates(const sl_machine_description *d, FILE *out)
{
    const sl_machine *m = &d->rates;
    fprintf(out, "measured on the %s with %d rank%s of %d thread%s\n", d->is_cuda ? "GPU" : "CPU", d->ranks,
            d->ranks == 1 ? "" : "s", d->threads, d->threads == 1 ? "" : "s");
    print_gemm_rates("GEMM", m->gemm_flops, sl_machine_gemm_flops(m, true), out);
    print_gemm_rates("attention", best_rate(&m->kernels[SL_RATE_F32][SL_OP_ATTENTION]),
                     best_rate(sl_machine_kernel_rates(m, SL_OP_ATTENTION, true)), out);
    fprintf(out, "  kernels, streaming   %8.1f GB/s\n", m->device_bytes_per_second / 1e9);
    for (int k = 0; k < SL_LINK_COUNT; k++) {
        char link[32];
        if (!sl_tiers[sl_links[k].from].in_memory || !sl_tiers[sl_links[k].to].in_memory) continue;
        snprintf(link, sizeof link, "%s to %s", sl_tiers[sl_links[k].from].name, sl_tiers[sl_links[k].to].name);
        fprintf(out, "  %-20s %8.1f GB/s\n", link, m->link_bytes_per_second[k] / 1e9);
    }
    print_updates("AdamW on the host", sl_machine_host_rates(m, SL_OP_UPDATE), m->narrow_updates[d->is_cuda ? 1 : 0],
                  update_bytes[d->is_cuda], out);
    if (d->is_cuda)
        print_updates("AdamW on the GPU", &m->kernels[SL_RATE_F32][SL_OP_UPDATE], m->narrow_updates[0], update_bytes[1],
                      out);
    if (d->ranks > 1) fprintf(out, "  between ranks        %8.1f GB/s\n", m->comm_bytes_per_second / 1e9);
    fprintf(out, "  latencies            kernel %.1f us, copy %.1f us", 1e6 * m->kernel_latency, 1e6 * m->link_latency);
    if (d->ranks > 1) fprintf(out, ", collective %.1f us", 1e6 * m->comm_latency);
    fprintf(out, "\n");
    print_contention(d, out);
    char bytes[32];
    if (d->is_cuda)
        fprintf(out, "  pinnable memory      %8s\n", sl_format_bytes(d->pinnable_bytes, bytes, sizeof bytes));
}

/* The rates above are of GEMMs as models have them; these of a large one that has the machine to itself. */
static sluice_status print_peaks(const sl_machine_description *d, FILE *out)
{
    double f32, bf16;
    sl_device_choice device;
    SL_TRY(sl_device_choose(d->is_cuda ? SLUICE_DEVICE_CUDA : SLUICE_DEVICE_CPU, 0, 1, &device));
    SL_TRY(sl_measured_peak(&device, d->isa, d->threads, SLUICE_F32, &f32));
    SL_TRY(sl_measured_peak(&device, d->isa, d->threads, SLUICE_BF16, &bf16));
    print_gemm_rates("peak of a GEMM alone", f32, bf16, out);
    return SLUICE_OK;
}

static void print_built_in(FILE *out)
{
    const char *pictures = sl_picture_formats(), *sounds = sl_sound_formats();
    fprintf(
        out,
        "built in: backends cpu, null; communication self, local; formats json, safetensors, idx, cifar%s%s%s%s%s%s\n",
        pictures[0] != '\0' ? ", " : "", pictures, sounds[0] != '\0' ? ", " : "", sounds,
        sl_topology_built_in() ? "; hwloc" : "", sl_swap_uring_built_in() ? "; io_uring" : "");
    if (strcmp(pictures, "png, jpeg") != 0)
        fprintf(out, "not built in: %s, so such images cannot be read\n",
                pictures[0] == '\0'  ? "PNG and JPEG"
                : pictures[0] == 'p' ? "JPEG"
                                     : "PNG");
    if (sounds[0] == '\0') fprintf(out, "not built in: libsndfile, so sounds cannot be read\n");
    fprintf(out, "loaded at run time where present: cuda, nccl, mpi\n");
    if (!sl_topology_built_in()) fprintf(out, "not built in: hwloc, so ranks are not bound to NUMA nodes\n");
    if (!sl_swap_uring_built_in()) fprintf(out, "not built in: io_uring, so threads read and write swap files\n");
}

/* Only an older machine file gives way, or one without a byte. */
static sluice_status check_older(const char *path)
{
    sl_path_info there;
    sl_machine_description d;
    SL_TRY(sl_path_look(path, &there));
    if (there.kind != SL_PATH_FILE || there.bytes == 0 || sl_machine_read(path, &d) == SLUICE_OK) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_USAGE,
                   "--machine: %s is there and describes no machine, so that it is not replaced; name "
                   "a new file",
                   sl_show(path).text);
}

/* Measuring takes a while: a file that cannot be written is refused before. */
static sluice_status try_file(const char *path)
{
    sl_file_set files;
    sl_file_set_init(&files, NULL, NULL);
    SL_TRY(check_older(path));
    return sl_file_set_try(&files, sl_file_set_add(&files, "--machine", path, SL_SET_WRITE_FILE));
}

/* Ranks are copies of this process, which must not have used CUDA then: GPUs are looked at when they have ended. */
sluice_status sluice_devices(bool measure, int ranks, sluice_device device, const char *machine_file, FILE *out)
{
    sl_isa isa;
    sl_machine_description here;
    SL_NEED(out);
    if (ranks < 0 || ranks > SL_LOCAL_RANKS)
        return sl_fail(SLUICE_ERR_USAGE, "sluice_devices: %d ranks, must be 0 to %d", ranks, SL_LOCAL_RANKS);
    if ((unsigned)device > SLUICE_DEVICE_AUTO)
        return sl_fail(SLUICE_ERR_USAGE, "sluice_devices: there is no device %d", (int)device);
    SL_TRY(sl_machine_isa(&isa));
    if (measure && machine_file != NULL) SL_TRY(try_file(machine_file));
    fprintf(out, "sluice %s\n", sluice_version());
    print_machine(isa, out);
    fflush(out);
    if (measure) SL_TRY(sl_machine_measure(isa, ranks > 0 ? ranks : 1, device, out, &here));
    if (measure && machine_file != NULL) SL_TRY(sl_machine_write(machine_file, &here));
    /* a machine without a GPU works as well: the reason is all there is to say */
    if (print_gpus(out) != SLUICE_OK) fprintf(out, "gpu: none: %s\n", sluice_error());
    if (measure) {
        print_rates(&here, out);
        fflush(out); /* what is known is said before more is measured */
        SL_TRY(print_peaks(&here, out));
    }
    sl_print_known_disks(out);
    print_built_in(out);
    return SLUICE_OK;
}
