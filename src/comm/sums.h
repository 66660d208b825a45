/* sums.h: the arithmetic of a reduction, the same for every communicator.
 *
 * Contributions are widened to f32, added in f32 left to right, and rounded once where the sum is kept in 16 bits. The
 * conversions give the bits of core/half.h; they are written without branches, on vectors that every 64-bit machine
 * has, since the values of a gradient decide no branch twice. Everything is in this header because the MPI plugin links
 * nothing of the library. */
#ifndef SL_COMM_SUMS_H
#define SL_COMM_SUMS_H

#include <string.h>
#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include "comm/comm.h"

#define SL_SUM_INLINE static inline __attribute__((always_inline))

/* As they lie in arenas: aligned to one element, of whatever type was written there. */
typedef float sl_floats __attribute__((vector_size(16), aligned(4), may_alias));
typedef uint16_t sl_halves __attribute__((vector_size(16), aligned(2), may_alias));
/* As they are computed with. Comparisons are of signed numbers, the only ones all machines have. */
typedef int32_t sl_words __attribute__((vector_size(16)));

/* Eight elements: what one vector of 16-bit ones holds. */
#define SL_SUM_LANES 8
typedef struct sl_eight {
    sl_floats low, high;
} sl_eight;

/* ---- refusing ---- */

/* NULL, or what is wrong with a part of a reduction, whatever the other ranks say. */
static inline const char *sl_sum_fault(const sl_comm_part *part, bool first)
{
    if (sl_comm_form_bytes(part->form) == 0) return "contributions are f32, bf16 or f16, nothing else is added";
    if (part->per != 1 || part->unit != sl_comm_form_bytes(part->form))
        return "the unit of a contribution is one element of its form";
    if (part->in_place && (part->sum_form != part->form || !first))
        return "a sum that takes the place of a contribution is of its form and cannot be added to";
    if (part->sum_form != SL_FORM_F32 && part->sum_form != part->form)
        return "a sum is kept in f32 or in the form of its contributions";
    if (part->sum_form != SL_FORM_F32 && !first) return "a sum kept in 16 bits cannot be added to";
    return NULL;
}

/* ---- conversions ---- */

SL_SUM_INLINE sl_words sl_select(sl_words mask, sl_words yes, sl_words no)
{
    return (mask & yes) | (~mask & no);
}

/* The same number in every lane. */
SL_SUM_INLINE sl_words sl_every(int32_t x)
{
    return (sl_words){ x, x, x, x };
}

/* Signs stay in bit 31 throughout; magnitudes are never negative. */
SL_SUM_INLINE sl_floats sl_bf16_widen(sl_words in_upper_half)
{
    return (sl_floats)in_upper_half;
}

/* Denormals: their fraction below an exponent of 2^-14, minus 2^-14, is exact and meets no f32 denormal. */
SL_SUM_INLINE sl_floats sl_f16_widen(sl_words in_upper_half)
{
    sl_words sign = in_upper_half & sl_every(INT32_MIN), h = (in_upper_half ^ sign) >> 3; /* fraction at bits 13..22 */
    sl_words is_special = h >= sl_every(31 << 23), is_nan = h > sl_every(31 << 23), is_tiny = h < sl_every(1 << 23);
    sl_words normal = h + sl_every(112 << 23) + (is_special & sl_every(112 << 23));
    sl_words tiny = (sl_words)((sl_floats)(h + sl_every(113 << 23)) - (sl_floats)sl_every(113 << 23));
    return (sl_floats)(sl_select(is_tiny, tiny, normal) | (is_nan & sl_every(0x400000)) | sign);
}

/* To the upper half of each word; the lower half is anything. */
SL_SUM_INLINE sl_words sl_bf16_round(sl_floats x)
{
    sl_words b = (sl_words)x, is_nan = (b & sl_every(INT32_MAX)) > sl_every(0x7f800000);
    typedef uint32_t wraps __attribute__((vector_size(16)));
    sl_words rounded = (sl_words)((wraps)b + (wraps)sl_every(0x7fff) + (wraps)(b >> 16 & sl_every(1)));
    return sl_select(is_nan, b | sl_every(0x400000), rounded);
}

/* To the upper half of each word, whose lower half is 0. Below 2^-14 the sum with 0.5 ends in the bits of the denormal,
 * rounded; the others are rounded in their bits. */
SL_SUM_INLINE sl_words sl_f16_round(sl_floats x)
{
    sl_words sign = (sl_words)x & sl_every(INT32_MIN), b = (sl_words)x ^ sign;
    sl_words is_nan = b > sl_every(0x7f800000), is_huge = b >= sl_every(0x477ff000), is_tiny = b < sl_every(0x38800000);
    sl_words tiny = (sl_words)((sl_floats)b + (sl_floats)sl_every(0x3f000000)) - sl_every(0x3f000000);
    sl_words even = b >> 13 & sl_every(1); /* huge ones would wrap without the mask */
    sl_words normal = ((b & ~is_huge) + sl_every(0xfff - 0x38000000) + (even & ~is_huge)) >> 13;
    sl_words special = sl_every(0x7c00) | (is_nan & (sl_every(0x200) | (b >> 13 & sl_every(0x3ff))));
    return sl_select(is_huge, special, sl_select(is_tiny, tiny, normal)) << 16 | sign;
}

