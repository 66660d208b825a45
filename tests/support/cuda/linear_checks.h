/* linear_checks.h: the ops of linear.c and head.c against sums in double, called as the backend calls them: every
 * layout, form, accumulation and absence, parameters that lie at odd addresses, rounding within bounds. The memory
 * comes from whoever includes this: ordinary in the emulation, shared with the GPU otherwise. */
#ifndef SLUICE_TEST_LINEAR_CHECKS_H
#define SLUICE_TEST_LINEAR_CHECKS_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/cuda_gemm.h"
#include "backend/cuda/library.h"
#include "backend/cuda/linear_size.h"
#include "core/half.h"

typedef struct checks {
    void *(*alloc)(size_t bytes); /* 256-byte aligned, seen by host and device */
    void (*release)(void *p);
    void (*finish)(void); /* waits for the device */
    void (*fail)(const char *text);
    sl_cuda_libraries *libraries;
    void *workspace;
    uint64_t workspace_bytes;
    double product_error; /* of one product, relative: 2^-24, or 2^-10 in tf32 */
} checks;

enum { CHECK_FORMS = 3 };
static const sl_form check_forms[CHECK_FORMS] = { SL_FORM_F32, SL_FORM_BF16, SL_FORM_F16 };

/* ---- operands ---- */

typedef struct operand {
    void *base; /* what was allocated */
    void *data; /* `shift` elements behind it */
    float *before;
    int64_t count;
    sl_form form;
} operand;

static inline float check_get(const operand *o, int64_t i)
{
    if (o->form == SL_FORM_BF16) return sl_bf16_to_float(((const uint16_t *)o->data)[i]);
    if (o->form == SL_FORM_F16) return sl_f16_to_float(((const uint16_t *)o->data)[i]);
    return ((const float *)o->data)[i];
}

static inline void check_put(operand *o, int64_t i, float x)
{
    if (o->form == SL_FORM_BF16)
        ((uint16_t *)o->data)[i] = sl_float_to_bf16(x);
    else if (o->form == SL_FORM_F16)
        ((uint16_t *)o->data)[i] = sl_float_to_f16(x);
    else
        ((float *)o->data)[i] = x;
}

/* Numbers in [-1, 1) that a form holds, `shift` elements behind an aligned address. */
static inline operand check_operand(const checks *c, int64_t count, sl_form form, int shift, uint32_t seed)
{
    operand o = { .count = count, .form = form };
    uint64_t bytes = sl_linear_element_bytes(form);
    o.base = c->alloc((size_t)((uint64_t)(count + shift) * bytes));
    o.data = (char *)o.base + (uint64_t)shift * bytes;
    o.before = (float *)malloc((size_t)count * sizeof(float));
    if (o.base == NULL || o.before == NULL) abort();
    uint64_t state = seed * 0x9E3779B97F4A7C15u + 1;
    for (int64_t i = 0; i < count; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        check_put(&o, i, (float)(state >> 40) * 0x1p-23f - 1.0f);
        o.before[i] = check_get(&o, i);
    }
    return o;
}

static inline void check_drop(const checks *c, operand *o)
{
    c->release(o->base);
    free(o->before);
}

static inline sl_cuda_tensor check_tensor(const operand *o, const sl_shape *shape)
{
    sl_cuda_tensor t = { o->data, shape, o->count, o->form };
    return t;
}

static inline sl_cuda_args check_args(const checks *c, const sl_attrs *attrs, int inputs, int outputs)
{
    sl_cuda_args a;
    memset(&a, 0, sizeof a);
    a.attrs = attrs;
    a.input_count = inputs;
    a.output_count = outputs;
    a.name = "check";
    a.workspace = c->workspace;
    a.workspace_bytes = c->workspace_bytes;
    a.libraries = c->libraries;
    a.multiprocessors = 4;
    return a;
}

/* ---- comparing ---- */

static inline double check_rounding(sl_form form)
{
    return form == SL_FORM_BF16 ? 0x1p-8 : form == SL_FORM_F16 ? 0x1p-11 : 0x1p-24;
}

