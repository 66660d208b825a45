/* vmath.h: exp, erf, sigmoid, tanh and log that give the same bits on every instruction path.
 *
 * Range reduction plus a polynomial, every step an IEEE operation of simd.h, so that no path depends on a math library.
 * The polynomials are minimax fits of the relative error (of erfc's absolute error for the outer part of erf). Errors
 * against the true value, over all inputs: exp 1 ulp, erf and sigmoid 2.5 ulp, log 0.5 ulp; NaN stays NaN, infinities
 * give the limits. */
#ifndef SL_BACKEND_CPU_VMATH_H
#define SL_BACKEND_CPU_VMATH_H

#include "backend/cpu/kernels/simd.h"

/* a * 2^n for a near 1 and integral n in [-252, 254]: rounded once, also where the result is subnormal or overflows. */
static inline sl_v16 v16_scale2(sl_v16 a, sl_v16 n)
{
#if defined(SL_ISA_avx512)
    return _mm512_scalef_ps(a, n);
#else
    sl_v16 half = v16_round(v16_mul(n, v16_set1(0.5f)));
    return v16_ldexp(v16_ldexp(a, half), v16_sub(n, half)); /* the inner product is exact */
#endif
}

/* e^x for x in [-104, 89], or NaN. */
static inline sl_v16 v16_exp_bounded(sl_v16 x)
{
    sl_v16 n = v16_round(v16_mul(x, v16_set1(1.44269504f)));
    n = v16_min(n, v16_set1(129.0f));                  /* a NaN's n becomes a number; its fraction stays NaN */
    sl_v16 r = v16_fma(n, v16_set1(-0.693359375f), x); /* exact: the high part of ln 2 has 9 bits */
    r = v16_fma(n, v16_set1(2.12194440e-4f), r);
    sl_v16 p = v16_set1(0.00138145941f);
    p = v16_fma(p, r, v16_set1(0.00836871751f));
    p = v16_fma(p, r, v16_set1(0.041668389f));
    p = v16_fma(p, r, v16_set1(0.166665211f));
    p = v16_fma(p, r, v16_set1(0.49999994f));
    p = v16_fma(p, v16_mul(r, r), r);
    return v16_scale2(v16_add(p, v16_set1(1.0f)), n);
}

/* e^x. Below -104 it is 0, above 88.73 infinity; subnormal results are kept. */
static inline sl_v16 v16_exp(sl_v16 x)
{
    x = v16_max(v16_set1(-104.0f), x); /* in this order NaN passes */
    return v16_exp_bounded(v16_min(v16_set1(89.0f), x));
}

/* 1 / (1 + e^-x) */
static inline sl_v16 v16_sigmoid(sl_v16 x)
{
    sl_v16 one = v16_set1(1.0f);
    return v16_div(one, v16_add(one, v16_exp(v16_neg(x))));
}

/* erf(x): x P(x^2) for |x| <= 1, outside sign(x) (1 - e^-Q(|x|)), where Q fits -log(erfc). From 4 on it is 1. */
static inline sl_v16 v16_erf(sl_v16 x)
{
    sl_v16 square = v16_mul(x, x);
    sl_v16 inner = v16_set1(7.85412049e-05f);
    inner = v16_fma(inner, square, v16_set1(-0.000801027811f));
    inner = v16_fma(inner, square, v16_set1(0.00518833846f));
    inner = v16_fma(inner, square, v16_set1(-0.0268538184f));
    inner = v16_fma(inner, square, v16_set1(0.112835854f));
    inner = v16_fma(inner, square, v16_set1(-0.37612626f));
    inner = v16_fma(inner, square, v16_set1(1.12837911f));
    inner = v16_mul(inner, x);

    sl_v16 t = v16_min(v16_set1(4.0f), v16_abs(x));
    sl_v16 q = v16_set1(-0.000185581768f);
    q = v16_fma(q, t, v16_set1(0.00293968129f));
    q = v16_fma(q, t, v16_set1(-0.0218056068f));
    q = v16_fma(q, t, v16_set1(0.103037953f));
    q = v16_fma(q, t, v16_set1(0.638225019f));
    q = v16_fma(q, t, v16_set1(1.12704039f));
    q = v16_fma(q, t, v16_set1(0.000353626761f));
    sl_v16 outer = v16_sub(v16_set1(1.0f), v16_exp(v16_neg(q)));
    outer = v16_select_gt0(x, outer, v16_neg(outer));
    return v16_select_gt0(v16_sub(t, v16_set1(1.0f)), outer, inner);
}

