/* conv_gpu.c: how fast the convolutions of ResNet-50 run on a GPU, at 224 x 224 in bf16, and what pooling takes.
 *
 *     bench_conv_gpu [--batch N] [--device N]
 *
 * A convolution is taken three times: forward, the input's gradient, the weight's gradient; reordering filters is in
 * the times. The last line is what those of one training step take together. cuDNN is used where the loader finds
 * it (LD_LIBRARY_PATH): the first line says so, and without it the figures are of sluice's own kernels. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda_plugin.h"
#include "core/cpu.h"
#include "core/half.h"
#include "core/thread.h"

typedef struct shape {
    const char *name;
    int64_t size, in, out; /* images of size x size with `in` channels */
    int kernel, stride, padding, groups;
    int times; /* in ResNet-50; 0: not a part of it */
} shape;

static const shape shapes[] = {
    { "stem", 224, 3, 64, 7, 2, 3, 1, 1 },
    { "stem, 8 channels", 224, 8, 64, 7, 2, 3, 1, 0 },
    { "1 x 1", 56, 64, 64, 1, 1, 0, 1, 1 },
    { "1 x 1", 56, 256, 64, 1, 1, 0, 1, 2 },
    { "3 x 3", 56, 64, 64, 3, 1, 1, 1, 3 },
    { "1 x 1", 56, 64, 256, 1, 1, 0, 1, 4 },
    { "1 x 1", 56, 256, 128, 1, 1, 0, 1, 1 },
    { "3 x 3, stride 2", 56, 128, 128, 3, 2, 1, 1, 1 },
    { "1 x 1, stride 2", 56, 256, 512, 1, 2, 0, 1, 1 },
    { "1 x 1", 28, 512, 128, 1, 1, 0, 1, 3 },
    { "3 x 3", 28, 128, 128, 3, 1, 1, 1, 3 },
    { "1 x 1", 28, 128, 512, 1, 1, 0, 1, 4 },
    { "1 x 1", 28, 512, 256, 1, 1, 0, 1, 1 },
    { "3 x 3, stride 2", 28, 256, 256, 3, 2, 1, 1, 1 },
    { "1 x 1, stride 2", 28, 512, 1024, 1, 2, 0, 1, 1 },
    { "1 x 1", 14, 1024, 256, 1, 1, 0, 1, 5 },
    { "3 x 3", 14, 256, 256, 3, 1, 1, 1, 5 },
    { "1 x 1", 14, 256, 1024, 1, 1, 0, 1, 6 },
    { "1 x 1", 14, 1024, 512, 1, 1, 0, 1, 1 },
    { "3 x 3, stride 2", 14, 512, 512, 3, 2, 1, 1, 1 },
    { "1 x 1, stride 2", 14, 1024, 2048, 1, 2, 0, 1, 1 },
    { "1 x 1", 7, 2048, 512, 1, 1, 0, 1, 2 },
    { "3 x 3", 7, 512, 512, 3, 1, 1, 1, 2 },
    { "1 x 1", 7, 512, 2048, 1, 1, 0, 1, 3 },
    { "depthwise 3 x 3", 56, 128, 128, 3, 1, 1, 128, 0 },
    { "32 groups 3 x 3", 56, 128, 128, 3, 1, 1, 32, 0 },
};
#define SHAPES (sizeof shapes / sizeof shapes[0])

typedef struct bench {
    const sl_backend *backend;
    sl_device *device;
    int64_t batch;
    uint64_t bytes; /* of the arena */
} bench;

/* A call laid out in the arena, one operand behind the other. */
typedef struct laid {
    sl_call call;
    sl_attrs attrs;
    sl_shape shapes[SL_MAX_OPERANDS];
    uint64_t end;
} laid;

static void die(const char *what)
{
    fprintf(stderr, "bench_conv_gpu: %s: %s\n", what, sluice_error());
    exit(1);
}

static sl_span place(laid *l, uint64_t bytes)
{
    sl_span s = { .tier = SL_TIER_DEVICE, .offset = l->end, .bytes = bytes };
    l->end = (l->end + bytes + 255) / 256 * 256;
    return s;
}

static void add_operand(laid *l, bool output, sl_shape sizes)
{
    sl_call *c = &l->call;
    sl_shape *kept = &l->shapes[c->input_count + c->output_count];
    *kept = sizes;
    const sl_span span = place(l, 2 * (uint64_t)sl_shape_elements(kept));
    if (output) {
        c->outputs[c->output_count] = span;
        c->output_shapes[c->output_count] = kept;
        c->output_forms[c->output_count++] = SL_FORM_BF16;
    } else {
        c->inputs[c->input_count] = span;
        c->input_shapes[c->input_count] = kept;
        c->input_forms[c->input_count++] = SL_FORM_BF16;
    }
}