/* `terms` numbers whose absolute values add up to `size` were summed in f32 in some order, and rounded to a form. f16
 * may have been denormal. */
static inline bool check_close(const checks *c, double have, double want, double size, int64_t terms, sl_form form)
{
    double error = size * (c->product_error + (double)terms * 0x1p-24) + fabs(want) * check_rounding(form) * 1.01;
    return fabs(have - want) <= error + 0x1p-24;
}

static inline void check_report(const checks *c, const char *what, sl_form in, sl_form out, const int64_t *sizes,
                                int64_t element, double have, double want)
{
    char text[256];
    snprintf(text, sizeof text, "%s, form %d to %d, %lld x %lld x %lld: element %lld is %.9g, not %.9g", what, (int)in,
             (int)out, (long long)sizes[0], (long long)sizes[1], (long long)sizes[2], (long long)element, have, want);
    c->fail(text);
}

/* One factor of a product: element [i, j] is at i * row + j * column. */
typedef struct factor {
    const operand *o;
    int64_t row, column;
} factor;

/* out[m,n] is (old +) a[m,k] b[k,n] (+ bias[n]), each of `batches`; operands follow each other densely. */
static inline bool check_product(const checks *c, const char *what, factor a, factor b, const operand *bias,
                                 const operand *out, const int64_t sizes[3], int64_t batches, bool added)
{
    const int64_t m = sizes[0], n = sizes[1], k = sizes[2];
    for (int64_t i = 0; i < batches * m * n; i++) {
        int64_t batch = i / (m * n), row = i / n % m, column = i % n;
        double want = 0.0, size = 0.0;
        for (int64_t x = 0; x < k; x++) {
            double term = (double)a.o->before[batch * m * k + row * a.row + x * a.column] *
                          (double)b.o->before[batch * k * n + x * b.row + column * b.column];
            want += term;
            size += fabs(term);
        }
        double rest = (bias != NULL ? (double)bias->before[column] : 0.0) + (added ? (double)out->before[i] : 0.0);
        double have = (double)check_get(out, i);
        if (check_close(c, have, want + rest, size + fabs(rest), k + 2, out->form)) continue;
        check_report(c, what, a.o->form, out->form, sizes, i, have, want + rest);
        return false;
    }
    return true;
}

static inline void check_status(const checks *c, sluice_status st, const char *what)
{
    c->finish();
    if (st != SLUICE_OK) c->fail(what);
}

/* ---- the ops ---- */

/* m tokens, n outputs, k inputs */
static inline void check_linear(const checks *c, sl_form form, const int64_t s[3], bool in_out, bool biased, int shift)
{
    sl_shape x = { 2, { s[0], s[2] } }, w = { 2, { in_out ? s[2] : s[1], in_out ? s[1] : s[2] } };
    sl_shape b = { 1, { s[1] } }, y = { 2, { s[0], s[1] } };
    sl_attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    attrs.linear.in_out = in_out;
    operand ox = check_operand(c, s[0] * s[2], form, 0, 1), ow = check_operand(c, s[1] * s[2], form, shift, 2);
    operand ob = check_operand(c, s[1], form, shift, 3), oy = check_operand(c, s[0] * s[1], form, 0, 4);
    sl_cuda_args a = check_args(c, &attrs, biased ? 3 : 2, 1);
    a.in[0] = check_tensor(&ox, &x);
    a.in[1] = check_tensor(&ow, &w);
    if (biased) a.in[2] = check_tensor(&ob, &b);
    a.out[0] = check_tensor(&oy, &y);
    check_status(c, sl_cuda_linear(&a), "linear failed");
    factor fx = { &ox, s[2], 1 }, fw = { &ow, in_out ? s[1] : 1, in_out ? 1 : s[2] };
    check_product(c, in_out ? "linear in_out" : "linear", fx, fw, biased ? &ob : NULL, &oy, s, 1, false);
    check_drop(c, &ox);
    check_drop(c, &ow);
    check_drop(c, &ob);
    check_drop(c, &oy);
}

