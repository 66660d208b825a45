/* update_pairs.h: AdamW on a whole block of compact states, 32 elements at a time, for AVX-512.
 *
 * Words lie in pairs: the even elements of a row of 32 are the lower halves of sixteen patterns, the odd ones the upper
 * halves. Taken apart that way, and not into the first sixteen and the last, 16-bit operands become floats and floats
 * become 16-bit operands by shifts and blends of whole registers, and codes are taken apart and put together as words:
 * a third fewer instructions than by converting sixteen at a time. The new moments wait in the stage in this order.
 *
 * All bits are those of update_sweep.c and update_stage.c, which do the blocks that are cut or have unusual values. */
#ifndef SL_BACKEND_CPU_UPDATE_PAIRS_H
#define SL_BACKEND_CPU_UPDATE_PAIRS_H

#include "backend/cpu/kernels/update_rules.h"

#define PAIR_LANES (2 * SL_LANES)

/* Even elements first, then odd ones, in every row of 32: the words of core/rounding.h in the order of pairs. */
static inline void pair_order(uint32_t *out, const uint32_t *words)
{
    for (int i = 0; i < SL_CUT_ELEMENTS; i++) {
        int row = i / PAIR_LANES * PAIR_LANES, column = i % PAIR_LANES;
        out[row + column % 2 * SL_LANES + column / 2] = words[i];
    }
}

#if defined(SL_ISA_avx512)

typedef struct pair {
    __m512i even, odd;
} pair;

/* ---- Words in pairs ---- */

ALWAYS_INLINE __m512i pair_upper(__m512i words)
{
    return _mm512_and_si512(words, _mm512_set1_epi32((int)0xffff0000u));
}

/* Words as the upper halves of patterns. */
ALWAYS_INLINE pair pair_split(__m512i words)
{
    return (pair){ _mm512_slli_epi32(words, 16), pair_upper(words) };
}

/* The lower word of each even pattern next to the upper word of each odd one. */
ALWAYS_INLINE __m512i pair_join(__m512i even, __m512i odd)
{
    return _mm512_mask_blend_epi16(0xaaaaaaaau, even, odd);
}

ALWAYS_INLINE pair pair_masters(const uint16_t *high, const uint16_t *low)
{
    __m512i l = _mm512_loadu_si512(low);
    pair p = pair_split(_mm512_loadu_si512(high));
    p.even = _mm512_add_epi32(p.even, _mm512_srai_epi32(_mm512_slli_epi32(l, 16), 16));
    p.odd = _mm512_add_epi32(p.odd, _mm512_srai_epi32(l, 16));
    return p;
}

ALWAYS_INLINE void pair_put_masters(uint16_t *high, uint16_t *low, __m512i even, __m512i odd)
{
    const __m512i half = _mm512_set1_epi32(0x8000);
    __m512i up = _mm512_srli_epi32(_mm512_add_epi32(even, half), 16);
    _mm512_storeu_si512(high, pair_join(up, _mm512_add_epi32(odd, half)));
    _mm512_storeu_si512(low, pair_join(even, _mm512_slli_epi32(odd, 16)));
}

/* ---- Codes ---- */

/* A code's float has three bits of mantissa: its upper half is all of it. */
typedef struct pair_scale {
    __m512i base;  /* upper half of the pattern that normal codes count from */
    __m512i small; /* upper halves of codes 0 to 7 */
} pair_scale;

ALWAYS_INLINE pair_scale pair_scale_of(int32_t exponent, bool is_signed)
{
    const __m512 count = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7);
    uint32_t base = sl_blocks8_scale_of(exponent, is_signed).base;
    __m512 unit = _mm512_castsi512_ps(_mm512_set1_epi32((int)(base - (2u << 23))));
    __m512i small = _mm512_srli_epi32(_mm512_castps_si512(_mm512_mul_ps(count, unit)), 16);
    return (pair_scale){ _mm512_set1_epi16((short)(base >> 16)), _mm512_zextsi256_si512(_mm512_cvtepi32_epi16(small)) };
}

