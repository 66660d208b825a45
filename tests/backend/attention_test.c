/* attention_test.c: attention and its gradient against a plain version in double that forms the whole matrix of scores,
 * and against themselves: every instruction path and number of threads gives the same bits. */
#include "test.h"

#include "core/thread.h"
#include "paths.h"

typedef struct attention_case {
    int64_t batches, queries, keys;
    int heads, kv_heads, width;
    bool causal, packed;
} attention_case;

static const attention_case cases[] = {
    { 1, 1, 1, 1, 1, 8, true, true },      { 2, 17, 17, 2, 2, 16, true, true },
    { 1, 130, 130, 2, 1, 32, true, true }, { 1, 130, 130, 2, 2, 64, false, true },
    { 2, 65, 65, 4, 2, 24, true, false },  { 1, 64, 200, 2, 2, 40, false, false },
    { 1, 1, 130, 2, 1, 32, false, false }, { 1, 257, 257, 3, 1, 64, true, false },
    { 1, 200, 3, 1, 1, 5, false, false },  { 1, 33, 129, 6, 3, 128, false, false },
    { 1, 150, 150, 1, 1, 1, true, true },  { 1, 20, 20, 1, 1, 700, true, true },
};

/* Operands and results. Packed cases keep q, k and v in one array; views point into it. */
typedef struct buffers {
    int64_t q_row, k_row; /* elements between rows */
    int64_t q_count, k_count, out_count, lse_count;
    float *storage[3], *gradient[3]; /* 1 array when packed, otherwise 3 */
    float *q, *k, *v, *dq, *dk, *dv, *out, *lse, *dout;
} buffers;

static float *numbers(int64_t count, uint32_t seed)
{
    float *p = malloc((size_t)count * sizeof *p);
    if (p == NULL) exit(99);
    fill_numbers(p, count, seed);
    return p;
}

static buffers make_buffers(const attention_case *c)
{
    buffers b = { 0 };
    int64_t h = c->heads * c->width, g = c->kv_heads * c->width, qkv = h + 2 * g;
    b.q_row = c->packed ? qkv : h;
    b.k_row = c->packed ? qkv : g;
    b.q_count = c->batches * c->queries * b.q_row;
    b.k_count = c->batches * c->keys * b.k_row;
    b.out_count = c->batches * c->queries * h;
    b.lse_count = c->batches * c->heads * c->queries;
    for (int i = 0; i < (c->packed ? 1 : 3); i++) {
        b.storage[i] = numbers(i == 0 ? b.q_count : b.k_count, (uint32_t)i + 1);
        b.gradient[i] = numbers(i == 0 ? b.q_count : b.k_count, 9);
    }
    b.q = b.storage[0];
    b.dq = b.gradient[0];
    b.k = c->packed ? b.q + h : b.storage[1];
    b.v = c->packed ? b.q + h + g : b.storage[2];
    b.dk = c->packed ? b.dq + h : b.gradient[1];
    b.dv = c->packed ? b.dq + h + g : b.gradient[2];
    for (int64_t i = 0; i < b.q_count; i++) b.q[i] *= 3.0f; /* far from a uniform softmax */
    b.out = numbers(b.out_count, 9);
    b.lse = numbers(b.lse_count, 9);
    b.dout = numbers(b.out_count, 5);
    return b;
}

static void free_buffers(buffers *b)
{
    for (int i = 0; i < 3; i++) {
        free(b->storage[i]);
        free(b->gradient[i]);
    }
    free(b->out);
    free(b->lse);
    free(b->dout);
}

static void run_forward(const attention_case *c, const buffers *b, sl_kernel kernel, sl_pool *pool)
{
    sl_shape q = { 3, { c->batches, c->queries, b->q_row } }, k = { 3, { c->batches, c->keys, b->k_row } };
    sl_shape out = { 3, { c->batches, c->queries, c->heads * c->width } },
             lse = { 3, { c->batches, c->heads, c->queries } };
    sl_attrs attrs = { .attention = { c->heads, c->kv_heads, c->width, c->causal, c->packed,
                                      1.0f / sqrtf((float)c->width) } };
    sl_kernel_args a = { .attrs = &attrs, .input_count = c->packed ? 1 : 3, .output_count = 2, .pool = pool };
    a.in[0] = (sl_tensor){ b->q, &q, b->q_count };
    a.in[1] = (sl_tensor){ b->k, &k, b->k_count };
    a.in[2] = (sl_tensor){ b->v, &k, b->k_count };
    a.out[0] = (sl_tensor){ b->out, &out, b->out_count };
    a.out[1] = (sl_tensor){ b->lse, &lse, b->lse_count };
    kernel(&a);
}

