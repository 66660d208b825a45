/* measure_peak.c: the rate of one large GEMM, on a device of its own that is closed afterwards, so that nothing of a run
 * depends on it. */
#include "core/alloc.h"
#include "core/half.h"
#include "core/thread.h"
#include "ir/form.h"
#include "machine/measure.h"

#define PEAK_SECONDS 0.1
#define PEAK_RUNS    3
#define SIZE_STEP    ((int64_t)256)
#define GPU_SIDE     ((int64_t)4096)

/* A GEMM of square matrices, which lie next to each other in the arena. */
typedef struct square_gemm {
    const sl_backend *backend;
    sl_device *device;
    uint64_t workspace; /* bytes, behind the matrices */
    sl_form form;
    int64_t largest; /* side that there is room for */
    uint64_t each;   /* bytes of a matrix of that side */
} square_gemm;

/* Small numbers, as f32 and as either half; zeros would be multiplied at a clock that training never sees. */
static sluice_status fill(const square_gemm *p)
{
    enum { CHUNK = SIZE_STEP * SIZE_STEP / 2 }; /* matrices are made of whole ones */
    float *chunk = sl_alloc_array(CHUNK, sizeof *chunk, "operands of a GEMM");
    if (chunk == NULL) return SLUICE_ERR_NO_MEMORY;
    for (int i = 0; i < CHUNK; i++) {
        uint32_t half = sl_float_to_bf16(0.01f * (float)(1 + i * 37 % 101));
        chunk[i] = sl_bits_float(half << 16 | half);
    }
    sluice_status st = SLUICE_OK;
    for (uint64_t at = 0; st == SLUICE_OK && at < 2 * p->each; at += CHUNK * sizeof *chunk)
        st = p->backend->upload(p->device, SL_STREAM_COMPUTE, (sl_span){ SL_TIER_DEVICE, at, CHUNK * sizeof *chunk },
                                chunk);
    sl_free(chunk);
    return st;
}

static void describe_gemm(const square_gemm *p, const sl_shape *square, sl_call *c)
{
    uint64_t bytes = (uint64_t)sl_shape_elements(square) * sl_form_element_bytes(p->form);
    c->input_count = 2;
    c->output_count = 1;
    for (int k = 0; k < 2; k++) {
        c->inputs[k] = (sl_span){ SL_TIER_DEVICE, (uint64_t)k * p->each, bytes };
        c->input_shapes[k] = square;
        c->input_forms[k] = p->form;
    }
    c->outputs[0] = (sl_span){ SL_TIER_DEVICE, 2 * p->each, bytes };
    c->output_shapes[0] = square;
    c->output_forms[0] = p->form;
    if (p->workspace > 0) c->workspace = (sl_span){ SL_TIER_DEVICE, 3 * p->each, p->workspace };
}

static sluice_status run_gemm(const square_gemm *p, int64_t size)
{
    static const sl_attrs attrs;
    const sl_shape square = { 2, { size, size } };
    const sl_run_context context = { .training = true };
    sl_call c = { .op = SL_OP_LINEAR, .attrs = &attrs, .context = &context, .name = "measure" };
    describe_gemm(p, &square, &c);
    SL_TRY(p->backend->run(p->device, SL_STREAM_COMPUTE, &c));
    return p->backend->synchronize(p->device);
}

/* Sides grow while a few GEMMs of the next size fit in the time: slow CPUs stay with small ones. */
static sluice_status best_gemm(const square_gemm *p, int64_t size, double *best)
{
    double spent = 0;
    for (int runs = 0; runs < PEAK_RUNS || spent < PEAK_SECONDS; runs++) {
        double start = sl_now(), flops = 2.0 * (double)size * (double)size * (double)size;
        SL_TRY(run_gemm(p, size));
        double seconds = sl_now() - start;
        if (seconds > 0 && flops / seconds > *best) *best = flops / seconds;
        spent += seconds > 0 ? seconds : 1e-9;
        if (size < p->largest && spent + 8 * PEAK_RUNS * seconds < PEAK_SECONDS) size += SIZE_STEP;
    }
    return SLUICE_OK;
}

/* What the GEMM of the largest side needs; no smaller one needs more. */
static uint64_t workspace_of(const square_gemm *p)
{
    static const sl_attrs attrs;
    const sl_shape square = { 2, { p->largest, p->largest } };
    sl_call c = { .op = SL_OP_LINEAR, .attrs = &attrs };
    describe_gemm(p, &square, &c);
    return p->backend->workspace(&c);
}

sluice_status sl_measured_peak(const sl_device_choice *device, sl_isa isa, int threads, sluice_dtype precision,
                               double *out)
{
    int64_t steps = threads <= 4 ? 3 : threads <= 16 ? 4 : 8; /* enough work for all threads */
    square_gemm p = { .backend = device->backend, .form = (sl_form)precision, .largest = steps * SIZE_STEP };
    sl_device_options options = { .threads = threads, .isa = isa, .ordinal = device->ordinal };
    if (device->is_cuda) p.largest = GPU_SIDE;
    p.each = (uint64_t)(p.largest * p.largest) * sl_form_element_bytes(p.form);
    p.workspace = workspace_of(&p);
    *out = 0;
    SL_TRY(p.backend->open(&options, &p.device));
    sluice_status st = p.backend->reserve(p.device, SL_TIER_DEVICE, 3 * p.each + p.workspace);
    if (st == SLUICE_OK) st = fill(&p);
    /* the first GEMM on a GPU loads its library */
    if (st == SLUICE_OK && device->is_cuda) st = run_gemm(&p, p.largest);
    if (st == SLUICE_OK) st = best_gemm(&p, device->is_cuda ? p.largest : SIZE_STEP, out);
    p.backend->close(p.device);
    return st;
}
