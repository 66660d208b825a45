/* philox.h: eight blocks of core/rng.h's Philox 4x32-10 side by side.
 *
 * A word sits in the low half of a 64-bit lane; what is above it never matters, because the widening multiply reads low
 * halves only. Integers give the same bits on every path; the tests hold them to core/rng.h. */
#ifndef SL_BACKEND_CPU_PHILOX_H
#define SL_BACKEND_CPU_PHILOX_H

#include "backend/cpu/kernels/simd.h"
#include "core/rng.h"

#define SL_PHILOX_BLOCKS   8
#define SL_PHILOX_ELEMENTS (4 * SL_PHILOX_BLOCKS)

/* clang-format off */
#if defined(SL_ISA_avx512)
typedef __m512i sl_u8;
static inline sl_u8 u8_set1(uint32_t x) { return _mm512_set1_epi64((int64_t)x); }
static inline sl_u8 u8_count(uint32_t x)
{
    return _mm512_add_epi64(_mm512_set1_epi64((int64_t)x), _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7));
}
static inline sl_u8 u8_mul(sl_u8 a, sl_u8 b) { return _mm512_mul_epu32(a, b); }
static inline sl_u8 u8_xor(sl_u8 a, sl_u8 b) { return _mm512_xor_si512(a, b); }
static inline sl_u8 u8_high(sl_u8 a) { return _mm512_srli_epi64(a, 32); }
/* Low half of a below, low half of b above. */
static inline sl_u8 u8_pair(sl_u8 a, sl_u8 b) { return _mm512_mask_blend_epi32(0xaaaa, a, _mm512_slli_epi64(b, 32)); }
static inline void u8_store(uint64_t *p, sl_u8 a) { _mm512_storeu_si512(p, a); }
#elif defined(SL_ISA_avx2)
typedef struct { __m256i l, h; } sl_u8;
static inline sl_u8 u8_set1(uint32_t x) { return (sl_u8){ _mm256_set1_epi64x((int64_t)x), _mm256_set1_epi64x((int64_t)x) }; }
static inline sl_u8 u8_count(uint32_t x)
{
    __m256i v = _mm256_set1_epi64x((int64_t)x);
    return (sl_u8){ _mm256_add_epi64(v, _mm256_setr_epi64x(0, 1, 2, 3)), _mm256_add_epi64(v, _mm256_setr_epi64x(4, 5, 6, 7)) };
}
static inline sl_u8 u8_mul(sl_u8 a, sl_u8 b) { return (sl_u8){ _mm256_mul_epu32(a.l, b.l), _mm256_mul_epu32(a.h, b.h) }; }
static inline sl_u8 u8_xor(sl_u8 a, sl_u8 b) { return (sl_u8){ _mm256_xor_si256(a.l, b.l), _mm256_xor_si256(a.h, b.h) }; }
static inline sl_u8 u8_high(sl_u8 a) { return (sl_u8){ _mm256_srli_epi64(a.l, 32), _mm256_srli_epi64(a.h, 32) }; }
static inline sl_u8 u8_pair(sl_u8 a, sl_u8 b)
{
    return (sl_u8){ _mm256_blend_epi32(a.l, _mm256_slli_epi64(b.l, 32), 0xaa),
                    _mm256_blend_epi32(a.h, _mm256_slli_epi64(b.h, 32), 0xaa) };
}
static inline void u8_store(uint64_t *p, sl_u8 a)
{
    _mm256_storeu_si256((__m256i *)(void *)p, a.l);
    _mm256_storeu_si256((__m256i *)(void *)(p + 4), a.h);
}
#else
typedef struct { uint64_t v[SL_PHILOX_BLOCKS]; } sl_u8;
#define SL_EACH(expr) sl_u8 r; for (uint32_t i = 0; i < SL_PHILOX_BLOCKS; i++) r.v[i] = (expr); return r
static inline sl_u8 u8_set1(uint32_t x) { SL_EACH(x); }
static inline sl_u8 u8_count(uint32_t x) { SL_EACH((uint64_t)x + i); }
static inline sl_u8 u8_mul(sl_u8 a, sl_u8 b) { SL_EACH((a.v[i] & 0xffffffffu) * (b.v[i] & 0xffffffffu)); }
static inline sl_u8 u8_xor(sl_u8 a, sl_u8 b) { SL_EACH(a.v[i] ^ b.v[i]); }
static inline sl_u8 u8_high(sl_u8 a) { SL_EACH(a.v[i] >> 32); }
static inline sl_u8 u8_pair(sl_u8 a, sl_u8 b) { SL_EACH((a.v[i] & 0xffffffffu) | b.v[i] << 32); }
static inline void u8_store(uint64_t *p, sl_u8 a) { memcpy(p, &a, sizeof a); }
#undef SL_EACH
#endif
/* clang-format on */

/* Elements 4 * first_block .. of the stream, in order. */
static inline void sl_philox8(const sl_rng *s, uint64_t first_block, uint32_t out[SL_PHILOX_ELEMENTS])
{
    if (first_block + SL_PHILOX_BLOCKS >
        UINT32_MAX) { /* a tensor of 2^34 elements: the block's high word is core's business */
        for (uint64_t b = 0; b < SL_PHILOX_BLOCKS; b++) sl_rng_block(s, first_block + b, out + 4 * b);
        return;
    }
    sl_u8 c0 = u8_count((uint32_t)first_block), c1 = u8_set1(s->counter[0]);
    sl_u8 c2 = u8_set1(s->counter[1]), c3 = u8_set1(s->counter[2]);
    uint32_t k0 = s->key[0], k1 = s->key[1];
    for (int round = 0; round < 10; round++) {
        sl_u8 p0 = u8_mul(c0, u8_set1(0xD2511F53u)), p1 = u8_mul(c2, u8_set1(0xCD9E8D57u));
        c0 = u8_xor(u8_xor(u8_high(p1), c1), u8_set1(k0));
        c1 = p1;
        c2 = u8_xor(u8_xor(u8_high(p0), c3), u8_set1(k1));
        c3 = p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    uint64_t low[SL_PHILOX_BLOCKS], high[SL_PHILOX_BLOCKS]; /* words 0, 1 and words 2, 3 of each block */
    u8_store(low, u8_pair(c0, c1));
    u8_store(high, u8_pair(c2, c3));
    for (int b = 0; b < SL_PHILOX_BLOCKS; b++) {
        memcpy(out + 4 * b, &low[b], sizeof low[b]);
        memcpy(out + 4 * b + 2, &high[b], sizeof high[b]);
    }
}

#endif
