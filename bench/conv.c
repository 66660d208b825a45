/* conv.c: how fast convolutions run on the CPU in f32 and in bf16: those of ResNet-18 on CIFAR's images, and some others.
 *
 *     bench_conv [--threads N] [--cpu scalar|avx2|avx512|amx] [--batch N] [--turns N] [--f32] [--busy]
 *
 * Each is taken forward, for the input's gradient and for the weight's. Figures are the best of several turns in GFLOP/s,
 * counted as 2 * products, those with padding too. --busy divides by the CPU's time, not the clock's: for one thread on a
 * machine that others use. One line a shape: name, then f32's three and bf16's. bench/conv.py
 * runs this beside PyTorch. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backend/cpu/cpu_workspace.h"
#include "backend/cpu/kernels.h"
#include "core/alloc.h"
#include "core/cpu.h"
#include "core/half.h"
#include "core/thread.h"

typedef struct shape {
    const char *name;
    int side, in, out, kernel, stride, groups; /* the padding is half of the kernel */
} shape;

static const shape shapes[] = {
    { "stem", 32, 3, 64, 3, 1, 1 },
    { "64@32", 32, 64, 64, 3, 1, 1 },
    { "64-128/2", 32, 64, 128, 3, 2, 1 },
    { "64-128/2 1x1", 32, 64, 128, 1, 2, 1 },
    { "128@16", 16, 128, 128, 3, 1, 1 },
    { "128-256/2", 16, 128, 256, 3, 2, 1 },
    { "128-256/2 1x1", 16, 128, 256, 1, 2, 1 },
    { "256@8", 8, 256, 256, 3, 1, 1 },
    { "256-512/2", 8, 256, 512, 3, 2, 1 },
    { "256-512/2 1x1", 8, 256, 512, 1, 2, 1 },
    { "512@4", 4, 512, 512, 3, 1, 1 },
    { "1x1 256@16", 16, 256, 256, 1, 1, 1 },
    { "depthwise 64@32", 32, 64, 64, 3, 1, 64 },
    { "groups 128@16", 16, 128, 128, 3, 1, 8 },
};
#define SHAPES (sizeof shapes / sizeof shapes[0])

typedef struct bench {
    const sl_kernel *kernels[2]; /* f32, bf16 */
    sl_pool *pool;
    bool amx, busy;
    int batch, turns;
    void *x[2], *w[2], *y[2], *workspace;
    uint64_t workspace_bytes;
} bench;

/* One convolution in one type. */
typedef struct job {
    sl_shape x, w, y;
    sl_attrs attrs;
    sl_kernel_args args;
    sl_op op;
    double flops;
} job;

static int64_t elements(const sl_shape *s)
{
    return s->dim[0] * s->dim[1] * s->dim[2] * s->dim[3];
}

static void set_job(const bench *b, const shape *s, sl_op op, int type, job *j)
{
    const int side = (s->side + 2 * (s->kernel / 2) - s->kernel) / s->stride + 1, pad = s->kernel / 2;
    const sl_form form = type == 0 ? SL_FORM_F32 : SL_FORM_BF16;
    *j = (job){ .x = { 4, { b->batch, s->side, s->side, s->in } },
                .w = { 4, { s->out, s->in / s->groups, s->kernel, s->kernel } },
                .y = { 4, { b->batch, side, side, s->out } },
                .attrs = { .conv = { s->stride, s->stride, pad, pad, 1, 1, s->groups } },
                .op = op };
    const sl_tensor x = { b->x[type], &j->x, elements(&j->x), form }, w = { b->w[type], &j->w, elements(&j->w), form };
    const sl_tensor y = { b->y[type], &j->y, elements(&j->y), form };
    j->flops = 2.0 * (double)y.elements * (double)w.elements / s->out;
    j->args =
        (sl_kernel_args){ .attrs = &j->attrs, .input_count = 2, .output_count = 1, .pool = b->pool, .amx = b->amx };
    j->args.in[0] = op == SL_OP_CONV2D ? x : y;
    j->args.in[1] = op == SL_OP_CONV2D_GRAD_WEIGHT ? x : w;
    j->args.out[0] = op == SL_OP_CONV2D ? y : op == SL_OP_CONV2D_GRAD_INPUT ? x : w;
    j->args.workspace = b->workspace;
    j->args.workspace_bytes = b->workspace_bytes;
}

static uint64_t workspace_of(const job *j)
{
    sl_call call = { .op = j->op, .attrs = &j->attrs, .input_count = 2, .output_count = 1 };
    for (int i = 0; i < 2; i++) {
        call.input_shapes[i] = j->args.in[i].shape;
        call.input_forms[i] = j->args.in[i].form;
    }
    call.output_shapes[0] = j->args.out[0].shape;
    return sl_cpu_workspace(&call);
}