static void finish(const bench *b, laid *l, sl_op op)
{
    static const sl_run_context context = { .training = true };
    l->call.op = op;
    l->call.attrs = &l->attrs;
    l->call.context = &context;
    l->call.name = "bench";
    l->call.workspace = place(l, b->backend->workspace(&l->call));
    if (l->call.workspace.bytes == 0) l->call.workspace = (sl_span){ 0 };
}

/* ---- timing ---- */

static void run_times(const bench *b, const sl_call *c, int times)
{
    for (int i = 0; i < times; i++)
        if (b->backend->run(b->device, SL_STREAM_COMPUTE, c) != SLUICE_OK) die(sl_ops[c->op].name);
    if (b->backend->synchronize(b->device) != SLUICE_OK) die(sl_ops[c->op].name);
}

/* Seconds of one call: the least of several means. */
static double seconds_of(const bench *b, const sl_call *c)
{
    double best = 1e30;
    run_times(b, c, 2);
    for (int round = 0; round < 3; round++) {
        const int times = 8;
        const double start = sl_now();
        run_times(b, c, times);
        const double each = (sl_now() - start) / times;
        if (each < best) best = each;
    }
    return best;
}

/* ---- convolutions ---- */

static sl_shape images(int64_t n, int64_t size, int64_t channels)
{
    return (sl_shape){ 4, { n, size, size, channels } };
}

static void lay_conv(const bench *b, const shape *s, sl_op op, laid *l)
{
    const int64_t size = (s->size + 2 * s->padding - s->kernel) / s->stride + 1;
    const sl_shape x = images(b->batch, s->size, s->in), y = images(b->batch, size, s->out);
    const sl_shape w = { 4, { s->out, s->in / s->groups, s->kernel, s->kernel } };
    *l = (laid){ .attrs = { .conv = { .stride_h = s->stride,
                                      .stride_w = s->stride,
                                      .padding_h = s->padding,
                                      .padding_w = s->padding,
                                      .dilation_h = 1,
                                      .dilation_w = 1,
                                      .groups = s->groups } } };
    add_operand(l, false, op == SL_OP_CONV2D ? x : y);
    add_operand(l, false, op == SL_OP_CONV2D_GRAD_WEIGHT ? x : w);
    add_operand(l, true, op == SL_OP_CONV2D ? y : op == SL_OP_CONV2D_GRAD_INPUT ? x : w);
    finish(b, l, op);
}

static double flops_of(const bench *b, const shape *s)
{
    const double size = (double)((s->size + 2 * s->padding - s->kernel) / s->stride + 1);
    return 2.0 * (double)b->batch * size * size * (double)s->out * (double)(s->in / s->groups) * s->kernel * s->kernel;
}

static const sl_op passes[] = { SL_OP_CONV2D, SL_OP_CONV2D_GRAD_INPUT, SL_OP_CONV2D_GRAD_WEIGHT };

/* The gradient of images that are the network's input is never asked for. */
static bool counts(const shape *s, int pass)
{
    return s->times > 0 && !(passes[pass] == SL_OP_CONV2D_GRAD_INPUT && s->in == 3);
}

static void measure_conv(const bench *b, const shape *s, double total[3])
{
    laid l;
    printf("%-17s %4d -> %4d at %3d %2dx", s->name, (int)s->in, (int)s->out, (int)s->size, s->times);
    for (int pass = 0; pass < 3; pass++) {
        lay_conv(b, s, passes[pass], &l);
        const double seconds = seconds_of(b, &l.call);
        printf("  %7.3f ms %5.0f", 1e3 * seconds, 1e-12 * flops_of(b, s) / seconds);
        if (counts(s, pass)) total[pass] += s->times * seconds;
    }
    printf("\n");
    fflush(stdout);
}

/* ---- pooling ---- */

