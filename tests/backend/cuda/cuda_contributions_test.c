/* cuda_contributions_test.c: contributions added by the CUDA kernel against comm/sums.h, bit for bit: forms, alignments,
 * lengths, ranks, first and further micro-batches, in place and not. */
#include "test.h"

#include "support/contributions.h"

static void check_trial(const trial *t)
{
    static _Alignas(256) unsigned char received[(MOST_RANKS - 1) * SLOT], own[SLOT], got[SLOT], expected[SLOT];
    unsigned char *from[MOST_RANKS];
    uint64_t off = t->beside * sl_comm_form_bytes(t->form), sum_off = t->beside * sl_comm_form_bytes(t->sum_form);
    size_t sum_bytes = (size_t)((uint64_t)t->elements * sl_comm_form_bytes(t->sum_form));
    for (int r = 0; r < t->ranks; r++) {
        from[r] = r == t->rank ? own + off : received + (r - (r > t->rank)) * SLOT + off;
        fill(from[r], t->form, r, t->elements);
    }
    memset(got, 0x5a, sizeof got);
    if (!t->first) fill(got + sum_off, SL_FORM_F32, MOST_RANKS, t->elements);
    memcpy(expected, got, sizeof got);
    expect(t, from, expected + sum_off);
    sl_contributions c = { t->form,   t->sum_form,    t->first, t->rank,       t->ranks,
                           own + off, received + off, SLOT,     got + sum_off, t->elements };
    if (t->in_place) c.sum = own + off;
    REQUIRE_OK(sl_cuda_add_contributions(NULL, 2, &c));
    if (t->in_place)
        CHECK(memcmp(own + off, expected + sum_off, sum_bytes) == 0);
    else
        CHECK(memcmp(got, expected, sizeof got) == 0); /* and nothing beside the sum */
}

TEST(contributions_are_added_on_the_gpu_as_sums_h_adds_them)
{
    static const int64_t lengths[] = { 1, 7, 64, MOST };
    static const struct {
        int ranks, rank;
    } places[] = { { 1, 0 }, { 2, 0 }, { 2, 1 }, { 5, 2 } };
    for (int k = 0; k < KINDS; k++)
        for (int i = 0; i < 32; i++) {
            trial t = { kinds[k].form,       kinds[k].sum_form,  kinds[k].first, kinds[k].in_place,
                        places[i % 4].ranks, places[i % 4].rank, lengths[i / 8], (uint64_t)(i / 4 % 2) };
            check_trial(&t);
        }
}
