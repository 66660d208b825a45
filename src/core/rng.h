/* rng.h: random numbers as a pure function of where they are used (exact rule 8).
 *
 * Philox 4x32-10. A stream is named by (seed, step, global micro-batch, op); element i of a stream is word i % 4 of
 * block i / 4. Nothing is stored, so ranks, threads, recomputation and resumption cannot change a number. */
#ifndef SL_CORE_RNG_H
#define SL_CORE_RNG_H

#include <stdint.h>

/* Kernels that make their own blocks use counter words (block, counter[0], counter[1], counter[2]) with `key`; that is
 * all there is to it for blocks below 2^32. */
typedef struct sl_rng {
    uint32_t key[2];     /* seed; domain and the high half of the step are mixed into key[1] */
    uint32_t counter[3]; /* step, micro-batch, op: the high counter words; word 0 is the block index */
} sl_rng;

/* Domains keep streams of different purposes apart when step, micro and op coincide. */
typedef enum {
    SL_RNG_INIT = 1,
    SL_RNG_DROPOUT = 2,
    SL_RNG_SHUFFLE = 3,
    SL_RNG_DATA = 4,
    SL_RNG_SAMPLE = 5,
    SL_RNG_AUGMENT = 6, /* step: the epoch; micro: the sample */
    SL_RNG_MASKING = 7  /* step: the sample */
} sl_rng_domain;

sl_rng sl_rng_stream(uint64_t seed, sl_rng_domain domain, uint64_t step, uint32_t micro, uint32_t op);
/* Four 32-bit words of block `block`. */
void sl_rng_block(const sl_rng *r, uint64_t block, uint32_t out[4]);
uint32_t sl_rng_u32(const sl_rng *r, uint64_t element);
/* Uniform in [0,1): the top 24 bits, exact in float. */
float sl_rng_uniform(const sl_rng *r, uint64_t element);
/* Standard normal by Box-Muller in double, rounded once; elements 2i and 2i+1 share their two words. */
float sl_rng_normal(const sl_rng *r, uint64_t element);
/* Elements [first, first + count), as sl_rng_normal gives them one by one, in lanes: several times as fast. */
void sl_rng_normals(const sl_rng *r, uint64_t first, int64_t count, float *out);
/* Uniform in [0, n) without modulo bias beyond 2^-32 for n below 2^32 (multiply-shift of the 64 random bits in words
 * 2 element and 2 element + 1). */
uint64_t sl_rng_below(const sl_rng *r, uint64_t element, uint64_t n);
/* Position `index` of a pseudo-random permutation of [0, n): a Feistel network keyed by the stream, walked until it
 * falls inside n. No table, so an epoch of any length shuffles in no memory. index < n. The stream is used for nothing
 * else. */
uint64_t sl_rng_permute(const sl_rng *r, uint64_t index, uint64_t n);

#endif
