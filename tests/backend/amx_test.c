/* amx_test.c: products on AMX tiles against sums in double. Everywhere with the tiles in plain C; on the tiles
 * themselves where the CPU has them. */
#include "test.h"

#include "core/thread.h"
#include "support/stored_forms.h"

#define SL_AMX_EMULATED
#include "backend/cpu/kernels/amx.h"

#if defined(__x86_64__)
void sl_k_amx_gemm_avx512_emulated(sl_pool *pool, const sl_gemm *g);
void sl_k_amx_gemm_avx512(sl_pool *pool, const sl_gemm *g);
#endif

typedef void (*gemm_fn)(sl_pool *pool, const sl_gemm *g);

/* NULL where this CPU cannot run it. */
typedef struct path {
    const char *name;
    gemm_fn run;
} path;

static int paths_here(path out[3])
{
    int count = 0;
    out[count++] = (path){ "plain", sl_k_amx_gemm_scalar_emulated };
#if defined(__x86_64__)
    if (sl_isa_best() >= SL_ISA_AVX512) out[count++] = (path){ "avx512", sl_k_amx_gemm_avx512_emulated };
    if (sl_isa_best() >= SL_ISA_AMX) out[count++] = (path){ "tiles", sl_k_amx_gemm_avx512 };
#endif
    return count;
}

/* Around every boundary of tiles, blocks, groups, blocks of k and tasks. */
static const int64_t shapes[][3] = {
    { 1, 1, 1 },      { 1, 1, 2 },      { 16, 16, 32 },  { 17, 15, 31 }, { 15, 17, 33 },  { 32, 32, 64 },
    { 33, 31, 65 },   { 31, 33, 63 },   { 48, 64, 96 },  { 5, 100, 7 },  { 100, 3, 130 }, { 64, 48, 384 },
    { 20, 40, 1025 }, { 40, 17, 2100 }, { 2, 33, 3000 }, { 300, 5, 20 }, { 5, 500, 20 },  { 2100, 33, 3 },
    { 33, 2100, 3 },  { 70, 70, 70 },   { 257, 40, 33 },
};
#define SHAPES (sizeof shapes / sizeof shapes[0])

/* How a product is asked for. */
typedef struct request {
    int64_t m, n, k, batches;
    bool a_turned, b_turned, add, with_bias;
    sl_form c, bias;
    int64_t padding; /* elements between rows of c that are not its own */
} request;

typedef struct product {
    request r;
    stored a, b, c, bias;
    int64_t c_row;
} product;

static product make_product(request r)
{
    product p = { .r = r, .c_row = r.n + r.padding };
    p.a = make_stored(r.batches * r.m * r.k, SL_FORM_BF16, 1);
    p.b = make_stored(r.batches * r.k * r.n, SL_FORM_BF16, 2);
    p.c = make_stored(r.batches * r.m * p.c_row, r.c, 3);
    p.bias = make_stored(r.n, r.bias, 4);
    return p;
}

static void free_product(product *p)
{
    free_stored(&p->a);
    free_stored(&p->b);
    free_stored(&p->c);
    free_stored(&p->bias);
}

static void run_product(product *p, gemm_fn run, int threads)
{
    const request *r = &p->r;
    sl_gemm g = { .m = r->m, .n = r->n, .k = r->k, .c = p->c.data, .c_form = r->c, .c_row = p->c_row };
    g.a = (sl_matrix){ p->a.data, r->a_turned ? 1 : r->k, r->a_turned ? r->m : 1, SL_FORM_BF16 };
    g.b = (sl_matrix){ p->b.data, r->b_turned ? 1 : r->n, r->b_turned ? r->k : 1, SL_FORM_BF16 };
    g.bias = r->with_bias ? p->bias.data : NULL;
    g.bias_form = r->bias;
    g.accumulate = r->add;
    g.batches = r->batches;
    g.a_batch = r->m * r->k;
    g.b_batch = r->k * r->n;
    g.c_batch = r->m * p->c_row;
    CHECK(sl_amx_takes(&g));
    sl_pool *pool;
    REQUIRE_OK(sl_pool_create(threads, &pool));
    restore(&p->c);
    run(pool, &g);
    sl_pool_destroy(pool);
}

/* One element in double, and how far f32 sums of thirty-two k at a time, rounded once more, may be from it. */
static double exact(const product *p, int64_t batch, int64_t row, int64_t column, double *near)
{
    const request *r = &p->r;
    const float *a = p->a.values + batch * r->m * r->k, *b = p->b.values + batch * r->k * r->n;
    double sum = 0.0, size = 0.0;
    for (int64_t k = 0; k < r->k; k++) {
        double x = (double)(r->a_turned ? a[k * r->m + row] : a[row * r->k + k]) *
                   (double)(r->b_turned ? b[column * r->k + k] : b[k * r->n + column]);
        sum += x;
        size += fabs(x);
    }
    if (r->with_bias) sum += (double)p->bias.values[column];
    if (r->add) sum += (double)p->c.values[(batch * r->m + row) * p->c_row + column];
    double last = r->c == SL_FORM_BF16 ? 0x1p-9 : r->c == SL_FORM_F16 ? 0x1p-12 : 0x1p-24;
    *near = size * 0x1p-24 * ((double)r->k / 16.0 + 20.0) + 2.0 * last * fabs(sum) + 0x1p-20;
    return sum;
}

