/* depthwise.c: see depthwise.h. Each element is one chain of products, over the taps in row order, or over the pixels. */
#include "backend/cpu/kernels/depthwise.h"

#include "backend/cpu/kernels/elem.h"

typedef struct depthwise {
    const sl_kernel_args *a;
    const sl_shape *x, *y;
    int64_t c, kh, kw, sh, sw, ph, pw, dh, dw;
    const elem *weights; /* [tap][channel] */
} depthwise;

static depthwise depthwise_of(const sl_kernel_args *a, const sl_shape *x, const sl_shape *y, const sl_shape *w)
{
    const sl_attrs *t = a->attrs;
    return (depthwise){ .a = a,
                        .x = x,
                        .y = y,
                        .c = x->dim[3],
                        .kh = w->dim[2],
                        .kw = w->dim[3],
                        .sh = t->conv.stride_h,
                        .sw = t->conv.stride_w,
                        .ph = t->conv.padding_h,
                        .pw = t->conv.padding_w,
                        .dh = t->conv.dilation_h,
                        .dw = t->conv.dilation_w };
}

/* Channels side by side, tap by tap; one tap has them so already. */
static void order_weights(depthwise *d)
{
    const int64_t taps = d->kh * d->kw;
    const elem *w = d->a->in[1].data;
    elem *to = d->a->workspace;
    d->weights = taps == 1 ? w : to;
    for (int64_t i = 0; taps > 1 && i < taps * d->c; i++) to[i] = w[i % d->c * taps + i / d->c];
}

/* ---- forward ---- */

/* A row of y. */
static void forward_row(void *context, int64_t task, void *scratch)
{
    const depthwise *d = context;
    const int64_t h = d->x->dim[1], w = d->x->dim[2], first = task % d->y->dim[1] * d->sh - d->ph;
    const elem *x = (const elem *)d->a->in[0].data + task / d->y->dim[1] * h * w * d->c;
    const elem *bias = d->a->input_count > 2 ? d->a->in[2].data : NULL;
    elem *y = (elem *)d->a->out[0].data + task * d->y->dim[2] * d->c;
    (void)scratch;
    for (int64_t j = 0; j < d->y->dim[2]; j++)
        for (int64_t c = 0; c < d->c; c += SL_LANES) {
            const int64_t left = d->c - c;
            sl_v16 sum = v16_set1(0.0f);
            for (int64_t a = 0; a < d->kh; a++) {
                const int64_t row = first + a * d->dh;
                if (row < 0 || row >= h) continue;
                for (int64_t b = 0; b < d->kw; b++) {
                    const int64_t column = j * d->sw - d->pw + b * d->dw;
                    if (column < 0 || column >= w) continue;
                    sum = v16_fma(e16_get(x + (row * w + column) * d->c + c, left, 0.0f),
                                  e16_get(d->weights + (a * d->kw + b) * d->c + c, left, 0.0f), sum);
                }
            }
            if (bias != NULL) sum = v16_add(sum, e16_get(bias + c, left, 0.0f));
            e16_put(y + j * d->c + c, sum, left);
        }
}

void K(depthwise)(const sl_kernel_args *a)
{
    depthwise d = depthwise_of(a, a->in[0].shape, a->out[0].shape, a->in[1].shape);
    order_weights(&d);
    sl_pool_run(a->pool, forward_row, &d, d.y->dim[0] * d.y->dim[1]);
}

/* ---- the gradient of x ---- */

/* The window, of `windows`, whose tap lies `tap` places on from its begin at `place` of the padded image; -1: none. */
SL_INLINE int64_t window_at(int64_t place, int64_t tap, int64_t stride, int64_t windows)
{
    const int64_t begin = place - tap;
    if (begin < 0 || (stride > 1 && begin % stride != 0)) return -1;
    const int64_t number = stride > 1 ? begin / stride : begin;
    return number < windows ? number : -1;
}

