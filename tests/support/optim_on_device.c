/* optim_on_device.c: update kernels of other backends behind the interface of the CPU's: operands go to the device's arena,
 * the call runs there, and what it wrote comes back. Between operands is poison that must survive. */
#include <assert.h>
#include <stdlib.h>

#include "backend/cuda_plugin.h"
#include "core/norm_nodes.h"
#include "ir/form.h"
#include "support/optim_fixture.h"
#if defined(SL_TEST_CUDA_EMULATED)
#include "support/cuda/emulated.h"
#endif

#define ARENA  (UINT64_C(160) << 20)
#define GAP    256
#define POISON 0xa5

/* A device for the whole program, opened at the first call. */
typedef struct open_device {
    const sl_backend *backend; /* NULL: there is none */
    sl_device *device;
    bool asked;
} open_device;
static open_device emulated, gpu;
static uint8_t *image, *result; /* what the arena holds before and after a call */

/* ---- Devices ---- */

/* Not where SLUICE_TEST_NO_EMULATION is set: beside a GPU it shows nothing more. */
static const sl_backend *emulated_backend(void)
{
#if defined(SL_TEST_CUDA_EMULATED)
    return getenv("SLUICE_TEST_NO_EMULATION") == NULL ? &sl_emulated_cuda_backend : NULL;
#else
    return NULL;
#endif
}

static const sl_backend *gpu_backend(void)
{
    const sl_cuda_plugin *plugin;
    int count = 0;
    if (sl_cuda_open_plugin(&plugin) != SLUICE_OK || plugin->count(&count) != SLUICE_OK || count == 0) return NULL;
    return plugin->backend;
}

static void close_devices(void)
{
    if (emulated.device != NULL) emulated.backend->close(emulated.device);
    if (gpu.device != NULL) gpu.backend->close(gpu.device);
    free(image);
    free(result);
}

static sluice_status open_once(open_device *d)
{
    static bool closes;
    sl_device_options options = { .threads = 1, .isa = sl_isa_best(), .guard = true };
    if (!closes) atexit(close_devices);
    closes = true;
    if (image == NULL) image = malloc(ARENA);
    if (result == NULL) result = malloc(ARENA);
    if (image == NULL || result == NULL) return sl_fail(SLUICE_ERR_NO_MEMORY, "test arena");
    SL_TRY(d->backend->open(&options, &d->device));
    return d->backend->reserve(d->device, SL_TIER_DEVICE, ARENA);
}

/* NULL where there is none; one that cannot be opened is a failure. */
static open_device *device_of(open_device *d, const sl_backend *(*find)(void))
{
    if (!d->asked) {
        d->asked = true;
        d->backend = find();
        if (d->backend != NULL && open_once(d) != SLUICE_OK)
            test_fail(__FILE__, __LINE__, "%s: %s", d->backend->name, sluice_error());
    }
    return d->device != NULL ? d : NULL;
}

/* ---- A call ---- */

/* Where operands lie: at multiples of 256 bytes, or one element behind. */
typedef struct layout {
    uint64_t end;
    bool shifted;
} layout;

/* Leaves and norm results have doubles, which are never shifted. */
static bool has_doubles(sl_op op, bool output, int i)
{
    if (op == SL_OP_NORM_FINISH || op == SL_OP_NORM_COMBINE || op == SL_OP_NORM_JOIN) return true;
    return (op == SL_OP_NORM_LEAVES && output) || (op == SL_OP_UPDATE && !output && i == 1);
}

static uint64_t operand_bytes(sl_op op, const sl_kernel_args *a, bool output, int i)
{
    const sl_tensor *t = output ? &a->out[i] : &a->in[i];
    bool leaves =
        output ? op == SL_OP_NORM_LEAVES || op == SL_OP_NORM_JOIN : op == SL_OP_NORM_COMBINE || op == SL_OP_NORM_FINISH;
    if (t->data == NULL) return 0;
    if (op == (output ? SL_OP_NORM_COMBINE : SL_OP_NORM_JOIN)) return (uint64_t)t->elements * sizeof(sl_norm_node);
    if (leaves) return (uint64_t)t->elements * sizeof(double);
    if (t->form == SL_FORM_BLOCKS8)
        return sl_form_bytes(t->form, a->attrs->update->layer, a->first, a->out[0].elements);
    return (uint64_t)t->elements * sl_form_element_bytes(t->form);
}

static sl_span place(layout *l, sl_op op, const sl_kernel_args *a, bool output, int i)
{
    const sl_tensor *t = output ? &a->out[i] : &a->in[i];
    uint64_t bytes = operand_bytes(op, a, output, i), begin = (l->end + GAP + 255) / 256 * 256;
    if (bytes == 0) return (sl_span){ SL_TIER_DEVICE, 0, 0 };
    if (l->shifted && !has_doubles(op, output, i))
        begin += t->form == SL_FORM_BLOCKS8 ? sizeof(int32_t) : sl_form_element_bytes(t->form);
    assert(begin + bytes + GAP <= ARENA);
    memset(image + l->end, POISON, begin - l->end);
    memcpy(image + begin, t->data, bytes);
    l->end = begin + bytes;
    return (sl_span){ SL_TIER_DEVICE, begin, bytes };
}

