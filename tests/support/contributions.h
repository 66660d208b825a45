/* contributions.h: contributions of all kinds, and their sums by comm/sums.h, for tests of the CUDA kernel that adds
 * them: on the emulation and on a GPU. */
#ifndef SLUICE_TEST_CONTRIBUTIONS_H
#define SLUICE_TEST_CONTRIBUTIONS_H

#include "backend/cuda/contributions.h"
#include "comm/sums.h"

enum { MOST_RANKS = 5, MOST = 2100, SLOT = 4 * MOST + 64 };

typedef struct trial {
    sl_form form, sum_form;
    bool first, in_place;
    int ranks, rank;
    int64_t elements;
    uint64_t beside; /* elements off 256-byte alignment */
} trial;

/* Bit patterns of all kinds but NaN: which of two NaNs a sum keeps is the machine's. Infinities have one sign. */
static inline uint32_t pattern(sl_form form, int rank, int64_t i)
{
    uint32_t h = (uint32_t)i * 2654435761u + (uint32_t)rank * 40503u;
    h ^= h >> 15, h *= 2246822519u, h ^= h >> 13;
    if (form == SL_FORM_F32 && (h & 0x7f800000u) == 0x7f800000u) h ^= 0x40000000u;
    if (form == SL_FORM_BF16 && (h & 0x7f80u) == 0x7f80u) h ^= 0x4000u;
    if (form == SL_FORM_F16 && (h & 0x7c00u) == 0x7c00u) h ^= 0x4000u;
    if (i % 97 == 5) h = form == SL_FORM_F32 ? 0x80000000u : 0x8000u; /* -0 on all ranks stays so */
    if (i % 89 == 7) h = form == SL_FORM_F32 ? 0x7f800000u : form == SL_FORM_BF16 ? 0x7f80u : 0x7c00u;
    return h;
}

static inline void fill(unsigned char *to, sl_form form, int rank, int64_t n)
{
    uint64_t unit = sl_comm_form_bytes(form);
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits = pattern(form, rank, i);
        memcpy(to + (uint64_t)i * unit, &bits, unit); /* little-endian, as arenas are */
    }
}

static inline void expect(const trial *t, unsigned char *const *from, unsigned char *sum)
{
    static float wide[MOST];
    float *sums = t->sum_form == SL_FORM_F32 && !t->in_place ? (float *)(void *)sum : wide;
    for (int r = 0; r < t->ranks; r++) {
        const unsigned char *source = from[r];
        sl_sum_add(t->form, sums, &source, 1, t->first && r == 0, false, t->elements);
    }
    if (t->sum_form != SL_FORM_F32)
        sl_sum_round(t->sum_form, sum, sums, t->elements);
    else if (sums == wide)
        memcpy(sum, wide, (size_t)t->elements * sizeof(float));
}

static const struct {
    sl_form form, sum_form;
    bool first, in_place;
} kinds[] = {
    { SL_FORM_F32, SL_FORM_F32, true, false },   { SL_FORM_F32, SL_FORM_F32, false, false },
    { SL_FORM_F32, SL_FORM_F32, true, true },    { SL_FORM_BF16, SL_FORM_F32, true, false },
    { SL_FORM_BF16, SL_FORM_F32, false, false }, { SL_FORM_BF16, SL_FORM_BF16, true, false },
    { SL_FORM_BF16, SL_FORM_BF16, true, true },  { SL_FORM_F16, SL_FORM_F32, true, false },
    { SL_FORM_F16, SL_FORM_F32, false, false },  { SL_FORM_F16, SL_FORM_F16, true, false },
    { SL_FORM_F16, SL_FORM_F16, true, true },
};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

#endif
