/* known.c: the rows of machines that have a name, and a description made of them. */
#include "machine/known.h"

#include <string.h>

#include "backend/cuda_plugin.h"
#include "core/bytes.h"
#include "core/names.h"
#include "core/quote.h"

#define TOO_OLD "its compute capability is below 8.0, which sluice needs"
#define OTHER   "sluice runs on NVIDIA's GPUs; AMD's are not supported"

/* Copies of pinned memory over PCIe, one way, GB/s. */
#define GEN3    12
#define GEN4_X8 12.5
#define GEN4    25
#define GEN5    53

/* clang-format off */
static const sl_known_gpu gpus[] = {
    /* names                                     cc  MiB    GB/s  half   fp32  kept  link   pair many  host            kernels */
    { "h200|h200sxm|h200141gb",                  90, 143771, 4800, 989,   67,   0.72, GEN5,  365, 365, "cloud16",      SL_GPU_HOPPER, false, NULL },
    { "h100|h100sxm|h100sxm5|h10080gb",          90, 81559,  3350, 989,   67,   0.72, GEN5,  365, 365, "cloud16",      SL_GPU_HOPPER, false, NULL },
    { "h100-pcie",                               90, 81559,  2000, 756,   51,   0.60, GEN5,  208, 20,  "cloud16",      SL_GPU_HOPPER, false, NULL },
    { "h100-nvl",                                90, 95830,  3900, 835,   60,   0.65, GEN5,  208, 20,  "cloud16",      SL_GPU_HOPPER, false, NULL },
    { "gh200|gh20096gb",                         90, 97871,  4000, 989,   67,   0.75, 300,   365, 365, "grace",        SL_GPU_HOPPER, false, NULL },
    { "b200|b200sxm",                           100, 183359, 8000, 2250,  80,   0.70, GEN5,  680, 680, "cloud16",      SL_GPU_HOPPER, false, NULL },
    { "gb200",                                  100, 189471, 8000, 2500,  80,   0.66, 300,   680, 680, "grace",        SL_GPU_HOPPER, false, NULL },
    { "a100-80gb|a100|a100sxm|a100sxm80gb|a10080",  80, 81920, 2039, 312,  19.5, 0.79, GEN4,  231, 231, "cloud16",     SL_GPU_AMPERE, false, NULL },
    { "a100-40gb|a100sxm40gb|a10040",            80, 40960,  1555, 312,   19.5, 0.79, GEN4,  231, 231, "cloud16",      SL_GPU_AMPERE, false, NULL },
    { "a100-pcie-80gb|a100pcie",                 80, 81920,  1935, 312,   19.5, 0.74, GEN4,  208, 20,  "cloud16",      SL_GPU_AMPERE, false, NULL },
    { "a100-pcie-40gb",                          80, 40960,  1555, 312,   19.5, 0.74, GEN4,  208, 20,  "cloud16",      SL_GPU_AMPERE, false, NULL },
    { "l40s",                                    89, 46068,  864,  362,   91.6, 0.68, GEN4,  20,  20,  "cloud16",      SL_GPU_AMPERE, false, NULL },
    { "l4",                                      89, 23034,  300,  121,   30.3, 0.55, GEN4,  20,  20,  "cloud16",      SL_GPU_AMPERE, false, NULL },
    { "a10",                                     86, 23028,  600,  125,   31.2, 0.60, GEN4,  20,  20,  "cloud16",      SL_GPU_AMPERE, false, NULL },
    { "a10g",                                    86, 23028,  600,  70,    35,   0.82, GEN4,  20,  20,  "cloud16",      SL_GPU_AMPERE, false, NULL },
    { "a40",                                     86, 46068,  696,  149.7, 37.4, 0.73, GEN4,  48,  20,  "cloud16",      SL_GPU_AMPERE, false, NULL },
    { "rtx-a6000|a6000",                         86, 49140,  768,  154.8, 38.7, 0.73, GEN4,  48,  20,  "workstation",  SL_GPU_AMPERE, false, NULL },
    { "rtx-6000-ada|6000ada|rtx6000adageneration", 89, 49140, 960, 364,   91.1, 0.68, GEN4,  20,  20,  "workstation",  SL_GPU_AMPERE, false, NULL },
    { "rtx-pro-6000|rtxpro6000blackwell|pro6000",120, 97887, 1792, 463,   126,  0.75, GEN5,  28,  28,  "workstation",  SL_GPU_AMPERE, false, NULL },
    { "rtx-3060|3060|rtx306012gb",               86, 12288,  360,  25.5,  12.7, 0.82, GEN4,  8,   8,   "desktop-ddr4", SL_GPU_AMPERE, false, NULL },
    { "rtx-3080|3080|rtx308010gb",               86, 10240,  760,  59.5,  29.8, 0.82, GEN4,  8,   8,   "desktop-ddr4", SL_GPU_AMPERE, false, NULL },
    { "rtx-3090|3090",                           86, 24576,  936,  71.2,  35.6, 0.82, GEN4,  48,  10,  "desktop-ddr4", SL_GPU_AMPERE, false, NULL },
    { "rtx-4060-ti-16gb|4060ti|rtx4060ti",       89, 16380,  288,  44.1,  22.1, 0.82, GEN4_X8, 8, 8,   "desktop-ddr5", SL_GPU_AMPERE, false, NULL },
    { "rtx-4070-ti-super|4070tisuper",           89, 16376,  672,  88.2,  44.1, 0.82, GEN4,  8,   8,   "desktop-ddr5", SL_GPU_AMPERE, false, NULL },
    { "rtx-4080|4080",                           89, 16376,  717,  97.5,  48.7, 0.82, GEN4,  8,   8,   "desktop-ddr5", SL_GPU_AMPERE, false, NULL },
    { "rtx-4090|4090",                           89, 24564,  1008, 165.2, 82.6, 0.82, GEN4,  10,  10,  "desktop-ddr5", SL_GPU_AMPERE, false, NULL },
    { "rtx-5080|5080",                          120, 16303,  960,  112.6, 56.3, 0.82, GEN5,  20,  20,  "desktop-ddr5", SL_GPU_AMPERE, false, NULL },
    { "rtx-5090|5090",                          120, 32607,  1792, 209.5, 104.8, 0.82, GEN5, 28,  28,  "desktop-ddr5", SL_GPU_AMPERE, false, NULL },
    { "orin-64gb|jetsonagxorin|jetsonagxorin64gb|orin", 87, 62841, 205, 42.6, 5.3, 0.70, 50, 1,   1,   "jetson",       SL_GPU_AMPERE, true,  NULL },
    { "v100-32gb|v100|v100sxm2|v100sxm232gb",    70, 32768,  900,  125,   15.7, 0.80, GEN3,  120, 120, "cloud16",      SL_GPU_AMPERE, false, NULL },
    { "v100-16gb|v100sxm216gb|v100pcie",         70, 16384,  900,  125,   15.7, 0.80, GEN3,  120, 120, "cloud16",      SL_GPU_AMPERE, false, NULL },
    { "t4",                                      75, 15360,  320,  65,    8.1,  0.60, GEN3,  8,   8,   "cloud16",      SL_GPU_AMPERE, false, NULL },
    { "rtx-2080-ti|2080ti",                      75, 11264,  616,  56.9,  14.2, 0.82, GEN3,  40,  8,   "desktop-ddr4", SL_GPU_AMPERE, false, NULL },
    { "mi300x",                                  94, 196608, 5300, 1307,  163,  0.50, GEN5,  48,  313, "cloud16",      SL_GPU_AMPERE, false, OTHER },
    { "mi250x",                                  90, 65536,  1638, 191.5, 23.9, 0.50, GEN4,  50,  100, "cloud16",      SL_GPU_AMPERE, false, OTHER },
};

