/* gemm.c: how fast the matrix products of a GPT run, in f32 and in bf16, beside OpenBLAS's in f32 where it is
 * installed.
 *
 *     bench_gemm [--threads N] [--cpu scalar|avx2|avx512|amx] [--quick]
 *
 * A shape (tokens, in, out) is taken three times, as a linear layer takes it: forward x w^T (NT), the input's gradient
 * dy w (NN), the weight's gradient dy^T x (TN). Figures are the best of several runs in GFLOP/s. "tile" is the register
 * tile's own speed, on operands that stay in the first-level cache: what the others can reach at best. --quick leaves
 * out the shapes that take seconds. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/kernels.h"
#include "core/alloc.h"
#include "core/cpu.h"
#include "core/half.h"
#include "core/thread.h"

typedef struct shape {
    const char *name;
    int64_t tokens, in, out;
    bool slow;
} shape;

static const shape shapes[] = {
    { "tile", 14, 256, 32, false },         { "square", 1024, 1024, 1024, false },
    { "qkv", 2048, 384, 1152, false },      { "projection", 2048, 384, 384, false },
    { "mlp up", 2048, 384, 1536, false },   { "mlp down", 2048, 1536, 384, false },
    { "characters", 2048, 384, 65, false }, { "small qkv", 768, 128, 384, false },
    { "small mlp", 768, 128, 512, false },  { "head", 1024, 64, 1024, false },
    { "gpt2 mlp", 4096, 768, 3072, true },  { "gpt2 logits", 4096, 768, 50257, true },
};
#define SHAPES (sizeof shapes / sizeof shapes[0])

/* x[tokens, in], w[out, in], y[tokens, out], in f32 and in bf16. */
typedef struct memory {
    void *x[2], *w[2], *y[2];
} memory;

typedef struct bench {
    sl_isa isa;
    const sl_kernel *kernels[2]; /* f32, bf16 */
    sl_pool *pool;
    memory mem;
    /* OpenBLAS's cblas_sgemm; NULL: not installed */
    void (*sgemm)(int order, int turn_a, int turn_b, int m, int n, int k, float alpha, const float *a, int lda,
                  const float *b, int ldb, float beta, float *c, int ldc);
} bench;

/* One measured product. */
typedef struct job {
    const bench *b;
    const shape *s;
    sl_op op;
    int type; /* 0: f32, 1: bf16, 2: OpenBLAS */
} job;

static void run_ours(const job *j)
{
    const bench *b = j->b;
    const shape *s = j->s;
    sl_form form = j->type ? SL_FORM_BF16 : SL_FORM_F32;
    sl_shape x = { 2, { s->tokens, s->in } }, w = { 2, { s->out, s->in } }, y = { 2, { s->tokens, s->out } };
    sl_tensor tx = { b->mem.x[j->type], &x, s->tokens * s->in, form };
    sl_tensor tw = { b->mem.w[j->type], &w, s->out * s->in, form };
    sl_tensor ty = { b->mem.y[j->type], &y, s->tokens * s->out, form };
    sl_attrs attrs = { 0 };
    sl_kernel_args a = { .attrs = &attrs, .input_count = 2, .output_count = 1, .pool = b->pool };
    a.amx = b->isa == SL_ISA_AMX;
    a.in[0] = j->op == SL_OP_LINEAR ? tx : ty;
    a.in[1] = j->op == SL_OP_LINEAR_GRAD_WEIGHT ? tx : tw;
    a.out[0] = j->op == SL_OP_LINEAR ? ty : j->op == SL_OP_LINEAR_GRAD_INPUT ? tx : tw;
    b->kernels[j->type][j->op](&a);
}

static void run_openblas(const job *j)
{
    enum { ROW_MAJOR = 101, AS_IS = 111, TURNED = 112 };
    const memory *m = &j->b->mem;
    int t = (int)j->s->tokens, i = (int)j->s->in, o = (int)j->s->out;
    if (j->op == SL_OP_LINEAR)
        j->b->sgemm(ROW_MAJOR, AS_IS, TURNED, t, o, i, 1.0f, m->x[0], i, m->w[0], i, 0.0f, m->y[0], o);
    else if (j->op == SL_OP_LINEAR_GRAD_INPUT)
        j->b->sgemm(ROW_MAJOR, AS_IS, AS_IS, t, i, o, 1.0f, m->y[0], o, m->w[0], i, 0.0f, m->x[0], i);
    else
        j->b->sgemm(ROW_MAJOR, TURNED, AS_IS, o, i, t, 1.0f, m->y[0], o, m->x[0], i, 0.0f, m->w[0], i);
}

static double seconds_of(const job *j, int repeats)
{
    double start = sl_now();
    for (int i = 0; i < repeats; i++) j->type == 2 ? run_openblas(j) : run_ours(j);
    return (sl_now() - start) / repeats;
}

