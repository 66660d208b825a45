/* gemm_test.c: matrix products against the plain chain, bit for bit: every instruction path, layout and number of
 * threads. */
#include "test.h"

#include "core/thread.h"
#include "paths.h"

/* One product c[batch,m,n] = a b and its memory. */
typedef struct product {
    int64_t m, n, k, batches;
    float *a, *b, *c, *expected, *bias;
} product;

static const int threads_tried[] = { 1, 2, 3 };

/* Odd sizes around every boundary of the register tiles, the vectors, the blocks of k and the tiles of a task. */
static const int64_t shapes[][3] = {
    { 1, 1, 1 },     { 1, 1, 7 },     { 1, 16, 1 },   { 1, 17, 5 },     { 2, 3, 4 },      { 3, 15, 2 },
    { 4, 16, 4 },    { 5, 5, 5 },     { 6, 16, 16 },  { 7, 16, 33 },    { 7, 33, 16 },    { 8, 31, 8 },
    { 9, 32, 9 },    { 10, 10, 10 },  { 11, 1, 64 },  { 12, 48, 3 },    { 13, 47, 15 },   { 13, 65, 1 },
    { 14, 32, 17 },  { 14, 33, 31 },  { 15, 32, 64 }, { 15, 64, 19 },   { 16, 16, 16 },   { 16, 63, 20 },
    { 17, 17, 17 },  { 18, 2, 100 },  { 19, 95, 3 },  { 20, 96, 40 },   { 21, 97, 21 },   { 27, 12, 50 },
    { 28, 64, 28 },  { 29, 29, 29 },  { 31, 31, 31 }, { 32, 32, 32 },   { 33, 33, 33 },   { 41, 65, 12 },
    { 42, 80, 13 },  { 43, 81, 14 },  { 48, 50, 52 }, { 55, 16, 77 },   { 56, 32, 96 },   { 57, 34, 97 },
    { 63, 64, 65 },  { 64, 65, 63 },  { 65, 63, 64 }, { 70, 129, 30 },  { 84, 84, 84 },   { 85, 128, 9 },
    { 96, 1, 130 },  { 1, 200, 129 }, { 2, 385, 40 }, { 337, 20, 11 },  { 350, 400, 3 },  { 100, 65, 384 },
    { 20, 70, 385 }, { 15, 33, 768 }, { 9, 17, 801 }, { 129, 40, 400 }, { 40, 129, 400 }, { 64, 64, 1000 },
};

static float *numbers(int64_t count, uint32_t seed)
{
    float *p = malloc((size_t)count * sizeof *p);
    if (p == NULL) exit(99);
    fill_numbers(p, count, seed);
    return p;
}

static product make_product(int64_t m, int64_t n, int64_t k, int64_t batches)
{
    return (product){ m,
                      n,
                      k,
                      batches,
                      numbers(batches * m * k, 1),
                      numbers(batches * k * n, 2),
                      numbers(batches * m * n, 3),
                      numbers(batches * m * n, 4),
                      numbers(n, 5) };
}

static void free_product(product *p)
{
    free(p->a);
    free(p->b);
    free(p->c);
    free(p->expected);
    free(p->bias);
}

/* The definition. `start` holds what c held before, or is NULL when c is overwritten. */
static void plain(product *p, bool a_turned, bool b_turned, const float *bias, const float *start)
{
    for (int64_t i = 0; i < p->batches * p->m * p->n; i++) {
        int64_t batch = i / (p->m * p->n), row = i / p->n % p->m, column = i % p->n;
        const float *a = p->a + batch * p->m * p->k, *b = p->b + batch * p->k * p->n;
        float sum = 0.0f;
        for (int64_t k = 0; k < p->k; k++)
            sum = fmaf(a_turned ? a[k * p->m + row] : a[row * p->k + k],
                       b_turned ? b[column * p->k + k] : b[k * p->n + column], sum);
        if (bias != NULL) sum += bias[column];
        p->expected[i] = start != NULL ? start[i] + sum : sum;
    }
}

