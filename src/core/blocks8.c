/* blocks8.c: the format in plain C, one number at a time: what the vector paths must agree with, bit for bit. */
#include "core/blocks8.h"

#include <string.h>

#include "core/half.h"

static float decode_one(uint32_t code, const sl_blocks8_scale *s)
{
    if (code >= 8) return sl_bits_float((code << 20) + s->base);
    return sl_bits_float((code << 20) + s->least) -
           sl_bits_float(s->least); /* exact: both are multiples of the spacing */
}

void sl_blocks8_decode(const uint8_t *block, size_t count, bool is_signed, float *out)
{
    int32_t exponent;
    memcpy(&exponent, block, sizeof exponent);
    const sl_blocks8_scale s = sl_blocks8_scale_of(exponent, is_signed);
    const uint8_t *codes = block + SL_BLOCKS8_HEADER;
    for (size_t i = 0; i < count; i++) {
        int code = is_signed ? (int8_t)codes[i] : codes[i];
        float magnitude = decode_one((uint32_t)(code < 0 ? -code : code), &s);
        out[i] = code < 0 ? -magnitude : magnitude;
    }
}

static uint32_t magnitude_of(float x)
{
    uint32_t bits = sl_float_bits(x) & 0x7fffffffu;
    return bits < SL_BLOCKS8_LIMIT ? bits : SL_BLOCKS8_LIMIT;
}

static uint32_t largest_of(const float *values, size_t count)
{
    uint32_t largest = 0;
    for (size_t i = 0; i < count; i++)
        if (magnitude_of(values[i]) > largest) largest = magnitude_of(values[i]);
    return largest;
}

/* A magnitude in units of 2^-20 of a code. */
static uint32_t units_of(uint32_t bits, const sl_blocks8_scale *s)
{
    if (bits >= s->least) return bits - s->base;
    return sl_float_bits(sl_bits_float(bits) + sl_bits_float(s->least)) - s->least;
}

/* random NULL: to nearest. */
static void encode(const float *values, size_t count, bool is_signed, const uint32_t *random, uint8_t *block)
{
    const int32_t exponent = sl_blocks8_exponent(largest_of(values, count));
    const sl_blocks8_scale s = sl_blocks8_scale_of(exponent, is_signed);
    memcpy(block, &exponent, sizeof exponent);
    for (size_t i = 0; i < count; i++) {
        uint32_t bits = magnitude_of(values[i]), units = units_of(bits, &s);
        uint32_t up = random != NULL ? random[i] & 0xfffffu : 0x7ffffu + (units >> 20 & 1u);
        uint32_t code = (units + up) >> 20;
        if (!is_signed && bits != 0 && code == 0) code = 1;
        bool negative = is_signed && sl_float_bits(values[i]) >> 31 != 0;
        block[SL_BLOCKS8_HEADER + i] = (uint8_t)(negative ? 0u - code : code);
    }
}

void sl_blocks8_encode(const float *values, size_t count, bool is_signed, uint8_t *block)
{
    encode(values, count, is_signed, NULL, block);
}

void sl_blocks8_encode_random(const float *values, size_t count, bool is_signed, const uint32_t *random, uint8_t *block)
{
    encode(values, count, is_signed, random, block);
}
