/* cuda_linear.c: the ops that are one matrix product, described for cuda_gemm.c: operands keep their layout, nothing is
 * transposed in memory. */
#include "backend/cuda/cuda_gemm.h"
#include "backend/cuda/linear_size.h"
#include "core/status.h"

static bool accumulates(const sl_cuda_args *a, int output)
{
    return (a->attrs->accumulate >> output & 1u) != 0;
}

static sluice_status check_workspace(sl_op op, const sl_cuda_args *a)
{
    const uint64_t needed = sl_cuda_linear_workspace(op, a);
    if (a->workspace_bytes >= needed) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_FAILED, "%s: needs %llu bytes of workspace, has %llu", a->name != NULL ? a->name : "?",
                   (unsigned long long)needed, (unsigned long long)a->workspace_bytes);
}

/* out = product, which stands in f32 behind the part of the workspace that products use. */
static sluice_status cast_product(const sl_cuda_args *a, const sl_cuda_tensor *out, void *product, bool accumulate)
{
    const sl_attrs attrs = { .accumulate = accumulate };
    sl_cuda_args cast = *a;
    cast.attrs = &attrs;
    cast.input_count = cast.output_count = 1;
    cast.in[0] = *out;
    cast.in[0].data = product;
    cast.in[0].form = SL_FORM_F32;
    cast.out[0] = *out;
    return sl_cuda_cast(&cast);
}

/* Runs g, which has operands, sizes and strides, into output 0. */
static sluice_status multiply(const sl_cuda_args *a, sl_cuda_gemm *g)
{
    const sl_cuda_tensor *out = &a->out[0];
    const bool cast = sl_cuda_casts_product(g->form, out);
    g->out_form = cast ? SL_FORM_F32 : out->form;
    g->out = cast ? (char *)a->workspace + SL_CUDA_GEMM_WORKSPACE : out->data;
    g->accumulate = accumulates(a, 0) && !cast;
    g->stride_out = g->n;
    if (g->batch < 1) g->batch = 1;
    SL_TRY(sl_cuda_gemm_run(a, g));
    return cast ? cast_product(a, out, g->out, accumulates(a, 0)) : SLUICE_OK;
}

/* y = x w + bias */
static sl_cuda_gemm output_product(const sl_cuda_args *a)
{
    const int64_t in = sl_linear_last(&a->in[0]), out = sl_linear_last(&a->out[0]);
    const bool in_out = a->attrs->linear.in_out;
    sl_cuda_gemm g = { .m = a->out[0].elements / out, .n = out, .k = in, .form = sl_cuda_type(SL_OP_LINEAR, a) };
    g.a = a->in[0].data;
    g.stride_a = in;
    g.b = a->in[1].data;
    g.stride_b = in_out ? out : in;
    g.transpose_b = !in_out;
    g.bias = a->input_count > 2 ? a->in[2].data : NULL;
    return g;
}

/* dx = dy w^T */
static sl_cuda_gemm input_product(const sl_cuda_args *a)
{
    const int64_t out = sl_linear_last(&a->in[0]), in = sl_linear_last(&a->out[0]);
    const bool in_out = a->attrs->linear.in_out;
    sl_cuda_gemm g = { .m = a->in[0].elements / out, .n = in, .k = out };
    g.form = sl_cuda_type(SL_OP_LINEAR_GRAD_INPUT, a);
    g.a = a->in[0].data;
    g.stride_a = out;
    g.b = a->in[1].data;
    g.stride_b = in_out ? out : in;
    g.transpose_b = in_out;
    return g;
}

/* x[T,I], w, bias[O]? -> y[T,O] */
sluice_status sl_cuda_linear(const sl_cuda_args *a)
{
    sl_cuda_gemm g = output_product(a);
    SL_TRY(check_workspace(SL_OP_LINEAR, a));
    return multiply(a, &g);
}

/* x[T,I], w, base[T,O], bias[O]? -> base + y */
sluice_status sl_cuda_linear_add(const sl_cuda_args *a)
{
    sl_cuda_gemm g = output_product(a);
    SL_TRY(check_workspace(SL_OP_LINEAR_ADD, a));
    g.base = a->in[2].data;
    g.bias = a->input_count > 3 ? a->in[3].data : NULL;
    return multiply(a, &g);
}

/* dy[T,O], w -> dx[T,I] */
sluice_status sl_cuda_linear_grad_input(const sl_cuda_args *a)
{
    sl_cuda_gemm g = input_product(a);
    SL_TRY(check_workspace(SL_OP_LINEAR_GRAD_INPUT, a));
    return multiply(a, &g);
}

/* g with an activation into output 0. Only of 16 bits: the library does not say how exact its tanh is. */
static sluice_status try_activated(const sl_cuda_args *a, sl_cuda_gemm *g, sl_cuda_activation activation, void *pre,
                                   bool *done)
{
    *done = false;
    if (g->form == SL_FORM_F32) return SLUICE_OK;
    g->activation = activation;
    g->pre = pre;
    g->out = a->out[0].data;
    g->out_form = a->out[0].form;
    g->stride_out = g->n;
    g->batch = 1;
    return sl_cuda_gemm_try(a, g, done);
}

