/* collective_parts.h: collectives of two parts that every partition, form and tier is tried with, and what must come of them; for
 * tests of communicators on the device of double_device.h. */
#ifndef SLUICE_TEST_COLLECTIVE_PARTS_H
#define SLUICE_TEST_COLLECTIVE_PARTS_H

#include "support/double_device.h"
#include "support/reduction_forms.h"
#include "test.h"

enum { MAX_RANKS = 6, ARENA = 1 << 20, PARTS = 2 };

/* ---- partitions ---- */

typedef struct partition {
    sl_shards shards;
    int64_t bounds[MAX_RANKS + 1];
} partition;

typedef enum { EVEN, BLOCKS, OWNER, HOLES, TINY, EXACT_BLOCKS, SHAPES } shape;

/* How the rest behind the blocks is cut: a thousandth of it, in cuts of 1,024 elements. */
static inline int64_t cut_at(shape s, int ranks, int r, int64_t begin, int64_t end)
{
    int64_t cuts = (end - begin + 1023) / 1024, at;
    if (r == 0) return begin;
    if (r == ranks) return end;
    if (s == OWNER) return r <= ranks / 2 ? begin : end; /* all to one */
    if (s == HOLES)
        at = r % 2 == 1 ? (r + 1) / 2 : r / 2; /* every second rank has nothing */
    else
        at = cuts * r / ranks;
    at = begin + at * 1024;
    return at < end ? at : end;
}

static inline void cut(partition *p, shape s, int ranks)
{
    static const int64_t rests[SHAPES] = { 11 * 1024 + 37, 5 * 1024 + 1, 4096, 9 * 1024 + 5, 5, 0 };
    int64_t block = s == BLOCKS || s == EXACT_BLOCKS ? 2048 : 0, rounds = block > 0 ? 3 : 0;
    int64_t dealt = block * rounds * ranks;
    p->shards = (sl_shards){ ranks, dealt + rests[s], block, rounds, p->bounds };
    for (int r = 0; r <= ranks; r++) p->bounds[r] = cut_at(s, ranks, r, dealt, p->shards.elements);
}

/* ---- one job with two parts on two tiers, at other offsets on every rank ---- */

typedef struct job {
    sl_comm *comm;
    sl_device *device;
    int rank, ranks;
    const forms_pair *forms; /* of reductions; NULL: f32 */
    partition cuts[PARTS];
    sl_comm_part parts[PARTS];
} job;

static inline uint64_t units(const sl_comm_part *p, int64_t elements)
{
    return (uint64_t)((elements + p->per - 1) / p->per) * p->unit;
}

static inline uint64_t shard_bytes(const sl_comm_part *p, int rank)
{
    uint64_t bytes = 0;
    for (int64_t i = 0; i < sl_shard_range_count(p->shards, rank); i++)
        bytes += units(p, sl_shard_range(p->shards, rank, i).count);
    return bytes;
}

static inline void lay_out(job *j, shape s, int64_t per, uint64_t unit, bool in_place)
{
    for (int i = 0; i < PARTS; i++) {
        sl_comm_part *p = &j->parts[i];
        cut(&j->cuts[i], (shape)((s + i) % SHAPES), j->ranks);
        *p = (sl_comm_part){ .shards = &j->cuts[i].shards, .per = per, .unit = unit, .in_place = in_place };
        uint64_t at = 256 * (uint64_t)(1 + j->rank + 3 * i);
        p->whole = (sl_span){ (sl_tier)i, at, units(p, p->shards->elements) };
        p->shard = (sl_span){ (sl_tier)(1 - i), ARENA / 2 + at, in_place ? 0 : shard_bytes(p, j->rank) };
    }
}

static inline const forms_pair *forms_of(const job *j)
{
    return j->forms != NULL ? j->forms : &forms_reduced[0];
}

/* As lay_out, in the job's forms; 16-bit ones begin between two words. */
static inline void lay_out_sums(job *j, shape s)
{
    const forms_pair *f = forms_of(j);
    lay_out(j, s, 1, sl_comm_form_bytes(f->form), f->in_place);
    for (int i = 0; i < PARTS; i++) {
        sl_comm_part *p = &j->parts[i];
        p->form = f->form, p->sum_form = f->sum_form;
        p->whole.offset += p->unit % 4;
        p->shard.bytes = sl_comm_shard_bytes(SL_REDUCE_SCATTER, p, j->rank);
        p->shard.offset += sl_comm_form_bytes(f->sum_form) % 4;
    }
}