/* ---- eight elements from and to memory ---- */

SL_SUM_INLINE sl_eight sl_eight_load(sl_form form, const void *from)
{
    if (form == SL_FORM_F32) {
        const sl_floats *f = from;
        return (sl_eight){ f[0], f[1] };
    }
    const sl_halves x = *(const sl_halves *)from, zero = { 0 };
    sl_words low = (sl_words)__builtin_shufflevector(zero, x, 0, 8, 0, 9, 0, 10, 0, 11);
    sl_words high = (sl_words)__builtin_shufflevector(zero, x, 0, 12, 0, 13, 0, 14, 0, 15);
    if (form == SL_FORM_BF16) return (sl_eight){ sl_bf16_widen(low), sl_bf16_widen(high) };
    return (sl_eight){ sl_f16_widen(low), sl_f16_widen(high) };
}

/* The upper halves of eight words, in order. */
SL_SUM_INLINE sl_halves sl_upper_halves(sl_words low, sl_words high)
{
#if defined(__x86_64__)
    return (sl_halves)_mm_packs_epi32((__m128i)(low >> 16), (__m128i)(high >> 16)); /* nothing is out of range */
#else
    return __builtin_shufflevector((sl_halves)low, (sl_halves)high, 1, 3, 5, 7, 9, 11, 13, 15);
#endif
}

SL_SUM_INLINE sl_halves sl_eight_round(sl_form form, sl_eight x)
{
    if (form == SL_FORM_BF16) return sl_upper_halves(sl_bf16_round(x.low), sl_bf16_round(x.high));
    return sl_upper_halves(sl_f16_round(x.low), sl_f16_round(x.high));
}

/* Past the caches: a large sum that is written once is not read again soon, and its lines need not be fetched. `to` is
 * then aligned to 16 bytes. */
SL_SUM_INLINE void sl_eight_store(float *to, sl_eight x, bool past)
{
    sl_floats *f = (sl_floats *)(void *)to;
#if defined(__x86_64__)
    if (past) {
        _mm_stream_ps(to, (__m128)x.low);
        _mm_stream_ps(to + 4, (__m128)x.high);
        return;
    }
#endif
    (void)past;
    f[0] = x.low, f[1] = x.high;
}

/* ---- runs of elements ---- */

/* One step of sl_sum_add. */
SL_SUM_INLINE sl_eight sl_eight_sum(sl_form form, const float *to, const unsigned char *const *from, uint64_t at,
                                    int count, bool first)
{
    sl_eight sum = sl_eight_load(form, from[0] + at);
    if (!first) {
        sl_eight before = sl_eight_load(SL_FORM_F32, to);
        sum.low = before.low + sum.low, sum.high = before.high + sum.high;
    }
    for (int k = 1; k < count; k++) {
        sl_eight x = sl_eight_load(form, from[k] + at);
        sum.low += x.low, sum.high += x.high;
    }
    return sum;
}

#define SL_SUM_FAN 4 /* most sources added in one pass over the sums */

/* to = from[0] + .. + from[count - 1] for `first`, else to + from[0] + .., left to right. `form` (of the sources),
 * `count` and `past` are constants where this is inlined. */
SL_SUM_INLINE void sl_sum_add(sl_form form, float *to, const unsigned char *const *from, int count, bool first,
                              bool past, int64_t n)
{
    const uint64_t unit = sl_comm_form_bytes(form);
    int64_t i = 0;
    for (; i + SL_SUM_LANES <= n; i += SL_SUM_LANES)
        sl_eight_store(to + i, sl_eight_sum(form, to + i, from, (uint64_t)i * unit, count, first), past);
    if (i == n) return;
    float sums[SL_SUM_LANES] = { 0 };
    uint32_t rest[SL_SUM_FAN][SL_SUM_LANES] = { { 0 } };
    const unsigned char *rests[SL_SUM_FAN];
    memcpy(sums, to + i, (size_t)(n - i) * sizeof *to);
    for (int k = 0; k < count; k++) {
        memcpy(rest[k], from[k] + (uint64_t)i * unit, (size_t)((uint64_t)(n - i) * unit));
        rests[k] = (const unsigned char *)rest[k];
    }
    sl_eight_store(sums, sl_eight_sum(form, sums, rests, 0, count, first), false);
    memcpy(to + i, sums, (size_t)(n - i) * sizeof *to);
}

/* to = the sums, rounded to nearest even. `form`, 16 bits, is a constant where this is inlined. */
SL_SUM_INLINE void sl_sum_round(sl_form form, unsigned char *to, const float *sums, int64_t n)
{
    int64_t i = 0;
    for (; i + SL_SUM_LANES <= n; i += SL_SUM_LANES)
        *(sl_halves *)(void *)(to + 2 * i) = sl_eight_round(form, sl_eight_load(SL_FORM_F32, sums + i));
    if (i == n) return;
    float rest[SL_SUM_LANES] = { 0 };
    memcpy(rest, sums + i, (size_t)(n - i) * sizeof *sums);
    sl_halves rounded = sl_eight_round(form, sl_eight_load(SL_FORM_F32, rest));
    memcpy(to + 2 * i, &rounded, (size_t)(n - i) * 2);
}

#endif