static void lay_pool(const bench *b, sl_op op, laid *l)
{
    const bool global = op == SL_OP_GLOBAL_AVG_POOL || op == SL_OP_GLOBAL_AVG_POOL_GRAD;
    const sl_shape x = global ? images(b->batch, 7, 2048) : images(b->batch, 112, 64);
    const sl_shape y = global ? (sl_shape){ 2, { b->batch, 2048 } } : images(b->batch, 56, 64);
    const bool forward = op == SL_OP_MAX_POOL2D || op == SL_OP_GLOBAL_AVG_POOL;
    *l = (laid){ .attrs = { 0 } };
    if (!global) {
        l->attrs.pool.kernel_h = l->attrs.pool.kernel_w = 3;
        l->attrs.pool.stride_h = l->attrs.pool.stride_w = 2;
        l->attrs.pool.padding_h = l->attrs.pool.padding_w = 1;
    }
    if (forward || op == SL_OP_MAX_POOL2D_GRAD) add_operand(l, false, x);
    if (!forward) add_operand(l, false, y);
    add_operand(l, true, forward ? y : x);
    finish(b, l, op);
}

static void measure_pools(const bench *b)
{
    static const sl_op ops[] = { SL_OP_MAX_POOL2D, SL_OP_MAX_POOL2D_GRAD, SL_OP_GLOBAL_AVG_POOL,
                                 SL_OP_GLOBAL_AVG_POOL_GRAD };
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++) {
        laid l;
        lay_pool(b, ops[i], &l);
        const double seconds = seconds_of(b, &l.call);
        double bytes = 0;
        for (int k = 0; k < l.call.input_count; k++) bytes += (double)l.call.inputs[k].bytes;
        bytes += (double)l.call.outputs[0].bytes;
        printf("%-36s  %7.3f ms %5.0f GB/s\n", sl_ops[ops[i]].name, 1e3 * seconds, 1e-9 * bytes / seconds);
    }
}

/* ---- the device ---- */

static uint64_t largest(const bench *b)
{
    uint64_t most = 0;
    laid l;
    for (size_t i = 0; i < SHAPES; i++) {
        for (int pass = 0; pass < 3; pass++) {
            lay_conv(b, &shapes[i], passes[pass], &l);
            if (l.end > most) most = l.end;
        }
    }
    lay_pool(b, SL_OP_MAX_POOL2D_GRAD, &l);
    return l.end > most ? l.end : most;
}

/* Numbers of both signs everywhere: a GPU is faster with zeros. */
static void fill(const bench *b)
{
    const uint64_t chunk = (uint64_t)16 << 20;
    uint16_t *numbers = malloc(chunk);
    if (numbers == NULL) exit(1);
    uint32_t state = 1;
    for (uint64_t i = 0; i < chunk / 2; i++) {
        state = state * 1664525u + 1013904223u;
        numbers[i] = sl_float_to_bf16(((float)(state >> 8) * 0x1p-24f - 0.5f) * 0.125f);
    }
    for (uint64_t at = 0; at < b->bytes; at += chunk) {
        const sl_span span = { .tier = SL_TIER_DEVICE,
                               .offset = at,
                               .bytes = b->bytes - at < chunk ? b->bytes - at : chunk };
        if (b->backend->store(b->device, span, numbers) != SLUICE_OK) die("filling memory");
    }
    free(numbers);
}

static void warn(void *user, sluice_log_level level, const char *text)
{
    (void)user;
    if (level <= SLUICE_LOG_WARNING) printf("%s\n", text);
}

int main(int argc, char **argv)
{
    const sl_cuda_plugin *plugin;
    sl_cuda_facts facts;
    sl_device_options options = { .threads = 1, .isa = sl_isa_best(), .log = { .fn = warn } };
    bench b = { .batch = 256 };
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--batch") == 0) b.batch = atoi(argv[i + 1]);
        if (strcmp(argv[i], "--device") == 0) options.ordinal = atoi(argv[i + 1]);
    }
    if (sl_cuda_open_plugin(&plugin) != SLUICE_OK) die("the CUDA backend");
    if (plugin->facts(options.ordinal, &facts) != SLUICE_OK) die("the GPU");
    b.backend = plugin->backend;
    b.bytes = largest(&b);
    if (b.backend->open(&options, &b.device) != SLUICE_OK) die("opening the GPU");
    if (b.backend->reserve(b.device, SL_TIER_DEVICE, b.bytes) != SLUICE_OK) die("memory");
    fill(&b);
    printf("%s; %s; batch %d, bf16: ms and TFLOP/s of forward, the input's gradient, the weight's\n", facts.name,
           plugin->libraries(), (int)b.batch);
    double total[3] = { 0 };
    for (size_t i = 0; i < SHAPES; i++) measure_conv(&b, &shapes[i], total);
    measure_pools(&b);
    printf("convolutions of a step of ResNet-50: %.2f + %.2f + %.2f = %.2f ms\n", 1e3 * total[0], 1e3 * total[1],
           1e3 * total[2], 1e3 * (total[0] + total[1] + total[2]));
    b.backend->close(b.device);
    return 0;
}