/* m tokens, n inputs, k outputs */
static inline void check_grad_input(const checks *c, sl_form form, const int64_t s[3], bool in_out, bool add, int shift)
{
    sl_shape dy = { 2, { s[0], s[2] } }, w = { 2, { in_out ? s[1] : s[2], in_out ? s[2] : s[1] } };
    sl_shape dx = { 2, { s[0], s[1] } };
    sl_attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    attrs.linear.in_out = in_out;
    attrs.accumulate = add;
    operand ody = check_operand(c, s[0] * s[2], form, 0, 5), ow = check_operand(c, s[1] * s[2], form, shift, 6);
    operand odx = check_operand(c, s[0] * s[1], form, 0, 7);
    sl_cuda_args a = check_args(c, &attrs, 2, 1);
    a.in[0] = check_tensor(&ody, &dy);
    a.in[1] = check_tensor(&ow, &w);
    a.out[0] = check_tensor(&odx, &dx);
    check_status(c, sl_cuda_linear_grad_input(&a), "linear_grad_input failed");
    factor fdy = { &ody, s[2], 1 }, fw = { &ow, in_out ? 1 : s[1], in_out ? s[2] : 1 };
    check_product(c, add ? "linear_grad_input added" : "linear_grad_input", fdy, fw, NULL, &odx, s, 1, add);
    check_drop(c, &ody);
    check_drop(c, &ow);
    check_drop(c, &odx);
}

static inline bool check_column_sums(const checks *c, const operand *dy, const operand *dbias, const int64_t s[3],
                                     int64_t rows, bool added)
{
    for (int64_t j = 0; j < dbias->count; j++) {
        double want = added ? (double)dbias->before[j] : 0.0, size = fabs(want);
        for (int64_t r = 0; r < rows; r++) {
            want += (double)dy->before[r * dbias->count + j];
            size += fabs((double)dy->before[r * dbias->count + j]);
        }
        if (check_close(c, (double)check_get(dbias, j), want, size, rows, dbias->form)) continue;
        check_report(c, "dbias", dy->form, dbias->form, s, j, (double)check_get(dbias, j), want);
        return false;
    }
    return true;
}

static inline void check_untouched(const checks *c, const operand *o, const char *what)
{
    for (int64_t i = 0; i < o->count; i++)
        if (check_get(o, i) != o->before[i]) {
            c->fail(what);
            return;
        }
}

/* s: outputs, inputs, tokens. Bit i of `add` and `absent` is for output i. */
static inline void check_grad_weight(const checks *c, sl_form form, sl_form dw_form, sl_form dbias_form,
                                     const int64_t s[3], bool in_out, unsigned add, unsigned absent, int shift)
{
    const int64_t sizes[3] = { in_out ? s[1] : s[0], in_out ? s[0] : s[1], s[2] };
    sl_shape dy = { 2, { s[2], s[0] } }, x = { 2, { s[2], s[1] } }, w = { 2, { sizes[0], sizes[1] } };
    sl_shape b = { 1, { s[0] } };
    sl_attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    attrs.linear.in_out = in_out;
    attrs.accumulate = add;
    operand ody = check_operand(c, s[2] * s[0], form, 0, 8), ox = check_operand(c, s[2] * s[1], form, 0, 9);
    operand ow = check_operand(c, s[0] * s[1], dw_form, shift, 10);
    operand ob = check_operand(c, s[0], dbias_form, shift, 11);
    sl_cuda_args a = check_args(c, &attrs, 2, 2);
    a.in[0] = check_tensor(&ody, &dy);
    a.in[1] = check_tensor(&ox, &x);
    a.out[0] = check_tensor(&ow, &w);
    a.out[1] = check_tensor(&ob, &b);
    if (absent & 1) a.out[0].data = NULL;
    if (absent & 2) a.out[1].data = NULL;
    check_status(c, sl_cuda_linear_grad_weight(&a), "linear_grad_weight failed");
    factor fdy = { &ody, 1, s[0] }, fx = { &ox, s[1], 1 }, fx_left = { &ox, 1, s[1] }, fdy_right = { &ody, s[0], 1 };
    if (absent & 1)
        check_untouched(c, &ow, "an absent dw was written");
    else
        check_product(c, "dw", in_out ? fx_left : fdy, in_out ? fdy_right : fx, NULL, &ow, sizes, 1, add & 1);
    if (absent & 2)
        check_untouched(c, &ob, "an absent dbias was written");
    else
        check_column_sums(c, &ody, &ob, s, s[2], (add & 2) != 0);
    check_drop(c, &ody);
    check_drop(c, &ox);
    check_drop(c, &ow);
    check_drop(c, &ob);
}

