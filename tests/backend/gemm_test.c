/* gemm_test.c: matrix products against the plain chain, bit for bit: every instruction path, layout, form of the
 * operands and number of threads. */
#include "test.h"

#include "core/thread.h"
#include "support/kernel_paths.h"
#include "support/stored_forms.h"

/* One product c[batch,m,n] = a b: the numbers as floats, and stored in their forms. */
typedef struct product {
    int64_t m, n, k, batches;
    stored a, b, c, bias;
    float *expected;
} product;

static const int threads_tried[] = { 5, 1, 2 };
static const int last_path = SL_ISA_AVX512; /* AMX has other bits: amx_test.c */

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

/* The form of the operands, of c and of the bias. */
typedef struct forms {
    sl_form in, c, bias;
} forms;

static const forms all_f32 = { SL_FORM_F32, SL_FORM_F32, SL_FORM_F32 };
/* Every form of the operands with every form of the result. */
static const forms mixed[] = {
    { SL_FORM_F32, SL_FORM_BF16, SL_FORM_BF16 }, { SL_FORM_F32, SL_FORM_F16, SL_FORM_F32 },
    { SL_FORM_BF16, SL_FORM_F32, SL_FORM_F32 },  { SL_FORM_BF16, SL_FORM_BF16, SL_FORM_BF16 },
    { SL_FORM_BF16, SL_FORM_F16, SL_FORM_F32 },  { SL_FORM_F16, SL_FORM_F32, SL_FORM_F16 },
    { SL_FORM_F16, SL_FORM_BF16, SL_FORM_F32 },  { SL_FORM_F16, SL_FORM_F16, SL_FORM_F16 },
};
#define MIXED (sizeof mixed / sizeof mixed[0])

static product make_product(int64_t m, int64_t n, int64_t k, int64_t batches, forms f)
{
    product p = { m, n, k, batches, { 0 }, { 0 }, { 0 }, { 0 }, NULL };
    p.a = make_stored(batches * m * k, f.in, 1);
    p.b = make_stored(batches * k * n, f.in, 2);
    p.c = make_stored(batches * m * n, f.c, 3);
    p.bias = make_stored(n, f.bias, 5);
    p.expected = numbers(batches * m * n, 4);
    return p;
}

static void free_product(product *p)
{
    free_stored(&p->a);
    free_stored(&p->b);
    free_stored(&p->c);
    free_stored(&p->bias);
    free(p->expected);
}

/* The definition. */
static void plain(product *p, bool a_turned, bool b_turned, bool with_bias, bool add)
{
    for (int64_t i = 0; i < p->batches * p->m * p->n; i++) {
        int64_t batch = i / (p->m * p->n), row = i / p->n % p->m, column = i % p->n;
        const float *a = p->a.values + batch * p->m * p->k, *b = p->b.values + batch * p->k * p->n;
        float sum = 0.0f;
        for (int64_t k = 0; k < p->k; k++)
            sum = fmaf(a_turned ? a[k * p->m + row] : a[row * p->k + k],
                       b_turned ? b[column * p->k + k] : b[k * p->n + column], sum);
        if (with_bias) sum += p->bias.values[column];
        p->expected[i] = rounded(add ? p->c.values[i] + sum : sum, p->c.form);
    }
}

static void compare(const product *p, const char *what, sl_isa isa, int threads)
{
    for (int64_t i = 0; i < p->batches * p->m * p->n; i++) {
        float have = stored_at(&p->c, i);
        if (memcmp(&have, &p->expected[i], sizeof have) == 0) continue;
        test_fail(__FILE__, __LINE__,
                  "%s %s, %d threads, form %d to %d, m %lld n %lld k %lld: element %lld is %a, not %a", what,
                  sl_isa_name(isa), threads, (int)p->a.form, (int)p->c.form, (long long)p->m, (long long)p->n,
                  (long long)p->k, (long long)i, have, p->expected[i]);
        return;
    }
}

/* Runs `op` on every path and number of threads and compares output 0. */
static void run_everywhere(product *p, sl_op op, sl_kernel_args *a, const char *what)
{
    for (int isa = 0; isa <= last_path; isa++) {
        const sl_kernel *kernels = path_kernels_of((sl_isa)isa, kernel_type_of(p->a.form));
        size_t counts = isa == SL_ISA_SCALAR ? 1 : sizeof threads_tried / sizeof threads_tried[0];
        for (size_t t = 0; kernels != NULL && t < counts; t++) {
            REQUIRE_OK(sl_pool_create(threads_tried[t], &a->pool));
            restore(&p->c);
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
    a.in[0] = tensor_of(&p->a, &sa);
    a.in[1] = tensor_of(&p->b, &sb);
    a.out[0] = tensor_of(&p->c, &sc);
    plain(p, a_turned, b_turned, false, add);
    run_everywhere(p, SL_OP_MATMUL, &a, add ? "matmul added" : "matmul");
}

TEST(products_of_every_layout_have_the_bits_of_the_plain_chain)
{
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
        product p = make_product(shapes[s][0], shapes[s][1], shapes[s][2], 1, all_f32);
        check_matmul(&p, false, false, false);
        check_matmul(&p, false, true, false);
        check_matmul(&p, true, false, false);
        free_product(&p);
    }
}

TEST(products_of_every_form_round_the_chain_once)
{
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
        product p = make_product(shapes[s][0], shapes[s][1], shapes[s][2], 1, mixed[s % MIXED]);
        check_matmul(&p, s % 3 == 2, s % 3 == 1, s % 2);
        check_matmul(&p, s % 3 != 2, s % 2 == 0, false);
        free_product(&p);
    }
}