static const sl_attrs tanh_gelu = { .gelu = { false } };

/* x[T,I], w, bias[O]? -> gelu(y), y[T,O] */
sluice_status sl_cuda_linear_gelu(const sl_cuda_args *a)
{
    sl_cuda_gemm g = output_product(a);
    sl_cuda_args product = *a, gelu = *a;
    bool done;
    SL_TRY(check_workspace(SL_OP_LINEAR_GELU, a));
    SL_TRY(try_activated(a, &g, SL_CUDA_GELU, a->out[1].data, &done));
    if (done) return SLUICE_OK;
    product.out[0] = gelu.in[0] = a->out[1];
    product.output_count = gelu.output_count = gelu.input_count = 1;
    gelu.attrs = &tanh_gelu;
    SL_TRY(sl_cuda_linear(&product));
    return sl_cuda_gelu(&gelu);
}

/* dy[T,O], w, h[T,I] -> dh[T,I] */
sluice_status sl_cuda_linear_grad_gelu(const sl_cuda_args *a)
{
    sl_cuda_gemm g = input_product(a);
    sl_cuda_args product = *a, gelu = *a;
    bool done;
    SL_TRY(check_workspace(SL_OP_LINEAR_GRAD_GELU, a));
    SL_TRY(try_activated(a, &g, SL_CUDA_GELU_SLOPE, a->in[2].data, &done));
    if (done) return SLUICE_OK;
    product.input_count = gelu.input_count = 2;
    gelu.in[0] = a->in[2];
    gelu.in[1] = a->out[0];
    gelu.attrs = &tanh_gelu;
    SL_TRY(sl_cuda_linear_grad_input(&product));
    return sl_cuda_gelu_grad(&gelu);
}

/* dw[O,I] = dy^T x, or [I,O] = x^T dy. */
static sl_cuda_gemm weight_product(const sl_cuda_args *a)
{
    const int64_t out = sl_linear_last(&a->in[0]), in = sl_linear_last(&a->in[1]);
    const int dy = a->attrs->linear.in_out ? 1 : 0; /* which factor it is */
    sl_cuda_gemm g = { .m = dy == 0 ? out : in, .n = dy == 0 ? in : out, .k = a->in[0].elements / out };
    g.form = sl_cuda_type(SL_OP_LINEAR_GRAD_WEIGHT, a);
    g.a = a->in[dy].data;
    g.stride_a = g.m;
    g.transpose_a = true;
    g.b = a->in[1 - dy].data;
    g.stride_b = g.n;
    return g;
}

/* dy[T,O], x[T,I] -> dw as w is stored, dbias[O]? A library's product that sums the bias on the way reads dy once less,
 * and was slower than a product and a sum of columns (H200, 65,536 rows of 2,304: 0.46 against 0.41 ms). */
sluice_status sl_cuda_linear_grad_weight(const sl_cuda_args *a)
{
    const bool biased = a->output_count > 1 && a->out[1].data != NULL;
    const int64_t out = sl_linear_last(&a->in[0]), rows = a->in[0].elements / out;
    sl_cuda_gemm g = weight_product(a);
    SL_TRY(check_workspace(SL_OP_LINEAR_GRAD_WEIGHT, a));
    if (a->out[0].data != NULL) SL_TRY(multiply(a, &g));
    if (!biased) return SLUICE_OK;
    return sl_cuda_sum_columns(a, g.form, a->in[0].data, rows, out, out, accumulates(a, 1), &a->out[1]);
}

/* a[..,M,K], b[..,K,N], either one's last two dimensions perhaps swapped -> [..,M,N] */
sluice_status sl_cuda_matmul(const sl_cuda_args *a)
{
    const sl_shape *c = a->out[0].shape, *left = a->in[0].shape;
    const bool transpose_a = a->attrs->matmul.transpose_a, transpose_b = a->attrs->matmul.transpose_b;
    sl_cuda_gemm g = { .m = c->dim[c->rank - 2], .n = c->dim[c->rank - 1], .form = sl_cuda_type(SL_OP_MATMUL, a) };
    SL_TRY(check_workspace(SL_OP_MATMUL, a));
    g.k = left->dim[left->rank - (transpose_a ? 2 : 1)];
    g.a = a->in[0].data;
    g.stride_a = transpose_a ? g.m : g.k;
    g.transpose_a = transpose_a;
    g.b = a->in[1].data;
    g.stride_b = transpose_b ? g.k : g.n;
    g.transpose_b = transpose_b;
    g.batch_a = g.m * g.k;
    g.batch_b = g.k * g.n;
    g.batch_out = g.m * g.n;
    g.batch = a->out[0].elements / g.batch_out;
    return multiply(a, &g);
}
