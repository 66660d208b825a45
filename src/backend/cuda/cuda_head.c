/* cuda_head.c: the last linear layer with its cross entropy, and the gradients of both, without the logits ever existing as
 * a whole: rows are worked through in chunks (linear_size.h), each one's logits made, turned into their own gradient
 * and used up while they are there. dw and dbias are summed over the chunks in f32 in their order.
 *
 * Vocabularies are of any number of classes, 30,522 or 50,257, and the library has its fast products for multiples of 8
 * alone: the head of BERT base took 22 ms of 70 with 30,522 classes and 9 ms with 30,528, on an H200. So the last classes
 * have products of their own. */
#include "backend/cuda/cuda_gemm.h"
#include "backend/cuda/linear_size.h"
#include "core/status.h"

typedef struct head {
    const sl_cuda_args *a;
    sl_form form;
    int64_t rows, classes, width;          /* x[rows, width], w[classes, width] */
    int64_t chunk;                         /* rows at a time */
    int64_t stride;                        /* between rows of logits */
    const void *bias;                      /* [classes] in form; NULL: none */
    const sl_cuda_tensor *dw, *dx, *dbias; /* NULL: not wanted */
    bool gradient;                         /* some of them is */
    void *logits;                          /* [chunk, classes] in form, rows `stride` apart */
    float *losses;                         /* [rows] */
    float *count;                          /* in the workspace where nobody wants it */
} head;

static void *row_of(const head *h, void *x, int64_t row)
{
    return (char *)x + (uint64_t)row * (uint64_t)h->width * sl_linear_element_bytes(h->form);
}

/* Classes from `first` on. */
typedef struct part {
    int64_t first, count;
} part;

static const void *class_of(const head *h, const void *x, int64_t class, int64_t width)
{
    return (const char *)x + (uint64_t)(class * width) * sl_linear_element_bytes(h->form);
}

/* logits = x w^T + bias */
static sluice_status make_logits(const head *h, part p, int64_t first, int64_t rows)
{
    const sl_cuda_gemm g = {
        .m = rows,
        .n = p.count,
        .k = h->width,
        .form = h->form,
        .out_form = h->form,
        .a = row_of(h, h->a->in[0].data, first),
        .stride_a = h->width,
        .b = class_of(h, h->a->in[1].data, p.first, h->width),
        .stride_b = h->width,
        .transpose_b = true,
        .bias = h->bias != NULL ? class_of(h, h->bias, p.first, 1) : NULL,
        .out = (void *)class_of(h, h->logits, p.first, 1),
        .stride_out = h->stride,
        .batch = 1,
    };
    return sl_cuda_gemm_run(h->a, &g);
}

/* dx = dlogits w, or added to what is there */
static sluice_status input_gradient(const head *h, part p, int64_t first, int64_t rows, bool add)
{
    const sl_cuda_gemm g = {
        .m = rows,
        .n = h->width,
        .k = p.count,
        .form = h->form,
        .out_form = h->form,
        .accumulate = add,
        .a = class_of(h, h->logits, p.first, 1),
        .stride_a = h->stride,
        .b = class_of(h, h->a->in[1].data, p.first, h->width),
        .stride_b = h->width,
        .out = row_of(h, h->dx->data, first),
        .stride_out = h->width,
        .batch = 1,
    };
    return sl_cuda_gemm_run(h->a, &g);
}

/* dw = dlogits^T x, added to that of the chunks before */
static sluice_status weight_gradient(const head *h, part p, int64_t first, int64_t rows)
{
    const sl_cuda_gemm g = {
        .m = p.count,
        .n = h->width,
        .k = rows,
        .form = h->form,
        .out_form = SL_FORM_F32,
        .accumulate = first > 0,
        .a = class_of(h, h->logits, p.first, 1),
        .stride_a = h->stride,
        .transpose_a = true,
        .b = row_of(h, h->a->in[0].data, first),
        .stride_b = h->width,
        .out = (float *)h->dw->data + p.first * h->width,
        .stride_out = h->width,
        .batch = 1,
    };
    return sl_cuda_gemm_run(h->a, &g);
}