/* A row of dx. */
static void input_row(void *context, int64_t task, void *scratch)
{
    const depthwise *d = context;
    const int64_t h = d->x->dim[1], w = d->x->dim[2], oh = d->y->dim[1], ow = d->y->dim[2];
    const elem *dy = (const elem *)d->a->in[0].data + task / h * oh * ow * d->c;
    elem *dx = (elem *)d->a->out[0].data + task * w * d->c;
    (void)scratch;
    for (int64_t q = 0; q < w; q++)
        for (int64_t c = 0; c < d->c; c += SL_LANES) {
            const int64_t left = d->c - c;
            sl_v16 sum = v16_set1(0.0f);
            for (int64_t a = 0; a < d->kh; a++) {
                const int64_t i = window_at(task % h + d->ph, a * d->dh, d->sh, oh);
                for (int64_t b = 0; i >= 0 && b < d->kw; b++) {
                    const int64_t j = window_at(q + d->pw, b * d->dw, d->sw, ow);
                    if (j < 0) continue;
                    sum = v16_fma(e16_get(dy + (i * ow + j) * d->c + c, left, 0.0f),
                                  e16_get(d->weights + (a * d->kw + b) * d->c + c, left, 0.0f), sum);
                }
            }
            e16_put_or_add(dx + q * d->c + c, sum, left, sl_accumulates(d->a, 0));
        }
}

void K(depthwise_grad_input)(const sl_kernel_args *a)
{
    depthwise d = depthwise_of(a, a->out[0].shape, a->in[0].shape, a->in[1].shape);
    order_weights(&d);
    sl_pool_run(a->pool, input_row, &d, d.x->dim[0] * d.x->dim[1]);
}

/* ---- the gradient of w ---- */

/* Taps of a row whose chains run beside each other. */
#define TAPS_TOGETHER 4

/* Sixteen channels, `taps` taps of row `a` of the weight from b on: chains over the pixels in order. */
SL_INLINE void add_products(const depthwise *d, int64_t c, int64_t a, int64_t b, int taps, sl_v16 *sums)
{
    const int64_t h = d->x->dim[1], w = d->x->dim[2], oh = d->y->dim[1], ow = d->y->dim[2], left = d->c - c;
    for (int t = 0; t < taps; t++) sums[t] = v16_set1(0.0f);
    for (int64_t line = 0; line < d->y->dim[0] * oh; line++) {
        const int64_t row = line % oh * d->sh - d->ph + a * d->dh;
        if (row < 0 || row >= h) continue;
        const elem *dy = (const elem *)d->a->in[0].data + line * ow * d->c + c;
        const elem *x = (const elem *)d->a->in[1].data + (line / oh * h + row) * w * d->c + c;
        for (int64_t j = 0; j < ow; j++) {
            const sl_v16 v = e16_get(dy + j * d->c, left, 0.0f);
            for (int t = 0; t < taps; t++) {
                const int64_t column = j * d->sw - d->pw + (b + t) * d->dw;
                if (column >= 0 && column < w) sums[t] = v16_fma(v, e16_get(x + column * d->c, left, 0.0f), sums[t]);
            }
        }
    }
}

/* Task (sixteen channels, row of the weight). */
static void weight_row(void *context, int64_t task, void *scratch)
{
    const depthwise *d = context;
    const int64_t c = task / d->kh * SL_LANES, a = task % d->kh, taps = d->kh * d->kw;
    const sl_tensor *dw = &d->a->out[0];
    float lanes[SL_LANES];
    (void)scratch;
    for (int64_t b = 0; b < d->kw; b += TAPS_TOGETHER) {
        sl_v16 sums[TAPS_TOGETHER];
        const int count = (int)sl_least(d->kw - b, TAPS_TOGETHER);
        if (count == 3) /* the usual one */
            add_products(d, c, a, b, 3, sums);
        else
            add_products(d, c, a, b, count, sums);
        for (int t = 0; t < count; t++) {
            v16_store(lanes, sums[t]);
            for (int64_t i = 0; i < sl_least(d->c - c, SL_LANES); i++)
                w16_put_or_add(dw, (c + i) * taps + a * d->kw + b + t, v16_set1(lanes[i]), 1, sl_accumulates(d->a, 0));
        }
    }
}

void K(depthwise_grad_weight)(const sl_kernel_args *a)
{
    depthwise d = depthwise_of(a, a->in[1].shape, a->in[0].shape, a->out[0].shape);
    sl_pool_run(a->pool, weight_row, &d, sl_ceil_div(d.c, SL_LANES) * d.kh);
}
