/* devices.c: what this machine offers and how fast it is, and the devices command. */
#include <inttypes.h>
#include <string.h>

#include "backend/backend.h"
#include "core/alloc.h"
#include "core/bytes.h"
#include "core/thread.h"
#include "train/machine.h"

/* ---- micro-benchmarks ---- */

#define GEMM_SIZE   ((int64_t)1024)
#define STREAM_SIZE ((int64_t)4 << 20) /* floats per operand: past the caches of a core */
#define REPEATS     5

typedef struct bench {
    const sl_backend *backend;
    sl_device *device;
    sl_run_context context;
} bench;

typedef sluice_status (*timed)(bench *b);

/* Best of several runs after one that warms caches and pages. */
static sluice_status best_seconds(bench *b, timed run, double *out)
{
    *out = 1e30;
    for (int i = 0; i <= REPEATS; i++) {
        double start = sl_now();
        SL_TRY(run(b));
        SL_TRY(b->backend->synchronize(b->device));
        double seconds = sl_now() - start;
        if (i > 0 && seconds < *out) *out = seconds;
    }
    return SLUICE_OK;
}

static sl_span floats(sl_tier tier, int64_t first, int64_t count)
{
    return (sl_span){ tier, (uint64_t)first * sizeof(float), (uint64_t)count * sizeof(float) };
}

static sluice_status run_gemm(bench *b)
{
    static const sl_attrs attrs;
    const int64_t n = GEMM_SIZE * GEMM_SIZE;
    sl_shape square = { 2, { GEMM_SIZE, GEMM_SIZE } };
    sl_call c = { .op = SL_OP_LINEAR,
                  .attrs = &attrs,
                  .input_count = 2,
                  .output_count = 1,
                  .context = &b->context,
                  .name = "measure" };
    for (int i = 0; i < 2; i++) {
        c.inputs[i] = floats(SL_TIER_DEVICE, i * n, n);
        c.input_shapes[i] = &square;
    }
    c.outputs[0] = floats(SL_TIER_DEVICE, 2 * n, n);
    c.output_shapes[0] = &square;
    return b->backend->run(b->device, SL_STREAM_COMPUTE, &c);
}

static sluice_status run_stream(bench *b)
{
    sl_attrs attrs = { .scale = { 1.5f } };
    sl_shape flat = { 1, { STREAM_SIZE } };
    sl_call c = { .op = SL_OP_SCALE,
                  .attrs = &attrs,
                  .input_count = 1,
                  .output_count = 1,
                  .context = &b->context,
                  .name = "measure" };
    c.inputs[0] = floats(SL_TIER_DEVICE, 0, STREAM_SIZE);
    c.outputs[0] = floats(SL_TIER_DEVICE, STREAM_SIZE, STREAM_SIZE);
    c.input_shapes[0] = c.output_shapes[0] = &flat;
    return b->backend->run(b->device, SL_STREAM_COMPUTE, &c);
}

static sluice_status run_to_device(bench *b)
{
    return b->backend->copy(b->device, SL_STREAM_TO_DEVICE, floats(SL_TIER_DEVICE, 0, STREAM_SIZE),
                            floats(SL_TIER_HOST, 0, STREAM_SIZE));
}

static sluice_status run_to_host(bench *b)
{
    return b->backend->copy(b->device, SL_STREAM_TO_HOST, floats(SL_TIER_HOST, 0, STREAM_SIZE),
                            floats(SL_TIER_DEVICE, 0, STREAM_SIZE));
}

/* AdamW on zeros: the arithmetic does not depend on the values. */
static sluice_status run_update(bench *b)
{
    sl_update_segment segment = { 0, STREAM_SIZE / 2, 0 };
    sl_update_rule rule = {
        .kind = SL_UPDATE_ADAM, .slots = 2, .decoupled_decay = true, .segments = &segment, .segment_count = 1
    };
    sl_attrs attrs = { .update = &rule };
    sl_shape flat = { 1, { STREAM_SIZE / 2 } }, small = { 1, { (int64_t)(sizeof(sl_norm_result) / sizeof(float)) } };
    sl_call c = { .op = SL_OP_UPDATE,
                  .attrs = &attrs,
                  .input_count = 2,
                  .output_count = 3,
                  .context = &b->context,
                  .name = "measure" };
    for (int i = 0; i < 3; i++) {
        c.outputs[i] = floats(SL_TIER_DEVICE, i * STREAM_SIZE / 2, STREAM_SIZE / 2);
        c.output_shapes[i] = &flat;
    }
    c.inputs[0] = floats(SL_TIER_HOST, 0, STREAM_SIZE / 2);
    c.inputs[1] = (sl_span){ SL_TIER_HOST, (uint64_t)STREAM_SIZE * sizeof(float), sizeof(sl_norm_result) };
    c.input_shapes[0] = &flat;
    c.input_shapes[1] = &small;
    return b->backend->run(b->device, SL_STREAM_UPDATE, &c);
}