static inline void check_matmul(const checks *c, sl_form form, const int64_t s[3], int64_t batches, bool ta, bool tb,
                                bool add)
{
    sl_shape sa = { 3, { batches, ta ? s[2] : s[0], ta ? s[0] : s[2] } };
    sl_shape sb = { 3, { batches, tb ? s[1] : s[2], tb ? s[2] : s[1] } };
    sl_shape sc = { 3, { batches, s[0], s[1] } };
    sl_attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    attrs.matmul.transpose_a = ta;
    attrs.matmul.transpose_b = tb;
    attrs.accumulate = add;
    operand oa = check_operand(c, batches * s[0] * s[2], form, 0, 12);
    operand ob = check_operand(c, batches * s[1] * s[2], form, 0, 13);
    operand oc = check_operand(c, batches * s[0] * s[1], form, 0, 14);
    sl_cuda_args a = check_args(c, &attrs, 2, 1);
    a.in[0] = check_tensor(&oa, &sa);
    a.in[1] = check_tensor(&ob, &sb);
    a.out[0] = check_tensor(&oc, &sc);
    check_status(c, sl_cuda_matmul(&a), "matmul failed");
    factor fa = { &oa, ta ? 1 : s[2], ta ? s[0] : 1 }, fb = { &ob, tb ? 1 : s[1], tb ? s[2] : 1 };
    check_product(c, "matmul", fa, fb, NULL, &oc, s, batches, add);
    check_drop(c, &oa);
    check_drop(c, &ob);
    check_drop(c, &oc);
}

/* A bias's gradient has the same bits whether its rows can be loaded in vectors or not. */
static inline void check_sum_bits(const checks *c, sl_form form, int64_t rows, int64_t columns)
{
    operand x = check_operand(c, rows * columns, form, 0, 15), odd = check_operand(c, rows * columns, form, 1, 15);
    operand a_sum = check_operand(c, columns, SL_FORM_F32, 0, 16),
            b_sum = check_operand(c, columns, SL_FORM_F32, 0, 17);
    sl_shape shape = { 1, { columns } };
    sl_cuda_args a = check_args(c, NULL, 0, 0);
    sl_cuda_tensor ta = check_tensor(&a_sum, &shape), tb = check_tensor(&b_sum, &shape);
    check_status(c, sl_cuda_sum_columns(&a, form, x.data, rows, columns, columns, false, &ta), "sum_columns failed");
    check_status(c, sl_cuda_sum_columns(&a, form, odd.data, rows, columns, columns, false, &tb), "sum_columns failed");
    if (memcmp(a_sum.data, b_sum.data, (size_t)columns * sizeof(float)) != 0)
        c->fail("a sum of columns depends on alignment");
    const int64_t s[3] = { columns, 1, rows };
    check_column_sums(c, &x, &a_sum, s, rows, false);
    check_drop(c, &x);
    check_drop(c, &odd);
    check_drop(c, &a_sum);
    check_drop(c, &b_sum);
}

