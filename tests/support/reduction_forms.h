/* reduction_forms.h: numbers in the forms that reductions take, for tests of communicators, by core/half.h alone. */
#ifndef SLUICE_TEST_REDUCTION_FORMS_H
#define SLUICE_TEST_REDUCTION_FORMS_H

#include <math.h>

#include "comm/comm.h"
#include "core/half.h"

/* What a reduction may be of, and how many micro-batches make sense with it. */
typedef struct forms_pair {
    sl_form form, sum_form;
    int micro_batches;
    bool in_place; /* the sum takes the place of this rank's part of its contribution */
} forms_pair;

enum { FORMS_REDUCED = 8 };
static const forms_pair forms_reduced[FORMS_REDUCED] = {
    { SL_FORM_F32, SL_FORM_F32, 3, false },   { SL_FORM_BF16, SL_FORM_F32, 3, false },
    { SL_FORM_BF16, SL_FORM_BF16, 1, false }, { SL_FORM_F16, SL_FORM_F32, 3, false },
    { SL_FORM_F16, SL_FORM_F16, 1, false },   { SL_FORM_F32, SL_FORM_F32, 1, true },
    { SL_FORM_BF16, SL_FORM_BF16, 1, true },  { SL_FORM_F16, SL_FORM_F16, 1, true },
};

static inline void form_encode(sl_form form, float x, void *to)
{
    uint16_t half = form == SL_FORM_BF16 ? sl_float_to_bf16(x) : sl_float_to_f16(x);
    if (form == SL_FORM_F32)
        memcpy(to, &x, sizeof x);
    else
        memcpy(to, &half, sizeof half);
}

static inline float form_decode(sl_form form, const void *from)
{
    float x;
    uint16_t half;
    memcpy(&half, from, sizeof half);
    if (form == SL_FORM_BF16) return sl_bf16_to_float(half);
    if (form == SL_FORM_F16) return sl_f16_to_float(half);
    memcpy(&x, from, sizeof x);
    return x;
}

/* The number of that form next to x. */
static inline float form_nearest(sl_form form, float x)
{
    float stored;
    form_encode(form, x, &stored);
    return form_decode(form, &stored);
}

/* Numbers at the ends of a form: sums of them overflow, vanish, or are none. */
static inline float form_special(sl_form form, int which)
{
    static const float largest[SL_FORM_COUNT] = {
        [SL_FORM_F32] = 0x1.fffffep127f, [SL_FORM_BF16] = 0x1.fep127f, [SL_FORM_F16] = 65504.0f
    };
    static const float least[SL_FORM_COUNT] = {
        [SL_FORM_F32] = 0x1p-149f, [SL_FORM_BF16] = 0x1p-133f, [SL_FORM_F16] = 0x1p-24f
    };
    switch (which % 9) {
    case 0:
        return INFINITY;
    case 1:
        return -INFINITY;
    case 2:
        return NAN;
    case 3:
        return -0.0f;
    case 4:
        return -least[form];
    case 5:
        return 37 * least[form];
    case 6:
        return -largest[form];
    default:
        return largest[form];
    }
}

/* Whether what lies at `got` is `expected` rounded to the form, to the bit; every NaN is as good as another. */
static inline bool form_same(sl_form form, const void *got, float expected)
{
    unsigned char bits[4];
    form_encode(form, expected, bits);
    if (isnan(expected)) return isnan(form_decode(form, got));
    return memcmp(got, bits, (size_t)sl_comm_form_bytes(form)) == 0;
}

#endif
