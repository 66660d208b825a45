/* update_rules.cuh: what each rule does to a weight and its state, given the unscaled, clipped gradient. The rules are
 * those of backend/cpu/kernels/update_rules.h, operation for operation: each is one IEEE operation, fused exactly where
 * __fmaf_rn is written, so that the bits are the CPU's (exact rule 4). */
#ifndef SL_BACKEND_CUDA_UPDATE_RULES_CUH
#define SL_BACKEND_CUDA_UPDATE_RULES_CUH

#include "backend/cuda/update.cuh"

inline namespace SL_KERNELS
{
/* A weight and its state. */
struct cell {
    float w, s[SL_MAX_STATE_SLOTS];
};

/* w - rate * x, fused. */
__device__ __forceinline__ float descend(float w, float rate, float x)
{
    return __fmaf_rn(-rate, x, w);
}

__device__ __forceinline__ float decayed(const coefficients &c, float g, float w)
{
    return __fmaf_rn(c.weight_decay, w, g);
}

/* What most rules are: one pass that reads a gradient and renews the states. */
template <int slots_> struct one_pass {
    static constexpr int slots = slots_;
    static constexpr bool reads_gradient = true, renews_states = true;
    static constexpr bool has_rates = false; /* update_args.rates instead of the group's */
};

/* torch.optim.SGD: L2 decay joins the gradient; the first step's momentum is the gradient. */
struct sgd_plain : one_pass<0> {
    static __device__ __forceinline__ void apply(const coefficients &c, float g, cell &e)
    {
        e.w = descend(e.w, c.rate, decayed(c, g, e.w));
    }
};

struct sgd_momentum : one_pass<1> {
    static __device__ __forceinline__ void apply(const coefficients &c, float g, cell &e)
    {
        float d = decayed(c, g, e.w);
        e.s[0] = __fmaf_rn(c.keep, e.s[0], __fmul_rn(c.take, d));
        e.w = descend(e.w, c.rate, e.s[0]);
    }
};

struct sgd_nesterov : one_pass<1> {
    static __device__ __forceinline__ void apply(const coefficients &c, float g, cell &e)
    {
        float d = decayed(c, g, e.w);
        e.s[0] = __fmaf_rn(c.keep, e.s[0], __fmul_rn(c.take, d));
        e.w = descend(e.w, c.rate, __fmaf_rn(c.momentum, e.s[0], d));
    }
};

/* LARS as in its paper: the local rate scales gradient and decay before they enter the momentum. rate = lr * local
 * rate. */
struct lars_plain : sgd_plain {
    static constexpr bool has_rates = true;
};

struct lars_momentum : one_pass<1> {
    static constexpr bool has_rates = true;
    static __device__ __forceinline__ void apply(const coefficients &c, float g, cell &e)
    {
        float d = __fmul_rn(c.rate, decayed(c, g, e.w));
        e.s[0] = __fmaf_rn(c.keep, e.s[0], __fmul_rn(c.take, d));
        e.w = __fsub_rn(e.w, e.s[0]);
    }
};

struct lars_nesterov : one_pass<1> {
    static constexpr bool has_rates = true;
    static __device__ __forceinline__ void apply(const coefficients &c, float g, cell &e)
    {
        float d = __fmul_rn(c.rate, decayed(c, g, e.w));
        e.s[0] = __fmaf_rn(c.keep, e.s[0], __fmul_rn(c.take, d));
        e.w = __fsub_rn(e.w, __fmaf_rn(c.momentum, e.s[0], d));
    }
};

/* torch.optim.Adagrad without lr decay. */
struct adagrad : one_pass<1> {
    static __device__ __forceinline__ void apply(const coefficients &c, float g, cell &e)
    {
        float d = decayed(c, g, e.w);
        e.s[0] = __fmaf_rn(d, d, e.s[0]);
        e.w = descend(e.w, c.rate, __fdiv_rn(d, __fadd_rn(__fsqrt_rn(e.s[0]), c.epsilon)));
    }
};

__device__ __forceinline__ void moments(const coefficients &c, float g, cell &e)
{
    e.s[0] = __fmaf_rn(c.beta1, e.s[0], __fmul_rn(c.one_minus_beta1, g));
    e.s[1] = __fmaf_rn(__fmul_rn(c.one_minus_beta2, g), g, __fmul_rn(c.beta2, e.s[1]));
}

/* torch.optim.Adam and AdamW. The division by sqrt(bias_correction2) is a product with its reciprocal, rounded once per
 * step. */
template <bool decoupled, bool amsgrad> struct adam : one_pass<amsgrad ? 3 : 2> {
    static __device__ __forceinline__ void apply(const coefficients &c, float g, cell &e)
    {
        if (decoupled) e.w = __fmul_rn(e.w, c.decay_factor);
        if (!decoupled) g = decayed(c, g, e.w);
        moments(c, g, e);
        float variance = e.s[1];
        if (amsgrad) variance = e.s[2] = e.s[2] > variance ? e.s[2] : variance;
        float denominator = __fmaf_rn(__fsqrt_rn(variance), c.inverse_bias2, c.epsilon);
        e.w = descend(e.w, c.rate, __fdiv_rn(e.s[0], denominator));
    }
};
typedef adam<false, false> adam_l2;
typedef adam<true, false> adam_decoupled;
typedef adam<false, true> adam_l2_amsgrad;
typedef adam<true, true> adam_decoupled_amsgrad;

/* Lion with decoupled decay: w moves by lr against the sign of the interpolated gradient. Zero has no sign and moves
 * nothing. */
struct lion : one_pass<1> {
    static __device__ __forceinline__ void apply(const coefficients &c, float g, cell &e)
    {
        float d = __fmaf_rn(c.beta1, e.s[0], __fmul_rn(c.one_minus_beta1, g));
        float move = d > 0.0f ? -c.rate : d < 0.0f ? c.rate : 0.0f;
        e.w = __fmaf_rn(e.w, c.decay_factor, move);
        e.s[0] = __fmaf_rn(c.beta2, e.s[0], __fmul_rn(c.one_minus_beta2, g));
    }
};

/* torch.optim.RMSprop. Slots: mean of squares, then momentum, then mean, of which the last two may be missing. Where
 * rounding leaves the variance around the mean below zero it counts as zero (torch: NaN). */
template <bool with_momentum, bool centered> struct rmsprop_rule : one_pass<1 + with_momentum + centered> {
    static __device__ __forceinline__ void apply(const coefficients &c, float g, cell &e)
    {
        constexpr int mean = with_momentum ? 2 : 1;
        float d = decayed(c, g, e.w);
        e.s[0] = __fmaf_rn(__fmul_rn(c.one_minus_beta2, d), d, __fmul_rn(c.beta2, e.s[0]));
        float variance = e.s[0];
        if (centered) {
            e.s[mean] = __fmaf_rn(c.beta2, e.s[mean], __fmul_rn(c.one_minus_beta2, d));
            variance = __fmaf_rn(-e.s[mean], e.s[mean], variance);
            variance = variance > 0.0f ? variance : 0.0f;
        }
        float step = __fdiv_rn(d, __fadd_rn(__fsqrt_rn(variance), c.epsilon));
        if (with_momentum) step = e.s[1] = __fmaf_rn(c.momentum, e.s[1], step);
        e.w = descend(e.w, c.rate, step);
    }
};
typedef rmsprop_rule<false, false> rmsprop;
typedef rmsprop_rule<true, false> rmsprop_momentum;
typedef rmsprop_rule<false, true> rmsprop_centered;
typedef rmsprop_rule<true, true> rmsprop_centered_momentum;

/* LAMB as DeepSpeed's FusedLamb: no bias correction inside the direction, epsilon outside the root, decay joins the
 * direction. */
__device__ __forceinline__ float lamb_direction(const coefficients &c, const cell &e)
{
    float step = __fdiv_rn(e.s[0], __fadd_rn(__fsqrt_rn(e.s[1]), c.epsilon));
    return __fmaf_rn(c.weight_decay, e.w, step);
}

/* Second pass: the moments are already this step's. */
struct lamb : one_pass<2> {
    static constexpr bool reads_gradient = false, renews_states = false, has_rates = true;
    static __device__ __forceinline__ void apply(const coefficients &c, float, cell &e)
    {
        e.w = descend(e.w, c.rate, lamb_direction(c, e));
    }
};
} // namespace SL_KERNELS

#endif
