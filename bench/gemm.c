/* gemm.c: how fast the matrix products of a GPT run, per shape and instruction path.
 *
 *     bench_gemm [threads [avx512|avx2|scalar]]
 *
 * Each line: the product, its shape, the best of several runs in GFLOP/s. "tile" is the register tile's own speed, on
 * operands that stay in the first-level cache: what the others can reach at best. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/kernels.h"
#include "core/alloc.h"
#include "core/cpu.h"
#include "core/thread.h"

typedef struct product {
    const char *name;
    sl_op op;
    int64_t tokens, in, out;
} product;

static const product products[] = {
    { "tile", SL_OP_LINEAR, 14, 256, 32 },
    { "qkv", SL_OP_LINEAR, 2048, 384, 1152 },
    { "projection", SL_OP_LINEAR, 2048, 384, 384 },
    { "mlp up", SL_OP_LINEAR, 2048, 384, 1536 },
    { "mlp down", SL_OP_LINEAR, 2048, 1536, 384 },
    { "logits", SL_OP_LINEAR, 2048, 384, 65 },
    { "qkv dx", SL_OP_LINEAR_GRAD_INPUT, 2048, 384, 1152 },
    { "mlp up dx", SL_OP_LINEAR_GRAD_INPUT, 2048, 384, 1536 },
    { "mlp down dx", SL_OP_LINEAR_GRAD_INPUT, 2048, 1536, 384 },
    { "logits dx", SL_OP_LINEAR_GRAD_INPUT, 2048, 384, 65 },
    { "qkv dw", SL_OP_LINEAR_GRAD_WEIGHT, 2048, 384, 1152 },
    { "mlp up dw", SL_OP_LINEAR_GRAD_WEIGHT, 2048, 384, 1536 },
    { "mlp down dw", SL_OP_LINEAR_GRAD_WEIGHT, 2048, 1536, 384 },
    { "logits dw", SL_OP_LINEAR_GRAD_WEIGHT, 2048, 384, 65 },
    { "small qkv", SL_OP_LINEAR, 768, 128, 384 },
    { "small mlp up", SL_OP_LINEAR, 768, 128, 512 },
    { "small mlp down", SL_OP_LINEAR, 768, 512, 128 },
    { "small dx", SL_OP_LINEAR_GRAD_INPUT, 768, 128, 512 },
    { "small dw", SL_OP_LINEAR_GRAD_WEIGHT, 768, 128, 512 },
    { "square", SL_OP_LINEAR, 1024, 1024, 1024 },
};

typedef struct memory {
    float *x, *w, *y; /* [tokens, in], [out, in], [tokens, out] */
} memory;

static double seconds_of(sl_kernel kernel, const sl_kernel_args *a, int repeats)
{
    double start = sl_now();
    for (int i = 0; i < repeats; i++) kernel(a);
    return (sl_now() - start) / repeats;
}

/* The best rate of 15 measurements, each long enough for the clock. */
static double best_rate(sl_kernel kernel, const sl_kernel_args *a, double flops)
{
    int repeats = (int)(2e8 / flops) + 1;
    double best = seconds_of(kernel, a, 1);
    for (int i = 0; i < 15; i++) {
        double s = seconds_of(kernel, a, repeats);
        if (s < best) best = s;
    }
    return flops / best * 1e-9;
}

static double measure(const product *p, const sl_kernel *kernels, sl_pool *pool, const memory *mem)
{
    sl_shape x = { 2, { p->tokens, p->in } }, w = { 2, { p->out, p->in } }, y = { 2, { p->tokens, p->out } };
    sl_tensor tx = { mem->x, &x, p->tokens * p->in }, tw = { mem->w, &w, p->out * p->in };
    sl_tensor ty = { mem->y, &y, p->tokens * p->out };
    sl_attrs attrs = { 0 };
    sl_kernel_args a = { .attrs = &attrs, .input_count = 2, .output_count = 1, .pool = pool };
    a.in[0] = p->op == SL_OP_LINEAR ? tx : ty;
    a.in[1] = p->op == SL_OP_LINEAR_GRAD_WEIGHT ? tx : tw;
    a.out[0] = p->op == SL_OP_LINEAR ? ty : p->op == SL_OP_LINEAR_GRAD_INPUT ? tx : tw;
    return best_rate(kernels[p->op], &a, 2.0 * (double)p->tokens * (double)p->in * (double)p->out);
}

static void fill(float *p, int64_t count)
{
    for (int64_t i = 0; i < count; i++) p[i] = (float)(i * 7919 % 1000) * 1e-3f - 0.5f;
}

int main(int argc, char **argv)
{
    const int64_t most = 2048 * 1536;
    int threads = argc > 1 ? atoi(argv[1]) : sl_cpu_count();
    sl_isa isa;
    sl_pool *pool;
    memory mem = { sl_alloc_array(most, 4, "x"), sl_alloc_array(most, 4, "w"), sl_alloc_array(most, 4, "y") };
    const sl_kernel *tables[SL_ISA_COUNT] = { sl_kernels_scalar, sl_kernels_avx2, sl_kernels_avx512 };
    if (!mem.x || !mem.w || !mem.y || sl_isa_choose(argc > 2 ? argv[2] : NULL, &isa) != SLUICE_OK ||
        sl_pool_create(threads < 1 ? 1 : threads, &pool) != SLUICE_OK) {
        fprintf(stderr, "%s\n", sluice_error());
        return 1;
    }
    fill(mem.x, most);
    fill(mem.w, most);
    fill(mem.y, most);
    printf("%s, %d threads\n", sl_isa_name(isa), sl_pool_threads(pool));
    for (size_t i = 0; i < sizeof products / sizeof products[0]; i++) {
        const product *p = &products[i];
        printf("%-16s tokens %5lld  in %5lld  out %5lld  %8.1f GFLOP/s\n", p->name, (long long)p->tokens,
               (long long)p->in, (long long)p->out, measure(p, tables[isa], pool, &mem));
    }
    sl_pool_destroy(pool);
    sl_free(mem.x);
    sl_free(mem.w);
    sl_free(mem.y);
    return 0;
}