static void compare(const product *p, const char *what, sl_isa isa, int threads)
{
    if (memcmp(p->c, p->expected, (size_t)(p->batches * p->m * p->n) * sizeof(float)) != 0)
        test_fail(__FILE__, __LINE__, "%s %s, %d threads, m %lld n %lld k %lld: other bits than the plain chain", what,
                  sl_isa_name(isa), threads, (long long)p->m, (long long)p->n, (long long)p->k);
}

/* Runs `op` on every path and number of threads and compares output 0, which starts as numbers of seed 3. */
static void run_everywhere(product *p, sl_op op, sl_kernel_args *a, const char *what)
{
    for (int isa = 0; isa < SL_ISA_COUNT; isa++) {
        const sl_kernel *kernels = path_kernels((sl_isa)isa);
        for (size_t t = 0; kernels != NULL && t < sizeof threads_tried / sizeof threads_tried[0]; t++) {
            REQUIRE_OK(sl_pool_create(threads_tried[t], &a->pool));
            fill_numbers(p->c, p->batches * p->m * p->n, 3);
            kernels[op](a);
            compare(p, what, (sl_isa)isa, threads_tried[t]);
            sl_pool_destroy(a->pool);
        }
    }
}

static void check_matmul(product *p, bool a_turned, bool b_turned, bool add)
{
    sl_shape sa = { 3, { p->batches, a_turned ? p->k : p->m, a_turned ? p->m : p->k } };
    sl_shape sb = { 3, { p->batches, b_turned ? p->n : p->k, b_turned ? p->k : p->n } };
    sl_shape sc = { 3, { p->batches, p->m, p->n } };
    sl_attrs attrs = { .accumulate = add, .matmul = { a_turned, b_turned } };
    sl_kernel_args a = { .attrs = &attrs, .input_count = 2, .output_count = 1 };
    a.in[0] = (sl_tensor){ p->a, &sa, p->batches * p->m * p->k };
    a.in[1] = (sl_tensor){ p->b, &sb, p->batches * p->k * p->n };
    a.out[0] = (sl_tensor){ p->c, &sc, p->batches * p->m * p->n };
    float *start = numbers(p->batches * p->m * p->n, 3);
    plain(p, a_turned, b_turned, NULL, add ? start : NULL);
    run_everywhere(p, SL_OP_MATMUL, &a, add ? "matmul added" : "matmul");
    free(start);
}

TEST(products_of_every_layout_have_the_bits_of_the_plain_chain)
{
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
        product p = make_product(shapes[s][0], shapes[s][1], shapes[s][2], 1);
        check_matmul(&p, false, false, false);
        check_matmul(&p, false, true, false);
        check_matmul(&p, true, false, false);
        free_product(&p);
    }
}

TEST(products_add_the_rounded_chain_when_asked_to_accumulate)
{
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s += 3) {
        product p = make_product(shapes[s][0], shapes[s][1], shapes[s][2], 1);
        check_matmul(&p, true, true, true);
        free_product(&p);
    }
}

TEST(batched_products_take_each_batch_by_itself)
{
    product p = make_product(37, 19, 23, 5);
    check_matmul(&p, false, true, false);
    check_matmul(&p, true, false, true);
    free_product(&p);
}

/* x[m,k] with w as [n,k] or [k,n], bias. */
static void check_linear(product *p, bool in_out, bool with_bias)
{
    sl_shape x = { 2, { p->m, p->k } }, w = { 2, { in_out ? p->k : p->n, in_out ? p->n : p->k } }, b = { 1, { p->n } };
    sl_shape y = { 2, { p->m, p->n } };
    sl_attrs attrs = { .linear = { in_out } };
    sl_kernel_args a = { .attrs = &attrs, .input_count = with_bias ? 3 : 2, .output_count = 1 };
    a.in[0] = (sl_tensor){ p->a, &x, p->m * p->k };
    a.in[1] = (sl_tensor){ p->b, &w, p->k * p->n };
    a.in[2] = (sl_tensor){ p->bias, &b, p->n };
    a.out[0] = (sl_tensor){ p->c, &y, p->m * p->n };
    plain(p, false, !in_out, with_bias ? p->bias : NULL, NULL);
    run_everywhere(p, SL_OP_LINEAR, &a, "linear");
}