static const sl_known_host hosts[] = {
    { "desktop-ddr4|ddr4",               40,  8,   32,   "two channels of DDR4-3200" },
    { "desktop-ddr5|ddr5",               72,  16,  64,   "two channels of DDR5-5600" },
    { "ryzen-ddr5|ryzen",                60,  8,   64,   "one chiplet, two channels of DDR5-6000" },
    { "workstation|threadripper",        130, 32,  128,  "Threadripper 7000, four channels of DDR5" },
    { "threadripper-pro",                250, 64,  256,  "eight channels of DDR5" },
    { "epyc-milan|epyc-rome|milan|rome", 155, 64,  512,  "a socket, eight channels of DDR4-3200" },
    { "epyc-genoa|genoa",                370, 96,  768,  "a socket, twelve channels of DDR5-4800" },
    { "epyc-turin|turin",                500, 128, 768,  "a socket, twelve channels of DDR5-6000" },
    { "xeon-icelake|icelake",            167, 40,  512,  "a socket, eight channels of DDR4-3200" },
    { "xeon-sapphire-rapids|sapphirerapids|spr", 240, 56, 512, "a socket, eight channels of DDR5-4800" },
    { "xeon-emerald-rapids|emeraldrapids|emr",   280, 64, 512, "a socket, eight channels of DDR5-5600" },
    { "grace",                           380, 72,  480,  "LPDDR5X" },
    { "jetson",                          100, 12,  64,   "LPDDR5, shared with the GPU" },
    { "cloud16|cloud-16-cores",          125, 16,  192,  "16 cores of a larger machine, as one GPU is rented with" },
    { "dgx-a100-host",                   310, 128, 1024, "two EPYC 7742" },
    { "dgx-h100-host",                   480, 112, 2048, "two Xeon 8480C" },
};

