/* half.c: see half.h. */
#include "core/half.h"

float sl_f16_to_float(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exponent = h >> 10 & 31u, fraction = h & 0x3ffu;
    if (exponent == 31) return sl_bits_float(sign | 0x7f800000u | fraction << 13 | (fraction != 0 ? 0x400000u : 0));
    if (exponent != 0) return sl_bits_float(sign | (exponent + 112) << 23 | fraction << 13);
    float magnitude = (float)fraction * 0x1p-24f; /* exact: 10 bits */
    return sl_bits_float(sl_float_bits(magnitude) | sign);
}

uint16_t sl_float_to_f16(float x)
{
    uint32_t b = sl_float_bits(x), sign = b >> 16 & 0x8000u, magnitude = b & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return (uint16_t)(sign | 0x7e00u | (magnitude >> 13 & 0x3ffu));
    if (magnitude >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u); /* 65520 and above round to infinity */
    if (magnitude < 0x38800000u) { /* below 2^-14: adding 2^-1 leaves the 10 bits of the denormal at the end */
        uint32_t sum = sl_float_bits(sl_bits_float(magnitude) + 0.5f);
        return (uint16_t)(sign | (sum - sl_float_bits(0.5f)));
    }
    magnitude += 0xfffu + (magnitude >> 13 & 1u);
    return (uint16_t)(sign | (magnitude - 0x38000000u) >> 13);
}
