/* linear.c: the ops that are GEMMs, each as one call of gemm.h: operands are described by strides, never
 * transposed in memory. Every operand is in the form its tensor says; gradients of parameters may be in another one
 * than the element type. */
#include "backend/cpu/kernels/column_sum.h"
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
        const column_sum s = { a->in[0].data, &a->out[1], rows, out, sl_accumulates(a, 1) };
        sum_columns(a->pool, &s);
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
