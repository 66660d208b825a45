/* conv_size.h: how the convolutions of cuda_conv.c are computed, how conv.cu cuts its work, and the workspace that takes.
 * Plain C without CUDA: plans for a GPU are made where there is none. Everything depends on shape, form and attributes
 * alone (exact rule 6), so a call has room for cuDNN and for what is done without it. */
#ifndef SL_BACKEND_CUDA_CONV_SIZE_H
#define SL_BACKEND_CUDA_CONV_SIZE_H

#include "backend/cuda/linear_size.h"

/* x[n,h,w,c] with filters [o, c/groups, kh, kw] gives y[n,p,q,o]. */
typedef struct sl_cuda_conv {
    int64_t n, h, w, c, p, q, o, kh, kw, groups;
    int64_t stride_h, stride_w, padding_h, padding_w, dilation_h, dilation_w;
} sl_cuda_conv;

static inline sl_cuda_conv sl_cuda_conv_of(sl_op op, const sl_cuda_args *a)
{
    const sl_shape *x = (op == SL_OP_CONV2D              ? &a->in[0]
                         : op == SL_OP_CONV2D_GRAD_INPUT ? &a->out[0]
                                                         : &a->in[1])
                            ->shape;
    const sl_shape *w = (op == SL_OP_CONV2D_GRAD_WEIGHT ? &a->out[0] : &a->in[1])->shape;
    const sl_shape *y = (op == SL_OP_CONV2D ? &a->out[0] : &a->in[0])->shape;
    return (sl_cuda_conv){
        .n = x->dim[0],
        .h = x->dim[1],
        .w = x->dim[2],
        .c = x->dim[3],
        .p = y->dim[1],
        .q = y->dim[2],
        .o = y->dim[3],
        .kh = w->dim[2],
        .kw = w->dim[3],
        .groups = a->attrs->conv.groups,
        .stride_h = a->attrs->conv.stride_h,
        .stride_w = a->attrs->conv.stride_w,
        .padding_h = a->attrs->conv.padding_h,
        .padding_w = a->attrs->conv.padding_w,
        .dilation_h = a->attrs->conv.dilation_h,
        .dilation_w = a->attrs->conv.dilation_w,
    };
}

/* ---- which way ---- */

typedef enum {
    SL_CONV_PRODUCT,   /* one place by one: a linear layer over rows of channels */
    SL_CONV_DEPTHWISE, /* each channel by itself: bound by memory, kernels of conv.cu */
    SL_CONV_WINDOWS    /* cuDNN, or products over columns that conv.cu gathers */
} sl_conv_way;

static inline sl_conv_way sl_cuda_conv_way(const sl_cuda_conv *c)
{
    const bool one = c->kh == 1 && c->kw == 1 && c->stride_h == 1 && c->stride_w == 1;
    if (one && c->padding_h == 0 && c->padding_w == 0 && c->groups == 1) return SL_CONV_PRODUCT;
    return c->groups > 1 && c->groups == c->c && c->groups == c->o ? SL_CONV_DEPTHWISE : SL_CONV_WINDOWS;
}

/* ---- windows: [scratch | filters, or their gradient | padded x, or columns] ---- */

/* Of cuDNN and of products. Its engines for the tensor cores of sm_90 ask for a few MiB at most. */
#define SL_CUDA_CONV_SCRATCH SL_CUDA_GEMM_WORKSPACE

/* Channels of x as cuDNN gets them: in 16 bits its engines read eight at a time, and would pad a copy in a workspace of
 * their own. */
static inline int64_t sl_cuda_conv_channels(sl_op op, const sl_cuda_conv *c, sl_form form)
{
    if (op == SL_OP_CONV2D_GRAD_INPUT || c->groups > 1 || form == SL_FORM_F32) return c->c;
    return (c->c + 7) / 8 * 8;
}

#if defined(SL_CUDA_EMULATE) /* tests: several chunks of few rows */
#define SL_CUDA_CONV_COLUMNS 2048
#define SL_CUDA_CONV_ROWS    16
#else
#define SL_CUDA_CONV_COLUMNS                                                                                           \
    ((uint64_t)64 << 20)      /* bytes of columns that exist at once, unless fewer than the rows fit */
#define SL_CUDA_CONV_ROWS 128 /* rows of a chunk are a multiple of this */
#endif

/* Columns: one row for each place of y, or of x for its gradient, with all that its windows see of the other. */
static inline int64_t sl_cuda_conv_rows(sl_op op, const sl_cuda_conv *c)
{
    return op == SL_OP_CONV2D_GRAD_INPUT ? c->n * c->h * c->w : c->n * c->p * c->q;
}

