/* normals.c: Box-Muller in lanes, with the bits of the C library's log, sin and cos.
 *
 * A normal is a double rounded to a float: 29 bits are dropped. The functions here are those of fdlibm (Sun, 1993)
 * without their branches; their results and the C library's differ by a few units in the last place of the double, and
 * that changes the float only where the double lies within a few units of the middle between two floats. Such doubles
 * (one in some 4 million) and those too small to judge are computed again with the C library. So the first weights of a
 * model do not depend on the instruction path, and are those of every version before this file.
 *
 * Error bounds, in units of the last place: log 1, its root 1, reduced argument 1.5, sine and cosine 1, product 0.5; the
 * C library's own below 3. The margin of 64 is several times the sum. */
#include "core/normals.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#define PHILOX_ROUNDS 10
#define MARGIN        64
/* What the rounding to float drops, and the middle of it. */
#define DROPPED_MASK ((UINT64_C(1) << 29) - 1)
#define MIDDLE       (UINT64_C(1) << 28)
/* Far above the subnormal floats, which drop more bits, and far below every normal that is not zero. */
#define SMALLEST 1e-25

static const double two_pi = 6.283185307179586476925286766559;

#define INLINE static inline __attribute__((always_inline))

INLINE uint64_t bits_of(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

INLINE double double_of(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Exact, and by way of signed numbers, which every path converts in lanes. */
INLINE double word_as_double(uint32_t w)
{
    return (double)(int32_t)(w ^ UINT32_C(0x80000000)) + 0x1p31;
}

INLINE double unit_of(uint32_t w)
{
    return (word_as_double(w) + 1.0) * 0x1p-32; /* of (0, 1]: the logarithm is finite */
}

INLINE double angle_of(uint32_t w)
{
    return two_pi * (word_as_double(w) * 0x1p-32);
}

void sl_normal_pair(uint32_t radius_word, uint32_t angle_word, float *even, float *odd)
{
    double radius = sqrt(-2.0 * log(unit_of(radius_word))), angle = angle_of(angle_word);
    *even = (float)(radius * cos(angle));
    *odd = (float)(radius * sin(angle));
}

/* ---- functions of one lane, without branches ---- */

/* x of [2^-32, 1]: x = 2^k * (1 + f) with 1 + f of about [sqrt(1/2), sqrt(2)), so that f is exact near 1. */
INLINE double lane_log(double x)
{
    const uint64_t offset = UINT64_C(0x3fe6a09e00000000), bias = 1024;
    uint64_t above = bits_of(x) - offset + (bias << 52); /* k + bias in its exponent bits */
    uint64_t exponent = above >> 52;
    double k = double_of(UINT64_C(0x4330000000000000) | exponent) - (0x1p52 + 1024);
    double f = double_of(bits_of(x) - ((exponent - bias) << 52)) - 1.0;
    double s = f / (2.0 + f), z = s * s, w = z * z;
    double odd = w * (3.999999999940941908e-01 + w * (2.222219843214978396e-01 + w * 1.531383769920937332e-01));
    double even = z * (6.666666666666735130e-01 +
                       w * (2.857142874366239149e-01 + w * (1.818357216161805012e-01 + w * 1.479819860511658591e-01)));
    double half_square = 0.5 * f * f;
    return k * 6.93147180369123816490e-01 -
           ((half_square - (s * (half_square + (even + odd)) + k * 1.90821492927058770002e-10)) - f);
}

INLINE double lane_sin(double r)
{
    double z = r * r;
    double p =
        8.33333333332248946124e-03 +
        z * (-1.98412698298579493134e-04 +
             z * (2.75573137070700676789e-06 + z * (-2.50507602534068634195e-08 + z * 1.58969099521155010221e-10)));
    return r + z * r * (-1.66666666666666324348e-01 + z * p);
}

INLINE double lane_cos(double r)
{
    double z = r * r, half = 0.5 * z, w = 1.0 - half;
    double p = z * (4.16666666666666019037e-02 +
                    z * (-1.38888888888741095749e-03 +
                         z * (2.48015872894767294178e-05 +
                              z * (-2.75573143513906633035e-07 +
                                   z * (2.08757232129817482790e-09 + z * -1.13596475577881948265e-11)))));
    return w + (((1.0 - w) - half) + z * p);
}

/* Sine and cosine of an angle of [0, 2 pi]: the nearest multiple of pi/2 is taken off in three parts. The products are
 * exact, as the multiple is at most 4 and the first two parts have 33 bits; so is the first difference. */
INLINE void lane_sincos(double angle, double *sine, double *cosine)
{
    const double round = 0x1.8p52;
    double t = angle * 6.36619772367581382433e-01 + round, n = t - round;
    uint64_t quadrant = bits_of(t);
    double r =
        ((angle - n * 1.57079632673412561417e+00) - n * 6.07710050630396597660e-11) - n * 2.02226624879595063154e-21;
    uint64_t s = bits_of(lane_sin(r)), c = bits_of(lane_cos(r)), swap = 0 - (quadrant & 1);
    uint64_t as_sine = (s & ~swap) | (c & swap), as_cosine = (c & ~swap) | (s & swap);
    *sine = double_of(as_sine ^ (quadrant & 2) << 62);
    *cosine = double_of(as_cosine ^ ((quadrant + 1) & 2) << 62);
}

/* 1 where the C library might round x to another float. */
INLINE uint64_t is_doubtful(double x)
{
    uint64_t from_middle = (bits_of(x) & DROPPED_MASK) - (MIDDLE - MARGIN);
    return (uint64_t)(from_middle < 2 * MARGIN) | (uint64_t)(fabs(x) < SMALLEST);
}

/* ---- a batch ---- */

/* Everything but the rounding's doubtful cases, each array read and written in order. */
INLINE uint64_t lanes_body(const uint32_t *radii, const uint32_t *angles, float *even, float *odd, uint64_t *doubtful)
{
    uint64_t any = 0;
    for (int i = 0; i < SL_NORMALS_PAIRS; i++) {
        double sine, cosine, radius = sqrt(-2.0 * lane_log(unit_of(radii[i])));
        lane_sincos(angle_of(angles[i]), &sine, &cosine);
        double x = radius * cosine, y = radius * sine;
        even[i] = (float)x;
        odd[i] = (float)y;
        doubtful[i] = is_doubtful(x) | is_doubtful(y);
        any |= doubtful[i];
    }
    return any;
}

INLINE void pairs_body(const uint32_t *radii, const uint32_t *angles, float *even, float *odd)
{
    uint64_t doubtful[SL_NORMALS_PAIRS];
    uint64_t any = lanes_body(radii, angles, even, odd, doubtful);
    for (int i = 0; any != 0 && i < SL_NORMALS_PAIRS; i++)
        if (doubtful[i] != 0) sl_normal_pair(radii[i], angles[i], &even[i], &odd[i]);
}

/* As philox of rng.c, block after block side by side; c[w][i]: word w of block i. */
INLINE void philox_body(const uint32_t *counter, const uint32_t *key, uint32_t c[4][SL_NORMALS_PAIRS])
{
    for (int i = 0; i < SL_NORMALS_PAIRS; i++) {
        c[0][i] = counter[0] + (uint32_t)i;
        c[1][i] = counter[1];
        c[2][i] = counter[2];
        c[3][i] = counter[3];
    }
    for (uint32_t round = 0; round < PHILOX_ROUNDS; round++) {
        uint32_t k0 = key[0] + round * UINT32_C(0x9E3779B9), k1 = key[1] + round * UINT32_C(0xBB67AE85);
        for (int i = 0; i < SL_NORMALS_PAIRS; i++) {
            uint64_t first = UINT64_C(0xD2511F53) * c[0][i], second = UINT64_C(0xCD9E8D57) * c[2][i];
            c[0][i] = (uint32_t)(second >> 32) ^ c[1][i] ^ k0;
            c[2][i] = (uint32_t)(first >> 32) ^ c[3][i] ^ k1;
            c[1][i] = (uint32_t)second;
            c[3][i] = (uint32_t)first;
        }
    }
}

INLINE void batch_body(const uint32_t *counter, const uint32_t *key, float *out)
{
    uint32_t c[4][SL_NORMALS_PAIRS];
    float values[4][SL_NORMALS_PAIRS];
    philox_body(counter, key, c);
    pairs_body(c[0], c[1], values[0], values[1]);
    pairs_body(c[2], c[3], values[2], values[3]);
    for (int i = 0; i < SL_NORMALS_PAIRS; i++) {
        out[4 * i] = values[0][i];
        out[4 * i + 1] = values[1][i];
        out[4 * i + 2] = values[2][i];
        out[4 * i + 3] = values[3][i];
    }
}

/* ---- paths ---- */

typedef void (*pairs_fn)(const uint32_t *radii, const uint32_t *angles, float *even, float *odd);
typedef void (*batch_fn)(const uint32_t *counter, const uint32_t *key, float *out);

/* The same code for the instructions that `target` allows. */
#define PATH(name, target)                                                                                             \
    target static void pairs_##name(const uint32_t *radii, const uint32_t *angles, float *even, float *odd)            \
    {                                                                                                                  \
        pairs_body(radii, angles, even, odd);                                                                          \
    }                                                                                                                  \
    target static void batch_##name(const uint32_t *counter, const uint32_t *key, float *out)                          \
    {                                                                                                                  \
        batch_body(counter, key, out);                                                                                 \
    }

#define ANY
PATH(plain, ANY)

#if defined(__x86_64__)
#if defined(__clang__)
#define WIDTH
#else
#define WIDTH ",prefer-vector-width=512"
#endif
PATH(avx2, __attribute__((target("avx2"))))
PATH(avx512, __attribute__((target("avx2,avx512f,avx512dq,avx512bw,avx512vl" WIDTH))))

static const pairs_fn pairs[] = { pairs_plain, pairs_avx2, pairs_avx512 };
static const batch_fn batches[] = { batch_plain, batch_avx2, batch_avx512 };

int sl_normals_paths(void)
{
    if (!__builtin_cpu_supports("avx2")) return 1;
    bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
    return wide ? 3 : 2;
}
#else
static const pairs_fn pairs[] = { pairs_plain };
static const batch_fn batches[] = { batch_plain };

int sl_normals_paths(void)
{
    return 1;
}
#endif

void sl_normals_pairs(int path, const uint32_t radii[SL_NORMALS_PAIRS], const uint32_t angles[SL_NORMALS_PAIRS],
                      float even[SL_NORMALS_PAIRS], float odd[SL_NORMALS_PAIRS])
{
    pairs[path](radii, angles, even, odd);
}

void sl_normals_batch(int path, const uint32_t counter[4], const uint32_t key[2], float out[SL_NORMALS_BATCH])
{
    batches[path](counter, key, out);
}