TEST(products_add_the_rounded_chain_when_asked_to_accumulate)
{
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s += 3) {
        product p = make_product(shapes[s][0], shapes[s][1], shapes[s][2], 1, all_f32);
        check_matmul(&p, true, true, true);
        free_product(&p);
    }
}

TEST(batched_products_take_each_batch_by_itself)
{
    static const forms some[] = { { SL_FORM_F32, SL_FORM_F32, SL_FORM_F32 },
                                  { SL_FORM_F16, SL_FORM_BF16, SL_FORM_F32 } };
    for (int f = 0; f < 2; f++) {
        product p = make_product(37, 19, 23, 5, some[f]);
        check_matmul(&p, false, true, false);
        check_matmul(&p, true, false, true);
        free_product(&p);
    }
}

/* x[m,k] with w as [n,k] or [k,n], bias. */
static void check_linear(product *p, bool in_out, bool with_bias)
{
    sl_shape x = { 2, { p->m, p->k } }, w = { 2, { in_out ? p->k : p->n, in_out ? p->n : p->k } }, b = { 1, { p->n } };
    sl_shape y = { 2, { p->m, p->n } };
    sl_attrs attrs = { .linear = { in_out } };
    sl_kernel_args a = { .attrs = &attrs, .input_count = with_bias ? 3 : 2, .output_count = 1 };
    a.in[0] = tensor_of(&p->a, &x);
    a.in[1] = tensor_of(&p->b, &w);
    a.in[2] = tensor_of(&p->bias, &b);
    a.out[0] = tensor_of(&p->c, &y);
    plain(p, false, !in_out, with_bias, false);
    run_everywhere(p, SL_OP_LINEAR, &a, "linear");
}

TEST(linear_adds_the_bias_after_the_chain)
{
    static const int64_t some[][3] = { { 1, 5, 7 }, { 30, 65, 40 }, { 100, 48, 391 }, { 340, 390, 5 } };
    for (size_t s = 0; s < 4 + MIXED; s++) {
        product p = make_product(some[s % 4][0], some[s % 4][1], some[s % 4][2], 1, s < 4 ? all_f32 : mixed[s - 4]);
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
    a.in[0] = tensor_of(&p->a, &dy);
    a.in[1] = tensor_of(&p->b, &w);
    a.out[0] = tensor_of(&p->c, &dx);
    plain(p, false, in_out, false, true);
    run_everywhere(p, SL_OP_LINEAR_GRAD_INPUT, &a, "linear_grad_input");
}

TEST(the_gradient_of_a_linear_input_is_dy_times_the_weight)
{
    for (size_t f = 0; f <= MIXED; f++) {
        product p = make_product(50, 70, 400, 1, f < MIXED ? mixed[f] : all_f32);
        check_grad_input(&p, false);
        check_grad_input(&p, true);
        free_product(&p);
    }
}

static void check_dbias(const product *p, sl_kernel_args *a, const stored *dy, stored *dbias, int64_t rows, bool add)
{
    int64_t out = dbias->count;
    for (int isa = 0; isa <= last_path; isa++) {
        const sl_kernel *kernels = path_kernels_of((sl_isa)isa, kernel_type_of(p->a.form));
        if (kernels == NULL) continue;
        REQUIRE_OK(sl_pool_create(2, &a->pool));
        restore(dbias);
        kernels[SL_OP_LINEAR_GRAD_WEIGHT](a);
        sl_pool_destroy(a->pool);
        for (int64_t j = 0; j < out; j++) {
            float sum = 0.0f;
            for (int64_t r = 0; r < rows; r++) sum += dy->values[r * out + j];
            CHECK(stored_at(dbias, j) == rounded(add ? dbias->values[j] + sum : sum, dbias->form));
        }
    }
}

/* dw = dy^T x over `rows` tokens as [out,in] = [m,n], or x^T dy as [in,out] = [m,n]; dbias = column sums of dy. */
static void check_grad_weight(int64_t out, int64_t in, int64_t rows, bool in_out, uint32_t accumulate, forms f)
{
    product p = make_product(in_out ? in : out, in_out ? out : in, rows, 1, f);
    stored *dy = in_out ? &p.b : &p.a, dbias = make_stored(out, f.c, 6);
    sl_shape sdy = { 2, { rows, out } }, sx = { 2, { rows, in } }, sw = { 2, { p.m, p.n } }, sb = { 1, { out } };
    sl_attrs attrs = { .accumulate = accumulate, .linear = { in_out } };
    sl_kernel_args a = { .attrs = &attrs, .input_count = 2, .output_count = 2 };
    a.in[0] = tensor_of(dy, &sdy);
    a.in[1] = tensor_of(in_out ? &p.a : &p.b, &sx);
    a.out[0] = tensor_of(&p.c, &sw);
    a.out[1] = (sl_tensor){ .shape = &sb };
    plain(&p, true, false, false, accumulate & 1);
    run_everywhere(&p, SL_OP_LINEAR_GRAD_WEIGHT, &a, "linear_grad_weight");
    a.out[0].data = NULL;
    a.out[1] = tensor_of(&dbias, &sb);
    check_dbias(&p, &a, dy, &dbias, rows, accumulate & 2);
    free_stored(&dbias);
    free_product(&p);
}

TEST(the_gradient_of_a_linear_weight_sums_tokens_in_order)
{
    check_grad_weight(70, 33, 500, false, 0, all_f32);
    check_grad_weight(70, 33, 500, true, 0, all_f32);
    check_grad_weight(130, 20, 77, false, 3, all_f32);
    check_grad_weight(64, 5, 9, true, 1, all_f32);
    for (size_t f = 0; f < MIXED; f++) check_grad_weight(80, 33, 400, f % 2, f % 4, mixed[f]);
}
