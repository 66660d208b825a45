/* attention_test.c: attention and its gradient against a plain version in double that forms the whole matrix of scores,
 * and against themselves: every instruction path and number of threads gives the same bits. */
#include "test.h"

#include "core/thread.h"
#include "support/kernel_paths.h"
#include "support/stored_forms.h"

typedef struct attention_case {
    int64_t batches, queries, keys;
    int heads, kv_heads, width;
    bool causal, packed;
    int window;    /* 0: none */
    int documents; /* about how long; 0: no positions */
    float softcap; /* 0: none */
    float scale;   /* 0: 1/sqrt(width) */
} attention_case;

static const attention_case cases[] = {
    { 1, 1, 1, 1, 1, 8, true, true, 0, 0, 0, 0 },
    { 2, 17, 17, 2, 2, 16, true, true, 0, 0, 0, 0 },
    { 1, 130, 130, 2, 1, 32, true, true, 0, 0, 0, 0 },
    { 1, 130, 130, 2, 2, 64, false, true, 0, 0, 0, 0 },
    { 2, 65, 65, 4, 2, 24, true, false, 0, 0, 0, 0 },
    { 1, 64, 200, 2, 2, 40, false, false, 0, 0, 0, 0 },
    { 1, 1, 130, 2, 1, 32, false, false, 0, 0, 0, 0 },
    { 1, 257, 257, 3, 1, 64, true, false, 0, 0, 0, 0 },
    { 1, 200, 3, 1, 1, 5, false, false, 0, 0, 0, 0 },
    { 1, 33, 129, 6, 3, 128, false, false, 0, 0, 0, 0 },
    { 1, 150, 150, 1, 1, 1, true, true, 0, 0, 0, 0 },
    { 1, 20, 20, 1, 1, 700, true, true, 0, 0, 0, 0 },
    /* windows: of one key, inside a block, of a block, over several, longer than the row */
    { 2, 17, 17, 2, 1, 16, true, true, 1, 0, 0, 0 },
    { 1, 300, 300, 2, 1, 32, true, true, 5, 0, 0, 0 },
    { 1, 300, 300, 1, 1, 64, true, true, 128, 0, 0, 0 },
    { 1, 550, 550, 1, 1, 8, true, false, 200, 0, 0, 0 },
    { 1, 130, 130, 4, 2, 128, true, true, 1000, 0, 0, 0 },
    /* documents: many in a block, over several blocks, in rows that differ */
    { 3, 70, 70, 2, 1, 16, true, true, 0, 4, 0, 0 },
    { 1, 550, 550, 2, 1, 16, true, true, 0, 150, 0, 0 },
    { 2, 140, 140, 2, 1, 64, true, false, 0, 40, 0, 0 },
    { 1, 40, 40, 1, 1, 700, true, true, 0, 9, 0, 0 },
    /* capped scores, with a scale of their own */
    { 1, 130, 130, 2, 1, 32, true, true, 0, 0, 1.5f, 0 },
    { 2, 33, 70, 2, 2, 40, false, false, 0, 0, 0.7f, 0.3f },
    { 1, 65, 65, 2, 1, 64, true, true, 0, 0, 0, 0.05f },
    /* all of it, in heads as wide as models have */
    { 1, 300, 300, 2, 1, 32, true, true, 50, 70, 2.0f, 0.2f },
    { 1, 150, 150, 2, 1, 64, true, false, 33, 100, 1.0f, 0 },
    { 1, 100, 100, 2, 1, 96, true, true, 60, 40, 3.0f, 0 },
    { 1, 160, 160, 2, 1, 128, true, true, 64, 90, 0, 0 },
    { 1, 90, 90, 2, 1, 256, true, true, 40, 50, 1.2f, 0.08f },
    { 1, 50, 50, 1, 1, 256, true, false, 0, 0, 1.2f, 0 },
};

static float scale_of(const attention_case *c)
{
    return c->scale > 0 ? c->scale : 1.0f / sqrtf((float)c->width);
}

/* Documents of a third of the length to twice it, of one token now and then; another order in each row. NULL: none. */
static int32_t *positions_of(const attention_case *c)
{
    if (c->documents == 0) return NULL;
    int32_t *p = calloc((size_t)(c->batches * c->queries), sizeof *p);
    if (p == NULL) exit(99);
    uint32_t state = 7;
    for (int64_t b = 0; b < c->batches; b++)
        for (int64_t t = 0, left = 0; t < c->queries; t++, left--) {
            state = state * 1664525u + 1013904223u;
            bool begins = left == 0;
            if (begins) left = state >> 29 == 0 ? 1 : c->documents / 3 + 1 + (int64_t)(state >> 8) % (2 * c->documents);
            p[b * c->queries + t] = begins ? 0 : p[b * c->queries + t - 1] + 1;
        }
    return p;
}

