/* adamw.c: how close the AdamW update comes to the memory it runs on.
 *
 * Prints GB/s of the AdamW kernel (28 bytes a parameter: gradient read; weight and two moments read and written), of
 * memcpy (8 bytes an element) and of a triad with streaming stores (12 bytes), on one thread and on all. The three take
 * turns, so that a change of the machine's clock or load hits all of them; best and median are over the turns.
 *
 *     bench_adamw [elements in millions, 64] [turns, 9] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "backend/cpu/kernels.h"
#include "core/alloc.h"
#include "core/cpu.h"

#define MAX_TURNS 101

typedef struct arrays {
    float *g, *w, *m, *v;
    int64_t n;
    int64_t part; /* elements of one copy or triad task: one task a thread, so that memcpy writes past the caches */
} arrays;

typedef struct contest {
    const char *name;
    double bytes_per_element;
    double rate[MAX_TURNS]; /* GB/s */
} contest;

static int64_t part_elements(const arrays *a, int64_t task)
{
    int64_t left = a->n - task * a->part;
    return left < a->part ? left : a->part;
}

static void copy_part(void *context, int64_t task, void *scratch)
{
    const arrays *a = context;
    (void)scratch;
    memcpy(a->w + task * a->part, a->g + task * a->part, (size_t)part_elements(a, task) * sizeof(float));
}

/* w = m + 0.5 v, written past the caches where the machine can. */
static void triad_part(void *context, int64_t task, void *scratch)
{
    const arrays *a = context;
    (void)scratch;
    int64_t i = task * a->part, end = i + part_elements(a, task);
#ifdef __SSE2__
    __m128 half = _mm_set1_ps(0.5f);
    for (; i + 4 <= end; i += 4)
        _mm_stream_ps(a->w + i, _mm_add_ps(_mm_load_ps(a->m + i), _mm_mul_ps(half, _mm_load_ps(a->v + i))));
    _mm_sfence();
#endif
    for (; i < end; i++) a->w[i] = a->m[i] + 0.5f * a->v[i];
}

static void adamw(const arrays *a, sl_pool *pool)
{
    static const sl_kernel *const tables[SL_ISA_COUNT] = { sl_kernels_scalar, sl_kernels_avx2, sl_kernels_avx512 };
    sl_update_segment segment = { 0, a->n, 0 };
    sl_update_rule rule = {
        .kind = SL_UPDATE_ADAM, .slots = 2, .decoupled_decay = true, .segments = &segment, .segment_count = 1
    };
    sl_norm_result norm = { 1.0, 1.0f, 1 };
    sl_attrs attrs = { .update = &rule };
    sl_run_context run = { .group_count = 1 };
    run.groups[0] = (sl_group_scalars){ .lr = 1e-3f,
                                        .beta1 = 0.9f,
                                        .beta2 = 0.999f,
                                        .epsilon = 1e-8f,
                                        .one_minus_beta1 = 0.1f,
                                        .one_minus_beta2 = 0.001f,
                                        .step_size = 1e-3f,
                                        .bias2_sqrt = 1.0f,
                                        .decay_factor = 0.99999f };
    sl_kernel_args args = { .attrs = &attrs, .input_count = 2, .output_count = 3, .context = &run, .pool = pool };
    args.in[0] = (sl_tensor){ a->g, NULL, a->n };
    args.in[1] = (sl_tensor){ &norm, NULL, (int64_t)(sizeof norm / 4) };
    args.out[0] = (sl_tensor){ a->w, NULL, a->n };
    args.out[1] = (sl_tensor){ a->m, NULL, a->n };
    args.out[2] = (sl_tensor){ a->v, NULL, a->n };
    tables[sl_isa_best()][SL_OP_UPDATE](&args);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print_contest(contest *c, int turns)
{
    qsort(c->rate, (size_t)turns, sizeof *c->rate, compare);
    printf("  %-8s %7.2f GB/s best %7.2f median\n", c->name, c->rate[turns - 1], c->rate[turns / 2]);
}

static void measure(arrays *a, int threads, int turns)
{
    contest c[3] = { { .name = "AdamW", .bytes_per_element = 28 },
                     { .name = "memcpy", .bytes_per_element = 8 },
                     { .name = "triad", .bytes_per_element = 12 } };
    sl_pool *pool;
    if (sl_pool_create(threads, &pool) != SLUICE_OK) {
        fprintf(stderr, "%s\n", sluice_error());
        exit(1);
    }
    a->part = ((a->n + threads - 1) / threads + 15) / 16 * 16;
    int64_t tasks = (a->n + a->part - 1) / a->part;
    for (int t = -1; t < turns; t++) { /* the first round only warms up */
        double times[4] = { sl_now() };
        adamw(a, pool);
        times[1] = sl_now();
        sl_pool_run(pool, copy_part, a, tasks);
        times[2] = sl_now();
        sl_pool_run(pool, triad_part, a, tasks);
        times[3] = sl_now();
        for (int k = 0; k < 3 && t >= 0; k++)
            c[k].rate[t] = c[k].bytes_per_element * (double)a->n / (times[k + 1] - times[k]) / 1e9;
    }
    sl_pool_destroy(pool);
    printf("%d thread%s, %lld elements, %d turns\n", threads, threads > 1 ? "s" : "", (long long)a->n, turns);
    for (int k = 0; k < 3; k++) print_contest(&c[k], turns);
    double best = c[1].rate[turns - 1] > c[2].rate[turns - 1] ? c[1].rate[turns - 1] : c[2].rate[turns - 1];
    double median = c[1].rate[turns / 2] > c[2].rate[turns / 2] ? c[1].rate[turns / 2] : c[2].rate[turns / 2];
    printf("  AdamW / better of the others: %.3f best, %.3f median; %.2f G parameters/s\n", c[0].rate[turns - 1] / best,
           c[0].rate[turns / 2] / median, c[0].rate[turns / 2] / 28.0);
}

int main(int argc, char **argv)
{
    int64_t millions = argc > 1 ? atoll(argv[1]) : 64;
    int turns = argc > 2 ? atoi(argv[2]) : 9;
    if (millions < 1 || millions > 1 << 14 || turns < 1 || turns > MAX_TURNS) {
        fprintf(stderr, "usage: bench_adamw [millions of elements] [turns, at most %d]\n", MAX_TURNS);
        return 2;
    }
    arrays a = { .n = millions << 20 };
    float **all[4] = { &a.g, &a.w, &a.m, &a.v };
    for (int k = 0; k < 4; k++) {
        *all[k] = sl_alloc_array((size_t)a.n, sizeof(float), "bench array");
        if (*all[k] == NULL) return 1;
        for (int64_t i = 0; i < a.n; i++) (*all[k])[i] = (float)(i % 1000 + 1) * 1e-3f;
    }
    printf("path %s\n", sl_isa_name(sl_isa_best()));
    measure(&a, 1, turns);
    if (sl_cpu_count() > 1) measure(&a, sl_cpu_count(), turns);
    for (int k = 0; k < 4; k++) sl_free(*all[k]);
    return 0;
}
