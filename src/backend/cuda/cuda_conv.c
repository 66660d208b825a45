/* cuda_conv.c: convolutions. One by one they are linear layers; depthwise ones have kernels of their own (conv.cu); all
 * others go to cuDNN, and where it does not do them in the wanted precision, into columns that are multiplied by the
 * filters (cuda_gemm.c).
 *
 * Filters and their gradients are [o, c/groups, kh, kw], as the model keeps them. Both ways of computing want the
 * channels last, as images have them, so they are reordered in the workspace. */
#include "backend/cuda/cuda_conv.h"
#include "backend/cuda/cuda_gemm.h"
#include "core/status.h"

static bool accumulates(const sl_cuda_args *a, int output)
{
    return (a->attrs->accumulate >> output & 1u) != 0;
}

static sluice_status check_workspace(sl_op op, const sl_cuda_args *a)
{
    const uint64_t needed = sl_cuda_conv_workspace(op, a);
    if (a->workspace_bytes >= needed) return SLUICE_OK;
    return sl_fail(SLUICE_ERR_FAILED, "%s: needs %llu bytes of workspace, has %llu", a->name != NULL ? a->name : "?",
                   (unsigned long long)needed, (unsigned long long)a->workspace_bytes);
}

/* The convolution as the linear layer that it is: the operands lie alike. */
static sluice_status as_linear(const sl_cuda_args *a, sl_cuda_kernel linear)
{
    const sl_attrs attrs = { .accumulate = a->attrs->accumulate, .linear = { .in_out = false } };
    sl_cuda_args same = *a;
    same.attrs = &attrs;
    return linear(&same);
}

/* ---- windows: the parts of the workspace behind the scratch ---- */

static void *filters_of(const sl_cuda_args *a)
{
    return (char *)a->workspace + SL_CUDA_CONV_SCRATCH;
}

static void *rest_of(sl_op op, const sl_cuda_args *a, const sl_cuda_conv *c, sl_form form)
{
    return (char *)filters_of(a) + sl_cuda_conv_filter_bytes(op, c, form);
}

/* Filters of one place are in the order that the library wants, where nothing is padded. */
static bool in_order(const sl_cuda_conv *c, int64_t channels, const void *w)
{
    return c->kh == 1 && c->kw == 1 && channels == c->c && (uintptr_t)w % 16 == 0;
}

/* ---- by the library ---- */

/* The convolution as the library is asked for it, images and filters where it gets them. */
static sl_library_conv library_conv(sl_op op, const sl_cuda_args *a, const sl_cuda_conv *c, sl_form form)
{
    const sl_cuda_tensor *x = op == SL_OP_CONV2D ? &a->in[0] : op == SL_OP_CONV2D_GRAD_INPUT ? &a->out[0] : &a->in[1];
    const sl_cuda_tensor *w = op == SL_OP_CONV2D_GRAD_WEIGHT ? &a->out[0] : &a->in[1];
    const sl_cuda_tensor *y = op == SL_OP_CONV2D ? &a->out[0] : &a->in[0];
    const int64_t channels = sl_cuda_conv_channels(op, c, form);
    sl_library_conv v = { .op = op, .conv = *c, .form = form, .x = x->data, .w = w->data, .y = y->data };
    v.conv.c = channels;
    if (!in_order(c, channels, w->data)) v.w = filters_of(a);
    if (channels != c->c) v.x = rest_of(op, a, c, form);
    return v;
}

/* x with the channels that the library wants. */
static sluice_status pad_x(const sl_cuda_args *a, const sl_library_conv *v, const sl_cuda_conv *c, const void *x)
{
    if (v->x == x) return SLUICE_OK;
    return sl_cuda_pad_channels(a, v->form, x, c->n * c->h * c->w, c->c, v->conv.c, v->x);
}

static sluice_status order_w(const sl_cuda_args *a, const sl_library_conv *v, const sl_cuda_conv *c, const void *w)
{
    if (v->w == w) return SLUICE_OK;
    return sl_cuda_order_filters(a, v->form, w, c, SL_FILTERS_OHWI, v->conv.c / c->groups, v->w);
}

/* The bias is what y holds before the convolution is added to it. The library rounds to the form of y before it adds,
 * and then the sum: as a convolution without bias and an addition would. */
static sluice_status try_library(const sl_cuda_args *a, const sl_cuda_conv *c, sl_form form, bool *done)
{
    const void *bias = a->input_count > 2 ? a->in[2].data : NULL;
    sl_library_conv v = library_conv(SL_OP_CONV2D, a, c, form);
    v.add = bias != NULL;
    SL_TRY(sl_cuda_library_conv_find(a, &v, done));
    if (!*done) return SLUICE_OK;
    SL_TRY(pad_x(a, &v, c, a->in[0].data));
    SL_TRY(order_w(a, &v, c, a->in[1].data));
    if (bias != NULL) SL_TRY(sl_cuda_fill_rows(a, form, bias, c->n * c->p * c->q, c->o, v.y));
    return sl_cuda_library_conv_run(a, &v);
}