static void run_backward(const attention_case *c, const buffers *b, sl_kernel kernel, sl_pool *pool)
{
    sl_shape q = { 3, { c->batches, c->queries, b->q_row } }, k = { 3, { c->batches, c->keys, b->k_row } };
    sl_shape out = { 3, { c->batches, c->queries, c->heads * c->width } },
             lse = { 3, { c->batches, c->heads, c->queries } };
    sl_attrs attrs = { .attention = { c->heads, c->kv_heads, c->width, c->causal, c->packed,
                                      1.0f / sqrtf((float)c->width) } };
    int operands = c->packed ? 1 : 3;
    sl_kernel_args a = { .attrs = &attrs, .input_count = operands + 3, .output_count = operands, .pool = pool };
    float *data[3] = { b->q, b->k, b->v }, *gradient[3] = { b->dq, b->dk, b->dv };
    for (int i = 0; i < operands; i++) {
        a.in[i] = (sl_tensor){ data[i], i == 0 ? &q : &k, i == 0 ? b->q_count : b->k_count };
        a.out[i] = (sl_tensor){ gradient[i], a.in[i].shape, a.in[i].elements };
    }
    a.in[operands] = (sl_tensor){ b->out, &out, b->out_count };
    a.in[operands + 1] = (sl_tensor){ b->lse, &lse, b->lse_count };
    a.in[operands + 2] = (sl_tensor){ b->dout, &out, b->out_count };
    kernel(&a);
}

/* ---- the plain version: one head, all of its scores at once ---- */

typedef struct plain_head {
    double *p, *out, *dq, *dk, *dv; /* [T,S], [T,D], [T,D], [S,D], [S,D] */
    double *lse;                    /* [T] */
} plain_head;

static void plain_forward(const attention_case *c, const float *q, const float *k, const float *v, const buffers *b,
                          plain_head *r)
{
    double scale = 1.0 / sqrt(c->width);
    for (int64_t t = 0; t < c->queries; t++) {
        double *p = r->p + t * c->keys, sum = 0.0;
        for (int64_t s = 0; s < c->keys; s++) {
            double score = 0.0;
            for (int64_t d = 0; d < c->width; d++) score += (double)q[t * b->q_row + d] * k[s * b->k_row + d];
            p[s] = c->causal && s > t ? 0.0 : exp(score * scale);
            sum += p[s];
        }
        r->lse[t] = log(sum);
        for (int64_t s = 0; s < c->keys; s++) p[s] /= sum;
        for (int64_t d = 0; d < c->width; d++) {
            double o = 0.0;
            for (int64_t s = 0; s < c->keys; s++) o += p[s] * v[s * b->k_row + d];
            r->out[t * c->width + d] = o;
        }
    }
}

/* Adds to dk and dv, which the heads of a group share. */
static void plain_backward(const attention_case *c, const float *q, const float *k, const float *v, const float *dout,
                           const buffers *b, plain_head *r)
{
    double scale = 1.0 / sqrt(c->width);
    int64_t width = c->width, out_row = c->heads * c->width;
    for (int64_t t = 0; t < c->queries; t++) {
        const float *g = dout + t * out_row;
        double delta = 0.0;
        for (int64_t d = 0; d < width; d++) delta += g[d] * r->out[t * width + d];
        for (int64_t s = 0; s < c->keys; s++) {
            double p = r->p[t * c->keys + s], dp = 0.0;
            for (int64_t d = 0; d < width; d++) dp += (double)g[d] * v[s * b->k_row + d];
            double ds = p * (dp - delta) * scale;
            for (int64_t d = 0; d < width; d++) {
                r->dq[t * width + d] += ds * k[s * b->k_row + d];
                r->dk[s * width + d] += ds * q[t * b->q_row + d];
                r->dv[s * width + d] += p * g[d];
            }
        }
    }
}

static double largest_difference(const float *have, int64_t row, const double *want, int64_t rows, int64_t width)
{
    double worst = 0.0;
    for (int64_t i = 0; i < rows * width; i++) {
        double d = fabs(have[i / width * row + i % width] - want[i]);
        if (!(d <= worst)) worst = d; /* NaN is worst */
    }
    return worst;
}

static double *zeros(int64_t count)
{
    double *p = calloc((size_t)count, sizeof *p);
    if (p == NULL) exit(99);
    return p;
}

