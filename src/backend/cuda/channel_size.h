/* channel_size.h: how batch norm, alone and over ranks, and group norm cut their rows of channels, and the workspace that follows. Plain C: plans
 * are made without CUDA.
 *
 * A block has `across` threads side by side, each with 16 bytes of channels (a piece), and `abreast` rows of them. Sums are
 * taken by parts of a sample's rows and added up afterwards. All of it depends on shape and type alone, and so do the
 * bits. */
#ifndef SL_BACKEND_CUDA_CHANNEL_SIZE_H
#define SL_BACKEND_CUDA_CHANNEL_SIZE_H

#include "backend/cuda/cuda_kernels.h"

#define SL_CHANNEL_THREADS 256
#define SL_CHANNEL_ACROSS  32   /* at most: 512 bytes of a row */
#define SL_CHANNEL_BLOCKS  1056 /* that take sums, about: several for each multiprocessor of today's largest */
#define SL_CHANNEL_LEAST   8    /* rows that a thread adds up, at least, unless there are fewer */

typedef struct sl_channel_grid {
    int64_t samples, rows, width, groups;
    int64_t pieces, tiles; /* of a row: pieces of 16 bytes; blocks side by side */
    int64_t across, abreast;
    int64_t part_rows, parts;
} sl_channel_grid;

static inline int64_t sl_channel_ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* groups 0: each channel is a group. `together`: samples whose parts are to fill the device together. */
static inline sl_channel_grid sl_channel_grid_with(const sl_cuda_tensor *x, bool by_sample, int64_t groups,
                                                   int64_t together)
{
    const sl_shape *s = x->shape;
    sl_channel_grid g;
    g.samples = by_sample ? s->dim[0] : 1;
    g.rows = 1;
    g.width = s->dim[s->rank - 1];
    for (int i = by_sample; i < s->rank - 1; i++) g.rows *= s->dim[i];
    g.groups = groups > 0 ? groups : g.width;
    g.pieces = sl_channel_ceil_div(g.width, x->form == SL_FORM_F32 ? 4 : 8);
    g.across = SL_CHANNEL_ACROSS;
    while (g.across > 1 && g.across / 2 >= g.pieces) g.across /= 2;
    g.abreast = SL_CHANNEL_THREADS / g.across;
    g.tiles = sl_channel_ceil_div(g.pieces, g.across);
    const int64_t wanted = sl_channel_ceil_div(SL_CHANNEL_BLOCKS, g.tiles * together);
    const int64_t least = g.abreast * SL_CHANNEL_LEAST;
    g.part_rows = sl_channel_ceil_div(g.rows, wanted);
    g.part_rows = sl_channel_ceil_div(g.part_rows, g.abreast) * g.abreast;
    if (g.part_rows < least) g.part_rows = least;
    g.parts = sl_channel_ceil_div(g.rows, g.part_rows);
    return g;
}

/* groups 0: batch norm, of which all rows are one sample. */
static inline sl_channel_grid sl_channel_grid_of(const sl_cuda_tensor *x, int64_t groups)
{
    return sl_channel_grid_with(x, groups > 0, groups, groups > 0 ? x->shape->dim[0] : 1);
}

/* Batch norm over ranks: sums of each sample, whose cut must not depend on how many there are. */
static inline sl_channel_grid sl_channel_grid_of_samples(const sl_cuda_tensor *x)
{
    return sl_channel_grid_with(x, true, 0, 1);
}

/* Two sums in double of each sample, part and channel; then two f32 factors of each sample and group. */
static inline uint64_t sl_channel_sum_bytes(const sl_channel_grid *g)
{
    return (uint64_t)(g->samples * g->parts * 2 * g->width) * sizeof(double);
}

static inline uint64_t sl_cuda_channel_norm_workspace(sl_op op, const sl_cuda_args *a)
{
    const bool by_sample = op == SL_OP_GROUP_NORM || op == SL_OP_GROUP_NORM_GRAD;
    const sl_channel_grid g = sl_channel_grid_of(&a->in[0], by_sample ? a->attrs->group_norm.groups : 0);
    return sl_channel_sum_bytes(&g) + (uint64_t)(g.samples * g.groups * 2) * sizeof(float);
}

/* Over ranks: where sums are taken also two f32 numbers of each sample and channel; otherwise two of each channel. */
static inline uint64_t sl_cuda_shared_norm_workspace(sl_op op, const sl_cuda_args *a)
{
    const sl_channel_grid g = sl_channel_grid_of_samples(&a->in[0]);
    const bool sums = op == SL_OP_BATCH_MOMENTS || op == SL_OP_BATCH_NORM_SUMS;
    return (sums ? sl_channel_sum_bytes(&g) : 0) + (uint64_t)((sums ? g.samples : 1) * g.width * 2) * sizeof(float);
}

#endif
