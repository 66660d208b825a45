/* rng.c: Philox 4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", 2011).
 *
 * Counter-based, so every number is a function of its address alone. Where the address is wider than the 128 bits of
 * the counter, the rest goes into the high word of the key in fields that do not overlap; within one seed no two
 * addresses share a block.
 *
 * This is the reference; three places have the same rounds again, because they need them where a call per block would
 * cost more than the numbers: blocks side by side in SIMD registers (core/normals.c, backend/cpu/kernels/philox.h), and
 * one block per GPU thread (backend/cuda/elem.cuh). tests/core/rng_test.c holds this file to the published vectors;
 * tests/backend/ops_test.c holds dropout of every backend to masks made with this file (op_reference.c). */
#include "core/rng.h"

#include <stdbool.h>

#include "core/normals.h"

#define PHILOX_ROUNDS  10
#define PERMUTE_ROUNDS 8

/* Fields of key[1], above which lie the seed's bits (exclusive or): domain, block / 2^32, step / 2^32. */
#define DOMAIN_SHIFT     24
#define BLOCK_HIGH_SHIFT 12

/* One round's product: high and low word of a * b. */
static void multiply(uint32_t a, uint32_t b, uint32_t *high, uint32_t *low)
{
    uint64_t product = (uint64_t)a * b;
    *high = (uint32_t)(product >> 32);
    *low = (uint32_t)product;
}

static void philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < PHILOX_ROUNDS; round++) {
        uint32_t high0, low0, high1, low1;
        multiply(0xD2511F53u, c0, &high0, &low0);
        multiply(0xCD9E8D57u, c2, &high1, &low1);
        c0 = high1 ^ c1 ^ k0;
        c1 = low1;
        c2 = high0 ^ c3 ^ k1;
        c3 = low0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

sl_rng sl_rng_stream(uint64_t seed, sl_rng_domain domain, uint64_t step, uint32_t micro, uint32_t op)
{
    uint32_t fields = (uint32_t)domain << DOMAIN_SHIFT ^ (uint32_t)(step >> 32);
    return (sl_rng){ .key = { (uint32_t)seed, (uint32_t)(seed >> 32) ^ fields },
                     .counter = { (uint32_t)step, micro, op } };
}

void sl_rng_block(const sl_rng *r, uint64_t block, uint32_t out[4])
{
    uint32_t counter[4] = { (uint32_t)block, r->counter[0], r->counter[1], r->counter[2] };
    uint32_t key[2] = { r->key[0], r->key[1] ^ (uint32_t)(block >> 32) << BLOCK_HIGH_SHIFT };
    philox(counter, key, out);
}

uint32_t sl_rng_u32(const sl_rng *r, uint64_t element)
{
    uint32_t words[4];
    sl_rng_block(r, element / 4, words);
    return words[element % 4];
}

float sl_rng_uniform(const sl_rng *r, uint64_t element)
{
    return (float)(sl_rng_u32(r, element) >> 8) * 0x1p-24f;
}

float sl_rng_normal(const sl_rng *r, uint64_t element)
{
    uint32_t words[4];
    float pair[2];
    sl_rng_block(r, element / 4, words);
    const uint32_t *of = words + (element % 4 & 2);
    sl_normal_pair(of[0], of[1], &pair[0], &pair[1]);
    return pair[element % 2];
}

/* Blocks of a batch share the key: they lie in one run of 2^32. */
static bool is_batch(uint64_t block, int64_t count)
{
    return count >= SL_NORMALS_BATCH && (uint32_t)block <= UINT32_MAX - (SL_NORMALS_BATCH / 4 - 1);
}

void sl_rng_normals(const sl_rng *r, uint64_t first, int64_t count, float *out)
{
    const int path = sl_normals_paths() - 1;
    int64_t i = 0;
    while (i < count) {
        uint64_t element = first + (uint64_t)i, block = element / 4;
        if (element % 4 != 0 || !is_batch(block, count - i)) {
            out[i++] = sl_rng_normal(r, element);
            continue;
        }
        uint32_t counter[4] = { (uint32_t)block, r->counter[0], r->counter[1], r->counter[2] };
        uint32_t key[2] = { r->key[0], r->key[1] ^ (uint32_t)(block >> 32) << BLOCK_HIGH_SHIFT };
        sl_normals_batch(path, counter, key, out + i);
        i += SL_NORMALS_BATCH;
    }
}

uint64_t sl_rng_below(const sl_rng *r, uint64_t element, uint64_t n)
{
    uint32_t words[4];
    sl_rng_block(r, element / 2, words);
    const uint32_t *pair = words + element % 2 * 2;
    uint64_t bits = (uint64_t)pair[0] << 32 | pair[1];
    return (uint64_t)((unsigned __int128)bits * n >> 64);
}

/* One pass of the Feistel network over [0, 2^(low_bits + high_bits)): a bijection whatever the round function gives. */
static uint64_t feistel(const sl_rng *r, uint64_t x, int low_bits, int high_bits)
{
    uint64_t low_mask = (UINT64_C(1) << low_bits) - 1, high_mask = (UINT64_C(1) << high_bits) - 1;
    uint64_t low = x & low_mask, high = x >> low_bits;
    for (uint64_t round = 0; round < PERMUTE_ROUNDS; round += 2) {
        uint32_t words[4];
        sl_rng_block(r, round << 32 | low, words);
        high ^= words[0] & high_mask;
        sl_rng_block(r, (round + 1) << 32 | high, words);
        low ^= words[0] & low_mask;
    }
    return high << low_bits | low;
}

uint64_t sl_rng_permute(const sl_rng *r, uint64_t index, uint64_t n)
{
    if (n < 2) return 0;
    int bits = 64 - __builtin_clzll(n - 1); /* 2^(bits - 1) < n <= 2^bits: fewer than two passes on average */
    int high_bits = bits / 2;
    uint64_t x = index;
    do {
        x = feistel(r, x, bits - high_bits, high_bits);
    } while (x >= n);
    return x;
}