static void compare_batch(const attention_case *c, const buffers *b, int64_t batch)
{
    int64_t group = c->heads / c->kv_heads, w = c->width, out_row = c->heads * w;
    plain_head r = { .p = zeros(c->queries * c->keys), .out = zeros(c->queries * w), .lse = zeros(c->queries) };
    int64_t q_at = batch * c->queries * b->q_row, k_at = batch * c->keys * b->k_row,
            out_at = batch * c->queries * out_row;
    for (int h = 0; h < c->heads; h++) {
        const float *q = b->q + q_at + h * w, *k = b->k + k_at + h / group * w, *v = b->v + k_at + h / group * w;
        if (h % group == 0) {
            r.dk = zeros(c->keys * w);
            r.dv = zeros(c->keys * w);
        }
        r.dq = zeros(c->queries * w);
        plain_forward(c, q, k, v, b, &r);
        plain_backward(c, q, k, v, b->dout + out_at + h * w, b, &r);
        CHECK_NEAR(largest_difference(b->out + out_at + h * w, out_row, r.out, c->queries, w), 0.0, 1e-5);
        CHECK_NEAR(largest_difference(b->lse + (batch * c->heads + h) * c->queries, 1, r.lse, c->queries, 1), 0.0,
                   4e-6);
        CHECK_NEAR(largest_difference(b->dq + q_at + h * w, b->q_row, r.dq, c->queries, w), 0.0, 1e-5);
        if ((h + 1) % group == 0) {
            CHECK_NEAR(largest_difference(b->dk + k_at + h / group * w, b->k_row, r.dk, c->keys, w), 0.0, 3e-5);
            CHECK_NEAR(largest_difference(b->dv + k_at + h / group * w, b->k_row, r.dv, c->keys, w), 0.0, 3e-5);
            free(r.dk);
            free(r.dv);
        }
        free(r.dq);
    }
    free(r.p);
    free(r.out);
    free(r.lse);
}

static void run_both(const attention_case *c, const buffers *b, sl_isa isa, int threads)
{
    sl_pool *pool;
    REQUIRE_OK(sl_pool_create(threads, &pool));
    run_forward(c, b, path_kernels(isa)[SL_OP_ATTENTION], pool);
    run_backward(c, b, path_kernels(isa)[SL_OP_ATTENTION_GRAD], pool);
    sl_pool_destroy(pool);
}

TEST(attention_and_its_gradient_agree_with_the_plain_version)
{
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        buffers b = make_buffers(&cases[i]);
        run_both(&cases[i], &b, sl_isa_best(), 2);
        int before = test_failures;
        for (int64_t batch = 0; batch < cases[i].batches; batch++) compare_batch(&cases[i], &b, batch);
        if (test_failures > before) fprintf(stderr, "in case %zu\n", i);
        free_buffers(&b);
    }
}

static bool same_bits(const attention_case *c, const buffers *a, const buffers *b)
{
    bool same =
        memcmp(a->out, b->out, (size_t)a->out_count * 4) == 0 && memcmp(a->lse, b->lse, (size_t)a->lse_count * 4) == 0;
    for (int i = 0; i < (c->packed ? 1 : 3); i++)
        same = same && memcmp(a->gradient[i], b->gradient[i], (size_t)(i == 0 ? a->q_count : a->k_count) * 4) == 0;
    return same;
}

TEST(attention_has_the_same_bits_on_every_path_and_number_of_threads)
{
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        buffers first = make_buffers(&cases[i]);
        run_both(&cases[i], &first, SL_ISA_SCALAR, 1);
        for (int isa = 0; isa < SL_ISA_COUNT; isa++)
            for (int threads = 1; path_kernels((sl_isa)isa) != NULL && threads <= 3; threads++) {
                buffers b = make_buffers(&cases[i]);
                run_both(&cases[i], &b, (sl_isa)isa, threads);
                if (!same_bits(&cases[i], &first, &b))
                    test_fail(__FILE__, __LINE__, "case %zu, %s, %d threads: other bits", i, sl_isa_name((sl_isa)isa),
                              threads);
                free_buffers(&b);
            }
        free_buffers(&first);
    }
}

TEST(attention_of_huge_scores_stays_finite)
{
    attention_case c = { 1, 70, 70, 1, 1, 16, true, true };
    buffers b = make_buffers(&c);
    for (int64_t i = 0; i < b.q_count; i++) b.q[i] *= 100.0f;
    run_both(&c, &b, sl_isa_best(), 1);
    for (int64_t i = 0; i < b.out_count; i++) CHECK(isfinite(b.out[i]));
    for (int64_t i = 0; i < b.q_count; i++) CHECK(isfinite(b.dq[i]));
    free_buffers(&b);
}

TEST(attention_leaves_out_gradients_nobody_wants)
{
    attention_case c = { 1, 30, 40, 2, 1, 16, false, false };
    buffers all = make_buffers(&c), some = make_buffers(&c);
    float *dq = some.dq;
    run_both(&c, &all, sl_isa_best(), 1);
    some.dk = some.dv = NULL;
    run_both(&c, &some, sl_isa_best(), 1);
    CHECK(memcmp(dq, all.dq, (size_t)all.q_count * sizeof *dq) == 0);
    some.dq = NULL;
    some.dk = some.gradient[1];
    run_both(&c, &some, sl_isa_best(), 1);
    CHECK(memcmp(some.dk, all.dk, (size_t)all.k_count * sizeof *dq) == 0);
    free_buffers(&all);
    free_buffers(&some);
}
