/* measure_peak.c: the rate of one large matrix product, on a device of its own that is gone afterwards, so that nothing
 * of a run depends on it. */
#include "core/alloc.h"
#include "core/half.h"
#include "core/thread.h"
#include "ir/form.h"
#include "train/measure.h"

#define PEAK_SECONDS 0.1
#define PEAK_RUNS    3
#define SIZE_STEP    ((int64_t)256)

/* A product of square matrices, side by side in the arena. */
typedef struct product {
    sl_device *device;
    sl_form form;
    int64_t largest; /* side that there is room for */
    uint64_t each;   /* bytes of a matrix of that side */
} product;

/* Enough work for all threads. */
static int64_t largest_side(int threads)
{
    return threads <= 4 ? 3 * SIZE_STEP : threads <= 16 ? 4 * SIZE_STEP : 8 * SIZE_STEP;
}

/* Small numbers, as f32 and as either half; zeros would be multiplied at a clock that training never sees. */
static sluice_status fill(const product *p)
{
    enum { CHUNK = SIZE_STEP * SIZE_STEP / 2 }; /* matrices are made of whole ones */
    float *chunk = sl_alloc_array(CHUNK, sizeof *chunk, "operands of a product");
    if (chunk == NULL) return SLUICE_ERR_NO_MEMORY;
    for (int i = 0; i < CHUNK; i++) {
        uint32_t half = sl_float_to_bf16(0.01f * (float)(1 + i * 37 % 101));
        chunk[i] = sl_bits_float(half << 16 | half);
    }
    sluice_status st = SLUICE_OK;
    for (uint64_t at = 0; st == SLUICE_OK && at < 2 * p->each; at += CHUNK * sizeof *chunk)
        st = sl_cpu_backend.upload(p->device, (sl_span){ SL_TIER_DEVICE, at, CHUNK * sizeof *chunk }, chunk);
    sl_free(chunk);
    return st;
}

static sluice_status run_product(const product *p, int64_t size)
{
    static const sl_attrs attrs;
    const sl_shape square = { 2, { size, size } };
    const sl_run_context context = { .training = true };
    uint64_t bytes = (uint64_t)(size * size) * sl_form_element_bytes(p->form);
    sl_call c = { .op = SL_OP_LINEAR, .attrs = &attrs, .context = &context, .name = "measure" };
    c.input_count = 2;
    c.output_count = 1;
    for (int k = 0; k < 2; k++) {
        c.inputs[k] = (sl_span){ SL_TIER_DEVICE, (uint64_t)k * p->each, bytes };
        c.input_shapes[k] = &square;
        c.input_forms[k] = p->form;
    }
    c.outputs[0] = (sl_span){ SL_TIER_DEVICE, 2 * p->each, bytes };
    c.output_shapes[0] = &square;
    c.output_forms[0] = p->form;
    return sl_cpu_backend.run(p->device, SL_STREAM_COMPUTE, &c);
}

/* Sides grow while a few products of the next size fit in the time: slow CPUs stay with small ones. */
static sluice_status best_product(const product *p, double *best)
{
    double spent = 0;
    int64_t size = SIZE_STEP;
    for (int runs = 0; runs < PEAK_RUNS || spent < PEAK_SECONDS; runs++) {
        double start = sl_now(), flops = 2.0 * (double)size * (double)size * (double)size;
        SL_TRY(run_product(p, size));
        double seconds = sl_now() - start;
        if (seconds > 0 && flops / seconds > *best) *best = flops / seconds;
        spent += seconds > 0 ? seconds : 1e-9;
        if (size < p->largest && spent + 8 * PEAK_RUNS * seconds < PEAK_SECONDS) size += SIZE_STEP;
    }
    return SLUICE_OK;
}

sluice_status sl_measured_peak(sl_isa isa, int threads, sluice_dtype precision, double *out)
{
    product p = { .form = (sl_form)precision, .largest = largest_side(threads) };
    sl_device_options options = { .threads = threads, .isa = isa };
    p.each = (uint64_t)(p.largest * p.largest) * sl_form_element_bytes(p.form);
    *out = 0;
    SL_TRY(sl_cpu_backend.open(&options, &p.device));
    sluice_status st = sl_cpu_backend.reserve(p.device, SL_TIER_DEVICE, 3 * p.each);
    if (st == SLUICE_OK) st = fill(&p);
    if (st == SLUICE_OK) st = best_product(&p, out);
    sl_cpu_backend.close(p.device);
    return st;
}