static void compare(const product *p, const char *name)
{
    const request *r = &p->r;
    for (int64_t i = 0; i < r->batches * r->m * p->c_row; i++) {
        int64_t row = i / p->c_row, column = i % p->c_row;
        double near = 0.0, have = (double)stored_at(&p->c, i), want = (double)p->c.values[i];
        if (column < r->n) want = exact(p, row / r->m, row % r->m, column, &near);
        if (fabs(have - want) <= near) continue;
        test_fail(__FILE__, __LINE__, "%s: m %lld n %lld k %lld, turned %d %d, form %d: element %lld is %.9g, not %.9g",
                  name, (long long)r->m, (long long)r->n, (long long)r->k, r->a_turned, r->b_turned, (int)r->c,
                  (long long)i, have, want);
        return;
    }
}

static void check(request r)
{
    path paths[3];
    int count = paths_here(paths);
    for (int i = 0; i < count; i++) {
        product p = make_product(r);
        run_product(&p, paths[i].run, 2);
        compare(&p, paths[i].name);
        free_product(&p);
    }
}

TEST(amx_products_of_every_layout_are_near_the_exact_sum)
{
    for (size_t s = 0; s < SHAPES; s++)
        for (int layout = 0; layout < 4; layout++)
            check((request){ shapes[s][0], shapes[s][1], shapes[s][2], 1, layout & 1, layout & 2, .c = SL_FORM_F32 });
}

TEST(amx_products_add_bias_and_old_values_in_every_form)
{
    static const sl_form forms[] = { SL_FORM_F32, SL_FORM_BF16, SL_FORM_F16 };
    for (int c = 0; c < 3; c++)
        for (int bias = 0; bias < 3; bias++)
            for (int add = 0; add < 2; add++) {
                check((request){ 40, 37, 50, 1, false, true, add, true, forms[c], forms[bias], 3 });
                check((request){ 33, 70, 400, 1, true, false, add, add, forms[c], forms[bias], 0 });
            }
}

TEST(amx_products_take_each_batch_by_itself)
{
    check((request){ 37, 19, 23, 5, false, true, false, false, SL_FORM_F32, SL_FORM_F32, 0 });
    check((request){ 33, 20, 40, 3, true, false, true, true, SL_FORM_BF16, SL_FORM_BF16, 1 });
}

/* The operands of sl_amx_takes may have any strides. */
TEST(amx_products_take_operands_of_any_strides)
{
    enum { M = 20, N = 35, K = 45 };
    stored a = make_stored(3 * M * K * 2, SL_FORM_BF16, 1), b = make_stored(5 * N * K, SL_FORM_BF16, 2);
    stored c = make_stored(M * N, SL_FORM_F32, 3);
    sl_gemm g = { .m = M, .n = N, .k = K, .c = c.data, .c_row = N };
    g.a = (sl_matrix){ a.data, 3 * K, 3, SL_FORM_BF16 };
    g.b = (sl_matrix){ b.data, 5, 5 * K, SL_FORM_BF16 };
    sl_pool *pool;
    REQUIRE_OK(sl_pool_create(1, &pool));
    path paths[3];
    int count = paths_here(paths);
    for (int p = 0; p < count; p++) {
        paths[p].run(pool, &g);
        for (int i = 0; i < M * N; i++) {
            double sum = 0.0;
            for (int k = 0; k < K; k++)
                sum += (double)a.values[i / N * 3 * K + 3 * k] * (double)b.values[5 * k + i % N * 5 * K];
            CHECK_NEAR((double)stored_at(&c, i), sum, 1e-5);
        }
    }
    sl_pool_destroy(pool);
    free_stored(&a);
    free_stored(&b);
    free_stored(&c);
}

/* ---- operands that are gathered, rows that have places ---- */

typedef struct copier {
    sl_window_gather gather;
    sl_matrix from;
    int64_t batch;
} copier;

static void copy_elements(const sl_window_gather *gather, int64_t batch, int64_t row, int64_t rows, int64_t column,
                          int64_t columns, void *dst, int64_t apart, bool own)
{
    const copier *c = (const copier *)(const void *)gather;
    const uint16_t *from = (const uint16_t *)c->from.data + batch * c->batch;
    CHECK(own);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++)
            ((uint16_t *)dst)[i * apart + j] = from[(row + i) * c->from.row + (column + j) * c->from.column];
}

typedef struct backwards {
    sl_places places;
    int64_t rows, row;
} backwards;

static int64_t from_the_end(const sl_places *places, int64_t row)
{
    const backwards *b = (const backwards *)(const void *)places;
    return (b->rows - 1 - row) * b->row;
}