/* tanh(x): x P(x^2) for |x| <= 0.625, where 1 - 2 / (e^2|x| + 1) would cancel; that outside, with the sign of x. A NaN
 * takes the polynomial and stays one. */
static inline sl_v16 v16_tanh(sl_v16 x)
{
    sl_v16 square = v16_mul(x, x), size = v16_abs(x), one = v16_set1(1.0f);
    sl_v16 p = v16_set1(-5.70498872745e-3f);
    p = v16_fma(p, square, v16_set1(2.06390887954e-2f));
    p = v16_fma(p, square, v16_set1(-5.37397155531e-2f));
    p = v16_fma(p, square, v16_set1(1.33314422036e-1f));
    p = v16_fma(p, square, v16_set1(-3.33332819422e-1f));
    sl_v16 inner = v16_fma(v16_mul(p, square), x, x);
    sl_v16 outer = v16_sub(one, v16_div(v16_set1(2.0f), v16_add(v16_exp(v16_add(size, size)), one)));
    outer = v16_select_gt0(x, outer, v16_neg(outer));
    return v16_select_gt0(v16_sub(size, v16_set1(0.625f)), outer, inner);
}

/* cap tanh(x / cap) */
static inline sl_v16 v16_softcap(sl_v16 x, float cap)
{
    const sl_v16 c = v16_set1(cap);
    return v16_mul(c, v16_tanh(v16_div(x, c)));
}

/* log(1 + x) for x in [0, 2], with a relative error of 3 ulp: 2 artanh(x / (2 + x)) by its series, of arguments up to
 * 1/2. A NaN stays one. */
static inline sl_v16 v16_log1p(sl_v16 x)
{
    sl_v16 s = v16_div(x, v16_add(x, v16_set1(2.0f))), z = v16_mul(s, s);
    sl_v16 sum = v16_set1(1.0f / 23.0f);
    for (int k = 21; k >= 3; k -= 2) sum = v16_fma(sum, z, v16_set1(1.0f / (float)k));
    sl_v16 twice = v16_add(s, s);
    return v16_fma(v16_mul(sum, z), twice, twice);
}

/* Natural logarithm of one number, in double and rounded once: for a row's log of a sum, where sixteen lanes have no
 * use. x = m 2^e with m in [sqrt(1/2), sqrt(2)), log m = 2 artanh(s), s = (m - 1) / (m + 1), by its series: |s| <
 * 0.172. */
static inline float sl_log(float x)
{
    if (!(x > 0.0f)) return x == 0.0f ? -INFINITY : NAN;
    if (x == INFINITY) return x;
    double m = (double)x; /* a subnormal float is a normal double */
    uint64_t bits;
    memcpy(&bits, &m, sizeof bits);
    int64_t e = (int64_t)((bits - 0x3fe6a09e667f3bcdu) >> 52); /* counts from sqrt(1/2) */
    if (e >= 0x800) e -= 0x1000;                               /* the subtraction borrowed */
    bits -= (uint64_t)e << 52;
    memcpy(&m, &bits, sizeof m);
    double s = (m - 1.0) / (m + 1.0), z = s * s, sum = 0.0;
    for (int k = 15; k >= 1; k -= 2) sum = sum * z + 1.0 / k;
    return (float)((double)e * 0.69314718055994530942 + 2.0 * s * sum);
}

#endif
