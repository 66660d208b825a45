/* plain_conv.c: stands in for cudnn_conv.c in the emulated backend: convolutions in ordinary memory, of what cuDNN would
 * be given, so that cuda_conv.c runs unchanged where there is no GPU. It takes what is in 16 bits, with outputs in
 * eights: the other half of the cases shows what is done without it. */
#include <math.h>
#include <stdlib.h>

#include "backend/cuda/cuda_conv.h"
#include "core/half.h"
#include "core/status.h"

static float get(const void *p, sl_form form, int64_t i)
{
    return form == SL_FORM_BF16 ? sl_bf16_to_float(((const uint16_t *)p)[i])
                                : sl_f16_to_float(((const uint16_t *)p)[i]);
}

static void put(void *p, sl_form form, int64_t i, float x, bool add)
{
    if (add) x += get(p, form, i);
    ((uint16_t *)p)[i] = form == SL_FORM_BF16 ? sl_float_to_bf16(x) : sl_float_to_f16(x);
}

sluice_status sl_cuda_library_conv_find(const sl_cuda_args *a, const sl_library_conv *v, bool *found)
{
    (void)a;
    *found = v->form != SL_FORM_F32 && v->conv.o % 8 == 0;
    return SLUICE_OK;
}

/* Where y[n,p,q,o] meets place (r, s), channel c of its filter: elements of x and w. False: outside x. */
static bool meet(const sl_cuda_conv *c, const int64_t y[4], int64_t r, int64_t s, int64_t channel, int64_t *x,
                 int64_t *w)
{
    const int64_t in = c->c / c->groups, group = y[3] / (c->o / c->groups);
    const int64_t h = y[1] * c->stride_h - c->padding_h + r * c->dilation_h;
    const int64_t v = y[2] * c->stride_w - c->padding_w + s * c->dilation_w;
    if (h < 0 || h >= c->h || v < 0 || v >= c->w) return false;
    *x = ((y[0] * c->h + h) * c->w + v) * c->c + group * in + channel;
    *w = ((y[3] * c->kh + r) * c->kw + s) * in + channel;
    return true;
}

/* Adds one product to the sum it belongs to. */
static void add_term(const sl_library_conv *v, int64_t x, int64_t w, int64_t y, float *sums)
{
    if (v->op == SL_OP_CONV2D)
        sums[y] = fmaf(get(v->x, v->form, x), get(v->w, v->form, w), sums[y]);
    else if (v->op == SL_OP_CONV2D_GRAD_INPUT)
        sums[x] = fmaf(get(v->y, v->form, y), get(v->w, v->form, w), sums[x]);
    else
        sums[w] = fmaf(get(v->y, v->form, y), get(v->x, v->form, x), sums[w]);
}

static void add_terms(const sl_library_conv *v, float *sums)
{
    const sl_cuda_conv *c = &v->conv;
    const int64_t in = c->c / c->groups;
    for (int64_t i = 0; i < c->n * c->p * c->q * c->o; i++) {
        const int64_t y[4] = { i / (c->o * c->q * c->p), i / (c->o * c->q) % c->p, i / c->o % c->q, i % c->o };
        for (int64_t k = 0; k < c->kh * c->kw * in; k++) {
            int64_t x, w;
            if (meet(c, y, k / in / c->kw, k / in % c->kw, k % in, &x, &w)) add_term(v, x, w, i, sums);
        }
    }
}

/* Sums in memory of its own, not counted as an allocation of the program, which makes none here. */
sluice_status sl_cuda_library_conv_run(const sl_cuda_args *a, const sl_library_conv *v)
{
    const sl_cuda_conv *c = &v->conv;
    const int64_t elements = v->op == SL_OP_CONV2D              ? c->n * c->p * c->q * c->o
                             : v->op == SL_OP_CONV2D_GRAD_INPUT ? c->n * c->h * c->w * c->c
                                                                : c->o * c->kh * c->kw * (c->c / c->groups);
    void *out = v->op == SL_OP_CONV2D ? v->y : v->op == SL_OP_CONV2D_GRAD_INPUT ? v->x : v->w;
    if (a->workspace == NULL || a->workspace_bytes < SL_CUDA_CONV_SCRATCH)
        return sl_fail(SLUICE_ERR_FAILED, "a convolution without its scratch memory");
    float *sums = calloc((size_t)elements, sizeof *sums);
    if (sums == NULL) abort();
    add_terms(v, sums);
    for (int64_t i = 0; i < elements; i++) put(out, v->form, i, sums[i], v->add);
    free(sums);
    return SLUICE_OK;
}
