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

static inline bool is_class(int32_t target, int64_t classes)
{
    return target >= 0 && target < classes;
}

/* -log of the target's probability */
static inline double entropy_row_loss(const elem *logits, int64_t classes, float lse, int32_t target)
{
    if (!is_class(target, classes)) return NAN;
    return (double)lse - (double)e1_get(&logits[target]);
}

/* d = (softmax - 1 at the target) gradient; d may be x. The target's element is rounded once, too, so its logit is read
 * before d is written. */
static inline void entropy_row_gradient(elem *d, const elem *x, int64_t classes, float lse_of_row, int32_t target,
                                        float gradient)
{
    const bool known = is_class(target, classes);
    const float target_logit = known ? e1_get(x + target) : 0.0f;
    const sl_v16 lse = v16_set1(lse_of_row), g = v16_set1(known ? gradient : NAN);
    for (int64_t i = 0; i < classes; i += SL_LANES) {
        sl_v16 p = v16_exp(v16_sub(e16_get(x + i, classes - i, 0.0f), lse));
        e16_put(d + i, v16_mul(p, g), classes - i);
    }
    if (!known) return;
    sl_v16 p = v16_exp(v16_sub(v16_set1(target_logit), lse));
    e16_put(d + target, v16_sub(v16_mul(p, g), g), 1);
}

/* The mean of `count` losses, rounded once; 0 where all rows were ignored. */
static inline float entropy_mean(entropy_part total)
{
    return total.count > 0 ? (float)(total.loss / (double)total.count) : 0.0f;
}

#endif