/* The product with A or B gathered, and rows of C in the other order, against the one without. */
static void check_gathered(const path *way, const int64_t *s, bool right, sl_form form, bool add)
{
    enum { BATCHES = 2 };
    const int64_t m = s[0], n = s[1], k = s[2];
    stored a = make_stored(BATCHES * m * k, SL_FORM_BF16, 1), b = make_stored(BATCHES * k * n, SL_FORM_BF16, 2);
    stored c = make_stored(BATCHES * m * n, form, 3), turned = make_stored(BATCHES * m * n, form, 3);
    const size_t bytes = (size_t)n * (form == SL_FORM_F32 ? 4 : 2);
    sl_gemm g = { .m = m, .n = n, .k = k, .c = c.data, .c_form = form, .c_row = n, .accumulate = add };
    g.batches = BATCHES, g.a_batch = m * k, g.b_batch = k * n, g.c_batch = m * n;
    g.a = (sl_matrix){ a.data, k, 1, SL_FORM_BF16 };
    g.b = (sl_matrix){ b.data, n, 1, SL_FORM_BF16 };
    sl_pool *pool;
    REQUIRE_OK(sl_pool_create(2, &pool));
    for (int64_t r = 0; r < BATCHES * m; r++)
        memcpy((char *)turned.data + (size_t)(r / m * m + m - 1 - r % m) * bytes, (char *)c.data + (size_t)r * bytes,
               bytes);
    way->run(pool, &g);
    const copier copy = { { .fill = copy_elements }, right ? g.b : g.a, right ? k * n : m * k };
    const backwards places = { { from_the_end }, m, n };
    *(right ? &g.gather_b : &g.gather_a) = &copy.gather;
    (right ? &g.b : &g.a)->data = NULL;
    g.places = &places.places;
    g.c = turned.data;
    way->run(pool, &g);
    for (int64_t r = 0; r < BATCHES * m; r++)
        if (memcmp((char *)turned.data + (size_t)(r / m * m + m - 1 - r % m) * bytes,
                   (char *)c.data + (size_t)r * bytes, bytes) != 0)
            test_fail(__FILE__, __LINE__, "%s: m %lld n %lld k %lld, gathered %s: row %lld has other bits", way->name,
                      (long long)m, (long long)n, (long long)k, right ? "B" : "A", (long long)r);
    sl_pool_destroy(pool);
    free_stored(&a);
    free_stored(&b);
    free_stored(&c);
    free_stored(&turned);
}

TEST(amx_products_of_gathered_operands_have_the_bits_of_those_in_memory)
{
    static const int64_t some[][3] = { { 5, 7, 33 }, { 130, 70, 40 }, { 33, 300, 1060 }, { 140, 33, 2080 } };
    path paths[3];
    int count = paths_here(paths);
    for (int i = 0; i < count; i++)
        for (int s = 0; s < 4; s++)
            for (int right = 0; right < 2; right++) {
                check_gathered(&paths[i], some[s], right, SL_FORM_F32, false);
                check_gathered(&paths[i], some[s], right, SL_FORM_BF16, true);
            }
}

TEST(amx_products_have_the_same_bits_for_every_number_of_threads_and_packing)
{
    static const int64_t some[][3] = { { 130, 70, 40 }, { 33, 100, 1060 }, { 70, 33, 2080 } };
    path paths[3];
    int count = paths_here(paths);
    for (int s = 0; s < 3; s++)
        for (int layout = 0; layout < 4; layout++) {
            request r = { some[s][0], some[s][1], some[s][2], 1, layout & 1, layout & 2, .c = SL_FORM_F32 };
            product first = make_product(r);
            for (int i = 0; i < count; i++) {
                if (i != 1) run_product(&first, paths[i].run, 1); /* the two emulations are held to each other */
                for (int threads = i == 1 ? 1 : 2; threads <= 5; threads += 3) {
                    product p = make_product(r);
                    run_product(&p, paths[i].run, threads);
                    if (memcmp(p.c.data, first.c.data, (size_t)(r.m * r.n) * sizeof(float)) != 0)
                        test_fail(__FILE__, __LINE__, "%s, %d threads: other bits", paths[i].name, threads);
                    free_product(&p);
                }
            }
            free_product(&first);
        }
}

/* A NaN or an infinity spoils its row or its column, and the zeros that fill tiles up do not spread it. */
TEST(amx_products_keep_what_is_not_finite_in_its_row_and_column)
{
    request r = { 20, 20, 40, 1, false, true, .c = SL_FORM_F32 };
    path paths[3];
    int count = paths_here(paths);
    for (int i = 0; i < count; i++) {
        product p = make_product(r);
        ((uint16_t *)p.a.data)[3 * 40 + 39] = 0x7fc0; /* a[3][39] */
        ((uint16_t *)p.b.data)[7 * 40 + 0] = 0x7f80;  /* b[0][7] */
        run_product(&p, paths[i].run, 1);
        for (int64_t e = 0; e < 400; e++) CHECK(!isfinite(stored_at(&p.c, e)) == (e / 20 == 3 || e % 20 == 7));
        free_product(&p);
    }
}
