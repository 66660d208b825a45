/* op_harness.c: see op_harness.h. */
#include "support/op_harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda_plugin.h"
#include "core/half.h"
#if defined(SL_TEST_CUDA_EMULATED)
#include "support/cuda/emulated.h"
#endif

#define ALIGNMENT 256
#define GAP       64

/* Repeated, a signalling NaN: even adding to it changes its bits. As an index far out of range. No pattern is one for
 * both 16-bit types. */
static uint16_t poison_of(sl_form form)
{
    return form == SL_FORM_F16 ? 0xfda5u : 0xffa5u;
}

/* SLUICE_TEST_DEVICES in the environment: only devices whose name begins so ("cuda", "cpu avx2"). Keeps the device just
 * written behind the others, or not. */
static void keep_if_wanted(const test_device out[MAX_TEST_DEVICES], int *count)
{
    const char *wanted = getenv("SLUICE_TEST_DEVICES");
    if (wanted == NULL || strncmp(out[*count].name, wanted, strlen(wanted)) == 0) (*count)++;
}

static void add_device(test_device out[MAX_TEST_DEVICES], int *count, sl_isa isa, int threads)
{
    test_device *d = &out[*count];
    *d = (test_device){ .backend = &sl_cpu_backend, .isa = isa, .threads = threads };
    snprintf(d->name, sizeof d->name, "%s %s, %d threads", d->backend->name, sl_isa_name(isa), threads);
    keep_if_wanted(out, count);
}

/* Unless SLUICE_TEST_NO_EMULATION is set: beside a GPU it shows nothing more. */
static void add_emulated(test_device out[MAX_TEST_DEVICES], int *count)
{
#if defined(SL_TEST_CUDA_EMULATED)
    if (getenv("SLUICE_TEST_NO_EMULATION") != NULL) return;
    out[*count] = (test_device){ .backend = &sl_emulated_cuda_backend, .isa = sl_isa_best(), .threads = 1 };
    snprintf(out[*count].name, sizeof out[*count].name, "%s", out[*count].backend->name);
    keep_if_wanted(out, count);
#else
    (void)out;
    (void)count;
#endif
}

/* The first GPU, where there is one and the plugin is built. */
static void add_gpu(test_device out[MAX_TEST_DEVICES], int *count)
{
    int gpus;
    const sl_cuda_plugin *plugin;
    if (sl_cuda_open_plugin(&plugin) != SLUICE_OK || plugin->count(&gpus) != SLUICE_OK || gpus == 0) return;
    test_device *d = &out[*count];
    *d = (test_device){ .backend = plugin->backend, .isa = sl_isa_best(), .threads = 2 };
    snprintf(d->name, sizeof d->name, "%s", d->backend->name);
    keep_if_wanted(out, count);
}

int test_devices(test_device out[MAX_TEST_DEVICES])
{
    int count = 0;
    for (int isa = 0; isa < SL_ISA_COUNT; isa++) {
        sl_isa usable;
        if (sl_isa_choose(sl_isa_name((sl_isa)isa), &usable) != SLUICE_OK) continue;
        add_device(out, &count, usable, 1);
        add_device(out, &count, usable, 2);
    }
    add_emulated(out, &count);
    add_gpu(out, &count);
    return count;
}

bool test_same_bits(const test_device *a, const test_device *b)
{
    return a->backend == b->backend;
}

double test_uniform(test_random *r, double low, double high)
{
    r->state = r->state * 6364136223846793005u + 1442695040888963407u;
    return low + (high - low) * (double)(r->state >> 40) * 0x1p-24;
}

