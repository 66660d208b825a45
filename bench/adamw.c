/* adamw.c: how close the AdamW update comes to the memory it runs on, and what narrower forms gain.
 *
 * Prints G parameters/s and GB/s of the AdamW kernel in each arrangement of weights, gradient and moments, of memcpy (8
 * bytes an element) and of a triad with streaming stores (12 bytes), on one thread and on all. They take turns, so that
 * a change of the machine's clock or load hits all of them; best and median are over the turns.
 *
 *     bench_adamw [elements in millions, 32] [turns, 9] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "backend/cpu/kernels.h"
#include "core/alloc.h"
#include "core/cpu.h"
#include "core/half.h"
#include "ir/form.h"

#define MAX_TURNS 101

/* Bytes a parameter: gradient read; weight, rest and two moments read and written. */
typedef struct arrangement {
    const char *name;
    sl_form gradient, weights, rest, moments; /* rest I32: none */
    double bytes;
} arrangement;

static const arrangement arrangements[] = {
    { "f32", SL_FORM_F32, SL_FORM_F32, SL_FORM_I32, SL_FORM_F32, 28 },
    { "bf16", SL_FORM_BF16, SL_FORM_BF16, SL_FORM_REMAINDER, SL_FORM_F32, 26 },
    { "f16", SL_FORM_F16, SL_FORM_F16, SL_FORM_F32, SL_FORM_F32, 28 },
    { "bf16, moments bf16", SL_FORM_BF16, SL_FORM_BF16, SL_FORM_REMAINDER, SL_FORM_BF16, 18 },
    { "compact", SL_FORM_BF16, SL_FORM_BF16, SL_FORM_REMAINDER, SL_FORM_BLOCKS8, 14 },
};
#define ARRANGEMENTS (sizeof arrangements / sizeof arrangements[0])
enum { MEMCPY = ARRANGEMENTS, TRIAD, CONTESTS };

enum { GRADIENT, WEIGHTS, REST, MOMENT1, MOMENT2, OPERANDS };

typedef struct work {
    int64_t n;
    int64_t part; /* elements of one copy or triad task: one task a thread, so that memcpy writes past the caches */
    float *copy[3];
    void *operand[ARRANGEMENTS][OPERANDS];
    sl_layer layer;
    uint64_t step;
    const sl_kernel *kernels;
} work;

static int64_t part_elements(const work *a, int64_t task)
{
    int64_t left = a->n - task * a->part;
    return left < a->part ? left : a->part;
}

static void copy_part(void *context, int64_t task, void *scratch)
{
    const work *a = context;
    (void)scratch;
    memcpy(a->copy[0] + task * a->part, a->copy[1] + task * a->part, (size_t)part_elements(a, task) * sizeof(float));
}

/* copy[0] = copy[1] + 0.5 copy[2], written past the caches where the machine can. */
static void triad_part(void *context, int64_t task, void *scratch)
{
    const work *a = context;
    float *w = a->copy[0], *m = a->copy[1], *v = a->copy[2];
    (void)scratch;
    int64_t i = task * a->part, end = i + part_elements(a, task);
#ifdef __SSE2__
    __m128 half = _mm_set1_ps(0.5f);
    for (; i + 4 <= end; i += 4)
        _mm_stream_ps(w + i, _mm_add_ps(_mm_load_ps(m + i), _mm_mul_ps(half, _mm_load_ps(v + i))));
    _mm_sfence();
#endif
    for (; i < end; i++) w[i] = m[i] + 0.5f * v[i];
}

static const sl_kernel *best_kernels(void)
{
    static const sl_kernel_table *const tables[SL_ISA_COUNT] = {
        [SL_ISA_SCALAR] = &sl_kernels_scalar,
#if defined(__x86_64__)
        [SL_ISA_AVX2] = &sl_kernels_avx2,
        [SL_ISA_AVX512] = &sl_kernels_avx512,
        [SL_ISA_AMX] = &sl_kernels_avx512,
#endif
    };
    return (*tables[sl_isa_best()])[SL_KERNEL_F32];
}

static void adamw(work *a, size_t which, sl_pool *pool)
{
    const arrangement *f = &arrangements[which];
    sl_update_segment segment = { .count = a->n, .rows = 1, .columns = a->n };
    sl_update_rule rule = { .kind = SL_UPDATE_adam_decoupled, .layer = &a->layer };
    sl_norm_result norm = { 1.0, 1.0f, 1 };
    sl_attrs attrs = { .update = &rule };
    sl_run_context run = { .group_count = 1, .step = ++a->step };
    rule.segments = &segment;
    rule.segment_count = 1;
    run.groups[0] = (sl_group_scalars){ .rate = 1e-3f,
                                        .beta1 = 0.9f,
                                        .beta2 = 0.999f,
                                        .epsilon = 1e-8f,
                                        .one_minus_beta1 = 0.1f,
                                        .one_minus_beta2 = 0.001f,
                                        .bias2_sqrt = 1.0f,
                                        .decay_factor = 0.99999f };
    sl_kernel_args args = { .attrs = &attrs, .input_count = 2, .output_count = 4, .context = &run, .pool = pool };
    void *const *p = a->operand[which];
    args.wire = (sluice_dtype)f->gradient;
    args.in[0] = (sl_tensor){ p[GRADIENT], NULL, a->n, f->gradient };
    args.in[1] = (sl_tensor){ &norm, NULL, (int64_t)(sizeof norm / 4), SL_FORM_F32 };
    args.out[0] = (sl_tensor){ p[WEIGHTS], NULL, a->n, f->weights };
    args.out[1] = (sl_tensor){ p[REST], NULL, a->n, f->rest };
    for (int s = 0; s < 2; s++) args.out[2 + s] = (sl_tensor){ p[MOMENT1 + s], NULL, a->n, f->moments };
    a->kernels[SL_OP_UPDATE](&args);
}

