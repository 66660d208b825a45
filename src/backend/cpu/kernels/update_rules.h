/* update_rules.h: what each rule does to sixteen weights and their state, given the unscaled, clipped gradient. Every
 * operation is one IEEE operation per element, fused exactly where v16_fma is written. */
#ifndef SL_BACKEND_CPU_UPDATE_RULES_H
#define SL_BACKEND_CPU_UPDATE_RULES_H

#include "backend/cpu/kernels/update.h"

/* Sixteen weights and their state. */
typedef struct cell {
    sl_v16 w, s[SL_MAX_STATE_SLOTS];
} cell;

typedef void (*cell_fn)(const coefficients *c, sl_v16 g, cell *e);

/* w - rate * x, fused. */
ALWAYS_INLINE sl_v16 descend(sl_v16 w, sl_v16 rate, sl_v16 x)
{
    return v16_fma(v16_neg(rate), x, w);
}

/* torch.optim.SGD: L2 decay joins the gradient; the first step's momentum is the gradient. */
ALWAYS_INLINE void sgd_plain(const coefficients *c, sl_v16 g, cell *e)
{
    e->w = descend(e->w, c->rate, v16_fma(c->weight_decay, e->w, g));
}

ALWAYS_INLINE void sgd_momentum(const coefficients *c, sl_v16 g, cell *e)
{
    sl_v16 d = v16_fma(c->weight_decay, e->w, g);
    e->s[0] = v16_fma(c->keep, e->s[0], v16_mul(c->take, d));
    e->w = descend(e->w, c->rate, e->s[0]);
}

ALWAYS_INLINE void sgd_nesterov(const coefficients *c, sl_v16 g, cell *e)
{
    sl_v16 d = v16_fma(c->weight_decay, e->w, g);
    e->s[0] = v16_fma(c->keep, e->s[0], v16_mul(c->take, d));
    e->w = descend(e->w, c->rate, v16_fma(c->momentum, e->s[0], d));
}

/* LARS as in its paper: the local rate scales gradient and decay before they enter the momentum. rate = lr * local
 * rate. */
ALWAYS_INLINE void lars_plain(const coefficients *c, sl_v16 g, cell *e)
{
    sgd_plain(c, g, e);
}

ALWAYS_INLINE void lars_momentum(const coefficients *c, sl_v16 g, cell *e)
{
    sl_v16 d = v16_mul(c->rate, v16_fma(c->weight_decay, e->w, g));
    e->s[0] = v16_fma(c->keep, e->s[0], v16_mul(c->take, d));
    e->w = v16_sub(e->w, e->s[0]);
}

ALWAYS_INLINE void lars_nesterov(const coefficients *c, sl_v16 g, cell *e)
{
    sl_v16 d = v16_mul(c->rate, v16_fma(c->weight_decay, e->w, g));
    e->s[0] = v16_fma(c->keep, e->s[0], v16_mul(c->take, d));
    e->w = v16_sub(e->w, v16_fma(c->momentum, e->s[0], d));
}

/* torch.optim.Adagrad without lr decay. */
ALWAYS_INLINE void adagrad(const coefficients *c, sl_v16 g, cell *e)
{
    sl_v16 d = v16_fma(c->weight_decay, e->w, g);
    e->s[0] = v16_fma(d, d, e->s[0]);
    e->w = descend(e->w, c->rate, v16_div(d, v16_add(v16_sqrt(e->s[0]), c->epsilon)));
}

ALWAYS_INLINE void moments(const coefficients *c, sl_v16 g, cell *e)
{
    e->s[0] = v16_fma(c->beta1, e->s[0], v16_mul(c->one_minus_beta1, g));
    e->s[1] = v16_fma(v16_mul(c->one_minus_beta2, g), g, v16_mul(c->beta2, e->s[1]));
}

/* torch.optim.Adam and AdamW: first the moments and the decay of the weight, then its move. The division by
 * sqrt(bias_correction2) is a product with its reciprocal, rounded once per step. */
ALWAYS_INLINE void adam_renew(const coefficients *c, sl_v16 g, cell *e, bool decoupled)
{
    if (decoupled) e->w = v16_mul(e->w, c->decay_factor);
    if (!decoupled) g = v16_fma(c->weight_decay, e->w, g);
    moments(c, g, e);
}

/* root: of the second moments, or of what amsgrad takes for them. */
ALWAYS_INLINE void adam_move(const coefficients *c, cell *e, sl_v16 root)
{
    sl_v16 denominator = v16_fma(root, c->inverse_bias2, c->epsilon);
    e->w = descend(e->w, c->rate, v16_div(e->s[0], denominator));
}