static const sl_known_node nodes[] = {
    { "dgx-a100|dgx-a100-80gb|hgx-a100", "a100-80gb", "dgx-a100-host", 8, 1024, 231, 160 },
    { "dgx-a100-40gb",                  "a100-40gb", "dgx-a100-host", 8, 1024, 231, 160 },
    { "dgx-h100|hgx-h100|nd-h100-v5|p5", "h100",      "dgx-h100-host", 8, 2048, 365, 365 },
    { "dgx-h200|hgx-h200|p5en",         "h200",      "dgx-h100-host", 8, 2048, 365, 365 },
    { "dgx-b200|hgx-b200",              "b200",      "xeon-emerald-rapids", 8, 2048, 680, 360 },
    { "p4d|p4d.24xlarge",               "a100-40gb", "dgx-a100-host", 8, 1152, 231, 30 },
    { "p4de|p4de.24xlarge",             "a100-80gb", "dgx-a100-host", 8, 1152, 231, 30 },
    { "2x-rtx-3090|two-3090s",          "rtx-3090",  "desktop-ddr4",  2, 64,   48,  0 },
    { "4x-rtx-4090|four-4090s",         "rtx-4090",  "epyc-milan",    4, 256,  10,  0 },
    { "8x-rtx-5090",                    "rtx-5090",  "dgx-h100-host", 8, 512,  28,  0 },
};
/* clang-format on */

enum {
    GPUS = sizeof gpus / sizeof gpus[0],
    HOSTS = sizeof hosts / sizeof hosts[0],
    NODES = sizeof nodes / sizeof nodes[0]
};

/* ---- looking up ---- */

static const sl_known_gpu *find_gpu(const char *name)
{
    for (int i = 0; i < GPUS; i++)
        if (sl_name_is(name, gpus[i].names)) return &gpus[i];
    return NULL;
}

sl_gpu_kernels sl_known_kernels(const char *gpu)
{
    const sl_known_gpu *g = find_gpu(gpu);
    return g != NULL ? g->kernels : SL_GPU_HOPPER;
}

static const sl_known_node *find_node(const char *name)
{
    for (int i = 0; i < NODES; i++)
        if (sl_name_is(name, nodes[i].names)) return &nodes[i];
    return NULL;
}

static const sl_known_host *find_host(const char *name)
{
    for (int i = 0; i < HOSTS; i++)
        if (sl_name_is(name, hosts[i].names)) return &hosts[i];
    return NULL;
}

static sluice_status unknown_gpu(const char *name)
{
    const char *lists[GPUS + NODES];
    char near[160];
    for (int i = 0; i < GPUS; i++) lists[i] = gpus[i].names;
    for (int i = 0; i < NODES; i++) lists[GPUS + i] = nodes[i].names;
    sl_names_nearest(name, lists, GPUS + NODES, sizeof lists[0], near, sizeof near);
    return sl_fail(
        SLUICE_ERR_USAGE,
        "--gpu: no GPU or machine is known as %s%s%s; --gpu list prints all, and --machine FILE describes any "
        "other",
        sl_quote(name).text, near[0] != '\0' ? "; near it: " : "", near);
}

static sluice_status unknown_host(const char *name)
{
    char near[160];
    sl_names_nearest(name, &hosts[0].names, HOSTS, sizeof hosts[0], near, sizeof near);
    return sl_fail(SLUICE_ERR_USAGE, "--host: no host is known as %s%s%s; --gpu list prints all", sl_quote(name).text,
                   near[0] != '\0' ? "; near it: " : "", near);
}

/* Why sluice does not run there; NULL: it does. */
static const char *why_not(const sl_known_gpu *g)
{
    return g->cannot == NULL && g->capability / 10 < SL_CUDA_LEAST_MAJOR ? TOO_OLD : g->cannot;
}

static sluice_status refuse_gpu(const sl_known_gpu *g)
{
    char name[64];
    return sl_fail(SLUICE_ERR_USAGE, "--gpu: sluice does not run on %s: %s", sl_name_first(g->names, name, sizeof name),
                   why_not(g));
}

/* ---- a description ---- */

/* Seconds that a collective of n ranks costs before its first byte, over k machines: NCCL's constants of a ring. */
static double ring_latency(int n, int k)
{
    const double base = 8.4e-6, inside = 3.4e-6, network = 14e-6;
    return base + (n - k) * inside + (k - 1) * network;
}