/* Where the gradient is added to one that is there it is rounded to the form of x before and after, as above. */
static sluice_status try_library_grad_input(const sl_cuda_args *a, const sl_cuda_conv *c, sl_form form, bool *done)
{
    sl_library_conv v = library_conv(SL_OP_CONV2D_GRAD_INPUT, a, c, form);
    v.add = accumulates(a, 0);
    SL_TRY(sl_cuda_library_conv_find(a, &v, done));
    if (!*done) return SLUICE_OK;
    SL_TRY(order_w(a, &v, c, a->in[1].data));
    return sl_cuda_library_conv_run(a, &v);
}

/* The library rounds sums to the operands' form, which is once where the gradient has that form and is not added to. */
static sluice_status try_library_grad_weight(const sl_cuda_args *a, const sl_cuda_conv *c, sl_form form, bool *done)
{
    sl_library_conv v = library_conv(SL_OP_CONV2D_GRAD_WEIGHT, a, c, form);
    *done = false;
    if (a->out[0].form != form || accumulates(a, 0)) return SLUICE_OK;
    SL_TRY(sl_cuda_library_conv_find(a, &v, done));
    if (!*done) return SLUICE_OK;
    SL_TRY(pad_x(a, &v, c, a->in[1].data));
    SL_TRY(sl_cuda_library_conv_run(a, &v));
    if (v.w == a->out[0].data) return SLUICE_OK;
    return sl_cuda_restore_filters(a, form, v.w, c, v.conv.c / c->groups, false, &a->out[0]);
}

/* ---- by columns: chunks of places, each a product with the filters of every group ---- */

typedef struct chunk {
    const void *columns;
    int64_t first, rows, width; /* width: of a row, all groups */
} chunk;

typedef sluice_status (*multiply_chunk)(const sl_cuda_args *a, const sl_cuda_conv *c, sl_form form, const chunk *k);

static sluice_status by_columns(sl_op op, const sl_cuda_args *a, const sl_cuda_conv *c, sl_form form, const void *from,
                                multiply_chunk multiply)
{
    const int64_t rows = sl_cuda_conv_rows(op, c), most = sl_cuda_conv_chunk(op, c, form);
    void *columns = rest_of(op, a, c, form);
    for (int64_t first = 0; first < rows; first += most) {
        const chunk k = { columns, first, rows - first < most ? rows - first : most, sl_cuda_conv_width(op, c) };
        SL_TRY(sl_cuda_gather_columns(a, op, form, from, c, first, k.rows, columns));
        SL_TRY(multiply(a, c, form, &k));
    }
    return SLUICE_OK;
}

static void *element(void *p, sl_form form, int64_t i)
{
    return (char *)p + (uint64_t)i * sl_linear_element_bytes(form);
}

static const void *const_element(const void *p, sl_form form, int64_t i)
{
    return (const char *)p + (uint64_t)i * sl_linear_element_bytes(form);
}

/* Groups side by side: a batch of products, or one after the other where a bias is added. */
static sluice_status multiply_groups(const sl_cuda_args *a, const sl_cuda_conv *c, sl_cuda_gemm *g)
{
    g->batch = c->groups;
    if (g->bias == NULL || c->groups == 1) return sl_cuda_gemm_run(a, g);
    g->batch = 1;
    for (int64_t i = 0; i < c->groups; i++) {
        SL_TRY(sl_cuda_gemm_run(a, g));
        g->a = const_element(g->a, g->form, g->batch_a);
        g->b = const_element(g->b, g->form, g->batch_b);
        g->bias = const_element(g->bias, g->form, g->n);
        g->out = element(g->out, g->out_form, g->batch_out);
    }
    return SLUICE_OK;
}

/* Rows of `out`, `columns` wide in all groups, from the columns and the filters in the workspace. */
static sluice_status multiply_filters(const sl_cuda_args *a, const sl_cuda_conv *c, sl_form form, const chunk *k,
                                      int64_t columns, const void *bias, bool accumulate)
{
    const int64_t in = k->width / c->groups, out = columns / c->groups;
    sl_cuda_gemm g = { .m = k->rows, .n = out, .k = in, .form = form, .out_form = a->out[0].form, .bias = bias };
    g.a = k->columns;
    g.stride_a = k->width;
    g.batch_a = in;
    g.b = filters_of(a);
    g.stride_b = in;
    g.transpose_b = true;
    g.batch_b = out * in;
    g.out = element(a->out[0].data, g.out_form, k->first * columns);
    g.stride_out = columns;
    g.batch_out = out;
    g.accumulate = accumulate;
    return multiply_groups(a, c, &g);
}

static sluice_status multiply_output(const sl_cuda_args *a, const sl_cuda_conv *c, sl_form form, const chunk *k)
{
    return multiply_filters(a, c, form, k, c->o, a->input_count > 2 ? a->in[2].data : NULL, false);
}

static sluice_status multiply_input(const sl_cuda_args *a, const sl_cuda_conv *c, sl_form form, const chunk *k)
{
    return multiply_filters(a, c, form, k, c->c, NULL, accumulates(a, 0));
}

