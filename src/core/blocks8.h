/* blocks8.h: moments in eight bits, a block at a time.
 *
 * A block of up to 1,024 numbers is an int32 exponent e followed by one byte for each number. A magnitude is a code:
 * its upper bits a field f, its lower 3 bits a mantissa m. Unsigned blocks (second moments) have f in 5 bits and the
 * byte is the code; signed ones (first moments) have f in 4 bits and the byte is the code or, in two's complement,
 * minus it, so that there is one zero. With F the largest field, 31 or 15, f > 0:  (1 + m / 8) 2^(e - F + f)      from
 * 2^(e - F + 1), the least normal, to 1.875 2^e f = 0:  m 2^(e - F - 2)                evenly spaced, down to zero and
 * e is the least exponent with 1.875 2^e not below the block's largest magnitude, but never below SL_BLOCKS8_LEAST, and
 * 0 in a block of zeros, which is a block of zero bytes.
 *
 * So nearest rounding changes magnitudes from 2^-30 (unsigned) or 2^-14 (signed) of 2^e on by 1 part in 16 at most,
 * smaller ones by at most 2^-34 or 2^-18 of 2^e; random rounding by less than twice as much, and by nothing on average:
 * it takes the code above with a probability that is the distance from the code below, in 2^-20 of the spacing. Below
 * the least normal a number is first rounded, to nearest even, to a multiple of that.
 *
 * An unsigned number that is not zero never becomes zero, for a step divides by its root: it becomes the least code.
 * Its sign is not looked at. Infinities, NaN and what lies above 1.875 2^127 become 1.875 2^127.
 *
 * Decoding is exact: every code of a block is a normal float or zero. What was decoded from a block can be encoded
 * again exactly, all of it or any part with the rest zero: the least exponent that holds a part is not above e, and
 * below e codes only become finer. So a block of zeros can be filled piece by piece, in any order, each time decoding,
 * replacing some zeros and encoding, and ends with the numbers that were put in: checkpoints hold decoded floats. */
#ifndef SL_CORE_BLOCKS8_H
#define SL_CORE_BLOCKS8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SL_BLOCKS8_HEADER sizeof(int32_t) /* bytes before the codes */
#define SL_BLOCKS8_LEAST  (-93)           /* exponent; its least code is 2^-126 in an unsigned block */
#define SL_BLOCKS8_LIMIT  0x7f700000u     /* pattern of 1.875 2^127 */

/* Patterns of a block's floats: code c is (c << 20) + base where it is normal; `least` is that of the least normal. */
typedef struct sl_blocks8_scale {
    uint32_t base, least;
} sl_blocks8_scale;

static inline sl_blocks8_scale sl_blocks8_scale_of(int32_t exponent, bool is_signed)
{
    uint32_t base = (uint32_t)(exponent - (is_signed ? 15 : 31) + 127) << 23;
    return (sl_blocks8_scale){ base, base + (1u << 23) };
}

/* From the pattern of the largest magnitude, SL_BLOCKS8_LIMIT at most. */
static inline int32_t sl_blocks8_exponent(uint32_t largest)
{
    int32_t e = (int32_t)((largest + 0xfffffu) >> 23) - 127;
    if (largest == 0) return 0;
    return e < SL_BLOCKS8_LEAST ? SL_BLOCKS8_LEAST : e;
}

void sl_blocks8_decode(const uint8_t *block, size_t count, bool is_signed, float *out);
/* Rounds to nearest, ties to even code. */
void sl_blocks8_encode(const float *values, size_t count, bool is_signed, uint8_t *block);
/* Rounds up or down at random, in proportion: the lower 20 bits of random[i] are uniform. */
void sl_blocks8_encode_random(const float *values, size_t count, bool is_signed, const uint32_t *random,
                              uint8_t *block);

#endif
