/* philox.h: eight blocks of core/rng.h's Philox 4x32-10 side by side, and the factors of dropout made of their words.
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
/* The high half in the low one: a shuffle, because shifts and multiplications share a port. */
static inline sl_u8 u8_high(sl_u8 a) { return _mm512_shuffle_epi32(a, (_MM_PERM_ENUM)0xf5); }
/* Low half of a below, low half of b above. */
static inline sl_u8 u8_pair(sl_u8 a, sl_u8 b) { return _mm512_mask_blend_epi32(0xaaaa, a, _mm512_slli_epi64(b, 32)); }
/* Sixteen words in order, and what dropout makes of them: scale where the top 24 bits are at least the threshold, else 0. */
typedef __m512i sl_words;
static inline sl_words words_load(const uint32_t *p) { return _mm512_loadu_si512(p); }
/* Elements 0, 1 of each block in `low`, 2, 3 in `high`: in order of the elements. */
static inline void u8_in_order(sl_u8 low, sl_u8 high, sl_words out[2])
{
    out[0] = _mm512_permutex2var_epi64(low, _mm512_setr_epi64(0, 8, 1, 9, 2, 10, 3, 11), high);
    out[1] = _mm512_permutex2var_epi64(low, _mm512_setr_epi64(4, 12, 5, 13, 6, 14, 7, 15), high);
}
static inline sl_v16 words_factors(sl_words words, int32_t threshold, float scale)
{
    __mmask16 keep = _mm512_cmpge_epu32_mask(words, _mm512_set1_epi32((int32_t)((uint32_t)threshold << 8)));
    return _mm512_maskz_mov_ps(keep, _mm512_set1_ps(scale));
}
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
static inline sl_u8 u8_high(sl_u8 a) { return (sl_u8){ _mm256_shuffle_epi32(a.l, 0xf5), _mm256_shuffle_epi32(a.h, 0xf5) }; }
static inline sl_u8 u8_pair(sl_u8 a, sl_u8 b)
{
    return (sl_u8){ _mm256_blend_epi32(a.l, _mm256_slli_epi64(b.l, 32), 0xaa),
                    _mm256_blend_epi32(a.h, _mm256_slli_epi64(b.h, 32), 0xaa) };
}
typedef struct { __m256i l, h; } sl_words;
static inline sl_words words_load(const uint32_t *p)
{
    return (sl_words){ _mm256_loadu_si256((const void *)p), _mm256_loadu_si256((const void *)(p + 8)) };
}
static inline sl_words u8_four_blocks(__m256i low, __m256i high)
{
    __m256i even = _mm256_unpacklo_epi64(low, high), odd = _mm256_unpackhi_epi64(low, high); /* blocks 0, 2 and 1, 3 */
    return (sl_words){ _mm256_permute2x128_si256(even, odd, 0x20), _mm256_permute2x128_si256(even, odd, 0x31) };
}
static inline void u8_in_order(sl_u8 low, sl_u8 high, sl_words out[2])
{
    out[0] = u8_four_blocks(low.l, high.l);
    out[1] = u8_four_blocks(low.h, high.h);
}
static inline __m256 words8_factors(__m256i words, int32_t threshold, float scale)
{
    __m256i keep = _mm256_cmpgt_epi32(_mm256_srli_epi32(words, 8), _mm256_set1_epi32(threshold - 1));
    return _mm256_and_ps(_mm256_castsi256_ps(keep), _mm256_set1_ps(scale));
}
static inline sl_v16 words_factors(sl_words words, int32_t threshold, float scale)
{
    return (sl_v16){ words8_factors(words.l, threshold, scale), words8_factors(words.h, threshold, scale) };
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
#undef SL_EACH
typedef struct { uint32_t v[SL_LANES]; } sl_words;
static inline sl_words words_load(const uint32_t *p) { sl_words r; memcpy(&r, p, sizeof r); return r; }
static inline void u8_in_order(sl_u8 low, sl_u8 high, sl_words out[2])
{
    for (int b = 0; b < SL_PHILOX_BLOCKS; b++)
        for (int k = 0; k < 4; k++) out[b / 4].v[b % 4 * 4 + k] = (uint32_t)((k < 2 ? low : high).v[b] >> 32 * (k % 2));
}
static inline sl_v16 words_factors(sl_words words, int32_t threshold, float scale)
{
    sl_v16 r;
    for (int i = 0; i < SL_LANES; i++) r.v[i] = (int32_t)(words.v[i] >> 8) >= threshold ? scale : 0.0f;
    return r;
}
#endif
/* clang-format on */

/* Blocks beyond what one counter word names, in a tensor of 2^34 elements: core's business. */
static inline void sl_philox8_far(const sl_rng *s, uint64_t first_block, sl_words out[2])
{
    uint32_t words[SL_PHILOX_ELEMENTS];
    for (uint64_t b = 0; b < SL_PHILOX_BLOCKS; b++) sl_rng_block(s, first_block + b, words + 4 * b);
    out[0] = words_load(words);
    out[1] = words_load(words + SL_LANES);
}

/* Elements 4 * first_block .. of the stream, in order. */
static inline void sl_philox8(const sl_rng *s, uint64_t first_block, sl_words out[2])
{
    if (first_block + SL_PHILOX_BLOCKS > UINT32_MAX) {
        sl_philox8_far(s, first_block, out);
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
    u8_in_order(u8_pair(c0, c1), u8_pair(c2, c3), out);
}

#endif
