/* entropy.h: one row of a cross entropy, whole or within a head that never holds all its logits.
 *
 * A target that is neither ignored nor a class cannot be ignored silently, and must not be used as an index: it makes
 * the loss and its row's gradient NaN, which stops the run as numbers gone bad. */
#ifndef SL_BACKEND_CPU_ENTROPY_H
#define SL_BACKEND_CPU_ENTROPY_H

#include "backend/cpu/kernels/rows.h"

/* Losses of some rows, and how many of them were not ignored. */
typedef struct entropy_part {
    double loss;
    int64_t count;
} entropy_part;

/* How a row's loss is shaped. */
typedef struct entropy_rule {
    float cap;       /* of logits; 0: none */
    float smoothing; /* what of a target all classes share; 0: nothing */
} entropy_rule;

static inline entropy_rule entropy_rule_of(const sl_attrs *attrs)
{
    return (entropy_rule){ attrs->cross_entropy.softcap, attrs->cross_entropy.smoothing };
}

static inline bool is_class(int32_t target, int64_t classes)
{
    return target >= 0 && target < classes;
}

/* Logits as the loss takes them: cap tanh(x / cap), or x where there is no cap. */
SL_INLINE sl_v16 capped(sl_v16 x, float cap)
{
    return cap > 0.0f ? v16_softcap(x, cap) : x;
}

static inline float capped_one(const elem *x, float cap)
{
    float out[SL_LANES];
    v16_put(out, capped(v16_set1(e1_get(x)), cap), SL_LANES);
    return out[0];
}

/* Sixteen capped logits of which `left` are there; the others are -infinity, which a cap would lift. */
SL_INLINE sl_v16 capped_get(const elem *x, int64_t left, float cap)
{
    sl_v16 v = capped(e16_get(x, left, 0.0f), cap);
    if (left >= SL_LANES) return v;
    float out[SL_LANES];
    v16_put(out, v, SL_LANES);
    return v16_get(out, left, -INFINITY);
}

/* sl_row_lse of capped logits. */
static inline float entropy_row_lse(const elem *x, int64_t n, float cap)
{
    if (!(cap > 0.0f)) return sl_row_lse(x, n);
    const sl_v16 shift = capped(v16_set1(sl_row_max(x, n)), cap);
    double total = 0.0;
    for (int64_t begin = 0; begin < n; begin += SL_SUM_BLOCK) {
        const int64_t end = sl_least(begin + SL_SUM_BLOCK, n);
        sl_v16 sum = v16_set1(0.0f);
        for (int64_t i = begin; i < end; i += SL_LANES)
            sum = v16_add(sum, v16_exp(v16_sub(capped_get(x + i, end - i, cap), shift)));
        total += (double)v16_sum(sum);
    }
    return v16_max_lane(shift) + sl_log((float)total);
}

/* Of capped logits, as sl_row_lse sums exponentials. */
static inline double entropy_row_mean(const elem *x, int64_t n, float cap)
{
    double total = 0.0;
    for (int64_t begin = 0; begin < n; begin += SL_SUM_BLOCK) {
        const int64_t end = sl_least(begin + SL_SUM_BLOCK, n);
        sl_v16 sum = v16_set1(0.0f);
        for (int64_t i = begin; i < end; i += SL_LANES)
            sum = v16_add(sum, capped(e16_get(x + i, end - i, 0.0f), cap)); /* a cap of 0 is 0 */
        total += (double)v16_sum(sum);
    }
    return total / (double)n;
}

/* -log of the target's probability; with smoothing s, 1 - s of that and s of the mean over all classes. */
static inline double entropy_row_loss(const elem *logits, int64_t classes, float lse, int32_t target, entropy_rule rule)
{
    if (!is_class(target, classes)) return NAN;
    const double nll = (double)lse - (double)capped_one(&logits[target], rule.cap);
    if (!(rule.smoothing > 0.0f)) return nll;
    const double all = (double)lse - entropy_row_mean(logits, classes, rule.cap), s = (double)rule.smoothing;
    return (1.0 - s) * nll + s * all;
}

/* What the gradient of capped logits, g, is of the logits themselves: (1 - tanh^2(x / cap)) g. */
SL_INLINE sl_v16 uncapped(sl_v16 g, sl_v16 capped_x, float cap)
{
    if (!(cap > 0.0f)) return g;
    const sl_v16 t = v16_div(capped_x, v16_set1(cap));
    return v16_mul(g, v16_fma(v16_neg(t), t, v16_set1(1.0f)));
}

/* d = (softmax - what the target has of each class) gradient; d may be x. The target's element is rounded once, too, so
 * its logit is read before d is written. */
static inline void entropy_row_gradient(elem *d, const elem *x, int64_t classes, float lse_of_row, int32_t target,
                                        float gradient, entropy_rule rule)
{
    const bool known = is_class(target, classes);
    const float target_logit = known ? capped_one(x + target, rule.cap) : 0.0f;
    const float each = (float)((double)rule.smoothing / (double)classes * (double)gradient);
    const float own = (float)((1.0 - (double)rule.smoothing) * (double)gradient) + each;
    const sl_v16 lse = v16_set1(lse_of_row), g = v16_set1(known ? gradient : NAN), shared = v16_set1(each);
    for (int64_t i = 0; i < classes; i += SL_LANES) {
        sl_v16 y = capped(e16_get(x + i, classes - i, 0.0f), rule.cap);
        sl_v16 p = v16_exp(v16_sub(y, lse));
        e16_put(d + i, uncapped(v16_sub(v16_mul(p, g), shared), y, rule.cap), classes - i);
    }
    if (!known) return;
    sl_v16 y = v16_set1(target_logit), p = v16_exp(v16_sub(y, lse));
    e16_put(d + target, uncapped(v16_sub(v16_mul(p, g), v16_set1(own)), y, rule.cap), 1);
}

/* The mean of `count` losses, rounded once; 0 where all rows were ignored. */
static inline float entropy_mean(entropy_part total)
{
    return total.count > 0 ? (float)(total.loss / (double)total.count) : 0.0f;
}

#endif
