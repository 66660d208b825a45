/* half.h: 16-bit floats and back, in plain C: what every vector path must agree with, bit for bit.
 *
 * f32 -> bf16 and f16 round to nearest even; overflow becomes infinity, a NaN stays one (quiet, with its sign and the
 * upper bits of its payload), denormals are kept. Weights are split instead of rounded (exact rule 5): the upper half
 * rounds half away from zero in magnitude, so that upper and lower half together are the master for every pattern. */
#ifndef SL_CORE_HALF_H
#define SL_CORE_HALF_H

#include <stdint.h>
#include <string.h>

static inline uint32_t sl_float_bits(float x)
{
    uint32_t b;
    memcpy(&b, &x, sizeof b);
    return b;
}

static inline float sl_bits_float(uint32_t b)
{
    float x;
    memcpy(&x, &b, sizeof x);
    return x;
}

static inline float sl_bf16_to_float(uint16_t h)
{
    return sl_bits_float((uint32_t)h << 16);
}

static inline uint16_t sl_float_to_bf16(float x)
{
    uint32_t b = sl_float_bits(x);
    if ((b & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(b >> 16 | 0x40u);
    return (uint16_t)((b + 0x7fffu + (b >> 16 & 1u)) >> 16);
}

/* The two halves of a master weight, and the master again. */
static inline uint16_t sl_weight_high(uint32_t master)
{
    return (uint16_t)((master + 0x8000u) >> 16);
}

static inline uint16_t sl_weight_low(uint32_t master)
{
    return (uint16_t)master;
}

static inline uint32_t sl_weight_join(uint16_t high, uint16_t low)
{
    return (uint32_t)(uint16_t)(high - (low >> 15)) << 16 | low;
}

float sl_f16_to_float(uint16_t h);
uint16_t sl_float_to_f16(float x);

#endif