static double now(const bench *b)
{
    struct timespec t;
    if (!b->busy) return sl_now();
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* GFLOP/s of the best turn, each of them at least a few milliseconds long. */
static double best_rate(const bench *b, const job *j, int type)
{
    const int repeats = (int)(3e8 / j->flops) + 1;
    double best = 0;
    for (int turn = 0; turn <= b->turns; turn++) {
        double start = now(b);
        for (int i = 0; i < repeats; i++) b->kernels[type][j->op](&j->args);
        double rate = j->flops * repeats / (now(b) - start) * 1e-9;
        if (rate > best) best = rate;
    }
    return best;
}

static bool make_pair(void *pair[2], int64_t count)
{
    uint32_t state = 1;
    float *wide = pair[0] = sl_alloc_array((size_t)count, sizeof *wide, "operands");
    uint16_t *narrow = pair[1] = sl_alloc_array((size_t)count, sizeof *narrow, "operands");
    for (int64_t i = 0; wide != NULL && narrow != NULL && i < count; i++) {
        state = state * 1664525u + 1013904223u;
        wide[i] = (float)(int32_t)(state & 0xffffff00u) * 0x1p-31f;
        narrow[i] = sl_float_to_bf16(wide[i]);
    }
    return wide != NULL && narrow != NULL;
}

static const sl_op ops[] = { SL_OP_CONV2D, SL_OP_CONV2D_GRAD_INPUT, SL_OP_CONV2D_GRAD_WEIGHT };

static bool make_memory(bench *b)
{
    int64_t x = 0, w = 0, y = 0;
    for (size_t i = 0; i < SHAPES; i++)
        for (int op = 0; op < 3; op++) {
            job j;
            set_job(b, &shapes[i], ops[op], 0, &j);
            if (elements(&j.x) > x) x = elements(&j.x);
            if (elements(&j.w) > w) w = elements(&j.w);
            if (elements(&j.y) > y) y = elements(&j.y);
            if (workspace_of(&j) > b->workspace_bytes) b->workspace_bytes = workspace_of(&j);
        }
    b->workspace = sl_alloc_array(b->workspace_bytes + 1, 1, "workspace");
    return make_pair(b->x, x) && make_pair(b->w, w) && make_pair(b->y, y) && b->workspace != NULL;
}

int main(int argc, char **argv)
{
    const char *path = NULL;
    int threads = sl_cpu_count(), types = 2;
    bench b = { .batch = 64, .turns = 5 };
    sl_isa isa;
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--threads") == 0 && i + 1 < argc)
            threads = atoi(argv[++i]);
        else if (strcmp(argv[i], "--cpu") == 0 && i + 1 < argc)
            path = argv[++i];
        else if (strcmp(argv[i], "--batch") == 0 && i + 1 < argc)
            b.batch = atoi(argv[++i]);
        else if (strcmp(argv[i], "--turns") == 0 && i + 1 < argc)
            b.turns = atoi(argv[++i]);
        else if (strcmp(argv[i], "--f32") == 0)
            types = 1;
        else if (strcmp(argv[i], "--busy") == 0)
            b.busy = true;
        else
            return fprintf(stderr,
                           "usage: bench_conv [--threads N] [--cpu PATH] [--batch N] [--turns N] [--f32] [--busy]\n"),
                   2;
    if (b.batch < 1 || sl_isa_choose(path, &isa) != SLUICE_OK || !make_memory(&b) ||
        sl_pool_create(threads < 1 ? 1 : threads, &b.pool) != SLUICE_OK) {
        fprintf(stderr, "%s\n", sluice_error());
        return 1;
    }
    static const sl_kernel_table *const tables[SL_ISA_COUNT] = {
        [SL_ISA_SCALAR] = &sl_kernels_scalar,
#if defined(__x86_64__)
        [SL_ISA_AVX2] = &sl_kernels_avx2,
        [SL_ISA_AVX512] = &sl_kernels_avx512,
        [SL_ISA_AMX] = &sl_kernels_avx512,
#endif
    };
    b.amx = isa == SL_ISA_AMX;
    for (int type = 0; type < types; type++) b.kernels[type] = (*tables[isa])[type];
    for (size_t i = 0; i < SHAPES; i++) {
        printf("%-16s", shapes[i].name);
        for (int n = 0; n < 3 * types; n++) {
            job j;
            set_job(&b, &shapes[i], ops[n % 3], n / 3, &j);
            printf(" %8.1f", best_rate(&b, &j, n / 3));
        }
        printf("\n");
        fflush(stdout);
    }
    sl_pool_destroy(b.pool);
    return 0;
}
