/* rounding.h: random bits for rounding moments, as a pure function of (seed, step, element, slot), so that neither
 * ranks, threads, tiers nor resumption change them. Every vector path gives these bits.
 *
 * A block of 1,024 elements has a key of 64 bits, made with care. Every place in a block has a fixed word; an element's
 * bits are that word times the key's odd lower half, plus its upper half. So a number's roundings of different steps
 * are independent, and those of two numbers in one step are as good as independent (multiplication by a random odd
 * number is universal hashing), for one multiplication an element. Slots 0 and 1 take opposite ends of the 32 bits,
 * slot 2 those of another product. Rounding wants no more than 20 bits, and of those the upper ones decide. */
#ifndef SL_CORE_ROUNDING_H
#define SL_CORE_ROUNDING_H

#include <stdint.h>

#define SL_ROUNDING_OTHER 0x9e3779b1u /* slot 2 */

typedef struct sl_rounding_key {
    uint32_t multiplier, addend; /* the first is odd */
} sl_rounding_key;

/* A bijection of 64 bits in which every input bit changes every output bit half of the time (splitmix64's end). */
static inline uint64_t sl_mix64(uint64_t x)
{
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

/* `block`: number of the element among those of all layers (sl_update_rule.first_element), divided by 1,024. */
static inline sl_rounding_key sl_rounding_key_of(uint64_t seed, uint64_t step, uint64_t block)
{
    uint64_t k = sl_mix64(sl_mix64(sl_mix64(seed) + step) + block);
    return (sl_rounding_key){ (uint32_t)k | 1u, (uint32_t)(k >> 32) };
}

/* The word of place 0 .. 1,023: no two alike, and without pattern. */
static inline uint32_t sl_rounding_place(uint32_t place)
{
    return (uint32_t)(sl_mix64(place + 1) >> 32);
}

static inline uint32_t sl_rounding_hash(sl_rounding_key key, uint32_t place)
{
    return sl_rounding_place(place) * key.multiplier + key.addend;
}

/* `count` uniform bits, 1 to 20, for state slot `slot`. */
static inline uint32_t sl_rounding_bits(uint32_t hash, int slot, int count)
{
    if (slot == 0) return hash >> (32 - count);
    if (slot == 1) return hash & ((1u << count) - 1);
    return hash * SL_ROUNDING_OTHER >> (32 - count);
}

#endif
