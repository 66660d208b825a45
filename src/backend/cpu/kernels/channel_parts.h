/* channel_parts.h: how batch norm and group norm cut their rows. Shared by the kernels and by who reserves their
 * workspace. Cuts depend on the shape alone. */
#ifndef SL_BACKEND_CPU_CHANNEL_PARTS_H
#define SL_BACKEND_CPU_CHANNEL_PARTS_H

#include "core/bytes.h"
#include "ir/op.h"

#define SL_CHANNEL_PARTS    64    /* of a sample's rows, at most: their sums are added up in order */
#define SL_CHANNEL_BLOCK    32    /* rows whose sums are f32; those of blocks are added in double */
#define SL_CHANNEL_COLUMNS  512   /* channels of a task */
#define SL_CHANNEL_ELEMENTS 16384 /* of a task, at least, where there are as many */
#define SL_CHANNEL_FACTORS  5     /* f32 numbers of each sample and channel that the second walk needs */

/* A tensor as `samples` times `rows` rows of `width` channels, each sample with statistics of its own; its rows in `parts`
 * of part_rows, the last one shorter. */
typedef struct sl_channel_cut {
    int64_t samples, rows, width, part_rows, parts;
} sl_channel_cut;

static inline sl_channel_cut sl_channel_cut_of(const sl_shape *x, bool by_sample)
{
    sl_channel_cut c = { .samples = by_sample ? x->dim[0] : 1, .rows = 1, .width = x->dim[x->rank - 1] };
    for (int i = by_sample; i < x->rank - 1; i++) c.rows *= x->dim[i];
    int64_t columns = c.width < SL_CHANNEL_COLUMNS ? c.width : SL_CHANNEL_COLUMNS;
    int64_t each = sl_ceil_div(c.rows, SL_CHANNEL_PARTS), least = SL_CHANNEL_ELEMENTS / columns;
    if (each < least) each = least;
    c.part_rows = sl_ceil_div(each, SL_CHANNEL_BLOCK) * SL_CHANNEL_BLOCK;
    c.parts = sl_ceil_div(c.rows, c.part_rows);
    return c;
}

/* Two sums in double of each sample, part and channel; then the factors of each sample and channel. */
static inline uint64_t sl_channel_sum_bytes(const sl_channel_cut *c)
{
    return (uint64_t)(c->samples * c->parts * 2 * c->width) * sizeof(double);
}

static inline uint64_t sl_channel_bytes(const sl_channel_cut *c)
{
    return sl_channel_sum_bytes(c) + (uint64_t)(c->samples * SL_CHANNEL_FACTORS * c->width) * sizeof(float);
}

#endif