static bool sees(const attention_case *c, const int32_t *positions, int64_t query, int64_t key)
{
    if (!c->causal) return true;
    if (c->window > 0 && key <= query - c->window) return false;
    return key <= query && (positions == NULL || key >= query - positions[query]);
}

/* Operands and results. Packed cases keep q, k and v in one array; views point into it. */
typedef struct buffers {
    int64_t q_row, k_row; /* elements between rows */
    int64_t q_count, k_count, out_count, lse_count;
    float *storage[3], *gradient[3]; /* 1 array when packed, otherwise 3 */
    float *q, *k, *v, *dq, *dk, *dv, *out, *lse, *dout;
    int32_t *positions; /* NULL: none */
} buffers;

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
    b.positions = positions_of(c);
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
    free(b->positions);
    free(b->out);
    free(b->lse);
    free(b->dout);
}

/* One run of the kernels: the operands in their form, at their exact size. */
typedef struct typed {
    sl_form form;
    int operands; /* 1 when packed, otherwise 3 */
    stored in[3], gradient[3], out, dout, lse;
    int32_t *positions; /* borrowed */
    sl_shape q, k, o, l, p;
    sl_attrs attrs;
} typed;

static stored copy_of(const float *values, int64_t count, sl_form form)
{
    stored s = make_stored(count, form, 1);
    for (int64_t i = 0; i < count; i++) s.values[i] = values[i];
    restore(&s);
    return s;
}

static typed make_typed(const attention_case *c, const buffers *b, sl_form form)
{
    typed t = { .form = form, .operands = c->packed ? 1 : 3, .positions = b->positions };
    t.q = (sl_shape){ 3, { c->batches, c->queries, b->q_row } };
    t.k = (sl_shape){ 3, { c->batches, c->keys, b->k_row } };
    t.o = (sl_shape){ 3, { c->batches, c->queries, c->heads * c->width } };
    t.l = (sl_shape){ 3, { c->batches, c->heads, c->queries } };
    t.attrs.attention.heads = c->heads;
    t.attrs.attention.kv_heads = c->kv_heads;
    t.attrs.attention.head_width = c->width;
    t.attrs.attention.causal = c->causal;
    t.attrs.attention.packed = c->packed;
    t.p = (sl_shape){ 2, { c->batches, c->queries } };
    t.attrs.attention.scale = scale_of(c);
    t.attrs.attention.window = c->window;
    t.attrs.attention.softcap = c->softcap;
    for (int i = 0; i < t.operands; i++) {
        int64_t count = i == 0 ? b->q_count : b->k_count;
        t.in[i] = copy_of(b->storage[i], count, form);
        t.gradient[i] = copy_of(b->gradient[i], count, form);
    }
    t.out = copy_of(b->out, b->out_count, form);
    t.dout = copy_of(b->dout, b->out_count, form);
    t.lse = copy_of(b->lse, b->lse_count, SL_FORM_F32);
    return t;
}

/* The results back as floats. */
static void free_typed(typed *t, const buffers *b)
{
    for (int i = 0; i < t->operands; i++) {
        for (int64_t j = 0; j < t->gradient[i].count; j++) b->gradient[i][j] = stored_at(&t->gradient[i], j);
        free_stored(&t->in[i]);
        free_stored(&t->gradient[i]);
    }
    for (int64_t j = 0; j < b->out_count; j++) b->out[j] = stored_at(&t->out, j);
    for (int64_t j = 0; j < b->lse_count; j++) b->lse[j] = stored_at(&t->lse, j);
    free_stored(&t->out);
    free_stored(&t->dout);
    free_stored(&t->lse);
}