/* The kernel that stands in where the library has no algorithm, strides and all. */
static inline void check_plain_product(const checks *c, sl_form form, sl_form out_form, const int64_t s[3], bool ta,
                                       bool tb)
{
    operand oa = check_operand(c, s[0] * s[2], form, 1, 18), ob = check_operand(c, s[1] * s[2], form, 1, 19);
    operand bias = check_operand(c, s[1], form, 1, 20), out = check_operand(c, s[0] * s[1], out_form, 1, 21);
    sl_cuda_args a = check_args(c, NULL, 0, 0);
    sl_cuda_gemm g;
    memset(&g, 0, sizeof g);
    g.m = s[0];
    g.n = s[1];
    g.k = s[2];
    g.form = form;
    g.out_form = out_form;
    g.transpose_a = ta;
    g.transpose_b = tb;
    g.accumulate = true;
    g.a = oa.data;
    g.b = ob.data;
    g.bias = bias.data;
    g.out = out.data;
    g.stride_a = ta ? s[0] : s[2];
    g.stride_b = tb ? s[2] : s[1];
    g.stride_out = s[1];
    g.batch = 1;
    check_status(c, sl_cuda_plain_product(&a, &g), "plain product failed");
    factor fa = { &oa, ta ? 1 : s[2], ta ? s[0] : 1 }, fb = { &ob, tb ? 1 : s[1], tb ? s[2] : 1 };
    check_product(c, "plain product", fa, fb, &bias, &out, s, 1, true);
    check_drop(c, &oa);
    check_drop(c, &ob);
    check_drop(c, &bias);
    check_drop(c, &out);
}

/* ---- the head ---- */

typedef struct head_case {
    sl_form form;
    int64_t rows, classes, width;
    unsigned absent; /* bit i: output i is */
    bool training, biased;
    operand x, w, targets, bias, loss, count, dw, dx, dbias;
    const int32_t *target;
    int64_t counted;
} head_case;

enum { CHECK_IGNORED = -100 };

static inline void check_head_fill(const checks *c, head_case *h)
{
    h->x = check_operand(c, h->rows * h->width, h->form, 0, 22);
    h->w = check_operand(c, h->classes * h->width, h->form, 1, 23);
    h->targets = check_operand(c, h->rows, SL_FORM_F32, 0, 24);
    h->loss = check_operand(c, 1, SL_FORM_F32, 0, 25);
    h->count = check_operand(c, 1, SL_FORM_F32, 0, 26);
    h->dw = check_operand(c, h->classes * h->width, SL_FORM_F32, 0, 27);
    h->dx = check_operand(c, h->rows * h->width, h->form, 0, 28);
    h->bias = check_operand(c, h->classes, h->form, 1, 29);
    h->dbias = check_operand(c, h->classes, SL_FORM_F32, 1, 30);
    int32_t *target = (int32_t *)h->targets.data;
    for (int64_t r = 0; r < h->rows; r++) {
        target[r] = r % 5 == 2 ? CHECK_IGNORED : (int32_t)(r * 7919 % h->classes);
        h->counted += target[r] != CHECK_IGNORED;
    }
    h->target = target;
}

static inline void check_head_run(const checks *c, const head_case *h, const sl_run_context *context)
{
    sl_shape sx = { 2, { h->rows, h->width } }, sw = { 2, { h->classes, h->width } };
    sl_shape st = { 1, { h->rows } }, sb = { 1, { h->classes } }, scalar = { 0, { 0 } };
    sl_attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    attrs.cross_entropy.ignore_index = CHECK_IGNORED;
    sl_cuda_args a = check_args(c, &attrs, h->biased ? 4 : 3, h->biased ? 5 : 4);
    a.context = context;
    a.in[0] = check_tensor(&h->x, &sx);
    a.in[1] = check_tensor(&h->w, &sw);
    a.in[2] = check_tensor(&h->targets, &st);
    a.in[2].form = SL_FORM_I32;
    a.out[0] = check_tensor(&h->loss, &scalar);
    a.out[1] = check_tensor(&h->count, &scalar);
    a.out[2] = check_tensor(&h->dw, &sw);
    a.out[3] = check_tensor(&h->dx, &sx);
    if (h->biased) {
        a.in[3] = check_tensor(&h->bias, &sb);
        a.out[4] = check_tensor(&h->dbias, &sb);
    }
    for (int i = 1; i < 5; i++)
        if (h->absent >> i & 1) a.out[i].data = NULL;
    check_status(c, sl_cuda_linear_cross_entropy(&a), "linear_cross_entropy failed");
}

