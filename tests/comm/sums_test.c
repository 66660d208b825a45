/* sums_test.c: the vector conversions of reductions against those of core/half.h, to the bit, plain and wide. */
#include "comm/local.h"
#include "comm/sums.h"
#include "core/half.h"
#include "test.h"

static const struct form_row {
    sl_form form;
    float (*widen)(uint16_t h);
    uint16_t (*round)(float x);
} rows[] = { { SL_FORM_BF16, sl_bf16_to_float, sl_float_to_bf16 }, { SL_FORM_F16, sl_f16_to_float, sl_float_to_f16 } };
enum { ROWS = sizeof rows / sizeof rows[0] };

/* One run of the additions with one source is a widening. Wide ones where the machine has them. */
static void widen_eight(sl_form form, bool wide, const uint16_t *from, float *to)
{
    const sl_addition how = { .form = form, .first = true, .wide = wide };
    const unsigned char *sources[] = { (const unsigned char *)from };
    sl_local_add(&how, to, sources, 1, SL_SUM_LANES);
}

static void round_eight(sl_form form, bool wide, const float *from, uint16_t *to)
{
    const sl_addition how = { .form = form, .wide = wide };
    sl_local_round(&how, (unsigned char *)to, from, SL_SUM_LANES);
}

/* How many of the eight floats from `bits` on, `stride` apart, are rounded otherwise. */
static int wrong_rounds(const struct form_row *row, int widest, uint32_t bits, uint32_t stride)
{
    float x[SL_SUM_LANES];
    int wrong = 0;
    for (uint32_t k = 0; k < SL_SUM_LANES; k++) x[k] = sl_bits_float(bits + k * stride);
    for (int wide = 0; wide <= widest; wide++) {
        uint16_t got[SL_SUM_LANES];
        round_eight(row->form, wide, x, got);
        for (int k = 0; k < SL_SUM_LANES; k++) wrong += got[k] != row->round(x[k]);
    }
    return wrong;
}

static int wrong_widenings(const struct form_row *row, bool wide)
{
    int wrong = 0;
    for (uint32_t h = 0; h < 0x10000; h += SL_SUM_LANES) {
        uint16_t from[SL_SUM_LANES];
        float got[SL_SUM_LANES];
        for (uint32_t k = 0; k < SL_SUM_LANES; k++) from[k] = (uint16_t)(h + k);
        widen_eight(row->form, wide, from, got);
        for (int k = 0; k < SL_SUM_LANES; k++) wrong += sl_float_bits(got[k]) != sl_float_bits(row->widen(from[k]));
    }
    return wrong;
}

TEST(every_half_is_widened_to_the_same_bits)
{
    for (int f = 0; f < ROWS; f++)
        for (int wide = 0; wide <= sl_sum_has_wide(); wide++) CHECK_EQ(wrong_widenings(&rows[f], wide), 0);
}

TEST(floats_all_over_the_range_are_rounded_to_the_same_bits)
{
    for (int f = 0; f < ROWS; f++) {
        int64_t wrong = 0;
        const int widest = sl_sum_has_wide();
        for (uint64_t bits = 0; bits < (uint64_t)1 << 32; bits += (uint64_t)SL_SUM_LANES * 251)
            wrong += wrong_rounds(&rows[f], widest, (uint32_t)bits, 251);
        CHECK_EQ(wrong, 0);
    }
}

/* Around every half and around every point midway to the next one. */
TEST(floats_where_rounding_turns_are_rounded_to_the_same_bits)
{
    for (int f = 0; f < ROWS; f++) {
        int64_t wrong = 0;
        const int widest = sl_sum_has_wide();
        for (uint32_t h = 0; h < 0x10000; h++) {
            uint32_t at = sl_float_bits(rows[f].widen((uint16_t)h));
            uint32_t next = sl_float_bits(rows[f].widen((uint16_t)(h + 1)));
            wrong +=
                wrong_rounds(&rows[f], widest, at - 4, 1) + wrong_rounds(&rows[f], widest, at + (next - at) / 2 - 4, 1);
        }
        CHECK_EQ(wrong, 0);
    }
}