TEST(linear_adds_the_bias_after_the_chain)
{
    static const int64_t some[][3] = { { 1, 5, 7 }, { 30, 65, 40 }, { 100, 48, 391 }, { 340, 390, 5 } };
    for (size_t s = 0; s < sizeof some / sizeof some[0]; s++) {
        product p = make_product(some[s][0], some[s][1], some[s][2], 1);
        check_linear(&p, false, true);
        check_linear(&p, true, true);
        check_linear(&p, true, false);
        free_product(&p);
    }
}

/* dx[m,n] = dy[m,k] w with w as [k,n] (out, in) or [n,k]. */
static void check_grad_input(product *p, bool in_out)
{
    sl_shape dy = { 2, { p->m, p->k } }, w = { 2, { in_out ? p->n : p->k, in_out ? p->k : p->n } },
             dx = { 2, { p->m, p->n } };
    sl_attrs attrs = { .accumulate = 1, .linear = { in_out } };
    sl_kernel_args a = { .attrs = &attrs, .input_count = 2, .output_count = 1 };
    a.in[0] = (sl_tensor){ p->a, &dy, p->m * p->k };
    a.in[1] = (sl_tensor){ p->b, &w, p->k * p->n };
    a.out[0] = (sl_tensor){ p->c, &dx, p->m * p->n };
    float *start = numbers(p->m * p->n, 3);
    plain(p, false, in_out, NULL, start);
    run_everywhere(p, SL_OP_LINEAR_GRAD_INPUT, &a, "linear_grad_input");
    free(start);
}

TEST(the_gradient_of_a_linear_input_is_dy_times_the_weight)
{
    product p = make_product(50, 70, 400, 1);
    check_grad_input(&p, false);
    check_grad_input(&p, true);
    free_product(&p);
}

/* dw = dy^T x over `rows` tokens as [out,in] = [m,n], or x^T dy as [in,out] = [m,n]; dbias = column sums of dy. */
static void check_grad_weight(int64_t out, int64_t in, int64_t rows, bool in_out, uint32_t accumulate)
{
    product p = make_product(in_out ? in : out, in_out ? out : in, rows, 1);
    float *dy = in_out ? p.b : p.a, *dbias = numbers(out, 6), *before = numbers(out, 6), *start = numbers(p.m * p.n, 3);
    sl_shape sdy = { 2, { rows, out } }, sx = { 2, { rows, in } }, sw = { 2, { p.m, p.n } }, sb = { 1, { out } };
    sl_attrs attrs = { .accumulate = accumulate, .linear = { in_out } };
    sl_kernel_args a = { .attrs = &attrs, .input_count = 2, .output_count = 2 };
    a.in[0] = (sl_tensor){ dy, &sdy, rows * out };
    a.in[1] = (sl_tensor){ in_out ? p.a : p.b, &sx, rows * in };
    a.out[0] = (sl_tensor){ p.c, &sw, p.m * p.n };
    a.out[1] = (sl_tensor){ NULL, &sb, out };
    plain(&p, true, false, NULL, accumulate & 1 ? start : NULL);
    run_everywhere(&p, SL_OP_LINEAR_GRAD_WEIGHT, &a, "linear_grad_weight");
    a.out[0].data = NULL;
    a.out[1].data = dbias;
    for (int isa = 0; isa < SL_ISA_COUNT; isa++) {
        const sl_kernel *kernels = path_kernels((sl_isa)isa);
        if (kernels == NULL) continue;
        REQUIRE_OK(sl_pool_create(2, &a.pool));
        memcpy(dbias, before, (size_t)out * sizeof *dbias);
        kernels[SL_OP_LINEAR_GRAD_WEIGHT](&a);
        sl_pool_destroy(a.pool);
        for (int64_t j = 0; j < out; j++) {
            float sum = 0.0f;
            for (int64_t r = 0; r < rows; r++) sum += dy[r * out + j];
            CHECK(dbias[j] == (accumulate & 2 ? before[j] + sum : sum));
        }
    }
    free(dbias);
    free(before);
    free(start);
    free_product(&p);
}

TEST(the_gradient_of_a_linear_weight_sums_tokens_in_order)
{
    check_grad_weight(70, 33, 500, false, 0);
    check_grad_weight(70, 33, 500, true, 0);
    check_grad_weight(130, 20, 77, false, 3);
    check_grad_weight(64, 5, 9, true, 1);
}
