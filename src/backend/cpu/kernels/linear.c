/* linear.c: the ops that are GEMMs, each as one call of gemm.h: operands are described by strides, never
 * transposed in memory. Every operand is in the form its tensor says; gradients of parameters may be in another one
 * than the element type. */
#include "backend/cpu/kernels/elem.h"
#include "backend/cpu/kernels/strided_gemm.h"

/* w as a matrix of `out` rows and `in` columns, however it is stored. */
static sl_matrix weight_out_in(const sl_kernel_args *a, const sl_tensor *w, int64_t out, int64_t in)
{
    return a->attrs->linear.in_out ? sl_transposed(sl_rows_of(w, out)) : sl_rows_of(w, in);
}

/* x[T,I], w, bias[O]? -> y[T,O] */
void K(linear)(const sl_kernel_args *a)
{
    int64_t in = sl_row_width(&a->in[0]), out = sl_row_width(&a->out[0]);
    sl_gemm g = { .m = a->out[0].elements / out, .n = out, .k = in };
    g.a = sl_rows_of(&a->in[0], in);
    g.b = sl_transposed(weight_out_in(a, &a->in[1], out, in));
    g.c = a->out[0].data;
    g.c_form = a->out[0].form;
    g.c_row = out;
    g.bias = a->input_count > 2 ? a->in[2].data : NULL;
    g.bias_form = a->in[2].form;
    sl_multiply(a, &g);
}

/* dy[T,O], w -> dx[T,I] */
void K(linear_grad_input)(const sl_kernel_args *a)
{
    int64_t out = sl_row_width(&a->in[0]), in = sl_row_width(&a->out[0]);
    sl_gemm g = { .m = a->in[0].elements / out, .n = in, .k = out };
    g.a = sl_rows_of(&a->in[0], out);
    g.b = weight_out_in(a, &a->in[1], out, in);
    g.c = a->out[0].data;
    g.c_form = a->out[0].form;
    g.c_row = in;
    g.accumulate = sl_accumulates(a, 0);
    sl_multiply(a, &g);
}

/* ---- two ops in one: on a CPU the two kernels, one after the other, with their bits ---- */

/* x[T,I], w, base[T,O], bias[O]? -> base + y */
void K(linear_add)(const sl_kernel_args *a)
{
    sl_kernel_args product = *a, add = *a;
    product.in[2] = a->in[3];
    product.input_count--;
    add.in[0] = a->in[2];
    add.in[1] = a->out[0];
    add.input_count = 2;
    K(linear)(&product);
    K(add)(&add);
}

static const sl_attrs tanh_gelu = { .gelu = { false } };

/* x[T,I], w, bias[O]? -> gelu(y), y[T,O] */
void K(linear_gelu)(const sl_kernel_args *a)
{
    sl_kernel_args product = *a, gelu = *a;
    product.out[0] = gelu.in[0] = a->out[1];
    product.output_count = gelu.output_count = gelu.input_count = 1;
    gelu.attrs = &tanh_gelu;
    K(linear)(&product);
    K(gelu)(&gelu);
}

/* dy[T,O], w, h[T,I] -> dh[T,I] */
void K(linear_grad_gelu)(const sl_kernel_args *a)
{
    sl_kernel_args product = *a, gelu = *a;
    product.input_count = gelu.input_count = 2;
    gelu.in[0] = a->in[2];
    gelu.in[1] = a->out[0];
    gelu.attrs = &tanh_gelu;
    K(linear_grad_input)(&product);
    K(gelu_grad)(&gelu);
}

/* Columns summed by one task: each row gives it whole cache lines. */
#define BIAS_VECTORS 4
#define BIAS_COLUMNS (BIAS_VECTORS * SL_LANES)

typedef struct bias_sum {
    const elem *dy;
    const sl_tensor *dbias;
    int64_t rows, columns;
    bool add;
} bias_sum;

/* Each column is one chain of additions over the rows in order. */
static void sum_columns(void *context, int64_t number, void *scratch)
{
    const bias_sum *s = context;
    int64_t first = number * BIAS_COLUMNS, count = sl_least(s->columns - first, BIAS_COLUMNS);
    const elem *dy = s->dy + first;
    sl_v16 sum[BIAS_VECTORS];
    (void)scratch;
    for (int v = 0; v < BIAS_VECTORS; v++) sum[v] = v16_set1(0.0f);
    if (count == BIAS_COLUMNS) {
        for (int64_t r = 0; r < s->rows; r++)
            for (int v = 0; v < BIAS_VECTORS; v++)
                sum[v] = v16_add(sum[v], e16_load(dy + r * s->columns + v * SL_LANES));
    } else {
        for (int64_t r = 0; r < s->rows; r++)
            for (int v = 0; v * SL_LANES < count; v++)
                sum[v] = v16_add(sum[v], e16_get(dy + r * s->columns + v * SL_LANES, count - v * SL_LANES, 0.0f));
    }
    for (int v = 0; v * SL_LANES < count; v++)
        w16_put_or_add(s->dbias, first + v * SL_LANES, sum[v], count - v * SL_LANES, s->add);
}

/* dy[T,O], x[T,I] -> dw as w is stored, dbias[O]? */
void K(linear_grad_weight)(const sl_kernel_args *a)
{
    int64_t out = sl_row_width(&a->in[0]), in = sl_row_width(&a->in[1]), rows = a->in[0].elements / out;
    sl_matrix dy = sl_rows_of(&a->in[0], out), x = sl_rows_of(&a->in[1], in);
    if (a->out[0].data) {
        bool in_out = a->attrs->linear.in_out;
        sl_gemm g = { .m = in_out ? in : out, .n = in_out ? out : in, .k = rows };
        g.a = sl_transposed(in_out ? x : dy);
        g.b = in_out ? dy : x;
        g.c = a->out[0].data;
        g.c_form = a->out[0].form;
        g.c_row = g.n;
        g.accumulate = sl_accumulates(a, 0);
        sl_multiply(a, &g);
    }
    if (a->output_count > 1 && a->out[1].data) {
        bias_sum s = { a->in[0].data, &a->out[1], rows, out, sl_accumulates(a, 1) };
        sl_pool_run(a->pool, sum_columns, &s, sl_ceil_div(out, BIAS_COLUMNS));
    }
}

static sl_matrix last_two(const sl_tensor *t, bool swapped)
{
    sl_matrix x = sl_rows_of(t, sl_row_width(t));
    return swapped ? sl_transposed(x) : x;
}

/* a[..,M,K], b[..,K,N], either one's last two dimensions perhaps swapped -> [..,M,N] */
void K(matmul)(const sl_kernel_args *a)
{
    const sl_shape *c = a->out[0].shape, *left = a->in[0].shape;
    sl_gemm g = { .m = c->dim[c->rank - 2], .n = c->dim[c->rank - 1] };
    g.k = left->dim[left->rank - (a->attrs->matmul.transpose_a ? 2 : 1)];
    g.a = last_two(&a->in[0], a->attrs->matmul.transpose_a);
    g.b = last_two(&a->in[1], a->attrs->matmul.transpose_b);
    g.c = a->out[0].data;
    g.c_form = a->out[0].form;
    g.c_row = g.n;
    g.a_batch = g.m * g.k;
    g.b_batch = g.k * g.n;
    g.c_batch = g.m * g.n;
    g.batches = a->out[0].elements / g.c_batch;
    g.accumulate = sl_accumulates(a, 0);
    sl_multiply(a, &g);
}
