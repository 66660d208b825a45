/* conv.c: convolutions of images [N, H, W, C] with weights [O, C / groups, kh, kw], element by element of the result. */
#include "backend/cpu/kernels/elem.h"

typedef struct conv {
    const sl_kernel_args *a;
    int64_t h, w, c, oh, ow, o; /* of x, of y */
    int64_t kh, kw, sh, sw, ph, pw, dh, dw, groups, cg, og;
} conv;

static conv conv_of(const sl_kernel_args *a, const sl_shape *x, const sl_shape *y, const sl_shape *w)
{
    const sl_attrs *t = a->attrs;
    conv v = { .a = a, .h = x->dim[1], .w = x->dim[2], .c = x->dim[3], .oh = y->dim[1], .ow = y->dim[2] };
    v.o = w->dim[0], v.cg = w->dim[1], v.kh = w->dim[2], v.kw = w->dim[3];
    v.sh = t->conv.stride_h, v.sw = t->conv.stride_w, v.ph = t->conv.padding_h, v.pw = t->conv.padding_w;
    v.dh = t->conv.dilation_h, v.dw = t->conv.dilation_w, v.groups = t->conv.groups, v.og = v.o / v.groups;
    return v;
}

/* A row of y. */
static void forward_row(void *context, int64_t task, void *scratch)
{
    const conv *v = context;
    const elem *x = (const elem *)v->a->in[0].data + task / v->oh * v->h * v->w * v->c, *w = v->a->in[1].data;
    const elem *bias = v->a->input_count > 2 ? v->a->in[2].data : NULL;
    elem *y = (elem *)v->a->out[0].data + task * v->ow * v->o;
    (void)scratch;
    for (int64_t j = 0; j < v->ow; j++)
        for (int64_t o = 0; o < v->o; o++) {
            float sum = 0.0f;
            for (int64_t a = 0; a < v->kh; a++)
                for (int64_t b = 0; b < v->kw; b++) {
                    int64_t h = task % v->oh * v->sh - v->ph + a * v->dh, q = j * v->sw - v->pw + b * v->dw;
                    if (h < 0 || h >= v->h || q < 0 || q >= v->w) continue;
                    const elem *from = x + (h * v->w + q) * v->c + o / v->og * v->cg;
                    for (int64_t c = 0; c < v->cg; c++)
                        sum = fmaf(e1_get(from + c), e1_get(w + ((o * v->cg + c) * v->kh + a) * v->kw + b), sum);
                }
            e1_put(y + j * v->o + o, bias != NULL ? sum + e1_get(bias + o) : sum);
        }
}

/* x, w, bias? -> y */
void K(conv2d)(const sl_kernel_args *a)
{
    conv v = conv_of(a, a->in[0].shape, a->out[0].shape, a->in[1].shape);
    sl_pool_run(a->pool, forward_row, &v, a->out[0].shape->dim[0] * v.oh);
}

/* A row of dx. */
static void input_row(void *context, int64_t task, void *scratch)
{
    const conv *v = context;
    const elem *dy = (const elem *)v->a->in[0].data + task / v->h * v->oh * v->ow * v->o, *w = v->a->in[1].data;
    elem *dx = (elem *)v->a->out[0].data + task * v->w * v->c;
    (void)scratch;
    for (int64_t q = 0; q < v->w; q++)
        for (int64_t c = 0; c < v->c; c++) {
            const int64_t group = c / v->cg;
            float sum = 0.0f;
            for (int64_t a = 0; a < v->kh; a++)
                for (int64_t b = 0; b < v->kw; b++) {
                    int64_t i = task % v->h + v->ph - a * v->dh, j = q + v->pw - b * v->dw;
                    if (i < 0 || j < 0 || i % v->sh != 0 || j % v->sw != 0 || i / v->sh >= v->oh || j / v->sw >= v->ow)
                        continue;
                    for (int64_t o = group * v->og; o < (group + 1) * v->og; o++)
                        sum = fmaf(e1_get(dy + (i / v->sh * v->ow + j / v->sw) * v->o + o),
                                   e1_get(w + ((o * v->cg + c % v->cg) * v->kh + a) * v->kw + b), sum);
                }
            if (sl_accumulates(v->a, 0)) sum = e1_get(dx + q * v->c + c) + sum;
            e1_put(dx + q * v->c + c, sum);
        }
}

/* dy, w -> dx */
void K(conv2d_grad_input)(const sl_kernel_args *a)
{
    conv v = conv_of(a, a->out[0].shape, a->in[0].shape, a->in[1].shape);
    sl_pool_run(a->pool, input_row, &v, a->out[0].shape->dim[0] * v.h);
}

static float weight_gradient(const conv *v, int64_t o, int64_t c, int64_t a, int64_t b)
{
    const elem *dy = v->a->in[0].data, *x = v->a->in[1].data;
    float sum = 0.0f;
    for (int64_t n = 0; n < v->a->in[0].shape->dim[0]; n++)
        for (int64_t i = 0; i < v->oh; i++)
            for (int64_t j = 0; j < v->ow; j++) {
                int64_t h = i * v->sh - v->ph + a * v->dh, q = j * v->sw - v->pw + b * v->dw;
                if (h < 0 || h >= v->h || q < 0 || q >= v->w) continue;
                sum = fmaf(e1_get(dy + ((n * v->oh + i) * v->ow + j) * v->o + o),
                           e1_get(x + ((n * v->h + h) * v->w + q) * v->c + o / v->og * v->cg + c), sum);
            }
    return sum;
}

/* What an output channel's weights and bias get. */
static void weight_channel(void *context, int64_t o, void *scratch)
{
    const conv *v = context;
    const int64_t size = v->cg * v->kh * v->kw, pixels = v->a->in[0].elements / v->o;
    const elem *dy = (const elem *)v->a->in[0].data + o;
    (void)scratch;
    for (int64_t e = 0; e < size; e++) {
        float sum = weight_gradient(v, o, e / v->kw / v->kh, e / v->kw % v->kh, e % v->kw);
        w16_put_or_add(&v->a->out[0], o * size + e, v16_set1(sum), 1, sl_accumulates(v->a, 0));
    }
    if (v->a->output_count < 2 || v->a->out[1].data == NULL) return;
    float sum = 0.0f;
    for (int64_t i = 0; i < pixels; i++) sum += e1_get(dy + i * v->o);
    w16_put_or_add(&v->a->out[1], o, v16_set1(sum), 1, sl_accumulates(v->a, 1));
}

/* dy, x -> dw, dbias? */
void K(conv2d_grad_weight)(const sl_kernel_args *a)
{
    conv v = conv_of(a, a->in[1].shape, a->in[0].shape, a->out[0].shape);
    sl_pool_run(a->pool, weight_channel, &v, v.o);
}