/* wanted: bit i is the gradient of operand i. */
static void run_typed(const typed *t, const sl_kernel *kernels, sl_pool *pool, unsigned wanted)
{
    sl_kernel_args a = { .attrs = &t->attrs, .input_count = t->operands, .output_count = 2, .pool = pool };
    for (int i = 0; i < t->operands; i++) a.in[i] = tensor_of(&t->in[i], i == 0 ? &t->q : &t->k);
    int saved = t->operands + (t->positions != NULL);
    if (t->positions != NULL)
        a.in[a.input_count++] = (sl_tensor){ t->positions, &t->p, t->p.dim[0] * t->p.dim[1], SL_FORM_I32 };
    a.out[0] = tensor_of(&t->out, &t->o);
    a.out[1] = tensor_of(&t->lse, &t->l);
    kernels[SL_OP_ATTENTION](&a);
    a.input_count += 3;
    a.in[saved] = tensor_of(&t->out, &t->o);
    a.in[saved + 1] = tensor_of(&t->lse, &t->l);
    a.in[saved + 2] = tensor_of(&t->dout, &t->o);
    a.output_count = t->operands;
    for (int i = 0; i < t->operands; i++) {
        a.out[i] = tensor_of(&t->gradient[i], a.in[i].shape);
        if ((wanted >> i & 1) == 0) a.out[i].data = NULL;
    }
    kernels[SL_OP_ATTENTION_GRAD](&a);
}

static void run_wanted(const attention_case *c, const buffers *b, sl_isa isa, int threads, sl_form form,
                       unsigned wanted)
{
    sl_pool *pool;
    REQUIRE_OK(sl_pool_create(threads, &pool));
    typed t = make_typed(c, b, form);
    run_typed(&t, path_kernels_of(isa, kernel_type_of(form)), pool, wanted);
    free_typed(&t, b);
    sl_pool_destroy(pool);
}

static void run_both(const attention_case *c, const buffers *b, sl_isa isa, int threads, sl_form form)
{
    run_wanted(c, b, isa, threads, form, 7);
}

/* ---- the plain version: one head, all of its scores at once ---- */

typedef struct plain_head {
    double *p, *slope;          /* [T,S]; slope: of a score by what q k^T is */
    double *out, *dq, *dk, *dv; /* [T,D], [T,D], [S,D], [S,D] */
    const int32_t *positions;   /* of the row; NULL: none */
    double *lse;                /* [T] */
} plain_head;