static sluice_status measure_all(bench *b, sl_machine *m)
{
    double gemm, stream, in, out, update;
    double bytes = (double)STREAM_SIZE * sizeof(float);
    sl_norm_result norm = { 1.0, 1.0f, 1 };
    SL_TRY(b->backend->upload(b->device, (sl_span){ SL_TIER_HOST, (uint64_t)STREAM_SIZE * sizeof(float), sizeof norm },
                              &norm));
    SL_TRY(best_seconds(b, run_gemm, &gemm));
    SL_TRY(best_seconds(b, run_stream, &stream));
    SL_TRY(best_seconds(b, run_to_device, &in));
    SL_TRY(best_seconds(b, run_to_host, &out));
    SL_TRY(best_seconds(b, run_update, &update));
    m->gemm_flops = 2.0 * (double)(GEMM_SIZE * GEMM_SIZE * GEMM_SIZE) / gemm;
    m->vector_flops = m->gemm_flops / 8;
    m->device_bytes_per_second = 2 * bytes / stream;
    m->link_bytes_per_second[0] = bytes / in;
    m->link_bytes_per_second[1] = bytes / out;
    m->comm_bytes_per_second = bytes / in; /* ranks of one machine read each other's memory, at the rate of copies */
    m->capacity[SL_TIER_DEVICE] = m->capacity[SL_TIER_HOST] = sl_memory_available();
    m->update_bytes_per_second = 28.0 * (double)(STREAM_SIZE / 2) / update;
    return SLUICE_OK;
}

sluice_status sl_machine_measure(sl_isa isa, int threads, sl_machine *out)
{
    bench b = { .backend = &sl_cpu_backend };
    sl_device_options options = { .threads = threads, .isa = isa };
    uint64_t bytes = (uint64_t)STREAM_SIZE * sizeof(float);
    sl_machine_describe(isa, threads, out);
    b.context.group_count = 1;
    b.context.groups[0] =
        (sl_group_scalars){ .epsilon = 1e-8f, .bias2_sqrt = 1, .step_size = 1e-3f, .decay_factor = 1 };
    sluice_status st = b.backend->open(&options, &b.device);
    if (st == SLUICE_OK) st = b.backend->reserve(b.device, SL_TIER_DEVICE, 2 * bytes);
    if (st == SLUICE_OK) st = b.backend->reserve(b.device, SL_TIER_HOST, bytes + SL_ALIGNMENT);
    if (st == SLUICE_OK) st = b.backend->reserve_events(b.device, 1);
    if (st == SLUICE_OK) st = measure_all(&b, out);
    b.backend->close(b.device);
    return st;
}

/* ---- the command ---- */

static void print_rates(const sl_machine *m, FILE *out)
{
    fprintf(out, "  matrix products      %8.1f GFLOP/s\n", m->gemm_flops / 1e9);
    fprintf(out, "  kernels, streaming   %8.1f GB/s\n", m->device_bytes_per_second / 1e9);
    fprintf(out, "  host to device       %8.1f GB/s\n", m->link_bytes_per_second[0] / 1e9);
    fprintf(out, "  device to host       %8.1f GB/s\n", m->link_bytes_per_second[1] / 1e9);
    fprintf(out, "  AdamW on the host    %8.1f GB/s (%.2f G parameters/s)\n", m->update_bytes_per_second / 1e9,
            m->update_bytes_per_second / 28e9);
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

sluice_status sluice_devices(bool measure, const char *machine_file, FILE *out)
{
    sl_isa isa;
    sl_machine m;
    SL_TRY(sl_machine_isa(&isa));
    fprintf(out, "sluice %s\n", sluice_version());
    print_machine(isa, out);
    if (measure) {
        SL_TRY(sl_machine_measure(isa, sl_cpu_count(), &m));
        print_rates(&m, out);
        const sl_machine_description here = { .rates = m, .shared_memory = true }; /* on a CPU all memory is RAM */
        if (machine_file != NULL) SL_TRY(sl_machine_write(machine_file, &here));
    }
    fprintf(out, "built in: backends cpu, null; communication self, local; formats json, safetensors\n");
    fprintf(out, "loaded where it is found: mpi\n");
    fprintf(out, "not built in yet: cuda, nccl, disk tier\n");
    return SLUICE_OK;
}