sl_span test_image_add_form(test_image *image, int64_t count, sl_form form)
{
    const uint16_t poison = poison_of(form);
    uint64_t offset = image->size == 0 ? 0 : (image->size + GAP + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    sl_span span = { SL_TIER_DEVICE, offset, (uint64_t)count * sl_form_element_bytes(form) };
    uint8_t *bytes = realloc(image->bytes, offset + span.bytes);
    if (bytes == NULL) abort();
    for (uint64_t at = image->size; at < offset + span.bytes; at += sizeof poison)
        memcpy(bytes + at, &poison, sizeof poison);
    image->bytes = bytes;
    image->size = offset + span.bytes;
    return span;
}

sl_span test_image_add(test_image *image, int64_t count)
{
    return test_image_add_form(image, count, SL_FORM_F32);
}

void test_image_free(test_image *image)
{
    free(image->bytes);
    *image = (test_image){ 0 };
}

float *test_floats(const test_image *image, sl_span span)
{
    return (float *)(void *)(image->bytes + span.offset);
}

int32_t *test_indices(const test_image *image, sl_span span)
{
    return (int32_t *)(void *)(image->bytes + span.offset);
}

double test_number(const test_image *image, sl_span span, sl_form form, int64_t i)
{
    const uint16_t *halves = (const uint16_t *)(const void *)(image->bytes + span.offset);
    if (form == SL_FORM_I32) return (double)test_indices(image, span)[i];
    if (form == SL_FORM_BF16) return (double)sl_bf16_to_float(halves[i]);
    if (form == SL_FORM_F16) return (double)sl_f16_to_float(halves[i]);
    return (double)test_floats(image, span)[i];
}

void test_set_number(test_image *image, sl_span span, sl_form form, int64_t i, double x)
{
    uint16_t *halves = (uint16_t *)(void *)(image->bytes + span.offset);
    if (form == SL_FORM_I32)
        test_indices(image, span)[i] = (int32_t)x;
    else if (form == SL_FORM_BF16)
        halves[i] = sl_float_to_bf16((float)x);
    else if (form == SL_FORM_F16)
        halves[i] = sl_float_to_f16((float)x);
    else
        test_floats(image, span)[i] = (float)x;
}

void test_leave_out(sl_call *call, int i)
{
    call->outputs[i] = (sl_span){ 0 };
    call->output_shapes[i] = NULL;
}

/* Bytes that the neediest of the calls asks for. */
static uint64_t workspace_of(const sl_backend *backend, const sl_call *calls, int count)
{
    uint64_t most = 0;
    for (int i = 0; i < count; i++) {
        uint64_t bytes = backend->workspace(&calls[i]);
        if (bytes > most) most = bytes;
    }
    return most;
}

/* Workspace follows the image, flush with the end of the arena; each call gets exactly what it asks for. */
static sluice_status run_opened(const sl_backend *backend, sl_device *d, test_image *image, const sl_call *calls,
                                int count)
{
    const sl_span all = { SL_TIER_DEVICE, 0, image->size };
    uint64_t most = workspace_of(backend, calls, count);
    uint64_t first = most > 0 ? (image->size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT : image->size;
    SL_TRY(backend->reserve(d, SL_TIER_DEVICE, first + most));
    SL_TRY(backend->upload(d, SL_STREAM_COMPUTE, all, image->bytes));
    for (int i = 0; i < count; i++) {
        sl_call call = calls[i];
        uint64_t bytes = backend->workspace(&call);
        if (bytes > 0) call.workspace = (sl_span){ SL_TIER_DEVICE, first, bytes };
        SL_TRY(backend->run(d, SL_STREAM_COMPUTE, &call));
    }
    SL_TRY(backend->synchronize(d));
    return backend->download(d, image->bytes, all);
}

/* Everything but the calls' outputs is as it was. */
static bool untouched(const test_image *before, const test_image *after, const sl_call *calls, int call_count)
{
    for (int c = 0; c < call_count; c++)
        for (int i = 0; i < calls[c].output_count; i++) {
            sl_span s = calls[c].outputs[i];
            memcpy(before->bytes + s.offset, after->bytes + s.offset, s.bytes);
        }
    return memcmp(before->bytes, after->bytes, before->size) == 0;
}

sluice_status test_run(const test_device *device, test_image *image, const sl_call *calls, int call_count)
{
    sl_device_options options = { .threads = device->threads, .isa = device->isa, .guard = true };
    sl_device *d;
    SL_TRY(device->backend->open(&options, &d));
    test_image before = { malloc(image->size), image->size };
    memcpy(before.bytes, image->bytes, image->size);
    sluice_status st = run_opened(device->backend, d, image, calls, call_count);
    if (st == SLUICE_OK && !untouched(&before, image, calls, call_count))
        st = sl_fail(SLUICE_ERR_FAILED, "%s wrote outside its outputs", calls[0].name);
    test_image_free(&before);
    device->backend->close(d);
    return st;
}