/* The best rate of measurements that are each long enough for the clock: 15, or as many as half a second takes. */
static double best_rate(const job *j)
{
    double flops = 2.0 * (double)j->s->tokens * (double)j->s->in * (double)j->s->out;
    int repeats = (int)(2e8 / flops) + 1;
    double best = seconds_of(j, repeats), start = sl_now();
    for (int i = 0; i < 15 && sl_now() - start < 0.5; i++) {
        double s = seconds_of(j, repeats);
        if (s < best) best = s;
    }
    return flops / best * 1e-9;
}

/* Numbers of the size that activations have: what a product is fed decides how fast a CPU runs. */
static void fill(float *wide, uint16_t *narrow, int64_t count)
{
    uint32_t state = 1;
    for (int64_t i = 0; i < count; i++) {
        state = state * 1664525u + 1013904223u;
        wide[i] = (float)(int32_t)(state & 0xffffff00u) * 0x1p-31f;
        narrow[i] = sl_float_to_bf16(wide[i]);
    }
}

static bool make_pair(void *pair[2], int64_t count)
{
    pair[0] = sl_alloc_array(count, sizeof(float), "operands");
    pair[1] = sl_alloc_array(count, sizeof(uint16_t), "operands");
    if (pair[0] == NULL || pair[1] == NULL) return false;
    fill(pair[0], pair[1], count);
    return true;
}

static bool make_memory(memory *m, bool quick)
{
    int64_t x = 0, w = 0, y = 0;
    for (size_t i = 0; i < SHAPES; i++) {
        const shape *s = &shapes[i];
        if (quick && s->slow) continue;
        if (s->tokens * s->in > x) x = s->tokens * s->in;
        if (s->out * s->in > w) w = s->out * s->in;
        if (s->tokens * s->out > y) y = s->tokens * s->out;
    }
    return make_pair(m->x, x) && make_pair(m->w, w) && make_pair(m->y, y);
}

/* It reads its core type as it is loaded, and does not know the newest CPUs. */
static void open_openblas(bench *b, int threads)
{
    if (b->isa >= SL_ISA_AVX512) setenv("OPENBLAS_CORETYPE", "SkylakeX", 0);
    void *library = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) return;
    void (*set_threads)(int);
    void *symbol = dlsym(library, "openblas_set_num_threads");
    memcpy(&set_threads, &symbol, sizeof symbol);
    if (symbol != NULL) set_threads(threads);
    symbol = dlsym(library, "cblas_sgemm");
    memcpy(&b->sgemm, &symbol, sizeof symbol);
}

static void print_shape(const bench *b, const shape *s)
{
    static const struct {
        const char *name;
        sl_op op;
    } layouts[] = { { "NT", SL_OP_LINEAR }, { "NN", SL_OP_LINEAR_GRAD_INPUT }, { "TN", SL_OP_LINEAR_GRAD_WEIGHT } };
    for (int l = 0; l < 3; l++) {
        double rates[3] = { 0 };
        for (int type = 0; type < (b->sgemm ? 3 : 2); type++)
            rates[type] = best_rate(&(job){ b, s, layouts[l].op, type });
        printf("%-12s %5lld %5lld %5lld  %s  %8.1f %8.1f", s->name, (long long)s->tokens, (long long)s->in,
               (long long)s->out, layouts[l].name, rates[0], rates[1]);
        if (b->sgemm) printf(" %8.1f", rates[2]);
        printf("\n");
        fflush(stdout);
    }
}

int main(int argc, char **argv)
{
    int threads = sl_cpu_count();
    const char *path = NULL;
    bool quick = false;
    bench b = { 0 };
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--quick") == 0)
            quick = true;
        else if (strcmp(argv[i], "--threads") == 0 && i + 1 < argc)
            threads = atoi(argv[++i]);
        else if (strcmp(argv[i], "--cpu") == 0 && i + 1 < argc)
            path = argv[++i];
        else
            return fprintf(stderr, "usage: bench_gemm [--threads N] [--cpu PATH] [--quick]\n"), 2;
    if (sl_isa_choose(path, &b.isa) != SLUICE_OK || !make_memory(&b.mem, quick) ||
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
    b.kernels[0] = (*tables[b.isa])[SL_KERNEL_F32];
    b.kernels[1] = (*tables[b.isa])[SL_KERNEL_BF16];
    open_openblas(&b, threads);
    printf("%s, %d threads, GFLOP/s\n%-12s %5s %5s %5s  %s  %8s %8s%s\n", sl_isa_name(b.isa), sl_pool_threads(b.pool),
           "shape", "rows", "in", "out", "  ", "f32", "bf16", b.sgemm ? " OpenBLAS" : "");
    for (size_t i = 0; i < SHAPES; i++)
        if (!quick || !shapes[i].slow) print_shape(&b, &shapes[i]);
    sl_pool_destroy(b.pool);
    for (int i = 0; i < 2; i++) {
        sl_free(b.mem.x[i]);
        sl_free(b.mem.w[i]);
        sl_free(b.mem.y[i]);
    }
    return 0;
}