/* The classes in the order in which dx is summed: the few last ones first, so that what is rounded before the others are
 * added to it is small. Returns how many parts there are. */
static int cut_classes(int64_t classes, part out[2])
{
    const int64_t even = classes % 8 == 0 ? classes : classes / 64 * 64;
    int count = 0;
    if (even < classes) out[count++] = (part){ even, classes - even };
    if (even > 0) out[count++] = (part){ 0, even };
    return count;
}

static sluice_status run_chunk(const head *h, int64_t first, int64_t rows)
{
    const sl_cuda_args *a = h->a;
    const int32_t *targets = a->in[2].data;
    part parts[2];
    const int count = cut_classes(h->classes, parts);
    for (int i = 0; i < count; i++) SL_TRY(make_logits(h, parts[i], first, rows));
    sl_cuda_head_chunk(a->stream, h->form, h->logits, h->stride, targets + first, rows, h->classes, a->attrs,
                       a->context->seed_gradient, h->count, h->gradient, h->losses + first);
    if (!h->gradient) return SLUICE_OK;
    for (int i = 0; i < count && h->dx != NULL; i++) SL_TRY(input_gradient(h, parts[i], first, rows, i > 0));
    for (int i = 0; i < count && h->dw != NULL; i++) SL_TRY(weight_gradient(h, parts[i], first, rows));
    if (h->dbias == NULL) return SLUICE_OK;
    return sl_cuda_sum_columns(a, h->form, h->logits, rows, h->classes, h->stride, first > 0, h->dbias);
}

/* Output i; NULL: not wanted. */
static const sl_cuda_tensor *wanted_output(const sl_cuda_args *a, int i)
{
    return a->output_count > i && a->out[i].data != NULL ? &a->out[i] : NULL;
}

static head set_head(const sl_cuda_args *a)
{
    head h = { .a = a, .form = sl_cuda_type(SL_OP_LINEAR_CROSS_ENTROPY, a) };
    char *workspace = (char *)a->workspace + sl_cuda_head_front(a);
    h.rows = a->in[2].elements;
    h.classes = a->in[1].shape->dim[0];
    h.width = a->in[1].shape->dim[1];
    h.chunk = sl_cuda_head_rows(h.rows, h.classes, h.form);
    h.stride = sl_cuda_head_stride(h.classes, h.form);
    h.bias = a->input_count > 3 ? a->in[3].data : NULL;
    h.dw = wanted_output(a, 2);
    h.dx = wanted_output(a, 3);
    h.dbias = wanted_output(a, 4);
    h.gradient = a->context->training && (h.dw != NULL || h.dx != NULL || h.dbias != NULL);
    h.logits = workspace;
    h.losses = (float *)(void *)(workspace + sl_cuda_head_logits_bytes(h.rows, h.classes, h.form));
    h.count = a->out[1].data != NULL ? a->out[1].data : h.losses + h.rows;
    return h;
}

/* x[..,I], w[O,I], targets[..], bias[O]? -> loss, count?, dw[O,I]?, dx?, dbias[O]? */
sluice_status sl_cuda_linear_cross_entropy(const sl_cuda_args *a)
{
    const uint64_t needed = sl_cuda_head_workspace(a);
    if (a->workspace_bytes < needed)
        return sl_fail(SLUICE_ERR_FAILED, "%s: needs %llu bytes of workspace, has %llu",
                       a->name != NULL ? a->name : "?", (unsigned long long)needed,
                       (unsigned long long)a->workspace_bytes);
    const head h = set_head(a);
    sl_cuda_count_targets(a->stream, a->in[2].data, h.rows, a->attrs->cross_entropy.ignore_index, h.count);
    for (int64_t first = 0; first < h.rows; first += h.chunk) {
        const int64_t left = h.rows - first;
        SL_TRY(run_chunk(&h, first, left < h.chunk ? left : h.chunk));
    }
    sl_cuda_mean_loss(a->stream, h.losses, h.rows, h.count, a->out[0].data);
    return SLUICE_OK;
}