static void describe_ranks(const sl_known_gpu *g, const sl_known_node *node, int ranks, sl_machine *m)
{
    int each = node != NULL ? node->gpus : ranks, machines = (ranks + each - 1) / each;
    double inside = node != NULL && node->inside > 0 ? node->inside : ranks <= 2 ? g->pair : g->many;
    double rate = machines > 1 && node->network < inside ? node->network : inside;
    m->comm_bytes_per_second = 1e9 * rate;
    m->comm_latency = ring_latency(ranks, machines);
}

static sluice_status check_machines(const sl_known_node *node, int ranks)
{
    char name[64];
    if (node == NULL || ranks <= node->gpus || node->network > 0) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_USAGE, "--gpus: %d are asked for, and %s has %d and no network to others", ranks,
                   sl_name_first(node->names, name, sizeof name), node->gpus);
}

sluice_status sl_machine_named(const sl_machine_query *q, sl_machine_description *out, int *ranks)
{
    const sl_known_node *node = find_node(q->gpu);
    const sl_known_gpu *g = find_gpu(node != NULL ? node->gpu : q->gpu);
    if (g == NULL) return unknown_gpu(q->gpu);
    if (why_not(g) != NULL) return refuse_gpu(g);
    const sl_known_host *h = find_host(q->host != NULL ? q->host : node != NULL ? node->host : g->host);
    if (h == NULL) return unknown_host(q->host);
    int n = q->gpus > 0 ? q->gpus : node != NULL ? node->gpus : 1;
    int sharing = node != NULL && n > node->gpus ? node->gpus : n; /* GPUs of one machine */
    SL_TRY(check_machines(node, n));
    uint64_t ram = q->ram_bytes > 0                  ? q->ram_bytes
                   : node != NULL && q->host == NULL ? (uint64_t)node->ram_gib << 30
                                                     : (uint64_t)h->ram_gib << 30;
    sl_machine_description d = { .is_cuda = true, .gpus_meet = true, .shared_memory = g->shared_memory };
    sl_machine_default(&d.rates);
    sl_known_rates(g, &d.rates);
    d.rates.update_bytes_per_second = 1e9 * h->gb_per_second / sharing;
    d.rates.capacity[SL_TIER_DEVICE] = (uint64_t)g->memory_mib << 20;
    d.rates.capacity[SL_TIER_HOST] = ram / (uint64_t)sharing;
    d.host_cores = h->cores / sharing > 0 ? h->cores / sharing : 1;
    describe_ranks(g, node, n, &d.rates);
    sl_name_first(g->names, d.gpu, sizeof d.gpu);
    *out = d;
    *ranks = n;
    return SLUICE_OK;
}

/* ---- for people ---- */

static void print_gpu(const sl_known_gpu *g, FILE *out)
{
    char name[64];
    fprintf(out, "  %-20s %6.1f GiB %6.0f GB/s %6.0f TFLOP/s, %4.0f kept up, link %3.0f GB/s",
            sl_name_first(g->names, name, sizeof name), g->memory_mib / 1024.0, g->memory_gb_per_second, g->half_tflops,
            g->half_tflops * g->kept, g->link_gb_per_second);
    if (why_not(g) != NULL) fprintf(out, "; cannot be used: %s", why_not(g));
    fputc('\n', out);
}

static void print_node(const sl_known_node *n, FILE *out)
{
    char name[64];
    fprintf(out, "  %-20s %d x %s, %d GiB of RAM, %.0f GB/s between GPUs", sl_name_first(n->names, name, sizeof name),
            n->gpus, n->gpu, n->ram_gib, n->inside);
    if (n->network > 0) fprintf(out, ", %.0f between machines", n->network);
    fputc('\n', out);
}

void sl_known_print(FILE *out)
{
    char name[64];
    fprintf(out,
            "GPUs (--gpu NAME; case, blanks and punctuation do not matter): memory, its bandwidth, 16-bit products\n");
    for (int i = 0; i < GPUS; i++) print_gpu(&gpus[i], out);
    fprintf(out, "machines (--gpu NAME)\n");
    for (int i = 0; i < NODES; i++) print_node(&nodes[i], out);
    fprintf(out, "hosts (--host NAME): bandwidth of the memory, cores, RAM unless --ram says otherwise\n");
    for (int i = 0; i < HOSTS; i++)
        fprintf(out, "  %-20s %4.0f GB/s %4d cores %5d GiB  %s\n", sl_name_first(hosts[i].names, name, sizeof name),
                hosts[i].gb_per_second, hosts[i].cores, hosts[i].ram_gib, hosts[i].what);
}

void sluice_known_machines(FILE *out)
{
    if (out != NULL) sl_known_print(out);
}