/* ---- Memory ---- */

static void *need(uint64_t bytes)
{
    void *p = sl_alloc((size_t)bytes, "bench array");
    if (p == NULL) {
        fprintf(stderr, "%s\n", sluice_error());
        exit(1);
    }
    memset(p, 0, (size_t)bytes);
    return p;
}

static void fill(void *p, sl_form form, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        float x = ((float)((i * 7919) % 2000) - 999.5f) * 1e-3f; /* never zero */
        if (form == SL_FORM_F32) ((float *)p)[i] = x;
        if (form == SL_FORM_BF16) ((uint16_t *)p)[i] = sl_float_to_bf16(x);
        if (form == SL_FORM_F16) ((uint16_t *)p)[i] = sl_float_to_f16(x);
    }
}

/* The moments begin as zeros, and the warm-up makes them moments. */
static void work_open(work *a)
{
    for (int k = 0; k < 3; k++) {
        a->copy[k] = need((uint64_t)a->n * sizeof(float));
        fill(a->copy[k], SL_FORM_F32, a->n);
    }
    for (size_t k = 0; k < ARRANGEMENTS; k++) {
        const arrangement *f = &arrangements[k];
        const sl_form forms[OPERANDS] = { f->gradient, f->weights, f->rest, f->moments, f->moments };
        for (int o = 0; o < OPERANDS; o++) {
            if (forms[o] == SL_FORM_I32) continue;
            a->operand[k][o] = need(sl_form_bytes(forms[o], &a->layer, 0, a->n));
            if (o == GRADIENT || o == WEIGHTS || o == REST) fill(a->operand[k][o], forms[o], a->n);
        }
    }
}

static void work_close(work *a)
{
    for (int k = 0; k < 3; k++) sl_free(a->copy[k]);
    for (size_t k = 0; k < ARRANGEMENTS; k++)
        for (int o = 0; o < OPERANDS; o++) sl_free(a->operand[k][o]);
}

/* ---- Measuring ---- */

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Runs a contest once and returns G elements/s. */
static double run_contest(work *a, size_t k, sl_pool *pool)
{
    int64_t tasks = (a->n + a->part - 1) / a->part;
    double start = sl_now();
    if (k < ARRANGEMENTS) adamw(a, k, pool);
    if (k == MEMCPY) sl_pool_run(pool, copy_part, a, tasks);
    if (k == TRIAD) sl_pool_run(pool, triad_part, a, tasks);
    return (double)a->n / (sl_now() - start) / 1e9;
}

static void measure(work *a, int threads, int turns)
{
    static double rate[CONTESTS][MAX_TURNS];
    sl_pool *pool;
    if (sl_pool_create(threads, &pool) != SLUICE_OK) {
        fprintf(stderr, "%s\n", sluice_error());
        exit(1);
    }
    a->part = ((a->n + threads - 1) / threads + 15) / 16 * 16;
    for (int t = -2; t < turns; t++) /* the first rounds only warm up */
        for (size_t k = 0; k < CONTESTS; k++) {
            double r = run_contest(a, k, pool);
            if (t >= 0) rate[k][t] = r;
        }
    sl_pool_destroy(pool);
    printf("%d thread%s, %lld elements, %d turns: best and median\n", threads, threads > 1 ? "s" : "", (long long)a->n,
           turns);
    for (size_t k = 0; k < CONTESTS; k++) {
        double bytes = k == MEMCPY ? 8 : k == TRIAD ? 12 : arrangements[k].bytes;
        const char *name = k == MEMCPY ? "memcpy" : k == TRIAD ? "triad" : arrangements[k].name;
        qsort(rate[k], (size_t)turns, sizeof rate[k][0], compare);
        double best = rate[k][turns - 1], median = rate[k][turns / 2];
        printf("  %-19s %6.3f %6.3f G/s  %6.2f %6.2f GB/s", name, best, median, best * bytes, median * bytes);
        if (k < ARRANGEMENTS) printf("  %5.2f of f32", median / rate[0][turns / 2]);
        printf("\n");
    }
}

int main(int argc, char **argv)
{
    int64_t millions = argc > 1 ? atoll(argv[1]) : 32;
    int turns = argc > 2 ? atoi(argv[2]) : 9;
    if (millions < 1 || millions > 1 << 14 || turns < 1 || turns > MAX_TURNS) {
        fprintf(stderr, "usage: bench_adamw [millions of elements] [turns, at most %d]\n", MAX_TURNS);
        return 2;
    }
    work a = { .n = millions << 20, .kernels = best_kernels() };
    a.layer = (sl_layer){ .name = "bench", .element_count = a.n };
    work_open(&a);
    printf("path %s\n", sl_isa_name(sl_isa_best()));
    measure(&a, 1, turns);
    if (sl_cpu_count() > 1) measure(&a, sl_cpu_count(), turns);
    work_close(&a);
    return 0;
}
