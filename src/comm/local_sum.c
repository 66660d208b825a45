/* local_sum.c: sums of 16-bit and f32 contributions that lie in memory, as quick as memory is.
 *
 * comm/sums.h is the arithmetic on any machine. Widening and rounding in its four lanes is slower than memory, so
 * 16-bit forms take AVX2 and F16C where the machine has them: the same additions in the same order, and conversions
 * that give the same bits. F16C rounds to nearest even as asked for and keeps denormals whatever the machine's modes
 * are. */
#include "comm/local.h"
#include "comm/sums.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>

#define WIDE      static __attribute__((target("avx2,f16c")))
#define WIDE_STEP static inline __attribute__((always_inline, target("avx2,f16c")))

bool sl_sum_has_wide(void)
{
    unsigned a, b, c = 0, d;
    return __builtin_cpu_supports("avx2") && __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

WIDE_STEP __m256 wide_load(sl_form form, const unsigned char *from)
{
    __m128i x = _mm_loadu_si128((const __m128i *)(const void *)from);
    if (form == SL_FORM_F16) return _mm256_cvtph_ps(x);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16));
}

WIDE_STEP __m128i wide_round(sl_form form, __m256 x)
{
    if (form == SL_FORM_F16) return _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m256i b = _mm256_castps_si256(x), odd = _mm256_and_si256(_mm256_srli_epi32(b, 16), _mm256_set1_epi32(1));
    __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(b, _mm256_set1_epi32(0x7fff)), odd);
    __m256i nan = _mm256_or_si256(b, _mm256_set1_epi32(0x400000));
    __m256 is_nan = _mm256_cmp_ps(x, x, _CMP_UNORD_Q);
    __m256 bits = _mm256_blendv_ps(_mm256_castsi256_ps(rounded), _mm256_castsi256_ps(nan), is_nan);
    __m256i upper = _mm256_srli_epi32(_mm256_castps_si256(bits), 16);
    return _mm_packus_epi32(_mm256_castsi256_si128(upper), _mm256_extracti128_si256(upper, 1));
}

WIDE_STEP void wide_store(float *to, __m256 x, bool past)
{
    if (!past) {
        _mm256_storeu_ps(to, x);
        return;
    }
    _mm_stream_ps(to, _mm256_castps256_ps128(x));
    _mm_stream_ps(to + 4, _mm256_extractf128_ps(x, 1));
}

/* Whole eights of sl_sum_add; how many elements those are. */
WIDE_STEP int64_t wide_add(sl_form form, float *to, const unsigned char *const *from, int count, bool first, bool past,
                           int64_t n)
{
    int64_t i = 0;
    for (; i + SL_SUM_LANES <= n; i += SL_SUM_LANES) {
        __m256 sum = wide_load(form, from[0] + 2 * i);
        if (!first) sum = _mm256_add_ps(_mm256_loadu_ps(to + i), sum);
        for (int k = 1; k < count; k++) sum = _mm256_add_ps(sum, wide_load(form, from[k] + 2 * i));
        wide_store(to + i, sum, past);
    }
    return i;
}

/* Whole eights of sl_sum_round. */
WIDE_STEP int64_t wide_rounds(sl_form form, unsigned char *to, const float *sums, int64_t n)
{
    int64_t i = 0;
    for (; i + SL_SUM_LANES <= n; i += SL_SUM_LANES)
        _mm_storeu_si128((__m128i *)(void *)(to + 2 * i), wide_round(form, _mm256_loadu_ps(sums + i)));
    return i;
}
#else
#define WIDE static

bool sl_sum_has_wide(void)
{
    return false;
}

static int64_t wide_add(sl_form form, float *to, const unsigned char *const *from, int count, bool first, bool past,
                        int64_t n)
{
    (void)form, (void)to, (void)from, (void)count, (void)first, (void)past, (void)n;
    return 0;
}

static int64_t wide_rounds(sl_form form, unsigned char *to, const float *sums, int64_t n)
{
    (void)form, (void)to, (void)sums, (void)n;
    return 0;
}
#endif

/* ---- for each form and number of sources ---- */

typedef void (*add_fn)(float *to, const unsigned char *const *from, bool first, bool past, int64_t n);
typedef int64_t (*wide_add_fn)(float *to, const unsigned char *const *from, bool first, bool past, int64_t n);