ALWAYS_INLINE void adam_cell(const coefficients *c, sl_v16 g, cell *e, bool decoupled, bool amsgrad)
{
    adam_renew(c, g, e, decoupled);
    sl_v16 variance = e->s[1];
    if (amsgrad) variance = e->s[2] = v16_max(e->s[2], variance);
    adam_move(c, e, v16_sqrt(variance));
}

ALWAYS_INLINE void adam_l2(const coefficients *c, sl_v16 g, cell *e)
{
    adam_cell(c, g, e, false, false);
}

ALWAYS_INLINE void adam_decoupled(const coefficients *c, sl_v16 g, cell *e)
{
    adam_cell(c, g, e, true, false);
}

ALWAYS_INLINE void adam_l2_amsgrad(const coefficients *c, sl_v16 g, cell *e)
{
    adam_cell(c, g, e, false, true);
}

ALWAYS_INLINE void adam_decoupled_amsgrad(const coefficients *c, sl_v16 g, cell *e)
{
    adam_cell(c, g, e, true, true);
}

/* Lion with decoupled decay: w moves by lr against the sign of the interpolated gradient. Zero has no sign and moves
 * nothing, as in the paper (DeepSpeed's CPU kernel would move such a weight down, its CUDA kernel up). */
ALWAYS_INLINE void lion(const coefficients *c, sl_v16 g, cell *e)
{
    sl_v16 d = v16_fma(c->beta1, e->s[0], v16_mul(c->one_minus_beta1, g));
    sl_v16 against_negative = v16_select_gt0(v16_neg(d), c->rate, v16_set1(0.0f));
    sl_v16 move = v16_select_gt0(d, v16_neg(c->rate), against_negative);
    e->w = v16_fma(e->w, c->decay_factor, move);
    e->s[0] = v16_fma(c->beta2, e->s[0], v16_mul(c->one_minus_beta2, g));
}

/* torch.optim.RMSprop. Slots: mean of squares, then momentum, then mean, of which the last two may be missing. Where
 * rounding leaves the variance around the mean below zero it counts as zero (torch: NaN). */
ALWAYS_INLINE void rmsprop_cell(const coefficients *c, sl_v16 g, cell *e, bool momentum, bool centered)
{
    sl_v16 d = v16_fma(c->weight_decay, e->w, g);
    e->s[0] = v16_fma(v16_mul(c->one_minus_beta2, d), d, v16_mul(c->beta2, e->s[0]));
    sl_v16 variance = e->s[0];
    if (centered) {
        sl_v16 *mean = &e->s[momentum ? 2 : 1];
        *mean = v16_fma(c->beta2, *mean, v16_mul(c->one_minus_beta2, d));
        variance = v16_max(v16_fma(v16_neg(*mean), *mean, variance), v16_set1(0.0f));
    }
    sl_v16 step = v16_div(d, v16_add(v16_sqrt(variance), c->epsilon));
    if (momentum) step = e->s[1] = v16_fma(c->momentum, e->s[1], step);
    e->w = descend(e->w, c->rate, step);
}

ALWAYS_INLINE void rmsprop(const coefficients *c, sl_v16 g, cell *e)
{
    rmsprop_cell(c, g, e, false, false);
}

ALWAYS_INLINE void rmsprop_momentum(const coefficients *c, sl_v16 g, cell *e)
{
    rmsprop_cell(c, g, e, true, false);
}

ALWAYS_INLINE void rmsprop_centered(const coefficients *c, sl_v16 g, cell *e)
{
    rmsprop_cell(c, g, e, false, true);
}

ALWAYS_INLINE void rmsprop_centered_momentum(const coefficients *c, sl_v16 g, cell *e)
{
    rmsprop_cell(c, g, e, true, true);
}

/* LAMB as DeepSpeed's FusedLamb: no bias correction inside the direction, epsilon outside the root, decay joins the
 * direction. */
ALWAYS_INLINE sl_v16 lamb_direction(const coefficients *c, const cell *e)
{
    sl_v16 adam = v16_div(e->s[0], v16_add(v16_sqrt(e->s[1]), c->epsilon));
    return v16_fma(c->weight_decay, e->w, adam);
}

/* Second pass: the moments are already this step's. */
ALWAYS_INLINE void lamb_apply(const coefficients *c, sl_v16 g, cell *e)
{
    (void)g;
    e->w = descend(e->w, c->rate, lamb_direction(c, e));
}

#endif