/* Loss of row r; d[classes] becomes the gradient for its logits. */
static inline double check_head_row(const head_case *h, int64_t r, double seed, double *d)
{
    const bool in = h->target[r] != CHECK_IGNORED;
    double largest = -1e30, sum = 0.0;
    for (int64_t k = 0; k < h->classes; k++) {
        d[k] = h->biased ? (double)h->bias.before[k] : 0.0;
        for (int64_t i = 0; i < h->width; i++)
            d[k] += (double)h->x.before[r * h->width + i] * (double)h->w.before[k * h->width + i];
        if (d[k] > largest) largest = d[k];
    }
    for (int64_t k = 0; k < h->classes; k++) sum += exp(d[k] - largest);
    double loss = in ? log(sum) + largest - d[h->target[r]] : 0.0;
    for (int64_t k = 0; k < h->classes; k++)
        d[k] = in ? (exp(d[k] - largest) / sum - (k == h->target[r] ? 1.0 : 0.0)) * seed : 0.0;
    return loss;
}

/* The mean loss, and the gradients in double. */
static inline double check_head_wanted(const head_case *h, double seed, double *dw, double *dx, double *dbias)
{
    double *d = (double *)malloc((size_t)h->classes * sizeof(double)), loss = 0.0;
    if (d == NULL) abort();
    for (int64_t r = 0; r < h->rows; r++) {
        loss += check_head_row(h, r, seed, d);
        for (int64_t k = 0; k < h->classes; k++) dbias[k] += d[k];
        for (int64_t k = 0; k < h->classes; k++)
            for (int64_t i = 0; i < h->width; i++) {
                dx[r * h->width + i] += d[k] * (double)h->w.before[k * h->width + i];
                dw[k * h->width + i] += d[k] * (double)h->x.before[r * h->width + i];
            }
    }
    free(d);
    return loss / (double)h->counted;
}

/* Within what rounding logits, which a bias makes larger, and their gradient to the element type may do. */
static inline void check_head_result(const checks *c, const head_case *h, const operand *o, const double *want,
                                     double size, const char *what)
{
    const int64_t s[3] = { h->rows, h->classes, h->width };
    const double bound = (h->biased ? 2 : 1) * size *
                         (h->form == SL_FORM_F32   ? 0x1p-19
                          : h->form == SL_FORM_F16 ? 0x1p-8
                                                   : 0x1p-5);
    for (int64_t i = 0; i < o->count; i++) {
        if (fabs((double)check_get(o, i) - want[i]) <= bound) continue;
        check_report(c, what, h->form, o->form, s, i, (double)check_get(o, i), want[i]);
        return;
    }
}

/* Gradient `output` is right, or untouched where nobody wants it. */
static inline void check_head_gradient(const checks *c, const head_case *h, int output, const operand *o,
                                       const double *want, double seed, const char *what)
{
    if (h->training && !(h->absent >> output & 1))
        check_head_result(c, h, o, want, seed, what);
    else
        check_untouched(c, o, what);
}

static inline void check_head(const checks *c, sl_form form, int64_t rows, int64_t classes, int64_t width,
                              unsigned absent, bool training, bool biased)
{
    head_case h = { .form = form, .rows = rows, .classes = classes, .width = width, .absent = absent };
    sl_run_context context;
    memset(&context, 0, sizeof context);
    context.training = h.training = training;
    h.biased = biased;
    context.seed_gradient = 2.0f;
    check_head_fill(c, &h);
    check_head_run(c, &h, &context);
    double *dw = (double *)calloc((size_t)(classes * width), sizeof(double));
    double *dx = (double *)calloc((size_t)(rows * width), sizeof(double));
    double *dbias = (double *)calloc((size_t)classes, sizeof(double));
    if (dw == NULL || dx == NULL || dbias == NULL) abort();
    const double seed = 2.0 / (double)h.counted, loss = check_head_wanted(&h, seed, dw, dx, dbias);
    check_head_result(c, &h, &h.loss, &loss, 1.0 + fabs(loss), "head: loss");
    if (!(absent & 2) && check_get(&h.count, 0) != (float)h.counted) c->fail("the head counts other targets");
    check_head_gradient(c, &h, 2, &h.dw, dw, seed, "head: dw");
    check_head_gradient(c, &h, 3, &h.dx, dx, seed, "head: dx");
    if (!biased) h.absent |= 16;
    check_head_gradient(c, &h, 4, &h.dbias, dbias, seed, "head: dbias");
    free(dbias);
    free(dx);
    free(dw);
    operand *const all[] = { &h.x, &h.w, &h.targets, &h.bias, &h.loss, &h.count, &h.dw, &h.dx, &h.dbias };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) check_drop(c, all[i]);
}