#define ADD_OF(form_, count_)                                                                                          \
    static void add_##form_##_##count_(float *to, const unsigned char *const *from, bool first, bool past, int64_t n)  \
    {                                                                                                                  \
        const unsigned char *f[SL_SUM_FAN];                                                                            \
        for (int k = 0; k < (count_); k++) f[k] = from[k];                                                             \
        if (past)                                                                                                      \
            sl_sum_add(SL_FORM_##form_, to, f, count_, first, true, n);                                                \
        else                                                                                                           \
            sl_sum_add(SL_FORM_##form_, to, f, count_, first, false, n);                                               \
    }
#define WIDE_ADD_OF(form_, count_)                                                                                     \
    WIDE int64_t wide_add_##form_##_##count_(float *to, const unsigned char *const *from, bool first, bool past,       \
                                             int64_t n)                                                                \
    {                                                                                                                  \
        const unsigned char *f[SL_SUM_FAN];                                                                            \
        for (int k = 0; k < (count_); k++) f[k] = from[k];                                                             \
        return past ? wide_add(SL_FORM_##form_, to, f, count_, first, true, n)                                         \
                    : wide_add(SL_FORM_##form_, to, f, count_, first, false, n);                                       \
    }
#define ROUND_OF(form_)                                                                                                \
    static void round_##form_(unsigned char *to, const float *sums, int64_t n)                                         \
    {                                                                                                                  \
        sl_sum_round(SL_FORM_##form_, to, sums, n);                                                                    \
    }                                                                                                                  \
    WIDE int64_t wide_round_##form_(unsigned char *to, const float *sums, int64_t n)                                   \
    {                                                                                                                  \
        return wide_rounds(SL_FORM_##form_, to, sums, n);                                                              \
    }
#define FOR_ALL_COUNTS(what, form_) what(form_, 1) what(form_, 2) what(form_, 3) what(form_, 4)
FOR_ALL_COUNTS(ADD_OF, F32)
FOR_ALL_COUNTS(ADD_OF, BF16)
FOR_ALL_COUNTS(ADD_OF, F16)
FOR_ALL_COUNTS(WIDE_ADD_OF, BF16)
FOR_ALL_COUNTS(WIDE_ADD_OF, F16)
ROUND_OF(BF16)
ROUND_OF(F16)

/* By number of sources; f32 needs no conversion, and four lanes of it are as quick as memory. */
static const struct form_row {
    add_fn add[SL_SUM_FAN + 1];
    wide_add_fn wide_add[SL_SUM_FAN + 1];
    void (*round)(unsigned char *to, const float *sums, int64_t n);
    int64_t (*wide_round)(unsigned char *to, const float *sums, int64_t n);
} rows[SL_FORM_COUNT] = {
    [SL_FORM_F32] = { .add = { NULL, add_F32_1, add_F32_2, add_F32_3, add_F32_4 } },
    [SL_FORM_BF16] = { { NULL, add_BF16_1, add_BF16_2, add_BF16_3, add_BF16_4 },
                       { NULL, wide_add_BF16_1, wide_add_BF16_2, wide_add_BF16_3, wide_add_BF16_4 },
                       round_BF16,
                       wide_round_BF16 },
    [SL_FORM_F16] = { { NULL, add_F16_1, add_F16_2, add_F16_3, add_F16_4 },
                      { NULL, wide_add_F16_1, wide_add_F16_2, wide_add_F16_3, wide_add_F16_4 },
                      round_F16,
                      wide_round_F16 },
};

void sl_local_add(const sl_addition *how, float *to, const unsigned char *const *from, int count, int64_t n)
{
    const struct form_row *row = &rows[how->form];
    const unsigned char *rest[SL_SUM_FAN];
    int64_t done = 0;
    if (how->wide && row->wide_add[count] != NULL) done = row->wide_add[count](to, from, how->first, how->past, n);
    for (int k = 0; k < count; k++) rest[k] = from[k] + (uint64_t)done * sl_comm_form_bytes(how->form);
    if (done < n) row->add[count](to + done, rest, how->first, how->past, n - done);
}

void sl_local_round(const sl_addition *how, unsigned char *to, const float *sums, int64_t n)
{
    const struct form_row *row = &rows[how->form];
    int64_t done = how->wide ? row->wide_round(to, sums, n) : 0;
    if (done < n) row->round(to + 2 * done, sums + done, n - done);
}