/* Codes, as words, to the upper halves of their floats. */
ALWAYS_INLINE __m512i pair_decode(__m512i code, const pair_scale *s)
{
    __mmask32 small = _mm512_cmplt_epu16_mask(code, _mm512_set1_epi16(8));
    __m512i normal = _mm512_add_epi16(_mm512_slli_epi16(code, 4), s->base);
    return _mm512_mask_permutexvar_epi16(normal, small, code, s->small);
}

ALWAYS_INLINE pair pair_unsigned(const uint8_t *codes, const pair_scale *s)
{
    return pair_split(pair_decode(_mm512_cvtepu8_epi16(_mm256_loadu_si256((const void *)codes)), s));
}

ALWAYS_INLINE pair pair_signed(const uint8_t *codes, const pair_scale *s)
{
    __m512i word = _mm512_cvtepi8_epi16(_mm256_loadu_si256((const void *)codes));
    __m512i magnitude = pair_decode(_mm512_abs_epi16(word), s);
    /* magnitude | (word & sign) */
    return pair_split(_mm512_ternarylogic_epi32(magnitude, word, _mm512_set1_epi16((short)0x8000), 0xf8));
}

/* ---- Encoding ---- */

/* Magnitudes of signed codes in units of 2^-20, counted from the base (blocks8.h), plus 20 random bits. */
ALWAYS_INLINE __m512i pair_units(__m512i x, __m512i hash, __m512i least)
{
    __m512i bits = _mm512_and_si512(x, _mm512_set1_epi32(0x7fffffff));
    __mmask16 small = _mm512_cmplt_epi32_mask(bits, least);
    __m512 lifted = _mm512_castsi512_ps(bits);
    lifted = _mm512_mask_add_ps(lifted, small, lifted, _mm512_castsi512_ps(least));
    bits = _mm512_castps_si512(lifted);
    bits = _mm512_mask_sub_epi32(bits, small, bits, _mm512_set1_epi32(1 << 23));
    return _mm512_add_epi32(bits, _mm512_srli_epi32(hash, 12));
}

/* The upper twelve bits of patterns, as words. */
ALWAYS_INLINE __m512i pair_codes(__m512i even, __m512i odd)
{
    return pair_join(_mm512_srli_epi32(even, 20), _mm512_srli_epi32(odd, 4));
}

ALWAYS_INLINE void pair_put_codes(uint8_t *p, __m512i words)
{
    _mm256_storeu_si256((void *)p, _mm512_cvtepi16_epi8(words));
}

/* What a block's encoding needs; its second moments are all normal. */
typedef struct pair_coder {
    __m512i multiplier, addend, least, base1, base2; /* of its key and its exponents */
    const float *first, *second;                     /* in the order of pairs */
    uint8_t *codes1, *codes2;
    const uint32_t *words;
} pair_coder;

ALWAYS_INLINE pair_coder pair_coder_of(const buffers *b, int32_t exponent1, int32_t exponent2)
{
    const sl_blocks8_scale s1 = sl_blocks8_scale_of(exponent1, true), s2 = sl_blocks8_scale_of(exponent2, false);
    return (pair_coder){ .multiplier = _mm512_set1_epi32((int)b->key.multiplier),
                         .addend = _mm512_set1_epi32((int)b->key.addend),
                         .least = _mm512_set1_epi32((int)s1.least),
                         .base1 = _mm512_set1_epi16((short)(s1.base >> 20)),
                         .base2 = _mm512_set1_epi16((short)(s2.base >> 20)),
                         .first = b->fresh[0],
                         .second = b->fresh[1],
                         .codes1 = (uint8_t *)b->slot[0] + SL_BLOCKS8_HEADER,
                         .codes2 = (uint8_t *)b->slot[1] + SL_BLOCKS8_HEADER,
                         .words = b->pairs };
}

ALWAYS_INLINE __m512i pair_hash(const pair_coder *k, int64_t i)
{
    return _mm512_add_epi32(_mm512_mullo_epi32(_mm512_loadu_si512(k->words + i), k->multiplier), k->addend);
}

