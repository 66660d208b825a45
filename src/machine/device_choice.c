/* device_choice.c: the CPU, or one of the GPUs. */
#include "machine/device_choice.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "machine/known.h"

static sluice_status take_cuda(int local_rank, int local_ranks, sl_device_choice *out)
{
    const sl_cuda_plugin *plugin;
    int count = 0;
    SL_TRY(sl_cuda_open_plugin(&plugin));
    SL_TRY(plugin->count(&count));
    if (count == 0)
        return sl_fail(SLUICE_ERR_USAGE, "device is cuda, but this machine has no usable GPU; set it to cpu or auto");
    int ordinal = local_rank % count;
    *out = (sl_device_choice){ .backend = plugin->backend,
                               .workspace = sl_cuda_plan_workspace,
                               .is_cuda = true,
                               .ordinal = ordinal,
                               .sharing = (local_ranks - ordinal + count - 1) / count };
    SL_TRY(plugin->facts(ordinal, &out->facts));
    if (out->facts.major >= SL_CUDA_LEAST_MAJOR) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_USAGE,
                   "GPU %d (%s) is too old: its compute capability is %d.%d, sluice needs %d.0 or newer", ordinal,
                   out->facts.name, out->facts.major, out->facts.minor, SL_CUDA_LEAST_MAJOR);
}

static sluice_status device_from_environment(sluice_device *wanted)
{
    static const struct {
        const char *name;
        sluice_device device;
    } names[] = { { "auto", SLUICE_DEVICE_AUTO }, { "cpu", SLUICE_DEVICE_CPU }, { "cuda", SLUICE_DEVICE_CUDA } };
    const char *text = getenv("SLUICE_DEVICE");
    if (text == NULL || text[0] == '\0') return SLUICE_OK;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(text, names[i].name) != 0) continue;
        *wanted = names[i].device;
        return SLUICE_OK;
    }
    return sl_fail(SLUICE_ERR_USAGE, "SLUICE_DEVICE is \"%s\"; give auto, cpu or cuda", text);
}

sluice_status sl_device_choose(sluice_device wanted, int local_rank, int local_ranks, sl_device_choice *out)
{
    if (wanted == SLUICE_DEVICE_AUTO) SL_TRY(device_from_environment(&wanted));
    if (wanted == SLUICE_DEVICE_CUDA) return take_cuda(local_rank, local_ranks, out);
    if (wanted == SLUICE_DEVICE_AUTO && take_cuda(local_rank, local_ranks, out) == SLUICE_OK) return SLUICE_OK;
    *out = (sl_device_choice){ .backend = &sl_cpu_backend, .workspace = sl_cpu_backend.workspace, .sharing = 1 };
    return SLUICE_OK;
}

void sl_device_describe_cuda(sl_device_choice *out)
{
    *out = (sl_device_choice){
        .backend = &sl_null_backend, .workspace = sl_cuda_plan_workspace, .is_cuda = true, .sharing = 1
    };
}

uint64_t sl_device_room(const sl_device_choice *c)
{
    uint64_t share = c->facts.free_bytes / (uint64_t)c->sharing;
    return share > SL_CUDA_OVERHEAD_BYTES ? share - SL_CUDA_OVERHEAD_BYTES : 0;
}

int sl_device_host_threads(const sl_device_choice *c, int threads)
{
    return c->is_cuda && threads > 4 ? threads - 2 : threads;
}

#define LEAST_UPDATE_RATE 22e9 /* of one core of a machine that has a GPU */

/* Per multiprocessor, but the link's. */
typedef struct gpu_class {
    int major;
    double gemm, gemm_16bit, memory, link;
    sl_gpu_kernels kernels;
} gpu_class;

void sl_machine_describe_cuda(const sl_cuda_facts *facts, sl_machine *m)
{
    static const gpu_class classes[] = {
        { 9, 380e9, 5.4e12, 29e9, 53e9, SL_GPU_HOPPER }, /* Hopper: 713 TFLOP/s and 3.8 TB/s of an H200's 132 */
        { 0, 150e9, 2.2e12, 13e9, 22e9, SL_GPU_AMPERE },
    };
    const gpu_class *c = &classes[facts->major >= classes[0].major ? 0 : 1];
    double units = facts->multiprocessors > 0 ? facts->multiprocessors : 108;
    m->gemm_flops = m->vector_flops = units * c->gemm;
    m->gemm_16bit_flops = units * c->gemm_16bit;
    sl_known_shares(c->kernels, m);
    m->device_bytes_per_second = units * c->memory;
    sl_machine_set_links(m, c->link);
    if (m->update_bytes_per_second < LEAST_UPDATE_RATE) m->update_bytes_per_second = LEAST_UPDATE_RATE;
    m->link_latency = 10e-6;
    m->kernel_latency = 3e-6;
    m->copies_overlap = true;
    m->kernels_take_turns = false;
    /* the link's copies and the host's updates share the host's memory */
    m->update_slowdown = 0.22;
    m->move_update_slowdown = 0.28;
}

#define CPU_GENERATION  1
#define CUDA_GENERATION 2 /* 2: a GEMM and the GELU or sum after it are rounded once in 16 bits */

const char *sl_device_kernels(const sl_device_choice *c, sl_isa isa, char *buf, size_t bytes)
{
    if (c->is_cuda)
        snprintf(buf, bytes, "cuda-sm%d%d-%d", c->facts.major, c->facts.minor, CUDA_GENERATION);
    else
        snprintf(buf, bytes, "cpu-%s-%d", sl_isa_name(isa), CPU_GENERATION);
    return buf;
}