static void plain_forward(const attention_case *c, const float *q, const float *k, const float *v, const buffers *b,
                          plain_head *r)
{
    double scale = scale_of(c);
    for (int64_t t = 0; t < c->queries; t++) {
        double *p = r->p + t * c->keys, sum = 0.0;
        for (int64_t s = 0; s < c->keys; s++) {
            double score = 0.0;
            for (int64_t d = 0; d < c->width; d++) score += (double)q[t * b->q_row + d] * k[s * b->k_row + d];
            double bent = c->softcap > 0 ? tanh(score * scale / c->softcap) : 0;
            r->slope[t * c->keys + s] = scale * (1 - bent * bent);
            score = c->softcap > 0 ? c->softcap * bent : score * scale;
            p[s] = sees(c, r->positions, t, s) ? exp(score) : 0.0;
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
    int64_t width = c->width, out_row = c->heads * c->width;
    for (int64_t t = 0; t < c->queries; t++) {
        const float *g = dout + t * out_row;
        double delta = 0.0;
        for (int64_t d = 0; d < width; d++) delta += g[d] * r->out[t * width + d];
        for (int64_t s = 0; s < c->keys; s++) {
            double p = r->p[t * c->keys + s], dp = 0.0;
            for (int64_t d = 0; d < width; d++) dp += (double)g[d] * v[s * b->k_row + d];
            double ds = p * (dp - delta) * r->slope[t * c->keys + s];
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

/* How far results may lie from the plain version: rounded once, and in backward from an output that was rounded. */
typedef struct tolerance {
    double out, lse, dq, dk;
} tolerance;

static void compare_batch(const attention_case *c, const buffers *b, int64_t batch, tolerance near)
{
    int64_t group = c->heads / c->kv_heads, w = c->width, out_row = c->heads * w;
    plain_head r = { .p = zeros(c->queries * c->keys),
                     .slope = zeros(c->queries * c->keys),
                     .out = zeros(c->queries * w),
                     .lse = zeros(c->queries),
                     .positions = b->positions != NULL ? b->positions + batch * c->queries : NULL };
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
        CHECK_NEAR(largest_difference(b->out + out_at + h * w, out_row, r.out, c->queries, w), 0.0, near.out);
        CHECK_NEAR(largest_difference(b->lse + (batch * c->heads + h) * c->queries, 1, r.lse, c->queries, 1), 0.0,
                   near.lse);
        CHECK_NEAR(largest_difference(b->dq + q_at + h * w, b->q_row, r.dq, c->queries, w), 0.0, near.dq);
        if ((h + 1) % group == 0) {
            CHECK_NEAR(largest_difference(b->dk + k_at + h / group * w, b->k_row, r.dk, c->keys, w), 0.0, near.dk);
            CHECK_NEAR(largest_difference(b->dv + k_at + h / group * w, b->k_row, r.dv, c->keys, w), 0.0, near.dk);
            free(r.dk);
            free(r.dv);
        }
        free(r.dq);
    }
    free(r.p);
    free(r.slope);
    free(r.out);
    free(r.lse);
}

static const struct {
    sl_form form;
    tolerance near;
} accuracy[] = { { SL_FORM_F32, { 1e-5, 8e-6, 1e-5, 3e-5 } },
                 { SL_FORM_BF16, { 8e-3, 8e-6, 3e-2, 5e-2 } },
                 { SL_FORM_F16, { 1e-3, 8e-6, 4e-3, 6e-3 } } };

static buffers make_rounded(const attention_case *c, sl_form form)
{
    buffers b = make_buffers(c);
    for (int i = 0; i < (c->packed ? 1 : 3); i++)
        for (int64_t j = 0; j < (i == 0 ? b.q_count : b.k_count); j++) b.storage[i][j] = rounded(b.storage[i][j], form);
    for (int64_t j = 0; j < b.out_count; j++) b.dout[j] = rounded(b.dout[j], form);
    return b;
}

/* The best path whose bits are everyone's. */
static sl_isa fastest(void)
{
    return sl_isa_best() > SL_ISA_AVX512 ? SL_ISA_AVX512 : sl_isa_best();
}

TEST(attention_and_its_gradient_agree_with_the_plain_version)
{
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (size_t f = 0; f < 3; f++) {
            buffers b = make_rounded(&cases[i], accuracy[f].form);
            run_both(&cases[i], &b, fastest(), 2, accuracy[f].form);
            int before = test_failures;
            for (int64_t batch = 0; batch < cases[i].batches; batch++)
                compare_batch(&cases[i], &b, batch, accuracy[f].near);
            if (test_failures > before) fprintf(stderr, "in case %zu, form %d\n", i, (int)accuracy[f].form);
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

/* Up to five threads: more than some cases have key heads, so that dq is walked by itself. */
TEST(attention_has_the_same_bits_on_every_path_and_number_of_threads)
{
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (size_t f = 0; f < 3; f++) {
            if (f > 0 && i % 2 != f - 1) continue; /* the slow path takes its time */
            buffers first = make_buffers(&cases[i]);
            run_both(&cases[i], &first, SL_ISA_SCALAR, 1, accuracy[f].form);
            for (int isa = 0; isa <= SL_ISA_AVX512 && path_kernels((sl_isa)isa) != NULL; isa++)
                for (int threads = isa == SL_ISA_SCALAR ? 5 : 1; threads <= 5; threads += 4) {
                    buffers b = make_buffers(&cases[i]);
                    run_both(&cases[i], &b, (sl_isa)isa, threads, accuracy[f].form);
                    if (!same_bits(&cases[i], &first, &b))
                        test_fail(__FILE__, __LINE__, "case %zu, form %d, %s, %d threads: other bits", i,
                                  (int)accuracy[f].form, sl_isa_name((sl_isa)isa), threads);
                    free_buffers(&b);
                }
            free_buffers(&first);
        }
}

/* ---- on AMX tiles: bf16 alone ---- */

void sl_k_amx_attention_scalar_emulated(const sl_kernel_args *a);
void sl_k_amx_attention_grad_scalar_emulated(const sl_kernel_args *a);
#if defined(__x86_64__)
void sl_k_amx_attention_avx512_emulated(const sl_kernel_args *a);
void sl_k_amx_attention_grad_avx512_emulated(const sl_kernel_args *a);
void sl_k_amx_attention_avx512(const sl_kernel_args *a);
void sl_k_amx_attention_grad_avx512(const sl_kernel_args *a);
#endif

/* The tiles in plain C, with the packing of AVX-512, and themselves: as many as this CPU can run. */
static int amx_tables(sl_kernel out[3][SL_OP_COUNT])
{
    int count = 0;
    out[count][SL_OP_ATTENTION] = sl_k_amx_attention_scalar_emulated;
    out[count++][SL_OP_ATTENTION_GRAD] = sl_k_amx_attention_grad_scalar_emulated;
#if defined(__x86_64__)
    if (sl_isa_best() >= SL_ISA_AVX512) {
        out[count][SL_OP_ATTENTION] = sl_k_amx_attention_avx512_emulated;
        out[count++][SL_OP_ATTENTION_GRAD] = sl_k_amx_attention_grad_avx512_emulated;
    }
    if (sl_isa_best() >= SL_ISA_AMX) {
        out[count][SL_OP_ATTENTION] = sl_k_amx_attention_avx512;
        out[count++][SL_OP_ATTENTION_GRAD] = sl_k_amx_attention_grad_avx512;
    }
#endif
    return count;
}

static void run_table(const attention_case *c, const buffers *b, const sl_kernel *kernels, int threads)
{
    sl_pool *pool;
    REQUIRE_OK(sl_pool_create(threads, &pool));
    typed t = make_typed(c, b, SL_FORM_BF16);
    run_typed(&t, kernels, pool, 7);
    free_typed(&t, b);
    sl_pool_destroy(pool);
}

TEST(attention_on_amx_tiles_agrees_with_the_plain_version)
{
    static const tolerance near = { 1.6e-2, 8e-6, 4e-2, 8e-2 };
    sl_kernel tables[3][SL_OP_COUNT] = { { 0 } };
    int count = amx_tables(tables);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int p = 0; p < count; p++) {
            buffers b = make_rounded(&cases[i], SL_FORM_BF16);
            run_table(&cases[i], &b, tables[p], 2);
            int before = test_failures;
            for (int64_t batch = 0; batch < cases[i].batches; batch++) compare_batch(&cases[i], &b, batch, near);
            if (test_failures > before) fprintf(stderr, "in case %zu, path %d\n", i, p);
            free_buffers(&b);
        }
}

/* The two emulations are held to each other, and each path to itself. */
TEST(attention_on_amx_tiles_has_the_same_bits_for_every_number_of_threads)
{
    sl_kernel tables[3][SL_OP_COUNT] = { { 0 } };
    int count = amx_tables(tables);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        buffers first = make_buffers(&cases[i]);
        for (int p = 0; p < count; p++) {
            if (p != 1) run_table(&cases[i], &first, tables[p], 1);
            for (int threads = p == 1 ? 1 : 5; threads <= 5; threads += 4) {
                buffers b = make_buffers(&cases[i]);
                run_table(&cases[i], &b, tables[p], threads);
                if (!same_bits(&cases[i], &first, &b))
                    test_fail(__FILE__, __LINE__, "case %zu, path %d, %d threads: other bits", i, p, threads);
                free_buffers(&b);
            }
        }
        free_buffers(&first);
    }
}

TEST(attention_of_huge_scores_stays_finite)
{
    attention_case c = { 1, 70, 70, 1, 1, 16, true, true, 0, 0, 0, 0 };
    buffers b = make_buffers(&c);
    for (int64_t i = 0; i < b.q_count; i++) b.q[i] *= 100.0f;
    run_both(&c, &b, SL_ISA_SCALAR, 1, SL_FORM_F32);
    for (int64_t i = 0; i < b.out_count; i++) CHECK(isfinite(b.out[i]));
    for (int64_t i = 0; i < b.q_count; i++) CHECK(isfinite(b.dq[i]));
    free_buffers(&b);
}

TEST(attention_leaves_out_gradients_nobody_wants)
{
    attention_case c = { 1, 30, 40, 2, 1, 16, false, false, 0, 0, 0, 0 };
    for (unsigned wanted = 0; wanted < 8; wanted++)
        for (int threads = 1; threads <= 2; threads++) {
            buffers all = make_buffers(&c), some = make_buffers(&c), before = make_buffers(&c);
            run_both(&c, &all, SL_ISA_SCALAR, threads, SL_FORM_F32);
            run_wanted(&c, &some, SL_ISA_SCALAR, threads, SL_FORM_F32, wanted);
            for (int i = 0; i < 3; i++) {
                const float *expected = (wanted >> i & 1 ? all : before).gradient[i];
                CHECK(memcmp(some.gradient[i], expected, (size_t)(i == 0 ? all.q_count : all.k_count) * 4) == 0);
            }
            free_buffers(&all);
            free_buffers(&some);
            free_buffers(&before);
        }
}