/* Sums in f32 over the chunks. */
static sluice_status multiply_weight(const sl_cuda_args *a, const sl_cuda_conv *c, sl_form form, const chunk *k)
{
    const int64_t out = c->o / c->groups, in = k->width / c->groups;
    sl_cuda_gemm g = { .m = out, .n = in, .k = k->rows, .form = form, .out_form = SL_FORM_F32 };
    g.a = const_element(a->in[0].data, form, k->first * c->o);
    g.stride_a = c->o;
    g.transpose_a = true;
    g.batch_a = out;
    g.b = k->columns;
    g.stride_b = k->width;
    g.batch_b = in;
    g.out = filters_of(a);
    g.stride_out = in;
    g.batch_out = out * in;
    g.accumulate = k->first > 0;
    return multiply_groups(a, c, &g);
}

/* ---- the ops ---- */

/* x[N,H,W,C], w[O,C/groups,kh,kw], bias[O]? -> y[N,H',W',O] */
sluice_status sl_cuda_conv2d(const sl_cuda_args *a)
{
    const sl_cuda_conv c = sl_cuda_conv_of(SL_OP_CONV2D, a);
    const sl_form form = sl_cuda_type(SL_OP_CONV2D, a);
    const sl_conv_way way = sl_cuda_conv_way(&c);
    bool done;
    SL_TRY(check_workspace(SL_OP_CONV2D, a));
    if (way == SL_CONV_PRODUCT) return as_linear(a, sl_cuda_linear);
    if (way == SL_CONV_DEPTHWISE) {
        SL_TRY(sl_cuda_order_filters(a, form, a->in[1].data, &c, SL_FILTERS_HWO, 1, a->workspace));
        return sl_cuda_depthwise(a, form, &c, a->workspace);
    }
    SL_TRY(try_library(a, &c, form, &done));
    if (done) return SLUICE_OK;
    SL_TRY(sl_cuda_order_filters(a, form, a->in[1].data, &c, SL_FILTERS_OHWI, c.c / c.groups, filters_of(a)));
    return by_columns(SL_OP_CONV2D, a, &c, form, a->in[0].data, multiply_output);
}

/* dy[N,H',W',O], w -> dx[N,H,W,C] */
sluice_status sl_cuda_conv2d_grad_input(const sl_cuda_args *a)
{
    const sl_cuda_conv c = sl_cuda_conv_of(SL_OP_CONV2D_GRAD_INPUT, a);
    const sl_form form = sl_cuda_type(SL_OP_CONV2D_GRAD_INPUT, a);
    const sl_conv_way way = sl_cuda_conv_way(&c);
    bool done;
    SL_TRY(check_workspace(SL_OP_CONV2D_GRAD_INPUT, a));
    if (way == SL_CONV_PRODUCT) return as_linear(a, sl_cuda_linear_grad_input);
    if (way == SL_CONV_DEPTHWISE) {
        SL_TRY(sl_cuda_order_filters(a, form, a->in[1].data, &c, SL_FILTERS_HWO, 1, a->workspace));
        return sl_cuda_depthwise_grad_input(a, form, &c, a->workspace);
    }
    SL_TRY(try_library_grad_input(a, &c, form, &done));
    if (done) return SLUICE_OK;
    SL_TRY(sl_cuda_order_filters(a, form, a->in[1].data, &c, SL_FILTERS_IHWO, c.o / c.groups, filters_of(a)));
    return by_columns(SL_OP_CONV2D_GRAD_INPUT, a, &c, form, a->in[0].data, multiply_input);
}

static sluice_status windows_grad_weight(const sl_cuda_args *a, const sl_cuda_conv *c, sl_form form)
{
    bool done;
    SL_TRY(try_library_grad_weight(a, c, form, &done));
    if (done) return SLUICE_OK;
    SL_TRY(by_columns(SL_OP_CONV2D_GRAD_WEIGHT, a, c, form, a->in[1].data, multiply_weight));
    return sl_cuda_restore_filters(a, SL_FORM_F32, filters_of(a), c, c->c / c->groups, accumulates(a, 0), &a->out[0]);
}

/* dy[N,H',W',O], x[N,H,W,C] -> dw[O,C/groups,kh,kw], dbias[O]? */
sluice_status sl_cuda_conv2d_grad_weight(const sl_cuda_args *a)
{
    const sl_cuda_conv c = sl_cuda_conv_of(SL_OP_CONV2D_GRAD_WEIGHT, a);
    const sl_form form = sl_cuda_type(SL_OP_CONV2D_GRAD_WEIGHT, a);
    const sl_conv_way way = sl_cuda_conv_way(&c);
    SL_TRY(check_workspace(SL_OP_CONV2D_GRAD_WEIGHT, a));
    if (way == SL_CONV_PRODUCT) return as_linear(a, sl_cuda_linear_grad_weight);
    SL_TRY(way == SL_CONV_DEPTHWISE ? sl_cuda_depthwise_grad_weight(a, form, &c) : windows_grad_weight(a, &c, form));
    if (a->output_count < 2 || a->out[1].data == NULL) return SLUICE_OK;
    return sl_cuda_sum_columns(a, form, a->in[0].data, c.n * c.p * c.q, c.o, c.o, accumulates(a, 1), &a->out[1]);
}