static inline int64_t sl_cuda_conv_width(sl_op op, const sl_cuda_conv *c)
{
    return c->kh * c->kw * (op == SL_OP_CONV2D_GRAD_INPUT ? c->o : c->c);
}

static inline int64_t sl_cuda_conv_chunk(sl_op op, const sl_cuda_conv *c, sl_form form)
{
    const int64_t rows = sl_cuda_conv_rows(op, c),
                  bytes = sl_cuda_conv_width(op, c) * (int64_t)sl_linear_element_bytes(form);
    int64_t most = (int64_t)SL_CUDA_CONV_COLUMNS / bytes / SL_CUDA_CONV_ROWS * SL_CUDA_CONV_ROWS;
    if (most < SL_CUDA_CONV_ROWS) most = SL_CUDA_CONV_ROWS;
    return rows < most ? rows : most;
}

/* Filters in the operands' form, their gradient at most in f32. */
static inline uint64_t sl_cuda_conv_filter_bytes(sl_op op, const sl_cuda_conv *c, sl_form form)
{
    const uint64_t element = op == SL_OP_CONV2D_GRAD_WEIGHT ? 4 : sl_linear_element_bytes(form);
    const int64_t in = sl_cuda_conv_channels(op, c, form) / c->groups;
    return sl_linear_align((uint64_t)(c->o * c->kh * c->kw * in) * element);
}

static inline uint64_t sl_cuda_conv_windows_bytes(sl_op op, const sl_cuda_conv *c, sl_form form)
{
    const int64_t channels = sl_cuda_conv_channels(op, c, form);
    const uint64_t element = sl_linear_element_bytes(form);
    const uint64_t padded = channels == c->c ? 0 : (uint64_t)(c->n * c->h * c->w * channels) * element;
    const uint64_t columns = (uint64_t)(sl_cuda_conv_chunk(op, c, form) * sl_cuda_conv_width(op, c)) * element;
    return SL_CUDA_CONV_SCRATCH + sl_cuda_conv_filter_bytes(op, c, form) + (padded > columns ? padded : columns);
}

/* ---- depthwise: filters by place, or sums of parts of the rows of y ---- */

#define SL_CUDA_DEPTHWISE_BLOCKS 2048 /* of the filters' gradient, about */
#define SL_CUDA_DEPTHWISE_ROWS   64   /* a part has at least these */

static inline int64_t sl_cuda_depthwise_parts(const sl_cuda_conv *c)
{
    const int64_t rows = c->n * c->p * c->q, beside = (c->c + 31) / 32 * c->kh * c->kw;
    int64_t most = SL_CUDA_DEPTHWISE_BLOCKS / beside,
            parts = (rows + SL_CUDA_DEPTHWISE_ROWS - 1) / SL_CUDA_DEPTHWISE_ROWS;
    if (parts > most) parts = most;
    return parts < 1 ? 1 : parts;
}

static inline uint64_t sl_cuda_depthwise_bytes(sl_op op, const sl_cuda_conv *c, sl_form form)
{
    const uint64_t filters = (uint64_t)(c->kh * c->kw * c->c);
    if (op != SL_OP_CONV2D_GRAD_WEIGHT) return filters * sl_linear_element_bytes(form);
    return (uint64_t)sl_cuda_depthwise_parts(c) * filters * sizeof(float);
}

/* ---- the ops ---- */

static inline sl_op sl_cuda_conv_product(sl_op op)
{
    return op == SL_OP_CONV2D              ? SL_OP_LINEAR
           : op == SL_OP_CONV2D_GRAD_INPUT ? SL_OP_LINEAR_GRAD_INPUT
                                           : SL_OP_LINEAR_GRAD_WEIGHT;
}

static inline uint64_t sl_cuda_conv_workspace(sl_op op, const sl_cuda_args *a)
{
    const sl_cuda_conv c = sl_cuda_conv_of(op, a);
    const sl_form form = sl_cuda_type(op, a);
    const sl_conv_way way = sl_cuda_conv_way(&c);
    if (way == SL_CONV_PRODUCT) return sl_cuda_linear_workspace(sl_cuda_conv_product(op), a);
    uint64_t bytes =
        way == SL_CONV_DEPTHWISE ? sl_cuda_depthwise_bytes(op, &c, form) : sl_cuda_conv_windows_bytes(op, &c, form);
    if (op == SL_OP_CONV2D_GRAD_WEIGHT && a->output_count > 1 && a->out[1].data != NULL) {
        const uint64_t sums = sl_cuda_column_bytes(c.n * c.p * c.q, c.o, form);
        if (sums > bytes) bytes = sums;
    }
    return bytes;
}

#endif