/* Writes the codes of the row from `i` on. */
ALWAYS_INLINE void pair_encode(const pair_coder *k, int64_t i)
{
    const __m512i mask = _mm512_set1_epi32(0xfffff);
    __m512i even = pair_hash(k, i), odd = pair_hash(k, i + SL_LANES);
    __m512i m1 = _mm512_loadu_si512(k->first + i), m2 = _mm512_loadu_si512(k->first + i + SL_LANES);
    __m512i v1 = _mm512_loadu_si512(k->second + i), v2 = _mm512_loadu_si512(k->second + i + SL_LANES);
    __mmask32 negative = _mm512_movepi16_mask(pair_join(_mm512_srli_epi32(m1, 16), m2));
    __m512i raw = pair_codes(pair_units(m1, even, k->least), pair_units(m2, odd, k->least));
    pair_put_codes(k->codes1 + i, _mm512_mask_sub_epi16(_mm512_sub_epi16(raw, k->base1), negative, k->base1, raw));
    v1 = _mm512_add_epi32(v1, _mm512_and_si512(even, mask));
    v2 = _mm512_add_epi32(v2, _mm512_and_si512(odd, mask));
    pair_put_codes(k->codes2 + i, _mm512_sub_epi16(pair_codes(v1, v2), k->base2));
}

/* ---- The sweep ---- */

/* Patterns, in every lane: the largest of the first moments' magnitudes and of the second moments, and the smallest of
 * these. */
typedef struct pair_extremes {
    __m512i first, second, least;
} pair_extremes;

/* Stores the new moments of sixteen elements and takes note of them. */
ALWAYS_INLINE void pair_keep(const buffers *b, int64_t i, const cell *e, pair_extremes *x)
{
    __m512i first = _mm512_castps_si512(e->s[0]), second = _mm512_castps_si512(e->s[1]);
    _mm512_storeu_ps(b->fresh[0] + i, e->s[0]);
    _mm512_storeu_ps(b->fresh[1] + i, e->s[1]);
    x->first = _mm512_max_epu32(x->first, _mm512_and_si512(first, _mm512_set1_epi32(0x7fffffff)));
    x->second = _mm512_max_epu32(x->second, second);
    x->least = _mm512_min_epu32(x->least, second);
}

ALWAYS_INLINE cell pair_cell(__m512i w, __m512i first, __m512i second)
{
    return (cell){ _mm512_castsi512_ps(w), { _mm512_castsi512_ps(first), _mm512_castsi512_ps(second) } };
}

/* Sweeps b, and where `encodes` is set writes the codes of the block before it. */
ALWAYS_INLINE void pair_sweep(const buffers *buf, const coefficients *coeff, bool decoupled, bool encodes,
                              const pair_coder *coder, pair_extremes *extremes)
{
    const buffers b = *buf;
    const coefficients c = *coeff;
    const pair_coder before = *coder;
    const pair_scale scale1 = pair_scale_of(b.exponent[0], true), scale2 = pair_scale_of(b.exponent[1], false);
    const uint8_t *codes1 = (const uint8_t *)b.slot[0] + SL_BLOCKS8_HEADER,
                  *codes2 = (const uint8_t *)b.slot[1] + SL_BLOCKS8_HEADER;
    uint16_t *high = b.w, *low = b.rest;
    pair_extremes x = { _mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_set1_epi32(-1) };
    for (int64_t i = 0; i < SL_CUT_ELEMENTS; i += PAIR_LANES) {
        pair g = pair_split(_mm512_loadu_si512((const uint16_t *)b.g + i)), w = pair_masters(high + i, low + i);
        pair first = pair_signed(codes1 + i, &scale1), second = pair_unsigned(codes2 + i, &scale2);
        cell even = pair_cell(w.even, first.even, second.even), odd = pair_cell(w.odd, first.odd, second.odd);
        ask_for_next(&b, sizeof(uint16_t), i);
        adam_renew(&c, _mm512_mul_ps(_mm512_castsi512_ps(g.even), c.factor), &even, decoupled);
        adam_renew(&c, _mm512_mul_ps(_mm512_castsi512_ps(g.odd), c.factor), &odd, decoupled);
        pair_keep(&b, i, &even, &x);
        pair_keep(&b, i + SL_LANES, &odd, &x);
        if (encodes) pair_encode(&before, i);
        adam_move(&c, &even, v16_sqrt(even.s[1]));
        adam_move(&c, &odd, v16_sqrt(odd.s[1]));
        pair_put_masters(high + i, low + i, _mm512_castps_si512(even.w), _mm512_castps_si512(odd.w));
    }
    *extremes = x;
}