static void fill_call(sl_call *c, sl_shape *shape, layout *l, sl_op op, const sl_kernel_args *a)
{
    *c = (sl_call){ .op = op, .attrs = a->attrs, .wire = a->wire, .context = a->context, .first = a->first };
    c->name = "test";
    c->input_count = op == SL_OP_UPDATE ? 2 : 1;
    c->output_count = op == SL_OP_UPDATE ? 2 + sl_updates[a->attrs->update->kind].slots : 1;
    *shape = (sl_shape){ 1, { a->in[0].elements } };
    for (int i = 0; i < c->input_count; i++) {
        c->inputs[i] = place(l, op, a, false, i);
        c->input_forms[i] = a->in[i].form;
        c->input_shapes[i] = op == SL_OP_CAST ? shape : NULL;
    }
    for (int i = 0; i < c->output_count; i++) {
        c->outputs[i] = place(l, op, a, true, i);
        c->output_forms[i] = a->out[i].form;
        c->output_shapes[i] = op == SL_OP_CAST ? shape : NULL;
    }
    memset(image + l->end, POISON, GAP);
    l->end += GAP;
}

static sluice_status run_call(const open_device *d, sl_call *c, uint64_t used)
{
    const sl_span all = { SL_TIER_DEVICE, 0, used };
    uint64_t bytes = d->backend->workspace(c);
    if (bytes > 0) c->workspace = (sl_span){ SL_TIER_DEVICE, (used + 255) / 256 * 256, bytes };
    SL_TRY(d->backend->upload(d->device, SL_STREAM_COMPUTE, all, image));
    SL_TRY(d->backend->run(d->device, SL_STREAM_COMPUTE, c));
    SL_TRY(d->backend->synchronize(d->device));
    return d->backend->download(d->device, result, all);
}

/* Outputs to the caller's memory; whatever else changed is a failure. */
static sluice_status take_results(const sl_call *c, const sl_kernel_args *a, uint64_t used)
{
    for (int i = 0; i < c->output_count; i++) {
        const sl_span s = c->outputs[i];
        if (s.bytes == 0) continue;
        memcpy(a->out[i].data, result + s.offset, s.bytes);
        memcpy(image + s.offset, result + s.offset, s.bytes);
    }
    if (memcmp(result, image, used) == 0) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_FAILED, "written outside of outputs");
}

static void run_on(const open_device *d, sl_op op, const sl_kernel_args *a, bool shifted)
{
    sl_call call;
    sl_shape shape;
    layout l = { 0, shifted };
    fill_call(&call, &shape, &l, op, a);
    sluice_status st = run_call(d, &call, l.end);
    if (st == SLUICE_OK) st = take_results(&call, a, l.end);
    if (st != SLUICE_OK)
        test_fail(__FILE__, __LINE__, "%s on %s: %s", sl_ops[op].name, d->backend->name, sluice_error());
}

/* ---- Kernels of the CPU's interface, for each op ---- */

#define DEFINE_KERNEL(name_, op_, device_, shifted_)                                                                   \
    static void name_(const sl_kernel_args *a)                                                                         \
    {                                                                                                                  \
        run_on(&device_, op_, a, shifted_);                                                                            \
    }
#define DEFINE_PATH(path_, device_, shifted_)                                                                          \
    DEFINE_KERNEL(path_##_cast, SL_OP_CAST, device_, shifted_)                                                         \
    DEFINE_KERNEL(path_##_accumulate, SL_OP_ACCUMULATE, device_, shifted_)                                             \
    DEFINE_KERNEL(path_##_norm_leaves, SL_OP_NORM_LEAVES, device_, shifted_)                                           \
    DEFINE_KERNEL(path_##_norm_combine, SL_OP_NORM_COMBINE, device_, shifted_)                                         \
    DEFINE_KERNEL(path_##_norm_join, SL_OP_NORM_JOIN, device_, shifted_)                                               \
    DEFINE_KERNEL(path_##_norm_finish, SL_OP_NORM_FINISH, device_, shifted_)                                           \
    DEFINE_KERNEL(path_##_update, SL_OP_UPDATE, device_, shifted_)                                                     \
    static const sl_kernel path_##_kernels[SL_OP_COUNT] = { [SL_OP_CAST] = path_##_cast,                               \
                                                            [SL_OP_ACCUMULATE] = path_##_accumulate,                   \
                                                            [SL_OP_NORM_LEAVES] = path_##_norm_leaves,                 \
                                                            [SL_OP_NORM_COMBINE] = path_##_norm_combine,               \
                                                            [SL_OP_NORM_JOIN] = path_##_norm_join,                     \
                                                            [SL_OP_NORM_FINISH] = path_##_norm_finish,                 \
                                                            [SL_OP_UPDATE] = path_##_update };
DEFINE_PATH(emulated, emulated, false)
DEFINE_PATH(emulated_shifted, emulated, true)
DEFINE_PATH(gpu, gpu, false)
DEFINE_PATH(gpu_shifted, gpu, true)

const sl_kernel *kernels_on(int path)
{
    if (path < SL_ISA_COUNT) return kernels_of((sl_isa)path);
    bool on_gpu = path == PATH_GPU || path == PATH_GPU_SHIFTED;
    if (device_of(on_gpu ? &gpu : &emulated, on_gpu ? gpu_backend : emulated_backend) == NULL) return NULL;
    if (on_gpu) return path == PATH_GPU ? gpu_kernels : gpu_shifted_kernels;
    return path == PATH_CUDA ? emulated_kernels : emulated_shifted_kernels;
}

const char *path_name(int path)
{
    static const char *const names[] = { "cuda emulated", "cuda emulated, shifted", "gpu", "gpu, shifted" };
    return path < SL_ISA_COUNT ? sl_isa_name((sl_isa)path) : names[path - SL_ISA_COUNT];
}
