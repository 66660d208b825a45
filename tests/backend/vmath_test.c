/* vmath_test.c: the scalar path's exp, erf, sigmoid and log against the C library in double. That the other paths agree
 * with it in bits is ops_test.c's business. */
#include "backend/cpu/kernels/vmath.h"

#include "test.h"

/* Distance of y from the true value in units of the true value's last place. */
static double ulps(float y, double truth)
{
    int exponent;
    if ((float)truth == y) return 0;
    frexp(truth, &exponent);
    if (exponent < -125) exponent = -125;
    return fabs((double)y - truth) / ldexp(1, exponent - 24);
}

typedef sl_v16 (*function16)(sl_v16 x);

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

/* Largest error over a sweep of [low, high]. */
static double worst(function16 f, double (*truth)(double), float low, float high)
{
    const int steps = 200000;
    double largest = 0;
    for (int i = 0; i < steps; i += SL_LANES) {
        float x[SL_LANES], y[SL_LANES];
        for (int k = 0; k < SL_LANES; k++) x[k] = low + (high - low) * (float)(i + k) / (float)steps;
        v16_store(y, f(v16_load(x)));
        for (int k = 0; k < SL_LANES; k++) largest = fmax(largest, ulps(y[k], truth((double)x[k])));
    }
    return largest;
}

static float one(function16 f, float x)
{
    float y[SL_LANES];
    v16_store(y, f(v16_set1(x)));
    return y[0];
}

TEST(exp_is_within_one_unit_in_the_last_place)
{
    CHECK(worst(v16_exp, exp, -87.0f, 88.7f) <= 1.0);
    CHECK(worst(v16_exp, exp, -1.0f, 1.0f) <= 1.0);
    CHECK(worst(v16_exp, exp, -104.0f, -87.0f) <= 1.0); /* results are subnormal */
}

TEST(erf_and_sigmoid_are_within_three_units_in_the_last_place)
{
    CHECK(worst(v16_erf, erf, -5.0f, 5.0f) <= 3.0);
    CHECK(worst(v16_erf, erf, -1e-3f, 1e-3f) <= 3.0);
    CHECK(worst(v16_sigmoid, sigmoid, -80.0f, 80.0f) <= 3.0);
}

TEST(log_is_rounded_from_double)
{
    for (float x = 1e-44f; x < 1e38f; x *= 1.37f) CHECK(ulps(sl_log(x), log((double)x)) <= 0.5000001);
    for (float x = 0.5f; x < 2.0f; x += 1e-4f) CHECK(ulps(sl_log(x), log((double)x)) <= 0.5000001);
    CHECK(sl_log(1.0f) == 0.0f);
    CHECK(sl_log(0.0f) == -INFINITY);
    CHECK(sl_log(INFINITY) == INFINITY);
    CHECK(isnan(sl_log(-1.0f)) && isnan(sl_log(NAN)));
}

TEST(exponentials_reach_their_limits_and_keep_nan)
{
    CHECK(one(v16_exp, -INFINITY) == 0.0f && one(v16_exp, INFINITY) == INFINITY);
    CHECK(one(v16_exp, 0.0f) == 1.0f && one(v16_exp, 89.0f) == INFINITY && one(v16_exp, -105.0f) == 0.0f);
    CHECK(one(v16_sigmoid, -INFINITY) == 0.0f && one(v16_sigmoid, INFINITY) == 1.0f);
    CHECK(one(v16_erf, -INFINITY) == -1.0f && one(v16_erf, INFINITY) == 1.0f);
    CHECK(isnan(one(v16_exp, NAN)) && isnan(one(v16_erf, NAN)) && isnan(one(v16_sigmoid, NAN)));
}