static inline sluice_status collective(job *j, uint64_t sequence, sl_collective_kind kind, bool first)
{
    sl_collective c = { kind, "a collective", PARTS, j->parts };
    SL_TRY(j->comm->ops->start(j->comm, sequence, &c, first));
    return double_backend.synchronize(j->device);
}

/* ---- reduce-scatter ---- */

/* Values whose sum depends on the order of additions, and now and then one that is no ordinary number. */
static inline float contribution(sl_form form, int rank, int micro_batch, int part, int64_t i)
{
    static const float scales[][5] = { { 1e8f, 1.0f, 1e-3f, 3e4f, -1e8f }, { 3e4f, 1.0f, 1e-3f, 6e-7f, -3e4f } };
    uint32_t h = (uint32_t)(i * 2654435761u) + (uint32_t)rank * 40503u + (uint32_t)(micro_batch * 977 + part * 31);
    h ^= h >> 13, h *= 2246822519u, h ^= h >> 16;
    if (i % 61 == 7) return form_special(form, (int)(i / 61) + rank * (1 + (int)(i / 61) % 5) + micro_batch);
    return form_nearest(form, ((float)(h % 20011) / 10007.0f - 1.0f) * scales[form == SL_FORM_F16][(h >> 20) % 5]);
}

static inline void contribute(job *j, int micro_batch)
{
    for (int i = 0; i < PARTS; i++) {
        const sl_comm_part *p = &j->parts[i];
        unsigned char *to = double_at(j->device, p->whole);
        for (int64_t e = 0; e < p->shards->elements; e++)
            form_encode(p->form, contribution(p->form, j->rank, micro_batch, i, e), to + (uint64_t)e * p->unit);
    }
}

/* The exact rule, element by element: micro-batches in order, ranks in order within each. */
static inline float expected_sum(sl_form form, int ranks, int micro_batches, int part, int64_t e)
{
    volatile float sum = contribution(form, 0, 0, part, e);
    for (int m = 0; m < micro_batches; m++)
        for (int r = m == 0 ? 1 : 0; r < ranks; r++) sum = sum + contribution(form, r, m, part, e);
    return sum;
}

/* In place the sums lie in the whole, and what other ranks own of it is as it was brought. */
static inline void check_part(const job *j, int i, int micro_batches)
{
    const sl_comm_part *p = &j->parts[i];
    const unsigned char *got = double_at(j->device, p->shard), *whole = double_at(j->device, p->whole);
    int64_t behind = 0;
    for (int64_t k = 0; k < sl_shard_range_count(p->shards, j->rank); k++) {
        sl_range range = sl_shard_range(p->shards, j->rank, k);
        for (int64_t e = p->in_place ? behind : range.first; e < range.first; e++)
            CHECK(form_same(p->form, whole + (uint64_t)e * p->unit, contribution(p->form, j->rank, 0, i, e)));
        for (int64_t e = range.first; e < range.first + range.count; e++, got += sl_comm_form_bytes(p->sum_form))
            CHECK(form_same(p->sum_form, p->in_place ? whole + (uint64_t)e * p->unit : got,
                            expected_sum(p->form, j->ranks, micro_batches, i, e)));
        behind = range.first + range.count;
    }
}

static inline void check_sums(const job *j, int micro_batches)
{
    for (int i = 0; i < PARTS; i++) check_part(j, i, micro_batches);
}

/* ---- gather ---- */

static inline unsigned char unit_byte(int part, uint64_t at)
{
    return (unsigned char)(1 + (at * 31 + (uint64_t)part * 7 + at / 251) % 255);
}

/* Writes this rank's ranges where the gather takes them from. */
static inline void bring(job *j)
{
    for (int i = 0; i < PARTS; i++) {
        const sl_comm_part *p = &j->parts[i];
        unsigned char *whole = double_at(j->device, p->whole), *shard = double_at(j->device, p->shard);
        memset(whole, 0, p->whole.bytes);
        for (int64_t k = 0; k < sl_shard_range_count(p->shards, j->rank); k++) {
            sl_span at = sl_comm_bytes(p, (sl_span){ 0 }, sl_shard_range(p->shards, j->rank, k));
            for (uint64_t b = at.offset; b < at.offset + at.bytes; b++)
                *(p->in_place ? &whole[b] : shard++) = unit_byte(i, b);
        }
    }
}

static inline void check_whole(const job *j)
{
    for (int i = 0; i < PARTS; i++) {
        const unsigned char *whole = double_at(j->device, j->parts[i].whole);
        for (uint64_t b = 0; b < j->parts[i].whole.bytes; b++) CHECK_EQ(whole[b], unit_byte(i, b));
    }
}

#endif
