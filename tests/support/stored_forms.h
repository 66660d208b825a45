/* stored_forms.h: arrays of numbers stored in a float form, for tests that compare kernels of all element types. */
#ifndef SLUICE_TEST_STORED_FORMS_H
#define SLUICE_TEST_STORED_FORMS_H

#include "backend/cpu/kernels.h"
#include "core/half.h"
#include "support/kernel_paths.h"

typedef struct stored {
    int64_t count;
    sl_form form;
    float *values; /* what was stored first, exactly */
    void *data;    /* in the form */
} stored;

static inline float rounded(float x, sl_form form)
{
    if (form == SL_FORM_BF16) return sl_bf16_to_float(sl_float_to_bf16(x));
    return form == SL_FORM_F16 ? sl_f16_to_float(sl_float_to_f16(x)) : x;
}

static inline float stored_at(const stored *s, int64_t i)
{
    if (s->form == SL_FORM_BF16) return sl_bf16_to_float(((const uint16_t *)s->data)[i]);
    return s->form == SL_FORM_F16 ? sl_f16_to_float(((const uint16_t *)s->data)[i]) : ((const float *)s->data)[i];
}

/* data holds the first values again. */
static inline void restore(stored *s)
{
    for (int64_t i = 0; i < s->count; i++)
        if (s->form == SL_FORM_F32)
            ((float *)s->data)[i] = s->values[i];
        else
            ((uint16_t *)s->data)[i] =
                s->form == SL_FORM_BF16 ? sl_float_to_bf16(s->values[i]) : sl_float_to_f16(s->values[i]);
}

static inline float *numbers(int64_t count, uint32_t seed)
{
    float *p = malloc((size_t)count * sizeof *p);
    if (p == NULL) exit(99);
    fill_numbers(p, count, seed);
    return p;
}

/* `count` numbers of the seed, rounded to the form. The memory is as long as the numbers: a sanitizer sees what goes
 * beyond. */
static inline stored make_stored(int64_t count, sl_form form, uint32_t seed)
{
    stored s = { count, form, numbers(count, seed), malloc((size_t)count * (form == SL_FORM_F32 ? 4 : 2)) };
    if (s.data == NULL) exit(99);
    for (int64_t i = 0; i < count; i++) s.values[i] = rounded(s.values[i], form);
    restore(&s);
    return s;
}

static inline void free_stored(stored *s)
{
    free(s->values);
    free(s->data);
}

static inline sl_tensor tensor_of(const stored *s, const sl_shape *shape)
{
    return (sl_tensor){ s->data, shape, s->count, s->form };
}

static inline sl_kernel_type kernel_type_of(sl_form form)
{
    return form == SL_FORM_BF16 ? SL_KERNEL_BF16 : form == SL_FORM_F16 ? SL_KERNEL_F16 : SL_KERNEL_F32;
}

#endif