/* ---- all of them ---- */

static const int64_t check_sizes[][3] = {
    { 1, 1, 1 }, { 1, 7, 5 }, { 5, 1, 9 }, { 6, 7, 5 }, { 16, 16, 16 }, { 33, 17, 40 }, { 64, 48, 96 }, { 67, 71, 130 },
};
#define CHECK_SIZES (sizeof check_sizes / sizeof check_sizes[0])

static inline void check_layouts(const checks *c)
{
    for (size_t i = 0; i < CHECK_SIZES * CHECK_FORMS; i++) {
        const int64_t *s = check_sizes[i / CHECK_FORMS];
        const sl_form form = check_forms[i % CHECK_FORMS];
        for (int bits = 0; bits < 8; bits++) {
            check_linear(c, form, s, bits & 1, (bits & 2) != 0, bits >> 2);
            check_grad_input(c, form, s, bits & 1, (bits & 2) != 0, bits >> 2);
            check_matmul(c, form, s, bits & 4 ? 3 : 1, bits & 1, (bits & 2) != 0, bits == 5);
        }
    }
}

static inline void check_weight_gradients(const checks *c)
{
    for (size_t i = 0; i < CHECK_SIZES * CHECK_FORMS; i++) {
        const int64_t *s = check_sizes[i / CHECK_FORMS];
        const sl_form form = check_forms[i % CHECK_FORMS];
        for (unsigned bits = 0; bits < 24; bits++) {
            const sl_form out = check_forms[bits / 8];
            const sl_form other = check_forms[(bits / 8 + 1) % CHECK_FORMS];
            check_grad_weight(c, form, out, out, s, bits & 1, 0, 0, (int)(bits >> 1 & 1));
            check_grad_weight(c, form, out, out, s, bits & 1, bits >> 1 & 3, 0, 0);
            check_grad_weight(c, form, out, other, s, bits & 1, bits >> 1 & 3, 0, 0);
        }
        check_grad_weight(c, form, form, form, s, false, 3, 1, 1);
        check_grad_weight(c, form, form, form, s, true, 1, 2, 1);
    }
}

static inline void check_sums_and_products(const checks *c)
{
    for (int i = 0; i < CHECK_FORMS; i++) {
        check_sum_bits(c, check_forms[i], 700, 64);
        check_sum_bits(c, check_forms[i], 129, 1032);
        check_sum_bits(c, check_forms[i], 3, 8);
        for (int bits = 0; bits < 12; bits++)
            check_plain_product(c, check_forms[i], check_forms[bits / 4], check_sizes[5], bits & 1, (bits & 2) != 0);
    }
}

static inline void check_heads(const checks *c)
{
    for (int i = 0; i < CHECK_FORMS; i++) {
        for (int biased = 0; biased < 2; biased++) {
            check_head(c, check_forms[i], 9, 40, 20, 0, true, biased);
            check_head(c, check_forms[i], 300, 24, 16, 0, true, biased); /* several chunks in the emulation */
            check_head(c, check_forms[i], 9, 41, 7, 4, true, biased);
            check_head(c, check_forms[i], 9, 41, 7, 8, true, biased);
            check_head(c, check_forms[i], 9, 41, 7, 2, false, biased);
        }
        check_head(c, check_forms[i], 9, 41, 7, 12, true, true);
        check_head(c, check_forms[i], 9, 41, 7, 16, true, true);
    }
}

#endif