typedef void (*pair_sweep_fn)(const buffers *b, const coefficients *c, const pair_coder *coder, pair_extremes *x);
#define DEFINE_PAIR_SWEEP(name_, decoupled_, encodes_)                                                                 \
    static void name_(const buffers *b, const coefficients *c, const pair_coder *coder, pair_extremes *x)              \
    {                                                                                                                  \
        pair_sweep(b, c, decoupled_, encodes_, coder, x);                                                              \
    }
DEFINE_PAIR_SWEEP(pair_sweep_l2, false, false)
DEFINE_PAIR_SWEEP(pair_sweep_l2_encoding, false, true)
DEFINE_PAIR_SWEEP(pair_sweep_decoupled, true, false)
DEFINE_PAIR_SWEEP(pair_sweep_decoupled_encoding, true, true)

/* ---- A task's blocks ---- */

/* The block whose new moments wait in the stage for their codes; they are written while the next block is swept, for
 * the sweep waits for the divider and leaves room. */
typedef struct pair_waiting {
    pair_coder coder;
    bool waits;
    int turn; /* which half of the stage the next block's go to */
} pair_waiting;

static void pair_finish(pair_waiting *p)
{
    const pair_coder coder = p->coder;
    for (int64_t i = 0; i < SL_CUT_ELEMENTS && p->waits; i += PAIR_LANES) pair_encode(&coder, i);
    p->waits = false;
}

/* From the order of pairs to that of the elements. */
static void pair_unorder(float *out, const float *x)
{
    const __m512i low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
    for (int64_t i = 0; i < SL_CUT_ELEMENTS; i += PAIR_LANES) {
        __m512 even = _mm512_loadu_ps(x + i), odd = _mm512_loadu_ps(x + i + SL_LANES);
        _mm512_storeu_ps(out + i, _mm512_permutex2var_ps(even, low, odd));
        _mm512_storeu_ps(out + i + SL_LANES, _mm512_permutex2var_ps(even, high, odd));
    }
}

/* Updates a whole block of 1,024 elements with bf16 gradients; its codes are written when the next block is updated or
 * pair_finish is called. false: its new moments are in the stage's slots and still to be encoded. */
static bool pair_update(const buffers *whole, const coefficients *c, bool decoupled, pair_waiting *p, stage *s)
{
    static const pair_sweep_fn sweeps_of[2][2] = { { pair_sweep_l2, pair_sweep_l2_encoding },
                                                   { pair_sweep_decoupled, pair_sweep_decoupled_encoding } };
    buffers b = *whole;
    pair_extremes x;
    b.fresh[0] = p->turn == 0 ? s->slot[0] : s->g;
    b.fresh[1] = p->turn == 0 ? s->slot[1] : s->w;
    sweeps_of[decoupled][p->waits](&b, c, &p->coder, &x);
    p->waits = false;
    uint32_t first = _mm512_reduce_max_epu32(x.first), second = _mm512_reduce_max_epu32(x.second);
    bool usual = first <= SL_BLOCKS8_LIMIT && second <= SL_BLOCKS8_LIMIT;
    int32_t e1 = usual ? sl_blocks8_exponent(first) : 0, e2 = usual ? sl_blocks8_exponent(second) : 0;
    if (!usual || _mm512_reduce_min_epu32(x.least) < sl_blocks8_scale_of(e2, false).least) {
        for (int k = 0; k < 2; k++) pair_unorder(s->slot[k], b.fresh[k]);
        return false;
    }
    memcpy(b.slot[0], &e1, sizeof e1);
    memcpy(b.slot[1], &e2, sizeof e2);
    *p = (pair_waiting){ pair_coder_of(&b, e1, e2), true, 1 - p->turn };
    return true;
}

#else

/* Other paths have no pairs, and nothing waits. */
typedef struct pair_waiting {
    bool waits;
} pair_waiting;

static inline void pair_finish(pair_waiting *p)
{
    p->waits = false;
}

#endif
#endif
